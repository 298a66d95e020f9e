//! futex_waitv(2): waits for any of several words.

use bloodhound_abi::Errno;
use bloodhound_abi::structs::Timespec;

use crate::ctx::*;
use crate::wait::{FutexKey, Progress, Restart, SysResult, Wait, WaitOn};

/// FUTEX_WAITV_MAX.
const MAX: u32 = 128;
const FUTEX_32: u32 = 2;
const FUTEX_PRIVATE_FLAG: u32 = 128;

/// One of the words, as it was asked for.
struct Word {
    value: u64,
    address: Ptr,
    private: bool,
}

/// futex_waitv(2): the number of a word that was woken. "EAGAIN" for a word with another value; the timeout is absolute.
pub fn futex_waitv(
    k: &mut Ctx<'_>,
    waiters: Ptr,
    count: u32,
    flags: Hex,
    timeout: Ptr,
    clock: i32,
) -> SysResult {
    if let Some(end) = woken(k) {
        return end;
    }
    if flags.0 != 0 || count == 0 || count > MAX || waiters.is_null() {
        return err(Errno::EINVAL);
    }
    let mut deadline = None;
    if !timeout.is_null() {
        // CLOCK_REALTIME, CLOCK_MONOTONIC.
        if clock != 0 && clock != 1 {
            return err(Errno::EINVAL);
        }
        let end: Timespec = k.read_obj(timeout)?;
        deadline = Some(k.clock_deadline(end.to_ns().ok_or(Errno::EINVAL)?, clock == 0));
    }
    let words = read_words(k, waiters, count)?;
    let keys = words.iter().map(|word| k.futex_key(word.address.0, word.private));
    let keys: Vec<FutexKey> = keys.collect::<SysResult<_>>()?;
    for word in &words {
        if u64::from(k.read_obj::<u32>(word.address)?) != word.value {
            return err(Errno::EAGAIN);
        }
    }
    if deadline.is_some_and(|end| end.at <= k.now()) {
        return err(Errno::ETIMEDOUT);
    }
    if !k.node.signal_deliverable(k.tid) {
        for key in &keys {
            k.node.futex_queue(*key, k.tid);
        }
    }
    let mut wait = Wait::until(None).ends(deadline).restart(Restart::Sys);
    wait.on = keys.iter().map(|key| WaitOn::Futex(*key)).collect();
    Err(wait.progress(Progress::Futexes(keys.into_iter().map(|key| (key, false)).collect())).into())
}

/// futex_parse_waitv.
fn read_words(k: &mut Ctx<'_>, waiters: Ptr, count: u32) -> SysResult<Vec<Word>> {
    let mut words = Vec::new();
    for at in 0..u64::from(count) {
        let [value, address, rest]: [u64; 3] = k.read_obj(Ptr(waiters.0.wrapping_add(at * 24)))?;
        // The upper half is reserved.
        let flags = rest as u32;
        if rest >> 32 != 0 || flags & !(FUTEX_32 | FUTEX_PRIVATE_FLAG) != 0 || flags & FUTEX_32 == 0 {
            return err(Errno::EINVAL);
        }
        words.push(Word { value, address: Ptr(address), private: flags & FUTEX_PRIVATE_FLAG != 0 });
    }
    Ok(words)
}

/// The end of a sleep: of several words that were woken, the last counts (futex_unqueue_multiple).
fn woken(k: &mut Ctx<'_>) -> Option<SysResult> {
    let Some(Progress::Futexes(words)) = k.progress() else { return None };
    let index = words.iter().rposition(|(_, woken)| *woken);
    if index.is_none() && !k.timed_out() {
        return k.sleep_on();
    }
    k.node.futex_forget(k.tid);
    Some(index.map_or(err(Errno::ETIMEDOUT), |index| Ok(index as u64)))
}

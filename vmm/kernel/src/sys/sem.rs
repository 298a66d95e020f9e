//! Semaphore sets: semget(2), semop(2), semtimedop(2), semctl(2).

use bloodhound_abi::Errno;

use crate::ctx::*;
use crate::ipc::sem::{MAX_VALUE, SemOp, SemSet, Tried, Who};
use crate::ipc::{Entry, Named, Wanted};
use crate::wait::{Progress, Restart, SysResult, Wait, WaitOn};

/// SEMMSL: semaphores of a set, at most.
const MOST_OF_SET: i32 = 32000;
/// SEMMNS: semaphores of a namespace, at most.
const MOST: usize = 1_024_000_000;
/// SEMMNI: sets, at most.
const MOST_SETS: u32 = 32000;
/// SEMOPM: operations of a call, at most.
const MOST_OPS: u64 = 500;
const NOWAIT: u16 = 0o4000;
const UNDO: u16 = 0x1000;
const READ: u32 = 0o444;
const ALTER: u32 = 0o222;

/// semget(2). EEXIST, ENOENT, EACCES, ENOSPC; EINVAL for more than the set has.
pub fn semget(k: &mut Ctx<'_>, key: i32, count: i32, flags: IpcFlags) -> SysResult {
    if !(0..=MOST_OF_SET).contains(&count) {
        return err(Errno::EINVAL);
    }
    let fits = |set: &SemSet| if count as usize > set.sems.len() { Err(Errno::EINVAL) } else { Ok(()) };
    let wanted = Wanted { key, flags: flags.bits() as u32 };
    match k.ipc_named(&wanted, |ns| &mut ns.sets, fits)? {
        Named::Is(id) => Ok(id as u64),
        Named::Make(_) if count == 0 => err(Errno::EINVAL),
        Named::Make(perm) => {
            let now = k.seconds();
            // As many sets as there may be have at most as many semaphores as there may be.
            const { assert!(MOST_SETS as usize * MOST_OF_SET as usize <= MOST) };
            Ok(k.ipc().sets.add(MOST_SETS, perm, now, SemSet::new(count as usize))? as u64)
        }
    }
}

/// semop(2). As [`semtimedop`] without a timeout.
pub fn semop(k: &mut Ctx<'_>, id: i32, ops: Ptr, count: u64) -> SysResult {
    semtimedop(k, id, ops, count, Ptr(0))
}

/// semtimedop(2). E2BIG, EFBIG, EACCES, EAGAIN, ERANGE; EIDRM if the set is removed meanwhile.
pub fn semtimedop(k: &mut Ctx<'_>, id: i32, ops: Ptr, count: u64, timeout: Ptr) -> SysResult {
    let woken = k.ipc_woken(Errno::EAGAIN, |progress| match progress {
        Progress::Semaphores(result) => Some(*result),
        _ => None,
    });
    if let Some(end) = woken {
        return end.map(|()| 0);
    }
    if count == 0 || id < 0 {
        return err(Errno::EINVAL);
    }
    if count > MOST_OPS {
        return err(Errno::E2BIG);
    }
    let raw: Vec<[u16; 3]> = k.read_vec(ops.0, count as usize)?;
    let timeout = k.read_timeout(timeout)?;
    let ops: Vec<SemOp> = raw
        .into_iter()
        .map(|[number, add, flags]| SemOp {
            number,
            add: add.cast_signed(),
            no_wait: flags & NOWAIT != 0,
            undo: flags & UNDO != 0,
        })
        .collect();
    let set = set(k, id)?;
    let (perm, size) = (set.perm, set.item.sems.len());
    if ops.iter().any(|op| usize::from(op.number) >= size) {
        return err(Errno::EFBIG);
    }
    k.ipc_may(&perm, if ops.iter().any(|op| op.add != 0) { ALTER } else { READ })?;
    let (tid, now, ns) = (k.tid, k.seconds(), k.container().ipc);
    let list = ops.iter().any(|op| op.undo).then(|| k.node.undo_list(tid));
    let who = Who { pid: k.pid, list };
    let Some(set) = k.ipc().sets.get_mut(id) else { return err(Errno::EINVAL) };
    match set.item.attempt(who, &ops) {
        Tried::Failed(errno) => err(errno),
        Tried::Done { alters } => {
            set.item.otime = now;
            if alters {
                k.node.semaphores_changed(ns, id, Some(&ops));
            }
            Ok(0)
        }
        Tried::Waits(blocking) => {
            set.item.wait((who, tid), ops, blocking);
            let deadline = k.deadline(timeout);
            let wait = Wait::on(WaitOn::Semaphores(ns, id)).deadline(deadline).restart(Restart::Never);
            Err(wait.progress(Progress::Semaphores(None)).into())
        }
    }
}

fn set<'a>(k: &'a mut Ctx<'_>, id: i32) -> SysResult<&'a Entry<SemSet>> {
    Ok(k.ipc().sets.get(id).ok_or(Errno::EINVAL)?)
}

/// Commands of semctl(2).
mod cmd {
    pub const RMID: u32 = 0;
    pub const SET: u32 = 1;
    pub const STAT: u32 = 2;
    pub const INFO: u32 = 3;
    pub const GETPID: u32 = 11;
    pub const GETVAL: u32 = 12;
    pub const GETALL: u32 = 13;
    pub const GETNCNT: u32 = 14;
    pub const GETZCNT: u32 = 15;
    pub const SETVAL: u32 = 16;
    pub const SETALL: u32 = 17;
    pub const SEM_STAT: u32 = 18;
    pub const SEM_INFO: u32 = 19;
    pub const SEM_STAT_ANY: u32 = 20;
}

/// semctl(2). EINVAL for unknown commands and sets, EACCES, EPERM, ERANGE.
pub fn semctl(k: &mut Ctx<'_>, id: i32, number: i32, cmd: u32, arg: Ptr) -> SysResult {
    if id < 0 {
        return err(Errno::EINVAL);
    }
    match cmd {
        cmd::INFO | cmd::SEM_INFO => info(k, cmd, arg),
        cmd::STAT | cmd::SEM_STAT | cmd::SEM_STAT_ANY => stat(k, id, cmd, arg),
        cmd::RMID | cmd::SET => change(k, id, cmd, arg),
        cmd::GETALL | cmd::SETALL => all(k, id, cmd, arg),
        cmd::GETPID | cmd::GETVAL | cmd::GETNCNT | cmd::GETZCNT => get(k, id, number, cmd),
        cmd::SETVAL => set_value(k, id, number, arg.0 as i32),
        _ => err(Errno::EINVAL),
    }
}

/// IPC_INFO and SEM_INFO: `struct seminfo`.
fn info(k: &mut Ctx<'_>, cmd: u32, arg: Ptr) -> SysResult {
    let sets = &k.ipc().sets;
    let (count, highest) = (sets.len() as i32, sets.highest());
    let sems: usize = sets.iter().map(|entry| entry.item.sems.len()).sum();
    // semmap, semmni, semmns, semmnu, semmsl, semopm, semume, semusz, semvmx, semaem
    let most = MOST as i32;
    let ops = MOST_OPS as i32;
    let mut words = [most, MOST_SETS as i32, most, most, MOST_OF_SET, ops, ops, 20, MAX_VALUE, MAX_VALUE];
    if cmd == cmd::SEM_INFO {
        (words[7], words[9]) = (count, sems as i32);
    }
    k.write_obj(arg, &words)?;
    Ok(highest)
}

/// IPC_STAT, and SEM_STAT of an index: `struct semid64_ds`.
fn stat(k: &mut Ctx<'_>, id: i32, cmd: u32, arg: Ptr) -> SysResult {
    let sets = &k.ipc().sets;
    let entry = if cmd == cmd::STAT { sets.get(id) } else { sets.at(id) };
    let Some(Entry { id, perm, ctime, item, .. }) = entry else { return err(Errno::EINVAL) };
    let (id, perm) = (*id, *perm);
    let [a, b, c, d, e, f] = perm.words(id);
    let words = [a, b, c, d, e, f, item.otime, 0, *ctime, 0, item.sems.len() as u64, 0, 0];
    if cmd != cmd::SEM_STAT_ANY {
        k.ipc_may(&perm, READ)?;
    }
    k.write_obj(arg, &words)?;
    Ok(if cmd == cmd::STAT { 0 } else { id as u64 })
}

/// IPC_RMID, IPC_SET.
fn change(k: &mut Ctx<'_>, id: i32, cmd: u32, arg: Ptr) -> SysResult {
    let words = if cmd == cmd::SET { Some(k.read_obj::<[u64; 13]>(arg)?) } else { None };
    let perm = set(k, id)?.perm;
    k.ipc_owns(&perm)?;
    let now = k.seconds();
    let sets = &mut k.ipc().sets;
    match (words, sets.get_mut(id)) {
        (Some(words), Some(entry)) => {
            let [a, b, c, d, e, f, ..] = words;
            entry.perm.set(&[a, b, c, d, e, f])?;
            entry.ctime = now;
        }
        _ => {
            let waiters = sets.remove(id).map(|entry| entry.item.waiters()).unwrap_or_default();
            for tid in waiters {
                k.node.semaphores_done(tid, Err(Errno::EIDRM));
            }
        }
    }
    Ok(0)
}

/// GETALL, SETALL.
fn all(k: &mut Ctx<'_>, id: i32, cmd: u32, arg: Ptr) -> SysResult {
    let entry = set(k, id)?;
    let (perm, count) = (entry.perm, entry.item.sems.len());
    let values: Vec<u16> = entry.item.sems.iter().map(|sem| sem.value as u16).collect();
    if cmd == cmd::GETALL {
        k.ipc_may(&perm, READ)?;
        k.write_bytes(arg.0, zerocopy::IntoBytes::as_bytes(values.as_slice()))?;
        return Ok(0);
    }
    k.ipc_may(&perm, ALTER)?;
    let values: Vec<u16> = k.read_vec(arg.0, count)?;
    if values.iter().any(|value| i32::from(*value) > MAX_VALUE) {
        return err(Errno::ERANGE);
    }
    let values: Vec<i32> = values.into_iter().map(i32::from).collect();
    set_values(k, id, 0, &values);
    Ok(0)
}

/// GETPID, GETVAL, GETNCNT, GETZCNT.
fn get(k: &mut Ctx<'_>, id: i32, number: i32, cmd: u32) -> SysResult {
    let perm = set(k, id)?.perm;
    k.ipc_may(&perm, READ)?;
    let viewer = k.pid_ns();
    let set = &set(k, id)?.item;
    let number = u16::try_from(number).map_err(|_| Errno::EINVAL)?;
    let sem = *set.sems.get(usize::from(number)).ok_or(Errno::EINVAL)?;
    Ok(match cmd {
        cmd::GETPID => u64::from(sem.pid.map_or(0, |pid| pid.number_in(viewer))),
        cmd::GETVAL => sem.value as u64,
        cmd::GETNCNT => set.waiting(number, false),
        _ => set.waiting(number, true),
    })
}

/// SETVAL.
fn set_value(k: &mut Ctx<'_>, id: i32, number: i32, value: i32) -> SysResult {
    if !(0..=MAX_VALUE).contains(&value) {
        return err(Errno::ERANGE);
    }
    let entry = set(k, id)?;
    let (perm, count) = (entry.perm, entry.item.sems.len());
    let number = u16::try_from(number).ok().filter(|number| usize::from(*number) < count);
    let number = number.ok_or(Errno::EINVAL)?;
    k.ipc_may(&perm, ALTER)?;
    set_values(k, id, number, &[value]);
    Ok(0)
}

fn set_values(k: &mut Ctx<'_>, id: i32, first: u16, values: &[i32]) {
    let (pid, now, ns) = (k.pid, k.seconds(), k.container().ipc);
    if let Some(entry) = k.ipc().sets.get_mut(id) {
        for (at, value) in values.iter().enumerate() {
            entry.item.set(pid, first + at as u16, *value);
        }
        entry.ctime = now;
    }
    k.node.semaphores_changed(ns, id, None);
}

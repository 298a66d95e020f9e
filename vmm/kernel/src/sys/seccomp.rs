//! seccomp(2), and prctl(2) with PR_SET_SECCOMP.

use bloodhound_abi::Errno;

use crate::caps::CAP_SYS_ADMIN;
use crate::ctx::*;
use crate::seccomp::{Filter, Instruction, MOST_INSTRUCTIONS, Seccomp, action};
use crate::wait::SysResult;

const STRICT: u32 = 0;
const FILTER: u32 = 1;
const ACTION: u32 = 2;
/// SECCOMP_FILTER_FLAG_*.
const TSYNC: u64 = 1;
const LOG: u64 = 2;
const SPEC_ALLOW: u64 = 4;
const TSYNC_ESRCH: u64 = 16;

/// seccomp(2). Listeners (SECCOMP_FILTER_FLAG_NEW_LISTENER) are not known, EINVAL as before Linux 5.0: so is
/// SECCOMP_GET_NOTIF_SIZES, and SECCOMP_RET_USER_NOTIF is no action that there is.
pub fn seccomp(k: &mut Ctx<'_>, op: u32, flags: Hex, args: Ptr) -> SysResult {
    match op {
        STRICT if flags.0 != 0 || !args.is_null() => err(Errno::EINVAL),
        STRICT => strict(k),
        FILTER => filter(k, flags.0 & 0xffff_ffff, args),
        ACTION if flags.0 != 0 => err(Errno::EINVAL),
        ACTION => match k.read_obj::<u32>(args)? {
            action::KILL_PROCESS
            | action::KILL_THREAD
            | action::TRAP
            | action::ERRNO
            | action::TRACE
            | action::LOG
            | action::ALLOW => Ok(0),
            _ => err(Errno::EOPNOTSUPP),
        },
        _ => err(Errno::EINVAL),
    }
}

/// PR_SET_SECCOMP.
pub(super) fn set_mode(k: &mut Ctx<'_>, mode: u64, at: u64) -> SysResult {
    match mode {
        1 => strict(k),
        2 => filter(k, 0, Ptr(at)),
        _ => err(Errno::EINVAL),
    }
}

fn strict(k: &mut Ctx<'_>) -> SysResult {
    if matches!(k.task().seccomp, Seccomp::Filters(_)) {
        return err(Errno::EINVAL);
    }
    k.task_mut().seccomp = Seccomp::Strict;
    Ok(0)
}

fn filter(k: &mut Ctx<'_>, flags: u64, at: Ptr) -> SysResult {
    if flags & !(TSYNC | LOG | SPEC_ALLOW | TSYNC_ESRCH) != 0 {
        return err(Errno::EINVAL);
    }
    // struct sock_fprog: a length, and behind a gap the address of the instructions.
    let len = u64::from(k.read_obj::<u16>(at)?);
    let program: u64 = k.read_obj(Ptr(at.0.wrapping_add(8)))?;
    if len == 0 || len > MOST_INSTRUCTIONS {
        return err(Errno::EINVAL);
    }
    // "EACCES The caller did not have the CAP_SYS_ADMIN capability in its user namespace, or had not set no_new_privs".
    if !k.task().no_new_privs && !k.capable(CAP_SYS_ADMIN) {
        return err(Errno::EACCES);
    }
    let words: Vec<u64> = k.read_vec(program, len as usize)?;
    let program = words.iter().map(|word| Instruction::decode(word.to_le_bytes())).collect();
    let filter = Filter::new(program, (k.node.clock, k.tid))?;
    if k.task().seccomp == Seccomp::Strict {
        return err(Errno::EINVAL);
    }
    let own = k.task().seccomp.clone();
    let others: Vec<_> = k.process().threads.iter().copied().filter(|tid| *tid != k.tid).collect();
    if flags & TSYNC != 0 {
        let other = others.iter().find(|tid| !k.node.task(**tid).seccomp.is_part_of(&own));
        match other {
            Some(_) if flags & TSYNC_ESRCH != 0 => return err(Errno::ESRCH),
            // "the return value is the ID of the thread that caused the synchronization failure".
            Some(tid) => return Ok(u64::from(tid.number())),
            None => {}
        }
    }
    let new = own.with(filter)?;
    if flags & TSYNC != 0 {
        let no_new_privs = k.task().no_new_privs;
        for tid in others {
            let other = k.node.task_mut(tid);
            other.seccomp = new.clone();
            // "Don't let an unprivileged task work around the no_new_privs restriction by creating a thread that sets it up, enters seccomp,
            // then dies" (seccomp_sync_threads).
            other.no_new_privs |= no_new_privs;
        }
    }
    k.task_mut().seccomp = new;
    Ok(0)
}

//! seccomp(2), and prctl(2) with PR_SET_SECCOMP.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_bpf::{Instruction, MOST_INSTRUCTIONS, Program};

use crate::caps::CAP_SYS_ADMIN;
use crate::ctx::*;
use crate::file::{File, FileKind};
use crate::seccomp::listener::Listener;
use crate::seccomp::{Filter, Seccomp, action};
use crate::wait::SysResult;

const STRICT: u32 = 0;
const FILTER: u32 = 1;
const ACTION: u32 = 2;
const SIZES: u32 = 3;
/// SECCOMP_FILTER_FLAG_*.
const TSYNC: u64 = 1;
const LOG: u64 = 2;
const SPEC_ALLOW: u64 = 4;
const NEW_LISTENER: u64 = 8;
const TSYNC_ESRCH: u64 = 16;
const WAIT_KILLABLE_RECV: u64 = 32;

/// seccomp(2).
pub fn seccomp(k: &mut Ctx<'_>, op: u32, flags: Hex, args: Ptr) -> SysResult {
    match op {
        STRICT if flags.0 != 0 || !args.is_null() => err(Errno::EINVAL),
        STRICT => strict(k),
        FILTER => filter(k, flags.0 & 0xffff_ffff, args),
        ACTION | SIZES if flags.0 != 0 => err(Errno::EINVAL),
        ACTION => match k.read_obj::<u32>(args)? {
            action::KILL_PROCESS
            | action::KILL_THREAD
            | action::TRAP
            | action::ERRNO
            | action::USER_NOTIF
            | action::TRACE
            | action::LOG
            | action::ALLOW => Ok(0),
            _ => err(Errno::EOPNOTSUPP),
        },
        SIZES => k.notification_sizes(args),
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
    let listens = flags & NEW_LISTENER != 0;
    if flags & !(TSYNC | LOG | SPEC_ALLOW | NEW_LISTENER | TSYNC_ESRCH | WAIT_KILLABLE_RECV) != 0
        // Both results are numbers of their own: there "is no way to tell whether something succeeded or failed".
        || listens && flags & (TSYNC | TSYNC_ESRCH) == TSYNC
        || !listens && flags & WAIT_KILLABLE_RECV != 0
    {
        return err(Errno::EINVAL);
    }
    let mut filter = read_filter(k, at)?;
    if listens {
        let limit = k.process().limits[c::RLIMIT_NOFILE as usize].cur;
        k.table().lowest_free(0, limit)?;
        k.may_open()?;
    }
    if k.task().seccomp == Seccomp::Strict {
        return err(Errno::EINVAL);
    }
    let own = k.task().seccomp.clone();
    // "EBUSY While installing a new filter, the SECCOMP_FILTER_FLAG_NEW_LISTENER flag was specified, but a previous filter had already
    // been installed with that flag"; one whose listener is gone does not count (has_duplicate_listener).
    if listens && own.listeners().any(|listener| k.node.listeners.get(listener).is_some()) {
        return err(Errno::EBUSY);
    }
    own.check_length(&filter)?;
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
    let mut result = 0;
    if listens {
        let mut first = [0; 8];
        k.random_bytes(&mut first);
        let listener = Listener::new(u64::from_le_bytes(first), flags & WAIT_KILLABLE_RECV != 0);
        let listener = k.node.listeners.insert(listener);
        filter = filter.heard_by(listener);
        result = k.open_file(File::new(FileKind::Listener(listener), c::O_RDWR), true)?;
    }
    let new = own.with(filter);
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
    Ok(result)
}

/// The program at an address, of somebody who may install one.
fn read_filter(k: &mut Ctx<'_>, at: Ptr) -> SysResult<Filter> {
    let (len, program) = k.read_fprog(at)?;
    // "EACCES The caller did not have the CAP_SYS_ADMIN capability in its user namespace, or had not set no_new_privs".
    if !k.task().no_new_privs && !k.capable(CAP_SYS_ADMIN) {
        return err(Errno::EACCES);
    }
    let program = k.read_program(len, program)?;
    Ok(Filter::new(program, (k.node.clock, k.tid))?)
}

impl Ctx<'_> {
    /// Length and address of the program that a `struct sock_fprog` names. EINVAL for none and for one that is too long.
    pub(super) fn read_fprog(&mut self, at: Ptr) -> Result<(usize, u64), Errno> {
        // The length, and behind a gap the address of the instructions.
        let len = usize::from(self.read_obj::<u16>(at)?);
        let program: u64 = self.read_obj(Ptr(at.0.wrapping_add(8)))?;
        if len == 0 || len > MOST_INSTRUCTIONS { Err(Errno::EINVAL) } else { Ok((len, program)) }
    }

    /// A program of so many instructions. EINVAL at no address and where Linux takes none like it.
    pub(super) fn read_program(&mut self, len: usize, at: u64) -> Result<Program, Errno> {
        // bpf_check_basics_ok.
        if at == 0 {
            return Err(Errno::EINVAL);
        }
        let words: Vec<u64> = self.read_vec(at, len)?;
        let program = words.iter().map(|word| Instruction::decode(word.to_le_bytes())).collect();
        Program::new(program).ok_or(Errno::EINVAL)
    }
}

//! Locking calls: flock(2), and the locking commands of fcntl(2). The tables are in [`crate::locks`].

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Flock as FlockArg;
use bloodhound_vfs::Ino;

use crate::ctx::*;
use crate::file::FileKind;
use crate::ids::*;
use crate::locks::{Flock, Owner, Request, lockable};
use crate::wait::{Progress, SysResult, Wait, WaitOn};

/// flock(2).
pub fn flock(k: &mut Ctx<'_>, fd: Fd, op: FlockOp) -> SysResult {
    let op = op.bits();
    let kind = op & !c::LOCK_NB;
    // "LOCK_MAND ... support has been removed" (the kernel's sys_flock): it does nothing since Linux 5.18.
    const LOCK_MAND: u64 = 32;
    if op & LOCK_MAND != 0 {
        return Ok(0);
    }
    // The command is looked at before the descriptor, since Linux 6.0.
    if !matches!(kind, c::LOCK_SH | c::LOCK_EX | c::LOCK_UN) {
        return err(Errno::EINVAL);
    }
    let id = k.pin(fd)?;
    let exclusive = match kind {
        c::LOCK_SH => false,
        c::LOCK_EX => true,
        _ => {
            let ino = lock_inode(k, id)?;
            if k.node.locks.cut_whole(ino, id) {
                k.node.notify(WaitOn::Lock(ino));
            }
            return Ok(0);
        }
    };
    let ino = lock_inode(k, id)?;
    // Opened with an access mode of 3, for ioctl(2) only (sys_flock).
    if !k.node.files[id].readable() && !k.node.files[id].writable() {
        return err(Errno::EBADF);
    }
    k.node.locks.unwant(k.tid);
    match k.node.locks.whole_of(ino, id) {
        Some(held) if held.exclusive == exclusive => return Ok(0),
        // "Converting a lock (shared to exclusive, or vice versa) is not guaranteed to be atomic: the existing lock is
        // first removed, and then a new lock is established" (flock(2)).
        Some(_) => {
            k.node.locks.cut_whole(ino, id);
            k.node.notify(WaitOn::Lock(ino));
        }
        None => {}
    }
    if k.node.locks.whole_conflict(ino, id, exclusive) {
        if op & c::LOCK_NB != 0 {
            return err(Errno::EAGAIN);
        }
        return Err(Wait::on(WaitOn::Lock(ino)).into());
    }
    let pid = k.pid;
    k.node.locks.set_whole(ino, Flock { file: id, pid, exclusive });
    Ok(0)
}

fn lock_inode(k: &Ctx<'_>, id: FileId) -> Result<Ino, Errno> {
    lockable(&k.node.files[id].kind).ok_or(Errno::EBADF)
}

impl Ctx<'_> {
    /// The record-lock commands of fcntl(2): F_GETLK, F_SETLK, F_SETLKW and their F_OFD_ kin. `arg` is the address of a
    /// `struct flock`.
    pub(crate) fn fcntl_lock(&mut self, fd: Fd, cmd: u64, arg: u64) -> SysResult {
        let id = self.pin(fd)?;
        if let Some(Progress::Lock(ino, want)) = self.progress() {
            let (ino, want) = (*ino, *want);
            return self.set_lock(ino, want, true);
        }
        let arg = Ptr(arg);
        let mut lock: FlockArg = self.read_obj(arg)?;
        let ofd = matches!(cmd, c::F_OFD_GETLK | c::F_OFD_SETLK | c::F_OFD_SETLKW);
        let query = matches!(cmd, c::F_GETLK | c::F_OFD_GETLK);
        let kinds: &[u64] =
            if query { &[c::F_RDLCK, c::F_WRLCK] } else { &[c::F_RDLCK, c::F_WRLCK, c::F_UNLCK] };
        // What is asked first is what fcntl_getlk, fcntl_setlk and flock64_to_posix_lock ask first.
        if query && !kinds.contains(&(lock.kind as u64)) {
            return err(Errno::EINVAL);
        }
        let (start, end) = self.lock_range(id, &lock)?;
        let exclusive = match lock.kind as u64 {
            kind if !kinds.contains(&kind) => return err(Errno::EINVAL),
            c::F_UNLCK => None,
            kind => Some(kind == c::F_WRLCK),
        };
        let ino = lock_inode(self, id)?;
        let pid = self.pid;
        let owner = if ofd { Owner::File(id) } else { Owner::Table(self.task().common.table) };
        let container = self.process().container;
        let want = Request { owner, pid, container, start, end, exclusive: exclusive == Some(true) };
        // "When using open file description locks, the l_pid field must be set to zero"; Linux answers EINVAL.
        let pid_set = ofd && lock.pid != 0;
        if query && pid_set {
            return err(Errno::EINVAL);
        }
        if query {
            self.walks(self.node.locks.owners(ino));
            show(&mut lock, self.node.locks.conflict(ino, &want), self.pid_ns());
            self.write_obj(arg, &lock)?;
            return Ok(0);
        }
        // "EBADF: cmd is F_SETLK or F_SETLKW and the file descriptor open mode doesn't match with the type of lock
        // requested."
        let file = &self.node.files[id];
        if (exclusive == Some(true) && !file.writable()) || (exclusive == Some(false) && !file.readable()) {
            return err(Errno::EBADF);
        }
        if pid_set {
            return err(Errno::EINVAL);
        }
        self.node.locks.unwant(self.tid);
        if exclusive.is_none() {
            if self.node.locks.cut(ino, owner, start, end) {
                self.node.notify(WaitOn::Lock(ino));
            }
            return Ok(0);
        }
        self.set_lock(ino, want, matches!(cmd, c::F_SETLKW | c::F_OFD_SETLKW))
    }

    /// Sets a lock, or sleeps until that can be done. EAGAIN for who does not wait, EDEADLK.
    fn set_lock(&mut self, ino: Ino, want: Request, waits: bool) -> SysResult {
        self.node.locks.unwant(self.tid);
        self.walks(self.node.locks.owners(ino));
        if self.node.locks.conflict(ino, &want).is_some() {
            if !waits {
                return err(Errno::EAGAIN);
            }
            if matches!(want.owner, Owner::Table(_)) && self.node.lock_deadlock(ino, &want) {
                return err(Errno::EDEADLK);
            }
            self.node.locks.want(self.tid, ino, want);
            return Err(Wait::on(WaitOn::Lock(ino)).progress(Progress::Lock(ino, want)).into());
        }
        self.node.locks.set(ino, want);
        if !want.exclusive {
            // It may have been a write lock before.
            self.node.notify(WaitOn::Lock(ino));
        }
        Ok(0)
    }

    /// First and last byte that a `struct flock` names. "l_len may be negative: [...] the interval described by lock
    /// covers bytes l_start+l_len up to and including l_start-1"; "Specifying 0 for l_len has the special meaning: lock
    /// all bytes starting at the location specified by l_whence and l_start through to the end of file".
    fn lock_range(&self, id: FileId, lock: &FlockArg) -> Result<(u64, u64), Errno> {
        let file = &self.node.files[id];
        let base = match lock.whence as u64 {
            c::SEEK_SET => 0,
            c::SEEK_CUR => file.offset as i64,
            c::SEEK_END => match file.kind {
                FileKind::Mq(queue) => self.node.mqueues.all[queue].file_size as i64,
                _ => file.ino().map_or(Ok(0), |ino| self.node.vfs.stat_ino(ino).map(|s| s.size as i64))?,
            },
            _ => return Err(Errno::EINVAL),
        };
        let start = base.checked_add(lock.start).ok_or(Errno::EOVERFLOW)?;
        let (first, last) = match lock.len {
            0 => (start, i64::MAX),
            len if len > 0 => (start, start.checked_add(len - 1).ok_or(Errno::EOVERFLOW)?),
            len => (start.checked_add(len).ok_or(Errno::EINVAL)?, start - 1),
        };
        // "EINVAL: ... the resulting range would begin before the start of the file".
        if first < 0 || start < 0 {
            return Err(Errno::EINVAL);
        }
        Ok((first as u64, last as u64))
    }
}

/// F_GETLK's answer: "If the lock could be placed, fcntl() does not actually place it, but returns F_UNLCK in the l_type
/// field of lock and leaves the other fields of the structure unchanged."
fn show(lock: &mut FlockArg, conflict: Option<Request>, ns: PidNs) {
    let Some(held) = conflict else {
        lock.kind = c::F_UNLCK as i16;
        return;
    };
    lock.kind = if held.exclusive { c::F_WRLCK } else { c::F_RDLCK } as i16;
    lock.whence = c::SEEK_SET as i16;
    lock.start = held.start as i64;
    lock.len = if held.end == Request::TO_END { 0 } else { (held.end - held.start + 1) as i64 };
    // "If the conflicting lock is an open file description lock, then the l_pid is set to -1."
    lock.pid = match held.owner {
        // Not the number of a process that the caller cannot see (locks_translate_pid).
        Owner::Table(_) => held.pid.number_in(ns) as i32,
        Owner::File(_) => -1,
    };
}

#[cfg(test)]
mod tests;

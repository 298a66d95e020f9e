//! File leases (fcntl(2), "Leases"): their holder is told when another one opens the file, who waits until it is given back.
//!
//! [`Node::leases`](crate::node::Node) holds them by inode. That the time to give one back is over is found when somebody looks, as
//! in Linux's `time_out_leases`; who waits for it has that time as deadline.

use bloodhound_abi::consts as c;
use bloodhound_abi::{Errno, SimTime};
use bloodhound_vfs::Ino;

use crate::ctx::*;
use crate::fasync::{Band, FileOwner};
use crate::file::{File, FileKind};
use crate::ids::*;
use crate::node::Node;
use crate::path::Place;
use crate::task::TaskState;
use crate::wait::{Progress, SysResult, Wait, WaitOn};

/// /proc/sys/fs/lease-break-time, ns.
const BREAK_TIME: u64 = 45_000_000_000;
/// CAP_LEASE (capabilities(7)).
const CAP_LEASE: u32 = 28;

/// A lease, of a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The description.
    pub file: FileId,
    /// The descriptor by which it was taken: si_fd.
    pub fd: i32,
    /// The process that took it, for /proc/locks.
    pub pid: Pid,
    /// F_WRLCK.
    pub exclusive: bool,
    /// It is to be removed, and is at this time.
    pub unlock: Option<SimTime>,
    /// It is to become F_RDLCK, and does at this time.
    pub downgrade: Option<SimTime>,
}

impl Lease {
    /// What it will be when it has been given back as was asked (`target_leasetype`).
    fn target(&self) -> u64 {
        match self.exclusive {
            _ if self.unlock.is_some() => c::F_UNLCK,
            true if self.downgrade.is_none() => c::F_WRLCK,
            _ => c::F_RDLCK,
        }
    }

    /// Whether it stands in the way of an open: two readers do not mind each other.
    fn conflicts(&self, writes: bool) -> bool {
        self.exclusive || writes
    }

    /// When it is over, if it stands in the way of an open.
    fn ends(&self, writes: bool) -> Option<SimTime> {
        if writes { self.unlock } else { [self.unlock, self.downgrade].into_iter().flatten().min() }
    }

    /// The words of /proc/locks.
    pub(crate) fn words(&self) -> (&'static str, &'static str) {
        let breaking = self.unlock.is_some() || self.downgrade.is_some();
        let kind = match self.target() {
            c::F_UNLCK => "UNLCK",
            c::F_WRLCK => "WRITE",
            _ => "READ ",
        };
        (if breaking { "BREAKING " } else { "ACTIVE   " }, kind)
    }
}

impl Node {
    /// Carries out what leases were to become by now.
    fn time_out_leases(&mut self, ino: Ino) {
        let now = self.own_time();
        let due = |at: Option<SimTime>| at.is_some_and(|at| at <= now);
        let Some(list) = self.leases.get(&ino) else { return };
        for lease in list.clone() {
            if due(lease.unlock) {
                self.end_lease(ino, lease.file);
            } else if due(lease.downgrade) {
                self.change_lease(ino, lease.file, false);
            }
        }
    }

    /// `lease_modify`: who is asked to give it up must do that, and nothing else ends the asking.
    fn change_lease(&mut self, ino: Ino, file: FileId, exclusive: bool) {
        let Some(list) = self.leases.get_mut(&ino) else { return };
        for lease in list.iter_mut().filter(|lease| lease.file == file) {
            lease.exclusive = exclusive;
            if !exclusive {
                lease.downgrade = None;
            }
        }
        self.notify(WaitOn::Lease(ino));
    }

    /// Takes a lease away, and with it owner and signal of its description; whether there was one.
    fn end_lease(&mut self, ino: Ino, file: FileId) -> bool {
        let Some(list) = self.leases.get_mut(&ino) else { return false };
        let before = list.len();
        list.retain(|lease| lease.file != file);
        let ended = list.len() < before;
        if list.is_empty() {
            self.leases.remove(&ino);
        }
        if ended {
            let file = &mut self.files[file];
            (file.owner, file.flags) = (FileOwner::default(), file.flags & !c::O_ASYNC);
            self.notify(WaitOn::Lease(ino));
        }
        ended
    }

    /// The last reference to a description is gone.
    pub(crate) fn release_leases_of_file(&mut self, id: FileId) {
        if let Some(FileKind::Regular(ino)) = self.files.get(id).map(|f| f.kind.clone()) {
            self.end_lease(ino, id);
        }
    }

    /// Whether another description stands in the way of a lease: "A read lease can be placed only on a file descriptor that is
    /// opened read-only", and only while nobody writes; a write lease "only if there are no other open file descriptors for the
    /// file" (check_conflicting_open). An open that waits for the end of a lease counts already (do_dentry_open), and so does
    /// a truncation as a writer (vfs_truncate).
    fn open_conflicts(&self, ino: Ino, id: FileId, exclusive: bool) -> bool {
        let mut waiting = self.waiters.get(&WaitOn::Lease(ino)).into_iter().flatten();
        let counts = |tid: &Tid| match &self.task(*tid).state {
            TaskState::Blocked(blocked) => {
                matches!(blocked.progress, Progress::Path { writes, .. } if exclusive || writes)
            }
            _ => false,
        };
        if waiting.any(counts) {
            return true;
        }
        // What opens a file for neither (access mode 3), and the description that memfd_create(2) gives, are not counted.
        let reads = |f: &File| usize::from(f.readable() && !f.writable());
        let of_file = self.files.iter().filter(|(_, f)| f.kind == FileKind::Regular(ino));
        let (mut writers, mut readers) = (0, 0);
        for (_, file) in of_file {
            writers += usize::from(file.writable() && !file.uncounted);
            readers += reads(file);
        }
        if !exclusive {
            return writers > 0;
        }
        // "Make sure that only read/write count is from lease requestor" (check_conflicting_open); a program's file is counted below 0.
        let own = &self.files[id];
        self.vfs.is_executed(ino) || writers != usize::from(own.writable()) || readers != reads(own)
    }

    fn take_lease(&mut self, ino: Ino, lease: Lease) -> Result<(), Errno> {
        self.time_out_leases(ino);
        let (file, exclusive) = (lease.file, lease.exclusive);
        if self.open_conflicts(ino, file, exclusive) {
            return Err(Errno::EAGAIN);
        }
        let list = self.leases.get_or_default(ino);
        let mut others = list.iter().filter(|held| held.file != file);
        if others.any(|held| exclusive || held.unlock.is_some()) {
            return Err(Errno::EAGAIN);
        }
        let fd = lease.fd;
        if list.iter().any(|held| held.file == file) {
            list.iter_mut().filter(|held| held.file == file).for_each(|held| held.fd = fd);
            self.change_lease(ino, file, exclusive);
        } else {
            list.push(lease);
        }
        // The lease's own entry in a list of those to be told sets the flag (lease_setup, fasync_insert_entry).
        self.files[file].flags |= c::O_ASYNC;
        Ok(())
    }

    /// Asks the holders of leases that stand in the way to give them back (`__break_lease`). When the first of these is over
    /// without that; `None` if there is none.
    fn break_leases(&mut self, ino: Ino, writes: bool, wait: u64) -> Option<SimTime> {
        self.time_out_leases(ino);
        let end = self.own_time().after(wait);
        let mut told = Vec::new();
        for lease in self.leases.get_mut(&ino)?.iter_mut().filter(|lease| lease.conflicts(writes)) {
            let asked = if writes { lease.unlock } else { lease.ends(false) };
            if asked.is_none() {
                *if writes { &mut lease.unlock } else { &mut lease.downgrade } = Some(end);
                told.push((lease.file, lease.fd));
            }
        }
        for (file, fd) in told {
            self.send_sigio(file, fd, Band::Message);
        }
        let list = self.leases.get(&ino)?;
        list.iter().filter(|lease| lease.conflicts(writes)).filter_map(|lease| lease.ends(writes)).min()
    }
}

impl Ctx<'_> {
    /// F_SETLEASE. EACCES for files of others, EINVAL for what is no regular file, EAGAIN.
    pub(crate) fn set_lease(&mut self, fd: Fd, id: FileId, kind: u64) -> SysResult {
        let pid = self.pid;
        let kind = kind as u32 as u64;
        if !matches!(kind, c::F_UNLCK | c::F_RDLCK | c::F_WRLCK) {
            return err(Errno::EINVAL);
        }
        // The owner is asked for before the kind of file, and also of who gives a lease back (generic_setlease).
        let place = self.fd_place(fd)?;
        if self.place_stat(&place)?.uid != self.fs_cred().uid && !self.capable(CAP_LEASE) {
            return err(Errno::EACCES);
        }
        let FileKind::Regular(ino) = self.node.files[id].kind else { return err(Errno::EINVAL) };
        if kind == c::F_UNLCK {
            return if self.node.end_lease(ino, id) { Ok(0) } else { err(Errno::EAGAIN) };
        }
        let exclusive = kind == c::F_WRLCK;
        let lease = Lease { file: id, fd: fd.0, pid, exclusive, unlock: None, downgrade: None };
        let taken = self.node.take_lease(ino, lease);
        if self.node.leases.get(&ino).is_some_and(|list| list.is_empty()) {
            self.node.leases.remove(&ino);
        }
        taken?;
        self.node.own_by_default(id, self.tid);
        Ok(0)
    }

    /// F_GETLEASE.
    pub(crate) fn get_lease(&mut self, id: FileId) -> u64 {
        let FileKind::Regular(ino) = self.node.files[id].kind else { return c::F_UNLCK };
        self.node.time_out_leases(ino);
        let list = self.node.leases.get(&ino).into_iter().flatten();
        list.into_iter().find(|lease| lease.file == id).map_or(c::F_UNLCK, Lease::target)
    }

    /// Before a path is opened, or truncated (`writes`): waits for the ends of leases on what it names. What cannot be opened
    /// breaks none; the open itself tells why.
    pub(crate) fn wait_for_leases(
        &mut self,
        dirfd: Fd,
        path: &[u8],
        follow: bool,
        (want, writes, nonblock): (u32, bool, bool),
    ) -> SysResult<()> {
        if self.node.leases.is_empty() {
            return Ok(());
        }
        let Ok(Place::Ino(ino)) = self.resolve(dirfd, path, follow) else { return Ok(()) };
        let cred = self.fs_cred();
        if self.node.vfs.access_ino(ino, &cred, want).is_err() {
            return Ok(());
        }
        let seconds = self.container().number("fs/lease-break-time");
        let wait = seconds.map_or(BREAK_TIME, |seconds| seconds.saturating_mul(1_000_000_000));
        let Some(end) = self.node.break_leases(ino, writes, wait) else { return Ok(()) };
        if nonblock {
            return err(Errno::EAGAIN);
        }
        let wait = Wait::on(WaitOn::Lease(ino)).deadline(Some(end));
        let (path, how) = (path.to_vec(), self.lookup.how);
        Err(wait.progress(Progress::Path { path, how, writes }).into())
    }

    /// The path with which a call goes on that has waited for the end of a lease, or its argument.
    pub(crate) fn kept_path(&mut self, path: Path) -> SysResult<Vec<u8>> {
        match self.progress() {
            Some(Progress::Path { path, .. }) => Ok(path.clone()),
            _ => Ok(self.read_path(path)?),
        }
    }
}

//! Descriptors: close(2), dup(2), fcntl(2), pipe(2), eventfd(2). Reading and writing are in [`super::io`].

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::names;

use crate::ctx::*;
use crate::epoll::UNKEYED_WRITERS;
use crate::eventfd::EventFd;
use crate::file::{Console, File, FileKind};
use crate::ids::*;
use crate::process::FdEntry;
use crate::wait::{Object, SysResult};

/// What F_GETPIPE_SZ tells of the pipes that engines give to programs ("the default capacity is 16 pages", pipe(7)).
const CONSOLE_PIPE: u64 = 65536;

/// close(2). With SO_LINGER it waits for a connection to send what is left; the descriptor is free at once.
pub fn close(k: &mut Ctx<'_>, fd: Fd) -> SysResult {
    if let Some(id) = k.lingers_on() {
        return k.linger(id, 0);
    }
    let last = k.linger_of(k.fd(fd)?.file);
    close_now(k, fd)?;
    last.map_or(Ok(0), |(id, ns)| k.linger(id, ns))
}

/// Closes a descriptor without waiting for anything.
fn close_now(k: &mut Ctx<'_>, fd: Fd) -> SysResult {
    let file = k.take_descriptor(fd.0)?;
    k.node.file_unref(file, k.outside.base);
    Ok(0)
}

/// close_range(2). EINVAL for a range that ends before it begins.
pub fn close_range(k: &mut Ctx<'_>, first: u32, last: u32, flags: CloseRangeFlags) -> SysResult {
    if first > last
        || flags.exceeds(CloseRangeFlags::CLOSE_RANGE_UNSHARE | CloseRangeFlags::CLOSE_RANGE_CLOEXEC)
    {
        return err(Errno::EINVAL);
    }
    if flags.contains(CloseRangeFlags::CLOSE_RANGE_UNSHARE) {
        k.unshare_table();
    }
    let open = k.table().iter().map(|(fd, _)| fd);
    let open: Vec<i32> = open.filter(|fd| (first..=last).contains(&(*fd as u32))).collect();
    if flags.contains(CloseRangeFlags::CLOSE_RANGE_CLOEXEC) {
        for fd in open {
            k.table_mut().get_mut(fd)?.cloexec = true;
        }
    } else {
        k.close_all(open);
    }
    Ok(0)
}

/// dup(2). EMFILE at the limit of descriptors.
pub fn dup(k: &mut Ctx<'_>, fd: Fd) -> SysResult {
    let file = k.fd(fd)?.file;
    k.node.file_ref(file);
    Ok(k.install(file, false)?)
}

/// dup2(2): EBADF, not EMFILE, for a number beyond the limit.
pub fn dup2(k: &mut Ctx<'_>, old: Fd, new: Fd) -> SysResult {
    let file = k.fd(old)?.file;
    // "If oldfd is a valid file descriptor, and newfd has the same value as oldfd, then dup2() does nothing".
    if old == new {
        return Ok(new.0 as u64);
    }
    k.dup_onto(file, new, false)
}

/// dup3(2): as dup2(2), but two equal descriptors are EINVAL.
pub fn dup3(k: &mut Ctx<'_>, old: Fd, new: Fd, flags: FdFlags) -> SysResult {
    if old == new || flags.exceeds(FdFlags::O_CLOEXEC) {
        return err(Errno::EINVAL);
    }
    let file = k.fd(old)?.file;
    k.dup_onto(file, new, flags.contains(FdFlags::O_CLOEXEC))
}

impl Ctx<'_> {
    /// EMFILE unless two descriptors can be had: pipe(2) and socketpair(2) take them before they look at anything else but the flags.
    pub(super) fn room_for_two(&self) -> Result<(), Errno> {
        let limit = self.process().limits[c::RLIMIT_NOFILE as usize].cur;
        let first = self.table().lowest_free(0, limit)?;
        self.table().lowest_free(first + 1, limit).map(|_| ())
    }

    /// Closes several descriptors, without waiting for anything: their files from the last one back ([`Node::files_unref`]).
    pub(crate) fn close_all(&mut self, fds: Vec<i32>) {
        let files: Vec<FileId> = fds.into_iter().filter_map(|fd| self.take_descriptor(fd).ok()).collect();
        self.node.files_unref(&files, self.outside.base);
    }

    /// Takes a descriptor out of the table, and with it the record locks of the process; the caller gives up the reference to the description.
    fn take_descriptor(&mut self, fd: i32) -> Result<FileId, Errno> {
        let file = self.table_mut().take(fd)?.file;
        self.release_posix_locks(file);
        Ok(file)
    }

    /// Gives a description this descriptor, in the place of what was there. EBADF for one beyond the limit.
    pub(crate) fn dup_onto(&mut self, file: FileId, new: Fd, cloexec: bool) -> SysResult {
        let limit = self.process().limits[c::RLIMIT_NOFILE as usize].cur;
        let slot = usize::try_from(new.0).ok().filter(|n| (*n as u64) < limit).ok_or(Errno::EBADF)?;
        self.node.file_ref(file);
        if let Some(old) = self.table_mut().set(slot, FdEntry { file, cloexec }) {
            self.release_posix_locks(old.file);
            self.node.file_unref(old.file, self.outside.base);
        }
        Ok(slot as u64)
    }
}

const F_SETLEASE: u64 = 1024;
const F_GETLEASE: u64 = 1025;
const F_NOTIFY: u64 = 1026;
const F_GET_RW_HINT: u64 = 1035;
const F_SET_RW_HINT: u64 = 1036;

/// fcntl(2). EINVAL for commands that Linux does not know; locks are in [`super::lock`].
pub fn fcntl(k: &mut Ctx<'_>, fd: Fd, cmd: u32, arg: u64) -> SysResult {
    let entry = k.fd(fd)?;
    let path_only = matches!(k.node.files[entry.file].kind, FileKind::Path(_));
    let cmd = u64::from(cmd);
    if path_only && !matches!(cmd, c::F_DUPFD | c::F_DUPFD_CLOEXEC | c::F_GETFD | c::F_SETFD | c::F_GETFL) {
        return err(Errno::EBADF);
    }
    match cmd {
        c::F_DUPFD | c::F_DUPFD_CLOEXEC => {
            let limit = k.process().limits[c::RLIMIT_NOFILE as usize].cur;
            let from =
                usize::try_from(arg as i32).ok().filter(|n| (*n as u64) < limit).ok_or(Errno::EINVAL)?;
            k.node.file_ref(entry.file);
            Ok(k.install_from(from, entry.file, cmd == c::F_DUPFD_CLOEXEC)?)
        }
        c::F_GETFD => Ok(u64::from(entry.cloexec)),
        c::F_SETFD => {
            k.table_mut().get_mut(fd.0)?.cloexec = arg & c::FD_CLOEXEC != 0;
            Ok(0)
        }
        // "O_CLOEXEC ... and creation flags are not returned"; 64-bit files always show O_LARGEFILE.
        c::F_GETFL => Ok(k.node.files[entry.file].flags),
        c::F_SETFL => k.set_status_flags(fd, entry.file, arg),
        c::F_GETLK | c::F_SETLK | c::F_SETLKW | c::F_OFD_GETLK | c::F_OFD_SETLK | c::F_OFD_SETLKW => {
            k.fcntl_lock(fd, cmd, arg)
        }
        c::F_GETPIPE_SZ | c::F_SETPIPE_SZ => {
            let pipe = match k.node.files[entry.file].kind {
                FileKind::Pipe { pipe, .. } => pipe,
                // Output is taken at once, so there is no size to be set.
                FileKind::Console(_) if cmd == c::F_GETPIPE_SZ => return Ok(CONSOLE_PIPE),
                _ => return err(Errno::EBADF),
            };
            if cmd == c::F_SETPIPE_SZ {
                // An unsigned int; "EINVAL" only where the next power of two is none (round_pipe_size in Linux).
                let wanted = arg as u32 as usize;
                if wanted > 1 << 31 {
                    return err(Errno::EINVAL);
                }
                let user = k.pipe_user();
                k.may_grow_pipe(pipe, wanted, user)?;
                let size = k.node.resize_pipe(pipe, wanted, user)? as u64;
                // "This might have made more room for writers" (pipe_set_size).
                k.node.notify_object(Object::Pipe(pipe), UNKEYED_WRITERS);
                return Ok(size);
            }
            Ok(k.node.pipes[pipe].capacity() as u64)
        }
        c::F_ADD_SEALS => k.add_seals(fd, arg),
        c::F_GET_SEALS => k.get_seals(fd),
        F_SETLEASE => k.set_lease(fd, entry.file, arg),
        F_GETLEASE => Ok(k.get_lease(entry.file)),
        F_NOTIFY => k.notify_directory(fd, entry.file, arg),
        // Hints about lifetimes: as of a kernel older than 4.13, which storage engines take for an answer.
        F_GET_RW_HINT | F_SET_RW_HINT => err(Errno::EINVAL),
        _ => match k.fcntl_owner(entry.file, cmd, arg) {
            Some(result) => result,
            None => super::unmodelled("fcntl", names::FCNTL, cmd, Errno::EINVAL),
        },
    }
}

/// pipe(2).
pub fn pipe(k: &mut Ctx<'_>, fds: Ptr) -> SysResult {
    pipe2(k, fds, FdFlags::empty())
}

/// pipe2(2). EFAULT leaves no descriptor behind.
pub fn pipe2(k: &mut Ctx<'_>, fds: Ptr, flags: FdFlags) -> SysResult {
    if flags.exceeds(FdFlags::O_CLOEXEC | FdFlags::O_NONBLOCK | FdFlags::O_DIRECT) {
        return err(Errno::EINVAL);
    }
    k.room_for_two()?;
    k.check_user(fds.0, 8, crate::mm::Access::Write)?;
    k.may_open()?;
    let cloexec = flags.contains(FdFlags::O_CLOEXEC);
    let user = k.pipe_user();
    let (r, w) = k.node.new_pipe(flags.bits() & (c::O_NONBLOCK | c::O_DIRECT), user);
    let cred = k.fs_cred();
    for end in [r, w] {
        k.node.files[end].made_by = (cred.uid, cred.gid);
    }
    k.may_be_small(r, user)?;
    let read = match k.install(r, cloexec) {
        Ok(fd) => fd,
        Err(e) => {
            k.node.file_unref(w, k.outside.base);
            return err(e);
        }
    };
    let write = match k.install(w, cloexec) {
        Ok(fd) => fd,
        Err(e) => {
            close(k, Fd(read as i32))?;
            return err(e);
        }
    };
    k.write_obj(fds, &[read as i32, write as i32])?;
    Ok(0)
}

/// eventfd(2) as it was before it had flags.
pub fn eventfd(k: &mut Ctx<'_>, initval: u32) -> SysResult {
    eventfd2(k, initval, FdFlags::empty())
}

/// eventfd(2).
pub fn eventfd2(k: &mut Ctx<'_>, initval: u32, flags: FdFlags) -> SysResult {
    if flags.exceeds(FdFlags::O_CLOEXEC | FdFlags::O_NONBLOCK | FdFlags::EFD_SEMAPHORE) {
        return err(Errno::EINVAL);
    }
    k.may_open()?;
    let semaphore = flags.contains(FdFlags::EFD_SEMAPHORE);
    let id = k.node.events.insert(EventFd { count: u64::from(initval), semaphore });
    let file = File::new(FileKind::Event(id), c::O_RDWR | flags.bits() & c::O_NONBLOCK);
    Ok(k.open_file(file, flags.contains(FdFlags::O_CLOEXEC))?)
}

impl Ctx<'_> {
    /// Descriptions for the three standard streams of a node's root process.
    pub(crate) fn console_file(stream: Console) -> File {
        let access = if stream == Console::In { c::O_RDONLY } else { c::O_WRONLY };
        File::new(FileKind::Console(stream), access)
    }
}

//! Open file descriptions (open(2), "Open file descriptions"): what a descriptor refers to, shared by dup and fork.

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_abi::SimTime;
use bloodhound_abi::consts as c;
use bloodhound_vfs::flags::{IN_CLOSE_NOWRITE, IN_CLOSE_WRITE};
use bloodhound_vfs::{BaseFs, Dev, Ino};

use crate::fasync::{Async, FileOwner};
use crate::ids::*;
use crate::node::Node;
use crate::procfs::anonymous_ino;
use crate::wait::Object;

/// What is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Regular(Ino),
    /// A directory; the offset is the getdents64 cookie.
    Dir(Ino),
    /// A character device of the node (null, zero, urandom, tty...).
    Device {
        /// Its node in the file system.
        ino: Ino,
        /// Major and minor number.
        dev: Dev,
    },
    /// A generated file (/proc, /sys): contents are made at each read from offset 0 and kept for the reads that
    /// follow.
    Synthetic {
        /// Absolute path.
        path: Arc<Vec<u8>>,
        /// Contents.
        data: Arc<Vec<u8>>,
    },
    /// A generated directory (/proc, /sys): name, inode number and DT_* type of each entry, fixed when a listing
    /// begins.
    SyntheticDir {
        /// Absolute path.
        path: Arc<Vec<u8>>,
        /// Entries.
        entries: Arc<Vec<(Vec<u8>, u64, u8)>>,
    },
    /// O_PATH: a place only.
    Path(Ino),
    /// One end (or both, for a fifo opened O_RDWR) of a pipe.
    Pipe {
        /// The buffer.
        pipe: PipeId,
        /// Reads allowed.
        read: bool,
        /// Writes allowed.
        write: bool,
        /// A fifo's inode.
        ino: Option<Ino>,
    },
    /// TCP or UDP socket.
    Inet(bloodhound_net::SocketId),
    /// Unix-domain socket.
    Unix(UnixId),
    /// Netlink socket.
    Netlink(NetlinkId),
    /// eventfd(2).
    Event(EventId),
    /// timerfd_create(2).
    TimerFd(TimerFdId),
    /// signalfd(2).
    SignalFd(SignalFdId),
    /// epoll(7).
    Epoll(EpollId),
    /// A side of a pseudoterminal.
    Tty {
        /// Which.
        pty: PtyId,
        /// The master.
        master: bool,
        /// The node that was opened: ptmx, one of /dev/pts, /dev/tty.
        ino: Ino,
        /// How often this side had been hung up then.
        hangups: u32,
    },
    /// A POSIX message queue (mq_open(2)).
    Mq(MqId),
    /// An inotify instance (inotify_init1(2)).
    Inotify(InotifyId),
    /// The listener of a filter of calls (seccomp_unotify(2)).
    Listener(ListenerId),
    /// A process (pidfd_open(2)).
    Process(ProcessRef),
    /// The node's console: standard streams of a service that are not redirected.
    Console(Console),
}

/// A process, and nobody who has its number later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessRef {
    /// Its number.
    pub pid: Pid,
    /// Virtual time of its start.
    pub started: SimTime,
}

/// A stream of the node's console.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Console {
    /// Standard input, filled before the start.
    In,
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// An open file description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// What is open.
    pub kind: FileKind,
    /// Access mode and status flags as F_GETFL shows them.
    pub flags: u64,
    /// File offset.
    pub offset: u64,
    /// References from descriptor tables, messages in flight and calls that sleep.
    pub refs: u32,
    /// Whom it tells that it is ready (F_SETOWN, F_SETSIG).
    pub owner: FileOwner,
    /// It tells so (O_ASYNC).
    pub asynced: Option<Async>,
    /// How many failures to write its file's data back it has told of, or was opened after (`f_wb_err` of Linux;
    /// [`crate::disk`]).
    pub unwritten_seen: u32,
    /// It can write to its file, and yet execve(2) may run that: the description that memfd_create(2) gives, which takes no write access
    /// (alloc_file_pseudo).
    pub uncounted: bool,
    /// User and group that own the inode of a pipe or a socket without a place in the file system: those that its maker had for files
    /// (get_pipe_inode, sock_alloc).
    pub made_by: (u32, u32),
    /// Of a fifo opened with O_NONBLOCK for reading while nobody had it open for writing: how often it had been opened for writing before. Such writers
    /// do not count for the end of the stream that poll(2) tells of (`f_version`, fifo_open).
    pub unheard_opens: u64,
}

/// Whether a file of /proc is a table of mounts: these can be polled (mounts_poll).
pub(crate) fn shows_mounts(path: &[u8]) -> bool {
    path.starts_with(b"/proc/") && (path.ends_with(b"/mounts") || path.ends_with(b"/mountinfo"))
}

/// Whether a file of /proc is the kernel's log, in which is nothing: who reads waits for it.
pub(crate) fn shows_log(path: &[u8]) -> bool {
    path == b"/proc/kmsg"
}

impl File {
    /// A description with one reference.
    pub fn new(kind: FileKind, flags: u64) -> File {
        File {
            kind,
            flags,
            offset: 0,
            refs: 1,
            owner: FileOwner::default(),
            asynced: None,
            unwritten_seen: 0,
            uncounted: false,
            made_by: (0, 0),
            unheard_opens: 0,
        }
    }

    /// O_NONBLOCK is set.
    pub fn nonblocking(&self) -> bool {
        self.flags & c::O_NONBLOCK != 0
    }

    /// Opened for reading.
    pub fn readable(&self) -> bool {
        self.flags & c::O_PATH == 0 && matches!(self.flags & c::O_ACCMODE, c::O_RDONLY | c::O_RDWR)
    }

    /// Opened for writing.
    pub fn writable(&self) -> bool {
        self.flags & c::O_PATH == 0 && matches!(self.flags & c::O_ACCMODE, c::O_WRONLY | c::O_RDWR)
    }

    /// The object that poll and epoll watch; `None` for files that are always ready.
    pub fn object(&self) -> Option<Object> {
        Some(match self.kind {
            FileKind::Pipe { pipe, .. } => Object::Pipe(pipe),
            FileKind::Inet(id) => Object::Inet(id),
            FileKind::Unix(id) => Object::Unix(id),
            FileKind::Netlink(id) => Object::Netlink(id),
            FileKind::Event(id) => Object::Event(id),
            FileKind::TimerFd(id) => Object::TimerFd(id),
            FileKind::SignalFd(id) => Object::SignalFd(id),
            FileKind::Epoll(id) => Object::Epoll(id),
            FileKind::Process(named) => Object::Process(named.pid),
            FileKind::Tty { pty, master, .. } => Object::Tty(pty, master),
            FileKind::Mq(id) => Object::Mq(id),
            FileKind::Inotify(id) => Object::Inotify(id),
            FileKind::Listener(id) => Object::Listener(id),
            FileKind::Console(stream) => Object::Console(stream),
            FileKind::Synthetic { ref path, .. } if shows_mounts(path) => Object::Mounts,
            _ => return None,
        })
    }

    /// The inode behind a file of the file system.
    pub fn ino(&self) -> Option<Ino> {
        match self.kind {
            FileKind::Regular(ino)
            | FileKind::Dir(ino)
            | FileKind::Path(ino)
            | FileKind::Tty { ino, .. }
            | FileKind::Device { ino, .. } => Some(ino),
            FileKind::Pipe { ino, .. } => ino,
            _ => None,
        }
    }
}

impl Node {
    /// One more reference to a description (dup, fork, SCM_RIGHTS, a call that sleeps).
    pub fn file_ref(&mut self, id: FileId) {
        self.files[id].refs += 1;
    }

    /// References that one call, or the end of a process, gives up in this order. The descriptions of which these are the last ones are closed from the last one
    /// back: fput() leaves that to the way out of the kernel, by task_work_add(), which puts each before those that wait already.
    pub(crate) fn files_unref(&mut self, files: &[FileId], base: &mut dyn BaseFs) {
        let mut times: BTreeMap<FileId, u32> = BTreeMap::new();
        for file in files {
            *times.entry(*file).or_default() += 1;
        }
        for file in files.iter().rev() {
            for _ in 0..times.remove(file).unwrap_or(0) {
                self.file_unref(*file, base);
            }
        }
    }

    /// Gives up what mappings that are gone held, on the way out of the call or of the process that unmapped them.
    pub(crate) fn put_files(&mut self, base: &mut dyn BaseFs) {
        if !self.unmapped.is_empty() {
            let files = std::mem::take(&mut self.unmapped);
            self.files_unref(&files, base);
        }
    }

    /// One reference to a description less; the last one closes it.
    pub fn file_unref(&mut self, id: FileId, base: &mut dyn BaseFs) {
        let file = &mut self.files[id];
        file.refs -= 1;
        if file.refs > 0 {
            return;
        }
        let file_asynced = file.asynced.is_some();
        if let Some(object) = file.object() {
            self.epoll_forget_file(object, id);
            if file_asynced {
                self.forget_async(object, id);
            }
        }
        self.release_leases_of_file(id);
        self.release_locks_of_file(id);
        let Some(file) = self.files.remove(id) else { return };
        if !matches!(file.kind, FileKind::Pipe { .. }) {
            self.forget_unnamed(&file.kind);
        }
        let writer = file.writable();
        if file.flags & c::O_PATH == 0
            && let Some(ino) = file.ino()
        {
            self.vfs.tell(ino, if writer { IN_CLOSE_WRITE } else { IN_CLOSE_NOWRITE });
        }
        match file.kind {
            FileKind::Regular(ino) => self.vfs.close_ref(ino, writer && !file.uncounted),
            FileKind::Dir(ino) | FileKind::Path(ino) | FileKind::Device { ino, .. } => {
                self.vfs.close_ref(ino, false);
            }
            FileKind::Pipe { pipe, read, write, ino } => {
                self.close_pipe_end(pipe, read, write);
                if let Some(ino) = ino {
                    self.vfs.close_ref(ino, false);
                }
            }
            FileKind::Inet(socket) => self.close_inet(socket),
            FileKind::Unix(socket) => self.close_unix(socket, base),
            FileKind::Netlink(socket) => drop(self.netlinks.remove(socket)),
            FileKind::Event(event) => drop(self.events.remove(event)),
            FileKind::TimerFd(timer) => {
                if let Some(t) = self.timerfds.remove(timer) {
                    self.rearm(crate::timer::TimerKey::TimerFd(timer), t.armed(), None);
                }
            }
            FileKind::SignalFd(s) => drop(self.signalfds.remove(s)),
            FileKind::Epoll(ep) => self.epoll_close(ep),
            FileKind::Mq(queue) => self.mq_unref(queue),
            FileKind::Tty { pty, master, ino, .. } => {
                self.close_tty(pty, master);
                self.vfs.close_ref(ino, false);
            }
            FileKind::Inotify(id) => self.inotify_close(id),
            FileKind::Listener(id) => self.close_listener(id),
            FileKind::Process(_)
            | FileKind::Console(_)
            | FileKind::Synthetic { .. }
            | FileKind::SyntheticDir { .. } => {}
        }
        self.deliver_happened();
    }
}

/// The attributes of a pipe or socket without a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unnamed {
    /// Permission bits.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
}

impl Unnamed {
    /// Whether files of a kind have an inode of their own, and no name.
    pub fn are_kept(kind: &FileKind) -> bool {
        match kind {
            FileKind::Pipe { ino, .. } => ino.is_none(),
            FileKind::Inet(_) | FileKind::Unix(_) | FileKind::Netlink(_) => true,
            _ => false,
        }
    }
}

impl Node {
    /// The last description of a pipe or socket is gone, and with it the attributes of its inode. A pipe may have several, and is told of by
    /// its buffer.
    pub(crate) fn forget_unnamed(&mut self, kind: &FileKind) {
        if !self.unnamed.is_empty() && Unnamed::are_kept(kind) {
            self.unnamed.remove(&anonymous_ino(kind));
        }
    }
}

#[cfg(test)]
mod tests {
    use bloodhound_abi::consts as c;
    use bloodhound_abi::table::nr;

    use crate::testing::Bench;

    #[test]
    fn attributes_of_what_has_no_name_go_with_its_last_description() {
        let mut b = Bench::new();
        let at = b.room(8);
        assert_eq!(b.call(nr::pipe, &[at]), Ok(0));
        let [from, to] = b.object::<[u32; 2]>(b.tid, at).map(u64::from);
        let socket = b.call(nr::socket, &[c::AF_INET, c::SOCK_DGRAM, 0]).unwrap();
        for fd in [from, socket] {
            assert_eq!(b.call(nr::fchmod, &[fd, 0o640]), Ok(0));
        }
        assert_eq!(b.node.unnamed.len(), 2);
        for (fd, left) in [(socket, 1), (from, 1), (to, 0)] {
            assert_eq!(b.call(nr::close, &[fd]), Ok(0));
            assert_eq!(b.node.unnamed.len(), left, "descriptor {fd}");
        }
    }
}

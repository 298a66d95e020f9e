//! Faults of resources, and rare but legal answers of Linux, which have no effect but what the caller is shown: a call is refused before it
//! has done anything.
//!
//! Whether one happens is asked in [`crate::hazards`], where the handler of a call would go on to make what is refused. A limit of the
//! caller's own, as RLIMIT_NOFILE, is never claimed: it can look at that, and would be lied to.

use bloodhound_abi::Errno;
use bloodhound_faults::Kind;
use bloodhound_net::{ReadyFlags, SocketId};
use bloodhound_vfs::Ino;

use crate::ctx::Ctx;
use crate::file::FileKind;
use crate::ids::{FileId, PipeId};
use crate::pipe::{FEW_PAGES, PIPE_BUF, PipeUser};

impl Ctx<'_> {
    /// "ENFILE The system-wide limit on the total number of open files has been reached" (open(2), socket(2), accept(2), pipe(2)). Linux
    /// takes a `struct file` first: neither is a file made nor a connection taken (path_openat, do_accept).
    #[inline]
    pub(crate) fn may_open(&mut self) -> Result<(), Errno> {
        self.refuse(Kind::Enfile, Errno::ENFILE)
    }

    /// "ENOMEM No memory is available" (mmap(2)); "ENOMEM fork() failed to allocate the necessary kernel structures because memory is tight"
    /// (fork(2)).
    #[inline]
    pub(crate) fn may_take_memory(&mut self) -> Result<(), Errno> {
        self.refuse(Kind::Enomem, Errno::ENOMEM)
    }

    /// "EAGAIN A system-imposed limit on the number of threads was encountered", among them that of a cgroup (fork(2)).
    #[inline]
    pub(crate) fn may_fork(&mut self) -> Result<(), Errno> {
        // Both are asked before one of them acts.
        let (processes, memory) = (self.is_refused(Kind::ForkFail), self.is_refused(Kind::Enomem));
        if processes {
            return self.refused(Kind::ForkFail, Errno::EAGAIN);
        }
        if memory { self.refused(Kind::Enomem, Errno::ENOMEM) } else { Ok(()) }
    }

    /// "EADDRNOTAVAIL [...] it was determined that all port numbers in the ephemeral port range are currently in use" (connect(2));
    /// bind(2) says EADDRINUSE then.
    #[inline]
    pub(crate) fn may_take_port(&mut self, otherwise: Errno) -> Result<(), Errno> {
        self.refuse(Kind::PortExhaustion, otherwise)
    }

    /// Whether a futex wait ends for nothing: "Returns 0 if the caller was woken up. Note that a wake-up can also be caused by common futex
    /// usage patterns in unrelated code that happened to have previously used the futex word's memory location [...]. Therefore,
    /// callers should always conservatively assume that a return value of 0 can mean a spurious wake-up" (futex(2)).
    #[inline]
    pub(crate) fn wakes_for_nothing(&mut self) -> bool {
        let wakes = self.hazard(Kind::FutexWake);
        if wakes {
            self.met(Kind::FutexWake, None, "0, though nobody woke it");
        }
        wakes
    }

    /// How many of the `n` bytes of a TCP socket that are there a read gives, if it gives less: as much as had arrived if the rest came a
    /// moment later. Where the program knows better, all: when it has looked at how much there is, has asked for more than a
    /// byte at least (SO_RCVLOWAT, MSG_WAITALL), or the peer has ended its stream.
    #[inline]
    pub(crate) fn read_short(
        &mut self,
        id: SocketId,
        (done, n, target): (u64, u64, u64),
        peek: bool,
        ready: ReadyFlags,
    ) -> Option<u64> {
        if peek {
            self.has_looked(id);
        }
        if peek || !self.container().hazards.in_force() {
            return None;
        }
        let ended = ready.intersects(ReadyFlags::RDHUP | ReadyFlags::HUP | ReadyFlags::ERR);
        if done > 0 || n < 2 || target > 1 || ended || self.inet(id).is_ok_and(|socket| socket.looked) {
            return None;
        }
        let nth = self.hazard_with(Kind::ShortRead)?;
        let less = 1 + self.hazard_choice(Kind::ShortRead, nth, "bytes", n - 1);
        self.met(Kind::ShortRead, None, format!("{less} of {n} bytes"));
        Some(less)
    }

    /// The program knows how much there is to read in a socket.
    pub(crate) fn has_looked(&mut self, id: SocketId) {
        if let Some(socket) = self.node.inet.get_mut(&id) {
            socket.looked = true;
        }
    }

    /// "EMFILE The user limit on the total number of inotify instances has been reached" (inotify_init(2)), which are those of all processes of
    /// the user, in whatever container.
    #[inline]
    pub(crate) fn may_have_inotify(&mut self) -> Result<(), Errno> {
        self.refuse(Kind::InotifyLimit, Errno::EMFILE)
    }

    /// "ENOSPC The user limit on the total number of inotify watches was reached or the kernel failed to allocate a needed resource"
    /// (inotify_add_watch(2)). A watch that is there is only changed.
    #[inline]
    pub(crate) fn may_watch(&mut self, ino: Ino) -> Result<(), Errno> {
        if self.is_refused(Kind::InotifyLimit) {
            self.met(Kind::InotifyLimit, Some(ino), Errno::ENOSPC.name());
            return Err(Errno::ENOSPC);
        }
        Ok(())
    }

    /// A new pipe may be one beyond the soft limit: "if (too_many_pipe_buffers_soft(user_bufs) && pipe_is_unprivileged_user()) { [...] pipe_bufs =
    /// PIPE_MIN_DEF_BUFFERS; }" (`alloc_pipe_info`; one page before Linux 5.14). The limit is "on the total size (in pages) of all pipes created or set by
    /// a single unprivileged user" (pipe(7)), in whatever container, and the size can be asked for (F_GETPIPE_SZ).
    #[inline]
    pub(crate) fn may_be_small(&mut self, reader: FileId, user: PipeUser) -> Result<(), Errno> {
        let FileKind::Pipe { pipe, .. } = self.node.files[reader].kind else { return Ok(()) };
        let small = FEW_PAGES * PIPE_BUF;
        if !user.privileged && self.node.pipes[pipe].capacity() > small && self.hazard(Kind::PipeLimit) {
            self.node.resize_pipe(pipe, small, user)?;
            self.met(Kind::PipeLimit, None, format!("a pipe of {small} bytes"));
        }
        Ok(())
    }

    /// At that limit "attempts to increase a pipe's capacity will be denied" (pipe(7)), with EPERM. "Decreasing the pipe capacity is always
    /// permitted, even if the user is currently over a limit" (`pipe_set_size`).
    #[inline]
    pub(crate) fn may_grow_pipe(&mut self, pipe: PipeId, bytes: usize, user: PipeUser) -> Result<(), Errno> {
        let grows = bytes > self.node.pipes[pipe].capacity();
        if grows && !user.privileged { self.refuse(Kind::PipeLimit, Errno::EPERM) } else { Ok(()) }
    }

    /// Refuses a call that begins with an error, if it meets a fault.
    #[inline]
    fn refuse(&mut self, kind: Kind, with: Errno) -> Result<(), Errno> {
        if self.is_refused(kind) { self.refused(kind, with) } else { Ok(()) }
    }

    /// Whether a call that begins meets a fault. One that goes on after a sleep has been asked.
    #[inline]
    fn is_refused(&mut self, kind: Kind) -> bool {
        self.resumed.is_none() && self.hazard(kind)
    }

    fn refused(&mut self, kind: Kind, with: Errno) -> Result<(), Errno> {
        self.met(kind, None, with.name());
        Err(with)
    }
}

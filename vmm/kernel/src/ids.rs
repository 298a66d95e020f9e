//! Typed ids, which an [`Arena`] hands out. Ids are never used twice within a node, so that a stale one is
//! noticed instead of naming something else.

pub use crate::arena::Arena;

macro_rules! ids {
    ($($(#[$m:meta])* $name:ident),* $(,)?) => {$(
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub u32);
        impl From<u32> for $name { fn from(n: u32) -> Self { $name(n) } }
        impl From<$name> for u32 { fn from(id: $name) -> u32 { id.0 } }
    )*};
}

ids! {
    /// A process (thread group), by a number that is unique on its machine: that of its namespace ([`PidNs`]) above the number
    /// that `getpid(2)` shows. Nothing of a namespace but the numbers within it may be shown to a program or taken from it.
    Pid,
    /// A task (thread), likewise. The first task of a process has the process's number.
    Tid,
    /// An address space.
    MmId,
    /// An open file description.
    FileId,
    /// A table of descriptors.
    TableId,
    /// A place in the file system.
    PlaceId,
    /// Signal actions.
    ActionsId,
    /// A pipe or fifo buffer.
    PipeId,
    /// An eventfd counter.
    EventId,
    /// A timerfd.
    TimerFdId,
    /// A signalfd.
    SignalFdId,
    /// An epoll instance.
    EpollId,
    /// An inotify instance.
    InotifyId,
    /// A listener of a filter of calls (`crate::seccomp::listener`).
    ListenerId,
    /// A POSIX message queue.
    MqId,
    /// A pseudoterminal: master and slave.
    PtyId,
    /// A unix-domain socket.
    UnixId,
    /// A netlink socket.
    NetlinkId,
    /// The blocks of memory that one fork has made common (`crate::memory`).
    FamilyId,
    /// A shared-memory object without a name (MAP_SHARED|MAP_ANONYMOUS, SysV segments).
    ShmId,
}

/// A namespace of process numbers (pid_namespaces(7)), by number. The first of a machine is 0, so the numbers in it are those that
/// programs see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PidNs(pub u32);

impl PidNs {
    /// Numbers of processes are below PID_MAX_LIMIT, 2^22 (proc(5), /proc/sys/kernel/pid_max).
    const BITS: u32 = 22;

    /// The largest number of a process.
    pub const LAST: u32 = (1 << PidNs::BITS) - 1;
    /// Where numbers go on after the last one: "those below are for the kernel's first processes" (RESERVED_PIDS of Linux).
    pub const AGAIN: u32 = 300;

    /// The process that a number stands for in this namespace; one that cannot exist if it is out of range.
    pub fn pid(self, number: u32) -> Pid {
        if number >> PidNs::BITS == 0 { Pid(self.0 << PidNs::BITS | number) } else { Pid(u32::MAX) }
    }

    /// The task that a number stands for in this namespace.
    pub fn tid(self, number: u32) -> Tid {
        Tid(self.pid(number).0)
    }
}

impl Pid {
    /// No process: the parent of one that the run has started.
    pub const NONE: Pid = Pid(0);

    /// Its namespace.
    pub fn ns(self) -> PidNs {
        PidNs(self.0 >> PidNs::BITS)
    }

    /// The number that it has in its namespace.
    pub fn number(self) -> u32 {
        self.0 & ((1 << PidNs::BITS) - 1)
    }

    /// The number by which a process of `ns` sees it: 0 if it does not (`pid_nr_ns` of Linux).
    pub fn number_in(self, ns: PidNs) -> u32 {
        if self.ns() == ns { self.number() } else { 0 }
    }
}

impl Tid {
    /// Its namespace.
    pub fn ns(self) -> PidNs {
        Pid(self.0).ns()
    }

    /// The number that it has in its namespace.
    pub fn number(self) -> u32 {
        Pid(self.0).number()
    }
}

//! Bit sets of system-call arguments, a type per call or family of calls.
//!
//! Decoding keeps unknown bits: whether they are an error is the call's business, and differs from call to call. Where the C
//! prototype has an `int`, the upper half of the register does not count.

use crate::args::{ArgKind, Argument};
use crate::consts as c;

/// What the C prototype keeps of a register.
const INT: u64 = 0xffff_ffff;
const LONG: u64 = u64::MAX;

macro_rules! flag_sets {
    ($($(#[$doc:meta])* $name:ident: $width:ident { $($flag:ident = $value:expr;)* })*) => { $(
        bitflags::bitflags! {
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $name: u64 {
                $(#[allow(missing_docs)] const $flag = $value;)*
            }
        }

        impl Argument for $name {
            const KIND: ArgKind = ArgKind::Flags(&[$(($value, stringify!($flag))),*]);

            fn from_reg(reg: u64) -> Self {
                Self::from_bits_retain(reg & $width)
            }

            fn to_reg(self) -> u64 {
                self.bits()
            }
        }

        impl $name {
            /// Whether there is a bit outside of `allowed`.
            pub fn exceeds(self, allowed: Self) -> bool {
                self.bits() & !allowed.bits() != 0
            }
        }
    )* };
}

flag_sets! {
    /// open(2). The access mode is a number in the lowest two bits ([`OpenFlags::access`]).
    OpenFlags: INT {
        O_WRONLY = c::O_WRONLY; O_RDWR = c::O_RDWR; O_CREAT = c::O_CREAT; O_EXCL = c::O_EXCL; O_NOCTTY = c::O_NOCTTY;
        O_TRUNC = c::O_TRUNC; O_APPEND = c::O_APPEND; O_NONBLOCK = c::O_NONBLOCK; O_DSYNC = c::O_DSYNC;
        O_ASYNC = c::O_ASYNC; O_DIRECT = c::O_DIRECT; O_LARGEFILE = c::O_LARGEFILE; O_DIRECTORY = c::O_DIRECTORY;
        O_NOFOLLOW = c::O_NOFOLLOW; O_NOATIME = c::O_NOATIME; O_CLOEXEC = c::O_CLOEXEC; O_PATH = c::O_PATH;
    }
    /// What a new descriptor gets: dup3(2), pipe2(2), eventfd(2), accept4(2) and others, in which SOCK_CLOEXEC,
    /// EPOLL_CLOEXEC and their kind are the flags of open(2).
    FdFlags: INT {
        O_CLOEXEC = c::O_CLOEXEC; O_NONBLOCK = c::O_NONBLOCK; O_DIRECT = c::O_DIRECT; EFD_SEMAPHORE = c::EFD_SEMAPHORE;
    }
    /// The calls with a directory descriptor: fstatat(2), linkat(2), faccessat2(2) and others. AT_REMOVEDIR of unlinkat(2) and
    /// AT_EACCESS of faccessat2(2) are one bit.
    AtFlags: INT {
        AT_SYMLINK_NOFOLLOW = c::AT_SYMLINK_NOFOLLOW; AT_REMOVEDIR = c::AT_REMOVEDIR; AT_SYMLINK_FOLLOW = c::AT_SYMLINK_FOLLOW;
        AT_NO_AUTOMOUNT = c::AT_NO_AUTOMOUNT; AT_EMPTY_PATH = c::AT_EMPTY_PATH; AT_STATX_FORCE_SYNC = 0x2000;
        AT_STATX_DONT_SYNC = 0x4000;
    }
    /// statx(2): which fields are asked for.
    StatxMask: INT {
        STATX_TYPE = 0x1; STATX_MODE = 0x2; STATX_NLINK = 0x4; STATX_UID = 0x8; STATX_GID = 0x10; STATX_ATIME = 0x20;
        STATX_MTIME = 0x40; STATX_CTIME = 0x80; STATX_INO = 0x100; STATX_SIZE = 0x200; STATX_BLOCKS = 0x400;
        STATX_BTIME = 0x800; STATX_MNT_ID = 0x1000; STATX_RESERVED = 0x8000_0000;
    }
    /// mmap(2), mprotect(2).
    Prot: LONG {
        PROT_READ = c::PROT_READ; PROT_WRITE = c::PROT_WRITE; PROT_EXEC = c::PROT_EXEC; PROT_SEM = 8;
        PROT_GROWSDOWN = 0x0100_0000; PROT_GROWSUP = 0x0200_0000;
    }
    /// mmap(2). The kind of mapping is a number in the lowest four bits (MAP_TYPE).
    MapFlags: LONG {
        MAP_SHARED = c::MAP_SHARED; MAP_PRIVATE = c::MAP_PRIVATE; MAP_FIXED = c::MAP_FIXED; MAP_ANONYMOUS = c::MAP_ANONYMOUS;
        MAP_32BIT = 0x40; MAP_GROWSDOWN = c::MAP_GROWSDOWN; MAP_DENYWRITE = c::MAP_DENYWRITE;
        MAP_EXECUTABLE = c::MAP_EXECUTABLE; MAP_LOCKED = c::MAP_LOCKED; MAP_NORESERVE = c::MAP_NORESERVE;
        MAP_POPULATE = c::MAP_POPULATE; MAP_NONBLOCK = c::MAP_NONBLOCK; MAP_STACK = c::MAP_STACK;
        MAP_HUGETLB = c::MAP_HUGETLB; MAP_SYNC = c::MAP_SYNC; MAP_FIXED_NOREPLACE = c::MAP_FIXED_NOREPLACE;
        MAP_UNINITIALIZED = 0x400_0000;
    }
    /// mremap(2).
    RemapFlags: LONG {
        MREMAP_MAYMOVE = c::MREMAP_MAYMOVE; MREMAP_FIXED = c::MREMAP_FIXED; MREMAP_DONTUNMAP = c::MREMAP_DONTUNMAP;
    }
    /// msync(2).
    MsyncFlags: INT { MS_ASYNC = c::MS_ASYNC; MS_INVALIDATE = c::MS_INVALIDATE; MS_SYNC = c::MS_SYNC; }
    /// mlock2(2).
    MlockFlags: INT { MLOCK_ONFAULT = 1; }
    /// mlockall(2).
    MlockallFlags: INT { MCL_CURRENT = 1; MCL_FUTURE = 2; MCL_ONFAULT = 4; }
    /// shmget(2), semget(2), msgget(2) and the calls on what they make. The lowest nine bits are permissions.
    IpcFlags: INT { IPC_CREAT = 0o1000; IPC_EXCL = 0o2000; IPC_NOWAIT = 0o4000; SHM_NORESERVE = 0o10000; }
    /// msgrcv(2).
    ReceiveFlags: INT { IPC_NOWAIT = 0o4000; MSG_NOERROR = 0o10000; MSG_EXCEPT = 0o20000; MSG_COPY = 0o40000; }
    /// shmat(2).
    ShmatFlags: INT { SHM_RDONLY = 0o10000; SHM_RND = 0o20000; SHM_REMAP = 0o40000; SHM_EXEC = 0o100_000; }
    /// send(2), recv(2) and their kind.
    MsgFlags: INT {
        MSG_OOB = c::MSG_OOB; MSG_PEEK = c::MSG_PEEK; MSG_DONTROUTE = c::MSG_DONTROUTE; MSG_CTRUNC = c::MSG_CTRUNC;
        MSG_PROBE = c::MSG_PROBE; MSG_TRUNC = c::MSG_TRUNC; MSG_DONTWAIT = c::MSG_DONTWAIT; MSG_EOR = c::MSG_EOR;
        MSG_WAITALL = c::MSG_WAITALL; MSG_CONFIRM = c::MSG_CONFIRM; MSG_ERRQUEUE = c::MSG_ERRQUEUE;
        MSG_NOSIGNAL = c::MSG_NOSIGNAL; MSG_MORE = c::MSG_MORE; MSG_WAITFORONE = c::MSG_WAITFORONE;
        MSG_FASTOPEN = c::MSG_FASTOPEN; MSG_CMSG_CLOEXEC = c::MSG_CMSG_CLOEXEC; MSG_CMSG_COMPAT = c::MSG_CMSG_COMPAT;
    }
    /// clone(2). The lowest eight bits are the signal that the child's end sends.
    CloneFlags: LONG {
        CLONE_VM = c::CLONE_VM; CLONE_FS = c::CLONE_FS; CLONE_FILES = c::CLONE_FILES; CLONE_SIGHAND = c::CLONE_SIGHAND;
        CLONE_PIDFD = c::CLONE_PIDFD; CLONE_PTRACE = c::CLONE_PTRACE; CLONE_VFORK = c::CLONE_VFORK;
        CLONE_PARENT = c::CLONE_PARENT; CLONE_THREAD = c::CLONE_THREAD; CLONE_NEWNS = c::CLONE_NEWNS;
        CLONE_SYSVSEM = c::CLONE_SYSVSEM; CLONE_SETTLS = c::CLONE_SETTLS; CLONE_PARENT_SETTID = c::CLONE_PARENT_SETTID;
        CLONE_CHILD_CLEARTID = c::CLONE_CHILD_CLEARTID; CLONE_DETACHED = c::CLONE_DETACHED;
        CLONE_UNTRACED = c::CLONE_UNTRACED; CLONE_CHILD_SETTID = c::CLONE_CHILD_SETTID;
        CLONE_NEWCGROUP = c::CLONE_NEWCGROUP; CLONE_NEWUTS = c::CLONE_NEWUTS; CLONE_NEWIPC = c::CLONE_NEWIPC;
        CLONE_NEWUSER = c::CLONE_NEWUSER; CLONE_NEWPID = c::CLONE_NEWPID; CLONE_NEWNET = c::CLONE_NEWNET;
        CLONE_IO = c::CLONE_IO;
    }
    /// wait4(2), waitid(2).
    WaitFlags: INT {
        WNOHANG = c::WNOHANG; WUNTRACED = c::WUNTRACED; WEXITED = c::WEXITED; WCONTINUED = c::WCONTINUED;
        WNOWAIT = c::WNOWAIT; __WNOTHREAD = 0x2000_0000; __WALL = c::__WALL; __WCLONE = 0x8000_0000;
    }
    /// flock(2).
    FlockOp: INT { LOCK_SH = c::LOCK_SH; LOCK_EX = c::LOCK_EX; LOCK_NB = c::LOCK_NB; LOCK_UN = c::LOCK_UN; }
    /// setxattr(2).
    XattrFlags: INT { XATTR_CREATE = c::XATTR_CREATE; XATTR_REPLACE = c::XATTR_REPLACE; }
    /// futex(2): two flags beside a command ([`FutexOp::command`]).
    FutexOp: INT { FUTEX_PRIVATE_FLAG = c::FUTEX_PRIVATE_FLAG; FUTEX_CLOCK_REALTIME = c::FUTEX_CLOCK_REALTIME; }
    /// timer_settime(2), timerfd_settime(2), clock_nanosleep(2).
    TimerFlags: INT { TIMER_ABSTIME = c::TIMER_ABSTIME; TFD_TIMER_CANCEL_ON_SET = c::TFD_TIMER_CANCEL_ON_SET; }
    /// renameat2(2).
    RenameFlags: INT {
        RENAME_NOREPLACE = c::RENAME_NOREPLACE; RENAME_EXCHANGE = c::RENAME_EXCHANGE; RENAME_WHITEOUT = c::RENAME_WHITEOUT;
    }
    /// getrandom(2).
    RandomFlags: INT {
        GRND_NONBLOCK = c::GRND_NONBLOCK; GRND_RANDOM = c::GRND_RANDOM; GRND_INSECURE = c::GRND_INSECURE;
    }
    /// memfd_create(2).
    MemfdFlags: INT { MFD_CLOEXEC = c::MFD_CLOEXEC; MFD_ALLOW_SEALING = c::MFD_ALLOW_SEALING; MFD_HUGETLB = 4; }
    /// splice(2), tee(2), vmsplice(2).
    SpliceFlags: INT { SPLICE_F_MOVE = 1; SPLICE_F_NONBLOCK = 2; SPLICE_F_MORE = 4; SPLICE_F_GIFT = 8; }
    /// close_range(2).
    CloseRangeFlags: INT {
        CLOSE_RANGE_UNSHARE = c::CLOSE_RANGE_UNSHARE; CLOSE_RANGE_CLOEXEC = c::CLOSE_RANGE_CLOEXEC;
    }
    /// fallocate(2).
    FallocateMode: INT {
        FALLOC_FL_KEEP_SIZE = c::FALLOC_FL_KEEP_SIZE; FALLOC_FL_PUNCH_HOLE = c::FALLOC_FL_PUNCH_HOLE;
        FALLOC_FL_COLLAPSE_RANGE = c::FALLOC_FL_COLLAPSE_RANGE; FALLOC_FL_ZERO_RANGE = c::FALLOC_FL_ZERO_RANGE;
        FALLOC_FL_INSERT_RANGE = 0x20; FALLOC_FL_UNSHARE_RANGE = 0x40;
    }
    /// sync_file_range(2).
    SyncRangeFlags: INT {
        SYNC_FILE_RANGE_WAIT_BEFORE = 1; SYNC_FILE_RANGE_WRITE = 2; SYNC_FILE_RANGE_WAIT_AFTER = 4;
    }
    /// preadv2(2), pwritev2(2).
    RwFlags: INT { RWF_HIPRI = 1; RWF_DSYNC = 2; RWF_SYNC = 4; RWF_NOWAIT = 8; RWF_APPEND = 16; }
}

impl OpenFlags {
    /// The access mode: O_RDONLY, O_WRONLY, O_RDWR, or the 3 that open(2) calls reserved.
    pub fn access(self) -> u64 {
        self.bits() & c::O_ACCMODE
    }
}

impl Prot {
    /// The rights to a page without the other flags, as numbers of the kernel.
    pub fn access(self) -> u64 {
        self.bits() & (c::PROT_READ | c::PROT_WRITE | c::PROT_EXEC)
    }
}

impl AtFlags {
    /// AT_EACCESS of faccessat2(2), which is the bit of AT_REMOVEDIR.
    pub const AT_EACCESS: AtFlags = AtFlags::AT_REMOVEDIR;
}

impl FutexOp {
    /// The command without the flags.
    pub fn command(self) -> u64 {
        self.bits() & !FutexOp::all().bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_bits_stay_and_the_upper_half_of_an_int_does_not_count() {
        let flags = OpenFlags::from_reg(0xdead_beef_1008_0001);
        assert_eq!(flags.bits(), 0x1008_0001);
        assert!(flags.contains(OpenFlags::O_CLOEXEC) && flags.exceeds(OpenFlags::all()));
        assert_eq!(MapFlags::from_reg(1 << 40).to_reg(), 1 << 40, "an unsigned long is kept whole");
        assert_eq!(FutexOp::from_reg(0x189).command(), 9);
    }
}

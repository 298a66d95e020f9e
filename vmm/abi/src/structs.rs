//! Structures that cross the system-call boundary, as Linux lays them out on x86-64 (the kernel's `uapi` headers).
//! All are plain bytes without padding, so that no host memory can leak into a guest.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! abi_struct {
    ($(#[$m:meta])* $name:ident { $($field:ident: $ty:ty),* $(,)? }) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        #[allow(missing_docs)]
        pub struct $name { $(pub $field: $ty),* }
        impl Default for $name {
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }
    };
}

abi_struct! { /** `struct timespec` (time.h). */ Timespec { sec: i64, nsec: i64 } }
abi_struct! { /** `struct timeval` (sys/time.h). */ Timeval { sec: i64, usec: i64 } }
abi_struct! { /** `struct itimerspec` (timerfd_settime(2)). */ Itimerspec { interval: Timespec, value: Timespec } }
abi_struct! { /** `struct itimerval` (setitimer(2)). */ Itimerval { interval: Timeval, value: Timeval } }
abi_struct! { /** `struct stat` (stat(2)). */ Stat {
    dev: u64, ino: u64, nlink: u64, mode: u32, uid: u32, gid: u32, pad0: u32, rdev: u64, size: i64, blksize: i64,
    blocks: i64, atime: Timespec, mtime: Timespec, ctime: Timespec, unused: [i64; 3],
} }
abi_struct! { /** `struct statx_timestamp` (statx(2)). */ StatxTime { sec: i64, nsec: u32, pad: i32 } }
abi_struct! { /** `struct statx` (statx(2)). */ Statx {
    mask: u32, blksize: u32, attributes: u64, nlink: u32, uid: u32, gid: u32, mode: u16, pad1: u16, ino: u64,
    size: u64, blocks: u64, attributes_mask: u64, atime: StatxTime, btime: StatxTime, ctime: StatxTime,
    mtime: StatxTime, rdev_major: u32, rdev_minor: u32, dev_major: u32, dev_minor: u32, mnt_id: u64,
    dio_mem_align: u32, dio_offset_align: u32, spare: [u64; 12],
} }
abi_struct! { /** `struct statfs` (statfs(2)). */ Statfs {
    ftype: i64, bsize: i64, blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, fsid: [i32; 2],
    namelen: i64, frsize: i64, flags: i64, spare: [i64; 4],
} }
abi_struct! { /** `struct rlimit64` (prlimit(2)). */ Rlimit { cur: u64, max: u64 } }
abi_struct! { /** `struct rusage` (getrusage(2)). */ Rusage { utime: Timeval, stime: Timeval, rest: [i64; 14] } }
abi_struct! { /** `struct tms` (times(2)). */ Tms { utime: i64, stime: i64, cutime: i64, cstime: i64 } }
abi_struct! { /** `struct sysinfo` (sysinfo(2)). */ Sysinfo {
    uptime: i64, loads: [u64; 3], totalram: u64, freeram: u64, sharedram: u64, bufferram: u64, totalswap: u64,
    freeswap: u64, procs: u16, pad: [u16; 3], totalhigh: u64, freehigh: u64, mem_unit: u32, tail: u32,
} }
abi_struct! { /** `struct iovec` (readv(2)). */ Iovec { base: u64, len: u64 } }
abi_struct! { /** `struct msghdr` (recvmsg(2)). */ Msghdr {
    name: u64, namelen: u32, pad0: u32, iov: u64, iovlen: u64, control: u64, controllen: u64, flags: u32, pad1: u32,
} }
abi_struct! { /** `struct mmsghdr` (recvmmsg(2)). */ Mmsghdr { hdr: Msghdr, len: u32, pad: u32 } }
abi_struct! { /** `struct cmsghdr` (cmsg(3)). */ Cmsghdr { len: u64, level: i32, kind: i32 } }
abi_struct! { /** `struct ucred` (unix(7)). */ Ucred { pid: i32, uid: u32, gid: u32 } }
abi_struct! { /** `struct linger` (socket(7)). */ Linger { onoff: i32, linger: i32 } }
abi_struct! { /** `struct pollfd` (poll(2)). */ PollFd { fd: i32, events: i16, revents: i16 } }
abi_struct! { /** `struct kernel_sigaction` of rt_sigaction(2). */ Sigaction {
    handler: u64, flags: u64, restorer: u64, mask: u64,
} }
abi_struct! { /** `stack_t` (sigaltstack(2)). */ StackT { sp: u64, flags: i32, pad: i32, size: u64 } }
abi_struct! { /** `siginfo_t` (sigaction(2)): header, then the union as raw words. */ Siginfo {
    signo: i32, errno: i32, code: i32, pad: i32, fields: [u64; 14],
} }
abi_struct! { /** `struct sigcontext` of the signal frame. */ Sigcontext {
    r8: u64, r9: u64, r10: u64, r11: u64, r12: u64, r13: u64, r14: u64, r15: u64, rdi: u64, rsi: u64, rbp: u64,
    rbx: u64, rdx: u64, rax: u64, rcx: u64, rsp: u64, rip: u64, eflags: u64, cs: u16, gs: u16, fs: u16, ss: u16,
    err: u64, trapno: u64, oldmask: u64, cr2: u64, fpstate: u64, reserved: [u64; 8],
} }
abi_struct! { /** `struct ucontext` of the signal frame (kernel layout: 8-byte signal mask). */ Ucontext {
    flags: u64, link: u64, stack: StackT, mcontext: Sigcontext, sigmask: u64,
} }
abi_struct! { /** `struct clone_args` (clone3(2)). */ CloneArgs {
    flags: u64, pidfd: u64, child_tid: u64, parent_tid: u64, exit_signal: u64, stack: u64, stack_size: u64, tls: u64,
    set_tid: u64, set_tid_size: u64, cgroup: u64,
} }
abi_struct! { /** `struct signalfd_siginfo` (signalfd(2)), as words. */ SignalfdSiginfo {
    signo: u32, errno: i32, code: i32, pid: u32, uid: u32, fd: i32, tid: u32, band: u32, overrun: u32, trapno: u32,
    status: i32, int: i32, ptr: u64, utime: u64, stime: u64, addr: u64, addr_lsb: u16, pad2: u16, syscall: i32,
    call_addr: u64, arch: u32, pad: [u8; 28],
} }
abi_struct! { /** `struct flock` (fcntl(2)). */ Flock { kind: i16, whence: i16, pad0: i32, start: i64, len: i64, pid: i32, pad1: i32 } }
abi_struct! { /** `struct winsize` (ioctl_tty(2)). */ Winsize { row: u16, col: u16, xpixel: u16, ypixel: u16 } }
abi_struct! { /** The kernel's `struct termios` (ioctl_tty(2), TCGETS). */ Termios {
    iflag: u32, oflag: u32, cflag: u32, lflag: u32, line: u8, cc: [u8; 19],
} }

/// `struct epoll_event` (epoll_ctl(2)): packed on x86-64.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, packed)]
#[allow(missing_docs)]
pub struct EpollEvent {
    pub events: u32,
    pub data: u64,
}

impl Timespec {
    /// The timespec of `ns` nanoseconds.
    pub fn from_ns(ns: u64) -> Timespec {
        Timespec { sec: (ns / 1_000_000_000) as i64, nsec: (ns % 1_000_000_000) as i64 }
    }

    /// Nanoseconds, or `None` where Linux answers EINVAL: negative seconds or nanoseconds outside 0..1e9.
    pub fn to_ns(self) -> Option<u64> {
        let ok = self.sec >= 0 && (0..1_000_000_000).contains(&self.nsec);
        ok.then(|| (self.sec as u64).saturating_mul(1_000_000_000).saturating_add(self.nsec as u64))
    }
}

impl Timeval {
    /// The timeval of `ns` nanoseconds, rounded down to microseconds.
    pub fn from_ns(ns: u64) -> Timeval {
        Timeval { sec: (ns / 1_000_000_000) as i64, usec: (ns % 1_000_000_000 / 1000) as i64 }
    }

    /// Nanoseconds, or `None` where Linux answers EINVAL.
    pub fn to_ns(self) -> Option<u64> {
        let ok = self.sec >= 0 && (0..1_000_000).contains(&self.usec);
        ok.then(|| (self.sec as u64).saturating_mul(1_000_000_000).saturating_add(self.usec as u64 * 1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::size_of;

    #[test]
    fn sizes_are_linux_s() {
        assert_eq!(size_of::<Stat>(), 144);
        assert_eq!(size_of::<Statx>(), 256);
        assert_eq!(size_of::<Statfs>(), 120);
        assert_eq!(size_of::<Rusage>(), 144);
        assert_eq!(size_of::<Sysinfo>(), 112);
        assert_eq!(size_of::<Msghdr>(), 56);
        assert_eq!(size_of::<Siginfo>(), 128);
        assert_eq!(size_of::<Sigcontext>(), 256);
        assert_eq!(size_of::<Ucontext>(), 304);
        assert_eq!(size_of::<CloneArgs>(), 88);
        assert_eq!(size_of::<SignalfdSiginfo>(), 128);
        assert_eq!(size_of::<Flock>(), 32);
        assert_eq!(size_of::<Termios>(), 36);
        assert_eq!(size_of::<EpollEvent>(), 12);
    }
}

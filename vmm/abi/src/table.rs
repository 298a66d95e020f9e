//! The one list of system calls (x86-64 numbers). [`syscalls!`](crate::syscalls) hands it to a macro of the caller: this
//! module makes [`TABLE`] of it (names, argument kinds, status), [`crate::call`] the type of calls, the kernel its dispatcher.
//!
//! An entry is `[number name (argument: Type, ...) status "note"]`; the types are those of [`crate::args`] and
//! [`crate::flags`]. The status is one of
//! - `full`: everything programs rely on is modelled;
//! - `partial`: the note says what is;
//! - `errno E`: answered with that error on purpose, because programs are known to cope (the note says how);
//! - `unsupported`: the run stops with a finding that names the call.

pub use crate::args::ArgKind;
use crate::args::{Argument, Fd, Hex, Path, Ptr};
use crate::flags::*;

/// How far a call is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Everything programs rely on.
    Full,
    /// What the note says.
    Partial,
    /// A deliberate error.
    Errno(crate::Errno),
    /// Stops the run.
    Unsupported,
}

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct SyscallInfo {
    /// The number in rax.
    pub nr: u64,
    /// The name as in syscalls(2).
    pub name: &'static str,
    /// Argument names and kinds.
    pub args: &'static [(&'static str, ArgKind)],
    /// How far it is modelled.
    pub status: Status,
    /// What is missing, or why an error is right.
    pub note: &'static str,
}

/// Calls the macro `$callback` with the whole list; see the module's text for the shape of an entry.
#[macro_export]
macro_rules! syscalls {
    ($callback:ident) => {
        $callback! {
            [0 read (fd: Fd, buf: Ptr, count: u64) full ""]
            [1 write (fd: Fd, buf: Ptr, count: u64) full ""]
            [2 open (path: Path, flags: OpenFlags, mode: u32) full ""]
            [3 close (fd: Fd) full ""]
            [4 stat (path: Path, buf: Ptr) full ""]
            [5 fstat (fd: Fd, buf: Ptr) full ""]
            [6 lstat (path: Path, buf: Ptr) full ""]
            [7 poll (fds: Ptr, nfds: u64, timeout: i32) full ""]
            [8 lseek (fd: Fd, offset: i64, whence: u32) full ""]
            [9 mmap (addr: Ptr, len: u64, prot: Prot, flags: MapFlags, fd: Fd, offset: u64) partial "MAP_HUGETLB fails with EINVAL, as without hugetlbfs, MAP_SYNC with EOPNOTSUPP"]
            [10 mprotect (addr: Ptr, len: u64, prot: Prot) full ""]
            [11 munmap (addr: Ptr, len: u64) full ""]
            [12 brk (addr: Ptr) full ""]
            [13 rt_sigaction (sig: i32, act: Ptr, old: Ptr, size: u64) full ""]
            [14 rt_sigprocmask (how: u32, set: Ptr, old: Ptr, size: u64) full ""]
            [15 rt_sigreturn () full ""]
            [16 ioctl (fd: Fd, cmd: Hex, arg: Ptr) partial "FIONREAD, FIONBIO, FIOASYNC, FIOCLEX, FIONCLEX, FIGETBSZ, FIOQSIZE, questions of netdevice(7); flags of inodes; reflinks and FS_IOC_FIEMAP EOPNOTSUPP; pseudoterminals, not TIOCCONS"]
            [17 pread64 (fd: Fd, buf: Ptr, count: u64, offset: i64) full ""]
            [18 pwrite64 (fd: Fd, buf: Ptr, count: u64, offset: i64) full ""]
            [19 readv (fd: Fd, iov: Ptr, iovcnt: u64) full ""]
            [20 writev (fd: Fd, iov: Ptr, iovcnt: u64) full ""]
            [21 access (path: Path, mode: u32) full ""]
            [22 pipe (fds: Ptr) full ""]
            [23 select (nfds: i32, readfds: Ptr, writefds: Ptr, exceptfds: Ptr, timeout: Ptr) full ""]
            [24 sched_yield () full ""]
            [25 mremap (old: Ptr, old_len: u64, new_len: u64, flags: RemapFlags, new: Ptr) full ""]
            [26 msync (addr: Ptr, len: u64, flags: MsyncFlags) full ""]
            [27 mincore (addr: Ptr, len: u64, vec: Ptr) partial "files are in memory as a whole"]
            [28 madvise (addr: Ptr, len: u64, advice: u32) partial "DONTNEED, FREE, REMOVE, DONTFORK, WIPEONFORK, POPULATE_READ, POPULATE_WRITE act; the others are hints and do nothing; MADV_COLLAPSE EINVAL, as without huge pages"]
            [29 shmget (key: i32, size: u64, flags: IpcFlags) full ""]
            [30 shmat (id: i32, addr: Ptr, flags: ShmatFlags) full ""]
            [31 shmctl (id: i32, cmd: u32, buf: Ptr) full ""]
            [32 dup (fd: Fd) full ""]
            [33 dup2 (old: Fd, new: Fd) full ""]
            [34 pause () full ""]
            [35 nanosleep (req: Ptr, rem: Ptr) full ""]
            [36 getitimer (which: u32, value: Ptr) partial "timers of CPU time count what calls cost"]
            [37 alarm (seconds: u32) full ""]
            [38 setitimer (which: u32, value: Ptr, old: Ptr) partial "timers of CPU time count what calls cost; a loop of computation without calls reaches them, one that makes calls now and then may not"]
            [39 getpid () full ""]
            [40 sendfile (out: Fd, input: Fd, offset: Ptr, count: u64) full ""]
            [41 socket (domain: u32, kind: u32, protocol: u32) partial "AF_INET and AF_INET6 with TCP, UDP, UDP-Lite, ICMP echo sockets and raw sockets (no options of IP, no fragments, no IPV6_HDRINCL); AF_UNIX; AF_NETLINK with NETLINK_ROUTE and NETLINK_SOCK_DIAG (TCP, UDP, unix sockets), its other protocols EPROTONOSUPPORT; AF_PACKET with SOCK_RAW and SOCK_DGRAM (packets of IP only, frames of ARP are lost; rings and fanout ENOPROTOOPT); raw and packet sockets need CAP_NET_RAW; AF_ALG, AF_VSOCK and others EAFNOSUPPORT, as without their modules; MPTCP EPROTONOSUPPORT"]
            [42 connect (fd: Fd, addr: Ptr, len: u32) full ""]
            [43 accept (fd: Fd, addr: Ptr, len: Ptr) full ""]
            [44 sendto (fd: Fd, buf: Ptr, len: u64, flags: MsgFlags, addr: Ptr, addrlen: u32) full ""]
            [45 recvfrom (fd: Fd, buf: Ptr, len: u64, flags: MsgFlags, addr: Ptr, addrlen: Ptr) partial "MSG_ERRQUEUE is empty of streams and frames; raw sockets have no reports of ICMP there, but times of sending and datagrams that are too long"]
            [46 sendmsg (fd: Fd, msg: Ptr, flags: MsgFlags) partial "ancillary data: descriptors, credentials, addresses, limits, classes and times of sending of datagrams; extension headers of IPv6 stop the run"]
            [47 recvmsg (fd: Fd, msg: Ptr, flags: MsgFlags) partial "ancillary data: descriptors, credentials, times of arrival, addresses, limits and classes of datagrams"]
            [48 shutdown (fd: Fd, how: u32) full ""]
            [49 bind (fd: Fd, addr: Ptr, len: u32) partial "to an address that is not the node's, with IP_FREEBIND or IP_TRANSPARENT, stops the run"]
            [50 listen (fd: Fd, backlog: i32) full ""]
            [51 getsockname (fd: Fd, addr: Ptr, len: Ptr) full ""]
            [52 getpeername (fd: Fd, addr: Ptr, len: Ptr) full ""]
            [53 socketpair (domain: u32, kind: u32, protocol: u32, fds: Ptr) full ""]
            [54 setsockopt (fd: Fd, level: u32, name: u32, value: Ptr, len: u32) partial "those of Linux 6.1 but: SO_ZEROCOPY, SO_TXTIME, SO_PEERGROUPS, UDP_SEGMENT, UDP_GRO ENOPROTOOPT, as of older kernels; programs that choose among sockets of one port (SO_ATTACH_REUSEPORT_CBPF), times of sending of streams and frames (SO_TIMESTAMPING), TCP_FASTOPEN_KEY, data that open a connection without a cookie (TCP_FASTOPEN_NO_COOKIE), TCP_TX_DELAY, headers and addresses for all that is sent (IP_OPTIONS, IPV6_PKTINFO, IPV6_HOPOPTS and so on) stop the run"]
            [55 getsockopt (fd: Fd, level: u32, name: u32, value: Ptr, len: Ptr) partial "as setsockopt"]
            [56 clone (flags: CloneFlags, stack: Ptr, parent_tid: Ptr, child_tid: Ptr, tls: Ptr) partial "no namespaces"]
            [57 fork () full ""]
            [58 vfork () full ""]
            [59 execve (path: Path, argv: Ptr, envp: Ptr) full ""]
            [60 exit (status: i32) full ""]
            [61 wait4 (pid: i32, status: Ptr, options: WaitFlags, rusage: Ptr) full ""]
            [62 kill (pid: i32, sig: i32) full ""]
            [63 uname (buf: Ptr) full ""]
            [64 semget (key: i32, count: i32, flags: IpcFlags) full ""]
            [65 semop (id: i32, ops: Ptr, count: u64) full ""]
            [66 semctl (id: i32, number: i32, cmd: u32, arg: Ptr) full ""]
            [67 shmdt (addr: Ptr) full ""]
            [68 msgget (key: i32, flags: IpcFlags) full ""]
            [69 msgsnd (id: i32, msg: Ptr, size: u64, flags: IpcFlags) full ""]
            [70 msgrcv (id: i32, msg: Ptr, size: u64, kind: i64, flags: ReceiveFlags) full ""]
            [71 msgctl (id: i32, cmd: u32, buf: Ptr) full ""]
            [72 fcntl (fd: Fd, cmd: u32, arg: u64) partial "execve(2) waits for no lease; F_GET_RW_HINT and F_SET_RW_HINT EINVAL, as of older kernels"]
            [73 flock (fd: Fd, op: FlockOp) full ""]
            [74 fsync (fd: Fd) full ""]
            [75 fdatasync (fd: Fd) full ""]
            [76 truncate (path: Path, len: i64) full ""]
            [77 ftruncate (fd: Fd, len: i64) full ""]
            [78 getdents (fd: Fd, buf: Ptr, count: u64) full ""]
            [79 getcwd (buf: Ptr, size: u64) full ""]
            [80 chdir (path: Path) full ""]
            [81 fchdir (fd: Fd) full ""]
            [82 rename (old: Path, new: Path) full ""]
            [83 mkdir (path: Path, mode: u32) full ""]
            [84 rmdir (path: Path) full ""]
            [85 creat (path: Path, mode: u32) full ""]
            [86 link (old: Path, new: Path) full ""]
            [87 unlink (path: Path) full ""]
            [88 symlink (target: Path, link: Path) full ""]
            [89 readlink (path: Path, buf: Ptr, size: u64) full ""]
            [90 chmod (path: Path, mode: u32) full ""]
            [91 fchmod (fd: Fd, mode: u32) full ""]
            [92 chown (path: Path, uid: u32, gid: u32) full ""]
            [93 fchown (fd: Fd, uid: u32, gid: u32) full ""]
            [94 lchown (path: Path, uid: u32, gid: u32) full ""]
            [95 umask (mask: u32) full ""]
            [96 gettimeofday (tv: Ptr, tz: Ptr) full ""]
            [97 getrlimit (resource: u32, limit: Ptr) full ""]
            [98 getrusage (who: i32, usage: Ptr) partial "CPU time is the virtual time of the calls made"]
            [99 sysinfo (info: Ptr) full ""]
            [100 times (buf: Ptr) partial "CPU time is the virtual time of the calls made"]
            [101 ptrace () errno EPERM "the guest may not trace"]
            [102 getuid () full ""]
            [103 syslog (action: i32, buf: Ptr, len: i32) partial "an empty log; EPERM without CAP_SYSLOG, as in a container"]
            [104 getgid () full ""]
            [105 setuid (uid: u32) full ""]
            [106 setgid (gid: u32) full ""]
            [107 geteuid () full ""]
            [108 getegid () full ""]
            [109 setpgid (pid: i32, pgid: i32) full ""]
            [110 getppid () full ""]
            [111 getpgrp () full ""]
            [112 setsid () full ""]
            [113 setreuid (ruid: u32, euid: u32) full ""]
            [114 setregid (rgid: u32, egid: u32) full ""]
            [115 getgroups (size: i32, list: Ptr) full ""]
            [116 setgroups (size: i32, list: Ptr) full ""]
            [117 setresuid (ruid: u32, euid: u32, suid: u32) full ""]
            [118 getresuid (ruid: Ptr, euid: Ptr, suid: Ptr) full ""]
            [119 setresgid (rgid: u32, egid: u32, sgid: u32) full ""]
            [120 getresgid (rgid: Ptr, egid: Ptr, sgid: Ptr) full ""]
            [121 getpgid (pid: i32) full ""]
            [122 setfsuid (uid: u32) full ""]
            [123 setfsgid (gid: u32) full ""]
            [124 getsid (pid: i32) full ""]
            [125 capget (hdr: Ptr, data: Ptr) full ""]
            [126 capset (hdr: Ptr, data: Ptr) partial "decides about ids and groups; files and signals go by the user id"]
            [127 rt_sigpending (set: Ptr, size: u64) full ""]
            [128 rt_sigtimedwait (set: Ptr, info: Ptr, timeout: Ptr, size: u64) full ""]
            [129 rt_sigqueueinfo (pid: i32, sig: i32, info: Ptr) full ""]
            [130 rt_sigsuspend (set: Ptr, size: u64) full ""]
            [131 sigaltstack (ss: Ptr, old: Ptr) full ""]
            [132 utime (path: Path, times: Ptr) full ""]
            [133 mknod (path: Path, mode: u32, dev: u64) partial "regular files, fifos and sockets"]
            [134 uselib () errno ENOSYS "a call of the past: Linux 6.1 has no such call for 64-bit programs"]
            [135 personality (persona: Hex) partial "in containers PER_LINUX32, UNAME26, ADDR_NO_RANDOMIZE, READ_IMPLIES_EXEC, others EPERM; MMAP_PAGE_ZERO and the layouts of execve(2) have no effect"]
            [136 ustat (dev: u32, buf: Ptr) full ""]
            [137 statfs (path: Path, buf: Ptr) full ""]
            [138 fstatfs (fd: Fd, buf: Ptr) full ""]
            [139 sysfs (option: i32, first: u64, second: u64) full ""]
            [140 getpriority (which: u32, who: i32) full ""]
            [141 setpriority (which: u32, who: i32, nice: i32) partial "kept, no effect on scheduling"]
            [142 sched_setparam (pid: i32, param: Ptr) full ""]
            [143 sched_getparam (pid: i32, param: Ptr) full ""]
            [144 sched_setscheduler (pid: i32, policy: u32, param: Ptr) partial "policies of real time go before all others, up to 950 ms of each second; the others are kept, no effect"]
            [145 sched_getscheduler (pid: i32) full ""]
            [146 sched_get_priority_max (policy: u32) full ""]
            [147 sched_get_priority_min (policy: u32) full ""]
            [148 sched_rr_get_interval (pid: i32, interval: Ptr) full ""]
            [149 mlock (addr: Ptr, len: u64) full ""]
            [150 munlock (addr: Ptr, len: u64) full ""]
            [151 mlockall (flags: MlockallFlags) full ""]
            [152 munlockall () full ""]
            [153 vhangup () full ""]
            [154 modify_ldt () errno ENOSYS "as of a kernel without CONFIG_MODIFY_LDT_SYSCALL"]
            [155 pivot_root () errno EPERM "as in a container: CAP_SYS_ADMIN"]
            [156 _sysctl () errno ENOSYS "a call of the past: Linux 6.1 has no such call for 64-bit programs"]
            [157 prctl (option: u32, a2: u64, a3: u64, a4: u64, a5: u64) partial "PR_SET_SYSCALL_USER_DISPATCH EINVAL as of older kernels; PR_SET_VMA EINVAL, as without CONFIG_ANON_VMA_NAME"]
            [158 arch_prctl (code: Hex, addr: Ptr) partial "FS and GS base, state components; ARCH_SET_CPUID ENODEV"]
            [159 adjtimex (buf: Ptr) partial "reads, sets, leap seconds; no other rates than that of the clock; EPERM in a container"]
            [160 setrlimit (resource: u32, limit: Ptr) full ""]
            [161 chroot (path: Path) partial "not into /proc and /sys"]
            [162 sync () full ""]
            [163 acct () errno ENOSYS "no CONFIG_BSD_PROCESS_ACCT"]
            [164 settimeofday (tv: Ptr, tz: Ptr) partial "CLOCK_REALTIME; EPERM in a container"]
            [165 mount () errno EPERM "a container may not mount"]
            [166 umount2 () errno EPERM "a container may not mount"]
            [167 swapon () errno EPERM "as in a container: CAP_SYS_ADMIN"]
            [168 swapoff () errno EPERM "as in a container: CAP_SYS_ADMIN"]
            [169 reboot () errno EPERM "a container may not reboot"]
            [170 sethostname (name: Ptr, len: i32) full ""]
            [171 setdomainname (name: Ptr, len: i32) full ""]
            [172 iopl (level: u32) partial "EPERM for more than level 0, as in a container"]
            [173 ioperm (from: u64, num: u64, turn_on: i32) partial "EPERM as in a container"]
            [174 create_module () errno ENOSYS "a call of the past: Linux 6.1 has no such call for 64-bit programs"]
            [175 init_module () errno EPERM "as in a container: CAP_SYS_MODULE"]
            [176 delete_module () errno EPERM "as in a container: CAP_SYS_MODULE"]
            [177 get_kernel_syms () errno ENOSYS "a call of the past: Linux 6.1 has no such call for 64-bit programs"]
            [178 query_module () errno ENOSYS "a call of the past: Linux 6.1 has no such call for 64-bit programs"]
            [179 quotactl () errno EPERM "as in a container: CAP_SYS_ADMIN"]
            [180 nfsservctl () errno ENOSYS "a call of the past: Linux 6.1 has no such call for 64-bit programs"]
            [181 getpmsg () errno ENOSYS "a call of the past: Linux 6.1 has no such call for 64-bit programs"]
            [182 putpmsg () errno ENOSYS "a call of the past: Linux 6.1 has no such call for 64-bit programs"]
            [183 afs_syscall () errno ENOSYS "a call of the past: Linux 6.1 has no such call for 64-bit programs"]
            [184 tuxcall () errno ENOSYS "a call of the past: Linux 6.1 has no such call for 64-bit programs"]
            [185 security () errno ENOSYS "a call of the past: Linux 6.1 has no such call for 64-bit programs"]
            [186 gettid () full ""]
            [187 readahead (fd: Fd, offset: u64, count: u64) partial "a hint, does nothing"]
            [188 setxattr (path: Path, name: Path, value: Ptr, size: u64, flags: XattrFlags) full ""]
            [189 lsetxattr (path: Path, name: Path, value: Ptr, size: u64, flags: XattrFlags) full ""]
            [190 fsetxattr (fd: Fd, name: Path, value: Ptr, size: u64, flags: XattrFlags) full ""]
            [191 getxattr (path: Path, name: Path, value: Ptr, size: u64) full ""]
            [192 lgetxattr (path: Path, name: Path, value: Ptr, size: u64) full ""]
            [193 fgetxattr (fd: Fd, name: Path, value: Ptr, size: u64) full ""]
            [194 listxattr (path: Path, list: Ptr, size: u64) full ""]
            [195 llistxattr (path: Path, list: Ptr, size: u64) full ""]
            [196 flistxattr (fd: Fd, list: Ptr, size: u64) full ""]
            [197 removexattr (path: Path, name: Path) full ""]
            [198 lremovexattr (path: Path, name: Path) full ""]
            [199 fremovexattr (fd: Fd, name: Path) full ""]
            [200 tkill (tid: i32, sig: i32) full ""]
            [201 time (t: Ptr) full ""]
            [202 futex (uaddr: Ptr, op: FutexOp, val: u32, timeout: Ptr, uaddr2: Ptr, val3: u32) partial "locks with an owner (FUTEX_LOCK_PI) raise nobody's priority"]
            [203 sched_setaffinity (pid: i32, size: u64, mask: Ptr) full ""]
            [204 sched_getaffinity (pid: i32, size: u64, mask: Ptr) full ""]
            [205 set_thread_area () errno ENOSYS "a call of the past: Linux 6.1 has no such call for 64-bit programs"]
            [206 io_setup () errno ENOSYS "as of a kernel without CONFIG_AIO: programs fall back to plain reads and writes"]
            [207 io_destroy () errno ENOSYS "as of a kernel without CONFIG_AIO: programs fall back to plain reads and writes"]
            [208 io_getevents () errno ENOSYS "as of a kernel without CONFIG_AIO: programs fall back to plain reads and writes"]
            [209 io_submit () errno ENOSYS "as of a kernel without CONFIG_AIO: programs fall back to plain reads and writes"]
            [210 io_cancel () errno ENOSYS "as of a kernel without CONFIG_AIO: programs fall back to plain reads and writes"]
            [211 get_thread_area () errno ENOSYS "a call of the past: Linux 6.1 has no such call for 64-bit programs"]
            [212 lookup_dcookie () errno EPERM "as in a container: CAP_SYS_ADMIN"]
            [213 epoll_create (size: i32) full ""]
            [214 epoll_ctl_old () errno ENOSYS "a call of the past: Linux 6.1 has no such call for 64-bit programs"]
            [215 epoll_wait_old () errno ENOSYS "a call of the past: Linux 6.1 has no such call for 64-bit programs"]
            [216 remap_file_pages (start: Ptr, size: u64, prot: Prot, page: u64, flags: MapFlags) full ""]
            [217 getdents64 (fd: Fd, buf: Ptr, count: u64) full ""]
            [218 set_tid_address (tidptr: Ptr) full ""]
            [219 restart_syscall () full ""]
            [220 semtimedop (id: i32, ops: Ptr, count: u64, timeout: Ptr) full ""]
            [221 fadvise64 (fd: Fd, offset: i64, len: i64, advice: u32) partial "a hint, does nothing"]
            [222 timer_create (clock: u32, event: Ptr, id: Ptr) partial "timers of CPU time count what calls cost; a loop of computation without calls reaches them, one that makes calls now and then may not"]
            [223 timer_settime (id: i32, flags: TimerFlags, value: Ptr, old: Ptr) full ""]
            [224 timer_gettime (id: i32, value: Ptr) full ""]
            [225 timer_getoverrun (id: i32) full ""]
            [226 timer_delete (id: i32) full ""]
            [227 clock_settime (clock: i32, tp: Ptr) partial "CLOCK_REALTIME; EPERM in a container"]
            [228 clock_gettime (clock: i32, tp: Ptr) full ""]
            [229 clock_getres (clock: i32, tp: Ptr) full ""]
            [230 clock_nanosleep (clock: i32, flags: TimerFlags, req: Ptr, rem: Ptr) partial "CPU time is the virtual time of the calls made"]
            [231 exit_group (status: i32) full ""]
            [232 epoll_wait (epfd: Fd, events: Ptr, max: i32, timeout: i32) full ""]
            [233 epoll_ctl (epfd: Fd, op: u32, fd: Fd, event: Ptr) full ""]
            [234 tgkill (tgid: i32, tid: i32, sig: i32) full ""]
            [235 utimes (path: Path, times: Ptr) full ""]
            [236 vserver () errno ENOSYS "a call of the past: Linux 6.1 has no such call for 64-bit programs"]
            [237 mbind () errno EPERM "as in a container: CAP_SYS_NICE; one memory node"]
            [238 set_mempolicy () errno EPERM "as in a container: CAP_SYS_NICE; one memory node"]
            [239 get_mempolicy () errno EPERM "as in a container: CAP_SYS_NICE; one memory node"]
            [240 mq_open (name: Ptr, flags: OpenFlags, mode: u32, attr: Ptr) partial "not listed in /dev/mqueue; RLIMIT_MSGQUEUE of each queue by itself"]
            [241 mq_unlink (name: Ptr) full ""]
            [242 mq_timedsend (fd: Fd, msg: Ptr, len: u64, priority: u32, timeout: Ptr) full ""]
            [243 mq_timedreceive (fd: Fd, msg: Ptr, len: u64, priority: Ptr, timeout: Ptr) full ""]
            [244 mq_notify (fd: Fd, event: Ptr) full ""]
            [245 mq_getsetattr (fd: Fd, new: Ptr, old: Ptr) full ""]
            [246 kexec_load () errno EPERM "as in a container: CAP_SYS_BOOT"]
            [247 waitid (which: u32, id: i32, info: Ptr, options: WaitFlags, rusage: Ptr) full ""]
            [248 add_key () errno EPERM "as in a container: the runtime refuses it: key rings are not per container"]
            [249 request_key () errno EPERM "as in a container: the runtime refuses it: key rings are not per container"]
            [250 keyctl () errno EPERM "as in a container: the runtime refuses it: key rings are not per container"]
            [251 ioprio_set (which: i32, who: i32, priority: i32) partial "kept, no effect"]
            [252 ioprio_get (which: i32, who: i32) full ""]
            [253 inotify_init () full ""]
            [254 inotify_add_watch (fd: Fd, path: Path, mask: Hex) partial "not on files of /proc and /sys; a file with several names tells its events below the name that was looked up last; execve and pages of mappings tell nothing"]
            [255 inotify_rm_watch (fd: Fd, watch: i32) full ""]
            [256 migrate_pages () errno EPERM "as in a container: CAP_SYS_NICE; one memory node"]
            [257 openat (dirfd: Fd, path: Path, flags: OpenFlags, mode: u32) full ""]
            [258 mkdirat (dirfd: Fd, path: Path, mode: u32) full ""]
            [259 mknodat (dirfd: Fd, path: Path, mode: u32, dev: u64) partial "regular files, fifos and sockets"]
            [260 fchownat (dirfd: Fd, path: Path, uid: u32, gid: u32, flags: AtFlags) full ""]
            [261 futimesat (dirfd: Fd, path: Path, times: Ptr) full ""]
            [262 newfstatat (dirfd: Fd, path: Path, buf: Ptr, flags: AtFlags) full ""]
            [263 unlinkat (dirfd: Fd, path: Path, flags: AtFlags) full ""]
            [264 renameat (olddir: Fd, old: Path, newdir: Fd, new: Path) full ""]
            [265 linkat (olddir: Fd, old: Path, newdir: Fd, new: Path, flags: AtFlags) full ""]
            [266 symlinkat (target: Path, newdir: Fd, link: Path) full ""]
            [267 readlinkat (dirfd: Fd, path: Path, buf: Ptr, size: u64) full ""]
            [268 fchmodat (dirfd: Fd, path: Path, mode: u32) full ""]
            [269 faccessat (dirfd: Fd, path: Path, mode: u32) full ""]
            [270 pselect6 (nfds: i32, readfds: Ptr, writefds: Ptr, exceptfds: Ptr, timeout: Ptr, sigmask: Ptr) full ""]
            [271 ppoll (fds: Ptr, nfds: u64, timeout: Ptr, sigmask: Ptr, size: u64) full ""]
            [272 unshare (flags: CloneFlags) partial "namespaces EPERM, as in a container: CAP_SYS_ADMIN"]
            [273 set_robust_list (head: Ptr, len: u64) full ""]
            [274 get_robust_list (pid: i32, head: Ptr, len: Ptr) full ""]
            [275 splice (input: Fd, in_off: Ptr, out: Fd, out_off: Ptr, len: u64, flags: SpliceFlags) partial "pages are copied: a change of the file before they are read from the pipe is not seen; SPLICE_F_MORE to UDP sockets is refused"]
            [276 tee (input: Fd, out: Fd, len: u64, flags: SpliceFlags) full ""]
            [277 sync_file_range (fd: Fd, offset: i64, count: i64, flags: SyncRangeFlags) partial "a hint, makes nothing durable"]
            [278 vmsplice (fd: Fd, iov: Ptr, count: u64, flags: SpliceFlags) partial "pages are copied: a change of the memory before they are read from the pipe is not seen"]
            [279 move_pages () errno EPERM "as in a container: CAP_SYS_NICE; one memory node"]
            [280 utimensat (dirfd: Fd, path: Path, times: Ptr, flags: AtFlags) full ""]
            [281 epoll_pwait (epfd: Fd, events: Ptr, max: i32, timeout: i32, sigmask: Ptr, size: u64) full ""]
            [282 signalfd (fd: Fd, mask: Ptr, size: u64) full ""]
            [283 timerfd_create (clock: u32, flags: FdFlags) full ""]
            [284 eventfd (initval: u32) full ""]
            [285 fallocate (fd: Fd, mode: FallocateMode, offset: i64, len: i64) partial "FALLOC_FL_COLLAPSE_RANGE and FALLOC_FL_INSERT_RANGE EOPNOTSUPP, as of file systems that have neither"]
            [286 timerfd_settime (fd: Fd, flags: TimerFlags, value: Ptr, old: Ptr) full ""]
            [287 timerfd_gettime (fd: Fd, value: Ptr) full ""]
            [288 accept4 (fd: Fd, addr: Ptr, len: Ptr, flags: FdFlags) full ""]
            [289 signalfd4 (fd: Fd, mask: Ptr, size: u64, flags: FdFlags) full ""]
            [290 eventfd2 (initval: u32, flags: FdFlags) full ""]
            [291 epoll_create1 (flags: FdFlags) full ""]
            [292 dup3 (old: Fd, new: Fd, flags: FdFlags) full ""]
            [293 pipe2 (fds: Ptr, flags: FdFlags) full ""]
            [294 inotify_init1 (flags: FdFlags) full ""]
            [295 preadv (fd: Fd, iov: Ptr, iovcnt: u64, lo: u64, hi: u64) full ""]
            [296 pwritev (fd: Fd, iov: Ptr, iovcnt: u64, lo: u64, hi: u64) full ""]
            [297 rt_tgsigqueueinfo (tgid: i32, tid: i32, sig: i32, info: Ptr) full ""]
            [298 perf_event_open () errno EPERM "as in a container: CAP_PERFMON; no performance counters"]
            [299 recvmmsg (fd: Fd, vec: Ptr, vlen: u32, flags: MsgFlags, timeout: Ptr) full ""]
            [300 fanotify_init () errno EPERM "as in a container: CAP_SYS_ADMIN"]
            [301 fanotify_mark (fd: Fd, flags: Hex, mask: Hex, dirfd: Fd, path: Path) partial "fanotify_init gives no descriptor: EBADF, EINVAL"]
            [302 prlimit64 (pid: i32, resource: u32, new: Ptr, old: Ptr) full ""]
            [303 name_to_handle_at (dirfd: Fd, path: Path, handle: Ptr, mount: Ptr, flags: AtFlags) partial "files of tmpfs only, others EOPNOTSUPP as of an overlay file system"]
            [304 open_by_handle_at (mount: Fd, handle: Ptr, flags: OpenFlags) full ""]
            [305 clock_adjtime (clock: i32, buf: Ptr) partial "reads, sets, leap seconds; no rates; EPERM in a container"]
            [306 syncfs (fd: Fd) full ""]
            [307 sendmmsg (fd: Fd, vec: Ptr, vlen: u32, flags: MsgFlags) full ""]
            [308 setns () errno EPERM "as in a container: CAP_SYS_ADMIN; no namespaces"]
            [309 getcpu (cpu: Ptr, node: Ptr, cache: Ptr) full ""]
            [310 process_vm_readv (pid: i32, local: Ptr, locals: u64, remote: Ptr, remotes: u64, flags: Hex) full ""]
            [311 process_vm_writev (pid: i32, local: Ptr, locals: u64, remote: Ptr, remotes: u64, flags: Hex) full ""]
            [312 kcmp (pid1: i32, pid2: i32, kind: i32, idx1: u64, idx2: u64) full ""]
            [313 finit_module () errno EPERM "as in a container: CAP_SYS_MODULE"]
            [314 sched_setattr (pid: i32, attr: Ptr, flags: Hex) partial "as sched_setscheduler; reservations of SCHED_DEADLINE are kept; SCHED_FLAG_UTIL_CLAMP EOPNOTSUPP"]
            [315 sched_getattr (pid: i32, attr: Ptr, size: u32, flags: Hex) full ""]
            [316 renameat2 (olddir: Fd, old: Path, newdir: Fd, new: Path, flags: RenameFlags) full ""]
            [317 seccomp (op: u32, flags: Hex, args: Ptr) full ""]
            [318 getrandom (buf: Ptr, len: u64, flags: RandomFlags) full ""]
            [319 memfd_create (name: Path, flags: MemfdFlags) full ""]
            [320 kexec_file_load () errno EPERM "as in a container: CAP_SYS_BOOT"]
            [321 bpf () errno EPERM "as for an unprivileged process"]
            [322 execveat (dirfd: Fd, path: Path, argv: Ptr, envp: Ptr, flags: AtFlags) full ""]
            [323 userfaultfd () errno EPERM "as for an unprivileged process"]
            [324 membarrier (cmd: u32, flags: Hex, cpu: i32) full ""]
            [325 mlock2 (addr: Ptr, len: u64, flags: MlockFlags) full ""]
            [326 copy_file_range (input: Fd, in_off: Ptr, out: Fd, out_off: Ptr, len: u64, flags: Hex) full ""]
            [327 preadv2 (fd: Fd, iov: Ptr, iovcnt: u64, lo: u64, hi: u64, flags: RwFlags) full ""]
            [328 pwritev2 (fd: Fd, iov: Ptr, iovcnt: u64, lo: u64, hi: u64, flags: RwFlags) full ""]
            [329 pkey_mprotect (addr: Ptr, len: u64, prot: Prot, pkey: i32) partial "with key -1, as mprotect; no protection keys: EINVAL"]
            [330 pkey_alloc () errno ENOSPC "no protection keys"]
            [331 pkey_free () errno EINVAL "no protection keys"]
            [332 statx (dirfd: Fd, path: Path, flags: AtFlags, mask: StatxMask, buf: Ptr) full ""]
            [333 io_pgetevents () errno ENOSYS "as of a kernel without CONFIG_AIO: programs fall back to plain reads and writes"]
            [334 rseq () errno ENOSYS "glibc falls back; a restartable sequence would need preemption inside user code"]
            [424 pidfd_send_signal (fd: Fd, sig: i32, info: Ptr, flags: Hex) full ""]
            [425 io_uring_setup () errno ENOSYS "programs fall back to epoll"]
            [426 io_uring_enter () errno ENOSYS "programs fall back to epoll"]
            [427 io_uring_register () errno ENOSYS "programs fall back to epoll"]
            [428 open_tree () errno EPERM "as in a container: CAP_SYS_ADMIN"]
            [429 move_mount () errno EPERM "as in a container: CAP_SYS_ADMIN"]
            [430 fsopen () errno EPERM "as in a container: CAP_SYS_ADMIN"]
            [431 fsconfig () errno EPERM "as in a container: CAP_SYS_ADMIN"]
            [432 fsmount () errno EPERM "as in a container: CAP_SYS_ADMIN"]
            [433 fspick () errno EPERM "as in a container: CAP_SYS_ADMIN"]
            [434 pidfd_open (pid: i32, flags: FdFlags) full ""]
            [435 clone3 (args: Ptr, size: u64) partial "no namespaces, no set_tid"]
            [436 close_range (first: u32, last: u32, flags: CloseRangeFlags) full ""]
            [437 openat2 (dirfd: Fd, path: Path, how: Ptr, size: u64) full ""]
            [438 pidfd_getfd (fd: Fd, target: Fd, flags: Hex) full ""]
            [439 faccessat2 (dirfd: Fd, path: Path, mode: u32, flags: AtFlags) full ""]
            [440 process_madvise (fd: Fd, vec: Ptr, vlen: u64, advice: u32, flags: Hex) full ""]
            [441 epoll_pwait2 (epfd: Fd, events: Ptr, max: i32, timeout: Ptr, sigmask: Ptr, size: u64) full ""]
            [442 mount_setattr () errno EPERM "as in a container: CAP_SYS_ADMIN"]
            [443 quotactl_fd () errno EPERM "as in a container: CAP_SYS_ADMIN"]
            [444 landlock_create_ruleset () errno ENOSYS "as on a kernel without landlock"]
            [445 landlock_add_rule () errno ENOSYS "as on a kernel without landlock"]
            [446 landlock_restrict_self () errno ENOSYS "as on a kernel without landlock"]
            [447 memfd_secret () errno ENOSYS "as of a kernel that was started without secretmem.enable"]
            [448 process_mrelease () errno ENOSYS "as of older kernels"]
            [449 futex_waitv (waiters: Ptr, count: u32, flags: Hex, timeout: Ptr, clock: i32) full ""]
            [450 set_mempolicy_home_node () errno EPERM "as in a container: CAP_SYS_NICE; one memory node"]
            [451 cachestat () errno ENOSYS "newer than Linux 6.1, which uname announces"]
            [452 fchmodat2 () errno ENOSYS "newer than Linux 6.1, which uname announces; C libraries fall back to /proc/self/fd"]
            [453 map_shadow_stack () errno ENOSYS "newer than Linux 6.1, which uname announces"]
            [454 futex_wake () errno ENOSYS "newer than Linux 6.1, which uname announces"]
            [455 futex_wait () errno ENOSYS "newer than Linux 6.1, which uname announces"]
            [456 futex_requeue () errno ENOSYS "newer than Linux 6.1, which uname announces"]
            [457 statmount () errno ENOSYS "newer than Linux 6.1, which uname announces"]
            [458 listmount () errno ENOSYS "newer than Linux 6.1, which uname announces"]
            [459 lsm_get_self_attr () errno ENOSYS "newer than Linux 6.1, which uname announces"]
            [460 lsm_set_self_attr () errno ENOSYS "newer than Linux 6.1, which uname announces"]
            [461 lsm_list_modules () errno ENOSYS "newer than Linux 6.1, which uname announces"]
            [462 mseal () errno ENOSYS "newer than Linux 6.1, which uname announces"]
            [463 setxattrat () errno ENOSYS "newer than Linux 6.1, which uname announces"]
            [464 getxattrat () errno ENOSYS "newer than Linux 6.1, which uname announces"]
            [465 listxattrat () errno ENOSYS "newer than Linux 6.1, which uname announces"]
            [466 removexattrat () errno ENOSYS "newer than Linux 6.1, which uname announces"]
            [467 open_tree_attr () errno ENOSYS "newer than Linux 6.1, which uname announces"]
        }
    };
}

macro_rules! status {
    (full) => {
        Status::Full
    };
    (partial) => {
        Status::Partial
    };
    (unsupported) => {
        Status::Unsupported
    };
    (errno $e:ident) => {
        Status::Errno($crate::Errno::$e)
    };
}

macro_rules! make_table {
    ($([$nr:literal $name:ident ($($arg:ident : $kind:ident),*) $status:ident $($errno:ident)? $note:literal])*) => {
        /// All known system calls in order of number.
        pub static TABLE: &[SyscallInfo] = &[
            $(SyscallInfo {
                nr: $nr,
                name: stringify!($name),
                args: &[$((stringify!($arg), <$kind as Argument>::KIND)),*],
                status: status!($status $($errno)?),
                note: $note,
            }),*
        ];

        /// System-call numbers by name.
        #[allow(missing_docs, non_upper_case_globals)]
        pub mod nr {
            $(pub const $name: u64 = $nr;)*
        }
    };
}

syscalls!(make_table);

/// The table's line for `nr`, if Linux defines that number.
pub fn info(nr: u64) -> Option<&'static SyscallInfo> {
    // Numbers are dense up to 334, so that most are found at their own index.
    match TABLE.get(nr as usize) {
        Some(entry) if entry.nr == nr => Some(entry),
        _ => TABLE.binary_search_by_key(&nr, |e| e.nr).ok().map(|i| &TABLE[i]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_ordered_and_found_by_number() {
        assert!(TABLE.windows(2).all(|w| w[0].nr < w[1].nr));
        for entry in TABLE {
            assert_eq!(info(entry.nr).map(|e| e.name), Some(entry.name));
        }
        assert_eq!(info(257).map(|e| e.name), Some("openat"));
        assert!(info(400).is_none());
    }
}

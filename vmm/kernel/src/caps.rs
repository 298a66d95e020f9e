//! Capabilities ([`Caps`], capabilities(7)): the sets, and what changes of ids and execve do to them.
//!
//! They decide who may change ids and groups, signal others, bind low ports, use others' System V objects and message queues, lower
//! nice values, raise hard limits, make files immutable, lock more memory than RLIMIT_MEMLOCK says, set clocks and change the root directory.
//! The file system asks for those that are about files (`bloodhound_vfs::FileCap`).
//! Neighbours: [`crate::credentials`] who has them, `sys::caps` the calls, `sys::ids` the ids.

/// What Docker gives to root where nothing else is said: the bounding set of every process at its start.
pub const DOCKER: u64 = 0xa804_25fb;
/// What root has outside of containers of those that mean something here: all but what the calls need that are refused whoever
/// asks (modules, raw I/O, rebooting, networks, audit, tracing of kernels).
pub const OF_A_MACHINE: u64 = DOCKER
    | 1 << CAP_DAC_READ_SEARCH
    | 1 << CAP_LINUX_IMMUTABLE
    | 1 << CAP_IPC_LOCK
    | 1 << CAP_IPC_OWNER
    | 1 << CAP_SYS_PTRACE
    | 1 << CAP_SYS_PACCT
    | 1 << CAP_SYS_ADMIN
    | 1 << CAP_SYS_NICE
    | 1 << CAP_SYS_RESOURCE
    | 1 << CAP_SYS_TIME
    | 1 << CAP_SYS_TTY_CONFIG
    | 1 << CAP_LEASE
    | 1 << CAP_SYSLOG
    | 1 << CAP_WAKE_ALARM
    | 1 << CAP_BLOCK_SUSPEND;
/// The last capability of Linux 6.1, CAP_CHECKPOINT_RESTORE.
pub const LAST: u64 = 40;
/// Capabilities that are asked for.
pub const CAP_KILL: u32 = 5;
/// As above.
pub const CAP_SETGID: u32 = 6;
/// As above.
pub const CAP_SETUID: u32 = 7;
/// As above.
pub const CAP_SETPCAP: u32 = 8;
/// As above.
pub const CAP_NET_BIND_SERVICE: u32 = 10;

/// CAP_LINUX_IMMUTABLE.
pub const CAP_LINUX_IMMUTABLE: u32 = 9;
/// CAP_NET_ADMIN.
pub const CAP_NET_ADMIN: u32 = 12;
/// CAP_NET_RAW.
pub const CAP_NET_RAW: u32 = 13;
/// CAP_DAC_OVERRIDE.
pub const CAP_DAC_OVERRIDE: u32 = 1;
/// CAP_DAC_READ_SEARCH.
pub const CAP_DAC_READ_SEARCH: u32 = 2;
/// CAP_FOWNER.
pub const CAP_FOWNER: u32 = 3;
/// CAP_IPC_LOCK.
pub const CAP_IPC_LOCK: u32 = 14;
/// CAP_IPC_OWNER.
pub const CAP_IPC_OWNER: u32 = 15;
/// CAP_SYS_PTRACE.
pub const CAP_SYS_PTRACE: u32 = 19;
/// CAP_SYS_PACCT.
pub const CAP_SYS_PACCT: u32 = 20;
/// CAP_SYS_ADMIN.
pub const CAP_SYS_ADMIN: u32 = 21;
/// CAP_SYS_NICE.
pub const CAP_SYS_NICE: u32 = 23;
/// CAP_SYS_RESOURCE.
pub const CAP_SYS_RESOURCE: u32 = 24;
/// CAP_SYS_TIME.
pub const CAP_SYS_TIME: u32 = 25;
/// CAP_SYS_TTY_CONFIG.
pub const CAP_SYS_TTY_CONFIG: u32 = 26;
/// CAP_MKNOD.
pub const CAP_MKNOD: u32 = 27;
/// CAP_LEASE.
pub const CAP_LEASE: u32 = 28;
/// CAP_SYSLOG.
pub const CAP_SYSLOG: u32 = 34;
/// CAP_WAKE_ALARM.
pub const CAP_WAKE_ALARM: u32 = 35;
/// CAP_SETFCAP.
pub const CAP_SETFCAP: u32 = 31;
/// See [`CAP_KILL`].
pub const CAP_BLOCK_SUSPEND: u32 = 36;
/// CAP_AUDIT_CONTROL.
pub const CAP_AUDIT_CONTROL: u32 = 30;
/// Names of all capabilities by number, without `CAP_`.
pub const NAMES: [&str; LAST as usize + 1] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// CAP_FS_SET: CAP_CHOWN to CAP_FSETID, CAP_LINUX_IMMUTABLE, CAP_MKNOD, CAP_MAC_OVERRIDE.
const OF_FILES: u64 = 0x1f | 1 << 9 | 1 << CAP_MKNOD | 1 << 32;

/// SECBIT_NOROOT: no capabilities for root at execve.
const NOROOT: u32 = 1;
/// SECBIT_NO_SETUID_FIXUP: none lost or won by other ids.
const NO_SETUID_FIXUP: u32 = 1 << 2;
/// SECBIT_KEEP_CAPS
pub const KEEP_CAPS: u32 = 1 << 4;
/// SECBIT_NO_CAP_AMBIENT_RAISE
pub const NO_AMBIENT_RAISE: u32 = 1 << 6;
/// The bits that lock the one below them.
pub const LOCKS: u32 = 0xaa;

/// The sets of a thread, a bit for each capability, and its securebits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// What counts.
    pub effective: u64,
    /// What it may make count.
    pub permitted: u64,
    /// What a program that it executes may be given.
    pub inheritable: u64,
    /// What it can ever get by execve.
    pub bounding: u64,
    /// What a program keeps that is executed without being root's.
    pub ambient: u64,
    /// SECBIT_*
    pub securebits: u32,
}

impl Caps {
    /// Of the first process of a container with this bounding set.
    pub fn of(uid: u32, bounding: u64) -> Caps {
        let all = if uid == 0 { bounding } else { 0 };
        Caps { effective: all, permitted: all, inheritable: 0, bounding, ambient: 0, securebits: 0 }
    }

    /// Whether a capability counts now.
    pub fn has(&self, cap: u32) -> bool {
        self.effective >> cap & 1 != 0
    }

    /// Whether changes of ids change them: not with SECBIT_NO_SETUID_FIXUP.
    pub fn follow_ids(&self) -> bool {
        self.securebits & NO_SETUID_FIXUP == 0
    }

    /// Real, effective and saved user id were `before` and are `now`.
    pub fn after_ids(&mut self, before: [u32; 3], now: [u32; 3]) {
        if !self.follow_ids() {
            return;
        }
        // "If one or more of the real, effective, or saved set user IDs was previously 0, and as a result of the UID changes all
        // of these IDs have a nonzero value, then all capabilities are cleared from the permitted, effective, and ambient
        // capability sets."
        if before.contains(&0) && !now.contains(&0) {
            if self.securebits & KEEP_CAPS == 0 {
                (self.permitted, self.effective) = (0, 0);
            }
            self.ambient = 0;
        }
        match (before[1], now[1]) {
            (0, 1..) => self.effective = 0,
            (1.., 0) => self.effective = self.permitted,
            _ => {}
        }
    }

    /// The user for files was `before` and is `now` (setfsuid(2)): "If the filesystem user ID is changed from 0 to nonzero, then the following
    /// capabilities are cleared from the effective set", and "if the filesystem UID is changed from nonzero to 0, then any of these
    /// capabilities that are enabled in the permitted set are enabled in the effective set".
    pub fn after_fs_id(&mut self, before: u32, now: u32) {
        if !self.follow_ids() {
            return;
        }
        match (before, now) {
            (0, 1..) => self.effective &= !OF_FILES,
            (1.., 0) => self.effective |= self.permitted & OF_FILES,
            _ => {}
        }
    }

    /// What a program gets for root's sake that begins with these real and effective users (handle_privileged_root): its permitted
    /// capabilities, and whether they are effective. Files have no capabilities of their own.
    pub fn of_program(&self, real: u32, effective: u32) -> (u64, bool) {
        let root = self.securebits & NOROOT == 0;
        let permitted =
            if root && [real, effective].contains(&0) { self.inheritable | self.bounding } else { 0 };
        (permitted, root && effective == 0)
    }
}

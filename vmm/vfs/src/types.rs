//! The vocabulary of the file system: identifiers, credentials, times, `stat` data and the two ways to fail.
//!
//! Key types: [`Ino`], [`Cred`], [`Timestamp`], [`Stat`], [`Fail`]. Everything is plain data; all other modules
//! build on this one.

use std::sync::Arc;

use bloodhound_abi::{Errno, SimTime};

use crate::flags;

/// An inode of one [`Vfs`](crate::Vfs), over all its file systems. It is also `st_ino`. Numbers are given in
/// order of first use and never given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(pub u64);

/// A file system (what Linux calls a superblock).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FsId(pub u32);

/// A mount: a file system at its place in the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MountId(pub u32);

/// A volume that a fault of disks can be about: a file system under a number that means the same on all machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Volume(pub u32);

/// One name in a directory: 1 to 255 bytes, no slash, no NUL.
pub type Name = Arc<[u8]>;

/// The credentials that permission checks use (credentials(7): file-system user and group).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cred {
    /// File-system user id. It gives no rights by itself: those of root are capabilities.
    pub uid: u32,
    /// File-system group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Arc<[u32]>,
    /// Effective capabilities, a bit each; those count here that [`FileCap`] names.
    pub caps: u64,
}

/// Capabilities that are about files, by their numbers (capabilities(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FileCap {
    /// CAP_CHOWN: "Make arbitrary changes to file UIDs and GIDs".
    Chown = 0,
    /// CAP_DAC_OVERRIDE: "Bypass file read, write, and execute permission checks".
    DacOverride = 1,
    /// CAP_DAC_READ_SEARCH: "Bypass file read permission checks and directory read and execute permission checks".
    DacReadSearch = 2,
    /// CAP_FOWNER: "Bypass permission checks on operations that normally require the filesystem UID of the process to match the UID of the file".
    Fowner = 3,
    /// CAP_FSETID: "Don't clear set-user-ID and set-group-ID mode bits when a file is modified".
    Fsetid = 4,
    /// CAP_MKNOD: "Create special files using mknod(2)".
    Mknod = 27,
}

impl Cred {
    /// The superuser, with all capabilities.
    pub fn root() -> Cred {
        Cred { uid: 0, gid: 0, groups: Arc::new([]), caps: !0 }
    }

    /// A user without supplementary groups: with all capabilities if it is root, else without any.
    pub fn user(uid: u32, gid: u32) -> Cred {
        Cred { uid, gid, groups: Arc::new([]), caps: if uid == 0 { !0 } else { 0 } }
    }

    /// Whether a capability counts.
    pub fn has(&self, cap: FileCap) -> bool {
        self.caps >> cap as u8 & 1 != 0
    }

    /// Whether `gid` is the group or one of the supplementary groups.
    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}

/// A file time: seconds since 1970-01-01 (may be negative) and nanoseconds below 1,000,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Timestamp {
    /// Seconds since the epoch.
    pub secs: i64,
    /// Nanoseconds within the second.
    pub nanos: u32,
}

impl Timestamp {
    /// The time `epoch_ns` nanoseconds after 1970 plus `now`.
    pub fn at(epoch_ns: u64, now: SimTime) -> Timestamp {
        let total = u128::from(epoch_ns) + u128::from(now.0);
        let secs = i64::try_from(total / 1_000_000_000).unwrap_or(i64::MAX);
        Timestamp { secs, nanos: (total % 1_000_000_000) as u32 }
    }
}

/// What an inode is (the S_IFMT part of `st_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Regular file.
    Regular,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Character device; the kernel gives it behaviour by its number.
    CharDevice,
    /// Block device: a node only.
    BlockDevice,
    /// FIFO; the kernel keeps its buffer, keyed by [`Ino`].
    Fifo,
    /// Unix-domain socket; the kernel keeps the socket, keyed by [`Ino`].
    Socket,
}

impl Kind {
    /// The S_IFMT bits.
    pub fn mode_bits(self) -> u32 {
        match self {
            Kind::Regular => flags::S_IFREG,
            Kind::Directory => flags::S_IFDIR,
            Kind::Symlink => flags::S_IFLNK,
            Kind::CharDevice => flags::S_IFCHR,
            Kind::BlockDevice => flags::S_IFBLK,
            Kind::Fifo => flags::S_IFIFO,
            Kind::Socket => flags::S_IFSOCK,
        }
    }

    /// The kind that S_IFMT bits name. 0 is a regular file, as for mknod(2).
    pub fn from_mode(mode: u32) -> Option<Kind> {
        Some(match mode & flags::S_IFMT {
            0 | flags::S_IFREG => Kind::Regular,
            flags::S_IFDIR => Kind::Directory,
            flags::S_IFLNK => Kind::Symlink,
            flags::S_IFCHR => Kind::CharDevice,
            flags::S_IFBLK => Kind::BlockDevice,
            flags::S_IFIFO => Kind::Fifo,
            flags::S_IFSOCK => Kind::Socket,
            _ => return None,
        })
    }

    /// The `d_type` of getdents64(2): DT_REG and so on.
    pub fn dirent_type(self) -> u8 {
        (self.mode_bits() >> 12) as u8
    }
}

/// A device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Dev {
    /// The driver.
    pub major: u32,
    /// The device of that driver.
    pub minor: u32,
}

impl Dev {
    /// The 64-bit encoding in `struct stat` (gnu_dev_makedev(3)).
    pub fn encode(self) -> u64 {
        let (major, minor) = (u64::from(self.major), u64::from(self.minor));
        (minor & 0xff) | ((major & 0xfff) << 8) | ((minor & !0xff) << 12) | ((major & !0xfff) << 32)
    }

    /// Inverse of [`Dev::encode`].
    pub fn decode(raw: u64) -> Dev {
        Dev {
            major: (((raw >> 8) & 0xfff) | ((raw >> 32) & 0xffff_f000)) as u32,
            minor: ((raw & 0xff) | ((raw >> 12) & 0xffff_ff00)) as u32,
        }
    }
}

/// What stat(2) and statx(2) tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Device of the file system.
    pub dev: Dev,
    /// Inode number.
    pub ino: Ino,
    /// Kind of the inode (also in `mode`).
    pub kind: Kind,
    /// S_IFMT bits and permission bits.
    pub mode: u32,
    /// Number of hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device of a device node.
    pub rdev: Dev,
    /// Size in bytes.
    pub size: u64,
    /// Preferred block size in bytes.
    pub blksize: u32,
    /// Allocated 512-byte blocks.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation.
    pub btime: Timestamp,
}

/// What statfs(2) tells. Block counts are in units of `bsize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// Magic number of the file-system type.
    pub magic: u64,
    /// Block size in bytes.
    pub bsize: u64,
    /// Total blocks.
    pub blocks: u64,
    /// Free blocks.
    pub bfree: u64,
    /// Blocks free for unprivileged users.
    pub bavail: u64,
    /// Total inodes.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
    /// Longest name in bytes.
    pub namelen: u64,
    /// ST_* mount flags.
    pub flags: u64,
    /// File-system id.
    pub fsid: u64,
}

/// A path that leads into a mount whose files the kernel makes up (/proc, /sys, /dev/pts).
///
/// The kernel walks `rest` itself. Where it meets a link out of the mount (`/proc/self/cwd`), it calls the VFS
/// again with the link's target inode as start and `links` carried on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SynthPath {
    /// The synthetic mount.
    pub mount: MountId,
    /// The number the kernel gave at mount time.
    pub tag: u32,
    /// What is left of the path below the mount's root: no leading slash, empty for the root itself. Components
    /// `.` and `..` and a trailing slash are kept, because only the kernel knows which components are links.
    pub rest: Vec<u8>,
    /// Symbolic links followed so far, for the limit of 40.
    pub links: u32,
}

/// Why an operation did not return a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fail {
    /// The error for the program.
    Errno(Errno),
    /// No error: the path belongs to the kernel, which must carry the operation out (or refuse it) itself.
    Synthetic(Box<SynthPath>),
}

impl From<Errno> for Fail {
    fn from(errno: Errno) -> Fail {
        Fail::Errno(errno)
    }
}

/// Result of operations that walk a path. Operations on an [`Ino`] give a plain `Result<T, Errno>`.
pub type Outcome<T> = Result<T, Fail>;

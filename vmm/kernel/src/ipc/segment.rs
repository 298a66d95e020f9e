//! Shared-memory segments (shmget(2)): what is known of one beside its memory, which is a [`crate::node::Shm`].

use crate::ids::{Pid, ShmId};

/// SHM_DEST: the segment goes with its last mapping.
pub const DEST: u32 = 0o1000;
/// SHM_LOCKED.
pub const LOCKED: u32 = 0o2000;

/// A segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its memory.
    pub shm: ShmId,
    /// Its size as it was asked for, bytes.
    pub size: u64,
    /// The key that it was made with, which its mappings show also when it has none any more.
    pub key: i32,
    /// When it was last attached, seconds since 1970.
    pub atime: u64,
    /// When it was last detached.
    pub dtime: u64,
    /// Who made it.
    pub maker: Pid,
    /// Who attached or detached it last.
    pub last: Option<Pid>,
    /// How many calls of shmat(2) have attached it, which tells apart what they have mapped ([`crate::mm::Marks::attach`]).
    pub attaches: u64,
    /// The real user id of whoever has locked it (SHM_LOCK), whose RLIMIT_MEMLOCK counts it as long.
    pub locker: Option<u32>,
}

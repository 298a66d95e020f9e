//! Persistent containers: a clone shares everything with its original, and a write copies only the part that it changes.
//!
//! A snapshot is a clone of the world, and the first write to a node after it copies what the write touches. With the standard
//! library's containers that would be all tasks, descriptors and sockets of the node.
//!
//! Key types: [`Map`] and [`Set`] (ordered, for small values that are cheap to clone), [`Table`] (ordered, each value behind its
//! own `Arc`, for large values such as tasks), [`Log`] (a sequence that grows at its end). Method names are those of the standard
//! library. Iteration is in key order, so it is the same in every run.
//!
//! All are built on [`Map`]'s two levels: an index of leaves, and leaves of at most [`LEAF`] entries, both behind `Arc`. With n
//! entries, a clone takes O(1), the first write after it O(n / LEAF + LEAF), any other write O(log n + LEAF).

pub mod log;
mod map;
mod set;
mod table;

pub use log::Log;
pub use map::Map;
pub use set::Set;
pub use table::Table;

/// Entries of a full leaf. A write to a shared leaf copies so many entries at most; a write to a shared index copies a pointer for
/// each leaf.
pub const LEAF: usize = 64;

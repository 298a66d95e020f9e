//! The virtual file system as plain data: inodes, names, file pages, mounts and durability of one node.
//!
//! [`Vfs`] holds everything below the file descriptors: inodes in a copy-on-write arena, directories, the page
//! cache, mounts. It knows no descriptors, offsets, locks or blocking; those are the kernel's. Cloning a [`Vfs`]
//! costs a few reference counts.
mod base;
pub mod flags;
mod pages;
mod types;

pub use base::{BaseEntry, BaseFs, BaseKind, ContentId, FileImage, MemBase, NoBase, TreeId};
pub use pages::{PAGE, PageMap};
pub use types::*;

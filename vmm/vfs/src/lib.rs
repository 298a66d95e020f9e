//! The virtual file system as plain data: inodes, names, file pages, mounts and durability of one machine, with a mount
//! namespace for each of its containers.
//!
//! [`Vfs`] holds everything below the file descriptors: inodes in a copy-on-write arena, directories, the page
//! cache, mounts. It knows no descriptors, offsets, locks or blocking; those are the kernel's. Cloning a [`Vfs`]
//! costs a few reference counts; the first change of a thing after a clone copies that thing.
//!
//! # How the kernel uses it
//!
//! - Calls with a path take a [`Ctx`] (base layer, credentials, root, time, umask) and an [`At`] (start directory
//!   and path): [`Vfs::resolve`], [`Vfs::open`], [`Vfs::stat`], [`Vfs::mkdir`], [`Vfs::mknod`], [`Vfs::symlink`],
//!   [`Vfs::readlink`], [`Vfs::link`], [`Vfs::unlink`], [`Vfs::rmdir`], [`Vfs::rename`], [`Vfs::truncate`],
//!   [`Vfs::access`], [`Vfs::statfs`]. They fail with [`Fail::Errno`], or with [`Fail::Synthetic`] when the path
//!   leads into `/proc`, `/sys` or `/dev/pts`, which the kernel then serves itself.
//! - Calls on a descriptor take the [`Ino`]: [`Vfs::read_at`], [`Vfs::write_at`], [`Vfs::truncate_to`],
//!   [`Vfs::fallocate`], [`Vfs::seek_data`], [`Vfs::stat_ino`], [`Vfs::chmod`], [`Vfs::chown`],
//!   [`Vfs::set_times`], [`Vfs::get_xattr`] and its kin, [`Vfs::read_dir`], [`Vfs::path_of`]. `AT_EMPTY_PATH` is
//!   one of these too.
//! - [`Vfs::open`] gives a reference, [`Vfs::hold`] another one (working directory, root); both end with
//!   [`Vfs::close_ref`]. [`Vfs::exec_start`] and [`Vfs::map_start`] count programs and mappings.
//! - [`Vfs::page`] gives frames for private mappings, [`Vfs::page_mut`] for shared writable ones. After each
//!   operation that may change bytes the kernel takes [`Vfs::take_moved`] and drops its mappings of these pages.
//! - [`Vfs::sync`], [`Vfs::sync_all`] and [`Vfs::sync_failed`] are fsync(2) and its kin; [`Vfs::restart`] starts a
//!   container anew, [`Vfs::power_fail`] its machine (with [`Config::disk`] set).
//!
//! # The host
//!
//! A world refers to nothing outside. What lies below the root file system and bind mounts is reached through
//! [`BaseFs`], passed in by the caller. Of the modules here only `host` reads the host's files.

mod acl;
mod anew;
mod arena;
mod attr;
mod bad;
mod base;
mod devpts;
mod dir;
mod file;
pub mod flags;
pub mod host;
mod iflags;
mod image;
mod inode;
mod journal;
mod kept;
mod lies;
mod list;
mod mount;
mod names;
mod namespace;
mod notify;
mod open;
mod pages;
mod pending;
mod perm;
mod power;
mod rename;
mod sectors;
mod setup;
mod trouble;
mod types;
mod vfs;
mod walk;

pub use anew::Fill;
pub use attr::SetTime;
pub use base::{BaseEntry, BaseFs, BaseKind, ContentId, Linked, MemBase, NoBase, TreeId};
pub use dir::Order;
pub use iflags::Wanted;
pub use image::{Blocks, FileImage, HOST_FAULT, ImageContent, ImageTree};
pub use inode::CAPABILITY;
pub use journal::DiskModel;
pub use lies::Block;
pub use list::DirEntry;
pub use mount::{MountInfo, MountSpec};
pub use namespace::{MountNs, RootSpec};
pub use notify::Happened;
pub use open::Opened;
pub use pages::{PAGE, PageMap};
pub use power::{Aspect, PowerReport};
pub use rename::rename_flags;
pub use setup::path_is_like;
pub use trouble::Trouble;
pub use types::*;
pub use vfs::{At, Config, Ctx, PageMoved, Vfs};

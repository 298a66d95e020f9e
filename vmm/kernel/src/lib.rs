//! The application kernel: Linux's system calls as a deterministic state machine over plain data.
//!
//! A [`node::Node`] is one simulated machine, with one or more containers ([`container::Container`]). The machine loop (crate `bloodhound-sim`) runs its tasks on a platform
//! and calls back at each trap: [`node::Node::syscall`], [`node::Node::page_fault`], [`node::Node::before_user`],
//! [`node::Node::on_time`]. Nothing here runs, waits or looks at the host; a blocked call is a [`wait::Blocked`].
//!
//! Where things are: `sys/` holds the system calls by subject (the names of the modules are those of the manual
//! pages' sections); the objects behind descriptors have a module each (`pipe`, `eventfd`, `epoll`, `unix`, `inet`);
//! `transfer` moves bytes between them and the buffers of programs (`buffers`);
//! `mm/` is address spaces, `memory` what containers are charged for, `signal` delivery, `exec` program loading, `procfs` what /proc and /sys show.
#![forbid(unsafe_code)]

pub mod arena;
pub mod asking;
pub mod buffers;
pub mod caps;
pub mod container;
pub mod credentials;
pub mod ctx;
pub mod disk;
pub mod dispatch;
pub mod dnotify;
pub mod elf;
pub mod epoll;
pub mod eventfd;
pub mod exec;
pub mod fasync;
pub mod file;
pub mod hazards;
pub mod ids;
pub mod inet;
pub mod init;
pub mod inotify;
pub mod io_account;
pub mod ipc;
pub mod lease;
pub mod line;
pub mod locks;
pub mod memory;
pub mod mm;
pub mod netlink;
pub mod node;
pub mod node_clock;
pub mod path;
pub mod pipe;
pub mod process;
pub mod procfs;
mod random;
mod rare;
mod scarce;
mod script;
pub mod seccomp;
pub mod shared;
pub mod signal;
pub mod socket;
mod spawn;
pub mod stacks;
pub mod stdin;
mod sys;
pub mod task;
#[cfg(test)]
mod testing;
pub mod timer;
mod transfer;
pub mod tty;
pub mod unix;
pub mod vdso;
pub mod wait;
pub mod watch;

//! What the kernel's objects weigh, and the account of it: sockets with their queues, pipes, descriptors and what they refer to,
//! tasks. A program can have many of them without touching any memory of its own.
//!
//! Linux charges them to the cgroup of who made them (`GFP_KERNEL_ACCOUNT`), and its OOM killer comes when that has too much. So does
//! [`Node::relieve`]. The sizes are those of Linux 6.1 on x86-64, rounded as its slab caches do. Neighbours: [`crate::arena`] (what was
//! touched), [`crate::memory`] (what is compared with limits).

use crate::arena::{Ledger, Weigh};
use crate::container::{ContainerId, IpcNs};
use crate::epoll::Epoll;
use crate::eventfd::EventFd;
use crate::file::{File, FileKind};
use crate::inotify::Inotify;
use crate::ipc::mqueue::MqQueue;
use crate::ipc::queue::Queue;
use crate::ipc::sem::SemSet;
use crate::mm::Mm;
use crate::netlink::NetlinkSocket;
use crate::node::Node;
use crate::pipe::{PIPE_BUF, Pipe};
use crate::process::FdTable;
use crate::seccomp::listener::Listener;
use crate::shared::{FsPlace, Shared};
use crate::signal::SignalFd;
use crate::stacks::NetNs;
use crate::timer::TimerFd;
use crate::tty::Pty;
use crate::unix::UnixSocket;

/// `struct task_struct` with what belongs to it, and the stack that the task has in the kernel.
pub(crate) const TASK: u64 = 26 << 10;
/// `struct signal_struct`, `struct pid`, and names in /proc; what is left of a zombie.
pub(crate) const PROCESS: u64 = 2 << 10;
/// `struct file_lock`.
const LOCK: u64 = 256;
/// A page of a pipe.
const SLOT: u64 = PIPE_BUF as u64;
/// A message beside its text: `struct msg_msg`, in its slab.
const MESSAGE: u64 = 64;

impl Weigh for File {
    fn weight(&self) -> u64 {
        /// `struct file`, and what the security module keeps.
        const FILE: u64 = 256;
        FILE + match &self.kind {
            FileKind::Synthetic { data, .. } => data.len() as u64,
            FileKind::SyntheticDir { entries, .. } => 64 * entries.len() as u64,
            _ => 0,
        }
    }
}

impl Weigh for Shared<FdTable> {
    fn weight(&self) -> u64 {
        // `struct files_struct`, and a pointer and three bits for each descriptor.
        704 + 9 * self.item.len() as u64
    }
}

impl Weigh for Shared<FsPlace> {
    fn weight(&self) -> u64 {
        64
    }
}

impl Weigh for Pipe {
    fn weight(&self) -> u64 {
        // `struct pipe_inode_info` with its inode, `struct pipe_buffer` for each slot that there may be, a page for each that is.
        let (most, free) = ((self.capacity() / PIPE_BUF) as u64, self.free_slots() as u64);
        832 + 40 * most + SLOT * (most - free)
    }
}

impl Weigh for EventFd {
    fn weight(&self) -> u64 {
        64
    }
}

impl Weigh for TimerFd {
    fn weight(&self) -> u64 {
        256
    }
}

impl Weigh for SignalFd {
    fn weight(&self) -> u64 {
        64
    }
}

impl Weigh for Epoll {
    fn weight(&self) -> u64 {
        // `struct eventpoll`; `struct epitem` and `struct eppoll_entry` for each watch.
        256 + (128 + 72) * self.watches() as u64
    }
}

impl Weigh for Inotify {
    fn weight(&self) -> u64 {
        // `struct fsnotify_group`; `struct inotify_inode_mark` with its connector for each watch; events with their names.
        512 + 144 * self.watches.len() as u64 + 96 * self.queued() as u64
    }
}

impl Weigh for Listener {
    fn weight(&self) -> u64 {
        // `struct notification`; what waits in it lies on the stacks of those who wait.
        64
    }
}

impl Weigh for Pty {
    fn weight(&self) -> u64 {
        // Two of `struct tty_struct` and of `struct n_tty_data`, whose buffers are part of it.
        22 << 10
    }
}

impl Weigh for UnixSocket {
    fn weight(&self) -> u64 {
        // `struct unix_sock` with its inode, and what waits in its queue: who has sent it may be gone.
        1088 + 704 + self.held as u64
    }
}

impl Weigh for NetlinkSocket {
    fn weight(&self) -> u64 {
        let waiting: u64 = self.queue.iter().map(|datagram| 768 + datagram.data.len() as u64).sum();
        1088 + 704 + waiting
    }
}

impl Weigh for MqQueue {
    fn weight(&self) -> u64 {
        1024 + MESSAGE * self.len() + self.bytes()
    }
}

impl Weigh for Queue {
    fn weight(&self) -> u64 {
        256 + MESSAGE * self.len() + self.bytes
    }
}

impl Weigh for SemSet {
    fn weight(&self) -> u64 {
        // `struct sem_array`; `struct sem`, which has a cache line of its own.
        256 + 64 * self.sems.len() as u64
    }
}

impl Weigh for Mm {
    fn weight(&self) -> u64 {
        // `struct mm_struct` and the first tables of pages; `struct vm_area_struct` and its node in a tree.
        const MM: u64 = 1024 + 5 * 4096;
        MM + (192 + 32) * self.count() as u64
    }
}

/// What a container has of kernel memory, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelUsage {
    /// Objects and tasks.
    pub objects: u64,
    /// Record locks.
    pub locks: u64,
    /// Objects of its IPC namespace.
    pub ipc: u64,
    /// TCP and UDP sockets of its network namespace, with their queues.
    pub sockets: u64,
}

impl KernelUsage {
    /// All of it.
    pub fn bytes(&self) -> u64 {
        self.objects + self.locks + self.ipc + self.sockets
    }

    /// All of it in pages.
    pub fn pages(&self) -> u64 {
        self.bytes().div_ceil(crate::mm::PAGE)
    }
}

impl super::Memory {
    /// A container has more kernel memory.
    pub(crate) fn kernel_grows(&mut self, container: ContainerId, bytes: u64) {
        self.of(container).kernel.objects += bytes;
        self.grow(container);
    }

    /// It has less.
    pub(crate) fn kernel_shrinks(&mut self, container: ContainerId, bytes: u64) {
        self.of(container).kernel.objects -= bytes;
    }

    /// An IPC namespace is gone. It has the number of the container that it was made for.
    pub(crate) fn forget_ipc(&mut self, ns: IpcNs) {
        self.of(ContainerId(ns.0)).kernel.ipc = 0;
    }

    /// A part of it is now so much.
    fn kernel_is(&mut self, container: ContainerId, part: impl Fn(&mut KernelUsage) -> &mut u64, bytes: u64) {
        let known = part(&mut self.of(container).kernel);
        let before = std::mem::replace(known, bytes);
        if bytes > before {
            self.grow(container);
        }
    }
}

impl Node {
    /// Charges what the kernel's objects weigh that were touched since this was called last; those that are new to `maker`.
    pub(crate) fn weigh_objects(&mut self, maker: ContainerId) {
        let memory = &mut self.memory;
        let ledgers: [&mut dyn Ledger; 15] = [
            &mut self.files,
            &mut self.fd_tables,
            &mut self.places,
            &mut self.mms,
            &mut self.pipes,
            &mut self.events,
            &mut self.timerfds,
            &mut self.signalfds,
            &mut self.epolls,
            &mut self.inotifies,
            &mut self.listeners,
            &mut self.ptys,
            &mut self.netlinks,
            &mut self.mqueues.all,
            self.unix.ledger(),
        ];
        for ledger in ledgers {
            if ledger.is_stale() {
                ledger.weigh(maker, &mut |by, before, now| match now > before {
                    true => memory.kernel_grows(by, now - before),
                    false => memory.kernel_shrinks(by, before - now),
                });
            }
        }
        for (container, count) in self.locks.counts() {
            self.memory.kernel_is(container, |kernel| &mut kernel.locks, count * LOCK);
        }
        for (ns, bytes) in self.sysv.weights() {
            self.memory.kernel_is(ContainerId(ns.0), |kernel| &mut kernel.ipc, bytes);
        }
        // Network namespaces have their numbers in the order of the containers that they were made for. This is done after each call, so
        // no container is looked for.
        let mut next = NetNs(0);
        for (at, container) in self.containers.iter().enumerate() {
            if container.net == next && (next.0 as usize) < self.net.len() {
                let bytes = self.net.stack(next).held_bytes();
                self.memory.kernel_is(ContainerId(at as u32), |kernel| &mut kernel.sockets, bytes);
                next.0 += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;

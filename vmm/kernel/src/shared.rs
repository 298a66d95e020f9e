//! What tasks have in common by clone(2): tables of descriptors (CLONE_FILES), places in the file system (CLONE_FS), signal actions
//! (CLONE_SIGHAND). Threads share all three, mostly; other tasks may, and threads need not.
//!
//! Key types: [`Shared`], [`FsPlace`], [`Common`] (what one task has). Neighbours: `process`, `task`, `sys::clone`.

use std::sync::Arc;

use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Sigaction;
use bloodhound_vfs::{BaseFs, Ino};

use crate::ctx::Ctx;
use crate::ids::*;
use crate::memory::PROCESS;
use crate::node::Node;
use crate::process::FdTable;

/// Something that several tasks may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shared<T> {
    /// How many do.
    pub users: u32,
    /// What it is.
    pub item: T,
}

impl<T> Shared<T> {
    /// Of one user.
    pub fn new(item: T) -> Shared<T> {
        Shared { users: 1, item }
    }
}

/// Where a task is in the file system (`fs_struct` of Linux).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FsPlace {
    /// Working directory.
    pub cwd: Ino,
    /// Absolute path of the working directory while it is in /proc or /sys; `cwd` is the one before.
    pub cwd_synthetic: Option<Arc<Vec<u8>>>,
    /// Root directory (chroot(2)).
    pub root: Ino,
    /// umask(2).
    pub umask: u32,
}

/// What a task has of such.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Common {
    /// Its descriptors.
    pub table: TableId,
    /// Its place.
    pub place: PlaceId,
}

impl Node {
    /// The descriptors of a task.
    pub fn fds_of(&self, tid: Tid) -> &FdTable {
        &self.fd_tables[self.task(tid).common.table].item
    }

    /// The descriptors of a task.
    pub fn fds_of_mut(&mut self, tid: Tid) -> &mut FdTable {
        let table = self.task(tid).common.table;
        &mut self.fd_tables[table].item
    }

    /// Where a task is.
    pub fn place_of(&self, tid: Tid) -> &FsPlace {
        &self.places[self.task(tid).common.place].item
    }

    /// The signal actions of a process, by number - 1.
    pub fn actions_of(&self, pid: Pid) -> &[Sigaction] {
        &self.actions[self.process(pid).actions].item
    }

    /// The signal actions of a process, by number - 1.
    pub fn actions_of_mut(&mut self, pid: Pid) -> &mut Vec<Sigaction> {
        let actions = self.process(pid).actions;
        Arc::make_mut(&mut self.actions[actions].item)
    }

    /// A copy of a table for another user, with references to all that it has.
    pub(crate) fn copy_table(&mut self, table: TableId) -> TableId {
        let copy = self.fd_tables[table].item.forked();
        for (_, entry) in copy.iter() {
            self.file_ref(entry.file);
        }
        self.fd_tables.insert(Shared::new(copy))
    }

    /// A copy of a place.
    pub(crate) fn copy_place(&mut self, place: PlaceId) -> PlaceId {
        let copy = self.places[place].item.clone();
        self.vfs.hold(copy.cwd);
        self.vfs.hold(copy.root);
        self.places.insert(Shared::new(copy))
    }

    /// A task of `pid` has it no longer; the last one closes what is in it.
    pub(crate) fn release_table(&mut self, table: TableId, pid: Pid, base: &mut dyn BaseFs) {
        self.fd_tables[table].users -= 1;
        if self.fd_tables[table].users > 0 {
            return;
        }
        let Some(Shared { item, .. }) = self.fd_tables.remove(table) else { return };
        self.release_locks_of_table(table);
        let files: Vec<FileId> = item.iter().map(|(_, entry)| entry.file).collect();
        for file in &files {
            self.closed_by(*file, pid, table);
        }
        self.files_unref(&files, base);
    }

    /// The same of a place.
    pub(crate) fn release_place(&mut self, place: PlaceId) {
        self.places[place].users -= 1;
        if self.places[place].users == 0
            && let Some(Shared { item, .. }) = self.places.remove(place)
        {
            self.vfs.close_ref(item.cwd, false);
            self.vfs.close_ref(item.root, false);
        }
    }

    /// Nobody asks for a process any more that has ended; until then it has its signal actions.
    pub(crate) fn forget_process(&mut self, pid: Pid) {
        let Some(process) = self.processes.remove(&pid) else { return };
        self.memory.kernel_shrinks(process.container, PROCESS);
        self.release_filters(&process.ended_filters);
        let shared = &mut self.actions[process.actions];
        shared.users -= 1;
        if shared.users == 0 {
            self.actions.remove(process.actions);
            // What it watched of signals is looked at once more, and hears of no signal any more (signalfd_cleanup).
            self.wake_signalfds(process.actions, 0, c::EPOLLHUP);
        }
    }
}

impl Ctx<'_> {
    /// The caller's descriptors.
    pub fn table(&self) -> &FdTable {
        self.node.fds_of(self.tid)
    }

    /// The caller's descriptors.
    pub fn table_mut(&mut self) -> &mut FdTable {
        self.node.fds_of_mut(self.tid)
    }

    /// Where the caller is.
    pub(crate) fn place(&self) -> &FsPlace {
        self.node.place_of(self.tid)
    }

    /// Where the caller is.
    pub(crate) fn place_mut(&mut self) -> &mut FsPlace {
        let place = self.task().common.place;
        &mut self.node.places[place].item
    }

    /// From now on the caller has a table that nobody else has (unshare_files).
    pub(crate) fn unshare_table(&mut self) {
        let table = self.task().common.table;
        if self.node.fd_tables[table].users > 1 {
            let own = self.node.copy_table(table);
            self.node.fd_tables[table].users -= 1;
            self.task_mut().common.table = own;
        }
    }

    /// The same for its place.
    pub(crate) fn unshare_place(&mut self) {
        let place = self.task().common.place;
        if self.node.places[place].users > 1 {
            let own = self.node.copy_place(place);
            self.node.places[place].users -= 1;
            self.task_mut().common.place = own;
        }
    }

    /// The same for its process's signal actions.
    pub(crate) fn unshare_actions(&mut self) {
        let actions = self.process().actions;
        if self.node.actions[actions].users > 1 {
            let own = self.node.actions[actions].item.clone();
            self.node.actions[actions].users -= 1;
            let own = self.node.actions.insert(Shared::new(own));
            self.process_mut().actions = own;
        }
    }
}

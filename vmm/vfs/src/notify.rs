//! What watches are told (inotify(7)): changes and uses of watched inodes, in the order in which Linux's fsnotify tells them.
//!
//! Nothing is noted of inodes that nobody watches, nor below directories that nobody watches. The kernel takes
//! [`Vfs::take_happened`] at the end of each call and puts it into the queues of whoever watches.

use std::sync::Arc;

use crate::flags::*;
use crate::types::{Ino, Name};
use crate::vfs::Vfs;

/// Something that happened to a watched inode or below a watched directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened {
    /// One of the IN_* events, with IN_ISDIR for a directory.
    pub mask: u32,
    /// Whose watches are told without a name.
    pub ino: Option<Ino>,
    /// The directory whose watches are told first, with this name.
    pub place: Option<(Ino, Name)>,
    /// The name is gone: watches with IN_EXCL_UNLINK are not told.
    pub unlinked: bool,
    /// Which rename(2) it was, the same for both of its names; 0 for everything else.
    pub cookie: u32,
}

impl Vfs {
    /// Somebody watches an inode from now on, or one more.
    pub fn watch(&mut self, ino: Ino) {
        *Arc::make_mut(&mut self.watched).entry(ino).or_insert(0) += 1;
    }

    /// One watch less.
    pub fn unwatch(&mut self, ino: Ino) {
        let watched = Arc::make_mut(&mut self.watched);
        if let Some(count) = watched.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                watched.remove(&ino);
            }
        }
    }

    /// Whether anything has happened that watches are to be told.
    pub fn has_happened(&self) -> bool {
        !self.happened.is_empty()
    }

    /// Takes what has happened since the last call.
    pub fn take_happened(&mut self) -> Vec<Happened> {
        std::mem::take(&mut self.happened)
    }

    /// Tells the directory in which a file was found last, and the file itself, of a use of an open file (`fsnotify_file`): of one
    /// without a name IN_EXCL_UNLINK hears no more.
    pub fn tell(&mut self, ino: Ino, mask: u32) {
        self.tell_both(ino, mask, true);
    }

    /// The same of a change of the inode (`fsnotify_dentry`), which no path belongs to.
    pub(crate) fn tell_change(&mut self, ino: Ino, mask: u32) {
        self.tell_both(ino, mask, false);
    }

    fn tell_both(&mut self, ino: Ino, mask: u32, by_path: bool) {
        if self.watched.is_empty() {
            return;
        }
        let Ok(inode) = self.inode(ino) else { return };
        let dir = if inode.is_dir() { IN_ISDIR } else { 0 };
        let place = inode.seen.as_ref().filter(|(dir, _)| self.watched.contains_key(dir)).cloned();
        let own = self.watched.contains_key(&ino).then_some(ino);
        if own.is_some() || place.is_some() {
            let unlinked = by_path && inode.meta.nlink == 0;
            self.happened.push(Happened { mask: mask | dir, ino: own, place, unlinked, cookie: 0 });
        }
    }

    /// Tells the inode alone (`fsnotify_inode`, `fsnotify_link_count`).
    pub(crate) fn tell_itself(&mut self, ino: Ino, mask: u32) {
        if !self.watched.contains_key(&ino) {
            return;
        }
        // IN_DELETE_SELF and IN_MOVE_SELF come without IN_ISDIR (inotify_handle_inode_event).
        let is_dir = self.inodes.get(ino).is_some_and(|inode| inode.is_dir());
        let dir = if is_dir && mask & (IN_DELETE_SELF | IN_MOVE_SELF) == 0 { IN_ISDIR } else { 0 };
        let told = Happened { mask: mask | dir, ino: Some(ino), place: None, unlinked: false, cookie: 0 };
        self.happened.push(told);
    }

    /// Tells a directory of one of its names (`fsnotify_name`).
    pub(crate) fn tell_name(&mut self, mask: u32, dir: Ino, name: &Name, is_dir: bool, cookie: u32) {
        if self.watched.contains_key(&dir) {
            let mask = mask | if is_dir { IN_ISDIR } else { 0 };
            let place = Some((dir, name.clone()));
            self.happened.push(Happened { mask, ino: None, place, unlinked: false, cookie });
        }
    }

    /// Tells of a move from one name to another, and of the loss of a link to what had the new one (`fsnotify_move`).
    pub(crate) fn tell_move(&mut self, old: (Ino, &Name), new: (Ino, &Name), source: Ino, over: Option<Ino>) {
        if self.watched.is_empty() {
            return;
        }
        self.moves += 1;
        let (is_dir, cookie) = (self.inodes.get(source).is_some_and(|inode| inode.is_dir()), self.moves);
        self.tell_name(IN_MOVED_FROM, old.0, old.1, is_dir, cookie);
        self.tell_name(IN_MOVED_TO, new.0, new.1, is_dir, cookie);
        if let Some(over) = over {
            self.tell_itself(over, IN_ATTRIB);
        }
        self.tell_itself(source, IN_MOVE_SELF);
    }
}

//! What a power failure keeps: the durable state of the disks and the ordered list of what is not synced yet.
//!
//! Key types: [`DiskModel`], `Journal`; `Op` is in `pending`. Every change of a file system on a disk is also noted as an `Op`;
//! fsync(2) and its kin apply operations to the durable state and take them off the list. A process crash touches
//! neither. The power failure itself is in `power`.
//!
//! The durable state is a second inode table. Inodes that were never changed are shared with the running one.

use std::collections::BTreeSet;
use std::sync::Arc;

use bloodhound_abi::{Errno, SimTime};

use crate::arena::Arena;
use crate::dir::{Order, Slot};
use crate::inode::{Data, Inode, Meta, Node};
use crate::mount::FsKind;
use crate::pages::{PAGE, PageMap};
use crate::pending::{Edit, Op, Pending, PendingList};
use crate::types::{FsId, Ino, Name, Timestamp};
use crate::vfs::Vfs;

/// What the disks of a node promise over a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskModel {
    /// Like ext4 with data=ordered, as it is mounted by default: names and metadata become durable in order, 6 s after they changed at
    /// the latest; fsync(2) of any file makes all earlier ones durable; a file does not grow before its data is there; overwritten
    /// data may be there or not, torn at sectors. What was written to a file that replaces another is there if the replacement
    /// is ("auto_da_alloc", ext4(5)): see [`Vfs::allocate`].
    Ordered,
    /// What POSIX allows: each operation is there or not. fsync(2) of a file is about this file only, its name needs
    /// fsync(2) of the directory. One rename(2) stays one step.
    Strict,
}

/// Operations and bytes on the list above which the oldest are written back, as the kernel's flusher does.
const MAX_PENDING: usize = 1 << 14;
const MAX_BYTES: u64 = 64 << 20;

/// What is so old has been written back, ns: the flusher takes what is older than `dirty_expire_centisecs` (30 s) when it wakes, each
/// `dirty_writeback_centisecs` (5 s), and what it changes of the metadata is in a transaction that ends in [`COMMITTED`].
const WRITTEN_BACK: u64 = 35_000_000_000 + COMMITTED;
/// A transaction of ext4 is so long at most, ns: "commit=nrsec: start the commit of all data and metadata every nrsec seconds. The
/// default value is 5 seconds" (ext4(5)), and a second to write it.
const COMMITTED: u64 = 6_000_000_000;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Journal {
    pub(crate) model: DiskModel,
    pub(crate) durable: Arena,
    pub(crate) pending: PendingList,
    /// Files of which written pages were dropped by a failed fsync, or went astray.
    pub(crate) lost: BTreeSet<Ino>,
    /// Files that were made empty and not closed since.
    emptied: BTreeSet<Ino>,
    /// What it was before the last sync, which is not over before a time.
    before: Option<(SimTime, Arc<Journal>)>,
    pub(crate) order: Order,
}

impl Journal {
    pub(crate) fn new(model: DiskModel, durable: Arena, order: Order) -> Journal {
        Journal {
            model,
            durable,
            pending: PendingList::default(),
            lost: BTreeSet::new(),
            emptied: BTreeSet::new(),
            before: None,
            order,
        }
    }

    /// A sync begins that is over at a time: a power failure before that finds the disk as it is now.
    fn begin_sync(&mut self, until: SimTime) {
        self.before = None;
        if self.pending.len() > 0 && until > SimTime::ZERO {
            self.before = Some((until, Arc::new(self.clone())));
        }
    }

    /// What it is for a power failure at a time.
    pub(crate) fn at(self, now: SimTime) -> Journal {
        match self.before {
            Some((until, before)) if until > now => Arc::unwrap_or_clone(before),
            _ => self,
        }
    }

    fn push(&mut self, pending: Pending, live: &Arena) {
        let now = pending.at;
        self.pending.push(pending);
        while self.is_too_long() || self.pending.age_of_oldest().is_some_and(|at| written_back(at, now)) {
            let oldest = self.pending.take_oldest();
            for pending in oldest.iter() {
                self.write_back(pending, live, now);
            }
        }
    }

    fn is_too_long(&self) -> bool {
        self.pending.settleable() > MAX_PENDING || self.pending.bytes() > MAX_BYTES
    }

    /// The flusher writes a change. Whatever is stored through a mapping from now on is not noticed, so its page stays on the list.
    fn write_back(&mut self, pending: &Pending, live: &Arena, now: SimTime) {
        self.apply(pending, live);
        if pending.op.is_mapped() && live.get(pending.ino).is_some() {
            self.pending.push(Pending { at: now, ..pending.clone() });
        }
    }

    /// A power failure now, by the machine's clock: what the flusher and the transactions of the file system have made durable leaves the list, and how many of
    /// the rest have their metadata durable.
    pub(crate) fn grow_old(&mut self, live: &Arena, now: SimTime) -> usize {
        let all = std::mem::take(&mut self.pending);
        let mut certain = 0;
        for pending in all.iter() {
            if written_back(pending.at, now) {
                self.write_back(pending, live, now);
                continue;
            }
            certain += usize::from(now.since(pending.at) >= COMMITTED);
            self.pending.push(pending.clone());
        }
        // Pages of mappings that were written back stand in front, with the present time: nothing is certain of them.
        let again =
            self.pending.iter().take_while(|pending| pending.op.is_mapped() && pending.at == now).count();
        if certain == 0 { 0 } else { certain + again }
    }

    /// Applies the operations that `pick` chooses and drops them from the list.
    fn settle(&mut self, live: &Arena, pick: impl Fn(&Pending) -> bool) {
        let all = std::mem::take(&mut self.pending);
        if all.iter().any(|pending| matches!(pending.op, Op::Size { .. }) && pick(pending)) {
            self.settle_in_full(&all, live, pick);
            return;
        }
        for segment in all.into_segments() {
            if !segment.iter().any(&pick) {
                self.pending.push_segment(segment);
                continue;
            }
            for pending in segment.iter() {
                if pick(pending) {
                    self.apply(pending, live);
                } else {
                    self.pending.push(pending.clone());
                }
            }
        }
    }

    /// The slow way, which can change what stays on the list.
    fn settle_in_full(&mut self, all: &PendingList, live: &Arena, pick: impl Fn(&Pending) -> bool) {
        let mut rest = Vec::new();
        for pending in all.iter() {
            if pick(pending) {
                clip(&mut rest, pending);
                self.apply(pending, live);
            } else {
                rest.push(pending.clone());
            }
        }
        self.pending = rest.into_iter().collect();
    }

    /// Makes one operation durable. `live` has the bytes of mapped pages.
    pub(crate) fn apply(&mut self, pending: &Pending, live: &Arena) {
        match &pending.op {
            Op::Create(inode) => {
                if self.durable.get(pending.ino).is_none() {
                    let mut inode = Inode::clone(inode);
                    inode.meta.nlink = 0; // counted by its names
                    self.durable.put(pending.ino, Arc::new(inode));
                }
            }
            Op::Names(edits) => {
                let displaced: Vec<Ino> =
                    edits.iter().filter_map(|edit| self.apply_edit(edit, pending.time)).collect();
                if self.model == DiskModel::Ordered {
                    self.collect(&displaced);
                }
            }
            Op::Mapped { index } => {
                let Some(bytes) = mapped_bytes(live, pending.ino, *index) else { return };
                if let Some(inode) = self.durable.get_mut(pending.ino) {
                    apply_data(inode, index * PAGE, &bytes, pending.time);
                }
            }
            op => {
                if let Some(inode) = self.durable.get_mut(pending.ino) {
                    apply_to_inode(inode, op, pending.time);
                }
            }
        }
    }

    /// What the name meant before.
    fn apply_edit(&mut self, edit: &Edit, time: Timestamp) -> Option<Ino> {
        let order = self.order;
        let inode = self.durable.get_mut(edit.dir)?;
        (inode.meta.mtime, inode.meta.ctime) = (time, time);
        let dir = inode.dir_mut()?;
        let old = match dir.slot(&edit.name) {
            Some(Slot::Live { ino, .. }) => Some(ino),
            _ => None,
        };
        match (old, edit.to) {
            (Some(_), Some((ino, is_dir))) => dir.replace(&edit.name, ino, false, is_dir),
            (None, Some((ino, is_dir))) => dir.insert(edit.name.clone(), ino, is_dir, order),
            (_, None) => dir.remove(&edit.name, false),
        }
        if let Some((ino, _)) = edit.to {
            self.link(ino, 1);
        }
        if let Some(old) = old {
            self.link(old, -1);
        }
        old
    }

    /// Containers were made anew: what is not on the file systems that stay is gone, `made` takes its place and is durable, and so is `changed`, which was
    /// changed on those that stay, with all that waits.
    pub(crate) fn made_anew(&mut self, live: &Arena, stays: &BTreeSet<FsId>, made: &[Ino], changed: &[Ino]) {
        let on_others = |inode: &Inode| !stays.contains(&inode.fs);
        let mut gone: BTreeSet<Ino> =
            self.durable.iter().filter(|(_, inode)| on_others(inode)).map(|(ino, _)| ino).collect();
        let all = std::mem::take(&mut self.pending);
        gone.extend(all.iter().filter_map(|pending| match &pending.op {
            Op::Create(inode) if on_others(inode) => Some(pending.ino),
            _ => None,
        }));
        self.pending = all.iter().filter(|pending| !gone.contains(&pending.ino)).cloned().collect();
        for ino in &gone {
            self.durable.remove(*ino);
        }
        self.lost.retain(|ino| !gone.contains(ino));
        self.emptied.retain(|ino| !gone.contains(ino));
        if !changed.is_empty() {
            self.settle(live, |_| true);
        }
        for ino in made.iter().chain(changed) {
            if let Some(inode) = live.get(*ino) {
                self.durable.put(*ino, inode.clone());
            }
        }
        if let Some((_, before)) = self.before.as_mut() {
            Arc::make_mut(before).made_anew(live, stays, made, changed);
        }
    }

    fn link(&mut self, ino: Ino, by: i32) {
        if let Some(inode) = self.durable.get_mut(ino) {
            inode.meta.nlink = inode.meta.nlink.saturating_add_signed(by);
        }
    }

    /// Frees durable inodes that lost their last name. Only where names are applied in order: there no operation on the
    /// list can give them one again.
    fn collect(&mut self, displaced: &[Ino]) {
        for ino in displaced {
            if self.durable.get(*ino).is_some_and(|inode| inode.meta.nlink == 0) {
                self.durable.remove(*ino);
            }
        }
    }
}

fn written_back(at: SimTime, now: SimTime) -> bool {
    now.since(at) >= WRITTEN_BACK
}

/// Before a size becomes durable ahead of older writes to the same file: what they wrote behind it is gone from the
/// page cache and can never reach the disk.
fn clip(older: &mut Vec<Pending>, size_op: &Pending) {
    let Op::Size { size } = size_op.op else { return };
    for pending in older.iter_mut().filter(|pending| pending.ino == size_op.ino) {
        if let Op::Data { offset, bytes } = &mut pending.op {
            let keep = size.saturating_sub(*offset).min(bytes.len() as u64) as usize;
            if keep < bytes.len() {
                *bytes = Arc::from(&bytes[..keep]);
            }
        }
    }
    older.retain(|pending| !matches!(&pending.op, Op::Data { bytes, .. } if bytes.is_empty()));
}

/// What the page of a shared mapping holds now, up to the end of the file.
pub(crate) fn mapped_bytes(live: &Arena, ino: Ino, index: u64) -> Option<Vec<u8>> {
    let Node::Regular { data: Data::Own(pages), size } = &live.get(ino)?.node else { return None };
    let mut bytes = vec![0; size.saturating_sub(index * PAGE).min(PAGE) as usize];
    pages.read(index * PAGE, &mut bytes);
    Some(bytes)
}

/// The pages of a regular file, made its own.
pub(crate) fn own_pages(inode: &mut Inode) -> Option<(&mut PageMap, &mut u64)> {
    let Node::Regular { data, size } = &mut inode.node else { return None };
    match data {
        Data::Image(image) => *data = Data::Own(image.pages()),
        Data::Unread(_) => *data = Data::Own(PageMap::default()),
        Data::Own(_) => {}
    }
    match data {
        Data::Own(pages) => Some((pages, size)),
        _ => None,
    }
}

pub(crate) fn apply_data(inode: &mut Inode, offset: u64, bytes: &[u8], time: Timestamp) {
    let Some((pages, size)) = own_pages(inode) else { return };
    if bytes.is_empty() {
        return;
    }
    pages.write(offset, bytes, &mut |_| {});
    *size = (*size).max(offset + bytes.len() as u64);
    (inode.meta.mtime, inode.meta.ctime) = (time, time);
}

fn apply_to_inode(inode: &mut Inode, op: &Op, time: Timestamp) {
    match op {
        Op::Data { offset, bytes } => apply_data(inode, *offset, bytes, time),
        Op::Size { size } => {
            let Some((pages, current)) = own_pages(inode) else { return };
            pages.truncate(*size, &mut |_| {});
            *current = *size;
            (inode.meta.mtime, inode.meta.ctime) = (time, time);
        }
        Op::Zero { from, to } => {
            let Some((pages, size)) = own_pages(inode) else { return };
            let size = *size;
            // A hole may take the page of the end as a whole.
            pages.zero((*from).min(size), (*to).min(size.next_multiple_of(PAGE)), &mut |_| {});
            (inode.meta.mtime, inode.meta.ctime) = (time, time);
        }
        Op::Attributes(meta) => {
            let nlink = inode.meta.nlink;
            inode.meta = Meta::clone(meta);
            inode.meta.nlink = nlink;
        }
        Op::Mapped { .. } | Op::Create(_) | Op::Names(_) => {}
    }
}

impl Vfs {
    /// fsync(2), fdatasync(2), msync(2) with MS_SYNC, sync_file_range(2), a write with O_DSYNC: makes a file or a
    /// directory durable, and with [`DiskModel::Ordered`] all names and metadata before it. Pages of shared mappings
    /// are reported by [`Vfs::take_moved`], since later stores must be noticed again.
    ///
    /// # Errors
    /// ESTALE.
    pub fn sync(&mut self, ino: Ino) -> Result<(), Errno> {
        self.sync_until(ino, SimTime::ZERO)
    }

    /// [`Vfs::sync`] by a call that returns at a time: a power failure before that can lose what it is about.
    ///
    /// # Errors
    /// ESTALE.
    pub fn sync_until(&mut self, ino: Ino, until: SimTime) -> Result<(), Errno> {
        self.inode(ino)?;
        self.clean_pages(ino);
        let Some(journal) = self.journal.as_mut() else { return Ok(()) };
        let journal = Arc::make_mut(journal);
        journal.begin_sync(until);
        match journal.model {
            DiskModel::Ordered => {
                journal.settle(&self.inodes, |pending| pending.ino == ino || !pending.is_loose());
            }
            DiskModel::Strict => {
                let dirs = linked_directories(&journal.pending, ino);
                let targets = named_in(&journal.pending, &dirs);
                journal.settle(&self.inodes, |pending| match &pending.op {
                    Op::Names(edits) => edits.iter().any(|edit| dirs.contains(&edit.dir)),
                    Op::Create(_) => dirs.contains(&pending.ino) || targets.contains(&pending.ino),
                    _ => pending.ino == ino,
                });
            }
        }
        Ok(())
    }

    /// sync(2), syncfs(2): makes everything durable.
    pub fn sync_all(&mut self) {
        self.sync_all_until(SimTime::ZERO);
    }

    /// [`Vfs::sync_all`] by a call that returns at a time, as [`Vfs::sync_until`].
    pub fn sync_all_until(&mut self, until: SimTime) {
        let stored: Vec<Ino> = self.stored.keys().copied().collect();
        for ino in stored {
            self.clean_pages(ino);
        }
        let Some(journal) = self.journal.as_mut() else { return };
        let journal = Arc::make_mut(journal);
        journal.begin_sync(until);
        if journal.lost.is_empty() {
            (journal.durable, journal.pending) = (self.inodes.clone(), PendingList::default());
        } else {
            // The running state is not what the disk has: only what is on the list gets there.
            journal.settle(&self.inodes, |_| true);
        }
    }

    /// An fsync(2) that fails: as Linux does, the file's written pages count as clean from now on although they never
    /// reached the disk. Reading still gives them, a later fsync(2) succeeds without them.
    pub fn sync_failed(&mut self, ino: Ino) {
        self.clean_pages(ino);
        let Some(journal) = self.journal.as_mut() else { return };
        let journal = Arc::make_mut(journal);
        let drop = |pending: &Pending| pending.ino == ino && pending.op.is_data();
        if journal.pending.iter().any(drop) {
            journal.lost.insert(ino);
            let all = std::mem::take(&mut journal.pending);
            journal.pending = all.iter().filter(|pending| !drop(pending)).cloned().collect();
        }
    }

    /// The blocks of what was written to a file are allocated now, which is left to the flusher otherwise: "If auto_da_alloc is
    /// enabled, ext4 will detect the replace-via-rename and replace-via-truncate patterns and force that any delayed allocation blocks
    /// are allocated such that at the next journal commit, in the default data=ordered mode, the data blocks of the new file are
    /// forced to disk before the rename() operation is committed" (ext4(5)).
    pub(crate) fn allocate(&mut self, ino: Ino) {
        let Some(journal) = self.journal.as_mut().filter(|journal| journal.model == DiskModel::Ordered)
        else {
            return;
        };
        let journal = Arc::make_mut(journal);
        journal.emptied.remove(&ino);
        let Some((time, at)) = journal.pending.last().map(|last| (last.time, last.at)) else { return };
        for index in journal.pending.mapped_pages(ino) {
            let bytes = mapped_bytes(&self.inodes, ino, index).unwrap_or_default();
            let op = Op::Data { offset: index * PAGE, bytes: bytes.into() };
            journal.push(Pending { ino, time, at, allocated: true, op }, &self.inodes);
        }
        journal.pending.allocate(ino);
    }

    /// A file was made empty: what is written to it until it is closed replaces what it had (EXT4_STATE_DA_ALLOC_CLOSE of Linux).
    pub(crate) fn note_emptied(&mut self, ino: Ino) {
        if self.tracks(ino)
            && let Some(journal) = self.journal.as_mut()
        {
            Arc::make_mut(journal).emptied.insert(ino);
        }
    }

    /// An open description of a file is gone (ext4_release_file of Linux).
    pub(crate) fn note_closed(&mut self, ino: Ino) {
        if self.journal.as_ref().is_some_and(|journal| journal.emptied.contains(&ino)) {
            self.allocate(ino);
        }
    }

    /// Number of changes that a power failure could lose.
    pub fn unsynced(&self) -> usize {
        self.journal.as_ref().map_or(0, |journal| journal.pending.len())
    }

    /// Whether changes of `ino` have to be noted.
    pub(crate) fn tracks(&self, ino: Ino) -> bool {
        self.journal.is_some() && self.fs_of(ino).is_ok_and(|fs| fs.kind != FsKind::Tmpfs)
    }

    /// Notes a change that was made to a file system on a disk.
    pub(crate) fn note(&mut self, ino: Ino, now: SimTime, op: impl FnOnce(&Vfs) -> Option<Op>) {
        if !self.tracks(ino) {
            return;
        }
        let (time, op) = (self.stamp(now), op(self));
        if let (Some(op), Some(journal)) = (op, self.journal.as_mut()) {
            let pending = Pending { ino, time, at: now, allocated: false, op };
            Arc::make_mut(journal).push(pending, &self.inodes);
        }
    }

    /// Notes that attributes of `ino` were changed.
    pub(crate) fn note_attributes(&mut self, ino: Ino, now: SimTime) {
        self.note(ino, now, |vfs| Some(Op::Attributes(Box::new(vfs.inode(ino).ok()?.meta.clone()))));
    }

    /// Notes names that changed in one step: directory, name, what it means now.
    pub(crate) fn note_names(&mut self, now: SimTime, edits: &[(Ino, &Name, Option<Ino>)]) {
        let Some((first, ..)) = edits.first() else { return };
        self.note(*first, now, |vfs| {
            let meaning = |ino: Ino| (ino, vfs.inode(ino).is_ok_and(Inode::is_dir));
            let edit = |(dir, name, to): &(Ino, &Name, Option<Ino>)| Edit {
                dir: *dir,
                name: Name::clone(name),
                to: to.map(meaning),
            };
            Some(Op::Names(edits.iter().map(edit).collect()))
        });
    }

    /// A name of the base layer was taken over: the disk had it all the time.
    pub(crate) fn note_taken_over(&mut self, dir: Ino, name: &Name, ino: Ino, is_dir: bool) {
        if !self.tracks(dir) {
            return;
        }
        let (Some(journal), Some(inode)) = (self.journal.as_mut(), self.inodes.get(ino)) else { return };
        let journal = Arc::make_mut(journal);
        // Another name of an inode that is known may come when the inode has changed already.
        if journal.durable.get(ino).is_none() {
            journal.durable.put(ino, inode.clone());
        }
        let order = journal.order;
        if let Some(content) = journal.durable.get_mut(dir).and_then(Inode::dir_mut)
            && content.slot(name).is_none()
        {
            content.insert(name.clone(), ino, is_dir, order);
        }
    }

    /// The content of a base file was loaded; the disk has the same unless it was changed.
    pub(crate) fn note_loaded(&mut self, ino: Ino) {
        if !self.tracks(ino) {
            return;
        }
        let (Some(journal), Some(inode)) = (self.journal.as_mut(), self.inodes.get(ino)) else { return };
        let unread = |inode: &Inode| matches!(inode.node, Node::Regular { data: Data::Unread(_), .. });
        if journal.durable.get(ino).is_some_and(|inode| unread(inode)) {
            let loaded = inode.node.clone();
            if let Some(inode) = Arc::make_mut(journal).durable.get_mut(ino) {
                inode.node = loaded;
            }
        }
    }
}

/// `dir` and the directories whose waiting changes of names cannot be told apart from its own, since renames connect
/// them.
fn linked_directories(pending: &PendingList, dir: Ino) -> BTreeSet<Ino> {
    let mut dirs = BTreeSet::from([dir]);
    loop {
        let before = dirs.len();
        for pending in pending.iter() {
            if let Op::Names(edits) = &pending.op
                && edits.iter().any(|edit| dirs.contains(&edit.dir))
            {
                dirs.extend(edits.iter().map(|edit| edit.dir));
            }
        }
        if dirs.len() == before {
            return dirs;
        }
    }
}

/// The inodes that waiting changes in `dirs` give names to.
fn named_in(pending: &PendingList, dirs: &BTreeSet<Ino>) -> BTreeSet<Ino> {
    let mut targets = BTreeSet::new();
    for pending in pending.iter() {
        if let Op::Names(edits) = &pending.op {
            let here = edits.iter().filter(|edit| dirs.contains(&edit.dir));
            targets.extend(here.filter_map(|edit| edit.to.map(|(ino, _)| ino)));
        }
    }
    targets
}

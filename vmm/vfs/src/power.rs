//! Power failure: what the disks still have, chosen among what they may have.
//!
//! Key types: [`PowerReport`], [`Aspect`]. The choices come from the caller (its decision stream for disks), so a replay loses the
//! same bytes. Each is named by the place of the change in the list and by what is chosen; 0 keeps the change, so a power failure of
//! which all choices are 0 loses what was in memory and nothing that was written. Afterwards the disks are checked as a journalling
//! file system does at mount: names of nothing and inodes without a name go away.
//!
//! What no disk shows is not chosen: a sector has what it had at some time, so it does not have a later write without an earlier one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bloodhound_abi::{Errno, SimTime};

use crate::arena::Arena;
use crate::base::BaseFs;
use crate::dir::Dir;
use crate::inode::{Data, Inode, Node};
use crate::journal::{DiskModel, Journal, apply_data, mapped_bytes};
use crate::mount::FsKind;
use crate::namespace::MountNs;
use crate::pages::PAGE;
use crate::pending::{Edit, Op, Pending, PendingList};
use crate::sectors::{SECTOR, Sectors};
use crate::types::{FsId, Ino, Name};
use crate::vfs::Vfs;

/// What a power failure did to the changes that were not synced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PowerReport {
    /// Changes that are on the disk all the same.
    pub kept: u64,
    /// Writes of which some sectors are on the disk.
    pub torn: u64,
    /// Changes that are gone.
    pub lost: u64,
}

/// What is chosen about a change that was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aspect {
    /// How many of the last changes of names and metadata are lost.
    Cut,
    /// Whether a change other than of content is lost.
    Keep,
    /// Whether a write is there, torn or lost.
    Fate,
    /// How many sectors, or blocks, of a torn write are lost.
    Point,
    /// Which end of a torn write is lost.
    Side,
}

/// What happens to a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Lost,
    /// Only a part of its sectors is written.
    Torn,
    Kept,
}

/// One power failure at work.
struct Failure<'a> {
    journal: Journal,
    live: &'a Arena,
    choose: &'a mut dyn FnMut(u64, Aspect, u64) -> u64,
    report: PowerReport,
    /// The place of the change in the list.
    nth: u64,
    /// Sectors that did not get a write, and so none that was later.
    stale: BTreeMap<Ino, Sectors>,
}

impl Vfs {
    /// The node loses power and starts again: open files, mappings and tmpfs are gone, the disks have what was synced
    /// and of the rest what the disk model allows. `choose(nth, aspect, n)` must give a number below `n` for a change, by its place.
    ///
    /// `now` is virtual time, as that until which a sync lasts; `own` is the same by the machine's clock, by which changes have their age.
    ///
    /// Without a disk model (see [`Config::disk`](crate::Config)) nothing written is lost, as with [`Vfs::restart`].
    ///
    /// # Errors
    /// What the base layer reports.
    pub fn power_fail(
        &mut self,
        base: &mut dyn BaseFs,
        now: SimTime,
        own: SimTime,
        choose: &mut dyn FnMut(u64, Aspect, u64) -> u64,
    ) -> Result<PowerReport, Errno> {
        // Nobody closes anything: what the end of a container would write back is lost.
        (self.watched, self.happened, self.copied_up) = (Arc::default(), Vec::new(), Vec::new());
        self.restart(base)?;
        let entered = self.entered();
        for ns in (0..self.spaces.len()).map(|ns| MountNs(ns as u32)).filter(|ns| *ns != entered) {
            self.enter_namespace(ns);
            let restarted = self.restart_namespace(base);
            self.enter_namespace(entered);
            restarted?;
        }
        self.empty_shared_memory();
        let Some(journal) = self.journal.take() else { return Ok(PowerReport::default()) };
        let mut failure = Failure {
            journal: Arc::unwrap_or_clone(journal).at(now),
            live: &self.inodes,
            choose,
            report: PowerReport::default(),
            nth: 0,
            stale: BTreeMap::new(),
        };
        let certain = failure.journal.grow_old(&self.inodes, own);
        let pending = std::mem::take(&mut failure.journal.pending);
        match failure.journal.model {
            DiskModel::Ordered => failure.ordered(&pending, certain),
            DiskModel::Strict => failure.strict(&pending),
        }
        let (report, Journal { model, durable, order, .. }) = (failure.report, failure.journal);
        self.install(durable);
        self.forget_bad_of_nothing();
        self.journal = Some(Arc::new(Journal::new(model, self.inodes.clone(), order)));
        Ok(report)
    }

    /// Empties file systems in memory that several namespaces mount: no container was started anew that could have done it.
    fn empty_shared_memory(&mut self) {
        let in_memory = |fs: &FsId| self.filesystems.get(fs).is_some_and(|fs| fs.kind == FsKind::Tmpfs);
        let shared: Vec<FsId> = self.shared.values().copied().filter(in_memory).collect();
        for fs in shared {
            let Some(root) = self.filesystems.get(&fs).map(|fs| fs.root) else { continue };
            // What lies below a mount point stays, as that is made again when the machine starts.
            let mut stay = BTreeSet::from([root]);
            for point in self.spaces.iter().flat_map(|space| space.by_point.keys()) {
                let mut at = *point;
                while let Some((dir, _)) =
                    self.inodes.get(at).filter(|i| i.fs == fs).and_then(|i| i.seen.clone())
                    && stay.insert(at)
                {
                    at = dir;
                }
            }
            let all: Vec<Ino> = self.inodes.iter().filter(|(_, i)| i.fs == fs).map(|(ino, _)| ino).collect();
            for ino in all {
                match stay.contains(&ino) {
                    false => drop(self.inodes.remove(ino)),
                    true => self.keep_names(ino, &stay),
                }
            }
        }
    }

    /// Of the names in a directory those of `stay` are left.
    fn keep_names(&mut self, dir: Ino, stay: &BTreeSet<Ino>) {
        let order = self.config.order;
        let Some(old) = self.inodes.get_mut(dir).and_then(Inode::dir_mut) else { return };
        let names: Vec<(Name, Ino)> = old.after(0).map(|(_, name, to)| (name.clone(), to)).collect();
        *old = Dir::new(old.parent, None);
        for (name, to) in names.into_iter().filter(|(_, to)| stay.contains(to)) {
            old.insert(name, to, true, order);
        }
    }

    /// Makes the durable inodes the running ones; tmpfs keeps its own.
    pub(crate) fn install(&mut self, durable: Arena) {
        let on_disk =
            |inode: &Inode| self.filesystems.get(&inode.fs).is_some_and(|fs| fs.kind != FsKind::Tmpfs);
        let mut inodes = Arena::default();
        for (ino, inode) in durable.iter().filter(|(_, inode)| on_disk(inode)) {
            inodes.put(ino, inode.clone());
        }
        let roots: Vec<Ino> =
            self.filesystems.values().filter(|fs| fs.kind != FsKind::Tmpfs).map(|fs| fs.root).collect();
        let mut checked = check(inodes, &roots);
        for (ino, inode) in self.inodes.iter().filter(|(_, inode)| !on_disk(inode)) {
            checked.put(ino, inode.clone());
        }
        self.inodes = checked;
        let mut used = BTreeMap::new();
        for (_, inode) in self.inodes.iter() {
            *used.entry(inode.fs).or_insert(0) += inode.own_pages();
        }
        for (id, fs) in Arc::make_mut(&mut self.filesystems) {
            fs.used_pages = used.get(id).copied().unwrap_or(0);
        }
        let in_memory = self.filesystems.values().filter(|fs| fs.kind == FsKind::Tmpfs);
        self.memory_pages = in_memory.map(|fs| fs.used_pages).sum();
        self.recount_kept();
    }
}

impl Failure<'_> {
    /// Everything but overwritten data is there up to one point and lost behind it; up to `certain` it is there anyway.
    fn ordered(&mut self, pending: &PendingList, certain: usize) {
        let open = pending.len().saturating_sub(certain);
        let cut = pending.len() - (self.choose)(0, Aspect::Cut, open as u64 + 1) as usize;
        // Files whose later writes went to blocks that no durable metadata knows.
        let mut cut_off: BTreeSet<Ino> = BTreeSet::new();
        // Files of which a write at the end was lost: they did not grow further.
        let mut short: BTreeSet<Ino> = BTreeSet::new();
        for (index, pending) in pending.iter().enumerate() {
            self.nth = index as u64;
            let committed = index < cut;
            let ino = pending.ino;
            let Some((offset, bytes)) = self.written(pending) else {
                if !committed && matches!(pending.op, Op::Size { .. } | Op::Zero { .. }) {
                    cut_off.insert(ino);
                }
                self.decide(pending, committed);
                continue;
            };
            let inode = self.journal.durable.get(ino);
            let grows = inode.is_some_and(|inode| offset + bytes.len() as u64 > inode.size());
            // A block that is not allocated is none until the transaction that allocates it is there.
            let allocates = grows || inode.is_some_and(|inode| has_holes(inode, offset, bytes.len() as u64));
            let hopeless = inode.is_none()
                || cut_off.contains(&ino)
                || (allocates && !committed)
                || (grows && short.contains(&ino));
            let fate = match (hopeless, committed && pending.allocated) {
                (true, _) => Fate::Lost,
                (false, true) => Fate::Kept,
                (false, false) => self.fate(),
            };
            if grows && fate != Fate::Kept {
                short.insert(ino);
            }
            self.write(pending, offset, &bytes, fate, grows);
        }
    }

    /// Each change is there or not; only changes that build on a lost one are lost with it.
    fn strict(&mut self, pending: &PendingList) {
        let mut names: BTreeSet<(Ino, Name)> = BTreeSet::new();
        let mut inos: BTreeSet<Ino> = BTreeSet::new();
        for (index, pending) in pending.iter().enumerate() {
            self.nth = index as u64;
            if let Some((offset, bytes)) = self.written(pending) {
                let fate = self.fate();
                self.write(pending, offset, &bytes, fate, false);
                continue;
            }
            let keep = match &pending.op {
                Op::Create(_) => true, // without a name it is nothing
                Op::Names(edits) => {
                    let key = |edit: &Edit| (edit.dir, edit.name.clone());
                    let builds = |edit: &Edit| {
                        names.contains(&key(edit)) || edit.to.is_some_and(|(ino, _)| inos.contains(&ino))
                    };
                    let keep = !edits.iter().any(builds) && self.keep();
                    if !keep {
                        names.extend(edits.iter().map(key));
                        inos.extend(edits.iter().filter_map(|edit| edit.to.map(|(ino, _)| ino)));
                    }
                    keep
                }
                _ => self.keep(),
            };
            self.decide(pending, keep);
        }
    }

    /// Offset and bytes of an operation that writes data.
    fn written(&self, pending: &Pending) -> Option<(u64, Arc<[u8]>)> {
        match &pending.op {
            Op::Data { offset, bytes } => Some((*offset, bytes.clone())),
            Op::Mapped { index } => {
                let bytes = mapped_bytes(self.live, pending.ino, *index).unwrap_or_default();
                Some((index * PAGE, bytes.into()))
            }
            _ => None,
        }
    }

    fn keep(&mut self) -> bool {
        (self.choose)(self.nth, Aspect::Keep, 2) == 0
    }

    /// Half of the writes are there, a quarter in part.
    fn fate(&mut self) -> Fate {
        match (self.choose)(self.nth, Aspect::Fate, 4) {
            0 | 1 => Fate::Kept,
            2 => Fate::Torn,
            _ => Fate::Lost,
        }
    }

    fn decide(&mut self, pending: &Pending, keep: bool) {
        if keep {
            self.report.kept += 1;
            self.journal.apply(pending, self.live);
            if let (Op::Size { size }, Some(stale)) = (&pending.op, self.stale.get_mut(&pending.ino)) {
                stale.truncate(*size);
            }
        } else {
            self.report.lost += 1;
        }
    }

    /// Writes what `fate` leaves. A torn write keeps the sectors before or behind a point. At the end of a file that grows (`in_order`)
    /// it keeps those before, and whole blocks: the size on the disk is set when a block is allocated (mpage_map_and_submit_extent).
    fn write(&mut self, pending: &Pending, offset: u64, bytes: &[u8], fate: Fate, in_order: bool) {
        let end = offset + bytes.len() as u64;
        let part = match fate {
            Fate::Lost => offset..offset,
            Fate::Kept => offset..end,
            Fate::Torn => {
                let unit = if in_order { PAGE } else { SECTOR };
                let (first, last) = (offset / unit, end.div_ceil(unit));
                let lost = (self.choose)(self.nth, Aspect::Point, last - first + 1);
                match !in_order && (self.choose)(self.nth, Aspect::Side, 2) == 1 {
                    true => ((first + lost) * unit).clamp(offset, end)..end,
                    false => offset..((last - lost) * unit).clamp(offset, end),
                }
            }
        };
        let stale = self.stale.entry(pending.ino).or_default();
        let (mut there, time) = (0, pending.time);
        let fresh = stale.outside(part.clone());
        if let Some(inode) = self.journal.durable.get_mut(pending.ino) {
            for piece in fresh {
                there += piece.end - piece.start;
                let (from, to) = ((piece.start - offset) as usize, (piece.end - offset) as usize);
                apply_data(inode, piece.start, &bytes[from..to], time);
            }
        }
        stale.add(offset..part.start);
        stale.add(part.end..end);
        let counter = match there {
            0 => &mut self.report.lost,
            there if there == end - offset => &mut self.report.kept,
            _ => &mut self.report.torn,
        };
        // Of a file that was removed nothing is missed.
        if there > 0 || self.live.get(pending.ino).is_some() {
            *counter += 1;
        }
    }
}

/// Whether a range of a file has pages without a block.
fn has_holes(inode: &Inode, offset: u64, len: u64) -> bool {
    matches!(&inode.node, Node::Regular { data: Data::Own(pages), .. } if pages.missing(offset, len) > 0)
}

/// Removes names of nothing, second names of directories and inodes without a name; counts links anew.
fn check(mut inodes: Arena, roots: &[Ino]) -> Arena {
    let mut links: BTreeMap<Ino, u32> = roots.iter().map(|root| (*root, 1)).collect();
    let mut todo: VecDeque<Ino> = roots.iter().copied().collect();
    while let Some(ino) = todo.pop_front() {
        let Some(dir) = inodes.get(ino).and_then(|inode| inode.dir()) else { continue };
        let entries: Vec<(Name, Ino)> = dir.after(0).map(|(_, name, to)| (name.clone(), to)).collect();
        let mut subdirs = 0;
        for (name, to) in entries {
            let is_dir = inodes.get(to).map(|inode| inode.is_dir());
            let known = links.contains_key(&to);
            if is_dir.is_none() || (is_dir == Some(true) && known) {
                if let Some(dir) = inodes.get_mut(ino).and_then(Inode::dir_mut) {
                    dir.remove(&name, false);
                }
                continue;
            }
            *links.entry(to).or_insert(0) += 1;
            let Some(inode) = inodes.get(to) else { continue };
            if !known || inode.seen.is_none() {
                let moved = inode.seen.as_ref().is_none_or(|(dir, seen)| *dir != ino || *seen != name);
                if moved && let Some(inode) = inodes.get_mut(to) {
                    inode.seen = Some((ino, name));
                }
            }
            if is_dir == Some(true) {
                subdirs += 1;
                if inodes.get(to).and_then(|inode| inode.dir()).is_some_and(|dir| dir.parent != ino)
                    && let Some(dir) = inodes.get_mut(to).and_then(Inode::dir_mut)
                {
                    dir.parent = ino;
                }
                todo.push_back(to);
            }
        }
        if inodes.get(ino).and_then(|inode| inode.dir()).is_some_and(|dir| dir.subdirs() != subdirs)
            && let Some(dir) = inodes.get_mut(ino).and_then(Inode::dir_mut)
        {
            dir.set_subdirs(subdirs);
        }
    }
    let all: Vec<(Ino, u32)> = inodes.iter().map(|(ino, inode)| (ino, inode.meta.nlink)).collect();
    for (ino, nlink) in all {
        match links.get(&ino) {
            None => drop(inodes.remove(ino)),
            Some(counted) if *counted != nlink => {
                if let Some(inode) = inodes.get_mut(ino) {
                    inode.meta.nlink = *counted;
                }
            }
            Some(_) => {}
        }
    }
    inodes
}

//! Power failure: what the disks still have, chosen among what they may have.
//!
//! Key type: [`PowerReport`]. The choices come from the caller (its decision stream for disks), so a replay loses the
//! same bytes. Afterwards the disks are checked as a journalling file system does at mount: names of nothing and
//! inodes without a name go away.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bloodhound_abi::Errno;

use crate::arena::Arena;
use crate::base::BaseFs;
use crate::inode::Inode;
use crate::journal::{DiskModel, Journal, apply_data, mapped_bytes};
use crate::mount::FsKind;
use crate::namespace::MountNs;
use crate::pages::PAGE;
use crate::pending::{Edit, Op, Pending, PendingList};
use crate::types::{Ino, Name};
use crate::vfs::Vfs;

/// A disk writes whole sectors or not at all.
const SECTOR: u64 = 512;

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
    choose: &'a mut dyn FnMut(u64) -> u64,
    report: PowerReport,
}

impl Vfs {
    /// The node loses power and starts again: open files, mappings and tmpfs are gone, the disks have what was synced
    /// and of the rest what the disk model allows. `choose(n)` must give a number below `n`.
    ///
    /// Without a disk model (see [`Config::disk`](crate::Config)) nothing written is lost, as with [`Vfs::restart`].
    ///
    /// # Errors
    /// What the base layer reports.
    pub fn power_fail(
        &mut self,
        base: &mut dyn BaseFs,
        choose: &mut dyn FnMut(u64) -> u64,
    ) -> Result<PowerReport, Errno> {
        self.restart(base)?;
        let entered = self.entered();
        for ns in (0..self.spaces.len()).map(|ns| MountNs(ns as u32)).filter(|ns| *ns != entered) {
            self.enter_namespace(ns);
            let restarted = self.restart_namespace(base);
            self.enter_namespace(entered);
            restarted?;
        }
        let Some(journal) = self.journal.take() else { return Ok(PowerReport::default()) };
        let mut failure = Failure {
            journal: Arc::unwrap_or_clone(journal),
            live: &self.inodes,
            choose,
            report: PowerReport::default(),
        };
        let pending = std::mem::take(&mut failure.journal.pending);
        match failure.journal.model {
            DiskModel::Ordered => failure.ordered(&pending),
            DiskModel::Strict => failure.strict(&pending),
        }
        let (report, Journal { model, durable, order, .. }) = (failure.report, failure.journal);
        self.install(durable);
        self.journal = Some(Arc::new(Journal::new(model, self.inodes.clone(), order)));
        Ok(report)
    }

    /// Makes the durable inodes the running ones; tmpfs keeps its own.
    fn install(&mut self, durable: Arena) {
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
    /// Everything but overwritten data is there up to one point and lost behind it.
    fn ordered(&mut self, pending: &PendingList) {
        let cut = (self.choose)(pending.len() as u64 + 1) as usize;
        // Files whose later writes went to blocks that no durable metadata knows.
        let mut cut_off: BTreeSet<Ino> = BTreeSet::new();
        // Files of which a write at the end was lost: they did not grow further.
        let mut short: BTreeSet<Ino> = BTreeSet::new();
        for (index, pending) in pending.iter().enumerate() {
            let committed = index < cut;
            let ino = pending.ino;
            let Some((offset, bytes)) = self.written(pending) else {
                if !committed && matches!(pending.op, Op::Size { .. } | Op::Zero { .. }) {
                    cut_off.insert(ino);
                }
                self.decide(pending, committed);
                continue;
            };
            let size = self.journal.durable.get(ino).map(|inode| inode.size());
            let grows = size.is_some_and(|size| offset + bytes.len() as u64 > size);
            let hopeless =
                size.is_none() || cut_off.contains(&ino) || (grows && (!committed || short.contains(&ino)));
            let fate = if hopeless { Fate::Lost } else { self.fate() };
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
        for pending in pending.iter() {
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
                    let keep = !edits.iter().any(builds) && (self.choose)(2) == 1;
                    if !keep {
                        names.extend(edits.iter().map(key));
                        inos.extend(edits.iter().filter_map(|edit| edit.to.map(|(ino, _)| ino)));
                    }
                    keep
                }
                _ => (self.choose)(2) == 1,
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

    /// Half of the writes are there, a quarter in part.
    fn fate(&mut self) -> Fate {
        match (self.choose)(4) {
            0 => Fate::Lost,
            1 => Fate::Torn,
            _ => Fate::Kept,
        }
    }

    fn decide(&mut self, pending: &Pending, keep: bool) {
        if keep {
            self.report.kept += 1;
            self.journal.apply(pending, self.live);
        } else {
            self.report.lost += 1;
        }
    }

    /// Writes what `fate` leaves. A torn write keeps the sectors before or behind a point; at the end of a file that
    /// grows (`in_order`) those before.
    fn write(&mut self, pending: &Pending, offset: u64, bytes: &[u8], fate: Fate, in_order: bool) {
        if fate == Fate::Lost && self.live.get(pending.ino).is_none() {
            return; // the file was removed anyway
        }
        let end = offset + bytes.len() as u64;
        let sectors = end.div_ceil(SECTOR) - offset / SECTOR;
        let part = match fate {
            Fate::Lost => 0..0,
            Fate::Kept => 0..bytes.len(),
            Fate::Torn => {
                let point = (offset / SECTOR + (self.choose)(sectors + 1)) * SECTOR;
                let point = (point.clamp(offset, end) - offset) as usize;
                let tail = !in_order && (self.choose)(2) == 1;
                if tail { point..bytes.len() } else { 0..point }
            }
        };
        let counter = match part.len() {
            0 => &mut self.report.lost,
            len if len == bytes.len() => &mut self.report.kept,
            _ => &mut self.report.torn,
        };
        *counter += 1;
        if let Some(inode) = self.journal.durable.get_mut(pending.ino) {
            apply_data(inode, offset + part.start as u64, &bytes[part], pending.time);
        }
    }
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

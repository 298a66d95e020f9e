//! What stands behind mappings: references of VMAs to files and shared-memory objects, and the copies and ends of address spaces.
//!
//! Neighbours: the calls of `sys::memory`, `crate::mm` (which only knows what is mapped), `crate::memory` (what it costs).

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::*;
use crate::mm::{Backing, Vma};
use crate::node::Node;

impl Node {
    /// One more VMA refers to its backing.
    pub(crate) fn backing_ref(&mut self, mm: MmId, vma: &Vma) {
        if let Some(file) = vma.marks.file {
            self.file_ref(file);
        }
        match vma.backing {
            Backing::File { ino, .. } => {
                self.vfs.map_start(ino);
                *self.mapped.get_or_default(ino).get_or_default(mm) += 1;
            }
            Backing::Shm { id, .. } => self.shm[id].refs += 1,
            _ => {}
        }
    }

    fn backing_unref(&mut self, mm: MmId, vma: &Vma) {
        self.unmapped.extend(vma.marks.file);
        match vma.backing {
            Backing::File { ino, .. } => {
                if let Some(users) = self.mapped.get_mut(&ino) {
                    if let Some(n) = users.get_mut(&mm) {
                        *n = n.saturating_sub(1);
                        if *n == 0 {
                            users.remove(&mm);
                        }
                    }
                    if users.is_empty() {
                        self.mapped.remove(&ino);
                    }
                }
                self.vfs.map_end(ino);
            }
            Backing::Shm { id, .. } => self.shm_unref(id),
            _ => {}
        }
    }

    /// Tells the segments whose mappings a process has changed who it was and when: Linux's shm_open and shm_close do so for each
    /// mapping that comes or goes, also by fork(2), munmap(2), exit(2) and where a mapping is split.
    fn segments_changed(&mut self, by: Pid, before: &[Vma], after: &[Vma]) {
        // Where there is one on both sides, nothing came or went.
        let places = |vmas: &[Vma]| -> BTreeSet<(u64, u64, ShmId, u64)> {
            let of = |vma: &Vma| match vma.backing {
                Backing::Shm { id, offset } => Some((vma.start, vma.end, id, offset)),
                _ => None,
            };
            vmas.iter().filter_map(of).collect()
        };
        let (old, new) = (places(before), places(after));
        let mut counts: BTreeMap<ShmId, (u32, u32)> = BTreeMap::new();
        for place in old.difference(&new) {
            counts.entry(place.2).or_default().0 += 1;
        }
        for place in new.difference(&old) {
            counts.entry(place.2).or_default().1 += 1;
        }
        for (shm, (before, after)) in counts {
            self.segment_changed(by, shm, (after <= before, after >= before));
        }
    }

    /// Tells a segment that a mapping of it went, came, or both.
    pub(crate) fn segment_changed(&mut self, by: Pid, shm: ShmId, (went, came): (bool, bool)) {
        let now = self.realtime() / 1_000_000_000;
        let Some((ns, id)) = self.shm[shm].segment else { return };
        let Some(entry) = self.sysv.of(ns).segments.get_mut(id) else { return };
        entry.item.last = Some(by);
        if came {
            entry.item.atime = now;
        }
        if went {
            entry.item.dtime = now;
        }
    }

    fn shm_unref(&mut self, id: ShmId) {
        let shm = &mut self.shm[id];
        shm.refs = shm.refs.saturating_sub(1);
        if shm.refs > 0 {
            return;
        }
        match shm.segment {
            None => self.shm_remove(id),
            Some((ns, segment)) => self.segment_unused(ns, segment),
        }
    }

    /// Changes the VMAs of `ranges` (first address, and one past the last) with exact reference counts: the number of references
    /// is that of the VMAs, which splitting and merging change, so those in the ranges and next to them are recounted around the
    /// change. `by` is the process that does it.
    pub(crate) fn with_recount<T>(
        &mut self,
        by: Pid,
        mm: MmId,
        ranges: &[(u64, u64)],
        change: impl FnOnce(&mut crate::mm::Mm) -> T,
    ) -> T {
        let before = self.mms[mm].touching(ranges, counted);
        let result = change(&mut self.mms[mm]);
        let after = self.mms[mm].touching(ranges, counted);
        if before != after {
            self.segments_changed(by, &before, &after);
            // New references first, so that nothing is freed in between.
            for vma in &after {
                self.backing_ref(mm, vma);
            }
            for vma in &before {
                self.backing_unref(mm, vma);
            }
        }
        self.settle(mm);
        result
    }

    /// An address space loses a user, the process `by`; the last one frees it.
    pub(crate) fn mm_release(&mut self, by: Pid, id: MmId) {
        let mm = &mut self.mms[id];
        mm.users -= 1;
        if mm.users > 0 {
            return;
        }
        let (space, vmas): (u64, Vec<Vma>) = (mm.space, mm.vmas().cloned().collect());
        self.segments_changed(by, &vmas, &[]);
        for vma in &vmas {
            self.backing_unref(id, vma);
        }
        if let Some(exe) = self.mms[id].exe {
            self.vfs.exec_end(exe);
        }
        self.mms[id].pages.remove_range(0, u64::MAX);
        self.settle(id);
        self.dead_spaces.push(space);
        self.mms.remove(id);
    }

    /// A shared-memory object is gone.
    pub(crate) fn shm_remove(&mut self, id: ShmId) {
        if let Some(shm) = self.shm.remove(id) {
            self.memory.shared_shrinks(shm.container, shm.pages.len() as u64);
        }
    }

    /// The copy of an address space that fork of the process `by` makes.
    pub(crate) fn mm_fork(&mut self, by: Pid, id: MmId) -> MmId {
        let space = self.new_space();
        self.settle(id);
        let child = self.mms[id].fork(space, &mut self.memory.common);
        let vmas: Vec<Vma> = child.vmas().cloned().collect();
        if let Some(exe) = child.exe {
            self.vfs.exec_share(exe);
        }
        self.segments_changed(by, &[], &vmas);
        let new = self.mms.insert(child);
        // All that was the parent's own is common now and charged as such.
        self.mms[id].charged = 0;
        self.settle(new);
        for vma in &vmas {
            self.backing_ref(new, vma);
        }
        new
    }
}

fn counted(vma: &Vma) -> bool {
    matches!(vma.backing, Backing::File { .. } | Backing::Shm { .. })
}

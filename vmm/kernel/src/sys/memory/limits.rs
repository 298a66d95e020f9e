//! How much a process may map: RLIMIT_AS and RLIMIT_DATA (getrlimit(2)), vm.max_map_count, and the kernel's own doubt that there is
//! so much memory at all (vm.overcommit_memory 0).
//!
//! What it then touches is limited elsewhere (`crate::memory`). Neighbours: the calls of `sys::memory`.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::ctx::Ctx;
use crate::mm::{Backing, Vma};
use crate::node::Node;

/// vm.max_map_count: "the maximum number of memory map areas a process may have" (Documentation/admin-guide/sysctl/vm.rst).
const MAX_MAP_COUNT: usize = 65_530;

impl Ctx<'_> {
    /// Whether a mapping may be added. ENOMEM for more than the limits allow, or than there can be.
    pub(super) fn may_map(&mut self, vma: &Vma) -> Result<(), Errno> {
        let id = self.process().mm;
        let limits = &self.process().limits;
        let (space, data) = (limits[c::RLIMIT_AS as usize].cur, limits[c::RLIMIT_DATA as usize].cur);
        let mm = &self.node.mms[id];
        let len = vma.end - vma.start;
        let is_data = vma.is_data();
        let (total, mapped_data) = (mm.total.saturating_add(len), mm.data.saturating_add(len));
        if total > space || is_data && mapped_data > data {
            // What a fixed mapping replaces does not count.
            let replaced = mm.slices(vma.start, vma.end);
            let gone: u64 = replaced.iter().map(|v| v.end - v.start).sum();
            if total - gone > space || is_data && mapped_data - gone.min(mapped_data) > data {
                return Err(Errno::ENOMEM);
            }
        }
        if mm.count() > MAX_MAP_COUNT {
            return Err(Errno::ENOMEM);
        }
        self.node.may_commit(if is_data && !vma.marks.no_reserve { len } else { 0 })
    }

    /// Whether a change of `start..end` may split the mappings that it `changes`, which each end that lies within one does. ENOMEM
    /// (split_vma).
    pub(super) fn may_split(
        &self,
        start: u64,
        end: u64,
        changes: impl Fn(&Vma) -> bool,
    ) -> Result<(), Errno> {
        let mm = &self.node.mms[self.process().mm];
        let splits = |at: u64| mm.find(at).is_some_and(|v| v.start < at && changes(v));
        if mm.count() >= MAX_MAP_COUNT && (splits(start) || splits(end)) {
            Err(Errno::ENOMEM)
        } else {
            Ok(())
        }
    }

    /// Whether a mapping may move: "We'd prefer to avoid failure later on in do_munmap: which may split one vma into three before
    /// unmapping" (move_vma), beside so many other pieces. ENOMEM.
    pub(super) fn may_move_mapping(&self, pieces: usize) -> Result<(), Errno> {
        let mm = &self.node.mms[self.process().mm];
        if mm.count() + pieces >= MAX_MAP_COUNT - 3 { Err(Errno::ENOMEM) } else { Ok(()) }
    }

    /// Whether `start..end` may be unmapped. "ENOMEM [...] the process's maximum number of mappings would have been exceeded. This error can
    /// also occur for munmap(), when unmapping a region in the middle of an existing mapping, since this results in two smaller
    /// mappings on either side" (mmap(2)).
    pub(super) fn may_cut_out(&self, start: u64, end: u64) -> Result<(), Errno> {
        let mm = &self.node.mms[self.process().mm];
        let inside = mm.find(start).is_some_and(|v| v.start < start && end < v.end);
        if inside && mm.count() >= MAX_MAP_COUNT { Err(Errno::ENOMEM) } else { Ok(()) }
    }

    /// Whether pieces of mappings that make up `range` may get this protection. ENOMEM as for new mappings.
    pub(super) fn may_protect(&mut self, pieces: &[Vma], range: (u64, u64), prot: u64) -> Result<(), Errno> {
        let id = self.process().mm;
        let data = self.process().limits[c::RLIMIT_DATA as usize].cur;
        let mm = &self.node.mms[id];
        let becomes = |v: &&Vma| !v.is_data() && Vma { prot, ..(*v).clone() }.is_data();
        let size = |v: &Vma| v.end - v.start;
        let more: u64 = pieces.iter().filter(becomes).map(size).sum();
        if more > 0 && mm.data.saturating_add(more) > data {
            return Err(Errno::ENOMEM);
        }
        self.may_split(range.0, range.1, |v| v.prot != prot)?;
        let reserved = pieces.iter().filter(|v| !v.marks.no_reserve);
        self.node.may_commit(reserved.filter(becomes).map(size).sum())
    }
}

impl Node {
    /// "Obvious overcommits of address space are refused" (vm.overcommit_memory 0): one allocation of more than all memory and swap.
    fn may_commit(&self, bytes: u64) -> Result<(), Errno> {
        if bytes > self.config.memory { Err(Errno::ENOMEM) } else { Ok(()) }
    }

    /// A mapping of an unnamed object was not made after all.
    pub(super) fn forget_backing(&mut self, backing: &Backing) {
        if let Backing::Shm { id, .. } = backing
            && self.shm[*id].refs == 0
            && self.shm[*id].segment.is_none()
        {
            self.shm_remove(*id);
        }
    }
}

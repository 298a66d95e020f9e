//! Mappings that grow down to what is accessed below them: a program's stack, and those of MAP_GROWSDOWN (mmap(2)); and mappings of
//! shared-memory segments, which mremap(2) lengthens in place because they are joined with nothing.

use bloodhound_abi::consts as c;

use super::{Backing, Lock, MMAP_MIN, Mm, PAGE, Vma};
use crate::ids::*;
use crate::node::Node;

/// stack_guard_gap: what is left free between such a mapping and one below it.
const GUARD_GAP: u64 = 256 * PAGE;

impl Mm {
    /// Whether something is mapped in the range, or grows down and so needs the gap below it (vm_start_gap).
    pub(crate) fn is_near(&self, start: u64, end: u64) -> bool {
        let gap = self.vmas.range(end..end.saturating_add(GUARD_GAP)).next();
        self.overlaps(start, end) || gap.is_some_and(|(_, vma)| vma.marks.grows)
    }

    /// The mapping that would grow to hold `addr`, where nothing is mapped.
    fn grower(&self, addr: u64) -> Option<&Vma> {
        let next = self.vmas.range(addr..).next().map(|(_, vma)| vma)?;
        (next.marks.grows && self.find(addr).is_none()).then_some(next)
    }

    /// Whether it may (expand_downwards). `stack` and `space` are RLIMIT_STACK and RLIMIT_AS, `lock` is RLIMIT_MEMLOCK.
    fn may_grow(&self, vma: &Vma, page: u64, [stack, space, lock]: [u64; 3]) -> bool {
        let more = vma.start - page;
        let below = self.vmas.range(..page).next_back().map(|(_, below)| below);
        let accessible = |v: &Vma| v.prot & (c::PROT_READ | c::PROT_WRITE | c::PROT_EXEC) != 0;
        let too_near = |v: &Vma| !v.marks.grows && accessible(v) && page - v.end < GUARD_GAP;
        page >= MMAP_MIN
            && !below.is_some_and(too_near)
            && vma.end - page <= stack
            && self.total.saturating_add(more) <= space
            && (vma.marks.lock == Lock::No || self.locked + more <= lock)
    }

    /// Makes the mapping that ends at `from` longer, up to `to`, before which nothing else is mapped: "perform a simple expand for such
    /// vma" as is joined with nothing (mremap of Linux).
    pub fn lengthen(&mut self, from: u64, to: u64) {
        let ends_there = |vma: &&Vma| vma.end == from;
        let Some(start) = self.find(from - 1).filter(ends_there).map(|vma| vma.start) else { return };
        let Some(vma) = self.vmas.get_mut(&start) else { return };
        vma.end = to;
        let more = Vma { start: from, ..vma.clone() };
        self.total += to - from;
        self.data += Mm::data_of(&more);
        self.locked += Mm::locked_of(&more);
    }
}

impl Node {
    /// An access at `addr` makes the mapping above it grow, if it is one that grows and may. Whether it did.
    pub(crate) fn grow_down(&mut self, id: MmId, addr: u64) -> bool {
        let Some(vma) = self.mms[id].grower(addr).cloned() else { return false };
        let page = addr & !(PAGE - 1);
        let Some(process) = self.processes.values().find(|process| process.mm == id) else { return false };
        let limit = |of: u64| process.limits[of as usize].cur;
        let lock = if self.credentials_of(process).caps.has(crate::caps::CAP_IPC_LOCK) {
            u64::MAX
        } else {
            limit(c::RLIMIT_MEMLOCK)
        };
        let limits = [limit(c::RLIMIT_STACK), limit(c::RLIMIT_AS), lock];
        if !self.mms[id].may_grow(&vma, page, limits) {
            return false;
        }
        debug_assert!(vma.backing == Backing::Anon, "only anonymous memory grows");
        self.mms[id].insert(Vma { start: page, end: vma.start, ..vma });
        true
    }
}

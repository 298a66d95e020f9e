//! Where an address space has room: the search for a free range, and how far earlier searches have seen that there is none.
//!
//! Key type: [`Searched`]. Neighbour: [`Mm`], whose mappings are searched.

use bloodhound_abi::Errno;

use super::{MMAP_MIN, Mm, PAGE, TASK_SIZE};

/// Classes of lengths: from one page to the whole address space, by powers of two.
const CLASSES: usize = 36;

/// For each class of lengths an address from which on, up to the mmap base, there is no free range of so many pages. Without it,
/// each search would go past all mappings again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Searched([u64; CLASSES]);

impl Searched {
    /// Nothing has been searched.
    pub fn none() -> Searched {
        Searched([u64::MAX; CLASSES])
    }

    /// Free ranges that end no higher than `top` may have grown.
    pub fn forget_below(&mut self, top: u64) {
        for at in &mut self.0 {
            *at = (*at).max(top);
        }
    }
}

/// The highest class of which a range of so many bytes has the length.
fn class(len: u64) -> usize {
    ((len / PAGE).max(1).ilog2() as usize).min(CLASSES - 1)
}

impl Mm {
    /// A free range of `len` bytes: at `hint` if that is free, else the highest below the mmap base, as Linux does.
    pub fn find_free(&mut self, hint: u64, len: u64) -> Result<u64, Errno> {
        if len > TASK_SIZE {
            return Err(Errno::ENOMEM);
        }
        let hint = hint & !(PAGE - 1);
        if hint >= MMAP_MIN
            && hint.checked_add(len).is_some_and(|e| e <= TASK_SIZE)
            && !self.overlaps(hint, hint + len)
        {
            return Ok(hint);
        }
        let class = class(len);
        let least = PAGE << class;
        let mut top = self.mmap_base.min(self.searched.0[class]);
        // The upper end of the highest free range of the class.
        let mut first = None;
        let mut found = None;
        for (_, vma) in self.vmas.range(..top).rev() {
            let room = top.saturating_sub(vma.end);
            if room >= least {
                first = first.or(Some(top));
            }
            if room >= len {
                found = Some(top - len);
                break;
            }
            top = top.min(vma.start);
        }
        if found.is_none() && top >= MMAP_MIN + len {
            found = Some(top - len);
        }
        self.searched.0[class] = first.unwrap_or(top);
        found.ok_or(Errno::ENOMEM)
    }

    /// A free range for MAP_32BIT: "in the first 2 Gigabytes of the process address space", in fact in the second, from
    /// below. ENOMEM.
    pub fn find_free_low(&self, hint: u64, len: u64) -> Result<u64, Errno> {
        const LOW: (u64, u64) = (0x4000_0000, 0x8000_0000);
        let fits = |at: u64| at.checked_add(len).is_some_and(|end| end <= LOW.1);
        let hint = hint & !(PAGE - 1);
        if hint >= MMAP_MIN && fits(hint) && !self.overlaps(hint, hint + len) {
            return Ok(hint);
        }
        let mut at = LOW.0;
        for vma in self.vmas.values().filter(|v| v.end > LOW.0) {
            if vma.start >= at && vma.start - at >= len {
                break;
            }
            at = at.max(vma.end);
        }
        if fits(at) { Ok(at) } else { Err(Errno::ENOMEM) }
    }

    /// A range has become free: the free range around it may be longer than those that were searched for.
    pub(super) fn freed(&mut self, end: u64) {
        let above = self.vmas.range(end..).next().map_or(u64::MAX, |(start, _)| *start);
        self.searched.forget_below(above.min(self.mmap_base));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::ContainerId;
    use crate::mm::{Backing, OnFork, Vma};

    /// The search as find_free describes it, without memory of earlier ones.
    fn highest(mm: &Mm, len: u64) -> Option<u64> {
        let mut top = mm.mmap_base;
        for vma in mm.vmas.values().rev() {
            if vma.end <= top && top - vma.end >= len {
                return Some(top - len);
            }
            top = top.min(vma.start);
        }
        (top >= MMAP_MIN + len).then(|| top - len)
    }

    #[test]
    fn the_highest_range_is_found_whatever_was_searched_and_freed() {
        let mut mm = Mm::new(1, ContainerId(0));
        mm.mmap_base = MMAP_MIN + 4096 * PAGE;
        let mut state = 7u64;
        let mut draw = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        let mut refused = 0;
        for _ in 0..20_000 {
            let len = [1, 1, 2, 3, 5, 8, 17, 64, 200][draw(9) as usize] * PAGE;
            if draw(100) < 52 {
                let expected = highest(&mm, len);
                assert_eq!(mm.find_free(0, len).ok(), expected);
                let Some(start) = expected else {
                    refused += 1;
                    continue;
                };
                // Protections differ, so that neighbours stay apart.
                let prot = draw(8);
                let (on_fork, backing) = (OnFork::Copy, Backing::Anon);
                let end = start + len;
                mm.insert(Vma {
                    start,
                    end,
                    prot,
                    shared: false,
                    backing,
                    on_fork,
                    may_write: true,
                    marks: Default::default(),
                });
            } else {
                let start = MMAP_MIN + draw(4096) * PAGE;
                mm.remove(start, start + len);
            }
        }
        assert!(refused > 100 && refused < 10_000, "both ways were tried: {refused}");
    }
}

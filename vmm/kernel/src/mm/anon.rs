//! Which private mappings Linux joins: those whose own pages are of one set (`struct anon_vma`). It shows in /proc/PID/maps, in how many mappings there
//! are, and where mremap(2) finds more than one.
//!
//! Key type: [`Anon`]. A mapping gets into a set when it is written first, into that of a neighbour if it may be joined with it
//! (`find_mergeable_anon_vma`); a child of fork(2) has sets of its own. Neighbours: [`Mm::insert`], which joins, and `fault`, which makes pages.

use super::{Mm, Vma};

/// The pages that a private mapping has of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Anon {
    /// Which set they belong to; 0 as long as there are none.
    set: u64,
    /// The mapping is a copy that fork(2) has made, and so in the sets of its parents as well: nothing without pages is joined with it.
    copied: bool,
    /// How many bytes before their address its pages lay when they were made: mapping and pages have moved since (`vm_pgoff`).
    moved: u64,
}

impl Anon {
    /// Whether a mapping that comes or changes may be joined with a neighbour (`is_mergeable_anon_vma`). "The list_is_singular() test is to avoid
    /// merging VMA cloned from parents", and fails for a neighbour that has no pages.
    fn joins(self, neighbour: Anon) -> bool {
        self.set == neighbour.set || self.set == 0 && !neighbour.copied
    }

    /// Whether two neighbours of it are joined as well.
    fn joins_both(self, other: Anon) -> bool {
        self.set == other.set || self.set == 0 || other.set == 0
    }

    /// That of two mappings which are joined.
    fn with(self, other: Anon) -> Anon {
        if self.set == 0 { other } else { self }
    }

    /// Whether it has pages.
    pub(crate) fn has_pages(self) -> bool {
        self.set != 0
    }

    /// A mapping moves: pages keep the place in their set (copy_vma).
    pub(crate) fn moves(&mut self, from: u64, to: u64) {
        if self.set != 0 {
            self.moved = self.moved.wrapping_add(to.wrapping_sub(from));
        }
    }

    /// All pages have left (unlink_anon_vmas of MREMAP_DONTUNMAP).
    pub(crate) fn without_pages(self) -> Anon {
        Anon { set: 0, copied: false, ..self }
    }
}

impl Vma {
    /// Whether what lies behind continues it, and was moved as far.
    fn is_followed_by(&self, next: &Vma) -> bool {
        self.continues(next) && self.marks.anon.moved == next.marks.anon.moved
    }
}

impl Mm {
    /// The mapping before one that comes or changes, and the one behind it, as far as they are joined with it; and the pages of all
    /// (vma_merge).
    pub(super) fn joined_with(&self, vma: &Vma) -> (Option<&Vma>, Option<&Vma>, Anon) {
        let own = vma.marks.anon;
        let fits = |neighbour: &&Vma| own.joins(neighbour.marks.anon);
        let before = self.vmas.range(..vma.start).next_back().map(|(_, before)| before);
        let before = before.filter(|before| before.is_followed_by(vma)).filter(fits);
        let after = self.vmas.get(&vma.end).filter(|after| vma.is_followed_by(after)).filter(fits);
        match (before, after) {
            (Some(one), Some(other)) if !one.marks.anon.joins_both(other.marks.anon) => {
                (before, None, own.with(one.marks.anon))
            }
            _ => {
                let of = |neighbour: Option<&Vma>| neighbour.map_or(Anon::default(), |vma| vma.marks.anon);
                (before, after, own.with(of(before)).with(of(after)))
            }
        }
    }

    /// The mapping at an address gets pages of its own (anon_vma_prepare).
    pub(super) fn gets_pages(&mut self, start: u64) {
        let Some(vma) = self.find(start).filter(|vma| !vma.marks.anon.has_pages()) else { return };
        // "Try next first", then the one before; both with any protection.
        let alike = |neighbour: &Vma| Vma { prot: vma.prot, ..neighbour.clone() };
        let after = self.vmas.get(&vma.end).filter(|after| vma.is_followed_by(&alike(after)));
        let before = self.vmas.range(..vma.start).next_back().map(|(_, before)| before);
        let before = before.filter(|before| alike(before).is_followed_by(vma));
        let usable = |neighbour: &&Vma| neighbour.marks.anon.has_pages() && !neighbour.marks.anon.copied;
        let found = after.filter(usable).or(before.filter(usable)).map(|vma| vma.marks.anon);
        let start = vma.start;
        let next = Anon { set: self.sets + 1, ..vma.marks.anon };
        self.sets += u64::from(found.is_none());
        if let Some(vma) = self.vmas.get_mut(&start) {
            vma.marks.anon = found.unwrap_or(next);
        }
    }

    /// Of a child of fork(2): each mapping that has pages gets a set of its own (anon_vma_fork).
    pub(super) fn separate_sets(&mut self) {
        let starts: Vec<u64> =
            self.vmas.iter().filter(|(_, vma)| vma.marks.anon.has_pages()).map(|(at, _)| *at).collect();
        for at in starts {
            self.sets += 1;
            let Some(vma) = self.vmas.get_mut(&at) else { continue };
            vma.marks.anon = Anon { set: self.sets, copied: true, ..vma.marks.anon };
        }
    }
}

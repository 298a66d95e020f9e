//! Pages that a program is about to touch: the segments of a program that begins, the library that is being loaded, what mprotect(2)
//! has just changed. A platform maps them together with the next page that it has to map anyway, since each fault that is saved is
//! two stops of the process. A dynamic loader touches nearly all segments of what it loads.
//!
//! All of this is advice to a cache (design rule 2): no page is made here and nothing of the world changes, so a platform may map
//! what is named here or leave it out. Only the few pages of [`Node::copy_data`] are made, by execve(2) and mmap(2) themselves and
//! therefore on every platform.
//!
//! Neighbours: [`super::fault`] (pages one by one), `bloodhound_sim`'s `page_faults` (which parts of large files were used before).

use bloodhound_abi::consts as c;

use super::fault::PageMapping;
use super::{Access, Backing, Mm, PAGE, Vma};
use crate::ids::MmId;
use crate::node::Node;

/// Ranges that are kept at most; of programs that map all the time without touching anything the first ones are forgotten.
const MOST_RANGES: usize = 64;
/// Mappings of up to so many pages are shown as a whole; of larger ones what was used before.
const SMALL: u64 = 64;
/// Pages of a mapping that are visited at most.
const MOST_PAGES: u64 = 1024;

/// Ranges (first address, one past the last) that a program is about to touch. What is left of them depends on when a platform had something
/// to map, and they say nothing to programs, so address spaces are equal whatever they are.
#[derive(Clone, Debug, Default)]
pub(super) struct Expected(Vec<(u64, u64)>);

impl PartialEq for Expected {
    fn eq(&self, _: &Expected) -> bool {
        true
    }
}

impl Eq for Expected {}

impl Mm {
    /// Whether the program is about to touch something.
    pub fn expects(&self) -> bool {
        !self.ahead.0.is_empty()
    }

    /// The program has changed the rights of this range and is about to touch it, if it is small: a loader protects what it has
    /// relocated, while an allocator may give rights to gigabytes.
    pub(crate) fn expect_if_small(&mut self, start: u64, end: u64) {
        if end - start <= SMALL * PAGE {
            self.expect(start, end);
        }
    }

    /// The program is about to touch this range.
    pub(crate) fn expect(&mut self, start: u64, end: u64) {
        if self.ahead.0.iter().any(|(from, to)| *from <= start && end <= *to) {
            return;
        }
        if self.ahead.0.len() == MOST_RANGES {
            self.ahead.0.remove(0);
        }
        self.ahead.0.push((start, end));
    }
}

impl Node {
    /// The pages that a program is about to touch and that can be shown as they are, mapping by mapping. They are told once.
    /// `used`: whether the page of a large file whose frame has this offset was used before.
    pub fn take_ahead(&mut self, mm: MmId, used: impl Fn(u64) -> bool) -> Vec<Vec<PageMapping>> {
        let mut all = Vec::new();
        for (start, end) in std::mem::take(&mut self.mms[mm].ahead.0) {
            let inside: Vec<Vma> = self.mms[mm].slices(start, end);
            for vma in inside {
                let mut pages = Vec::new();
                let low = vma.start;
                let high = vma.end.min(low.saturating_add(MOST_PAGES * PAGE));
                let small = vma.end - vma.start <= SMALL * PAGE;
                for at in (low..high).step_by(PAGE as usize) {
                    if self.is_shown_as_it_is(mm, &vma, at)
                        && let Some(page) = self.resident(mm, &vma, at, Access::Read)
                        && (small || page.write || used(page.frame))
                    {
                        pages.push(page);
                    }
                }
                if !pages.is_empty() {
                    all.push(pages);
                }
            }
        }
        all
    }

    /// Whether a read of the page changes nothing of the world.
    fn is_shown_as_it_is(&self, mm: MmId, vma: &Vma, at: u64) -> bool {
        if vma.shared || vma.prot & (c::PROT_READ | c::PROT_WRITE | c::PROT_EXEC) == 0 {
            return false;
        }
        let exists = self.mms[mm].pages.get(at / PAGE).is_some();
        match vma.backing {
            Backing::Anon => exists,
            Backing::File { ino, offset } => self.vfs.pristine(ino).is_some_and(|image| {
                // What was not read yet nobody has used.
                let loaded = || image.is_loaded((offset + (at - vma.start)) / PAGE);
                exists || !self.copied_at_once(vma) && loaded()
            }),
            Backing::Special(name) => name == "[vdso]",
            Backing::Shm { .. } => false,
        }
    }

    /// A program with these mappings is about to begin.
    pub(crate) fn expect_all(&mut self, mm: MmId, vmas: &[Vma]) {
        for vma in vmas {
            self.copy_data(mm, vma);
            self.mms[mm].expect(vma.start, vma.end);
        }
    }

    /// Makes the pages of a small writable segment of an unchanged file: a loader relocates it in the next moment. execve(2) and
    /// mmap(2) do it, not the platform's faults.
    pub(crate) fn copy_data(&mut self, mm: MmId, vma: &Vma) {
        if vma.end - vma.start <= SMALL * PAGE && self.copied_at_once(vma) {
            self.page_fault(mm, vma.start, Access::Write);
        }
    }
}

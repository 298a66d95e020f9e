//! Which pages may be executed, and what a page of code looked like when it became code.
//!
//! A page of an unchanged file is code at once. A private page that a program has written becomes code, in the page table's
//! sense, when the program executes it, and ceases to be code when it is written or may not be executed any more. So a private
//! page is writable or executable, not both. Both moments are the program's own: neither what a platform has mapped nor which
//! neighbours of the page exist already decides anything.
//!
//! The reason is that some instructions must not reach the host. Whoever maps code shows the processor other bytes in their
//! place; the pages here keep what the program wrote. To tell instructions from data it takes more than the page, and what it
//! takes may change later. So it is kept with the page ([`Surroundings`], [`Node::code_page`]).
//!
//! Neighbours: [`super::fault`] calls this at page faults; [`super::pages`] keeps the state of private pages;
//! `bloodhound_platform::code_view` finds and replaces the instructions.

use std::ops::Range;
use std::sync::Arc;

use bloodhound_abi::consts as c;
use bloodhound_abi::instructions::may_be_answered;
use bloodhound_frames::Frame;
use bloodhound_vfs::Ino;

use super::{Backing, Mm, PAGE, Vma};
use crate::elf;
use crate::ids::MmId;
use crate::node::Node;

/// Bytes on each side of a page that are kept: what it takes to find the beginnings of its first and last instructions.
const CONTEXT: usize = 96;

/// What lies around a page of code, as it was when the page became code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The last bytes before the page; empty if there is nothing.
    pub before: Vec<u8>,
    /// The first bytes after it; empty if there is nothing.
    pub after: Vec<u8>,
    /// The offset of the instruction that was executed first.
    pub entry: Option<usize>,
    /// Where in the page its file has instructions, if it is a file's and says so.
    pub sections: Option<Vec<Range<usize>>>,
}

impl Surroundings {
    fn new(before: Option<&Frame>, after: Option<&Frame>) -> Surroundings {
        let last = |frame: &Frame| frame.bytes()[PAGE as usize - CONTEXT..].to_vec();
        let first = |frame: &Frame| frame.bytes()[..CONTEXT].to_vec();
        Surroundings {
            before: before.map_or(Vec::new(), last),
            after: after.map_or(Vec::new(), first),
            ..Surroundings::default()
        }
    }
}

impl Node {
    /// The bytes of a page of code, as the program sees them, and what lies around them. `None` if no code is there.
    pub fn code_page(&self, mm: MmId, addr: u64) -> Option<(Frame, Arc<Surroundings>)> {
        let (mm, page) = (&self.mms[mm], addr / PAGE);
        if let Some(frame) = mm.pages.get(page) {
            return Some((frame.clone(), mm.pages.surroundings(page)?.clone()));
        }
        let vma = mm.find(addr)?;
        let Backing::File { ino, offset } = vma.backing else { return None };
        let index = (offset + (page * PAGE - vma.start)) / PAGE;
        Some((self.vfs.page(ino, index)?, Arc::new(self.surroundings_in_file(ino, index))))
    }

    /// What lies around a page of a file.
    fn surroundings_in_file(&self, ino: Ino, index: u64) -> Surroundings {
        let before = index.checked_sub(1).and_then(|i| self.vfs.page(ino, i));
        let after = self.vfs.page(ino, index + 1);
        let within = |(start, end): &(u64, u64)| {
            let cut = |at: u64| at.clamp(index * PAGE, (index + 1) * PAGE) - index * PAGE;
            cut(*start) as usize..cut(*end) as usize
        };
        let sections = elf::code_sections(&|at, len| self.bytes_of(ino, at, len));
        let sections = sections.map(|all| all.iter().map(within).filter(|range| !range.is_empty()).collect());
        Surroundings { sections, ..Surroundings::new(before.as_ref(), after.as_ref()) }
    }

    /// Some bytes of a file; `None` if it does not have them all.
    fn bytes_of(&self, ino: Ino, at: u64, len: usize) -> Option<Vec<u8>> {
        let end = at.checked_add(len as u64).filter(|end| *end <= self.vfs.size(ino))?;
        let mut out = Vec::with_capacity(len);
        for index in at / PAGE..end.div_ceil(PAGE) {
            let page = self.vfs.page(ino, index)?;
            let (first, last) =
                (at.max(index * PAGE) - index * PAGE, end.min((index + 1) * PAGE) - index * PAGE);
            out.extend_from_slice(&page.bytes()[first as usize..last as usize]);
        }
        Some(out)
    }

    /// A private copy of a page of an unchanged file was made: it is code as the file's page is.
    pub(super) fn copied_from_file(&mut self, mm: MmId, page: u64, ino: Ino, index: u64) {
        let frame = self.mms[mm].pages.get(page);
        let interesting = frame.is_some_and(|frame| may_be_answered(frame.bytes()));
        let around = interesting.then(|| Arc::new(self.surroundings_in_file(ino, index)));
        self.mms[mm].pages.set_code(page, around);
    }

    /// The program executes a page for the first time since it wrote there, at an address in it: the page becomes code. That of
    /// a file which was written in the simulation becomes a copy first, since the file may change again.
    pub(super) fn executed(&mut self, mm: MmId, vma: &Vma, addr: u64) {
        let page = addr / PAGE;
        let kept = self.mms[mm].pages.get(page).is_some();
        let own = match vma.backing {
            Backing::Anon => true,
            // Those of unchanged files are code at once.
            Backing::File { ino, .. } => !vma.shared && (kept || !self.vfs.is_pristine(ino)),
            _ => false,
        };
        if !own || self.mms[mm].pages.is_code(page) {
            return;
        }
        let Some(frame) = self.seen(mm, vma, page) else { return };
        let around = may_be_answered(frame.bytes()).then(|| {
            let before = page.checked_sub(1).and_then(|at| self.seen(mm, vma, at));
            let after = self.seen(mm, vma, page + 1);
            // A fetch that faults at the beginning of a page may be the rest of an instruction.
            let entry = (!addr.is_multiple_of(PAGE)).then_some((addr % PAGE) as usize);
            Arc::new(Surroundings { entry, ..Surroundings::new(before.as_ref(), after.as_ref()) })
        });
        if !kept {
            self.mms[mm].pages.set(page, Frame::from_bytes(frame.bytes()));
        }
        self.mms[mm].pages.set_code(page, around);
        self.mms[mm].invalidate(page * PAGE, PAGE);
    }

    /// What a private mapping shows at a page. Anonymous memory that does not exist yet is zeros.
    fn seen(&self, mm: MmId, vma: &Vma, page: u64) -> Option<Frame> {
        if !(vma.start / PAGE..vma.end / PAGE).contains(&page) {
            return None;
        }
        match (self.mms[mm].pages.get(page), &vma.backing) {
            (Some(frame), _) => Some(frame.clone()),
            (None, Backing::Anon) => Some(Frame::shared_zero()),
            (None, Backing::File { ino, offset }) => {
                self.vfs.page(*ino, (offset + (page * PAGE - vma.start)) / PAGE)
            }
            _ => None,
        }
    }

    /// Whether a store to `addr` by the instruction at `rip` goes to the page of the instruction itself, and that page is one
    /// that is shown to processors with other bytes. Such a page is never writable and executable at once, so the store needs
    /// an exception from the rule, for this one instruction.
    pub fn stores_into_its_own_code(&self, mm: MmId, addr: u64, rip: u64) -> bool {
        /// The longest instruction has 15 bytes.
        const REST: u64 = 14;
        let page = addr / PAGE;
        let mm = &self.mms[mm];
        (rip / PAGE == page || rip.wrapping_add(REST) / PAGE == page)
            && mm.pages.get(page).is_some_and(|frame| may_be_answered(frame.bytes()))
            && mm.find(addr).is_some_and(|vma| {
                let both = c::PROT_WRITE | c::PROT_EXEC;
                !vma.shared && vma.prot & both == both && !mm.pages.is_code_for_good(page)
            })
    }

    /// A file that was pristine was written: what was mapped of it as code has to be looked at again when it is executed.
    pub(crate) fn forget_pristine(&mut self, ino: Ino) {
        let Some(users) = self.mapped.get(&ino) else { return };
        for id in users.keys().copied().collect::<Vec<_>>() {
            let Some(mm) = self.mms.get_mut(id) else { continue };
            let of_file = |v: &&Vma| matches!(v.backing, Backing::File { ino: i, .. } if i == ino);
            let ranges: Vec<(u64, u64)> = mm.vmas().filter(of_file).map(|v| (v.start, v.end)).collect();
            for (start, end) in ranges {
                mm.invalidate(start, end - start);
            }
        }
    }
}

impl Mm {
    /// Whether the page at an address, in one of this space's VMAs, may be executed as it is.
    pub(super) fn executable(&self, vma: &Vma, addr: u64, is_pristine: impl FnOnce(Ino) -> bool) -> bool {
        if vma.prot & c::PROT_EXEC == 0 || vma.shared {
            return vma.prot & c::PROT_EXEC != 0;
        }
        match vma.backing {
            _ if self.pages.get(addr / PAGE).is_some() => self.pages.is_code(addr / PAGE),
            Backing::File { ino, .. } => is_pristine(ino),
            Backing::Anon => false,
            Backing::Shm { .. } | Backing::Special(_) => true,
        }
    }
}

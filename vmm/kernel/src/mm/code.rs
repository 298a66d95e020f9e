//! Code before it is executed: instructions that would reach the host are made to trap, by what the platform wants patched
//! ([`crate::node::NodeConfig::patch_code`]).
//!
//! Pages of files are patched when they are mapped. Private pages that a program has written itself become code, in the page
//! table's sense, when it executes them, and cease to be code when it writes to them or may not execute them any more. So a
//! page is writable or executable, unless both alternate too often.
//!
//! Neighbours: [`super::fault`] calls this; [`super::pages`] knows what is code; `bloodhound-platform`'s `patch` finds the
//! instructions.

use std::sync::Arc;

use bloodhound_frames::Frame;
use bloodhound_vfs::Ino;

use super::{Backing, PAGE, Vma};
use crate::elf;
use crate::ids::MmId;
use crate::node::{Node, PatchCode};

impl Node {
    /// A copy of an executable page of an unchanged file with its instructions made to trap that the host lets through, if it
    /// has any.
    pub(super) fn patched(&mut self, ino: Ino, index: u64, frame: &Frame, exec: bool) -> Option<Frame> {
        let patch = self.config.patch_code.filter(|_| exec)?;
        if let Some(known) = self.patched.get(&(ino, index)) {
            return known.clone();
        }
        let copy = self.patch(patch, ino, index, frame);
        Arc::make_mut(&mut self.patched).insert((ino, index), copy.clone());
        copy
    }

    fn patch(&self, patch: PatchCode, ino: Ino, index: u64, frame: &Frame) -> Option<Frame> {
        if !may_need_patch(frame) {
            return None;
        }
        // Instructions are found by decoding from before the page, so its neighbours are needed.
        let before = index.checked_sub(1).and_then(|i| self.vfs.page(ino, i));
        let after = self.vfs.page(ino, index + 1);
        let mut copy = patched_copy(patch, frame, before.as_ref(), after.as_ref(), None)?;
        // Tables look like code sometimes, and the file says where it has some.
        if let Some(sections) = elf::code_sections(&|at, len| self.bytes_of(ino, at, len)) {
            let code = |at: u64| sections.iter().any(|(start, end)| (*start..*end).contains(&at));
            let copy = copy.make_unique();
            for (n, (byte, original)) in copy.iter_mut().zip(frame.bytes()).enumerate() {
                if *byte != *original && !code(index * PAGE + n as u64) {
                    *byte = *original;
                }
            }
        }
        (copy.bytes() != frame.bytes()).then_some(copy)
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

    /// Whether a private page may be executed as it is.
    pub(super) fn is_code(&self, mm: MmId, page: u64) -> bool {
        self.config.patch_code.is_none() || self.mms[mm].pages.is_code(page)
    }

    /// The program executes a private page for the first time since it wrote there, at an address in it: what it has put there
    /// is patched now, as files are. This moment is the program's, whatever the platform has forgotten, and nothing else
    /// decides: not which neighbours exist already. A page of a file that was written in the simulation becomes a copy.
    pub(super) fn look(&mut self, mm: MmId, vma: &Vma, addr: u64) {
        let Some(patch) = self.config.patch_code else { return };
        let page = addr / PAGE;
        let kept = self.mms[mm].pages.get(page).is_some();
        let own = match vma.backing {
            Backing::Anon => true,
            // Those of unchanged files are patched when they are mapped.
            Backing::File { ino, .. } => !vma.shared && (kept || !self.vfs.is_pristine(ino)),
            _ => false,
        };
        if !own || self.mms[mm].pages.is_code(page) {
            return;
        }
        let Some(frame) = self.seen(mm, vma, page) else { return };
        if !kept {
            self.mms[mm].pages.set(page, Frame::from_bytes(frame.bytes()));
        }
        if may_need_patch(&frame) {
            let before = page.checked_sub(1).and_then(|at| self.seen(mm, vma, at));
            let after = self.seen(mm, vma, page + 1);
            // A fetch that faults at the beginning of a page may be the rest of an instruction.
            let entry = (!addr.is_multiple_of(PAGE)).then_some((addr % PAGE) as usize);
            if let Some(copy) = patched_copy(patch, &frame, before.as_ref(), after.as_ref(), entry) {
                self.mms[mm].pages.set(page, copy);
            }
        }
        self.mms[mm].pages.set_code(page, false);
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

    /// A file that was pristine was written: what was mapped of it as code has to be looked at again when it is executed.
    pub(crate) fn forget_pristine(&mut self, ino: Ino) {
        let Some(users) = self.mapped.get(&ino) else { return };
        for id in users.keys().copied().collect::<Vec<_>>() {
            let Some(mm) = self.mms.get_mut(id) else { continue };
            let of_file = |v: &&Vma| matches!(v.backing, Backing::File { ino: i, .. } if i == ino);
            let ranges: Vec<(u64, u64)> = mm.vmas().filter(of_file).map(|v| (v.start, v.end)).collect();
            for (start, end) in ranges {
                mm.pages.drop_of_file(start / PAGE, end / PAGE);
                mm.invalidate(start, end - start);
            }
        }
    }
}

/// Whether a page has what may be the beginning of an instruction to be patched. The usual page has none.
fn may_need_patch(frame: &Frame) -> bool {
    let bytes = frame.bytes();
    // The second bytes of cpuid, rdtsc, and of rdtscp and xgetbv.
    let may_be = |w: &[u8]| w[0] == 0x0f && matches!(w[1], 0xa2 | 0x31 | 0x01);
    bytes.windows(2).any(may_be) || bytes[4095] == 0x0f
}

/// A copy of a page with its instructions made to trap, if there are any. At `entry`, an offset, an instruction begins.
fn patched_copy(
    patch: PatchCode,
    frame: &Frame,
    before: Option<&Frame>,
    after: Option<&Frame>,
    entry: Option<usize>,
) -> Option<Frame> {
    let around = |frame: Option<&Frame>| frame.map_or(Vec::new(), |frame| frame.bytes().to_vec());
    let mut copy = Frame::from_bytes(frame.bytes());
    let sites = patch(copy.make_unique(), &around(before), &around(after), entry);
    (sites > 0).then_some(copy)
}

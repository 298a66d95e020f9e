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

use bloodhound_abi::consts as c;
use bloodhound_frames::Frame;
use bloodhound_vfs::Ino;

use super::pages::PageTable;
use super::{PAGE, Vma};
use crate::elf;
use crate::ids::MmId;
use crate::node::{Node, PatchCode};

impl Node {
    /// A copy of an executable page with its instructions made to trap that the host lets through, if it has any.
    pub(super) fn patched(&mut self, ino: Ino, index: u64, frame: &Frame, exec: bool) -> Option<Frame> {
        let patch = self.config.patch_code.filter(|_| exec)?;
        let pristine = self.vfs.is_pristine(ino);
        if pristine && let Some(known) = self.patched.get(&(ino, index)) {
            return known.clone();
        }
        let copy = self.patch(patch, ino, index, frame);
        if pristine {
            Arc::make_mut(&mut self.patched).insert((ino, index), copy.clone());
        }
        copy
    }

    fn patch(&self, patch: PatchCode, ino: Ino, index: u64, frame: &Frame) -> Option<Frame> {
        if !may_need_patch(frame) {
            return None;
        }
        // Instructions are found by decoding from before the page, so its neighbours are needed.
        let before = index.checked_sub(1).and_then(|i| self.vfs.page(ino, i));
        let after = self.vfs.page(ino, index + 1);
        let mut copy = patched_copy(patch, frame, before.as_ref(), after.as_ref())?;
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

    /// The program executes a private page of its own for the first time since it wrote there: what it has put there is
    /// patched now, as files are. This moment is the program's, whatever the platform has forgotten. The neighbours are
    /// looked at as well if they cannot change any more.
    pub(super) fn look(&mut self, mm: MmId, vma: &Vma, page: u64, (low, high): (u64, u64)) {
        let Some(patch) = self.config.patch_code else { return };
        let first = page / PAGE;
        let there = |pages: &PageTable, at: u64| pages.get(at).is_some() && !pages.is_code(at);
        if vma.shared || !there(&self.mms[mm].pages, first) {
            return;
        }
        let fixed = vma.prot & c::PROT_WRITE == 0;
        let range = if fixed { low / PAGE..high / PAGE } else { first..first + 1 };
        for at in range {
            let pages = &mut self.mms[mm].pages;
            if !there(pages, at) {
                continue;
            }
            let inside = |at: u64| (vma.start / PAGE..vma.end / PAGE).contains(&at);
            let neighbour = |at: u64| pages.get(at).filter(|_| inside(at));
            let frame = pages.get(at).filter(|frame| may_need_patch(frame));
            let copy = frame.and_then(|frame| {
                patched_copy(patch, frame, at.checked_sub(1).and_then(neighbour), neighbour(at + 1))
            });
            if let Some(copy) = copy {
                pages.set(at, copy);
                self.mms[mm].invalidate(at * PAGE, PAGE);
            }
            self.mms[mm].pages.set_code(at);
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

/// A copy of a page with its instructions made to trap, if there are any.
fn patched_copy(
    patch: PatchCode,
    frame: &Frame,
    before: Option<&Frame>,
    after: Option<&Frame>,
) -> Option<Frame> {
    let around = |frame: Option<&Frame>| frame.map_or(Vec::new(), |frame| frame.bytes().to_vec());
    let mut copy = Frame::from_bytes(frame.bytes());
    let sites = patch(copy.make_unique(), &around(before), &around(after));
    (sites > 0).then_some(copy)
}

//! Which frames spaces are shown in the place of pages of code ([`CodeView`]): what the platform cannot make trap is replaced in
//! the frames that it maps, and only there. No part of the world, whose pages keep what the program put there.
//!
//! Neighbours: [`crate::step`] asks when it maps pages, [`crate::snapshot`] when another world takes the place of one;
//! `bloodhound_platform::code_view` makes the frames and shares them between all machines of the process.

use std::collections::BTreeMap;

use bloodhound_frames::Frame;
use bloodhound_kernel::ids::MmId;
use bloodhound_kernel::mm::PAGE;
use bloodhound_kernel::mm::fault::{PageMapping, Text};
use bloodhound_kernel::node::Node;
use bloodhound_platform::Patches;
use bloodhound_platform::code_view::{CodePage, frame};

/// Programs' own pages that are shown otherwise, at most: a program that makes code for ever, each time somewhere else, must not
/// use up the host's memory.
const MOST_PRIVATE: usize = 4096;

/// What a machine's platform shows instead of pages of code.
pub(crate) struct CodeView {
    patches: Patches,
    /// Pages of unchanged files that were mapped for execution, by the offset of their frame.
    files: BTreeMap<u64, OfFile>,
    /// What is shown in the place of programs' own pages, by space and address. It lives as long as the platform may map it.
    private: BTreeMap<(u64, u64), Frame>,
}

struct OfFile {
    /// Held, so that the offset names this page for ever.
    _page: Frame,
    /// What is shown in its place.
    shown: Option<Frame>,
}

impl CodeView {
    pub fn new(patches: Patches) -> CodeView {
        CodeView { patches, files: BTreeMap::new(), private: BTreeMap::new() }
    }

    /// Whether `shown` is what a space is shown instead of the page of a file at `page`; both are offsets of frames.
    pub fn stands_for(&self, page: u64, shown: u64) -> bool {
        let known = self.files.get(&page).and_then(|of_file| of_file.shown.as_ref());
        known.is_some_and(|frame| frame.offset() == shown)
    }

    /// Puts the frames that a space is to be shown in the place of those of the world.
    pub fn replace(&mut self, node: &Node, mm: MmId, pages: &mut [PageMapping]) {
        if self.patches == Patches::NONE {
            return;
        }
        for page in pages.iter_mut().filter(|page| page.exec) {
            match page.text {
                Text::Plain => {}
                Text::OfFile => self.of_file(node, mm, page),
                Text::Private => self.of_program(node, mm, page),
            }
        }
    }

    fn of_file(&mut self, node: &Node, mm: MmId, page: &mut PageMapping) {
        if !self.files.contains_key(&page.frame) {
            let Some((original, shown)) = self.shown(node, mm, page.addr, true) else { return };
            debug_assert_eq!(original.offset(), page.frame);
            self.files.insert(page.frame, OfFile { _page: original, shown });
        }
        if let Some(shown) = self.files.get(&page.frame).and_then(|of_file| of_file.shown.as_ref()) {
            page.frame = shown.offset();
        }
    }

    fn of_program(&mut self, node: &Node, mm: MmId, page: &mut PageMapping) {
        if let Some((_, Some(shown))) = self.shown(node, mm, page.addr, false) {
            page.frame = shown.offset();
            self.private.insert((node.mms[mm].space, page.addr / PAGE), shown);
        }
    }

    /// The page of code at an address, and what is shown in its place.
    fn shown(&self, node: &Node, mm: MmId, addr: u64, of_file: bool) -> Option<(Frame, Option<Frame>)> {
        let (original, around) = node.code_page(mm, addr)?;
        let page = CodePage {
            frame: &original,
            before: &around.before,
            after: &around.after,
            entry: around.entry,
            sections: around.sections.as_deref(),
            of_file,
        };
        let shown = frame(&page, self.patches);
        Some((original, shown))
    }

    /// If frames are held for too many pages of programs, forgets them: which pages (space and address), to be unmapped before
    /// anything runs. Those that are still in use come back by faults.
    pub fn take_surplus(&mut self) -> Vec<(u64, u64)> {
        if self.private.len() < MOST_PRIVATE {
            return Vec::new();
        }
        std::mem::take(&mut self.private).into_keys().map(|(space, page)| (space, page * PAGE)).collect()
    }

    /// A space shows nothing any more.
    pub fn forget(&mut self, space: u64) {
        if self.private.range((space, 0)..).next().is_some_and(|((first, _), _)| *first == space) {
            self.private.retain(|(of, _), _| *of != space);
        }
    }

    /// No space shows anything any more.
    pub fn forget_all(&mut self) {
        self.private.clear();
    }
}

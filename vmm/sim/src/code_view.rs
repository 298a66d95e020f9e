//! Which frames spaces are shown in the place of pages of code ([`CodeView`]): what the platform cannot make trap is replaced in
//! the frames that it maps, and only there. No part of the world, whose pages keep what the program put there.
//!
//! If somebody observes which code is executed ([`Observer`]), pages of files are shown with observing points
//! (`bloodhound_platform::code_points`) as well; the world is the same with and without them.
//!
//! Neighbours: [`crate::step`] asks when it maps pages, [`crate::snapshot`] when another world takes the place of one;
//! `bloodhound_platform::code_view` makes the frames and shares them between all machines of the process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bloodhound_frames::Frame;
use bloodhound_kernel::ids::MmId;
use bloodhound_kernel::mm::fault::{PageMapping, Text};
use bloodhound_kernel::mm::{Backing, PAGE};
use bloodhound_kernel::node::Node;
use bloodhound_net::NodeId;
use bloodhound_platform::Patches;
use bloodhound_platform::code_points::{FilePoints, Mark, Observed, PageOfFile};
use bloodhound_platform::code_view::{CodePage, frame};
use bloodhound_vfs::FileImage;

/// Programs' own pages that are shown otherwise, at most: a program that makes code for ever, each time somewhere else, must not
/// use up the host's memory.
const MOST_PRIVATE: usize = 4096;

/// A file of the base layer that a program of a service is about to execute.
#[derive(Clone, Debug)]
pub struct CodeFile<'a> {
    /// The service, or a script of the workload.
    pub service: NodeId,
    /// Where the service has it.
    pub path: &'a [u8],
    /// Its content.
    pub image: &'a Arc<FileImage>,
}

/// Answers with the points of a file.
pub type PointsOf = dyn Fn(&CodeFile<'_>) -> Option<Arc<FilePoints>> + Send + Sync;

/// Who observes which code is executed. Nothing of it reaches the world.
#[derive(Clone)]
pub struct Observer {
    /// The points of a file; `None` if it is not observed. Asked once for each file and service; the answer is a function of the
    /// file alone, as services share what is shown.
    pub points: Arc<PointsOf>,
    /// The frames with points, which all machines of a campaign share.
    pub observed: Arc<Observed>,
    /// What the machine is doing.
    pub mark: Arc<Mark>,
}

/// What a machine's platform shows instead of pages of code.
pub(crate) struct CodeView {
    patches: Patches,
    /// Pages of unchanged files that were mapped for execution, by the offset of their frame.
    files: BTreeMap<u64, OfFile>,
    /// What is shown in the place of programs' own pages, by space and address. It lives as long as the platform may map it.
    private: BTreeMap<(u64, u64), Frame>,
    observer: Option<Observer>,
    /// The files that the observer was asked for, with their points. The same file is asked for by each service.
    asked: BTreeMap<[u8; 32], Option<Arc<FilePoints>>>,
    by_services: BTreeSet<(NodeId, [u8; 32])>,
}

struct OfFile {
    /// Held, so that the offset names this page for ever.
    _page: Frame,
    /// What is shown in its place.
    shown: Option<Frame>,
}

impl CodeView {
    pub fn new(patches: Patches) -> CodeView {
        CodeView {
            patches,
            files: BTreeMap::new(),
            private: BTreeMap::new(),
            observer: None,
            asked: BTreeMap::new(),
            by_services: BTreeSet::new(),
        }
    }

    /// Shows points from now on. To be called before anything runs.
    pub fn observe(&mut self, observer: Observer) {
        self.observer = Some(observer);
    }

    /// Who observes.
    pub fn observer(&self) -> Option<&Observer> {
        self.observer.as_ref()
    }

    /// Whether `shown` is what a space is shown instead of the page of a file at `page`; both are offsets of frames.
    pub fn stands_for(&self, page: u64, shown: u64) -> bool {
        let known = self.files.get(&page).and_then(|of_file| of_file.shown.as_ref());
        known.is_some_and(|frame| frame.offset() == shown)
    }

    /// Puts the frames that a space is to be shown in the place of those of the world. `service`: who is about to use them.
    pub fn replace(&mut self, node: &Node, mm: MmId, service: NodeId, pages: &mut [PageMapping]) {
        if self.patches == Patches::NONE && self.observer.is_none() {
            return;
        }
        self.ask(node, mm, service, pages);
        for page in pages.iter_mut().filter(|page| page.exec) {
            match page.text {
                Text::Plain => {}
                Text::OfFile => self.of_file(node, mm, page),
                Text::Private => self.of_program(node, mm, page),
            }
        }
    }

    /// Asks the observer for the points of the file that these pages are of, once for each service.
    fn ask(&mut self, node: &Node, mm: MmId, service: NodeId, pages: &[PageMapping]) {
        let Some(observer) = &self.observer else { return };
        let Some(page) = pages.iter().find(|page| page.exec && page.text == Text::OfFile) else { return };
        let Some((ino, image, _)) = file_of(node, mm, page.addr) else { return };
        if !self.by_services.insert((service, image.sha256())) {
            return;
        }
        let path = node.vfs.path_of(node.vfs.root(), ino);
        let points = (observer.points)(&CodeFile { service, path: &path, image });
        self.asked.entry(image.sha256()).or_insert(points);
    }

    /// A page of a file with its points, instead of what is shown without them.
    fn with_points(&self, node: &Node, mm: MmId, addr: u64, page: (&Frame, Option<Frame>)) -> Option<Frame> {
        let (original, shown) = page;
        let points = || {
            let observer = self.observer.as_ref()?;
            let (_, image, index) = file_of(node, mm, addr)?;
            let points = self.asked.get(&image.sha256())?.as_ref()?;
            let shown = shown.as_ref().unwrap_or(original);
            observer.observed.frame(PageOfFile { file: image.sha256(), points, index, original, shown })
        };
        points().or(shown.clone())
    }

    fn of_file(&mut self, node: &Node, mm: MmId, page: &mut PageMapping) {
        if !self.files.contains_key(&page.frame) {
            let Some((original, shown)) = self.shown(node, mm, page.addr, true) else { return };
            debug_assert_eq!(original.offset(), page.frame);
            let shown = self.with_points(node, mm, page.addr, (&original, shown));
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

/// The unchanged file behind an address, and the number of the page in it.
pub(crate) fn file_of(
    node: &Node,
    mm: MmId,
    addr: u64,
) -> Option<(bloodhound_vfs::Ino, &Arc<FileImage>, u64)> {
    let vma = node.mms[mm].find(addr)?;
    let Backing::File { ino, offset } = vma.backing else { return None };
    let index = (offset + (addr - vma.start)) / PAGE;
    Some((ino, node.vfs.pristine(ino)?, index))
}

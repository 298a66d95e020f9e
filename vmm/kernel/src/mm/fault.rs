//! Page faults: which frames answer an access, in batches around it. What a platform has mapped is a cache (design rule 2): a fault
//! changes no time and no decision. Which pages exist is part of the world, since memory is limited: a page is made by the first
//! access of a program or call to it, which faults on every platform, together with its neighbours. A fault on a page that exists
//! makes nothing, as it may come from a platform that has forgotten the page.

use bloodhound_abi::consts as c;
use bloodhound_abi::exception::page_fault as error;
use bloodhound_frames::Frame;
use smallvec::SmallVec;

use super::pages::BLOCK;
use super::{Access, Backing, Mm, PAGE, Vma};
use crate::ids::*;
use crate::node::Node;

/// Pages mapped at once around a fault in a file mapping.
const AROUND_FILE: u64 = 64;
/// Pages allocated at once by a fault in anonymous memory.
const AROUND_ANON: u64 = BLOCK;

/// First address that Linux does not count as user space (`TASK_SIZE_MAX`).
const USER_END: u64 = 0x7fff_ffff_f000;

/// A page for the platform to map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageMapping {
    /// User address, page-aligned.
    pub addr: u64,
    /// Offset of the frame in the frame store's memfd.
    pub frame: u64,
    /// May be written without another fault.
    pub write: bool,
    /// May be executed.
    pub exec: bool,
    /// Of a page that may be executed.
    pub text: Text,
}

/// What the bytes of an executable page are, for whoever shows a processor other bytes in their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// No page of code that could have instructions to be replaced: it is shown as it is.
    Plain,
    /// The page of a file that nobody has changed. Its frame is that page and nothing else, as long as anybody holds it.
    OfFile,
    /// A page of the program's own that may have instructions to be replaced ([`Node::code_page`]).
    Private,
}

/// The vsyscall page. Platforms make the calls of its entries.
const VSYSCALL: u64 = 0xffff_ffff_ff60_0000;

/// What a fault means.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // lives on the stack of one trap; a box would cost an allocation per fault
pub enum Fault {
    /// Map these and go on.
    Map(SmallVec<[PageMapping; AROUND_FILE as usize]>),
    /// The program gets a signal: number, si_code, address.
    Signal(u32, i32, u64),
}

impl Node {
    /// Answers a fault of a task of `mm` at `addr`. An unknown kind of access counts as a read first; the platform
    /// knows a write from a second fault on a page that it has mapped read-only.
    pub fn page_fault(&mut self, mm: MmId, addr: u64, access: Access) -> Fault {
        if access == Access::Exec && (VSYSCALL..VSYSCALL + PAGE).contains(&addr) {
            // Off the entries of the vsyscall page: "misaligned vsyscall (exploit attempt or buggy program)", which forces a
            // SIGSEGV without an address (arch/x86/entry/vsyscall/vsyscall_64.c).
            return Fault::Signal(c::SIGSEGV as u32, c::SI_KERNEL as i32, 0);
        }
        let mut found = self.mms[mm].check(addr, access).cloned();
        if found.is_err() && self.grow_down(mm, addr) {
            found = self.mms[mm].check(addr, access).cloned();
        }
        let mut vma = match found {
            Ok(vma) => vma,
            Err(code) => return Fault::Signal(c::SIGSEGV as u32, code, addr),
        };
        let page = addr & !(PAGE - 1);
        let around = match vma.backing {
            Backing::Anon => AROUND_ANON,
            // Pages of a shared file become writable one by one (a store makes them dirty). The neighbours would be mapped
            // read-only, also those that have been written: a store across two pages would never get both.
            Backing::File { .. } if vma.shared && access == Access::Write => 1,
            _ => AROUND_FILE,
        };
        let block = page & !(around * PAGE - 1);
        let (low, high) = (block.max(vma.start), (block + around * PAGE).min(vma.end));
        let fresh = self.is_fresh(mm, &vma, page);
        self.fill_block(mm, &vma, page, fresh, access);
        if !vma.shared
            && vma.prot & c::PROT_WRITE != 0
            && !vma.marks.anon.has_pages()
            && let Some(now) = self.mms[mm].find(page)
        {
            vma.marks.anon = now.marks.anon;
        }
        if access == Access::Exec {
            self.executed(mm, &vma, addr);
        }
        if access == Access::Write {
            self.mms[mm].pages.write_code(page / PAGE);
        }
        let mut out = SmallVec::new();
        let mut found = false;
        for at in (low..high).step_by(PAGE as usize) {
            let access = if at == page { access } else { Access::Read };
            if !fresh && self.would_be_made(&vma) && self.is_fresh(mm, &vma, at) {
                // Only the first access to a page makes its neighbours: that one faults always, others when the platform has
                // forgotten the page.
                continue;
            }
            if let Some(m) = self.resident(mm, &vma, at, access) {
                out.push(m);
                found |= at == page;
            }
        }
        self.settle(mm);
        if !found {
            return Fault::Signal(c::SIGBUS as u32, c::BUS_ADRERR as i32, addr);
        }
        Fault::Map(out)
    }

    /// Whether a page of a mapping does not exist yet.
    fn is_fresh(&self, mm: MmId, vma: &Vma, addr: u64) -> bool {
        match vma.backing {
            Backing::Shm { id, offset } => {
                !self.shm[id].pages.contains_key(&((offset + addr - vma.start) / PAGE))
            }
            _ => self.mms[mm].pages.get(addr / PAGE).is_none(),
        }
    }

    /// Whether a fault next to a page that does not exist would make it.
    fn would_be_made(&self, vma: &Vma) -> bool {
        match vma.backing {
            Backing::Anon => vma.prot & c::PROT_WRITE != 0,
            Backing::File { .. } => self.copied_at_once(vma),
            Backing::Shm { .. } => true,
            Backing::Special(_) => false,
        }
    }

    /// The error code of a page fault that is answered with a signal: bit 0 protection, 1 write, 2 user, 4 fetch.
    pub fn fault_error(&self, mm: MmId, addr: u64, access: Access) -> u32 {
        let kind = match access {
            Access::Read => 0,
            Access::Write => error::WRITE,
            Access::Exec => error::FETCH,
        };
        // Linux says of its own addresses that something is there, whatever is ("To avoid leaking information about the
        // kernel page table layout"). A page of PROT_NONE is not present; others of a mapping count as touched.
        let protection = match self.mms[mm].find(addr) {
            Some(vma) => {
                let readable = vma.prot & (c::PROT_READ | c::PROT_WRITE | c::PROT_EXEC) != 0;
                readable && self.mms[mm].check(addr, access).is_err()
            }
            None => addr >= USER_END && !(VSYSCALL..VSYSCALL + PAGE).contains(&addr),
        };
        error::USER | kind | if protection { error::PRESENT } else { 0 }
    }

    /// Makes the frames of the block of private pages around a fault at once, as neighbours: the platform maps them in one go. New
    /// ones for anonymous memory, if the page of the fault is `fresh`; for a store also copies of those that are shared with
    /// another world or address space.
    pub(super) fn fill_block(&mut self, mm: MmId, vma: &Vma, page: u64, fresh: bool, access: Access) {
        if vma.shared || vma.prot & c::PROT_WRITE == 0 {
            return;
        }
        if !vma.marks.anon.has_pages()
            && matches!(vma.backing, Backing::Anon | Backing::File { .. })
            && (access == Access::Write || self.copied_at_once(vma))
        {
            self.mms[mm].gets_pages(page);
        }
        let block = page & !(BLOCK * PAGE - 1);
        let (low, high) = (block.max(vma.start) / PAGE, (block + BLOCK * PAGE).min(vma.end) / PAGE);
        let pages = &mut self.mms[mm].pages;
        if vma.backing == Backing::Anon && fresh {
            let missing: SmallVec<[u64; BLOCK as usize]> =
                (low..high).filter(|p| pages.get(*p).is_none()).collect();
            for (page, frame) in missing.iter().zip(Frame::zeroed_run(missing.len())) {
                pages.set(*page, frame);
            }
        }
        if access == Access::Write && matches!(vma.backing, Backing::Anon | Backing::File { .. }) {
            pages.make_run_exclusive(low, high);
        }
    }

    /// Makes one page of `vma` resident for `access`; `None` beyond the end of a file.
    pub(super) fn resident(&mut self, mm: MmId, vma: &Vma, addr: u64, access: Access) -> Option<PageMapping> {
        let exec = vma.prot & c::PROT_EXEC != 0;
        let writable = vma.prot & c::PROT_WRITE != 0;
        let page = addr / PAGE;
        let mapping = |frame: &Frame, write| PageMapping {
            addr,
            frame: frame.offset(),
            write,
            exec,
            text: Text::Plain,
        };
        if vma.shared || matches!(vma.backing, Backing::Shm { .. } | Backing::Special(_)) {
            let write = writable && access == Access::Write;
            let (frame, own) = self.shared_frame(mm, vma, addr, write)?;
            return Some(PageMapping { addr, frame, write: writable && own, exec, text: Text::Plain });
        }
        if self.mms[mm].pages.get(page).is_none() {
            let mut copied_code = None;
            let frame = match vma.backing {
                Backing::Anon if writable => Frame::zeroed(),
                Backing::Anon => {
                    return Some(PageMapping { exec: false, ..mapping(&Frame::shared_zero(), false) });
                }
                Backing::File { ino, offset } => {
                    let index = (offset + (addr - vma.start)) / PAGE;
                    let frame = self.vfs.page(ino, index)?;
                    let copy = writable && (access == Access::Write || self.copied_at_once(vma));
                    // What the program itself may have written there it has to execute first.
                    let pristine = exec && self.vfs.is_pristine(ino);
                    if !copy {
                        let text = if pristine { Text::OfFile } else { Text::Plain };
                        return Some(PageMapping { exec: pristine, text, ..mapping(&frame, false) });
                    }
                    copied_code = pristine.then_some((ino, index));
                    Frame::from_bytes(frame.bytes())
                }
                _ => unreachable!("handled above"),
            };
            self.mms[mm].pages.set(page, frame);
            if let Some((ino, index)) = copied_code {
                self.copied_from_file(mm, page, ino, index);
            }
        }
        let exec = exec && self.mms[mm].pages.is_code(page);
        let shown_otherwise = exec && self.mms[mm].pages.surroundings(page).is_some();
        let text = if shown_otherwise { Text::Private } else { Text::Plain };
        let mapping = |frame: &Frame, write| PageMapping { addr, frame: frame.offset(), write, exec, text };
        // Code that is to be written ceases to be code first.
        let closed = exec && !self.mms[mm].pages.is_code_for_good(page);
        if !writable || closed {
            return self.mms[mm].pages.get(page).map(|f| mapping(f, false));
        }
        // A read does not need a copy of its own; the neighbours of a store have theirs by now. The first store to a mapping is to be seen.
        let seen = access == Access::Write || vma.marks.anon.has_pages();
        if access != Access::Write && (!seen || !self.mms[mm].pages.is_exclusive(page)) {
            return self.mms[mm].pages.get(page).map(|f| mapping(f, false));
        }
        let (frame, _) = self.mms[mm].pages.make_exclusive(page)?;
        Some(mapping(frame, true))
    }

    /// Whether a page of the mapping is copied by the first access of any kind. A writable private page of a program is
    /// nearly always written (relocations, .data): that saves a second fault. Of other files a page follows the file
    /// until it is written.
    pub(super) fn copied_at_once(&self, vma: &Vma) -> bool {
        match vma.backing {
            Backing::File { ino, .. } => {
                !vma.shared && vma.prot & c::PROT_WRITE != 0 && self.vfs.is_pristine(ino)
            }
            _ => false,
        }
    }

    /// Offset of the frame behind a shared mapping, and whether a store may go there: not if another world has it too, and
    /// not into a file's page that nobody has asked to write.
    fn shared_frame(&mut self, mm: MmId, vma: &Vma, addr: u64, write: bool) -> Option<(u64, bool)> {
        match &vma.backing {
            Backing::File { ino, offset } => {
                let index = (offset + (addr - vma.start)) / PAGE;
                if !write {
                    return self.vfs.page(*ino, index).map(|f| (f.offset(), false));
                }
                let now = self.own_time();
                let frame = self.vfs.page_mut(*ino, index, now).ok()??.offset();
                self.drop_moved_pages();
                Some((frame, true))
            }
            Backing::Shm { id, offset } => {
                let index = (offset + (addr - vma.start)) / PAGE;
                if !self.shm[*id].has(index) {
                    return None;
                }
                if write {
                    return Some((self.shm_page(*id, index).offset(), true));
                }
                let frame = self.shm_frame(*id, index);
                Some((frame.offset(), frame.is_unique()))
            }
            Backing::Special("[vvar]") => self.vvar.as_mut().map(|f| {
                f.make_unique();
                (f.offset(), true)
            }),
            Backing::Special(_) => {
                let index = ((addr - vma.start) / PAGE) as usize;
                self.mms[mm].vdso.get(index).map(|f| (f.offset(), false))
            }
            Backing::Anon => unreachable!("shared anonymous memory is a Shm object"),
        }
    }

    /// A page of a shared object, which is made if it does not exist.
    fn shm_frame(&mut self, id: ShmId, index: u64) -> &mut Frame {
        let shm = &mut self.shm[id];
        if !shm.pages.contains_key(&index) {
            self.memory.shared_grows(shm.container, 1);
        }
        shm.pages.entry(index).or_insert_with(Frame::zeroed)
    }

    /// A page of a shared object, as this world's own. After a clone of the world that is another frame, and whoever
    /// maps the old one must let go of it.
    pub(super) fn shm_page(&mut self, id: ShmId, index: u64) -> &Frame {
        let frame = self.shm_frame(id, index);
        if !frame.is_unique() {
            frame.make_unique();
            self.invalidate_shm(id, index * PAGE, PAGE);
        }
        &self.shm[id].pages[&index]
    }

    /// Other frames hold a range of a shared object now, or none: drop stale platform mappings.
    pub(crate) fn invalidate_shm(&mut self, id: ShmId, from: u64, len: u64) {
        for (_, mm) in self.mms.iter_mut() {
            mm.invalidate_backing(from, len, &|backing: &Backing| match backing {
                Backing::Shm { id: i, offset } if *i == id => Some(*offset),
                _ => None,
            });
        }
    }

    /// A write to a mapped file changed which frame holds a page: drop stale platform mappings.
    pub fn invalidate_file(&mut self, ino: bloodhound_vfs::Ino, from: u64, len: u64) {
        let Some(users) = self.mapped.get(&ino) else { return };
        let ids: Vec<MmId> = users.keys().copied().collect();
        for id in ids {
            let Some(mm) = self.mms.get_mut(id) else { continue };
            mm.invalidate_backing(from, len, &|backing: &Backing| match backing {
                Backing::File { ino: i, offset } if *i == ino => Some(*offset),
                _ => None,
            });
        }
    }
}

impl Node {
    /// A file became shorter. Accesses behind its end are SIGBUS from now on, also where a private mapping has a copy: "If
    /// the size of the mapped file changes after the call to mmap() [...]" leaves it open (POSIX), Linux drops them.
    pub(crate) fn forget_beyond_end(&mut self, ino: bloodhound_vfs::Ino) {
        let Some(users) = self.mapped.get(&ino) else { return };
        let end = self.vfs.size(ino).div_ceil(PAGE) * PAGE;
        for id in users.keys().copied().collect::<Vec<_>>() {
            let Some(mm) = self.mms.get_mut(id) else { continue };
            let beyond = |v: &Vma| match v.backing {
                Backing::File { ino: i, offset } if i == ino => {
                    let start = v.start + end.saturating_sub(offset);
                    (start < v.end).then_some((start, v.end))
                }
                _ => None,
            };
            for (start, end) in mm.vmas().filter_map(beyond).collect::<Vec<_>>() {
                mm.pages.remove_range(start / PAGE, end / PAGE);
                mm.invalidate(start, end - start);
            }
            self.settle(id);
        }
    }
}

impl Mm {
    /// The platform forgets the bytes `from..from + len` of an object, wherever it is mapped; `offset_of` is where in
    /// the object a mapping of it begins.
    fn invalidate_backing(&mut self, from: u64, len: u64, offset_of: &impl Fn(&Backing) -> Option<u64>) {
        let hits: Vec<(u64, u64)> = self
            .vmas()
            .filter_map(|v| {
                let offset = offset_of(&v.backing)?;
                let low = from.max(offset);
                let high = from.saturating_add(len).min(offset + (v.end - v.start));
                (low < high).then(|| {
                    let start = v.start + ((low - offset) & !(PAGE - 1));
                    (start, v.start + (high - offset) - start)
                })
            })
            .collect();
        for (start, len) in hits {
            self.invalidate(start, len.div_ceil(PAGE) * PAGE);
        }
    }
}

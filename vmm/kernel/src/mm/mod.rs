//! Address spaces: VMAs, private pages and what a page fault means. The truth about memory is here; what a platform
//! has mapped is a cache of it (design rule 2). Changes that a platform must follow are queued as data in
//! [`Mm::invalid`].
//!
//! Neighbours: [`pages`] (private frames), [`fault`] (residency), [`user`] (copies to and from programs),
//! `sys::memory` (the system calls).

mod ahead;
pub mod anon;
pub mod code;
pub mod fault;
mod free;
mod grow;
pub mod pages;
pub mod shown;
pub mod user;

use std::sync::Arc;

pub use bloodhound_abi::Access;
use bloodhound_abi::consts as c;
use bloodhound_frames::Frame;
use bloodhound_persistent::Map;
use bloodhound_vfs::Ino;

use crate::container::ContainerId;
use crate::ids::*;
use crate::memory::Common;
use pages::PageTable;

/// Bytes in a page.
pub const PAGE: u64 = 4096;
/// One past the highest user address (47 bits less a guard for the platform's own pages).
pub const TASK_SIZE: u64 = 0x7fff_0000_0000;
/// Lowest address that mmap gives (vm.mmap_min_addr).
pub const MMAP_MIN: u64 = 0x1_0000;

/// Rounds up to a page boundary; `None` on overflow.
pub fn page_up(n: u64) -> Option<u64> {
    n.checked_add(PAGE - 1).map(|n| n & !(PAGE - 1))
}

/// What is behind a VMA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backing {
    /// Zeroes.
    Anon,
    /// A file from `offset` on (at the VMA's start).
    File {
        /// The inode; the VMA holds an open reference.
        ino: Ino,
        /// File offset of the VMA's first byte.
        offset: u64,
    },
    /// An unnamed shared object from `offset` on.
    Shm {
        /// The object.
        id: ShmId,
        /// Byte offset of the VMA's first byte.
        offset: u64,
    },
    /// Pages of the kernel's own ([vdso], [vvar]); their index is the page's number in the VMA.
    Special(&'static str),
}

/// What a child of fork(2) gets of a mapping (madvise(2)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFork {
    /// A copy.
    #[default]
    Copy,
    /// Nothing (MADV_DONTFORK).
    Omit,
    /// Zeroes (MADV_WIPEONFORK).
    Wipe,
    /// Nothing, and zeroes once MADV_DOFORK is said.
    OmitOrWipe,
}

impl OnFork {
    /// What comes of the two, which are said apart (VM_DONTCOPY and VM_WIPEONFORK).
    pub fn new(omits: bool, wipes: bool) -> OnFork {
        match (omits, wipes) {
            (false, false) => OnFork::Copy,
            (true, false) => OnFork::Omit,
            (false, true) => OnFork::Wipe,
            (true, true) => OnFork::OmitOrWipe,
        }
    }

    /// Whether MADV_DONTFORK was said of it.
    pub fn omits(self) -> bool {
        matches!(self, OnFork::Omit | OnFork::OmitOrWipe)
    }

    /// Whether MADV_WIPEONFORK was.
    pub fn wipes(self) -> bool {
        matches!(self, OnFork::Wipe | OnFork::OmitOrWipe)
    }
}

/// Whether a mapping is locked (mlock(2)). Nothing is ever paged out, so what counts is what it may cost, and when its pages are made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lock {
    /// Not at all.
    #[default]
    No,
    /// VM_LOCKED: its pages are there.
    Now,
    /// VM_LOCKONFAULT as well: "lock pages [...] when they are faulted in" (mlock2(2)).
    OnFault,
}

/// How a mapping will be read (MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL): without effect, but on what mappings are one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadAhead {
    /// As usual.
    #[default]
    Normal,
    /// VM_RAND_READ.
    Random,
    /// VM_SEQ_READ.
    Sequential,
}

/// What else is said of a mapping.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// MAP_GROWSDOWN.
    pub grows: bool,
    /// mlock(2).
    pub lock: Lock,
    /// MAP_NORESERVE: nothing is set aside for it, and it stays apart from mappings that are accounted (VM_NORESERVE).
    pub no_reserve: bool,
    /// Memory is set aside for it, as it is private and can be written or could be once (VM_ACCOUNT): that keeps it apart from mappings that
    /// never could.
    pub accounted: bool,
    /// madvise(2).
    pub read_ahead: ReadAhead,
    /// Its own pages, of a private mapping.
    pub anon: anon::Anon,
    /// Of a file that mmap(2) has mapped: the open file description, which each part of the mapping holds (`vm_file`). Its locks and
    /// leases last until the last part is gone, and mappings of other descriptions are others.
    pub file: Option<FileId>,
    /// Which of the calls of shmat(2) that have attached its segment it comes from, counted from 1; 0 if it is of no segment. All pieces
    /// of what one call has attached have one file (`vm_file`), another than those of other calls.
    pub attach: u64,
    /// It is a mapping of /dev/zero without an object: a private one, or a shared one of a file that is open for reading only. Such is anonymous memory that
    /// keeps its file (mmap_zero), by which it is shown and apart from other mappings.
    pub zero: Option<ZeroFile>,
}

/// The /dev/zero of such a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZeroFile {
    /// Its node in the file system.
    pub ino: Ino,
    /// The address at which offset 0 would lie: parts of one mapping have it in common.
    pub first: u64,
}

/// A mapped range of addresses with one protection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vma {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// PROT_* bits.
    pub prot: u64,
    /// MAP_SHARED.
    pub shared: bool,
    /// What is behind it.
    pub backing: Backing,
    /// What fork does with it.
    pub on_fork: OnFork,
    /// May be written although shared (the file was open for writing).
    pub may_write: bool,
    /// The rest.
    pub marks: Marks,
}

impl Vma {
    /// VM_MAYSHARE: it was asked for as a shared one, also where the kernel made it private (see [`Marks::zero`]).
    pub fn is_shown_shared(&self) -> bool {
        self.shared || self.marks.zero.is_some() && !self.may_write
    }

    /// The part `start..end` of this VMA.
    fn slice(&self, start: u64, end: u64) -> Vma {
        let skip = start - self.start;
        let backing = match &self.backing {
            Backing::File { ino, offset } => Backing::File { ino: *ino, offset: offset + skip },
            Backing::Shm { id, offset } => Backing::Shm { id: *id, offset: offset + skip },
            other => other.clone(),
        };
        Vma { start, end, backing, ..self.clone() }
    }

    /// Whether memory is set aside for a mapping of this kind (`accountable_mapping` of Linux).
    pub fn accounts(prot: u64, shared: bool, no_reserve: bool) -> bool {
        prot & c::PROT_WRITE != 0 && !shared && !no_reserve
    }

    /// Gives it another protection. What is set aside for it stays so: "without finer accounting [Linux] cannot reduce [its] commit if [it
    /// makes] it unwritable again" (mprotect_fixup).
    pub fn protect(&mut self, prot: u64) {
        self.prot = prot;
        self.marks.accounted |= Vma::accounts(prot, self.shared, self.marks.no_reserve);
    }

    /// Whether RLIMIT_DATA is about it: private and writable, and not of a stack (`is_data_mapping` of Linux).
    pub fn is_data(&self) -> bool {
        self.prot & c::PROT_WRITE != 0 && !self.shared && !self.marks.grows
    }

    /// Whether it and the next one are alike and lie side by side, apart from their own pages. Pieces of a segment are never joined: "if
    /// (vma->vm_ops && vma->vm_ops->close) return 0" (is_mergeable_vma), and shm_vm_ops has such a function.
    fn continues(&self, next: &Vma) -> bool {
        self.end == next.start
            && self.marks.attach == 0
            && self.prot == next.prot
            && self.shared == next.shared
            && self.on_fork == next.on_fork
            && self.may_write == next.may_write
            && self.marks == Marks { anon: self.marks.anon, ..next.marks }
            && match (&self.backing, &next.backing) {
                (Backing::Anon, Backing::Anon) => true,
                (Backing::File { ino: a, offset: x }, Backing::File { ino: b, offset: y }) => {
                    a == b && x + (self.end - self.start) == *y
                }
                (Backing::Shm { id: a, offset: x }, Backing::Shm { id: b, offset: y }) => {
                    a == b && x + (self.end - self.start) == *y
                }
                _ => false,
            }
    }
}

/// An address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mm {
    /// A name no other address space of this world has, for the platform's cache.
    pub space: u64,
    /// Processes that use it (vfork shares it).
    pub users: u32,
    /// The container that it is charged to.
    pub container: ContainerId,
    /// Private pages that it was charged for when that was settled last ([`Node::settle`](crate::node::Node)).
    pub charged: u64,
    /// The most pages that were resident.
    pub peak: u64,
    vmas: Map<u64, Vma>,
    /// Private pages.
    pub pages: PageTable,
    /// Ranges (address, bytes) whose platform mappings are stale.
    pub invalid: Vec<(u64, u64)>,
    /// Ranges (first address, one past the last) which the program is about to touch ([`Node::take_ahead`](crate::node::Node)).
    ahead: ahead::Expected,
    /// Writable platform mappings are stale: private pages have become shared.
    pub protect: bool,
    /// The address space which this one was forked from: what the platform shows there will do here, read-only.
    pub parent: Option<u64>,
    /// Start and current end of the heap.
    pub brk: (u64, u64),
    /// mmap places mappings below this.
    pub mmap_base: u64,
    /// Where the initial stack ends.
    pub stack_top: u64,
    /// Where the arguments of the program begin, and where its environment does, which ends at the third address (`arg_start`,
    /// `arg_end` and `env_start`, `env_end`).
    pub strings: [u64; 3],
    /// Pages of the vDSO image.
    pub vdso: Arc<Vec<Frame>>,
    /// Bytes mapped.
    pub total: u64,
    /// Those of them that RLIMIT_DATA is about.
    pub data: u64,
    /// Those that are locked.
    pub locked: u64,
    /// How mappings to come are locked (MCL_FUTURE).
    pub lock_future: Lock,
    /// Registrations of membarrier(2), as the commands that made them: those of private expedited barriers.
    pub membarrier: u32,
    /// The program's file, which nobody can write meanwhile (ETXTBSY).
    pub exe: Option<Ino>,
    /// What else is kept.
    pub kept: Kept,
    /// How many sets of pages there have been ([`anon`]).
    sets: u64,
    /// Where there is no room.
    searched: free::Searched,
}

/// What is kept for an address space beside what is mapped. A child of fork(2) has the same, and so has the program that is executed next
/// (MMF_INIT_MASK), which is dumpable mostly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// PR_SET_DUMPABLE.
    pub dumpable: u64,
    /// PR_SET_THP_DISABLE.
    pub thp_disable: bool,
    /// coredump_filter of /proc/PID.
    pub coredump_filter: u32,
}

impl Default for Kept {
    fn default() -> Kept {
        Kept { dumpable: 1, thp_disable: false, coredump_filter: 0x33 }
    }
}

/// What an address space had mapped once ([`Mm::layout`]).
#[derive(Clone, Debug)]
pub struct Layout(Map<u64, Vma>);

impl Mm {
    /// An empty address space.
    pub fn new(space: u64, container: ContainerId) -> Mm {
        Mm {
            space,
            users: 1,
            container,
            charged: 0,
            peak: 0,
            membarrier: 0,
            vmas: Map::new(),
            pages: PageTable::default(),
            invalid: Vec::new(),
            ahead: ahead::Expected::default(),
            protect: false,
            parent: None,
            brk: (0, 0),
            mmap_base: TASK_SIZE - (64 << 20),
            stack_top: TASK_SIZE,
            strings: [0; 3],
            vdso: Arc::new(Vec::new()),
            total: 0,
            data: 0,
            locked: 0,
            lock_future: Lock::No,
            exe: None,
            kept: Kept::default(),
            sets: 0,
            searched: free::Searched::none(),
        }
    }

    /// The copy that fork makes. Private pages become common until written: the parent's platform mappings are
    /// stale as well. Both are to be settled.
    pub fn fork(&mut self, space: u64, common: &mut Common) -> Mm {
        debug_assert!(!self.pages.has_left(), "an address space is settled before it is forked");
        self.protect = true;
        self.pages.share(common);
        let mut child = self.clone();
        child.space = space;
        child.users = 1;
        child.charged = 0;
        child.protect = false;
        child.parent = Some(self.space);
        child.invalid.clear();
        child.ahead = ahead::Expected::default();
        // "Memory locks are not inherited by a child created via fork(2)" (mlock(2)).
        child.lock_future = Lock::No;
        // Mappings that only that kept apart stay so (dup_mmap).
        if child.locked > 0 {
            let starts: Vec<u64> = child.vmas.keys().copied().collect();
            for start in starts {
                if let Some(vma) = child.vmas.get_mut(&start) {
                    vma.marks.lock = Lock::No;
                }
            }
            child.locked = 0;
        }
        let special: Vec<Vma> = child.vmas.values().filter(|v| v.on_fork != OnFork::Copy).cloned().collect();
        for vma in special {
            if vma.on_fork.omits() {
                child.remove(vma.start, vma.end);
            } else {
                child.pages.remove_range(vma.start / PAGE, vma.end / PAGE);
                if let Some(wiped) = child.vmas.get_mut(&vma.start) {
                    wiped.marks.anon = vma.marks.anon.without_pages();
                }
            }
        }
        child.separate_sets();
        child.invalid.clear();
        // "mm->hiwater_rss = get_mm_rss(mm)" (dup_mm).
        child.peak = child.pages.len();
        child
    }

    /// How many bytes of a mapping are data.
    fn data_of(vma: &Vma) -> u64 {
        if vma.is_data() { vma.end - vma.start } else { 0 }
    }

    /// How many bytes of a mapping are locked.
    fn locked_of(vma: &Vma) -> u64 {
        if vma.marks.lock == Lock::No { 0 } else { vma.end - vma.start }
    }

    /// Locks, or unlocks, whatever can be.
    pub fn mark_all(&mut self, lock: Lock) {
        let ranges: Vec<(u64, u64)> = self.vmas.values().map(|v| (v.start, v.end)).collect();
        for (start, end) in ranges {
            self.mark(start, end, lock);
        }
    }

    /// Locks, or unlocks, a part of one mapping. The kernel's own pages cannot be (mlock_fixup).
    pub fn mark(&mut self, start: u64, end: u64, lock: Lock) {
        let differs = |v: &Vma| v.marks.lock != lock && !matches!(v.backing, Backing::Special(_));
        if !self.find(start).is_some_and(differs) {
            return;
        }
        for mut piece in self.cut(start, end) {
            piece.marks.lock = lock;
            self.insert(piece);
        }
    }

    /// How many mappings there are.
    pub fn count(&self) -> usize {
        self.vmas.len()
    }

    /// All VMAs in address order.
    pub fn vmas(&self) -> impl DoubleEndedIterator<Item = &Vma> {
        self.vmas.values()
    }

    /// The VMA that holds `addr`.
    pub fn find(&self, addr: u64) -> Option<&Vma> {
        self.vmas.range(..=addr).next_back().map(|(_, v)| v).filter(|v| addr < v.end)
    }

    /// What is mapped where, to be compared later.
    pub fn layout(&self) -> Layout {
        Layout(self.vmas.clone())
    }

    /// Whether nothing was mapped or unmapped since. False does not mean that something was.
    pub fn has(&self, layout: &Layout) -> bool {
        self.vmas.same(&layout.0)
    }

    /// Ranges of addresses (first one, and one past the last) in which nothing is mapped, by rising address, without the last
    /// `margin` bytes before a mapping, into which one may grow by a page fault.
    pub fn free(&self, margin: u64) -> Vec<(u64, u64)> {
        let starts = self.vmas.values().map(|vma| vma.start).chain([TASK_SIZE]);
        let ends = [MMAP_MIN].into_iter().chain(self.vmas.values().map(|vma| vma.end));
        let gaps = ends.zip(starts.map(|start| start.saturating_sub(margin)));
        gaps.filter(|(from, to)| from < to).collect()
    }

    /// Whether any address of the range is mapped.
    pub fn overlaps(&self, start: u64, end: u64) -> bool {
        self.vmas.range(..end).next_back().is_some_and(|(_, v)| v.end > start)
    }

    /// The VMAs that touch the range, cut to it.
    pub fn slices(&self, start: u64, end: u64) -> Vec<Vma> {
        let first = self.vmas.range(..=start).next_back().map_or(start, |(s, _)| *s);
        self.vmas
            .range(first..end)
            .filter(|(_, v)| v.end > start)
            .map(|(_, v)| v.slice(v.start.max(start), v.end.min(end)))
            .collect()
    }

    /// Whole VMAs in any of the ranges or right next to one, if they are `wanted`, in address order.
    pub fn touching(&self, ranges: &[(u64, u64)], wanted: impl Fn(&Vma) -> bool) -> Vec<Vma> {
        let mut found: Vec<Vma> = Vec::new();
        for (start, end) in ranges {
            let first = self.vmas.range(..start).next_back().map_or(*start, |(s, _)| *s);
            let touches = |v: &&Vma| v.end >= *start && wanted(v);
            found.extend(self.vmas.range(first..=*end).map(|(_, v)| v).filter(touches).cloned());
        }
        if ranges.len() > 1 {
            found.sort_by_key(|vma| vma.start);
            found.dedup_by_key(|vma| vma.start);
        }
        found
    }

    /// Whether every address of the range is mapped.
    pub fn covered(&self, start: u64, end: u64) -> bool {
        self.slices(start, end).iter().map(|v| v.end - v.start).sum::<u64>() == end - start
    }

    /// Adds `vma` to a free range; neighbours that continue each other become one.
    pub fn insert(&mut self, mut vma: Vma) {
        debug_assert!(!self.overlaps(vma.start, vma.end) && vma.start < vma.end);
        self.total += vma.end - vma.start;
        self.data += Mm::data_of(&vma);
        self.locked += Mm::locked_of(&vma);
        let (before, after, anon) = self.joined_with(&vma);
        let (before, after) = (before.cloned(), after.map(|after| (after.start, after.end)));
        if let Some(before) = before {
            self.vmas.remove(&before.start);
            vma = Vma { end: vma.end, ..before };
        }
        if let Some((start, end)) = after {
            self.vmas.remove(&start);
            vma.end = end;
        }
        vma.marks.anon = anon;
        self.vmas.insert(vma.start, vma);
    }

    /// Takes the range out of the map, keeping private pages; returns the cut pieces.
    fn cut(&mut self, start: u64, end: u64) -> Vec<Vma> {
        let pieces = self.slices(start, end);
        for piece in &pieces {
            let Some((&at, _)) = self.vmas.range(..=piece.start).next_back() else { continue };
            let Some(whole) = self.vmas.remove(&at) else { continue };
            if whole.start < piece.start {
                self.vmas.insert(whole.start, whole.slice(whole.start, piece.start));
            }
            if whole.end > piece.end {
                self.vmas.insert(piece.end, whole.slice(piece.end, whole.end));
            }
            self.total -= piece.end - piece.start;
            self.data -= Mm::data_of(piece);
            self.locked -= Mm::locked_of(piece);
        }
        pieces
    }

    /// Unmaps the range; returns what was there, so that file references can be dropped.
    pub fn remove(&mut self, start: u64, end: u64) -> Vec<Vma> {
        let pieces = self.cut(start, end);
        if !pieces.is_empty() {
            self.pages.remove_range(start / PAGE, end / PAGE);
            self.invalidate(start, end - start);
            self.freed(end);
        }
        pieces
    }

    /// Applies `change` to every VMA piece in the range, which may be empty.
    pub fn change(&mut self, start: u64, end: u64, change: impl Fn(&mut Vma)) {
        if start >= end {
            return;
        }
        // What the change changes nothing of stays as it is, apart from neighbours that it could be joined with by now.
        for piece in self.slices(start, end) {
            let mut changed = piece.clone();
            change(&mut changed);
            if changed != piece {
                self.cut(piece.start, piece.end);
                self.insert(changed);
            }
        }
        self.invalidate(start, end - start);
    }

    /// Tells the platform to forget what it has mapped there.
    pub fn invalidate(&mut self, start: u64, len: u64) {
        if let Some((at, n)) = self.invalid.last_mut()
            && start >= *at
            && start + len <= *at + *n
        {
            return;
        }
        self.invalid.push((start, len));
    }

    /// Checks the protection of an access as the CPU would: SEGV_MAPERR or SEGV_ACCERR.
    pub fn check(&self, addr: u64, access: Access) -> Result<&Vma, i32> {
        let vma = self.find(addr).ok_or(c::SEGV_MAPERR as i32)?;
        let allowed = match access {
            // x86-64 cannot map write-only or (without keys) execute-only pages: both can be read.
            Access::Read => vma.prot & (c::PROT_READ | c::PROT_WRITE | c::PROT_EXEC) != 0,
            Access::Write => vma.prot & c::PROT_WRITE != 0,
            Access::Exec => vma.prot & c::PROT_EXEC != 0,
        };
        if allowed { Ok(vma) } else { Err(c::SEGV_ACCERR as i32) }
    }
}

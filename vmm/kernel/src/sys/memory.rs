//! mmap(2), munmap(2), mprotect(2), brk(2), msync(2); beside it madvise(2), mremap(2) and mlock(2).

mod advice;
mod backing;
mod limits;
mod lock;
mod remap;

pub use advice::madvise;
pub(super) use advice::{MADV_COLLAPSE, hint};
pub use lock::{mlock, mlock2, mlockall, munlock, munlockall};
pub use remap::mremap;

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::ctx::*;
use crate::file::FileKind;
use crate::ids::*;
use crate::mm::{Backing, Lock, MMAP_MIN, Marks, OnFork, PAGE, TASK_SIZE, Vma, ZeroFile, page_up};
use crate::node::Shm;
use crate::task::READ_IMPLIES_EXEC;
use crate::wait::SysResult;

/// linux/mman.h.
const MAP_32BIT: u64 = 0x40;
const MAP_UNINITIALIZED: u64 = 0x400_0000;
const MAP_HUGE_SIZES: u64 = 0x3f << 26;
/// LEGACY_MAP_MASK: what MAP_SHARED_VALIDATE knows of any file.
const VALIDATED: u64 = c::MAP_TYPE
    | c::MAP_FIXED
    | c::MAP_ANONYMOUS
    | MAP_32BIT
    | c::MAP_GROWSDOWN
    | c::MAP_DENYWRITE
    | c::MAP_EXECUTABLE
    | c::MAP_LOCKED
    | c::MAP_NORESERVE
    | c::MAP_POPULATE
    | c::MAP_NONBLOCK
    | c::MAP_STACK
    | c::MAP_HUGETLB
    | MAP_UNINITIALIZED
    | MAP_HUGE_SIZES;

/// mmap(2). Which of several errors shows is decided by the order in Linux: ksys_mmap_pgoff looks at the descriptor, do_mmap
/// at length, offset and address, and then at flags and rights.
pub fn mmap(
    k: &mut Ctx<'_>,
    addr: Ptr,
    len: u64,
    prot: Prot,
    flags: MapFlags,
    fd: Fd,
    offset: u64,
) -> SysResult {
    let flags = flags.bits();
    if !offset.is_multiple_of(PAGE) {
        return err(Errno::EINVAL);
    }
    // "EBADF fd is not a valid file descriptor (and MAP_ANONYMOUS was not set)."
    let file = if flags & c::MAP_ANONYMOUS == 0 { Some(k.file_id(fd)?) } else { None };
    if flags & c::MAP_HUGETLB != 0 {
        // There is no hugetlbfs (hstate_sizelog without CONFIG_HUGETLB_PAGE), and no file of it.
        return err(Errno::EINVAL);
    }
    if len == 0 {
        return err(Errno::EINVAL);
    }
    let len = page_up(len).filter(|l| *l > 0).ok_or(Errno::ENOMEM)?;
    let start = k.mmap_address(addr, len, flags)?;
    k.may_take_memory()?;
    // file_mmap_ok: what no file can have.
    if let Some(id) = file
        && offset.checked_add(len).is_none_or(|end| end > k.mappable_size(id))
    {
        return err(Errno::EOVERFLOW);
    }
    let shared = is_shared(flags, file.is_some())?;
    // "EPERM"; grows down what is private and anonymous only.
    let grows = flags & c::MAP_GROWSDOWN != 0;
    if flags & c::MAP_LOCKED != 0 && !k.can_lock() {
        return err(Errno::EPERM);
    }
    if grows && shared && file.is_none() {
        return err(Errno::EINVAL);
    }
    let (backing, may_write) = match file {
        Some(id) => {
            let backing = k.mmap_file(id, len, prot.bits(), shared, offset);
            if backing == err(Errno::ENODEV) && flags & c::MAP_FIXED != 0 && k.asks_late(id) {
                let mm = k.process().mm;
                k.node.with_recount(k.pid, mm, &[(start, start + len)], |m| m.remove(start, start + len));
            }
            backing?
        }
        None => (k.mmap_anonymous(len, shared), true),
    };
    if grows && file.is_some() {
        k.node.forget_backing(&backing);
        return err(Errno::EINVAL);
    }
    let prot = k.implied(prot.access());
    let future = k.mm().lock_future;
    let lock = if flags & c::MAP_LOCKED != 0 && future == Lock::No { Lock::Now } else { future };
    let no_reserve = flags & c::MAP_NORESERVE != 0;
    let accounted = Vma::accounts(prot, shared, no_reserve);
    let zero = file.filter(|_| backing == Backing::Anon).and_then(|id| k.node.files[id].ino());
    let shared = shared && backing != Backing::Anon;
    let zero = zero.map(|ino| ZeroFile { ino, first: start.wrapping_sub(offset) });
    let held = file.filter(|_| matches!(backing, Backing::File { .. }));
    let marks = Marks { grows, lock, no_reserve, accounted, zero, file: held, ..Marks::default() };
    let vma = Vma { start, end: start + len, prot, shared, backing, on_fork: OnFork::Copy, may_write, marks };
    let (mm, fixed) = (k.process().mm, flags & (c::MAP_FIXED | c::MAP_FIXED_NOREPLACE) != 0);
    let allowed = if k.lock_would_exceed(&vma) { Err(Errno::EAGAIN) } else { Ok(()) };
    if let Err(errno) = allowed.and_then(|()| k.may_map(&vma)) {
        k.node.forget_backing(&vma.backing);
        return err(errno);
    }
    k.put_mapping(mm, vma, fixed);
    if lock == Lock::Now {
        k.populate(start, start + len);
    } else if flags & (c::MAP_POPULATE | c::MAP_NONBLOCK) == c::MAP_POPULATE {
        k.make_pages((start, start + len), |_| true);
    }
    if let Some(id) = file {
        // "The st_atime field for the mapped file may be updated at any time between the mmap() and the corresponding unmapping";
        // Linux' file systems do so in mmap (file_accessed).
        k.accessed(id);
    }
    Ok(start)
}

/// What the kind of a mapping says, which only of a file may be one that looks at its flags.
fn is_shared(flags: u64, of_file: bool) -> Result<bool, Errno> {
    match flags & c::MAP_TYPE {
        c::MAP_SHARED => Ok(true),
        c::MAP_PRIVATE => Ok(false),
        c::MAP_SHARED_VALIDATE if of_file && flags & 0xffff_ffff & !VALIDATED != 0 => Err(Errno::EOPNOTSUPP),
        c::MAP_SHARED_VALIDATE if of_file => Ok(true),
        _ => Err(Errno::EINVAL),
    }
}

/// Whether two mappings are of one file: a loader maps a library as a whole, and its segments over that.
fn is_same_file(one: &Backing, other: &Backing) -> bool {
    matches!((one, other), (Backing::File { ino: one, .. }, Backing::File { ino: other, .. }) if one == other)
}

impl Ctx<'_> {
    /// Makes a mapping, in place of what is there if it is `fixed`.
    fn put_mapping(&mut self, mm: MmId, vma: Vma, fixed: bool) {
        let mut segment = false;
        self.node.with_recount(self.pid, mm, &[(vma.start, vma.end)], |m| {
            if fixed {
                let before = m.remove(vma.start, vma.end);
                segment = before.iter().any(|old| is_same_file(&old.backing, &vma.backing));
            }
            if matches!(vma.backing, Backing::File { .. }) {
                m.expect(vma.start, vma.end);
            }
            m.insert(vma.clone());
        });
        if segment {
            self.node.copy_data(mm, &vma);
        }
    }

    /// The protection that is meant by one, by personality(2).
    fn implied(&self, prot: u64) -> u64 {
        let exec = prot & c::PROT_READ != 0 && self.task().persona & READ_IMPLIES_EXEC != 0;
        if exec { prot | c::PROT_EXEC } else { prot }
    }

    /// Where the mapping goes (get_unmapped_area).
    fn mmap_address(&mut self, addr: Ptr, len: u64, flags: u64) -> SysResult {
        let mm = self.process().mm;
        if len > TASK_SIZE {
            return err(Errno::ENOMEM);
        }
        if flags & (c::MAP_FIXED | c::MAP_FIXED_NOREPLACE) == 0 {
            let mm = &mut self.node.mms[mm];
            let low = flags & MAP_32BIT != 0;
            return Ok(if low { mm.find_free_low(addr.0, len)? } else { mm.find_free(addr.0, len)? });
        }
        let end = addr.0.checked_add(len).filter(|e| *e <= TASK_SIZE).ok_or(Errno::ENOMEM)?;
        if !addr.0.is_multiple_of(PAGE) {
            return err(Errno::EINVAL);
        }
        if addr.0 < MMAP_MIN {
            return err(Errno::EPERM);
        }
        if flags & c::MAP_FIXED_NOREPLACE != 0 && self.node.mms[mm].overlaps(addr.0, end) {
            return err(Errno::EEXIST);
        }
        Ok(addr.0)
    }

    /// Memory without a file; shared memory is an unnamed object.
    fn mmap_anonymous(&mut self, len: u64, shared: bool) -> Backing {
        if !shared {
            return Backing::Anon;
        }
        let container = self.process().container;
        let id = self.node.shm.insert(Shm { size: len, container, ..Shm::default() });
        Backing::Shm { id, offset: 0 }
    }

    /// Whether a file that cannot be mapped says so only when what was there is gone already: sockets have a function for it, which
    /// fails (sock_no_mmap).
    fn asks_late(&self, id: FileId) -> bool {
        matches!(self.node.files[id].kind, FileKind::Unix(_) | FileKind::Inet(_) | FileKind::Netlink(_))
    }

    /// Where a mapping of a file may end at most: regular files and sockets have signed offsets (file_mmap_size_max).
    fn mappable_size(&self, id: FileId) -> u64 {
        let signed = self.asks_late(id) || matches!(self.node.files[id].kind, FileKind::Regular(_));
        if signed { i64::MAX as u64 } else { u64::MAX }
    }

    /// What stands behind a mapping of a file, and whether it may ever become writable.
    fn mmap_file(
        &mut self,
        id: FileId,
        len: u64,
        prot: u64,
        shared: bool,
        offset: u64,
    ) -> SysResult<(Backing, bool)> {
        let file = &self.node.files[id];
        let (readable, writable) = (file.readable(), file.writable());
        let kind = file.kind.clone();
        // "EACCES A file mapping was requested, but fd is not open for reading. Or MAP_SHARED was requested and PROT_WRITE
        // is set, but fd is not open in read/write (O_RDWR) mode."
        if !readable || (shared && prot & c::PROT_WRITE != 0 && !writable) {
            return err(Errno::EACCES);
        }
        match kind {
            FileKind::Regular(ino) if shared => {
                let open = self.may_share(ino, prot & c::PROT_WRITE != 0)?;
                Ok((Backing::File { ino, offset }, writable && open))
            }
            FileKind::Regular(ino) => Ok((Backing::File { ino, offset }, true)),
            // /dev/zero: private mappings are anonymous memory, shared ones an unnamed object (mem(4)).
            FileKind::Device { dev, .. } if dev.major == 1 && dev.minor == 5 => {
                // Of a shared one of a file that is open for reading only, VM_SHARED and VM_MAYWRITE are taken away before /dev/zero is asked (do_mmap).
                let memory = match self.mmap_anonymous(len, shared && writable) {
                    // Pages from the offset on of an object that is only as large as the mapping (shmem_zero_setup).
                    Backing::Shm { id, .. } => Backing::Shm { id, offset },
                    other => other,
                };
                Ok((memory, !shared || writable))
            }
            _ => err(Errno::ENODEV),
        }
    }
}

fn range(addr: u64, len: u64) -> Result<(u64, u64), Errno> {
    if !addr.is_multiple_of(PAGE) {
        return Err(Errno::EINVAL);
    }
    let end = page_up(len).and_then(|l| addr.checked_add(l)).ok_or(Errno::EINVAL)?;
    Ok((addr, end))
}

/// remap_file_pages(2): other pages of the file behind a shared mapping, "emulated" as a mapping of its own since Linux 4.0.
pub fn remap_file_pages(
    k: &mut Ctx<'_>,
    start: Ptr,
    size: u64,
    prot: Prot,
    page: u64,
    flags: MapFlags,
) -> SysResult {
    let (from, size) = (start.0 & !(PAGE - 1), size & !(PAGE - 1));
    let end = from.checked_add(size).filter(|end| *end > from).ok_or(Errno::EINVAL)?;
    let last = page.checked_add(size / PAGE).filter(|last| *last <= i64::MAX as u64 / PAGE);
    if !prot.is_empty() || last.is_none() {
        return err(Errno::EINVAL);
    }
    let mm = k.process().mm;
    // "EINVAL start does not refer to a valid mapping created with the MAP_SHARED flag": from `start` on it may be several, of one open
    // file and with the same flags ("if (next->vm_flags != vma->vm_flags) goto out").
    let slices = k.node.mms[mm].slices(from, end);
    let Some(first) = slices.first().cloned() else { return err(Errno::EINVAL) };
    let same = |v: &Vma| match (&v.backing, &first.backing) {
        (Backing::File { ino, .. }, Backing::File { ino: of, .. }) => ino == of,
        (Backing::Shm { id, .. }, Backing::Shm { id: of, .. }) => id == of,
        _ => false,
    };
    let alike = |v: &Vma| v.prot == first.prot && v.on_fork == first.on_fork && v.marks == first.marks;
    let fits = |v: &Vma| same(v) && v.shared && v.may_write && alike(v);
    if !slices.iter().all(fits) || !k.node.mms[mm].covered(from, end) {
        return err(Errno::EINVAL);
    }
    let offset = page * PAGE;
    let backing = match first.backing {
        Backing::File { ino, .. } => Backing::File { ino, offset },
        Backing::Shm { id, .. } => Backing::Shm { id, offset },
        _ => return err(Errno::EINVAL),
    };
    // It is as mmap(2) makes it anew (do_mmap): locked if the first one is, and with no advice of madvise(2).
    let (locked, future) = (first.marks.lock != Lock::No, k.mm().lock_future);
    let lock = if locked && future == Lock::No { Lock::Now } else { future };
    let marks = Marks { lock, no_reserve: false, read_ahead: Default::default(), ..first.marks };
    let vma = Vma { start: from, end, backing, on_fork: OnFork::Copy, marks, ..first };
    if locked && !k.can_lock() {
        return err(Errno::EPERM);
    }
    if k.lock_would_exceed(&vma) {
        return err(Errno::EAGAIN);
    }
    // The mapping is taken away first, with which a segment goes that was only waiting for that; the new mapping finds it gone (shm_mmap).
    if k.are_last_of_removed(mm, &slices) {
        k.node.with_recount(k.pid, mm, &[(from, end)], |m| drop(m.remove(from, end)));
        return err(Errno::EINVAL);
    }
    k.node.with_recount(k.pid, mm, &[(from, end)], |m| {
        m.remove(from, end);
        m.insert(vma);
    });
    if flags.bits() & c::MAP_NONBLOCK == 0 {
        k.populate(from, end);
    }
    Ok(0)
}

/// munmap(2). EINVAL for an address that is not aligned, or no length.
pub fn munmap(k: &mut Ctx<'_>, addr: Ptr, len: u64) -> SysResult {
    let (start, end) = range(addr.0, len)?;
    if start == end || end > TASK_SIZE {
        return err(Errno::EINVAL);
    }
    let mm = k.process().mm;
    k.may_cut_out(start, end)?;
    k.node.with_recount(k.pid, mm, &[(start, end)], |m| m.remove(start, end));
    Ok(0)
}

/// mprotect(2). EACCES for more than the file allows; ENOMEM where nothing is mapped.
pub fn mprotect(k: &mut Ctx<'_>, addr: Ptr, len: u64, prot: Prot) -> SysResult {
    // "can't be both" (do_mprotect_pkey).
    let both = Prot::PROT_GROWSDOWN | Prot::PROT_GROWSUP;
    if prot.contains(both) || !addr.0.is_multiple_of(PAGE) {
        return err(Errno::EINVAL);
    }
    // Unknown bits are looked at only after that.
    if len == 0 {
        return Ok(0);
    }
    let (start, end) = range(addr.0, len).map_err(|_| Errno::ENOMEM)?;
    if prot.exceeds(Prot::all()) {
        return err(Errno::EINVAL);
    }
    let mm = k.process().mm;
    if prot.contains(Prot::PROT_GROWSUP) {
        // On x86 nothing grows up.
        return err(if k.node.mms[mm].find(start).is_some() { Errno::EINVAL } else { Errno::ENOMEM });
    }
    let mut start = start;
    if prot.contains(Prot::PROT_GROWSDOWN) {
        // "Apply the protection mode up to the beginning of a mapping that grows downward (which should be a stack
        // segment [...])": ld.so makes stacks executable so.
        let m = &k.node.mms[mm];
        start = match m.slices(start, end).first().and_then(|first| m.find(first.start)) {
            Some(v) if v.marks.grows => v.start,
            Some(_) => return err(Errno::EINVAL),
            None => return err(Errno::ENOMEM),
        };
    }
    let prot = k.implied(prot.access());
    let mut slices = k.node.mms[mm].slices(start, end);
    // Mapping by mapping: what lies before a gap, or one that may not be written, is changed although the call fails.
    let (wanted, mut end, mut refused) = (end, start, Errno::ENOMEM);
    let fits = |v: &Vma| !(prot & c::PROT_WRITE != 0 && v.is_shown_shared() && !v.may_write);
    let mut count = 0;
    for vma in &slices {
        if vma.start != end {
            break;
        }
        if !fits(vma) {
            refused = Errno::EACCES;
            break;
        }
        (end, count) = (vma.end, count + 1);
    }
    slices.truncate(count);
    if slices.is_empty() {
        return err(refused);
    }
    k.may_protect(&slices, (start, end), prot)?;
    k.node.with_recount(k.pid, mm, &[(start, end)], |m| {
        m.change(start, end, |v| v.protect(prot));
        m.expect_if_small(start, end);
    });
    if prot & c::PROT_EXEC == 0 {
        k.node.mms[mm].pages.forget_code(start / PAGE, end / PAGE);
    }
    if end == wanted { Ok(0) } else { err(refused) }
}

/// brk(2) as the kernel has it: the break as it is then, no error.
pub fn brk(k: &mut Ctx<'_>, addr: Ptr) -> SysResult {
    let mm = k.process().mm;
    let (start, current) = k.node.mms[mm].brk;
    let wanted = addr.0;
    // "On error, the current break" is what the system call returns.
    if wanted < start || wanted > TASK_SIZE {
        return Ok(current);
    }
    let (Some(old_end), Some(new_end)) = (page_up(current), page_up(wanted)) else { return Ok(current) };
    let data_limit = k.process().limits[c::RLIMIT_DATA as usize].cur;
    if wanted - start > data_limit {
        return Ok(current);
    }
    let prot = k.implied(c::PROT_READ | c::PROT_WRITE);
    let heap = Vma {
        start: old_end,
        end: new_end.max(old_end),
        prot,
        shared: false,
        backing: Backing::Anon,
        on_fork: OnFork::Copy,
        may_write: true,
        marks: Marks { lock: k.mm().lock_future, accounted: true, ..Marks::default() },
    };
    if new_end > old_end && (k.lock_would_exceed(&heap) || k.may_take_memory().is_err()) {
        return Ok(current);
    }
    // "Check against existing mmap mappings": a page stays free below the next one, and what was unmapped otherwise is not given back ("if
    // (!brkvma || brkvma->vm_start >= oldbrk) goto out").
    let next_is_near = k.node.mms[mm].is_near(old_end, new_end.max(old_end) + PAGE);
    if new_end > old_end && (k.may_map(&heap).is_err() || next_is_near) {
        return Ok(current);
    }
    if new_end < old_end && !k.node.mms[mm].overlaps(new_end, old_end) {
        return Ok(current);
    }
    let m = &mut k.node.mms[mm];
    if new_end > old_end {
        m.insert(heap);
    } else if new_end < old_end {
        m.remove(new_end, old_end);
    }
    m.brk.1 = wanted;
    let lock = m.lock_future;
    k.node.settle(mm);
    if lock == Lock::Now && new_end > old_end {
        k.populate(old_end, new_end);
    }
    Ok(wanted)
}

/// msync(2). ENOMEM where nothing is mapped, after all else was synchronised.
pub fn msync(k: &mut Ctx<'_>, addr: Ptr, len: u64, flags: MsyncFlags) -> SysResult {
    let both = MsyncFlags::MS_SYNC | MsyncFlags::MS_ASYNC;
    if flags.exceeds(MsyncFlags::all()) || flags.contains(both) {
        return err(Errno::EINVAL);
    }
    if !addr.0.is_multiple_of(PAGE) {
        return err(Errno::EINVAL);
    }
    // A length that wraps when it is rounded up is none; one that wraps with the address is too long (the kernel's sys_msync).
    let start = addr.0;
    let end = page_up(len).map_or(Some(start), |len| start.checked_add(len)).ok_or(Errno::ENOMEM)?;
    let mm = k.process().mm;
    // "EBUSY MS_INVALIDATE was specified in flags, and a memory lock exists for the specified address range."
    if flags.contains(MsyncFlags::MS_INVALIDATE)
        && k.node.mms[mm].slices(start, end).iter().any(|v| v.marks.lock != Lock::No)
    {
        return err(Errno::EBUSY);
    }
    if flags.contains(MsyncFlags::MS_SYNC) {
        for vma in k.node.mms[mm].slices(start, end) {
            if let Backing::File { ino, .. } = vma.backing
                && vma.shared
            {
                k.sync_mapped(ino)?;
            }
        }
    }
    if start == end || k.node.mms[mm].covered(start, end) { Ok(0) } else { err(Errno::ENOMEM) }
}

/// mincore(2): every mapped page counts as resident. ENOMEM where nothing is mapped.
pub fn mincore(k: &mut Ctx<'_>, addr: Ptr, len: u64, vec: Ptr) -> SysResult {
    // "ENOMEM ... lies outside the address space of the process" comes before that (the kernel's sys_mincore).
    let (start, end) = match range(addr.0, len) {
        Err(Errno::EINVAL) if addr.0.is_multiple_of(PAGE) => return err(Errno::ENOMEM),
        range => range?,
    };
    if end > TASK_SIZE {
        return err(Errno::ENOMEM);
    }
    // The vector is looked at as an address only, before the mappings are.
    if vec.0.checked_add((end - start) / PAGE).is_none_or(|end| end > TASK_SIZE) {
        return err(Errno::EFAULT);
    }
    let mm = k.process().mm;
    // Mapping by mapping: what lies before a gap is told although the call fails.
    let mut at = start;
    while at < end {
        let until = k.node.mms[mm].find(at).ok_or(Errno::ENOMEM)?.end.min(end);
        // As much at once as Linux tells ("unsigned long pages = min(pages, PAGE_SIZE)").
        let until = until.min(at.saturating_add(PAGE * PAGE));
        let pages = at / PAGE..until.div_ceil(PAGE);
        let told: Vec<u8> = pages.map(|page| u8::from(k.node.is_resident(mm, page))).collect();
        k.write_bytes(vec.0.wrapping_add((at - start) / PAGE), &told)?;
        at = until;
    }
    Ok(0)
}

//! mlock(2) and its kin: RLIMIT_MEMLOCK, and which mappings count. Nothing is ever paged out here; what locking does is that pages are
//! made at once (`Lock::Now`).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::caps::CAP_IPC_LOCK;
use crate::ctx::*;
use crate::mm::fault::Fault;
use crate::mm::{Access, Backing, Lock, PAGE, Vma};
use crate::wait::SysResult;

/// After so many bytes of pages that are made it is looked whether the rest is of any use.
const PIECE: u64 = 4 << 20;

impl Ctx<'_> {
    /// How much the caller may lock, in bytes.
    fn lock_limit(&self) -> u64 {
        let limit = self.process().limits[c::RLIMIT_MEMLOCK as usize].cur;
        // The kernel counts pages.
        if self.capable(CAP_IPC_LOCK) { u64::MAX } else { limit & !(PAGE - 1) }
    }

    /// "EPERM The caller is not privileged, but needs privilege (CAP_IPC_LOCK)": with a limit of 0.
    pub(super) fn can_lock(&self) -> bool {
        self.process().limits[c::RLIMIT_MEMLOCK as usize].cur != 0 || self.capable(CAP_IPC_LOCK)
    }

    /// Whether a new mapping would lock more than allowed (mlock_future_check).
    pub(in crate::sys) fn lock_would_exceed(&mut self, vma: &Vma) -> bool {
        let limit = self.lock_limit();
        vma.marks.lock != Lock::No && self.mm().locked.saturating_add(vma.end - vma.start) > limit
    }

    /// Makes the pages of mappings that are locked (mm_populate). Whether all could be.
    pub(super) fn populate(&mut self, start: u64, end: u64) -> bool {
        self.make_pages((start, end), |vma| vma.marks.lock == Lock::Now)
    }

    /// The same of mappings that are `wanted`, also of those of MAP_POPULATE: "The mmap() call doesn't fail if the mapping cannot be populated"
    /// (mmap(2)).
    pub(super) fn make_pages(&mut self, (start, end): (u64, u64), wanted: impl Fn(&Vma) -> bool) -> bool {
        let id = self.process().mm;
        let mut all = true;
        for vma in self.node.mms[id].slices(start, end) {
            if !wanted(&vma) || matches!(vma.backing, Backing::Special(_)) {
                continue;
            }
            // Private pages that can be written are, so that no copy is made later (populate_vma_page_range).
            let write = vma.prot & c::PROT_WRITE != 0 && !vma.shared;
            let access = if write { Access::Write } else { Access::Read };
            for page in (vma.start..vma.end).step_by(PAGE as usize) {
                if !matches!(self.node.page_fault(id, page, access), Fault::Map(_)) {
                    all = false;
                    break;
                }
                // Who has more than its share will be killed for it.
                if page % PIECE == 0 && self.ends_early() {
                    return false;
                }
            }
        }
        all
    }

    /// MADV_POPULATE_READ, MADV_POPULATE_WRITE: makes the pages of a range as accesses would, up to what forbids them: ENOMEM where nothing is
    /// mapped, "EINVAL [...] insufficient permissions", "EFAULT [...] because a SIGBUS would have been generated on actual memory access"
    /// (madvise(2)).
    pub(super) fn prefault(&mut self, (start, end): (u64, u64), write: bool) -> Result<(), Errno> {
        let id = self.process().mm;
        let (wanted, access) =
            if write { (c::PROT_WRITE, Access::Write) } else { (c::PROT_READ, Access::Read) };
        let mut at = start;
        while at < end {
            let vma = self.node.mms[id].find(at).cloned().ok_or(Errno::ENOMEM)?;
            if vma.prot & wanted == 0 {
                return Err(Errno::EINVAL);
            }
            for page in (at..vma.end.min(end)).step_by(PAGE as usize) {
                let special = matches!(vma.backing, Backing::Special(_));
                if !special && !matches!(self.node.page_fault(id, page, access), Fault::Map(_)) {
                    return Err(Errno::EFAULT);
                }
                // Who has more than its share will be killed for it.
                if page % PIECE == 0 && self.ends_early() {
                    return Ok(());
                }
            }
            at = vma.end;
        }
        Ok(())
    }

    /// The end of mlock(2) and mlock2(2) (do_mlock). EPERM, ENOMEM.
    fn lock_pages(&mut self, addr: Ptr, len: u64, lock: Lock) -> SysResult {
        if !self.can_lock() {
            return err(Errno::EPERM);
        }
        let (start, len) = touched(addr, len);
        let end = start.checked_add(len);
        let (limit, id) = (self.lock_limit(), self.process().mm);
        let mm = &self.node.mms[id];
        let wanted = mm.locked.saturating_add(len);
        if wanted > limit {
            // What is locked already does not count twice, in a range that wraps all that lies behind its beginning ("Don't overflow past
            // ULONG_MAX", count_mm_mlocked_page_nr).
            let locked = |v: &Vma| if v.marks.lock == Lock::No { 0 } else { v.end - v.start };
            let twice: u64 = mm.slices(start, end.unwrap_or(u64::MAX)).iter().map(locked).sum();
            if wanted - twice > limit {
                return err(Errno::ENOMEM);
            }
        }
        // That it wraps is found after that (apply_vma_lock_flags).
        let end = end.ok_or(Errno::EINVAL)?;
        self.mark(start, end, lock)?;
        if lock == Lock::Now && !self.populate(start, end) {
            return err(Errno::ENOMEM);
        }
        Ok(0)
    }

    /// Marks what is mapped from `start` on, up to the first gap: ENOMEM (apply_vma_lock_flags).
    fn mark(&mut self, start: u64, end: u64, lock: Lock) -> SysResult<()> {
        if start == end {
            return Ok(());
        }
        let id = self.process().mm;
        let mut at = start;
        for vma in self.node.mms[id].slices(start, end) {
            if vma.start != at {
                break;
            }
            at = vma.end;
        }
        self.may_split(start, at, |v| v.marks.lock != lock)?;
        let pieces = self.node.mms[id].slices(start, at);
        self.node.with_recount(self.pid, id, &[(start, at)], |m| {
            for vma in pieces {
                m.mark(vma.start, vma.end, lock);
            }
        });
        if at < end { err(Errno::ENOMEM) } else { Ok(()) }
    }
}

/// Where the pages begin that a range touches, and their length.
fn touched(addr: Ptr, len: u64) -> (u64, u64) {
    let start = addr.0 & !(PAGE - 1);
    // A length that wraps when it is rounded up is one of 0 (PAGE_ALIGN in do_mlock).
    (start, len.wrapping_add(addr.0 - start).wrapping_add(PAGE - 1) & !(PAGE - 1))
}

/// mlock(2). "ENOMEM Some of the specified address range does not correspond to mapped pages", or more than RLIMIT_MEMLOCK.
pub fn mlock(k: &mut Ctx<'_>, addr: Ptr, len: u64) -> SysResult {
    k.lock_pages(addr, len, Lock::Now)
}

/// mlock2(2). EINVAL for unknown flags.
pub fn mlock2(k: &mut Ctx<'_>, addr: Ptr, len: u64, flags: MlockFlags) -> SysResult {
    if flags.exceeds(MlockFlags::MLOCK_ONFAULT) {
        return err(Errno::EINVAL);
    }
    let lock = if flags.contains(MlockFlags::MLOCK_ONFAULT) { Lock::OnFault } else { Lock::Now };
    k.lock_pages(addr, len, lock)
}

/// munlock(2). EINVAL for a range that ends below its beginning.
pub fn munlock(k: &mut Ctx<'_>, addr: Ptr, len: u64) -> SysResult {
    let (start, len) = touched(addr, len);
    let end = start.checked_add(len).ok_or(Errno::EINVAL)?;
    k.mark(start, end, Lock::No).map(|()| 0)
}

/// mlockall(2). EINVAL for no flags, or MCL_ONFAULT alone.
pub fn mlockall(k: &mut Ctx<'_>, flags: MlockallFlags) -> SysResult {
    // MCL_ONFAULT says how, not what.
    if flags.exceeds(MlockallFlags::all()) || flags.bits() == 0 || flags == MlockallFlags::MCL_ONFAULT {
        return err(Errno::EINVAL);
    }
    if !k.can_lock() {
        return err(Errno::EPERM);
    }
    let current = flags.contains(MlockallFlags::MCL_CURRENT);
    let limit = k.lock_limit();
    if current && k.mm().total > limit {
        return err(Errno::ENOMEM);
    }
    let lock = if flags.contains(MlockallFlags::MCL_ONFAULT) { Lock::OnFault } else { Lock::Now };
    k.mm().lock_future = if flags.contains(MlockallFlags::MCL_FUTURE) { lock } else { Lock::No };
    if current {
        mark_all(k, lock);
        // "Ignore errors": of pages that cannot be made.
        let _ignored = k.populate(0, crate::mm::TASK_SIZE);
    }
    Ok(0)
}

/// munlockall(2).
pub fn munlockall(k: &mut Ctx<'_>) -> SysResult {
    k.mm().lock_future = Lock::No;
    mark_all(k, Lock::No);
    Ok(0)
}

fn mark_all(k: &mut Ctx<'_>, lock: Lock) {
    let id = k.process().mm;
    k.node.with_recount(k.pid, id, &[(0, crate::mm::TASK_SIZE)], |m| m.mark_all(lock));
}

//! madvise(2), and what of it another process may ask for (process_madvise(2)).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use super::range;
use crate::ctx::*;
use crate::ids::*;
use crate::mm::{Backing, Lock, OnFork, PAGE, ReadAhead, Vma};
use crate::wait::SysResult;

/// madvise(2), linux/mman.h.
const MADV_WIPEONFORK: u64 = 18;
const MADV_KEEPONFORK: u64 = 19;
const MADV_DONTNEED_LOCKED: u64 = 24;
pub(in crate::sys) const MADV_COLLAPSE: u64 = 25;

fn read_ahead(advice: u32) -> ReadAhead {
    match u64::from(advice) {
        c::MADV_RANDOM => ReadAhead::Random,
        c::MADV_SEQUENTIAL => ReadAhead::Sequential,
        _ => ReadAhead::Normal,
    }
}

/// What madvise(2) knows (madvise_behavior_valid of Linux 6.1 without CONFIG_KSM and CONFIG_MEMORY_FAILURE).
fn is_advice(advice: u64) -> bool {
    matches!(advice, 0..=4 | 8..=11 | 14..=25)
}

/// A hint about the memory of any process, which does nothing (process_madvise(2)). Errors of madvise(2).
pub(in crate::sys) fn hint(k: &Ctx<'_>, mm: MmId, (addr, len): (u64, u64), advice: u64) -> Result<(), Errno> {
    // Nobody collapses pages to huge ones, as without CONFIG_TRANSPARENT_HUGEPAGE.
    if advice == MADV_COLLAPSE {
        return Err(Errno::EINVAL);
    }
    let (start, end) = range(addr, len)?;
    may_advise(k, mm, (start, end), advice)?;
    if start == end || k.node.mms[mm].covered(start, end) { Ok(()) } else { Err(Errno::ENOMEM) }
}

/// Whether what is mapped in a range may be advised so.
fn may_advise(k: &Ctx<'_>, mm: MmId, (start, end): (u64, u64), advice: u64) -> Result<(), Errno> {
    let mm = &k.node.mms[mm];
    // "EINVAL advice is MADV_DONTNEED or MADV_REMOVE and the specified address range includes locked [...] pages."
    let unlocked = [c::MADV_DONTNEED, c::MADV_FREE, c::MADV_REMOVE, c::MADV_COLD, c::MADV_PAGEOUT];
    let locked = |v: &Vma| v.marks.lock != Lock::No;
    if unlocked.contains(&advice) && mm.slices(start, end).iter().any(locked) {
        return Err(Errno::EINVAL);
    }
    // "The MADV_FREE operation can be applied only to private anonymous pages".
    let plain = |v: &Vma| matches!(v.backing, Backing::Anon) && !v.shared;
    if advice == c::MADV_FREE && !mm.slices(start, end).iter().all(plain) {
        return Err(Errno::EINVAL);
    }
    // "EAGAIN A kernel resource was temporarily unavailable" (madvise(2)): here no more mappings.
    let marks = [c::MADV_NORMAL, c::MADV_RANDOM, c::MADV_SEQUENTIAL, c::MADV_DONTFORK, c::MADV_DOFORK];
    if marks.contains(&advice) && k.may_split(start, end, |_| true).is_err() {
        return Err(Errno::EAGAIN);
    }
    Ok(())
}

/// madvise(2). EINVAL for unknown advice, ENOMEM where nothing is mapped.
pub fn madvise(k: &mut Ctx<'_>, addr: Ptr, len: u64, advice: u32) -> SysResult {
    let (start, end) = range(addr.0, len)?;
    let mm = k.process().mm;
    let covered = start == end || k.node.mms[mm].covered(start, end);
    // do_madvise: what is no advice is EINVAL, and then nothing is asked of an empty range.
    if start == end && is_advice(u64::from(advice)) {
        return Ok(0);
    }
    may_advise(k, mm, (start, end), u64::from(advice))?;
    match u64::from(advice) {
        c::MADV_DONTNEED | MADV_DONTNEED_LOCKED | c::MADV_FREE => {
            // MADV_FREE lets the kernel free "when memory pressure occurs"; freeing at once is one of its outcomes.
            let m = &mut k.node.mms[mm];
            for vma in m.slices(start, end) {
                if !vma.shared {
                    m.pages.remove_range(vma.start / PAGE, vma.end / PAGE);
                    m.invalidate(vma.start, vma.end - vma.start);
                }
            }
            k.node.settle(mm);
        }
        c::MADV_REMOVE => {
            for vma in k.node.mms[mm].slices(start, end) {
                // "EACCES": madvise_remove of Linux asks for VM_SHARED and VM_WRITE, after it has asked for a file.
                let may_free = vma.shared && vma.prot & c::PROT_WRITE != 0;
                match vma.backing {
                    // "EINVAL": it is no "shared, writable, file-backed mapping".
                    Backing::Special(_) => return err(Errno::EINVAL),
                    Backing::Anon => {
                        return err(if vma.marks.zero.is_some() { Errno::EACCES } else { Errno::EINVAL });
                    }
                    _ if !may_free => return err(Errno::EACCES),
                    Backing::File { ino, offset } => {
                        k.punch_hole(ino, (offset, offset + vma.end - vma.start))?;
                    }
                    Backing::Shm { id, offset } => {
                        let (first, last) = (offset / PAGE, (offset + vma.end - vma.start) / PAGE);
                        let shm = &mut k.node.shm[id];
                        let before = shm.pages.len();
                        shm.pages.retain(|p, _| *p < first || *p >= last);
                        let (gone, container) = (before - shm.pages.len(), shm.container);
                        k.node.memory.shared_shrinks(container, gone as u64);
                        k.node.invalidate_shm(id, offset, vma.end - vma.start);
                    }
                }
            }
        }
        c::MADV_DONTFORK | c::MADV_DOFORK => {
            let omits = u64::from(advice) == c::MADV_DONTFORK;
            k.node.with_recount(k.pid, mm, &[(start, end)], |m| {
                m.change(start, end, |v| v.on_fork = OnFork::new(omits, v.on_fork.wipes()))
            });
        }
        c::MADV_NORMAL | c::MADV_RANDOM | c::MADV_SEQUENTIAL => {
            let read_ahead = read_ahead(advice);
            k.node.with_recount(k.pid, mm, &[(start, end)], |m| {
                m.change(start, end, |v| v.marks.read_ahead = read_ahead);
            });
        }
        MADV_WIPEONFORK | MADV_KEEPONFORK => {
            let wipe = u64::from(advice) == MADV_WIPEONFORK;
            // "EINVAL advice is MADV_WIPEONFORK but the specified address range includes file, Huge TLB, MAP_SHARED, or
            // VM_PFNMAP ranges."
            let plain = |v: &Vma| v.backing == Backing::Anon && !v.shared && v.marks.zero.is_none();
            if wipe && !k.node.mms[mm].slices(start, end).iter().all(plain) {
                return err(Errno::EINVAL);
            }
            k.node.with_recount(k.pid, mm, &[(start, end)], |m| {
                m.change(start, end, |v| v.on_fork = OnFork::new(v.on_fork.omits(), wipe))
            });
        }
        c::MADV_POPULATE_READ | c::MADV_POPULATE_WRITE => {
            k.prefault((start, end), u64::from(advice) == c::MADV_POPULATE_WRITE)?;
        }
        c::MADV_WILLNEED
        | c::MADV_HUGEPAGE
        | c::MADV_NOHUGEPAGE
        | c::MADV_DONTDUMP
        | c::MADV_DODUMP
        | c::MADV_COLD
        | c::MADV_PAGEOUT => {}
        // MADV_COLLAPSE and MADV_MERGEABLE as well: there are no huge pages, and nobody looks for equal ones.
        _ => return err(Errno::EINVAL),
    }
    // "ENOMEM Addresses in the specified range are not currently mapped" - after acting on the mapped part.
    if covered { Ok(0) } else { err(Errno::ENOMEM) }
}

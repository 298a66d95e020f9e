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

fn read_ahead(advice: u64) -> ReadAhead {
    match advice {
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
    k.node.mms[mm].slices(start, end).iter().try_for_each(|vma| may_advise(vma, advice))?;
    if start == end || k.node.mms[mm].covered(start, end) { Ok(()) } else { Err(Errno::ENOMEM) }
}

/// Whether a mapping may be advised so.
fn may_advise(vma: &Vma, advice: u64) -> Result<(), Errno> {
    let plain = vma.backing == Backing::Anon && !vma.shared;
    // The page of the clock is VM_IO and VM_PFNMAP.
    let raw = vma.backing == Backing::Special("[vvar]");
    let refused = match advice {
        // "EINVAL advice is MADV_DONTNEED or MADV_REMOVE and the specified address range includes locked [...] pages."
        c::MADV_DONTNEED | c::MADV_COLD | c::MADV_PAGEOUT => raw || vma.marks.lock != Lock::No,
        c::MADV_REMOVE => vma.marks.lock != Lock::No,
        // "The MADV_FREE operation can be applied only to private anonymous pages".
        c::MADV_FREE => vma.marks.lock != Lock::No || !plain,
        MADV_DONTNEED_LOCKED | c::MADV_DOFORK => raw,
        // "EINVAL advice is MADV_WIPEONFORK but the specified address range includes file, Huge TLB, MAP_SHARED, or VM_PFNMAP ranges."
        MADV_WIPEONFORK => !plain || vma.marks.zero.is_some(),
        _ => false,
    };
    if refused { Err(Errno::EINVAL) } else { Ok(()) }
}

/// madvise(2). EINVAL for unknown advice, ENOMEM where nothing is mapped.
pub fn madvise(k: &mut Ctx<'_>, addr: Ptr, len: u64, advice: u32) -> SysResult {
    let (start, end) = range(addr.0, len)?;
    let advice = u64::from(advice);
    // do_madvise: what is no advice is EINVAL, and then nothing is asked of an empty range.
    if start == end && is_advice(advice) {
        return Ok(0);
    }
    // MADV_COLLAPSE and MADV_MERGEABLE as well: there are no huge pages, and nobody looks for equal ones.
    if !is_advice(advice) || advice == MADV_COLLAPSE {
        return err(Errno::EINVAL);
    }
    let mm = k.process().mm;
    let covered = k.node.mms[mm].covered(start, end);
    // Mapping by mapping: what lies before one that is refused has been advised (madvise_walk_vmas).
    for vma in k.node.mms[mm].slices(start, end) {
        advise(k, mm, &vma, advice)?;
    }
    // "If the interval [start,end) covers some unmapped address ranges, just ignore them, but return -ENOMEM at the end".
    if covered { Ok(0) } else { err(Errno::ENOMEM) }
}

/// The advice for a piece of one mapping (madvise_vma_behavior).
fn advise(k: &mut Ctx<'_>, mm: MmId, vma: &Vma, advice: u64) -> SysResult<()> {
    may_advise(vma, advice)?;
    match advice {
        c::MADV_DONTNEED | MADV_DONTNEED_LOCKED | c::MADV_FREE => {
            // MADV_FREE lets the kernel free "when memory pressure occurs"; freeing at once is one of its outcomes.
            if !vma.shared {
                let m = &mut k.node.mms[mm];
                m.pages.remove_range(vma.start / PAGE, vma.end / PAGE);
                m.invalidate(vma.start, vma.end - vma.start);
                k.node.settle(mm);
            }
            Ok(())
        }
        c::MADV_REMOVE => remove(k, vma),
        c::MADV_DONTFORK | c::MADV_DOFORK => {
            let omits = advice == c::MADV_DONTFORK;
            mark(k, mm, vma, |v| v.on_fork = OnFork::new(omits, v.on_fork.wipes()))
        }
        c::MADV_NORMAL | c::MADV_RANDOM | c::MADV_SEQUENTIAL => {
            mark(k, mm, vma, |v| v.marks.read_ahead = read_ahead(advice))
        }
        MADV_WIPEONFORK | MADV_KEEPONFORK => {
            let wipes = advice == MADV_WIPEONFORK;
            mark(k, mm, vma, |v| v.on_fork = OnFork::new(v.on_fork.omits(), wipes))
        }
        c::MADV_POPULATE_READ | c::MADV_POPULATE_WRITE => {
            Ok(k.prefault((vma.start, vma.end), advice == c::MADV_POPULATE_WRITE)?)
        }
        // MADV_WILLNEED, MADV_COLD, MADV_PAGEOUT, MADV_HUGEPAGE, MADV_DONTDUMP and what takes these two back.
        _ => Ok(()),
    }
}

/// Says something else of a piece of a mapping (madvise_update_vma).
fn mark(k: &mut Ctx<'_>, mm: MmId, vma: &Vma, change: impl Fn(&mut Vma)) -> SysResult<()> {
    let mut changed = vma.clone();
    change(&mut changed);
    if changed == *vma {
        return Ok(());
    }
    // "EAGAIN A kernel resource was temporarily unavailable" (madvise(2)): here no more mappings.
    k.may_split(vma.start, vma.end, |_| true).map_err(|_| Errno::EAGAIN)?;
    k.node.with_recount(k.pid, mm, &[(vma.start, vma.end)], |m| m.change(vma.start, vma.end, change));
    Ok(())
}

/// MADV_REMOVE of a piece of a mapping.
fn remove(k: &mut Ctx<'_>, vma: &Vma) -> SysResult<()> {
    // "EACCES": madvise_remove of Linux asks for VM_SHARED and VM_MAYWRITE, after it has asked for a file.
    let may_free = vma.shared && vma.may_write;
    match vma.backing {
        // "EINVAL": it is no "shared, writable, file-backed mapping".
        Backing::Special(_) => err(Errno::EINVAL),
        Backing::Anon if vma.marks.zero.is_some() => err(Errno::EACCES),
        Backing::Anon => err(Errno::EINVAL),
        _ if !may_free => err(Errno::EACCES),
        Backing::File { ino, offset } => k.punch_hole(ino, (offset, offset + vma.end - vma.start)),
        Backing::Shm { id, offset } => {
            let (first, last) = (offset / PAGE, (offset + vma.end - vma.start) / PAGE);
            let shm = &mut k.node.shm[id];
            let before = shm.pages.len();
            shm.pages.retain(|p, _| *p < first || *p >= last);
            let (gone, container) = (before - shm.pages.len(), shm.container);
            k.node.memory.shared_shrinks(container, gone as u64);
            k.node.invalidate_shm(id, offset, vma.end - vma.start);
            Ok(())
        }
    }
}

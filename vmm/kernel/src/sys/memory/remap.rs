//! mremap(2): mappings that change their size or place, are left behind empty, or seen a second time.
//!
//! Neighbours: `super` has the other calls about mappings, `crate::mm` what is mapped.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::ctx::*;
use crate::mm::{Backing, Lock, PAGE, TASK_SIZE, Vma, page_up};
use crate::wait::SysResult;

/// What is wrong whatever is mapped: EINVAL.
fn check_arguments(old: Ptr, (old_len, new_len): (u64, u64), flags: u64) -> Result<(), Errno> {
    if flags & !(c::MREMAP_MAYMOVE | c::MREMAP_FIXED | c::MREMAP_DONTUNMAP) != 0
        || !old.0.is_multiple_of(PAGE)
    {
        return Err(Errno::EINVAL);
    }
    let keeps = flags & c::MREMAP_DONTUNMAP != 0;
    // "This flag, which must be used in conjunction with MREMAP_MAYMOVE"; it "must be the same size".
    if keeps && (flags & c::MREMAP_MAYMOVE == 0 || old_len != new_len) {
        return Err(Errno::EINVAL);
    }
    let fixed = flags & c::MREMAP_FIXED != 0;
    if fixed && flags & c::MREMAP_MAYMOVE == 0 || new_len == 0 {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// mremap(2). ENOMEM if it may not move, EFAULT for what is not mapped, EAGAIN for more locked memory than allowed.
pub fn mremap(
    k: &mut Ctx<'_>,
    old: Ptr,
    old_len: u64,
    new_len: u64,
    flags: RemapFlags,
    new: Ptr,
) -> SysResult {
    let flags = flags.bits();
    check_arguments(old, (old_len, new_len), flags)?;
    let (keeps, fixed) = (flags & c::MREMAP_DONTUNMAP != 0, flags & c::MREMAP_FIXED != 0);
    // PAGE_ALIGN makes nothing of the largest numbers.
    let (old_len, new_len) = (page_up(old_len).unwrap_or(0), page_up(new_len).ok_or(Errno::EINVAL)?);
    let mm = k.process().mm;
    let (start, end) = (old.0, old.0.saturating_add(old_len));
    // "EFAULT Some address in the range old_address to old_address+old_size is an invalid virtual memory address": that there is something at
    // its beginning is asked before all that follows.
    k.node.mms[mm].find(start).ok_or(Errno::EFAULT)?;
    if !fixed && !keeps && old_len > 0 && new_len <= old_len {
        return shrink(k, start, end, start.saturating_add(new_len));
    }
    if fixed || keeps {
        make_room(k, (start, end), (new.0, new_len), fixed)?;
    }
    if old_len == 0 {
        return duplicate(k, start, new_len, flags, new);
    }
    // What moves and becomes smaller loses its end first, whatever lay there (mremap_to).
    let kept = if fixed { new_len.min(old_len) } else { old_len };
    cut(k, (start.saturating_add(kept), end))?;
    let (old_len, end) = (kept, start.saturating_add(kept));
    let slices = k.node.mms[mm].slices(start, end);
    // "EFAULT [...] You can also get EFAULT even if there exist mappings that cover the whole address space requested, but those mappings are of
    // different types" (vma_to_resize).
    let [vma] = slices.as_slice() else { return err(Errno::EFAULT) };
    if vma.start != start || vma.end != end {
        return err(Errno::EFAULT);
    }
    let vma = vma.clone();
    let more = if keeps { old_len } else { new_len.saturating_sub(old_len) };
    if more > 0 {
        let more = Vma { start: 0, end: more, ..vma.clone() };
        if !keeps && k.lock_would_exceed(&more) {
            return err(Errno::EAGAIN);
        }
        k.may_map(&more)?;
    }
    if fixed || keeps {
        let to = if fixed { new.0 } else { k.mm().find_free(new.0, new_len)? };
        k.node.with_recount(k.pid, mm, &[(start, end), (to, to + new_len)], |m| {
            m.remove(to, to + new_len);
            move_vma(m, &vma, old_len.min(new_len), to, new_len);
            if keeps {
                // What is left is empty and not locked.
                let mut left = vma.clone();
                left.marks.lock = Lock::No;
                left.marks.anon = left.marks.anon.without_pages();
                m.insert(left);
            }
        });
        return Ok(to);
    }
    let grown = start.checked_add(new_len).filter(|e| *e <= TASK_SIZE).ok_or(Errno::ENOMEM)?;
    if !k.node.mms[mm].overlaps(end, grown) && k.node.mms[mm].find(end - 1).is_some_and(|v| v.end == end) {
        if vma.marks.attach != 0 {
            // Nothing is said to the segment (shm_open, shm_close): it is the same mapping.
            k.mm().lengthen(end, grown);
            return Ok(start);
        }
        let backing = match vma.backing {
            Backing::File { ino, offset } => Backing::File { ino, offset: offset + old_len },
            Backing::Shm { id, offset } => Backing::Shm { id, offset: offset + old_len },
            ref other => other.clone(),
        };
        k.node.with_recount(k.pid, mm, &[(end, grown)], |m| {
            m.insert(Vma { start: end, end: grown, backing, ..vma })
        });
        return Ok(start);
    }
    if flags & c::MREMAP_MAYMOVE == 0 {
        return err(Errno::ENOMEM);
    }
    k.may_move_mapping(0)?;
    let to = k.node.mms[mm].find_free(0, new_len)?;
    k.node.with_recount(k.pid, mm, &[(start, end), (to, to + new_len)], |m| {
        move_vma(m, &vma, old_len, to, new_len);
    });
    Ok(to)
}

/// Unmaps a range that may be empty.
fn cut(k: &mut Ctx<'_>, (from, to): (u64, u64)) -> SysResult<()> {
    let mm = k.process().mm;
    if from == to {
        return Ok(());
    }
    if to > TASK_SIZE {
        return err(Errno::EINVAL);
    }
    k.node.with_recount(k.pid, mm, &[(from, to)], |m| m.remove(from, to));
    Ok(())
}

/// "Always allow a shrinking remap": whatever lies behind what remains (the kernel's sys_mremap).
fn shrink(k: &mut Ctx<'_>, start: u64, end: u64, new_end: u64) -> SysResult {
    let mm = k.process().mm;
    if end > TASK_SIZE {
        return err(Errno::EINVAL);
    }
    if new_end < end {
        k.may_cut_out(new_end, end)?;
        k.node.with_recount(k.pid, mm, &[(start, end)], |m| m.remove(new_end, end));
    }
    Ok(start)
}

/// Whether what moves in any case may go to an address, or wish for it. What lies there is unmapped then, whatever comes of the rest of the
/// call (mremap_to).
fn make_room(k: &mut Ctx<'_>, old: (u64, u64), (to, len): (u64, u64), fixed: bool) -> SysResult<()> {
    let end = to.checked_add(len).filter(|end| *end <= TASK_SIZE).ok_or(Errno::EINVAL)?;
    if !to.is_multiple_of(PAGE) || to < old.1 && old.0 < end {
        return err(Errno::EINVAL);
    }
    // "We want to check whether map count is still below the limit after two unmaps".
    k.may_move_mapping(2)?;
    if fixed { cut(k, (to, end)) } else { Ok(()) }
}

/// "If the value of old_size is zero, and old_address refers to a shareable mapping [...], then mremap() will create a new mapping
/// of the same pages."
fn duplicate(k: &mut Ctx<'_>, start: u64, len: u64, flags: u64, new: Ptr) -> SysResult {
    let id = k.process().mm;
    let fixed = flags & c::MREMAP_FIXED != 0;
    let whole = k.node.mms[id].find(start).cloned().ok_or(Errno::EFAULT)?;
    if !whole.shared {
        return err(Errno::EINVAL);
    }
    let into = start - whole.start;
    let backing = match whole.backing {
        Backing::File { ino, offset } => Backing::File { ino, offset: offset + into },
        Backing::Shm { id, offset } => Backing::Shm { id, offset: offset + into },
        ref other => other.clone(),
    };
    let mut vma = Vma { start: 0, end: len, backing, ..whole };
    if k.lock_would_exceed(&vma) {
        return err(Errno::EAGAIN);
    }
    k.may_map(&vma)?;
    if flags & c::MREMAP_MAYMOVE == 0 {
        return err(Errno::ENOMEM);
    }
    let to = if fixed { new.0 } else { k.mm().find_free(0, len)? };
    (vma.start, vma.end) = (to, to + len);
    k.node.with_recount(k.pid, id, &[(start, start + PAGE), (to, to + len)], |m| {
        m.remove(to, to + len);
        m.insert(vma);
    });
    Ok(to)
}

fn move_vma(m: &mut crate::mm::Mm, vma: &Vma, keep: u64, to: u64, new_len: u64) {
    let from = vma.start;
    m.pages.move_range(from / PAGE, keep / PAGE, to / PAGE);
    // The pages have left: removing the old range must not drop them.
    m.remove(from, vma.end);
    let mut moved = Vma { start: to, end: to + new_len, ..vma.clone() };
    if vma.backing == Backing::Anon {
        moved.marks.anon.moves(from, to);
    }
    if let Some(zero) = &mut moved.marks.zero {
        // "If anonymous vma has not yet been faulted, update new pgoff to match new location" (copy_vma).
        let faulted = vma.marks.anon.has_pages();
        zero.first = if faulted { zero.first.wrapping_add(to.wrapping_sub(from)) } else { 0 };
    }
    m.insert(moved);
    m.invalidate(to, new_len);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Bench;
    use bloodhound_abi::table::nr;

    const AT: u64 = 0x10_0000_0000;

    fn map(b: &mut Bench, at: u64, pages: u64, prot: u64, kind: u64) {
        let flags = c::MAP_ANONYMOUS | c::MAP_FIXED | kind;
        assert_eq!(b.call(nr::mmap, &[at, pages * PAGE, prot, flags, u64::MAX, 0]), Ok(at));
    }

    fn mapped(b: &Bench, page: u64) -> bool {
        let mm = b.node.process(b.node.task(b.tid).pid).mm;
        b.node.mms[mm].find(AT + page * PAGE).is_some()
    }

    #[test]
    fn what_fails_has_made_room_already() {
        let mut b = Bench::new();
        let (both, fixed) = (c::PROT_READ | c::PROT_WRITE, c::MREMAP_MAYMOVE | c::MREMAP_FIXED);
        map(&mut b, AT, 8, both, c::MAP_PRIVATE);
        map(&mut b, AT + PAGE, 1, c::PROT_READ, c::MAP_PRIVATE);
        let to = AT + 4 * PAGE;
        for (args, error) in [
            // Nothing there, and only then what is wrong with the target.
            ([AT - PAGE, PAGE, PAGE, fixed, to + 1], Errno::EFAULT),
            ([AT, PAGE, PAGE, fixed, to + 1], Errno::EINVAL),
            ([AT, 2 * PAGE, PAGE, fixed, AT + PAGE], Errno::EINVAL),
        ] {
            assert_eq!(b.call(nr::mremap, &args), Err(error), "{args:x?}");
            assert!((0..8).all(|page| mapped(&b, page)), "{args:x?}");
        }
        assert_eq!(b.call(nr::mremap, &[AT, 3 * PAGE, 2 * PAGE, fixed, to]), Err(Errno::EFAULT));
        let left: Vec<u64> = (0..8).filter(|page| mapped(&b, *page)).collect();
        assert_eq!(left, [0, 1, 3, 6, 7]);
    }

    #[test]
    fn the_largest_size_is_none() {
        let mut b = Bench::new();
        let (old, to) = (u64::MAX, AT + 4 * PAGE);
        let fixed = c::MREMAP_MAYMOVE | c::MREMAP_FIXED;
        map(&mut b, AT, 1, c::PROT_READ, c::MAP_SHARED);
        assert_eq!(b.call(nr::mremap, &[AT, old, PAGE, fixed, to]), Ok(to));
        assert!(mapped(&b, 0) && mapped(&b, 4));
        map(&mut b, AT, 1, c::PROT_READ, c::MAP_PRIVATE);
        assert_eq!(b.call(nr::mremap, &[AT, old, PAGE, fixed, to]), Err(Errno::EINVAL));
        assert!(mapped(&b, 0) && !mapped(&b, 4));
        assert_eq!(b.call(nr::mremap, &[AT, old - 2 * PAGE, PAGE, 0, 0]), Err(Errno::EINVAL));
    }
}

//! SysV shared memory: shmget(2), shmat(2), shmdt(2), shmctl(2).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::caps::CAP_IPC_LOCK;
use crate::container::IpcNs;
use crate::ctx::*;
use crate::ids::*;
use crate::ipc::segment::{DEST, LOCKED, Segment};
use crate::ipc::{Entry, Named, Wanted};
use crate::mm::{Backing, OnFork, PAGE, Vma, page_up};
use crate::node::{Node, Shm};
use crate::wait::SysResult;

/// SHMMAX and SHMALL: no limit to speak of (`ULONG_MAX - (1UL << 24)`).
const MAX_SIZE: u64 = u64::MAX - (1 << 24);
/// SHMMNI: segments, at most.
const MOST: u32 = 4096;
/// SHM_HUGETLB.
const HUGE: u64 = 0o4000;
/// SHM_NORESERVE.
const NORESERVE: u64 = 0o10000;
const READ: u32 = 0o444;
const WRITE: u32 = 0o222;
const EXECUTE: u32 = 0o111;

impl Node {
    /// The last mapping of a segment is gone: so is the segment, if it is marked for that.
    pub(crate) fn segment_unused(&mut self, ns: IpcNs, id: i32) {
        let segments = &mut self.sysv.of(ns).segments;
        if segments.get(id).is_some_and(|entry| entry.perm.mode & DEST != 0)
            && let Some(entry) = segments.remove(id)
        {
            self.shm_remove(entry.item.shm);
        }
    }
}

/// shmget(2). EEXIST, ENOENT, EACCES, ENOSPC; EINVAL for more than the segment has.
pub fn shmget(k: &mut Ctx<'_>, key: i32, size: u64, flags: IpcFlags) -> SysResult {
    let fits = |segment: &Segment| if size > segment.size { Err(Errno::EINVAL) } else { Ok(()) };
    let wanted = Wanted { key, flags: flags.bits() as u32 };
    let perm = match k.ipc_named(&wanted, |ns| &mut ns.segments, fits)? {
        Named::Is(id) => return Ok(id as u64),
        Named::Make(perm) => perm,
    };
    // "EINVAL A new segment was to be created and size is less than SHMMIN or greater than SHMMAX."
    let (longest, most) = (limit(k, "kernel/shmmax", MAX_SIZE), limit(k, "kernel/shmmni", MOST.into()));
    if size == 0 || size > longest {
        return err(Errno::EINVAL);
    }
    // "if (size < 0 || size > MAX_LFS_FILESIZE) return ERR_PTR(-EINVAL)" (__shmem_file_setup).
    if size > i64::MAX as u64 {
        return err(Errno::EINVAL);
    }
    // There is no hugetlbfs (newseg without CONFIG_HUGETLBFS).
    if flags.bits() & HUGE != 0 {
        return err(Errno::EINVAL);
    }
    // "ENOMEM No memory could be allocated for segment overhead": shmem_acct_size refuses what is more than all memory.
    if flags.bits() & NORESERVE == 0 && size > k.node.config.memory {
        return err(Errno::ENOMEM);
    }
    let len = page_up(size).ok_or(Errno::EINVAL)?;
    let (ns, now, maker) = (k.container().ipc, k.seconds(), k.pid);
    let container = k.process().container;
    let shm = k.node.shm.insert(Shm { size: len, container, ..Shm::default() });
    let segment =
        Segment { shm, size, key, atime: 0, dtime: 0, maker, last: None, attaches: 0, locker: None };
    match k.ipc().segments.add(most as u32, perm, now, segment) {
        Ok(id) => {
            k.node.shm[shm].segment = Some((ns, id));
            Ok(id as u64)
        }
        Err(errno) => {
            k.node.shm_remove(shm);
            err(errno)
        }
    }
}

fn segment<'a>(k: &'a mut Ctx<'_>, id: i32) -> SysResult<&'a mut Entry<Segment>> {
    Ok(k.ipc().segments.get_mut(id).ok_or(Errno::EINVAL)?)
}

/// shmat(2). EINVAL for an address that is not aligned or not free, EACCES.
pub fn shmat(k: &mut Ctx<'_>, id: i32, addr: Ptr, flags: ShmatFlags) -> SysResult {
    let Entry { perm, item, .. } = segment(k, id)?;
    let (perm, shm, attach) = (*perm, item.shm, item.attaches + 1);
    let len = k.node.shm[shm].size;
    let mm = k.process().mm;
    // "SHM_RND: the attach occurs at the address equal to shmaddr rounded down to the nearest multiple of SHMLBA."
    let anywhere = addr.is_null();
    let addr = if flags.contains(ShmatFlags::SHM_RND) { Ptr(addr.0 & !(PAGE - 1)) } else { addr };
    let remap = flags.contains(ShmatFlags::SHM_REMAP);
    if !addr.0.is_multiple_of(PAGE) || addr.is_null() && remap {
        return err(Errno::EINVAL);
    }
    // What is attached read-only never becomes writable: its file is open for reading only (do_shmat), and "if (!(file->f_mode &
    // FMODE_WRITE)) vm_flags &= ~(VM_MAYWRITE | VM_SHARED)" (do_mmap).
    let may_write = !flags.contains(ShmatFlags::SHM_RDONLY);
    let (mut prot, mut wanted) = (c::PROT_READ, READ);
    if may_write {
        (prot, wanted) = (prot | c::PROT_WRITE, wanted | WRITE);
    }
    if flags.contains(ShmatFlags::SHM_EXEC) {
        (prot, wanted) = (prot | c::PROT_EXEC, wanted | EXECUTE);
    }
    k.ipc_may(&perm, wanted)?;
    // An address that is rounded down to 0 is one all the same, below vm.mmap_min_addr (cap_mmap_addr, without CAP_SYS_RAWIO).
    if !anywhere && addr.0 < crate::mm::MMAP_MIN {
        return err(Errno::EPERM);
    }
    // SHM_REMAP: "the mapping of the segment should replace any existing mapping in the range".
    let start = if remap { addr.0 } else { k.node.mms[mm].find_free(addr.0, len)? };
    if !addr.is_null() && start != addr.0
        || start.checked_add(len).is_none_or(|end| end > crate::mm::TASK_SIZE)
    {
        return err(Errno::EINVAL);
    }
    let backing = Backing::Shm { id: shm, offset: 0 };
    let end = start + len;
    let marks = crate::mm::Marks { lock: k.node.mms[mm].lock_future, attach, ..Default::default() };
    let vma = Vma { start, end, prot, shared: true, backing, on_fork: OnFork::Copy, may_write, marks };
    if k.lock_would_exceed(&vma) {
        return err(Errno::EAGAIN);
    }
    segment(k, id)?.item.attaches = attach;
    // What is replaced may be of the same segment, and then the mappings are what they were.
    let of_it = |old: &Vma| matches!(old.backing, Backing::Shm { id, .. } if id == shm);
    let went = remap && k.node.mms[mm].vmas().any(|old| old.start < end && start < old.end && of_it(old));
    k.node.with_recount(k.pid, mm, &[(start, start + len)], |m| {
        if remap {
            m.remove(start, start + len);
        }
        m.insert(vma);
    });
    k.node.segment_changed(k.pid, shm, (went, true));
    Ok(start)
}

/// shmdt(2). EINVAL if no segment was attached there of which anything is left.
pub fn shmdt(k: &mut Ctx<'_>, addr: Ptr) -> SysResult {
    if !addr.0.is_multiple_of(PAGE) {
        return err(Errno::EINVAL);
    }
    let mm = k.process().mm;
    // "Check if the starting address would match, i.e. it's a fragment created by mprotect() and/or munmap(), or it otherwise it starts
    // at this address with no hassles" (ksys_shmdt): the first page of what was attached may be gone.
    let fragment = |vma: &Vma| match vma.backing {
        Backing::Shm { id, offset }
            if vma.marks.attach != 0 && vma.start.checked_sub(addr.0) == Some(offset) =>
        {
            Some((id, vma.marks.attach))
        }
        _ => None,
    };
    let first = k.node.mms[mm].vmas().find(|vma| fragment(vma).is_some()).cloned().ok_or(Errno::EINVAL)?;
    let (Some(attached), Backing::Shm { id, .. }) = (fragment(&first), &first.backing) else {
        return err(Errno::EINVAL);
    };
    let size = k.node.shm[*id].size;
    // "Then it unmaps all shm vmas that started at shmaddr and that are within the initially determined size and that are from the same
    // shm segment", by which the file is meant that the first one has.
    let of_it = |vma: &&Vma| {
        fragment(vma) == Some(attached) && (vma.start == first.start || vma.end - addr.0 <= size)
    };
    let parts: Vec<(u64, u64)> =
        k.node.mms[mm].vmas().filter(of_it).map(|vma| (vma.start, vma.end)).collect();
    k.node.with_recount(k.pid, mm, &parts.clone(), |m| {
        for (start, end) in parts {
            m.remove(start, end);
        }
    });
    Ok(0)
}

/// Commands of shmctl(2).
mod cmd {
    pub const RMID: u32 = 0;
    pub const SET: u32 = 1;
    pub const STAT: u32 = 2;
    pub const INFO: u32 = 3;
    pub const LOCK: u32 = 11;
    pub const UNLOCK: u32 = 12;
    pub const SHM_STAT: u32 = 13;
    pub const SHM_INFO: u32 = 14;
    pub const SHM_STAT_ANY: u32 = 15;
}

/// shmctl(2). EINVAL for unknown commands and segments, EACCES, EPERM.
pub fn shmctl(k: &mut Ctx<'_>, id: i32, cmd: u32, buf: Ptr) -> SysResult {
    if id < 0 {
        return err(Errno::EINVAL);
    }
    match cmd {
        cmd::INFO | cmd::SHM_INFO => info(k, cmd, buf),
        cmd::STAT | cmd::SHM_STAT | cmd::SHM_STAT_ANY => stat(k, id, cmd, buf),
        cmd::RMID => remove(k, id),
        cmd::SET => {
            let [a, b, c, d, e, f, ..] = k.read_obj::<[u64; 14]>(buf)?;
            let perm = segment(k, id)?.perm;
            k.ipc_owns(&perm)?;
            let now = k.seconds();
            let entry = segment(k, id)?;
            entry.perm.set(&[a, b, c, d, e, f])?;
            entry.ctime = now;
            Ok(0)
        }
        cmd::LOCK | cmd::UNLOCK => lock(k, id, cmd == cmd::LOCK),
        _ => err(Errno::EINVAL),
    }
}

/// SHM_LOCK, SHM_UNLOCK (shmctl_do_lock). EPERM; ENOMEM for more than RLIMIT_MEMLOCK, which "sets a maximum on the total bytes in shared
/// memory segments [...] that may be locked by the real user ID of the calling process" (getrlimit(2)).
fn lock(k: &mut Ctx<'_>, id: i32, lock: bool) -> SysResult {
    let Entry { perm, item, .. } = segment(k, id)?;
    let (perm, pages, locked) = (*perm, item.size.div_ceil(PAGE), item.locker.is_some());
    let limit = k.process().limits[c::RLIMIT_MEMLOCK as usize].cur;
    let privileged = k.capable(CAP_IPC_LOCK);
    if !privileged {
        // Only ids count here, and no capability of those that let others set permissions.
        let uid = k.credentials().cred.uid;
        if uid != perm.uid && uid != perm.cuid || lock && limit == 0 {
            return err(Errno::EPERM);
        }
    }
    let user = k.credentials().real_ids[0];
    if lock && !locked && !privileged && k.node.sysv.locked_by(user) + pages > limit / PAGE {
        return err(Errno::ENOMEM);
    }
    let entry = segment(k, id)?;
    // Memory is never swapped: all that is left of a lock is that it shows, and whose limit it counts against.
    if lock && !locked {
        entry.perm.mode |= LOCKED;
        entry.item.locker = Some(user);
    } else if !lock {
        entry.perm.mode &= !LOCKED;
        entry.item.locker = None;
    }
    Ok(0)
}

/// A limit as its parameter of the kernel has it.
fn limit(k: &Ctx<'_>, parameter: &str, usual: u64) -> u64 {
    k.container().number(parameter).unwrap_or(usual)
}

/// IPC_INFO: `struct shminfo64`; SHM_INFO: `struct shm_info`.
fn info(k: &mut Ctx<'_>, cmd: u32, buf: Ptr) -> SysResult {
    let segments = &k.ipc().segments;
    let (highest, count) = (segments.highest(), segments.len() as u64);
    if cmd == cmd::INFO {
        let (longest, most) = (limit(k, "kernel/shmmax", MAX_SIZE), limit(k, "kernel/shmmni", MOST.into()));
        k.write_obj(buf, &[longest, 1, most, most, MAX_SIZE, 0, 0, 0, 0])?;
        return Ok(highest);
    }
    let shms: Vec<ShmId> = segments.iter().map(|entry| entry.item.shm).collect();
    let pages = shms.iter().map(|shm| k.node.shm[*shm].size / PAGE).sum();
    let resident = shms.iter().map(|shm| k.node.shm[*shm].pages.len() as u64).sum();
    k.write_obj(buf, &[count, pages, resident, 0, 0, 0])?;
    Ok(highest)
}

/// IPC_STAT, and SHM_STAT of an index: `struct shmid64_ds`.
fn stat(k: &mut Ctx<'_>, id: i32, cmd: u32, buf: Ptr) -> SysResult {
    let viewer = k.pid_ns();
    let segments = &k.ipc().segments;
    let entry = if cmd == cmd::STAT { segments.get(id) } else { segments.at(id) };
    let Some(Entry { id, perm, ctime, item, .. }) = entry.cloned() else { return err(Errno::EINVAL) };
    if cmd != cmd::SHM_STAT_ANY {
        k.ipc_may(&perm, READ)?;
    }
    let [a, b, c, d, e, f] = perm.words(id);
    let last = item.last.map_or(0, |pid| pid.number_in(viewer));
    let pids = u64::from(item.maker.number_in(viewer)) | u64::from(last) << 32;
    let attached = u64::from(k.node.shm[item.shm].refs);
    let words = [a, b, c, d, e, f, item.size, item.atime, item.dtime, ctime, pids, attached, 0, 0];
    k.write_obj(buf, &words)?;
    Ok(if cmd == cmd::STAT { 0 } else { id as u64 })
}

impl Ctx<'_> {
    /// Whether these pieces of mappings are whole ones, and all that keeps a segment which is to be destroyed (SHM_DEST).
    pub(super) fn are_last_of_removed(&mut self, mm: MmId, pieces: &[Vma]) -> bool {
        let Some(Backing::Shm { id, .. }) = pieces.first().map(|piece| &piece.backing) else { return false };
        let Shm { segment: Some((_, segment)), refs, .. } = self.node.shm[*id] else { return false };
        let whole = |piece: &Vma| {
            self.node.mms[mm].find(piece.start).is_some_and(|v| (v.start, v.end) == (piece.start, piece.end))
        };
        refs as usize == pieces.len()
            && pieces.iter().all(whole)
            && self.ipc().segments.get(segment).is_some_and(|entry| entry.perm.mode & DEST != 0)
    }
}

/// IPC_RMID: "the segment will actually be destroyed only after the last process detaches it".
fn remove(k: &mut Ctx<'_>, id: i32) -> SysResult {
    let perm = segment(k, id)?.perm;
    k.ipc_owns(&perm)?;
    let segments = &mut k.ipc().segments;
    segments.forget_name(id);
    let Some(entry) = segments.get_mut(id) else { return err(Errno::EINVAL) };
    entry.perm.mode |= DEST;
    let shm = entry.item.shm;
    let ns = k.container().ipc;
    if k.node.shm[shm].refs == 0 {
        k.node.segment_unused(ns, id);
    }
    Ok(0)
}

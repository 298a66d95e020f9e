//! SysV shared memory: shmget(2), shmat(2), shmdt(2), shmctl(2).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::names;

use crate::container::IpcNs;
use crate::ctx::*;
use crate::ids::*;
use crate::mm::{Backing, OnFork, PAGE, Vma, page_up};
use crate::node::{Node, Shm};
use crate::wait::{Stop, SysResult};

impl Node {
    /// Removes all SysV segments of an IPC namespace, as its end does. No process of it may be left.
    pub fn remove_segments(&mut self, ns: IpcNs) {
        self.sysv.retain(|(of, _), _| *of != ns);
        let theirs = self.shm.iter().filter(|(_, s)| s.sysv.is_some() && s.ipc == ns);
        let ids: Vec<ShmId> = theirs.map(|(id, _)| id).collect();
        for id in ids {
            self.shm.remove(id);
        }
    }
}

/// shmget(2). EEXIST, ENOENT; EINVAL for more than the segment has.
pub fn shmget(k: &mut Ctx<'_>, key: i32, size: u64, flags: IpcFlags) -> SysResult {
    let ns = k.container().ipc;
    if key != 0
        && let Some(id) = k.node.sysv.get(&(ns, key)).copied()
    {
        if flags.contains(IpcFlags::IPC_CREAT) && flags.contains(IpcFlags::IPC_EXCL) {
            return err(Errno::EEXIST);
        }
        if size > k.node.shm[id].size {
            return err(Errno::EINVAL);
        }
        return Ok(u64::from(id.0));
    }
    if key != 0 && !flags.contains(IpcFlags::IPC_CREAT) {
        return err(Errno::ENOENT);
    }
    let len = page_up(size).filter(|l| *l > 0).ok_or(Errno::EINVAL)?;
    let id = k.node.shm.insert(Shm { size: len, sysv: Some((key, false)), ipc: ns, ..Shm::default() });
    if key != 0 {
        k.node.sysv.insert((ns, key), id);
    }
    Ok(u64::from(id.0))
}

fn segment(k: &Ctx<'_>, id: i32) -> SysResult<ShmId> {
    let id = ShmId(u32::try_from(id).map_err(|_| Errno::EINVAL)?);
    match k.node.shm.get(id) {
        Some(s) if s.sysv.is_some() && s.ipc == k.container().ipc => Ok(id),
        _ => err(Errno::EINVAL),
    }
}

/// shmat(2). EINVAL for an address that is not aligned.
pub fn shmat(k: &mut Ctx<'_>, id: i32, addr: Ptr, flags: ShmatFlags) -> SysResult {
    let seg = segment(k, id)?;
    let len = k.node.shm[seg].size;
    let mm = k.process().mm;
    // "SHM_RND: the attach occurs at the address equal to shmaddr rounded down to the nearest multiple of SHMLBA."
    let addr = if flags.contains(ShmatFlags::SHM_RND) { Ptr(addr.0 & !(PAGE - 1)) } else { addr };
    if !addr.0.is_multiple_of(PAGE) || addr.is_null() && flags.contains(ShmatFlags::SHM_REMAP) {
        return err(Errno::EINVAL);
    }
    if flags.contains(ShmatFlags::SHM_REMAP) {
        return Err(Stop::Unsupported("shmat SHM_REMAP".into()));
    }
    let start = k.node.mms[mm].find_free(addr.0, len)?;
    if !addr.is_null() && start != addr.0 {
        return err(Errno::EINVAL);
    }
    // SHM_RDONLY
    let prot =
        if flags.contains(ShmatFlags::SHM_RDONLY) { c::PROT_READ } else { c::PROT_READ | c::PROT_WRITE };
    let backing = Backing::Shm { id: seg, offset: 0 };
    let vma =
        Vma { start, end: start + len, prot, shared: true, backing, on_fork: OnFork::Copy, may_write: true };
    k.node.with_recount(mm, |m| m.insert(vma));
    k.process_mut().shm_attached.insert(start, id);
    Ok(start)
}

/// shmdt(2). EINVAL if no segment begins there.
pub fn shmdt(k: &mut Ctx<'_>, addr: Ptr) -> SysResult {
    let id = k.process_mut().shm_attached.remove(&addr.0).ok_or(Errno::EINVAL)?;
    let len = k.node.shm.get(ShmId(id as u32)).map_or(0, |s| s.size);
    let mm = k.process().mm;
    k.node.with_recount(mm, |m| m.remove(addr.0, addr.0 + len));
    Ok(0)
}

/// shmctl(2). EINVAL for unknown commands and segments.
pub fn shmctl(k: &mut Ctx<'_>, id: i32, cmd: u32, buf: Ptr) -> SysResult {
    const RMID: u64 = 0;
    const SET: u64 = 1;
    const STAT: u64 = 2;
    const LOCK: u64 = 11;
    const UNLOCK: u64 = 12;
    let cmd = u64::from(cmd);
    if !matches!(cmd, RMID | SET | STAT | LOCK | UNLOCK) {
        return super::unmodelled("shmctl", names::SHMCTL, cmd, Errno::EINVAL);
    }
    let seg = segment(k, id)?;
    match cmd {
        RMID => {
            let shm = &mut k.node.shm[seg];
            let key = shm.sysv.map_or(0, |s| s.0);
            shm.sysv = Some((0, true));
            if shm.refs == 0 {
                k.node.shm.remove(seg);
            }
            let ns = k.container().ipc;
            k.node.sysv.retain(|of, v| !(*of == (ns, key) && *v == seg));
        }
        STAT => {
            // struct shmid64_ds: ipc64_perm (48 bytes), size, times, pids, nattch
            let shm = &k.node.shm[seg];
            let mut words = [0u64; 14];
            words[0] = shm.sysv.map_or(0, |s| s.0) as u32 as u64;
            (words[6], words[11]) = (shm.size, u64::from(shm.refs));
            k.write_obj(buf, &words)?;
        }
        // Owners are not modelled, and memory is never swapped.
        _ => {}
    }
    Ok(0)
}

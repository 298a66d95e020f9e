//! User and group ids (credentials(7)).

use std::sync::Arc;

use bloodhound_abi::Errno;

use crate::caps::{CAP_SETGID, CAP_SETUID};
use crate::credentials::Credentials;
use crate::ctx::*;
use crate::wait::SysResult;

/// "-1: unchanged" of the set calls.
const KEEP: u32 = u32::MAX;

/// getuid(2): the real user id.
pub fn getuid(k: &mut Ctx<'_>) -> SysResult {
    Ok(u64::from(k.credentials().real_ids[0]))
}

/// geteuid(2): the effective user id.
pub fn geteuid(k: &mut Ctx<'_>) -> SysResult {
    Ok(u64::from(k.credentials().cred.uid))
}

/// getgid(2): the real group id.
pub fn getgid(k: &mut Ctx<'_>) -> SysResult {
    Ok(u64::from(k.credentials().real_ids[2]))
}

/// getegid(2): the effective group id.
pub fn getegid(k: &mut Ctx<'_>) -> SysResult {
    Ok(u64::from(k.credentials().cred.gid))
}

impl Ctx<'_> {
    /// Gives the caller other credentials (commit_creds). Where effective ids or those for files change, or capabilities are won, the "dumpable"
    /// attribute of its memory "is reset to the value contained in the file /proc/sys/fs/suid_dumpable" (PR_SET_DUMPABLE(2const)),
    /// 0, and its parent-death signal is cleared.
    pub(crate) fn commit_credentials(&mut self, new: Credentials) {
        if self.credentials().takes_secrets_away(&new) {
            self.mm().kept.dumpable = 0;
            self.task_mut().pdeathsig = 0;
        }
        *self.credentials_mut() = new;
    }
}

/// Whether any id may be taken; `at` as below.
fn may_set(k: &Ctx<'_>, at: usize) -> bool {
    k.capable(if at == 0 { CAP_SETUID } else { CAP_SETGID })
}

/// Sets real, effective and saved id of one kind; `at` is 0 for users, 2 for groups.
fn set_ids(k: &mut Ctx<'_>, at: usize, real: u32, effective: u32, saved: u32) -> SysResult {
    let mut new = k.credentials().clone();
    let now = if at == 0 { new.cred.uid } else { new.cred.gid };
    let mine = [new.real_ids[at], now, new.real_ids[at + 1]];
    if !may_set(k, at) && [real, effective, saved].iter().any(|id| *id != KEEP && !mine.contains(id)) {
        return err(Errno::EPERM);
    }
    for (slot, id) in [(at, real), (at + 1, saved)] {
        if id != KEEP {
            new.real_ids[slot] = id;
        }
    }
    if effective != KEEP {
        let slot = if at == 0 { &mut new.cred.uid } else { &mut new.cred.gid };
        *slot = effective;
    }
    if at == 0 {
        let now = [new.real_ids[0], new.cred.uid, new.real_ids[1]];
        new.caps.after_ids(mine, now);
    }
    // "The file-system user ID is also set to the same value as the effective user ID" (setreuid(2)).
    new.fs_ids[at / 2] = None;
    k.commit_credentials(new);
    Ok(0)
}

/// All three ids, where one of them becomes another one. "Regardless of what changes are made to the real UID, effective UID, and saved
/// set-user-ID, the filesystem UID is always set to the same value as the (possibly new) effective UID" (setresuid(2)); but Linux looks first
/// whether there is anything to change (`__sys_setresuid`), and an effective id of -1 says nothing of the one for files.
fn set_three(k: &mut Ctx<'_>, at: usize, [real, effective, saved]: [u32; 3]) -> SysResult {
    let (mine, files) = (k.credentials(), k.fs_cred());
    let (now, for_files) = if at == 0 { (mine.cred.uid, files.uid) } else { (mine.cred.gid, files.gid) };
    let stays = |id: u32, now: &[u32]| id == KEEP || now.iter().all(|now| *now == id);
    let [own_real, own_saved] = [mine.real_ids[at], mine.real_ids[at + 1]];
    if stays(real, &[own_real]) && stays(effective, &[now, for_files]) && stays(saved, &[own_saved]) {
        return Ok(0);
    }
    set_ids(k, at, real, effective, saved)
}

/// setresuid(2). EPERM for ids that the process does not have.
pub fn setresuid(k: &mut Ctx<'_>, r: u32, e: u32, s: u32) -> SysResult {
    set_three(k, 0, [r, e, s])
}

/// setresgid(2). EPERM for ids that the process does not have.
pub fn setresgid(k: &mut Ctx<'_>, r: u32, e: u32, s: u32) -> SysResult {
    set_three(k, 2, [r, e, s])
}

/// "If the real user ID is set or the effective user ID is set to a value not equal to the previous real user ID, the
/// saved set-user-ID will be set to the new effective user ID" (setreuid(2)).
fn set_pair(k: &mut Ctx<'_>, at: usize, real: u32, effective: u32) -> SysResult {
    let old_real = k.credentials().real_ids[at];
    let old_effective = if at == 0 { k.credentials().cred.uid } else { k.credentials().cred.gid };
    // "Unprivileged users may only set the real user ID to the real user ID or the effective user ID": not to the saved one.
    if real != KEEP && ![old_real, old_effective].contains(&real) && !may_set(k, at) {
        return err(Errno::EPERM);
    }
    let saved = if real != KEEP || (effective != KEEP && effective != old_real) {
        if effective == KEEP { old_effective } else { effective }
    } else {
        KEEP
    };
    set_ids(k, at, real, effective, saved)
}

/// setreuid(2). EPERM for ids that the process does not have.
pub fn setreuid(k: &mut Ctx<'_>, r: u32, e: u32) -> SysResult {
    set_pair(k, 0, r, e)
}

/// setregid(2). EPERM for ids that the process does not have.
pub fn setregid(k: &mut Ctx<'_>, r: u32, e: u32) -> SysResult {
    set_pair(k, 2, r, e)
}

/// All three ids with the capability, else the effective one: "EPERM The user is not privileged [...] and uid does not match the real UID or
/// saved set-user-ID of the calling process"; "EINVAL The user ID specified in uid is not valid" (setuid(2)).
fn set_one(k: &mut Ctx<'_>, at: usize, id: u32) -> SysResult {
    if id == KEEP {
        return err(Errno::EINVAL);
    }
    if may_set(k, at) {
        return set_ids(k, at, id, id, id);
    }
    let own = &k.credentials().real_ids[at..at + 2];
    if own.contains(&id) { set_ids(k, at, KEEP, id, KEEP) } else { err(Errno::EPERM) }
}

/// setuid(2). EPERM, EINVAL.
pub fn setuid(k: &mut Ctx<'_>, uid: u32) -> SysResult {
    set_one(k, 0, uid)
}

/// setgid(2). EPERM, EINVAL.
pub fn setgid(k: &mut Ctx<'_>, gid: u32) -> SysResult {
    set_one(k, 2, gid)
}

/// "setfsuid() will succeed only if the caller is the superuser or if fsuid matches either the caller's real user ID,
/// effective user ID, saved set-user-ID, or current filesystem user ID"; "On both success and failure, this call returns
/// the previous filesystem user ID of the caller." No user has the id -1. `at` as above. Files go by the id alone here, and not by the
/// capabilities that change with it.
fn set_fs_id(k: &mut Ctx<'_>, at: usize, id: u32) -> SysResult {
    let (mut new, cred) = (k.credentials().clone(), k.fs_cred());
    let (old, effective) = if at == 0 { (cred.uid, new.cred.uid) } else { (cred.gid, new.cred.gid) };
    let own = [new.real_ids[at], new.real_ids[at + 1], effective, old].contains(&id);
    if id != KEEP && (own || may_set(k, at)) {
        new.fs_ids[at / 2] = Some(id).filter(|id| *id != effective);
        if at == 0 {
            new.caps.after_fs_id(old, id);
        }
        k.commit_credentials(new);
    }
    Ok(u64::from(old))
}

/// setfsuid(2): returns the id before, also if nothing was changed.
pub fn setfsuid(k: &mut Ctx<'_>, uid: u32) -> SysResult {
    set_fs_id(k, 0, uid)
}

/// setfsgid(2): returns the id before, also if nothing was changed.
pub fn setfsgid(k: &mut Ctx<'_>, gid: u32) -> SysResult {
    set_fs_id(k, 2, gid)
}

fn three(k: &mut Ctx<'_>, values: [u32; 3], ptrs: [Ptr; 3]) -> SysResult {
    for (value, ptr) in values.iter().zip(ptrs) {
        k.write_obj(ptr, value)?;
    }
    Ok(0)
}

/// getresuid(2).
pub fn getresuid(k: &mut Ctx<'_>, r: Ptr, e: Ptr, s: Ptr) -> SysResult {
    let p = k.credentials();
    let values = [p.real_ids[0], p.cred.uid, p.real_ids[1]];
    three(k, values, [r, e, s])
}

/// getresgid(2).
pub fn getresgid(k: &mut Ctx<'_>, r: Ptr, e: Ptr, s: Ptr) -> SysResult {
    let p = k.credentials();
    let values = [p.real_ids[2], p.cred.gid, p.real_ids[3]];
    three(k, values, [r, e, s])
}

/// getgroups(2): their number for a size of 0; EINVAL for a size that is too small.
pub fn getgroups(k: &mut Ctx<'_>, size: i32, list: Ptr) -> SysResult {
    let groups = k.credentials().cred.groups.clone();
    if size < 0 || (size > 0 && (size as usize) < groups.len()) {
        return err(Errno::EINVAL);
    }
    if size > 0 {
        for (i, gid) in groups.iter().enumerate() {
            k.write_obj(Ptr(list.0 + 4 * i as u64), gid)?;
        }
    }
    Ok(groups.len() as u64)
}

/// setgroups(2). EPERM without CAP_SETGID.
pub fn setgroups(k: &mut Ctx<'_>, size: i32, list: Ptr) -> SysResult {
    if !may_set(k, 2) {
        return err(Errno::EPERM);
    }
    let size = usize::try_from(size).ok().filter(|n| *n <= 65536).ok_or(Errno::EINVAL)?;
    let mut groups: Vec<u32> = k.read_vec(list.0, size)?;
    // No group has the id -1 (groups_from_user).
    if groups.contains(&KEEP) {
        return err(Errno::EINVAL);
    }
    // They are kept, and shown, in their order as numbers (groups_sort).
    groups.sort_unstable();
    k.credentials_mut().cred.groups = Arc::from(groups);
    Ok(0)
}

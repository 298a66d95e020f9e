//! User and group ids (credentials(7)), capabilities(7) as a fixed set.

use std::sync::Arc;

use bloodhound_abi::Errno;

use crate::ctx::*;
use crate::wait::SysResult;

/// "-1: unchanged" of the set calls.
const KEEP: u32 = u32::MAX;

pub fn getuid(k: &mut Ctx<'_>) -> SysResult {
    Ok(u64::from(k.process().real_ids[0]))
}

pub fn geteuid(k: &mut Ctx<'_>) -> SysResult {
    Ok(u64::from(k.process().cred.uid))
}

pub fn getgid(k: &mut Ctx<'_>) -> SysResult {
    Ok(u64::from(k.process().real_ids[2]))
}

pub fn getegid(k: &mut Ctx<'_>) -> SysResult {
    Ok(u64::from(k.process().cred.gid))
}

/// Sets real, effective and saved id of one kind; `at` is 0 for users, 2 for groups.
fn set_ids(k: &mut Ctx<'_>, at: usize, real: u32, effective: u32, saved: u32) -> SysResult {
    let p = k.process();
    let now = if at == 0 { p.cred.uid } else { p.cred.gid };
    let mine = [p.real_ids[at], now, p.real_ids[at + 1]];
    if !p.cred.is_root() && [real, effective, saved].iter().any(|id| *id != KEEP && !mine.contains(id)) {
        return err(Errno::EPERM);
    }
    let p = k.process_mut();
    for (slot, id) in [(at, real), (at + 1, saved)] {
        if id != KEEP {
            p.real_ids[slot] = id;
        }
    }
    if effective != KEEP {
        if at == 0 {
            p.cred.uid = effective;
        } else {
            p.cred.gid = effective;
        }
    }
    Ok(0)
}

pub fn setresuid(k: &mut Ctx<'_>, r: u32, e: u32, s: u32) -> SysResult {
    set_ids(k, 0, r, e, s)
}

pub fn setresgid(k: &mut Ctx<'_>, r: u32, e: u32, s: u32) -> SysResult {
    set_ids(k, 2, r, e, s)
}

/// "If the real user ID is set or the effective user ID is set to a value not equal to the previous real user ID, the
/// saved set-user-ID will be set to the new effective user ID" (setreuid(2)).
fn set_pair(k: &mut Ctx<'_>, at: usize, real: u32, effective: u32) -> SysResult {
    let old_real = k.process().real_ids[at];
    let saved = if real != KEEP || (effective != KEEP && effective != old_real) {
        let now = if at == 0 { k.process().cred.uid } else { k.process().cred.gid };
        if effective == KEEP { now } else { effective }
    } else {
        KEEP
    };
    set_ids(k, at, real, effective, saved)
}

pub fn setreuid(k: &mut Ctx<'_>, r: u32, e: u32) -> SysResult {
    set_pair(k, 0, r, e)
}

pub fn setregid(k: &mut Ctx<'_>, r: u32, e: u32) -> SysResult {
    set_pair(k, 2, r, e)
}

pub fn setuid(k: &mut Ctx<'_>, uid: u32) -> SysResult {
    if k.process().cred.is_root() { set_ids(k, 0, uid, uid, uid) } else { set_ids(k, 0, KEEP, uid, KEEP) }
}

pub fn setgid(k: &mut Ctx<'_>, gid: u32) -> SysResult {
    if k.process().cred.is_root() { set_ids(k, 2, gid, gid, gid) } else { set_ids(k, 2, KEEP, gid, KEEP) }
}

pub fn setfsuid(k: &mut Ctx<'_>, _uid: u32) -> SysResult {
    Ok(u64::from(k.process().cred.uid))
}

pub fn setfsgid(k: &mut Ctx<'_>, _gid: u32) -> SysResult {
    Ok(u64::from(k.process().cred.gid))
}

fn three(k: &mut Ctx<'_>, values: [u32; 3], ptrs: [Ptr; 3]) -> SysResult {
    for (value, ptr) in values.iter().zip(ptrs) {
        k.write_obj(ptr, value)?;
    }
    Ok(0)
}

pub fn getresuid(k: &mut Ctx<'_>, r: Ptr, e: Ptr, s: Ptr) -> SysResult {
    let p = k.process();
    let values = [p.real_ids[0], p.cred.uid, p.real_ids[1]];
    three(k, values, [r, e, s])
}

pub fn getresgid(k: &mut Ctx<'_>, r: Ptr, e: Ptr, s: Ptr) -> SysResult {
    let p = k.process();
    let values = [p.real_ids[2], p.cred.gid, p.real_ids[3]];
    three(k, values, [r, e, s])
}

pub fn getgroups(k: &mut Ctx<'_>, size: i32, list: Ptr) -> SysResult {
    let groups = k.process().cred.groups.clone();
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

pub fn setgroups(k: &mut Ctx<'_>, size: i32, list: Ptr) -> SysResult {
    if !k.process().cred.is_root() {
        return err(Errno::EPERM);
    }
    let size = usize::try_from(size).ok().filter(|n| *n <= 65536).ok_or(Errno::EINVAL)?;
    let groups: Vec<u32> = k.read_vec(list.0, size)?;
    k.process_mut().cred.groups = Arc::from(groups);
    Ok(0)
}

/// _LINUX_CAPABILITY_VERSION_3
const CAP_V3: u32 = 0x2008_0522;

pub fn capget(k: &mut Ctx<'_>, hdr: Ptr, data: Ptr) -> SysResult {
    let version: u32 = k.read_obj(hdr)?;
    if version != CAP_V3 {
        k.write_obj(hdr, &CAP_V3)?;
        return if data.is_null() { Ok(0) } else { err(Errno::EINVAL) };
    }
    if !data.is_null() {
        // docker's default set for root: a00425fb; effective, permitted, inheritable, twice 32 bits.
        let caps = if k.process().cred.is_root() { 0xa004_25fb_u32 } else { 0 };
        k.write_obj(data, &[caps, caps, 0, 0, 0, 0])?;
    }
    Ok(0)
}

pub fn capset(k: &mut Ctx<'_>, hdr: Ptr, data: Ptr) -> SysResult {
    let version: u32 = k.read_obj(hdr)?;
    if version != CAP_V3 {
        return err(Errno::EINVAL);
    }
    let _wanted: [u32; 6] = k.read_obj(data)?;
    Ok(0)
}

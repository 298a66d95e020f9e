//! capget(2), capset(2) and what prctl(2) does with capabilities.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::caps::{CAP_SETPCAP, Caps, KEEP_CAPS, LAST, LOCKS, NO_AMBIENT_RAISE};
use crate::ctx::*;
use crate::wait::{Stop, SysResult};

/// _LINUX_CAPABILITY_VERSION_3, 2 with the same structure, and 1, whose structure ends with capability 31.
const VERSIONS: [u32; 3] = [0x2008_0522, 0x2007_1026, 0x1998_0330];

/// How many words each set has by the version of a header. EINVAL, with the version that is understood, for an unknown one.
fn words_of_version(k: &mut Ctx<'_>, hdr: Ptr) -> SysResult<usize> {
    let version: u32 = k.read_obj(hdr)?;
    if VERSIONS.contains(&version) {
        return Ok(if version == VERSIONS[2] { 1 } else { 2 });
    }
    k.write_obj(hdr, &VERSIONS[0])?;
    err(Errno::EINVAL)
}

/// capget(2). EINVAL, ESRCH.
pub fn capget(k: &mut Ctx<'_>, hdr: Ptr, data: Ptr) -> SysResult {
    let words = match words_of_version(k, hdr) {
        // How programs ask for the version.
        Ok(_) | Err(Stop::Errno(Errno::EINVAL)) if data.is_null() => return Ok(0),
        words => words?,
    };
    let tid = match k.read_obj(Ptr(hdr.0.wrapping_add(4)))? {
        0 => k.tid,
        0x8000_0000.. => return err(Errno::EINVAL),
        tid => k.pid_ns().tid(tid),
    };
    let caps = k.node.credentials_of_thread(tid).ok_or(Errno::ESRCH)?.caps;
    let sets = [caps.effective, caps.permitted, caps.inheritable];
    let [low, high] = [0, 32].map(|shift| sets.map(|set| (set >> shift) as u32));
    let both: Vec<u8> = [low, high].concat().iter().flat_map(|word| word.to_le_bytes()).collect();
    k.write_bytes(data.0, &both[..12 * words])?;
    Ok(0)
}

/// capset(2). EPERM for more than the permitted set.
pub fn capset(k: &mut Ctx<'_>, hdr: Ptr, data: Ptr) -> SysResult {
    let count = words_of_version(k, hdr)?;
    let tid: u32 = k.read_obj(Ptr(hdr.0.wrapping_add(4)))?;
    if tid != 0 && tid != k.tid.number() {
        return err(Errno::EPERM);
    }
    let mut words: Vec<u32> = k.read_vec(data.0, 3 * count)?;
    words.resize(6, 0);
    // Bits without a capability are dropped.
    let set = |at: usize| (u64::from(words[at + 3]) << 32 | u64::from(words[at])) & ((2 << LAST) - 1);
    let now = k.credentials().caps;
    let wanted = Caps { effective: set(0), permitted: set(1), inheritable: set(2), ..now };
    let inheritable = if now.has(CAP_SETPCAP) { u64::MAX } else { now.inheritable | now.permitted };
    let more = wanted.inheritable & !(inheritable & (now.inheritable | now.bounding))
        | wanted.permitted & !now.permitted
        | wanted.effective & !wanted.permitted;
    if more != 0 {
        return err(Errno::EPERM);
    }
    let ambient = now.ambient & wanted.permitted & wanted.inheritable;
    k.credentials_mut().caps = Caps { ambient, ..wanted };
    Ok(0)
}

/// The options about capabilities.
pub fn prctl(k: &mut Ctx<'_>, option: u64, [a2, a3, a4, a5]: [u64; 4]) -> SysResult {
    let caps = k.credentials().caps;
    match option {
        c::PR_GET_KEEPCAPS => Ok(u64::from(caps.securebits & KEEP_CAPS != 0)),
        c::PR_SET_KEEPCAPS if a2 > 1 => err(Errno::EINVAL),
        c::PR_SET_KEEPCAPS if caps.securebits & KEEP_CAPS << 1 != 0 => err(Errno::EPERM),
        c::PR_SET_KEEPCAPS => {
            let keep = if a2 == 1 { KEEP_CAPS } else { 0 };
            k.credentials_mut().caps.securebits = caps.securebits & !KEEP_CAPS | keep;
            Ok(0)
        }
        c::PR_GET_SECUREBITS => Ok(u64::from(caps.securebits)),
        c::PR_SET_SECUREBITS => {
            let (now, wanted) = (u64::from(caps.securebits), a2);
            let locked = (now & u64::from(LOCKS)) >> 1 | now & u64::from(LOCKS);
            if !caps.has(CAP_SETPCAP) || wanted > 0xff || (now ^ wanted) & locked != 0 {
                return err(Errno::EPERM);
            }
            k.credentials_mut().caps.securebits = wanted as u32;
            Ok(0)
        }
        // "EINVAL option is PR_CAPBSET_READ and arg2 does not specify a valid capability": programs look for the last one.
        c::PR_CAPBSET_READ if a2 > LAST => err(Errno::EINVAL),
        c::PR_CAPBSET_READ => Ok(caps.bounding >> a2 & 1),
        c::PR_CAPBSET_DROP if !caps.has(CAP_SETPCAP) => err(Errno::EPERM),
        c::PR_CAPBSET_DROP if a2 > LAST => err(Errno::EINVAL),
        c::PR_CAPBSET_DROP => {
            k.credentials_mut().caps.bounding &= !(1 << a2);
            Ok(0)
        }
        _ => ambient(k, a2, a3, a4 | a5),
    }
}

/// PR_CAP_AMBIENT.
fn ambient(k: &mut Ctx<'_>, what: u64, cap: u64, rest: u64) -> SysResult {
    const IS_SET: u64 = 1;
    const RAISE: u64 = 2;
    const LOWER: u64 = 3;
    const CLEAR_ALL: u64 = 4;
    let most = if what == CLEAR_ALL { 0 } else { LAST };
    if rest != 0 || cap > most || !(IS_SET..=CLEAR_ALL).contains(&what) {
        return err(Errno::EINVAL);
    }
    let caps = &mut k.credentials_mut().caps;
    match what {
        IS_SET => return Ok(caps.ambient >> cap & 1),
        RAISE => {
            let may = caps.permitted & caps.inheritable;
            if may >> cap & 1 == 0 || caps.securebits & NO_AMBIENT_RAISE != 0 {
                return err(Errno::EPERM);
            }
            caps.ambient |= 1 << cap;
        }
        LOWER => caps.ambient &= !(1 << cap),
        _ => caps.ambient = 0,
    }
    Ok(0)
}

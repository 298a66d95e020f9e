//! openat2(2): open with rules for the walk of the path ([`crate::path::Lookup`]).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_vfs::flags::{
    RESOLVE_BENEATH, RESOLVE_CACHED, RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS,
    RESOLVE_NO_XDEV,
};

use crate::ctx::*;
use crate::wait::{Progress, SysResult};

/// OPEN_HOW_SIZE_VER0.
const HOW: u64 = 24;
/// The bit that makes O_TMPFILE differ from O_DIRECTORY, and that of O_SYNC which O_DSYNC does not have.
const TMPFILE_BIT: u64 = c::O_TMPFILE & !c::O_DIRECTORY;
const SYNC_BIT: u64 = 0o400_0000;
/// VALID_OPEN_FLAGS.
pub(super) const VALID: u64 = c::O_ACCMODE
    | c::O_CREAT
    | c::O_EXCL
    | c::O_NOCTTY
    | c::O_TRUNC
    | c::O_APPEND
    | c::O_NONBLOCK
    | SYNC_BIT
    | c::O_DSYNC
    | c::O_ASYNC
    | c::O_DIRECT
    | c::O_LARGEFILE
    | c::O_DIRECTORY
    | c::O_NOFOLLOW
    | c::O_NOATIME
    | c::O_CLOEXEC
    | c::O_PATH
    | TMPFILE_BIT;
/// O_PATH_FLAGS.
const PATH_FLAGS: u64 = c::O_DIRECTORY | c::O_NOFOLLOW | c::O_PATH | c::O_CLOEXEC;
const RESOLVE: u64 = RESOLVE_NO_XDEV
    | RESOLVE_NO_MAGICLINKS
    | RESOLVE_NO_SYMLINKS
    | RESOLVE_BENEATH
    | RESOLVE_IN_ROOT
    | RESOLVE_CACHED;

/// openat2(2). E2BIG for a longer structure with something in what is not known; EINVAL for flags that openat(2) ignores; what the
/// rules refuse is EXDEV or ELOOP.
pub fn openat2(k: &mut Ctx<'_>, dirfd: Fd, path: Path, how: Ptr, size: u64) -> SysResult {
    let kept = match k.progress() {
        Some(Progress::Fifo { how, .. } | Progress::Path { how, .. }) => Some(*how),
        _ => None,
    };
    let how = match kept {
        Some(how) => how,
        None if size < HOW => return err(Errno::EINVAL),
        None => {
            k.check_newer_fields(how, HOW, size)?;
            k.read_obj::<[u64; 3]>(how)?
        }
    };
    check(how)?;
    k.lookup.how = how;
    super::open::do_open(k, dirfd, path, how[0], how[1] as u32)
}

/// build_open_flags, in its order.
fn check([flags, mode, resolve]: [u64; 3]) -> SysResult<()> {
    let has = |flag| flags & flag != 0;
    let both = RESOLVE_BENEATH | RESOLVE_IN_ROOT;
    if flags & !VALID != 0 || resolve & !RESOLVE != 0 || resolve & both == both {
        return err(Errno::EINVAL);
    }
    // "EINVAL how.flags does not contain O_CREAT or O_TMPFILE, but how.mode was nonzero."
    let modes = if has(c::O_CREAT | TMPFILE_BIT) { 0o7777 } else { 0 };
    if mode & !modes != 0 || has(c::O_CREAT) && has(c::O_DIRECTORY) {
        return err(Errno::EINVAL);
    }
    if has(TMPFILE_BIT) && (!has(c::O_DIRECTORY) || flags & c::O_ACCMODE == c::O_RDONLY) {
        return err(Errno::EINVAL);
    }
    // "If O_PATH is specified [...] flag bits other than O_CLOEXEC, O_DIRECTORY, and O_NOFOLLOW" are an error here.
    if has(c::O_PATH) && flags & !PATH_FLAGS != 0 {
        return err(Errno::EINVAL);
    }
    // "EAGAIN RESOLVE_CACHED was set, and the open operation cannot be performed using only cached information." All names are.
    if resolve & RESOLVE_CACHED != 0 && has(c::O_TRUNC | c::O_CREAT | TMPFILE_BIT) {
        return err(Errno::EAGAIN);
    }
    Ok(())
}

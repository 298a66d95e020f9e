//! execve(2), execveat(2).

use bloodhound_abi::Errno;

use crate::ctx::*;
use crate::exec::Origin;
use crate::wait::{Stop, SysResult};

/// A NULL-terminated array of strings; NULL counts as empty ("On Linux, argv and envp can be specified as NULL").
fn strings(k: &mut Ctx<'_>, array: Ptr) -> SysResult<Vec<Vec<u8>>> {
    let mut out = Vec::new();
    if array.is_null() {
        return Ok(out);
    }
    let mut total = 0;
    for i in 0.. {
        let at: u64 = k.read_obj(Ptr(array.0.wrapping_add(8 * i)))?;
        if at == 0 {
            break;
        }
        let s = k.read_cstr(at, 131_071, Errno::E2BIG)?;
        total += s.len() + 9;
        if total > 2 << 20 {
            return err(Errno::E2BIG);
        }
        out.push(s);
    }
    Ok(out)
}

/// execve(2). E2BIG for arguments that do not fit, ENOEXEC, ETXTBSY; it returns only if it fails.
pub fn execve(k: &mut Ctx<'_>, path: Path, argv: Ptr, envp: Ptr) -> SysResult {
    let path = k.read_path(path)?;
    run(k, Origin::default(), path, argv, envp)
}

/// execveat(2): with AT_EMPTY_PATH the program is the descriptor itself.
pub fn execveat(k: &mut Ctx<'_>, dirfd: Fd, path: Path, argv: Ptr, envp: Ptr, flags: AtFlags) -> SysResult {
    if flags.exceeds(AtFlags::AT_EMPTY_PATH | AtFlags::AT_SYMLINK_NOFOLLOW) {
        return err(Errno::EINVAL);
    }
    let path = k.read_path(path)?;
    run(k, Origin { dirfd, flags: flags.bits() }, path, argv, envp)
}

fn run(k: &mut Ctx<'_>, from: Origin, path: Vec<u8>, argv: Ptr, envp: Ptr) -> SysResult {
    let argv = strings(k, argv)?;
    let envp = strings(k, envp)?;
    k.exec(from, path, argv, envp)?;
    Err(Stop::NoReturn)
}

//! execve(2).

use bloodhound_abi::Errno;

use crate::ctx::*;
use crate::wait::{Stop, SysResult};

/// A NULL-terminated array of strings; NULL counts as empty ("On Linux, argv and envp can be specified as NULL").
fn strings(k: &mut Ctx<'_>, array: Ptr) -> SysResult<Vec<Vec<u8>>> {
    let mut out = Vec::new();
    if array.is_null() {
        return Ok(out);
    }
    let mut total = 0;
    for i in 0.. {
        let at: u64 = k.read_obj(Ptr(array.0 + 8 * i))?;
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

pub fn execve(k: &mut Ctx<'_>, path: Path, argv: Ptr, envp: Ptr) -> SysResult {
    let path = k.read_path(path)?;
    let argv = strings(k, argv)?;
    let envp = strings(k, envp)?;
    k.exec_program(path, argv, envp)?;
    Err(Stop::NoReturn)
}

//! Memory of other processes: process_vm_readv(2), process_vm_writev(2), process_madvise(2).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Iovec;

use super::memory::{MADV_COLLAPSE, hint};
use crate::buffers::Buffers;
use crate::caps::CAP_SYS_NICE;
use crate::credentials::Asks;
use crate::ctx::*;
use crate::ids::{MmId, Tid};
use crate::mm::{Access, PAGE};
use crate::wait::SysResult;

/// process_vm_readv(2): "transfers data from the remote process to the local process".
pub fn process_vm_readv(
    k: &mut Ctx<'_>,
    pid: i32,
    local: Ptr,
    locals: u64,
    remote: Ptr,
    remotes: u64,
    flags: Hex,
) -> SysResult {
    move_memory(k, pid, (local, locals), (remote, remotes), flags, false)
}

/// process_vm_writev(2): "transfers data from the local process to the remote process".
pub fn process_vm_writev(
    k: &mut Ctx<'_>,
    pid: i32,
    local: Ptr,
    locals: u64,
    remote: Ptr,
    remotes: u64,
    flags: Hex,
) -> SysResult {
    move_memory(k, pid, (local, locals), (remote, remotes), flags, true)
}

/// process_madvise(2), with the hints that Linux 6.1 takes about others' memory (process_madvise_behavior_valid). How many bytes were advised;
/// EBADF, ESRCH; EACCES for who may not look at the process, EPERM without CAP_SYS_NICE, also of the caller's own memory.
pub fn process_madvise(k: &mut Ctx<'_>, fd: Fd, vec: Ptr, vlen: u64, advice: u32, flags: Hex) -> SysResult {
    if flags.0 & 0xffff_ffff != 0 {
        return err(Errno::EINVAL);
    }
    let ranges = k.read_buffers(vec, vlen)?;
    let process = k.pidfd(fd)?.0.ok_or(Errno::ESRCH)?;
    let advice = u64::from(advice);
    if !matches!(advice, c::MADV_COLD | c::MADV_PAGEOUT | c::MADV_WILLNEED | MADV_COLLAPSE) {
        return err(Errno::EINVAL);
    }
    let other = k.node.process(process);
    if other.zombie.is_some() {
        return err(Errno::ESRCH);
    }
    let mm = other.mm;
    if mm != k.process().mm && !k.node.may_trace(k.tid, Tid(process.0), Asks::ForFiles) {
        return err(Errno::EACCES);
    }
    if !k.capable(CAP_SYS_NICE) {
        return err(Errno::EPERM);
    }
    let mut done = 0;
    for range in ranges.pieces(0, ranges.len()) {
        match hint(k, mm, range, advice) {
            Ok(()) => done += range.1,
            Err(error) if done == 0 => return err(error),
            Err(_) => break,
        }
    }
    Ok(done)
}

fn move_memory(
    k: &mut Ctx<'_>,
    pid: i32,
    local: (Ptr, u64),
    remote: (Ptr, u64),
    flags: Hex,
    write: bool,
) -> SysResult {
    // "The flags argument is currently unused and must be set to 0."
    if flags.0 != 0 {
        return err(Errno::EINVAL);
    }
    let local = k.read_buffers(local.0, local.1)?;
    if local.is_empty() {
        return Ok(0);
    }
    let remote = k.read_vectors(remote.0, remote.1)?;
    if remote.iter().all(|v| v.len == 0) {
        return Ok(0);
    }
    let process = k.node.process_of(k.pid_ns(), pid).ok_or(Errno::ESRCH)?;
    let other = k.node.process(process);
    if other.zombie.is_some() {
        return err(Errno::ESRCH);
    }
    if !k.may_attach(k.pid_ns().tid(pid as u32)) {
        return err(Errno::EPERM);
    }
    let mm = other.mm;
    let mut done = 0;
    for vector in remote {
        let (moved, whole) = move_vector(k, mm, &vector, &local, done, write);
        done += moved;
        if !whole {
            break;
        }
    }
    k.charge_moved(done);
    // "This return value may be less than the total number of requested bytes, if a partial read/write occurred."
    if done == 0 { err(Errno::EFAULT) } else { Ok(done) }
}

/// After about so many bytes of a vector it is looked whether the rest is of any use.
const LOOK: u64 = 4 << 20;

/// Moves one vector of the other process from `done` of the caller's buffers on; how much that made, and whether all of it could
/// be reached and there is more room.
fn move_vector(
    k: &mut Ctx<'_>,
    mm: MmId,
    vector: &Iovec,
    local: &Buffers,
    done: u64,
    write: bool,
) -> (u64, bool) {
    let mut moved = 0;
    while moved < vector.len {
        let left = local.len() - done - moved;
        let Some(at) = vector.base.checked_add(moved) else { return (moved, false) };
        let piece = (PAGE - at % PAGE).min(vector.len - moved).min(left);
        if piece == 0 {
            return (moved, false);
        }
        let n = if write {
            put_piece(k, mm, at, local, done + moved, piece)
        } else {
            get_piece(k, mm, at, local, done + moved, piece)
        };
        moved += n;
        if n < piece {
            return (moved, false);
        }
        if moved % LOOK < PAGE {
            k.node.settle(mm);
            if k.ends_early() {
                return (moved, false);
            }
        }
    }
    (moved, true)
}

/// Reads from within a page of the other process; what could be stored.
fn get_piece(k: &mut Ctx<'_>, mm: MmId, at: u64, local: &Buffers, to: u64, piece: u64) -> u64 {
    let good = k.good(local, to, piece, Access::Write);
    let mut bytes = vec![0; good as usize];
    let read = k.read_bytes_of(mm, at, &mut bytes).is_ok() && k.copy_out(local, to, &bytes).is_ok();
    if read { good } else { 0 }
}

/// Writes within a page of the other process; what could be read of the caller's memory.
fn put_piece(k: &mut Ctx<'_>, mm: MmId, at: u64, local: &Buffers, from: u64, piece: u64) -> u64 {
    let good = k.good(local, from, piece, Access::Read);
    let Ok(bytes) = k.copy_in(local, from, good) else { return 0 };
    if k.write_bytes_of(mm, at, &bytes).is_ok() { good } else { 0 }
}

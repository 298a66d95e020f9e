//! Ancillary data (cmsg(3), unix(7), ip(7)): what comes with a message to send, and what goes to a receiver.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Cmsghdr, Msghdr, Ucred};
use zerocopy::{FromBytes, IntoBytes};

use crate::caps::{CAP_SETGID, CAP_SETUID, CAP_SYS_ADMIN};
use crate::ctx::*;
use crate::ids::*;
use crate::mm::Access;
use crate::process::FdEntry;
use crate::socket::OPTMEM_MAX;
use crate::sys::socket::Sock;
use crate::unix::Ancillary;
use crate::wait::SysResult;

/// Size of `struct cmsghdr`.
const HEADER: usize = 16;
/// SCM_MAX_FD.
const MAX_FDS: usize = 253;

/// Ancillary data of a message to send. The files have no reference for the message yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Control {
    pub(crate) unix: Ancillary,
    /// That of an internet socket, as it was given.
    pub(crate) inet: Vec<u8>,
}

/// CMSG_ALIGN.
pub(super) fn align(len: usize) -> usize {
    len.next_multiple_of(8)
}

/// A control message without the bytes that align the next one.
pub(super) fn cmsg(level: u64, kind: u64, data: &[u8]) -> Vec<u8> {
    let header = Cmsghdr { len: (HEADER + data.len()) as u64, level: level as i32, kind: kind as i32 };
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(data);
    bytes
}

/// Level, type and data of a control message.
pub(super) type Part<'a> = (u64, u64, &'a [u8]);

/// The messages in a control buffer: level, type, data. EINVAL for a length that is too small or points out of the
/// buffer (`CMSG_OK`).
pub(super) fn split(mut buf: &[u8]) -> Result<Vec<Part<'_>>, Errno> {
    let mut out = Vec::new();
    while let Ok((hdr, _)) = Cmsghdr::read_from_prefix(buf) {
        let len = usize::try_from(hdr.len).map_err(|_| Errno::EINVAL)?;
        if len < HEADER || len > buf.len() {
            return Err(Errno::EINVAL);
        }
        out.push((hdr.level as u32 as u64, hdr.kind as u32 as u64, &buf[HEADER..len]));
        buf = buf.get(align(len)..).unwrap_or(&[]);
    }
    Ok(out)
}

impl Ctx<'_> {
    /// A message without ancillary data.
    pub(super) fn no_control(&self) -> Control {
        let p = self.credentials();
        // maybe_add_creds uses the real ids.
        let sender = Ucred { pid: self.pid.0 as i32, uid: p.real_ids[0], gid: p.real_ids[2] };
        let unix = Ancillary { sender, sent: self.node.clock, ..Ancillary::default() };
        Control { unix, inet: Vec::new() }
    }

    /// The ancillary data of a message to send. ENOBUFS when there is too much, EFAULT; of a unix socket EINVAL, EBADF (SCM_RIGHTS), EPERM
    /// and ESRCH (SCM_CREDENTIALS).
    pub(super) fn read_control(&mut self, sock: Sock, hdr: &Msghdr) -> SysResult<Control> {
        let mut control = self.no_control();
        if hdr.controllen == 0 {
            return Ok(control);
        }
        if hdr.controllen >= u64::from(OPTMEM_MAX) {
            return err(Errno::ENOBUFS);
        }
        let mut buf = vec![0; hdr.controllen as usize];
        self.read_bytes(hdr.control, &mut buf)?;
        if let Sock::Inet(_) = sock {
            return Ok(Control { inet: buf, ..control });
        }
        for (level, kind, data) in split(&buf)? {
            match sock {
                Sock::Unix(_) if level == c::SOL_SOCKET => self.unix_control(&mut control, kind, data)?,
                // The kernel looks at nothing that comes with a request.
                _ => {}
            }
        }
        Ok(control)
    }

    fn unix_control(&mut self, control: &mut Control, kind: u64, data: &[u8]) -> SysResult<()> {
        match kind {
            c::SCM_RIGHTS => {
                if control.unix.files.len() + data.len() / 4 > MAX_FDS {
                    return err(Errno::EINVAL);
                }
                for fd in data.chunks_exact(4) {
                    let fd = i32::from_le_bytes([fd[0], fd[1], fd[2], fd[3]]);
                    // O_PATH descriptors may be passed.
                    let entry = self.fd(Fd(fd))?;
                    self.pins.add(Fd(fd), entry);
                    control.unix.files.push(entry.file);
                }
                Ok(())
            }
            c::SCM_CREDENTIALS => {
                let cred = Ucred::read_from_bytes(data).map_err(|_| Errno::EINVAL)?;
                // Kept as a number of the machine until somebody reads it.
                let pid = self.pid_ns().pid(cred.pid as u32).0 as i32;
                let cred = Ucred { pid, ..cred };
                self.check_credentials(&cred)?;
                control.unix.cred = Some(cred);
                Ok(())
            }
            _ => err(Errno::EINVAL),
        }
    }

    /// unix(7): "The credentials which the sender specifies are checked by the kernel. A privileged process is allowed to
    /// specify values that do not match its own": with CAP_SYS_ADMIN, CAP_SETUID and CAP_SETGID (scm_check_creds).
    fn check_credentials(&self, cred: &Ucred) -> Result<(), Errno> {
        let p = self.credentials();
        let [ruid, suid, rgid, sgid] = p.real_ids;
        let uids = [ruid, suid, p.cred.uid];
        let gids = [rgid, sgid, p.cred.gid];
        let may = (cred.pid == self.pid.0 as i32 || p.caps.has(CAP_SYS_ADMIN))
            && (uids.contains(&cred.uid) || p.caps.has(CAP_SETUID))
            && (gids.contains(&cred.gid) || p.caps.has(CAP_SETGID));
        match self.node.processes.contains_key(&Pid(cred.pid as u32)) {
            _ if !may => Err(Errno::EPERM),
            true => Ok(()),
            false => Err(Errno::ESRCH),
        }
    }

    /// Stores ancillary data for a receiver; descriptions become descriptors of the caller. Returns the bytes used and
    /// whether something did not fit (MSG_CTRUNC). Bad addresses lose data without an error, as on Linux.
    pub(super) fn write_control(
        &mut self,
        hdr: &Msghdr,
        items: Vec<(u64, u64, Vec<u8>)>,
        files: Vec<FileId>,
        passcred: bool,
        flags: MsgFlags,
    ) -> (u64, bool) {
        if hdr.control == 0 {
            let truncated = passcred || !files.is_empty() || !items.is_empty();
            self.drop_files(files);
            return (0, truncated);
        }
        let (mut at, mut left, mut truncated) = (hdr.control, hdr.controllen, false);
        for (level, kind, data) in items {
            if left < HEADER as u64 {
                truncated = true;
                continue;
            }
            let whole = HEADER + data.len();
            let len = left.min(whole as u64) as usize;
            truncated |= len < whole;
            let bytes = cmsg(level, kind, &data[..len - HEADER]);
            if self.write_bytes(at, &bytes).is_ok() {
                let space = left.min(align(whole) as u64);
                (at, left) = (at.wrapping_add(space), left - space);
            }
        }
        truncated |= self.write_rights(&mut at, &mut left, files, flags);
        (hdr.controllen - left, truncated)
    }

    /// `scm_detach_fds`: as many descriptors as there is room, and as RLIMIT_NOFILE allows. Whether some were lost.
    fn write_rights(&mut self, at: &mut u64, left: &mut u64, files: Vec<FileId>, flags: MsgFlags) -> bool {
        if files.is_empty() {
            return false;
        }
        let room = (left.saturating_sub(HEADER as u64) / 4) as usize;
        let limit = self.process().limits[c::RLIMIT_NOFILE as usize].cur;
        let cloexec = flags.contains(MsgFlags::MSG_CMSG_CLOEXEC);
        let mut given = 0;
        for file in files.iter().take(room) {
            let place = at.wrapping_add((HEADER + 4 * given) as u64);
            let Ok(fd) = self.table().lowest_free(0, limit) else { break };
            if self.check_user(place, 4, Access::Write).is_err()
                || self.write_obj(Ptr(place), &(fd as i32)).is_err()
            {
                break;
            }
            self.table_mut().set(fd, FdEntry { file: *file, cloexec });
            given += 1;
        }
        if given > 0 {
            let len = (HEADER + 4 * given) as u64;
            let header = Cmsghdr { len, level: c::SOL_SOCKET as i32, kind: c::SCM_RIGHTS as i32 };
            if self.write_obj(Ptr(*at), &header).is_ok() {
                let space = (*left).min(align(len as usize) as u64);
                (*at, *left) = (at.wrapping_add(space), *left - space);
            }
        }
        let lost = files[given..].to_vec();
        let truncated = !lost.is_empty();
        self.drop_files(lost);
        truncated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claiming(len: u64, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut out = Cmsghdr { len, level: 1, kind }.as_bytes().to_vec();
        out.extend_from_slice(data);
        out
    }

    #[test]
    fn control_buffers_are_split() {
        let mut buf = claiming(20, 1, &[5, 0, 0, 0]);
        buf.extend([0; 4]);
        buf.extend(claiming(16, 2, &[]));
        let five = [5, 0, 0, 0];
        assert_eq!(split(&buf), Ok(vec![(1, 1, &five[..]), (1, 2, &[][..])]));
        // Less than a header behind the last message is no message.
        buf.extend([1; 15]);
        assert_eq!(split(&buf).map(|v| v.len()), Ok(2));
    }

    #[test]
    fn garbage_lengths_are_refused() {
        for len in [0, 15, 21, u64::MAX, 1 << 63] {
            assert_eq!(split(&claiming(len, 1, &[0; 4])), Err(Errno::EINVAL), "{len}");
        }
        assert_eq!(split(&[]), Ok(vec![]));
        assert_eq!(split(&[9; 15]), Ok(vec![]));
    }
}

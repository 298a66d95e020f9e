//! Options about programs that filter packets or choose among sockets of one port, as far as no such program is there: bpf(2) makes none, and a classic one
//! stops the run by name.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use super::set::unsupported;
use crate::ctx::*;
use crate::sys::socket::Sock;
use crate::wait::SysResult;

/// SO_ATTACH_FILTER, whose name for getsockopt(2) is SO_GET_FILTER.
pub(super) const SO_GET_FILTER: u64 = c::SO_ATTACH_FILTER;
pub(super) const SO_LOCK_FILTER: u64 = 44;
pub(super) const SO_BPF_EXTENSIONS: u64 = 48;
/// What SO_BPF_EXTENSIONS shows: SKF_AD_MAX.
pub(super) const EXTENSIONS: i32 = 64;
/// Bytes of `struct sock_fprog`.
const FPROG: u32 = 16;

impl Ctx<'_> {
    /// setsockopt(2); `None` for options that are none of these.
    pub(super) fn set_program(
        &mut self,
        sock: Sock,
        name: u64,
        value: Ptr,
        len: u32,
    ) -> Option<SysResult<()>> {
        match name {
            c::SO_ATTACH_FILTER | c::SO_ATTACH_REUSEPORT_CBPF => Some(self.attach_classic(sock, name, len)),
            c::SO_ATTACH_BPF | c::SO_ATTACH_REUSEPORT_EBPF => {
                Some(self.attach_by_descriptor(sock, name, value, len))
            }
            _ => None,
        }
    }

    /// EINVAL for another length than that of `struct sock_fprog` (copy_bpf_fprog_from_user). Packet sockets refuse a filter as a kernel without them.
    fn attach_classic(&mut self, sock: Sock, name: u64, len: u32) -> SysResult<()> {
        if len < 4 || len != FPROG {
            return err(Errno::EINVAL);
        }
        if matches!(sock, Sock::Packet(_)) && name == c::SO_ATTACH_FILTER {
            return err(Errno::ENOPROTOOPT);
        }
        if name == c::SO_ATTACH_FILTER && self.filter_is_locked(sock)? {
            return err(Errno::EPERM);
        }
        unsupported(c::SOL_SOCKET, name)
    }

    /// EBADF for no descriptor; EINVAL for one of something else than a program, which all are.
    fn attach_by_descriptor(&mut self, sock: Sock, name: u64, value: Ptr, len: u32) -> SysResult<()> {
        let fd = self.int_option(value, len)?;
        if name == c::SO_ATTACH_BPF && len != 4 {
            return err(Errno::EINVAL);
        }
        if name == c::SO_ATTACH_BPF && self.filter_is_locked(sock)? {
            return err(Errno::EPERM);
        }
        self.pin(Fd(fd))?;
        err(Errno::EINVAL)
    }

    /// SO_DETACH_FILTER of no filter.
    pub(super) fn detach_filter(&mut self, sock: Sock) -> SysResult<()> {
        err(if self.filter_is_locked(sock)? { Errno::EPERM } else { Errno::ENOENT })
    }

    /// SO_LOCK_FILTER, which stays once it is set: EPERM.
    pub(super) fn lock_filter(&mut self, sock: Sock, on: bool) -> SysResult<()> {
        if !on && self.filter_is_locked(sock)? {
            return err(Errno::EPERM);
        }
        self.generic(sock)?.kept.insert((c::SOL_SOCKET, SO_LOCK_FILTER), i32::from(on));
        Ok(())
    }

    pub(super) fn filter_is_locked(&mut self, sock: Sock) -> Result<bool, Errno> {
        Ok(self.generic(sock)?.is_set(c::SOL_SOCKET, SO_LOCK_FILTER))
    }
}

//! Options about programs that filter packets (classic BPF, which `bloodhound_bpf` runs) or choose among sockets of one port: of these none is
//! there, as bpf(2) makes none, and a classic one stops the run by name.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_bpf::{Filter, Instruction};

use super::set::unsupported;
use crate::ctx::*;
use crate::sys::socket::Sock;
use crate::wait::SysResult;

/// SO_ATTACH_FILTER, whose name for getsockopt(2) is SO_GET_FILTER.
pub(super) const SO_GET_FILTER: u64 = c::SO_ATTACH_FILTER;
pub(super) const SO_LOCK_FILTER: u64 = 44;
pub(super) const SO_BPF_EXTENSIONS: u64 = 48;
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
            c::SO_ATTACH_FILTER | c::SO_ATTACH_REUSEPORT_CBPF => {
                Some(self.attach_classic(sock, name, value, len))
            }
            c::SO_ATTACH_BPF | c::SO_ATTACH_REUSEPORT_EBPF => {
                Some(self.attach_by_descriptor(sock, name, value, len))
            }
            _ => None,
        }
    }

    /// EINVAL for another length than that of `struct sock_fprog` (copy_bpf_fprog_from_user), EPERM for a filter that is locked.
    fn attach_classic(&mut self, sock: Sock, name: u64, value: Ptr, len: u32) -> SysResult<()> {
        self.int_option(value, len)?;
        if len != FPROG {
            return err(Errno::EINVAL);
        }
        if name == c::SO_ATTACH_REUSEPORT_CBPF {
            return unsupported(c::SOL_SOCKET, name);
        }
        let named = self.read_fprog(value);
        if named != Err(Errno::EFAULT) && self.filter_is_locked(sock)? {
            return err(Errno::EPERM);
        }
        let (count, program) = named?;
        let program = self.read_program(count, program)?;
        // A number is drawn only for who asks for it.
        let mut seed = [0; 8];
        if program.instructions().iter().any(Instruction::draws) {
            self.random_bytes(&mut seed);
        }
        self.put_filter(sock, Some(Filter::new(program.into(), u64::from_le_bytes(seed))))
    }

    fn put_filter(&mut self, sock: Sock, filter: Option<Filter>) -> SysResult<()> {
        match sock {
            Sock::Inet(id) | Sock::Packet(id) => self.node.net.of_mut(id).set_packet_filter(id, filter)?,
            Sock::Unix(id) => self.node.unix.get_mut(id).filter = filter.map(Box::new),
            Sock::Netlink(id) => self.node.netlinks[id].filter = filter.map(Box::new),
        }
        Ok(())
    }

    fn filter(&self, sock: Sock) -> Result<Option<&Filter>, Errno> {
        Ok(match sock {
            Sock::Inet(id) | Sock::Packet(id) => self.node.net.of(id).packet_filter(id)?,
            Sock::Unix(id) => self.node.unix.get(id).filter.as_deref(),
            Sock::Netlink(id) => self.node.netlinks[id].filter.as_deref(),
        })
    }

    /// SO_GET_FILTER: length and room are numbers of instructions, not of bytes (`sk_get_filter`). EINVAL for too little room.
    pub(super) fn get_filter(&mut self, sock: Sock, value: Ptr, room: usize, len: Ptr) -> SysResult {
        let program = self.filter(sock)?.map(|filter| filter.program().instructions().to_vec());
        let program = program.unwrap_or_default();
        if room > 0 && room < program.len() {
            return err(Errno::EINVAL);
        }
        if room > 0 {
            let bytes: Vec<u8> = program.iter().flat_map(|i| i.encode()).collect();
            self.write_bytes(value.0, &bytes)?;
        }
        self.write_obj(len, &(program.len() as i32))?;
        Ok(0)
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

    /// SO_DETACH_FILTER. EPERM for one that is locked, ENOENT without one.
    pub(super) fn detach_filter(&mut self, sock: Sock) -> SysResult<()> {
        if self.filter_is_locked(sock)? {
            return err(Errno::EPERM);
        }
        if self.filter(sock)?.is_none() {
            return err(Errno::ENOENT);
        }
        self.put_filter(sock, None)
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

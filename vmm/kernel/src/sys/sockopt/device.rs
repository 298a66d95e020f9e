//! Options that name an interface: SO_BINDTODEVICE and SO_BINDTOIFINDEX, by which a socket gets and sends packets, and IP_UNICAST_IF and
//! IPV6_UNICAST_IF, by which its datagrams leave (socket(7), ip(7)).
//!
//! The number is kept with the options of all sockets, for those of unix(7) and netlink(7) show it, too; the network stack knows it of others.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_net::{SockOpt, SocketId};

use crate::caps::CAP_NET_RAW;
use crate::ctx::*;
use crate::sys::socket::Sock;
use crate::wait::SysResult;

pub(super) const SO_BINDTOIFINDEX: u64 = 62;
pub(super) const IP_UNICAST_IF: u64 = 50;
pub(super) const IPV6_UNICAST_IF: u64 = 76;
/// Bytes of the name of an interface with its end (IFNAMSIZ).
const NAME: usize = 16;

impl Ctx<'_> {
    /// SO_BINDTODEVICE: "If the name is an empty string or the option length is zero, the socket device binding is removed" (socket(7)). ENODEV.
    pub(super) fn bind_to_device(&mut self, sock: Sock, value: Ptr, len: u32) -> SysResult<()> {
        let mut name = vec![0; (len as usize).min(NAME - 1)];
        self.read_bytes(value.0, &mut name)?;
        let name: Vec<u8> = name.into_iter().take_while(|b| *b != 0).collect();
        if name.is_empty() {
            return self.bind_to_index(sock, 0);
        }
        let all = crate::inet::interfaces(self.stack());
        let named = all.iter().find(|interface| interface.name.as_bytes() == name).ok_or(Errno::ENODEV)?;
        self.bind_to_index(sock, named.index)
    }

    /// SO_BINDTOIFINDEX, which takes the number of no interface, too. EINVAL below 0; EPERM for who is bound without CAP_NET_RAW
    /// (sock_bindtoindex_locked).
    pub(super) fn bind_to_index(&mut self, sock: Sock, index: i32) -> SysResult<()> {
        if self.device_of(sock)? != 0 && !self.capable(CAP_NET_RAW) {
            return err(Errno::EPERM);
        }
        let number = u32::try_from(index).map_err(|_| Errno::EINVAL)?;
        self.generic(sock)?.kept.insert((c::SOL_SOCKET, SO_BINDTOIFINDEX), index);
        match sock {
            Sock::Inet(id) => self.set_stack_option(id, SockOpt::Device(number)),
            Sock::Packet(_) | Sock::Unix(_) | Sock::Netlink(_) => Ok(()),
        }
    }

    /// Dissolving the association of a socket of datagrams removes the binding as well ("sk->sk_bound_dev_if = 0", __udp_disconnect).
    pub(in crate::sys) fn unbind_device(&mut self, id: SocketId) -> SysResult<()> {
        self.generic(Sock::Inet(id))?.kept.remove(&(c::SOL_SOCKET, SO_BINDTOIFINDEX));
        self.set_stack_option(id, SockOpt::Device(0))
    }

    /// The number of the interface that a socket is bound to; 0: none.
    pub(super) fn device_of(&mut self, sock: Sock) -> Result<i32, Errno> {
        Ok(self.generic(sock)?.kept.get(&(c::SOL_SOCKET, SO_BINDTOIFINDEX)).copied().unwrap_or(0))
    }

    /// What SO_BINDTODEVICE shows: nothing, or the name with its end. EINVAL without room for the longest name; ENODEV for what is no interface
    /// (sock_getbindtodevice).
    pub(super) fn device_name(&mut self, sock: Sock, room: usize) -> SysResult<Vec<u8>> {
        let index = self.device_of(sock)?;
        if index == 0 {
            return Ok(Vec::new());
        }
        if room < NAME {
            return err(Errno::EINVAL);
        }
        let all = crate::inet::interfaces(self.stack());
        let bound = all.iter().find(|interface| interface.index == index).ok_or(Errno::ENODEV)?;
        Ok([bound.name.as_bytes(), &[0]].concat())
    }

    /// IP_UNICAST_IF and IPV6_UNICAST_IF, whose value has the order of bytes of the network. EADDRNOTAVAIL for no interface, EINVAL for another one than
    /// that of SO_BINDTODEVICE.
    pub(super) fn set_unicast_interface(
        &mut self,
        id: SocketId,
        level: u64,
        value: Ptr,
        len: u32,
    ) -> SysResult<()> {
        if len < 4 || level == c::IPPROTO_IP && len > 4 {
            return err(Errno::EINVAL);
        }
        let index = u32::from_be(self.read_obj(value)?);
        let known =
            |index: u32| crate::inet::interfaces(self.stack()).iter().any(|i| i.index as u32 == index);
        if index != 0 && !known(index) {
            return err(Errno::EADDRNOTAVAIL);
        }
        let device = self.device_of(Sock::Inet(id))?;
        if index != 0 && device != 0 && index != device as u32 {
            return err(Errno::EINVAL);
        }
        match level {
            c::IPPROTO_IP => self.set_stack_option(id, SockOpt::UnicastInterface(index)),
            _ => self.set_stack_option(id, SockOpt::UnicastInterface6(index)),
        }
    }

    /// What these show.
    pub(super) fn unicast_interface(&self, id: SocketId, level: u64) -> Result<i32, Errno> {
        let options = self.node.net.of(id).options(id)?;
        let index =
            if level == c::IPPROTO_IP { options.unicast_interface } else { options.unicast_interface6 };
        Ok(index.to_be() as i32)
    }
}

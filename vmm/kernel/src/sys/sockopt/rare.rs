//! Options that few programs set: sizes of buffers that stay, what a socket takes of memory, the cookie of its network namespace, and options of ip(7) and ipv6(7)
//! with rules of their own.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_net::{Proto, SockOpt, SocketId};
use zerocopy::IntoBytes;

use super::device::{IP_UNICAST_IF, IPV6_UNICAST_IF};
use super::kept::{IP_MINTTL, IP_RECVFRAGSIZE, IPV6_TRANSPARENT};
use super::set::unsupported;
use super::{SO_BUF_LOCK, SO_TXREHASH};
use crate::ctx::*;
use crate::socket::Generic;
use crate::sys::socket::Sock;
use crate::wait::SysResult;

pub(super) const SO_CNX_ADVICE: u64 = 53;
pub(super) const SO_MEMINFO: u64 = 55;
pub(super) const SO_PREFER_BUSY_POLL: u64 = 69;
pub(super) const SO_BUSY_POLL_BUDGET: u64 = 70;
pub(super) const SO_NETNS_COOKIE: u64 = 71;
const IP_OPTIONS: u64 = 4;
const IPV6_ROUTER_ALERT: u64 = 22;
const IPV6_JOIN_ANYCAST: u64 = 27;
const IPV6_LEAVE_ANYCAST: u64 = 28;
pub(super) const IPV6_FLOWLABEL_MGR: u64 = 32;
const IPV6_PKTINFO: u64 = 50;
pub(super) const IPV6_PATHMTU: u64 = 61;
pub(super) const TCP_REPAIR: u64 = 19;
pub(super) const TCP_REPAIR_QUEUE: u64 = 20;
pub(super) const TCP_QUEUE_SEQ: u64 = 21;
pub(super) const TCP_TIMESTAMP: u64 = 24;
pub(super) const TCP_REPAIR_WINDOW: u64 = 29;
pub(super) const TCP_FASTOPEN_KEY: u64 = 33;
pub(super) const TCP_ZEROCOPY_RECEIVE: u64 = 35;
pub(super) const TCP_TX_DELAY: u64 = 37;
/// Bytes of `struct ipv6_mreq`, `struct in6_flowlabel_req`, `struct in6_pktinfo`, and of `struct ip6_mtuinfo` with the address in
/// front.
const MREQ6: u32 = 20;
const FLOWLABEL: u32 = 32;
const PKTINFO: u32 = 20;
const MTUINFO: usize = 32;
/// Most bytes of options in the header of IP.
const OPTIONS_MAX: u32 = 40;
/// SOCK_SNDBUF_LOCK and SOCK_RCVBUF_LOCK, which SO_BUF_LOCK shows.
const SNDBUF_LOCK: i32 = 1;
const RCVBUF_LOCK: i32 = 2;

impl Generic {
    /// A size that a program has set stays.
    pub(super) fn lock_buffer(&mut self, name: u64) {
        let bit = if name == c::SO_SNDBUF { SNDBUF_LOCK } else { RCVBUF_LOCK };
        *self.kept.entry((c::SOL_SOCKET, SO_BUF_LOCK)).or_default() |= bit;
    }
}

impl Ctx<'_> {
    /// SO_BUF_LOCK. EINVAL for what is neither of its two bits.
    pub(super) fn lock_buffers(&mut self, sock: Sock, number: i32) -> SysResult<()> {
        if number & !(SNDBUF_LOCK | RCVBUF_LOCK) != 0 {
            return err(Errno::EINVAL);
        }
        match sock {
            Sock::Inet(id) | Sock::Packet(id) => {
                let locked = [SNDBUF_LOCK, RCVBUF_LOCK].map(|bit| number & bit != 0);
                self.set_stack_option(id, SockOpt::BufLock(locked))
            }
            Sock::Unix(_) | Sock::Netlink(_) => {
                self.generic(sock)?.kept.insert((c::SOL_SOCKET, SO_BUF_LOCK), number);
                Ok(())
            }
        }
    }

    pub(super) fn locked_buffers(&mut self, sock: Sock) -> Result<i32, Errno> {
        match sock {
            Sock::Inet(id) | Sock::Packet(id) => {
                let options = self.node.net.of(id).options(id)?;
                let bit = |locked: bool, bit: i32| if locked { bit } else { 0 };
                Ok(bit(options.sndbuf_locked, SNDBUF_LOCK) | bit(options.rcvbuf_locked, RCVBUF_LOCK))
            }
            Sock::Unix(_) | Sock::Netlink(_) => {
                Ok(self.generic(sock)?.kept.get(&(c::SOL_SOCKET, SO_BUF_LOCK)).copied().unwrap_or(0))
            }
        }
    }

    /// SO_TXREHASH, whether a connection that gets no answers tries another path: there is one. EOPNOTSUPP for others than TCP; -1 is the default.
    pub(super) fn set_rehash(&mut self, sock: Sock, number: i32) -> SysResult<()> {
        self.rehash(sock)?;
        let on = match number {
            -1 | 1 => 1,
            0 => 0,
            _ => return err(Errno::EINVAL),
        };
        self.generic(sock)?.kept.insert((c::SOL_SOCKET, SO_TXREHASH), on);
        Ok(())
    }

    pub(super) fn rehash(&mut self, sock: Sock) -> Result<i32, Errno> {
        match sock {
            Sock::Inet(id) if self.inet(id)?.proto == Proto::Tcp => {
                Ok(self.generic(sock)?.kept.get(&(c::SOL_SOCKET, SO_TXREHASH)).copied().unwrap_or(1))
            }
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// SO_MEMINFO (sk_get_meminfo): what waits to be read, the receive buffer, what waits for acknowledgements, the send buffer, what is charged ahead, what
    /// is queued for sending, options, backlog and drops.
    pub(super) fn memory_of(&mut self, sock: Sock) -> SysResult<Vec<u8>> {
        let [received, rcvbuf, sent, sndbuf] = match sock {
            Sock::Inet(id) | Sock::Packet(id) => {
                let net = self.node.net.of(id);
                let options = net.options(id)?;
                let waits = net.readable_bytes(id).unwrap_or(0) as u32;
                [waits, options.rcvbuf, net.queued_bytes(id) as u32, options.sndbuf]
            }
            Sock::Unix(id) => {
                let unix = self.node.unix.get(id);
                [0, unix.rcvbuf, 0, unix.sndbuf]
            }
            Sock::Netlink(id) => {
                let [sndbuf, rcvbuf] = self.node.netlinks[id].buffers;
                [0, rcvbuf, 0, sndbuf]
            }
        };
        Ok([received, rcvbuf, 0, sndbuf, 0, sent, 0, 0, 0].as_bytes().to_vec())
    }

    /// SO_NETNS_COOKIE: that of the host's namespace is 1, and each container has one of its own.
    pub(super) fn namespace_cookie(&self) -> u64 {
        self.container().net.0 as u64 + 2
    }

    /// setsockopt(2) of ip(7)'s; `None` for options that are none of these.
    pub(super) fn set_rare_ip_option(
        &mut self,
        id: SocketId,
        tcp: bool,
        name: u64,
        value: Ptr,
        len: u32,
    ) -> Option<SysResult<()>> {
        match name {
            IP_OPTIONS if len == 0 => Some(Ok(())),
            IP_OPTIONS if len > OPTIONS_MAX => Some(err(Errno::EINVAL)),
            IP_OPTIONS => Some(unsupported(c::IPPROTO_IP, name)),
            IP_MINTTL if len == 0 => Some(err(Errno::EINVAL)),
            IP_RECVFRAGSIZE if tcp => Some(err(Errno::EINVAL)),
            IP_UNICAST_IF => Some(self.set_unicast_interface(id, c::IPPROTO_IP, value, len)),
            _ => None,
        }
    }

    /// setsockopt(2) of ipv6(7)'s; `None` for options that are none of these.
    pub(super) fn set_rare_ipv6_option(
        &mut self,
        id: SocketId,
        name: u64,
        value: Ptr,
        len: u32,
    ) -> Option<SysResult<()>> {
        match name {
            IPV6_ROUTER_ALERT if len < 4 => Some(err(Errno::EINVAL)),
            // ipv6_sock_ac_join needs CAP_NET_ADMIN; and who is no member cannot leave.
            IPV6_JOIN_ANYCAST if len < MREQ6 => Some(err(Errno::EINVAL)),
            IPV6_JOIN_ANYCAST => Some(err(Errno::EPERM)),
            IPV6_LEAVE_ANYCAST if len < MREQ6 => Some(err(Errno::EINVAL)),
            IPV6_LEAVE_ANYCAST => Some(err(Errno::ENOENT)),
            IPV6_FLOWLABEL_MGR if len < FLOWLABEL => Some(err(Errno::EINVAL)),
            IPV6_PKTINFO => Some(self.set_sticky_source(value, len)),
            IPV6_TRANSPARENT if len >= 4 => match self.ipv6_int(value, len) {
                Ok(on) if on == 0 || self.may_mark() => None,
                Ok(_) => Some(err(Errno::EPERM)),
                Err(e) => Some(err(e)),
            },
            IPV6_UNICAST_IF => Some(self.set_unicast_interface(id, c::IPPROTO_IPV6, value, len)),
            _ => None,
        }
    }

    /// IPV6_PKTINFO for all that is sent from then on: none is as it is.
    fn set_sticky_source(&mut self, value: Ptr, len: u32) -> SysResult<()> {
        if len < PKTINFO || value.is_null() {
            return err(Errno::EINVAL);
        }
        let mut info = [0; PKTINFO as usize];
        self.read_bytes(value.0, &mut info)?;
        if info.iter().any(|byte| *byte != 0) {
            return unsupported(c::IPPROTO_IPV6, IPV6_PKTINFO);
        }
        Ok(())
    }

    /// IPV6_PATHMTU: `struct ip6_mtuinfo`, whose address is empty. EINVAL without room for it, ENOTCONN.
    pub(super) fn path_mtu(&self, id: SocketId, room: usize) -> SysResult<Vec<u8>> {
        if room < MTUINFO {
            return err(Errno::EINVAL);
        }
        let peer = self.node.net.of(id).peer_addr(id)?;
        let mtu: u32 = if crate::inet::is_local(self.stack(), peer.ip()) { 65536 } else { 1500 };
        let mut info = vec![0; MTUINFO - 4];
        info.extend_from_slice(&mtu.to_le_bytes());
        Ok(info)
    }
}

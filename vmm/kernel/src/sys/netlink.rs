//! Calls on netlink sockets (netlink(7)).
//!
//! Neighbours: [`crate::netlink`] (sockets and answers), `socket`, `message`, `sockopt`.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::ctx::*;
use crate::ids::*;
use crate::netlink::diag::{self, SOCK_DIAG};
use crate::netlink::message::{ACK, REQUEST, Request, acknowledgement, align, done};
use crate::netlink::route::{Asker, Reply, answer};
use crate::netlink::{Datagram, GROUPS, NETLINK_ROUTE, NetlinkSocket, SOL_NETLINK, autobind, bind, option};
use crate::socket::Address;
use crate::wait::{Object, Stop, SysResult};

/// The last protocol of this family (MAX_LINKS).
const PROTOCOLS: u64 = 32;
/// `struct sockaddr_nl`.
const ADDRESS: usize = 12;
/// A dump comes in parts of at most so many bytes (NLMSG_GOODSIZE: a page without what Linux keeps at its end).
const PART: usize = 3776;

/// Port and groups of a `struct sockaddr_nl`. EINVAL.
fn port_and_groups(addr: &Address) -> Result<(u32, u32), Errno> {
    if addr.len() < ADDRESS || addr.family() != Some(c::AF_NETLINK) {
        return Err(Errno::EINVAL);
    }
    let word = |at: usize| addr.bytes()[at..at + 4].iter().rev().fold(0, |w, b| w << 8 | u32::from(*b));
    Ok((word(4), word(8)))
}

impl Ctx<'_> {
    /// Makes a socket. ESOCKTNOSUPPORT; EPROTONOSUPPORT for all but NETLINK_ROUTE and NETLINK_SOCK_DIAG, as without their modules.
    pub(crate) fn create_netlink(&mut self, kind: u64, protocol: u64) -> Result<NetlinkId, Errno> {
        if !matches!(kind, c::SOCK_RAW | c::SOCK_DGRAM) {
            return Err(Errno::ESOCKTNOSUPPORT);
        }
        if protocol >= PROTOCOLS || !matches!(protocol, NETLINK_ROUTE | SOCK_DIAG) {
            return Err(Errno::EPROTONOSUPPORT);
        }
        let socket = NetlinkSocket::new(self.container().net, protocol, kind, self.credentials().cred.uid);
        Ok(self.node.netlinks.insert(socket))
    }

    /// bind(2). A port cannot be changed.
    pub(crate) fn bind_netlink(&mut self, id: NetlinkId, addr: &Address) -> Result<(), Errno> {
        let (port, groups) = port_and_groups(addr)?;
        match self.node.netlinks[id].port {
            Some(bound) if port != bound => return Err(Errno::EINVAL),
            None if port != 0 => bind(&mut self.node.netlinks, id, port)?,
            _ => self.autobind_netlink(id),
        }
        self.node.netlinks[id].set_mask(groups);
        Ok(())
    }

    fn autobind_netlink(&mut self, id: NetlinkId) {
        let pid = self.pid.number();
        autobind(&mut self.node.netlinks, id, pid);
    }

    /// connect(2): to the kernel. EPERM for other processes and groups, which needs CAP_NET_ADMIN.
    pub(crate) fn connect_netlink(&mut self, id: NetlinkId, addr: &Address) -> Result<(), Errno> {
        if addr.family() == Some(c::AF_UNSPEC) {
            return Ok(());
        }
        if port_and_groups(addr)? != (0, 0) {
            return Err(Errno::EPERM);
        }
        self.autobind_netlink(id);
        Ok(())
    }

    /// Carries out the requests of a message.
    pub(crate) fn send_netlink(
        &mut self,
        id: NetlinkId,
        to: Option<&Address>,
        len: u64,
        data: impl FnOnce(&mut Self) -> Result<Vec<u8>, Errno>,
    ) -> SysResult {
        // "Zero length message leads to an empty skb" (netlink_sendmsg).
        if len == 0 {
            return err(Errno::ENODATA);
        }
        match to.map(port_and_groups) {
            Some(Err(e)) => return err(e),
            Some(Ok(place)) if place != (0, 0) => return err(Errno::EPERM),
            _ => {}
        }
        self.autobind_netlink(id);
        if len > u64::from(self.node.netlinks[id].buffers[0]).saturating_sub(32) {
            return err(Errno::EMSGSIZE);
        }
        let data = data(self)?;
        let mut rest = &data[..];
        while let Some((request, after)) = Request::split(rest) {
            self.answer_netlink(id, &request)?;
            rest = after;
        }
        Ok(len)
    }

    fn answer_netlink(&mut self, id: NetlinkId, request: &Request<'_>) -> SysResult<()> {
        let socket = &self.node.netlinks[id];
        let port = socket.port.unwrap_or(0);
        let asker = Asker {
            stack: self.node.net.stack(socket.net),
            port,
            uid: self.credentials().cred.uid,
            strict: socket.has(option::GET_STRICT_CHK),
        };
        let result = match socket.protocol {
            _ if request.flags & REQUEST == 0 => Ok(Reply::Nothing),
            SOCK_DIAG => diag::answer(self.node, socket.net, port, request),
            _ => answer(&asker, request),
        };
        let error = match result {
            Ok(Reply::Unsupported(what)) => return Err(Stop::Unsupported(what)),
            // "netlink_dump_start": another dump of this socket is still on its way.
            Ok(Reply::Dump(..) | Reply::NoDump(_)) if socket.queue.iter().any(|d| d.dump) => {
                Some(Errno::EBUSY)
            }
            // The acknowledgement of a dump is its end.
            Ok(Reply::Dump(messages, flags)) => {
                let end = done(request, port, flags, None);
                self.queue_dump(id, messages.into_iter().map(|m| m.bytes()), end);
                return Ok(());
            }
            Ok(Reply::NoDump(error)) => {
                let end = done(request, port, 0, Some(error));
                self.queue_dump(id, std::iter::empty(), end);
                return Ok(());
            }
            Ok(Reply::One(message)) => {
                self.queue_netlink(id, message.bytes(), false);
                None
            }
            Ok(Reply::Nothing) => None,
            Err(error) => Some(error),
        };
        if error.is_some() || request.flags & ACK != 0 {
            let capped = self.node.netlinks[id].has(option::CAP_ACK);
            self.queue_netlink(id, acknowledgement(request, port, error, capped), false);
        }
        Ok(())
    }

    fn queue_dump(&mut self, id: NetlinkId, messages: impl Iterator<Item = Vec<u8>>, end: Vec<u8>) {
        let mut part = Vec::new();
        for message in messages {
            if !part.is_empty() && part.len() + align(message.len()) > PART {
                self.queue_netlink(id, std::mem::take(&mut part), true);
            }
            part.extend_from_slice(&message);
        }
        if !part.is_empty() {
            self.queue_netlink(id, part, true);
        }
        self.queue_netlink(id, end, false);
    }

    fn queue_netlink(&mut self, id: NetlinkId, data: Vec<u8>, dump: bool) {
        self.node.netlinks[id].push_filtered(Datagram { data, dump });
        self.node.notify_object(Object::Netlink(id), (c::EPOLLIN | c::EPOLLRDNORM) as u32);
    }

    /// setsockopt(2) at SOL_NETLINK.
    pub(crate) fn set_netlink_option(&mut self, id: NetlinkId, name: u64, value: u32) -> SysResult<()> {
        let socket = &mut self.node.netlinks[id];
        match name {
            option::ADD_MEMBERSHIP | option::DROP_MEMBERSHIP if !(1..=GROUPS).contains(&value) => {
                return err(Errno::EINVAL);
            }
            option::ADD_MEMBERSHIP => drop(socket.groups.insert(value)),
            option::DROP_MEMBERSHIP => drop(socket.groups.remove(&value)),
            // CAP_NET_BROADCAST in the first user namespace.
            option::LISTEN_ALL_NSID => return err(Errno::EPERM),
            option::PKTINFO
            | option::BROADCAST_ERROR
            | option::NO_ENOBUFS
            | option::CAP_ACK
            | option::EXT_ACK
            | option::GET_STRICT_CHK => {
                socket.generic.kept.insert((SOL_NETLINK, name), i32::from(value != 0));
            }
            _ => return err(Errno::ENOPROTOOPT),
        }
        Ok(())
    }

    /// getsockopt(2) at SOL_NETLINK.
    pub(crate) fn get_netlink_option(&self, id: NetlinkId, name: u64, room: usize) -> Result<Vec<u8>, Errno> {
        match name {
            option::PKTINFO
            | option::BROADCAST_ERROR
            | option::NO_ENOBUFS
            | option::CAP_ACK
            | option::EXT_ACK
            | option::GET_STRICT_CHK => {
                if room < 4 {
                    return Err(Errno::EINVAL);
                }
                Ok(i32::from(self.node.netlinks[id].has(name)).to_le_bytes().to_vec())
            }
            _ => Err(Errno::ENOPROTOOPT),
        }
    }
}

//! Options about multicast groups: membership, and the interface by which datagrams to groups leave (ip(7), ipv6(7), RFC 3678).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_net::{SockOpt, SocketId};

use super::filters::is_filter;
use crate::ctx::*;
use crate::wait::SysResult;

/// MCAST_LEAVE_GROUP.
const MCAST_LEAVE_GROUP: u64 = 45;
/// Bytes of `struct ip_mreq`, `struct ip_mreqn`, `struct ipv6_mreq` and `struct group_req`.
const MREQ: u32 = 8;
const MREQN: u32 = 12;
const MREQ6: u32 = 20;
const GROUP_REQ: u32 = 136;

/// IP_UNBLOCK_SOURCE, IP_BLOCK_SOURCE, IP_ADD_SOURCE_MEMBERSHIP, IP_DROP_SOURCE_MEMBERSHIP, and the same by addresses of any family:
/// MCAST_BLOCK_SOURCE, MCAST_UNBLOCK_SOURCE, MCAST_JOIN_SOURCE_GROUP, MCAST_LEAVE_SOURCE_GROUP.
const SOURCES: std::ops::RangeInclusive<u64> = 37..=40;
const ANY_SOURCES: [u64; 4] = [43, 44, 46, 47];
/// Bytes of `struct ip_mreq_source` and `struct group_source_req`.
const MREQ_SOURCE: u32 = 12;
const GROUP_SOURCE_REQ: u32 = 264;

/// Whether the sources of an option are the only ones, whether it adds one, and whether it makes the caller a member.
fn way_of(name: u64) -> (bool, bool, bool) {
    match name {
        37 | 44 => (false, false, false),
        38 | 43 => (false, true, false),
        39 | 46 => (true, true, true),
        _ => (true, false, false),
    }
}

/// Whether the option is one of those here.
pub(super) fn is_group_option(level: u64, name: u64) -> bool {
    match level {
        _ if ANY_SOURCES.contains(&name) || is_filter(level, name) => true,
        c::IPPROTO_IP if SOURCES.contains(&name) => true,
        c::IPPROTO_IP => matches!(
            name,
            c::IP_ADD_MEMBERSHIP
                | c::IP_DROP_MEMBERSHIP
                | c::IP_MULTICAST_IF
                | c::MCAST_JOIN_GROUP
                | MCAST_LEAVE_GROUP
        ),
        _ => matches!(
            name,
            c::IPV6_ADD_MEMBERSHIP
                | c::IPV6_DROP_MEMBERSHIP
                | c::IPV6_MULTICAST_IF
                | c::MCAST_JOIN_GROUP
                | MCAST_LEAVE_GROUP
        ),
    }
}

impl Ctx<'_> {
    /// Options of ip(7).
    pub(super) fn set_ip_group_option(
        &mut self,
        id: SocketId,
        tcp: bool,
        name: u64,
        value: Ptr,
        len: u32,
    ) -> SysResult<()> {
        if name == c::IP_MULTICAST_IF {
            return self.set_ip_multicast_if(id, tcp, value, len);
        }
        if matches!(name, c::MCAST_JOIN_GROUP | MCAST_LEAVE_GROUP) {
            return self.set_group_req(id, (c::IPPROTO_IP, name), value, len);
        }
        if ANY_SOURCES.contains(&name) {
            return self.set_source_req(id, (c::IPPROTO_IP, name), value, len);
        }
        if is_filter(c::IPPROTO_IP, name) {
            return self.set_group_filter(id, (c::IPPROTO_IP, name), value, len);
        }
        if SOURCES.contains(&name) {
            return self.set_mreq_source(id, name, value, len);
        }
        // "if (inet_sk(sk)->is_icsk) break", with EPROTO.
        if tcp {
            return err(Errno::EPROTO);
        }
        if len < MREQ {
            return err(Errno::EINVAL);
        }
        let [group, address]: [[u8; 4]; 2] = self.read_obj(value)?;
        let index: u32 = if len >= MREQN { self.read_obj(Ptr(value.0.wrapping_add(8)))? } else { 0 };
        let (group, address) = (IpAddr::from(group), IpAddr::from(address));
        let joins = name == c::IP_ADD_MEMBERSHIP;
        let interface = match (index, address.is_unspecified()) {
            (0, true) => 0,
            (0, false) => self.interface_with(id, address).ok_or(Errno::ENODEV)?,
            (index, _) => index,
        };
        self.change_membership(id, group, interface, joins)
    }

    /// Options of ipv6(7).
    pub(super) fn set_ipv6_group_option(
        &mut self,
        id: SocketId,
        tcp: bool,
        name: u64,
        value: Ptr,
        len: u32,
    ) -> SysResult<()> {
        if matches!(name, c::MCAST_JOIN_GROUP | MCAST_LEAVE_GROUP) {
            return self.set_group_req(id, (c::IPPROTO_IPV6, name), value, len);
        }
        if ANY_SOURCES.contains(&name) {
            return self.set_source_req(id, (c::IPPROTO_IPV6, name), value, len);
        }
        if is_filter(c::IPPROTO_IPV6, name) {
            return self.set_group_filter(id, (c::IPPROTO_IPV6, name), value, len);
        }
        if name == c::IPV6_MULTICAST_IF {
            if tcp {
                return err(Errno::ENOPROTOOPT);
            }
            let index = self.int_option(value, len)?;
            if index != 0 && !self.has_interface(id, index as u32) {
                return err(Errno::ENODEV);
            }
            return self.set_stack_option(id, SockOpt::GroupInterface6(index as u32));
        }
        if len < MREQ6 {
            return err(Errno::EINVAL);
        }
        if tcp {
            return err(Errno::EPROTO);
        }
        let group: [u8; 16] = self.read_obj(value)?;
        let index: u32 = self.read_obj(Ptr(value.0.wrapping_add(16)))?;
        self.change_membership(id, IpAddr::V6(Ipv6Addr::from(group)), index, name == c::IPV6_ADD_MEMBERSHIP)
    }

    /// MCAST_JOIN_GROUP and MCAST_LEAVE_GROUP: an interface and, aligned, an address of either family. These and those with sources do not
    /// ask whether the socket is one of TCP, unlike the older ones ("inet_sk(sk)->is_icsk").
    fn set_group_req(
        &mut self,
        id: SocketId,
        (level, name): (u64, u64),
        value: Ptr,
        len: u32,
    ) -> SysResult<()> {
        if len < GROUP_REQ {
            return err(Errno::EINVAL);
        }
        let mut bytes = [0; 36];
        self.read_bytes(value.0, &mut bytes)?;
        let address = crate::socket::Address::new(bytes[8..].to_vec());
        let group = match (level, address.to_inet(level == c::IPPROTO_IPV6)) {
            (_, Ok(group)) => group.ip(),
            (c::IPPROTO_IP, Err(_)) => return err(Errno::EINVAL),
            (_, Err(_)) => return err(Errno::EADDRNOTAVAIL),
        };
        let index = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        self.change_membership(id, group, index, name == c::MCAST_JOIN_GROUP)
    }

    /// Options with a `struct ip_mreq_source`: group, address of the interface, source.
    fn set_mreq_source(&mut self, id: SocketId, name: u64, value: Ptr, len: u32) -> SysResult<()> {
        if len < MREQ_SOURCE {
            return err(Errno::EINVAL);
        }
        let [group, address, source]: [[u8; 4]; 3] = self.read_obj(value)?;
        let address = IpAddr::from(address);
        let interface = match address.is_unspecified() {
            true => 0,
            false => self.interface_with(id, address).ok_or(Errno::ENODEV)?,
        };
        self.change_source(id, (group.into(), interface), source.into(), name)
    }

    /// Options with a `struct group_source_req`: interface and, aligned, the addresses of group and source.
    fn set_source_req(
        &mut self,
        id: SocketId,
        (level, name): (u64, u64),
        value: Ptr,
        len: u32,
    ) -> SysResult<()> {
        if len < GROUP_SOURCE_REQ {
            return err(Errno::EINVAL);
        }
        let mut bytes = [0; 164];
        self.read_bytes(value.0, &mut bytes)?;
        let v6 = level == c::IPPROTO_IPV6;
        let address = |at: usize| {
            let address = crate::socket::Address::new(bytes[at..at + 28].to_vec()).to_inet(v6);
            address.map(|address| address.ip()).map_err(|_| Errno::EADDRNOTAVAIL)
        };
        let index = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let (group, source) = (address(8)?, address(136)?);
        self.change_source(id, (group, index), source, name)
    }

    fn change_source(
        &mut self,
        id: SocketId,
        (group, interface): (IpAddr, u32),
        source: IpAddr,
        name: u64,
    ) -> SysResult<()> {
        let (include, add, joins) = way_of(name);
        if !group.is_multicast() {
            return err(Errno::EINVAL);
        }
        let interface = self.group_device(id, group, interface)?;
        if joins {
            match self.node.net.of_mut(id).join(id, group, interface) {
                Ok(()) | Err(Errno::EADDRINUSE) => {}
                Err(e) => return err(e),
            }
        }
        Ok(self.node.net.of_mut(id).filter_source(id, (group, interface), source, (include, add))?)
    }

    fn change_membership(
        &mut self,
        id: SocketId,
        group: IpAddr,
        interface: u32,
        joins: bool,
    ) -> SysResult<()> {
        if !joins {
            if !group.is_multicast() && group.is_ipv6() {
                return err(Errno::EINVAL);
            }
            return Ok(self.node.net.of_mut(id).leave_group(id, group, interface)?);
        }
        if !group.is_multicast() {
            return err(Errno::EINVAL);
        }
        let interface = self.group_device(id, group, interface)?;
        Ok(self.node.net.of_mut(id).join(id, group, interface)?)
    }

    /// The interface of a membership: that of its number, or by the route to the group. ENODEV.
    pub(super) fn group_device(&self, id: SocketId, group: IpAddr, interface: u32) -> Result<u32, Errno> {
        match interface {
            0 => self.node.net.of(id).default_interface(group.is_ipv6()).ok_or(Errno::ENODEV),
            index if self.has_interface(id, index) => Ok(index),
            _ => Err(Errno::ENODEV),
        }
    }

    /// IP_MULTICAST_IF takes an address, `struct ip_mreq` or `struct ip_mreqn`.
    fn set_ip_multicast_if(&mut self, id: SocketId, tcp: bool, value: Ptr, len: u32) -> SysResult<()> {
        if tcp || len < 4 {
            return err(Errno::EINVAL);
        }
        let (at, index) = match len {
            4..MREQ => (0, 0),
            MREQ..MREQN => (4, 0),
            _ => (4, self.read_obj::<u32>(Ptr(value.0.wrapping_add(8)))?),
        };
        let octets: [u8; 4] = self.read_obj(Ptr(value.0.wrapping_add(at)))?;
        let address = IpAddr::from(octets);
        let interface = match (index, address.is_unspecified()) {
            (0, true) => 0,
            (0, false) => self.interface_with(id, address).ok_or(Errno::EADDRNOTAVAIL)?,
            (index, _) if self.has_interface(id, index) => index,
            _ => return err(Errno::EADDRNOTAVAIL),
        };
        self.generic(crate::sys::socket::Sock::Inet(id))?
            .kept
            .insert((c::IPPROTO_IP, c::IP_MULTICAST_IF), i32::from_le_bytes(octets));
        self.set_stack_option(id, SockOpt::GroupInterface(interface))
    }

    /// IP_MULTICAST_IF as an address, as it was set; IPV6_MULTICAST_IF as the number of the interface.
    pub(super) fn group_interface(&self, id: SocketId, level: u64) -> SysResult<Vec<u8>> {
        let option = (c::IPPROTO_IP, c::IP_MULTICAST_IF);
        Ok(match level {
            c::IPPROTO_IP => {
                let any = i32::from_le_bytes(Ipv4Addr::UNSPECIFIED.octets());
                self.inet(id)?.generic.kept.get(&option).copied().unwrap_or(any).to_le_bytes().to_vec()
            }
            _ => self.node.net.of(id).options(id)?.group_interface6.to_le_bytes().to_vec(),
        })
    }

    pub(super) fn interface_with(&self, id: SocketId, address: IpAddr) -> Option<u32> {
        self.node.net.of(id).interface_of(address)
    }

    fn has_interface(&self, id: SocketId, index: u32) -> bool {
        crate::inet::interfaces(self.node.net.of(id)).iter().any(|i| i.index as u32 == index)
    }
}

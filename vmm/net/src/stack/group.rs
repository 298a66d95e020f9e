//! Datagrams to several nodes: who is in which multicast group, how they leave and who gets them (`__udp4_lib_mcast_deliver`,
//! `ip_mc_output` of Linux).

use super::data::Way;
use super::filter::filtered_datagram;
use super::{Pair, Result, Stack};
use crate::datagram::{Membership, is_of_all_nodes};
use crate::iface::LOOPBACK;
use crate::socket::{Common, Kind};
use crate::{Body, Bytes, Datagram, Header, Packet, ReadyFlags, Sending, SocketId, wire};
use bloodhound_abi::{Errno, SimTime};
use std::net::{IpAddr, SocketAddr};

/// net.ipv4.igmp_max_memberships.
const MEMBERSHIPS_MAX: usize = 20;
/// net.ipv4.igmp_max_msf and net.ipv6.mld_max_msf.
const SOURCES_MAX: usize = 10;
const SOURCES6_MAX: usize = 64;

impl Stack {
    /// How many sources the filter of a group may have.
    pub fn most_sources(v6: bool) -> usize {
        if v6 { SOURCES6_MAX } else { SOURCES_MAX }
    }

    /// Number of the interface with an address; `None` if no interface has it.
    pub fn interface_of(&self, ip: IpAddr) -> Option<u32> {
        self.net.interface_of(ip.to_canonical())
    }

    /// The interface by which a group is reached if nobody says which: the first one beside loopback.
    pub fn default_interface(&self, v6: bool) -> Option<u32> {
        let own = self.net.addresses.iter().find(|(own, _)| own.is_ipv6() == v6);
        own.and_then(|(own, _)| self.net.interface_of(*own))
    }

    /// Whether the address stands for all nodes of a network of this node.
    pub fn is_broadcast(&self, ip: IpAddr) -> bool {
        self.net.is_broadcast(ip.to_canonical())
    }

    /// IP_ADD_MEMBERSHIP, IPV6_ADD_MEMBERSHIP. EADDRINUSE for a member, ENOBUFS for one group of IPv4 too many.
    pub fn join(&mut self, id: SocketId, group: IpAddr, interface: u32) -> Result<()> {
        let groups = &mut self.get_mut(id)?.common.groups;
        if groups.iter().any(|m| m.is_of(group, interface)) {
            return Err(Errno::EADDRINUSE);
        }
        let of_family = groups.iter().filter(|m| m.group.is_ipv4() == group.is_ipv4()).count();
        if group.is_ipv4() && of_family >= MEMBERSHIPS_MAX {
            return Err(Errno::ENOBUFS);
        }
        groups.push(Membership::whole(group, interface));
        Ok(())
    }

    /// IP_DROP_MEMBERSHIP, IPV6_DROP_MEMBERSHIP; with interface 0 the first membership in the group. EADDRNOTAVAIL.
    pub fn leave_group(&mut self, id: SocketId, group: IpAddr, interface: u32) -> Result<()> {
        let groups = &mut self.get_mut(id)?.common.groups;
        let fits = |m: &Membership| m.group == group && (interface == 0 || m.interface == interface);
        let at = groups.iter().position(fits).ok_or(Errno::EADDRNOTAVAIL)?;
        groups.remove(at);
        Ok(())
    }

    /// Lets a member hear a source, or no longer (`ip_mc_source`, `ip6_mc_source`). `include` says in which way the sources of the group
    /// count, `add` whether there is one more or one less. EINVAL for who is no member, or one in the other way; EADDRNOTAVAIL for a
    /// source that is there already, or is not; ENOBUFS.
    pub fn filter_source(
        &mut self,
        id: SocketId,
        (group, interface): (IpAddr, u32),
        source: IpAddr,
        (include, add): (bool, bool),
    ) -> Result<()> {
        let groups = &mut self.get_mut(id)?.common.groups;
        let at = groups.iter().position(|m| m.is_of(group, interface)).ok_or(Errno::EINVAL)?;
        let member = &mut groups[at];
        if member.include != include && member.sources.is_some() {
            return Err(Errno::EINVAL);
        }
        // "Allow mode switches for empty-set filters".
        member.include = include;
        let known = member.sources.iter().flatten().position(|known| *known == source);
        match (known, add, &mut member.sources) {
            (None, true, sources) => {
                let sources = sources.get_or_insert_default();
                if sources.len() >= Self::most_sources(group.is_ipv6()) {
                    return Err(Errno::ENOBUFS);
                }
                sources.push(source);
            }
            (Some(known), false, Some(sources)) => {
                sources.remove(known);
                // "(INCLUDE, empty) == LEAVE_GROUP".
                if include && sources.is_empty() {
                    groups.remove(at);
                }
            }
            _ => return Err(Errno::EADDRNOTAVAIL),
        }
        Ok(())
    }

    /// Sets all sources that a member hears, or does not (`ip_mc_msfilter`, `ip6_mc_msfilter`). EINVAL for who is no member.
    pub fn set_filter(
        &mut self,
        id: SocketId,
        (group, interface): (IpAddr, u32),
        include: bool,
        sources: Vec<IpAddr>,
    ) -> Result<()> {
        let groups = &mut self.get_mut(id)?.common.groups;
        let member = groups.iter_mut().find(|m| m.is_of(group, interface)).ok_or(Errno::EINVAL)?;
        member.include = include;
        member.sources = (!sources.is_empty()).then_some(sources);
        Ok(())
    }

    /// Whether the sources are the only ones that a member hears, and which these are (`ip_mc_msfget`, `ip6_mc_msfget`). EADDRNOTAVAIL for who
    /// is no member.
    pub fn filter(&self, id: SocketId, group: IpAddr, interface: u32) -> Result<(bool, Vec<IpAddr>)> {
        let groups = &self.get(id)?.common.groups;
        let member = groups.iter().find(|m| m.is_of(group, interface)).ok_or(Errno::EADDRNOTAVAIL)?;
        Ok((member.include, member.sources.clone().unwrap_or_default()))
    }

    /// Whether the address is that of a multicast group, or stands for all nodes of a network of this node.
    pub(super) fn is_group(&self, ip: IpAddr) -> bool {
        ip.is_multicast() || self.net.is_broadcast(ip)
    }

    /// The interface and source address of a datagram to several nodes.
    pub(super) fn group_route(
        &self,
        c: &Common,
        group: IpAddr,
        how: Option<&Sending>,
    ) -> Result<(u32, IpAddr)> {
        let v6 = group.is_ipv6();
        let option = if v6 { c.opts.group_interface6 } else { c.opts.group_interface };
        let bound = Some(c.local.ip()).filter(|ip| !ip.is_unspecified() && !self.is_group(*ip));
        let of_network = self.net.broadcast_interface(group);
        let device = Some(c.opts.device);
        let option = Some(option).filter(|_| group.is_multicast());
        let candidates = [how.map(|how| how.interface), device, of_network, option];
        let named = candidates.into_iter().flatten().find(|interface| *interface != 0);
        // "fl4->saddr [...] specifies the outgoing interface for multicast" (ip_route_output_key_hash_rcu).
        let of_source = bound.and_then(|own| self.net.interface_of(own));
        let interface =
            named.or(of_source).or_else(|| self.default_interface(v6)).ok_or(Errno::ENETUNREACH)?;
        self.net.check_device(interface, v6)?;
        // Loopback has no route to ff00::/8.
        if v6 && interface == LOOPBACK {
            return Err(Errno::ENETUNREACH);
        }
        let source = match how.and_then(|how| how.source).or(bound) {
            Some(ip) => ip,
            None => self.net.address_on(interface, v6).ok_or(Errno::EADDRNOTAVAIL)?,
        };
        Ok((interface, source))
    }

    /// Sends a datagram to all who listen: to the network, and back to this node.
    pub(super) fn send_to_group(
        &mut self,
        id: SocketId,
        data: &[u8],
        way: &Way,
        how: &Sending,
        now: SimTime,
    ) -> Result<usize> {
        let Way { source, peer: to, interface, .. } = *way;
        let multicast = to.ip().is_multicast();
        let hops = if multicast { how.group_hops } else { how.header.hops };
        let header = Header { hops, ..how.header };
        let loops = interface == LOOPBACK || !multicast || how.group_loops;
        let member = self.has_member(to.ip(), interface);
        let socket = self.get_mut(id)?;
        let Kind::Udp(udp) = &mut socket.kind else { return Err(Errno::EOPNOTSUPP) };
        let place = udp.names.group_place(socket.common.opened, to.port());
        let packet = self.packet_of(id, data, (source, to), (header, place), how)?;
        self.tell_times(id, &packet, how.times, now);
        if interface == LOOPBACK {
            self.net.note(&packet, interface, None, true, now);
        }
        if loops && member {
            self.net.loop_back(packet.clone(), interface, now);
        }
        if interface != LOOPBACK && hops > 0 {
            self.net.send_out(packet, now);
        } else if interface != LOOPBACK {
            self.net.counters.goes_nowhere(&packet);
        }
        Ok(data.len())
    }

    /// Whether the node hears a group on an interface. Broadcasts are heard by all.
    fn has_member(&self, group: IpAddr, interface: u32) -> bool {
        if !group.is_multicast() || is_of_all_nodes(group) {
            return true;
        }
        let member = |c: &Common| c.groups.iter().any(|m| m.is_of(group, interface));
        self.sockets.values().any(|s| member(&s.common))
    }

    /// A packet to several nodes arrives. What is neither a datagram nor ICMP goes to raw sockets only.
    pub(super) fn input_for_many(&mut self, packet: Packet, interface: u32, now: SimTime) {
        if !self.has_member(packet.dst.ip(), interface) {
            return;
        }
        self.net.counters.comes_to_member(&packet);
        let taken = self.copy_to_raw(&packet, interface, now);
        self.net.counters.delivers(&packet, taken);
        let (src, dst) = (packet.src, packet.dst);
        match &packet.body {
            Body::Udp(header, data) => {
                self.input_group((dst, src), (*header, data.clone()), interface, now);
            }
            Body::Raw(header, wire::UDP, data) => {
                if let Some((from, to, data)) = wire::datagram(src.ip(), dst.ip(), data) {
                    let pair = (SocketAddr::new(dst.ip(), to), SocketAddr::new(src.ip(), from));
                    self.input_group(pair, (*header, data), interface, now);
                }
            }
            Body::Raw(_, number, data) if *number == wire::icmp_of(dst.is_ipv6()) => {
                self.input_icmp_message(&packet, data, interface, now);
            }
            _ => {}
        }
    }

    /// A datagram to several nodes arrives: each socket that hears it gets it. Nobody answers one that no socket hears.
    fn input_group(&mut self, pair: Pair, (header, data): (Header, Bytes), interface: u32, now: SimTime) {
        let (dst, src) = pair;
        let hearing: Vec<SocketId> = self
            .holders(header.proto(), dst.port())
            .filter(|id| self.sockets.get(id).is_some_and(|s| hears(&s.common, &s.kind, pair, interface)))
            .collect();
        if hearing.is_empty() {
            self.net.counters.udp_of(header.proto(), dst.is_ipv6()).ignored_for_many += 1;
        }
        for id in hearing {
            let Some(socket) = self.sockets.get_mut(&id) else { continue };
            let Kind::Udp(udp) = &mut socket.kind else { continue };
            let of = (header, data.clone());
            let Some(data) = filtered_datagram(&mut socket.common, &mut self.net, pair, of, interface) else {
                continue;
            };
            socket.common.has_come();
            let datagram = Datagram { src, dst, interface, header, at: now, data, peeked: false };
            if udp.push(datagram, socket.common.opts.rcvbuf) {
                socket.common.wake(ReadyFlags::READ);
            } else {
                self.net.counters.udp_of(header.proto(), dst.is_ipv6()).no_room += 1;
            }
            self.settle(id, now);
        }
    }
}

/// Whether a socket gets a datagram to several nodes (`__udp_is_mcast_sock`, `ip_mc_sf_allow`, `inet6_mc_check`).
fn hears(c: &Common, kind: &Kind, (dst, src): Pair, interface: u32) -> bool {
    if !matches!(kind, Kind::Udp(_)) || !c.takes_from(interface) {
        return false;
    }
    let bound = c.local.ip();
    let fits = if bound.is_unspecified() {
        bound.is_ipv4() == dst.is_ipv4() || c.v6 && !c.opts.v6only
    } else {
        bound == dst.ip()
    };
    if !fits || c.peer.is_some_and(|peer| peer != src) {
        return false;
    }
    if !dst.ip().is_multicast() {
        return true;
    }
    // IP_MULTICAST_ALL: "whether the socket [...] receives from all groups joined by the whole system".
    let all = if dst.is_ipv6() { c.opts.group_all6 } else { c.opts.group_all };
    let membership = c.groups.iter().find(|m| m.is_of(dst.ip(), interface));
    membership.map_or(all, |m| m.hears(src.ip()))
}

//! Datagrams of internet sockets: sending, receiving, and their ancillary data (ip(7), ipv6(7), udp(7), SO_TIMESTAMP of socket(7)).

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Timespec, Timeval};
use bloodhound_net::{Datagram, Header, Proto, ReadyFlags, Sending, SocketId};
use zerocopy::IntoBytes;

use super::control::{Control, Part, align, cmsg, split};
use super::transfer::truncation;
use super::{Got, Incoming, Outgoing};
use crate::ctx::*;
use crate::inet::{Corked, InetSocket};
use crate::socket::{Address, Generic, SIN6_LEN, SIN6_MIN, Stamps, inet_bytes};
use crate::sys::socket::Sock;
use crate::sys::sockopt::{
    IPV6_2292HOPLIMIT, IPV6_2292PKTINFO, IPV6_RECVORIGDSTADDR, SO_RCVMARK, STICKY, flags_of_message,
    kept_value, times_of,
};
use crate::wait::{Object, Stop, SysResult};

/// Most bytes of a datagram that is put together: what IP has room for beside the headers.
const UDP_CORK_MAX: u64 = 65_507;
/// Largest length of a UDP datagram that is looked at at all.
const UDP_LEN_MAX: u64 = 0xffff;

/// SOF_TIMESTAMPING_RX_SOFTWARE and SOF_TIMESTAMPING_SOFTWARE: packets get times when they come, and messages tell them.
const TIMESTAMPING_RX_SOFTWARE: u32 = 1 << 3;
const TIMESTAMPING_SOFTWARE: u32 = 1 << 4;

/// What ancillary data says about a datagram to send, instead of the socket's options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chosen {
    hops: Option<u8>,
    class: Option<u8>,
    source: Option<IpAddr>,
    interface: u32,
    /// Flags of SO_TIMESTAMPING, which say which times of sending are told.
    stamps: Option<u32>,
    /// IPV6_DONTFRAG.
    unfragmented: Option<bool>,
    /// An extension header of IPv6, which a datagram by IPv4 goes without.
    header: Option<u64>,
}

/// The int of a control message, in its range. EINVAL.
fn int_in(data: &[u8], range: std::ops::RangeInclusive<i32>) -> Result<i32, Errno> {
    let bytes = data.try_into().map_err(|_| Errno::EINVAL)?;
    Some(i32::from_le_bytes(bytes)).filter(|number| range.contains(number)).ok_or(Errno::EINVAL)
}

impl Ctx<'_> {
    pub(super) fn send_udp(&mut self, id: SocketId, msg: &Outgoing) -> SysResult {
        if msg.source.len() > UDP_LEN_MAX {
            // udpv6_sendmsg looks for a receiver before it looks at the length, unless that is left to udp_sendmsg.
            if self.inet(id)?.v6 {
                let to = self.datagram_target(id, msg)?;
                let peer = to.or_else(|| self.node.net.of(id).peer_addr(id).ok());
                if peer.is_none_or(|peer| peer.ip().to_canonical().is_ipv6()) {
                    self.node.net.of(id).receiver(id, to)?;
                }
            }
            return err(Errno::EMSGSIZE);
        }
        let socket = self.inet(id)?;
        let udp = matches!(socket.proto, Proto::Udp | Proto::UdpLite);
        let more = msg.flags.contains(MsgFlags::MSG_MORE);
        if more && !udp {
            return Err(Stop::Unsupported("MSG_MORE on a raw or echo socket".into()));
        }
        let corks = more || udp && socket.generic.is_set(c::IPPROTO_UDP, c::UDP_CORK);
        if corks || socket.corked.is_some() {
            return self.send_corked(id, msg, corks);
        }
        // An echo socket looks at what is sent before it looks where to (ping_common_sendmsg).
        if self.inet(id)?.proto == Proto::Icmp {
            let data = self.source_bytes(&msg.source, 0, UDP_LEN_MAX)?;
            self.node.net.of(id).check_request(id, &data)?;
        }
        let to = self.datagram_target(id, msg)?;
        self.check_raw_target(id, to)?;
        // "EDESTADDRREQ The socket is not connection-mode, and no peer address is set" (send(2)) comes before EFAULT, and before what comes along
        // is looked at.
        self.node.net.of(id).receiver(id, to)?;
        let chosen = self.inet_control(id, &msg.control)?;
        let scope = msg.to.as_ref().map_or(0, Address::scope);
        let how = self.sending(id, to, scope, &chosen)?;
        if msg.flags.contains(MsgFlags::MSG_PROBE) {
            return self.probe(id, msg, to, &how);
        }
        let data = self.datagram_bytes(id, msg, 0, to, &how)?;
        // Options and fragments, which no packet here has.
        if how.has_header && data.len() >= 20 && (data[0] & 15 > 5 || data[6] & 0x3f != 0 || data[7] != 0) {
            return Err(Stop::Unsupported("options or fragments in the header of a raw packet".into()));
        }
        let now = self.node.clock;
        Ok(self.node.net.of_mut(id).send_datagram(id, &data, to, &how, now)? as u64)
    }

    /// MSG_PROBE: finds the way of a datagram and sends none; a pending error stays (`ip_make_skb`, `ip_append_data`).
    fn probe(&mut self, id: SocketId, msg: &Outgoing, to: Option<SocketAddr>, how: &Sending) -> SysResult {
        let (len, now) = (msg.source.len() as usize, self.node.clock);
        self.node.net.of_mut(id).check_datagram(id, (len, true), to, how, now)?;
        Ok(len as u64)
    }

    /// The bytes of a datagram, or of a part of it behind so many others. That they cannot be sent is found out before they are looked at
    /// (`__ip_append_data`). If they can be sent but not read, the buffer that they would have had is freed, which tells of room.
    fn datagram_bytes<'a>(
        &mut self,
        id: SocketId,
        msg: &'a Outgoing,
        before: usize,
        to: Option<SocketAddr>,
        how: &Sending,
    ) -> SysResult<Cow<'a, [u8]>> {
        let udp = matches!(self.inet(id)?.proto, Proto::Udp | Proto::UdpLite);
        match self.source_bytes(&msg.source, 0, UDP_LEN_MAX) {
            Err(e) if udp => {
                let (len, now) = (before + msg.source.len() as usize, self.node.clock);
                let stack = self.node.net.of_mut(id);
                stack.check_datagram(id, (len, false), to, how, now)?;
                stack.frees_space(id, now)?;
                err(e)
            }
            bytes => Ok(bytes?),
        }
    }

    /// Whether an address without a byte is one that is too short, and not none.
    pub(super) fn counts_empty_address(&self, sock: Sock) -> SysResult<bool> {
        let Sock::Inet(id) = sock else { return Ok(false) };
        let socket = self.inet(id)?;
        Ok(match socket.proto {
            Proto::Udp | Proto::UdpLite | Proto::Icmp => true,
            Proto::Raw => socket.v6,
            _ => false,
        })
    }

    /// Sends a part of a datagram: "all data output on this socket is accumulated into a single datagram that is transmitted when the
    /// option is disabled" (udp(7)), or by a call without MSG_MORE. The first part says where to, and whether its socket may send at all; what
    /// others say of it counts for nothing. An error loses all of it (`udp_flush_pending_frames`).
    fn send_corked(&mut self, id: SocketId, msg: &Outgoing, more: bool) -> SysResult {
        let mut corked = match self.node.inet.get_mut(&id).and_then(|s| s.corked.take()) {
            Some(corked) => corked,
            None => {
                let to = self.datagram_target(id, msg)?;
                match to {
                    Some(to) if to.port() == 0 => return err(Errno::EINVAL),
                    None if self.node.net.of(id).peer_addr(id).is_err() => return err(Errno::EDESTADDRREQ),
                    _ => {}
                }
                let chosen = self.inet_control(id, &msg.control)?;
                let scope = msg.to.as_ref().map_or(0, Address::scope);
                let how = self.sending(id, to, scope, &chosen)?;
                if msg.flags.contains(MsgFlags::MSG_PROBE) {
                    return self.probe(id, msg, to, &how);
                }
                Corked { to, how, data: Vec::new() }
            }
        };
        if !msg.flags.contains(MsgFlags::MSG_PROBE) {
            self.add_part(id, msg, &mut corked)?;
        }
        let sent = msg.source.len();
        if let Some(socket) = self.node.inet.get_mut(&id) {
            socket.corked = Some(corked);
        }
        if !more {
            self.uncork(id)?;
        }
        Ok(sent)
    }

    /// Adds a part to a datagram.
    fn add_part(&mut self, id: SocketId, msg: &Outgoing, corked: &mut Corked) -> SysResult<()> {
        let Corked { to, how, data } = corked;
        let len = data.len() + msg.source.len() as usize;
        if len as u64 > UDP_CORK_MAX {
            return err(Errno::EMSGSIZE);
        }
        let part = self.datagram_bytes(id, msg, data.len(), *to, how)?;
        let now = self.node.clock;
        self.node.net.of_mut(id).check_datagram(id, (len, false), *to, how, now)?;
        data.extend_from_slice(&part);
        how.begun = true;
        Ok(())
    }

    /// Sends the datagram that was put together, if there is one.
    pub(crate) fn uncork(&mut self, id: SocketId) -> Result<(), Errno> {
        let corked = self.node.inet.get_mut(&id).and_then(|s| s.corked.take());
        let Some(Corked { to, how, data }) = corked else { return Ok(()) };
        let now = self.node.clock;
        self.node.net.of_mut(id).send_datagram(id, &data, to, &how, now).map(drop)
    }

    /// The address of connect(2), or why it is none. A socket of UDP over IPv6 takes addresses of AF_INET as well unless it is for IPv6 only, which binding it
    /// to such an address makes it: EAFNOSUPPORT then, whatever the length (`__ip6_datagram_connect`). Those of raw and echo sockets
    /// do not at all (`ip6_datagram_connect_v6_only`).
    pub(crate) fn connect_target(
        &self,
        id: SocketId,
        addr: &Address,
    ) -> Result<Result<SocketAddr, Errno>, Errno> {
        let InetSocket { v6, proto, .. } = *self.inet(id)?;
        if !v6 || !proto.is_datagram() || addr.family() != Some(c::AF_INET) {
            return Ok(addr.to_inet(v6));
        }
        let only_v6 = matches!(proto, Proto::Raw | Proto::Icmp) || self.node.net.of(id).options(id)?.v6only;
        Ok(if only_v6 { Err(Errno::EAFNOSUPPORT) } else { addr.to_inet(false) })
    }

    /// Where a datagram is to go by the call; `None` is the connected peer.
    fn datagram_target(&self, id: SocketId, msg: &Outgoing) -> Result<Option<SocketAddr>, Errno> {
        let Some(addr) = &msg.to else { return Ok(None) };
        let InetSocket { v6, proto, .. } = *self.inet(id)?;
        let family = addr.family().ok_or(Errno::EINVAL)?;
        let to = match (family, v6, proto) {
            // "AF_UNSPEC" is taken for AF_INET here (udp_sendmsg), and for no address on IPv6 sockets.
            (c::AF_UNSPEC, false, _) if addr.len() >= 16 && proto != Proto::Icmp => return Ok(addr.v4()),
            (_, false, _) => return addr.to_inet(false).map(Some),
            // rawv6_sendmsg, ping_v6_sendmsg.
            (_, true, Proto::Raw) if addr.len() < SIN6_MIN => return Err(Errno::EINVAL),
            (_, true, Proto::Icmp) if addr.len() < SIN6_LEN => return Err(Errno::EINVAL),
            (c::AF_UNSPEC, true, Proto::Raw) => return Ok(addr.v6()),
            (c::AF_INET6, true, Proto::Raw | Proto::Icmp) => return Ok(addr.v6()),
            (_, true, Proto::Raw | Proto::Icmp) => return Err(Errno::EAFNOSUPPORT),
            (c::AF_UNSPEC, true, _) => return Ok(None),
            (c::AF_INET, true, _) => addr.to_inet(false),
            (c::AF_INET6, true, _) => addr.to_inet(true),
            _ => Err(Errno::EINVAL),
        };
        // "err = ipv6_only_sock(sk) ? -ENETUNREACH : udp_sendmsg(sk, msg, len)" (udpv6_sendmsg), which looks at length and port.
        let v4 = family == c::AF_INET || to.is_ok_and(|to| to.ip().to_canonical().is_ipv4());
        if v4 && self.node.net.of(id).options(id)?.v6only {
            return Err(Errno::ENETUNREACH);
        }
        to.map(Some)
    }

    /// What rawv6_sendmsg refuses: another protocol in the place of the port but of a socket of IPPROTO_RAW.
    fn check_raw_target(&self, id: SocketId, to: Option<SocketAddr>) -> SysResult<()> {
        let socket = self.inet(id)?;
        if !matches!(socket.proto, Proto::Raw | Proto::Icmp) || !socket.v6 {
            return Ok(());
        }
        let port = to.map_or(0, |to| u64::from(to.port()));
        let number = u64::from(socket.number);
        if socket.proto == Proto::Raw
            && port != 0
            && (port != number && number != c::IPPROTO_RAW || port > 255)
        {
            return err(Errno::EINVAL);
        }
        Ok(())
    }

    /// How a datagram leaves, by the options of its socket and its ancillary data, "which overrides" them.
    fn sending(
        &self,
        id: SocketId,
        to: Option<SocketAddr>,
        scope: u32,
        chosen: &Chosen,
    ) -> SysResult<Sending> {
        let socket = self.inet(id)?;
        let peer = to.or_else(|| self.node.net.of(id).peer_addr(id).ok());
        let v4 = peer.map_or(!socket.v6, |peer| peer.ip().to_canonical().is_ipv4());
        if let Some(header) = chosen.header.filter(|_| !v4) {
            return Err(Stop::Unsupported(format!("an extension header of IPv6 ({header}) of a message")));
        }
        let byte = |level, name| u8::try_from(kept_value(&socket.generic, level, name)).ok();
        let [hops, group_hops, class, loops] = match v4 {
            true => [c::IP_TTL, c::IP_MULTICAST_TTL, c::IP_TOS, c::IP_MULTICAST_LOOP]
                .map(|name| byte(c::IPPROTO_IP, name)),
            false => [c::IPV6_UNICAST_HOPS, c::IPV6_MULTICAST_HOPS, c::IPV6_TCLASS, c::IPV6_MULTICAST_LOOP]
                .map(|name| byte(c::IPPROTO_IPV6, name)),
        };
        let discovers = match v4 {
            true => kept_value(&socket.generic, c::IPPROTO_IP, c::IP_MTU_DISCOVER),
            false => kept_value(&socket.generic, c::IPPROTO_IPV6, c::IPV6_MTU_DISCOVER),
        };
        // IP_PMTUDISC_DO, IP_PMTUDISC_PROBE and IP_PMTUDISC_INTERFACE (`ip_sk_ignore_df`).
        let unfragmented = matches!(discovers, 2..=4)
            || !v4
                && chosen
                    .unfragmented
                    .unwrap_or_else(|| socket.generic.is_set(c::IPPROTO_IPV6, c::IPV6_DONTFRAG));
        let usual = Header::default();
        let header = Header {
            hops: chosen.hops.or(hops).unwrap_or(usual.hops),
            class: chosen.class.or(class).unwrap_or(usual.class),
            ..usual
        };
        Ok(Sending {
            header,
            group_hops: chosen.hops.or(group_hops).unwrap_or(1),
            group_loops: loops != Some(0),
            broadcast: socket.generic.is_set(c::SOL_SOCKET, c::SO_BROADCAST),
            source: chosen.source,
            interface: if chosen.interface != 0 { chosen.interface } else { scope },
            has_header: self.sends_header(id),
            unfragmented,
            times: times_of(chosen.stamps.unwrap_or(socket.generic.stamps.flags)),
            begun: false,
        })
    }

    /// What ancillary data of a message to send says (ip_cmsg_send, ip6_datagram_send_ctl). Linux has copied it when the call began, and looks at
    /// it behind the address.
    pub(super) fn inet_control(&self, id: SocketId, control: &Control) -> SysResult<Chosen> {
        let mut chosen = Chosen::default();
        for part in split(&control.inet)? {
            self.inet_control_part(id, &mut chosen, part)?;
        }
        Ok(chosen)
    }

    fn inet_control_part(
        &self,
        id: SocketId,
        chosen: &mut Chosen,
        (level, kind, data): Part<'_>,
    ) -> SysResult<()> {
        let socket = self.inet(id)?;
        let udp = socket.proto.is_datagram();
        match (level, kind) {
            // "SCM_RIGHTS and SCM_CREDENTIALS are semantically in SOL_UNIX": no error, no effect.
            (c::SOL_SOCKET, c::SCM_RIGHTS | c::SCM_CREDENTIALS) => Ok(()),
            (c::SOL_SOCKET, c::SO_MARK) if !self.may_mark() => err(Errno::EPERM),
            (c::SOL_SOCKET, c::SO_MARK) if data.len() == 4 => Ok(()),
            (c::SOL_SOCKET, c::SO_TIMESTAMPING) if data.len() == 4 => {
                let told =
                    flags_of_message(socket.generic.stamps.flags, int_in(data, i32::MIN..=i32::MAX)? as u32)?;
                if !udp && times_of(told) != times_of(0) {
                    return Err(Stop::Unsupported("SO_TIMESTAMPING of a message of a stream".into()));
                }
                chosen.stamps = Some(told);
                Ok(())
            }
            (c::SOL_SOCKET, _) => err(Errno::EINVAL),
            (c::IPPROTO_IP, c::IP_PKTINFO) if udp && data.len() == 12 => {
                let source = IpAddr::from([data[4], data[5], data[6], data[7]]);
                self.choose_source(id, chosen, source, int_in(&data[..4], i32::MIN..=i32::MAX)?)
            }
            (c::IPPROTO_IPV6, c::IPV6_PKTINFO) if udp && socket.v6 && data.len() == 20 => {
                let source: [u8; 16] = data[..16].try_into().map_err(|_| Errno::EINVAL)?;
                let index = int_in(&data[16..], i32::MIN..=i32::MAX)?;
                self.choose_source(id, chosen, IpAddr::from(source).to_canonical(), index)
            }
            (c::IPPROTO_IP, c::IP_TTL) if udp => {
                chosen.hops = u8::try_from(int_in(data, 1..=255)?).ok();
                Ok(())
            }
            (c::IPPROTO_IP, c::IP_TOS) if udp => {
                let class = if let [byte] = data { i32::from(*byte) } else { int_in(data, 0..=255)? };
                chosen.class = u8::try_from(class).ok();
                Ok(())
            }
            (c::IPPROTO_IPV6, header) if udp && socket.v6 && STICKY.contains(&header) => {
                chosen.header = Some(header);
                Ok(())
            }
            (c::IPPROTO_IPV6, c::IPV6_DONTFRAG) if udp && socket.v6 => {
                chosen.unfragmented = Some(int_in(data, 0..=1)? == 1);
                Ok(())
            }
            // -1 leaves it to the socket's option.
            (c::IPPROTO_IPV6, c::IPV6_HOPLIMIT) if udp && socket.v6 => {
                chosen.hops = u8::try_from(int_in(data, -1..=255)?).ok();
                Ok(())
            }
            (c::IPPROTO_IPV6, c::IPV6_TCLASS) if udp && socket.v6 => {
                chosen.class = u8::try_from(int_in(data, -1..=255)?).ok();
                Ok(())
            }
            (c::IPPROTO_IP | c::IPPROTO_IPV6, _) if udp => err(Errno::EINVAL),
            _ => Ok(()),
        }
    }

    /// Source address and interface by IP_PKTINFO or IPV6_PKTINFO. ENODEV for an interface that there is not, ENETUNREACH or
    /// EINVAL for an address of another node.
    fn choose_source(&self, id: SocketId, chosen: &mut Chosen, source: IpAddr, index: i32) -> SysResult<()> {
        let stack = self.node.net.of(id);
        let known = crate::inet::interfaces(stack).iter().any(|i| i.index == index);
        if index != 0 && !known {
            return err(Errno::ENODEV);
        }
        if !source.is_unspecified() {
            if !crate::inet::is_local(stack, source) {
                // ip_route_output_key_hash_rcu, and ip6_datagram_send_ctl.
                return err(if source.is_ipv4() { Errno::ENETUNREACH } else { Errno::EINVAL });
            }
            chosen.source = Some(source);
        }
        chosen.interface = index as u32;
        Ok(())
    }

    pub(super) fn recv_udp(&mut self, id: SocketId, want: &Incoming) -> SysResult<Got> {
        let timeout = self.inet(id)?.generic.rcvtimeo;
        let peek = want.flags.contains(MsgFlags::MSG_PEEK);
        let offset = self.inet(id)?.generic.peek_offset().filter(|_| peek);
        let things = self.node.net.of_mut(id).receptions(id)?;
        self.keep_in_line(Object::Inet(id), things, timeout)?;
        let stack = self.node.net.of_mut(id);
        let found = match offset {
            Some(offset) => stack.peek_at(id, offset),
            None => stack.recv_from(id, peek).map(|datagram| (datagram, 0)),
        };
        let (datagram, before) = match found {
            Ok(found) => found,
            Err(Errno::EAGAIN) if self.must_not_sleep(want.nonblock, timeout) => return err(Errno::EAGAIN),
            Err(Errno::EAGAIN) if self.node.net.of(id).readiness(id).contains(ReadyFlags::RDHUP) => {
                return Ok(Got::default());
            }
            Err(Errno::EAGAIN) => return Err(self.wait_in_line(Object::Inet(id), timeout).into()),
            Err(e) => return err(e),
        };
        self.has_got(Object::Inet(id), peek);
        let whole = datagram.data.len() as u64;
        let (room, rest) = (want.buffers.len(), whole - before);
        let n = rest.min(room);
        let mut control = received(&self.inet(id)?.generic, self.node.realtime_at(datagram.at));
        control.extend(self.datagram_control(id, &datagram)?);
        let mut got = Got { name: inet_bytes(datagram.src), control, ..Got::default() };
        // With a bad address the datagram is lost, as on Linux (udp_recvmsg).
        self.copy_out(&want.buffers, 0, &datagram.data[before as usize..(before + n) as usize])?;
        truncation(&mut got, want.flags, n, whole);
        // "if (copied > ulen - off) copied = ulen - off; else if (copied < ulen) msg->msg_flags |= MSG_TRUNC;" (udp_recvmsg)
        got.flags.set(MsgFlags::MSG_TRUNC, room <= rest && n < whole);
        self.generic(Sock::Inet(id))?.move_peek_offset(got.value, peek);
        Ok(got)
    }

    /// Ancillary data of a datagram that the options of its socket ask for, in Linux's order (sock_recv_cmsgs, ip_cmsg_recv_offset,
    /// ip6_datagram_recv_ctl).
    pub(super) fn datagram_control(
        &self,
        id: SocketId,
        datagram: &Datagram,
    ) -> Result<Vec<(u64, u64, Vec<u8>)>, Errno> {
        let generic = &self.inet(id)?.generic;
        let on = |level, name| generic.is_set(level, name);
        let Header { hops, class, .. } = datagram.header;
        let (index, dst) = (datagram.interface, datagram.dst);
        let mut out = Vec::new();
        if let IpAddr::V6(ip) = dst.ip() {
            if on(c::IPPROTO_IPV6, c::IPV6_RECVPKTINFO) {
                let mut info = ip.octets().to_vec();
                info.extend_from_slice(&index.to_le_bytes());
                out.push((c::IPPROTO_IPV6, c::IPV6_PKTINFO, info));
            }
            let plain = dst.ip().to_canonical().is_ipv4();
            if on(c::IPPROTO_IPV6, IPV6_RECVORIGDSTADDR) && !plain {
                out.push((c::IPPROTO_IPV6, IPV6_RECVORIGDSTADDR, inet_bytes(dst)));
            }
            if on(c::IPPROTO_IPV6, c::IPV6_RECVHOPLIMIT) && !plain {
                out.push((c::IPPROTO_IPV6, c::IPV6_HOPLIMIT, i32::from(hops).to_le_bytes().to_vec()));
            }
            if on(c::IPPROTO_IPV6, c::IPV6_RECVTCLASS) && !plain {
                out.push((c::IPPROTO_IPV6, c::IPV6_TCLASS, i32::from(class).to_le_bytes().to_vec()));
            }
            if on(c::IPPROTO_IPV6, IPV6_2292PKTINFO) && !plain {
                let mut info = ip.octets().to_vec();
                info.extend_from_slice(&index.to_le_bytes());
                out.push((c::IPPROTO_IPV6, IPV6_2292PKTINFO, info));
            }
            if on(c::IPPROTO_IPV6, IPV6_2292HOPLIMIT) && !plain {
                out.push((c::IPPROTO_IPV6, IPV6_2292HOPLIMIT, i32::from(hops).to_le_bytes().to_vec()));
            }
        }
        if let IpAddr::V4(ip) = dst.ip().to_canonical() {
            if on(c::IPPROTO_IP, c::IP_PKTINFO) {
                let mut info = index.to_le_bytes().to_vec();
                info.extend_from_slice(&self.answering(IpAddr::V4(ip), index));
                info.extend_from_slice(&ip.octets());
                out.push((c::IPPROTO_IP, c::IP_PKTINFO, info));
            }
            if on(c::IPPROTO_IP, c::IP_RECVTTL) {
                out.push((c::IPPROTO_IP, c::IP_TTL, i32::from(hops).to_le_bytes().to_vec()));
            }
            if on(c::IPPROTO_IP, c::IP_RECVTOS) {
                out.push((c::IPPROTO_IP, c::IP_TOS, vec![class]));
            }
            if on(c::IPPROTO_IP, c::IP_RECVORIGDSTADDR) {
                let original = inet_bytes(SocketAddr::new(ip.into(), dst.port()));
                out.push((c::IPPROTO_IP, c::IP_RECVORIGDSTADDR, original));
            }
        }
        Ok(out)
    }

    /// `ipi_spec_dst`: "the local address of the packet", from which an answer would be sent (ip(7)).
    fn answering(&self, dst: IpAddr, interface: u32) -> Vec<u8> {
        let of_interface = || {
            let all = crate::inet::interfaces(self.stack());
            all.iter()
                .find(|i| i.index as u32 == interface)
                .and_then(|i| i.v4())
                .map(|(ip, _)| IpAddr::V4(ip))
        };
        let local = if crate::inet::is_local(self.stack(), dst) { Some(dst) } else { of_interface() };
        match local {
            Some(IpAddr::V4(ip)) => ip.octets().to_vec(),
            _ => vec![0; 4],
        }
    }

    /// IP_PKTOPTIONS of a stream: what its options ask for, of the packet that began the connection (do_ip_getsockopt).
    pub(crate) fn stream_control(&self, id: SocketId) -> Result<Vec<u8>, Errno> {
        let net = self.node.net.of(id);
        let (local, connected) = (net.local_addr(id)?, net.peer_addr(id).is_ok());
        let first = Datagram {
            src: local,
            dst: local,
            interface: net.interface_of(local.ip()).unwrap_or(1),
            header: Header::default(),
            at: self.node.clock,
            data: bloodhound_net::Bytes::default(),
            peeked: false,
        };
        let mut out = Vec::new();
        for (level, kind, mut data) in self.datagram_control(id, &first)? {
            if !connected && kind == c::IP_PKTINFO {
                // No packet came in by any interface.
                data[..4].fill(0);
            }
            out.extend(cmsg(level, kind, &data));
            out.resize(align(out.len()), 0);
        }
        Ok(out)
    }
}

/// What the options of all sockets ask for of a packet (`sock_recv_cmsgs`): when it came, ns since 1970, and its mark (SO_RCVMARK), which none has.
pub(super) fn received(generic: &Generic, at: u64) -> Vec<(u64, u64, Vec<u8>)> {
    let mut out = timestamps(generic, at);
    if generic.is_set(c::SOL_SOCKET, SO_RCVMARK) {
        out.push((c::SOL_SOCKET, c::SO_MARK, vec![0; 4]));
    }
    out
}

/// What SO_TIMESTAMP and its kin ask for: when a message came, ns since 1970.
pub(super) fn timestamps(generic: &Generic, at: u64) -> Vec<(u64, u64, Vec<u8>)> {
    // Packets have times where somebody has asked for them (net_enable_timestamp).
    let has_time = generic.stamps.on || generic.stamps.flags & TIMESTAMPING_RX_SOFTWARE != 0;
    if has_time { times_of_packet(generic, at) } else { Vec::new() }
}

/// The same for a packet that has a time in any case.
pub(super) fn times_of_packet(generic: &Generic, at: u64) -> Vec<(u64, u64, Vec<u8>)> {
    let mut out = Vec::new();
    let Stamps { on, nanoseconds, new, flags } = generic.stamps;
    let by = |old, of_new| if new { of_new } else { old };
    if on && nanoseconds {
        let kind = by(c::SO_TIMESTAMPNS, c::SO_TIMESTAMPNS_NEW);
        out.push((c::SOL_SOCKET, kind, Timespec::from_ns(at).as_bytes().to_vec()));
    } else if on {
        let kind = by(c::SO_TIMESTAMP, c::SO_TIMESTAMP_NEW);
        out.push((c::SOL_SOCKET, kind, Timeval::from_ns(at).as_bytes().to_vec()));
    }
    if flags & TIMESTAMPING_SOFTWARE != 0 {
        // struct scm_timestamping: by software, (deprecated), by hardware.
        let mut data = Timespec::from_ns(at).as_bytes().to_vec();
        data.resize(48, 0);
        out.push((c::SOL_SOCKET, by(c::SO_TIMESTAMPING, c::SO_TIMESTAMPING_NEW), data));
    }
    out
}

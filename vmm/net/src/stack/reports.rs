//! The error queue of sockets of datagrams (ip(7), IP_RECVERR): what ICMP reports about what they have sent, datagrams that are too long, and times of
//! sending (SO_TIMESTAMPING).
//!
//! Key types: [`About`] (the packet that a report is about), [`Report`]. Neighbours: `demux` and `raw`, by which reports come.

use super::data::Way;
use super::raw::ICMP_HEADER;
use super::tap::ETHERNET;
use super::{Pair, Result, Stack};
use crate::iface::LOOPBACK;
use crate::socket::{Common, Cx, Kind};
use crate::{
    Bytes, Cause, Packet, Proto, ReadyFlags, Report, Sending, Sent, SocketId, Times, Unreachable, wire,
};
use bloodhound_abi::{Errno, SimTime};
use std::net::{IpAddr, SocketAddr};

/// Largest UDP payload: 65535 less the headers (IPv6 does not count its own).
const UDP_MAX_V4: usize = 65_507;
const UDP_MAX_V6: usize = 65_527;

/// Bytes of IP that an interface takes: ETH_DATA_LEN of linux/if_ether.h; loopback takes more.
pub(super) fn mtu(interface: u32) -> usize {
    if interface == LOOPBACK { 65536 } else { 1500 }
}

/// The packet that a report is about.
pub(super) struct About {
    /// The node's end and the other one.
    pub(super) pair: Pair,
    pub(super) proto: Proto,
    pub(super) kind: Unreachable,
    /// The data of a datagram.
    pub(super) data: Bytes,
}

/// Type and code of a message of ICMP, who sent it, and the interface by which it came.
pub(super) type Reporter = ([u8; 2], IpAddr, u32);

impl Stack {
    /// A report that a packet of a transport could not be delivered.
    pub(super) fn input_unreachable(
        &mut self,
        about: About,
        (kind, offender, interface): Reporter,
        now: SimTime,
    ) {
        let error = error_of(about.kind);
        let (local, peer) = about.pair;
        match about.proto {
            Proto::Tcp => {
                let id = self.conns.get(&about.pair).copied();
                let Some((id, socket)) = id.and_then(|id| Some((id, self.sockets.get_mut(&id)?))) else {
                    return;
                };
                let mut cx = Cx { c: &mut socket.common, net: &mut self.net, now };
                if let Kind::Conn(conn) = &mut socket.kind {
                    conn.unreachable(error, &mut cx);
                }
                self.settle(id, now);
            }
            Proto::Udp | Proto::UdpLite => {
                let Some(id) =
                    self.best_match(self.holders(about.proto, local.port()), about.pair, interface)
                else {
                    return;
                };
                let cause = Cause::Icmp { error, kind, offender, dst: peer, came: (local.ip(), interface) };
                let data = wire::quoted_data(&about.data, peer.is_ipv6());
                self.report_to(id, Report { cause, at: now, data }, about.kind, now);
            }
            Proto::Icmp | Proto::Raw | Proto::Packet => {}
        }
    }

    /// A report about a packet of which `quote` is the beginning.
    pub(super) fn input_quote(&mut self, kind: Unreachable, quote: &Bytes, from: Reporter, now: SimTime) {
        let Some(parsed) = wire::parse(quote) else { return };
        let Some(head) = quote.get(parsed.at..parsed.at + ICMP_HEADER) else { return };
        let port = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let pair = (SocketAddr::new(parsed.src, port(0)), SocketAddr::new(parsed.dst, port(2)));
        let behind = |at: usize| quote.slice(at..quote.len());
        let about = |proto| About { pair, proto, kind, data: behind(parsed.at + ICMP_HEADER) };
        match parsed.protocol {
            wire::TCP => self.input_unreachable(about(Proto::Tcp), from, now),
            wire::UDP => self.input_unreachable(about(Proto::Udp), from, now),
            own if own == wire::icmp_of(parsed.src.is_ipv6()) => {
                let (number, offender, interface) = from;
                let identifier = u16::from_be_bytes([head[4], head[5]]);
                let Some(id) = self.echo_socket(identifier, parsed.src, interface) else { return };
                let (dst, came) = (SocketAddr::new(parsed.dst, 0), (parsed.src, interface));
                let cause = Cause::Icmp { error: error_of(kind), kind: number, offender, dst, came };
                self.report_to(id, Report { cause, at: now, data: behind(parsed.at) }, kind, now);
            }
            _ => {}
        }
    }

    /// Tells a socket of a report about what it has sent (`__udp4_lib_err`, `ping_err`): with IP_RECVERR of all, else a connected one of what
    /// is fatal.
    fn report_to(&mut self, id: SocketId, report: Report, kind: Unreachable, now: SimTime) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let Kind::Udp(udp) = &mut socket.kind else { return };
        let c = &mut socket.common;
        let v6 = matches!(report.cause, Cause::Icmp { dst, .. } if dst.is_ipv6());
        let wanted = c.opts.wants_reports(v6);
        if !wanted && (kind != Unreachable::Port || c.peer.is_none()) {
            return;
        }
        c.error = report.cause.error();
        if wanted {
            udp.push_report(report, c.opts.rcvbuf);
        }
        c.wake(ReadyFlags::ERR);
        self.settle(id, now);
    }

    /// recvmsg(2) with MSG_ERRQUEUE. EAGAIN. The error of the next report of ICMP is then the pending one, and none is behind the last
    /// (`sock_dequeue_err_skb`).
    pub fn recv_report(&mut self, id: SocketId, now: SimTime) -> Result<Report> {
        let socket = self.get_mut(id)?;
        let Kind::Udp(udp) = &mut socket.kind else { return Err(Errno::EAGAIN) };
        let report = udp.pop_report().ok_or(Errno::EAGAIN)?;
        let next = udp.reports.front();
        let error = next.and_then(|next| next.cause.error());
        let c = &mut socket.common;
        if error.is_some() || report.cause.error().is_some() {
            c.error = error;
        }
        if next.is_some() {
            c.wake(ReadyFlags::ERR);
        }
        self.settle(id, now);
        Ok(report)
    }

    /// SOF_TIMESTAMPING_OPT_ID is set anew: datagrams are counted from 0.
    pub fn count_from_zero(&mut self, id: SocketId) -> Result<()> {
        if let Kind::Udp(udp) = &mut self.get_mut(id)?.kind {
            udp.next_number = 0;
        }
        Ok(())
    }

    /// Refuses a datagram that is too long for UDP, or that its interface does not take in one piece: where none may be in several, and one that
    /// comes with its header of IP (`__ip_append_data`, `raw_send_hdrinc`; `ip_local_error`, `ipv6_local_error`). The interface is that of a group;
    /// otherwise it follows from the addresses.
    pub(super) fn check_length(
        &mut self,
        id: SocketId,
        len: usize,
        way: &Way,
        how: &Sending,
        now: SimTime,
    ) -> Result<()> {
        let Way { source, peer: dst, interface, many } = *way;
        if len > if dst.is_ipv6() { UDP_MAX_V6 } else { UDP_MAX_V4 } {
            return Err(Errno::EMSGSIZE);
        }
        if !how.unfragmented && !how.has_header {
            return Ok(());
        }
        let v6 = dst.is_ipv6();
        let mtu = mtu(if many { interface } else { self.leaves_by(source.ip(), dst.ip()) });
        let socket = self.get_mut(id)?;
        let c = &mut socket.common;
        let with_ports = matches!(c.proto, Proto::Udp | Proto::UdpLite);
        let headers = match (how.has_header, v6) {
            (true, _) => 0,
            (false, false) => wire::V4_HEADER,
            (false, true) => wire::V6_HEADER,
        };
        // The data of a socket for echoes has the header of ICMP.
        let transport = if with_ports { wire::UDP_HEADER } else { 0 };
        if len + headers + transport <= mtu {
            return Ok(());
        }
        let Kind::Udp(udp) = &mut socket.kind else { return Err(Errno::EMSGSIZE) };
        if c.opts.wants_reports(v6) {
            // IPv4 tells the port of the connection, IPv6 that of the datagram.
            let port = if v6 { dst.port() } else { c.peer.map_or(0, |peer| peer.port()) };
            let port = if with_ports { port } else { 0 };
            let cause = Cause::TooLong { dst: SocketAddr::new(dst.ip(), port), mtu: mtu as u32 };
            udp.push_report(Report { cause, at: now, data: Bytes::default() }, c.opts.rcvbuf);
            c.wake(ReadyFlags::ERR);
            self.settle(id, now);
        }
        Err(Errno::EMSGSIZE)
    }

    /// By which interface a packet between these leaves.
    fn leaves_by(&self, src: IpAddr, dst: IpAddr) -> u32 {
        if self.net.is_local(dst) { LOOPBACK } else { self.net.arrived_by(src) }
    }

    /// A datagram of a socket is about to leave: its times go to the error queue (`__skb_tstamp_tx`).
    pub(super) fn tell_times(&mut self, id: SocketId, packet: &Packet, times: Times, now: SimTime) {
        if !(times.scheduled || times.sent || times.hardware) {
            return;
        }
        let interface = self.leaves_by(packet.src.ip(), packet.dst.ip());
        let frame = match times.bare {
            true => Bytes::default(),
            false => {
                let head: [u8; ETHERNET] = self.net.frame_header(packet, interface, true);
                [&head[..], &wire::ip_bytes(packet)].concat().into()
            }
        };
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let Kind::Udp(udp) = &mut socket.kind else { return };
        let number = if times.numbered { udp.next_number } else { 0 };
        let of = (!times.bare).then(|| Sent {
            src: packet.src.ip(),
            dst: packet.dst.ip(),
            interface,
            header: wire::fields(packet),
        });
        udp.next_number = udp.next_number.wrapping_add(u32::from(times.numbered));
        let c: &mut Common = &mut socket.common;
        for (asked, sent) in [(times.scheduled, false), (times.sent, true)] {
            if asked {
                let cause = Cause::Time { sent, number, of };
                udp.push_report(Report { cause, at: now, data: frame.clone() }, c.opts.rcvbuf);
                c.wake(ReadyFlags::ERR);
            }
        }
        self.settle(id, now);
    }
}

/// The error for what cannot be reached.
fn error_of(kind: Unreachable) -> Errno {
    match kind {
        Unreachable::Port => Errno::ECONNREFUSED,
        Unreachable::Host => Errno::EHOSTUNREACH,
        Unreachable::Net => Errno::ENETUNREACH,
    }
}

//! What a network namespace counts ([`Counters`]): packets and bytes of each interface, and the counters of IP, ICMP, UDP and TCP that Linux shows in
//! /proc/net (RFC 4293, RFC 4113 and RFC 4022 say what most of them mean; `snmp_counter.rst` of Linux those that only Linux has).
//!
//! Packets are counted where they pass an interface (`Interfaces::note`), the rest where it happens. Nothing here is read by the stack.

use crate::iface::LOOPBACK;
use crate::{Body, Flags, Packet, Proto, TcpState, wire};

/// Bytes of the header of Ethernet, which count for an interface other than loopback.
const ETHERNET: u64 = 14;

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct Traffic {
    pub packets: u64,
    pub bytes: u64,
}

impl Traffic {
    fn add(&mut self, bytes: u64) {
        self.packets += 1;
        self.bytes += bytes;
    }
}

/// Of an interface (`struct rtnl_link_stats64`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LinkCounters {
    /// What came in.
    pub received: Traffic,
    /// What went out.
    pub sent: Traffic,
}

/// Of IPv4 or IPv6.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct IpCounters {
    /// What came in (InReceives, InOctets).
    pub received: Traffic,
    /// What went out (OutRequests, OutOctets).
    pub sent: Traffic,
    /// Of these, what came in for a multicast group and went out to one.
    pub multicast: [Traffic; 2],
    /// Of these, what came in for all nodes of a network and went out to them.
    pub broadcast: [Traffic; 2],
    /// Packets that were handed to a protocol or a raw socket (InDelivers).
    pub delivered: u64,
    /// Packets of a protocol that nobody takes (InUnknownProtos).
    pub unknown_protocol: u64,
    /// What came in by its mark for explicit congestion notification (RFC 3168): none, ECT(1), ECT(0), congestion.
    pub marked: [u64; 4],
}

/// Of UDP or UDP-Lite over one version of IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct UdpCounters {
    /// Datagrams that a program has read (InDatagrams).
    pub received: u64,
    /// Datagrams that were sent (OutDatagrams).
    pub sent: u64,
    /// Datagrams to a port that nobody has (NoPorts).
    pub no_port: u64,
    /// Datagrams that found no room in the buffer of their socket (RcvbufErrors).
    pub no_room: u64,
    /// Datagrams whose checksum was wrong (InCsumErrors).
    pub damaged: u64,
    /// Datagrams that the filter of their socket dropped.
    pub filtered: u64,
    /// Datagrams to many nodes that no socket hears (IgnoredMulti).
    pub ignored_for_many: u64,
}

impl UdpCounters {
    /// InErrors: all that were not delivered though there was a socket.
    pub fn errors(&self) -> u64 {
        self.no_room + self.damaged + self.filtered
    }
}

/// Of ICMP or ICMPv6, by the direction: [came in, went out].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct IcmpCounters {
    /// All messages (InMsgs, OutMsgs).
    pub messages: [u64; 2],
    /// Reports that something cannot be reached (InDestUnreachs, OutDestUnreachs).
    pub unreachable: [u64; 2],
    /// Requests for an echo (InEchos, OutEchos).
    pub echos: [u64; 2],
    /// Their answers (InEchoReps, OutEchoReps).
    pub echo_replies: [u64; 2],
    /// What came in damaged, or was not to be answered (InErrors).
    pub errors: u64,
    /// Of these, what had a wrong checksum (InCsumErrors).
    pub damaged: u64,
}

/// Of TCP over both versions of IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TcpCounters {
    /// Connections that connect(2) began (ActiveOpens).
    pub active_opens: u64,
    /// Connections that listeners got (PassiveOpens).
    pub passive_opens: u64,
    /// Connections that ended before they stood (AttemptFails).
    pub attempts_failed: u64,
    /// Connections that stood and ended without taking leave (EstabResets).
    pub resets: u64,
    /// Segments that came in (InSegs).
    pub received: u64,
    /// Segments that went out, all of them.
    pub sent: u64,
    /// Of these, what connections have sent again.
    pub resent: u64,
    /// Of these, answers of listeners that were sent again.
    pub resent_by_listeners: u64,
    /// SYN segments of connect(2) that were sent again.
    pub resent_syns: u64,
    /// Segments with RST that went out (OutRsts).
    pub resets_sent: u64,
    /// Half-open connections that were reset (EmbryonicRsts).
    pub embryonic_resets: u64,
    /// Connections that came to TIME_WAIT (TW).
    pub time_waits: u64,
    /// Acknowledgements that a timer sent (DelayedACKs).
    pub delayed_acks: u64,
    /// Connections that found the queue of their listener full (ListenOverflows).
    pub listen_overflows: u64,
    /// All connections that a listener did not take (ListenDrops).
    pub listen_drops: u64,
    /// Times at which a peer had been silent for too long (TCPTimeouts).
    pub timeouts: u64,
    /// Segments that were sent again before a timeout (TCPFastRetrans).
    pub fast_retransmits: u64,
    /// Connections that ended for a silence (TCPAbortOnTimeout).
    pub aborted_on_timeout: u64,
    /// Probes of connections that are kept alive (TCPKeepAlive).
    pub keep_alives: u64,
}

impl TcpCounters {
    /// OutSegs: "including those on current connections but excluding those containing only retransmitted octets" (RFC 4022); Linux
    /// counts the answers of listeners each time.
    pub fn out_segs(&self) -> u64 {
        self.sent.saturating_sub(self.resent)
    }

    /// RetransSegs.
    pub fn retransmitted(&self) -> u64 {
        self.resent + self.resent_by_listeners
    }

    /// A socket that was in this state has none any more (`tcp_set_state`).
    pub(crate) fn ended(&mut self, state: TcpState) {
        self.resets += u64::from(matches!(state, TcpState::Established | TcpState::CloseWait));
    }

    /// A connection in this state has failed (`tcp_done`).
    pub(crate) fn failed(&mut self, state: TcpState) {
        self.attempts_failed += u64::from(matches!(state, TcpState::SynSent | TcpState::SynRecv));
    }
}

/// All counters of a network namespace. What there is of IPv4 and of IPv6 is in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Of the interfaces, loopback first; those behind the last one that had a packet are missing.
    links: Vec<LinkCounters>,
    /// IP.
    pub ip: [IpCounters; 2],
    /// ICMP and ICMPv6.
    pub icmp: [IcmpCounters; 2],
    /// UDP.
    pub udp: [UdpCounters; 2],
    /// UDP-Lite.
    pub udplite: [UdpCounters; 2],
    /// TCP.
    pub tcp: TcpCounters,
}

impl Counters {
    /// Of the interface with this number, from 1.
    pub fn link(&self, number: u32) -> LinkCounters {
        self.links.get(number as usize - 1).copied().unwrap_or_default()
    }

    fn link_mut(&mut self, number: u32) -> &mut LinkCounters {
        let at = number as usize - 1;
        if self.links.len() <= at {
            self.links.resize(at + 1, LinkCounters::default());
        }
        &mut self.links[at]
    }

    /// A packet goes out of an interface. `by_ip`: it comes from IP, and not from a packet socket.
    pub(crate) fn goes_out(&mut self, packet: &Packet, interface: u32, (by_ip, broadcast): (bool, bool)) {
        let bytes = wire::len(packet) as u64;
        let link = self.link_mut(interface);
        if interface == LOOPBACK {
            // The same packet comes in there (`dev_lstats_add`).
            link.sent.add(bytes);
            link.received.add(bytes);
        } else {
            link.sent.add(bytes + ETHERNET);
        }
        if by_ip {
            self.passes_ip(packet, OUT, bytes, broadcast);
            self.sends(packet);
        }
    }

    /// A packet to a group that IP sends, and that goes no further (a time to live of 0): no interface sees it, and it is not counted as multicast (`ip_mc_output`).
    pub(crate) fn goes_nowhere(&mut self, packet: &Packet) {
        self.ip_of(packet).sent.add(wire::len(packet) as u64);
        self.sends(packet);
    }

    /// A packet comes in at an interface, 0 for one that went to a group and comes back without passing one.
    pub(crate) fn comes_in(&mut self, packet: &Packet, interface: u32, broadcast: bool) {
        let bytes = wire::len(packet) as u64;
        if interface > LOOPBACK {
            // A container's interface does not count multicast apart (`veth_get_stats64`).
            self.link_mut(interface).received.add(bytes + ETHERNET);
        }
        self.passes_ip(packet, IN, bytes, broadcast);
        self.ip_of(packet).marked[usize::from(wire::fields(packet).class & 3)] += 1;
    }

    /// A packet of IPv4 has come to a group of which the node is a member (`ip_rcv_finish_core`).
    pub(crate) fn comes_to_member(&mut self, packet: &Packet) {
        if packet.dst.is_ipv4() && packet.dst.ip().is_multicast() {
            self.ip_of(packet).multicast[IN].add(wire::len(packet) as u64);
        }
    }

    /// A packet is handed to its protocol; `taken`: a raw socket has got it.
    pub(crate) fn delivers(&mut self, packet: &Packet, taken: bool) {
        let known = match &packet.body {
            Body::Raw(_, protocol, _) => wire::is_known(*protocol, packet.dst.is_ipv6()),
            _ => true,
        };
        let ip = self.ip_of(packet);
        *if known || taken { &mut ip.delivered } else { &mut ip.unknown_protocol } += 1;
    }

    fn ip_of(&mut self, packet: &Packet) -> &mut IpCounters {
        &mut self.ip[usize::from(packet.dst.is_ipv6())]
    }

    fn passes_ip(&mut self, packet: &Packet, way: usize, bytes: u64, broadcast: bool) {
        let ip = self.ip_of(packet);
        if way == IN { &mut ip.received } else { &mut ip.sent }.add(bytes);
        if packet.dst.ip().is_multicast() {
            if way == OUT || packet.dst.is_ipv6() {
                ip.multicast[way].add(bytes);
            }
        } else if broadcast {
            ip.broadcast[way].add(bytes);
        }
    }

    /// A protocol sends a packet.
    fn sends(&mut self, packet: &Packet) {
        let v6 = packet.dst.is_ipv6();
        match &packet.body {
            Body::Tcp(segment) => {
                self.tcp.sent += 1;
                self.tcp.resets_sent += u64::from(segment.flags.contains(Flags::RST));
            }
            Body::Udp(header, _) => self.udp_of(header.proto(), v6).sent += 1,
            Body::Icmp(..) => self.icmp_message(wire::unreachable_type(v6), v6, OUT),
            Body::Raw(_, protocol, data) if *protocol == wire::icmp_of(v6) => {
                self.icmp_message(data.first().copied().unwrap_or(u8::MAX), v6, OUT);
            }
            Body::Raw(..) => {}
        }
    }

    /// Those of UDP or UDP-Lite.
    pub(crate) fn udp_of(&mut self, proto: Proto, v6: bool) -> &mut UdpCounters {
        let both = if proto == Proto::UdpLite { &mut self.udplite } else { &mut self.udp };
        &mut both[usize::from(v6)]
    }

    /// A report of the stack has come.
    pub(crate) fn report_comes(&mut self, v6: bool) {
        self.icmp_message(wire::unreachable_type(v6), v6, IN);
    }

    /// A message of ICMP of this type has come, `None` if it is damaged.
    pub(crate) fn icmp_comes(&mut self, kind: Option<u8>, v6: bool) {
        match kind {
            Some(kind) => self.icmp_message(kind, v6, IN),
            None => {
                let icmp = &mut self.icmp[usize::from(v6)];
                icmp.messages[IN] += 1;
                icmp.errors += 1;
                icmp.damaged += 1;
            }
        }
    }

    fn icmp_message(&mut self, kind: u8, v6: bool, way: usize) {
        let icmp = &mut self.icmp[usize::from(v6)];
        icmp.messages[way] += 1;
        let (echo, reply) =
            if v6 { (wire::V6_ECHO, wire::V6_ECHO_REPLY) } else { (wire::ECHO, wire::ECHO_REPLY) };
        match kind {
            _ if kind == wire::unreachable_type(v6) => icmp.unreachable[way] += 1,
            _ if kind == echo => icmp.echos[way] += 1,
            _ if kind == reply => icmp.echo_replies[way] += 1,
            _ => {}
        }
    }
}

/// Places of the two directions in [`IcmpCounters`] and [`IpCounters`].
const IN: usize = 0;
const OUT: usize = 1;

//! Filters of sockets (SO_ATTACH_FILTER of socket(7)): programs that say how much of an arriving packet a socket gets (`sk_filter_trim_cap`).
//!
//! A packet is made into bytes for them only where there is such a filter. Neighbours: `bloodhound_bpf` (the programs), `demux`, `raw`,
//! `group` and `tap`, which ask before they queue.

use std::borrow::Cow;

use bloodhound_bpf::{Filter, Packet as Seen};
use bloodhound_decisions::Place;

use super::{Pair, Result, Stack};
use crate::iface::{Interfaces, LOOPBACK};
use crate::socket::Common;
use crate::stack::tap::{ETHERNET, FrameKind, ethertype_of};
use crate::{Body, Bytes, Header, Packet, Segment, SocketId, wire};

/// Bytes of the header of UDP.
const UDP_HEADER: usize = 8;
/// Types of interfaces (ARPHRD_*).
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;

/// Where place 0 of a packet is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Link,
    Network,
    Transport,
}

impl Stack {
    /// Gives a socket a filter, or takes it away.
    pub fn set_packet_filter(&mut self, id: SocketId, filter: Option<Filter>) -> Result<()> {
        // What came by before was not filtered.
        self.hand_out_noted();
        self.get_mut(id)?.common.filter = filter.map(Box::new);
        self.weigh(id);
        Ok(())
    }

    /// The filter of a socket.
    pub fn packet_filter(&self, id: SocketId) -> Result<Option<&Filter>> {
        Ok(self.get(id)?.common.filter.as_deref())
    }
}

/// The segment as far as the filter of a socket lets it through.
pub(super) fn filtered_segment<'a>(
    c: &mut Common,
    net: &Interfaces,
    (dst, src): Pair,
    seg: &'a Segment,
    interface: u32,
) -> Option<Cow<'a, Segment>> {
    if c.filter.is_none() {
        return Some(Cow::Borrowed(seg));
    }
    let packet = Packet { src, dst, body: Body::Tcp(seg.clone()), place: Place::default() };
    let header = wire::len(&packet) - wire::ip_header(&packet) - seg.payload.len();
    let kept = kept(c, net, &packet, interface, Start::Transport)?.max(header);
    let mut seg = seg.clone();
    seg.payload = seg.payload.slice(0..seg.payload.len().min(kept - header));
    Some(Cow::Owned(seg))
}

/// The content of a datagram of UDP as far as the filter of a socket lets it through. One whose checksum is wrong is dropped at once.
pub(super) fn filtered_datagram(
    c: &mut Common,
    net: &mut Interfaces,
    (dst, src): Pair,
    (header, data): (Header, Bytes),
    interface: u32,
) -> Option<Bytes> {
    if c.filter.is_none() {
        return Some(data);
    }
    let packet = Packet { src, dst, body: Body::Udp(header, data.clone()), place: Place::default() };
    let counters = (header.proto(), dst.is_ipv6());
    let kept = if header.damaged { None } else { kept(c, net, &packet, interface, Start::Transport) };
    if kept.is_none() {
        let counters = net.counters.udp_of(counters.0, counters.1);
        if header.damaged {
            counters.damaged += 1;
        } else {
            counters.filtered += 1;
        }
    }
    let kept = kept?.max(UDP_HEADER) - UDP_HEADER;
    Some(data.slice(0..data.len().min(kept)))
}

/// What a raw socket or an echo socket gets of a packet, of which `whole` begins at `start`.
pub(super) fn filtered_bytes(
    c: &mut Common,
    net: &Interfaces,
    packet: &Packet,
    whole: &Bytes,
    (interface, start): (u32, Start),
) -> Option<Bytes> {
    if c.filter.is_none() {
        return Some(whole.clone());
    }
    let kept = kept(c, net, packet, interface, start)?;
    Some(whole.slice(0..whole.len().min(kept)))
}

/// How many bytes from `start` on the filter of a socket keeps of an arriving packet; `None` drops it.
fn kept(c: &mut Common, net: &Interfaces, packet: &Packet, interface: u32, start: Start) -> Option<usize> {
    let head = net.frame_header(packet, interface, false);
    let frame = [&head[..], &wire::ip_bytes(packet)].concat();
    let kind = net.frame_kind(packet, interface, false);
    kept_of_frame(c, &frame, (packet, interface, kind), start)
}

/// As [`kept`], of a frame that was made already.
pub(super) fn kept_of_frame(
    c: &mut Common,
    frame: &[u8],
    (packet, interface, kind): (&Packet, u32, FrameKind),
    start: Start,
) -> Option<usize> {
    let Some(filter) = &mut c.filter else { return Some(usize::MAX) };
    let transport = ETHERNET + wire::ip_header(packet);
    let data = match start {
        Start::Link => 0,
        Start::Network => ETHERNET,
        Start::Transport => transport,
    };
    let seen = Seen {
        bytes: frame,
        link: Some(0),
        network: ETHERNET,
        data,
        payload: Some(transport + wire::transport_header(packet)),
        ethertype: ethertype_of(packet),
        kind: kind as u8,
        interface: Some((interface, if interface == LOOPBACK { ARPHRD_LOOPBACK } else { ARPHRD_ETHER })),
    };
    filter.keeps(&seen)
}

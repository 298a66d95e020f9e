//! Arriving packets: which socket gets them, what listeners and TIME_WAIT do, and the answers for those that
//! nobody wants (RST, ICMP port unreachable).

use super::filter::{filtered_datagram, filtered_segment};
use super::guard::{comes_from_afar, dress, refuses_signature, sign};
use super::reports::About;
use super::{Pair, Stack};
use crate::conn::{Conn, RCV_WSCALE, announced_mss};
use crate::naming::Opened;
use crate::seq::{after, before, hash_pair};
use crate::socket::{Common, Cx, Kind, Request};
use crate::{
    Body, Bytes, Datagram, Flags, Header, Packet, Proto, ReadyFlags, Segment, SocketId, Unreachable, wire,
};
use bloodhound_abi::SimTime;
use bloodhound_decisions::Place;
use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};

impl Stack {
    /// A packet from the fabric arrives. One for an address that the node does not have is ignored.
    pub fn input(&mut self, packet: Packet, now: SimTime) {
        let interface = self.net.arrived_at(packet.dst.ip(), packet.src.ip());
        self.net.note(&packet, interface, None, false, now);
        if !self.is_martian(&packet) {
            self.take_in(packet, interface, now);
        }
    }

    /// Whether a packet that a raw or packet socket made may not come in by an interface: of or to loopback, or of the node itself
    /// (`ip_route_input_slow`: "martian source"). IPv6 lets ::1 pass on loopback, and nothing leads it elsewhere.
    pub(super) fn is_martian(&self, packet: &Packet) -> bool {
        let (src, dst) = (packet.src.ip(), packet.dst.ip());
        let own = src.is_ipv4() && self.net.is_local(src) || dst.is_ipv4() && dst.is_loopback();
        matches!(packet.body, Body::Raw(..)) && own
    }

    /// A packet arrives from the fabric or over loopback, by an interface.
    pub(super) fn take_in(&mut self, packet: Packet, interface: u32, now: SimTime) {
        let pair = (packet.dst, packet.src);
        if self.is_group(packet.dst.ip()) {
            return self.input_for_many(packet, interface, now);
        }
        if !self.net.is_local(packet.dst.ip()) {
            return;
        }
        let taken = self.copy_to_raw(&packet, interface, now);
        self.net.counters.delivers(&packet, taken);
        match &packet.body {
            Body::Tcp(seg) => self.input_tcp(pair, seg, (packet.place, interface), now),
            Body::Udp(header, data) => {
                self.input_udp(pair, (*header, data.clone()), (packet.place, interface), now);
            }
            Body::Icmp(kind, proto, data) => {
                self.net.counters.report_comes(packet.dst.is_ipv6());
                let about = About { pair, proto: *proto, kind: *kind, data: data.clone() };
                let number = wire::type_and_code(*kind, packet.dst.is_ipv6());
                self.input_unreachable(about, (number, packet.src.ip(), interface), now);
            }
            Body::Raw(..) => self.input_raw(&packet, taken, interface, now),
        }
    }

    pub(super) fn input_tcp(
        &mut self,
        pair: Pair,
        seg: &Segment,
        (place, interface): (Place, u32),
        now: SimTime,
    ) {
        self.net.counters.tcp.received += 1;
        if let Some(id) = self.conns.get(&pair).copied()
            && let Some(socket) = self.sockets.get_mut(&id)
            && socket.common.takes_from(interface)
        {
            let afar = comes_from_afar(&socket.common, seg, pair.1.ip());
            let refused = refuses_signature(&socket.common, seg, pair.1.ip());
            let filtered = match socket.kind {
                // What is left of a connection has no filter, and takes all.
                Kind::TimeWait(_) => Some(Cow::Borrowed(seg)),
                // Nobody looks how far away the end of a half-open connection is.
                Kind::Listen(_) if refused => None,
                Kind::Conn(_) if refused || afar => None,
                _ => filtered_segment(&mut socket.common, &self.net, pair, seg, interface),
            };
            let Some(seg) = filtered.as_deref() else { return };
            let mut cx = Cx { c: &mut socket.common, net: &mut self.net, now };
            match &mut socket.kind {
                Kind::Conn(conn) => {
                    cx.c.has_come();
                    conn.on_segment(seg, &mut cx);
                    self.settle(id, now);
                    return;
                }
                Kind::Listen(_) => return self.input_request(id, pair, seg, place, now),
                Kind::TimeWait(_) => {
                    if self.input_time_wait(id, pair, seg, now) {
                        return;
                    }
                }
                Kind::Idle | Kind::Udp(_) | Kind::Packet(_) => {}
            }
        }
        let opens = seg.flags.intersection(Flags::SYN | Flags::ACK | Flags::RST) == Flags::SYN;
        let listener = self.find_listener(pair, interface);
        if let Some(socket) = listener.and_then(|id| self.sockets.get_mut(&id)) {
            let c = &mut socket.common;
            if comes_from_afar(c, seg, pair.1.ip())
                || refuses_signature(c, seg, pair.1.ip())
                || filtered_segment(c, &self.net, pair, seg, interface).is_none()
            {
                return;
            }
        }
        match listener {
            Some(id) if opens => self.input_syn(id, pair, seg, Opened::by(place), now),
            Some(_) if seg.flags.intersects(Flags::RST) => {}
            _ if self.may_reset(pair, seg, interface) => {
                self.net.emit_reset_for((pair.1, pair.0), seg, place, now);
            }
            _ => {}
        }
    }

    /// The listener for a pair: an exact address before a wildcard, IPv4's own wildcard before `::`; among equals
    /// (SO_REUSEPORT) by a hash of the pair.
    pub(super) fn find_listener(&self, pair: Pair, interface: u32) -> Option<SocketId> {
        let port = pair.0.port();
        let range = (port, SocketId(0))..=(port, SocketId(u32::MAX));
        self.best_match(self.listeners.range(range).map(|(_, id)| *id), pair, interface)
    }

    pub(super) fn best_match(
        &self,
        ids: impl Iterator<Item = SocketId> + Clone,
        pair: Pair,
        interface: u32,
    ) -> Option<SocketId> {
        let scored = |id: SocketId| {
            let common = &self.sockets.get(&id)?.common;
            Some((score(common, pair, interface)?, common.opts.reuseport))
        };
        let (best, _) = ids.clone().filter_map(scored).max_by_key(|(score, _)| *score)?;
        let equal = ids.filter(|id| scored(*id).is_some_and(|(score, _)| score == best));
        let shared = equal.clone().filter(|id| scored(*id).is_some_and(|(_, reuseport)| reuseport)).count();
        let pick = match shared {
            0 | 1 => 0,
            count => (hash_pair(self.seed, pair.0, pair.1) % count as u64) as usize,
        };
        let mut equal = equal;
        equal.nth(pick)
    }

    /// A SYN for a listener. With a full accept queue it is dropped: the client tries again.
    fn input_syn(&mut self, id: SocketId, pair: Pair, seg: &Segment, opened: Opened, now: SimTime) {
        let iss = self.initial_seq(pair, now);
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let Kind::Listen(listener) = &mut socket.kind else { return };
        let is_full = listener.is_full();
        if is_full || listener.requests.len() as u64 >= u64::from(self.net.config.max_syn_backlog) {
            self.net.counters.tcp.listen_overflows += u64::from(is_full);
            self.net.counters.tcp.listen_drops += 1;
            return;
        }
        let request = Request {
            irs: seg.seq,
            iss,
            mss: seg.mss.unwrap_or(536),
            wscale: seg.wscale,
            window: seg.window,
            sent: now,
            resend: now.after(self.net.config.rto_initial),
            timeouts: 0,
            opened,
            sends: 0,
        };
        listener.requests.insert(pair, request);
        self.conns.insert(pair, id);
        self.send_syn_ack(id, pair, now);
        self.settle(id, now);
    }

    fn resend_syn_ack(&mut self, id: SocketId, pair: Pair, now: SimTime) {
        self.net.counters.tcp.resent_by_listeners += 1;
        self.send_syn_ack(id, pair, now);
    }

    fn send_syn_ack(&mut self, id: SocketId, pair: Pair, now: SimTime) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let Kind::Listen(listener) = &mut socket.kind else { return };
        let Some(request) = listener.requests.get_mut(&pair) else { return };
        let place = request.next_place(0);
        let mss = announced_mss(&socket.common, self.net.mss_for(pair.1.ip()));
        let device = socket.common.opts.device;
        let window = Conn::initial_window(&socket.common, u32::from(mss)).min(65535) as u16;
        let ack = request.irs.wrapping_add(1);
        let mut seg = Segment {
            mss: Some(mss),
            wscale: request.wscale.map(|_| RCV_WSCALE),
            ..Segment::control(request.iss, ack, Flags::SYN | Flags::ACK, window)
        };
        dress(&socket.common, &mut seg, pair.1.ip());
        self.net.emit_by(Packet { src: pair.0, dst: pair.1, body: Body::Tcp(seg), place }, device, now);
    }

    /// A segment for a half-open connection (`tcp_check_req`).
    fn input_request(&mut self, id: SocketId, pair: Pair, seg: &Segment, place: Place, now: SimTime) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let Kind::Listen(listener) = &mut socket.kind else { return };
        let Some(request) = listener.requests.get(&pair).cloned() else { return };
        let has = |flag| seg.flags.contains(flag);
        let expected = request.irs.wrapping_add(1);
        if has(Flags::SYN) && !has(Flags::ACK) && !has(Flags::RST) && seg.seq == request.irs {
            self.resend_syn_ack(id, pair, now);
            return;
        }
        let window_end = expected.wrapping_add(65535);
        if before(seg.seq_end(), expected) || after(seg.seq, window_end) || has(Flags::SYN) {
            if !has(Flags::RST) {
                let mut ack = Segment::control(request.iss.wrapping_add(1), expected, Flags::ACK, u16::MAX);
                sign(&socket.common, &mut ack, pair.1.ip());
                let place = listener.requests.get_mut(&pair).map_or(place, |request| request.next_place(1));
                self.net.emit(Packet { src: pair.0, dst: pair.1, body: Body::Tcp(ack), place }, now);
            }
            return;
        }
        if has(Flags::RST) {
            self.net.counters.tcp.attempts_failed += 1;
            self.net.counters.tcp.embryonic_resets += 1;
            listener.requests.remove(&pair);
            self.forget_pair(pair, id);
            self.settle(id, now);
            return;
        }
        if !has(Flags::ACK) {
            return;
        }
        if seg.ack != request.iss.wrapping_add(1) {
            self.net.emit_reset_for((pair.1, pair.0), seg, place, now);
            return;
        }
        // The last acknowledgement of the handshake is ignored while the accept queue is full
        // (tcp_abort_on_overflow = 0): the SYN-ACK is sent again until there is room.
        if listener.is_full() {
            self.net.counters.tcp.listen_overflows += 1;
            self.net.counters.tcp.listen_drops += 1;
        } else {
            listener.requests.remove(&pair);
            self.open_child(id, pair, &request, seg, now);
        }
    }

    /// Makes the socket of a completed connection and queues it for accept(2).
    fn open_child(&mut self, id: SocketId, pair: Pair, request: &Request, seg: &Segment, now: SimTime) {
        let Some(listener) = self.sockets.get(&id) else { return };
        let mut common = Common::new(Proto::Tcp, listener.common.v6, &self.net.config);
        common.opts.clone_from(&listener.common.opts);
        common.local = pair.0;
        common.peer = Some(pair.1);
        common.bound_addr = listener.common.bound_addr;
        common.bound_port = listener.common.bound_port;
        let number = u64::from(self.next_id);
        common.filter = listener.common.filter.as_ref().map(|filter| Box::new(filter.for_copy(number)));
        common.guard = listener.common.guard.as_ref().map(|guard| Box::new(guard.for_child(pair.1.ip())));
        common.unaccepted = true;
        common.has_come();
        self.net.counters.tcp.passive_opens += 1;
        let child = self.insert(common, Kind::Idle);
        self.hold_port(child);
        self.conns.insert(pair, child);
        if let Some(socket) = self.sockets.get_mut(&child) {
            let mut cx = Cx { c: &mut socket.common, net: &mut self.net, now };
            let mut conn = Conn::accepted(pair, request, seg, &mut cx);
            conn.on_segment(seg, &mut cx);
            socket.kind = Kind::Conn(Box::new(conn));
        }
        if let Some(socket) = self.sockets.get_mut(&id)
            && let Kind::Listen(listener) = &mut socket.kind
        {
            listener.queue.push_back(child);
            socket.common.wake(ReadyFlags::READ);
        }
        self.settle(child, now);
        self.settle(id, now);
    }

    /// The SYN-ACK timer of a listener's half-open connections.
    pub(super) fn resend_requests(&mut self, id: SocketId, now: SimTime) {
        let config = &self.net.config;
        let (retries, initial, max) = (config.synack_retries, config.rto_initial, config.rto_max);
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let Kind::Listen(listener) = &mut socket.kind else { return };
        let mut due = Vec::new();
        for (pair, request) in listener.requests.iter_mut().filter(|(_, r)| r.resend <= now) {
            request.timeouts += 1;
            let wait = initial.saturating_mul(1 << request.timeouts.min(20)).min(max);
            request.resend = now.after(wait);
            due.push((*pair, request.timeouts > retries));
        }
        for (pair, expired) in due {
            self.net.counters.tcp.timeouts += 1;
            if expired {
                self.drop_request(id, pair);
            } else {
                self.resend_syn_ack(id, pair, now);
            }
        }
    }

    fn drop_request(&mut self, id: SocketId, pair: Pair) {
        if let Some(Kind::Listen(listener)) = self.sockets.get_mut(&id).map(|s| &mut s.kind) {
            listener.requests.remove(&pair);
        }
        self.forget_pair(pair, id);
    }

    /// A segment for a pair in TIME_WAIT (`tcp_timewait_state_process`). False: it is a SYN that may open a new
    /// connection, and the old one is forgotten.
    fn input_time_wait(&mut self, id: SocketId, pair: Pair, seg: &Segment, now: SimTime) -> bool {
        let until = now.after(self.net.config.time_wait);
        let Some(socket) = self.sockets.get_mut(&id) else { return false };
        let Kind::TimeWait(wait) = &mut socket.kind else { return false };
        let has = |flag| seg.flags.contains(flag);
        if has(Flags::RST) {
            if seg.seq == wait.rcv_nxt {
                self.remove(id);
            }
            return true;
        }
        if has(Flags::SYN) && !has(Flags::ACK) && after(seg.seq, wait.rcv_nxt) {
            self.remove(id);
            return false;
        }
        if has(Flags::ACK) {
            wait.until = until;
        }
        let limit = self.net.config.invalid_ratelimit;
        let limited = wait.last_stray.is_some_and(|at| now.since(at) < limit) && seg.payload.is_empty();
        if (seg.seq != wait.rcv_nxt || seg.seq_len() > 0) && !limited {
            wait.last_stray = Some(now);
            let mut ack = Segment::control(wait.snd_nxt, wait.rcv_nxt, Flags::ACK, wait.window);
            sign(&socket.common, &mut ack, pair.1.ip());
            let place = wait.place;
            wait.place.transmission += 1;
            self.net.emit(Packet { src: pair.0, dst: pair.1, body: Body::Tcp(ack), place }, now);
        }
        self.settle(id, now);
        true
    }

    pub(super) fn input_udp(
        &mut self,
        pair: Pair,
        (header, data): (Header, Bytes),
        (place, interface): (Place, u32),
        now: SimTime,
    ) {
        let Some(id) = self.best_match(self.holders(header.proto(), pair.0.port()), pair, interface) else {
            let counters = self.net.counters.udp_of(header.proto(), pair.0.is_ipv6());
            // "No socket. Drop packet silently, if checksum is wrong" (__udp4_lib_rcv).
            if header.damaged {
                counters.damaged += 1;
                return;
            }
            counters.no_port += 1;
            let body = Body::Icmp(Unreachable::Port, header.proto(), data);
            self.net.emit(Packet { src: pair.0, dst: pair.1, body, place }, now);
            return;
        };
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let Kind::Udp(udp) = &mut socket.kind else { return };
        let of = (header, data);
        let Some(data) = filtered_datagram(&mut socket.common, &mut self.net, pair, of, interface) else {
            return;
        };
        socket.common.has_come();
        let datagram = Datagram { src: pair.1, dst: pair.0, interface, header, at: now, data, peeked: false };
        if udp.push(datagram, socket.common.opts.rcvbuf) {
            socket.common.wake(ReadyFlags::READ);
        } else {
            self.net.counters.udp_of(header.proto(), pair.0.is_ipv6()).no_room += 1;
        }
        self.settle(id, now);
    }
}

/// How well a socket fits a packet that came in by an interface (`compute_score`): `None` if not at all.
fn score(c: &Common, pair: Pair, interface: u32) -> Option<u32> {
    let (local, peer) = pair;
    if !c.takes_from(interface) {
        return None;
    }
    let mut points = match address_points(c, local) {
        0 => return None,
        points => 2 * points + u32::from(c.opts.device != 0),
    };
    if let Some(own_peer) = c.peer {
        if own_peer != peer {
            return None;
        }
        points += 16;
    }
    Some(points)
}

/// 4 for the exact address, 2 for a wildcard of the packet's family, 1 for `::` that takes IPv4 as well.
fn address_points(c: &Common, local: SocketAddr) -> u32 {
    let bound: IpAddr = c.local.ip();
    if bound == local.ip() {
        4
    } else if !bound.is_unspecified() {
        0
    } else if bound.is_ipv4() == local.is_ipv4() {
        2
    } else if bound.is_ipv6() && !c.opts.v6only {
        1
    } else {
        0
    }
}

//! Sending: what goes out when (windows, Nagle, cork), acknowledgements and the offered window.

use super::{Conn, RCV_WSCALE, announced_mss};
use crate::seq::{after, before, later};
use crate::socket::{Common, Cx};
use crate::stack::dress;
use crate::{Body, Bytes, Flags, Packet, Segment, TcpState};

impl Conn {
    /// Stream offset of sequence number `seq`; a FIN counts as the end of the data.
    pub(super) fn offset_of(&self, seq: u32) -> u64 {
        let una = if self.snd_una == self.iss { self.iss.wrapping_add(1) } else { self.snd_una };
        if before(seq, una) {
            return self.snd.start();
        }
        (self.snd.start() + u64::from(seq.wrapping_sub(una))).min(self.snd.end())
    }

    /// Data or the FIN waits to be sent for the first time.
    pub(super) fn has_unsent(&self) -> bool {
        self.offset_of(self.snd_nxt) < self.snd.end() || (self.fin_pending && !self.fin_sent)
    }

    /// Bytes in flight; after a timeout only what was sent again counts.
    fn in_flight(&self) -> u32 {
        self.resend_nxt.wrapping_sub(self.snd_una)
    }

    /// Segment size for sending: never more than half of the largest window seen (`tcp_bound_to_half_wnd`).
    fn send_mss(&self) -> u32 {
        let half = if self.max_window > 536 { self.max_window / 2 } else { self.max_window };
        if half > 0 { self.snd_mss.min(half.max(48)) } else { self.snd_mss }
    }

    /// Sends what may be sent.
    pub(super) fn push(&mut self, cx: &mut Cx<'_>) {
        self.push_corked(false, cx);
    }

    /// Sends what may be sent; with `more` (MSG_MORE) a partial segment is held back.
    pub(super) fn push_corked(&mut self, more: bool, cx: &mut Cx<'_>) {
        use TcpState::*;
        if !matches!(self.state, Established | CloseWait | FinWait1 | Closing | LastAck) {
            return;
        }
        while before(self.resend_nxt, self.snd_nxt) && self.in_flight() < self.congestion.limit() {
            self.resend_one(cx);
        }
        if self.resend_nxt == self.snd_nxt {
            self.restart_after_idle(cx);
            while self.send_next(more, cx) {}
        }
        if self.snd_una != self.snd_nxt {
            self.probe_at = None;
            if self.rtx_at.is_none() {
                self.arm_rtx(cx);
            }
        }
        self.arm_probe(cx);
    }

    fn restart_after_idle(&mut self, cx: &Cx<'_>) {
        if self.snd_una == self.snd_nxt && self.has_unsent() {
            self.congestion.on_idle(cx.now.since(self.last_out), self.rtt.rto());
        }
    }

    /// Sends the next new segment if windows and Nagle allow it.
    fn send_next(&mut self, more: bool, cx: &mut Cx<'_>) -> bool {
        if !self.has_unsent() || self.in_flight() >= self.congestion.limit() {
            return false;
        }
        let left = self.snd.end() - self.offset_of(self.snd_nxt);
        let mss = u64::from(self.send_mss());
        let len = left.min(mss) as u32;
        // A segment goes out whole or not at all: a window too small for it is left to the probe timer.
        let window = self.window_left();
        if len > window || window == 0 {
            return false;
        }
        let last = len as u64 == left;
        let fin = last && self.fin_pending && len < window;
        if u64::from(len) < mss && !self.fin_pending && self.nagle_holds(more, cx.c) {
            return false;
        }
        self.send_new(len, fin, cx);
        true
    }

    fn window_left(&self) -> u32 {
        let end = self.snd_una.wrapping_add(self.snd_wnd);
        if after(end, self.snd_nxt) { end.wrapping_sub(self.snd_nxt) } else { 0 }
    }

    /// `tcp_nagle_check` for a partial segment: a cork holds it; so does an unacknowledged small segment before it.
    fn nagle_holds(&self, more: bool, c: &Common) -> bool {
        let small_out = after(self.snd_sml, self.snd_una) && !after(self.snd_sml, self.snd_nxt);
        // "Don't use the nagle rule for urgent data" (tcp_nagle_test).
        if self.in_urgent_mode() {
            return false;
        }
        more || c.opts.cork || (!c.opts.nodelay && self.snd_una != self.snd_nxt && small_out)
    }

    fn send_new(&mut self, len: u32, fin: bool, cx: &mut Cx<'_>) {
        let from = self.offset_of(self.snd_nxt);
        let payload = self.snd.slice(from, len as usize);
        let seq = self.snd_nxt;
        self.snd_nxt = seq.wrapping_add(len + u32::from(fin));
        self.resend_nxt = self.snd_nxt;
        self.fin_sent |= fin;
        if len < self.send_mss() {
            self.snd_sml = self.snd_nxt;
        }
        self.rtt.start(self.snd_nxt, cx.now);
        let last = from + u64::from(len) == self.snd.end();
        self.transmit_data(seq, payload, last, fin, cx);
    }

    /// Sends as much as the window takes, past Nagle and cork (`tcp_write_wakeup`). False: the window is closed.
    pub(super) fn send_what_fits(&mut self, cx: &mut Cx<'_>) -> bool {
        let window = self.window_left();
        if window == 0 {
            return false;
        }
        let left = self.snd.end() - self.offset_of(self.snd_nxt);
        let len = left.min(u64::from(self.send_mss())).min(u64::from(window)) as u32;
        let fin = u64::from(len) == left && self.fin_pending && len < window;
        if len > 0 || fin {
            self.send_new(len, fin, cx);
            self.arm_rtx(cx);
        }
        self.push(cx);
        true
    }

    /// Retransmits the segment at `resend_nxt` and moves on.
    pub(super) fn resend_one(&mut self, cx: &mut Cx<'_>) {
        let end = self.send_again(self.resend_nxt, cx);
        self.resend_nxt = later(self.resend_nxt, end);
    }

    /// Retransmits the first unacknowledged segment (fast retransmit).
    pub(super) fn resend_first(&mut self, cx: &mut Cx<'_>) {
        cx.net.counters.tcp.fast_retransmits += 1;
        let end = self.send_again(self.snd_una, cx);
        if before(self.resend_nxt, self.snd_nxt) {
            self.resend_nxt = later(self.resend_nxt, end);
        }
    }

    fn send_again(&mut self, seq: u32, cx: &mut Cx<'_>) -> u32 {
        let from = self.offset_of(seq);
        let sent = self.offset_of(self.snd_nxt);
        let len = (sent - from).min(u64::from(self.send_mss())) as u32;
        let fin = self.fin_sent && from + u64::from(len) == self.snd.end();
        self.rtt.spoil();
        self.total_retrans += 1;
        cx.net.counters.tcp.resent += 1;
        let payload = self.snd.slice(from, len as usize);
        self.transmit_data(seq, payload, true, fin, cx);
        seq.wrapping_add(len + u32::from(fin))
    }

    fn transmit_data(&mut self, seq: u32, payload: Bytes, push: bool, fin: bool, cx: &mut Cx<'_>) {
        if !payload.is_empty() {
            self.last_out = cx.now;
            // `tcp_event_data_sent`: data soon after data received is a reply; acknowledgements may ride on data.
            let soon = |at: bloodhound_abi::SimTime| cx.now.since(at) < cx.net.config.delayed_ack;
            self.pingpong |= self.last_data_in.is_some_and(soon);
        }
        let mut flags = Flags::ACK;
        flags.set(Flags::PSH, push && !payload.is_empty());
        flags.set(Flags::FIN, fin);
        self.transmit(seq, flags, payload, cx);
    }

    /// Sends the SYN, or the SYN with an acknowledgement when the peer's was seen.
    pub(super) fn send_syn(&mut self, cx: &mut Cx<'_>) {
        let answering = self.state == TcpState::SynRecv;
        let mut flags = Flags::SYN;
        flags.set(Flags::ACK, answering);
        let mss = announced_mss(cx.c, cx.net.mss_for(self.peer.ip()));
        let scaled = !answering || self.snd_wscale.is_some();
        let ack = if answering { self.rcv_nxt } else { 0 };
        let seg = Segment {
            mss: Some(mss),
            wscale: scaled.then_some(RCV_WSCALE),
            ..Segment::control(self.iss, ack, flags, self.rcv_wnd.min(65535) as u16)
        };
        self.emit(seg, cx);
    }

    /// Acknowledges now.
    pub(super) fn send_ack(&mut self, cx: &mut Cx<'_>) {
        self.transmit(self.snd_nxt, Flags::ACK, Bytes::default(), cx);
    }

    /// A segment before the window, which the peer has to answer: zero-window and keep-alive probe.
    pub(super) fn send_probe(&mut self, cx: &mut Cx<'_>) {
        self.transmit(self.snd_una.wrapping_sub(1), Flags::ACK, Bytes::default(), cx);
    }

    pub(super) fn send_reset(&mut self, cx: &mut Cx<'_>) {
        self.transmit(self.snd_nxt, Flags::RST | Flags::ACK, Bytes::default(), cx);
    }

    fn transmit(&mut self, seq: u32, flags: Flags, payload: Bytes, cx: &mut Cx<'_>) {
        let window = self.offer_window(cx.c);
        self.ack_owed = false;
        self.ack_pushed = 0;
        self.delack_at = None;
        self.quick = self.quick.saturating_sub(1);
        let ack = self.rcv_nxt;
        let urgent = if flags.contains(Flags::RST) { None } else { self.urgent_pointer(self.offset_of(seq)) };
        let flags = if urgent.is_some() { flags | Flags::URG } else { flags };
        let urgent = urgent.unwrap_or(0);
        let seg = Segment { urgent, payload, ..Segment::control(seq, ack, flags, window) };
        self.emit(seg, cx);
    }

    fn emit(&mut self, mut seg: Segment, cx: &mut Cx<'_>) {
        dress(cx.c, &mut seg, self.peer.ip());
        let place = self.place(&seg);
        let packet = Packet { src: self.local, dst: self.peer, body: Body::Tcp(seg), place };
        cx.net.emit_by(packet, cx.c.opts.device, cx.now);
    }

    fn place(&mut self, seg: &Segment) -> bloodhound_decisions::Place {
        self.names.place(seg, self.iss, self.irs, self.snd_una, self.snd_nxt)
    }

    /// Answers a segment that belongs to no connection with a reset.
    pub(super) fn send_reset_for(&mut self, seg: &Segment, cx: &mut Cx<'_>) {
        let place = self.place(&Segment::control(seg.ack, 0, Flags::RST, 0));
        cx.net.emit_reset_for((self.peer, self.local), seg, place, cx.now);
    }

    /// What is left of the window offered last.
    pub(super) fn receive_window(&self) -> u32 {
        let end = self.rcv_wup.wrapping_add(self.rcv_wnd);
        if after(end, self.rcv_nxt) { end.wrapping_sub(self.rcv_nxt) } else { 0 }
    }

    /// The window that could be offered (`__tcp_select_window`): half of the buffer less what is unread; nothing
    /// rather than a silly little (RFC 1122, 4.2.3.3).
    pub(super) fn free_window(&self, c: &Common) -> u32 {
        let full = c.opts.rcvbuf / 2;
        let mut free = full.saturating_sub(self.rcv.len() as u32);
        if free < full / 2 {
            free = free >> self.rcv_wscale << self.rcv_wscale;
            if free < full / 16 || free < self.rcv_mss.min(full) {
                return 0;
            }
        }
        free
    }

    /// Decides the window to offer and notes it; "never shrink the offered window". Returns the header field.
    fn offer_window(&mut self, c: &Common) -> u16 {
        let unit = 1u32 << self.rcv_wscale;
        let current = self.receive_window();
        let free = self.free_window(c).next_multiple_of(unit);
        let window = if free < current { current.next_multiple_of(unit) } else { free };
        let field = (window >> self.rcv_wscale).min(65535);
        self.rcv_wnd = field << self.rcv_wscale;
        self.rcv_wup = self.rcv_nxt;
        field as u16
    }
}

//! Receiving: acceptance tests (RFC 9293, 3.10.7 and RFC 5961), acknowledgements, data, FIN, and when to
//! acknowledge (`tcp_ack_snd_check` of Linux).

use super::Conn;
use crate::seq::{after, before, later};
use crate::socket::Cx;
use crate::{Flags, ReadyFlags, Segment, TcpState, Tell};
use bloodhound_abi::time::MILLIS;

impl Conn {
    /// A segment for this connection arrives.
    pub(crate) fn on_segment(&mut self, seg: &Segment, cx: &mut Cx<'_>) {
        if self.state == TcpState::SynSent {
            self.on_syn_sent(seg, cx);
            return;
        }
        if !self.validate(seg, cx) || !self.on_ack(seg, cx) {
            return;
        }
        if matches!(self.state, TcpState::Close | TcpState::TimeWait) {
            return;
        }
        if self.is_too_late(seg, cx) {
            self.send_reset(cx);
            self.reset(cx);
            return;
        }
        self.on_urgent(seg, cx);
        let at_once = self.on_data(seg, cx);
        self.on_fin(cx);
        if matches!(self.state, TcpState::Close | TcpState::TimeWait) {
            return;
        }
        self.push(cx);
        self.acknowledge(at_once, cx);
    }

    /// SYN-SENT (RFC 9293, 3.10.7.3).
    fn on_syn_sent(&mut self, seg: &Segment, cx: &mut Cx<'_>) {
        let has = |flag| seg.flags.contains(flag);
        if has(Flags::ACK) && seg.ack != self.snd_nxt {
            // Something older than this connection. Linux retries its SYN soon: the reset clears the other side.
            if self.retransmits == 0 {
                self.rtx_at = Some(cx.now.after(8 * MILLIS));
            }
            self.send_reset_for(seg, cx);
        } else if has(Flags::RST) {
            if has(Flags::ACK) {
                self.reset(cx);
            }
        } else if has(Flags::SYN) && has(Flags::ACK) {
            self.take_syn(seg.seq, seg.mss, seg.wscale);
            self.rtt.acknowledged(seg.ack, cx.now, &cx.net.config);
            self.snd_una = seg.ack;
            self.establish(seg, cx);
            self.send_ack(cx);
            cx.c.wake_all();
            cx.c.tell(Tell::OUT);
        } else if has(Flags::SYN) {
            // Simultaneous open.
            self.state = TcpState::SynRecv;
            self.take_syn(seg.seq, seg.mss, seg.wscale);
            self.send_syn(cx);
        }
    }

    /// The tests before a segment counts. False: it was dealt with.
    fn validate(&mut self, seg: &Segment, cx: &mut Cx<'_>) -> bool {
        let has = |flag| seg.flags.contains(flag);
        let window_end = self.rcv_nxt.wrapping_add(self.receive_window());
        let in_window = !before(seg.seq_end(), self.rcv_wup) && !after(seg.seq, window_end);
        if !in_window {
            if !has(Flags::RST) && self.answers_stray(seg, cx) {
                self.enter_quick(cx);
                self.send_ack(cx);
            }
            return false;
        }
        if has(Flags::RST) {
            // RFC 5961: only an exact reset counts; else the acknowledgement makes a true peer send an exact one.
            if seg.seq == self.rcv_nxt {
                self.reset(cx);
            } else if self.answers_stray(seg, cx) {
                self.send_ack(cx);
            }
            return false;
        }
        if has(Flags::SYN) {
            let completes = self.state == TcpState::SynRecv
                && has(Flags::ACK)
                && seg.seq_end() == self.rcv_nxt
                && seg.ack == self.snd_nxt;
            if !completes && self.answers_stray(seg, cx) {
                self.send_ack(cx);
            }
            return completes;
        }
        has(Flags::ACK)
    }

    /// Whether to answer a segment that does not fit (`tcp_oow_rate_limited`): one with data always.
    fn answers_stray(&mut self, seg: &Segment, cx: &Cx<'_>) -> bool {
        if !seg.payload.is_empty() && !seg.flags.contains(Flags::SYN) {
            return true;
        }
        let limit = cx.net.config.invalid_ratelimit;
        if self.last_stray.is_some_and(|at| cx.now.since(at) < limit) {
            return false;
        }
        self.last_stray = Some(cx.now);
        true
    }

    /// Takes the acknowledgement and the window. False: the segment is to be dropped.
    fn on_ack(&mut self, seg: &Segment, cx: &mut Cx<'_>) -> bool {
        if self.state == TcpState::SynRecv {
            if seg.ack != self.snd_nxt {
                self.send_reset_for(seg, cx);
                return false;
            }
            self.rtt.acknowledged(seg.ack, cx.now, &cx.net.config);
            self.snd_una = seg.ack;
            self.establish(seg, cx);
            cx.c.wake_all();
            cx.c.tell(Tell::OUT);
            return true;
        }
        if before(seg.ack, self.snd_una) {
            if before(seg.ack, self.snd_una.wrapping_sub(self.max_window)) {
                if self.answers_stray(seg, cx) {
                    self.send_ack(cx);
                }
                return false;
            }
            return true;
        }
        if after(seg.ack, self.snd_nxt) {
            return false;
        }
        self.last_in = cx.now;
        self.probes = 0;
        self.keep_probes = 0;
        let window = u32::from(seg.window) << self.snd_wscale.unwrap_or(0);
        let same_window = window == self.snd_wnd;
        if seg.ack != self.snd_una {
            self.set_window(window, seg.seq);
            self.on_new_ack(seg.ack, cx);
            return true;
        }
        if after(seg.seq, self.snd_wl1) || (seg.seq == self.snd_wl1 && window > self.snd_wnd) {
            self.set_window(window, seg.seq);
        }
        if seg.seq_len() == 0 && same_window && self.snd_una != self.snd_nxt {
            let retransmit = self.congestion.on_duplicate(self.snd_una, self.snd_nxt);
            if retransmit {
                self.resend_first(cx);
                self.arm_rtx(cx);
            }
        }
        self.check_probe();
        true
    }

    fn set_window(&mut self, window: u32, seq: u32) {
        self.snd_wnd = window;
        self.max_window = self.max_window.max(window);
        self.snd_wl1 = seq;
    }

    /// The window opened: no more probes (`tcp_ack_probe`).
    fn check_probe(&mut self) {
        if self.probe_at.is_some() && self.snd_wnd > 0 && self.snd_una == self.snd_nxt {
            self.probe_at = None;
            self.backoff = 0;
        }
    }

    fn on_new_ack(&mut self, ack: u32, cx: &mut Cx<'_>) {
        let acked = ack.wrapping_sub(self.snd_una);
        let flight = self.snd_nxt.wrapping_sub(self.snd_una);
        let writable = self.is_writable(cx.c);
        self.rtt.acknowledged(ack, cx.now, &cx.net.config);
        self.snd.acknowledge(self.offset_of(ack));
        self.snd_una = ack;
        self.resend_nxt = later(self.resend_nxt, ack);
        self.retransmits = 0;
        self.backoff = 0;
        if self.congestion.on_ack(acked, ack, flight) && self.snd_una != self.snd_nxt {
            self.resend_first(cx);
        }
        self.arm_rtx(cx);
        self.check_probe();
        self.grow_sndbuf(cx);
        if (!writable || self.no_space) && self.is_writable(cx.c) {
            self.no_space = false;
            cx.c.wake(ReadyFlags::WRITE);
        }
        if self.fin_sent && ack == self.snd_nxt {
            self.on_fin_acked(cx);
        }
    }

    fn on_fin_acked(&mut self, cx: &mut Cx<'_>) {
        match self.state {
            TcpState::FinWait1 => {
                self.state = TcpState::FinWait2;
                cx.c.wake_all();
                if cx.c.orphan {
                    self.orphaned(cx);
                }
            }
            TcpState::Closing => {
                self.state = TcpState::TimeWait;
                cx.c.wake_all();
            }
            TcpState::LastAck => self.finish(cx),
            _ => {}
        }
    }

    /// Data for a socket that nobody reads any more: RFC 1122, 4.2.2.13 says that a reset must answer it.
    fn is_too_late(&self, seg: &Segment, cx: &Cx<'_>) -> bool {
        let data_end = seg.seq.wrapping_add(seg.payload.len() as u32);
        matches!(self.state, TcpState::FinWait1 | TcpState::FinWait2)
            && cx.c.shut_read
            && !seg.payload.is_empty()
            && after(data_end, self.rcv_nxt)
    }

    /// Takes data and notes a FIN. True: acknowledge at once.
    fn on_data(&mut self, seg: &Segment, cx: &mut Cx<'_>) -> bool {
        if cx.c.done || (seg.payload.is_empty() && !seg.flags.contains(Flags::FIN)) {
            // After the peer's FIN there is no data; a FIN again means that our acknowledgement was lost.
            return seg.seq_len() > 0;
        }
        let data_end = seg.seq.wrapping_add(seg.payload.len() as u32);
        let window_end = self.rcv_nxt.wrapping_add(self.receive_window());
        let excess = if after(data_end, window_end) { data_end.wrapping_sub(window_end) } else { 0 };
        if seg.flags.contains(Flags::FIN) && excess == 0 && !before(data_end, self.rcv_nxt) {
            self.fin_at = Some(data_end);
        }
        if seg.payload.is_empty() {
            return self.fin_at != Some(self.rcv_nxt);
        }
        let kept = seg.payload.len().saturating_sub(excess as usize);
        let skip =
            if before(seg.seq, self.rcv_nxt) { self.rcv_nxt.wrapping_sub(seg.seq) as usize } else { 0 };
        if skip >= kept {
            self.enter_quick(cx);
            return true;
        }
        let ahead = u64::from(seg.seq.wrapping_add(skip as u32).wrapping_sub(self.rcv_nxt));
        let had_holes = self.rcv.has_holes();
        let grown = self.rcv.insert(self.rcv.next() + ahead, seg.payload.slice(skip..kept), cx.now);
        self.rcv_nxt = self.rcv_nxt.wrapping_add(grown as u32);
        self.note_data(seg.payload.len() as u32, cx);
        if grown > 0 && self.rcv.len() >= self.read_target(cx.c) {
            cx.c.wake(ReadyFlags::READ);
        }
        had_holes || self.rcv.has_holes() || excess > 0
    }

    /// Bookkeeping for delayed acknowledgements (`tcp_event_data_recv`, `tcp_measure_rcv_mss`).
    fn note_data(&mut self, len: u32, cx: &Cx<'_>) {
        self.ack_owed = true;
        if len >= self.rcv_mss {
            self.rcv_mss = len.min(u32::from(cx.net.mss_for(self.peer.ip())));
        } else {
            self.ack_pushed = (self.ack_pushed + 1).min(2);
        }
        // The first data of a connection, and data after a long silence, find a sender in slow start.
        if self.last_data_in.is_none_or(|at| cx.now.since(at) > self.rtt.rto()) {
            self.add_quick(cx);
        }
        self.last_data_in = Some(cx.now);
        self.last_in = cx.now;
    }

    fn add_quick(&mut self, cx: &Cx<'_>) {
        let count = (self.rcv_wnd / (2 * self.rcv_mss)).max(2).min(cx.net.config.quick_acks);
        self.quick = self.quick.max(count);
    }

    /// `tcp_enter_quickack_mode`.
    pub(super) fn enter_quick(&mut self, cx: &Cx<'_>) {
        self.add_quick(cx);
        self.pingpong = false;
        self.ack_owed = true;
    }

    /// The peer's FIN, once all data before it is there (`tcp_fin`).
    fn on_fin(&mut self, cx: &mut Cx<'_>) {
        if self.fin_at != Some(self.rcv_nxt) || cx.c.done {
            return;
        }
        self.rcv_nxt = self.rcv_nxt.wrapping_add(1);
        self.ack_owed = true;
        self.rcv.drop_later();
        cx.c.shut_read = true;
        cx.c.done = true;
        match self.state {
            TcpState::Established => {
                self.state = TcpState::CloseWait;
                self.pingpong = true;
            }
            TcpState::FinWait1 => {
                self.send_ack(cx);
                self.state = TcpState::Closing;
            }
            TcpState::FinWait2 => {
                self.send_ack(cx);
                self.state = TcpState::TimeWait;
            }
            _ => {}
        }
        cx.c.wake_all();
        // "Do not send POLL_HUP for half duplex close" (tcp_fin).
        cx.c.tell(if cx.c.shut_write { Tell::HUP } else { Tell::IN });
    }

    /// Acknowledges at once or later (`__tcp_ack_snd_check`).
    fn acknowledge(&mut self, at_once: bool, cx: &mut Cx<'_>) {
        if !self.ack_owed && !at_once {
            return;
        }
        let unacked = self.rcv_nxt.wrapping_sub(self.rcv_wup);
        let drained = self.rcv.len() < self.read_target(cx.c);
        let two_segments = unacked > self.rcv_mss && (drained || self.free_window(cx.c) >= self.rcv_wnd);
        if at_once || two_segments || self.is_quick() {
            self.send_ack(cx);
        } else if self.delack_at.is_none() {
            self.delack_at = Some(cx.now.after(cx.net.config.delayed_ack));
        }
    }

    fn is_quick(&self) -> bool {
        self.quick > 0 && !self.pingpong
    }

    /// The user read `count` bytes: an acknowledgement or a window update may be due (`tcp_cleanup_rbuf`).
    pub(super) fn after_read(&mut self, count: usize, cx: &mut Cx<'_>) {
        if matches!(self.state, TcpState::Close | TcpState::TimeWait) {
            return;
        }
        self.grow_rcvbuf(count, cx);
        let empty = self.rcv.len() == 0 && count > 0;
        let pushed = self.ack_pushed >= 2 || (self.ack_pushed == 1 && !self.pingpong);
        let unacked = self.rcv_nxt.wrapping_sub(self.rcv_wup);
        if self.ack_owed && (unacked > self.rcv_mss || (empty && pushed)) {
            self.send_ack(cx);
            return;
        }
        let current = self.receive_window();
        if !cx.c.shut_read && current.saturating_mul(2) <= cx.c.opts.rcvbuf / 2 {
            let free = self.free_window(cx.c);
            if free > 0 && free >= current.saturating_mul(2) {
                self.send_ack(cx);
            }
        }
    }

    /// TCP_QUICKACK was set or cleared.
    pub(crate) fn set_quickack(&mut self, on: bool, cx: &mut Cx<'_>) {
        self.pingpong = !on;
        let open = matches!(self.state, TcpState::Established | TcpState::CloseWait);
        if on && open && self.ack_owed {
            self.send_ack(cx);
        }
    }

    /// TCP_NODELAY was set or TCP_CORK cleared: what Nagle or the cork held back goes out.
    pub(crate) fn flush(&mut self, cx: &mut Cx<'_>) {
        self.push(cx);
    }
}

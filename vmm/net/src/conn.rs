//! [`Conn`]: the TCP state machine of one connection (RFC 9293), with the behaviour of Linux 6.1. This module holds
//! the data, opening and closing; `input` takes segments, `output` sends them, `timer` fires timeouts, `congestion`
//! keeps the round-trip time and the congestion window, `urgent` has urgent data.
//!
//! A handler gets a [`Cx`]: the socket's common part, the way out and the time. It never touches other sockets; the
//! stack looks at the state afterwards and moves the connection to TIME_WAIT or away.

mod congestion;
mod input;
mod output;
mod timer;
mod urgent;

use crate::buffer::{RecvBuffer, SendBuffer};
use crate::naming::{Opened, Segments};
use crate::socket::{Association, Common, Cx, Request};
use crate::stack::is_signed;
use crate::wire::SIGNATURE;
use crate::{Flags, Segment, TcpInfo, TcpState, Tell};
use bloodhound_abi::{Errno, SimTime};
use bloodhound_decisions::Place;
use congestion::{Congestion, Rtt};
use std::net::SocketAddr;
use urgent::Urgent;

/// TCP_MSS_DEFAULT: segment size towards a peer that announces none.
const MSS_DEFAULT: u16 = 536;
/// The window scale that Linux chooses for tcp_rmem[2] = 6 MB.
pub(crate) const RCV_WSCALE: u8 = 7;

/// One TCP connection. Sequence numbers wrap; `snd` and `rcv` count stream bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Conn {
    pub(crate) state: TcpState,
    local: SocketAddr,
    peer: SocketAddr,
    names: Segments,

    /// Data from `snd_una` on.
    pub(crate) snd: SendBuffer,
    iss: u32,
    /// Oldest unacknowledged sequence number.
    snd_una: u32,
    /// Next sequence number to send for the first time.
    pub(crate) snd_nxt: u32,
    /// After a timeout: what of `snd_una..snd_nxt` is sent again next. Equal to `snd_nxt` otherwise.
    resend_nxt: u32,
    /// Window that the peer offers, from `snd_una` on, and the largest one ever.
    snd_wnd: u32,
    max_window: u32,
    /// Sequence number of the segment that last updated the window.
    snd_wl1: u32,
    /// End of the last small segment sent (Minshall's variant of Nagle's algorithm).
    snd_sml: u32,
    /// The peer's segment size and window shift.
    snd_mss: u32,
    snd_wscale: Option<u8>,
    /// A FIN follows the data.
    fin_pending: bool,
    fin_sent: bool,
    /// End of the urgent data that was written last.
    urgent_end: Option<u64>,
    /// A send took less than there was room for: the next acknowledgement tells of room (SOCK_NOSPACE).
    no_space: bool,
    /// Bytes that were not acknowledged when the connection failed.
    lost: u32,

    /// Received data.
    pub(crate) rcv: RecvBuffer,
    irs: u32,
    pub(crate) rcv_nxt: u32,
    /// `rcv_nxt` when the last acknowledgement was sent, and the window in it.
    rcv_wup: u32,
    rcv_wnd: u32,
    rcv_wscale: u8,
    /// Guess of the peer's segment size.
    rcv_mss: u32,
    /// Growth of the receive buffer: most bytes read in a round-trip time, and what was read since when.
    rcv_space: u32,
    rcv_copied: u32,
    rcv_since: SimTime,
    /// Where the peer's FIN stands, when it came before the data in front of it.
    fin_at: Option<u32>,
    urgent: Option<Urgent>,

    rtt: Rtt,
    congestion: Congestion,
    total_retrans: u32,

    /// Retransmission timer.
    rtx_at: Option<SimTime>,
    /// Timeouts in a row, the exponent of the backoff, and the time of the first one.
    retransmits: u32,
    backoff: u32,
    retrans_since: SimTime,
    /// Zero-window probe timer.
    probe_at: Option<SimTime>,
    probes: u32,
    probing_since: SimTime,
    /// Delayed acknowledgement.
    delack_at: Option<SimTime>,
    /// An acknowledgement is owed; and it was caused by a small (pushed) segment, once or more often.
    ack_owed: bool,
    ack_pushed: u8,
    /// Acknowledgements still to be sent at once.
    quick: u32,
    /// Interactive session: acknowledgements wait for data to ride on.
    pingpong: bool,
    /// Keep-alive timer, or the end of an orphan in FIN_WAIT2.
    keep_at: Option<SimTime>,
    keep_probes: u32,
    /// When a segment outside of the window was last answered.
    last_stray: Option<SimTime>,
    /// When data and when anything was received last, and when data was sent last.
    last_data_in: Option<SimTime>,
    last_in: SimTime,
    last_out: SimTime,
}

impl Conn {
    fn new(local: SocketAddr, peer: SocketAddr, iss: u32, opened: Opened, cx: &Cx<'_>) -> Conn {
        let config = &cx.net.config;
        let mss = u32::from(announced_mss(cx.c, cx.net.mss_for(peer.ip())));
        let rcv_wnd = Conn::initial_window(cx.c, mss);
        Conn {
            state: TcpState::SynSent,
            local,
            peer,
            names: Segments::new(opened),
            snd: SendBuffer::default(),
            iss,
            snd_una: iss,
            snd_nxt: iss,
            resend_nxt: iss,
            snd_wnd: 0,
            max_window: 0,
            snd_wl1: 0,
            snd_sml: iss,
            // "remaining -= TCPOLEN_MD5SIG_ALIGNED" (tcp_established_options).
            snd_mss: if is_signed(cx.c, peer.ip()) { mss.saturating_sub(SIGNATURE as u32) } else { mss },
            snd_wscale: None,
            fin_pending: false,
            fin_sent: false,
            urgent_end: None,
            no_space: false,
            lost: 0,
            rcv: RecvBuffer::default(),
            irs: 0,
            rcv_nxt: 0,
            rcv_wup: 0,
            rcv_wnd,
            rcv_wscale: 0,
            rcv_mss: u32::from(MSS_DEFAULT).min(mss).min((rcv_wnd / 2).max(88)),
            rcv_space: rcv_wnd.min(config.initial_cwnd * mss),
            rcv_copied: 0,
            rcv_since: cx.now,
            fin_at: None,
            urgent: None,
            rtt: Rtt::new(config),
            congestion: Congestion::new(config.initial_cwnd, mss),
            total_retrans: 0,
            rtx_at: None,
            retransmits: 0,
            backoff: 0,
            retrans_since: cx.now,
            probe_at: None,
            probes: 0,
            probing_since: cx.now,
            delack_at: None,
            ack_owed: false,
            ack_pushed: 0,
            quick: 0,
            pingpong: false,
            keep_at: None,
            keep_probes: 0,
            last_stray: None,
            last_data_in: None,
            last_in: cx.now,
            last_out: cx.now,
        }
    }

    /// The window offered on a SYN: half of the buffer, in whole segments (`tcp_select_initial_window`).
    pub(crate) fn initial_window(c: &Common, mss: u32) -> u32 {
        let full = (c.opts.rcvbuf / 2).min(65535);
        if full > mss { full / mss * mss } else { full }
    }

    /// The window field of a last acknowledgement, for TIME_WAIT.
    pub(crate) fn last_window(&self) -> u16 {
        (self.receive_window() >> self.rcv_wscale).min(65535) as u16
    }

    /// The place of its answers in TIME_WAIT; no other segment counts from so far up.
    pub(crate) fn place_in_time_wait(&self) -> Place {
        let (offset, ack) = (self.snd_nxt.wrapping_sub(self.iss), self.rcv_nxt.wrapping_sub(self.irs));
        self.names.opened.place(offset, ack, 1 << 31)
    }

    /// TIME_WAIT took the connection over: the socket is closed.
    pub(crate) fn enter_close(&mut self, cx: &mut Cx<'_>) {
        self.finish(cx);
    }

    /// An active open: sends the SYN.
    pub(crate) fn open(local: SocketAddr, peer: SocketAddr, iss: u32, cx: &mut Cx<'_>) -> Conn {
        let mut conn = Conn::new(local, peer, iss, cx.c.opened, cx);
        conn.snd_nxt = iss.wrapping_add(1);
        conn.resend_nxt = conn.snd_nxt;
        conn.snd_sml = conn.snd_nxt;
        conn.send_syn(cx);
        conn.rtt.start(conn.snd_nxt, cx.now);
        conn.arm_rtx(cx);
        conn
    }

    /// A passive open that is complete: `seg` is the acknowledgement of our SYN.
    pub(crate) fn accepted(
        pair: (SocketAddr, SocketAddr),
        request: &Request,
        seg: &Segment,
        cx: &mut Cx<'_>,
    ) -> Conn {
        let mut conn = Conn::new(pair.0, pair.1, request.iss, request.opened, cx);
        conn.snd_nxt = request.iss.wrapping_add(1);
        conn.resend_nxt = conn.snd_nxt;
        conn.snd_sml = conn.snd_nxt;
        conn.snd_una = conn.snd_nxt;
        conn.take_syn(request.irs, Some(request.mss), request.wscale);
        if request.timeouts == 0 {
            conn.rtt.measured(cx.now.since(request.sent), &cx.net.config);
        }
        conn.establish(seg, cx);
        conn
    }

    /// Learns from the peer's SYN.
    fn take_syn(&mut self, irs: u32, mss: Option<u16>, wscale: Option<u8>) {
        self.irs = irs;
        self.rcv_nxt = irs.wrapping_add(1);
        self.rcv_wup = self.rcv_nxt;
        self.snd_mss = self.snd_mss.min(u32::from(mss.unwrap_or(MSS_DEFAULT).max(48)));
        // RFC 7323: scaling is on only if both sides offered it, and a shift above 14 counts as 14.
        self.snd_wscale = wscale.map(|shift| shift.min(14));
        self.rcv_wscale = if wscale.is_some() { RCV_WSCALE } else { 0 };
    }

    /// Enters ESTABLISHED; `seg` acknowledged our SYN.
    fn establish(&mut self, seg: &Segment, cx: &mut Cx<'_>) {
        self.state = TcpState::Established;
        let shift = if seg.flags.contains(Flags::SYN) { 0 } else { self.snd_wscale.unwrap_or(0) };
        self.snd_wnd = u32::from(seg.window) << shift;
        self.max_window = self.snd_wnd;
        self.snd_wl1 = seg.seq;
        self.congestion = Congestion::new(cx.net.config.initial_cwnd, self.snd_mss);
        self.retransmits = 0;
        self.backoff = 0;
        self.rtx_at = None;
        self.last_in = cx.now;
        self.grow_sndbuf(cx);
        self.reset_keepalive(cx);
    }

    /// Linux's `tcp_sndbuf_expand`: room for twice the congestion window, counted in buffers of rounded size.
    fn grow_sndbuf(&mut self, cx: &mut Cx<'_>) {
        if cx.c.opts.sndbuf_locked {
            return;
        }
        let per_segment = (self.snd_mss + 320 + 320).next_power_of_two() + 256;
        let segments = (self.congestion.cwnd / self.snd_mss).max(cx.net.config.initial_cwnd);
        let wanted = u64::from(per_segment) * 2 * u64::from(segments);
        let limit = u64::from(cx.net.config.sndbuf_max);
        cx.c.opts.sndbuf = cx.c.opts.sndbuf.max(wanted.min(limit) as u32);
    }

    /// Linux's `tcp_rcv_space_adjust`: a program that reads more per round-trip time than ever gets a window of twice
    /// as much.
    fn grow_rcvbuf(&mut self, count: usize, cx: &mut Cx<'_>) {
        self.rcv_copied = self.rcv_copied.saturating_add(count as u32);
        if cx.now.since(self.rcv_since) < self.rtt.smoothed().max(1) {
            return;
        }
        let copied = std::mem::take(&mut self.rcv_copied);
        self.rcv_since = cx.now;
        if copied <= self.rcv_space {
            return;
        }
        self.rcv_space = copied;
        if !cx.c.opts.rcvbuf_locked {
            let window = u64::from(copied) * 2 + 16 * u64::from(cx.net.mss_for(self.peer.ip()));
            let wanted = (window * 2).min(u64::from(cx.net.config.rcvbuf_max)) as u32;
            cx.c.opts.rcvbuf = cx.c.opts.rcvbuf.max(wanted);
        }
    }

    /// The end: no more segments are sent or taken. What was received stays readable.
    fn finish(&mut self, cx: &mut Cx<'_>) {
        self.state = TcpState::Close;
        cx.c.shut_read = true;
        cx.c.shut_write = true;
        self.rtx_at = None;
        self.probe_at = None;
        self.delack_at = None;
        self.keep_at = None;
        self.ack_owed = false;
        self.rcv.drop_later();
        cx.c.wake_all();
    }

    /// The end by an error: what was not sent is lost.
    fn fail(&mut self, error: Errno, cx: &mut Cx<'_>) {
        cx.net.counters.tcp.failed(self.state);
        cx.c.error = Some(error);
        self.lost = self.snd.len() as u32;
        self.snd.clear();
        self.finish(cx);
        cx.c.tell(Tell::ERR);
    }

    /// Something between the two ends resets the connection, with a segment to each.
    pub(crate) fn reset_both(&mut self, cx: &mut Cx<'_>) {
        self.send_reset(cx);
        self.reset(cx);
    }

    /// A reset came in (`tcp_reset`).
    pub(crate) fn reset(&mut self, cx: &mut Cx<'_>) {
        let error = match self.state {
            TcpState::SynSent => Errno::ECONNREFUSED,
            TcpState::CloseWait => Errno::EPIPE,
            _ => Errno::ECONNRESET,
        };
        self.fail(error, cx);
    }

    /// ICMP unreachable: ends a handshake; an open connection only remembers it for its timeout.
    pub(crate) fn unreachable(&mut self, error: Errno, cx: &mut Cx<'_>) {
        match self.state {
            TcpState::SynSent | TcpState::SynRecv => self.fail(error, cx),
            _ => cx.c.soft_error = Some(error),
        }
    }

    /// Gives up after a timeout (`tcp_write_err`).
    fn time_out(&mut self, cx: &mut Cx<'_>) {
        let error = cx.c.soft_error.take().unwrap_or(Errno::ETIMEDOUT);
        cx.net.counters.tcp.aborted_on_timeout += 1;
        self.fail(error, cx);
    }

    /// Resets the peer and forgets the connection (`tcp_disconnect`, SO_LINGER 0, close with unread data).
    pub(crate) fn abort(&mut self, cx: &mut Cx<'_>) {
        let open = !matches!(self.state, TcpState::SynSent | TcpState::Close | TcpState::TimeWait);
        if open {
            self.send_reset(cx);
        }
        self.snd.clear();
        self.rcv.discard();
        self.finish(cx);
    }

    /// Our side has nothing more to send (`tcp_close_state` and `tcp_send_fin`).
    pub(crate) fn shutdown_write(&mut self, cx: &mut Cx<'_>) {
        self.state = match self.state {
            TcpState::Established | TcpState::SynRecv => TcpState::FinWait1,
            TcpState::CloseWait => TcpState::LastAck,
            _ => return,
        };
        self.fin_pending = true;
        self.push(cx);
    }

    /// close(2) of an open connection. Unread data resets the peer: RFC 2525, 2.17.
    pub(crate) fn close(&mut self, cx: &mut Cx<'_>) {
        cx.c.shut_read = true;
        cx.c.shut_write = true;
        let unread = self.rcv.discard() > 0;
        if self.state == TcpState::SynSent {
            self.finish(cx);
        } else if unread || cx.c.opts.linger == Some(0) {
            self.abort(cx);
        } else {
            self.shutdown_write(cx);
            self.orphaned(cx);
        }
    }

    /// An orphan in FIN_WAIT2 does not wait for ever for the peer's FIN.
    fn orphaned(&mut self, cx: &mut Cx<'_>) {
        if self.state != TcpState::FinWait2 {
            return;
        }
        match cx.c.opts.linger2 {
            i32::MIN..=-1 => self.abort(cx),
            0 => self.keep_at = Some(cx.now.after(cx.net.config.fin_timeout)),
            secs => self.keep_at = Some(cx.now.after(secs as u64 * bloodhound_abi::time::SECS)),
        }
    }

    /// Bytes that make the socket readable: SO_RCVLOWAT, but never more than fits.
    pub(crate) fn read_target(&self, c: &Common) -> usize {
        (c.opts.rcvlowat.min(c.opts.rcvbuf / 2) as usize).max(1)
    }

    /// `sk_stream_is_writeable`: a third of the buffer is free.
    pub(crate) fn is_writable(&self, c: &Common) -> bool {
        let (used, limit) = (self.snd.len(), c.opts.sndbuf as usize);
        used < limit && limit - used >= used / 2
    }

    /// send(2): takes what fits into the buffer. The last byte of it is `urgent` with MSG_OOB.
    pub(crate) fn write(
        &mut self,
        data: &[u8],
        (more, urgent): (bool, bool),
        cx: &mut Cx<'_>,
    ) -> Result<usize, Errno> {
        if matches!(self.state, TcpState::SynSent | TcpState::SynRecv) {
            return Err(cx.c.take_error().unwrap_or(Errno::EAGAIN));
        }
        if cx.c.error.is_some() || cx.c.shut_write {
            return Err(cx.c.take_error().unwrap_or(Errno::EPIPE));
        }
        let room = (cx.c.opts.sndbuf as usize).saturating_sub(self.snd.len());
        let count = room.min(data.len());
        if count == 0 && !data.is_empty() {
            return Err(Errno::EAGAIN);
        }
        self.snd.push(&data[..count]);
        if urgent && count == data.len() {
            self.mark_urgent();
        }
        self.push_corked(more && count == data.len(), cx);
        Ok(count)
    }

    /// How much a send that does not wait would take.
    pub(crate) fn room(&self, c: &Common) -> usize {
        let open = matches!(self.state, TcpState::Established | TcpState::CloseWait);
        let may = open && c.error.is_none() && !c.shut_write;
        if may { (c.opts.sndbuf as usize).saturating_sub(self.snd.len()) } else { 0 }
    }

    /// A send that does not wait has found no memory: "Make sure that whenever EAGAIN is returned, EPOLLOUT event can be generated later. When
    /// TCP receives ACK packets that make room, tcp_check_space() only calls tcp_new_space() if SOCK_NOSPACE is set"
    /// (`sk_stream_wait_memory`).
    pub(crate) fn lacks_space(&mut self) {
        self.no_space = true;
    }

    /// recv(2), in the order of checks of `tcp_recvmsg_locked`.
    pub(crate) fn read(&mut self, out: &mut [u8], peek: bool, cx: &mut Cx<'_>) -> Result<usize, Errno> {
        if !peek && !out.is_empty() {
            self.pass_mark(cx.c);
        }
        if self.next_piece(cx.c) > 0 || out.is_empty() {
            let count = self.read_stream(out, peek, cx.c);
            if count > 0 && !peek {
                self.after_read(count, cx);
            }
            return Ok(count);
        }
        if cx.c.done {
            return Ok(0);
        }
        match cx.c.take_error() {
            Some(error) => Err(error),
            None if cx.c.shut_read => Ok(0),
            None if self.state == TcpState::Close => Err(Errno::ENOTCONN),
            None => Err(Errno::EAGAIN),
        }
    }

    /// Ends a handshake for connect(2): the state it left behind.
    pub(crate) fn connect_result(&self, c: &mut Common) -> Result<(), Errno> {
        match self.state {
            TcpState::SynSent | TcpState::SynRecv => Err(Errno::EALREADY),
            TcpState::Close => Err(c.take_error().unwrap_or(Errno::ECONNABORTED)),
            _ => {
                c.association = Association::Connected;
                Ok(())
            }
        }
    }

    /// By how many bytes what was written is ahead of what is acknowledged, and of what was sent; nothing counts during a handshake. What a
    /// connection that has failed has lost counts on, and so does a SYN that was not answered.
    pub(crate) fn written_ahead(&self) -> [u32; 2] {
        if matches!(self.state, TcpState::SynSent | TcpState::SynRecv) {
            return [0; 2];
        }
        let lost = self.lost + u32::from(self.snd_una == self.iss);
        [self.snd.len() as u32 + lost, (self.snd.end() - self.offset_of(self.snd_nxt)) as u32]
    }

    /// The same when the socket gives the connection up, which puts the largest window between (`tcp_disconnect`).
    pub(crate) fn ahead(&self) -> [u32; 2] {
        let [unacked, unsent] = match self.state {
            TcpState::SynSent => [1, 0],
            _ => self.written_ahead(),
        };
        [unacked, unsent].map(|bytes| bytes.wrapping_add(self.max_window))
    }

    /// Whether data or the FIN still waits for its acknowledgement.
    pub(crate) fn is_lingering(&self) -> bool {
        matches!(self.state, TcpState::FinWait1 | TcpState::Closing | TcpState::LastAck)
    }

    /// TCP_INFO.
    pub(crate) fn info(&self, config: &crate::Config) -> TcpInfo {
        let segments = |bytes: u32| bytes.div_ceil(self.snd_mss);
        TcpInfo {
            state: self.state,
            retransmits: self.retransmits,
            probes: self.probes.max(self.keep_probes),
            rto: self.backed_off(config),
            rtt: self.rtt.smoothed(),
            rttvar: self.rtt.deviation(),
            snd_mss: self.snd_mss,
            rcv_mss: self.rcv_mss,
            unacked: segments(self.snd_nxt.wrapping_sub(self.snd_una)),
            total_retrans: self.total_retrans,
            snd_ssthresh: match self.congestion.ssthresh {
                u32::MAX => u32::MAX,
                bytes => segments(bytes),
            },
            snd_cwnd: self.congestion.cwnd / self.snd_mss,
            notsent_bytes: (self.snd.end() - self.offset_of(self.snd_nxt)) as u32,
            bytes_acked: self.snd.start(),
            bytes_received: self.rcv.next(),
            wscale: self.snd_wscale.map(|theirs| (theirs, self.rcv_wscale)),
        }
    }
}

/// The segment size to announce: TCP_MAXSEG lowers it.
pub(crate) fn announced_mss(c: &Common, route: u16) -> u16 {
    c.opts.max_seg.map_or(route, |max| max.min(route))
}

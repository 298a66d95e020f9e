//! Timers of a connection: retransmission, zero-window probe, delayed acknowledgement, keep-alive (tcp(7),
//! net/ipv4/tcp_timer.c's behaviour).

use super::Conn;
use crate::socket::{Common, Cx};
use crate::{Config, TcpState};
use bloodhound_abi::SimTime;
use bloodhound_abi::time::{MILLIS, SECS};

impl Conn {
    /// The earliest timer.
    pub(crate) fn next_deadline(&self) -> Option<SimTime> {
        [self.rtx_at, self.probe_at, self.delack_at, self.keep_at].into_iter().flatten().min()
    }

    /// Fires what is due.
    pub(crate) fn on_time(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        let due = |at: &mut Option<SimTime>| at.take_if(|at| *at <= now).is_some();
        if due(&mut self.delack_at) && self.ack_owed {
            // A delayed acknowledgement that had to be sent means no reply was coming: leave interactive mode.
            self.pingpong = false;
            cx.net.counters.tcp.delayed_acks += 1;
            self.send_ack(cx);
        }
        if due(&mut self.rtx_at) {
            self.on_rtx_timeout(cx);
        }
        if due(&mut self.probe_at) {
            self.on_probe_timeout(cx);
        }
        if due(&mut self.keep_at) {
            self.on_keep_timeout(cx);
        }
    }

    /// The retransmission timeout with its exponential backoff.
    pub(super) fn backed_off(&self, config: &Config) -> u64 {
        self.rtt.rto().saturating_mul(1 << self.backoff.min(20)).min(config.rto_max)
    }

    /// (Re)starts the retransmission timer if anything is in flight, else stops it.
    pub(super) fn arm_rtx(&mut self, cx: &Cx<'_>) {
        self.rtx_at = None;
        if self.snd_una == self.snd_nxt {
            return;
        }
        let mut wait = self.backed_off(&cx.net.config);
        if cx.c.opts.user_timeout > 0 && self.retransmits > 0 {
            let passed = cx.now.since(self.retrans_since);
            wait = wait.min(user_timeout(cx.c).saturating_sub(passed).max(MILLIS));
        }
        self.rtx_at = Some(cx.now.after(wait));
    }

    fn on_rtx_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.snd_una == self.snd_nxt {
            return;
        }
        cx.net.counters.tcp.timeouts += 1;
        if self.gives_up(cx) {
            self.time_out(cx);
            return;
        }
        if self.retransmits == 0 {
            self.retrans_since = cx.now;
        }
        self.retransmits += 1;
        match self.state {
            TcpState::SynSent | TcpState::SynRecv => {
                self.rtt.spoil();
                self.total_retrans += 1;
                cx.net.counters.tcp.resent += 1;
                cx.net.counters.tcp.resent_syns += 1;
                self.send_syn(cx);
            }
            _ => {
                self.congestion.on_timeout(self.snd_una, self.snd_nxt);
                self.resend_nxt = self.snd_una;
                self.resend_one(cx);
            }
        }
        self.backoff += 1;
        self.arm_rtx(cx);
    }

    /// `tcp_write_timeout`: has the peer been silent for too long?
    fn gives_up(&self, cx: &Cx<'_>) -> bool {
        let (config, opts) = (&cx.net.config, &cx.c.opts);
        let waited = cx.now.since(self.retrans_since);
        match self.state {
            TcpState::SynSent if opts.user_timeout > 0 && self.retransmits > 0 => {
                waited >= user_timeout(cx.c)
            }
            TcpState::SynSent => self.retransmits >= opts.syn_cnt,
            TcpState::SynRecv => self.retransmits >= config.synack_retries,
            _ if self.retransmits == 0 => false,
            _ if opts.user_timeout > 0 => waited >= user_timeout(cx.c),
            _ if cx.c.orphan => waited >= model_timeout(config.orphan_retries, config),
            _ => waited >= model_timeout(config.retries2, config),
        }
    }

    /// Starts the probe timer if there is data to send, none of it in flight, and nothing else will send it
    /// (zero window, or a partial segment held back by TCP_CORK: its 200 ms ceiling is this timer).
    pub(super) fn arm_probe(&mut self, cx: &Cx<'_>) {
        if self.snd_una != self.snd_nxt || self.probe_at.is_some() || !self.has_unsent() {
            return;
        }
        self.probing_since = cx.now;
        self.probe_at = Some(cx.now.after(self.backed_off(&cx.net.config).max(cx.net.config.rto_min)));
    }

    fn on_probe_timeout(&mut self, cx: &mut Cx<'_>) {
        if self.snd_una != self.snd_nxt || !self.has_unsent() {
            self.probes = 0;
            return;
        }
        let config = &cx.net.config;
        let silent = cx.c.opts.user_timeout > 0
            && self.probes > 0
            && cx.now.since(self.probing_since) >= user_timeout(cx.c);
        let hopeless = cx.c.orphan && self.backed_off(config) >= config.rto_max;
        if silent || hopeless || self.probes >= config.retries2 {
            self.time_out(cx);
            return;
        }
        if self.send_what_fits(cx) {
            self.probes = 0;
            self.backoff = 0;
            return;
        }
        self.send_probe(cx);
        self.probes += 1;
        self.backoff += 1;
        self.probe_at = Some(cx.now.after(self.backed_off(&cx.net.config)));
    }

    /// Restarts or stops keep-alive after its option or the connection's state changed.
    pub(crate) fn reset_keepalive(&mut self, cx: &Cx<'_>) {
        self.keep_probes = 0;
        let open = !matches!(self.state, TcpState::SynSent | TcpState::Close | TcpState::TimeWait);
        let wanted = cx.c.opts.keepalive && open && !cx.c.orphan;
        self.keep_at = wanted.then(|| cx.now.after(u64::from(cx.c.opts.keepidle) * SECS));
    }

    fn on_keep_timeout(&mut self, cx: &mut Cx<'_>) {
        if cx.c.orphan && self.state == TcpState::FinWait2 {
            self.finish(cx);
            return;
        }
        if !cx.c.opts.keepalive {
            return;
        }
        let idle = u64::from(cx.c.opts.keepidle) * SECS;
        let elapsed = cx.now.since(self.last_in);
        let wait = if self.snd_una != self.snd_nxt || self.has_unsent() {
            idle
        } else if elapsed < idle {
            idle - elapsed
        } else {
            let given_up = match user_timeout(cx.c) {
                0 => self.keep_probes >= cx.c.opts.keepcnt,
                limit => elapsed >= limit && self.keep_probes > 0,
            };
            if given_up {
                self.send_reset(cx);
                self.time_out(cx);
                return;
            }
            self.send_probe(cx);
            cx.net.counters.tcp.keep_alives += 1;
            self.keep_probes += 1;
            u64::from(cx.c.opts.keepintvl) * SECS
        };
        self.keep_at = Some(cx.now.after(wait));
    }
}

fn user_timeout(c: &Common) -> u64 {
    u64::from(c.opts.user_timeout) * MILLIS
}

/// `tcp_model_timeout`: the time that `boundary` doublings from the minimal timeout up to the maximal one take.
fn model_timeout(boundary: u32, config: &Config) -> u64 {
    let linear = (config.rto_max / config.rto_min).max(1).ilog2();
    if boundary <= linear {
        ((2u64 << boundary) - 1) * config.rto_min
    } else {
        ((2u64 << linear) - 1) * config.rto_min + u64::from(boundary - linear) * config.rto_max
    }
}

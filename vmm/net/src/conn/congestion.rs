//! Round-trip time (RFC 6298 with Linux's minimum, see `tcp_rtt_estimator`) and the congestion window (slow start,
//! congestion avoidance, NewReno: RFC 5681, 6582, 3042). All in integer arithmetic.

use crate::Config;
use crate::seq::{after, before};
use bloodhound_abi::SimTime;

/// The round-trip time estimate. One segment is timed at a time; retransmission spoils the sample (Karn).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Rtt {
    /// Smoothed round-trip time and four times its mean deviation, in ns; 0 before the first sample.
    srtt: u64,
    rttvar: u64,
    rto: u64,
    /// End of the timed segment, and when it was sent.
    timed: Option<(u32, SimTime)>,
}

impl Rtt {
    pub(super) fn new(config: &Config) -> Rtt {
        Rtt { srtt: 0, rttvar: 0, rto: config.rto_initial, timed: None }
    }

    /// Times the segment that ends before `end`, unless another one is being timed.
    pub(super) fn start(&mut self, end: u32, now: SimTime) {
        self.timed.get_or_insert((end, now));
    }

    /// Something was retransmitted: its acknowledgement says nothing about the time.
    pub(super) fn spoil(&mut self) {
        self.timed = None;
    }

    /// `ack` was acknowledged.
    pub(super) fn acknowledged(&mut self, ack: u32, now: SimTime, config: &Config) {
        if let Some((end, sent)) = self.timed
            && !after(end, ack)
        {
            self.timed = None;
            self.measured(now.since(sent), config);
        }
    }

    /// Takes a sample. Linux bounds the deviation term, not the sum, from below: RTO = srtt + max(4 * mdev, 200 ms).
    pub(super) fn measured(&mut self, sample: u64, config: &Config) {
        if self.srtt == 0 {
            self.srtt = sample.max(1);
            self.rttvar = sample * 2;
        } else {
            self.rttvar = self.rttvar - self.rttvar / 4 + self.srtt.abs_diff(sample);
            self.srtt = (self.srtt - self.srtt / 8 + sample / 8).max(1);
        }
        self.rto = (self.srtt + self.rttvar.max(config.rto_min)).min(config.rto_max);
    }

    pub(super) fn rto(&self) -> u64 {
        self.rto
    }

    pub(super) fn smoothed(&self) -> u64 {
        self.srtt
    }

    pub(super) fn deviation(&self) -> u64 {
        self.rttvar / 4
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Open,
    /// Fast recovery: until `recover` is acknowledged.
    Recovery,
    /// After a timeout, until `recover` is acknowledged.
    Loss,
}

/// The congestion window, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Congestion {
    pub(super) cwnd: u32,
    /// `u32::MAX` before the first loss.
    pub(super) ssthresh: u32,
    mss: u32,
    initial: u32,
    /// Bytes acknowledged since the window last grew in congestion avoidance.
    credit: u32,
    dupacks: u32,
    phase: Phase,
    recover: u32,
    /// Whether `recover` was ever set: only then it forbids a fast retransmit.
    lost_before: bool,
}

const DUPACK_THRESHOLD: u32 = 3;
const CWND_MAX: u32 = 1 << 30;

impl Congestion {
    pub(super) fn new(initial_segments: u32, mss: u32) -> Congestion {
        Congestion {
            cwnd: initial_segments * mss,
            ssthresh: u32::MAX,
            mss,
            initial: initial_segments * mss,
            credit: 0,
            dupacks: 0,
            phase: Phase::Open,
            recover: 0,
            lost_before: false,
        }
    }

    /// Bytes that may be in flight: limited transmit lets one more segment out per duplicate acknowledgement.
    pub(super) fn limit(&self) -> u32 {
        match self.phase {
            Phase::Open => self.cwnd + self.dupacks.min(DUPACK_THRESHOLD - 1) * self.mss,
            _ => self.cwnd,
        }
    }

    /// New data was acknowledged: `acked` bytes up to `ack`; `flight` were out before. True: retransmit the first
    /// unacknowledged segment (partial acknowledgement in fast recovery).
    pub(super) fn on_ack(&mut self, acked: u32, ack: u32, flight: u32) -> bool {
        self.dupacks = 0;
        match self.phase {
            Phase::Recovery if before(ack, self.recover) => {
                self.cwnd = (self.cwnd.saturating_sub(acked) + self.mss).max(self.mss);
                return true;
            }
            Phase::Recovery => {
                self.phase = Phase::Open;
                self.cwnd = self.ssthresh.min((flight - acked).max(self.mss) + self.mss);
            }
            Phase::Loss if !before(ack, self.recover) => {
                self.phase = Phase::Open;
                self.grow(acked, flight);
            }
            _ => self.grow(acked, flight),
        }
        false
    }

    /// The window only grows while it is what limits the sender (`tcp_is_cwnd_limited`).
    fn grow(&mut self, acked: u32, flight: u32) {
        if self.cwnd < self.ssthresh {
            if self.cwnd / 2 < flight {
                self.cwnd = (self.cwnd + acked).min(CWND_MAX);
            }
        } else if flight + self.mss > self.cwnd {
            self.credit += acked;
            if self.credit >= self.cwnd {
                self.credit -= self.cwnd;
                self.cwnd = (self.cwnd + self.mss).min(CWND_MAX);
            }
        }
    }

    /// A duplicate acknowledgement of `una`. True: retransmit the first unacknowledged segment.
    pub(super) fn on_duplicate(&mut self, una: u32, nxt: u32) -> bool {
        self.dupacks += 1;
        match self.phase {
            Phase::Recovery => {
                self.cwnd = (self.cwnd + self.mss).min(CWND_MAX);
                false
            }
            Phase::Open if self.dupacks == DUPACK_THRESHOLD => {
                // RFC 6582, 3.2 step 1: duplicates caused by our own retransmissions are no sign of loss.
                if self.lost_before && !after(una, self.recover) {
                    return false;
                }
                self.ssthresh = (nxt.wrapping_sub(una) / 2).max(2 * self.mss);
                self.cwnd = self.ssthresh + DUPACK_THRESHOLD * self.mss;
                self.enter(Phase::Recovery, nxt);
                true
            }
            _ => false,
        }
    }

    /// The retransmission timer fired with `una..nxt` in flight.
    pub(super) fn on_timeout(&mut self, una: u32, nxt: u32) {
        if self.phase != Phase::Loss {
            self.ssthresh = (nxt.wrapping_sub(una) / 2).max(2 * self.mss);
        }
        self.cwnd = self.mss;
        self.dupacks = 0;
        self.enter(Phase::Loss, nxt);
    }

    fn enter(&mut self, phase: Phase, nxt: u32) {
        self.phase = phase;
        self.recover = nxt;
        self.lost_before = true;
        self.credit = 0;
    }

    /// Nothing was sent for `idle` ns: the window halves per RTO down to the initial one (RFC 2861, as Linux's
    /// tcp_slow_start_after_idle = 1).
    pub(super) fn on_idle(&mut self, idle: u64, rto: u64) {
        let mut left = idle;
        let floor = self.initial.min(self.cwnd);
        while left > rto && self.cwnd > floor {
            self.ssthresh =
                if self.ssthresh == u32::MAX { u32::MAX } else { self.ssthresh.max(self.cwnd / 4 * 3) };
            self.cwnd = (self.cwnd / 2).max(floor);
            left -= rto;
        }
    }
}

//! [`Socket`]: one entry of the stack's arena. [`Common`] is what all kinds share (Linux's `struct sock`), [`Kind`]
//! what they are. Readiness follows `tcp_poll` and `datagram_poll` of Linux.

use crate::conn::Conn;
use crate::datagram::Membership;
use crate::iface::{Interfaces, unspecified};
use crate::naming::{Datagrams, Opened};
use crate::stack::{Guard, Tap};
use crate::{Config, Datagram, Options, Proto, ReadyFlags, Report, SocketId, TcpState, Tell};
use bloodhound_abi::{Errno, SimTime};
use bloodhound_bpf::Filter;
use bloodhound_decisions::Place;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

/// `socket_state` of Linux (SS_*): what connect(2) has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Association {
    Unconnected,
    Connecting,
    Connected,
    /// Shut down before the connection stood: it can neither be used nor connected again.
    Disconnecting,
}

/// The part of a socket that does not depend on its kind. Addresses are canonical.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Common {
    pub(crate) proto: Proto,
    pub(crate) v6: bool,
    pub(crate) opts: Options,
    /// Unspecified address and port 0 until bound or connected.
    pub(crate) local: SocketAddr,
    /// The address came from bind(2), so a disconnect keeps it (SOCK_BINDADDR_LOCK).
    pub(crate) bound_addr: bool,
    /// The port came from bind(2), so it outlives the connection (SOCK_BINDPORT_LOCK).
    pub(crate) bound_port: bool,
    /// The socket stands in the stack's table of ports (`inet_num`). Without it `local` may still show the port that
    /// it last had, as on Linux.
    pub(crate) holds_port: bool,
    /// Which use of its port it is.
    pub(crate) opened: Opened,
    pub(crate) peer: Option<SocketAddr>,
    /// Multicast groups, in the order in which they were joined. What accept(2) gives has none of those of the listener.
    pub(crate) groups: Vec<Membership>,
    pub(crate) association: Association,
    pub(crate) error: Option<Errno>,
    /// Error that only shows when the connection times out (sk_err_soft).
    pub(crate) soft_error: Option<Errno>,
    /// Without a connection, how far the end of what was written is ahead of what is acknowledged, and of what was sent (`write_seq` of
    /// `struct tcp_sock`).
    pub(crate) ahead: [u32; 2],
    pub(crate) shut_read: bool,
    pub(crate) shut_write: bool,
    /// A FIN came in: reads give the end of the stream before any error (SOCK_DONE).
    pub(crate) done: bool,
    /// No descriptor refers to the socket any more (SOCK_DEAD).
    pub(crate) orphan: bool,
    /// In an accept queue: nobody can wait for it yet.
    pub(crate) unaccepted: bool,
    /// The peer has sent an urgent mark in the current call (`sk_send_sigurg`).
    pub(crate) urgent_came: bool,
    /// What decides about arriving packets.
    pub(crate) filter: Option<Box<Filter>>,
    /// Which segments a socket of TCP takes.
    pub(crate) guard: Option<Box<Guard>>,
    /// Wakes raised by the current call.
    pub(crate) wake: ReadyFlags,
    /// What the owner is told of it.
    pub(crate) tell: Tell,
    /// Place in the stack's list of events that were not yet taken.
    pub(crate) event: Option<u32>,
    /// The state in the last [`crate::StateChange`] about the socket.
    pub(crate) told: TcpState,
}

impl Common {
    /// Whether packets that come in by an interface are for this socket (`inet_sk_bound_dev_eq`).
    pub(crate) fn takes_from(&self, interface: u32) -> bool {
        self.opts.device == 0 || self.opts.device == interface
    }

    /// The interface by which datagrams to an address leave; 0 leaves it to the route.
    pub(crate) fn device_to(&self, ip: IpAddr) -> u32 {
        match (self.opts.device, ip.is_ipv6()) {
            (0, false) => self.opts.unicast_interface,
            (0, true) => self.opts.unicast_interface6,
            (device, _) => device,
        }
    }

    pub(crate) fn new(proto: Proto, v6: bool, config: &Config) -> Common {
        Common {
            proto,
            v6,
            opts: Options::new(proto, v6, config),
            local: unspecified(v6),
            bound_addr: false,
            bound_port: false,
            holds_port: false,
            opened: Opened::default(),
            peer: None,
            groups: Vec::new(),
            association: Association::Unconnected,
            error: None,
            soft_error: None,
            ahead: [0; 2],
            shut_read: false,
            shut_write: false,
            done: false,
            orphan: false,
            unaccepted: false,
            urgent_came: false,
            filter: None,
            guard: None,
            wake: ReadyFlags::empty(),
            tell: Tell::empty(),
            event: None,
            told: TcpState::Close,
        }
    }

    /// Wakes waiters whose interest meets `key`, and tells the owner (`sk_data_ready`, `sk_write_space`, `sk_error_report`).
    pub(crate) fn wake(&mut self, key: ReadyFlags) {
        self.wake |= key;
        self.tell.set(Tell::IN, self.tell.contains(Tell::IN) || key.contains(ReadyFlags::READ));
        // "if (wq && wq->fasync_list && !(sk->sk_shutdown & SEND_SHUTDOWN))" (sk_stream_write_space).
        let room = key.contains(ReadyFlags::WRITE) && !(self.proto == Proto::Tcp && self.shut_write);
        self.tell.set(Tell::SPACE, self.tell.contains(Tell::SPACE) || room);
        self.tell.set(Tell::ERR, self.tell.contains(Tell::ERR) || key.contains(ReadyFlags::ERR));
    }

    /// Tells the owner only.
    pub(crate) fn tell(&mut self, what: Tell) {
        self.tell |= what;
    }

    /// Wakes all waiters (`sk_state_change`), which tells the owner nothing.
    pub(crate) fn wake_all(&mut self) {
        self.wake |= ReadyFlags::all();
    }

    /// A packet has come in for it, by the one processor that there is: what SO_INCOMING_CPU shows is "the CPU affinity of the socket" then.
    /// Of datagrams only those of a connected socket count (`__udp_queue_rcv_skb`).
    pub(crate) fn has_come(&mut self) {
        if self.peer.is_some() {
            self.opts.incoming_cpu = 0;
        }
    }

    pub(crate) fn take_error(&mut self) -> Option<Errno> {
        self.error.take()
    }
}

/// A connection of which only the SYN was seen (`struct request_sock`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    /// Sequence number of the peer's SYN.
    pub(crate) irs: u32,
    /// Sequence number of our SYN.
    pub(crate) iss: u32,
    /// The peer's options and window.
    pub(crate) mss: u16,
    pub(crate) wscale: Option<u8>,
    pub(crate) window: u16,
    /// When the SYN-ACK was first sent, and when it is sent again.
    pub(crate) sent: SimTime,
    pub(crate) resend: SimTime,
    /// Timeouts so far.
    pub(crate) timeouts: u32,
    /// Whose connection it is, and how many segments were sent for it.
    pub(crate) opened: Opened,
    pub(crate) sends: u32,
}

impl Request {
    /// The place of one more segment for it, at this offset of the stream.
    pub(crate) fn next_place(&mut self, offset: u32) -> Place {
        self.sends += 1;
        self.opened.place(offset, 1, self.sends - 1)
    }
}

/// A listening socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Listener {
    pub(crate) backlog: u32,
    /// Established connections to accept, oldest first.
    pub(crate) queue: VecDeque<SocketId>,
    /// Half-open connections by (local, peer).
    pub(crate) requests: BTreeMap<(SocketAddr, SocketAddr), Request>,
    /// The faults by which the queue counts as full, whatever is in it.
    pub(crate) filled_by: BTreeSet<u64>,
}

impl Listener {
    /// Linux lets one more in than the backlog says (`sk_acceptq_is_full`).
    pub(crate) fn is_full(&self) -> bool {
        !self.filled_by.is_empty() || self.queue.len() as u64 > u64::from(self.backlog)
    }
}

/// What is left of a connection in TIME_WAIT (`struct inet_timewait_sock`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct TimeWait {
    pub(crate) snd_nxt: u32,
    pub(crate) rcv_nxt: u32,
    pub(crate) window: u16,
    pub(crate) since: SimTime,
    /// When a stray segment was last answered.
    pub(crate) last_stray: Option<SimTime>,
    pub(crate) until: SimTime,
    /// The place of the next answer.
    pub(crate) place: Place,
}

/// What Linux charges a datagram for: struct sk_buff, and a data area of rounded size with room for headers and
/// struct skb_shared_info (measured on Linux 6.18 for 0 to 30,000 bytes).
pub(crate) fn datagram_cost(len: usize) -> usize {
    let area = len + 380;
    256 + if area <= 576 { 576 } else { area.next_power_of_two() }
}

/// What is special of a raw socket.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Raw {
    pub(crate) protocol: u8,
    /// ICMP_FILTER or ICMP6_FILTER: a bit for each type that it does not get.
    pub(crate) filter: [u32; 8],
    /// IPV6_CHECKSUM: where the checksum is.
    pub(crate) checksum: Option<u16>,
}

/// Receive queue of a UDP, ping or raw socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Udp {
    /// Datagrams with canonical addresses.
    pub(crate) queue: VecDeque<Datagram>,
    pub(crate) used: usize,
    pub(crate) names: Datagrams,
    /// Its error queue, which is charged like the other one.
    pub(crate) reports: VecDeque<Report>,
    /// The number of the next datagram whose time is told (`sk_tskey`).
    pub(crate) next_number: u32,
    /// Damaged datagrams of IPv4 and of IPv6 that a reader has found, for the counters.
    pub(crate) found_damaged: [u64; 2],
    /// What a raw socket has more.
    pub(crate) raw: Option<Box<Raw>>,
}

impl Udp {
    /// Queues a datagram; false if the buffer is full and it is lost.
    pub(crate) fn push(&mut self, datagram: Datagram, rcvbuf: u32) -> bool {
        let cost = datagram_cost(datagram.data.len());
        if !self.queue.is_empty() && self.used + cost > rcvbuf as usize {
            return false;
        }
        self.used += cost;
        self.queue.push_back(datagram);
        true
    }

    /// Queues a report; false if there is no room (`sock_queue_err_skb`).
    pub(crate) fn push_report(&mut self, report: Report, rcvbuf: u32) -> bool {
        let cost = datagram_cost(report.data.len());
        if self.used + cost >= rcvbuf as usize {
            return false;
        }
        self.used += cost;
        self.reports.push_back(report);
        true
    }

    pub(crate) fn pop_report(&mut self) -> Option<Report> {
        let report = self.reports.pop_front()?;
        self.used -= datagram_cost(report.data.len());
        Some(report)
    }

    /// The first datagram whose checksum is right.
    pub(crate) fn sound(&self) -> Option<&Datagram> {
        self.queue.iter().find(|datagram| !datagram.header.damaged)
    }

    /// Drops what a reader finds damaged before it comes to a datagram, "starting over for a new packet" (`csum_copy_err` in `udp_recvmsg`).
    pub(crate) fn drop_damaged(&mut self) {
        while self.queue.front().is_some_and(|datagram| datagram.header.damaged) {
            let datagram = self.pop();
            self.found_damaged[usize::from(datagram.is_some_and(|d| d.src.is_ipv6()))] += 1;
        }
    }

    /// The datagram in which an offset is, and how many of its bytes come before; the first one without an offset. One without a byte is
    /// shown once (`__skb_try_recv_from_queue`). What is damaged is dropped where it would be shown.
    pub(crate) fn peek(&mut self, offset: Option<u64>) -> Option<(Datagram, u64)> {
        loop {
            let mut left = offset.unwrap_or(0);
            let mut passed = |datagram: &Datagram| {
                let len = datagram.data.len() as u64;
                let passed = offset.is_some() && left >= len && (left > 0 || datagram.peeked);
                left -= if passed { len } else { 0 };
                passed
            };
            let at = self.queue.iter().position(|datagram| !passed(datagram))?;
            let datagram = self.queue.get_mut(at)?;
            if !datagram.header.damaged {
                datagram.peeked |= datagram.data.is_empty();
                return Some((datagram.clone(), left));
            }
            let datagram = self.queue.remove(at)?;
            self.found_damaged[usize::from(datagram.src.is_ipv6())] += 1;
            self.used -= datagram_cost(datagram.data.len());
        }
    }

    pub(crate) fn pop(&mut self) -> Option<Datagram> {
        let datagram = self.queue.pop_front()?;
        self.used -= datagram_cost(datagram.data.len());
        Some(datagram)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// TCP, neither connected nor listening.
    Idle,
    Listen(Listener),
    Conn(Box<Conn>),
    TimeWait(TimeWait),
    Udp(Udp),
    Packet(Box<Tap>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Socket {
    pub(crate) common: Common,
    pub(crate) kind: Kind,
    /// The deadline under which the socket stands in the stack's timer index.
    pub(crate) deadline: Option<SimTime>,
    /// What it took when it was last weighed.
    pub(crate) held: u64,
}

/// Everything a connection's handler may touch beside itself.
pub(crate) struct Cx<'a> {
    pub(crate) c: &'a mut Common,
    pub(crate) net: &'a mut Interfaces,
    pub(crate) now: SimTime,
}

impl Socket {
    pub(crate) fn state(&self) -> TcpState {
        match &self.kind {
            Kind::Idle => TcpState::Close,
            Kind::Listen(_) => TcpState::Listen,
            Kind::Conn(conn) => conn.state,
            Kind::TimeWait(_) => TcpState::TimeWait,
            Kind::Packet(_) => TcpState::Close,
            Kind::Udp(_) if self.common.peer.is_some() => TcpState::Established,
            Kind::Udp(_) => TcpState::Close,
        }
    }

    /// Bytes that Linux takes for it, nearly: `struct tcp_sock` with its inode, and its queues. Those of TCP have segments of a page
    /// or less in them, with a `struct sk_buff` for each.
    pub(crate) fn weight(&self) -> u64 {
        const SOCKET: u64 = 2304 + 704;
        const TIME_WAIT: u64 = 256;
        const REQUEST: u64 = 320;
        let filter =
            self.common.filter.as_ref().map_or(0, |filter| filter.program().instructions().len() * 8);
        filter as u64
            + match &self.kind {
                Kind::Idle => SOCKET,
                Kind::Listen(listener) => SOCKET + REQUEST * listener.requests.len() as u64,
                Kind::Conn(conn) => SOCKET + (conn.snd.held() + conn.rcv.held()) as u64,
                Kind::TimeWait(_) => TIME_WAIT,
                Kind::Udp(udp) => SOCKET + udp.used as u64,
                Kind::Packet(tap) => SOCKET + tap.used as u64,
            }
    }

    pub(crate) fn next_deadline(&self) -> Option<SimTime> {
        match &self.kind {
            Kind::Idle | Kind::Udp(_) | Kind::Packet(_) => None,
            Kind::Listen(listener) => listener.requests.values().map(|r| r.resend).min(),
            Kind::Conn(conn) => conn.next_deadline(),
            Kind::TimeWait(wait) => Some(wait.until),
        }
    }

    /// `tcp_poll` and `datagram_poll`.
    pub(crate) fn readiness(&self) -> ReadyFlags {
        let c = &self.common;
        let mut ready = ReadyFlags::empty();
        ready.set(ReadyFlags::ERR, c.error.is_some());
        if let Kind::Listen(listener) = &self.kind {
            return if listener.queue.is_empty() { ReadyFlags::empty() } else { ReadyFlags::READ };
        }
        let closed = c.proto == Proto::Tcp && self.state() == TcpState::Close;
        ready.set(ReadyFlags::HUP, closed || (c.shut_read && c.shut_write));
        ready.set(ReadyFlags::READ | ReadyFlags::RDHUP, c.shut_read);
        match &self.kind {
            Kind::Udp(udp) => {
                let fails = c.error.is_some() || !udp.reports.is_empty();
                ready.set(ReadyFlags::ERR, fails);
                // "EPOLLERR | (sock_flag(sk, SOCK_SELECT_ERR_QUEUE) ? EPOLLPRI : 0)" (datagram_poll).
                ready.set(ReadyFlags::PRI, fails && c.opts.select_err_queue);
                ready.set(ReadyFlags::READ, c.shut_read || !udp.queue.is_empty());
                ready.insert(ReadyFlags::WRITE);
            }
            Kind::Packet(tap) => {
                ready.set(ReadyFlags::READ, c.shut_read || !tap.queue.is_empty());
                ready.insert(ReadyFlags::WRITE);
            }
            Kind::Conn(conn) if matches!(conn.state, TcpState::SynSent | TcpState::SynRecv) => {}
            Kind::Conn(conn) => {
                // The urgent byte itself is nothing to read (tcp_poll).
                let apart = usize::from(conn.at_mark() && !c.opts.oobinline);
                ready.set(ReadyFlags::READ, c.shut_read || conn.rcv.len() >= conn.read_target(c) + apart);
                ready.set(ReadyFlags::PRI, conn.has_urgent());
                ready.set(ReadyFlags::WRITE, c.shut_write || conn.is_writable(c));
            }
            _ => ready.insert(ReadyFlags::WRITE),
        }
        ready
    }
}

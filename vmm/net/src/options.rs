//! Small public types of the socket interface: [`SocketId`], [`ReadyFlags`], [`Shutdown`], [`Options`] and
//! [`SockOpt`], the state names of TCP, and what /proc/net/tcp and TCP_INFO show.

use crate::{Config, Proto};
use std::net::SocketAddr;

/// Names a socket of one [`crate::Stack`]; never used again for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId(pub u32);

bitflags::bitflags! {
    /// Readiness, with the values of epoll(7)'s events.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct ReadyFlags: u32 {
        /// EPOLLIN (and EPOLLRDNORM).
        const READ = 0x001;
        /// EPOLLPRI.
        const PRI = 0x002;
        /// EPOLLOUT (and EPOLLWRNORM).
        const WRITE = 0x004;
        /// EPOLLERR.
        const ERR = 0x008;
        /// EPOLLHUP.
        const HUP = 0x010;
        /// EPOLLRDHUP.
        const RDHUP = 0x2000;
    }
}

bitflags::bitflags! {
    /// What is told to whom F_SETOWN has named, of a socket with O_ASYNC (`sk_wake_async`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Tell: u8 {
        /// Data or a connection has come, or the end.
        const IN = 1;
        /// There is room, for who has missed it.
        const SPACE = 2;
        /// The connection is there.
        const OUT = 4;
        /// An error.
        const ERR = 8;
        /// Both halves are closed.
        const HUP = 16;
    }
}

/// Which half shutdown(2) closes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shutdown {
    /// SHUT_RD.
    Read,
    /// SHUT_WR.
    Write,
    /// SHUT_RDWR.
    Both,
}

/// An option with its new value, for [`crate::Stack::set_option`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SockOpt {
    /// TCP_NODELAY.
    NoDelay(bool),
    /// TCP_CORK.
    Cork(bool),
    /// TCP_QUICKACK (not permanent, as in tcp(7)).
    QuickAck(bool),
    /// SO_KEEPALIVE.
    KeepAlive(bool),
    /// TCP_KEEPIDLE, seconds, 1..=32767.
    KeepIdle(u32),
    /// TCP_KEEPINTVL, seconds, 1..=32767.
    KeepIntvl(u32),
    /// TCP_KEEPCNT, 1..=127.
    KeepCnt(u32),
    /// TCP_USER_TIMEOUT, milliseconds; 0 is the default behaviour.
    UserTimeout(u32),
    /// TCP_MAXSEG, 88..=32767.
    MaxSeg(u16),
    /// TCP_SYNCNT, 1..=127.
    SynCnt(u32),
    /// TCP_LINGER2, seconds; 0 is the system's default, negative is none.
    Linger2(i32),
    /// SO_REUSEADDR.
    ReuseAddr(bool),
    /// SO_REUSEPORT.
    ReusePort(bool),
    /// SO_SNDBUF as given to setsockopt(2); Linux stores the double.
    SndBuf(u32),
    /// SO_RCVBUF as given to setsockopt(2); Linux stores the double.
    RcvBuf(u32),
    /// SO_RCVLOWAT.
    RcvLowat(u32),
    /// SO_LINGER: seconds, or off.
    Linger(Option<u32>),
    /// IPV6_V6ONLY; EINVAL once bound.
    V6Only(bool),
    /// SO_OOBINLINE.
    OobInline(bool),
    /// IP_MULTICAST_IF: number of the interface, 0 for none.
    GroupInterface(u32),
    /// IPV6_MULTICAST_IF.
    GroupInterface6(u32),
    /// IP_MULTICAST_ALL.
    GroupAll(bool),
    /// IPV6_MULTICAST_ALL.
    GroupAll6(bool),
    /// IP_RECVERR.
    RecvErr(bool),
    /// IPV6_RECVERR.
    RecvErr6(bool),
    /// SO_SELECT_ERR_QUEUE.
    SelectErrQueue(bool),
    /// SO_BINDTODEVICE: number of the interface, 0 for all.
    Device(u32),
    /// SO_BUF_LOCK: whether the sizes of the send and the receive buffer stay as they are.
    BufLock([bool; 2]),
    /// IP_UNICAST_IF: number of the interface, 0 for none.
    UnicastInterface(u32),
    /// IPV6_UNICAST_IF.
    UnicastInterface6(u32),
    /// SO_INCOMING_CPU.
    IncomingCpu(i32),
}

/// The values of a socket's options, as getsockopt(2) shows them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// TCP_NODELAY.
    pub nodelay: bool,
    /// TCP_CORK.
    pub cork: bool,
    /// SO_KEEPALIVE.
    pub keepalive: bool,
    /// TCP_KEEPIDLE, seconds.
    pub keepidle: u32,
    /// TCP_KEEPINTVL, seconds.
    pub keepintvl: u32,
    /// TCP_KEEPCNT.
    pub keepcnt: u32,
    /// TCP_USER_TIMEOUT, milliseconds.
    pub user_timeout: u32,
    /// TCP_MAXSEG as set by the user.
    pub max_seg: Option<u16>,
    /// TCP_SYNCNT.
    pub syn_cnt: u32,
    /// TCP_LINGER2, seconds as set by the user.
    pub linger2: i32,
    /// SO_REUSEADDR.
    pub reuseaddr: bool,
    /// SO_REUSEPORT.
    pub reuseport: bool,
    /// SO_SNDBUF, the doubled value; grows by itself on TCP until set by the user.
    pub sndbuf: u32,
    /// SO_SNDBUF was set: no automatic growth.
    pub sndbuf_locked: bool,
    /// SO_RCVBUF, the doubled value; grows by itself on TCP until set by the user.
    pub rcvbuf: u32,
    /// SO_RCVBUF was set: no automatic growth.
    pub rcvbuf_locked: bool,
    /// SO_RCVLOWAT.
    pub rcvlowat: u32,
    /// SO_LINGER.
    pub linger: Option<u32>,
    /// IPV6_V6ONLY.
    pub v6only: bool,
    /// SO_OOBINLINE.
    pub oobinline: bool,
    /// IP_MULTICAST_IF: number of the interface, 0 for none.
    pub group_interface: u32,
    /// IPV6_MULTICAST_IF.
    pub group_interface6: u32,
    /// SO_BINDTODEVICE: number of the interface, 0 for all.
    pub device: u32,
    /// IP_UNICAST_IF: number of the interface, 0 for none.
    pub unicast_interface: u32,
    /// IPV6_UNICAST_IF.
    pub unicast_interface6: u32,
    /// IP_MULTICAST_ALL.
    pub group_all: bool,
    /// IPV6_MULTICAST_ALL.
    pub group_all6: bool,
    /// IP_RECVERR.
    pub recverr: bool,
    /// IPV6_RECVERR.
    pub recverr6: bool,
    /// SO_SELECT_ERR_QUEUE: poll(2) tells of the error queue by POLLPRI as well.
    pub select_err_queue: bool,
    /// SO_INCOMING_CPU: the processor that has taken in the last packet, or what was set since; -1 at first.
    pub incoming_cpu: i32,
}

impl Options {
    /// Whether reports about packets of a family go to the error queue.
    pub(crate) fn wants_reports(&self, v6: bool) -> bool {
        if v6 { self.recverr6 } else { self.recverr }
    }

    pub(crate) fn new(proto: Proto, v6: bool, config: &Config) -> Options {
        let (sndbuf, rcvbuf) = match proto {
            Proto::Tcp => (config.sndbuf, config.rcvbuf),
            Proto::Udp | Proto::UdpLite | Proto::Icmp | Proto::Raw | Proto::Packet => {
                (config.udp_buf, config.udp_buf)
            }
        };
        Options {
            nodelay: false,
            cork: false,
            keepalive: false,
            keepidle: config.keepalive_time,
            keepintvl: config.keepalive_intvl,
            keepcnt: config.keepalive_probes,
            user_timeout: 0,
            max_seg: None,
            syn_cnt: config.syn_retries,
            linger2: 0,
            reuseaddr: false,
            reuseport: false,
            sndbuf,
            sndbuf_locked: false,
            rcvbuf,
            rcvbuf_locked: false,
            rcvlowat: 1,
            linger: None,
            v6only: false,
            oobinline: false,
            group_interface: 0,
            group_interface6: 0,
            device: 0,
            unicast_interface: 0,
            unicast_interface6: 0,
            // inet6_create leaves this one off.
            group_all: !v6,
            group_all6: true,
            recverr: false,
            recverr6: false,
            select_err_queue: false,
            incoming_cpu: -1,
        }
    }
}

/// TCP states with Linux's numbers (include/net/tcp_states.h), as in /proc/net/tcp and TCP_INFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum TcpState {
    Established = 1,
    SynSent = 2,
    SynRecv = 3,
    FinWait1 = 4,
    FinWait2 = 5,
    TimeWait = 6,
    Close = 7,
    CloseWait = 8,
    LastAck = 9,
    Listen = 10,
    Closing = 11,
}

impl TcpState {
    /// Its name, as ss(8) has it.
    pub fn name(self) -> &'static str {
        match self {
            TcpState::Established => "established",
            TcpState::SynSent => "syn-sent",
            TcpState::SynRecv => "syn-recv",
            TcpState::FinWait1 => "fin-wait-1",
            TcpState::FinWait2 => "fin-wait-2",
            TcpState::TimeWait => "time-wait",
            TcpState::Close => "closed",
            TcpState::CloseWait => "close-wait",
            TcpState::LastAck => "last-ack",
            TcpState::Listen => "listening",
            TcpState::Closing => "closing",
        }
    }
}

/// A TCP socket has another state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StateChange {
    /// The socket; its number is not given again.
    pub id: SocketId,
    /// Its address.
    pub local: SocketAddr,
    /// The other end, if it has one.
    pub peer: Option<SocketAddr>,
    /// The state that it has now.
    pub state: TcpState,
}

/// One socket for /proc/net/{tcp,tcp6,udp,udp6} and ss(8). Addresses are as the socket's family shows them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SocketInfo {
    /// The socket; `None` for a connection in TIME_WAIT or a half-open one, which belong to nobody.
    pub id: Option<SocketId>,
    /// Protocol.
    pub proto: Proto,
    /// An AF_INET6 socket.
    pub v6: bool,
    /// State; UDP shows Close, or Established when connected.
    pub state: TcpState,
    /// Local address; unspecified when unbound.
    pub local: SocketAddr,
    /// Peer; unspecified and port 0 when there is none.
    pub peer: SocketAddr,
    /// The port came from bind(2).
    pub bound_port: bool,
    /// Bytes sent and not yet acknowledged or not yet sent; for a listener the backlog.
    pub tx_queue: u32,
    /// Bytes to read; for a listener the connections to accept.
    pub rx_queue: u32,
}

/// The part of struct tcp_info (TCP_INFO) that the model has. Times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TcpInfo {
    /// State.
    pub state: TcpState,
    /// Consecutive timeouts of the retransmission timer.
    pub retransmits: u32,
    /// Unanswered zero-window or keep-alive probes.
    pub probes: u32,
    /// Retransmission timeout with its backoff.
    pub rto: u64,
    /// Smoothed round-trip time; 0 before the first measurement.
    pub rtt: u64,
    /// Mean deviation of the round-trip time.
    pub rttvar: u64,
    /// Maximum segment size for sending.
    pub snd_mss: u32,
    /// Largest segment size received.
    pub rcv_mss: u32,
    /// Sent and unacknowledged segments, rounded up.
    pub unacked: u32,
    /// Segments retransmitted since the start.
    pub total_retrans: u32,
    /// Slow start threshold, segments; `u32::MAX` before the first loss.
    pub snd_ssthresh: u32,
    /// Congestion window, segments.
    pub snd_cwnd: u32,
    /// Bytes in the send buffer that were never sent.
    pub notsent_bytes: u32,
    /// Payload bytes acknowledged by the peer.
    pub bytes_acked: u64,
    /// Payload bytes received in order.
    pub bytes_received: u64,
    /// Window scale announced by the peer and by this side, if both did.
    pub wscale: Option<(u8, u8)>,
}

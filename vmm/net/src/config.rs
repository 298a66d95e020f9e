//! [`Config`]: the sysctls and compiled-in constants of Linux's TCP/IP (tcp(7), ip(7), Linux 6.1 defaults) that
//! [`crate::Stack`] reads. Times are nanoseconds of virtual time.

use bloodhound_abi::time::{MILLIS, SECS};

/// Constants of one node's stack. [`Config::default`] gives Linux's values.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    /// Maximum segment size announced on links: 1500 - 40.
    pub mss: u16,
    /// Maximum segment size on loopback: 65536 - 40, less the 12 bytes of timestamps.
    pub loopback_mss: u16,
    /// Time from sending to receiving a loopback packet. 0 (default) is what Linux shows: the packet is there
    /// before the next system call. It still passes through the time order: see [`crate::Stack::on_time`].
    pub loopback_delay: u64,
    /// TCP_TIMEOUT_INIT: retransmission timeout before the first measurement.
    pub rto_initial: u64,
    /// TCP_RTO_MIN.
    pub rto_min: u64,
    /// TCP_RTO_MAX.
    pub rto_max: u64,
    /// net.ipv4.tcp_syn_retries.
    pub syn_retries: u32,
    /// net.ipv4.tcp_synack_retries.
    pub synack_retries: u32,
    /// net.ipv4.tcp_retries2: how long unacknowledged data is retransmitted, as a count of doublings from
    /// `rto_min` (924.6 s by default).
    pub retries2: u32,
    /// What net.ipv4.tcp_orphan_retries = 0 stands for.
    pub orphan_retries: u32,
    /// TCP_DELACK_MIN and TCP_ATO_MIN: how long an acknowledgement is held back.
    pub delayed_ack: u64,
    /// TCP_MAX_QUICKACKS: acknowledgements sent at once when a connection starts.
    pub quick_acks: u32,
    /// net.ipv4.tcp_invalid_ratelimit: least time between two answers to stray segments without data, so that two
    /// ends that disagree do not answer each other for ever.
    pub invalid_ratelimit: u64,
    /// TCP_TIMEWAIT_LEN.
    pub time_wait: u64,
    /// net.ipv4.tcp_fin_timeout: how long an orphan stays in FIN_WAIT2.
    pub fin_timeout: u64,
    /// TCP_INIT_CWND, in segments.
    pub initial_cwnd: u32,
    /// net.ipv4.tcp_wmem: default and maximum of the send buffer.
    pub sndbuf: u32,
    /// Maximum to which the send buffer of a connection grows by itself.
    pub sndbuf_max: u32,
    /// net.ipv4.tcp_rmem[1]; half of it is window.
    pub rcvbuf: u32,
    /// net.ipv4.tcp_rmem[2]: maximum to which the receive buffer of a connection grows by itself.
    pub rcvbuf_max: u32,
    /// net.core.rmem_default and wmem_default: buffers of UDP sockets.
    pub udp_buf: u32,
    /// net.core.rmem_max and wmem_max: bound of SO_RCVBUF and SO_SNDBUF before doubling.
    pub sockopt_buf_max: u32,
    /// net.core.somaxconn.
    pub somaxconn: u32,
    /// net.ipv4.tcp_max_syn_backlog; below it a full SYN queue drops nothing, as with tcp_syncookies = 1.
    pub max_syn_backlog: u32,
    /// net.ipv4.tcp_keepalive_time, in seconds.
    pub keepalive_time: u32,
    /// net.ipv4.tcp_keepalive_intvl, in seconds.
    pub keepalive_intvl: u32,
    /// net.ipv4.tcp_keepalive_probes.
    pub keepalive_probes: u32,
    /// net.ipv4.ip_local_port_range, both inclusive.
    pub local_ports: (u16, u16),
    /// Whether destinations outside of the node's networks have a route (then packets to nowhere are lost in the
    /// fabric); otherwise they give ENETUNREACH.
    pub default_route: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            mss: 1460,
            loopback_mss: 65483,
            loopback_delay: 0,
            rto_initial: SECS,
            rto_min: 200 * MILLIS,
            rto_max: 120 * SECS,
            syn_retries: 6,
            synack_retries: 5,
            retries2: 15,
            orphan_retries: 8,
            delayed_ack: 40 * MILLIS,
            quick_acks: 16,
            invalid_ratelimit: 500 * MILLIS,
            time_wait: 60 * SECS,
            fin_timeout: 60 * SECS,
            initial_cwnd: 10,
            sndbuf: 16384,
            sndbuf_max: 4 << 20,
            rcvbuf: 131_072,
            rcvbuf_max: 6 << 20,
            udp_buf: 212_992,
            sockopt_buf_max: 212_992,
            somaxconn: 4096,
            max_syn_backlog: 4096,
            keepalive_time: 7200,
            keepalive_intvl: 75,
            keepalive_probes: 9,
            local_ports: (32768, 60999),
            default_route: false,
        }
    }
}

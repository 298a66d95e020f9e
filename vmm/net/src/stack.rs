//! [`Stack`]: the sockets of one network namespace and the calls on them. This module holds the tables, options and queries;
//! `bind` names and ports, `connect` opening and closing, `data` sending and receiving, `demux` arriving packets,
//! `group` datagrams to several nodes, `raw` raw sockets and ICMP, `tap` packet sockets, `time` timers and events.

mod bind;
mod connect;
mod data;
mod demux;
mod filter;
mod group;
mod guard;
mod raw;
mod reports;
mod tap;
mod time;

pub(crate) use guard::{Guard, dress, is_signed};
pub(crate) use tap::Tap;
pub use tap::{Frame, FrameKind, hardware_address};

use crate::iface::{Interfaces, shown, unspecified};
use crate::names::{Names, ServerAnswer};
use crate::naming::PortUses;
use crate::socket::{Common, Cx, Kind, Socket, Udp};
use crate::{
    Body, Bytes, Config, Counters, Header, Options, Packet, Proto, ReadyFlags, SockOpt, SocketId, SocketInfo,
    StateChange, TcpInfo, TcpState, Tell, seq,
};
use bloodhound_abi::{Errno, SimTime};
use bloodhound_persistent::{Map, Set, Table};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

type Result<T, E = Errno> = std::result::Result<T, E>;

/// A connection's two ends: (local, peer).
type Pair = (SocketAddr, SocketAddr);

/// One node's TCP/IP stack. Every call on an id that is not open gives EBADF. Nothing blocks: where Linux would
/// block, the call gives what it gives on a non-blocking socket, and an event says when to try again.
///
/// Addresses may be given and are returned in the socket's family; on an AF_INET6 socket IPv4 is
/// `::ffff:a.b.c.d`. Packets carry the plain IPv4 address.
///
/// Packets to a local address are queued inside with `Config::loopback_delay` and delivered by
/// [`Stack::on_time`], so they pass through time order like all else and meet no faults.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Stack {
    net: Interfaces,
    seed: u64,
    sockets: Table<SocketId, Socket>,
    next_id: u32,
    /// TCP connections: to a connection, to its TIME_WAIT, or to the listener that has it half open.
    conns: Map<Pair, SocketId>,
    /// Who holds which port.
    ports: Set<(Proto, u16, SocketId)>,
    /// Listening sockets by port.
    listeners: Set<(u16, SocketId)>,
    /// Sockets with a deadline.
    timers: Set<(SimTime, SocketId)>,
    events: Vec<(SocketId, ReadyFlags)>,
    /// What owners are told, not yet taken.
    tells: Vec<(SocketId, Tell)>,
    /// Sockets that got an urgent mark, not yet taken.
    urgent: Vec<SocketId>,
    /// Changes of connections that were not yet taken.
    changes: Vec<StateChange>,
    /// Where the search for an ephemeral port goes on, as an offset into the range; rounds through the range are added.
    next_port: u64,
    /// Which life of its node it belongs to.
    life: u32,
    port_uses: PortUses,
    /// What all sockets hold; see [`Stack::held_bytes`].
    held: u64,
}

impl Stack {
    /// A stack with loopback only. `seed` sets the first ephemeral port and the initial sequence numbers; a
    /// restarted node should get another one.
    pub fn new(config: Config, seed: u64) -> Stack {
        let (low, high) = config.local_ports;
        assert!(low > 0 && low <= high, "an empty range of local ports");
        let next_port = seq::mix(seed) % (u64::from(high - low) + 1);
        Stack {
            net: Interfaces {
                config,
                addresses: Vec::new(),
                out: Vec::new(),
                counters: Counters::default(),
                watchers: 0,
                noted: Vec::new(),
                loopback: VecDeque::new(),
                names: Names::default(),
                published: Arc::default(),
            },
            seed,
            sockets: Table::new(),
            next_id: 0,
            conns: Map::new(),
            ports: Set::new(),
            listeners: Set::new(),
            timers: Set::new(),
            events: Vec::new(),
            tells: Vec::new(),
            urgent: Vec::new(),
            changes: Vec::new(),
            next_port,
            life: 0,
            port_uses: PortUses::default(),
            held: 0,
        }
    }

    /// Says which life of its node the stack belongs to: a part of the names of packets.
    #[must_use]
    pub fn in_life(self, life: u32) -> Stack {
        Stack { life, ..self }
    }

    /// Numbers its sockets from `first` on, so that the sockets of several stacks have different names.
    #[must_use]
    pub fn numbered_from(self, first: u32) -> Stack {
        Stack { next_id: first, ..self }
    }

    /// Gives the node an address; `prefix` is the length of its network's prefix, which decides what is reachable.
    pub fn add_address(&mut self, ip: IpAddr, prefix: u8) {
        let ip = ip.to_canonical();
        if !self.net.addresses.contains(&(ip, prefix)) {
            self.net.addresses.push((ip, prefix));
        }
    }

    /// The addresses given so far with their prefixes, without loopback.
    pub fn addresses(&self) -> &[(IpAddr, u8)] {
        &self.net.addresses
    }

    /// The constants in use.
    pub fn config(&self) -> &Config {
        &self.net.config
    }

    /// socket(AF_INET or AF_INET6, SOCK_STREAM).
    pub fn tcp_socket(&mut self, v6: bool) -> SocketId {
        let common = Common::new(Proto::Tcp, v6, &self.net.config);
        self.insert(common, Kind::Idle)
    }

    /// socket(AF_INET or AF_INET6, SOCK_DGRAM).
    pub fn udp_socket(&mut self, v6: bool) -> SocketId {
        let common = Common::new(Proto::Udp, v6, &self.net.config);
        self.insert(common, Kind::Udp(Udp::default()))
    }

    /// socket(AF_INET or AF_INET6, SOCK_DGRAM, IPPROTO_UDPLITE).
    pub fn udplite_socket(&mut self, v6: bool) -> SocketId {
        let common = Common::new(Proto::UdpLite, v6, &self.net.config);
        self.insert(common, Kind::Udp(Udp::default()))
    }

    fn insert(&mut self, common: Common, kind: Kind) -> SocketId {
        let id = SocketId(self.next_id);
        self.next_id = self.next_id.checked_add(1).expect("fewer than 2^32 sockets per node");
        self.sockets.insert(id, Socket { common, kind, deadline: None, held: 0 });
        self.weigh(id);
        id
    }

    /// A socket that the user has.
    fn get(&self, id: SocketId) -> Result<&Socket> {
        let open = |s: &&Socket| !s.common.orphan && !s.common.unaccepted;
        self.sockets.get(&id).filter(open).ok_or(Errno::EBADF)
    }

    fn get_mut(&mut self, id: SocketId) -> Result<&mut Socket> {
        let open = |s: &&mut Socket| !s.common.orphan && !s.common.unaccepted;
        self.sockets.get_mut(&id).filter(open).ok_or(Errno::EBADF)
    }

    /// A socket that the user has, with the context for its handlers.
    fn with_cx(&mut self, id: SocketId, now: SimTime) -> Result<(&mut Kind, Cx<'_>)> {
        let open = |s: &&mut Socket| !s.common.orphan && !s.common.unaccepted;
        let socket = self.sockets.get_mut(&id).filter(open).ok_or(Errno::EBADF)?;
        Ok((&mut socket.kind, Cx { c: &mut socket.common, net: &mut self.net, now }))
    }

    /// setsockopt(2). EINVAL out of range; ENOPROTOOPT for a TCP option on UDP.
    pub fn set_option(&mut self, id: SocketId, option: SockOpt, now: SimTime) -> Result<()> {
        let (kind, mut cx) = self.with_cx(id, now)?;
        check_option(option, cx.c)?;
        store_option(option, &mut cx);
        if let (Kind::Udp(udp), SockOpt::RecvErr(false) | SockOpt::RecvErr6(false)) = (&mut *kind, option) {
            // "if (!val) skb_queue_purge(&sk->sk_error_queue)" (do_ip_setsockopt).
            while udp.pop_report().is_some() {}
        }
        if let Kind::Conn(conn) = kind {
            match option {
                SockOpt::NoDelay(true) | SockOpt::Cork(false) => conn.flush(&mut cx),
                SockOpt::QuickAck(on) => conn.set_quickack(on, &mut cx),
                SockOpt::KeepAlive(_) => conn.reset_keepalive(&cx),
                SockOpt::KeepIdle(_) if cx.c.opts.keepalive => conn.reset_keepalive(&cx),
                SockOpt::SndBuf(_) if !conn.is_writable(cx.c) => {}
                _ => cx.c.wake(told_of(option)),
            }
        } else {
            cx.c.wake(told_of(option));
        }
        self.settle(id, now);
        Ok(())
    }

    /// getsockopt(2) of all options.
    pub fn options(&self, id: SocketId) -> Result<&Options> {
        Ok(&self.get(id)?.common.opts)
    }

    /// SO_ERROR: takes the pending error.
    pub fn take_error(&mut self, id: SocketId) -> Result<Option<Errno>> {
        Ok(self.get_mut(id)?.common.take_error())
    }

    /// Leaves an error for the next call that looks for one. Nobody is woken.
    pub fn keep_error(&mut self, id: SocketId, error: Errno) -> Result<()> {
        self.get_mut(id)?.common.error = Some(error);
        Ok(())
    }

    /// Which halves shutdown(2) or the end of a connection has closed: reading, writing.
    pub fn shut_halves(&self, id: SocketId) -> (bool, bool) {
        self.get(id).map_or((false, false), |s| (s.common.shut_read, s.common.shut_write))
    }

    /// Whether the socket listens (SO_ACCEPTCONN).
    pub fn is_listening(&self, id: SocketId) -> bool {
        self.get(id).is_ok_and(|s| matches!(s.kind, Kind::Listen(_)))
    }

    /// getsockname(2), in the socket's family (IPv4 on a v6 socket is `::ffff:a.b.c.d`).
    pub fn local_addr(&self, id: SocketId) -> Result<SocketAddr> {
        let c = &self.get(id)?.common;
        Ok(shown(c.local, c.v6))
    }

    /// getpeername(2). ENOTCONN.
    pub fn peer_addr(&self, id: SocketId) -> Result<SocketAddr> {
        let socket = self.get(id)?;
        let gone = socket.common.proto == Proto::Tcp
            && matches!(socket.state(), TcpState::Close | TcpState::SynSent);
        let peer = socket.common.peer.filter(|_| !gone).ok_or(Errno::ENOTCONN)?;
        Ok(shown(peer, socket.common.v6))
    }

    /// What poll(2) reports now; empty for an id that is not open. Does not allocate.
    pub fn readiness(&self, id: SocketId) -> ReadyFlags {
        self.get(id).map_or(ReadyFlags::empty(), Socket::readiness)
    }

    /// Whether all that makes a socket readable are datagrams whose checksum is wrong.
    pub fn has_only_damaged(&self, id: SocketId) -> bool {
        self.get(id).is_ok_and(|s| match &s.kind {
            Kind::Udp(udp) => !udp.queue.is_empty() && udp.sound().is_none() && !s.common.shut_read,
            _ => false,
        })
    }

    /// FIONREAD: bytes to read (UDP: of the first datagram). EINVAL on a listener.
    pub fn readable_bytes(&self, id: SocketId) -> Result<usize> {
        match &self.get(id)?.kind {
            Kind::Listen(_) => Err(Errno::EINVAL),
            Kind::Conn(conn) => Ok(conn.inquiry(&self.get(id)?.common)),
            Kind::Udp(udp) => Ok(udp.sound().map_or(0, |d| d.data.len())),
            Kind::Packet(tap) => Ok(tap.queue.front().map_or(0, |frame| frame.data.len())),
            Kind::Idle | Kind::TimeWait(_) => Ok(0),
        }
    }

    /// How many bytes a read of a stream gets in one piece: what is there, up to the urgent mark.
    pub fn next_piece(&self, id: SocketId) -> usize {
        let Ok(socket) = self.get(id) else { return 0 };
        if let Kind::Conn(conn) = &socket.kind { conn.next_piece(&socket.common) } else { 0 }
    }

    /// Bytes of a stream that have come and are not read, the urgent one among them.
    pub fn received_bytes(&self, id: SocketId) -> usize {
        self.get(id).map_or(0, |s| if let Kind::Conn(conn) = &s.kind { conn.rcv.len() } else { 0 })
    }

    /// SIOCATMARK: whether the urgent byte comes next.
    pub fn at_mark(&self, id: SocketId) -> bool {
        self.get(id).is_ok_and(|s| matches!(&s.kind, Kind::Conn(conn) if conn.at_mark()))
    }

    /// SIOCOUTQ: bytes not yet acknowledged. EINVAL on a listener.
    pub fn unacked_bytes(&self, id: SocketId) -> Result<usize> {
        self.written_ahead(id).map(|[unacked, _]| unacked)
    }

    /// SIOCOUTQNSD: bytes not yet sent. EINVAL on a listener.
    pub fn unsent_bytes(&self, id: SocketId) -> Result<usize> {
        self.written_ahead(id).map(|[_, unsent]| unsent)
    }

    /// By how many bytes what was written is ahead of what is acknowledged, and of what was sent (`tcp_ioctl`).
    fn written_ahead(&self, id: SocketId) -> Result<[usize; 2]> {
        let socket = self.get(id)?;
        match &socket.kind {
            Kind::Listen(_) => Err(Errno::EINVAL),
            Kind::Conn(conn) => Ok(conn.written_ahead().map(|bytes| bytes as usize)),
            Kind::Idle => Ok(socket.common.ahead.map(|bytes| bytes as usize)),
            Kind::Udp(_) | Kind::TimeWait(_) | Kind::Packet(_) => Ok([0; 2]),
        }
    }

    /// Bytes in the send buffer of a connection.
    pub fn queued_bytes(&self, id: SocketId) -> usize {
        self.get(id).map_or(0, |s| if let Kind::Conn(conn) = &s.kind { conn.snd.len() } else { 0 })
    }

    /// TCP_INFO of a connection; `None` for a TCP socket without one. EOPNOTSUPP on UDP.
    pub fn tcp_info(&self, id: SocketId) -> Result<Option<TcpInfo>> {
        match &self.get(id)?.kind {
            Kind::Conn(conn) => Ok(Some(conn.info(&self.net.config))),
            Kind::Udp(_) | Kind::Packet(_) => Err(Errno::EOPNOTSUPP),
            _ => Ok(None),
        }
    }

    /// The TCP state of a socket, `Close` for UDP without a peer; also for ids that the user has closed, as long as
    /// their connection lives.
    pub fn state(&self, id: SocketId) -> Option<TcpState> {
        self.sockets.get(&id).map(Socket::state)
    }

    /// What /proc/net/{tcp,udp} list: listeners, connections (also half-open ones and TIME_WAIT) and bound UDP
    /// sockets, in the order of their ids.
    pub fn sockets(&self) -> Vec<SocketInfo> {
        let mut list = Vec::new();
        for (id, socket) in self.sockets.iter() {
            let c = &socket.common;
            if !c.holds_port || (c.proto == Proto::Tcp && socket.state() == TcpState::Close) {
                continue;
            }
            let (tx_queue, rx_queue) = match &socket.kind {
                Kind::Listen(listener) => (listener.backlog as usize, listener.queue.len()),
                Kind::Conn(conn) => (conn.snd.len(), conn.rcv.len()),
                Kind::Udp(udp) => (0, udp.used),
                Kind::Packet(tap) => (0, tap.used),
                Kind::Idle | Kind::TimeWait(_) => (0, 0),
            };
            let info = SocketInfo {
                id: (!c.orphan && !c.unaccepted).then_some(*id),
                proto: c.proto,
                v6: c.v6,
                state: socket.state(),
                local: shown(c.local, c.v6),
                peer: c.peer.map_or(unspecified(c.v6), |peer| shown(peer, c.v6)),
                bound_port: c.bound_port && !matches!(socket.kind, Kind::TimeWait(_)),
                tx_queue: tx_queue as u32,
                rx_queue: rx_queue as u32,
            };
            let half_open = match &socket.kind {
                Kind::Listen(listener) => Some(listener.requests.keys()),
                _ => None,
            };
            list.push(info.clone());
            for (local, peer) in half_open.into_iter().flatten() {
                let (local, peer) = (shown(*local, c.v6), shown(*peer, c.v6));
                list.push(SocketInfo {
                    id: None,
                    state: TcpState::SynRecv,
                    local,
                    peer,
                    bound_port: false,
                    tx_queue: 0,
                    rx_queue: 0,
                    ..info.clone()
                });
            }
        }
        list
    }

    /// Puts a name server at 127.0.0.11 that knows these names (in lower case); every other name does not exist.
    pub fn serve_names(&mut self, table: Arc<BTreeMap<String, Vec<IpAddr>>>) {
        self.net.names.table = Some(table);
    }

    /// Puts other nodes behind TCP ports of the loopback addresses: a connection to `127.0.0.1:PORT` is one to them.
    pub fn publish(&mut self, ports: Arc<BTreeMap<u16, SocketAddr>>) {
        self.net.published = ports;
    }

    /// Whether questions to the name server are handed over ([`Stack::take_questions`]) instead of being answered at once.
    pub fn hold_questions(&mut self, hold: bool) {
        self.net.names.held = hold;
    }

    /// Takes the questions to the name server that wait for [`Stack::answer_to`].
    pub fn take_questions(&mut self) -> Vec<Packet> {
        std::mem::take(&mut self.net.names.questions)
    }

    /// The name server's answer to a question, as a packet; `None` for what is no question.
    pub fn answer_to(&mut self, question: &Packet, answer: ServerAnswer) -> Option<Packet> {
        let Body::Udp(_, data) = &question.body else { return None };
        let data = match answer {
            ServerAnswer::Known => self.net.names.answer(data),
            ServerAnswer::Failure => Names::failure(data),
        }?;
        let body = Body::Udp(Header::default(), Bytes::copy(&data));
        Some(Packet { src: question.dst, dst: question.src, body, place: question.place })
    }

    /// An answer of the name server arrives.
    pub fn hear(&mut self, answer: Packet, now: SimTime) {
        self.net.emit(answer, now);
    }

    /// The names that did not exist, in the order in which they were asked for.
    pub fn take_unknown_names(&mut self) -> Vec<String> {
        std::mem::take(&mut self.net.names.unknown)
    }

    /// Packets for the fabric, in the order in which they were sent.
    pub fn take_output(&mut self) -> Vec<Packet> {
        std::mem::take(&mut self.net.out)
    }

    /// Bytes of kernel memory that all sockets take with what is in their queues, nearly: what Linux charges for them.
    pub fn held_bytes(&self) -> u64 {
        self.held
    }

    /// Counts anew what a socket takes, after something has changed in it.
    fn weigh(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get(&id) else { return };
        let (before, now) = (socket.held, socket.weight());
        if before != now
            && let Some(socket) = self.sockets.get_mut(&id)
        {
            socket.held = now;
            self.held = self.held + now - before;
        }
    }

    /// What has been counted.
    pub fn counters(&self) -> &Counters {
        &self.net.counters
    }

    /// Whether packets or events wait to be taken.
    pub fn has_output(&self) -> bool {
        !self.net.out.is_empty() || !self.events.is_empty()
    }
}

/// What an option tells of who has room: "Wake up sending tasks if we upped the value. sk->sk_write_space(sk)" (`sk_setsockopt`).
fn told_of(option: SockOpt) -> ReadyFlags {
    if matches!(option, SockOpt::SndBuf(_)) { ReadyFlags::WRITE } else { ReadyFlags::empty() }
}

/// The ranges that Linux accepts (`do_tcp_setsockopt`).
fn check_option(option: SockOpt, c: &Common) -> Result<()> {
    let tcp_only = matches!(
        option,
        SockOpt::NoDelay(_)
            | SockOpt::Cork(_)
            | SockOpt::QuickAck(_)
            | SockOpt::KeepIdle(_)
            | SockOpt::KeepIntvl(_)
            | SockOpt::KeepCnt(_)
            | SockOpt::UserTimeout(_)
            | SockOpt::MaxSeg(_)
            | SockOpt::SynCnt(_)
            | SockOpt::Linger2(_)
    );
    if tcp_only && c.proto != Proto::Tcp {
        return Err(Errno::ENOPROTOOPT);
    }
    let valid = match option {
        SockOpt::KeepIdle(secs) | SockOpt::KeepIntvl(secs) => (1..=32767).contains(&secs),
        SockOpt::KeepCnt(count) | SockOpt::SynCnt(count) => (1..=127).contains(&count),
        SockOpt::MaxSeg(size) => size == 0 || (88..=32767).contains(&size),
        SockOpt::UserTimeout(ms) => i32::try_from(ms).is_ok(),
        SockOpt::V6Only(_) if !c.v6 => return Err(Errno::ENOPROTOOPT),
        SockOpt::V6Only(_) => !c.holds_port,
        _ => true,
    };
    if valid { Ok(()) } else { Err(Errno::EINVAL) }
}

fn store_option(option: SockOpt, cx: &mut Cx<'_>) {
    let limit = cx.net.config.sockopt_buf_max;
    let opts = &mut cx.c.opts;
    match option {
        SockOpt::NoDelay(on) => opts.nodelay = on,
        SockOpt::Cork(on) => opts.cork = on,
        SockOpt::QuickAck(_) => {}
        SockOpt::KeepAlive(on) => opts.keepalive = on,
        SockOpt::KeepIdle(secs) => opts.keepidle = secs,
        SockOpt::KeepIntvl(secs) => opts.keepintvl = secs,
        SockOpt::KeepCnt(count) => opts.keepcnt = count,
        SockOpt::UserTimeout(ms) => opts.user_timeout = ms,
        SockOpt::MaxSeg(size) => opts.max_seg = (size > 0).then_some(size),
        SockOpt::SynCnt(count) => opts.syn_cnt = count,
        SockOpt::Linger2(secs) => opts.linger2 = secs,
        SockOpt::ReuseAddr(on) => opts.reuseaddr = on,
        SockOpt::ReusePort(on) => opts.reuseport = on,
        // "The kernel doubles this value (to allow space for bookkeeping overhead)" (socket(7)); the minima are
        // SOCK_MIN_SNDBUF and SOCK_MIN_RCVBUF.
        SockOpt::SndBuf(bytes) => {
            opts.sndbuf = (bytes.min(limit) * 2).max(4608);
            opts.sndbuf_locked = true;
        }
        SockOpt::RcvBuf(bytes) => {
            opts.rcvbuf = (bytes.min(limit) * 2).max(2304);
            opts.rcvbuf_locked = true;
        }
        SockOpt::RcvLowat(bytes) => opts.rcvlowat = bytes.clamp(1, i32::MAX as u32),
        SockOpt::Linger(secs) => opts.linger = secs,
        SockOpt::V6Only(on) => opts.v6only = on,
        SockOpt::OobInline(on) => opts.oobinline = on,
        SockOpt::GroupInterface(number) => opts.group_interface = number,
        SockOpt::GroupInterface6(number) => opts.group_interface6 = number,
        SockOpt::GroupAll(on) => opts.group_all = on,
        SockOpt::GroupAll6(on) => opts.group_all6 = on,
        SockOpt::RecvErr(on) => opts.recverr = on,
        SockOpt::RecvErr6(on) => opts.recverr6 = on,
        SockOpt::SelectErrQueue(on) => opts.select_err_queue = on,
        SockOpt::Device(number) => opts.device = number,
        SockOpt::BufLock(locked) => [opts.sndbuf_locked, opts.rcvbuf_locked] = locked,
        SockOpt::UnicastInterface(number) => opts.unicast_interface = number,
        SockOpt::UnicastInterface6(number) => opts.unicast_interface6 = number,
        SockOpt::IncomingCpu(number) => opts.incoming_cpu = number,
    }
}

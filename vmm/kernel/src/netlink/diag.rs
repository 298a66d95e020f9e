//! NETLINK_SOCK_DIAG (sock_diag(7)): what sockets there are, as ss(8) asks for it.
//!
//! Families are those of the internet with TCP, UDP and UDP-Lite, and unix sockets; for all others the kernel answers as without their
//! modules (ENOENT), and ss(8) reads /proc/net. Key function: [`answer`].

use std::net::{IpAddr, SocketAddr};

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_net::{Proto, SocketInfo, TcpState};

use super::filter::Filter;
use super::message::{DUMP, HEADER, MULTI, Message, Request};
use super::route::Reply;
use crate::file::FileKind;
use crate::ids::UnixId;
use crate::node::Node;
use crate::procfs::anonymous_ino;
use crate::stacks::NetNs;
use crate::unix::Name;

/// NETLINK_SOCK_DIAG.
pub const SOCK_DIAG: u64 = 4;
/// Types of requests: TCPDIAG_GETSOCK and DCCPDIAG_GETSOCK, SOCK_DIAG_BY_FAMILY, SOCK_DESTROY.
const OLD: std::ops::RangeInclusive<u16> = 18..=19;
/// IPPROTO_DCCP, which nothing here speaks.
const DCCP: u8 = 33;
const BY_FAMILY: u16 = 20;
const DESTROY: u16 = 21;
/// Families end here (AF_MAX of Linux 6.1).
const FAMILIES: u8 = 46;
/// Bytes of `struct inet_diag_req_v2` and `struct unix_diag_req`.
const INET_REQUEST: usize = 56;
const UNIX_REQUEST: usize = 24;
/// Attributes of requests and answers: INET_DIAG_REQ_BYTECODE, INET_DIAG_REQ_PROTOCOL, INET_DIAG_INFO, INET_DIAG_CONG, INET_DIAG_SKMEMINFO, INET_DIAG_SHUTDOWN,
/// INET_DIAG_SKV6ONLY.
const BYTECODE: u16 = 1;
const PROTOCOL: u16 = 3;
const INFO: u16 = 2;
const CONGESTION: u16 = 4;
const MEMORY: u16 = 7;
const SHUTDOWN: u16 = 8;
const V6ONLY: u16 = 11;
/// UNIX_DIAG_NAME and so on (not UNIX_DIAG_VFS, the inode of the name), and the bits UDIAG_SHOW_* that ask for them.
const UNIX_NAME: u16 = 0;
const UNIX_PEER: u16 = 2;
const UNIX_PENDING: u16 = 3;
const UNIX_QUEUE: u16 = 4;
const UNIX_MEMORY: u16 = 5;
const UNIX_SHUTDOWN: u16 = 6;
const UNIX_UID: u16 = 7;
const SHOW_UID: u32 = 0x40;
/// INET_DIAG_NOCOOKIE, for "whatever cookie".
const NO_COOKIE: u32 = u32::MAX;

/// Answers a request of the socket with this port in this network namespace.
pub fn answer(node: &Node, net: NetNs, port: u32, request: &Request<'_>) -> Result<Reply, Errno> {
    let dump = request.flags & DUMP != 0;
    match request.kind {
        BY_FAMILY | DESTROY if request.payload().len() < 2 || request.byte(0) >= FAMILIES => {
            return Err(Errno::EINVAL);
        }
        BY_FAMILY => {}
        // CAP_NET_ADMIN, for a family that has it.
        DESTROY if matches!(u64::from(request.byte(0)), c::AF_INET | c::AF_INET6) => {
            return Err(Errno::EPERM);
        }
        DESTROY => return Err(Errno::EOPNOTSUPP),
        kind if OLD.contains(&kind) => return of_old_type(node, net, port, request),
        kind if kind < super::message::MIN_TYPE => return Ok(Reply::Nothing),
        _ => return Err(Errno::EINVAL),
    }
    match u64::from(request.byte(0)) {
        c::AF_INET | c::AF_INET6 if request.payload().len() < INET_REQUEST => Err(Errno::EINVAL),
        c::AF_INET | c::AF_INET6 => inet(node, net, port, request, dump),
        c::AF_UNIX if request.payload().len() < UNIX_REQUEST => Err(Errno::EINVAL),
        c::AF_UNIX => unix(node, net, port, request, dump),
        _ => Err(Errno::ENOENT),
    }
}

/// A request of the old types, TCPDIAG_GETSOCK and DCCPDIAG_GETSOCK, with `struct inet_diag_req` (`inet_diag_rcv_msg_compat`): a dump of them is of all families, and answers
/// have the type of the request.
fn of_old_type(node: &Node, net: NetNs, port: u32, request: &Request<'_>) -> Result<Reply, Errno> {
    const OLD_REQUEST: usize = 60;
    let (payload, dump) = (request.payload(), request.flags & DUMP != 0);
    if payload.len() < OLD_REQUEST {
        return Err(Errno::EINVAL);
    }
    let family = if dump { c::AF_UNSPEC as u8 } else { payload[0] };
    if !dump && !matches!(u64::from(family), c::AF_INET | c::AF_INET6) {
        return Err(Errno::EINVAL);
    }
    let protocol = if request.kind == *OLD.start() { c::IPPROTO_TCP as u8 } else { DCCP };
    // idiag_ext, idiag_states and the ends lie elsewhere in `struct inet_diag_req_v2`.
    let mut whole = request.whole[..HEADER].to_vec();
    whole.extend_from_slice(&[family, protocol, payload[3], 0]);
    whole.extend_from_slice(&payload[52..56]);
    whole.extend_from_slice(&payload[4..52]);
    whole.extend_from_slice(&payload[OLD_REQUEST..]);
    inet(node, net, port, &Request { whole: &whole, ..*request }, dump)
}

fn inet(node: &Node, net: NetNs, port: u32, request: &Request<'_>, dump: bool) -> Result<Reply, Errno> {
    // Of several attributes of a kind the last counts (inet_diag_parse_attrs).
    let attributes = request.attributes(INET_REQUEST);
    let given =
        |kind: u16| attributes.iter().rev().find(|(known, _)| *known == kind).map(|(_, value)| *value);
    let protocol = match given(PROTOCOL) {
        Some(value) => u32::from_le_bytes(value.try_into().map_err(|_| Errno::EINVAL)?),
        None => u32::from(request.byte(1)),
    };
    let proto = match u64::from(protocol) {
        c::IPPROTO_TCP => Proto::Tcp,
        c::IPPROTO_UDP => Proto::Udp,
        c::IPPROTO_UDPLITE => Proto::UdpLite,
        // inet_diag_lock_handler, whose error a dump tells at its end.
        _ if dump => return Ok(Reply::NoDump(Errno::ENOENT)),
        _ => return Err(Errno::ENOENT),
    };
    let filter = given(BYTECODE).filter(|_| dump).map(Filter::new).transpose()?;
    let family = u64::from(request.byte(0));
    let of_family = |s: &SocketInfo| family == c::AF_UNSPEC || s.v6 == (family == c::AF_INET6);
    let all = node.net.stack(net).sockets().into_iter().filter(|s| s.proto == proto && of_family(s));
    // idiag_ext, idiag_states, and idiag_sport and idiag_dport in the byte order of the network.
    let (ext, states) = (request.byte(2), request.word(4));
    let number = |at: usize| u16::from(request.byte(at)) << 8 | u16::from(request.byte(at + 1));
    let (sport, dport) = (number(8), number(10));
    if !dump {
        let all: Vec<SocketInfo> = all.collect();
        let named = |at: usize, ip: IpAddr| octets(ip) == request.payload()[at..at + 16];
        let ends = |s: &&SocketInfo| {
            let ports = (s.local.port(), s.peer.port()) == (sport, dport);
            ports && named(12, s.local.ip()) && named(28, s.peer.ip())
        };
        // Who would get a packet of these ends: a connection, else who waits at the port (inet_lookup).
        let waits = |s: &&SocketInfo| {
            let open = matches!(s.state, TcpState::Listen | TcpState::Close) && s.peer.port() == 0;
            open && s.local.port() == sport && (s.local.ip().is_unspecified() || named(12, s.local.ip()))
        };
        let found = all.iter().find(ends).or_else(|| all.iter().find(waits)).ok_or(Errno::ENOENT)?.clone();
        if request.word(48) != NO_COOKIE && (request.word(48), request.word(52)) != cookie(&found) {
            return Err(Errno::ESTALE);
        }
        return Ok(Reply::One(inet_message(node, net, (port, 0), request, &found, ext)));
    }
    let fits = |port: u16, own: u16| port == 0 || port == own;
    let wanted = all.filter(|s| {
        let ports = fits(sport, s.local.port()) && fits(dport, s.peer.port());
        states & 1 << s.state as u32 != 0 && ports && filter.is_none_or(|filter| filter.passes(s))
    });
    let messages = wanted.map(|s| inet_message(node, net, (port, MULTI), request, &s, ext)).collect();
    Ok(Reply::Dump(messages, 0))
}

/// An address in 16 bytes.
pub(super) fn octets(ip: IpAddr) -> [u8; 16] {
    let mut out = [0; 16];
    match ip {
        IpAddr::V4(ip) => out[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => out = ip.octets(),
    }
    out
}

/// The two words of SO_COOKIE.
fn cookie(s: &SocketInfo) -> (u32, u32) {
    (s.id.map_or(0, |id| id.0.wrapping_mul(2).wrapping_add(1)), 0)
}

/// `struct inet_diag_msg` with its attributes (`inet_sk_diag_fill`).
fn inet_message(
    node: &Node,
    net: NetNs,
    (port, flags): (u32, u16),
    request: &Request<'_>,
    s: &SocketInfo,
    ext: u8,
) -> Message {
    let stack = node.net.stack(net);
    let family = if s.v6 { c::AF_INET6 } else { c::AF_INET };
    let socket = s.id.and_then(|id| node.inet.get(&id));
    // A connection in TIME_WAIT shows its timer.
    let timer = if s.state == TcpState::TimeWait { 3 } else { 0 };
    let mut header = vec![family as u8, s.state as u8, timer, 0];
    header.extend_from_slice(&s.local.port().to_be_bytes());
    header.extend_from_slice(&s.peer.port().to_be_bytes());
    header.extend_from_slice(&octets(SocketAddr::ip(&s.local)));
    header.extend_from_slice(&octets(SocketAddr::ip(&s.peer)));
    let inode = s.id.map_or(0, |id| anonymous_ino(&FileKind::Inet(id)) as u32);
    let uid = socket.map_or(0, |socket| socket.generic.uid);
    let (low, high) = cookie(s);
    for word in [0, low, high, 0, s.rx_queue, s.tx_queue, uid, inode] {
        header.extend_from_slice(&word.to_le_bytes());
    }
    let message = Message::new(request.kind, flags, request.seq, port, &header);
    let Some((id, options)) = s.id.and_then(|id| Some((id, stack.options(id).ok()?))) else {
        return message;
    };
    let asked = |kind: u16| ext & 1 << (kind - 1) != 0;
    let shut = stack.shut_halves(id);
    let mut message = message.with(SHUTDOWN, &[u8::from(shut.0) | u8::from(shut.1) << 1]);
    if s.v6 {
        message = message.with(V6ONLY, &[u8::from(options.v6only)]);
    }
    if asked(MEMORY) {
        let words = [s.rx_queue, options.rcvbuf, 0, options.sndbuf, 0, s.tx_queue, 0, 0, 0];
        message = message.with(MEMORY, &words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>());
    }
    if s.proto == Proto::Tcp && asked(CONGESTION) {
        message = message.with(CONGESTION, b"cubic\0");
    }
    if s.proto == Proto::Tcp && asked(INFO) {
        message = message.with(INFO, &crate::sys::sockopt::tcp_info_of(stack, id));
    }
    message
}

fn unix(node: &Node, net: NetNs, port: u32, request: &Request<'_>, dump: bool) -> Result<Reply, Errno> {
    let (states, ino, show) = (request.word(4), request.word(8), request.word(12));
    let all = node.unix.iter().filter(|(_, s)| s.net == net && !s.is_log());
    if dump {
        let wanted = all.filter(|(id, _)| states & 1 << unix_state(node, *id) != 0);
        let messages = wanted.map(|(id, _)| unix_message(node, (port, MULTI), request, id, show)).collect();
        return Ok(Reply::Dump(messages, 0));
    }
    if ino == 0 {
        return Err(Errno::EINVAL);
    }
    let (id, _) = { all }.find(|(id, _)| unix_ino(node, *id) == ino).ok_or(Errno::ENOENT)?;
    Ok(Reply::One(unix_message(node, (port, 0), request, id, show)))
}

/// The state of a unix socket with the numbers of TCP's.
fn unix_state(node: &Node, id: UnixId) -> u8 {
    let state = match (node.unix.is_listening(id), node.unix.peer_name(id).is_ok()) {
        (true, _) => TcpState::Listen,
        (false, true) => TcpState::Established,
        (false, false) => TcpState::Close,
    };
    state as u8
}

/// One that was not accepted yet has none, as in /proc/net/unix.
fn unix_ino(node: &Node, id: UnixId) -> u32 {
    if node.unix.get(id).is_accepted() { anonymous_ino(&FileKind::Unix(id)) as u32 } else { 0 }
}

/// `struct unix_diag_msg` with its attributes (`sk_diag_fill` of unix/diag.c).
fn unix_message(
    node: &Node,
    (port, flags): (u32, u16),
    request: &Request<'_>,
    id: UnixId,
    show: u32,
) -> Message {
    let socket = node.unix.get(id);
    let asked = |kind: u16| show & 1 << kind != 0;
    let words = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<_>>();
    let mut header = vec![c::AF_UNIX as u8, socket.kind.number() as u8, unix_state(node, id), 0];
    header.extend(words(&[unix_ino(node, id), id.0.wrapping_mul(2).wrapping_add(2), 0]));
    let mut out = Message::new(BY_FAMILY, flags, request.seq, port, &header);
    if asked(UNIX_NAME) {
        out = match node.unix.local_name(id) {
            Some(Name::Path(path)) => out.with(UNIX_NAME, &[&path[..], b"\0"].concat()),
            Some(Name::Abstract(name)) => out.with(UNIX_NAME, &[b"\0", &name[..]].concat()),
            None => out,
        };
    }
    if asked(UNIX_PEER)
        && let Some(peer) = node.unix.peer_of(id)
    {
        out = out.word(UNIX_PEER, unix_ino(node, peer));
    }
    let listens = node.unix.is_listening(id);
    if asked(UNIX_PENDING) && listens {
        let pending: Vec<u32> = socket.pending.iter().map(|id| unix_ino(node, *id)).collect();
        out = out.with(UNIX_PENDING, &words(&pending));
    }
    if asked(UNIX_QUEUE) {
        // "For listeners, the number of pending connections [and] the backlog" (sock_diag(7)).
        let queues = match listens {
            true => [socket.pending.len() as u32, socket.backlog],
            false => {
                [node.unix.readable_bytes(id).unwrap_or(0) as u32, node.unix.unreceived_bytes(id) as u32]
            }
        };
        out = out.with(UNIX_QUEUE, &words(&queues));
    }
    if asked(UNIX_MEMORY) {
        let memory = [0, socket.rcvbuf, socket.charged as u32, socket.sndbuf, 0, 0, 0, 0, 0];
        out = out.with(UNIX_MEMORY, &words(&memory));
    }
    out = out.with(UNIX_SHUTDOWN, &[u8::from(socket.shut_read) | u8::from(socket.shut_write) << 1]);
    if show & SHOW_UID != 0 {
        out = out.word(UNIX_UID, socket.generic.uid);
    }
    out
}

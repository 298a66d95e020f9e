//! Which sockets there are: families with their types and protocols.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_net::Proto;

use crate::unix::Kind;

/// SOCK_TYPE_MASK.
const TYPE_MASK: u64 = 0xf;
/// Types end here (SOCK_MAX).
const TYPE_MAX: u64 = 11;
/// Internet protocol numbers end here (IPPROTO_MAX, with MPTCP).
const PROTOCOL_MAX: u64 = 263;

/// The kind of a unix socket.
pub(super) fn unix_kind(kind: u64, protocol: u64) -> Result<Kind, Errno> {
    if protocol != 0 && protocol != c::AF_UNIX {
        return Err(Errno::EPROTONOSUPPORT);
    }
    match kind {
        c::SOCK_STREAM => Ok(Kind::Stream),
        // Linux makes SOCK_RAW of this family a datagram socket.
        c::SOCK_DGRAM | c::SOCK_RAW => Ok(Kind::Datagram),
        c::SOCK_SEQPACKET => Ok(Kind::SeqPacket),
        _ => Err(Errno::ESOCKTNOSUPPORT),
    }
}

/// The protocol of an internet socket and its number. A raw one needs CAP_NET_RAW (EPERM).
pub(super) fn inet_proto(v6: bool, kind: u64, protocol: u64, raw: bool) -> Result<(Proto, u8), Errno> {
    if protocol >= PROTOCOL_MAX {
        return Err(Errno::EINVAL);
    }
    match (kind, protocol) {
        (c::SOCK_STREAM, 0 | c::IPPROTO_TCP) => Ok((Proto::Tcp, c::IPPROTO_TCP as u8)),
        (c::SOCK_DGRAM, 0 | c::IPPROTO_UDP) => Ok((Proto::Udp, c::IPPROTO_UDP as u8)),
        (c::SOCK_DGRAM, c::IPPROTO_UDPLITE) => Ok((Proto::UdpLite, c::IPPROTO_UDPLITE as u8)),
        (c::SOCK_DGRAM, c::IPPROTO_ICMP) if !v6 => Ok((Proto::Icmp, protocol as u8)),
        (c::SOCK_DGRAM, c::IPPROTO_ICMPV6) if v6 => Ok((Proto::Icmp, protocol as u8)),
        (c::SOCK_RAW, 0) | (c::SOCK_STREAM | c::SOCK_DGRAM, _) => Err(Errno::EPROTONOSUPPORT),
        (c::SOCK_RAW, _) if !raw => Err(Errno::EPERM),
        (c::SOCK_RAW, 1..=255) => Ok((Proto::Raw, protocol as u8)),
        // Numbers that fit into no header.
        (c::SOCK_RAW, _) => Err(Errno::EPROTONOSUPPORT),
        _ => Err(Errno::ESOCKTNOSUPPORT),
    }
}

/// Splits the type argument of socket(2) into type and flags. EINVAL.
pub(super) fn split_type(kind: u32) -> Result<(u64, u64), Errno> {
    let (kind, flags) = (u64::from(kind) & TYPE_MASK, u64::from(kind) & !TYPE_MASK);
    if flags & !(c::SOCK_CLOEXEC | c::SOCK_NONBLOCK) != 0 || kind >= TYPE_MAX {
        return Err(Errno::EINVAL);
    }
    Ok((kind, flags))
}

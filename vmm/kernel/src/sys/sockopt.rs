//! setsockopt(2) and getsockopt(2).
//!
//! Three kinds of options: those with an effect in the network stack ([`bloodhound_net::SockOpt`]) or in the kernel
//! (timeouts, SO_PASSCRED); those that are kept and shown again without an effect that a program here could see (module
//! [`kept`]); and all others ([`other`]), which fail with ENOPROTOOPT if Linux 6.1 does not know them. An option whose effect
//! matters and is not modelled stops the run instead of being ignored.

mod bpf;
mod device;
mod filters;
mod get;
mod groups;
mod guard;
mod headers;
mod kept;
mod other;
mod rare;
mod raw;
mod set;
mod stamps;

pub(crate) use get::tcp_info_of;
pub(super) use headers::STICKY;
pub(super) use kept::TCP_FASTOPEN_NO_COOKIE;
pub(crate) use kept::{IPV6_2292HOPLIMIT, IPV6_2292PKTINFO, IPV6_RECVORIGDSTADDR, SO_RCVMARK, kept_value};
pub(crate) use stamps::{flags_of_message, times_of};

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::ctx::*;
use crate::sys::socket::{SOL_PACKET, Sock};
use crate::wait::SysResult;

/// Longest name of a congestion control (TCP_CA_NAME_MAX).
const CONGESTION_NAME: usize = 16;
const SO_RESERVE_MEM: u64 = 73;
const SO_BUF_LOCK: u64 = 72;
const SO_TXREHASH: u64 = 74;
const UDP_ENCAP: u64 = 100;
/// UDPLITE_SEND_CSCOV and UDPLITE_RECV_CSCOV: how many bytes the checksum covers, 0 for all. Kept: nothing here arrives damaged.
const UDPLITE_COVERAGE: [u64; 2] = [10, 11];

/// setsockopt(2). ENOPROTOOPT for options that the socket does not have.
pub fn setsockopt(k: &mut Ctx<'_>, fd: Fd, level: u32, name: u32, value: Ptr, len: u32) -> SysResult {
    if (len as i32) < 0 {
        return err(Errno::EINVAL);
    }
    let (_, sock) = k.sock(fd)?;
    let (level, name) = (u64::from(level), u64::from(name));
    match (level, sock) {
        (c::SOL_SOCKET, _) => k.set_socket_option(sock, name, value, len)?,
        // unix sockets have no options of their own.
        (_, Sock::Unix(_)) => return err(Errno::EOPNOTSUPP),
        (_, Sock::Inet(id)) => k.set_protocol_option(id, level, name, value, len)?,
        (crate::netlink::SOL_NETLINK, Sock::Netlink(id)) => {
            // "if (optlen >= sizeof(int) && copy_from_sockptr(&val, optval, sizeof(int)))" (netlink_setsockopt).
            let number: u32 = if len < 4 { 0 } else { k.read_obj(value)? };
            k.set_netlink_option(id, name, number)?;
        }
        (SOL_PACKET, Sock::Packet(id)) => k.set_packet_option(id, name, value, len)?,
        (_, Sock::Netlink(_) | Sock::Packet(_)) => return err(Errno::ENOPROTOOPT),
    }
    // Stopping a wait for room or changing a buffer may wake somebody.
    k.node.drain_net();
    k.node.settle_unix(k.outside.base);
    Ok(0)
}

/// getsockopt(2). ENOPROTOOPT for options that the socket does not have.
pub fn getsockopt(k: &mut Ctx<'_>, fd: Fd, level: u32, name: u32, value: Ptr, len: Ptr) -> SysResult {
    let (_, sock) = k.sock(fd)?;
    let (level, name) = (u64::from(level), u64::from(name));
    let room: i32 = k.read_obj(len)?;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    if let Sock::Inet(id) = sock
        && filters::is_filter(level, name)
        && (level == c::IPPROTO_IP || k.inet(id)?.v6)
    {
        return k.get_group_filter(id, (level, name), (value, room), len);
    }
    if (level, name) == (c::SOL_SOCKET, bpf::SO_GET_FILTER) {
        return k.get_filter(sock, value, room, len);
    }
    let bytes = match (level, sock) {
        (c::SOL_SOCKET, _) => k.get_socket_option(sock, name, room)?,
        (_, Sock::Unix(_)) => return err(Errno::EOPNOTSUPP),
        (_, Sock::Inet(id)) => k.get_protocol_option(id, level, name, room)?,
        (crate::netlink::SOL_NETLINK, Sock::Netlink(id)) => k.get_netlink_option(id, name, room)?,
        (SOL_PACKET, Sock::Packet(id)) => k.get_packet_option(id, name)?,
        (_, Sock::Netlink(_) | Sock::Packet(_)) => return err(Errno::ENOPROTOOPT),
    };
    let n = bytes.len().min(room);
    k.write_bytes(value.0, &bytes[..n])?;
    k.write_obj(len, &(n as i32))?;
    Ok(0)
}

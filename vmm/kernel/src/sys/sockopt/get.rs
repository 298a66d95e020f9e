//! getsockopt(2).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Linger, Timeval};
use bloodhound_abi::time::MILLIS;
use bloodhound_net::{Proto, SocketId, Stack, TcpInfo, TcpState};
use zerocopy::IntoBytes;

use super::bpf::{SO_BPF_EXTENSIONS, SO_LOCK_FILTER};
use super::device::{IP_UNICAST_IF, IPV6_UNICAST_IF, SO_BINDTOIFINDEX};
use super::headers::{IPV6_2292PKTOPTIONS, IPV6_ADDRFORM, STICKY};
use super::kept::{KEPT_BY_UNIX, kept, kept_value};
use super::other::{Call, other};
use super::rare::{
    IPV6_FLOWLABEL_MGR, IPV6_PATHMTU, SO_MEMINFO, SO_NETNS_COOKIE, SO_PREFER_BUSY_POLL, TCP_FASTOPEN_KEY,
    TCP_QUEUE_SEQ, TCP_REPAIR, TCP_REPAIR_QUEUE, TCP_REPAIR_WINDOW, TCP_TIMESTAMP, TCP_TX_DELAY,
    TCP_ZEROCOPY_RECEIVE,
};
use super::stamps::is_stamp;
use super::{CONGESTION_NAME, SO_BUF_LOCK, SO_RESERVE_MEM, SO_TXREHASH, UDP_ENCAP, UDPLITE_COVERAGE};
use crate::ctx::*;
use crate::ids::*;
use crate::socket::Generic;
use crate::sys::socket::Sock;
use crate::wait::SysResult;

const SO_BSDCOMPAT: u64 = 14;
const IP_OPTIONS: u64 = 4;
const IP_PKTOPTIONS: u64 = 9;
const TCP_CC_INFO: u64 = 26;
const TCP_SAVED_SYN: u64 = 28;

fn int(number: i32) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}

/// A number at a level. Those of ip(7) come as a byte to a buffer that has no room for an int (ip_sockglue.c).
fn number(level: u64, value: i32, room: usize) -> Vec<u8> {
    let byte = level == c::IPPROTO_IP && (1..4).contains(&room) && (0..=255).contains(&value);
    if byte { vec![value as u8] } else { int(value) }
}

fn flag(on: bool) -> Vec<u8> {
    int(i32::from(on))
}

fn linger(on: bool, generic: &Generic) -> Vec<u8> {
    let secs = generic.kept.get(&(c::SOL_SOCKET, c::SO_LINGER)).copied().unwrap_or(0);
    Linger { onoff: i32::from(on), linger: secs }.as_bytes().to_vec()
}

fn timeval(ns: Option<u64>) -> Vec<u8> {
    Timeval::from_ns(ns.unwrap_or(0)).as_bytes().to_vec()
}

impl Ctx<'_> {
    pub(super) fn get_socket_option(&mut self, sock: Sock, name: u64, room: usize) -> SysResult<Vec<u8>> {
        if name == c::SO_PEEK_OFF && !self.peeks_anywhere(sock)? {
            return err(Errno::EOPNOTSUPP);
        }
        if let (c::SO_INCOMING_CPU, Sock::Inet(id)) = (name, sock) {
            return Ok(int(self.node.net.of(id).options(id)?.incoming_cpu));
        }
        if let Some((default, _)) = kept(c::SOL_SOCKET, name) {
            let value = self.generic(sock)?.kept.get(&(c::SOL_SOCKET, name)).copied().unwrap_or(default);
            return Ok(int(value));
        }
        let generic = self.generic(sock)?.clone();
        Ok(match (name, sock) {
            (c::SO_RCVTIMEO | c::SO_RCVTIMEO_NEW, _) => timeval(generic.rcvtimeo),
            (c::SO_SNDTIMEO | c::SO_SNDTIMEO_NEW, _) => timeval(generic.sndtimeo),
            (c::SO_SNDLOWAT, _) => int(1),
            (c::SO_ERROR, _) => int(self.take_socket_error(sock)?.map_or(0, |e| i32::from(e.0))),
            (c::SO_DEBUG | c::SO_BUSY_POLL | c::SO_INCOMING_NAPI_ID | SO_BSDCOMPAT, _) => int(0),
            (SO_RESERVE_MEM | SO_PREFER_BUSY_POLL, _) => int(0),
            (c::SO_BINDTODEVICE, _) => self.device_name(sock, room)?,
            (SO_BINDTOIFINDEX, _) => int(self.device_of(sock)?),
            (SO_LOCK_FILTER, _) => flag(self.filter_is_locked(sock)?),
            (SO_BPF_EXTENSIONS, _) => int(bloodhound_bpf::EXTENSIONS),
            (SO_BUF_LOCK, _) => int(self.locked_buffers(sock)?),
            (SO_TXREHASH, _) => int(self.rehash(sock)?),
            (SO_MEMINFO, _) => self.memory_of(sock)?,
            (SO_NETNS_COOKIE, _) if room != 8 => return err(Errno::EINVAL),
            (SO_NETNS_COOKIE, _) => self.namespace_cookie().to_le_bytes().to_vec(),
            (name, _) if is_stamp(name) => generic.stamps.shown(name),
            (c::SO_PEERNAME, _) => {
                let bytes = self.peer_bytes(sock)?;
                // "Dumb API: return EINVAL if the buffer is too small" (net/core/sock.c).
                if bytes.len() < room {
                    return err(Errno::EINVAL);
                }
                bytes
            }
            (c::SO_COOKIE, _) if room < 8 => return err(Errno::EINVAL),
            (c::SO_COOKIE, Sock::Inet(id) | Sock::Packet(id)) => {
                (u64::from(id.0) * 2 + 1).to_le_bytes().to_vec()
            }
            (c::SO_COOKIE, Sock::Unix(id)) => (u64::from(id.0) * 2 + 2).to_le_bytes().to_vec(),
            (c::SO_COOKIE, Sock::Netlink(id)) => (u64::from(id.0) + (1 << 40)).to_le_bytes().to_vec(),
            (_, Sock::Inet(id) | Sock::Packet(id)) => self.get_inet_socket_option(id, name)?,
            (_, Sock::Unix(id)) => self.get_unix_socket_option(id, name)?,
            (_, Sock::Netlink(id)) => self.get_netlink_socket_option(id, name)?,
        })
    }

    fn get_netlink_socket_option(&mut self, id: NetlinkId, name: u64) -> SysResult<Vec<u8>> {
        let socket = &self.node.netlinks[id];
        Ok(match name {
            c::SO_TYPE => int(socket.kind as i32),
            c::SO_DOMAIN => int(c::AF_NETLINK as i32),
            c::SO_PROTOCOL => int(socket.protocol as i32),
            // No connections.
            c::SO_ACCEPTCONN => int(0),
            c::SO_SNDBUF => int(socket.buffers[0] as i32),
            c::SO_RCVBUF => int(socket.buffers[1] as i32),
            c::SO_PASSCRED => flag(socket.passcred),
            c::SO_PEERCRED => [0u32, u32::MAX, u32::MAX].as_bytes().to_vec(),
            c::SO_LINGER => linger(socket.generic.linger, &socket.generic),
            _ => match KEPT_BY_UNIX.iter().find(|k| k.0 == name) {
                Some((_, default)) => {
                    int(socket.generic.kept.get(&(c::SOL_SOCKET, name)).copied().unwrap_or(*default))
                }
                None => return other(Call::Get, c::SOL_SOCKET, name),
            },
        })
    }

    fn get_inet_socket_option(&mut self, id: SocketId, name: u64) -> SysResult<Vec<u8>> {
        let socket = self.inet(id)?;
        let v6 = socket.v6;
        let options = self.node.net.of(id).options(id)?;
        Ok(match name {
            c::SO_TYPE => int(match socket.proto {
                Proto::Packet if !self.node.net.of(id).packet_name(id)?.2 => c::SOCK_DGRAM,
                Proto::Packet => c::SOCK_RAW,
                Proto::Tcp => c::SOCK_STREAM,
                Proto::Raw => c::SOCK_RAW,
                _ => c::SOCK_DGRAM,
            } as i32),
            c::SO_PROTOCOL => int(i32::from(socket.number)),
            c::SO_DOMAIN if socket.proto == Proto::Packet => int(c::AF_PACKET as i32),
            c::SO_DOMAIN => int(if v6 { c::AF_INET6 } else { c::AF_INET } as i32),
            c::SO_ACCEPTCONN => flag(self.node.net.of(id).is_listening(id)),
            c::SO_REUSEADDR => flag(options.reuseaddr),
            c::SO_REUSEPORT => flag(options.reuseport),
            c::SO_KEEPALIVE => flag(options.keepalive),
            c::SO_SNDBUF => int(options.sndbuf as i32),
            c::SO_RCVBUF => int(options.rcvbuf as i32),
            c::SO_RCVLOWAT => int(options.rcvlowat as i32),
            c::SO_LINGER => linger(options.linger.is_some(), &socket.generic),
            c::SO_PASSCRED => int(0),
            // No peer credentials: pid 0, ids -1.
            c::SO_PEERCRED => [0u32, u32::MAX, u32::MAX].as_bytes().to_vec(),
            _ => return other(Call::Get, c::SOL_SOCKET, name),
        })
    }

    fn get_unix_socket_option(&mut self, id: UnixId, name: u64) -> SysResult<Vec<u8>> {
        let socket = self.node.unix.get(id);
        Ok(match name {
            c::SO_TYPE => int(socket.kind.number() as i32),
            c::SO_PROTOCOL => int(0),
            c::SO_DOMAIN => int(c::AF_UNIX as i32),
            c::SO_ACCEPTCONN => flag(self.node.unix.is_listening(id)),
            c::SO_SNDBUF => int(socket.sndbuf as i32),
            c::SO_RCVBUF => int(socket.rcvbuf as i32),
            c::SO_PASSCRED => flag(socket.passcred),
            c::SO_PEERCRED => self.seen_credentials(socket.cred).as_bytes().to_vec(),
            c::SO_LINGER => linger(socket.generic.linger, &socket.generic),
            _ => {
                let Some((_, default)) = KEPT_BY_UNIX.iter().find(|k| k.0 == name) else {
                    return other(Call::Get, c::SOL_SOCKET, name);
                };
                int(socket.generic.kept.get(&(c::SOL_SOCKET, name)).copied().unwrap_or(*default))
            }
        })
    }

    pub(super) fn get_protocol_option(
        &mut self,
        id: SocketId,
        level: u64,
        name: u64,
        room: usize,
    ) -> SysResult<Vec<u8>> {
        let socket = self.inet(id)?;
        let (v6, tcp) = (socket.v6, socket.proto == Proto::Tcp);
        if let Some(answer) = self.get_raw_option(id, level, name) {
            return answer;
        }
        let socket = self.inet(id)?;
        let lite = socket.proto == Proto::UdpLite;
        let udp = lite || socket.proto == Proto::Udp;
        if lite && matches!(level, c::IPPROTO_UDP | c::IPPROTO_UDPLITE) && UDPLITE_COVERAGE.contains(&name) {
            return Ok(int(kept_value(&socket.generic, c::IPPROTO_UDPLITE, name)));
        }
        let reachable = match level {
            c::IPPROTO_TCP => tcp,
            c::IPPROTO_UDP => udp,
            c::IPPROTO_IP => true,
            c::IPPROTO_IPV6 => v6,
            _ => false,
        };
        if !reachable {
            // do_ip_getsockopt, to which everything unknown falls through; IPv6 sockets know the other family's level.
            return err(if v6 { Errno::ENOPROTOOPT } else { Errno::EOPNOTSUPP });
        }
        if let Some((default, _)) = kept(level, name) {
            // inet6_create leaves this one off.
            let default =
                if v6 && (level, name) == (c::IPPROTO_IP, c::IP_MULTICAST_ALL) { 0 } else { default };
            let value = socket.generic.kept.get(&(level, name)).copied().unwrap_or(default);
            return Ok(number(level, value, room));
        }
        match (level, name) {
            (c::IPPROTO_TCP, _) => self.get_tcp_option(id, name),
            (c::IPPROTO_IPV6, c::IPV6_V6ONLY) => Ok(flag(self.node.net.of(id).options(id)?.v6only)),
            (c::IPPROTO_IP, c::IP_MTU) | (c::IPPROTO_IPV6, c::IPV6_MTU) => {
                let peer = self.node.net.of(id).peer_addr(id)?.ip().to_canonical();
                // "min_t(unsigned int, mtu, IP_MAX_MTU)" (ip_dst_mtu_maybe_forward), which is less than loopback takes; that of IPv6 is not.
                let most = if peer.is_ipv4() { 65535 } else { 65536 };
                Ok(int(if crate::inet::is_local(self.stack(), peer) { most } else { 1500 }))
            }
            (c::IPPROTO_IP, c::IP_MULTICAST_IF) | (c::IPPROTO_IPV6, c::IPV6_MULTICAST_IF) => {
                self.group_interface(id, level)
            }
            (c::IPPROTO_IP, IP_PKTOPTIONS) | (c::IPPROTO_IPV6, IPV6_2292PKTOPTIONS) if tcp => {
                Ok(self.stream_control(id)?)
            }
            (c::IPPROTO_IP, IP_PKTOPTIONS) | (c::IPPROTO_IPV6, IPV6_2292PKTOPTIONS) => {
                err(Errno::ENOPROTOOPT)
            }
            // IP_HDRINCL, IP_ROUTER_ALERT, IP_NODEFRAG, IPV6_ROUTER_ALERT: raw sockets alone set them.
            (c::IPPROTO_IP, 3 | 5 | 22) | (c::IPPROTO_IPV6, 22) => Ok(number(level, 0, room)),
            (c::IPPROTO_IP, IP_UNICAST_IF) | (c::IPPROTO_IPV6, IPV6_UNICAST_IF) => {
                Ok(number(level, self.unicast_interface(id, level)?, room))
            }
            // It asks for a label that was leased.
            (c::IPPROTO_IPV6, IPV6_FLOWLABEL_MGR) => err(Errno::EINVAL),
            (c::IPPROTO_IPV6, IPV6_PATHMTU) => self.path_mtu(id, room),
            // No packet carries any.
            (c::IPPROTO_IP, IP_OPTIONS) => Ok(Vec::new()),
            (c::IPPROTO_IPV6, name) if STICKY.contains(&name) => Ok(Vec::new()),
            (c::IPPROTO_IPV6, IPV6_ADDRFORM) if tcp || udp => match self.node.net.of(id).state(id) {
                Some(TcpState::Established) => Ok(int(c::AF_INET6 as i32)),
                _ => err(Errno::ENOTCONN),
            },
            (c::IPPROTO_IPV6, IPV6_ADDRFORM) => err(Errno::ENOPROTOOPT),
            (c::IPPROTO_UDP, c::UDP_CORK) => Ok(flag(self.inet(id)?.generic.is_set(level, name))),
            (c::IPPROTO_UDP, UDP_ENCAP) => Ok(int(0)),
            _ => other(Call::Get, level, name),
        }
    }

    fn get_tcp_option(&mut self, id: SocketId, name: u64) -> SysResult<Vec<u8>> {
        let options = self.node.net.of(id).options(id)?;
        let info = self.node.net.of(id).tcp_info(id)?;
        let quick = self.inet(id)?.generic.kept.get(&(c::IPPROTO_TCP, c::TCP_QUICKACK)).copied().unwrap_or(1);
        Ok(match name {
            c::TCP_NODELAY => flag(options.nodelay),
            c::TCP_CORK => flag(options.cork),
            // Acknowledgements are quick at first.
            c::TCP_QUICKACK => int(quick),
            c::TCP_KEEPIDLE => int(options.keepidle as i32),
            c::TCP_KEEPINTVL => int(options.keepintvl as i32),
            c::TCP_KEEPCNT => int(options.keepcnt as i32),
            c::TCP_SYNCNT => int(options.syn_cnt as i32),
            // 0 stands for net.ipv4.tcp_fin_timeout, which is shown.
            c::TCP_LINGER2 if options.linger2 == 0 => int(60),
            c::TCP_LINGER2 => int(options.linger2),
            c::TCP_USER_TIMEOUT => int(options.user_timeout as i32),
            c::TCP_MAXSEG => {
                let set = options.max_seg.map(i32::from);
                // "the default is 536" until connected (TCP_MSS_DEFAULT).
                int(info.map_or(set.unwrap_or(536), |i| i.snd_mss as i32))
            }
            c::TCP_CONGESTION => {
                let mut name = b"cubic".to_vec();
                name.resize(CONGESTION_NAME, 0);
                name
            }
            c::TCP_INFO => tcp_info_of(self.node.net.of(id), id),
            c::TCP_THIN_DUPACK => int(0),
            // A clock in milliseconds (tcp_time_stamp).
            TCP_TIMESTAMP => int((self.node.clock.0 / MILLIS) as i32),
            TCP_REPAIR | TCP_TX_DELAY => int(0),
            TCP_FASTOPEN_KEY => Vec::new(),
            // Nothing is repaired, and no memory is mapped to a socket.
            TCP_REPAIR_QUEUE | TCP_QUEUE_SEQ | TCP_REPAIR_WINDOW | TCP_ZEROCOPY_RECEIVE => {
                return err(Errno::EINVAL);
            }
            // Reno has nothing to tell, and no SYN was saved: both have no bytes.
            c::TCP_ULP | TCP_CC_INFO | TCP_SAVED_SYN => Vec::new(),
            _ => return other(Call::Get, c::IPPROTO_TCP, name),
        })
    }
}

/// `struct tcp_info` of a socket, which without a connection has nothing but its state.
pub(crate) fn tcp_info_of(stack: &Stack, id: SocketId) -> Vec<u8> {
    if let Ok(Some(info)) = stack.tcp_info(id) {
        return tcp_info_bytes(&info);
    }
    let mut none = vec![0; TCP_INFO_LEN];
    none[0] = stack.state(id).map_or(TcpState::Close as u8, |s| s as u8);
    none
}

/// Bytes of `struct tcp_info` in Linux 6.1.
const TCP_INFO_LEN: usize = 232;

/// `struct tcp_info` (linux/tcp.h); what the model has not is 0.
fn tcp_info_bytes(info: &TcpInfo) -> Vec<u8> {
    let micros = |ns: u64| (ns / 1000) as u32;
    let (snd, rcv) = info.wscale.unwrap_or((0, 0));
    let options = if info.wscale.is_some() { 4 } else { 0 };
    let mut out = vec![
        info.state as u8,
        0,
        info.retransmits as u8,
        info.probes as u8,
        info.retransmits as u8,
        options,
        snd & 0xf | rcv << 4,
        0,
    ];
    // rto, ato, snd_mss, rcv_mss, unacked, sacked, lost, retrans, fackets, last_data_sent, last_ack_sent, last_data_recv,
    // last_ack_recv, pmtu, rcv_ssthresh, rtt, rttvar, snd_ssthresh, snd_cwnd, advmss, reordering, rcv_rtt, rcv_space,
    // total_retrans
    let words = [
        micros(info.rto),
        40_000,
        info.snd_mss,
        info.rcv_mss,
        info.unacked,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        info.snd_mss + 40,
        65_535,
        micros(info.rtt),
        micros(info.rttvar),
        info.snd_ssthresh.min(i32::MAX as u32),
        info.snd_cwnd,
        info.snd_mss,
        3,
        0,
        14_600,
        info.total_retrans,
    ];
    out.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    // pacing_rate, max_pacing_rate, bytes_acked, bytes_received
    let longs = [0, u64::MAX, info.bytes_acked, info.bytes_received];
    out.extend(longs.iter().flat_map(|w| w.to_le_bytes()));
    // segs_out, segs_in, notsent_bytes, min_rtt and further on
    let rest = [0, 0, info.notsent_bytes, micros(info.rtt)];
    out.extend(rest.iter().flat_map(|w| w.to_le_bytes()));
    out.resize(TCP_INFO_LEN, 0);
    out
}

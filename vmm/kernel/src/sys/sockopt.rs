//! setsockopt(2) and getsockopt(2).
//!
//! Three kinds of options: those with an effect in the network stack ([`bloodhound_net::SockOpt`]) or in the kernel
//! (timeouts, SO_PASSCRED); those that are kept and shown again without an effect that a program here could see (table
//! [`KEPT`]); and all others, which fail with ENOPROTOOPT. An option whose effect matters and is not modelled stops the
//! run instead of being ignored.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Linger, Timeval};
use bloodhound_net::{Proto, SockOpt, SocketId, TcpInfo, TcpState};
use zerocopy::IntoBytes;

use crate::ctx::*;
use crate::ids::*;
use crate::sys::socket::Sock;
use crate::unix::BUFFER;
use crate::wait::{Stop, SysResult};

/// Longest name of a congestion control (TCP_CA_NAME_MAX).
const CONGESTION_NAME: usize = 16;
/// SOCK_MIN_SNDBUF and SOCK_MIN_RCVBUF.
const MIN_SNDBUF: u32 = 4608;
const MIN_RCVBUF: u32 = 2304;

/// Values of an option that is only kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// 0 or 1; anything else counts as 1.
    Flag,
    /// EINVAL outside.
    Range(i32, i32),
}

/// Options that are kept: level, name, default, values.
const KEPT: &[(u64, u64, i32, Shape)] = {
    use Shape::{Flag, Range};
    const ANY: Shape = Range(i32::MIN, i32::MAX);
    &[
        (c::SOL_SOCKET, c::SO_DONTROUTE, 0, Flag),
        (c::SOL_SOCKET, c::SO_BROADCAST, 0, Flag),
        (c::SOL_SOCKET, c::SO_OOBINLINE, 0, Flag),
        (c::SOL_SOCKET, c::SO_NO_CHECK, 0, Flag),
        (c::SOL_SOCKET, c::SO_RXQ_OVFL, 0, Flag),
        (c::SOL_SOCKET, c::SO_PRIORITY, 0, ANY),
        (c::SOL_SOCKET, c::SO_INCOMING_CPU, -1, ANY),
        (c::SOL_SOCKET, c::SO_MAX_PACING_RATE, -1, ANY),
        (c::IPPROTO_IP, c::IP_TOS, 0, Range(0, 255)),
        (c::IPPROTO_IP, c::IP_TTL, 64, Range(1, 255)),
        (c::IPPROTO_IP, c::IP_PKTINFO, 0, Flag),
        (c::IPPROTO_IP, c::IP_RECVTTL, 0, Flag),
        (c::IPPROTO_IP, c::IP_RECVTOS, 0, Flag),
        (c::IPPROTO_IP, c::IP_RECVERR, 0, Flag),
        (c::IPPROTO_IP, c::IP_FREEBIND, 0, Flag),
        (c::IPPROTO_IP, c::IP_BIND_ADDRESS_NO_PORT, 0, Flag),
        (c::IPPROTO_IP, c::IP_MTU_DISCOVER, 1, Range(0, 5)),
        (c::IPPROTO_IP, c::IP_MULTICAST_TTL, 1, Range(0, 255)),
        (c::IPPROTO_IP, c::IP_MULTICAST_LOOP, 1, Flag),
        (c::IPPROTO_IP, c::IP_MULTICAST_ALL, 1, Range(0, 1)),
        (c::IPPROTO_IPV6, c::IPV6_UNICAST_HOPS, 64, Range(0, 255)),
        (c::IPPROTO_IPV6, c::IPV6_MULTICAST_HOPS, 1, Range(0, 255)),
        (c::IPPROTO_IPV6, c::IPV6_MULTICAST_LOOP, 1, Range(0, 1)),
        (c::IPPROTO_IPV6, c::IPV6_MULTICAST_ALL, 1, Range(0, 1)),
        (c::IPPROTO_IPV6, c::IPV6_MTU_DISCOVER, 1, Range(0, 5)),
        (c::IPPROTO_IPV6, c::IPV6_RECVERR, 0, Flag),
        (c::IPPROTO_IPV6, c::IPV6_RECVPKTINFO, 0, Flag),
        (c::IPPROTO_IPV6, c::IPV6_RECVHOPLIMIT, 0, Flag),
        (c::IPPROTO_IPV6, c::IPV6_RECVTCLASS, 0, Flag),
        (c::IPPROTO_IPV6, c::IPV6_TCLASS, 0, Range(-1, 255)),
        (c::IPPROTO_IPV6, c::IPV6_DONTFRAG, 0, Flag),
        (c::IPPROTO_IPV6, c::IPV6_AUTOFLOWLABEL, 1, Flag),
        (c::IPPROTO_IPV6, c::IPV6_ADDR_PREFERENCES, 0, Range(0, 0xffff)),
        (c::IPPROTO_IPV6, c::IPV6_FREEBIND, 0, Flag),
        (c::IPPROTO_TCP, c::TCP_DEFER_ACCEPT, 0, ANY),
        (c::IPPROTO_TCP, c::TCP_WINDOW_CLAMP, 0, Range(0, i32::MAX)),
        (c::IPPROTO_TCP, c::TCP_FASTOPEN, 0, Range(0, i32::MAX)),
        (c::IPPROTO_TCP, c::TCP_NOTSENT_LOWAT, 0, ANY),
        (c::IPPROTO_TCP, c::TCP_THIN_LINEAR_TIMEOUTS, 0, Range(0, 1)),
        (c::IPPROTO_TCP, c::TCP_THIN_DUPACK, 0, Range(0, 1)),
        (c::IPPROTO_TCP, c::TCP_SAVE_SYN, 0, Range(0, 2)),
    ]
};

/// Options of socket(7) that unix sockets keep and the network stack gives an effect: name and default.
const KEPT_BY_UNIX: &[(u64, i32)] =
    &[(c::SO_REUSEADDR, 0), (c::SO_REUSEPORT, 0), (c::SO_KEEPALIVE, 0), (c::SO_RCVLOWAT, 1)];

fn kept(level: u64, name: u64) -> Option<(i32, Shape)> {
    KEPT.iter().find(|k| (k.0, k.1) == (level, name)).map(|k| (k.2, k.3))
}

fn unsupported<T>(what: &str) -> SysResult<T> {
    Err(Stop::Unsupported(format!("setsockopt {what}")))
}

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
    }
    // Stopping a wait for room or changing a buffer may wake somebody.
    k.node.drain_net();
    Ok(0)
}

impl Ctx<'_> {
    fn int_option(&mut self, value: Ptr, len: u32) -> Result<i32, Errno> {
        if len < 4 {
            return Err(Errno::EINVAL);
        }
        self.read_obj(value)
    }

    fn set_stack_option(&mut self, id: SocketId, option: SockOpt) -> SysResult<()> {
        let now = self.now();
        Ok(self.node.net.set_option(id, option, now)?)
    }

    fn set_socket_option(&mut self, sock: Sock, name: u64, value: Ptr, len: u32) -> SysResult<()> {
        match name {
            c::SO_BINDTODEVICE => return self.bind_to_device(value, len),
            c::SO_ATTACH_FILTER
            | c::SO_ATTACH_BPF
            | c::SO_ATTACH_REUSEPORT_CBPF
            | c::SO_ATTACH_REUSEPORT_EBPF => {
                return unsupported("SO_ATTACH_* (packet filters)");
            }
            _ => {}
        }
        let number = self.int_option(value, len)?;
        match name {
            c::SO_TYPE | c::SO_PROTOCOL | c::SO_DOMAIN | c::SO_ERROR | c::SO_ACCEPTCONN | c::SO_SNDLOWAT => {
                err(Errno::ENOPROTOOPT)
            }
            c::SO_DEBUG if number != 0 => err(Errno::EACCES),
            c::SO_DEBUG | c::SO_DETACH_FILTER => Ok(()),
            // These need CAP_NET_ADMIN, which containers do not have.
            c::SO_MARK | c::SO_SNDBUFFORCE | c::SO_RCVBUFFORCE => err(Errno::EPERM),
            c::SO_PRIORITY if !(0..=6).contains(&number) => err(Errno::EPERM),
            c::SO_BUSY_POLL if number > 0 => err(Errno::EPERM),
            c::SO_BUSY_POLL => Ok(()),
            c::SO_TIMESTAMP | c::SO_TIMESTAMPNS | c::SO_TIMESTAMPING if number != 0 => {
                unsupported("SO_TIMESTAMP*")
            }
            c::SO_TIMESTAMP_NEW | c::SO_TIMESTAMPNS_NEW | c::SO_TIMESTAMPING_NEW if number != 0 => {
                unsupported("SO_TIMESTAMP*")
            }
            c::SO_TIMESTAMP | c::SO_TIMESTAMPNS | c::SO_TIMESTAMPING => Ok(()),
            c::SO_RCVTIMEO | c::SO_RCVTIMEO_NEW | c::SO_SNDTIMEO | c::SO_SNDTIMEO_NEW => {
                let timeout = self.timeout_option(value, len)?;
                let generic = self.generic(sock)?;
                if matches!(name, c::SO_RCVTIMEO | c::SO_RCVTIMEO_NEW) {
                    generic.rcvtimeo = timeout;
                } else {
                    generic.sndtimeo = timeout;
                }
                Ok(())
            }
            c::SO_LINGER if len < 8 => err(Errno::EINVAL),
            c::SO_LINGER => {
                let linger: Linger = self.read_obj(value)?;
                let secs = (linger.onoff != 0).then_some(linger.linger as u32);
                match sock {
                    Sock::Inet(id) => self.set_stack_option(id, SockOpt::Linger(secs)),
                    Sock::Unix(_) => {
                        self.generic(sock)?.linger = secs;
                        Ok(())
                    }
                }
            }
            _ => self.set_common_number(sock, name, number),
        }
    }

    /// Options of socket(7) with an int.
    fn set_common_number(&mut self, sock: Sock, name: u64, number: i32) -> SysResult<()> {
        if let Some((_, shape)) = kept(c::SOL_SOCKET, name) {
            return self.keep(sock, (c::SOL_SOCKET, name), number, shape);
        }
        let on = number != 0;
        match sock {
            Sock::Unix(id) => {
                let unix = self.node.unix.get_mut(id);
                // "Ensure val * 2 fits into an int"; a negative number is a large unsigned one.
                let doubled = (number as u32).min(BUFFER) * 2;
                match name {
                    c::SO_SNDBUF => unix.sndbuf = doubled.max(MIN_SNDBUF),
                    c::SO_RCVBUF => unix.rcvbuf = doubled.max(MIN_RCVBUF),
                    c::SO_PASSCRED => unix.passcred = on,
                    c::SO_RCVLOWAT => {
                        let lowat = if number < 0 { i32::MAX } else { number.max(1) };
                        unix.generic.kept.insert((c::SOL_SOCKET, name), lowat);
                    }
                    _ if KEPT_BY_UNIX.iter().any(|k| k.0 == name) => {
                        unix.generic.kept.insert((c::SOL_SOCKET, name), i32::from(on));
                    }
                    _ => return err(Errno::ENOPROTOOPT),
                }
                Ok(())
            }
            Sock::Inet(id) => {
                let option = match name {
                    c::SO_REUSEADDR => SockOpt::ReuseAddr(on),
                    c::SO_REUSEPORT => SockOpt::ReusePort(on),
                    c::SO_KEEPALIVE => SockOpt::KeepAlive(on),
                    c::SO_SNDBUF => SockOpt::SndBuf(number as u32),
                    c::SO_RCVBUF => SockOpt::RcvBuf(number as u32),
                    c::SO_RCVLOWAT if number < 0 => SockOpt::RcvLowat(i32::MAX as u32),
                    c::SO_RCVLOWAT => SockOpt::RcvLowat(number as u32),
                    // Meaningless but allowed on Linux.
                    c::SO_PASSCRED => return Ok(()),
                    _ => return err(Errno::ENOPROTOOPT),
                };
                self.set_stack_option(id, option)
            }
        }
    }

    fn keep(&mut self, sock: Sock, option: (u64, u64), number: i32, shape: Shape) -> SysResult<()> {
        let value = match shape {
            Shape::Flag => i32::from(number != 0),
            Shape::Range(low, high) if (low..=high).contains(&number) => number,
            Shape::Range(..) => return err(Errno::EINVAL),
        };
        self.generic(sock)?.kept.insert(option, value);
        Ok(())
    }

    /// SO_RCVTIMEO's value, ns. socket(7): "If the timeout is set to zero (the default), then the operation will never
    /// timeout"; EDOM for bad microseconds; a negative time is one that is over at once.
    fn timeout_option(&mut self, value: Ptr, len: u32) -> Result<Option<u64>, Errno> {
        if (len as usize) < size_of::<Timeval>() {
            return Err(Errno::EINVAL);
        }
        let tv: Timeval = self.read_obj(value)?;
        if !(0..1_000_000).contains(&tv.usec) {
            return Err(Errno::EDOM);
        }
        Ok(match tv.to_ns() {
            None => Some(0),
            Some(0) => None,
            some => some,
        })
    }

    fn bind_to_device(&mut self, value: Ptr, len: u32) -> SysResult<()> {
        let mut name = vec![0; (len as usize).min(15)];
        self.read_bytes(value.0, &mut name)?;
        let name: Vec<u8> = name.into_iter().take_while(|b| *b != 0).collect();
        if name.is_empty() {
            return Ok(());
        }
        if crate::inet::interfaces(self.node).iter().any(|i| i.name.as_bytes() == name) {
            return unsupported("SO_BINDTODEVICE");
        }
        err(Errno::ENODEV)
    }

    fn set_protocol_option(
        &mut self,
        id: SocketId,
        level: u64,
        name: u64,
        value: Ptr,
        len: u32,
    ) -> SysResult<()> {
        let socket = self.inet(id)?;
        let (v6, tcp) = (socket.v6, socket.proto == Proto::Tcp);
        match level {
            c::IPPROTO_TCP if tcp => self.set_tcp_option(id, name, value, len),
            c::IPPROTO_IP => {
                let number = self.short_option(value, len)?;
                match name {
                    c::IP_TRANSPARENT if number != 0 => err(Errno::EPERM),
                    c::IP_TRANSPARENT => Ok(()),
                    c::IP_ADD_MEMBERSHIP | c::IP_MULTICAST_IF | c::MCAST_JOIN_GROUP => {
                        unsupported("IP multicast")
                    }
                    c::IP_RECVORIGDSTADDR if number != 0 => unsupported("IP_RECVORIGDSTADDR"),
                    // -1 stands for the default.
                    c::IP_TTL if number == -1 => self.reset(id, level, name),
                    c::IP_MULTICAST_TTL if number == -1 => self.reset(id, level, name),
                    _ => self.keep_protocol(id, (level, name), number),
                }
            }
            c::IPPROTO_IPV6 if v6 => {
                let number = if len >= 4 { self.int_option(value, len)? } else { return err(Errno::EINVAL) };
                match name {
                    c::IPV6_V6ONLY => self.set_stack_option(id, SockOpt::V6Only(number != 0)),
                    c::IPV6_ADD_MEMBERSHIP | c::IPV6_MULTICAST_IF | c::MCAST_JOIN_GROUP => {
                        unsupported("IPv6 multicast")
                    }
                    c::IPV6_UNICAST_HOPS | c::IPV6_MULTICAST_HOPS | c::IPV6_TCLASS if number == -1 => {
                        self.reset(id, level, name)
                    }
                    _ => self.keep_protocol(id, (level, name), number),
                }
            }
            c::IPPROTO_UDP if !tcp && name == c::UDP_CORK => {
                if self.int_option(value, len)? != 0 {
                    unsupported("UDP_CORK")
                } else {
                    Ok(())
                }
            }
            _ => err(Errno::ENOPROTOOPT),
        }
    }

    /// Options of ip(7) may be given as an int or as a byte.
    fn short_option(&mut self, value: Ptr, len: u32) -> Result<i32, Errno> {
        match len {
            0 => Ok(0),
            1..=3 => self.read_obj::<u8>(value).map(i32::from),
            _ => self.read_obj(value),
        }
    }

    fn keep_protocol(&mut self, id: SocketId, option: (u64, u64), number: i32) -> SysResult<()> {
        let (_, shape) = kept(option.0, option.1).ok_or(Errno::ENOPROTOOPT)?;
        self.keep(Sock::Inet(id), option, number, shape)
    }

    fn reset(&mut self, id: SocketId, level: u64, name: u64) -> SysResult<()> {
        self.generic(Sock::Inet(id))?.kept.remove(&(level, name));
        Ok(())
    }

    fn set_tcp_option(&mut self, id: SocketId, name: u64, value: Ptr, len: u32) -> SysResult<()> {
        match name {
            c::TCP_CONGESTION => {
                let mut name = vec![0; (len as usize).min(CONGESTION_NAME - 1)];
                self.read_bytes(value.0, &mut name)?;
                let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
                return match &name[..end] {
                    b"" => err(Errno::EINVAL),
                    // The stack has Reno; what it is called makes no difference to a program.
                    b"reno" | b"cubic" => Ok(()),
                    _ => err(Errno::ENOENT),
                };
            }
            // No upper-layer protocol (kTLS) is available.
            c::TCP_ULP => return err(Errno::ENOENT),
            _ => {}
        }
        let number = self.int_option(value, len)?;
        let (on, unsigned) = (number != 0, number as u32);
        let option = match name {
            c::TCP_NODELAY => SockOpt::NoDelay(on),
            c::TCP_CORK => SockOpt::Cork(on),
            c::TCP_QUICKACK => SockOpt::QuickAck(number & 1 != 0),
            c::TCP_KEEPIDLE => SockOpt::KeepIdle(unsigned),
            c::TCP_KEEPINTVL => SockOpt::KeepIntvl(unsigned),
            c::TCP_KEEPCNT => SockOpt::KeepCnt(unsigned),
            c::TCP_SYNCNT => SockOpt::SynCnt(unsigned),
            c::TCP_LINGER2 => SockOpt::Linger2(number),
            c::TCP_USER_TIMEOUT if number < 0 => return err(Errno::EINVAL),
            c::TCP_USER_TIMEOUT => SockOpt::UserTimeout(unsigned),
            // 0 gives the choice back to the kernel: what a socket without a limit has anyway.
            c::TCP_MAXSEG if number == 0 && self.node.net.options(id)?.max_seg.is_none() => return Ok(()),
            c::TCP_MAXSEG => SockOpt::MaxSeg(u16::try_from(number).map_err(|_| Errno::EINVAL)?),
            c::TCP_FASTOPEN
                if !matches!(self.node.net.state(id), Some(TcpState::Close | TcpState::Listen)) =>
            {
                return err(Errno::EINVAL);
            }
            c::TCP_FASTOPEN_CONNECT if on => return err(Errno::EOPNOTSUPP),
            c::TCP_FASTOPEN_CONNECT => return Ok(()),
            _ => return self.keep_protocol(id, (c::IPPROTO_TCP, name), number),
        };
        self.set_stack_option(id, option)
    }
}

pub fn getsockopt(k: &mut Ctx<'_>, fd: Fd, level: u32, name: u32, value: Ptr, len: Ptr) -> SysResult {
    let (_, sock) = k.sock(fd)?;
    let (level, name) = (u64::from(level), u64::from(name));
    let room: i32 = k.read_obj(len)?;
    let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
    let bytes = match (level, sock) {
        (c::SOL_SOCKET, _) => k.get_socket_option(sock, name, room)?,
        (_, Sock::Unix(_)) => return err(Errno::EOPNOTSUPP),
        (_, Sock::Inet(id)) => k.get_protocol_option(id, level, name, room)?,
    };
    let n = bytes.len().min(room);
    k.write_bytes(value.0, &bytes[..n])?;
    k.write_obj(len, &(n as i32))?;
    Ok(0)
}

fn int(number: i32) -> Vec<u8> {
    number.to_le_bytes().to_vec()
}

fn flag(on: bool) -> Vec<u8> {
    int(i32::from(on))
}

fn linger(secs: Option<u32>) -> Vec<u8> {
    let value = Linger { onoff: i32::from(secs.is_some()), linger: secs.unwrap_or(0) as i32 };
    value.as_bytes().to_vec()
}

fn timeval(ns: Option<u64>) -> Vec<u8> {
    Timeval::from_ns(ns.unwrap_or(0)).as_bytes().to_vec()
}

impl Ctx<'_> {
    fn get_socket_option(&mut self, sock: Sock, name: u64, room: usize) -> SysResult<Vec<u8>> {
        if let Some((default, _)) = kept(c::SOL_SOCKET, name) {
            let value = self.generic(sock)?.kept.get(&(c::SOL_SOCKET, name)).copied().unwrap_or(default);
            return Ok(int(value));
        }
        let generic = self.generic(sock)?.clone();
        Ok(match (name, sock) {
            (c::SO_RCVTIMEO | c::SO_RCVTIMEO_NEW, _) => timeval(generic.rcvtimeo),
            (c::SO_SNDTIMEO | c::SO_SNDTIMEO_NEW, _) => timeval(generic.sndtimeo),
            (c::SO_SNDLOWAT, _) => int(1),
            (
                c::SO_DEBUG
                | c::SO_MARK
                | c::SO_BUSY_POLL
                | c::SO_INCOMING_NAPI_ID
                | c::SO_TIMESTAMP
                | c::SO_TIMESTAMPNS
                | c::SO_TIMESTAMPING,
                _,
            ) => int(0),
            (c::SO_PEERNAME, _) => {
                let bytes = self.peer_bytes(sock)?;
                // "Dumb API: return EINVAL if the buffer is too small" (net/core/sock.c).
                if bytes.len() < room {
                    return err(Errno::EINVAL);
                }
                bytes
            }
            (c::SO_COOKIE, _) if room < 8 => return err(Errno::EINVAL),
            (c::SO_COOKIE, Sock::Inet(id)) => (u64::from(id.0) * 2 + 1).to_le_bytes().to_vec(),
            (c::SO_COOKIE, Sock::Unix(id)) => (u64::from(id.0) * 2 + 2).to_le_bytes().to_vec(),
            (_, Sock::Inet(id)) => self.get_inet_socket_option(id, name)?,
            (_, Sock::Unix(id)) => self.get_unix_socket_option(id, name)?,
        })
    }

    fn get_inet_socket_option(&mut self, id: SocketId, name: u64) -> SysResult<Vec<u8>> {
        let socket = self.inet(id)?;
        let (v6, tcp) = (socket.v6, socket.proto == Proto::Tcp);
        let options = self.node.net.options(id)?;
        Ok(match name {
            c::SO_TYPE => int(if tcp { c::SOCK_STREAM } else { c::SOCK_DGRAM } as i32),
            c::SO_PROTOCOL => int(if tcp { c::IPPROTO_TCP } else { c::IPPROTO_UDP } as i32),
            c::SO_DOMAIN => int(if v6 { c::AF_INET6 } else { c::AF_INET } as i32),
            c::SO_ERROR => int(self.node.net.take_error(id)?.map_or(0, |e| i32::from(e.0))),
            c::SO_ACCEPTCONN => flag(self.node.net.is_listening(id)),
            c::SO_REUSEADDR => flag(options.reuseaddr),
            c::SO_REUSEPORT => flag(options.reuseport),
            c::SO_KEEPALIVE => flag(options.keepalive),
            c::SO_SNDBUF => int(options.sndbuf as i32),
            c::SO_RCVBUF => int(options.rcvbuf as i32),
            c::SO_RCVLOWAT => int(options.rcvlowat as i32),
            c::SO_LINGER => linger(options.linger),
            c::SO_PASSCRED => int(0),
            // No peer credentials: pid 0, ids -1.
            c::SO_PEERCRED => [0u32, u32::MAX, u32::MAX].as_bytes().to_vec(),
            c::SO_BINDTODEVICE => Vec::new(),
            _ => return err(Errno::ENOPROTOOPT),
        })
    }

    fn get_unix_socket_option(&mut self, id: UnixId, name: u64) -> SysResult<Vec<u8>> {
        let socket = self.node.unix.get(id);
        Ok(match name {
            c::SO_TYPE => int(socket.kind.number() as i32),
            c::SO_PROTOCOL => int(0),
            c::SO_DOMAIN => int(c::AF_UNIX as i32),
            c::SO_ERROR => int(self.node.unix.take_error(id).map_or(0, |e| i32::from(e.0))),
            c::SO_ACCEPTCONN => flag(self.node.unix.is_listening(id)),
            c::SO_SNDBUF => int(socket.sndbuf as i32),
            c::SO_RCVBUF => int(socket.rcvbuf as i32),
            c::SO_PASSCRED => flag(socket.passcred),
            c::SO_PEERCRED => socket.cred.as_bytes().to_vec(),
            c::SO_LINGER => linger(socket.generic.linger),
            c::SO_BINDTODEVICE => Vec::new(),
            _ => {
                let (_, default) = KEPT_BY_UNIX.iter().find(|k| k.0 == name).ok_or(Errno::ENOPROTOOPT)?;
                int(socket.generic.kept.get(&(c::SOL_SOCKET, name)).copied().unwrap_or(*default))
            }
        })
    }

    fn get_protocol_option(
        &mut self,
        id: SocketId,
        level: u64,
        name: u64,
        room: usize,
    ) -> SysResult<Vec<u8>> {
        let socket = self.inet(id)?;
        let (v6, tcp) = (socket.v6, socket.proto == Proto::Tcp);
        let reachable = match level {
            c::IPPROTO_TCP => tcp,
            c::IPPROTO_UDP => !tcp,
            c::IPPROTO_IP => true,
            c::IPPROTO_IPV6 => v6,
            _ => false,
        };
        if !reachable {
            return err(Errno::ENOPROTOOPT);
        }
        if let Some((default, _)) = kept(level, name) {
            let value = socket.generic.kept.get(&(level, name)).copied().unwrap_or(default);
            // ip(7)'s options come as a byte to a buffer that has no room for an int (ip_sockglue.c).
            let byte = level == c::IPPROTO_IP && (1..4).contains(&room) && (0..=255).contains(&value);
            return Ok(if byte { vec![value as u8] } else { int(value) });
        }
        match (level, name) {
            (c::IPPROTO_TCP, _) => self.get_tcp_option(id, name),
            (c::IPPROTO_IPV6, c::IPV6_V6ONLY) => Ok(flag(self.node.net.options(id)?.v6only)),
            (c::IPPROTO_IP, c::IP_MTU) | (c::IPPROTO_IPV6, c::IPV6_MTU) => {
                let peer = self.node.net.peer_addr(id)?;
                Ok(int(if crate::inet::is_local(self.node, peer.ip()) { 65536 } else { 1500 }))
            }
            (c::IPPROTO_IP, c::IP_TRANSPARENT | c::IP_RECVORIGDSTADDR) => Ok(int(0)),
            (c::IPPROTO_UDP, c::UDP_CORK) => Ok(int(0)),
            _ => err(Errno::ENOPROTOOPT),
        }
    }

    fn get_tcp_option(&mut self, id: SocketId, name: u64) -> SysResult<Vec<u8>> {
        let options = self.node.net.options(id)?;
        let info = self.node.net.tcp_info(id)?;
        Ok(match name {
            c::TCP_NODELAY => flag(options.nodelay),
            c::TCP_CORK => flag(options.cork),
            // Not in ping-pong mode: the stack acknowledges quickly at first.
            c::TCP_QUICKACK => int(1),
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
            c::TCP_INFO => match info {
                Some(info) => tcp_info_bytes(&info),
                None => {
                    let mut none = vec![0; TCP_INFO_LEN];
                    none[0] = self.node.net.state(id).map_or(TcpState::Close as u8, |s| s as u8);
                    none
                }
            },
            c::TCP_FASTOPEN_CONNECT => int(0),
            c::TCP_ULP => Vec::new(),
            _ => return err(Errno::ENOPROTOOPT),
        })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_options_are_listed_once() {
        for (i, a) in KEPT.iter().enumerate() {
            assert!(KEPT[i + 1..].iter().all(|b| (a.0, a.1) != (b.0, b.1)), "{a:?}");
        }
    }
}

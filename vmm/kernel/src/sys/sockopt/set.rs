//! setsockopt(2).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::names;
use bloodhound_abi::structs::{Linger, Timeval};
use bloodhound_net::{Proto, SockOpt, SocketId, TcpState};

use super::bpf::SO_LOCK_FILTER;
use super::device::SO_BINDTOIFINDEX;
use super::groups;
use super::guard::{TCP_MD5SIG, TCP_MD5SIG_EXT};
use super::kept::{IPV6_RECVFRAGSIZE, KEPT_BY_UNIX, SO_SELECT_ERR_QUEUE, Shape, kept, twin};
use super::other::{Call, other};
use super::rare::{SO_BUSY_POLL_BUDGET, SO_CNX_ADVICE, SO_PREFER_BUSY_POLL, TCP_FASTOPEN_KEY, TCP_TX_DELAY};
use super::stamps::is_stamp;
use super::{CONGESTION_NAME, SO_BUF_LOCK, SO_RESERVE_MEM, SO_TXREHASH, UDP_ENCAP, UDPLITE_COVERAGE};
use crate::caps::{CAP_NET_ADMIN, CAP_NET_RAW};
use crate::ctx::*;
use crate::ids::NetlinkId;
use crate::sys::socket::Sock;
use crate::unix::{BUFFER, WRITABLE};
use crate::wait::{Object, Stop, SysResult};

const SO_BSDCOMPAT: u64 = 14;
/// SOCK_MIN_SNDBUF and SOCK_MIN_RCVBUF.
const MIN_SNDBUF: u32 = 4608;
const MIN_RCVBUF: u32 = 2304;
/// A tick of Linux with HZ=250: timeouts are whole ticks.
const JIFFY: u64 = 4_000_000;
/// What getsockopt(2) shows for the longest SO_LINGER: the low bits of MAX_SCHEDULE_TIMEOUT in seconds.
const LINGER_MAX: i32 = 0x978d_4fdf_u32 as i32;
/// TCP_FIN_TIMEOUT_MAX, seconds.
const FIN_TIMEOUT_MAX: i32 = 120;

/// The effect of this option matters and is not modelled.
pub(super) fn unsupported<T>(level: u64, name: u64) -> SysResult<T> {
    let known = names::name_of(names::socket_options(level), name).unwrap_or("of an unknown name");
    Err(Stop::Unsupported(format!("setsockopt {known}")))
}

impl Ctx<'_> {
    pub(super) fn int_option(&mut self, value: Ptr, len: u32) -> Result<i32, Errno> {
        if len < 4 {
            return Err(Errno::EINVAL);
        }
        self.read_obj(value)
    }

    /// As IPv6 takes an int: "if (sockptr_is_null(optval)) val = 0" (do_ipv6_setsockopt).
    pub(super) fn ipv6_int(&mut self, value: Ptr, len: u32) -> Result<i32, Errno> {
        if value.is_null() && len >= 4 { Ok(0) } else { self.int_option(value, len) }
    }

    pub(super) fn set_stack_option(&mut self, id: SocketId, option: SockOpt) -> SysResult<()> {
        let now = self.node.clock;
        Ok(self.node.net.of_mut(id).set_option(id, option, now)?)
    }

    pub(super) fn set_socket_option(&mut self, sock: Sock, name: u64, value: Ptr, len: u32) -> SysResult<()> {
        if name == c::SO_BINDTODEVICE {
            return self.bind_to_device(sock, value, len);
        }
        if let Some(answer) = self.set_program(sock, name, value, len) {
            return answer;
        }
        let number = self.int_option(value, len)?;
        match name {
            c::SO_TYPE | c::SO_PROTOCOL | c::SO_DOMAIN | c::SO_ERROR | c::SO_ACCEPTCONN | c::SO_SNDLOWAT => {
                err(Errno::ENOPROTOOPT)
            }
            c::SO_DEBUG if number != 0 => err(Errno::EACCES),
            c::SO_DEBUG => Ok(()),
            c::SO_DETACH_FILTER => self.detach_filter(sock),
            SO_LOCK_FILTER => self.lock_filter(sock, number != 0),
            SO_BINDTOIFINDEX => self.bind_to_index(sock, number),
            SO_BUF_LOCK => self.lock_buffers(sock, number),
            SO_TXREHASH => self.set_rehash(sock, number),
            SO_CNX_ADVICE => Ok(()),
            // Without CAP_NET_ADMIN neither is raised.
            SO_PREFER_BUSY_POLL | SO_BUSY_POLL_BUDGET if number > 0 => err(Errno::EPERM),
            SO_PREFER_BUSY_POLL if number < 0 => err(Errno::EPERM),
            SO_BUSY_POLL_BUDGET if number < 0 => err(Errno::EINVAL),
            SO_PREFER_BUSY_POLL | SO_BUSY_POLL_BUDGET => Ok(()),
            // For who has CAP_NET_ADMIN, which containers do not have.
            c::SO_SNDBUFFORCE | c::SO_RCVBUFFORCE => err(Errno::EPERM),
            c::SO_MARK if !self.may_mark() => err(Errno::EPERM),
            SO_RESERVE_MEM if number < 0 => err(Errno::EINVAL),
            // As where sockets are not counted by control groups.
            SO_RESERVE_MEM => err(Errno::EOPNOTSUPP),
            c::SO_PRIORITY if !(0..=6).contains(&number) && !self.may_mark() => err(Errno::EPERM),
            name if is_stamp(name) => self.set_stamps(sock, name, number),
            // "This option enables BSD bug-to-bug compatibility": ignored since Linux 2.2.
            SO_BSDCOMPAT => Ok(()),
            c::SO_PEEK_OFF if !self.peeks_anywhere(sock)? => err(Errno::EOPNOTSUPP),
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
                let on = linger.onoff != 0;
                // The time is kept even when lingering is off; a negative one is the longest that fits into jiffies.
                let secs = if !on || linger.linger >= 0 { linger.linger } else { LINGER_MAX };
                self.generic(sock)?.kept.insert((c::SOL_SOCKET, c::SO_LINGER), secs);
                match sock {
                    Sock::Inet(id) | Sock::Packet(id) => {
                        self.set_stack_option(id, SockOpt::Linger(on.then_some(secs as u32)))
                    }
                    Sock::Unix(_) | Sock::Netlink(_) => {
                        self.generic(sock)?.linger = on;
                        Ok(())
                    }
                }
            }
            _ => self.set_common_number(sock, name, number),
        }
    }

    /// Whether the caller may say where packets go beyond their addresses: either capability will do ("sockopt_ns_capable(..., CAP_NET_RAW) ||
    /// sockopt_ns_capable(..., CAP_NET_ADMIN)", since Linux 5.17).
    pub(in crate::sys) fn may_mark(&self) -> bool {
        self.capable(CAP_NET_RAW) || self.capable(CAP_NET_ADMIN)
    }

    /// Whether the socket has SO_PEEK_OFF: unix and UDP sockets do ("if (!sock->ops->set_peek_off) return -EOPNOTSUPP"); TCP has it since
    /// Linux 6.9.
    pub(super) fn peeks_anywhere(&self, sock: Sock) -> Result<bool, Errno> {
        Ok(match sock {
            Sock::Unix(_) => true,
            Sock::Inet(id) => matches!(self.inet(id)?.proto, Proto::Udp | Proto::UdpLite),
            Sock::Netlink(_) | Sock::Packet(_) => false,
        })
    }

    /// Options of socket(7) with an int.
    fn set_common_number(&mut self, sock: Sock, name: u64, number: i32) -> SysResult<()> {
        if let Some((_, shape)) = kept(c::SOL_SOCKET, name) {
            self.keep(sock, (c::SOL_SOCKET, name), number, shape)?;
            return match (name, sock) {
                (c::SO_INCOMING_CPU, Sock::Inet(id)) => {
                    self.set_stack_option(id, SockOpt::IncomingCpu(number))
                }
                (c::SO_OOBINLINE, Sock::Inet(id)) => {
                    self.set_stack_option(id, SockOpt::OobInline(number != 0))
                }
                (SO_SELECT_ERR_QUEUE, Sock::Inet(id)) => {
                    self.set_stack_option(id, SockOpt::SelectErrQueue(number != 0))
                }
                _ => Ok(()),
            };
        }
        let on = number != 0;
        match sock {
            Sock::Unix(id) => {
                let unix = self.node.unix.get_mut(id);
                // "Ensure val * 2 fits into an int"; a negative number is a large unsigned one.
                let doubled = (number as u32).min(BUFFER) * 2;
                if matches!(name, c::SO_SNDBUF | c::SO_RCVBUF) {
                    unix.generic.lock_buffer(name);
                }
                match name {
                    c::SO_SNDBUF => self.node.unix.set_sndbuf(id, doubled.max(MIN_SNDBUF)),
                    c::SO_RCVBUF => unix.rcvbuf = doubled.max(MIN_RCVBUF),
                    c::SO_PASSCRED => unix.passcred = on,
                    c::SO_REUSEPORT if on => return err(Errno::EOPNOTSUPP),
                    c::SO_RCVLOWAT => {
                        let lowat = if number < 0 { i32::MAX } else { number.max(1) };
                        unix.generic.kept.insert((c::SOL_SOCKET, name), lowat);
                    }
                    _ if KEPT_BY_UNIX.iter().any(|k| k.0 == name) => {
                        unix.generic.kept.insert((c::SOL_SOCKET, name), i32::from(on));
                    }
                    _ => return other(Call::Set, c::SOL_SOCKET, name),
                }
                Ok(())
            }
            Sock::Netlink(id) => self.set_netlink_common(id, name, number),
            Sock::Inet(id) | Sock::Packet(id) => {
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
                    _ => return other(Call::Set, c::SOL_SOCKET, name),
                };
                self.set_stack_option(id, option)
            }
        }
    }

    fn set_netlink_common(&mut self, id: NetlinkId, name: u64, number: i32) -> SysResult<()> {
        let socket = &mut self.node.netlinks[id];
        let doubled = (number as u32).min(BUFFER) * 2;
        if matches!(name, c::SO_SNDBUF | c::SO_RCVBUF) {
            socket.generic.lock_buffer(name);
        }
        match name {
            c::SO_SNDBUF => {
                socket.buffers[0] = doubled.max(MIN_SNDBUF);
                // "Wake up sending tasks if we upped the value."
                self.node.notify_object(Object::Netlink(id), WRITABLE);
            }
            c::SO_RCVBUF => socket.buffers[1] = doubled.max(MIN_RCVBUF),
            c::SO_PASSCRED => socket.passcred = number != 0,
            c::SO_REUSEPORT if number != 0 => return err(Errno::EOPNOTSUPP),
            _ if KEPT_BY_UNIX.iter().any(|k| k.0 == name) => {
                socket.generic.kept.insert((c::SOL_SOCKET, name), number);
            }
            _ => return other(Call::Set, c::SOL_SOCKET, name),
        }
        Ok(())
    }

    fn keep(&mut self, sock: Sock, option: (u64, u64), number: i32, shape: Shape) -> SysResult<()> {
        let value = match shape {
            Shape::Flag => i32::from(number != 0),
            Shape::Range(low, high) if (low..=high).contains(&number) => number,
            Shape::Range(..) => return err(Errno::EINVAL),
            Shape::Byte => number & 0xff,
        };
        self.generic(sock)?.kept.insert(option, value);
        Ok(())
    }

    /// SO_RCVTIMEO's value, ns. socket(7): "If the timeout is set to zero (the default), then the operation will never
    /// timeout"; EDOM for bad microseconds; a negative time is one that is over at once. Times are whole jiffies.
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
            Some(ns) => Some(ns.checked_next_multiple_of(JIFFY).unwrap_or(u64::MAX)),
        })
    }

    pub(super) fn set_protocol_option(
        &mut self,
        id: SocketId,
        level: u64,
        name: u64,
        value: Ptr,
        len: u32,
    ) -> SysResult<()> {
        if let Some(answer) = self.set_raw_option(id, (level, name), value, len) {
            return answer;
        }
        let socket = self.inet(id)?;
        let (v6, tcp) = (socket.v6, socket.proto == Proto::Tcp);
        let udp = matches!(socket.proto, Proto::Udp | Proto::UdpLite);
        let lite = socket.proto == Proto::UdpLite;
        match level {
            c::IPPROTO_TCP if tcp => self.set_tcp_option(id, name, value, len),
            c::IPPROTO_IP => self.set_ip_option(id, tcp, name, value, len),
            c::IPPROTO_IPV6 if v6 => self.set_ipv6_option(id, tcp, name, value, len),
            c::IPPROTO_UDPLITE | c::IPPROTO_UDP if lite && UDPLITE_COVERAGE.contains(&name) => {
                let number = self.int_option(value, len)?;
                // "Use at least the header"; "val > USHRT_MAX" (udp_lib_setsockopt).
                let covered = if number == 0 { 0 } else { (number as u32).clamp(8, 0xffff) as i32 };
                self.keep(Sock::Inet(id), (c::IPPROTO_UDPLITE, name), covered, Shape::Range(0, 0xffff))
            }
            c::IPPROTO_UDP if udp => match (name, self.int_option(value, len)?) {
                // UDP_ENCAP of nothing; of anything else it is for IPsec, which is not there.
                (UDP_ENCAP, 0) => Ok(()),
                (c::UDP_CORK, number) => {
                    self.keep(Sock::Inet(id), (level, name), number, Shape::Flag)?;
                    if number == 0 {
                        // What becomes of the datagram is not told (udp_lib_setsockopt).
                        let _told_nobody = self.uncork(id);
                    }
                    Ok(())
                }
                (UDP_ENCAP, _) => err(Errno::ENOPROTOOPT),
                (name, number) if kept(level, name).is_some() => {
                    self.keep_protocol(id, (level, name), number)
                }
                _ => other(Call::Set, level, name),
            },
            _ => err(Errno::ENOPROTOOPT),
        }
    }

    fn set_ip_option(&mut self, id: SocketId, tcp: bool, name: u64, value: Ptr, len: u32) -> SysResult<()> {
        if groups::is_group_option(c::IPPROTO_IP, name) {
            return self.set_ip_group_option(id, tcp, name, value, len);
        }
        if let Some(answer) = self.set_rare_ip_option(id, tcp, name, value, len) {
            return answer;
        }
        let number = self.short_option(value, len)?;
        let level = c::IPPROTO_IP;
        match name {
            c::IP_TRANSPARENT
            | c::IP_FREEBIND
            | c::IP_MULTICAST_TTL
            | c::IP_MULTICAST_LOOP
            | c::IP_MULTICAST_ALL
                if len == 0 =>
            {
                err(Errno::EINVAL)
            }
            c::IP_TRANSPARENT if number != 0 && !self.may_mark() => err(Errno::EPERM),
            c::IP_MULTICAST_TTL if tcp => err(Errno::EINVAL),
            // "val &= ~INET_ECN_MASK": the two low bits are TCP's own.
            c::IP_TOS if tcp => self.keep_protocol(id, (level, name), number & 0xfc),
            // -1 stands for the default.
            c::IP_TTL | c::IP_MULTICAST_TTL if number == -1 => self.reset(id, level, name),
            _ => {
                self.keep_protocol(id, (level, name), number)?;
                match name {
                    c::IP_MULTICAST_ALL => self.set_stack_option(id, SockOpt::GroupAll(number != 0)),
                    c::IP_RECVERR => self.set_stack_option(id, SockOpt::RecvErr(number != 0)),
                    _ => Ok(()),
                }
            }
        }
    }

    fn set_ipv6_option(&mut self, id: SocketId, tcp: bool, name: u64, value: Ptr, len: u32) -> SysResult<()> {
        let level = c::IPPROTO_IPV6;
        if groups::is_group_option(level, name) {
            return self.set_ipv6_group_option(id, tcp, name, value, len);
        }
        if let Some(answer) = self.set_header_option(id, name, value, len) {
            return answer;
        }
        if let Some(answer) = self.set_rare_ipv6_option(id, name, value, len) {
            return answer;
        }
        let number = match len {
            0..4 if name == c::IPV6_DONTFRAG || name == IPV6_RECVFRAGSIZE => 0,
            _ if tcp && name == c::IPV6_MULTICAST_HOPS => return err(Errno::ENOPROTOOPT),
            0..4 if !matches!(name, c::IPV6_V6ONLY | c::IPV6_MTU) && kept(level, name).is_none() => {
                return err(Errno::ENOPROTOOPT);
            }
            _ => self.ipv6_int(value, len)?,
        };
        match name {
            c::IPV6_V6ONLY => self.set_stack_option(id, SockOpt::V6Only(number != 0)),
            // The size of fragments ("val < IPV6_MIN_MTU" is EINVAL, do_ipv6_setsockopt), of which programs here see none.
            c::IPV6_MTU if number == 0 || number >= 1280 => Ok(()),
            c::IPV6_MTU => err(Errno::EINVAL),
            c::IPV6_UNICAST_HOPS | c::IPV6_MULTICAST_HOPS | c::IPV6_TCLASS if number == -1 => {
                self.reset(id, level, name)
            }
            c::IPV6_TCLASS if tcp && (0..=255).contains(&number) => {
                self.keep_protocol(id, (level, name), number & 0xfc)
            }
            _ => {
                self.keep_protocol(id, (level, name), number)?;
                match name {
                    c::IPV6_MULTICAST_ALL => self.set_stack_option(id, SockOpt::GroupAll6(number != 0)),
                    c::IPV6_RECVERR => self.set_stack_option(id, SockOpt::RecvErr6(number != 0)),
                    _ => Ok(()),
                }
            }
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
        let Some((_, shape)) = kept(option.0, option.1) else {
            return other(Call::Set, option.0, option.1);
        };
        self.keep(Sock::Inet(id), option, number, shape)?;
        if let Some(twin) = twin(option) {
            self.keep(Sock::Inet(id), twin, number, shape)?;
        }
        self.told_to_segments(id, option, Some(number))
    }

    fn reset(&mut self, id: SocketId, level: u64, name: u64) -> SysResult<()> {
        self.generic(Sock::Inet(id))?.kept.remove(&(level, name));
        self.told_to_segments(id, (level, name), None)
    }

    fn told_to_segments(&mut self, id: SocketId, option: (u64, u64), number: Option<i32>) -> SysResult<()> {
        if self.inet(id)?.proto == Proto::Tcp { self.guard_by_hops(id, option, number) } else { Ok(()) }
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
            c::TCP_QUICKACK => {
                self.keep(Sock::Inet(id), (c::IPPROTO_TCP, name), number, Shape::Flag)?;
                SockOpt::QuickAck(on)
            }
            c::TCP_KEEPIDLE => SockOpt::KeepIdle(unsigned),
            c::TCP_KEEPINTVL => SockOpt::KeepIntvl(unsigned),
            c::TCP_KEEPCNT => SockOpt::KeepCnt(unsigned),
            c::TCP_SYNCNT => SockOpt::SynCnt(unsigned),
            c::TCP_LINGER2 => SockOpt::Linger2(number.clamp(-1, FIN_TIMEOUT_MAX)),
            // Not below half of SOCK_MIN_RCVBUF, but for 0, which means no limit.
            c::TCP_WINDOW_CLAMP if number != 0 => {
                let clamp = number.max(MIN_RCVBUF as i32 / 2);
                return self.keep_protocol(id, (c::IPPROTO_TCP, name), clamp);
            }
            c::TCP_THIN_DUPACK if (0..=1).contains(&number) => return Ok(()),
            c::TCP_THIN_DUPACK => return err(Errno::EINVAL),
            c::TCP_USER_TIMEOUT if number < 0 => return err(Errno::EINVAL),
            c::TCP_USER_TIMEOUT => SockOpt::UserTimeout(unsigned),
            // 0 gives the choice back to the kernel: what a socket without a limit has anyway.
            c::TCP_MAXSEG if number == 0 && self.node.net.of(id).options(id)?.max_seg.is_none() => {
                return Ok(());
            }
            c::TCP_MAXSEG => SockOpt::MaxSeg(u16::try_from(number).map_err(|_| Errno::EINVAL)?),
            c::TCP_FASTOPEN
                if !matches!(self.node.net.of(id).state(id), Some(TcpState::Close | TcpState::Listen)) =>
            {
                return err(Errno::EINVAL);
            }
            // 0 is no delay, as it is.
            TCP_TX_DELAY if number == 0 => return Ok(()),
            TCP_TX_DELAY if number < 0 => return err(Errno::EINVAL),
            TCP_FASTOPEN_KEY if !matches!(len, 16 | 32) => return err(Errno::EINVAL),
            TCP_MD5SIG | TCP_MD5SIG_EXT => return self.set_signature_key(id, name, value, len),
            c::TCP_FASTOPEN_CONNECT
                if !(0..=1).contains(&number) || self.node.net.of(id).state(id) != Some(TcpState::Close) =>
            {
                return err(Errno::EINVAL);
            }
            _ => return self.keep_protocol(id, (c::IPPROTO_TCP, name), number),
        };
        self.set_stack_option(id, option)
    }
}

//! Options about the extension headers of IPv6 that a socket sends (RFC 3542, RFC 2292), and IPV6_ADDRFORM, which leaves IPv6 behind.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_net::{Proto, SocketId};

use super::set::unsupported;
use crate::caps::CAP_NET_RAW;
use crate::ctx::*;
use crate::wait::SysResult;

pub(super) const IPV6_ADDRFORM: u64 = 1;
pub(super) const IPV6_2292PKTOPTIONS: u64 = 6;
const IPV6_RTHDR: u64 = 57;
/// IPV6_HOPOPTS, IPV6_RTHDRDSTOPTS, IPV6_RTHDR, IPV6_DSTOPTS: a header for all that is sent from then on, or as ancillary data for one datagram.
pub(in crate::sys) const STICKY: [u64; 4] = [54, 55, IPV6_RTHDR, 59];
/// Most bytes of such a header, and of what IPV6_2292PKTOPTIONS takes.
const HEADER_MAX: u32 = 8 * 255;
const CONTROL_MAX: u32 = 64 * 1024;
/// `struct cmsghdr`.
const CMSGHDR: u32 = 16;

impl Ctx<'_> {
    /// setsockopt(2); `None` for options that are none of these.
    pub(super) fn set_header_option(
        &mut self,
        id: SocketId,
        name: u64,
        value: Ptr,
        len: u32,
    ) -> Option<SysResult<()>> {
        match name {
            IPV6_ADDRFORM => Some(self.set_address_form(id, value, len)),
            IPV6_2292PKTOPTIONS => Some(self.set_packet_options(value, len)),
            name if STICKY.contains(&name) => Some(self.set_sticky_header(name, value, len)),
            _ => None,
        }
    }

    /// "Turn an AF_INET6 socket into a socket of a different address family. Only AF_INET is currently supported for that. It is allowed
    /// only for IPv6 sockets that are connected and bound to a v4-mapped-on-v6 address" (ipv6(7)).
    fn set_address_form(&mut self, id: SocketId, value: Ptr, len: u32) -> SysResult<()> {
        let family = self.ipv6_int(value, len)?;
        if family as u64 != c::AF_INET {
            return err(Errno::EINVAL);
        }
        if !matches!(self.inet(id)?.proto, Proto::Tcp | Proto::Udp | Proto::UdpLite) {
            return err(Errno::ENOPROTOOPT);
        }
        // "up->pending == AF_INET6": part of a datagram for somebody else waits.
        let waiting = self.inet(id)?.corked.as_ref().and_then(|corked| corked.to);
        if waiting.is_some_and(|to| to.ip().to_canonical().is_ipv6()) {
            return err(Errno::EBUSY);
        }
        self.node.net.of_mut(id).become_v4(id)?;
        if let Some(socket) = self.node.inet.get_mut(&id) {
            socket.v6 = false;
            socket.generic.kept.retain(|(level, _), _| *level != c::IPPROTO_IPV6);
        }
        Ok(())
    }

    /// Control messages for all that is sent from then on; what has no room for one takes those of before away.
    fn set_packet_options(&mut self, value: Ptr, len: u32) -> SysResult<()> {
        if len > CONTROL_MAX {
            return err(Errno::EINVAL);
        }
        let mut control = vec![0; len as usize];
        self.read_bytes(value.0, &mut control)?;
        if len < CMSGHDR { Ok(()) } else { unsupported(c::IPPROTO_IPV6, IPV6_2292PKTOPTIONS) }
    }

    /// "remove any sticky options header with a zero option length, per RFC3542"; EPERM without CAP_NET_RAW but for IPV6_RTHDR; EINVAL for
    /// what is no header.
    fn set_sticky_header(&mut self, name: u64, value: Ptr, len: u32) -> SysResult<()> {
        if len >= 4 {
            self.ipv6_int(value, len)?;
        }
        if name != IPV6_RTHDR && !self.capable(CAP_NET_RAW) {
            return err(Errno::EPERM);
        }
        if len == 0 {
            return Ok(());
        }
        if value.is_null() || len & 7 != 0 || len > HEADER_MAX {
            return err(Errno::EINVAL);
        }
        let mut header = vec![0; len as usize];
        self.read_bytes(value.0, &mut header)?;
        // ipv6_optlen: "(((p)->hdrlen+1) << 3)".
        if (u32::from(header[1]) + 1) * 8 > len {
            return err(Errno::EINVAL);
        }
        unsupported(c::IPPROTO_IPV6, name)
    }
}

#[cfg(test)]
mod tests {
    use bloodhound_abi::table::nr;

    use super::*;
    use crate::testing::Bench;

    fn set(bench: &mut Bench, fd: u64, name: u64, value: &[u8]) -> Result<u64, Errno> {
        let at = bench.put_as(bench.tid, value);
        bench.call(nr::setsockopt, &[fd, c::IPPROTO_IPV6, name, at, value.len() as u64])
    }

    #[test]
    fn a_socket_connected_by_ipv4_becomes_one_of_it() {
        let mut bench = Bench::new();
        let fd = bench.call(nr::socket, &[c::AF_INET6, c::SOCK_DGRAM, 0]).unwrap();
        let family = (c::AF_INET as u32).to_le_bytes();
        assert_eq!(set(&mut bench, fd, IPV6_ADDRFORM, &family), Err(Errno::ENOTCONN));
        let mut mapped = [0; 28];
        (mapped[0], mapped[3]) = (10, 9);
        mapped[18..24].copy_from_slice(&[0xff, 0xff, 127, 0, 0, 1]);
        let at = bench.put_as(bench.tid, &mapped);
        assert_eq!(bench.call(nr::connect, &[fd, at, 28]), Ok(0));
        assert_eq!(set(&mut bench, fd, IPV6_ADDRFORM, &[10, 0, 0, 0]), Err(Errno::EINVAL));
        assert_eq!(set(&mut bench, fd, IPV6_ADDRFORM, &family), Ok(0));
        let (name, len) = (bench.room(28), bench.put_as(bench.tid, &28u32.to_le_bytes()));
        assert_eq!(bench.call(nr::getpeername, &[fd, name, len]), Ok(0));
        assert_eq!(bench.object::<u32>(bench.tid, len), 16);
        assert_eq!(bench.get_as(bench.tid, name, 8), [2, 0, 0, 9, 127, 0, 0, 1]);
        assert_eq!(set(&mut bench, fd, IPV6_ADDRFORM, &family), Err(Errno::ENOPROTOOPT));
    }

    #[test]
    fn headers_to_send_are_looked_at() {
        let mut bench = Bench::new();
        let fd = bench.call(nr::socket, &[c::AF_INET6, c::SOCK_STREAM, 0]).unwrap();
        for name in STICKY {
            assert_eq!(set(&mut bench, fd, name, &[]), Ok(0));
            assert_eq!(set(&mut bench, fd, name, &[1, 0, 0, 0]), Err(Errno::EINVAL));
            assert_eq!(set(&mut bench, fd, name, &[0, 1, 0, 0, 0, 0, 0, 0]), Err(Errno::EINVAL));
        }
        assert_eq!(set(&mut bench, fd, IPV6_2292PKTOPTIONS, &[1, 0, 0, 0]), Ok(0));
    }
}

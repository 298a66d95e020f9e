//! Options of raw sockets (raw(7), ipv6(7), RFC 3542): ICMP_FILTER, ICMP6_FILTER, IPV6_CHECKSUM and IP_HDRINCL.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_net::{Proto, SocketId};

use crate::ctx::*;
use crate::sys::socket::Sock;
use crate::wait::SysResult;

/// SOL_RAW and its option.
const SOL_RAW: u64 = 255;
const ICMP_FILTER: u64 = 1;
/// ICMPV6_FILTER, at the level of ICMPv6.
const ICMP6_FILTER: u64 = 1;
/// IPV6_CHECKSUM.
const IPV6_CHECKSUM: u64 = 7;
/// IP_HDRINCL and, at its own level, IPV6_HDRINCL.
pub(crate) const IP_HDRINCL: u64 = 3;
const IPV6_HDRINCL: u64 = 36;

impl Ctx<'_> {
    /// Family and number of a raw socket.
    fn raw_kind(&self, id: SocketId) -> Option<(bool, u64)> {
        let socket = self.inet(id).ok()?;
        (socket.proto == Proto::Raw).then_some((socket.v6, u64::from(socket.number)))
    }

    /// setsockopt(2) of what raw sockets have; `None` for what they have like others.
    pub(super) fn set_raw_option(
        &mut self,
        id: SocketId,
        (level, name): (u64, u64),
        value: Ptr,
        len: u32,
    ) -> Option<SysResult<()>> {
        let (v6, number) = self.raw_kind(id)?;
        match (level, name, v6) {
            (SOL_RAW, ICMP_FILTER, false) | (c::IPPROTO_ICMPV6, ICMP6_FILTER, true) => {
                let own = if v6 { c::IPPROTO_ICMPV6 } else { c::IPPROTO_ICMP };
                if number != own {
                    return Some(err(Errno::EOPNOTSUPP));
                }
                Some(self.set_filter(id, v6, value, len))
            }
            (SOL_RAW, IPV6_CHECKSUM, true) | (c::IPPROTO_IPV6, IPV6_CHECKSUM, true) => Some(
                self.set_checksum(id, level == c::IPPROTO_IPV6 && number == c::IPPROTO_ICMPV6, value, len),
            ),
            (c::IPPROTO_IPV6 | SOL_RAW, IPV6_HDRINCL, true) => Some(super::set::unsupported(level, name)),
            (c::IPPROTO_IP, IP_HDRINCL, false) => Some(self.keep_header_flag(id, value, len)),
            (c::IPPROTO_ICMPV6, _, true) if number != c::IPPROTO_ICMPV6 => Some(err(Errno::EOPNOTSUPP)),
            (SOL_RAW, ..) | (c::IPPROTO_ICMPV6, _, true) => Some(err(Errno::ENOPROTOOPT)),
            _ => None,
        }
    }

    fn set_filter(&mut self, id: SocketId, v6: bool, value: Ptr, len: u32) -> SysResult<()> {
        let most = if v6 { 32 } else { 4 };
        let mut words = self.node.net.of(id).icmp_filter(id)?;
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.read_bytes(value.0, &mut bytes[..(len as usize).min(most)])?;
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        Ok(self.node.net.of_mut(id).set_icmp_filter(id, words)?)
    }

    /// "An attempt to set IPV6_CHECKSUM on an ICMPv6 socket will fail" (RFC 3542, section 3.1); an odd place is EINVAL, a negative one
    /// turns it off.
    fn set_checksum(&mut self, id: SocketId, fixed: bool, value: Ptr, len: u32) -> SysResult<()> {
        let at = self.int_option(value, len)?;
        if fixed || at > 0 && at & 1 != 0 {
            return err(Errno::EINVAL);
        }
        let place = if at < 0 { None } else { Some(u16::try_from(at).map_err(|_| Errno::EINVAL)?) };
        Ok(self.node.net.of_mut(id).set_checksum_offset(id, place)?)
    }

    fn keep_header_flag(&mut self, id: SocketId, value: Ptr, len: u32) -> SysResult<()> {
        let on = match len {
            0 => return err(Errno::EINVAL),
            1..=3 => self.read_obj::<u8>(value)? != 0,
            _ => self.read_obj::<i32>(value)? != 0,
        };
        self.generic(Sock::Inet(id))?.kept.insert((c::IPPROTO_IP, IP_HDRINCL), i32::from(on));
        Ok(())
    }

    /// Whether what a raw socket sends begins with the header of IP: "this is the default for IPPROTO_RAW" (raw(7)).
    pub(crate) fn sends_header(&self, id: SocketId) -> bool {
        let Some((v6, number)) = self.raw_kind(id) else { return false };
        let kept = self.inet(id).ok().and_then(|s| s.generic.kept.get(&(c::IPPROTO_IP, IP_HDRINCL)).copied());
        !v6 && kept.map_or(number == c::IPPROTO_RAW, |on| on != 0)
    }

    /// getsockopt(2), as above.
    pub(super) fn get_raw_option(&self, id: SocketId, level: u64, name: u64) -> Option<SysResult<Vec<u8>>> {
        let (v6, number) = self.raw_kind(id)?;
        let stack = self.node.net.of(id);
        let filter = |words: usize| match stack.icmp_filter(id) {
            Ok(filter) => Ok(filter[..words].iter().flat_map(|word| word.to_le_bytes()).collect()),
            Err(e) => err(e),
        };
        match (level, name, v6) {
            (SOL_RAW, ICMP_FILTER, false) if number == c::IPPROTO_ICMP => Some(filter(1)),
            (SOL_RAW, ICMP_FILTER, false) => Some(err(Errno::EOPNOTSUPP)),
            (c::IPPROTO_ICMPV6, ICMP6_FILTER, true) if number == c::IPPROTO_ICMPV6 => Some(filter(8)),
            (c::IPPROTO_ICMPV6, _, true) if number != c::IPPROTO_ICMPV6 => Some(err(Errno::EOPNOTSUPP)),
            (SOL_RAW | c::IPPROTO_IPV6, IPV6_CHECKSUM, true) => Some(match stack.checksum_offset(id) {
                Ok(at) => Ok(at.map_or(-1, i32::from).to_le_bytes().to_vec()),
                Err(e) => err(e),
            }),
            (c::IPPROTO_IP, IP_HDRINCL, false) => {
                Some(Ok(i32::from(self.sends_header(id)).to_le_bytes().to_vec()))
            }
            (SOL_RAW, ..) | (c::IPPROTO_ICMPV6, _, true) => Some(err(Errno::ENOPROTOOPT)),
            _ => None,
        }
    }
}

//! Options by which a socket of TCP says which segments it takes: IP_MINTTL, IPV6_MINHOPCOUNT (RFC 5082), TCP_MD5SIG and TCP_MD5SIG_EXT (RFC 2385), and IP_TTL and
//! IPV6_UNICAST_HOPS, which peers look at.

use std::net::{IpAddr, Ipv6Addr};

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_net::SocketId;

use super::kept::{IP_MINTTL, IPV6_MINHOPCOUNT};
use crate::ctx::*;
use crate::wait::SysResult;

pub(super) const TCP_MD5SIG: u64 = 14;
pub(super) const TCP_MD5SIG_EXT: u64 = 32;
/// Bytes of `struct tcp_md5sig`: address, flags, length of prefix, length of key, interface, key.
const MD5SIG: usize = 216;
const KEY_AT: usize = 136;
/// TCP_MD5SIG_MAXKEYLEN.
const KEY_MAX: usize = 80;
/// TCP_MD5SIG_FLAG_PREFIX and TCP_MD5SIG_FLAG_IFINDEX.
const PREFIX: u8 = 1;
const IFINDEX: u8 = 2;

impl Ctx<'_> {
    /// A kept option of ip(7) or ipv6(7) of a socket of TCP was set, `None` to its default: what the segments of the socket are to know of it.
    pub(super) fn guard_by_hops(
        &mut self,
        id: SocketId,
        (level, name): (u64, u64),
        number: Option<i32>,
    ) -> SysResult<()> {
        let v6 = level == c::IPPROTO_IPV6;
        let hops = number.and_then(|number| u8::try_from(number).ok());
        let stack = self.node.net.of_mut(id);
        match (level, name) {
            (c::IPPROTO_IP, c::IP_TTL) | (c::IPPROTO_IPV6, c::IPV6_UNICAST_HOPS) => {
                Ok(stack.set_hops(id, v6, hops)?)
            }
            (c::IPPROTO_IP, IP_MINTTL) | (c::IPPROTO_IPV6, IPV6_MINHOPCOUNT) => {
                Ok(stack.set_least_hops(id, v6, hops.unwrap_or(0))?)
            }
            _ => Ok(()),
        }
    }

    /// TCP_MD5SIG and TCP_MD5SIG_EXT (`tcp_v4_parse_md5_keys`, `tcp_v6_parse_md5_keys`). EINVAL; ENOENT for a key that is to be taken away and is not there.
    pub(super) fn set_signature_key(
        &mut self,
        id: SocketId,
        name: u64,
        value: Ptr,
        len: u32,
    ) -> SysResult<()> {
        if (len as usize) < MD5SIG {
            return err(Errno::EINVAL);
        }
        let mut bytes = [0; MD5SIG];
        self.read_bytes(value.0, &mut bytes)?;
        let v6 = self.inet(id)?.v6;
        let family = u64::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
        if family != if v6 { c::AF_INET6 } else { c::AF_INET } {
            return err(Errno::EINVAL);
        }
        let peer = match v6 {
            true => {
                let ip: [u8; 16] = bytes[8..24].try_into().map_err(|_| Errno::EINVAL)?;
                IpAddr::from(Ipv6Addr::from(ip)).to_canonical()
            }
            false => IpAddr::from([bytes[4], bytes[5], bytes[6], bytes[7]]),
        };
        let most = if peer.is_ipv4() { 32 } else { 128 };
        let flags = if name == TCP_MD5SIG_EXT { bytes[128] } else { 0 };
        let prefix = if flags & PREFIX != 0 { bytes[129] } else { most };
        // No interface here is one that others belong to (netif_is_l3_master).
        let interface = i32::from_ne_bytes([bytes[132], bytes[133], bytes[134], bytes[135]]);
        let length = usize::from(u16::from_ne_bytes([bytes[130], bytes[131]]));
        if prefix > most || flags & IFINDEX != 0 && interface != 0 || length > KEY_MAX {
            return err(Errno::EINVAL);
        }
        let key = (length > 0).then(|| &bytes[KEY_AT..KEY_AT + length]);
        Ok(self.node.net.of_mut(id).set_key(id, (peer, prefix), key)?)
    }
}

//! Which segments a socket of TCP takes from whom: those that have passed few routers (RFC 5082; IP_MINTTL, IPV6_MINHOPCOUNT), and those that are signed with a
//! key that both ends have (RFC 2385, TCP_MD5SIG).
//!
//! Key types: [`Guard`] (what a socket asks for and gives itself), [`Key`]. A signature stands for its key only: what is damaged on the way is lost here anyway.
//! Neighbours: `demux` and `conn`, which send and receive segments.

use super::{Pair, Result, Stack};
use crate::iface::same_network;
use crate::socket::Common;
use crate::{Segment, SocketId};
use bloodhound_abi::Errno;
use std::net::{IpAddr, SocketAddr};

/// Bytes that Linux takes for a key, and how many it takes for the options of a socket (net.core.optmem_max).
const KEY: usize = 136;
const OPTMEM_MAX: usize = 20480;

/// What a socket asks of segments, and what it gives its own; the first of two values is that of IPv4.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Guard {
    /// The count of hops that its segments begin with, unless it is the usual one.
    hops: [Option<u8>; 2],
    /// The least count of hops with which segments may arrive.
    least: [u8; 2],
    keys: Vec<Key>,
}

/// A key for a network of peers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    network: IpAddr,
    prefix: u8,
    /// What segments signed with it carry.
    signature: u64,
}

impl Guard {
    /// The signature for a peer: that of the narrowest network with it (`__tcp_md5_do_lookup`).
    fn signature(&self, peer: IpAddr) -> Option<u64> {
        let fits = self.keys.iter().filter(|key| same_network(key.network, peer, key.prefix));
        fits.max_by_key(|key| key.prefix).map(|key| key.signature)
    }

    /// What an accepted connection has of its listener's: one key at most (`tcp_v4_syn_recv_sock`).
    pub(crate) fn for_child(&self, peer: IpAddr) -> Guard {
        let key = |signature| Key { network: peer, prefix: if peer.is_ipv4() { 32 } else { 128 }, signature };
        Guard { keys: self.signature(peer).map(key).into_iter().collect(), ..self.clone() }
    }
}

/// What is given to a segment that a socket sends.
pub(crate) fn dress(c: &Common, segment: &mut Segment, peer: IpAddr) {
    if let Some(guard) = &c.guard {
        segment.hops = guard.hops[usize::from(peer.is_ipv6())].unwrap_or(segment.hops);
        segment.signature = guard.signature(peer);
    }
}

/// The same for an acknowledgement that the stack sends for a socket which is not connected yet, or not any more: it begins with the usual count of hops
/// (`ip_send_unicast_reply`).
pub(super) fn sign(c: &Common, segment: &mut Segment, peer: IpAddr) {
    segment.signature = c.guard.as_ref().and_then(|guard| guard.signature(peer));
}

/// Whether segments to a peer are signed, which takes room from their data.
pub(crate) fn is_signed(c: &Common, peer: IpAddr) -> bool {
    c.guard.as_ref().is_some_and(|guard| guard.signature(peer).is_some())
}

/// Whether a socket does not take a segment for its signature (`tcp_inbound_md5_hash`).
pub(super) fn refuses_signature(c: &Common, segment: &Segment, peer: IpAddr) -> bool {
    segment.signature != c.guard.as_ref().and_then(|guard| guard.signature(peer))
}

/// Whether a segment has come from too far ("if (unlikely(iph->ttl < READ_ONCE(inet_sk(sk)->min_ttl)))", tcp_v4_rcv).
pub(super) fn comes_from_afar(c: &Common, segment: &Segment, peer: IpAddr) -> bool {
    c.guard.as_ref().is_some_and(|guard| segment.hops < guard.least[usize::from(peer.is_ipv6())])
}

impl Stack {
    /// Whether a segment that belongs to no connection is answered by a reset: one that is signed only where somebody listens on the port that it came from who has the
    /// key ("active side is lost. Try to find listening socket through source port, and then find md5 key through listening socket", tcp_v4_send_reset).
    pub(super) fn may_reset(&self, pair: Pair, segment: &Segment, interface: u32) -> bool {
        let listener =
            || self.find_listener((SocketAddr::new(pair.0.ip(), pair.1.port()), pair.1), interface);
        let listener = || listener().and_then(|id| self.sockets.get(&id));
        segment.signature.is_none()
            || listener().is_some_and(|s| !refuses_signature(&s.common, segment, pair.1.ip()))
    }

    fn guard(&mut self, id: SocketId) -> Result<&mut Guard> {
        Ok(self.get_mut(id)?.common.guard.get_or_insert_with(Box::default))
    }

    /// IP_TTL or IPV6_UNICAST_HOPS of a socket of TCP; `None` for the usual count.
    pub fn set_hops(&mut self, id: SocketId, v6: bool, hops: Option<u8>) -> Result<()> {
        self.guard(id)?.hops[usize::from(v6)] = hops;
        Ok(())
    }

    /// IP_MINTTL or IPV6_MINHOPCOUNT.
    pub fn set_least_hops(&mut self, id: SocketId, v6: bool, least: u8) -> Result<()> {
        self.guard(id)?.least[usize::from(v6)] = least;
        Ok(())
    }

    /// TCP_MD5SIG: the key for a network, or none any more. ENOENT where there is none to take away, ENOMEM for more than Linux has memory for.
    pub fn set_key(
        &mut self,
        id: SocketId,
        (network, prefix): (IpAddr, u8),
        key: Option<&[u8]>,
    ) -> Result<()> {
        let keys = &mut self.guard(id)?.keys;
        let known = keys.iter().position(|key| key.network == network && key.prefix == prefix);
        // FNV-1a of 64 bits: equal keys have equal signatures.
        let sum = |key: &[u8]| {
            key.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
                (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
            })
        };
        match (known, key) {
            (None, None) => return Err(Errno::ENOENT),
            (Some(at), None) => {
                keys.remove(at);
            }
            (Some(at), Some(key)) => keys[at].signature = sum(key),
            // sock_kmalloc: "atomic_read(&sk->sk_omem_alloc) + size < optmem_max", of `struct tcp_md5sig_key`.
            (None, Some(_)) if (keys.len() + 1) * KEY >= OPTMEM_MAX => return Err(Errno::ENOMEM),
            (None, Some(key)) => keys.push(Key { network, prefix, signature: sum(key) }),
        }
        Ok(())
    }
}

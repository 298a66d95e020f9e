//! Comparison of sequence numbers modulo 2^32 (RFC 9293, 3.4), and the hash from which initial sequence numbers and
//! ephemeral ports come.

use std::net::{IpAddr, SocketAddr};

/// `a` is before `b`.
pub(crate) fn before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

/// `a` is after `b`.
pub(crate) fn after(a: u32, b: u32) -> bool {
    before(b, a)
}

/// The later of two.
pub(crate) fn later(a: u32, b: u32) -> u32 {
    if before(a, b) { b } else { a }
}

/// A fixed mixing of 64 bits (the finaliser of SplitMix64).
pub(crate) fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A hash of a pair of addresses under `seed`.
pub(crate) fn hash_pair(seed: u64, a: SocketAddr, b: SocketAddr) -> u64 {
    [a, b].iter().fold(seed, |hash, addr| {
        let ip = match addr.ip() {
            IpAddr::V4(ip) => u128::from(ip.to_bits()),
            IpAddr::V6(ip) => ip.to_bits(),
        };
        mix(mix(mix(hash ^ ip as u64) ^ (ip >> 64) as u64) ^ u64::from(addr.port()))
    })
}

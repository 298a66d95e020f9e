//! What TCP, UDP and unix sockets have in common: the options of socket(7) without an effect of their own
//! ([`Generic`]), and socket addresses as programs write them ([`Address`]).
//!
//! Neighbours: [`crate::inet`], [`crate::unix`], `sys::socket`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::unix::Name;

/// Most bytes of a socket address (`struct sockaddr_storage`).
pub const ADDRESS_MAX: usize = 128;
/// net.core.optmem_max: ancillary data of this many bytes and more is ENOBUFS, and so is a longer filter.
pub const OPTMEM_MAX: u32 = 20480;
/// `struct sockaddr_in`.
const SIN_LEN: usize = 16;
/// The part of `struct sockaddr_in6` that must be there (SIN6_LEN_RFC2133: without the scope id).
pub(crate) const SIN6_MIN: usize = 24;
/// `struct sockaddr_in6`.
pub(crate) const SIN6_LEN: usize = 28;
/// `struct sockaddr_un`: family and 108 bytes of path.
const SUN_LEN: usize = 110;

/// Which times a socket tells with its messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamps {
    /// SO_TIMESTAMP or SO_TIMESTAMPNS (SOCK_RCVTSTAMP).
    pub on: bool,
    /// It is SO_TIMESTAMPNS (SOCK_RCVTSTAMPNS).
    pub nanoseconds: bool,
    /// The option that was set last is one of the new type of times (SOCK_TSTAMP_NEW).
    pub new: bool,
    /// The flags of SO_TIMESTAMPING.
    pub flags: u32,
}

/// Options that a socket only remembers, and its timeouts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Generic {
    /// SO_RCVTIMEO, ns; `None` waits for ever.
    pub rcvtimeo: Option<u64>,
    /// SO_SNDTIMEO, ns; also bounds connect(2).
    pub sndtimeo: Option<u64>,
    /// SO_LINGER of a unix socket: kept, without effect.
    pub linger: bool,
    /// Options that are kept and shown again, by level and name; absent means the default.
    pub kept: BTreeMap<(u64, u64), i32>,
    /// Times that received messages tell.
    pub stamps: Stamps,
    /// Who made the socket, for /proc/net.
    pub uid: u32,
}

impl Generic {
    /// Defaults for a socket of `uid`.
    pub fn new(uid: u32) -> Generic {
        Generic { uid, ..Generic::default() }
    }

    /// Where a peek begins, if SO_PEEK_OFF says so: "when this option is set to a negative value, [...] traditional behavior is provided".
    pub fn peek_offset(&self) -> Option<u64> {
        self.kept.get(&(c::SOL_SOCKET, c::SO_PEEK_OFF)).and_then(|offset| u64::try_from(*offset).ok())
    }

    /// So many bytes were received: "every MSG_PEEK [...] updates the offset, so that the next peek will return the data next in the queue", and
    /// what is taken off the queue "will be adjusted backward" (`sk_peek_offset_fwd`, `sk_peek_offset_bwd`).
    pub fn move_peek_offset(&mut self, received: u64, peek: bool) {
        if let Some(offset) =
            self.kept.get_mut(&(c::SOL_SOCKET, c::SO_PEEK_OFF)).filter(|offset| **offset >= 0)
        {
            let received = i32::try_from(received).unwrap_or(i32::MAX);
            let moved = if peek { offset.wrapping_add(received) } else { offset.wrapping_sub(received) };
            *offset = moved.max(0);
        }
    }

    /// Whether a kept option is set to anything but 0.
    pub fn is_set(&self, level: u64, name: u64) -> bool {
        self.kept.get(&(level, name)).is_some_and(|v| *v != 0)
    }
}

/// A socket address that came from a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    bytes: Vec<u8>,
}

impl Address {
    /// An address of raw bytes, at most [`ADDRESS_MAX`].
    pub fn new(bytes: Vec<u8>) -> Address {
        Address { bytes }
    }

    /// The family, if there are enough bytes for one.
    pub fn family(&self) -> Option<u64> {
        self.bytes.first_chunk::<2>().map(|b| u64::from(u16::from_le_bytes(*b)))
    }

    /// The bytes as they came.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes that matter: a pathname ends at its NUL (unix(7), unix_mkname_bsd).
    pub fn meant(&self) -> &[u8] {
        let path = self.bytes.get(2..).filter(|path| path.first().is_some_and(|b| *b != 0));
        match path.filter(|_| self.family() == Some(c::AF_UNIX)) {
            Some(path) => {
                let end = path.iter().position(|b| *b == 0).unwrap_or(path.len());
                &self.bytes[..2 + end]
            }
            None => &self.bytes,
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// As an internet address for a socket of the given family. EINVAL when too short, EAFNOSUPPORT for another family.
    pub fn to_inet(&self, v6: bool) -> Result<SocketAddr, Errno> {
        let (family, least) = if v6 { (c::AF_INET6, SIN6_MIN) } else { (c::AF_INET, SIN_LEN) };
        if self.len() < least {
            return Err(Errno::EINVAL);
        }
        if self.family() != Some(family) {
            return Err(Errno::EAFNOSUPPORT);
        }
        if v6 { self.v6().ok_or(Errno::EINVAL) } else { self.v4().ok_or(Errno::EINVAL) }
    }

    /// The bytes as `struct sockaddr_in`, whatever the family says.
    pub fn v4(&self) -> Option<SocketAddr> {
        let b = self.bytes.first_chunk::<8>()?;
        let port = u16::from_be_bytes([b[2], b[3]]);
        Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(b[4], b[5], b[6], b[7])), port))
    }

    /// The bytes as `struct sockaddr_in6`, whatever the family says.
    pub fn v6(&self) -> Option<SocketAddr> {
        let b = self.bytes.first_chunk::<SIN6_MIN>()?;
        let port = u16::from_be_bytes([b[2], b[3]]);
        let ip: [u8; 16] = b[8..24].try_into().ok()?;
        Some(SocketAddr::new(IpAddr::V6(Ipv6Addr::from(ip)), port))
    }

    /// sin6_scope_id of a multicast address: the interface that is meant (`__ipv6_addr_needs_scope_id`). 0 if there is none.
    pub fn scope(&self) -> u32 {
        match (self.family(), self.bytes.get(8), self.bytes.get(SIN6_MIN..SIN6_MIN + 4)) {
            (Some(c::AF_INET6), Some(0xff), Some(scope)) => scope.try_into().map_or(0, u32::from_le_bytes),
            _ => 0,
        }
    }

    /// As a unix address; `Ok(None)` is the family alone, which asks bind(2) for an autobind. EINVAL for another family
    /// or a bad length.
    pub fn to_unix(&self) -> Result<Option<Name>, Errno> {
        if self.family() != Some(c::AF_UNIX) || self.len() > SUN_LEN {
            return Err(Errno::EINVAL);
        }
        Ok(match &self.bytes[2..] {
            [] => None,
            // "the name has no connection with filesystem pathnames"; all bytes count, NULs too.
            [0, name @ ..] => Some(Name::Abstract(name.to_vec())),
            path => Some(Name::Path(path.iter().copied().take_while(|b| *b != 0).collect())),
        })
    }
}

/// The bytes of an internet address as the kernel writes them.
pub fn inet_bytes(addr: SocketAddr) -> Vec<u8> {
    let mut out = Vec::with_capacity(28);
    match addr {
        SocketAddr::V4(a) => {
            out.extend_from_slice(&(c::AF_INET as u16).to_le_bytes());
            out.extend_from_slice(&a.port().to_be_bytes());
            out.extend_from_slice(&a.ip().octets());
            out.extend_from_slice(&[0; 8]);
        }
        SocketAddr::V6(a) => {
            let a: SocketAddrV6 = a;
            out.extend_from_slice(&(c::AF_INET6 as u16).to_le_bytes());
            out.extend_from_slice(&a.port().to_be_bytes());
            out.extend_from_slice(&a.flowinfo().to_be_bytes());
            out.extend_from_slice(&a.ip().octets());
            out.extend_from_slice(&a.scope_id().to_le_bytes());
        }
    }
    out
}

/// The bytes of a unix address. unix(7): for a pathname `offsetof(struct sockaddr_un, sun_path) + strlen(sun_path) + 1`,
/// for an unnamed socket `sizeof(sa_family_t)`, for an abstract one the name with its leading NUL and nothing behind.
pub fn unix_bytes(name: Option<&Name>) -> Vec<u8> {
    let mut out = (c::AF_UNIX as u16).to_le_bytes().to_vec();
    match name {
        None => {}
        Some(Name::Path(path)) => {
            out.extend_from_slice(path);
            out.push(0);
        }
        Some(Name::Abstract(name)) => {
            out.push(0);
            out.extend_from_slice(name);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_ends_at_its_nul_and_an_abstract_name_does_not() {
        let unix = |path: &[u8]| Address::new([&[1, 0][..], path].concat());
        assert_eq!(unix(b"/run/a\0left over").meant(), unix(b"/run/a").bytes());
        assert_eq!(unix(b"/run/a").meant(), unix(b"/run/a").bytes());
        assert_eq!(unix(b"\0name\0more").meant(), unix(b"\0name\0more").bytes());
        let inet = Address::new(vec![2, 0, 80, 0, 0, 1]);
        assert_eq!(inet.meant(), inet.bytes());
    }

    #[test]
    fn internet_addresses_round_trip() {
        for text in ["10.0.0.7:8080", "[fd00::1]:443"] {
            let addr: SocketAddr = text.parse().unwrap();
            let bytes = inet_bytes(addr);
            assert_eq!(bytes.len(), if addr.is_ipv6() { 28 } else { 16 });
            assert_eq!(Address::new(bytes).to_inet(addr.is_ipv6()), Ok(addr));
        }
    }

    #[test]
    fn wrong_families_and_lengths_are_refused() {
        let v4 = Address::new(inet_bytes("1.2.3.4:5".parse().unwrap()));
        assert_eq!(v4.to_inet(true), Err(Errno::EINVAL), "shorter than a sockaddr_in6");
        let v6 = Address::new(inet_bytes("[::1]:5".parse().unwrap()));
        assert_eq!(v6.to_inet(false), Err(Errno::EAFNOSUPPORT));
        assert_eq!(Address::new(vec![2]).to_inet(false), Err(Errno::EINVAL));
        assert_eq!(Address::new(vec![]).to_unix(), Err(Errno::EINVAL));
        assert_eq!(Address::new(vec![1]).to_unix(), Err(Errno::EINVAL));
    }

    #[test]
    fn unix_addresses_follow_the_length_rules() {
        let path = Name::Path(b"/run/x".to_vec());
        assert_eq!(unix_bytes(Some(&path)), b"\x01\0/run/x\0");
        assert_eq!(unix_bytes(None), b"\x01\0");
        assert_eq!(unix_bytes(Some(&Name::Abstract(b"a\0b".to_vec()))), b"\x01\0\0a\0b");
        assert_eq!(Address::new(b"\x01\0/run/x\0junk".to_vec()).to_unix(), Ok(Some(path)));
        assert_eq!(Address::new(b"\x01\0".to_vec()).to_unix(), Ok(None));
        assert_eq!(Address::new(b"\x01\0\0".to_vec()).to_unix(), Ok(Some(Name::Abstract(vec![]))));
        let mut long = b"\x01\0".to_vec();
        long.extend([b'x'; 108]);
        assert_eq!(Address::new(long.clone()).to_unix(), Ok(Some(Name::Path(vec![b'x'; 108]))));
        long.push(b'x');
        assert_eq!(Address::new(long).to_unix(), Err(Errno::EINVAL));
    }
}

//! Making sockets: which families there are, and who may have what.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_net::Proto;

use super::Sock;
use super::kinds::{inet_proto, unix_kind};
use crate::ctx::*;
use crate::inet::InetSocket;
use crate::procfs::sysctl::ping_groups;
use crate::socket::Generic;

impl Ctx<'_> {
    /// Makes a socket of any family, as `sock_create` does.
    pub(super) fn create_socket(&mut self, domain: u32, kind: u64, protocol: u32) -> Result<Sock, Errno> {
        let protocol = u64::from(protocol);
        match u64::from(domain) {
            c::AF_UNIX => {
                let kind = unix_kind(kind, protocol)?;
                let uid = self.credentials().cred.uid;
                let net = self.container().net;
                Ok(Sock::Unix(self.node.unix.create(net, kind, uid)))
            }
            family @ (c::AF_INET | c::AF_INET6) => {
                let v6 = family == c::AF_INET6;
                let raw = self.capable(crate::caps::CAP_NET_RAW);
                let (proto, number) = inet_proto(v6, kind, protocol, raw)?;
                if proto == Proto::Icmp && !self.may_ping() {
                    return Err(Errno::EACCES);
                }
                let net = self.container().net;
                let stack = self.node.net.stack_mut(net);
                let id = match proto {
                    Proto::Tcp => stack.tcp_socket(v6),
                    Proto::Udp => stack.udp_socket(v6),
                    Proto::UdpLite => stack.udplite_socket(v6),
                    Proto::Icmp => stack.ping_socket(v6),
                    Proto::Raw => stack.raw_socket(v6, number),
                    Proto::Packet => return Err(Errno::EAFNOSUPPORT),
                };
                let generic = Generic::new(self.credentials().cred.uid);
                self.node
                    .inet
                    .insert(id, InetSocket { v6, proto, number, generic, corked: None, looked: false });
                Ok(Sock::Inet(id))
            }
            c::AF_PACKET => self.create_packet(kind, protocol).map(Sock::Packet),
            c::AF_NETLINK => self.create_netlink(kind, protocol).map(Sock::Netlink),
            _ => Err(Errno::EAFNOSUPPORT),
        }
    }

    /// Whether a group of the caller is in net.ipv4.ping_group_range, which Docker sets to `0 2147483647`.
    fn may_ping(&self) -> bool {
        let cred = &self.credentials().cred;
        let range = self.container().parameter("net/ipv4/ping_group_range");
        let (low, high) = range.and_then(|text| ping_groups(text, "").ok()).unwrap_or((0, i32::MAX as u32));
        std::iter::once(&cred.gid).chain(cred.groups.iter()).any(|gid| (low..=high).contains(gid))
    }
}

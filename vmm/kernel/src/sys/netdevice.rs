//! ioctl(2) of sockets: amounts of data (tcp(7), udp(7), unix(7)) and questions about interfaces (netdevice(7)).

use std::net::Ipv4Addr;

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::names;
use bloodhound_net::Proto;

use crate::ctx::*;
use crate::ids::*;
use crate::inet::{Interface, interfaces};
use crate::socket::inet_bytes;
use crate::sys::socket::Sock;
use crate::unix::Kind;
use crate::wait::SysResult;

/// `struct ifreq`: 16 bytes of name, 24 of union.
const IFREQ: usize = 40;
const NAME: usize = 16;
/// IFF_UP | IFF_RUNNING, and with these IFF_LOOPBACK or IFF_BROADCAST | IFF_MULTICAST.
const RUNNING: u16 = 0x41;
const LOOPBACK: u16 = RUNNING | 0x8;
const ETHERNET: u16 = RUNNING | 0x2 | 0x1000;
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;
const FIOGETOWN: u64 = 0x8903;
const SIOCGPGRP: u64 = 0x8904;
const SIOCOUTQNSD: u64 = 0x894b;
const SIOCGIFDSTADDR: u64 = 0x8917;
const SIOCGIFMETRIC: u64 = 0x891d;
const SIOCGIFCOUNT: u64 = 0x8938;
const SIOCGIFTXQLEN: u64 = 0x8942;
const SIOCETHTOOL: u64 = 0x8946;
const SIOCGMIIPHY: u64 = 0x8947;
const SIOCGMIIREG: u64 = 0x8948;
const SIOCGIFMAP: u64 = 0x8970;
const SIOCGHWTSTAMP: u64 = 0x89b1;
const SIOCGARP: u64 = 0x8954;
/// `struct arpreq`: addresses of protocol, hardware and netmask of 16 bytes each, flags between them, and 16 bytes of name.
const ARPREQ: usize = 68;
const ARP_FLAGS: usize = 32;
const ARP_DEVICE: usize = 52;
/// Questions of wireless extensions.
const WIRELESS: std::ops::RangeInclusive<u64> = 0x8b00..=0x8bff;
/// What changes routes, addresses, neighbours or interfaces needs CAP_NET_ADMIN: SIOCADDRT, SIOCDELRT, SIOCSIFLINK,
/// SIOCSIFFLAGS, SIOCSIFADDR, SIOCSIFDSTADDR, SIOCSIFBRDADDR, SIOCSIFNETMASK, SIOCSIFMETRIC, SIOCSIFMTU, SIOCSIFNAME,
/// SIOCSIFHWADDR, SIOCSIFSLAVE, SIOCADDMULTI, SIOCDELMULTI, SIOCSIFPFLAGS, SIOCDIFADDR, SIOCSIFHWBROADCAST, SIOCSIFBR,
/// SIOCSIFTXQLEN, SIOCSMIIREG, SIOCDARP, SIOCSARP, SIOCSIFMAP, SIOCSIFVLAN, SIOCBRADDBR, SIOCBRDELBR, SIOCSHWTSTAMP,
/// SIOCUNIXFILE.
const ADMIN: [u64; 29] = [
    0x890b, 0x890c, 0x8911, 0x8914, 0x8916, 0x8918, 0x891a, 0x891c, 0x891e, 0x8922, 0x8923, 0x8924, 0x8930,
    0x8931, 0x8932, 0x8934, 0x8936, 0x8937, 0x8941, 0x8943, 0x8949, 0x8953, 0x8955, 0x8971, 0x8983, 0x89a0,
    0x89a1, 0x89b0, 0x89e0,
];
/// ARPHRD_ETHER and ARPHRD_LOOPBACK.
const ARPHRD_ETHER: u16 = 1;
const ARPHRD_LOOPBACK: u16 = 772;

impl Ctx<'_> {
    /// The commands of sockets; ENOTTY for what is none of theirs.
    pub(crate) fn socket_ioctl(&mut self, file: FileId, cmd: u64, arg: Ptr) -> SysResult {
        let sock = self.sock_of(file)?;
        let number = match (cmd, sock) {
            // Echo sockets have no function for these (ping_prot).
            (c::FIONREAD | c::TIOCOUTQ, Sock::Inet(id)) if self.inet(id)?.proto == Proto::Icmp => {
                return err(Errno::ENOTTY);
            }
            (c::FIONREAD, Sock::Inet(id) | Sock::Packet(id)) => {
                self.has_looked(id);
                self.node.net.of(id).readable_bytes(id)?
            }
            (c::FIONREAD, Sock::Unix(id)) => self.node.unix.readable_bytes(id)?,
            (c::TIOCOUTQ, Sock::Inet(id) | Sock::Packet(id)) => self.node.net.of(id).unacked_bytes(id)?,
            (c::TIOCOUTQ, Sock::Unix(id)) => self.node.unix.unreceived_bytes(id),
            (SIOCOUTQNSD, Sock::Inet(id)) if self.inet(id)?.proto == Proto::Tcp => {
                self.node.net.of(id).unsent_bytes(id)?
            }
            // What no socket and no device knows: a `struct ifreq` is read all the same (sock_do_ioctl).
            (SIOCOUTQNSD, _) => {
                self.read_bytes(arg.0, &mut [0; IFREQ])?;
                return err(Errno::ENOTTY);
            }
            (c::FIONREAD | c::TIOCOUTQ, Sock::Netlink(_)) => return err(Errno::ENOTTY),
            (c::SIOCATMARK, Sock::Inet(id)) if self.inet(id)?.proto == Proto::Tcp => {
                usize::from(self.node.net.of(id).at_mark(id))
            }
            (c::SIOCATMARK, Sock::Unix(id)) if self.node.unix.get(id).kind != Kind::Stream => {
                return err(Errno::EOPNOTSUPP);
            }
            (c::SIOCATMARK, Sock::Unix(id)) => usize::from(self.node.unix.at_mark(id)),
            (FIOSETOWN | SIOCSPGRP, _) => {
                let number = self.read_obj(arg)?;
                return self.set_owner(file, number);
            }
            (FIOGETOWN | SIOCGPGRP, _) => self.owner(file) as u32 as usize,
            (c::SIOCGIFCONF, _) => return self.interface_list(arg),
            (
                c::SIOCGIFNAME
                | c::SIOCGIFFLAGS
                | c::SIOCGIFADDR
                | c::SIOCGIFBRDADDR
                | c::SIOCGIFNETMASK
                | c::SIOCGIFMTU
                | c::SIOCGIFHWADDR
                | c::SIOCGIFINDEX
                | SIOCGIFDSTADDR
                | SIOCGIFMETRIC
                | SIOCGIFTXQLEN
                | SIOCETHTOOL
                | SIOCGMIIPHY
                | SIOCGMIIREG
                | SIOCGIFMAP
                | SIOCGHWTSTAMP,
                _,
            ) => return self.interface_query(cmd, arg),
            _ if WIRELESS.contains(&cmd) => return self.interface_query(cmd, arg),
            (SIOCGARP, Sock::Inet(_)) => return self.neighbour_query(arg),
            (SIOCGARP, _) => return err(Errno::ENOTTY),
            _ if ADMIN.contains(&cmd) => return self.change_refused(sock, cmd, arg),
            (SIOCGIFCOUNT, _) => return err(Errno::EINVAL),
            // SIOCGSTAMP and its kind: a stream notes no time of its packets (sock_gettstamp).
            (0x8906 | 0x8907 | 0x8010_8906 | 0x8010_8907, Sock::Inet(id))
                if self.inet(id)?.proto == Proto::Tcp =>
            {
                return err(Errno::ENOENT);
            }
            _ => return super::unmodelled("ioctl", names::IOCTL_SOCKET, cmd, Errno::ENOTTY),
        };
        self.write_obj(arg, &(number as i32))?;
        Ok(0)
    }

    /// What nobody may do: EPERM, after what the command says was read, where Linux reads it first (`inet_ioctl`, `inet6_ioctl`,
    /// `sock_do_ioctl`). Bridges, VLANs, neighbours and addresses of IPv6 ask for the capability at once.
    fn change_refused(&mut self, sock: Sock, cmd: u64, arg: Ptr) -> SysResult {
        const AT_ONCE: [u64; 8] = [0x8936, 0x8941, 0x8953, 0x8955, 0x8983, 0x89a0, 0x89a1, 0x89e0];
        const SIOCADDRT: u64 = 0x890b;
        const SIOCDELRT: u64 = 0x890c;
        const SIOCSIFADDR: u64 = 0x8916;
        let v6 = matches!(sock, Sock::Inet(id) if self.inet(id)?.v6);
        let size = match cmd {
            SIOCSIFADDR if v6 => 0,
            cmd if AT_ONCE.contains(&cmd) => 0,
            // `struct in6_rtmsg`, `struct rtentry`.
            SIOCADDRT | SIOCDELRT if v6 => 80,
            SIOCADDRT | SIOCDELRT => 120,
            _ => IFREQ,
        };
        self.read_bytes(arg.0, &mut vec![0; size])?;
        err(Errno::EPERM)
    }

    /// SIOCGIFCONF: interfaces with an IPv4 address. "If ifc_req is NULL, SIOCGIFCONF returns the necessary buffer size
    /// in bytes"; what does not fit is left out without an error.
    fn interface_list(&mut self, arg: Ptr) -> SysResult {
        // struct ifconf: int ifc_len, padding, pointer.
        let [len, _, low, high]: [u32; 4] = self.read_obj(arg)?;
        let buf = u64::from(low) | u64::from(high) << 32;
        let mut out = Vec::new();
        for interface in interfaces(self.stack()) {
            let Some((ip, _)) = interface.v4() else { continue };
            let mut entry = named(&interface);
            put(&mut entry, &inet_bytes((ip, 0).into()));
            out.extend_from_slice(&entry);
        }
        if buf != 0 {
            let room = usize::try_from(len as i32).map_err(|_| Errno::EINVAL)?;
            out.truncate(room.min(out.len()) / IFREQ * IFREQ);
            self.write_bytes(buf, &out)?;
        }
        self.write_obj(arg, &(out.len() as i32))?;
        Ok(0)
    }

    /// SIOCGARP (arp(7)): the table of neighbours is empty, as neighbours are found without a question. EINVAL for flags of the
    /// other commands or another family, ENODEV without such an interface, ENXIO: no such entry.
    fn neighbour_query(&mut self, arg: Ptr) -> SysResult {
        const AF_INET: [u8; 2] = (c::AF_INET as u16).to_le_bytes();
        const ATF_PUBL: u8 = 0x8;
        const ATF_NETMASK_OR_DONTPUB: u8 = 0x60;
        let entry: [u8; ARPREQ] = self.read_obj(arg)?;
        if entry[..2] != AF_INET {
            return err(Errno::EPFNOSUPPORT);
        }
        let flags = entry[ARP_FLAGS];
        if flags & ATF_PUBL == 0 && flags & ATF_NETMASK_OR_DONTPUB != 0 {
            return err(Errno::EINVAL);
        }
        let name = &entry[ARP_DEVICE..];
        let name = &name[..name.iter().position(|b| *b == 0).unwrap_or(NAME - 1)];
        let all = interfaces(self.stack());
        if !all.iter().any(|i| i.name.as_bytes() == name) {
            return err(Errno::ENODEV);
        }
        err(Errno::ENXIO)
    }

    fn interface_query(&mut self, cmd: u64, arg: Ptr) -> SysResult {
        let entry: [u8; IFREQ] = self.read_obj(arg)?;
        let all = interfaces(self.stack());
        let found = if cmd == c::SIOCGIFNAME {
            let index = i32::from_le_bytes([entry[16], entry[17], entry[18], entry[19]]);
            all.iter().find(|i| i.index == index)
        } else {
            let end = entry[..NAME].iter().position(|b| *b == 0).unwrap_or(NAME - 1);
            all.iter().find(|i| i.name.as_bytes() == &entry[..end])
        };
        let interface = found.ok_or(Errno::ENODEV)?;
        let mut out = entry;
        if cmd == c::SIOCGIFNAME {
            // All else of the request stays, the index too (dev_ifname).
            let name = interface.name.as_bytes();
            out[..name.len()].copy_from_slice(name);
            out[name.len()] = 0;
        }
        let (ip, prefix) = interface.v4().unwrap_or((Ipv4Addr::UNSPECIFIED, 0));
        let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
        let address = |bits: u32| inet_bytes((Ipv4Addr::from_bits(bits), 0).into());
        match cmd {
            c::SIOCGIFFLAGS => {
                let flags = if interface.is_loopback() { LOOPBACK } else { ETHERNET };
                put(&mut out, &flags.to_le_bytes());
            }
            c::SIOCGIFMTU => {
                let mtu = interface.mtu() as i32;
                put(&mut out, &mtu.to_le_bytes());
            }
            c::SIOCGIFINDEX => put(&mut out, &interface.index.to_le_bytes()),
            c::SIOCGIFHWADDR => {
                let family = if interface.is_loopback() { ARPHRD_LOOPBACK } else { ARPHRD_ETHER };
                put(&mut out, &family.to_le_bytes());
                out[NAME + 2..NAME + 8].copy_from_slice(&interface.hardware());
            }
            c::SIOCGIFADDR | SIOCGIFDSTADDR | c::SIOCGIFNETMASK | c::SIOCGIFBRDADDR
                if interface.v4().is_none() =>
            {
                return err(Errno::EADDRNOTAVAIL);
            }
            // An interface without a peer shows its own address.
            c::SIOCGIFADDR | SIOCGIFDSTADDR => put(&mut out, &address(ip.to_bits())),
            // "always 0": Linux has no metric.
            SIOCGIFMETRIC => put(&mut out, &0i32.to_le_bytes()),
            SIOCGIFTXQLEN => put(&mut out, &1000i32.to_le_bytes()),
            SIOCGIFMAP => put(&mut out, &[0; IFREQ - NAME]),
            c::SIOCGIFNETMASK => put(&mut out, &address(mask)),
            c::SIOCGIFBRDADDR if interface.is_loopback() => put(&mut out, &address(0)),
            c::SIOCGIFBRDADDR => put(&mut out, &address(ip.to_bits() | !mask)),
            // What a driver would answer.
            SIOCETHTOOL | SIOCGMIIPHY | SIOCGMIIREG | SIOCGHWTSTAMP => return err(Errno::EOPNOTSUPP),
            _ if WIRELESS.contains(&cmd) => return err(Errno::EOPNOTSUPP),
            _ => {}
        }
        self.write_bytes(arg.0, &out)?;
        Ok(0)
    }
}

/// An entry with the interface's name.
fn named(interface: &Interface) -> [u8; IFREQ] {
    let mut out = [0; IFREQ];
    let name = interface.name.as_bytes();
    out[..name.len()].copy_from_slice(name);
    out
}

/// Stores the union's first bytes.
fn put(entry: &mut [u8; IFREQ], bytes: &[u8]) {
    entry[NAME..NAME + bytes.len()].copy_from_slice(bytes);
}

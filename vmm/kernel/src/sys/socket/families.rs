//! Addresses of IPv4 on sockets of IPv6.

use std::net::SocketAddr;

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::table::nr;

use crate::socket::inet_bytes;
use crate::testing::Bench;

/// Makes a call with an address, of which it counts so many bytes.
fn with(b: &mut Bench, call: u64, fd: u64, addr: &str, len: u64) -> Result<u64, Errno> {
    let addr: SocketAddr = addr.parse().expect("an address");
    let at = b.put_as(b.tid, &inet_bytes(addr));
    match call {
        nr::sendto => b.call(call, &[fd, at, 3, 0, at, len]),
        _ => b.call(call, &[fd, at, len]),
    }
}

#[test]
fn a_socket_for_ipv6_only_takes_none_of_ipv4() {
    let mut b = Bench::new();
    for by_option in [false, true] {
        let u = b.call(nr::socket, &[c::AF_INET6, c::SOCK_DGRAM, 0]).expect("a socket");
        if by_option {
            let one = b.put_as(b.tid, &1u32.to_le_bytes());
            assert_eq!(b.call(nr::setsockopt, &[u, c::IPPROTO_IPV6, c::IPV6_V6ONLY, one, 4]), Ok(0));
        } else {
            assert_eq!(with(&mut b, nr::bind, u, "[::1]:0", 28), Ok(0));
        }
        for (call, addr, len, want) in [
            (nr::connect, "0.0.0.0:0", 16, Errno::EAFNOSUPPORT),
            (nr::connect, "127.0.0.1:7", 2, Errno::EAFNOSUPPORT),
            (nr::connect, "127.0.0.1:7", 1, Errno::EINVAL),
            (nr::connect, "[::ffff:127.0.0.1]:7", 28, Errno::ENETUNREACH),
            (nr::sendto, "127.0.0.1:0", 16, Errno::ENETUNREACH),
            (nr::sendto, "127.0.0.1:7", 2, Errno::ENETUNREACH),
            (nr::sendto, "[::ffff:127.0.0.1]:0", 28, Errno::ENETUNREACH),
            (nr::sendto, "[::1]:0", 28, Errno::EINVAL),
        ] {
            assert_eq!(with(&mut b, call, u, addr, len), Err(want), "{call} {addr} {len}");
        }
    }
}

#[test]
fn others_do_and_keep_the_address_of_an_earlier_connection() {
    let mut b = Bench::new();
    let receiver = b.call(nr::socket, &[c::AF_INET, c::SOCK_DGRAM, 0]).expect("a socket");
    assert_eq!(with(&mut b, nr::bind, receiver, "127.0.0.1:7000", 16), Ok(0));
    let u = b.call(nr::socket, &[c::AF_INET6, c::SOCK_DGRAM, 0]).expect("a socket");
    for (call, addr, len, want) in [
        (nr::connect, "127.0.0.1:7", 15, Err(Errno::EINVAL)),
        (nr::sendto, "127.0.0.1:7", 15, Err(Errno::EINVAL)),
        (nr::connect, "[::1]:7000", 28, Ok(0)),
        (nr::connect, "127.0.0.1:7000", 16, Ok(0)),
    ] {
        assert_eq!(with(&mut b, call, u, addr, len), want, "{call} {addr} {len}");
    }
    let at = b.room(64);
    let len = b.put_as(b.tid, &28u32.to_le_bytes());
    assert_eq!(b.call(nr::getsockname, &[u, at, len]), Ok(0));
    let name = b.get_as(b.tid, at, 28);
    assert_eq!(name[8..24], std::net::Ipv6Addr::LOCALHOST.octets());
    let data = b.text("abc");
    assert_eq!(b.call(nr::sendto, &[u, data, 3, 0, 0, 0]), Ok(3));
}

//! Sockets: Unix ones of all kinds with descriptors in messages, TCP and UDP over the loopback device.

use super::model::{Kind, Model};

const ANY: &[Kind] = &[Kind::Unix, Kind::Inet];

/// An address of Unix, IPv4 or IPv6, with its length.
fn address(m: &mut Model, inet: bool) -> (String, u64) {
    if inet {
        let port = m.rng.pick(&[7000, 7001, 7002, 7000, 0]);
        return match m.rng.below(14) {
            0 => (format!("[ 2:10 n:{port} 4:0 z15 1:1 4:0 ]"), 28),
            4 => {
                (format!("[ 2:10 n:{port} 4:0 z10 2:0xffff N:0x7f000001 4:0 ]"), m.rng.pick(&[28, 28, 24, 2]))
            }
            5 => (format!("[ 2:10 n:{port} 4:0 z16 4:0 ]"), 28),
            1 => (format!("[ 2:2 n:{port} N:0 z8 ]"), 16),
            2 => (format!("[ 2:2 n:{port} N:0x7f000001 z8 ]"), m.rng.pick(&[0, 2, 15, 17, 128])),
            3 => ("[ 2:0 z14 ]".to_owned(), 16),
            _ => (format!("[ 2:2 n:{port} N:0x7f000001 z8 ]"), 16),
        };
    }
    let path = m.rng.pick(&["s0", "s1", "s0", "d/s", "a", "x/y"]);
    let size = path.len() as u64 + 3;
    match m.rng.below(12) {
        0 => ("[ 2:1 ]".to_owned(), 2),
        1 => (format!("[ 2:1 \"{path}\" 1:0 ]"), m.rng.pick(&[0, 1, 3, 111])),
        2 | 3 => ("[ 2:1 1:0 \"name\" ]".to_owned(), 7),
        4 => ("0".to_owned(), 16),
        _ => (format!("[ 2:1 \"{path}\" 1:0 ]"), size),
    }
}

fn make(m: &mut Model) {
    let nonblocking = if m.rng.one_in(8) { 0 } else { 0o4000 };
    // SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET
    match m.rng.below(6) {
        0 | 1 => {
            let kind = m.rng.pick(&[1, 2, 5]);
            let (a, b) = (m.slot(Kind::Unix), m.slot(Kind::Unix));
            m.op(format!("0 {a},{b} socketpair 1 {:#x} 0 <8", kind | nonblocking));
        }
        2 | 3 => {
            let kind = m.number(&[1, 2, 5]) as u64;
            m.make(Kind::Unix, format!("socket 1 {:#x} 0", kind | nonblocking));
        }
        _ => {
            let (family, kind) = (m.number(&[2, 2, 2, 10]), m.number(&[1, 1, 2, 5]) as u64);
            let protocol = m.number(&[0, 0, 0, 6, 17]);
            m.make(Kind::Inet, format!("socket {family} {:#x} {protocol}", kind | nonblocking));
        }
    }
}

fn connect(m: &mut Model) {
    let inet = m.rng.one_in(2);
    let kinds = if inet { [Kind::Inet] } else { [Kind::Unix] };
    let fd = m.fd(&kinds);
    let (address, size) = address(m, inet);
    let actor = m.actor();
    match m.rng.below(10) {
        0..=2 => m.op(format!("{actor} . bind {fd} {address} {size}")),
        3 | 4 => {
            let backlog = m.number(&[0, 1, 5, 128]);
            m.op(format!("{actor} . listen {fd} {backlog}"));
        }
        5 | 6 => m.op(format!("{actor} . connect {fd} {address} {size}")),
        7 | 8 => {
            let kind = kinds[0];
            let slot = m.slot(kind);
            m.op(format!("{actor} {slot} accept4 {fd} <64:sock [ 4:64 ]? {:#x}", 0o4000));
        }
        _ => {
            let how = m.number(&[0, 1, 2, 3]);
            m.op(format!("{actor} . shutdown {fd} {how}"));
        }
    }
}

fn send(m: &mut Model) {
    let (fd, actor) = (m.fd(ANY), m.actor());
    // Good memory: since Linux 6.16 Unix sockets look at it before they look for the peer.
    let (size, seed) = (m.size(), m.rng.below(26));
    let input = format!("%{size}:{seed}");
    // MSG_DONTWAIT, MSG_NOSIGNAL, MSG_MORE, MSG_EOR, MSG_DONTROUTE
    let flags = format!("{:#x}", m.rng.bits(&[0x40, 0x40, 0x4000, 0x4000, 0x80]));
    let inet = m.rng.one_in(2);
    let (address, length) = if m.rng.one_in(3) { address(m, inet) } else { ("0".to_owned(), 0) };
    match m.rng.below(6) {
        0 | 1 => m.op(format!("{actor} . write {fd} {input} {size}")),
        2 | 3 => m.op(format!("{actor} . sendto {fd} {input} {size} {flags} {address} {length}")),
        _ => {
            let (vector, count) = (format!("[ *%{size}:1 8:{size} *\"ab\" 8:2 ]"), 2);
            let passed = m.fd(&[]);
            let (control, room) = match m.rng.below(4) {
                0 => (format!("*[ 8:20 4:1 4:1 4:{passed} 4:0 ]"), 24),
                1 => (format!("*[ 8:24 4:1 4:1 4:{passed} 4:{passed} ]"), 24),
                2 => ("*[ 8:28 4:1 4:2 4:p0 4:0 4:0 4:0 ]".to_owned(), 32),
                _ => ("8:0".to_owned(), 0),
            };
            let name = if address == "0" { "8:0".to_owned() } else { format!("*{address}") };
            m.op(format!(
                "{actor} . sendmsg {fd} [ {name} 4:{length} 4:0 *{vector} 8:{count} {control} 8:{room} 4:0 4:0 ] {flags}"
            ));
        }
    }
}

fn receive(m: &mut Model) {
    let (fd, actor) = (m.fd(ANY), m.actor());
    let (output, size) = m.output();
    // MSG_PEEK, MSG_DONTWAIT, MSG_TRUNC, MSG_WAITALL, MSG_CMSG_CLOEXEC
    let flags = format!("{:#x}", m.rng.bits(&[2, 2, 0x40, 0x40, 0x20, 0x4000_0000]));
    match m.rng.below(6) {
        0 | 1 => m.op(format!("{actor} . read {fd} {output} {size}")),
        2 | 3 => m.op(format!("{actor} . recvfrom {fd} {output} {size} {flags} <64:sock [ 4:64 ]?")),
        _ => {
            let (vector, count) = m.vector(true);
            let room = m.rng.pick(&[0, 64, 64, 20, 16]);
            m.op(format!(
                "{actor} . recvmsg {fd} [ 8:0 4:0 4:0 *{vector} 8:{count} *<64:hidden 8:{room} 4:0 4:0 ]?msg {flags}"
            ));
        }
    }
}

fn options(m: &mut Model) {
    let (fd, actor) = (m.fd(ANY), m.actor());
    // SO_REUSEADDR, SO_TYPE, SO_ERROR, SO_KEEPALIVE, SO_LINGER, SO_PASSCRED, SO_ACCEPTCONN, SO_PROTOCOL, SO_DOMAIN, SO_BROADCAST
    // SO_PASSCRED is EOPNOTSUPP for IP sockets since Linux 6.16.
    let name = m.number(&[2, 3, 4, 9, 13, 30, 38, 39, 6, 15]);
    let value = m.rng.below(3);
    match m.rng.below(8) {
        0 | 1 => {
            let size = m.rng.pick(&[4, 8, 2, 16]);
            m.op(format!("{actor} . getsockopt {fd} 1 {name} <16 [ 4:{size} ]?"));
        }
        2 | 3 => {
            let size = m.rng.pick(&[4, 8, 2]);
            m.op(format!("{actor} . setsockopt {fd} 1 {name} [ 4:{value} 4:0 ] {size}"));
        }
        4 => m.op(format!("{actor} . getsockname {fd} <64:sock [ 4:64 ]?")),
        5 => m.op(format!("{actor} . getpeername {fd} <64:sock [ 4:64 ]?")),
        6 => {
            // IPV6_V6ONLY now and then.
            if m.rng.one_in(3) {
                return m.op(format!("{actor} . setsockopt {fd} 41 26 [ 4:{value} ] 4"));
            }
            // TCP_NODELAY, TCP_CORK, TCP_KEEPIDLE
            let name = m.rng.pick(&[1, 3, 4]);
            let call = m.rng.pick(&["getsockopt", "setsockopt"]);
            let length = if call == "getsockopt" { "[ 4:4 ]" } else { "4" };
            m.op(format!("{actor} . {call} {fd} 6 {name} [ 4:{value} ]? {length}"));
        }
        _ => m.op(format!("{actor} . ioctl {fd} 0x541b <4")),
    }
}

/// One operation on sockets.
pub fn op(m: &mut Model) {
    match m.rng.below(24) {
        0..=4 => make(m),
        5..=10 => connect(m),
        11..=14 => send(m),
        15..=18 => receive(m),
        19 => options(m),
        20 if m.rng.one_in(2) => super::programs::filter(m),
        20 => options(m),
        21 => {
            let (a, b) = (m.fd(ANY), m.fd(ANY));
            m.call(format!("poll [ 4:{a} 2:0x2047 2:0 4:{b} 2:0x2047 2:0 ]? 2 0"));
        }
        22 => {
            let fd = m.fd(ANY);
            m.call(format!("close {fd}"));
        }
        _ => super::processes::fork(m),
    }
}

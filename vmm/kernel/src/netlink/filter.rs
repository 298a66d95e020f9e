//! Filters of dumps of sockets (INET_DIAG_REQ_BYTECODE), into which ss(8) translates what it is asked for: programs that go forward only,
//! from condition to condition. A socket is dumped if its way ends exactly at the end.
//!
//! Key type: [`Filter`]. The code is `struct inet_diag_bc_op` of inet_diag.h: a number, how far to go on if it holds and if not, and what
//! stands behind.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_net::SocketInfo;

use super::diag::octets;

/// Bytes of an operation, and of `struct inet_diag_hostcond`.
const OPERATION: usize = 4;
const HOST: usize = 8;

/// INET_DIAG_BC_*.
#[allow(missing_docs)]
mod code {
    pub const NOP: u8 = 0;
    pub const JMP: u8 = 1;
    pub const S_GE: u8 = 2;
    pub const S_LE: u8 = 3;
    pub const D_GE: u8 = 4;
    pub const D_LE: u8 = 5;
    pub const AUTO: u8 = 6;
    pub const S_COND: u8 = 7;
    pub const D_COND: u8 = 8;
    pub const DEV_COND: u8 = 9;
    pub const MARK_COND: u8 = 10;
    pub const S_EQ: u8 = 11;
    pub const D_EQ: u8 = 12;
}

/// A program that was checked.
#[derive(Clone, Copy, Debug)]
pub struct Filter<'a>(&'a [u8]);

/// One operation: its number, `yes`, `no`, and the program from it on.
struct Operation<'a> {
    code: u8,
    yes: usize,
    no: usize,
    rest: &'a [u8],
}

fn operation(rest: &[u8]) -> Option<Operation<'_>> {
    let [code, yes, low, high] = *rest.first_chunk::<OPERATION>()?;
    Some(Operation { code, yes: usize::from(yes), no: usize::from(u16::from_le_bytes([low, high])), rest })
}

impl Operation<'_> {
    /// The number in the operation behind this one, a port.
    fn port(&self) -> Option<u16> {
        operation(self.rest.get(OPERATION..)?).map(|behind| behind.no as u16)
    }

    /// `struct inet_diag_hostcond`: family, bits of the prefix, port (-1 for any), and the address.
    fn host(&self) -> Option<(u64, usize, i32, &[u8])> {
        let [family, prefix, _, _, port @ ..] = *self.rest.get(OPERATION..)?.first_chunk::<HOST>()?;
        let address = self.rest.get(OPERATION + HOST..)?;
        Some((u64::from(family), usize::from(prefix), i32::from_le_bytes(port), address))
    }

    /// How long it is with what stands behind (`valid_hostcond`, `valid_port_comparison` and their kin).
    ///
    /// # Errors
    /// EINVAL; EPERM for marks, which ask for CAP_NET_ADMIN.
    fn length(&self) -> Result<usize, Errno> {
        let behind = match self.code {
            code::NOP | code::JMP | code::AUTO => 0,
            code::S_GE | code::S_LE | code::D_GE | code::D_LE | code::S_EQ | code::D_EQ => OPERATION,
            code::DEV_COND => 4,
            code::S_COND | code::D_COND => {
                let (family, prefix, ..) = self.host().ok_or(Errno::EINVAL)?;
                let bytes = match family {
                    0 => 0,
                    c::AF_INET => 4,
                    c::AF_INET6 => 16,
                    _ => return Err(Errno::EINVAL),
                };
                if prefix > 8 * bytes {
                    return Err(Errno::EINVAL);
                }
                HOST + bytes
            }
            code::MARK_COND => return Err(Errno::EPERM),
            // INET_DIAG_BC_CGROUP_COND as well, without CONFIG_SOCK_CGROUP_DATA.
            _ => return Err(Errno::EINVAL),
        };
        let length = OPERATION + behind;
        if self.rest.len() < length { Err(Errno::EINVAL) } else { Ok(length) }
    }

    /// Whether its condition holds (`inet_diag_bc_run`).
    fn holds(&self, s: &SocketInfo) -> bool {
        let (source, target) = (s.local.port(), s.peer.port());
        let compare =
            |holds: fn(&u16, &u16) -> bool, own: u16| self.port().is_some_and(|port| holds(&own, &port));
        match self.code {
            code::JMP => false,
            code::S_EQ => compare(u16::eq, source),
            code::S_GE => compare(u16::ge, source),
            code::S_LE => compare(u16::le, source),
            code::D_EQ => compare(u16::eq, target),
            code::D_GE => compare(u16::ge, target),
            code::D_LE => compare(u16::le, target),
            code::AUTO => !s.bound_port,
            code::S_COND => self.is_at(s.v6, octets(s.local.ip()), source),
            code::D_COND => self.is_at(s.v6, octets(s.peer.ip()), target),
            // No socket is bound to a device: its number is 0.
            code::DEV_COND => self.rest.get(OPERATION..OPERATION + 4) == Some(&[0; 4]),
            _ => true,
        }
    }

    fn is_at(&self, v6: bool, own: [u8; 16], own_port: u16) -> bool {
        const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
        let Some((family, prefix, port, address)) = self.host() else { return false };
        if port != -1 && port != i32::from(own_port) {
            return false;
        }
        match family {
            0 => prefix == 0,
            c::AF_INET if v6 => own[..12] == MAPPED && begins(&own[12..], address, prefix),
            c::AF_INET | c::AF_INET6 => (family == c::AF_INET6) == v6 && begins(&own, address, prefix),
            _ => false,
        }
    }
}

/// Whether two addresses have these first bits in common.
fn begins(one: &[u8], other: &[u8], bits: usize) -> bool {
    let (whole, rest) = (bits / 8, bits % 8);
    let part = |bytes: &[u8]| bytes.get(whole).map(|byte| u16::from(*byte) >> (8 - rest));
    one.get(..whole) == other.get(..whole) && (rest == 0 || part(one) == part(other))
}

impl<'a> Filter<'a> {
    /// Checks a program (`inet_diag_bc_audit`).
    ///
    /// # Errors
    /// EINVAL, EPERM.
    pub fn new(program: &'a [u8]) -> Result<Filter<'a>, Errno> {
        let mut rest = program;
        loop {
            let op = operation(rest).ok_or(Errno::EINVAL)?;
            let (least, most) = (op.length()?, rest.len() + OPERATION);
            let fits = |to: usize| (least..=most).contains(&to) && to.is_multiple_of(OPERATION);
            if op.code != code::NOP {
                let inside = op.no >= rest.len() || leads_to(program, rest.len() - op.no);
                if !fits(op.no) || !inside {
                    return Err(Errno::EINVAL);
                }
            }
            if !fits(op.yes) {
                return Err(Errno::EINVAL);
            }
            rest = rest.get(op.yes..).ok_or(Errno::EINVAL)?;
            if rest.is_empty() {
                return Ok(Filter(program));
            }
        }
    }

    /// Whether a socket passes.
    pub fn passes(&self, s: &SocketInfo) -> bool {
        let mut rest = self.0;
        while let Some(op) = operation(rest) {
            let by = if op.holds(s) { op.yes } else { op.no };
            match rest.get(by..) {
                Some(next) if by > 0 => rest = next,
                _ => return false,
            }
        }
        rest.is_empty()
    }
}

/// Whether an operation begins where so much of the program is left, if all conditions on the way hold (`valid_cc`).
fn leads_to(program: &[u8], left: usize) -> bool {
    let mut rest = program;
    while rest.len() > left {
        let Some(op) = operation(rest).filter(|op| op.yes >= OPERATION && op.yes.is_multiple_of(OPERATION))
        else {
            return false;
        };
        let Some(next) = rest.get(op.yes..) else { return false };
        rest = next;
    }
    rest.len() == left
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use bloodhound_net::{Proto, TcpState};

    use super::*;

    fn info(local: &str, peer: &str) -> SocketInfo {
        let local: SocketAddr = local.parse().unwrap();
        SocketInfo {
            id: None,
            proto: Proto::Tcp,
            v6: local.is_ipv6(),
            state: TcpState::Established,
            local,
            peer: peer.parse().unwrap(),
            bound_port: true,
            tx_queue: 0,
            rx_queue: 0,
        }
    }

    fn op(code: u8, yes: u8, no: u16) -> Vec<u8> {
        vec![code, yes, no as u8, (no >> 8) as u8]
    }

    /// A comparison of a port, and the end of the program if it does not hold.
    fn port(code: u8, number: u16, left: u16) -> Vec<u8> {
        [op(code, 8, 8 + left + 4), op(0, 0, number)].concat()
    }

    fn host(code: u8, family: u64, prefix: u8, port: i32, address: &[u8]) -> Vec<u8> {
        let length = (OPERATION + HOST + address.len()) as u8;
        let head = [family as u8, prefix, 0, 0];
        [&op(code, length, u16::from(length) + 4), &head[..], &port.to_le_bytes(), address].concat()
    }

    #[test]
    fn ports_are_compared() {
        let s = info("10.0.0.1:80", "10.0.0.2:5000");
        for (code, number, passes) in [
            (code::S_EQ, 80, true),
            (code::S_EQ, 81, false),
            (code::S_GE, 80, true),
            (code::S_GE, 81, false),
            (code::S_LE, 79, false),
            (code::D_EQ, 5000, true),
            (code::D_GE, 5001, false),
            (code::D_LE, 5000, true),
        ] {
            let program = port(code, number, 0);
            assert_eq!(Filter::new(&program).unwrap().passes(&s), passes, "{code} {number}");
        }
        let both = [port(code::S_GE, 80, 8), port(code::S_LE, 90, 0)].concat();
        assert!(Filter::new(&both).unwrap().passes(&s));
        assert!(!Filter::new(&both).unwrap().passes(&info("10.0.0.1:91", "10.0.0.2:5000")));
    }

    #[test]
    fn addresses_are_compared_by_their_first_bits() {
        let s = info("10.1.2.3:80", "[::]:0");
        for (prefix, port, address, passes) in [
            (8, -1, [10, 9, 9, 9], true),
            (9, -1, [10, 127, 0, 0], true),
            (9, -1, [10, 128, 0, 0], false),
            (32, 80, [10, 1, 2, 3], true),
            (32, 81, [10, 1, 2, 3], false),
            (0, -1, [1, 2, 3, 4], true),
        ] {
            let program = host(code::S_COND, c::AF_INET, prefix, port, &address);
            assert_eq!(Filter::new(&program).unwrap().passes(&s), passes, "{address:?}/{prefix} {port}");
        }
        let mapped = info("[::ffff:10.1.2.3]:80", "[::1]:5");
        let program = host(code::S_COND, c::AF_INET, 8, -1, &[10, 0, 0, 0]);
        assert!(Filter::new(&program).unwrap().passes(&mapped));
        let program = host(code::D_COND, c::AF_INET6, 128, 5, &std::net::Ipv6Addr::LOCALHOST.octets());
        assert!(Filter::new(&program).unwrap().passes(&mapped));
        assert!(!Filter::new(&program).unwrap().passes(&info("[::1]:5", "[::2]:5")));
    }

    #[test]
    fn programs_are_checked() {
        let invalid = |program: &[u8]| Filter::new(program).err();
        assert_eq!(invalid(&[]), Some(Errno::EINVAL));
        assert_eq!(invalid(&op(code::AUTO, 4, 4)), None);
        assert_eq!(invalid(&op(99, 4, 4)), Some(Errno::EINVAL));
        assert_eq!(invalid(&op(code::AUTO, 5, 4)), Some(Errno::EINVAL));
        assert_eq!(invalid(&op(code::AUTO, 4, 12)), Some(Errno::EINVAL), "too far");
        assert_eq!(invalid(&op(code::AUTO, 8, 4)), Some(Errno::EINVAL), "behind the end");
        assert_eq!(invalid(&op(code::S_EQ, 8, 8)), Some(Errno::EINVAL), "no port");
        assert_eq!(invalid(&host(code::S_COND, c::AF_INET, 33, -1, &[0; 4])), Some(Errno::EINVAL));
        assert_eq!(invalid(&op(code::MARK_COND, 12, 16)), Some(Errno::EPERM));
        // A jump into the middle of an operation.
        let into = [op(code::JMP, 4, 8), port(code::S_EQ, 1, 0)].concat();
        assert_eq!(invalid(&into), Some(Errno::EINVAL));
    }
}

//! The error queue of a socket (ip(7), IP_RECVERR): reports of ICMP about what an echo socket has sent. For all others it is empty.

use bloodhound_abi::consts as c;
use bloodhound_net::SocketId;

use super::datagram::timestamps;
use super::transfer::truncation;
use super::{Got, Incoming};
use crate::ctx::*;
use crate::socket::inet_bytes;
use crate::wait::SysResult;

/// SO_EE_ORIGIN_ICMP and SO_EE_ORIGIN_ICMP6.
const ORIGIN: u8 = 2;
const ORIGIN6: u8 = 3;

impl Ctx<'_> {
    /// recv(2) with MSG_ERRQUEUE, which never sleeps: "the payload of the packet that caused the error", "the original destination address"
    /// as its name, and a `struct sock_extended_err` with the address of who reports (recv(2)).
    pub(super) fn recv_report(&mut self, id: SocketId, want: &Incoming) -> SysResult<Got> {
        let now = self.node.clock;
        let report = self.node.net.of_mut(id).recv_report(id, now)?;
        let v6 = report.dst.is_ipv6();
        let whole = report.data.len() as u64;
        let n = whole.min(want.buffers.len());
        let mut error = u32::from(report.error.0).to_le_bytes().to_vec();
        let origin = if v6 { ORIGIN6 } else { ORIGIN };
        error.extend_from_slice(&[origin, report.kind[0], report.kind[1], 0]);
        error.extend_from_slice(&[0; 8]);
        error.extend(inet_bytes((report.offender, 0).into()));
        let option = if v6 { (c::IPPROTO_IPV6, c::IPV6_RECVERR) } else { (c::IPPROTO_IP, c::IP_RECVERR) };
        let mut control = timestamps(&self.inet(id)?.generic, self.node.realtime_at(report.at));
        control.push((option.0, option.1, error));
        let mut got = Got { name: inet_bytes((report.dst, 0).into()), control, ..Got::default() };
        got.flags |= MsgFlags::MSG_ERRQUEUE;
        self.copy_out(&want.buffers, 0, &report.data[..n as usize])?;
        truncation(&mut got, want.flags, n, whole);
        Ok(got)
    }
}

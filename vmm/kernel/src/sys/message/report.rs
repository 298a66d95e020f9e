//! The error queue of a socket of datagrams (recv(2), MSG_ERRQUEUE; ip(7), IP_RECVERR): reports of ICMP, datagrams that were too long, times of
//! sending. For all others it is empty.

use std::net::{IpAddr, SocketAddr};

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_net::{Cause, Datagram, Header, Report, Sent, SocketId, shown};

use super::datagram::{times_of_packet, timestamps};
use super::transfer::truncation;
use super::{Got, Incoming};
use crate::ctx::*;
use crate::socket::inet_bytes;
use crate::wait::SysResult;

/// SO_EE_ORIGIN_LOCAL, SO_EE_ORIGIN_ICMP, SO_EE_ORIGIN_ICMP6, SO_EE_ORIGIN_TIMESTAMPING.
const LOCAL: u8 = 1;
const ICMP: u8 = 2;
const ICMP6: u8 = 3;
const TIMESTAMPING: u8 = 4;
/// SCM_TSTAMP_SND and SCM_TSTAMP_SCHED.
const SENT: u32 = 0;
const SCHEDULED: u32 = 1;
/// SOF_TIMESTAMPING_OPT_CMSG.
const OPT_CMSG: u32 = 1 << 10;
/// IPTOS_PREC_INTERNETCONTROL.
const CONTROL: u8 = 0xc0;

/// `struct sock_extended_err` with the address behind it, and where the packet went to.
struct Told {
    error: Vec<u8>,
    offender: Option<IpAddr>,
    name: Option<SocketAddr>,
}

fn extended(error: Errno, origin: u8, kind: [u8; 2], [info, data]: [u32; 2]) -> Vec<u8> {
    let mut out = u32::from(error.0).to_le_bytes().to_vec();
    out.extend_from_slice(&[origin, kind[0], kind[1], 0]);
    out.extend_from_slice(&info.to_le_bytes());
    out.extend_from_slice(&data.to_le_bytes());
    out
}

/// What a report says; `of` is the packet of which a time is told, where that is shown.
fn told(cause: &Cause, of: Option<Sent>) -> Told {
    match cause {
        Cause::Icmp { error, kind, offender, dst, .. } => {
            let origin = if dst.is_ipv6() { ICMP6 } else { ICMP };
            Told {
                error: extended(*error, origin, *kind, [0, 0]),
                offender: Some(*offender),
                name: Some(*dst),
            }
        }
        Cause::TooLong { dst, mtu } => Told {
            error: extended(Errno::EMSGSIZE, LOCAL, [0, 0], [*mtu, 0]),
            offender: None,
            name: Some(*dst),
        },
        Cause::Time { sent, number, .. } => Told {
            error: extended(
                Errno::ENOMSG,
                TIMESTAMPING,
                [0, 0],
                [if *sent { SENT } else { SCHEDULED }, *number],
            ),
            offender: of.map(|of| of.src),
            name: None,
        },
    }
}

impl Ctx<'_> {
    /// recv(2) with MSG_ERRQUEUE, which never sleeps: "the payload of the packet that caused the error", "the original destination address"
    /// as its name, and a `struct sock_extended_err` with the address of who reports (recv(2)).
    pub(super) fn recv_report(&mut self, id: SocketId, want: &Incoming) -> SysResult<Got> {
        let now = self.node.clock;
        let report = self.node.net.of_mut(id).recv_report(id, now)?;
        let v6 = self.inet(id)?.v6;
        let mut control = self.report_control(id, &report)?;
        let Told { mut error, offender, name } = told(&report.cause, self.shown_packet(id, &report)?);
        match offender {
            Some(ip) => error.extend(inet_bytes(shown((ip, 0).into(), v6))),
            None => error.resize(error.len() + if v6 { 28 } else { 16 }, 0),
        }
        let option = if v6 { (c::IPPROTO_IPV6, c::IPV6_RECVERR) } else { (c::IPPROTO_IP, c::IP_RECVERR) };
        control.push((option.0, option.1, error));
        let whole = report.data.len() as u64;
        let n = whole.min(want.buffers.len());
        let name = name.map_or_else(Vec::new, |name| inet_bytes(shown(name, v6)));
        let mut got = Got { name, control, ..Got::default() };
        got.flags |= MsgFlags::MSG_ERRQUEUE;
        self.copy_out(&want.buffers, 0, &report.data[..n as usize])?;
        truncation(&mut got, want.flags, n, whole);
        Ok(got)
    }

    /// The packet of which a time is told, where the socket sees more of it than its time: those of IPv4 do if they ask for that (ipv4_datagram_support_cmsg,
    /// ip6_datagram_support_cmsg).
    fn shown_packet(&self, id: SocketId, report: &Report) -> Result<Option<Sent>, Errno> {
        let socket = self.inet(id)?;
        let shown = socket.v6 || socket.generic.stamps.flags & OPT_CMSG != 0;
        Ok(match report.cause {
            Cause::Time { of, .. } if shown => of,
            _ => None,
        })
    }

    /// When a report came or what it tells the time of, and what the socket's options ask for of the message of ICMP, or of the packet that was sent.
    fn report_control(&self, id: SocketId, report: &Report) -> SysResult<Vec<(u64, u64, Vec<u8>)>> {
        let socket = self.inet(id)?;
        let (generic, v6) = (&socket.generic, socket.v6);
        let at = self.node.realtime_at(report.at);
        let (mut control, (src, dst, interface, header)) = match report.cause {
            // "All ICMP error messages [...] sent with precedence Internetwork Control" (icmp_send).
            Cause::Icmp { offender, came: (own, interface), .. } => {
                let class = if own.is_ipv4() { CONTROL } else { 0 };
                (timestamps(generic, at), (offender, own, interface, Header { class, ..Header::default() }))
            }
            // It has no time, but for who asks by SO_TIMESTAMP.
            Cause::TooLong { .. } if !generic.stamps.on => return Ok(Vec::new()),
            Cause::TooLong { .. } => return Ok(timestamps(generic, at)),
            Cause::Time { .. } => {
                let control = times_of_packet(generic, at);
                let Some(of) = self.shown_packet(id, report)? else { return Ok(control) };
                (control, (of.src, of.dst, of.interface, of.header))
            }
        };
        let message = Datagram {
            src: shown((src, 0).into(), v6),
            dst: shown((dst, 0).into(), v6),
            interface,
            header,
            at: report.at,
            data: report.data.clone(),
            peeked: false,
        };
        control.extend(self.datagram_control(id, &message)?);
        if v6 || matches!(report.cause, Cause::Icmp { .. }) {
            // The address for an answer is not filled in (ipi_spec_dst).
            let infos = control.iter_mut().filter(|part| (part.0, part.1) == (c::IPPROTO_IP, c::IP_PKTINFO));
            infos.for_each(|(_, _, data)| data[4..8].fill(0));
        }
        Ok(control)
    }
}

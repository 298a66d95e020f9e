//! SO_TIMESTAMP, SO_TIMESTAMPNS and SO_TIMESTAMPING (socket(7), Documentation/networking/timestamping of Linux), each for the old and
//! the new type of times, which are equal on this machine.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_net::Proto;

use super::set::unsupported;
use crate::ctx::*;
use crate::socket::Stamps;
use crate::sys::socket::Sock;
use crate::wait::SysResult;

/// SOF_TIMESTAMPING_MASK of Linux 6.1.
const MASK: u32 = (1 << 16) - 1;
/// Times of sending, which come by the error queue: SOF_TIMESTAMPING_TX_HARDWARE, TX_SOFTWARE, TX_SCHED, TX_ACK.
const SENDING: u32 = 1 | 1 << 1 | 1 << 8 | 1 << 9;
/// SOF_TIMESTAMPING_OPT_STATS and OPT_TSONLY.
const OPT_STATS: u32 = 1 << 12;
const OPT_TSONLY: u32 = 1 << 11;

/// Whether the option is one of those here.
pub(super) fn is_stamp(name: u64) -> bool {
    matches!(
        name,
        c::SO_TIMESTAMP
            | c::SO_TIMESTAMPNS
            | c::SO_TIMESTAMPING
            | c::SO_TIMESTAMP_NEW
            | c::SO_TIMESTAMPNS_NEW
            | c::SO_TIMESTAMPING_NEW
    )
}

impl Stamps {
    /// What getsockopt(2) shows.
    pub(super) fn shown(&self, name: u64) -> Vec<u8> {
        if matches!(name, c::SO_TIMESTAMPING | c::SO_TIMESTAMPING_NEW) {
            // struct so_timestamping: flags, bind_phc.
            let mut out = self.timestamping.1.to_le_bytes().to_vec();
            out.resize(8, 0);
            return out;
        }
        // Of the new ones SO_TIMESTAMP_NEW is shown as set with SO_TIMESTAMPNS_NEW as well (sk_getsockopt).
        let on = self.kind == Some(name)
            || (name, self.kind) == (c::SO_TIMESTAMP_NEW, Some(c::SO_TIMESTAMPNS_NEW));
        i32::from(on).to_le_bytes().to_vec()
    }
}

impl Ctx<'_> {
    /// setsockopt(2). EINVAL for unknown flags of SO_TIMESTAMPING.
    pub(super) fn set_stamps(&mut self, sock: Sock, name: u64, number: i32) -> SysResult<()> {
        let stream = matches!(sock, Sock::Inet(id) if self.inet(id)?.proto == Proto::Tcp);
        if stream && number != 0 {
            return unsupported(c::SOL_SOCKET, name);
        }
        let flags = number as u32;
        let timestamping = matches!(name, c::SO_TIMESTAMPING | c::SO_TIMESTAMPING_NEW);
        if timestamping && (flags & !MASK != 0 || flags & OPT_STATS != 0 && flags & OPT_TSONLY == 0) {
            return err(Errno::EINVAL);
        }
        if timestamping && flags & SENDING != 0 {
            return unsupported(c::SOL_SOCKET, name);
        }
        let stamps = &mut self.generic(sock)?.stamps;
        if timestamping {
            stamps.timestamping = (name, flags);
        } else {
            stamps.kind = (number != 0).then_some(name);
        }
        Ok(())
    }
}

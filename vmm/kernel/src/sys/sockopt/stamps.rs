//! SO_TIMESTAMP, SO_TIMESTAMPNS and SO_TIMESTAMPING (socket(7), Documentation/networking/timestamping of Linux), each for the old and
//! the new type of times, which are equal on this machine.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_net::{Proto, TcpState, Times};

use super::set::unsupported;
use crate::ctx::*;
use crate::socket::Stamps;
use crate::sys::socket::Sock;
use crate::wait::SysResult;

/// SOF_TIMESTAMPING_MASK of Linux 6.1.
const MASK: u32 = (1 << 16) - 1;
/// SOF_TIMESTAMPING_TX_HARDWARE, TX_SOFTWARE, TX_SCHED, TX_ACK: times of sending, which come by the error queue.
const TX_HARDWARE: u32 = 1 << 0;
const TX_SOFTWARE: u32 = 1 << 1;
const TX_SCHED: u32 = 1 << 8;
const TX_ACK: u32 = 1 << 9;
/// Those that software takes.
const SENDING: u32 = TX_SOFTWARE | TX_SCHED | TX_ACK;
/// SOF_TIMESTAMPING_OPT_ID and BIND_PHC.
const OPT_ID: u32 = 1 << 7;
const BIND_PHC: u32 = 1 << 15;
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
        let Stamps { on, nanoseconds, new, flags } = *self;
        let set = match name {
            c::SO_TIMESTAMPING | c::SO_TIMESTAMPING_NEW => {
                // struct so_timestamping: flags, bind_phc.
                let mut out = flags.to_le_bytes().to_vec();
                out.resize(8, 0);
                return out;
            }
            c::SO_TIMESTAMP => on && !new && !nanoseconds,
            // Shown as set with SO_TIMESTAMPNS_NEW as well (sk_getsockopt).
            c::SO_TIMESTAMP_NEW => on && new,
            c::SO_TIMESTAMPNS => nanoseconds && !new,
            _ => nanoseconds && new,
        };
        i32::from(set).to_le_bytes().to_vec()
    }
}

/// Which times of sending flags of SO_TIMESTAMPING ask for.
pub(crate) fn times_of(flags: u32) -> Times {
    let on = |bit: u32| flags & bit != 0;
    Times {
        scheduled: on(TX_SCHED),
        sent: on(TX_SOFTWARE),
        hardware: on(TX_HARDWARE),
        numbered: on(OPT_ID),
        bare: on(OPT_TSONLY),
    }
}

/// The flags for a message with a control message SO_TIMESTAMPING. EINVAL for others than those of times of sending
/// (SOF_TIMESTAMPING_TX_RECORD_MASK, `__sock_cmsg_send`).
pub(crate) fn flags_of_message(flags: u32, of_message: u32) -> Result<u32, Errno> {
    const RECORD: u32 = TX_HARDWARE | SENDING;
    if of_message & !RECORD != 0 { Err(Errno::EINVAL) } else { Ok(flags & !RECORD | of_message) }
}

impl Ctx<'_> {
    /// setsockopt(2). EINVAL for unknown flags of SO_TIMESTAMPING.
    pub(super) fn set_stamps(&mut self, sock: Sock, name: u64, number: i32) -> SysResult<()> {
        if matches!(name, c::SO_TIMESTAMPING | c::SO_TIMESTAMPING_NEW) {
            return self.set_timestamping(sock, name, number as u32);
        }
        let stamps = &mut self.generic(sock)?.stamps;
        stamps.on = number != 0;
        stamps.nanoseconds = stamps.on && matches!(name, c::SO_TIMESTAMPNS | c::SO_TIMESTAMPNS_NEW);
        if stamps.on {
            stamps.new = matches!(name, c::SO_TIMESTAMP_NEW | c::SO_TIMESTAMPNS_NEW);
        }
        Ok(())
    }

    /// SO_TIMESTAMPING. No interface here has a clock of its own: whatever the flags say of such times is taken, and none come.
    fn set_timestamping(&mut self, sock: Sock, name: u64, flags: u32) -> SysResult<()> {
        if flags & !MASK != 0 {
            return err(Errno::EINVAL);
        }
        // Times of a stream are numbered from its first byte, which it must have ("if ((1 << sk->sk_state) & (TCPF_CLOSE | TCPF_LISTEN))").
        let new_ids = flags & OPT_ID != 0 && self.generic(sock)?.stamps.flags & OPT_ID == 0;
        if let Sock::Inet(id) = sock
            && new_ids
            && self.inet(id)?.proto == Proto::Tcp
            && matches!(self.node.net.of(id).state(id), None | Some(TcpState::Close | TcpState::Listen))
        {
            return err(Errno::EINVAL);
        }
        if flags & OPT_STATS != 0 && flags & OPT_TSONLY == 0 {
            return err(Errno::EINVAL);
        }
        // No socket is bound to an interface (sock_timestamping_bind_phc).
        if flags & BIND_PHC != 0 {
            return err(Errno::EOPNOTSUPP);
        }
        let of_datagrams = matches!(sock, Sock::Inet(id) if self.inet(id)?.proto != Proto::Tcp);
        // Times of bytes of a stream, and of frames, are not modelled.
        if flags & SENDING != 0 && !of_datagrams && matches!(sock, Sock::Inet(_) | Sock::Packet(_)) {
            return unsupported(c::SOL_SOCKET, name);
        }
        if let Sock::Inet(id) = sock
            && of_datagrams
            && new_ids
        {
            self.node.net.of_mut(id).count_from_zero(id)?;
        }
        let stamps = &mut self.generic(sock)?.stamps;
        (stamps.flags, stamps.new) = (flags, name == c::SO_TIMESTAMPING_NEW);
        Ok(())
    }
}

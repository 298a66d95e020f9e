//! Urgent data (RFC 9293, 3.8.5; RFC 6093): one byte of the stream that a mark points to, which is read apart from the stream unless
//! SO_OOBINLINE is set. Linux's `tcp_urg`, `tcp_check_urg` and `tcp_recv_urg`, with its pointer to the byte behind the urgent one
//! (net.ipv4.tcp_stdurg = 0).

use super::Conn;
use crate::seq::{after, before};
use crate::socket::{Common, Cx};
use crate::{Flags, ReadyFlags, Segment, TcpState};
use bloodhound_abi::Errno;

/// The urgent byte of the stream that comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Urgent {
    /// Its stream offset.
    at: u64,
    byte: Byte,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Byte {
    /// The mark is known, the byte has not come (TCP_URG_NOTYET).
    Awaited,
    /// TCP_URG_VALID.
    Here(u8),
    /// TCP_URG_READ.
    Read,
}

impl Conn {
    /// What was written last is urgent (`tcp_mark_urg`).
    pub(super) fn mark_urgent(&mut self) {
        self.urgent_end = Some(self.snd.end());
    }

    /// Whether urgent data is not yet acknowledged (`tcp_urg_mode`).
    pub(super) fn in_urgent_mode(&self) -> bool {
        self.urgent_end.is_some_and(|end| self.snd.start() < end)
    }

    /// The urgent pointer of a segment that begins at a stream offset; `None` behind the urgent data.
    pub(super) fn urgent_pointer(&self, from: u64) -> Option<u16> {
        let ahead = self.urgent_end.filter(|_| self.in_urgent_mode())?.checked_sub(from)?;
        (ahead > 0).then(|| u16::try_from(ahead).unwrap_or(u16::MAX))
    }

    /// Offset of the next byte that a program reads.
    fn copied(&self) -> u64 {
        self.rcv.next() - self.rcv.len() as u64
    }

    /// Looks at the mark and the urgent byte of a segment, before its data is taken.
    pub(super) fn on_urgent(&mut self, seg: &Segment, cx: &mut Cx<'_>) {
        if seg.flags.contains(Flags::URG) {
            self.take_mark(seg, cx);
        }
        let Some(Urgent { at, byte: Byte::Awaited }) = self.urgent else { return };
        let start = self.rcv.next().wrapping_add_signed(i64::from(seg.seq.wrapping_sub(self.rcv_nxt) as i32));
        let place = at.checked_sub(start).and_then(|place| usize::try_from(place).ok());
        if let Some(byte) = place.and_then(|place| seg.payload.get(place)) {
            self.urgent = Some(Urgent { at, byte: Byte::Here(*byte) });
            cx.c.wake(ReadyFlags::READ | ReadyFlags::PRI);
        }
    }

    fn take_mark(&mut self, seg: &Segment, cx: &mut Cx<'_>) {
        let mark = seg.seq.wrapping_add(u32::from(seg.urgent).saturating_sub(1));
        let copied = self.rcv_nxt.wrapping_sub(self.rcv.len() as u32);
        // "Ignore urgent data that we've already seen and read"; "do not replay urg ptr".
        if after(copied, mark) || before(mark, self.rcv_nxt) {
            return;
        }
        let at = self.rcv.next() + u64::from(mark.wrapping_sub(self.rcv_nxt));
        if self.urgent.is_some_and(|known| at <= known.at) {
            return;
        }
        cx.c.urgent_came = true;
        // "We may be adding urgent data when the last byte read was urgent": that one is no part of the stream.
        if !cx.c.opts.oobinline
            && self.rcv.len() > 0
            && self.urgent.is_some_and(|known| known.at == self.copied())
        {
            self.rcv.read(&mut [0], false);
        }
        self.urgent = Some(Urgent { at, byte: Byte::Awaited });
    }

    /// Whether the next byte to read is the urgent one, read or not (SIOCATMARK).
    pub(crate) fn at_mark(&self) -> bool {
        self.urgent.is_some_and(|urgent| urgent.at == self.copied())
    }

    /// Whether the urgent byte can be read (EPOLLPRI).
    pub(crate) fn has_urgent(&self) -> bool {
        self.urgent.is_some_and(|urgent| matches!(urgent.byte, Byte::Here(_)))
    }

    /// recv(2) with MSG_OOB: `None` at the end of the stream. EINVAL without an urgent byte, EAGAIN before it comes.
    pub(crate) fn read_urgent(&mut self, peek: bool, c: &Common) -> Result<Option<u8>, Errno> {
        let Some(urgent) = self.urgent.as_mut().filter(|u| !c.opts.oobinline && u.byte != Byte::Read) else {
            return Err(Errno::EINVAL);
        };
        if self.state == TcpState::Close && !c.done {
            return Err(Errno::ENOTCONN);
        }
        match urgent.byte {
            Byte::Here(byte) => {
                if !peek {
                    urgent.byte = Byte::Read;
                }
                Ok(Some(byte))
            }
            _ if self.state == TcpState::Close || c.shut_read => Ok(None),
            _ => Err(Errno::EAGAIN),
        }
    }

    /// A read of the stream passes an urgent byte that comes first, and which is then lost unless SO_OOBINLINE is set.
    pub(super) fn pass_mark(&mut self, c: &Common) {
        if self.at_mark() && !c.opts.oobinline && self.rcv.len() > 0 {
            self.rcv.read(&mut [0], false);
            self.urgent = None;
        }
    }

    /// Reads from the stream up to the urgent byte; a peek leaves it out if it comes first and SO_OOBINLINE is not set.
    pub(super) fn read_stream(&mut self, out: &mut [u8], peek: bool, c: &Common) -> usize {
        let Some(Urgent { at, .. }) = self.urgent else { return self.rcv.read(out, peek) };
        let count = match (at.checked_sub(self.copied()), c.opts.oobinline) {
            (Some(0), false) if peek => {
                let mut with = vec![0; out.len() + 1];
                let count = self.rcv.read(&mut with, true).saturating_sub(1);
                out[..count].copy_from_slice(&with[1..=count]);
                return count;
            }
            (None | Some(0), _) => self.rcv.read(out, peek),
            (Some(ahead), _) => {
                let room = out.len().min(usize::try_from(ahead).unwrap_or(usize::MAX));
                self.rcv.read(&mut out[..room], peek)
            }
        };
        if self.copied() > at {
            self.urgent = None;
        }
        count
    }

    /// How many bytes of the stream a read gets at once.
    pub(crate) fn next_piece(&self, c: &Common) -> usize {
        let there = self.rcv.len();
        match self.urgent.map(|urgent| urgent.at.checked_sub(self.copied())) {
            Some(Some(0)) if !c.opts.oobinline => there.saturating_sub(1),
            Some(Some(ahead)) if ahead > 0 => there.min(usize::try_from(ahead).unwrap_or(usize::MAX)),
            _ => there,
        }
    }

    /// FIONREAD (tcp_inq): what is there before the mark.
    pub(crate) fn inquiry(&self, c: &Common) -> usize {
        let ahead = self.urgent.and_then(|urgent| urgent.at.checked_sub(self.copied()));
        let ahead = ahead.and_then(|ahead| usize::try_from(ahead).ok());
        let there = self.rcv.len();
        ahead.filter(|ahead| !c.opts.oobinline && *ahead < there).unwrap_or(there)
    }
}

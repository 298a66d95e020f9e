//! Out-of-band data of streams (MSG_OOB): one byte, the last of what is sent with it, which stays in the stream as its mark. Linux 6.1's
//! `queue_oob`, `manage_oob` and `unix_stream_recv_urg`; later kernels have other rules where a byte that was read is the next in the stream.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use super::{State, UnixSockets, Wanted};
use crate::ids::*;

/// What comes next in a stream.
pub(super) enum Next {
    /// The message of this number.
    At(usize),
    /// The mark, at which a reader that has something stops.
    Mark,
    /// Nothing.
    Nothing,
}

impl UnixSockets {
    /// An urgent byte is about to be queued: one before it is part of the stream from now on.
    pub(super) fn urgent_comes(&mut self, id: UnixId) {
        self.urgent_goes(id);
        self.sockets[id].urgent = true;
        self.effects.urgent.push_back(id);
    }

    /// There is no urgent byte any more.
    fn urgent_goes(&mut self, id: UnixId) {
        let s = &mut self.sockets[id];
        if std::mem::take(&mut s.urgent) {
            s.queue.iter_mut().for_each(|message| message.urgent = false);
        }
    }

    fn is_in_line(&self, id: UnixId) -> bool {
        self.sockets[id].generic.is_set(c::SOL_SOCKET, c::SO_OOBINLINE)
    }

    /// SIOCATMARK: the next byte of the stream is urgent and was not read.
    pub fn at_mark(&self, id: UnixId) -> bool {
        self.sockets[id].queue.front().is_some_and(|message| message.urgent)
    }

    /// recv(2) with MSG_OOB. EINVAL if there is none, or it is to be read in line. An empty message is left where it was.
    pub fn recv_urgent(&mut self, id: UnixId, peek: bool) -> Result<u8, Errno> {
        let s = &self.sockets[id];
        if s.state != State::Established || self.is_in_line(id) {
            return Err(Errno::EINVAL);
        }
        let at = s.queue.iter().position(|message| message.urgent).ok_or(Errno::EINVAL)?;
        let message = &mut self.sockets[id].queue[at];
        let byte = message.data.get(message.at).copied().ok_or(Errno::EINVAL)?;
        if !peek {
            message.at += 1;
            self.urgent_goes(id);
            // One mark is enough.
            if at.checked_sub(1).is_some_and(|at| self.is_read(id, at)) {
                self.unlink(id, at - 1);
            }
        }
        Ok(byte)
    }

    /// Whether nothing of a message is left, whose byte was urgent.
    fn is_read(&self, id: UnixId, index: usize) -> bool {
        self.sockets[id].queue.get(index).is_some_and(|message| message.left() == 0)
    }

    /// What comes next for a reader of a stream, from this message on (`manage_oob`). Without a peek, a byte that was read is taken away, and
    /// the reader finds nothing for now; an urgent one is lost that is the first, unless it is read in line.
    pub(super) fn next_of_stream(&mut self, id: UnixId, index: usize, want: Wanted) -> Next {
        let from = |u: &Self, at| if at < u.sockets[id].queue.len() { Next::At(at) } else { Next::Nothing };
        if !want.peek && self.is_read(id, index) {
            self.unlink(id, index);
            return if want.begun { Next::Mark } else { Next::Nothing };
        }
        if !self.sockets[id].queue.get(index).is_some_and(|message| message.urgent) {
            return from(self, index);
        }
        match (want.peek, self.is_in_line(id)) {
            _ if want.begun => Next::Mark,
            (true, true) => Next::At(index),
            (true, false) => from(self, index + 1),
            (false, true) => {
                self.urgent_goes(id);
                Next::At(index)
            }
            (false, false) => {
                self.urgent_goes(id);
                self.unlink(id, index);
                from(self, index)
            }
        }
    }
}

//! Messages of unix sockets and the accounting of their buffers.
//!
//! A message is one `sk_buff` of Linux, and it is charged what Linux charges for it: programs that fill a socket see
//! the same number of messages and bytes before EAGAIN.

use bloodhound_abi::structs::Ucred;
use bloodhound_abi::{Errno, SimTime};
use bloodhound_bpf::Packet;

use super::urgent::Next;
use super::{Kind, Name, Peer, Stall, State, UnixSockets};
use crate::ids::*;

/// Bytes of `struct sk_buff` and of `struct skb_shared_info`, as the slab allocator rounds them.
const SKB: usize = 256;
const SHARED_INFO: usize = 320;
const PAGE: usize = 4096;
/// SKB_MAX_HEAD(0) and SKB_MAX_ALLOC: how much data goes into the linear part of a stream's and a datagram's buffer.
const STREAM_HEAD: usize = PAGE - SHARED_INFO;
const DATAGRAM_HEAD: usize = 4 * PAGE - SHARED_INFO;
/// UNIX_SKB_FRAGS_SZ: most data of a stream's buffer beyond the linear part.
const STREAM_FRAGS: usize = 32768;
/// MAX_SKB_FRAGS pages.
const DATAGRAM_FRAGS: usize = 17 * PAGE;

/// What goes along with a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ancillary {
    /// SCM_RIGHTS: descriptions, each with a reference that belongs to the message once it was sent.
    pub files: Vec<FileId>,
    /// SCM_CREDENTIALS as given by the sender.
    pub cred: Option<Ucred>,
    /// Who sends, for receivers with SO_PASSCRED.
    pub sender: Ucred,
    /// When it is sent, for receivers with SO_TIMESTAMP.
    pub sent: SimTime,
    /// It is an urgent byte.
    pub urgent: bool,
}

/// What is wanted of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Most bytes.
    pub max: usize,
    /// They stay there.
    pub peek: bool,
    /// The call has taken some already.
    pub begun: bool,
}

/// A message on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(super) data: Vec<u8>,
    /// Bytes of it that were read.
    pub(super) at: usize,
    /// A peek has shown it; counts for one without a byte (`skb->peeked`).
    peeked: bool,
    /// The urgent byte that was sent last, as long as it was not read.
    pub(super) urgent: bool,
    pub(crate) files: Vec<FileId>,
    /// Whose they are while they are here.
    pub(crate) user: u32,
    cred: Option<Ucred>,
    sent: SimTime,
    /// Name of a sender that is gone; else it is the name that the sender has when the message is received.
    pub(crate) from: Option<Name>,
    pub(crate) sender: UnixId,
    pub(crate) charge: usize,
}

impl Message {
    /// Bytes not yet read.
    pub(crate) fn left(&self) -> usize {
        self.data.len() - self.at
    }
}

/// What was received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// Bytes.
    pub data: Vec<u8>,
    /// Length of the datagram or packet before truncation.
    pub whole: usize,
    /// Descriptions. Their references come along, except after a peek.
    pub files: Vec<FileId>,
    /// Credentials of the sender if they were sent.
    pub cred: Option<Ucred>,
    /// When a packet was sent.
    pub sent: SimTime,
    /// Address of the sender.
    pub from: Option<Name>,
    /// Nothing came and nothing more will.
    pub end: bool,
    /// A stream's reader must return although more was asked for: the end, or a boundary that Linux keeps.
    pub stop: bool,
}

/// `skb->truesize` of a buffer with `len` bytes, at most `head` (and what frags cannot hold) in the linear part.
fn truesize(len: usize, head: usize, frags: usize) -> usize {
    let paged = len.saturating_sub(head).min(frags).next_multiple_of(PAGE).min(len);
    let linear = (len - paged).next_multiple_of(64) + SHARED_INFO;
    SKB + linear.next_power_of_two() + paged.next_multiple_of(PAGE)
}

impl UnixSockets {
    /// Most bytes of one message of a stream. "Keep two messages in the pipe so it schedules better" (af_unix.c).
    pub fn stream_piece(&self, id: UnixId) -> usize {
        (self.sockets[id].sndbuf as usize / 2 - 64).min(STREAM_HEAD + STREAM_FRAGS)
    }

    /// Whether a sender that sleeps for room has something to do: it is woken when the socket becomes writable, or fails.
    pub fn sender_may_go_on(&self, id: UnixId) -> bool {
        let s = &self.sockets[id];
        s.writable() || s.error.is_some() || s.shut_write || !matches!(s.peer, Peer::Alive(_))
    }

    /// Why a sender that has slept for room cannot go on; takes the pending error (`sock_alloc_send_pskb`).
    pub fn sending_fails(&mut self, id: UnixId) -> Option<Errno> {
        let s = &mut self.sockets[id];
        s.error.take().or(s.shut_write.then_some(Errno::EPIPE))
    }

    /// Whether the buffer takes another message.
    pub fn is_roomy(&self, id: UnixId) -> bool {
        let s = &self.sockets[id];
        s.charged < s.sndbuf as usize
    }

    /// Whether the peer has closed its end, and nothing was done about that yet.
    pub fn has_dead_peer(&self, id: UnixId) -> bool {
        matches!(self.sockets[id].peer, Peer::Dead { .. })
    }

    /// Whether a message of a stream does not wait for room: some is there, or an error comes before that.
    pub fn does_not_wait_for_room(&self, id: UnixId) -> bool {
        self.is_roomy(id) || self.sockets[id].error.is_some()
    }

    /// As [`UnixSockets::sender_may_go_on`], for packets, which may have no peer.
    pub fn packet_may_go_on(&self, id: UnixId) -> bool {
        let s = &self.sockets[id];
        s.writable() || s.error.is_some() || s.shut_write
    }

    /// How many bytes the first messages of a stream have behind `skip`, of which at most `max` are wanted and which end within `room`.
    pub fn whole_messages(&self, id: UnixId, mut skip: u64, max: u64, room: u64) -> u64 {
        let mut whole = 0;
        for message in &self.sockets[id].queue {
            let left = message.left() as u64;
            if left <= skip {
                skip -= left;
                continue;
            }
            let n = (left - std::mem::take(&mut skip)).min(max - whole);
            if n == 0 || whole + n > room {
                break;
            }
            whole += n;
        }
        whole
    }

    /// Who gets what is sent on a stream. ENOTCONN, EPIPE.
    pub fn stream_receiver(&self, id: UnixId) -> Result<UnixId, Errno> {
        let s = &self.sockets[id];
        match s.peer {
            Peer::None => Err(Errno::ENOTCONN),
            // The peer's end shut both halves down here.
            Peer::Dead { .. } => Err(Errno::EPIPE),
            Peer::Alive(_) if s.shut_write => Err(Errno::EPIPE),
            Peer::Alive(peer) => Ok(peer),
        }
    }

    /// Sends on a stream: what fits, at least one byte. ENOTCONN, EPIPE (the caller raises SIGPIPE), a pending error;
    /// `Until` itself when the buffer is full. Descriptions travel with the first byte.
    pub fn send_stream(&mut self, id: UnixId, data: &[u8], anc: Ancillary) -> Result<usize, Stall> {
        let peer = self.stream_receiver(id)?;
        let (mut sent, mut anc) = (0, anc);
        while sent < data.len() {
            let s = &mut self.sockets[id];
            // A pending error goes before room (sock_alloc_send_pskb).
            if sent == 0
                && let Some(error) = s.error.take()
            {
                return Err(error.into());
            }
            if s.charged >= s.sndbuf as usize {
                return if sent > 0 { Ok(sent) } else { Err(Stall::Until(id)) };
            }
            let most = self.stream_piece(id);
            if self.sockets[peer].shut_read {
                self.not_sent(id);
                return if sent > 0 { Ok(sent) } else { Err(Errno::EPIPE.into()) };
            }
            let size = (data.len() - sent).min(most);
            let charge = truesize(size, STREAM_HEAD, STREAM_FRAGS);
            let files = std::mem::take(&mut anc.files);
            self.push(id, peer, &data[sent..sent + size], Ancillary { files, ..anc }, charge);
            sent += size;
        }
        Ok(sent)
    }

    fn push(&mut self, id: UnixId, to: UnixId, data: &[u8], anc: Ancillary, charge: usize) {
        let receiver = &self.sockets[to];
        if let Some(container) = receiver.log_of {
            return self.log(container, data, anc);
        }
        let ask = self.sockets[id].passcred || receiver.passcred || !receiver.accepted;
        let cred = anc.cred.or(ask.then_some(anc.sender));
        let s = &mut self.sockets[id];
        s.charged += charge;
        self.flights.sent(to, anc.sender.uid, anc.files.len());
        let message = Message {
            data: data.to_vec(),
            at: 0,
            peeked: false,
            urgent: anc.urgent,
            files: anc.files,
            user: anc.sender.uid,
            cred,
            sent: anc.sent,
            from: s.name.clone(),
            sender: id,
            charge,
        };
        if message.urgent {
            self.urgent_comes(to);
        }
        let receiver = &mut self.sockets[to];
        receiver.held += charge;
        receiver.queue.push_back(message);
        self.data_ready(to);
    }

    /// What unix_seqpacket_sendmsg looks at first: a pending error, ENOTCONN.
    pub fn check_seqpacket(&mut self, id: UnixId) -> Result<(), Errno> {
        let s = &mut self.sockets[id];
        match s.error.take() {
            Some(error) => Err(error),
            None if s.state != State::Established => Err(Errno::ENOTCONN),
            None => Ok(()),
        }
    }

    /// What Linux checks before it looks the receiver of a packet up. `named` says that there is an address.
    pub fn check_packet(&mut self, id: UnixId, named: bool, len: usize) -> Result<(), Stall> {
        if self.sockets[id].kind == Kind::SeqPacket {
            self.check_seqpacket(id)?;
        }
        let s = &mut self.sockets[id];
        if len > (s.sndbuf as usize).saturating_sub(32) {
            return Err(Errno::EMSGSIZE.into());
        }
        if let Some(error) = s.error.take() {
            return Err(error.into());
        }
        if s.shut_write {
            return Err(Errno::EPIPE.into());
        }
        if s.charged >= s.sndbuf as usize {
            return Err(Stall::Until(id));
        }
        if !named && s.peer == Peer::None {
            self.not_sent(id);
            return Err(Errno::ENOTCONN.into());
        }
        Ok(())
    }

    /// A message that had its buffer already is given up. Linux wakes the sender as if room had become free.
    pub fn not_sent(&mut self, id: UnixId) {
        self.write_space(id);
    }

    /// Sends a datagram or packet, to `to` or the peer. ENOTCONN, EMSGSIZE, EPIPE, EPERM (the receiver is connected to
    /// another), ECONNREFUSED (the peer is gone), a pending error; `Until` the sender has room, or `Room` of the receiver.
    pub fn send_packet(
        &mut self,
        id: UnixId,
        to: Option<UnixId>,
        data: &[u8],
        anc: Ancillary,
    ) -> Result<usize, Stall> {
        let named = to.is_some() && self.sockets[id].kind == Kind::Datagram;
        self.check_packet(id, named, data.len())?;
        self.pass_packet(id, to, data, anc)
    }

    /// The same of one that was found fit before ([`UnixSockets::check_packet`]).
    pub fn pass_packet(
        &mut self,
        id: UnixId,
        to: Option<UnixId>,
        data: &[u8],
        anc: Ancillary,
    ) -> Result<usize, Stall> {
        // "msg->msg_namelen = 0": addresses are ignored on sequenced packets.
        let to = to.filter(|_| self.sockets[id].kind == Kind::Datagram);
        // "Toss the packet but do not return any error to the sender" (unix_dgram_sendmsg), before anything else is asked of the receiver.
        let Some(kept) = self.filtered(id, to, data) else {
            self.effects.dropped.extend(anc.files);
            self.not_sent(id);
            return Ok(data.len());
        };
        let result = self.receiver_of(id, to);
        match result {
            Ok(target) => {
                let charge = truesize(data.len(), DATAGRAM_HEAD, DATAGRAM_FRAGS);
                self.push(id, target, &data[..kept], anc, charge);
                Ok(data.len())
            }
            // Who sleeps keeps the message.
            Err(stall @ Stall::Room(_)) => Err(stall),
            Err(stall) => {
                self.not_sent(id);
                Err(stall)
            }
        }
    }

    /// How many bytes of a packet the filter of its receiver, `to` or the peer, lets through.
    fn filtered(&mut self, id: UnixId, to: Option<UnixId>, data: &[u8]) -> Option<usize> {
        let filter = match (to.or(self.peer_of(id)), &mut self.sockets[id].peer) {
            (None, Peer::Dead { filter, .. }) => filter.as_mut(),
            (target, _) => target.and_then(|to| self.sockets.get_mut(to)).and_then(|s| s.filter.as_mut()),
        };
        let Some(filter) = filter else { return Some(data.len()) };
        filter.keeps(&Packet::message(data)).map(|kept| kept.min(data.len()))
    }

    /// Who gets a packet to `to` or the peer, if there is room.
    fn receiver_of(&mut self, id: UnixId, to: Option<UnixId>) -> Result<UnixId, Stall> {
        let s = &mut self.sockets[id];
        let target = match (to, s.peer.clone()) {
            (Some(to), _) => to,
            (None, Peer::Alive(peer)) => peer,
            // "Never change state to TCP_CLOSE" (unix_dgram_sendmsg of SOCK_SEQPACKET).
            (None, _) if s.kind == Kind::SeqPacket => return Err(Errno::EPIPE.into()),
            (None, gone) => {
                (s.peer, s.state) = (Peer::None, State::Unconnected);
                self.datagram_disconnected(id, &gone);
                return Err(Errno::ECONNREFUSED.into());
            }
        };
        if !self.may_send(id, target) {
            return Err(Errno::EPERM.into());
        }
        let receiver = &self.sockets[target];
        if receiver.shut_read {
            return Err(Errno::EPIPE.into());
        }
        if target != id && receiver.peer != Peer::Alive(id) && receiver.queue_full() {
            return Err(Stall::Room(target));
        }
        Ok(target)
    }

    /// Receives from a stream: what is there, up to the urgent byte. EINVAL when not connected, a pending error; `Until` itself when
    /// nothing is there (unix_stream_read_generic).
    pub fn recv_stream(&mut self, id: UnixId, want: Wanted) -> Result<Received, Stall> {
        if self.sockets[id].state != State::Established {
            return Err(Errno::EINVAL.into());
        }
        let from = self.sockets[id].queue.front().and_then(|message| self.sender_of(message));
        let mut out = Received { from, ..Received::default() };
        let mut index = 0;
        // Read again after a sleep, as stable kernels do: the first 6.1 went on from the front then, with what the sleep had left of it.
        let offset = self.sockets[id].generic.peek_offset().filter(|_| want.peek);
        let mut skip = usize::try_from(offset.unwrap_or(0)).unwrap_or(usize::MAX);
        let mut creds: Option<Option<Ucred>> = None;
        loop {
            let begun = want.begun || !out.data.is_empty();
            match self.next_of_stream(id, index, Wanted { begun, ..want }) {
                Next::At(at) => index = at,
                Next::Mark => {
                    out.stop = true;
                    break;
                }
                Next::Nothing => index = usize::MAX,
            }
            let s = &mut self.sockets[id];
            while want.peek && s.queue.get(index).is_some_and(|m| skip >= m.left()) {
                skip -= s.queue[index].left();
                index += 1;
            }
            let Some(m) = s.queue.get_mut(index) else {
                if creds.is_none() {
                    return self.end_of_stream(id, out);
                }
                out.stop = want.peek;
                break;
            };
            // "Never glue messages from different writers": only receivers with SO_PASSCRED can tell.
            if s.passcred && creds.is_some_and(|c| c != m.cred) {
                out.stop = true;
                break;
            }
            if creds.is_none() {
                out.cred = m.cred;
                creds = Some(m.cred);
            }
            let from = m.at + skip;
            let n = (m.data.len() - from).min(want.max - out.data.len());
            out.data.extend_from_slice(&m.data[from..from + n]);
            skip = 0;
            if want.peek {
                out.files.clone_from(&m.files);
                index += 1;
                out.stop = !m.files.is_empty() || index == s.queue.len();
            } else {
                m.at += n;
                out.files = std::mem::take(&mut m.files);
                self.flights.landed(id, m.user, out.files.len());
                out.stop = m.left() > 0 || !out.files.is_empty();
                if m.left() == 0 {
                    self.unlink(id, index);
                }
            }
            // A peek goes on to the next files even when the buffer is full, as Linux does.
            if out.stop || !want.peek && out.data.len() >= want.max {
                break;
            }
        }
        out.whole = out.data.len();
        self.sockets[id].generic.move_peek_offset(out.whole as u64, want.peek);
        Ok(out)
    }

    /// Nothing is in a stream.
    fn end_of_stream(&mut self, id: UnixId, out: Received) -> Result<Received, Stall> {
        let s = &mut self.sockets[id];
        if let Some(error) = s.error.take() {
            return Err(error.into());
        }
        if !s.shut_read {
            return Err(Stall::Until(id));
        }
        Ok(Received { end: true, stop: true, ..out })
    }

    /// Takes a message out of a queue.
    pub(super) fn unlink(&mut self, id: UnixId, index: usize) {
        let s = &mut self.sockets[id];
        let Some(message) = s.queue.remove(index) else { return };
        s.held -= message.charge;
        self.discard(id, message);
    }

    /// Receives one datagram or packet, cut to `max`. ENOTCONN for an unconnected packet socket, a pending error;
    /// `Until` itself when there is none. After a shutdown of the reading half a sleeping reader gets an empty message,
    /// but a datagram socket that does not block (`wait` unset) goes on with EAGAIN, as on Linux. A peek begins where SO_PEEK_OFF says; what
    /// is stored moves that on ([`Generic::move_peek_offset`](crate::socket::Generic::move_peek_offset)).
    pub fn recv_packet(&mut self, id: UnixId, max: usize, peek: bool, wait: bool) -> Result<Received, Stall> {
        let s = &mut self.sockets[id];
        if s.kind == Kind::SeqPacket && s.state != State::Established {
            return Err(Errno::ENOTCONN.into());
        }
        if let Some(error) = s.error.take() {
            return Err(error.into());
        }
        let was_full = s.queue_full();
        let offset = s.generic.peek_offset().filter(|_| peek);
        let mut skip = usize::try_from(offset.unwrap_or(0)).unwrap_or(usize::MAX);
        // An empty message is shown once (`__skb_try_recv_from_queue`).
        let mut passed = |m: &Message| {
            let passed = offset.is_some() && skip >= m.left() && (skip > 0 || m.peeked);
            skip -= if passed { m.left() } else { 0 };
            passed
        };
        let Some(at) = s.queue.iter().position(|m| !passed(m)) else {
            if s.shut_read && (wait || s.kind == Kind::SeqPacket) {
                return Ok(Received { end: true, ..Received::default() });
            }
            return Err(Stall::Until(id));
        };
        let from = self.sender_of(&self.sockets[id].queue[at]);
        let s = &mut self.sockets[id];
        let m = &mut s.queue[at];
        m.peeked |= peek && m.data.is_empty();
        let n = (m.left() - skip).min(max);
        let mut out = Received {
            data: m.data[skip..skip + n].to_vec(),
            whole: m.data.len() - skip,
            files: m.files.clone(),
            cred: m.cred,
            sent: m.sent,
            from,
            ..Received::default()
        };
        if peek {
            return Ok(out);
        }
        if let Some(m) = s.queue.pop_front() {
            s.held -= m.charge;
            self.flights.landed(id, m.user, m.files.len());
            out.files = m.files;
            self.discharge(m.sender, m.charge);
        }
        if was_full {
            self.room_at(id);
        }
        Ok(out)
    }

    /// Name of a message's sender.
    fn sender_of(&self, message: &Message) -> Option<Name> {
        match self.sockets.get(message.sender) {
            Some(sender) => sender.name.clone(),
            None => message.from.clone(),
        }
    }

    /// A sender is gone: its name stays with what it sent to `receivers`.
    pub(super) fn keep_name(&mut self, sender: UnixId, name: &Name, receivers: &[UnixId]) {
        for id in receivers {
            let Some(s) = self.sockets.get_mut(*id) else { continue };
            for message in s.queue.iter_mut().filter(|m| m.sender == sender) {
                message.from = Some(name.clone());
            }
        }
    }
}

//! Unix-domain sockets (unix(7)): stream, datagram and sequenced-packet sockets within a node.
//!
//! [`UnixSockets`] is plain data that knows nothing of tasks or descriptors. Its operations never sleep: where Linux
//! would, they give [`Stall::Until`] or [`Stall::Room`] with the socket whose change is worth another try. Wake-ups and the descriptions
//! that fall out of lost messages are collected as effects and carried out by [`Node::settle_unix`].
//!
//! Modules: [`collect`] (descriptors in messages), [`connect`] (names, listening, connecting, closing), [`transfer`] (messages and buffers),
//! [`urgent`] (out-of-band data), [`log`] (/dev/log). Neighbour: `sys::socket` (the system calls).

mod collect;
mod connect;
mod log;
mod transfer;
mod urgent;

#[cfg(test)]
mod tests;

pub use transfer::{Ancillary, Received, Wanted};

use std::collections::{BTreeMap, VecDeque};

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Ucred;
use bloodhound_bpf::Filter;
use bloodhound_vfs::{BaseFs, Ino};

use crate::container::ContainerId;
use crate::fasync::{Band, Waking};
use crate::ids::*;
use crate::node::Node;
use crate::socket::Generic;
use crate::stacks::NetNs;
use crate::wait::{Object, WaitOn};

use log::LogMessage;
use transfer::Message;

/// Default of SO_SNDBUF and SO_RCVBUF (net.core.wmem_default).
pub const BUFFER: u32 = 212_992;
/// net.unix.max_dgram_qlen: datagrams that wait at a socket before senders block.
const DATAGRAM_QUEUE: u32 = 10;

/// What a waker tells when the reader side got something (`sock_def_readable`).
const READABLE: u32 = (c::EPOLLIN | c::EPOLLPRI | c::EPOLLRDNORM | c::EPOLLRDBAND) as u32;
/// What a waker tells when there is room again (`unix_write_space`).
pub(crate) const WRITABLE: u32 = (c::EPOLLOUT | c::EPOLLWRNORM | c::EPOLLWRBAND) as u32;
/// A change of state (`sk_state_change`): Linux wakes every waiter, whatever it is interested in.
const CHANGED: u32 = READABLE | WRITABLE | (c::EPOLLRDHUP | c::EPOLLHUP | c::EPOLLERR) as u32;

/// Socket type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// SOCK_STREAM.
    Stream,
    /// SOCK_DGRAM.
    Datagram,
    /// SOCK_SEQPACKET.
    SeqPacket,
}

impl Kind {
    /// SO_TYPE.
    pub fn number(self) -> u64 {
        match self {
            Kind::Stream => c::SOCK_STREAM,
            Kind::Datagram => c::SOCK_DGRAM,
            Kind::SeqPacket => c::SOCK_SEQPACKET,
        }
    }

    /// Connection-based.
    pub fn connects(self) -> bool {
        self != Kind::Datagram
    }
}

/// The address of a bound socket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Name {
    /// A path as given to bind(2), without the NUL.
    Path(Vec<u8>),
    /// An abstract name, without its leading NUL; every byte counts.
    Abstract(Vec<u8>),
}

/// The other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    None,
    Alive(UnixId),
    /// Closed.
    Dead {
        /// Still what getpeername(2) tells.
        name: Option<Name>,
        /// Still asked about datagrams, which it may drop before anybody sees that their receiver is closed.
        filter: Option<Box<Filter>>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// TCP_CLOSE in Linux's terms.
    Unconnected,
    Listening,
    Established,
}

/// Why an operation cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// It failed.
    Errno(Errno),
    /// EAGAIN, or sleep until that socket changes and try again.
    Until(UnixId),
    /// EAGAIN, or sleep until the queue of that other socket may have room and try again (`unix_wait_for_peer`).
    Room(UnixId),
}

impl From<Errno> for Stall {
    fn from(e: Errno) -> Stall {
        Stall::Errno(e)
    }
}

/// A unix-domain socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixSocket {
    /// Socket type.
    pub kind: Kind,
    /// Options of socket(7).
    pub generic: Generic,
    /// SO_SNDBUF as getsockopt(2) shows it.
    pub sndbuf: u32,
    /// SO_RCVBUF as getsockopt(2) shows it; without effect, as on Linux: unix sockets charge the sender.
    pub rcvbuf: u32,
    /// SO_PASSCRED.
    pub passcred: bool,
    /// SO_ATTACH_FILTER, for packets; streams are not filtered.
    pub(crate) filter: Option<Box<Filter>>,
    /// The network namespace of who made it: where its abstract name counts.
    pub net: NetNs,
    /// SO_PEERCRED: for a listener who called listen(2), else who is at the other end.
    pub cred: Ucred,
    pub(crate) state: State,
    pub(crate) name: Option<Name>,
    pub(crate) ino: Option<Ino>,
    pub(crate) peer: Peer,
    pub(crate) queue: VecDeque<Message>,
    /// One of these is an urgent byte that was not read.
    pub(crate) urgent: bool,
    /// A listener's connections that were not accepted yet.
    pub(crate) pending: VecDeque<UnixId>,
    /// listen(2)'s, or the datagram queue's length.
    pub(crate) backlog: u32,
    /// Bytes charged for messages that were sent and not yet received (sk_wmem_alloc).
    pub(crate) charged: usize,
    /// The same of the messages in its queue, whoever has sent them.
    pub(crate) held: usize,
    pub(crate) shut_read: bool,
    pub(crate) shut_write: bool,
    pub(crate) error: Option<Errno>,
    /// A descriptor refers to it (false while it is in an accept queue).
    pub(crate) accepted: bool,
    /// It is the /dev/log of this container, which no descriptor refers to.
    pub(crate) log_of: Option<ContainerId>,
}

/// SO_PEERCRED of a socket that never had a peer.
const NO_CRED: Ucred = Ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };

impl UnixSocket {
    fn new(net: NetNs, kind: Kind, uid: u32) -> UnixSocket {
        UnixSocket {
            kind,
            net,
            generic: Generic::new(uid),
            sndbuf: BUFFER,
            rcvbuf: BUFFER,
            passcred: false,
            filter: None,
            cred: NO_CRED,
            state: State::Unconnected,
            name: None,
            ino: None,
            peer: Peer::None,
            queue: VecDeque::new(),
            urgent: false,
            pending: VecDeque::new(),
            backlog: DATAGRAM_QUEUE,
            charged: 0,
            held: 0,
            shut_read: false,
            shut_write: false,
            error: None,
            accepted: true,
            log_of: None,
        }
    }

    /// How many calls that accept connections do not sleep.
    pub fn connections(&self) -> usize {
        if self.shut_read { usize::MAX } else { self.pending.len() }
    }

    /// How many calls that receive packets do not sleep.
    pub fn receptions(&self) -> usize {
        let ended = self.shut_read || self.kind == Kind::SeqPacket && matches!(self.peer, Peer::Dead { .. });
        if ended { usize::MAX } else { self.queue.len() + usize::from(self.error.is_some()) }
    }

    /// Whether a descriptor refers to it: not while it waits to be accepted.
    pub fn is_accepted(&self) -> bool {
        self.accepted
    }

    /// `unix_writable`: "a quarter of the buffer is the most that may be in use". The allocation counter starts at 1.
    fn writable(&self) -> bool {
        self.state != State::Listening && (self.charged + 1) * 4 <= self.sndbuf as usize
    }

    /// `unix_recvq_full`.
    fn queue_full(&self) -> bool {
        let len = if self.state == State::Listening { self.pending.len() } else { self.queue.len() };
        len as u64 > u64::from(self.backlog)
    }
}

/// What an operation did to others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Effects {
    /// Readiness wake-ups with their EPOLL* bits.
    wakes: VecDeque<(UnixId, u32)>,
    /// Sockets at which sleeping connecters and senders should try again (Linux's `peer_wait`).
    retries: VecDeque<UnixId>,
    /// Descriptions in messages that nobody will receive.
    dropped: VecDeque<FileId>,
    /// What the owners of sockets with O_ASYNC are told.
    tells: VecDeque<(UnixId, Waking, Band)>,
    /// Sockets that got an urgent byte.
    urgent: VecDeque<UnixId>,
    /// Messages to /dev/log.
    logged: VecDeque<LogMessage>,
}

/// All unix sockets of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnixSockets {
    sockets: Arena<UnixId, UnixSocket>,
    /// "The abstract socket namespace" is one of the network namespace (network_namespaces(7)).
    abstract_names: BTreeMap<(NetNs, Kind, Vec<u8>), UnixId>,
    paths: BTreeMap<Ino, UnixId>,
    next_auto: u32,
    effects: Effects,
    settling: bool,
    pub(crate) flights: collect::Flights,
}

impl Default for UnixSockets {
    fn default() -> Self {
        UnixSockets {
            sockets: Arena::weighed(),
            abstract_names: BTreeMap::new(),
            paths: BTreeMap::new(),
            next_auto: 0,
            effects: Effects::default(),
            settling: false,
            flights: Default::default(),
        }
    }
}

/// shutdown(2)'s choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halves {
    /// No more receptions.
    pub read: bool,
    /// No more transmissions.
    pub write: bool,
}

impl UnixSockets {
    /// The socket; it must exist.
    pub fn get(&self, id: UnixId) -> &UnixSocket {
        &self.sockets[id]
    }

    /// Whether it is not closed.
    pub(crate) fn exists(&self, id: UnixId) -> bool {
        self.sockets.get(id).is_some()
    }

    /// The socket; it must exist.
    pub fn get_mut(&mut self, id: UnixId) -> &mut UnixSocket {
        &mut self.sockets[id]
    }

    /// The sockets as their containers' accounts see them.
    pub(crate) fn ledger(&mut self) -> &mut Arena<UnixId, UnixSocket> {
        &mut self.sockets
    }

    /// All sockets in order of creation.
    pub fn iter(&self) -> impl Iterator<Item = (UnixId, &UnixSocket)> {
        self.sockets.iter()
    }

    /// Readiness (EPOLL* bits): `unix_poll` and `unix_dgram_poll`.
    pub fn ready_bits(&self, id: UnixId) -> u32 {
        let Some(s) = self.sockets.get(id) else { return (c::EPOLLERR | c::EPOLLHUP) as u32 };
        let mut bits = 0;
        if s.error.is_some() {
            bits |= c::EPOLLERR;
        }
        if s.shut_read && s.shut_write {
            bits |= c::EPOLLHUP;
        }
        if s.shut_read {
            bits |= c::EPOLLRDHUP | c::EPOLLIN | c::EPOLLRDNORM;
        }
        if !s.queue.is_empty() || !s.pending.is_empty() {
            bits |= c::EPOLLIN | c::EPOLLRDNORM;
        }
        if s.urgent {
            bits |= c::EPOLLPRI;
        }
        if s.kind.connects() && s.state == State::Unconnected {
            bits |= c::EPOLLHUP;
        }
        let mut bits = bits as u32;
        if s.writable() && !(s.kind != Kind::Stream && self.peer_full(id)) {
            bits |= WRITABLE;
        }
        bits
    }

    /// Whether who sleeps for room in the queue of a socket goes on sleeping.
    pub(crate) fn is_full(&self, id: UnixId) -> bool {
        self.sockets.get(id).is_some_and(UnixSocket::queue_full)
    }

    /// The connected receiver of datagrams has no room. A peer that is connected back never counts as full.
    fn peer_full(&self, id: UnixId) -> bool {
        let Peer::Alive(peer) = self.sockets[id].peer else { return false };
        self.sockets.get(peer).is_some_and(|p| p.peer != Peer::Alive(id) && p.queue_full())
    }

    /// SO_ERROR: takes the pending error.
    pub fn take_error(&mut self, id: UnixId) -> Option<Errno> {
        self.sockets[id].error.take()
    }

    /// SO_ACCEPTCONN.
    pub fn is_listening(&self, id: UnixId) -> bool {
        self.sockets[id].state == State::Listening
    }

    /// getsockname(2): `None` when not bound.
    pub fn local_name(&self, id: UnixId) -> Option<&Name> {
        self.sockets[id].name.as_ref()
    }

    /// The socket at the other end, if it lives.
    pub(crate) fn peer_of(&self, id: UnixId) -> Option<UnixId> {
        match self.sockets[id].peer {
            Peer::Alive(peer) => Some(peer),
            Peer::None | Peer::Dead { .. } => None,
        }
    }

    /// getpeername(2): ENOTCONN; `Ok(None)` for a peer without a name.
    pub fn peer_name(&self, id: UnixId) -> Result<Option<&Name>, Errno> {
        match &self.sockets[id].peer {
            Peer::None => Err(Errno::ENOTCONN),
            Peer::Alive(peer) => Ok(self.sockets.get(*peer).and_then(|p| p.name.as_ref())),
            Peer::Dead { name, .. } => Ok(name.as_ref()),
        }
    }

    /// FIONREAD: all bytes of a connection, the first datagram's length. EINVAL on a listener.
    pub fn readable_bytes(&self, id: UnixId) -> Result<usize, Errno> {
        let s = &self.sockets[id];
        match s.state {
            State::Listening => Err(Errno::EINVAL),
            _ if s.kind.connects() => Ok(s.queue.iter().map(Message::left).sum()),
            _ => Ok(s.queue.front().map_or(0, Message::left)),
        }
    }

    /// TIOCOUTQ: what is charged for messages not yet received.
    pub fn unreceived_bytes(&self, id: UnixId) -> usize {
        self.sockets[id].charged
    }

    /// SO_SNDBUF; more room may wake senders.
    pub fn set_sndbuf(&mut self, id: UnixId, bytes: u32) {
        let s = &mut self.sockets[id];
        s.sndbuf = bytes;
        self.write_space(id);
    }

    fn wake(&mut self, id: UnixId, bits: u32) {
        self.effects.wakes.push_back((id, bits));
    }

    fn tell(&mut self, id: UnixId, waking: Waking, band: Band) {
        self.effects.tells.push_back((id, waking, band));
    }

    /// Something has come (`sock_def_readable`).
    fn data_ready(&mut self, id: UnixId) {
        self.wake(id, READABLE);
        self.tell(id, Waking::Data, Band::In);
    }

    /// There may be room again (`unix_write_space`).
    fn write_space(&mut self, id: UnixId) {
        if self.sockets[id].writable() {
            self.wake(id, WRITABLE);
            self.tell(id, Waking::Space, Band::Out);
        }
    }

    /// Takes a charge back from a sender, which may have room then.
    fn discharge(&mut self, sender: UnixId, charge: usize) {
        let Some(s) = self.sockets.get_mut(sender) else { return };
        s.charged -= charge;
        self.write_space(sender);
    }

    /// Forgets a message that nobody will receive.
    fn discard(&mut self, at: UnixId, message: Message) {
        self.flights.landed(at, message.user, message.files.len());
        self.discharge(message.sender, message.charge);
        self.effects.dropped.extend(message.files);
    }

    /// Whether wake-ups or dropped descriptions wait for [`Node::settle_unix`].
    fn has_effects(&self) -> bool {
        let Effects { wakes, retries, dropped, tells, urgent, logged } = &self.effects;
        let quiet = wakes.is_empty() && retries.is_empty() && dropped.is_empty();
        !(quiet && tells.is_empty() && urgent.is_empty() && logged.is_empty())
    }
}

impl Node {
    /// The last description of a socket is gone.
    pub fn close_unix(&mut self, id: UnixId, base: &mut dyn BaseFs) {
        self.unix.close(id);
        // Closing may drop a message whose descriptions close further sockets, and so on: the outermost call carries
        // it all out in a loop, so that a long chain is no deep recursion.
        self.unix.flights.closed();
        if !self.unix.settling {
            self.settle_unix(base);
        }
    }

    /// Carries out what the last operations on unix sockets did to others: wake-ups, closing of dropped descriptions.
    pub(crate) fn settle_unix(&mut self, base: &mut dyn BaseFs) {
        self.collect_unix();
        self.unix.settling = true;
        while self.unix.has_effects() {
            while let Some(id) = self.unix.effects.urgent.pop_front() {
                self.send_sigurg(Object::Unix(id));
            }
            while let Some((id, bits)) = self.unix.effects.wakes.pop_front() {
                self.notify_object(Object::Unix(id), bits);
            }
            while let Some((id, waking, band)) = self.unix.effects.tells.pop_front() {
                self.socket_async(Object::Unix(id), waking, band);
            }
            while let Some(id) = self.unix.effects.retries.pop_front() {
                self.notify(WaitOn::UnixRoom(id));
            }
            while let Some(message) = self.unix.effects.logged.pop_front() {
                self.print_logged(message);
            }
            if let Some(file) = self.unix.effects.dropped.pop_front() {
                self.file_unref(file, base);
            }
        }
        self.unix.settling = false;
    }
}

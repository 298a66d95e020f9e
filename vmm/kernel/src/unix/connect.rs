//! Names, listening, connecting, shutting down and closing of unix sockets (net/unix/af_unix.c's state machine).

use bloodhound_abi::Errno;
use bloodhound_abi::structs::Ucred;
use bloodhound_vfs::Ino;

use super::{CHANGED, Halves, Kind, Name, Peer, Stall, State, UnixSocket, UnixSockets, WRITABLE};
use crate::fasync::{Band, Waking};
use crate::ids::UnixId;
use crate::stacks::NetNs;

/// Names that autobind can give: five hexadecimal digits.
const AUTO_NAMES: u32 = 1 << 20;

impl UnixSockets {
    /// socket(2) in a network namespace; `uid` is the creator for /proc/net/unix.
    pub fn create(&mut self, net: NetNs, kind: Kind, uid: u32) -> UnixId {
        self.sockets.insert(UnixSocket::new(net, kind, uid))
    }

    /// socketpair(2).
    pub fn pair(&mut self, net: NetNs, kind: Kind, cred: Ucred) -> (UnixId, UnixId) {
        let (a, b) = (self.create(net, kind, cred.uid), self.create(net, kind, cred.uid));
        for (id, peer) in [(a, b), (b, a)] {
            let s = &mut self.sockets[id];
            (s.peer, s.state, s.cred) = (Peer::Alive(peer), State::Established, cred);
        }
        (a, b)
    }

    /// Whether the socket has a name already.
    pub fn is_bound(&self, id: UnixId) -> bool {
        self.sockets[id].name.is_some()
    }

    /// bind(2) to a path whose inode was just made. EINVAL if the socket has a name.
    pub fn bind_path(&mut self, id: UnixId, path: Vec<u8>, ino: Ino) -> Result<(), Errno> {
        let s = &mut self.sockets[id];
        if s.name.is_some() {
            return Err(Errno::EINVAL);
        }
        (s.name, s.ino) = (Some(Name::Path(path)), Some(ino));
        self.paths.insert(ino, id);
        Ok(())
    }

    /// bind(2) to an abstract name. EINVAL if the socket has a name, EADDRINUSE.
    pub fn bind_abstract(&mut self, id: UnixId, name: Vec<u8>) -> Result<(), Errno> {
        let s = &mut self.sockets[id];
        if s.name.is_some() {
            return Err(Errno::EINVAL);
        }
        // Linux's table is keyed by name and type.
        let key = (s.net, s.kind, name);
        if self.abstract_names.contains_key(&key) {
            return Err(Errno::EADDRINUSE);
        }
        s.name = Some(Name::Abstract(key.2.clone()));
        self.abstract_names.insert(key, id);
        Ok(())
    }

    /// "If a bind(2) call specifies addrlen as sizeof(sa_family_t) ... then the socket is autobound to an abstract
    /// address" of five hexadecimal digits. Does nothing if there is a name. ENOSPC when all names are taken.
    pub fn autobind(&mut self, id: UnixId) -> Result<(), Errno> {
        if self.is_bound(id) {
            return Ok(());
        }
        for _ in 0..AUTO_NAMES {
            self.next_auto = (self.next_auto + 1) % AUTO_NAMES;
            let name = format!("{:05x}", self.next_auto).into_bytes();
            if self.bind_abstract(id, name).is_ok() {
                return Ok(());
            }
        }
        Err(Errno::ENOSPC)
    }

    /// The socket that is bound to an inode: ECONNREFUSED if none, EPROTOTYPE if of another type.
    pub fn find_path(&self, ino: Ino, kind: Kind) -> Result<UnixId, Errno> {
        let id = *self.paths.get(&ino).ok_or(Errno::ECONNREFUSED)?;
        if self.sockets[id].kind == kind { Ok(id) } else { Err(Errno::EPROTOTYPE) }
    }

    /// The socket with an abstract name: ECONNREFUSED if none.
    pub fn find_abstract(&self, net: NetNs, name: &[u8], kind: Kind) -> Result<UnixId, Errno> {
        self.abstract_names.get(&(net, kind, name.to_vec())).copied().ok_or(Errno::ECONNREFUSED)
    }

    /// listen(2); `cred` is what connecting sockets get as SO_PEERCRED. EOPNOTSUPP for datagrams, EINVAL without a
    /// name or when connected.
    pub fn listen(&mut self, id: UnixId, backlog: u32, cred: Ucred) -> Result<(), Errno> {
        let s = &mut self.sockets[id];
        if !s.kind.connects() {
            return Err(Errno::EOPNOTSUPP);
        }
        if s.name.is_none() || s.state == State::Established {
            return Err(Errno::EINVAL);
        }
        let more = backlog > s.backlog;
        (s.backlog, s.state, s.cred) = (backlog, State::Listening, cred);
        if more {
            self.effects.retries.push_back(id);
        }
        Ok(())
    }

    /// connect(2) of a stream or sequenced-packet socket to a listener. ECONNREFUSED, EISCONN, EINVAL on a listener;
    /// `Room` of the target while its queue is full.
    pub fn connect(&mut self, id: UnixId, target: UnixId, cred: Ucred) -> Result<(), Stall> {
        let listener = self.sockets.get(target).ok_or(Errno::ECONNREFUSED)?;
        if listener.state != State::Listening || listener.shut_read {
            return Err(Errno::ECONNREFUSED.into());
        }
        if listener.queue_full() {
            return Err(Stall::Room(target));
        }
        match self.sockets[id].state {
            State::Unconnected => {}
            State::Established => return Err(Errno::EISCONN.into()),
            State::Listening => return Err(Errno::EINVAL.into()),
        }
        let mut embryo = UnixSocket::new(listener.net, listener.kind, listener.generic.uid);
        let listener_cred = listener.cred;
        (embryo.name, embryo.peer, embryo.cred) = (listener.name.clone(), Peer::Alive(id), cred);
        (embryo.state, embryo.accepted) = (State::Established, false);
        let embryo = self.sockets.insert(embryo);
        let s = &mut self.sockets[id];
        (s.peer, s.state, s.cred) = (Peer::Alive(embryo), State::Established, listener_cred);
        self.sockets[target].pending.push_back(embryo);
        self.data_ready(target);
        Ok(())
    }

    /// accept(2). EOPNOTSUPP for datagrams, EINVAL when not listening; `Until` itself when none waits. After a shutdown of
    /// the reading half a call that may sleep (`wait`) gets EINVAL, while one that does not goes on with EAGAIN.
    pub fn accept(&mut self, id: UnixId, wait: bool) -> Result<UnixId, Stall> {
        let s = &mut self.sockets[id];
        if !s.kind.connects() {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if s.state != State::Listening {
            return Err(Errno::EINVAL.into());
        }
        let passcred = s.passcred;
        let Some(new) = s.pending.pop_front() else {
            return Err(if s.shut_read && wait { Stall::Errno(Errno::EINVAL) } else { Stall::Until(id) });
        };
        // A connecter that found the queue full may try again.
        self.effects.retries.push_back(id);
        let socket = &mut self.sockets[new];
        (socket.accepted, socket.passcred) = (true, passcred);
        Ok(new)
    }

    /// connect(2) of a datagram socket; `None` (AF_UNSPEC) dissolves the association. EPERM if the target is connected
    /// to another socket.
    pub fn connect_datagram(&mut self, id: UnixId, target: Option<UnixId>) -> Result<(), Errno> {
        if let Some(target) = target {
            if !self.may_send(id, target) {
                return Err(Errno::EPERM);
            }
            self.sockets[target].state = State::Established;
        }
        let s = &mut self.sockets[id];
        s.state = if target.is_some() { State::Established } else { State::Unconnected };
        let new = target.map_or(Peer::None, Peer::Alive);
        let old = std::mem::replace(&mut s.peer, new.clone());
        if old != Peer::None {
            self.wake(id, WRITABLE);
        }
        if old != Peer::None && old != new {
            self.datagram_disconnected(id, &old);
        }
        Ok(())
    }

    /// `unix_may_send`: the receiver is connected to nobody or to the sender.
    pub(super) fn may_send(&self, from: UnixId, to: UnixId) -> bool {
        matches!(self.sockets[to].peer, Peer::None) || self.sockets[to].peer == Peer::Alive(from)
    }

    /// A datagram socket lost its peer: what was queued is lost, and a peer that was connected back is told.
    pub(super) fn datagram_disconnected(&mut self, id: UnixId, old: &Peer) {
        let lost = std::mem::take(&mut self.sockets[id].queue);
        self.sockets[id].held = 0;
        if lost.is_empty() {
            return;
        }
        for message in lost {
            self.discard(id, message);
        }
        self.room_at(id);
        if let Peer::Alive(old) = *old
            && let Some(peer) = self.sockets.get_mut(old)
            && peer.peer == Peer::Alive(id)
        {
            peer.error = Some(Errno::ECONNRESET);
            self.wake(old, bloodhound_abi::consts::EPOLLERR as u32);
            self.tell(old, Waking::Any, Band::Error);
        }
    }

    /// The datagram queue of `id` has room: tells those who send to it.
    pub(super) fn room_at(&mut self, id: UnixId) {
        self.effects.retries.push_back(id);
        // A sender that is connected both ways never waits for the queue's length.
        let mutual = self.sockets[id].peer.clone();
        let sends = |(s, o): &(UnixId, &UnixSocket)| {
            o.peer == Peer::Alive(id) && *s != id && Peer::Alive(*s) != mutual
        };
        let senders: Vec<UnixId> = self.sockets.iter().filter(sends).map(|(s, _)| s).collect();
        for sender in senders {
            self.wake(sender, WRITABLE);
        }
    }

    /// shutdown(2). Succeeds on unconnected sockets too, as Linux does.
    pub fn shutdown(&mut self, id: UnixId, halves: Halves) {
        let s = &mut self.sockets[id];
        s.shut_read |= halves.read;
        s.shut_write |= halves.write;
        let peer = if s.kind.connects() { s.peer.clone() } else { Peer::None };
        self.wake(id, CHANGED);
        if let Peer::Alive(peer) = peer {
            let p = &mut self.sockets[peer];
            p.shut_write |= halves.read;
            p.shut_read |= halves.write;
            self.wake(peer, CHANGED);
            // By what is shut down now, not by what was before.
            if halves.write {
                self.tell(peer, Waking::Data, if halves.read { Band::HangUp } else { Band::In });
            }
        }
    }

    /// The last description is gone. Accepted by nobody, the connections in a listener's queue are reset.
    pub fn close(&mut self, id: UnixId) {
        let mut embryos = self.release(id, false);
        while let Some(embryo) = embryos.pop() {
            embryos.extend(self.release(embryo, true));
        }
    }

    /// `unix_release_sock`; returns the connections that were waiting to be accepted, last first.
    fn release(&mut self, id: UnixId, embryo: bool) -> Vec<UnixId> {
        let Some(s) = self.sockets.remove(id) else { return Vec::new() };
        self.effects.retries.push_back(id);
        if let Some(name) = s.name.as_ref().filter(|_| s.charged > 0) {
            let receivers = if s.kind.connects() { self.connected_to(id, &s) } else { self.ids() };
            self.keep_name(id, name, &receivers);
        }
        if let Some(ino) = s.ino {
            self.paths.remove(&ino);
        }
        // An accepted socket shows its listener's name without owning it.
        if let Some(Name::Abstract(name)) = &s.name {
            let key = (s.net, s.kind, name.clone());
            if self.abstract_names.get(&key) == Some(&id) {
                self.abstract_names.remove(&key);
            }
        }
        // An empty packet does not count as unread, if it is the only one (kernels with out-of-band data skip it).
        let unread = s.queue.len() > 1 || s.queue.front().is_some_and(|m| m.left() > 0);
        let connected = self.connected_to(id, &s);
        for other in connected {
            let o = &mut self.sockets[other];
            o.peer = Peer::Dead { name: s.name.clone(), filter: s.filter.clone() };
            if !o.kind.connects() {
                // Senders that wait for the queue's length; see `room_at`.
                if s.queue_full() && s.peer != Peer::Alive(other) {
                    self.wake(other, WRITABLE);
                }
                continue;
            }
            (o.shut_read, o.shut_write) = (true, true);
            if unread || embryo {
                o.error = Some(Errno::ECONNRESET);
            }
            self.wake(other, CHANGED);
            self.tell(other, Waking::Data, Band::HangUp);
        }
        for message in s.queue {
            self.discard(id, message);
        }
        s.pending.into_iter().rev().collect()
    }

    /// The sockets whose peer is `id`, which was `s`. Of a connection that can only be the other end.
    fn connected_to(&self, id: UnixId, s: &UnixSocket) -> Vec<UnixId> {
        match s.peer {
            Peer::Alive(peer) if s.kind.connects() => vec![peer],
            _ if s.kind.connects() => Vec::new(),
            _ => self.sockets.iter().filter(|(_, o)| o.peer == Peer::Alive(id)).map(|(o, _)| o).collect(),
        }
    }

    fn ids(&self) -> Vec<UnixId> {
        self.sockets.iter().map(|(id, _)| id).collect()
    }
}

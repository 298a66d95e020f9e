//! Time and events: the timer index, delivery of loopback packets, and [`Stack::settle`], which brings the stack's
//! tables in line with what a handler did to its socket.

use super::Stack;
use crate::iface::LOOPBACK;
use crate::socket::{Common, Cx, Kind, Socket, TimeWait};
use crate::{Proto, ReadyFlags, SocketId, StateChange, TcpState, Tell};
use bloodhound_abi::SimTime;

impl Stack {
    /// Wakes since the last call, in the order of each socket's first one. The flags are the key of the wake (all of
    /// them for a change of state), not the readiness: an edge-triggered waiter is woken if they meet its interest
    /// and [`Stack::readiness`] then agrees. A socket may have been closed since.
    pub fn take_events(&mut self) -> Vec<(SocketId, ReadyFlags)> {
        self.hand_out_noted();
        let mut events = std::mem::take(&mut self.events);
        for (id, _) in &events {
            if let Some(socket) = self.sockets.get_mut(id) {
                socket.common.event = None;
            }
        }
        events.retain(|(_, flags)| !flags.is_empty());
        events
    }

    /// The sockets that got an urgent mark since the last call: their owners are told by SIGURG.
    pub fn take_urgent(&mut self) -> Vec<SocketId> {
        std::mem::take(&mut self.urgent)
    }

    /// What the owners of sockets with O_ASYNC are told since the last call, in order.
    pub fn take_tells(&mut self) -> Vec<(SocketId, Tell)> {
        std::mem::take(&mut self.tells)
    }

    /// When [`Stack::on_time`] has to be called next, at the latest: the first loopback packet or timer.
    pub fn next_deadline(&self) -> Option<SimTime> {
        let packet = self.net.loopback.front().map(|(at, ..)| *at);
        let timer = self.timers.first().map(|(at, _)| *at);
        [packet, timer].into_iter().flatten().min()
    }

    /// Delivers loopback packets and fires timers that are due at `now`, in order of time; packets before timers of
    /// the same time, timers of one time in the order of the sockets' ids. Handlers run with the time `now`.
    pub fn on_time(&mut self, now: SimTime) {
        loop {
            let packet = self.net.loopback.front().map(|(at, ..)| *at).filter(|at| *at <= now);
            let timer = self.timers.first().copied().filter(|(at, _)| *at <= now);
            match (packet, timer) {
                (None, None) => return,
                (Some(_), None) => self.deliver_loopback(now),
                (Some(at), Some((due, _))) if at <= due => self.deliver_loopback(now),
                (_, Some((_, id))) => self.fire(id, now),
            }
        }
    }

    fn deliver_loopback(&mut self, now: SimTime) {
        if let Some((_, packet, interface)) = self.net.loopback.pop_front() {
            // Packets to groups of other interfaces come back without passing one (PACKET_LOOPBACK).
            if !self.is_group(packet.dst.ip()) || interface == LOOPBACK {
                self.net.note(&packet, LOOPBACK, None, false, now);
            } else {
                self.net.counters.comes_in(
                    &packet,
                    0,
                    packet.dst.is_ipv4() && !packet.dst.ip().is_multicast(),
                );
            }
            self.take_in(packet, interface, now);
        }
    }

    fn fire(&mut self, id: SocketId, now: SimTime) {
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let mut cx = Cx { c: &mut socket.common, net: &mut self.net, now };
        match &mut socket.kind {
            Kind::Conn(conn) => conn.on_time(&mut cx),
            Kind::Listen(_) => self.resend_requests(id, now),
            Kind::TimeWait(_) => {
                self.remove(id);
                return;
            }
            Kind::Idle | Kind::Udp(_) | Kind::Packet(_) => {}
        }
        self.settle(id, now);
        let next = self.sockets.get(&id).and_then(|s| s.deadline);
        assert!(next.is_none_or(|at| at > now), "a timer that fired is still due");
    }

    /// After a handler ran on a socket: queues its wakes, moves it on in its life and notes its next deadline.
    pub(super) fn settle(&mut self, id: SocketId, now: SimTime) {
        self.note_state(id);
        self.weigh(id);
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        if std::mem::take(&mut socket.common.urgent_came) {
            self.urgent.push(id);
        }
        let wake = std::mem::take(&mut socket.common.wake);
        let tell = std::mem::take(&mut socket.common.tell);
        let heard = match socket.common.orphan {
            true => socket.common.opts.linger.is_some_and(|secs| secs > 0),
            false => !socket.common.unaccepted,
        };
        if !tell.is_empty() && heard {
            self.tells.push((id, tell));
        }
        if !wake.is_empty() && heard {
            match socket.common.event {
                Some(index) => self.events[index as usize].1 |= wake,
                None => {
                    socket.common.event = Some(self.events.len() as u32);
                    self.events.push((id, wake));
                }
            }
        }
        if let Kind::Conn(conn) = &socket.kind {
            match conn.state {
                TcpState::TimeWait => {
                    self.enter_time_wait(id, now);
                    return;
                }
                TcpState::Close => {
                    self.leave(id);
                    return;
                }
                _ => {}
            }
        }
        self.schedule(id);
    }

    /// The changes of TCP sockets since the last call, in order. For whoever watches a run; the stack needs them for nothing.
    pub fn drain_changes(&mut self) -> std::vec::Drain<'_, StateChange> {
        self.changes.drain(..)
    }

    /// Notes the state of a TCP socket if it is another one than was told.
    fn note_state(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(&id).filter(|s| s.common.proto == Proto::Tcp) else { return };
        let state = socket.state();
        let before = std::mem::replace(&mut socket.common.told, state);
        if state != before {
            if state == TcpState::Close {
                self.net.counters.tcp.ended(before);
            }
            let c = &socket.common;
            self.changes.push(StateChange { id, local: c.local, peer: c.peer, state });
        }
    }

    /// Notes that a socket is gone.
    pub(super) fn note_end(&mut self, id: SocketId, common: &Common) {
        if common.told != TcpState::Close {
            self.net.counters.tcp.ended(common.told);
            let (local, peer) = (common.local, common.peer);
            self.changes.push(StateChange { id, local, peer, state: TcpState::Close });
        }
    }

    /// Puts the socket's next deadline into the index.
    fn schedule(&mut self, id: SocketId) {
        self.note_state(id);
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let next = socket.next_deadline();
        if next != socket.deadline {
            if let Some(old) = socket.deadline {
                self.timers.remove(&(old, id));
            }
            if let Some(new) = next {
                self.timers.insert((new, id));
            }
            socket.deadline = next;
        }
    }

    /// The connection is over: its pair is free; an orphan goes altogether.
    fn leave(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get(&id) else { return };
        if socket.common.orphan {
            self.remove(id);
            return;
        }
        let (local, peer, keeps_port) = (socket.common.local, socket.common.peer, socket.common.bound_port);
        // It has left before, and was bound since.
        let Some(peer) = peer else { return self.schedule(id) };
        self.forget_pair((local, peer), id);
        if !keeps_port {
            self.release_port(id);
        }
        self.schedule(id);
    }

    /// TIME_WAIT belongs to the pair of addresses, not to the user's socket, which is closed from now on.
    fn enter_time_wait(&mut self, id: SocketId, now: SimTime) {
        self.net.counters.tcp.time_waits += 1;
        let Some(socket) = self.sockets.get_mut(&id) else { return };
        let mut cx = Cx { c: &mut socket.common, net: &mut self.net, now };
        let Kind::Conn(conn) = &mut socket.kind else { return };
        let wait = Kind::TimeWait(TimeWait {
            snd_nxt: conn.snd_nxt,
            rcv_nxt: conn.rcv_nxt,
            window: conn.last_window(),
            since: now,
            last_stray: None,
            until: now.after(cx.net.config.time_wait),
            place: conn.place_in_time_wait(),
        });
        if cx.c.orphan {
            socket.kind = wait;
            self.weigh(id);
            self.schedule(id);
            return;
        }
        conn.enter_close(&mut cx);
        let c = &socket.common;
        let (local, peer) = (c.local, c.peer);
        let mut ghost = Common::new(Proto::Tcp, c.v6, &self.net.config);
        ghost.opts.clone_from(&c.opts);
        ghost.local = local;
        ghost.peer = peer;
        ghost.orphan = true;
        let ghost_id = self.insert(ghost, wait);
        self.hold_port(ghost_id);
        if let Some(peer) = peer {
            self.conns.insert((local, peer), ghost_id);
        }
        self.weigh(ghost_id);
        self.schedule(ghost_id);
        self.settle(id, now);
    }

    /// Whether the stack holds nothing that could still act: no sockets beside idle ones, no packets, no timers.
    pub fn is_quiet(&self) -> bool {
        let idle = |s: &Socket| !matches!(s.kind, Kind::Conn(_) | Kind::TimeWait(_));
        self.net.out.is_empty() && self.next_deadline().is_none() && self.sockets.values().all(idle)
    }
}

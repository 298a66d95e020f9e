//! What Linux does rarely and may always do, and what is not an error of the call that it happens to: sends that take a part, connections that
//! are reset before they are accepted, events of inotify that are lost, events of epoll in another order.
//!
//! Whether one happens is asked in [`crate::hazards`], where the handler of a call comes to it. Neighbour: [`crate::scarce`] refuses calls.

use bloodhound_abi::structs::EpollEvent;
use bloodhound_faults::Kind;
use bloodhound_net::{SocketId, TcpState};

use crate::ctx::Ctx;
use crate::ids::*;
use crate::wait::Object;

impl Ctx<'_> {
    /// How many of `len` bytes a send on a TCP socket takes that does not block, if it takes less than there is room for.
    ///
    /// "if (!skb) goto wait_for_space", "if (!sk_page_frag_refill(sk, pfrag)) goto wait_for_space", "copy = tcp_wmem_schedule(sk, copy); if
    /// (!copy) goto wait_for_space": where memory is short, `tcp_sendmsg_locked` does what it does with a full buffer, and where it may not
    /// wait returns what it has copied. Who waits goes on after a moment (`sk_stream_wait_memory`), so its sends are whole.
    pub(crate) fn sends_part(&mut self, id: SocketId, len: u64) -> Option<u64> {
        if !self.may_meet_rare() {
            return None;
        }
        let most = len.min(self.node.net.of(id).send_room(id) as u64);
        self.part_of(most, 1)
    }

    /// The same for a Unix stream socket, whose sends are made of messages of up to `piece` bytes, each of which is sent as a whole or not at all:
    /// "skb = sock_alloc_send_pskb([...]); if (!skb) goto out_err; [...] out_err: [...] return sent ? : err" (`unix_stream_sendmsg`).
    pub(crate) fn sends_pieces(&mut self, len: u64, piece: u64) -> Option<u64> {
        if self.may_meet_rare() { self.part_of(len, piece) } else { None }
    }

    /// Whether a call that begins, and no part of one that goes on after a sleep, may meet something here.
    #[inline]
    fn may_meet_rare(&self) -> bool {
        self.container().hazards.in_force() && self.resumed.is_none()
    }

    /// A part of `len` bytes: some whole pieces, but not all.
    fn part_of(&mut self, len: u64, piece: u64) -> Option<u64> {
        let pieces = len.div_ceil(piece);
        if pieces < 2 {
            return None;
        }
        let nth = self.hazard_with(Kind::PartialSend)?;
        Some((1 + self.hazard_choice(Kind::PartialSend, nth, "bytes", pieces - 1)) * piece)
    }

    /// Tells of a send that has taken a part.
    pub(crate) fn sent_part(&mut self, part: u64, len: u64) {
        self.met(Kind::PartialSend, None, format!("{part} of {len} bytes"));
    }

    /// A connection from another node that has just been accepted may have been reset in the queue. Linux gives it all the same
    /// ("WARN_ON(!((1 << newsk->sk_state) & (TCPF_ESTABLISHED | TCPF_SYN_RECV | TCPF_CLOSE_WAIT | TCPF_CLOSE)))", `__inet_accept`), with its address
    /// (`inet_getname` looks at no state for accept(2)); ECONNABORTED, which accept(2) names, it gives for none.
    pub(crate) fn may_have_been_reset(&mut self, id: SocketId) {
        let stack = self.node.net.of(id);
        if !self.container().hazards.in_force()
            || !stack.is_to_other_node(id)
            || stack.state(id) != Some(TcpState::Established)
            || !self.hazard(Kind::AcceptReset)
        {
            return;
        }
        let now = self.node.clock;
        if self.node.net.of_mut(id).reset_connection(id, now) {
            self.met(Kind::AcceptReset, None, "a connection that is reset");
        }
    }

    /// One of the events that a program does not know of yet may have been lost: "Treat lost event due to ENOMEM the same way as queue overflow
    /// to let userspace know event was lost" (`inotify_handle_inode_event`). From here on it knows of all that are in the queue.
    pub(crate) fn may_have_lost(&mut self, id: InotifyId) {
        let unknown = if self.container().hazards.in_force() { self.node.inotifies[id].losable() } else { 0 };
        if unknown > 0
            && let Some(nth) = self.hazard_with(Kind::InotifyOverflow)
        {
            let which = self.hazard_choice(Kind::InotifyOverflow, nth, "event", unknown as u64);
            self.node.inotifies[id].lose(which as usize);
            self.met(Kind::InotifyOverflow, None, "IN_Q_OVERFLOW");
        }
        self.node.inotifies[id].known_to_program();
    }

    /// Events of epoll_wait(2), some of connections to other nodes perhaps in another order. The manual pages promise none. Linux's is that of
    /// wake-ups, which for packets of several connections is that in which processors come to them: a network card spreads
    /// connections over its queues (Documentation/networking/scaling.rst, RSS), and a network may hold any of them up. All else is told in
    /// the order in which programs made it ready, as they may rely on that.
    pub(crate) fn in_some_order(&mut self, mut hits: Vec<(EpollEvent, Object)>) -> Vec<(EpollEvent, Object)> {
        if hits.len() < 2 || !self.container().hazards.in_force() {
            return hits;
        }
        let far = |object: &Object| match object {
            Object::Inet(id) => self.node.net.of(*id).is_to_other_node(*id),
            _ => false,
        };
        let at: Vec<usize> = (0..hits.len()).filter(|at| far(&hits[*at].1)).collect();
        if at.len() < 2 {
            return hits;
        }
        let Some(nth) = self.hazard_with(Kind::EpollReorder) else { return hits };
        let by = 1 + self.hazard_choice(Kind::EpollReorder, nth, "by", at.len() as u64 - 1) as usize;
        let before = hits.clone();
        for (nth, to) in at.iter().enumerate() {
            hits[*to] = before[at[(nth + by) % at.len()]];
        }
        self.met(
            Kind::EpollReorder,
            None,
            format!("{} events, the first one is number {}", at.len(), by + 1),
        );
        hits
    }
}

#[cfg(test)]
mod tests;

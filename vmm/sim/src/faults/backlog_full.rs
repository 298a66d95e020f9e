//! The backlog of one listener counts as full for a time. Linux then does what it does to who comes while the queue of accept(2) is full:
//!
//! - a SYN is dropped: "if (sk_acceptq_is_full(sk)) { NET_INC_STATS(sock_net(sk), LINUX_MIB_LISTENOVERFLOWS); goto drop; }"
//!   (`tcp_conn_request`), and sent again after 1 s, 3 s, ...;
//! - the ACK that ends a handshake is ignored ("if (sk_acceptq_is_full(sk)) goto exit_overflow;", `tcp_v4_syn_recv_sock`, and `listen_overflow` of
//!   `tcp_check_req` with tcp_abort_on_overflow = 0): the client is connected and may send, while the server sends its SYN-ACK again.
//!
//! Who listens sees no connection that it could not have missed: SYNs and ACKs are dropped in the same places when there is no memory for a
//! socket. What is in the queue already can be accepted. Neighbours: `syn_drop` loses the SYNs to a whole node in the network.

use bloodhound_abi::SimTime;
use bloodhound_decisions::WORD;
use bloodhound_net::{NodeId, Proto, SocketId, TcpState};
use std::net::SocketAddr;

use super::{Draw, Names, Room};
use crate::machine::Machine;
use crate::notice::{Notice, Target};

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BacklogFull {
    /// The node.
    pub node: NodeId,
    /// Which listener, modulo how many there are.
    pub which: u64,
}

/// A listener whose backlog a fault fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filled {
    node: NodeId,
    socket: SocketId,
}

impl Room for BacklogFull {
    fn draw(draw: &mut Draw<'_>) -> Option<BacklogFull> {
        Some(BacklogFull { node: draw.node()?, which: draw.choose("listener", WORD) })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        self.listener(machine).is_none().then_some("it listens on no TCP port")
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        format!("the backlog of a listener of {} is full, for {ms} ms", name(self.node))
    }

    fn begin(&self, machine: &mut Machine, entry: usize, _: SimTime) {
        let Some((local, socket)) = self.listener(machine) else { return };
        machine.note(Some(self.node), Notice::Target(Target::Listener(local)));
        let filled = Filled { node: self.node, socket };
        machine.set_backlog(entry, filled, true);
        machine.world.faults.backlogs.insert(entry, filled);
    }

    fn end(&self, machine: &mut Machine, entry: usize) -> bool {
        let filled = machine.world.faults.backlogs.remove(&entry);
        filled.is_some_and(|filled| machine.set_backlog(entry, filled, false))
    }
}

impl BacklogFull {
    /// Its address and socket.
    fn listener(&self, machine: &Machine) -> Option<(SocketAddr, SocketId)> {
        let room = machine.world.room(self.node);
        let stack = machine.world.nodes.get(&room.machine)?.net.stack(room.net);
        let listens = |s: &bloodhound_net::SocketInfo| s.proto == Proto::Tcp && s.state == TcpState::Listen;
        let mut all: Vec<(SocketAddr, SocketId)> =
            stack.sockets().into_iter().filter(listens).filter_map(|s| Some((s.local, s.id?))).collect();
        all.sort();
        let at = self.which.checked_rem(all.len() as u64)?;
        all.get(at as usize).copied()
    }
}

impl Machine {
    /// Lets the backlog of a listener count as full for an entry, or no more. False if it is not there.
    fn set_backlog(&mut self, entry: usize, filled: Filled, full: bool) -> bool {
        let room = self.world.room(filled.node);
        self.world.catch_up(room.machine);
        let stack = self.world.node_mut(room.machine).net.stack_mut(room.net);
        stack.fill_backlog(filled.socket, entry as u64, full)
    }

    /// All backlogs are as they were.
    pub(super) fn heal_backlogs(&mut self) {
        for (entry, filled) in std::mem::take(&mut self.world.faults.backlogs) {
            self.set_backlog(entry, filled, false);
        }
    }
}

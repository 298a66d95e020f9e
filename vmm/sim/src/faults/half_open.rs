//! The network forgets a connection of a node: all its packets are lost in both directions, without FIN or RST, as when a firewall or a
//! NAT has dropped its entry. Both ends go on as if it were open, until their retransmissions or keepalives give up.

use std::net::SocketAddr;

use bloodhound_abi::SimTime;
use bloodhound_decisions::WORD;
use bloodhound_net::{Hole, NodeId, Proto, TcpState};

use super::{Draw, Names, Room};
use crate::machine::Machine;
use crate::notice::{Notice, Target};

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HalfOpen {
    /// The node.
    pub node: NodeId,
    /// Which connection, modulo how many there are.
    pub which: u64,
}

impl Room for HalfOpen {
    fn draw(draw: &mut Draw<'_>) -> Option<HalfOpen> {
        Some(HalfOpen { node: draw.node()?, which: draw.choose("connection", WORD) })
    }

    fn node(&self) -> Option<NodeId> {
        Some(self.node)
    }

    fn hindered(&self, machine: &Machine) -> Option<&'static str> {
        self.connection(machine).is_none().then_some("it has no connection to another node")
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        format!("a connection of {} is forgotten by the network, for {ms} ms", name(self.node))
    }

    fn begin(&self, machine: &mut Machine, entry: usize, _: SimTime) {
        let Some((local, peer)) = self.connection(machine) else { return };
        machine.note(Some(self.node), Notice::Target(Target::Connection(local, peer)));
        machine.open_hole(entry, Hole::Connection(local, peer));
    }

    fn end(&self, machine: &mut Machine, entry: usize) -> bool {
        machine.close_hole(entry)
    }
}

impl HalfOpen {
    /// Its ends, seen from the node.
    fn connection(&self, machine: &Machine) -> Option<(SocketAddr, SocketAddr)> {
        let room = machine.world.room(self.node);
        let stack = machine.world.nodes[&room.machine].net.stack(room.net);
        let canonical = |at: SocketAddr| SocketAddr::new(at.ip().to_canonical(), at.port());
        let ends = |local, peer| (canonical(local), canonical(peer));
        let mut open: Vec<(SocketAddr, SocketAddr)> = stack
            .sockets()
            .into_iter()
            .filter(|socket| socket.proto == Proto::Tcp && socket.state == TcpState::Established)
            .map(|socket| ends(socket.local, socket.peer))
            .filter(|(_, peer)| machine.world.fabric.node_of(peer.ip()).is_some_and(|of| of != self.node))
            .collect();
        open.sort();
        let at = self.which.checked_rem(open.len() as u64)?;
        open.get(at as usize).copied()
    }
}

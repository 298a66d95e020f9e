//! What is outside of the stack: nothing. Who asks for it is told so at once, and it is remembered for the report.
//!
//! Key type: [`Outside`]. A name that no service has does not exist (the stack's name server says it); a packet to an address that no
//! node has is answered by the first router, as on a machine without a way to the internet, so that connect(2) fails instead of
//! waiting for minutes. Neighbours: `machine`, which hands over the packets; the runner's reports.

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_abi::SimTime;
use bloodhound_net::{NodeId, Packet, Proto, Unreachable};

use crate::event::Event;
use crate::machine::Machine;
use crate::queue::Due;

/// How often each service asked for what, as `name` or `address:port`.
pub type Outside = BTreeMap<(NodeId, String), u64>;

/// Most different things that are remembered.
const MOST: usize = 1000;

impl Machine {
    /// A service asked for names that do not exist.
    pub(crate) fn names_outside(&mut self, who: NodeId, names: Vec<String>) {
        names.into_iter().for_each(|name| self.asked_outside(who, name));
    }

    fn asked_outside(&mut self, who: NodeId, what: String) {
        if !self.world.services.contains_key(&who) {
            return;
        }
        let outside = Arc::make_mut(&mut self.world.outside);
        let room = outside.len() < MOST;
        match outside.get_mut(&(who, what.clone())) {
            Some(count) => *count += 1,
            None if room => {
                outside.insert((who, what), 1);
            }
            None => {}
        }
    }

    /// Answers a packet that nobody can get, as the first router does: as fast as a packet goes from node to node, and never lost. Some stay
    /// without an answer: "An ICMP error message MUST NOT be sent as the result of receiving an ICMP error message, a datagram destined
    /// to an IP broadcast or IP multicast address" (RFC 1122, section 3.2.2).
    pub(crate) fn answer_from_router(&mut self, from: NodeId, packet: &Packet, clock: SimTime) {
        let (src, dst, place) = (packet.src, packet.dst, packet.place);
        // Those to several nodes do not come here (`Fabric::is_for_many`). A message of ICMP has no protocol.
        let Some(proto) = packet.body.proto() else { return };
        self.asked_outside(
            from,
            format!(
                "{dst}/{}",
                match proto {
                    Proto::Tcp => "tcp",
                    Proto::Udp => "udp",
                    Proto::UdpLite => "udplite",
                    Proto::Icmp | Proto::Raw | Proto::Packet => "raw",
                }
            ),
        );
        let own = self.world.fabric.in_own_network(from, dst.ip());
        let kind = if own { Unreachable::Host } else { Unreachable::Net };
        let Some(body) = packet.report(kind, dst.ip()) else { return };
        let answer = Packet { src: dst, dst: src, body, place };
        self.world.packets += 1;
        let number = self.world.packets;
        self.recorder().tell(clock, None, &Event::Sent { number, packet: &answer });
        let at = clock.after(self.world.fabric.default_link().latency);
        self.world.queue.push(at, Due::Deliver(from, number, Box::new(answer)));
    }
}

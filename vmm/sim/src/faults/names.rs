//! What happens to questions to the name server of a container (`dns-fail`, `dns-delay`): the stack hands them over instead of answering
//! at once, and each has choices of its own, named by the place of the question in its stream.
//!
//! Key type: [`NameFaults`]. Neighbours: `bloodhound_net`'s name server, [`crate::machine`], which takes the questions.

use std::net::SocketAddr;

use bloodhound_abi::SimTime;
use bloodhound_decisions::{Fate, Site};
use bloodhound_faults::Kind;
use bloodhound_net::{NodeId, Packet, ServerAnswer};

use super::{Single, Trigger};
use crate::event::Event;
use crate::machine::Machine;
use crate::notice::Notice;
use crate::queue::Due;

/// How often questions fail, in parts per billion, and how late answers are at most, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameFaults {
    rate: u32,
    delay: u64,
}

/// What a fault did to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameFault {
    /// SERVFAIL.
    Refused,
    /// No answer.
    Silent,
    /// An answer that came so much later, ns.
    Late(u64),
}

impl Machine {
    /// Name servers become faulty, or good again.
    pub(super) fn set_names(&mut self, faulty: bool) {
        let profile = self.world.faults.profile.as_ref().filter(|_| faulty);
        let names = profile.and_then(|profile| {
            let (rate, delay) = (profile.get(Kind::DnsFail).rate, profile.get(Kind::DnsDelay).time.1);
            let named =
                || self.scenario.planning.schedule.iter().any(|entry| entry.kind.declaration().is_of_names());
            (rate > 0 || delay > 0 || named()).then_some(NameFaults { rate, delay })
        });
        if self.world.faults.names == names {
            return;
        }
        self.world.faults.names = names;
        let ids: Vec<_> = self.world.nodes.keys().copied().collect();
        for id in ids {
            for (_, stack) in self.world.node_mut(id).net.iter_mut() {
                stack.hold_questions(names.is_some());
            }
        }
    }

    /// Answers a question that a container's stack has handed over, or not.
    pub(crate) fn question(&mut self, owner: NodeId, question: &Packet, clock: SimTime) {
        let NameFaults { rate, delay } = self.world.faults.names.unwrap_or(NameFaults { rate: 0, delay: 0 });
        let number = self.world.faults.questions.entry(owner).or_default();
        *number += 1;
        let number = *number;
        let written = |kind| self.written_question(kind, owner, number);
        let (fails_so, delay) = (
            written(Kind::DnsFail).is_some(),
            written(Kind::DnsDelay).map_or(delay, |most| most.unwrap_or_default().max(delay)),
        );
        let room = self.world.room(owner);
        // The question comes from the loopback address, which all nodes have; its name has that of the node.
        let own = self.world.nodes[&room.machine].net.stack(room.net).addresses().first().map(|(ip, _)| *ip);
        let src = SocketAddr::new(own.unwrap_or(question.src.ip()), question.src.port());
        let site = |fate| Site::packet(src, question.dst, question.kind(), question.place, fate);
        let decisions = &mut self.world.decisions;
        let fails = decisions.chance(site(Fate::NameFail), rate) || fails_so;
        let silent = fails && decisions.choose(site(Fate::NameFailAs), 2) == 1;
        let late = if fails { 0 } else { decisions.between(site(Fate::NameDelay), 0, delay) };
        let fault = match (fails, silent) {
            (true, true) => Some(NameFault::Silent),
            (true, false) => Some(NameFault::Refused),
            (false, _) => (late > 0).then_some(NameFault::Late(late)),
        };
        if let Some(fault) = fault {
            let kind = if late > 0 { Kind::DnsDelay } else { Kind::DnsFail };
            self.world.faults.questioned.push(Single { kind, node: owner, volume: None, nth: number });
            self.tell_name_fault(owner, fault, clock);
        }
        if silent {
            return;
        }
        let answer = if fails { ServerAnswer::Failure } else { ServerAnswer::Known };
        let stack = self.world.node_mut(room.machine).net.stack_mut(room.net);
        let Some(packet) = stack.answer_to(question, answer) else { return };
        if late > 0 {
            self.world.queue.push(clock.after(late), Due::Answer(owner, Box::new(packet)));
        } else {
            self.hear(owner, packet);
        }
    }

    /// Whether the schedule says something about a question, and how late its answer may be.
    fn written_question(&self, kind: Kind, owner: NodeId, number: u64) -> Option<Option<u64>> {
        let schedule = self.scenario.planning.schedule.iter();
        let mut about = schedule.filter(|entry| {
            entry.kind == kind && entry.trigger == Trigger::Nth(number) && entry.nodes.contains(&owner)
        });
        about.next().map(|entry| entry.most)
    }

    /// Answers that come late are told and are in the digest; the timeline has those that failed.
    fn tell_name_fault(&mut self, owner: NodeId, fault: NameFault, clock: SimTime) {
        let late = matches!(fault, NameFault::Late(_));
        *self.world.faults.hits.entry(if late { Kind::DnsDelay } else { Kind::DnsFail }).or_default() += 1;
        let notice = Notice::Name(fault);
        if late {
            self.recorder().tell(clock, Some(owner), &Event::Notice(&notice));
        } else {
            self.note(Some(owner), notice);
        }
    }

    /// The answer of a name server comes.
    pub(crate) fn hear(&mut self, owner: NodeId, answer: Packet) {
        let room = self.world.room(owner);
        self.world.catch_up(room.machine);
        let node = self.world.node_mut(room.machine);
        let now = node.clock;
        node.net.stack_mut(room.net).hear(answer, now);
    }
}

//! Leaving out operations of a run in which packets are lost or late.
//!
//! A packet's name is its place in its connection ([`Place`](bloodhound_decisions::Place)). An operation that is left out takes its bytes out of the connections between
//! nodes, so that what later packets of these meet is met by other ones, at other times. Here each candidate is run twice: without anything that packets
//! meet, to see which packets there are, and then with each mishap at the packet that is sent next to the time of the one that met it. What fails is the
//! run that is made smaller from then on. Key type: [`Met`]. Neighbours: `search`, which leaves out without that; `luck`, which draws anew.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use bloodhound_decisions::{Choice, Concern, Fate, Log, Made, Override, PacketKind, Part, Place, Site};

use super::case::{self, Element};
use super::luck::FEW_OPERATIONS;
use super::search::{Dimension, ROUND, Search};
use crate::session::Failure;

/// Most runs that are spent so.
const MOST: u32 = 160;

/// A packet, by what its choices have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    src: SocketAddr,
    dst: SocketAddr,
    kind: PacketKind,
    place: Place,
}

impl Name {
    /// The packet that a choice is about, and what of it is chosen.
    fn of(site: &Site) -> Option<(Name, Fate)> {
        let Site::Packet { src, dst, kind, life, port_use, offset, ack, transmission, fate } = *site else {
            return None;
        };
        let place = Place { life, port_use, offset, ack, transmission };
        Some((Name { src, dst, kind, place }, fate))
    }

    fn choice(self, fate: Fate) -> Choice {
        Choice { part: Part::Run, site: Site::packet(self.src, self.dst, self.kind, self.place, fate) }
    }

    /// The packet as it was sent first, or again so often.
    fn sent_again(self, transmission: u32) -> Name {
        Name { place: Place { transmission, ..self.place }, ..self }
    }

    /// How far a packet is from another one of the same kind between the same nodes: 0 on the same connection, 1 on one of which one port is the same. `None` for all others.
    fn distance(self, of: Name) -> Option<u8> {
        let same_nodes = (self.src.ip(), self.dst.ip(), self.kind) == (of.src.ip(), of.dst.ip(), of.kind);
        let ends = u8::from(self.src.port() == of.src.port()) + u8::from(self.dst.port() == of.dst.port());
        (same_nodes && ends > 0).then_some(2 - ends)
    }
}

/// What happened to one packet: not how long it took, if it was neither late nor overtaken.
struct Mishap {
    /// When the packet was sent, in ns.
    at: u64,
    packet: Name,
    choices: Vec<(Fate, Override)>,
}

/// The mishaps of a run, in the order of their times.
struct Met(Vec<Mishap>);

/// The choices about packets, of all that a run made.
fn packets(made: &[Made]) -> impl Iterator<Item = (&Made, Name, Fate)> {
    let of_run = made.iter().filter(|made| made.choice.part == Part::Run);
    of_run.filter_map(|made| Name::of(&made.choice.site).map(|(name, fate)| (made, name, fate)))
}

impl Met {
    fn by(made: &[Made]) -> Met {
        let mut met: Vec<Mishap> = Vec::new();
        for (made, packet, fate) in packets(made) {
            if made.plain || fate == Fate::Jitter {
                continue;
            }
            let choice = (fate, Override { bound: made.bound, value: made.value });
            match met.last_mut().filter(|last| last.packet == packet) {
                Some(last) => last.choices.push(choice),
                None => met.push(Mishap { at: made.at, packet, choices: vec![choice] }),
            }
        }
        Met(met)
    }

    /// The log with all mishaps at packets of another run, each at the one whose time is next to that of its own. Those without such a packet are left out.
    fn moved_to(&self, mut log: Log, made: &[Made]) -> Log {
        // A packet may meet only what is asked of it: not after the faults, for example.
        let mut sent: BTreeMap<(Fate, Name), u64> = BTreeMap::new();
        for (made, name, fate) in packets(made) {
            sent.entry((fate, name)).or_insert(made.at);
        }
        let (mut taken, mut moved) = (BTreeSet::new(), BTreeMap::<Name, Name>::new());
        for Mishap { at, packet, choices } in &self.0 {
            // What is sent again is sent only because of what became of it when it was sent first.
            let transmission = packet.place.transmission;
            let first = moved.get(&packet.sent_again(0)).filter(|_| transmission > 0);
            let again = first.map(|to| to.sent_again(transmission));
            let nearest = || {
                let (first, _) = choices.first()?;
                let asked = sent.iter().filter(|((fate, other), _)| fate == first && !taken.contains(other));
                let near = asked.filter_map(|((_, other), time)| {
                    Some((time.abs_diff(*at), other.distance(*packet)?, *other))
                });
                near.min().map(|(.., other)| other)
            };
            let Some(to) = again.or_else(nearest) else { continue };
            taken.insert(to);
            moved.entry(packet.sent_again(0)).or_insert(to);
            log.overrides.extend(choices.iter().map(|(fate, value)| (to.choice(*fate), *value)));
        }
        log
    }
}

/// The log with no word about packets, all of whose choices are plain.
fn without_mishaps(mut log: Log) -> Log {
    if !log.plain.contains(&Concern::Network) {
        log.plain.push(Concern::Network);
    }
    log.overrides.retain(|choice, _| choice.part != Part::Run || Name::of(&choice.site).is_none());
    log
}

impl Search<'_> {
    /// Leaves out halves, quarters and so on of the operations, with what packets met moved to where it was in time, where more are left than a reader would like.
    pub(super) fn moved_operations(&mut self) -> Result<(), Failure> {
        let (begun, most) = (self.runs, MOST.min(self.left() / 2));
        let mut size = case::operations_out(&self.ran).len() / 2;
        while size > 0 && !Met::by(&self.ran.made).0.is_empty() {
            let elements = case::operations_out(&self.ran);
            if elements.len() <= FEW_OPERATIONS || self.runs - begun >= most {
                break;
            }
            match self.part_with_mishaps_moved(&elements, size, begun + most)? {
                true => size = size.min(case::operations_out(&self.ran).len() / 2),
                false => size /= 2,
            }
        }
        let after = case::operations_out(&self.ran).len();
        if self.runs > begun {
            self.say(Dimension { name: "operations", before: after, after, minimal: false });
        }
        Ok(())
    }

    /// Leaves out one part of so many operations, if it fails then, or does with mishaps moved. Ends when so many runs are made.
    fn part_with_mishaps_moved(
        &mut self,
        elements: &[Element],
        size: usize,
        until: u32,
    ) -> Result<bool, Failure> {
        let met = Met::by(&self.ran.made);
        let base = without_mishaps((*self.ran.outcome.decisions).clone());
        let parts: Vec<usize> = (0..elements.len().div_ceil(size)).collect();
        for round in parts.chunks(ROUND) {
            let left = until.saturating_sub(self.runs).min(self.left());
            if left < 2 * ROUND as u32 {
                break;
            }
            let less = |part: &usize| {
                let kept: Vec<usize> = (0..elements.len()).filter(|at| at / size != *part).collect();
                case::without(&base, elements, &kept)
            };
            let logs: Vec<Log> = round.iter().map(less).collect();
            let rans = self.round(&logs)?;
            self.runs += rans.len() as u32;
            let plain = rans.iter().position(|ran| self.target.violated(&ran.outcome).is_some());
            let moved = logs.iter().zip(&rans).map(|(log, ran)| met.moved_to(log.clone(), &ran.made));
            let found = match plain.and_then(|place| logs.get(place)) {
                Some(log) => Some(log.clone()),
                None => self.first_of(moved.collect())?,
            };
            if let Some(found) = found {
                return self.look_for_fewer(found, elements.len());
            }
        }
        Ok(false)
    }

    /// Looks at the run of a log, if it fails with fewer operations: without what packets met clients may do more in the same time.
    fn look_for_fewer(&mut self, log: Log, than: usize) -> Result<bool, Failure> {
        let before = self.ran.clone();
        let fewer = self.look(log)? && case::operations_out(&self.ran).len() < than;
        if !fewer {
            self.ran = before;
        }
        Ok(fewer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(port: u16, offset: u32, transmission: u32) -> Name {
        let (src, dst) = (SocketAddr::from(([10, 0, 0, 1], port)), SocketAddr::from(([10, 0, 0, 2], 80)));
        Name { src, dst, kind: PacketKind::Data, place: Place { offset, transmission, ..Place::default() } }
    }

    #[test]
    fn connections_are_near_if_one_end_is_the_same() {
        assert_eq!(name(9, 1, 0).distance(name(9, 5, 2)), Some(0));
        assert_eq!(name(9, 1, 0).distance(name(8, 1, 0)), Some(1));
        let ack = Name { kind: PacketKind::Ack, ..name(9, 1, 0) };
        assert_eq!(ack.distance(name(9, 1, 0)), None);
        let back = Name { src: name(9, 1, 0).dst, dst: name(9, 1, 0).src, ..name(9, 1, 0) };
        assert_eq!(back.distance(name(9, 1, 0)), None);
    }

    fn made(packet: Name, fate: Fate, value: u64, at: u64) -> Made {
        Made { choice: packet.choice(fate), bound: 9, value, plain: value == 0, at }
    }

    #[test]
    fn a_mishap_is_moved_to_the_packet_of_its_time() {
        let failing = [
            made(name(9, 60, 0), Fate::Loss, 0, 20),
            made(name(9, 60, 0), Fate::Jitter, 3, 20),
            made(name(9, 100, 0), Fate::Delay, 8, 50),
            made(name(9, 100, 0), Fate::DelayBy, 2, 50),
            made(name(9, 130, 0), Fate::Loss, 8, 60),
            made(name(9, 130, 1), Fate::Loss, 8, 300),
        ];
        let met = Met::by(&failing);
        assert_eq!(met.0.len(), 3, "it met a delay and two losses");
        // Without an operation its bytes are missing, and the rest is sent at about the same times.
        let without = [(20, 48), (60, 61), (90, 70)]
            .map(|(offset, at)| [Fate::Loss, Fate::Delay].map(|fate| made(name(9, offset, 0), fate, 0, at)));
        let without = without.concat();
        let log = met.moved_to(Log::new(0, 1), &without);
        let expected = [
            (name(9, 20, 0), Fate::Delay, 8),
            (name(9, 20, 0), Fate::DelayBy, 2),
            (name(9, 60, 0), Fate::Loss, 8),
            (name(9, 60, 1), Fate::Loss, 8),
        ];
        let expected =
            expected.map(|(packet, fate, value)| (packet.choice(fate), Override { bound: 9, value }));
        assert_eq!(log.overrides, BTreeMap::from(expected));
    }

    #[test]
    fn a_log_without_mishaps_keeps_what_is_not_about_packets() {
        let lost = name(9, 1, 0).choice(Fate::Loss);
        let other = Choice { part: Part::Run, site: Site::Arrival { worker: 0, nth: 0 } };
        let log = without_mishaps(Log::new(0, 1).with(lost, 9, 4).with(other, 9, 5));
        assert_eq!(log.plain, [Concern::Network]);
        assert_eq!(log.overrides.keys().collect::<Vec<_>>(), [&other]);
    }
}

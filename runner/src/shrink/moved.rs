//! Leaving out operations of a run in which packets are lost or late, or single calls of programs fail.
//!
//! A packet's name is its place in its connection ([`Place`](bloodhound_decisions::Place)), that of a call its number among the calls of its task that might have met the
//! same fault. An operation that is left out takes its bytes out of the connections between nodes, and its calls out of the programs, so that what later packets and calls meet is
//! met by other ones, at other times. Here each candidate is run twice: without anything that packets and calls
//! meet, to see which of them there are, and then with each mishap at the one that comes next to the time of the one that met it. What fails is the
//! run that is made smaller from then on. Key type: [`Met`]. Neighbours: `search`, which leaves out without that; `plain`, which leaves out what calls meet; `luck`, which draws anew.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use bloodhound_abi::time::MILLIS;
use bloodhound_decisions::{
    Choice, Concern, Fate, Lineage, Log, Made, Override, PacketKind, Part, Place, Site, Word,
};

use super::case;
use super::luck::FEW_OPERATIONS;
use super::search::{Dimension, ROUND, Search};
use crate::session::Failure;

/// Most runs that are spent so.
const MOST: u32 = 160;
/// What is tried with all operations but those that the violation is about, and with parts of the operations.
const OF_VIOLATION: [Reach; 3] = [Reach::Next, Reach::Around(5 * MILLIS), Reach::Around(50 * MILLIS)];
const OF_PARTS: [Reach; 1] = [Reach::Next];
/// Of more packets that took long, none is moved: each is looked for among all packets.
const FEW_LATE: usize = 100;
/// The concerns of what calls meet.
const OF_CALLS: [Concern; 2] = [Concern::Faults, Concern::Disk];

/// What may meet something, by what its choices have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Name {
    Packet(Packet),
    Call(Call),
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Packet {
    src: SocketAddr,
    dst: SocketAddr,
    kind: PacketKind,
    place: Place,
}

/// A call of a program, as far as one kind of fault is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Call {
    node: u32,
    life: u32,
    task: Lineage,
    kind: Word,
    nth: u64,
    /// The fault is one of a disk.
    of_disk: bool,
}

/// What of it is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Fate(Fate),
    Part(Word),
}

impl Packet {
    /// The packet as it was sent first, or again so often.
    fn sent_again(self, transmission: u32) -> Packet {
        Packet { place: Place { transmission, ..self.place }, ..self }
    }
}

impl Name {
    /// What a choice is about, and what of it is chosen.
    fn of(site: &Site) -> Option<(Name, What)> {
        match *site {
            Site::Packet { src, dst, kind, life, port_use, offset, ack, transmission, fate } => {
                let place = Place { life, port_use, offset, ack, transmission };
                Some((Name::Packet(Packet { src, dst, kind, place }), What::Fate(fate)))
            }
            Site::DiskCall { node, life, task, kind, nth, part } => {
                Some((Name::Call(Call { node, life, task, kind, nth, of_disk: true }), What::Part(part)))
            }
            Site::Call { node, life, task, kind, nth, part } => {
                Some((Name::Call(Call { node, life, task, kind, nth, of_disk: false }), What::Part(part)))
            }
            _ => None,
        }
    }

    /// The choice of it, if it has such a one.
    fn choice(self, what: What) -> Option<Choice> {
        let site = match (self, what) {
            (Name::Packet(Packet { src, dst, kind, place }), What::Fate(fate)) => {
                Site::packet(src, dst, kind, place, fate)
            }
            (Name::Call(Call { node, life, task, kind, nth, of_disk: true }), What::Part(part)) => {
                Site::DiskCall { node, life, task, kind, nth, part }
            }
            (Name::Call(Call { node, life, task, kind, nth, of_disk: false }), What::Part(part)) => {
                Site::Call { node, life, task, kind, nth, part }
            }
            _ => return None,
        };
        Some(Choice { part: Part::Run, site })
    }

    /// How far it is from another one which may meet the same. Packets of the same kind between the same nodes: 0 on the same connection, 1 on one of which one port is the same.
    /// Calls on the same node: 0 of the same task, 1 of another one. `None` for all others.
    fn distance(self, of: Name) -> Option<u8> {
        match (self, of) {
            (Name::Packet(one), Name::Packet(other)) => {
                let same_nodes =
                    (one.src.ip(), one.dst.ip(), one.kind) == (other.src.ip(), other.dst.ip(), other.kind);
                let ends = u8::from(one.src.port() == other.src.port())
                    + u8::from(one.dst.port() == other.dst.port());
                (same_nodes && ends > 0).then_some(2 - ends)
            }
            (Name::Call(one), Name::Call(other)) => {
                let same_kind = (one.node, one.kind, one.of_disk) == (other.node, other.kind, other.of_disk);
                same_kind.then(|| u8::from((one.life, one.task) != (other.life, other.task)))
            }
            _ => None,
        }
    }
}

/// What happened to one packet or call.
struct Mishap {
    /// When the packet was sent or the call was made, in ns.
    at: u64,
    name: Name,
    choices: Vec<(What, Override)>,
}

/// Where a mishap is moved to, of packets between the same nodes and calls on the same node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reach {
    /// The one that comes next to its time.
    Next,
    /// All that come at most so long before or behind it, in ns: which one matters is not known, and most of them are left out again afterwards.
    Around(u64),
}

/// The mishaps of a run, in the order of their times.
struct Met(Vec<Mishap>);

/// The choices about packets and calls, of all that a run made.
fn named(made: &[Made]) -> impl Iterator<Item = (&Made, Name, What)> {
    let of_run = made.iter().filter(|made| made.choice.part == Part::Run);
    of_run.filter_map(|made| Name::of(&made.choice.site).map(|(name, what)| (made, name, what)))
}

/// Whether a call met something.
fn calls_met(made: &[Made]) -> bool {
    named(made).any(|(made, name, _)| !made.plain && matches!(name, Name::Call(_)))
}

impl Met {
    /// The mishaps of a run of this log: of calls if all that calls meet is named by it. How long packets took counts as well where that is named, of a few.
    fn by(log: &Log, made: &[Made]) -> Met {
        let calls = are_named(log, &OF_CALLS);
        let took_long =
            |(made, _, what): &(&Made, Name, What)| !made.plain && *what == What::Fate(Fate::Jitter);
        let jitter = are_named(log, &[Concern::Network]) && named(made).filter(took_long).count() <= FEW_LATE;
        let mut met: Vec<Mishap> = Vec::new();
        for (made, name, what) in named(made) {
            let wanted = match what {
                What::Fate(Fate::Jitter) => jitter,
                What::Fate(_) => true,
                What::Part(_) => calls,
            };
            if made.plain || !wanted {
                continue;
            }
            let choice = (what, Override { bound: made.bound, value: made.value });
            match met.last_mut().filter(|last| last.name == name) {
                Some(last) => last.choices.push(choice),
                None => met.push(Mishap { at: made.at, name, choices: vec![choice] }),
            }
        }
        Met(met)
    }

    /// The log with all mishaps at packets and calls of another run, at those that a reach names. Mishaps without such a one are left out.
    fn moved_to(&self, mut log: Log, made: &[Made], reach: Reach) -> Log {
        // A packet may meet only what is asked of it: not after the faults, for example.
        let mut asked: BTreeMap<(What, Name), u64> = BTreeMap::new();
        for (made, name, what) in named(made) {
            asked.entry((what, name)).or_insert(made.at);
        }
        let (mut taken, mut moved) = (BTreeSet::new(), BTreeMap::<Packet, BTreeSet<Packet>>::new());
        for Mishap { at, name, choices } in &self.0 {
            let Some((first, _)) = choices.first() else { continue };
            let free = asked.iter().filter(|((what, other), _)| what == first && !taken.contains(other));
            let near = free
                .filter_map(|((_, other), time)| Some((time.abs_diff(*at), other.distance(*name)?, *other)));
            // What is sent again is sent only because of what became of it when it was sent first.
            let again = match name {
                Name::Packet(packet) if packet.place.transmission > 0 => {
                    moved.get(&packet.sent_again(0)).map(|to| (packet.place.transmission, to))
                }
                _ => None,
            };
            let places: Vec<Name> = match (again, reach) {
                (Some((transmission, to)), _) => {
                    to.iter().map(|to| Name::Packet(to.sent_again(transmission))).collect()
                }
                (None, Reach::Next) => near.min().map(|(.., other)| other).into_iter().collect(),
                (None, Reach::Around(ns)) => {
                    near.filter(|(far, ..)| *far <= ns).map(|(.., other)| other).collect()
                }
            };
            for to in places {
                taken.insert(to);
                if let (Name::Packet(packet), Name::Packet(to)) = (name, to) {
                    moved.entry(packet.sent_again(0)).or_default().insert(to.sent_again(0));
                }
                let choices = choices.iter().filter_map(|(what, value)| Some((to.choice(*what)?, *value)));
                log.overrides.extend(choices);
            }
        }
        log
    }
}

/// The log with no word about packets, all of whose choices are plain, and none about what calls meet where these are plain.
fn without_mishaps(mut log: Log) -> Log {
    if !log.plain.contains(&Concern::Network) {
        log.plain.push(Concern::Network);
    }
    let calls = are_named(&log, &OF_CALLS);
    log.overrides.retain(|choice, _| match Name::of(&choice.site) {
        Some((Name::Call(_), _)) if !calls => true,
        Some(_) => choice.part != Part::Run,
        None => true,
    });
    log
}

/// Whether of all choices about these concerns only those are not plain that the log names.
fn are_named(log: &Log, concerns: &[Concern]) -> bool {
    concerns.iter().all(|concern| log.plain.contains(concern))
}

impl Search<'_> {
    /// Leaves out all operations but those that the violation is about, and then halves, quarters and so on of those that are left, with what packets and calls met moved to
    /// where it was in time, where more are left than a reader would like.
    pub(super) fn moved_operations(&mut self) -> Result<(), Failure> {
        let many = case::operations_out(&self.ran).len() > FEW_OPERATIONS;
        if many && calls_met(&self.ran.made) {
            // Of what calls meet only that which matters is moved.
            self.hits(self.part(4))?;
        }
        let (begun, most) = (self.runs, MOST.min(self.part(2)));
        let mut concerned = Some(self.of_violation());
        let mut size = case::operations_out(&self.ran).len() / 2;
        while size > 0 && !self.met().0.is_empty() {
            let count = case::operations_out(&self.ran).len();
            if count <= FEW_OPERATIONS || self.runs - begun >= most {
                break;
            }
            let of_violation = concerned.take();
            let is_first = of_violation.is_some();
            let part = |part| (0..count).filter(|at| at / size != part).collect();
            let kept = of_violation.unwrap_or_else(|| (0..count.div_ceil(size)).map(part).collect());
            let reaches = if is_first { &OF_VIOLATION[..] } else { &OF_PARTS };
            match self.with_mishaps_moved(&kept, reaches, begun + most)? {
                true => size = size.min(case::operations_out(&self.ran).len() / 2),
                false if is_first => {}
                false => size /= 2,
            }
        }
        let after = case::operations_out(&self.ran).len();
        if self.runs > begun {
            self.say(Dimension { name: "operations", before: after, after, minimal: false });
        }
        Ok(())
    }

    /// What packets and calls met in the run, as far as it can be moved.
    fn met(&self) -> Met {
        Met::by(&self.ran.outcome.decisions, &self.ran.made)
    }

    /// Leaves out all operations but some, the first of these sets with which it fails, or does with mishaps moved. Ends when so many runs are made.
    fn with_mishaps_moved(
        &mut self,
        sets: &[Vec<usize>],
        reaches: &[Reach],
        until: u32,
    ) -> Result<bool, Failure> {
        let met = self.met();
        let base = without_mishaps((*self.ran.outcome.decisions).clone());
        let elements = case::operations_out(&self.ran);
        for round in sets.chunks(ROUND) {
            let left = until.saturating_sub(self.runs).min(self.left());
            if left < 2 * ROUND as u32 {
                break;
            }
            let logs: Vec<Log> = round.iter().map(|kept| case::without(&base, &elements, kept)).collect();
            let rans = self.round(&logs)?;
            self.runs += rans.len() as u32;
            let plain = rans.iter().position(|ran| self.target.violated(&ran.outcome).is_some());
            let moved = reaches.iter().flat_map(|reach| {
                logs.iter().zip(&rans).map(|(log, ran)| met.moved_to(log.clone(), &ran.made, *reach))
            });
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
mod tests;

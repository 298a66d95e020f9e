//! The plan: which faults begin when. It is drawn as a list before they begin, so that its cost grows with the faults and not with the
//! time, and so that each entry can be taken out or changed without another one moving.
//!
//! Each kind has, for each of its targets, a chain of entries: from one to the next are as many time steps as independent trials of
//! the kind's rate take until one succeeds (a geometric distribution). All choices of an entry are named by kind, target and
//! number in the chain; so another rate of one kind leaves the others where they were. `begins` = 0 takes an entry out. Where limits
//! are to be kept (`limits`), they filter the list that [`draw`] returns, which then still has the entries that are taken out: so to take one
//! out lets no other in.

use std::collections::BTreeMap;

use bloodhound_abi::SimTime;
use bloodhound_decisions::{ANEW, CHAIN, Decisions, Site, WORD, Word, drawn_by_epoch};
use bloodhound_faults::{Begins, Declaration, FaultSpec, Group, Kind, Setting, Shape};
use bloodhound_net::NodeId;

use super::planning::{Disks, Grouped, NamedVolume};
use super::{Fault, Names};
use crate::scenario::Scenario;

/// The part of an entry by which it is known how long after the one before it begins.
pub(super) const GAP: &str = "gap";
/// The part of an entry by which a log gives it another time: so many ns after the beginning of the phase. The entries behind it in its chain stay where they are.
pub const BEGINS_AT: &str = "at";
/// One, in parts per billion.
const WHOLE: u64 = 1_000_000_000;

/// The name of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FaultId {
    /// The kind.
    pub kind: Kind,
    /// The node for kinds that hit each node at times of its own; the number of the group for those that hit groups; 0 for those of the
    /// network.
    pub target: u32,
    /// The number in the chain of this kind and target; of an entry that an epoch has drawn, with the epoch in it ([`Epoch::numbered`]); for an entry that is
    /// written, [`WRITTEN`] and its place in the schedule.
    pub nth: u64,
}

/// Entries that are written have numbers from here on: no chain of drawn ones gets so far.
pub const WRITTEN: u64 = 1 << 63;

/// By what a plan is drawn: nothing but the seed of the run when faults begin, or an epoch of its log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epoch(Option<u64>);

impl Epoch {
    /// The epoch of a log that begins at this virtual time, ns.
    pub fn at(from: u64) -> Epoch {
        Epoch(Some(from))
    }

    /// The number that the so manieth thing has which is drawn by it, wherever epochs are taken out ([`drawn_by_epoch`]).
    pub fn numbered(self, nth: u64) -> u64 {
        self.0.map_or(nth, |from| drawn_by_epoch(from, nth))
    }

    /// Whether a number is that of something which an epoch of the log has drawn, and this is the one.
    pub(super) fn has(self, nth: u64) -> bool {
        is_drawn_anew(nth) && nth >> CHAIN == self.numbered(0) >> CHAIN
    }
}

/// Whether a number is that of something which an epoch of the log has drawn.
pub(super) fn is_drawn_anew(nth: u64) -> bool {
    (ANEW..WRITTEN).contains(&nth)
}

impl FaultId {
    /// The name of the entry at a place of the schedule.
    pub fn written(kind: Kind, target: u32, place: usize) -> FaultId {
        FaultId { kind, target, nth: WRITTEN | place as u64 }
    }

    /// Whether it is written, and not drawn.
    pub fn is_written(self) -> bool {
        self.nth >= WRITTEN
    }

    /// Whether an epoch of the log has drawn it.
    pub fn is_drawn_anew(self) -> bool {
        is_drawn_anew(self.nth)
    }

    /// Whether it is one of those that the epoch of the log has drawn which begins at a virtual time, ns.
    pub fn is_of_epoch(self, from: u64) -> bool {
        Epoch::at(from).has(self.nth)
    }

    /// Its place in the schedule, if it is written.
    pub fn place(self) -> Option<usize> {
        self.is_written().then(|| usize::try_from(self.nth - WRITTEN).unwrap_or(usize::MAX))
    }

    /// That it is over, in words, with the names of nodes.
    pub fn over(self, name: Names<'_>) -> String {
        match self.target {
            0 => format!("{} healed", self.kind),
            _ if self.kind.declaration().has_group() => format!("{} healed", self.kind),
            node => format!("{} of {} is over", self.kind, name(NodeId(node))),
        }
    }

    /// The name of a choice for the entry.
    pub fn site(self, part: &str) -> Site {
        let kind = Word::new(self.kind.name());
        Site::Fault { kind, target: self.target, nth: self.nth, part: Word::new(part) }
    }
}

/// An entry of the plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Its name.
    pub id: FaultId,
    /// When it begins.
    pub begin: SimTime,
    /// How long it lasts, ns; 0 if it is over at once.
    pub duration: u64,
    /// What is done.
    pub fault: Fault,
}

impl Planned {
    /// In words, with the names of nodes.
    pub fn describe(&self, name: Names<'_>) -> String {
        self.fault.describe(name, self.duration / 1_000_000)
    }
}

/// When faults may begin.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Phases {
    pub(super) begin: SimTime,
    /// None begins at this time or later.
    pub(super) end: SimTime,
    /// The same as it is configured; a log may let the phase end sooner.
    pub(super) configured_end: SimTime,
    /// Faults begin at whole time steps behind the beginning, ns.
    pub(super) step: u64,
    /// By what they are drawn.
    pub(super) epoch: Epoch,
    /// So many time steps are over when they are drawn.
    pub(super) over: u64,
}

impl Phases {
    /// Those of a run whose services were ready at a time.
    pub(super) fn of(scenario: &Scenario, ready: SimTime) -> Phases {
        let begin = ready.after(scenario.fault_start);
        let (end, step) = (begin.after(scenario.fault_time), scenario.time_step);
        Phases { begin, end, configured_end: end, step, ..Phases::default() }
    }

    /// The same for what an epoch draws that begins now.
    pub(super) fn anew(self, epoch: Epoch, now: SimTime) -> Phases {
        Phases { epoch, over: now.since(self.begin) / self.step.max(1), ..self }
    }

    /// The time so many ns after the beginning, or, where an epoch draws, the first time step behind the epoch if that is later.
    fn moved(self, after: u64) -> SimTime {
        let first = match self.epoch == Epoch::default() {
            true => 0,
            false => self.step.saturating_mul(self.over.saturating_add(1)),
        };
        self.begin.after(after.max(first))
    }
}

/// Draws the parameters of one entry.
pub(super) struct Draw<'a> {
    pub(super) id: FaultId,
    pub(super) setting: &'a Setting,
    /// The services that faults may hit; for kinds of the network, those that have a network stack of their own.
    pub(super) targets: &'a [NodeId],
    /// The group that it is about, for kinds that hit groups.
    pub(super) group: Option<&'a Grouped>,
    /// Which of these places the disk is that it is about: all of a machine's (`None`), or volumes alone.
    pub(super) disks: &'a [Option<NamedVolume>],
    pub(super) decisions: &'a mut Decisions,
}

impl Draw<'_> {
    /// The node of a kind that hits each node at times of its own.
    pub(super) fn node(&self) -> Option<NodeId> {
        (self.id.target > 0).then_some(NodeId(self.id.target))
    }

    /// The disk of a kind that hits disks: a volume alone, or all of a machine's (`None`).
    pub(super) fn disk(&mut self) -> Option<NamedVolume> {
        let count = self.disks.len() as u64;
        let place = if count > 1 { self.choose("disk", count) } else { 0 };
        self.disks.get(place as usize).cloned().flatten()
    }

    /// A number below `bound`.
    pub(super) fn choose(&mut self, part: &str, bound: u64) -> u64 {
        self.decisions.choose(self.id.site(part), bound)
    }

    /// One of the shapes that the configuration allows.
    pub(super) fn shape(&mut self) -> Option<Shape> {
        let count = self.setting.shapes.len() as u64;
        let place = (count > 0).then(|| self.choose("shape", count))?;
        self.setting.shapes.get(place as usize).copied()
    }

    /// An amount that the configuration allows.
    pub(super) fn size(&mut self) -> u64 {
        let (low, high) = self.setting.size;
        self.decisions.between(self.id.site("size"), low, high)
    }

    /// The number that the configuration has for the kind.
    pub(super) fn number(&self) -> u64 {
        self.setting.number
    }

    /// The longest time that the configuration allows, ns.
    pub(super) fn longest(&self) -> u64 {
        self.setting.time.1
    }

    /// An amount in one direction or, by a choice of its own, in the other.
    pub(super) fn signed(&mut self, size: u64, other: &str) -> i64 {
        let size = i64::try_from(size).unwrap_or(i64::MAX);
        if self.choose(other, 2) == 1 { -size } else { size }
    }

    /// An amount that the configuration allows, in one direction or the other.
    pub(super) fn signed_size(&mut self, part: &str, other: &str) -> i64 {
        let (low, high) = self.setting.size;
        let size = self.decisions.between(self.id.site(part), low, high);
        self.signed(size, other)
    }

    pub(super) fn duration(&mut self) -> u64 {
        let (low, high) = self.setting.time;
        self.decisions.between(self.id.site("duration"), low, high)
    }
}

/// Whom faults may hit.
#[derive(Clone, Copy)]
pub(super) struct Aim<'a> {
    /// The services.
    pub(super) targets: &'a [NodeId],
    /// Those of them with a network stack of their own.
    pub(super) stacks: &'a [NodeId],
    /// The first one of each machine.
    pub(super) machines: &'a [NodeId],
    /// The only ones that a kind may hit.
    pub(super) only: &'a BTreeMap<Kind, Vec<NodeId>>,
    /// The groups of services.
    pub(super) groups: &'a [Grouped],
    /// The only groups that a kind may hit, by their numbers.
    pub(super) only_groups: &'a BTreeMap<Kind, Vec<u32>>,
    /// Which disks a kind may hit by a service, where that is not the one of its machine.
    pub(super) disks: &'a Disks,
}

impl<'a> Aim<'a> {
    /// Services of which each has a machine and a stack of its own, which all kinds may hit.
    #[cfg(test)]
    pub(super) fn plain(nodes: &'a [NodeId]) -> Aim<'a> {
        static ONLY: BTreeMap<Kind, Vec<NodeId>> = BTreeMap::new();
        static ONLY_GROUPS: BTreeMap<Kind, Vec<u32>> = BTreeMap::new();
        static DISKS: Disks = Disks::new();
        let (targets, stacks, machines) = (nodes, nodes, nodes);
        Aim { targets, stacks, machines, only: &ONLY, groups: &[], only_groups: &ONLY_GROUPS, disks: &DISKS }
    }

    /// Those of a list that a kind may hit.
    fn of(&self, kind: Kind, list: &[NodeId]) -> Vec<NodeId> {
        let only = self.only.get(&kind);
        list.iter().filter(|node| only.is_none_or(|only| only.contains(node))).copied().collect()
    }

    /// What a kind has a chain of entries for: nodes, machines by their first node, groups by their numbers, or the whole network (0).
    pub(super) fn chains(&self, declaration: &Declaration) -> Vec<u32> {
        let kind = declaration.kind;
        let numbers = |list| self.of(kind, list).into_iter().map(|node| node.0).collect();
        match declaration.begins {
            Begins::Link | Begins::Asked => Vec::new(),
            Begins::ByNetwork => vec![0],
            // What happens to packets happens to those who have a network stack of their own.
            Begins::ByNode if declaration.group == Group::Network => numbers(self.stacks),
            Begins::ByNode | Begins::Standing => numbers(self.targets),
            Begins::ByMachine => numbers(self.machines),
            Begins::ByGroup => self.groups_of(kind).map(|group| group.number).collect(),
        }
    }

    /// The groups that a kind may hit.
    fn groups_of(&self, kind: Kind) -> impl Iterator<Item = &Grouped> {
        let only = self.only_groups.get(&kind);
        self.groups.iter().filter(move |group| only.is_none_or(|only| only.contains(&group.number)))
    }
}

/// An entry as it was drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Drawn {
    pub(super) entry: Planned,
    /// The log of the run takes it out.
    pub(super) out: bool,
    /// The log lets it begin then.
    pub(super) at: Option<SimTime>,
}

impl Drawn {
    /// One of which the log says nothing.
    pub(super) fn kept(entry: Planned) -> Drawn {
        Drawn { entry, out: false, at: None }
    }
}

/// Gives entries the times that the log says. One for which there is no room then is taken out; the others are those that the seed drew, wherever it is.
pub(super) fn moved(
    mut drawn: Vec<Drawn>,
    phases: Phases,
    has_room: impl Fn(&Planned, &[Planned]) -> bool,
) -> Vec<Drawn> {
    for place in 0..drawn.len() {
        let Some(begin) = drawn[place].at else { continue };
        let entry = Planned { begin, ..drawn[place].entry.clone() };
        if !drawn[place].out {
            let others = drawn.iter().enumerate().filter(|(other, drawn)| *other != place && !drawn.out);
            let others: Vec<Planned> = others.map(|(_, drawn)| drawn.entry.clone()).collect();
            drawn[place].out = !has_room(&entry, &others);
        }
        drawn[place].entry = entry;
    }
    drawn.retain(|drawn| drawn.entry.begin < phases.end);
    drawn.sort_by_key(|drawn| (drawn.entry.begin, drawn.entry.id));
    drawn
}

/// Puts entries into the order of time.
pub(super) fn sort(plan: &mut [Planned]) {
    plan.sort_by_key(|entry| (entry.begin, entry.id));
}

/// Draws the plan, in order of time: with the entries that are taken out if `all` are wanted.
pub(super) fn draw(
    profile: &FaultSpec,
    aim: Aim<'_>,
    phases: Phases,
    all: bool,
    decisions: &mut Decisions,
) -> Vec<Drawn> {
    let mut plan = Vec::new();
    if aim.targets.is_empty() {
        return plan;
    }
    for declaration in Kind::DECLARATIONS.iter().filter(|declaration| profile.is_on(declaration.kind)) {
        let kind = declaration.kind;
        let setting = profile.get(kind);
        let (targets, stacks) = (aim.of(kind, aim.targets), aim.of(kind, aim.stacks));
        let on = |target: u32| aim.disks.get(&(kind, NodeId(target))).map_or(&[][..], Vec::as_slice);
        for target in aim.chains(declaration) {
            let name = (kind, target, setting);
            let whom = match declaration.begins {
                Begins::Standing => {
                    standing(name, &targets, (phases, all), decisions, &mut plan);
                    continue;
                }
                Begins::ByGroup => {
                    let Some(group) = aim.groups_of(kind).find(|group| group.number == target) else {
                        continue;
                    };
                    (&group.nodes[..], Some(group), &[][..])
                }
                _ => (if target == 0 { &stacks[..] } else { &targets[..] }, None, on(target)),
            };
            chain(name, whom, (phases, all), decisions, &mut plan);
        }
    }
    plan.sort_by_key(|drawn| (drawn.entry.begin, drawn.entry.id));
    plan
}

/// Draws the entries of one kind and target.
fn chain(
    (kind, target, setting): (Kind, u32, &Setting),
    (targets, group, disks): (&[NodeId], Option<&Grouped>, &[Option<NamedVolume>]),
    (phases, all): (Phases, bool),
    decisions: &mut Decisions,
    plan: &mut Vec<Drawn>,
) {
    let gaps = Gaps::new(setting.rate);
    // Where a log moves entries, one that was drawn behind the end of the phase may begin before.
    let moved = moves(decisions, (phases.epoch, kind, target));
    let end = if moved { phases.end.max(phases.configured_end) } else { phases.end };
    let mut begin = phases.begin.after(phases.step.saturating_mul(phases.over));
    for nth in 0..1 << CHAIN {
        let id = FaultId { kind, target, nth: phases.epoch.numbered(nth) };
        let Some(failures) = gaps.failures(decisions.choose(id.site(GAP), WORD)) else { return };
        let Some(gap) = phases.step.checked_mul(failures.saturating_add(1)) else { return };
        begin = begin.after(gap);
        if begin >= end {
            return;
        }
        let out = decisions.choose(id.site("begins"), WORD) == 0;
        if out && !all {
            continue;
        }
        let at = decisions.said(id.site(BEGINS_AT), WORD).map(|after| phases.moved(after));
        let mut draw = Draw { id, setting, targets, group, disks, decisions: &mut *decisions };
        let duration = draw.duration();
        if let Some(fault) = Fault::draw(kind, &mut draw) {
            plan.push(Drawn { entry: Planned { id, begin, duration, fault }, out, at });
        }
    }
}

/// Whether the log gives an entry of one kind and target, of those that an epoch draws, another time. What it says counts as asked for, also where the chain ends
/// before it comes to the entry: it lets the chain go on.
fn moves(decisions: &mut Decisions, (epoch, of_kind, of_target): (Epoch, Kind, u32)) -> bool {
    let (of_kind, at) = (Word::new(of_kind.name()), Word::new(BEGINS_AT));
    let own = |nth: u64| match epoch == Epoch::default() {
        true => nth < WRITTEN && !is_drawn_anew(nth),
        false => epoch.has(nth),
    };
    let said = |site: &Site| match *site {
        Site::Fault { kind, target, part, nth } => {
            (kind, target, part) == (of_kind, of_target, at) && own(nth)
        }
        _ => false,
    };
    let moved: Vec<Site> = decisions.log().overrides.keys().map(|choice| choice.site).filter(said).collect();
    let mut any = false;
    for site in moved {
        any |= decisions.said(site, WORD).is_some();
    }
    any
}

/// Draws the entry of a kind that a target has for the whole phase.
fn standing(
    (kind, target, setting): (Kind, u32, &Setting),
    targets: &[NodeId],
    (phases, all): (Phases, bool),
    decisions: &mut Decisions,
    plan: &mut Vec<Drawn>,
) {
    let id = FaultId { kind, target, nth: phases.epoch.numbered(0) };
    let out = decisions.choose(id.site("begins"), WORD) == 0;
    if out && !all {
        return;
    }
    let mut draw = Draw { id, setting, targets, group: None, disks: &[], decisions };
    if let Some(fault) = Fault::draw(kind, &mut draw) {
        plan.push(Drawn { entry: Planned { id, begin: phases.begin, duration: 0, fault }, out, at: None });
    }
}

/// How many trials of a rate fail before one succeeds, computed with integers: the powers `q^(2^i)` of the probability of a
/// failure, as 64-bit fractions.
struct Gaps {
    powers: [u64; Gaps::BITS],
}

impl Gaps {
    /// Numbers of failures have so many bits at most.
    const BITS: usize = 34;

    /// For a rate in parts per billion.
    fn new(rate: u32) -> Gaps {
        let fails = WHOLE - u64::from(rate).min(WHOLE);
        let mut power = u64::try_from((u128::from(fails) << 64) / u128::from(WHOLE)).unwrap_or(u64::MAX);
        let powers = std::array::from_fn(|_| {
            let this = power;
            power = product(power, power);
            this
        });
        Gaps { powers }
    }

    /// The number for a uniform word: the largest k with `q^k > word / 2^64`, for that is so with a probability of `q^k`. `None`: there
    /// is no success within any time. 0, the plain choice, is none.
    fn failures(&self, word: u64) -> Option<u64> {
        if word == 0 {
            return None;
        }
        let (mut left, mut count) = (u64::MAX, 0);
        for (bit, power) in self.powers.iter().enumerate().rev() {
            let less = product(left, *power);
            if less > word {
                (left, count) = (less, count | 1 << bit);
            }
        }
        Some(count)
    }
}

/// The product of two 64-bit fractions.
fn product(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

#[cfg(test)]
mod tests;

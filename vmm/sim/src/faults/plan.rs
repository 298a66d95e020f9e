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
        Phases { begin, end, step, ..Phases::default() }
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
    let mut begin = phases.begin.after(phases.step.saturating_mul(phases.over));
    for nth in 0..1 << CHAIN {
        let id = FaultId { kind, target, nth: phases.epoch.numbered(nth) };
        let Some(failures) = gaps.failures(decisions.choose(id.site(GAP), WORD)) else { return };
        let Some(gap) = phases.step.checked_mul(failures.saturating_add(1)) else { return };
        begin = begin.after(gap);
        if begin >= phases.end {
            return;
        }
        let out = decisions.choose(id.site("begins"), WORD) == 0;
        if out && !all {
            continue;
        }
        let moved = decisions.said(id.site(BEGINS_AT), WORD);
        let mut draw = Draw { id, setting, targets, group, disks, decisions: &mut *decisions };
        let duration = draw.duration();
        if let Some(fault) = Fault::draw(kind, &mut draw) {
            let begin = moved.map_or(begin, |after| phases.moved(after));
            if begin < phases.end {
                plan.push(Drawn { entry: Planned { id, begin, duration, fault }, out });
            }
        }
    }
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
        plan.push(Drawn { entry: Planned { id, begin: phases.begin, duration: 0, fault }, out });
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
mod tests {
    use super::*;
    use bloodhound_decisions::{Choice, Log, Mode, Part};

    const MS: u64 = 1_000_000;

    fn phases() -> Phases {
        Phases { begin: SimTime(500), end: SimTime(500 + 20_000 * MS), step: 10 * MS, ..Phases::default() }
    }

    fn profile() -> FaultSpec {
        FaultSpec::default()
            .with_rate(Kind::Crash, 1_000_000)
            .with_rate(Kind::Pause, 500_000)
            .with_rate(Kind::Partition, 3_000_000)
            .with_rate(Kind::Reset, 500_000)
            .with_rate(Kind::ClockJump, 2_000_000)
            .with_rate(Kind::ClockDrift, 1_000_000)
            .with_time(Kind::ClockSkew, (50 * MS, 50 * MS))
            .with_rate(Kind::LeapSecond, 1_000_000)
    }

    fn targets() -> Vec<NodeId> {
        (1..=3).map(NodeId).collect()
    }

    fn planned(profile: &FaultSpec, log: Log) -> Vec<Planned> {
        let seed = log.seed;
        let mut decisions = Decisions::new(log, Mode::Strict);
        decisions.begin_run(seed);
        let plan = draw(profile, Aim::plain(&targets()), phases(), false, &mut decisions);
        assert_eq!(decisions.divergences(), []);
        plan.into_iter().map(|drawn| drawn.entry).collect()
    }

    /// The mean and the tail of the distribution, from a tenth to a millionth.
    #[test]
    fn gaps_are_geometric() {
        let mut dice = bloodhound_decisions::Dice::new(3);
        for (rate, mean) in [(500_000_000, 1.0), (100_000_000, 9.0), (1_000_000, 999.0), (1_000, 999_999.0)] {
            let gaps = Gaps::new(rate);
            let drawn: Vec<u64> = (0..20_000).filter_map(|_| gaps.failures(dice.word())).collect();
            let average = drawn.iter().sum::<u64>() as f64 / drawn.len() as f64;
            // The standard deviation of one is about its mean; five of that of the average.
            assert!(
                (average - mean).abs() < 5.0 * (mean + 1.0) / 141.0,
                "{rate}: {average} instead of {mean}"
            );
            let longer = drawn.iter().filter(|n| **n as f64 > 2.0 * mean + 1.0).count();
            assert!(
                longer > 800 && longer < 4_000,
                "{rate}: {longer} of 20000 are longer than twice the mean"
            );
        }
        assert_eq!(Gaps::new(1_000_000_000).failures(5), Some(0), "a certain fault begins at every step");
        assert_eq!(Gaps::new(500_000_000).failures(0), None);
    }

    /// As many as trials at every step would give.
    #[test]
    fn rates_are_per_time_step_and_target() {
        let mut counts = std::collections::BTreeMap::new();
        for seed in 0..1_000 {
            for entry in planned(&profile(), Log::new(0, seed)) {
                *counts.entry(entry.id.kind).or_insert(0u64) += 1;
                if entry.id.kind == Kind::ClockSkew {
                    assert_eq!((entry.begin, entry.duration), (SimTime(500), 0));
                    continue;
                }
                let (low, high) = profile().get(entry.id.kind).time;
                assert!((low..=high).contains(&entry.duration));
                assert!((entry.begin.0 - 500) % (10 * MS) == 0 && entry.begin < phases().end);
            }
        }
        // 1999 steps of a thousand seeds; three nodes.
        assert_eq!(counts[&Kind::ClockSkew], 3_000, "one for each node");
        for (kind, expected) in [
            (Kind::Crash, 5_997),
            (Kind::Pause, 2_998),
            (Kind::Partition, 5_997),
            (Kind::Reset, 1_000),
            (Kind::ClockJump, 11_994),
            (Kind::ClockDrift, 5_997),
            (Kind::LeapSecond, 1_999),
        ] {
            let spread = 5 * u64::isqrt(expected);
            assert!(
                counts[&kind].abs_diff(expected) < spread,
                "{kind}: {} instead of {expected}",
                counts[&kind]
            );
        }
    }

    #[test]
    fn taking_one_out_changes_no_other() {
        for seed in 0..50 {
            let whole = planned(&profile(), Log::new(0, seed));
            for out in &whole {
                let choice = Choice { part: Part::Run, site: out.id.site("begins") };
                let less = planned(&profile(), Log::new(0, seed).with(choice, WORD, 0));
                let others: Vec<Planned> = whole.iter().filter(|entry| entry.id != out.id).cloned().collect();
                assert_eq!(less, others, "seed {seed} without {:?}", out.id);
            }
        }
    }

    #[test]
    fn a_log_gives_one_another_time_and_no_other_one_moves() {
        for seed in 0..20 {
            let whole = planned(&profile(), Log::new(0, seed));
            for moved in whole.iter().filter(|entry| entry.id.kind != Kind::ClockSkew) {
                let choice = Choice { part: Part::Run, site: moved.id.site(BEGINS_AT) };
                for after in [0, 3, 19_999 * MS] {
                    let other = planned(&profile(), Log::new(0, seed).with(choice, WORD, after));
                    let expected = Planned { begin: SimTime(500 + after), ..moved.clone() };
                    let mut all: Vec<Planned> = whole.clone();
                    all.iter_mut()
                        .filter(|entry| entry.id == moved.id)
                        .for_each(|entry| *entry = expected.clone());
                    sort(&mut all);
                    assert_eq!(other, all, "seed {seed}, {:?} at {after}", moved.id);
                }
                let behind = planned(&profile(), Log::new(0, seed).with(choice, WORD, 20_000 * MS));
                assert!(
                    behind.iter().all(|entry| entry.id != moved.id),
                    "none begins when the phase is over"
                );
            }
        }
    }

    /// Amounts and directions are those that are asked for, evenly.
    #[test]
    fn clocks_go_wrong_either_way_and_as_far_as_is_asked_for() {
        let (mut ahead, mut behind) = (0u64, 0u64);
        for seed in 0..300 {
            for entry in planned(&profile(), Log::new(0, seed)) {
                let (amount, (least, most)) = match &entry.fault {
                    Fault::ClockJump(jump) => (jump.by, profile().get(Kind::ClockJump).size),
                    Fault::ClockDrift(drift) => (drift.rate, profile().get(Kind::ClockDrift).size),
                    Fault::ClockSkew(skew) => (skew.by, (1, 50 * MS)),
                    _ => continue,
                };
                *if amount > 0 { &mut ahead } else { &mut behind } += 1;
                assert!((least..=most).contains(&amount.unsigned_abs()), "{:?}", entry.fault);
            }
        }
        assert!(ahead.abs_diff(behind) < 5 * (ahead + behind).isqrt(), "{ahead} {behind}");
    }

    /// What an epoch draws begins after it, at whole steps, at the same rates, and has names that nothing else has.
    #[test]
    fn an_epoch_draws_what_comes_after_it_by_names_of_its_own() {
        let now = SimTime(500 + 7_000 * MS + 3);
        let (first, second) = (Epoch::at(now.0), Epoch::at(now.0 + 5_000_000));
        assert_ne!(first.numbered(3), second.numbered(3));
        let id = FaultId { kind: Kind::Crash, target: 1, nth: first.numbered(3) };
        assert!(id.is_drawn_anew() && !id.is_written() && id.is_of_epoch(now.0));
        assert!(!id.is_of_epoch(now.0 + 5_000_000) && !FaultId { nth: 3, ..id }.is_drawn_anew());
        let (mut before, mut anew) = (0, 0);
        for seed in 0..200 {
            let mut decisions = Decisions::seeded(seed);
            let targets = targets();
            let aim = Aim::plain(&targets);
            let plan = draw(&profile(), aim, phases(), false, &mut decisions);
            before += plan.iter().filter(|drawn| drawn.entry.begin > now).count() as u64;
            let mut rest = draw(&profile(), aim, phases().anew(first, now), false, &mut decisions);
            rest.retain(|drawn| drawn.entry.begin > now);
            for Drawn { entry, .. } in &rest {
                assert!((entry.begin.0 - 500) % (10 * MS) == 0 && entry.id.is_drawn_anew(), "{entry:?}");
                assert!(plan.iter().all(|other| other.entry.id != entry.id));
            }
            anew += rest.len() as u64;
        }
        assert!(before.abs_diff(anew) < 5 * (before + anew).isqrt(), "{before} and {anew}");
    }

    #[test]
    fn another_rate_of_one_kind_changes_no_other_kind() {
        let other = profile().with_rate(Kind::Crash, 9_000_000).with_time(Kind::Crash, (1, 2));
        let rest = |profile: &FaultSpec| {
            let plan = planned(profile, Log::new(0, 4)).into_iter();
            plan.filter(|entry| entry.id.kind != Kind::Crash).collect::<Vec<_>>()
        };
        assert_eq!(rest(&profile()), rest(&other));
    }
}

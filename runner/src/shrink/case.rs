//! What of a run can be taken out, as changes of its log.
//!
//! Key types: [`Element`] (something that is there or not), [`Edit`] (what its absence changes in the log). Faults that the seed draws are taken out one by one by
//! values of 0 ([`faults`]). Of what there is in thousands (fates of packets, turns of the scheduler, what a power failure leaves), all is plain
//! that the log does not name, and elements are the names ([`explicit`], [`departing`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bloodhound_abi::SimTime;
use bloodhound_abi::time::MILLIS;
use bloodhound_decisions::{
    Choice, Concern, Epoch, ForcedSwitch, LATER, Log, Made, Override, Part, Site, WORD, Word,
};
use bloodhound_faults::Kind;
use bloodhound_sim::faults::{self, BEGINS_AT, FaultId, KEPT, phase_end};
use bloodhound_sim::notice::{LogEntry, Notice, PhaseChange};
use bloodhound_workloads::driver::DriverConfig;
use bloodhound_workloads::history::Operation;
use bloodhound_workloads::http::{left_out, workload_end};

use super::pool::Ran;
use crate::session::Outcome;

/// Other draws have seeds that no campaign begins with: "luck" in ASCII and a number.
const OTHER_DRAWS: u64 = 0x6c75_636b_0000_0000;

/// A change of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// The choice has this value.
    Set(Choice, Override),
    /// It is plain, as all of its concern.
    Plain(Choice),
    /// The task does not give way there.
    Stay(ForcedSwitch),
}

/// Something that is part of a run, by what takes it out.
pub type Element = Vec<Edit>;

/// The log without those of the elements that are not kept; `kept` rises.
pub fn without(log: &Log, elements: &[Element], kept: &[usize]) -> Log {
    let mut log = log.clone();
    let mut out = BTreeSet::new();
    for (_, element) in elements.iter().enumerate().filter(|(at, _)| kept.binary_search(at).is_err()) {
        for edit in element {
            match edit {
                Edit::Set(choice, to) => {
                    log.overrides.insert(*choice, *to);
                }
                Edit::Plain(choice) => {
                    log.overrides.remove(choice);
                }
                Edit::Stay(switch) => {
                    out.insert(switch);
                }
            }
        }
    }
    if let Some(switches) = &mut log.switches {
        switches.retain(|switch| !out.contains(switch));
    }
    log
}

fn in_run(site: Site) -> Choice {
    Choice { part: Part::Run, site }
}

/// A choice that no seed draws: what the log says of it holds also where all of its concern is plain.
pub fn is_said(choice: &Choice, recorded: Override) -> bool {
    match choice.site {
        Site::Swarm { .. } => recorded.bound == KEPT && recorded.value == 0,
        Site::Fault { nth, part, .. } => {
            let written =
                FaultId { kind: Kind::Crash, target: 0, nth }.is_written() && recorded.bound == KEPT;
            written || part == Word::new(BEGINS_AT) || choice.site == phase_end()
        }
        Site::Operation { worker, nth, .. } => {
            choice.site == left_out(worker, nth) || choice.site == workload_end()
        }
        _ => false,
    }
}

/// Whether what a log says of a choice is no draw of the run, but changes its configuration: when workload and faults end, and which kinds and written faults are
/// left out.
pub fn is_of_configuration(choice: &Choice, recorded: Override) -> bool {
    let drawn = match choice.site {
        Site::Fault { part, .. } => part == Word::new(BEGINS_AT),
        Site::Operation { worker, nth, .. } => choice.site == left_out(worker, nth),
        _ => false,
    };
    is_said(choice, recorded) && !drawn
}

/// The faults of a run: the entries of its plan and of the schedule, each with its end, and the kinds that hit packets and operations, each as a whole.
pub fn faults(ran: &Ran) -> Vec<Element> {
    let outcome = &ran.outcome;
    let begins = |id: FaultId| {
        let bound = if id.is_written() { KEPT } else { WORD };
        vec![Edit::Set(in_run(id.site("begins")), Override { bound, value: 0 })]
    };
    let drawn: BTreeMap<Site, u64> = ran
        .made
        .iter()
        .filter(|made| matches!(made.choice.site, Site::Swarm { .. } | Site::Fault { .. }))
        .map(|made| (made.choice.site, made.bound))
        .collect();
    let said_out = |edit: &Edit| match edit {
        Edit::Set(choice, to) => outcome.decisions.overrides.get(choice) == Some(to),
        _ => false,
    };
    let kinds = Kind::DECLARATIONS
        .iter()
        .filter(|declaration| !declaration.is_timed() && outcome.has_kind(declaration.kind));
    // When faults began, and each time that an epoch has drawn them anew.
    let anew = outcome.decisions.epochs.iter().filter(|epoch| epoch.concerns.contains(&Concern::Faults));
    let draws: Vec<_> =
        std::iter::once(faults::Epoch::default()).chain(anew.map(|e| faults::Epoch::at(e.from))).collect();
    let kinds = kinds.map(|declaration| {
        let sites = draws.iter().map(|epoch| epoch.swarm(declaration.kind));
        let out = |site| {
            let bound = drawn.get(&site).copied().unwrap_or(KEPT);
            Edit::Set(in_run(site), Override { bound, value: 0 })
        };
        sites.map(out).collect()
    });
    let schedule = outcome.scenario.planning.schedule.iter().enumerate();
    let written = schedule.map(|(place, scheduled)| begins(scheduled.id(place)));
    let planned = outcome.plan.iter().filter(|entry| !entry.id.is_written());
    let planned = planned.map(|entry| begins(entry.id));
    kinds.chain(written).chain(planned).filter(|element| !element.iter().all(said_out)).collect()
}

/// When the run went on from its boot: faults are planned and the workload begins.
pub fn ready(outcome: &Outcome) -> SimTime {
    let began = |entry: &&LogEntry| matches!(entry.what, Notice::Phase(PhaseChange::Faults(_)));
    outcome.log.iter().find(began).map_or(SimTime::default(), |entry| entry.at)
}

/// When the services of a run were ready, which is the end of its boot.
pub fn services_ready(outcome: &Outcome) -> Option<SimTime> {
    let ready = |entry: &&LogEntry| matches!(entry.what, Notice::Phase(PhaseChange::Ready));
    outcome.log.iter().find(ready).map(|entry| entry.at)
}

/// The log of a run in which a drawn fault begins at another time; `None` if it would begin before faults do.
pub fn beginning_at(outcome: &Outcome, id: FaultId, at: SimTime) -> Option<Log> {
    let value = at.0.checked_sub(faults_begin(outcome).0)?;
    let mut log = (*outcome.decisions).clone();
    // A search may have moved it when its time came; that is part of the time now.
    log.overrides.remove(&in_run(id.site(LATER)));
    log.overrides.insert(in_run(id.site(BEGINS_AT)), Override { bound: WORD, value });
    Some(log)
}

/// When faults could begin.
pub fn faults_begin(outcome: &Outcome) -> SimTime {
    ready(outcome).after(outcome.scenario.fault_start)
}

/// When the faults were over, if nothing ended the run before.
pub fn faults_end(outcome: &Outcome) -> SimTime {
    let said = outcome.decisions.overrides.get(&in_run(phase_end())).map(|said| said.value);
    let configured = outcome.scenario.fault_time;
    let long = said.map_or(configured, |said| said.min(configured));
    faults_begin(outcome).after(long)
}

/// When choices are drawn anew at the earliest.
fn anew_from(outcome: &Outcome) -> u64 {
    services_ready(outcome).map_or(0, |at| at.0.saturating_add(1))
}

/// What makes a run whose faults are drawn anew have all configured kinds of them, each as strong as it can be.
pub fn strongest(outcome: &Outcome) -> Vec<(Choice, Override)> {
    faults::strongest(&outcome.scenario.faults, faults::Epoch::at(anew_from(outcome)))
}

/// The log of a run in which the choices about these concerns are drawn anew, the `nth` time, from the end of its boot on.
pub fn drawn_anew(ran: &Ran, log: &Log, concerns: &[Concern], nth: u64) -> Log {
    let from = anew_from(&ran.outcome);
    let concerns = concerns.to_vec();
    let mut log = log.clone();
    log.epochs.retain(|epoch| (epoch.from, &epoch.concerns) != (from, &concerns));
    let before = log.epochs.iter().take_while(|epoch| epoch.from <= from).count();
    log.epochs.insert(before, Epoch { from, seed: log.seed.wrapping_add(OTHER_DRAWS + nth), concerns });
    log
}

/// The log of a run whose workload and faults are over when this virtual time is: of what comes later nothing is left but the end of the run.
pub fn cut(outcome: &Outcome, log: &Log, at: SimTime) -> Log {
    let mut log = cut_workload(outcome, log, at);
    end(&mut log, phase_end(), at.0.saturating_sub(faults_begin(outcome).0), outcome.scenario.fault_time);
    log
}

/// The log of a run whose clients begin nothing any more when this virtual time is.
pub fn cut_workload(outcome: &Outcome, log: &Log, at: SimTime) -> Log {
    let mut log = log.clone();
    if let Some(DriverConfig::Http(config)) = &outcome.scenario.workload {
        end(&mut log, workload_end(), at.0.saturating_sub(ready(outcome).0), config.duration_ns);
    }
    log
}

/// Has something end after so many ns, if it does not end before anyway: by what the log says, or the configuration.
fn end(log: &mut Log, site: Site, after: u64, configured: u64) {
    // In whole milliseconds, to be read more easily; at least one, for there is no time of 0.
    let long = after.div_ceil(MILLIS).max(1) * MILLIS;
    let choice = in_run(site);
    let known = log.overrides.get(&choice).map_or(configured, |known| known.value.min(configured));
    if long < known {
        log.overrides.insert(choice, Override { bound: WORD, value: long });
    }
}

/// The run in which all choices about these concerns are plain but for those that it made: the same run but for draws that had no effect, by another log.
pub fn explicit(ran: &Ran, concerns: &[Concern]) -> Log {
    let mut log = (*ran.outcome.decisions).clone();
    for concern in concerns.iter().filter(|concern| !ran.outcome.decisions.plain.contains(concern)) {
        log.plain.push(*concern);
    }
    let of_concern = |choice: &Choice| choice.part == Part::Run && concerns.contains(&choice.site.concern());
    log.overrides.retain(|choice, recorded| !of_concern(choice) || is_said(choice, *recorded));
    if concerns.contains(&Concern::Scheduler) {
        // What became of the choices of switches is the list of them.
        log.switches.get_or_insert_default();
    }
    for (choice, to) in departing(ran, concerns) {
        log.overrides.insert(choice, to);
    }
    log
}

/// The choices of a run about these concerns that are not plain, in the order in which they were made first.
pub fn departing(ran: &Ran, concerns: &[Concern]) -> Vec<(Choice, Override)> {
    let mut seen = BTreeSet::new();
    let departs = |made: &&Made| {
        !made.plain
            && made.choice.part == Part::Run
            && concerns.contains(&made.choice.site.concern())
            && !matches!(made.choice.site, Site::Switch { .. })
    };
    let mut departing = Vec::new();
    for made in ran.made.iter().filter(departs) {
        if seen.insert(made.choice) {
            departing.push((made.choice, Override { bound: made.bound, value: made.value }));
        }
    }
    departing
}

/// What the faults that are left have drawn beside when they begin, where it is not the plainest: how long they last, whom they hit, by how much.
pub fn parameters(ran: &Ran) -> Vec<(Choice, Override)> {
    let begun: BTreeSet<(Word, u32, u64)> = ran
        .outcome
        .record()
        .filter(|(entry, _)| !entry.id.is_written())
        .map(|(entry, _)| (Word::new(entry.id.kind.name()), entry.id.target, entry.id.nth))
        .collect();
    let times = ["gap", "begins", BEGINS_AT].map(Word::new);
    let mut choices = departing(ran, &[Concern::Faults]);
    choices.retain(|(choice, _)| match choice.site {
        Site::Fault { kind, target, nth, part } => {
            begun.contains(&(kind, target, nth)) && !times.contains(&part)
        }
        _ => false,
    });
    choices
}

/// Whether less of a parameter is a simpler fault, so that it is worth while to look for the least: among so many it is a time or a size, not whom it hits.
pub fn is_amount(asked: &Override) -> bool {
    asked.bound > 64
}

/// Choices and switches in groups of so many.
pub fn plain_in_blocks(choices: &[Choice], switches: &[ForcedSwitch], block: usize) -> Vec<Element> {
    let choices: Vec<Edit> = choices.iter().map(|choice| Edit::Plain(*choice)).collect();
    let switches: Vec<Edit> = switches.iter().map(|switch| Edit::Stay(switch.clone())).collect();
    let blocks = choices.chunks(block.max(1)).chain(switches.chunks(block.max(1)));
    blocks.map(<[Edit]>::to_vec).collect()
}

/// An operation of a client, and what takes it out.
pub struct Done<'a> {
    pub operation: &'a Operation,
    /// Whose it is, and how many operations this worker has begun before.
    pub worker: u32,
    pub nth: u64,
    pub out: Element,
}

impl Done<'_> {
    /// The choice that leaves it out.
    pub fn choice(&self) -> Choice {
        in_run(left_out(self.worker, self.nth))
    }
}

/// The operations of the clients, by key and then in order of time: each is replaced by a wait that is as long.
pub fn operations(outcome: &Outcome) -> Vec<Done<'_>> {
    let Some(DriverConfig::Http(config)) = &outcome.scenario.workload else { return Vec::new() };
    let workers = u64::from(config.workers.max(1));
    let mut begun = vec![0u64; config.workers as usize];
    let mut elements = Vec::new();
    for operation in outcome.history.operations().iter() {
        let worker = (operation.process % workers) as u32;
        let site = |nth| in_run(left_out(worker, nth));
        let nth = &mut begun[worker as usize];
        while outcome.decisions.overrides.contains_key(&site(*nth)) {
            *nth += 1;
        }
        // What has no end has kept its worker for as long as one waits for an answer.
        let end = operation.complete.unwrap_or(operation.invoke.after(config.timeout_ns));
        let value = end.0.saturating_sub(operation.invoke.0).clamp(1, WORD - 1);
        let out = Edit::Set(site(*nth), Override { bound: WORD, value });
        elements.push(Done { operation, worker, nth: *nth, out: vec![out] });
        *nth += 1;
    }
    // A violation is mostly about one key. The order is stable.
    elements.sort_by(|a, b| a.operation.key.cmp(&b.operation.key));
    elements
}

/// What takes out each of the operations, in the same order.
pub fn operations_out(ran: &Ran) -> Vec<Element> {
    operations(&ran.outcome).into_iter().map(|done| done.out).collect()
}

/// Which of the operations the text of a violation is about, by their places: those that it names itself, and all on the key that it names.
pub fn concerned(operations: &[Done<'_>], text: &str) -> (Vec<usize>, Vec<usize>) {
    let first = text.lines().next().unwrap_or_default();
    let of_key =
        |done: &Done<'_>| done.operation.key.as_ref().is_some_and(|key| first.contains(&format!("{key:?}")));
    let named = |done: &Done<'_>| of_key(done) && text.contains(&format!(" {} ", done.operation.invoke));
    let places = |wanted: &dyn Fn(&Done<'_>) -> bool| {
        (0..operations.len()).filter(|at| wanted(&operations[*at])).collect()
    };
    (places(&named), places(&of_key))
}

/// The outcome of a run that followed a log leniently and made these choices, with a log that a replay can follow strictly.
pub fn settled_outcome(outcome: Outcome, made: Vec<Made>) -> Outcome {
    let ran = Ran { outcome, made };
    let decisions = Arc::new(settled(&ran));
    Outcome { decisions, ..ran.outcome }
}

/// The log of a run whose overrides are just those that count, with the bounds that they were asked with: a replay can follow it strictly.
pub fn settled(ran: &Ran) -> Log {
    let mut log = (*ran.outcome.decisions).clone();
    let mut made: BTreeMap<Choice, Override> = BTreeMap::new();
    for Made { choice, bound, value, .. } in ran.made.iter().copied() {
        made.entry(choice).or_insert(Override { bound, value });
    }
    let plain = log.plain.clone();
    log.overrides = std::mem::take(&mut log.overrides)
        .into_iter()
        .filter_map(|(choice, recorded)| {
            if choice.part == Part::Boot {
                return Some((choice, recorded));
            }
            let asked = *made.get(&choice)?;
            let idle =
                asked.value == 0 && plain.contains(&choice.site.concern()) && !is_said(&choice, recorded);
            (!idle).then_some((choice, asked))
        })
        .collect();
    log
}

#[cfg(test)]
mod tests {
    use bloodhound_decisions::Word;

    use super::*;

    fn operation(nth: u64) -> Choice {
        in_run(Site::Arrival { worker: 0, nth })
    }

    #[test]
    fn elements_that_are_not_kept_change_the_log() {
        let switch = |nth| ForcedSwitch {
            node: 1,
            life: 0,
            task: bloodhound_decisions::Lineage::root(0),
            place: "main".into(),
            nth,
            torn: false,
        };
        let mut log = Log::new(0, 1).with(operation(0), 9, 4).with(operation(1), 9, 5);
        log.switches = Some(vec![switch(1), switch(2)]);
        let elements = [
            vec![Edit::Plain(operation(0))],
            vec![Edit::Set(operation(1), Override { bound: 9, value: 0 })],
            vec![Edit::Stay(switch(2))],
        ];
        assert_eq!(without(&log, &elements, &[0, 1, 2]), log);
        let less = without(&log, &elements, &[]);
        assert_eq!(less.overrides, BTreeMap::from([(operation(1), Override { bound: 9, value: 0 })]));
        assert_eq!(less.switches, Some(vec![switch(1)]));
        assert_eq!(without(&log, &elements, &[1, 2]).overrides.len(), 1);
    }

    #[test]
    fn what_no_seed_draws_is_known() {
        let swarm = in_run(Site::Swarm { kind: Word::new("drop") });
        assert!(is_said(&swarm, Override { bound: KEPT, value: 0 }));
        assert!(!is_said(&swarm, Override { bound: 6, value: 0 }));
        let written = in_run(FaultId::written(Kind::Crash, 1, 0).site("begins"));
        assert!(is_said(&written, Override { bound: KEPT, value: 0 }));
        let drawn = FaultId { kind: Kind::Crash, target: 1, nth: 0 };
        assert!(is_said(&in_run(drawn.site(BEGINS_AT)), Override { bound: WORD, value: 7 }));
        let drawn = in_run(drawn.site("begins"));
        assert!(!is_said(&drawn, Override { bound: WORD, value: 0 }));
        assert!(is_said(&in_run(left_out(3, 4)), Override { bound: WORD, value: 7 }));
        assert!(!is_said(&operation(1), Override { bound: 9, value: 0 }));
    }
}

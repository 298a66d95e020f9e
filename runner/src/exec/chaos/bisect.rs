//! `bloodhound exec --chaos --bisect --seed N`: what of a failing seed's schedule makes it fail.
//!
//! The schedule is narrowed to the few switches of which none can be left out (`bloodhound_bisect`). The last of them is moved as far back
//! as the run still fails. Then the run is compared with the one without that switch, access by access: the pair of accesses whose order
//! differs is the race.

use std::collections::BTreeSet;

use bloodhound_bisect::{Access, Departure, critical_pairs, departures, latest, log_of, narrow};
use bloodhound_decisions::{Concern, ForcedSwitch, Log, Site, TurnPart};
use bloodhound_sim::trace::{Trace, Traced};

use super::outcome::Failed;
use super::{Options, Runner, Start, report, saved};
use crate::session::Failure;
use crate::stack::Symbols;
use crate::{exit, interleave, output};

/// What is narrowed.
const CONCERNS: [Concern; 1] = [Concern::Scheduler];
/// Places to which the last switch is moved, at most.
const MOVES: usize = 200;

/// Tells what makes a seed fail; the exit code.
///
/// # Errors
/// What the host says.
pub fn bisect(runner: &mut Runner<'_>, start: &Start, seed: u64, options: &Options) -> Result<u8, Failure> {
    let expected = options.expect_status;
    runner.keep_choices(true);
    let outcome = runner.run(start, seed)?;
    let (log, made) = runner.choices();
    runner.keep_choices(false);
    let Some(failed) = outcome.failed(expected) else {
        return Err(Failure::usage(format!(
            "seed {seed} does not fail ({}), so there is nothing to narrow\nhelp: without `--bisect`, `--seeds N` hunts for one that does",
            outcome.text
        )));
    };
    output::print(&report::text(&outcome));
    let all = departures(&made, &CONCERNS, log.switches.iter().flatten());
    let count = all.len();
    let mut subject = Subject { runner, start, log, failed, expected, runs: 0 };
    let base = subject.log.clone();
    let narrowed = narrow(&base, &CONCERNS, all, |log| subject.fails(log))?;
    let Some(narrowed) = narrowed else {
        output::print("the schedule alone does not make it fail: it cannot be narrowed\n");
        return Ok(exit::FINDINGS);
    };
    let mut left = narrowed.departures;
    if left.is_empty() {
        output::print("it fails in the same way with the plainest schedule: no switch is needed\n");
        subject.save(&left, options)?;
        return Ok(exit::FINDINGS);
    }
    let last = subject.last(&mut left)?;
    output::print(&format!(
        "narrowed in {} runs: {} of {count} choices of its schedule make it fail\n",
        subject.runs,
        left.len()
    ));
    subject.tell(&left, last)?;
    subject.save(&left, options)?;
    Ok(exit::FINDINGS)
}

/// A failing seed in the hands of the search.
struct Subject<'a, 'b> {
    runner: &'a mut Runner<'b>,
    start: &'a Start,
    log: Log,
    failed: Failed,
    expected: u8,
    runs: u32,
}

type Key = (bloodhound_sim::profile::TaskName, bloodhound_sim::CodePlace, u64);
type Place = (bloodhound_sim::profile::Object, u64);

fn compared(trace: &Trace) -> Vec<Access<Key, Place>> {
    let access = |traced: &Traced| Access { key: key(traced), touches: traced.touches.clone() };
    trace.accesses.iter().map(access).collect()
}

fn key(traced: &Traced) -> Key {
    (traced.task, traced.place, traced.nth)
}

impl Subject<'_, '_> {
    fn fails(&mut self, log: &Log) -> Result<bool, Failure> {
        self.runs += 1;
        let outcome = self.runner.run_log(self.start, log.clone())?;
        if outcome.end == super::super::End::Interrupted {
            return Err(Failure { code: exit::INTERRUPTED, text: "interrupted".into() });
        }
        Ok(outcome.failed(self.expected) == Some(self.failed))
    }

    fn trace(&mut self, departures: &[Departure], wanted: BTreeSet<usize>) -> Result<Trace, Failure> {
        let log = log_of(&self.log, &CONCERNS, departures);
        self.runner.trace(self.start, log, interleave::accesses_of(), wanted)
    }

    /// Which departure takes effect last, after it has been moved as far back as the run still fails.
    fn last(&mut self, left: &mut [Departure]) -> Result<usize, Failure> {
        let failing = compared(&self.trace(left, BTreeSet::new())?);
        let (mut last, mut far) = (0, 0);
        for at in 0..left.len() {
            let passing = compared(&self.trace(&without(left, at), BTreeSet::new())?);
            let same = failing.iter().zip(&passing).take_while(|(a, b)| a.key == b.key).count();
            if same >= far {
                (last, far) = (at, same);
            }
        }
        if let Departure::Switch(switch) = &left[last] {
            let passing = self.trace(&without(left, last), BTreeSet::new())?;
            let places = later(&passing, switch);
            let moved = latest(places, |place: &ForcedSwitch| {
                let mut candidate = left.to_vec();
                candidate[last] = Departure::Switch(place.clone());
                let log = log_of(&self.log, &CONCERNS, &candidate);
                self.fails(&log)
            })?;
            if let Some(place) = moved {
                left[last] = Departure::Switch(place);
            }
        }
        Ok(last)
    }

    /// Writes what is left of the schedule to a file, if that is wanted, and says how it is run again.
    fn save(&mut self, left: &[Departure], options: &Options) -> Result<(), Failure> {
        let Some(file) = &options.save else { return Ok(()) };
        let log = log_of(&self.log, &CONCERNS, left);
        let outcome = self.runner.run_log(self.start, log.clone())?;
        saved::write(file, &log)?;
        let replay = format!("--replay {}", crate::bug::quote(&file.to_string_lossy()));
        let command = report::replay(std::env::args_os(), &replay);
        output::print(&format!(
            "saved: the narrowed schedule\n  digest: {}\n  replay: {command}\n",
            outcome.digest
        ));
        Ok(())
    }

    /// Says which departures are left, and which accesses come in another order without the last one.
    fn tell(&mut self, left: &[Departure], last: usize) -> Result<(), Failure> {
        let rest = without(left, last);
        let (failing, passing) = (self.trace(left, BTreeSet::new())?, self.trace(&rest, BTreeSet::new())?);
        let pairs = critical_pairs(&compared(&failing), &compared(&passing));
        // The access before which the task gave way, if that is one of them.
        let gave_way = failing.gave_way.last().map(|(access, _)| key(access));
        let at_switch = pairs.iter().find(|pair| Some(key(&passing.accesses[pair.second])) == gave_way);
        let pair = at_switch.or(pairs.first()).copied();
        let failing = self.trace(left, pair.iter().map(|pair| pair.first).collect())?;
        let passing = self.trace(&rest, pair.iter().map(|pair| pair.second).collect())?;
        let mut symbols = Symbols::default();
        for departure in left {
            output::print(&format!("  {}\n", describe(departure, &failing, &mut symbols)));
        }
        let Some(pair) = pair else {
            output::print(
                "no two accesses of shared memory come in another order without the last of them\n",
            );
            return Ok(());
        };
        output::print("critical pair: it fails if these two come in this order\n");
        let (first, second) = (&failing.accesses[pair.first], &passing.accesses[pair.second]);
        let sides =
            [("first", &failing, pair.first, first, second), ("then", &passing, pair.second, second, first)];
        for (word, trace, at, access, other) in sides {
            let never =
                if word == "then" && pair.late.is_none() { ", which this run does not come to" } else { "" };
            let captured = trace.captured.get(&at);
            let (words, address) = words(access, other);
            let variable = captured.and_then(|captured| symbols.variable(captured, address));
            let what = variable.map(|name| format!("{name}, ")).unwrap_or_default();
            output::print(&format!("  {word}: {words} {what}at {address:#x}{never}\n"));
            let Some(captured) = captured else { continue };
            for (number, line) in symbols.stack(captured).iter().enumerate() {
                output::print(&format!("    #{number} {line}\n"));
            }
        }
        Ok(())
    }
}

fn without(departures: &[Departure], at: usize) -> Vec<Departure> {
    departures.iter().enumerate().filter(|(n, _)| *n != at).map(|(_, departure)| departure.clone()).collect()
}

/// The accesses of a switch's task behind the one before which it gives way, as switches.
fn later(passing: &Trace, switch: &ForcedSwitch) -> Vec<ForcedSwitch> {
    let of_task =
        passing.accesses.iter().filter(|access| (switch.node, switch.life, switch.task) == access.task);
    let behind = of_task
        .skip_while(|access| (access.place.to_string(), access.nth) != (switch.place.clone(), switch.nth));
    let moved = |access: &Traced| ForcedSwitch {
        place: access.place.to_string(),
        nth: access.nth,
        torn: switch.torn && access.tears,
        ..switch.clone()
    };
    behind.skip(1).take(MOVES).map(moved).collect()
}

/// An access in words, and its address; `other`: that of the other task.
fn words(access: &Traced, other: &Traced) -> (String, u64) {
    let by_other = |memory| other.touches.iter().any(|(place, _)| place == memory);
    let shared: Vec<usize> =
        (0..access.touches.len()).filter(|at| by_other(&access.touches[*at].0)).collect();
    let write = shared.iter().any(|at| access.touches[*at].1);
    let verb = if write { "writes" } else { "reads" };
    let first = shared.first().copied().unwrap_or_default();
    let address = access.addresses.get(first).copied().unwrap_or_default();
    (format!("task {} {verb}", access.tid.number()), address)
}

/// A choice of a schedule in words.
fn chosen(site: Site, value: u64) -> String {
    match site {
        Site::Priority { task, nth: 0, .. } => format!("priority: task {task} begins with {value:#x}"),
        Site::Priority { task, nth, .. } => {
            format!("priority: task {task} goes on with {value:#x}, change {nth}")
        }
        Site::Change { task, nth, .. } => {
            format!("priority: that of task {task} changes before its call {nth}")
        }
        Site::Turn { task, nth, part: TurnPart::Who, .. } => {
            format!("turn: after turn {nth} of task {task} another one goes on, number {value} of the queue")
        }
        Site::Turn { task, nth, .. } => {
            format!("turn: the one after turn {nth} of task {task} is {value} shorter")
        }
        Site::Policy { part } => format!("policy: {part:?} {value}"),
        other => format!("choice: {other} = {value}"),
    }
}

fn describe(departure: &Departure, failing: &Trace, symbols: &mut Symbols) -> String {
    let switch = match departure {
        Departure::Choice(choice, to) => return chosen(choice.site, to.value),
        Departure::Switch(switch) => switch,
    };
    let matches = |access: &Traced| {
        access.task == (switch.node, switch.life, switch.task)
            && access.nth == switch.nth
            && access.place.to_string() == switch.place
    };
    let word = if switch.torn { "amid" } else { "before" };
    let found = failing.gave_way.iter().find(|(access, _)| matches(access));
    let place = found
        .and_then(|(access, captured)| Some((access.tid.number(), symbols.stack(captured).first()?.clone())));
    match place {
        Some((tid, line)) => format!("switch: task {tid} gives way {word} {line}"),
        None => {
            format!("switch: task {} gives way {word} {}, pass {}", switch.task, switch.place, switch.nth)
        }
    }
}

//! What happened around a moment in a failing and in a passing run: the events of both, side by side in order of time ([`around`]).

use std::collections::BTreeMap;

use bloodhound_abi::SimTime;
use bloodhound_sim::notice::Notice;
use bloodhound_sim::timeline;

use super::words;
use crate::report;
use crate::session::Outcome;

/// So many lines of both sides are shown before the moment and behind it, and so many that only one side has.
const BEFORE: usize = 6;
const BEHIND: usize = 12;
/// And around the jump.
const MOST: usize = 16;

/// Something that happened in a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at: SimTime,
    line: String,
    /// A property is violated.
    is_violation: bool,
}

/// The events of one run, in order of time.
fn events(outcome: &Outcome) -> Vec<Event> {
    let event = |(at, line)| Event { at, line, is_violation: false };
    let wanted =
        outcome.log.iter().filter(|entry| !matches!(entry.what, Notice::Refused(_) | Notice::LeftOut(_)));
    let mut events: Vec<Event> =
        wanted.map(|entry| event((entry.at, timeline::line(entry, &outcome.scenario)))).collect();
    let lines = crate::console::lines(&outcome.console, &outcome.log);
    events.extend(lines.iter().filter(|line| !line.check).map(|line| {
        let who = timeline::name(&outcome.scenario, line.node);
        event((line.at, format!("{} output   {who} | {}", line.at, report::printable(&line.text))))
    }));
    for operation in outcome.history.operations().iter() {
        let at = operation.complete.unwrap_or(outcome.virtual_time);
        let end = if operation.complete.is_some() { "" } else { ", no end" };
        let begun = operation.invoke;
        events.push(event((at, format!("{at} client   {} (begun at {begun}){end}", words::told(operation)))));
    }
    for violation in &outcome.violations {
        let (at, name) = (violation.at, &violation.property);
        let line = format!("{at} VIOLATED {name} ({})", violation.kind);
        events.push(Event { at, line, is_violation: true });
    }
    events.sort_by_key(|event| event.at);
    events
}

/// Which run an event is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Both,
    Failing,
    Passing,
}

impl Side {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Side::Both => "both",
            Side::Failing => "failing",
            Side::Passing => "passing",
        }
    }
}

/// The last events of both runs up to a moment, and those behind it which only one of them has, in the same span of virtual time.
pub fn around(failing: &Outcome, passing: &Outcome, at: SimTime) -> Vec<(Side, String)> {
    merged(&events(failing), &events(passing), at)
}

/// The events of a run in a span of time, not too many.
pub fn near(outcome: &Outcome, from: SimTime, to: SimTime) -> Vec<String> {
    let within = events(outcome).into_iter().filter(|event| (from..=to).contains(&event.at));
    let mut lines: Vec<String> = within.map(|event| event.line).collect();
    let more = lines.len().saturating_sub(MOST);
    lines.truncate(MOST);
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

fn merged(failing: &[Event], passing: &[Event], at: SimTime) -> Vec<(Side, String)> {
    let mut of_passing: BTreeMap<&Event, usize> = BTreeMap::new();
    for event in passing {
        *of_passing.entry(event).or_default() += 1;
    }
    let mut all: Vec<(SimTime, Side, &Event)> = Vec::new();
    for event in failing {
        let side = match of_passing.get_mut(event) {
            Some(count) if *count > 0 => {
                *count -= 1;
                Side::Both
            }
            _ => Side::Failing,
        };
        all.push((event.at, side, event));
    }
    for (event, count) in of_passing {
        all.extend(std::iter::repeat_n((event.at, Side::Passing, event), count));
    }
    all.sort_by_key(|(time, side, _)| (*time, *side == Side::Passing));
    let before: Vec<_> = all.iter().filter(|(time, side, _)| *time < at && *side == Side::Both).collect();
    let mut out: Vec<(Side, String)> = before[before.len().saturating_sub(BEFORE)..]
        .iter()
        .map(|(_, side, event)| (*side, event.line.clone()))
        .collect();
    // The same span of time for both sides: up to where the first of them has told enough.
    let differing = |wanted: Side| {
        let mut own = all.iter().filter(move |(_, side, _)| *side == wanted).map(|(time, ..)| *time);
        own.nth(BEHIND)
    };
    let ends = [differing(Side::Failing), differing(Side::Passing)];
    let end = ends.into_iter().flatten().min().unwrap_or(SimTime::MAX);
    let mut of_both = BEFORE;
    for (time, side, event) in all.iter().filter(|(time, side, _)| *time >= at || *side != Side::Both) {
        let violated = *side == Side::Failing && event.is_violation;
        let shown = *time < end && (*side != Side::Both || of_both > 0);
        if *side == Side::Both {
            of_both = of_both.saturating_sub(1);
        }
        if violated && *time >= end {
            out.push((*side, "...".into()));
        }
        if shown || violated {
            out.push((*side, event.line.clone()));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at: u64, line: &str) -> Event {
        Event { at: SimTime(at), line: line.to_owned(), is_violation: false }
    }

    fn violation(at: u64) -> Event {
        Event { is_violation: true, ..event(at, "x VIOLATED p") }
    }

    fn run(text: &[(u64, &str)]) -> Vec<Event> {
        text.iter().map(|(at, line)| event(*at, line)).collect()
    }

    #[test]
    fn what_only_one_side_has_is_told_apart() {
        let mut failing = run(&[(1, "a"), (2, "b"), (5, "lost"), (6, "c")]);
        failing.push(violation(9));
        let passing = run(&[(1, "a"), (2, "b"), (5, "arrives"), (6, "c")]);
        let told = merged(&failing, &passing, SimTime(4));
        let told: Vec<(&str, &str)> = told.iter().map(|(side, line)| (side.name(), line.as_str())).collect();
        let wanted = [
            ("both", "a"),
            ("both", "b"),
            ("failing", "lost"),
            ("passing", "arrives"),
            ("both", "c"),
            ("failing", "x VIOLATED p"),
        ];
        assert_eq!(told, wanted);
    }

    #[test]
    fn long_runs_are_cut_and_the_violation_stays() {
        let many: Vec<Event> = (0..100).map(|at| event(at, &format!("f{at}"))).collect();
        let failing =
            [many, vec![event(150, "x output   one | it VIOLATED nothing"), violation(200)]].concat();
        let told = merged(&failing, &[], SimTime(50));
        assert!(told.len() <= 2 * BEFORE + 2 * BEHIND + 2, "{told:?}");
        assert_eq!(told.last().map(|(_, line)| line.as_str()), Some("x VIOLATED p"));
        assert!(
            told.iter().all(|(_, line)| !line.contains("nothing")),
            "a service's words are no violation: {told:?}"
        );
    }

    #[test]
    fn as_many_lines_of_both_are_told_behind_the_moment_as_before() {
        let same: Vec<Event> = (0..100).map(|at| event(at, &format!("b{at}"))).collect();
        let told = merged(&same, &same, SimTime(50));
        let wanted: Vec<(Side, String)> = (44..56).map(|at| (Side::Both, format!("b{at}"))).collect();
        assert_eq!((told.len(), told), (2 * BEFORE, wanted));
    }
}

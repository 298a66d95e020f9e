//! What one seed says about each property: violated, held, or neither; and whether anything could have violated it.
//!
//! Key types: [`Judged`], [`Exercise`], and [`Seen`], what a run shows to a judge. A property that nothing could have violated has not been tested: a campaign counts it
//! as such (`campaign::verdict`).

use std::collections::BTreeSet;

use bloodhound_abi::SimTime;
use bloodhound_net::NodeId;
use bloodhound_sim::World;
use bloodhound_sim::checks::{Action, CheckState, Verdict};
use bloodhound_sim::scenario::Scenario;
use bloodhound_sim::services::State;
use bloodhound_sim::world::{Finding, FindingKind};
use bloodhound_workloads::history::{Call, History, Operation, Outcome, Value};
use bloodhound_workloads::linearizability::{self, Budget};
use serde::{Deserialize, Serialize};

use crate::plan::{Judge, Property};
use crate::report::ns;

/// What a seed says about a property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judged {
    /// Nothing violated it from beginning to end.
    Held(Exercise),
    /// It was violated; when and how.
    Violated(#[serde(with = "ns")] SimTime, String),
    /// There is no telling, and why.
    Undecided(String),
    /// The run ended before its time, and had not violated it until then.
    Unfinished,
}

/// What was done in a seed that could have violated a property.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exercise {
    /// What is counted.
    pub unit: Unit,
    /// How many were tried.
    pub tried: u64,
    /// How many of them worked, or had an answer.
    pub worked: u64,
    /// What was lacking although some worked; or all that is to be said, where nothing is counted.
    pub lacking: Option<String>,
    /// Why the first that did not work did not.
    pub first: Option<String>,
}

/// What an [`Exercise`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Operations of clients.
    Operations,
    /// Requests of a check.
    Requests,
    /// Runs of a script.
    Scripts,
    /// Services.
    Services,
}

impl Exercise {
    /// Whether something could have violated the property.
    pub fn done(&self) -> bool {
        self.worked > 0 && self.lacking.is_none()
    }

    /// Why it was not exercised: `0 of 1,490 operations succeeded, first: connection refused`.
    pub fn why_not(&self) -> String {
        let (worked, tried) = (thousands(self.worked), thousands(self.tried));
        let counted = match self.unit {
            Unit::Operations => format!("{worked} of {tried} operations succeeded"),
            Unit::Requests => format!("{worked} of {tried} requests had an answer"),
            Unit::Scripts => format!("{worked} of {tried} runs of the script came to an exit code"),
            Unit::Services => String::new(),
        };
        let lacking = self.lacking.clone().into_iter();
        let first = self.first.iter().map(|why| format!("first: {why}"));
        let parts: Vec<String> =
            Some(counted).filter(|c| !c.is_empty()).into_iter().chain(lacking).chain(first).collect();
        parts.join(", ")
    }
}

/// A number as people read it: `1,490`.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// What there is to be seen of a run, in the simulation or on a real engine.
#[derive(Clone, Debug)]
pub struct Seen<'a> {
    /// The checks of the scenario.
    pub checks: &'a [CheckState],
    /// What was found beside properties.
    pub findings: &'a [Finding],
    /// When the services were ready.
    pub ready: SimTime,
    /// When the run was over.
    pub now: SimTime,
    /// The services that ran when it began, or started again in it.
    pub ran: BTreeSet<NodeId>,
}

impl<'a> Seen<'a> {
    /// Of a world.
    pub fn of(world: &'a World) -> Seen<'a> {
        let ready = world.ready_at.unwrap_or_default();
        let now =
            world.services.iter().filter(|(_, s)| matches!(s.state, State::Running(_) | State::Crashed));
        let told = world.log.iter().filter(|e| e.at > ready).filter_map(|e| e.node);
        let ran = now.map(|(id, _)| *id).chain(told).collect();
        Seen { checks: &world.checks, findings: &world.findings, ready, now: world.now, ran }
    }
}

/// Judges a property over a run. `finished`: the run came to its end; else only a violation counts.
pub fn judge(
    property: &Property,
    seen: &Seen<'_>,
    scenario: &Scenario,
    history: &History,
    finished: bool,
) -> Judged {
    let judged = match &property.judge {
        Judge::Linearizable { operations, model } => {
            let wanted = history.filtered(|o| operations.iter().any(|n| n == operation_name(&o.call)));
            match linearizability::check(&wanted, *model, Budget::default()) {
                Ok(linearizability::Verdict::Violation(v)) => {
                    Judged::Violated(v.culprit.complete.unwrap_or(v.culprit.invoke), v.to_string())
                }
                Ok(linearizability::Verdict::Linearizable { .. }) => Judged::Held(operated(&wanted)),
                Ok(other) => Judged::Undecided(other.to_string()),
                Err(e) => Judged::Undecided(e.to_string()),
            }
        }
        Judge::Check(index) => check(seen, scenario, *index),
        Judge::Healthy(indices) => healthy(seen, scenario, indices),
        Judge::NoCrash(nodes) => no_crash(seen, scenario, nodes),
    };
    match judged {
        Judged::Violated(..) => judged,
        _ if !finished => Judged::Unfinished,
        judged => judged,
    }
}

/// The name that a configuration has for an operation.
pub fn operation_name(call: &Call) -> &str {
    match call {
        Call::Read => "get",
        Call::Write(_) => "put",
        Call::Delete => "delete",
        Call::Cas { .. } => "cas",
        Call::Other(name) => name,
    }
}

/// A history can contradict itself only if something took effect and somebody looked.
fn operated(history: &History) -> Exercise {
    let all = history.operations();
    let changes = |o: &&Operation| !matches!(o.call, Call::Read | Call::Other(_));
    // A delete that found nothing has changed nothing.
    let changed = |o: &Operation| match (&o.call, &o.outcome) {
        (Call::Write(_) | Call::Cas { .. }, Outcome::Ok(_)) => true,
        (Call::Delete, Outcome::Ok(found)) => *found != Value::Bool(false),
        _ => false,
    };
    let looked = |o: &Operation| match (&o.call, &o.outcome) {
        (Call::Read | Call::Cas { .. }, Outcome::Ok(_)) | (Call::Cas { .. }, Outcome::Mismatch) => true,
        (Call::Delete, Outcome::Ok(found)) => matches!(found, Value::Bool(_)),
        _ => false,
    };
    let worked = |o: &&Operation| matches!(o.outcome, Outcome::Ok(_));
    let succeeded = all.iter().filter(worked).count() as u64;
    let lacking = if succeeded == 0 {
        None
    } else if !all.iter().any(looked) {
        Some("no read returned".to_owned())
    } else if all.iter().any(|o| changes(&o)) && !all.iter().any(changed) {
        Some("no write, cas or delete among them".to_owned())
    } else {
        None
    };
    let silent = |o: &&Operation| !worked(o);
    let first = all.iter().filter(silent).find_map(|o| o.error.clone());
    Exercise { unit: Unit::Operations, tried: all.len() as u64, worked: succeeded, lacking, first }
}

fn check(seen: &Seen<'_>, scenario: &Scenario, index: usize) -> Judged {
    let state = &seen.checks[index];
    let unit = match scenario.checks[index].action {
        Action::Http { .. } => Unit::Requests,
        Action::Script { .. } => Unit::Scripts,
    };
    let exercise = Exercise {
        unit,
        tried: state.asked,
        worked: state.answered,
        lacking: (state.asked == 0).then(|| "the run was over before the first".to_owned()),
        first: state.unanswered.clone(),
    };
    match &state.verdict {
        Verdict::Failed(at, why) => Judged::Violated(*at, why.clone()),
        Verdict::Passed(_) => Judged::Held(exercise),
        Verdict::Impossible(why) => Judged::Undecided(why.clone()),
        // Nothing to find fault with: so it is with an invariant that nobody answered.
        Verdict::Open if exercise.worked == 0 => Judged::Held(exercise),
        Verdict::Open => Judged::Undecided("the run ended before the check had its answer".into()),
    }
}

/// Of all health checks: one that failed is enough for a violation, and all must have been asked.
fn healthy(seen: &Seen<'_>, scenario: &Scenario, indices: &[usize]) -> Judged {
    let lacking = indices.is_empty().then(|| "none of its services has a health check".to_owned());
    let mut all = Exercise { unit: Unit::Scripts, tried: 0, worked: 0, lacking, first: None };
    let mut undecided = None;
    let mut first: Option<(SimTime, String)> = None;
    for index in indices {
        let name = &scenario.checks[*index].name;
        match check(seen, scenario, *index) {
            Judged::Violated(at, why) if first.as_ref().is_none_or(|(earliest, _)| at < *earliest) => {
                first = Some((at, format!("{name}: {why}")));
            }
            Judged::Violated(..) | Judged::Unfinished => {}
            Judged::Undecided(why) => undecided = undecided.or(Some(format!("{name}: {why}"))),
            Judged::Held(one) => {
                all.tried += one.tried;
                all.worked += one.worked;
                all.first = all.first.or(one.first);
                if one.worked == 0 {
                    all.lacking = all.lacking.or(Some(format!("{name}: never answered")));
                }
            }
        }
    }
    match (first, undecided) {
        (Some((at, why)), _) => Judged::Violated(at, why),
        (None, Some(why)) => Judged::Undecided(why),
        (None, None) => Judged::Held(all),
    }
}

fn no_crash(seen: &Seen<'_>, scenario: &Scenario, nodes: &[NodeId]) -> Judged {
    let crash = |f: &&Finding| f.kind == FindingKind::Crash && f.node.is_some_and(|n| nodes.contains(&n));
    if let Some(f) = seen.findings.iter().find(crash) {
        return Judged::Violated(f.at, f.text.clone());
    }
    // One that ended before the run began cannot crash in it.
    let worked = nodes.iter().filter(|id| seen.ran.contains(id)).count() as u64;
    let lacking = if nodes.is_empty() {
        Some("it has no services".to_owned())
    } else if seen.now <= seen.ready {
        Some(
            "the run was over as soon as its services were ready: it has neither a workload nor faults nor checks \
             that take time"
                .to_owned(),
        )
    } else if worked == 0 {
        let names = scenario.services.iter().filter(|s| nodes.contains(&s.node)).map(|s| s.name.as_str());
        let names: Vec<&str> = names.collect();
        Some(format!("none of its services ran any more when the run began: {}", names.join(", ")))
    } else {
        None
    };
    Judged::Held(Exercise { unit: Unit::Services, tried: nodes.len() as u64, worked, lacking, first: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(operations: &[(Call, Outcome)]) -> History {
        let mut history = History::new();
        for (at, (call, outcome)) in operations.iter().enumerate() {
            let at = SimTime(at as u64 * 10);
            let id = history.invoke(1, Some("key".into()), call.clone(), at);
            let error = (!matches!(outcome, Outcome::Ok(_))).then(|| "connection refused".to_owned());
            history.complete(id, outcome.clone(), SimTime(at.0 + 5), error);
        }
        history
    }

    fn text(value: &str) -> Value {
        Value::Text(value.into())
    }

    #[test]
    fn operations_exercise_if_something_changed_and_somebody_looked() {
        let put = (Call::Write(text("a")), Outcome::Ok(Value::Nil));
        let lost = (Call::Write(text("a")), Outcome::Unknown);
        let get = (Call::Read, Outcome::Ok(text("a")));
        let refused = (Call::Read, Outcome::Fail);
        let absent = (Call::Delete, Outcome::Ok(Value::Bool(false)));
        let cas = |outcome| (Call::Cas { expected: text("a"), new: text("b") }, outcome);
        let of = |list: &[(Call, Outcome)]| operated(&history(list));
        for list in [
            vec![put.clone(), get.clone()],
            vec![cas(Outcome::Ok(Value::Nil)), refused.clone()],
            vec![put.clone(), cas(Outcome::Mismatch)],
            vec![put.clone(), absent.clone()],
            vec![get.clone()],
        ] {
            assert!(of(&list).done(), "{list:?}");
        }
        let none = of(&[refused.clone(), lost.clone()]);
        assert_eq!(none.why_not(), "0 of 2 operations succeeded, first: connection refused");
        assert_eq!(of(&[]).why_not(), "0 of 0 operations succeeded");
        let blind = of(&[put, refused.clone()]);
        assert_eq!(
            blind.why_not(),
            "1 of 2 operations succeeded, no read returned, first: connection refused"
        );
        // A server that answers 404 to everything.
        let nothing = of(&[(Call::Read, Outcome::Ok(Value::Nil)), absent, lost]);
        assert_eq!(
            nothing.why_not(),
            "2 of 3 operations succeeded, no write, cas or delete among them, first: connection refused"
        );
        assert!(![none, blind, nothing].iter().any(Exercise::done));
    }

    #[test]
    fn numbers_have_commas() {
        let numbers = [0, 12, 999, 1490, 1_000_000].map(thousands);
        assert_eq!(numbers, ["0", "12", "999", "1,490", "1,000,000"]);
    }
}

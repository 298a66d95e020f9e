//! Which failures are one: [`Group`]. A run fails in the same way if it violates the same property of the same kind, and says so in the same shape.
//!
//! Neighbours: [`crate::shrink`] looks for a smaller run that fails in the same way, [`crate::regress`] keeps cases by it, campaigns tell by it what is new.

use serde::{Deserialize, Serialize};

use crate::finding::Record;
use crate::judge::Judged;
use crate::plan::Property;
use crate::session::{Outcome, Stopped, Violation};

/// Findings that are one failure.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Group {
    /// The property, or the kind of a finding of the machine.
    pub property: String,
    /// Its kind.
    pub kind: String,
    /// [`shape`] of the text.
    pub shape: String,
}

impl Group {
    /// The failure of a finding.
    pub fn of(record: &Record) -> Group {
        let (property, kind) = (record.property.clone(), record.kind.clone());
        Group { property, kind, shape: shape(&record.text) }
    }

    /// The failure of a violation, as the record of its finding would have it.
    pub fn of_violation(violation: &Violation) -> Group {
        let shape = shape(&crate::redact::text(&violation.text));
        Group { property: violation.property.clone(), kind: violation.kind.clone(), shape }
    }

    /// How a run fails in the same way, if it does. One that was not brought to its end does not: nothing is known of it.
    pub fn violated<'a>(&self, outcome: &'a Outcome) -> Option<&'a Violation> {
        if matches!(outcome.stopped, Some(Stopped::Interrupted | Stopped::Undecided(_))) {
            return None;
        }
        outcome.violations.iter().find(|violation| Group::of_violation(violation) == *self)
    }

    /// Why a run that came to its end without this failure does not pass, if so: what it says about the properties of its plan, in their order.
    pub fn unjudged(&self, properties: &[Property], judged: &[Judged]) -> Option<String> {
        let is_own = |property: &Property| property.name == self.property && property.kind == self.kind;
        match properties.iter().zip(judged).find(|(property, _)| is_own(property)) {
            Some((_, Judged::Held(_) | Judged::Violated(..))) => None,
            Some((_, Judged::Undecided(why))) => Some(why.clone()),
            Some((_, Judged::Unfinished)) => Some("it was not judged to its end".into()),
            // The machine looks for its own kinds of failures in every run.
            None if self.property == self.kind => None,
            None => Some(format!("there is no property {} ({}) any more", self.property, self.kind)),
        }
    }
}

impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}): {}", self.property, self.kind, self.shape)
    }
}

/// Words behind which a number is a name and no amount: how a process ended, what a server answered.
const NAMING: [&str; 4] = ["code", "status", "signal", "HTTP"];

/// The first line of the text of a violation, with `#` for each number, as it stands also for another node, key or time. Exit codes and the like stay.
pub fn shape(text: &str) -> String {
    let mut out = String::new();
    let mut named = false;
    for letter in text.lines().next().unwrap_or_default().chars() {
        if !letter.is_ascii_digit() {
            out.push(letter);
            let before = out.strip_suffix([' ', '=', ':']).map(|text| text.trim_end_matches([' ', '=', ':']));
            named = before.is_some_and(|text| NAMING.iter().any(|word| text.ends_with(word)));
        } else if named {
            out.push(letter);
        } else if !out.ends_with('#') {
            out.push('#');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use bloodhound_abi::SimTime;

    use super::*;
    use crate::judge::{Exercise, Unit};
    use crate::plan::Judge;

    #[test]
    fn only_what_was_judged_to_its_end_passes() {
        let property = |name: &str, kind| Property {
            name: name.into(),
            kind,
            line: 1,
            judge: Judge::NoCrash(Default::default()),
        };
        let properties =
            [property("other", "safety"), property("stays", "liveness"), property("stays", "safety")];
        let held = || {
            let (lacking, first) = (None, None);
            Judged::Held(Exercise { unit: Unit::Services, tried: 1, worked: 1, lacking, first })
        };
        let group = |property: &str, kind: &str| Group {
            property: property.into(),
            kind: kind.into(),
            shape: "it ended".into(),
        };
        let says = |group: &Group, last: Judged| {
            group.unjudged(&properties, &[held(), Judged::Undecided("another one".into()), last])
        };
        let stays = group("stays", "safety");
        assert_eq!(says(&stays, held()), None);
        assert_eq!(says(&stays, Judged::Violated(SimTime(1), "in another way".into())), None);
        assert_eq!(says(&stays, Judged::Undecided("too long".into())), Some("too long".into()));
        assert_eq!(says(&stays, Judged::Unfinished), Some("it was not judged to its end".into()));
        for gone in [group("stays", "invariant"), group("gone", "safety")] {
            assert!(says(&gone, held()).is_some_and(|why| why.contains("there is no property")), "{gone}");
        }
        assert_eq!(says(&group("deadlock", "deadlock"), held()), None, "of the machine");
    }

    #[test]
    fn shapes_have_no_numbers() {
        assert_eq!(
            shape("not linearizable: key \"key-12\" as a kv\n  no order"),
            "not linearizable: key \"key-#\" as a kv"
        );
        assert_eq!(shape("kv2 ended: killed by SIGSEGV"), shape("kv1 ended: killed by SIGSEGV"));
        assert_ne!(shape("kv2 ended: killed by SIGSEGV"), shape("kv2 ended: killed by SIGABRT"));
    }

    #[test]
    fn how_a_process_ended_is_no_number() {
        assert_ne!(shape("kv1 ended: exit code 1"), shape("kv1 ended: exit code 137"));
        assert_eq!(shape("kv1 ended: exit code 1 after 5 s"), "kv# ended: exit code 1 after # s");
        assert_ne!(shape("answered with status 500"), shape("answered with status: 404"));
        assert_eq!(shape("status of 3 keys"), "status of # keys");
        assert_eq!(shape("code"), "code");
    }
}

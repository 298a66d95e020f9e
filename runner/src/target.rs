//! Which failure is searched for, by `shrink` and `causes`: [`Target`]. A run fails in the same way if it violates the same property of the same kind, and says so in the same shape.

use crate::finding::Record;
use crate::session::{Outcome, Stopped, Violation};

/// What a run must do to count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    property: String,
    kind: String,
    shape: String,
}

impl Target {
    /// The failure of a finding.
    pub fn of(record: &Record) -> Target {
        Target { property: record.property.clone(), kind: record.kind.clone(), shape: shape(&record.text) }
    }

    /// Whether it is about the property of this name.
    pub fn is_of(&self, property: &str) -> bool {
        self.property == property
    }

    /// How a run fails in the same way, if it does. One that was not brought to its end does not: nothing is known of it.
    pub fn violated<'a>(&self, outcome: &'a Outcome) -> Option<&'a Violation> {
        if matches!(outcome.stopped, Some(Stopped::Interrupted | Stopped::Undecided(_))) {
            return None;
        }
        outcome.violations.iter().find(|violation| {
            violation.property == self.property
                && violation.kind == self.kind
                // As the record has it.
                && shape(&crate::redact::text(&violation.text)) == self.shape
        })
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}): {}", self.property, self.kind, self.shape)
    }
}

/// The first line of the text of a violation, with `#` for each number, as it stands also for another node, key or time.
fn shape(text: &str) -> String {
    let mut out = String::new();
    for letter in text.lines().next().unwrap_or_default().chars() {
        match letter.is_ascii_digit() {
            true if out.ends_with('#') => {}
            true => out.push('#'),
            false => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_no_numbers() {
        assert_eq!(
            shape("not linearizable: key \"key-12\" as a kv\n  no order"),
            "not linearizable: key \"key-#\" as a kv"
        );
        assert_eq!(shape("kv2 ended: killed by SIGSEGV"), shape("kv1 ended: killed by SIGSEGV"));
        assert_ne!(shape("kv2 ended: killed by SIGSEGV"), shape("kv2 ended: killed by SIGABRT"));
    }
}

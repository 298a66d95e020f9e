//! What a run reached, as a set of hashes: kinds of lines that services wrote, what happened to them, and how operations ended.
//!
//! A line's kind is its template ([`Templates`]). So two runs that wrote the same lines with other times and ids have the same features.

use std::collections::BTreeSet;

use bloodhound_abi::digest::content;
use bloodhound_sim::notice::Notice;

use crate::console;
use crate::guidance::mix;
use crate::guidance::template::Templates;
use crate::session::Outcome;

/// What features are: those of another version cannot be compared.
pub const VERSION: u32 = 2;

/// The features of a run.
pub fn features(outcome: &Outcome) -> BTreeSet<u64> {
    let mut features = BTreeSet::new();
    for line in console::lines(&outcome.console, &outcome.log).iter().filter(|line| !line.check) {
        features.insert(hash(&["line", &line.node.0.to_string(), &shape(&line.text)]));
    }
    for entry in &outcome.log {
        let node = entry.node.map_or_else(String::new, |node| node.0.to_string());
        match &entry.what {
            Notice::Fault(planned) => {
                features.insert(hash(&["fault", &node, planned.id.kind.name()]));
            }
            Notice::Service(change) => {
                features.insert(hash(&["service", &node, &shape(&format!("{change:?}"))]));
            }
            _ => {}
        }
    }
    for operation in outcome.history.operations() {
        let why = operation.error.as_deref().map(shape).unwrap_or_default();
        // The kind of outcome, without what was read.
        let how = format!("{:?}", operation.outcome);
        let how = how.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
        features.insert(hash(&["operation", operation.call.name(), how, &why]));
    }
    features
}

/// What a property's violation counts as.
pub fn violation(property: &str, kind: &str) -> u64 {
    hash(&["violated", property, kind])
}

/// Bytes of a line that count.
const LONGEST: usize = 160;

/// The template of the beginning of a text.
fn shape(text: &str) -> String {
    let mut out = Vec::new();
    let end = text.floor_char_boundary(LONGEST);
    Templates::default().of(&text.as_bytes()[..end], &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

fn hash(parts: &[&str]) -> u64 {
    parts.iter().fold(0, |hash, part| mix(hash, content(part.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_no_part_of_a_line() {
        assert_eq!(
            shape("term 12: voted for n3 at 0x7ffe12 (12.5ms)"),
            shape("term 9: voted for n1 at 0x1 (1.25ms)")
        );
        assert_ne!(shape("became leader"), shape("became follower"));
        assert!(shape(&"word ".repeat(1000)).len() < 200);
    }

    #[test]
    fn parts_are_told_apart() {
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
        assert_ne!(violation("a", "safety"), violation("a", "liveness"));
    }
}

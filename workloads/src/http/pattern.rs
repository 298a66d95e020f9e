//! Texts with placeholders, and their filling.

use bloodhound_decisions::{Decisions, Site, Word};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// A piece of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Stays as it is.
    Literal(String),
    /// A number from `min` to `max`, drawn anew at each use.
    Random {
        /// Smallest number.
        min: u64,
        /// Largest number.
        max: u64,
    },
    /// The number of the operation in the run, from 1.
    Seq,
    /// A random UUID, version 4.
    Uuid,
    /// The number of the worker, from 0.
    Client,
    /// The operation's key.
    Key,
    /// The value that the operation writes.
    Value,
    /// The value that a cas expects.
    Old,
    /// The value that a cas writes.
    New,
}

/// A text with placeholders.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Pattern(pub Vec<Part>);

impl Pattern {
    /// A text without placeholders.
    pub fn literal(text: &str) -> Pattern {
        Pattern(vec![Part::Literal(text.to_owned())])
    }

    /// The text with its placeholders filled in; `escape` is applied to what they put in. `field` says what the text is for.
    pub(super) fn fill(
        &self,
        with: &Fill<'_>,
        field: Word,
        decisions: &mut Decisions,
        escape: fn(&str) -> String,
    ) -> String {
        let mut out = String::new();
        for (at, part) in self.0.iter().enumerate() {
            let site = with.site(field, at as u32);
            match part {
                Part::Literal(text) => out.push_str(text),
                Part::Random { min, max } => {
                    out.push_str(&decisions.between(site, *min, (*max).max(*min)).to_string());
                }
                Part::Seq => out.push_str(&with.seq.to_string()),
                Part::Uuid => out.push_str(&uuid(site, decisions)),
                Part::Client => out.push_str(&with.worker.to_string()),
                Part::Key => out.push_str(&escape(with.key)),
                Part::Value | Part::New => out.push_str(&escape(with.value)),
                Part::Old => out.push_str(&escape(with.old)),
            }
        }
        out
    }
}

/// What placeholders stand for in one operation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fill<'a> {
    pub(super) seq: u64,
    pub(super) worker: u32,
    /// How many operations the worker has begun before.
    pub(super) nth: u64,
    pub(super) key: &'a str,
    pub(super) value: &'a str,
    pub(super) old: &'a str,
}

impl Fill<'_> {
    /// The choice for a place in a field of the operation.
    pub(super) fn site(&self, field: Word, part: u32) -> Site {
        Site::Operation { worker: self.worker, nth: self.nth, field, part }
    }
}

/// RFC 9562, section 5.4: random but for the version (4) and the variant (10).
fn uuid(site: Site, decisions: &mut Decisions) -> String {
    let mut bytes = [0; 16];
    decisions.bytes(site, &mut bytes);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Leaves a placeholder's text as it is.
pub(super) fn plain(text: &str) -> String {
    text.to_owned()
}

/// Percent-encodes all but RFC 3986's unreserved characters.
pub(super) fn percent_encode(text: &str) -> String {
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(text, RESERVED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Word = Word::new("key");

    #[test]
    fn placeholders_are_filled_in_and_escaped() {
        let with = Fill { seq: 7, worker: 2, nth: 3, key: "a/b c", value: "v", old: "o" };
        let parts = vec![
            Part::Literal("/x/".to_owned()),
            Part::Key,
            Part::Literal("?".to_owned()),
            Part::Seq,
            Part::Client,
            Part::Value,
            Part::Old,
            Part::Random { min: 5, max: 5 },
        ];
        let filled = Pattern(parts).fill(&with, KEY, &mut Decisions::seeded(1), percent_encode);
        assert_eq!(filled, "/x/a%2Fb%20c?72vo5");
        let uuid = Pattern(vec![Part::Uuid]).fill(&with, KEY, &mut Decisions::seeded(1), plain);
        assert_eq!((uuid.len(), &uuid[14..15]), (36, "4"));
    }

    #[test]
    fn random_numbers_cover_their_range() {
        let pattern = Pattern(vec![Part::Random { min: 1, max: 3 }]);
        let mut decisions = Decisions::seeded(1);
        let mut seen: Vec<String> = (0..50)
            .map(|nth| pattern.fill(&Fill { nth, ..Fill::default() }, KEY, &mut decisions, plain))
            .collect();
        seen.sort();
        seen.dedup();
        assert_eq!(seen, ["1", "2", "3"]);
    }
}

//! Text patterns with placeholders: keys, values and parts of requests.
//!
//! Key types: [`Pattern`], [`Part`]. `{name}` or `{name:arguments}` is a placeholder, `{{` a literal brace; a
//! brace that no known form follows stays as it is, so that JSON bodies need no escapes. The workload's driver
//! fills patterns in.

use crate::diagnostic::{Code, listed};
use crate::suggest::nearest;

/// A piece of a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Text that stays as it is.
    Literal(String),
    /// `{random:1-10000}`: a number drawn anew for each operation, both bounds included.
    Random {
        /// Smallest number.
        min: u64,
        /// Largest number.
        max: u64,
    },
    /// `{seq}`: 1, 2, 3 and so on over all operations of the run; no two operations get the same number.
    Seq,
    /// `{uuid}`: a random UUID (version 4), drawn from the seed.
    Uuid,
    /// `{client}`: the number of the sequential worker that runs the operation, from 0.
    Client,
    /// `{key}`: the operation's key.
    Key,
    /// `{value}`: the value that the operation writes.
    Value,
    /// `{old}`: the value that a cas expects.
    Old,
    /// `{new}`: the value that a cas writes.
    New,
}

/// A text with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// As written in the file.
    pub text: String,
    /// Its pieces in order.
    pub parts: Vec<Part>,
}

/// Which placeholders a pattern may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatternUse {
    /// A key: `random`, `seq`, `uuid`, `client`.
    Key,
    /// A value: those and `key`.
    Value,
    /// A part of a request: those and `value`, `old`, `new`.
    Request,
}

impl PatternUse {
    fn names(self) -> &'static [&'static str] {
        const ALL: &[&str] = &["random", "seq", "uuid", "client", "key", "value", "old", "new"];
        match self {
            PatternUse::Key => &ALL[..4],
            PatternUse::Value => &ALL[..5],
            PatternUse::Request => ALL,
        }
    }
}

/// What is wrong with a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError {
    /// The kind of mistake.
    pub code: Code,
    /// In words.
    pub message: String,
    /// The whole pattern with the mistake put right, if that can be guessed.
    pub suggestion: Option<String>,
}

impl Pattern {
    /// Parses a pattern.
    pub fn parse(text: &str, usage: PatternUse) -> Result<Pattern, PatternError> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            let (before, from) = rest.split_at(open);
            literal.push_str(before);
            let inner = &from[1..];
            if let Some(after) = inner.strip_prefix('{') {
                literal.push('{');
                rest = after;
                continue;
            }
            let Some((name, arguments, after)) = placeholder(inner) else {
                literal.push('{');
                rest = inner;
                continue;
            };
            let part = part(text, name, arguments, usage)?;
            if !literal.is_empty() {
                parts.push(Part::Literal(std::mem::take(&mut literal)));
            }
            parts.push(part);
            rest = after;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Literal(literal));
        }
        Ok(Pattern { text: text.to_owned(), parts })
    }

    /// Whether two operations can never get the same text.
    pub fn is_unique(&self) -> bool {
        self.parts.iter().any(|part| matches!(part, Part::Seq | Part::Uuid))
    }
}

/// Splits `name}rest` or `name:arguments}rest`; `None` if the text has neither form.
fn placeholder(inner: &str) -> Option<(&str, Option<&str>, &str)> {
    let end = inner.find(|c: char| !c.is_ascii_lowercase() && c != '_').filter(|end| *end > 0)?;
    let (name, tail) = inner.split_at(end);
    if let Some(after) = tail.strip_prefix('}') {
        return Some((name, None, after));
    }
    let (arguments, after) = tail.strip_prefix(':')?.split_once('}')?;
    Some((name, Some(arguments), after))
}

fn part(text: &str, name: &str, arguments: Option<&str>, usage: PatternUse) -> Result<Part, PatternError> {
    let names = usage.names();
    if !names.contains(&name) {
        let meant = nearest(name, names).map(|known| text.replacen(name, known, 1));
        return Err(PatternError {
            code: Code::UnknownValue,
            message: format!("unknown placeholder `{{{name}}}`; allowed here: {}", listed(names, "and")),
            suggestion: meant,
        });
    }
    if name == "random" {
        return random(arguments);
    }
    if arguments.is_some() {
        return Err(malformed(format!("`{{{name}}}` takes no arguments")));
    }
    Ok(match name {
        "seq" => Part::Seq,
        "uuid" => Part::Uuid,
        "client" => Part::Client,
        "key" => Part::Key,
        "value" => Part::Value,
        "old" => Part::Old,
        _ => Part::New,
    })
}

fn random(arguments: Option<&str>) -> Result<Part, PatternError> {
    let form = || malformed("`random` needs two whole numbers: `{random:1-10000}`");
    let (min, max) = arguments.and_then(|a| a.split_once('-')).ok_or_else(form)?;
    let number = |text: &str| text.trim().parse::<u64>().map_err(|_| form());
    let (min, max) = (number(min)?, number(max)?);
    if min > max {
        return Err(PatternError {
            code: Code::ReversedRange,
            message: format!("the range {min}-{max} ends before it begins"),
            suggestion: None,
        });
    }
    Ok(Part::Random { min, max })
}

fn malformed(message: impl Into<String>) -> PatternError {
    PatternError { code: Code::Malformed, message: message.into(), suggestion: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_recognised() {
        let p = Pattern::parse("key-{random:1-10000}/{seq}", PatternUse::Key).unwrap();
        assert_eq!(
            p.parts,
            [
                Part::Literal("key-".to_owned()),
                Part::Random { min: 1, max: 10_000 },
                Part::Literal("/".to_owned()),
                Part::Seq
            ]
        );
        assert!(p.is_unique());
        assert!(!Pattern::parse("{random:1-2}", PatternUse::Key).unwrap().is_unique());
    }

    #[test]
    fn json_needs_no_escapes() {
        let p = Pattern::parse(r#"{"old":"{old}","new":{"a":1}}"#, PatternUse::Request).unwrap();
        assert_eq!(p.parts[1], Part::Old);
        assert_eq!(p.parts[2], Part::Literal(r#"","new":{"a":1}}"#.to_owned()));
        let p = Pattern::parse("{{seq}", PatternUse::Key).unwrap();
        assert_eq!(p.parts, [Part::Literal("{seq}".to_owned())]);
    }

    #[test]
    fn mistakes_are_explained() {
        let wrong = |text| Pattern::parse(text, PatternUse::Key).unwrap_err();
        assert_eq!(wrong("k-{randm:1-2}").suggestion.as_deref(), Some("k-{random:1-2}"));
        assert_eq!(wrong("{random:9-1}").code, Code::ReversedRange);
        assert_eq!(wrong("{random}").code, Code::Malformed);
        assert_eq!(wrong("{random:1}").code, Code::Malformed);
        assert_eq!(wrong("{seq:1}").code, Code::Malformed);
        assert_eq!(wrong("{value}").code, Code::UnknownValue);
    }
}

//! From tree nodes to plain values, with a diagnostic at the place of everything that does not fit.
//!
//! Key types: [`Ctx`] (collects diagnostics of one file), [`Fields`] (a mapping whose keys are checked against
//! the known ones), [`Located`] (a value that keeps its place). Neighbours: `tree` below, `config` and
//! `compose` above. A decoder returns `None` after it has reported why, so that decoding goes on elsewhere.

use std::path::PathBuf;

use bloodhound_declare::Words;

use crate::diagnostic::{Code, Diagnostic, Place, Severity, listed, quoted};
use crate::scalar::{self, ParseError, Ppb};
use crate::suggest::nearest;
use crate::tree::{Entry, Node, ScalarKind, Source, Span, Spot, Value};

/// A value and where it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Line and column of the value.
    pub at: Spot,
    pub(crate) span: Span,
}

impl<T> Located<T> {
    /// Its place in the file in which it is written.
    pub fn place(&self, source: &Source) -> Place {
        source.place(self.span)
    }

    /// The same place with another value.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Located<U> {
        Located { value: f(self.value), at: self.at, span: self.span }
    }
}

/// Shortest and longest of something, in nanoseconds; `min <= max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeNs {
    /// Shortest.
    pub min: u64,
    /// Longest.
    pub max: u64,
}

/// The file that is being decoded and what has been found wrong in it.
pub(crate) struct Ctx {
    /// The file; of several, the first one.
    pub(crate) source: Source,
    /// The other files, in the order of their offsets.
    pub(crate) more: Vec<Source>,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Keys of compose files that have no effect.
    pub(crate) idle: Vec<crate::compose::Idle>,
    /// A quoted number or truth value is one, as in compose files.
    pub(crate) lenient: bool,
    /// Which declared keys (section, key) have been read, and whether they were written.
    #[cfg(test)]
    pub(crate) reads: std::collections::BTreeMap<(&'static str, &'static str), bool>,
}

impl Ctx {
    pub(crate) fn new(source: Source) -> Ctx {
        Ctx {
            source,
            more: Vec::new(),
            diagnostics: Vec::new(),
            idle: Vec::new(),
            lenient: false,
            #[cfg(test)]
            reads: Default::default(),
        }
    }

    /// The file in which an offset lies.
    pub(crate) fn file(&self, offset: usize) -> &Source {
        self.more.iter().rev().find(|source| source.base <= offset).unwrap_or(&self.source)
    }

    /// The place of a span, in whichever file it is.
    pub(crate) fn place(&self, span: Span) -> Place {
        self.file(span.start).place(span)
    }

    /// A path of the user's, relative to the directory of the file in which it is written.
    pub(crate) fn path(&self, span: Span, text: &str) -> PathBuf {
        crate::config::resolve(&self.file(span.start).dir(), text)
    }

    pub(crate) fn report(
        &mut self,
        severity: Severity,
        code: Code,
        span: Span,
        message: impl Into<String>,
    ) -> &mut Diagnostic {
        let place = self.place(span);
        let index = self.diagnostics.len();
        self.diagnostics.push(Diagnostic::at(code, severity, place, message));
        &mut self.diagnostics[index]
    }

    pub(crate) fn error(&mut self, code: Code, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.report(Severity::Error, code, span, message)
    }

    pub(crate) fn warn(&mut self, code: Code, span: Span, message: impl Into<String>) -> &mut Diagnostic {
        self.report(Severity::Warning, code, span, message)
    }

    pub(crate) fn located<T>(&self, value: T, span: Span) -> Located<T> {
        Located { value, at: self.file(span.start).spot(span.start), span }
    }

    pub(crate) fn wrong_type(&mut self, node: &Node, path: &str, expected: &str) {
        let found = node.noun();
        let what = if path.is_empty() { "the file".to_owned() } else { format!("`{path}`") };
        self.error(Code::WrongType, node.span, format!("{what} must be {expected}, not {found}"))
            .label(format!("expected {expected}"));
    }

    fn scalar_error(&mut self, node: &Node, path: &str, text: &str, other: Code, error: ParseError) {
        let code = if error.out_of_range { Code::OutOfRange } else { other };
        let message = format!("`{path}` cannot be {}: {}", quoted(text), error.message);
        self.error(code, node.span, message).suggest(error.suggestion);
    }

    /// The text of a string.
    pub(crate) fn string(&mut self, node: &Node, path: &str) -> Option<String> {
        match &node.value {
            Value::Scalar(s) if matches!(s.kind, ScalarKind::String | ScalarKind::Untyped) => {
                Some(s.text.clone())
            }
            Value::Scalar(s) if s.kind != ScalarKind::Null => {
                let meant = format!("\"{}\"", s.text);
                self.wrong_type(node, path, "a string");
                if let Some(last) = self.diagnostics.last_mut() {
                    last.suggest(Some(meant));
                }
                None
            }
            _ => {
                self.wrong_type(node, path, "a string");
                None
            }
        }
    }

    /// The text of a string that is not empty.
    pub(crate) fn name(&mut self, node: &Node, path: &str) -> Option<String> {
        let text = self.string(node, path)?;
        if text.trim().is_empty() {
            self.error(Code::Malformed, node.span, format!("`{path}` must not be empty"));
            return None;
        }
        Some(text)
    }

    /// The text of any scalar: numbers and booleans count as written.
    pub(crate) fn text(&mut self, node: &Node, path: &str) -> Option<String> {
        match &node.value {
            Value::Scalar(s) if s.kind != ScalarKind::Null => Some(s.text.clone()),
            _ => {
                self.wrong_type(node, path, "a string");
                None
            }
        }
    }

    pub(crate) fn bool(&mut self, node: &Node, path: &str) -> Option<bool> {
        match &node.value {
            Value::Scalar(s) if s.kind == ScalarKind::Bool => Some(s.text.eq_ignore_ascii_case("true")),
            Value::Scalar(s) if s.kind == ScalarKind::Untyped && matches!(&*s.text, "true" | "false") => {
                Some(s.text == "true")
            }
            Value::Scalar(s) if matches!(s.kind, ScalarKind::String | ScalarKind::Untyped) => {
                let meant = match s.text.to_ascii_lowercase().as_str() {
                    "yes" | "on" | "y" | "true" => Some("true"),
                    "no" | "off" | "n" | "false" => Some("false"),
                    _ => None,
                };
                if let Some(meant) = meant.filter(|_| self.lenient) {
                    return Some(meant == "true");
                }
                self.wrong_type(node, path, "`true` or `false`");
                if let Some(last) = self.diagnostics.last_mut() {
                    last.suggest(meant);
                }
                None
            }
            _ => {
                self.wrong_type(node, path, "`true` or `false`");
                None
            }
        }
    }

    fn number<T>(
        &mut self,
        node: &Node,
        path: &str,
        expected: &str,
        parse: fn(&str) -> Result<T, ParseError>,
    ) -> Option<T> {
        match &node.value {
            Value::Scalar(s) if !matches!(s.kind, ScalarKind::Null | ScalarKind::Bool) => {
                match parse(&s.text) {
                    Ok(value) if s.kind != ScalarKind::String || self.lenient => Some(value),
                    Ok(_) => {
                        let meant = s.text.clone();
                        self.wrong_type(node, path, expected);
                        if let Some(last) = self.diagnostics.last_mut() {
                            last.suggest(Some(meant)).help("remove the quotes");
                        }
                        None
                    }
                    Err(error) => {
                        self.scalar_error(node, path, &s.text.clone(), Code::WrongType, error);
                        None
                    }
                }
            }
            _ => {
                self.wrong_type(node, path, expected);
                None
            }
        }
    }

    /// A rate or probability from 0 to 1.
    pub(crate) fn rate(&mut self, node: &Node, path: &str) -> Option<Ppb> {
        self.number(node, path, "a number from 0 to 1", scalar::rate)
    }

    /// A whole number within bounds.
    pub(crate) fn integer(&mut self, node: &Node, path: &str, min: u64, max: u64) -> Option<u64> {
        let value = self.number(node, path, "a whole number", scalar::integer)?;
        self.in_bounds(node, path, value, min, max, |n| n.to_string())
    }

    /// A decimal times a thousand, within bounds given in thousandths.
    pub(crate) fn thousandths(&mut self, node: &Node, path: &str, min: u64, max: u64) -> Option<u64> {
        let value = self.number(node, path, "a number", scalar::thousandths)?;
        self.in_bounds(node, path, value, min, max, |n| {
            if n % 1000 == 0 { (n / 1000).to_string() } else { format!("0.{:03}", n % 1000) }
        })
    }

    /// Milliseconds as nanoseconds.
    pub(crate) fn millis(&mut self, node: &Node, path: &str) -> Option<u64> {
        self.number(node, path, "a number of milliseconds", scalar::millis)
    }

    fn in_bounds(
        &mut self,
        node: &Node,
        path: &str,
        value: u64,
        min: u64,
        max: u64,
        show: fn(u64) -> String,
    ) -> Option<u64> {
        if (min..=max).contains(&value) {
            return Some(value);
        }
        let message = match max {
            u64::MAX => format!("`{path}` must be at least {}", show(min)),
            _ => format!("`{path}` must be from {} to {}", show(min), show(max)),
        };
        self.error(Code::OutOfRange, node.span, message);
        None
    }

    /// A duration with its unit, as nanoseconds.
    pub(crate) fn duration(&mut self, node: &Node, path: &str) -> Option<u64> {
        match &node.value {
            Value::Scalar(s) if !matches!(s.kind, ScalarKind::Null | ScalarKind::Bool) => {
                match scalar::duration(&s.text) {
                    Ok(ns) => Some(ns),
                    Err(error) => {
                        self.scalar_error(node, path, &s.text.clone(), Code::BadDuration, error);
                        None
                    }
                }
            }
            _ => {
                self.wrong_type(node, path, "a duration such as 30s");
                None
            }
        }
    }

    /// `[shortest, longest]` in milliseconds; a single number stands for both.
    pub(crate) fn millis_range(&mut self, node: &Node, path: &str) -> Option<RangeNs> {
        const EXPECTED: &str = "a list of two numbers: [shortest, longest]";
        let one = |ctx: &mut Ctx, node: &Node, alone: bool| {
            ctx.number(node, path, if alone { EXPECTED } else { "a number of milliseconds" }, scalar::millis)
        };
        self.range(node, path, "write [shortest, longest] in milliseconds", one)
    }

    /// `[smallest, largest]` in parts per million, as parts per billion; a single number stands for both.
    pub(crate) fn ppm_range(&mut self, node: &Node, path: &str) -> Option<RangeNs> {
        const MOST: u64 = 500_000_000;
        let one = |ctx: &mut Ctx, node: &Node, _: bool| ctx.thousandths(node, path, 0, MOST);
        self.range(node, path, "write [smallest, largest] in parts per million", one)
    }

    /// Two values of which the second is not smaller, or one that stands for both; `one` reads a value, and is told whether it is alone.
    fn range(
        &mut self,
        node: &Node,
        path: &str,
        write: &str,
        one: impl Fn(&mut Ctx, &Node, bool) -> Option<u64>,
    ) -> Option<RangeNs> {
        let Value::Seq(items) = &node.value else {
            let both = one(self, node, true)?;
            return Some(RangeNs { min: both, max: both });
        };
        let [low, high] = items.as_slice() else {
            let count = items.len();
            self.error(Code::WrongType, node.span, format!("`{path}` must have two numbers, not {count}"))
                .help(write);
            return None;
        };
        let (min, max) = (one(self, low, false), one(self, high, false));
        let (min, max) = (min?, max?);
        if min > max {
            let place = Span { start: low.span.start, end: high.span.end };
            self.error(Code::ReversedRange, place, format!("the range of `{path}` ends before it begins"))
                .help(write);
            return None;
        }
        Some(RangeNs { min, max })
    }

    /// One word out of a fixed set.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        node: &Node,
        path: &str,
        choices: &[(&'static str, T)],
    ) -> Option<T> {
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        self.one_of(node, path, &words).map(|index| choices[index].1)
    }

    /// One word out of a declared set, as its index.
    pub(crate) fn word(&mut self, node: &Node, path: &str, words: &Words) -> Option<usize> {
        self.one_of(node, path, &words.texts())
    }

    fn one_of(&mut self, node: &Node, path: &str, words: &[&str]) -> Option<usize> {
        let text = match &node.value {
            Value::Scalar(s) if s.kind != ScalarKind::Null => s.text.clone(),
            _ => {
                self.wrong_type(node, path, &format!("one of {}", listed(words, "or")));
                return None;
            }
        };
        let index = words.iter().position(|word| *word == text);
        if index.is_none() {
            self.error(Code::UnknownValue, node.span, format!("`{path}` cannot be {}", quoted(&text)))
                .help(format!("allowed: {}", listed(words, "and")))
                .suggest(nearest(&text, words));
        }
        index
    }

    /// The items of a list; nothing counts as an empty list.
    pub(crate) fn list<'n>(&mut self, node: &'n Node, path: &str) -> Option<&'n [Node]> {
        match &node.value {
            Value::Seq(items) => Some(items),
            _ if node.is_null() => Some(&[]),
            _ => {
                self.wrong_type(node, path, "a list");
                None
            }
        }
    }

    /// The entries of a mapping; nothing counts as an empty mapping.
    pub(crate) fn entries<'n>(&mut self, node: &'n Node, path: &str) -> Option<&'n [Entry]> {
        match &node.value {
            Value::Map(entries) => Some(entries),
            _ if node.is_null() => Some(&[]),
            _ => {
                self.wrong_type(node, path, "a mapping");
                None
            }
        }
    }

    /// A mapping whose keys are all in `keys`; every other key is reported.
    pub(crate) fn fields<'n>(
        &mut self,
        node: &'n Node,
        path: &str,
        keys: &[&'static str],
    ) -> Option<Fields<'n>> {
        let entries = self.entries(node, path)?;
        for entry in entries {
            if !keys.contains(&entry.key.as_str()) && !entry.key.starts_with("x-") {
                self.unknown_key(entry, path, keys);
            }
        }
        Some(Fields { entries, span: node.span, path: path.to_owned(), keys: keys.to_vec() })
    }

    pub(crate) fn unknown_key(&mut self, entry: &Entry, path: &str, keys: &[&str]) {
        let section = if path.is_empty() { "at the top level".to_owned() } else { format!("in `{path}`") };
        let message = format!("unknown key {} {section}", quoted(&entry.key));
        self.error(Code::UnknownKey, entry.key_span, message)
            .help(format!("known keys: {}", listed(keys, "and")))
            .suggest(nearest(&entry.key, keys));
    }

    /// Reports that a key is missing from a mapping.
    pub(crate) fn missing(&mut self, fields: &Fields<'_>, key: &str) {
        // The first key stands for the mapping: its own span has no length.
        let span = fields.entries.first().map_or(fields.span, |entry| entry.key_span);
        let section = if fields.path.is_empty() { String::new() } else { format!(" in `{}`", fields.path) };
        self.error(Code::MissingKey, span, format!("the key `{key}` is missing{section}"))
            .label(format!("this mapping has no `{key}`"));
    }
}

/// A mapping with known keys.
pub(crate) struct Fields<'n> {
    pub(crate) entries: &'n [Entry],
    pub(crate) span: Span,
    pub(crate) path: String,
    pub(crate) keys: Vec<&'static str>,
}

impl<'n> Fields<'n> {
    /// The entry of a key, unless its value is nothing.
    pub(crate) fn entry(&self, key: &str) -> Option<&'n Entry> {
        assert!(self.keys.contains(&key), "{key} is not among the keys of {}", self.path);
        self.entries.iter().find(|entry| entry.key == key)
    }

    /// The node of a key.
    pub(crate) fn node(&self, key: &str) -> Option<&'n Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// The path of a key for messages.
    pub(crate) fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Decodes the value of a key; `None` if it is absent or wrong.
    pub(crate) fn get<T>(
        &self,
        ctx: &mut Ctx,
        key: &str,
        decode: impl FnOnce(&mut Ctx, &'n Node, &str) -> Option<T>,
    ) -> Option<T> {
        decode(ctx, self.node(key)?, &self.path(key))
    }
}

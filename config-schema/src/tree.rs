//! The YAML tree in which every key and value knows its place.
//!
//! Key types: [`Source`] (a file's text), [`Node`], [`Value`], [`Scalar`], [`Span`]. [`parse`] is the only
//! function in the crate that knows the YAML library; anchors, aliases and merge keys are applied by it.
//! Scalars keep their source text (`1.10` stays `1.10`), so that no number ever passes through a float; the
//! decoders in `decode`, `config` and `compose` give them meaning.

use std::path::{Path, PathBuf};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, NonFiniteFloatPolicy, Options};
use serde_saphyr::{Location, MessageFormatter, Spanned, UserMessageFormatter};

use crate::diagnostic::{Code, Diagnostic, Place, Severity, quoted};

/// Largest file that is read, in bytes.
pub const MAX_BYTES: usize = 1 << 20;
/// Deepest nesting of lists and mappings.
pub const MAX_DEPTH: usize = 64;
/// Most nodes of one file after its aliases have been expanded.
pub const MAX_NODES: usize = 100_000;

/// A stretch of a file's text as byte offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Span {
    /// First byte.
    pub start: usize,
    /// The byte after the last one.
    pub end: usize,
}

impl Span {
    fn shifted(self, base: usize) -> Span {
        Span { start: self.start + base, end: self.end + base }
    }
}

/// Line and column of something in a file, both counted from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Spot {
    /// Line, counted from 1.
    pub line: u32,
    /// Character within the line, counted from 1.
    pub column: u32,
}

/// A file's text together with what is needed to turn offsets into places.
#[derive(Clone, Debug)]
pub struct Source {
    /// The path as it was given.
    pub path: PathBuf,
    /// The path as it is printed.
    pub name: String,
    /// The text, without a byte order mark.
    pub text: String,
    line_starts: Vec<usize>,
    /// The offset of the first byte: where several files make one tree, each has a stretch of offsets of its own,
    /// so that a span also says which file it is in.
    pub(crate) base: usize,
    /// The directory against which relative paths are resolved, if it is not the file's own.
    pub(crate) directory: Option<PathBuf>,
}

impl Source {
    /// Wraps a text that has been read from `path`.
    pub fn new(path: &Path, text: &str) -> Source {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text).to_owned();
        let mut line_starts = vec![0];
        line_starts.extend(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(i, _)| i + 1));
        let name = path.display().to_string();
        Source { path: path.to_owned(), name, text, line_starts, base: 0, directory: None }
    }

    /// Reads a file. The error says why it cannot be read.
    pub fn read(path: &Path) -> Result<Source, Box<Diagnostic>> {
        let name = path.display().to_string();
        let fail =
            |code, message: String| Box::new(Diagnostic::about_file(code, Severity::Error, &name, message));
        let unreadable = |e: std::io::Error| fail(Code::Unreadable, format!("cannot read {name}: {e}"));
        let meta = std::fs::metadata(path).map_err(unreadable)?;
        if !meta.is_file() {
            return Err(fail(Code::Unreadable, format!("{name} is not a file")));
        }
        if meta.len() > MAX_BYTES as u64 {
            let size = meta.len();
            return Err(fail(Code::Limit, format!("{name} has {size} bytes, more than {MAX_BYTES}")));
        }
        let bytes = std::fs::read(path).map_err(unreadable)?;
        match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(Source::new(path, text)),
            Err(e) => {
                let line = 1 + bytes[..e.valid_up_to()].iter().filter(|b| **b == b'\n').count();
                Err(fail(Code::Unreadable, format!("{name} is not UTF-8 text: see line {line}")))
            }
        }
    }

    /// The directory against which relative paths in the file are resolved.
    pub fn dir(&self) -> PathBuf {
        if let Some(directory) = &self.directory {
            return directory.clone();
        }
        match self.path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
            _ => PathBuf::from("."),
        }
    }

    /// The text of a span, as it is written.
    pub(crate) fn written(&self, span: Span) -> &str {
        self.text.get(span.start.saturating_sub(self.base)..span.end.saturating_sub(self.base)).unwrap_or("")
    }

    /// Line and column of an offset.
    pub fn spot(&self, offset: usize) -> Spot {
        let offset = self.floor(offset.saturating_sub(self.base));
        let line = self.line_starts.partition_point(|start| *start <= offset).max(1);
        let column = self.text[self.line_starts[line - 1]..offset].chars().count() + 1;
        Spot { line: line as u32, column: column as u32 }
    }

    /// The place of a span. A span over several lines is cut at the end of its first one.
    pub fn place(&self, span: Span) -> Place {
        let spot = self.spot(span.start);
        let source_line = self.line(spot.line);
        let start = self.floor(span.start.saturating_sub(self.base));
        let end = self.floor(span.end.saturating_sub(self.base)).max(start);
        let marked = self.text[start..end].split(['\n', '\r']).next().unwrap_or("").trim_end();
        Place {
            file: self.name.clone(),
            line: spot.line,
            column: spot.column,
            end_column: spot.column + (marked.chars().count() as u32).max(1),
            source_line: source_line.to_owned(),
        }
    }

    fn line(&self, line: u32) -> &str {
        let index = line.max(1) as usize - 1;
        let start = self.line_starts.get(index).copied().unwrap_or(self.text.len());
        let end = self.line_starts.get(index + 1).copied().unwrap_or(self.text.len());
        self.text[start..end].trim_end_matches(['\n', '\r'])
    }

    /// The nearest offset at or before `offset` that is a character boundary.
    fn floor(&self, offset: usize) -> usize {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        offset
    }

    /// The span of one character at a line and column (both from 1).
    fn span_at(&self, line: usize, column: usize) -> Span {
        let Some(start) = self.line_starts.get(line.saturating_sub(1)).copied() else {
            return Span { start: self.text.len(), end: self.text.len() };
        };
        let text = self.line(line as u32);
        let offset = text.char_indices().nth(column.saturating_sub(1)).map_or(text.len(), |(i, _)| i);
        let length = text[offset..].chars().next().map_or(0, char::len_utf8);
        Span { start: start + offset, end: start + offset + length }
    }
}

/// What kind of value a scalar's text stands for by the rules of YAML 1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScalarKind {
    /// Nothing, `~` or `null`.
    Null,
    /// `true` or `false`.
    Bool,
    /// An integer or a decimal number.
    Number,
    /// Anything else, and everything that is quoted.
    String,
    /// A text with a variable in it, after substitution: takes the type that is asked for.
    Untyped,
}

/// A single value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// The text: as written for numbers and booleans, without quotes and escapes for strings.
    pub text: String,
    /// What the text stands for.
    pub kind: ScalarKind,
}

/// What a node holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A single value.
    Scalar(Scalar),
    /// A list.
    Seq(Vec<Node>),
    /// A mapping, in the order of the file.
    Map(Vec<Entry>),
}

/// A value and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Where it is written; for an alias, where the anchored value is.
    pub span: Span,
}

/// A key of a mapping with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key's text.
    pub key: String,
    /// Where the key is written.
    pub key_span: Span,
    /// The value.
    pub value: Node,
}

impl Node {
    /// Moves all offsets by `base`.
    fn shift(&mut self, base: usize) {
        self.span = self.span.shifted(base);
        match &mut self.value {
            Value::Scalar(_) => {}
            Value::Seq(items) => items.iter_mut().for_each(|item| item.shift(base)),
            Value::Map(entries) => entries.iter_mut().for_each(|entry| {
                entry.key_span = entry.key_span.shifted(base);
                entry.value.shift(base);
            }),
        }
    }

    /// Whether the value is absent (`key:`, `~` or `null`).
    pub fn is_null(&self) -> bool {
        matches!(&self.value, Value::Scalar(s) if s.kind == ScalarKind::Null)
    }

    /// What the value is, as a noun for messages.
    pub fn noun(&self) -> &'static str {
        match &self.value {
            Value::Seq(_) => "a list",
            Value::Map(_) => "a mapping",
            Value::Scalar(s) => match s.kind {
                ScalarKind::Null => "nothing",
                ScalarKind::Bool => "a boolean",
                ScalarKind::Number => "a number",
                ScalarKind::String | ScalarKind::Untyped => "a string",
            },
        }
    }
}

/// Parses a YAML file. `None` if there is no tree to go on with; a duplicate key is reported and the first of
/// the two is used, so that the rest of the file is checked as well.
pub fn parse(source: &Source) -> (Option<Node>, Vec<Diagnostic>) {
    let mut diagnostics = Vec::new();
    for duplicates in [DuplicateKeyPolicy::Error, DuplicateKeyPolicy::FirstWins] {
        let parsed: Result<Spanned<Raw>, _> =
            serde_saphyr::from_str_with_options(&source.text, options(duplicates));
        match parsed {
            Ok(raw) => {
                let mut convert = Convert { source, diagnostics, nodes: 0 };
                let mut node = convert.node(raw);
                if let Some(node) = node.as_mut().filter(|_| source.base > 0) {
                    node.shift(source.base);
                }
                return (node, convert.diagnostics);
            }
            Err(error) => {
                let again =
                    matches!(error.without_snippet(), serde_saphyr::Error::DuplicateMappingKey { .. });
                diagnostics.push(syntax_error(source, &error));
                if !again {
                    break;
                }
            }
        }
    }
    (None, diagnostics)
}

fn options(duplicate_keys: DuplicateKeyPolicy) -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 4 * MAX_NODES,
            max_recorded_anchor_events: 4 * MAX_NODES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_NODES,
        },
        duplicate_keys: duplicate_keys,
        strict_booleans: true,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        with_snippet: false,
    }
}

fn syntax_error(source: &Source, error: &serde_saphyr::Error) -> Diagnostic {
    let error = error.without_snippet();
    let location = error.location().unwrap_or(Location::UNKNOWN);
    let span = span_of(location)
        .unwrap_or_else(|| source.span_at(location.line() as usize, location.column() as usize));
    let place = source.place(span.shifted(source.base));
    if let serde_saphyr::Error::DuplicateMappingKey { key, .. } = error {
        let name = key.as_deref().map_or_else(|| "this key".to_owned(), quoted);
        let mut d = Diagnostic::at(
            Code::DuplicateKey,
            Severity::Error,
            place,
            format!("{name} appears twice in the same mapping"),
        );
        d.label("second occurrence").help("remove or rename one of the two");
        return d;
    }
    if matches!(error, serde_saphyr::Error::UnknownAnchor { .. }) {
        let line = &place.source_line;
        let from =
            line.char_indices().nth(place.column.saturating_sub(1) as usize).map_or("", |(i, _)| &line[i..]);
        let name = from.split([' ', ',', ']', '}']).next().unwrap_or(from);
        let message = format!("the alias {} has no anchor", quoted(name));
        let mut d = Diagnostic::at(Code::Syntax, Severity::Error, place, message);
        d.help("an anchor is written `&name` before the value, and above its aliases");
        return d;
    }
    let mut message = UserMessageFormatter.format_message(error).into_owned();
    // The library has several errors for it, some within others.
    if ["replayed_events", "alias expansion", "alias replay"].iter().any(|words| message.contains(words)) {
        let message = format!("the aliases of this file stand for more than {MAX_NODES} values");
        let mut d = Diagnostic::at(Code::Limit, Severity::Error, place, message);
        d.label("expanded here").help("aliases of lists of aliases multiply: write out what is meant");
        return d;
    }
    message = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let code = match error {
        serde_saphyr::Error::Budget { .. } => Code::Limit,
        _ => Code::Syntax,
    };
    let mut d = Diagnostic::at(code, Severity::Error, place, message);
    let line = d.place.as_ref().map_or("", |p| p.source_line.as_str());
    // `{Y: ${Y:?message}}` and `key: ${X:?a: b}` are other things to YAML than they look like.
    let variable = line.contains("${") && !line.contains("\"${") && !line.contains("'${");
    let indent: String = line.chars().take_while(|c| c.is_whitespace()).collect();
    if indent.contains('\t') {
        d.help("YAML is indented with spaces, never with tabs");
    } else if variable {
        d.help("put quotes around a value with a variable: `\"${NAME:?message}\"`");
    } else if d.message.contains("mapping values are not allowed") {
        d.help("put quotes around a value that contains `: `, and check the indentation of this line");
    } else if d.message.contains("flow") || line.contains(['[', '{']) {
        d.help("check that every `[`, `{` and quote is closed");
    }
    d
}

fn span_of(location: Location) -> Option<Span> {
    let start = location.span().byte_offset()? as usize;
    let length = location.span().byte_len()? as usize;
    Some(Span { start, end: start + length })
}

/// The tree as the YAML library hands it over. Numbers and booleans are looked up in the source again.
enum Raw {
    Null,
    Bool(bool),
    Number(String),
    Text(String),
    Seq(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<Raw>, Spanned<Raw>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Raw, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Number(value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Number(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        // Replaced by the source text; this is for a number without a place, which the library does not make.
        Ok(Raw::Number(value.to_string()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Raw::Seq(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}

struct Convert<'a> {
    source: &'a Source,
    diagnostics: Vec<Diagnostic>,
    nodes: usize,
}

impl Convert<'_> {
    fn node(&mut self, raw: Spanned<Raw>) -> Option<Node> {
        let span = span_of(raw.defined).unwrap_or_else(|| {
            self.source.span_at(raw.defined.line() as usize, raw.defined.column() as usize)
        });
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            if self.nodes == MAX_NODES + 1 {
                let message = format!("the file expands to more than {MAX_NODES} values");
                let place = self.source.place(span.shifted(self.source.base));
                self.diagnostics.push(Diagnostic::at(Code::Limit, Severity::Error, place, message));
            }
            return None;
        }
        let value = match raw.value {
            Raw::Null => Value::Scalar(Scalar { text: String::new(), kind: ScalarKind::Null }),
            Raw::Bool(b) => {
                let text = self.written(span).unwrap_or_else(|| b.to_string());
                Value::Scalar(Scalar { text, kind: ScalarKind::Bool })
            }
            Raw::Number(n) => {
                let text = self.written(span).unwrap_or(n);
                Value::Scalar(Scalar { text, kind: ScalarKind::Number })
            }
            Raw::Text(text) => Value::Scalar(Scalar { text, kind: ScalarKind::String }),
            Raw::Seq(items) => Value::Seq(items.into_iter().filter_map(|item| self.node(item)).collect()),
            Raw::Map(entries) => {
                Value::Map(entries.into_iter().filter_map(|(k, v)| self.entry(k, v)).collect())
            }
        };
        let span = self.whole(&value, span);
        Some(Node { value, span })
    }

    /// The library gives a collection the place of its first character: stretch it over its last item, and
    /// over the bracket that closes it.
    fn whole(&self, value: &Value, span: Span) -> Span {
        let last = match value {
            Value::Scalar(_) => return span,
            Value::Seq(items) => items.last().map(|item| item.span.end),
            Value::Map(entries) => entries.last().map(|entry| entry.value.span.end.max(entry.key_span.end)),
        };
        let end = last.unwrap_or(span.end).max(span.end);
        let rest = self.source.text.get(end..).unwrap_or("");
        let blank = rest.len() - rest.trim_start_matches([' ', ',']).len();
        let flow = self.source.text.get(span.start..).is_some_and(|text| text.starts_with(['[', '{']));
        let closed = flow && rest[blank..].starts_with([']', '}']);
        Span { start: span.start, end: if closed { end + blank + 1 } else { end } }
    }

    fn entry(&mut self, key: Spanned<Raw>, value: Spanned<Raw>) -> Option<Entry> {
        let key = self.node(key)?;
        let key_span = key.span;
        let text = match key.value {
            Value::Scalar(s) if s.kind != ScalarKind::Null => s.text,
            _ => {
                let place = self.source.place(key_span.shifted(self.source.base));
                let message = "a key must be a single word or text";
                self.diagnostics.push(Diagnostic::at(Code::WrongType, Severity::Error, place, message));
                return None;
            }
        };
        Some(Entry { key: text, key_span, value: self.node(value)? })
    }

    /// The text of a number as written.
    fn written(&self, span: Span) -> Option<String> {
        let text = self.source.text.get(span.start..span.end)?.trim().trim_matches(['"', '\'']);
        (!text.is_empty()).then(|| text.to_owned())
    }
}

#[cfg(test)]
mod tests;

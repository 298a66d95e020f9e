//! Every key of the compose specification, and what becomes of it here.
//!
//! One declaration, [`SECTIONS`]: for each mapping of a compose file its keys, each with one of three treatments. It works; it has no
//! effect in a simulation, and why; or it is refused, and why. From it come the messages about unknown and refused keys ([`open`]) and
//! docs/compose.md; a test compares it with the specification's JSON schema.
//!
//! Names of mappings: `*` stands for a name of the user's, `[]` for an item of a list.

mod table;

pub(crate) use table::SECTIONS;

use super::Idle;
use crate::decode::Ctx;
use crate::diagnostic::{Code, listed, quoted};
use crate::suggest::nearest;
use crate::tree::{Entry, Node, ScalarKind, Span, Value};

/// What becomes of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Treatment {
    /// It means what the specification says; or that with a restriction, in words.
    Works(&'static str),
    /// It is accepted and changes nothing, for this reason.
    NoEffect(&'static str),
    /// It cannot be used, for this reason. A value that asks for nothing (`false`, an empty list) is accepted.
    Refused(&'static str),
}

/// A key of a mapping.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) treatment: Treatment,
}

/// A mapping of a compose file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section {
    pub(crate) path: &'static str,
    pub(crate) keys: &'static [Key],
}

/// Keys below which nothing is listed: their treatment holds for everything in them.
#[cfg(test)]
pub(crate) const WHOLE: &[&str] = &["jobs", "services.*.pre_start"];

/// `x-bloodhound` of a service and of the top level, which is ours.
pub(crate) static EXTENSION: &[&str] = &["rootfs", "read", "machine"];

fn section(path: &str) -> &'static Section {
    SECTIONS.iter().find(|section| section.path == path).unwrap_or_else(|| panic!("{path} is declared"))
}

/// A mapping whose keys have been looked up in the table.
pub(crate) struct Fields<'n> {
    pub(crate) entries: &'n [Entry],
    pub(crate) span: Span,
    pub(crate) path: String,
    section: &'static Section,
}

impl<'n> Fields<'n> {
    /// The entry of a key; a key that is absent or nothing has none.
    pub(crate) fn entry(&self, key: &str) -> Option<&'n Entry> {
        let declared = self.section.keys.iter().any(|k| k.name == key);
        assert!(declared || key.starts_with("x-"), "{key} is not declared in {}", self.section.path);
        self.entries.iter().find(|entry| entry.key == key && !entry.value.is_null())
    }

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

    /// Decodes the value of a key that must be there.
    pub(crate) fn require<T>(
        &self,
        ctx: &mut Ctx,
        key: &str,
        decode: impl FnOnce(&mut Ctx, &'n Node, &str) -> Option<T>,
    ) -> Option<T> {
        match self.node(key) {
            Some(node) => decode(ctx, node, &self.path(key)),
            None => {
                let span = self.entries.first().map_or(self.span, |entry| entry.key_span);
                let within =
                    if self.path.is_empty() { String::new() } else { format!(" in `{}`", self.path) };
                ctx.error(Code::MissingKey, span, format!("the key `{key}` is missing{within}"))
                    .label(format!("this mapping has no `{key}`"));
                None
            }
        }
    }
}

/// The entries of the mapping that the table has as `section`. Keys that are not known and keys that are refused are reported.
pub(crate) fn open<'n>(ctx: &mut Ctx, node: &'n Node, path: &str, of: &str) -> Option<Fields<'n>> {
    let entries = ctx.entries(node, path)?;
    let section = section(of);
    for entry in entries.iter().filter(|entry| !entry.key.starts_with("x-")) {
        let name = entry.key.as_str();
        match section.keys.iter().find(|key| key.name == name).map(|key| key.treatment) {
            Some(Treatment::Refused(why)) if asks_for_something(&entry.value) => {
                let shown = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
                ctx.error(Code::ComposeNotSupported, entry.key_span, format!("`{shown}` is not supported"))
                    .help(format!(
                        "{why}: remove the key, or reset it (`!reset null`) in an override file for tests"
                    ));
            }
            Some(Treatment::NoEffect(why)) if asks_for_something(&entry.value) => {
                let key = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
                let idle = Idle { key, why, place: ctx.place(entry.key_span) };
                // A service that another one extends is read with both.
                if !ctx.idle.contains(&idle) {
                    ctx.idle.push(idle);
                }
            }
            Some(_) => {}
            None => unknown(ctx, entry, path, section),
        }
    }
    Some(Fields { entries, span: node.span, path: path.to_owned(), section })
}

/// `false`, an empty text, list or mapping is what a key means that is absent.
fn asks_for_something(node: &Node) -> bool {
    match &node.value {
        Value::Scalar(s) if s.kind == ScalarKind::Null => false,
        Value::Scalar(s) => !(s.text.is_empty() || s.text.eq_ignore_ascii_case("false")),
        Value::Seq(items) => !items.is_empty(),
        Value::Map(entries) => !entries.is_empty(),
    }
}

fn unknown(ctx: &mut Ctx, entry: &Entry, path: &str, section: &Section) {
    let all: Vec<&str> = section.keys.iter().map(|key| key.name).collect();
    let help = match all.len() {
        0..=16 => format!("known keys: {}", listed(&all, "and")),
        _ => "see the compose specification for the keys of a service".to_owned(),
    };
    let within = if path.is_empty() { "at the top level".to_owned() } else { format!("in `{path}`") };
    ctx.error(Code::UnknownKey, entry.key_span, format!("unknown key {} {within}", quoted(&entry.key)))
        .help(help)
        .suggest(nearest(&entry.key, &all));
}

//! Reads a mapping of bloodhound.yaml by the declaration of its keys.
//!
//! Key types: [`Settings`] (a mapping and its [`Section`]), [`Decode`] (a Rust type as which a [`ValueKind`] can be read).
//! Kind, bounds and default come from the declaration, so a decoder only says which key becomes which field, and checks
//! what concerns several keys. Neighbours: `bloodhound_declare` below, the sections (`workload`, `faults`, ...) above.

use std::ops::Deref;
use std::path::{Path, PathBuf};

use bloodhound_declare::{Absent, Choice, Key, Section, Shortest, ValueKind, Words};

use crate::decode::{Ctx, Fields, Located, RangeNs};
use crate::diagnostic::{Code, listed};
use crate::scalar::{self, Ppb, show_duration};
use crate::tree::{self, Node, Source, Span};

/// A mapping whose keys are declared.
pub(super) struct Settings<'n> {
    fields: Fields<'n>,
    section: &'static Section,
}

impl<'n> Deref for Settings<'n> {
    type Target = Fields<'n>;

    fn deref(&self) -> &Fields<'n> {
        &self.fields
    }
}

impl<'n> Settings<'n> {
    /// Takes a mapping: reports unknown keys, missing keys, keys that exclude each other and keys without effect.
    pub(super) fn open(
        ctx: &mut Ctx,
        node: &'n Node,
        path: &str,
        section: &'static Section,
    ) -> Option<Settings<'n>> {
        let settings = Settings { fields: ctx.fields(node, path, &section.names())?, section };
        settings.check_presence(ctx);
        settings.check_later(ctx);
        Some(settings)
    }

    /// The section when nothing is written.
    fn empty(path: String, section: &'static Section) -> Settings<'n> {
        let fields = Fields { entries: &[], span: Span::default(), path, keys: section.names() };
        Settings { fields, section }
    }

    fn check_presence(&self, ctx: &mut Ctx) {
        let one_of = self.section.one_of;
        let mut written = one_of.iter().filter_map(|key| Some((key, self.entry(key)?)));
        match (written.next(), written.next()) {
            (Some((first, one)), Some((second, other))) => {
                let place = ctx.source.place(one.key_span);
                let message = format!("`{first}` and `{second}` exclude each other");
                ctx.error(Code::Conflict, other.key_span, message).relate(place, "the other one");
            }
            (None, _) if !one_of.is_empty() => ctx.missing(self, one_of[0]),
            _ => {}
        }
        for key in self.section.keys {
            if key.absent == Absent::Refused && self.entry(key.name).is_none() {
                ctx.missing(self, key.name);
            }
        }
    }

    /// Checks the values of keys that have no effect yet, and says so in one warning.
    fn check_later(&self, ctx: &mut Ctx) {
        let mut later = Vec::new();
        for key in self.section.keys {
            let Some(node) = self.node(key.name) else { continue };
            if key.later {
                #[cfg(test)]
                self.note(ctx, key);
                check(ctx, node, &self.path(key.name), &key.kind);
            }
            if key.later || matches!(key.kind, ValueKind::Word(words) if !has_effect(words, node)) {
                later.push(key.name);
            }
        }
        let written: Vec<_> =
            self.entries.iter().filter(|entry| later.contains(&entry.key.as_str())).collect();
        let Some(first) = written.first() else { return };
        let names: Vec<String> = written.iter().map(|entry| self.path(&entry.key)).collect();
        let verb = if names.len() == 1 { "is" } else { "are" };
        let message = format!("{} {verb} not available yet", listed(&names, "and"));
        ctx.warn(Code::NotAvailableYet, first.key_span, message).label("has no effect");
    }

    /// The declaration of a key that is about to be read.
    fn declared(&self, ctx: &mut Ctx, name: &str) -> &'static Key {
        let Some(key) = self.section.key(name) else {
            panic!("the section {} declares no key {name}", self.section.name)
        };
        #[cfg(test)]
        self.note(ctx, key);
        #[cfg(not(test))]
        let _ = ctx;
        key
    }

    #[cfg(test)]
    fn note(&self, ctx: &mut Ctx, key: &'static Key) {
        *ctx.reads.entry((self.section.name, key.name)).or_default() |= self.entry(key.name).is_some();
    }

    /// The value of a key, or what is declared for its absence. `None`: neither is there, or the value is wrong.
    pub(super) fn get<T: Decode>(&self, ctx: &mut Ctx, name: &str) -> Option<T> {
        self.read(ctx, name, T::decode)
    }

    /// The value of a key for whose absence a value is declared. A wrong value has been reported; then it is that value
    /// too, so that the rest can be checked.
    pub(super) fn value<T: Decode>(&self, ctx: &mut Ctx, name: &str) -> T {
        let value = self.get(ctx, name);
        value.unwrap_or_else(|| {
            let key = self.declared(ctx, name);
            let value = default(&ctx.source.path, key, T::decode);
            value.unwrap_or_else(|| panic!("{}.{name} is declared without a default", self.section.name))
        })
    }

    /// Like `value`; without the key it is this text, if there is one, in the place of the declared default.
    pub(super) fn value_or<T: Decode>(
        &self,
        ctx: &mut Ctx,
        name: &str,
        otherwise: Option<&'static str>,
    ) -> T {
        match otherwise.filter(|_| self.node(name).is_none()) {
            None => self.value(ctx, name),
            Some(text) => {
                let key = self.declared(ctx, name);
                let value = of_text(&ctx.source.path, key, text, T::decode);
                value.unwrap_or_else(|| panic!("{}.{name} cannot be {text}", self.section.name))
            }
        }
    }

    /// Like `get`, for a value with a form of its own.
    pub(super) fn own<T>(
        &self,
        ctx: &mut Ctx,
        name: &str,
        decode: impl FnOnce(&mut Ctx, &Node, &str) -> Option<T>,
    ) -> Option<T> {
        self.read(ctx, name, |ctx, node, path, kind| {
            assert!(matches!(kind, ValueKind::Own(_)), "{path} is declared as {kind:?}");
            decode(ctx, node, path)
        })
    }

    fn read<T>(
        &self,
        ctx: &mut Ctx,
        name: &str,
        decode: impl FnOnce(&mut Ctx, &Node, &str, &'static ValueKind) -> Option<T>,
    ) -> Option<T> {
        let key = self.declared(ctx, name);
        match self.node(name) {
            Some(node) => decode(ctx, node, &self.path(name), &key.kind),
            None => default(&ctx.source.path, key, decode),
        }
    }

    /// Checks a value that has no effect.
    pub(super) fn check(&self, ctx: &mut Ctx, name: &str) {
        let key = self.declared(ctx, name);
        if let Some(node) = self.node(name) {
            check(ctx, node, &self.path(name), &key.kind);
        }
    }

    /// The mapping at a key. `None`: nothing is written, or something else than a mapping.
    pub(super) fn section(&self, ctx: &mut Ctx, name: &str) -> Option<Settings<'n>> {
        let key = self.declared(ctx, name);
        let ValueKind::Section(section) = key.kind else { panic!("{name} is declared as {:?}", key.kind) };
        let node = self.node(name).filter(|n| !n.is_null() || key.absent == Absent::Refused)?;
        Settings::open(ctx, node, &self.path(name), section)
    }

    /// The mapping at a key, an empty one if nothing is written.
    pub(super) fn section_or_empty(&self, ctx: &mut Ctx, name: &str) -> Settings<'n> {
        let Some(Key { kind: ValueKind::Section(section), .. }) = self.section.key(name) else {
            panic!("{name} is not declared as a section")
        };
        self.section(ctx, name).unwrap_or_else(|| Settings::empty(self.path(name), section))
    }

    /// The mappings in the list at a key, each with its path; what is no mapping is reported and left out. `None`: no
    /// list is written.
    pub(super) fn sections(&self, ctx: &mut Ctx, name: &str) -> Option<Vec<Settings<'n>>> {
        let key = self.declared(ctx, name);
        let (ValueKind::List(ValueKind::Section(section))
        | ValueKind::NonEmpty(ValueKind::Section(section), _)) = key.kind
        else {
            panic!("{name} is declared as {:?}", key.kind)
        };
        let path = self.path(name);
        let items = list(ctx, self.node(name)?, &path, &key.kind)?;
        let items = items.iter().enumerate();
        Some(
            items
                .filter_map(|(i, item)| Settings::open(ctx, item, &format!("{path}[{i}]"), section))
                .collect(),
        )
    }

    /// The items of the list at a key, each with a form of its own. `None`: nothing is written, or no list.
    pub(super) fn list(&self, ctx: &mut Ctx, name: &str) -> Option<&'n [Node]> {
        let key = self.declared(ctx, name);
        assert!(
            matches!(
                key.kind,
                ValueKind::List(ValueKind::Own(_)) | ValueKind::NonEmpty(ValueKind::Own(_), _)
            ),
            "{key:?}"
        );
        list(ctx, self.node(name)?, &self.path(name), &key.kind)
    }

    /// The mapping at a key and the word in it that decides which keys it has. The word is looked at before the rest, so
    /// that every message is about the right section.
    pub(super) fn variant<T: Choice>(&self, ctx: &mut Ctx, name: &str) -> Option<(T, Settings<'n>)> {
        let key = self.declared(ctx, name);
        let ValueKind::Variants(variants) = key.kind else { panic!("{name} is declared as {:?}", key.kind) };
        let (node, path, tag) = (self.node(name)?, self.path(name), variants.tag);
        let entries = ctx.entries(node, &path)?;
        let Some(entry) = entries.iter().find(|entry| entry.key == tag) else {
            let span = entries.first().map_or(node.span, |entry| entry.key_span);
            ctx.error(Code::MissingKey, span, format!("the key `{tag}` is missing in `{path}`"))
                .label(format!("this mapping has no `{tag}`"))
                .help(format!("allowed: {}", listed(&variants.words.texts(), "and")));
            return None;
        };
        let index = ctx.word(&entry.value, &format!("{path}.{tag}"), variants.words)?;
        let settings = Settings::open(ctx, node, &path, variants.sections[index])?;
        settings.declared(ctx, tag);
        Some((T::ALL[index], settings))
    }
}

/// What a section is when nothing is written.
pub(super) fn of_nothing<T>(
    section: &'static Section,
    decode: impl FnOnce(&mut Ctx, &Settings<'_>) -> T,
) -> T {
    let mut ctx = Ctx::new(Source::new(Path::new(""), ""));
    decode(&mut ctx, &Settings::empty(String::new(), section))
}

/// The value that is declared for the absence of a key, read as a text of the user's is.
fn default<T>(
    file: &Path,
    key: &'static Key,
    decode: impl FnOnce(&mut Ctx, &Node, &str, &'static ValueKind) -> Option<T>,
) -> Option<T> {
    let Absent::Means(text) = key.absent else { return None };
    of_text(file, key, text, decode)
}

/// A text of ours, read as one of the user's is.
fn of_text<T>(
    file: &Path,
    key: &'static Key,
    text: &str,
    decode: impl FnOnce(&mut Ctx, &Node, &str, &'static ValueKind) -> Option<T>,
) -> Option<T> {
    let source = Source::new(file, text);
    let (node, problems) = tree::parse(&source);
    let mut ctx = Ctx::new(source);
    ctx.diagnostics = problems;
    let value = node.and_then(|node| decode(&mut ctx, &node, key.name, &key.kind));
    assert!(ctx.diagnostics.is_empty(), "{text} is refused for {}: {:?}", key.name, ctx.diagnostics);
    value
}

fn has_effect(words: &Words, node: &Node) -> bool {
    let tree::Value::Scalar(scalar) = &node.value else { return words.words.iter().all(|w| !w.later) };
    match words.words.iter().find(|word| word.text == scalar.text) {
        Some(word) => !word.later,
        None => words.words.iter().all(|w| !w.later),
    }
}

/// The items of a list that is declared by `kind`.
fn list<'n>(ctx: &mut Ctx, node: &'n Node, path: &str, kind: &ValueKind) -> Option<&'n [Node]> {
    let items = ctx.list(node, path)?;
    if let (ValueKind::NonEmpty(_, must), []) = (kind, items) {
        ctx.error(Code::NothingToDo, node.span, format!("`{path}` must {must}"));
        return None;
    }
    Some(items)
}

/// Checks a value that nobody needs.
fn check(ctx: &mut Ctx, node: &Node, path: &str, kind: &'static ValueKind) {
    match kind {
        ValueKind::Bool => drop(bool::decode(ctx, node, path, kind)),
        ValueKind::Text | ValueKind::Name(_) | ValueKind::Path | ValueKind::Scalar | ValueKind::Word(_) => {
            drop(String::decode(ctx, node, path, kind));
        }
        ValueKind::Integer { .. }
        | ValueKind::Decimal { .. }
        | ValueKind::Duration(_)
        | ValueKind::Millis => {
            u64::decode(ctx, node, path, kind);
        }
        ValueKind::Rate { .. } | ValueKind::Probability { .. } => drop(Ppb::decode(ctx, node, path, kind)),
        ValueKind::MillisRange | ValueKind::PpmRange => drop(RangeNs::decode(ctx, node, path, kind)),
        ValueKind::List(of) | ValueKind::NonEmpty(of, _) => {
            for item in list(ctx, node, path, kind).unwrap_or_default() {
                check(ctx, item, path, of);
            }
        }
        ValueKind::Tag(_) | ValueKind::Section(_) | ValueKind::Variants(_) | ValueKind::Own(_) => {
            panic!("{path} is declared as {kind:?}, which only its decoder can read")
        }
    }
}

/// A type as which values of some kinds can be read.
pub(crate) trait Decode: Sized {
    /// Reads a value; `None` after a report of what is wrong with it.
    fn decode(ctx: &mut Ctx, node: &Node, path: &str, kind: &'static ValueKind) -> Option<Self>;
}

/// A decoder asks for another type than the declaration gives: found by the test that reads every key.
fn unfit<T>(path: &str, kind: &ValueKind) -> ! {
    panic!("{path} is declared as {kind:?}, which is no {}", std::any::type_name::<T>())
}

impl Decode for bool {
    fn decode(ctx: &mut Ctx, node: &Node, path: &str, kind: &'static ValueKind) -> Option<bool> {
        match kind {
            ValueKind::Bool => ctx.bool(node, path),
            _ => unfit::<bool>(path, kind),
        }
    }
}

impl Decode for String {
    fn decode(ctx: &mut Ctx, node: &Node, path: &str, kind: &'static ValueKind) -> Option<String> {
        match kind {
            ValueKind::Text => ctx.string(node, path),
            ValueKind::Name(_) | ValueKind::Path => ctx.name(node, path),
            ValueKind::Scalar => ctx.text(node, path),
            ValueKind::Word(words) => Some(words.words[ctx.word(node, path, words)?].text.to_owned()),
            _ => unfit::<String>(path, kind),
        }
    }
}

/// Resolved against the directory of the file.
impl Decode for PathBuf {
    fn decode(ctx: &mut Ctx, node: &Node, path: &str, kind: &'static ValueKind) -> Option<PathBuf> {
        match kind {
            ValueKind::Path => Some(super::resolve(&ctx.source.dir(), &ctx.name(node, path)?)),
            _ => unfit::<PathBuf>(path, kind),
        }
    }
}

/// Numbers as they are, decimals in thousandths, times in nanoseconds.
impl Decode for u64 {
    fn decode(ctx: &mut Ctx, node: &Node, path: &str, kind: &'static ValueKind) -> Option<u64> {
        match kind {
            ValueKind::Integer { least, most } => ctx.integer(node, path, *least, *most),
            ValueKind::Decimal { least, most } => {
                let bound = |text| scalar::thousandths(text).expect("a bound is a number");
                ctx.thousandths(node, path, bound(least), bound(most))
            }
            ValueKind::Duration(shortest) => duration(ctx, node, path, shortest),
            ValueKind::Millis => ctx.millis(node, path),
            _ => unfit::<u64>(path, kind),
        }
    }
}

fn duration(ctx: &mut Ctx, node: &Node, path: &str, shortest: &Shortest) -> Option<u64> {
    let ns = ctx.duration(node, path)?;
    match shortest {
        Shortest::Positive if ns == 0 => {
            ctx.error(Code::OutOfRange, node.span, format!("`{path}` must be longer than 0"));
            None
        }
        Shortest::Of { least, what, why } if ns < scalar::duration(least).expect("a bound is a duration") => {
            let message = format!("{what} ({}) is too short: at least {least}", show_duration(ns));
            ctx.error(Code::OutOfRange, node.span, message).help(*why);
            None
        }
        _ => Some(ns),
    }
}

/// The largest value that is declared must fit.
impl Decode for u32 {
    fn decode(ctx: &mut Ctx, node: &Node, path: &str, kind: &'static ValueKind) -> Option<u32> {
        u64::decode(ctx, node, path, kind)
            .map(|n| u32::try_from(n).unwrap_or_else(|_| unfit::<u32>(path, kind)))
    }
}

impl Decode for Ppb {
    fn decode(ctx: &mut Ctx, node: &Node, path: &str, kind: &'static ValueKind) -> Option<Ppb> {
        let most = match kind {
            ValueKind::Rate { most } => scalar::rate(most).expect("a bound is a rate"),
            ValueKind::Probability { .. } => Ppb::ONE,
            _ => unfit::<Ppb>(path, kind),
        };
        let rate = ctx.rate(node, path)?;
        if rate > most {
            ctx.error(Code::OutOfRange, node.span, format!("`{path}` must be at most {most}"));
            return None;
        }
        Some(rate)
    }
}

impl Decode for RangeNs {
    fn decode(ctx: &mut Ctx, node: &Node, path: &str, kind: &'static ValueKind) -> Option<RangeNs> {
        match kind {
            ValueKind::MillisRange => ctx.millis_range(node, path),
            ValueKind::PpmRange => ctx.ppm_range(node, path),
            _ => unfit::<RangeNs>(path, kind),
        }
    }
}

/// A word as the value that it stands for.
pub(super) struct Chosen<T>(pub(super) T);

impl<T: Choice> Decode for Chosen<T> {
    fn decode(ctx: &mut Ctx, node: &Node, path: &str, kind: &'static ValueKind) -> Option<Chosen<T>> {
        match kind {
            ValueKind::Word(words) if words.name == T::WORDS.name => {
                Some(Chosen(T::ALL[ctx.word(node, path, words)?]))
            }
            _ => unfit::<T>(path, kind),
        }
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn decode(ctx: &mut Ctx, node: &Node, path: &str, kind: &'static ValueKind) -> Option<Vec<T>> {
        match kind {
            ValueKind::List(of) | ValueKind::NonEmpty(of, _) => {
                let items = list(ctx, node, path, kind)?;
                Some(items.iter().filter_map(|item| T::decode(ctx, item, path, of)).collect())
            }
            _ => unfit::<Vec<T>>(path, kind),
        }
    }
}

impl<T: Decode> Decode for Located<T> {
    fn decode(ctx: &mut Ctx, node: &Node, path: &str, kind: &'static ValueKind) -> Option<Located<T>> {
        let value = T::decode(ctx, node, path, kind)?;
        Some(ctx.located(value, node.span))
    }
}

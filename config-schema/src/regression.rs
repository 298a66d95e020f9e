//! Files of regression cases (`regressions/NAME.yaml`), decoded with the place of everything that does not fit.
//!
//! Key type: [`Regression`]. What a case means is the runner's matter: names of choices, of concerns and of instructions are texts here, each with
//! its place, at which the runner complains with [`Located::place`]. Neighbours: `tree` and `decode` below.

use std::path::Path;

use crate::decode::{Ctx, Fields, Located};
use crate::diagnostic::{self, Code, Diagnostic, has_errors};
use crate::tree::{self, Node, Source};

/// The version of the form.
pub const VERSION: u64 = 1;

/// Longest text of a key, in bytes; what is longer was not written by `regress add`.
const LONGEST: usize = 1 << 16;

/// A case as it stands in its file.
#[derive(Clone, Debug)]
pub struct Regression {
    /// The file.
    pub source: Source,
    /// The property that fails, or the kind of a finding of the machine.
    pub property: String,
    /// Its kind.
    pub kind: String,
    /// The first line of the violation, without its numbers.
    pub shape: String,
    /// It is known, and why that is left as it is. It may be an empty text.
    pub known: Option<String>,
    /// What happens, for people.
    pub story: Vec<String>,
    /// Its faults as a schedule.
    pub schedule: Option<Located<String>>,
    /// Why there is no schedule of its faults.
    pub no_schedule: Option<String>,
    /// What it was found on.
    pub found: Found,
    /// The log of its run.
    pub log: LogText,
}

/// What a case was found on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Version of Bloodhound.
    pub bloodhound: String,
    /// What its digest covers.
    pub digest_version: u64,
    /// The platform.
    pub platform: String,
    /// Digest of configuration, compose files and environment.
    pub plan: String,
    /// Digest of the run.
    pub digest: String,
    /// When it was violated, ns of virtual time.
    pub virtual_time_ns: u64,
    /// Files of the host that the run saw: kind, tree, size, digest, path.
    pub inputs: Vec<Located<String>>,
}

/// An epoch: from when, with which seed, about which concerns.
pub type EpochText = (u64, u64, Vec<Located<String>>);

/// The log of a run as texts.
#[derive(Clone, Debug)]
pub struct LogText {
    /// Version of the log's form.
    pub version: Located<u64>,
    /// Seed of the boot.
    pub boot_seed: u64,
    /// Seed of the run.
    pub seed: u64,
    /// Concerns of which all choices are plain.
    pub plain: Vec<Located<String>>,
    /// From when on, with which seed, which concerns.
    pub epochs: Vec<Located<EpochText>>,
    /// `SITE = VALUE of BOUND`.
    pub overrides: Vec<Located<String>>,
    /// Loops that are counted.
    pub counted: Vec<CountedText>,
    /// Switches of tasks at instructions.
    pub switches: Option<Vec<SwitchText>>,
}

/// A loop that is counted.
#[derive(Clone, Debug)]
pub struct CountedText {
    /// From which step on.
    pub step: u64,
    /// Which.
    pub place: String,
    /// Bytes before it that are executed one behind the other.
    pub straight: u64,
    /// Its task counts as endless.
    pub endless: bool,
}

/// A switch of tasks at an instruction.
#[derive(Clone, Debug)]
pub struct SwitchText {
    /// The container.
    pub node: u64,
    /// The life of its service.
    pub life: u64,
    /// The task.
    pub task: Located<String>,
    /// The instruction.
    pub place: String,
    /// At which pass.
    pub nth: u64,
    /// Amid the instruction.
    pub torn: bool,
}

impl Regression {
    /// Reads a file. `None` exactly if there is an error among the diagnostics.
    pub fn load(path: &Path) -> (Option<Regression>, Vec<Diagnostic>) {
        match Source::read(path) {
            Ok(source) => Regression::decode(source),
            Err(diagnostic) => (None, vec![*diagnostic]),
        }
    }

    /// Decodes a text. `None` exactly if there is an error among the diagnostics.
    pub fn decode(source: Source) -> (Option<Regression>, Vec<Diagnostic>) {
        let (node, syntax) = tree::parse(&source);
        let mut ctx = Ctx::new(source);
        ctx.diagnostics = syntax;
        let decoded = node.and_then(|node| top(&mut ctx, &node));
        let mut diagnostics = ctx.diagnostics;
        if decoded.is_none() && !has_errors(&diagnostics) {
            let name = ctx.source.name.clone();
            let message = format!("{name} is no regression case");
            diagnostics.push(Diagnostic::about_file(
                Code::Malformed,
                diagnostic::Severity::Error,
                &name,
                message,
            ));
        }
        diagnostic::sort(&mut diagnostics);
        (decoded.filter(|_| !has_errors(&diagnostics)), diagnostics)
    }
}

fn top(ctx: &mut Ctx, node: &Node) -> Option<Regression> {
    let keys =
        ["version", "property", "kind", "shape", "known", "story", "schedule", "no_schedule", "found", "log"];
    let fields = ctx.fields(node, "", &keys)?;
    let version = need(ctx, &fields, "version", |ctx, node, path| ctx.integer(node, path, 1, u64::MAX))?;
    if version != VERSION {
        let message = format!("the case has version {version}; this Bloodhound reads {VERSION}");
        let span = fields.node("version").map_or(node.span, |node| node.span);
        ctx.error(Code::UnknownValue, span, message)
            .help("use the version of Bloodhound that made it, or add its finding again with this one");
        return None;
    }
    let property = need(ctx, &fields, "property", Ctx::name);
    let kind = need(ctx, &fields, "kind", Ctx::name);
    let shape = need(ctx, &fields, "shape", Ctx::string);
    let known = fields.get(ctx, "known", Ctx::string);
    let story = texts(ctx, &fields, "story").into_iter().map(|text| text.value).collect();
    let schedule = fields.get(ctx, "schedule", text);
    let no_schedule = fields.get(ctx, "no_schedule", Ctx::string);
    let found = need(ctx, &fields, "found", found);
    let log = need(ctx, &fields, "log", log);
    Some(Regression {
        source: ctx.source.clone(),
        property: property?,
        kind: kind?,
        shape: shape?,
        known,
        story,
        schedule,
        no_schedule,
        found: found?,
        log: log?,
    })
}

/// The value of a key that must be there.
fn need<'n, T>(
    ctx: &mut Ctx,
    fields: &Fields<'n>,
    key: &str,
    decode: impl FnOnce(&mut Ctx, &'n Node, &str) -> Option<T>,
) -> Option<T> {
    if fields.entry(key).is_none() {
        ctx.missing(fields, key);
        return None;
    }
    fields.get(ctx, key, decode)
}

fn number(ctx: &mut Ctx, fields: &Fields<'_>, key: &str) -> Option<u64> {
    need(ctx, fields, key, |ctx, node, path| ctx.integer(node, path, 0, u64::MAX))
}

fn flag(ctx: &mut Ctx, fields: &Fields<'_>, key: &str) -> bool {
    fields.get(ctx, key, Ctx::bool).unwrap_or_default()
}

fn text(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Located<String>> {
    let text = ctx.string(node, path)?;
    if text.len() > LONGEST && path != "schedule" {
        ctx.error(Code::Limit, node.span, format!("`{path}` has {} bytes, more than {LONGEST}", text.len()));
        return None;
    }
    Some(ctx.located(text, node.span))
}

/// The texts of a list; a key that is not there is an empty one.
fn texts(ctx: &mut Ctx, fields: &Fields<'_>, key: &str) -> Vec<Located<String>> {
    list(ctx, fields, key, text)
}

/// The items of a list, of which those that are wrong are reported and left out.
fn list<T>(
    ctx: &mut Ctx,
    fields: &Fields<'_>,
    key: &str,
    decode: fn(&mut Ctx, &Node, &str) -> Option<T>,
) -> Vec<T> {
    let path = fields.path(key);
    let items = fields.node(key).and_then(|node| ctx.list(node, &path)).unwrap_or_default();
    let decoded = items.iter().enumerate();
    decoded.filter_map(|(at, item)| decode(ctx, item, &format!("{path}[{at}]"))).collect()
}

fn found(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Found> {
    let keys = ["bloodhound", "digest_version", "platform", "plan", "digest", "virtual_time_ns", "inputs"];
    let fields = ctx.fields(node, path, &keys)?;
    let bloodhound = need(ctx, &fields, "bloodhound", Ctx::name);
    let digest_version = number(ctx, &fields, "digest_version");
    let platform = need(ctx, &fields, "platform", Ctx::name);
    let plan = need(ctx, &fields, "plan", Ctx::name);
    let digest = need(ctx, &fields, "digest", Ctx::name);
    let virtual_time_ns = number(ctx, &fields, "virtual_time_ns");
    let inputs = texts(ctx, &fields, "inputs");
    Some(Found {
        bloodhound: bloodhound?,
        digest_version: digest_version?,
        platform: platform?,
        plan: plan?,
        digest: digest?,
        virtual_time_ns: virtual_time_ns?,
        inputs,
    })
}

fn log(ctx: &mut Ctx, node: &Node, path: &str) -> Option<LogText> {
    let keys = ["version", "boot_seed", "seed", "plain", "epochs", "overrides", "counted", "switches"];
    let fields = ctx.fields(node, path, &keys)?;
    let version = number(ctx, &fields, "version");
    let span = fields.node("version").map_or(node.span, |node| node.span);
    let boot_seed = number(ctx, &fields, "boot_seed");
    let seed = number(ctx, &fields, "seed");
    let plain = texts(ctx, &fields, "plain");
    let epochs = list(ctx, &fields, "epochs", epoch);
    let overrides = texts(ctx, &fields, "overrides");
    let counted = list(ctx, &fields, "counted", counted);
    let drawn = fields.entry("switches").is_some();
    let switches = list(ctx, &fields, "switches", switch);
    Some(LogText {
        version: ctx.located(version?, span),
        boot_seed: boot_seed?,
        seed: seed?,
        plain,
        epochs,
        overrides,
        counted,
        switches: drawn.then_some(switches),
    })
}

fn epoch(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Located<EpochText>> {
    let fields = ctx.fields(node, path, &["from", "seed", "concerns"])?;
    let (from, seed) = (number(ctx, &fields, "from"), number(ctx, &fields, "seed"));
    let concerns = texts(ctx, &fields, "concerns");
    Some(ctx.located((from?, seed?, concerns), node.span))
}

fn counted(ctx: &mut Ctx, node: &Node, path: &str) -> Option<CountedText> {
    let fields = ctx.fields(node, path, &["step", "place", "straight", "endless"])?;
    let step = number(ctx, &fields, "step");
    let place = need(ctx, &fields, "place", Ctx::name);
    let straight = fields.get(ctx, "straight", |ctx, node, path| ctx.integer(node, path, 0, 255));
    let endless = flag(ctx, &fields, "endless");
    Some(CountedText { step: step?, place: place?, straight: straight.unwrap_or_default(), endless })
}

fn switch(ctx: &mut Ctx, node: &Node, path: &str) -> Option<SwitchText> {
    let fields = ctx.fields(node, path, &["node", "life", "task", "place", "nth", "torn"])?;
    let of_32 = |ctx: &mut Ctx, key: &str| {
        need(ctx, &fields, key, |ctx, node, path| ctx.integer(node, path, 0, u64::from(u32::MAX)))
    };
    let (node, life) = (of_32(ctx, "node"), of_32(ctx, "life"));
    let task = need(ctx, &fields, "task", text);
    let place = need(ctx, &fields, "place", Ctx::name);
    let nth = number(ctx, &fields, "nth");
    let torn = flag(ctx, &fields, "torn");
    Some(SwitchText { node: node?, life: life?, task: task?, place: place?, nth: nth?, torn })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "version: 1\nproperty: stays\nkind: safety\nshape: \"w ended: #\"\nfound: {bloodhound: 0.1.0, digest_version: 1, platform: p, \
        plan: aa, digest: bb, virtual_time_ns: 5}\nlog:\n  version: 4\n  boot_seed: 1\n  seed: 18446744073709551615\n  overrides:\n    - \"run:x = 0 of 2\"\n";

    fn decode(text: &str) -> (Option<Regression>, Vec<Diagnostic>) {
        Regression::decode(Source::new(Path::new("regressions/a.yaml"), text))
    }

    #[test]
    fn a_case_is_decoded_with_its_places() {
        let (case, wrong) = decode(WHOLE);
        let case = case.unwrap_or_else(|| panic!("{wrong:?}"));
        assert_eq!((case.property.as_str(), case.log.seed, case.known), ("stays", u64::MAX, None));
        assert_eq!((case.log.overrides[0].at.line, case.log.switches.is_none()), (11, true));
    }

    #[test]
    fn what_does_not_fit_is_told_with_its_line() {
        for (from, to, line, says) in [
            ("kind: safety\n", "", 1, "the key `kind` is missing"),
            ("version: 1\n", "version: 2\n", 1, "has version 2"),
            ("property: stays", "property: [stays]", 2, "must be a string"),
            ("boot_seed: 1", "boot_sed: 1", 8, "unknown key"),
            ("seed: 18446744073709551615", "seed: 18446744073709551616", 9, "seed"),
            ("kind: safety", "kind: 'safety", 3, ""),
            ("- \"run:x", "- 7 # \"run:x", 11, "must be a string"),
        ] {
            assert!(WHOLE.contains(from), "{from}");
            let (case, wrong) = decode(&WHOLE.replacen(from, to, 1));
            assert!(case.is_none(), "{to}");
            let hit = wrong.iter().any(|d| {
                d.message.contains(says)
                    && (says.is_empty() || d.place.as_ref().is_some_and(|p| p.line == line))
            });
            assert!(hit, "{to}: {wrong:?}");
        }
        for text in ["", "[]", "a: b", "\u{0}", "version: 1"] {
            let (case, wrong) = decode(text);
            assert!(case.is_none() && has_errors(&wrong), "{text:?}");
        }
    }
}

//! What the section `faults` says about the plan beside rates: entries of a fixed schedule, the budget, quiet periods, and which services a
//! kind may hit.
//!
//! Key types: [`ScheduledFault`], [`FaultTrigger`], [`Budget`]. A schedule stands in bloodhound.yaml, or in a file of its own with the same
//! entries ([`schedule_file`]).

use std::collections::BTreeMap;

use bloodhound_declare::{Key, Section, Shortest, Syntax, ValueKind, words};
use bloodhound_faults::{Begins, Declaration, Kind, NAMES, Shape};
use regex::bytes::Regex;

use crate::decode::{Ctx, Located};
use crate::diagnostic::Code;
use crate::scalar::{Ppb, show_duration};
use crate::tree::{Node, Span, Value};

use super::properties::SERVICES;
use super::read::{Chosen, Decode, Settings};

const RATE: ValueKind = ValueKind::Rate { most: "1" };

/// Groups of services, as a partition has them.
const GROUPS: ValueKind = ValueKind::Own(&Syntax {
    name: "ServiceGroups",
    written: "groups of services, such as `[[kv1], [kv2, kv3]]`",
    plural: "",
    doc: "lists of services in a list",
    schema: r#"{"type": "array", "minItems": 1, "maxItems": 3, "items":
        {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}}}"#,
    uses: &[],
});

static GROUP_LIST: ValueKind = ValueKind::NonEmpty(&SERVICES, "name at least one group");

/// A file with a schedule.
static FILE: Section = Section::new(
    "FaultScheduleFile",
    "a fixed schedule of faults",
    &[
        Key::new("schedule", ValueKind::List(&ValueKind::Section(&SCHEDULED)), "the faults").required(),
        Key::new(
            "quiet",
            ValueKind::List(&PERIOD),
            "times in which operations and questions are not counted; `--save-faults` writes the quiet periods of the run",
        )
        .otherwise("never"),
    ],
);

pub(super) static SCHEDULED: Section = Section {
    name: "ScheduledFault",
    doc: "a fault at a time, or when something happens",
    keys: &[
        Key::new(
            "at",
            ValueKind::Duration(Shortest::Zero),
            "when it begins: so long after faults can begin, that is after all services are ready and `start_after` is over",
        ),
        Key::section("on", &TRIGGER),
        Key::new(
            "nth",
            ValueKind::Integer { least: 1, most: u64::MAX },
            "for faults of operations and of questions to name servers: at which one of the service that could be hit, counted from when \
             faults can begin",
        ),
        Key::new("fault", ValueKind::Word(&NAMES), "which kind").required(),
        Key::new(
            "service",
            ValueKind::Name("service"),
            "whom it hits: a service, with all its replicas, one of them, or a group of `faults.groups`",
        ),
        Key::new("services", SERVICES, "whom it hits, at the same time; for a partition, whom it divides"),
        Key::new(
            "volume",
            ValueKind::Name("volume"),
            "for faults of disks, in the place of `service`: the volume of the compose file that it hits, in all services that mount it",
        ),
        Key::new("duration", ValueKind::Duration(Shortest::Zero), "how long it lasts")
            .otherwise("drawn, as configured for the kind"),
        Key::new("partition", ValueKind::Word(Shape::WORDS), "the shape of a partition")
            .otherwise("`symmetric` with `groups`, else drawn"),
        Key::new(
            "groups",
            GROUPS,
            "the groups of a partition: two; for `isolate` the node and, if not all, the others; for `bridge` the bridge and two groups",
        )
        .otherwise("drawn"),
        Key::new("rate", RATE, "for faults of packets: how many packets").otherwise("as configured for the kind"),
        Key::new(
            "time_ms",
            ValueKind::Millis,
            "for faults of packets: how much later they arrive; for clock-skew: how wrong the wall clock is at most; for dns-delay: how much later the answer comes at most",
        )
        .otherwise("as configured for the kind"),
        Key::new(
            "kbit",
            ValueKind::Integer { least: 1, most: 100_000_000 },
            "for bandwidth: what each direction between two nodes carries, in 1000 bits per second",
        ),
        Key::new("from", SERVICES, "for faults of packets: packets from these services").otherwise("all"),
        Key::new("to", SERVICES, "for faults of packets: packets to these services").otherwise("all"),
        Key::section("drawn", &DRAWN),
    ],
    one_of: &["at", "on", "nth"],
};

static TRIGGER: Section = Section {
    name: "FaultTrigger",
    doc: "what has to happen first; it is counted from when faults can begin",
    keys: &[
        Key::new("log", ValueKind::Text, "a service writes a line that contains this"),
        Key::new(
            "pattern",
            ValueKind::Text,
            "a service writes a line that this regular expression matches (the syntax of the Rust crate regex), anywhere unless `^` and `$` say otherwise",
        ),
        Key::new(
            "call",
            ValueKind::Name("system call"),
            "a process of a service makes a system call of this name",
        ),
        Key::new(
            "when",
            ValueKind::Word(CallMoment::WORDS),
            "for `call`: whether the fault comes before it or after it",
        )
        .default("return"),
        Key::new("service", ValueKind::Name("service"), "the service").required(),
        Key::new("nth", ValueKind::Integer { least: 1, most: u64::MAX }, "at which time").default("1"),
        Key::new("after", ValueKind::Duration(Shortest::Zero), "how much later the fault begins")
            .default("0s"),
    ],
    one_of: &["log", "pattern", "call"],
};

words! {
    /// When in a system call.
    pub enum CallMoment as "CallMoment" {
        Enter = "enter": "it is about to be made, and is made when the fault has begun",
        Return = "return": "it has returned",
    }
}

static DRAWN: Section = Section::new(
    "DrawnFault",
    "what is not said is as a seed drew it for an entry of its plan; `--save-faults` writes it",
    &[
        Key::new("seed", ValueKind::Integer { least: 0, most: u64::MAX }, "the seed").required(),
        Key::new(
            "nth",
            ValueKind::Integer { least: 0, most: u64::MAX },
            "the number of the entry among those of its kind and service",
        )
        .required(),
    ],
);

/// How many nodes may be down.
const DOWN: ValueKind = ValueKind::Own(&Syntax {
    name: "DownBudget",
    written: "whole number or `minority`",
    plural: "",
    doc: "a number of services, or `minority`: as many as leave most of those up that faults may hit",
    schema: r#"{"anyOf": [{"type": "integer", "minimum": 0}, {"const": "minority"}]}"#,
    uses: &[],
});

pub(super) static BUDGET: Section = Section::new(
    "FaultBudget",
    "what a seed's plan must keep to; entries of the schedule always happen",
    &[
        Key::new(
            "down",
            DOWN,
            "how many services may be down at the same time: by faults of `process` until they end, or on the smaller side of a partition",
        )
        .otherwise("any number; with a preset, as that says"),
        Key::new(
            "recovery",
            ValueKind::Duration(Shortest::Zero),
            "a service counts as down for so long after the fault has ended",
        )
        .default("0s"),
        Key::new("spare", SERVICES, "services that are never taken down").otherwise("none"),
        Key::new(
            "disks",
            ValueKind::Integer { least: 0, most: 1000 },
            "how many disks may have faults at the same time, those of `disk` and `replace`; each machine has one",
        )
        .otherwise("any number"),
    ],
);

/// Two durations.
pub(super) const PERIOD: ValueKind = ValueKind::Own(&Syntax {
    name: "Period",
    written: "period",
    plural: "periods, such as `[10s, 20s]`",
    doc: "a beginning and an end",
    schema: r#"{"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": ["string", "integer"]}}"#,
    uses: &[],
});

/// An entry of a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduledFault {
    /// When it begins.
    pub trigger: FaultTrigger,
    /// The kind.
    pub kind: Kind,
    /// `service` or `services`.
    pub services: Vec<Located<String>>,
    /// `duration`, ns.
    pub duration_ns: Option<u64>,
    /// `partition`.
    pub shape: Option<Shape>,
    /// `groups`.
    pub groups: Vec<Vec<Located<String>>>,
    /// `rate`.
    pub rate: Option<Ppb>,
    /// `time_ms`, in ns.
    pub time_ns: Option<u64>,
    /// `kbit`.
    pub kbit: Option<u64>,
    /// `from` and `to`; none: all.
    pub from: Vec<Located<String>>,
    /// See `from`.
    pub to: Vec<Located<String>>,
    /// `drawn`: seed and number.
    pub drawn: Option<(u64, u64)>,
    /// `volume`.
    pub volume: Option<Located<String>>,
}

/// When an entry begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultTrigger {
    /// So long after faults can begin, ns.
    At(u64),
    /// At the operation or question of this number, from 1.
    Nth(u64),
    /// At a line, or a system call, of a service.
    On {
        /// What is counted.
        what: FaultOn,
        /// Of which service.
        service: Located<String>,
        /// Which of them, from 1.
        nth: u64,
        /// So much later, ns.
        after_ns: u64,
    },
}

/// What a trigger counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultOn {
    /// Lines with this text.
    Log(String),
    /// Lines that this regular expression matches.
    Pattern(String),
    /// System calls of this name.
    Call(Located<String>, CallMoment),
}

/// The section `faults.budget`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// `down`.
    pub down: Option<DownBudget>,
    /// `recovery`, ns.
    pub recovery_ns: u64,
    /// `spare`.
    pub spare: Vec<Located<String>>,
    /// `disks`.
    pub disks: Option<u32>,
}

/// How many services may be down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownBudget {
    /// So many.
    Count(u32),
    /// So many that most are up.
    Minority,
}

impl ScheduledFault {
    /// All services that it names.
    pub fn names(&self) -> impl Iterator<Item = &Located<String>> {
        let on = match &self.trigger {
            FaultTrigger::At(_) | FaultTrigger::Nth(_) => None,
            FaultTrigger::On { service, .. } => Some(service),
        };
        let groups = self.groups.iter().flatten();
        on.into_iter().chain(&self.services).chain(groups).chain(&self.from).chain(&self.to)
    }
}

/// The entries at `schedule`. `end`: when no fault begins any more, ns after faults can begin, if that is known.
pub(super) fn schedule(ctx: &mut Ctx, settings: &Settings<'_>) -> Vec<ScheduledFault> {
    let items = settings.sections(ctx, "schedule").unwrap_or_default();
    items.iter().filter_map(|item| scheduled(ctx, item)).collect()
}

/// What stands in a file of faults: entries, and quiet periods (begin and end, ns).
pub(super) type ScheduleFile = (Vec<ScheduledFault>, Vec<(u64, u64)>);

/// Reads a file of faults.
pub(super) fn schedule_file(ctx: &mut Ctx, node: &Node) -> Option<ScheduleFile> {
    let settings = Settings::open(ctx, node, "", &FILE)?;
    Some((schedule(ctx, &settings), quiet(ctx, &settings)))
}

fn scheduled(ctx: &mut Ctx, item: &Settings<'_>) -> Option<ScheduledFault> {
    let at = item.get::<u64>(ctx, "at").map(FaultTrigger::At);
    let on = item.section(ctx, "on").and_then(|on| trigger(ctx, &on));
    let nth = item.get::<u64>(ctx, "nth").map(FaultTrigger::Nth);
    let (name, one) = (item.get::<String>(ctx, "fault"), item.get::<Located<String>>(ctx, "service"));
    let mut services: Vec<Located<String>> = item.get(ctx, "services").unwrap_or_default();
    if let (Some(_), Some(entry)) = (&one, item.entry("services")) {
        ctx.error(Code::Conflict, entry.key_span, "`service` and `services` exclude each other");
    }
    services.extend(one);
    let groups = item.own(ctx, "groups", |ctx, node, path| Decode::decode(ctx, node, path, &GROUP_LIST));
    let drawn = item.section(ctx, "drawn").and_then(|drawn| {
        let (seed, nth) = (drawn.get(ctx, "seed"), drawn.get(ctx, "nth"));
        Some((seed?, nth?))
    });
    let entry = ScheduledFault {
        kind: Kind::named(&name?)?,
        duration_ns: item.get(ctx, "duration"),
        shape: item.get::<Chosen<Shape>>(ctx, "partition").map(|shape| shape.0),
        rate: item.get(ctx, "rate"),
        time_ns: item.get(ctx, "time_ms"),
        kbit: item.get(ctx, "kbit"),
        from: item.get(ctx, "from").unwrap_or_default(),
        to: item.get(ctx, "to").unwrap_or_default(),
        trigger: at.or(on).or(nth)?,
        services,
        groups: groups.unwrap_or_default(),
        drawn,
        volume: item.get(ctx, "volume"),
    };
    fits(ctx, item, &entry);
    Some(entry)
}

fn trigger(ctx: &mut Ctx, on: &Settings<'_>) -> Option<FaultTrigger> {
    let log = on.get::<String>(ctx, "log").map(FaultOn::Log);
    let pattern = pattern(ctx, on).map(FaultOn::Pattern);
    let Chosen(when) = on.value::<Chosen<CallMoment>>(ctx, "when");
    let call = on.get(ctx, "call").map(|call| FaultOn::Call(call, when));
    if let (None, Some(entry)) = (&call, on.entry("when")) {
        let message = format!("`{}` has no meaning without `call`", on.path("when"));
        ctx.error(Code::Conflict, entry.key_span, message);
    }
    if let (Some(FaultOn::Log(text)), Some(node)) = (&log, on.node("log"))
        && text.is_empty()
    {
        ctx.error(Code::Malformed, node.span, format!("`{}` must not be empty", on.path("log")));
    }
    let (nth, after_ns) = (on.value(ctx, "nth"), on.value(ctx, "after"));
    Some(FaultTrigger::On {
        what: log.or(pattern).or(call)?,
        service: on.get(ctx, "service")?,
        nth,
        after_ns,
    })
}

/// A regular expression that can be compiled.
fn pattern(ctx: &mut Ctx, on: &Settings<'_>) -> Option<String> {
    let text = on.get::<String>(ctx, "pattern")?;
    if let (Err(error), Some(node)) = (Regex::new(&text), on.node("pattern")) {
        let error = error.to_string();
        // The crate shows the expression with a mark below it; the last line says what is wrong.
        let why = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
        let message = format!("`{}` is no regular expression: {why}", on.path("pattern"));
        ctx.error(Code::Malformed, node.span, message);
        return None;
    }
    Some(text)
}

/// Checks that an entry has the keys of its kind.
fn fits(ctx: &mut Ctx, item: &Settings<'_>, entry: &ScheduledFault) {
    let declaration = entry.kind.declaration();
    let name = declaration.name;
    let key_span = item.entry("fault").map_or(item.span, |entry| entry.value.span);
    let by_number = declaration.is_asked() || declaration.is_of_names();
    if by_number != matches!(entry.trigger, FaultTrigger::Nth(_)) {
        single(ctx, item, declaration, key_span);
        return;
    }
    for (key, fits, why) in allowed(declaration, entry) {
        if let Some(entry) = item.entry(key).filter(|_| !fits) {
            ctx.error(Code::Conflict, entry.key_span, format!("`{key}` has no meaning for {name}: {why}"));
        }
    }
    let whom = if declaration.has_group() { "a group of services" } else { "a service" };
    let hits_some = declaration.has_target() || declaration.has_group() || by_number;
    if hits_some && entry.services.is_empty() && entry.volume.is_none() {
        ctx.error(Code::MissingKey, key_span, format!("{name} hits {whom}: which?"))
            .help("write `service: NAME`");
    }
    let link = declaration.is_of_links();
    let amount = declaration.switch().is_none();
    let needed = [
        ("duration", link),
        ("rate", link && !amount),
        ("time_ms", amount && declaration.has_time()),
        ("kbit", entry.kind == Kind::Bandwidth),
    ];
    for (key, _) in needed.iter().filter(|(key, needed)| *needed && item.entry(key).is_none()) {
        ctx.error(Code::MissingKey, key_span, format!("{name} needs `{key}`"));
    }
    if let (Some(0), Some(node)) = (entry.duration_ns, item.node("duration"))
        && !declaration.lasts_without_time()
    {
        let message = format!("`{}` must be longer than 0", item.path("duration"));
        ctx.error(Code::OutOfRange, node.span, message);
    }
    if entry.kind == Kind::Partition {
        groups(ctx, item, entry);
    }
}

/// An entry of a kind that comes at single operations has a number of one, and no other kind has.
fn single(ctx: &mut Ctx, item: &Settings<'_>, declaration: &Declaration, key_span: Span) {
    let name = declaration.name;
    let (what, group) = match declaration.is_of_names() {
        true => ("questions to the name server", "network"),
        false => ("operations of programs", "its section"),
    };
    if declaration.is_asked() || declaration.is_of_names() {
        let message = format!("{name} comes at {what}, and not at a time");
        ctx.error(Code::Malformed, key_span, message).help(format!(
            "write `nth: 17` for the 17th of the service, or give it `{}` in {group} of `faults`",
            declaration.keys.first().map_or("", |key| key.name)
        ));
    } else if let Some(entry) = item.entry("nth") {
        let message = format!("`nth` has no meaning for {name}: it begins at a time");
        ctx.error(Code::Conflict, entry.key_span, message).help("write `at: 2s`, or `on`");
    }
}

/// Which keys a kind takes, and why it would not.
fn allowed(declaration: &Declaration, entry: &ScheduledFault) -> [(&'static str, bool, &'static str); 15] {
    let link = declaration.is_of_links();
    let partition = declaration.kind == Kind::Partition;
    let links = "it is about faults of packets";
    let rated = link && declaration.switch().is_some();
    // The time of clock-skew is how wrong a clock is.
    let late = declaration.kind == Kind::DnsDelay;
    let timed = declaration.has_time() && (link || late || declaration.begins == Begins::Standing);
    let everywhere = declaration.kind == Kind::LeapSecond;
    let whom = if everywhere { "it comes to all machines" } else { "packets go `from` services `to` others" };
    let grouped = !entry.groups.is_empty();
    let of_disk = match declaration.kind {
        Kind::DiskQuota => "a quota is one of a service",
        _ => "it is about faults of disks",
    };
    let alone = entry.volume.is_none() || !declaration.hits_volumes();
    [
        ("duration", link || declaration.has_time() && !late, "it is over at once"),
        ("partition", partition, "it is about partitions"),
        ("groups", partition, "it is about partitions"),
        ("rate", rated, if link { "it has no rate" } else { links }),
        ("time_ms", timed, if link { "it has no time" } else { links }),
        ("kbit", declaration.kind == Kind::Bandwidth, "it is about bandwidth"),
        ("from", link, links),
        ("to", link, links),
        ("service", !link && !everywhere, whom),
        ("services", !link && !everywhere, whom),
        ("drawn", !link && declaration.is_timed(), "all of it is said"),
        ("services", !(partition && grouped), "the groups name them"),
        ("volume", declaration.hits_volumes(), of_disk),
        ("service", alone, "the volume is hit wherever it is mounted"),
        ("services", alone, "the volume is hit wherever it is mounted"),
    ]
}

/// The groups of a partition fit its shape.
fn groups(ctx: &mut Ctx, item: &Settings<'_>, entry: &ScheduledFault) {
    let Some(node) = item.node("groups").filter(|_| !entry.groups.is_empty()) else { return };
    let shape = entry.shape.unwrap_or(Shape::Symmetric);
    let (fits, needs) = match shape {
        Shape::Isolate => (entry.groups.len() <= 2, "the node that is cut off, and possibly the others"),
        Shape::Bridge => (entry.groups.len() == 3, "the bridge and two groups"),
        _ => (entry.groups.len() == 2, "two groups"),
    };
    let one = !matches!(shape, Shape::Isolate | Shape::Bridge) || entry.groups[0].len() == 1;
    if !fits || !one {
        ctx.error(
            Code::Malformed,
            node.span,
            format!("a partition of the kind {} has {needs}", shape.as_str()),
        )
        .help("for example `[[kv1], [kv2, kv3]]`");
    }
    let mut seen: BTreeMap<&str, ()> = BTreeMap::new();
    for name in entry.groups.iter().flatten() {
        if seen.insert(&name.value, ()).is_some() {
            ctx.error(Code::DuplicateName, name.span, format!("`{}` is in the groups twice", name.value));
        }
    }
}

/// Reads the section `budget`.
pub(super) fn budget(ctx: &mut Ctx, settings: &Settings<'_>) -> Budget {
    let down = settings.own(ctx, "down", |ctx, node, path| {
        if matches!(&node.value, Value::Scalar(scalar) if scalar.text == "minority") {
            return Some(DownBudget::Minority);
        }
        let count = ctx.integer(node, path, 0, 1000)?;
        Some(DownBudget::Count(u32::try_from(count).unwrap_or(u32::MAX)))
    });
    Budget {
        down,
        recovery_ns: settings.value(ctx, "recovery"),
        spare: settings.get(ctx, "spare").unwrap_or_default(),
        disks: settings.get(ctx, "disks"),
    }
}

/// Reads `quiet`.
pub(super) fn quiet(ctx: &mut Ctx, settings: &Settings<'_>) -> Vec<(u64, u64)> {
    let path = settings.path("quiet");
    let items = settings.list(ctx, "quiet").unwrap_or_default();
    let mut periods: Vec<(u64, u64)> = items.iter().filter_map(|item| period(ctx, item, &path)).collect();
    periods.sort();
    // Those that overlap are one.
    periods.dedup_by(|later, earlier| {
        let joined = later.0 <= earlier.1;
        if joined {
            earlier.1 = earlier.1.max(later.1);
        }
        joined
    });
    periods
}

fn period(ctx: &mut Ctx, node: &Node, path: &str) -> Option<(u64, u64)> {
    let Value::Seq(items) = &node.value else {
        ctx.wrong_type(node, path, "a list of periods such as [[10s, 20s]]");
        return None;
    };
    let [from, to] = items.as_slice() else {
        let message = format!("a period of `{path}` must have a beginning and an end, not {}", items.len());
        ctx.error(Code::WrongType, node.span, message).help("write [[10s, 20s]]");
        return None;
    };
    let (from_ns, to_ns) = (ctx.duration(from, path), ctx.duration(to, path));
    let (from_ns, to_ns) = (from_ns?, to_ns?);
    if from_ns >= to_ns {
        let span = Span { start: from.span.start, end: to.span.end };
        let message = format!("a period of `{path}` ends before it begins ({})", show_duration(from_ns));
        ctx.error(Code::ReversedRange, span, message);
        return None;
    }
    Some((from_ns, to_ns))
}

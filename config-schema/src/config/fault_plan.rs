//! What the section `faults` says about the plan beside rates: entries of a fixed schedule, the budget, quiet periods, and which services a
//! kind may hit.
//!
//! Key types: [`ScheduledFault`], [`FaultTrigger`], [`Budget`]. A schedule stands in bloodhound.yaml, or in a file of its own with the same
//! entries ([`schedule_file`]).

use std::collections::BTreeMap;

use bloodhound_declare::{Key, Section, Shortest, Syntax, ValueKind};
use bloodhound_faults::{Begins, Declaration, Kind, NAMES, Shape};

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

static SERVICE_LIST: ValueKind = SERVICES;

/// A file with a schedule.
static FILE: Section = Section::new(
    "FaultScheduleFile",
    "a fixed schedule of faults",
    &[Key::new("schedule", ValueKind::List(&ValueKind::Section(&SCHEDULED)), "the faults").required()],
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
        Key::new("fault", ValueKind::Word(&NAMES), "which kind").required(),
        Key::new(
            "service",
            ValueKind::Name("service"),
            "whom it hits: a service, with all its replicas, or one of them",
        ),
        Key::new("services", SERVICES, "whom it hits, at the same time; for a partition, whom it divides"),
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
            "for faults of packets: how much later they arrive; for clock-skew: how wrong the wall clock is at most",
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
    one_of: &["at", "on"],
};

static TRIGGER: Section = Section {
    name: "FaultTrigger",
    doc: "what has to happen first; it is counted from when faults can begin",
    keys: &[
        Key::new("log", ValueKind::Text, "a service writes a line that contains this"),
        Key::new(
            "call",
            ValueKind::Name("system call"),
            "a system call of this name returns in a process of a service",
        ),
        Key::new("service", ValueKind::Name("service"), "the service").required(),
        Key::new("nth", ValueKind::Integer { least: 1, most: u64::MAX }, "at which time").default("1"),
        Key::new("after", ValueKind::Duration(Shortest::Zero), "how much later the fault begins")
            .default("0s"),
    ],
    one_of: &["log", "call"],
};

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

/// Services by kinds.
pub(super) const TARGETS: ValueKind = ValueKind::Own(&Syntax {
    name: "FaultTargets",
    written: "lists of services by kind, such as `{crash: [kv1, kv2]}`",
    plural: "",
    doc: "for kinds of faults, the services that they may hit",
    schema: r#"{"type": ["object", "null"], "additionalProperties":
        {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}}}"#,
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
}

/// When an entry begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultTrigger {
    /// So long after faults can begin, ns.
    At(u64),
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
    /// System calls of this name.
    Call(Located<String>),
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
            FaultTrigger::At(_) => None,
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

/// The entries of a file.
pub(super) fn schedule_file(ctx: &mut Ctx, node: &Node) -> Option<Vec<ScheduledFault>> {
    let settings = Settings::open(ctx, node, "", &FILE)?;
    Some(schedule(ctx, &settings))
}

fn scheduled(ctx: &mut Ctx, item: &Settings<'_>) -> Option<ScheduledFault> {
    let at = item.get::<u64>(ctx, "at").map(FaultTrigger::At);
    let on = item.section(ctx, "on").and_then(|on| trigger(ctx, &on));
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
        trigger: at.or(on)?,
        services,
        groups: groups.unwrap_or_default(),
        drawn,
    };
    fits(ctx, item, &entry);
    Some(entry)
}

fn trigger(ctx: &mut Ctx, on: &Settings<'_>) -> Option<FaultTrigger> {
    let log = on.get::<String>(ctx, "log").map(FaultOn::Log);
    let call = on.get(ctx, "call").map(FaultOn::Call);
    if let (Some(FaultOn::Log(text)), Some(node)) = (&log, on.node("log"))
        && text.is_empty()
    {
        ctx.error(Code::Malformed, node.span, format!("`{}` must not be empty", on.path("log")));
    }
    let (nth, after_ns) = (on.value(ctx, "nth"), on.value(ctx, "after"));
    Some(FaultTrigger::On { what: log.or(call)?, service: on.get(ctx, "service")?, nth, after_ns })
}

/// Checks that an entry has the keys of its kind.
fn fits(ctx: &mut Ctx, item: &Settings<'_>, entry: &ScheduledFault) {
    let declaration = entry.kind.declaration();
    let name = declaration.name;
    let key_span = item.entry("fault").map_or(item.span, |entry| entry.value.span);
    let never = match declaration.begins {
        Begins::Asked => Some(("is asked for at operations of programs", "a rate")),
        _ if declaration.is_of_names() => Some(("is about all questions to name servers", "its key")),
        _ => None,
    };
    if let Some((why, instead)) = never {
        let message = format!("{name} {why} and begins at no time, so no schedule can have it");
        ctx.error(Code::Malformed, key_span, message)
            .help(format!("give it {instead} in the section `faults` instead"));
        return;
    }
    for (key, fits, why) in allowed(declaration, entry) {
        if let Some(entry) = item.entry(key).filter(|_| !fits) {
            ctx.error(Code::Conflict, entry.key_span, format!("`{key}` has no meaning for {name}: {why}"));
        }
    }
    if declaration.has_target() && entry.services.is_empty() {
        ctx.error(Code::MissingKey, key_span, format!("{name} hits a service: which?"))
            .help("write `service: NAME`");
    }
    let link = declaration.begins == Begins::Link;
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

/// Which keys a kind takes, and why it would not.
fn allowed(declaration: &Declaration, entry: &ScheduledFault) -> [(&'static str, bool, &'static str); 12] {
    let link = declaration.begins == Begins::Link;
    let partition = declaration.kind == Kind::Partition;
    let links = "it is about faults of packets";
    let rated = link && declaration.switch().is_some();
    // The time of clock-skew is how wrong a clock is.
    let timed = declaration.has_time() && (link || declaration.begins == Begins::Standing);
    let everywhere = declaration.kind == Kind::LeapSecond;
    let whom = if everywhere { "it comes to all machines" } else { "packets go `from` services `to` others" };
    let grouped = !entry.groups.is_empty();
    [
        ("duration", link || declaration.has_time(), "it is over at once"),
        ("partition", partition, "it is about partitions"),
        ("groups", partition, "it is about partitions"),
        ("rate", rated, if link { "it has no rate" } else { links }),
        ("time_ms", timed, if link { "it has no time" } else { links }),
        ("kbit", declaration.kind == Kind::Bandwidth, "it is about bandwidth"),
        ("from", link, links),
        ("to", link, links),
        ("service", !link && !everywhere, whom),
        ("services", !link && !everywhere, whom),
        ("drawn", !link, "all of it is said"),
        ("services", !(partition && grouped), "the groups name them"),
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

/// Reads `targets`.
pub(super) fn targets(
    ctx: &mut Ctx,
    node: &Node,
    path: &str,
) -> Option<BTreeMap<Kind, Vec<Located<String>>>> {
    let mut targets = BTreeMap::new();
    for entry in ctx.entries(node, path)? {
        let Some(kind) = Kind::named(&entry.key) else {
            ctx.unknown_key(entry, path, &NAMES.texts());
            continue;
        };
        if kind.declaration().begins == Begins::Link {
            ctx.error(Code::Malformed, entry.key_span, format!("{kind} hits packets, not services"));
            continue;
        }
        if kind == Kind::LeapSecond {
            ctx.error(Code::Malformed, entry.key_span, format!("{kind} comes to all machines"));
            continue;
        }
        let list = Decode::decode(ctx, &entry.value, &format!("{path}.{kind}"), &SERVICE_LIST);
        targets.insert(kind, list.unwrap_or_default());
    }
    Some(targets)
}

//! The section `properties`: what must hold.
//!
//! Key types: [`Property`], [`Check`]. Places are kept, because reports name the file and line of a property.

use std::path::PathBuf;

use bloodhound_declare::{Key, Section, Syntax, ValueKind, Variants, words};

use crate::decode::{Ctx, Located};
use crate::diagnostic::{Code, Severity, listed, quoted};
use crate::endpoint::Endpoint;
use crate::suggest::nearest;
use crate::tree::{Node, Span, Spot};

use super::FileChecks;
use super::operation::{self, METHOD, OUTCOMES, Operation, OperationKind, Outcome};
use super::read::{self, Chosen, Settings};
use super::sections::LONGER_THAN_0;
use super::workload::{ADDRESS, Workload};

pub(super) static PROPERTY: Section = Section::new(
    "Property",
    "something that must hold",
    &[
        Key::new("name", ValueKind::Name("text, unique"), "its name in reports").required(),
        Key::new("kind", ValueKind::Word(PropertyKind::WORDS), "when it must hold").required(),
        Key::new("description", ValueKind::Text, "what it means, for reports").otherwise("none"),
        Key::new(
            "timeout",
            LONGER_THAN_0,
            "liveness: within this time after the faults have been healed it must hold; else: how long one \
             check may take",
        )
        .default("30s"),
        Key::new(
            "check",
            ValueKind::Variants(&CHECK),
            "how it is checked; its `type` decides the other keys",
        )
        .required(),
    ],
);

static CHECK: Variants = Variants {
    name: "Check",
    doc: "how a property is checked",
    tag: "type",
    words: CheckType::WORDS,
    sections: &[&LINEARIZABILITY_CHECK, &HTTP_CHECK, &CUSTOM_CHECK, &NO_CRASH_CHECK, &HEALTHY_CHECK],
};

words! {
    /// The types of checks, in the order of their sections.
    enum CheckType as "CheckType" {
        Linearizability = "linearizability": "the history of the workload must be linearizable",
        Http = "http": "an HTTP request must be answered as expected",
        Custom = "custom": "a program must exit with 0",
        NoCrash = "no-crash": "no process may end by a signal or with a status other than 0",
        Healthy = "healthy": "the health checks of services must pass",
    }
}

static LINEARIZABILITY_CHECK: Section = Section::new(
    "LinearizabilityCheck",
    "the history of the workload must be linearizable",
    &[
        Key::new("type", ValueKind::Tag("linearizability"), "").required(),
        Key::new(
            "operations",
            ValueKind::List(&ValueKind::Own(&OPERATION_NAME)),
            "what it is about; every other operation that changes state is part of the history as well \
             (warning `BH0025`), because without it reads would look wrong",
        )
        .otherwise("all but `custom`"),
        Key::new("model", ValueKind::Word(Model::WORDS), "against which model").default("kv"),
    ],
);

static OPERATION_NAME: Syntax = Syntax {
    name: "",
    written: "name or type of an operation",
    plural: "names or types of operations",
    doc: "",
    schema: r#"{"type": "string"}"#,
    uses: &[],
};

static HTTP_CHECK: Section = Section::new(
    "HttpCheck",
    "an HTTP request must be answered as expected",
    &[
        Key::new("type", ValueKind::Tag("http"), "").required(),
        Key::new("endpoint", ADDRESS, "where the request goes").required(),
        Key::new("method", ValueKind::Word(&METHOD), "the HTTP method").default("GET"),
        Key::section("expect", &EXPECT),
        Key::new("interval", LONGER_THAN_0, "time between two requests").default("1s"),
    ],
);

static EXPECT: Section = Section::new(
    "Expect",
    "what is expected of a response",
    &[
        Key::new("status", OUTCOMES, "which statuses are right").default("200"),
        Key::new("body_contains", ValueKind::Text, "what the body must contain").otherwise("anything"),
    ],
);

static CUSTOM_CHECK: Section = Section::new(
    "CustomCheck",
    "a program must exit with 0",
    &[
        Key::new("type", ValueKind::Tag("custom"), "").required(),
        Key::new("script", ValueKind::Path, "the program").required(),
        Key::new("service", ValueKind::Name("service"), "in whose file system it runs")
            .otherwise("a node of its own with this machine's files"),
        Key::new("args", ValueKind::List(&ValueKind::Scalar), "its arguments").otherwise("none"),
        Key::new("interval", LONGER_THAN_0, "time between two runs").default("1s"),
    ],
);

static NO_CRASH_CHECK: Section = Section::new(
    "NoCrashCheck",
    "no process of a service may end by a signal or with a status other than 0, unless a fault killed it",
    &[
        Key::new("type", ValueKind::Tag("no-crash"), "").required(),
        Key::new("services", SERVICES, "which services").otherwise("all"),
    ],
);

static HEALTHY_CHECK: Section = Section::new(
    "HealthyCheck",
    "the health check of each service that has one, its own or its image's, must pass",
    &[
        Key::new("type", ValueKind::Tag("healthy"), "").required(),
        Key::new("services", SERVICES, "which services").otherwise("all"),
        Key::new("interval", LONGER_THAN_0, "time between two checks of a service").default("1s"),
    ],
);

/// Some of the services of the compose file.
pub(super) const SERVICES: ValueKind =
    ValueKind::NonEmpty(&ValueKind::Name("service"), "name at least one service");

/// Something that must hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// Its name, unique in the file.
    pub name: String,
    /// When it must hold.
    pub kind: PropertyKind,
    /// What it means, for reports.
    pub description: Option<String>,
    /// Liveness: within this time after the heal it must hold. Else: how long one check may take. In
    /// nanoseconds of virtual time.
    pub timeout_ns: u64,
    /// How it is checked.
    pub check: Check,
    /// Where it is written.
    pub at: Spot,
}

words! {
    /// When a property must hold.
    pub enum PropertyKind as "PropertyKind" {
        Safety = "safety": "judged once over the whole run: nothing bad happened",
        Liveness = "liveness": "must come to hold after the faults have been healed, within `timeout`",
        Invariant = "invariant": "must hold whenever it is looked at, also while there are faults",
    }
}

words! {
    /// The model of a linearizability check.
    pub enum Model as "Model" {
        Register = "register": "one register: put and get",
        CasRegister = "cas-register": "one register with compare and set: put, get and cas",
        Kv = "kv": "a map of registers with put, get, delete and cas, checked key by key",
    }
}

impl Model {
    fn allows(self, kind: OperationKind) -> bool {
        match kind {
            OperationKind::Put | OperationKind::Get => true,
            OperationKind::Cas => self != Model::Register,
            OperationKind::Delete => self == Model::Kv,
            OperationKind::Custom => false,
        }
    }
}

/// How a property is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// The history of the workload must be linearizable.
    Linearizability {
        /// Indices into `Workload::operations` of the operations that make up the history: those named by the
        /// file and all others that change state.
        operations: Vec<usize>,
        /// Against which model.
        model: Model,
    },
    /// An HTTP request from a client node must be answered as expected.
    Http {
        /// Where the request goes.
        endpoint: Located<Endpoint>,
        /// HTTP method in capitals.
        method: String,
        /// Which statuses are right; never empty.
        status: Vec<Outcome>,
        /// What the body must contain.
        body_contains: Option<String>,
        /// Time between two requests, in nanoseconds of virtual time.
        interval_ns: u64,
    },
    /// A program of the user's must exit with 0.
    Custom {
        /// The program, resolved against the directory of bloodhound.yaml.
        script: Located<PathBuf>,
        /// Its arguments.
        args: Vec<String>,
        /// The service in whose file system it runs; `None`: on a node of its own with this machine's files.
        service: Option<Located<String>>,
        /// Time between two runs, in nanoseconds of virtual time.
        interval_ns: u64,
    },
    /// No process of these services may end by a signal or with a status other than 0, unless a fault killed it.
    NoCrash {
        /// Which services; `None`: all.
        services: Option<Vec<Located<String>>>,
    },
    /// The health checks of these services must pass.
    Healthy {
        /// Which services; `None`: all.
        services: Option<Vec<Located<String>>>,
        /// Time between two checks of a service, in nanoseconds of virtual time.
        interval_ns: u64,
    },
}

/// What a property's decoder needs to know of the rest of the file.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) workload: Option<&'a Workload>,
    /// Whether the file has a workload section at all, also a wrong one.
    pub(super) has_workload: bool,
    pub(super) files: FileChecks,
}

pub(super) fn properties(ctx: &mut Ctx, top: &Settings<'_>, around: Surroundings<'_>) -> Vec<Property> {
    let mut names: Vec<(String, Span)> = Vec::new();
    let mut properties = Vec::new();
    for settings in top.sections(ctx, "properties").unwrap_or_default() {
        let (name, property) = property(ctx, &settings, around);
        if let (Some(node), Some(name)) = (settings.node("name"), name) {
            if let Some((_, first)) = names.iter().find(|(other, _)| *other == name) {
                let place = ctx.source.place(*first);
                let message = format!("two properties are named {}", quoted(&name));
                ctx.error(Code::DuplicateName, node.span, message).relate(place, "first used here");
            }
            names.push((name, node.span));
        }
        properties.extend(property);
    }
    properties
}

fn property(
    ctx: &mut Ctx,
    settings: &Settings<'_>,
    around: Surroundings<'_>,
) -> (Option<String>, Option<Property>) {
    let name: Option<String> = settings.get(ctx, "name");
    let kind = settings.get(ctx, "kind").map(|Chosen(kind)| kind);
    let description = settings.get(ctx, "description");
    let timeout_ns = settings.value(ctx, "timeout");
    let check = check(ctx, settings, kind, around);
    let property = || {
        Some(Property {
            name: name.clone()?,
            kind: kind?,
            description,
            timeout_ns,
            check: check?,
            at: ctx.source.spot(settings.span.start),
        })
    };
    let property = property();
    (name, property)
}

fn check(
    ctx: &mut Ctx,
    property: &Settings<'_>,
    kind: Option<PropertyKind>,
    around: Surroundings<'_>,
) -> Option<Check> {
    let (chosen, settings) = property.variant(ctx, "check")?;
    let whole_run = matches!(chosen, CheckType::Linearizability | CheckType::NoCrash);
    if whole_run && kind.is_some_and(|kind| kind != PropertyKind::Safety) {
        let span = settings.node("type").map_or(settings.span, |node| node.span);
        let message = "this check looks back on the whole run: the property's kind must be `safety`";
        ctx.error(Code::Conflict, span, message);
    }
    match chosen {
        CheckType::Linearizability => linearizability(ctx, &settings, around),
        CheckType::Http => http(ctx, &settings),
        CheckType::Custom => custom(ctx, &settings, around.files),
        CheckType::NoCrash => Some(Check::NoCrash { services: settings.get(ctx, "services") }),
        CheckType::Healthy => Some(Check::Healthy {
            services: settings.get(ctx, "services"),
            interval_ns: settings.value(ctx, "interval"),
        }),
    }
}

fn linearizability(ctx: &mut Ctx, settings: &Settings<'_>, around: Surroundings<'_>) -> Option<Check> {
    let Chosen(model): Chosen<Model> = settings.value(ctx, "model");
    let named = settings.list(ctx, "operations");
    let Some(workload) = around.workload else {
        if !around.has_workload {
            ctx.missing_workload(settings);
        }
        return None;
    };
    let all = &workload.operations;
    let used = |o: &Operation| o.kind != OperationKind::Custom && o.weight > 0;
    let named: Vec<usize> = match named {
        None if settings.node("operations").is_some() => return None,
        None => (0..all.len()).filter(|i| used(&all[*i])).collect(),
        Some(list) => named_operations(ctx, list, &settings.path("operations"), all),
    };
    // A history without all writes would show values from nowhere: a sound system would be accused.
    let judged: Vec<usize> = (0..all.len())
        .filter(|i| used(&all[*i]) && (named.contains(i) || all[*i].kind != OperationKind::Get))
        .collect();
    let added: Vec<&str> =
        judged.iter().filter(|i| !named.contains(i)).map(|i| all[*i].name.as_str()).collect();
    let place = settings.node("operations").map_or(settings.span, |list| list.span);
    if !added.is_empty() {
        let message = format!("{} also changes the keys and is part of the check", listed(&added, "and"));
        ctx.warn(Code::Widened, place, message)
            .help("every operation that changes state belongs to the history, or reads look wrong");
    }
    if judged.is_empty() {
        ctx.error(Code::NothingToDo, place, "the workload has no operation for this check");
    }
    for index in &judged {
        let kind = all[*index].kind;
        if !model.allows(kind) {
            let span = settings.node("model").map_or(place, |n| n.span);
            let (model, kind) = (model.as_str(), kind.as_str());
            ctx.error(Code::Conflict, span, format!("the model `{model}` has no operation `{kind}`"))
                .help("the model `kv` knows put, get, delete and cas");
            break;
        }
    }
    Some(Check::Linearizability { operations: judged, model })
}

fn named_operations(ctx: &mut Ctx, items: &[Node], path: &str, all: &[Operation]) -> Vec<usize> {
    let mut named = Vec::new();
    for item in items {
        let Some(name) = ctx.string(item, path) else { continue };
        let matching = |o: &Operation| o.name == name || o.kind.as_str() == name;
        let indices: Vec<usize> = (0..all.len()).filter(|i| matching(&all[*i])).collect();
        if indices.is_empty() {
            let names: Vec<&str> = all.iter().map(|o| o.name.as_str()).collect();
            ctx.error(
                Code::UnknownOperation,
                item.span,
                format!("no operation {} in the workload", quoted(&name)),
            )
            .help(format!("the workload has {}", listed(&names, "and")))
            .suggest(nearest(&name, &names));
        } else if indices.iter().all(|i| all[*i].kind == OperationKind::Custom) {
            let message =
                format!("{} is of the type `custom`, which means nothing to a model", quoted(&name));
            ctx.error(Code::Conflict, item.span, message);
        }
        named.extend(indices.into_iter().filter(|i| all[*i].kind != OperationKind::Custom));
    }
    named.sort_unstable();
    named.dedup();
    named
}

fn http(ctx: &mut Ctx, settings: &Settings<'_>) -> Option<Check> {
    let expect = settings.section_or_empty(ctx, "expect");
    // An empty list says as little as no list.
    let status = expect.own(ctx, "status", statuses).filter(|statuses| !statuses.is_empty());
    let status = status.or_else(|| read::of_nothing(&EXPECT, |c, empty| empty.own(c, "status", statuses)));
    let endpoint = settings.get(ctx, "endpoint");
    Some(Check::Http {
        method: settings.value(ctx, "method"),
        status: status?,
        body_contains: expect.get(ctx, "body_contains"),
        interval_ns: settings.value(ctx, "interval"),
        endpoint: endpoint?,
    })
}

fn statuses(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<Outcome>> {
    let statuses = operation::outcomes(ctx, node, path)?;
    if !statuses.iter().all(|o| matches!(o, Outcome::Status { .. })) {
        ctx.error(Code::UnknownValue, node.span, format!("`{path}` must be HTTP statuses"));
    }
    Some(statuses)
}

fn custom(ctx: &mut Ctx, settings: &Settings<'_>, files: FileChecks) -> Option<Check> {
    let script: Option<Located<PathBuf>> = settings.get(ctx, "script");
    if let (Some(script), Some(node)) = (&script, settings.node("script")) {
        script_exists(ctx, node, &script.value, files);
    }
    let (args, service) = (settings.get(ctx, "args"), settings.get(ctx, "service"));
    let interval_ns = settings.value(ctx, "interval");
    Some(Check::Custom { script: script?, args: args.unwrap_or_default(), service, interval_ns })
}

fn script_exists(ctx: &mut Ctx, node: &Node, script: &std::path::Path, files: FileChecks) {
    let severity = match files {
        FileChecks::Strict => Severity::Error,
        FileChecks::Lenient => Severity::Warning,
    };
    let shown = script.display();
    match std::fs::metadata(script) {
        Err(_) => {
            ctx.report(severity, Code::MissingFile, node.span, format!("the script {shown} does not exist"))
                .help("paths are relative to the directory of this file");
        }
        Ok(meta) if !meta.is_file() => {
            ctx.report(severity, Code::MissingFile, node.span, format!("{shown} is not a file"));
        }
        Ok(meta) => {
            use std::os::unix::fs::PermissionsExt;
            if meta.permissions().mode() & 0o111 == 0 {
                ctx.report(severity, Code::NotExecutable, node.span, format!("{shown} is not executable"))
                    .help(format!("run: chmod +x {shown}"));
            }
        }
    }
}

impl Ctx {
    fn missing_workload(&mut self, check: &Settings<'_>) {
        let span = check.entries.first().map_or(check.span, |entry| entry.value.span);
        self.error(Code::MissingKey, span, "a linearizability check needs a `workload`");
    }
}

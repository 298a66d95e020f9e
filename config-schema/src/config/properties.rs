//! The section `properties`: what must hold.
//!
//! Key types: [`Property`], [`Check`]. Places are kept, because reports name the file and line of a property.

use std::path::PathBuf;

use crate::decode::{Ctx, Fields, Located};
use crate::diagnostic::{Code, Severity, listed, quoted};
use crate::endpoint::Endpoint;
use crate::suggest::nearest;
use crate::tree::{Node, Spot};

use super::workload::{self, Operation, OperationKind, Outcome, Workload};
use super::{FileChecks, keys, service_list};

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

/// When a property must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PropertyKind {
    /// Judged once over the whole run: nothing bad happened.
    Safety,
    /// Must come to hold after the faults have been healed.
    Liveness,
    /// Must hold at every moment at which it is looked at, also while there are faults.
    Invariant,
}

impl PropertyKind {
    /// The name in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            PropertyKind::Safety => "safety",
            PropertyKind::Liveness => "liveness",
            PropertyKind::Invariant => "invariant",
        }
    }
}

/// The model of a linearizability check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Model {
    /// One register: read and write.
    Register,
    /// One register with compare and set.
    CasRegister,
    /// A map of registers with compare and set and delete, checked key by key.
    Kv,
}

impl Model {
    /// The name in the file.
    pub fn as_str(self) -> &'static str {
        match self {
            Model::Register => "register",
            Model::CasRegister => "cas-register",
            Model::Kv => "kv",
        }
    }

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
}

const SECOND: u64 = 1_000_000_000;
const KINDS: &[(&str, PropertyKind)] = &[
    ("safety", PropertyKind::Safety),
    ("liveness", PropertyKind::Liveness),
    ("invariant", PropertyKind::Invariant),
];
const MODELS: &[(&str, Model)] =
    &[("register", Model::Register), ("cas-register", Model::CasRegister), ("kv", Model::Kv)];

/// What a property's decoder needs to know of the rest of the file.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) workload: Option<&'a Workload>,
    /// Whether the file has a workload section at all, also a wrong one.
    pub(super) has_workload: bool,
    pub(super) files: FileChecks,
}

pub(super) fn properties(ctx: &mut Ctx, node: &Node, path: &str, around: Surroundings<'_>) -> Vec<Property> {
    let Some(items) = ctx.list(node, path) else { return Vec::new() };
    let mut names: Vec<(String, &Node)> = Vec::new();
    let mut properties = Vec::new();
    for (item, index) in items.iter().zip(0..) {
        let path = format!("{path}[{index}]");
        let Some(fields) = ctx.fields(item, &path, keys::PROPERTY) else { continue };
        let decoded = property(ctx, item, &fields, around);
        if let (Some(node), Some(name)) = (fields.node("name"), decoded.0) {
            if let Some((_, first)) = names.iter().find(|(other, _)| *other == name) {
                let place = ctx.source.place(first.span);
                let message = format!("two properties are named {}", quoted(&name));
                ctx.error(Code::DuplicateName, node.span, message).relate(place, "first used here");
            }
            names.push((name, node));
        }
        properties.extend(decoded.1);
    }
    properties
}

fn property(
    ctx: &mut Ctx,
    node: &Node,
    fields: &Fields<'_>,
    around: Surroundings<'_>,
) -> (Option<String>, Option<Property>) {
    let name = fields.require(ctx, "name", Ctx::name);
    let kind = fields.require(ctx, "kind", |c, n, p| c.choice(n, p, KINDS));
    let description = fields.get(ctx, "description", Ctx::string);
    let timeout = fields.get(ctx, "timeout", Ctx::positive_duration);
    let check = fields.require(ctx, "check", |c, n, p| check(c, n, p, kind, around));
    let property = || {
        Some(Property {
            name: name.clone()?,
            kind: kind?,
            description,
            timeout_ns: timeout.unwrap_or(30 * SECOND),
            check: check?,
            at: ctx.source.spot(node.span.start),
        })
    };
    let property = property();
    (name, property)
}

/// Dispatches on `type` before the rest is decoded, so that every message is about the right kind of check.
fn check(
    ctx: &mut Ctx,
    node: &Node,
    path: &str,
    kind: Option<PropertyKind>,
    around: Surroundings<'_>,
) -> Option<Check> {
    #[derive(Clone, Copy)]
    enum Type {
        Linearizability,
        Http,
        Custom,
        NoCrash,
    }
    const TYPES: &[(&str, Type)] = &[
        ("linearizability", Type::Linearizability),
        ("http", Type::Http),
        ("custom", Type::Custom),
        ("no-crash", Type::NoCrash),
    ];
    let entries = ctx.entries(node, path)?;
    let Some(entry) = entries.iter().find(|entry| entry.key == "type") else {
        let span = entries.first().map_or(node.span, |entry| entry.key_span);
        let words: Vec<&str> = TYPES.iter().map(|(word, _)| *word).collect();
        ctx.error(Code::MissingKey, span, format!("the key `type` is missing in `{path}`"))
            .label("this mapping has no `type`")
            .help(format!("allowed: {}", listed(&words, "and")));
        return None;
    };
    let chosen = ctx.choice(&entry.value, &format!("{path}.type"), TYPES)?;
    let whole_run = matches!(chosen, Type::Linearizability | Type::NoCrash);
    if whole_run && kind.is_some_and(|kind| kind != PropertyKind::Safety) {
        let message = "this check looks back on the whole run: the property's kind must be `safety`";
        ctx.error(Code::Conflict, entry.value.span, message);
    }
    match chosen {
        Type::Linearizability => linearizability(ctx, node, path, around),
        Type::Http => http(ctx, node, path),
        Type::Custom => custom(ctx, node, path, around.files),
        Type::NoCrash => {
            let fields = ctx.fields(node, path, keys::CHECK_NO_CRASH)?;
            Some(Check::NoCrash { services: fields.get(ctx, "services", service_list) })
        }
    }
}

fn linearizability(ctx: &mut Ctx, node: &Node, path: &str, around: Surroundings<'_>) -> Option<Check> {
    let fields = ctx.fields(node, path, keys::CHECK_LINEARIZABILITY)?;
    let model = fields.get(ctx, "model", |c, n, p| c.choice(n, p, MODELS)).unwrap_or(Model::Kv);
    let Some(workload) = around.workload else {
        if !around.has_workload {
            ctx.missing_workload(node);
        }
        return None;
    };
    let all = &workload.operations;
    let used = |o: &Operation| o.kind != OperationKind::Custom && o.weight > 0;
    let named: Vec<usize> = match fields.node("operations") {
        None => (0..all.len()).filter(|i| used(&all[*i])).collect(),
        Some(list) => named_operations(ctx, list, &fields.path("operations"), all)?,
    };
    // A history without all writes would show values from nowhere: a sound system would be accused.
    let judged: Vec<usize> = (0..all.len())
        .filter(|i| used(&all[*i]) && (named.contains(i) || all[*i].kind != OperationKind::Get))
        .collect();
    let added: Vec<&str> =
        judged.iter().filter(|i| !named.contains(i)).map(|i| all[*i].name.as_str()).collect();
    let place = fields.node("operations").map_or(node.span, |list| list.span);
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
            let span = fields.node("model").map_or(place, |n| n.span);
            let (model, kind) = (model.as_str(), kind.as_str());
            ctx.error(Code::Conflict, span, format!("the model `{model}` has no operation `{kind}`"))
                .help("the model `kv` knows put, get, delete and cas");
            break;
        }
    }
    Some(Check::Linearizability { operations: judged, model })
}

fn named_operations(ctx: &mut Ctx, node: &Node, path: &str, all: &[Operation]) -> Option<Vec<usize>> {
    let mut named = Vec::new();
    for item in ctx.list(node, path)? {
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
    Some(named)
}

fn http(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Check> {
    let fields = ctx.fields(node, path, keys::CHECK_HTTP)?;
    let endpoint = fields.require(ctx, "endpoint", workload::endpoint);
    let method = fields.get(ctx, "method", workload::method).unwrap_or_else(|| "GET".to_owned());
    let interval_ns = fields.get(ctx, "interval", Ctx::positive_duration).unwrap_or(SECOND);
    let expect = fields.get(ctx, "expect", |c, n, p| {
        let fields = c.fields(n, p, keys::EXPECT)?;
        let status = fields.get(c, "status", |c, n, p| {
            let statuses = workload::outcomes(c, n, p);
            if !statuses.iter().all(|o| matches!(o, Outcome::Status { .. })) {
                c.error(Code::UnknownValue, n.span, format!("`{p}` must be HTTP statuses"));
            }
            Some(statuses)
        });
        Some((status, fields.get(c, "body_contains", Ctx::string)))
    });
    let (status, body_contains) = expect.unwrap_or_default();
    let status = status.filter(|s| !s.is_empty());
    Some(Check::Http {
        endpoint: endpoint?,
        method,
        status: status.unwrap_or_else(|| vec![Outcome::Status { first: 200, last: 200 }]),
        body_contains,
        interval_ns,
    })
}

fn custom(ctx: &mut Ctx, node: &Node, path: &str, files: FileChecks) -> Option<Check> {
    let fields = ctx.fields(node, path, keys::CHECK_CUSTOM)?;
    let base = ctx.source.dir();
    let script = fields.require(ctx, "script", |c, n, p| {
        let text = c.name(n, p)?;
        let script = super::resolve(&base, &text);
        script_exists(c, n, &script, files);
        Some(c.located(script, n.span))
    });
    let args = fields.get(ctx, "args", |c, n, p| {
        let items = c.list(n, p)?;
        Some(items.iter().filter_map(|item| c.text(item, p)).collect())
    });
    let service = fields.located(ctx, "service", Ctx::name);
    let interval_ns = fields.get(ctx, "interval", Ctx::positive_duration).unwrap_or(SECOND);
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
    fn missing_workload(&mut self, node: &Node) {
        let span = match &node.value {
            crate::tree::Value::Map(entries) => entries.first().map_or(node.span, |entry| entry.value.span),
            _ => node.span,
        };
        self.error(Code::MissingKey, span, "a linearizability check needs a `workload`");
    }
}

//! The section `workload`: the client traffic of a run.
//!
//! Key types: [`Workload`], [`Operation`], [`Request`], [`Response`], [`Outcome`]. The only driver so far is
//! `http`. Defaults of requests and responses per operation type are the driver's; what is `None` or empty
//! here was not written in the file.

use crate::decode::{Ctx, Located};
use crate::diagnostic::{Code, quoted};
use crate::endpoint::Endpoint;
use crate::pattern::{Pattern, PatternUse};
use crate::tree::{Node, ScalarKind, Spot, Value};

use super::keys;

/// Client traffic of the `http` driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Where requests go, at least one. A worker goes through them in turn, each starting at another one.
    pub targets: Vec<Located<Endpoint>>,
    /// Requests per thousand seconds of virtual time over all workers (open loop); `None`: each worker sends
    /// its next request when the last one is answered (closed loop).
    pub qps_milli: Option<u32>,
    /// Number of sequential workers, at least 1; each has one request under way at most.
    pub concurrency: u32,
    /// Number of client nodes over which the workers are spread evenly, 1 to `concurrency`.
    pub clients: u32,
    /// How long new operations are started, in nanoseconds of virtual time.
    pub duration_ns: u64,
    /// Most operations of a run; `None`: no limit.
    pub max_operations: Option<u64>,
    /// When a request is given up, in nanoseconds of virtual time.
    pub timeout_ns: u64,
    /// Whether a worker uses its connection for several requests.
    pub keep_alive: bool,
    /// What the workers do, at least one, in the order of the file.
    pub operations: Vec<Operation>,
}

/// What an operation means to the model of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperationKind {
    /// Writes a value.
    Put,
    /// Reads a value.
    Get,
    /// Removes a value.
    Delete,
    /// Writes a value if the present one is as expected (compare and set).
    Cas,
    /// A request that means nothing to a model.
    Custom,
}

/// The operation kinds with their names in the file.
pub const OPERATION_KINDS: &[(&str, OperationKind)] = &[
    ("put", OperationKind::Put),
    ("get", OperationKind::Get),
    ("delete", OperationKind::Delete),
    ("cas", OperationKind::Cas),
    ("custom", OperationKind::Custom),
];

impl OperationKind {
    /// The name in the file.
    pub fn as_str(self) -> &'static str {
        OPERATION_KINDS.iter().find(|(_, kind)| *kind == self).map_or("custom", |(word, _)| word)
    }
}

/// One kind of request that workers send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The name that properties use; the type's word unless given.
    pub name: String,
    /// What it does.
    pub kind: OperationKind,
    /// Its share among all operations, at least 1 for an operation that is used.
    pub weight: u32,
    /// The key it works on.
    pub key: Pattern,
    /// The value that it writes (put, cas); no two operations of a run should write the same.
    pub value: Pattern,
    /// What the file says about the request.
    pub request: Request,
    /// What the file says about responses.
    pub response: Response,
    /// Where the operation is written.
    pub at: Spot,
}

/// How a request is built; what is `None` is the driver's default for the operation's type.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Request {
    /// HTTP method in capitals.
    pub method: Option<String>,
    /// Path with query, starting with `/`.
    pub path: Option<Pattern>,
    /// Header fields in the order of the file.
    pub headers: Vec<(String, Pattern)>,
    /// Body.
    pub body: Option<Pattern>,
}

/// What responses mean; what is empty is the driver's default for the operation's type.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Response {
    /// The operation took effect.
    pub ok: Vec<Outcome>,
    /// The operation certainly did not take effect.
    pub fail: Vec<Outcome>,
    /// The operation may have taken effect or may do so later.
    pub unknown: Vec<Outcome>,
    /// The operation took effect and there is no value at the key.
    pub not_found: Vec<Outcome>,
    /// The operation did not take effect, because another value than the expected one was there (cas).
    pub mismatch: Vec<Outcome>,
    /// Where the value that was read stands in the response.
    pub value: Option<ValueSource>,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A response with a status from `first` to `last`, both included.
    Status {
        /// Smallest status.
        first: u16,
        /// Largest status.
        last: u16,
    },
    /// No response in time.
    Timeout,
    /// The connection ended before the response was complete.
    Reset,
    /// No connection could be made.
    Refused,
}

/// Where the value that was read stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueSource {
    /// The whole body.
    Body,
    /// At a JSON pointer (RFC 6901) in the body.
    JsonPointer(String),
}

const SECOND: u64 = 1_000_000_000;
const DEFAULT_KEY: &str = "key-{random:1-10}";
const DEFAULT_VALUE: &str = "v{seq}";

pub(super) fn workload(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Workload> {
    let fields = ctx.fields(node, path, keys::WORKLOAD)?;
    fields.get(ctx, "driver", |c, n, p| c.choice(n, p, &[("http", ())]));
    fields.require(ctx, "config", http)
}

fn http(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Workload> {
    let fields = ctx.fields(node, path, keys::HTTP_DRIVER)?;
    let single = fields.get(ctx, "target", |c, n, p| Some(vec![endpoint(c, n, p)?]));
    let several = fields.get(ctx, "targets", |c, n, p| {
        let items = c.list(n, p)?;
        if items.is_empty() {
            c.error(Code::NothingToDo, n.span, format!("`{p}` must have at least one address"));
        }
        Some(items.iter().filter_map(|item| endpoint(c, item, p)).collect())
    });
    match (fields.entry("target"), fields.entry("targets")) {
        (Some(one), Some(many)) => {
            let place = ctx.source.place(one.key_span);
            ctx.error(Code::Conflict, many.key_span, "`target` and `targets` exclude each other")
                .relate(place, "the other one");
        }
        (None, None) => ctx.missing(&fields, "target"),
        _ => {}
    }
    // A million requests per second of virtual time is far beyond what any stack is tested with.
    let qps = fields.get(ctx, "qps", |c, n, p| c.thousandths(n, p, 1, 1_000_000_000));
    let concurrency = fields.get(ctx, "concurrency", |c, n, p| c.integer(n, p, 1, 10_000)).unwrap_or(10);
    let clients = fields.get(ctx, "clients", |c, n, p| {
        let clients = c.integer(n, p, 1, 1_000)?;
        if clients > concurrency {
            let message = format!("{clients} clients cannot share {concurrency} workers (`concurrency`)");
            c.error(Code::Conflict, n.span, message);
        }
        Some(clients)
    });
    let duration_ns = fields.get(ctx, "duration", Ctx::positive_duration).unwrap_or(60 * SECOND);
    let max_operations = fields.get(ctx, "max_operations", |c, n, p| c.integer(n, p, 1, u64::MAX));
    let timeout_ns = fields.get(ctx, "timeout", Ctx::positive_duration).unwrap_or(5 * SECOND);
    let keep_alive = fields.get(ctx, "keep_alive", Ctx::bool).unwrap_or(true);
    let operations = fields.require(ctx, "operations", operations)?;
    Some(Workload {
        targets: several.or(single)?,
        qps_milli: qps.and_then(|q| u32::try_from(q).ok()),
        concurrency: u32::try_from(concurrency).ok()?,
        clients: u32::try_from(clients.unwrap_or(concurrency.min(5))).ok()?,
        duration_ns,
        max_operations,
        timeout_ns,
        keep_alive,
        operations,
    })
}

pub(super) fn endpoint(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Located<Endpoint>> {
    let text = ctx.string(node, path)?;
    match Endpoint::parse(&text) {
        Ok(endpoint) => Some(ctx.located(endpoint, node.span)),
        Err(error) => {
            let message = format!("`{path}` cannot be {}: {}", quoted(&text), error.message);
            ctx.error(Code::Malformed, node.span, message).suggest(error.suggestion);
            None
        }
    }
}

fn operations(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<Operation>> {
    let items = ctx.list(node, path)?;
    if items.is_empty() {
        ctx.error(Code::NothingToDo, node.span, format!("`{path}` must have at least one operation"));
        return None;
    }
    // An operation without a pattern works on the same keys as the first one that has a pattern.
    let shared_key = items.iter().find_map(|item| pattern_text(item, "key_pattern"));
    let shared_key = shared_key.and_then(|text| Pattern::parse(text, PatternUse::Key).ok());
    let default_key = shared_key.or_else(|| Pattern::parse(DEFAULT_KEY, PatternUse::Key).ok())?;
    let decoded: Vec<Operation> = items
        .iter()
        .zip(0..)
        .filter_map(|(item, i)| operation(ctx, item, &format!("{path}[{i}]"), &default_key))
        .collect();
    for (index, one) in decoded.iter().enumerate() {
        let same = |other: &&Operation| other.name == one.name && other.kind != one.kind;
        if decoded[..index].iter().any(|o| same(&o)) {
            let span = items.get(index).map_or(node.span, |item| item.span);
            let message = format!("two operations of different types are named {}", quoted(&one.name));
            ctx.error(Code::DuplicateName, span, message);
        }
    }
    if decoded.len() == items.len() && decoded.iter().all(|o| o.weight == 0) {
        ctx.error(Code::NothingToDo, node.span, "every operation has the weight 0");
    }
    Some(decoded)
}

fn pattern_text<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    let Value::Map(entries) = &node.value else { return None };
    match &entries.iter().find(|entry| entry.key == key)?.value.value {
        Value::Scalar(s) if s.kind == ScalarKind::String => Some(&s.text),
        _ => None,
    }
}

fn operation(ctx: &mut Ctx, node: &Node, path: &str, default_key: &Pattern) -> Option<Operation> {
    let fields = ctx.fields(node, path, keys::OPERATION)?;
    let kind = fields.require(ctx, "type", |c, n, p| c.choice(n, p, OPERATION_KINDS));
    let name = fields.get(ctx, "name", Ctx::name);
    let weight = fields.get(ctx, "weight", |c, n, p| c.integer(n, p, 0, 1_000_000)).unwrap_or(1);
    let key = fields.get(ctx, "key_pattern", |c, n, p| pattern(c, n, p, PatternUse::Key));
    let value = fields.get(ctx, "value_pattern", |c, n, p| {
        let value = pattern(c, n, p, PatternUse::Value)?;
        if !value.is_unique() && matches!(kind, Some(OperationKind::Put | OperationKind::Cas)) {
            c.warn(Code::Malformed, n.span, "operations may write equal values, which hides lost writes")
                .help("add {seq} or {uuid} to the pattern");
        }
        Some(value)
    });
    if let (Some(kind @ (OperationKind::Get | OperationKind::Delete)), Some(entry)) =
        (kind, fields.entry("value_pattern"))
    {
        let message = format!("`value_pattern` has no effect on a {}", kind.as_str());
        ctx.warn(Code::NothingToDo, entry.key_span, message);
    }
    let request = fields.get(ctx, "request", request).unwrap_or_default();
    let response = fields.get(ctx, "response", response).unwrap_or_default();
    let kind = kind?;
    if kind == OperationKind::Custom && (request.method.is_none() || request.path.is_none()) {
        let span = fields.entry("request").map_or(node.span, |entry| entry.key_span);
        let message = "an operation of the type `custom` needs `request.method` and `request.path`";
        ctx.error(Code::MissingKey, span, message);
    }
    Some(Operation {
        name: name.unwrap_or_else(|| kind.as_str().to_owned()),
        kind,
        weight: u32::try_from(weight).ok()?,
        key: key.unwrap_or_else(|| default_key.clone()),
        value: value.or_else(|| Pattern::parse(DEFAULT_VALUE, PatternUse::Value).ok())?,
        request,
        response,
        at: ctx.source.spot(node.span.start),
    })
}

fn pattern(ctx: &mut Ctx, node: &Node, path: &str, usage: PatternUse) -> Option<Pattern> {
    let text = match usage {
        PatternUse::Request => ctx.text(node, path)?,
        PatternUse::Key | PatternUse::Value => ctx.name(node, path)?,
    };
    match Pattern::parse(&text, usage) {
        Ok(pattern) => Some(pattern),
        Err(error) => {
            ctx.error(error.code, node.span, format!("`{path}`: {}", error.message))
                .suggest(error.suggestion);
            None
        }
    }
}

fn request(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Request> {
    let fields = ctx.fields(node, path, keys::REQUEST)?;
    let method = fields.get(ctx, "method", method);
    let target = fields.get(ctx, "path", |c, n, p| {
        let target = pattern(c, n, p, PatternUse::Request)?;
        if !target.text.starts_with('/') || target.text.contains(char::is_whitespace) {
            c.error(Code::Malformed, n.span, format!("`{p}` must begin with `/` and have no blanks"));
        }
        Some(target)
    });
    let headers = fields.get(ctx, "headers", |c, n, p| {
        let entries = c.entries(n, p)?;
        let mut headers = Vec::new();
        for entry in entries {
            // RFC 9110, section 5.6.2: a field name is a token.
            if entry.key.is_empty() || !entry.key.bytes().all(is_token) {
                let message = format!("{} is not a header's name", quoted(&entry.key));
                c.error(Code::Malformed, entry.key_span, message);
                continue;
            }
            if let Some(value) = pattern(c, &entry.value, &format!("{p}.{}", entry.key), PatternUse::Request)
            {
                if value.text.contains(['\r', '\n', '\0']) {
                    c.error(Code::Malformed, entry.value.span, "a header's value has no line breaks");
                }
                headers.push((entry.key.clone(), value));
            }
        }
        Some(headers)
    });
    let body = fields.get(ctx, "body", |c, n, p| pattern(c, n, p, PatternUse::Request));
    Some(Request { method, path: target, headers: headers.unwrap_or_default(), body })
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

pub(super) fn method(ctx: &mut Ctx, node: &Node, path: &str) -> Option<String> {
    const METHODS: &[(&str, &str)] = &[
        ("GET", "GET"),
        ("HEAD", "HEAD"),
        ("POST", "POST"),
        ("PUT", "PUT"),
        ("PATCH", "PATCH"),
        ("DELETE", "DELETE"),
        ("OPTIONS", "OPTIONS"),
    ];
    ctx.choice(node, path, METHODS).map(str::to_owned)
}

fn response(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Response> {
    let fields = ctx.fields(node, path, keys::RESPONSE)?;
    let mut lists: [Vec<Outcome>; 5] = Default::default();
    let mut seen: Vec<(Outcome, &str)> = Vec::new();
    for (key, list) in ["ok", "fail", "unknown", "not_found", "mismatch"].into_iter().zip(&mut lists) {
        let Some(node) = fields.node(key) else { continue };
        *list = outcomes(ctx, node, &fields.path(key));
        for outcome in list.iter() {
            if let Some((_, other)) = seen.iter().find(|(o, _)| overlap(*o, *outcome)) {
                let message = format!("`{key}` and `{other}` both claim one response");
                ctx.error(Code::Conflict, node.span, message);
            }
        }
        seen.extend(list.iter().map(|outcome| (*outcome, key)));
    }
    let value = fields.get(ctx, "value", |c, n, p| {
        let text = c.string(n, p)?;
        if text == "body" {
            return Some(ValueSource::Body);
        }
        if text.starts_with('/') {
            return Some(ValueSource::JsonPointer(text));
        }
        let message = format!("`{p}` cannot be {}", quoted(&text));
        c.error(Code::Malformed, n.span, message)
            .help("write `body`, or a JSON pointer such as `/node/value`")
            .suggest((!text.is_empty()).then(|| format!("/{}", text.replace('.', "/"))));
        None
    });
    let [ok, fail, unknown, not_found, mismatch] = lists;
    Some(Response { ok, fail, unknown, not_found, mismatch, value })
}

fn overlap(a: Outcome, b: Outcome) -> bool {
    match (a, b) {
        (Outcome::Status { first: a, last: b }, Outcome::Status { first: c, last: d }) => a <= d && c <= b,
        (a, b) => a == b,
    }
}

/// A list of outcomes, or a single one.
pub(super) fn outcomes(ctx: &mut Ctx, node: &Node, path: &str) -> Vec<Outcome> {
    let items = match &node.value {
        Value::Seq(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    items.iter().filter_map(|item| outcome(ctx, item, path)).collect()
}

fn outcome(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Outcome> {
    let text = match &node.value {
        Value::Scalar(s) if matches!(s.kind, ScalarKind::Number | ScalarKind::String) => s.text.as_str(),
        _ => {
            ctx.wrong_type(node, path, "an HTTP status");
            return None;
        }
    };
    let number = |text: &str| text.parse::<u16>().ok().filter(|n| (100..=599).contains(n));
    let parsed = match text {
        "timeout" => Some(Outcome::Timeout),
        "reset" => Some(Outcome::Reset),
        "refused" => Some(Outcome::Refused),
        "1xx" | "2xx" | "3xx" | "4xx" | "5xx" => {
            let class = u16::from(text.as_bytes()[0] - b'0') * 100;
            Some(Outcome::Status { first: class, last: class + 99 })
        }
        _ => match text.split_once('-') {
            Some((first, last)) => number(first)
                .zip(number(last))
                .filter(|(first, last)| first <= last)
                .map(|(first, last)| Outcome::Status { first, last }),
            None => number(text).map(|status| Outcome::Status { first: status, last: status }),
        },
    };
    if parsed.is_none() {
        let message = format!("`{path}` cannot have {}", quoted(text));
        ctx.error(Code::Malformed, node.span, message).help(
            "allowed: a status (404), a range (\"200-299\"), a class (2xx), timeout, reset and refused",
        );
    }
    parsed
}

//! The operations of a workload: what is requested, and what responses mean.
//!
//! Key types: [`Operation`], [`Request`], [`Response`], [`Outcome`]. Defaults of requests and responses per operation
//! type are the driver's; what is `None` or empty here was not written in the file.

use bloodhound_declare::{Key, Section, Syntax, ValueKind, Word, Words, words};

use crate::decode::Ctx;
use crate::diagnostic::{Code, quoted};
use crate::pattern::{Pattern, PatternUse};
use crate::schema::TEXT;
use crate::tree::{Node, ScalarKind, Span, Spot, Value};

use super::read::{Chosen, Settings};

pub(super) static OPERATION: Section = Section::new(
    "Operation",
    "one kind of request",
    &[
        Key::new(
            "type",
            ValueKind::Word(OperationKind::WORDS),
            "what it does; `custom` means nothing to a model",
        )
        .required(),
        Key::new("name", ValueKind::Name("text"), "the name that properties use").otherwise("the type"),
        Key::new(
            "weight",
            ValueKind::Integer { least: 0, most: 1_000_000 },
            "its share among all operations; 0 switches it off",
        )
        .default("1"),
        Key::new(
            "key_pattern",
            PATTERN,
            "the key it works on, with the placeholders `{random:1-100}`, `{seq}`, `{uuid}`, `{client}`; \
             one without a pattern takes that of the first operation that has one",
        )
        .default("key-{random:1-10}"),
        Key::new(
            "value_pattern",
            PATTERN,
            "the value it writes, with the placeholders of keys and `{key}`; without `{seq}` or `{uuid}` \
             there is a warning, because equal values hide lost writes",
        )
        .default("v{seq}"),
        Key::section("request", &REQUEST).otherwise("by type"),
        Key::section("response", &RESPONSE).otherwise("by type"),
    ],
);

static REQUEST: Section = Section::new(
    "Request",
    "how the request is built; placeholders are those of keys and values, and `{key}`, `{value}`, `{old}`, \
     `{new}`",
    &[
        Key::new("method", ValueKind::Word(&METHOD), "the HTTP method").otherwise("by type"),
        Key::new("path", ValueKind::Own(&REQUEST_PATH), "path and query").otherwise("by type"),
        Key::new("headers", ValueKind::Own(&HEADERS), "header fields").otherwise("none"),
        Key::new("body", ValueKind::Own(&BODY), "the body").otherwise("by type"),
    ],
);

static RESPONSE: Section = Section::new(
    "Response",
    "what responses mean",
    &[
        Key::new("ok", OUTCOMES, "the operation took effect").otherwise("by type"),
        Key::new("fail", OUTCOMES, "the operation certainly did not take effect").otherwise("by type"),
        Key::new("unknown", OUTCOMES, "the operation may have taken effect, or may do so later")
            .otherwise("by type"),
        Key::new("not_found", OUTCOMES, "the operation took effect, and there is no value at the key")
            .otherwise("by type"),
        Key::new(
            "mismatch",
            OUTCOMES,
            "a cas did not take effect, because another value than the expected one was there",
        )
        .otherwise("by type"),
        Key::new("value", ValueKind::Own(&VALUE_SOURCE), "where the value that was read stands")
            .default("body"),
    ],
);

const PATTERN: ValueKind = ValueKind::Own(&Syntax {
    name: "",
    written: "pattern",
    plural: "patterns",
    doc: "",
    schema: r#"{"type": "string", "minLength": 1}"#,
    uses: &[],
});

static REQUEST_PATH: Syntax = Syntax {
    name: "",
    written: "pattern that begins with `/`",
    plural: "",
    doc: "",
    schema: r#"{"type": "string", "pattern": "^/"}"#,
    uses: &[],
};

static HEADERS: Syntax = Syntax {
    name: "",
    written: "mapping of name to pattern",
    plural: "",
    doc: "",
    schema: r##"{"type": ["object", "null"], "additionalProperties": {"$ref": "#/$defs/Text"}}"##,
    uses: &[&TEXT],
};

static BODY: Syntax = Syntax {
    name: "",
    written: "pattern",
    plural: "patterns",
    doc: "",
    schema: r##"{"$ref": "#/$defs/Text"}"##,
    uses: &[&TEXT],
};

/// The outcomes of requests that mean one thing.
pub(super) const OUTCOMES: ValueKind = ValueKind::Own(&Syntax {
    name: "Outcomes",
    written: "status or list",
    plural: "",
    doc: "statuses (404), ranges (\"200-299\"), classes (2xx), timeout, reset and refused",
    schema: r##"{"anyOf": [{"$ref": "#/$defs/Outcome"}, {"type": "array", "items": {"$ref": "#/$defs/Outcome"}}]}"##,
    uses: &[&OUTCOME],
});

static OUTCOME: Syntax = Syntax {
    name: "Outcome",
    written: "status",
    plural: "statuses",
    doc: "how a request ends: a status, a range, a class, timeout, reset or refused",
    schema: r#"{"anyOf": [
        {"type": "integer", "minimum": 100, "maximum": 599},
        {"type": "string", "pattern": "^(timeout|reset|refused|[1-5]xx|\\+?0*[1-5][0-9]{2}(-\\+?0*[1-5][0-9]{2})?)$"}
    ]}"#,
    uses: &[],
};

static VALUE_SOURCE: Syntax = Syntax {
    name: "",
    written: "`body`, or a JSON pointer such as `/node/value`",
    plural: "",
    doc: "",
    schema: r#"{"type": "string", "pattern": "^(body$|/)"}"#,
    uses: &[],
};

/// HTTP methods.
pub(super) static METHOD: Words = Words {
    name: "Method",
    words: &[
        Word::new("GET", ""),
        Word::new("HEAD", ""),
        Word::new("POST", ""),
        Word::new("PUT", ""),
        Word::new("PATCH", ""),
        Word::new("DELETE", ""),
        Word::new("OPTIONS", ""),
    ],
};

words! {
    /// What an operation means to the model of a check.
    pub enum OperationKind as "OperationType" {
        Put = "put": "writes a value",
        Get = "get": "reads a value",
        Delete = "delete": "removes a value",
        Cas = "cas": "writes a value if the present one is as expected (compare and set)",
        Custom = "custom": "a request that means nothing to a model",
    }
}

/// One kind of request that workers send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// `name`, else the type's word.
    pub name: String,
    /// `type`.
    pub kind: OperationKind,
    /// `weight`; 0: it is never used.
    pub weight: u32,
    /// `key_pattern`.
    pub key: Pattern,
    /// `value_pattern` (put, cas); no two operations of a run should write the same.
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

pub(super) fn operations(ctx: &mut Ctx, driver: &Settings<'_>) -> Option<Vec<Operation>> {
    let items = driver.sections(ctx, "operations")?;
    let list = driver.node("operations")?;
    // An operation without a pattern works on the same keys as the first one that has a pattern.
    let shared_key = items.iter().find_map(|item| pattern_text(item.node("key_pattern")?));
    let shared_key = shared_key.and_then(|text| Pattern::parse(text, PatternUse::Key).ok());
    let decoded: Vec<(Operation, Span)> = items
        .iter()
        .filter_map(|item| Some((operation(ctx, item, shared_key.as_ref())?, item.span)))
        .collect();
    for (index, (one, span)) in decoded.iter().enumerate() {
        let same = |other: &Operation| other.name == one.name && other.kind != one.kind;
        if decoded[..index].iter().any(|(other, _)| same(other)) {
            let message = format!("two operations of different types are named {}", quoted(&one.name));
            ctx.error(Code::DuplicateName, *span, message);
        }
    }
    let written = match &list.value {
        Value::Seq(all) => all.len(),
        _ => 0,
    };
    if decoded.len() == written && decoded.iter().all(|(one, _)| one.weight == 0) {
        ctx.error(Code::NothingToDo, list.span, "every operation has the weight 0");
    }
    Some(decoded.into_iter().map(|(operation, _)| operation).collect())
}

fn pattern_text(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar(s) if s.kind == ScalarKind::String => Some(&s.text),
        _ => None,
    }
}

fn operation(ctx: &mut Ctx, settings: &Settings<'_>, shared_key: Option<&Pattern>) -> Option<Operation> {
    let kind = settings.get(ctx, "type").map(|Chosen(kind)| kind);
    let name: Option<String> = settings.get(ctx, "name");
    let weight = settings.value(ctx, "weight");
    let mut key = settings.own(ctx, "key_pattern", |c, n, p| pattern(c, n, p, PatternUse::Key));
    if settings.node("key_pattern").is_none() {
        key = shared_key.cloned().or(key);
    }
    let value = settings.own(ctx, "value_pattern", |c, n, p| {
        let value = pattern(c, n, p, PatternUse::Value)?;
        if !value.is_unique() && matches!(kind, Some(OperationKind::Put | OperationKind::Cas)) {
            c.warn(Code::Malformed, n.span, "operations may write equal values, which hides lost writes")
                .help("add {seq} or {uuid} to the pattern");
        }
        Some(value)
    });
    if let (Some(kind @ (OperationKind::Get | OperationKind::Delete)), Some(entry)) =
        (kind, settings.entry("value_pattern"))
    {
        let message = format!("`value_pattern` has no effect on a {}", kind.as_str());
        ctx.warn(Code::NothingToDo, entry.key_span, message);
    }
    let (asked, answered) =
        (settings.section_or_empty(ctx, "request"), settings.section_or_empty(ctx, "response"));
    let (request, response) = (request(ctx, &asked), response(ctx, &answered));
    let kind = kind?;
    if kind == OperationKind::Custom && (request.method.is_none() || request.path.is_none()) {
        let span = settings.entry("request").map_or(settings.span, |entry| entry.key_span);
        let message = "an operation of the type `custom` needs `request.method` and `request.path`";
        ctx.error(Code::MissingKey, span, message);
    }
    Some(Operation {
        name: name.unwrap_or_else(|| kind.as_str().to_owned()),
        kind,
        weight,
        key: key?,
        value: value?,
        request,
        response,
        at: ctx.source.spot(settings.span.start),
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

fn request(ctx: &mut Ctx, settings: &Settings<'_>) -> Request {
    let path = settings.own(ctx, "path", |c, n, p| {
        let target = pattern(c, n, p, PatternUse::Request)?;
        if !target.text.starts_with('/') || target.text.contains(char::is_whitespace) {
            c.error(Code::Malformed, n.span, format!("`{p}` must begin with `/` and have no blanks"));
        }
        Some(target)
    });
    Request {
        method: settings.get(ctx, "method"),
        path,
        headers: settings.own(ctx, "headers", headers).unwrap_or_default(),
        body: settings.own(ctx, "body", |c, n, p| pattern(c, n, p, PatternUse::Request)),
    }
}

fn headers(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<(String, Pattern)>> {
    let mut headers = Vec::new();
    for entry in ctx.entries(node, path)? {
        // RFC 9110, section 5.6.2: a field name is a token.
        if entry.key.is_empty() || !entry.key.bytes().all(is_token) {
            let message = format!("{} is not a header's name", quoted(&entry.key));
            ctx.error(Code::Malformed, entry.key_span, message);
            continue;
        }
        let path = format!("{path}.{}", entry.key);
        if let Some(value) = pattern(ctx, &entry.value, &path, PatternUse::Request) {
            if value.text.contains(['\r', '\n', '\0']) {
                ctx.error(Code::Malformed, entry.value.span, "a header's value has no line breaks");
            }
            headers.push((entry.key.clone(), value));
        }
    }
    Some(headers)
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn response(ctx: &mut Ctx, settings: &Settings<'_>) -> Response {
    let mut lists: [Vec<Outcome>; 5] = Default::default();
    let mut seen: Vec<(Outcome, &str)> = Vec::new();
    for (key, list) in ["ok", "fail", "unknown", "not_found", "mismatch"].into_iter().zip(&mut lists) {
        *list = settings.own(ctx, key, outcomes).unwrap_or_default();
        for outcome in list.iter() {
            if let (Some((_, other)), Some(node)) =
                (seen.iter().find(|(o, _)| overlap(*o, *outcome)), settings.node(key))
            {
                let message = format!("`{key}` and `{other}` both claim one response");
                ctx.error(Code::Conflict, node.span, message);
            }
        }
        seen.extend(list.iter().map(|outcome| (*outcome, key)));
    }
    let value = settings.own(ctx, "value", value_source);
    let [ok, fail, unknown, not_found, mismatch] = lists;
    Response { ok, fail, unknown, not_found, mismatch, value }
}

fn value_source(ctx: &mut Ctx, node: &Node, path: &str) -> Option<ValueSource> {
    let text = ctx.string(node, path)?;
    if text == "body" {
        return Some(ValueSource::Body);
    }
    if text.starts_with('/') {
        return Some(ValueSource::JsonPointer(text));
    }
    let message = format!("`{path}` cannot be {}", quoted(&text));
    ctx.error(Code::Malformed, node.span, message)
        .help("write `body`, or a JSON pointer such as `/node/value`")
        .suggest((!text.is_empty()).then(|| format!("/{}", text.replace('.', "/"))));
    None
}

fn overlap(a: Outcome, b: Outcome) -> bool {
    match (a, b) {
        (Outcome::Status { first: a, last: b }, Outcome::Status { first: c, last: d }) => a <= d && c <= b,
        (a, b) => a == b,
    }
}

/// A list of outcomes, or a single one.
pub(super) fn outcomes(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<Outcome>> {
    let items = match &node.value {
        Value::Seq(items) => items.as_slice(),
        _ => std::slice::from_ref(node),
    };
    Some(items.iter().filter_map(|item| outcome(ctx, item, path)).collect())
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

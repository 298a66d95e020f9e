//! The section `workload`: the client traffic of a run.
//!
//! Key type: [`Workload`]. The only driver so far is `http`. What it does is in `operation`.

use bloodhound_declare::{Key, Section, Syntax, ValueKind, Word, Words};

use crate::decode::{Ctx, Located};
use crate::diagnostic::{Code, quoted};
use crate::endpoint::Endpoint;
use crate::tree::Node;

use super::operation::{self, OPERATION, Operation};
use super::read::{Decode, Settings};
use super::sections::LONGER_THAN_0;

pub(super) static WORKLOAD: Section = Section::new(
    "Workload",
    "client traffic",
    &[
        Key::new("driver", ValueKind::Word(&DRIVER), "what makes the traffic").default("http"),
        Key::section("config", &HTTP_DRIVER).required(),
    ],
);

static DRIVER: Words = Words { name: "Driver", words: &[Word::new("http", "")] };

static HTTP_DRIVER: Section = Section {
    name: "HttpDriver",
    doc: "settings of the driver `http`",
    one_of: &["target", "targets"],
    keys: &[
        Key::new("target", ADDRESS, "where requests go"),
        Key::new(
            "targets",
            ValueKind::NonEmpty(&ADDRESS, "have at least one address"),
            "where requests go, if to several places; each worker goes through them in turn, starting at \
             another one",
        ),
        Key::new(
            "qps",
            // More would be far beyond what any stack is tested with.
            ValueKind::Decimal { least: "0.001", most: "1_000_000" },
            "operations per second of virtual time over all workers (open loop); without it a worker \
             starts its next operation when the last one has ended",
        )
        .otherwise("closed loop"),
        Key::new(
            "concurrency",
            ValueKind::Integer { least: 1, most: 10_000 },
            "number of sequential workers",
        )
        .default("10"),
        Key::new(
            "clients",
            ValueKind::Integer { least: 1, most: 1_000 },
            "number of client nodes over which the workers are spread; not more than `concurrency`, to \
             which the default is lowered",
        )
        .default("5"),
        Key::new("duration", LONGER_THAN_0, "how long new operations are started").default("60s"),
        Key::new(
            "max_operations",
            ValueKind::Integer { least: 1, most: u64::MAX },
            "most operations of a run",
        )
        .otherwise("no limit"),
        Key::new("timeout", LONGER_THAN_0, "when a request is given up").default("5s"),
        Key::new("keep_alive", ValueKind::Bool, "whether a worker uses its connection for several requests")
            .default("true"),
        Key::new(
            "operations",
            ValueKind::NonEmpty(&ValueKind::Section(&OPERATION), "have at least one operation"),
            "what the workers do",
        )
        .required(),
    ],
};

/// An HTTP address inside the simulated network.
pub(super) const ADDRESS: ValueKind = ValueKind::Own(&Syntax {
    name: "Address",
    written: "address",
    plural: "addresses",
    doc: "an HTTP address inside the simulated network, such as http://lb:80/health",
    schema: r#"{"type": "string", "pattern": "^http://"}"#,
    uses: &[],
});

/// Client traffic of the `http` driver; what the keys mean is declared in `HTTP_DRIVER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// `target` or `targets`, at least one. A worker goes through them in turn, each starting at another one.
    pub targets: Vec<Located<Endpoint>>,
    /// `qps` times a thousand; `None`: each worker sends its next request when the last one is answered (closed loop).
    pub qps_milli: Option<u32>,
    /// `concurrency`, at least 1: each worker has one request under way at most.
    pub concurrency: u32,
    /// `clients`, 1 to `concurrency`.
    pub clients: u32,
    /// `duration`, in nanoseconds.
    pub duration_ns: u64,
    /// `max_operations`; `None`: no limit.
    pub max_operations: Option<u64>,
    /// `timeout`, in nanoseconds.
    pub timeout_ns: u64,
    /// `keep_alive`.
    pub keep_alive: bool,
    /// `operations`, at least one, in the order of the file.
    pub operations: Vec<Operation>,
}

pub(super) fn workload(ctx: &mut Ctx, settings: &Settings<'_>) -> Option<Workload> {
    settings.check(ctx, "driver");
    let config = settings.section(ctx, "config")?;
    http(ctx, &config)
}

fn http(ctx: &mut Ctx, settings: &Settings<'_>) -> Option<Workload> {
    let single: Option<Located<Endpoint>> = settings.get(ctx, "target");
    let several: Option<Vec<Located<Endpoint>>> = settings.get(ctx, "targets");
    let concurrency: u32 = settings.value(ctx, "concurrency");
    let mut clients: u32 = settings.value(ctx, "clients");
    if clients > concurrency {
        if let Some(node) = settings.node("clients") {
            let message = format!("{clients} clients cannot share {concurrency} workers (`concurrency`)");
            ctx.error(Code::Conflict, node.span, message);
        }
        clients = concurrency;
    }
    Some(Workload {
        qps_milli: settings.get(ctx, "qps"),
        concurrency,
        clients,
        duration_ns: settings.value(ctx, "duration"),
        max_operations: settings.get(ctx, "max_operations"),
        timeout_ns: settings.value(ctx, "timeout"),
        keep_alive: settings.value(ctx, "keep_alive"),
        operations: operation::operations(ctx, settings)?,
        targets: several.or(single.map(|one| vec![one]))?,
    })
}

impl Decode for Endpoint {
    fn decode(ctx: &mut Ctx, node: &Node, path: &str, _: &'static ValueKind) -> Option<Endpoint> {
        let text = ctx.string(node, path)?;
        match Endpoint::parse(&text) {
            Ok(endpoint) => Some(endpoint),
            Err(error) => {
                let message = format!("`{path}` cannot be {}: {}", quoted(&text), error.message);
                ctx.error(Code::Malformed, node.span, message).suggest(error.suggestion);
                None
            }
        }
    }
}

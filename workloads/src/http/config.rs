//! What the driver is told to do. Names are resolved already; times are nanoseconds of virtual time.

use std::net::SocketAddr;

use super::pattern::Pattern;
use super::rules::Rules;

/// A workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// Where requests go, at least one. A worker goes through them in turn, each starting at another one.
    pub targets: Vec<Target>,
    /// When operations start.
    pub arrivals: Arrivals,
    /// Sequential workers, at least one.
    pub workers: u32,
    /// Client nodes over which the workers are spread, from 1 to `workers`.
    pub clients: u32,
    /// How long new operations are started.
    pub duration_ns: u64,
    /// Most operations of a run.
    pub max_operations: Option<u64>,
    /// When a request is given up.
    pub timeout_ns: u64,
    /// Whether a worker uses its connection to a target for several requests.
    pub keep_alive: bool,
    /// What the workers do, at least one with a weight.
    pub operations: Vec<Operation>,
}

/// When operations start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// A worker starts its next operation when the last one ended.
    Closed,
    /// So many operations in a thousand seconds over all workers, each at a random moment of its share of the time.
    /// One whose worker is busy starts late, when the worker is free.
    Open {
        /// Operations per thousand seconds, at least 1.
        per_kilosecond: u32,
    },
}

/// An address of the service under test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name for the Host header.
    pub host: String,
    /// Where to connect.
    pub address: SocketAddr,
    /// Put before the path of each request; without a slash at its end.
    pub prefix: String,
}

/// What an operation means to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Writes a value.
    Put,
    /// Reads a value.
    Get,
    /// Removes a value.
    Delete,
    /// Writes a value if the present one is as expected.
    Cas,
    /// Means nothing to a model; recorded under its name.
    Custom,
}

/// One kind of request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its name; a custom operation is recorded under it.
    pub name: String,
    /// What it does.
    pub kind: Kind,
    /// Its share among all operations.
    pub weight: u32,
    /// The key it works on.
    pub key: Pattern,
    /// The value that it writes (put, cas, custom).
    pub value: Pattern,
    /// How the request is built.
    pub request: RequestTemplate,
    /// What responses mean.
    pub rules: Rules,
}

/// How a request is built. What is `None` is the default of the operation's kind:
///
/// | kind | request |
/// |---|---|
/// | put | `PUT /{key}`, the value as body |
/// | get | `GET /{key}` |
/// | delete | `DELETE /{key}` |
/// | cas | `POST /{key}/cas`, body `{"old": .., "new": ..}`: JSON strings, `null` for no value |
/// | custom | `GET /` |
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RequestTemplate {
    /// Method in capitals.
    pub method: Option<String>,
    /// Path with query, starting with a slash; what placeholders put in is percent-encoded.
    pub path: Option<Pattern>,
    /// Header fields.
    pub headers: Vec<(String, Pattern)>,
    /// Body.
    pub body: Option<Pattern>,
}

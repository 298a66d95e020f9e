//! The JSON schema of bloodhound.yaml, for editors and other tools.
//!
//! Key function: [`schema`]. The types here exist only for schemars to read: the decoders in `config` are the
//! authority, tests compare the keys of both and check that what the decoders accept is valid by the schema.

// Nothing ever makes a value of these types.
#![allow(dead_code)]

mod faults;
mod units;

use std::collections::BTreeMap;

use schemars::JsonSchema;

use faults::{NetworkFaults, ProcessFaults};
use units::{Address, Duration, OneOrManyServices, Outcomes, Rate, Text};

/// The JSON schema (draft 2020-12) of bloodhound.yaml as text with a final line break. The file
/// `bloodhound.schema.json` of this crate has the same content.
pub fn schema() -> String {
    let schema = schemars::schema_for!(Bloodhound);
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is plain JSON");
    text.push('\n');
    text
}

// An `Option` allows null, as the decoders do for sections and lists. What may be left out but not null is
// no `Option`: each type says by `required` what must be there.

/// The configuration of Bloodhound.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, title = "bloodhound.yaml", extend("patternProperties" = {"^x-": true}, "required" = []))]
struct Bloodhound {
    /// The compose file, relative to this file. Default: compose.yaml, compose.yml, docker-compose.yaml or
    /// docker-compose.yml beside it.
    #[schemars(length(min = 1))]
    compose: String,
    /// Times and seeds.
    simulation: Option<Simulation>,
    /// Client traffic.
    workload: Option<Workload>,
    /// What must hold.
    properties: Option<Vec<Property>>,
    /// What goes wrong.
    faults: Option<Faults>,
    /// How seeds are explored.
    exploration: Option<Exploration>,
    /// Where results go.
    output: Option<Output>,
    /// Debugging. Not available yet.
    debug: Option<Debug>,
}

/// Times and seeds.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("patternProperties" = {"^x-": true}, "required" = []))]
struct Simulation {
    /// Longest virtual time of a run, counted from the moment all services are ready.
    #[schemars(extend("default" = "5m"))]
    max_time: Duration,
    /// How often fault probabilities are drawn.
    #[schemars(extend("default" = "10ms"))]
    time_step: Duration,
    /// How many seeds `bloodhound test` runs.
    #[schemars(range(min = 1), extend("default" = 100))]
    seeds: u64,
    /// How many boots of the stack the seeds start from: seed s from boot s mod `boots`.
    #[schemars(range(min = 1, max = 1_000), extend("default" = 4))]
    boots: u64,
    /// Longest virtual time until all services are ready.
    #[schemars(extend("default" = "60s"))]
    start_timeout: Duration,
    /// Time a packet takes from one node to another without any fault.
    #[schemars(extend("default" = "200us"))]
    latency: Duration,
    /// Upper bound of a random addition to `latency`.
    #[schemars(extend("default" = "50us"))]
    latency_jitter: Duration,
    /// Each service starts up to this much later than it could.
    #[schemars(extend("default" = "50ms"))]
    start_spread: Duration,
    /// The wall clock of each node is up to this much before or behind the true time.
    #[schemars(extend("default" = "5ms"))]
    clock_spread: Duration,
    /// System calls of each node cost up to this share more or less, at most 0.5.
    #[schemars(extend("default" = 0.05, "maximum" = 0.5))]
    cost_spread: Rate,
}

/// Client traffic.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("patternProperties" = {"^x-": true}, "required" = ["config"]))]
struct Workload {
    /// What makes the traffic.
    #[schemars(extend("default" = "http"))]
    driver: Driver,
    /// The driver's settings.
    config: HttpDriver,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Driver {
    Http,
}

/// Settings of the driver `http`. Either `target` or `targets` is needed.
#[derive(JsonSchema)]
#[schemars(
    deny_unknown_fields,
    extend("patternProperties" = {"^x-": true}, "required" = ["operations"]),
    extend("oneOf" = [{"required": ["target"]}, {"required": ["targets"]}])
)]
struct HttpDriver {
    /// Where requests go.
    target: Address,
    /// Where requests go, in turn.
    #[schemars(length(min = 1))]
    targets: Vec<Address>,
    /// Requests per second of virtual time over all workers. Without it, each worker sends its next request
    /// when the last one is answered.
    #[schemars(extend("type" = "number", "minimum" = 0.001, "maximum" = 1_000_000))]
    qps: Text,
    /// Number of sequential workers.
    #[schemars(range(min = 1, max = 10_000), extend("default" = 10))]
    concurrency: u32,
    /// Number of client nodes over which the workers are spread; at most `concurrency`.
    #[schemars(range(min = 1, max = 1_000), extend("default" = 5))]
    clients: u32,
    /// How long new operations are started.
    #[schemars(extend("default" = "60s"))]
    duration: Duration,
    /// Most operations of a run.
    #[schemars(range(min = 1))]
    max_operations: u64,
    /// When a request is given up.
    #[schemars(extend("default" = "5s"))]
    timeout: Duration,
    /// Whether a worker uses its connection for several requests.
    #[schemars(extend("default" = true))]
    keep_alive: bool,
    /// What the workers do.
    #[schemars(length(min = 1))]
    operations: Vec<Operation>,
}

/// One kind of request.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("patternProperties" = {"^x-": true}, "required" = ["type"]))]
struct Operation {
    /// What it does.
    r#type: OperationType,
    /// The name that properties use. Default: the type.
    #[schemars(length(min = 1))]
    name: String,
    /// Its share among all operations.
    #[schemars(range(min = 0, max = 1_000_000), extend("default" = 1))]
    weight: u32,
    /// Its key; placeholders: {random:1-100}, {seq}, {uuid}, {client}. Default: that of the first operation
    /// that has one, else key-{random:1-10}.
    #[schemars(length(min = 1))]
    key_pattern: String,
    /// The value that it writes; placeholders as in a key, and {key}.
    #[schemars(length(min = 1), extend("default" = "v{seq}"))]
    value_pattern: String,
    /// The request, where it differs from the type's usual one.
    request: Option<Request>,
    /// What responses mean, where it differs from the type's usual meaning.
    response: Option<Response>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum OperationType {
    Put,
    Get,
    Delete,
    Cas,
    Custom,
}

/// How a request is built. Placeholders: those of keys and values, and {key}, {value}, {old}, {new}.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("patternProperties" = {"^x-": true}, "required" = []))]
struct Request {
    /// The HTTP method.
    method: Method,
    /// The path with its query.
    #[schemars(extend("type" = "string", "pattern" = "^/"))]
    path: Text,
    /// Header fields.
    headers: Option<BTreeMap<String, Text>>,
    /// The body.
    body: Text,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "UPPERCASE")]
enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
}

/// What responses mean.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("patternProperties" = {"^x-": true}, "required" = []))]
struct Response {
    /// The operation took effect.
    ok: Outcomes,
    /// The operation certainly did not take effect.
    fail: Outcomes,
    /// The operation may have taken effect or may do so later.
    unknown: Outcomes,
    /// The operation took effect and there is no value.
    not_found: Outcomes,
    /// The operation did not take effect, because another value than the expected one was there (cas).
    mismatch: Outcomes,
    /// Where the value that was read stands: `body`, or a JSON pointer such as /node/value.
    #[schemars(regex(pattern = "^(body$|/)"))]
    value: String,
}

/// Something that must hold.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("patternProperties" = {"^x-": true}, "required" = ["name", "kind", "check"]))]
struct Property {
    /// A unique name.
    #[schemars(length(min = 1))]
    name: String,
    /// When it must hold.
    kind: PropertyKind,
    /// What it means, for reports.
    description: String,
    /// Liveness: within this time after the faults have been healed it must hold. Else: how long one check may
    /// take.
    #[schemars(extend("default" = "30s"))]
    timeout: Duration,
    /// How it is checked.
    check: Check,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum PropertyKind {
    /// Judged once over the whole run: nothing bad happened.
    Safety,
    /// Must come to hold after the faults have been healed.
    Liveness,
    /// Must hold at every moment at which it is looked at.
    Invariant,
}

/// How a property is checked.
#[derive(JsonSchema)]
#[schemars(untagged)]
enum Check {
    Linearizability(LinearizabilityCheck),
    Http(HttpCheck),
    Custom(CustomCheck),
    NoCrash(NoCrashCheck),
}

/// The history of the workload must be linearizable.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("patternProperties" = {"^x-": true}, "required" = ["type"]))]
struct LinearizabilityCheck {
    #[schemars(extend("const" = "linearizability"))]
    r#type: String,
    /// Names or types of operations; those that change state are always part of the check. Default: all.
    operations: Option<Vec<String>>,
    /// Against which model.
    #[schemars(extend("default" = "kv"))]
    model: Model,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Model {
    /// One register: read and write.
    Register,
    /// One register with compare and set.
    CasRegister,
    /// A map of registers with compare and set and delete, checked key by key.
    Kv,
}

/// An HTTP request must be answered as expected.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("patternProperties" = {"^x-": true}, "required" = ["type", "endpoint"]))]
struct HttpCheck {
    #[schemars(extend("const" = "http"))]
    r#type: String,
    /// Where the request goes.
    endpoint: Address,
    /// The HTTP method.
    #[schemars(extend("default" = "GET"))]
    method: Method,
    /// What is expected.
    expect: Option<Expect>,
    /// Time between two requests.
    #[schemars(extend("default" = "1s"))]
    interval: Duration,
}

/// What is expected of a response.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("patternProperties" = {"^x-": true}, "required" = []))]
struct Expect {
    /// Which statuses are right.
    #[schemars(extend("default" = 200))]
    status: Outcomes,
    /// What the body must contain.
    body_contains: String,
}

/// A program must exit with 0.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("patternProperties" = {"^x-": true}, "required" = ["type", "script"]))]
struct CustomCheck {
    #[schemars(extend("const" = "custom"))]
    r#type: String,
    /// The program, relative to this file.
    #[schemars(length(min = 1))]
    script: String,
    /// The service in whose file system it runs. Default: a node of its own with this machine's files.
    #[schemars(length(min = 1))]
    service: String,
    /// Its arguments.
    args: Option<Vec<Text>>,
    /// Time between two runs.
    #[schemars(extend("default" = "1s"))]
    interval: Duration,
}

/// No process of a service may end by a signal or with a status other than 0, unless a fault killed it.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("patternProperties" = {"^x-": true}, "required" = ["type"]))]
struct NoCrashCheck {
    #[schemars(extend("const" = "no-crash"))]
    r#type: String,
    /// Which services. Default: all.
    services: OneOrManyServices,
}

/// What goes wrong.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("patternProperties" = {"^x-": true}, "required" = []))]
struct Faults {
    /// What happens to packets and connections.
    network: Option<NetworkFaults>,
    /// What happens to files. Not available yet.
    disk: Option<DiskFaults>,
    /// What happens to nodes.
    process: Option<ProcessFaults>,
    /// Whether each seed draws which faults are on and how strong, up to the written figures.
    #[schemars(extend("default" = true))]
    swarm: bool,
    /// Whether faults end and are healed before progress is demanded.
    #[schemars(extend("default" = true))]
    heal: bool,
    /// Time from the start of the workload to the first possible fault.
    #[schemars(extend("default" = "0s"))]
    start_after: Duration,
    /// How long the fault phase lasts. Default: as long as the workload.
    duration: Duration,
}

/// What happens to files. Not available yet.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("patternProperties" = {"^x-": true}, "required" = []))]
struct DiskFaults {
    /// How many writes fail. Not available yet.
    write_fail_rate: Rate,
    /// How many writes are cut short. Not available yet.
    partial_write_rate: Rate,
    /// How many fsync calls fail. Not available yet.
    fsync_fail_rate: Rate,
}

/// How seeds are explored.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("patternProperties" = {"^x-": true}, "required" = []))]
struct Exploration {
    /// How the next run is chosen. Only `random` is available yet.
    strategy: Strategy,
    /// Not available yet.
    #[schemars(range(min = 1))]
    max_depth: u64,
    /// Not available yet.
    #[schemars(range(min = 1))]
    max_states: u64,
    /// How many runs go on at the same time. Default: as many as there are cores.
    #[schemars(range(min = 1, max = 1024))]
    parallel_workers: u32,
    /// Not available yet.
    prioritize_coverage: bool,
    /// Not available yet.
    prioritize_near_violation: bool,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum Strategy {
    Bfs,
    Dfs,
    Random,
    CoverageGuided,
}

/// Where results go.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("patternProperties" = {"^x-": true}, "required" = []))]
struct Output {
    /// Directory of reports and findings, relative to this file.
    #[schemars(length(min = 1), extend("default" = "./output"))]
    dir: String,
    /// Whether a finding is saved with the trace of its run.
    #[schemars(extend("default" = true))]
    save_violation_traces: bool,
    /// Not available yet.
    save_interesting_seeds: bool,
    /// Not available yet.
    coverage_format: CoverageFormat,
    /// Whether a summary of the campaign is written.
    #[schemars(extend("default" = true))]
    summary_report: bool,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum CoverageFormat {
    Html,
    Json,
    Lcov,
    Text,
}

/// Debugging. Not available yet.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, extend("patternProperties" = {"^x-": true}, "required" = []))]
struct Debug {
    /// Not available yet.
    gdb_enabled: bool,
    /// Not available yet.
    #[schemars(range(min = 1, max = 65535))]
    gdb_port: u16,
    /// Not available yet.
    trace_level: TraceLevel,
    /// Not available yet.
    trace_events: Option<Vec<TraceEvent>>,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "kebab-case")]
enum TraceLevel {
    Off,
    Minimal,
    Normal,
    Verbose,
}

#[derive(JsonSchema)]
#[schemars(rename_all = "snake_case")]
enum TraceEvent {
    Syscall,
    NetworkSend,
    NetworkRecv,
    DiskRead,
    DiskWrite,
    DiskSync,
    ProcessStart,
    ProcessExit,
    ProcessCrash,
    ProcessPause,
    Partition,
    Signal,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys;

    #[test]
    fn the_schema_has_exactly_the_keys_that_the_decoders_know() {
        let schema: serde_json::Value = serde_json::from_str(&schema()).expect("JSON");
        for (name, keys) in keys::TABLES {
            let definition = match *name {
                "Bloodhound" => &schema,
                name => &schema["$defs"][name],
            };
            let properties = definition["properties"].as_object().expect(name);
            let mut in_schema: Vec<&str> = properties.keys().map(String::as_str).collect();
            let mut decoded = keys.to_vec();
            in_schema.sort_unstable();
            decoded.sort_unstable();
            assert_eq!(in_schema, decoded, "{name}");
            assert_eq!(definition["additionalProperties"], false, "{name}");
        }
    }

    #[test]
    fn the_checked_in_file_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/bloodhound.schema.json");
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(path, schema()).expect("writable");
        }
        let file = std::fs::read_to_string(path).expect("the schema is checked in");
        assert!(file == schema(), "run the tests with BLESS=1 to write {path} anew");
    }
}

//! The known keys of every mapping in bloodhound.yaml.
//!
//! The decoders check against these lists, the messages print them, and a test compares them with the JSON
//! schema and with docs/configuration.md.

pub(crate) const TOP: &[&str] =
    &["compose", "simulation", "workload", "properties", "faults", "exploration", "output", "debug"];
pub(crate) const SIMULATION: &[&str] =
    &["max_time", "time_step", "seeds", "start_timeout", "latency", "latency_jitter"];
pub(crate) const WORKLOAD: &[&str] = &["driver", "config"];
pub(crate) const HTTP_DRIVER: &[&str] = &[
    "target",
    "targets",
    "qps",
    "concurrency",
    "clients",
    "duration",
    "max_operations",
    "timeout",
    "keep_alive",
    "operations",
];
pub(crate) const OPERATION: &[&str] =
    &["type", "name", "weight", "key_pattern", "value_pattern", "request", "response"];
pub(crate) const REQUEST: &[&str] = &["method", "path", "headers", "body"];
pub(crate) const RESPONSE: &[&str] = &["ok", "fail", "unknown", "not_found", "value"];
pub(crate) const PROPERTY: &[&str] = &["name", "kind", "description", "timeout", "check"];
pub(crate) const CHECK_LINEARIZABILITY: &[&str] = &["type", "operations", "model"];
pub(crate) const CHECK_HTTP: &[&str] = &["type", "endpoint", "method", "expect", "interval"];
pub(crate) const CHECK_CUSTOM: &[&str] = &["type", "script", "service", "args", "interval"];
pub(crate) const CHECK_NO_CRASH: &[&str] = &["type", "services"];
pub(crate) const EXPECT: &[&str] = &["status", "body_contains"];
pub(crate) const FAULTS: &[&str] =
    &["network", "disk", "process", "swarm", "heal", "start_after", "duration"];
pub(crate) const NETWORK: &[&str] = &[
    "drop_rate",
    "delay_ms",
    "delay_rate",
    "latency_ms",
    "jitter_ms",
    "duplicate_rate",
    "reorder_rate",
    "reset_probability",
    "partition_probability",
    "partition_duration_ms",
    "partition_kinds",
];
pub(crate) const DISK: &[&str] = &["write_fail_rate", "partial_write_rate", "fsync_fail_rate"];
pub(crate) const PROCESS: &[&str] = &[
    "crash_probability",
    "crash_restart_ms",
    "pause_probability",
    "pause_duration_ms",
    "oom_probability",
    "services",
];
pub(crate) const EXPLORATION: &[&str] = &[
    "strategy",
    "max_depth",
    "max_states",
    "parallel_workers",
    "prioritize_coverage",
    "prioritize_near_violation",
];
pub(crate) const OUTPUT: &[&str] =
    &["dir", "save_violation_traces", "save_interesting_seeds", "coverage_format", "summary_report"];
pub(crate) const DEBUG: &[&str] = &["gdb_enabled", "gdb_port", "trace_level", "trace_events"];

/// Every list with the name of its definition in the JSON schema.
#[cfg(test)]
pub(crate) const TABLES: &[(&str, &[&str])] = &[
    ("Bloodhound", TOP),
    ("Simulation", SIMULATION),
    ("Workload", WORKLOAD),
    ("HttpDriver", HTTP_DRIVER),
    ("Operation", OPERATION),
    ("Request", REQUEST),
    ("Response", RESPONSE),
    ("Property", PROPERTY),
    ("LinearizabilityCheck", CHECK_LINEARIZABILITY),
    ("HttpCheck", CHECK_HTTP),
    ("CustomCheck", CHECK_CUSTOM),
    ("NoCrashCheck", CHECK_NO_CRASH),
    ("Expect", EXPECT),
    ("Faults", FAULTS),
    ("NetworkFaults", NETWORK),
    ("DiskFaults", DISK),
    ("ProcessFaults", PROCESS),
    ("Exploration", EXPLORATION),
    ("Output", OUTPUT),
    ("Debug", DEBUG),
];

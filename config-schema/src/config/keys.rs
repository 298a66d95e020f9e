//! The known keys of every mapping in bloodhound.yaml.
//!
//! The decoders check against these lists, the messages print them, and a test compares them with the JSON
//! schema and with docs/configuration.md.

use bloodhound_faults::{Kind, Section};

pub(crate) const TOP: &[&str] =
    &["compose", "simulation", "workload", "properties", "faults", "exploration", "output", "debug"];
pub(crate) const SIMULATION: &[&str] = &[
    "max_time",
    "time_step",
    "seeds",
    "boots",
    "start_timeout",
    "latency",
    "latency_jitter",
    "start_spread",
    "clock_spread",
    "cost_spread",
];
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
pub(crate) const RESPONSE: &[&str] = &["ok", "fail", "unknown", "not_found", "mismatch", "value"];
pub(crate) const PROPERTY: &[&str] = &["name", "kind", "description", "timeout", "check"];
pub(crate) const CHECK_LINEARIZABILITY: &[&str] = &["type", "operations", "model"];
pub(crate) const CHECK_HTTP: &[&str] = &["type", "endpoint", "method", "expect", "interval"];
pub(crate) const CHECK_CUSTOM: &[&str] = &["type", "script", "service", "args", "interval"];
pub(crate) const CHECK_NO_CRASH: &[&str] = &["type", "services"];
pub(crate) const EXPECT: &[&str] = &["status", "body_contains"];
pub(crate) const FAULTS: &[&str] =
    &["network", "disk", "process", "swarm", "heal", "start_after", "duration"];
pub(crate) const NETWORK: &[&str] = &of_kinds::<{ count(Section::Network) }>(Section::Network, &[]);
pub(crate) const DISK: &[&str] = &["write_fail_rate", "partial_write_rate", "fsync_fail_rate"];
pub(crate) const PROCESS: &[&str] =
    &of_kinds::<{ count(Section::Process) + 2 }>(Section::Process, &["oom_probability", "services"]);

/// How many keys the kinds of faults of a section have.
const fn count(section: Section) -> usize {
    let (mut kind, mut count) = (0, 0);
    while kind < Kind::DECLARATIONS.len() {
        if Kind::DECLARATIONS[kind].section as u8 == section as u8 {
            count += Kind::DECLARATIONS[kind].keys.len();
        }
        kind += 1;
    }
    count
}

/// The keys of the kinds of faults of a section, in the order of their declarations, and more behind them.
const fn of_kinds<const N: usize>(section: Section, more: &[&'static str]) -> [&'static str; N] {
    let mut names = [""; N];
    let (mut kind, mut at) = (0, 0);
    while kind < Kind::DECLARATIONS.len() {
        let mut key = 0;
        while Kind::DECLARATIONS[kind].section as u8 == section as u8
            && key < Kind::DECLARATIONS[kind].keys.len()
        {
            names[at] = Kind::DECLARATIONS[kind].keys[key].name;
            at += 1;
            key += 1;
        }
        kind += 1;
    }
    let mut key = 0;
    while key < more.len() {
        names[at] = more[key];
        at += 1;
        key += 1;
    }
    names
}

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

#[cfg(test)]
mod tests {
    use super::TABLES;
    use crate::diagnostic::Code;

    fn manual() -> String {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md");
        std::fs::read_to_string(path).expect(path)
    }

    #[test]
    fn the_manual_has_every_key_in_its_section() {
        let manual = manual();
        for (name, keys) in TABLES {
            let start =
                manual.find(&format!("<!-- {name} -->")).unwrap_or_else(|| panic!("no section {name}"));
            let table = manual[start..].lines().skip(3).take_while(|line| line.starts_with('|'));
            let rows: Vec<&str> = table.filter_map(|l| l.strip_prefix("| `")?.split('`').next()).collect();
            assert_eq!(rows, *keys, "{name}");
        }
    }

    #[test]
    fn the_manual_has_every_code() {
        let manual = manual();
        for code in Code::ALL {
            let row = format!("| {code} | {} |", code.meaning());
            assert!(manual.contains(&row), "{row}");
        }
    }

    #[test]
    fn the_manual_has_every_compose_key() {
        use crate::compose::keys as compose;
        let manual = manual();
        let start = manual.find("<!-- Compose -->").expect("the compose part");
        let lists = [compose::SERVICE, compose::SERVICE_NO_EFFECT, compose::SERVICE_NOT_MODELLED];
        for key in lists.into_iter().flatten() {
            assert!(manual[start..].contains(&format!("`{key}`")), "{key}");
        }
    }
}

//! The reference configuration parses unchanged and means what it says.

use std::path::Path;

use bloodhound_config::config::{Check, Config, FileChecks, Model, OperationKind, Outcome, PropertyKind};
use bloodhound_config::tree::Source;
use bloodhound_config::{Code, Severity};
use bloodhound_faults::{Kind, Shape};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;

fn reference() -> (Config, Vec<bloodhound_config::Diagnostic>) {
    let text = include_str!("data/reference.yaml");
    let source = Source::new(Path::new("tests/data/reference.yaml"), text);
    let (config, diagnostics) = Config::decode(source, FileChecks::Lenient);
    (config.unwrap_or_else(|| panic!("{diagnostics:#?}")), diagnostics)
}

#[test]
fn times_and_seeds() {
    let (config, _) = reference();
    let simulation = &config.simulation;
    assert_eq!(simulation.max_time_ns, 300 * SECOND);
    assert_eq!(simulation.time_step_ns, 10 * MS);
    assert_eq!(simulation.seeds, 1000);
    let compose = config.compose.as_ref().expect("compose");
    assert_eq!(compose.value, Path::new("tests/data/docker-compose.yml"));
    assert_eq!((compose.at.line, compose.at.column), (2, 10));
    assert_eq!(config.output.dir, Path::new("tests/data/output"));
    assert!(config.output.save_violation_traces && config.output.summary_report);
    let exploration = &config.exploration;
    assert_eq!(exploration.strategy, "coverage-guided");
    assert_eq!((exploration.max_depth, exploration.max_states), (1000, 100_000));
    assert!(exploration.prioritize_coverage && exploration.prioritize_near_violation);
    assert_eq!(exploration.parallel_workers, Some(8));
    assert_eq!(config.fault_phase_ns(), 60 * SECOND);
}

#[test]
fn workload() {
    let (config, _) = reference();
    let workload = config.workload.expect("workload");
    assert_eq!(workload.targets.len(), 1);
    assert_eq!(workload.targets[0].value.to_string(), "http://lb:80/");
    assert_eq!(workload.qps_milli, Some(100_000));
    assert_eq!(workload.duration_ns, 60 * SECOND);
    let operations: Vec<_> =
        workload.operations.iter().map(|o| (o.kind, o.weight, o.key.text.as_str(), o.at.line)).collect();
    let key = "key-{random:1-10000}";
    assert_eq!(
        operations,
        [
            (OperationKind::Put, 40, key, 16),
            (OperationKind::Get, 50, key, 19),
            (OperationKind::Delete, 10, key, 21)
        ]
    );
}

#[test]
fn properties() {
    let (config, _) = reference();
    let lines: Vec<_> =
        config.properties.iter().map(|p| (p.name.as_str(), p.kind, p.timeout_ns, p.at.line)).collect();
    assert_eq!(
        lines,
        [
            ("no-data-loss", PropertyKind::Safety, 30 * SECOND, 25),
            ("partition-recovery", PropertyKind::Liveness, 30 * SECOND, 31),
            ("leader-election", PropertyKind::Liveness, 5 * SECOND, 40),
            ("single-leader-per-term", PropertyKind::Invariant, 30 * SECOND, 46),
        ]
    );
    // Deletes change what a get may return, so they are judged although the property names put and get only.
    assert_eq!(
        config.properties[0].check,
        Check::Linearizability { operations: vec![0, 1, 2], model: Model::Kv }
    );
    let Check::Http { endpoint, method, status, .. } = &config.properties[1].check else { panic!() };
    assert_eq!((endpoint.value.to_string().as_str(), method.as_str()), ("http://lb:80/health", "GET"));
    assert_eq!(status, &[Outcome::Status { first: 200, last: 200 }]);
    let Check::Custom { script, service, .. } = &config.properties[2].check else { panic!() };
    assert_eq!(script.value, Path::new("tests/data/checks/has-leader.sh"));
    assert_eq!(service, &None);
}

#[test]
fn faults() {
    let (config, _) = reference();
    let kinds = &config.faults.kinds;
    assert_eq!(kinds.get(Kind::Drop).rate, 10_000_000);
    assert_eq!(kinds.get(Kind::Delay).time, (50 * MS, 50 * MS));
    assert_eq!(kinds.get(Kind::Delay).rate, 50_000_000);
    assert_eq!(kinds.get(Kind::Partition).rate, 1_000_000);
    assert_eq!(kinds.get(Kind::Partition).time, (SECOND, 10 * SECOND));
    assert_eq!(kinds.get(Kind::Partition).shapes, Shape::UNASKED);
    assert_eq!(kinds.get(Kind::Crash).rate, 100_000);
    assert_eq!(kinds.get(Kind::Pause).rate, 500_000);
    let disk = [Kind::WriteFail, Kind::PartialWrite, Kind::FsyncFail].map(|kind| kinds.get(kind).rate);
    assert_eq!(disk, [1_000_000, 500_000, 1_000_000]);
    assert!(config.faults.kinds.swarm && config.faults.heal);
}

#[test]
fn what_has_no_effect_is_named() {
    let (_, diagnostics) = reference();
    let later: Vec<_> =
        diagnostics.iter().filter(|d| d.code == Code::NotAvailableYet).map(|d| d.message.as_str()).collect();
    assert_eq!(
        later,
        ["`debug.gdb_enabled`, `debug.gdb_port`, `debug.trace_level` and `debug.trace_events` are not \
             available yet",]
    );
    assert!(diagnostics.iter().all(|d| d.severity == Severity::Warning));
    let codes: Vec<_> = diagnostics.iter().map(|d| d.code).filter(|c| *c != Code::NotAvailableYet).collect();
    assert_eq!(codes, [Code::Widened, Code::MissingFile, Code::MissingFile]);
}

//! The declarations fit together: every default is accepted, every key is read, every key is in the file that tests use.

use std::collections::BTreeSet;
use std::path::Path;

use bloodhound_declare::{Section, ValueKind};
use bloodhound_faults::{FaultSpec, Kind};

use super::{BLOODHOUND, Config, Faults, FileChecks, Simulation, top};
use crate::decode::Ctx;
use crate::tree::{self, Source};

fn of_kind(kind: &ValueKind, out: &mut Vec<&'static Section>) {
    match kind {
        ValueKind::Section(section) => of_section(section, out),
        ValueKind::Variants(variants) => {
            variants.sections.iter().for_each(|section| of_section(section, out))
        }
        ValueKind::List(of) | ValueKind::NonEmpty(of, _) => of_kind(of, out),
        _ => {}
    }
}

fn of_section(section: &'static Section, out: &mut Vec<&'static Section>) {
    out.push(section);
    section.keys.iter().for_each(|key| of_kind(&key.kind, out));
}

/// Every section of the file, in the order of the manual.
pub(crate) fn sections() -> Vec<&'static Section> {
    let mut out = Vec::new();
    of_section(&BLOODHOUND, &mut out);
    out
}

#[test]
fn names_are_unique() {
    let sections = sections();
    let names: BTreeSet<_> = sections.iter().map(|section| section.name).collect();
    assert_eq!(names.len(), sections.len());
    for section in sections {
        let names: BTreeSet<_> = section.names().into_iter().collect();
        assert_eq!(names.len(), section.keys.len(), "{}", section.name);
    }
}

/// A key that no decoder reads would be accepted and have no effect.
#[test]
fn every_key_is_read_and_part_of_the_file_with_every_key() {
    let source = Source::new(Path::new("every-key.yaml"), include_str!("../../tests/data/every-key.yaml"));
    let node = tree::parse(&source).0.expect("YAML");
    let mut ctx = Ctx::new(source);
    top(&mut ctx, &node, FileChecks::Lenient).expect("a configuration");
    for section in sections() {
        for key in section.keys {
            let read = ctx.reads.get(&(section.name, key.name));
            // `target` and `targets` exclude each other. Keys of kinds of faults are all read by one loop.
            let of_kind = section.name != "Faults" && section.name.ends_with("Faults");
            let written = read == Some(&true) || key.name == "target" || of_kind;
            assert!(read.is_some(), "no decoder reads {}.{}", section.name, key.name);
            assert!(written, "{}.{} is missing in every-key.yaml", section.name, key.name);
        }
    }
}

#[test]
fn what_is_not_written_is_as_declared() {
    let source = Source::new(Path::new("f.yaml"), "properties: []\n");
    let config = Config::decode(source, FileChecks::Lenient).0.expect("a configuration");
    assert_eq!(config.simulation, Simulation::default());
    assert_eq!(config.faults, Faults::default());
    assert_eq!((config.simulation.seeds, config.simulation.boots), (100, 4));
    assert_eq!(config.simulation.max_time_ns, 300_000_000_000);
    let kinds = &config.faults.kinds;
    assert_eq!(kinds.get(Kind::Delay).time, (50_000_000, 50_000_000));
    // The crate of the kinds reads the same declarations.
    let mut without_file = FaultSpec::default();
    without_file.swarm = true;
    assert_eq!(*kinds, without_file);
}

/// Power failures come by a rate, by a preset or by the schedule; only without any the model of disks means nothing.
#[test]
fn the_model_of_disks_has_no_effect_without_power_failures() {
    let warned = |more: &str| {
        let text = format!("faults:\n  disk: {{model: strict}}\n{more}properties: []\n");
        let (config, diagnostics) =
            Config::decode(Source::new(Path::new("disk.yaml"), &text), FileChecks::Lenient);
        assert!(config.is_some(), "{text}: {diagnostics:?}");
        diagnostics.iter().any(|told| told.message.contains("`faults.disk.model` has no effect"))
    };
    assert!(warned(""));
    assert!(warned("  preset: gentle\n"), "that preset has none");
    for more in [
        "  process: {power_failure_probability: 0.001}\n",
        "  preset: jepsen\n",
        "  schedule: [{at: 1s, fault: power-failure, service: db, duration: 1s}]\n",
    ] {
        assert!(!warned(more), "{more}");
    }
}

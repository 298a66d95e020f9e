//! The planted bugs of examples/deep: the faults of which each consists show it, on every platform with one digest, and show nothing in the
//! service without bugs. Searches need minutes for them: `cargo xtask experiment --bug examples/deep/bugs/NAME.yaml` (docs/experiment.md).

use crate::common::*;

const BUGS: [&str; 3] = ["merges-late", "counts-early", "wall-lease"];

/// Seed 0 with the faults of a bug alone.
fn run(config: &str, bug: &str, platform: Option<&str>) -> Ran {
    let dir = repository().join("examples/deep");
    let faults = format!("bugs/{bug}.faults.yaml");
    finish(&mut command_on(platform, &dir, &["run", "--config", config, "--faults", &faults]), b"")
}

#[test]
fn the_faults_of_a_bug_show_it_and_nothing_else() {
    let first = platform().unwrap_or_else(|| "ptrace".into());
    let kvm = platform().is_none() && !bloodhound_platform_tests::without_kvm("the deep bugs on kvm");
    for bug in BUGS {
        let correct = run("bloodhound.yaml", bug, Some(&first));
        assert_eq!(correct.code, Some(0), "{bug}: {}", correct.shown());
        let planted = run(&format!("bugs/{bug}.yaml"), bug, Some(&first));
        assert_eq!(planted.code, Some(1), "{bug}: {}", planted.shown());
        assert!(planted.stdout.contains("VIOLATED linearizable"), "{bug}: {}", planted.shown());
        if kvm {
            let other = run(&format!("bugs/{bug}.yaml"), bug, Some("kvm"));
            assert_eq!(planted.run_digest(), other.run_digest(), "{bug}: {}", other.shown());
        }
    }
}

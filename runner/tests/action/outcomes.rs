//! What the action says of campaigns without a verdict, and one run of the real command.

use super::*;

#[test]
fn what_was_not_judged_is_said_with_its_reason() {
    let fake = Fake::new("reasons");
    let reason = "0 of 1,490 operations succeeded, first: connection refused";
    let result = serde_json::json!({
        "seeds_run": 9, "seeds_judged": 8, "seeds_wanted": 9, "findings": [],
        "properties": [{"name": "stays up", "kind": "safety", "verdict": "not exercised", "reason": reason}],
        "campaign": [{"name": "seeds", "kind": "campaign", "verdict": "error", "reason": "seed 4 not judged: semget"}],
    });
    fake.fake_binary(7, &result.to_string());
    let job = fake.run();
    assert_eq!((job.code, &*job.outputs["result"]), (7, "error"), "{}", job.log);
    let place = format!("::error file=bloodhound.yaml,line=3,title=stays up not exercised::{reason}\n");
    assert!(job.log.contains(&place), "{}", job.log);
    assert!(
        job.log.contains("::error title=Bloodhound%3A seeds::seed 4 not judged: semget\n"),
        "{}",
        job.log
    );
    assert!(job.summary.contains("8 of 9 seeds") && !job.summary.contains('✅'), "{}", job.summary);
    assert!(job.summary.contains("not exercised: 0 of 1,490 operations"), "{}", job.summary);
}

#[test]
fn a_threshold_of_code_coverage_is_an_error() {
    let mut fake = Fake::new("code-coverage");
    fake.fake_binary(0, PASSED);
    fake.input("coverage-threshold", "80%");
    let job = fake.run();
    assert_eq!((job.code, &*job.outputs["result"]), (2, "error"), "{}", job.log);
    assert!(
        job.log.contains("code coverage is not measured") && job.log.contains("fault-coverage-threshold")
    );
    assert!(!fake.dir.join("args").exists(), "nothing is run");
}

#[test]
fn the_real_thing_tests_a_service() {
    let usable = Command::new(REAL).arg("doctor").output().expect("doctor").status.success();
    let mut fake = Fake::new("real");
    fake.input("bloodhound-path", REAL);
    fake.input("seeds", "2");
    let job = fake.run();
    if !usable {
        assert_eq!((job.code, &*job.outputs["result"]), (5, "error"), "{}", job.log);
        return;
    }
    assert_eq!((job.code, &*job.outputs["result"]), (0, "passed"), "{}", job.log);
    assert_eq!((&*job.outputs["seeds-run"], &*job.outputs["findings"]), ("2", "0"));
    let junit = fs::read_to_string(&job.outputs["junit"]).expect("a report");
    assert!(junit.contains("<testcase name=\"stays up\""), "{junit}");
}

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

/// A checkout in which a line of the service was added since its first commit, and coverage.json of a run: two of four lines are
/// covered, of the two changed ones one.
fn changed_checkout(fake: &Fake) {
    fake.write("app.py", "a = 1\nb = 2\n");
    let git = |args: &[&str]| {
        let mut command = Command::new("git");
        command.current_dir(fake.dir.join("work")).env("HOME", &fake.dir);
        let identity =
            ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"];
        let ran = command.args(identity).args(args).output().expect("git starts");
        assert!(ran.status.success(), "{args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    };
    git(&["init", "--quiet"]);
    git(&["add", "."]);
    git(&["commit", "--quiet", "-m", "first"]);
    // The runner's checkout has such a remote.
    git(&["remote", "add", "origin", "."]);
    git(&["branch", "stable"]);
    fake.write("app.py", "a = 1\nb = 2\nc = 3\nd = 4\n");
    let coverage = serde_json::json!({
        "version": 1, "seeds": [[0, 0]], "moments": [{"seed": 0, "time_ns": null}],
        "parts": {"web: python": {"name": "python", "unit": "lines", "files": {"app.py": {
            "lines": {"1": 0, "2": null, "3": 0, "4": null}}}}},
        "services": {"web": {"parts": ["web: python"]}},
    });
    fs::create_dir_all(fake.dir.join("work/bloodhound-output/coverage")).expect("a directory");
    fake.write("bloodhound-output/coverage/coverage.json", &coverage.to_string());
}

const MEASURED: &str = r#"{"seeds_run":1,"seeds_judged":1,"seeds_wanted":1,"findings":[],
"properties":[{"name":"stays up","kind":"safety","verdict":"passed","reason":""}],
"coverage":[{"service":null,"units":[{"unit":"lines","covered":2,"total":4,"percent":"50.0 %"}],"not_measured":[]},
{"service":"web","units":[{"unit":"lines","covered":2,"total":4,"percent":"50.0 %"}],"not_measured":[]}]}"#;

#[test]
fn the_changed_lines_of_a_pull_request_are_told() {
    let mut fake = Fake::new("changed-lines");
    changed_checkout(&fake);
    fake.fake_binary(0, &MEASURED.replace('\n', ""));
    fake.github.insert("base_ref".to_owned(), "stable".to_owned());
    let job = fake.run();
    assert_eq!((job.code, &*job.outputs["result"]), (0, "passed"), "{}", job.log);
    assert_eq!((&*job.outputs["coverage"], &*job.outputs["changed-lines"]), ("50.0 %", "50.0 %"));
    assert!(
        job.log.contains(
            "\n::warning file=app.py,line=4,endLine=4,title=Not covered::no seed reached this changed line\n"
        ),
        "{}",
        job.log
    );
    for part in [
        "### Code coverage",
        "| web | 50.0 % (2 of 4 lines) |",
        "Changed lines: 50.0 % (1 of 2)",
        "| app.py | 1 of 2 | 4 |",
    ] {
        assert!(job.summary.contains(part), "{part}: {}", job.summary);
    }
    // Its own threshold decides where nothing else does.
    fake.input("changed-lines-threshold", "80%");
    let job = fake.run();
    assert_eq!((job.code, &*job.outputs["result"]), (3, "failed"), "{}", job.log);
    let reason = "::error title=Bloodhound%3A changed lines::50.0 %25 (1 of 2) of the changed lines were reached, at least 80.0%25 are wanted\n";
    assert!(job.log.contains(reason) && job.summary.contains("⚠️ changed lines: 50.0 %"), "{}", job.log);
    fake.input("fail-on", "findings");
    assert_eq!(fake.run().code, 0);
    // A revision of the user's, and none.
    fake.input("fail-on", "any");
    fake.input("diff-base", "HEAD");
    assert_eq!(fake.run().code, 3);
    fake.input("diff-base", "none");
    let job = fake.run();
    assert_eq!((job.code, &*job.outputs["changed-lines"]), (0, ""), "{}", job.log);
    assert!(job.summary.contains("### Code coverage") && !job.log.contains("::warning file"), "{}", job.log);
    fake.input("diff-base", "no-such-revision");
    let job = fake.run();
    assert_eq!(job.code, 5, "{}", job.log);
    assert!(job.log.contains("git diff no-such-revision"), "{}", job.log);
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

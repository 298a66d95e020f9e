//! Tests of findings on disk.

use super::*;
use bloodhound_sim::Digest;

fn record(digest: &str) -> Record {
    let platform = serde_json::json!({
        "name": "ptrace", "traps_rdtsc": true, "cpuid": "faulting", "traps_steps": true,
    });
    Record {
        format: FORMAT,
        bloodhound: "0".into(),
        property: "p".into(),
        kind: "safety".into(),
        seed: 3,
        boot: 0,
        virtual_time_ns: 5,
        digest: digest.into(),
        digest_version: digest::VERSION,
        steps: 1,
        text: String::new(),
        faults: Vec::new(),
        fault_plan: Vec::new(),
        config: PathBuf::new(),
        compose: Vec::new(),
        profiles: Vec::new(),
        project: "shop".into(),
        fault_schedule: None,
        configured: true,
        plan: String::new(),
        platform: serde_json::from_value(platform).expect("a record"),
        inputs: Vec::new(),
    }
}

#[test]
fn the_first_thousand_steps_that_differ_are_named() {
    let digest = |n: u64| {
        let mut digest = Digest::default();
        digest.word(n);
        digest
    };
    let now: Vec<Digest> = (0..5).map(digest).collect();
    let recorded = |numbers: &[u64]| {
        let digests: Vec<Digest> = numbers.iter().map(|n| digest(*n)).collect();
        first_difference(&Digests { every: MARK, digests: texts(&digests) }, &now)
    };
    assert_eq!(recorded(&[0, 1, 2, 3, 4]), None);
    let text = |text: &str| Some(format!("the first difference is {text}"));
    assert_eq!(recorded(&[0, 1, 9, 3, 4]), text("between step 2001 and step 3000"));
    assert_eq!(recorded(&[9]), text("between step 1 and step 1000"));
    assert_eq!(recorded(&[0, 1]), text("after step 2000"));
}

#[test]
fn findings_of_other_versions_are_refused_by_name() {
    let dir = std::env::temp_dir().join(format!("bloodhound-finding-format-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let old = serde_json::json!({"format": 3, "bloodhound": "0.0.9", "seed": 17});
    std::fs::write(dir.join("finding.json"), old.to_string()).expect("a file");
    let refused = load(&dir).err().expect("refused");
    assert_eq!(refused.code, crate::exit::USAGE);
    for part in ["has format 3, made by Bloodhound 0.0.9", "reads format 5", "--first-seed 17 --seeds 1"] {
        assert!(refused.text.contains(part), "{}", refused.text);
    }
    std::fs::remove_dir_all(dir).expect("no directory");
}

#[test]
fn another_run_does_not_overwrite_a_finding() {
    let out = std::env::temp_dir().join(format!("bloodhound-finding-{}", std::process::id()));
    let _ignored = std::fs::remove_dir_all(&out);
    let findings = directory(&out);
    std::fs::create_dir_all(findings.join(".unfinished-seed-9-p-1")).expect("a directory");
    clean(&out).expect("cleaned");
    let put = |digest: &str, text: &str| {
        let record = record(digest);
        let json = serde_json::to_vec(&record).expect("JSON");
        let files = [("trace.txt", text.as_bytes().to_vec()), ("finding.json", json)];
        store(&findings, "seed-3-p", &record, &files).expect("stored")
    };
    let first = findings.join("seed-3-p");
    let other = findings.join("seed-3-p-2");
    assert_eq!(put("aa", "one"), Saved { dir: first.clone(), beside: None });
    assert_eq!(put("bb", "two"), Saved { dir: other.clone(), beside: Some(first.clone()) });
    // The same run again: its place, whichever that was.
    assert_eq!(put("bb", "three").dir, other);
    assert_eq!(put("aa", "four").dir, first);
    let text = |dir: &Path| std::fs::read_to_string(dir.join("trace.txt")).expect("a trace");
    assert_eq!((text(&first), text(&other)), ("four".to_owned(), "three".to_owned()));
    assert_eq!(names(&out), ["seed-3-p", "seed-3-p-2"]);
    // One that is not whole is not ours to touch.
    std::fs::remove_file(first.join("finding.json")).expect("removed");
    assert_eq!(put("aa", "five").dir, findings.join("seed-3-p-3"));
    let refused = store(Path::new("/proc/nowhere"), "x", &record("cc"), &[]).expect_err("refused");
    assert!(refused.to_string().starts_with("/proc/nowhere/x: "), "{refused}");
    std::fs::remove_dir_all(out).expect("no directory");
}

#[test]
fn what_is_left_of_a_finding_is_taken_if_it_is_the_same_failure() {
    let dir = std::env::temp_dir().join(format!("bloodhound-finding-least-{}", std::process::id()));
    let _ignored = std::fs::remove_dir_all(&dir);
    let put = |dir: &Path, record: &Record| {
        std::fs::create_dir_all(dir).expect("a directory");
        let write = |name: &str, json: serde_json::Result<String>| {
            std::fs::write(dir.join(name), json.expect("JSON")).expect("a file");
        };
        write("finding.json", serde_json::to_string(record));
        write("decisions.json", serde_json::to_string(&Log::new(0, record.seed)));
        write("digests.json", serde_json::to_string(&Digests { every: MARK, digests: Vec::new() }));
    };
    let taken = |named: &Path| {
        let (stored, which) = least(named).unwrap_or_else(|failure| panic!("{}", failure.text));
        (stored.record.digest, which)
    };
    put(&dir, &record("whole"));
    assert_eq!(taken(&dir), ("whole".into(), "the finding, which has not been shrunk"));
    let shrunk = dir.join(SHRUNK);
    put(&shrunk, &record("less"));
    assert_eq!(taken(&dir), ("less".into(), "what `shrink` has left of the finding"));
    assert_eq!(taken(&shrunk), ("less".into(), "the shrunken finding"));
    for other in [Record { seed: 4, ..record("less") }, Record { property: "q".into(), ..record("less") }] {
        put(&shrunk, &other);
        assert_eq!(taken(&dir), ("whole".into(), "the finding; its `shrunk` is another failure"));
    }
    std::fs::write(shrunk.join("finding.json"), "{").expect("a file");
    assert_eq!(taken(&dir), ("whole".into(), "the finding; its `shrunk` cannot be read"));
    std::fs::remove_dir_all(dir).expect("removed");
}

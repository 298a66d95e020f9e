//! The main job, as users start it: campaigns over the distributed-kv example (whose binary `examples/build.sh` makes)
//! and over a small stack of Python services; replay, verify, exit codes.

use std::path::{Path, PathBuf};
use std::process::Output;

use crate::common::cli::{bloodhound, code, json, text};
use crate::common::scratch;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository")
}

fn example() -> PathBuf {
    let dir = root().join("examples/distributed-kv");
    assert!(dir.join("bin/distributed-kv").exists(), "run examples/build.sh first (test.sh does)");
    dir
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a directory");
    for entry in std::fs::read_dir(from).expect("a directory to copy") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

#[test]
fn the_correct_service_holds_under_all_faults() {
    let out = scratch("kv-correct");
    let result = bloodhound(
        &example(),
        &["test", "--seeds", "12", "--format", "json", "--out", &out.to_string_lossy()],
    );
    assert_eq!(code(&result), 0, "{}", text(&result));
    let summary = json(&result);
    assert_eq!(summary["seeds_run"], 12);
    assert_eq!(summary["findings"].as_array().map(Vec::len), Some(0));
    assert!(summary["operations"].as_u64() > Some(2000), "the workload ran: {summary}");
    let junit = std::fs::read_to_string(out.join("junit.xml")).expect("junit.xml");
    assert!(junit.contains("failures=\"0\"") && junit.contains("name=\"linearizable\""), "{junit}");
}

/// The bug is found, reported with its place, and its replay is the same run every time.
fn finds(bug: &str) {
    let out = scratch(bug);
    let config = format!("bugs/{bug}.yaml");
    let out_text = out.to_string_lossy().into_owned();
    let result = bloodhound(
        &example(),
        &[
            "test",
            "--config",
            &config,
            "--seeds",
            "100",
            "--fail-fast",
            "--format",
            "json",
            "--out",
            &out_text,
        ],
    );
    assert_eq!(code(&result), 1, "{}", text(&result));
    let finding = json(&result)["findings"][0].clone();
    assert_eq!(finding["property"], "linearizable", "{finding}");
    let junit = std::fs::read_to_string(out.join("junit.xml")).expect("junit.xml");
    assert!(junit.contains("<failure") && junit.contains("replay: bloodhound replay"), "{junit}");
    let directory = finding["replay"].as_str().expect("a directory");
    for _ in 0..3 {
        let again = bloodhound(&example(), &["replay", directory, "--format", "json"]);
        assert_eq!(code(&again), 1, "{}", text(&again));
        assert_eq!(json(&again)["digest"], finding["digest"]);
    }
}

#[test]
fn stale_reads_are_found() {
    finds("stale-read");
}

#[test]
fn acknowledging_before_commit_is_found() {
    finds("ack-before-commit");
}

#[test]
fn voting_twice_is_found() {
    finds("vote-twice");
}

#[test]
fn reusing_a_buffer_after_a_reset_is_found() {
    finds("reuse-after-reset");
}

#[test]
fn answering_before_the_log_is_synced_is_found() {
    finds("no-fsync");
}

#[test]
fn ignoring_short_writes_is_found() {
    finds("short-write");
}

#[test]
fn a_lease_by_the_wall_clock_is_found() {
    finds("wall-clock-lease");
}

#[test]
fn forgetting_the_snapshot_is_found() {
    finds("forgets-snapshot");
}

#[test]
fn snapshot_and_full_boot_and_repetition_and_platforms_give_one_digest() {
    let digest = |output: &Output| json(output)["digest"].clone();
    let run = bloodhound(&example(), &["run", "--seed", "3", "--format", "json"]);
    assert_eq!(code(&run), 0, "{}", text(&run));
    // Every second run of `verify` starts from the snapshot, the others boot anew.
    let verify = bloodhound(&example(), &["verify", "--seed", "3", "--times", "4", "--format", "json"]);
    assert_eq!(code(&verify), 0, "{}", text(&verify));
    assert_eq!(digest(&run), digest(&verify));
    let doctor = bloodhound(&example(), &["doctor", "--format", "json"]);
    match json(&doctor)["platforms"][1]["error"].as_str() {
        Some(error) => {
            let reason = format!("needs /dev/kvm: {error}");
            bloodhound_platform_tests::left_out("platforms that give one digest", &reason);
        }
        None => {
            let args =
                ["verify", "--seed", "3", "--platform", "ptrace,kvm", "--times", "2", "--format", "json"];
            let both = bloodhound(&example(), &args);
            assert_eq!(code(&both), 0, "{}", text(&both));
            assert_eq!(digest(&run), digest(&both));
        }
    }
    let other = bloodhound(&example(), &["run", "--seed", "4", "--format", "json"]);
    assert_ne!(digest(&run), digest(&other), "another seed is another run");
}

#[test]
fn a_replay_of_changed_inputs_is_refused() {
    let dir = scratch("changed");
    copy(&example(), &dir);
    let out = dir.join("out");
    let result = bloodhound(
        &dir,
        &[
            "test",
            "--config",
            "bugs/stale-read.yaml",
            "--seeds",
            "50",
            "--fail-fast",
            "--format",
            "json",
            "--out",
            &out.to_string_lossy(),
        ],
    );
    assert_eq!(code(&result), 1, "{}", text(&result));
    let finding = json(&result)["findings"][0]["replay"].as_str().expect("a directory").to_string();
    let binary = dir.join("bin/distributed-kv");
    let mut bytes = std::fs::read(&binary).expect("the binary");
    bytes.push(0);
    std::fs::write(&binary, &bytes).expect("a changed binary");
    let refused = bloodhound(&dir, &["replay", &finding]);
    assert_eq!(code(&refused), 2, "{}", text(&refused));
    assert!(text(&refused).contains("distributed-kv (content)"), "{}", text(&refused));
    bytes.pop();
    std::fs::write(&binary, &bytes).expect("the binary as it was");
    let config = dir.join("bugs/stale-read.yaml");
    let yaml = std::fs::read_to_string(&config).expect("the configuration");
    std::fs::write(&config, yaml.replace("drop_rate: 0.01", "drop_rate: 0.02"))
        .expect("a changed configuration");
    let refused = bloodhound(&dir, &["replay", &finding]);
    assert_eq!(code(&refused), 2, "{}", text(&refused));
    assert!(text(&refused).contains("has changed since the finding was made"), "{}", text(&refused));
}

fn python_kv(name: &str) -> PathBuf {
    let dir = scratch(name);
    copy(&root().join("runner/tests/data/python-kv"), &dir);
    dir
}

#[test]
fn a_python_stack_with_scripts_as_checks() {
    let dir = python_kv("python-kv");
    let result = bloodhound(&dir, &["test", "--format", "json"]);
    assert_eq!(code(&result), 0, "{}", text(&result));
    assert_eq!(json(&result)["seeds_run"], 3);
}

#[test]
fn a_script_that_fails_is_a_finding_with_its_output() {
    let dir = python_kv("python-kv-failing");
    std::fs::write(dir.join("checks/up.sh"), "#!/bin/sh\necho it is never up\nexit 1\n").expect("a script");
    let result = bloodhound(&dir, &["test", "--seeds", "1"]);
    assert_eq!(code(&result), 1, "{}", text(&result));
    assert!(text(&result).contains("it is never up"), "{}", text(&result));
}

#[test]
fn a_service_that_ends_by_itself_is_a_crash() {
    let dir = python_kv("python-kv-crashing");
    let server = std::fs::read_to_string(dir.join("server.py")).expect("the server");
    let broken = server.replace("def do_DELETE(self):", "def do_DELETE(self):\n        os.abort()");
    std::fs::write(dir.join("server.py"), broken).expect("a broken server");
    let yaml = std::fs::read_to_string(dir.join("bloodhound.yaml")).expect("the configuration");
    let with = yaml.replace(
        "properties:",
        "properties:\n  - name: alive\n    kind: safety\n    check: {type: no-crash}",
    );
    std::fs::write(dir.join("bloodhound.yaml"), with).expect("a configuration");
    let result = bloodhound(&dir, &["test", "--seeds", "1"]);
    assert_eq!(code(&result), 1, "{}", text(&result));
    // The first process of a container is spared SIGABRT, so abort(3) goes on to an instruction that faults.
    assert!(text(&result).contains("SIGSEGV"), "{}", text(&result));
}

#[test]
fn a_service_that_cannot_start_is_an_environment_error() {
    let dir = python_kv("python-kv-missing");
    std::fs::write(dir.join("server.py"), "raise SystemExit('no configuration')\n").expect("a server");
    let result = bloodhound(&dir, &["test", "--seeds", "1"]);
    assert_eq!(code(&result), 5, "{}", text(&result));
    assert!(text(&result).contains("no configuration"), "its output is shown: {}", text(&result));
}

#[test]
fn an_unsupported_call_is_named() {
    let dir = python_kv("python-kv-unsupported");
    let server = std::fs::read_to_string(dir.join("server.py")).expect("the server");
    // SO_TIMESTAMPING with SOF_TIMESTAMPING_TX_SOFTWARE, of a stream.
    let asking = server.replace(
        "print('listening'",
        "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_STREAM).setsockopt(1, 37, 2)\nprint('listening'",
    );
    std::fs::write(dir.join("server.py"), asking).expect("a server");
    let result = bloodhound(&dir, &["test", "--seeds", "1"]);
    assert_eq!(code(&result), 7, "{}", text(&result));
    assert!(text(&result).contains("SO_TIMESTAMPING"), "{}", text(&result));
}

/// A stack of shell scripts that never gets ready.
fn restless(dir: &Path) -> Output {
    let compose = r#"
services:
  job:
    x-bloodhound: {rootfs: host}
    command: [/bin/sh, -c, "printf 'the job '; echo is done"]
  again:
    x-bloodhound: {rootfs: host}
    command: [/bin/sh, -c, "printf 'no '; echo luck; ls /root/../home/nobody-is-here; exit 3"]
    restart: always
"#;
    std::fs::write(dir.join("compose.yaml"), compose).expect("a file");
    std::fs::write(dir.join("bloodhound.yaml"), "compose: compose.yaml\nproperties: []\n").expect("a file");
    bloodhound(dir, &["run"])
}

#[test]
fn a_boot_that_fails_is_told_in_few_words() {
    let result = restless(&scratch("restless"));
    assert_eq!(code(&result), 5, "{}", text(&result));
    let err = String::from_utf8_lossy(&result.stderr).into_owned();
    let not_ready = err.lines().find(|l| l.contains("not ready after")).expect("why");
    assert!(not_ready.contains("again") && !not_ready.contains("job"), "{not_ready}");
    assert_eq!(err.matches("again started").count(), 1, "{err}");
    assert!(err.contains(" times, the last time it ended with "), "{err}");
    let lines = err.matches("again | no luck\n").count();
    assert!((1..=5).contains(&lines), "{err}");
    assert!(err.contains("job | the job is done\n"), "a line is one event: {err}");
}

#[test]
fn a_service_is_at_home_where_its_user_is() {
    let dir = scratch("homes");
    std::fs::create_dir_all(dir.join("checks")).expect("a directory");
    let service = |name: &str, user: &str| {
        format!(
            "  {name}:\n    x-bloodhound: {{rootfs: host}}\n    command: [/bin/sh, -c, 'echo \"home of {name}: $$HOME\"']\n{user}"
        )
    };
    let compose = format!(
        "services:\n{}{}{}",
        service("root", ""),
        service("stranger", "    user: \"4711:4711\"\n"),
        service("daemon", "    user: daemon\n")
    );
    std::fs::write(dir.join("compose.yaml"), compose).expect("a file");
    std::fs::write(
        dir.join("bloodhound.yaml"),
        "compose: compose.yaml\nsimulation: {max_time: 2s}\nproperties: []\n",
    )
    .expect("a file");
    let result = bloodhound(&dir, &["run"]);
    let said = text(&result);
    assert!(said.contains("home of stranger: /\n"), "{said}");
    let passwd = std::fs::read_to_string("/etc/passwd").expect("users");
    let home = |name: &str| {
        let line = passwd.lines().find(|l| l.starts_with(&format!("{name}:"))).expect("a user");
        line.split(':').nth(5).expect("a home").to_owned()
    };
    for name in ["root", "daemon"] {
        assert!(said.contains(&format!("home of {name}: {}\n", home(name))), "{said}");
    }
    let inputs = |result: &Output| {
        text(result).lines().find(|l| l.starts_with("inputs: ")).expect("a digest of the inputs").to_owned()
    };
    assert_eq!(inputs(&result), inputs(&bloodhound(&dir, &["run", "--seed", "1"])), "of any seed");
}

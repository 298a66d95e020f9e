//! What a campaign may say: nothing green that judged nothing, and nothing lost, however it ends.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::cli::{bloodhound, code, command, json, text};

/// How long anything may take on the host before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(240);

/// A stack of one service, and a configuration with these lines behind `compose:`.
fn stack(name: &str, program: &str, config: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("verdicts-{name}"));
    let _ignored = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a directory");
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).expect("a file");
    write("service", program);
    write(
        "compose.yaml",
        "services:\n  one:\n    command: [/app/service]\n    volumes: ['./:/app:ro']\n    x-bloodhound: {rootfs: host}\n",
    );
    write("bloodhound.yaml", &format!("compose: compose.yaml\noutput: {{dir: out}}\n{config}"));
    write("no.sh", "#!/bin/sh\necho no\nexit 1\n");
    for script in ["service", "no.sh"] {
        std::fs::set_permissions(dir.join(script), std::fs::Permissions::from_mode(0o755)).expect("a mode");
    }
    dir
}

const SLEEPS: &str = "#!/bin/sh\nwhile :; do sleep 1; done\n";
/// Violated in every seed.
const NEVER: &str = "simulation: {max_time: 5s}\nfaults: {duration: 1s, network: {drop_rate: 0.01}}\nproperties:\n  \
                     - name: never\n    kind: safety\n    check: {type: custom, script: ./no.sh}\n";
/// Holds in every seed.
const STAYS: &str = "simulation: {max_time: 20s}\nfaults: {duration: 5s, network: {drop_rate: 0.01}}\nproperties:\n  \
                     - name: stays\n    kind: safety\n    check: {type: no-crash}\n";

fn junit(path: &Path) -> String {
    let xml = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert!(xml.starts_with("<?xml") && xml.ends_with("</testsuites>\n"), "{xml}");
    xml
}

/// The rule; returns the file.
fn keeps_the_rule(dir: &Path, output: &Output) -> String {
    let xml = junit(&dir.join("out/junit.xml"));
    let bad = xml.contains("<failure") || xml.contains("<error");
    assert_eq!(bad, code(output) != 0, "exit code {}: {xml}\n{}", code(output), text(output));
    xml
}

#[test]
fn operations_at_a_wrong_port_exercise_nothing() {
    let config = "simulation: {max_time: 20s, seeds: 2}\nworkload:\n  driver: http\n  config:\n    target: http://one:9\n    \
                  duration: 5s\n    operations: [{type: put}, {type: get}]\nproperties:\n  - name: linearizable\n    \
                  kind: safety\n    check: {type: linearizability, operations: [put, get]}\n  - name: asked\n    \
                  kind: invariant\n    check: {type: http, endpoint: 'http://one:9/'}\n";
    let dir = stack("wrong-port", SLEEPS, config);
    let result = bloodhound(&dir, &["test"]);
    assert_eq!(code(&result), 4, "{}", text(&result));
    let xml = keeps_the_rule(&dir, &result);
    for part in [
        "not exercised: 0 of ",
        " operations succeeded, first: ",
        " requests had an answer, first: no response",
    ] {
        assert!(text(&result).contains(part), "{part}: {}", text(&result));
        assert!(xml.contains(part), "{part}: {xml}");
    }
    assert!(!text(&result).contains("ok    "), "{}", text(&result));
    let run = bloodhound(&dir, &["run", "--seed", "1"]);
    assert_eq!(code(&run), 4, "{}", text(&run));
    assert!(text(&run).contains("not exercised: linearizable: 0 of "), "{}", text(&run));
}

#[test]
fn a_run_that_is_over_at_once_exercises_nothing() {
    let config = "properties:\n  - name: stays\n    kind: safety\n    check: {type: no-crash}\n";
    let dir = stack("at-once", SLEEPS, config);
    let result = bloodhound(&dir, &["test", "--seeds", "2"]);
    assert_eq!(code(&result), 4, "{}", text(&result));
    assert!(keeps_the_rule(&dir, &result).contains("the run was over as soon as its services were ready"));
}

#[test]
fn a_script_that_does_not_start_judges_nothing() {
    let dir = stack("no-script", SLEEPS, NEVER);
    std::fs::write(dir.join("no.sh"), "#!/nowhere/sh\n").expect("a script");
    let result = bloodhound(&dir, &["test", "--seeds", "1"]);
    assert_eq!(code(&result), 4, "{}", text(&result));
    assert!(keeps_the_rule(&dir, &result).contains("cannot be run"));
}

#[test]
fn a_seed_that_is_unsupported_stops_no_other() {
    // SO_TIMESTAMPING with SOF_TIMESTAMPING_TX_SOFTWARE, of a stream, in about half of all seeds.
    let program = "#!/usr/bin/env python3\nimport os, socket, time\ntime.sleep(2)\nif os.urandom(1)[0] % 2:\n    \
                   socket.socket(socket.AF_INET, socket.SOCK_STREAM).setsockopt(1, 37, 2)\ntime.sleep(1000)\n";
    let dir = stack("some", program, STAYS);
    let result = bloodhound(&dir, &["test", "--seeds", "16", "--format", "json"]);
    assert_eq!(code(&result), 7, "{}", text(&result));
    let xml = keeps_the_rule(&dir, &result);
    let answer = json(&result);
    assert_eq!(answer["seeds_run"], 16);
    let lost = answer["seeds_not_judged"].as_array().expect("a list").len() as u64;
    assert_eq!(answer["seeds_judged"].as_u64().map(|judged| judged + lost), Some(16), "{answer}");
    assert!(lost > 0 && lost < 16, "{answer}");
    assert_eq!(answer["properties"][0]["verdict"], "not judged");
    assert!(xml.contains("SO_TIMESTAMPING") && xml.contains("name=\"seeds\""), "{xml}");
    // In the order of seeds, whichever came first.
    let again = bloodhound(&dir, &["test", "--seeds", "16", "--jobs", "1"]);
    assert_eq!(code(&again), 7);
    assert_eq!(junit(&dir.join("out/junit.xml")), xml);
}

#[test]
fn numbers_that_make_no_campaign_are_refused() {
    let dir = stack("numbers", SLEEPS, STAYS);
    let last = "18446744073709551615";
    for (args, told) in [
        (&["--seeds", "0"][..], "would judge nothing"),
        (&["--first-seed", last, "--seeds", "2"], "at most 1 are left"),
        (&["--first-seed", last], "at most 1 are left"),
        (&["--seeds", "3", "--min-seeds", "4"], "--min-seeds 4"),
        (&["--min-seeds", "0"], "--min-seeds"),
        (&["--coverage-threshold", "120%"], "at most 100%"),
    ] {
        let result = bloodhound(&dir, &[&["test", "--out", "out"], args].concat());
        assert_eq!(code(&result), 2, "{}", text(&result));
        assert!(text(&result).contains(told), "{}", text(&result));
    }
    let result = bloodhound(&dir, &["test", "--first-seed", last, "--seeds", "1"]);
    assert_eq!(code(&result), 0, "{}", text(&result));
    keeps_the_rule(&dir, &result);
    // A report that was good stays so for nobody who comes later.
    std::fs::write(dir.join("bloodhound.yaml"), "compose: nothing.yaml\n").expect("a file");
    let result = bloodhound(&dir, &["test", "--out", "out"]);
    assert_eq!(code(&result), 2, "{}", text(&result));
    keeps_the_rule(&dir, &result);
}

#[test]
fn a_stack_that_does_not_start_has_a_report() {
    let dir = stack("no-start", "#!/bin/sh\necho no configuration\nexit 3\n", STAYS);
    let result = bloodhound(&dir, &["test", "--seeds", "2", "--junit", "reports/one.xml"]);
    assert_eq!(code(&result), 5, "{}", text(&result));
    let xml = keeps_the_rule(&dir, &result);
    assert_eq!(junit(&dir.join("reports/one.xml")), xml);
    assert!(xml.contains("no configuration") && xml.contains("<skipped message=\"not run: "), "{xml}");
    assert!(text(&result).contains("-     stays (safety)"), "{}", text(&result));
}

#[test]
fn fault_coverage_below_the_threshold_fails() {
    let config = STAYS.replace("network: {drop_rate: 0.01}", "process: {pause_probability: 0.000000001}");
    let dir = stack("coverage", SLEEPS, &config);
    let result = bloodhound(&dir, &["test", "--seeds", "1", "--fault-coverage-threshold", "100%"]);
    assert_eq!(code(&result), 3, "{}", text(&result));
    let xml = keeps_the_rule(&dir, &result);
    assert!(xml.contains("0.0% of the configured kinds of faults were injected"), "{xml}");
    let result = bloodhound(&dir, &["test", "--seeds", "1"]);
    assert_eq!(code(&result), 0, "{}", text(&result));
    keeps_the_rule(&dir, &result);
}

#[test]
fn earlier_findings_are_named_and_stay() {
    let dir = stack("earlier", SLEEPS, NEVER);
    let first = bloodhound(&dir, &["test", "--seeds", "2"]);
    assert_eq!(code(&first), 1, "{}", text(&first));
    keeps_the_rule(&dir, &first);
    let record = dir.join("out/findings/seed-0-never/finding.json");
    let before = std::fs::read_to_string(&record).expect("a finding");
    std::fs::write(dir.join("no.sh"), "#!/bin/sh\necho another reason\nexit 2\n").expect("a script");
    let second = bloodhound(&dir, &["test", "--seeds", "1"]);
    let told = "out has 2 findings of earlier campaigns, which stay: seed-0-never, seed-1-never";
    assert!(text(&second).contains(told), "{}", text(&second));
    assert!(text(&second).contains("findings/seed-0-never-2"), "{}", text(&second));
    assert_eq!(std::fs::read_to_string(&record).expect("a finding"), before);
    // The same once more has the same place.
    let third = bloodhound(&dir, &["test", "--seeds", "1"]);
    assert!(text(&third).contains("findings/seed-0-never-2"), "{}", text(&third));
    assert!(!dir.join("out/findings/seed-0-never-3").exists());
}

#[test]
fn findings_that_cannot_be_written_are_in_the_report() {
    let dir = stack("unwritten", SLEEPS, NEVER);
    std::fs::create_dir_all(dir.join("out")).expect("a directory");
    // Nobody makes a directory there, whoever asks.
    std::os::unix::fs::symlink("/proc/self/task", dir.join("out/findings")).expect("a link");
    let result = bloodhound(&dir, &["test", "--seeds", "4", "--jobs", "1"]);
    assert_eq!(code(&result), 1, "{}", text(&result));
    let xml = keeps_the_rule(&dir, &result);
    assert!(text(&result).contains("the finding of seed 0 (never) cannot be written: "), "{}", text(&result));
    assert!(xml.contains("its files could not be written") && xml.contains("<failure"), "{xml}");
    assert!(!text(&result).contains("violated at"), "nothing is announced: {}", text(&result));
}

/// A campaign under way, with what it says.
struct Running {
    child: Child,
    said: BufReader<std::process::ChildStderr>,
    lines: Vec<String>,
}

impl Running {
    fn start(dir: &Path, args: &[&str]) -> Running {
        let mut command = command(dir, args);
        // A signal that whoever runs the tests ignores (nohup(1)) is ignored by a campaign as well, as it should be.
        let default = || {
            for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
                // SAFETY: sets the default action; no memory is involved.
                unsafe { libc::signal(signal, libc::SIG_DFL) };
            }
            Ok(())
        };
        // SAFETY: signal(2) may be called between fork(2) and execve(2) (signal-safety(7)).
        unsafe { command.pre_exec(default) };
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let said = BufReader::new(child.stderr.take().expect("piped"));
        Running { child, said, lines: Vec::new() }
    }

    /// Until a line has this text; false if it ends before.
    fn until(&mut self, text: &str) -> bool {
        loop {
            let mut line = String::new();
            if self.said.read_line(&mut line).expect("text") == 0 {
                return false;
            }
            self.lines.push(line);
            if self.lines.last().is_some_and(|l| l.contains(text)) {
                return true;
            }
        }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a process of ours that has not been waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// The exit code, if it was not killed, and all that was said.
    fn end(mut self) -> (Option<i32>, String) {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            if start.elapsed() > PATIENCE {
                let _ignored = self.child.kill();
                panic!("it does not end: {:?}", self.lines);
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).expect("text");
        if let Some(mut out) = self.child.stdout.take() {
            out.read_to_string(&mut rest).expect("text");
        }
        (status.code(), self.lines.concat() + &rest)
    }
}

/// Everything that was announced is there and whole.
fn nothing_is_missing(dir: &Path, said: &str) {
    for line in said.lines().filter(|l| l.contains(" violated at ")) {
        let (_, path) = line.rsplit_once(": ").expect("a directory");
        let finding = dir.join(path);
        for name in ["decisions.json", "history.jsonl", "trace.txt", "finding.json"] {
            assert!(finding.join(name).exists(), "{line}: {name} is missing\n{said}");
        }
        for name in ["decisions.json", "finding.json"] {
            let bytes = std::fs::read(finding.join(name)).expect("a file");
            serde_json::from_slice::<serde_json::Value>(&bytes)
                .unwrap_or_else(|e| panic!("{line}: {name}: {e}"));
        }
    }
}

#[test]
fn a_second_campaign_in_the_same_place_is_refused() {
    let dir = stack("second", SLEEPS, STAYS);
    let mut first = Running::start(&dir, &["test", "--seeds", "1000000"]);
    assert!(first.until("services ready"), "{:?}", first.lines);
    let pid = first.child.id();
    for args in [&["--seeds", "1"][..], &["--seeds", "1", "--out", "other", "--junit", "out/junit.xml"]] {
        let second = bloodhound(&dir, &[&["test"], args].concat());
        assert_eq!(code(&second), 5, "{}", text(&second));
        assert!(text(&second).contains("is in use by another `bloodhound test`"), "{}", text(&second));
        assert!(text(&second).contains("out"), "{}", text(&second));
        // Told where this host tells of locks at all.
        let told = std::fs::read_to_string("/proc/locks").is_ok_and(|l| l.contains(&format!(" {pid} ")));
        assert!(!told || text(&second).contains(&format!("(process {pid})")), "{}", text(&second));
    }
    first.signal(libc::SIGTERM);
    let (code, said) = first.end();
    assert_eq!(code, Some(130), "{said}");
    assert_eq!(bloodhound(&dir, &["test", "--seeds", "1"]).status.code(), Some(0));
}

#[test]
fn signals_at_any_moment_lose_nothing() {
    let dir = stack("signals", SLEEPS, NEVER);
    let signals = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGKILL];
    // After a line that is said, and some time that is different each time.
    let moments = ["platform", "services ready", "violated at", "violated at"];
    for (number, (moment, signal)) in moments.iter().flat_map(|m| signals.map(|s| (m, s))).enumerate() {
        let _ignored = std::fs::remove_dir_all(dir.join("out"));
        let mut running = Running::start(&dir, &["test", "--seeds", "1000000"]);
        assert!(running.until(moment), "{:?}", running.lines);
        std::thread::sleep(Duration::from_millis(number as u64 * 7 % 40));
        running.signal(signal);
        if signal == libc::SIGTERM {
            // As timeout(1) does: to the program, and to its process group.
            running.signal(signal);
        }
        let (code, said) = running.end();
        nothing_is_missing(&dir, &said);
        let xml = junit(&dir.join("out/junit.xml"));
        assert!(xml.contains("<failure") || xml.contains("<error"), "{xml}");
        if signal == libc::SIGKILL {
            assert_eq!(code, None);
            continue;
        }
        let found = said.contains(" violated at ");
        assert_eq!(code, Some(if found { 1 } else { 130 }), "{said}");
        assert_eq!(xml.contains("<failure"), found, "{xml}");
        assert!(xml.contains("interrupted"), "{xml}");
    }
    // What was killed while it wrote is cleared away by the next.
    let result = bloodhound(&dir, &["test", "--seeds", "1"]);
    assert_eq!(code(&result), 1, "{}", text(&result));
    let left = std::fs::read_dir(dir.join("out/findings")).expect("findings").flatten();
    assert!(left.into_iter().all(|e| !e.file_name().to_string_lossy().starts_with('.')));
}

#[test]
fn a_seed_that_hangs_ends_with_the_timeout() {
    // Ready after a second, and then two processes compute for ever, each of which the other keeps waiting.
    let program = "#!/bin/sh\nsleep 2\ni=0\n(while :; do i=$((i+1)); done) &\nwhile :; do i=$((i+1)); done\n";
    let dir = stack("hangs", program, STAYS);
    let mut hung = false;
    // A slow machine may not have booted the stack when a short time is over: then nothing hangs yet, and the time is too short.
    for timeout in ["1s", "8s", "60s"] {
        let result = bloodhound(&dir, &["test", "--seeds", "3", "--timeout", timeout, "--format", "json"]);
        assert_eq!(code(&result), 4, "{}", text(&result));
        let xml = keeps_the_rule(&dir, &result);
        assert_eq!(json(&result)["seeds_judged"], 0);
        hung = xml.contains("--timeout was over and it did not end");
        if hung {
            break;
        }
    }
    assert!(hung, "no seed hung, or none was said to");
    // The same before anything is ready.
    std::fs::write(dir.join("service"), "#!/usr/bin/env python3\ni = 0\nwhile True: i += 1\n")
        .expect("a file");
    let result = bloodhound(&dir, &["test", "--seeds", "3", "--timeout", "1s"]);
    assert_eq!(code(&result), 4, "{}", text(&result));
    assert!(keeps_the_rule(&dir, &result).contains("0 of 3 seeds were judged when --timeout was over"));
}

#[test]
fn standard_output_that_is_full_is_an_error() {
    let dir = stack("full", SLEEPS, STAYS);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let status = command(&dir, &["test", "--seeds", "1"]).stdout(full).output().expect("it runs");
    assert_eq!(code(&status), 5, "{}", text(&status));
    keeps_the_rule(&dir, &status);
}

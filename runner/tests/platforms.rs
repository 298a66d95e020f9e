//! The platforms as users see them: what `doctor` says of them, which one a command uses and that it says so, that findings
//! record it, and that runs on different platforms are the same run.
//!
//! What needs /dev/kvm is skipped aloud without it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Ran, finish, have, left_out};
use serde_json::Value;

fn bloodhound(dir: &Path, args: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bloodhound"));
    finish(command.current_dir(dir).args(args).env("NO_COLOR", "1"), b"")
}

fn json(ran: &Ran) -> Value {
    let line = ran.stdout.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {ran:#?}"))
}

fn doctor() -> Value {
    json(&bloodhound(Path::new("/"), &["doctor", "--format", "json"]))
}

/// The entry of a platform in the JSON of `doctor`.
fn platform(name: &str) -> Value {
    let all = doctor()["platforms"].as_array().expect("a list").clone();
    all.into_iter().find(|p| p["name"] == name).unwrap_or_else(|| panic!("doctor does not know {name}"))
}

/// The KVM platform if it starts here; otherwise the reason.
fn kvm() -> Result<Value, String> {
    let kvm = platform("kvm");
    match kvm["error"].as_str() {
        None => Ok(kvm),
        Some(error) => Err(error.to_owned()),
    }
}

/// A directory with a small stack.
fn stack(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("platforms-{name}"));
    let _ignored = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a directory");
    let compose = "services:\n  box:\n    command: [/bin/busybox, sh, -c, 'n=0; while [ $$n -lt 40 ]; do n=$$((n+1)); echo $$n; /bin/busybox sleep 0.1; done; exit 3']\n    x-bloodhound: {rootfs: host}\n    restart: \"no\"\n";
    let config = "compose: compose.yaml\nsimulation: {max_time: 20s}\nfaults: {process: {pause_probability: 0.001}}\nproperties:\n  - name: stays up\n    kind: safety\n    check: {type: no-crash}\n";
    std::fs::write(dir.join("compose.yaml"), compose).expect("a file");
    std::fs::write(dir.join("bloodhound.yaml"), config).expect("a file");
    dir
}

/// What every `platform` in JSON has.
fn is_platform(value: &Value, name: &str) {
    assert_eq!(value["name"], name, "{value}");
    assert!(value["traps_rdtsc"].is_boolean() && value["traps_steps"].is_boolean(), "{value}");
    assert!(["faulting", "patched"].contains(&value["cpuid"].as_str().expect("a word")), "{value}");
}

#[test]
fn doctor_tells_of_both_platforms_and_which_one_is_taken() {
    let all = doctor();
    for name in ["ptrace", "kvm"] {
        let one = platform(name);
        if one["error"].is_null() {
            is_platform(&one, name);
            assert!(one["trap_cost_ns"].as_u64() > Some(0), "{one}");
            let missing: Vec<&str> = one["missing"]
                .as_array()
                .expect("a list")
                .iter()
                .filter_map(|m| m["ability"].as_str())
                .collect();
            for ability in ["traps_rdtsc", "traps_steps"] {
                assert_eq!(missing.contains(&ability), one[ability] == false, "{one}");
            }
            assert_eq!(one["usable"], missing.is_empty(), "{one}");
        } else {
            assert_eq!((&one["usable"], &one["trap_cost_ns"]), (&false.into(), &Value::Null), "{one}");
        }
    }
    let taken = all["auto"]["platform"].as_str();
    assert_eq!(taken.is_some(), all["usable"] == true, "{all}");
    assert!(all["auto"]["reason"].as_str().is_some_and(|r| !r.is_empty()), "{all}");
    if let Some(name) = taken {
        assert_eq!(platform(name)["usable"], true, "{all}");
    }
}

#[test]
fn the_platform_is_named_in_every_answer_and_in_the_finding() {
    let dir = stack("named");
    let test = ["test", "--platform", "ptrace", "--seeds", "1", "--out", "out", "--format", "json"];
    let tested = bloodhound(&dir, &test);
    assert_eq!(tested.code, Some(1), "{tested:#?}");
    assert!(tested.stderr.lines().any(|l| l == "bloodhound: platform ptrace"), "{tested:#?}");
    is_platform(&json(&tested)["platform"], "ptrace");
    assert!(json(&tested)["platform"]["trap_cost_ns"].as_u64() > Some(0));

    let finding = json(&tested)["findings"][0]["replay"].as_str().expect("a finding").to_owned();
    let path = dir.join(&finding).join("finding.json");
    let record: Value = serde_json::from_slice(&std::fs::read(&path).expect("a finding")).expect("JSON");
    assert_eq!(record["format"], 5);
    assert_eq!(record["digest_version"], 3);
    assert_eq!(record["boot"], 0);
    is_platform(&record["platform"], "ptrace");
    assert_eq!(record["platform"].get("trap_cost_ns"), None, "findings do not depend on the host's speed");

    let ran = bloodhound(&dir, &["run", "--platform", "ptrace"]);
    assert!(ran.stdout.starts_with("platform: ptrace\nseed 0, from boot 0\n"), "{ran:#?}");
    let replayed = bloodhound(&dir, &["replay", &finding, "--platform", "ptrace", "--format", "json"]);
    assert_eq!(replayed.code, Some(1), "{replayed:#?}");
    is_platform(&json(&replayed)["platform"], "ptrace");
    assert!(!replayed.stderr.contains("warning"), "{replayed:#?}");

    // A finding that was made where rdtsc did not trap: its replay says so.
    let mut lacking = record.clone();
    lacking["platform"] =
        serde_json::json!({"name": "kvm", "traps_rdtsc": false, "cpuid": "patched", "traps_steps": true});
    std::fs::write(&path, lacking.to_string()).expect("a file");
    let replayed = bloodhound(&dir, &["replay", &finding, "--platform", "ptrace"]);
    assert_eq!(replayed.code, Some(1), "{replayed:#?}");
    let warning =
        "warning: the finding was made on the kvm platform of a machine where it does not trap rdtsc:";
    assert!(replayed.stderr.contains(warning), "{replayed:#?}");

    // A finding of an older version is refused with a reason, whatever else is in it.
    let mut old = record;
    old["format"] = 1.into();
    old["platform"] = "ptrace".into();
    std::fs::write(&path, old.to_string()).expect("a file");
    let refused = bloodhound(&dir, &["replay", &finding]);
    assert_eq!(refused.code, Some(2), "{refused:#?}");
    assert!(refused.stderr.contains("the finding has format 1, made by Bloodhound "), "{refused:#?}");
    assert!(refused.stderr.contains("test --first-seed 0 --seeds 1"), "{refused:#?}");
}

#[test]
fn exec_says_what_it_ran_on() {
    for (choice, expected) in [("ptrace", Some("platform: ptrace")), ("auto", None)] {
        let ran = bloodhound(Path::new("/"), &["exec", "--platform", choice, "--summary", "--", "/bin/true"]);
        assert_eq!(ran.code, Some(0), "{ran:#?}");
        let line = ran.stderr.lines().find(|l| l.starts_with("platform: ")).expect("a platform");
        let auto = format!("platform: {}", doctor()["auto"]["platform"].as_str().unwrap_or("none"));
        // Two platforms of about the same speed may change places from one measurement to the next.
        if expected.is_some() || kvm().map_or(true, |k| k["usable"] == false) {
            assert_eq!(line, expected.unwrap_or(&auto));
        }
    }
}

#[test]
fn kvm_is_used_if_it_is_asked_for_or_it_is_said_why_not() {
    let ran = bloodhound(Path::new("/"), &["exec", "--platform", "kvm", "--summary", "--", "/bin/true"]);
    let Ok(kvm) = kvm() else {
        assert_eq!(ran.code, Some(5), "{ran:#?}");
        assert!(ran.stderr.starts_with("bloodhound: the kvm platform cannot start: "), "{ran:#?}");
        assert!(ran.stderr.contains("help: "), "{ran:#?}");
        return;
    };
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    assert!(ran.stderr.contains("platform: kvm"), "{ran:#?}");
    let warning = "warning: the kvm platform does not trap rdtsc on this machine";
    assert_eq!(ran.stderr.contains(warning), kvm["traps_rdtsc"] == false, "{ran:#?}");
}

/// On all platforms that start here: programs, and a stack.
#[test]
fn runs_on_all_platforms_are_one_run() {
    let name = "runs_on_all_platforms_are_one_run";
    if let Err(reason) = kvm() {
        return left_out(name, &format!("needs /dev/kvm: {reason}"));
    }
    if !have(&["busybox"], name) {
        return;
    }
    let script = "i=0; while [ $i -lt 20 ]; do i=$((i+1)); done; ls / > /tmp/l; sleep 1; busybox wc -c < /tmp/l; kill -9 $$";
    let verified = bloodhound(
        Path::new("/"),
        &[
            "verify",
            "--platform",
            "ptrace,kvm",
            "--seed",
            "7",
            "--format",
            "json",
            "--",
            "busybox",
            "sh",
            "-c",
            script,
        ],
    );
    assert_eq!(verified.code, Some(0), "{verified:#?}");
    let result = json(&verified);
    assert_eq!((&result["equal"], &result["end"]), (&true.into(), &"killed by SIGKILL".into()), "{result}");
    is_platform(&result["platforms"][0], "ptrace");
    is_platform(&result["platforms"][1], "kvm");
    let digest = |platform: &str| {
        let ran = bloodhound(
            Path::new("/"),
            &[
                "exec",
                "--platform",
                platform,
                "--seed",
                "7",
                "--summary",
                "--",
                "busybox",
                "sh",
                "-c",
                script,
            ],
        );
        ran.digest().expect("a digest").to_owned()
    };
    let expected = format!("digest: {}", result["digest"].as_str().expect("a digest"));
    assert_eq!([digest("ptrace"), digest("kvm")], [expected.clone(), expected]);

    // The dynamic loader of glibc reads the time-stamp counter, and python does much else.
    let python = "import hashlib, threading, time; t = threading.Thread(target=time.sleep, args=(0.1,)); t.start(); t.join(); \
                  print(hashlib.sha256(b'x' * 100000).hexdigest(), time.time())";
    let verify = ["verify", "--platform", "ptrace,kvm", "--"];
    let ls = &["ls", "-l", "/usr"][..];
    let python = &["python3", "-c", python][..];
    let there = have(&["python3"], "python on all platforms");
    for program in if there { vec![ls, python] } else { vec![ls] } {
        let verified = bloodhound(Path::new("/"), &[&verify[..], program].concat());
        assert_eq!(verified.code, Some(0), "{program:?}: {verified:#?}");
    }

    let dir = stack("verified");
    let verified = bloodhound(&dir, &["verify", "--platform", "ptrace,kvm"]);
    assert_eq!(verified.code, Some(0), "{verified:#?}");
    assert!(
        verified.stdout.starts_with("4 runs of seed 0 are equal\nplatform: ptrace, kvm"),
        "{verified:#?}"
    );
}

#[test]
fn verify_wants_something_to_compare_and_no_options_for_nothing() {
    let dir = stack("usage");
    for (args, said) in [
        (&["--platform", "ptrace", "--times", "1"][..], "nothing to be compared with"),
        (&["--platform", "ptrace,ptrace", "--times", "1"], "nothing to be compared with"),
        (&["--platform", "ptrace,xen"], "invalid value 'xen'"),
        (&["--read", "/tmp"], "<PROGRAM>"),
        (&["--env", "A=b"], "<PROGRAM>"),
        (&["--config", "bloodhound.yaml", "--", "/bin/true"], "cannot be used with"),
    ] {
        let ran = bloodhound(&dir, &[&["verify"], args].concat());
        assert_eq!(ran.code, Some(2), "{args:?}: {ran:#?}");
        assert!(ran.stderr.contains(said), "{args:?}: {ran:#?}");
    }
}

#[test]
fn help_and_completions_know_the_platforms() {
    for command in ["test", "run", "replay", "verify", "exec"] {
        let help = bloodhound(Path::new("/"), &[command, "-h"]).stdout;
        // Lines are broken where a long option of the command makes it so.
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        let option = words.split("--platform").nth(1).unwrap_or_else(|| panic!("{command}: {help}"));
        let option = option.split(" --").next().unwrap_or_default();
        assert!(option.contains("[default: auto] [possible values: auto, ptrace, kvm]"), "{command}: {help}");
    }
    for shell in ["bash", "zsh", "fish"] {
        let script = bloodhound(Path::new("/"), &["completions", shell]).stdout;
        assert!(script.contains("ptrace"), "{shell}: the values are completed as well");
    }
}

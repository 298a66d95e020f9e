//! Programs that wait for something by computing, without any system call, run to their end as they do natively, and each time in the
//! same way; nothing is printed twice. A service that does it can be found, replayed and verified.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // host side

mod common;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Ran, exec_on, finish, have};

/// Runs of each program on ptrace.
const RUNS: usize = 5;
/// Runs of each program on KVM.
const RUNS_ON_KVM: usize = 2;

fn scratch() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("computing");
    std::fs::create_dir_all(&dir).expect("a directory");
    dir
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/computing").join(name)
}

fn compiled(name: &str) -> PathBuf {
    let program = scratch().join(name);
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-pthread", "-o"]).arg(&program).arg(data(&format!("{name}.c")));
    let ran = finish(&mut compiler, b"");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    program
}

/// Runs a program natively, and then many times on each platform that there is: the same output and the same digest. What programs say
/// on standard error is not the same natively: how often they went round.
fn runs_as_natively(program: &[OsString]) -> Ran {
    as_natively(program, &[], (RUNS, RUNS_ON_KVM, "100ms"))
}

fn as_natively(
    program: &[OsString],
    options: &[&str],
    (runs, runs_on_kvm, limit): (usize, usize, &str),
) -> Ran {
    let options = [options, &["--summary", "--compute-limit", limit]].concat();
    let native = finish(Command::new(&program[0]).args(&program[1..]), b"");
    let mut platforms = vec![(Some("ptrace"), runs)];
    if !bloodhound_platform_tests::without_kvm("computing on kvm") {
        platforms.push((Some("kvm"), runs_on_kvm));
    }
    let mut first: Option<Ran> = None;
    for (platform, runs) in platforms {
        for _ in 0..runs {
            let ran = finish(&mut exec_on(platform, &options, program), b"");
            assert_eq!(
                (ran.code, &ran.stdout),
                (native.code, &native.stdout),
                "{platform:?}: {}",
                ran.stderr
            );
            match &first {
                // What the host's clock shows does not come again.
                Some(first) if !ran.rdtsc_leaks() => {
                    assert_eq!(ran.determined(), first.determined(), "{platform:?}")
                }
                _ => first = Some(ran),
            }
        }
    }
    first.expect("it was run")
}

#[test]
fn a_thread_that_waits_on_a_plain_variable() {
    runs_as_natively(&[compiled("plain").into()]);
}

#[test]
fn a_thread_that_waits_on_an_atomic_variable() {
    runs_as_natively(&[compiled("atomic").into()]);
}

#[test]
fn a_program_that_counts_until_its_alarm() {
    let ran = runs_as_natively(&[compiled("alarm").into()]);
    // The clock goes to the alarm, and no further.
    let time = ran.summary("virtual_time_ns: ").and_then(|line| line.rsplit(' ').next()?.parse().ok());
    assert!(time.is_some_and(|ns: u64| (1_000_000_000..1_100_000_000).contains(&ns)), "{}", ran.stderr);
}

#[test]
fn two_waits_one_after_the_other_print_once() {
    let ran = runs_as_natively(&[compiled("twice").into()]);
    assert_eq!(ran.stdout, "first\nsecond\n");
}

#[test]
fn a_thread_that_waits_without_a_hint_to_the_processor() {
    runs_as_natively(&[compiled("no_pause").into()]);
}

#[test]
fn a_wait_for_a_thread_that_computes_itself() {
    as_natively(&[compiled("both").into()], &[], (2, 2, "1s"));
}

#[test]
fn a_long_computation_keeps_its_time() {
    let ran = as_natively(&[compiled("long").into()], &[], (1, 1, "1s"));
    // A few preemptions, and the clock does not go to the end of the run.
    let time = ran.summary("virtual_time_ns: ").and_then(|line| line.rsplit(' ').next()?.parse().ok());
    assert!(time.is_some_and(|ns: u64| ns < 1_000_000_000), "{}", ran.stderr);
}

#[test]
fn an_interpreter_that_waits_for_a_flag() {
    if have(&["python3"], "an interpreter that computes") {
        as_natively(&["/usr/bin/python3".into(), data("wait.py").into()], &[], (2, 2, "300ms"));
    }
}

#[test]
fn goroutines_that_wait_for_each_other() {
    if !have(&["go"], "goroutines that compute") {
        return;
    }
    let program = scratch().join("wait-go");
    let mut compiler = Command::new("go");
    compiler.arg("build").arg("-o").arg(&program).arg(data("go/wait.go"));
    compiler.env("GOCACHE", scratch().join("go-cache"));
    let ran = finish(&mut compiler, b"");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    for (how, threads) in [("atomic", "1"), ("atomic", "4"), ("plain", "2"), ("idle", "2")] {
        let threads = format!("GOMAXPROCS={threads}");
        let program = [program.clone().into(), how.into()];
        // Not on kvm: on one that is done in software a pass costs so much that the run is given up, or takes a minute.
        as_natively(&program, &["--env", &threads], (2, 0, "100ms"));
    }
}

/// Runs a program that never ends on each platform; what it is told.
fn hangs(argument: Option<&str>, options: &[&str]) -> Vec<String> {
    let program: Vec<OsString> =
        [Some(compiled("endless").into()), argument.map(OsString::from)].into_iter().flatten().collect();
    let mut platforms = vec![Some("ptrace")];
    if !bloodhound_platform_tests::without_kvm("hangs on kvm") {
        platforms.push(Some("kvm"));
    }
    let run = |platform| {
        let options = [&["--compute-limit", "100ms"], options].concat();
        let ran = finish(&mut exec_on(platform, &options, &program), b"");
        assert_eq!(ran.code, Some(1), "{platform:?}: {}", ran.stderr);
        ran.stderr
    };
    platforms.into_iter().map(run).collect()
}

#[test]
fn a_program_that_computes_for_ever_hangs() {
    for text in hangs(Some("alone"), &[]) {
        assert!(
            text.contains("nothing can happen any more") && text.contains("#0 compute_for_ever"),
            "{text}"
        );
    }
}

#[test]
fn a_thread_that_computes_for_ever_beside_others_hangs() {
    for text in hangs(None, &["--max-time", "20s"]) {
        assert!(text.contains("had not come to an end") && text.contains("#0 compute_for_ever"), "{text}");
    }
}

#[test]
fn verify_gives_the_loops_of_its_first_run_to_the_others() {
    let mut verify = Command::new(env!("CARGO_BIN_EXE_bloodhound"));
    verify.args(["verify", "--platform", "ptrace", "--compute-limit", "100ms", "--"]).arg(compiled("twice"));
    let ran = finish(&mut verify, b"");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("counted_loops: 2, which the first run"), "{}", ran.stdout);
}

#[test]
fn code_that_a_program_makes_while_it_runs() {
    if !have(&["java", "javac"], "compiled code that computes") {
        return;
    }
    let mut compiler = Command::new("javac");
    compiler.arg("-d").arg(scratch()).arg(data("java/Wait.java"));
    let ran = finish(&mut compiler, b"");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    // A Java machine starts slowly on the platforms; once is enough, and its code is elsewhere on each.
    let program: Vec<OsString> = vec!["/usr/bin/java".into(), "-cp".into(), scratch().into(), "Wait".into()];
    let read = scratch().display().to_string();
    let ran =
        finish(&mut exec_on(common::platform().as_deref(), &["--summary", "--read", &read], &program), b"");
    assert_eq!((ran.code, &*ran.stdout), (Some(0), "seen\ndone\n"), "{}", ran.stderr);
}

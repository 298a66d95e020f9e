//! Programs that wait for something by computing, without any system call, run to their end as they do natively, and each time in the
//! same way; nothing is printed twice. A service that does it can be found, replayed and verified.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::common::{Ran, compile, exec_on, finish, have};

/// Runs of each program on each platform: each second one on a loaded machine.
const RUNS: usize = 8;
/// The same of programs that take seconds.
const RUNS_OF_SLOW: usize = 2;

/// All processors of the host computing for something else, until this is dropped.
struct Load(Arc<AtomicBool>);

impl Load {
    fn new() -> Load {
        let over = Arc::<AtomicBool>::default();
        for _ in 0..std::thread::available_parallelism().map_or(2, usize::from) {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                while !over.load(Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        Load(over)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// How often to run a program that is run so often as a rule: BLOODHOUND_TEST_RUNS says it for all.
fn runs(as_a_rule: usize) -> usize {
    let text = std::env::var("BLOODHOUND_TEST_RUNS").ok();
    text.map_or(as_a_rule, |text| text.parse().expect("BLOODHOUND_TEST_RUNS is a number"))
}

fn scratch() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("computing");
    std::fs::create_dir_all(&dir).expect("a directory");
    dir
}

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/computing").join(name)
}

fn compiled(name: &str) -> PathBuf {
    compiled_with(name, name, &[])
}

fn compiled_with(name: &str, source: &str, options: &[&str]) -> PathBuf {
    let program = scratch().join(name);
    compile(&data(&format!("{source}.c")), &program, &[&["-O2"], options].concat());
    program
}

/// Runs a program natively, and then many times on each platform that there is: the same output and the same digest. What programs say
/// on standard error is not the same natively: how often they went round.
fn runs_as_natively(program: &[OsString]) -> Ran {
    as_natively(program, &[], RUNS, "100ms")
}

fn as_natively(program: &[OsString], options: &[&str], times: usize, limit: &str) -> Ran {
    let native = finish(Command::new(&program[0]).args(&program[1..]), b"");
    printing((native.code, &native.stdout), program, options, times, limit)
}

/// Runs a program so many times on each platform that there is: this exit code, this output and the same digest.
fn printing(
    expected: (Option<i32>, &str),
    program: &[OsString],
    options: &[&str],
    times: usize,
    limit: &str,
) -> Ran {
    let options = [options, &["--summary", "--compute-limit", limit]].concat();
    let mut platforms = vec!["ptrace"];
    if !bloodhound_platform_tests::without_kvm("computing on kvm") {
        platforms.push("kvm");
    }
    let mut first: Option<Ran> = None;
    for platform in platforms {
        for time in 0..runs(times) {
            let _load = (time % 2 == 1).then(Load::new);
            let ran = finish(&mut exec_on(Some(platform), &options, program), b"");
            assert_eq!((ran.code, ran.stdout.as_str()), expected, "{platform}: {}", ran.stderr);
            match &first {
                // What the host's clock shows does not come again.
                Some(first) if !ran.rdtsc_leaks() => {
                    assert_eq!(ran.determined(), first.determined(), "{platform}, run {time}")
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
    runs_as_natively(&[compiled_with("atomic-pause", "atomic", &["-DPAUSE"]).into()]);
}

#[test]
fn a_program_that_counts_until_its_alarm() {
    let ran = runs_as_natively(&[compiled("alarm").into()]);
    // The clock goes to the alarm, and no further.
    let time = ran.summary("virtual_time_ns: ").and_then(|line| line.rsplit(' ').next()?.parse().ok());
    assert!(time.is_some_and(|ns: u64| (1_000_000_000..1_100_000_000).contains(&ns)), "{}", ran.stderr);
}

#[test]
fn a_program_that_counts_until_it_has_used_a_second_itself() {
    // Natively this is not sure: a virtual machine that its host keeps waiting counts the ticks of which it hears, and another time beside.
    let says = "one second of its own\nlittle of the kernel's\n";
    printing((Some(0), says), &[compiled("user_time").into()], &[], RUNS_OF_SLOW, "100ms");
}

#[test]
fn two_waits_one_after_the_other_print_once() {
    let ran = runs_as_natively(&[compiled("twice").into()]);
    assert_eq!(ran.stdout, "first\nsecond\n");
}

#[test]
fn a_thread_that_waits_without_a_hint_to_the_processor() {
    runs_as_natively(&[compiled("atomic").into()]);
}

#[test]
fn a_wait_for_a_thread_that_computes_itself() {
    // In some other seeds the thread that waits gets turns so long that it comes near twenty times the limit.
    as_natively(&[compiled("both").into()], &["--seed", "1"], RUNS_OF_SLOW, "100ms");
}

#[test]
fn a_long_computation_keeps_its_time() {
    let ran = as_natively(&[compiled("long").into()], &[], RUNS_OF_SLOW, "1s");
    // A few preemptions, and the clock does not go to the end of the run.
    let time = ran.summary("virtual_time_ns: ").and_then(|line| line.rsplit(' ').next()?.parse().ok());
    assert!(time.is_some_and(|ns: u64| ns < 1_000_000_000), "{}", ran.stderr);
}

#[test]
fn an_interpreter_that_waits_for_a_flag() {
    if have(&["python3"], "an interpreter that computes") {
        as_natively(&["/usr/bin/python3".into(), data("wait.py").into()], &[], RUNS_OF_SLOW, "300ms");
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
        as_natively(&program, &["--env", &threads], RUNS / 4, "100ms");
    }
}

/// Runs a program that never ends on each platform; what it is told.
fn hangs(argument: Option<&str>, options: &[&str]) -> Vec<String> {
    // Tests compile at the same time.
    let program = compiled_with(&format!("endless-{}", argument.unwrap_or("beside")), "endless", &[]);
    let program: Vec<OsString> =
        [Some(program.into()), argument.map(OsString::from)].into_iter().flatten().collect();
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
    verify.args(["verify", "--platform", "ptrace", "--compute-limit", "100ms", "--"]).arg(compiled_with(
        "twice-verified",
        "twice",
        &[],
    ));
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
    let program: Vec<OsString> = vec!["/usr/bin/java".into(), "-cp".into(), scratch().into(), "Wait".into()];
    let read = scratch().display().to_string();
    let ran = as_natively(&program, &["--read", &read], 2, "1s");
    assert_eq!(ran.stdout, "seen\ndone\n");
}

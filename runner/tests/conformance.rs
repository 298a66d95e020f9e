//! The programs of conformance/, which hold natively, hold under `bloodhound exec` as well: every check is ok but those of
//! conformance-known-failures.txt, which must fail, two runs have one digest, and so has a run with the standing tests (platform state dropped, sleepers woken for nothing, the world
//! cloned every few steps), at several rhythms (`cargo xtask long conformance` runs all of them with each build), and one on each platform in which every known block of every program and library is observed,
//! as code coverage does it. BLOODHOUND_TEST_PLATFORM chooses the platform; on another than ptrace the
//! digests must be those of ptrace too, where that is to be had.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock};

use crate::common::{
    Ran, emulated_processor, exec, exec_on, finish, have, in_parallel, left_out, platform, repository, say,
    seeds_or,
};

/// Programs that print no checks: `nondet` has a test of its own, `tokio-server` serves until it is ended.
const OTHERS: [&str; 2] = ["nondet", "tokio-server"];
/// Every how many steps sleepers are woken; cloning and dropping of state follow at multiples. Coprime, so that between
/// them they come between most pairs of steps.
const TORMENTS: [&str; 4] = ["1", "3", "5", "16"];
/// How many of them each build of a program has, where `cargo xtask long` does not ask for all: the static one has others than the dynamic
/// one, so that each program meets each rhythm.
const TORMENTS_OF_BUILD: u64 = 2;

fn is_dynamic(program: &Path) -> bool {
    program.components().any(|part| part.as_os_str() == "dynamic")
}

/// The rhythms that a build of a program has.
fn torments(program: &Path) -> impl Iterator<Item = &'static str> {
    let first = usize::from(is_dynamic(program));
    let order = [first, first + 2, 1 - first, 3 - first];
    order.into_iter().map(|n| TORMENTS[n]).take(seeds_or(TORMENTS_OF_BUILD).max(TORMENTS_OF_BUILD) as usize)
}

/// Builds the programs; `None`, said aloud, without a C compiler.
fn programs() -> Option<PathBuf> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        if !have(&["gcc"], "the conformance programs") {
            return None;
        }
        let root = repository().join("conformance");
        let built = Command::new("sh").arg(root.join("build.sh")).output().expect("sh");
        assert!(built.status.success(), "build.sh: {}", String::from_utf8_lossy(&built.stderr));
        Some(root.join("bin"))
    };
    BUILT.get_or_init(build).clone()
}

/// Tells programs of a KVM that is done in software, or of a processor that is, which do not run all instructions as a
/// processor does.
fn excuse() -> &'static [&'static str] {
    static EXCUSE: OnceLock<&[&str]> = OnceLock::new();
    EXCUSE.get_or_init(|| {
        if emulated_processor() {
            return &["-e", "EMULATED_PROCESSOR=1"];
        }
        let leaks = finish(&mut exec(&[], &["true".into()]), b"").rdtsc_leaks();
        if leaks { &["-e", "SOFTWARE_KVM=1"] } else { &[] }
    })
}

fn run(options: &[&str], program: &PathBuf) -> Ran {
    finish(&mut exec(&[options, excuse()].concat(), &[program.into()]), b"")
}

/// The checks of each program that are known to fail.
fn known_failures() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let list = include_str!("conformance-known-failures.txt");
    let mut known: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for line in list.lines().filter(|l| !l.starts_with('#')) {
        let (program, check) = line.split_once(": ").expect("PROGRAM: CHECK");
        known.entry(program).or_default().insert(check);
    }
    known
}

/// What is wrong with the checks of a run, of which `known` must fail.
fn judge_checks(stdout: &str, code: Option<i32>, known: &BTreeSet<&str>) -> Result<(), String> {
    let checks = |kind: &str| -> BTreeSet<&str> {
        let lines = stdout.lines().filter_map(|line| line.strip_prefix(kind));
        lines.map(|rest| rest.split_once(" - ").map_or(rest, |(_, text)| text)).collect()
    };
    let (failed, held) = (checks("not ok "), checks("ok "));
    let expected = Some(i32::from(!known.is_empty()));
    let all_there = stdout.contains("\n1..");
    if failed == *known && code == expected && all_there {
        return Ok(());
    }
    let mut wrong = vec![format!("exit {code:?}{}", if all_there { "" } else { ", no plan at the end" })];
    wrong.extend(failed.difference(known).map(|check| format!("not ok: {check}")));
    for check in known.difference(&failed) {
        let what = if held.contains(check) { "holds" } else { "did not run" };
        wrong.push(format!("known failure {what}, take it out of conformance-known-failures.txt: {check}"));
    }
    wrong.extend(stdout.lines().filter(|line| line.starts_with('#')).map(str::to_owned));
    Err(wrong.join("\n"))
}

#[test]
fn known_failures_must_fail_and_nothing_else() {
    let known = BTreeSet::from(["two"]);
    let both = "ok 1 - one\nnot ok 2 - two\n# why\n1..2\n";
    assert_eq!(judge_checks(both, Some(1), &known), Ok(()));
    assert!(judge_checks(both, Some(1), &BTreeSet::new()).is_err_and(|e| e.contains("not ok: two")));
    let held = judge_checks("ok 1 - one\nok 2 - two\n1..2\n", Some(0), &known);
    assert!(held.is_err_and(|e| e.contains("known failure holds")));
    let cut = judge_checks("ok 1 - one\n", Some(98), &known);
    assert!(cut.is_err_and(|e| e.contains("no plan") && e.contains("did not run")));
    assert_eq!(judge_checks("ok 1 - one\n1..1\n", Some(0), &BTreeSet::new()), Ok(()));
    assert!(judge_checks("ok 1 - one\n1..1\n", Some(1), &BTreeSet::new()).is_err());
}

/// Whether this machine has a platform, and whether that traps all it must.
fn platform_is_there(name: &str) -> (bool, bool) {
    let ran = finish(&mut exec_on(Some(name), &["--summary"], &["true".into()]), b"");
    (ran.code == Some(0), !ran.rdtsc_leaks())
}

/// On which platforms programs are observed: on both, if both are there and none is asked for.
fn observing_platforms() -> &'static [Option<&'static str>] {
    static PLATFORMS: OnceLock<Vec<Option<&str>>> = OnceLock::new();
    PLATFORMS.get_or_init(|| match platform() {
        Some(_) => vec![platform().map(|name| &*name.leak())],
        None => {
            ["ptrace", "kvm"].into_iter().filter(|n| platform_is_there(n) == (true, true)).map(Some).collect()
        }
    })
}

/// Whether there is a KVM that does not trap all it must, and no platform is asked for: what programs do on it is compared with nothing
/// but what they do on it when they are observed.
pub fn odd_kvm() -> bool {
    static ODD: OnceLock<bool> = OnceLock::new();
    *ODD.get_or_init(|| platform().is_none() && platform_is_there("kvm") == (true, false))
}

/// Whether a build of a program runs on such a KVM in CI: dynamic ones, a third of them, chosen by their names.
fn on_odd_kvm(program: &Path) -> bool {
    let name = program.file_name().unwrap_or_default().as_encoded_bytes();
    is_dynamic(program) && name.iter().fold(0, |sum: u32, byte| sum + u32::from(*byte)) % 3 == 0
}

/// Runs a program in all ways; the platform that it ran on, or what is wrong.
fn judge(program: &PathBuf, known: &BTreeSet<&str>) -> Result<String, String> {
    let first = run(&["--summary"], program);
    judge_checks(&first.stdout, first.code, known).map_err(|e| format!("{e}\n{}", first.stderr))?;
    first.digest().ok_or("no digest")?;
    let same = |how: &str, again: &Ran| match again.determined() == first.determined() {
        true => Ok(()),
        false => Err(format!("{how}: {}", difference(&first, again))),
    };
    same("the second run", &run(&["--summary"], program))?;
    // Looks at loops are steps, and QEMU's TCG steps over `pause` and the next instruction at once: where a page fault comes in
    // between shows.
    let odd_steps = emulated_processor() && program.ends_with("spins");
    if odd_steps {
        left_out("spins under stress", "this processor does not step over pause alone");
    }
    // A blocked call that looks at the wrong thing ends by a wake-up for nothing, which stops the run by an assertion.
    if !known.is_empty() {
        say("conformance: a program with known failures is not stressed");
    }
    for every in torments(program).filter(|_| !odd_steps && known.is_empty()) {
        same(&format!("--stress {every}"), &run(&["--summary", "--stress", every], program))?;
    }
    for platform in observing_platforms() {
        let options = [&["--summary", "--observe", "blocks"], excuse()].concat();
        let observed = finish(&mut exec_on(*platform, &options, &[program.into()]), b"");
        same(&format!("observed on {platform:?}"), &observed)?;
        let reached = observed.summary("observed: ").and_then(|line| line.split(' ').nth(1)?.parse().ok());
        if reached.is_none_or(|reached: u64| reached < 100) {
            return Err(format!("nearly nothing was observed: {}", observed.stderr));
        }
    }
    // A trap costs several times as much there, so most builds are left to `cargo xtask long`.
    if odd_kvm() && (on_odd_kvm(program) || seeds_or(TORMENTS_OF_BUILD) > TORMENTS_OF_BUILD) {
        let on_kvm = |how: &[&str]| {
            let options = [&["--summary", "-e", "SOFTWARE_KVM=1"], how].concat();
            finish(&mut exec_on(Some("kvm"), &options, &[program.into()]), b"")
        };
        let (plain, observed) = (on_kvm(&[]), on_kvm(&["--observe", "blocks"]));
        if plain.determined() != observed.determined() || plain.digest().is_none() {
            return Err(format!("observed on this kvm: {}", difference(&plain, &observed)));
        }
    }
    if platform().is_some_and(|name| name != "ptrace") {
        let options = [&["--summary"], excuse()].concat();
        let ptrace = finish(&mut exec_on(Some("ptrace"), &options, &[program.into()]), b"");
        // Exit code 5: there is no ptrace here.
        if ptrace.code != Some(5) {
            same("on ptrace", &ptrace)?;
        }
    }
    Ok(first.summary("platform: ").unwrap_or("platform: not told").to_owned())
}

/// The first line in which two runs differ, and the ends of both.
fn difference(first: &Ran, again: &Ran) -> String {
    let mut lines = first.stdout.lines().zip(again.stdout.lines());
    let line = lines.find(|(one, other)| one != other);
    let line = line.map_or(String::new(), |(one, other)| format!("{one:?} became {other:?}\n"));
    let end = |ran: &Ran| format!("exit {:?}, {:?}", ran.code, ran.determined().2);
    format!("{line}{}, not {}\n{}", end(again), end(first), again.stderr)
}

#[test]
fn the_conformance_programs_hold() {
    let Some(bin) = programs() else { return };
    let mut all = Vec::new();
    for kind in ["static", "dynamic"] {
        let listing = std::fs::read_dir(bin.join(kind)).expect("bin");
        let names = listing.map(|e| e.expect("an entry").file_name().into_string().expect("a name"));
        let mut names: Vec<String> =
            names.filter(|n| !OTHERS.contains(&n.as_str()) && !n.contains('.')).collect();
        names.sort();
        all.extend(names.into_iter().map(|name| format!("{kind}/{name}")));
    }
    assert!(all.len() >= 30, "programs are missing: {all:?}");
    if odd_kvm() && seeds_or(TORMENTS_OF_BUILD) <= TORMENTS_OF_BUILD {
        say(
            "conformance: static builds and two thirds of the dynamic ones are left out on this kvm, cargo xtask long conformance runs them there",
        );
    }
    let (known, none) = (known_failures(), BTreeSet::new());
    for program in known.keys() {
        assert!(all.contains(&format!("static/{program}")), "known failures of no program: {program}");
    }
    let wrong = Mutex::new(Vec::new());
    let ran = Mutex::new(BTreeMap::<String, usize>::new());
    in_parallel(&all, |name| {
        let program = name.rsplit('/').next().expect("a name");
        match judge(&bin.join(name), known.get(program).unwrap_or(&none)) {
            Ok(platform) => *ran.lock().expect("no panic").entry(platform).or_default() += 1,
            Err(what) => wrong.lock().expect("no panic").push(format!("{name}: {what}")),
        }
    });
    for (platform, count) in ran.into_inner().expect("no panic") {
        say(&format!("conformance: {count} of {} programs hold on {platform}", all.len()));
    }
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// Runs on one processor only.
fn on_cpu(cpu: usize, options: &[&str], program: &PathBuf) -> Ran {
    let mut command = exec(options, &[program.into()]);
    let pin = move || {
        // SAFETY: a cpu_set_t is a plain bit array, for which zeroes are valid; CPU_SET stays within it; the call reads it.
        let result = unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
        };
        if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    };
    // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(pin) };
    finish(&mut command, b"")
}

/// The processors that this process may use, the first and the last of them.
fn two_cpus() -> (usize, usize) {
    // SAFETY: as in `on_cpu`; the call fills the set.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        set
    };
    // SAFETY: CPU_ISSET reads within the set.
    let mut cpus = (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) });
    let first = cpus.next().unwrap_or(0);
    (first, cpus.next_back().unwrap_or(first))
}

fn lines<'a>(ran: &'a Ran, start: &str) -> Vec<&'a str> {
    ran.stdout.lines().filter(|line| line.starts_with(start)).collect()
}

/// A program that shows what differs between runs of an ordinary system: threads racing on a counter, time, ids, random
/// bytes, rdtsc, cpuid, addresses, directory order, what old stack frames left.
#[test]
fn nothing_differs_between_runs_with_one_seed() {
    let Some(bin) = programs() else { return };
    let (first_cpu, last_cpu) = two_cpus();
    for kind in ["static", "dynamic"] {
        let program = bin.join(kind).join("nondet");
        let seeded = |seed: &'static str| ["--summary", "--seed", seed];
        let one = on_cpu(first_cpu, &seeded("1"), &program);
        assert_eq!(one.code, Some(0), "{kind}: {}", one.stderr);
        assert!(one.digest().is_some());
        let other = on_cpu(last_cpu, &seeded("1"), &program);
        assert_eq!(one.determined(), other.determined(), "{kind}: on another processor");
        for every in TORMENTS {
            let stressed = on_cpu(first_cpu, &["--summary", "--seed", "1", "--stress", every], &program);
            assert_eq!(one.determined(), stressed.determined(), "{kind}: --stress {every}");
        }
        let two = on_cpu(first_cpu, &seeded("2"), &program);
        assert_ne!(one.digest(), two.digest());
        for varies in ["counter", "children", "urandom", "getrandom", "AT_RANDOM", "mkstemp", "stack"] {
            assert_ne!(
                lines(&one, varies),
                lines(&two, varies),
                "{kind}: {varies} is the same for two seeds"
            );
        }
        for constant in ["cpuid", "pid", "uname", "cpu "] {
            assert!(!lines(&one, constant).is_empty(), "{kind}: no line {constant}");
            assert_eq!(
                lines(&one, constant),
                lines(&two, constant),
                "{kind}: {constant} depends on the seed"
            );
        }
    }
}

/// Which task stored its vector registers over whose depends on who ran when: seeds differ in it.
#[test]
fn vector_registers_survive_in_every_seed() {
    let Some(bin) = programs() else { return };
    let seeds: Vec<String> = (0..12).map(|seed| seed.to_string()).collect();
    in_parallel(&seeds, |seed| {
        let ran = run(&["--seed", seed], &bin.join("static/vectors"));
        assert_eq!(ran.code, Some(0), "seed {seed}: {}\n{}", ran.stdout, ran.stderr);
    });
}

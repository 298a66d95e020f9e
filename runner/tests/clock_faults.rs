//! Faults of clocks, as programs see them: jumps, drift, skew and leap seconds, what they do to deadlines, and a bug that only they show.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::common::{
    Ran, command_on, compile, exec, exec_on, finish, have, lines, put, repository, run_in, scratch,
};

/// A directory with a program of `data/clock`; `None` without a compiler.
fn built(name: &str, program: &str, flags: &[&str]) -> Option<PathBuf> {
    if !have(&["cc"], "programs that look at clocks") {
        return None;
    }
    let dir = scratch(&format!("clock-{name}"));
    let source = repository().join(format!("runner/tests/data/clock/{program}.c"));
    compile(&source, &dir.join("program"), &[&["-O1"], flags].concat());
    Some(dir)
}

fn service(name: &str, argument: &str) -> String {
    format!(
        "  {name}:\n    command: [/app/program, {argument}]\n    volumes: ['./:/app:ro']\n    x-bloodhound: {{rootfs: host}}\n"
    )
}

/// Two services that tell each other what their clocks show, with these faults of clocks.
fn pair(name: &str, faults: &str) -> Option<PathBuf> {
    let dir = built(name, "pair", &[])?;
    put(&dir, "compose.yaml", &format!("services:\n{}{}", service("one", "two"), service("two", "one")));
    put(
        &dir,
        "bloodhound.yaml",
        &format!(
            "compose: compose.yaml\noutput: {{dir: out}}\nsimulation: {{max_time: 30s, clock_spread: 0s}}\n\
             faults:\n  swarm: false\n  duration: 20s\n  clock: {faults}\n\
             properties:\n  - {{name: runs, kind: safety, check: {{type: no-crash}}}}\n  \
             - {{name: goes-on, kind: liveness, timeout: 5s, check: {{type: custom, script: ./later.sh}}}}\n"
        ),
    );
    // The run goes on for a while after the heal.
    put(&dir, "later.sh", "#!/bin/sh\nsleep 3\n");
    std::fs::set_permissions(dir.join("later.sh"), std::fs::Permissions::from_mode(0o755)).expect("a mode");
    Some(dir)
}

/// What the services say of how far they are apart, us: CLOCK_MONOTONIC and CLOCK_REALTIME.
fn apart(ran: &Ran, service: &str) -> Vec<(i64, i64)> {
    let said = lines(ran, service).into_iter().filter_map(|line| line.strip_prefix("apart "));
    let numbers = |line: &str| {
        let mut words = line.split(' ').map(|word| word.parse().expect("a number"));
        (words.next().expect("one"), words.next().expect("two"))
    };
    said.map(|line| numbers(line.trim_end_matches(" us"))).collect()
}

/// How far the wall clock of a service was set, ms.
fn steps(ran: &Ran, service: &str) -> Vec<i64> {
    let said = lines(ran, service).into_iter().filter_map(|line| line.strip_prefix("step "));
    said.map(|line| {
        let (ms, alike) = line.split_once(" ms ").expect("a step");
        assert_eq!(alike, "alike", "the vDSO and the calls show one clock");
        ms.parse().expect("a number")
    })
    .collect()
}

fn run(dir: &Path, seed: u32) -> Ran {
    let ran = run_in(dir, &["run", "--seed", &seed.to_string()]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    ran
}

/// Two seeds, each twice, and on the other platform.
fn is_one_run(dir: &Path) {
    for seed in ["1", "2"] {
        let args = ["run", "--seed", seed];
        let (first, second) = (run_in(dir, &args), run_in(dir, &args));
        assert_eq!(first.stdout, second.stdout);
        if !bloodhound_platform_tests::without_kvm("faults of clocks on kvm") {
            let on = |platform| finish(&mut command_on(Some(platform), dir, &args), b"");
            let (ptrace, kvm) = (on("ptrace"), on("kvm"));
            if !kvm.rdtsc_leaks() {
                assert_eq!(ptrace.run_digest(), kvm.run_digest());
            }
        }
    }
}

#[test]
fn a_wall_clock_jumps_and_is_set_right() {
    let faults =
        "{clock_jump_probability: 0.002, clock_jump_ms: [2000, 5000], clock_jump_duration_ms: [500, 1500]}";
    let Some(dir) = pair("jump", faults) else { return };
    let mut seen = (0, 0);
    for seed in 1..4 {
        let ran = run(&dir, seed);
        for service in ["one", "two"] {
            let steps = steps(&ran, service);
            let begun = format!("wall clock of {service} goes ");
            let told = ran.stdout.lines().filter(|line| line.contains(&begun)).count();
            let over = format!("clock-jump of {service} is over");
            let over = ran.stdout.lines().filter(|line| line.contains(&over)).count();
            assert!(over <= told && (told == 0) == steps.is_empty(), "{}", ran.stdout);
            assert!(steps.iter().sum::<i64>().abs() <= 2, "it is right at the end: {steps:?}");
            seen.0 += steps.iter().filter(|step| **step > 1000).count();
            seen.1 += steps.iter().filter(|step| **step < -1000).count();
            let (mono, real) = *apart(&ran, service).last().expect("something was said");
            assert!(mono.abs() < 2_000 && real.abs() < 2_000, "{mono} {real}");
        }
    }
    assert!(seen.0 > 2 && seen.1 > 2, "{seen:?}");
    is_one_run(&dir);
}

#[test]
fn clocks_drift_apart_and_the_wall_clock_is_set_right() {
    let faults = "{clock_drift_probability: 1, clock_drift_ppm: [1000, 100000], clock_drift_duration_ms: 0}";
    let Some(dir) = pair("drift", faults) else { return };
    let ran = run(&dir, 1);
    assert!(
        ran.stdout.contains(" ppm fast until the heal") || ran.stdout.contains(" ppm slow until the heal")
    );
    let apart = apart(&ran, "one");
    let (mono, real) = *apart.last().expect("something was said");
    assert!(mono.abs() > 10_000, "what was gained stays: {mono} us");
    assert!(real.abs() < 2_000, "the wall clock was set right: {real} us");
    assert!(apart.iter().any(|(_, real)| real.abs() > 10_000));
    is_one_run(&dir);
}

#[test]
fn wall_clocks_are_skewed_until_the_heal() {
    let Some(dir) = pair("skew", "{clock_skew_ms: 1000}") else { return };
    let ran = run(&dir, 1);
    let apart = apart(&ran, "one");
    assert!(apart.iter().any(|(_, real)| real.abs() > 5_000), "{apart:?}");
    assert!(apart.iter().all(|(mono, _)| mono.abs() < 2_000));
    let (_, real) = *apart.last().expect("something was said");
    assert!(real.abs() < 2_000, "{real}");
    assert!(ran.stdout.contains(" until the heal"), "{}", ran.stdout);
    is_one_run(&dir);
}

#[test]
fn every_wall_clock_has_a_leap_second() {
    let Some(dir) = pair("leap", "{leap_second_probability: 0.001}") else { return };
    let ran = run(&dir, 1);
    let told = ran.stdout.lines().filter(|line| line.contains("leap second")).count();
    assert!(told > 0, "{}", ran.stdout);
    for service in ["one", "two"] {
        let steps = steps(&ran, service);
        assert_eq!(steps.len(), told, "{steps:?}");
        assert!(steps.iter().all(|step| (-1001..=-999).contains(step)), "{steps:?}");
    }
    is_one_run(&dir);
}

#[test]
fn deadlines_follow_a_clock_that_is_set() {
    let Some(dir) = built("sets", "sets", &[]) else { return };
    let program = [dir.join("program").into()];
    let ran = finish(exec(&["--summary", "--env", "SIMULATED=1"], &program).current_dir(&dir), b"");
    let said = "deadlines\ntimers\neverywhere\nleap\n";
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), said), "{}", ran.stderr);
    if !bloodhound_platform_tests::without_kvm("clocks that are set on kvm") {
        let on = |platform| {
            finish(&mut exec_on(Some(platform), &["--summary", "--env", "SIMULATED=1"], &program), b"")
        };
        let (ptrace, kvm) = (on("ptrace"), on("kvm"));
        if !kvm.rdtsc_leaks() {
            assert_eq!(ptrace.determined(), kvm.determined());
        }
    }
}

/// A server of leases, and two who want one.
fn leases(name: &str, flags: &[&str]) -> Option<PathBuf> {
    let dir = built(name, "lease", flags)?;
    let services = [("server", "server"), ("ann", "ann"), ("bob", "bob")].map(|(name, is)| service(name, is));
    put(&dir, "compose.yaml", &format!("services:\n{}", services.concat()));
    put(
        &dir,
        "bloodhound.yaml",
        "compose: compose.yaml\noutput: {dir: out}\nsimulation: {max_time: 40s, seeds: 30}\n\
         faults:\n  duration: 30s\n  clock: {clock_jump_probability: 0.002, clock_skew_ms: 500, clock_drift_probability: 0.001}\n\
         properties:\n  - {name: one-holder, kind: safety, check: {type: no-crash}}\n",
    );
    Some(dir)
}

#[test]
fn a_lease_by_the_wall_clock_is_found_and_one_by_the_monotonic_clock_passes() {
    let Some(dir) = leases("lease", &[]) else { return };
    let ran = run_in(&dir, &["test"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.stdout, ran.stderr);
    let finding = std::fs::read_dir(dir.join("out/findings")).expect("findings").next().expect("one");
    let finding = finding.expect("an entry").path();
    let replayed = run_in(&dir, &["replay", finding.to_str().expect("UTF-8")]);
    assert!(replayed.stdout.contains("uses the lease of"), "{}{}", replayed.stdout, replayed.stderr);
    let Some(dir) = leases("lease-fixed", &["-DFIXED"]) else { return };
    let ran = run_in(&dir, &["test"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
}

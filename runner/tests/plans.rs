//! Plans of faults: groups of services that fail together, maintenance, triggers before calls and by patterns, and runs from saved faults, in
//! which everything happens as in the run that was saved.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // what is tested is a process of this host

mod common;

use std::path::{Path, PathBuf};

use common::{Ran, put, run_in};

/// Counts in its volume, asks the name server, and says with which number it begins.
const SERVICE: &str = "#!/bin/sh\nn=$(cat /data/n 2>/dev/null || echo 0)\necho \"begins at $n\"\nwhile :; do\n  n=$((n+1))\n  \
                       echo $n > /data/n\n  sync /data/n\n  [ $((n % 5)) = 0 ] && echo \"$n becomes leader\"\n  \
                       echo tail > /data/t\n  getent hosts kv1 > /dev/null || echo unknown\n  sleep 0.4\ndone\n";

fn config(faults: &str) -> String {
    format!(
        "compose: compose.yaml\nsimulation: {{max_time: 25s, boots: 1}}\nfaults:\n  duration: 12s\n{faults}properties:\n  \
         - {{name: stays, kind: safety, check: {{type: no-crash}}}}\n"
    )
}

fn stack(name: &str, faults: &str) -> PathBuf {
    let one = |n: u32| {
        format!(
            "  kv{n}:\n    command: [/bin/sh, /app/service]\n    volumes: ['./:/app:ro', 'data{n}:/data']\n    stop_grace_period: 100ms\n    \
             x-bloodhound: {{rootfs: host}}\n"
        )
    };
    let side = "  side:\n    command: [/bin/sleep, '1000']\n    network_mode: 'service:kv3'\n    x-bloodhound: {rootfs: host}\n";
    let compose =
        format!("services:\n{}{}{}{side}volumes: {{data1: , data2: , data3: }}\n", one(1), one(2), one(3));
    let files = [("service", SERVICE), ("compose.yaml", &compose), ("bloodhound.yaml", &config(faults))];
    common::stack(&format!("plans-{name}"), &files)
}

fn run(dir: &Path, args: &[&str]) -> Ran {
    let ran = run_in(dir, &[&["run", "--seed", "3"], args].concat());
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    ran
}

/// The lines of the timeline, without those that say by which rates links do something, and without what a trigger was.
fn timeline(ran: &Ran) -> Vec<String> {
    let of_time = |line: &&str| line.trim_start().starts_with(|c: char| c.is_ascii_digit());
    let rates = |line: &&str| !line.contains(" phase    faults: ") && !line.contains("from [all]");
    let healed = |line: &&str| !["drop healed", "delay healed"].iter().any(|end| line.ends_with(end));
    ran.stdout.lines().filter(of_time).filter(rates).filter(healed).map(str::to_owned).collect()
}

/// The lines about faults, without their times.
fn faults(ran: &Ran) -> Vec<String> {
    let lines = ran.stdout.lines().filter_map(|line| line.split_once("s fault    "));
    lines.map(|(_, text)| text.to_owned()).collect()
}

#[test]
fn a_group_fails_together_and_is_maintained_in_turn() {
    let dir = stack(
        "groups",
        "  groups: {rack-a: [kv1, kv2], rack-b: [kv3]}\n  schedule:\n    \
         - {at: 1s, fault: group-power, service: rack-a, duration: 500ms}\n    \
         - {at: 3s, fault: group-partition, service: rack-b, duration: 1s}\n    \
         - {at: 5s, fault: rolling-restart, service: rack-a, duration: 5s}\n    \
         - {at: 10s, fault: replace, service: kv3, duration: 700ms}\n",
    );
    let ran = run(&dir, &[]);
    let told = faults(&ran);
    for text in [
        "power failure of the machines of rack-a [kv1 kv2], power again after 500 ms",
        "rack-b [kv3] cut off from [kv1 kv2] for 1000 ms",
        "group-partition healed",
        "rolling restart of rack-a [kv1 kv2], ",
        "the machine of kv3 is lost, one with an empty disk takes its place after 700 ms",
    ] {
        assert!(told.iter().any(|line| line.starts_with(text)), "{text}: {told:?}");
    }
    // Each life begins with what the disk has: with less only where it is new.
    let begins = |service: &str| -> Vec<u64> {
        let of = ran.stdout.lines().filter(|line| line.contains(&format!(" {service} | ")));
        of.filter_map(|line| line.split_once("begins at ")?.1.trim().parse().ok()).collect()
    };
    let (first, third) = (begins("kv1"), begins("kv3"));
    assert_eq!((first.len(), first[0]), (3, 0), "{}", ran.stdout);
    assert!(first[1] > 0 && first[2] > first[1], "{first:?}");
    assert_eq!(third, [0, 0], "{}", ran.stdout);
    // The second one is stopped when the first one runs again.
    let services = ran.stdout.lines().filter_map(|line| line.split_once("s service  "));
    let restarts: Vec<&str> =
        services.map(|(_, text)| text).filter(|text| !text.starts_with("kv3")).collect();
    let stops = restarts.iter().position(|text| text.starts_with("kv2") && text.contains("stop"));
    let rises = restarts.iter().rposition(|text| *text == "kv1 started");
    assert!(rises < stops && rises.is_some(), "{restarts:?}");
    assert_eq!(run(&dir, &[]).run_digest(), ran.run_digest());
}

#[test]
fn a_run_from_saved_faults_is_the_run_that_was_saved() {
    let dir = stack(
        "saved",
        "  swarm: false\n  budget: {down: 2, disks: 2}\n  quiet: [[4s, 5s]]\n  groups: {rack-a: [kv1, kv2]}\n  \
         network: {drop_rate: 0.01, dns_fail_rate: 0.05, dns_delay_ms: 20, group_partition_probability: 0.002}\n  \
         disk: {fsync_fail_rate: 0.05, write_fail_rate: 0.01, disk_full_probability: 0.001}\n  resources: {enfile_rate: 0.001}\n  \
         process: {power_failure_probability: 0.002, power_restart_ms: [100, 400], group_power_probability: 0.001, crash_probability: 0.001, \
         rolling_restart_probability: 0.001, replace_probability: 0.0005, services: [kv1, kv2, kv3]}\n",
    );
    let ran = run(&dir, &["--save-faults", "saved.yaml"]);
    assert_eq!(run(&dir, &[]).run_digest(), ran.run_digest());
    let saved = std::fs::read_to_string(dir.join("saved.yaml")).expect("it is there");
    let told = faults(&ran);
    for (kind, text) in [
        ("fsync-fail", "fsync-fail: "),
        ("power-failure", "power failure of the machine of "),
        ("group-partition", "rack-a ["),
    ] {
        assert!(told.iter().any(|line| line.starts_with(text)), "{kind}: {told:?}");
        assert!(saved.contains(&format!("fault: {kind}")), "{kind}: {saved}");
    }
    assert!(saved.contains("fault: dns-fail"), "{saved}");
    let again = run(&dir, &["--faults", "saved.yaml"]);
    assert!(again.stdout.contains("faults of this seed: no faults\n"), "{}", again.stdout);
    let (first, second) = (timeline(&ran), timeline(&again));
    for (one, other) in first.iter().zip(&second) {
        assert_eq!(one, other, "{saved}");
    }
    assert_eq!(first.len(), second.len());
    // What was saved of that is the same again, and so is the run.
    let twice = run(&dir, &["--faults", "saved.yaml", "--save-faults", "again.yaml"]);
    assert_eq!(twice.run_digest(), again.run_digest());
    let again = std::fs::read_to_string(dir.join("again.yaml")).expect("it is there");
    let entries = |text: &str| {
        let mut lines: Vec<String> =
            text.lines().filter(|l| l.starts_with("  - ")).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(entries(&again), entries(&saved));
}

#[test]
fn triggers_come_before_a_call_and_by_a_pattern() {
    let dir = stack("triggers", "");
    let time = |text: &str, starts: &str| {
        put(&dir, "schedule.yaml", &format!("schedule:\n  - {text}\n"));
        let ran = run(&dir, &["--faults", "schedule.yaml"]);
        assert_eq!(run(&dir, &["--faults", "schedule.yaml"]).run_digest(), ran.run_digest());
        let line = ran.stdout.lines().find(|line| line.contains(starts));
        let line = line.unwrap_or_else(|| panic!("{starts}: {}", ran.stdout));
        let begins =
            ran.stdout.lines().filter(|line| line.contains(" kv2 | ") && line.contains("begins at "));
        let begins: Vec<String> =
            begins.filter_map(|line| Some(line.split_once("begins at ")?.1.trim().to_owned())).collect();
        (line.split("s fault").next().unwrap_or_default().trim().to_owned(), begins)
    };
    let at = |when: &str| {
        format!(
            "{{on: {{call: fsync, when: {when}, service: kv2, nth: 7}}, fault: crash, service: kv2, duration: 300ms}}"
        )
    };
    let (before, _) = time(&at("enter"), "(before call 7 of fsync by kv2)");
    let (after, _) = time(&at("return"), "(call 7 of fsync by kv2)");
    let ns = |text: &str| {
        let (whole, rest) = text.split_once('.').expect("a time");
        (whole.parse::<u64>().expect("seconds"), format!("{rest:0<9}"))
    };
    assert!(ns(&before) < ns(&after), "{before} {after}");
    let (_, begins) = time(
        "{on: {pattern: '^[0-9]*[05] becomes (leader|king)$', service: kv2, nth: 2}, fault: crash, service: kv2, duration: 300ms}",
        "(line 2 of kv2 like /^[0-9]*[05] becomes (leader|king)$/)",
    );
    assert_eq!(begins.len(), 2, "{begins:?}");
    // A paused one makes its call afterwards.
    let pause = at("enter").replace("crash", "pause");
    let (paused, begins) = time(&pause, "(before call 7 of fsync by kv2)");
    assert_eq!((paused, begins.len()), (before, 1));
}

#[test]
fn a_fault_of_the_network_hits_whose_network_a_service_uses() {
    let dir = stack(
        "sidecar",
        "  swarm: false\n  targets: {mtu: [side], drop: [[kv1, kv2]]}\n  network: {mtu_probability: 0.003, drop_rate: 0.5}\n",
    );
    let ran = run(&dir, &[]);
    let told = faults(&ran);
    let of_mtu: Vec<&String> =
        told.iter().filter(|line| line.contains("mtu") || line.contains("larger")).collect();
    assert!(!of_mtu.is_empty() && of_mtu.iter().all(|line| line.contains("kv3")), "{told:?}");
    assert_eq!(run(&dir, &[]).run_digest(), ran.run_digest());
}

#[test]
fn mistakes_have_their_places() {
    let refused = |faults: &str, said: &str, place: &str| {
        let dir = stack("mistakes", faults);
        let ran = run_in(&dir, &["run"]);
        assert_ne!(ran.code, Some(0), "{faults}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(said) && ran.stderr.contains(place), "{faults}: {}", ran.stderr);
    };
    refused("  groups: {rack-a: [kv9]}\n", "no service `kv9`", "bloodhound.yaml:5:21");
    refused("  groups: {kv1: [kv2]}\n", "`kv1` is a service", "bloodhound.yaml:5:12");
    refused("  targets: {group-power: [kv1]}\n", "group-power hits groups", "bloodhound.yaml:5:27");
    refused("  targets: {crash: [[kv1, kv2]]}\n", "crash hits services, not links", "bloodhound.yaml:5:21");
    refused("  targets: {drop: [[kv1, rack]]}\n", "no service `rack`", "bloodhound.yaml:5:26");
    refused(
        "  schedule:\n    - {on: {pattern: 'a(b', service: kv1}, fault: crash, service: kv1}\n",
        "is no regular expression: unclosed group",
        "bloodhound.yaml:6:22",
    );
    refused(
        "  process: {services: [kv1], crash_probability: 0.001}\n  targets: {crash: [kv2]}\n",
        "names no service that faults may hit",
        "bloodhound.yaml:6:21",
    );
}

//! Plans of faults: groups of services that fail together, maintenance, triggers before calls and by patterns, and runs from saved faults, in
//! which everything happens as in the run that was saved. Maintenance that is drawn keeps to its budgets.

use std::path::{Path, PathBuf};

use crate::common::{Ran, put, run_in};

/// Counts in its volume, asks the name server, and says with which number it begins.
const SERVICE: &str = "#!/bin/sh\nn=$(cat /data/n 2>/dev/null || echo 0)\necho \"${VERSION:+new }begins at $n\"\nwhile :; do\n  n=$((n+1))\n  \
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
    let next =
        |n: u32| format!("  next{n}: {{extends: kv{n}, environment: {{VERSION: '2'}}, profiles: [next]}}\n");
    let services = one(1) + &one(2) + &one(3) + &next(1) + &next(2) + side;
    let compose = format!("services:\n{services}volumes: {{data1: , data2: , data3: }}\n");
    let files = [("service", SERVICE), ("compose.yaml", &compose), ("bloodhound.yaml", &config(faults))];
    crate::common::stack(&format!("plans-{name}"), &files)
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

/// Maintenance, with disks that are full now and then, of which one may be harmed at a time; one service may be down.
const MAINTENANCE: &str = "  swarm: false\n  budget: {down: 1, disks: 1}\n  groups: {rack-a: [kv1, kv2], rack-b: [kv3]}\n  \
    upgrades: {kv1: {service: next1}, kv2: {service: next2}}\n  disk: {disk_full_probability: 0.001, disk_full_ms: [300, 900]}\n  \
    process: {rolling_restart_probability: 0.0007, rolling_pause_ms: [50, 200], rolling_restart_ms: [1500, 2500], \
    replace_probability: 0.0007, replace_restart_ms: [300, 900], upgrade_probability: 0.001, upgrade_pause_ms: [50, 200], \
    upgrade_ms: [1500, 2500], downgrade_probability: 0.001, downgrade_pause_ms: [50, 200], downgrade_ms: [1500, 2500], \
    services: [kv1, kv2, kv3]}\n";

/// When faults of a kind begin and end, ms, and whom they hit: by the beginning of their lines, and what stands before their time.
fn spans(ran: &Ran, starts: &str, before: &str) -> Vec<(u64, u64, String)> {
    let lines = ran.stdout.lines().filter_map(|line| line.trim_start().split_once(" s fault    "));
    let of_kind = lines.filter(|(_, text)| text.starts_with(starts));
    let one = |(at, text): (&str, &str)| {
        let (seconds, rest) = at.split_once('.')?;
        let at = seconds.parse::<u64>().ok()? * 1000 + format!("{rest:0<3}").get(..3)?.parse::<u64>().ok()?;
        let time = text.rsplit_once(before)?.1.split(' ').next()?.parse::<u64>().ok()?;
        let whom = text[starts.len()..].split(' ').next()?;
        Some((at, at + time, whom.to_owned()))
    };
    of_kind.map(|line| one(line).unwrap_or_else(|| panic!("{line:?}"))).collect()
}

#[test]
fn maintenance_that_is_drawn_keeps_to_its_budgets() {
    const ROLLOUTS: [&str; 3] = ["rolling restart of ", "upgrade of ", "downgrade of "];
    let dir = stack("maintenance", MAINTENANCE);
    let mut left = [&ROLLOUTS[..], &["the machine of ", "the disk of "]].concat();
    for seed in 1..=16 {
        if left.is_empty() {
            break;
        }
        let seed = seed.to_string();
        let run = |args: &[&str]| {
            let ran = run_in(&dir, &[&["run", "--seed", &seed], args].concat());
            assert_eq!(ran.code, Some(0), "seed {seed}: {}", ran.shown());
            ran
        };
        let ran = run(&["--save-faults", "saved.yaml"]);
        let apart = |mut spans: Vec<(u64, u64, String)>, of_one: bool| {
            spans.sort();
            for pair in spans.windows(2) {
                let together = pair[1].0 < pair[0].1 && (of_one || pair[0].2 != pair[1].2);
                assert!(!together, "seed {seed}: {pair:?}\n{}", ran.stdout);
            }
        };
        let replaced = spans(&ran, "the machine of ", "after ");
        let rollouts = ROLLOUTS.map(|kind| spans(&ran, kind, "within ")).concat();
        apart([rollouts, replaced.clone()].concat(), true);
        apart([spans(&ran, "the disk of ", "full for "), replaced].concat(), false);
        let told = faults(&ran);
        let of = |start: &str| told.iter().any(|line| line.starts_with(start));
        let remade = ran.stdout.lines().filter(|line| line.contains(" is made of next")).count();
        let began = ran.stdout.lines().filter(|line| line.contains("| new begins at ")).count();
        assert_eq!(of("upgrade of "), remade > 0, "seed {seed}: {}", ran.stdout);
        assert!(began >= remade, "seed {seed}: {}", ran.stdout);
        let before = left.len();
        left.retain(|start| !of(start));
        if left.len() < before {
            // What a seed shows that no other one has shown is the same again, and from the saved faults.
            assert_eq!(run(&[]).run_digest(), ran.run_digest(), "seed {seed}");
            assert_eq!(timeline(&run(&["--faults", "saved.yaml"])), timeline(&ran), "seed {seed}");
        }
    }
    assert!(left.is_empty(), "no seed shows {left:?}");
}

#[test]
fn an_upgrade_keeps_the_volume_and_can_be_taken_back() {
    let dir = stack(
        "upgrade",
        "  groups: {rack-a: [kv1, kv2]}\n  upgrades: {kv1: {service: next1}, kv2: {service: next2}}\n  schedule:\n    \
         - {at: 1s, fault: upgrade, service: rack-a, duration: 6s}\n    \
         - {at: 8s, fault: downgrade, service: kv1, duration: 3s}\n",
    );
    let ran = run(&dir, &[]);
    // Of each life: whether it is of the new version, and with which number it begins.
    let lives = |service: &str| -> Vec<(bool, u64)> {
        let mark = format!(" {service} | ");
        let lines = ran.stdout.lines().filter_map(|line| line.split_once(&mark)?.1.split_once("begins at "));
        lines.filter_map(|(new, n)| Some((new.contains("new"), n.trim().parse().ok()?))).collect()
    };
    for (service, versions) in [("kv1", &[false, true, false][..]), ("kv2", &[false, true])] {
        let lives = lives(service);
        assert!(lives.iter().map(|life| &life.0).eq(versions), "{service}: {}", ran.stdout);
        assert!(lives.windows(2).all(|pair| pair[0].1 < pair[1].1), "{service}: {lives:?}");
    }
    let services: Vec<&str> =
        ran.stdout.lines().filter_map(|line| Some(line.split_once("s service  ")?.1)).collect();
    let place = |text: &str| {
        services.iter().position(|line| *line == text).unwrap_or_else(|| panic!("{text}: {services:?}"))
    };
    let order =
        ["kv1 is made of next1", "kv2 is made of next2", "kv1 is made of what it began with"].map(place);
    assert!(order.is_sorted(), "{services:?}");
    assert_eq!(run(&dir, &[]).run_digest(), ran.run_digest());
}

/// Writes and syncs a file on a volume, and syncs one that lies elsewhere, over and over; tells what becomes of it whenever that changes.
const WRITER: &str = "#!/bin/sh\necho a > /var/tmp/f\nwhile :; do\n  echo b > $1/$2 2> /dev/null && w=written || w=not-written\n  \
                      sync $1/$2 2> /dev/null && s=synced || s=not-synced\n  sync /var/tmp/f || w=broken\n  \
                      [ \"$w $s\" = \"$said\" ] || echo \"$w $s\"\n  said=\"$w $s\"\n  sleep 0.1\ndone\n";

#[test]
fn faults_of_disks_hit_a_volume_wherever_it_is_mounted() {
    let one = |name: &str, volume: &str, at: &str| {
        format!(
            "  {name}: {{command: [/bin/sh, /app/writer, {at}, {name}], volumes: ['./:/app:ro', '{volume}:{at}'], \
             x-bloodhound: {{rootfs: host}}}}\n"
        )
    };
    let services =
        one("one", "shared", "/data") + &one("two", "shared", "/srv") + &one("three", "own", "/data");
    let compose = format!("services:\n{services}volumes: {{shared: , own: }}\n");
    let config = config(
        "  swarm: false\n  targets: {fsync-fail: [{volume: shared}], disk-slow: [{volume: own}]}\n  \
         disk: {fsync_fail_rate: 0.3, disk_slow_probability: 0.01, disk_slow_ms: [200, 400]}\n  schedule:\n    \
         - {at: 2s, fault: disk-full, volume: shared, duration: 1s}\n    \
         - {at: 5s, fault: disk-readonly, volume: own, duration: 500ms}\n    - {nth: 25, fault: write-fail, volume: shared}\n",
    );
    let files = [("writer", WRITER), ("compose.yaml", &compose), ("bloodhound.yaml", &config)];
    let dir = crate::common::stack("plans-volumes", &files);
    let ran = run(&dir, &["--save-faults", "saved.yaml"]);
    let told = faults(&ran);
    let count = |starts: &str, ends: &str| {
        told.iter().filter(|line| line.starts_with(starts) && line.contains(ends)).count()
    };
    assert_eq!(count("the volume shared is full for 1000 ms (ENOSPC)", ""), 1, "{told:?}");
    assert_eq!(count("the volume own is read-only for 500 ms (EROFS)", ""), 1, "{told:?}");
    assert!(count("the volume own is slow for ", "") > 0 && count("the disk of ", "") == 0, "{told:?}");
    assert_eq!(count("write-fail: ", ""), 1, "{told:?}");
    for (service, path) in [("one", "/data/one"), ("two", "/srv/two")] {
        let syncs = count(&format!("fsync-fail: fsync of {path} by {service} "), "EIO");
        assert!(syncs > 0, "{service}: {told:?}");
    }
    let [of_one, of_two] = ["one", "two"].map(|service| count("fsync-fail: ", &format!(" by {service} ")));
    assert_eq!(of_one + of_two, count("fsync-fail: ", ""), "{told:?}");
    let said = |service: &str, what: &str| {
        let mark = format!(" {service} | ");
        ran.stdout.lines().any(|line| line.contains(&mark) && line.contains(what))
    };
    for service in ["one", "two", "three"] {
        assert!(said(service, "not-written") && !said(service, "broken"), "{service}: {}", ran.stdout);
    }
    assert_eq!(run(&dir, &[]).run_digest(), ran.run_digest());
    // Whoever met them, the same happens from the saved faults.
    assert_eq!(timeline(&run(&dir, &["--faults", "saved.yaml"])), timeline(&ran));
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
    refused("  upgrades: {kv1: {service: next9}}\n", "no service `next9`", "bloodhound.yaml:5:29");
    refused("  upgrades: {kv1: {image: 'kv:2'}}\n", "`kv1` has no image", "bloodhound.yaml:5:14");
    refused(
        "  upgrades: {kv1: {service: next1}}\n  schedule: [{at: 1s, fault: upgrade, service: kv2}]\n",
        "`kv2` cannot be upgraded",
        "bloodhound.yaml:6:48",
    );
    refused("  targets: {disk-full: [{volume: data9}]}\n", "no volume `data9`", "bloodhound.yaml:5:34");
    refused(
        "  process: {services: [kv1]}\n  schedule: [{at: 1s, fault: disk-full, volume: data2}]\n",
        "no service that faults may hit mounts the volume `data2`",
        "bloodhound.yaml:6:49",
    );
    refused(
        "  process: {services: [kv1], crash_probability: 0.001}\n  targets: {crash: [kv2]}\n",
        "names no service that faults may hit",
        "bloodhound.yaml:6:21",
    );
}

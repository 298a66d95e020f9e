//! Fixed schedules of faults: each happens when it is written, by time, line or call; the same run has the same digest; what a run saved
//! shows the same faults.

use std::path::{Path, PathBuf};

use crate::common::{Ran, put, run_in};

/// Writes a file to the disk and tells of every fifth time.
const SERVICE: &str = "#!/bin/sh\nn=0\nwhile :; do\n  n=$((n+1))\n  echo $n > /tmp/x\n  sync /tmp/x\n  \
                       [ $((n % 5)) = 0 ] && echo \"$n becomes leader\"\n  sleep 0.1\ndone\n";

const CONFIG: &str = "compose: compose.yaml\nsimulation: {max_time: 20s}\nfaults:\n  duration: 10s\n  network: {drop_rate: 0.01, \
                      partition_probability: 0.002}\n  process: {crash_probability: 0.002, pause_probability: 0.002}\nproperties:\n  \
                      - {name: stays, kind: safety, check: {type: no-crash}}\n";

const SCHEDULE: &str = "schedule:\n  - {at: 2500ms, fault: crash, service: kv1, duration: 1s}\n  \
                        - {on: {log: becomes leader, service: kv2, nth: 3}, fault: pause, service: kv2, duration: 500ms}\n  \
                        - {on: {call: fsync, service: kv3, nth: 17, after: 20ms}, fault: crash, service: kv3, duration: 700ms}\n  \
                        - {at: 6s, fault: partition, partition: isolate, service: kv1, duration: 2s}\n  \
                        - {at: 7s, fault: drop, rate: 0.5, from: [kv1], duration: 1s}\n  - {at: 8s, fault: reset, service: kv2}\n";

fn stack(name: &str, config: &str) -> PathBuf {
    let one = "    command: [/bin/sh, /app/service]\n    volumes: ['./:/app:ro']\n    x-bloodhound: {rootfs: host}\n";
    let compose = format!("services:\n  kv1:\n{one}  kv2:\n{one}  kv3:\n{one}");
    let files = [("service", SERVICE), ("compose.yaml", &compose), ("bloodhound.yaml", config)];
    let dir = crate::common::stack(&format!("schedules-{name}"), &files);
    put(&dir, "schedule.yaml", SCHEDULE);
    dir
}

/// The lines of the timeline about faults: time in ns since faults can begin, and text.
fn faults(ran: &Ran) -> Vec<(u64, String)> {
    let ns = |text: &str| {
        let (whole, rest) = text.split_once('.').expect("a time");
        whole.parse::<u64>().expect("seconds") * 1_000_000_000
            + format!("{rest:0<9}").parse::<u64>().expect("ns")
    };
    let begin = ran.stdout.lines().find(|line| line.contains(" phase    faults: "));
    let begin = ns(begin.expect("the phase of faults").split("s ").next().expect("a time"));
    let lines = ran.stdout.lines().filter_map(|line| line.split_once("s fault    "));
    lines.map(|(at, text)| (ns(at) - begin, text.to_owned())).collect()
}

fn run(dir: &Path, args: &[&str]) -> Ran {
    let ran = run_in(dir, &[&["run", "--seed", "3"], args].concat());
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    ran
}

#[test]
fn each_fault_comes_when_it_is_written_and_no_other() {
    let dir = stack("alone", CONFIG);
    let ran = run(&dir, &["--faults", "schedule.yaml", "--save-faults", "saved.yaml"]);
    assert!(ran.stdout.contains("faults of this seed: no faults\n"), "{}", ran.stdout);
    let told = faults(&ran);
    let at = |text: &str| told.iter().find(|(_, t)| t.starts_with(text)).map(|(at, _)| *at);
    assert_eq!(at("crash kv1 (SIGKILL), restart after 1000 ms"), Some(2_500_000_000), "{told:?}");
    assert_eq!(at("partition isolate kv1 from [kv2 kv3] for 2000 ms"), Some(6_000_000_000), "{told:?}");
    assert_eq!(at("partition healed"), Some(8_000_000_000), "{told:?}");
    assert_eq!(at("drop 50% from [kv1] to [all] for 1000 ms"), Some(7_000_000_000), "{told:?}");
    assert_eq!(at("reset all connections of kv2"), Some(8_000_000_000), "{told:?}");
    // Right after the third line, with which nothing else of the service is between.
    let pause = told.iter().find(|(_, text)| text.starts_with("pause kv2")).expect("the pause");
    assert!(pause.1.contains("(line 3 of kv2 with \"becomes leader\")"), "{told:?}");
    let mut lines = ran.stdout.lines().skip_while(|line| !line.contains("all services are ready"));
    let leader = |line: &&str| line.contains(" kv2 | ") && line.contains("becomes leader");
    let third = lines.by_ref().filter(leader).nth(2).expect("a third line");
    let stands_still: Vec<&str> = lines.take_while(|line| !line.contains("pause of kv2 is over")).collect();
    assert!(!stands_still.iter().any(leader), "{third} {stands_still:?}");
    let crash = told.iter().find(|(_, text)| text.starts_with("crash kv3")).expect("the crash at a call");
    assert!(crash.1.contains("(20 ms after call 17 of fsync by kv3)"), "{told:?}");
    assert!((1_500_000_000..2_400_000_000).contains(&crash.0), "{told:?}");
    let begun = told.iter().filter(|(_, text)| !text.contains("healed") && !text.contains("is over"));
    assert_eq!(begun.count(), 6, "{told:?}");

    assert_eq!(run(&dir, &["--faults", "schedule.yaml"]).run_digest(), ran.run_digest());
    // By the saved schedule all of them come at their times.
    let plain = |told: &[(u64, String)]| -> Vec<(u64, String)> {
        let text = |text: &String| {
            text.split(" (line").next().and_then(|t| t.split(" (20 ms").next()).map(str::to_owned)
        };
        told.iter().filter_map(|(at, t)| Some((*at, text(t)?))).collect()
    };
    assert_eq!(plain(&faults(&run(&dir, &["--faults", "saved.yaml"]))), plain(&told));
}

#[test]
fn the_faults_of_a_seed_are_saved_and_happen_again() {
    let dir = stack("saved", &CONFIG.replace("drop_rate: 0.01", "drop_rate: 0"));
    let ran = run(&dir, &["--save-faults", "saved.yaml"]);
    let told = faults(&ran);
    assert!(told.len() > 4, "{told:?}");
    let again = run(&dir, &["--faults", "saved.yaml"]);
    assert_eq!(faults(&again), told);
    assert!(again.stdout.contains("faults of this seed: no faults\n"), "{}", again.stdout);
}

#[test]
fn a_schedule_stands_in_the_configuration_beside_rates() {
    let with = CONFIG.replace(
        "faults:\n",
        "faults:\n  swarm: false\n  budget: {down: 1}\n  quiet: [[4s, 6s]]\n  schedule:\n    - {at: 5s, fault: pause, service: kv3, duration: 100ms}\n",
    );
    let dir = stack("beside", &with);
    let ran = run(&dir, &[]);
    let told = faults(&ran);
    let begun: Vec<_> =
        told.iter().filter(|(_, text)| !text.contains("healed") && !text.contains("is over")).collect();
    assert!(begun.iter().any(|(at, text)| *at == 5_000_000_000 && text.starts_with("pause kv3")), "{told:?}");
    let quiet = begun.iter().filter(|(at, _)| (4_000_000_000..6_000_000_000).contains(at));
    assert_eq!(quiet.count(), 1, "{told:?}");
    assert!(begun.len() > 2, "{told:?}");
    assert_eq!(run(&dir, &[]).run_digest(), ran.run_digest());
}

#[test]
fn a_campaign_tells_what_became_of_its_faults() {
    let config = CONFIG.replace(
        "network: {drop_rate: 0.01, partition_probability: 0.002}\n  process: {crash_probability: 0.002, pause_probability: 0.002}",
        "coverage_threshold: 100%\n  schedule:\n    - {at: 1s, fault: crash, service: kv1, duration: 2s}\n    - {at: 2s, fault: crash, service: kv1}\n    \
         - {at: 15s, fault: reset, service: kv1}\n    - {at: 3s, fault: partition, duration: 1s}",
    );
    let dir = stack("told", &config);
    let ran = run_in(&dir, &["test", "--seeds", "2", "--format", "json"]);
    assert_eq!(ran.code, Some(3), "{}{}", ran.stdout, ran.stderr);
    let answer: serde_json::Value = serde_json::from_str(&ran.stdout).expect("JSON");
    let crash = &answer["fault_accounts"]["crash"];
    assert_eq!((crash["injected"].as_u64(), crash["effective"].as_u64()), (Some(2), Some(2)), "{answer}");
    assert_eq!(crash["without_effect"]["its service does not run"], 2, "{answer}");
    assert_eq!(answer["fault_accounts"]["partition"]["without_effect"]["no packet met it"], 2, "{answer}");
    assert_eq!(answer["faults_never_injected"], serde_json::json!(["reset"]), "{answer}");
    let ran = run_in(&dir, &["test", "--seeds", "1", "--fault-coverage-threshold", "60%"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("configured, but never injected: reset\n"), "{}", ran.stdout);
    assert!(
        ran.stdout
            .contains("crash: 1 injected, 1 had an effect; without effect: its service does not run (1)"),
        "{}",
        ran.stdout
    );
}

#[test]
fn a_finding_of_a_schedule_is_replayed() {
    let service = SERVICE.replace("n=0\n", "n=0\n[ -e /data ] && exit 3\ntouch /data\n");
    let dir = stack("finding", CONFIG);
    put(&dir, "service", &service);
    let ran = run_in(&dir, &["test", "--seeds", "1", "--faults", "schedule.yaml", "--out", "out"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.stdout, ran.stderr);
    let replay = ran.stdout.split("bloodhound replay ").nth(1).and_then(|rest| rest.lines().next());
    // The schedule is in the finding.
    std::fs::remove_file(dir.join("schedule.yaml")).expect("it was there");
    let again = run_in(&dir, &["replay", replay.expect("the command")]);
    assert_eq!(again.code, Some(1), "{}{}", again.stdout, again.stderr);
    assert!(again.stdout.contains("reproduced: "), "{}", again.stdout);
}

#[test]
fn a_mistake_in_a_schedule_has_its_place() {
    let dir = stack("mistakes", CONFIG);
    let entry = |text: &str| {
        put(&dir, "bad.yaml", &format!("schedule:\n  - {text}\n"));
        let ran = run_in(&dir, &["run", "--faults", "bad.yaml"]);
        assert_eq!(ran.code, Some(2), "{}{}", ran.stdout, ran.stderr);
        ran.stderr
    };
    for (text, said, place) in [
        ("{at: 1s, fault: cresh, service: kv1}", "`schedule[0].fault` cannot be `cresh`", "bad.yaml:2:21"),
        ("{at: 1s, fault: crash, service: kv9}", "no service `kv9`", "bad.yaml:2:37"),
        ("{at: -1s, fault: crash, service: kv1}", "`schedule[0].at`", "bad.yaml:2:10"),
        ("{at: 1s, fault: reset, service: kv1, duration: 1s}", "it is over at once", "bad.yaml:2:42"),
        ("{at: 1s, fault: crash}", "crash hits a service: which?", "bad.yaml:2:21"),
        ("{fault: crash, service: kv1}", "the key `at` is missing", "bad.yaml:2:6"),
        ("{at: 1s, fault: drop, rate: 2, duration: 1s}", "`schedule[0].rate`", "bad.yaml:2:33"),
        ("{at: 1s, fault: drop, duration: 1s}", "drop needs `rate`", "bad.yaml:2:21"),
    ] {
        let answer = entry(text);
        assert!(answer.contains(said) && answer.contains(place), "{text}: {answer}");
    }
}

//! Faults of processes, as services see them: OOM kills, kills of one process, stops, crash loops, slow nodes, starved threads. Each run
//! is made twice and must be the same, timeline, output and digest.

use std::path::{Path, PathBuf};

use crate::common::*;

/// A stack whose faults of processes are these, without swarm profiles, and with a property that no service may crash.
fn faulty(name: &str, services: &str, process: &str) -> PathBuf {
    let config = format!(
        "compose: compose.yaml\n\
         simulation: {{max_time: 30s, start_spread: 0s, clock_spread: 0s, cost_spread: 0}}\n\
         faults: {{swarm: false, duration: 20s, process: {{{process}}}}}\n\
         properties: [{{name: up, kind: safety, check: {{type: no-crash}}}}]\n"
    );
    stack(name, &[("compose.yaml", &format!("services:\n{services}")), ("bloodhound.yaml", &config)])
}

/// Runs the stack twice.
fn run(dir: &Path, args: &[&str]) -> Ran {
    let args: Vec<&str> = ["run"].iter().chain(args).copied().collect();
    let ran = run_in(dir, &args);
    assert_eq!(run_in(dir, &args).stdout, ran.stdout, "two runs differ");
    ran
}

/// What the timeline says behind a word (`fault`, `service`, `memory`).
fn told<'a>(ran: &'a Ran, word: &str) -> Vec<&'a str> {
    let mark = format!("s {word} ");
    let of = |line: &'a str| line.split_once(&mark).map(|(_, text)| text.trim());
    ran.stdout.lines().filter_map(of).collect()
}

fn count(lines: &[&str], text: &str) -> usize {
    lines.iter().filter(|line| line.contains(text)).count()
}

#[test]
fn an_oom_kill_takes_the_process_with_the_highest_score() {
    let script = "while :; do sh -c 'echo 500 >/proc/self/oom_score_adj; exec sleep 1000' & wait $$!; \
                  echo worker $$?; grep -w oom_kill /sys/fs/cgroup/memory.events; done";
    let services = format!(
        "  main: {{x-bloodhound: {{rootfs: host}}, mem_limit: 64m, command: [sh, -c, \"{script}\"]}}\n"
    );
    let ran = run(&faulty("faults-oom", &services, "oom_probability: 0.002"), &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.shown());
    let kills = count(&told(&ran, "fault"), "memory of main runs out (OOM kill)");
    assert!(kills > 0, "{}", ran.shown());
    let memory = told(&ran, "memory");
    let of_limit = "main has no memory left (the container's limit is 64 MiB): process ";
    assert_eq!(count(&memory, of_limit), kills, "{}", ran.shown());
    assert_eq!(count(&memory, "(sleep)"), kills, "{}", ran.shown());
    let printed: Vec<&str> = lines(&ran, "main").into_iter().filter(|line| *line != "Killed").collect();
    assert_eq!(printed[..2], ["worker 137", "oom_kill 1"], "{}", ran.shown());
    assert_eq!(printed.len(), 2 * kills, "{}", ran.shown());
    assert_eq!(count(&told(&ran, "service"), "started"), 1, "the service goes on: {}", ran.shown());
}

#[test]
fn a_service_that_an_oom_kill_ends_starts_again_and_is_no_finding() {
    let services = "  alone: {x-bloodhound: {rootfs: host}, command: [sleep, '1000']}\n\
                    \x20 again: {x-bloodhound: {rootfs: host}, restart: always, command: [sleep, '1000']}\n";
    let process = "oom_probability: 0.001, oom_restart_ms: [2000, 2000]";
    let ran = run(&faulty("faults-oom-first", services, process), &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.shown());
    assert!(count(&told(&ran, "memory"), "the machine's memory is") > 1, "{}", ran.shown());
    let pauses = |service: &str| -> Vec<u64> {
        let at = |line: &str, text: &str| -> Option<u64> {
            let (at, rest) = line.trim().split_once("s service")?;
            rest.trim()
                .strip_prefix(service)?
                .contains(text)
                .then(|| (at.trim().parse::<f64>().expect("a time") * 1000.0) as u64)
        };
        let of = |text: &'static str| ran.stdout.lines().filter_map(move |line| at(line, text));
        let starts: Vec<u64> = of(" started").skip(1).collect();
        of(" ended: killed by SIGKILL").zip(starts).map(|(end, start)| start - end).collect()
    };
    let (alone, again) = (pauses("alone"), pauses("again"));
    assert!(!alone.is_empty() && !again.is_empty(), "{}", ran.shown());
    // The heal starts what is down.
    assert!(alone[0] == 2000 && alone.iter().all(|ms| *ms <= 2000), "{alone:?}: {}", ran.shown());
    assert!(again.iter().all(|ms| *ms < 1999), "by its policy {again:?}: {}", ran.shown());
}

/// A master with a worker that shows that it is alive; the first one looks after it.
const MASTER: &str = "work() { while :; do touch /tmp/alive; sleep 0.2; done; }; work & ";

fn masters(rest: &str) -> String {
    format!(
        "  master:\n\
         \x20   x-bloodhound: {{rootfs: host}}\n\
         \x20   command: [sh, -c, \"{MASTER}{rest}\"]\n\
         \x20   healthcheck: {{test: [CMD, sh, -c, 'test -n \"$$(find /tmp/alive -newermt -2seconds)\"'], interval: 1s, timeout: 1s, retries: 2}}\n"
    )
}

#[test]
fn a_kill_takes_one_process_that_is_not_the_first() {
    let services = "  two: {x-bloodhound: {rootfs: host}, command: [sh, -c, 'while :; do sleep 500 & wait $$!; echo one $$?; done & while :; do sleep 600 & wait $$!; echo two $$?; done']}\n\
                    \x20 one: {x-bloodhound: {rootfs: host}, command: [sleep, '1000']}\n";
    let dir = faulty("faults-kill", services, "kill_probability: 0.004");
    let ran = run(&dir, &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.shown());
    let faults = told(&ran, "fault");
    let kills = count(&faults, "kill a process of two (SIGKILL)");
    assert!(kills > 0, "{}", ran.shown());
    assert_eq!(count(&faults, "two process "), kills, "{}", ran.shown());
    assert_eq!(count(&faults, "kill a process of one"), 0, "it has one process only: {}", ran.shown());
    let printed: Vec<&str> = lines(&ran, "two").into_iter().filter(|line| *line != "Killed").collect();
    assert!(printed.iter().all(|line| line.ends_with("137")) && !printed.is_empty(), "{}", ran.shown());
    assert_eq!(count(&told(&ran, "service"), "two started"), 1, "{}", ran.shown());
}

#[test]
fn who_does_not_look_after_its_worker_is_caught() {
    let config = |process: &str| {
        format!(
            "compose: compose.yaml\n\
             simulation: {{max_time: 40s, start_spread: 0s}}\n\
             faults: {{swarm: false, duration: 10s, process: {{{process}}}}}\n\
             properties: [{{name: serves, kind: liveness, timeout: 20s, check: {{type: healthy, services: [master], interval: 1s}}}}]\n"
        )
    };
    let code = |name: &str, rest: &str| {
        let compose = format!("services:\n{}", masters(rest));
        let process = "kill_probability: 0.01";
        let dir = stack(name, &[("compose.yaml", &compose), ("bloodhound.yaml", &config(process))]);
        let ran = run(&dir, &[]);
        assert!(count(&told(&ran, "fault"), "is killed") > 0, "{}", ran.shown());
        (ran.code, ran.shown())
    };
    let (ends, text) = code("faults-kill-careless", "while :; do sleep 1000; done");
    assert_eq!(ends, Some(1), "{text}");
    let (ends, text) = code("faults-kill-careful", "while :; do wait $$!; work & done");
    assert_eq!(ends, Some(0), "{text}");
}

#[test]
fn a_stop_asks_first_and_kills_after_its_timeout() {
    let services = "  polite:\n\
        \x20   x-bloodhound: {rootfs: host}\n\
        \x20   command: [sh, -c, 'trap \"echo bye; exit 0\" QUIT; echo up; while :; do sleep 0.1; done']\n\
        \x20   stop_signal: SIGQUIT\n\
        \x20 stubborn:\n\
        \x20   x-bloodhound: {rootfs: host}\n\
        \x20   command: [sh, -c, 'trap \"echo no\" TERM; echo up; while :; do sleep 0.1; done']\n";
    let process = "stop_probability: 0.001, stop_timeout_ms: 700";
    let ran = run(&faulty("faults-stop", services, process), &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.shown());
    assert!(
        count(&told(&ran, "fault"), "stop polite (SIGKILL after 700 ms) and start it again") > 0,
        "{}",
        ran.shown()
    );
    assert_eq!(lines(&ran, "polite")[..3], ["up", "bye", "up"], "{}", ran.shown());
    assert_eq!(lines(&ran, "stubborn")[..3], ["up", "no", "up"], "{}", ran.shown());
    let services = told(&ran, "service");
    assert!(count(&services, "polite ended: exit code 0") > 0, "{}", ran.shown());
    assert!(count(&services, "stubborn ended: killed by SIGKILL") > 0, "{}", ran.shown());
}

#[test]
fn a_crash_loop_crashes_as_often_as_it_says() {
    let services = "  one: {x-bloodhound: {rootfs: host}, command: [sh, -c, 'echo up; sleep 1000']}\n";
    let process = "crash_loop_probability: 0.0005, crash_loop_duration_ms: [1000, 2000], crash_loop_times: 4";
    let dir = faulty("faults-crash-loop", services, process);
    let looped = |seed: &str| {
        let ran = run(&dir, &["--seed", seed]);
        let loops = count(&told(&ran, "fault"), "crash one 4 times within");
        (ran, loops)
    };
    let (ran, _) =
        (0..10).map(|seed| looped(&seed.to_string())).find(|(_, loops)| *loops == 1).expect("a loop");
    assert_eq!(ran.code, Some(0), "{}", ran.shown());
    assert_eq!(lines(&ran, "one").len(), 5, "{}", ran.shown());
}

/// Times its own work, which is made of calls, and its sleeps.
const TIMES: &str = "import time\n\
    while True:\n\
    \x20   a = time.monotonic_ns()\n\
    \x20   for _ in range(2000): open('/dev/null').close()\n\
    \x20   b = time.monotonic_ns()\n\
    \x20   time.sleep(0.2)\n\
    \x20   c = time.monotonic_ns()\n\
    \x20   print('work', (b - a) // 1000, 'sleep', (c - b) // 1000, flush=True)\n";

#[test]
fn work_on_a_slow_node_takes_longer_and_sleeps_do_not() {
    let services = "  clock: {x-bloodhound: {rootfs: host}, command: [/usr/bin/python3, -c, \"exec(open('/src/times.py').read())\"], volumes: ['./times.py:/src/times.py:ro']}\n";
    let process = "slow_probability: 0.002, slow_factor: 5, slow_duration_ms: [2000, 3000]";
    let dir = faulty("faults-slow", services, process);
    put(&dir, "times.py", TIMES);
    let ran = run(&dir, &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.shown());
    assert!(
        count(&told(&ran, "fault"), "slow clock: all work takes 5 times as long, for ") > 0,
        "{}",
        ran.shown()
    );
    assert!(count(&told(&ran, "fault"), "slow of clock is over") > 0, "{}", ran.shown());
    let of = |line: &str, at: usize| line.split(' ').nth(at)?.parse::<u64>().ok();
    let (work, sleep): (Vec<u64>, Vec<u64>) =
        lines(&ran, "clock").iter().filter_map(|line| Some((of(line, 1)?, of(line, 3)?))).unzip();
    let (least, most) = (work.iter().min().expect("work"), work.iter().max().expect("work"));
    assert!(*most > 4 * least && *most < 6 * least, "{least} to {most} us");
    assert!(sleep.iter().all(|us| (200_000..201_000).contains(us)), "{sleep:?}");
}

/// Two threads, each of which tells when it was kept from running for long.
const THREADS: &str = "import threading, time\n\
    def turn(name):\n\
    \x20   last = time.monotonic()\n\
    \x20   while True:\n\
    \x20       time.sleep(0.05)\n\
    \x20       now = time.monotonic()\n\
    \x20       if now - last > 0.15: print(name, 'late', int((now - last) * 1000), flush=True)\n\
    \x20       last = now\n\
    threading.Thread(target=turn, args=('other',)).start()\n\
    turn('first')\n";

#[test]
fn a_starved_thread_waits_while_others_run() {
    let services = "  pair: {x-bloodhound: {rootfs: host}, command: [/usr/bin/python3, -c, \"exec(open('/src/threads.py').read())\"], volumes: ['./threads.py:/src/threads.py:ro']}\n";
    let process = "starve_probability: 0.002, starve_duration_ms: [400, 600]";
    let dir = faulty("faults-starve", services, process);
    put(&dir, "threads.py", THREADS);
    let ran = run(&dir, &[]);
    assert_eq!(ran.code, Some(0), "{}", ran.shown());
    let starved = count(&told(&ran, "fault"), "gets no processor");
    assert!(starved > 1, "{}", ran.shown());
    let late: Vec<&str> = lines(&ran, "pair");
    assert!((1..=starved).contains(&late.len()), "one thread at a time is late: {}", ran.shown());
    let ms = |line: &str| line.rsplit(' ').next().and_then(|ms| ms.parse::<u64>().ok());
    assert!(late.iter().all(|line| ms(line).is_some_and(|ms| (400..700).contains(&ms))), "{late:?}");
}

#[test]
fn one_more_kind_leaves_the_others_at_their_times() {
    let services = "  one: {x-bloodhound: {rootfs: host}, command: [sleep, '1000']}\n\
                    \x20 two: {x-bloodhound: {rootfs: host}, command: [sleep, '1000']}\n";
    let pauses = |name: &str, process: &str| -> Vec<String> {
        let ran = run(&faulty(name, services, process), &[]);
        let lines = ran.stdout.lines().filter(|line| line.contains("s fault ") && line.contains("pause"));
        lines.map(str::to_owned).collect()
    };
    let alone = pauses("faults-alone", "pause_probability: 0.002, pause_duration_ms: 100");
    assert!(alone.len() > 2, "{alone:?}");
    let more = "pause_probability: 0.002, pause_duration_ms: 100, slow_probability: 0.002, starve_probability: 0.001";
    assert_eq!(pauses("faults-with-others", more), alone);
}

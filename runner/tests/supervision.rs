//! Supervision of services as an engine does it: restarts and their pauses, health checks for the whole run, stops in order, jobs that
//! others wait for, an init as process 1, and what is set for processes.

use std::path::{Path, PathBuf};

use crate::common::*;

fn stack_with(name: &str, compose: &str, config: &str) -> PathBuf {
    stack(
        name,
        &[("compose.yaml", compose), ("bloodhound.yaml", &format!("compose: compose.yaml\n{config}"))],
    )
}

/// Runs the stack twice, which must be the same run.
fn run(dir: &Path) -> Ran {
    let ran = run_in(dir, &["run"]);
    assert_eq!(run_in(dir, &["run"]).stdout, ran.stdout, "two runs differ");
    ran
}

/// What the timeline says of a service, and when, in ms.
fn changes(ran: &Ran, service: &str) -> Vec<(u64, String)> {
    let of = |line: &str| {
        let (at, rest) = line.trim().split_once("s service")?;
        let text = rest.trim().strip_prefix(service)?.strip_prefix(' ')?.to_owned();
        let ms = at.trim().parse::<f64>().ok()? * 1000.0;
        Some((ms as u64, text))
    };
    ran.stdout.lines().filter_map(of).collect()
}

fn told(ran: &Ran, service: &str) -> Vec<String> {
    changes(ran, service).into_iter().map(|(_, text)| text).collect()
}

const EXACT: &str = "simulation: {max_time: 20s, start_spread: 0s, clock_spread: 0s, cost_spread: 0}\n\
                     faults: {duration: 15s, network: {drop_rate: 0.01}}\n\
                     properties: [{name: up, kind: safety, check: {type: no-crash}}]\n";

#[test]
fn restarts_have_pauses_that_double() {
    let compose = "services:\n\
        \x20 again: {x-bloodhound: {rootfs: host}, restart: always, command: [sh, -c, 'sleep 0.01']}\n\
        \x20 stays: {x-bloodhound: {rootfs: host}, command: [sleep, '1000']}\n";
    let ran = run(&stack_with("supervision-restart", compose, EXACT));
    let starts: Vec<u64> =
        changes(&ran, "again").iter().filter(|(_, text)| text == "started").map(|(at, _)| *at).collect();
    let gaps: Vec<u64> = starts.windows(2).map(|pair| (pair[1] - pair[0]) / 100).collect();
    assert_eq!(gaps[..6], [1, 2, 4, 8, 16, 32], "{}\n{}", ran.stdout, ran.stderr);
}

const FLAPS: &str = "services:\n\
    \x20 flaps:\n\
    \x20   x-bloodhound: {rootfs: host}\n\
    \x20   command: [sh, -c, 'touch /tmp/ok; sleep 5; rm /tmp/ok; sleep 4; touch /tmp/ok; sleep 1000']\n\
    \x20   healthcheck: {test: [CMD, test, -e, /tmp/ok], interval: 1s, timeout: 1s, retries: 2}\n";

#[test]
fn health_checks_go_on_for_the_whole_run() {
    let ran = run(&stack_with("supervision-health", FLAPS, EXACT));
    let changes = told(&ran, "flaps");
    let expected = ["started", "is healthy", "is unhealthy: 2 health checks failed in a row", "is healthy"];
    assert_eq!(changes, expected, "{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("health checks took "), "{}", ran.stderr);
}

#[test]
fn health_checks_can_end_when_a_service_is_healthy() {
    let config = EXACT.replace("simulation: {", "simulation: {healthchecks: until-ready, ");
    let ran = run(&stack_with("supervision-until-ready", FLAPS, &config));
    assert_eq!(told(&ran, "flaps"), ["started", "is healthy"], "{}\n{}", ran.stdout, ran.stderr);
    assert!(!ran.stderr.contains("health checks took "), "{}", ran.stderr);
}

#[test]
fn failures_in_the_start_period_do_not_count() {
    let compose = "services:\n\
        \x20 slow:\n\
        \x20   x-bloodhound: {rootfs: host}\n\
        \x20   command: [sh, -c, 'sleep 6; touch /tmp/ok; sleep 1000']\n\
        \x20   healthcheck: {test: [CMD, test, -e, /tmp/ok], interval: 30s, timeout: 1s, retries: 1, start_period: 10s, start_interval: 500ms}\n";
    let ran = run(&stack_with("supervision-start-period", compose, EXACT));
    let changes = changes(&ran, "slow");
    assert_eq!(changes.len(), 2, "{}\n{}", ran.stdout, ran.stderr);
    assert_eq!(changes[1].1, "is healthy");
    assert!((6000..7000).contains(&changes[1].0), "checked at the start interval: {changes:?}");
}

#[test]
fn a_job_that_fails_ends_the_start_of_those_that_wait_for_it() {
    let compose = "services:\n\
        \x20 migrate: {x-bloodhound: {rootfs: host}, command: [sh, -c, 'exit 3']}\n\
        \x20 web:\n\
        \x20   x-bloodhound: {rootfs: host}\n\
        \x20   command: [sleep, '1000']\n\
        \x20   depends_on: {migrate: {condition: service_completed_successfully}}\n";
    let ran = run(&stack_with("supervision-job", compose, EXACT));
    assert_eq!(ran.code, Some(5), "{}", ran.stderr);
    assert!(
        ran.stderr.contains("service web waits for migrate, which ended with exit code 3"),
        "{}",
        ran.stderr
    );
}

const DEPENDENT: &str = "services:\n\
    \x20 db: {x-bloodhound: {rootfs: host}, command: [sleep, '1000']}\n\
    \x20 polite:\n\
    \x20   x-bloodhound: {rootfs: host}\n\
    \x20   command: [sh, -c, 'trap \"echo bye; exit 0\" QUIT; echo up; while :; do sleep 0.1; done']\n\
    \x20   stop_signal: SIGQUIT\n\
    \x20   depends_on: {db: {condition: service_started, restart: true}}\n\
    \x20 stubborn:\n\
    \x20   x-bloodhound: {rootfs: host}\n\
    \x20   command: [sh, -c, 'trap \"echo no\" TERM; echo up; while :; do sleep 0.1; done']\n\
    \x20   stop_grace_period: 1s\n\
    \x20   depends_on: {db: {condition: service_started, restart: true}}\n\
    \x20 other:\n\
    \x20   x-bloodhound: {rootfs: host}\n\
    \x20   command: [sh, -c, 'echo up; sleep 1000']\n\
    \x20   depends_on: [db]\n";

#[test]
fn dependents_are_stopped_in_order_when_what_they_depend_on_starts_again() {
    let config = "simulation: {max_time: 20s}\nfaults: {swarm: false, duration: 15s, \
        process: {services: [db], crash_probability: 0.001, crash_restart_ms: [100, 200]}}\n\
        properties: [{name: up, kind: safety, check: {type: no-crash}}]\n";
    let ran = run(&stack_with("supervision-dependents", DEPENDENT, config));
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
    let crashes = told(&ran, "db").iter().filter(|text| *text == "started").count();
    assert!(crashes > 1, "db did not crash: {}", ran.stdout);
    let polite = told(&ran, "polite");
    let stop = polite.iter().position(|text| text == "is asked to stop").expect("a stop");
    assert_eq!(polite[stop + 1..stop + 3], ["ended: exit code 0", "started"], "{polite:?}");
    assert_eq!(lines(&ran, "polite")[..3], ["up", "bye", "up"]);
    let stubborn = told(&ran, "stubborn");
    assert!(stubborn.contains(&"ended: killed by SIGKILL".to_owned()), "{stubborn:?}");
    assert_eq!(lines(&ran, "stubborn")[..3], ["up", "no", "up"]);
    assert_eq!(lines(&ran, "other"), ["up"], "it does not ask for it");
}

#[test]
fn an_init_reaps_hands_signals_on_and_ends_as_its_command() {
    let script = "cat /proc/1/comm; echo me $$ parent $PPID; (sh -c 'sleep 0.2' & ) ; sleep 0.5; \
                  grep -l Z /proc/[0-9]*/stat; trap 'echo term; exit 7' TERM; kill -TERM 1; while :; do sleep 0.1; done";
    let compose = format!(
        "services:\n\
        \x20 init: {{x-bloodhound: {{rootfs: host}}, init: true, command: [sh, -c, \"{script}\"]}}\n\
        \x20 stays: {{x-bloodhound: {{rootfs: host}}, command: [sleep, '1000'], depends_on: [init]}}\n"
    )
    .replace('$', "$$");
    let config = EXACT.replace("max_time: 20s", "max_time: 20s, start_timeout: 5s");
    let ran = run(&stack_with("supervision-init", &compose, &config));
    // It ends before the stack is ready, as it is to be seen how.
    assert!(ran.stderr.contains("init (exit code 7)"), "{}\n{}", ran.stdout, ran.stderr);
    let printed: Vec<&str> =
        ran.stderr.lines().filter_map(|line| line.split_once(" init | ").map(|(_, text)| text)).collect();
    assert_eq!(printed, ["docker-init", "me 2 parent 1", "term"], "{}", ran.stderr);
}

/// "Only signals for which the "init" process has established a signal handler can be sent to the "init" process by other members of the PID namespace"
/// (pid_namespaces(7)). `unshare --fork --pid --mount-proc` shows the same lines of the same script.
#[test]
fn the_first_process_of_a_service_takes_no_signal_without_a_handler_for_it() {
    let script = "kill -TERM 1; kill -KILL 1; kill -STOP 1; echo own; sh -c 'kill -HUP 1; kill -KILL 1'; echo of a child; \
                  trap 'echo handled' USR1; kill -USR1 1; (sleep 0.1; kill -TERM 1) & wait; echo waited; \
                  sh -c 'kill -TERM $$; echo never'; echo $?; sleep 1000";
    let compose = format!(
        "services:\n\
        \x20 first: {{x-bloodhound: {{rootfs: host}}, command: [sh, -c, \"{script}\"]}}\n"
    )
    .replace('$', "$$");
    let ran = run(&stack_with("supervision-first", &compose, EXACT));
    let printed = lines(&ran, "first");
    assert_eq!(
        printed,
        ["own", "of a child", "handled", "waited", "Terminated", "143"],
        "{}\n{}",
        ran.stdout,
        ran.stderr
    );
    // abort(3) raises SIGABRT, which does nothing, and then makes the processor fault: a fault ends the first process as well.
    let abort = "import os, signal; os.kill(1, signal.SIGABRT); print('still here', flush=True); os.abort()";
    let compose = format!(
        "services:\n\x20 aborts: {{x-bloodhound: {{rootfs: host}}, command: [python3, -c, \"{abort}\"]}}\n"
    );
    let config = EXACT.replace("max_time: 20s", "max_time: 20s, start_timeout: 5s");
    let ran = run(&stack_with("supervision-aborts", &compose, &config));
    assert!(ran.stderr.contains("aborts | still here"), "{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.stderr.contains("aborts (killed by SIGSEGV)"), "{}\n{}", ran.stdout, ran.stderr);
}

/// At the heal a stop that is under way ends if the service does nothing about it; one that does has its time.
#[test]
fn a_stop_that_is_in_vain_ends_with_the_faults() {
    let compose = "services:\n\
        \x20 deaf: {x-bloodhound: {rootfs: host}, command: [python3, -m, http.server, '8000']}\n\
        \x20 slow: {x-bloodhound: {rootfs: host}, command: [sh, -c, 'trap \"sleep 2; exit 0\" TERM; sleep 1000 & wait']}\n\
        \x20 rolls: {x-bloodhound: {rootfs: host}, command: [sleep, '1000']}\n";
    let config = "simulation: {max_time: 40s}\nfaults:\n  duration: 15s\n  groups: {one: [rolls]}\n  schedule:\n\
        \x20   - {at: 2s, fault: rolling-restart, service: one, duration: 3s}\n\
        \x20   - {at: 14s, fault: stop, service: deaf, duration: 8s}\n\
        \x20   - {at: 14s, fault: stop, service: slow, duration: 8s}\n\
        properties: [{name: back, kind: liveness, timeout: 5s, check: {type: http, endpoint: 'http://deaf:8000/', expect: {status: 200}}}]\n";
    let ran = run(&stack_with("supervision-vain", compose, config));
    let took = |service: &str| {
        let changes = changes(&ran, service);
        let stop = changes.iter().position(|(_, text)| text == "is asked to stop").expect("a stop");
        let (ended, how) = &changes[stop + 1];
        let again = changes[stop + 2..].iter().any(|(_, text)| text == "started");
        (ended - changes[stop].0, how.clone(), again)
    };
    assert_eq!(
        took("deaf"),
        (1000, "ended: killed by SIGKILL".into(), true),
        "{}\n{}",
        ran.stdout,
        ran.stderr
    );
    // A rolling restart waits for nobody beyond its own time.
    assert_eq!(took("rolls"), (3000, "ended: killed by SIGKILL".into(), true));
    // The run may be over before it starts.
    let (ms, how, _) = took("slow");
    assert!((2000..2100).contains(&ms) && how == "ended: exit code 0", "{ms} {how}");
}

/// A service without a handler for SIGTERM is stopped when its grace period is over.
#[test]
fn a_service_that_handles_no_stop_signal_has_its_grace_period() {
    let compose = "services:\n\
        \x20 db: {x-bloodhound: {rootfs: host}, command: [sleep, '1000']}\n\
        \x20 deaf:\n\
        \x20   x-bloodhound: {rootfs: host}\n\
        \x20   command: [sleep, '1000']\n\
        \x20   stop_grace_period: 700ms\n\
        \x20   depends_on: {db: {condition: service_started, restart: true}}\n";
    let config = "simulation: {max_time: 20s}\nfaults: {swarm: false, duration: 15s, \
        process: {services: [db], crash_probability: 0.001, crash_restart_ms: [100, 200]}}\n\
        properties: [{name: up, kind: safety, check: {type: no-crash}}]\n";
    let ran = run(&stack_with("supervision-grace", compose, config));
    let deaf = changes(&ran, "deaf");
    let stop = deaf.iter().position(|(_, text)| text == "is asked to stop").expect("a stop");
    assert_eq!(deaf[stop + 1].1, "ended: killed by SIGKILL", "{deaf:?}");
    assert_eq!(deaf[stop + 1].0 - deaf[stop].0, 700, "{deaf:?}");
}

#[test]
fn limits_capabilities_and_parameters_are_those_of_the_file() {
    let compose = "services:\n\
        \x20 set:\n\
        \x20   x-bloodhound: {rootfs: host}\n\
        \x20   command: [sh, -c, 'ulimit -n; ulimit -Hn; grep CapBnd /proc/self/status; cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/pids.max /proc/sys/net/core/somaxconn; df /dev/shm | tail -n 1 | cut -c 1-60; sleep 1000']\n\
        \x20   ulimits: {nofile: {soft: 2000, hard: 4000}}\n\
        \x20   cap_drop: [ALL]\n\
        \x20   cap_add: [CHOWN, KILL]\n\
        \x20   mem_limit: 64m\n\
        \x20   pids_limit: 50\n\
        \x20   shm_size: 8m\n\
        \x20   sysctls: {net.core.somaxconn: 1024}\n";
    let ran = run(&stack_with("supervision-settings", compose, EXACT));
    let printed = lines(&ran, "set");
    assert_eq!(
        printed[..6],
        ["2000", "4000", "CapBnd:\t0000000000000021", "67108864", "50", "1024"],
        "{}\n{}",
        ran.stdout,
        ran.stderr
    );
    assert!(printed[6].contains("8192"), "{printed:?}");
}

/// Without `stdin_open` standard input is /dev/null; output and errors are pipes, which can be watched.
#[test]
fn standard_streams_are_those_of_a_container() {
    let script = "import os, stat, select, fcntl\n\
        null = os.fstat(0)\n\
        print(stat.S_ISCHR(null.st_mode), null.st_rdev == os.makedev(1, 3), os.readlink('/proc/self/fd/0'), os.read(0, 9))\n\
        print(stat.S_ISFIFO(os.fstat(1).st_mode), fcntl.fcntl(1, 1032), flush=True)\n\
        watch = select.epoll()\n\
        watch.register(1, select.EPOLLOUT); watch.register(2, select.EPOLLOUT | select.EPOLLET)\n\
        print(sorted(watch.poll(1)), watch.poll(1))\n\
        try: watch.register(0)\n\
        except OSError as error: print(error.strerror, flush=True)\n\
        import signal; signal.pause()\n";
    let compose = "services:\n\x20 streams:\n\x20   x-bloodhound: {rootfs: host}\n\x20   command: [python3, /app/streams.py]\n\
        \x20   volumes: ['./streams.py:/app/streams.py']\n";
    let files = [
        ("compose.yaml", compose),
        ("streams.py", script),
        ("bloodhound.yaml", &format!("compose: compose.yaml\n{EXACT}")),
    ];
    let ran = run(&stack("supervision-streams", &files));
    assert_eq!(
        lines(&ran, "streams"),
        ["True True /dev/null b''", "True 65536", "[(1, 4), (2, 4)] [(1, 4)]", "Operation not permitted"],
        "{}\n{}",
        ran.stdout,
        ran.stderr
    );
}

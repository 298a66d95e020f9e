//! Faults that programs meet when they ask for something of a disk: what a service sees, what is told of it, how often it happens, that it
//! happens again, and that a service which does not look at what it is answered is caught.

use std::path::{Path, PathBuf};

use crate::common::{Ran, lines, put, run_in, scratch, stays_under};

/// Tries everything in each round, whatever came of it before, and says what failed.
const ROUNDS: &str = r#"#!/usr/bin/env python3
import errno, os
fd = os.open("/var/tmp/log", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
memory = os.open("/dev/shm/log", os.O_RDWR | os.O_CREAT, 0o644)
def attempt(name, n, call, expected=None):
    try:
        got = call()
        if expected is not None and got != expected:
            print(name, n, "short", got, flush=True)
    except OSError as e:
        print(name, n, errno.errorcode[e.errno], flush=True)
import time
time.sleep(1.5)
for n in range(ROUNDS):
    attempt("write", n, lambda: os.pwrite(fd, b"x" * 6000, 0), 6000)
    attempt("fsync", n, lambda: os.fsync(fd))
    attempt("read", n, lambda: len(os.pread(fd, 100, 0)))
    attempt("memory", n, lambda: os.pwrite(memory, b"x" * 6000, 0), 6000)
    attempt("memory", n, lambda: os.fsync(memory))
print("rounds", ROUNDS, flush=True)
time.sleep(1000)
"#;

/// Appends records, and reads them all in the end: what was acknowledged must be there, and whole.
const RECORDS: &str = r#"#!/usr/bin/env python3
import os, time
SIZE = 100
fd = os.open("/var/tmp/records", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
acknowledged = []
time.sleep(1.5)
for n in range(800):
    record = (b"%08d" % n).ljust(SIZE, b".")
    good = SIZE * len(acknowledged)
    if CAREFUL:
        try:
            left = record
            while left:
                left = left[os.write(fd, left):]
            os.fsync(fd)
        except OSError:
            os.ftruncate(fd, good)
            continue
    else:
        try:
            os.write(fd, record)
        except OSError:
            continue
    acknowledged.append(n)
time.sleep(5)
data = open("/var/tmp/records", "rb").read()
there = [data[at : at + 8] for at in range(0, len(data), SIZE)]
assert there == [b"%08d" % n for n in acknowledged], "a record is lost or torn"
print("whole", flush=True)
time.sleep(1000)
"#;

/// A stack of one service, whose file is `program`, with these faults.
fn stack(name: &str, program: &str, faults: &str) -> PathBuf {
    let dir = scratch(&format!("disk-faults-{name}"));
    put(&dir, "service", program);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.join("service"), mode).expect("a mode");
    put(
        &dir,
        "compose.yaml",
        "services:\n  one:\n    command: [/app/service]\n    volumes: ['./:/app:ro']\n    x-bloodhound: {rootfs: host}\n",
    );
    configure(&dir, faults);
    dir
}

fn configure(dir: &Path, faults: &str) {
    stays_under(dir, "max_time: 40s", faults);
}

fn run(dir: &Path, seed: u64) -> Ran {
    let ran = run_in(dir, &["run", "--seed", &seed.to_string()]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    ran
}

/// What the timeline tells of faults of a kind.
fn told<'a>(ran: &'a Ran, kind: &str) -> Vec<&'a str> {
    let mark = format!(" fault    {kind}: ");
    ran.stdout.lines().filter_map(|line| line.split_once(&mark).map(|(_, text)| text)).collect()
}

/// What the service says of one kind of its attempts, without the numbers of bytes.
fn seen(ran: &Ran, call: &str, how: &str) -> Vec<String> {
    let of = |line: &&&str| line.starts_with(call) && line.contains(how);
    lines(ran, "one").iter().filter(of).map(|line| (*line).to_owned()).collect()
}

fn rounds(count: u32) -> String {
    ROUNDS.replace("ROUNDS", &count.to_string())
}

#[test]
fn each_is_seen_told_and_happens_again() {
    let faults = "  disk: {write_fail_rate: 0.05, partial_write_rate: 0.05, fsync_fail_rate: 0.05, read_fail_rate: 0.05}\n";
    let dir = stack("seen", &rounds(1000), faults);
    let ran = run(&dir, 1);
    assert_eq!(seen(&ran, "rounds", ""), ["rounds 1000"], "{}", ran.stdout);
    assert_eq!(seen(&ran, "memory", ""), [""; 0], "what lies in memory has no disk");
    let short = seen(&ran, "write", "short 4096").len();
    // Each write that was cut short is followed by one that fails.
    let failed = seen(&ran, "write", "EIO").len() - short;
    let counts = [
        ("write-fail", failed),
        ("partial-write", short),
        ("fsync-fail", seen(&ran, "fsync", "EIO").len()),
        ("read-fail", seen(&ran, "read", "EIO").len()),
    ];
    for (kind, count) in counts {
        assert_eq!(told(&ran, kind).len(), count, "{kind}: {}", ran.stdout);
        // A thousand at five of a hundred: the standard deviation is seven.
        assert!(count.abs_diff(50) < 35, "{kind}: {count}");
    }
    let first = told(&ran, "fsync-fail")[0];
    assert!(first.starts_with("fsync of /var/tmp/log by one (process "), "{first}");
    assert!(first.ends_with("): EIO"), "{first}");
    assert!(told(&ran, "partial-write")[0].ends_with(": 4096 of 6000 bytes, then EIO"));
    let again = run(&dir, 1);
    assert_eq!(again.run_digest(), ran.run_digest());
    assert_ne!(run(&dir, 2).run_digest(), ran.run_digest());
}

#[test]
fn another_rate_of_one_kind_changes_no_other_choice() {
    let of = |write: &str| {
        format!("  disk: {{write_fail_rate: {write}, fsync_fail_rate: 0.05, read_fail_rate: 0.02}}\n")
    };
    let dir = stack("independent", &rounds(500), &of("0"));
    let without = run(&dir, 7);
    configure(&dir, &of("0.2"));
    let with = run(&dir, 7);
    assert!(seen(&without, "write", "").is_empty() && seen(&with, "write", "EIO").len() > 50);
    for call in ["fsync", "read"] {
        assert!(!seen(&with, call, "EIO").is_empty());
        assert_eq!(seen(&with, call, "EIO"), seen(&without, call, "EIO"));
    }
}

#[test]
fn rates_of_nothing_cost_nothing() {
    let dir = stack("nothing", &rounds(100), "  network: {drop_rate: 0.01}\n");
    let without = run(&dir, 3);
    configure(&dir, "  network: {drop_rate: 0.01}\n  disk: {write_fail_rate: 0, disk_latency_ms: 3}\n");
    let with = run(&dir, 3);
    assert_eq!(with.run_digest(), without.run_digest());
}

#[test]
fn a_disk_that_is_full_slow_read_only_or_used_up_for_a_while() {
    let program = r#"#!/usr/bin/env python3
import errno, os, time
fd = os.open("/var/tmp/log", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
before = None
while True:
    start = time.monotonic()
    try:
        os.write(fd, b"x" * 5000)
        os.fsync(fd)
        now = "slow" if time.monotonic() - start > 0.05 else "good"
    except OSError as e:
        now = errno.errorcode[e.errno]
    if now != before:
        print("disk", now, flush=True)
    before = now
    time.sleep(0.02)
"#;
    for (kind, keys, word, name) in [
        ("full", "disk_full_ms: 700", "disk ENOSPC", "the disk of one is full for 700 ms (ENOSPC)"),
        (
            "readonly",
            "disk_readonly_ms: 700",
            "disk EROFS",
            "the disk of one is read-only for 700 ms (EROFS)",
        ),
        (
            "slow",
            "disk_slow_ms: 700, disk_latency_ms: 60",
            "disk slow",
            "the disk of one is slow for 700 ms (60 ms a call)",
        ),
        (
            "quota",
            "disk_quota_ms: 700",
            "disk EDQUOT",
            "the quota of one on its disk is used up for 700 ms (EDQUOT)",
        ),
    ] {
        let faults = format!("  disk: {{disk_{kind}_probability: 0.01, {keys}}}\n");
        let dir = stack(kind, program, &faults);
        let ran = run(&dir, 1);
        let said = lines(&ran, "one");
        assert!(said.contains(&word), "{kind}: {}", ran.stdout);
        // A fault that the end of the phase cuts off is healed when the run ends.
        let (first, good) =
            (said.iter().position(|line| *line == word), said.iter().rposition(|line| *line == "disk good"));
        assert!(first < good, "{kind} ends: {}", ran.stdout);
        assert!(ran.stdout.contains(name), "{}", ran.stdout);
        assert_eq!(run(&dir, 1).run_digest(), ran.run_digest());
    }
}

#[test]
fn a_service_that_does_not_look_at_what_it_is_answered_is_caught() {
    let faults = "  disk: {write_fail_rate: 0.01, partial_write_rate: 0.3, fsync_fail_rate: 0.01}\n";
    let careless = stack("careless", &RECORDS.replace("CAREFUL", "False"), faults);
    let ran = run_in(&careless, &["test", "--seeds", "3"]);
    assert_eq!(ran.code, Some(1), "{}{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("partial-write"), "{}", ran.stdout);
    let careful = stack("careful", &RECORDS.replace("CAREFUL", "True"), faults);
    let ran = run_in(&careful, &["test", "--seeds", "3"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
}

/// Takes what runs out: each attempt that fails says how.
const RESOURCES: &str = r#"#!/usr/bin/env python3
import errno, mmap, os, socket, threading, time
def attempt(name, call):
    try:
        call()
    except OSError as e:
        print(name, errno.errorcode[e.errno], flush=True)
def bind():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
def connect():
    with socket.socket() as s:
        s.connect(("127.0.0.1", 9000))
def fork():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
condition = threading.Condition()
time.sleep(1.5)
server = socket.create_server(("127.0.0.1", 9000), backlog=200)
for n in range(100):
    attempt("open", lambda: os.close(os.open("/etc/passwd", os.O_RDONLY)))
    attempt("bind", bind)
    attempt("connect", connect)
    attempt("fork", fork)
    attempt("mmap", lambda: mmap.mmap(-1, 1 << 20).close())
    with condition:
        condition.wait(0.01)
print("rounds", flush=True)
time.sleep(1000)
"#;

#[test]
fn resources_run_out_and_futex_waits_end_for_nothing() {
    let faults = "  resources: {enfile_rate: 0.05, enomem_rate: 0.03, fork_fail_rate: 0.1, port_exhaustion_rate: 0.1}\n  \
                  kernel: {futex_wake_rate: 0.2}\n";
    let dir = stack("resources", RESOURCES, faults);
    let ran = run(&dir, 1);
    let said = lines(&ran, "one");
    for word in ["open ENFILE", "bind EADDRINUSE", "connect EADDRNOTAVAIL", "fork EAGAIN", "rounds"] {
        assert!(said.contains(&word), "{word}: {}", ran.stdout);
    }
    let forks = said.iter().filter(|line| **line == "fork EAGAIN").count();
    assert_eq!(told(&ran, "fork-fail").len(), forks);
    assert!(!told(&ran, "futex-wake").is_empty(), "{}", ran.stdout);
    assert_eq!(run(&dir, 1).run_digest(), ran.run_digest());
}

#[test]
fn bad_values_point_at_their_place() {
    let dir = stack("values", &rounds(1), "  disk: {write_fail_rate: 1.5}\n");
    for (faults, place) in [
        ("  disk: {write_fail_rate: 1.5}\n", "bloodhound.yaml:7"),
        ("  disk: {fsync_fail_rate: -0.1}\n", "bloodhound.yaml:7"),
        ("  disk: {disk_full_ms: [5, 1]}\n", "bloodhound.yaml:7"),
        ("  disk: {fsync_rate: 0.1}\n", "bloodhound.yaml:7"),
    ] {
        configure(&dir, faults);
        let ran = run_in(&dir, &["run", "--seed", "1"]);
        assert_eq!(ran.code, Some(2), "{faults}: {}", ran.stderr);
        assert!(ran.stderr.contains(place), "{faults}: {}", ran.stderr);
    }
}

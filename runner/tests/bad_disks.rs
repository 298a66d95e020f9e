//! Disks with bad sectors, slow ones, and disks that lie, as services see them: what is told of it, that it happens again, and that a service
//! which trusts its disk too far is caught.

use std::path::{Path, PathBuf};

use crate::common::{Ran, compile, lines, put, repository, run_in, scratch, stays_under};

/// A stack of one service, whose program is /app/service, with these faults.
fn stack(name: &str, faults: &str) -> PathBuf {
    let dir = scratch(&format!("bad-disks-{name}"));
    put(
        &dir,
        "compose.yaml",
        "services:\n  one:\n    command: [/app/service]\n    volumes: ['./:/app:ro', 'data:/data']\n    \
         x-bloodhound: {rootfs: host}\nvolumes: {data: }\n",
    );
    configure(&dir, faults);
    dir
}

fn configure(dir: &Path, faults: &str) {
    stays_under(dir, "max_time: 40s, boots: 1", faults);
}

/// The same with a program in Python.
fn python(name: &str, program: &str, faults: &str) -> PathBuf {
    let dir = stack(name, faults);
    put(&dir, "service", program);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.join("service"), mode).expect("a mode");
    dir
}

fn run(dir: &Path, args: &[&str]) -> Ran {
    let args: Vec<&str> = ["run"].iter().chain(args).copied().collect();
    let ran = run_in(dir, &args);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    assert_eq!(run_in(dir, &args).run_digest(), ran.run_digest(), "two runs differ");
    ran
}

/// What stands behind a mark in the timeline.
fn told<'a>(ran: &'a Ran, mark: &str) -> Vec<&'a str> {
    ran.stdout.lines().filter_map(|line| line.split_once(mark).map(|(_, text)| text)).collect()
}

#[test]
fn a_bad_sector_is_eio_and_sigbus_until_it_is_written() {
    let dir = stack("sectors", "  disk: {bad_sector_probability: 0.004}\n");
    compile(&repository().join("runner/tests/every_fault/sectors.c"), &dir.join("service"), &["-O1"]);
    let ran = run(&dir, &["--seed", "1"]);
    let bad = told(&ran, "one cannot read 4096 bytes of /var/tmp/data from byte ");
    assert!(bad.len() > 2, "{}", ran.stdout);
    assert_eq!(told(&ran, "a sector of the disk of one goes bad (EIO, SIGBUS)").len(), bad.len());
    let said = lines(&ran, "one");
    let mut expected = Vec::new();
    for at in bad.iter().filter_map(|text| text.split_once(' ').map(|(at, _)| at)) {
        for (what, how) in [
            ("read", "EIO"),
            ("mapped", "SIGBUS"),
            ("mapped", "SIGBUS"),
            ("memory", "EFAULT"),
            ("part", "EIO"),
            ("whole", "4096"),
            ("then", "good"),
        ] {
            expected.push(format!("{what} {at} {how}"));
        }
    }
    assert_eq!(said, expected, "{}", ran.stdout);
    let met = told(&ran, " fault    bad-sector: ");
    let with = |text: &str| met.iter().filter(|line| line.starts_with(text)).count();
    assert_eq!(with("page fault of /var/tmp/data by one (process "), 2 * bad.len(), "{}", ran.stdout);
    assert_eq!(with("pread64 of /var/tmp/data by one (process "), bad.len());
    assert_eq!(with("pwrite64 of /var/tmp/data by one (process "), bad.len());
    // As a schedule, alone.
    let saved = run(&dir, &["--seed", "1", "--save-faults", "faults.yaml"]);
    assert_eq!(saved.run_digest(), ran.run_digest());
    let again = run(&dir, &["--seed", "1", "--faults", "faults.yaml"]);
    assert_eq!(lines(&again, "one"), said, "{}", again.stdout);
}

#[test]
fn an_unmet_sector_has_no_effect_and_a_campaign_says_so() {
    let program = "#!/usr/bin/env python3\nimport os, time\nfd = os.open('/data/file', os.O_RDWR | os.O_CREAT)\n\
                   os.write(fd, b'x' * 9000)\nos.fsync(fd)\ntime.sleep(1000)\n";
    let dir = python("unmet", program, "  schedule: [{at: 2s, fault: bad-sector, service: one}]\n");
    let ran = run_in(&dir, &["test", "--seeds", "2"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    let line = "bad-sector: 2 injected, 0 had an effect; without effect: no program met it (2)";
    assert!(ran.stdout.contains(line), "{}", ran.stdout);
}

#[test]
fn a_slow_disk_delays_reads_that_are_not_cached() {
    let program = r#"#!/usr/bin/env python3
import os, time
fd = os.open("/data/file", os.O_RDWR | os.O_CREAT)
os.write(fd, b"x" * 4096 * 20)
before = "fast"
round = 0
while True:
    start = time.monotonic()
    os.pread(fd, 4096, 4096 * (round % 20))
    now = "slow" if time.monotonic() - start > 0.05 else "fast"
    if now != before:
        print("read", now, flush=True)
    before = now
    round += 1
    time.sleep(0.01)
"#;
    let faults = "  disk: {disk_latency_ms: 60}\n  schedule: [{at: 2s, fault: disk-slow, service: one, duration: 5s}]\n";
    let dir = python("slow", program, faults);
    let ran = run(&dir, &["--seed", "1"]);
    // Twenty blocks are read once each from the disk, and then they are cached.
    assert_eq!(lines(&ran, "one"), ["read slow", "read fast"], "{}", ran.stdout);
}

/// Keeps two files of blocks that say where they belong, and looks at them when it starts. Only in the first life there are none.
const TRUSTING: &str = r#"#!/usr/bin/env python3
import os
names = ["/data/a", "/data/b"]
there = [os.path.exists(name) for name in names]
assert all(there) or not any(there), "a file is gone"
directory = os.open("/data", os.O_RDONLY)
files = []
for name in names:
    fd = os.open(name, os.O_RDWR | os.O_CREAT)
    for block in range(4):
        data = os.pread(fd, 4096, block * 4096)
        own = b"%s %d\n" % (name.encode(), block)
        assert not data or not there[0] or data.startswith(own), (own, data[:20])
        os.pwrite(fd, own.ljust(4096, b"."), block * 4096)
    os.fsync(fd)
    files.append((fd, name))
os.fsync(directory)
if not there[0]:
    print("first", flush=True)
import time
n = 0
while True:
    fd, name = files[n % 2]
    block = n // 2 % 4
    os.pwrite(fd, (b"%s %d\n%d" % (name.encode(), block, n)).ljust(4096, b"."), block * 4096)
    os.fsync(fd)
    n += 1
    time.sleep(0.02)
"#;

/// With a rate of a disk that lies, and power failures; the disk model promises that what is synced stays.
fn lying(key: &str) -> String {
    format!(
        "  disk: {{{key}}}\n  process: {{power_failure_probability: 0.002, power_restart_ms: [100, 400]}}\n"
    )
}

#[test]
fn a_service_that_trusts_a_disk_that_lies_is_caught() {
    let dir = python("honest", TRUSTING, &lying("misdirected_write_rate: 0, vanished_file_rate: 0"));
    let ran = run_in(&dir, &["test", "--seeds", "3"]);
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    for (name, key, mark) in [
        ("misdirected", "misdirected_write_rate: 0.05", " fault    misdirected: fsync of /data/"),
        ("vanished", "vanished_file_rate: 0.5", " (vanished-file)"),
    ] {
        let dir = python(name, TRUSTING, &lying(key));
        let ran = run_in(&dir, &["test", "--seeds", "3", "--fail-fast"]);
        assert_eq!(ran.code, Some(1), "{name}: {}{}", ran.stdout, ran.stderr);
        let findings = std::fs::read_dir(dir.join("out/findings")).expect("findings");
        let found = findings.map(|entry| entry.expect("an entry").path()).min().expect("a finding");
        let replay = run_in(&dir, &["replay", &found.to_string_lossy()]);
        assert_eq!(replay.code, Some(1), "{name}: {}{}", replay.stdout, replay.stderr);
        assert!(replay.stdout.contains(mark), "{name}: {}", replay.stdout);
        assert_eq!(run_in(&dir, &["replay", &found.to_string_lossy()]).run_digest(), replay.run_digest());
    }
}

/// What is saved of them names the volume, and the same happens from the file.
#[test]
fn a_lie_about_a_volume_is_saved_with_it() {
    for (kind, key) in
        [("misdirected", "misdirected_write_rate: 0.05"), ("vanished-file", "vanished_file_rate: 0.5")]
    {
        let faults = format!("  targets: {{{kind}: [{{volume: data}}]}}\n{}", lying(key));
        let dir = python(&format!("saved-{kind}"), TRUSTING, &faults);
        let seeds = ["0", "1", "2"];
        let failed = seeds.iter().find_map(|seed| {
            let ran = run_in(&dir, &["run", "--seed", seed, "--save-faults", "faults.yaml"]);
            (ran.code == Some(1)).then_some((seed, ran))
        });
        let (seed, ran) = failed.unwrap_or_else(|| panic!("{kind}: no seed fails"));
        let saved = std::fs::read_to_string(dir.join("faults.yaml")).expect("the faults");
        assert!(saved.contains(&format!("fault: {kind}, volume: data}}")), "{saved}");
        let again = run_in(&dir, &["run", "--seed", seed, "--faults", "faults.yaml"]);
        assert_eq!(again.code, Some(1), "{kind}: {}{}", again.stdout, again.stderr);
        assert_eq!(told(&again, " fault    "), told(&ran, " fault    "), "{kind}");
        assert_eq!(lines(&again, "one"), lines(&ran, "one"), "{kind}");
    }
}

#[test]
fn bad_values_point_at_their_place() {
    let dir = stack("values", "");
    for faults in [
        "  disk: {bad_sector_probability: 1.5}\n",
        "  disk: {misdirected_write_rate: -0.1}\n",
        "  disk: {vanished_file_rate: 10ms}\n",
        "  disk: {disk_quota_ms: [5, 1]}\n",
        "  schedule: [{at: 1s, fault: vanished-file}]\n",
    ] {
        configure(&dir, faults);
        let ran = run_in(&dir, &["run", "--seed", "1"]);
        assert_eq!(ran.code, Some(2), "{faults}: {}", ran.stderr);
        assert!(ran.stderr.contains("bloodhound.yaml:7"), "{faults}: {}", ran.stderr);
    }
}

//! Code coverage of unmodified programs in campaigns: figures, thresholds, reports, and that nothing of a run depends on it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Ran, finish, run_in, stack};

/// Of twelve lines with code nine are reached; one function never is.
const SERVICE: &str = "#include <stdio.h>
#include <unistd.h>

static int used(int n)
{
\treturn n + 1;
}

__attribute__((noinline)) static int forgotten(int n)
{
\tputs(\"never\");
\treturn n * 2;
}

int main(int argc, char **argv)
{
\tint n = used(argc);
\tif (n > 100)
\t\tn = forgotten(n);
\tprintf(\"up %d %s\\n\", n, argv[0]);
\tfflush(stdout);
\tfor (;;)
\t\tsleep(1);
}
";

const COMPOSE: &str = "services:
  one:
    command: [/app/service]
    volumes: ['./:/app:ro']
    x-bloodhound: {rootfs: host}
  two:
    command: [/app/service]
    volumes: ['./:/app:ro']
    x-bloodhound: {rootfs: host}
";

/// Violated in every seed: its findings have the digests of the runs.
const NEVER: &str = "compose: compose.yaml
output: {dir: out}
simulation: {max_time: 5s}
faults: {duration: 1s, network: {drop_rate: 0.01}, process: {crash_probability: 0.001}}
properties:
  - {name: never, kind: safety, check: {type: custom, script: ./no.sh}}
";

const STAYS: &str = "compose: compose.yaml
output: {dir: out}
simulation: {max_time: 5s}
faults: {duration: 1s, network: {drop_rate: 0.01}}
properties:
  - {name: stays, kind: safety, check: {type: no-crash}}
";

fn service(name: &str, config: &str, flags: &[&str]) -> PathBuf {
    let files = [
        ("service.c", SERVICE),
        ("compose.yaml", COMPOSE),
        ("bloodhound.yaml", config),
        ("no.sh", "#!/bin/sh\nexit 1\n"),
    ];
    let dir = stack(&format!("coverage-{name}"), &files);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.join("no.sh"), mode).expect("a mode");
    let mut compiler = Command::new("cc");
    compiler.current_dir(&dir).args(flags).args(["-o", "service", "service.c"]);
    let ran = finish(&mut compiler, b"");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    dir
}

fn json(ran: &Ran) -> serde_json::Value {
    let line = ran.stdout.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {}\n{}", ran.stdout, ran.stderr))
}

fn read(dir: &Path, file: &str) -> String {
    std::fs::read_to_string(dir.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

#[test]
fn lines_are_counted_and_what_is_missing_is_named() {
    let config = format!("{STAYS}coverage: {{source: .}}\n");
    let dir = service(
        "lines",
        &config.replace("{dir: out}", "{dir: out, coverage_format: [html, lcov, cobertura, json]}"),
        &["-g", "-O0"],
    );
    let low = run_in(&dir, &["test", "--seeds", "2", "--coverage-threshold", "90%"]);
    assert_eq!(low.code, Some(3), "{}\n{}", low.stdout, low.stderr);
    for part in ["FAIL  coverage", "lines were reached, at least 90.0% are wanted", "forgotten (service.c:9)"]
    {
        assert!(low.stdout.contains(part), "{part}: {}", low.stdout);
    }
    assert!(!low.stdout.contains("used (service.c"), "{}", low.stdout);
    let junit = read(&dir, "out/junit.xml");
    assert!(junit.contains("<testcase name=\"coverage\"") && junit.contains("forgotten"), "{junit}");
    // The lines of `forgotten` and its call, by any tool that reads the format.
    let lcov = read(&dir, "out/coverage/lcov.info");
    for line in ["DA:6,1", "DA:11,0", "DA:12,0", "DA:19,0", "DA:20,1", "DA:23,1"] {
        assert!(lcov.lines().any(|l| l == line), "{line}: {lcov}");
    }
    for file in ["html/index.html", "cobertura.xml", "coverage.json"] {
        assert!(dir.join("out/coverage").join(file).is_file(), "{file}");
    }
    let enough = run_in(&dir, &["test", "--seeds", "2", "--coverage-threshold", "50%", "--format", "json"]);
    assert_eq!(enough.code, Some(0), "{}\n{}", enough.stdout, enough.stderr);
    // The same of all together and of each service, as both run one program; any number of workers.
    let shares = json(&enough)["coverage"].clone();
    assert_eq!(shares.as_array().map(Vec::len), Some(3), "{shares}");
    assert!(
        shares.as_array().is_some_and(|all| all.iter().all(|of| of["units"] == shares[0]["units"])),
        "{shares}"
    );
    for jobs in ["1", "2"] {
        let again = run_in(&dir, &["test", "--seeds", "4", "-j", jobs, "--format", "json"]);
        assert_eq!(json(&again)["coverage"], shares, "{jobs} workers: {}", again.stderr);
    }
    let merged = run_in(
        &dir,
        &["coverage", "merge", "out/coverage/coverage.json", "out/coverage/coverage.json", "-o", "all.json"],
    );
    assert_eq!(merged.code, Some(0), "{}", merged.stderr);
    let report = run_in(
        &dir,
        &["coverage", "report", "all.json", "--format", "lcov", "-o", "again", "--threshold", "90%"],
    );
    assert_eq!(report.code, Some(3), "{}", report.stderr);
    assert_eq!(read(&dir, "again/lcov.info"), lcov);
}

#[test]
fn a_run_is_the_same_with_and_without_coverage() {
    for platform in ["ptrace", "kvm"] {
        if platform == "kvm" && bloodhound_platform_tests::without_kvm("coverage on kvm") {
            continue;
        }
        let dir = service(&format!("same-{platform}"), NEVER, &["-g", "-O2"]);
        let digests = |args: &[&str]| {
            let args = [&["test", "--seeds", "3", "--format", "json"], args].concat();
            let ran = finish(&mut crate::common::command_on(Some(platform), &dir, &args), b"");
            assert_eq!(ran.code, Some(1), "{}\n{}", ran.stdout, ran.stderr);
            let findings = json(&ran)["findings"].clone();
            let of = |finding: &serde_json::Value| (finding["seed"].clone(), finding["digest"].clone());
            findings.as_array().expect("findings").iter().map(of).collect::<Vec<_>>()
        };
        let without = digests(&[]);
        assert_eq!(without.len(), 3);
        assert_eq!(digests(&["--coverage"]), without, "{platform}");
        assert_eq!(digests(&["--coverage", "-j", "1"]), without, "{platform}");
    }
}

#[test]
fn what_is_not_measured_is_said_and_no_threshold_holds_over_it() {
    let dir = service("without", STAYS, &["-O2"]);
    let ran = run_in(&dir, &["test", "--seeds", "1", "--coverage-threshold", "1%"]);
    assert_eq!(ran.code, Some(4), "{}\n{}", ran.stdout, ran.stderr);
    for part in ["/app/service is not measured", "-g"] {
        assert!(ran.stdout.contains(part), "{part}: {}", ran.stdout);
    }
    // Its functions can be counted; a service that does not count keeps nothing back.
    let config = format!(
        "{STAYS}coverage:\n  source: .\n  services:\n    - {{service: one, unit: functions, threshold: 10%}}\n    - {{service: two, exclude: true}}\n"
    );
    std::fs::write(dir.join("bloodhound.yaml"), config).expect("a file");
    let ran = run_in(&dir, &["test", "--seeds", "1"]);
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains("coverage of one: ") && ran.stdout.contains(" functions"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("coverage of two"), "{}", ran.stdout);
}

#[test]
fn a_stripped_program_is_counted_by_blocks() {
    let config = format!("{STAYS}coverage: {{source: ., unit: blocks, threshold: 10%}}\n");
    let dir = service("stripped", &config, &["-O2", "-s"]);
    let ran = run_in(&dir, &["test", "--seeds", "1"]);
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
    assert!(ran.stdout.contains(" blocks"), "{}", ran.stdout);
}

/// A service in another language: its file, what it has, how it is built, and lines of its report.
struct Foreign {
    name: &'static str,
    needs: &'static [&'static str],
    files: &'static [(&'static str, &'static str)],
    build: &'static [&'static str],
    lines: &'static [&'static str],
    not_reached: &'static str,
}

const FOREIGN: &[Foreign] = &[
    Foreign {
        name: "cpp",
        needs: &["g++"],
        files: &[(
            "service.cpp",
            "#include <cstdio>
#include <stdexcept>
#include <unistd.h>

template <typename T> struct Store {
\tT last{};
\tT put(T value)
\t{
\t\tif (value < 0)
\t\t\tthrow std::runtime_error(\"negative\");
\t\tlast = value;
\t\treturn last;
\t}
\tT never()
\t{
\t\treturn last * 2;
\t}
};

int main(int argc, char **)
{
\tStore<int> ints;
\tStore<long> longs;
\tlongs.put(argc);
\ttry {
\t\tints.put(-argc);
\t} catch (const std::exception &error) {
\t\tstd::printf(\"caught %s\\n\", error.what());
\t}
\tif (argc > 100)
\t\tints.never();
\tstd::fflush(stdout);
\tfor (;;)
\t\tsleep(1);
}
",
        )],
        build: &["g++", "-g", "-O0", "-o", "service", "service.cpp"],
        lines: &["DA:9,1", "DA:10,1", "DA:12,1", "DA:16,0", "DA:28,1", "DA:31,0"],
        not_reached: "never",
    },
    Foreign {
        name: "go",
        needs: &["go"],
        files: &[
            ("go.mod", "module example.org/service\n\ngo 1.19\n"),
            (
                "main.go",
                "package main

import (
\t\"fmt\"
\t\"os\"
\t\"time\"
)

//go:noinline
func forgotten(n int) int {
\tfmt.Println(\"never\")
\treturn n * 2
}

func main() {
\tdone := make(chan int)
\tgo func() {
\t\tdone <- len(os.Args)
\t}()
\tn := <-done
\tif n > 100 {
\t\tn = forgotten(n)
\t}
\tfmt.Println(\"up\", n)
\tfor {
\t\ttime.Sleep(time.Second)
\t}
}
",
            ),
        ],
        build: &["go", "build", "-o", "service", "."],
        lines: &["DA:11,0", "DA:12,0", "DA:16,1", "DA:18,1", "DA:20,1", "DA:22,0", "DA:24,1"],
        not_reached: "forgotten",
    },
];

#[test]
fn services_in_other_languages_have_their_lines() {
    for foreign in FOREIGN.iter().filter(|of| crate::common::have(of.needs, of.name)) {
        let dir = stack(&format!("coverage-{}", foreign.name), foreign.files);
        crate::common::put(&dir, "compose.yaml", COMPOSE);
        let config = STAYS.replace("{dir: out}", "{dir: out, coverage_format: [lcov]}");
        crate::common::put(&dir, "bloodhound.yaml", &format!("{config}coverage: {{source: .}}\n"));
        let mut build = Command::new(foreign.build[0]);
        build.current_dir(&dir).args(&foreign.build[1..]);
        // Go's own packages are compiled once for all runs of the tests.
        let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache");
        build.env("GOCACHE", cache).env("HOME", &dir).env("CGO_ENABLED", "0");
        build.envs([("GOFLAGS", "-buildvcs=false"), ("GOPROXY", "off"), ("GOTOOLCHAIN", "local")]);
        let built = finish(&mut build, b"");
        assert_eq!(built.code, Some(0), "{}", built.stderr);
        let ran = run_in(&dir, &["test", "--seeds", "2", "--coverage-threshold", "99%"]);
        assert_eq!(ran.code, Some(3), "{}\n{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains(foreign.not_reached), "{}", ran.stdout);
        let lcov = read(&dir, "out/coverage/lcov.info");
        for line in foreign.lines {
            assert!(lcov.lines().any(|l| l == *line), "{}: {line}: {lcov}", foreign.name);
        }
    }
}

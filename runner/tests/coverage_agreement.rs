//! What is measured of unmodified programs agrees with what LLVM's instrumentation counts of the same source in the same campaign:
//! fifty seeds of examples/distributed-kv, and of a service in C, each without and with optimisation.
//!
//! The instrumented program writes its counters in continuous mode, as crashes end nodes. Two things in it are no mistakes of either side:
//! LLVM derives some counts by subtraction, so what follows a call that a crash cut short counts as executed; and a closure that
//! captures nothing has no code where it stands.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{have, put, repository, run_in, say, scratch};
use bloodhound_coverage::Coverage;

/// What the test's programs are built in: kept from run to run, as cargo keeps it.
fn builds() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("agreement")
}

fn succeed(command: &mut Command) {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}\n{}", text(&output.stdout), text(&output.stderr));
}

/// Lines by file and number, and whether they were reached.
type Lines = BTreeMap<(String, u32), bool>;

/// What a campaign of fifty seeds reached, by the program's own tables and by its profiles.
struct Reached {
    own: Lines,
    profiled: Lines,
    dir: PathBuf,
}

/// Runs the stack in a directory, whose configuration has a section `coverage`.
fn campaign(dir: PathBuf) -> Reached {
    let ran = run_in(&dir, &["test", "--seeds", "50"]);
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
    let text = std::fs::read_to_string(dir.join("out/coverage/coverage.json")).expect("coverage.json");
    let coverage: Coverage = serde_json::from_str(&text).expect("coverage");
    let mut reached = Reached { own: Lines::new(), profiled: Lines::new(), dir };
    for part in coverage.parts.values() {
        let lines = if part.name == "llvm" { &mut reached.profiled } else { &mut reached.own };
        for (path, file) in &part.files {
            for (line, moment) in &file.lines {
                *lines.entry((path.clone(), *line)).or_default() |= moment.is_some();
            }
        }
    }
    reached
}

/// A share in hundredths of a percent.
fn share(part: usize, all: usize) -> usize {
    part * 10_000 / all.max(1)
}

/// How two measurements agree.
struct Agreement {
    own: usize,
    theirs: usize,
    common: usize,
    /// Of the lines that both know: those of which they say different things, and who says that they were reached.
    different: Vec<(String, u32, &'static str)>,
}

impl Agreement {
    fn new(own: &Lines, theirs: &Lines) -> Agreement {
        let reached = |lines: &Lines| share(lines.values().filter(|reached| **reached).count(), lines.len());
        let common = own.iter().filter_map(|(place, own)| Some((place, *own, *theirs.get(place)?)));
        let common: Vec<_> = common.collect();
        let different = common.iter().filter(|(_, own, theirs)| own != theirs);
        let different =
            different.map(|((file, line), own, _)| (file.clone(), *line, if *own { "own" } else { "LLVM" }));
        Agreement {
            own: reached(own),
            theirs: reached(theirs),
            common: common.len(),
            different: different.collect(),
        }
    }

    /// Of a hundred lines that both know, so many at least have to agree.
    fn agrees(&self, of_a_hundred: usize) -> bool {
        self.common > 100 && self.different.len() * 100 <= self.common * (100 - of_a_hundred)
    }

    /// Whether the totals are within one point.
    fn totals_agree(&self) -> bool {
        self.own.abs_diff(self.theirs) <= 100
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |share: usize| format!("{}.{:02} %", share / 100, share % 100);
        let agreeing = share(self.common - self.different.len(), self.common);
        write!(
            f,
            "{} reached, LLVM says {}; {} of {} lines that both know agree",
            percent(self.own),
            percent(self.theirs),
            percent(agreeing),
            self.common
        )
    }
}

fn check(what: &str, own: &Lines, theirs: &Lines, of_a_hundred: usize, totals: bool) {
    let agreement = Agreement::new(own, theirs);
    say(&format!("coverage_agreement: {what}: {agreement}"));
    let holds = agreement.agrees(of_a_hundred) && (!totals || agreement.totals_agree());
    assert!(holds, "{what}: {agreement}\n{:#?}", agreement.different);
}

/// `LEFT of ALL lines of source have code in the programs`, in the report of a campaign.
fn lines_left(dir: &Path) -> (usize, usize) {
    let page = std::fs::read_to_string(dir.join("out/coverage/html/index.html")).expect("a report");
    let (before, _) = page.split_once(" lines of source have code in the programs").expect("a sentence");
    let mut words = before.rsplit(['>', ' ']);
    let mut number = || words.find_map(|word| word.parse().ok()).expect("a number");
    let (all, left) = (number(), number());
    (left, all)
}

/// Builds the example and gives the program.
fn example(form: &str, optimisation: &str, instrumented: bool) -> PathBuf {
    let target = builds().join(form);
    let flags =
        if instrumented { "-C instrument-coverage -C llvm-args=-runtime-counter-relocation" } else { "" };
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut build = Command::new(cargo);
    build.args(["build", "--locked", "--package", "distributed-kv", "--profile", "dev"]);
    build.args(["--config", &format!("profile.dev.opt-level={optimisation}")]);
    build.args(["--config", "profile.dev.debug=\"line-tables-only\"", "--target-dir"]).arg(&target);
    // Each of these would build something else.
    for variable in ["CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET", "RUSTC_WRAPPER"] {
        build.env_remove(variable);
    }
    succeed(build.env("RUSTFLAGS", flags).current_dir(repository()));
    target.join("debug/distributed-kv")
}

/// The stack of the example with another program.
fn example_stack(form: &str, program: &Path, instrumented: bool) -> PathBuf {
    let example = repository().join("examples/distributed-kv");
    let dir = scratch(&format!("agreement-{form}"));
    let read = |file: &str| std::fs::read_to_string(example.join(file)).expect("a file of the example");
    put(&dir, "docker-compose.yml", &read("docker-compose.yml"));
    let mut config = read("bloodhound.yaml");
    config += "output: {dir: out, coverage_format: [json, html]}\n";
    config += &format!("coverage:\n  source: {}\n", example.display());
    if instrumented {
        config += "  services:\n";
        for service in ["kv1", "kv2", "kv3"] {
            config += &format!("    - {{service: {service}, collect: llvm}}\n");
        }
    }
    put(&dir, "bloodhound.yaml", &config);
    std::fs::create_dir_all(dir.join("bin")).expect("a directory");
    std::fs::copy(program, dir.join("bin/distributed-kv")).expect("a program");
    dir
}

#[test]
fn the_example_has_the_lines_that_llvm_counts() {
    let run = |form: &str, optimisation: &str, instrumented: bool| {
        let program = example(form, optimisation, instrumented);
        campaign(example_stack(form, &program, instrumented))
    };
    let counted = run("instrumented", "0", true);
    let plain = run("plain", "0", false);
    check("distributed-kv", &plain.own, &counted.profiled, 99, true);
    let optimised = run("optimised", "3", false);
    check("distributed-kv, optimised", &optimised.own, &counted.profiled, 95, false);
    // The report says what the optimiser has left: about half of the source, where the whole has nearly all lines that LLVM knows.
    let [(known, of), (whole, all), (left, all_there)] =
        [&counted, &plain, &optimised].map(|run| lines_left(&run.dir));
    say(&format!(
        "coverage_agreement: of {all} lines {whole} have code, optimised {left}, LLVM knows {known}"
    ));
    assert_eq!((all, all), (of, all_there));
    let holds = whole * 10 > known * 8 && left * 10 < whole * 8 && left * 3 > all;
    assert!(holds, "{left} and {whole} of {all}, {known} known to LLVM");
}

const STORE: &str = "services:
  store:
    command: [/app/store, /data/log, '8080']
    restart: always
    volumes: ['./:/app:ro', 'data:/data']
    x-bloodhound: {rootfs: host}
volumes:
  data: {}
";

const STORE_CONFIG: &str = "compose: compose.yaml
output: {dir: out, coverage_format: [json, html]}
simulation: {max_time: 60s}
workload:
  driver: http
  config:
    targets: [http://store:8080]
    qps: 20
    clients: 6
    timeout: 2s
    duration: 10s
    operations:
      - {type: put, weight: 30, key_pattern: 'key-{random:1-4}'}
      - {type: get, weight: 30, key_pattern: 'key-{random:1-4}'}
      - {type: cas, weight: 20, key_pattern: 'key-{random:1-4}'}
      - {type: delete, weight: 10, key_pattern: 'key-{random:1-4}'}
faults:
  duration: 10s
  network: {drop_rate: 0.01, reset_probability: 0.002, partition_probability: 0.002, partition_duration_ms: [200, 2000]}
  process: {crash_probability: 0.003, crash_restart_ms: [100, 1000]}
properties:
  - {name: recovers, kind: liveness, timeout: 10s, check: {type: http, endpoint: 'http://store:8080/health', expect: {status: 200}}}
";

/// The service in C, built by a compiler with these flags.
fn store(form: &str, compiler: &[&str], instrumented: bool) -> Reached {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/agreement");
    let dir = scratch(&format!("agreement-{form}"));
    for file in ["store.c", "table.h"] {
        put(&dir, file, &std::fs::read_to_string(data.join(file)).expect("a source"));
    }
    put(&dir, "compose.yaml", STORE);
    let collect = if instrumented { "\n  services: [{service: store, collect: llvm}]" } else { "" };
    put(&dir, "bloodhound.yaml", &format!("{STORE_CONFIG}coverage:\n  source: .{collect}\n"));
    let mut build = Command::new(compiler[0]);
    build.args(&compiler[1..]).args(["-g", "-D_GNU_SOURCE", "store.c", "-o", "store"]);
    succeed(build.current_dir(&dir));
    campaign(dir)
}

#[test]
fn a_service_in_c_has_the_lines_that_llvm_counts() {
    if !have(&["gcc", "clang-14"], "agreement of a service in C with LLVM's coverage") {
        return;
    }
    let flags = ["-fprofile-instr-generate", "-fcoverage-mapping", "-mllvm", "-runtime-counter-relocation"];
    let counted = store("c-instrumented", &[&["clang-14", "-O0"], &flags[..]].concat(), true);
    for compiler in ["gcc", "clang-14"] {
        let plain = store(&format!("c-{compiler}"), &[compiler, "-O0"], false);
        check(&format!("a service in C, {compiler}"), &plain.own, &counted.profiled, 99, true);
        let optimised = store(&format!("c-{compiler}-optimised"), &[compiler, "-O2"], false);
        check(
            &format!("a service in C, {compiler}, optimised"),
            &optimised.own,
            &counted.profiled,
            95,
            false,
        );
        assert!(optimised.own.len() < plain.own.len());
    }
}

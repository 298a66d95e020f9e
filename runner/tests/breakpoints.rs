//! Breakpoints (`--break`): what is told of hits is a function of the run, the run is the same as without, on all platforms.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Ran, exec_on, finish, have, scratch};

/// A directory with programs compiled of `sources`: compiler, arguments.
fn built(name: &str, programs: &[(&str, &str)]) -> Option<PathBuf> {
    if !have(&["gcc", "g++"], "breakpoints in programs") {
        return None;
    }
    let dir = scratch(&format!("breakpoints-{name}"));
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/breakpoints");
    for entry in std::fs::read_dir(data).expect("the sources") {
        let from = entry.expect("an entry").path();
        std::fs::copy(&from, dir.join(from.file_name().expect("a name"))).expect("a copy");
    }
    for (compiler, arguments) in programs {
        let mut compiler = Command::new(compiler);
        compiler.current_dir(&dir).args(["-g", "-O1", "-pthread"]).args(arguments.split_whitespace());
        let ran = finish(&mut compiler, b"");
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }
    Some(dir)
}

/// The platforms of this machine. What they lack matters to no program here: none reads a time-stamp counter that is not known.
fn platforms() -> Vec<&'static str> {
    let mut all = vec!["ptrace"];
    if !bloodhound_platform_tests::without_kvm("breakpoints on kvm") {
        all.push("kvm");
    }
    all
}

fn run(platform: &str, dir: &Path, options: &[&str], program: &[&str]) -> Ran {
    let options: Vec<&str> = [&["--summary"], options].concat();
    let program: Vec<_> = program.iter().map(Into::into).collect();
    finish(exec_on(Some(platform), &options, &program).current_dir(dir), b"")
}

/// What a run told of breakpoints.
fn told(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("hits")).expect("the hits")
}

/// Runs a program without and with breakpoints on all platforms, twice, and in the stress mode; what was told of hits, which is the same each time.
fn hits(dir: &Path, options: &[&str], breaks: &[&str], program: &[&str]) -> String {
    let plain = run("ptrace", dir, options, program);
    assert_eq!(plain.code, Some(0), "{plain:#?}");
    let mut with = [options, &["--break-output", "hits"]].concat();
    with.extend(breaks.iter().flat_map(|place| ["--break", place]));
    let mut first = None;
    for platform in platforms() {
        for stress in [&[][..], &[], &["--stress", "5"]] {
            let ran = run(platform, dir, &[&with, stress].concat(), program);
            assert_eq!(ran.determined(), plain.determined(), "{platform}, {stress:?}: {}", ran.stderr);
            let told = told(dir);
            assert_eq!(first.get_or_insert_with(|| told.clone()), &told, "{platform}, {stress:?}");
        }
    }
    first.unwrap_or_default()
}

fn has(told: &str, lines: &[&str]) {
    for line in lines {
        assert!(told.contains(line), "`{line}` is missing:\n{told}");
    }
}

#[test]
fn hits_are_told_and_nothing_else_is_different() {
    let late = "-shared -fPIC late.c -o late.so";
    let programs =
        [("gcc", "places.c -o places -ldl"), ("gcc", "-static-pie -w places.c -o static"), ("gcc", late)];
    let Some(dir) = built("places", &programs) else { return };
    let places =
        ["compute", "in_child", "look", "never", "handler", "the_call", "behind_call", "late", "lok"];
    for program in [&["./places", "./late.so"][..], &["./static"]] {
        let told = hits(&dir, &[], &places, program);
        has(
            &told,
            &[
                // A child has hits as well; each stack leads to main.
                "break compute, hit 1: ",
                "process 4, task 4 (",
                "    #1 in_child at places.c:18\n    #2 main at places.c:",
                // In the handler of a signal.
                "    #0 compute at places.c:17\n    #1 handler at places.c:",
                // The loop is gone round until it is parked, and once more when it ends: the host does not decide how often that is.
                "  look: 3 hits, at ",
                "  compute: 3 hits, at ",
                "  in_child: 1 hit, at ",
                "  handler: 1 hit, at ",
                // It is interrupted by the signal, and restarted.
                "  the_call: 2 hits, at ",
                "  behind_call: 1 hit, at ",
                "  never: NEVER REACHED, at ",
                "did you mean look",
            ],
        );
        let late = if program.len() > 1 { "  late: 1 hit, at " } else { "  late: NEVER REACHED" };
        has(&told, &[late]);
    }
}

#[test]
fn a_counted_loop_has_breakpoints_too() {
    let Some(dir) = built("loops", &[("gcc", "loops.c -o loops")]) else { return };
    let options = ["--compute-limit", "20ms", "--break-registers", "--break-limit", "7"];
    let plain = run("ptrace", &dir, &options[..2], &["./loops"]);
    let mut first = None;
    for platform in platforms() {
        // The beginning of the function, the call of it in the loop, and the branch that is counted.
        for place in [["turn", "loops.c:14"], ["loops.c:13", "turn"]] {
            let breaks = ["--break", place[0], "--break", place[1], "--break-output", "hits"];
            let ran = run(platform, &dir, &[&options[..], &breaks].concat(), &["./loops"]);
            assert_eq!(ran.determined(), plain.determined(), "{platform}: {}", ran.stderr);
            let told = told(&dir);
            has(&told, &["break turn, hit 7: ", "  turn: 7 hits or more (--break-limit), at ", " rip=0x"]);
            assert!(!told.contains("hit 8"), "{told}");
            let turns: Vec<&str> = told.lines().filter(|line| line.starts_with("break turn,")).collect();
            let turns: String = turns.join("\n");
            assert_eq!(first.get_or_insert_with(|| turns.clone()), &turns, "{platform}");
        }
    }
}

#[test]
fn names_are_those_of_the_source() {
    let Some(dir) = built("names", &[("g++", "names.cc -o names")]) else { return };
    let told =
        hits(&dir, &[], &["Store::get", "get", "names.cc:2", "nowhere.cc:3", "names+0x3"], &["./names"]);
    has(
        &told,
        &[
            "  Store::get: 1 hit, at ",
            "break get: 2 places are meant: ",
            "  get: 2 hits, at ",
            "names.cc has no code in line 2; the next line with code is ",
            "  nowhere.cc:3: NEVER REACHED",
            "has no code at 0x3",
        ],
    );
    let ran = run("ptrace", &dir, &["--break", "names.cc:0"], &["./names"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("the number of a line is needed"), "{ran:#?}");
}

#[test]
fn a_failing_seed_has_the_same_hits_each_time() {
    let Some(dir) = built("chaos", &[]) else { return };
    let races = crate::common::repository().join("examples/races");
    let mut gcc = Command::new("gcc");
    gcc.current_dir(races)
        .args(["-g", "-O0", "-pthread", "lost_update.c", "-o"])
        .arg(dir.join("lost_update"));
    let ran = finish(&mut gcc, b"");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let seed = |platform: &str, more: &[&str]| {
        run(platform, &dir, &[&["--chaos", "--seed", "0"], more].concat(), &["./lost_update"])
    };
    let mut first = None;
    for platform in platforms() {
        let plain = seed(platform, &[]);
        assert!(plain.code == Some(1) && plain.digest().is_some(), "{plain:#?}");
        // Switches stand at instructions of this function.
        let with = seed(platform, &["--break", "main", "--break", "add", "--break-output", "hits"]);
        assert_eq!(with.determined(), plain.determined(), "{}", with.stderr);
        let told = told(&dir);
        has(&told, &["break main, hit 1: ", "  add: 2 hits"]);
        assert_eq!(first.get_or_insert_with(|| told.clone()), &told, "{platform}");
    }
    let hunt = run("ptrace", &dir, &["--chaos", "--break", "main"], &["./lost_update"]);
    assert!(hunt.code != Some(0) && hunt.stderr.contains("add `--seed N`"), "{hunt:#?}");
}

const COMPOSE: &str = "services:\n  one:\n    command: [/app/loops]\n    volumes: ['./:/app:ro']\n    x-bloodhound: {rootfs: host}\n";
const CONFIG: &str = "compose: compose.yaml\noutput: {dir: out}\nsimulation: {max_time: 5s}\nfaults: {duration: 1s}\nproperties:\n  - name: stays\n    \
    kind: safety\n    check: {type: no-crash}\n";

#[test]
fn a_finding_is_replayed_with_breakpoints() {
    use crate::common::cli::{bloodhound, json, text};
    let Some(dir) = built("replay", &[("gcc", "-DFAILS loops.c -o loops")]) else { return };
    std::fs::write(dir.join("compose.yaml"), COMPOSE).expect("a file");
    std::fs::write(dir.join("bloodhound.yaml"), CONFIG).expect("a file");
    let result = bloodhound(&dir, &["test", "--seeds", "1", "--format", "json"]);
    let finding = json(&result)["findings"][0].clone();
    let directory = finding["replay"].as_str().unwrap_or_else(|| panic!("{}", text(&result)));
    let mut first = None;
    for platform in platforms() {
        let arguments = ["replay", directory, "--format", "json", "--platform", platform];
        let breaks = ["--break", "waiter", "--break", "absent", "--break-output", "hits"];
        let again = bloodhound(&dir, &[&arguments[..], &breaks].concat());
        assert_eq!(again.status.code(), Some(1), "{}", text(&again));
        assert_eq!(json(&again)["digest"], finding["digest"], "{platform}");
        let told = told(&dir);
        has(
            &told,
            &["break waiter, hit 1: ", " one, process ", "    #0 waiter at ", "  absent: NEVER REACHED"],
        );
        assert_eq!(first.get_or_insert_with(|| told.clone()), &told, "{platform}");
    }
}

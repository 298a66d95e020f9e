//! `bloodhound exec --chaos` over the programs of `examples/races`: each race is found, fails again with the same digest, and the
//! repaired programs never fail. What a hunt says depends neither on the number of workers nor on the platform.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, OnceLock};

use crate::common::{Ran, exec, exec_on, figures, finish, in_parallel, repository, say, seeds_or};

/// Seeds within which each race must be found.
const SEEDS: u32 = 1000;
/// Programs whose races show in one of more than a hundred seeds: hunts in them take half of the time of all, so `cargo xtask long` has them.
const RARE: [&str; 5] = ["fib_watch", "lamport_bakery", "philosophers", "pool_shutdown", "szymanski"];
/// Seeds of each repaired program, where `cargo xtask long` does not ask for more.
const REPAIRED_SEEDS: u64 = 60;
/// Native runs of each repaired program.
const NATIVE: u32 = 100;

/// Programs that may be missing where there is no compiler for them.
const OTHER_LANGUAGES: [(&str, &str); 4] =
    [("lazy_cache", "c++"), ("atomic_counter", "rustc"), ("mutex_order", "rustc"), ("claim_file", "go")];

/// Where the programs are, as they are and repaired.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("races");
        let mut build = Command::new(repository().join("examples/races/build.sh"));
        let ran = finish(build.arg(&out), b"");
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        out
    })
}

/// The names of all programs that could be built.
fn names() -> Vec<String> {
    let sources = std::fs::read_dir(repository().join("examples/races")).expect("the directory");
    let name = |path: PathBuf| -> Option<String> {
        let source = ["c", "cpp", "rs", "go"].contains(&path.extension()?.to_str()?);
        Some(path.file_stem()?.to_str()?.to_owned()).filter(|_| source)
    };
    let mut names: Vec<String> = sources.filter_map(|entry| name(entry.expect("an entry").path())).collect();
    names.sort();
    names.retain(|name| {
        let built = built().join(name).exists();
        if !built {
            let language = OTHER_LANGUAGES.iter().find(|(program, _)| program == name);
            let (_, compiler) = language.unwrap_or_else(|| panic!("{name} was not built"));
            crate::common::leave_out(&format!("the racy program {name}"), &format!("there is no {compiler}"));
        }
        built
    });
    assert!(names.len() >= 40, "{names:?}");
    names
}

/// A hunt in a program of `examples/races`.
fn hunt(options: &[&str], name: &str) -> Ran {
    let options: Vec<&str> = ["--chaos"].iter().chain(options).copied().collect();
    finish(&mut exec(&options, &[built().join(name).into()]), b"")
}

/// The seed of the first failure that a hunt tells of.
fn first_failure(ran: &Ran) -> Option<u64> {
    let mut seeds = ran.stdout.lines().filter_map(|line| line.strip_prefix("seed "));
    seeds.next()?.split(':').next()?.parse().ok()
}

/// What a hunt says of its first failing seed.
fn told(ran: &Ran) -> Vec<&str> {
    let lines = ran.stdout.lines().skip_while(|line| !line.starts_with("seed "));
    lines.take_while(|line| !line.contains("replay: ")).collect()
}

#[test]
fn repaired_programs_pass_natively() {
    in_parallel(&names(), |name| {
        let program = built().join(format!("{name}-fixed"));
        for _ in 0..NATIVE {
            let ran = finish(&mut Command::new(&program), b"");
            assert_eq!(ran.code, Some(0), "{name}: {}", ran.stderr);
        }
    });
}

#[test]
fn every_race_is_found_and_fails_again() {
    let (found, lost) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let mut names = names();
    if seeds_or(REPAIRED_SEEDS) <= REPAIRED_SEEDS {
        say(&format!("chaos: hunts in {} are left to cargo xtask long", RARE.join(", ")));
        names.retain(|name| !RARE.contains(&name.as_str()));
    }
    in_parallel(&names, |name| {
        let ran = hunt(&["-j", "1", "--seeds", &SEEDS.to_string()], name);
        let Some(seed) = first_failure(&ran) else {
            lost.lock().expect("no panic").push(format!("{name}: {}{}", ran.stdout, ran.stderr));
            return;
        };
        assert_eq!(ran.code, Some(1), "{name}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stdout.contains("  replay: bloodhound exec --chaos "), "{name}: {}", ran.stdout);
        for _ in 0..3 {
            let again = hunt(&["--seed", &seed.to_string()], name);
            assert_eq!((again.code, told(&again)), (Some(1), told(&ran)), "{name}: {}", again.stderr);
        }
        found.lock().expect("no panic").push((name.clone(), seed));
    });
    let (mut found, lost) = (found.into_inner().expect("no panic"), lost.into_inner().expect("no panic"));
    found.sort();
    for (name, seed) in &found {
        say(&format!("{name:>20} first fails with seed {seed}"));
    }
    figures(&format!("{} races, each found within {SEEDS} seeds", found.len()));
    assert!(lost.is_empty(), "not found within {SEEDS} seeds:\n{}", lost.join("\n"));
}

/// How programs are built otherwise, which ones, and what `--bisect` says of the first.
const BUILDS: [(&str, &[&str], &str); 2] = [
    // One instruction reads the variable and writes it.
    ("-g -O2", &["lost_update", "account", "read_write_lock", "wronglock"], "gives way amid "),
    // The C library is part of the program, and its variables are.
    ("-g -O0 -static", &["token_ring", "account"], "gives way before "),
];

#[test]
fn races_are_found_however_the_program_is_built() {
    for (flags, names, says) in BUILDS {
        let dir = built().join(flags.replace(' ', ""));
        std::fs::create_dir_all(&dir).expect("a directory");
        in_parallel(names, |name| {
            let program = dir.join(name);
            let source = repository().join(format!("examples/races/{name}.c"));
            let build = |more: &[&str], to: &Path| {
                let mut cc = Command::new("cc");
                cc.args(flags.split(' ')).args(more).args(["-pthread", "-o"]).arg(to).arg(&source);
                let ran = finish(&mut cc, b"");
                assert_eq!(ran.code, Some(0), "{name} {flags}: {}", ran.stderr);
            };
            let repaired = dir.join(format!("{name}-fixed"));
            build(&[], &program);
            build(&["-DFIXED"], &repaired);
            let hunt = |options: &[&str], program: &Path| {
                let options: Vec<&str> = ["--chaos"].iter().chain(options).copied().collect();
                finish(&mut exec(&options, &[program.into()]), b"")
            };
            let ran = hunt(&["-j", "1", "--seeds", &SEEDS.to_string()], &program);
            let seed =
                first_failure(&ran).unwrap_or_else(|| panic!("{name} {flags}: {}", ran.stdout)).to_string();
            for _ in 0..3 {
                let again = hunt(&["--seed", &seed], &program);
                assert_eq!(
                    (again.code, told(&again)),
                    (Some(1), told(&ran)),
                    "{name} {flags}: {}",
                    again.stderr
                );
            }
            if *name == names[0] {
                let ran = hunt(&["--bisect", "--seed", &seed], &program);
                assert!(ran.stdout.contains(says), "{name} {flags}: {}", ran.stdout);
            }
            let ran = hunt(&["-j", "1", "--seeds", &REPAIRED_SEEDS.to_string()], &repaired);
            assert_eq!(ran.code, Some(0), "{name} {flags}: {}{}", ran.stdout, ran.stderr);
        });
    }
}

#[test]
fn repaired_programs_never_fail() {
    let (seeds, names) = (seeds_or(REPAIRED_SEEDS), names());
    in_parallel(&names, |name| {
        let ran = hunt(&["-j", "1", "--seeds", &seeds.to_string()], &format!("{name}-fixed"));
        let none = format!("{seeds} seeds: none fails\n");
        assert_eq!((ran.code, &ran.stdout), (Some(0), &none), "{name}: {}", ran.stderr);
    });
    say(&format!("figures: {} repaired programs, {seeds} seeds each: none fails", names.len()));
}

#[test]
fn the_number_of_workers_does_not_show() {
    let mut names = vec!["lost_wakeup", "lost_update", "deadlock_condvar", "claim_file"];
    if seeds_or(REPAIRED_SEEDS) <= REPAIRED_SEEDS {
        say("chaos: two of four hunts by several workers are left to cargo xtask long");
        names.truncate(2);
    }
    for name in names {
        if !built().join(name).exists() {
            continue;
        }
        let hunt = |jobs: &str| hunt(&["--seeds", "40", "--keep-going", "-j", jobs], name);
        let (one, two) = (hunt("1"), hunt("2"));
        assert_eq!((one.code, &one.stdout), (two.code, &two.stdout), "{name}");
        let stops = |jobs: &str| self::hunt(&["--seeds", "40", "-j", jobs], name);
        assert_eq!(stops("1").stdout, stops("2").stdout, "{name}");
    }
}

#[test]
fn both_platforms_give_the_same_digests() {
    if bloodhound_platform_tests::without_kvm("hunts on kvm") {
        return;
    }
    for name in ["lost_wakeup", "lost_update", "aba_stack", "pid_file", "signal_handler"] {
        let on = |platform| {
            let program = [built().join(name).into()];
            let options = ["--chaos", "--seeds", "30", "--keep-going"];
            finish(&mut exec_on(Some(platform), &options, &program), b"")
        };
        let (ptrace, kvm) = (on("ptrace"), on("kvm"));
        if !kvm.rdtsc_leaks() {
            assert_eq!((ptrace.code, ptrace.stdout), (kvm.code, kvm.stdout), "{name}");
        }
    }
}

/// Programs, and for each what stands in the lines of the two accesses that race.
const RACES: [(&str, &[&str]); 8] = [
    ("lost_update", &["int seen = counter", "counter = seen + 1"]),
    ("null_pointer", &["shared->value = 2", "shared = NULL"]),
    ("reorder_3", &["a = 1;", "b = -1;", "int both", "int neither"]),
    ("philosophers", &["LOCK(forks[left])", "LOCK(forks[right])"]),
    ("aba_stack", &["seen = atomic_load(&head)", "atomic_compare_exchange_strong(&head"]),
    ("signal_handler", &["counter = counter + 1", "int seen = counter", "counter = seen + 1"]),
    ("ring_publish", &["head = 1", "ring[0] = 5", "ring[0] == 5", "__atomic_load_n(&head"]),
    ("token_ring", &["if (token)", "token = 0", "sending = number", "sending == number"]),
];

/// `NAME.c:LINE` of the lines of a program that have one of these texts.
fn places(name: &str, texts: &[&str]) -> Vec<String> {
    let source = repository().join(format!("examples/races/{name}.c"));
    let source = std::fs::read_to_string(source).expect("the source");
    let lines = (1..).zip(source.lines());
    let found =
        lines.filter(|(_, line)| !line.starts_with(" *") && texts.iter().any(|text| line.contains(text)));
    found.map(|(number, _)| format!("{name}.c:{number}")).collect()
}

#[test]
fn the_two_accesses_that_race_are_named() {
    for (name, texts) in RACES {
        let seed = first_failure(&hunt(&["--seeds", &SEEDS.to_string()], name)).expect(name).to_string();
        let ran = hunt(&["--bisect", "--seed", &seed], name);
        assert_eq!(ran.code, Some(1), "{name}: {}{}", ran.stdout, ran.stderr);
        let section = |from: &str, to: &str| -> String {
            let lines = ran.stdout.lines().skip_while(|line| !line.starts_with(from)).skip(1);
            lines.take_while(|line| to.is_empty() || !line.starts_with(to)).collect::<Vec<_>>().join("\n")
        };
        let places = places(name, texts);
        for side in [section("  first: ", "  then: "), section("  then: ", "")] {
            let named = places.iter().any(|place| side.lines().any(|line| line.ends_with(place.as_str())));
            assert!(named, "{name}: none of {places:?} is in\n{side}\nof {}", ran.stdout);
        }
        if name == "ring_publish" {
            let named = |variable| ran.stdout.contains(&format!(" {variable}, at 0x"));
            assert!(named("head") || named("ring"), "a variable by its symbol: {}", ran.stdout);
        }
        let again = hunt(&["--bisect", "--seed", &seed], name);
        assert_eq!(again.stdout, ran.stdout, "{name}");
    }
    let ran = script(&["--bisect", "--seed", "1"], "true & wait", b"");
    assert_eq!(ran.code, Some(2), "{}", ran.stdout);
    assert!(ran.stderr.contains("does not fail"), "{}", ran.stderr);
}

#[test]
fn a_narrowed_schedule_is_saved_and_run_again() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("narrowed.json");
    let path = file.to_str().expect("text");
    let digests = |ran: &Ran| -> Vec<String> {
        let lines = ran.stdout.lines().filter_map(|line| line.strip_prefix("  digest: "));
        lines.map(str::to_owned).collect()
    };
    for name in ["lost_update", "philosophers", "fib_bench_5"] {
        let seed = first_failure(&hunt(&["--seeds", &SEEDS.to_string()], name)).expect(name).to_string();
        let ran = hunt(&["--bisect", "--seed", &seed, "--save", path], name);
        assert_eq!(ran.code, Some(1), "{name}: {}{}", ran.stdout, ran.stderr);
        let replay = format!("  replay: bloodhound exec --chaos --replay {path} -- ");
        assert!(ran.stdout.contains(&replay), "{name}: {}", ran.stdout);
        let narrowed = digests(&ran).pop();
        for _ in 0..3 {
            let again = hunt(&["--replay", path], name);
            assert_eq!((again.code, digests(&again).pop()), (Some(1), narrowed.clone()), "{name}");
        }
    }
    std::fs::write(&file, r#"{"version": 4, "boot_seed": 5, "seed": 1}"#).expect("written");
    let ran = hunt(&["--replay", path], "lost_update");
    assert_eq!(ran.code, Some(2), "{}{}", ran.stdout, ran.stderr);
    let ran = hunt(&["--replay", "/no/such/file"], "lost_update");
    assert_eq!(ran.code, Some(2), "{}{}", ran.stdout, ran.stderr);
}

/// Runs a hunt in a shell script.
fn script(options: &[&str], script: &str, input: &[u8]) -> Ran {
    let options: Vec<&str> = ["--chaos"].iter().chain(options).copied().collect();
    let program = ["/bin/sh".into(), "-c".into(), script.into()];
    finish(&mut exec(&options, &program), input)
}

#[test]
fn what_counts_as_a_failure() {
    let ran = script(&["--seeds", "3"], "true & wait; exit 7", b"");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stdout.starts_with("seed 0: exit code 7\n"), "{}", ran.stdout);
    let summary = "1 seed: 1 fails\nstopped at the first failure; `--keep-going` goes on\n";
    assert!(ran.stdout.ends_with(summary), "{}", ran.stdout);
    let ran = script(&["--seeds", "3", "--expect-status", "7"], "true & wait; exit 7", b"");
    assert_eq!((ran.code, &*ran.stdout), (Some(0), "3 seeds: none fails\n"), "{}", ran.stderr);
    let ran =
        script(&["--seeds", "2", "--seed-from", "9", "--keep-going"], "true & wait; kill -SEGV $$", b"");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let seeds: Vec<&str> = ran.stdout.lines().filter(|line| line.starts_with("seed ")).collect();
    assert_eq!(seeds, ["seed 9: killed by SIGSEGV", "seed 10: killed by SIGSEGV"]);
    assert!(ran.stdout.ends_with("2 seeds: 2 fail\n"), "{}", ran.stdout);
}

#[test]
fn a_program_with_one_task_has_one_schedule() {
    let ran = script(&["--seeds", "50"], "echo one; exit 3", b"");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stdout.starts_with("seed 0: exit code 3\n  | one\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("it has one schedule only\n"), "{}", ran.stdout);
    let ran = finish(&mut exec(&["--chaos"], &["/no/such/program".into()]), b"");
    assert_eq!(ran.code, Some(127), "{}{}", ran.stdout, ran.stderr);
}

#[test]
fn all_seeds_read_the_same_input() {
    let ran = script(&["--seeds", "5"], "true & read a; read b; wait; test \"$a$b\" = onetwo", b"one\ntwo\n");
    assert_eq!((ran.code, &*ran.stdout), (Some(0), "5 seeds: none fails\n"), "{}", ran.stderr);
}

#[test]
fn an_interrupted_hunt_tells_what_it_has() {
    let mut hunt =
        exec(&["--chaos", "--seeds", "100000000", "--keep-going"], &[built().join("lost_wakeup").into()]);
    let mut child = hunt.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let first = lines.next().expect("a failure comes").expect("text");
    assert!(first.starts_with("seed "), "{first}");
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().expect("kill").success());
    let rest: Vec<String> = lines.map(|line| line.expect("text")).collect();
    assert!(rest.last().is_some_and(|line| line.starts_with("interrupted after ")), "{rest:?}");
    assert_eq!(child.wait().expect("it ends").code(), Some(1), "findings are told first");
}

#[test]
fn options_of_a_hunt_need_the_hunt() {
    let ran = finish(&mut exec(&["--seeds", "5"], &["/bin/true".into()]), b"");
    assert_eq!(ran.code, Some(2));
    assert!(ran.stderr.contains("--chaos"), "{}", ran.stderr);
    let ran = finish(&mut exec(&["--chaos", "--seed", "1", "--seeds", "5"], &["/bin/true".into()]), b"");
    assert_eq!(ran.code, Some(2));
}

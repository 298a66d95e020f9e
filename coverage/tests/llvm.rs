//! Raw profiles and coverage mappings of LLVM: as llvm-cov reads them, in continuous mode, of rustc, and damaged ones.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // the host side

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use bloodhound_coverage::read::llvm::{Mapping, Profile};
use bloodhound_coverage::read::{self, Format, Report};
use common::{Scratch, have, run, shell};

const TOOLS: &[&str] = &["clang-14", "llvm-profdata-14", "llvm-cov-14"];
const FLAGS: &str = "-fprofile-instr-generate -fcoverage-mapping";

fn file(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Runs a program, which may end as it likes.
fn profiled(program: &Path, directory: &Path, profile: &Path) {
    let output = Command::new(program).current_dir(directory).env("LLVM_PROFILE_FILE", profile).output();
    assert!(output.is_ok() && profile.is_file(), "{output:?}");
}

fn ours(program: &Path, profile: &Path) -> Report {
    let mapping = Mapping::read(&file(program)).unwrap_or_else(|e| panic!("{}: {e}", program.display()));
    let profile = Profile::read(&file(profile)).unwrap_or_else(|e| panic!("{}: {e}", profile.display()));
    assert!(mapping.is_of(&profile));
    mapping.report(&profile, &|_| true).unwrap_or_else(|e| panic!("{}: {e}", program.display()))
}

/// What llvm-cov says.
fn theirs(program: &Path, profile: &Path) -> Report {
    let merged = profile.with_extension("profdata");
    run(Command::new("llvm-profdata-14").arg("merge").arg(profile).arg("-o").arg(&merged));
    let export = ["export", "-format=lcov", "-instr-profile"];
    let exported = run(Command::new("llvm-cov-14").args(export).arg(&merged).arg(program));
    read::read(&exported.stdout, &|_| None).expect("a tracefile")
}

/// Lines, and functions by their lines: names are written in different ways.
type Said = BTreeMap<String, (BTreeMap<u32, bool>, BTreeMap<u32, bool>)>;

fn said(report: &Report) -> Said {
    let file = |(name, file): (&String, &read::Reported)| {
        let mut functions = BTreeMap::new();
        for ((line, _), ran) in &file.functions {
            *functions.entry(*line).or_default() |= ran;
        }
        (name.clone(), (file.lines.clone(), functions))
    };
    report.files.iter().map(file).collect()
}

#[test]
fn lines_are_those_of_llvm_cov() {
    if !have(TOOLS, "profiles of LLVM") {
        return;
    }
    let scratch = Scratch::with_sources("llvm");
    let source = scratch.path("src");
    let program = scratch.path("program");
    for (compiler, name) in [("clang-14", "mapped.c"), ("clang-14", "kv.c"), ("clang++-14", "shapes.cpp")] {
        for form in ["-O0", "-O2", "-O0 -mllvm -enable-name-compression=false"] {
            shell(&source, &format!("{compiler} {form} {FLAGS} {name} -o ../program"));
            let profile = scratch.path("one.profraw");
            profiled(&program, &source, &profile);
            let (ours, theirs) = (ours(&program, &profile), theirs(&program, &profile));
            assert_eq!(read::format_of(&file(&profile)), Some(Format::LlvmProfile));
            assert!(theirs.files.values().any(|file| file.lines.values().any(|ran| *ran)));
            assert_eq!(said(&ours), said(&theirs), "{name} {form}");
        }
    }
}

#[test]
fn counters_of_a_program_that_was_killed_are_there_in_continuous_mode() {
    if !have(TOOLS, "profiles of LLVM in continuous mode") {
        return;
    }
    let scratch = Scratch::with_sources("continuous");
    let source = scratch.path("src");
    shell(&source, &format!("clang-14 {FLAGS} -mllvm -runtime-counter-relocation mapped.c -o ../program"));
    let (program, profile) = (scratch.path("program"), scratch.path("killed.profraw"));
    let mut killed = Command::new(&program);
    killed.arg("kill").current_dir(&source).env("LLVM_PROFILE_FILE", format!("{}%c", profile.display()));
    let output = killed.output().expect("a program");
    assert!(!output.status.success(), "{output:?}");
    let report = ours(&program, &profile);
    assert_eq!(said(&report), said(&theirs(&program, &profile)));
    // What a run leaves and what the next one leaves are added up.
    let one = Profile::read(&file(&profile)).expect("a profile");
    let mut both = Profile::default();
    both.join(&one);
    both.join(&one);
    let mapping = Mapping::read(&file(&program)).expect("a mapping");
    assert_eq!(mapping.report(&both, &|_| true), Ok(report));
    assert_eq!(mapping.report(&both, &|_| false), Ok(Report::default()));
}

#[test]
fn what_rustc_instruments_is_read() {
    let scratch = Scratch::with_sources("llvm-rust");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let form =
        "--edition 2021 --crate-name shop -C instrument-coverage -C llvm-args=-runtime-counter-relocation";
    shell(&scratch.path("src/rust"), &format!("{rustc} {form} main.rs -o ../../shop"));
    let (program, profile) = (scratch.path("shop"), scratch.path("shop.profraw"));
    run(Command::new(&program).env("LLVM_PROFILE_FILE", format!("{}%c", profile.display())));
    let report = ours(&program, &profile);
    let main = report.files.iter().find(|(name, _)| name.ends_with("src/rust/main.rs")).expect("main.rs").1;
    let called = |name: &str| main.functions.iter().any(|((_, own), ran)| own.contains(name) && *ran);
    assert!(called("shop::main"), "{:?}", main.functions);
    assert!(main.lines.values().any(|ran| *ran) && main.lines.values().any(|ran| !*ran), "{:?}", main.lines);
}

#[test]
fn damaged_profiles_and_mappings_are_refused_or_read_and_nothing_else() {
    if !have(TOOLS, "damaged profiles of LLVM") {
        return;
    }
    let scratch = Scratch::with_sources("llvm-damage");
    let source = scratch.path("src");
    shell(&source, &format!("clang++-14 {FLAGS} shapes.cpp -o ../program"));
    let (program, profile) = (scratch.path("program"), scratch.path("one.profraw"));
    profiled(&program, &source, &profile);
    let (program, profile) = (file(&program), file(&profile));
    let mapping = Mapping::read(&program).expect("a mapping");
    let whole = Profile::read(&profile).expect("a profile");
    let mut seed = 0x5eed_u64;
    let mut below = |end: usize| {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        usize::try_from(seed >> 33).expect("31 bits") % end
    };
    for cut in 0..profile.len() {
        let _refused = Profile::read(&profile[..cut]).map(|profile| mapping.report(&profile, &|_| true));
    }
    for _ in 0..1000 {
        let mut damaged = profile.clone();
        damaged[below(profile.len())] = u8::try_from(below(256)).expect("a byte");
        let _refused = Profile::read(&damaged).map(|profile| mapping.report(&profile, &|_| true));
    }
    let sections = ["__llvm_covmap", "__llvm_covfun", "__llvm_prf_names"].map(|name| section(&program, name));
    for (start, length) in sections {
        for _ in 0..300 {
            let mut damaged = program.clone();
            for _ in 0..=below(3) {
                damaged[start + below(length)] = u8::try_from(below(256)).expect("a byte");
            }
            let _refused = Mapping::read(&damaged).map(|mapping| mapping.report(&whole, &|_| true));
        }
    }
}

/// Where a section is in a file.
fn section(program: &[u8], name: &str) -> (usize, usize) {
    let number = |at: usize, length: usize| {
        program[at..at + length].iter().rev().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte))
    };
    let (table, count, names) = (number(40, 8), number(60, 2), number(62, 2));
    let names = number(table + names * 64 + 24, 8);
    let found = (0..count).map(|index| table + index * 64).find(|header| {
        let text = &program[names + number(*header, 4)..];
        text.starts_with(name.as_bytes()) && text[name.len()] == 0
    });
    let header = found.unwrap_or_else(|| panic!("no section {name}"));
    (number(header + 24, 8), number(header + 32, 8))
}

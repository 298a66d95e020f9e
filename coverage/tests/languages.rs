//! C++, Rust and Go: their lines and functions, and places of addresses in their source.
#![allow(clippy::disallowed_methods)] // the host side

mod common;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use bloodhound_coverage::{Program, Unit, Which, accesses};
use common::{Scratch, functions, have, lines, look, run, shell, sound};

fn has(program: &Program, file: &str, expected: &[u32], not: &[u32]) {
    let lines = &lines(program)[file];
    for line in expected {
        assert!(lines.contains(line), "{file}:{line} is missing in {lines:?}");
    }
    for line in not {
        assert!(!lines.contains(line), "{file}:{line} has no code: {lines:?}");
    }
}

fn names(program: &Program) -> Vec<String> {
    functions(program).into_iter().map(|(name, _, _)| name).collect()
}

#[test]
fn instances_of_cpp_templates_are_one_function() {
    if !have(&["g++"], "lines of C++ programs") {
        return;
    }
    let scratch = Scratch::with_sources("cpp");
    for form in ["-O0 -g", "-O2 -g", "-O1 -gdwarf-4", "-O2 -g -gsplit-dwarf"] {
        shell(&scratch.path("src"), &format!("g++ {form} shapes.cpp -o ../shapes"));
        let mut rules = scratch.rules("src");
        rules.places = true;
        let program = look(&scratch.path("shapes"), &rules).unwrap_or_else(|e| panic!("{form}: {e}"));
        sound(&program);
        assert_eq!(lines(&program).keys().collect::<Vec<_>>(), ["shapes.cpp"], "{form}");
        // An optimiser leaves nothing of some lines.
        let all: &[u32] = &[11, 14, 15, 16, 24, 32, 35, 38];
        let left: &[u32] = &[11, 16, 32, 35, 38];
        has(&program, "shapes.cpp", if form.starts_with("-O0") { all } else { left }, &[1, 7, 20, 22, 28]);
        let functions = functions(&program);
        let gets: Vec<_> = functions.iter().filter(|(name, _, _)| name.contains("::get")).collect();
        assert_eq!(gets.len(), 1, "{form}: {functions:?}");
        assert_eq!(gets[0].2, 13, "{form}");
        if form.starts_with("-O2") {
            // Library code that is inlined into get(): the stack of an instruction ends in our own source.
            let inlined =
                program.points.iter().map(|point| program.place(point.offset)).find(|place| place.len() > 1);
            let place = inlined.expect("something is inlined at -O2");
            assert!(place[0].inlined && place.last().is_some_and(|frame| !frame.inlined), "{place:?}");
            assert!(place.iter().all(|frame| frame.line > 0), "{place:?}");
        }
    }
}

/// Whether some accesses of a program count as its authors' own, and whether some do not.
fn own_and_others(program: &Path) -> (bool, bool) {
    let bytes = std::fs::read(program).expect("the program");
    let accesses = accesses(&bytes, Which::All).expect("a program");
    (accesses.iter().any(|access| access.written), accesses.iter().any(|access| !access.written))
}

#[test]
fn accesses_of_languages_and_libraries_are_told_from_the_authors_own() {
    let scratch = Scratch::with_sources("own");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let source = scratch.path("own.c");
    std::fs::write(&source, "int count; int main(void) { return count++; }\n").expect("written");
    for (form, expected) in [("-g -static", (true, true)), ("-static", (true, false)), ("-g", (true, true))] {
        shell(&scratch.path(""), &format!("gcc {form} own.c -o own"));
        let found = own_and_others(&scratch.path("own"));
        // What the compiler adds to a program that is linked dynamically may have no accesses.
        assert_eq!(found.0, expected.0, "{form}");
        assert!(form == "-g" || found.1 == expected.1, "{form}");
    }
    let rust = scratch.path("src/rust");
    shell(&rust, &format!("{rustc} --edition 2021 --crate-name shop -g main.rs -o ../../shop"));
    assert_eq!(own_and_others(&scratch.path("shop")), (true, true));
    // Only the standard library has debug information: nobody knows what is whose.
    shell(&rust, &format!("{rustc} --edition 2021 --crate-name shop main.rs -o ../../shop"));
    assert_eq!(own_and_others(&scratch.path("shop")), (true, false));
    if have(&["go"], "accesses of Go programs") {
        shell(&scratch.path("src/go"), "go build -o ../../shop-go .");
        assert_eq!(own_and_others(&scratch.path("shop-go")), (true, true));
    }
}

#[test]
fn rust_has_its_lines_with_and_without_optimisation() {
    let scratch = Scratch::with_sources("rust");
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    for form in [
        "-g",
        "-O -g",
        "-C debuginfo=line-tables-only",
        "-O -C debuginfo=1 -C symbol-mangling-version=v0",
        "-g -C split-debuginfo=unpacked",
    ] {
        shell(
            &scratch.path("src/rust"),
            &format!("{rustc} --edition 2021 --crate-name shop {form} main.rs -o ../../shop"),
        );
        let mut rules = scratch.rules("src/rust");
        rules.places = true;
        let program = look(&scratch.path("shop"), &rules).unwrap_or_else(|e| panic!("{form}: {e}"));
        sound(&program);
        assert_eq!(lines(&program).keys().collect::<Vec<_>>(), ["log.rs", "main.rs"], "{form}");
        // An optimiser leaves nothing of some lines.
        let plain = !form.starts_with("-O");
        let (all, left): (&[u32], &[u32]) = (&[6, 8, 11, 12, 14, 18, 20, 21], &[11, 12, 14]);
        has(&program, "main.rs", if plain { all } else { left }, &[1, 2, 3, 4, 13, 16]);
        has(&program, "log.rs", if plain { &[8, 11, 15] } else { &[] }, &[2, 4, 5, 6, 13]);
        let names = names(&program);
        let functions: &[&str] =
            if plain { &["shop::main", "push", "total", "largest"] } else { &["shop::main"] };
        for name in functions {
            assert!(
                names.iter().any(|n| n.ends_with(name) || n.contains(&format!("{name}::<"))),
                "{form}: {name}: {names:?}"
            );
        }
        assert!(names.iter().all(|name| !name.contains("17h")), "{form}: a hash is in {names:?}");
        let all: BTreeSet<&str> =
            program.functions.iter().filter(|f| !f.counted).map(|f| f.name.as_str()).collect();
        assert!(all.iter().any(|name| name.contains("std::") || name.contains("core::")), "{form}");
    }
}

fn go(directory: &Path, arguments: &str, output: &str) {
    // The packages that come with Go are compiled once for all forms and all runs of the tests.
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache");
    run(Command::new("go")
        .args(["build", "-o", output])
        .args(arguments.split_whitespace())
        .arg(".")
        .current_dir(directory)
        .envs([
            ("CGO_ENABLED", "0"),
            ("GOFLAGS", "-buildvcs=false"),
            ("GOPROXY", "off"),
            ("GOTOOLCHAIN", "local"),
        ])
        .env("GOCACHE", cache)
        .env("HOME", directory));
}

#[test]
fn go_has_its_lines_with_and_without_dwarf() {
    if !have(&["go"], "lines of Go programs") {
        return;
    }
    let scratch = Scratch::with_sources("go");
    let mut all: Vec<BTreeSet<u32>> = Vec::new();
    for form in ["", "-ldflags=-w", "-ldflags=-s", "-trimpath -ldflags=-s -buildmode=pie"] {
        go(&scratch.path("src/go"), form, "../../shop");
        let mut rules = scratch.rules("src/go");
        rules.places = true;
        let program = look(&scratch.path("shop"), &rules).unwrap_or_else(|e| panic!("{form}: {e}"));
        sound(&program);
        assert_eq!(lines(&program).keys().collect::<Vec<_>>(), ["cart/cart.go", "main.go"], "{form}");
        has(&program, "main.go", &[10, 11, 12, 13, 15, 16, 18], &[1, 3, 8]);
        has(&program, "cart/cart.go", &[13, 17, 18, 20, 21, 23, 27, 31, 32, 34], &[1, 3, 6, 35]);
        let names = names(&program);
        for name in ["main.main", "example.org/shop/cart.(*Cart).Add", "example.org/shop/cart.(*Cart).Total"]
        {
            assert!(names.iter().any(|n| n == name), "{form}: {name}: {names:?}");
        }
        let main = program
            .points
            .iter()
            .find(|point| point.function.is_some_and(|f| program.functions[f as usize].name == "main.main"));
        let place = program.place(main.expect("a point of main").offset);
        assert_eq!(place.last().map(|frame| frame.function.as_str()), Some("main.main"), "{form}: {place:?}");
        all.push(lines(&program)["main.go"].clone());
    }
    let common = all.iter().skip(1).fold(all[0].clone(), |common, lines| &common & lines);
    assert!(all.iter().all(|lines| lines.len() <= common.len() + 1), "{all:?}");
}

#[test]
fn functions_and_blocks_are_counted_where_they_are_asked_for() {
    if !have(&["gcc", "strip"], "functions and blocks of C programs") {
        return;
    }
    let scratch = Scratch::with_sources("units");
    let source = scratch.path("src");
    shell(&source, "gcc -O0 -g kv.c -o ../kv");
    shell(&source, "strip --strip-debug ../kv -o ../symbols");
    shell(&source, "strip ../kv -o ../stripped");
    let look_at = |name: &str, unit: Unit| {
        let mut rules = scratch.rules("src");
        rules.unit = Some(unit);
        look(&scratch.path(name), &rules)
    };
    let ours = ["dispatch", "main", "table_get", "twice", "unused_branch"];
    for name in ["kv", "symbols"] {
        let program = look_at(name, Unit::Functions).unwrap_or_else(|e| panic!("{name}: {e}"));
        sound(&program);
        let mut names = names(&program);
        // Without tables, what is inlined everywhere is not known.
        if name == "symbols" {
            names.push("twice".to_owned());
            names.sort();
        }
        assert_eq!(names, ours, "{name}");
        let blocks = look_at(name, Unit::Blocks).unwrap_or_else(|e| panic!("{name}: {e}"));
        sound(&blocks);
        // What only the table of the switch leads to is not found.
        assert!(
            blocks.items.len() > 10 && blocks.points.len() == blocks.items.len(),
            "{name}: {:?}",
            blocks.items
        );
    }
    let error = look_at("symbols", Unit::Lines).expect_err("no lines");
    assert!(error.reason.contains("no line tables") && error.hint.contains("-g"), "{error}");
    let error = look_at("stripped", Unit::Functions).expect_err("no functions");
    assert!(error.hint.contains("blocks"), "{error}");
    let stripped = look_at("stripped", Unit::Blocks).expect("blocks");
    sound(&stripped);
    assert!(stripped.items.len() > 10, "{:?}", stripped.items);
    // Every block of the stripped program is one of the whole program.
    let whole: BTreeSet<u64> =
        look_at("symbols", Unit::Blocks).expect("blocks").points.iter().map(|point| point.offset).collect();
    let found = stripped.points.iter().filter(|point| whole.contains(&point.offset)).count();
    assert!(found >= whole.len(), "{found} of {}", whole.len());
}

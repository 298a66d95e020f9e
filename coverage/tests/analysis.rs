//! Programs of this machine's compilers, in all forms that they have: their lines, functions and blocks.

mod common;

use std::collections::BTreeSet;
use std::process::Command;

use bloodhound_coverage::{HostFiles, NoFiles, Pattern, Program, analyse, read};
use common::{Scratch, functions, have, lines, look, run, shell, sound};

/// Lines of kv.c with code, without optimisation. Of brackets alone those count where a function returns.
const KV: &[u32] =
    &[8, 9, 10, 12, 13, 17, 18, 19, 20, 25, 27, 29, 31, 33, 35, 37, 39, 41, 45, 46, 47, 48, 49, 50];

fn set(lines: &[u32]) -> BTreeSet<u32> {
    lines.iter().copied().collect()
}

#[test]
fn c_in_all_its_forms_has_the_same_lines() {
    if !have(&["gcc", "objcopy", "strip"], "lines of C programs") {
        return;
    }
    let scratch = Scratch::with_sources("forms");
    let forms = [
        "-g",
        "-g1",
        "-gdwarf-2 -gstrict-dwarf",
        "-gdwarf-3 -gstrict-dwarf",
        "-gdwarf-4",
        "-gdwarf-5",
        "-g -gz=zlib",
        "-g -no-pie",
        "-g -static",
        "-g -static-pie",
        "-g -gsplit-dwarf",
        "-gdwarf-4 -gsplit-dwarf",
        "-g -ffunction-sections -Wl,--gc-sections",
        "-g -fcf-protection=none",
        "-g -Wl,--compress-debug-sections=zlib-gnu",
    ];
    let mut rules = scratch.rules("src");
    rules.places = true;
    for form in forms {
        shell(&scratch.path("src"), &format!("gcc -O0 {form} kv.c -o ../kv"));
        let program = look(&scratch.path("kv"), &rules).unwrap_or_else(|e| panic!("{form}: {e}"));
        sound(&program);
        assert_eq!(program.notes, Vec::<String>::new(), "{form}");
        let lines = lines(&program);
        assert_eq!(lines["kv.c"], set(KV), "{form}");
        assert_eq!(lines["table.h"], set(&[8, 9, 10, 11]), "{form}");
        let functions = functions(&program);
        let names: Vec<&str> = functions.iter().map(|(name, _, _)| name.as_str()).collect();
        assert_eq!(names, ["dispatch", "main", "table_get", "twice", "unused_branch"], "{form}");
    }
}

#[test]
fn separate_debug_files_are_found_and_checked() {
    if !have(&["gcc", "objcopy", "strip"], "separate debug files") {
        return;
    }
    let scratch = Scratch::with_sources("separate");
    let source = scratch.path("src");
    shell(&source, "gcc -O0 -g -Wl,--build-id kv.c -o ../whole");
    shell(&source, "objcopy --only-keep-debug ../whole ../kv.debug");
    shell(&source, "strip ../whole -o ../stripped");
    shell(&source, "objcopy --add-gnu-debuglink=../kv.debug ../stripped ../linked");
    let rules = scratch.rules("src");
    let whole = look(&scratch.path("whole"), &rules).expect("a program");
    let id: String =
        whole.build_id.as_ref().expect("a build-id").iter().map(|b| format!("{b:02x}")).collect();
    let same = |program: &Program| {
        assert_eq!(lines(program), lines(&whole));
        let points = |program: &Program| program.points.iter().map(|point| point.offset).collect::<Vec<_>>();
        assert_eq!(points(program), points(&whole));
        assert_eq!(functions(program), functions(&whole));
    };
    // Beside the program, by the link's name; and in `.debug`.
    same(&look(&scratch.path("linked"), &rules).expect("beside"));
    std::fs::create_dir(scratch.path(".debug")).expect("a directory");
    std::fs::rename(scratch.path("kv.debug"), scratch.path(".debug/kv.debug")).expect("moved");
    same(&look(&scratch.path("linked"), &rules).expect("in .debug"));
    // By build-id, below another root: an image's.
    let debug = std::fs::read(scratch.path(".debug/kv.debug")).expect("a file");
    scratch.write(&format!("image/usr/lib/debug/.build-id/{}/{}.debug", &id[..2], &id[2..]), &debug);
    let image = HostFiles { roots: vec![scratch.path("image")] };
    let stripped = std::fs::read(scratch.path("stripped")).expect("a file");
    same(&analyse("/srv/kv", &stripped, &image, &rules).expect("by build-id"));
    // A file of another build is refused, and that is said.
    let mut other = debug.clone();
    *other.last_mut().expect("not empty") ^= 1;
    scratch.write(".debug/kv.debug", &other);
    let error = look(&scratch.path("linked"), &rules).expect_err("another build");
    assert!(error.reason.contains("checksum"), "{error}");
    let error = analyse("/srv/kv", &stripped, &NoFiles, &rules).expect_err("nothing");
    assert!(error.reason.contains("no line tables"), "{error}");
}

#[test]
fn a_build_elsewhere_is_mapped_onto_the_checkout() {
    if !have(&["gcc"], "paths of builds") {
        return;
    }
    let scratch = Scratch::with_sources("elsewhere");
    let source = scratch.path("src");
    let map = format!("-ffile-prefix-map={}=/build/kv", source.display());
    shell(&source, &format!("gcc -O0 -g {map} kv.c -o ../kv"));
    let program = look(&scratch.path("kv"), &scratch.rules("src")).expect("found by names");
    assert_eq!(lines(&program).keys().collect::<Vec<_>>(), ["kv.c", "table.h"]);
    // The checkout is one directory above: the names are the same.
    let program = look(&scratch.path("kv"), &scratch.rules("")).expect("found by names");
    assert_eq!(lines(&program).keys().collect::<Vec<_>>(), ["src/kv.c", "src/table.h"]);
    let mut rules = scratch.rules("");
    rules.path_map = vec![("/build/kv".to_owned(), "src".to_owned())];
    assert_eq!(look(&scratch.path("kv"), &rules).expect("mapped").items, program.items);
    rules.path_map = vec![("/build/kv".to_owned(), "nowhere".to_owned())];
    let error = look(&scratch.path("kv"), &rules).expect_err("mapped to nothing");
    assert!(error.reason.contains("/build/kv/") && error.hint.contains("coverage.path_map"), "{error}");
    let mut rules = scratch.rules("src");
    rules.exclude = vec![Pattern::new("*.h").expect("a pattern")];
    let program = look(&scratch.path("kv"), &rules).expect("a program");
    assert_eq!(lines(&program).keys().collect::<Vec<_>>(), ["kv.c"]);
}

#[test]
fn a_digest_refuses_a_changed_file() {
    if !have(&["clang-14"], "DWARF's digests of files") {
        return;
    }
    let scratch = Scratch::with_sources("changed");
    shell(&scratch.path("src"), "clang-14 -O0 -gdwarf-5 kv.c -o ../kv");
    let path = scratch.path("src/table.h");
    let text = std::fs::read_to_string(&path).expect("a file");
    std::fs::write(&path, text.replace("11", "13")).expect("written");
    let program = look(&scratch.path("kv"), &scratch.rules("src")).expect("a program");
    assert_eq!(lines(&program).keys().collect::<Vec<_>>(), ["kv.c"]);
    assert!(
        program.notes.iter().any(|note| note.contains("table.h") && note.contains("changed")),
        "{:?}",
        program.notes
    );
}

/// Lines that clang's own coverage knows, from `llvm-cov export`.
#[test]
fn lines_are_those_of_clangs_instrumentation() {
    if !have(&["clang-14", "llvm-profdata-14", "llvm-cov-14"], "agreement with LLVM's coverage") {
        return;
    }
    let scratch = Scratch::with_sources("llvm");
    let source = scratch.path("src");
    shell(&source, "clang-14 -O0 -g kv.c -o ../kv");
    shell(&source, "clang-14 -O0 -g -fprofile-instr-generate -fcoverage-mapping kv.c -o ../counted");
    run(Command::new(scratch.path("counted")).env("LLVM_PROFILE_FILE", scratch.path("raw")));
    shell(&scratch.path(""), "llvm-profdata-14 merge raw -o data");
    let exported =
        shell(&scratch.path(""), "llvm-cov-14 export -format=lcov -instr-profile=data counted").stdout;
    let theirs = read::read(&exported, &|_| None).expect("lcov");
    let ours = lines(&look(&scratch.path("kv"), &scratch.rules("src")).expect("a program"));
    let theirs: BTreeSet<u32> = theirs
        .files
        .iter()
        .filter(|(name, _)| name.ends_with("/kv.c"))
        .flat_map(|(_, f)| f.lines.keys().copied())
        .collect();
    // LLVM counts the lines of a region from its first to its last, with lines between that have no code: those with a brace or the
    // head of a function alone. Each line with code is one of them.
    let foreign: Vec<&u32> = ours["kv.c"].iter().filter(|line| !theirs.contains(line)).collect();
    assert_eq!(foreign, Vec::<&u32>::new(), "{theirs:?}");
    let text = std::fs::read_to_string(source.join("kv.c")).expect("a file");
    let text: Vec<&str> = text.lines().collect();
    let missing =
        theirs.iter().filter(|line| !ours["kv.c"].contains(line)).map(|line| text[*line as usize - 1].trim());
    let missing: Vec<&str> = missing.filter(|line| line.contains(';')).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

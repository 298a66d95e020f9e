//! Reports as other tools really write them are read.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use bloodhound_coverage::read::{self, Report};
use common::{Scratch, have, run, shell};

fn lines(report: &Report, name: &str) -> BTreeMap<u32, bool> {
    let found: Vec<_> = report.files.iter().filter(|(path, _)| path.ends_with(name)).collect();
    assert_eq!(found.len(), 1, "{name} in {:?}", report.files.keys());
    found[0].1.lines.clone()
}

fn read_file(path: &Path) -> Report {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let scripts = |path: &str| std::fs::read_to_string(path).ok();
    read::read(&bytes, &scripts).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn coverage_py_in_all_its_forms() {
    if !have(&["python3-coverage"], "reports of coverage.py") {
        return;
    }
    let scratch = Scratch::with_sources("python");
    let source = scratch.path("src");
    shell(&source, "/usr/bin/python3-coverage run shop.py a bb");
    let mut all = Vec::new();
    for form in ["json", "xml", "lcov"] {
        shell(&source, &format!("/usr/bin/python3-coverage {form} -o ../report.{form}"));
        all.push(lines(&read_file(&scratch.path(&format!("report.{form}"))), "shop.py"));
    }
    for line in [2, 5, 7, 9, 16] {
        assert_eq!(all[0].get(&line), Some(&true), "{line}: {:?}", all[0]);
    }
    for line in [8, 13] {
        assert_eq!(all[0].get(&line), Some(&false), "{line}: {:?}", all[0]);
    }
    // The XML form leaves the line of the module's documentation out.
    all.iter_mut().for_each(|lines| lines.retain(|line, _| *line != 1));
    assert!(all.iter().all(|lines| *lines == all[0]), "{all:?}");
}

#[test]
fn node_with_v8_coverage() {
    if !have(&["node"], "reports of Node") {
        return;
    }
    let scratch = Scratch::with_sources("node");
    run(Command::new("node")
        .arg("shop.js")
        .current_dir(scratch.path("src"))
        .env("NODE_V8_COVERAGE", scratch.path("v8")));
    let mut report = Report::default();
    for entry in std::fs::read_dir(scratch.path("v8")).expect("a directory") {
        report.join(read_file(&entry.expect("an entry").path()));
    }
    let lines = lines(&report, "/shop.js");
    let expected = [
        (1, true),
        (3, true),
        (4, true),
        (5, false),
        (7, true),
        (10, false),
        (11, false),
        (14, true),
        (15, true),
    ];
    assert_eq!(lines, BTreeMap::from(expected));
    let functions: Vec<_> = report.files.values().flat_map(|file| file.functions.clone()).collect();
    assert!(functions.contains(&((3, "price".to_owned()), true)), "{functions:?}");
    assert!(functions.contains(&((10, "unused".to_owned()), false)), "{functions:?}");
}

#[test]
fn gcov_by_way_of_lcov() {
    if !have(&["gcc", "lcov"], "reports of gcov") {
        return;
    }
    let scratch = Scratch::with_sources("gcov");
    let source = scratch.path("src");
    shell(&source, "gcc -O0 --coverage kv.c -o kv");
    shell(&source, "./kv");
    shell(&source, "lcov --capture --directory . --output-file ../lcov.info");
    let lines = lines(&read_file(&scratch.path("lcov.info")), "kv.c");
    assert!(lines[&46] && lines[&48] && !lines[&9], "{lines:?}");
}

#[test]
fn profiles_of_go_tests() {
    if !have(&["go"], "reports of go test") {
        return;
    }
    let scratch = Scratch::with_sources("gotest");
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("go-cache");
    run(Command::new("go")
        .args(["test", "-coverprofile=../../profile", "./cart"])
        .current_dir(scratch.path("src/go"))
        .envs([("CGO_ENABLED", "0"), ("GOPROXY", "off"), ("GOTOOLCHAIN", "local")])
        .env("GOCACHE", cache)
        .env("HOME", scratch.path("")));
    let report = read_file(&scratch.path("profile"));
    let lines = lines(&report, "cart/cart.go");
    assert!(lines[&13] && lines[&18] && !lines[&21], "{lines:?}");
    // The name is that of the package; the checkout has the file below its own directory.
    let checkout = scratch.rules("src/go").checkout;
    let name = report.files.keys().next().expect("a file");
    assert_eq!(checkout.find(name, &[]).as_deref(), Some("cart/cart.go"), "{name}");
}

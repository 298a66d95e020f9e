//! Reports of what was reached: their forms, that other tools take them, and that shards are joined to the same.

mod common;

use std::process::Command;
use std::sync::Arc;

use bloodhound_coverage::command::{self, Base};
use bloodhound_coverage::report::{self, Format};
use bloodhound_coverage::{Coverage, Moment, NotMeasured, Program, Record, Rules, Unit};
use bloodhound_coverage::{growth, read, totals, uncovered_functions};
use common::{Scratch, data, have, look, run, shell};

/// A program of two files, and the rules that it was analysed by.
fn program(what: &str) -> Option<(Scratch, Rules, Arc<Program>)> {
    if !have(&["gcc"], what) {
        return None;
    }
    let scratch = Scratch::with_sources(what);
    shell(&scratch.path("src"), "gcc -O0 -g kv.c -o ../kv");
    let rules = scratch.rules("src");
    let program = look(&scratch.path("kv"), &rules).expect("a program");
    Some((scratch, rules, Arc::new(program)))
}

fn moment(seed: u64) -> Arc<Moment> {
    let faults = if seed.is_multiple_of(2) { vec!["partition <a> & \"b\"".to_owned()] } else { Vec::new() };
    Arc::new(Moment { seed, time_ns: Some(seed * 1_234_567_890), faults })
}

/// What a seed reaches: points of lines up to a number that grows with it.
fn record(program: &Arc<Program>, seeds: impl IntoIterator<Item = u64>) -> Record {
    let mut record = Record::new();
    record.ran("kv1", program);
    record.ran("kv2", program);
    for seed in seeds {
        record.seed(seed);
        let at = moment(seed);
        for (index, _) in program.points.iter().enumerate() {
            let line = program.items[program.items_of(index)[0] as usize].line;
            if u64::from(line) < 10 + seed * 3 && line != 10 {
                record.reach(&program.digest, index, &at);
            }
        }
    }
    record
}

#[test]
fn sums_are_those_of_lines() {
    let Some((_scratch, _rules, program)) = program("sums") else { return };
    let mut record = record(&program, 0..5);
    let reason =
        NotMeasured { reason: "it has no line tables".to_owned(), hint: "compile it with -g".to_owned() };
    record.not_measured("proxy", "/usr/sbin/proxy", reason);
    let coverage = record.coverage();
    let totals = totals(&coverage);
    let count = totals.all.units[&Unit::Lines];
    assert_eq!(count.total, program.items.len() as u64);
    // The two services run the same file: its lines count once.
    assert_eq!(totals.services["kv1"].units[&Unit::Lines], count);
    assert!(totals.services["proxy"].units.is_empty() && totals.services["proxy"].not_measured.len() == 1);
    assert_eq!(totals.all.not_measured.len(), 1);
    assert!(count.covered > 0 && count.covered < count.total && !count.reaches(10_000) && count.reaches(1));
    let growth = &growth(&coverage)[&Unit::Lines];
    assert_eq!(growth.last().map(|(_, sum)| *sum), Some(count.covered));
    assert!(growth.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 < two[1].1), "{growth:?}");
    let uncovered = uncovered_functions(&coverage);
    let names: Vec<&str> = uncovered.iter().map(|function| function.name.as_str()).collect();
    assert_eq!(names, ["dispatch", "main"]);
}

#[test]
fn shards_are_joined_to_the_same_in_any_order() {
    let Some((scratch, _rules, program)) = program("shards") else { return };
    let whole = record(&program, 0..9).coverage();
    let shards: Vec<Coverage> =
        [0..3, 3..6, 6..9].into_iter().map(|seeds| record(&program, seeds).coverage()).collect();
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let mut all = Coverage::default();
        order.iter().for_each(|shard| all.join(shards[*shard].clone()));
        assert_eq!(all, whole, "{order:?}");
    }
    // A shard that is joined twice changes nothing.
    let mut twice = whole.clone();
    twice.join(shards[1].clone());
    assert_eq!(twice, whole);
    let mut joined = record(&program, 3..9);
    joined.join(&record(&program, 0..5));
    assert_eq!(joined.coverage(), whole);
    // The same through files.
    let paths: Vec<_> =
        (0..3).map(|n| scratch.write(&format!("{n}.json"), report::json(&shards[n]).as_bytes())).collect();
    let output = scratch.path("all.json");
    let sums = command::merge(&paths, &output).expect("merged");
    assert_eq!(sums, totals(&whole));
    assert_eq!(std::fs::read_to_string(&output).expect("a file"), report::json(&whole));
    assert_eq!(command::load(&output).expect("a coverage"), whole);
}

#[test]
fn damaged_json_is_refused_with_its_path() {
    let scratch = Scratch::new("json");
    let refused = |text: &str| command::load(&scratch.write("a.json", text.as_bytes())).expect_err(text);
    for (text, words) in [
        ("", "EOF"),
        ("{}", "version"),
        (r#"{"version": 7}"#, "version 7"),
        (r#"{"version":1,"seeds":[],"moments":[],"parts":{},"services":{},"more":1}"#, "more"),
        (r#"{"version":1,"seeds":[],"moments":[],"parts":{},"services":{"a":{"parts":["x"]}}}"#, "\"x\""),
        (
            r#"{"version":1,"seeds":[],"moments":[],"parts":{"p":{"name":"p","unit":"lines","files":{"a":{"lines":{"1":3}}}}},"services":{}}"#,
            "moment 3",
        ),
    ] {
        let error = refused(text);
        assert!(error.contains(words) && error.contains("a.json"), "{error}");
    }
}

#[test]
fn lcov_is_taken_by_genhtml_and_read_back() {
    let Some((scratch, _rules, program)) = program("lcov") else { return };
    let coverage = record(&program, 0..5).coverage();
    let text = report::lcov(&coverage);
    scratch.write("lcov.info", text.as_bytes());
    let back = read::read(text.as_bytes(), &|_| None).expect("a report");
    let lines = back.files.values().map(|file| file.lines.len()).sum::<usize>();
    assert_eq!(lines, program.items.len());
    let covered =
        back.files.values().flat_map(|file| file.lines.values()).filter(|covered| **covered).count();
    assert_eq!(covered as u64, totals(&coverage).all.units[&Unit::Lines].covered);
    if have(&["genhtml"], "genhtml of lcov reads the reports") {
        let output = run(Command::new("genhtml")
            .args(["--output-directory", "../pages", "--demangle-cpp", "../lcov.info"])
            .current_dir(scratch.path("src")));
        let said =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        let count = totals(&coverage).all.units[&Unit::Lines];
        assert!(said.contains(&format!("({} of {} lines)", count.covered, count.total)), "{said}");
        assert!(!said.to_lowercase().contains("warning") && !said.to_lowercase().contains("error"), "{said}");
    }
}

#[test]
fn cobertura_is_valid_by_its_dtd_and_read_back() {
    let Some((scratch, rules, program)) = program("cobertura") else { return };
    let coverage = record(&program, 0..5).coverage();
    let text = report::cobertura(&coverage, &rules.checkout);
    let path = scratch.write("cobertura.xml", text.as_bytes());
    let back = read::read(text.as_bytes(), &|_| None).expect("a report");
    assert_eq!(back.files.values().map(|file| file.lines.len()).sum::<usize>(), program.items.len());
    if have(&["xmllint"], "xmllint checks the reports") {
        run(Command::new("xmllint")
            .args(["--nonet", "--noout", "--dtdvalid"])
            .arg(data("coverage-04.dtd"))
            .arg(path));
    }
}

#[test]
fn pages_are_whole_and_escaped() {
    let Some((scratch, rules, program)) = program("pages") else { return };
    let coverage = record(&program, 0..5).coverage();
    let formats = Format::ALL;
    let written = report::write(&coverage, &rules.checkout, &formats, &scratch.path("out")).expect("written");
    assert_eq!(written.len(), 4);
    let index = std::fs::read_to_string(&written[0]).expect("a page");
    let page = std::fs::read_to_string(scratch.path("out/html/file.kv.c.html")).expect("a page");
    for (text, words) in [
        (&index, "file.table.h.html"),
        (&index, "<polyline points="),
        (&index, "dispatch"),
        (&index, "kv.c:23"),
        (&page, "#include &quot;table.h&quot;"),
        (&page, "<tr id=\"L8\" class=\"yes\""),
        (&page, "<tr id=\"L10\" class=\"no\""),
        (&page, "first reached by seed 2 at 2.469 s, during partition &lt;a&gt; &amp; &quot;b&quot;"),
    ] {
        assert!(text.contains(words), "{words}\n{text}");
    }
    for text in [&index, &page] {
        assert!(!text.contains("<script") && !text.contains("http"), "{text}");
        assert_eq!(text.matches("<table").count(), text.matches("</table>").count());
    }
    if have(&["xmllint"], "xmllint checks the pages") {
        for name in ["index.html", "file.kv.c.html"] {
            let path = scratch.path("out/html").join(name);
            let output = run(Command::new("xmllint").args(["--nonet", "--noout", "--html"]).arg(&path));
            // libxml2 knows HTML 4: it calls the elements of HTML 5 invalid, and nothing else may be wrong.
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let wrong = said.lines().filter(|line| line.contains("error") && !line.contains("invalid"));
            assert_eq!(wrong.collect::<Vec<_>>(), Vec::<&str>::new(), "{said}");
        }
    }
    // Written again, all is the same, and nothing old is left.
    let before = report::html(&coverage, &rules.checkout);
    scratch.write("out/html/old.html", b"old");
    report::write(&coverage, &rules.checkout, &formats, &scratch.path("out")).expect("written");
    assert!(!scratch.path("out/html/old.html").exists());
    assert_eq!(report::html(&coverage, &rules.checkout), before);
    let names = std::fs::read_dir(scratch.path("out")).expect("a directory").count();
    assert_eq!(names, 4, "temporary files are left");
}

#[test]
fn reports_of_other_tools_join_the_sums() {
    let scratch = Scratch::new("tools");
    for name in ["checkout/app/main.py", "checkout/tests/test_main.py"] {
        scratch.write(name, b"import os\n\nprint(1)\n");
    }
    let rules = std::sync::Arc::new(scratch.rules("checkout"));
    let text = r#"{"meta":{},"files":{"/srv/app/main.py":{"executed_lines":[1],"missing_lines":[3]},
        "/srv/tests/test_main.py":{"executed_lines":[1],"missing_lines":[3]},"/usr/lib/python3/os.py":{"executed_lines":[1],"missing_lines":[]}}}"#;
    let report = read::read(text.as_bytes(), &|_| None).expect("a report");
    let mut record = Record::new();
    record.seed(7);
    record.report("web", "coverage.py", &report, &rules, &moment(7));
    let coverage = record.coverage();
    let totals = totals(&coverage);
    let count = totals.services["web"].units[&Unit::Lines];
    assert_eq!((count.covered, count.total), (1, 2));
}

#[test]
fn changed_lines_are_judged() {
    let Some((scratch, _rules, program)) = program("diff") else { return };
    if !have(&["git"], "changed lines of a git checkout") {
        return;
    }
    let source = scratch.path("src");
    let git = |line: &str| {
        shell(&source, &format!("git -c user.name=a -c user.email=a@b -c init.defaultBranch=main {line}"))
    };
    let new = std::fs::read_to_string(source.join("kv.c")).expect("a file");
    // The older state lacks lines 8 to 11.
    let old: String = (1..)
        .zip(new.lines())
        .filter(|(n, _)| !(8..=11).contains(n))
        .map(|(_, l)| format!("{l}\n"))
        .collect();
    std::fs::write(source.join("kv.c"), old).expect("written");
    git("init -q");
    git("add .");
    git("commit -q -m old");
    std::fs::write(source.join("kv.c"), new).expect("written");
    let input = scratch.write("coverage.json", report::json(&record(&program, 0..5).coverage()).as_bytes());
    let (text, count) =
        command::diff(std::slice::from_ref(&input), &Base::Revision("HEAD".to_owned()), &source)
            .expect("a diff");
    // Lines 8, 9 and 10 have code; 10 is never reached.
    assert_eq!((count.covered, count.total), (2, 3), "{text}");
    assert!(text.contains("kv.c: 2 of 3, not covered: 10"), "{text}");
    let patch = shell(&source, "git diff").stdout;
    let patch = scratch.write("patch", &patch);
    let (same, _) = command::diff(std::slice::from_ref(&input), &Base::File(patch), &source).expect("a diff");
    assert_eq!(same, text);
    let error =
        command::diff(&[input], &Base::Revision("--output=x".to_owned()), &source).expect_err("no revision");
    assert!(error.contains("git diff") && !source.join("x").exists(), "{error}");
}

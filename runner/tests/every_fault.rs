//! Every kind of faults that `bloodhound faults` lists, one after the other: a service sees what Linux would show it, the timeline tells it,
//! the campaign counts it, a replay has the same digest on each platform, and what was saved as a schedule shows it again.
//!
//! A kind without a case fails here by its name: it needs an entry in `every_fault/cases.rs`, which names one of the programs of that
//! directory. `BLOODHOUND_TEST_KINDS=crash,drop` runs these alone.

mod case;
mod cases;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::common::{
    Ran, command_on, compile, finish, have, in_parallel, repository, run_in, scratch, stack,
};
use case::{Case, Program, Sees};
use cases::CASES;
use serde_json::Value as Json;

/// The kinds as the command lists them.
fn kinds() -> Vec<Json> {
    let ran = run_in(&repository(), &["faults", "--format", "json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let answer: Json = serde_json::from_str(&ran.stdout).expect("JSON");
    answer["kinds"].as_array().expect("a list of kinds").clone()
}

fn name(kind: &Json) -> &str {
    kind["name"].as_str().expect("a kind has a name")
}

/// The programs of all cases, compiled into a directory of a test's own.
fn programs(whose: &str) -> PathBuf {
    let dir = scratch(&format!("every-fault-programs-{whose}"));
    for program in Program::ALL {
        let source = repository().join("runner/tests").join(program.source());
        compile(&source, &dir.join(program.name()), &["-O1", "-Wall", "-Wextra", "-Werror"]);
    }
    dir
}

/// A program with these faults. The property never holds, so each run is a finding, which can be replayed.
fn stack_of(name: &str, program: Program, programs: &Path, faults: &str) -> PathBuf {
    let service = |service: &str, peer: &str| {
        let (binary, app) = (program.name(), programs.display());
        format!(
            "  {service}: {{x-bloodhound: {{rootfs: host}}, command: [/app/{binary}, {peer}], \
             volumes: ['{app}:/app:ro', 'data-{service}:/data']}}\n"
        )
    };
    let services = match program.is_pair() {
        true => service("one", program.argument("one")) + &service("two", program.argument("two")),
        false => service("one", ""),
    };
    // What an upgrade makes of the first one.
    let next =
        format!("  next: {{extends: one, command: [/app/{}, next], profiles: [next]}}\n", program.name());
    let compose = format!("services:\n{services}{next}volumes: {{data-one: , data-two: }}\n");
    let config = format!(
        "compose: compose.yaml\noutput: {{dir: out}}\n\
         simulation: {{max_time: 20s, seeds: 1, boots: 1, start_spread: 0s, clock_spread: 0s, cost_spread: 0}}\n\
         faults: {{swarm: false, start_after: 500ms, duration: 2s{faults}}}\n\
         properties: [{{name: never, kind: liveness, timeout: 1s, check: {{type: http, endpoint: 'http://one:9/'}}}}]\n"
    );
    stack(&format!("every-fault-{name}"), &[("compose.yaml", &compose), ("bloodhound.yaml", &config)])
}

/// A timeline without the time of each line: what is told, and what the services say.
struct Timeline<'a>(Vec<&'a str>);

impl<'a> Timeline<'a> {
    fn of(text: &'a str) -> Timeline<'a> {
        Timeline(text.lines().filter_map(|line| line.split_once("s ").map(|(_, what)| what)).collect())
    }

    /// What stands behind a word of the timeline, such as `fault`.
    fn told(&self, word: &str) -> Vec<&'a str> {
        let of = |line: &&'a str| line.strip_prefix(word)?.strip_prefix(' ').map(str::trim_start);
        self.0.iter().filter_map(of).collect()
    }

    /// What the service that observes says.
    fn seen(&self) -> Vec<&'a str> {
        self.told("output").into_iter().filter_map(|line| line.strip_prefix("one | ")).collect()
    }
}

/// Whether these texts stand in the lines one after the other, with whatever between.
fn in_order(lines: &[&str], texts: &[&str], is: impl Fn(&str, &str) -> bool) -> bool {
    let mut lines = lines.iter();
    texts.iter().all(|text| lines.any(|line| is(line, text)))
}

fn sees(case: &Case, lines: &[&str]) -> bool {
    match case.sees {
        Sees::InOrder(texts) => in_order(lines, texts, |line, text| line == text),
        Sees::That(holds) => holds(lines),
    }
}

/// What must hold, with what there was instead.
fn check(holds: bool, what: &str, shown: &dyn std::fmt::Display) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("{what}\n{shown}")) }
}

/// The record of a run: the timeline tells of it, each fault is counted once, and it had an effect.
fn is_recorded(case: &Case, declared: &Json, ran: &Ran, dir: &Path) -> Result<(), String> {
    let answer: Json = serde_json::from_str(&ran.stdout).map_err(|e| format!("{e}: {}", ran.shown()))?;
    let read = |file: &str| std::fs::read_to_string(dir.join(file)).map_err(|e| format!("{file}: {e}"));
    let trace = read("trace.txt")?;
    let record: Json = serde_json::from_str(&read("finding.json")?).map_err(|e| e.to_string())?;
    let timeline = Timeline::of(&trace);
    let account = &answer["fault_accounts"][case.kind];
    let count = |member: &str| account[member].as_u64().unwrap_or_default();
    check(count("injected") > 0, "it was not injected", &answer["fault_accounts"])?;
    check(count("effective") > 0, "it had no effect", &answer["fault_accounts"])?;
    check(answer["faults_never_injected"] == serde_json::json!([]), "a kind never happened", &answer)?;

    let when = declared["when"].as_str().unwrap_or_default();
    let is_asked = ["each operation", "each power failure"].iter().any(|each| when.starts_with(each));
    let faults = timeline.told("fault");
    if is_asked {
        // Of an operation, or of a power failure.
        let marks = [format!("{}: ", case.kind), format!(" ({})", case.kind)];
        let is_one = |text: &str| marks.iter().any(|mark| text.contains(mark));
        let told = faults.iter().filter(|line| is_one(line)).count() as u64;
        let all_are_listed = timeline.told("left out").is_empty();
        check(told == count("injected") || !all_are_listed, "not as many are told as counted", &trace)?;
        let (during, after) =
            trace.split_once("healed: the system must recover").ok_or("there was no heal")?;
        check(is_one(during) && !is_one(after), "one is told after the heal", &trace)?;
    }
    let plan = record["fault_plan"].as_array().map(Vec::as_slice).unwrap_or_default();
    let begun = plan.iter().filter(|entry| entry["kind"] == case.kind && entry["without_effect"].is_null());
    let begun = begun.count() as u64;
    let is_of_packets = when.starts_with("each packet");
    if !is_asked && !is_of_packets {
        check(begun == count("injected"), "not as many are planned as counted", &record["fault_plan"])?;
    }
    let all: Vec<&str> = timeline.0.clone();
    check(
        in_order(&all, case.told, |line, text| line.contains(text)),
        &format!("the timeline does not tell {:?}", case.told),
        &trace,
    )?;
    check(sees(case, &timeline.seen()), "the service does not see it", &trace)
}

/// A replay is the same run.
fn is_replayed(platform: Option<&str>, dir: &Path, finding: &str) -> Result<Ran, String> {
    let args = ["replay", finding, "--save-faults", "saved.yaml"];
    let ran = finish(&mut command_on(platform, dir, &args), b"");
    let same = ran.code == Some(1) && ran.stdout.contains("reproduced: never");
    check(same || ran.rdtsc_leaks(), "the replay is another run", &ran.shown())?;
    Ok(ran)
}

/// The faults of a run as a schedule are the same faults, and the service sees them again.
fn is_saved(case: &Case, dir: &Path, replayed: &Ran) -> Result<(), String> {
    let again = run_in(dir, &["run", "--faults", "saved.yaml"]);
    let (first, second) = (Timeline::of(&replayed.stdout), Timeline::of(&again.stdout));
    let saved = || std::fs::read_to_string(dir.join("saved.yaml")).unwrap_or_default();
    let text = |timeline: &Timeline| timeline.told("fault").join("\n");
    check(text(&first) == text(&second), "the saved faults are others", &(saved() + &again.shown()))?;
    check(
        sees(case, &second.seen()),
        "the service does not see the saved faults",
        &(saved() + &again.shown()),
    )
}

fn judge(case: &Case, declared: &Json, programs: &Path, kvm: bool) -> Result<(), String> {
    let faults = format!(", {}", case.faults);
    let dir = stack_of(case.kind, case.program, programs, &faults);
    let ran = run_in(&dir, &["test", "--seeds", "1", "--jobs", "1", "--format", "json"]);
    check(ran.code == Some(1), "the campaign ends otherwise", &ran.shown())?;
    let finding = "out/findings/seed-0-never";
    is_recorded(case, declared, &ran, &dir.join(finding))?;
    if kvm {
        is_replayed(Some("kvm"), &dir, finding)?;
    }
    let replayed = is_replayed(crate::common::platform().as_deref(), &dir, finding)?;
    if !declared["schedule"].is_null() {
        is_saved(case, &dir, &replayed)?;
    }
    Ok(())
}

/// The sections of `faults` in which each kind is at rate 0, or at the amount of 0 by which it is off.
fn all_at_nothing(kinds: &[Json]) -> String {
    let mut sections: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for kind in kinds {
        let keys = kind["keys"].as_array().expect("keys");
        let off = |key: &&Json| key["switch"] == true || key["default"] == "0";
        let key = keys.iter().find(off).unwrap_or_else(|| panic!("no key switches off {}", name(kind)));
        let section = kind["group"].as_str().expect("a group");
        sections.entry(section).or_default().push(format!("{}: 0", key["name"].as_str().expect("a name")));
    }
    sections.iter().map(|(section, keys)| format!(", {section}: {{{}}}", keys.join(", "))).collect()
}

#[test]
fn kinds_at_rate_0_change_nothing() {
    if !have(&["cc"], "programs without any fault") {
        return;
    }
    let (programs, nothing) = (programs("nothing"), all_at_nothing(&kinds()));
    in_parallel(&Program::ALL, |program| {
        // In one directory: its name is that of the project, which programs can see.
        let name = format!("nothing-{}", program.name());
        let run = |faults: &str| run_in(&stack_of(&name, *program, &programs, faults), &["run"]);
        let (without, with) = (run(""), run(&nothing));
        assert_eq!(with.run_digest(), without.run_digest(), "{}", with.shown());
    });
}

/// What a program says of itself where there are no faults.
fn said_without(program: Program, programs: &Path) -> Vec<String> {
    let dir = stack_of(&format!("none-{}", program.name()), program, programs, "");
    let ran = run_in(&dir, &["run"]);
    assert_eq!(ran.code, Some(1), "{}", ran.shown());
    Timeline::of(&ran.stdout).seen().into_iter().map(str::to_owned).collect()
}

#[test]
fn every_kind_has_one_case() {
    let kinds = kinds();
    let declared: BTreeSet<&str> = kinds.iter().map(name).collect();
    let with: BTreeSet<&str> = CASES.iter().map(|case| case.kind).collect();
    let without: Vec<&&str> = declared.difference(&with).collect();
    assert!(
        without.is_empty(),
        "kinds without a case (add an entry to runner/tests/every_fault/cases.rs): {without:?}"
    );
    let unknown: Vec<&&str> = with.difference(&declared).collect();
    assert!(unknown.is_empty(), "cases of kinds that there are not: {unknown:?}");
    assert_eq!(with.len(), CASES.len(), "one case for each kind");
}

#[test]
fn every_kind_is_seen_told_counted_and_replayed() {
    if !have(&["cc"], "programs that see every fault") {
        return;
    }
    let only = std::env::var("BLOODHOUND_TEST_KINDS").ok().filter(|only| !only.is_empty());
    let wanted =
        |case: &&Case| only.as_ref().is_none_or(|only| only.split(',').any(|kind| kind == case.kind));
    let cases: Vec<&Case> = CASES.iter().filter(wanted).collect();
    let kinds = kinds();
    let declared: BTreeMap<&str, &Json> = kinds.iter().map(|kind| (name(kind), kind)).collect();
    let kvm = !bloodhound_platform_tests::without_kvm("every fault on kvm");
    let programs = programs("cases");
    let plain: BTreeMap<&str, Vec<String>> =
        Program::ALL.iter().map(|program| (program.name(), said_without(*program, &programs))).collect();
    let failures = Mutex::new(Vec::new());
    in_parallel(&cases, |case| {
        let lines: Vec<&str> = plain[case.program.name()].iter().map(String::as_str).collect();
        let seen_without = check(!sees(case, &lines), "it is seen without a fault", &lines.join("\n"));
        let Some(declared) = declared.get(case.kind) else { return };
        let judged = seen_without.and_then(|()| judge(case, declared, &programs, kvm));
        if let Err(why) = judged {
            failures.lock().expect("no panic").push(format!("{}: {why}", case.kind));
        }
    });
    let failures = failures.into_inner().expect("no panic");
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

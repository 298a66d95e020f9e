//! The record of a run: what the digest covers, and the file of events. Runs of single programs, and one seed of distributed-kv
//! (whose binary `examples/build.sh` makes).

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use crate::common::{Ran, exec, finish, repository, scratch};
use serde_json::Value as Json;

fn sh(script: &str) -> Vec<OsString> {
    ["/bin/sh", "-c", script].map(OsString::from).to_vec()
}

/// The digest of a script's run.
fn digest_with(options: &[&str], script: &str, input: &str) -> String {
    let ran = finish(&mut exec(&[&["--summary"], options].concat(), &sh(script)), input.as_bytes());
    assert_eq!(ran.code, Some(0), "{script}: {ran:?}");
    ran.digest().expect("a digest").to_owned()
}

fn digest(script: &str) -> String {
    digest_with(&[], script, "")
}

fn parse(path: &Path) -> Vec<Json> {
    let text = std::fs::read_to_string(path).expect("a file of events");
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

#[test]
fn bytes_and_arguments_are_in_the_digest_and_what_is_none_of_the_run_is_not() {
    // The words of a script are on the stack of the shell: only what it does with them is the run's.
    assert_eq!(digest(": AAAA"), digest(": BBBB"));
    let data = ["echo AAAA > /tmp/f", "echo BBBB > /tmp/f", "echo AAAA > /tmp/g"].map(digest);
    assert_eq!(BTreeSet::from(data.clone()).len(), 3, "one byte of a write, one byte of a path");
    assert_eq!(digest("echo AAAA > /tmp/f"), data[0]);
    assert_ne!(digest("umask 022"), digest("umask 023"), "one argument, and the result is the same");
    let read = |input| digest_with(&[], "read word", input);
    assert_ne!(read("AAAA\n"), read("AAAB\n"), "one byte that is read");
    assert_eq!(read("AAAA\n"), read("AAAA\n"));
    let ends =
        ["(exit 1) || true", "(exit 2) || true", "sh -c 'kill -9 $$' || true", "sh -c 'kill -15 $$' || true"];
    assert_eq!(ends.map(digest).iter().collect::<BTreeSet<_>>().len(), ends.len(), "how processes end");
}

#[test]
fn neither_stress_nor_listeners_are_in_the_digest() {
    let script = "trap : USR1; kill -USR1 $$; echo AAAA | cat > /tmp/f; (sleep 0.01; echo b) & read x < /tmp/f; wait; cat /tmp/f";
    let dir = scratch("listeners");
    let file = dir.join("events.jsonl").to_string_lossy().into_owned();
    let plain = digest(script);
    assert_eq!(digest_with(&["--strace"], script, ""), plain);
    assert_eq!(digest_with(&["--events", &file], script, ""), plain);
    for every in ["1", "3", "10"] {
        assert_eq!(digest_with(&["--stress", every], script, ""), plain, "every {every} steps");
    }
    // The file says what the command says.
    let lines = parse(Path::new(&file));
    let last = lines.last().expect("lines");
    assert_eq!(format!("digest: {}", last["digest"].as_str().expect("a digest")), plain);
    let write = |line: &&Json| line["event"] == "trap" && line["call"] == "write";
    let write = lines.iter().find(write).expect("somebody wrote");
    assert!(
        write["args"]["fd"].is_i64() && write["args"]["buf"].as_str().is_some_and(|p| p.starts_with("0x"))
    );
    let signal = lines.iter().find(|line| line["event"] == "signal").expect("a signal");
    assert_eq!((&signal["signal"], &signal["disposition"]), (&"SIGUSR1".into(), &"handled".into()));
    let output: String =
        lines.iter().filter(|l| l["event"] == "output").filter_map(|l| l["text"].as_str()).collect();
    assert!(output.contains("AAAA\n") && output.contains("b\n"), "{output}");
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_of_its_own() {
    let to = |path: &str| finish(&mut exec(&["--events", path], &sh("echo hello")), b"");
    let full = to("/dev/full");
    assert_eq!((full.code, full.stdout.as_str()), (Some(5), "hello\n"), "{full:?}");
    assert!(full.stderr.contains("writing events to /dev/full: No space left on device"), "{}", full.stderr);
    let nowhere = to("/nowhere/at/all");
    assert_eq!((nowhere.code, nowhere.stdout.as_str()), (Some(5), ""), "{nowhere:?}");
    assert!(nowhere.stderr.contains("cannot write events to /nowhere/at/all"), "{}", nowhere.stderr);
    // What is no regular file is written as it comes.
    let piped = to("/dev/stdout");
    assert_eq!(piped.code, Some(0), "{piped:?}");
    assert!(
        piped.stdout.starts_with("{\"schema\"") || piped.stdout.contains("bloodhound.events/v1"),
        "{piped:?}"
    );
    // Nothing is left behind by a run that fails.
    let dir = scratch("left");
    let file = dir.join("events.jsonl");
    let missing =
        finish(&mut exec(&["--events", &file.to_string_lossy()], &["/no/such/program".into()]), b"");
    assert_eq!(missing.code, Some(127), "{missing:?}");
    let names: Vec<_> =
        std::fs::read_dir(&dir).expect("the directory").flatten().map(|e| e.file_name()).collect();
    assert_eq!(names, ["events.jsonl"], "a whole file of a run that ended soon");
}

fn seed(options: &[&str]) -> Ran {
    let dir = repository().join("examples/distributed-kv");
    assert!(dir.join("bin/distributed-kv").exists(), "run examples/build.sh first (test.sh does)");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bloodhound"));
    command.current_dir(dir).args(["run", "--seed", SEED, "--format", "json"]).args(options);
    if let Some(platform) = crate::common::platform() {
        command.args(["--platform", &platform]);
    }
    let ran = finish(&mut command, b"");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran
}

/// A seed with crashes, pauses, partitions, and packets that are lost, late and duplicated.
const SEED: &str = "7";

/// What the correct service does not do, and what belongs to single programs.
const NOT_THERE: [&str; 11] = [
    "exception",
    "fault-target",
    "finding",
    "injected",
    "name-server",
    "out-of-memory",
    "output",
    "output-refused",
    "preempted",
    "signal",
    "survived",
];

#[test]
fn a_seed_tells_of_everything_and_the_same_every_time() {
    let dir = scratch("seed");
    let file = |name: &str| dir.join(name).to_string_lossy().into_owned();
    let digest = |ran: &Ran| serde_json::from_str::<Json>(&ran.stdout).expect("JSON")["digest"].clone();
    let plain = seed(&[]);
    let [one, two] = ["one", "two"].map(|name| digest(&seed(&["--events", &file(name)])));
    assert_eq!([&one, &two], [&digest(&plain); 2], "nobody sees that somebody listens");
    let bytes = ["one", "two"].map(|name| std::fs::read(file(name)).expect("a file"));
    assert!(bytes[0] == bytes[1], "the files differ");

    let lines = parse(Path::new(&file("one")));
    let (first, last) = (&lines[0], &lines[lines.len() - 1]);
    assert_eq!(first["schema"], "bloodhound.events/v1");
    assert_eq!(first["nodes"]["1"], "kv1", "{first}");
    assert_eq!((&last["end"], &last["digest"]), (&true.into(), &one));
    assert_eq!(last["events"], lines.len() as u64 - 2);
    let events = &lines[1..lines.len() - 1];
    let kinds: BTreeSet<&str> = events.iter().filter_map(|line| line["event"].as_str()).collect();
    let wanted = bloodhound_sim::event::KINDS.iter().copied().filter(|kind| !NOT_THERE.contains(kind));
    assert_eq!(kinds, wanted.collect());
    assert!(events.iter().all(|line| line["at"].is_u64() && line["step"].is_u64()));

    // What the campaign counts is in it, and packets add up.
    let count = |kind: &str| events.iter().filter(|line| line["event"] == kind).count();
    let faults = serde_json::from_str::<Json>(&plain.stdout).expect("JSON")["operations"].as_u64();
    assert_eq!(Some(count("operation-begin") as u64), faults);
    assert_eq!(count("packet-sent"), count("packet-routed") + count("packet-dropped"));
    let copies = events.iter().filter(|line| line["copy_arrives"].is_u64()).count();
    assert!(copies > 0 && count("packet-delivered") <= count("packet-routed") + copies);
}

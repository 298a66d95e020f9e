//! A program that makes system calls with senseless arguments (hostile/hostile.c) neither brings Bloodhound down nor reaches
//! the host. It may be stopped by what is not supported: then it runs again without that call. Nor does one whose signal
//! frames hold garbage.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use crate::common::{emulated_processor, exec, finish, have, in_parallel, left_out, repository};
use bloodhound_abi::table::{Status, TABLE};

/// Exit codes of ours: see `exit.rs`.
const FINDINGS: i32 = 1;
const UNSUPPORTED: i32 = 7;
/// How often a seed is run again without what stopped it.
const AGAIN: usize = 5;

fn build(dir: &Path, name: &str) -> Option<PathBuf> {
    if !have(&["gcc"], "the hostile programs") {
        return None;
    }
    std::fs::create_dir_all(dir).expect("a directory");
    let program = dir.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile").join(format!("{name}.c"));
    let built = Command::new("gcc")
        .args(["-w", "-O1", "-static", "-pthread", "-I"])
        .arg(repository().join("conformance/c"))
        .arg("-o")
        .arg(&program)
        .arg(source)
        .output()
        .expect("gcc");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(program)
}

/// The call that a finding about something unsupported names.
fn culprit(stderr: &str) -> Option<u64> {
    // The program itself may have written to standard error, without a newline.
    let (_, finding) = stderr.rsplit_once("bloodhound: process ")?;
    let (_, call) = finding.split_once("): ")?;
    let (name, _) = call.split_once('(')?;
    TABLE.iter().find(|e| e.name == name).map(|e| e.nr)
}

fn attack(program: &Path, cwd: &Path, seed: u64) -> Result<(), String> {
    let supported = TABLE.iter().filter(|e| e.status != Status::Unsupported).map(|e| e.nr);
    let mut numbers: BTreeSet<u64> = supported.collect();
    for _ in 0..=AGAIN {
        let mut command: Vec<OsString> = vec![program.into(), seed.to_string().into()];
        command.extend(numbers.iter().map(|n| OsString::from(n.to_string())));
        let ran = finish(exec(&["--seed", &seed.to_string()], &command).current_dir(cwd), b"");
        match ran.code {
            // A deadlock counts as a finding: the program may well make one.
            Some(0 | FINDINGS) => return Ok(()),
            Some(UNSUPPORTED) => match culprit(&ran.stderr) {
                Some(nr) if numbers.remove(&nr) => {}
                _ => return Err(format!("seed {seed}: an unsupported call without a name: {}", ran.stderr)),
            },
            // A clone with another exit signal, or a call that unmaps the program, ends it by a signal.
            Some(code @ 129..=192) if !ran.stderr.contains("panicked") => {
                println!("seed {seed} ended by signal {}", code - 128);
                return Ok(());
            }
            _ => return Err(format!("seed {seed}: exit {:?}\n{}\n{}", ran.code, ran.stdout, ran.stderr)),
        }
    }
    Ok(())
}

/// 1 to 20, or as BLOODHOUND_TEST_SEEDS says: "21-70".
fn seeds() -> Vec<u64> {
    let text = std::env::var("BLOODHOUND_TEST_SEEDS").unwrap_or_else(|_| "1-20".into());
    let (first, last) = text.split_once('-').unwrap_or((&text, &text));
    match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) => (first..=last).collect(),
        _ => panic!("BLOODHOUND_TEST_SEEDS={text} is no range such as 21-70"),
    }
}

#[test]
fn senseless_calls_bring_nothing_down() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostile");
    let cwd = dir.join("cwd");
    std::fs::create_dir_all(&cwd).expect("a directory");
    let Some(program) = build(&dir, "hostile") else { return };
    let seeds = seeds();
    let wrong = Mutex::new(Vec::new());
    in_parallel(&seeds, |seed| {
        if let Err(text) = attack(&program, &cwd, *seed) {
            wrong.lock().expect("no panic").push(text);
        }
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert_eq!(std::fs::read_dir(&cwd).expect("cwd").count(), 0, "files appeared on the host");
}

/// Frames of signal handlers with garbage in them (hostile/frames.c) end a program as they do natively, register by
/// register.
#[test]
fn garbage_in_frames_ends_as_natively() {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostile frames");
    let Some(program) = build(&dir, "frames") else { return };
    let range = ["0", "1500"];
    let native = finish(Command::new(&program).args(range), b"");
    let mut command = vec![OsString::from(&program)];
    command.extend(range.map(OsString::from));
    let ran = finish(&mut exec(&[], &command), b"");
    if ran.rdtsc_leaks() || emulated_processor() {
        let reason = "a KVM or processor in software emulates what runs on odd stacks, and not all of it";
        return left_out("garbage_in_frames_ends_as_natively", reason);
    }
    assert_eq!((native.code, ran.code), (Some(0), Some(0)), "{}", ran.stderr);
    assert_eq!(native.stdout.lines().count(), 1501);
    let differ = native.stdout.lines().zip(ran.stdout.lines()).filter(|(one, other)| one != other);
    let differ: Vec<String> = differ.map(|(one, other)| format!("{one}\n  became {other}")).collect();
    assert!(differ.is_empty(), "{} of 1500:\n{}", differ.len(), differ.join("\n"));
}

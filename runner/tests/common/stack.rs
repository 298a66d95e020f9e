//! Stacks made by tests: their files, the command in their directory, and what their services print.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Ran, finish, platform};

/// A directory of its own for a test, empty.
pub fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    match std::fs::remove_dir_all(&dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => panic!("{}: {e}", dir.display()),
        _ => {}
    }
    std::fs::create_dir_all(&dir).expect("a directory for the test");
    dir
}

/// Such a directory with these files.
pub fn stack(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let dir = scratch(name);
    for (file, text) in files {
        put(&dir, file, text);
    }
    dir
}

/// Writes a file of a test, with the directories above it.
pub fn put(dir: &Path, file: &str, text: &str) {
    let path = dir.join(file);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory for the test");
    std::fs::write(path, text).expect("a file of the test");
}

/// `bloodhound` in a directory, on this platform if it is a command that takes one.
pub fn command_on(platform: Option<&str>, dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bloodhound"));
    command.current_dir(dir).args(args).env("NO_COLOR", "1");
    if let Some(platform) = platform.filter(|_| matches!(args.first(), Some(&("run" | "test" | "replay")))) {
        command.args(["--platform", platform]);
    }
    if matches!(args.first(), Some(&("test" | "explore"))) && !args.contains(&"--no-shrink") {
        command.arg("--no-shrink");
    }
    command
}

/// The same on the platform of [`platform`], to its end.
pub fn run_in(dir: &Path, args: &[&str]) -> Ran {
    finish(&mut command_on(platform().as_deref(), dir, args), b"")
}

/// The run of seed 0 of the stack in a directory, made twice: both print the same, and nothing is found.
pub fn run_twice(dir: &Path) -> Ran {
    let ran = run_in(dir, &["run"]);
    assert_eq!(run_in(dir, &["run"]).stdout, ran.stdout, "two runs differ");
    assert_eq!(ran.code, Some(0), "{}", ran.shown());
    ran
}

/// A configuration in which services stay, with these settings of `simulation` and faults that no swarm changes for 20 seconds.
pub fn stays_under(dir: &Path, simulation: &str, faults: &str) {
    let config = format!(
        "compose: compose.yaml\noutput: {{dir: out}}\nsimulation: {{{simulation}}}\nfaults:\n  swarm: false\n  \
         duration: 20s\n{faults}properties:\n  - name: stays\n    kind: safety\n    check: {{type: no-crash}}\n"
    );
    put(dir, "bloodhound.yaml", &config);
}

/// What a service printed in a run.
pub fn lines<'a>(ran: &'a Ran, service: &str) -> Vec<&'a str> {
    let mark = format!(" {service} | ");
    ran.stdout.lines().filter_map(|line| line.split_once(&mark).map(|(_, text)| text)).collect()
}

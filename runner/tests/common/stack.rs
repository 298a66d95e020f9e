//! Stacks made by tests: their files, the command in their directory, and what their services print.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Ran, compile, finish, platform, repository};

/// A directory of its own for a test, empty. Its name is the test's, below one of the file that asks for it: tests of different files run side
/// by side and know nothing of each other's names.
#[track_caller]
pub fn scratch(name: &str) -> PathBuf {
    let file = Path::new(std::panic::Location::caller().file()).file_stem().expect("a source file");
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file).join(name);
    match std::fs::remove_dir_all(&dir) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => panic!("{}: {e}", dir.display()),
        _ => {}
    }
    std::fs::create_dir_all(&dir).expect("a directory for the test");
    dir
}

/// Such a directory with these files.
#[track_caller]
pub fn stack(name: &str, files: &[(&str, &str)]) -> PathBuf {
    let dir = scratch(name);
    for (file, text) in files {
        put(&dir, file, text);
    }
    dir
}

/// The compose file of a stack with the watcher (runner/tests/shrink/watcher.c), and a service beside it.
pub const WATCHER_COMPOSE: &str = "x-s: &s {x-bloodhound: {rootfs: host}, volumes: ['./app:/app:ro']}\nservices:\n  \
    watcher: {<<: *s, command: [/app/watcher]}\n  other: {<<: *s, command: [/bin/sleep, inf]}\n";
/// Few faults, of which two pauses of the watcher matter.
pub const WATCHER_CONFIG: &str = "compose: compose.yaml\noutput: {dir: out}\nsimulation: {max_time: 30s, time_step: 10ms, boots: 2, seeds: 60}\n\
    faults: {duration: 8s, network: {drop_rate: 0.01}, process: {pause_probability: 0.001, pause_duration_ms: [100, 400], \
    slow_probability: 0.002, slow_duration_ms: [100, 400]}}\n\
    properties: [{name: stays, kind: safety, check: {type: no-crash}}]\n";

/// A stack whose watcher fails when it has been paused twice.
#[track_caller]
pub fn watched(name: &str) -> PathBuf {
    let dir = stack(name, &[("compose.yaml", WATCHER_COMPOSE), ("bloodhound.yaml", WATCHER_CONFIG)]);
    add_program(&dir, "shrink/watcher.c");
    dir
}

/// Compiles a program of runner/tests into the directory `app` of a stack.
pub fn add_program(dir: &Path, source: &str) {
    let source = repository().join("runner/tests").join(source);
    let app = dir.join("app");
    std::fs::create_dir_all(&app).expect("a directory");
    compile(&source, &app.join(source.file_stem().expect("a name")), &["-O1"]);
}

/// Writes a file of a test, with the directories above it.
pub fn put(dir: &Path, file: &str, text: &str) {
    let path = dir.join(file);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory for the test");
    std::fs::write(path, text).expect("a file of the test");
}

/// Writes a script that can be executed natively at once. A process of its own writes it: of a file that this process had open for writing, a child that another test
/// starts meanwhile has the description too, and execve(2) says "ETXTBSY: The specified executable was open for writing by one or more processes".
pub fn put_script(path: &Path, text: &str) {
    let mut cat = Command::new("/bin/sh");
    cat.args(["-c", r#"cat > "$1" && chmod 755 "$1""#, "sh"]).arg(path);
    let ran = finish(&mut cat, text.as_bytes());
    assert_eq!(ran.code, Some(0), "{}: {}", path.display(), ran.stderr);
}

/// The commands that run services, on a platform.
const RUNNING: [&str; 7] = ["test", "explore", "run", "replay", "shrink", "causes", "verify"];

/// `bloodhound` in a directory, on this platform if it is a command that takes one and the arguments name none.
pub fn command_on(platform: Option<&str>, dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bloodhound"));
    command.current_dir(dir).arg(args[0]).env("NO_COLOR", "1");
    if let Some(platform) = platform.filter(|_| RUNNING.contains(&args[0]) && !args.contains(&"--platform")) {
        command.args(["--platform", platform]);
    }
    // A test that asks for no shrinking does not wait for it.
    let shrinks = args.iter().any(|arg| ["--shrink-budget", "--no-shrink"].contains(arg));
    if ["test", "explore"].contains(&args[0]) && !shrinks {
        command.arg("--no-shrink");
    }
    command.args(&args[1..]);
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

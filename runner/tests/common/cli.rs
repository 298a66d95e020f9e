//! The command line on the files of a directory, and what it answers.

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// A command without input, on the platform that the tests are to run on, if one is named and the arguments name none.
pub fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = super::command_on(super::platform().as_deref(), dir, args);
    command.stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub fn bloodhound(dir: &Path, args: &[&str]) -> Output {
    command(dir, args).output().expect("the bloodhound binary runs")
}

/// Its exit code; -1 if a signal ended it.
pub fn code(output: &Output) -> i32 {
    output.status.code().unwrap_or(-1)
}

/// All that it said.
pub fn text(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The last line of standard output as JSON.
pub fn json(output: &Output) -> serde_json::Value {
    let out = String::from_utf8_lossy(&output.stdout);
    let line = out.lines().last().unwrap_or_default();
    serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {}", text(output)))
}

/// How often a campaign that answers in JSON has injected a kind of faults.
pub fn injected(output: &Output, kind: &str) -> u64 {
    json(output)["fault_accounts"][kind]["injected"].as_u64().unwrap_or_default()
}

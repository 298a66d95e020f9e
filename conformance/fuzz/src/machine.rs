//! Where cases are carried out: natively, or under Bloodhound.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::case::Case;

/// How long a batch may take on the host before it is ended.
const PATIENCE: Duration = Duration::from_secs(120);

/// A way to carry out cases.
#[derive(Clone, Debug)]
pub enum Machine {
    /// This kernel, in namespaces of their own.
    Native,
    /// `bloodhound exec`, with a platform.
    Simulated {
        /// The command.
        bloodhound: PathBuf,
        /// What `--platform` gets.
        platform: String,
    },
}

/// What came of a case: the lines that were printed.
pub type Outcome = Vec<String>;

impl Machine {
    /// How it is called in reports.
    pub fn name(&self) -> &str {
        match self {
            Machine::Native => "native",
            Machine::Simulated { platform, .. } => platform,
        }
    }

    fn command(&self, guest: &Path) -> Command {
        match self {
            Machine::Native => {
                let mut command = Command::new(guest);
                command.arg("--private");
                command
            }
            Machine::Simulated { bloodhound, platform } => {
                let mut command = Command::new(bloodhound);
                command.args(["exec", "--platform", platform, "--"]).arg(guest);
                command
            }
        }
    }

    /// Carries out cases in one process and tells what came of each. A run that ended early gives its last case the reason as a
    /// line; the others are run again without it.
    pub fn run(&self, guest: &Path, extra: &[&str], cases: &[Case]) -> Vec<Outcome> {
        let mut outcomes: Vec<Outcome> = Vec::new();
        while outcomes.len() < cases.len() {
            let left = &cases[outcomes.len()..];
            let (text, end) = self.start(guest, extra, left);
            let done = sections(&text);
            let complete = done.len() >= left.len();
            outcomes.extend(done.into_iter().take(left.len()));
            if !complete {
                outcomes.push(vec![format!("the run ended early: {end}")]);
            }
        }
        outcomes
    }

    fn start(&self, guest: &Path, extra: &[&str], cases: &[Case]) -> (String, String) {
        let mut command = self.command(guest);
        command.args(extra).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the guest starts");
        let input: String = cases.iter().map(Case::text).collect();
        let mut stdin = child.stdin.take().expect("piped");
        let (mut stdout, mut stderr) =
            (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        let (mut text, mut errors) = (Vec::new(), Vec::new());
        let late = std::thread::scope(|scope| {
            // What a guest that ended early does not read is of no use.
            scope.spawn(move || drop(stdin.write_all(input.as_bytes())));
            scope.spawn(|| stdout.read_to_end(&mut text));
            scope.spawn(|| stderr.read_to_end(&mut errors));
            let begun = Instant::now();
            loop {
                match child.try_wait().expect("a child") {
                    Some(_) => break false,
                    None if begun.elapsed() > PATIENCE => {
                        drop(child.kill());
                        break true;
                    }
                    None => std::thread::sleep(Duration::from_millis(2)),
                }
            }
        });
        let status = child.wait().expect("a child");
        let errors = String::from_utf8_lossy(&errors).into_owned();
        let why = errors.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().to_owned();
        let why = errors.lines().find(|l| l.contains("nsupported") || l.contains("panicked")).unwrap_or(&why);
        let end = if late { "out of patience".to_owned() } else { format!("{status}: {why}") };
        (String::from_utf8_lossy(&text).into_owned(), end)
    }
}

/// The complete cases of an output.
fn sections(text: &str) -> Vec<Outcome> {
    let mut done = Vec::new();
    let mut lines = Vec::new();
    for line in text.lines() {
        if line == "enough" {
            done.push(std::mem::take(&mut lines));
        } else if !line.starts_with("case ") {
            lines.push(line.to_owned());
        }
    }
    done
}

/// Compiles the guest into a directory, unless it is there already.
///
/// # Errors
///
/// What the compiler said.
pub fn build_guest(directory: &Path) -> Result<PathBuf, String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("guest");
    let built = directory.join("fuzz-guest");
    let fresh = directory.join(format!("fuzz-guest.{}", std::process::id()));
    std::fs::create_dir_all(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    let mut command = Command::new("cc");
    command
        .args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-fno-stack-protector", "-static", "-o"])
        .arg(&fresh);
    let mut files: Vec<PathBuf> = std::fs::read_dir(&sources)
        .map_err(|e| format!("{}: {e}", sources.display()))?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "c"))
        .collect();
    files.sort();
    let output = command.args(&files).output().map_err(|e| format!("cc: {e}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    std::fs::rename(&fresh, &built).map_err(|e| format!("{}: {e}", built.display()))?;
    Ok(built)
}

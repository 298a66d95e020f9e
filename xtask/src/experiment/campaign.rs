//! One campaign of an experiment: a process of `bloodhound explore` until it has found the bug or used up its processor time.
//!
//! Key types: [`Order`], [`Campaign`] (what came of it). The processor time is that of the command and of all processes below it: a shell around it says what
//! it was when the command has ended, and `/proc` says meanwhile whether the budget is used up.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::failure::{Failure, broken_at};

/// How often it is looked whether the budget is used up.
const LOOK: Duration = Duration::from_millis(200);
/// Clock ticks in a second, as /proc counts (proc(5); 100 on all of x86-64).
const TICKS: f64 = 100.0;
/// How long a command may take to end when it is asked to.
const PATIENCE: u32 = 100;

/// What is run.
#[derive(Clone, Debug)]
pub struct Order<'a> {
    /// The command.
    pub bloodhound: &'a Path,
    /// The configuration of the service with the bug.
    pub config: &'a Path,
    /// The strategy.
    pub arm: &'a str,
    /// The platform.
    pub platform: &'a str,
    /// The number of the repetition, from 0: each has a seed of its own, which is the same in all arms.
    pub repetition: u64,
    /// Most runs.
    pub runs: u64,
    /// Most processor time, in seconds.
    pub seconds: f64,
    /// Where it writes.
    pub out: PathBuf,
}

/// What came of a campaign.
#[derive(Clone, Debug, PartialEq)]
pub struct Campaign {
    /// It has found the bug.
    pub found: bool,
    /// Processor time, in seconds, at most the budget.
    pub seconds: f64,
    /// Runs that were made.
    pub runs: u64,
    /// Distinct features that were seen (docs/exploration.md), if the strategy counts them.
    pub features: Option<u64>,
}

impl Campaign {
    /// As it stands in the file of results.
    pub fn json(&self) -> Json {
        json!({"found": self.found, "seconds": self.seconds, "runs": self.runs, "features": self.features})
    }
}

/// The seeds of repetitions lie so far apart that those of one are not those of another.
const APART: u64 = 1_000_000;

/// Runs a campaign.
///
/// # Errors
/// The command cannot be run, or ends in a way that says nothing about the bug.
pub fn run(order: &Order<'_>) -> Result<Campaign, Failure> {
    // What an earlier experiment has left there would be read as this one's.
    match fs::remove_dir_all(&order.out) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(broken_at(&order.out)(error)),
        _ => {}
    }
    fs::create_dir_all(&order.out).map_err(broken_at(&order.out))?;
    let times = order.out.join("times");
    let answer = order.out.join("answer.json");
    let mut child = start(order, &times, &answer)?;
    let mut over = 0;
    let status = loop {
        let ended = child.try_wait().map_err(|e| Failure::Broken(e.to_string()))?;
        if let Some(status) = ended {
            break status;
        }
        if used(child.id()) >= order.seconds {
            over += 1;
            if over == 1 {
                signal(&child, "-INT");
            } else if over > PATIENCE {
                signal(&child, "-KILL");
                let _status = child.wait();
                return Err(Failure::Broken(format!("{} does not end when it is asked to", tell(order))));
            }
        }
        sleep(LOOK);
    };
    let text = fs::read_to_string(&times).map_err(broken_at(&times))?;
    let spent = children_in(&text).ok_or_else(|| Failure::Broken(format!("{}: {text}", times.display())))?;
    let text = fs::read_to_string(&answer).map_err(broken_at(&answer))?;
    let line = text.lines().last().unwrap_or_default();
    let json: Json = serde_json::from_str(line).map_err(|_| {
        Failure::Broken(format!(
            "{} ends with {status} and no answer: see {}",
            tell(order),
            order.out.display()
        ))
    })?;
    let found = match status.code() {
        Some(1) => true,
        // All properties held, coverage of kinds of faults was missed, or there is no verdict on all of them.
        Some(0 | 3 | 4) => false,
        Some(130) if over > 0 => false,
        _ => {
            let place = order.out.display();
            return Err(Failure::Broken(format!("{} ends with {status}: see {place}", tell(order))));
        }
    };
    let runs = json["seeds_run"].as_u64().unwrap_or_default();
    if runs == 0 {
        return Err(Failure::Broken(format!("{} has run nothing: see {}", tell(order), order.out.display())));
    }
    // What is found after the budget is not found within it; what ends before it without a finding has used up its runs.
    let within = found && spent <= order.seconds;
    let seconds = if within { spent } else { order.seconds };
    Ok(Campaign { found: within, seconds, runs, features: json["search"]["features"].as_u64() })
}

fn tell(order: &Order<'_>) -> String {
    format!("explore --strategy {} of {} ({})", order.arm, order.config.display(), order.repetition)
}

/// The shell writes what processes below it have used, when the command has ended and been waited for.
fn start(order: &Order<'_>, times: &Path, answer: &Path) -> Result<Child, Failure> {
    let script = r#"times=$1; shift; "$@"; code=$?; read -r line < /proc/$$/stat; printf '%s\n' "$line" > "$times"; exit $code"#;
    let file = fs::File::create(answer).map_err(broken_at(answer))?;
    let log = order.out.join("log");
    let errors = fs::File::create(&log).map_err(broken_at(&log))?;
    let mut command = Command::new("sh");
    // A group of its own, so that a signal reaches all of it and nothing else. The shell outlives the interrupt.
    command.process_group(0);
    command.args(["-c", &format!("trap : INT; {script}"), "sh"]).arg(times).arg(order.bloodhound);
    command.args([
        "explore",
        "--fail-fast",
        "--no-shrink",
        "--no-regressions",
        "-j",
        "1",
        "--format",
        "json",
        "--strategy",
        order.arm,
    ]);
    command.args(["--platform", order.platform, "--seed", &(order.repetition * APART).to_string()]);
    command.args(["--runs", &order.runs.to_string()]).arg("--config").arg(order.config);
    command.arg("--out").arg(order.out.join("output"));
    command.stdin(Stdio::null()).stdout(file).stderr(errors);
    command.spawn().map_err(|e| Failure::Broken(format!("sh: {e}")))
}

/// The fields of a line of /proc/PID/stat behind the name, which may have spaces in it: the first is the state (field 3 of proc(5)).
fn fields(line: &str) -> Option<Vec<&str>> {
    Some(line.rsplit_once(')')?.1.split_whitespace().collect())
}

fn seconds(fields: &[&str], places: &[usize]) -> Option<f64> {
    let ticks: Option<u64> = places.iter().map(|place| fields.get(*place)?.parse::<u64>().ok()).sum();
    Some(ticks? as f64 / TICKS)
}

/// Processor time of the children that were waited for, with theirs: fields 16 and 17, `cutime` and `cstime`.
fn children_in(line: &str) -> Option<f64> {
    seconds(&fields(line)?, &[13, 14])
}

/// Processor time of a process and all below it, with those that have ended: `utime`, `stime`, `cutime`, `cstime`.
fn used(root: u32) -> f64 {
    let mut parents: BTreeMap<u32, (u32, f64)> = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let Ok(line) = fs::read_to_string(entry.path().join("stat")) else { continue };
        let Some(fields) = fields(&line) else { continue };
        let parent = fields.get(1).and_then(|text| text.parse().ok());
        if let (Some(parent), Some(time)) = (parent, seconds(&fields, &[11, 12, 13, 14])) {
            parents.insert(pid, (parent, time));
        }
    }
    parents.iter().filter(|(pid, _)| is_below(**pid, root, &parents)).map(|(_, (_, time))| time).sum()
}

fn is_below(mut pid: u32, root: u32, parents: &BTreeMap<u32, (u32, f64)>) -> bool {
    // No chain of parents is longer than there are processes.
    for _ in 0..=parents.len() {
        if pid == root {
            return true;
        }
        match parents.get(&pid) {
            Some((parent, _)) => pid = *parent,
            None => return false,
        }
    }
    false
}

/// Sends a signal to the shell, which leads a group of processes, and to all in the group, as Ctrl-C does.
fn signal(shell: &Child, signal: &str) {
    // That there is none any more is no matter.
    let _status = Command::new("kill").args([signal, "--", &format!("-{}", shell.id())]).status();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_from_stat() {
        let line = "4711 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 100 50 25 75 20 0 1";
        let fields = fields(line).expect("fields");
        assert_eq!(fields.first(), Some(&"S"));
        assert_eq!(seconds(&fields, &[11, 12, 13, 14]), Some(2.5));
        assert_eq!(children_in(line), Some(1.0));
        assert_eq!(children_in("nothing"), None);
    }

    #[test]
    fn a_process_is_below_itself_and_its_parents() {
        let parents = BTreeMap::from([(1, (0, 0.0)), (2, (1, 0.0)), (3, (2, 0.0)), (4, (1, 0.0))]);
        assert!(is_below(3, 2, &parents) && is_below(2, 2, &parents));
        assert!(!is_below(4, 2, &parents) && !is_below(1, 2, &parents));
    }
}

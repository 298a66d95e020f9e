//! What a hunt says: failing seeds as they come, with the line that replays each, and a summary.

use std::ffi::{OsStr, OsString};
use std::time::Instant;

use super::super::{Args, End};
use super::outcome::Verdict;
use super::progress::Progress;
use super::{Outcome, Seeds};
use crate::{bug, exit, output};

/// Options of a hunt that a replay of one seed leaves out; whether a value follows.
const OF_THE_HUNT: [(&str, bool); 8] = [
    ("--bisect", false),
    ("--save", true),
    ("--seed", true),
    ("--seeds", true),
    ("--seed-from", true),
    ("--jobs", true),
    ("-j", true),
    ("--keep-going", false),
];

/// What is told of a hunt.
pub struct Report {
    seeds: Seeds,
    expected: u8,
    keep_going: bool,
    begun: Instant,
    /// Seeds that came to an end.
    ran: u64,
    failing: u64,
    codes: Vec<u8>,
    progress: Progress,
    /// The program ended before it had a second task.
    pub one_schedule: bool,
    /// The user stopped it.
    pub interrupted: bool,
}

impl Report {
    pub fn new(args: &Args, seeds: Seeds) -> Report {
        Report {
            seeds,
            expected: args.chaos.expect_status,
            keep_going: args.chaos.keep_going,
            begun: Instant::now(),
            ran: 0,
            failing: 0,
            codes: Vec::new(),
            progress: Progress::new(seeds.count),
            one_schedule: false,
            interrupted: false,
        }
    }

    /// A seed came to its end; to be called in the order of seeds.
    pub fn ran(&mut self, outcome: &Outcome) {
        match outcome.verdict(self.expected) {
            Verdict::Passed => self.ran += 1,
            Verdict::Failed => {
                self.ran += 1;
                self.failing += 1;
                self.codes.push(exit::FINDINGS);
                let replay = replay(std::env::args_os(), &format!("--seed {}", outcome.seed));
                self.progress.beside(|| output::print(&format!("{}  replay: {replay}\n", text(outcome))));
            }
            Verdict::None(code) => {
                self.codes.push(code);
                if outcome.end != End::Interrupted {
                    self.progress.beside(|| output::print(&text(outcome)));
                }
            }
        }
        self.progress.show(self.ran, self.failing);
    }

    /// The summary; the exit code of the hunt.
    pub fn finish(mut self) -> u8 {
        self.progress.end();
        let seconds = self.begun.elapsed().as_secs_f64();
        if self.interrupted {
            self.codes.push(exit::INTERRUPTED);
        }
        output::print(&self.summary());
        // The only thing that depends on the host, so it is no part of the answer.
        let rate = if seconds > 0.0 { self.ran as f64 / seconds } else { 0.0 };
        output::eprint(&format!("bloodhound: {} seeds in {seconds:.1} s, {rate:.0} per second\n", self.ran));
        super::code(&self.codes)
    }

    fn summary(&self) -> String {
        let number = |n: u64| if n == 1 { "1 seed".to_owned() } else { format!("{n} seeds") };
        let mut text = match self.failing {
            0 => format!("{}: none fails\n", number(self.ran)),
            1 => format!("{}: 1 fails\n", number(self.ran)),
            n => format!("{}: {n} fail\n", number(self.ran)),
        };
        if self.one_schedule {
            text += "the program ended before it had a second thread or process: it has one schedule only\n";
        } else if self.interrupted {
            text += &format!("interrupted after {} of {}\n", self.ran, number(self.seeds.count));
        } else if self.failing > 0 && !self.keep_going && self.ran < self.seeds.count {
            text += "stopped at the first failure; `--keep-going` goes on\n";
        }
        text
    }
}

/// A seed with how it ended and the end of what it wrote.
pub fn text(outcome: &Outcome) -> String {
    let Outcome { seed, text, digest, tail, cut, .. } = outcome;
    let mut lines = text.lines();
    let mut out = format!("seed {seed}: {}\n", lines.next().unwrap_or_default());
    for line in lines {
        out += &format!("  {}\n", line.trim_start());
    }
    if *cut {
        out += "  | ...\n";
    }
    for line in tail.lines() {
        out += &format!("  | {}\n", crate::report::printable(line));
    }
    out + &format!("  digest: {digest}\n")
}

/// The command that runs one seed of a hunt again, or what else `which` says, from the hunt's own words.
pub fn replay(words: impl Iterator<Item = OsString>, which: &str) -> String {
    let mut command = vec!["bloodhound".to_owned(), "exec".to_owned()];
    let mut words = words.skip(2).peekable();
    let mut told = false;
    while let Some(word) = words.next() {
        let text = word.to_string_lossy().into_owned();
        if !text.starts_with('-') || text == "--" {
            // The program: nothing behind it is ours.
            command.extend([which.to_owned(), "--".to_owned()]);
            command.extend((text != "--").then(|| bug::quote(&text)));
            command.extend(words.by_ref().map(|word| bug::quote(&word.to_string_lossy())));
            told = true;
            break;
        }
        match of_the_hunt(&word) {
            Some(true) => {
                words.next();
            }
            Some(false) => {}
            None => {
                command.push(bug::quote(&text));
                // A value stands behind each option that takes one and has no `=`.
                if takes_value(&text)
                    && let Some(value) = words.next()
                {
                    command.push(bug::quote(&value.to_string_lossy()));
                }
            }
        }
    }
    if !told {
        command.push(which.to_owned());
    }
    command.join(" ")
}

/// Whether an option belongs to the hunt and not to its seeds; if so, whether its value is the next word.
fn of_the_hunt(word: &OsStr) -> Option<bool> {
    let text = word.to_str()?;
    OF_THE_HUNT.iter().find_map(|(name, value)| {
        if text == *name {
            return Some(*value);
        }
        let rest = text.strip_prefix(name)?;
        // `--seeds=5`, `-j4`.
        (rest.starts_with('=') || !name.starts_with("--")).then_some(false)
    })
}

/// Whether the word after this option of `exec` is its value.
fn takes_value(option: &str) -> bool {
    use clap::CommandFactory;
    let root = crate::cli::Cli::command();
    let exec = root.find_subcommand("exec");
    let arg = exec.and_then(|exec| {
        exec.get_arguments().find(|arg| {
            let long = arg.get_long().is_some_and(|long| option.strip_prefix("--") == Some(long));
            let short = arg.get_short().is_some_and(|short| option == format!("-{short}"));
            long || short
        })
    });
    arg.is_some_and(|arg| arg.get_action().takes_values())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replayed(words: &str) -> String {
        replay(words.split(' ').map(OsString::from), "--seed 17")
    }

    #[test]
    fn a_replay_has_the_options_of_the_seed_and_not_those_of_the_hunt() {
        assert_eq!(
            replayed("/x/bloodhound exec --chaos --seeds 500 -j2 --keep-going -- ./a -j --seeds 3"),
            "bloodhound exec --chaos --seed 17 -- ./a -j --seeds 3"
        );
        assert_eq!(
            replayed("bloodhound exec --seed-from=7 --env A=1 --chaos --max-time 5s -j 4 ./a b"),
            "bloodhound exec --env A=1 --chaos --max-time 5s --seed 17 -- ./a b"
        );
    }
}

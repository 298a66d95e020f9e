//! What a campaign says while it runs.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::output;

/// Between two lines where there is no terminal.
const LINES: Duration = Duration::from_secs(10);

/// A progress bar on a terminal, a line every few seconds elsewhere.
pub struct Progress {
    total: u64,
    noun: &'static str,
    /// Drawn on the terminal; `None` without one.
    bar: Option<ProgressBar>,
    last: Instant,
}

impl Progress {
    /// Of so many seeds or runs, which is what they are called.
    pub fn new(total: u64, noun: &'static str) -> Progress {
        let bar = output::progress_bar(
            total,
            &format!("[{{bar:30}}] {{pos}}/{{len}} {noun}s, {{msg}}, {{eta}} left"),
        );
        Progress { total, noun, bar, last: Instant::now() }
    }

    pub fn say(&self, line: &str) {
        let print = || output::eprint(&format!("bloodhound: {line}\n"));
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// So much is done; `more` is what else there is to say.
    pub fn show(&mut self, done: u64, findings: usize, more: &str) {
        let more = if more.is_empty() { String::new() } else { format!(", {more}") };
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{findings} findings{more}"));
            bar.set_position(done);
        } else if self.last.elapsed() >= LINES {
            self.last = Instant::now();
            output::eprint(&format!(
                "bloodhound: {done}/{} {}s, {findings} findings{more}\n",
                self.total, self.noun
            ));
        }
    }

    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

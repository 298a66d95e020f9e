//! What a campaign says while it runs.

use std::time::{Duration, Instant};

use indicatif::ProgressBar;

use crate::output;

/// Between two lines where there is no terminal.
const LINES: Duration = Duration::from_secs(10);

/// A progress bar on a terminal, a line every few seconds elsewhere.
pub struct Progress {
    total: u64,
    /// Drawn on the terminal; `None` without one.
    bar: Option<ProgressBar>,
    last: Instant,
}

impl Progress {
    pub fn new(total: u64) -> Progress {
        let bar = output::progress_bar(total, "[{bar:30}] {pos}/{len} seeds, {msg}, {eta} left");
        Progress { total, bar, last: Instant::now() }
    }

    pub fn say(&self, line: &str) {
        let print = || output::eprint(&format!("bloodhound: {line}\n"));
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    pub fn show(&mut self, done: u64, findings: usize) {
        if let Some(bar) = &self.bar {
            bar.set_message(format!("{findings} findings"));
            bar.set_position(done);
        } else if self.last.elapsed() >= LINES {
            self.last = Instant::now();
            output::eprint(&format!("bloodhound: {done}/{} seeds, {findings} findings\n", self.total));
        }
    }

    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

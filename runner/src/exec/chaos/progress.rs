//! How far a hunt has come, on a terminal; without one nothing is said of it.

use indicatif::ProgressBar;

use crate::output;

/// A line at the bottom of the terminal.
pub struct Progress {
    /// `None` without a terminal.
    bar: Option<ProgressBar>,
}

impl Progress {
    pub fn new(total: u64) -> Progress {
        let bar =
            output::progress_bar(total, "[{bar:30}] {pos}/{len} seeds, {msg}, {per_sec:.0}, {eta} left");
        if let Some(bar) = &bar {
            bar.set_message(failures(0));
        }
        Progress { bar }
    }

    /// So many seeds were run, of which so many fail.
    pub fn show(&self, ran: u64, failing: u64) {
        if let Some(bar) = &self.bar {
            bar.set_message(failures(failing));
            bar.set_position(ran);
        }
    }

    /// Writes while the line is out of the way.
    pub fn beside(&self, write: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    pub fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn failures(count: u64) -> String {
    match count {
        0 => "none fails".to_owned(),
        1 => "1 fails".to_owned(),
        n => format!("{n} fail"),
    }
}

//! What a campaign says while it runs.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use crate::output;

/// A progress bar on a terminal, a line every few seconds elsewhere.
pub struct Progress {
    total: u64,
    bar: bool,
    last: Instant,
}

impl Progress {
    pub fn new(total: u64) -> Progress {
        let bar = std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|t| t != "dumb");
        Progress { total, bar, last: Instant::now() }
    }

    pub fn say(&self, line: &str) {
        let clear = if self.bar { "\r\x1b[2K" } else { "" };
        output::eprint(&format!("{clear}bloodhound: {line}\n"));
    }

    pub fn show(&mut self, done: u64, findings: usize) {
        let every = if self.bar { Duration::from_millis(100) } else { Duration::from_secs(10) };
        if self.last.elapsed() < every {
            return;
        }
        self.last = Instant::now();
        if self.bar {
            let width = 30;
            let filled = (u128::from(done) * width / u128::from(self.total.max(1))) as usize;
            output::eprint(&format!(
                "\r\x1b[2K[{}{}] {done}/{} seeds, {findings} findings",
                "#".repeat(filled),
                " ".repeat((width as usize).saturating_sub(filled)),
                self.total
            ));
        } else {
            output::eprint(&format!("bloodhound: {done}/{} seeds, {findings} findings\n", self.total));
        }
    }

    pub fn end(&self) {
        if self.bar {
            output::eprint("\r\x1b[2K");
        }
    }
}

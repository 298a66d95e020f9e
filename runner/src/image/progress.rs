//! What fetching an image tells: a bar for each blob on a terminal, a line for each elsewhere.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};

use bloodhound_images::{Digest, Event, Progress};
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::size;
use crate::{output, redact};

/// Bars, or lines.
pub struct Bars {
    /// `None` without a terminal.
    bars: Option<MultiProgress>,
    blobs: Mutex<BTreeMap<Digest, ProgressBar>>,
}

impl Bars {
    /// For the standard error of this process.
    pub fn new() -> Bars {
        let terminal =
            std::io::stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|t| t != "dumb");
        let bars = terminal.then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr()));
        Bars { bars, blobs: Mutex::default() }
    }

    fn line(&self, text: &str) {
        let print = || output::eprint(&format!("bloodhound: {text}\n"));
        match &self.bars {
            Some(bars) => bars.suspend(print),
            None => print(),
        }
    }

    fn begin(&self, bars: &MultiProgress, blob: Digest, all: Option<u64>, have: u64) {
        let mut blobs = self.blobs.lock().unwrap_or_else(PoisonError::into_inner);
        let bar = blobs.entry(blob).or_insert_with(|| bars.add(ProgressBar::no_length()));
        let style =
            ProgressStyle::with_template("{prefix} [{bar:30}] {bytes}/{total_bytes}, {bytes_per_sec}");
        bar.set_style(style.expect("a template without mistakes").progress_chars("## "));
        bar.set_prefix(blob.short());
        if let Some(all) = all {
            bar.set_length(all);
        }
        bar.set_position(have);
    }
}

impl Progress for Bars {
    fn event(&self, event: Event) {
        let bar =
            |blob: &Digest| self.blobs.lock().unwrap_or_else(PoisonError::into_inner).get(blob).cloned();
        match (event, &self.bars) {
            (Event::Begin { blob, size, have }, Some(bars)) => self.begin(bars, blob, size, have),
            (Event::Begin { blob, size: all, .. }, None) => {
                let all = all.map_or_else(String::new, |all| format!(", {}", size(all)));
                self.line(&format!("layer {}{all}", blob.short()));
            }
            (Event::Advance { blob, bytes }, _) => {
                if let Some(bar) = bar(&blob) {
                    bar.inc(bytes);
                }
            }
            (Event::Done { blob }, _) => {
                if let Some(bar) = bar(&blob) {
                    bar.finish_and_clear();
                }
            }
            (Event::Waiting { blob }, _) => {
                self.line(&format!("layer {}: another process is fetching it", blob.short()));
            }
            (Event::Note(text), _) => self.line(&text),
            (Event::Credential(credential), _) => redact::learn(credential.0),
        }
    }
}

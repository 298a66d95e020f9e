//! Runs of a search and its journal: each is written down when it has ended, and those that a process before has made are counted again.
//!
//! Neighbours: [`crate::explore`] (the journal, and whose turn it is), `workers` (the collector).

use std::collections::BTreeSet;
use std::path::Path;

use bloodhound_explore::Seen;

use super::crew::Takes;
use super::record::SeedRecord;
use super::workers::Collector;
use crate::explore::{Journal, Step};
use crate::finding;
use crate::session::{Failure, Violation};

impl Collector<'_> {
    /// The journal of the search, if it has one.
    pub fn journal(&mut self) -> Option<&mut Journal> {
        self.keeping.as_mut().and_then(|keeping| keeping.journal.as_mut())
    }

    /// Writes down what came of a run of a search, before it is announced. If that fails, the search ends.
    pub fn write_down(&mut self, record: &SeedRecord, reached: Option<&BTreeSet<u64>>) {
        let written = self.journal().map_or(Ok(()), |journal| journal.record(record, reached));
        if let Err(failure) = written {
            self.failed(failure);
        }
    }

    /// Counts the next run that a process before has made, with its findings. Returns what the search has learned from it; `None`: there is no such run.
    ///
    /// # Errors
    /// The journal makes no sense.
    pub fn again(&mut self) -> Result<Option<Option<Seen>>, Failure> {
        let next = self.journal().map_or(Ok(None), Journal::next)?;
        let Some(Step { mut record, seen, reached }) = next else { return Ok(None) };
        for found in &mut record.findings {
            found.standing = self.ledger.standing(&found.violation);
            let kept = found.kept.as_ref().map_err(String::clone);
            found.kept = kept.and_then(|dir| there(&self.reports.dir, dir));
        }
        self.totals.add_record(&record);
        let violations: Vec<Violation> = record.findings.iter().map(|f| f.violation.clone()).collect();
        if record.ran() {
            self.totals.ended(record.seed, &violations);
        }
        if let (Some(keeping), Some(reached)) = (&mut self.keeping, &reached) {
            keeping.again(reached, &record.findings);
        }
        let news = record.findings.iter().any(|found| !found.is_known());
        self.totals.findings.extend(record.findings);
        if self.fail_fast && news {
            self.totals.failed_fast = true;
            self.watch.close();
        }
        Ok(Some(seen))
    }
}

/// Where a finding is that was in this directory: among the reports of this campaign, or where it was.
fn there(out: &Path, dir: &Path) -> Result<std::path::PathBuf, String> {
    let here = dir.file_name().map(|name| finding::directory(out).join(name));
    let places = here.into_iter().chain([dir.to_path_buf()]);
    let found = places.into_iter().find(|place| place.is_dir());
    found.ok_or_else(|| format!("{} is not there any more", dir.display()))
}

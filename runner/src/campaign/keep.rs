//! What a campaign leaves for machines: shard.json and results.jsonl in its directory, and their copies in a store.
//!
//! Key type: [`Keep`]. The directory comes first: what is in a store was on the disk before, and a store that fails takes nothing from it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::args::Args;
use super::record::SeedRecord;
use super::totals::Totals;
use crate::coverage::{self, Measuring, Thresholds};
use crate::finding;
use crate::session::{Failure, Session};
use crate::shard::results::Writer;
use crate::shard::share::Share;
use crate::shard::{Ended, MANIFEST, Manifest, RESULTS};

/// The files of a campaign for machines.
#[derive(Debug)]
pub struct Keep {
    dir: PathBuf,
    manifest: Manifest,
    writer: Writer,
    /// The store in which others see it.
    pub share: Option<Share>,
}

impl Keep {
    /// Puts empty results into a directory.
    ///
    /// # Errors
    /// The host's.
    pub fn begin(dir: &Path, manifest: Manifest, share: Option<Share>) -> Result<Keep, Failure> {
        // Results of an earlier campaign must not be found beside the manifest of this one, nor the other way round.
        let begun = forget(dir).and_then(|()| Writer::new(dir.join(RESULTS)));
        let writer = begun.and_then(|writer| manifest.write(dir).map(|()| writer));
        let writer = writer.map_err(|e| cannot(dir, &e))?;
        Ok(Keep { dir: dir.to_path_buf(), manifest, writer, share })
    }

    /// A seed has come to an end, and its findings are on the disk.
    ///
    /// # Errors
    /// For the user.
    pub fn record(&mut self, record: &SeedRecord) -> Result<(), String> {
        let added = self.writer.add(record);
        added.map_err(|e| {
            format!(
                "what came of seed {} cannot be written: {}: {e}",
                record.seed,
                self.dir.join(RESULTS).display()
            )
        })?;
        match &mut self.share {
            Some(share) => share.record(&self.dir, record),
            None => Ok(()),
        }
    }

    /// The stack has booted. What it is made of is told before any seed, so that the results of a process that is killed can be compared
    /// with those of others as well.
    ///
    /// # Errors
    /// The host's, or the store's.
    pub fn booted(&mut self, session: &Session, totals: &Totals) -> Result<(), Failure> {
        self.manifest.inputs = finding::programs(&session.base, &session.plan_digest, totals.is_part);
        self.manifest.write(&self.dir).map_err(|e| cannot(&self.dir, &e))?;
        self.share.as_ref().map_or(Ok(()), |share| share.announce(&self.dir))
    }

    /// The campaign is over.
    ///
    /// # Errors
    /// For the user.
    pub fn end(&mut self, session: &Session, totals: &Totals, code: u8) -> Result<(), String> {
        self.manifest.inputs = finding::programs(&session.base, &session.plan_digest, totals.is_part);
        self.manifest.ended = Some(Ended::of(totals, code));
        let written = self.writer.sort().and_then(|()| self.manifest.write(&self.dir));
        written.map_err(|e| format!("what came of the seeds cannot be written: {e}"))
    }

    /// Puts what others are to see into the store, once all of it is in the directory.
    ///
    /// # Errors
    /// For the user.
    pub fn share(&mut self) -> Result<(), String> {
        match &mut self.share {
            Some(share) => share.end(&self.dir, &self.manifest),
            None => Ok(()),
        }
    }
}

fn cannot(dir: &Path, error: &std::io::Error) -> Failure {
    Failure::environment(format!("cannot write to {}: {error}", dir.display()))
}

/// Removes what an earlier campaign has left for machines, the report of code coverage that a merge would take included.
///
/// # Errors
/// The host's.
pub fn forget(dir: &Path) -> std::io::Result<()> {
    for name in [MANIFEST, RESULTS, coverage::REPORT] {
        match std::fs::remove_file(dir.join(name)) {
            Err(e) if !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// What is wanted of code coverage.
pub fn thresholds(args: &Args, measuring: &Measuring) -> Thresholds {
    let settings = measuring.settings();
    Thresholds::of(settings, args.coverage_threshold.or(settings.config.threshold))
}

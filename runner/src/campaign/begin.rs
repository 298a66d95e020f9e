//! How a campaign begins: the corpus and the journal of searches that were before it, and the files for machines that it leaves.
//!
//! Neighbours: `keep` (those files), [`crate::corpus`], [`crate::explore`] for the journal.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bloodhound_corpus::Corpus;
use bloodhound_explore::Settings;
use bloodhound_store::Place;

use super::keep::{Keep, forget, thresholds};
use super::seeds::Seeds;
use super::totals::Totals;
use super::{Args, accounts, print};
use crate::corpus::shared::Shared;
use crate::corpus::{self, Keeping};
use crate::explore::Journal;
use crate::session::{Failure, Session};
use crate::shard::share::Share;
use crate::shard::{FORMAT, Identity, Manifest};

/// The journal of a campaign that is a search with a corpus in which something may be saved, and this corpus.
///
/// # Errors
/// `--resume` where it has no meaning, and what [`Journal::open`] says.
pub fn journal(
    args: &Args,
    session: &Session,
    (guided, named): (bool, Option<&Path>),
) -> Result<Option<(Journal, Corpus)>, Failure> {
    let saves = session.project.config.output.save_interesting_seeds.unwrap_or(true);
    let impossible = [
        (
            !guided,
            "this is no search: the seeds of a strategy that is not guided do not depend on each other",
        ),
        (
            !saves,
            "`output.save_interesting_seeds: false` lets no run be saved in the corpus, so a search has no journal there",
        ),
        (
            session.measuring.is_some(),
            "code coverage of runs that were made before is not known; measure it in a search that is made in one piece",
        ),
    ];
    if let Some((_, why)) = impossible.iter().find(|(is_so, _)| *is_so && args.common.resume) {
        return Err(Failure::usage(format!("`--resume` cannot be used: {why}")));
    }
    let Some(dir) = named.filter(|_| guided && saves) else { return Ok(None) };
    let opened = corpus::open(dir, session)?;
    let journal = Journal::open(&opened, session, args.common.resume)?;
    Ok(Some((journal, opened)))
}

/// Begins the journal of a search, or goes on with it.
///
/// # Errors
/// Those of [`Journal::start`].
pub fn search(
    journal: Option<Journal>,
    keeping: Option<&mut Keeping>,
    settings: &Settings,
) -> Result<(), Failure> {
    if let (Some(mut journal), Some(keeping)) = (journal, keeping) {
        for note in journal.start(settings, keeping)? {
            print::say(&note);
        }
        keeping.journal = Some(journal);
    }
    Ok(())
}

/// The directory of the corpus that is named. What a bucket has is brought into that of the reports.
///
/// # Errors
/// Those of [`Shared::bring`].
pub fn corpus(args: &Args, out: &Path) -> Result<(Option<PathBuf>, Option<Shared>), Failure> {
    match &args.common.corpus {
        Some(bucket @ Place::Bucket { .. }) => {
            let dir = out.join(corpus::DIRECTORY);
            let shared = Shared::bring(bucket, &dir)?;
            Ok((Some(dir), Some(shared)))
        }
        Some(Place::Directory(dir)) => Ok((Some(dir.clone()), None)),
        None => Ok((None, None)),
    }
}

/// The corpus of a campaign, if it has one; it may have been opened already, for its journal.
///
/// # Errors
/// Those of [`Keeping::of`].
pub fn keeping(
    args: &Args,
    session: &Session,
    (out, named, opened): (&Path, Option<&Path>, Option<Corpus>),
    seeds: Seeds,
) -> Result<Option<Keeping>, Failure> {
    if args.live {
        return Ok(None);
    }
    let part = args.sharing.part();
    let keeping = Keeping::of(session, (named, opened), args.common.corpus_limit, out, (seeds, &part))?;
    for note in keeping.iter().flat_map(Keeping::notes) {
        print::say(&note);
    }
    Ok(keeping)
}

/// Begins what is left for machines, if it can be joined with that of others.
pub fn keep(
    args: &Args,
    session: &Session,
    seeds: &Seeds,
    totals: &Totals,
    (dir, joinable, entries): (&Path, bool, Option<u64>),
) -> Result<Option<Keep>, Failure> {
    if !joinable {
        let forgot = forget(dir);
        forgot.map_err(|e| Failure::environment(format!("cannot write to {}: {e}", dir.display())))?;
        return Ok(None);
    }
    let code = session.measuring.as_ref().map(|measuring| thresholds(args, measuring));
    let kinds = accounts::Accounts::configured(&session.scenario.faults, &session.scenario.planning);
    let manifest = Manifest {
        format: FORMAT,
        identity: Identity::of(
            session,
            args.strategy(session),
            args.common.no_regressions,
            &kinds,
            totals.least_coverage,
            code,
        ),
        first_seed: seeds.first,
        seeds: seeds.all,
        part: args.sharing.part(),
        inputs: Vec::new(),
        entries,
        ended: None,
    };
    let stale = Duration::from_nanos(args.sharing.worker_timeout);
    let share = args.sharing.store.as_ref();
    let share = share.map(|place| Share::begin(place, &manifest, stale, args.fail_fast)).transpose()?;
    let keep = Keep::begin(dir, manifest, share)?;
    keep.share.as_ref().map_or(Ok(()), |share| share.announce(dir))?;
    Ok(Some(keep))
}

//! `exec --observe`: programs are shown with observing points, as code coverage shows them, so that tests can tell that a run is the
//! same with and without. Nothing is said but how many points there are and how many were reached.
//!
//! Key type: [`Observing`]. Neighbour: [`crate::coverage`] does the same for campaigns, with what counts there.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bloodhound_coverage::{Checkout, HostFiles, Rules, analyse, blocks};
use bloodhound_platform::code_points::{FilePoints, Observed};
use bloodhound_sim::{CodeFile, Observer};

use crate::coverage;
use crate::session::Failure;

/// Where points are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Unit {
    /// At the beginnings of all known blocks of all programs and libraries.
    Blocks,
    /// At the statements of sources below the current directory.
    Lines,
}

/// The points of a run's programs.
pub struct Observing {
    /// Of lines.
    rules: Option<Rules>,
    observed: Arc<Observed>,
    /// By the digest of the file; `None`: it has none.
    files: Mutex<BTreeMap<[u8; 32], Option<Arc<FilePoints>>>>,
}

impl Observing {
    /// Nothing was executed yet.
    ///
    /// # Errors
    /// The current directory cannot be read.
    pub fn new(unit: Unit) -> Result<Arc<Observing>, Failure> {
        let rules = match unit {
            Unit::Blocks => None,
            Unit::Lines => {
                let checkout = Checkout::scan(Path::new("."))
                    .map_err(|e| Failure::environment(format!("--observe lines: {e}")))?;
                Some(Rules { checkout: Arc::new(checkout), ..Rules::default() })
            }
        };
        Ok(Arc::new(Observing { rules, observed: Arc::default(), files: Mutex::default() }))
    }

    /// What a machine asks.
    pub fn observer(self: &Arc<Observing>) -> Observer {
        let observing = self.clone();
        let points = Arc::new(move |file: &CodeFile<'_>| observing.points(file));
        Observer { points, observed: self.observed.clone(), mark: Arc::default() }
    }

    fn points(&self, file: &CodeFile<'_>) -> Option<Arc<FilePoints>> {
        let find = || {
            let bytes = coverage::read(file.image);
            let offsets = match &self.rules {
                None => blocks(&bytes),
                Some(rules) => {
                    let name = String::from_utf8_lossy(file.path);
                    let program = analyse(&name, &bytes, &HostFiles::default(), rules).ok()?;
                    program.points.iter().map(|point| point.offset).collect()
                }
            };
            (!offsets.is_empty()).then(|| Arc::new(FilePoints::new(offsets)))
        };
        self.files().entry(file.image.sha256()).or_insert_with(find).clone()
    }

    /// How many points there are and were reached, as a line.
    pub fn text(&self) -> String {
        let (mut all, mut reached) = (0, 0);
        for points in self.files().values().flatten() {
            all += points.offsets().len();
            reached += (0..points.offsets().len()).filter(|number| points.reached(*number).is_some()).count();
        }
        format!("observed: {reached} of {all} points were reached\n")
    }

    fn files(&self) -> MutexGuard<'_, BTreeMap<[u8; 32], Option<Arc<FilePoints>>>> {
        // Whoever panicked in here has left a map that is whole.
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

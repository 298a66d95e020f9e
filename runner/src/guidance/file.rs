//! `run --features FILE`: the features of a run as JSON lines, with what each is in words.
//!
//! Key type: [`FeatureFile`]. The file is written under another name when the run is over, and renamed when it is whole.

use std::io::Write;
use std::path::{Path, PathBuf};

use bloodhound_sim::scenario::Scenario;
use serde_json::json;

use super::{Features, Guide, nearness};
use crate::output;
use crate::plan::Property;
use crate::redact;
use crate::session::{Failure, Outcome, Worker};

/// Name and version of the format: the first line has it.
const SCHEMA: &str = "bloodhound.features/v1";

/// A file that will have the features of a run.
pub struct FeatureFile {
    path: PathBuf,
    guide: Guide,
}

impl FeatureFile {
    /// The features of what `worker` runs next.
    pub fn of(worker: &mut Worker, scenario: &Scenario, path: &Path) -> FeatureFile {
        let guide = Guide::new(scenario).in_words();
        worker.listen(guide.listener());
        FeatureFile { path: path.to_path_buf(), guide }
    }

    /// Writes the file.
    ///
    /// # Errors
    /// What the host refused; there is no new file then.
    pub fn finish(self, outcome: &Outcome, properties: &[Property]) -> Result<(), Failure> {
        let features = self.guide.take();
        let text = lines(&features, outcome, properties);
        let text = redact::json(&text);
        let path = &self.path;
        // What is no regular file (a pipe, /dev/stdout) is written as it is.
        let written = if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
            let file = std::fs::OpenOptions::new().write(true).open(path);
            file.and_then(|mut file| file.write_all(text.as_bytes()))
        } else {
            output::write_file(path, text.as_bytes())
        };
        written.map_err(|error| {
            Failure::environment(format!("cannot write features to {}: {error}", path.display()))
        })
    }
}

/// First what the file is, then the features in the order in which they were first seen, then how near the run came to a violation.
fn lines(features: &Features, outcome: &Outcome, properties: &[Property]) -> String {
    let first = json!({"schema": SCHEMA, "bloodhound": env!("CARGO_PKG_VERSION"), "seed": outcome.seed, "digest": outcome.digest});
    let mut out = format!("{first}\n");
    let mut seen: Vec<_> = features.seen.iter().collect();
    seen.sort_by_key(|(hash, first)| (first.at, **hash));
    for (hash, first) in seen {
        let text = features.texts.get(hash).map_or("", String::as_str);
        let line =
            json!({"feature": format!("{hash:016x}"), "at": first.at.0, "count": first.count, "text": text});
        out.push_str(&format!("{line}\n"));
    }
    let end = json!({
        "end": true,
        "features": features.seen.len(),
        "left_out": features.left_out,
        "nearness": nearness(outcome, properties),
    });
    out.push_str(&format!("{end}\n"));
    out
}

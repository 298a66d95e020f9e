//! `bloodhound coverage merge|report|diff`, as functions: arguments in, text and a count out.

use std::path::{Path, PathBuf};

use crate::model::Coverage;
use crate::report::{self, Format};
use crate::totals::{Count, Totals, totals};
use crate::{Checkout, diff};

/// Reads a coverage.json.
///
/// # Errors
/// Why it cannot be read, with its path.
pub fn load(path: &Path) -> Result<Coverage, String> {
    let at = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{at}: {error}"))?;
    report::parse(&text).map_err(|error| format!("{at}: {error}"))
}

/// Joins shards into one coverage.json.
///
/// # Errors
/// What cannot be read or written, with its path.
pub fn merge(inputs: &[PathBuf], output: &Path) -> Result<Totals, String> {
    let mut all = Coverage::default();
    for input in inputs {
        all.join(load(input)?);
    }
    let name = output.file_name().unwrap_or_default().to_string_lossy();
    let new = output.with_file_name(format!(".{name}.{}", std::process::id()));
    let written = std::fs::write(&new, report::json(&all)).and_then(|()| std::fs::rename(&new, output));
    written.map_err(|error| {
        let _gone = std::fs::remove_file(&new);
        format!("{}: {error}", output.display())
    })?;
    Ok(totals(&all))
}

/// Writes reports of one or more coverage.json. Gives their paths and the sums.
///
/// # Errors
/// What cannot be read or written, with its path.
pub fn report(
    inputs: &[PathBuf],
    formats: &[Format],
    directory: &Path,
    source: &Path,
) -> Result<(Vec<PathBuf>, Totals), String> {
    let mut all = Coverage::default();
    for input in inputs {
        all.join(load(input)?);
    }
    let checkout = Checkout::scan(source).map_err(|error| format!("{}: {error}", source.display()))?;
    let written = report::write(&all, &checkout, formats, directory).map_err(|error| error.to_string())?;
    Ok((written, totals(&all)))
}

/// Where the changed lines come from.
#[derive(Clone, Debug)]
pub enum Base {
    /// What git knows to have changed since this revision.
    Revision(String),
    /// A file with a unified diff.
    File(PathBuf),
}

/// What of the changed lines was reached: as text, and counted, for a threshold.
///
/// # Errors
/// What cannot be read, with its path.
pub fn diff(inputs: &[PathBuf], base: &Base, source: &Path) -> Result<(String, Count), String> {
    let mut all = Coverage::default();
    for input in inputs {
        all.join(load(input)?);
    }
    let changed = match base {
        Base::Revision(revision) => diff::of_git(source, revision)?,
        Base::File(path) => {
            let at = path.display();
            let text = std::fs::read(path).map_err(|error| format!("{at}: {error}"))?;
            diff::parse(&String::from_utf8_lossy(&text)).map_err(|error| format!("{at}: {error}"))?
        }
    };
    let covered = diff::covered(&all, &changed);
    Ok((covered.text(), covered.count))
}

//! Shrunken findings: a finding in a directory of its own, with the story of what is left ([`save_shrunk`]).
//!
//! It is a finding as any other, so `replay` takes it; its bundle, if there is one, is that of the finding that it was made from.

use std::io;
use std::path::Path;

use bloodhound_abi::digest;

use super::{Record, Stored, files, inputs, load, whole};
use crate::bundle::Bundle;
use crate::group::Group;
use crate::session::{Failure, Outcome, Session, Violation};
use crate::{output, platform, redact, report};

/// The directory of a shrunken finding in that of its original.
pub const SHRUNK: &str = "shrunk";

/// The directory of a finding that is named by it or by its finding.json.
pub fn directory_of(named: &Path) -> &Path {
    if named.is_file() { named.parent().unwrap_or(Path::new(".")) } else { named }
}

/// What `shrink` has left of a finding, if that is there and is the same failure, else the finding; and which of them it is, in words.
///
/// # Errors
/// The finding cannot be read.
pub fn least(named: &Path) -> Result<(Stored, &'static str), Failure> {
    let dir = directory_of(named);
    let stored = load(dir)?;
    if dir.file_name().is_some_and(|name| name == SHRUNK) {
        return Ok((stored, "the shrunken finding"));
    }
    let shrunk = dir.join(SHRUNK);
    if !shrunk.join("finding.json").is_file() {
        return Ok((stored, "the finding, which has not been shrunk"));
    }
    let not_used = |why: &str| {
        output::eprint(&format!("bloodhound: warning: `shrunk` of the finding is not used: {why}\n"))
    };
    let is_of =
        |less: &Record| Group::of(less) == Group::of(&stored.record) && less.seed == stored.record.seed;
    match load(&shrunk) {
        Ok(less) if is_of(&less.record) => Ok((less, "what `shrink` has left of the finding")),
        Ok(_) => {
            not_used("it is another failure");
            Ok((stored, "the finding; its `shrunk` is another failure"))
        }
        Err(failure) => {
            not_used(&failure.text);
            Ok((stored, "the finding; its `shrunk` cannot be read"))
        }
    }
}

/// The bundle of a finding; of a shrunken one that of its original.
///
/// # Errors
/// Those of [`Bundle::open`].
pub fn bundle_of(named: &Path) -> Result<Option<Bundle>, Failure> {
    // Names without `..`, so that the original is the directory above.
    let absolute = std::path::absolute(directory_of(named));
    let mut dir = absolute.as_deref().unwrap_or(named);
    loop {
        let bundle = Bundle::open(dir)?;
        match dir.parent() {
            Some(above) if bundle.is_none() && dir.file_name().is_some_and(|name| name == SHRUNK) => {
                dir = above
            }
            _ => return Ok(bundle),
        }
    }
}

/// Writes a finding that was made of another one, whose record is `original`. One that is there is replaced, if it is a finding. Whoever
/// sees the directory sees all of it.
///
/// # Errors
/// The host's, and that something else is there; then nothing has changed.
pub fn save_shrunk(
    dir: &Path,
    original: &Record,
    session: &Session,
    (outcome, violation): (&Outcome, &Violation),
    platform: platform::Record,
    story: &str,
) -> io::Result<()> {
    let record = Record {
        virtual_time_ns: violation.at.0,
        digest: outcome.digest.clone(),
        digest_version: digest::VERSION,
        steps: outcome.steps,
        text: redact::text(&violation.text).into_owned(),
        faults: report::faults(outcome),
        fault_plan: outcome.faults.clone(),
        platform,
        inputs: inputs(&session.base, &outcome.digest),
        ..original.clone()
    };
    let mut files = files(&record, outcome)?;
    files.insert(0, ("story.txt", redact::text(story).into_owned().into()));
    replace(dir, &files)
}

/// Puts a directory with these files in the place of a finding, or where nothing is.
fn replace(dir: &Path, files: &[(&str, Vec<u8>)]) -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", dir.display()));
    let beside = |what: &str| {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        dir.with_file_name(format!(".unfinished-{what}-{name}-{}", std::process::id()))
    };
    let (new, old) = (beside("new"), beside("old"));
    let there = std::fs::symlink_metadata(dir).is_ok();
    if there && !dir.join("finding.json").is_file() {
        let text = "there is something that is no finding; it stays";
        return Err(named(io::Error::new(io::ErrorKind::AlreadyExists, text)));
    }
    let written = whole(&new, files).and_then(|()| {
        if there {
            std::fs::rename(dir, &old)?;
        }
        std::fs::rename(&new, dir).inspect_err(|_| {
            if there {
                // The first error is the one to tell.
                let _ignored = std::fs::rename(&old, dir);
            }
        })
    });
    // Whatever is left of either is of no use.
    let _ignored = [&new, &old].map(std::fs::remove_dir_all);
    written.map_err(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_replaced_as_a_whole_and_nothing_else_is() {
        let top = std::env::temp_dir().join(format!("bloodhound-shrunk-{}", std::process::id()));
        let _ignored = std::fs::remove_dir_all(&top);
        let dir = top.join(SHRUNK);
        let put = |text: &str| {
            let files = [("finding.json", text.as_bytes().to_vec())];
            replace(&dir, &files)
        };
        let text = || std::fs::read_to_string(dir.join("finding.json")).expect("a finding");
        put("one").expect("written");
        std::fs::write(dir.join("more"), "").expect("a file");
        put("two").expect("replaced");
        assert_eq!((text(), dir.join("more").exists()), ("two".into(), false));
        std::fs::remove_file(dir.join("finding.json")).expect("removed");
        let refused = put("three").expect_err("no finding");
        assert!(refused.to_string().contains("is no finding"), "{refused}");
        assert_eq!(std::fs::read_dir(&top).expect("a directory").count(), 1, "nothing else is left");
        std::fs::remove_dir_all(top).expect("removed");
    }
}

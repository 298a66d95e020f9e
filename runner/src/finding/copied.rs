//! Findings that were made elsewhere, by a shard of the campaign, and get their place among those of here.

use std::path::{Path, PathBuf};

use super::{UNFINISHED, whole};

/// Puts the files of a finding that was made elsewhere into a directory with its name, or with a number behind it if the name is taken by another
/// one. The directory.
///
/// # Errors
/// The host's; nothing is left behind then.
pub fn copied(findings: &Path, name: &str, files: &[(String, Vec<u8>)]) -> std::io::Result<PathBuf> {
    let record = files.iter().find(|(path, _)| path == "finding.json").map(|(_, bytes)| bytes);
    let mut dir = findings.join(name);
    let mut number = 1;
    while std::fs::symlink_metadata(&dir).is_ok() {
        if std::fs::read(dir.join("finding.json")).ok().as_ref() == record {
            return Ok(dir);
        }
        number += 1;
        dir = findings.join(format!("{name}-{number}"));
    }
    let unfinished = findings.join(format!("{UNFINISHED}{name}-{}", std::process::id()));
    let files: Vec<(&str, Vec<u8>)> =
        files.iter().map(|(path, bytes)| (path.as_str(), bytes.clone())).collect();
    let written = whole(&unfinished, &files).and_then(|()| std::fs::rename(&unfinished, &dir));
    if let Err(error) = written {
        // Nothing can be done if this fails as well.
        let _ignored = std::fs::remove_dir_all(&unfinished);
        return Err(std::io::Error::new(error.kind(), format!("{}: {error}", dir.display())));
    }
    std::fs::File::open(findings)?.sync_all()?;
    Ok(dir)
}

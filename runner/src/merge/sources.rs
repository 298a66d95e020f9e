//! What is joined, and from where: directories of shards, directories of these, and stores.
//!
//! Key type: [`Piece`], what one process left, or what a store has of a range of seeds. Nothing that is read here is trusted: names lead nowhere
//! else, links are not followed, and what is no record of this version is refused with its place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bloodhound_coverage::Coverage;
use bloodhound_store::{Place, Store};

use crate::campaign::record::SeedRecord;
use crate::coverage;
use crate::session::Failure;
use crate::shard::share::{CAMPAIGN, Campaign, PARTS, decoded, encoded, files};
use crate::shard::{MANIFEST, Manifest, RESULTS, results};

/// What is joined.
#[derive(Debug)]
pub struct Piece {
    /// For messages.
    pub name: String,
    /// Of what it is a part; `None`: the lines of a range, which its campaign explains.
    pub manifest: Option<Manifest>,
    /// The campaign of its store.
    pub campaign: Option<Arc<Campaign>>,
    /// What came of seeds.
    pub records: Vec<SeedRecord>,
    from: Files,
}

#[derive(Debug)]
enum Files {
    Directory(PathBuf),
    /// Below this prefix.
    Store(Arc<Store>, String, Vec<String>),
    #[cfg(test)]
    Nowhere,
}

/// Reads all places.
///
/// # Errors
/// What cannot be read, or is nothing that can be joined.
pub fn read(places: &[String]) -> Result<Vec<Piece>, Failure> {
    let mut pieces = Vec::new();
    for place in places {
        let parsed = Place::parse(place).map_err(Failure::usage)?;
        match &parsed {
            Place::Directory(dir) if !dir.join(CAMPAIGN).exists() => directories(dir, &mut pieces)?,
            _ => store(&parsed, &mut pieces)?,
        }
    }
    Ok(pieces)
}

/// A shard's directory, or one with such directories in it, as CI services make it of artifacts.
fn directories(dir: &Path, pieces: &mut Vec<Piece>) -> Result<(), Failure> {
    if dir.join(MANIFEST).exists() {
        pieces.push(directory(dir)?);
        return Ok(());
    }
    let listed =
        std::fs::read_dir(dir).map_err(|e| Failure::environment(format!("{}: {e}", dir.display())))?;
    let mut below: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
    below.sort();
    below.retain(|path| !path.is_symlink() && (path.join(MANIFEST).exists() || path.join(CAMPAIGN).exists()));
    if below.is_empty() {
        return Err(Failure::usage(format!(
            "{} has nothing that can be joined: neither {MANIFEST} nor {CAMPAIGN} is in it, nor in a directory in it\nhelp: name \
             directories that `bloodhound test --out DIR` has written, or the --store of shards",
            dir.display()
        )));
    }
    for path in below {
        match path.join(MANIFEST).exists() {
            true => pieces.push(directory(&path)?),
            false => store(&Place::Directory(path), pieces)?,
        }
    }
    Ok(())
}

fn directory(dir: &Path) -> Result<Piece, Failure> {
    let (manifest, results) = (dir.join(MANIFEST), dir.join(RESULTS));
    let read = |path: &Path| own(path).map_err(|e| Failure::environment(format!("{}: {e}", path.display())));
    let manifest =
        Manifest::parse(&manifest.display().to_string(), &read(&manifest)?).map_err(Failure::usage)?;
    let records = results::read(&results.display().to_string(), &read(&results)?).map_err(Failure::usage)?;
    Ok(Piece {
        name: format!("{} ({})", dir.display(), manifest.part),
        manifest: Some(manifest),
        campaign: None,
        records,
        from: Files::Directory(dir.to_path_buf()),
    })
}

/// Reads a file that is there itself.
fn own(path: &Path) -> std::io::Result<Vec<u8>> {
    if std::fs::symlink_metadata(path)?.is_file() {
        return std::fs::read(path);
    }
    Err(std::io::Error::other("it is no file of its own; links are not followed"))
}

/// All that the processes of a campaign have put into a store.
fn store(place: &Place, pieces: &mut Vec<Piece>) -> Result<(), Failure> {
    let environment = |e: bloodhound_store::Error| Failure::environment(e.to_string());
    let store = Arc::new(Store::open(place).map_err(environment)?);
    let Some(bytes) = store.get(CAMPAIGN).map_err(environment)? else {
        return Err(Failure::usage(format!(
            "{place} has no {CAMPAIGN}, so it is no store of a campaign\nhelp: name what the shards were given as --store"
        )));
    };
    let campaign = Campaign::parse(&format!("{place}/{CAMPAIGN}"), &bytes).map_err(Failure::usage)?;
    let campaign = Arc::new(campaign);
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for key in store.list(PARTS).map_err(environment)? {
        let parts: Vec<&str> = key.splitn(4, '/').collect();
        if let [_, part, token, file] = parts[..] {
            groups.entry(format!("{PARTS}{part}/{token}/")).or_default().push(file.to_owned());
        }
    }
    // A campaign of which nobody has told anything yet is one too, all of whose seeds are missing.
    let groups = groups.into_iter().chain([(String::new(), Vec::new())]);
    for (prefix, names) in groups {
        let read = |file: &str| match names.iter().any(|name| name == file) {
            true => store.get(&format!("{prefix}{file}")).map_err(environment),
            false => Ok(None),
        };
        let at = |file: &str| format!("{place}/{prefix}{file}");
        let manifest = read(MANIFEST)?.map(|bytes| Manifest::parse(&at(MANIFEST), &bytes));
        let manifest = manifest.transpose().map_err(Failure::usage)?;
        let records = read(RESULTS)?.map(|bytes| results::read(&at(RESULTS), &bytes));
        let records = records.transpose().map_err(Failure::usage)?.unwrap_or_default();
        let what = manifest.as_ref().map_or_else(|| prefix.clone(), |manifest| manifest.part.to_string());
        pieces.push(Piece {
            name: if prefix.is_empty() { place.to_string() } else { format!("{place} ({what})") },
            manifest,
            campaign: Some(campaign.clone()),
            records,
            from: Files::Store(store.clone(), prefix, names),
        });
    }
    Ok(())
}

impl Piece {
    /// One that has no files.
    #[cfg(test)]
    pub fn test(name: &str, manifest: Option<Manifest>, records: Vec<SeedRecord>) -> Piece {
        Piece { name: name.to_owned(), manifest, campaign: None, records, from: Files::Nowhere }
    }

    /// The files of a finding, by their paths in its directory.
    ///
    /// # Errors
    /// For the user.
    pub fn finding(&self, name: &str) -> Result<Vec<(String, Vec<u8>)>, String> {
        match &self.from {
            Files::Directory(dir) => {
                let dir = dir.join("findings").join(name);
                let read = |file: String| {
                    let path = dir.join(&file);
                    own(&path).map(|bytes| (file, bytes)).map_err(|e| format!("{}: {e}", path.display()))
                };
                let listed = files(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
                listed.into_iter().map(read).collect()
            }
            Files::Store(store, prefix, names) => {
                let below = encoded(&format!("findings/{name}/"));
                let mut out = Vec::new();
                for key in names {
                    let Some(file) = key.strip_prefix(&below) else { continue };
                    let path =
                        decoded(file).ok_or_else(|| format!("`{key}` is no name of a file of a finding"))?;
                    if let Some(bytes) = store.get(&format!("{prefix}{key}")).map_err(|e| e.to_string())? {
                        out.push((path, bytes));
                    }
                }
                Ok(out)
            }
            #[cfg(test)]
            Files::Nowhere => Ok(Vec::new()),
        }
    }

    /// What code its seeds have reached, if it says so.
    ///
    /// # Errors
    /// For the user.
    pub fn coverage(&self) -> Result<Option<Coverage>, String> {
        let (at, bytes) = match &self.from {
            Files::Directory(dir) => {
                let path = dir.join(coverage::REPORT);
                match own(&path) {
                    Ok(bytes) => (path.display().to_string(), Some(bytes)),
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                    Err(e) => return Err(format!("{}: {e}", path.display())),
                }
            }
            Files::Store(store, prefix, _) => {
                let key = format!("{prefix}{}", coverage::REPORT);
                (format!("{}/{key}", store.place()), store.get(&key).map_err(|e| e.to_string())?)
            }
            #[cfg(test)]
            Files::Nowhere => (String::new(), None),
        };
        bytes.map(|bytes| super::coverage_of(&at, &String::from_utf8_lossy(&bytes))).transpose()
    }
}

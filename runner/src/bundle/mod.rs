//! Findings that can be replayed on a machine that has none of their files (`--bundle`).
//!
//! A bundle is the directory `bundle` of a finding:
//!
//! ```text
//! bundle.json     which files of the project are where, and what the run learnt of the host's files
//! project/        bloodhound.yaml, compose files, env files and scripts, laid out as they were
//! files/HEX       contents of the host's files that the run read, named by their SHA-256
//! images/         a cache of images with those of the stack
//! ```
//!
//! Nothing that holds a secret is taken along: such files are named, and a replay wants them put back. Key types: [`Bundle`];
//! [`add`] writes one.

mod record;

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use bloodhound_config::config::Check;
use bloodhound_config::{Project, Selection};
use bloodhound_images::{Resolver, Store};
use bloodhound_vfs::FileImage;
use bloodhound_vfs::host::{HostBase, file_name};
use serde::{Deserialize, Serialize};

use crate::host::without_dots;
use crate::output::write_file;
use crate::plan::Pin;
use crate::session::{Failure, Session};

/// The version of bundle.json.
const FORMAT: u32 = 1;

/// The files that a project is read from.
#[derive(Clone, Debug, Default)]
pub struct ProjectFiles {
    /// The project's name.
    pub name: String,
    /// bloodhound.yaml; `None` if there is none.
    pub config: Option<PathBuf>,
    /// The compose files that were named or found, in order.
    pub compose: Vec<PathBuf>,
    /// Everything else that was read: included files, .env, env files, scripts.
    pub others: Vec<PathBuf>,
}

impl ProjectFiles {
    /// Those of a project that was loaded with this selection, from a configuration or without one.
    pub fn of(project: &Project, selection: &Selection, configured: bool) -> ProjectFiles {
        let compose = &project.compose;
        let scripts = project.config.properties.iter().filter_map(|property| match &property.check {
            Check::Custom { script, .. } => Some(script.value.clone()),
            _ => None,
        });
        let sources = std::iter::once(&compose.source).chain(&compose.more).map(|source| source.path.clone());
        let mut others: Vec<PathBuf> = sources.chain(compose.inputs.iter().cloned()).chain(scripts).collect();
        others.retain(|path| !selection.files.contains(path));
        ProjectFiles {
            name: compose.name.clone(),
            config: configured.then(|| project.config.source.path.clone()),
            compose: selection.files.clone(),
            others,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    format: u32,
    /// Paths below `project`.
    config: Option<PathBuf>,
    compose: Vec<PathBuf>,
    /// Files of the project that hold secrets, by their paths below `project`.
    left_out: Vec<PathBuf>,
    /// Contents that hold secrets, by their digests.
    secret_contents: Vec<String>,
    host: record::Stored,
}

/// A bundle that was opened.
#[derive(Debug)]
pub struct Bundle {
    dir: PathBuf,
    manifest: Manifest,
}

/// Files up to this size are read as a whole, bytes.
const AT_ONCE: u64 = 64 << 20;
/// Larger ones in pieces of so many bytes, in which secrets of up to [`OVERLAP`] bytes are seen.
const PIECE: u64 = 4 << 20;
const OVERLAP: usize = 64 << 10;

/// Adds a bundle to a finding's directory. `is_secret` says of bytes whether they hold a secret.
///
/// # Errors
/// The host's. Nothing is left behind then.
pub fn add(finding: &Path, session: &Session, is_secret: &dyn Fn(&[u8]) -> bool) -> io::Result<()> {
    let unfinished = finding.join(".unfinished-bundle");
    let place = finding.join("bundle");
    let remove = |dir: &Path| match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    };
    remove(&unfinished)?;
    let written = fill(&unfinished, session, is_secret).and_then(|()| {
        remove(&place)?;
        fs::rename(&unfinished, &place)
    });
    if written.is_err() {
        // The first error is the one to tell.
        let _ignored = remove(&unfinished);
    }
    written
}

fn fill(dir: &Path, session: &Session, is_secret: &dyn Fn(&[u8]) -> bool) -> io::Result<()> {
    let files = &session.files;
    let all = || files.config.iter().chain(&files.compose).chain(&files.others);
    let mut absolute = Vec::new();
    for path in all() {
        absolute.push(without_dots(&std::path::absolute(path)?));
    }
    let top = common(&absolute);
    let below = |path: &Path| -> io::Result<PathBuf> {
        let path = without_dots(&std::path::absolute(path)?);
        Ok(path.strip_prefix(&top).map(Path::to_owned).unwrap_or(path))
    };
    let mut left_out = Vec::new();
    for path in all() {
        let bytes = match fs::read(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            bytes => bytes?,
        };
        if is_secret(&bytes) {
            left_out.push(below(path)?);
            continue;
        }
        let target = dir.join("project").join(below(path)?);
        write_file(&target, bytes)?;
        // A script must stay one.
        fs::set_permissions(&target, fs::metadata(path)?.permissions())?;
    }
    let contents = dir.join("files");
    fs::create_dir_all(&contents)?;
    let mut secret_contents = Vec::new();
    let record = session.base.record(&mut |sha256, image| {
        let target = contents.join(file_name(sha256));
        let secret = if image.size() > AT_ONCE {
            write_large(&target, image, is_secret)?
        } else {
            let mut bytes = vec![0; image.size() as usize];
            image.read(0, &mut bytes);
            let secret = is_secret(&bytes);
            if !secret {
                write_file(&target, bytes)?;
            }
            secret
        };
        if secret {
            secret_contents.push(file_name(sha256));
        }
        Ok(())
    })?;
    images(&dir.join("images"), session)?;
    let manifest = Manifest {
        format: FORMAT,
        config: files.config.as_deref().map(below).transpose()?,
        compose: files.compose.iter().map(|path| below(path)).collect::<io::Result<_>>()?,
        left_out,
        secret_contents,
        host: record::Stored::of(&record),
    };
    write_file(&dir.join("bundle.json"), serde_json::to_vec(&manifest)?)
}

/// Writes a file piece by piece, with holes where it is zero; true if it holds a secret, and is not written.
fn write_large(target: &Path, image: &FileImage, is_secret: &dyn Fn(&[u8]) -> bool) -> io::Result<bool> {
    let file = fs::File::create_new(target)?;
    file.set_len(image.size())?;
    // Each piece begins with the end of the one before it, where a secret may begin.
    let mut piece = Vec::new();
    let mut at = 0;
    while at < image.size() {
        let before = piece.split_off(piece.len().saturating_sub(OVERLAP));
        let len = (image.size() - at).min(PIECE) as usize;
        piece = [before, vec![0; len]].concat();
        let from = piece.len() - len;
        image.read(at, &mut piece[from..]);
        if is_secret(&piece) {
            fs::remove_file(target)?;
            return Ok(true);
        }
        if piece[from..].iter().any(|byte| *byte != 0) {
            file.write_all_at(&piece[from..], at)?;
        }
        at += PIECE;
    }
    Ok(false)
}

/// Copies the images of the run into a cache of their own.
fn images(dir: &Path, session: &Session) -> io::Result<()> {
    let Some(resolver) = &session.resolver else { return Ok(()) };
    let to = Store::open(dir).map_err(io::Error::other)?;
    let records = resolver.store.records().map_err(io::Error::other)?;
    for pin in session.pins() {
        let same = |r: &&bloodhound_images::Record| {
            r.config.to_string() == pin.config && r.manifest.to_string() == pin.manifest
        };
        for record in records.iter().filter(same) {
            resolver.store.copy(record, &to).map_err(io::Error::other)?;
        }
    }
    Ok(())
}

impl Bundle {
    /// The bundle of a finding, if it has one.
    ///
    /// # Errors
    /// It is damaged, or of another version.
    pub fn open(finding: &Path) -> Result<Option<Bundle>, Failure> {
        let dir = finding.join("bundle");
        let path = dir.join("bundle.json");
        let bytes = match fs::read(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Failure::environment(format!("{}: {e}", path.display()))),
            Ok(bytes) => bytes,
        };
        let manifest: Manifest = serde_json::from_slice(&bytes)
            .map_err(|e| Failure::usage(format!("{} is no bundle: {e}", path.display())))?;
        if manifest.format != FORMAT {
            let text = format!("{}: format {} is not known, only {FORMAT}", path.display(), manifest.format);
            return Err(Failure::usage(text));
        }
        Ok(Some(Bundle { dir, manifest }))
    }

    /// bloodhound.yaml.
    pub fn config(&self) -> Option<PathBuf> {
        self.manifest.config.as_ref().map(|path| self.project().join(path))
    }

    /// The compose files.
    pub fn compose(&self) -> Vec<PathBuf> {
        self.manifest.compose.iter().map(|path| self.project().join(path)).collect()
    }

    /// The directory of the project's files.
    pub fn project(&self) -> PathBuf {
        self.dir.join("project")
    }

    /// What must be put back before a replay, because it holds secrets and was not taken along.
    pub fn wanting(&self) -> Vec<PathBuf> {
        let project = self.manifest.left_out.iter().map(|path| self.project().join(path));
        let contents = self.manifest.secret_contents.iter().map(|name| self.dir.join("files").join(name));
        project.chain(contents).filter(|path| !path.exists()).collect()
    }

    /// The host's files as the run saw them.
    ///
    /// # Errors
    /// The record is damaged.
    pub fn base(&self) -> Result<HostBase, Failure> {
        let damaged = || Failure::usage(format!("{}: its record is damaged", self.dir.display()));
        let record = self.manifest.host.record().ok_or_else(damaged)?;
        Ok(HostBase::sealed(record, &self.dir.join("files")))
    }

    /// Where its images come from: nowhere else.
    ///
    /// # Errors
    /// The cache in the bundle cannot be used.
    pub fn resolver(&self) -> Result<Resolver, Failure> {
        let store = Store::open(self.dir.join("images")).map_err(|e| Failure::environment(e.to_string()))?;
        // An engine's image of the same name may be another one by now.
        let engine = bloodhound_images::EngineChoice::Off;
        let options = bloodhound_images::Options { offline: true, engine, ..Default::default() };
        Ok(Resolver::new(store, options))
    }
}

/// The directory that all these files lie below.
fn common(paths: &[PathBuf]) -> PathBuf {
    let mut top = paths.first().and_then(|path| path.parent()).unwrap_or(Path::new("/")).to_owned();
    for path in paths {
        while !path.starts_with(&top) {
            if !top.pop() {
                break;
            }
        }
    }
    top
}

/// The pins of a run's images.
pub fn pins(base: &HostBase) -> Vec<Pin> {
    let images = base.inputs().into_iter().filter(|i| i.kind == bloodhound_vfs::host::InputKind::Image);
    images.filter_map(|i| Pin::parse(&String::from_utf8_lossy(&i.path), &file_name(&i.sha256))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_seen_across_pieces_of_large_files() {
        let dir = std::env::temp_dir().join(format!("bloodhound-bundle-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let secret = b"a password";
        let is_secret = |bytes: &[u8]| bytes.windows(secret.len()).any(|part| part == secret);
        let mut bytes = vec![7; 2 * PIECE as usize + 100];
        bytes[PIECE as usize..2 * PIECE as usize].fill(0);
        let kept = dir.join("kept");
        assert!(!write_large(&kept, &FileImage::from_bytes(&bytes), &is_secret).expect("written"));
        assert!(fs::read(&kept).expect("a file") == bytes);
        for at in [PIECE as usize - 3, 2 * PIECE as usize - 1, 2 * PIECE as usize + 50] {
            let mut with = bytes.clone();
            with[at..at + secret.len()].copy_from_slice(secret);
            let target = dir.join("left-out");
            assert!(write_large(&target, &FileImage::from_bytes(&with), &is_secret).expect("read"), "{at}");
            assert!(!target.exists());
        }
        fs::remove_dir_all(&dir).expect("removed");
    }
}

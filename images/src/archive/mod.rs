//! Images in files: tars of `docker save` and `podman save`, of skopeo's `docker-archive` and `oci-archive`, and OCI layouts
//! as tar or directory. The tar may be compressed as a whole.
//!
//! `outer` gives the files in such an archive, `docker` and `oci` understand the two ways in which they are arranged. A tar of Docker 25
//! and later has both arrangements for the same blobs; the OCI one is taken, as it has the manifests.

mod docker;
mod oci;
mod outer;

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::digest::{Digest, Hasher};
use crate::error::{Error, ErrorKind, shown};
use crate::image::Documents;
use crate::parallel;
use crate::progress::{Event, Progress};
use crate::reference::Reference;
use crate::store::{Origin, Record, Store};
use outer::Outer;

/// An image of an archive.
struct Candidate {
    /// Names that the archive gives to it, complete.
    names: Vec<String>,
    found: Found,
}

/// Where in the archive it is.
enum Found {
    Oci(crate::manifest::Descriptor),
    Docker(docker::Entry),
}

/// Adds the images of an archive or layout to the cache, and returns the names under which they are there. The archive's path is a name
/// as well if it has one image only.
pub(crate) fn load(store: &Store, path: &Path, progress: &dyn Progress) -> Result<Vec<Record>, Error> {
    let outer = Outer::open(store, path).map_err(|e| e.at(path.display()))?;
    let stamp = stamp(path)?;
    let origin = Origin::File { path: path.display().to_string(), stamp };
    let loaded = name_of(path).and_then(|name| load_outer(store, &outer, Some(name), &origin, progress));
    loaded.map_err(|e| e.at(path.display()))
}

/// Adds the images in a stream, under the names that they have there.
pub(crate) fn load_all(
    store: &Store,
    stream: impl std::io::Read,
    progress: &dyn Progress,
) -> Result<Vec<Record>, Error> {
    let outer = Outer::from_stream(store, stream)?;
    let origin = Origin::File { path: "a stream".to_owned(), stamp: String::new() };
    load_outer(store, &outer, None, &origin, progress)
}

/// Adds the images in a stream, such as an engine's answer; `name` is the one that was asked for.
pub(crate) fn load_stream(
    store: &Store,
    stream: impl std::io::Read,
    name: &Reference,
    progress: &dyn Progress,
) -> Result<Vec<Record>, Error> {
    let outer = Outer::from_stream(store, stream)?;
    let candidates = candidates(&outer, store)?;
    let [candidate] = &candidates[..] else {
        return Err(Error::damaged(format!("the engine's archive has {} images", candidates.len())));
    };
    let names = [name.to_string()];
    let (documents, index) = add(store, &outer, candidate, progress)?;
    store.add_image(&documents, &names, &Origin::Engine, index)?;
    Ok(store.record(&names[0])?.into_iter().collect())
}

/// Adds all images of an archive. An only one gets the archive's own name as well, if it has one.
fn load_outer(
    store: &Store,
    outer: &Outer,
    own: Option<String>,
    origin: &Origin,
    progress: &dyn Progress,
) -> Result<Vec<Record>, Error> {
    let candidates = candidates(outer, store)?;
    let mut names = Vec::new();
    for candidate in &candidates {
        let (documents, index) = add(store, outer, candidate, progress)?;
        let mut under = candidate.names.clone();
        if candidates.len() == 1 {
            under.extend(own.clone());
        }
        if under.is_empty() {
            let id = documents.parsed.config.digest()?;
            progress.event(Event::Note(format!("an image without a name is left out: {id}")));
        }
        store.add_image(&documents, &under, origin, index)?;
        names.extend(under);
    }
    names.iter().map(|name| store.record(name)).filter_map(Result::transpose).collect()
}

fn candidates(outer: &Outer, store: &Store) -> Result<Vec<Candidate>, Error> {
    let limits = store.limits();
    let candidates = if outer.has("index.json") {
        oci::candidates(outer, limits)?
    } else if outer.has("manifest.json") {
        docker::candidates(outer, limits)?
    } else {
        let there = outer.some_names();
        return Err(Error::damaged(format!(
            "it is no archive of an image: it has neither manifest.json (docker save) nor index.json (OCI layout), but {there}"
        )));
    };
    if candidates.is_empty() {
        return Err(Error::damaged("there is no image in it"));
    }
    Ok(candidates)
}

/// Adds the layers of an image that are not there. Returns its documents, and the digest by which the archive names it.
fn add(
    store: &Store,
    outer: &Outer,
    candidate: &Candidate,
    progress: &dyn Progress,
) -> Result<(Documents, Option<Digest>), Error> {
    let (documents, index) = match &candidate.found {
        Found::Oci(descriptor) => {
            (oci::documents(outer, descriptor, store.limits())?, Some(descriptor.digest()?))
        }
        Found::Docker(entry) => (docker::documents(outer, entry, store.limits())?, None),
    };
    let layers: Vec<(usize, Digest)> = documents.layers.iter().copied().enumerate().collect();
    parallel::each(&layers, &|(number, digest): &(usize, Digest)| {
        let _mine = store.lock_layer(digest, &|| progress.event(Event::Waiting { blob: *digest }))?;
        if store.has_layer(digest) {
            return Ok(());
        }
        let blob = *digest;
        match &candidate.found {
            Found::Oci(_) => {
                let descriptor = &documents.parsed.layers[*number];
                let size = descriptor.size()?;
                progress.event(Event::Begin { blob, size: Some(size), have: 0 });
                let expected = descriptor.digest()?;
                let mut verified = Verified::new(oci::blob(outer, &expected)?, size);
                let added = store.add_layer(digest, Told(&mut verified, blob, progress));
                // Which of two reasons is told: the archive's own digest is nearer to what is wrong.
                verified.finish(&expected).map_err(|e| e.at(format!("layer {digest}")))?;
                added?;
            }
            Found::Docker(entry) => {
                let (layer, size) = outer.open_file(&entry.layers[*number])?;
                progress.event(Event::Begin { blob, size: Some(size), have: 0 });
                store.add_layer(digest, Told(layer, blob, progress))?;
            }
        }
        progress.event(Event::Done { blob });
        Ok(())
    })?;
    Ok((documents, index))
}

/// The name by which the cache knows an archive.
pub(crate) fn name_of(path: &Path) -> Result<String, Error> {
    let path = path.canonicalize().map_err(|e| Error::io(path, &e))?;
    Ok(format!("file:{}", path.display()))
}

/// Changes when the archive at this path does.
pub(crate) fn stamp(path: &Path) -> Result<String, Error> {
    let io = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => {
            Error::not_found(format!("{}: there is no such file", path.display()))
        }
        _ => Error::io(path, &e),
    };
    let meta = std::fs::metadata(path).map_err(io)?;
    if meta.is_dir() {
        // All blobs are named by their digests, so the index says which image it is.
        let index = path.join("index.json");
        let index = if index.is_file() { index } else { path.join("manifest.json") };
        let bytes = crate::store::read_bounded(&index, 64 << 20).map_err(|_| {
            Error::damaged(format!("{}: it is no OCI layout: it has no index.json", path.display()))
        })?;
        return Ok(Digest::of(&bytes).to_string());
    }
    let times = [meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()];
    Ok(format!("{} {} {} {times:?}", meta.dev(), meta.ino(), meta.size()))
}

/// The complete form of a name in an archive; `None` if it is none.
fn complete(name: &str) -> Option<String> {
    Reference::parse(name).ok().map(|reference| reference.to_string())
}

/// Reads a blob while computing its digest, and at most as many bytes as it should have.
pub(crate) struct Verified<R> {
    inner: R,
    hasher: Hasher,
    size: u64,
    read: u64,
}

impl<R: std::io::Read> Verified<R> {
    pub(crate) fn new(inner: R, size: u64) -> Verified<R> {
        Verified { inner, hasher: Hasher::default(), size, read: 0 }
    }

    /// Reads what is left, and compares.
    pub(crate) fn finish(mut self, expected: &Digest) -> Result<(), Error> {
        let copied = std::io::copy(&mut self, &mut std::io::sink());
        copied.map_err(|e| Error::damaged(format!("blob {expected}: {e}")))?;
        if self.read != self.size {
            let text = format!("blob {expected} has {} bytes, and should have {}", self.read, self.size);
            return Err(Error::damaged(text));
        }
        let found = self.hasher.finish();
        if found != *expected {
            return Err(Error::damaged(format!("blob {expected} has digest {found}: it is damaged")));
        }
        Ok(())
    }
}

impl<R: std::io::Read> std::io::Read for Verified<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        self.read += read as u64;
        if self.read > self.size {
            return Err(std::io::Error::other(format!(
                "it has more than the {} bytes that it should have",
                self.size
            )));
        }
        Ok(read)
    }
}

/// Tells how far the reading is.
struct Told<'a, R>(R, Digest, &'a dyn Progress);

impl<R: std::io::Read> std::io::Read for Told<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.0.read(buffer)?;
        self.2.event(Event::Advance { blob: self.1, bytes: read as u64 });
        Ok(read)
    }
}

/// The error of an archive that has several images where one is wanted.
pub(crate) fn several(path: &Path, records: &[Record]) -> Error {
    let mut names: Vec<String> = records.iter().map(|record| record.reference.clone()).collect();
    names.sort();
    names.dedup();
    Error::new(
        ErrorKind::Usage,
        format!(
            "{} has several images ({}): run `bloodhound image load {}`, then name the one that is meant",
            shown(path.as_os_str().as_encoded_bytes()),
            names.join(", "),
            path.display()
        ),
    )
}

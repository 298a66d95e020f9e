//! The cache of images: content-addressed, shared by all processes of a user, never half written.
//!
//! ```text
//! blobs/HEX            a manifest or a configuration, named by its digest
//! layers/HEX/archive   a layer's uncompressed archive, named by its digest
//! layers/HEX/index     the tree in it (layer::index)
//! images/HEX           a record: which image a name stands for, named by the digest of that name
//! partial/HEX          what has come of a compressed layer, to be continued
//! tmp/                 what is being written
//! locks/               empty files, which are locked and never written
//! ```
//!
//! Everything is written below `tmp`, synchronised, and renamed to its place when it is whole and its digest was found right: so what is
//! in its place is right, whenever a process was killed. Who adds something holds the lock `store` shared, who
//! removes something exclusively; a lock for each layer lets it be fetched once. Locks are flock(2)'s and end with their process.
//!
//! `layers` has the layers, `records` which names there are, `check` the removal of what nothing refers to, and the examination of everything.

mod check;
mod copy;
mod layers;
mod records;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::digest::Digest;
use crate::error::{Error, ErrorKind};
use crate::limits::Limits;
use crate::rootfs::Layer;

pub use check::Removed;
pub use records::{Origin, Record};

/// The cache of images. Clones are the same cache.
#[derive(Clone, Debug)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dir: PathBuf,
    limits: Limits,
    /// Layers that somebody of this process has open.
    open: Mutex<BTreeMap<Digest, Weak<Layer>>>,
    /// Numbers of temporary files.
    temporary: AtomicU64,
}

/// Held while something is added to the cache (shared) or removed from it (exclusive).
pub(crate) struct Lock(#[allow(dead_code)] File); // closing the file ends the lock

impl Store {
    /// The cache in this directory, which is made if it is not there.
    ///
    /// # Errors
    /// It cannot be made or written, or a limit in the environment is no number.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Store, Error> {
        Store::with_limits(dir, Limits::from_environment()?)
    }

    /// The same with other limits than the environment's.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn with_limits(dir: impl Into<PathBuf>, limits: Limits) -> Result<Store, Error> {
        let dir = std::path::absolute(dir.into())
            .map_err(|e| Error::new(ErrorKind::Io, format!("the directory of the image cache: {e}")))?;
        for part in ["", "blobs", "layers", "images", "partial", "tmp", "locks"] {
            let path = dir.join(part);
            // An image may hold what others must not see.
            let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
            made.map_err(|e| Error::io(&path, &e).at("the image cache"))?;
        }
        let inner = Inner { dir, limits, open: Mutex::default(), temporary: AtomicU64::new(0) };
        Ok(Store(Arc::new(inner)))
    }

    /// Where the cache is by default: `$BLOODHOUND_CACHE`, `$XDG_CACHE_HOME/bloodhound` or `~/.cache/bloodhound`.
    ///
    /// # Errors
    /// None of the variables is set.
    pub fn default_dir() -> Result<PathBuf, Error> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        set("BLOODHOUND_CACHE")
            .or_else(|| {
                set("XDG_CACHE_HOME").filter(|path| path.is_absolute()).map(|path| path.join("bloodhound"))
            })
            .or_else(|| set("HOME").map(|home| home.join(".cache/bloodhound")))
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Usage,
                    "there is no place for the image cache: set BLOODHOUND_CACHE to a directory",
                )
            })
    }

    /// Where the cache is.
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    /// The bounds that hold for what is added.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    fn path(&self, part: &str, digest: &Digest) -> PathBuf {
        self.0.dir.join(part).join(digest.hex())
    }

    /// A document of the cache. What it holds is compared with its name again: it is small.
    pub(crate) fn blob(&self, digest: &Digest) -> Result<Vec<u8>, Error> {
        let path = self.path("blobs", digest);
        let bytes = read_bounded(&path, self.0.limits.manifest)?;
        if Digest::of(&bytes) != *digest {
            let text = format!("{} is damaged: its digest is not {digest}; remove it", path.display());
            return Err(Error::damaged(text));
        }
        Ok(bytes)
    }

    pub(crate) fn has_blob(&self, digest: &Digest) -> bool {
        self.path("blobs", digest).is_file()
    }

    /// Adds a document.
    pub(crate) fn add_blob(&self, bytes: &[u8]) -> Result<Digest, Error> {
        let digest = Digest::of(bytes);
        let path = self.path("blobs", &digest);
        if !path.is_file() {
            self.write(&path, bytes)?;
        }
        Ok(digest)
    }

    /// Writes a file under a temporary name, and renames it when it is whole.
    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let temporary = self.temporary();
        let written = (|| {
            let mut file = File::options().write(true).create_new(true).mode(0o600).open(&temporary)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&temporary, path)?;
            sync_parent(path)
        })();
        written.map_err(|e| {
            let _gone = fs::remove_file(&temporary);
            Error::io(path, &e)
        })
    }

    /// A new name below `tmp`.
    fn temporary(&self) -> PathBuf {
        let number = self.0.temporary.fetch_add(1, Ordering::Relaxed);
        // Two caches of one process can be one directory, so the address tells them apart.
        let store = Arc::as_ptr(&self.0) as usize;
        self.0.dir.join("tmp").join(format!("{}-{store:x}-{number}", std::process::id()))
    }

    /// A file below `tmp` that nobody else sees and that is gone when it is closed.
    pub(crate) fn scratch(&self) -> Result<File, Error> {
        let path = self.temporary();
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&path);
        let file = file.map_err(|e| Error::io(&path, &e))?;
        fs::remove_file(&path).map_err(|e| Error::io(&path, &e))?;
        Ok(file)
    }

    /// Keeps others from removing anything while something is added.
    pub(crate) fn shared(&self) -> Result<Lock, Error> {
        // If nobody works at the cache, what lies below `tmp` was left by a process that was killed.
        if let Some(_alone) = self.try_exclusive()? {
            self.clear_temporary();
        }
        let (file, path) = self.lock_file("store")?;
        file.lock_shared().map_err(|e| Error::io(&path, &e))?;
        Ok(Lock(file))
    }

    fn exclusive(&self) -> Result<Lock, Error> {
        let (file, path) = self.lock_file("store")?;
        file.lock().map_err(|e| Error::io(&path, &e))?;
        Ok(Lock(file))
    }

    fn try_exclusive(&self) -> Result<Option<Lock>, Error> {
        let (file, path) = self.lock_file("store")?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock(file))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(e)) => Err(Error::io(&path, &e)),
        }
    }

    fn lock_file(&self, name: &str) -> Result<(File, PathBuf), Error> {
        let path = self.0.dir.join("locks").join(name);
        let file = File::options().write(true).create(true).truncate(false).mode(0o600).open(&path);
        Ok((file.map_err(|e| Error::io(&path, &e))?, path))
    }

    /// Waits until no other thread or process fetches this layer, and keeps them from it.
    pub(crate) fn lock_layer(&self, digest: &Digest, waiting: &dyn Fn()) -> Result<Lock, Error> {
        let (file, path) = self.lock_file(&digest.hex())?;
        match file.try_lock() {
            Ok(()) => return Ok(Lock(file)),
            Err(fs::TryLockError::WouldBlock) => waiting(),
            Err(fs::TryLockError::Error(e)) => return Err(Error::io(&path, &e)),
        }
        file.lock().map_err(|e| Error::io(&path, &e))?;
        Ok(Lock(file))
    }

    /// Where a compressed blob is put while it comes.
    pub(crate) fn partial(&self, digest: &Digest) -> PathBuf {
        self.path("partial", digest)
    }

    fn clear_temporary(&self) {
        // Files that cannot be removed are in nobody's way.
        for entry in fs::read_dir(self.0.dir.join("tmp")).into_iter().flatten().flatten() {
            let path = entry.path();
            let _gone = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
    }

    fn opened(&self) -> std::sync::MutexGuard<'_, BTreeMap<Digest, Weak<Layer>>> {
        self.0.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file of at most so many bytes.
pub(crate) fn read_bounded(path: &Path, most: u64) -> Result<Vec<u8>, Error> {
    let read = File::open(path).and_then(|file| {
        let mut bytes = Vec::new();
        file.take(most + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    });
    let bytes = read.map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Error::not_found(format!("{} is not there", path.display())),
        _ => Error::io(path, &e),
    })?;
    if bytes.len() as u64 > most {
        return Err(Error::limit(format!("{} has more than {most} bytes", path.display())));
    }
    Ok(bytes)
}

/// Makes a rename durable.
fn sync_parent(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(parent) => File::open(parent)?.sync_all(),
        None => Ok(()),
    }
}

//! From what a user names to an image: one place, one order.
//!
//! 1. A file or directory that is named is read, unless the cache has it as it is now.
//! 2. A name goes to the cache, if the policy allows an image that was fetched earlier.
//!
//! (The order is told to users in docs/images.md.)

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::archive;
use crate::error::{Error, ErrorKind};
use crate::image::Image;
use crate::progress::{Progress, Silent};
use crate::reference::Reference;
use crate::store::{Origin, Record, Store};

/// What an image is to be made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageSource {
    /// A name, as in `image:` of a compose file.
    Reference(String),
    /// A tar of `docker save`, or of an OCI layout.
    Archive(PathBuf),
    /// A directory with an OCI layout.
    OciLayout(PathBuf),
}

/// When a registry is asked, as compose's `pull_policy` says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PullPolicy {
    /// In every run.
    Always,
    /// If the image is not there (`missing` and `if_not_present`).
    #[default]
    Missing,
    /// Never.
    Never,
    /// Never, as the image is built.
    Build,
    /// If what is there is older than this (`daily`, `weekly`, `every_12h`).
    Every(Duration),
}

/// How a [`Resolver`] works.
#[derive(Clone)]
pub struct Options {
    /// Nothing goes to the network.
    pub offline: bool,
    /// Is told what happens.
    pub progress: Arc<dyn Progress>,
}

impl Default for Options {
    fn default() -> Options {
        Options { offline: false, progress: Arc::new(Silent) }
    }
}

/// Finds images.
pub struct Resolver {
    /// The cache.
    pub store: Store,
    /// How it works.
    pub options: Options,
}

impl Resolver {
    /// A resolver with this cache.
    pub fn new(store: Store, options: Options) -> Resolver {
        Resolver { store, options }
    }

    /// The image that a source names, whole in the cache.
    ///
    /// # Errors
    /// There is none, or it cannot be had; the text says where it was looked for and what to do.
    pub fn resolve(&self, source: &ImageSource, policy: PullPolicy) -> Result<Arc<Image>, Error> {
        let _shared = self.store.shared()?;
        let record = match source {
            ImageSource::Reference(name) => self.named(name, policy)?,
            ImageSource::Archive(path) | ImageSource::OciLayout(path) => self.file(path)?,
        };
        self.store.image(&record).map(Arc::new)
    }

    /// Adds all images of an archive or a layout to the cache, under the names that they have there.
    ///
    /// # Errors
    /// The archive cannot be read, or is damaged.
    pub fn load(&self, path: &Path) -> Result<Vec<Record>, Error> {
        let _shared = self.store.shared()?;
        archive::load(&self.store, path, &*self.options.progress)
    }

    fn file(&self, path: &Path) -> Result<Record, Error> {
        let (name, stamp) = (archive::stamp(path).and_then(|stamp| Ok((archive::name_of(path)?, stamp))))?;
        let known = self.store.record(&name).ok().flatten();
        let same =
            |record: &Record| matches!(&record.origin, Origin::File { stamp: other, .. } if *other == stamp);
        if let Some(record) = known.filter(|record| same(record) && self.store.complete(record)) {
            return Ok(record);
        }
        let records = archive::load(&self.store, path, &*self.options.progress)?;
        let own = records.iter().find(|record| record.reference == name).cloned();
        own.ok_or_else(|| archive::several(path, &records))
    }

    fn named(&self, name: &str, policy: PullPolicy) -> Result<Record, Error> {
        let reference = Reference::parse(name)?;
        if let Some(record) = self.cached(&reference)?.filter(|record| fresh(record, policy)) {
            return Ok(record);
        }
        Err(Error::new(
            ErrorKind::NotFound,
            format!("{name} is not in the image cache ({})", self.store.dir().display()),
        ))
    }

    /// What the cache has under a name.
    fn cached(&self, reference: &Reference) -> Result<Option<Record>, Error> {
        for name in [Some(reference.clone()), reference.alternatives()].into_iter().flatten() {
            if let Some(record) = self.store.record(&name.to_string())?
                && self.store.complete(&record)
            {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }
}

/// Whether the policy allows what was fetched earlier.
fn fresh(record: &Record, policy: PullPolicy) -> bool {
    let age = || {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(Duration::from_secs(record.stored))
    };
    match policy {
        PullPolicy::Always => false,
        PullPolicy::Missing | PullPolicy::Never | PullPolicy::Build => true,
        PullPolicy::Every(time) => age() < time,
    }
}

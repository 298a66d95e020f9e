//! From what a user names to an image: one place, one order.
//!
//! 1. A file or directory that is named is read, unless the cache has it as it is now.
//! 2. A name goes to the cache, if the policy allows an image that was fetched earlier; for one that came from an engine the
//!    engine is asked whether it is still the same.
//! 3. Then to an engine of this machine, unless the policy asks for the registry.
//! 4. Then to the registry, unless the policy or `offline` forbids it: to its mirrors, and to the registry itself.
//!
//! (docs/images.md tells it to users.)

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::archive;
use crate::digest::Digest;
use crate::engine::EngineChoice;
use crate::error::{Error, ErrorKind};
use crate::image::Image;
use crate::progress::{Event, Progress, Silent};
use crate::reference::Reference;
use crate::registry::Registries;
use crate::registry::settings::Settings;
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
    /// How registries are reached.
    pub registries: Settings,
    /// Which engine of this machine is asked.
    pub engine: EngineChoice,
    /// Is told what happens.
    pub progress: Arc<dyn Progress>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            offline: false,
            registries: Settings::default(),
            engine: EngineChoice::Auto,
            progress: Arc::new(Silent),
        }
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

    /// Adds all images of an archive that is read from a stream, under the names that they have there.
    ///
    /// # Errors
    /// As [`Resolver::load`].
    pub fn load_stream(&self, stream: impl std::io::Read) -> Result<Vec<Record>, Error> {
        let _shared = self.store.shared()?;
        archive::load_all(&self.store, stream, &*self.options.progress)
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
        let cached = self.cached(&reference)?;
        let offline = self.options.offline;
        // A digest names the same image for ever.
        if let Some(record) =
            cached.filter(|record| offline || reference.digest.is_some() || fresh(record, policy))
        {
            return match record.origin {
                // What an engine holds under a name changes whenever somebody builds.
                Origin::Engine if reference.digest.is_none() => {
                    Ok(self.engine(&reference, Some(&record))?.unwrap_or(record))
                }
                _ => Ok(record),
            };
        }
        let ask_engine = offline || !matches!(policy, PullPolicy::Always | PullPolicy::Every(_));
        if ask_engine && let Some(record) = self.engine(&reference, None)? {
            return Ok(record);
        }
        let places = format!(
            "neither in the image cache ({}) nor in an engine of this machine",
            self.store.dir().display()
        );
        if offline {
            return Err(Error::new(
                ErrorKind::Offline,
                format!("{name} is {places}, and --offline keeps registries from being asked"),
            ));
        }
        match policy {
            PullPolicy::Never => Err(Error::not_found(format!(
                "{name} is {places}, and its pull_policy is never: run `bloodhound image pull {name}` or `bloodhound image load FILE`"
            ))),
            PullPolicy::Build => Err(Error::not_found(format!(
                "{name} is {places}, and its pull_policy is build: build it first"
            ))),
            PullPolicy::Always | PullPolicy::Missing | PullPolicy::Every(_) => {
                self.pull_reference(&reference)
            }
        }
    }

    /// Brings an image from its registry, whatever the cache has.
    ///
    /// # Errors
    /// The registry cannot be reached, does not have it, or gives what is damaged.
    pub fn pull(&self, name: &str) -> Result<Record, Error> {
        let _shared = self.store.shared()?;
        let reference = Reference::parse(name)?;
        if self.options.offline {
            return Err(Error::new(ErrorKind::Offline, format!("{name} cannot be pulled with --offline")));
        }
        self.pull_reference(&reference)
    }

    fn pull_reference(&self, reference: &Reference) -> Result<Record, Error> {
        let registries = Registries {
            settings: &self.options.registries,
            store: &self.store,
            progress: &*self.options.progress,
        };
        registries.pull(reference)?;
        let record = self.store.record(&reference.to_string())?;
        record.ok_or_else(|| {
            Error::not_found(format!("{} was removed while it was pulled", reference.familiar()))
        })
    }

    /// The image that this digest names, of its manifest, its index or its configuration, if the cache has it.
    ///
    /// # Errors
    /// The cache cannot be read.
    pub fn by_digest(&self, digest: &Digest) -> Result<Option<Arc<Image>>, Error> {
        let _shared = self.store.shared()?;
        let is = |record: &Record| {
            record.manifest == *digest || record.config == *digest || record.index == Some(*digest)
        };
        let found =
            self.store.records()?.into_iter().find(|record| is(record) && self.store.complete(record));
        found.map(|record| self.store.image(&record).map(Arc::new)).transpose()
    }

    /// What an engine of this machine has under a name, brought into the cache. `cached` is what came from it earlier, which is the
    /// result if it is the same.
    fn engine(&self, reference: &Reference, cached: Option<&Record>) -> Result<Option<Record>, Error> {
        for engine in self.options.engine.engines()? {
            for name in [Some(reference.clone()), reference.alternatives()].into_iter().flatten() {
                let id = match engine.id(&name) {
                    Ok(Some(id)) => id,
                    Ok(None) => continue,
                    Err(e) => {
                        // An engine is never needed: one that does not work is as none.
                        self.options.progress.event(Event::Note(e.to_string()));
                        break;
                    }
                };
                let is = |digest: &Digest| digest.to_string() == id;
                if let Some(record) = cached
                    && (is(&record.config) || is(&record.manifest) || record.index.as_ref().is_some_and(is))
                {
                    return Ok(Some(record.clone()));
                }
                return engine.export(&self.store, &name, reference, &*self.options.progress).map(Some);
            }
        }
        Ok(None)
    }

    /// What the cache has under a name.
    fn cached(&self, reference: &Reference) -> Result<Option<Record>, Error> {
        let tagged = reference.digest.is_some() && reference.tag.is_some();
        let tagged = tagged.then(|| Reference { digest: None, ..reference.clone() });
        let is = |record: &Record| {
            reference.digest.is_none_or(|digest| {
                record.manifest == digest
                    || record.index == Some(digest)
                    || record.reference.ends_with(&digest.to_string())
            })
        };
        for name in [Some(reference.clone()), tagged, reference.alternatives()].into_iter().flatten() {
            if let Some(record) = self.store.record(&name.to_string())?
                && self.store.complete(&record)
                && is(&record)
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

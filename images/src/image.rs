//! An image that is whole in the cache, ready to be run.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::config::{self, ImageConfig};
use crate::digest::Digest;
use crate::error::Error;
use crate::limits::exceeded;
use crate::manifest::{self, Document, Manifest};
use crate::rootfs::RootFs;
use crate::store::{Origin, Record, Store};

/// An image: its configuration, and its root file system.
#[derive(Debug)]
pub struct Image {
    /// The name under which it was found.
    pub reference: String,
    /// Digest of the manifest. Of an archive that has none (`docker save` before version 25) it is the digest of the
    /// OCI manifest that the archive's parts make.
    pub digest: Digest,
    /// Digest of the configuration. It covers the digests of the uncompressed layers, and is the same wherever the image is kept
    /// and however its layers are compressed: engines call it the image's id.
    pub config_digest: Digest,
    /// How it is to be run.
    pub config: ImageConfig,
    /// Its files.
    pub root: Arc<RootFs>,
}

/// The documents of an image, checked against each other.
pub(crate) struct Documents {
    pub(crate) manifest: Vec<u8>,
    pub(crate) config: Vec<u8>,
    pub(crate) parsed: Manifest,
    /// Digests of the uncompressed layers.
    pub(crate) layers: Vec<Digest>,
}

impl Documents {
    /// Checks that the bytes of a configuration fit to a manifest.
    pub(crate) fn new(manifest: Vec<u8>, parsed: Manifest, config: Vec<u8>) -> Result<Documents, Error> {
        let digest = parsed.config.digest()?;
        let found = Digest::of(&config);
        if found != digest {
            return Err(Error::damaged(format!("the configuration has digest {found} and not {digest}")));
        }
        let (_, layers) = config::parse(&config)?;
        if layers.len() != parsed.layers.len() {
            return Err(Error::damaged(format!(
                "the manifest has {} layers and the configuration {}",
                parsed.layers.len(),
                layers.len()
            )));
        }
        if layers.is_empty() {
            return Err(Error::damaged("the image has no layers, so there is nothing to run"));
        }
        Ok(Documents { manifest, config, parsed, layers })
    }
}

impl Store {
    /// Adds an image whose layers are there, under these names.
    pub(crate) fn add_image(
        &self,
        documents: &Documents,
        names: &[String],
        origin: &Origin,
        index: Option<Digest>,
    ) -> Result<Digest, Error> {
        let mut size = 0;
        for layer in &documents.layers {
            size += self.layer(layer)?.index.archive();
        }
        if size > self.limits().image {
            let variable = "BLOODHOUND_IMAGE_MAX_SIZE";
            return Err(exceeded("the image has", self.limits().image, "bytes", variable));
        }
        let layers = documents.layers.iter().map(|layer| self.layer(layer)).collect::<Result<_, _>>()?;
        // What cannot be merged gets no name.
        RootFs::new(layers)?;
        let config = self.add_blob(&documents.config)?;
        let manifest = self.add_blob(&documents.manifest)?;
        let stored = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        for name in names {
            self.set_record(&Record {
                reference: name.clone(),
                manifest,
                index: index.filter(|index| *index != manifest),
                config,
                layers: documents.layers.clone(),
                size,
                origin: origin.clone(),
                stored,
            })?;
        }
        Ok(manifest)
    }

    /// Whether all parts of the image that a record names are there.
    pub(crate) fn complete(&self, record: &Record) -> bool {
        self.has_blob(&record.manifest)
            && self.has_blob(&record.config)
            && record.layers.iter().all(|layer| self.has_layer(layer))
    }

    /// The image of a record.
    ///
    /// # Errors
    /// A part of it is missing or damaged.
    pub fn image(&self, record: &Record) -> Result<Image, Error> {
        let place = |e: Error| e.at(&record.reference);
        let Document::Manifest(parsed) =
            manifest::parse(&self.blob(&record.manifest).map_err(place)?, self.limits()).map_err(place)?
        else {
            return Err(Error::damaged(format!("{}: its record names an index", record.reference)));
        };
        let config_digest = parsed.config.digest().map_err(place)?;
        let (config, layers) = config::parse(&self.blob(&config_digest).map_err(place)?).map_err(place)?;
        let layers = layers.iter().map(|layer| self.layer(layer)).collect::<Result<Vec<_>, _>>();
        let root = RootFs::new(layers.map_err(place)?).map_err(place)?;
        Ok(Image {
            reference: record.reference.clone(),
            digest: record.manifest,
            config_digest,
            config,
            root: Arc::new(root),
        })
    }
}

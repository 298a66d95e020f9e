//! Archives of `docker save` before version 25, and of other tools' `docker-archive`: manifest.json names a configuration and the
//! uncompressed layers of each image.

use serde::Deserialize;

use super::outer::Outer;
use super::{Candidate, Found, complete};
use crate::config;
use crate::digest::Digest;
use crate::error::Error;
use crate::image::Documents;
use crate::limits::{Limits, exceeded};
use crate::manifest::{self, Document};

/// An image in manifest.json.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Entry {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    #[serde(default)]
    pub(super) layers: Vec<String>,
}

pub(super) fn candidates(outer: &Outer, limits: &Limits) -> Result<Vec<Candidate>, Error> {
    let bytes = outer.read("manifest.json", limits.manifest)?;
    let entries: Vec<Entry> = serde_json::from_slice(&bytes)
        .map_err(|e| Error::damaged(format!("manifest.json is none of docker save: {e}")))?;
    let candidate = |entry: Entry| {
        let names = entry.repo_tags.iter().flatten().filter_map(|name| complete(name)).collect();
        Candidate { names, found: Found::Docker(entry) }
    };
    Ok(entries.into_iter().map(candidate).collect())
}

/// The configuration, and the manifest that an image of these parts has. It is the same whenever it is made.
pub(super) fn documents(outer: &Outer, entry: &Entry, limits: &Limits) -> Result<Documents, Error> {
    if entry.layers.len() as u64 > limits.layers {
        let variable = "BLOODHOUND_IMAGE_MAX_LAYERS";
        return Err(exceeded("the image has", limits.layers, "layers", variable));
    }
    let config = outer.read(&entry.config, limits.manifest)?;
    let digest = Digest::of(&config);
    // The file is named by its digest, with an ending or (Docker 25) below blobs/sha256.
    let name = entry.config.rsplit('/').next().unwrap_or_default();
    let name = name.strip_suffix(".json").unwrap_or(name);
    if name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit()) && name != digest.hex() {
        return Err(Error::damaged(format!("{} has digest {digest}: it is damaged", entry.config)));
    }
    let (_, diff_ids) = config::parse(&config)?;
    if diff_ids.len() != entry.layers.len() {
        return Err(Error::damaged(format!(
            "manifest.json has {} layers and the configuration {}",
            entry.layers.len(),
            diff_ids.len()
        )));
    }
    let layers = diff_ids.iter().zip(&entry.layers).map(|(digest, name)| {
        let (_, size) = outer.open_file(name)?;
        Ok(serde_json::json!({
            "mediaType": "application/vnd.oci.image.layer.v1.tar",
            "digest": digest,
            "size": size,
        }))
    });
    let manifest = serde_json::json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": digest,
            "size": config.len(),
        },
        "layers": layers.collect::<Result<Vec<_>, Error>>()?,
    });
    let manifest = manifest.to_string().into_bytes();
    match manifest::parse(&manifest, limits)? {
        Document::Manifest(parsed) => Documents::new(manifest, parsed, config),
        Document::Index(_) => Err(Error::damaged("manifest.json is an index")),
    }
}

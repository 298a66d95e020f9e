//! The JSON documents of an image: index (manifest list), manifest, and what the choice of a platform needs. Docker's and OCI's are
//! the same but for their media types. Unknown fields are passed over, as the specifications ask.

use serde::Deserialize;

use crate::digest::Digest;
use crate::error::{Error, ErrorKind, shown};
use crate::limits::{Limits, exceeded};

/// What registries are asked for.
pub(crate) const MEDIA_TYPES: [&str; 4] = [
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
];
/// Platform that the simulation is of.
pub(crate) const OS: &str = "linux";
/// Its architecture, as Go names it.
pub(crate) const ARCHITECTURE: &str = "amd64";

/// Names a blob.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Descriptor {
    #[serde(rename = "mediaType", default)]
    pub(crate) media_type: String,
    digest: String,
    size: i64,
    #[serde(default)]
    platform: Option<Platform>,
    #[serde(default)]
    pub(crate) annotations: std::collections::BTreeMap<String, String>,
}

impl Descriptor {
    pub(crate) fn digest(&self) -> Result<Digest, Error> {
        self.digest.parse()
    }

    pub(crate) fn size(&self) -> Result<u64, Error> {
        let wrong = || Error::damaged(format!("{} has the size {}", self.digest, self.size));
        u64::try_from(self.size).map_err(|_| wrong())
    }

    /// The size of a document, which is read as a whole.
    pub(crate) fn document_size(&self, limits: &Limits) -> Result<u64, Error> {
        let size = self.size()?;
        if size > limits.manifest {
            let variable = "BLOODHOUND_IMAGE_MAX_MANIFEST";
            return Err(exceeded(&format!("{} has", self.digest), limits.manifest, "bytes", variable));
        }
        Ok(size)
    }
}

/// For what machines a manifest is.
#[derive(Clone, Debug, Default, Deserialize)]
struct Platform {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    os: String,
    #[serde(default)]
    variant: Option<String>,
}

/// One image: its configuration and its layers, the lowest first.
#[derive(Clone, Debug)]
pub(crate) struct Manifest {
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

/// What a document is.
#[derive(Clone, Debug)]
pub(crate) enum Document {
    Index(Vec<Descriptor>),
    Manifest(Manifest),
}

/// All fields that either of them may have.
#[derive(Deserialize)]
struct Raw {
    #[serde(rename = "schemaVersion", default)]
    schema_version: Option<u64>,
    #[serde(rename = "mediaType", default)]
    media_type: Option<String>,
    #[serde(rename = "artifactType", default)]
    artifact_type: Option<String>,
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    #[serde(rename = "fsLayers", default)]
    fs_layers: Option<serde_json::Value>,
}

/// Reads an index or a manifest.
pub(crate) fn parse(bytes: &[u8], limits: &Limits) -> Result<Document, Error> {
    let raw: Raw =
        serde_json::from_slice(bytes).map_err(|e| Error::damaged(format!("it is no manifest: {e}")))?;
    if raw.fs_layers.is_some() || raw.schema_version == Some(1) {
        return Err(Error::refused(
            "it has a manifest of schema version 1, which registries have given up: push the image again with a current tool",
        ));
    }
    match (raw.manifests, raw.config, raw.layers) {
        // A document that could be taken for both means two things to two readers (CVE-2021-41190).
        (Some(_), Some(_), _) | (Some(_), _, Some(_)) => {
            Err(Error::damaged("it is an index and a manifest in one, which nobody can trust"))
        }
        (Some(manifests), None, None) => Ok(Document::Index(manifests)),
        (None, Some(config), layers) => {
            let layers = layers.unwrap_or_default();
            if layers.len() as u64 > limits.layers {
                let variable = "BLOODHOUND_IMAGE_MAX_LAYERS";
                return Err(exceeded("the image has", limits.layers, "layers", variable));
            }
            artifact(&config, raw.artifact_type.as_deref())?;
            layers.iter().try_for_each(layer_type)?;
            Ok(Document::Manifest(Manifest { config, layers }))
        }
        _ => Err(Error::damaged(format!(
            "it is neither a manifest nor an index (mediaType {})",
            shown(raw.media_type.unwrap_or_default().as_bytes())
        ))),
    }
}

/// Refuses what is stored like an image and is none: charts, signatures, modules.
fn artifact(config: &Descriptor, artifact: Option<&str>) -> Result<(), Error> {
    const CONFIGS: [&str; 3] =
        ["application/vnd.oci.image.config.v1+json", "application/vnd.docker.container.image.v1+json", ""];
    if CONFIGS.contains(&config.media_type.as_str()) {
        return Ok(());
    }
    let what = artifact.unwrap_or(&config.media_type);
    Err(Error::refused(format!(
        "it is no image of a container but an artifact of type {}",
        shown(what.as_bytes())
    )))
}

fn layer_type(layer: &Descriptor) -> Result<(), Error> {
    let media = layer.media_type.as_str();
    if media.ends_with("+encrypted") {
        return Err(Error::refused(format!("layer {} is encrypted", layer.digest)));
    }
    let image = media.contains("image.rootfs") || media.contains("image.layer") || media.is_empty();
    if !image {
        let text =
            format!("layer {} has media type {}, which no image has", layer.digest, shown(media.as_bytes()));
        return Err(Error::refused(text));
    }
    Ok(())
}

/// The manifest of an index for linux/amd64. The error names what there is.
pub(crate) fn choose(manifests: &[Descriptor]) -> Result<&Descriptor, Error> {
    let is = |platform: &Platform| platform.os == OS && platform.architecture == ARCHITECTURE;
    // Of several variants the plainest: amd64/v3 asks for a newer processor than programs are shown.
    let variant = |d: &&Descriptor| d.platform.as_ref().and_then(|p| p.variant.clone()).unwrap_or_default();
    let fitting = manifests.iter().filter(|d| d.platform.as_ref().is_some_and(is)).min_by_key(variant);
    if let Some(found) = fitting {
        return Ok(found);
    }
    // An index of one image made by a tool for one platform often names none: its configuration does.
    let unnamed: Vec<&Descriptor> = manifests.iter().filter(|d| d.platform.is_none()).collect();
    if let [only] = unnamed[..] {
        return Ok(only);
    }
    let mut there: Vec<String> = manifests
        .iter()
        .filter_map(|d| d.platform.as_ref())
        // Attestations of BuildKit stand beside images as "unknown/unknown".
        .filter(|p| p.os != "unknown")
        .map(|p| match &p.variant {
            Some(variant) => format!("{}/{}/{variant}", p.os, p.architecture),
            None => format!("{}/{}", p.os, p.architecture),
        })
        .collect();
    there.sort();
    there.dedup();
    let there = if there.is_empty() { "none that names its platform".to_owned() } else { there.join(", ") };
    Err(Error::new(
        ErrorKind::NotFound,
        format!(
            "the image is not there for {OS}/{ARCHITECTURE}, which is what the simulation runs; there is: {there}"
        ),
    ))
}

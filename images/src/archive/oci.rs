//! OCI image layouts: index.json, and blobs named by their digests (OCI image specification, image-layout.md).

use std::io::Read;

use super::outer::Outer;
use super::{Candidate, Found, complete};
use crate::digest::Digest;
use crate::error::Error;
use crate::image::Documents;
use crate::limits::Limits;
use crate::manifest::{self, Descriptor, Document};

/// The complete name, written by containerd and by Docker since version 25.
const CONTAINERD_NAME: &str = "io.containerd.image.name";
/// The tag, or the complete name, written by others.
const NAME: &str = "org.opencontainers.image.ref.name";
/// Indices that refer to indices, at most.
const DEPTH: u32 = 4;

pub(super) fn candidates(outer: &Outer, limits: &Limits) -> Result<Vec<Candidate>, Error> {
    let bytes = outer.read("index.json", limits.manifest)?;
    let Document::Index(manifests) = manifest::parse(&bytes, limits).map_err(|e| e.at("index.json"))? else {
        return Err(Error::damaged("index.json is no index"));
    };
    // Two names of one image stand in two descriptors of the same digest. Descriptors for several platforms
    // without names are one image.
    let named = |d: &Descriptor| {
        let name = d.annotations.get(CONTAINERD_NAME);
        let name = name.or_else(|| d.annotations.get(NAME).filter(|name| name.contains(['/', ':'])));
        name.and_then(|name| complete(name))
    };
    if manifests.len() > 1
        && manifests.iter().all(|d| !d.annotations.contains_key(NAME) && named(d).is_none())
    {
        let chosen = manifest::choose(&manifests)?.clone();
        return Ok(vec![Candidate { names: Vec::new(), found: Found::Oci(chosen) }]);
    }
    let mut found: Vec<(Digest, Candidate)> = Vec::new();
    for descriptor in manifests {
        let (digest, name) = (descriptor.digest()?, named(&descriptor));
        match found.iter_mut().find(|(other, _)| *other == digest) {
            Some((_, candidate)) => candidate.names.extend(name),
            None => {
                let names = name.into_iter().collect();
                found.push((digest, Candidate { names, found: Found::Oci(descriptor) }));
            }
        }
    }
    Ok(found.into_iter().map(|(_, candidate)| candidate).collect())
}

/// Manifest and configuration of an image; of an index the one for linux/amd64.
pub(super) fn documents(outer: &Outer, descriptor: &Descriptor, limits: &Limits) -> Result<Documents, Error> {
    let mut descriptor = descriptor.clone();
    for _ in 0..DEPTH {
        let bytes = document(outer, &descriptor, limits)?;
        match manifest::parse(&bytes, limits).map_err(|e| e.at(descriptor_name(&descriptor)))? {
            Document::Index(manifests) => descriptor = manifest::choose(&manifests)?.clone(),
            Document::Manifest(parsed) => {
                let config = document(outer, &parsed.config, limits)?;
                return Documents::new(bytes, parsed, config);
            }
        }
    }
    Err(Error::damaged(format!("an index refers to an index more than {DEPTH} times")))
}

fn descriptor_name(descriptor: &Descriptor) -> String {
    descriptor.digest().map_or_else(|_| "a manifest".to_owned(), |digest| format!("manifest {digest}"))
}

fn document(outer: &Outer, descriptor: &Descriptor, limits: &Limits) -> Result<Vec<u8>, Error> {
    let (digest, size) = (descriptor.digest()?, descriptor.document_size(limits)?);
    let bytes = outer.read(&path(&digest), limits.manifest)?;
    let found = Digest::of(&bytes);
    if bytes.len() as u64 != size || found != digest {
        let len = bytes.len();
        let text = format!("blob {digest} of {size} bytes has digest {found} and {len} bytes: it is damaged");
        return Err(Error::damaged(text));
    }
    Ok(bytes)
}

/// A layer's blob, whose digest the reader checks.
pub(super) fn blob(outer: &Outer, digest: &Digest) -> Result<Box<dyn Read + Send>, Error> {
    outer.open_file(&path(digest)).map(|(file, _)| file)
}

fn path(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

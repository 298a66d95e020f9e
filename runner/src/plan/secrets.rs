//! Secrets and configurations of the compose file as files of containers.
//!
//! Each is a tree of the base layer with one file, which is bound read-only to its place as an engine binds it. The tree's digest
//! names the content in a finding, and is made so that it does not give the content away. Neighbours: `mounts`, and `redact`, which
//! keeps the content out of everything that is written.

use std::io;
use std::sync::Arc;

use bloodhound_config::compose::{Content, Resource, ResourceMount, Service};
use bloodhound_vfs::{
    BaseEntry, BaseKind, Blocks, ContentId, ImageContent, ImageTree, MountSpec, Name, Timestamp,
};
use sha2::{Digest, Sha256};

use super::{Pieces, Planner, Refusal};

/// Rounds of the digest. A finding may be public, and a secret short: each guess costs as much as this.
const ROUNDS: u32 = 20_000;
/// Largest secret or configuration: what engines take (500 KiB for secrets, 1000 KiB for configurations).
const LARGEST: u64 = 1000 << 10;

impl Planner<'_> {
    /// The secrets and configurations of a service, as mounts.
    pub(super) fn resources(&self, service: &Service, pieces: &mut Pieces<'_>) -> Vec<(Vec<u8>, MountSpec)> {
        let compose = &self.project.compose;
        let secrets = service.secrets.iter().map(|mount| (mount, &compose.secrets, "secret", "secrets"));
        let configs =
            service.configs.iter().map(|mount| (mount, &compose.configs, "configuration", "configs"));
        let mut out = Vec::new();
        for (mount, declared, what, key) in secrets.chain(configs) {
            let Some(resource) = declared.iter().find(|r| r.name == mount.source.value) else { continue };
            let name = format!("the {what} {}", resource.name);
            let Some(file) = pieces.keep(key, File::new(name, resource, mount)) else { continue };
            let tree = self.base.add_image(Arc::new(file));
            out.push((mount.target.clone().into_bytes(), MountSpec::Bind { tree, read_only: true }));
        }
        out
    }
}

/// A tree that is one file.
#[derive(Clone)]
struct File {
    name: String,
    content: Arc<[u8]>,
    digest: [u8; 32],
    entry: BaseEntry,
}

impl std::fmt::Debug for File {
    /// Without the content.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("File").field("name", &self.name).finish_non_exhaustive()
    }
}

impl File {
    fn new(name: String, resource: &Resource, mount: &ResourceMount) -> Result<File, Refusal> {
        let content: Arc<[u8]> = match &resource.content {
            Content::Text(text) => text.as_bytes().into(),
            Content::File(path) => {
                let size = std::fs::metadata(path).map_err(|e| Refusal::host(path.display(), &e))?.len();
                if size > LARGEST {
                    return Err(format!("{name} has {size} bytes, more than {LARGEST}").into());
                }
                std::fs::read(path).map_err(|e| Refusal::host(path.display(), &e))?.into()
            }
        };
        let kind = BaseKind::Regular { content: ContentId(0), size: content.len() as u64 };
        let (mode, uid, gid) = (mount.mode.unwrap_or(0o444), mount.uid.unwrap_or(0), mount.gid.unwrap_or(0));
        let entry = BaseEntry::new(
            kind,
            mode,
            uid,
            gid,
            Timestamp { secs: crate::EPOCH_NS as i64 / 1_000_000_000, nanos: 0 },
        );
        let digest = digest(&name, &content);
        Ok(File { name, content, digest, entry })
    }
}

/// A digest from which the content cannot be guessed cheaply: it has the name as its salt, and many rounds.
fn digest(name: &str, content: &[u8]) -> [u8; 32] {
    let mut hash: [u8; 32] =
        Sha256::new().chain_update(name).chain_update([0]).chain_update(content).finalize().into();
    for _ in 0..ROUNDS {
        hash = Sha256::new().chain_update(hash).chain_update(name).finalize().into();
    }
    hash
}

impl ImageTree for File {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn digest(&self) -> [u8; 32] {
        self.digest
    }

    fn lookup(&self, path: &[u8]) -> Option<BaseEntry> {
        path.is_empty().then(|| self.entry.clone())
    }

    fn read_dir(&self, _: &[u8]) -> Option<Vec<(Name, BaseEntry)>> {
        None
    }

    fn content(&self, number: ContentId) -> Option<ImageContent> {
        let size = self.content.len() as u64;
        (number.0 == 0).then(|| ImageContent { source: Arc::new(self.clone()), size, name: self.digest })
    }
}

impl Blocks for File {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).ok();
        let piece = start.and_then(|start| self.content.get(start..start.checked_add(out.len())?));
        out.copy_from_slice(piece.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?);
        Ok(())
    }
}

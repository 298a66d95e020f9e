//! Layers of the cache.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use super::{Store, read_bounded, sync_parent};
use crate::digest::Digest;
use crate::error::{Error, ErrorKind};
use crate::layer::{Index, write};
use crate::rootfs::Layer;

/// An index has less than this: the heap's limit, and two records for each of the most entries that any limit allows.
const INDEX: u64 = 8 << 30;

impl Store {
    /// Whether the cache has this layer. A layer without its archive is none.
    pub(crate) fn has_layer(&self, digest: &Digest) -> bool {
        self.path("layers", digest).join("archive").is_file()
    }

    /// Adds a layer from its bytes, compressed or not. `digest` is the one of its uncompressed archive.
    pub(crate) fn add_layer(&self, digest: &Digest, compressed: impl Read) -> Result<(), Error> {
        let temporary = self.temporary();
        let io = |e: &std::io::Error| Error::io(&temporary, e);
        fs::DirBuilder::new().mode(0o700).create(&temporary).map_err(|e| io(&e))?;
        let added = self.fill(digest, compressed, &temporary);
        if added.is_err() {
            let _gone = fs::remove_dir_all(&temporary);
        }
        added.map_err(|e| e.at(format!("layer {digest}")))
    }

    fn fill(&self, digest: &Digest, compressed: impl Read, temporary: &Path) -> Result<(), Error> {
        let archive = temporary.join("archive");
        let io = |e: &std::io::Error| Error::io(temporary, e);
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(&archive);
        let mut file = file.map_err(|e| io(&e))?;
        let (found, index) = write::layer(compressed, &mut file, self.limits())?;
        if found != *digest {
            return Err(Error::damaged(format!("its content has digest {found}")));
        }
        file.sync_all().map_err(|e| io(&e))?;
        self.write(&temporary.join("index"), index.bytes())?;
        let place = self.path("layers", digest);
        match fs::rename(temporary, &place) {
            Ok(()) => sync_parent(&place).map_err(|e| io(&e)),
            // Somebody else has just put the same layer there.
            Err(_) if self.has_layer(digest) => {
                let _gone = fs::remove_dir_all(temporary);
                Ok(())
            }
            Err(e) => Err(Error::io(&place, &e)),
        }
    }

    /// Opens a layer; the same one for all who use it at a time.
    pub(crate) fn layer(&self, digest: &Digest) -> Result<Arc<Layer>, Error> {
        if let Some(layer) = self.opened().get(digest).and_then(std::sync::Weak::upgrade) {
            return Ok(layer);
        }
        let layer = Arc::new(self.load_layer(digest)?);
        self.opened().insert(*digest, Arc::downgrade(&layer));
        Ok(layer)
    }

    /// The uncompressed archive of a layer, with its size, to be read from its beginning.
    pub(crate) fn layer_archive(&self, digest: &Digest) -> Result<(File, u64), Error> {
        // What it holds is checked when it is opened as a layer.
        let size = self.layer(digest)?.index.archive();
        let path = self.path("layers", digest).join("archive");
        let file = File::open(&path).map_err(|e| Error::io(&path, &e))?;
        Ok((file, size))
    }

    fn load_layer(&self, digest: &Digest) -> Result<Layer, Error> {
        let place = self.path("layers", digest);
        let path = place.join("archive");
        let archive = File::open(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Error::not_found(format!("layer {digest} is not in the cache")),
            _ => Error::io(&path, &e),
        })?;
        let size = archive.metadata().map_err(|e| Error::io(&path, &e))?.len();
        let index =
            read_bounded(&place.join("index"), INDEX).and_then(|bytes| Index::from_bytes(bytes, digest));
        let index = match index {
            Ok(index) => index,
            // An index of another version of this program, or a damaged one: the archive has all that is in it.
            Err(_) => self.index_again(digest, &archive, &place)?,
        };
        if index.archive() != size {
            return Err(Error::new(
                ErrorKind::Damaged,
                format!("{} has {size} bytes and not {}: remove it", path.display(), index.archive()),
            ));
        }
        Ok(Layer { digest: *digest, archive, index })
    }

    fn index_again(&self, digest: &Digest, archive: &File, place: &Path) -> Result<Index, Error> {
        let index = write::index(archive, digest, self.limits())?;
        self.write(&place.join("index"), index.bytes())?;
        Ok(index)
    }
}

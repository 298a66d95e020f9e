//! From one cache to another: an image that travels with something else.

use std::fs::File;

use super::{Record, Store};
use crate::error::Error;

impl Store {
    /// Adds the image that a record of this cache names to another cache, under the same name. Everything is compared with its digest
    /// again on the way.
    ///
    /// # Errors
    /// A part of the image is missing or damaged; the other cache cannot be written.
    pub fn copy(&self, record: &Record, to: &Store) -> Result<(), Error> {
        let (_here, _there) = (self.shared()?, to.shared()?);
        for digest in [record.manifest, record.config] {
            to.add_blob(&self.blob(&digest)?)?;
        }
        for layer in &record.layers {
            if to.has_layer(layer) {
                continue;
            }
            let path = self.path("layers", layer).join("archive");
            let archive = File::open(&path).map_err(|e| Error::io(&path, &e))?;
            to.add_layer(layer, archive)?;
        }
        to.set_record(record)
    }
}

//! Large files of the host: their digest has to be known as that of all others, but neither are they kept in memory nor are their
//! holes read (a sparse file of 100 GiB is common for disks of virtual machines).
//!
//! Key type: [`Large`]. Neighbour: `crate::image`, whose lazy images read it.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::image::{BLOCK, Blocks, FileImage};

/// Files from this size on are large.
pub(super) const LARGE: u64 = 256 << 20;

/// A large file that was read once: what is read of it again has to be the same.
#[derive(Debug)]
struct Large {
    path: PathBuf,
    file: File,
    /// The digest of each block; `None` for zeros.
    blocks: Vec<Option<[u8; 32]>>,
}

/// An image of a large file. Its digest is that of its size, and of the numbers and digests of the blocks that are not zero, so
/// that it does not tell where a file system has holes.
pub(super) fn read_large(path: &Path, file: File, size: u64) -> io::Result<FileImage> {
    let mut blocks = vec![None; usize::try_from(size.div_ceil(BLOCK)).map_err(io::Error::other)?];
    let mut buffer = vec![0; BLOCK as usize];
    let mut whole = Sha256::new();
    whole.update(size.to_le_bytes());
    let mut at = 0;
    while let Some(start) = next_data(&file, at)?.filter(|start| *start < size) {
        let number = start / BLOCK;
        at = number * BLOCK;
        let bytes = &mut buffer[..(size - at).min(BLOCK) as usize];
        file.read_exact_at(bytes, at)?;
        if bytes.iter().any(|byte| *byte != 0) {
            let digest = Sha256::digest(&*bytes);
            whole.update(number.to_le_bytes());
            whole.update(digest);
            blocks[number as usize] = Some(digest.into());
        }
        at += BLOCK;
    }
    let source = Large { path: path.into(), file, blocks };
    Ok(FileImage::lazy(std::sync::Arc::new(source), size, whole.finalize().into()))
}

/// Where the next bytes lie that are in no hole (SEEK_DATA of lseek(2): "ENXIO: [...] whence is SEEK_DATA [...] and offset is within
/// a hole at the end of the file").
fn next_data(file: &File, at: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
        Ok(start) => Ok(Some(start)),
        Err(Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Blocks for Large {
    fn name(&self) -> String {
        self.path.display().to_string()
    }

    fn is_zero(&self, offset: u64) -> bool {
        self.blocks.get((offset / BLOCK) as usize).is_none_or(Option::is_none)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(out, offset)?;
        let known = self.blocks.get((offset / BLOCK) as usize).copied().flatten();
        if known == Some(Sha256::digest(&*out).into()) {
            Ok(())
        } else {
            Err(io::Error::other("the file changed while it was in use"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes_are_not_read_and_changes_are_seen() {
        let path = std::env::temp_dir().join(format!("bloodhound-large-{}", std::process::id()));
        let file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).expect("a file");
        let size = (100 << 30) + 5;
        file.set_len(size).expect("a sparse file");
        file.write_all_at(b"here", 50 << 30).expect("written");
        file.write_all_at(b"end", size - 3).expect("written");
        let open = || File::open(&path).expect("the file");
        let image = read_large(&path, open(), size).expect("an image");
        let mut some = [0; 8];
        image.read((50 << 30) - 2, &mut some);
        assert_eq!(&some, b"\0\0here\0\0");
        let mut some = [1; 5];
        image.read(size - 5, &mut some);
        assert_eq!(&some, b"\0\0end");
        assert!(image.page(7).is_none());
        // Zeros that were written are no other content than a hole.
        file.write_all_at(&[0; 5000], 1 << 20).expect("written");
        let again = read_large(&path, open(), size).expect("an image");
        assert_eq!(again.sha256(), image.sha256());
        file.write_all_at(b"H", 50 << 30).expect("written");
        let other = read_large(&path, open(), size).expect("an image");
        assert_ne!(other.sha256(), image.sha256());
        let changed =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| again.read(50 << 30, &mut [0; 4])));
        std::fs::remove_file(&path).expect("it is mine");
        assert!(changed.is_err(), "a file that changed is no input of a run");
    }
}

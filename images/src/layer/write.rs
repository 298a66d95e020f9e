//! Makes the two files of a layer in the cache: its archive, uncompressed, and the index. One pass over the compressed bytes does
//! everything: decompress, hash, write, and read the headers.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use super::Index;
use super::tree::Tree;
use crate::decompress::{self, Bounded};
use crate::digest::{Digest, Hasher};
use crate::error::Error;
use crate::limits::Limits;
use crate::tar::{Reader, Stream};

/// A hole of a file is made of so many zeros at least.
const HOLE: usize = 4096;
/// A layer with less than this may be as much larger than its compressed form as it likes.
const SMALL: u64 = 1 << 30;
/// How much is written at once.
const CHUNK: usize = 256 << 10;

/// Reads a layer, compressed or not, and writes it uncompressed to `file`. Returns its digest and its index.
pub(crate) fn layer(
    compressed: impl Read,
    file: &mut File,
    limits: &Limits,
) -> Result<(Digest, Index), Error> {
    let taken = AtomicU64::new(0);
    let compressed =
        decompress::reader(Counted(compressed, &taken)).map_err(|e| Error::damaged(e.to_string()))?;
    let bounded = Bounded::new(compressed, limits.layer, "uncompressed it has", "BLOODHOUND_IMAGE_MAX_LAYER");
    let inflated = Inflated { inner: bounded, given: 0, taken: &taken, ratio: limits.ratio };
    let mut copy = Copy { inner: inflated, hasher: Hasher::default(), out: Sparse::new(file), failed: None };
    let read = read(&mut copy, limits);
    // An error of the host's disk is told as what it is, not as damage of the layer.
    if let Some(error) = copy.failed {
        let text = format!("the layer cannot be written to the cache: {error}");
        return Err(Error::new(crate::ErrorKind::Io, text));
    }
    let tree = read?;
    let io = |e: io::Error| Error::new(crate::ErrorKind::Io, format!("the layer cannot be written: {e}"));
    let size = copy.out.finish().map_err(io)?;
    let digest = copy.hasher.finish();
    let index = Index::new(&tree, &digest, size)?;
    Ok((digest, index))
}

/// The index of a layer whose uncompressed archive is there already.
pub(crate) fn index(archive: &File, digest: &Digest, limits: &Limits) -> Result<Index, Error> {
    let io = |e: io::Error| Error::new(crate::ErrorKind::Io, e.to_string());
    let mut file = archive.try_clone().map_err(io)?;
    file.seek(SeekFrom::Start(0)).map_err(io)?;
    let size = file.metadata().map_err(io)?.len();
    Index::new(&read(&mut io::BufReader::new(file), limits)?, digest, size)
}

/// Reads the archive to the end of its bytes, not just to its last member: the digest is one of all.
fn read<'a>(source: &mut impl Read, limits: &'a Limits) -> Result<Tree<'a>, Error> {
    let mut tree = Tree::new(limits);
    let mut reader = Reader::new(Stream(&mut *source), limits);
    while let Some(member) = reader.next()? {
        tree.add(member)?;
    }
    let _source = reader.into_source();
    io::copy(source, &mut io::sink()).map_err(|e| Error::damaged(e.to_string()))?;
    Ok(tree)
}

/// Counts what is read.
struct Counted<'a, R>(R, &'a AtomicU64);

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(buffer)?;
        self.1.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Ends with an error when what comes out is too much for what went in.
struct Inflated<'a, R> {
    inner: R,
    given: u64,
    taken: &'a AtomicU64,
    ratio: u64,
}

impl<R: Read> Read for Inflated<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.given += read as u64;
        let taken = self.taken.load(Ordering::Relaxed);
        if self.given > SMALL && self.given / self.ratio.max(1) > taken {
            return Err(io::Error::other(format!(
                "uncompressed it is more than {} times as large ({taken} bytes became {}), which is the limit: \
                 BLOODHOUND_IMAGE_MAX_RATIO raises it",
                self.ratio, self.given
            )));
        }
        Ok(read)
    }
}

/// Passes bytes on, hashed and written.
struct Copy<'a, R> {
    inner: R,
    hasher: Hasher,
    out: Sparse<'a>,
    failed: Option<io::Error>,
}

impl<R: Read> Read for Copy<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..read]);
        if let Err(e) = self.out.write(&buffer[..read]) {
            let text = e.to_string();
            self.failed = Some(e);
            return Err(io::Error::other(text));
        }
        Ok(read)
    }
}

/// Writes a file with holes where there are only zeros, so that what compresses well takes no disk either.
struct Sparse<'a> {
    file: &'a mut File,
    buffer: Vec<u8>,
    /// Bytes of the file before the buffer.
    position: u64,
}

impl<'a> Sparse<'a> {
    fn new(file: &'a mut File) -> Sparse<'a> {
        Sparse { file, buffer: Vec::with_capacity(CHUNK), position: 0 }
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let part = bytes.len().min(CHUNK - self.buffer.len());
            self.buffer.extend_from_slice(&bytes[..part]);
            bytes = &bytes[part..];
            if self.buffer.len() == CHUNK {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        static ZEROS: [u8; HOLE] = [0; HOLE];
        let mut from = 0;
        while from < self.buffer.len() {
            let hole = |at: usize| self.buffer.get(at..at + HOLE).is_some_and(|block| block == ZEROS);
            let is_hole = hole(from);
            let mut to = from;
            while to < self.buffer.len() && hole(to) == is_hole {
                to = (to + HOLE).min(self.buffer.len());
            }
            if is_hole {
                self.file.seek(SeekFrom::Current((to - from) as i64))?;
            } else {
                self.file.write_all(&self.buffer[from..to])?;
            }
            from = to;
        }
        self.position += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// The size of the file, which may end with a hole.
    fn finish(mut self) -> io::Result<u64> {
        self.flush()?;
        self.file.set_len(self.position)?;
        Ok(self.position)
    }
}

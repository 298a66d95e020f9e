//! [`FileImage`] and [`ImageTree`]: the content of one file of the base layer as frames, shared by every world of the process.
//!
//! A file of the host is read as a whole, because its digest must be known, and kept unless it is large. A file of a container image has its digest
//! already, so its blocks are read when a program first touches them ([`Blocks`]): most programs use a small part of the libraries
//! that they map. Which blocks are in memory is invisible to a world, as residency is everywhere: a block's bytes are a
//! function of the image's digest.

use std::fmt::Debug;
use std::io;
use std::sync::{Arc, OnceLock};

use bloodhound_frames::Frame;
use sha2::{Digest, Sha256};

use crate::base::{BaseEntry, ContentId};
use crate::pages::{CHUNK, Chunk, PAGE, PageMap, read_pages};
use crate::types::Name;

/// Bytes that are read at once.
pub(crate) const BLOCK: u64 = CHUNK * PAGE;
/// How a panic begins that says that the host, and not this program, is at fault.
pub const HOST_FAULT: &str = "the host cannot read what a run needs: ";

/// Where the bytes of a file come from, block by block. What it answers never changes.
pub trait Blocks: Debug + Send + Sync {
    /// What is read, for a message.
    fn name(&self) -> String;

    /// Fills `out` from byte `offset`; all of it lies within the file.
    ///
    /// # Errors
    /// The host's.
    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;

    /// Whether the block that begins at byte `offset` is known to have nothing but zeros, and need not be read.
    fn is_zero(&self, _offset: u64) -> bool {
        false
    }
}

/// The file system of a container image: it never changes, and its digest names all of it. Paths are those of
/// [`BaseFs`](crate::BaseFs).
pub trait ImageTree: Debug + Send + Sync {
    /// The image's name, for messages.
    fn name(&self) -> String;

    /// What names it and everything in it.
    fn digest(&self) -> [u8; 32];

    /// The entry at `path`. Contents are numbered by the tree.
    fn lookup(&self, path: &[u8]) -> Option<BaseEntry>;

    /// Names and entries of the directory at `path`, sorted by name; `None` if it is none.
    fn read_dir(&self, path: &[u8]) -> Option<Vec<(Name, BaseEntry)>>;

    /// What a content number of [`ImageTree::lookup`] stands for; `None` for one that was not given.
    fn content(&self, number: ContentId) -> Option<ImageContent>;
}

/// A file of an [`ImageTree`].
#[derive(Clone, Debug)]
pub struct ImageContent {
    /// Its bytes.
    pub source: Arc<dyn Blocks>,
    /// How many.
    pub size: u64,
    /// Names the bytes: equal for equal files of one layer that several images have.
    pub name: [u8; 32],
}

/// The content of a file.
#[derive(Clone, Debug)]
pub struct FileImage {
    size: u64,
    /// Of a file in memory it is made when somebody asks: most programs run without.
    sha256: OnceLock<[u8; 32]>,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    /// In memory; a page of zeros may be absent.
    Whole(PageMap),
    /// Read block by block.
    Lazy { source: Arc<dyn Blocks>, blocks: Arc<[OnceLock<Arc<Chunk>>]> },
}

/// Two images with one digest have the same bytes. The first comparison makes the digests.
impl PartialEq for FileImage {
    fn eq(&self, other: &FileImage) -> bool {
        self.size == other.size && self.sha256() == other.sha256()
    }
}

impl Eq for FileImage {}

impl FileImage {
    /// An image of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> FileImage {
        let mut pages = PageMap::default();
        for (index, page) in bytes.chunks(PAGE as usize).enumerate() {
            pages.set(index as u64, Frame::from_slice(page));
        }
        FileImage::whole(pages, bytes.len() as u64)
    }

    /// An image whose pages are in memory.
    pub fn whole(pages: PageMap, size: u64) -> FileImage {
        FileImage { size, sha256: OnceLock::new(), content: Content::Whole(pages) }
    }

    /// An image that is read when it is used. `sha256` names its content: two files with equal names have equal bytes.
    pub fn lazy(source: Arc<dyn Blocks>, size: u64, sha256: [u8; 32]) -> FileImage {
        let blocks = (0..size.div_ceil(BLOCK)).map(|_| OnceLock::new()).collect();
        FileImage { size, sha256: OnceLock::from(sha256), content: Content::Lazy { source, blocks } }
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What names the content: of a file in memory the digest of its bytes.
    pub fn sha256(&self) -> [u8; 32] {
        *self.sha256.get_or_init(|| {
            let mut hash = Sha256::new();
            for index in 0..self.size.div_ceil(PAGE) {
                let len = (self.size - index * PAGE).min(PAGE) as usize;
                hash.update(&self.page(index).map_or(&[0; PAGE as usize], Frame::bytes)[..len]);
            }
            hash.finalize().into()
        })
    }

    /// The frame of a page; `None` for zeros.
    ///
    /// # Panics
    /// If the host fails to read it.
    pub fn page(&self, index: u64) -> Option<&Frame> {
        match &self.content {
            Content::Whole(pages) => pages.get(index),
            Content::Lazy { .. } => self.block(index / CHUNK)?[(index % CHUNK) as usize].as_ref(),
        }
    }

    /// Whether a page can be had without reading from the host.
    pub fn is_loaded(&self, index: u64) -> bool {
        match &self.content {
            Content::Whole(_) => true,
            Content::Lazy { blocks, .. } => {
                let block = usize::try_from(index / CHUNK).ok().and_then(|number| blocks.get(number));
                block.is_some_and(|block| block.get().is_some())
            }
        }
    }

    /// Fills `out` from byte `offset`. The caller bounds it by the size.
    ///
    /// # Panics
    /// If the host fails to read it.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        read_pages(|index| self.page(index), offset, out);
    }

    /// All pages, for a file that changes from now on ("copied up" in terms of overlayfs).
    ///
    /// # Panics
    /// If the host fails to read them.
    pub fn pages(&self) -> PageMap {
        match &self.content {
            Content::Whole(pages) => pages.clone(),
            Content::Lazy { blocks, .. } => PageMap::from_chunks(
                (0..blocks.len() as u64).filter_map(|n| Some((n, self.block(n)?.clone()))),
            ),
        }
    }

    /// A block of a lazy image.
    fn block(&self, number: u64) -> Option<&Arc<Chunk>> {
        let Content::Lazy { source, blocks } = &self.content else { return None };
        let block = blocks.get(usize::try_from(number).ok()?)?;
        if source.is_zero(number * BLOCK) {
            return None;
        }
        Some(block.get_or_init(|| {
            let start = number * BLOCK;
            let mut bytes = vec![0; (self.size - start).min(BLOCK) as usize];
            if let Err(error) = source.read(start, &mut bytes) {
                panic!("{HOST_FAULT}{}: {error}", source.name());
            }
            Arc::new(chunk(&mut bytes))
        }))
    }
}

/// The frames of a block.
fn chunk(bytes: &mut Vec<u8>) -> Chunk {
    bytes.resize(bytes.len().next_multiple_of(PAGE as usize), 0);
    let (whole, _) = bytes.as_chunks::<{ PAGE as usize }>();
    // Frames that are neighbours can be mapped at once.
    let filled: Vec<usize> = (0..whole.len()).filter(|n| whole[*n] != [0; PAGE as usize]).collect();
    let frames = Frame::copied_run(filled.iter().map(|n| &whole[*n]));
    let mut chunk = [const { None }; CHUNK as usize];
    for (n, frame) in filled.iter().zip(frames) {
        chunk[*n] = Some(frame);
    }
    chunk
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[derive(Debug)]
    struct Counted {
        bytes: Vec<u8>,
        reads: AtomicU64,
    }

    impl Blocks for Counted {
        fn name(&self) -> String {
            "counted".into()
        }

        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            out.copy_from_slice(&self.bytes[offset as usize..][..out.len()]);
            Ok(())
        }
    }

    #[test]
    fn a_lazy_image_reads_what_is_used_once() {
        let mut bytes: Vec<u8> = (0..3 * BLOCK + 5000).map(|n| (n % 251) as u8 + 1).collect();
        bytes[BLOCK as usize..][..PAGE as usize].fill(0);
        let source = Arc::new(Counted { bytes: bytes.clone(), reads: AtomicU64::new(0) });
        let image = FileImage::lazy(source.clone(), bytes.len() as u64, [1; 32]);
        assert_eq!(source.reads.load(Ordering::Relaxed), 0);
        let mut some = vec![0; 5000];
        image.read(2 * BLOCK - 100, &mut some);
        assert_eq!(some, bytes[(2 * BLOCK - 100) as usize..][..5000]);
        assert!(image.page(CHUNK).is_none(), "a page of zeros has no frame");
        assert_eq!(source.reads.load(Ordering::Relaxed), 2);
        let mut all = vec![0; bytes.len()];
        image.pages().read(0, &mut all);
        assert_eq!(all, bytes);
        let (one, other) = (image.clone(), image.pages());
        assert!(
            one.page(3).is_some_and(|frame| other.get(3).is_some_and(|o| frame.same(o))),
            "frames are shared"
        );
        assert_eq!(source.reads.load(Ordering::Relaxed), 4);
        assert!(image.page(4 * CHUNK).is_none(), "behind the end");
    }
}

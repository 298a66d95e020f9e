//! [`HostBase`]: the host's files and container images as base layer, read-only and limited to what a run names.
//!
//! This is the host's side: it is never part of a world. All workers of a process share one, and what it has once
//! answered stays its answer while the process runs, so that every world sees the same even if the host changes.
//! It keeps a digest of every answer ([`HostBase::inputs`]); a replay compares them ([`HostBase::changed`]).

mod large;
mod public;
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bloodhound_abi::Errno;
use bloodhound_frames::Frame;
use sha2::{Digest, Sha256};

pub use record::{Record, file_name};

use crate::base::{BaseEntry, BaseFs, BaseKind, ContentId, TreeId};
use crate::flags::{O_NOFOLLOW, O_NONBLOCK};
use crate::image::{FileImage, ImageTree};
use crate::pages::{PAGE, PageMap};
use crate::types::{Dev, Name, Timestamp};

/// Which part of a host directory a world may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Allow {
    /// Everything in it.
    All,
    /// These paths (relative to the directory, a leading slash is ignored) with all below them, and of the
    /// directories above them what leads there.
    Only(Vec<Vec<u8>>),
    /// What every user of the host may read: files that are readable for others, in directories that are readable and searchable for others.
    Public {
        /// These paths with all below them besides, as with [`Allow::Only`].
        named: Vec<Vec<u8>>,
        /// Directories of which nothing is shown but that they are there.
        closed: Vec<Vec<u8>>,
        /// The user whose files are shown as the system's are; those of other people are not ([`public`]).
        user: u32,
    },
}

/// What an [`Input`]'s digest is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum InputKind {
    /// The bytes of a file.
    Content,
    /// Kind, permission bits, owner, size, time and link target of a name; of directories no time.
    Entry,
    /// Names and entries of a directory.
    Listing,
    /// That there is nothing under this name (the digest is zero).
    Absent,
    /// A container image: its digest, which names all of its files. The path is the image's name.
    Image,
}

/// One thing that a world has learnt from the host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Input {
    /// The tree of the [`HostBase`].
    pub tree: TreeId,
    /// Path in the tree, empty for its root.
    pub path: Vec<u8>,
    /// What the digest is about.
    pub kind: InputKind,
    /// Size in bytes of a file's content, number of names of a listing, otherwise 0.
    pub size: u64,
    /// SHA-256.
    pub sha256: [u8; 32],
}

/// The host's files; see the module's text. A clone is another handle of the same cache.
#[derive(Clone, Debug, Default)]
pub struct HostBase {
    shared: Arc<Mutex<Inner>>,
    /// Paths that programs asked for in vain. Of its own, because it is touched far more often.
    missed: Arc<Mutex<BTreeSet<Key>>>,
}

/// Paths in vain that are kept: programs try many.
const MISSED_KEPT: usize = 10_000;
/// Directories that no world takes from the host.
const NEVER: [&[u8]; 3] = [b"proc", b"sys", b"dev"];

/// A path of a tree.
pub type Key = (TreeId, Vec<u8>);

#[derive(Debug, Default)]
struct Inner {
    trees: Vec<Tree>,
    entries: BTreeMap<Key, Option<BaseEntry>>,
    listings: BTreeMap<Key, Result<Vec<(Name, BaseEntry)>, Errno>>,
    contents: Vec<Content>,
    /// Files of images by what names their content, so that images that have layers in common share frames.
    image_files: BTreeMap<[u8; 32], Arc<FileImage>>,
    content_ids: BTreeMap<Key, ContentId>,
    /// Names that a world asked for, in contrast to those that a listing brought along.
    asked: BTreeMap<Key, ()>,
    /// Directories of [`Allow::Public`], and whether what is in them may be shown.
    open: BTreeMap<Key, bool>,
    /// Answers of [`HostBase::exists`].
    exists: Vec<bool>,
    /// Where answers come from instead of the host.
    sealed: Option<record::Sealed>,
}

#[derive(Debug)]
enum Tree {
    Host { dir: PathBuf, allow: Allow },
    Image(Arc<dyn ImageTree>),
}

/// Marks the number of a content as one of an image; below it are 15 bits of the tree and 48 of the tree's own number.
const OF_IMAGE: u64 = 1 << 63;
const TREE_SHIFT: u32 = 48;

/// An entry of an image in which the content's number is unique over all trees.
fn of_image(tree: TreeId, mut entry: BaseEntry) -> BaseEntry {
    if let BaseKind::Regular { content: ContentId(number), .. } = &mut entry.kind {
        assert!(*number >> TREE_SHIFT == 0 && tree.0 < 1 << 15, "too many images or files");
        *number |= OF_IMAGE | u64::from(tree.0) << TREE_SHIFT;
    }
    entry
}

#[derive(Debug)]
struct Content {
    key: Key,
    image: Option<Result<Arc<FileImage>, Errno>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sight {
    Full,
    /// A directory on the way to something allowed.
    Way,
    /// In a directory that every user may search.
    Public,
    Hidden,
}

impl HostBase {
    /// Without any tree.
    pub fn new() -> HostBase {
        HostBase::default()
    }

    /// Adds a host directory (or a single file, for a bind mount of a file). The path itself may lead through links.
    ///
    /// # Errors
    /// The host's, if there is nothing at `path`.
    pub fn add_tree(&self, path: &Path, allow: Allow) -> io::Result<TreeId> {
        let mut inner = self.lock();
        let dir = if inner.sealed.is_some() { path.to_owned() } else { path.canonicalize()? };
        Ok(inner.add(Tree::Host { dir, allow }))
    }

    /// Adds a container image.
    pub fn add_image(&self, image: Arc<dyn ImageTree>) -> TreeId {
        self.lock().add(Tree::Image(image))
    }

    /// Widens what `tree` shows by `path` and all below it. To be called before a world asks.
    pub fn allow(&self, tree: TreeId, path: &[u8]) {
        if let Some(Tree::Host { allow: Allow::Only(paths) | Allow::Public { named: paths, .. }, .. }) =
            self.lock().trees.get_mut(tree.0 as usize)
        {
            paths.push(path.to_vec());
        }
    }

    /// Everything that worlds have learnt from the host so far, sorted.
    pub fn inputs(&self) -> Vec<Input> {
        let inner = self.lock();
        let mut all = Vec::new();
        for key in inner.asked.keys() {
            if let Some(entry) = inner.entries.get(key) {
                let (kind, sha256) = match entry {
                    Some(entry) => (InputKind::Entry, entry_digest(entry)),
                    None => (InputKind::Absent, [0; 32]),
                };
                all.push(Input { tree: key.0, path: key.1.clone(), kind, size: 0, sha256 });
            }
        }
        for ((tree, path), listing) in &inner.listings {
            if let Ok(names) = listing {
                let (kind, size, sha256) = (InputKind::Listing, names.len() as u64, listing_digest(names));
                all.push(Input { tree: *tree, path: path.clone(), kind, size, sha256 });
            }
        }
        for Content { key: (tree, path), image } in &inner.contents {
            if let Some(Ok(image)) = image {
                let kind = InputKind::Content;
                all.push(Input {
                    tree: *tree,
                    path: path.clone(),
                    kind,
                    size: image.size(),
                    sha256: image.sha256(),
                });
            }
        }
        for (number, tree) in inner.trees.iter().enumerate() {
            if let Tree::Image(image) = tree {
                let (tree, path) = (TreeId(number as u32), image.name().into_bytes());
                all.push(Input { tree, path, kind: InputKind::Image, size: 0, sha256: image.digest() });
            }
        }
        all.sort();
        all
    }

    /// Absolute paths that programs asked for in vain and that the host has, but does not show them. Sorted.
    pub fn hidden(&self) -> Vec<Vec<u8>> {
        let missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut inner = self.lock();
        let mut hidden = |key: &Key| {
            let sight = inner.sight(key);
            let Ok(path) = inner.host_path(key) else { return false };
            sight != Sight::Full
                && !NEVER.iter().any(|top| within(&key.1, top))
                && path.symlink_metadata().is_ok_and(|found| !inner.shows(key, sight, &found))
        };
        missed.into_iter().filter(|key| hidden(key)).map(|(_, path)| [b"/", &path[..]].concat()).collect()
    }

    /// Those of `recorded` which are not so any more. Reads the files again unless this process has.
    pub fn changed(&self, recorded: &[Input]) -> Vec<Input> {
        recorded.iter().filter(|input| !self.holds(input)).cloned().collect()
    }

    /// The digest of a file's content; `None` if there is no such file. Reads it again unless this process has.
    pub fn content_digest(&self, tree: TreeId, path: &[u8]) -> Option<[u8; 32]> {
        let mut base = self.clone();
        match base.lookup(tree, path).ok()??.kind {
            BaseKind::Regular { content, .. } => base.load(content).ok().map(|image| image.sha256()),
            _ => None,
        }
    }

    fn holds(&self, input: &Input) -> bool {
        if input.kind == InputKind::Image {
            return self.lock().image(input.tree).is_some_and(|image| image.digest() == input.sha256);
        }
        let (mut base, tree, path) = (self.clone(), input.tree, &input.path[..]);
        let Ok(entry) = base.lookup(tree, path) else { return false };
        match (input.kind, entry) {
            (InputKind::Absent, entry) => entry.is_none(),
            (_, None) | (InputKind::Image, _) => false,
            (InputKind::Entry, Some(entry)) => entry_digest(&entry) == input.sha256,
            (InputKind::Listing, Some(_)) => {
                base.read_dir(tree, path).is_ok_and(|names| listing_digest(&names) == input.sha256)
            }
            (InputKind::Content, Some(_)) => self.content_digest(tree, path) == Some(input.sha256),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // The maps are whole at every point where something can panic, so a poisoned lock is no reason to stop.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BaseFs for HostBase {
    fn lookup(&mut self, tree: TreeId, path: &[u8]) -> Result<Option<BaseEntry>, Errno> {
        let mut inner = self.lock();
        if let Some(image) = inner.image(tree) {
            return Ok(image.lookup(path).map(|entry| of_image(tree, entry)));
        }
        let key = (tree, path.to_vec());
        let entry = inner.entry(&key)?;
        inner.asked.insert(key, ());
        Ok(entry)
    }

    fn read_dir(&mut self, tree: TreeId, path: &[u8]) -> Result<Vec<(Name, BaseEntry)>, Errno> {
        let mut inner = self.lock();
        if let Some(image) = inner.image(tree) {
            let Some(listing) = image.read_dir(path) else {
                return Err(if image.lookup(path).is_some() { Errno::ENOTDIR } else { Errno::ENOENT });
            };
            return Ok(listing.into_iter().map(|(name, entry)| (name, of_image(tree, entry))).collect());
        }
        let key = (tree, path.to_vec());
        if let Some(listing) = inner.listings.get(&key) {
            return listing.clone();
        }
        let listing = inner.list(&key);
        inner.listings.insert(key, listing.clone());
        listing
    }

    fn load(&mut self, content: ContentId) -> Result<Arc<FileImage>, Errno> {
        let mut inner = self.lock();
        if content.0 & OF_IMAGE != 0 {
            return inner.image_file(content);
        }
        let index = usize::try_from(content.0).map_err(|_| Errno::EIO)?;
        let known = inner.contents.get(index).ok_or(Errno::EIO)?;
        if let Some(image) = &known.image {
            return image.clone();
        }
        let image = match &inner.sealed {
            Some(sealed) => sealed.load(&known.key),
            None => read_image(&inner.host_path(&known.key)?).map_err(|error| guest_errno(&error)),
        };
        let image = image.map(Arc::new);
        inner.contents[index].image = Some(image.clone());
        image
    }

    fn notes_missed(&self) -> bool {
        true
    }

    fn missed(&mut self, tree: TreeId, path: &[u8]) {
        let mut parts: Vec<&[u8]> = Vec::new();
        for part in path.split(|b| *b == b'/') {
            match part {
                b"" | b"." => {}
                b".." => drop(parts.pop()),
                name => parts.push(name),
            }
        }
        if self.lock().image(tree).is_some() {
            return;
        }
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        if missed.len() < MISSED_KEPT {
            missed.insert((tree, parts.join(&b'/')));
        }
    }
}

impl Inner {
    fn add(&mut self, tree: Tree) -> TreeId {
        self.trees.push(tree);
        TreeId(self.trees.len() as u32 - 1)
    }

    fn image(&self, tree: TreeId) -> Option<&dyn ImageTree> {
        match self.trees.get(tree.0 as usize)? {
            Tree::Image(image) => Some(&**image),
            Tree::Host { .. } => None,
        }
    }

    fn image_file(&mut self, content: ContentId) -> Result<Arc<FileImage>, Errno> {
        let tree = TreeId(((content.0 & !OF_IMAGE) >> TREE_SHIFT) as u32);
        let number = ContentId(content.0 & ((1 << TREE_SHIFT) - 1));
        let file = self.image(tree).and_then(|image| image.content(number)).ok_or(Errno::EIO)?;
        let new = || Arc::new(FileImage::lazy(file.source, file.size, file.name));
        Ok(self.image_files.entry(file.name).or_insert_with(new).clone())
    }

    fn host_path(&self, (tree, path): &Key) -> Result<PathBuf, Errno> {
        let Some(Tree::Host { dir, .. }) = self.trees.get(tree.0 as usize) else { return Err(Errno::EIO) };
        if path.is_empty() {
            return Ok(dir.clone());
        }
        Ok(dir.join(std::ffi::OsStr::from_bytes(path)))
    }

    fn sight(&mut self, key: &Key) -> Sight {
        let (tree, path) = key;
        // A path that could leave the tree is never right, whoever asks.
        if path.split(|b| *b == b'/').any(|part| part == b".." || part == b".") || path.starts_with(b"/") {
            return Sight::Hidden;
        }
        let Some(Tree::Host { allow, .. }) = self.trees.get(tree.0 as usize) else { return Sight::Hidden };
        let (paths, is_public) = match allow {
            Allow::All => return Sight::Full,
            Allow::Only(paths) => (paths, false),
            Allow::Public { named, .. } => (named, true),
        };
        let mut sight = Sight::Hidden;
        for allowed in paths {
            let allowed = trim(allowed);
            if within(path, allowed) {
                return Sight::Full;
            }
            if within(allowed, path) {
                sight = Sight::Way;
            }
        }
        if is_public && self.is_in_open_directory(key) { Sight::Public } else { sight }
    }

    fn entry(&mut self, key: &Key) -> Result<Option<BaseEntry>, Errno> {
        if let Some(entry) = self.entries.get(key) {
            return Ok(entry.clone());
        }
        let entry = match self.sight(key) {
            _ if self.sealed.is_some() => self.sealed_entry(key),
            Sight::Hidden => None,
            sight => {
                let path = self.host_path(key)?;
                match path.symlink_metadata() {
                    Ok(found) if !self.shows(key, sight, &found) => None,
                    Ok(found) => self.convert(key, &path, &found),
                    Err(error) if is_absence(&error) => None,
                    Err(error) => return Err(guest_errno(&error)),
                }
            }
        };
        self.entries.insert(key.clone(), entry.clone());
        Ok(entry)
    }

    fn list(&mut self, key: &Key) -> Result<Vec<(Name, BaseEntry)>, Errno> {
        match self.entry(key)? {
            None => return Err(Errno::ENOENT),
            Some(entry) if entry.kind != BaseKind::Directory => return Err(Errno::ENOTDIR),
            Some(_) => {}
        }
        let mut names = match &self.sealed {
            Some(sealed) => sealed.names(key)?,
            None => self.names(key)?,
        };
        names.sort();
        let mut listing = Vec::with_capacity(names.len());
        for name in names {
            let mut path = key.1.clone();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
            // A name that cannot be looked at (EACCES on an odd mount) is left out.
            if let Ok(Some(entry)) = self.entry(&(key.0, path)) {
                listing.push((Name::from(name), entry));
            }
        }
        Ok(listing)
    }

    fn convert(&mut self, key: &Key, path: &Path, found: &Metadata) -> Option<BaseEntry> {
        let file_type = found.file_type();
        let kind = if file_type.is_file() {
            BaseKind::Regular { content: self.content_id(key), size: found.len() }
        } else if file_type.is_dir() {
            BaseKind::Directory
        } else if file_type.is_symlink() {
            BaseKind::Symlink(path.read_link().ok()?.into_os_string().into_vec().into())
        } else if file_type.is_char_device() {
            BaseKind::CharDevice(Dev::decode(found.rdev()))
        } else if file_type.is_block_device() {
            BaseKind::BlockDevice(Dev::decode(found.rdev()))
        } else if file_type.is_fifo() {
            BaseKind::Fifo
        } else {
            BaseKind::Socket
        };
        // Whole seconds: what archives and package managers keep, so that equal installations look equal.
        let mtime = Timestamp { secs: found.mtime(), nanos: 0 };
        Some(BaseEntry::new(kind, found.mode() & 0o7777, found.uid(), found.gid(), mtime))
    }

    /// The recorded entry with a number for its content.
    fn sealed_entry(&mut self, key: &Key) -> Option<BaseEntry> {
        let mut entry = self.sealed.as_ref()?.entry(key)?;
        if let BaseKind::Regular { content, .. } = &mut entry.kind {
            *content = self.content_id(key);
        }
        Some(entry)
    }

    fn content_id(&mut self, key: &Key) -> ContentId {
        if let Some(id) = self.content_ids.get(key) {
            return *id;
        }
        let id = ContentId(self.contents.len() as u64);
        self.contents.push(Content { key: key.clone(), image: None });
        self.content_ids.insert(key.clone(), id);
        id
    }
}

fn trim(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|b| *b != b'/').unwrap_or(path.len());
    let end = path.iter().rposition(|b| *b != b'/').map_or(start, |last| last + 1);
    &path[start..end]
}

/// Whether `path` is `above` or lies below it.
fn within(path: &[u8], above: &[u8]) -> bool {
    above.is_empty() || path == above || (path.starts_with(above) && path.get(above.len()) == Some(&b'/'))
}

fn is_absence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// What the program sees of a host error: a refusal as such, anything else as a failing disk.
fn guest_errno(error: &io::Error) -> Errno {
    if error.kind() == io::ErrorKind::PermissionDenied { Errno::EACCES } else { Errno::EIO }
}

fn read_image(path: &Path) -> io::Result<FileImage> {
    // Not blocking and not through a link, should the file have become something else since it was looked at.
    let mut file = OpenOptions::new().read(true).custom_flags((O_NOFOLLOW | O_NONBLOCK) as i32).open(path)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("no regular file any more"));
    }
    if found.len() >= large::LARGE {
        return large::read_large(path, file, found.len());
    }
    let (mut pages, mut size) = (PageMap::default(), 0u64);
    let mut buffer = vec![0u8; 64 * PAGE as usize];
    loop {
        let len = fill(&mut file, &mut buffer)?;
        buffer[len..].fill(0);
        let (whole, _) = buffer[..len.next_multiple_of(PAGE as usize)].as_chunks::<{ PAGE as usize }>();
        // Frames that are neighbours can be mapped at once.
        let filled: Vec<usize> = (0..whole.len()).filter(|n| whole[*n] != [0; PAGE as usize]).collect();
        let frames = Frame::copied_run(filled.iter().map(|n| &whole[*n]));
        for (n, frame) in filled.iter().zip(frames) {
            pages.set(size / PAGE + *n as u64, frame);
        }
        size += len as u64;
        if len < buffer.len() {
            return Ok(FileImage::whole(pages, size));
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn fill(file: &mut File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match file.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

fn entry_digest(entry: &BaseEntry) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash_entry(&mut hash, entry);
    hash.finalize().into()
}

fn listing_digest(names: &[(Name, BaseEntry)]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for (name, entry) in names {
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        hash_entry(&mut hash, entry);
    }
    hash.finalize().into()
}

fn hash_entry(hash: &mut Sha256, entry: &BaseEntry) {
    let (tag, a, b, bytes): (u8, u64, u64, &[u8]) = match &entry.kind {
        // Times are left out: a checkout or a build on another machine has others with the same content. The few programs
        // that look at them (Python at its compiled modules) show it by another digest of the run.
        BaseKind::Regular { size, .. } => (1, *size, 0, &[]),
        BaseKind::Directory => (2, 0, 0, &[]),
        BaseKind::Symlink(target) => (3, target.len() as u64, 0, target),
        BaseKind::CharDevice(dev) => (4, dev.encode(), 0, &[]),
        BaseKind::BlockDevice(dev) => (5, dev.encode(), 0, &[]),
        BaseKind::Fifo => (6, 0, 0, &[]),
        BaseKind::Socket => (7, 0, 0, &[]),
    };
    hash.update([tag]);
    hash.update(a.to_le_bytes());
    hash.update(b.to_le_bytes());
    for id in [entry.mode, entry.uid, entry.gid] {
        hash.update(id.to_le_bytes());
    }
    hash.update(bytes);
}

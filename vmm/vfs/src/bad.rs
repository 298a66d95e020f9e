//! Bad sectors: blocks of files that the disk of a machine cannot read any more.
//!
//! Key type: [`BadBlocks`]. A sector is one of 4096 bytes, as drives have them today, and so a block of the file system. That it is bad is a
//! property of the disk, and no operation draws it. It is bad from a time on until it is written: a drive then puts a spare sector in its place.
//! Neighbours: `file` (reads and writes), `power` (a power failure leaves bad sectors as they are), `trouble` (what is wrong with the
//! disk as a whole).
//!
//! What is in the page cache: a sector can only go bad under a block of which the page cache has no newer data, and the page of that block is
//! taken to be dropped by then, as Linux may drop any clean page at any time. Pages that are dirty are left alone: those that a shared
//! mapping may have stored into, and where power failures are computed all that waits to be written. So whether a read meets the sector depends on nothing
//! but when it went bad and what was written since.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use bloodhound_abi::Errno;

use crate::inode::{Data, Node};
use crate::mount::FsKind;
use crate::namespace::MountNs;
use crate::pages::PAGE;
use crate::pending::Op;
use crate::sectors::Sectors;
use crate::types::{FsId, Ino, Volume};
use crate::vfs::{PageMoved, Vfs};

/// Blocks that cannot be read, by file. Nearly always there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BadBlocks(Option<Arc<BTreeMap<Ino, BTreeSet<u64>>>>);

impl BadBlocks {
    fn first_in(&self, ino: Ino, blocks: Range<u64>) -> Option<u64> {
        self.0.as_ref()?.get(&ino)?.range(blocks).next().copied()
    }

    /// Forgets the blocks of a file in a range, or of all files those that `keep` refuses.
    fn retain(&mut self, keep: impl Fn(Ino, u64) -> bool) {
        let Some(files) = self.0.as_mut() else { return };
        let files = Arc::make_mut(files);
        for (ino, blocks) in files.iter_mut() {
            blocks.retain(|block| keep(*ino, *block));
        }
        files.retain(|_, blocks| !blocks.is_empty());
        if files.is_empty() {
            self.0 = None;
        }
    }
}

impl Vfs {
    /// Whether the disk has bad sectors under files.
    #[inline]
    pub fn has_bad_blocks(&self) -> bool {
        self.bad.0.is_some()
    }

    /// Whether the disk cannot read a block of a file.
    #[inline]
    pub fn is_bad(&self, ino: Ino, block: u64) -> bool {
        self.has_bad_blocks() && self.bad.first_in(ino, block..block + 1).is_some()
    }

    /// How many of `len` bytes from `offset` on can be read: those before the first bad block (filemap_read of Linux goes page by page and
    /// "return already_read ? already_read : error"). EIO if the first byte lies in one.
    ///
    /// # Errors
    /// EIO.
    #[inline]
    pub fn before_bad(&self, ino: Ino, offset: u64, len: usize) -> Result<usize, Errno> {
        if !self.has_bad_blocks() || len == 0 {
            return Ok(len);
        }
        let blocks = offset / PAGE..(offset + len as u64).div_ceil(PAGE);
        match self.bad.first_in(ino, blocks) {
            None => Ok(len),
            Some(block) if block * PAGE > offset => Ok((block * PAGE - offset) as usize),
            Some(_) => Err(Errno::EIO),
        }
    }

    /// How many of `len` bytes can be written from `offset` on: a bad block is no hindrance where all of it is overwritten, but of one that
    /// is overwritten in part the rest has to be read first ("if (!buffer_uptodate(bh) [...] && (block_start < from || block_end > to))
    /// bh_read_nowait", __block_write_begin_int in Linux). EIO if the first byte lies in such a one.
    pub(crate) fn takes_over_bad(&self, ino: Ino, offset: u64, len: usize) -> Result<usize, Errno> {
        if !self.has_bad_blocks() || len == 0 {
            return Ok(len);
        }
        let end = offset + len as u64;
        let in_part = [offset / PAGE, (end - 1) / PAGE]
            .into_iter()
            .find(|block| (block * PAGE < offset || (block + 1) * PAGE > end) && self.is_bad(ino, *block));
        match in_part {
            None => Ok(len),
            Some(block) if block * PAGE > offset => Ok((block * PAGE - offset) as usize),
            Some(_) => Err(Errno::EIO),
        }
    }

    /// Blocks of a file were overwritten or given back: what lies there now has a good sector.
    pub(crate) fn remap(&mut self, ino: Ino, blocks: Range<u64>) {
        if self.has_bad_blocks() {
            self.bad.retain(|other, block| other != ino || !blocks.contains(&block));
        }
    }

    /// Bytes of a file of a size are made zero (fallocate(2)): whole blocks are given back, of others the rest has to be read.
    ///
    /// # Errors
    /// EIO.
    pub(crate) fn zeroes_over_bad(&mut self, ino: Ino, bytes: Range<u64>, size: u64) -> Result<(), Errno> {
        if !self.has_bad_blocks() || bytes.is_empty() {
            return Ok(());
        }
        // What lies behind the end of the file is nothing.
        let end = if bytes.end == size { size.next_multiple_of(PAGE) } else { bytes.end };
        let whole = bytes.start.div_ceil(PAGE)..end / PAGE;
        let edges = [bytes.start / PAGE, (end - 1) / PAGE];
        if edges.into_iter().any(|block| !whole.contains(&block) && self.is_bad(ino, block)) {
            return Err(Errno::EIO);
        }
        self.remap(ino, whole);
        Ok(())
    }

    /// All sectors can be read again.
    pub fn repair(&mut self) {
        self.bad = BadBlocks::default();
    }

    /// After a power failure: blocks that are no longer there are not bad.
    pub(crate) fn forget_bad_of_nothing(&mut self) {
        let mut bad = std::mem::take(&mut self.bad);
        bad.retain(|ino, block| self.inode(ino).is_ok_and(|inode| block < inode.size().div_ceil(PAGE)));
        self.bad = bad;
    }

    /// The block that two numbers choose among those that can go bad: the first one the file, the second one its block. They are taken
    /// modulo how many there are. Files are those with data of their own on the disks that a namespace has mounted, or on a volume alone, but for `pinned` ones, whose
    /// pages nothing drops. `None` if there is no such block.
    pub fn block_to_lose(
        &self,
        (ns, volume): (MountNs, Option<Volume>),
        pinned: &dyn Fn(Ino) -> bool,
        (file, block): (u64, u64),
    ) -> Option<(Ino, u64)> {
        let (disks, dirty) = (self.disks_of(ns, volume), self.dirty());
        let clean = |ino: Ino| self.clean_blocks(ino, dirty.get(&ino));
        let of_disks = self.inodes.iter().filter(|(_, inode)| disks.contains(&inode.fs)).map(|(ino, _)| ino);
        let of_programs = of_disks.filter(|ino| !self.provided.contains(ino));
        let files: Vec<Ino> =
            of_programs.filter(|ino| clean(*ino).next().is_some() && !pinned(*ino)).collect();
        let ino = *files.get(file.checked_rem(files.len() as u64)? as usize)?;
        let blocks: Vec<u64> = clean(ino).collect();
        Some((ino, *blocks.get(block.checked_rem(blocks.len() as u64)? as usize)?))
    }

    /// The disk cannot read a block of a file any more. The kernel drops the mappings of its page ([`Vfs::take_moved`]).
    pub fn go_bad(&mut self, ino: Ino, block: u64) {
        let files = self.bad.0.get_or_insert_with(Arc::default);
        Arc::make_mut(files).entry(ino).or_default().insert(block);
        if self.is_mapped(ino) {
            self.moved.push(PageMoved { ino, index: block });
        }
    }

    /// File systems on disks that a namespace has mounted; those of a volume alone, whoever has it mounted.
    pub(crate) fn disks_of(&self, ns: MountNs, volume: Option<Volume>) -> BTreeSet<FsId> {
        if let Some(volume) = volume {
            return self.filesystems.keys().filter(|fs| self.is_of(fs, volume)).copied().collect();
        }
        let on_disk = |fs: &FsId| self.filesystems.get(fs).is_some_and(|fs| fs.kind != FsKind::Tmpfs);
        let space = self.spaces.get(ns.0 as usize);
        let mounts = space.into_iter().flat_map(|space| space.mounts.values());
        mounts.filter_map(|mount| mount.fs).filter(on_disk).collect()
    }

    /// The blocks of a file that the disk has as they are, and that can be read.
    fn clean_blocks<'a>(&'a self, ino: Ino, dirty: Option<&'a Sectors>) -> impl Iterator<Item = u64> + 'a {
        let own = self.inode(ino).ok().and_then(|inode| match &inode.node {
            Node::Regular { data: Data::Own(pages), size } => Some((pages, size.div_ceil(PAGE))),
            _ => None,
        });
        let stored = self.stored.get(&ino);
        let is_clean = move |block: &u64| {
            let range = block * PAGE..(block + 1) * PAGE;
            !stored.is_some_and(|pages| pages.contains(block))
                && dirty.is_none_or(|dirty| dirty.outside(range.clone()) == [range])
                && !self.is_bad(ino, *block)
        };
        let blocks = own
            .into_iter()
            .flat_map(|(pages, end)| pages.iter().map(|(at, _)| at).filter(move |at| *at < end));
        blocks.filter(is_clean)
    }

    /// What waits to be written, by file, where power failures are computed.
    pub(crate) fn dirty(&self) -> BTreeMap<Ino, Sectors> {
        let mut dirty: BTreeMap<Ino, Sectors> = BTreeMap::new();
        for pending in self.journal.iter().flat_map(|journal| journal.pending.iter()) {
            let bytes = match &pending.op {
                Op::Data { offset, bytes } => *offset..*offset + bytes.len() as u64,
                Op::Mapped { index } => index * PAGE..(index + 1) * PAGE,
                Op::Zero { from, to } => *from..*to,
                _ => continue,
            };
            dirty.entry(pending.ino).or_default().add(bytes);
        }
        dirty
    }
}

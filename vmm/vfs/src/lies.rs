//! Disks that lie: a block that is written to the place of another one, and a file whose name is gone although it was synced.
//!
//! Both change what is on the disk and nothing that programs see before the power fails: the page cache has the right bytes till then. That data is
//! not written at all is [`Vfs::sync_failed`]. Who asks for them is in the kernel (`disk`) and the simulation (`faults/power_failure`).

use std::sync::Arc;

use bloodhound_abi::{Errno, SimTime};

use crate::dir::Dir;
use crate::inode::{Data, Inode, Node};
use crate::journal::{Journal, own_pages};
use crate::mount::FsKind;
use crate::namespace::MountNs;
use crate::pages::PAGE;
use crate::types::{Ino, Name, Volume};
use crate::vfs::Vfs;

/// A block of a file, by number.
pub type Block = (Ino, u64);

impl Vfs {
    /// The blocks that a sync of a file writes, in order; none where power failures are not computed.
    pub fn blocks_to_write(&self, ino: Ino) -> Vec<u64> {
        let dirty = self.dirty();
        let Some(dirty) = dirty.get(&ino) else { return Vec::new() };
        let end = self.size(ino).div_ceil(PAGE);
        let is_dirty = |block: &u64| {
            let range = block * PAGE..(block + 1) * PAGE;
            dirty.outside(range.clone()) != [range]
        };
        (0..end).filter(is_dirty).collect()
    }

    /// The blocks on the disk, or on a volume alone, that a write of another block could go to by mistake: those with data of programs.
    pub fn places_on_disk(&self, but: Block, volume: Option<Volume>) -> Vec<Block> {
        let Some(journal) = self.journal.as_ref() else { return Vec::new() };
        let on_disk = |inode: &Inode| match volume {
            Some(volume) => self.is_of(&inode.fs, volume),
            None => self.filesystems.get(&inode.fs).is_some_and(|fs| fs.kind != FsKind::Tmpfs),
        };
        let mut places = Vec::new();
        let of_programs = |(ino, inode): &(Ino, &Arc<Inode>)| on_disk(inode) && !self.provided.contains(ino);
        for (ino, inode) in journal.durable.iter().filter(of_programs) {
            if let Node::Regular { data: Data::Own(pages), size } = &inode.node {
                let end = size.div_ceil(PAGE);
                places.extend(pages.iter().map(|(block, _)| (ino, block)).filter(|(_, block)| *block < end));
            }
        }
        places.retain(|place| *place != but);
        places
    }

    /// [`Vfs::sync_until`], but the disk writes one block of the file to the place of another one. Its own place keeps what it had.
    ///
    /// # Errors
    /// ESTALE.
    pub fn sync_astray(&mut self, (ino, block): Block, to: Block, until: SimTime) -> Result<(), Errno> {
        let page = |vfs: &Vfs, ino: Ino, block: u64| {
            let inode = vfs.journal.as_ref()?.durable.get(ino)?;
            match &inode.node {
                Node::Regular { data: Data::Own(pages), .. } => pages.get(block).cloned(),
                Node::Regular { data: Data::Image(image), .. } => image.page(block).cloned(),
                _ => None,
            }
        };
        let before = page(self, ino, block);
        self.sync_until(ino, until)?;
        let Some(written) = page(self, ino, block) else { return Ok(()) };
        let Some(journal) = self.journal.as_mut() else { return Ok(()) };
        let journal = Arc::make_mut(journal);
        // From now on the disk is not what memory has.
        journal.lost.extend([ino, to.0]);
        if let Some((pages, _)) = journal.durable.get_mut(to.0).and_then(own_pages) {
            pages.set(to.1, written);
        }
        if let Some((pages, _)) = journal.durable.get_mut(ino).and_then(own_pages) {
            match before {
                Some(frame) => pages.set(block, frame),
                None => pages.zero(block * PAGE, (block + 1) * PAGE, &mut |_| {}),
            }
        }
        Ok(())
    }

    /// The names of files that programs made or changed, on the disks that a namespace has mounted, or on a volume alone: in the order of directories.
    fn names_on_disk(&self, ns: MountNs, volume: Option<Volume>) -> Vec<(Ino, Name)> {
        let disks = self.disks_of(ns, volume);
        let is_file = |ino: Ino| {
            let inode = self.inode(ino).ok().filter(|_| !self.provided.contains(&ino));
            inode.is_some_and(|inode| matches!(inode.node, Node::Regular { data: Data::Own(_), .. }))
        };
        let of_disks = self.inodes.iter().filter(|(_, inode)| disks.contains(&inode.fs));
        let dirs = of_disks.filter_map(|(ino, inode)| Some((ino, inode.dir()?)));
        let named = |dir: &Dir| -> Vec<Name> {
            let names = dir.after(0).filter(|(_, _, ino)| is_file(*ino));
            names.map(|(_, name, _)| name.clone()).collect()
        };
        dirs.flat_map(|(ino, dir)| named(dir).into_iter().map(move |name| (ino, name))).collect()
    }

    /// How many files [`Vfs::vanish`] can take from the disks of a namespace, or from a volume alone.
    pub fn vanishable(&self, ns: MountNs, volume: Option<Volume>) -> u64 {
        self.names_on_disk(ns, volume).len() as u64
    }

    /// After a power failure: a file's name is gone from its directory, as where a repair of the file system removed what it could not make sense of
    /// (fsck(8)). Returns where it was, as paths are in the namespace.
    pub fn vanish(&mut self, (ns, volume): (MountNs, Option<Volume>), nth: u64) -> Option<Vec<u8>> {
        let names = self.names_on_disk(ns, volume);
        let (dir, name) = names.get(usize::try_from(nth).ok()?)?;
        let entered = self.entered();
        self.enter_namespace(ns);
        let mut path = self.path_of(self.root(), *dir);
        self.enter_namespace(entered);
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        self.inodes.get_mut(*dir)?.dir_mut()?.remove(name, false);
        self.install(self.inodes.clone());
        if let Some(journal) = self.journal.take() {
            let (model, order) = (journal.model, journal.order);
            self.journal = Some(Arc::new(Journal::new(model, self.inodes.clone(), order)));
        }
        Some(path)
    }
}

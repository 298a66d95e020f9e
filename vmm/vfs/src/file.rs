//! File bytes: read, write, truncate, fallocate, seeking for data and holes, and pages for memory mappings.
//!
//! Offsets and lengths are in bytes, page indexes in 4096 bytes. Nothing here needs the base layer, for opening a
//! file loads it.

use std::sync::Arc;

use bloodhound_abi::{Errno, SimTime};
use bloodhound_frames::Frame;

use crate::flags::*;
use crate::image::FileImage;
use crate::inode::{CAPABILITY, Data, Node};
use crate::mount::FsKind;
use crate::pages::{PAGE, PageMap};
use crate::pending::Op;
use crate::perm::set_id_to_drop;
use crate::types::{Cred, FileCap, Ino, Kind, Outcome};
use crate::vfs::{At, Ctx, PageMoved, Vfs};

/// The content of a new regular file.
pub(crate) fn empty() -> Node {
    Node::Regular { data: Data::Own(PageMap::default()), size: 0 }
}

impl Vfs {
    /// Size of a file in bytes; 0 for a number that names nothing.
    pub fn size(&self, ino: Ino) -> u64 {
        self.inode(ino).map_or(0, |inode| inode.size())
    }

    /// Reads at `offset`; the number of bytes, 0 at the end of the file. Does not touch the access time, see
    /// [`Vfs::accessed`].
    ///
    /// # Errors
    /// EISDIR, EINVAL for other kinds, EIO if the file was never opened or the disk cannot read it there.
    pub fn read_at(&self, ino: Ino, offset: u64, out: &mut [u8]) -> Result<usize, Errno> {
        let inode = self.inode(ino)?;
        let Node::Regular { data, size } = &inode.node else { return Err(not_regular(inode.is_dir())) };
        let len = (*size).saturating_sub(offset).min(out.len() as u64) as usize;
        let len = self.before_bad(ino, offset, len)?;
        match data {
            Data::Unread(_) => return Err(Errno::EIO),
            Data::Image(image) => image.read(offset, &mut out[..len]),
            Data::Own(pages) => pages.read(offset, &mut out[..len]),
        }
        Ok(len)
    }

    /// Writes at `offset`, which may lie behind the end; the number of bytes, less than all if the file system
    /// becomes full or the largest file size is reached.
    ///
    /// # Errors
    /// EFBIG, ENOSPC, EDQUOT, EISDIR, EINVAL; EIO for a part of a block that the disk cannot read.
    pub fn write_at(&mut self, ino: Ino, offset: u64, data: &[u8], now: SimTime) -> Result<usize, Errno> {
        if data.is_empty() {
            return Ok(0);
        }
        let room = self.config.max_file_size.saturating_sub(offset);
        if room == 0 {
            return Err(Errno::EFBIG);
        }
        let mut len = data.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        self.may_store(ino)?;
        len = self.takes_over_bad(ino, offset, len)?;
        let free = self.free_pages(ino)?;
        let pages = self.own(ino)?;
        while len > 0 && pages.missing(offset, len as u64) > free {
            // Gives up the last page and tries again: what remains ends at a page boundary.
            let end = offset + len as u64;
            len = ((end - 1) / PAGE * PAGE).saturating_sub(offset) as usize;
        }
        if len == 0 {
            return Err(self.no_room(ino));
        }
        self.edit(ino, |pages, moved| pages.write(offset, &data[..len], moved))?;
        self.remap(ino, offset / PAGE..(offset + len as u64).div_ceil(PAGE));
        self.note(ino, now, |_| Some(Op::Data { offset, bytes: Arc::from(&data[..len]) }));
        self.changed(ino, Some(offset + len as u64), now)?;
        Ok(len)
    }

    /// Removes what a file gives to who executes it, as a write, truncation or allocation does: set-user-ID and set-group-ID unless root
    /// makes the change, the capabilities by whomever (file_remove_privs). The kernel calls it with those on a descriptor.
    ///
    /// # Errors
    /// ESTALE.
    pub fn drop_privileges(&mut self, ino: Ino, cred: &Cred, now: SimTime) -> Result<(), Errno> {
        let inode = self.inode(ino)?;
        if inode.kind() != Kind::Regular {
            return Ok(());
        }
        let bits = if cred.has(FileCap::Fsetid) { 0 } else { set_id_to_drop(inode, cred) };
        let has_capabilities = inode.meta.has_capabilities();
        if bits == 0 && !has_capabilities {
            return Ok(());
        }
        let meta = &mut self.inode_mut(ino)?.meta;
        meta.mode &= !bits;
        if has_capabilities {
            meta.set_xattr(CAPABILITY, None);
            self.count_kept(ino);
        }
        self.note_attributes(ino, now);
        if bits != 0 {
            self.tell_change(ino, IN_ATTRIB);
        }
        Ok(())
    }

    /// Whether a file gives privileges to who executes it, so that a change of it may have to take them away.
    pub fn gives_privileges(&self, ino: Ino) -> bool {
        self.inode(ino)
            .is_ok_and(|inode| inode.meta.mode & (S_ISUID | S_ISGID) != 0 || inode.meta.has_capabilities())
    }

    /// truncate(2).
    ///
    /// # Errors
    /// EACCES, EFBIG, EINVAL, EISDIR, EROFS, ETXTBSY; those of resolution.
    pub fn truncate(&mut self, ctx: &mut Ctx, at: At, size: u64) -> Outcome<()> {
        let ino = self.resolve(ctx, at, true)?;
        let inode = self.inode(ino)?;
        if !matches!(inode.node, Node::Regular { .. }) {
            return Err(not_regular(inode.is_dir()).into());
        }
        self.may_truncate(ino, ctx.cred)?;
        if self.handles_of(ino).execs > 0 {
            return Err(Errno::ETXTBSY.into());
        }
        self.load(ctx.base, ino)?;
        if self.truncates_nothing(ino, size)? {
            self.may_store(ino)?;
            self.tell_change(ino, IN_MODIFY);
        } else {
            self.truncate_to(ino, size, ctx.now)?;
        }
        Ok(self.drop_privileges(ino, ctx.cred, ctx.now)?)
    }

    /// Whether truncate(2) leaves the times of a file of tmpfs alone: it keeps its size and has no page (shmem_setattr).
    fn truncates_nothing(&self, ino: Ino, size: u64) -> Result<bool, Errno> {
        let in_memory = self.fs_of(ino)?.kind == FsKind::Tmpfs;
        let Node::Regular { data, size: old } = &self.inode(ino)?.node else { return Ok(false) };
        let empty = matches!(data, Data::Own(pages) if pages.taken() == 0);
        Ok(in_memory && empty && size == *old)
    }

    /// Whether `cred` may set the size of a file (vfs_truncate).
    ///
    /// # Errors
    /// EACCES, EROFS, EPERM of what is append-only.
    pub fn may_truncate(&self, ino: Ino, cred: &Cred) -> Result<(), Errno> {
        self.permit(ino, cred, MAY_WRITE)?;
        if self.is_append_only(ino) { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// Whether bytes of a file that is open for writing can change.
    fn may_store(&self, ino: Ino) -> Result<(), Errno> {
        self.may_change(ino)?;
        if self.is_frozen(ino) { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// ftruncate(2) on a file open for writing.
    ///
    /// # Errors
    /// EFBIG, EINVAL.
    pub fn truncate_to(&mut self, ino: Ino, size: u64, now: SimTime) -> Result<(), Errno> {
        if size > self.config.max_file_size {
            return Err(Errno::EFBIG);
        }
        self.may_store(ino)?;
        let Node::Regular { data, size: old } = &mut self.inode_mut(ino)?.node else {
            return Err(Errno::EINVAL);
        };
        let old = *old;
        if size == 0 && matches!(data, Data::Unread(_)) {
            *data = Data::Own(PageMap::default()); // no need to read what goes away
        } else if matches!(data, Data::Unread(_)) {
            return Err(Errno::EIO);
        } else if size < old {
            self.own(ino)?;
            self.edit(ino, |pages, moved| pages.truncate(size, moved))?;
        } else if size == old && matches!(data, Data::Own(_)) {
            // "Call ext4_truncate() even if i_size didn't change to truncate possible preallocated blocks" (ext4_setattr), and so
            // does tmpfs.
            self.edit(ino, |pages, _| pages.release(size.div_ceil(PAGE), u64::MAX))?;
        }
        if let Node::Regular { size: current, .. } = &mut self.inode_mut(ino)?.node {
            *current = size;
        }
        if size < old {
            self.clean_pages(ino);
            self.remap(ino, size.div_ceil(PAGE)..u64::MAX);
        }
        self.note(ino, now, |_| Some(Op::Size { size }));
        if size == 0 {
            self.note_emptied(ino);
        }
        self.changed(ino, None, now)?;
        self.tell_change(ino, IN_MODIFY);
        Ok(())
    }

    /// fallocate(2) with mode 0, KEEP_SIZE, PUNCH_HOLE and ZERO_RANGE. Preallocated space is a hole that counts as taken; a power
    /// failure gives it back.
    ///
    /// # Errors
    /// EINVAL for a length of 0 or bad flags, EFBIG, ENOSPC, EDQUOT, EISDIR, ENODEV, EOPNOTSUPP for COLLAPSE_RANGE and
    /// INSERT_RANGE; EIO for a part of a block that the disk cannot read.
    pub fn fallocate(
        &mut self,
        ino: Ino,
        mode: u32,
        offset: u64,
        len: u64,
        now: SimTime,
    ) -> Result<(), Errno> {
        let end = Vfs::check_fallocate(mode, offset, len)?;
        self.may_store(ino)?;
        let (punch, zero, keep) = (
            mode & FALLOC_FL_PUNCH_HOLE != 0,
            mode & FALLOC_FL_ZERO_RANGE != 0,
            mode & FALLOC_FL_KEEP_SIZE != 0,
        );
        let inode = self.inode(ino)?;
        let Node::Regular { size, .. } = &inode.node else {
            return Err(if inode.is_dir() { Errno::EISDIR } else { Errno::ENODEV });
        };
        let size = *size;
        self.has_fallocate_mode(ino, mode)?;
        if end > self.config.max_file_size {
            return Err(Errno::EFBIG);
        }
        if !punch {
            let free = self.free_pages(ino)?;
            if self.own(ino)?.missing(offset, len) > free {
                return Err(self.no_room(ino));
            }
        }
        if punch || zero {
            self.own(ino)?;
            // The page of the end goes as a whole where a hole reaches beyond the end of the file (ext4_punch_hole); on tmpfs where it reaches to the end of that page, and so does
            // what was set aside behind it (shmem_truncate_range).
            let (page_end, tmpfs) = (size.next_multiple_of(PAGE), self.fs_of(ino)?.kind == FsKind::Tmpfs);
            let (from, to) = match punch {
                true if tmpfs && end >= page_end => (offset, end),
                true if !tmpfs && end > size => (offset.min(size), page_end),
                _ => (offset.min(size), end.min(size)),
            };
            self.zeroes_over_bad(ino, from..to, size)?;
            self.edit(ino, |pages, moved| pages.zero(from, to, moved))?;
            self.clean_pages(ino);
            self.note(ino, now, |_| Some(Op::Zero { from, to }));
        }
        // "SGP_FALLOC on a page fallocated earlier must initialize it now, lest undo on failure cause it to be deleted" (shmem_get_folio_gfp).
        if !punch && self.fs_of(ino)?.kind == FsKind::Tmpfs {
            self.edit(ino, |pages, moved| pages.fill_reserved(offset / PAGE, end.div_ceil(PAGE), moved))?;
        }
        if !punch {
            self.edit(ino, |pages, _| pages.reserve(offset / PAGE, end.div_ceil(PAGE)))?;
        }
        if !keep && end > size {
            self.note(ino, now, |_| Some(Op::Size { size: end }));
        }
        self.changed(ino, (!keep).then_some(end), now)?;
        self.tell(ino, IN_MODIFY);
        Ok(())
    }

    /// The checks of fallocate(2) that come before those of the descriptor (EBADF unless open for writing); the end
    /// of the range.
    ///
    /// # Errors
    /// EINVAL, EFBIG, EOPNOTSUPP.
    pub fn check_fallocate(mode: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        let known = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;
        let (punch, zero) = (mode & FALLOC_FL_PUNCH_HOLE != 0, mode & FALLOC_FL_ZERO_RANGE != 0);
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        // fallocate(2): "The FALLOC_FL_PUNCH_HOLE flag must be ORed with FALLOC_FL_KEEP_SIZE in mode".
        if mode & !known != 0 || (punch && (zero || mode & FALLOC_FL_KEEP_SIZE == 0)) {
            return Err(Errno::EOPNOTSUPP);
        }
        offset.checked_add(len).ok_or(Errno::EFBIG)
    }

    /// Whether the file system of a file has a mode of fallocate(2). Linux asks that before anything else of the file; shmem_fallocate knows
    /// two flags.
    ///
    /// # Errors
    /// EOPNOTSUPP.
    pub fn has_fallocate_mode(&self, ino: Ino, mode: u32) -> Result<(), Errno> {
        let zero = if self.fs_of(ino)?.kind == FsKind::Tmpfs { 0 } else { FALLOC_FL_ZERO_RANGE };
        let known = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | zero;
        if mode & !known != 0 { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
    }

    /// lseek(2) with SEEK_DATA.
    ///
    /// # Errors
    /// ENXIO at or behind the end, or if only a hole follows.
    pub fn seek_data(&self, ino: Ino, offset: u64) -> Result<u64, Errno> {
        let (pages, size) = self.pages(ino)?;
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        match pages {
            None => Ok(offset),
            Some(pages) => pages.next_data(offset).filter(|at| *at < size).ok_or(Errno::ENXIO),
        }
    }

    /// lseek(2) with SEEK_HOLE; the end of the file is a hole.
    ///
    /// # Errors
    /// ENXIO at or behind the end.
    pub fn seek_hole(&self, ino: Ino, offset: u64) -> Result<u64, Errno> {
        let (pages, size) = self.pages(ino)?;
        if offset >= size {
            return Err(Errno::ENXIO);
        }
        Ok(pages.map_or(size, |pages| pages.next_hole(offset).min(size)))
    }

    /// Whether the file's content is still that of the base layer, which nobody changes.
    pub fn is_pristine(&self, ino: Ino) -> bool {
        self.pristine(ino).is_some()
    }

    /// The file's content, if it is still that of the base layer.
    pub fn pristine(&self, ino: Ino) -> Option<&Arc<FileImage>> {
        match &self.inode(ino).ok()?.node {
            Node::Regular { data: Data::Image(image), .. } => Some(image),
            _ => None,
        }
    }

    /// The frame of a page for a read-only or private mapping: zeros where the file has a hole, `None` behind its
    /// end and where the disk cannot read it (SIGBUS). A clone that the kernel keeps makes the next write to the page copy it.
    pub fn page(&self, ino: Ino, index: u64) -> Option<Frame> {
        let Node::Regular { data, size } = &self.inode(ino).ok()?.node else { return None };
        if index >= size.div_ceil(PAGE) || self.is_bad(ino, index) {
            return None;
        }
        let frame = match data {
            Data::Unread(_) => return None,
            Data::Image(image) => image.page(index),
            Data::Own(pages) => pages.get(index),
        };
        Some(frame.cloned().unwrap_or_else(Frame::shared_zero))
    }

    /// The frame of a page for a shared writable mapping: made present and unshared, so that application code may
    /// store into it. The kernel maps it and drops the handle: the VFS stays the only holder. After the world was
    /// cloned the page is asked for again before the next store. `None` as for [`Vfs::page`] (SIGBUS).
    ///
    /// The first request makes the page dirty, as a store does on Linux, and sets the times. Further ones change nothing
    /// until [`Vfs::sync`] cleans the page, so that a mapping which the platform dropped and must make again leaves no
    /// trace.
    ///
    /// # Errors
    /// ENOSPC and EDQUOT (SIGBUS as well), EINVAL.
    pub fn page_mut(&mut self, ino: Ino, index: u64, now: SimTime) -> Result<Option<Frame>, Errno> {
        let inode = self.inode(ino)?;
        let Node::Regular { size, .. } = &inode.node else { return Err(Errno::EINVAL) };
        if index >= size.div_ceil(PAGE) || self.is_bad(ino, index) {
            return Ok(None);
        }
        self.may_store(ino)?;
        let free = self.free_pages(ino)?;
        if self.own(ino)?.missing(index * PAGE, 1) > free {
            return Err(self.no_room(ino));
        }
        let mut frame = None;
        self.edit(ino, |pages, moved| frame = Some(pages.unique(index, moved).clone()))?;
        let known = self.stored.get(&ino).is_some_and(|pages| pages.contains(&index));
        if !known {
            Arc::make_mut(&mut self.stored).entry(ino).or_default().insert(index);
            self.note(ino, now, |_| Some(Op::Mapped { index }));
            self.changed(ino, None, now)?;
        }
        Ok(frame)
    }

    /// The next store into any mapped page of the file must be noticed again.
    pub(crate) fn clean_pages(&mut self, ino: Ino) {
        if !self.stored.contains_key(&ino) {
            return;
        }
        let pages = Arc::make_mut(&mut self.stored).remove(&ino).unwrap_or_default();
        if self.is_mapped(ino) {
            self.moved.extend(pages.into_iter().map(|index| PageMoved { ino, index }));
        }
    }

    /// The pages of a file (`None` if all are data) and its size.
    fn pages(&self, ino: Ino) -> Result<(Option<&PageMap>, u64), Errno> {
        match &self.inode(ino)?.node {
            Node::Regular { data: Data::Own(pages), size } => Ok((Some(pages), *size)),
            Node::Regular { size, .. } => Ok((None, *size)),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Pages that the file system of `ino` can still take; as many as there are without a quota.
    fn free_pages(&self, ino: Ino) -> Result<u64, Errno> {
        let fs = self.fs_of(ino)?;
        if self.shortage(fs).is_some() {
            return Ok(0);
        }
        let kept = if fs.kind == FsKind::Tmpfs { 0 } else { fs.kept / 4096 };
        Ok(fs.quota_pages.map_or(u64::MAX, |quota| quota.saturating_sub(fs.used_pages + kept)))
    }

    /// How a call fails that needs a page where there is no room: ENOSPC or EDQUOT.
    fn no_room(&self, ino: Ino) -> Errno {
        self.fs_of(ino).ok().and_then(|fs| self.shortage(fs)).unwrap_or(Errno::ENOSPC)
    }

    /// Makes the content the file's own ("copy up"), which counts its pages.
    fn own(&mut self, ino: Ino) -> Result<&PageMap, Errno> {
        let inode = self.inode(ino)?;
        let fs = inode.fs;
        match &inode.node {
            Node::Regular { data: Data::Own(_), .. } => {}
            Node::Regular { data: Data::Image(image), .. } => {
                let pages = image.pages();
                self.charge(fs, 0, pages.taken());
                if let Node::Regular { data, .. } = &mut self.inode_mut(ino)?.node {
                    *data = Data::Own(pages);
                }
                if self.is_mapped(ino) {
                    self.copied_up.push(ino);
                }
            }
            Node::Regular { .. } => return Err(Errno::EIO),
            _ => return Err(not_regular(inode.is_dir())),
        }
        self.pages(ino)?.0.ok_or(Errno::EIO)
    }

    /// Changes pages of a file that owns them; keeps the quota and the list of moved pages.
    fn edit(
        &mut self,
        ino: Ino,
        change: impl FnOnce(&mut PageMap, crate::pages::Moved),
    ) -> Result<(), Errno> {
        let mapped = self.is_mapped(ino);
        let inode = self.inodes.get_mut(ino).ok_or(Errno::ESTALE)?;
        let fs = inode.fs;
        let Node::Regular { data: Data::Own(pages), .. } = &mut inode.node else { return Err(Errno::EIO) };
        let before = pages.taken();
        let list = &mut self.moved;
        change(pages, &mut |index| {
            if mapped {
                list.push(PageMoved { ino, index });
            }
        });
        let after = pages.taken();
        self.charge(fs, before, after);
        Ok(())
    }

    /// Something was written to what has a name here, and its content elsewhere: a fifo.
    ///
    /// # Errors
    /// Those of a missing inode.
    pub fn written(&mut self, ino: Ino, now: SimTime) -> Result<(), Errno> {
        self.changed(ino, None, now)
    }

    /// Content changed: times, and the size if it has grown to `end`.
    fn changed(&mut self, ino: Ino, end: Option<u64>, now: SimTime) -> Result<(), Errno> {
        let time = self.stamp(now);
        let inode = self.inode_mut(ino)?;
        (inode.meta.mtime, inode.meta.ctime) = (time, time);
        if let (Node::Regular { size, .. }, Some(end)) = (&mut inode.node, end) {
            *size = (*size).max(end);
        }
        Ok(())
    }
}

fn not_regular(is_dir: bool) -> Errno {
    if is_dir { Errno::EISDIR } else { Errno::EINVAL }
}

//! Disk faults that operations of programs meet: writes and reads that fail, writes that are cut short, data that does not reach
//! the disk.
//!
//! Key types: [`Broken`] (what a disk owes to the programs of a machine: errors that they will be shown). Whether a fault happens is
//! asked in [`crate::hazards`]; neighbours: [`crate::transfer`] (reads and writes), `sys::storage` (fsync(2) and its kin),
//! `bloodhound-vfs`'s `trouble` (a disk that is full, or can only be read).
//!
//! What Linux can show:
//!
//! - *A write fails* with EIO before a byte of it is taken, also one that would only go to the page cache: `write_begin` of a file system
//!   reads the part of a block that is not overwritten, and the map of its blocks. "EIO: A low-level I/O error occurred while modifying
//!   the inode" (write(2)).
//! - *A write is cut short* where `write_begin` fails for a later page: generic_perform_write goes page by page and returns what it has
//!   ("return written ? written : status"), and whoever writes on meets the error itself. With O_DIRECT it goes sector by sector.
//! - *fsync(2) fails* when data cannot be written back. The pages are clean all the same, and each description that was open by
//!   then is told once: "Since Linux 4.13, errors from write-back come with a promise that they may be reported by subsequent write(2)
//!   requests, and will be reported by a subsequent fsync(2)" (write(2)); lib/errseq.c keeps count.
//! - *A read fails* wherever the page cache does not have the data, and it may have dropped any clean page at any time: "EIO: [...] It
//!   may also occur when there is a low-level I/O error while reading from a disk" (read(2)).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_faults::Kind;
use bloodhound_persistent::{Map, Set};
use bloodhound_vfs::{Block, Ino, PAGE, Volume};

use crate::buffers::Buffers;
use crate::ctx::Ctx;
use crate::file::{File, FileKind};
use crate::hazards::Injected;
use crate::ids::{FileId, MmId, Tid};
use crate::mm::fault::Fault;
use crate::mm::{Access, Backing, Lock, Vma};
use crate::node::Node;
use crate::wait::{Restart, SysResult, Wait};

/// A unit of O_DIRECT.
const SECTOR: u64 = 512;

/// What the disk of a machine owes to its programs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Broken {
    /// Files of which the next write fails: the medium did in the middle of the last one.
    cut: Set<Ino>,
    /// How often data of a file did not reach the disk (`wb_err` of Linux).
    unwritten: Map<Ino, u32>,
    /// How long a call waits for the disk, ns.
    slow_ns: u64,
    /// The same for volumes that are slow alone.
    slow_volumes: Map<Volume, u64>,
    /// Pages that were read or written since the disk became slow. What was in the page cache by then is taken to have been dropped, as
    /// Linux may drop any clean page at any time.
    cached: Set<(Ino, u64)>,
}

impl Broken {
    /// The disk is whole again. What was not written stays so, and whoever has not been told of it will be.
    pub fn heal(&mut self) {
        self.cut = Set::new();
        self.end_slowness();
    }

    /// Nothing is slow any more.
    pub(crate) fn end_slowness(&mut self) {
        (self.slow_ns, self.slow_volumes, self.cached) = (0, Map::new(), Set::new());
    }

    /// From now on calls that wait for the disk, or for a volume alone, wait so much longer, ns.
    pub fn set_slow(&mut self, volume: Option<Volume>, ns: u64) {
        match volume {
            None => self.slow_ns = ns,
            Some(volume) if ns > 0 => drop(self.slow_volumes.insert(volume, ns)),
            Some(volume) => drop(self.slow_volumes.remove(&volume)),
        }
        self.cached = Set::new();
    }

    /// How much longer calls wait for the disk, or for a volume alone, ns.
    pub fn slow_ns(&self, volume: Option<Volume>) -> u64 {
        volume.map_or(self.slow_ns, |volume| self.slow_volumes.get(&volume).copied().unwrap_or_default())
    }

    /// What is slow is as slow as it was.
    pub(crate) fn stay_slow(&mut self, before: &Broken) {
        (self.slow_ns, self.slow_volumes) = (before.slow_ns, before.slow_volumes.clone());
    }

    /// Whether anything is slow.
    fn is_slow(&self) -> bool {
        self.slow_ns > 0 || !self.slow_volumes.is_empty()
    }

    /// What can be read of a file without the disk: bytes that were read or written. Nobody asks as long as the disk is fast.
    pub(crate) fn keep_cached(&mut self, ino: Ino, from: u64, len: u64) {
        if self.is_slow() && len > 0 {
            for page in from / PAGE..(from + len).div_ceil(PAGE) {
                self.cached.insert((ino, page));
            }
        }
    }

    /// Whether some of the pages of a range have to come from the disk.
    fn is_uncached(&self, ino: Ino, pages: std::ops::Range<u64>) -> bool {
        pages.into_iter().any(|page| !self.cached.contains(&(ino, page)))
    }

    /// How much of the errors of a file a description has seen that is opened now: all (`errseq_sample`), for here an error is shown
    /// to somebody as soon as it happens.
    pub(crate) fn seen_at_open(&self, ino: Ino) -> u32 {
        self.unwritten.get(&ino).copied().unwrap_or_default()
    }
}

impl Node {
    /// Whether pages of a file are locked in memory (mlock(2)), so that no copy of them is ever dropped from the page cache.
    pub fn is_locked_in_memory(&self, ino: Ino) -> bool {
        let of_file = |vma: &Vma| matches!(vma.backing, Backing::File { ino: other, .. } if other == ino);
        let users = self.mapped.get(&ino).into_iter().flat_map(|users| users.keys());
        users
            .filter_map(|mm| self.mms.get(*mm))
            .any(|mm| mm.locked > 0 && mm.vmas().any(|vma| vma.marks.lock != Lock::No && of_file(vma)))
    }

    /// [`Node::page_fault`] of a task. Where the disk has a fault, the page counts against the quota of the task's container, and it is told
    /// if a bad sector makes it a SIGBUS ("if (unlikely(error)) [...] return VM_FAULT_SIGBUS", filemap_fault in Linux).
    pub fn page_fault_of(&mut self, tid: Tid, mm: MmId, addr: u64, access: Access) -> Fault {
        if !self.vfs.is_whole() {
            let mounts = self.container_of_any(self.task(tid).pid).mounts;
            self.vfs.enter_namespace(mounts);
        }
        let fault = self.page_fault(mm, addr, access);
        if self.vfs.has_bad_blocks() && matches!(fault, Fault::Signal(..)) {
            self.tell_bad_page(tid, mm, addr);
        }
        fault
    }

    /// Tells that a page fault met a bad sector, if it did.
    #[cold]
    fn tell_bad_page(&mut self, tid: Tid, mm: MmId, addr: u64) {
        let Some(vma) = self.mms[mm].find(addr) else { return };
        let Backing::File { ino, offset } = vma.backing else { return };
        let index = (offset + (addr - vma.start)) / PAGE;
        let copied = !vma.shared && self.mms[mm].pages.get(addr / PAGE).is_some();
        if copied || !self.vfs.is_bad(ino, index) {
            return;
        }
        let task = self.task(tid);
        let (pid, comm) = (task.pid, task.comm.clone());
        let container = self.container_of_any(pid).id;
        let path = Some(self.vfs.path_of(self.vfs.root(), ino));
        let (at, kind, shown) = (self.clock, Kind::BadSector, "SIGBUS".to_owned());
        self.injected.push(Injected { at, kind, container, pid, comm, call: "page fault", path, shown });
    }

    /// How much longer a call waits for the disk of a file, ns.
    fn slowness(&self, ino: Ino) -> u64 {
        let volume = self.vfs.volume_of(ino).map_or(0, |volume| self.broken.slow_ns(Some(volume)));
        self.broken.slow_ns.max(volume)
    }

    /// Notes that data of a file did not reach the disk.
    fn not_written(&mut self, ino: Ino) {
        self.vfs.sync_failed(ino);
        let count = self.broken.seen_at_open(ino).wrapping_add(1);
        self.broken.unwritten.insert(ino, count);
    }
}

impl Ctx<'_> {
    /// How many of `len` bytes that are written to a file reach it: all, or those before the place where the medium fails. EIO.
    #[inline]
    pub(crate) fn disk_takes(&mut self, id: FileId, ino: Ino, start: u64, len: u64) -> SysResult {
        if self.container().hazards.in_force() {
            self.disk_may_fail(id, ino, start, len)
        } else {
            Ok(u64::MAX)
        }
    }

    #[cold]
    fn disk_may_fail(&mut self, id: FileId, ino: Ino, start: u64, len: u64) -> SysResult {
        if !self.node.vfs.is_on_disk(ino) || !self.process().is_of_service() {
            return Ok(u64::MAX);
        }
        let unit = if self.node.files[id].flags & c::O_DIRECT != 0 { SECTOR } else { PAGE };
        // How many boundaries lie within what is written.
        let cuts = (start + len).saturating_sub(1) / unit - start / unit;
        // All kinds are asked before one of them acts: the choices of none depend on what another one does.
        let fails = self.hazard_on(Kind::WriteFail, ino).is_some();
        let partial = if cuts > 0 { self.hazard_on(Kind::PartialWrite, ino) } else { None };
        if self.node.broken.cut.remove(&ino) {
            return Err(Errno::EIO.into());
        }
        if fails {
            self.met(Kind::WriteFail, Some(ino), "EIO");
            return Err(Errno::EIO.into());
        }
        if let Some(nth) = partial {
            let cut = self.hazard_choice(Kind::PartialWrite, nth, "where", cuts);
            let takes = (start / unit + 1 + cut) * unit - start;
            self.node.broken.cut.insert(ino);
            self.met(Kind::PartialWrite, Some(ino), format!("{takes} of {len} bytes, then EIO"));
            return Ok(takes);
        }
        Ok(u64::MAX)
    }

    /// EIO if the disk does not give what a description reads. Executed and mapped files are not read by this way. If it lies about it,
    /// the number by which the kind's choices for this read are named.
    #[inline]
    pub(crate) fn disk_gives(&mut self, id: FileId) -> SysResult<Option<u64>> {
        if self.container().hazards.in_force()
            && let FileKind::Regular(ino) = self.node.files[id].kind
            && self.node.vfs.is_on_disk(ino)
        {
            // Both are asked before one of them acts.
            let (fails, lies) = (self.hazard_on(Kind::ReadFail, ino), self.hazard_on(Kind::ReadCorrupt, ino));
            if fails.is_some() {
                self.met(Kind::ReadFail, Some(ino), "EIO");
                return Err(Errno::EIO.into());
            }
            return Ok(lies);
        }
        Ok(None)
    }

    /// Inverts a bit of what was read, as the disk lies.
    #[cold]
    pub(crate) fn disk_gives_other(&mut self, id: FileId, nth: u64, data: &mut [u8]) {
        if !data.is_empty()
            && let FileKind::Regular(ino) = self.node.files[id].kind
        {
            let bit = self.hazard_choice(Kind::ReadCorrupt, nth, "bit", data.len() as u64 * 8);
            data[(bit / 8) as usize] ^= 1 << (bit % 8);
            self.met(Kind::ReadCorrupt, Some(ino), format!("bit {} of byte {} is wrong", bit % 8, bit / 8));
        }
    }

    /// Makes a regular file or directory durable by a description, as fsync(2) does. It does not sleep: calls that may do so before they have
    /// done anything wait for a slow disk first.
    pub(crate) fn sync_file(&mut self, id: FileId, ino: Ino) -> SysResult<()> {
        self.sync_unless_broken(ino)?;
        self.report_unwritten(id, ino)
    }

    /// Makes a file or directory durable, if the disk does that. False: it failed, and who has the file open is to be told so.
    fn sync_unless_broken(&mut self, ino: Ino) -> SysResult<bool> {
        // The journal commits nothing any more ("if (ext4_forced_shutdown(sb)) ret = -EROFS", ext4_sync_file).
        self.node.vfs.may_change(ino)?;
        // Both are asked before one of them acts. Directories are the journal's, whose failure ends all writing.
        let fails = self.hazard_of_file(Kind::FsyncFail, ino);
        let is_lost = self.hazard_of_file(Kind::LostWrite, ino);
        let astray = self.goes_astray(ino);
        if fails {
            self.met(Kind::FsyncFail, Some(ino), "EIO");
            self.charge_fsync();
            self.node.not_written(ino);
            self.node.drop_moved_pages();
        } else if is_lost {
            self.met(Kind::LostWrite, Some(ino), "0, but the data is not on the disk");
            self.charge_fsync();
            self.node.vfs.sync_failed(ino);
            self.node.drop_moved_pages();
        } else if let Some((block, to)) = astray {
            let path = String::from_utf8_lossy(&self.view().path_of(to.0)).into_owned();
            let shown = format!("0, but its block {block} lies in the place of block {} of {path}", to.1);
            self.met(Kind::Misdirected, Some(ino), shown);
            self.charge_fsync();
            self.node.vfs.sync_astray((ino, block), to, self.node.clock)?;
            self.node.drop_moved_pages();
        } else {
            self.sync_inode(ino)?;
        }
        Ok(!fails)
    }

    /// Whether the disk writes a block of a file to the place of another one when the file is synced: which block, and where it goes. Never if nothing is to be
    /// written, or nothing else is on the disk.
    fn goes_astray(&mut self, ino: Ino) -> Option<(u64, Block)> {
        let hit = if self.is_hit(ino) { self.hit_on(Kind::Misdirected, ino)? } else { return None };
        let blocks = self.node.vfs.blocks_to_write(ino);
        let block = *self.one_of(hit.nth, "block", &blocks)?;
        // What is about a volume stays within it.
        let places = self.node.vfs.places_on_disk((ino, block), hit.within);
        Some((block, *self.one_of(hit.nth, "place", &places)?))
    }

    fn one_of<'a, T>(&mut self, nth: u64, part: &str, all: &'a [T]) -> Option<&'a T> {
        if all.is_empty() {
            return None;
        }
        let at = self.hazard_choice(Kind::Misdirected, nth, part, all.len() as u64);
        all.get(at as usize)
    }

    /// Makes a mapped file durable (msync(2)). Its description is not known any more; those that the process has of the file are taken
    /// for it, as the mapping was made by one of them ("vfs_fsync_range(file, ...)" of `vma->vm_file`).
    pub(crate) fn sync_mapped(&mut self, ino: Ino) -> SysResult<()> {
        self.wait_for_disk(ino)?;
        if self.node.broken.unwritten.is_empty() && !self.container().hazards.in_force() {
            self.node.vfs.may_change(ino)?;
            return self.sync_inode(ino);
        }
        let of_file =
            |id: &FileId| matches!(self.node.files[*id].kind, FileKind::Regular(other) if other == ino);
        let own: Vec<FileId> = self.table().iter().map(|(_, entry)| entry.file).filter(of_file).collect();
        let Some((first, rest)) = own.split_first() else {
            // Nobody is left who could be told but the caller.
            return if self.sync_unless_broken(ino)? { Ok(()) } else { Err(Errno::EIO.into()) };
        };
        let result = self.sync_file(*first, ino);
        let seen = self.node.broken.seen_at_open(ino);
        for id in rest {
            self.node.files[*id].unwritten_seen = seen;
        }
        result
    }

    /// EIO, once, if data did not reach the disk since the description was opened or was told so last
    /// (`file_check_and_advance_wb_err`).
    pub(crate) fn report_unwritten(&mut self, id: FileId, ino: Ino) -> SysResult<()> {
        if self.node.broken.unwritten.is_empty() {
            return Ok(());
        }
        let now = self.node.broken.seen_at_open(ino);
        let file = &mut self.node.files[id];
        if std::mem::replace(&mut file.unwritten_seen, now) == now { Ok(()) } else { Err(Errno::EIO.into()) }
    }

    /// Whether an operation on a regular file that lies on a disk meets a fault of a kind.
    fn hazard_of_file(&mut self, kind: Kind, ino: Ino) -> bool {
        self.is_hit(ino) && self.hazard_on(kind, ino).is_some()
    }

    /// Whether faults are in force, and a file is one that they hit.
    fn is_hit(&self, ino: Ino) -> bool {
        self.container().hazards.in_force()
            && self.node.vfs.kind(ino) == Some(bloodhound_vfs::Kind::Regular)
            && self.node.vfs.is_on_disk(ino)
    }

    /// How many of the bytes that a description reads from a place on the disk can give: those before a bad sector, with O_DIRECT all or none
    /// ("if (likely(!dio->error)) [...] return dio->error", iomap_dio_complete). EIO.
    #[inline]
    pub(crate) fn sectors_give(&mut self, id: FileId, offset: u64, len: u64) -> SysResult {
        match self.node.files[id] {
            File { kind: FileKind::Regular(ino), flags, .. } if self.node.vfs.has_bad_blocks() => {
                match self.node.vfs.before_bad(ino, offset, len as usize) {
                    Ok(good) if good as u64 == len || flags & c::O_DIRECT == 0 => Ok(good as u64),
                    _ => {
                        self.met(Kind::BadSector, Some(ino), "EIO");
                        Err(Errno::EIO.into())
                    }
                }
            }
            _ => Ok(len),
        }
    }

    /// Tells that a write could not read the rest of a block of which it overwrites a part.
    #[cold]
    pub(crate) fn met_bad_sector(&mut self, ino: Ino) {
        self.met(
            Kind::BadSector,
            Some(ino),
            "EIO: it overwrites a part of the sector, and the rest cannot be read",
        );
    }

    /// Waits for the disk before a write by a description with O_SYNC, which contains O_DSYNC, or O_DIRECT.
    pub(crate) fn wait_to_write(&mut self, id: FileId) -> SysResult<()> {
        match self.node.files[id] {
            File { kind: FileKind::Regular(ino), flags, .. } if flags & (c::O_DSYNC | c::O_DIRECT) != 0 => {
                self.wait_for_disk(ino)
            }
            _ => Ok(()),
        }
    }

    /// Waits for the disk before a read of bytes of a file that are not in the page cache, or with O_DIRECT. `at_once`: EAGAIN instead, where
    /// the first of them is not there ("RWF_NOWAIT: Do not wait for data which is not immediately available. [...] If no bytes were read, it will
    /// return -1 and set errno to EAGAIN", preadv2(2)).
    #[inline]
    pub(crate) fn wait_to_read(
        &mut self,
        id: FileId,
        at: Option<u64>,
        to: &Buffers,
        at_once: bool,
    ) -> SysResult<()> {
        if !self.node.broken.is_slow() && self.resumed.is_none() {
            return Ok(());
        }
        let File { kind: FileKind::Regular(ino), flags, offset, .. } = self.node.files[id] else {
            return Ok(());
        };
        // Who may not read learns that at once.
        if !self.node.files[id].readable() {
            return Ok(());
        }
        let offset = at.unwrap_or(offset);
        let there = self.node.vfs.size(ino).saturating_sub(offset).min(to.len());
        let direct = flags & c::O_DIRECT != 0;
        if there == 0 || !self.node.vfs.is_on_disk(ino) {
            return Ok(());
        }
        let is_slow = self.node.slowness(ino) > 0;
        if !is_slow && self.resumed.is_none() {
            return Ok(());
        }
        let pages = offset / PAGE..(offset + there).div_ceil(PAGE);
        if self.resumed.is_none() && !direct && !self.node.broken.is_uncached(ino, pages.clone()) {
            return Ok(());
        }
        if at_once && is_slow {
            let first = pages.start..pages.start + 1;
            return if direct || self.node.broken.is_uncached(ino, first) {
                Err(Errno::EAGAIN.into())
            } else {
                Ok(())
            };
        }
        self.wait_for_disk(ino)?;
        if !direct {
            self.node.broken.keep_cached(ino, offset, there);
        }
        Ok(())
    }

    /// Sleeps as long as a slow disk takes. "Uninterruptible (disk) sleep" (ps(1)): only what ends the process ends it.
    pub(crate) fn wait_for_disk(&mut self, ino: Ino) -> SysResult<()> {
        if !self.node.broken.is_slow() && self.resumed.is_none() {
            return Ok(());
        }
        match &self.resumed {
            // The call has slept for something else.
            Some(resumed) if !resumed.wait.on.is_empty() || resumed.wait.restart != Restart::Killable => {
                Ok(())
            }
            Some(_) if self.timed_out() => Ok(()),
            Some(_) => self.sleep_on().unwrap_or(Ok(())),
            None if !self.node.vfs.is_on_disk(ino) || self.node.slowness(ino) == 0 => Ok(()),
            None => {
                let end = self.now().after(self.node.slowness(ino));
                Err(Wait::until(Some(end)).restart(Restart::Killable).into())
            }
        }
    }
}

#[cfg(test)]
mod tests;

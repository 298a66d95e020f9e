//! The size of files and their way to the disk: truncate(2), fallocate(2), fsync(2), sync(2), fadvise64(2).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_vfs::flags::MAY_WRITE;
use bloodhound_vfs::{Ino, Kind};

use crate::ctx::*;
use crate::file::FileKind;
use crate::ids::{FileId, MqId};
use crate::path::{Place, Reached, done};
use crate::wait::SysResult;

/// posix_fadvise(2): POSIX_FADV_NORMAL to POSIX_FADV_NOREUSE.
const ADVICES: std::ops::RangeInclusive<u32> = 0..=5;

/// truncate(2).
pub fn truncate(k: &mut Ctx<'_>, path: Path, len: i64) -> SysResult {
    // "EINVAL: The argument length is negative or larger than the maximum file size."
    let len = u64::try_from(len).map_err(|_| Errno::EINVAL)?;
    let path = k.kept_path(path)?;
    k.wait_for_leases(Fd(c::AT_FDCWD), &path, true, (MAY_WRITE, true, false))?;
    k.check_path_size(&path, len)?;
    match k.at(Fd(c::AT_FDCWD), &path, true, |vfs, ctx, at| vfs.truncate(ctx, at, len))? {
        Reached::Done(()) => {}
        Reached::At(Place::Ino(ino)) => {
            // Through a magic link: the rights count that the caller has now.
            let cred = k.fs_cred();
            match k.node.vfs.stat_ino(ino)?.kind {
                Kind::Regular => {}
                Kind::Directory => return err(Errno::EISDIR),
                _ => return err(Errno::EINVAL),
            }
            k.node.vfs.may_truncate(ino, &cred)?;
            k.may_resize(ino, len)?;
            done(k.fs(|vfs, ctx| {
                vfs.load(ctx.base, ino)?;
                vfs.truncate_to(ino, len, ctx.now)?;
                Ok(vfs.drop_privileges(ino, ctx.cred, ctx.now)?)
            }))?;
        }
        Reached::At(_) => return err(Errno::EINVAL),
    }
    k.node.drop_moved_pages();
    // Which of them the path names is not known here.
    for ino in k.node.mapped.keys().copied().collect::<Vec<_>>() {
        k.node.forget_beyond_end(ino);
    }
    Ok(0)
}

/// ftruncate(2).
pub fn ftruncate(k: &mut Ctx<'_>, fd: Fd, len: i64) -> SysResult {
    let len = u64::try_from(len).map_err(|_| Errno::EINVAL)?;
    let file = k.file(fd)?;
    // "EBADF or EINVAL: fd is not open for writing"; Linux says EINVAL, also for what is no regular file.
    let ino = match file.kind {
        FileKind::Regular(ino) if file.writable() => ino,
        // Files of /proc and /sys take a size and have none (proc_setattr, kernfs_iop_setattr).
        FileKind::Synthetic { .. } if file.writable() => return Ok(0),
        FileKind::Mq(id) if file.writable() => return k.resize_queue(id, len),
        _ => return err(Errno::EINVAL),
    };
    if k.node.vfs.is_append_only(ino) {
        return err(Errno::EPERM);
    }
    k.check_file_size(Some(ino), len)?;
    let (cred, now) = (k.fs_cred(), k.now());
    k.may_resize(ino, len)?;
    k.node.vfs.truncate_to(ino, len, now)?;
    k.node.vfs.drop_privileges(ino, &cred, now)?;
    k.node.drop_moved_pages();
    k.node.forget_beyond_end(ino);
    Ok(0)
}

/// fallocate(2).
pub fn fallocate(k: &mut Ctx<'_>, fd: Fd, mode: FallocateMode, offset: i64, len: i64) -> SysResult {
    let id = k.file_id(fd)?;
    k.fallocate_file(id, mode, offset, len)
}

/// FS_IOC_RESVSP and its kind: fallocate(2) with FALLOC_FL_KEEP_SIZE and `mode` of a `struct space_resv` (ioctl_preallocate of Linux):
/// where l_start counts from (l_whence), l_start and l_len.
pub(super) fn reserve(k: &mut Ctx<'_>, id: FileId, mode: FallocateMode, arg: Ptr) -> SysResult {
    let [_, whence]: [i16; 2] = k.read_obj(arg)?;
    let [start, len]: [i64; 2] = k.read_obj(Ptr(arg.0 + 8))?;
    let from = match (u64::try_from(whence), k.node.files[id].kind.clone()) {
        (Ok(c::SEEK_SET), _) => 0,
        (Ok(c::SEEK_CUR), _) => k.node.files[id].offset,
        (Ok(c::SEEK_END), FileKind::Regular(ino)) => k.node.vfs.size(ino),
        _ => return err(Errno::EINVAL),
    };
    let start = start.checked_add(from as i64).ok_or(Errno::EINVAL)?;
    k.fallocate_file(id, mode | FallocateMode::from_bits_retain(c::FALLOC_FL_KEEP_SIZE), start, len)
}

/// Which flags go together, whatever the descriptor is (vfs_fallocate). What a file system does not have it refuses later.
fn check_mode(mode: FallocateMode) -> Result<(), Errno> {
    let alone = |flag: FallocateMode, with: FallocateMode| mode.contains(flag) && mode.exceeds(flag | with);
    let (punch, keep) = (FallocateMode::FALLOC_FL_PUNCH_HOLE, FallocateMode::FALLOC_FL_KEEP_SIZE);
    let zero = FallocateMode::FALLOC_FL_ZERO_RANGE;
    // "The FALLOC_FL_PUNCH_HOLE flag must be ORed with FALLOC_FL_KEEP_SIZE in mode" (fallocate(2)).
    if mode.exceeds(FallocateMode::all())
        || mode.contains(punch) && (mode.contains(zero) || !mode.contains(keep))
    {
        return Err(Errno::EOPNOTSUPP);
    }
    // "No other flags may be specified in mode in conjunction with FALLOC_FL_COLLAPSE_RANGE", nor with FALLOC_FL_INSERT_RANGE.
    let none = FallocateMode::empty();
    let wrong = alone(FallocateMode::FALLOC_FL_COLLAPSE_RANGE, none)
        || alone(FallocateMode::FALLOC_FL_INSERT_RANGE, none)
        || alone(FallocateMode::FALLOC_FL_UNSHARE_RANGE, keep);
    if wrong { Err(Errno::EINVAL) } else { Ok(()) }
}

impl Ctx<'_> {
    /// fallocate(2) of a description.
    fn fallocate_file(&mut self, id: FileId, mode: FallocateMode, offset: i64, len: i64) -> SysResult {
        let file = &self.node.files[id];
        let (kind, writable) = (file.kind.clone(), file.writable());
        // "EINVAL: offset was less than 0, or len was less than or equal to 0."
        let (from, count) = match (u64::try_from(offset), u64::try_from(len)) {
            (Ok(offset), Ok(len)) if len > 0 => (offset, len),
            _ => return err(Errno::EINVAL),
        };
        check_mode(mode)?;
        if !writable {
            return err(Errno::EBADF);
        }
        let ino = match kind {
            FileKind::Regular(ino) => ino,
            FileKind::Dir(_) | FileKind::SyntheticDir { .. } => return err(Errno::EISDIR),
            // "ESPIPE: fd refers to a pipe or FIFO."
            FileKind::Pipe { .. } => return err(Errno::ESPIPE),
            // Regular files of file systems that neither allocate anything nor have sizes of 64 bits (vfs_fallocate looks at s_maxbytes
            // first, which is MAX_NON_LFS there).
            FileKind::Mq(_) | FileKind::Synthetic { .. } => {
                let fits = from.checked_add(count).is_some_and(|end| end <= i32::MAX as u64);
                return err(if fits { Errno::EOPNOTSUPP } else { Errno::EFBIG });
            }
            _ => return err(Errno::ENODEV),
        };
        self.node.vfs.may_reserve(ino, !mode.exceeds(FallocateMode::FALLOC_FL_KEEP_SIZE))?;
        let end = from.checked_add(count).filter(|end| i64::try_from(*end).is_ok()).ok_or(Errno::EFBIG)?;
        let mode = u32::try_from(mode.bits()).map_err(|_| Errno::EOPNOTSUPP)?;
        self.node.vfs.has_fallocate_mode(ino, mode)?;
        if u64::from(mode) & c::FALLOC_FL_KEEP_SIZE == 0 {
            self.check_file_size(Some(ino), end)?;
        }
        self.allocate(ino, mode, (from, end))?;
        Ok(0)
    }

    /// fallocate(2) of a range of a file, after what is to be checked of a descriptor.
    fn allocate(&mut self, ino: Ino, mode: u32, (from, end): (u64, u64)) -> SysResult<()> {
        let erases = c::FALLOC_FL_PUNCH_HOLE | c::FALLOC_FL_ZERO_RANGE | c::FALLOC_FL_COLLAPSE_RANGE;
        self.may_allocate(ino, u64::from(mode) & erases != 0, end)?;
        let (cred, now) = (self.fs_cred(), self.now());
        self.node.vfs.fallocate(ino, mode, from, end - from, now)?;
        self.node.vfs.drop_privileges(ino, &cred, now)?;
        self.node.drop_moved_pages();
        Ok(())
    }

    /// Frees a range of a mapped file: "operation is equivalent to punching a hole in the corresponding byte range of the backing
    /// store" (MADV_REMOVE, madvise(2)).
    pub(super) fn punch_hole(&mut self, ino: Ino, (from, end): (u64, u64)) -> SysResult<()> {
        self.allocate(ino, (c::FALLOC_FL_PUNCH_HOLE | c::FALLOC_FL_KEEP_SIZE) as u32, (from, end))
    }

    /// As [`Ctx::check_file_size`] for a path, after what would be wrong with that (inode_newsize_ok).
    fn check_path_size(&mut self, path: &[u8], len: u64) -> SysResult<()> {
        if self.process().limits[c::RLIMIT_FSIZE as usize].cur == u64::MAX {
            return Ok(());
        }
        let Ok(Place::Ino(ino)) = self.resolve(Fd(c::AT_FDCWD), path, true) else { return Ok(()) };
        let cred = self.fs_cred();
        let regular = self.node.vfs.stat_ino(ino)?.kind == Kind::Regular;
        if regular && self.node.vfs.access_ino(ino, &cred, MAY_WRITE).is_ok() {
            self.check_file_size(Some(ino), len)?;
        }
        Ok(())
    }

    /// RLIMIT_FSIZE: "Attempts to extend a file beyond this limit result in delivery of a SIGXFSZ signal [...] the relevant
    /// system call fails with the error EFBIG" (getrlimit(2)).
    fn check_file_size(&mut self, ino: Option<Ino>, size: u64) -> Result<(), Errno> {
        let limit = self.process().limits[c::RLIMIT_FSIZE as usize].cur;
        let grows = match ino {
            Some(ino) => size > self.node.vfs.size(ino),
            None => true,
        };
        if limit == u64::MAX || size <= limit || !grows {
            return Ok(());
        }
        let info = crate::signal::user_info(c::SIGXFSZ as u32, 0, self.pid, 0);
        self.node.send_task(self.tid, info);
        Err(Errno::EFBIG)
    }

    /// A queue takes a size as a file, up to what "cannot ftruncate over 2^31 bytes without large file support" leaves: its
    /// description has no O_LARGEFILE.
    fn resize_queue(&mut self, id: MqId, len: u64) -> SysResult {
        if len > i32::MAX as u64 {
            return err(Errno::EINVAL);
        }
        if len > self.node.mqueues.all[id].file_size {
            self.check_file_size(None, len)?;
        }
        self.node.mqueues.all[id].file_size = len;
        Ok(0)
    }

    /// Makes a file or directory durable, as fsync(2) does.
    pub(crate) fn sync_inode(&mut self, ino: Ino) -> SysResult<()> {
        self.charge_fsync();
        // It is over at the time that was charged: who loses its power before that has no promise.
        self.node.vfs.sync_until(ino, self.node.clock)?;
        self.node.drop_moved_pages();
        Ok(())
    }

    /// What a call that makes data durable costs.
    pub(crate) fn charge_fsync(&mut self) {
        let cost = self.node.config.costs.fsync;
        self.node.charge(self.tid, cost);
    }

    /// fsync(2) and its kind on a descriptor.
    fn sync_fd(&mut self, fd: Fd) -> SysResult {
        let id = self.pin(fd)?;
        match self.node.files[id].kind {
            FileKind::Regular(ino) | FileKind::Dir(ino) => {
                self.wait_for_disk(ino)?;
                self.sync_file(id, ino)?;
                Ok(0)
            }
            // "EROFS, EINVAL: fd is bound to a special file (e.g., a pipe, FIFO, or socket) which does not support
            // synchronization."
            _ => err(Errno::EINVAL),
        }
    }

    /// sync(2) and syncfs(2).
    fn sync_everything(&mut self) {
        self.charge_fsync();
        self.node.vfs.sync_all_until(self.node.clock);
        self.node.drop_moved_pages();
    }
}

/// fsync(2).
pub fn fsync(k: &mut Ctx<'_>, fd: Fd) -> SysResult {
    k.sync_fd(fd)
}

/// fdatasync(2).
pub fn fdatasync(k: &mut Ctx<'_>, fd: Fd) -> SysResult {
    k.sync_fd(fd)
}

/// sync(2): "sync() is always successful."
pub fn sync(k: &mut Ctx<'_>) -> SysResult {
    k.sync_everything();
    Ok(0)
}

/// syncfs(2). What lies on other disks becomes durable as well, which syncfs(2) allows.
pub fn syncfs(k: &mut Ctx<'_>, fd: Fd) -> SysResult {
    k.file(fd)?;
    k.sync_everything();
    Ok(0)
}

/// sync_file_range(2): "does not flush disk write caches and thus does not provide any data integrity".
pub fn sync_file_range(k: &mut Ctx<'_>, fd: Fd, offset: i64, count: i64, flags: SyncRangeFlags) -> SysResult {
    let id = k.file_id(fd)?;
    let kind = &k.node.files[id].kind;
    if flags.exceeds(SyncRangeFlags::all()) || offset < 0 || count < 0 || offset.checked_add(count).is_none()
    {
        return err(Errno::EINVAL);
    }
    // "ESPIPE: fd refers to something other than a regular file, a block device, or a directory."
    match kind {
        // What failed before is told by those that wait ("file_fdatawait_range", ksys_sync_file_range).
        FileKind::Regular(ino)
            if flags.intersects(
                SyncRangeFlags::SYNC_FILE_RANGE_WAIT_BEFORE | SyncRangeFlags::SYNC_FILE_RANGE_WAIT_AFTER,
            ) =>
        {
            let ino = *ino;
            k.report_unwritten(id, ino)?;
            Ok(0)
        }
        FileKind::Regular(_) | FileKind::Dir(_) => Ok(0),
        // Queues, and what /proc and /sys have, are regular files and directories by their mode.
        FileKind::Mq(_) | FileKind::Synthetic { .. } | FileKind::SyntheticDir { .. } => Ok(0),
        _ => err(Errno::ESPIPE),
    }
}

/// posix_fadvise(2): a hint.
pub fn fadvise64(k: &mut Ctx<'_>, fd: Fd, _offset: i64, len: i64, advice: u32) -> SysResult {
    // "ESPIPE: The specified file descriptor refers to a pipe or FIFO."
    if matches!(k.file(fd)?.kind, FileKind::Pipe { .. } | FileKind::Console(_)) {
        return err(Errno::ESPIPE);
    }
    if len < 0 || !ADVICES.contains(&advice) {
        return err(Errno::EINVAL);
    }
    Ok(0)
}

/// readahead(2): a hint. What is a regular file by its mode takes it, also in /proc; a length that is no signed number nobody takes.
pub fn readahead(k: &mut Ctx<'_>, fd: Fd, _offset: u64, count: u64) -> SysResult {
    let file = k.file(fd)?;
    if !file.readable() {
        return err(Errno::EBADF);
    }
    match file.kind {
        FileKind::Regular(_) | FileKind::Mq(_) | FileKind::Synthetic { .. } if count as i64 >= 0 => Ok(0),
        _ => err(Errno::EINVAL),
    }
}

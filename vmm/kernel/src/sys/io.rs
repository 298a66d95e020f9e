//! Reading and writing: read(2), write(2), their kin with vectors and offsets, lseek(2). What they do to each kind of file is in
//! [`crate::transfer`].

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::buffers::{Buffers, Source};
use crate::ctx::*;
use crate::file::FileKind;
use crate::ids::FileId;
use crate::procfs::nsfs;
use crate::transfer::seekable;
use crate::wait::{Progress, Stop, SysResult};

/// Where the buffers of a call are.
#[derive(Clone, Copy)]
enum Memory {
    /// An address and a length.
    One(Ptr, u64),
    /// An array of `struct iovec`.
    Vectors(Ptr, u64),
}

impl Memory {
    /// Whether these are vectors without a byte, which no file is asked about ("if (!tot_len) return 0", do_iter_write): unlike
    /// write(2), writev(2) sends no empty datagram.
    fn is_nothing(self, buffers: &Buffers) -> bool {
        matches!(self, Memory::Vectors(..)) && buffers.is_empty()
    }

    fn buffers(self, k: &mut Ctx<'_>) -> SysResult<Buffers> {
        match self {
            Memory::One(base, len) => Ok(Buffers::one(base, len)?),
            Memory::Vectors(iov, count) => k.read_buffers(iov, count),
        }
    }
}

/// EINVAL for an end that no signed number says (rw_verify_area).
fn check_end(at: Option<u64>, len: u64) -> Result<(), Errno> {
    let fits = at.is_none_or(|at| at.checked_add(len).is_some_and(|end| i64::try_from(end).is_ok()));
    if fits { Ok(()) } else { Err(Errno::EINVAL) }
}

/// "EINVAL fd is attached to an object which is unsuitable for reading" (read(2)): there is nothing to read by, whatever the
/// memory is like and even for no bytes (FMODE_CAN_READ in Linux).
fn can_read(kind: &FileKind) -> bool {
    !matches!(kind, FileKind::Epoll(_) | FileKind::Process(_) | FileKind::Listener(_)) && !is_namespace(kind)
}

fn is_namespace(kind: &FileKind) -> bool {
    matches!(kind, FileKind::Synthetic { path, .. } if nsfs::kind(path).is_some())
}

/// "EINVAL fd is attached to an object which is unsuitable for writing" (write(2), FMODE_CAN_WRITE in Linux).
fn can_write(kind: &FileKind) -> bool {
    !matches!(
        kind,
        FileKind::TimerFd(_)
            | FileKind::SignalFd(_)
            | FileKind::Epoll(_)
            | FileKind::Process(_)
            | FileKind::Inotify(_)
            | FileKind::Listener(_)
            | FileKind::Mq(_)
    )
}

impl Ctx<'_> {
    /// What has no places is ESPIPE, before it is asked whether it can be read or written at all (ksys_pread64 in Linux).
    fn check_place(&self, id: FileId, at: Option<u64>) -> SysResult<()> {
        let kind = &self.node.files[id].kind;
        match kind {
            _ if at.is_none() || seekable(kind) => Ok(()),
            FileKind::Dir(_) | FileKind::SyntheticDir { .. } | FileKind::Path(_) => Ok(()),
            _ => err(Errno::ESPIPE),
        }
    }

    fn read_call(&mut self, fd: Fd, memory: Memory, at: Option<u64>, flags: RwFlags) -> SysResult {
        let id = self.pin(fd)?;
        let to = match self.progress() {
            Some(Progress::Read(buffers) | Progress::Tty { to: buffers, .. }) => buffers.clone(),
            Some(Progress::Receive(message)) => message.buffers().clone(),
            _ => {
                self.check_place(id, at)?;
                if !self.node.files[id].readable() {
                    return err(Errno::EBADF);
                }
                if !can_read(&self.node.files[id].kind) {
                    return err(Errno::EINVAL);
                }
                let to = memory.buffers(self)?;
                if memory.is_nothing(&to) {
                    return Ok(0);
                }
                check_end(at, to.len())?;
                self.check_rw_flags(id, flags, to.len(), false)?;
                self.check_direct(id, &to, at, false)?;
                to
            }
        };
        let waited = self.wait_to_read(id, at, &to, flags.contains(RwFlags::RWF_NOWAIT));
        let mut result = waited.and_then(|()| self.read_into(id, &to, at));
        if let Err(Stop::Block(sleep)) = &mut result
            && sleep.progress == Progress::None
        {
            sleep.progress = Progress::Read(to);
        }
        result
    }

    fn write_call(&mut self, fd: Fd, memory: Memory, at: Option<u64>, flags: RwFlags) -> SysResult {
        let id = self.pin(fd)?;
        let (source, done) = match self.progress() {
            Some(Progress::Write { source, done }) => (source.clone(), *done),
            Some(Progress::Send(message)) => (message.source().clone(), message.done()),
            _ => {
                self.check_place(id, at)?;
                if !self.node.files[id].writable() {
                    return err(Errno::EBADF);
                }
                if !can_write(&self.node.files[id].kind) {
                    return err(Errno::EINVAL);
                }
                let from = memory.buffers(self)?;
                if memory.is_nothing(&from) {
                    return Ok(0);
                }
                check_end(at, from.len())?;
                self.check_rw_flags(id, flags, from.len(), true)?;
                self.check_direct(id, &from, at, true)?;
                (Source::User(from), 0)
            }
        };
        self.wait_to_write(id)?;
        let mut result = self.write_from(id, &source, done, at);
        if let Err(Stop::Block(sleep)) = &mut result
            && sleep.progress == Progress::None
        {
            sleep.progress = Progress::Write { source, done };
        }
        result
    }
}

/// read(2). EFAULT only if not even the first byte could be stored.
pub fn read(k: &mut Ctx<'_>, fd: Fd, buf: Ptr, count: u64) -> SysResult {
    k.read_call(fd, Memory::One(buf, count), None, RwFlags::empty())
}

/// write(2). A write to a pipe or socket without a reader is EPIPE, with SIGPIPE.
pub fn write(k: &mut Ctx<'_>, fd: Fd, buf: Ptr, count: u64) -> SysResult {
    k.write_call(fd, Memory::One(buf, count), None, RwFlags::empty())
}

/// pread(2). ESPIPE for what has no offset.
pub fn pread64(k: &mut Ctx<'_>, fd: Fd, buf: Ptr, count: u64, offset: i64) -> SysResult {
    let at = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
    k.read_call(fd, Memory::One(buf, count), Some(at), RwFlags::empty())
}

/// pwrite(2). ESPIPE for what has no offset; O_APPEND appends all the same.
pub fn pwrite64(k: &mut Ctx<'_>, fd: Fd, buf: Ptr, count: u64, offset: i64) -> SysResult {
    let at = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
    k.write_call(fd, Memory::One(buf, count), Some(at), RwFlags::empty())
}

/// readv(2). EINVAL for more than 1024 vectors.
pub fn readv(k: &mut Ctx<'_>, fd: Fd, iov: Ptr, count: u64) -> SysResult {
    k.read_call(fd, Memory::Vectors(iov, count), None, RwFlags::empty())
}

/// writev(2). EINVAL for more than 1024 vectors.
pub fn writev(k: &mut Ctx<'_>, fd: Fd, iov: Ptr, count: u64) -> SysResult {
    k.write_call(fd, Memory::Vectors(iov, count), None, RwFlags::empty())
}

/// preadv(2): the offset is in the low half, whatever the high one says.
pub fn preadv(k: &mut Ctx<'_>, fd: Fd, iov: Ptr, count: u64, lo: u64, _hi: u64) -> SysResult {
    if (lo as i64) < 0 {
        return err(Errno::EINVAL);
    }
    k.read_call(fd, Memory::Vectors(iov, count), Some(lo), RwFlags::empty())
}

/// pwritev(2): the offset is in the low half, whatever the high one says.
pub fn pwritev(k: &mut Ctx<'_>, fd: Fd, iov: Ptr, count: u64, lo: u64, _hi: u64) -> SysResult {
    if (lo as i64) < 0 {
        return err(Errno::EINVAL);
    }
    k.write_call(fd, Memory::Vectors(iov, count), Some(lo), RwFlags::empty())
}

/// preadv2(2). EOPNOTSUPP for flags that the file does not know.
pub fn preadv2(
    k: &mut Ctx<'_>,
    fd: Fd,
    iov: Ptr,
    count: u64,
    lo: u64,
    _hi: u64,
    flags: RwFlags,
) -> SysResult {
    // "If offset is -1, the current file offset is used and updated."
    if lo != u64::MAX && (lo as i64) < 0 {
        return err(Errno::EINVAL);
    }
    k.read_call(fd, Memory::Vectors(iov, count), if lo == u64::MAX { None } else { Some(lo) }, flags)
}

/// pwritev2(2). EOPNOTSUPP for flags that the file does not know.
pub fn pwritev2(
    k: &mut Ctx<'_>,
    fd: Fd,
    iov: Ptr,
    count: u64,
    lo: u64,
    _hi: u64,
    flags: RwFlags,
) -> SysResult {
    if lo != u64::MAX && (lo as i64) < 0 {
        return err(Errno::EINVAL);
    }
    let (mut at, kind) = (if lo == u64::MAX { None } else { Some(lo) }, k.file(fd)?.kind.clone());
    let FileKind::Regular(ino) = kind else {
        return k.write_call(fd, Memory::Vectors(iov, count), at, flags);
    };
    let durable = flags.intersects(RwFlags::RWF_DSYNC | RwFlags::RWF_SYNC);
    if durable && k.file(fd)?.writable() {
        k.pin(fd)?;
        k.wait_for_disk(ino)?;
    }
    let (id, before) = (k.file_id(fd)?, k.file(fd)?.offset);
    if flags.contains(RwFlags::RWF_APPEND) && k.file(fd)?.writable() {
        let memory = Memory::Vectors(iov, count);
        let len = memory.buffers(k)?.len();
        // What is asked first is whether the data would lie where a file may have some (rw_verify_area), and then whether there are
        // any (generic_write_checks).
        check_end(at.or(Some(k.file(fd)?.offset)), len)?;
        // "The offset argument does not affect the write operation; the data is always appended to the end of the file.
        // However, if the offset argument is -1, the current file offset is updated."
        let end = k.node.vfs.size(ino);
        if at.is_some() {
            at = Some(end);
        } else if len > 0 {
            k.file_mut(fd)?.offset = end;
        }
    }
    // Only a write that has written something has moved ("if (ret > 0) *ppos = kiocb.ki_pos", do_iter_readv_writev).
    let written = k.write_call(fd, Memory::Vectors(iov, count), at, flags);
    let n = written.inspect_err(|_| k.node.files[id].offset = before)?;
    if n > 0 && durable {
        // As for O_SYNC.
        k.sync_file(id, ino).inspect_err(|_| k.node.files[id].offset = before)?;
    }
    Ok(n)
}

impl Ctx<'_> {
    /// "EOPNOTSUPP: An unknown flag is specified in flags." Files wait for slow disks only, where RWF_NOWAIT is asked for; other kinds do
    /// not know it.
    /// Where nothing is moved, nobody looks at them (do_iter_read in Linux).
    fn check_rw_flags(&self, id: FileId, flags: RwFlags, len: u64, writes: bool) -> SysResult<()> {
        if len == 0 {
            return Ok(());
        }
        let kind = &self.node.files[id].kind;
        let direct = self.node.files[id].flags & c::O_DIRECT != 0;
        let known = match kind {
            // Buffered writes of ext4 do not know RWF_NOWAIT (ext4_buffered_write_iter), and tmpfs knows it for nothing.
            FileKind::Regular(ino) if writes && !direct || self.node.vfs.is_in_memory(*ino) => {
                RwFlags::all() - RwFlags::RWF_NOWAIT
            }
            FileKind::Regular(_) => RwFlags::all(),
            _ if piece_by_piece(kind, writes) => RwFlags::RWF_HIPRI,
            _ => RwFlags::all() - RwFlags::RWF_NOWAIT,
        };
        if flags.exceeds(known) { err(Errno::EOPNOTSUPP) } else { Ok(()) }
    }
}

impl Ctx<'_> {
    /// "EINVAL: the file was opened with the O_DIRECT flag, and either the address specified in buf, the value specified in count, or
    /// the file offset is not suitably aligned" (read(2)): to a sector of the disk (iomap_dio_rw). At the end of the file nobody
    /// looks.
    fn check_direct(&self, id: FileId, buffers: &Buffers, at: Option<u64>, writes: bool) -> SysResult<()> {
        const SECTOR: u64 = 512;
        // Since 6.0 memory need only be as the device's DMA asks (bdev_dma_alignment): 4 bytes with NVMe and SCSI.
        const MEMORY: u64 = 4;
        let file = &self.node.files[id];
        let FileKind::Regular(ino) = file.kind else { return Ok(()) };
        if file.flags & c::O_DIRECT == 0 || buffers.is_empty() {
            return Ok(());
        }
        let (size, appends) = (self.node.vfs.size(ino), writes && file.flags & c::O_APPEND != 0);
        let from = if appends { size } else { at.unwrap_or(file.offset) };
        let fits = from.is_multiple_of(SECTOR) && buffers.is_aligned(MEMORY, SECTOR);
        if fits || !writes && from >= size { Ok(()) } else { err(Errno::EINVAL) }
    }
}

/// Whether Linux has a function for one buffer only, which is called for each of a vector: it knows no flags but RWF_HIPRI
/// (do_loop_readv_writev).
fn piece_by_piece(kind: &FileKind, writes: bool) -> bool {
    match kind {
        FileKind::Event(_) => writes,
        FileKind::Device { dev, .. } => writes && dev.major == 1 && dev.minor == 7,
        FileKind::TimerFd(_) | FileKind::SignalFd(_) | FileKind::Inotify(_) | FileKind::Mq(_) => !writes,
        FileKind::Dir(_) | FileKind::SyntheticDir { .. } => !writes,
        _ => false,
    }
}

/// lseek(2). ESPIPE for pipes, sockets and their like; ENXIO for SEEK_DATA and SEEK_HOLE beyond the end.
pub fn lseek(k: &mut Ctx<'_>, fd: Fd, offset: i64, whence: u32) -> SysResult {
    let file = k.file(fd)?;
    let (kind, current) = (file.kind.clone(), file.offset);
    if u64::from(whence) > c::SEEK_HOLE {
        return err(Errno::EINVAL);
    }
    let whence = u64::from(whence);
    let size = match &kind {
        FileKind::Regular(ino) => k.node.vfs.size(*ino),
        kind if is_namespace(kind) => return err(Errno::ESPIPE),
        // seq_lseek knows SEEK_SET and SEEK_CUR only.
        FileKind::Synthetic { path, .. } if whence > c::SEEK_CUR => {
            k.view().end_of(path).ok_or(Errno::EINVAL)?
        }
        FileKind::Synthetic { .. }
        | FileKind::Dir(_)
        | FileKind::SyntheticDir { .. }
        | FileKind::Device { .. } => 0,
        FileKind::Mq(id) => k.node.mqueues.all[*id].file_size,
        // noop_llseek of Linux: neither an error nor a position.
        FileKind::Inotify(_)
        | FileKind::Event(_)
        | FileKind::Epoll(_)
        | FileKind::SignalFd(_)
        | FileKind::TimerFd(_) => return Ok(0),
        _ => return err(Errno::ESPIPE),
    };
    // /dev/null, zero and full: "Seeks on [them] always succeed" and leave the offset 0 (the kernel's null_lseek).
    if let FileKind::Device { dev, .. } = &kind
        && dev.major == 1
        && matches!(dev.minor, 3 | 5 | 7)
    {
        return Ok(0);
    }
    let base = match whence {
        // Directories have no end (dcache_dir_lseek; ovl_dir_llseek).
        c::SEEK_END if matches!(kind, FileKind::Dir(_)) => return err(Errno::EINVAL),
        c::SEEK_SET => 0,
        c::SEEK_CUR => current,
        c::SEEK_END => size,
        c::SEEK_DATA | c::SEEK_HOLE => {
            if let FileKind::Mq(_) | FileKind::Synthetic { .. } = kind {
                // default_llseek: all of it is data, and what lies before its beginning is refused only as a place.
                let data = whence == c::SEEK_DATA;
                let at = match offset {
                    _ if offset >= size as i64 => return err(Errno::ENXIO),
                    _ if data => u64::try_from(offset).map_err(|_| Errno::EINVAL)?,
                    _ => size,
                };
                k.file_mut(fd)?.offset = at;
                return Ok(at);
            }
            let FileKind::Regular(ino) = kind else { return err(Errno::EINVAL) };
            let from = u64::try_from(offset).map_err(|_| Errno::ENXIO)?;
            let at = if whence == c::SEEK_DATA {
                k.node.vfs.seek_data(ino, from)?
            } else {
                k.node.vfs.seek_hole(ino, from)?
            };
            k.file_mut(fd)?.offset = at;
            return Ok(at);
        }
        _ => return err(Errno::EINVAL),
    };
    let to = (base as i64).checked_add(offset).filter(|t| *t >= 0).ok_or(Errno::EINVAL)? as u64;
    k.file_mut(fd)?.offset = to;
    Ok(to)
}

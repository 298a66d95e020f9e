//! open(2), openat(2), creat(2), memfd_create(2); fifos, devices and the kernel's own files when they are opened, read
//! and written.

mod fifo;

use std::sync::Arc;

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_vfs::flags::{IN_OPEN, MAY_READ, MAY_WRITE};
use bloodhound_vfs::{At, Dev, Ino, Kind, Opened};

use self::fifo::fifo_file;
use crate::ctx::*;
use crate::file::{Console, File, FileKind};
use crate::ids::*;
use crate::node::Node;
use crate::path::{Place, Reached, Synth, done};
use crate::procfs::{Entry, Tree, View};
use crate::task::TaskState;
use crate::wait::{Progress, Stop, SysResult};

/// Flags that F_GETFL never shows (do_dentry_open in Linux).
const NOT_KEPT: u64 = c::O_CREAT | c::O_EXCL | c::O_NOCTTY | c::O_TRUNC | c::O_CLOEXEC;
/// The bit that makes O_TMPFILE differ from O_DIRECTORY.
const TMPFILE_BIT: u64 = c::O_TMPFILE & !c::O_DIRECTORY;

const NULL: Dev = Dev { major: 1, minor: 3 };
const ZERO: Dev = Dev { major: 1, minor: 5 };
const FULL: Dev = Dev { major: 1, minor: 7 };
const RANDOM: Dev = Dev { major: 1, minor: 8 };
const URANDOM: Dev = Dev { major: 1, minor: 9 };
const TTY: Dev = Dev { major: 5, minor: 0 };
const PTMX: Dev = Dev { major: 5, minor: 2 };
/// UNIX98_PTY_SLAVE_MAJOR.
const PTS_MAJOR: u32 = 136;
const CONSOLE: Dev = Dev { major: 5, minor: 1 };

/// open(2).
pub fn open(k: &mut Ctx<'_>, path: Path, flags: OpenFlags, mode: u32) -> SysResult {
    openat(k, Fd(c::AT_FDCWD), path, flags, mode)
}

/// creat(2): "A call to creat() is equivalent to calling open() with flags equal to O_CREAT|O_WRONLY|O_TRUNC."
pub fn creat(k: &mut Ctx<'_>, path: Path, mode: u32) -> SysResult {
    open(k, path, OpenFlags::O_CREAT | OpenFlags::O_WRONLY | OpenFlags::O_TRUNC, mode)
}

/// openat(2).
pub fn openat(k: &mut Ctx<'_>, dirfd: Fd, path: Path, flags: OpenFlags, mode: u32) -> SysResult {
    // Bits that nobody knows are ignored (build_open_how).
    do_open(k, dirfd, path, flags.bits() & super::openat2::VALID, mode)
}

/// What all calls end in that open a path.
pub(super) fn do_open(k: &mut Ctx<'_>, dirfd: Fd, path: Path, flags: u64, mode: u32) -> SysResult {
    let cloexec = flags & c::O_CLOEXEC != 0;
    if let Some(Progress::Fifo { ino, granted, .. }) = k.progress() {
        // The path has been walked: what it leads to now does not matter.
        let (ino, granted) = (*ino, *granted);
        return match k.sleep_on() {
            Some(sleep) if !granted => sleep,
            _ => {
                let file = fifo_file(k, ino, flags).inspect_err(|_| k.node.vfs.close_ref(ino, false))?;
                Ok(k.open_file(file, cloexec)?)
            }
        };
    }
    check_tmpfile(flags)?;
    let path = k.kept_path(path)?;
    // "ENOENT pathname is an empty string": known before a descriptor is looked for (getname).
    if path.is_empty() {
        return err(Errno::ENOENT);
    }
    // Before anything is made: a full descriptor table must not leave a new file behind.
    let limit = k.process().limits[c::RLIMIT_NOFILE as usize].cur;
    k.table().lowest_free(0, limit)?;
    k.may_open()?;
    let file = k.open_path(dirfd, &path, flags, mode)?;
    let file = k.node.files.insert(file);
    super::tty::opened(k, file, flags);
    Ok(k.install(file, cloexec)?)
}

/// "EINVAL O_TMPFILE was specified in flags, but neither O_WRONLY nor O_RDWR was specified" (open(2)), or not with O_DIRECTORY, or with
/// O_CREAT: before anything else is looked at (build_open_flags). O_PATH takes it for nothing.
fn check_tmpfile(flags: u64) -> Result<(), Errno> {
    if flags & TMPFILE_BIT == 0 || flags & c::O_PATH != 0 {
        return Ok(());
    }
    let whole = flags & (c::O_TMPFILE | c::O_CREAT) == c::O_TMPFILE;
    if whole && flags & c::O_ACCMODE != c::O_RDONLY { Ok(()) } else { Err(Errno::EINVAL) }
}

/// memfd_create(2): MFD_HUGETLB, and the bits that say how large the pages are to be.
const MFD_HUGETLB: u64 = 4;
const MFD_HUGE_SIZES: u64 = 0x3f << 26;

/// memfd_create(2).
pub fn memfd_create(k: &mut Ctx<'_>, name: Path, flags: MemfdFlags) -> SysResult {
    // MFD_NOEXEC_SEAL and MFD_EXEC came with Linux 6.3; older kernels answer EINVAL. Sizes are those of huge pages only.
    let huge = flags.bits() & MFD_HUGETLB != 0;
    let sizes =
        if huge { MemfdFlags::from_bits_retain(MFD_HUGETLB | MFD_HUGE_SIZES) } else { MemfdFlags::empty() };
    if flags.exceeds(MemfdFlags::MFD_CLOEXEC | MemfdFlags::MFD_ALLOW_SEALING | sizes) {
        return err(Errno::EINVAL);
    }
    // "The name supplied in name [...] names can be up to 249 bytes in length".
    let name = k.read_cstr(name.0, 249, Errno::EINVAL)?;
    // There is no hugetlbfs (hugetlb_file_setup without CONFIG_HUGETLBFS).
    if huge {
        return err(Errno::ENOSYS);
    }
    let cred = k.fs_cred();
    let (root, now) = (k.node.vfs.root(), k.now());
    let base = &mut *k.outside.base;
    let mut ctx = bloodhound_vfs::Ctx { base, cred: &cred, root, now, umask: 0, links: 0, resolve: 0 };
    let opened = k.node.vfs.open_memory_file(&mut ctx, &name)?;
    k.seal_new(opened.ino, flags.contains(MemfdFlags::MFD_ALLOW_SEALING));
    let file = File::new(FileKind::Regular(opened.ino), c::O_RDWR | c::O_LARGEFILE);
    let file = File { uncounted: true, ..file };
    Ok(k.open_file(file, flags.contains(MemfdFlags::MFD_CLOEXEC))?)
}

impl Ctx<'_> {
    /// Opens a file that no path named (open_by_handle_at(2)).
    pub(super) fn open_inode(&mut self, ino: Ino, flags: u64) -> SysResult {
        let limit = self.process().limits[c::RLIMIT_NOFILE as usize].cur;
        self.table().lowest_free(0, limit)?;
        let file = self.open_reached(Place::Ino(ino), 0, flags, 0)?;
        let file = self.node.files.insert(file);
        Ok(self.install(file, flags & c::O_CLOEXEC != 0)?)
    }

    /// Gives a program that begins its container's /dev/null as standard input, as engines do where nobody is attached. Without such a file it is an input at its end.
    pub(crate) fn take_null_input(&mut self) {
        let null = self.open_path(Fd(c::AT_FDCWD), b"/dev/null", c::O_RDWR, 0);
        let file = null.unwrap_or_else(|_| Self::console_file(Console::In));
        let file = self.node.files.insert(file);
        // The table has nothing but 1 and 2.
        let _zero = self.install(file, false);
    }

    /// Opens what a path names; the caller gives the description a descriptor.
    fn open_path(&mut self, dirfd: Fd, path: &[u8], flags: u64, mode: u32) -> SysResult<File> {
        // "O_EXCL ... with O_CREAT: if pathname is a symbolic link, then open() fails regardless of where the symbolic
        // link points."
        let exclusive = flags & c::O_CREAT != 0 && flags & c::O_EXCL != 0 && flags & c::O_PATH == 0;
        let follow = flags & c::O_NOFOLLOW == 0 && !exclusive;
        if flags & c::O_PATH == 0 && !exclusive {
            let (read, write) = sides(flags);
            let want = if read { MAY_READ } else { 0 } | if write { MAY_WRITE } else { 0 };
            let want = want | if flags & c::O_TRUNC != 0 { MAY_WRITE } else { 0 };
            let nonblock = flags & c::O_NONBLOCK != 0;
            // Only the access mode says whether a lease for reading is broken, not O_TRUNC (break_lease).
            self.wait_for_leases(dirfd, path, follow, (want, write, nonblock))?;
        }
        let found =
            self.at(dirfd, path, follow, |vfs, ctx, at| vfs.open(ctx, at, flags as u32, mode & 0o7777))?;
        let (place, making) = match found {
            Reached::Done(opened) => return self.opened(opened, flags),
            Reached::At(place) => (place, flags & (c::O_CREAT | TMPFILE_BIT)),
        };
        if exclusive && !matches!(place, Place::Synth(Synth { ref path, .. }) if path.is_empty()) {
            return err(Errno::EEXIST);
        }
        self.open_reached(place, making, flags, mode)
    }

    /// Opens what a path led to; `making`: O_CREAT and O_TMPFILE of its flags.
    fn open_reached(&mut self, place: Place, making: u64, flags: u64, mode: u32) -> SysResult<File> {
        match place {
            // A magic link leads past permissions of directories, not past those of the file.
            Place::Ino(ino) if flags & c::O_PATH != 0 => {
                let kind = self.node.vfs.stat_ino(ino)?.kind;
                if flags & c::O_DIRECTORY != 0 && kind != Kind::Directory {
                    return err(Errno::ENOTDIR);
                }
                self.node.vfs.hold(ino);
                self.opened(Opened { ino, kind, created: false, writer: false }, flags)
            }
            // Only a handle leads to a symbolic link.
            Place::Ino(ino) if self.node.vfs.stat_ino(ino)?.kind == Kind::Symlink => err(Errno::ELOOP),
            Place::Ino(ino) => {
                let is_dir = self.node.vfs.stat_ino(ino)?.kind == Kind::Directory;
                if is_dir && making & c::O_CREAT != 0 {
                    return err(Errno::EISDIR);
                }
                if flags & c::O_TRUNC != 0 {
                    self.may_truncate(ino, flags)?;
                }
                let opened = if is_dir && making & TMPFILE_BIT != 0 {
                    done(self.fs(|vfs, ctx| {
                        vfs.open(ctx, At { dir: ino, path: b"." }, flags as u32, mode & 0o7777)
                    }))?
                } else {
                    done(self.fs(|vfs, ctx| Ok(vfs.open_ino(ctx, ino, flags as u32)?)))?
                };
                self.opened(opened, flags)
            }
            Place::Synth(synth) => self.open_synth(&synth, flags),
            Place::File(id) => self.reopen(id, flags),
        }
    }

    /// EPERM for O_TRUNC of a file that is sealed against shrinking. A missing right is told first: may_open goes before
    /// handle_truncate in Linux.
    fn may_truncate(&mut self, ino: Ino, flags: u64) -> SysResult<()> {
        if let Err(sealed) = self.may_resize(ino, 0) {
            let without = (flags & !c::O_TRUNC) as u32;
            let opened = done(self.fs(|vfs, ctx| Ok(vfs.open_ino(ctx, ino, without)?)))?;
            self.node.vfs.close_ref(ino, opened.writer);
            return Err(sealed.into());
        }
        Ok(())
    }

    /// Makes the description for an inode of which the VFS has given a reference.
    fn opened(&mut self, opened: Opened, flags: u64) -> SysResult<File> {
        self.node.drop_moved_pages();
        let Opened { ino, kind, writer, .. } = opened;
        if flags & c::O_TRUNC != 0 {
            self.node.forget_beyond_end(ino);
        }
        if flags & c::O_PATH != 0 {
            return Ok(File::new(FileKind::Path(ino), flags & (c::O_PATH | c::O_DIRECTORY | c::O_NOFOLLOW)));
        }
        let kept = flags & !NOT_KEPT | c::O_LARGEFILE;
        let failed = match kind {
            Kind::Regular => {
                let unwritten_seen = self.node.broken.seen_at_open(ino);
                return Ok(File { unwritten_seen, ..File::new(FileKind::Regular(ino), kept) });
            }
            Kind::Directory => return Ok(File::new(FileKind::Dir(ino), kept)),
            Kind::CharDevice => match self.device_file(ino, kept) {
                Ok(file) => {
                    self.node.vfs.tell(ino, IN_OPEN);
                    return Ok(file);
                }
                Err(e) => e.into(),
            },
            Kind::Fifo => match self.open_fifo(ino, flags) {
                Ok(file) => {
                    self.node.vfs.tell(ino, IN_OPEN);
                    return Ok(file);
                }
                Err(stop) => stop,
            },
            // "ENXIO: The file is a device special file and no corresponding device exists", "The file is a UNIX domain
            // socket."
            Kind::BlockDevice | Kind::Socket => Errno::ENXIO.into(),
            Kind::Symlink => Errno::ELOOP.into(),
        };
        self.node.vfs.close_ref(ino, writer);
        Err(failed)
    }

    fn device_file(&mut self, ino: Ino, flags: u64) -> Result<File, Errno> {
        let dev = self.node.vfs.stat_ino(ino)?.rdev;
        match dev {
            NULL | ZERO | FULL | RANDOM | URANDOM | PTMX | TTY | CONSOLE | Dev { major: PTS_MAJOR, .. }
                if flags & c::O_DIRECT != 0 =>
            {
                Err(Errno::EINVAL)
            }
            NULL | ZERO | FULL | RANDOM | URANDOM => Ok(File::new(FileKind::Device { ino, dev }, flags)),
            PTMX => self.open_ptmx(ino, flags),
            TTY => self.open_own_tty(ino, flags),
            Dev { major: PTS_MAJOR, .. } => self.open_pts(ino, flags),
            CONSOLE => {
                self.node.vfs.close_ref(ino, false);
                let stream = if flags & c::O_ACCMODE == c::O_RDONLY { Console::In } else { Console::Out };
                Ok(File::new(FileKind::Console(stream), flags))
            }
            _ => Err(Errno::ENXIO),
        }
    }

    /// Opens a file or directory of /proc or /sys.
    fn open_synth(&mut self, synth: &Synth, flags: u64) -> SysResult<File> {
        let cred = &self.fs_cred();
        let view = View { node: self.node, pid: self.pid, tid: self.tid };
        let entry = view.entry(synth).ok_or(Errno::ENOENT)?;
        let path = Arc::new(synth.absolute());
        let kept = if flags & c::O_PATH != 0 {
            flags & (c::O_PATH | c::O_DIRECTORY | c::O_NOFOLLOW)
        } else {
            flags & !NOT_KEPT | c::O_LARGEFILE
        };
        match entry {
            Entry::Link(_) if flags & c::O_PATH == 0 => err(Errno::ELOOP),
            Entry::Link(_) if flags & c::O_DIRECTORY != 0 => err(Errno::ENOTDIR),
            // "If pathname is a symbolic link and the O_NOFOLLOW flag is also specified, then the call returns a file descriptor referring to
            // the symbolic link" (open(2), O_PATH).
            Entry::Link(_) => Ok(File::new(FileKind::Synthetic { path, data: Arc::default() }, kept)),
            Entry::Dir { .. } => {
                if flags & c::O_PATH == 0 {
                    if flags & (c::O_CREAT | c::O_ACCMODE) != 0 {
                        return err(Errno::EISDIR);
                    }
                    view.permit(synth, cred, MAY_READ)?;
                    view.may_open(synth)?;
                    not_direct(flags)?;
                }
                Ok(File::new(FileKind::SyntheticDir { path, entries: Arc::default() }, kept))
            }
            Entry::File { .. } if flags & c::O_DIRECTORY != 0 => err(Errno::ENOTDIR),
            Entry::File { .. } if flags & c::O_PATH != 0 => {
                Ok(File::new(FileKind::Synthetic { path, data: Arc::default() }, kept))
            }
            Entry::File { mode } => {
                let (read, write) = sides(flags);
                let want = if read { MAY_READ } else { 0 } | if write { MAY_WRITE } else { 0 };
                // Its inodes are S_IMMUTABLE (inode_permission).
                if synth.tree == Tree::Ns && (write || flags & c::O_TRUNC != 0) {
                    return err(Errno::EPERM);
                }
                if write && mode & 0o200 == 0 {
                    // Container runtimes mount /sys and /proc/sys read-only; whose files they are not hears of the mode first.
                    let read_only =
                        cred.uid == 0 && (synth.tree == Tree::Sys || synth.path.starts_with(b"sys/"));
                    return err(if read_only { Errno::EROFS } else { Errno::EACCES });
                }
                view.permit(synth, cred, want)?;
                view.may_open(synth)?;
                not_direct(flags)?;
                if crate::file::shows_log(&path) {
                    self.may_read_log()?;
                }
                let view = View { node: self.node, pid: self.pid, tid: self.tid };
                let made = read && !view.is_asked_when_read(synth);
                let data = if made { view.read(synth)? } else { Vec::new() };
                Ok(File::new(FileKind::Synthetic { path, data: Arc::new(data) }, kept))
            }
        }
    }

    /// Makes the text of an open file of /proc or /sys anew, for a read from its beginning (seq_file in Linux).
    ///
    /// # Errors
    /// ESRCH when the process is gone.
    pub(crate) fn refresh_synthetic(&mut self, id: FileId) -> SysResult<Arc<Vec<u8>>> {
        let FileKind::Synthetic { path, .. } = &self.node.files[id].kind else { return err(Errno::EBADF) };
        let synth = Synth::from_absolute(path).ok_or(Errno::EIO)?;
        let view = View { node: self.node, pid: self.pid, tid: self.tid };
        view.may_read(&synth)?;
        let text = view.read(&synth).map_err(|e| if e == Errno::ENOENT { Errno::ESRCH } else { e })?;
        let text = Arc::new(text);
        if let FileKind::Synthetic { data, .. } = &mut self.node.files[id].kind {
            *data = text.clone();
        }
        Ok(text)
    }

    /// Fixes the entries of an open directory of /proc or /sys for a listing that begins.
    pub(crate) fn begin_listing(&mut self, id: FileId) {
        let FileKind::SyntheticDir { path, .. } = &self.node.files[id].kind else { return };
        let Some(synth) = Synth::from_absolute(path) else { return };
        let view = View { node: self.node, pid: self.pid, tid: self.tid };
        let list = if view.entry(&synth).is_some() { view.entries(&synth) } else { Vec::new() };
        if let FileKind::SyntheticDir { entries, .. } = &mut self.node.files[id].kind {
            *entries = Arc::new(list);
        }
    }

    /// Opens `/proc/PID/fd/N` of something without an inode: pipes get a new description of the end that the flags ask
    /// for, "ENXIO" for sockets and other objects.
    fn reopen(&mut self, id: FileId, flags: u64) -> SysResult<File> {
        if flags & c::O_PATH != 0 {
            return Err(Stop::Unsupported("O_PATH of a pipe or socket in /proc/PID/fd".into()));
        }
        if flags & c::O_DIRECTORY != 0 {
            return err(Errno::ENOTDIR);
        }
        let kept = flags & !NOT_KEPT | c::O_LARGEFILE;
        let (read, write) = sides(flags);
        if matches!(self.node.files[id].kind, FileKind::Pipe { .. } | FileKind::Console(_)) {
            not_direct(flags)?;
        }
        match self.node.files[id].kind {
            // An unnamed pipe never waits for the other side (fifo_open in Linux: "is_pipe").
            FileKind::Pipe { pipe, ino: None, .. } => {
                let p = &mut self.node.pipes[pipe];
                p.open(read, write);
                let made_by = self.node.files[id].made_by;
                Ok(File { made_by, ..File::new(FileKind::Pipe { pipe, read, write, ino: None }, kept) })
            }
            FileKind::Console(stream) => Ok(File::new(FileKind::Console(stream), kept)),
            _ => err(Errno::ENXIO),
        }
    }

    /// read(2) of a device (null(4), full(4), random(4)).
    /// How many of `max` bytes a read of a device gets.
    pub(crate) fn device_readable(&self, dev: Dev, max: u64) -> SysResult {
        match dev {
            NULL => Ok(0),
            ZERO | FULL => Ok(max),
            // Linux serves at most 32 MiB - 1 at once; a smaller piece keeps the decision log short.
            RANDOM | URANDOM => Ok(max.min(1 << 20)),
            _ => err(Errno::ENXIO),
        }
    }

    /// Reads from a device what [`Ctx::device_readable`] says there is.
    pub(crate) fn device_read(&mut self, dev: Dev, max: usize) -> SysResult<Vec<u8>> {
        match dev {
            NULL => Ok(Vec::new()),
            ZERO | FULL => Ok(vec![0; max]),
            RANDOM | URANDOM => {
                let mut out = vec![0; max];
                self.random_bytes(&mut out);
                Ok(out)
            }
            _ => err(Errno::ENXIO),
        }
    }

    /// write(2) to a device. "Writes to the /dev/full device fail with an ENOSPC error" (full(4)).
    pub(crate) fn device_write(&mut self, dev: Dev, len: u64) -> SysResult {
        match dev {
            NULL | ZERO | RANDOM | URANDOM => Ok(len),
            // "Writes to the /dev/full device fail with an ENOSPC error" (full(4)): those of no bytes too.
            FULL => err(Errno::ENOSPC),
            _ => err(Errno::ENXIO),
        }
    }

    /// write(2) to a file of /proc: a thread's name ("comm"), and what [`crate::procfs::Knobs`] keeps.
    pub(crate) fn synthetic_write(&mut self, path: &[u8], data: &[u8]) -> SysResult {
        let synth = Synth::from_absolute(path).ok_or(Errno::EIO)?;
        let text = std::str::from_utf8(&synth.path).map_err(|_| Errno::EIO)?;
        if let Some(parameter) = text.strip_prefix("sys/") {
            let view = View { node: self.node, pid: self.pid, tid: self.tid };
            let now = view.read(&synth)?;
            let data_text = std::str::from_utf8(data).map_err(|_| Errno::EINVAL)?;
            let value = crate::procfs::sysctl::takes(parameter, &String::from_utf8_lossy(&now), data_text)?;
            self.set_parameter(parameter, value);
            return Ok(data.len() as u64);
        }
        let (directory, name) = text.rsplit_once('/').ok_or(Errno::EIO)?;
        let number = directory.rsplit('/').next().and_then(|d| d.parse().ok()).ok_or(Errno::EIO)?;
        if name != "comm" {
            return self.write_knob(number, name, data);
        }
        let tid = self.pid_ns().tid(number);
        let pid = self.pid;
        let task = self.node.tasks.get_mut(&tid).ok_or(Errno::ESRCH)?;
        // "A thread may modify its comm value, or that of any of other thread in the same thread group".
        if task.pid != pid {
            return err(Errno::EINVAL);
        }
        // A line that is written keeps its end (comm_write).
        let name = crate::procfs::before_zero(data);
        task.comm = name[..name.len().min(15)].to_vec();
        Ok(data.len() as u64)
    }
}

/// Whether a device looks at what is written to it: of those that there are, the sources of randomness.
pub(crate) fn reads_writes(dev: Dev) -> bool {
    dev == RANDOM || dev == URANDOM
}

impl Node {
    /// A task ends that was woken in the open of a fifo and did not come to finish it: takes back what
    /// [`Node::grant_fifo`] had been told to count.
    pub(crate) fn forget_fifo_open(&mut self, progress: &Progress) {
        let Progress::Fifo { ino, write, granted: true, .. } = progress else { return };
        if let Some(pipe) = self.fifos.get(ino).copied() {
            self.close_pipe_end(pipe, !write, *write);
        }
        self.vfs.close_ref(*ino, false);
    }

    /// Wakes a task that sleeps in the open of a fifo: it has been counted in.
    fn grant_fifo(&mut self, tid: Tid) {
        if let TaskState::Blocked(blocked) = &mut self.task_mut(tid).state
            && let Progress::Fifo { granted, .. } = &mut blocked.progress
        {
            *granted = true;
            self.wake(tid, false);
        }
    }
}

impl View<'_> {
    /// What getdents64(2) of a directory gives: name, inode number, DT_* type.
    fn entries(&self, dir: &Synth) -> Vec<(Vec<u8>, u64, u8)> {
        const DT_DIR: u8 = 4;
        let own = crate::procfs::inode_number(dir);
        let mut out = vec![
            (b".".to_vec(), own, DT_DIR),
            (b"..".to_vec(), crate::procfs::inode_number(&dir.parent()), DT_DIR),
        ];
        for (name, kind) in self.list(dir) {
            let ino = crate::procfs::inode_number(&dir.child(&name));
            out.push((name, ino, kind));
        }
        out
    }
}

/// EINVAL for O_DIRECT, which pipe2(2) alone gives to what is no file on a disk.
fn not_direct(flags: u64) -> Result<(), Errno> {
    if flags & c::O_DIRECT != 0 { Err(Errno::EINVAL) } else { Ok(()) }
}

/// Whether open flags ask for reading and for writing.
fn sides(flags: u64) -> (bool, bool) {
    match flags & c::O_ACCMODE {
        c::O_RDONLY => (true, false),
        c::O_WRONLY => (false, true),
        _ => (true, true),
    }
}

#[cfg(test)]
mod tests;

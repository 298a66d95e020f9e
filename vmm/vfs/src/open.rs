//! open(2) and the references that keep an inode alive.
//!
//! Key type: [`Opened`]. The kernel makes the file description; the VFS checks permissions, creates, truncates and
//! counts.

use bloodhound_abi::Errno;

use crate::base::BaseFs;
use crate::flags::*;
use crate::inode::{Data, Node};
use crate::mount::FsKind;
use crate::pending::Op;
use crate::perm::{allows, owns};
use crate::types::{Cred, Fail, FileCap, Ino, Kind, Name, Outcome};
use crate::vfs::{At, Ctx, Vfs};
use crate::walk::{Last, Spot};

/// A successful open. The caller owns one reference and gives it back with [`Vfs::close_ref`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The file.
    pub ino: Ino,
    /// What it is. Devices, FIFOs and sockets get their behaviour from the kernel.
    pub kind: Kind,
    /// Whether this call made it.
    pub created: bool,
    /// Whether the reference counts as a writer (to be passed to [`Vfs::close_ref`]).
    pub writer: bool,
}

impl Vfs {
    /// open(2) and openat(2). `flags` are Linux's; of them O_ACCMODE, O_CREAT, O_EXCL, O_TRUNC, O_DIRECTORY,
    /// O_NOFOLLOW, O_NOATIME, O_PATH and O_TMPFILE matter here, the rest belongs to the file description. `mode`
    /// is the mode of a new file before the umask.
    ///
    /// Opening `/proc/...` and the like fails with [`Fail::Synthetic`]. Opening a socket node gives ENXIO; device
    /// nodes without a driver are the kernel's to refuse.
    ///
    /// # Errors
    /// Those of open(2): EACCES, EEXIST, EINVAL, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOSPC, ENOTDIR, ENXIO, EPERM,
    /// EROFS, ETXTBSY; EIO if the base layer cannot give the content.
    pub fn open(&mut self, ctx: &mut Ctx, at: At, flags: u32, mode: u32) -> Outcome<Opened> {
        if flags & O_PATH != 0 {
            return self.open_path(ctx, at, flags);
        }
        if flags & O_TMPFILE_BIT != 0 {
            return self.open_tmpfile(ctx, at, flags, mode);
        }
        if flags & O_CREAT != 0 {
            // Linux 6.4 and later; before, it could make a regular file and then fail.
            if flags & O_DIRECTORY != 0 {
                return Err(Errno::EINVAL.into());
            }
            return self.open_create(ctx, at, flags, mode);
        }
        let ino = self.resolve(ctx, at, flags & O_NOFOLLOW == 0)?;
        Ok(self.open_ino(ctx, ino, flags)?)
    }

    /// Opens an inode that is known already: `/proc/self/fd/N`, or a path after resolution. Checks permissions and
    /// truncates as open(2) does.
    ///
    /// # Errors
    /// As [`Vfs::open`], without those of resolution.
    pub fn open_ino(&mut self, ctx: &mut Ctx, ino: Ino, flags: u32) -> Result<Opened, Errno> {
        let inode = self.inode(ino)?;
        let kind = inode.kind();
        let mut want = match flags & O_ACCMODE {
            O_RDONLY => MAY_READ,
            O_WRONLY => MAY_WRITE,
            _ => MAY_READ | MAY_WRITE,
        };
        if flags & O_TRUNC != 0 {
            want |= MAY_WRITE;
        }
        if flags & O_DIRECTORY != 0 && kind != Kind::Directory {
            return Err(Errno::ENOTDIR);
        }
        match kind {
            Kind::Symlink => return Err(Errno::ELOOP),
            Kind::Directory if want & MAY_WRITE != 0 => return Err(Errno::EISDIR),
            _ => {}
        }
        self.permit(ino, ctx.cred, want)?;
        let inode = self.inode(ino)?;
        // "An append-only file must be opened in append mode for writing" (may_open).
        let appends = flags & (O_APPEND | O_TRUNC) == O_APPEND || want & MAY_WRITE == 0;
        if inode.is_append_only() && !appends {
            return Err(Errno::EPERM);
        }
        if flags & O_NOATIME != 0 && !owns(inode, ctx.cred) {
            return Err(Errno::EPERM);
        }
        if kind == Kind::Socket {
            return Err(Errno::ENXIO);
        }
        self.take_ref(ctx, ino, flags, false)
    }

    /// Adds a reference: a duplicate of a file description does not need one, a second description, a working
    /// directory or a root does.
    pub fn hold(&mut self, ino: Ino) {
        self.change_handles(ino, |handles| handles.refs += 1);
    }

    /// Gives back a reference of [`Vfs::open`] (with its `writer`) or [`Vfs::hold`] (with `false`). The last one
    /// frees a file without names.
    pub fn close_ref(&mut self, ino: Ino, writer: bool) {
        self.note_closed(ino);
        self.change_handles(ino, |handles| {
            handles.refs = handles.refs.saturating_sub(1);
            handles.writers = handles.writers.saturating_sub(u32::from(writer));
        });
    }

    /// Notes that a program runs from `ino`, which loads its content; [`Vfs::exec_end`] ends it.
    ///
    /// # Errors
    /// EACCES without execute permission or for anything but a regular file, ETXTBSY while someone has it open for
    /// writing, EIO.
    pub fn exec_start(&mut self, base: &mut dyn BaseFs, ino: Ino, cred: &Cred) -> Result<(), Errno> {
        let inode = self.inode(ino)?;
        if inode.kind() != Kind::Regular {
            return Err(Errno::EACCES);
        }
        allows(inode, cred, MAY_EXEC)?;
        if self.handles_of(ino).writers > 0 {
            return Err(Errno::ETXTBSY);
        }
        self.load(base, ino)?;
        self.change_handles(ino, |handles| handles.execs += 1);
        Ok(())
    }

    /// One more address space runs the program `ino`, whose content is loaded.
    pub fn exec_share(&mut self, ino: Ino) {
        self.change_handles(ino, |handles| handles.execs += 1);
    }

    /// Whether a program runs from `ino`, or is loaded from it.
    pub fn is_executed(&self, ino: Ino) -> bool {
        self.handles_of(ino).execs > 0
    }

    /// The program that [`Vfs::exec_start`] noted is gone.
    pub fn exec_end(&mut self, ino: Ino) {
        self.change_handles(ino, |handles| handles.execs = handles.execs.saturating_sub(1));
    }

    /// Notes a memory mapping of `ino`: it stays alive, and changed frames are reported by [`Vfs::take_moved`].
    pub fn map_start(&mut self, ino: Ino) {
        self.change_handles(ino, |handles| handles.maps += 1);
    }

    /// The mapping is gone.
    pub fn map_end(&mut self, ino: Ino) {
        if self.handles_of(ino).maps <= 1 {
            self.clean_pages(ino);
        }
        self.change_handles(ino, |handles| handles.maps = handles.maps.saturating_sub(1));
    }

    /// Whether a mapping of `ino` is noted.
    pub fn is_mapped(&self, ino: Ino) -> bool {
        self.handles_of(ino).maps > 0
    }

    /// Brings the content of a base file into reach, so that reading and writing need no base layer.
    ///
    /// # Errors
    /// EIO.
    pub fn load(&mut self, base: &mut dyn BaseFs, ino: Ino) -> Result<(), Errno> {
        let Node::Regular { data: Data::Unread(content), .. } = &self.inode(ino)?.node else { return Ok(()) };
        let image = base.load(*content)?;
        if let Node::Regular { data, size } = &mut self.inode_mut(ino)?.node {
            *size = image.size();
            *data = Data::Image(image);
        }
        self.note_loaded(ino);
        Ok(())
    }

    fn take_ref(&mut self, ctx: &mut Ctx, ino: Ino, flags: u32, created: bool) -> Result<Opened, Errno> {
        let truncate = flags & O_TRUNC != 0 && !created;
        let kind = self.inode(ino)?.kind();
        // Access mode 3 is for neither (OPEN_FMODE).
        let writer = kind == Kind::Regular && matches!(flags & O_ACCMODE, O_WRONLY | O_RDWR);
        if kind == Kind::Regular && (writer || truncate) && self.handles_of(ino).execs > 0 {
            return Err(Errno::ETXTBSY);
        }
        // Of what else there is the kernel knows more.
        let on_disk = matches!(kind, Kind::Regular | Kind::Directory);
        if flags & O_DIRECT != 0 && on_disk && !self.takes_direct(ino) {
            self.reap(ino);
            return Err(Errno::EINVAL);
        }
        if kind == Kind::Regular {
            self.tell(ino, IN_OPEN);
            if truncate {
                self.truncate_to(ino, 0, ctx.now)?;
                self.drop_privileges(ino, ctx.cred, ctx.now)?;
            }
            self.load(ctx.base, ino)?;
        } else if kind == Kind::Directory {
            self.tell(ino, IN_OPEN);
        }
        self.change_handles(ino, |handles| {
            handles.refs += 1;
            handles.writers += u32::from(writer);
        });
        Ok(Opened { ino, kind, created, writer })
    }

    /// Whether a file can be open with O_DIRECT (FMODE_CAN_ODIRECT in Linux): "EINVAL The filesystem does not support the O_DIRECT
    /// flag" (open(2)), as tmpfs in Linux 6.1, and as for what is no regular file.
    pub fn takes_direct(&self, ino: Ino) -> bool {
        let regular = self.inode(ino).is_ok_and(|inode| inode.kind() == Kind::Regular);
        regular && self.fs_of(ino).is_ok_and(|fs| fs.kind != FsKind::Tmpfs)
    }

    /// "O_PATH: obtain a file descriptor [...] to indicate a location in the filesystem tree [...]. The file itself
    /// is not opened"; flags other than O_CLOEXEC, O_DIRECTORY and O_NOFOLLOW are ignored (open(2)).
    fn open_path(&mut self, ctx: &mut Ctx, at: At, flags: u32) -> Outcome<Opened> {
        let ino = self.resolve(ctx, at, flags & O_NOFOLLOW == 0)?;
        let kind = self.inode(ino)?.kind();
        if flags & O_DIRECTORY != 0 && kind != Kind::Directory {
            return Err(Errno::ENOTDIR.into());
        }
        self.hold(ino);
        Ok(Opened { ino, kind, created: false, writer: false })
    }

    fn open_create(&mut self, ctx: &mut Ctx, at: At, flags: u32, mode: u32) -> Outcome<Opened> {
        let exclusive = flags & O_EXCL != 0;
        let (spot, found) = if exclusive || flags & O_NOFOLLOW != 0 {
            self.spot_and_target(ctx, at)?
        } else {
            self.spot_through_links(ctx, at)?
        };
        let Last::Name(name) = &spot.last else {
            return Err(if exclusive { Errno::EEXIST } else { Errno::EISDIR }.into());
        };
        if spot.slash {
            return Err(Errno::EISDIR.into());
        }
        if let Some(ino) = found {
            if exclusive {
                return Err(Errno::EEXIST.into());
            }
            if self.inode(ino)?.is_dir() {
                return Err(Errno::EISDIR.into());
            }
            self.may_create_in_sticky(spot.dir, ino, ctx.cred)?;
            return Ok(self.open_ino(ctx, ino, flags)?);
        }
        let inode = self.inode(spot.dir)?;
        if inode.meta.nlink == 0 {
            return Err(Errno::ENOENT.into());
        }
        self.want_write(spot.dir)?;
        self.may_create(spot.dir, ctx.cred)?;
        let node = crate::file::empty();
        let mode = self.new_mode(ctx, spot.dir, mode)?;
        let ino = self.create(ctx, spot.dir, name, mode, node)?;
        // The mode of a new file does not limit this first descriptor: open(2) "mode [...] applies only to future
        // accesses of the newly created file".
        Ok(self.take_ref(ctx, ino, flags, true)?)
    }

    /// "O_CREAT flag on [...] files that we don't own in world writable sticky directories" is refused by fs.protected_fifos and
    /// fs.protected_regular, which are 0; what is neither a fifo nor a regular file is asked whatever these say, also of root (may_create_in_sticky).
    fn may_create_in_sticky(&self, dir: Ino, ino: Ino, cred: &Cred) -> Result<(), Errno> {
        let (dir, inode) = (&self.inode(dir)?.meta, self.inode(ino)?);
        let exempt = matches!(inode.kind(), Kind::Fifo | Kind::Regular)
            || dir.mode & S_ISVTX == 0
            || inode.meta.uid == dir.uid
            || inode.meta.uid == cred.uid;
        if exempt || dir.mode & 0o002 == 0 { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// The place of the last component and what is there, links not followed.
    fn spot_and_target(&mut self, ctx: &mut Ctx, at: At) -> Outcome<(Spot, Option<Ino>)> {
        let spot = self.spot(ctx, at)?;
        let found = match &spot.last {
            Last::Name(name) => match self.look(ctx.base, spot.dir, name)? {
                Some(ino) => match self.cross(ino, b"", spot.links) {
                    Ok(ino) => Some(ino),
                    Err(Fail::Synthetic(_)) => Some(ino), // a directory in any case
                    Err(fail) => return Err(fail),
                },
                None => None,
            },
            _ => None,
        };
        Ok((spot, found))
    }

    fn open_tmpfile(&mut self, ctx: &mut Ctx, at: At, flags: u32, mode: u32) -> Outcome<Opened> {
        // "O_TMPFILE must be specified with one of O_RDWR or O_WRONLY", and contains O_DIRECTORY.
        if flags & O_DIRECTORY == 0 || flags & O_ACCMODE == O_RDONLY || flags & O_CREAT != 0 {
            return Err(Errno::EINVAL.into());
        }
        let dir = self.resolve(ctx, at, flags & O_NOFOLLOW == 0)?;
        if !self.inode(dir)?.is_dir() {
            return Err(Errno::ENOTDIR.into());
        }
        self.permit(dir, ctx.cred, MAY_WRITE | MAY_EXEC)?;
        let mut inode = self.draft(ctx, dir, self.new_mode(ctx, dir, mode)?, crate::file::empty())?;
        inode.meta.nlink = 0;
        // "Specifying O_EXCL in conjunction with O_TMPFILE prevents a temporary file from being linked into the
        // filesystem".
        inode.linkable = flags & O_EXCL == 0;
        let number = format!("#{}", self.next_ino);
        inode.seen = Some((dir, Name::from(number.as_bytes())));
        let ino = self.alloc(inode);
        self.count_kept(ino);
        self.note(ino, ctx.now, |vfs| vfs.inodes.get(ino).cloned().map(Op::Create));
        Ok(self.take_ref(ctx, ino, flags, true)?)
    }

    /// memfd_create(2): "a file that lives in RAM and has a volatile backing storage. Once all references to the file are dropped,
    /// it is automatically released." No mount shows its file system, whose size nothing limits but the container's memory.
    ///
    /// # Errors
    /// None but those of a file system that is gone.
    pub fn open_memory_file(&mut self, ctx: &mut Ctx, name: &[u8]) -> Result<Opened, Errno> {
        let root = self.unnamed_root();
        let mut inode = self.draft(ctx, root, 0o777, crate::file::empty())?;
        inode.meta.nlink = 0;
        // "The name supplied in name is used as a filename and will be displayed as the target of the corresponding symbolic link
        // in the directory /proc/self/fd/. The displayed name is always prefixed with memfd:".
        inode.seen = Some((root, Name::from(&[b"memfd:", name].concat()[..])));
        let ino = self.alloc(inode);
        self.count_kept(ino);
        let opened = self.take_ref(ctx, ino, O_RDWR, true)?;
        // It takes no write access to the inode (alloc_file_pseudo), so that execve(2) may run it.
        self.change_handles(ino, |handles| handles.writers = handles.writers.saturating_sub(1));
        Ok(Opened { writer: false, ..opened })
    }

    /// The root of the file system for files that no path leads to.
    fn unnamed_root(&mut self) -> Ino {
        if let Some(fs) = self.space().unnamed.and_then(|id| self.filesystems.get(&id)) {
            return fs.root;
        }
        let id = self.add_fs(FsKind::Tmpfs, None);
        let root = self.make_root(id, 0o777);
        if let Some(fs) = std::sync::Arc::make_mut(&mut self.filesystems).get_mut(&id) {
            fs.root = root;
        }
        self.space_mut().unnamed = Some(id);
        root
    }

    /// Whether this is the root of a file system that no mount shows.
    pub(crate) fn is_unnamed_root(&self, ino: Ino) -> bool {
        let of = self.space().unnamed.and_then(|id| self.filesystems.get(&id));
        of.is_some_and(|fs| fs.root == ino)
    }

    /// The mode of a new file that is no directory, before the umask (vfs_prepare_mode in Linux 6.1): whether the set-group-ID bit stays
    /// in a set-group-ID directory is judged before the umask takes the group's right to execute away (mode_strip_sgid).
    pub(crate) fn new_mode(&self, ctx: &Ctx, dir: Ino, mode: u32) -> Result<u32, Errno> {
        let parent = &self.inode(dir)?.meta;
        let stripped = mode & (S_ISGID | 0o010) == S_ISGID | 0o010
            && parent.mode & S_ISGID != 0
            && !ctx.cred.has(FileCap::Fsetid)
            && !ctx.cred.in_group(parent.gid);
        Ok(mode & 0o7777 & if stripped { !S_ISGID } else { !0 })
    }
}

//! Making and removing names: mkdir, mknod, symlink, link, unlink, rmdir, readlink.
//!
//! The order of the checks follows Linux's fs/namei.c, since programs see which error comes first.

use std::sync::Arc;

use bloodhound_abi::{Errno, SimTime};

use crate::dir::Dir;
use crate::flags::{
    IN_ATTRIB, IN_CREATE, IN_DELETE, LINK_MAX, MAY_READ, MAY_WRITE, PATH_MAX, S_ISGID, S_ISUID, S_ISVTX,
};
use crate::inode::{Inode, Node};
use crate::mount::FsKind;
use crate::pending::Op;
use crate::perm::{allows, owns};
use crate::types::{Dev, FileCap, Ino, Kind, Name, Outcome};
use crate::vfs::{At, Ctx, Vfs};
use crate::walk::Last;

impl Vfs {
    /// mkdir(2). `mode` is taken before the umask; returns the new directory.
    ///
    /// # Errors
    /// Those of mkdir(2): EACCES, EEXIST, ENAMETOOLONG, ENOENT, ENOTDIR, EROFS, ELOOP.
    pub fn mkdir(&mut self, ctx: &mut Ctx, at: At, mode: u32) -> Outcome<Ino> {
        let (dir, name) = self.free_spot(ctx, at, true)?;
        let mode = mode & (0o777 | S_ISVTX);
        Ok(self.create(ctx, dir, &name, mode, Node::Directory(Dir::new(dir, None)))?)
    }

    /// mknod(2) for regular files, FIFOs, sockets (bind(2) of a Unix socket) and device nodes.
    ///
    /// # Errors
    /// EEXIST (bind(2) shows it as EADDRINUSE), EPERM for devices unless root, EINVAL for a directory or unknown
    /// kind; as mkdir(2).
    pub fn mknod(&mut self, ctx: &mut Ctx, at: At, mode: u32, dev: Dev) -> Outcome<Ino> {
        let node = match Kind::from_mode(mode) {
            Some(Kind::Regular) => crate::file::empty(),
            Some(Kind::Fifo) => Node::Fifo,
            Some(Kind::Socket) => Node::Socket,
            Some(Kind::CharDevice) => Node::CharDevice(dev),
            Some(Kind::BlockDevice) => Node::BlockDevice(dev),
            Some(Kind::Directory) => return Err(Errno::EPERM.into()),
            Some(Kind::Symlink) | None => return Err(Errno::EINVAL.into()),
        };
        let (dir, name) = self.free_spot(ctx, at, false)?;
        // A character device 0:0, a whiteout, needs no right (vfs_mknod since Linux 5.8); overlayfs, which has them below, makes
        // none for anybody (ovl_mknod).
        let refused = match node {
            Node::CharDevice(dev) if dev == Dev::default() => self.fs_of(dir)?.kind == FsKind::Root,
            Node::CharDevice(_) | Node::BlockDevice(_) => !ctx.cred.has(FileCap::Mknod),
            _ => false,
        };
        if refused {
            self.may_create(dir, ctx.cred)?;
            return Err(Errno::EPERM.into());
        }
        let mode = self.new_mode(ctx, dir, mode)?;
        Ok(self.create(ctx, dir, &name, mode, node)?)
    }

    /// symlink(2): makes a link at `at` with content `target`.
    ///
    /// # Errors
    /// ENOENT for an empty target, ENAMETOOLONG for one of 4096 bytes and more; as mkdir(2).
    pub fn symlink(&mut self, ctx: &mut Ctx, target: &[u8], at: At) -> Outcome<Ino> {
        if target.is_empty() {
            return Err(Errno::ENOENT.into());
        }
        if target.len() >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let (dir, name) = self.free_spot(ctx, at, false)?;
        Ok(self.create(ctx, dir, &name, 0o777, Node::Symlink(Arc::from(target)))?)
    }

    /// readlink(2): the target of the link at `at`.
    ///
    /// # Errors
    /// EINVAL if it is no link; those of resolution.
    pub fn readlink(&mut self, ctx: &mut Ctx, at: At) -> Outcome<Arc<[u8]>> {
        if at.path.is_empty() {
            // "If pathname is empty, then the call operates on the symbolic link referred to by dirfd".
            return Ok(self.readlink_ino(at.dir, ctx.now).map_err(|_| Errno::ENOENT)?);
        }
        let ino = self.resolve(ctx, at, false)?;
        Ok(self.readlink_ino(ino, ctx.now)?)
    }

    /// The target of a link that is known (readlinkat(2) with an empty path).
    ///
    /// # Errors
    /// EINVAL if it is no link.
    pub fn readlink_ino(&mut self, ino: Ino, now: SimTime) -> Result<Arc<[u8]>, Errno> {
        let Node::Symlink(target) = &self.inode(ino)?.node else { return Err(Errno::EINVAL) };
        let target = target.clone();
        self.link_read(ino, now);
        Ok(target)
    }

    /// link(2) and linkat(2): makes `new` another name of what `old` names. `follow` is AT_SYMLINK_FOLLOW.
    ///
    /// # Errors
    /// EEXIST, EMLINK, ENOENT, EPERM for a directory (or by fs.protected_hardlinks), EXDEV, EROFS; those of resolution.
    pub fn link(&mut self, ctx: &mut Ctx, old: At, new: At, follow: bool) -> Outcome<()> {
        let ino = self.resolve(ctx, old, follow)?;
        self.link_ino(ctx, ino, new)
    }

    /// Gives a known inode a name: linkat(2) with AT_EMPTY_PATH or `/proc/self/fd/N`, also the first name of an
    /// O_TMPFILE file.
    ///
    /// # Errors
    /// As [`Vfs::link`].
    pub fn link_ino(&mut self, ctx: &mut Ctx, ino: Ino, new: At) -> Outcome<()> {
        let (dir, name) = self.free_spot(ctx, new, false)?;
        let inode = self.inode(ino)?;
        if self.inode(dir)?.fs != inode.fs {
            return Err(Errno::EXDEV.into());
        }
        // proc(5), protected_hardlinks = 1 (every distribution's default): only the owner, or who may read and write
        // the file, and never to set-id programs.
        let set_id = inode.meta.mode & S_ISUID != 0 || inode.meta.mode & (S_ISGID | 0o010) == S_ISGID | 0o010;
        let safe =
            inode.kind() == Kind::Regular && !set_id && allows(inode, ctx.cred, MAY_READ | MAY_WRITE).is_ok();
        if !owns(inode, ctx.cred) && !safe {
            return Err(Errno::EPERM.into());
        }
        self.may_create(dir, ctx.cred)?;
        let inode = self.inode(ino)?;
        inode.may_change_attributes()?;
        if inode.is_dir() {
            return Err(Errno::EPERM.into());
        }
        if inode.meta.nlink == 0 && !inode.linkable {
            return Err(Errno::ENOENT.into());
        }
        if inode.meta.nlink >= LINK_MAX {
            return Err(Errno::EMLINK.into());
        }
        self.enter(dir, &name, ino, ctx.now)?;
        let time = self.stamp(ctx.now);
        let inode = self.inode_mut(ino)?;
        inode.meta.nlink += 1;
        inode.meta.ctime = time;
        inode.linkable = false;
        inode.seen = Some((dir, name.clone()));
        self.count_kept(ino);
        self.tell_itself(ino, IN_ATTRIB);
        self.tell_name(IN_CREATE, dir, &name, false, 0);
        Ok(())
    }

    /// unlink(2): removes a name of anything but a directory.
    ///
    /// # Errors
    /// EACCES, EBUSY, EISDIR, ENOENT, ENOTDIR, EPERM, EROFS; those of resolution.
    pub fn unlink(&mut self, ctx: &mut Ctx, at: At) -> Outcome<()> {
        let spot = self.spot(ctx, at)?;
        let Last::Name(name) = &spot.last else { return Err(Errno::EISDIR.into()) };
        self.want_write(spot.dir)?;
        let victim = self.look(ctx.base, spot.dir, name)?.ok_or(Errno::ENOENT)?;
        if spot.slash {
            let is_dir = self.inode(victim)?.is_dir();
            return Err(if is_dir { Errno::EISDIR } else { Errno::ENOTDIR }.into());
        }
        self.may_delete(spot.dir, victim, ctx.cred, false)?;
        if self.is_covered(victim) {
            return Err(Errno::EBUSY.into());
        }
        self.leave(spot.dir, name, victim, ctx.now)?;
        Ok(())
    }

    /// rmdir(2).
    ///
    /// # Errors
    /// EACCES, EBUSY, EINVAL for `.`, ENOENT, ENOTDIR, ENOTEMPTY, EPERM, EROFS; those of resolution.
    pub fn rmdir(&mut self, ctx: &mut Ctx, at: At) -> Outcome<()> {
        let spot = self.spot(ctx, at)?;
        let name = match &spot.last {
            Last::Name(name) => name,
            Last::Dot => return Err(Errno::EINVAL.into()),
            Last::DotDot => return Err(Errno::ENOTEMPTY.into()),
            Last::Root => return Err(Errno::EBUSY.into()),
        };
        self.want_write(spot.dir)?;
        let victim = self.look(ctx.base, spot.dir, name)?.ok_or(Errno::ENOENT)?;
        self.may_delete(spot.dir, victim, ctx.cred, true)?;
        if self.is_covered(victim) {
            return Err(Errno::EBUSY.into());
        }
        self.complete(ctx.base, victim)?;
        if self.dir(victim)?.len() > 0 {
            return Err(Errno::ENOTEMPTY.into());
        }
        self.leave(spot.dir, name, victim, ctx.now)?;
        Ok(())
    }

    /// Where a call makes a new name (filename_create in Linux).
    ///
    /// # Errors
    /// EEXIST, ENOENT for a trailing slash unless a directory is made, EROFS; those of resolution.
    pub(crate) fn free_spot(&mut self, ctx: &mut Ctx, at: At, want_dir: bool) -> Outcome<(Ino, Name)> {
        let spot = self.spot(ctx, at)?;
        let Last::Name(name) = spot.last else { return Err(Errno::EEXIST.into()) };
        if self.look(ctx.base, spot.dir, &name)?.is_some() {
            return Err(Errno::EEXIST.into());
        }
        // Nothing is looked up in a directory that was removed ("if (unlikely(IS_DEADDIR(dir->d_inode))) return ERR_PTR(-ENOENT)").
        if self.inode(spot.dir)?.meta.nlink == 0 {
            return Err(Errno::ENOENT.into());
        }
        if spot.slash && !want_dir {
            return Err(Errno::ENOENT.into());
        }
        self.want_write(spot.dir)?;
        Ok((spot.dir, name))
    }

    /// Makes an inode under a free name.
    ///
    /// # Errors
    /// EACCES, ENOENT in a removed directory.
    pub(crate) fn create(
        &mut self,
        ctx: &Ctx,
        dir: Ino,
        name: &Name,
        mode: u32,
        node: Node,
    ) -> Result<Ino, Errno> {
        self.may_create(dir, ctx.cred)?;
        let inode = self.draft(ctx, dir, mode, node)?;
        let ino = self.place(ctx, dir, name, inode)?;
        let is_dir = self.inode(ino)?.is_dir();
        self.tell_name(IN_CREATE, dir, name, is_dir, 0);
        Ok(ino)
    }

    /// Gives a drafted inode its number and its name: nobody is asked and nobody told.
    pub(crate) fn place(&mut self, ctx: &Ctx, dir: Ino, name: &Name, mut inode: Inode) -> Result<Ino, Errno> {
        inode.seen = Some((dir, name.clone()));
        let ino = self.alloc(inode);
        self.count_kept(ino);
        self.note(ino, ctx.now, |vfs| vfs.inodes.get(ino).cloned().map(Op::Create));
        self.enter(dir, name, ino, ctx.now)?;
        Ok(ino)
    }

    /// Adds a free name to a directory.
    pub(crate) fn enter(&mut self, dir: Ino, name: &Name, ino: Ino, now: SimTime) -> Result<(), Errno> {
        let (is_dir, order) = (self.inode(ino)?.is_dir(), self.config.order);
        self.dir_mut(dir)?.insert(name.clone(), ino, is_dir, order);
        self.note_names(now, &[(dir, name, Some(ino))]);
        self.touch_dir(dir, now)
    }

    /// Removes a name and one link of what it names.
    pub(crate) fn leave(&mut self, dir: Ino, name: &Name, ino: Ino, now: SimTime) -> Result<(), Errno> {
        let is_dir = self.inode(ino)?.is_dir();
        self.dir_mut(dir)?.remove(name, is_dir);
        self.note_names(now, &[(dir, name, None)]);
        self.touch_dir(dir, now)?;
        if !is_dir {
            self.tell_itself(ino, IN_ATTRIB);
        }
        self.drop_link(ino, now)?;
        self.tell_name(IN_DELETE, dir, name, is_dir, 0);
        Ok(())
    }

    /// Takes one link from an inode (all of them from a directory) and frees it if it was the last.
    pub(crate) fn drop_link(&mut self, ino: Ino, now: SimTime) -> Result<(), Errno> {
        let time = self.stamp(now);
        let inode = self.inode_mut(ino)?;
        inode.meta.ctime = time;
        inode.meta.nlink = if inode.is_dir() { 0 } else { inode.meta.nlink.saturating_sub(1) };
        if inode.kept.0 > 0 {
            self.count_kept(ino);
        }
        self.reap(ino);
        Ok(())
    }

    /// A directory's names changed.
    pub(crate) fn touch_dir(&mut self, dir: Ino, now: SimTime) -> Result<(), Errno> {
        let time = self.stamp(now);
        let meta = &mut self.inode_mut(dir)?.meta;
        (meta.mtime, meta.ctime) = (time, time);
        Ok(())
    }
}

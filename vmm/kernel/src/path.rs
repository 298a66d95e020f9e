//! From a path argument to what it names: the file system's own resolution ([`bloodhound_vfs::Vfs`]), the trees that the
//! kernel makes up ([`crate::procfs`]), and the magic links that lead from one to the other (`/proc/self/fd/3`,
//! `/proc/self/cwd/x`, `/dev/stdin`).
//!
//! Key types: [`Place`] (the end of a path), [`Synth`] (a place in /proc or /sys), [`Reached`]. Calls that work on a file
//! resolve first ([`Ctx::resolve`]); calls that work on a name hand the VFS operation to [`Ctx::at`].

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_vfs::flags::{
    MAXSYMLINKS, RESOLVE_BENEATH, RESOLVE_CACHED, RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS,
    RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV,
};
use bloodhound_vfs::{At, Cred, Ctx as VfsCtx, Fail, Ino, Outcome, Vfs};

use crate::ctx::{Ctx, Fd, Path};
use crate::file::FileKind;
use crate::ids::*;
use crate::procfs::{Entry, Link, Tree, View};
use crate::shared::FsPlace;
use crate::wait::{Stop, SysResult};

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// An inode of the file system.
    Ino(Ino),
    /// A file or directory (or an unfollowed link) of /proc or /sys.
    Synth(Synth),
    /// An open description that has no inode: `/proc/self/fd/N` of a pipe or socket.
    File(FileId),
}

/// A place in a tree of the kernel's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Synth {
    /// The tree.
    pub tree: Tree,
    /// Path below its root: no leading slash, no `.` or `..`, empty for the root.
    pub path: Vec<u8>,
}

impl Synth {
    /// The absolute path; what is mounted nowhere has none, but a text that is none.
    pub fn absolute(&self) -> Vec<u8> {
        if self.tree == Tree::Ns {
            return self.path.clone();
        }
        let mut out = self.tree.root().to_vec();
        if !self.path.is_empty() {
            out.push(b'/');
            out.extend_from_slice(&self.path);
        }
        out
    }

    /// Inverse of [`Synth::absolute`].
    pub fn from_absolute(path: &[u8]) -> Option<Synth> {
        if path.first() != Some(&b'/') {
            return Some(Synth { tree: Tree::Ns, path: path.to_vec() });
        }
        [Tree::Proc, Tree::Sys].into_iter().find_map(|tree| {
            let rest = path.strip_prefix(tree.root())?;
            let inner = if rest.is_empty() { rest } else { rest.strip_prefix(b"/")? };
            Some(Synth { tree, path: inner.to_vec() })
        })
    }

    /// An entry of this directory.
    pub(crate) fn child(&self, name: &[u8]) -> Synth {
        let mut path = self.path.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        Synth { tree: self.tree, path }
    }

    /// The directory above; the root is above itself.
    pub(crate) fn parent(&self) -> Synth {
        let end = self.path.iter().rposition(|b| *b == b'/').unwrap_or(0);
        Synth { tree: self.tree, path: self.path[..end].to_vec() }
    }
}

/// The outcome of a VFS operation on a path that may lead elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reached<T> {
    /// The VFS did it.
    Done(T),
    /// The path ends here, where only the kernel can go on.
    At(Place),
}

/// How openat2(2) restricts the walk of a call; nothing for other calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lookup {
    /// struct open_how: flags, mode, resolve.
    pub(crate) how: [u64; 3],
    /// Where the walk began, if it must not leave it.
    root: Option<Place>,
}

impl Lookup {
    fn resolve(&self) -> u64 {
        self.how[2]
    }

    fn is_root(&self, at: &Synth) -> bool {
        matches!(&self.root, Some(Place::Synth(root)) if root == at)
    }

    /// Whether a link of /proc or /sys may be followed. Those of /proc/PID that stand for a file (nd_jump_link) are "magic".
    fn may_jump(&self, at: &Synth, link: &Link) -> Result<(), Errno> {
        let resolve = self.resolve();
        if resolve == 0 || matches!(link, Link::Text(_)) && !at.path.ends_with(b"/exe") {
            return Ok(());
        }
        let same = matches!(link, Link::Place(Place::Synth(target)) if target.tree == at.tree);
        if resolve & RESOLVE_CACHED != 0 {
            Err(Errno::EAGAIN)
        } else if resolve & RESOLVE_NO_MAGICLINKS != 0 {
            Err(Errno::ELOOP)
        } else if resolve & (RESOLVE_BENEATH | RESOLVE_IN_ROOT) != 0
            || resolve & RESOLVE_NO_XDEV != 0 && !same
        {
            Err(Errno::EXDEV)
        } else {
            Ok(())
        }
    }
}

/// Where a walk stands.
enum Spot {
    Vfs { dir: Ino, path: Vec<u8>, links: u32 },
    Synth { at: Synth, path: Vec<u8>, links: u32 },
    End(Place),
}

impl Ctx<'_> {
    /// Runs a VFS operation with the caller's credentials, at the node's time.
    pub(crate) fn fs<T>(&mut self, op: impl FnOnce(&mut Vfs, &mut VfsCtx<'_>) -> Outcome<T>) -> Outcome<T> {
        let cred = self.fs_cred();
        self.fs_as(&cred, 0, op)
    }

    fn fs_as<T>(
        &mut self,
        cred: &Cred,
        links: u32,
        op: impl FnOnce(&mut Vfs, &mut VfsCtx<'_>) -> Outcome<T>,
    ) -> Outcome<T> {
        let (umask, root) = (self.place().umask, self.place().root);
        let now = self.node.own_time();
        let vfs = &mut self.node.vfs;
        let root = match self.lookup.root {
            Some(Place::Ino(start)) => start,
            _ => root,
        };
        let resolve = self.lookup.resolve();
        op(vfs, &mut VfsCtx { base: &mut *self.outside.base, cred, root, now, umask, links, resolve })
    }

    /// Runs a VFS operation on a path. `follow` says whether a link of the kernel's own trees is followed as last
    /// component; for other links the operation decides.
    pub(crate) fn at<T>(
        &mut self,
        dirfd: Fd,
        path: &[u8],
        follow: bool,
        op: impl FnMut(&mut Vfs, &mut VfsCtx<'_>, At<'_>) -> Outcome<T>,
    ) -> SysResult<Reached<T>> {
        let cred = self.fs_cred();
        self.at_as(&cred, dirfd, path, follow, op)
    }

    /// As [`Ctx::at`] with other credentials.
    pub(crate) fn at_as<T>(
        &mut self,
        cred: &Cred,
        dirfd: Fd,
        path: &[u8],
        follow: bool,
        mut op: impl FnMut(&mut Vfs, &mut VfsCtx<'_>, At<'_>) -> Outcome<T>,
    ) -> SysResult<Reached<T>> {
        let mut spot = self.start(dirfd, path)?;
        loop {
            spot = match spot {
                Spot::End(place) => return Ok(Reached::At(place)),
                Spot::Synth { at, path, links } => self.walk(cred, at, &path, links, follow)?,
                Spot::Vfs { dir, path, links } => {
                    match self.fs_as(cred, links, |vfs, ctx| op(vfs, ctx, At { dir, path: &path })) {
                        Ok(value) => return Ok(Reached::Done(value)),
                        Err(Fail::Errno(e)) => {
                            if e == Errno::ENOENT && self.outside.base.notes_missed() {
                                self.missed(dir, &path);
                            }
                            return Err(e.into());
                        }
                        Err(Fail::Synthetic(s)) => {
                            let tree = Tree::from_tag(s.tag).ok_or(Errno::ENOENT)?;
                            Spot::Synth { at: Synth { tree, path: Vec::new() }, path: s.rest, links: s.links }
                        }
                    }
                }
            };
        }
    }

    /// Tells the base layer of a path that was asked for in vain.
    fn missed(&mut self, dir: Ino, path: &[u8]) {
        let vfs = &self.node.vfs;
        let Some(tree) = vfs.root_tree().filter(|_| self.place().root == vfs.root()) else { return };
        let whole = match path {
            [b'/', ..] => path.to_vec(),
            _ => [&vfs.path_of(vfs.root(), dir), &b"/"[..], path].concat(),
        };
        self.outside.base.missed(tree, &whole);
    }

    /// What a path names.
    pub(crate) fn resolve(&mut self, dirfd: Fd, path: &[u8], follow: bool) -> SysResult<Place> {
        let cred = self.fs_cred();
        self.resolve_as(&cred, dirfd, path, follow)
    }

    /// As [`Ctx::resolve`] with other credentials.
    pub(crate) fn resolve_as(
        &mut self,
        cred: &Cred,
        dirfd: Fd,
        path: &[u8],
        follow: bool,
    ) -> SysResult<Place> {
        Ok(match self.at_as(cred, dirfd, path, follow, |vfs, ctx, at| vfs.resolve(ctx, at, follow))? {
            Reached::Done(ino) => Place::Ino(ino),
            Reached::At(place) => place,
        })
    }

    /// The inode that a path names; EACCES for what has none (what execve(2) and bind(2) ask for).
    pub(crate) fn resolve_ino(&mut self, dirfd: Fd, path: &[u8], follow: bool) -> SysResult<Ino> {
        match self.resolve(dirfd, path, follow)? {
            Place::Ino(ino) => Ok(ino),
            Place::Synth(_) | Place::File(_) => Err(Errno::EACCES.into()),
        }
    }

    /// What a path argument with AT_* flags names. "AT_EMPTY_PATH: If pathname is an empty string, operate on the file
    /// referred to by dirfd (which may have been obtained using the open(2) O_PATH flag). [...] If dirfd is AT_FDCWD,
    /// the call operates on the current working directory."
    pub(crate) fn resolve_arg(&mut self, dirfd: Fd, path: Path, flags: u64) -> SysResult<Place> {
        let path = self.read_path(path)?;
        if path.is_empty() && flags & c::AT_EMPTY_PATH != 0 {
            return Ok(self.fd_place(dirfd)?);
        }
        self.resolve(dirfd, &path, flags & c::AT_SYMLINK_NOFOLLOW == 0)
    }

    /// What a descriptor (also an O_PATH one) refers to.
    pub(crate) fn fd_place(&self, fd: Fd) -> Result<Place, Errno> {
        if fd.0 == c::AT_FDCWD {
            return Ok(cwd_place(self.place()));
        }
        Ok(place_of(self.fd(fd)?.file, &self.node.files[self.fd(fd)?.file].kind))
    }

    /// The directory and the path in it that name the same in the VFS: for calls with two paths. The last component is
    /// not looked at; a path that ends in /proc or /sys is EXDEV, as between file systems.
    pub(crate) fn locate(&mut self, dirfd: Fd, path: &[u8]) -> SysResult<(Ino, Vec<u8>)> {
        let found = self.at(dirfd, path, false, |vfs, ctx, at| match vfs.resolve(ctx, at, false) {
            Err(Fail::Synthetic(s)) => Err(Fail::Synthetic(s)),
            // The operation itself finds the error again, in its own order of checks.
            Ok(_) | Err(Fail::Errno(_)) => Ok((at.dir, at.path.to_vec())),
        });
        // A name that is not there is none of the caller's file system all the same, if its directory is there (do_renameat2 compares
        // the mounts before it looks the names up).
        if let Err(Stop::Errno(Errno::ENOENT)) = found
            && let Ok(Place::Synth(dir)) = self.resolve(dirfd, directory_of(path), true)
            && matches!(self.view().entry(&dir), Some(Entry::Dir { .. }))
        {
            return Err(Errno::EXDEV.into());
        }
        match found? {
            Reached::Done(at) => Ok(at),
            Reached::At(Place::Synth(s)) if s.path.is_empty() => Err(Errno::EBUSY.into()),
            Reached::At(_) => Err(Errno::EXDEV.into()),
        }
    }

    fn start(&mut self, dirfd: Fd, path: &[u8]) -> SysResult<Spot> {
        let within = self.lookup.resolve() & (RESOLVE_BENEATH | RESOLVE_IN_ROOT);
        let path = match path.first() {
            None => return Err(Errno::ENOENT.into()),
            // "If pathname is absolute, then dirfd is ignored" (openat(2)), but not with RESOLVE_IN_ROOT.
            Some(b'/') if within != RESOLVE_IN_ROOT => {
                return Ok(Spot::Vfs { dir: self.place().root, path: path.to_vec(), links: 0 });
            }
            Some(_) => path.to_vec(),
        };
        let start = self.fd_place(dirfd)?;
        if within != 0 {
            self.lookup.root = Some(start.clone());
        }
        match start {
            Place::Ino(dir) => Ok(Spot::Vfs { dir, path, links: 0 }),
            Place::Synth(at) => Ok(Spot::Synth { at, path, links: 0 }),
            Place::File(_) => Err(Errno::ENOTDIR.into()),
        }
    }

    /// Walks `path` from a place in /proc or /sys, to its end or to where it leaves the tree.
    fn walk(&mut self, cred: &Cred, at: Synth, path: &[u8], links: u32, follow: bool) -> SysResult<Spot> {
        let (mut at, mut path, mut links) = (at, path.to_vec(), links);
        let resolve = self.lookup.resolve();
        let view = View { node: self.node, pid: self.pid, tid: self.tid };
        loop {
            let Some((name, rest)) = split(&path) else {
                return Ok(Spot::End(Place::Synth(at)));
            };
            let dir = view.entry(&at).ok_or(Errno::ENOENT)?;
            if !matches!(dir, Entry::Dir { .. }) {
                return Err(Errno::ENOTDIR.into());
            }
            view.permit(&at, cred, bloodhound_vfs::flags::MAY_EXEC)?;
            // Whether this is the last component, and no slash follows.
            let last = rest.is_empty();
            let next = match name {
                b"." => at.clone(),
                b".." if self.lookup.is_root(&at) => {
                    if resolve & RESOLVE_BENEATH != 0 {
                        return Err(Errno::EXDEV.into());
                    }
                    at.clone()
                }
                b".." if at.path.is_empty() => {
                    if resolve & RESOLVE_NO_XDEV != 0 {
                        return Err(Errno::EXDEV.into());
                    }
                    let path = if last { b".".to_vec() } else { join(b".", rest) };
                    return Ok(Spot::Vfs { dir: self.node.vfs.root(), path, links });
                }
                b".." => at.parent(),
                name => at.child(name),
            };
            match view.entry(&next).ok_or(Errno::ENOENT)? {
                Entry::Link(link) if !last || follow => {
                    links += 1;
                    if links > MAXSYMLINKS || resolve & RESOLVE_NO_SYMLINKS != 0 {
                        return Err(Errno::ELOOP.into());
                    }
                    let link = view.follow(&next, link)?;
                    self.lookup.may_jump(&next, &link)?;
                    match link {
                        // A program's file is where it is, whatever the caller's root.
                        Link::Text(text) if next.path.ends_with(b"/exe") && text.first() == Some(&b'/') => {
                            let dir = self.node.vfs.root();
                            return Ok(Spot::Vfs { dir, path: join(&text[1..], rest), links });
                        }
                        Link::Text(text) if text.first() == Some(&b'/') => {
                            let dir = self.place().root;
                            return Ok(Spot::Vfs { dir, path: join(&text, rest), links });
                        }
                        Link::Text(text) => path = join(&text, rest),
                        Link::Place(Place::Synth(target)) if !last && target.tree == Tree::Ns => {
                            return Err(Errno::ENOTDIR.into());
                        }
                        Link::Place(Place::Synth(target)) => (at, path) = (target, rest.to_vec()),
                        Link::Place(Place::Ino(dir)) if !last => {
                            return Ok(Spot::Vfs { dir, path: join(b".", rest), links });
                        }
                        Link::Place(Place::File(_)) if !last => return Err(Errno::ENOTDIR.into()),
                        Link::Place(place) => return Ok(Spot::End(place)),
                    }
                }
                entry => {
                    if !last && !matches!(entry, Entry::Dir { .. }) {
                        return Err(Errno::ENOTDIR.into());
                    }
                    (at, path) = (next, rest.to_vec());
                }
            }
        }
    }
}

/// The working directory of a task.
pub(crate) fn cwd_place(place: &FsPlace) -> Place {
    let synthetic = place.cwd_synthetic.as_ref().and_then(|path| Synth::from_absolute(path));
    synthetic.map_or(Place::Ino(place.cwd), Place::Synth)
}

/// What a description refers to.
pub(crate) fn place_of(id: FileId, kind: &FileKind) -> Place {
    match kind {
        FileKind::Regular(ino)
        | FileKind::Dir(ino)
        | FileKind::Path(ino)
        | FileKind::Device { ino, .. }
        | FileKind::Tty { ino, .. } => Place::Ino(*ino),
        FileKind::Pipe { ino: Some(ino), .. } => Place::Ino(*ino),
        FileKind::Synthetic { path, .. } | FileKind::SyntheticDir { path, .. } => {
            Synth::from_absolute(path).map_or(Place::File(id), Place::Synth)
        }
        _ => Place::File(id),
    }
}

/// The first component of a path and the rest with its leading slash; `None` if there is no component.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let start = path.iter().position(|b| *b != b'/')?;
    let path = &path[start..];
    let end = path.iter().position(|b| *b == b'/').unwrap_or(path.len());
    Some((&path[..end], &path[end..]))
}

/// What is before the last component of a path.
fn directory_of(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').unwrap_or(0);
    path[..end].iter().rposition(|byte| *byte == b'/').map_or(b".", |slash| &path[..=slash])
}

fn join(head: &[u8], rest: &[u8]) -> Vec<u8> {
    [head, rest].concat()
}

/// Turns a failure of an operation on known inodes into a stop.
pub(crate) fn done<T>(outcome: Outcome<T>) -> SysResult<T> {
    outcome.map_err(|fail| match fail {
        Fail::Errno(e) => Stop::Errno(e),
        // Only a second path can lead there; a change between file systems is EXDEV.
        Fail::Synthetic(_) => Stop::Errno(Errno::EXDEV),
    })
}

//! Path resolution (path_resolution(7)): from a starting directory and a path to an inode or to the last name.
//!
//! Key type: [`Last`]. One loop walks components, follows links (at most 40) and crosses mounts; a synthetic mount
//! on the way ends the walk with [`Fail::Synthetic`].

use bloodhound_abi::Errno;

use crate::base::BaseFs;
use crate::flags::{
    MAXSYMLINKS, MAY_EXEC, NAME_MAX, PATH_MAX, RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV,
};
use crate::inode::Node;
use crate::mount::MountSpec;
use crate::perm::{allows, may_follow};
use crate::types::{Fail, Ino, Name, Outcome, SynthPath};
use crate::vfs::{At, Ctx, Vfs};

/// The last component of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// An ordinary name.
    Name(Name),
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// There is none: the path is `/`.
    Root,
}

/// A walk that stands in a directory before the last component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spot {
    /// The directory.
    pub(crate) dir: Ino,
    pub(crate) last: Last,
    /// Whether slashes follow the last component.
    pub(crate) slash: bool,
    /// Links followed so far.
    pub(crate) links: u32,
}

/// State of a walk: the rest of the path is `path[pos..]`.
struct Walker {
    at: Ino,
    path: Vec<u8>,
    pos: usize,
    links: u32,
}

impl Walker {
    /// The next component and whether only slashes follow; `None` at the end.
    fn next(&mut self) -> Option<(std::ops::Range<usize>, bool)> {
        let start = self.pos + self.path[self.pos..].iter().position(|b| *b != b'/')?;
        let end =
            self.path[start..].iter().position(|b| *b == b'/').map_or(self.path.len(), |len| start + len);
        self.pos = end;
        let last = self.path[end..].iter().all(|b| *b == b'/');
        Some((start..end, last))
    }

    /// What is left, without leading slashes.
    fn rest(&self) -> &[u8] {
        let rest = &self.path[self.pos..];
        let start = rest.iter().position(|b| *b != b'/').unwrap_or(rest.len());
        &rest[start..]
    }
}

impl Vfs {
    /// The inode that `at` names. `follow` says whether a link as last component is followed; a trailing slash
    /// always follows it.
    ///
    /// # Errors
    /// ENOENT (also for an empty path), ENOTDIR, EACCES, ELOOP, ENAMETOOLONG; [`Fail::Synthetic`].
    pub fn resolve(&mut self, ctx: &mut Ctx, at: At, follow: bool) -> Outcome<Ino> {
        let mut walker = self.start(ctx, at)?;
        loop {
            let spot = self.walk(ctx, &mut walker)?;
            let ino = match &spot.last {
                Last::Root | Last::Dot => spot.dir,
                Last::DotDot => self.up(ctx, spot.dir)?,
                Last::Name(name) => {
                    let found = self.look(ctx.base, spot.dir, name)?.ok_or(Errno::ENOENT)?;
                    if let Node::Symlink(target) = &self.inode(found)?.node
                        && (follow || spot.slash)
                    {
                        let target = target.clone();
                        self.follow(ctx, &mut walker, &target, (spot.dir, found), true)?;
                        continue;
                    }
                    let rest: &[u8] = if spot.slash { b"/" } else { b"" };
                    self.cross_in(ctx, found, rest, spot.links)?
                }
            };
            if spot.slash && !self.inode(ino)?.is_dir() {
                return Err(Errno::ENOTDIR.into());
            }
            return Ok(ino);
        }
    }

    /// Walks to the directory of the last component, which is not looked up.
    pub(crate) fn spot(&mut self, ctx: &mut Ctx, at: At) -> Outcome<Spot> {
        let mut walker = self.start(ctx, at)?;
        self.walk(ctx, &mut walker)
    }

    /// As [`Vfs::spot`], but the last component may be longer than a name can be.
    pub(crate) fn spot_of_any_length(&mut self, ctx: &mut Ctx, at: At) -> Outcome<Spot> {
        let mut walker = self.start(ctx, at)?;
        self.walk_any(ctx, &mut walker)
    }

    /// Walks like [`Vfs::spot`], and on through links as last component until there is none: the place where
    /// open(2) with O_CREAT makes the file. The second value is what the name means there, mounts crossed.
    pub(crate) fn spot_through_links(&mut self, ctx: &mut Ctx, at: At) -> Outcome<(Spot, Option<Ino>)> {
        let mut walker = self.start(ctx, at)?;
        loop {
            let spot = self.walk(ctx, &mut walker)?;
            let Last::Name(name) = &spot.last else { return Ok((spot, None)) };
            let Some(found) = self.look(ctx.base, spot.dir, name)? else { return Ok((spot, None)) };
            let Node::Symlink(target) = &self.inode(found)?.node else {
                let ino = self.cross_in(ctx, found, b"", spot.links)?;
                return Ok((spot, Some(ino)));
            };
            if spot.slash {
                return Ok((spot, Some(found)));
            }
            let target = target.clone();
            self.follow(ctx, &mut walker, &target, (spot.dir, found), true)?;
        }
    }

    fn start(&self, ctx: &Ctx, at: At) -> Result<Walker, Errno> {
        if at.path.is_empty() {
            return Err(Errno::ENOENT);
        }
        if at.path.len() >= PATH_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        // "EXDEV [...] RESOLVE_BENEATH [...] an absolute pathname" (openat2(2)).
        if at.path[0] == b'/' && ctx.resolve & RESOLVE_BENEATH != 0 {
            return Err(Errno::EXDEV);
        }
        let start = if at.path[0] == b'/' { ctx.root } else { at.dir };
        if !self.inode(start)?.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        Ok(Walker { at: start, path: at.path.to_vec(), pos: 0, links: ctx.links })
    }

    /// Goes on with a link's target before the rest of the path: `link` is its directory and itself, `trailing` says whether it is the
    /// last component.
    fn follow(
        &mut self,
        ctx: &Ctx,
        walker: &mut Walker,
        target: &[u8],
        link: (Ino, Ino),
        trailing: bool,
    ) -> Result<(), Errno> {
        walker.links += 1;
        if walker.links > MAXSYMLINKS {
            return Err(Errno::ELOOP);
        }
        if trailing {
            may_follow(self.inode(link.0)?, self.inode(link.1)?, ctx.cred)?;
        }
        if ctx.resolve & RESOLVE_NO_SYMLINKS != 0 {
            return Err(Errno::ELOOP);
        }
        self.link_read(link.1, ctx.now);
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        if target[0] == b'/' {
            // nd_jump_root: an absolute link leads out of what is beneath, and maybe to another mount.
            let leaves =
                ctx.resolve & RESOLVE_NO_XDEV != 0 && self.inode(walker.at)?.fs != self.inode(ctx.root)?.fs;
            if leaves || ctx.resolve & RESOLVE_BENEATH != 0 {
                return Err(Errno::EXDEV);
            }
            walker.at = ctx.root;
        }
        let mut path = target.to_vec();
        path.extend_from_slice(&walker.path[walker.pos..]);
        (walker.path, walker.pos) = (path, 0);
        Ok(())
    }

    /// The directory above, for a walk.
    fn up(&self, ctx: &Ctx, dir: Ino) -> Result<Ino, Errno> {
        if ctx.resolve != 0 {
            let top = dir == ctx.root || dir == self.root();
            let mounted = !top && matches!(self.space().below(dir), Some(Some(_)));
            if top && ctx.resolve & RESOLVE_BENEATH != 0 || mounted && ctx.resolve & RESOLVE_NO_XDEV != 0 {
                return Err(Errno::EXDEV);
            }
        }
        self.dotdot(dir, ctx.root)
    }

    /// [`Vfs::cross`] for a walk.
    fn cross_in(&self, ctx: &Ctx, ino: Ino, rest: &[u8], links: u32) -> Outcome<Ino> {
        match self.cross(ino, rest, links) {
            Ok(same) if same == ino => Ok(ino),
            Err(Fail::Errno(e)) => Err(e.into()),
            _ if ctx.resolve & RESOLVE_NO_XDEV != 0 => Err(Errno::EXDEV.into()),
            other => other,
        }
    }

    /// Walks all components but the last.
    fn walk(&mut self, ctx: &mut Ctx, walker: &mut Walker) -> Outcome<Spot> {
        let spot = self.walk_any(ctx, walker)?;
        match &spot.last {
            Last::Name(name) => {
                self.fits(spot.dir, name.len())?;
                Ok(spot)
            }
            _ => Ok(spot),
        }
    }

    /// ENAMETOOLONG for what is longer than a name can be. In a removed directory nothing is looked up, so it is not there
    /// (`__lookup_slow` of Linux asks IS_DEADDIR before it asks the file system).
    pub(crate) fn fits(&self, dir: Ino, len: usize) -> Result<(), Errno> {
        match len > NAME_MAX {
            true if self.is_removed(dir) => Err(Errno::ENOENT),
            true => Err(Errno::ENAMETOOLONG),
            false => Ok(()),
        }
    }

    fn walk_any(&mut self, ctx: &mut Ctx, walker: &mut Walker) -> Outcome<Spot> {
        loop {
            let (dir, links) = (walker.at, walker.links);
            let Some((range, is_last)) = walker.next() else {
                return Ok(Spot { dir, last: Last::Root, slash: false, links });
            };
            allows(self.inode(dir)?, ctx.cred, MAY_EXEC)?;
            if !is_last {
                self.fits(dir, range.len())?;
            }
            let part = &walker.path[range];
            if is_last {
                let last = match part {
                    b"." => Last::Dot,
                    b".." => Last::DotDot,
                    name => Last::Name(Name::from(name)),
                };
                return Ok(Spot { dir, last, slash: walker.pos < walker.path.len(), links });
            }
            match part {
                b"." => {}
                b".." => walker.at = self.up(ctx, dir)?,
                name => {
                    let found = self.look(ctx.base, dir, name)?.ok_or(Errno::ENOENT)?;
                    if let Node::Symlink(target) = &self.inode(found)?.node {
                        let target = target.clone();
                        self.follow(ctx, walker, &target, (dir, found), false)?;
                        continue;
                    }
                    walker.at = self.cross_in(ctx, found, walker.rest(), links)?;
                    if !self.inode(walker.at)?.is_dir() {
                        return Err(Errno::ENOTDIR.into());
                    }
                }
            }
        }
    }

    /// Looks `name` up in `dir` and remembers that the inode was found there.
    pub(crate) fn look(
        &mut self,
        base: &mut dyn BaseFs,
        dir: Ino,
        name: &[u8],
    ) -> Result<Option<Ino>, Errno> {
        let Some(ino) = self.child(base, dir, name)? else { return Ok(None) };
        let inode = self.inode(ino)?;
        let same = inode.seen.as_ref().is_some_and(|(parent, seen)| *parent == dir && **seen == *name);
        if !same && !inode.is_dir() {
            self.inode_mut(ino)?.seen = Some((dir, Name::from(name)));
        }
        Ok(Some(ino))
    }

    /// From a mount point to the root of what is mounted there; other inodes stay.
    pub(crate) fn cross(&self, ino: Ino, rest: &[u8], links: u32) -> Outcome<Ino> {
        let mut at = ino;
        let space = self.space();
        while let Some(id) = space.by_point.get(&at) {
            let Some(mount) = space.mounts.get(id) else { break };
            match (&mount.spec, mount.root) {
                (Some(MountSpec::Synthetic { tag, .. }), _) => {
                    let path = SynthPath { mount: *id, tag: *tag, rest: rest.to_vec(), links };
                    return Err(Fail::Synthetic(Box::new(path)));
                }
                (_, Some(root)) => at = root,
                (_, None) => break,
            }
        }
        Ok(at)
    }

    /// The directory above `dir`; a process's root is above itself.
    pub(crate) fn dotdot(&self, dir: Ino, root: Ino) -> Result<Ino, Errno> {
        let mut at = dir;
        loop {
            if at == root || at == self.root() {
                return Ok(at);
            }
            match self.space().below(at) {
                Some(Some(point)) => at = point,
                Some(None) => return Ok(at),
                // Of a removed directory even the one above may be gone.
                None => {
                    let parent = self.dir(at)?.parent;
                    return self.inode(parent).map(|_| parent).map_err(|_| Errno::ENOENT);
                }
            }
        }
    }
}

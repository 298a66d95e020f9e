//! Directory listings for getdents64(2), and paths of inodes for getcwd(2) and `/proc/self/fd`.

use bloodhound_abi::Errno;

use crate::base::BaseFs;
use crate::dir::{COOKIE_DOT, COOKIE_DOTDOT};
use crate::types::{Ino, Kind, Name};
use crate::vfs::Vfs;

/// One entry of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// `d_ino`.
    pub ino: Ino,
    /// `d_off`: the position after this entry; pass it to go on.
    pub next: u64,
    /// What it is.
    pub kind: Kind,
    /// The name.
    pub name: Name,
}

impl Vfs {
    /// Up to `limit` entries of `dir` after position `cookie` (0 at the start): `.`, `..`, then the names. Entries
    /// that are there all the time come exactly once, whatever is made or removed between calls.
    ///
    /// # Errors
    /// ENOTDIR, ENOENT for a removed directory, what the base layer reports.
    pub fn read_dir(
        &mut self,
        base: &mut dyn BaseFs,
        dir: Ino,
        cookie: u64,
        limit: usize,
    ) -> Result<Vec<DirEntry>, Errno> {
        let inode = self.inode(dir)?;
        if !inode.is_dir() {
            return Err(Errno::ENOTDIR);
        }
        if inode.meta.nlink == 0 {
            return Err(Errno::ENOENT);
        }
        self.complete(base, dir)?;
        let mut entries = Vec::new();
        let dots =
            [(COOKIE_DOT, &b"."[..], dir), (COOKIE_DOTDOT, &b".."[..], self.dotdot(dir, self.root())?)];
        for (next, name, ino) in dots {
            if cookie < next {
                entries.push(DirEntry { ino, next, kind: Kind::Directory, name: Name::from(name) });
            }
        }
        for (next, name, ino) in self.dir(dir)?.after(cookie) {
            if entries.len() >= limit {
                break;
            }
            entries.push(DirEntry { ino, next, kind: self.inode(ino)?.kind(), name: name.clone() });
        }
        entries.truncate(limit);
        Ok(entries)
    }

    /// Absolute path of `ino` as seen from `root`, for getcwd(2) and `/proc/self/fd`: of a file, the name under which
    /// it was last found. A removed file's path ends in ` (deleted)`, a directory outside of `root` begins with
    /// `(unreachable)`.
    pub fn path_of(&self, root: Ino, ino: Ino) -> Vec<u8> {
        let mut parts: Vec<Name> = Vec::new();
        let mut deleted = false;
        let mut at = ino;
        let unreachable = loop {
            if at == root {
                break false;
            }
            if at == self.root() {
                break true;
            }
            let Ok(inode) = self.inode(at) else { break true };
            match self.space().below(at) {
                Some(Some(point)) => {
                    at = point;
                    continue;
                }
                Some(None) => break true,
                None => {}
            }
            let Some((parent, name)) = &inode.seen else { break !self.is_unnamed_root(at) };
            let there = self.dir(*parent).ok().and_then(|dir| dir.slot(name));
            deleted |= !matches!(there, Some(crate::dir::Slot::Live { ino, .. }) if ino == at);
            parts.push(name.clone());
            at = *parent;
        };
        let mut path = if unreachable { b"(unreachable)".to_vec() } else { Vec::new() };
        for part in parts.iter().rev() {
            path.push(b'/');
            path.extend_from_slice(part);
        }
        if parts.is_empty() {
            path.push(b'/');
        }
        if deleted {
            path.extend_from_slice(b" (deleted)");
        }
        path
    }

    /// Whether `ino` is a directory that was removed: getcwd(2) then gives ENOENT.
    pub fn is_removed(&self, ino: Ino) -> bool {
        self.inode(ino).map_or(true, |inode| inode.meta.nlink == 0)
    }
}

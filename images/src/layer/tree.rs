//! The tree of one layer, built member by member. Later members replace earlier ones, as when an engine unpacks the archive; nothing is
//! looked up outside of the layer, except that a hard link to what is not there is one to a layer below.

use std::collections::{BTreeMap, VecDeque};

use super::path::names;
use super::{Inode, InodeKind, Target};
use crate::error::{Error, shown};
use crate::limits::{Limits, exceeded};
use crate::tar::{Kind, Member};

/// A file of this name removes the rest of the name from the layers below (OCI image specification, "Whiteouts").
const WHITEOUT: &[u8] = b".wh.";
/// A file of this name removes all that layers below have in its directory.
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Other names that begin so are of AUFS and mean nothing to anybody else.
const AUFS: &[u8] = b".wh..wh.";
/// Links that are followed in one name: Linux's MAXSYMLINKS.
const LINKS: u32 = 40;
/// Names in links that are followed in all names of a layer: otherwise few long links would cost minutes.
const FOLLOWED: u64 = 10_000_000;
/// The root's number.
const ROOT: usize = 0;

/// A name of the layer.
pub(crate) struct Node {
    pub(crate) name: Vec<u8>,
    parent: usize,
    pub(crate) children: BTreeMap<Vec<u8>, usize>,
    pub(crate) target: Target,
    /// What layers below have under this name is gone.
    pub(crate) whiteout: bool,
    /// What layers below have in this directory is gone.
    pub(crate) opaque: bool,
    /// A directory that no member describes, but that others lie in: layers below tell its owner and mode.
    pub(crate) implicit: bool,
}

/// The tree of one layer.
pub(crate) struct Tree<'a> {
    pub(crate) nodes: Vec<Node>,
    pub(crate) inodes: Vec<Inode>,
    limits: &'a Limits,
    /// Bytes of all files.
    bytes: u64,
    /// Names in links that were followed.
    followed: u64,
}

impl<'a> Tree<'a> {
    pub(crate) fn new(limits: &'a Limits) -> Tree<'a> {
        let mut tree = Tree { nodes: Vec::new(), inodes: Vec::new(), limits, bytes: 0, followed: 0 };
        tree.nodes.push(Node {
            name: Vec::new(),
            parent: ROOT,
            children: BTreeMap::new(),
            target: Target::Nothing,
            whiteout: false,
            opaque: false,
            implicit: true,
        });
        tree.make_implicit(ROOT);
        tree
    }

    /// Takes a member of the archive.
    pub(crate) fn add(&mut self, member: Member) -> Result<(), Error> {
        let name = member.name.clone();
        self.insert(member).map_err(|e| e.at(shown(&name)))
    }

    fn insert(&mut self, member: Member) -> Result<(), Error> {
        let mut parts = names(&member.name)?;
        let Some(last) = parts.pop_back() else {
            return self.root(member);
        };
        if parts.iter().any(|part| part.starts_with(WHITEOUT)) {
            return Err(Error::damaged("a whiteout is used as a directory"));
        }
        let last = last.to_vec();
        let parent = self.directory(parts.into_iter().map(<[u8]>::to_vec).collect())?;
        if last == OPAQUE {
            self.nodes[parent].opaque = true;
            return Ok(());
        }
        if last.starts_with(AUFS) {
            return Ok(());
        }
        if let Some(removed) = last.strip_prefix(WHITEOUT) {
            if matches!(removed, b"" | b"." | b"..") {
                return Err(Error::damaged("it is a whiteout of no name"));
            }
            let node = self.child(parent, removed)?;
            self.nodes[node].whiteout = true;
            return Ok(());
        }
        let is_dir = member.kind == Kind::Dir;
        let target = self.target(member)?;
        let node = self.child(parent, &last)?;
        let was_dir = self.dir(node);
        let node = &mut self.nodes[node];
        if !(was_dir && is_dir) {
            // What was there is replaced with all that lies in it.
            node.children.clear();
            node.opaque = false;
        }
        (node.target, node.implicit) = (target, false);
        Ok(())
    }

    /// The member that describes the root itself.
    fn root(&mut self, member: Member) -> Result<(), Error> {
        if member.kind != Kind::Dir {
            return Err(Error::damaged("the root of the image is no directory in it"));
        }
        self.nodes[ROOT].target = self.target(member)?;
        self.nodes[ROOT].implicit = false;
        Ok(())
    }

    /// What a member is; a new inode unless it is a link.
    fn target(&mut self, member: Member) -> Result<Target, Error> {
        let kind = match member.kind {
            Kind::HardLink => return self.hard_link(&member.link),
            Kind::Dir => InodeKind::Dir,
            Kind::Symlink => InodeKind::Symlink(link(member.link)?),
            Kind::Char => InodeKind::Char(member.device.0, member.device.1),
            Kind::Block => InodeKind::Block(member.device.0, member.device.1),
            Kind::Fifo => InodeKind::Fifo,
            Kind::File => {
                self.bytes = self.bytes.saturating_add(member.size);
                if self.bytes > self.limits.layer {
                    let (most, variable) = (self.limits.layer, "BLOODHOUND_IMAGE_MAX_LAYER");
                    return Err(exceeded("the files of the layer have", most, "bytes", variable));
                }
                InodeKind::File { size: member.size, offset: member.offset, extents: member.extents }
            }
        };
        let Member { mode, uid, gid, mtime, xattrs, .. } = member;
        Ok(self.inode(Inode { kind, mode, uid, gid, mtime, xattrs }))
    }

    fn inode(&mut self, inode: Inode) -> Target {
        self.inodes.push(inode);
        Target::Inode(u32::try_from(self.inodes.len() - 1).expect("bounded by the limit of members"))
    }

    /// Another name of what an earlier member, or a layer below, has at this path.
    fn hard_link(&self, path: &[u8]) -> Result<Target, Error> {
        let parts: VecDeque<Vec<u8>> =
            names(path).map_err(|e| e.at("target of a hard link"))?.into_iter().map(<[u8]>::to_vec).collect();
        let whole = Vec::from(parts.clone()).join(&b'/');
        let mut node = ROOT;
        for part in parts {
            match self.nodes[node].children.get(&part) {
                Some(child) => node = *child,
                None => return Ok(Target::Below(whole)),
            }
        }
        match &self.nodes[node].target {
            Target::Inode(inode) if matches!(self.inodes[*inode as usize].kind, InodeKind::Dir) => {
                Err(Error::damaged(format!("it is a hard link to the directory {}", shown(path))))
            }
            // A whiteout concerns layers below, and so does a link to what it hides.
            Target::Nothing => Ok(Target::Below(whole)),
            target => Ok(target.clone()),
        }
    }

    /// The directory at this path, made if it is not there. Symbolic links of the layer are followed within the image.
    fn directory(&mut self, mut parts: VecDeque<Vec<u8>>) -> Result<usize, Error> {
        let (mut node, mut links) = (ROOT, 0);
        while let Some(part) = parts.pop_front() {
            match part.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    // The root is its own parent, so a link cannot lead out of the image.
                    node = self.nodes[node].parent;
                    continue;
                }
                _ => {}
            }
            let child = self.child(node, &part)?;
            match &self.nodes[child].target {
                Target::Nothing => {
                    self.make_implicit(child);
                    node = child;
                }
                Target::Below(path) => {
                    let text =
                        format!("{} is a hard link to {} and used as a directory", shown(&part), shown(path));
                    return Err(Error::damaged(text));
                }
                Target::Inode(inode) => match &self.inodes[*inode as usize].kind {
                    InodeKind::Dir => node = child,
                    InodeKind::Symlink(target) => {
                        links += 1;
                        if links > LINKS {
                            return Err(Error::damaged("symbolic links in its path form a loop"));
                        }
                        if target.starts_with(b"/") {
                            node = ROOT;
                        }
                        for name in target.split(|byte| *byte == b'/').rev() {
                            parts.push_front(name.to_vec());
                            self.followed += 1;
                        }
                        if self.followed > FOLLOWED {
                            let text =
                                format!("more than {FOLLOWED} parts of symbolic links are in its paths");
                            return Err(Error::limit(text));
                        }
                    }
                    _ => return Err(Error::damaged(format!("{} is a file and a directory", shown(&part)))),
                },
            }
        }
        Ok(node)
    }

    fn make_implicit(&mut self, node: usize) {
        let dir =
            Inode { kind: InodeKind::Dir, mode: 0o755, uid: 0, gid: 0, mtime: (0, 0), xattrs: Vec::new() };
        self.nodes[node].target = self.inode(dir);
        self.nodes[node].implicit = true;
    }

    fn dir(&self, node: usize) -> bool {
        match self.nodes[node].target {
            Target::Inode(inode) => matches!(self.inodes[inode as usize].kind, InodeKind::Dir),
            _ => false,
        }
    }

    /// The node of this name in a directory, made if it is not there.
    fn child(&mut self, parent: usize, name: &[u8]) -> Result<usize, Error> {
        if let Some(child) = self.nodes[parent].children.get(name) {
            return Ok(*child);
        }
        let child = self.nodes.len();
        if child as u64 > self.limits.entries {
            let variable = "BLOODHOUND_IMAGE_MAX_ENTRIES";
            return Err(exceeded("the layer has", self.limits.entries, "files and directories", variable));
        }
        self.nodes[parent].children.insert(name.to_vec(), child);
        self.nodes.push(Node {
            name: name.to_vec(),
            parent,
            children: BTreeMap::new(),
            target: Target::Nothing,
            whiteout: false,
            opaque: false,
            implicit: false,
        });
        Ok(child)
    }
}

/// The target of a symbolic link, which may be anything: it is followed in the simulation only.
fn link(target: Vec<u8>) -> Result<Vec<u8>, Error> {
    if target.is_empty() || target.len() >= 4096 || target.contains(&0) {
        return Err(Error::damaged(format!("{} is no target of a symbolic link", shown(&target))));
    }
    Ok(target)
}

#[cfg(test)]
mod tests;

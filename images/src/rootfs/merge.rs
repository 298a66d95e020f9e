//! Laying the layers of an image upon each other (OCI image specification, "Layer Filesystem Changesets").
//!
//! Each directory of the result is made of the directories of that path in the layers, from the highest that has it down to one that
//! is opaque, is no directory, or was removed by a whiteout above. As children are sorted in every index, a
//! directory is one pass over all of them, and the tree is made level by level.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Content, Entry, EntryKind, FileId, Layer, Node, RootFs};
use crate::error::{Error, shown};
use crate::layer::InodeKind;
use crate::layer::index::NodeView;

/// A node of one of the layers.
#[derive(Clone, Copy)]
struct At {
    layer: usize,
    node: NodeView,
}

/// What is known of the inodes of a layer: the number that the result has for each, or 0.
type Numbers = Vec<Vec<u32>>;

struct Merge {
    layers: Vec<Arc<Layer>>,
    nodes: Vec<Node>,
    names: Vec<u8>,
    contents: Vec<Content>,
    numbers: Numbers,
    /// For each inode number of the result the file's content, and how many names it has.
    inodes: Vec<(Option<FileId>, u32)>,
}

/// The merged tree of these layers, the lowest first.
pub(super) fn merge(layers: Vec<Arc<Layer>>) -> Result<RootFs, Error> {
    let numbers = layers.iter().map(|layer| vec![0; layer.index.inodes() as usize]).collect();
    let most = layers.iter().map(|layer| layer.index.nodes() as usize).sum();
    let mut merge = Merge {
        layers,
        nodes: Vec::with_capacity(most),
        names: Vec::new(),
        contents: Vec::new(),
        numbers,
        inodes: vec![(None, 0)],
    };
    merge.tree()?;
    // How many names a file has is known at the end.
    for number in 0..merge.nodes.len() {
        let node = &merge.nodes[number];
        let nlink = if node.entry.kind == EntryKind::Dir {
            let (first, count) = (node.children.0 as usize, node.children.1 as usize);
            let below = &merge.nodes[first..first + count];
            2 + below.iter().filter(|child| child.entry.kind == EntryKind::Dir).count() as u32
        } else {
            merge.inodes[node.entry.inode as usize].1
        };
        merge.nodes[number].entry.nlink = nlink;
    }
    let Merge { layers, nodes, names, contents, .. } = merge;
    Ok(RootFs { layers, nodes, names, contents })
}

impl Merge {
    fn tree(&mut self) -> Result<(), Error> {
        let mut roots = Vec::new();
        for layer in (0..self.layers.len()).rev() {
            let root = At { layer, node: self.layers[layer].index.node(0) };
            roots.push(root);
            if root.node.opaque() {
                break;
            }
        }
        let described = roots.iter().find(|root| !root.node.implicit()).or(roots.first());
        let Some(described) = described.copied() else {
            return Err(Error::damaged("the image has no layers"));
        };
        self.push(described, b"")?;
        let mut queue = VecDeque::from([(0, roots)]);
        while let Some((at, dirs)) = queue.pop_front() {
            self.directory(at, &dirs, &mut queue)?;
        }
        Ok(())
    }

    /// Makes the children of one directory from those of all layers, the highest first.
    fn directory(
        &mut self,
        at: usize,
        dirs: &[At],
        queue: &mut VecDeque<(usize, Vec<At>)>,
    ) -> Result<(), Error> {
        let first = self.nodes.len();
        let layers = self.layers.clone();
        let mut cursors: Vec<(usize, u32, u32)> = dirs
            .iter()
            .map(|dir| (dir.layer, dir.node.children.0, dir.node.children.0 + dir.node.children.1))
            .collect();
        let mut same = Vec::with_capacity(dirs.len());
        loop {
            let mut name: Option<&[u8]> = None;
            same.clear();
            for (which, (layer, next, end)) in cursors.iter().enumerate() {
                if next == end {
                    continue;
                }
                let index = &layers[*layer].index;
                let node = index.node(*next);
                let other = index.name(node);
                if name.is_none_or(|name| other < name) {
                    name = Some(other);
                    same.clear();
                }
                if name == Some(other) {
                    same.push((which, At { layer: *layer, node }));
                }
            }
            let Some(name) = name else { break };
            same.iter().for_each(|(which, _)| cursors[*which].1 += 1);
            self.name(name, &same, queue)?;
        }
        let count = self.nodes.len() - first;
        self.nodes[at].children = (first as u32, count as u32);
        Ok(())
    }

    /// Makes one name from what the layers have under it, the highest first.
    fn name(
        &mut self,
        name: &[u8],
        same: &[(usize, At)],
        queue: &mut VecDeque<(usize, Vec<At>)>,
    ) -> Result<(), Error> {
        let mut chosen: Option<At> = None;
        let mut dirs = Vec::new();
        for (_, at) in same {
            let is_dir = self.layers[at.layer].index.is_dir(at.node);
            if at.node.present() {
                match chosen {
                    None => chosen = Some(*at),
                    Some(_) if !is_dir => break,
                    // Who owns a directory that a layer does not describe, layers below tell.
                    Some(upper) if upper.node.implicit() => chosen = Some(*at),
                    Some(_) => {}
                }
                if !is_dir {
                    break;
                }
                dirs.push(*at);
            }
            if at.node.whiteout() || at.node.opaque() {
                break;
            }
        }
        let Some(chosen) = chosen else { return Ok(()) };
        let number = self.push(chosen, name)?;
        if !dirs.is_empty() {
            queue.push_back((number, dirs));
        }
        Ok(())
    }

    /// Adds a node for what stands there; of a hard link to a layer below, for what it is a link to.
    fn push(&mut self, at: At, name: &[u8]) -> Result<usize, Error> {
        let (layer, inode) = self.resolve(at, name)?;
        let record = self.layers[layer].index.inode(inode);
        let mut number = self.numbers[layer][inode as usize];
        if number == 0 {
            number = self.inodes.len() as u32;
            self.numbers[layer][inode as usize] = number;
            self.inodes.push((None, 0));
        }
        let known = &mut self.inodes[number as usize];
        known.1 += 1;
        let kind = match record.kind {
            InodeKind::File { size, offset, extents } => {
                let id = *known.0.get_or_insert_with(|| {
                    self.contents.push(Content { layer: layer as u32, offset, size, extents });
                    FileId(self.contents.len() as u32 - 1)
                });
                EntryKind::File { id, size }
            }
            InodeKind::Dir => EntryKind::Dir,
            InodeKind::Symlink(target) => EntryKind::Symlink(target),
            InodeKind::Char(major, minor) => EntryKind::Char { major, minor },
            InodeKind::Block(major, minor) => EntryKind::Block { major, minor },
            InodeKind::Fifo => EntryKind::Fifo,
        };
        let entry = Entry {
            kind,
            mode: record.mode,
            uid: record.uid,
            gid: record.gid,
            mtime: record.mtime,
            xattrs: record.xattrs,
            inode: u64::from(number),
            nlink: 0,
        };
        let name = (self.names.len() as u32, name.len() as u32, self.names.extend(name));
        self.nodes.push(Node { name: (name.0, name.1), entry, children: (0, 0) });
        Ok(self.nodes.len() - 1)
    }

    /// Layer and inode that a node stands for. Links lead to ever lower layers, so this ends.
    fn resolve(&self, at: At, name: &[u8]) -> Result<(usize, u32), Error> {
        let (mut at, mut path) = (at, None);
        loop {
            let index = &self.layers[at.layer].index;
            if let Some(inode) = at.node.inode() {
                if path.is_some() && index.is_dir(at.node) {
                    let text = format!("{} is a hard link to a directory", shown(name));
                    return Err(Error::damaged(text));
                }
                return Ok((at.layer, inode));
            }
            let target = index.below(at.node).unwrap_or_default();
            let below = self.below(at.layer, target).ok_or_else(|| {
                let layer = self.layers[at.layer].digest;
                let text = format!("{} is a hard link to {}, which is not there", shown(name), shown(target));
                Error::damaged(text).at(format!("layer {layer}"))
            })?;
            (at, path) = (below, Some(target));
        }
    }

    /// What the layers below this one have at a path.
    fn below(&self, layer: usize, path: &[u8]) -> Option<At> {
        let mut dirs: Vec<At> = Vec::new();
        for layer in (0..layer).rev() {
            let root = At { layer, node: self.layers[layer].index.node(0) };
            dirs.push(root);
            if root.node.opaque() {
                break;
            }
        }
        let mut found = None;
        for part in path.split(|byte| *byte == b'/') {
            let mut next = Vec::new();
            found = None;
            for dir in &dirs {
                let Some(node) = self.layers[dir.layer].index.child(dir.node, part) else { continue };
                let at = At { layer: dir.layer, node };
                if node.present() {
                    let is_dir = self.layers[dir.layer].index.is_dir(node);
                    if found.is_some() && !is_dir {
                        break;
                    }
                    found = found.or(Some(at));
                    if !is_dir {
                        break;
                    }
                    next.push(at);
                }
                if node.whiteout() || node.opaque() {
                    break;
                }
            }
            dirs = next;
        }
        found
    }
}

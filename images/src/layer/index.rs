//! The tree of a layer as one compact piece of bytes, which the cache keeps beside the layer's archive. A start of a run reads it at once
//! instead of the whole archive.
//!
//! After the head come the nodes, the inodes, and a heap of bytes with names, links, attributes and maps of sparse
//! files; at the end a CRC-32 of all that. Numbers are little-endian. Nodes stand level by level; the children of a
//! directory stand next to each other, sorted by name, so that layers can be merged and names be looked up without
//! building anything. Everything is checked once, by [`Index::from_bytes`].

use std::collections::VecDeque;

use super::tree::Tree;
use super::{Inode, InodeKind, Target};
use crate::digest::Digest;
use crate::error::Error;
use crate::tar::Extent;

/// Changes with the format: an index of another one is made anew from the archive.
const MAGIC: &[u8; 8] = b"BHLAYER1";
/// Magic, digest, size of the archive, numbers of nodes and inodes, bytes of the heap.
const HEAD: usize = 8 + 32 + 8 + 4 + 4 + 8;
const NODE: usize = 24;
const INODE: usize = 56;
const CHECK: usize = 4;

const WHITEOUT: u32 = 1;
const OPAQUE: u32 = 2;
const IMPLICIT: u32 = 4;
/// The node is an inode of the layer.
const INODE_HERE: u32 = 8;
/// The node is a hard link to a layer below.
const BELOW: u32 = 16;

/// The index of one layer.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    bytes: Vec<u8>,
    nodes: u32,
    inodes: u32,
}

/// A name in an index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeView {
    name: (u32, u32),
    flags: u32,
    value: u32,
    /// First child and how many there are; for a link to a layer below the length of its path.
    pub(crate) children: (u32, u32),
}

impl NodeView {
    pub(crate) fn whiteout(&self) -> bool {
        self.flags & WHITEOUT != 0
    }

    pub(crate) fn opaque(&self) -> bool {
        self.flags & OPAQUE != 0
    }

    pub(crate) fn implicit(&self) -> bool {
        self.flags & IMPLICIT != 0
    }

    /// Whether the name stands for something, and is not just a whiteout.
    pub(crate) fn present(&self) -> bool {
        self.flags & (INODE_HERE | BELOW) != 0
    }

    /// The inode of this layer that it stands for.
    pub(crate) fn inode(&self) -> Option<u32> {
        (self.flags & INODE_HERE != 0).then_some(self.value)
    }
}

impl Index {
    /// The index of a layer whose archive has this digest and size.
    pub(crate) fn new(tree: &Tree<'_>, digest: &Digest, archive: u64) -> Result<Index, Error> {
        let mut heap = Vec::new();
        let mut nodes = Vec::new();
        let mut inodes = Vec::new();
        let mut queue = VecDeque::from([0]);
        let mut next = 1;
        while let Some(at) = queue.pop_front() {
            let node = &tree.nodes[at];
            let mut flags = [(node.whiteout, WHITEOUT), (node.opaque, OPAQUE), (node.implicit, IMPLICIT)]
                .iter()
                .map(|(set, flag)| if *set { *flag } else { 0 })
                .sum();
            let name = put(&mut heap, &node.name)?;
            let mut children = (next, narrow(node.children.len())?);
            let value = match &node.target {
                Target::Nothing => 0,
                Target::Inode(inode) => {
                    flags |= INODE_HERE;
                    *inode
                }
                Target::Below(path) => {
                    flags |= BELOW;
                    let (at, len) = put(&mut heap, path)?;
                    children = (0, len);
                    at
                }
            };
            queue.extend(node.children.values());
            next += narrow(node.children.len())?;
            for number in [name.0, name.1, flags, value, children.0, children.1] {
                nodes.extend(number.to_le_bytes());
            }
        }
        for inode in &tree.inodes {
            write_inode(inode, &mut inodes, &mut heap)?;
        }
        let mut bytes = Vec::with_capacity(HEAD + nodes.len() + inodes.len() + heap.len() + CHECK);
        bytes.extend(MAGIC);
        bytes.extend(digest.bytes());
        bytes.extend(archive.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        bytes.extend(narrow(tree.inodes.len())?.to_le_bytes());
        bytes.extend((heap.len() as u64).to_le_bytes());
        bytes.extend(nodes);
        bytes.extend(inodes);
        bytes.extend(heap);
        bytes.extend(checksum(&bytes).to_le_bytes());
        Index::from_bytes(bytes, digest)
    }

    /// An index that was written before, checked so that nothing in it can lead astray. `None` if it is not one of this layer.
    pub(crate) fn from_bytes(bytes: Vec<u8>, digest: &Digest) -> Result<Index, Error> {
        let damaged = |what: &str| Error::damaged(format!("the index of layer {digest} is damaged: {what}"));
        if bytes.len() < HEAD + CHECK || &bytes[..8] != MAGIC {
            return Err(damaged("it does not begin as one of this version"));
        }
        let body = bytes.len() - CHECK;
        if checksum(&bytes[..body]).to_le_bytes() != bytes[body..] {
            return Err(damaged("its checksum is wrong"));
        }
        if bytes[8..40] != digest.bytes() {
            return Err(damaged("it is that of another layer"));
        }
        let index = Index { nodes: word(&bytes, 48), inodes: word(&bytes, 52), bytes };
        let heap = long(&index.bytes, 56);
        let sum = (HEAD + CHECK) as u64
            + u64::from(index.nodes) * NODE as u64
            + u64::from(index.inodes) * INODE as u64;
        if sum.checked_add(heap) != Some(index.bytes.len() as u64) || index.nodes == 0 {
            return Err(damaged("its length is wrong"));
        }
        index.check(heap).ok_or_else(|| damaged("it is not consistent"))?;
        Ok(index)
    }

    /// Looks at every number once, so that nothing below needs to.
    fn check(&self, heap: u64) -> Option<()> {
        let inside = |at: u64, len: u64| at.checked_add(len).filter(|end| *end <= heap);
        let mut next: u64 = 1;
        for number in 0..self.nodes {
            let node = self.node(number);
            inside(u64::from(node.name.0), u64::from(node.name.1))?;
            if node.flags & BELOW != 0 {
                inside(u64::from(node.value), u64::from(node.children.1))?;
                continue;
            }
            // Children follow their directory, level by level: so the tree ends.
            if u64::from(node.children.0) != next {
                return None;
            }
            next += u64::from(node.children.1);
            if node.inode().is_some_and(|inode| inode >= self.inodes) {
                return None;
            }
        }
        if next != u64::from(self.nodes) {
            return None;
        }
        (0..self.inodes).try_for_each(|number| {
            let record = self.record(number);
            inside(u64::from(word(record, 48)), u64::from(word(record, 28)))?;
            let extents = word(record, 52);
            if extents != u32::MAX {
                inside(u64::from(word(record, 48)) + u64::from(word(record, 28)), u64::from(extents) * 24)?;
            }
            match word(record, 0) {
                0 | 1 | 3 | 4 | 5 => {}
                2 => drop(inside(long(record, 32), long(record, 40))?),
                _ => return None,
            }
            self.xattrs(record)?;
            Some(())
        })
    }

    /// How many inodes the layer has.
    pub(crate) fn inodes(&self) -> u32 {
        self.inodes
    }

    /// How many names the layer has.
    pub(crate) fn nodes(&self) -> u32 {
        self.nodes
    }

    /// The size of the archive that the index is about.
    pub(crate) fn archive(&self) -> u64 {
        long(&self.bytes, 40)
    }

    /// All of it, as it is written to a file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn node(&self, number: u32) -> NodeView {
        let at = HEAD + number as usize * NODE;
        let record = &self.bytes[at..at + NODE];
        NodeView {
            name: (word(record, 0), word(record, 4)),
            flags: word(record, 8),
            value: word(record, 12),
            children: (word(record, 16), word(record, 20)),
        }
    }

    pub(crate) fn name(&self, node: NodeView) -> &[u8] {
        self.heap(u64::from(node.name.0), u64::from(node.name.1))
    }

    /// The path in the layers below of which a node is another name.
    pub(crate) fn below(&self, node: NodeView) -> Option<&[u8]> {
        (node.flags & BELOW != 0).then(|| self.heap(u64::from(node.value), u64::from(node.children.1)))
    }

    /// The child of this name.
    pub(crate) fn child(&self, node: NodeView, name: &[u8]) -> Option<NodeView> {
        if node.flags & BELOW != 0 {
            return None;
        }
        let (mut from, mut to) = (node.children.0, node.children.0 + node.children.1);
        while from < to {
            let middle = from + (to - from) / 2;
            let child = self.node(middle);
            match self.name(child).cmp(name) {
                std::cmp::Ordering::Equal => return Some(child),
                std::cmp::Ordering::Less => from = middle + 1,
                std::cmp::Ordering::Greater => to = middle,
            }
        }
        None
    }

    pub(crate) fn is_dir(&self, node: NodeView) -> bool {
        node.inode().is_some_and(|inode| word(self.record(inode), 0) == 1)
    }

    pub(crate) fn inode(&self, number: u32) -> Inode {
        let record = self.record(number);
        let (a, b) = (long(record, 32), long(record, 40));
        let device = (a as u32, b as u32);
        let kind = match word(record, 0) {
            0 => InodeKind::File { offset: a, size: b, extents: self.extents(record) },
            1 => InodeKind::Dir,
            2 => InodeKind::Symlink(self.heap(a, b).to_vec()),
            3 => InodeKind::Char(device.0, device.1),
            4 => InodeKind::Block(device.0, device.1),
            _ => InodeKind::Fifo,
        };
        Inode {
            kind,
            mode: word(record, 4),
            uid: word(record, 8),
            gid: word(record, 12),
            mtime: (long(record, 16).cast_signed(), word(record, 24)),
            xattrs: self.xattrs(record).unwrap_or_default(),
        }
    }

    fn xattrs(&self, record: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut rest = self.heap(u64::from(word(record, 48)), u64::from(word(record, 28)));
        let mut xattrs = Vec::new();
        while !rest.is_empty() {
            let lengths = rest.get(..8)?;
            let (name, value) = (word(lengths, 0) as usize, word(lengths, 4) as usize);
            let name_end = name.checked_add(8)?;
            let end = name_end.checked_add(value)?;
            xattrs.push((rest.get(8..name_end)?.to_vec(), rest.get(name_end..end)?.to_vec()));
            rest = &rest[end..];
        }
        Some(xattrs)
    }

    fn extents(&self, record: &[u8]) -> Option<Vec<Extent>> {
        let count = word(record, 52);
        (count != u32::MAX).then(|| {
            let at = u64::from(word(record, 48)) + u64::from(word(record, 28));
            let pieces = self.heap(at, u64::from(count) * 24).chunks_exact(24);
            pieces.map(|p| Extent { at: long(p, 0), offset: long(p, 8), len: long(p, 16) }).collect()
        })
    }

    fn record(&self, inode: u32) -> &[u8] {
        let at = HEAD + self.nodes as usize * NODE + inode as usize * INODE;
        &self.bytes[at..at + INODE]
    }

    fn heap(&self, at: u64, len: u64) -> &[u8] {
        let begin = HEAD + self.nodes as usize * NODE + self.inodes as usize * INODE + at as usize;
        &self.bytes[begin..begin + len as usize]
    }
}

fn write_inode(inode: &Inode, out: &mut Vec<u8>, heap: &mut Vec<u8>) -> Result<(), Error> {
    let (mut a, mut b) = (0, 0);
    let kind: u32 = match &inode.kind {
        InodeKind::File { size, offset, .. } => {
            (a, b) = (*offset, *size);
            0
        }
        InodeKind::Dir => 1,
        InodeKind::Symlink(target) => {
            let (at, len) = put(heap, target)?;
            (a, b) = (u64::from(at), u64::from(len));
            2
        }
        InodeKind::Char(major, minor) => {
            (a, b) = (u64::from(*major), u64::from(*minor));
            3
        }
        InodeKind::Block(major, minor) => {
            (a, b) = (u64::from(*major), u64::from(*minor));
            4
        }
        InodeKind::Fifo => 5,
    };
    let extra = narrow(heap.len())?;
    for (name, value) in &inode.xattrs {
        heap.extend(narrow(name.len())?.to_le_bytes());
        heap.extend(narrow(value.len())?.to_le_bytes());
        heap.extend(name);
        heap.extend(value);
    }
    let xattrs = narrow(heap.len())? - extra;
    let mut pieces = u32::MAX;
    if let InodeKind::File { extents: Some(extents), .. } = &inode.kind {
        pieces = narrow(extents.len())?;
        for number in extents.iter().flat_map(|extent| [extent.at, extent.offset, extent.len]) {
            heap.extend(number.to_le_bytes());
        }
    }
    for number in [kind, inode.mode, inode.uid, inode.gid] {
        out.extend(number.to_le_bytes());
    }
    out.extend(inode.mtime.0.to_le_bytes());
    out.extend(inode.mtime.1.to_le_bytes());
    out.extend(xattrs.to_le_bytes());
    out.extend(a.to_le_bytes());
    out.extend(b.to_le_bytes());
    out.extend(extra.to_le_bytes());
    out.extend(pieces.to_le_bytes());
    Ok(())
}

/// Puts bytes on the heap: where and how many.
fn put(heap: &mut Vec<u8>, bytes: &[u8]) -> Result<(u32, u32), Error> {
    let at = narrow(heap.len())?;
    heap.extend(bytes);
    Ok((at, narrow(bytes.len())?))
}

fn narrow(number: usize) -> Result<u32, Error> {
    u32::try_from(number).map_err(|_| Error::limit("the names of the layer have more than 4 GiB"))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

fn long(bytes: &[u8], at: usize) -> u64 {
    let mut long = [0; 8];
    long.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(long)
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

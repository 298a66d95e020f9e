//! A layer: the changes that one step of a build made to a tree, as a tar archive. `tree` builds its tree from the archive, `index` is
//! the compact form in which the cache keeps that tree beside the uncompressed archive, `write` makes both. The
//! neighbours are `tar`, which reads the archive, and `rootfs`, which lays the trees of all layers upon each other.

pub(crate) mod index;
mod path;
pub(crate) mod tree;
pub(crate) mod write;

pub(crate) use index::Index;

/// What a file of a layer is, with what belongs to its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum InodeKind {
    /// Regular file: its size, and where its bytes lie in the archive; a sparse file's in pieces.
    File {
        size: u64,
        offset: u64,
        extents: Option<Vec<crate::tar::Extent>>,
    },
    Dir,
    Symlink(Vec<u8>),
    Char(u32, u32),
    Block(u32, u32),
    Fifo,
}

/// A file of a layer, which may have several names in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inode {
    pub(crate) kind: InodeKind,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mtime: (i64, u32),
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// What a name of a layer stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Nothing: the name is there because it is a whiteout.
    Nothing,
    /// This inode of the layer.
    Inode(u32),
    /// Another name of the file at this path of the layers below.
    Below(Vec<u8>),
}

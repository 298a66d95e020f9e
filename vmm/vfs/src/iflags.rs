//! Flags of inodes (ioctl_iflags(2), ioctl_xfs_fsgetxattr(2)): what chattr(1) sets. Two of them act everywhere, on who may change a file:
//! immutable and append-only; a third, on access times.
//!
//! Key type: [`Wanted`]. The disks are ext4, or overlayfs on it, which keeps the first two itself (`ovl_set_protattr`), so that descriptors
//! that are open already do not notice. Neighbours: [`perm`](crate::perm), [`attr`](crate::Vfs::chmod).

use bloodhound_abi::{Errno, SimTime};

use crate::inode::{Inode, Node};
use crate::mount::FsKind;
use crate::types::{Cred, Ino, Kind};
use crate::vfs::Vfs;

const SYNC: u32 = 0x8;
const IMMUTABLE: u32 = 0x10;
const APPEND: u32 = 0x20;
const NODUMP: u32 = 0x40;
const NOATIME: u32 = 0x80;
const JOURNAL_DATA: u32 = 0x4000;
const EXTENTS: u32 = 0x8_0000;
const DAX: u32 = 0x200_0000;
const PROJINHERIT: u32 = 0x2000_0000;
const CASEFOLD: u32 = 0x4000_0000;
/// FS_COMMON_FL with what FS_IOC_FSGETXATTR has for each (FS_XFLAG_COMMON).
const COMMON: [(u32, u32); 7] = [
    (SYNC, 0x20),
    (IMMUTABLE, 0x8),
    (APPEND, 0x10),
    (NODUMP, 0x80),
    (NOATIME, 0x40),
    (DAX, 0x8000),
    (PROJINHERIT, 0x200),
];
/// FS_XFLAG_EXTSIZE, FS_XFLAG_EXTSZINHERIT, FS_XFLAG_COWEXTSIZE.
const EXTSIZE: u32 = 0x800;
const EXTSZINHERIT: u32 = 0x1000;
const COWEXTSIZE: u32 = 0x1_0000;
/// SHMEM_FL_USER_MODIFIABLE, SHMEM_FL_INHERITED.
const TMPFS_MODIFIABLE: u32 = IMMUTABLE | APPEND | NODUMP | NOATIME;
const TMPFS_INHERITED: u32 = NODUMP | NOATIME;
/// EXT4_FL_USER_MODIFIABLE, EXT4_FL_USER_VISIBLE, EXT4_FL_INHERITED.
const EXT4_MODIFIABLE: u32 = 0x624b_c0ff;
const EXT4_VISIBLE: u32 = 0x725b_dfff;
const EXT4_INHERITED: u32 = 0x6201_c4cf;
/// DIRSYNC, TOPDIR, CASEFOLD and PROJINHERIT, which files cannot have (EXT4_REG_FLMASK).
const EXT4_OF_DIRECTORIES: u32 = 0x1_0000 | 0x2_0000 | CASEFOLD | PROJINHERIT;
/// Blocks of a file that does without extents (EXT4_NDIR_BLOCKS), as far as one that has them can be made so.
const DIRECT_BLOCKS: u64 = 12;

/// What statx(2) has for flags: those of tmpfs, and those of ext4 (COMPRESSED, ENCRYPTED and VERITY besides).
const STATX_FLAGS: u32 = IMMUTABLE | APPEND | NODUMP;
const STATX_EXT4: u64 = 0x4 | STATX_FLAGS as u64 | 0x800 | 0x10_0000;

/// What a program asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// FS_IOC_SETFLAGS.
    Flags(u32),
    /// FS_IOC_FSSETXATTR: fsx_xflags, fsx_extsize, fsx_projid, fsx_cowextsize.
    Extended([u32; 4]),
}

impl Inode {
    /// "A file with the 'i' attribute cannot be modified" (chattr(1)).
    pub(crate) fn is_immutable(&self) -> bool {
        self.meta.flags & IMMUTABLE != 0
    }

    /// "A file with the 'a' attribute set can only be opened in append mode for writing" (chattr(1)).
    pub(crate) fn is_append_only(&self) -> bool {
        self.meta.flags & APPEND != 0
    }

    /// Attributes and names of neither can be changed.
    ///
    /// # Errors
    /// EPERM.
    pub(crate) fn may_change_attributes(&self) -> Result<(), Errno> {
        if self.meta.flags & (IMMUTABLE | APPEND) == 0 { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Reads leave its access time as it is.
    pub(crate) fn keeps_atime(&self) -> bool {
        self.meta.flags & NOATIME != 0
    }

    /// EXTENTS is kept the other way round: files have it.
    fn shown_flags(&self, kind: FsKind) -> u32 {
        match (kind, self.is_dir()) {
            (FsKind::Tmpfs, _) => self.meta.flags,
            (_, true) => self.meta.flags ^ EXTENTS,
            (_, false) => (self.meta.flags ^ EXTENTS) & !PROJINHERIT,
        }
    }

    /// What a new inode has of its directory.
    pub(crate) fn inherit_flags(&mut self, dir: &Inode, kind: FsKind) {
        self.meta.flags = match (kind, &self.node) {
            (FsKind::Tmpfs, _) => dir.meta.flags & TMPFS_INHERITED,
            (_, Node::Directory(_)) => dir.meta.flags & EXT4_INHERITED,
            (_, Node::Regular { .. }) => dir.meta.flags & EXT4_INHERITED & !EXT4_OF_DIRECTORIES,
            _ => dir.meta.flags & EXT4_INHERITED & (NODUMP | NOATIME),
        };
    }
}

impl Vfs {
    /// FS_IOC_GETFLAGS.
    ///
    /// # Errors
    /// ENOTTY for what is neither a file nor a directory, and for pseudoterminals.
    pub fn flags(&self, ino: Ino) -> Result<u32, Errno> {
        let inode = self.inode(ino)?;
        if !matches!(inode.kind(), Kind::Regular | Kind::Directory) || self.is_devpts(ino) {
            return Err(Errno::ENOTTY);
        }
        Ok(inode.shown_flags(self.fs_of(ino)?.kind))
    }

    /// fsx_xflags of FS_IOC_FSGETXATTR; all else there is 0.
    ///
    /// # Errors
    /// As [`Vfs::flags`].
    pub fn extended_flags(&self, ino: Ino) -> Result<u32, Errno> {
        let flags = self.flags(ino)?;
        Ok(COMMON.iter().filter(|(flag, _)| flags & flag != 0).map(|(_, shown)| shown).sum())
    }

    /// FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR (`vfs_fileattr_set`). `privileged` says of CAP_LINUX_IMMUTABLE and CAP_SYS_RESOURCE.
    ///
    /// # Errors
    /// EROFS, ENOTTY, EPERM, EINVAL, EOPNOTSUPP.
    pub fn set_flags(
        &mut self,
        ino: Ino,
        cred: &Cred,
        privileged: [bool; 2],
        wanted: Wanted,
        now: SimTime,
    ) -> Result<(), Errno> {
        self.want_write(ino)?;
        let old = self.flags(ino)?;
        let inode = self.inode(ino)?;
        if !crate::perm::owns(inode, cred) {
            return Err(Errno::EPERM);
        }
        let flags = match wanted {
            Wanted::Flags(flags) => flags,
            Wanted::Extended([xflags, ..]) => COMMON.iter().fold(old, |flags, (flag, shown)| {
                flags & !flag | if xflags & shown != 0 { *flag } else { 0 }
            }),
        };
        // fileattr_set_prepare.
        let [may_fix, may_journal] = privileged;
        if (flags ^ old) & (IMMUTABLE | APPEND) != 0 && !may_fix {
            return Err(Errno::EPERM);
        }
        let (more, project) = check_extended(wanted, inode.is_dir())?;
        let kind = self.fs_of(ino)?.kind;
        if kind == FsKind::Tmpfs {
            if more || flags & !TMPFS_MODIFIABLE != 0 {
                return Err(Errno::EOPNOTSUPP);
            }
            return self.store_flags(ino, flags, now);
        }
        let set = flags & EXT4_MODIFIABLE;
        if flags & !EXT4_VISIBLE != 0 || !inode.is_dir() && set & EXT4_OF_DIRECTORIES != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        if kind != FsKind::Root {
            // "If immutable is set and we are not clearing it, we're not allowed to change anything else" (ext4_ioctl_check_immutable).
            let fixed = old & set & IMMUTABLE != 0;
            if fixed && old != set || (flags ^ old) & JOURNAL_DATA != 0 && !may_journal {
                return Err(Errno::EPERM);
            }
        }
        let exclusive = |one, other| flags & one != 0 && old & other != 0;
        if exclusive(DAX, JOURNAL_DATA) || exclusive(JOURNAL_DATA, DAX) || (flags ^ old) & CASEFOLD != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        // The rest has changed when a file turns out to be too large to lose its extents, or a project to be more than there are.
        let large = inode.blocks() > DIRECT_BLOCKS * 8 && old & !set & EXTENTS != 0;
        self.store_flags(ino, if large { set } else { set ^ EXTENTS }, now)?;
        if large || project { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
    }

    fn store_flags(&mut self, ino: Ino, flags: u32, now: SimTime) -> Result<(), Errno> {
        let time = self.stamp(now);
        let meta = &mut self.inode_mut(ino)?.meta;
        (meta.flags, meta.ctime) = (flags, time);
        if self.is_frozen(ino) {
            self.clean_pages(ino);
        }
        self.note_attributes(ino, now);
        Ok(())
    }

    /// Whether even descriptors and mappings that are there cannot change a file any more: ext4 looks at each write
    /// (`ext4_write_checks`, `ext4_page_mkwrite`).
    pub(crate) fn is_frozen(&self, ino: Ino) -> bool {
        let on_ext4 = self.fs_of(ino).is_ok_and(|fs| matches!(fs.kind, FsKind::Bind | FsKind::Volume));
        on_ext4 && self.inode(ino).is_ok_and(Inode::is_immutable)
    }

    /// Whether a file is on a tmpfs.
    pub fn is_in_memory(&self, ino: Ino) -> bool {
        self.fs_of(ino).is_ok_and(|fs| fs.kind == FsKind::Tmpfs)
    }

    /// Whether a file cannot be changed (FS_IMMUTABLE_FL). Descriptors that were there before can write to it on most file systems.
    pub fn is_immutable(&self, ino: Ino) -> bool {
        self.inode(ino).is_ok_and(Inode::is_immutable)
    }

    /// Whether a file may only grow: F_SETFL then cannot change O_APPEND, and no size can be set.
    pub fn is_append_only(&self, ino: Ino) -> bool {
        self.inode(ino).is_ok_and(Inode::is_append_only)
    }

    /// "We can only allow pure fallocate on append only files" (vfs_fallocate); `pure` is one that does no more than reserve.
    ///
    /// # Errors
    /// EPERM.
    pub fn may_reserve(&self, ino: Ino, pure: bool) -> Result<(), Errno> {
        let inode = self.inode(ino)?;
        let refused = inode.is_immutable() || inode.is_append_only() && !pure;
        if refused { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// stx_attributes and stx_attributes_mask, as far as the file system tells them.
    pub fn told_flags(&self, ino: Ino) -> (u64, u64) {
        let (Ok(inode), Ok(fs)) = (self.inode(ino), self.fs_of(ino)) else { return (0, 0) };
        let mask = match fs.kind {
            FsKind::Tmpfs if self.is_devpts(ino) => 0,
            FsKind::Tmpfs => u64::from(STATX_FLAGS),
            _ => STATX_EXT4,
        };
        (u64::from(inode.meta.flags & STATX_FLAGS), mask)
    }
}

/// Whether FS_IOC_FSSETXATTR asks for something that FS_IOC_SETFLAGS does not know, and whether for another project.
fn check_extended(wanted: Wanted, is_dir: bool) -> Result<(bool, bool), Errno> {
    let Wanted::Extended([xflags, extent, project, cow]) = wanted else { return Ok((false, false)) };
    // "-1 is no project" (projid_valid).
    if project == u32::MAX || xflags & EXTSIZE != 0 && is_dir || xflags & EXTSZINHERIT != 0 && !is_dir {
        return Err(Errno::EINVAL);
    }
    let common: u32 = COMMON.iter().map(|(_, shown)| shown).sum();
    // "Extent size hints of zero turn off the flags."
    let without = |flags, size| if size == 0 { flags } else { 0 };
    let ignored = without(EXTSIZE | EXTSZINHERIT, extent) | without(COWEXTSIZE, cow);
    let more = xflags & !common & !ignored != 0 || extent != 0 || project != 0 || cow != 0;
    Ok((more, project != 0))
}

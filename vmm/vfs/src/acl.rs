//! POSIX access control lists (acl(5)): who else has rights to a file, and what new files in a directory begin with.
//!
//! Key type: [`Acl`]. A list is kept as the extended attribute by which programs set and read it, so it is durable, weighed and copied as
//! any other; the permission bits of the mode and the entries that stand for them are changed together. Neighbours: [`perm`](crate::perm)
//! asks for rights, [`open`](crate::Vfs::open) and its kin make files.

use bloodhound_abi::{Errno, SimTime};

use crate::flags::*;
use crate::inode::{Inode, Meta, Node};
use crate::types::{Cred, FileCap, Ino, Kind};
use crate::vfs::{Ctx, Vfs};

/// The list that decides about access.
pub(crate) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The list of a directory that new files in it begin with.
pub(crate) const DEFAULT: &[u8] = b"system.posix_acl_default";
/// POSIX_ACL_XATTR_VERSION.
const VERSION: u32 = 2;
/// ACL_UNDEFINED_ID.
const NOBODY: u32 = u32::MAX;
const RIGHTS: u32 = 7;

/// e_tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    UserObj = 1,
    User = 2,
    GroupObj = 4,
    Group = 8,
    Mask = 16,
    Other = 32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: Tag,
    rights: u32,
    /// Of `User` and `Group`.
    id: u32,
}

/// A list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Acl(Vec<Entry>);

impl Acl {
    /// The list of an attribute (`posix_acl_from_xattr`); one without entries is none.
    ///
    /// # Errors
    /// EINVAL, EOPNOTSUPP for another version.
    fn parse(value: &[u8]) -> Result<Option<Acl>, Errno> {
        let (version, rest) = value.split_first_chunk().ok_or(Errno::EINVAL)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Errno::EOPNOTSUPP);
        }
        let (entries, []) = rest.as_chunks::<8>() else { return Err(Errno::EINVAL) };
        let entry = |[a, b, c, d, id @ ..]: &[u8; 8]| {
            let tag = match u16::from_le_bytes([*a, *b]) {
                1 => Tag::UserObj,
                2 => Tag::User,
                4 => Tag::GroupObj,
                8 => Tag::Group,
                16 => Tag::Mask,
                32 => Tag::Other,
                _ => return Err(Errno::EINVAL),
            };
            let (rights, id) = (u32::from(u16::from_le_bytes([*c, *d])), u32::from_le_bytes(*id));
            match tag {
                Tag::User | Tag::Group if id == NOBODY => Err(Errno::EINVAL),
                Tag::User | Tag::Group => Ok(Entry { tag, rights, id }),
                _ => Ok(Entry { tag, rights, id: NOBODY }),
            }
        };
        let entries: Vec<Entry> = entries.iter().map(entry).collect::<Result<_, _>>()?;
        Ok((!entries.is_empty()).then_some(Acl(entries)))
    }

    /// The attribute (`posix_acl_to_xattr`).
    fn value(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            out.extend((entry.tag as u16).to_le_bytes());
            out.extend((entry.rights as u16).to_le_bytes());
            out.extend(entry.id.to_le_bytes());
        }
        out
    }

    /// "A valid ACL contains exactly one entry with each of the ACL_USER_OBJ, ACL_GROUP_OBJ, and ACL_OTHER tag types [...]. An ACL that
    /// contains entries of ACL_USER or ACL_GROUP tag types must contain exactly one entry of the ACL_MASK tag type" (acl(5)), in this order
    /// (`posix_acl_valid`). The same user may be named twice.
    ///
    /// # Errors
    /// EINVAL.
    fn check(&self) -> Result<(), Errno> {
        let (mut next, mut needs_mask) = (Some(Tag::UserObj), false);
        for entry in &self.0 {
            if entry.rights & !RIGHTS != 0 {
                return Err(Errno::EINVAL);
            }
            next = match (entry.tag, next) {
                (Tag::UserObj, Some(Tag::UserObj)) => Some(Tag::User),
                (Tag::User, Some(Tag::User)) | (Tag::Group, Some(Tag::Group)) => {
                    needs_mask = true;
                    next
                }
                (Tag::GroupObj, Some(Tag::User)) => Some(Tag::Group),
                (Tag::Mask, Some(Tag::Group)) => Some(Tag::Other),
                (Tag::Other, Some(Tag::Other)) => None,
                (Tag::Other, Some(Tag::Group)) if !needs_mask => None,
                _ => return Err(Errno::EINVAL),
            };
        }
        if next.is_none() { Ok(()) } else { Err(Errno::EINVAL) }
    }

    /// The permission bits that it has, and whether these say all of it (`posix_acl_equiv_mode`).
    fn mode(&self) -> (u32, bool) {
        let (mut mode, mut all) = (0, true);
        for Entry { tag, rights, .. } in &self.0 {
            match tag {
                Tag::UserObj => mode |= rights << 6,
                Tag::GroupObj => mode |= rights << 3,
                Tag::Other => mode |= rights,
                Tag::Mask => mode = mode & !0o070 | rights << 3,
                Tag::User | Tag::Group => {}
            }
            all &= matches!(tag, Tag::UserObj | Tag::GroupObj | Tag::Other);
        }
        (mode, all)
    }

    /// The entry that the group's bits of a mode stand for: "the mask if there is one" (acl(5), "CORRESPONDENCE BETWEEN ACL ENTRIES AND
    /// FILE PERMISSION BITS").
    fn group_class(&mut self) -> Option<&mut Entry> {
        let of = |tag| self.0.iter().position(|entry| entry.tag == tag);
        let at = of(Tag::Mask).or_else(|| of(Tag::GroupObj))?;
        self.0.get_mut(at)
    }

    /// Takes over the permission bits of a mode (`__posix_acl_chmod`).
    fn set_mode(&mut self, mode: u32) {
        for entry in &mut self.0 {
            match entry.tag {
                Tag::UserObj => entry.rights = mode >> 6 & RIGHTS,
                Tag::Other => entry.rights = mode & RIGHTS,
                _ => {}
            }
        }
        if let Some(group) = self.group_class() {
            group.rights = mode >> 3 & RIGHTS;
        }
    }

    /// The list of a new file of this mode; each has what both allow (`posix_acl_create_masq`).
    fn limit(&mut self, mode: u32) {
        for entry in &mut self.0 {
            match entry.tag {
                Tag::UserObj => entry.rights &= mode >> 6,
                Tag::Other => entry.rights &= mode,
                _ => {}
            }
        }
        if let Some(group) = self.group_class() {
            group.rights &= mode >> 3;
        }
    }

    /// Whether somebody who is not the owner may do all of `want` (acl(5), "ACCESS CHECK ALGORITHM"; `posix_acl_permission`).
    fn allows(&self, gid: u32, cred: &Cred, want: u32) -> bool {
        let want = want & RIGHTS;
        let mut in_some_group = false;
        for Entry { tag, rights, id } in &self.0 {
            let masked = || {
                let mask = self.0.iter().find(|entry| entry.tag == Tag::Mask);
                want & !(rights & mask.map_or(RIGHTS, |mask| mask.rights)) == 0
            };
            match tag {
                Tag::User if *id == cred.uid => return masked(),
                Tag::GroupObj | Tag::Group
                    if cred.in_group(if *tag == Tag::GroupObj { gid } else { *id }) =>
                {
                    in_some_group = true;
                    if want & !rights == 0 {
                        return masked();
                    }
                }
                Tag::Other => return !in_some_group && want & !rights == 0,
                _ => {}
            }
        }
        false
    }
}

impl Meta {
    fn acl(&self, name: &[u8]) -> Option<Acl> {
        Acl::parse(self.xattrs.as_ref()?.get(name)?).ok().flatten()
    }

    fn set_acl(&mut self, name: &[u8], acl: Option<&Acl>) {
        self.set_xattr(name, acl.map(Acl::value));
    }

    /// Whether its list lets somebody who is not the owner do all of `want`, if there is one that counts: "if ((mode & S_IRWXG)"
    /// (acl_permission_check).
    pub(crate) fn acl_allows(&self, cred: &Cred, want: u32) -> Option<bool> {
        if self.mode & 0o070 == 0 {
            return None;
        }
        Some(self.acl(ACCESS)?.allows(self.gid, cred, want))
    }

    /// Sets the mode; the list follows (`posix_acl_chmod`).
    pub(crate) fn set_mode(&mut self, mode: u32) {
        self.mode = mode;
        if let Some(mut acl) = self.acl(ACCESS) {
            acl.set_mode(mode);
            self.set_acl(ACCESS, Some(&acl));
        }
    }

    /// What a new file begins with in a directory: its default list in place of the umask: "If the parent directory of the new file has
    /// a default ACL [...] the umask is ignored" (acl(5), umask(2); `posix_acl_create`).
    pub(crate) fn inherit(&mut self, dir: &Meta, is_dir: bool, umask: u32) {
        let Some(default) = dir.acl(DEFAULT) else {
            self.mode &= !umask;
            return;
        };
        let mut acl = default.clone();
        acl.limit(self.mode);
        let (bits, all) = acl.mode();
        self.mode = self.mode & !0o777 | bits;
        if !all {
            self.set_acl(ACCESS, Some(&acl));
        }
        if is_dir {
            self.set_acl(DEFAULT, Some(&default));
        }
    }
}

/// Whether an attribute is a list.
pub(crate) fn is_list(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

impl Vfs {
    /// Whether an inode may have lists: not a symbolic link, nor what is in the file system of pseudoterminals.
    ///
    /// # Errors
    /// EOPNOTSUPP.
    pub(crate) fn takes_lists(&self, ino: Ino, inode: &Inode) -> Result<(), Errno> {
        let none = inode.kind() == Kind::Symlink || self.is_devpts(ino);
        if none { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
    }

    /// Sets or removes a list (`set_posix_acl`). One that says no more than the mode is not kept.
    ///
    /// # Errors
    /// EINVAL, EOPNOTSUPP, EACCES for the default list of what is no directory, EPERM.
    pub(crate) fn set_list(
        &mut self,
        ino: Ino,
        cred: &Cred,
        name: &[u8],
        value: Option<&[u8]>,
        now: SimTime,
    ) -> Result<(), Errno> {
        let mut acl = value.map_or(Ok(None), Acl::parse)?;
        let inode = self.inode(ino)?;
        self.takes_lists(ino, inode)?;
        if name == DEFAULT && !inode.is_dir() {
            if acl.is_some() {
                return Err(Errno::EACCES);
            }
            self.tell_change(ino, IN_ATTRIB);
            return Ok(());
        }
        if !crate::perm::owns(inode, cred) {
            return Err(Errno::EPERM);
        }
        if let Some(acl) = &acl {
            acl.check()?;
        }
        let mut mode = inode.meta.mode;
        if name == ACCESS {
            if let Some((bits, all)) = acl.as_ref().map(Acl::mode) {
                mode = mode & !0o777 | bits;
                acl = acl.filter(|_| !all);
            }
            // As chmod(2) does (posix_acl_update_mode).
            if !cred.has(FileCap::Fsetid) && !cred.in_group(inode.meta.gid) {
                mode &= !S_ISGID;
            }
        }
        let time = self.stamp(now);
        let meta = &mut self.inode_mut(ino)?.meta;
        meta.set_acl(name, acl.as_ref());
        (meta.mode, meta.ctime) = (mode, time);
        self.count_kept(ino);
        self.note_attributes(ino, now);
        self.tell_change(ino, IN_ATTRIB);
        Ok(())
    }

    /// A new inode for `dir` with one link, not yet in the table.
    pub(crate) fn draft(&self, ctx: &Ctx, dir: Ino, mode: u32, node: Node) -> Result<Inode, Errno> {
        let parent = self.inode(dir)?;
        let mut meta = crate::vfs::meta(mode, ctx.cred.uid, ctx.cred.gid, self.stamp(ctx.now));
        let is_dir = matches!(node, Node::Directory(_));
        // A symbolic link has all rights.
        if !matches!(node, Node::Symlink(_)) {
            meta.inherit(&parent.meta, is_dir, ctx.umask);
        }
        // inode(7): in a set-group-ID directory new files take the directory's group, new directories the bit too.
        if parent.meta.mode & S_ISGID != 0 {
            meta.gid = parent.meta.gid;
            meta.mode |= if is_dir { S_ISGID } else { 0 };
        }
        let mut inode = Inode::new(parent.fs, meta, node);
        inode.inherit_flags(parent, self.fs_of(dir)?.kind);
        self.may_keep(&inode)?;
        Ok(inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(Tag, u32, u32)]) -> Acl {
        Acl(entries.iter().map(|(tag, rights, id)| Entry { tag: *tag, rights: *rights, id: *id }).collect())
    }

    /// rwx for the owner, entries for two users and two groups, a mask without x.
    fn example() -> Acl {
        list(&[
            (Tag::UserObj, 7, NOBODY),
            (Tag::User, 7, 1000),
            (Tag::User, 0, 1001),
            (Tag::GroupObj, 4, NOBODY),
            (Tag::Group, 2, 50),
            (Tag::Group, 1, 51),
            (Tag::Mask, 6, NOBODY),
            (Tag::Other, 5, NOBODY),
        ])
    }

    #[test]
    fn a_list_is_its_attribute() {
        assert_eq!(Acl::parse(&example().value()), Ok(Some(example())));
        assert_eq!(Acl::parse(&VERSION.to_le_bytes()), Ok(None));
        assert_eq!(Acl::parse(&[]), Err(Errno::EINVAL));
        assert_eq!(Acl::parse(&[1, 0, 0, 0]), Err(Errno::EOPNOTSUPP));
        assert_eq!(Acl::parse(&example().value()[..19]), Err(Errno::EINVAL));
    }

    #[test]
    fn order_and_mask_are_checked() {
        assert_eq!(example().check(), Ok(()));
        let mut without_mask = example();
        without_mask.0.remove(6);
        assert_eq!(without_mask.check(), Err(Errno::EINVAL));
        let mut turned = example();
        turned.0.swap(1, 3);
        assert_eq!(turned.check(), Err(Errno::EINVAL));
        let mut wide = example();
        wide.0[0].rights = 8;
        assert_eq!(wide.check(), Err(Errno::EINVAL));
        assert_eq!(
            list(&[(Tag::UserObj, 7, NOBODY), (Tag::GroupObj, 0, NOBODY), (Tag::Other, 0, NOBODY)]).check(),
            Ok(())
        );
    }

    #[test]
    fn entries_decide_in_their_order_below_the_mask() {
        let may = |uid, groups: &[u32], want| {
            let cred = Cred { groups: groups.into(), ..Cred::user(uid, 9999) };
            example().allows(100, &cred, want)
        };
        assert!(may(1000, &[], MAY_READ | MAY_WRITE) && !may(1000, &[], MAY_EXEC));
        assert!(!may(1001, &[100], MAY_READ));
        assert!(may(1, &[100, 50], MAY_READ) && may(1, &[100, 50], MAY_WRITE));
        // No one entry has both; and a member of a group is none of the others.
        assert!(!may(1, &[100, 50], MAY_READ | MAY_WRITE) && !may(1, &[50], MAY_READ));
        assert!(!may(1, &[51], MAY_EXEC), "the mask");
        assert!(may(1, &[], MAY_READ | MAY_EXEC) && !may(1, &[], MAY_WRITE));
    }

    #[test]
    fn mode_and_list_follow_each_other() {
        assert_eq!(example().mode(), (0o765, false));
        let mut acl = example();
        acl.set_mode(0o640);
        assert_eq!((acl.mode().0, acl.0[3].rights), (0o640, 4), "the group's own entry stays");
        let mut acl = example();
        acl.limit(0o666);
        assert_eq!(acl.mode().0, 0o664);
    }
}

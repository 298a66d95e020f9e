//! rename(2), renameat2(2) with RENAME_NOREPLACE, RENAME_EXCHANGE and RENAME_WHITEOUT.

use bloodhound_abi::{Errno, SimTime};

use crate::flags::{MAY_WRITE, RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT};
use crate::inode::Node;
use crate::mount::FsKind;
use crate::perm::allows;
use crate::types::{Dev, Ino, Name, Outcome};
use crate::vfs::{At, Ctx, Vfs};
use crate::walk::{Last, Spot};

/// Both ends of a rename after all checks.
struct Move {
    old: (Ino, Name, Ino),
    new: (Ino, Name, Option<Ino>),
}

/// Whether renameat2(2) takes these flags: RENAME_EXCHANGE goes with no other.
pub fn rename_flags(flags: u32) -> bool {
    let known = RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT;
    flags & !known == 0 && (flags & RENAME_EXCHANGE == 0 || flags == RENAME_EXCHANGE)
}

impl Vfs {
    /// Walks to the directory of a name.
    ///
    /// # Errors
    /// Those of resolution, but for the last component.
    pub fn find_parent(&mut self, ctx: &mut Ctx, at: At) -> Outcome<()> {
        self.spot_of_any_length(ctx, at).map(|_| ())
    }

    /// renameat2(2); rename(2) with flags 0.
    ///
    /// # Errors
    /// EACCES, EBUSY, EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY, EPERM, EROFS, EXDEV; those of resolution.
    /// RENAME_WHITEOUT gives EINVAL on overlayfs.
    pub fn rename(&mut self, ctx: &mut Ctx, old: At, new: At, flags: u32) -> Outcome<()> {
        if !rename_flags(flags) {
            return Err(Errno::EINVAL.into());
        }
        // Names are too long for the file system, which is asked for them last.
        let from = self.spot_of_any_length(ctx, old)?;
        let to = self.spot_of_any_length(ctx, new)?;
        if self.inode(from.dir)?.fs != self.inode(to.dir)?.fs {
            return Err(Errno::EXDEV.into());
        }
        let (old_name, new_name) = match (&from.last, &to.last) {
            (Last::Name(old), Last::Name(new)) => (old.clone(), new.clone()),
            (Last::Name(_), _) if flags & RENAME_NOREPLACE != 0 => return Err(Errno::EEXIST.into()),
            _ => return Err(Errno::EBUSY.into()),
        };
        self.want_write(from.dir)?;
        self.fits(from.dir, old_name.len())?;
        let source = self.look(ctx.base, from.dir, &old_name)?.ok_or(Errno::ENOENT)?;
        self.fits(to.dir, new_name.len())?;
        let target = self.look(ctx.base, to.dir, &new_name)?;
        // Nothing is looked up in a directory that was removed (__lookup_hash).
        if target.is_none() && self.inode(to.dir)?.meta.nlink == 0 {
            return Err(Errno::ENOENT.into());
        }
        self.check_shape(&from, &to, source, target, flags)?;
        if target == Some(source) {
            // rename(2): "If oldpath and newpath are existing hard links referring to the same file, then rename()
            // does nothing, and returns a success status."
            return Ok(());
        }
        self.check_rights(ctx, &from, &to, source, target, flags)?;
        let step = Move { old: (from.dir, old_name, source), new: (to.dir, new_name, target) };
        if flags & RENAME_EXCHANGE != 0 {
            return Ok(self.swap(&step, ctx.now)?);
        }
        // ovl_rename knows no such flag.
        let whiteout = flags & RENAME_WHITEOUT != 0;
        if whiteout && self.fs_of(from.dir)?.kind == FsKind::Root {
            return Err(Errno::EINVAL.into());
        }
        if let Some(target) = target
            && self.inode(target)?.is_dir()
        {
            self.complete(ctx.base, target)?;
            if self.dir(target)?.len() > 0 {
                return Err(Errno::ENOTEMPTY.into());
            }
        }
        // "a character device with device number 0/0" (renameat2(2)), of mode 0 (WHITEOUT_MODE). It is made before anything moves, as
        // there may be no room for it (shmem_whiteout, ext4_whiteout_for_rename).
        let hole = match whiteout {
            true => Some(self.draft(ctx, from.dir, 0, Node::CharDevice(Dev::default()))?),
            false => None,
        };
        self.move_over(&step, ctx.now)?;
        if let Some(hole) = hole {
            self.place(ctx, from.dir, &step.old.1, hole)?;
        }
        Ok(())
    }

    /// Existence, trailing slashes and ancestry (do_renameat2 in Linux).
    fn check_shape(
        &self,
        from: &Spot,
        to: &Spot,
        source: Ino,
        target: Option<Ino>,
        flags: u32,
    ) -> Result<(), Errno> {
        let exchange = flags & RENAME_EXCHANGE != 0;
        match target {
            Some(_) if flags & RENAME_NOREPLACE != 0 => return Err(Errno::EEXIST),
            None if exchange => return Err(Errno::ENOENT),
            Some(target) if exchange && to.slash && !self.inode(target)?.is_dir() => {
                return Err(Errno::ENOTDIR);
            }
            _ => {}
        }
        // "unless the source is a directory trailing slashes give -ENOTDIR"
        if !self.inode(source)?.is_dir() && (from.slash || (!exchange && to.slash)) {
            return Err(Errno::ENOTDIR);
        }
        if self.is_under(to.dir, source)? {
            return Err(Errno::EINVAL);
        }
        if let Some(target) = target
            && self.is_under(from.dir, target)?
        {
            return Err(if exchange { Errno::EINVAL } else { Errno::ENOTEMPTY });
        }
        Ok(())
    }

    /// Permissions and mount points (vfs_rename in Linux).
    fn check_rights(
        &self,
        ctx: &Ctx,
        from: &Spot,
        to: &Spot,
        source: Ino,
        target: Option<Ino>,
        flags: u32,
    ) -> Result<(), Errno> {
        let is_dir = self.inode(source)?.is_dir();
        self.may_delete(from.dir, source, ctx.cred, is_dir)?;
        match target {
            None => self.may_create(to.dir, ctx.cred)?,
            Some(target) if flags & RENAME_EXCHANGE != 0 => {
                let target_is_dir = self.inode(target)?.is_dir();
                self.may_delete(to.dir, target, ctx.cred, target_is_dir)?;
                if target_is_dir && from.dir != to.dir {
                    allows(self.inode(target)?, ctx.cred, MAY_WRITE)?;
                }
            }
            Some(target) => self.may_delete(to.dir, target, ctx.cred, is_dir)?,
        }
        // A directory that moves gets another `..`: that is a write to it.
        if is_dir && from.dir != to.dir {
            allows(self.inode(source)?, ctx.cred, MAY_WRITE)?;
        }
        let covered = |ino: Ino| self.is_covered(ino);
        if covered(source) || target.is_some_and(covered) {
            return Err(Errno::EBUSY);
        }
        Ok(())
    }

    fn move_over(&mut self, step: &Move, now: SimTime) -> Result<(), Errno> {
        let ((from, old_name, source), (to, new_name, target)) = (&step.old, &step.new);
        let is_dir = self.inode(*source)?.is_dir();
        self.dir_mut(*from)?.remove(old_name, is_dir);
        match target {
            Some(target) => {
                let was_dir = self.inode(*target)?.is_dir();
                self.dir_mut(*to)?.replace(new_name, *source, was_dir, is_dir);
            }
            None => {
                let order = self.config.order;
                self.dir_mut(*to)?.insert(new_name.clone(), *source, is_dir, order);
            }
        }
        if target.is_some() {
            self.allocate(*source);
        }
        self.note_names(now, &[(*from, old_name, None), (*to, new_name, Some(*source))]);
        self.settle(*source, *to, new_name, now)?;
        self.touch_dir(*from, now)?;
        self.touch_dir(*to, now)?;
        self.tell_move((*from, old_name), (*to, new_name), *source, *target);
        if let Some(target) = target {
            self.drop_link(*target, now)?;
        }
        Ok(())
    }

    fn swap(&mut self, step: &Move, now: SimTime) -> Result<(), Errno> {
        let ((from, old_name, source), (to, new_name, target)) = (&step.old, &step.new);
        let Some(target) = target else { return Err(Errno::ENOENT) };
        let (source_is_dir, target_is_dir) = (self.inode(*source)?.is_dir(), self.inode(*target)?.is_dir());
        self.dir_mut(*from)?.replace(old_name, *target, source_is_dir, target_is_dir);
        self.dir_mut(*to)?.replace(new_name, *source, target_is_dir, source_is_dir);
        self.note_names(now, &[(*from, old_name, Some(*target)), (*to, new_name, Some(*source))]);
        self.settle(*source, *to, new_name, now)?;
        self.settle(*target, *from, old_name, now)?;
        self.touch_dir(*from, now)?;
        self.touch_dir(*to, now)?;
        self.tell_move((*from, old_name), (*to, new_name), *source, None);
        self.tell_move((*to, new_name), (*from, old_name), *target, None);
        Ok(())
    }

    /// Tells an inode where it is now.
    fn settle(&mut self, ino: Ino, dir: Ino, name: &Name, now: SimTime) -> Result<(), Errno> {
        let time = self.stamp(now);
        let inode = self.inode_mut(ino)?;
        inode.meta.ctime = time;
        inode.seen = Some((dir, name.clone()));
        if let Some(content) = inode.dir_mut() {
            content.parent = dir;
        }
        Ok(())
    }

    /// Whether directory `dir` is `above` or lies below it, within one file system.
    fn is_under(&self, dir: Ino, above: Ino) -> Result<bool, Errno> {
        let root = self.fs_of(dir)?.root;
        let mut at = dir;
        loop {
            if at == above {
                return Ok(true);
            }
            if at == root {
                return Ok(false);
            }
            match self.dir(at) {
                Ok(dir) => at = dir.parent,
                Err(_) => return Ok(false), // above a removed directory
            }
        }
    }
}

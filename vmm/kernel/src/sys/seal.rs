//! File seals (fcntl(2), "File Sealing"): what may no longer happen to a memfd_create(2) file. Neighbours: the calls that
//! write, resize and map files ask here first.

use bloodhound_abi::Errno;
use bloodhound_persistent::Map;
use bloodhound_vfs::Ino;

use crate::ctx::*;
use crate::file::FileKind;
use crate::ids::FileId;
use crate::mm::{Backing, PAGE, Vma};
use crate::wait::SysResult;

/// No further seals.
const SEAL: u64 = 1;
const SHRINK: u64 = 2;
const GROW: u64 = 4;
const WRITE: u64 = 8;
/// As `WRITE`, but mappings that exist may go on.
const FUTURE_WRITE: u64 = 16;

/// So many are not looked through.
const FEW: usize = 64;

/// The seals of the files of memfd_create(2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seals {
    of: Map<Ino, u64>,
    /// With so many, those of files that are gone are forgotten.
    most: usize,
}

impl Ctx<'_> {
    /// The file is a new memfd. "MFD_ALLOW_SEALING: Allow sealing operations on this file. [...] If this flag is not set,
    /// the initial set of seals will be F_SEAL_SEAL".
    pub(crate) fn seal_new(&mut self, ino: Ino, allow: bool) {
        let (seals, vfs) = (&mut self.node.seals, &self.node.vfs);
        // Those of files that are gone are forgotten each time that there are twice as many as were left, so that many files cost no more each than few.
        if seals.of.len() >= seals.most {
            seals.of.retain(|ino, _| vfs.stat_ino(*ino).is_ok());
            seals.most = (2 * seals.of.len()).max(FEW);
        }
        seals.of.insert(ino, if allow { 0 } else { SEAL });
    }

    fn seals(&self, ino: Ino) -> u64 {
        self.node.seals.of.get(&ino).copied().unwrap_or(0)
    }

    /// The seals of a file that can have some: all of tmpfs, of which those that memfd_create(2) has not made are sealed against seals
    /// (shmem_get_inode).
    fn sealed(&self, id: FileId) -> Option<(Ino, u64)> {
        let FileKind::Regular(ino) = self.node.files[id].kind else { return None };
        let of_tmpfs = || self.is_on_tmpfs(id).then_some(SEAL);
        Some((ino, self.node.seals.of.get(&ino).copied().or_else(of_tmpfs)?))
    }

    /// F_GET_SEALS. "EINVAL: fd does not refer to an inode that supports sealing".
    pub(crate) fn get_seals(&mut self, fd: Fd) -> SysResult {
        let id = self.file_id(fd)?;
        Ok(self.sealed(id).ok_or(Errno::EINVAL)?.1)
    }

    /// F_ADD_SEALS.
    pub(crate) fn add_seals(&mut self, fd: Fd, seals: u64) -> SysResult {
        let seals = seals & 0xffff_ffff;
        let file = self.file(fd)?;
        // "EPERM: cmd is F_ADD_SEALS and fd was not open for writing or the current set of seals on the file already
        // includes F_SEAL_SEAL."
        if !file.writable() {
            return err(Errno::EPERM);
        }
        if seals & !(SEAL | SHRINK | GROW | WRITE | FUTURE_WRITE) != 0 {
            return err(Errno::EINVAL);
        }
        let id = self.file_id(fd)?;
        let (ino, old) = self.sealed(id).ok_or(Errno::EINVAL)?;
        if old & SEAL != 0 {
            return err(Errno::EPERM);
        }
        // "EBUSY: cmd is F_ADD_SEALS, arg includes F_SEAL_WRITE, and there exists a writable, shared mapping".
        let writable = |v: &Vma| {
            v.shared && v.may_write && matches!(v.backing, Backing::File { ino: i, .. } if i == ino)
        };
        if seals & !old & WRITE != 0 && self.node.mms.iter().any(|(_, mm)| mm.vmas().any(writable)) {
            return err(Errno::EBUSY);
        }
        self.node.seals.of.insert(ino, old | seals);
        Ok(0)
    }

    /// How many of `len` bytes the seals let be stored at `from`; EPERM if none. A write is judged page by page
    /// (shmem_write_begin, which generic_perform_write calls): one that would grow the file stops before the page in which it
    /// would.
    pub(crate) fn may_store(&self, ino: Ino, from: u64, len: u64) -> Result<u64, Errno> {
        let seals = self.seals(ino);
        if seals & (WRITE | FUTURE_WRITE) != 0 {
            return Err(Errno::EPERM);
        }
        if seals & GROW == 0 {
            return Ok(len);
        }
        let size = self.node.vfs.size(ino);
        match (size / PAGE * PAGE).saturating_sub(from) {
            _ if from.saturating_add(len) <= size => Ok(len),
            0 => Err(Errno::EPERM),
            within => Ok(within),
        }
    }

    /// EPERM if the seals forbid the new size.
    pub(crate) fn may_resize(&self, ino: Ino, size: u64) -> Result<(), Errno> {
        let (seals, old) = (self.seals(ino), self.node.vfs.size(ino));
        if (size < old && seals & SHRINK != 0) || (size > old && seals & GROW != 0) {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    /// EPERM if the seals forbid that fallocate(2) changes this range: a hole is a write, and Linux's shmem_fallocate looks
    /// for growth even where the size is to stay.
    pub(crate) fn may_allocate(&self, ino: Ino, hole: bool, end: u64) -> Result<(), Errno> {
        let seals = self.seals(ino);
        let forbidden = match hole {
            true => seals & (WRITE | FUTURE_WRITE) != 0,
            false => seals & GROW != 0 && end > self.node.vfs.size(ino),
        };
        if forbidden { Err(Errno::EPERM) } else { Ok(()) }
    }

    /// Whether a shared mapping may be made: EPERM for a writable one of a file that is sealed against writing; false if
    /// it must never become writable.
    pub(crate) fn may_share(&self, ino: Ino, writable: bool) -> Result<bool, Errno> {
        let sealed = self.seals(ino) & (WRITE | FUTURE_WRITE) != 0;
        if sealed && writable { Err(Errno::EPERM) } else { Ok(!sealed) }
    }
}

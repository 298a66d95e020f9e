//! The nodes of pseudoterminals (devpts): which are there is the kernel's matter, their attributes and names are of this file system.

use bloodhound_abi::{Errno, SimTime};

use crate::dir::Slot;
use crate::inode::Node;
use crate::mount::MountSpec;
use crate::types::{Dev, Ino, Name};
use crate::vfs::Vfs;

/// UNIX98_PTY_SLAVE_MAJOR.
const MAJOR: u32 = 136;
/// Mode and group that container runtimes ask for: `mode=620,gid=5`.
const MODE: u32 = 0o620;
const GID: u32 = 5;

impl Vfs {
    /// Whether an inode is in a devpts.
    pub fn is_devpts(&self, ino: Ino) -> bool {
        let Ok(fs) = self.fs_of(ino) else { return false };
        let mount = self.space().mounts.get(&fs.mount);
        mount.is_some_and(|mount| mount.spec == Some(MountSpec::Devpts))
    }

    /// The root of the file system that an inode is in.
    ///
    /// # Errors
    /// ESTALE.
    pub fn devpts_root(&self, ino: Ino) -> Result<Ino, Errno> {
        Ok(self.fs_of(ino)?.root)
    }

    /// Adds the node of a slave to the devpts with this root.
    ///
    /// # Errors
    /// ESTALE; EIO if somebody has made something under its name.
    pub fn add_slave(&mut self, root: Ino, number: u32, uid: u32, now: SimTime) -> Result<Ino, Errno> {
        if self.slave_at(root, &Name::from(number.to_string().as_bytes())).is_some() {
            return Err(Errno::EIO);
        }
        let ino = self.plant(
            root,
            number.to_string(),
            MODE,
            Node::CharDevice(Dev { major: MAJOR, minor: number }),
        )?;
        let time = self.stamp(now);
        let meta = &mut self.inode_mut(ino)?.meta;
        (meta.uid, meta.gid) = (uid, GID);
        (meta.atime, meta.mtime, meta.ctime, meta.btime) = (time, time, time, time);
        Ok(ino)
    }

    fn slave_at(&self, root: Ino, name: &Name) -> Option<Ino> {
        match self.dir(root).ok()?.slot(name) {
            Some(Slot::Live { ino, .. }) => Some(ino),
            _ => None,
        }
    }

    /// Takes the node of a slave away; who has it open keeps it.
    pub fn remove_slave(&mut self, root: Ino, number: u32, ino: Ino, now: SimTime) {
        let name = Name::from(number.to_string().as_bytes());
        // Its name may be gone by now: root may remove it as any file.
        if self.slave_at(root, &name) == Some(ino) {
            // The file system is there as long as its root is.
            let _gone = self.leave(root, &name, ino, now);
        }
    }
}

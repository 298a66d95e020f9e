//! A file system with what it needs, for tests of disks.

use bloodhound_abi::SimTime;
use bloodhound_vfs::*;

/// When everything happens.
pub const NOW: SimTime = SimTime(1);

/// See the module's text.
#[derive(Clone)]
pub struct Node {
    pub vfs: Vfs,
    pub base: MemBase,
}

impl Node {
    /// A call of root's in the root directory.
    pub fn call<T>(&mut self, f: impl FnOnce(&mut Vfs, &mut Ctx, Ino) -> Outcome<T>) -> Outcome<T> {
        let (root, cred) = (self.vfs.root(), Cred::root());
        let mut ctx =
            Ctx { base: &mut self.base, cred: &cred, root, now: NOW, umask: 0, links: 0, resolve: 0 };
        f(&mut self.vfs, &mut ctx, root)
    }
}

//! Files that the simulation itself puts into a machine's namespace, or takes out of it, outside of any system call.

use bloodhound_abi::{Errno, SimTime};

use crate::base::BaseFs;
use crate::flags::{O_CREAT, O_RDONLY, O_TRUNC, O_WRONLY};
use crate::types::{Cred, Fail, Ino};
use crate::vfs::{At, Ctx, Vfs};

impl Vfs {
    /// Writes a file as root, replacing what was there; missing directories are made (mode 0755). For what a
    /// container runtime provides: `/etc/hosts`, `/etc/resolv.conf`, a `tmp` directory's content.
    ///
    /// # Errors
    /// Those of mkdir(2), open(2), write(2).
    pub fn put_file(
        &mut self,
        base: &mut dyn BaseFs,
        path: &[u8],
        mode: u32,
        bytes: &[u8],
    ) -> Result<Ino, Fail> {
        if let Some(end) = path.iter().rposition(|b| *b == b'/') {
            self.put_dir(base, &path[..end], 0o755)?;
        }
        let cred = Cred::root();
        let mut ctx = self.own_ctx(base, &cred);
        let at = At { dir: ctx.root, path };
        let opened = self.open(&mut ctx, at, O_WRONLY | O_CREAT | O_TRUNC, mode)?;
        let written = self.write_at(opened.ino, 0, bytes, SimTime::ZERO);
        let chmod = self.chmod(opened.ino, &cred, mode, SimTime::ZERO);
        self.close_ref(opened.ino, opened.writer);
        chmod?;
        if written? < bytes.len() {
            return Err(Errno::ENOSPC.into());
        }
        Ok(opened.ino)
    }

    /// Makes a directory and all above it, as `mkdir -p` does as root.
    ///
    /// # Errors
    /// Those of mkdir(2).
    pub fn put_dir(&mut self, base: &mut dyn BaseFs, path: &[u8], mode: u32) -> Result<Ino, Fail> {
        let cred = Cred::root();
        let mut ctx = self.own_ctx(base, &cred);
        let mut dir = ctx.root;
        for part in path.split(|b| *b == b'/').filter(|part| !part.is_empty()) {
            let at = At { dir, path: part };
            match self.mkdir(&mut ctx, at, mode) {
                Ok(_) | Err(Fail::Errno(Errno::EEXIST)) => dir = self.resolve(&mut ctx, at, true)?,
                Err(fail) => return Err(fail),
            }
        }
        Ok(dir)
    }

    /// Makes a symbolic link as root, unless there is something under its name.
    ///
    /// # Errors
    /// Those of symlink(2) but EEXIST.
    pub fn put_link(&mut self, base: &mut dyn BaseFs, path: &[u8], target: &[u8]) -> Result<(), Fail> {
        let cred = Cred::root();
        let mut ctx = self.own_ctx(base, &cred);
        let at = At { dir: ctx.root, path };
        match self.symlink(&mut ctx, target, at) {
            Ok(_) | Err(Fail::Errno(Errno::EEXIST)) => Ok(()),
            Err(fail) => Err(fail),
        }
    }

    /// Reads a whole file as root.
    ///
    /// # Errors
    /// Those of open(2), read(2).
    pub fn get_file(&mut self, base: &mut dyn BaseFs, path: &[u8]) -> Result<Vec<u8>, Fail> {
        let cred = Cred::root();
        let mut ctx = self.own_ctx(base, &cred);
        let at = At { dir: ctx.root, path };
        let opened = self.open(&mut ctx, at, O_RDONLY, 0)?;
        let mut bytes = vec![0; usize::try_from(self.size(opened.ino)).map_err(|_| Errno::EFBIG)?];
        let read = self.read_at(opened.ino, 0, &mut bytes);
        self.close_ref(opened.ino, opened.writer);
        bytes.truncate(read?);
        Ok(bytes)
    }

    fn own_ctx<'a>(&self, base: &'a mut dyn BaseFs, cred: &'a Cred) -> Ctx<'a> {
        Ctx { base, cred, root: self.root(), now: SimTime::ZERO, umask: 0, links: 0 }
    }
}

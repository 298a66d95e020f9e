//! The simulated side: the same calls on a `Vfs`, with the little that descriptors add.

use bloodhound_abi::{Errno, SimTime};
use bloodhound_vfs::flags::*;
use bloodhound_vfs::*;

use super::calls::{Call, Op};
use super::{ABOVE, Answer, FILES, LINKS, SLOTS, TREE, Users, describe, line};

/// The simulated side.
#[derive(Clone)]
pub struct Sim {
    vfs: Vfs,
    base: MemBase,
    start: Ino,
    slots: [Option<(Opened, u32)>; SLOTS],
    now: SimTime,
}

fn errno(fail: Fail) -> Errno {
    match fail {
        Fail::Errno(errno) => errno,
        Fail::Synthetic(path) => panic!("no synthetic mount exists: {path:?}"),
    }
}

impl Sim {
    pub fn new(users: &Users, layered: bool) -> Sim {
        let mut base = MemBase::new();
        base.entry(TREE, ABOVE, 0o777, BaseKind::Directory);
        if layered {
            for (path, bytes) in FILES {
                base.file(TREE, &format!("{ABOVE}/{path}"), 0o644, &bytes.repeat(1000));
            }
            for (path, target) in LINKS {
                let link = BaseKind::Symlink(target.as_bytes().into());
                base.entry(TREE, &format!("{ABOVE}/{path}"), 0o777, link);
            }
        }
        let mut vfs = Vfs::new(Config { root: Some(TREE), ..Config::default() }, &mut base).unwrap();
        let start = vfs.put_dir(&mut base, ABOVE.as_bytes(), 0o777).unwrap();
        let (uid, gid) = users.get(0);
        let mut dir = start;
        for _ in 0..5 {
            // The directories above exist on both sides; on the host too they belong to who runs the test.
            vfs.chown(dir, &Cred::root(), Some(uid), Some(gid), SimTime::ZERO).unwrap();
            vfs.chmod(dir, &Cred::root(), 0o777, SimTime::ZERO).unwrap();
            let above = vfs.read_dir(&mut base, dir, 1, 1).unwrap();
            dir = above[0].ino;
        }
        Sim { vfs, base, start, slots: [None; SLOTS], now: SimTime(1) }
    }

    pub fn close(&mut self, slot: usize) {
        if let Some((opened, _)) = self.slots[slot].take() {
            self.vfs.close_ref(opened.ino, opened.writer);
        }
    }

    /// The file of a slot if the descriptor allows what `want` asks; what Linux says otherwise.
    fn file(&self, slot: usize, write: bool, wrong: Errno, positioned: bool) -> Result<Ino, Errno> {
        let (opened, flags) = self.slots[slot].ok_or(Errno::EBADF)?;
        let access = flags & O_ACCMODE;
        let allowed = if write { access != O_RDONLY } else { access != O_WRONLY };
        if flags & O_PATH != 0 {
            return Err(Errno::EBADF);
        }
        if opened.kind == Kind::Fifo && (positioned || allowed) {
            return Err(if wrong == Errno::EINVAL { wrong } else { Errno::ESPIPE });
        }
        if allowed { Ok(opened.ino) } else { Err(wrong) }
    }

    pub fn run(&mut self, call: &Call, users: &Users) -> Answer {
        self.now = self.now.after(1000);
        let (cred, now) = (users.cred(call.user), self.now);
        let dir = call.from.and_then(|slot| self.slots[slot]).map_or(self.start, |(opened, _)| opened.ino);
        let root = self.vfs.root();
        let mut ctx =
            Ctx { base: &mut self.base, cred: &cred, root, now, umask: 0o022, links: 0, resolve: 0 };
        let at = |path| At { dir, path: str::as_bytes(path) };
        let done = |_| b"0".to_vec();
        match &call.op {
            Op::Open { path, flags, mode, slot } => {
                let opened = self.vfs.open(&mut ctx, at(path), *flags, *mode).map_err(errno)?;
                let reader = self.slots.iter().flatten().any(|(other, flags)| {
                    other.ino == opened.ino && flags & O_PATH == 0 && flags & O_ACCMODE != O_WRONLY
                });
                let writes = flags & O_PATH == 0 && flags & O_ACCMODE == O_WRONLY;
                if opened.kind == Kind::Fifo && writes && !reader {
                    // fifo(7): nonblocking without a reader; the kernel's part.
                    self.vfs.close_ref(opened.ino, opened.writer);
                    return Err(Errno::ENXIO);
                }
                self.close(*slot);
                self.slots[*slot] = Some((opened, *flags));
                Ok(Vec::new())
            }
            Op::Close { slot } => {
                self.close(*slot);
                Ok(Vec::new())
            }
            Op::Pread { slot, at, len } => {
                let ino = self.file(*slot, false, Errno::EBADF, true)?;
                let mut bytes = vec![0; *len];
                let len = self.vfs.read_at(ino, *at, &mut bytes)?;
                bytes.truncate(len);
                Ok(bytes)
            }
            Op::Pwrite { slot, at, len, fill } => {
                let ino = self.file(*slot, true, Errno::EBADF, true)?;
                let len = self.vfs.write_at(ino, *at, &vec![*fill; *len], now)?;
                if len > 0 {
                    self.vfs.drop_privileges(ino, &cred, now)?;
                }
                Ok(len.to_string().into_bytes())
            }
            Op::Ftruncate { slot, size } => {
                let ino = self.file(*slot, true, Errno::EINVAL, false)?;
                self.vfs.truncate_to(ino, *size, now)?;
                self.vfs.drop_privileges(ino, &cred, now)?;
                Ok(b"0".to_vec())
            }
            Op::Fallocate { slot, mode, at, len } => {
                if self.slots[*slot].is_some_and(|(_, flags)| flags & O_PATH == 0) {
                    Vfs::check_fallocate(*mode, *at, *len)?;
                }
                let ino = self.file(*slot, true, Errno::EBADF, false)?;
                self.vfs.fallocate(ino, *mode, *at, *len, now)?;
                self.vfs.drop_privileges(ino, &cred, now)?;
                Ok(b"0".to_vec())
            }
            _ => self.run_path(call, &cred).map_err(errno).map(|bytes| bytes.unwrap_or_else(|| done(()))),
        }
    }

    fn run_path(&mut self, call: &Call, cred: &Cred) -> Result<Option<Vec<u8>>, Fail> {
        let now = self.now;
        let dir = call.from.and_then(|slot| self.slots[slot]).map_or(self.start, |(opened, _)| opened.ino);
        let vfs = &mut self.vfs;
        let root = vfs.root();
        let mut ctx = Ctx { base: &mut self.base, cred, root, now, umask: 0o022, links: 0, resolve: 0 };
        let at = |path| At { dir, path: str::as_bytes(path) };
        match &call.op {
            Op::Mkdir { path, mode } => {
                vfs.mkdir(&mut ctx, at(path), *mode)?;
            }
            Op::Mkfifo { path, mode } => _ = vfs.mknod(&mut ctx, at(path), S_IFIFO | mode, Dev::default())?,
            Op::Rmdir { path } => vfs.rmdir(&mut ctx, at(path))?,
            Op::Unlink { path } => vfs.unlink(&mut ctx, at(path))?,
            Op::Symlink { target, path } => {
                vfs.symlink(&mut ctx, target.as_bytes(), at(path))?;
            }
            Op::Link { old, new, follow } => vfs.link(&mut ctx, at(old), at(new), *follow)?,
            Op::Rename { old, new, flags } => vfs.rename(&mut ctx, at(old), at(new), *flags)?,
            Op::Chmod { path, mode } => {
                let ino = vfs.resolve(&mut ctx, at(path), true)?;
                vfs.chmod(ino, cred, *mode, now)?;
            }
            Op::Chown { path, uid, gid } => {
                let ino = vfs.resolve(&mut ctx, at(path), false)?;
                vfs.chown(ino, cred, *uid, *gid, now)?;
            }
            Op::Stat { path, follow } => {
                let s = vfs.stat(&mut ctx, at(path), *follow)?;
                return Ok(Some(describe(s.mode, s.nlink.into(), s.uid, s.gid, s.size)));
            }
            Op::Readlink { path } => return Ok(Some(vfs.readlink(&mut ctx, at(path))?.to_vec())),
            Op::Access { path, want } => vfs.access(&mut ctx, at(path), *want, true)?,
            Op::Truncate { path, size } => vfs.truncate(&mut ctx, at(path), *size)?,
            Op::List { path } => {
                let opened = vfs.open(&mut ctx, at(path), O_RDONLY | O_DIRECTORY, 0)?;
                let listed = vfs.read_dir(ctx.base, opened.ino, 0, usize::MAX);
                vfs.close_ref(opened.ino, false);
                let lines = listed.unwrap_or_default().into_iter().map(|entry| {
                    format!("{} {}", String::from_utf8_lossy(&entry.name), entry.kind.dirent_type())
                });
                let mut lines: Vec<String> = lines.collect();
                lines.sort();
                return Ok(Some(lines.join("\n").into_bytes()));
            }
            other => panic!("no path in {other:?}"),
        }
        Ok(None)
    }

    /// The whole tree as text.
    pub fn dump(&mut self) -> String {
        let mut out = String::new();
        let top = self.vfs.root();
        self.dump_dir(top, "", &mut out);
        out
    }

    fn dump_dir(&mut self, dir: Ino, path: &str, out: &mut String) {
        let mut entries = self.vfs.read_dir(&mut self.base, dir, 2, usize::MAX).unwrap();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in entries {
            let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
            let s = self.vfs.stat_ino(entry.ino).unwrap();
            let about = describe(s.mode, s.nlink.into(), s.uid, s.gid, s.size);
            let mut bytes = Vec::new();
            match s.kind {
                Kind::Regular => {
                    bytes = vec![0; s.size as usize];
                    self.vfs.load(&mut self.base, entry.ino).unwrap();
                    self.vfs.read_at(entry.ino, 0, &mut bytes).unwrap();
                }
                Kind::Symlink => bytes = self.vfs.readlink_ino(entry.ino, self.now).unwrap().to_vec(),
                _ => {}
            }
            out.push_str(&line(&path, &about, &bytes));
            if s.kind == Kind::Directory {
                self.dump_dir(entry.ino, &path, out);
            }
        }
    }
}

//! Files that the simulation itself puts into a machine's namespace, or takes out of it, outside of any system call.

use std::sync::Arc;

use bloodhound_abi::{Errno, SimTime};

use crate::base::BaseFs;
use crate::flags::{O_CREAT, O_RDONLY, O_TRUNC, O_WRONLY};
use crate::types::{Cred, Fail, Ino, Kind};
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
        Arc::make_mut(&mut self.provided).insert(opened.ino);
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

    /// Regular files whose paths match a pattern, with their sizes, by path: in a name `*` stands for any characters, and `%p` for the
    /// decimal digits of a number. What cannot be looked at is passed over.
    pub fn find_files(&mut self, base: &mut dyn BaseFs, pattern: &[u8]) -> Vec<(Vec<u8>, u64)> {
        let cred = Cred::root();
        let mut ctx = self.own_ctx(base, &cred);
        let mut found = vec![(Vec::new(), ctx.root)];
        for part in pattern.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
            let mut next = Vec::new();
            for (path, dir) in found {
                let plain = !part.contains(&b'*') && !part.windows(2).any(|two| two == b"%p");
                let names = if plain { vec![part.to_vec()] } else { self.names_like(&mut ctx, dir, part) };
                for name in names {
                    if let Ok(ino) = self.resolve(&mut ctx, At { dir, path: &name }, true) {
                        next.push(([&path[..], b"/", &name].concat(), ino));
                    }
                }
            }
            found = next;
        }
        found.retain(|(_, ino)| self.kind(*ino) == Some(Kind::Regular));
        let mut files: Vec<(Vec<u8>, u64)> =
            found.into_iter().map(|(path, ino)| (path, self.size(ino))).collect();
        files.sort();
        files
    }

    fn names_like(&mut self, ctx: &mut Ctx<'_>, dir: Ino, pattern: &[u8]) -> Vec<Vec<u8>> {
        let entries = self.read_dir(ctx.base, dir, 0, usize::MAX).unwrap_or_default();
        let names = entries.iter().map(|entry| entry.name.to_vec());
        names.filter(|name| name != b"." && name != b".." && is_like(pattern, name)).collect()
    }

    fn own_ctx<'a>(&self, base: &'a mut dyn BaseFs, cred: &'a Cred) -> Ctx<'a> {
        Ctx { base, cred, root: self.root(), now: SimTime::ZERO, umask: 0, links: 0, resolve: 0 }
    }
}

/// Whether a path matches a pattern of [`Vfs::find_files`].
pub fn path_is_like(pattern: &[u8], path: &[u8]) -> bool {
    let mut parts =
        [pattern, path].map(|text| text.split(|byte| *byte == b'/').filter(|part| !part.is_empty()));
    let [patterns, names] = &mut parts;
    loop {
        match (patterns.next(), names.next()) {
            (None, None) => return true,
            (Some(pattern), Some(name)) if is_like(pattern, name) => {}
            _ => return false,
        }
    }
}

/// Whether a name matches a part of such a pattern.
fn is_like(pattern: &[u8], name: &[u8]) -> bool {
    // The patterns are short, and those of configurations have few stars.
    match pattern {
        [] => name.is_empty(),
        [b'*', rest @ ..] => (0..=name.len()).any(|at| is_like(rest, &name[at..])),
        [b'%', b'p', rest @ ..] => {
            let digits = name.iter().take_while(|byte| byte.is_ascii_digit()).count();
            (1..=digits).any(|at| is_like(rest, &name[at..]))
        }
        [first, rest @ ..] => name.first() == Some(first) && is_like(rest, &name[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::MemBase;
    use crate::vfs::Config;

    #[test]
    fn files_are_found_by_patterns() {
        let mut base = MemBase::new();
        let mut vfs = Vfs::new(Config::default(), &mut base).expect("a file system");
        for path in ["/cov/a-12.info", "/cov/a-x.info", "/cov/b/a-3.info", "/cov/a-12.info.tmp", "/other"] {
            vfs.put_file(&mut base, path.as_bytes(), 0o600, b"text").expect("a file");
        }
        let mut found = |pattern: &str| -> Vec<String> {
            let files = vfs.find_files(&mut base, pattern.as_bytes());
            assert!(files.iter().all(|(_, size)| *size == 4));
            files.into_iter().map(|(path, _)| String::from_utf8_lossy(&path).into_owned()).collect()
        };
        assert_eq!(found("/cov/a-%p.info"), ["/cov/a-12.info"]);
        assert_eq!(found("/cov/*"), ["/cov/a-12.info", "/cov/a-12.info.tmp", "/cov/a-x.info"]);
        assert_eq!(found("/*/*/a-*.info"), ["/cov/b/a-3.info"]);
        assert_eq!(found("/other"), ["/other"]);
        assert!(found("/cov").is_empty() && found("/none/*").is_empty() && found("/other/x").is_empty());
    }
}

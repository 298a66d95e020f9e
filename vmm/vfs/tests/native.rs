//! Differential test: the same random calls on the host's file system and on [`Vfs`] must give the same results, down
//! to the error number and, at the end, the same tree. Every call also runs on a clone first, which must agree.
//!
//! Half of the runs start from a tree that lies in the base layer. Runs with the credentials it finds. As root it switches the file-system user for some calls (setfsuid(2)).
//! Of the `..` in the generated paths there are fewer than the directories above the test's own, so that no call can
//! leave the temporary directory; link targets have none.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bloodhound_abi::{Errno, SimTime};
use bloodhound_vfs::flags::*;
use bloodhound_vfs::*;
use proptest::prelude::*;

/// Directories above the one that the calls start in, more than a path has `..`.
const ABOVE: &str = "above1/above2/above3/start";
const SLOTS: usize = 3;
const TREE: TreeId = TreeId(0);
/// What a run on layers starts with: files with the string that is repeated in them, and links.
const FILES: [(&str, &[u8]); 5] = [
    ("a/a", b"one"),
    ("a/b/a", b"the second file"),
    ("a/b/c", b""),
    ("b", b"a longer text, which takes several pages"),
    ("c/c/c/c", b"deep"),
];
const LINKS: [(&str, &str); 2] = [("a/c", "b/a"), ("c/a", "c/c")];

#[derive(Clone, Debug)]
enum Op {
    Open { path: String, flags: u32, mode: u32, slot: usize },
    Close { slot: usize },
    Pread { slot: usize, at: u64, len: usize },
    Pwrite { slot: usize, at: u64, len: usize, fill: u8 },
    Ftruncate { slot: usize, size: u64 },
    Fallocate { slot: usize, mode: u32, at: u64, len: u64 },
    Mkdir { path: String, mode: u32 },
    Mkfifo { path: String, mode: u32 },
    Rmdir { path: String },
    Unlink { path: String },
    Symlink { target: String, path: String },
    Link { old: String, new: String, follow: bool },
    Rename { old: String, new: String, flags: u32 },
    Chmod { path: String, mode: u32 },
    Chown { path: String, uid: Option<u32>, gid: Option<u32> },
    Stat { path: String, follow: bool },
    Readlink { path: String },
    Access { path: String, want: u32 },
    Truncate { path: String, size: u64 },
    List { path: String },
}

/// One call: who, starting from the test's directory or from an open slot.
#[derive(Clone, Debug)]
struct Call {
    user: usize,
    from: Option<usize>,
    op: Op,
}

fn part() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        10 => prop::sample::select(vec!["a", "b", "c"]),
        1 => Just("."),
        1 => Just(".."),
        1 => Just("")
    ]
}

fn path() -> impl Strategy<Value = String> {
    let parts = prop::collection::vec(part(), 1..4);
    (parts, prop::bool::weighted(0.1))
        .prop_map(|(parts, slash)| format!("{}{}", parts.join("/"), if slash { "/" } else { "" }))
        // Never absolute: that would be the host's root.
        .prop_map(|path| if path.starts_with('/') { format!(".{path}") } else { path })
}

fn target() -> impl Strategy<Value = String> {
    let names = prop::sample::select(vec!["a", "b", "c", "."]);
    prop::collection::vec(names, 1..3).prop_map(|parts| parts.join("/"))
}

fn open_flags() -> impl Strategy<Value = u32> {
    let access = prop::sample::select(vec![O_RDONLY, O_WRONLY, O_RDWR, O_RDWR]);
    let bits = vec![O_CREAT, O_CREAT, O_EXCL, O_TRUNC, O_DIRECTORY, O_NOFOLLOW, O_PATH];
    (access, prop::sample::subsequence(bits, 0..4), prop::bool::weighted(0.05)).prop_map(
        |(access, bits, tmp)| {
            if tmp {
                return O_TMPFILE | access;
            }
            let flags = bits.into_iter().fold(access, |all, bit| all | bit);
            // What the two together mean changed in Linux 6.4.
            if flags & O_CREAT != 0 { flags & !O_DIRECTORY } else { flags }
        },
    )
}

fn mode() -> impl Strategy<Value = u32> {
    prop::sample::select(vec![
        0o777, 0o755, 0o700, 0o666, 0o644, 0o500, 0o444, 0o110, 0o2775, 0o4755, 0o2755, 0,
    ])
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![0..20_000u64, Just(4096u64), Just(8192u64)]
}

fn op() -> impl Strategy<Value = Op> {
    let slot = 0..SLOTS;
    let modes = prop::sample::select(vec![0, 1, 3, 0x10, 0x11, 2, 0x13]);
    let rename_flags = prop::sample::select(vec![0, 0, 0, RENAME_NOREPLACE, RENAME_EXCHANGE, 3]);
    let id = || prop::option::of(prop::sample::select(vec![0u32, 1000, 1001]));
    prop_oneof![
        8 => (path(), open_flags(), mode(), slot.clone())
            .prop_map(|(path, flags, mode, slot)| Op::Open { path, flags, mode, slot }),
        1 => slot.clone().prop_map(|slot| Op::Close { slot }),
        3 => (slot.clone(), size(), 0..9000usize).prop_map(|(slot, at, len)| Op::Pread { slot, at, len }),
        4 => (slot.clone(), size(), 0..9000usize, 1..255u8)
            .prop_map(|(slot, at, len, fill)| Op::Pwrite { slot, at, len, fill }),
        1 => (slot.clone(), size()).prop_map(|(slot, size)| Op::Ftruncate { slot, size }),
        2 => (slot, modes, size(), size()).prop_map(|(slot, mode, at, len)| Op::Fallocate { slot, mode, at, len }),
        5 => (path(), mode()).prop_map(|(path, mode)| Op::Mkdir { path, mode }),
        1 => (path(), mode()).prop_map(|(path, mode)| Op::Mkfifo { path, mode }),
        2 => path().prop_map(|path| Op::Rmdir { path }),
        3 => path().prop_map(|path| Op::Unlink { path }),
        3 => (target(), path()).prop_map(|(target, path)| Op::Symlink { target, path }),
        3 => (path(), path(), any::<bool>()).prop_map(|(old, new, follow)| Op::Link { old, new, follow }),
        6 => (path(), path(), rename_flags).prop_map(|(old, new, flags)| Op::Rename { old, new, flags }),
        2 => (path(), mode()).prop_map(|(path, mode)| Op::Chmod { path, mode }),
        1 => (path(), id(), id()).prop_map(|(path, uid, gid)| Op::Chown { path, uid, gid }),
        3 => (path(), any::<bool>()).prop_map(|(path, follow)| Op::Stat { path, follow }),
        1 => path().prop_map(|path| Op::Readlink { path }),
        1 => (path(), 0..8u32).prop_map(|(path, want)| Op::Access { path, want }),
        1 => (path(), size()).prop_map(|(path, size)| Op::Truncate { path, size }),
        2 => path().prop_map(|path| Op::List { path }),
    ]
}

fn call() -> impl Strategy<Value = Call> {
    let user = prop_oneof![3 => Just(0usize), 1 => Just(1usize), 1 => Just(2usize)];
    let from = prop_oneof![4 => Just(None), 1 => (0..SLOTS).prop_map(Some)];
    (user, from, op()).prop_map(|(user, from, op)| Call { user, from, op })
}

/// What a call returns, in terms that both sides share.
type Answer = Result<Vec<u8>, Errno>;

/// What both sides say about a file. Sizes of directories and link counts of directories differ by file system.
fn describe(mode: u32, nlink: u64, uid: u32, gid: u32, size: u64) -> Vec<u8> {
    let is_dir = mode & S_IFMT == S_IFDIR;
    let (nlink, size) = if is_dir { (0, 0) } else { (nlink, size) };
    format!("{mode:o} {nlink} {uid}:{gid} {size}").into_bytes()
}

struct Users(Vec<(u32, u32)>);

impl Users {
    fn new() -> Users {
        // SAFETY: these calls have no preconditions.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        Users(if uid == 0 { vec![(0, 0), (1000, 1000), (1001, 1000)] } else { vec![(uid, gid)] })
    }

    fn get(&self, user: usize) -> (u32, u32) {
        self.0[user % self.0.len()]
    }

    fn cred(&self, user: usize) -> Cred {
        let (uid, gid) = self.get(user);
        if self.0.len() > 1 {
            return Cred::user(uid, gid);
        }
        let mut groups = vec![0; 256];
        // SAFETY: the buffer has the length that is passed.
        let len = unsafe { libc::getgroups(groups.len() as i32, groups.as_mut_ptr()) };
        groups.truncate(len.max(0) as usize);
        Cred { uid, gid, groups: groups.into() }
    }

    /// Makes this thread act as `user` on files.
    fn become_user(&self, user: usize) {
        if self.0.len() > 1 {
            let (uid, gid) = self.get(user);
            // SAFETY: these calls have no preconditions; they change this thread only.
            unsafe { (libc::setfsgid(gid), libc::setfsuid(uid)) };
        }
    }
}

/// The host's side.
struct Host {
    top: PathBuf,
    start: i32,
    slots: [Option<(i32, u32)>; SLOTS],
}

fn check(result: i64) -> Result<i64, Errno> {
    if result < 0 {
        Err(Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(0) as u16))
    } else {
        Ok(result)
    }
}

fn c(text: &str) -> CString {
    CString::new(text).unwrap()
}

impl Host {
    fn new(layered: bool) -> Host {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let top = std::env::temp_dir().join(format!("bloodhound-native-{}-{number}", std::process::id()));
        std::fs::create_dir_all(top.join(ABOVE)).unwrap();
        for dir in top.join(ABOVE).ancestors().take(5) {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).unwrap();
        }
        if layered {
            for (path, bytes) in FILES {
                let path = top.join(ABOVE).join(path);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, bytes.repeat(1000)).unwrap();
            }
            for (path, target) in LINKS {
                std::os::unix::fs::symlink(target, top.join(ABOVE).join(path)).unwrap();
            }
        }
        let path = CString::new(top.join(ABOVE).as_os_str().as_bytes()).unwrap();
        // SAFETY: the path is NUL-terminated.
        let start = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY) };
        assert!(start >= 0);
        Host { top, start, slots: [None; SLOTS] }
    }

    fn from(&self, from: Option<usize>) -> i32 {
        from.and_then(|slot| self.slots[slot]).map_or(self.start, |(fd, _)| fd)
    }

    fn close(&mut self, slot: usize) {
        if let Some((fd, _)) = self.slots[slot].take() {
            // SAFETY: the descriptor is ours and used nowhere else.
            unsafe { libc::close(fd) };
        }
    }

    fn run(&mut self, call: &Call) -> Answer {
        let from = self.from(call.from);
        let fd = |slot: usize| self.slots[slot].map_or(-1, |(fd, _)| fd);
        // SAFETY: all paths are NUL-terminated strings that live until the call returns, buffers have the lengths
        // that are passed.
        let result = unsafe {
            match &call.op {
                Op::Open { path, flags, mode, slot } => {
                    let flags_now = (*flags | O_NONBLOCK | O_CLOEXEC) as i32;
                    let new = check(libc::openat(from, c(path).as_ptr(), flags_now, *mode).into())? as i32;
                    self.close(*slot);
                    self.slots[*slot] = Some((new, *flags));
                    return Ok(Vec::new());
                }
                Op::Close { slot } => {
                    self.close(*slot);
                    return Ok(Vec::new());
                }
                Op::Pread { slot, at, len } => {
                    let mut bytes = vec![0u8; *len];
                    let len =
                        check(libc::pread(fd(*slot), bytes.as_mut_ptr().cast(), *len, *at as i64) as i64)?;
                    bytes.truncate(len as usize);
                    return Ok(bytes);
                }
                Op::Pwrite { slot, at, len, fill } => {
                    let bytes = vec![*fill; *len];
                    libc::pwrite(fd(*slot), bytes.as_ptr().cast(), *len, *at as i64) as i64
                }
                Op::Ftruncate { slot, size } => libc::ftruncate(fd(*slot), *size as i64).into(),
                Op::Fallocate { slot, mode, at, len } => {
                    libc::fallocate(fd(*slot), *mode as i32, *at as i64, *len as i64).into()
                }
                Op::Mkdir { path, mode } => libc::mkdirat(from, c(path).as_ptr(), *mode).into(),
                Op::Mkfifo { path, mode } => libc::mknodat(from, c(path).as_ptr(), S_IFIFO | *mode, 0).into(),
                Op::Rmdir { path } => libc::unlinkat(from, c(path).as_ptr(), libc::AT_REMOVEDIR).into(),
                Op::Unlink { path } => libc::unlinkat(from, c(path).as_ptr(), 0).into(),
                Op::Symlink { target, path } => {
                    libc::symlinkat(c(target).as_ptr(), from, c(path).as_ptr()).into()
                }
                Op::Link { old, new, follow } => {
                    let flags = if *follow { libc::AT_SYMLINK_FOLLOW } else { 0 };
                    libc::linkat(from, c(old).as_ptr(), from, c(new).as_ptr(), flags).into()
                }
                Op::Rename { old, new, flags } => {
                    libc::renameat2(from, c(old).as_ptr(), from, c(new).as_ptr(), *flags).into()
                }
                Op::Chmod { path, mode } => libc::fchmodat(from, c(path).as_ptr(), *mode, 0).into(),
                Op::Chown { path, uid, gid } => {
                    let (uid, gid) = (uid.unwrap_or(u32::MAX), gid.unwrap_or(u32::MAX));
                    libc::fchownat(from, c(path).as_ptr(), uid, gid, libc::AT_SYMLINK_NOFOLLOW).into()
                }
                Op::Stat { path, follow } => {
                    let mut stat = std::mem::zeroed::<libc::stat>();
                    let flags = if *follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
                    check(libc::fstatat(from, c(path).as_ptr(), &raw mut stat, flags).into())?;
                    let size = stat.st_size as u64;
                    return Ok(describe(stat.st_mode, stat.st_nlink, stat.st_uid, stat.st_gid, size));
                }
                Op::Readlink { path } => {
                    let mut bytes = vec![0u8; 4096];
                    let len =
                        libc::readlinkat(from, c(path).as_ptr(), bytes.as_mut_ptr().cast(), bytes.len());
                    bytes.truncate(check(len as i64)? as usize);
                    return Ok(bytes);
                }
                // The raw call has no flags and takes the real ids; AT_EACCESS takes the file-system ids.
                Op::Access { path, want } => {
                    let (number, flags) = (libc::SYS_faccessat2, libc::AT_EACCESS);
                    libc::syscall(number, from, c(path).as_ptr(), *want as i32, flags)
                }
                Op::Truncate { path, size } => {
                    // There is no truncateat. The working directory is the process's; this is its only test.
                    if !path.is_empty() {
                        check(libc::fchdir(from).into())?;
                    }
                    libc::truncate(c(path).as_ptr(), *size as i64).into()
                }
                Op::List { path } => return list_host(from, path),
            }
        };
        check(result).map(|value| value.to_string().into_bytes())
    }
}

fn list_host(from: i32, path: &str) -> Answer {
    // SAFETY: NUL-terminated path; the stream is closed once, entries are used before the next readdir.
    unsafe {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC | libc::O_NONBLOCK;
        let fd = check(libc::openat(from, c(path).as_ptr(), flags).into())? as i32;
        let stream = libc::fdopendir(fd);
        let mut lines = Vec::new();
        loop {
            let entry = libc::readdir(stream);
            if entry.is_null() {
                break;
            }
            let name = std::ffi::CStr::from_ptr((*entry).d_name.as_ptr());
            lines.push(format!("{} {}", name.to_string_lossy(), (*entry).d_type));
        }
        libc::closedir(stream);
        lines.sort();
        Ok(lines.join("\n").into_bytes())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        (0..SLOTS).for_each(|slot| self.close(slot));
        // SAFETY: the descriptor is ours.
        unsafe { libc::close(self.start) };
        make_removable(&self.top);
        let _ = std::fs::remove_dir_all(&self.top);
    }
}

/// Without root a directory that may not be read cannot be removed with its content.
fn make_removable(dir: &Path) {
    use std::os::unix::fs::PermissionsExt;
    let _ = std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700));
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            make_removable(&entry.path());
        }
    }
}

/// The simulated side.
#[derive(Clone)]
struct Sim {
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
    fn new(users: &Users, layered: bool) -> Sim {
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

    fn close(&mut self, slot: usize) {
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

    fn run(&mut self, call: &Call, users: &Users) -> Answer {
        self.now = self.now.after(1000);
        let (cred, now) = (users.cred(call.user), self.now);
        let dir = call.from.and_then(|slot| self.slots[slot]).map_or(self.start, |(opened, _)| opened.ino);
        let root = self.vfs.root();
        let mut ctx = Ctx { base: &mut self.base, cred: &cred, root, now, umask: 0o022, links: 0 };
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
                    self.vfs.drop_set_id(ino, &cred, now)?;
                }
                Ok(len.to_string().into_bytes())
            }
            Op::Ftruncate { slot, size } => {
                let ino = self.file(*slot, true, Errno::EINVAL, false)?;
                self.vfs.truncate_to(ino, *size, now)?;
                self.vfs.drop_set_id(ino, &cred, now)?;
                Ok(b"0".to_vec())
            }
            Op::Fallocate { slot, mode, at, len } => {
                if self.slots[*slot].is_some_and(|(_, flags)| flags & O_PATH == 0) {
                    Vfs::check_fallocate(*mode, *at, *len)?;
                }
                let ino = self.file(*slot, true, Errno::EBADF, false)?;
                self.vfs.fallocate(ino, *mode, *at, *len, now)?;
                self.vfs.drop_set_id(ino, &cred, now)?;
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
        let mut ctx = Ctx { base: &mut self.base, cred, root, now, umask: 0o022, links: 0 };
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
    fn dump(&mut self) -> String {
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
                Kind::Symlink => bytes = self.vfs.readlink_ino(entry.ino).unwrap().to_vec(),
                _ => {}
            }
            out.push_str(&line(&path, &about, &bytes));
            if s.kind == Kind::Directory {
                self.dump_dir(entry.ino, &path, out);
            }
        }
    }
}

fn line(path: &str, about: &[u8], bytes: &[u8]) -> String {
    let sum = bytes.iter().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte) + 1));
    format!("{path} {} {sum:x}\n", String::from_utf8_lossy(about))
}

fn dump_host(dir: &Path, path: &str, out: &mut String) {
    use std::os::unix::fs::MetadataExt;
    let mut names: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    for name in names {
        let (full, path) = (dir.join(&name), format!("{path}/{}", name.to_string_lossy()));
        let s = full.symlink_metadata().unwrap();
        let about = describe(s.mode(), s.nlink(), s.uid(), s.gid(), s.len());
        let bytes = if s.is_file() {
            std::fs::read(&full).unwrap()
        } else if s.is_symlink() {
            std::fs::read_link(&full).unwrap().as_os_str().as_bytes().to_vec()
        } else {
            Vec::new()
        };
        out.push_str(&line(&path, &about, &bytes));
        if s.is_dir() {
            dump_host(&full, &path, out);
        }
    }
}

/// Calls that the host's file system does not know (tmpfs has no ZERO_RANGE, for example) are left out.
fn supported(host: &mut Host) -> impl Fn(&Call) -> bool + use<> {
    let mut try_one = |op: Op| host.run(&Call { user: 0, from: None, op });
    let probe = |name: &str| name.to_string();
    let tmpfile =
        try_one(Op::Open { path: probe("."), flags: O_TMPFILE | O_RDWR, mode: 0o600, slot: 0 }).is_ok();
    let flags = O_CREAT | O_RDWR;
    for (name, slot) in [("probe1", 0), ("probe2", 1)] {
        try_one(Op::Open { path: probe(name), flags, mode: 0o600, slot }).unwrap();
    }
    let modes: Vec<u32> = [0, 1, 3, 0x10, 0x11]
        .into_iter()
        .filter(|mode| try_one(Op::Fallocate { slot: 0, mode: *mode, at: 0, len: 1 }).is_ok())
        .collect();
    let rename = |flags| Op::Rename { old: probe("probe1"), new: probe("probe2"), flags };
    let exchange = try_one(rename(RENAME_EXCHANGE)).is_ok();
    let noreplace = try_one(rename(RENAME_NOREPLACE)) == Err(Errno::EEXIST);
    for name in ["probe1", "probe2"] {
        try_one(Op::Unlink { path: probe(name) }).unwrap();
    }
    (0..SLOTS).for_each(|slot| host.close(slot));
    move |call| match &call.op {
        Op::Open { flags, .. } => tmpfile || flags & O_TMPFILE_BIT == 0,
        Op::Fallocate { mode, .. } => modes.contains(mode) || ![0, 1, 3, 0x10, 0x11].contains(mode),
        Op::Rename { flags, .. } => exchange && noreplace || *flags == 0,
        _ => true,
    }
}

fn compare(calls: &[Call], layered: bool) -> Result<(), TestCaseError> {
    let users = Users::new();
    // The files of the base layer belong to root.
    let layered = layered && users.get(0).0 == 0;
    // SAFETY: no preconditions.
    unsafe { libc::umask(0o022) };
    let (mut host, mut sim) = (Host::new(layered), Sim::new(&users, layered));
    let supported = supported(&mut host);
    for (step, call) in calls.iter().enumerate() {
        if !supported(call) {
            continue;
        }
        let before = sim.clone();
        let mut fork = sim.clone();
        users.become_user(call.user);
        let native = host.run(call);
        users.become_user(0);
        let forked = fork.run(call, &users);
        let simulated = sim.run(call, &users);
        let note = format!("step {step}: {call:?}");
        prop_assert_eq!(&native, &simulated, "{}", note);
        prop_assert_eq!(&forked, &simulated, "on a clone, {}", note);
        if step % 8 == 0 {
            let mut again = before;
            let old = again.clone().dump();
            prop_assert_eq!(again.run(call, &users), forked);
            prop_assert_eq!(fork.dump(), sim.dump(), "on a clone, {}", note);
            prop_assert_eq!(again.dump(), sim.dump(), "from the snapshot {:?}, {}", old, note);
        }
    }
    (0..SLOTS).for_each(|slot| (host.close(slot), sim.close(slot)).1);
    if users.0.len() > 1 {
        let mut native = String::new();
        dump_host(&host.top, "", &mut native);
        prop_assert_eq!(native, sim.dump());
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn same_as_the_host(calls in prop::collection::vec(call(), 1..60), layered: bool) {
        compare(&calls, layered)?;
    }
}

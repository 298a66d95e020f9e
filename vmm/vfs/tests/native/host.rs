//! The host's side: calls on a temporary directory.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bloodhound_abi::Errno;
use bloodhound_vfs::flags::*;

use super::calls::{Call, Op};
use super::{ABOVE, Answer, FILES, LINKS, SLOTS, describe, line};

/// The host's side.
pub struct Host {
    pub top: PathBuf,
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
    pub fn new(layered: bool) -> Host {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Most runs on tmpfs, which is faster; some on the file system of the temporary directory.
        let shm = Path::new("/dev/shm");
        let base =
            if number.is_multiple_of(4) || !shm.is_dir() { std::env::temp_dir() } else { shm.to_path_buf() };
        let top = base.join(format!("bloodhound-native-{}-{number}", std::process::id()));
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

    pub fn close(&mut self, slot: usize) {
        if let Some((fd, _)) = self.slots[slot].take() {
            // SAFETY: the descriptor is ours and used nowhere else.
            unsafe { libc::close(fd) };
        }
    }

    pub fn run(&mut self, call: &Call) -> Answer {
        match &call.op {
            Op::Open { .. }
            | Op::Close { .. }
            | Op::Pread { .. }
            | Op::Pwrite { .. }
            | Op::Ftruncate { .. }
            | Op::Fallocate { .. } => self.run_descriptor(call),
            _ => self.run_path(call),
        }
    }

    fn run_descriptor(&mut self, call: &Call) -> Answer {
        let from = self.from(call.from);
        let fd = |slot: usize| self.slots[slot].map_or(-1, |(fd, _)| fd);
        // SAFETY: paths are NUL-terminated strings that live until the call returns, buffers have the lengths that are
        // passed.
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
                other => panic!("no descriptor in {other:?}"),
            }
        };
        check(result).map(|value| value.to_string().into_bytes())
    }

    fn run_path(&mut self, call: &Call) -> Answer {
        let from = self.from(call.from);
        // SAFETY: as above.
        let result = unsafe {
            match &call.op {
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
                other => panic!("no path in {other:?}"),
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

pub fn dump_host(dir: &Path, path: &str, out: &mut String) {
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

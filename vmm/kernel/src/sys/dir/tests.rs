//! Directories, names and attributes through system calls.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Stat, Statfs, Statx, Timespec};
use bloodhound_abi::table::nr;
use zerocopy::IntoBytes;

use crate::ids::*;
use crate::testing::Bench;

const CWD: u64 = c::AT_FDCWD as i64 as u64;

fn stat(b: &mut Bench, path: &str) -> Result<Stat, Errno> {
    let at = b.room(144);
    b.with_path(nr::stat, path, &[at])?;
    Ok(b.object(b.tid, at))
}

#[test]
fn the_working_directory() {
    let mut b = Bench::new();
    let at = b.room(64);
    assert_eq!(b.call(nr::getcwd, &[at, 64]), Ok(2));
    b.with_path(nr::mkdir, "/tmp/inner", &[0o777]).unwrap();
    assert_eq!(b.with_path(nr::chdir, "/tmp/inner", &[]), Ok(0));
    assert_eq!(b.call(nr::getcwd, &[at, 64]), Ok(11));
    assert_eq!(b.get_as(b.tid, at, 11), b"/tmp/inner\0");
    assert_eq!(b.call(nr::getcwd, &[at, 10]), Err(Errno::ERANGE));
    assert_eq!(b.call(nr::getcwd, &[8, 64]), Err(Errno::EFAULT));
    assert_eq!(b.with_path(nr::chdir, "/etc/hosts", &[]), Err(Errno::ENOTDIR));
    assert_eq!(b.with_path(nr::rmdir, "/tmp/inner", &[]), Ok(0));
    assert_eq!(b.call(nr::getcwd, &[at, 64]), Err(Errno::ENOENT));
    assert_eq!(b.open("x", c::O_WRONLY | c::O_CREAT), Err(Errno::ENOENT));
    assert_eq!(b.with_path(nr::chdir, "..", &[]), Ok(0));
    assert_eq!(b.call(nr::getcwd, &[at, 64]), Ok(5));
}

#[test]
fn the_working_directory_needs_search_permission() {
    let mut b = Bench::new();
    b.with_path(nr::mkdir, "/tmp/closed", &[0o700]).unwrap();
    assert_eq!((b.call(nr::setgid, &[7]), b.call(nr::setuid, &[7])), (Ok(0), Ok(0)));
    assert_eq!(b.with_path(nr::chdir, "/tmp/closed", &[]), Err(Errno::EACCES));
}

#[test]
fn a_listing_goes_on_after_changes() {
    let mut b = Bench::new();
    for i in 0..50 {
        let fd = b.open(&format!("/tmp/file-{i}"), c::O_WRONLY | c::O_CREAT).unwrap();
        b.call(nr::close, &[fd]).unwrap();
    }
    let fd = b.open("/tmp", c::O_RDONLY | c::O_DIRECTORY).unwrap();
    let at = b.room(400);
    let mut names = Vec::new();
    loop {
        let n = b.call(nr::getdents64, &[fd, at, 400]).unwrap() as usize;
        if n == 0 {
            break;
        }
        let bytes = b.get_as(b.tid, at, n);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let length = usize::from(u16::from_le_bytes([rest[16], rest[17]]));
            assert_eq!(length % 8, 0);
            let name = rest[19..length].split(|b| *b == 0).next().unwrap().to_vec();
            let kind = rest[18];
            assert_eq!(kind, if name.starts_with(b".") { 4 } else { 8 });
            names.push(String::from_utf8(name).unwrap());
            rest = &rest[length..];
        }
        // What was listed is removed behind the reader's back.
        let gone = names.last().unwrap().clone();
        if gone.starts_with("file") {
            b.with_path(nr::unlink, &format!("/tmp/{gone}"), &[]).unwrap();
        }
    }
    assert_eq!(&names[..2], [".", ".."]);
    assert_eq!(names.len(), 52);
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 52);
    assert_eq!(b.call(nr::getdents64, &[fd, at, 400]), Ok(0));
    b.call(nr::lseek, &[fd, 0, c::SEEK_SET]).unwrap();
    assert_eq!(b.call(nr::getdents64, &[fd, 8, 400]), Err(Errno::EFAULT));
    assert_eq!(b.call(nr::getdents64, &[fd, at, 10]), Err(Errno::EINVAL));
    assert_eq!(b.call(nr::getdents64, &[0, at, 400]), Err(Errno::ENOTDIR));
}

#[test]
fn status_of_all_kinds() {
    let mut b = Bench::new();
    let hosts = stat(&mut b, "/etc/hosts").unwrap();
    assert_eq!((hosts.mode, hosts.size, hosts.nlink), (0o100644, 20, 1));
    let null = stat(&mut b, "/dev/null").unwrap();
    assert_eq!((null.mode, null.rdev), (0o20666, 0x103));
    assert_eq!(stat(&mut b, "/none"), Err(Errno::ENOENT));
    let at = b.room(256);
    // Pipes, by descriptor and by link.
    b.call(nr::fstat, &[0, at]).unwrap();
    let pipe: Stat = b.object(b.tid, at);
    assert_eq!(pipe.mode & 0o170000, 0o010000);
    assert_eq!(stat(&mut b, "/proc/self/fd/0").unwrap(), pipe);
    let text = b.readlink("/proc/self/fd/0").unwrap();
    assert_eq!(text, format!("pipe:[{}]", pipe.ino));
    assert_eq!(b.call(nr::fstat, &[CWD, at]), Err(Errno::EBADF));
    assert_eq!(b.call(nr::fstat, &[0, 8]), Err(Errno::EFAULT));
    // The empty path.
    let empty = b.text("");
    assert_eq!(b.call(nr::newfstatat, &[0, empty, at, 0]), Err(Errno::ENOENT));
    assert_eq!(b.call(nr::newfstatat, &[0, empty, at, c::AT_EMPTY_PATH]), Ok(0));
    assert_eq!(b.call(nr::newfstatat, &[CWD, empty, at, c::AT_EMPTY_PATH]), Ok(0));
    let here: Stat = b.object(b.tid, at);
    assert_eq!(here.mode, 0o40755);
    assert_eq!(b.call(nr::newfstatat, &[CWD, empty, at, 0x8000]), Err(Errno::EINVAL));
    let path = b.text("/etc/hosts");
    assert_eq!(b.call(nr::statx, &[CWD, path, 0, 0xfff, at]), Ok(0));
    let long: Statx = b.object(b.tid, at);
    assert_eq!((long.mode, long.size, long.ino, long.mask & 0xfff), (0o100644, 20, hosts.ino, 0xfff));
    assert_eq!(b.call(nr::statx, &[CWD, path, 0x6000, 0xfff, at]), Err(Errno::EINVAL));
    assert_eq!(b.call(nr::statx, &[CWD, path, 0, 0x8000_0000, at]), Err(Errno::EINVAL));
}

#[test]
fn access_asks_for_the_real_user() {
    let mut b = Bench::new();
    assert_eq!(b.with_path(nr::access, "/etc/hosts", &[c::R_OK | c::W_OK]), Ok(0));
    assert_eq!(b.with_path(nr::access, "/etc/hosts", &[c::X_OK]), Err(Errno::EACCES));
    assert_eq!(b.with_path(nr::access, "/etc/hosts", &[8]), Err(Errno::EINVAL));
    assert_eq!(b.with_path(nr::access, "/proc/version", &[c::R_OK]), Ok(0));
    assert_eq!(b.with_path(nr::access, "/proc/self/exe", &[c::X_OK]), Ok(0));
    assert_eq!(b.with_path(nr::access, "/sys/block", &[c::W_OK]), Err(Errno::EROFS));
    b.node.task_mut(Tid(1)).credentials.real_ids = [7; 4];
    assert_eq!(b.with_path(nr::access, "/etc/hosts", &[c::W_OK]), Err(Errno::EACCES));
    let path = b.text("/etc/hosts");
    assert_eq!(b.call(nr::faccessat2, &[CWD, path, c::W_OK, c::AT_EACCESS]), Ok(0));
}

#[test]
fn names() {
    let mut b = Bench::new();
    let (old, new, third) = (b.text("/tmp/old"), b.text("/tmp/new"), b.text("/dev/shm/new"));
    let fd = b.open("/tmp/old", c::O_WRONLY | c::O_CREAT).unwrap();
    b.write(fd, b"text").unwrap();
    assert_eq!(b.call(nr::link, &[old, new]), Ok(0));
    assert_eq!(stat(&mut b, "/tmp/new").unwrap().nlink, 2);
    assert_eq!(b.call(nr::link, &[old, new]), Err(Errno::EEXIST));
    assert_eq!(b.call(nr::rename, &[old, third]), Err(Errno::EXDEV));
    assert_eq!(b.call(nr::renameat2, &[CWD, old, CWD, new, c::RENAME_NOREPLACE]), Err(Errno::EEXIST));
    assert_eq!(b.call(nr::renameat2, &[CWD, old, CWD, new, 0x80]), Err(Errno::EINVAL));
    assert_eq!(b.call(nr::unlink, &[new]), Ok(0));
    assert_eq!(b.call(nr::rename, &[old, new]), Ok(0));
    assert_eq!(b.content("/tmp/new").unwrap(), "text");
    let dir = b.open("/tmp", c::O_RDONLY | c::O_DIRECTORY).unwrap();
    let name = b.text("new");
    assert_eq!(b.call(nr::unlinkat, &[dir, name, c::AT_REMOVEDIR]), Err(Errno::ENOTDIR));
    assert_eq!(b.call(nr::unlinkat, &[dir, name, 1]), Err(Errno::EINVAL));
    assert_eq!(b.call(nr::unlinkat, &[dir, name, 0]), Ok(0));
    // The file is open still: it gets a name again only through O_TMPFILE.
    let magic = b.text(&format!("/proc/self/fd/{fd}"));
    assert_eq!(b.call(nr::linkat, &[CWD, magic, CWD, new, c::AT_SYMLINK_FOLLOW]), Err(Errno::ENOENT));
    let temporary = b.open("/tmp", c::O_TMPFILE | c::O_RDWR).unwrap();
    b.write(temporary, b"unnamed").unwrap();
    let magic = b.text(&format!("/proc/self/fd/{temporary}"));
    assert_eq!(b.call(nr::linkat, &[CWD, magic, CWD, new, c::AT_SYMLINK_FOLLOW]), Ok(0));
    assert_eq!(b.content("/tmp/new").unwrap(), "unnamed");
    assert_eq!(b.with_path(nr::mknod, "/tmp/dir", &[c::S_IFDIR, 0]), Err(Errno::EPERM));
    assert_eq!(b.with_path(nr::mknod, "/tmp/odd", &[0o070000, 0]), Err(Errno::EINVAL));
}

#[test]
fn symbolic_links() {
    let mut b = Bench::new();
    let (target, link) = (b.text("../etc/hosts"), b.text("/tmp/link"));
    assert_eq!(b.call(nr::symlink, &[target, link]), Ok(0));
    assert_eq!(b.content("/tmp/link").unwrap(), "127.0.0.1 localhost\n");
    assert_eq!(b.readlink("/tmp/link").unwrap(), "../etc/hosts");
    let at = b.room(144);
    assert_eq!(b.call(nr::readlink, &[link, at, 3]), Ok(3));
    assert_eq!(b.call(nr::readlink, &[link, at, 0]), Err(Errno::EINVAL));
    assert_eq!(b.call(nr::readlink, &[link, at, -1i64 as u64]), Err(Errno::EINVAL));
    assert_eq!(b.readlink("/etc/hosts"), Err(Errno::EINVAL));
    assert_eq!(b.call(nr::lstat, &[link, at]), Ok(0));
    assert_eq!(b.object::<Stat>(b.tid, at).mode, 0o120777);
    let fd = b.open("/tmp/link", c::O_PATH | c::O_NOFOLLOW).unwrap();
    let empty = b.text("");
    assert_eq!(b.call(nr::readlinkat, &[fd, empty, at, 100]), Ok(12));
    assert_eq!(b.open("/tmp/link", c::O_RDONLY | c::O_NOFOLLOW), Err(Errno::ELOOP));
    let (itself, loop_) = (b.text("loop"), b.text("/tmp/loop"));
    assert_eq!(b.call(nr::symlink, &[itself, loop_]), Ok(0));
    assert_eq!(b.open("/tmp/loop", c::O_RDONLY), Err(Errno::ELOOP));
    // A link between the kernel's tree and the file system, for ever.
    let (over, there) = (b.text("/proc/self/root/tmp/there"), b.text("/tmp/there"));
    assert_eq!(b.call(nr::symlink, &[over, there]), Ok(0));
    assert_eq!(b.open("/tmp/there", c::O_RDONLY), Err(Errno::ELOOP));
}

#[test]
fn attributes_change() {
    let mut b = Bench::new();
    let fd = b.open("/tmp/file", c::O_WRONLY | c::O_CREAT).unwrap();
    assert_eq!(stat(&mut b, "/tmp/file").unwrap().mode, 0o100644);
    assert_eq!(b.call(nr::umask, &[0o1077]), Ok(0o022));
    assert_eq!(b.call(nr::umask, &[0o022]), Ok(0o077));
    assert_eq!(b.call(nr::fchmod, &[fd, 0o4711]), Ok(0));
    assert_eq!(b.call(nr::fchown, &[fd, 5, u32::MAX.into()]), Ok(0));
    let s = stat(&mut b, "/tmp/file").unwrap();
    assert_eq!((s.mode, s.uid, s.gid), (0o100711, 5, 0));
    let times = [Timespec { sec: 1, nsec: 2 }, Timespec { sec: 3, nsec: 0x3fff_fffe }];
    let at = b.put_as(b.tid, times.as_bytes());
    assert_eq!(b.call(nr::utimensat, &[fd, 0, at, 0]), Ok(0));
    let t = stat(&mut b, "/tmp/file").unwrap();
    assert_eq!((t.atime, t.mtime), (Timespec { sec: 1, nsec: 2 }, s.mtime));
    let bad = b.put_as(b.tid, [Timespec { sec: 1, nsec: 1_000_000_000 }; 2].as_bytes());
    assert_eq!(b.call(nr::utimensat, &[fd, 0, bad, 0]), Err(Errno::EINVAL));
    let path = b.text("/tmp/file");
    let old = b.put_as(b.tid, [7i64, 8].as_bytes());
    assert_eq!(b.call(nr::utime, &[path, old]), Ok(0));
    let old = b.put_as(b.tid, [9i64, 10, 11, 12].as_bytes());
    assert_eq!(b.call(nr::utimes, &[path, old]), Ok(0));
    let t = stat(&mut b, "/tmp/file").unwrap();
    assert_eq!((t.atime, t.mtime), (Timespec { sec: 9, nsec: 10_000 }, Timespec { sec: 11, nsec: 12_000 }));
    assert_eq!(b.call(nr::utimes, &[path, 8]), Err(Errno::EFAULT));
}

#[test]
fn extended_attributes() {
    let mut b = Bench::new();
    let fd = b.open("/tmp/file", c::O_RDWR | c::O_CREAT).unwrap();
    let (name, value, at) = (b.text("user.colour"), b.text("green"), b.room(64));
    assert_eq!(b.call(nr::fgetxattr, &[fd, name, at, 64]), Err(Errno::ENODATA));
    assert_eq!(b.call(nr::fsetxattr, &[fd, name, value, 5, c::XATTR_REPLACE]), Err(Errno::ENODATA));
    assert_eq!(b.call(nr::fsetxattr, &[fd, name, value, 5, 0]), Ok(0));
    assert_eq!(b.call(nr::fsetxattr, &[fd, name, value, 5, 4]), Err(Errno::EINVAL));
    assert_eq!(b.call(nr::fsetxattr, &[fd, name, value, 65537, 0]), Err(Errno::E2BIG));
    assert_eq!(b.call(nr::fgetxattr, &[fd, name, at, 0]), Ok(5));
    assert_eq!(b.call(nr::fgetxattr, &[fd, name, at, 4]), Err(Errno::ERANGE));
    assert_eq!(b.with_path(nr::getxattr, "/tmp/file", &[name, at, 64]), Ok(5));
    assert_eq!(b.get_as(b.tid, at, 5), b"green");
    assert_eq!(b.with_path(nr::listxattr, "/tmp/file", &[at, 64]), Ok(12));
    assert_eq!(b.get_as(b.tid, at, 12), b"user.colour\0");
    assert_eq!(b.with_path(nr::listxattr, "/proc/version", &[at, 64]), Ok(0));
    assert_eq!(b.with_path(nr::getxattr, "/proc/version", &[name, at, 64]), Err(Errno::EOPNOTSUPP));
    assert_eq!(b.with_path(nr::removexattr, "/tmp/file", &[name]), Ok(0));
    let (empty, long) = (b.text(""), b.text(&"n".repeat(256)));
    assert_eq!(b.call(nr::fgetxattr, &[fd, empty, at, 64]), Err(Errno::ERANGE));
    assert_eq!(b.call(nr::fgetxattr, &[fd, long, at, 64]), Err(Errno::ERANGE));
}

#[test]
fn file_systems() {
    let mut b = Bench::new();
    let at = b.room(120);
    for (path, magic) in [
        ("/", 0x794c_7630),
        ("/dev/shm", 0x0102_1994),
        ("/proc/self", 0x9fa0),
        ("/sys", 0x6265_6572),
        ("/sys/fs", 0x6265_6572),
        ("/sys/fs/cgroup", 0x6367_7270),
        ("/sys/fs/cgroup/memory.max", 0x6367_7270),
    ] {
        b.with_path(nr::statfs, path, &[at]).unwrap();
        assert_eq!(b.object::<Statfs>(b.tid, at).ftype, magic, "{path}");
    }
    b.call(nr::fstatfs, &[1, at]).unwrap();
    assert_eq!(b.object::<Statfs>(b.tid, at).ftype, 0x5049_5045);
    assert_eq!(b.call(nr::fstatfs, &[9, at]), Err(Errno::EBADF));
}

//! Opening: creation, fifos, devices, descriptors; and copies between files.

use crate::ctx::Outside;
use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Rlimit;
use bloodhound_abi::table::nr;

use crate::dispatch::Outcome;
use crate::ids::*;
use crate::testing::Bench;

#[test]
fn flags_are_kept_as_f_getfl_shows_them() {
    let mut b = Bench::new();
    let flags = c::O_RDWR | c::O_CREAT | c::O_EXCL | c::O_TRUNC | c::O_NOCTTY | c::O_APPEND | c::O_CLOEXEC;
    let fd = b.open("/tmp/file", flags).unwrap();
    assert_eq!(b.call(nr::fcntl, &[fd, c::F_GETFL, 0]), Ok(c::O_RDWR | c::O_APPEND | c::O_LARGEFILE));
    assert_eq!(b.call(nr::fcntl, &[fd, c::F_GETFD, 0]), Ok(1));
    assert_eq!(b.open("/tmp/file", flags), Err(Errno::EEXIST));
    let fd = b.open("/tmp", c::O_PATH | c::O_DIRECTORY | c::O_RDWR).unwrap();
    assert_eq!(b.call(nr::fcntl, &[fd, c::F_GETFL, 0]), Ok(c::O_PATH | c::O_DIRECTORY));
    let at = b.room(300);
    assert_eq!(b.call(nr::getdents64, &[fd, at, 300]), Err(Errno::EBADF));
    assert_eq!(b.call(nr::fchmod, &[fd, 0o700]), Err(Errno::EBADF));
    assert_eq!(b.call(nr::fchdir, &[fd]), Ok(0));
}

#[test]
fn bad_paths() {
    let mut b = Bench::new();
    assert_eq!(b.call(nr::open, &[8, 0, 0]), Err(Errno::EFAULT));
    assert_eq!(b.open("", 0), Err(Errno::ENOENT));
    assert_eq!(b.open(&"x".repeat(256), 0), Err(Errno::ENAMETOOLONG));
    assert_eq!(b.open(&"/tmp/".repeat(820), 0), Err(Errno::ENAMETOOLONG));
    assert_eq!(b.open("/etc/hosts/x", 0), Err(Errno::ENOTDIR));
    assert_eq!(b.open("/etc/hosts", c::O_DIRECTORY), Err(Errno::ENOTDIR));
    let name = b.text("x");
    assert_eq!(b.call(nr::openat, &[77, name, 0, 0]), Err(Errno::EBADF));
    let file = b.open("/etc/hosts", 0).unwrap();
    assert_eq!(b.call(nr::openat, &[file, name, 0, 0]), Err(Errno::ENOTDIR));
    // "If pathname is absolute, then dirfd is ignored."
    let absolute = b.text("/etc/hosts");
    assert!(b.call(nr::openat, &[77, absolute, 0, 0]).is_ok());
}

#[test]
fn a_full_table_makes_no_file() {
    let mut b = Bench::new();
    b.node.process_mut(Pid(1)).limits[c::RLIMIT_NOFILE as usize] = Rlimit { cur: 3, max: 3 };
    assert_eq!(b.open("/tmp/file", c::O_RDWR | c::O_CREAT), Err(Errno::EMFILE));
    assert_eq!(b.with_path(nr::access, "/tmp/file", &[0]), Err(Errno::ENOENT));
}

#[test]
fn devices() {
    let mut b = Bench::new();
    let at = b.room(64);
    for (path, read) in [("/dev/null", 0), ("/dev/zero", 64), ("/dev/full", 64), ("/dev/urandom", 64)] {
        let fd = b.open(path, c::O_RDWR).unwrap();
        assert_eq!(b.call(nr::read, &[fd, at, 64]), Ok(read), "{path}");
        let written = b.write(fd, b"hello");
        assert_eq!(written, if path == "/dev/full" { Err(Errno::ENOSPC) } else { Ok(5) }, "{path}");
    }
    let zero = b.open("/dev/zero", c::O_RDWR).unwrap();
    assert_eq!(b.call(nr::lseek, &[zero, 100, c::SEEK_SET]), Ok(0));
    let random = b.get_as(b.tid, at, 64);
    assert!(random.iter().any(|byte| *byte != 0));
    assert_eq!(b.open("/dev/tty", c::O_RDWR), Err(Errno::ENXIO));
    assert_eq!(b.open("/dev/tty", c::O_PATH).map(|_| ()), Ok(()));
    // The console's streams by their links.
    let fd = b.open("/dev/stdout", c::O_WRONLY | c::O_CREAT | c::O_TRUNC).unwrap();
    b.write(fd, b"out").unwrap();
    assert_eq!(b.node.console.last().unwrap().bytes, b"out");
}

fn fifo() -> (Bench, Tid, Tid) {
    let mut b = Bench::new();
    b.with_path(nr::mknod, "/tmp/fifo", &[c::S_IFIFO | 0o600, 0]).unwrap();
    let child = b.fork();
    let tid = b.tid;
    (b, tid, child)
}

fn open_waits(b: &mut Bench, tid: Tid, flags: u64) {
    let path = b.put_as(tid, b"/tmp/fifo\0");
    assert_eq!(b.start(tid, nr::open, &[path, flags, 0]), Outcome::Blocked);
}

#[test]
fn fifo_opens_meet() {
    let (mut b, one, two) = fifo();
    open_waits(&mut b, one, c::O_RDONLY);
    // The writer writes, closes and removes the fifo before the reader runs.
    let w = b.open_as(two, "/tmp/fifo", c::O_WRONLY).unwrap();
    let text = b.put_as(two, b"early");
    assert_eq!(b.call_as(two, nr::write, &[w, text, 5]), Ok(5));
    b.call_as(two, nr::close, &[w]).unwrap();
    let path = b.put_as(two, b"/tmp/fifo\0");
    b.call_as(two, nr::unlink, &[path]).unwrap();
    let r = b.resume(one).unwrap();
    assert_eq!(b.read_all(r).unwrap(), b"early");
    b.call(nr::close, &[r]).unwrap();
    assert!(b.node.pipes.is_empty() && b.node.fifos.is_empty());
}

#[test]
fn two_readers_wait_for_one_writer() {
    let (mut b, one, two) = fifo();
    let three = b.fork();
    open_waits(&mut b, one, c::O_RDONLY);
    open_waits(&mut b, two, c::O_RDONLY);
    b.open_as(three, "/tmp/fifo", c::O_WRONLY).unwrap();
    assert!(b.resume(one).is_ok() && b.resume(two).is_ok());
}

#[test]
fn fifo_writers_wait_too_and_nonblocking_opens_do_not() {
    let (mut b, one, two) = fifo();
    assert_eq!(b.open("/tmp/fifo", c::O_WRONLY | c::O_NONBLOCK), Err(Errno::ENXIO));
    open_waits(&mut b, two, c::O_WRONLY);
    // A second writer does not help the first.
    assert_eq!(b.open("/tmp/fifo", c::O_WRONLY | c::O_NONBLOCK), Err(Errno::ENXIO));
    assert!(b.sleeps(two));
    let r = b.open("/tmp/fifo", c::O_RDONLY | c::O_NONBLOCK).unwrap();
    let w = b.resume(two).unwrap();
    let text = b.put_as(two, b"x");
    assert_eq!(b.call_as(two, nr::write, &[w, text, 1]), Ok(1));
    let at = b.room(8);
    assert_eq!(b.call_as(one, nr::read, &[r, at, 8]), Ok(1));
    // Both sides at once never waits.
    b.call(nr::close, &[r]).unwrap();
    b.call_as(two, nr::close, &[w]).unwrap();
    assert!(b.open("/tmp/fifo", c::O_RDWR).is_ok());
}

#[test]
fn a_fifo_s_sleeper_that_is_killed_leaves_nothing() {
    for woken in [false, true] {
        let (mut b, one, two) = fifo();
        open_waits(&mut b, two, c::O_RDONLY);
        let writer = woken.then(|| b.open("/tmp/fifo", c::O_WRONLY).unwrap());
        let status = crate::process::ExitStatus::Signal { signo: 9, core: false };
        if !woken {
            b.node.wake(two, false);
        }
        b.node.exit_task(two, status, &mut Outside::new(&mut b.base, &mut b.decisions));
        if let Some(writer) = writer {
            // The other side is gone: SIGPIPE and EPIPE.
            assert_eq!(b.write(writer, b"x"), Err(Errno::EPIPE));
            b.call_as(one, nr::close, &[writer]).unwrap();
        }
        b.with_path(nr::unlink, "/tmp/fifo", &[]).unwrap();
        assert!(b.node.pipes.is_empty() && b.node.fifos.is_empty());
    }
}

#[test]
fn memfds_have_no_name_and_grow() {
    let mut b = Bench::new();
    let name = b.text("buffer");
    let fd = b.call(nr::memfd_create, &[name, c::MFD_CLOEXEC]).unwrap();
    assert_eq!(b.write(fd, b"bytes"), Ok(5));
    b.call(nr::lseek, &[fd, 0, 0]).unwrap();
    assert_eq!(b.read_all(fd).unwrap(), b"bytes");
    assert_eq!(b.call(nr::fcntl, &[fd, c::F_GET_SEALS, 0]), Ok(1));
    assert_eq!(b.call(nr::memfd_create, &[name, 0x100]), Err(Errno::EINVAL));
    let long = b.text(&"n".repeat(250));
    assert_eq!(b.call(nr::memfd_create, &[long, 0]), Err(Errno::EINVAL));
    b.call(nr::close, &[fd]).unwrap();
}

#[test]
fn sendfile_moves_the_right_offset() {
    let mut b = Bench::new();
    let source = b.open("/etc/hosts", c::O_RDONLY).unwrap();
    let sink = b.open("/tmp/copy", c::O_RDWR | c::O_CREAT).unwrap();
    assert_eq!(b.call(nr::sendfile, &[sink, source, 0, 4]), Ok(4));
    let offset = b.put_as(b.tid, &10i64.to_le_bytes());
    assert_eq!(b.call(nr::sendfile, &[sink, source, offset, 1000]), Ok(10));
    assert_eq!(b.object::<i64>(b.tid, offset), 20);
    assert_eq!(b.call(nr::sendfile, &[sink, source, offset, 1000]), Ok(0));
    assert_eq!(b.read_all(source).unwrap(), b"0.0.1 localhost\n");
    assert_eq!(b.content("/tmp/copy").unwrap(), "127.localhost\n");
    let negative = b.put_as(b.tid, &(-1i64).to_le_bytes());
    assert_eq!(b.call(nr::sendfile, &[sink, source, negative, 1]), Err(Errno::EINVAL));
    assert_eq!(b.call(nr::sendfile, &[source, source, 0, 1]), Err(Errno::EBADF));
    assert_eq!(b.call(nr::sendfile, &[sink, source, 8, 1]), Err(Errno::EFAULT));
    let append = b.open("/tmp/copy", c::O_WRONLY | c::O_APPEND).unwrap();
    assert_eq!(b.call(nr::sendfile, &[append, source, 0, 1]), Err(Errno::EINVAL));
}

/// A file of 400,000 bytes that has its offset at the start.
fn large_file(b: &mut Bench) -> (u64, Vec<u8>) {
    let source = b.open("/tmp/large", c::O_RDWR | c::O_CREAT).unwrap();
    let bytes: Vec<u8> = (0..400_000u32).map(|i| (i % 251) as u8).collect();
    assert_eq!(b.write(source, &bytes), Ok(400_000));
    b.call(nr::lseek, &[source, 0, 0]).unwrap();
    (source, bytes)
}

#[test]
fn sendfile_fills_a_pipe_once() {
    let mut b = Bench::new();
    let (source, bytes) = large_file(&mut b);
    let fds = b.room(8);
    b.call(nr::pipe, &[fds]).unwrap();
    let [r, w]: [i32; 2] = b.object(b.tid, fds);
    let reader = b.fork();
    assert_eq!(b.call(nr::sendfile, &[w as u64, source, 0, 400_000]), Ok(65536));
    assert_eq!(b.start(b.tid, nr::sendfile, &[w as u64, source, 0, 400_000]), Outcome::Blocked);
    let at = b.room(65536);
    // Room for a page is needed, and used.
    assert_eq!(b.call_as(reader, nr::read, &[r as u64, at, 4000]), Ok(4000));
    assert!(matches!(
        b.node.resume_syscall(b.tid, &mut Outside::new(&mut b.base, &mut b.decisions)),
        Outcome::Blocked
    ));
    assert_eq!(b.call_as(reader, nr::read, &[r as u64, at, 97]), Ok(97));
    assert_eq!(b.resume(b.tid), Ok(4096));
    assert_eq!(b.call_as(reader, nr::read, &[r as u64, at, 65536]), Ok(65535));
    assert!(b.get_as(reader, at, 65535) == bytes[4097..69632]);
    assert_eq!(b.call(nr::lseek, &[source, 0, c::SEEK_CUR]), Ok(69632));
}

#[test]
fn sendfile_to_a_full_socket_goes_on_where_it_was() {
    let mut b = Bench::new();
    let (source, bytes) = large_file(&mut b);
    let fds = b.room(8);
    b.call(nr::socketpair, &[c::AF_UNIX, c::SOCK_STREAM, 0, fds]).unwrap();
    let [r, w]: [i32; 2] = b.object(b.tid, fds);
    let reader = b.fork();
    assert_eq!(b.start(b.tid, nr::sendfile, &[w as u64, source, 0, 400_000]), Outcome::Blocked);
    let at = b.room(65536);
    let mut got = Vec::new();
    while got.len() < 400_000 {
        let n = b.call_as(reader, nr::read, &[r as u64, at, 65536]).unwrap();
        got.extend(b.get_as(reader, at, n as usize));
        if b.node.task(b.tid).woken.is_some() {
            let _more = b.node.resume_syscall(b.tid, &mut Outside::new(&mut b.base, &mut b.decisions));
        }
    }
    assert!(got == bytes);
    assert_eq!(b.node.task(b.tid).regs.rax, 400_000);
    assert_eq!(b.call(nr::lseek, &[source, 0, c::SEEK_CUR]), Ok(400_000));
}

#[test]
fn copy_file_range_within_a_file_must_not_overlap() {
    let mut b = Bench::new();
    let fd = b.open("/tmp/file", c::O_RDWR | c::O_CREAT).unwrap();
    b.write(fd, b"0123456789").unwrap();
    let mut at = |n: i64| b.put_as(b.tid, &n.to_le_bytes());
    let (zero, five, ten) = (at(0), at(5), at(10));
    assert_eq!(b.call(nr::copy_file_range, &[fd, zero, fd, five, 6, 0]), Err(Errno::EINVAL));
    assert_eq!(b.call(nr::copy_file_range, &[fd, zero, fd, five, 3, 1]), Err(Errno::EINVAL));
    // Up to the end of the file and no further: no overlap.
    assert_eq!(b.call(nr::copy_file_range, &[fd, five, fd, ten, 1000, 0]), Ok(5));
    assert_eq!(b.object::<[i64; 1]>(b.tid, ten), [15]);
    assert_eq!(b.content("/tmp/file").unwrap(), "012345678956789");
    let dir = b.open("/tmp", c::O_RDONLY).unwrap();
    assert_eq!(b.call(nr::copy_file_range, &[dir, 0, fd, 0, 1, 0]), Err(Errno::EISDIR));
}

#[test]
fn sizes_and_limits() {
    let mut b = Bench::new();
    let fd = b.open("/tmp/file", c::O_RDWR | c::O_CREAT).unwrap();
    assert_eq!(b.call(nr::ftruncate, &[fd, 5000]), Ok(0));
    assert_eq!(b.call(nr::ftruncate, &[fd, -1i64 as u64]), Err(Errno::EINVAL));
    assert_eq!(b.call(nr::fallocate, &[fd, 0, 0, 0]), Err(Errno::EINVAL));
    assert_eq!(b.call(nr::fallocate, &[fd, 0, 4096, 8192]), Ok(0));
    assert_eq!(b.call(nr::lseek, &[fd, 0, c::SEEK_END]), Ok(12288));
    let read = b.open("/tmp/file", c::O_RDONLY).unwrap();
    assert_eq!(b.call(nr::ftruncate, &[read, 1]), Err(Errno::EINVAL));
    assert_eq!(b.call(nr::fallocate, &[read, 0, 0, 1]), Err(Errno::EBADF));
    assert_eq!(b.with_path(nr::truncate, "/tmp", &[0]), Err(Errno::EISDIR));
    assert_eq!(b.with_path(nr::truncate, "/tmp/file", &[3]), Ok(0));
    assert_eq!(b.with_path(nr::truncate, &format!("/proc/self/fd/{read}"), &[2]), Ok(0));
    assert_eq!(b.content("/tmp/file").unwrap(), "\0\0");
    let before = b.node.clock;
    assert_eq!(b.call(nr::fsync, &[fd]), Ok(0));
    assert_eq!(b.node.clock.since(before), b.node.config.costs.fsync + b.node.config.costs.syscall);
    let event = b.call(nr::eventfd2, &[0, 0]).unwrap();
    assert_eq!(b.call(nr::fsync, &[event]), Err(Errno::EINVAL));
    b.node.process_mut(Pid(1)).limits[c::RLIMIT_FSIZE as usize] = Rlimit { cur: 100, max: 100 };
    assert_eq!(b.call(nr::ftruncate, &[fd, 101]), Err(Errno::EFBIG));
    assert_eq!(b.call(nr::ftruncate, &[fd, 100]), Ok(0));
}

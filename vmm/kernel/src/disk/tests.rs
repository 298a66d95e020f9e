//! What programs see of disks that fail, and what is asked for it.

use std::sync::Arc;

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::table::nr;
use bloodhound_faults::Kind;
use bloodhound_vfs::{DiskModel, MountNs, MountSpec, Trouble, Volume};

use crate::container::ContainerId;
use crate::hazards::{OfVolumes, Rates};
use crate::mm::Access;
use crate::mm::fault::Fault;
use crate::testing::Bench;

/// More than all: there is no choice.
const ALWAYS: u32 = 1_000_000_000;
const CREATE: u64 = c::O_RDWR | c::O_CREAT;

fn set(b: &mut Bench, rates: &[(Kind, u32)]) {
    let rates = Arc::new(rates.iter().copied().collect::<Rates>());
    b.node.container_mut(ContainerId(0)).hazards.set(&rates);
}

fn offset(b: &mut Bench, fd: u64) -> u64 {
    b.call(nr::lseek, &[fd, 0, c::SEEK_CUR]).expect("a place")
}

fn told(b: &mut Bench) -> Vec<(Kind, &'static str, String, String)> {
    let path = |path: Option<Vec<u8>>| String::from_utf8(path.unwrap_or_default()).expect("a path");
    let injected = std::mem::take(&mut b.node.injected);
    injected.into_iter().map(|met| (met.kind, met.call, path(met.path), met.shown)).collect()
}

#[test]
fn a_write_that_fails_changes_nothing() {
    let mut b = Bench::new();
    let fd = b.open("/var/file", CREATE).or_else(|_| b.open("/file", CREATE)).unwrap();
    assert_eq!(b.write(fd, b"before"), Ok(6));
    set(&mut b, &[(Kind::WriteFail, ALWAYS)]);
    assert_eq!(b.write(fd, b"lost"), Err(Errno::EIO));
    assert_eq!(offset(&mut b, fd), 6);
    // No bytes, no disk; and what lies in memory has none.
    assert_eq!(b.write(fd, b""), Ok(0));
    let memory = b.open("/dev/shm/file", CREATE).unwrap();
    assert_eq!(b.write(memory, b"kept"), Ok(4));
    let told = told(&mut b);
    assert_eq!(told.len(), 1);
    assert_eq!((told[0].0, told[0].1, told[0].3.as_str()), (Kind::WriteFail, "write", "EIO"));
    assert!(told[0].2.ends_with("/file"), "{told:?}");
    set(&mut b, &[]);
    assert_eq!(b.write(fd, b"after"), Ok(5));
    assert_eq!(b.call(nr::lseek, &[fd, 0, c::SEEK_END]), Ok(11));
}

#[test]
fn a_write_is_cut_at_a_page_and_the_next_one_fails() {
    let mut b = Bench::new();
    let fd = b.open("/file", CREATE).unwrap();
    set(&mut b, &[(Kind::PartialWrite, ALWAYS)]);
    // Within a page nothing can be cut.
    assert_eq!(b.write(fd, &[1; 96]), Ok(96));
    assert_eq!(b.write(fd, &[2; 4000]), Ok(4000));
    assert_eq!(b.write(fd, &[3; 4096]), Ok(4096));
    assert_eq!(told(&mut b), []);
    assert_eq!(b.write(fd, &[4; 4097]), Ok(4096));
    assert_eq!(told(&mut b)[0].3, "4096 of 4097 bytes, then EIO");
    assert_eq!(b.write(fd, &[4; 1]), Err(Errno::EIO));
    assert_eq!(offset(&mut b, fd), 3 * 4096);
    assert_eq!(b.write(fd, &[4; 1]), Ok(1));
    assert_eq!(b.call(nr::lseek, &[fd, 4000, c::SEEK_SET]), Ok(4000));
    assert_eq!(b.write(fd, &[5; 200]), Ok(96), "it begins within a page");
}

#[test]
fn a_failed_fsync_is_told_once_to_everybody_who_had_the_file_open() {
    let mut b = Bench::new();
    let first = b.open("/file", CREATE).unwrap();
    let second = b.open("/file", CREATE).unwrap();
    let copy = b.call(nr::dup, &[first]).unwrap();
    b.write(first, b"data").unwrap();
    set(&mut b, &[(Kind::FsyncFail, ALWAYS)]);
    assert_eq!(b.call(nr::fdatasync, &[first]), Err(Errno::EIO));
    set(&mut b, &[]);
    let third = b.open("/file", CREATE).unwrap();
    assert_eq!(b.call(nr::fsync, &[first]), Ok(0), "once");
    assert_eq!(b.call(nr::fsync, &[copy]), Ok(0), "it is the same description");
    assert_eq!(b.call(nr::fsync, &[second]), Err(Errno::EIO));
    assert_eq!(b.call(nr::fsync, &[second]), Ok(0));
    assert_eq!(b.call(nr::fsync, &[third]), Ok(0), "opened after it was told");
    // The data is there to be read as long as it is not dropped from memory.
    assert_eq!(b.content("/file").unwrap(), "data");
    assert_eq!(told(&mut b).len(), 1);
}

#[test]
fn a_write_with_o_sync_that_is_not_durable_fails_and_stays_where_it_was() {
    let mut b = Bench::new();
    let fd = b.open("/file", CREATE | c::O_SYNC).unwrap();
    set(&mut b, &[(Kind::FsyncFail, ALWAYS)]);
    assert_eq!(b.write(fd, b"data"), Err(Errno::EIO));
    assert_eq!(offset(&mut b, fd), 0);
    assert_eq!(b.content("/file").unwrap(), "data", "it is in the page cache");
    set(&mut b, &[]);
    assert_eq!(b.write(fd, b"more"), Ok(4));
}

#[test]
fn reads_fail_where_there_is_something_to_read() {
    let mut b = Bench::new();
    let fd = b.open("/etc/hosts", c::O_RDONLY).unwrap();
    let at = b.room(64);
    set(&mut b, &[(Kind::ReadFail, ALWAYS)]);
    assert_eq!(b.call(nr::read, &[fd, at, 64]), Err(Errno::EIO));
    assert_eq!(b.call(nr::pread64, &[fd, at, 64, 1 << 20]), Ok(0));
    let null = b.open("/dev/null", c::O_RDONLY).unwrap();
    assert_eq!(b.call(nr::read, &[null, at, 64]), Ok(0));
    set(&mut b, &[]);
    assert!(b.call(nr::read, &[fd, at, 64]).unwrap() > 0);
}

#[test]
fn a_disk_that_lies_gives_other_data_and_forgets_some() {
    let mut b = Bench::new();
    let fd = b.open("/file", CREATE).unwrap();
    b.write(fd, &[0; 100]).unwrap();
    set(&mut b, &[(Kind::ReadCorrupt, ALWAYS)]);
    let at = b.room(100);
    assert_eq!(b.call(nr::pread64, &[fd, at, 100, 0]), Ok(100));
    let ones: u32 = b.get_as(b.tid, at, 100).iter().map(|byte| byte.count_ones()).sum();
    assert_eq!(ones, 1);
    set(&mut b, &[(Kind::LostWrite, ALWAYS)]);
    assert_eq!(b.call(nr::fsync, &[fd]), Ok(0));
    assert_eq!(told(&mut b).len(), 2);
    set(&mut b, &[]);
    assert_eq!(b.content("/file").unwrap(), "\0".repeat(100));
}

#[test]
fn a_full_disk_takes_what_it_has_room_for_and_a_read_only_one_nothing() {
    let mut b = Bench::new();
    let fd = b.open("/file", CREATE).unwrap();
    b.write(fd, b"data").unwrap();
    b.node.vfs.set_trouble(Trouble { full: true, read_only: false });
    assert_eq!(b.write(fd, &[1; 5000]), Ok(4092), "the rest of the page");
    assert_eq!(b.write(fd, &[1; 5000]), Err(Errno::ENOSPC));
    assert_eq!(b.open("/other", CREATE), Err(Errno::ENOSPC));
    assert!(b.open("/dev/shm/other", CREATE).is_ok());
    b.node.vfs.set_trouble(Trouble { full: false, read_only: true });
    assert_eq!(b.call(nr::pwrite64, &[fd, 0, 0, 0]), Ok(0));
    assert_eq!(b.write(fd, b"data"), Err(Errno::EROFS));
    assert_eq!(b.call(nr::fsync, &[fd]), Err(Errno::EROFS));
    assert_eq!(b.open("/other", CREATE), Err(Errno::EROFS));
    assert_eq!(b.open("/file", c::O_RDWR), Err(Errno::EROFS));
    assert!(b.open("/file", c::O_RDONLY).is_ok());
    b.node.vfs.set_trouble(Trouble::default());
    assert_eq!(b.write(fd, b"data"), Ok(4));
}

#[test]
fn a_slow_disk_lets_calls_sleep() {
    let mut b = Bench::new();
    let fd = b.open("/file", CREATE).unwrap();
    b.node.broken.set_slow(None, 5_000_000);
    let end = b.node.clock.after(5_000_000);
    assert_eq!(b.start(b.tid, nr::fsync, &[fd]), crate::dispatch::Outcome::Blocked);
    let deadline = b.node.next_deadline().expect("a deadline");
    assert!(deadline >= end && deadline < end.after(100_000), "{deadline:?}");
    b.node.clock = deadline;
    b.node.on_time();
    assert_eq!(b.resume(b.tid), Ok(0));
}

#[test]
fn resources_that_are_refused_are_not_taken() {
    let mut b = Bench::new();
    set(&mut b, &[(Kind::Enfile, ALWAYS)]);
    assert_eq!(b.open("/new", CREATE), Err(Errno::ENFILE));
    let at = b.room(8);
    assert_eq!(b.call(nr::pipe, &[at]), Err(Errno::ENFILE));
    assert_eq!(b.call(nr::socket, &[c::AF_INET, c::SOCK_STREAM, 0]), Err(Errno::ENFILE));
    set(&mut b, &[(Kind::ForkFail, ALWAYS)]);
    assert_eq!(b.with_path(nr::access, "/new", &[0]), Err(Errno::ENOENT));
    assert_eq!(b.call(nr::fork, &[]), Err(Errno::EAGAIN));
    set(&mut b, &[(Kind::Enomem, ALWAYS)]);
    assert_eq!(b.call(nr::fork, &[]), Err(Errno::ENOMEM));
    let anonymous = [0, 4096, c::PROT_READ, c::MAP_PRIVATE | c::MAP_ANONYMOUS, u64::MAX, 0];
    assert_eq!(b.call(nr::mmap, &anonymous), Err(Errno::ENOMEM));
    let before = b.call(nr::brk, &[0]).unwrap();
    assert_eq!(b.call(nr::brk, &[before + 8192]), Ok(before));
    set(&mut b, &[(Kind::FutexWake, ALWAYS)]);
    let word = b.put_as(b.tid, &[0; 4]);
    assert_eq!(b.call(nr::futex, &[word, c::FUTEX_WAIT, 0, 0, 0, 0]), Ok(0));
    assert_eq!(b.call(nr::futex, &[word, c::FUTEX_WAIT, 1, 0, 0, 0]), Err(Errno::EAGAIN));
}

/// Every choice has a name of its own, and nothing is asked where no rate is in force.
#[test]
fn rates_are_kept_and_one_kind_leaves_the_others_alone() {
    let failures = |rates: &[(Kind, u32)]| {
        let mut b = Bench::new();
        let fd = b.open("/file", CREATE).unwrap();
        let at = b.put_as(b.tid, b"data");
        let before = b.decisions.trail();
        assert_eq!(b.call(nr::fsync, &[fd]), Ok(0));
        assert_eq!(b.decisions.trail(), before, "nobody asks");
        set(&mut b, rates);
        let mut failed = Vec::new();
        for n in 0..2_000 {
            let _ignored = b.call(nr::pwrite64, &[fd, at, 4, 0]);
            if b.call(nr::fsync, &[fd]).is_err() {
                failed.push(n);
            }
        }
        failed
    };
    let alone = failures(&[(Kind::FsyncFail, ALWAYS / 10)]);
    // The standard deviation is 13.
    assert!(alone.len().abs_diff(200) < 65, "{}", alone.len());
    assert_eq!(failures(&[(Kind::FsyncFail, ALWAYS / 10), (Kind::WriteFail, ALWAYS / 3)]), alone);
    let rarer = failures(&[(Kind::FsyncFail, ALWAYS / 20)]);
    assert!(rarer.iter().all(|n| alone.contains(n)) && rarer.len() < alone.len());
}

/// Whom a kind hits depends on no other kind that hits the same operation first.
#[test]
fn kinds_that_hit_the_same_operation_leave_each_other_alone() {
    let hits = |rates: &[(Kind, u32)]| {
        let mut b = Bench::new();
        let fd = b.open("/file", CREATE).unwrap();
        let at = b.put_as(b.tid, &[1; 8192]);
        assert_eq!(b.call(nr::pwrite64, &[fd, at, 8192, 0]), Ok(8192));
        set(&mut b, rates);
        let mut hits = Vec::new();
        for n in 0..1_000 {
            for call in [nr::pwrite64, nr::pread64, nr::fsync] {
                let _ignored = b.call(call, &[fd, at, 8192, 0]);
            }
            // Whatever is met is met once.
            b.node.broken.heal();
            hits.extend(told(&mut b).into_iter().map(|(kind, ..)| (kind, n)));
        }
        hits
    };
    for (kind, first) in [
        (Kind::PartialWrite, Kind::WriteFail),
        (Kind::ReadCorrupt, Kind::ReadFail),
        (Kind::LostWrite, Kind::FsyncFail),
    ] {
        let mut alone = hits(&[(kind, ALWAYS / 5)]);
        let both = hits(&[(kind, ALWAYS / 5), (first, ALWAYS / 3)]);
        assert!(alone.len() > 100 && both.len() > 300, "{kind}");
        alone.retain(|(_, n)| !both.contains(&(first, *n)));
        let rest: Vec<_> = both.into_iter().filter(|(hit, _)| *hit == kind).collect();
        assert_eq!(rest, alone, "{kind}");
    }
}

#[test]
fn a_health_check_takes_no_error_that_is_owed_to_the_service() {
    let mut b = Bench::new();
    let fd = b.open("/file", CREATE).unwrap();
    set(&mut b, &[(Kind::PartialWrite, ALWAYS)]);
    assert_eq!(b.write(fd, &[1; 5000]), Ok(4096));
    let pid = b.node.task(b.tid).pid;
    b.node.process_mut(pid).is_check = true;
    assert_eq!(b.write(fd, &[1; 10]), Ok(10));
    b.node.process_mut(pid).is_check = false;
    assert_eq!(b.write(fd, &[1; 10]), Err(Errno::EIO));
}

#[test]
fn a_mapping_without_a_descriptor_meets_what_a_descriptor_meets() {
    let mut b = Bench::new();
    let fd = b.open("/file", CREATE).unwrap();
    b.write(fd, &[1; 4096]).unwrap();
    let map = b.call(nr::mmap, &[0, 4096, c::PROT_READ | c::PROT_WRITE, c::MAP_SHARED, fd, 0]).unwrap();
    assert_eq!(b.call(nr::close, &[fd]), Ok(0));
    let sync = |b: &mut Bench| b.call(nr::msync, &[map, 4096, c::MS_SYNC]);
    set(&mut b, &[(Kind::LostWrite, ALWAYS)]);
    assert_eq!(sync(&mut b), Ok(0));
    assert_eq!(told(&mut b)[0].0, Kind::LostWrite);
    set(&mut b, &[(Kind::FsyncFail, ALWAYS)]);
    assert_eq!(sync(&mut b), Err(Errno::EIO));
    b.node.vfs.set_trouble(Trouble { full: false, read_only: true });
    assert_eq!(sync(&mut b), Err(Errno::EROFS));
}

/// Neither a slow disk nor a leap second that is announced goes with the power, and the time of a fault is virtual time.
#[test]
fn a_machine_without_power_keeps_what_is_wrong_with_it() {
    struct Nobody;
    impl crate::watch::Watch for Nobody {
        fn tell(&mut self, _: crate::watch::Whose, _: &crate::watch::Told<'_>) {}
    }
    let mut b = Bench::new();
    b.node.set_clock_rate(500_000);
    b.node.clock = b.node.clock.after(10_000_000_000);
    let fd = b.open("/file", CREATE).unwrap();
    set(&mut b, &[(Kind::FsyncFail, ALWAYS)]);
    assert_eq!(b.call(nr::fsync, &[fd]), Err(Errno::EIO));
    let at = b.node.injected[0].at;
    assert!(at <= b.node.clock && at < b.node.own_time(), "{at}");
    b.node.broken.set_slow(None, 7);
    b.node.insert_leap_second();
    let (now, left) = (b.node.clock, 1_000_000_000 - b.node.realtime() % 1_000_000_000);
    let stacks = vec![bloodhound_net::Stack::new(Default::default(), 2)];
    let reboot = crate::node::Reboot { stacks, boot_id: [1, 2] };
    b.node.lose_power(reboot, now, &mut b.base, &mut |_, _, _| 0, &mut Nobody).unwrap();
    assert_eq!(b.node.broken.slow_ns(None), 7);
    assert_eq!(b.node.uptime(), 10_000_000_000);
    let deadline = b.node.next_deadline().expect("the end of the second");
    assert!(deadline > now && deadline <= now.after(left), "{deadline}");
    let (tai, then) = (b.node.tai(), b.node.clock);
    b.node.clock = deadline;
    b.node.on_time();
    assert!(b.node.tai() - tai <= left && deadline > then);
    assert!(matches!(b.node.time.leap, crate::node_clock::Leap::Inserted(_)));
}

/// A block that cannot be read: read(2) ends before it and fails in it, a mapping of it is SIGBUS, and what is written there is good.
#[test]
fn a_bad_sector_is_eio_and_sigbus_until_it_is_written() {
    let mut b = Bench::new();
    let fd = b.open("/file", CREATE).unwrap();
    b.write(fd, &[1; 12288]).unwrap();
    let prot = c::PROT_READ | c::PROT_WRITE;
    let shared = b.call(nr::mmap, &[0, 12288, prot, c::MAP_SHARED, fd, 0]).unwrap();
    let private = b.call(nr::mmap, &[0, 12288, prot, c::MAP_PRIVATE, fd, 0]).unwrap();
    let mm = b.node.process(b.node.task(b.tid).pid).mm;
    let fault = |b: &mut Bench, addr: u64, access| match b.node.page_fault_of(b.tid, mm, addr, access) {
        Fault::Map(pages) => {
            Ok(pages.iter().map(|page| page.addr.wrapping_sub(addr) / 4096).collect::<Vec<_>>())
        }
        Fault::Signal(signo, code, at) => Err((signo as i32, code, at)),
    };
    assert_eq!(fault(&mut b, shared, Access::Read), Ok(vec![0, 1, 2]));
    let ino = b
        .node
        .vfs
        .block_to_lose((MountNs(0), None), &|_| false, (0, 1))
        .map(|(ino, _)| ino)
        .expect("the file");
    b.node.mms[mm].invalid.clear();
    b.node.vfs.go_bad(ino, 1);
    b.node.drop_moved_pages();
    assert!(b.node.mms[mm].invalid.contains(&(shared + 4096, 4096)), "{:?}", b.node.mms[mm].invalid);
    // The neighbours are mapped, the block is not.
    assert_eq!(fault(&mut b, shared, Access::Read), Ok(vec![0, 2]));
    for (at, access) in
        [(shared, Access::Read), (shared, Access::Write), (private, Access::Read), (private, Access::Write)]
    {
        let bus = (c::SIGBUS, c::BUS_ADRERR, at + 4100);
        assert_eq!(fault(&mut b, at + 4100, access), Err((bus.0 as i32, bus.1 as i32, bus.2)));
    }
    let sigbus = (Kind::BadSector, "page fault", "/file".to_owned(), "SIGBUS".to_owned());
    assert_eq!(told(&mut b), vec![sigbus; 4]);
    let at = b.room(12288);
    assert_eq!(b.call(nr::pread64, &[fd, at, 12288, 0]), Ok(4096));
    assert_eq!(b.call(nr::pread64, &[fd, at, 12288, 4096]), Err(Errno::EIO));
    assert_eq!(b.call(nr::pread64, &[fd, at, 12288, 8192]), Ok(4096));
    // The kernel meets it in the memory of the program.
    assert_eq!(b.call(nr::pwrite64, &[fd, shared + 4096, 10, 0]), Err(Errno::EFAULT));
    assert_eq!(b.call(nr::pwrite64, &[fd, at, 10, 5000]), Err(Errno::EIO), "a part of it");
    let seen: Vec<_> = told(&mut b).into_iter().map(|(kind, call, _, _)| (kind, call)).collect();
    assert_eq!(seen, [(Kind::BadSector, "pread64"), (Kind::BadSector, "pwrite64")]);
    assert_eq!(b.call(nr::pwrite64, &[fd, at, 4096, 4096]), Ok(4096));
    assert_eq!(b.call(nr::pread64, &[fd, at, 12288, 0]), Ok(12288));
    assert!(fault(&mut b, shared + 4096, Access::Read).is_ok());
    assert!(b.node.vfs.is_whole());
}

#[test]
fn direct_reads_give_all_or_nothing_and_locked_pages_stay() {
    let mut b = Bench::new();
    let fd = b.open("/file", CREATE | c::O_DIRECT).unwrap();
    let at = b.room(12288) & !511;
    assert_eq!(b.call(nr::pwrite64, &[fd, at, 8192, 0]), Ok(8192));
    let (ino, block) = b.node.vfs.block_to_lose((MountNs(0), None), &|_| false, (0, 1)).expect("the file");
    assert_eq!(block, 1);
    assert!(!b.node.is_locked_in_memory(ino));
    let map = b.call(nr::mmap, &[0, 8192, c::PROT_READ, c::MAP_SHARED, fd, 0]).unwrap();
    assert!(!b.node.is_locked_in_memory(ino));
    assert_eq!(b.call(nr::mlock, &[map, 4096]), Ok(0));
    assert!(b.node.is_locked_in_memory(ino));
    assert_eq!(b.call(nr::munlock, &[map, 4096]), Ok(0));
    b.node.vfs.go_bad(ino, 1);
    assert_eq!(b.call(nr::pread64, &[fd, at, 8192, 0]), Err(Errno::EIO));
    assert_eq!(b.call(nr::pread64, &[fd, at, 4096, 0]), Ok(4096));
}

#[test]
fn a_slow_disk_lets_reads_sleep_that_are_not_cached() {
    use crate::dispatch::Outcome;
    let mut b = Bench::new();
    let fd = b.open("/file", CREATE).unwrap();
    b.write(fd, &[1; 12288]).unwrap();
    let at = b.room(12288);
    let read = |b: &mut Bench, from: u64, len: u64| {
        if b.start(b.tid, nr::pread64, &[fd, at, len, from]) != Outcome::Blocked {
            return false;
        }
        b.node.clock = b.node.next_deadline().expect("a deadline");
        b.node.on_time();
        assert_eq!(b.resume(b.tid), Ok(len));
        true
    };
    assert!(!read(&mut b, 0, 4096), "a fast disk");
    b.node.broken.set_slow(None, 5_000_000);
    assert!(read(&mut b, 0, 4096));
    assert!(!read(&mut b, 0, 4096), "it was read");
    assert!(read(&mut b, 4000, 200), "one of both pages");
    assert!(!read(&mut b, 0, 8192));
    assert_eq!(b.call(nr::pread64, &[fd, at, 10, 12288]), Ok(0), "nothing is there");
    let data = b.put_as(b.tid, &[2; 10]);
    assert_eq!(b.call(nr::pwrite64, &[fd, data, 10, 8192]), Ok(10));
    assert!(!read(&mut b, 8192, 4096), "it was written");
    // RWF_NOWAIT does not sleep.
    b.node.broken.set_slow(None, 5_000_000);
    let vector = [at.to_le_bytes(), 100u64.to_le_bytes()].concat();
    let vector = b.put_as(b.tid, &vector);
    assert_eq!(b.call(nr::preadv2, &[fd, vector, 1, 0, 0, 8]), Err(Errno::EAGAIN));
    assert!(read(&mut b, 0, 4096));
    assert_eq!(b.call(nr::preadv2, &[fd, vector, 1, 0, 0, 8]), Ok(100));
    let memory = b.open("/dev/shm/file", CREATE).unwrap();
    b.write(memory, &[1; 10]).unwrap();
    assert_eq!(b.call(nr::pread64, &[memory, at, 10, 0]), Ok(10));
    b.node.broken.set_slow(None, 0);
    assert!(!read(&mut b, 8192, 4096));
    // O_DIRECT waits always, and leaves nothing in the page cache.
    let direct = b.open("/file", c::O_RDWR | c::O_DIRECT).unwrap();
    let at = at.next_multiple_of(512);
    b.node.broken.set_slow(None, 5_000_000);
    for call in [nr::pread64, nr::pread64, nr::pwrite64] {
        assert_eq!(b.start(b.tid, call, &[direct, at, 512, 0]), Outcome::Blocked);
        b.node.clock = b.node.next_deadline().expect("a deadline");
        b.node.on_time();
        assert_eq!(b.resume(b.tid), Ok(512));
    }
}

#[test]
fn a_block_goes_astray_when_a_file_is_synced() {
    let mut b = Bench::on_disk(Some(DiskModel::Ordered));
    let (log, other) = (b.open("/log", CREATE).unwrap(), b.open("/other", CREATE).unwrap());
    b.write(log, &[1; 8192]).unwrap();
    set(&mut b, &[(Kind::Misdirected, ALWAYS)]);
    assert_eq!(b.call(nr::fsync, &[log]), Ok(0));
    assert_eq!(told(&mut b), [], "there is no other place on the disk");
    b.write(other, &[2; 4096]).unwrap();
    assert_eq!(b.call(nr::fsync, &[other]), Ok(0));
    let met = told(&mut b);
    assert_eq!((met.len(), met[0].0, met[0].1), (1, Kind::Misdirected, "fsync"));
    assert!(
        met[0].3.starts_with("0, but its block 0 lies in the place of block ")
            && met[0].3.ends_with(" of /log"),
        "{met:?}"
    );
    assert_eq!(b.call(nr::fsync, &[other]), Ok(0));
    assert_eq!(told(&mut b), [], "nothing is to be written");
    assert_eq!(b.content("/other").unwrap(), "\u{2}".repeat(4096));
}

const VOLUME: Volume = Volume(3);

/// A machine with a volume at /volume, which faults can name.
fn with_volume() -> Bench {
    let mut b = Bench::new();
    let spec = MountSpec::Volume { read_only: false };
    let id = b.node.vfs.mount(&mut b.base, b"/volume", spec).expect("a mount");
    b.node.vfs.name_volume(id, VOLUME);
    b
}

#[test]
fn a_volume_is_in_trouble_alone() {
    let mut b = with_volume();
    let (there, elsewhere) = (b.open("/volume/file", CREATE).unwrap(), b.open("/file", CREATE).unwrap());
    b.node.vfs.set_trouble_of(Some(VOLUME), Trouble { full: true, read_only: false });
    assert!(!b.node.vfs.is_whole());
    assert_eq!(b.write(there, &[1; 10]), Err(Errno::ENOSPC));
    assert_eq!(b.open("/volume/other", CREATE), Err(Errno::ENOSPC));
    assert_eq!(b.write(elsewhere, &[1; 10]), Ok(10));
    // f_bfree of statfs(2).
    let mut free = |fd: u64| {
        let at = b.room(120);
        assert_eq!(b.call(nr::fstatfs, &[fd, at]), Ok(0));
        b.get_as(b.tid, at + 24, 8)
    };
    assert_eq!(free(there), [0; 8]);
    assert_ne!(free(elsewhere), [0; 8]);
    b.node.vfs.set_trouble_of(Some(VOLUME), Trouble { full: false, read_only: true });
    assert_eq!(b.write(there, b"data"), Err(Errno::EROFS));
    assert_eq!(b.call(nr::fsync, &[there]), Err(Errno::EROFS));
    assert_eq!((b.write(elsewhere, b"data"), b.call(nr::fsync, &[elsewhere])), (Ok(4), Ok(0)));
    b.node.vfs.heal();
    assert_eq!(b.write(there, b"data"), Ok(4));
    assert!(b.node.vfs.is_whole());
}

#[test]
fn a_volume_is_slow_alone() {
    let mut b = with_volume();
    let (there, elsewhere) = (b.open("/volume/file", CREATE).unwrap(), b.open("/file", CREATE).unwrap());
    for fd in [there, elsewhere] {
        b.write(fd, b"data").unwrap();
    }
    b.node.broken.set_slow(Some(VOLUME), 5_000_000);
    assert_eq!((b.node.broken.slow_ns(None), b.node.broken.slow_ns(Some(VOLUME))), (0, 5_000_000));
    assert_eq!(b.call(nr::fsync, &[elsewhere]), Ok(0));
    let at = b.room(4);
    assert_eq!(b.call(nr::pread64, &[elsewhere, at, 4, 0]), Ok(4));
    assert_eq!(b.start(b.tid, nr::fsync, &[there]), crate::dispatch::Outcome::Blocked);
    b.node.clock = b.node.next_deadline().expect("a deadline");
    b.node.on_time();
    assert_eq!(b.resume(b.tid), Ok(0));
    b.node.broken.set_slow(Some(VOLUME), 0);
    assert_eq!(b.call(nr::fsync, &[there]), Ok(0));
}

#[test]
fn operations_on_a_volume_meet_faults_by_rate_and_by_number() {
    let mut b = with_volume();
    let (there, elsewhere) = (b.open("/volume/file", CREATE).unwrap(), b.open("/file", CREATE).unwrap());
    let rates = Arc::new(Rates::from([(Kind::FsyncFail, ALWAYS)]));
    let only = OfVolumes {
        only: [(Kind::FsyncFail, [VOLUME].into())].into(),
        named: [((Kind::WriteFail, VOLUME), [2].into())].into(),
        counted: [(Kind::FsyncFail, VOLUME), (Kind::WriteFail, VOLUME)].into(),
    };
    let hazards = &mut b.node.container_mut(ContainerId(0)).hazards;
    hazards.set_with(&rates, &Arc::default(), &Arc::new(only));
    for fd in [there, elsewhere] {
        b.write(fd, b"data").unwrap();
    }
    assert_eq!(b.call(nr::fsync, &[elsewhere]), Ok(0));
    assert_eq!(b.call(nr::fsync, &[there]), Err(Errno::EIO));
    assert_eq!(b.write(elsewhere, b"data"), Ok(4));
    assert_eq!(b.write(there, b"data"), Err(Errno::EIO), "the second one on the volume");
    assert_eq!(b.write(there, b"data"), Ok(4));
    // Among all writes of the service it is the fourth: by that it can be named as well.
    let hazards = &b.node.container(ContainerId(0)).hazards;
    assert_eq!((&hazards.met[&Kind::WriteFail][..], hazards.asked[&Kind::WriteFail]), (&[(None, 4)][..], 5));
    assert_eq!((&hazards.met[&Kind::FsyncFail][..], hazards.asked[&Kind::FsyncFail]), (&[(None, 1)][..], 1));
}

/// Whether a block stays on the volume is a matter of the single write: of what is named of the volume it does, of what a rate hits it need not.
#[test]
fn a_block_stays_on_the_volume_of_which_the_write_is_named() {
    let many = 12;
    let wheres = |rates: Rates, of: OfVolumes| {
        let mut b = Bench::on_disk(Some(DiskModel::Ordered));
        let spec = MountSpec::Volume { read_only: false };
        let id = b.node.vfs.mount(&mut b.base, b"/volume", spec).expect("a mount");
        b.node.vfs.name_volume(id, VOLUME);
        for path in ["/one", "/two", "/volume/other"] {
            let fd = b.open(path, CREATE).unwrap();
            b.write(fd, &[1; 8192]).unwrap();
            b.call(nr::fsync, &[fd]).unwrap();
        }
        let hazards = &mut b.node.container_mut(ContainerId(0)).hazards;
        hazards.set_with(&Arc::new(rates), &Arc::default(), &Arc::new(of));
        for nth in 0..many {
            let fd = b.open(&format!("/volume/{nth}"), CREATE).unwrap();
            b.write(fd, &[2; 4096]).unwrap();
            assert_eq!(b.call(nr::fsync, &[fd]), Ok(0));
        }
        let stay = told(&mut b).iter().filter(|met| met.3.contains(" of /volume/")).count();
        let met = b.node.container(ContainerId(0)).hazards.met[&Kind::Misdirected].clone();
        (stay, met)
    };
    let numbers: std::collections::BTreeSet<u64> = (1..=many).collect();
    let key = (Kind::Misdirected, VOLUME);
    let of_volume: Vec<_> = (1..=many).map(|number| (Some(VOLUME), number)).collect();
    let named = OfVolumes { named: [(key, numbers)].into(), counted: [key].into(), ..OfVolumes::default() };
    assert_eq!(wheres(Rates::new(), named), (many as usize, of_volume.clone()));
    let rate = || Rates::from([(Kind::Misdirected, ALWAYS)]);
    let only = OfVolumes {
        only: [(Kind::Misdirected, [VOLUME].into())].into(),
        counted: [key].into(),
        ..OfVolumes::default()
    };
    assert_eq!(wheres(rate(), only), (many as usize, of_volume));
    // Another write of the kind is named of the volume.
    let other =
        OfVolumes { named: [(key, [100].into())].into(), counted: [key].into(), ..OfVolumes::default() };
    let (stay, met) = wheres(rate(), other);
    assert!(stay < many as usize && met.iter().all(|(volume, _)| volume.is_none()), "{stay} {met:?}");
}

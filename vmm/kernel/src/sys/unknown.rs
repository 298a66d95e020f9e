//! Walks through the commands, options and flags of calls that do many things: what Linux 6.1 does not know must get Linux's
//! error, and what stops the run must be told by its name.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::names::{self, Names, name_of};
use bloodhound_abi::table::{Status, TABLE, nr};

use crate::dispatch::Outcome;
use crate::testing::Bench;

/// What a call gave; `Err` is what stopped the run.
fn answer(bench: &mut Bench, nr: u64, args: &[u64]) -> Result<Result<u64, Errno>, String> {
    match bench.start(bench.tid, nr, args) {
        Outcome::Done(value) if (value as i64) < 0 && (value as i64) > -4096 => {
            Ok(Err(Errno((value as i64).unsigned_abs() as u16)))
        }
        Outcome::Done(value) => Ok(Ok(value)),
        Outcome::Unsupported(what) => Err(what),
        other => panic!("{nr} {args:x?}: {other:?}"),
    }
}

/// Asks for each value: unknown ones give `unknown`, those that stop the run are named as `call NAME`.
fn walk(
    call: &str,
    known: Names,
    unknown: Errno,
    values: impl Iterator<Item = u64>,
    mut ask: impl FnMut(u64) -> Result<Result<u64, Errno>, String>,
) -> Vec<&'static str> {
    let mut stopped = Vec::new();
    for value in values {
        match (name_of(known, value), ask(value)) {
            (Some(name), Err(what)) => {
                assert_eq!(what, format!("{call} {name}"), "{call} {value:#x}");
                stopped.push(name);
            }
            (Some(_), Ok(_)) => {}
            (None, got) => assert_eq!(got, Ok(Err(unknown)), "{call} {value:#x} is unknown to Linux 6.1"),
        }
    }
    stopped
}

#[test]
fn every_line_of_the_table_that_is_an_error_gives_it() {
    let mut bench = Bench::new();
    for entry in TABLE {
        match entry.status {
            Status::Errno(errno) => {
                assert_eq!(answer(&mut bench, entry.nr, &[1, 2, 3]), Ok(Err(errno)), "{}", entry.name);
                assert!(!entry.note.is_empty(), "{}: a chosen error says why", entry.name);
            }
            Status::Unsupported => {
                assert_eq!(answer(&mut bench, entry.nr, &[1, 2, 3]), Err(String::new()), "{}", entry.name);
            }
            _ => {}
        }
    }
    // Numbers of no call, and those of calls newer than 6.1.
    for number in (335..424).chain(451..600).chain([1 << 20, u64::MAX]) {
        assert_eq!(answer(&mut bench, number, &[]), Ok(Err(Errno::ENOSYS)), "{number}");
    }
}

#[test]
fn prctl_and_its_kin() {
    let mut bench = Bench::new();
    let stopped =
        walk("prctl", names::PRCTL, Errno::EINVAL, (0..200).chain([0x53564d41, 0x59616d61, 1 << 31]), |v| {
            answer(&mut bench, nr::prctl, &[v, 0, 0, 0, 0])
        });
    assert_eq!(stopped, [""; 0], "with zeros nothing is asked for that is missing");
    assert_eq!(answer(&mut bench, nr::prctl, &[33, 1, 1]), Ok(Ok(0)), "PR_MCE_KILL");
    // How programs ask whether there are filters.
    assert_eq!(answer(&mut bench, nr::prctl, &[22, 2, 0]), Ok(Err(Errno::EFAULT)));
    let codes = (0x1000..0x1030).chain(0x2000..0x2010).chain(0x3000..0x3010).chain([0, 0x4001, 0x5001]);
    let stopped = walk("arch_prctl", names::ARCH_PRCTL, Errno::EINVAL, codes, |v| {
        answer(&mut bench, nr::arch_prctl, &[v, 0])
    });
    assert_eq!(stopped, [""; 0]);
    for persona in (1..64).filter(|p| *p != 8).chain([0x10_0000, 0x400_0000, 0x8000_0000]) {
        assert_eq!(answer(&mut bench, nr::personality, &[persona]), Ok(Err(Errno::EPERM)), "{persona:#x}");
    }
}

#[test]
fn descriptors() {
    let mut bench = Bench::new();
    let file = bench.open("/tmp/file", c::O_RDWR | c::O_CREAT).unwrap();
    let commands = (0..64).chain(1000..1060).chain([1 << 16]);
    let stopped = walk("fcntl", names::FCNTL, Errno::EINVAL, commands, |v| {
        answer(&mut bench, nr::fcntl, &[file, v, 0])
    });
    assert_eq!(stopped, [""; 0]);
    let ep = bench.call(nr::epoll_create1, &[0]).unwrap();
    let pipe = bench.room(8);
    bench.call(nr::pipe, &[pipe]).unwrap();
    let [read, write] = bench.object::<[u32; 2]>(bench.tid, pipe).map(u64::from);
    let event = bench.room(16);
    for op in [0, 4, 5, 99] {
        assert_eq!(answer(&mut bench, nr::epoll_ctl, &[ep, op, read, event]), Ok(Err(Errno::EINVAL)));
    }
    // ioctl: nothing but errors for the unknown, and names for what stops.
    let timer = bench.call(nr::timerfd_create, &[1, 0]).unwrap();
    let socket = bench.call(nr::socket, &[c::AF_INET, c::SOCK_DGRAM, 0]).unwrap();
    let [null, random, dir] = ["/dev/null", "/dev/urandom", "/tmp"].map(|p| bench.open(p, 0).unwrap());
    let at = bench.room(64);
    let tables = [names::IOCTL_SOCKET];
    let plain =
        (0..0x40).chain(0x5200..0x5210).chain(0x5400..0x5480).chain(0x8900..0x8a00).chain(0x8b00..0x8b40);
    let rest =
        tables.iter().flat_map(|t| t.iter().map(|(v, _)| *v)).chain([0x1234, 0x4004_1234, 0xdead_beef]);
    let mut stopped = Vec::new();
    for cmd in plain.chain(rest) {
        for fd in [file, dir, read, write, timer, socket, null, random, ep] {
            match answer(&mut bench, nr::ioctl, &[fd, cmd, at]) {
                Err(what) => {
                    let names: Vec<_> = tables.iter().filter_map(|t| name_of(t, cmd)).collect();
                    assert_eq!(names.iter().map(|n| format!("ioctl {n}")).collect::<Vec<_>>(), [what]);
                    stopped.push(names[0]);
                }
                Ok(Err(errno)) if [0x1234, 0x4004_1234, 0xdead_beef].contains(&cmd) => {
                    assert_eq!(errno, if fd == random { Errno::EINVAL } else { Errno::ENOTTY });
                }
                Ok(_) => {}
            }
        }
    }
    assert!(stopped.contains(&"SIOCGSTAMP"), "{stopped:?}");
}

#[test]
fn socket_options() {
    let kinds = [(c::AF_INET, 1), (c::AF_INET, 2), (c::AF_INET6, 1), (c::AF_INET6, 2), (c::AF_UNIX, 1)];
    let mut stopped = Vec::new();
    for (domain, kind) in kinds {
        for level in [0, 1, 6, 17, 41, 58, 132, 255, 270, 282, 284, 9999] {
            for name in (0..310).chain([9999, 1 << 31]) {
                let mut bench = Bench::new();
                let fd = bench.call(nr::socket, &[domain, kind, 0]).unwrap();
                let value = bench.put_as(bench.tid, &[1u32.to_le_bytes(), [0; 4], [0; 4]].concat());
                let len = bench.put_as(bench.tid, &8u32.to_le_bytes());
                let set = answer(&mut bench, nr::setsockopt, &[fd, level, name, value, 4]);
                let get = answer(&mut bench, nr::getsockopt, &[fd, level, name, value, len]);
                for (call, got) in [("setsockopt", set), ("getsockopt", get)] {
                    match (name_of(names::socket_options(level), name), got) {
                        (Some(name), Err(what)) => {
                            assert_eq!(what, format!("{call} {name}"));
                            stopped.push(what);
                        }
                        (Some(_), Ok(_)) => {}
                        (None, got) => {
                            let allowed = [Ok(Err(Errno::ENOPROTOOPT)), Ok(Err(Errno::EOPNOTSUPP))];
                            assert!(
                                allowed.contains(&got),
                                "{call} {level} {name} on {domain} {kind}: {got:?}"
                            );
                        }
                    }
                }
            }
        }
    }
    stopped.sort();
    stopped.dedup();
    assert_eq!(stopped, ["setsockopt IP_OPTIONS", "setsockopt TCP_TX_DELAY",], "with a number of four bytes");
    let mut bench = Bench::new();
    let fd = bench.call(nr::socket, &[c::AF_INET, 1, 0]).unwrap();
    let value = bench.put_as(bench.tid, &[0; 216]);
    for (level, name, len, known) in [
        (c::SOL_SOCKET, c::SO_ATTACH_REUSEPORT_CBPF, 16, "SO_ATTACH_REUSEPORT_CBPF"),
        (c::IPPROTO_TCP, 33, 16, "TCP_FASTOPEN_KEY"),
    ] {
        let got = answer(&mut bench, nr::setsockopt, &[fd, level, name, value, len]);
        assert_eq!(got, Err(format!("setsockopt {known}")));
    }
}

#[test]
fn families_and_types_of_sockets() {
    let mut bench = Bench::new();
    let known = [c::AF_UNIX, c::AF_INET, c::AF_INET6, c::AF_NETLINK, c::AF_PACKET];
    for family in (0..80).filter(|f| !known.contains(f)).chain([1 << 20]) {
        assert_eq!(answer(&mut bench, nr::socket, &[family, 1, 0]), Ok(Err(Errno::EAFNOSUPPORT)), "{family}");
    }
    // All but NETLINK_SOCK_DIAG.
    for protocol in (1..40).filter(|protocol| *protocol != 4) {
        let got = answer(&mut bench, nr::socket, &[c::AF_NETLINK, c::SOCK_RAW, protocol]);
        assert_eq!(got, Ok(Err(Errno::EPROTONOSUPPORT)), "{protocol}");
    }
    for kind in 11..16 {
        assert_eq!(answer(&mut bench, nr::socket, &[c::AF_INET, kind, 0]), Ok(Err(Errno::EINVAL)));
    }
    assert_eq!(answer(&mut bench, nr::socket, &[c::AF_INET, 1 | 1 << 20, 0]), Ok(Err(Errno::EINVAL)));
    assert_eq!(answer(&mut bench, nr::socket, &[c::AF_INET, 1, 999]), Ok(Err(Errno::EINVAL)));
}

#[test]
fn memory_and_futexes() {
    let mut bench = Bench::new();
    let ops = (0..128).chain(0x200..0x210).chain([1 << 16]).flat_map(|op| [op, op | c::FUTEX_PRIVATE_FLAG]);
    let known: Vec<(u64, &'static str)> =
        names::FUTEX.iter().flat_map(|(v, n)| [(*v, *n), (*v | c::FUTEX_PRIVATE_FLAG, *n)]).collect();
    let stopped = walk("futex", Vec::leak(known), Errno::ENOSYS, ops, |op| {
        let word = bench.put_as(bench.tid, &0u32.to_le_bytes());
        answer(&mut bench, nr::futex, &[word, op, 1, 0, word, 1])
    });
    assert_eq!(stopped, [""; 0]);
    let word = bench.put_as(bench.tid, &0u32.to_le_bytes());
    for op in [c::FUTEX_WAIT, c::FUTEX_WAKE, c::FUTEX_REQUEUE] {
        let args = [word, op | c::FUTEX_CLOCK_REALTIME, 1, 0, word, 1];
        assert_eq!(answer(&mut bench, nr::futex, &args), Ok(Err(Errno::ENOSYS)));
    }
    let page = bench.call(nr::mmap, &[0, 4096, 3, 0x22, u64::MAX, 0]).unwrap();
    for advice in (0..128).filter(|a| !matches!(a, 0..=4 | 8..=25 | 100 | 101)) {
        assert_eq!(
            answer(&mut bench, nr::madvise, &[page, 4096, advice]),
            Ok(Err(Errno::EINVAL)),
            "{advice}"
        );
    }
    for command in (65..1100).filter(|c| !u64::is_power_of_two(*c)).chain([128, 256, 512, 1024]) {
        assert_eq!(answer(&mut bench, nr::membarrier, &[command, 0]), Ok(Err(Errno::EINVAL)), "{command}");
    }
    assert_eq!(answer(&mut bench, nr::membarrier, &[1, 1]), Ok(Err(Errno::EINVAL)));
    let segment = bench.call(nr::shmget, &[0, 4096, 0o600 | 0o1000]).unwrap();
    let stopped = walk("shmctl", names::SHMCTL, Errno::EINVAL, (1..600).chain([1 << 31]), |v| {
        answer(&mut bench, nr::shmctl, &[segment, v, page])
    });
    assert_eq!(stopped, [""; 0]);
    // MAP_SHARED_VALIDATE refuses what it does not know, other types do not exist.
    let file = bench.open("/tmp/file", c::O_RDWR | c::O_CREAT).unwrap();
    for flags in [3 | 0x20_0000, 3 | c::MAP_SYNC] {
        let got = answer(&mut bench, nr::mmap, &[0, 4096, 1, flags, file, 0]);
        assert_eq!(got, Ok(Err(Errno::EOPNOTSUPP)), "{flags:#x}");
    }
    assert!(matches!(answer(&mut bench, nr::mmap, &[0, 4096, 1, 1 | 0x20_0000, file, 0]), Ok(Ok(_))));
    for flags in [0, 4, 5, 3 | c::MAP_ANONYMOUS] {
        assert_eq!(
            answer(&mut bench, nr::mmap, &[0, 4096, 1, flags, file, 0]),
            Ok(Err(Errno::EINVAL)),
            "{flags:#x}"
        );
    }
    let low = bench.call(nr::mmap, &[0, 1 << 20, 3, 0x22 | 0x40, u64::MAX, 0]).unwrap();
    assert!((0x4000_0000..0x8000_0000).contains(&low), "MAP_32BIT: {low:#x}");
}

/// Calls with a word of flags: what is known of it, and the error for the rest.
#[test]
fn words_of_flags() {
    let mut bench = Bench::new();
    let file = bench.open("/tmp/file", c::O_RDWR | c::O_CREAT).unwrap();
    let socket = bench.call(nr::socket, &[c::AF_INET, 1, 0]).unwrap();
    let page = bench.call(nr::mmap, &[0, 4096, 3, 0x22, u64::MAX, 0]).unwrap();
    let (name, at) = (bench.text("/tmp/file"), bench.room(512));
    let here = c::AT_FDCWD as u64;
    // Who moves nothing is told nothing of flags.
    let vector: Vec<u8> = [page, 8].iter().flat_map(|word| word.to_le_bytes()).collect();
    let vector = bench.put_as(bench.tid, &vector);
    type Make = Box<dyn Fn(u64) -> Vec<u64>>;
    let cases: Vec<(&str, u64, u64, Errno, Make)> = vec![
        ("getrandom", nr::getrandom, 7, Errno::EINVAL, Box::new(move |f| vec![at, 8, f])),
        ("memfd_create", nr::memfd_create, 7 | 0xfc00_0000, Errno::EINVAL, Box::new(move |f| vec![name, f])),
        ("eventfd2", nr::eventfd2, 0x80801, Errno::EINVAL, Box::new(|f| vec![0, f])),
        ("epoll_create1", nr::epoll_create1, 0x80000, Errno::EINVAL, Box::new(|f| vec![f])),
        ("timerfd_create", nr::timerfd_create, 0x80800, Errno::EINVAL, Box::new(|f| vec![1, f])),
        ("signalfd4", nr::signalfd4, 0x80800, Errno::EINVAL, Box::new(move |f| vec![u64::MAX, at, 8, f])),
        ("dup3", nr::dup3, 0x80000, Errno::EINVAL, Box::new(move |f| vec![file, 100, f])),
        ("pipe2", nr::pipe2, 0x84880, Errno::EINVAL, Box::new(move |f| vec![at, f])),
        ("close_range", nr::close_range, 6, Errno::EINVAL, Box::new(|f| vec![500, 600, f])),
        ("accept4", nr::accept4, 0x80800, Errno::EINVAL, Box::new(move |f| vec![socket, 0, 0, f])),
        ("mlock2", nr::mlock2, 1, Errno::EINVAL, Box::new(move |f| vec![page, 4096, f])),
        ("mlockall", nr::mlockall, 3, Errno::EINVAL, Box::new(|f| vec![f])),
        ("msync", nr::msync, 7, Errno::EINVAL, Box::new(move |f| vec![page, 4096, f])),
        ("sync_file_range", nr::sync_file_range, 7, Errno::EINVAL, Box::new(move |f| vec![file, 0, 0, f])),
        ("fallocate", nr::fallocate, 0x7b, Errno::EOPNOTSUPP, Box::new(move |f| vec![file, f, 0, 10])),
        ("renameat2", nr::renameat2, 7, Errno::EINVAL, Box::new(move |f| vec![here, name, here, name, f])),
        ("statx", nr::statx, 0x7900, Errno::EINVAL, Box::new(move |f| vec![here, name, f, 0, at])),
        ("newfstatat", nr::newfstatat, 0x1900, Errno::EINVAL, Box::new(move |f| vec![here, name, at, f])),
        ("faccessat2", nr::faccessat2, 0x1300, Errno::EINVAL, Box::new(move |f| vec![here, name, 0, f])),
        ("fchownat", nr::fchownat, 0x1100, Errno::EINVAL, Box::new(move |f| vec![here, name, 0, 0, f])),
        ("utimensat", nr::utimensat, 0x1100, Errno::EINVAL, Box::new(move |f| vec![here, name, 0, f])),
        ("linkat", nr::linkat, 0x1400, Errno::EINVAL, Box::new(move |f| vec![here, name, here, name, f])),
        ("unlinkat", nr::unlinkat, 0x200, Errno::EINVAL, Box::new(move |f| vec![here, at, f])),
        ("setxattr", nr::setxattr, 3, Errno::EINVAL, Box::new(move |f| vec![name, name, at, 1, f])),
        (
            "copy_file_range",
            nr::copy_file_range,
            0,
            Errno::EINVAL,
            Box::new(move |f| vec![file, 0, file, 0, 0, f]),
        ),
        ("splice", nr::splice, 15, Errno::EINVAL, Box::new(move |f| vec![file, 0, file, 0, 1, f])),
        ("tee", nr::tee, 15, Errno::EINVAL, Box::new(move |f| vec![file, file, 1, f])),
        ("vmsplice", nr::vmsplice, 15, Errno::EINVAL, Box::new(move |f| vec![file, at, 0, f])),
        ("wait4", nr::wait4, 0xe000_000b, Errno::EINVAL, Box::new(|f| vec![u64::MAX, 0, f | 1, 0])),
        ("waitid", nr::waitid, 0xe100_000f, Errno::EINVAL, Box::new(|f| vec![0, 0, 0, f | 5, 0])),
        ("mremap", nr::mremap, 7, Errno::EINVAL, Box::new(move |f| vec![page, 4096, 4096, f, 0])),
        ("preadv2", nr::preadv2, 0x1f, Errno::EOPNOTSUPP, Box::new(move |f| vec![file, vector, 1, 0, 0, f])),
        ("mprotect", nr::mprotect, 0x0100_000f, Errno::EINVAL, Box::new(move |f| vec![page, 4096, f])),
    ];
    for (call, nr, known, errno, make) in cases {
        for bit in (0..32).map(|n| 1u64 << n).filter(|bit| known & bit == 0) {
            assert_eq!(answer(&mut bench, nr, &make(bit)), Ok(Err(errno)), "{call} {bit:#x}");
        }
    }
}

#[test]
fn clone_flags() {
    let mut bench = Bench::new();
    for flags in [c::CLONE_FILES, c::CLONE_VM | c::CLONE_FS, c::CLONE_VM | c::CLONE_SIGHAND] {
        let made = answer(&mut bench, nr::clone, &[flags | c::SIGCHLD, 0, 0, 0, 0]);
        assert!(matches!(made, Ok(Ok(_))), "{flags:#x}: {made:?}");
    }
    const CLONE_INTO_CGROUP: u64 = 1 << 33;
    let into = bench.put_as(bench.tid, &[&CLONE_INTO_CGROUP.to_le_bytes()[..], &[0; 80]].concat());
    assert_eq!(answer(&mut bench, nr::clone3, &[into, 88]), Err("clone CLONE_INTO_CGROUP".into()));
    for bit in (34..64).map(|n| 1u64 << n).chain([c::CLONE_DETACHED, 1]) {
        let at = bench.put_as(bench.tid, &[&bit.to_le_bytes()[..], &[0; 80]].concat());
        assert_eq!(answer(&mut bench, nr::clone3, &[at, 88]), Ok(Err(Errno::EINVAL)), "{bit:#x}");
    }
    let at = bench.put_as(bench.tid, &[&[0; 88][..], &[1, 0, 0, 0, 0, 0, 0, 0]].concat());
    assert_eq!(
        answer(&mut bench, nr::clone3, &[at, 96]),
        Ok(Err(Errno::E2BIG)),
        "a field that 6.1 does not know"
    );
    assert_eq!(answer(&mut bench, nr::clone3, &[at, 8192]), Ok(Err(Errno::E2BIG)));
}

#[test]
fn clocks_and_policies() {
    let mut bench = Bench::new();
    let at = bench.room(256);
    for clock in [10, 12, 13, 16, 99] {
        for (call, args) in [
            (nr::clock_gettime, vec![clock, at]),
            (nr::clock_getres, vec![clock, at]),
            (nr::clock_nanosleep, vec![clock, 0, at, 0]),
            (nr::timer_create, vec![clock, 0, at]),
            (nr::timerfd_create, vec![clock, 0]),
            (nr::clock_adjtime, vec![clock, at]),
        ] {
            assert_eq!(answer(&mut bench, call, &args), Ok(Err(Errno::EINVAL)), "{call} of clock {clock}");
        }
    }
    assert_eq!(answer(&mut bench, nr::clock_nanosleep, &[2, 0, at, 0]), Ok(Ok(0)));
    for policy in [4, 7, 8, 99] {
        assert_eq!(answer(&mut bench, nr::sched_setscheduler, &[0, policy, at]), Ok(Err(Errno::EINVAL)));
        assert_eq!(answer(&mut bench, nr::sched_get_priority_max, &[policy]), Ok(Err(Errno::EINVAL)));
    }
    // A real-time policy wants a priority before it wants a privilege (__sched_setscheduler).
    for (policy, flags, priority, errno) in [
        (99, 0, 0, Errno::EINVAL),
        (1, 0, 0, Errno::EINVAL),
        (1, 0, 1, Errno::EPERM),
        (0, 0x80, 0, Errno::EINVAL),
    ] {
        let words = [48u32, policy, flags, 0, 0, priority, 0, 0, 0, 0, 0, 0];
        let attr = bench.put_as(bench.tid, zerocopy::IntoBytes::as_bytes(&words));
        assert_eq!(
            answer(&mut bench, nr::sched_setattr, &[0, attr, 0]),
            Ok(Err(errno)),
            "{policy} {flags:#x}"
        );
    }
    // Reading the clock's adjustment is for everybody.
    assert_eq!(answer(&mut bench, nr::adjtimex, &[at]), Ok(Ok(0)));
    let words = bench.object::<[u64; 26]>(bench.tid, at);
    assert_eq!((words[0], words[9], words[11]), (0, 1_700_000_000, 10_000));
    let set = bench.put_as(bench.tid, &[&0x4000u64.to_le_bytes()[..], &[0; 200]].concat());
    assert_eq!(answer(&mut bench, nr::adjtimex, &[set]), Ok(Err(Errno::EPERM)));
    assert_eq!(answer(&mut bench, nr::clock_adjtime, &[1, at]), Ok(Err(Errno::EOPNOTSUPP)));
}

#[test]
fn files_of_proc_keep_what_is_written() {
    let mut bench = Bench::new();
    let write = |bench: &mut Bench, name: &str, text: &str| {
        let fd = bench.open(&format!("/proc/self/{name}"), c::O_WRONLY)?;
        let result = bench.write(fd, text.as_bytes());
        bench.call(nr::close, &[fd])?;
        result
    };
    let shown = |bench: &mut Bench, who: &str| {
        ["oom_score_adj", "oom_adj", "oom_score"]
            .map(|n| bench.content(&format!("/proc/{who}/{n}")).unwrap().trim().to_string())
            .join(" ")
    };
    assert_eq!(shown(&mut bench, "self"), "0 0 666");
    assert_eq!(write(&mut bench, "oom_score_adj", "500\n"), Ok(4));
    assert_eq!(shown(&mut bench, "self"), "500 8 1000");
    let child = bench.fork();
    assert_eq!(shown(&mut bench, &child.0.to_string()), "500 8 1000", "inherited");
    assert_eq!(write(&mut bench, "oom_adj", "15"), Ok(2));
    assert_eq!(shown(&mut bench, "self"), "1000 15 1333");
    assert_eq!(shown(&mut bench, &child.0.to_string()), "500 8 1000", "of each process its own");
    assert_eq!(write(&mut bench, "oom_adj", "3"), Err(Errno::EACCES), "the old file only raises");
    assert_eq!(write(&mut bench, "oom_score_adj", "0"), Ok(1), "back to what it was without privilege");
    assert_eq!(write(&mut bench, "oom_score_adj", "-1"), Err(Errno::EACCES), "CAP_SYS_RESOURCE");
    for bad in ["1001", "-1001", "", "x", "5 5", "1.0"] {
        assert_eq!(write(&mut bench, "oom_score_adj", bad), Err(Errno::EINVAL), "{bad:?}");
    }
    bench.node.task_mut(bench.tid).credentials.caps.effective |= 1 << 24;
    assert_eq!(write(&mut bench, "oom_score_adj", "-1000"), Ok(5));
    assert_eq!(shown(&mut bench, "self"), "-1000 -17 0");
    assert_eq!(write(&mut bench, "coredump_filter", "0x7f"), Ok(4));
    assert_eq!(bench.content("/proc/self/coredump_filter").unwrap(), "0000007f\n");
    assert_eq!(write(&mut bench, "coredump_filter", "z"), Err(Errno::EINVAL));
    assert_eq!(write(&mut bench, "timerslack_ns", "1234"), Ok(4));
    assert_eq!(bench.call(nr::prctl, &[c::PR_GET_TIMERSLACK]), Ok(1234));
    assert_eq!(write(&mut bench, "loginuid", "1000"), Ok(4));
    assert_eq!(bench.content("/proc/self/loginuid").unwrap(), "1000");
    assert_eq!(write(&mut bench, "loginuid", "1001"), Err(Errno::EPERM), "only once");
    assert_eq!(write(&mut bench, "clear_refs", "1"), Ok(1));
    assert_eq!(write(&mut bench, "clear_refs", "9"), Err(Errno::EINVAL));
    assert_eq!(write(&mut bench, "uid_map", "0 0 1"), Err(Errno::EPERM));
    assert_eq!(bench.open("/proc/sys/vm/swappiness", c::O_WRONLY), Err(Errno::EROFS));
}

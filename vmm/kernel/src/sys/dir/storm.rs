//! Random file-system calls with good and bad arguments: none may panic, a call that sleeps must sleep again in the same
//! way when it is woken for nothing, and a clone of the node must answer as the node does.

use crate::ctx::Outside;
use std::collections::BTreeMap;

use bloodhound_abi::consts as c;
use bloodhound_abi::table::{ArgKind, TABLE, nr};
use bloodhound_decisions::Dice;

use crate::dispatch::Outcome;
use crate::testing::Bench;

const CALLS: [&str; 90] = [
    "read",
    "write",
    "open",
    "close",
    "stat",
    "fstat",
    "lstat",
    "lseek",
    "pread64",
    "pwrite64",
    "readv",
    "writev",
    "access",
    "dup",
    "dup2",
    "fcntl",
    "flock",
    "fsync",
    "fdatasync",
    "truncate",
    "ftruncate",
    "getcwd",
    "chdir",
    "fchdir",
    "rename",
    "mkdir",
    "rmdir",
    "creat",
    "link",
    "unlink",
    "symlink",
    "readlink",
    "chmod",
    "fchmod",
    "chown",
    "fchown",
    "lchown",
    "umask",
    "utime",
    "mknod",
    "statfs",
    "fstatfs",
    "sync",
    "readahead",
    "setxattr",
    "lsetxattr",
    "fsetxattr",
    "getxattr",
    "lgetxattr",
    "fgetxattr",
    "listxattr",
    "llistxattr",
    "flistxattr",
    "removexattr",
    "lremovexattr",
    "fremovexattr",
    "getdents64",
    "fadvise64",
    "utimes",
    "openat",
    "mkdirat",
    "mknodat",
    "fchownat",
    "futimesat",
    "newfstatat",
    "unlinkat",
    "renameat",
    "linkat",
    "symlinkat",
    "readlinkat",
    "fchmodat",
    "faccessat",
    "sync_file_range",
    "utimensat",
    "fallocate",
    "dup3",
    "pipe2",
    "preadv",
    "pwritev",
    "syncfs",
    "renameat2",
    "memfd_create",
    "copy_file_range",
    "preadv2",
    "pwritev2",
    "statx",
    "faccessat2",
    "sendfile",
    "pipe",
    "eventfd2",
];

const PATHS: [&str; 40] = [
    "/",
    ".",
    "..",
    "",
    "/tmp",
    "/tmp/",
    "/tmp/a",
    "/tmp/a/b",
    "/tmp/b",
    "/tmp/c",
    "/tmp/link",
    "/tmp/loop",
    "/tmp/fifo",
    "/etc/hosts",
    "/etc/hosts/",
    "a",
    "b",
    "a/b",
    "../a",
    "/proc",
    "/proc/",
    "/proc/self",
    "/proc/self/",
    "/proc/self/fd",
    "/proc/self/fd/0",
    "/proc/self/fd/4",
    "/proc/self/cwd",
    "/proc/self/cwd/a",
    "/proc/self/exe",
    "/proc/1/root/tmp/a",
    "/proc/self/comm",
    "/proc/thread-self/stat",
    "/proc/../tmp/a",
    "/proc/sys/kernel/hostname",
    "/proc/net/tcp",
    "/sys/devices/system/cpu",
    "/dev/null",
    "/dev/urandom",
    "/dev/fd/5",
    "/dev/shm/x",
];

/// Runs, and calls in each.
const SEEDS: u64 = 8;
const STEPS: u32 = 10_000;

struct Storm {
    bench: Bench,
    dice: Dice,
    /// Addresses of good things: strings, structures, room.
    memory: Vec<u64>,
    /// Calls made: how many succeeded and how many failed.
    made: BTreeMap<&'static str, [u32; 2]>,
}

impl Storm {
    fn new(seed: u64) -> Storm {
        let mut bench = Bench::new();
        let mut memory = Vec::new();
        for path in PATHS {
            memory.push(bench.text(path));
        }
        memory.push(bench.text(&"x".repeat(255)));
        memory.push(bench.text(&"y/".repeat(2047)));
        memory.push(bench.text("user.name"));
        for word in [0u64, 1, 4096, u64::MAX, i64::MAX as u64] {
            let bytes: Vec<u8> = word.to_le_bytes().repeat(8);
            memory.push(bench.put_as(bench.tid, &bytes));
        }
        memory.push(bench.room(70_000));
        bench.with_path(nr::mknod, "/tmp/fifo", &[c::S_IFIFO | 0o666, 0]).unwrap();
        let (text, link) = (bench.text("loop"), bench.text("/tmp/loop"));
        bench.call(nr::symlink, &[text, link]).unwrap();
        let (text, link) = (bench.text("/proc/self/cwd/b"), bench.text("/tmp/link"));
        bench.call(nr::symlink, &[text, link]).unwrap();
        Storm { bench, dice: Dice::new(seed), memory, made: BTreeMap::new() }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.dice.below(bound)
    }

    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    fn argument(&mut self, call: &str, name: &str, kind: ArgKind) -> u64 {
        let bad = self.below(12) == 0;
        match (kind, name) {
            (ArgKind::Fd, _) if bad => self.pick(&[u64::MAX, 999, c::AT_FDCWD as i64 as u64]),
            (ArgKind::Fd, "dirfd" | "olddir" | "newdir") if self.below(2) == 0 => c::AT_FDCWD as i64 as u64,
            (ArgKind::Fd, _) => self.below(10),
            (ArgKind::Ptr | ArgKind::Path, _) if bad => {
                self.pick(&[0, 8, 0x1000_0000 + (1 << 20) - 3, 1 << 47, u64::MAX])
            }
            (ArgKind::Path, "name") if call != "memfd_create" => self.memory[PATHS.len() + 2],
            // "/tmp/a", "/tmp/b"
            (ArgKind::Path, _) if self.below(2) == 0 => self.pick(&[self.memory[6], self.memory[8]]),
            (ArgKind::Path, _) => {
                let n = self.below(PATHS.len() as u64 + 2) as usize;
                self.memory[n]
            }
            // The last is a large room.
            (ArgKind::Ptr, _) if self.below(2) == 0 => self.memory[self.memory.len() - 1],
            (ArgKind::Ptr, _) => {
                let n = self.below(self.memory.len() as u64) as usize;
                self.memory[n]
            }
            (ArgKind::Hex | ArgKind::Flags(_), _) if bad => self.dice.word(),
            (ArgKind::Hex | ArgKind::Flags(_), "op") => 1 << self.below(4),
            (ArgKind::Hex | ArgKind::Flags(_), _) => match self.below(4) {
                0 => 1 << self.below(22),
                1 => c::O_RDWR | c::O_CREAT | 1 << self.below(22),
                _ => 0,
            },
            _ if bad => self.pick(&[u64::MAX, 1 << 40, 1 << 63]),
            (_, "mode") => self.pick(&[0o644, 0o755, 0, 4, 2, c::S_IFIFO | 0o600]),
            (_, "cmd") => {
                self.pick(&[c::F_GETFL, c::F_SETLK, c::F_SETLKW, c::F_GETLK, c::F_OFD_SETLK, c::F_DUPFD])
            }
            (_, "advice" | "whence" | "iovcnt") => self.below(4),
            _ => self.pick(&[0, 1, 5, 60, 4096, 70_000]),
        }
    }

    fn step(&mut self) {
        let name = self.pick(&CALLS);
        let info = TABLE.iter().find(|e| e.name == name).unwrap();
        let args: Vec<u64> = info.args.iter().map(|(arg, kind)| self.argument(name, arg, *kind)).collect();
        let tid = self.bench.tid;
        // Cloning takes longer than the call.
        let forked = self.below(16) == 0;
        let bench = &mut self.bench;
        bench.prepare(tid, info.nr, &args);
        let call = bench.call_in(tid);
        let copy = forked.then(|| (bench.node.clone(), bench.decisions.clone()));
        let outcome = bench.node.syscall(tid, call, &mut Outside::new(&mut bench.base, &mut bench.decisions));
        if let Some((mut node, mut decisions)) = copy {
            let again = node.syscall(tid, call, &mut Outside::new(&mut bench.base, &mut decisions));
            assert_eq!(outcome, again, "{name} {args:x?} answers differently on a clone");
        }
        self.made.entry(name).or_insert([0; 2])
            [usize::from(matches!(outcome, Outcome::Done(v) if (v as i64) < 0))] += 1;
        if outcome != Outcome::Blocked {
            // Pending signals (SIGXFSZ, SIGPIPE) would interrupt the next sleep.
            let node = &mut self.bench.node;
            node.task_mut(tid).pending.discard(u64::MAX);
            return;
        }
        let before = self.bench.node.clone();
        self.bench.node.wake(tid, false);
        let outcome = self
            .bench
            .node
            .resume_syscall(tid, &mut Outside::new(&mut self.bench.base, &mut self.bench.decisions));
        assert_eq!(outcome, Outcome::Blocked, "{name} {args:x?} ends when woken for nothing");
        let differ = self.bench.node.differences(&before);
        assert!(differ.is_empty(), "{name} {args:x?} changes {differ:?} when woken for nothing");
        // Give up, as if a signal had come.
        self.bench.node.abandon_call(tid, &mut self.bench.base);
    }
}

#[test]
fn random_calls_do_no_harm() {
    let mut made: BTreeMap<&str, [u32; 2]> = BTreeMap::new();
    for seed in 0..SEEDS {
        let mut storm = Storm::new(seed);
        for n in 0..STEPS {
            if n % 200 == 0 {
                // Directories and files that random flags rarely open.
                for (path, flags) in
                    [("/tmp", c::O_RDONLY), ("/proc/self", c::O_RDONLY), ("/tmp/new", c::O_RDWR | c::O_CREAT)]
                {
                    let _full = storm.bench.open(path, flags);
                }
                storm.bench.with_path(nr::chdir, "/tmp", &[]).unwrap();
            }
            storm.step();
        }
        for (name, [good, bad]) in &storm.made {
            let sum = made.entry(name).or_insert([0; 2]);
            (sum[0], sum[1]) = (sum[0] + good, sum[1] + bad);
        }
        // Everything can be closed, and then nothing is left open.
        let bench = &mut storm.bench;
        for fd in 0..5_000 {
            let _closed = bench.call(nr::close, &[fd]);
        }
        assert!(bench.node.fds_of(bench.tid).iter().next().is_none());
        assert!(bench.node.files.is_empty() && bench.node.pipes.is_empty() && bench.node.events.is_empty());
        assert_eq!(bench.node.locks.range_locks().count() + bench.node.locks.whole_locks().count(), 0);
    }
    // The storm is worth something only if calls get through.
    let never: Vec<&str> = made.iter().filter(|(_, [good, _])| *good == 0).map(|(name, _)| *name).collect();
    assert!(never.is_empty(), "{never:?} never succeeded");
}

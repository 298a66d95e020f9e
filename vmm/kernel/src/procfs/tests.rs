//! What /proc and /sys show, read through system calls.

use std::collections::BTreeSet;

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Stat;
use bloodhound_abi::table::nr;

use super::*;
use crate::credentials::Credentials;
use crate::testing::Bench;

fn view(b: &Bench) -> View<'_> {
    View { node: &b.node, pid: Pid(b.tid.0), tid: b.tid }
}

/// All places of a tree, links not followed.
fn places(b: &Bench, tree: Tree) -> Vec<Synth> {
    let mut todo = vec![Synth { tree, path: Vec::new() }];
    let mut out = Vec::new();
    while let Some(at) = todo.pop() {
        if matches!(view(b).entry(&at), Some(Entry::Dir { .. })) {
            todo.extend(view(b).list(&at).into_iter().map(|(name, _)| at.child(&name)));
        }
        out.push(at);
    }
    out
}

#[test]
fn everything_listed_can_be_looked_at() {
    let b = Bench::new();
    for tree in [Tree::Proc, Tree::Sys] {
        let all = places(&b, tree);
        let names: BTreeSet<Vec<u8>> = all.iter().map(|p| p.path.clone()).collect();
        assert_eq!(names.len(), all.len(), "a name is listed twice");
        let inodes: BTreeSet<u64> = all.iter().map(inode_number).collect();
        assert_eq!(inodes.len(), all.len(), "an inode number is given twice");
        assert!(all.len() > 100, "{tree:?} has only {} places", all.len());
        for at in &all {
            let entry = view(&b).entry(at).unwrap_or_else(|| panic!("{at:?} is listed but not there"));
            assert!(view(&b).attr(at).is_some());
            match entry {
                Entry::Dir { .. } => assert_eq!(view(&b).read(at), Err(Errno::EISDIR)),
                // What loopback does not have.
                Entry::File { .. }
                    if [&b"class/net/lo/speed"[..], b"class/net/lo/duplex"].contains(&&at.path[..]) =>
                {
                    assert_eq!(view(&b).read(at), Err(Errno::EINVAL));
                }
                Entry::File { .. } => drop(view(&b).read(at).unwrap_or_else(|e| panic!("{at:?}: {e:?}"))),
                Entry::Link(_) => drop(view(&b).readlink(at).unwrap()),
            }
        }
    }
}

#[test]
fn files_are_there_as_the_configuration_says() {
    let mut b = Bench::new();
    for (option, path) in [
        ("AIO", "/proc/sys/fs/aio-nr"),
        ("BPF_SYSCALL", "/proc/sys/kernel/unprivileged_bpf_disabled"),
        ("BSD_PROCESS_ACCT", "/proc/sys/kernel/acct"),
        ("CHECKPOINT_RESTORE", "/proc/1/timers"),
        ("FANOTIFY", "/proc/sys/fs/fanotify"),
        ("HUGETLB_PAGE", "/sys/kernel/mm/hugepages"),
        ("KEYS", "/proc/keys"),
        ("KEYS", "/proc/sys/kernel/keys"),
        ("KSM", "/sys/kernel/mm/ksm"),
        ("MODULES", "/proc/modules"),
        ("NUMA", "/proc/1/numa_maps"),
        ("NUMA", "/sys/devices/system/node"),
        ("NUMA_BALANCING", "/proc/sys/kernel/numa_balancing"),
        ("PERF_EVENTS", "/proc/sys/kernel/perf_event_paranoid"),
        ("PROC_CHILDREN", "/proc/1/task/1/children"),
        ("QUOTA", "/proc/sys/fs/quota"),
        ("SCHED_AUTOGROUP", "/proc/1/autogroup"),
        ("SCHED_DEBUG", "/proc/1/sched"),
        ("SWAP", "/proc/swaps"),
        ("TIME_NS", "/proc/1/timens_offsets"),
        ("TRANSPARENT_HUGEPAGE", "/sys/kernel/mm/transparent_hugepage"),
        ("USERFAULTFD", "/proc/sys/vm/unprivileged_userfaultfd"),
        ("USER_NS", "/proc/1/uid_map"),
    ] {
        let at = Synth::from_absolute(path.as_bytes()).expect("a path");
        assert_eq!(view(&b).entry(&at).is_some(), config::is_set(option), "{option}: {path}");
    }
    let vmstat = b.content("/proc/vmstat").unwrap();
    for (option, name) in [
        ("HUGETLB_PAGE", "htlb_"),
        ("KSM", "ksm"),
        ("NUMA", "numa_hit"),
        ("NUMA_BALANCING", "numa_hint_faults"),
        ("SWAP", "swap_ra"),
        ("ZONE_DEVICE", "_device"),
        ("ZSWAP", "zswp"),
    ] {
        assert_eq!(vmstat.contains(name), config::is_set(option), "{option}: {name}");
    }
}

#[test]
fn zones_have_the_memory_of_the_machine() {
    let mut b = Bench::new();
    let sum = |text: &str, name: &str| -> u64 {
        let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix(name));
        lines.filter_map(|rest| rest.trim_start().parse::<u64>().ok()).sum()
    };
    for gib in [1, 4, 64] {
        b.node.config.memory = gib << 30;
        let (zones, vmstat) = (b.content("/proc/zoneinfo").unwrap(), b.content("/proc/vmstat").unwrap());
        assert_eq!(sum(&zones, "managed "), gib << 18);
        let free = sum(&vmstat, "nr_free_pages ");
        assert_eq!((sum(&zones, "pages free "), sum(&zones, "nr_free_pages ")), (free, free));
        assert_eq!(sum(&zones, "nr_zone_active_file "), sum(&vmstat, "nr_zone_active_file "));
        let buddies = b.content("/proc/buddyinfo").unwrap();
        let pages = |line: &str| -> u64 {
            let counts = line.split_whitespace().skip(4).map(|n| n.parse::<u64>().unwrap());
            counts.enumerate().map(|(order, n)| n << order).sum()
        };
        assert_eq!(buddies.lines().map(pages).sum::<u64>(), free);
    }
}

#[test]
fn a_process_shows_itself() {
    let mut b = Bench::new();
    assert_eq!(b.readlink("/proc/self").unwrap(), "1");
    assert_eq!(b.readlink("/proc/thread-self").unwrap(), "1/task/1");
    assert_eq!(b.readlink("/proc/self/exe").unwrap(), "/bin/prog");
    assert_eq!(b.readlink("/proc/1/cwd").unwrap(), "/");
    assert_eq!(b.content("/proc/self/cmdline").unwrap(), "prog\0one\0");
    assert_eq!(b.content("/proc/self/environ").unwrap(), "A=b\0");
    assert_eq!(b.content("/proc/self/comm").unwrap(), "prog\n");
    assert_eq!(b.content("/proc/thread-self/comm").unwrap(), "prog\n");
    assert_eq!(b.content("/proc/self/cgroup").unwrap(), "0::/\n");
    assert_eq!(b.content("/proc/2/comm"), Err(Errno::ENOENT));
    assert_eq!(b.content("/proc/01/comm"), Err(Errno::ENOENT));
    assert_eq!(b.content("/proc/self/task/1/task/1/comm"), Err(Errno::ENOENT));
    assert_eq!(b.content("/proc/self/attr/current"), Err(Errno::ENOENT));
    // The program itself, through the link.
    assert!(b.open("/proc/self/exe", c::O_RDONLY).is_ok());
}

#[test]
fn a_script_has_its_own_name_and_its_interpreter_s_exe() {
    let mut b = Bench::new();
    let path = b.text("/bin/script");
    let argv = b.put_as(b.tid, &[path.to_le_bytes(), [0; 8]].concat());
    let mm = b.node.process(Pid(1)).mm;
    assert_eq!(b.start(b.tid, nr::execve, &[path, argv, 0]), crate::dispatch::Outcome::NoReturn);
    assert_ne!(b.node.process(Pid(1)).mm, mm);
    let read = |path: &str| view(&b).read(&Synth::from_absolute(path.as_bytes()).unwrap()).unwrap();
    assert_eq!(read("/proc/1/comm"), b"script\n");
    assert_eq!(read("/proc/1/cmdline"), b"/bin/prog\0-x\0/bin/script\0");
    let exe = Synth::from_absolute(b"/proc/1/exe").unwrap();
    assert_eq!(view(&b).readlink(&exe).unwrap(), b"/bin/prog");
}

#[test]
fn a_thread_can_be_renamed() {
    let mut b = Bench::new();
    let fd = b.open("/proc/self/task/1/comm", c::O_RDWR).unwrap();
    assert_eq!(b.write(fd, b"a name of many letters\n"), Ok(23));
    assert_eq!(b.content("/proc/self/comm").unwrap(), "a name of many \n");
    assert!(b.content("/proc/self/status").unwrap().starts_with("Name:\ta name of many \n"));
    let child = b.fork();
    let fd = b.open(&format!("/proc/{}/comm", child.0), c::O_WRONLY).unwrap();
    assert_eq!(b.write(fd, b"x"), Err(Errno::EINVAL));
}

#[test]
fn stat_has_52_fields_whatever_the_name_is() {
    let mut b = Bench::new();
    b.node.task_mut(b.tid).comm = b"a) R (b".to_vec();
    let text = b.content("/proc/self/stat").unwrap();
    assert!(text.starts_with("1 (a) R (b) R 0 1 1 0 -1 "), "{text}");
    let rest = text.rsplit_once(") ").unwrap().1;
    let fields: Vec<&str> = rest.trim_end().split(' ').collect();
    assert_eq!(fields.len(), 50);
    // num_threads, vsize, startstack by their numbers in proc(5) less three.
    let stack_top = b.node.mms[b.node.process(Pid(1)).mm].stack_top;
    assert_eq!(fields[17], "1");
    assert!(fields[20].parse::<u64>().unwrap() > 4096);
    assert_eq!(fields[25].parse::<u64>().unwrap(), stack_top - 16);
    let statm = b.content("/proc/self/statm").unwrap();
    assert_eq!(statm.trim_end().split(' ').count(), 7);
}

#[test]
fn status_and_limits_have_linux_s_form() {
    let mut b = Bench::new();
    let status = b.content("/proc/self/status").unwrap();
    for line in
        ["Umask:\t0022", "State:\tR (running)", "Uid:\t0\t0\t0\t0", "Threads:\t1", "Cpus_allowed_list:\t0"]
    {
        assert!(status.lines().any(|l| l == line), "{line} not in {status}");
    }
    // The same as by capget(2) and prctl(2).
    let (header, caps) = (b.put_as(b.tid, &[0x22, 0x05, 0x08, 0x20, 0, 0, 0, 0]), b.room(24));
    b.call(nr::capget, &[header, caps]).unwrap();
    let effective: u32 = b.object(b.tid, caps);
    assert!(status.contains(&format!("\nCapEff:\t{effective:016x}\n")));
    let mut bounding = 0;
    for bit in 0..=40 {
        bounding |= b.call(nr::prctl, &[c::PR_CAPBSET_READ, bit]).unwrap() << bit;
    }
    assert!(status.contains(&format!("\nCapBnd:\t{bounding:016x}\n")));
    let rss = status.lines().find(|l| l.starts_with("VmRSS:")).unwrap();
    assert!(rss.ends_with(" kB"));
    let limits = b.content("/proc/self/limits").unwrap();
    let files = limits.lines().find(|l| l.starts_with("Max open files")).unwrap();
    assert_eq!(files, "Max open files            1024                 1048576              files     ");
}

#[test]
fn maps_have_their_names_in_column_74() {
    let mut b = Bench::new();
    let maps = b.content("/proc/self/maps").unwrap();
    let program = maps.lines().next().unwrap();
    assert!(program.starts_with("00400000-00401000 r-xp 00000000 00:"), "{program}");
    assert_eq!(&program[72..], " /bin/prog");
    let stack = maps.lines().find(|l| l.ends_with("[stack]")).unwrap();
    assert_eq!(&stack[73..], "[stack]");
    let plain = maps.lines().find(|l| l.starts_with("10000000-")).unwrap();
    assert_eq!(plain, "10000000-10100000 rw-p 00000000 00:00 0 ");
    let last = maps.lines().last().unwrap();
    assert_eq!(last, "ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]");
    let smaps = b.content("/proc/self/smaps").unwrap();
    assert_eq!(smaps.lines().filter(|l| l.starts_with("VmFlags:")).count(), maps.lines().count());
    assert!(smaps.contains("\nSize:               1024 kB\n"));
}

#[test]
fn descriptors_are_links() {
    let mut b = Bench::new();
    let fd = b.open("/tmp/file", c::O_RDWR | c::O_CREAT).unwrap();
    assert_eq!(b.readlink(&format!("/proc/self/fd/{fd}")).unwrap(), "/tmp/file");
    b.with_path(nr::unlink, "/tmp/file", &[]).unwrap();
    assert_eq!(b.readlink(&format!("/proc/self/fd/{fd}")).unwrap(), "/tmp/file (deleted)");
    // It can still be opened there.
    b.write(fd, b"kept").unwrap();
    assert_eq!(b.content(&format!("/proc/self/fd/{fd}")).unwrap(), "kept");
    assert_eq!(b.content(&format!("/dev/fd/{fd}")).unwrap(), "kept");
    assert!(b.readlink("/proc/self/fd/0").unwrap().starts_with("pipe:["));
    assert_eq!(b.readlink("/proc/self/fd/99"), Err(Errno::ENOENT));
    let event = b.call(nr::eventfd2, &[7, 0]).unwrap();
    assert_eq!(b.readlink(&format!("/proc/self/fd/{event}")).unwrap(), "anon_inode:[eventfd]");
    assert_eq!(b.open(&format!("/proc/self/fd/{event}"), c::O_RDWR), Err(Errno::ENXIO));
    assert!(
        b.content(&format!("/proc/self/fdinfo/{event}"))
            .unwrap()
            .contains("eventfd-count:                7\n")
    );
    let info = b.content(&format!("/proc/self/fdinfo/{fd}")).unwrap();
    assert!(info.starts_with("pos:\t4\nflags:\t0100002\n"), "{info}");
}

#[test]
fn a_pipe_opened_by_its_link_is_another_description_of_it() {
    let mut b = Bench::new();
    let fds = b.room(8);
    b.call(nr::pipe, &[fds]).unwrap();
    let [r, w]: [i32; 2] = b.object(b.tid, fds);
    let again = b.open(&format!("/proc/self/fd/{r}"), c::O_WRONLY).unwrap();
    b.write(again, b"hello").unwrap();
    b.call(nr::close, &[w as u64]).unwrap();
    b.call(nr::close, &[again]).unwrap();
    assert_eq!(b.read_all(r as u64).unwrap(), b"hello");
    assert_eq!(b.readlink(&format!("/proc/self/fd/{r}")), b.readlink(&format!("/proc/1/fd/{r}")));
}

#[test]
fn paths_lead_through_links_out_of_the_tree() {
    let mut b = Bench::new();
    assert_eq!(b.content("/proc/self/root/etc/hosts").unwrap(), "127.0.0.1 localhost\n");
    assert_eq!(b.content("/proc/self/cwd/etc/hosts").unwrap(), "127.0.0.1 localhost\n");
    assert_eq!(b.content("/proc/1/../../etc/hosts").unwrap(), "127.0.0.1 localhost\n");
    assert_eq!(b.content("/proc/mounts").unwrap(), b.content("/proc/self/mounts").unwrap());
    assert_eq!(b.content("/proc/net/dev").unwrap(), b.content("/proc/1/task/1/net/dev").unwrap());
    let cpu = b.content("/sys/devices/system/node/node0/cpu0/topology/core_id").unwrap();
    assert_eq!(cpu, "0\n");
    // A file made through a link.
    let dir = b.open("/tmp", c::O_RDONLY | c::O_DIRECTORY).unwrap();
    let fd = b.open(&format!("/proc/self/fd/{dir}/made"), c::O_WRONLY | c::O_CREAT | c::O_EXCL).unwrap();
    b.write(fd, b"x").unwrap();
    assert_eq!(b.content("/tmp/made").unwrap(), "x");
    let path = format!("/proc/self/fd/{dir}/made/");
    assert_eq!(b.open(&path, c::O_RDONLY), Err(Errno::ENOTDIR));
    assert_eq!(b.open("/proc/self/exe/x", c::O_RDONLY), Err(Errno::ENOTDIR));
    assert_eq!(b.open("/proc/version/", c::O_RDONLY), Err(Errno::ENOTDIR));
    assert_eq!(b.open("/proc/self", c::O_RDONLY | c::O_NOFOLLOW), Err(Errno::ELOOP));
    // Relative to a directory of the tree.
    let proc_dir = b.open("/proc/self", c::O_RDONLY | c::O_DIRECTORY).unwrap();
    let name = b.text("comm");
    let fd = b.call(nr::openat, &[proc_dir, name, 0]).unwrap();
    assert_eq!(b.read_all(fd).unwrap(), b"prog\n");
}

#[test]
fn a_working_directory_in_the_tree() {
    let mut b = Bench::new();
    assert_eq!(b.with_path(nr::chdir, "/proc/self/task", &[]), Ok(0));
    let at = b.room(32);
    assert_eq!(b.call(nr::getcwd, &[at, 32]), Ok(13));
    assert_eq!(b.get_as(b.tid, at, 13), b"/proc/1/task\0");
    assert_eq!(b.readlink("/proc/self/cwd").unwrap(), "/proc/1/task");
    assert_eq!(b.content("1/comm").unwrap(), "prog\n");
    assert_eq!(b.content("../comm").unwrap(), "prog\n");
    assert_eq!(b.content("../../../etc/hosts").unwrap(), "127.0.0.1 localhost\n");
    let child = b.fork();
    assert!(b.open_as(child, "1/comm", c::O_RDONLY).is_ok());
    assert_eq!(b.open("new", c::O_WRONLY | c::O_CREAT), Err(Errno::ENOENT));
    assert_eq!(b.with_path(nr::chdir, "1/comm", &[]), Err(Errno::ENOTDIR));
    assert_eq!(b.with_path(nr::chdir, "/tmp", &[]), Ok(0));
    assert_eq!(b.open("1/comm", c::O_RDONLY), Err(Errno::ENOENT));
    // A process's directory that goes away with it.
    assert_eq!(b.with_path(nr::chdir, &format!("/proc/{}", child.0), &[]), Ok(0));
    b.start(child, nr::exit_group, &[0]);
    b.call(nr::wait4, &[child.0.into(), 0, 0, 0]).unwrap();
    assert_eq!(b.call(nr::getcwd, &[at, 32]), Err(Errno::ENOENT));
    assert_eq!(b.open("stat", c::O_RDONLY), Err(Errno::ENOENT));
}

#[test]
fn the_trees_cannot_be_changed() {
    let mut b = Bench::new();
    assert_eq!(b.with_path(nr::mkdir, "/proc/x", &[0o755]), Err(Errno::ENOENT));
    assert_eq!(b.with_path(nr::mkdir, "/proc/sys", &[0o755]), Err(Errno::EEXIST));
    assert_eq!(b.with_path(nr::unlink, "/proc/version", &[]), Err(Errno::EPERM));
    assert_eq!(b.with_path(nr::rmdir, "/proc", &[]), Err(Errno::EBUSY));
    assert_eq!(b.open("/proc/new", c::O_WRONLY | c::O_CREAT), Err(Errno::ENOENT));
    assert_eq!(b.open("/proc/self", c::O_WRONLY), Err(Errno::EISDIR));
    assert_eq!(b.open("/proc/sys/kernel/hostname", c::O_WRONLY), Err(Errno::EROFS));
    assert_eq!(b.open("/proc/version", c::O_RDWR), Err(Errno::EACCES));
    assert_eq!(b.open("/sys/block", c::O_RDONLY | c::O_CREAT | c::O_EXCL), Err(Errno::EEXIST));
    assert_eq!(b.with_path(nr::chmod, "/proc/version", &[0o600]), Err(Errno::EPERM));
    let (old, new) = (b.text("/proc/version"), b.text("/tmp/x"));
    assert_eq!(b.call(nr::rename, &[old, new]), Err(Errno::EXDEV));
    assert_eq!(b.call(nr::link, &[old, new]), Err(Errno::EXDEV));
    let fd = b.open("/proc/self/oom_score_adj", c::O_WRONLY).unwrap();
    assert_eq!(b.write(fd, b"500"), Ok(3));
    assert_eq!(b.write(fd, b"-500"), Err(Errno::EACCES), "CAP_SYS_RESOURCE");
}

#[test]
fn other_users_see_less() {
    let mut b = Bench::new();
    let child = b.fork();
    b.node.task_mut(child).credentials = Credentials::new(Cred::user(1000, 1000), 0);
    assert_eq!(b.open_as(child, "/proc/1/environ", c::O_RDONLY), Err(Errno::EACCES));
    assert_eq!(b.open_as(child, "/proc/1/fd", c::O_RDONLY), Err(Errno::EACCES));
    assert_eq!(b.open_as(child, "/proc/1/root/etc/hosts", c::O_RDONLY), Err(Errno::EACCES));
    assert_eq!(b.open_as(child, "/proc/1/fd/0", c::O_RDONLY), Err(Errno::EACCES));
    assert!(b.open_as(child, "/proc/1/stat", c::O_RDONLY).is_ok());
    assert!(b.open_as(child, "/proc/self/environ", c::O_RDONLY).is_ok());
    let path = b.text(&format!("/proc/{}/fd", child.0));
    let at = b.room(144);
    b.call(nr::stat, &[path, at]).unwrap();
    let stat: Stat = b.object(b.tid, at);
    assert_eq!((stat.mode, stat.uid, stat.gid), (0o40500, 1000, 1000));
}

#[test]
fn a_listing_has_the_dots_and_every_process() {
    let mut b = Bench::new();
    let child = b.fork();
    let fd = b.open("/proc", c::O_RDONLY | c::O_DIRECTORY).unwrap();
    let mut names = Vec::new();
    let at = b.room(300);
    loop {
        let n = b.call(nr::getdents64, &[fd, at, 300]).unwrap() as usize;
        if n == 0 {
            break;
        }
        let mut bytes = &b.get_as(b.tid, at, n)[..];
        while !bytes.is_empty() {
            let length = usize::from(u16::from_le_bytes([bytes[16], bytes[17]]));
            let name = bytes[19..length].split(|b| *b == 0).next().unwrap();
            names.push(String::from_utf8(name.to_vec()).unwrap());
            bytes = &bytes[length..];
        }
    }
    assert_eq!(&names[..2], [".", ".."]);
    for name in ["self", "1", &child.0.to_string(), "meminfo", "sys"] {
        assert_eq!(names.iter().filter(|n| *n == name).count(), 1, "{name} in {names:?}");
    }
    assert_eq!(b.call(nr::getdents64, &[fd, at, 300]), Ok(0));
    let fd = b.open("/proc", c::O_RDONLY).unwrap();
    assert_eq!(b.call(nr::getdents64, &[fd, at, 23]), Err(Errno::EINVAL));
}

#[test]
fn mounts_are_described() {
    let mut b = Bench::new();
    let info = b.content("/proc/self/mountinfo").unwrap();
    for line in info.lines() {
        let (head, tail) = line.split_once(" - ").unwrap();
        assert_eq!(head.split(' ').count(), 6, "{line}");
        assert_eq!(tail.split(' ').count(), 3, "{line}");
    }
    let points: Vec<&str> = info.lines().map(|l| l.split(' ').nth(4).unwrap()).collect();
    assert_eq!(points, ["/", "/proc", "/sys", "/sys/fs/cgroup", "/dev", "/dev/shm", "/dev/pts"]);
    let mounts = b.content("/proc/mounts").unwrap();
    assert!(mounts.contains("proc /proc proc rw,nosuid,nodev,noexec,relatime 0 0\n"));
    // st_dev and mountinfo agree.
    for (path, mount) in [("/proc/version", " /proc "), ("/sys/fs/cgroup/cgroup.procs", " /sys/fs/cgroup ")] {
        let (path, at) = (b.text(path), b.room(144));
        b.call(nr::stat, &[path, at]).unwrap();
        let stat: Stat = b.object(b.tid, at);
        let line = info.lines().find(|l| l.contains(mount)).unwrap();
        assert_eq!(line.split(' ').nth(2).unwrap(), format!("0:{}", stat.dev));
    }
}

#[test]
fn the_machine_is_described() {
    let mut b = Bench::new();
    let memory = b.content("/proc/meminfo").unwrap();
    // The program has some pages.
    assert!(memory.starts_with("MemTotal:        4194304 kB\nMemFree:         31456"), "{memory}");
    assert_eq!(b.content("/proc/sys/kernel/hostname").unwrap(), "alpha\n");
    assert_eq!(
        b.content("/proc/sys/kernel/random/boot_id").unwrap(),
        "01234567-89ab-4def-bedc-ba9876543210\n"
    );
    assert_eq!(b.content("/sys/devices/system/cpu/online").unwrap(), "0\n");
    let up = b.content("/proc/uptime").unwrap();
    assert!(up.starts_with("100000.0"), "{up}");
    let stat = b.content("/proc/stat").unwrap();
    assert!(stat.contains("\nbtime 1699900000\n"));
    let dev = b.content("/proc/net/dev").unwrap();
    assert_eq!(dev.lines().count(), 3);
    assert_eq!(dev.lines().nth(2).unwrap().split_whitespace().count(), 17);
    assert_eq!(
        b.content("/proc/net/if_inet6").unwrap(),
        "00000000000000000000000000000001 01 80 10 80       lo\n"
    );
}

#[test]
fn the_processor_is_the_one_that_cpuid_shows() {
    use bloodhound_platform::cpuid_profile;
    let [_, _, ecx1, edx1] = cpuid_profile(1, 0);
    let [_, ebx7, ecx7, edx7] = cpuid_profile(7, 0);
    let [_, _, ecx_ext, edx_ext] = cpuid_profile(0x8000_0001, 0);
    let [_, _, _, power] = cpuid_profile(0x8000_0007, 0);
    // Bit numbers from Linux's cpufeatures.h.
    let edx = "fpu vme de pse tsc msr pae mce cx8 apic - - mtrr pge mca cmov pat pse36 - clflush - - - mmx fxsr sse sse2";
    let ecx = "pni pclmulqdq - - - - - - - ssse3 - - fma cx16 - - - - - sse4_1 sse4_2 - movbe popcnt - aes xsave - avx f16c";
    let seven = "- - - bmi1 - avx2 - - bmi2 erms";
    let ext_ecx = "lahf_lm - - - - abm";
    let ext_edx = "- - - - - - - - - - - syscall - - - - - - - - nx - - - - - - rdtscp - lm";
    let named = |names: &str, word: u32| -> BTreeSet<String> {
        let set = names.split(' ').enumerate().filter(|(bit, name)| *name != "-" && word & (1 << bit) != 0);
        set.map(|(_, name)| name.to_string()).collect()
    };
    let mut expected = BTreeSet::new();
    for (names, word) in [(edx, edx1), (ecx, ecx1), (seven, ebx7), (ext_ecx, ecx_ext), (ext_edx, edx_ext)] {
        let hit = named(names, word);
        // OSXSAVE (bit 27 of ecx) has no name in Linux.
        let nameless = if names == ecx { 1 << 27 } else { 0 };
        assert_eq!((word & !nameless).count_ones() as usize, hit.len(), "{names} does not name {word:#x}");
        expected.extend(hit);
    }
    assert_eq!((ecx7, edx7, power), (0, 0, 1 << 8));
    // What Linux derives.
    expected.extend(["constant_tsc", "nonstop_tsc", "nopl", "cpuid"].map(String::from));
    let shown: BTreeSet<String> = system::CPU_FLAGS.split_whitespace().map(String::from).collect();
    assert_eq!(shown, expected);
}

#[test]
fn files_are_made_anew_when_read_from_their_beginning() {
    let mut b = Bench::new();
    let fd = b.open("/proc/self/comm", c::O_RDWR).unwrap();
    let at = b.room(8);
    assert_eq!(b.call(nr::read, &[fd, at, 2]), Ok(2));
    b.node.task_mut(b.tid).comm = b"other".to_vec();
    // The rest of what was begun, then the new text.
    assert_eq!(b.read_all(fd).unwrap(), b"og\n");
    b.call(nr::lseek, &[fd, 0, c::SEEK_SET]).unwrap();
    assert_eq!(b.read_all(fd).unwrap(), b"other\n");
    // A process that is gone.
    let child = b.fork();
    let fd = b.open(&format!("/proc/{}/stat", child.0), c::O_RDONLY).unwrap();
    let dir = b.open(&format!("/proc/{}", child.0), c::O_RDONLY).unwrap();
    b.start(child, nr::exit_group, &[0]);
    let ids = b.room(8);
    assert_eq!(b.read_all(fd).unwrap()[2..14], *b"(prog) Z 1 1");
    b.call(nr::wait4, &[child.0.into(), ids, 0, 0]).unwrap();
    b.call(nr::lseek, &[fd, 0, c::SEEK_SET]).unwrap();
    assert_eq!(b.read_all(fd), Err(Errno::ESRCH));
    assert_eq!(b.call(nr::getdents64, &[dir, at, 8]), Ok(0));
    // An open directory lists itself.
    let fds = b.open("/proc/self/fd", c::O_RDONLY).unwrap();
    let at = b.room(400);
    let n = b.call(nr::getdents64, &[fds, at, 400]).unwrap();
    let name = format!("{fds}\0");
    assert!(b.get_as(b.tid, at, n as usize).windows(name.len()).any(|w| w == name.as_bytes()));
}

/// Whether a file may be opened, and whether it may be read.
fn opened_and_read(b: &mut Bench, tid: Tid, path: &str) -> Result<Result<u64, Errno>, Errno> {
    let fd = b.open_as(tid, path, 0)?;
    let at = b.room(64);
    let read = b.call_as(tid, nr::read, &[fd, at, 64]);
    b.call_as(tid, nr::close, &[fd]).expect("close");
    Ok(read)
}

#[test]
fn a_process_that_is_not_dumpable_keeps_its_secrets() {
    let mut b = Bench::new();
    let [target, other] = [(); 2].map(|()| b.fork());
    for tid in [target, other] {
        b.call_as(tid, nr::setresgid, &[7, 7, 7]).expect("gid");
        b.call_as(tid, nr::setresuid, &[7, 7, 7]).expect("uid");
    }
    let path = |name: &str| format!("/proc/{}/{name}", target.0);
    let owner = |b: &Bench, name: &str| {
        let synth = Synth::from_absolute(path(name).as_bytes()).expect("of /proc");
        view(b).attr(&synth).map(|attr| (attr.uid, attr.gid))
    };
    let refused = Err(Errno::EACCES);
    for dumpable in [false, true] {
        if dumpable {
            b.call_as(target, nr::prctl, &[c::PR_SET_DUMPABLE, 1, 0, 0, 0]).expect("prctl");
        }
        let (files, allowed) = if dumpable { ((7, 7), Ok(true)) } else { ((0, 0), refused) };
        assert_eq!(owner(&b, "task"), Some((7, 7)));
        for name in ["environ", "stat", "fd", "exe"] {
            assert_eq!(owner(&b, name), Some(files), "{name}");
        }
        for name in ["environ", "maps", "auxv", "io"] {
            let got = opened_and_read(&mut b, other, &path(name)).map(|read| read.is_ok());
            assert_eq!(got, allowed, "{name}");
        }
        assert_eq!(opened_and_read(&mut b, other, &path("status")).map(|read| read.is_ok()), Ok(true));
        assert_eq!(b.open_as(other, &path("exe"), 0).is_ok(), dumpable);
    }
    assert_eq!(opened_and_read(&mut b, target, &path("environ")).map(|read| read.is_ok()), Ok(true));
}

#[test]
fn root_without_its_rights_reads_nothing_of_root_with_them() {
    let mut b = Bench::new();
    let other = b.fork();
    let caps = &mut b.node.task_mut(other).credentials.caps;
    (caps.effective, caps.permitted) = (0, 0);
    let path = |b: &Bench, name: &str| format!("/proc/{}/{name}", b.tid.0);
    let mut look = |name| {
        let path = path(&b, name);
        opened_and_read(&mut b, other, &path)
    };
    assert_eq!(look("environ"), Err(Errno::EACCES));
    assert_eq!(look("io"), Ok(Err(Errno::EACCES)));
    assert_eq!(look("personality"), Ok(Err(Errno::EPERM)));
    assert!(look("stat").is_ok_and(|read| read.is_ok()));
}

/// The directory of interfaces has those that the network stack has, with their own addresses.
#[test]
fn sysfs_has_the_interfaces_of_the_stack() {
    let b = Bench::new();
    let at = |path: &str| Synth { tree: Tree::Sys, path: path.as_bytes().to_vec() };
    let read = |path: &str| view(&b).read(&at(path)).map(|bytes| String::from_utf8(bytes).expect("text"));
    let own = crate::inet::interfaces(view(&b).stack());
    let listed: Vec<Vec<u8>> = view(&b).list(&at("class/net")).into_iter().map(|(name, _)| name).collect();
    assert_eq!(listed, own.iter().map(|one| one.name.clone().into_bytes()).collect::<Vec<_>>());
    for interface in &own {
        let of = |file: &str| read(&format!("class/net/{}/{file}", interface.name));
        let address = interface.hardware().map(|byte| format!("{byte:02x}")).join(":");
        assert_eq!(of("address"), Ok(format!("{address}\n")));
        assert_eq!(of("ifindex"), Ok(format!("{}\n", interface.index)));
        assert_eq!(of("statistics/rx_bytes"), Ok("0\n".to_owned()));
        assert_eq!(of("speed").is_err(), interface.is_loopback());
        assert_eq!(of("nothing"), Err(Errno::ENOENT));
    }
    assert_eq!(read("class/net/eth9/address"), Err(Errno::ENOENT));
}

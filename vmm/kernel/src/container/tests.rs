//! Two containers of one machine: what each has for itself, and what they share.

use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Flock, Ucred};
use bloodhound_abi::table::nr;
use bloodhound_abi::{Errno, SimTime};
use bloodhound_net::{NodeId, Stack};
use bloodhound_vfs::{MountNs, MountSpec, RootSpec, TreeId};
use zerocopy::IntoBytes;

use super::*;
use crate::exec::Program;
use crate::testing::Bench;

const FIRST: ContainerId = ContainerId(0);
const SECOND: ContainerId = ContainerId(1);

fn volume() -> MountSpec {
    let of = Box::new(MountSpec::Volume { read_only: false });
    MountSpec::Shared { key: 1, of, subpath: Vec::new(), nocopy: false }
}

fn program() -> Program {
    Program { path: b"/bin/prog".to_vec(), argv: vec![b"prog".to_vec()], ..Program::default() }
}

/// The bench's process, with another container beside it that shares a volume at /data, and what else is said.
fn two(net: Option<ContainerId>, pids: Option<ContainerId>) -> (Bench, Tid) {
    let mut b = Bench::new();
    let root = RootSpec { tree: Some(TreeId(0)), ..RootSpec::default() };
    let mounts = b.node.vfs.add_namespace(root, &mut b.base).expect("a root");
    b.node.vfs.mount(&mut b.base, b"/data", volume()).expect("a volume");
    b.node.vfs.enter_namespace(mounts);
    crate::procfs::mount_standard(&mut b.node.vfs, &mut b.base).expect("mounts");
    b.node.vfs.mount(&mut b.base, b"/data", volume()).expect("a volume");
    let own = || Network::Own(Box::new(Stack::new(Default::default(), 2)));
    let config = ContainerConfig {
        id: NodeId(2),
        hostname: "beta".into(),
        mounts,
        net: net.map_or_else(own, Network::Of),
        pids,
        ipc: None,
        settings: Default::default(),
    };
    assert_eq!(b.node.add_container(config), SECOND);
    let tid = start(&mut b, SECOND);
    (b, tid)
}

fn start(b: &mut Bench, id: ContainerId) -> Tid {
    let pid =
        b.node.spawn(id, &program(), &mut Outside::new(&mut b.base, &mut b.decisions)).expect("a process");
    b.give_scratch(pid);
    Tid(pid.0)
}

#[test]
fn each_container_has_process_1_and_nothing_leads_to_the_other() {
    let (mut b, other) = two(None, None);
    let first = b.tid;
    for tid in [first, other] {
        assert_eq!(b.call_as(tid, nr::getpid, &[]), Ok(1));
        assert_eq!(b.call_as(tid, nr::gettid, &[]), Ok(1));
        assert_eq!(b.call_as(tid, nr::getppid, &[]), Ok(0));
    }
    let child = b.call_as(other, nr::fork, &[]).unwrap();
    assert_eq!(child, 2);
    // 2 is nobody for the first container, whose process 1 is itself.
    assert_eq!(b.call(nr::kill, &[2, 0]), Err(Errno::ESRCH));
    assert_eq!(b.call(nr::tgkill, &[2, 2, 0]), Err(Errno::ESRCH));
    assert_eq!(b.call(nr::getpgid, &[2]), Err(Errno::ESRCH));
    assert_eq!(b.call_as(other, nr::kill, &[2, 0]), Ok(0));
    let child = PidNs(1).tid(2);
    assert_eq!(b.call_as(child, nr::getppid, &[]), Ok(1));
    assert_eq!(b.call_as(child, nr::getpgid, &[0]), Ok(1));
    // A number of the machine is no number of a namespace.
    assert_eq!(b.call(nr::kill, &[u64::from(child.0), 0]), Err(Errno::ESRCH));
    // "-1: every process" of the namespace but its own and process 1.
    assert_eq!(b.call(nr::kill, &[u64::MAX, c::SIGTERM]), Err(Errno::ESRCH));
}

#[test]
fn proc_and_names_are_those_of_the_container() {
    let (mut b, other) = two(None, None);
    b.call_as(other, nr::fork, &[]).unwrap();
    assert_eq!(b.content("/proc/self/stat").unwrap().split(' ').next(), Some("1"));
    assert_eq!(b.content("/proc/2/stat"), Err(Errno::ENOENT));
    let fd = b.open_as(other, "/proc/2/stat", c::O_RDONLY).unwrap();
    let at = b.room(512);
    let n = b.call_as(other, nr::read, &[fd, at, 512]).unwrap();
    let text = String::from_utf8(b.get_as(other, at, n as usize)).unwrap();
    assert!(text.starts_with("2 (prog) R 1 1 1 "), "{text}");
    assert_eq!(b.content("/proc/sys/kernel/hostname").unwrap(), "alpha\n");
    let fd = b.open_as(other, "/proc/sys/kernel/hostname", c::O_RDONLY).unwrap();
    let n = b.call_as(other, nr::read, &[fd, at, 512]).unwrap();
    assert_eq!(b.get_as(other, at, n as usize), b"beta\n");
}

#[test]
fn containers_with_one_namespace_see_each_other() {
    let (mut b, other) = two(None, Some(FIRST));
    assert_eq!(b.call_as(other, nr::getpid, &[]), Ok(2));
    assert_eq!(b.call(nr::kill, &[2, 0]), Ok(0));
    assert_eq!(b.content("/proc/2/comm").unwrap(), "prog\n");
    // Its end leaves the namespace to the first.
    b.node.kill_container(SECOND, &mut Outside::new(&mut b.base, &mut b.decisions));
    assert_eq!(b.call(nr::getpid, &[]), Ok(1));
    assert_eq!(b.call(nr::kill, &[2, 0]), Err(Errno::ESRCH));
    let third = start(&mut b, SECOND);
    assert_eq!(b.call_as(third, nr::getpid, &[]), Ok(3));
    // The end of process 1 does not.
    b.node.kill_container(FIRST, &mut Outside::new(&mut b.base, &mut b.decisions));
    assert!(b.node.tasks.is_empty());
}

#[test]
fn a_kill_for_memory_takes_a_process_of_the_container_and_is_counted() {
    let (mut b, other) = two(None, None);
    let pid = b.node.task(other).pid;
    let kill =
        |b: &mut Bench| b.node.kill_for_memory(SECOND, &mut Outside::new(&mut b.base, &mut b.decisions));
    // "a value of -1000 [...] is equivalent to disabling OOM killing entirely for the associated task" (proc(5)).
    b.node.process_mut(pid).knobs.oom_score_adj = -1000;
    assert_eq!((b.node.oom_victim(SECOND), kill(&mut b)), (None, None));
    b.node.process_mut(pid).knobs.oom_score_adj = 0;
    let settings = &mut b.node.container_mut(SECOND).settings;
    std::sync::Arc::make_mut(settings).memory = Some(64 << 20);
    assert_eq!((b.node.oom_victim(SECOND), kill(&mut b)), (Some(pid), Some(pid)));
    let usage = b.node.memory.usage(SECOND);
    assert_eq!((usage.reached, usage.kills), (1, 1));
    let record = &b.node.memory.kills[0];
    assert_eq!((record.pid, record.limit, record.of_container), (pid, 64 << 20, true));
    assert_eq!(b.call(nr::getpid, &[]), Ok(1), "the other container goes on");
}

#[test]
fn a_container_that_ends_leaves_the_other_and_starts_anew_with_process_1() {
    let (mut b, other) = two(None, None);
    let fd = b.open_as(other, "/data/file", c::O_CREAT | c::O_RDWR).unwrap();
    b.node.kill_container(FIRST, &mut Outside::new(&mut b.base, &mut b.decisions));
    let ends: Vec<NodeId> = b.node.ends.iter().map(|end| end.container).collect();
    assert_eq!(ends, [NodeId(1)]);
    let at = b.put_as(other, b"kept");
    assert_eq!(b.call_as(other, nr::write, &[fd, at, 4]), Ok(4));
    b.node.renew_container(FIRST, Stack::new(Default::default(), 3), &mut b.base).unwrap();
    b.tid = start(&mut b, FIRST);
    assert_eq!(b.call(nr::getpid, &[]), Ok(1));
    assert_eq!(b.node.container(FIRST).life, 1);
    assert_eq!(b.content("/data/file").unwrap(), "kept");
    assert_eq!(b.call_as(other, nr::getpid, &[]), Ok(1));
}

#[test]
fn locks_of_a_volume_hold_for_all_and_name_nobody_who_is_not_seen() {
    let (mut b, other) = two(None, None);
    let mine = b.open("/data/lock", c::O_CREAT | c::O_RDWR).unwrap();
    let theirs = b.open_as(other, "/data/lock", c::O_RDWR).unwrap();
    assert_eq!(b.call(nr::flock, &[mine, c::LOCK_EX]), Ok(0));
    let blocked = b.call_as(other, nr::flock, &[theirs, c::LOCK_EX | c::LOCK_NB]);
    assert_eq!(blocked, Err(Errno::EAGAIN));
    let write = Flock { kind: c::F_WRLCK as i16, ..Flock::default() };
    let at = b.put_as(b.tid, write.as_bytes());
    assert_eq!(b.call(nr::fcntl, &[mine, c::F_SETLK, at]), Ok(0));
    let at = b.put_as(other, write.as_bytes());
    assert_eq!(b.call_as(other, nr::fcntl, &[theirs, c::F_GETLK, at]), Ok(0));
    let found: Flock = b.object(other, at);
    assert_eq!((found.kind, found.pid), (c::F_WRLCK as i16, 0));
    assert!(b.content("/proc/locks").unwrap().contains(" 1 "));
}

fn unix(path: &[u8]) -> Vec<u8> {
    [&(c::AF_UNIX as u16).to_le_bytes(), path].concat()
}

#[test]
fn unix_sockets_meet_in_a_volume_but_abstract_names_in_a_network_only() {
    for (net, meets) in [(None, false), (Some(FIRST), true)] {
        let (mut b, other) = two(net, None);
        let listen = |b: &mut Bench, address: &[u8]| {
            let socket = b.call(nr::socket, &[c::AF_UNIX, c::SOCK_STREAM, 0]).unwrap();
            let at = b.put_as(b.tid, address);
            b.call(nr::bind, &[socket, at, address.len() as u64]).unwrap();
            b.call(nr::listen, &[socket, 5]).unwrap();
        };
        listen(&mut b, &unix(b"/data/sock\0"));
        listen(&mut b, &unix(b"\0name"));
        let connect = |b: &mut Bench, address: &[u8]| {
            let socket = b.call_as(other, nr::socket, &[c::AF_UNIX, c::SOCK_STREAM, 0]).unwrap();
            let at = b.put_as(other, address);
            b.call_as(other, nr::connect, &[socket, at, address.len() as u64]).map(|_| socket)
        };
        let socket = connect(&mut b, &unix(b"/data/sock\0")).unwrap();
        let (at, len) = (b.room(12), b.put_as(other, &12u32.to_le_bytes()));
        b.call_as(other, nr::getsockopt, &[socket, c::SOL_SOCKET, c::SO_PEERCRED, at, len]).unwrap();
        let cred: Ucred = b.object(other, at);
        assert_eq!(cred.pid, 0, "the other's process has no number here");
        let expected = if meets { Ok(()) } else { Err(Errno::ECONNREFUSED) };
        assert_eq!(connect(&mut b, &unix(b"\0name")).map(drop), expected);
    }
}

#[test]
fn ports_are_those_of_the_network() {
    let address = [&(c::AF_INET as u16).to_le_bytes()[..], &[0x1f, 0x90, 127, 0, 0, 1], &[0; 8]].concat();
    for (net, meets) in [(None, false), (Some(FIRST), true)] {
        let (mut b, other) = two(net, None);
        let first = b.tid;
        let bind = |b: &mut Bench, tid: Tid| {
            let socket = b.call_as(tid, nr::socket, &[c::AF_INET, c::SOCK_STREAM, 0]).unwrap();
            let at = b.put_as(tid, &address);
            b.call_as(tid, nr::bind, &[socket, at, 16]).map(|_| socket)
        };
        let socket = bind(&mut b, first).unwrap();
        b.call(nr::listen, &[socket, 5]).unwrap();
        let again = bind(&mut b, other).map(drop);
        assert_eq!(again, if meets { Err(Errno::EADDRINUSE) } else { Ok(()) });
        let client =
            b.call_as(other, nr::socket, &[c::AF_INET, c::SOCK_STREAM | c::SOCK_NONBLOCK, 0]).unwrap();
        let at = b.put_as(other, &address);
        assert_eq!(b.call_as(other, nr::connect, &[client, at, 16]), Err(Errno::EINPROGRESS));
        for _ in 0..8 {
            b.node.clock = b.node.clock.after(1_000_000);
            b.node.on_time();
        }
        let outcome = b.call_as(other, nr::connect, &[client, at, 16]);
        assert_eq!(outcome, if meets { Ok(0) } else { Err(Errno::ECONNREFUSED) });
        // A container that starts anew does not take a network away that another one uses.
        b.node.kill_container(FIRST, &mut Outside::new(&mut b.base, &mut b.decisions));
        b.node.renew_container(FIRST, Stack::new(Default::default(), 3), &mut b.base).unwrap();
        let kept =
            b.node.net.stack(b.node.container(SECOND).net).state(bloodhound_net::SocketId(1 << 26)).is_some();
        assert_eq!(kept, !meets);
        assert_ne!(b.node.clock, SimTime::ZERO);
    }
}

#[test]
fn segments_belong_to_an_ipc_namespace() {
    let (mut b, other) = two(None, None);
    let make = [7, 4096, 0o1600];
    let mine = b.call(nr::shmget, &make).unwrap();
    let theirs = b.call_as(other, nr::shmget, &make).unwrap();
    assert_eq!(mine, theirs, "each namespace has numbers of its own");
    let second = b.call(nr::shmget, &[8, 4096, 0o1600]).unwrap();
    assert_eq!(b.call_as(other, nr::shmat, &[second, 0, 0]), Err(Errno::EINVAL));
    b.node.kill_container(SECOND, &mut Outside::new(&mut b.base, &mut b.decisions));
    b.node.renew_container(SECOND, Stack::new(Default::default(), 3), &mut b.base).unwrap();
    assert_eq!(b.call(nr::shmget, &[7, 4096, 0]), Ok(mine));
    assert_eq!(b.node.container(SECOND).mounts, MountNs(1));
    assert_eq!(b.node.shm.len(), 2);
}

#[test]
fn settings_hold_for_processes_and_are_shown() {
    let mut b = Bench::new();
    let settings = Settings {
        capabilities: 1 << crate::caps::CAP_KILL,
        memory: Some(64 << 20),
        pids: Some(10),
        cpu_milli: Some(1500),
        no_new_privileges: true,
        sysctls: [("net/core/somaxconn", "17"), ("net/ipv4/ip_unprivileged_port_start", "80")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into_iter()
            .collect(),
        ..Settings::default()
    };
    b.node.container_mut(FIRST).settings = Arc::new(settings);
    for (path, text) in [
        ("/sys/fs/cgroup/memory.max", "67108864\n"),
        ("/sys/fs/cgroup/pids.max", "10\n"),
        ("/sys/fs/cgroup/cpu.max", "150000 100000\n"),
        ("/sys/fs/cgroup/cgroup.procs", "1\n"),
        ("/proc/sys/net/core/somaxconn", "17\n"),
        ("/proc/sys/net/core/rmem_max", "212992\n"),
    ] {
        assert_eq!(b.content(path).unwrap(), text, "{path}");
    }
    let next = start(&mut b, FIRST);
    let first = b.node.task(next);
    assert_eq!(first.credentials.caps, crate::caps::Caps::of(0, 1 << crate::caps::CAP_KILL));
    assert!(first.no_new_privs);
    // Port 79 needs CAP_NET_BIND_SERVICE, port 80 does not.
    for (port, outcome) in [(79u8, Err(Errno::EACCES)), (80, Ok(0))] {
        let address = [&(c::AF_INET as u16).to_le_bytes()[..], &[0, port, 127, 0, 0, 1], &[0; 8]].concat();
        let socket = b.call_as(next, nr::socket, &[c::AF_INET, c::SOCK_STREAM, 0]).unwrap();
        let at = b.put_as(next, &address);
        assert_eq!(b.call_as(next, nr::bind, &[socket, at, 16]), outcome, "port {port}");
    }
}

#[test]
fn an_init_is_process_1_and_the_command_is_its_child() {
    let mut b = Bench::new();
    b.node.kill_container(FIRST, &mut Outside::new(&mut b.base, &mut b.decisions));
    b.node.renew_container(FIRST, Stack::new(Default::default(), 3), &mut b.base).unwrap();
    let init = crate::init::image();
    b.node.vfs.put_file(&mut b.base, crate::init::PATH, 0o755, &init).unwrap();
    let missing = Program { path: b"/bin/missing".to_vec(), ..program() };
    let mut outside = Outside::new(&mut b.base, &mut b.decisions);
    assert_eq!(b.node.spawn_with_init(FIRST, &missing, &mut outside), Err(Errno::ENOENT));
    assert!(b.node.processes.is_empty());
    let first = b.node.spawn_with_init(FIRST, &program(), &mut outside).unwrap();
    assert_eq!(first, Pid(1));
    assert_eq!(*b.node.command_line(b.node.process(Pid(1))), *b"/sbin/docker-init\0--\0prog\0");
    assert_eq!(b.node.process(Pid(2)).ppid, Pid(1));
    assert_eq!(b.node.task(Tid(1)).regs.rbx, 2);
}

#[test]
fn numbers_begin_anew_after_the_largest_and_pass_over_those_in_use() {
    let (mut b, other) = two(None, None);
    b.node.next_numbers[1] = PidNs::LAST;
    let fork = |b: &mut Bench| b.call_as(other, nr::fork, &[]).map(|pid| pid as u32);
    assert_eq!(fork(&mut b), Ok(PidNs::LAST));
    assert_eq!(fork(&mut b), Ok(PidNs::AGAIN));
    // The process is a group and a session of its own, and goes: its number stays in use as long as the group has members.
    let leader = PidNs(1).tid(PidNs::AGAIN);
    assert_eq!(b.call_as(leader, nr::setsid, &[]), Ok(u64::from(PidNs::AGAIN)));
    assert_eq!(b.call_as(leader, nr::fork, &[]), Ok(u64::from(PidNs::AGAIN) + 1));
    assert_eq!(b.node.processes.remove(&Pid(leader.0)).map(|process| process.pid), Some(Pid(leader.0)));
    b.node.tasks.remove(&leader);
    b.node.next_numbers[1] = PidNs::LAST + 1;
    assert_eq!(fork(&mut b), Ok(PidNs::AGAIN + 2));
    // Those of the other container are its own.
    assert_eq!(b.call(nr::fork, &[]), Ok(2));
}

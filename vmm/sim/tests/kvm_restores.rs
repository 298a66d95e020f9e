//! Restores and virtual machines without end leave nothing behind: descriptors, mappings, frames, memory of the process.
//! One test at a time in a binary of its own, as it counts what the whole process has. Needs /dev/kvm and a C compiler.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Barrier};

use bloodhound_decisions::Decisions;
use bloodhound_frames::Frame;
use bloodhound_kernel::exec::Program;
use bloodhound_net::{LinkConfig, NodeId};
use bloodhound_platform::{Mapping, Platform, Prot, Regs, SpaceId, Stops, TaskKey, Trap, XState};
use bloodhound_platform_kvm::KvmPlatform;
use bloodhound_sim::scenario::{RestartPolicy, Scenario, ServiceSpec};
use bloodhound_sim::{Ended, Machine, setup};
use bloodhound_vfs::MountSpec;
use bloodhound_vfs::host::{Allow, HostBase};

/// Threads, each with a machine.
const WORKERS: usize = 3;
/// Steps after each restore.
const STEPS: u64 = 4;
/// What the process may have more at the end, in KiB: what allocators keep.
const SLACK: u64 = 12 << 10;
/// Page tables of a virtual machine, in KiB: they are used up from front to back, then all are given back.
const TABLES: u64 = 64 << 10;
const VMS: usize = 200;

/// Touches its stack and 16 pages of data, a page more with each round, and makes a system call each time.
const GUEST: &str = r#"
static char data[16 * 4096];
void _start(void) {
    for (unsigned n = 0;; n++) {
        long result;
        data[n % 16 * 4096]++;
        __asm__ volatile("syscall" : "=a"(result) : "a"(110L) : "rcx", "r11", "memory");
    }
}
"#;

fn guest() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, out) = (folder.join("kvm-restores.c"), folder.join("kvm-restores"));
    std::fs::write(&source, GUEST).unwrap();
    let flags = ["-O1", "-static", "-nostdlib", "-ffreestanding", "-fno-stack-protector", "-o"];
    let status = Command::new("cc").args(flags).arg(&out).arg(&source).status();
    assert!(status.expect("a C compiler").success());
    out
}

fn service(node: u32, base: &HostBase, path: &Path) -> ServiceSpec {
    let tree = base.add_tree(path.parent().unwrap(), Allow::All).unwrap();
    let path = format!("/mnt/{}", path.file_name().unwrap().to_str().unwrap());
    ServiceSpec {
        node: NodeId(node),
        name: format!("n{node}"),
        hostname: format!("n{node}"),
        addresses: vec![([10, 0, 0, node as u8].into(), 24)],
        hosts: BTreeMap::new(),
        program: Program {
            path: path.clone().into(),
            argv: vec![path.into()],
            envp: Vec::new(),
            cwd: b"/".to_vec(),
            uid: 0,
            gid: 0,
            groups: Vec::new(),
        },
        root: None,
        mounts: vec![("/mnt".into(), MountSpec::Bind { tree, read_only: true })],
        depends_on: Vec::new(),
        health: None,
        hooks: Default::default(),
        published: Default::default(),
        restart: RestartPolicy::No,
        stdin: Default::default(),
        faulty: false,
        sharing: Default::default(),
        runtime: Default::default(),
        resolver: Default::default(),
    }
}

fn machine(path: &Path) -> Machine {
    let mut base = HostBase::new();
    let scenario = Arc::new(Scenario {
        services: vec![service(1, &base, path), service(2, &base, path)],
        link: LinkConfig::default(),
        costs: Default::default(),
        spread: Default::default(),
        epoch_ns: 1_735_689_600_000_000_000,
        memory: 1 << 30,
        time_step: 100_000,
        boot_timeout: u64::MAX,
        max_time: u64::MAX >> 1,
        fault_start: 0,
        fault_time: 0,
        heal: true,
        faults: Default::default(),
        disk: None,
        planning: Default::default(),
        settle: u64::MAX >> 1,
        health_until_ready: false,
        vdso: true,
        workload: None,
        clients: Vec::new(),
        prober: None,
        helpers: Vec::new(),
        checks: Vec::new(),
        schedule: Default::default(),
        compute_limit: 1_000_000_000,
    });
    let platform = KvmPlatform::new(None).expect("/dev/kvm");
    let world = setup::world(&scenario, &mut base, Decisions::seeded(1)).expect("a world");
    Machine::new(world, scenario, Box::new(platform), Box::new(base))
}

fn go(machine: &mut Machine, steps: u64) {
    let until = machine.world.steps + steps;
    let ended = machine.run(|world| world.steps >= until).expect("the host works");
    assert_eq!(ended, Ended::Condition, "{:?}", machine.world.findings);
}

/// What the process has.
#[derive(Clone, Copy, Debug)]
struct Usage {
    descriptors: usize,
    mappings: usize,
    /// Resident KiB, without the frame store's, whose frames are counted.
    resident: u64,
    frames: u64,
}

fn usage() -> Usage {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    Usage {
        descriptors: std::fs::read_dir("/proc/self/fd").unwrap().count(),
        mappings: std::fs::read_to_string("/proc/self/maps").unwrap().lines().count(),
        resident: line.split_whitespace().nth(1).unwrap().parse().unwrap(),
        frames: bloodhound_frames::stats().live,
    }
}

/// No more than there was, but for page tables of so many machines.
fn assert_no_more(before: Usage, after: Usage, machines: u64) {
    let context = format!("{before:?}, then {after:?}");
    assert!(after.descriptors <= before.descriptors, "{context}");
    assert!(after.mappings <= before.mappings + 8, "{context}");
    assert!(after.resident <= before.resident + machines * TABLES + SLACK, "{context}");
    assert!(after.frames <= before.frames, "{context}");
}

/// All workers restore again and again; between two barriers the process is quiet and can be counted.
fn restores(path: &Path, count: usize) {
    let barrier = Barrier::new(WORKERS + 1);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                let mut machine = machine(path);
                go(&mut machine, 60);
                let snapshot = machine.snapshot().expect("the host works");
                let mut digest = None;
                for n in 0..count {
                    machine.restore(snapshot.clone());
                    go(&mut machine, STEPS);
                    let same = *digest.get_or_insert(machine.world.digest);
                    assert_eq!(machine.world.digest, same, "restore {n}");
                    // After a quarter nothing may grow any more.
                    if n == count / 4 || n + 1 == count {
                        barrier.wait();
                        barrier.wait();
                    }
                }
            });
        }
        barrier.wait();
        let before = usage();
        barrier.wait();
        barrier.wait();
        let after = usage();
        println!("{count} restores on each of {WORKERS}: {before:?}, then {after:?}");
        barrier.wait();
        assert_no_more(before, after, WORKERS as u64);
    });
}

/// Makes platforms, runs a system call on each, and drops them.
fn machines_of_their_own() {
    let code = Frame::from_slice(b"\x0f\x05");
    let once = || {
        let mut platform = KvmPlatform::new(None).expect("/dev/kvm");
        let (space, task) = (SpaceId(1), TaskKey(1));
        platform.load_xstate(space, task, &XState::initial()).unwrap();
        let mapping = Mapping { addr: 0x1_0000, frame_offset: code.offset(), pages: 1, prot: Prot::RX };
        platform.map(space, &[mapping]);
        let mut regs = Regs { rip: 0x1_0000, ..Regs::default() };
        while platform.run(space, task, &mut regs, &mut Stops::default()).unwrap() != Trap::Syscall {}
    };
    (0..VMS / 10).for_each(|_| once());
    let before = usage();
    (0..VMS).for_each(|_| once());
    let after = usage();
    println!("{VMS} platforms: {before:?}, then {after:?}");
    assert_no_more(before, after, 0);
}

/// So many restores on each thread, then all machines are dropped.
fn nothing_is_left(count: usize) {
    if bloodhound_platform_tests::without_kvm("restores on KVM") {
        return;
    }
    let path = guest();
    bloodhound_frames::init().unwrap();
    let first = usage();
    restores(&path, count);
    let last = usage();
    println!("at first {first:?}, after all restores {last:?}");
    assert!(last.descriptors <= first.descriptors && last.frames <= first.frames + 1, "{first:?}, {last:?}");
    assert!(last.resident <= first.resident + SLACK, "{first:?}, {last:?}");
    machines_of_their_own();
}

#[test]
fn restores_and_machines_leave_nothing_behind() {
    nothing_is_left(400);
}

#[test]
#[ignore = "takes a minute; alone, as it counts what the whole process has"]
fn ten_thousand_restores_leave_nothing_behind() {
    nothing_is_left(10_000 / WORKERS);
}

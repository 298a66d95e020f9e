//! What steps, memory, processes, messages and snapshots cost on the ptrace platform (with the word `kvm` on that one),
//! each figure beside the same program run natively in the same run:
//! `cargo bench -p bloodhound-sim --bench machine [-- [kvm] name...]`. Needs a C compiler.
//! docs/performance.md tells how to read it.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // measures host time

mod bare;
mod counted;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use bloodhound_abi::SimTime;
use bloodhound_decisions::Decisions;
use bloodhound_faults::{FaultSpec, Kind};
use bloodhound_kernel::exec::Program;
use bloodhound_kernel::node::MachineId;
use bloodhound_kernel::process::ExitStatus;
use bloodhound_net::{LinkConfig, NodeId};
use bloodhound_platform::Platform;
use bloodhound_platform_kvm::KvmPlatform;
use bloodhound_platform_ptrace::{PtracePlatform, with_host_clock};
use bloodhound_sim::scenario::{RestartPolicy, Scenario, ServiceSpec};
use bloodhound_sim::services::State;
use bloodhound_sim::{Ended, Machine, setup};
use bloodhound_vfs::MountSpec;
use bloodhound_vfs::host::{Allow, HostBase};
use counted::{Counted, Counts};

/// How long the phase of faults lasts, where there is one, ns.
const FAULTS: u64 = 100_000_000_000;
/// Everything runs on this CPU.
const CPU: usize = 0;

fn service(node: u32, base: &HostBase, path: &Path, args: &[&str]) -> ServiceSpec {
    let root = base.add_tree(Path::new("/"), Allow::All).expect("the root");
    let folder = path.parent().expect("a folder");
    // /tmp, where the guest may be, is empty in a simulated container.
    let tree = base.add_tree(folder, Allow::All).expect("the program's folder");
    let path = Path::new("/mnt").join(path.file_name().expect("a name"));
    let path = path.to_str().expect("a path of text");
    ServiceSpec {
        node: NodeId(node),
        name: format!("n{node}"),
        hostname: format!("n{node}"),
        addresses: vec![([10, 0, 0, node as u8].into(), 24)],
        hosts: BTreeMap::new(),
        program: Program {
            path: path.into(),
            argv: std::iter::once(path).chain(args.iter().copied()).map(Into::into).collect(),
            envp: vec![b"PATH=/usr/bin:/bin".to_vec(), b"LANG=C.UTF-8".to_vec()],
            cwd: b"/".to_vec(),
            uid: 0,
            gid: 0,
            groups: Vec::new(),
        },
        root: Some(root),
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

/// Whether the command line asks for KVM.
fn on_kvm() -> bool {
    std::env::args().any(|word| word == "kvm")
}

/// A machine whose nodes 1, 2, ... run the program with these arguments.
fn machine(path: &Path, nodes: &[&[&str]]) -> Machine {
    counted(path, nodes).0
}

/// As `machine`, with what it asks of the platform.
fn counted(path: &Path, nodes: &[&[&str]]) -> (Machine, Arc<Counts>) {
    faulty(path, nodes, None)
}

/// As `counted`, with services that these faults may hit, if any.
fn faulty(path: &Path, nodes: &[&[&str]], faults: Option<&FaultSpec>) -> (Machine, Arc<Counts>) {
    let mut base = HostBase::new();
    let of = |(args, node): (&&[&str], u32)| ServiceSpec {
        faulty: faults.is_some(),
        ..service(node, &base, path, args)
    };
    let services = nodes.iter().zip(1..).map(of).collect::<Vec<_>>();
    let scenario = Arc::new(Scenario {
        services,
        link: LinkConfig::default(),
        costs: Default::default(),
        spread: Default::default(),
        epoch_ns: 1_735_689_600_000_000_000,
        memory: 4 << 30,
        time_step: 100_000,
        boot_timeout: u64::MAX,
        max_time: u64::MAX >> 1,
        fault_start: 0,
        fault_time: FAULTS,
        heal: true,
        faults: faults.cloned().unwrap_or_default(),
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
    let platform: Box<dyn Platform> = match on_kvm() {
        true => Box::new(KvmPlatform::new(Some(CPU)).expect("/dev/kvm")),
        false => Box::new(PtracePlatform::new(Some(CPU)).expect("the platform")),
    };
    let world = setup::world(&scenario, &mut base, Decisions::seeded(1)).expect("a world");
    let counts = Arc::new(Counts::default());
    let platform = Counted(platform, counts.clone());
    (Machine::new(world, scenario, Box::new(platform), Box::new(base)), counts)
}

/// Runs until the program of a node ended; host time in us.
fn finish(machine: &mut Machine, node: u32) -> f64 {
    let start = Instant::now();
    let ended = machine.run(|w| matches!(w.services[&NodeId(node)].state, State::Ended(_)));
    let time = start.elapsed().as_secs_f64() * 1e6;
    assert_eq!(ended.expect("the host works"), Ended::Condition, "{:?}", machine.world.findings);
    let state = machine.world.services[&NodeId(node)].state;
    assert_eq!(state, State::Ended(ExitStatus::Code(0)), "{:?}", machine.world.console);
    time
}

/// Least of several.
fn best(times: u32, mut work: impl FnMut() -> f64) -> f64 {
    (0..times).map(|_| work()).fold(f64::MAX, f64::min)
}

/// Host time of a native run, us.
fn native(path: &Path, args: &[&str]) -> f64 {
    best(5, || {
        let mut command = Command::new(path);
        command.args(args).env_clear();
        let start = Instant::now();
        let status = command.status().expect("the program starts");
        assert!(status.success());
        start.elapsed().as_secs_f64() * 1e6
    })
}

fn report(what: &str, ours: f64, reference: f64, unit: &str, than: &str) {
    println!(
        "{what:<46} {ours:>10.2} {unit:<3} {than:>10} {reference:>9.2} {unit:<3} ratio {:.2}",
        ours / reference
    );
}

/// One mode of the guest: time per repetition, here and natively.
fn mode(guest: &Path, what: &str, mode: &str, count: u32) {
    let per = |with: f64, without: f64| (with - without) / f64::from(count);
    let text = count.to_string();
    let there = with_host_clock(|| per(native(guest, &[mode, &text]), native(guest, &[mode, "0"])));
    let run = |count: &str| best(5, || finish(&mut machine(guest, &[&[mode, count]]), 1));
    report(what, per(run(&text), run("0")), there, "us", "native");
}

fn system_call(guest: &Path) {
    let mut m = machine(guest, &[&["getppid", "1000000000"]]);
    let mut steps = |n: u64| {
        let until = m.world.steps + n;
        let start = Instant::now();
        let ended = m.run(|w| w.steps >= until).expect("the host works");
        assert_eq!(ended, Ended::Condition, "{:?}", m.world.findings);
        start.elapsed().as_secs_f64() * 1e6 / n as f64
    };
    steps(200);
    let bare = bare::Bare::new();
    // In turns, so that a busy host disturbs both alike.
    let (mut ours, mut theirs) = (f64::MAX, f64::MAX);
    for _ in 0..20 {
        ours = ours.min(steps(500));
        let start = Instant::now();
        (0..500).for_each(|_| bare.round());
        theirs = theirs.min(start.elapsed().as_secs_f64() * 1e6 / 500.0);
    }
    // On KVM the bare loop to compare with is that of `cargo bench -p bloodhound-platform-kvm`.
    report("getppid", ours, theirs, "us", "bare ptrace");
}

fn echo(guest: &Path) {
    let count = 500;
    let run = |n: u32| {
        best(3, || finish(&mut machine(guest, &[&["serve"], &["ask", &n.to_string(), "10.0.0.1"]]), 2))
    };
    let ours = (run(count) - run(0)) / f64::from(count);
    let there = with_host_clock(|| {
        let mut server = Command::new(guest).arg("serve").spawn().expect("the guest");
        let run = |n: u32| native(guest, &["ask", &n.to_string(), "127.0.0.1"]);
        let per = (run(20_000) - run(0)) / 20_000.0;
        server.kill().and_then(|()| server.wait()).expect("the server ends");
        per
    });
    report("TCP echo of 64 bytes between two nodes", ours, there, "us", "loopback");
}

fn start_up(what: &str, path: &Path, args: &[&str]) {
    if !path.exists() {
        return;
    }
    let there = with_host_clock(|| native(path, args));
    let mut line = String::new();
    let ours = best(5, || {
        let (mut m, counts) = counted(path, &[args]);
        let time = finish(&mut m, 1);
        line = format!("{} steps, {}", m.world.steps, counts.line());
        time
    });
    report(what, ours / 1e3, there / 1e3, "ms", "native");
    println!("    {line}");
}

/// Three nodes of a service with 8 MB each that exchange messages.
fn snapshots(guest: &Path) {
    let args: &[&str] = &["member", "1000000000"];
    let (mut m, counts) = counted(guest, &[args, args, args]);
    let mut until = 100_000_000;
    let go = |m: &mut Machine, until: u64| {
        let start = Instant::now();
        let ended = m.run(|w| w.now >= SimTime(until)).expect("the host works");
        assert_eq!(ended, Ended::Condition, "{:?}", m.world.findings);
        start.elapsed().as_secs_f64() * 1e6
    };
    go(&mut m, until);
    let mut steady = f64::MAX;
    for _ in 0..5 {
        until += 20_000_000;
        steady = steady.min(go(&mut m, until));
    }
    let (mut take, mut restore, mut resumed) = (f64::MAX, f64::MAX, f64::MAX);
    let snapshot = m.snapshot().expect("the host works");
    for _ in 0..10 {
        let start = Instant::now();
        drop(m.snapshot().expect("the host works"));
        take = take.min(start.elapsed().as_secs_f64() * 1e6);
        let start = Instant::now();
        m.restore(snapshot.clone());
        restore = restore.min(start.elapsed().as_secs_f64() * 1e6);
        let again = go(&mut m, until + 20_000_000);
        resumed = resumed.min(again);
    }
    println!("{:<46} {take:>10.2} us", "snapshot of three nodes of 8 MB");
    println!("{:<46} {restore:>10.2} us", "restore of it after 20 ms");
    report("20 ms after a restore", resumed, steady, "us", "steady");
    println!("    {}", counts.line());
}

/// What snapshots hold that are kept along a run of the same service, one each 20 ms: frames, and what the simulation has beside them, each beside what the world
/// itself has.
fn points(guest: &Path) {
    let args: &[&str] = &["member", "1000000000"];
    let mut m = machine(guest, &[args, args, args]);
    let go = |m: &mut Machine, until: u64| {
        let ended = m.run(|w| w.now >= SimTime(until)).expect("the host works");
        assert_eq!(ended, Ended::Condition, "{:?}", m.world.findings);
    };
    go(&mut m, 100_000_000);
    let frames = || bloodhound_frames::used_by_thread() as f64 * 4.0;
    let (mut kept, count) = (Vec::new(), 200);
    let (whole, private, before) = (frames(), private_kib(), Instant::now());
    for nth in 1..=count {
        kept.push(m.snapshot().expect("the host works"));
        go(&mut m, 100_000_000 + nth * 20_000_000);
    }
    let time = before.elapsed().as_secs_f64() * 1e6;
    let each = |all: f64| all / count as f64;
    report("frames of a snapshot each 20 ms", each(frames() - whole), whole, "KiB", "the world");
    println!("{:<46} {:>10.2} KiB", "what it has besides", each(private_kib() - private));
    println!("{:<46} {:>10.2} us", "20 ms with a snapshot that is kept", each(time));
    drop(kept);
    println!("{:<46} {:>10.2} KiB", "frames left when all are given up", frames() - whole);
}

/// Memory of this process that is its own and no frame, KiB.
fn private_kib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("RssAnon");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// A clone of a world and the first write to a node of it, with so many tasks and ten times as many descriptors.
fn crowd(guest: &Path) {
    for count in ["10", "100", "1000"] {
        let mut m = machine(guest, &[&["crowd", count]]);
        let ended = m.run(|w| w.now >= SimTime(1_000_000_000)).expect("the host works");
        assert_eq!(ended, Ended::Condition, "{:?}", m.world.findings);
        let node = &m.world.nodes[&MachineId(1)];
        let tasks = node.tasks.len();
        let tid = *node.tasks.keys().last().expect("a task");
        let descriptors = node.fds_of(tid).iter().count();
        let fd = descriptors as i32 / 2;
        let mut best = f64::MAX;
        for _ in 0..100 {
            let start = Instant::now();
            let kept = m.world.clone();
            let node = m.world.node_mut(MachineId(1));
            node.task_mut(tid).io.syscr += 1;
            let file = node.fds_of_mut(tid).get_mut(fd).expect("an open descriptor").file;
            node.files[file].refs += 1;
            best = best.min(start.elapsed().as_secs_f64() * 1e6);
            m.world = kept;
        }
        println!("{:<46} {best:>10.2} us", format!("clone, write: {tasks} tasks, {descriptors} descriptors"));
    }
}

/// Host time in us of the programs of some nodes, the last of which ends, from when they run on: in the phase of faults, whether there are any
/// or not, as that has its own way to share out processors.
fn with_faults(guest: &Path, nodes: &[&[&str]], faults: Option<&FaultSpec>) -> f64 {
    let (mut m, _) = faulty(guest, nodes, faults);
    let run = m.run(|w| w.services.values().all(|service| matches!(service.state, State::Running(_))));
    assert_eq!(run.expect("the host works"), Ended::Condition, "{:?}", m.world.findings);
    m.begin_faults();
    finish(&mut m, nodes.len() as u32)
}

/// What it costs that operations and packets could meet faults: each kind at rate 0, and each at so low a rate that everything is drawn and
/// nothing happens, against runs with none.
fn rates(guest: &Path) {
    let off = FaultSpec::default();
    let rare = Kind::DECLARATIONS.iter().filter(|declaration| declaration.switch().is_some());
    let rare = rare.fold(off.clone(), |spec, declaration| spec.with_rate(declaration.kind, 1));
    let programs: [(&str, &[&[&str]]); 3] = [
        ("getppid", &[&["getppid", "10000"]]),
        ("files", &[&["files", "1000"]]),
        ("TCP echo", &[&["serve"], &["ask", "1000", "10.0.0.1"]]),
    ];
    for (what, nodes) in programs {
        let (mut at_zero, mut at_little, mut least) = (Vec::new(), Vec::new(), f64::MAX);
        // Pairs in turns, and the middle of their ratios, so that a busy host disturbs all alike.
        for _ in 0..25 {
            let [without, off, rare] =
                [None, Some(&off), Some(&rare)].map(|faults| with_faults(guest, nodes, faults));
            at_zero.push(off / without);
            at_little.push(rare / without);
            least = least.min(without);
        }
        let (zero, little) = (median(at_zero), median(at_little));
        println!(
            "{:<46} {:>10.2} ms  ratio {zero:.3} with every kind at rate 0, {little:.3} at 1 in a billion",
            format!("faults: {what} without any"),
            least / 1e3
        );
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

/// Compiles the program that the benchmark runs.
fn guest() -> PathBuf {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("bench-guest");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/guest.c");
    let cc = std::env::var_os("CC").unwrap_or("cc".into());
    let status = Command::new(cc).args(["-O1", "-static", "-pthread", "-o"]).arg(&out).arg(source).status();
    assert!(status.expect("a C compiler").success());
    out
}

fn main() {
    let guest = guest();
    let guest = guest.as_path();
    let chosen: Vec<String> =
        std::env::args().skip(1).filter(|a| !a.starts_with('-') && a != "kvm").collect();
    let all: [(&str, &dyn Fn()); 15] = [
        ("getppid", &|| system_call(guest)),
        ("clock", &|| mode(guest, "clock_gettime", "clock", 20_000)),
        ("pipe", &|| mode(guest, "pipe: write and read of 64 bytes", "pipe", 500)),
        ("pingpong", &|| mode(guest, "pipe ping-pong of two threads", "pingpong", 300)),
        ("echo", &|| echo(guest)),
        ("pages", &|| mode(guest, "touching an anonymous page", "pages", 2_000)),
        ("fork", &|| mode(guest, "fork, exit, wait", "fork", 100)),
        ("empty", &|| start_up("start of a static program", guest, &["getppid", "0"])),
        ("true", &|| start_up("start of /bin/true", Path::new("/bin/true"), &[])),
        ("shell", &|| start_up("start of dash", Path::new("/bin/dash"), &["-c", "exit 0"])),
        ("python", &|| start_up("start of python3", Path::new("/usr/bin/python3"), &["-c", "pass"])),
        ("snapshots", &|| snapshots(guest)),
        ("points", &|| points(guest)),
        ("crowd", &|| crowd(guest)),
        ("faults", &|| rates(guest)),
    ];
    for (name, run) in all {
        if chosen.is_empty() || chosen.iter().any(|c| c == name) {
            run();
        }
    }
}

//! Code with instructions that are replaced in what the processor is shown: the world is the same with and without that, and
//! copies of a binary share what is shown. The same holds for observing points. On ptrace, with a program made of bytes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use bloodhound_decisions::Decisions;
use bloodhound_kernel::exec::Program;
use bloodhound_kernel::node::ConsoleChunk;
use bloodhound_net::{LinkConfig, NodeId};
use bloodhound_platform::code_points::{FilePoints, Mark, Observed, Reached};
use bloodhound_platform::{Mapping, Patches, Platform, SpaceId, scripted_elf};
use bloodhound_platform_ptrace::PtracePlatform;
use bloodhound_sim::console::Piece;
use bloodhound_sim::scenario::{RestartPolicy, Scenario, ServiceSpec};
use bloodhound_sim::{Ended, Machine, Observer, World, setup};
use bloodhound_vfs::MountSpec;
use bloodhound_vfs::host::{Allow, HostBase};

const BASE: u64 = 0x40_0000;

/// xor eax, eax; xor ecx, ecx; cpuid; xor ecx, ecx; xgetbv; rdtsc; write(1, BASE, 64); loop: pause(); jmp loop
const CODE: &[u8] = b"\x31\xc0\x31\xc9\x0f\xa2\x31\xc9\x0f\x01\xd0\x0f\x31\
    \xb8\x01\0\0\0\xbf\x01\0\0\0\xbe\0\0\x40\0\xba\x40\0\0\0\x0f\x05\
    \xb8\x22\0\0\0\x0f\x05\xeb\xf7";

/// Where each platform mapping of the program's first page led, by space.
type Shown = Arc<Mutex<BTreeMap<u64, u64>>>;

/// A platform that notes what it maps for execution.
struct Noting(PtracePlatform, Shown);

impl Platform for Noting {
    bloodhound_platform::forward_platform!(0: run, step, approach, processor_time, memory, unmap, write_protect, mapped, xstate_owner, save_xstate, load_xstate, reset_space, drop_space, evict_all, abilities);

    fn map(&mut self, space: SpaceId, mappings: &[Mapping]) {
        for m in mappings.iter().filter(|m| m.prot.exec && m.addr == BASE) {
            self.1.lock().unwrap().insert(space.0, m.frame_offset);
        }
        self.0.map(space, mappings);
    }
}

/// A copy of the program in a directory of its own.
fn program(name: &str) -> PathBuf {
    let mut elf = scripted_elf(BASE, 32);
    elf[4096..4096 + CODE.len()].copy_from_slice(CODE);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    // Other tests of this process use the same file: they see it whole.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let (path, new) =
        (folder.join("program"), folder.join(NUMBER.fetch_add(1, Ordering::Relaxed).to_string()));
    std::fs::write(&new, elf).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&new, mode).unwrap();
    std::fs::rename(&new, &path).unwrap();
    path
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

fn machine(patches: Patches, shown: &Shown) -> Machine {
    let platform = Box::new(Noting(PtracePlatform::new(None).expect("ptrace"), shown.clone()));
    machine_on(platform, patches)
}

fn machine_on(platform: Box<dyn Platform>, patches: Patches) -> Machine {
    let mut base = HostBase::new();
    let services =
        vec![service(1, &base, &program("code-view-one")), service(2, &base, &program("code-view-two"))];
    let scenario = Arc::new(Scenario {
        services,
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
    let world = setup::world(&scenario, &mut base, Decisions::seeded(1)).expect("a world");
    let mut machine = Machine::new(world, scenario, platform, Box::new(base));
    machine.set_patches(patches);
    machine
}

/// Runs until both programs sleep.
fn go(machine: &mut Machine) {
    let ended = machine.run(|world| world.console.pieces().len() >= 2).expect("the host works");
    assert_eq!(ended, Ended::Condition, "{:?}", machine.world.findings);
}

/// What the world knows of its programs' memory: private pages and mapped bytes of each space.
fn memory(world: &World) -> Vec<(u64, u64, u64)> {
    let of_node = world.nodes.values().flat_map(|node| node.mms.iter());
    of_node.map(|(_, mm)| (mm.space, mm.pages.len(), mm.total)).collect()
}

/// What the programs have written.
fn written(world: &World) -> impl Iterator<Item = (NodeId, &ConsoleChunk)> {
    let chunk = |(node, piece)| match piece {
        Piece::Chunk(chunk) => Some((node, chunk)),
        Piece::LeftOut { .. } => None,
    };
    world.console.pieces().into_iter().filter_map(chunk)
}

const ALL: Patches = Patches { cpuid: true, rdtsc: true, xgetbv: true };

#[test]
fn the_world_is_the_same_with_and_without_patches() {
    let run = |patches| {
        let mut machine = machine(patches, &Shown::default());
        go(&mut machine);
        machine.world
    };
    let (with, without) = (run(ALL), run(Patches::NONE));
    assert_eq!(with.digest, without.digest);
    assert_eq!((with.now, with.steps), (without.now, without.steps));
    assert_eq!(memory(&with), memory(&without));
    for world in [with, without] {
        for (node, chunk) in written(&world) {
            assert_eq!(&chunk.bytes[..CODE.len()], CODE, "what {node:?} wrote of its own text");
        }
    }
}

#[test]
fn copies_of_a_binary_are_shown_the_same_frame() {
    let shown = Shown::default();
    let mut first = machine(ALL, &shown);
    go(&mut first);
    let frames: Vec<u64> = shown.lock().unwrap().values().copied().collect();
    assert_eq!(frames.len(), 2, "two spaces");
    assert_eq!(frames[0], frames[1], "of two nodes");
    // Of another world, on another machine of the process.
    let other = Shown::default();
    go(&mut machine(ALL, &other));
    assert!(other.lock().unwrap().values().all(|frame| *frame == frames[0]));
    // A world that is restored keeps what is shown.
    let before = first.snapshot().expect("the host works");
    shown.lock().unwrap().clear();
    first.restore(before);
    let steps = first.world.steps;
    let _ended = first.run(|world| world.steps > steps + 2).expect("the host works");
    assert!(shown.lock().unwrap().is_empty(), "mapped again: {shown:?}");
}

/// Where [`CODE`] lies in the file.
const IN_FILE: u64 = 4096;
/// Offsets of instructions in [`CODE`]: the first one, cpuid, the write, the call of the loop; and the place behind the
/// end, to which nothing jumps.
const POINTS: [u64; 5] = [0, 4, 33, 40, 44];

/// A machine whose programs have these points, with what observes them.
fn observed(patches: Patches) -> (Machine, Arc<FilePoints>, Arc<Mark>) {
    let points = Arc::new(FilePoints::new(POINTS.map(|at| IN_FILE + at).to_vec()));
    let observed = Arc::<Observed>::default();
    let mark = Arc::<Mark>::default();
    let ptrace = PtracePlatform::new(None).expect("ptrace");
    let mut machine = machine_on(Box::new(ptrace), patches);
    let known = points.clone();
    let points_of = move |file: &bloodhound_sim::CodeFile<'_>| {
        assert_eq!(file.path, b"/mnt/program");
        Some(known.clone())
    };
    machine.observe(Observer { points: Arc::new(points_of), observed, mark: mark.clone() });
    (machine, points, mark)
}

#[test]
fn points_are_reached_and_leave_no_trace() {
    for patches in [ALL, Patches::NONE] {
        let mut plain = machine(patches, &Shown::default());
        go(&mut plain);
        let (mut machine, points, mark) = observed(patches);
        mark.seed(7);
        mark.fault_begins(2);
        go(&mut machine);
        let (with, without) = (&machine.world, &plain.world);
        assert_eq!((with.digest, with.now, with.steps), (without.digest, without.now, without.steps));
        assert_eq!(memory(with), memory(without));
        for (_, chunk) in written(with) {
            assert_eq!(&chunk.bytes[..CODE.len()], CODE, "the program reads its own text as it was");
        }
        // Where cpuid is made to trap anyway, nothing can be said of it.
        assert_eq!(points.is_hidden(1), patches == ALL);
        let reached: Vec<bool> = (0..POINTS.len()).map(|number| points.reached(number).is_some()).collect();
        assert_eq!(reached, [true, patches == Patches::NONE, true, true, false]);
        assert_eq!(points.reached(0), Some(Reached { seed: Some(7), fault: Some(2) }));
    }
}

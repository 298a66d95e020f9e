//! From a scenario to a world before its first step: machines with their containers, file systems, addresses and names.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use bloodhound_abi::{Errno, SimTime};
use bloodhound_decisions::{Decisions, NodeRandom, Site, Trait};
use bloodhound_faults::Kind;
use bloodhound_kernel::container::{ContainerConfig, ContainerId, Network};
use bloodhound_kernel::node::{Costs, MachineId, Node, NodeConfig};
use bloodhound_kernel::procfs;
use bloodhound_kernel::stdin::Stdin;
use bloodhound_net::{Fabric, NodeId, Stack};
use bloodhound_vfs::{BaseFs, Fail, MountNs, MountSpec, RootSpec, Vfs};

use crate::Digest;
use crate::checks::CheckState;
use crate::clients::Clients;
use crate::computing::Computing;
use crate::faults::Faults;
use crate::queue::{Due, Queue};
use crate::scenario::{DISK, Init, Input, ResolverSpec, Scenario, ServiceSpec, Sharing, Spread};
use crate::scheduler::{Policy, Schedule, Scheduler};
use crate::services::{Service, Version};
use crate::switches::Switches;
use crate::world::{Phase, Room, World};

/// Keys of shared /dev/shm, beside those of the plan for volumes.
const SHARED_MEMORY: u32 = 1 << 30;

/// Where POSIX shared memory lies (shm_overview(7)).
const SHM: &[u8] = b"/dev/shm";

/// One in parts per billion.
const WHOLE: u64 = 1_000_000_000;

/// What could not be set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupError {
    /// The service.
    pub service: String,
    /// What was done, on which path.
    pub what: String,
    /// Why it failed.
    pub errno: Errno,
}

impl std::fmt::Display for SetupError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "service {}: {}: {}", self.service, self.what, self.errno)
    }
}

impl std::error::Error for SetupError {}

fn errno(fail: Fail) -> Errno {
    match fail {
        Fail::Errno(e) => e,
        Fail::Synthetic(_) => Errno::EROFS,
    }
}

/// Builds the world. `decisions` are those of the boot.
///
/// # Errors
/// A mount or file that cannot be made.
pub fn world(
    scenario: &Scenario,
    base: &mut dyn BaseFs,
    mut decisions: Decisions,
) -> Result<World, SetupError> {
    let mut fabric = Fabric::new(scenario.link.clone());
    let mut nodes = BTreeMap::new();
    let mut rooms = BTreeMap::new();
    let mut services = BTreeMap::new();
    for specs in machines(scenario) {
        let mut traits = None;
        for spec in &specs {
            let first = traits.is_none();
            let drawn = *traits.get_or_insert_with(|| Traits::draw(scenario, spec, &mut decisions));
            if first {
                let node = node(scenario, &specs, drawn, base, &mut decisions)?;
                nodes.insert(spec.machine(), Arc::new(node));
            }
            if spec.sharing.net.is_none() {
                fabric.add_member(spec.node, &spec.addresses);
            }
            let start_offset = decisions.between(trait_of(spec, Trait::Start), 0, scenario.spread.start_ns);
            services.insert(spec.node, Service { start_offset, ..Service::default() });
        }
    }
    // What stands outside reaches every service, as the host of the containers does: scripts, clients, the prober.
    for spec in &scenario.helpers {
        // Scripts look on from outside: their clock is the true one.
        let traits = Traits { epoch_ns: scenario.epoch_ns, costs: scenario.costs };
        let node = node(scenario, &[spec], traits, base, &mut decisions)?;
        let addresses: Vec<_> = spec.addresses.iter().map(|a| a.0).collect();
        fabric.add_node(spec.node, &addresses);
        nodes.insert(spec.machine(), Arc::new(node));
    }
    for (machine, node) in &nodes {
        for (at, container) in node.containers.iter().enumerate() {
            let (machine, at) = (*machine, ContainerId(at as u32));
            rooms.insert(container.id, Room { machine, container: at, net: container.net });
        }
    }
    for (id, ip) in scenario.clients.iter().chain(&scenario.prober) {
        fabric.add_node(*id, &[*ip]);
    }
    let clients = Clients::new(scenario, decisions.word(Site::ClientRandom { nth: 0 }));
    let mut queue = Queue::default();
    queue.push(SimTime(scenario.boot_timeout), Due::BootTimeout);
    for spec in scenario.services.iter().filter(|s| s.depends_on.is_empty()) {
        queue.push(SimTime(services[&spec.node].start_offset), Due::Start(spec.node));
    }
    let policy = Policy::draw(&mut decisions, &Schedule::default());
    let log = decisions.log();
    let of_log = |what| SetupError { service: "of the run's log".into(), what, errno: Errno::EINVAL };
    let computing = Computing::of(&log.counted).map_err(of_log)?;
    // They begin with the run; that they can be read is known from here on.
    Switches::of(log.switches.as_deref().unwrap_or_default()).map_err(of_log)?;
    Ok(World {
        now: SimTime::ZERO,
        ready_at: None,
        phase: Phase::Boot,
        nodes,
        rooms: Arc::new(rooms),
        fabric,
        queue,
        services,
        faults: Faults::default(),
        paused: BTreeMap::new(),
        scheduler: Scheduler::new(policy),
        computing,
        switches: Switches::default(),
        decisions,
        digest: Digest::default(),
        marks: Arc::default(),
        steps: 0,
        trail: 0,
        packets: 0,
        log: Vec::new(),
        findings: Vec::new(),
        told: BTreeMap::new(),
        console: Arc::default(),
        kept: Arc::default(),
        outside: Arc::default(),
        clients,
        checks: vec![CheckState::default(); scenario.checks.len()],
        healed_at: None,
        final_checks: false,
    })
}

/// Linux's constants with a default route, as containers have one. Nothing is behind it: the first router says so
/// ([`crate::outside`]).
pub(crate) fn network_config() -> bloodhound_net::Config {
    bloodhound_net::Config { default_route: true, ..Default::default() }
}

/// The network stack of a service; a restarted container gets a fresh one.
pub fn stack(spec: &ServiceSpec, life: u32, decisions: &mut Decisions) -> Stack {
    let seed = decisions.word(random_of(spec, life, NodeRandom::Stack, 0));
    let mut net = Stack::new(network_config(), seed).in_life(life);
    for (ip, prefix) in &spec.addresses {
        net.add_address(*ip, *prefix);
    }
    let lower = |(name, ips): (&String, &Vec<IpAddr>)| (name.to_ascii_lowercase(), ips.clone());
    net.publish(Arc::new(spec.published.clone()));
    net.serve_names(Arc::new(spec.hosts.iter().map(lower).collect()));
    net
}

/// What tells a machine from others of its kind.
#[derive(Clone, Copy, Debug)]
struct Traits {
    /// Its CLOCK_REALTIME at virtual time 0.
    epoch_ns: u64,
    /// Its prices.
    costs: Costs,
}

impl Traits {
    /// Chooses within the scenario's [`Spread`].
    fn draw(scenario: &Scenario, spec: &ServiceSpec, decisions: &mut Decisions) -> Traits {
        let Spread { clock_ns, cost_ppb, .. } = scenario.spread;
        let clock = either_way(clock_ns, trait_of(spec, Trait::Clock), decisions);
        let epoch_ns = scenario.epoch_ns.saturating_add_signed(clock);
        let factor = WHOLE.saturating_add_signed(either_way(
            u64::from(cost_ppb),
            trait_of(spec, Trait::Cost),
            decisions,
        ));
        Traits { epoch_ns, costs: scenario.costs.scaled(factor, WHOLE) }
    }
}

/// A number from `-most` to `most`; 0 is the plain choice.
fn either_way(most: u64, site: Site, decisions: &mut Decisions) -> i64 {
    let most = most.min(i64::MAX as u64 / 2);
    let value = decisions.between(site, 0, 2 * most) as i64;
    // 0, 1, -1, 2, -2, ...
    if value % 2 == 1 { value / 2 + 1 } else { -(value / 2) }
}

fn trait_of(spec: &ServiceSpec, part: Trait) -> Site {
    Site::Node { node: spec.node.0, part }
}

fn random_of(spec: &ServiceSpec, life: u32, part: NodeRandom, nth: u32) -> Site {
    Site::NodeRandom { node: spec.node.0, life, part, nth }
}

/// The services of each machine in the order in which its containers are made: those before the others that use what is theirs.
fn machines(scenario: &Scenario) -> Vec<Vec<&ServiceSpec>> {
    let mut order: Vec<MachineId> = Vec::new();
    for spec in &scenario.services {
        if !order.contains(&spec.machine()) {
            order.push(spec.machine());
        }
    }
    let of = |machine| {
        let mut left: Vec<&ServiceSpec> =
            scenario.services.iter().filter(|spec| spec.machine() == machine).collect();
        let mut made: Vec<&ServiceSpec> = Vec::new();
        while !left.is_empty() {
            let there =
                |other: Option<NodeId>| other.is_none_or(|id| made.iter().any(|spec| spec.node == id));
            let sharing = |spec: &&ServiceSpec| {
                let Sharing { net, pids, ipc, .. } = spec.sharing;
                there(net) && there(pids) && there(ipc)
            };
            // Services that wait for each other are an error of the configuration, told there.
            let next = left.iter().position(sharing).unwrap_or(0);
            made.push(left.remove(next));
        }
        made
    };
    order.into_iter().map(of).collect()
}

/// A machine with the containers of these services, in this order.
fn node(
    scenario: &Scenario,
    specs: &[&ServiceSpec],
    traits: Traits,
    base: &mut dyn BaseFs,
    decisions: &mut Decisions,
) -> Result<Node, SetupError> {
    let first = specs[0];
    let vfs = file_systems(scenario, specs, traits.epoch_ns, base, decisions)?;
    let config = NodeConfig {
        id: first.machine(),
        epoch_ns: traits.epoch_ns,
        memory: scenario.memory,
        costs: traits.costs,
        vdso: scenario.vdso,
    };
    let nets: Vec<Option<Stack>> =
        specs.iter().map(|spec| spec.sharing.net.is_none().then(|| stack(spec, 0, decisions))).collect();
    let boot_id = [0, 1].map(|nth| decisions.word(random_of(first, 0, NodeRandom::BootId, nth)));
    let mut node = Node::new(config, vfs, boot_id);
    for (at, (spec, net)) in specs.iter().zip(nets).enumerate() {
        add_container(&mut node, specs, spec, MountNs(at as u32), net)?;
    }
    Ok(node)
}

/// The file systems of a service's machine as they are when it is made, for one that takes its place. Its containers are of these versions.
pub(crate) fn file_systems_of(
    scenario: &Scenario,
    (machine, versions): (MachineId, &BTreeMap<NodeId, Version>),
    epoch_ns: u64,
    base: &mut dyn BaseFs,
    decisions: &mut Decisions,
) -> Result<Vfs, SetupError> {
    let all = machines(scenario);
    let specs = all.into_iter().find(|specs| specs.iter().any(|spec| spec.machine() == machine));
    let version = |spec: &ServiceSpec| versions.get(&spec.node).copied().unwrap_or_default();
    let now = |spec: &ServiceSpec| scenario.definition(spec.node, version(spec));
    let specs: Vec<&ServiceSpec> = specs.iter().flatten().filter_map(|spec| now(spec)).collect();
    file_systems(scenario, &specs, epoch_ns, base, decisions)
}

/// Makes the container of a service anew of another definition of it.
pub(crate) fn remake(
    (node, container): (&mut Node, ContainerId),
    scenario: &Scenario,
    (spec, net): (&ServiceSpec, Stack),
    base: &mut dyn BaseFs,
) -> Result<(), Errno> {
    let root = RootSpec { tree: spec.root, quota: Some(disk(spec)), ..RootSpec::default() };
    let mut fill =
        |vfs: &mut Vfs, base: &mut dyn BaseFs| fill(vfs, spec, base, scenario).map_err(|error| error.errno);
    let settings = spec.runtime.settings.clone();
    node.remake_container(container, (net, settings), base, (root, &mut fill))?;
    node.container_mut(container).stdin = stdin(spec);
    Ok(())
}

/// The file systems of a machine with the containers of these services, in this order; there must be one.
fn file_systems(
    scenario: &Scenario,
    specs: &[&ServiceSpec],
    epoch_ns: u64,
    base: &mut dyn BaseFs,
    decisions: &mut Decisions,
) -> Result<Vfs, SetupError> {
    let first = specs[0];
    let config = bloodhound_vfs::Config {
        root: first.root,
        epoch_ns,
        order: bloodhound_vfs::Order::Hashed(decisions.word(random_of(first, 0, NodeRandom::Order, 0))),
        root_quota: Some(disk(first)),
        disk_quota: Some(DISK),
        // "The default is half of your physical RAM without swap" (tmpfs(5)).
        tmpfs_quota: Some(scenario.memory / 2),
        disk: scenario.disk.filter(|_| specs.iter().any(|spec| spec.faulty)),
        ..Default::default()
    };
    let mut vfs = Vfs::new(config, base).map_err(|e| fault(first, "its root file system", e))?;
    for (at, spec) in specs.iter().enumerate() {
        if at > 0 {
            let root = RootSpec { tree: spec.root, quota: Some(disk(spec)), ..RootSpec::default() };
            vfs.add_namespace(root, base).map_err(|e| fault(spec, "its root file system", e))?;
        }
        vfs.enter_namespace(MountNs(at as u32));
        fill(&mut vfs, spec, base, scenario)?;
    }
    // The engine has had time for its files, and makes them anew at each start.
    vfs.sync_all();
    Ok(vfs)
}

/// Size of a service's root file system.
fn disk(spec: &ServiceSpec) -> u64 {
    spec.runtime.disk.unwrap_or(DISK)
}

fn fault(spec: &ServiceSpec, what: impl Into<String>, errno: Errno) -> SetupError {
    SetupError { service: spec.name.clone(), what: what.into(), errno }
}

/// Mounts what a container has, and writes the files of its runtime.
fn fill(
    vfs: &mut Vfs,
    spec: &ServiceSpec,
    base: &mut dyn BaseFs,
    scenario: &Scenario,
) -> Result<(), SetupError> {
    // Those who use one IPC namespace have one /dev/shm, where POSIX shared memory lies.
    let owner = spec.sharing.ipc.unwrap_or(spec.node);
    // Its own is that of the definition it is made of now.
    let other = scenario.services.iter().find(|other| other.node == owner && owner != spec.node);
    let size = other.unwrap_or(spec).runtime.shm_size;
    let mut shm = MountSpec::Tmpfs { mode: 0o1777, size, owner: (0, 0) };
    if scenario.services.iter().any(|other| other.sharing.ipc == Some(owner)) {
        let (key, of) = (SHARED_MEMORY | owner.0, Box::new(shm));
        shm = MountSpec::Shared { key, of, subpath: Vec::new(), nocopy: false };
    }
    // What is mounted there takes the place of what every container has.
    if let Some((_, own)) = spec.mounts.iter().find(|(path, _)| path == SHM) {
        shm = own.clone();
    }
    procfs::mount_standard_with(vfs, base, shm)
        .map_err(|f| fault(spec, "mounting /proc, /sys and /dev", errno(f)))?;
    if spec.runtime.init != Init::None {
        vfs.put_file(base, bloodhound_kernel::init::PATH, 0o755, &bloodhound_kernel::init::image())
            .map_err(|f| fault(spec, "writing its init", errno(f)))?;
    }
    for (path, mount) in spec.mounts.iter().filter(|(path, _)| path != SHM) {
        let id = vfs
            .mount(base, path, mount.clone())
            .map_err(|f| fault(spec, format!("mounting {}", String::from_utf8_lossy(path)), errno(f)))?;
        // By the mount and not by its path, which may lead over symbolic links (/var/run).
        let mut volumes = scenario.planning.volumes_in(spec.node);
        if let Some((volume, _)) = volumes.find(|(_, place)| place == path) {
            vfs.name_volume(id, volume);
        }
    }
    // "If a container uses another's network, it has that one's host name, /etc/hosts and resolv.conf" (as engines do it).
    let names = network_of(scenario, spec);
    for (path, text) in etc_files(names, asks_names(scenario)) {
        vfs.put_file(base, path.as_bytes(), 0o644, text.as_bytes())
            .map_err(|f| fault(spec, format!("writing {path}"), errno(f)))?;
    }
    engine_files(vfs, spec, base).map_err(|f| fault(spec, "writing the files of its engine", errno(f)))?;
    if spec.runtime.read_only {
        vfs.protect_root();
    }
    Ok(())
}

/// What an engine leaves in a container; and what glibc needs to look into /etc/hosts and ask the name server, where the root file
/// system has none of its own.
fn engine_files(vfs: &mut Vfs, spec: &ServiceSpec, base: &mut dyn BaseFs) -> Result<(), Fail> {
    const NAMES: &str = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n";
    if vfs.get_file(base, b"/etc/nsswitch.conf").is_err() {
        vfs.put_file(base, b"/etc/nsswitch.conf", 0o644, NAMES.as_bytes())?;
    }
    if spec.runtime.engine {
        // "WORKDIR: if it does not exist, it will be created" (Dockerfile reference), and so does the engine with `working_dir`.
        vfs.put_dir(base, &spec.program.cwd, 0o755)?;
        // Docker's mark, and what it makes of /etc/mtab (moby, daemon/initlayer).
        vfs.put_file(base, b"/.dockerenv", 0o755, b"")?;
        vfs.put_link(base, b"/etc/mtab", b"/proc/mounts")?;
    }
    Ok(())
}

/// The service whose network a service uses.
fn network_of<'a>(scenario: &'a Scenario, spec: &'a ServiceSpec) -> &'a ServiceSpec {
    let Some(of) = spec.sharing.net else { return spec };
    scenario.services.iter().find(|other| other.node == of).unwrap_or(spec)
}

fn add_container(
    node: &mut Node,
    specs: &[&ServiceSpec],
    spec: &ServiceSpec,
    mounts: MountNs,
    net: Option<Stack>,
) -> Result<(), SetupError> {
    let made = node.containers.len();
    let container = |of: NodeId| {
        let at = specs.iter().position(|other| other.node == of).filter(|at| *at < made);
        at.map(|at| ContainerId(at as u32))
            .ok_or_else(|| fault(spec, "joining another service that is not on its machine", Errno::EINVAL))
    };
    let Sharing { net: net_of, pids, ipc, .. } = spec.sharing;
    let (net, hostname) = match (net, net_of) {
        (None, Some(of)) => {
            let of = container(of)?;
            (Network::Of(of), node.container(of).hostname.clone())
        }
        (net, _) => {
            let stack = net.ok_or_else(|| fault(spec, "its network", Errno::EINVAL))?;
            (Network::Own(Box::new(stack)), spec.hostname.clone())
        }
    };
    let config = ContainerConfig {
        id: spec.node,
        hostname,
        mounts,
        net,
        pids: pids.map(container).transpose()?,
        ipc: ipc.map(container).transpose()?,
        settings: spec.runtime.settings.clone(),
    };
    let id = node.add_container(config);
    node.container_mut(id).stdin = stdin(spec);
    Ok(())
}

fn stdin(spec: &ServiceSpec) -> Stdin {
    match spec.stdin {
        Input::Asked => Stdin::default(),
        Input::Empty => Stdin::null(),
        Input::Silent => Stdin::silent(),
    }
}

/// Whether programs have to ask the name server for other services: with faults of name servers they must meet them, as they do where an
/// engine has only a container's own name in /etc/hosts.
fn asks_names(scenario: &Scenario) -> bool {
    let on = [Kind::DnsFail, Kind::DnsDelay].iter().any(|kind| scenario.faults.is_on(*kind));
    on || scenario.planning.asks_names
}

/// What a container runtime writes into every container.
fn etc_files(spec: &ServiceSpec, asks_names: bool) -> Vec<(&'static str, String)> {
    let mut hosts = String::from("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n");
    let own = |ip: &IpAddr| spec.addresses.iter().any(|(of, _)| of == ip);
    let shown = |(_, ips): &(&String, &Vec<IpAddr>)| !asks_names || ips.iter().all(own);
    for (name, addresses) in spec.hosts.iter().filter(shown) {
        for ip in addresses {
            hosts.push_str(&format!("{ip}\t{name}\n"));
        }
    }
    if let Some((ip, _)) = spec.addresses.first()
        && !spec.hosts.contains_key(&spec.hostname)
    {
        hosts.push_str(&format!("{ip}\t{}\n", spec.hostname));
    }
    vec![
        ("/etc/hosts", hosts),
        ("/etc/hostname", format!("{}\n", spec.hostname)),
        ("/etc/resolv.conf", resolv_conf(&spec.resolver)),
    ]
}

/// resolv.conf(5). The server is the engine's own; `options ndots:0` is what an engine adds unless there are options.
fn resolv_conf(resolver: &ResolverSpec) -> String {
    let mut out = String::from("nameserver 127.0.0.11\n");
    if !resolver.search.is_empty() {
        out.push_str(&format!("search {}\n", resolver.search.join(" ")));
    }
    let options = if resolver.options.is_empty() { "ndots:0".to_owned() } else { resolver.options.join(" ") };
    out.push_str(&format!("options {options}\n"));
    out
}

/// All services' nodes, in order.
pub fn node_ids(scenario: &Scenario) -> Vec<NodeId> {
    scenario.services.iter().map(|s| s.node).collect()
}

//! From a scenario to a world before its first step: nodes with their file systems, addresses and names.

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_abi::{Errno, SimTime};
use bloodhound_decisions::{Decisions, NodeRandom, Site, Trait};
use bloodhound_kernel::node::{Costs, Node, NodeConfig};
use bloodhound_kernel::procfs;
use bloodhound_kernel::stdin::Stdin;
use bloodhound_net::{Fabric, NodeId, Stack};
use bloodhound_vfs::{BaseFs, Fail, Vfs};

use crate::Digest;
use crate::checks::CheckState;
use crate::clients::Clients;
use crate::faults::Faults;
use crate::queue::{Due, Queue};
use crate::scenario::{Scenario, ServiceSpec, Spread};
use crate::scheduler::{Policy, Scheduler};
use crate::services::Service;
use crate::world::{Phase, World};

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
    let mut services = BTreeMap::new();
    for spec in &scenario.services {
        let traits = Traits::draw(scenario, spec, &mut decisions);
        let node = node(scenario, spec, traits, base, &mut decisions)?;
        fabric.add_member(spec.node, &spec.addresses);
        nodes.insert(spec.node, Arc::new(node));
        let start_offset = decisions.between(trait_of(spec, Trait::Start), 0, scenario.spread.start_ns);
        services.insert(spec.node, Service { start_offset, ..Service::default() });
    }
    // What stands outside reaches every service, as the host of the containers does: scripts, clients, the prober.
    for spec in &scenario.helpers {
        // Scripts look on from outside: their clock is the true one.
        let traits = Traits { epoch_ns: scenario.epoch_ns, costs: scenario.costs };
        let node = node(scenario, spec, traits, base, &mut decisions)?;
        let addresses: Vec<_> = spec.addresses.iter().map(|a| a.0).collect();
        fabric.add_node(spec.node, &addresses);
        nodes.insert(spec.node, Arc::new(node));
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
    let policy = Policy::draw(&mut decisions);
    Ok(World {
        now: SimTime::ZERO,
        ready_at: None,
        phase: Phase::Boot,
        nodes,
        fabric,
        queue,
        services,
        faults: Faults::default(),
        paused: BTreeMap::new(),
        scheduler: Scheduler::new(policy),
        decisions,
        digest: Digest::default(),
        marks: Arc::default(),
        steps: 0,
        trail: 0,
        packets: 0,
        log: Vec::new(),
        findings: Vec::new(),
        console: Vec::new(),
        clients,
        checks: vec![CheckState::default(); scenario.checks.len()],
        healed_at: None,
        final_checks: false,
    })
}

/// Linux's constants with a default route, as containers have one: an unknown address is silence, not ENETUNREACH.
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

fn node(
    scenario: &Scenario,
    spec: &ServiceSpec,
    traits: Traits,
    base: &mut dyn BaseFs,
    decisions: &mut Decisions,
) -> Result<Node, SetupError> {
    let fault = |what: String, errno| SetupError { service: spec.name.clone(), what, errno };
    let config = bloodhound_vfs::Config {
        root: spec.root,
        epoch_ns: traits.epoch_ns,
        order: bloodhound_vfs::Order::Hashed(decisions.word(random_of(spec, 0, NodeRandom::Order, 0))),
        ..Default::default()
    };
    let mut vfs = Vfs::new(config, base).map_err(|e| fault("its root file system".into(), e))?;
    procfs::mount_standard(&mut vfs, base)
        .map_err(|f| fault("mounting /proc, /sys and /dev".into(), errno(f)))?;
    for (path, mount) in &spec.mounts {
        vfs.mount(base, path, mount.clone())
            .map_err(|f| fault(format!("mounting {}", String::from_utf8_lossy(path)), errno(f)))?;
    }
    for (path, text) in etc_files(spec) {
        vfs.put_file(base, path.as_bytes(), 0o644, text.as_bytes())
            .map_err(|f| fault(format!("writing {path}"), errno(f)))?;
    }
    let config = NodeConfig {
        id: spec.node,
        hostname: spec.hostname.clone(),
        epoch_ns: traits.epoch_ns,
        memory: scenario.memory,
        costs: traits.costs,
        vdso: scenario.vdso,
    };
    let net = stack(spec, 0, decisions);
    let boot_id = [0, 1].map(|nth| decisions.word(random_of(spec, 0, NodeRandom::BootId, nth)));
    let mut node = Node::new(config, vfs, net, boot_id);
    node.stdin = spec.stdin.clone().map(Stdin::whole).unwrap_or_default();
    Ok(node)
}

/// What a container runtime writes into every container.
fn etc_files(spec: &ServiceSpec) -> Vec<(&'static str, String)> {
    let mut hosts = String::from("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n");
    for (name, addresses) in &spec.hosts {
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
        ("/etc/resolv.conf", "nameserver 127.0.0.11\noptions ndots:0\n".to_string()),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n".to_string()),
    ]
}

/// All services' nodes, in order.
pub fn node_ids(scenario: &Scenario) -> Vec<NodeId> {
    scenario.services.iter().map(|s| s.node).collect()
}

//! What a run is made from: services, network, workload, properties, faults. Plain values that the runner fills from
//! bloodhound.yaml and the compose file; everything is resolved (addresses, trees of the base layer, paths).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

pub use bloodhound_faults::FaultSpec;
use bloodhound_kernel::container::Settings;
use bloodhound_kernel::exec::Program;
use bloodhound_kernel::node::{Costs, MachineId};
use bloodhound_net::{LinkConfig, NodeId};
use bloodhound_vfs::{DiskModel, MountSpec, TreeId};
use bloodhound_workloads::driver::DriverConfig;

use crate::checks::CheckSpec;
use crate::faults::Planning;
use crate::scheduler::Schedule;
use crate::services::Version;

/// When a dependency counts as met (compose specification, `depends_on`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Its command runs.
    Started,
    /// Its health check passes.
    Healthy,
    /// Its command ended with 0.
    Completed,
}

/// A service that must be there first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The other service.
    pub service: NodeId,
    /// What must be true of it.
    pub condition: Condition,
    /// The dependent is restarted when the other service is started again by hand.
    pub restart: bool,
}

/// The init of a container (`bloodhound_kernel::init`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Init {
    /// The command is process 1.
    #[default]
    None,
    /// That of engines, with which the service ends.
    Runs,
    /// One that never runs, as seen by a program of a machine. The service is the command.
    Sleeps,
}

/// What an engine is told of a container beside its program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// The signal that asks it to end.
    pub stop_signal: u32,
    /// How long it may take to end, ns.
    pub stop_grace: u64,
    /// Whether process 1 is an init, whose child the command is.
    pub init: Init,
    /// Size of /dev/shm in bytes, if it is limited.
    pub shm_size: Option<u64>,
    /// How much may be written to its root file system, in bytes; [`DISK`] if nothing is said.
    pub disk: Option<u64>,
    /// Its root file system is that of an image, in which an engine leaves files by which programs know a container.
    pub engine: bool,
    /// Its root file system cannot be written once the engine has put its own files there.
    pub read_only: bool,
    /// What is set for its processes.
    pub settings: Settings,
    /// Patterns of files that are kept when it is started anew, and asked for at the end of a run ([`crate::kept`]).
    pub keep: Vec<Vec<u8>>,
}

/// Size of each file system of a container, in bytes. What a simulated disk holds is kept in the host's memory.
pub const DISK: u64 = 16 << 30;

impl Default for Runtime {
    /// SIGTERM and 10 s, as Docker has them.
    fn default() -> Runtime {
        Runtime {
            stop_signal: bloodhound_abi::consts::SIGTERM as u32,
            stop_grace: 10_000_000_000,
            init: Init::None,
            shm_size: None,
            disk: None,
            engine: false,
            read_only: false,
            settings: Settings::default(),
            keep: Vec::new(),
        }
    }
}

/// What happens when a service's command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestartPolicy {
    /// Nothing.
    No,
    /// It starts again.
    Always,
    /// It starts again after a failure, at most so many times.
    OnFailure(Option<u32>),
}

/// A health check (compose specification, `healthcheck`). Times in ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthSpec {
    /// What is run in the service.
    pub program: Program,
    /// Between checks.
    pub interval: u64,
    /// Between checks during the start period, until one passes.
    pub start_interval: u64,
    /// A check that takes longer has failed.
    pub timeout: u64,
    /// So many failures in a row make the service unhealthy.
    pub retries: u32,
    /// Failures before this age of the service do not count, until a check passes.
    pub start_period: u64,
}

/// With whom a service shares what containers can share. All of it is on one machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sharing {
    /// The service whose machine it is on, which names the machine; `None`: it has one of its own.
    pub machine: Option<NodeId>,
    /// The service whose network stack, host name and names it has (`network_mode: service:x`).
    pub net: Option<NodeId>,
    /// The service whose processes it sees (`pid: service:x`).
    pub pids: Option<NodeId>,
    /// The service whose System V objects it uses (`ipc: service:x`).
    pub ipc: Option<NodeId>,
}

/// One container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceSpec {
    /// Its number: its place in the network, and its name in events and choices.
    pub node: NodeId,
    /// Compose service name, with `-N` for further replicas.
    pub name: String,
    /// Host name inside.
    pub hostname: String,
    /// Addresses with prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Names for its /etc/hosts: name -> addresses.
    pub hosts: BTreeMap<String, Vec<IpAddr>>,
    /// What it runs; the path may be a bare name that is looked up in PATH.
    pub program: Program,
    /// Tree of the base layer that is its root; `None` for an empty root.
    pub root: Option<TreeId>,
    /// Further mounts by path, outer ones first.
    pub mounts: Vec<(Vec<u8>, MountSpec)>,
    /// Services that must be there first.
    pub depends_on: Vec<Dependency>,
    /// How its health is checked.
    pub health: Option<HealthSpec>,
    /// What is run in it besides.
    pub hooks: Hooks,
    /// What happens at its end.
    pub restart: RestartPolicy,
    /// Standard input.
    pub stdin: Input,
    /// Faults may hit it.
    pub faulty: bool,
    /// With whom it shares its machine, and what of it.
    pub sharing: Sharing,
    /// What the engine is told of it.
    pub runtime: Runtime,
    /// What else its resolv.conf says.
    pub resolver: ResolverSpec,
    /// TCP ports of its loopback addresses behind which other containers are.
    pub published: BTreeMap<u16, SocketAddr>,
}

/// What a container's standard input is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Input {
    /// It is asked for when a program reads it ([`crate::Machine::run`] returns then).
    #[default]
    Asked,
    /// It ends at once.
    Empty,
    /// It never ends, and nothing comes.
    Silent,
}

/// Commands that are run in a container after its start and before its stop (compose specification, `post_start` and `pre_stop`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hooks {
    /// After it was started by hand, one after the other. "If any command fails, the container stops."
    pub post_start: Vec<HookSpec>,
    /// Before it is stopped. "If any command fails, the container stop is aborted."
    pub pre_stop: Vec<HookSpec>,
}

/// Such a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HookSpec {
    /// What is run.
    pub program: Program,
    /// It has all capabilities.
    pub privileged: bool,
}

/// Lines of a container's resolv.conf(5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResolverSpec {
    /// Domains in which names without a dot are looked up.
    pub search: Vec<String>,
    /// Options.
    pub options: Vec<String>,
}

impl ServiceSpec {
    /// The machine on which it runs.
    pub fn machine(&self) -> MachineId {
        MachineId(self.sharing.machine.unwrap_or(self.node).0)
    }
}

/// By how much machines of one kind differ from each other. Equal nodes that do the same at the same nanosecond draw equal random
/// numbers where they seed themselves from time and process id, and their timers fire together for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// A service starts up to so much later than it could, ns.
    pub start_ns: u64,
    /// Its machine's CLOCK_REALTIME is up to so much before or behind the true time, ns.
    pub clock_ns: u64,
    /// Its machine's prices are up to so much higher or lower, parts per billion; below one.
    pub cost_ppb: u32,
}

/// The whole input of a run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Containers in order.
    pub services: Vec<ServiceSpec>,
    /// Every link without faults.
    pub link: LinkConfig,
    /// Prices of calls.
    pub costs: Costs,
    /// How nodes differ.
    pub spread: Spread,
    /// CLOCK_REALTIME at virtual time 0, ns since 1970.
    pub epoch_ns: u64,
    /// Memory that nodes show, bytes.
    pub memory: u64,
    /// Faults begin at multiples of it, ns.
    pub time_step: u64,
    /// The stack must be ready by then, ns.
    pub boot_timeout: u64,
    /// The run ends at the latest so long after it was ready, ns.
    pub max_time: u64,
    /// Faults begin so long after it was ready, ns.
    pub fault_start: u64,
    /// And are injected for so long, ns.
    pub fault_time: u64,
    /// Everything is healed when the faults end.
    pub heal: bool,
    /// Faults.
    pub faults: FaultSpec,
    /// What disks promise, if machines may lose their power: else nothing is noted of what is not synced yet.
    pub disk: Option<DiskModel>,
    /// What else their plan is made from.
    pub planning: Planning,
    /// A service without a health check counts as ready after running so long, ns.
    pub settle: u64,
    /// Health checks of a service end when it is healthy.
    pub health_until_ready: bool,
    /// Offer the vDSO to programs.
    pub vdso: bool,
    /// What the clients do.
    pub workload: Option<DriverConfig>,
    /// The workload's nodes.
    pub clients: Vec<(NodeId, IpAddr)>,
    /// Where HTTP checks ask from.
    pub prober: Option<(NodeId, IpAddr)>,
    /// Nodes for scripts: set up like services, but nothing runs there by itself.
    pub helpers: Vec<ServiceSpec>,
    /// Checks inside the simulation.
    pub checks: Vec<CheckSpec>,
    /// How tasks interleave once the services are ready.
    pub schedule: Schedule,
    /// Processor time of the host that a task may compute without a trap until it is looked at, ns ([`crate::computing`]).
    pub compute_limit: u64,
}

impl Scenario {
    /// What a container is made of: a service in one of its versions, or a helper.
    pub fn definition(&self, id: NodeId, version: Version) -> Option<&ServiceSpec> {
        let upgraded = || self.planning.upgrades.get(&id).map(|upgraded| &upgraded.spec);
        let of_version = if version == Version::Next { upgraded() } else { None };
        of_version.or_else(|| self.services.iter().chain(&self.helpers).find(|spec| spec.node == id))
    }
}

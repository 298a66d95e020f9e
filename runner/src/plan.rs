//! From bloodhound.yaml and the compose file to a [`Scenario`]: addresses, file systems, names, programs, checks.
//!
//! Key types: [`Plan`] (the scenario with what reports need), [`Judge`] (how a property is decided), [`Refusal`] (why there is none).
//!
//! Modules: `refusal` (what is told of all of it at once); `service` (a container), with `collect` (coverage of its interpreters), `image` and `image_tree` (its root file system), `mounts` (its further files) and
//! `process` (what runs in it); `machines` (which services are on one machine); `faults` (schedule and limits of their plan), `upgrades` (what services become by them), `volumes` (those that it names); `network` (addresses and names); `secrets` (files with secrets and configurations); `placement` (what a real engine is told); `properties` (checks and the scripts that they run), `workload` (the requests of clients).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use bloodhound_config::Project;
use bloodhound_config::compose::Service;
use bloodhound_explore::Strategy;
use bloodhound_net::{LinkConfig, NodeId};
use bloodhound_sim::checks::CheckSpec;
use bloodhound_sim::scenario::*;
use bloodhound_vfs::host::HostBase;

mod build;
mod collect;
mod faults;
mod image;
mod image_tree;
mod machines;
mod mounts;
mod network;
mod placement;
mod process;
mod properties;
mod refusal;
mod runtime;
mod secrets;
mod service;
mod upgrades;
mod volumes;
mod workload;

pub use collect::DIRECTORY as COVERAGE_DIRECTORY;
use image::Images;
pub use image::{Finder, Pin};
pub use machines::Machine;
use machines::Machines;
pub use placement::{Helper, InNetwork, Mounted, Placement};
use process::DEFAULT_PATH;
pub use properties::{Judge, Property};
use refusal::Pieces;
pub use refusal::Refusal;
use upgrades::Next;

/// First node ids of clients, the prober and script nodes; services count from 1.
const CLIENTS: u32 = 1000;
const PROBER: u32 = 2000;
const HELPERS: u32 = 3000;
/// A service without a health check is ready after this time, ns.
const SETTLE: u64 = 1_000_000_000;

/// A run, planned.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is simulated.
    pub scenario: Scenario,
    /// What must hold.
    pub properties: Vec<Property>,
    /// Path of bloodhound.yaml as given.
    pub config: PathBuf,
    /// Directory for output.
    pub out: PathBuf,
    /// Seeds that `test` runs.
    pub seeds: u64,
    /// How runs are chosen.
    pub strategy: Strategy,
    /// How many boots of the stack they start from.
    pub boots: u64,
    /// Seeds at the same time.
    pub workers: Option<usize>,
    /// Services that share a machine.
    pub machines: Vec<Machine>,
    /// The containers as a real engine makes them, and those that scripts of their own need.
    pub placements: Vec<Placement>,
    pub helpers: Vec<Helper>,
    /// Where directories of this machine are in the instances of services of which coverage is collected: there, and here.
    pub bound: BTreeMap<NodeId, Vec<(String, String)>>,
}

struct Planner<'a> {
    project: &'a Project,
    base: &'a HostBase,
    images: Images,
    /// Addresses of each instance by network.
    addresses: BTreeMap<String, Vec<network::Address>>,
    /// The gateway of each network.
    gateways: BTreeMap<String, Ipv4Addr>,
    ids: BTreeMap<String, NodeId>,
    checks: Vec<CheckSpec>,
    helpers: Vec<ServiceSpec>,
    /// Where the scripts of the helpers are.
    helper_dirs: Vec<Helper>,
    /// Mounts that scripts need in services.
    script_mounts: BTreeMap<NodeId, Vec<(PathBuf, PathBuf)>>,
    /// Which services are on one machine.
    machines: Machines,
    /// Of what services are made by an upgrade, by service.
    next: BTreeMap<String, Next>,
}

impl Plan {
    /// Plans a run.
    ///
    /// # Errors
    /// What the host lacks or the simulation cannot do yet: all of it.
    pub fn new(project: &Project, base: &HostBase, finder: &Finder<'_>) -> Result<Plan, Vec<Refusal>> {
        let (mut refused, next) = (Vec::new(), Next::all(project));
        let mut planner = Planner {
            project,
            base,
            images: Images::find((&project.compose, &next), base, finder, &mut refused),
            addresses: BTreeMap::new(),
            gateways: BTreeMap::new(),
            ids: BTreeMap::new(),
            checks: Vec::new(),
            helpers: Vec::new(),
            helper_dirs: Vec::new(),
            script_mounts: BTreeMap::new(),
            machines: Machines::default(),
            next,
        };
        if let Err(refusal) = planner.assign_addresses() {
            // Without addresses nothing that follows can be told from its consequences.
            refused.push(refusal);
            return Err(refused);
        }
        planner.group();
        refused.extend(planner.machines.check().err().map(Refusal::from));
        let mut properties = planner.properties(&mut refused);
        let machines = planner.machines.several.clone();
        let mut scenario = planner.scenario(&mut refused);
        if !refused.is_empty() {
            return Err(Refusal::in_order(refused));
        }
        planner.healthy(&mut properties, &mut scenario);
        let config = &project.config;
        Ok(Plan {
            scenario,
            properties,
            config: config.source.path.clone(),
            out: config.output.dir.clone(),
            seeds: config.simulation.seeds,
            // The words of the configuration are those of the strategies, which a test has.
            strategy: config.exploration.strategy.parse().unwrap_or(Strategy::Swarm),
            boots: config.simulation.boots,
            workers: config.exploration.parallel_workers.map(|n| n as usize),
            machines,
            placements: planner.placements(),
            bound: planner.bound_directories(),
            helpers: planner.helper_dirs,
        })
    }
}

impl Planner<'_> {
    /// Instances of a service in order.
    fn instances(&self) -> Vec<(&Service, String)> {
        let compose = &self.project.compose;
        compose
            .start_order
            .iter()
            .flat_map(|i| compose.services[*i].instances().into_iter().map(|n| (&compose.services[*i], n)))
            .collect()
    }

    fn scenario(&mut self, refused: &mut Vec<Refusal>) -> Scenario {
        let config = &self.project.config;
        let services = self.services(refused);
        let planning = self.planning(&services, refused);
        let simulation = &config.simulation;
        let link = LinkConfig {
            latency: simulation.latency_ns.max(1000),
            jitter: simulation.latency_jitter_ns,
            ..LinkConfig::default()
        };
        let workload = config.workload.as_ref().and_then(|w| self.workload(w, refused));
        let clients = workload.as_ref().map_or(0, |w| w.clients());
        let ip =
            |group: u8, n: u32| IpAddr::V4(Ipv4Addr::new(10, group, (n / 250) as u8, (n % 250) as u8 + 1));
        let fault_time = if config.faults == Default::default() { 0 } else { config.fault_phase_ns() };
        Scenario {
            services,
            link,
            costs: Default::default(),
            spread: Spread {
                start_ns: simulation.start_spread_ns,
                clock_ns: simulation.clock_spread_ns,
                cost_ppb: simulation.cost_spread.get(),
            },
            epoch_ns: simulation.start_date_ns,
            memory: crate::MEMORY,
            time_step: simulation.time_step_ns,
            boot_timeout: simulation.start_timeout_ns,
            max_time: simulation.max_time_ns,
            fault_start: config.faults.start_after_ns,
            fault_time,
            heal: config.faults.heal,
            faults: config.faults.kinds.clone(),
            disk: faults::disk(&config.faults, &planning),
            planning,
            settle: SETTLE,
            health_until_ready: simulation.health_until_ready,
            vdso: true,
            workload,
            clients: (0..clients).map(|n| (NodeId(CLIENTS + n), ip(254, n))).collect(),
            prober: Some((NodeId(PROBER), ip(253, 0))),
            helpers: std::mem::take(&mut self.helpers),
            checks: std::mem::take(&mut self.checks),
            schedule: crate::interleave::schedule(&config.exploration.schedule),
            compute_limit: simulation.compute_limit_ns,
        }
    }
}

//! From bloodhound.yaml and the compose file to a [`Scenario`]: addresses, file systems, names, programs, checks.
//!
//! Key types: [`Plan`] (the scenario with what reports need), [`Judge`] (how a property is decided).
//!
//! Modules: `service` (a container), with `image` and `image_tree` (its root file system), `mounts` (its further files) and
//! `process` (what runs in it); `machines` (which services are on one machine); `properties` (checks and the scripts that they run), `workload` (the requests of clients).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use bloodhound_config::Project;
use bloodhound_config::compose::{Network, Service, overlap};
use bloodhound_net::{LinkConfig, NodeId};
use bloodhound_sim::checks::CheckSpec;
use bloodhound_sim::scenario::*;
use bloodhound_vfs::host::HostBase;

mod build;
mod image;
mod image_tree;
mod machines;
mod mounts;
mod process;
mod properties;
mod runtime;
mod service;
mod workload;

use image::Images;
pub use image::{Finder, Pin};
pub use machines::Machine;
use machines::Machines;
use process::DEFAULT_PATH;
pub use properties::{Judge, Property};

/// First node ids of clients, the prober and script nodes; services count from 1.
const CLIENTS: u32 = 1000;
const PROBER: u32 = 2000;
const HELPERS: u32 = 3000;
/// Networks without a subnet of their own get 10.89.0.0/16 and so on; 10.252.0.0/16 and above are for nodes outside.
const FIRST_NETWORK: u8 = 89;
const OWN_NETWORKS: u8 = 252;
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
    /// How many boots of the stack they start from.
    pub boots: u64,
    /// Seeds at the same time.
    pub workers: Option<usize>,
    /// Services that share a machine.
    pub machines: Vec<Machine>,
}

struct Planner<'a> {
    project: &'a Project,
    base: &'a HostBase,
    images: Images,
    /// Addresses of each instance by network.
    addresses: BTreeMap<String, Vec<(String, Ipv4Addr, u8)>>,
    ids: BTreeMap<String, NodeId>,
    checks: Vec<CheckSpec>,
    helpers: Vec<ServiceSpec>,
    /// Mounts that scripts need in services.
    script_mounts: BTreeMap<NodeId, Vec<(PathBuf, PathBuf)>>,
    /// Which services are on one machine.
    machines: Machines,
}

/// Why a run cannot be planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// For the user.
    pub text: String,
    /// It is this machine that lacks a file; on another one the same files may do.
    pub missing: bool,
}

impl From<String> for Refusal {
    fn from(text: String) -> Refusal {
        Refusal { text, missing: false }
    }
}

impl From<&str> for Refusal {
    fn from(text: &str) -> Refusal {
        text.to_owned().into()
    }
}

impl Refusal {
    /// The host has no `what`.
    fn host(what: impl std::fmt::Display, error: &std::io::Error) -> Refusal {
        Refusal { text: format!("{what}: {error}"), missing: true }
    }
}

impl Plan {
    /// Plans a run.
    ///
    /// # Errors
    /// What the host lacks or the simulation cannot do yet.
    pub fn new(project: &Project, base: &HostBase, finder: &Finder<'_>) -> Result<Plan, Refusal> {
        let mut planner = Planner {
            project,
            base,
            images: Images::find(&project.compose.services, base, finder)?,
            addresses: BTreeMap::new(),
            ids: BTreeMap::new(),
            checks: Vec::new(),
            helpers: Vec::new(),
            script_mounts: BTreeMap::new(),
            machines: Machines::default(),
        };
        planner.assign_addresses()?;
        planner.group();
        let mut properties = planner.properties()?;
        let machines = planner.machines.several.clone();
        let mut scenario = planner.scenario()?;
        planner.healthy(&mut properties, &mut scenario);
        let config = &project.config;
        Ok(Plan {
            scenario,
            properties,
            config: config.source.path.clone(),
            out: config.output.dir.clone(),
            seeds: config.simulation.seeds,
            boots: config.simulation.boots,
            workers: config.exploration.parallel_workers.map(|n| n as usize),
            machines,
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

    /// The subnet of each network: the declared one, else the next of 10.89.0.0/16 and those behind it that overlaps none.
    fn subnets(&self) -> Result<Vec<(Ipv4Addr, u8)>, String> {
        let networks = &self.project.compose.networks;
        let mut free = (0..OWN_NETWORKS - FIRST_NETWORK)
            .map(|n| (Ipv4Addr::new(10, FIRST_NETWORK + n, 0, 0), 16))
            .filter(|own| networks.iter().filter_map(|n| n.subnet).all(|given| !overlap(*own, given)));
        let subnet = |n: &Network| n.subnet.or_else(|| free.next()).ok_or("too many networks".to_string());
        networks.iter().map(subnet).collect()
    }

    fn assign_addresses(&mut self) -> Result<(), Refusal> {
        let names: Vec<(Service, String)> =
            self.instances().into_iter().map(|(s, n)| (s.clone(), n)).collect();
        for (number, (_, name)) in names.iter().enumerate() {
            self.ids.insert(name.clone(), NodeId(number as u32 + 1));
        }
        for (network, (net, prefix)) in self.project.compose.networks.iter().zip(self.subnets()?) {
            let first = u32::from(net);
            let size = 1u32.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            let mut taken: Vec<Ipv4Addr> = vec![Ipv4Addr::from(first + 1)];
            taken.extend(network.gateway);
            taken.extend(names.iter().flat_map(|(s, _)| {
                s.networks.iter().filter(|a| a.network == network.name).filter_map(|a| a.ipv4)
            }));
            let mut next = 2;
            for (service, name) in &names {
                let Some(at) = service.networks.iter().find(|a| a.network == network.name) else { continue };
                let ip = match at.ipv4 {
                    Some(ip) => ip,
                    None => {
                        while taken.contains(&Ipv4Addr::from(first + next)) {
                            next += 1;
                        }
                        next += 1;
                        Ipv4Addr::from(first + next - 1)
                    }
                };
                if next >= size.saturating_sub(1) {
                    let text = format!("network {}: no address is left in {net}/{prefix}", network.name);
                    return Err(text.into());
                }
                self.addresses.entry(name.clone()).or_default().push((network.name.clone(), ip, prefix));
            }
        }
        Ok(())
    }

    /// Names that a member of these networks (all, if empty) can resolve.
    fn hosts(&self, networks: &[String]) -> BTreeMap<String, Vec<IpAddr>> {
        let mut hosts: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
        for (service, name) in self.instances() {
            for (network, ip, _) in self.addresses.get(&name).into_iter().flatten() {
                if !networks.is_empty() && !networks.contains(network) {
                    continue;
                }
                let aliases =
                    service.networks.iter().filter(|a| a.network == *network).flat_map(|a| a.aliases.clone());
                let mut names: Vec<String> = vec![service.name.clone(), name.clone()];
                names.extend(service.container_name.clone().into_iter().chain(aliases));
                names.extend(service.hostname.clone().filter(|_| service.replicas == 1));
                names.sort();
                names.dedup();
                for n in names {
                    let list = hosts.entry(n).or_default();
                    if !list.contains(&IpAddr::V4(*ip)) {
                        list.push(IpAddr::V4(*ip));
                    }
                }
            }
        }
        hosts
    }

    fn resolve(&self, host: &str) -> Result<IpAddr, Refusal> {
        if let Ok(ip) = host.parse() {
            return Ok(ip);
        }
        let hosts = self.hosts(&[]);
        hosts
            .get(host)
            .and_then(|l| l.first().copied())
            .ok_or_else(|| format!("{host}: no service has this name").into())
    }

    fn scenario(&mut self) -> Result<Scenario, Refusal> {
        let config = &self.project.config;
        let services = self.services()?;
        let simulation = &config.simulation;
        let link = LinkConfig {
            latency: simulation.latency_ns.max(1000),
            jitter: simulation.latency_jitter_ns,
            ..LinkConfig::default()
        };
        let workload = config.workload.as_ref().map(|w| self.workload(w)).transpose()?;
        let clients = workload.as_ref().map_or(0, |w| w.clients());
        let ip =
            |group: u8, n: u32| IpAddr::V4(Ipv4Addr::new(10, group, (n / 250) as u8, (n % 250) as u8 + 1));
        let fault_time = if config.faults == Default::default() { 0 } else { config.fault_phase_ns() };
        Ok(Scenario {
            services,
            link,
            costs: Default::default(),
            spread: Spread {
                start_ns: simulation.start_spread_ns,
                clock_ns: simulation.clock_spread_ns,
                cost_ppb: simulation.cost_spread.get(),
            },
            epoch_ns: crate::EPOCH_NS,
            memory: crate::MEMORY,
            time_step: simulation.time_step_ns,
            boot_timeout: simulation.start_timeout_ns,
            max_time: simulation.max_time_ns,
            fault_start: config.faults.start_after_ns,
            fault_time,
            heal: config.faults.heal,
            faults: config.faults.kinds.clone(),
            settle: SETTLE,
            health_until_ready: simulation.health_until_ready,
            vdso: true,
            workload,
            clients: (0..clients).map(|n| (NodeId(CLIENTS + n), ip(254, n))).collect(),
            prober: Some((NodeId(PROBER), ip(253, 0))),
            helpers: std::mem::take(&mut self.helpers),
            checks: std::mem::take(&mut self.checks),
        })
    }
}

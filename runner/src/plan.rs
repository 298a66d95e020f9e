//! From bloodhound.yaml and the compose file to a [`Scenario`]: addresses, file systems, names, programs, checks.
//!
//! Key types: [`Plan`] (the scenario with what reports need), [`Judge`] (how a property is decided).
//!
//! Modules: `properties` (checks and the scripts that they run), `workload` (the requests of clients).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use bloodhound_config::Project;
use bloodhound_config::compose::{
    Condition as Depends, MountSource, Network, Restart, Rootfs, Service, overlap,
};
use bloodhound_kernel::exec::Program;
use bloodhound_net::{LinkConfig, NodeId};
use bloodhound_sim::checks::CheckSpec;
use bloodhound_sim::scenario::*;
use bloodhound_vfs::MountSpec;
use bloodhound_vfs::host::{Allow, HostBase};

use crate::{host, passwd};

mod properties;
mod workload;

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
}

struct Planner<'a> {
    project: &'a Project,
    base: &'a HostBase,
    /// Addresses of each instance by network.
    addresses: BTreeMap<String, Vec<(String, Ipv4Addr, u8)>>,
    ids: BTreeMap<String, NodeId>,
    checks: Vec<CheckSpec>,
    helpers: Vec<ServiceSpec>,
    /// Mounts that scripts need in services.
    script_mounts: BTreeMap<NodeId, Vec<(PathBuf, PathBuf)>>,
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
    pub fn new(project: &Project, base: &HostBase) -> Result<Plan, Refusal> {
        let mut planner = Planner {
            project,
            base,
            addresses: BTreeMap::new(),
            ids: BTreeMap::new(),
            checks: Vec::new(),
            helpers: Vec::new(),
            script_mounts: BTreeMap::new(),
        };
        planner.not_yet()?;
        planner.assign_addresses()?;
        let properties = planner.properties()?;
        let scenario = planner.scenario()?;
        let config = &project.config;
        Ok(Plan {
            scenario,
            properties,
            config: config.source.path.clone(),
            out: config.output.dir.clone(),
            seeds: config.simulation.seeds,
            boots: config.simulation.boots,
            workers: config.exploration.parallel_workers.map(|n| n as usize),
        })
    }
}

impl Planner<'_> {
    /// Refuses what is decoded and not carried out yet.
    fn not_yet(&self) -> Result<(), Refusal> {
        let mut first: BTreeMap<&str, &str> = BTreeMap::new();
        for service in &self.project.compose.services {
            for mount in &service.mounts {
                let MountSource::Volume(name) = &mount.source else { continue };
                let user = *first.entry(name).or_insert(&service.name);
                if user != service.name {
                    let text = format!(
                        "the volume {name} is used by {user} and {}: a volume shared by several services is not available yet; give each its own",
                        service.name
                    );
                    return Err(text.into());
                }
            }
        }
        Ok(())
    }

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

    fn scenario(mut self) -> Result<Scenario, Refusal> {
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
            vdso: true,
            workload,
            clients: (0..clients).map(|n| (NodeId(CLIENTS + n), ip(254, n))).collect(),
            prober: Some((NodeId(PROBER), ip(253, 0))),
            helpers: std::mem::take(&mut self.helpers),
            checks: std::mem::take(&mut self.checks),
        })
    }

    fn services(&self) -> Result<Vec<ServiceSpec>, Refusal> {
        let faulty = self.project.config.faults.services.as_ref();
        let mut out = Vec::new();
        for (service, name) in self.instances() {
            let is_faulty = faulty.is_none_or(|list| list.iter().any(|l| l.value == service.name));
            let spec = self
                .service(service, &name, is_faulty)
                .map_err(|r| Refusal { text: format!("service {}: {}", service.name, r.text), ..r })?;
            out.push(spec);
        }
        Ok(out)
    }

    fn service(&self, service: &Service, name: &str, faulty: bool) -> Result<ServiceSpec, Refusal> {
        let argv = service.argv();
        let first = argv.first().ok_or("it has no command: give `command` or `entrypoint`")?;
        let id = self.ids[name];
        let mut more: Vec<PathBuf> = service.read.iter().map(PathBuf::from).collect();
        let root = match &service.rootfs {
            Rootfs::Host => {
                if first.starts_with('/') {
                    more.push(PathBuf::from(first));
                }
                host::host_root(self.base, &more)
                    .map_err(|e| Refusal::host("the host's root directory", &e))?
            }
            Rootfs::Image => {
                let what = service.image.as_ref().map_or("build", |image| image.value.as_str());
                return Err(format!(
                    "{what}: container images are not there yet: use x-bloodhound: {{rootfs: ...}}"
                )
                .into());
            }
            Rootfs::Dir(dir) => self
                .base
                .add_tree(dir, Allow::All)
                .map_err(|e| Refusal::host(format!("rootfs {}", dir.display()), &e))?,
        };
        let mut mounts = Vec::new();
        for mount in &service.mounts {
            mounts.push((mount.target.clone().into_bytes(), self.mount(mount)?));
        }
        for (dir, place) in self.script_mounts.get(&id).into_iter().flatten() {
            mounts.push((host::os_bytes(place), self.bind(dir, true)?));
        }
        mounts.sort_by_key(|(path, _)| path.iter().filter(|b| **b == b'/').count());
        let (uid, gid) = user_ids(service)?;
        let envp = environment(service, name, uid);
        let program = |argv: &[String]| Program {
            path: argv[0].clone().into_bytes(),
            argv: argv.iter().map(|a| a.clone().into_bytes()).collect(),
            envp: envp.clone(),
            cwd: service.working_dir.clone().unwrap_or_else(|| "/".into()).into_bytes(),
            uid,
            gid,
            groups: Vec::new(),
        };
        let health = service.own_healthcheck().map(|h| Health {
            program: program(&h.test.argv(None)),
            interval: if h.start_period_ns > 0 {
                h.start_interval_ns.min(h.interval_ns)
            } else {
                h.interval_ns
            },
            timeout: h.timeout_ns,
            retries: h.retries,
            start_period: h.start_period_ns,
        });
        let networks: Vec<String> = service.networks.iter().map(|a| a.network.clone()).collect();
        Ok(ServiceSpec {
            node: id,
            name: name.to_string(),
            hostname: service.hostname.clone().unwrap_or_else(|| name.to_string()),
            addresses: self
                .addresses
                .get(name)
                .into_iter()
                .flatten()
                .map(|(_, ip, p)| (IpAddr::V4(*ip), *p))
                .collect(),
            hosts: self.hosts(&networks),
            program: program(&argv),
            root: Some(root),
            mounts,
            depends_on: self.dependencies(service),
            health,
            restart: match service.restart {
                Restart::No => RestartPolicy::No,
                Restart::Always | Restart::UnlessStopped => RestartPolicy::Always,
                Restart::OnFailure { max_retries } => RestartPolicy::OnFailure(max_retries),
            },
            stdin: Some(Vec::new()),
            faulty,
        })
    }

    fn dependencies(&self, service: &Service) -> Vec<(NodeId, Condition)> {
        let compose = &self.project.compose;
        let mut out = Vec::new();
        for d in &service.depends_on {
            let condition = match d.condition {
                Depends::Started => Condition::Started,
                Depends::Healthy => Condition::Healthy,
                Depends::CompletedSuccessfully => Condition::Completed,
            };
            for name in compose.service(&d.service.value).map(Service::instances).unwrap_or_default() {
                out.push((self.ids[&name], condition));
            }
        }
        out
    }

    fn bind(&self, path: &Path, read_only: bool) -> Result<MountSpec, Refusal> {
        let tree = self.base.add_tree(path, Allow::All).map_err(|e| Refusal::host(path.display(), &e))?;
        Ok(MountSpec::Bind { tree, read_only })
    }

    fn mount(&self, mount: &bloodhound_config::compose::Mount) -> Result<MountSpec, Refusal> {
        match &mount.source {
            // Docker makes a missing host directory; here it is an empty one of the simulation's.
            MountSource::Bind(path) if !path.exists() => Ok(MountSpec::Volume { read_only: mount.read_only }),
            MountSource::Bind(path) => self.bind(path, mount.read_only),
            MountSource::Volume(_) | MountSource::Anonymous => {
                Ok(MountSpec::Volume { read_only: mount.read_only })
            }
            MountSource::Tmpfs { size, mode } => {
                Ok(MountSpec::Tmpfs { mode: mode.unwrap_or(0o1777), size: *size })
            }
        }
    }
}

/// Where programs are looked up.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

fn environment(service: &Service, name: &str, uid: u32) -> Vec<Vec<u8>> {
    let hostname = service.hostname.clone().unwrap_or_else(|| name.to_string());
    let mut env: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::from([
        (b"PATH".to_vec(), DEFAULT_PATH.into()),
        (b"HOME".to_vec(), passwd::home(&root_of(service), uid)),
        (b"HOSTNAME".to_vec(), hostname.into()),
    ]);
    env.extend(service.environment.iter().map(|(name, value)| (name.clone().into(), value.clone().into())));
    env.into_iter().map(|(name, value)| [&name[..], b"=", &value].concat()).collect()
}

/// The service's root directory on the host.
fn root_of(service: &Service) -> PathBuf {
    match &service.rootfs {
        Rootfs::Host | Rootfs::Image => PathBuf::from("/"),
        Rootfs::Dir(dir) => dir.clone(),
    }
}

/// `user:` as numbers; names are looked up in the root file system's /etc/passwd and /etc/group.
fn user_ids(service: &Service) -> Result<(u32, u32), String> {
    let Some(user) = &service.user else { return Ok((0, 0)) };
    let root = root_of(service);
    let unknown = |what: &str, name: &str| format!("user: no {what} `{name}` in its /etc files");
    let (uid, primary) = match user.user.parse() {
        // As Docker has it: the group of a number that is listed, otherwise root's.
        Ok(uid) => (uid, passwd::primary_group(&root, uid).unwrap_or(0)),
        Err(_) => {
            let (uid, group) = passwd::numbers(&root, "etc/passwd", &user.user)
                .ok_or_else(|| unknown("user", &user.user))?;
            (uid, group.unwrap_or(uid))
        }
    };
    let gid = match &user.group {
        None => primary,
        Some(g) => match g.parse() {
            Ok(gid) => gid,
            Err(_) => passwd::numbers(&root, "etc/group", g).ok_or_else(|| unknown("group", g))?.0,
        },
    };
    Ok((uid, gid))
}

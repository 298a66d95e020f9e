//! The compose model that the simulation runs: services with their processes, mounts, networks and order.
//!
//! Key types: [`Compose`], [`Service`], [`Mount`], [`Healthcheck`], [`Dependency`]. Plain values: durations are
//! nanoseconds of virtual time, paths on this machine are resolved against the compose file's directory.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use crate::decode::Located;
use crate::tree::{Source, Spot};

/// A compose file, decoded and checked.
#[derive(Clone, Debug)]
pub struct Compose {
    /// The file with its text (for digests and places).
    pub source: Source,
    /// The project's name: `name:`, else the name of the file's directory.
    pub name: String,
    /// Services in the order of the file, without those of profiles that are not active.
    pub services: Vec<Service>,
    /// Indices into `services`: every service after those that it depends on, else in the order of the file.
    pub start_order: Vec<usize>,
    /// Networks in the order of the file; `default` is last if it is used and not declared.
    pub networks: Vec<Network>,
    /// Declared named volumes.
    pub volumes: Vec<Volume>,
    /// Every file that was read besides the compose file itself (.env, env files), for digests.
    pub inputs: Vec<PathBuf>,
}

impl Compose {
    /// The service of a name.
    pub fn service(&self, name: &str) -> Option<&Service> {
        self.services.iter().find(|service| service.name == name)
    }

    /// Every name under which a node can be reached: services, replicas, host names, container names, network
    /// aliases and fixed addresses.
    pub fn host_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for service in &self.services {
            names.push(service.name.clone());
            names.extend(service.instances());
            names.extend(service.hostname.iter().chain(&service.container_name).cloned());
            for network in &service.networks {
                names.extend(network.aliases.iter().cloned());
                names.extend(network.ipv4.map(|ip| ip.to_string()));
            }
        }
        names.sort();
        names.dedup();
        names
    }
}

/// One service: one node of the simulation for each replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Where its name is written.
    pub at: Spot,
    /// Where its files come from.
    pub rootfs: Rootfs,
    /// With [`Rootfs::Host`]: absolute paths of this machine that it may read besides what it needs to start.
    pub read: Vec<String>,
    /// The image's name, for reports; images are not read.
    pub image: Option<String>,
    /// The program and its first arguments.
    pub entrypoint: Vec<String>,
    /// Arguments after the entrypoint; the program itself if there is no entrypoint.
    pub command: Vec<String>,
    /// Variables, sorted by name: `env_file` first, overridden by `environment`.
    pub environment: Vec<(String, String)>,
    /// Networks it is attached to, at least one.
    pub networks: Vec<Attachment>,
    /// What is mounted into its file system, in the order of the file.
    pub mounts: Vec<Mount>,
    /// What must have happened before it starts.
    pub depends_on: Vec<Dependency>,
    /// When it counts as healthy; `None`: it has no health check.
    pub healthcheck: Option<Healthcheck>,
    /// Its host name; `None`: the name of the instance.
    pub hostname: Option<String>,
    /// A further name under which it can be reached.
    pub container_name: Option<String>,
    /// The directory in which it starts; `None`: `/`.
    pub working_dir: Option<String>,
    /// Whose rights it has; `None`: root.
    pub user: Option<User>,
    /// What happens when its main process ends by itself.
    pub restart: Restart,
    /// Number of nodes, at least 1.
    pub replicas: u32,
}

impl Service {
    /// The whole command line; never empty.
    pub fn argv(&self) -> Vec<String> {
        self.entrypoint.iter().chain(&self.command).cloned().collect()
    }

    /// The names of its nodes: the service's name, or `name-1`, `name-2` and so on if it has replicas.
    pub fn instances(&self) -> Vec<String> {
        match self.replicas {
            1 => vec![self.name.clone()],
            n => (1..=n).map(|i| format!("{}-{i}", self.name)).collect(),
        }
    }
}

/// Where the files of a service come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rootfs {
    /// This machine's own file system, read-only underneath; writes stay in the simulation.
    Host,
    /// A directory of this machine that holds a whole file system.
    Dir(PathBuf),
}

/// `user: name[:group]`, each a name or a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// User name or uid.
    pub user: String,
    /// Group name or gid.
    pub group: Option<String>,
}

/// A service's place in a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The network's name.
    pub network: String,
    /// Further names of the service in this network.
    pub aliases: Vec<String>,
    /// A fixed address.
    pub ipv4: Option<Ipv4Addr>,
    /// Where it is written.
    pub at: Spot,
}

/// Something mounted into a service's file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// What is mounted.
    pub source: MountSource,
    /// Where, an absolute path.
    pub target: String,
    /// Whether it cannot be written.
    pub read_only: bool,
    /// Where it is written in the file.
    pub at: Spot,
}

/// What is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MountSource {
    /// A file or directory of this machine; its content is copied on write, this machine's stays as it is.
    Bind(PathBuf),
    /// A named volume, empty at first, shared by all services that name it.
    Volume(String),
    /// A volume of its own, empty at first.
    Anonymous,
    /// A file system in memory that is lost when the node crashes.
    Tmpfs {
        /// Largest size in bytes.
        size: Option<u64>,
        /// Permissions of its root.
        mode: Option<u32>,
    },
}

/// A service that must be in some state before another one starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The other service.
    pub service: Located<String>,
    /// Its state.
    pub condition: Condition,
    /// Whether it must exist; a dependency that does not is left out of the decoded file.
    pub required: bool,
}

/// The state in which a dependency must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Its main process has been started.
    Started,
    /// Its health check has passed.
    Healthy,
    /// Its main process has exited with status 0.
    CompletedSuccessfully,
}

/// A health check. Defaults are those of the Dockerfile reference, HEALTHCHECK.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Healthcheck {
    /// The program that exits with 0 if the service is healthy: argument vector.
    pub test: Vec<String>,
    /// Time between two checks.
    pub interval_ns: u64,
    /// When a check counts as failed.
    pub timeout_ns: u64,
    /// So many failures in a row make the service unhealthy.
    pub retries: u32,
    /// Failures do not count for so long after the start.
    pub start_period_ns: u64,
    /// Time between two checks during the start period.
    pub start_interval_ns: u64,
}

/// What happens when a service's main process ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Nothing.
    No,
    /// It is started again.
    Always,
    /// It is started again if it ended by a signal or with a status other than 0.
    OnFailure {
        /// So many times at most.
        max_retries: Option<u32>,
    },
    /// As `Always`: nothing in the simulation stops a service by hand.
    UnlessStopped,
}

/// A network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Its name in the file.
    pub name: String,
    /// Address and prefix length from which nodes get their addresses.
    pub subnet: Option<(Ipv4Addr, u8)>,
    /// An address that no node gets.
    pub gateway: Option<Ipv4Addr>,
    /// Where it is declared; the start of the file for `default`.
    pub at: Spot,
}

/// A named volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its name in the file.
    pub name: String,
    /// Where it is declared.
    pub at: Spot,
}

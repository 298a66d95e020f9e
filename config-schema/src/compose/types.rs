//! The compose model that the simulation runs: the project and its services.
//!
//! Key types: [`Compose`], [`Service`], [`Rootfs`]. Networks are in `network`, what services share in `resources`, what is
//! mounted in `mounts`, how a process runs in `process`. Plain values: durations are nanoseconds of virtual time, paths on this machine are resolved against the
//! directory of the file in which they are written. `at` says where something is written ([`Compose::place`]).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use crate::decode::Located;
use crate::diagnostic::Place;
use crate::tree::{Source, Span};

use super::mounts::{Mount, MountSource, VolumesFrom};
use super::network::Network;
use super::process::{Healthcheck, HealthcheckSetting, Hook, Restart, Ulimit, User};
use super::resources::{Resource, ResourceMount, Volume};
use super::spare::Spare;

/// A compose project, decoded and checked.
#[derive(Clone, Debug)]
pub struct Compose {
    /// The first file with its text (for digests and places).
    pub source: Source,
    /// The other files: further compose files, override files, what is included and extended.
    pub more: Vec<Source>,
    /// The project's name.
    pub name: String,
    /// Services in the order of the files, without those of profiles that are not active.
    pub services: Vec<Service>,
    /// Indices into `services`: every service after those that it depends on, else in the order of the file.
    pub start_order: Vec<usize>,
    /// Networks in the order of the file; `default` is last if it is used and not declared.
    pub networks: Vec<Network>,
    /// Declared named volumes.
    pub volumes: Vec<Volume>,
    /// Declared secrets.
    pub secrets: Vec<Resource>,
    /// Declared configurations.
    pub configs: Vec<Resource>,
    /// Every file that was read besides the first compose file (further compose files, .env, env files), for digests.
    pub inputs: Vec<PathBuf>,
    /// Names of the variables whose values came from an `env_file`.
    pub env_file_values: Vec<(String, String)>,
    /// Keys that are written and have no effect in a simulation.
    pub idle: Vec<Idle>,
    /// Services that do not run, but whose definition the configuration takes for another one ([`Compose::define`]).
    pub definitions: Vec<Service>,
    /// Others that do not run.
    pub(crate) spare: Vec<Spare>,
}

/// A key of a compose file that is accepted and changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idle {
    /// Its path: `services.web.cpu_count`.
    pub key: String,
    /// Why nothing depends on it.
    pub why: &'static str,
    /// Where it is written.
    pub place: Place,
}

impl Compose {
    /// The service of a name.
    pub fn service(&self, name: &str) -> Option<&Service> {
        self.services.iter().find(|service| service.name == name)
    }

    /// What services mount that mount a volume of a name.
    pub fn volume_source(&self, name: &str) -> Option<MountSource> {
        let volume = self.volumes.iter().find(|volume| volume.name == name)?;
        Some(volume.backing.clone().unwrap_or_else(|| MountSource::Volume(name.to_owned())))
    }

    /// The place of something that was decoded, for a message.
    pub fn place(&self, at: Span) -> Place {
        self.more.iter().rev().find(|source| source.base <= at.start).unwrap_or(&self.source).place(at)
    }

    /// The place of a key of a service, or of the service's name where the key is not written.
    pub fn key_place(&self, service: &Service, key: &str) -> Place {
        let written = service.keys.iter().find(|(name, _)| name == key);
        self.place(written.map_or(service.at, |(_, at)| *at))
    }

    /// What answers at a published TCP port of the machine that runs the containers: the service, which of its containers (from 0), and the
    /// port there. A service takes the first port of its range, its second container the next one.
    pub fn published(&self, port: u16) -> Option<(&Service, usize, u16)> {
        self.services.iter().find_map(|service| {
            let found = service.ports.iter().filter(|p| !p.udp).find_map(|p| {
                let (first, last) = p.published?;
                let instance = usize::from(port.checked_sub(first)?);
                let there = port <= last && instance < service.replicas as usize;
                there.then_some((instance, p.target))
            });
            found.map(|(instance, target)| (service, instance, target))
        })
    }

    /// All published TCP ports behind which there is a container, in order.
    pub fn published_ports(&self) -> Vec<u16> {
        let mut all = Vec::new();
        for service in &self.services {
            for (first, last) in service.ports.iter().filter(|p| !p.udp).filter_map(|p| p.published) {
                let containers = u16::try_from(service.replicas).unwrap_or(u16::MAX);
                all.extend((first..=last).take(usize::from(containers)));
            }
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The container's name of a service's instance, counted from 1: its `container_name`, or `project-service-1`, as an engine
    /// names it.
    pub fn container_name(&self, service: &Service, instance: u32) -> String {
        let made = || format!("{}-{}-{instance}", self.name, service.name);
        service.container_name.clone().unwrap_or_else(made)
    }

    /// Every name under which a node can be reached: services, replicas, host names, container names, network
    /// aliases and fixed addresses.
    pub fn host_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        for service in &self.services {
            names.push(service.name.clone());
            names.extend(service.instances());
            names.extend(service.hostname.iter().cloned());
            names.extend((1..=service.replicas).map(|n| self.container_name(service, n)));
            for network in &service.networks {
                names.extend(network.aliases.iter().cloned());
                names.extend(network.ipv4.map(|ip| ip.to_string()));
                names.extend(network.ipv6.map(|ip| ip.to_string()));
            }
        }
        names.sort();
        names.dedup();
        names
    }
}

/// One service: one container of the simulation for each replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// Where its name is written.
    pub at: Span,
    /// Its keys, and where they are written.
    pub keys: Vec<(String, Span)>,
    /// Where its files come from.
    pub rootfs: Rootfs,
    /// With [`Rootfs::Host`]: absolute paths of this machine that it may read besides what it needs to start.
    pub read: Vec<String>,
    /// `x-bloodhound: {machine: NAME}`: the machine that it shares with the other services of that name.
    pub machine: Option<Located<String>>,
    /// The image's reference as it is written.
    pub image: Option<Located<String>>,
    /// How its image is built.
    pub build: Option<Build>,
    /// When its image is fetched.
    pub pull_policy: PullPolicy,
    /// `platform`, such as `linux/amd64`.
    pub platform: Option<Located<String>>,
    /// The program and its first arguments; `None`: the image's. An empty one takes the image's away.
    pub entrypoint: Option<Vec<String>>,
    /// Arguments after the entrypoint, or the program itself; `None`: the image's, unless `entrypoint` is written.
    pub command: Option<Vec<String>>,
    /// Variables, sorted by name: `env_file` first, overridden by `environment`. They come over those of an image.
    pub environment: Vec<(String, String)>,
    /// Networks it is attached to, at least one unless `network_mode` says otherwise.
    pub networks: Vec<Attachment>,
    /// Whose network it has.
    pub network_mode: NetworkMode,
    /// Other services under further names.
    pub links: Vec<Link>,
    /// Lines of its /etc/hosts.
    pub extra_hosts: Vec<(String, ExtraHost)>,
    /// Its name servers, instead of the simulation's.
    pub dns: Vec<IpAddr>,
    /// `search` of its resolv.conf.
    pub dns_search: Vec<String>,
    /// `options` of its resolv.conf.
    pub dns_opt: Vec<String>,
    /// Ports that the host can reach.
    pub ports: Vec<Port>,
    /// Ports that it says it listens on, `80` or `80/udp`; nothing follows from them.
    pub expose: Vec<String>,
    /// What is mounted into its file system, in the order of the file; `tmpfs` is last.
    pub mounts: Vec<Mount>,
    /// Services whose mounts it has as well.
    pub volumes_from: Vec<VolumesFrom>,
    /// Secrets that it sees as files.
    pub secrets: Vec<ResourceMount>,
    /// Configurations that it sees as files.
    pub configs: Vec<ResourceMount>,
    /// What must have happened before it starts.
    pub depends_on: Vec<Dependency>,
    /// When it counts as healthy.
    pub healthcheck: HealthcheckSetting,
    /// Its host name; `None`: the name of the instance.
    pub hostname: Option<String>,
    /// Its domain name.
    pub domainname: Option<String>,
    /// A further name under which it can be reached.
    pub container_name: Option<String>,
    /// The directory in which it starts; `None`: the image's, or `/`.
    pub working_dir: Option<String>,
    /// Whose rights it has; `None`: the image's, or root.
    pub user: Option<User>,
    /// Further groups, as names or numbers.
    pub group_add: Vec<String>,
    /// What happens when its main process ends by itself.
    pub restart: Restart,
    /// `deploy.restart_policy.delay`: time before a restart.
    pub restart_delay_ns: Option<u64>,
    /// `deploy.restart_policy.window`: how long it must run before a restart counts as a success.
    pub restart_window_ns: Option<u64>,
    /// The signal that asks it to stop, such as `SIGTERM`; `None`: the image's.
    pub stop_signal: Option<String>,
    /// How long it may take to stop; `None`: 10 s.
    pub stop_grace_period_ns: Option<u64>,
    /// What runs in the container after it has started.
    pub post_start: Vec<Hook>,
    /// What runs in the container before it is stopped.
    pub pre_stop: Vec<Hook>,
    /// The umask of its processes; `None`: 022.
    pub umask: Option<u32>,
    /// Whether process 1 is an init of ours, which reaps and forwards signals.
    pub init: Option<bool>,
    /// Whether it has a terminal.
    pub tty: bool,
    /// Whether its standard input stays open.
    pub stdin_open: bool,
    /// Capabilities that are added, without `CAP_`; `ALL` for all.
    pub cap_add: Vec<String>,
    /// Capabilities that are taken away, without `CAP_`; `ALL` for all.
    pub cap_drop: Vec<String>,
    /// Security options as they are written, such as `no-new-privileges:true`.
    pub security_opt: Vec<String>,
    /// Whether its root file system cannot be written.
    pub read_only: bool,
    /// Limits of its processes.
    pub ulimits: Vec<Ulimit>,
    /// Most memory in bytes.
    pub mem_limit: Option<u64>,
    /// `size` of `storage_opt`, bytes.
    pub disk_size: Option<u64>,
    /// Most processors, in thousandths.
    pub cpus_milli: Option<u64>,
    /// Most tasks.
    pub pids_limit: Option<u64>,
    /// Size of /dev/shm in bytes; `None`: 64 MiB.
    pub shm_size: Option<u64>,
    /// Kernel parameters of its namespaces.
    pub sysctls: Vec<(String, String)>,
    /// `oom_score_adj`, -1000 to 1000.
    pub oom_score_adj: Option<i16>,
    /// Whose process ids it sees.
    pub pid: Namespace,
    /// Whose System V and POSIX IPC objects it sees.
    pub ipc: Namespace,
    /// Its labels, sorted by name.
    pub labels: Vec<(String, String)>,
    /// Number of containers, at least 1.
    pub replicas: u32,
}

impl Service {
    /// A service of which nothing is written but its name.
    pub(super) fn new(name: String, at: Span) -> Service {
        Service {
            name,
            at,
            keys: Vec::new(),
            rootfs: Rootfs::Host,
            read: Vec::new(),
            machine: None,
            image: None,
            build: None,
            pull_policy: Default::default(),
            platform: None,
            entrypoint: None,
            command: None,
            environment: Vec::new(),
            networks: Vec::new(),
            network_mode: Default::default(),
            links: Vec::new(),
            extra_hosts: Vec::new(),
            dns: Vec::new(),
            dns_search: Vec::new(),
            dns_opt: Vec::new(),
            ports: Vec::new(),
            expose: Vec::new(),
            mounts: Vec::new(),
            volumes_from: Vec::new(),
            secrets: Vec::new(),
            configs: Vec::new(),
            depends_on: Vec::new(),
            healthcheck: HealthcheckSetting::Inherited(Default::default()),
            hostname: None,
            domainname: None,
            container_name: None,
            working_dir: None,
            user: None,
            group_add: Vec::new(),
            restart: Restart::No,
            restart_delay_ns: None,
            restart_window_ns: None,
            stop_signal: None,
            stop_grace_period_ns: None,
            post_start: Vec::new(),
            pre_stop: Vec::new(),
            umask: None,
            init: None,
            tty: false,
            stdin_open: false,
            cap_add: Vec::new(),
            cap_drop: Vec::new(),
            security_opt: Vec::new(),
            read_only: false,
            ulimits: Vec::new(),
            mem_limit: None,
            disk_size: None,
            cpus_milli: None,
            pids_limit: None,
            shm_size: None,
            sysctls: Vec::new(),
            oom_score_adj: None,
            pid: Default::default(),
            ipc: Default::default(),
            labels: Vec::new(),
            replicas: 1,
        }
    }

    /// The command line as far as the file says it; without an image, it is never empty.
    pub fn argv(&self) -> Vec<String> {
        self.entrypoint.iter().flatten().chain(self.command.iter().flatten()).cloned().collect()
    }

    /// The health check that the file itself declares.
    pub fn own_healthcheck(&self) -> Option<&Healthcheck> {
        match &self.healthcheck {
            HealthcheckSetting::Own(check) => Some(check),
            HealthcheckSetting::Inherited(_) | HealthcheckSetting::Disabled => None,
        }
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
    /// The image that `image` names or `build` makes.
    Image,
}

/// How an image is built.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Build {
    /// Where `build` is written.
    pub at: Span,
    /// The directory whose files the build may use, or an address that an engine understands.
    pub context: BuildContext,
    /// The Dockerfile, relative to the context unless absolute; `None`: `Dockerfile`.
    pub dockerfile: Option<String>,
    /// The text of the Dockerfile.
    pub dockerfile_inline: Option<String>,
    /// Build arguments, sorted by name.
    pub args: Vec<(String, String)>,
    /// The stage that is built.
    pub target: Option<String>,
    /// Further contexts by name: paths of this machine are absolute or relative to this process, others as written.
    pub additional_contexts: Vec<(String, String)>,
    /// Labels of the image, sorted by name.
    pub labels: Vec<(String, String)>,
    /// Further names of the image.
    pub tags: Vec<String>,
    /// Images whose layers may be used, as written.
    pub cache_from: Vec<String>,
    /// Names of the secrets that the build may read.
    pub secrets: Vec<ResourceMount>,
    /// SSH agents or keys, as written.
    pub ssh: Vec<String>,
    /// Lines of /etc/hosts while building, `name=address`.
    pub extra_hosts: Vec<String>,
    /// The network of the build, as written.
    pub network: Option<String>,
    /// Size of /dev/shm in bytes while building.
    pub shm_size: Option<u64>,
    /// Whether no layer of an earlier build may be used.
    pub no_cache: bool,
    /// Whether the base images are fetched anew.
    pub pull: bool,
    /// Platforms, as written.
    pub platforms: Vec<String>,
}

/// What a build takes its files from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BuildContext {
    /// A directory of this machine.
    Dir(PathBuf),
    /// The address of a repository or an archive.
    Remote(String),
}

impl Default for BuildContext {
    fn default() -> BuildContext {
        BuildContext::Dir(PathBuf::from("."))
    }
}

/// When an image is fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PullPolicy {
    /// If it is not there: `missing`, `if_not_present`.
    #[default]
    Missing,
    /// Each time.
    Always,
    /// Never.
    Never,
    /// It is built even if it is there.
    Build,
    /// If what is there was fetched longer ago, in seconds: `daily`, `weekly`, `every_12h`.
    Older(u64),
}

/// Whose network a service has.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum NetworkMode {
    /// Its own, attached to `networks`.
    #[default]
    Networks,
    /// Its own, with nothing but the loopback interface.
    None,
    /// That of another service.
    Service(Located<String>),
}

/// A namespace: an own one, or that of another service.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Namespace {
    /// An own one.
    #[default]
    Own,
    /// That of another service.
    Service(Located<String>),
}

/// Another service under a further name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The other service.
    pub service: Located<String>,
    /// The name.
    pub alias: String,
}

/// What a line of /etc/hosts names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtraHost {
    /// An address.
    Address(IpAddr),
    /// `host-gateway`: the machine on which containers run.
    Gateway,
}

/// A port that the host can reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The address of the host; `None`: all.
    pub host: Option<IpAddr>,
    /// First and last port of the host of which one is taken; `None`: any.
    pub published: Option<(u16, u16)>,
    /// The port of the service.
    pub target: u16,
    /// Whether it is one of UDP.
    pub udp: bool,
    /// Where it is written.
    pub at: Span,
}

/// A service's place in a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The network's name.
    pub network: String,
    /// Further names of the service in this network.
    pub aliases: Vec<String>,
    /// Whether the service's own name is one of its names there.
    pub by_name: bool,
    /// A fixed address.
    pub ipv4: Option<Ipv4Addr>,
    /// A fixed address.
    pub ipv6: Option<Ipv6Addr>,
    /// Networks with a higher one come first; that of the highest `gw_priority` has the default route.
    pub priority: (i64, i64),
    /// The name of the interface.
    pub interface: Option<String>,
    /// Where it is written.
    pub at: Span,
}

impl Attachment {
    /// A place in a network without anything special.
    pub fn new(network: String, at: Span) -> Attachment {
        Attachment {
            network,
            aliases: Vec::new(),
            by_name: true,
            ipv4: None,
            ipv6: None,
            priority: (0, 0),
            interface: None,
            at,
        }
    }
}

/// A service that must be in some state before another one starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// The other service.
    pub service: Located<String>,
    /// Its state.
    pub condition: Condition,
    /// Whether the dependent is restarted when the other service is restarted by the engine.
    pub restart: bool,
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

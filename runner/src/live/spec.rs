//! What an engine is told to make: the documents of containers, networks and volumes, from the decoded compose file.
//!
//! Key functions: [`container`], [`network`], [`end_point`]. Nothing here asks an engine or the host; what differs from run to run (names,
//! addresses, ports) is in [`Names`]. The form of the documents is that of "Docker Engine API" (`ContainerCreate`, `NetworkCreate`).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use bloodhound_config::compose::{
    ExtraHost, MountSource, Namespace, Network, NetworkMode, Service, Ulimit, User,
};
use bloodhound_net::NodeId;
use bloodhound_sim::scenario::ServiceSpec;
use serde_json::{Map, Value, json};

use crate::plan::{InNetwork, Mounted, Placement};

/// The label of everything that is made here; its value names the run.
pub const LABEL: &str = "io.bloodhound.live";

/// What a run calls things.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// What names of the run begin with.
    pub prefix: String,
    /// The run, the label's value.
    pub run: String,
    /// Addresses of this run for those of the plan.
    pub addresses: BTreeMap<IpAddr, IpAddr>,
    /// Ports of this machine that lead to ports of containers, where containers cannot be reached directly.
    pub ports: BTreeMap<(NodeId, u16), u16>,
}

impl Names {
    /// The name of something.
    pub fn of(&self, name: &str) -> String {
        let allowed = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '_' };
        format!("{}-{}", self.prefix, name.chars().map(allowed).collect::<String>())
    }

    /// An address of this run for one of the plan.
    pub fn address(&self, planned: IpAddr) -> IpAddr {
        self.addresses.get(&planned).copied().unwrap_or(planned)
    }

    /// The labels of what is made.
    pub fn labels(&self) -> Value {
        json!({ LABEL: self.run })
    }
}

/// What a container is made from.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    pub service: &'a Service,
    pub spec: &'a ServiceSpec,
    pub placement: &'a Placement,
    /// The name or id that the engine has for its image.
    pub image: &'a str,
    /// Files with secrets and configurations, and where they are seen.
    pub resources: &'a [(PathBuf, String)],
    /// Names of services by their numbers, for namespaces that are shared.
    pub names: &'a BTreeMap<NodeId, String>,
    /// Others use its IPC namespace.
    pub shares_ipc: bool,
}

/// A container. It gets no restart policy and no health check of the engine's own: both are carried out by the run, which so knows of each
/// end and each answer.
pub fn container(parts: &Parts<'_>, run: &Names) -> Value {
    let Parts { service, spec, placement, image, .. } = *parts;
    let mut labels: Map<String, Value> =
        service.labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    labels.insert(LABEL.into(), json!(run.run));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let argv: Vec<String> = spec.program.argv.iter().map(|arg| text(arg)).collect();
    let environment = service.environment.iter().map(|(key, value)| format!("{key}={value}"));
    let mut out = json!({
        "Image": image,
        "Entrypoint": argv,
        "Cmd": [],
        "Env": environment.collect::<Vec<_>>(),
        "Labels": labels,
        "Tty": service.tty,
        "OpenStdin": service.stdin_open,
        "Healthcheck": { "Test": ["NONE"] },
        "StopTimeout": spec.runtime.stop_grace / 1_000_000_000,
        "HostConfig": host(parts, run),
    });
    let mut set = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            out[key] = value;
        }
    };
    if !matches!(service.network_mode, NetworkMode::Service(_)) {
        set("Hostname", Some(json!(spec.hostname)));
        set("Domainname", service.domainname.as_ref().map(|name| json!(name)));
    }
    set("WorkingDir", service.working_dir.as_ref().map(|dir| json!(dir)));
    set("User", service.user.as_ref().map(|user| json!(whose(user))));
    set("StopSignal", service.stop_signal.as_ref().map(|signal| json!(signal)));
    let ports: Map<String, Value> =
        published(placement.node, run).map(|(port, _)| (format!("{port}/tcp"), json!({}))).collect();
    set("ExposedPorts", (!ports.is_empty()).then_some(Value::Object(ports)));
    if let Some(first) = placement.networks.first().filter(|_| spec.sharing.net.is_none()) {
        set(
            "NetworkingConfig",
            Some(json!({
                "EndpointsConfig": { run.of(&first.network): end_point(first, run) }
            })),
        );
    }
    out
}

fn whose(user: &User) -> String {
    match &user.group {
        Some(group) => format!("{}:{group}", user.user),
        None => user.user.clone(),
    }
}

fn published(node: NodeId, run: &Names) -> impl Iterator<Item = (u16, u16)> {
    run.ports.iter().filter(move |((of, _), _)| *of == node).map(|((_, port), host)| (*port, *host))
}

/// A container's end in a network: its names there, and the address that belongs to it for the whole run.
pub fn end_point(at: &InNetwork, run: &Names) -> Value {
    let mut addresses = Map::new();
    for (planned, _) in &at.addresses {
        let key = if planned.is_ipv4() { "IPv4Address" } else { "IPv6Address" };
        addresses.insert(key.into(), json!(run.address(*planned).to_string()));
    }
    json!({ "Aliases": at.names, "IPAMConfig": addresses })
}

fn host(parts: &Parts<'_>, run: &Names) -> Value {
    let Parts { service, spec, placement, resources, names, .. } = *parts;
    let partner = |node: Option<NodeId>| {
        node.and_then(|node| names.get(&node)).map(|name| format!("container:{}", run.of(name)))
    };
    let network = match (&service.network_mode, placement.networks.first()) {
        (NetworkMode::Service(_), _) => partner(spec.sharing.net).unwrap_or_default(),
        (NetworkMode::None, _) | (NetworkMode::Networks, None) => "none".to_owned(),
        (NetworkMode::Networks, Some(first)) => run.of(&first.network),
    };
    let bind = |(path, target): &(PathBuf, String)| json!({ "Type": "bind", "Source": absolute(path), "Target": target, "ReadOnly": true });
    let mounts: Vec<Value> = placement
        .mounts
        .iter()
        .map(|mounted| mount(mounted, run))
        .chain(resources.iter().map(bind))
        .collect();
    let mut out = json!({
        "NetworkMode": network,
        "RestartPolicy": { "Name": "no" },
        "Mounts": mounts,
        "ReadonlyRootfs": service.read_only,
    });
    let mut set = |key: &str, value: Value| {
        let empty = match &value {
            Value::Null => true,
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        };
        if !empty {
            out[key] = value;
        }
    };
    set("CapAdd", json!(service.cap_add));
    set("CapDrop", json!(service.cap_drop));
    set("SecurityOpt", json!(service.security_opt));
    set("GroupAdd", json!(service.group_add));
    set("Ulimits", Value::Array(service.ulimits.iter().map(ulimit).collect()));
    set("Memory", json!(service.mem_limit));
    set("NanoCpus", json!(service.cpus_milli.map(|milli| milli * 1_000_000)));
    set("PidsLimit", json!(service.pids_limit));
    set("ShmSize", json!(service.shm_size));
    set("OomScoreAdj", json!(service.oom_score_adj));
    set("Sysctls", service.sysctls.iter().map(|(key, value)| (key.clone(), json!(value))).collect());
    set("Init", json!(service.init));
    if service.pid != Namespace::Own {
        set("PidMode", json!(partner(spec.sharing.pids)));
    }
    if service.ipc != Namespace::Own {
        set("IpcMode", json!(partner(spec.sharing.ipc)));
    } else if parts.shares_ipc {
        set("IpcMode", json!("shareable"));
    }
    if spec.sharing.net.is_none() {
        set("Dns", json!(service.dns));
        set("DnsSearch", json!(service.dns_search));
        set("DnsOptions", json!(service.dns_opt));
        set("ExtraHosts", json!(hosts(parts, run)));
        let bindings = published(placement.node, run);
        let bindings = bindings.map(|(port, host)| {
            (format!("{port}/tcp"), json!([{ "HostIp": "127.0.0.1", "HostPort": host.to_string() }]))
        });
        set("PortBindings", Value::Object(bindings.collect()));
    }
    out
}

/// Lines of /etc/hosts: `extra_hosts`, and links, which are further names of other containers.
fn hosts(parts: &Parts<'_>, run: &Names) -> Vec<String> {
    let extra = parts.service.extra_hosts.iter().map(|(name, host)| match host {
        ExtraHost::Address(ip) => format!("{name}:{ip}"),
        ExtraHost::Gateway => format!("{name}:host-gateway"),
    });
    let links = parts.placement.links.iter().filter_map(|(alias, _)| {
        let addresses = parts.spec.hosts.get(alias)?;
        addresses.first().map(|planned| format!("{alias}:{}", run.address(*planned)))
    });
    extra.chain(links).collect()
}

/// A path as an engine needs it, which is in another directory.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn mount(mounted: &Mounted, run: &Names) -> Value {
    let (target, read_only) = (&mounted.target, mounted.read_only);
    match &mounted.source {
        MountSource::Bind(path) if path.exists() => {
            json!({ "Type": "bind", "Source": absolute(path), "Target": target, "ReadOnly": read_only })
        }
        // As in the simulation, where it is an empty one: an engine would leave a directory of root's behind.
        MountSource::Bind(_) | MountSource::Anonymous => {
            json!({ "Type": "volume", "Target": target, "ReadOnly": read_only })
        }
        MountSource::Volume(name) => {
            let mut out =
                json!({ "Type": "volume", "Source": run.of(name), "Target": target, "ReadOnly": read_only });
            if mounted.nocopy {
                out["VolumeOptions"]["NoCopy"] = json!(true);
            }
            if let Some(subpath) = &mounted.subpath {
                out["VolumeOptions"]["Subpath"] = json!(subpath);
            }
            out
        }
        MountSource::Proc | MountSource::Sys => {
            let path = if mounted.source == MountSource::Proc { "/proc" } else { "/sys" };
            json!({ "Type": "bind", "Source": path, "Target": target, "ReadOnly": read_only })
        }
        // Refused before (`stack`).
        MountSource::Image(image) => {
            json!({ "Type": "image", "Source": image.value, "Target": target, "ReadOnly": true })
        }
        MountSource::Tmpfs { size, mode, .. } => {
            let mut out = json!({ "Type": "tmpfs", "Target": target });
            if let Some(size) = size {
                out["TmpfsOptions"]["SizeBytes"] = json!(size);
            }
            if let Some(mode) = mode {
                out["TmpfsOptions"]["Mode"] = json!(mode);
            }
            out
        }
    }
}

fn ulimit(limit: &Ulimit) -> Value {
    let value = |limit: Option<u64>| limit.and_then(|n| i64::try_from(n).ok()).unwrap_or(-1);
    json!({ "Name": limit.name, "Soft": value(limit.soft), "Hard": value(limit.hard) })
}

/// A network with these subnets: the declared ones, or those that were found to be free. Only of a network whose subnet is said can containers
/// have addresses that are said.
pub fn network(network: &Network, subnets: &[String], run: &Names) -> Value {
    let config = |subnet: &String| {
        let mut one = json!({ "Subnet": subnet });
        if !subnet.contains(':') {
            if let Some(gateway) = network.gateway {
                one["Gateway"] = json!(gateway.to_string());
            }
            if let Some((ip, bits)) = network.range {
                one["IPRange"] = json!(format!("{ip}/{bits}"));
            }
        }
        one
    };
    json!({
        "Name": run.of(&network.name),
        "Driver": "bridge",
        "Internal": network.internal,
        "EnableIPv6": network.ipv6,
        "CheckDuplicate": true,
        "Labels": run.labels(),
        "IPAM": { "Driver": "default", "Config": subnets.iter().map(config).collect::<Vec<Value>>() },
    })
}

//! The stack on an engine: everything that a run makes there, under names of its own and with a label, and its removal.
//!
//! Key type: [`Stack`]. Containers are made here and started elsewhere (`supervise`). Neighbours: `spec` has the documents.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bloodhound_config::compose::{Content, MountSource, Network, Rootfs, Service};
use bloodhound_images::{Control, EngineError, Resolver};
use bloodhound_net::NodeId;
use bloodhound_sim::scenario::ServiceSpec;
use bloodhound_workloads::driver::DriverConfig;
use serde_json::{Value, json};

use super::spec::{self, LABEL, Names, Parts};
use crate::plan::Placement;
use crate::session::{Failure, Session};

/// How long the engine has for each operation.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Under this name, with a digest behind it, an image of the cache is given to the engine.
const LOADED: &str = "localhost/bloodhound-live";
/// The image without any file of the containers for scripts.
const EMPTY: &str = "localhost/bloodhound-live:empty";
/// What scripts of their own see of this machine, read-only.
const SEEN: &[&str] = &["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/usr", "/etc/alternatives", "/etc/ssl"];

/// A stack that was made.
#[derive(Debug)]
pub struct Stack {
    pub control: Control,
    pub names: Names,
    /// The names of containers, of services and of helpers, by their numbers.
    pub containers: BTreeMap<NodeId, String>,
    /// The subnets of its networks, by the engine's names for these.
    subnets: BTreeMap<String, (Ipv4Addr, u8)>,
    /// Files with secrets and configurations that are on no disk otherwise.
    private: PathBuf,
    /// Leave everything where it is.
    keep: bool,
}

/// What an engine refuses or does not answer ends a run without a verdict.
pub fn failed(error: &EngineError) -> Failure {
    Failure::environment(error.to_string())
}

impl Stack {
    /// Names for a stack of which nothing is made yet.
    pub fn new(control: Control, project: &str, keep: bool) -> Stack {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos());
        let run = format!("{:x}-{:x}", std::process::id(), now & 0xffff_ffff);
        let prefix = format!("bloodhound-{project}-{run}");
        let private = std::env::temp_dir().join(&prefix);
        let names = Names { prefix, run, ..Names::default() };
        Stack { control, names, containers: BTreeMap::new(), subnets: BTreeMap::new(), private, keep }
    }

    /// The label of everything here, as engines filter by it.
    pub fn label(&self) -> String {
        format!("{LABEL}={}", self.names.run)
    }

    /// Makes networks, volumes and containers; nothing runs yet.
    ///
    /// # Errors
    /// What the engine says; images that cannot be had.
    pub fn make(&mut self, session: &Session) -> Result<(), Failure> {
        let compose = &session.project.compose;
        cannot(session)?;
        let used = |network: &&Network| {
            session.plan.placements.iter().any(|p| p.networks.iter().any(|at| at.network == network.name))
        };
        for network in compose.networks.iter().filter(used) {
            self.network(network, session)?;
        }
        self.publish(session)?;
        let mut volumes: Vec<&String> = Vec::new();
        for mounted in session.plan.placements.iter().flat_map(|placement| &placement.mounts) {
            if let MountSource::Volume(name) = &mounted.source
                && !volumes.contains(&name)
            {
                volumes.push(name);
            }
            if mounted.subpath.is_some() && !self.control.has_api(1, 45) {
                let text = "parts of volumes (`subpath`) need an engine with version 1.45 of the API or later (Docker 26)";
                return Err(Failure::environment(text));
            }
        }
        for volume in volumes {
            let document = json!({ "Name": self.names.of(volume), "Labels": self.names.labels() });
            self.control.create_volume(&self.names.of(volume), &document).map_err(|e| failed(&e))?;
        }
        let names: BTreeMap<NodeId, String> =
            session.scenario.services.iter().map(|spec| (spec.node, spec.name.clone())).collect();
        let mut left: Vec<_> = session.scenario.services.iter().zip(&session.plan.placements).collect();
        while !left.is_empty() {
            // An engine makes no container that joins a namespace of one that is not there.
            let free = |(spec, _): &(&ServiceSpec, &Placement)| {
                let others = [spec.sharing.net, spec.sharing.pids, spec.sharing.ipc];
                others.into_iter().flatten().all(|other| self.containers.contains_key(&other))
            };
            let (spec, placement) = left.remove(left.iter().position(free).unwrap_or(0));
            let service = compose.service(&placement.service);
            let service = service.ok_or_else(|| Failure::environment(format!("no service {}", spec.name)))?;
            self.container(session, (service, spec, placement), &names)?;
        }
        self.helpers(session)
    }

    /// A network. Of one that declares no subnet the engine chooses a free one, and it is made once more with just this one: "user specified
    /// IP address is supported only when connecting to networks with user configured subnets" (Docker).
    fn network(&mut self, network: &Network, session: &Session) -> Result<(), Failure> {
        let name = self.names.of(&network.name);
        let places = || {
            let all = session.plan.placements.iter().flat_map(|placement| &placement.networks);
            all.filter(|at| at.network == network.name).flat_map(|at| at.addresses.iter().copied())
        };
        let make = |stack: &Stack, document: &Value| -> Result<Option<(Ipv4Addr, u8)>, Failure> {
            stack.control.create_network(&name, document).map_err(|e| {
                let help = "help: the engine must have networks of the kind `bridge`; a subnet that is taken is freed by `docker network prune`";
                Failure::environment(format!("{e}\n{help}"))
            })?;
            let made = stack.control.network(&name).map_err(|e| failed(&e))?;
            Ok(subnet_of(&made))
        };
        let mut subnets: Vec<String> =
            network.subnet.iter().map(|(ip, bits)| format!("{ip}/{bits}")).collect();
        if subnets.is_empty() {
            let probe = json!({ "Name": name, "Driver": "bridge", "Labels": self.names.labels() });
            let free = make(self, &probe)?;
            self.control.remove_network(&name).map_err(|e| failed(&e))?;
            subnets.extend(free.map(|(ip, bits)| format!("{ip}/{bits}")));
        }
        subnets.extend(places().find_map(|(ip, bits)| subnet6(ip, bits)).filter(|_| network.ipv6));
        let made = make(self, &spec::network(network, &subnets, &self.names))?;
        let Some((net, bits)) = made else {
            let text =
                format!("the network {}: the engine does not say which addresses it has", network.name);
            return Err(Failure::environment(text));
        };
        self.subnets.insert(name, (net, bits));
        for (planned, prefix) in places() {
            let real = match planned {
                IpAddr::V4(ip) => moved(ip, prefix, (net, bits)).ok_or_else(|| {
                    let text = format!("the network {}: {net}/{bits} has too few addresses", network.name);
                    Failure::environment(text)
                })?,
                // Those of IPv6 are from a range that nobody else has, or were declared.
                IpAddr::V6(_) => planned,
            };
            self.names.addresses.insert(planned, real);
        }
        Ok(())
    }

    /// Where containers cannot be reached at their addresses, the ports that clients and checks ask are published at free ports of this machine.
    fn publish(&mut self, session: &Session) -> Result<(), Failure> {
        let about = self.control.about();
        if !about.rootless && !about.virtual_machine {
            return Ok(());
        }
        // Held until all are chosen, so that none is chosen twice.
        let mut held = Vec::new();
        for address in targets(session) {
            let Some(node) = node_at(session, address.ip()) else { continue };
            let free = TcpListener::bind(("127.0.0.1", 0)).and_then(|l| Ok((l.local_addr()?.port(), l)));
            let (port, listener) =
                free.map_err(|e| Failure::environment(format!("looking for a free port: {e}")))?;
            held.push(listener);
            self.names.ports.insert((node, address.port()), port);
        }
        Ok(())
    }

    /// Where a planned address is in this run.
    pub fn reach(&self, session: &Session, planned: SocketAddr) -> SocketAddr {
        let node = node_at(session, planned.ip());
        match node.and_then(|node| self.names.ports.get(&(node, planned.port()))) {
            Some(port) => SocketAddr::from(([127, 0, 0, 1], *port)),
            None => SocketAddr::new(self.names.address(planned.ip()), planned.port()),
        }
    }

    fn container(
        &mut self,
        session: &Session,
        (service, spec, placement): (&Service, &ServiceSpec, &Placement),
        names: &BTreeMap<NodeId, String>,
    ) -> Result<(), Failure> {
        let image = self.image(session.resolver.as_ref(), service, placement)?;
        let resources = self.resources(session, service)?;
        let shares_ipc = session.scenario.services.iter().any(|s| s.sharing.ipc == Some(spec.node));
        let parts =
            Parts { service, spec, placement, image: &image, resources: &resources, names, shares_ipc };
        let name = self.names.of(&spec.name);
        let document = spec::container(&parts, &self.names);
        self.control.create_container(&name, &document).map_err(|e| failed(&e))?;
        self.containers.insert(spec.node, name.clone());
        // An older engine takes one network when it makes a container; the others follow before it starts.
        if spec.sharing.net.is_none() {
            for at in placement.networks.iter().skip(1) {
                let settings = spec::end_point(at, &self.names);
                let network = self.names.of(&at.network);
                self.control.connect_network(&network, &name, &settings).map_err(|e| failed(&e))?;
            }
        }
        Ok(())
    }

    /// What the engine calls a service's image. One that the engine has not, or has otherwise, is given to it from the cache.
    fn image(
        &self,
        resolver: Option<&Resolver>,
        service: &Service,
        placement: &Placement,
    ) -> Result<String, Failure> {
        let (Some(resolver), Some(image)) = (resolver, &placement.image) else {
            let what = match &service.rootfs {
                Rootfs::Host => {
                    "it has no image: its root file system is this machine's (`rootfs: host`)".into()
                }
                Rootfs::Dir(dir) => format!("its root file system is the directory {}", dir.display()),
                Rootfs::Image => "its image was not found".into(),
            };
            return Err(Failure::usage(format!(
                "service {}: {what}, and an engine runs images only\nhelp: give it an `image`, or run `bloodhound test` without --live",
                service.name
            )));
        };
        let id = image.config_digest.to_string();
        let has = |name: &str| self.control.image(name).map_err(|e| failed(&e));
        if has(&id)?.is_some() {
            return Ok(id);
        }
        let name = format!("{LOADED}:{}", &image.config_digest.hex()[..16]);
        if has(&name)?.is_none() {
            super::say(&format!("giving {} to the engine", image.reference));
            self.control.load(&resolver.store, image, &name).map_err(|e| failed(&e))?;
        }
        Ok(name)
    }

    /// Secrets and configurations as files of this machine. As compose implementations do it, a file is bound as it is; what is no file, and what
    /// has an owner or rights of its own, is written into a directory that only this user can enter.
    fn resources(&self, session: &Session, service: &Service) -> Result<Vec<(PathBuf, String)>, Failure> {
        let compose = &session.project.compose;
        let secrets = service.secrets.iter().map(|mount| (mount, &compose.secrets));
        let configs = service.configs.iter().map(|mount| (mount, &compose.configs));
        let mut out = Vec::new();
        for (mount, declared) in secrets.chain(configs) {
            let Some(resource) = declared.iter().find(|r| r.name == mount.source.value) else { continue };
            let plain = mount.uid.is_none() && mount.gid.is_none() && mount.mode.is_none();
            let bytes = match &resource.content {
                Content::File(path) if plain => {
                    out.push((path.clone(), mount.target.clone()));
                    continue;
                }
                Content::File(path) => fs::read(path).map_err(|e| host(path, &e))?,
                Content::Text(text) => text.clone().into_bytes(),
            };
            let name = format!("{}-{}", service.name, mount.target.replace('/', "_"));
            let path = self.private.join(name);
            self.write(&path, &bytes, mount.mode.unwrap_or(0o444)).map_err(|e| host(&path, &e))?;
            if mount.uid.is_some() || mount.gid.is_some() {
                std::os::unix::fs::chown(&path, mount.uid, mount.gid).map_err(|e| host(&path, &e))?;
            }
            out.push((path, mount.target.clone()));
        }
        Ok(out)
    }

    fn write(&self, path: &Path, bytes: &[u8], mode: u32) -> std::io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.private)?;
        if path.exists() {
            // Of another instance of the service.
            return Ok(());
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(bytes)?;
        // Without the process's umask.
        file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))
    }

    /// A container for each script that belongs to no service: it sees the programs of this machine and is in all networks, so that it knows
    /// all names. It sleeps; the script is run in it.
    fn helpers(&mut self, session: &Session) -> Result<(), Failure> {
        let helpers = &session.plan.helpers;
        if helpers.is_empty() {
            return Ok(());
        }
        if self.control.about().virtual_machine {
            let text = "a script without `service` needs the programs of this machine, which an engine in a virtual machine cannot see\nhelp: name a \
                        service in which it is to run";
            return Err(Failure::environment(text));
        }
        if self.control.image(EMPTY).map_err(|e| failed(&e))?.is_none() {
            self.control.load_empty(EMPTY).map_err(|e| failed(&e))?;
        }
        let seen = SEEN.iter().map(|path| (PathBuf::from(path), (*path).to_owned()));
        let seen: Vec<(PathBuf, String)> = seen.filter(|(path, _)| path.exists()).collect();
        for helper in helpers {
            let script = (helper.dir.0.clone(), helper.dir.1.display().to_string());
            let bind = |(from, to): &(PathBuf, String)| json!({ "Type": "bind", "Source": spec::absolute(from), "Target": to, "ReadOnly": true });
            // Addresses from the end of each network: an engine would give it one that belongs to a service.
            let number = helper.node.0 - session.plan.helpers[0].node.0;
            let place = |(network, subnet): (&String, &(Ipv4Addr, u8))| {
                let address = last(*subnet, number).to_string();
                (network.clone(), json!({ "IPAMConfig": { "IPv4Address": address } }))
            };
            let networks: Vec<(String, Value)> = self.subnets.iter().map(place).collect();
            let name = self.names.of(&format!("check-{}", helper.node.0));
            let mut document = json!({
                "Image": EMPTY,
                "Entrypoint": ["/bin/sh", "-c", "exec sleep 2147483647"],
                "Labels": self.names.labels(),
                "HostConfig": {
                    "NetworkMode": networks.first().map_or("none", |(network, _)| network.as_str()),
                    "Mounts": seen.iter().chain([&script]).map(bind).collect::<Vec<Value>>(),
                    "Init": false,
                },
            });
            if let Some((network, settings)) = networks.first() {
                document["NetworkingConfig"]["EndpointsConfig"][network] = settings.clone();
            }
            self.control.create_container(&name, &document).map_err(|e| failed(&e))?;
            for (network, settings) in networks.iter().skip(1) {
                self.control.connect_network(network, &name, settings).map_err(|e| failed(&e))?;
            }
            self.containers.insert(helper.node, name.clone());
            self.control.start(&name).map_err(|e| failed(&e))?;
        }
        Ok(())
    }

    /// Removes all that was made, unless it is to be kept. What cannot be removed is said, with what to do.
    pub fn remove(&self) {
        let label = self.label();
        if self.keep {
            super::say(&format!(
                "kept: the containers, networks and volumes with the label {label}{}; to see and remove them:\n  docker ps --all --filter \
                 label={label}\n  docker rm --force --volumes $(docker ps --all --quiet --filter label={label})\n  docker network prune --force \
                 --filter label={label}; docker volume prune --all --force --filter label={label}",
                if self.private.exists() {
                    format!(", and the directory {}", self.private.display())
                } else {
                    String::new()
                }
            ));
            return;
        }
        let rubbish = self.control.remove_all(&label);
        for text in &rubbish.0 {
            super::say(&format!("could not be removed: {text}"));
        }
        if !rubbish.0.is_empty() {
            super::say(&format!("help: what is left has the label {label}"));
        }
        if self.private.exists()
            && let Err(error) = fs::remove_dir_all(&self.private)
        {
            super::say(&format!("{}: cannot be removed: {error}", self.private.display()));
        }
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Refuses what is not carried out on an engine, by name.
fn cannot(session: &Session) -> Result<(), Failure> {
    let refused = |service: &str, what: &str| {
        Err(Failure::usage(format!(
            "service {service}: {what} with --live\nhelp: run `bloodhound test` without --live, where it works"
        )))
    };
    for service in &session.project.compose.services {
        if !service.post_start.is_empty() || !service.pre_stop.is_empty() {
            return refused(&service.name, "`post_start` and `pre_stop` are not carried out");
        }
    }
    for placement in &session.plan.placements {
        if placement.mounts.iter().any(|mounted| matches!(mounted.source, MountSource::Image(_))) {
            return refused(&placement.service, "a volume of the type `image` is not made");
        }
    }
    Ok(())
}

fn host(path: &Path, error: &std::io::Error) -> Failure {
    Failure::environment(format!("{}: {error}", path.display()))
}

/// The n-th address from the end of a subnet, before its broadcast address.
fn last((net, bits): (Ipv4Addr, u8), number: u32) -> Ipv4Addr {
    let below = u32::MAX.checked_shr(u32::from(bits)).unwrap_or(0);
    Ipv4Addr::from((u32::from(net) | below).saturating_sub(1 + number))
}

/// The first subnet of IPv4 that an engine says of a network.
fn subnet_of(network: &Value) -> Option<(Ipv4Addr, u8)> {
    network["IPAM"]["Config"].as_array()?.iter().find_map(|config| {
        let (ip, bits) = config["Subnet"].as_str()?.split_once('/')?;
        Some((ip.parse().ok()?, bits.parse().ok()?))
    })
}

/// The subnet of a planned address of IPv6.
fn subnet6(ip: IpAddr, bits: u8) -> Option<String> {
    let IpAddr::V6(ip) = ip else { return None };
    let below = u128::MAX.checked_shr(u32::from(bits)).unwrap_or(0);
    Some(format!("{}/{bits}", Ipv6Addr::from(u128::from(ip) & !below)))
}

/// An address of the plan in another subnet, at the same place in it.
fn moved(planned: Ipv4Addr, prefix: u8, (net, bits): (Ipv4Addr, u8)) -> Option<IpAddr> {
    let below = |bits: u8| u32::MAX.checked_shr(u32::from(bits)).unwrap_or(0);
    let place = u32::from(planned) & below(prefix);
    let fits = place < below(bits);
    fits.then(|| IpAddr::V4(Ipv4Addr::from(u32::from(net) & !below(bits) | place)))
}

/// Every address that clients and checks ask.
fn targets(session: &Session) -> Vec<SocketAddr> {
    let mut all: Vec<SocketAddr> = Vec::new();
    if let Some(DriverConfig::Http(config)) = &session.scenario.workload {
        all.extend(config.targets.iter().map(|target| target.address));
    }
    for check in &session.scenario.checks {
        if let bloodhound_sim::checks::Action::Http { target, .. } = &check.action {
            all.push(target.address);
        }
    }
    all.sort();
    all.dedup();
    all
}

/// The container that has an address in the plan.
fn node_at(session: &Session, ip: IpAddr) -> Option<NodeId> {
    let has = |placement: &&Placement| {
        placement.networks.iter().flat_map(|at| &at.addresses).any(|(address, _)| *address == ip)
    };
    session.plan.placements.iter().find(has).map(|placement| placement.node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_keep_their_place_in_another_subnet() {
        let planned = Ipv4Addr::new(10, 89, 0, 7);
        let to = |net: [u8; 4], bits| moved(planned, 16, (net.into(), bits)).map(|ip| ip.to_string());
        assert_eq!(to([172, 18, 0, 0], 16).as_deref(), Some("172.18.0.7"));
        assert_eq!(to([10, 89, 3, 0], 24).as_deref(), Some("10.89.3.7"));
        assert_eq!(to([10, 89, 3, 0], 29), None, "the last address is the broadcast address");
    }

    #[test]
    fn addresses_from_the_end_leave_out_the_broadcast_address() {
        let of = |number| last((Ipv4Addr::new(10, 89, 3, 0), 24), number).to_string();
        assert_eq!([of(0), of(2)], ["10.89.3.254", "10.89.3.252"]);
    }

    #[test]
    fn the_subnet_is_read_from_what_the_engine_says() {
        let network =
            json!({ "IPAM": { "Config": [{ "Subnet": "fd00::/64" }, { "Subnet": "10.1.0.0/16" }] } });
        assert_eq!(subnet_of(&network), Some((Ipv4Addr::new(10, 1, 0, 0), 16)));
        assert_eq!(subnet_of(&json!({ "IPAM": { "Config": null } })), None);
    }
}

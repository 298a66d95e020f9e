//! Networks of the compose file: which address each container has in which network, and which names stand for what.
//!
//! Key type: [`Address`]. Neighbours: `service` (which puts it into a container), `workload` and `properties` (whose targets are
//! names, or ports that are published on `localhost`).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use bloodhound_config::Endpoint;
use bloodhound_config::compose::{Attachment, ExtraHost, Network, NetworkMode, Service, overlap, overlap6};
use bloodhound_net::NodeId;

use super::{Planner, Refusal};

/// Networks without a subnet of their own get 10.89.0.0/16 and so on; 10.252.0.0/16 and above are for nodes outside.
const FIRST_NETWORK: u8 = 89;
const OWN_NETWORKS: u8 = 252;
/// Those of IPv6 without one get fd00:b10d:1::/64 and so on.
const NETWORK6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xb10d, 0, 0, 0, 0, 0, 0);

/// An address of a container in a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    /// The network's name.
    pub(super) network: String,
    pub(super) ip: IpAddr,
    pub(super) prefix: u8,
}

/// The subnets of a network.
#[derive(Clone, Copy)]
struct Subnets {
    four: (Ipv4Addr, u8),
    six: Option<(Ipv6Addr, u8)>,
}

impl Subnets {
    /// The machine that carries the containers: the gateway of a network (its first address, unless one is declared).
    fn gateway(&self, network: &Network) -> Ipv4Addr {
        network.gateway.unwrap_or_else(|| Ipv4Addr::from(u32::from(self.four.0) + 1))
    }
}

impl Planner<'_> {
    /// The subnets of each network: the declared ones, else the next of ours that overlaps none.
    fn subnets(&self) -> Result<Vec<Subnets>, String> {
        let networks = &self.project.compose.networks;
        let mut free = (0..OWN_NETWORKS - FIRST_NETWORK)
            .map(|n| (Ipv4Addr::new(10, FIRST_NETWORK + n, 0, 0), 16))
            .filter(|own| networks.iter().filter_map(|n| n.subnet).all(|given| !overlap(*own, given)));
        let mut free6 = (1..=u16::MAX)
            .map(|n| {
                let [a, b, _, rest @ ..] = NETWORK6.segments();
                (Ipv6Addr::from([a, b, n, rest[0], rest[1], rest[2], rest[3], rest[4]]), 64)
            })
            .filter(|own| networks.iter().filter_map(|n| n.subnet6).all(|given| !overlap6(*own, given)));
        let mut subnets = Vec::new();
        for network in networks {
            let four = network.subnet.or_else(|| free.next()).ok_or("too many networks")?;
            let six = if network.ipv6 { network.subnet6.or_else(|| free6.next()) } else { None };
            subnets.push(Subnets { four, six });
        }
        Ok(subnets)
    }

    /// Gives each container its number, and an address in each of its networks.
    pub(super) fn assign_addresses(&mut self) -> Result<(), Refusal> {
        let names: Vec<(Service, String)> =
            self.instances().into_iter().map(|(s, n)| (s.clone(), n)).collect();
        for (number, (_, name)) in names.iter().enumerate() {
            self.ids.insert(name.clone(), NodeId(number as u32 + 1));
        }
        let subnets = self.subnets()?;
        for (network, subnets) in self.project.compose.networks.iter().zip(subnets) {
            self.gateways.insert(network.name.clone(), subnets.gateway(network));
            let mut pool = Pool::new(network, subnets, &names);
            for (service, name) in &names {
                let Some(at) = service.networks.iter().find(|a| a.network == network.name) else { continue };
                for (ip, prefix) in pool.take(at)? {
                    let address = Address { network: network.name.clone(), ip, prefix };
                    self.addresses.entry(name.clone()).or_default().push(address);
                }
            }
        }
        for (service, name) in &names {
            // The order of the service: its first network is the one of its default route, as with `gw_priority`.
            let place = |address: &Address| {
                let at = service.networks.iter().position(|a| a.network == address.network);
                let priority = at.map(|at| service.networks[at].priority.1);
                (std::cmp::Reverse(priority), at)
            };
            self.addresses.entry(name.clone()).or_default().sort_by_key(place);
        }
        Ok(())
    }

    /// The addresses of a container.
    pub(super) fn addresses_of(&self, name: &str) -> Vec<(IpAddr, u8)> {
        self.addresses.get(name).into_iter().flatten().map(|a| (a.ip, a.prefix)).collect()
    }

    /// What a container can resolve: the members of its networks by their names, its links, and its `extra_hosts`, which come first.
    pub(super) fn names_for(&self, service: &Service) -> BTreeMap<String, Vec<IpAddr>> {
        let networks: Vec<&str> = service.networks.iter().map(|a| a.network.as_str()).collect();
        let within = |network: &str| networks.contains(&network);
        let mut hosts = self.hosts(within);
        for link in &service.links {
            let linked = hosts.get(&link.service.value).cloned();
            if let Some(addresses) = linked {
                hosts.insert(link.alias.clone(), addresses);
            }
        }
        let gateway = networks.iter().find_map(|network| self.gateways.get(*network));
        let mut extra: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
        for (name, host) in &service.extra_hosts {
            let ip = match host {
                ExtraHost::Address(ip) => Some(*ip),
                ExtraHost::Gateway => gateway.map(|ip| IpAddr::V4(*ip)),
            };
            extra.entry(name.clone()).or_default().extend(ip);
        }
        hosts.extend(extra);
        hosts
    }

    /// The names in all networks, for what stands outside of the stack.
    pub(super) fn all_names(&self) -> BTreeMap<String, Vec<IpAddr>> {
        self.hosts(|_| true)
    }

    /// Names of the members of networks.
    fn hosts(&self, within: impl Fn(&str) -> bool) -> BTreeMap<String, Vec<IpAddr>> {
        let mut hosts: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
        for (service, name) in self.instances() {
            for address in self.addresses.get(&name).into_iter().flatten().filter(|a| within(&a.network)) {
                for n in self.names_in(service, &name, &address.network) {
                    let list = hosts.entry(n).or_default();
                    if !list.contains(&address.ip) {
                        list.push(address.ip);
                    }
                }
            }
        }
        hosts
    }

    /// The published TCP ports, for what stands on the machine of the containers.
    pub(super) fn published(&self) -> BTreeMap<u16, SocketAddr> {
        let ports = self.project.compose.published_ports();
        ports.into_iter().filter_map(|port| Some((port, self.behind(port).ok()?))).collect()
    }

    /// Which container is behind a published port of `localhost`.
    fn behind(&self, published: u16) -> Result<SocketAddr, Refusal> {
        let compose = &self.project.compose;
        let (service, instance, port) = compose
            .published(published)
            .ok_or_else(|| format!("localhost:{published}: no service publishes this port"))?;
        // Who shares another's network has its ports there.
        let owner = match &service.network_mode {
            NetworkMode::Service(other) => compose.service(&other.value).unwrap_or(service),
            NetworkMode::Networks | NetworkMode::None => service,
        };
        let name = owner.instances().get(instance).cloned().unwrap_or_else(|| owner.name.clone());
        let ip = self.addresses.get(&name).and_then(|list| list.first()).map(|address| address.ip);
        let ip = ip.ok_or_else(|| format!("localhost:{published}: {name} has no network"))?;
        Ok(SocketAddr::new(ip, port))
    }

    /// The names of an instance in a network.
    pub(super) fn names_in(&self, service: &Service, name: &str, network: &str) -> Vec<String> {
        let instance = service.instances().iter().position(|n| *n == name).map_or(1, |at| at as u32 + 1);
        let at = service.networks.iter().find(|a| a.network == network);
        let mut names = vec![name.to_owned(), self.project.compose.container_name(service, instance)];
        names.extend(at.into_iter().flat_map(|at| at.aliases.clone()));
        names.extend(service.hostname.clone().filter(|_| service.replicas == 1));
        match at.is_none_or(|at| at.by_name) {
            true => names.push(service.name.clone()),
            false => names.retain(|n| *n != service.name),
        }
        names.sort();
        names.dedup();
        names
    }

    /// Where a target of the configuration is: a name or an address of the stack, or a published port of `localhost`.
    pub(super) fn target(&self, endpoint: &Endpoint) -> Result<SocketAddr, Refusal> {
        if endpoint.is_local() {
            return self.behind(endpoint.port);
        }
        Ok(SocketAddr::new(self.resolve(&endpoint.host)?, endpoint.port))
    }

    fn resolve(&self, host: &str) -> Result<IpAddr, Refusal> {
        if let Ok(ip) = host.parse() {
            return Ok(ip);
        }
        let hosts = self.all_names();
        hosts
            .get(host)
            .and_then(|l| l.first().copied())
            .ok_or_else(|| format!("{host}: no service has this name").into())
    }
}

/// The addresses of a network that are free.
struct Pool<'a> {
    network: &'a Network,
    subnets: Subnets,
    taken: Vec<IpAddr>,
    next: u32,
    next6: u128,
}

impl<'a> Pool<'a> {
    fn new(network: &'a Network, subnets: Subnets, names: &[(Service, String)]) -> Pool<'a> {
        let mut taken: Vec<IpAddr> = network.reserved.clone();
        // The network's own address and the gateway's; a declared gateway does not free the first one.
        taken.push(Ipv4Addr::from(u32::from(subnets.four.0) + 1).into());
        taken.push(subnets.gateway(network).into());
        taken.extend(subnets.six.map(|(net, _)| IpAddr::from(Ipv6Addr::from(u128::from(net) + 1))));
        taken.extend(network.gateway6.map(IpAddr::V6));
        let of_network = |a: &&Attachment| a.network == network.name;
        let fixed = names.iter().flat_map(|(s, _)| s.networks.iter().filter(of_network));
        for at in fixed {
            taken.extend(at.ipv4.map(IpAddr::V4).into_iter().chain(at.ipv6.map(IpAddr::V6)));
        }
        let first = network.range.map_or(u32::from(subnets.four.0) + 2, |(range, _)| u32::from(range));
        Pool { network, subnets, taken, next: first, next6: 2 }
    }

    /// The addresses of a container: the fixed ones, else the next that are free.
    fn take(&mut self, at: &Attachment) -> Result<Vec<(IpAddr, u8)>, Refusal> {
        let (net, prefix) = self.subnets.four;
        let four = match at.ipv4 {
            Some(ip) => ip,
            None => {
                while self.taken.contains(&Ipv4Addr::from(self.next).into()) {
                    self.next += 1;
                }
                self.next += 1;
                Ipv4Addr::from(self.next - 1)
            }
        };
        let (within, bits) = self.network.range.unwrap_or((net, prefix));
        let size = 1u32.checked_shl(32 - u32::from(bits)).unwrap_or(0);
        // The last address of a subnet is its broadcast address.
        let end = u32::from(within).wrapping_add(size.saturating_sub(u32::from(bits == prefix)));
        if at.ipv4.is_none() && u32::from(four) >= end {
            let text = format!("network {}: no address is left in {within}/{bits}", self.network.name);
            return Err(text.into());
        }
        let mut out = vec![(IpAddr::V4(four), prefix)];
        if let Some((net, prefix)) = self.subnets.six {
            let six = at.ipv6.unwrap_or_else(|| {
                let mut ip = Ipv6Addr::from(u128::from(net) + self.next6);
                while self.taken.contains(&ip.into()) {
                    self.next6 += 1;
                    ip = Ipv6Addr::from(u128::from(net) + self.next6);
                }
                self.next6 += 1;
                ip
            });
            out.push((IpAddr::V6(six), prefix));
        }
        Ok(out)
    }
}

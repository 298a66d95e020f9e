//! What concerns several services: networks, dependencies, names, addresses, and the order of starting.
//!
//! Key function: [`resolve`]. The order is that of the file, moved only as far as dependencies demand.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::decode::{Ctx, Located};
use crate::diagnostic::{Code, quoted};
use crate::suggest::nearest;
use crate::tree::Span;

use super::mounts::MountSource;
use super::network::{Network, contains, contains6, overlap, overlap6};
use super::process::HealthcheckSetting;
use super::resources::all_declared;
use super::spare::Spare;
use super::types::{Attachment, Compose, Condition, Dependency, Namespace, NetworkMode, Rootfs, Service};

/// Completes and checks a decoded file.
pub(super) fn resolve(ctx: &mut Ctx, compose: &mut Compose) {
    attach(ctx, compose);
    subnets(ctx, compose);
    addresses(ctx, compose);
    instances(ctx, compose);
    ports(ctx, compose);
    containers(ctx, compose);
    implied(compose);
    dependencies(ctx, compose);
    shared(ctx, compose);
    order(ctx, compose);
    volumes(compose);
    resources(ctx, compose);
}

/// Volumes that are a directory of this machine, or memory, are mounted as such.
fn volumes(compose: &mut Compose) {
    let backing: BTreeMap<String, MountSource> =
        compose.volumes.iter().filter_map(|v| Some((v.name.clone(), v.backing.clone()?))).collect();
    let spare = compose.spare.iter_mut().filter_map(Spare::service_mut);
    for mount in compose.services.iter_mut().chain(spare).flat_map(|service| &mut service.mounts) {
        if let MountSource::Volume(name) = &mount.source
            && let Some(source) = backing.get(name)
        {
            mount.source = source.clone();
        }
    }
}

/// Secrets and configurations that services name are declared.
fn resources(ctx: &mut Ctx, compose: &mut Compose) {
    let names = |list: &[super::Resource]| list.iter().map(|r| r.name.clone()).collect::<Vec<_>>();
    let (secrets, configs) = (names(&compose.secrets), names(&compose.configs));
    for service in &compose.services {
        resources_of(ctx, service, &secrets, &configs);
    }
    for spare in &mut compose.spare {
        spare.resolve(ctx, &secrets, &configs);
    }
}

/// Those that a service names.
pub(super) fn resources_of(ctx: &mut Ctx, service: &Service, secrets: &[String], configs: &[String]) {
    all_declared(ctx, &service.secrets, secrets, "secrets");
    all_declared(ctx, &service.configs, configs, "configs");
    if let Some(build) = &service.build {
        all_declared(ctx, &build.secrets, secrets, "secrets");
    }
}

/// `container:NAME` is the service that has a container of this name.
fn containers(ctx: &mut Ctx, compose: &mut Compose) {
    let names: Vec<(String, String)> = compose
        .services
        .iter()
        .flat_map(|s| (1..=s.replicas).map(|n| (compose.container_name(s, n), s.name.clone())))
        .collect();
    for service in &mut compose.services {
        let network = match &mut service.network_mode {
            NetworkMode::Service(name) => Some(name),
            NetworkMode::Networks | NetworkMode::None => None,
        };
        let namespaces = [&mut service.pid, &mut service.ipc].into_iter().filter_map(|space| match space {
            Namespace::Service(name) => Some(name),
            Namespace::Own => None,
        });
        for named in network.into_iter().chain(namespaces) {
            let Some(container) = named.value.strip_prefix("container:") else { continue };
            match names.iter().find(|(name, _)| name == container) {
                Some((_, service)) => named.value.clone_from(service),
                None => {
                    let message = format!("no service has the container {}", quoted(container));
                    ctx.error(Code::ComposeNotSupported, named.span, message).help(
                        "name a service of this file, `service:NAME`: containers that are not part of it do not exist in the simulation",
                    );
                }
            }
        }
        // It has been told; what follows from it would be told again.
        let untold = |name: &Located<String>| name.value.starts_with("container:");
        if matches!(&service.network_mode, NetworkMode::Service(name) if untold(name)) {
            service.network_mode = NetworkMode::Networks;
        }
        for space in [&mut service.pid, &mut service.ipc] {
            if matches!(space, Namespace::Service(name) if untold(name)) {
                *space = Namespace::Own;
            }
        }
    }
}

/// What a service shares with another one, or links to, is there when it starts: the specification has it depend on them.
fn implied(compose: &mut Compose) {
    for service in &mut compose.services {
        let mut others: Vec<Located<String>> =
            service.links.iter().map(|link| link.service.clone()).collect();
        others.extend(service.volumes_from.iter().map(|from| from.service.clone()));
        if let NetworkMode::Service(name) = &service.network_mode {
            others.push(name.clone());
        }
        for namespace in [&service.pid, &service.ipc] {
            if let Namespace::Service(name) = namespace {
                others.push(name.clone());
            }
        }
        for other in others {
            if service.depends_on.iter().all(|d| d.service.value != other.value) {
                let condition = Condition::Started;
                service.depends_on.push(Dependency {
                    service: other,
                    condition,
                    restart: false,
                    required: true,
                });
            }
        }
    }
}

/// Who shares a network with another service has none of its own.
fn shared(ctx: &mut Ctx, compose: &Compose) {
    for service in &compose.services {
        let NetworkMode::Service(other) = &service.network_mode else { continue };
        let wrong = [("ports", !service.ports.is_empty()), ("links", !service.links.is_empty())];
        for (key, _) in wrong.into_iter().filter(|(_, there)| *there) {
            let message = format!("`{key}` and `network_mode: service:{}` exclude each other", other.value);
            ctx.error(Code::Conflict, other.span, message)
                .help(format!("the network is that of {}: write `{key}` there", quoted(&other.value)));
        }
        if service.replicas > 1 || compose.service(&other.value).is_some_and(|s| s.replicas > 1) {
            ctx.error(Code::Conflict, other.span, "a network cannot be shared between replicas")
                .help("give both services one container");
        }
    }
}

/// Every service without networks is in `default`; every network that is named is declared.
fn attach(ctx: &mut Ctx, compose: &mut Compose) {
    let names: Vec<String> = compose.networks.iter().map(|n| n.name.clone()).collect();
    let mut default_used = None;
    for service in &mut compose.services {
        if service.networks.is_empty() && service.network_mode == NetworkMode::Networks {
            service.networks.push(Attachment::new("default".to_owned(), service.at));
        }
        for attachment in &service.networks {
            if names.contains(&attachment.network) {
                continue;
            }
            if attachment.network == "default" {
                default_used.get_or_insert(attachment.at);
                continue;
            }
            let span = attachment.at;
            let message = format!("the network {} is not declared", quoted(&attachment.network));
            ctx.error(Code::UnknownResource, span, message)
                .help("declare it under the top-level key `networks`")
                .suggest(nearest(&attachment.network, &names));
        }
    }
    if let Some(at) = default_used {
        compose.networks.push(Network::new("default".to_owned(), at));
    }
}

/// No address belongs to two networks.
fn subnets(ctx: &mut Ctx, compose: &Compose) {
    for (index, network) in compose.networks.iter().enumerate() {
        let earlier = &compose.networks[..index];
        let both = |other: &&Network| {
            other.subnet.zip(network.subnet).is_some_and(|(a, b)| overlap(a, b))
                || other.subnet6.zip(network.subnet6).is_some_and(|(a, b)| overlap6(a, b))
        };
        let Some(other) = earlier.iter().find(both) else { continue };
        let span = network.at;
        let place = ctx.place(other.at);
        let names = (quoted(&network.name), quoted(&other.name));
        ctx.error(Code::Conflict, span, format!("the subnets of {} and {} overlap", names.0, names.1))
            .relate(place, "the other network")
            .help("give each network a subnet of its own, or none");
    }
}

/// Fixed addresses are in their network's subnet, and no two services have the same one.
fn addresses(ctx: &mut Ctx, compose: &Compose) {
    let mut taken: BTreeMap<(&str, IpAddr), Span> = BTreeMap::new();
    for service in &compose.services {
        for attachment in &service.networks {
            let network = compose.networks.iter().find(|n| n.name == attachment.network);
            let given = [attachment.ipv4.map(IpAddr::V4), attachment.ipv6.map(IpAddr::V6)];
            for ip in given.into_iter().flatten() {
                if let Some(network) = network {
                    address(ctx, attachment, network, ip);
                }
                if service.replicas > 1 {
                    ctx.error(Code::Conflict, attachment.at, "several replicas cannot have one address");
                }
                if let Some(first) = taken.insert((&attachment.network, ip), attachment.at) {
                    let place = ctx.place(first);
                    ctx.error(Code::DuplicateName, attachment.at, format!("{ip} is used twice"))
                        .relate(place, "first");
                }
            }
        }
    }
}

/// One fixed address in its network.
fn address(ctx: &mut Ctx, attachment: &Attachment, network: &Network, ip: IpAddr) {
    let span = attachment.at;
    let (subnet, inside, example) = match ip {
        IpAddr::V4(ip) => {
            let subnet = network.subnet.map(|(net, prefix)| format!("{net}/{prefix}"));
            (subnet, network.subnet.is_some_and(|subnet| contains(subnet, ip)), "10.5.0.0/16")
        }
        IpAddr::V6(ip) => {
            let subnet = network.subnet6.map(|(net, prefix)| format!("{net}/{prefix}"));
            (subnet, network.subnet6.is_some_and(|subnet| contains6(subnet, ip)), "fd00:5::/64")
        }
    };
    match subnet {
        None => {
            ctx.error(Code::MissingKey, span, "a fixed address needs a network with a subnet")
                .help(format!("add ipam: {{config: [{{subnet: {example}}}]}} to the network"));
        }
        Some(subnet) if !inside => {
            ctx.error(Code::OutOfRange, span, format!("{ip} is not in the network's subnet {subnet}"));
        }
        Some(_)
            if network.gateway.map(IpAddr::V4) == Some(ip)
                || network.gateway6.map(IpAddr::V6) == Some(ip) =>
        {
            ctx.error(Code::Conflict, span, format!("{ip} is the network's gateway"));
        }
        Some(_) => {}
    }
}

/// No port of the host is published twice.
fn ports(ctx: &mut Ctx, compose: &Compose) {
    let mut taken: BTreeMap<(Option<IpAddr>, u16, bool), Span> = BTreeMap::new();
    for service in &compose.services {
        for port in &service.ports {
            let Some((first, last)) = port.published else { continue };
            if service.replicas > u32::from(last - first) + 1 {
                let message = format!("{} replicas cannot share the port {first}", service.replicas);
                ctx.error(Code::Conflict, port.at, message)
                    .help("publish a range with a port for each, such as \"8000-8009:80\", or none: within a network the name is enough");
            }
            if first != last {
                continue;
            }
            if let Some(other) =
                taken.insert((port.host, first, port.udp), port.at).filter(|at| *at != port.at)
            {
                let place = ctx.place(other);
                ctx.error(Code::DuplicateName, port.at, format!("the port {first} is published twice"))
                    .relate(place, "the other one")
                    .help("an engine would refuse the second one: choose another port of the host");
            }
        }
    }
}

/// Node names are unique also with replicas.
fn instances(ctx: &mut Ctx, compose: &Compose) {
    let mut taken: BTreeMap<String, Span> = BTreeMap::new();
    for service in &compose.services {
        if service.container_name.is_some() && service.replicas > 1 {
            let span = service.at;
            ctx.error(Code::Conflict, span, "several replicas cannot have one `container_name`");
        }
        let container = service.container_name.iter().filter(|name| **name != service.name).cloned();
        for name in service.instances().into_iter().chain(container) {
            if let Some(first) = taken.insert(name.clone(), service.at) {
                let span = service.at;
                let place = ctx.place(first);
                ctx.error(Code::DuplicateName, span, format!("two nodes are named {}", quoted(&name)))
                    .relate(place, "the other one");
            }
        }
    }
}

/// Dependencies exist and can come to hold.
fn dependencies(ctx: &mut Ctx, compose: &mut Compose) {
    let left_out = compose.spare_names();
    let names: Vec<String> = compose.services.iter().map(|s| s.name.clone()).collect();
    // What an image has is known only when it has been read.
    let may_check = |s: &super::Service| match &s.healthcheck {
        HealthcheckSetting::Own(_) => true,
        HealthcheckSetting::Inherited(_) => s.rootfs == Rootfs::Image,
        HealthcheckSetting::Disabled => false,
    };
    let checked: Vec<(String, bool)> =
        compose.services.iter().map(|s| (s.name.clone(), may_check(s))).collect();
    for service in &mut compose.services {
        let exists = |name: &String| names.contains(name);
        service
            .depends_on
            .retain(|d| !left_out.contains(&d.service.value) && (d.required || exists(&d.service.value)));
        for dependency in &service.depends_on {
            let name = &dependency.service.value;
            let Some((_, has_check)) = checked.iter().find(|(other, _)| other == name) else {
                ctx.error(
                    Code::UnknownService,
                    dependency.service.span,
                    format!("no service {} to depend on", quoted(name)),
                )
                .suggest(nearest(name, &names));
                continue;
            };
            if dependency.condition == Condition::Healthy && !has_check {
                let message = format!("the service {} has no `healthcheck`", quoted(name));
                ctx.error(Code::MissingKey, dependency.service.span, message)
                    .help("the condition `service_healthy` could never hold");
            }
        }
    }
}

/// Puts every service after its dependencies, or reports a circle.
fn order(ctx: &mut Ctx, compose: &mut Compose) {
    let services = &compose.services;
    let index = |name: &str| services.iter().position(|s| s.name == name);
    let edges: Vec<Vec<(usize, Span)>> = services
        .iter()
        .map(|s| {
            let known = |d: &super::types::Dependency| Some((index(&d.service.value)?, d.service.span));
            s.depends_on.iter().filter_map(known).collect()
        })
        .collect();
    let mut done = vec![false; services.len()];
    let mut order = Vec::new();
    while order.len() < services.len() {
        let ready = |i: &usize| !done[*i] && edges[*i].iter().all(|(d, _)| done[*d]);
        match (0..services.len()).find(ready) {
            Some(next) => {
                done[next] = true;
                order.push(next);
            }
            None => {
                let names: Vec<&str> = services.iter().map(|s| s.name.as_str()).collect();
                circle(ctx, &names, &edges, &done);
                return;
            }
        }
    }
    compose.start_order = order;
}

/// Reports the circle that the first stuck service leads into.
fn circle(ctx: &mut Ctx, names: &[&str], edges: &[Vec<(usize, Span)>], done: &[bool]) {
    let mut path: Vec<(usize, Span)> = Vec::new();
    // Each service that is stuck has a dependency that is stuck: following the first one ends in a circle.
    let Some(mut at) = done.iter().position(|done| !done) else { return };
    loop {
        let Some((next, span)) = edges[at].iter().find(|(d, _)| !done[*d]) else { return };
        if let Some(start) = path.iter().position(|(i, _)| *i == at) {
            let (_, first) = path[start];
            let mut round: Vec<&str> = path[start..].iter().map(|(i, _)| names[*i]).collect();
            round.push(names[at]);
            let message = format!("services depend on each other in a circle: {}", round.join(" -> "));
            ctx.error(Code::DependencyCycle, first, message).label("the circle begins here");
            return;
        }
        path.push((at, *span));
        at = *next;
    }
}

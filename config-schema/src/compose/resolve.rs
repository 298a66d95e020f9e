//! What concerns several services: networks, dependencies, names, addresses, and the order of starting.
//!
//! Key function: [`resolve`]. The order is that of the file, moved only as far as dependencies demand.

use std::collections::BTreeMap;

use crate::decode::Ctx;
use crate::diagnostic::{Code, quoted};
use crate::suggest::nearest;
use crate::tree::{Span, Spot};

use super::network::{contains, overlap};
use super::types::{Attachment, Compose, Condition, MountSource, Network};

/// Completes and checks a decoded file. `left_out` are services whose profile is not active.
pub(super) fn resolve(ctx: &mut Ctx, compose: &mut Compose, left_out: &[String]) {
    attach(ctx, compose);
    subnets(ctx, compose);
    addresses(ctx, compose);
    instances(ctx, compose);
    dependencies(ctx, compose, left_out);
    order(ctx, compose);
    volumes(ctx, compose);
}

/// A volume of several nodes would be memory shared between machines, which is not modelled.
fn volumes(ctx: &mut Ctx, compose: &Compose) {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    for service in &compose.services {
        for mount in &service.mounts {
            let MountSource::Volume(name) = &mount.source else { continue };
            let user = *first.entry(name).or_insert(&service.name);
            if user != service.name {
                let span = span_at(ctx, mount.at, name.len());
                let (name, who) = (quoted(name), format!("{} and {}", quoted(user), quoted(&service.name)));
                ctx.error(Code::ComposeNotSupported, span, format!("the volume {name} is used by {who}"))
                    .help("a volume shared by several services is not available yet; give each its own");
            }
        }
    }
}

/// Every service without networks is in `default`; every network that is named is declared.
fn attach(ctx: &mut Ctx, compose: &mut Compose) {
    let top = Spot { line: 1, column: 1 };
    let names: Vec<String> = compose.networks.iter().map(|n| n.name.clone()).collect();
    let mut default_used = false;
    for service in &mut compose.services {
        if service.networks.is_empty() {
            let network = "default".to_owned();
            service.networks.push(Attachment { network, aliases: Vec::new(), ipv4: None, at: service.at });
        }
        for attachment in &service.networks {
            if names.contains(&attachment.network) {
                continue;
            }
            if attachment.network == "default" {
                default_used = true;
                continue;
            }
            let span = span_at(ctx, attachment.at, attachment.network.len());
            let message = format!("the network {} is not declared", quoted(&attachment.network));
            ctx.error(Code::UnknownResource, span, message)
                .help("declare it under the top-level key `networks`")
                .suggest(nearest(&attachment.network, &names));
        }
    }
    if default_used {
        compose.networks.push(Network { name: "default".to_owned(), subnet: None, gateway: None, at: top });
    }
}

fn span_at(ctx: &Ctx, at: Spot, length: usize) -> Span {
    let start = ctx.source.offset(at);
    Span { start, end: start + length }
}

/// No address belongs to two networks.
fn subnets(ctx: &mut Ctx, compose: &Compose) {
    for (index, network) in compose.networks.iter().enumerate() {
        let Some(own) = network.subnet else { continue };
        let earlier = &compose.networks[..index];
        let same = earlier.iter().find(|other| other.subnet.is_some_and(|subnet| overlap(subnet, own)));
        let Some(other) = same else { continue };
        let span = span_at(ctx, network.at, network.name.len());
        let place = ctx.source.place(span_at(ctx, other.at, other.name.len()));
        let names = (quoted(&network.name), quoted(&other.name));
        ctx.error(Code::Conflict, span, format!("the subnets of {} and {} overlap", names.0, names.1))
            .relate(place, "the other network")
            .help("give each network a subnet of its own, or none");
    }
}

/// Fixed addresses are in their network's subnet, and no two services have the same one.
fn addresses(ctx: &mut Ctx, compose: &Compose) {
    let mut taken: BTreeMap<(&str, std::net::Ipv4Addr), Spot> = BTreeMap::new();
    for service in &compose.services {
        for attachment in &service.networks {
            let Some(ip) = attachment.ipv4 else { continue };
            let span = span_at(ctx, attachment.at, attachment.network.len());
            let network = compose.networks.iter().find(|n| n.name == attachment.network);
            match network.map(|n| (n.subnet, n.gateway)) {
                Some((Some(subnet), _)) if !contains(subnet, ip) => {
                    let (net, prefix) = subnet;
                    let message = format!("{ip} is not in the network's subnet {net}/{prefix}");
                    ctx.error(Code::OutOfRange, span, message);
                }
                Some((Some(_), Some(gateway))) if gateway == ip => {
                    ctx.error(Code::Conflict, span, format!("{ip} is the network's gateway"));
                }
                Some((None, _)) => {
                    ctx.error(Code::MissingKey, span, "a fixed address needs a network with a subnet")
                        .help("add ipam: {config: [{subnet: 10.5.0.0/16}]} to the network");
                }
                _ => {}
            }
            if service.replicas > 1 {
                ctx.error(Code::Conflict, span, "several replicas cannot have one address");
            }
            if let Some(first) = taken.insert((&attachment.network, ip), attachment.at) {
                let place = ctx.source.place(span_at(ctx, first, 1));
                ctx.error(Code::DuplicateName, span, format!("{ip} is used twice")).relate(place, "first");
            }
        }
    }
}

/// Node names are unique also with replicas.
fn instances(ctx: &mut Ctx, compose: &Compose) {
    let mut taken: BTreeMap<String, Spot> = BTreeMap::new();
    for service in &compose.services {
        if service.container_name.is_some() && service.replicas > 1 {
            let span = span_at(ctx, service.at, service.name.len());
            ctx.error(Code::Conflict, span, "several replicas cannot have one `container_name`");
        }
        let container = service.container_name.iter().filter(|name| **name != service.name).cloned();
        for name in service.instances().into_iter().chain(container) {
            if let Some(first) = taken.insert(name.clone(), service.at) {
                let span = span_at(ctx, service.at, service.name.len());
                let place = ctx.source.place(span_at(ctx, first, 1));
                ctx.error(Code::DuplicateName, span, format!("two nodes are named {}", quoted(&name)))
                    .relate(place, "the other one");
            }
        }
    }
}

/// Dependencies exist and can come to hold.
fn dependencies(ctx: &mut Ctx, compose: &mut Compose, left_out: &[String]) {
    let names: Vec<String> = compose.services.iter().map(|s| s.name.clone()).collect();
    let checked: Vec<(String, bool)> =
        compose.services.iter().map(|s| (s.name.clone(), s.healthcheck.is_some())).collect();
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

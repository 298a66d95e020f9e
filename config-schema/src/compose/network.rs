//! Networks of a compose file and the services' places in them.
//!
//! Key type: [`Network`]. Key functions: [`declared`] for the top-level section, [`attachments`] for a service.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::decode::Ctx;
use crate::diagnostic::{Code, quoted};
use crate::tree::{Entry, Node, Span, Value};

use super::keys;
use super::types::{Attachment, ExtraHost, Link, NetworkMode};

/// A network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Its name in the file.
    pub name: String,
    /// Address and prefix length from which nodes get their addresses.
    pub subnet: Option<(Ipv4Addr, u8)>,
    /// An address that no node gets.
    pub gateway: Option<Ipv4Addr>,
    /// The part of the subnet from which addresses are given out.
    pub range: Option<(Ipv4Addr, u8)>,
    /// Whether nodes have IPv6 addresses.
    pub ipv6: bool,
    /// Address and prefix length from which nodes get their IPv6 addresses.
    pub subnet6: Option<(Ipv6Addr, u8)>,
    /// An address that no node gets.
    pub gateway6: Option<Ipv6Addr>,
    /// Addresses that no node gets.
    pub reserved: Vec<IpAddr>,
    /// Whether it has no way to the outside.
    pub internal: bool,
    /// Where it is declared; the service that uses it for `default`.
    pub at: Span,
}

impl Network {
    /// A network of which only the name is known.
    pub fn new(name: String, at: Span) -> Network {
        Network {
            name,
            subnet: None,
            gateway: None,
            range: None,
            ipv6: false,
            subnet6: None,
            gateway6: None,
            reserved: Vec::new(),
            internal: false,
            at,
        }
    }
}

/// The section `networks`.
pub(super) fn declared(ctx: &mut Ctx, node: &Node) -> Vec<Network> {
    let Some(entries) = ctx.entries(node, "networks") else { return Vec::new() };
    let mut networks = Vec::new();
    for entry in entries.iter().filter(|entry| !entry.key.starts_with("x-")) {
        let path = format!("networks.{}", entry.key);
        let mut network = Network::new(entry.key.clone(), entry.key_span);
        for field in keys::open(ctx, &entry.value, &path, "networks.*").map_or(&[][..], |f| f.entries) {
            let (node, path) = (&field.value, format!("{path}.{}", field.key));
            if node.is_null() {
                continue;
            }
            match field.key.as_str() {
                "ipam" => drop(ipam(ctx, node, &path, &mut network)),
                "internal" => network.internal = ctx.bool(node, &path).unwrap_or(false),
                "enable_ipv6" => network.ipv6 = ctx.bool(node, &path).unwrap_or(false),
                "driver" => driver(ctx, node, &path),
                _ => {}
            }
        }
        network.ipv6 |= network.subnet6.is_some();
        networks.push(network);
    }
    networks
}

/// Drivers differ in how they carry packets between machines; `host` and `none` are no networks of containers.
fn driver(ctx: &mut Ctx, node: &Node, path: &str) {
    let Some(driver) = ctx.name(node, path) else { return };
    if matches!(&*driver, "host" | "none") {
        ctx.error(Code::ComposeNotSupported, node.span, format!("the network driver {} is not available", quoted(&driver)))
            .help("the simulated network has no host's side: remove `driver`, or use `network_mode: none` at the service");
    }
}

fn ipam(ctx: &mut Ctx, node: &Node, path: &str, network: &mut Network) -> Option<()> {
    let fields = keys::open(ctx, node, path, "networks.*.ipam")?;
    let list = fields.node("config")?;
    let path = fields.path("config");
    for item in ctx.list(list, &path)? {
        let fields = keys::open(ctx, item, &path, "networks.*.ipam.config[]")?;
        let text = fields.get(ctx, "subnet", Ctx::string);
        let span = fields.node("subnet").map_or(item.span, |n| n.span);
        let (four, six) = text.as_deref().map_or((None, None), |text| (subnet(text), subnet6(text)));
        if let Some(text) = text.as_deref().filter(|_| four.is_none() && six.is_none()) {
            ctx.error(Code::Malformed, span, format!("`{path}.subnet` cannot be {}", quoted(text)))
                .help("write a subnet such as 10.5.0.0/16 or fd00:5::/64");
        }
        let gateway = fields.get(ctx, "gateway", any_address);
        let range = fields.get(ctx, "ip_range", Ctx::string);
        if let Some(node) = fields.node("aux_addresses").filter(|n| !n.is_null()) {
            for entry in ctx.entries(node, &fields.path("aux_addresses"))? {
                network.reserved.extend(any_address(ctx, &entry.value, &fields.path("aux_addresses")));
            }
        }
        // A second entry of a family adds addresses: the first one counts.
        if network.subnet.is_none() && four.is_some() {
            network.subnet = four;
            network.gateway = gateway.and_then(|ip| if let IpAddr::V4(ip) = ip { Some(ip) } else { None });
            let node = fields.node("ip_range").map_or(span, |n| n.span);
            network.range = range.and_then(|text| ip_range(ctx, &text, node, four));
        } else if network.subnet6.is_none() && six.is_some() {
            network.subnet6 = six;
            network.gateway6 = gateway.and_then(|ip| if let IpAddr::V6(ip) = ip { Some(ip) } else { None });
        }
    }
    Some(())
}

/// The part of a subnet from which an engine gives out addresses.
fn ip_range(ctx: &mut Ctx, text: &str, span: Span, of: Option<(Ipv4Addr, u8)>) -> Option<(Ipv4Addr, u8)> {
    let parsed = text.split_once('/').and_then(|(address, prefix)| {
        let prefix = prefix.parse::<u8>().ok().filter(|prefix| (1..=32).contains(prefix))?;
        let address = address.parse::<Ipv4Addr>().ok()?;
        Some((Ipv4Addr::from(u32::from(address) & mask(prefix)), prefix))
    });
    let inside = parsed.filter(|range| of.is_some_and(|of| of.1 <= range.1 && contains(of, range.0)));
    if inside.is_none() {
        ctx.error(
            Code::Malformed,
            span,
            format!("the range {} is no part of the network's subnet", quoted(text)),
        )
        .help("write a smaller subnet of `subnet`, such as 10.5.1.0/24 of 10.5.0.0/16");
    }
    inside
}

/// `a.b.c.d/prefix` with at least two addresses for nodes.
fn subnet(text: &str) -> Option<(Ipv4Addr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let prefix = prefix.parse::<u8>().ok().filter(|prefix| (1..=30).contains(prefix))?;
    let address = address.parse::<Ipv4Addr>().ok()?;
    Some((Ipv4Addr::from(u32::from(address) & mask(prefix)), prefix))
}

/// `a:b::/prefix` with at least two addresses for nodes.
fn subnet6(text: &str) -> Option<(Ipv6Addr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let prefix = prefix.parse::<u8>().ok().filter(|prefix| (1..=126).contains(prefix))?;
    let address = address.parse::<Ipv6Addr>().ok()?;
    Some((Ipv6Addr::from(u128::from(address) & mask6(prefix)), prefix))
}

fn mask6(prefix: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0)
}

/// Whether an address belongs to a subnet.
pub(super) fn contains6(subnet: (Ipv6Addr, u8), address: Ipv6Addr) -> bool {
    u128::from(address) & mask6(subnet.1) == u128::from(subnet.0)
}

fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0)
}

/// Whether an address belongs to a subnet.
pub(super) fn contains(subnet: (Ipv4Addr, u8), address: Ipv4Addr) -> bool {
    u32::from(address) & mask(subnet.1) == u32::from(subnet.0)
}

/// Whether two subnets have addresses in common.
pub fn overlap(a: (Ipv4Addr, u8), b: (Ipv4Addr, u8)) -> bool {
    let (wide, narrow) = if a.1 <= b.1 { (a, b) } else { (b, a) };
    contains(wide, narrow.0)
}

/// Whether two subnets of IPv6 have addresses in common.
pub fn overlap6(a: (Ipv6Addr, u8), b: (Ipv6Addr, u8)) -> bool {
    let (wide, narrow) = if a.1 <= b.1 { (a, b) } else { (b, a) };
    contains6(wide, narrow.0)
}

fn address(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Ipv4Addr> {
    let text = ctx.string(node, path)?;
    let parsed = text.parse().ok();
    if parsed.is_none() {
        ctx.error(Code::Malformed, node.span, format!("`{path}` cannot be {}", quoted(&text)))
            .help("write an IPv4 address such as 10.5.0.2");
    }
    parsed
}

fn address6(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Ipv6Addr> {
    let text = ctx.string(node, path)?;
    let parsed = text.parse().ok();
    if parsed.is_none() {
        ctx.error(Code::Malformed, node.span, format!("`{path}` cannot be {}", quoted(&text)))
            .help("write an IPv6 address such as fd00:5::2");
    }
    parsed
}

/// An address of either family.
pub(super) fn any_address(ctx: &mut Ctx, node: &Node, path: &str) -> Option<IpAddr> {
    let text = ctx.string(node, path)?;
    let parsed = text.trim_matches(['[', ']']).parse().ok();
    if parsed.is_none() {
        ctx.error(Code::Malformed, node.span, format!("`{path}` cannot be {}", quoted(&text)))
            .help("write an address such as 10.5.0.2 or fd00:5::2");
    }
    parsed
}

/// One address or a list of addresses.
pub(super) fn addresses(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<IpAddr>> {
    let items = match &node.value {
        Value::Scalar(_) => std::slice::from_ref(node),
        _ => ctx.list(node, path)?,
    };
    Some(items.iter().filter_map(|item| any_address(ctx, item, path)).collect())
}

/// `networks` of a service: a list of names or a mapping.
pub(super) fn attachments(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<Attachment>> {
    let mut out: Vec<Attachment> = Vec::new();
    if let Value::Seq(items) = &node.value {
        for item in items {
            let Some(name) = ctx.name(item, path) else { continue };
            if out.iter().any(|a| a.network == name) {
                ctx.error(Code::DuplicateName, item.span, format!("{} is listed twice", quoted(&name)));
            }
            out.push(Attachment::new(name, item.span));
        }
        return Some(out);
    }
    let Value::Map(entries) = &node.value else {
        ctx.wrong_type(node, path, "a list or a mapping");
        return None;
    };
    for entry in entries {
        out.push(attachment(ctx, entry, &format!("{path}.{}", entry.key)));
    }
    // A stable order: by descending priority, then as written.
    out.sort_by_key(|a| std::cmp::Reverse(a.priority.0));
    Some(out)
}

fn attachment(ctx: &mut Ctx, entry: &Entry, path: &str) -> Attachment {
    let mut attachment = Attachment::new(entry.key.clone(), entry.key_span);
    for field in keys::open(ctx, &entry.value, path, "services.*.networks.*").map_or(&[][..], |f| f.entries) {
        let (node, path) = (&field.value, format!("{path}.{}", field.key));
        if node.is_null() {
            continue;
        }
        match field.key.as_str() {
            "aliases" => attachment.aliases = names(ctx, node, &path),
            "ipv4_address" => attachment.ipv4 = address(ctx, node, &path),
            "ipv6_address" => attachment.ipv6 = address6(ctx, node, &path),
            "priority" => attachment.priority.0 = number(ctx, node, &path),
            "gw_priority" => attachment.priority.1 = number(ctx, node, &path),
            "use_service_name_alias" => attachment.by_name = ctx.bool(node, &path).unwrap_or(true),
            "interface_name" => attachment.interface = ctx.name(node, &path),
            _ => {}
        }
    }
    attachment
}

fn number(ctx: &mut Ctx, node: &Node, path: &str) -> i64 {
    let Some(text) = ctx.text(node, path) else { return 0 };
    text.parse().unwrap_or_else(|_| {
        ctx.wrong_type(node, path, "a whole number");
        0
    })
}

/// `network_mode`.
pub(super) fn mode(ctx: &mut Ctx, node: &Node, path: &str) -> Option<NetworkMode> {
    let text = ctx.name(node, path)?;
    match text.split_once(':') {
        Some(("service", name)) => Some(NetworkMode::Service(ctx.located(name.to_owned(), node.span))),
        // Which service has it is known when all are.
        Some(("container", _)) => Some(NetworkMode::Service(ctx.located(text, node.span))),
        None if matches!(&*text, "bridge" | "default") => Some(NetworkMode::Networks),
        None if text == "none" => Some(NetworkMode::None),
        _ => {
            let message = format!("the network mode {} is not supported", quoted(&text));
            let help = match text.as_str() {
                "host" => {
                    "the network of the machine that runs the containers is not simulated: remove it, and let the \
                     others reach the service by its name"
                }
                _ => "write `bridge`, `none` or `service:NAME`",
            };
            ctx.error(Code::ComposeNotSupported, node.span, message).help(help);
            None
        }
    }
}

/// `links` of a service: `service` or `service:alias`.
pub(super) fn links(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<Link>> {
    let mut out = Vec::new();
    for item in ctx.list(node, path)? {
        let Some(text) = ctx.name(item, path) else { continue };
        let (name, alias) = text.split_once(':').unwrap_or((&text, &text));
        out.push(Link { service: ctx.located(name.to_owned(), item.span), alias: alias.to_owned() });
    }
    Some(out)
}

/// `extra_hosts`: `name=address` or `name:address` in a list, or a mapping of names to one or several addresses.
pub(super) fn extra_hosts(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<(String, ExtraHost)>> {
    let mut out = Vec::new();
    match &node.value {
        Value::Seq(items) => {
            for item in items {
                let Some(text) = ctx.name(item, path) else { continue };
                // The form with `=` was added because addresses of IPv6 have colons.
                match text.split_once('=').or_else(|| text.split_once(':')) {
                    Some((name, address)) => out.extend(host(ctx, item, path, name.trim(), address.trim())),
                    None => {
                        ctx.error(Code::Malformed, item.span, format!("`{path}` cannot have {}", quoted(&text)))
                            .help("write name=address, such as \"db=10.5.0.9\" or \"host.docker.internal=host-gateway\"");
                    }
                }
            }
        }
        Value::Map(entries) => {
            for entry in entries {
                let items = match &entry.value.value {
                    Value::Seq(items) => items.as_slice(),
                    _ => std::slice::from_ref(&entry.value),
                };
                for item in items {
                    let Some(text) = ctx.name(item, path) else { continue };
                    out.extend(host(ctx, item, path, &entry.key, &text));
                }
            }
        }
        Value::Scalar(_) => ctx.wrong_type(node, path, "a list or a mapping"),
    }
    Some(out)
}

fn host(ctx: &mut Ctx, node: &Node, path: &str, name: &str, address: &str) -> Option<(String, ExtraHost)> {
    if address == "host-gateway" {
        return Some((name.to_owned(), ExtraHost::Gateway));
    }
    let parsed = address.trim_matches(['[', ']']).parse().ok();
    if parsed.is_none() || name.is_empty() {
        ctx.error(
            Code::Malformed,
            node.span,
            format!("`{path}` cannot have the address {}", quoted(address)),
        )
        .help("write an address such as 10.5.0.9 or fd00:5::9, or host-gateway");
    }
    Some((name.to_owned(), ExtraHost::Address(parsed?)))
}

/// A list of names; one name stands for a list of it.
pub(super) fn names(ctx: &mut Ctx, node: &Node, path: &str) -> Vec<String> {
    let items = match &node.value {
        Value::Scalar(_) if !node.is_null() => std::slice::from_ref(node),
        _ => ctx.list(node, path).unwrap_or_default(),
    };
    items.iter().filter_map(|item| ctx.name(item, path)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subnets() {
        let net = subnet("10.5.3.9/16").unwrap();
        assert_eq!(net, (Ipv4Addr::new(10, 5, 0, 0), 16));
        assert!(contains(net, Ipv4Addr::new(10, 5, 255, 1)));
        assert!(!contains(net, Ipv4Addr::new(10, 6, 0, 1)));
        assert!(
            overlap(net, (Ipv4Addr::new(10, 0, 0, 0), 8)) && overlap((Ipv4Addr::new(10, 5, 7, 0), 24), net)
        );
        assert!(!overlap(net, (Ipv4Addr::new(10, 6, 0, 0), 24)));
        for text in ["10.5.0.0", "10.5.0.0/33", "10.5.0.0/0", "x/8", "fd00::/8"] {
            assert_eq!(subnet(text), None, "{text}");
        }
    }
}

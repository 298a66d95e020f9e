//! Networks of a compose file and the services' places in them.
//!
//! Key functions: [`declared`] for the top-level section, [`attachments`] for a service.

use std::net::Ipv4Addr;

use crate::decode::Ctx;
use crate::diagnostic::{Code, quoted};
use crate::tree::{Node, Value};

use super::types::{Attachment, Network, Volume};
use super::{graded_fields, keys};

/// The section `networks`.
pub(super) fn declared(ctx: &mut Ctx, node: &Node) -> Vec<Network> {
    let Some(entries) = ctx.entries(node, "networks") else { return Vec::new() };
    let mut networks = Vec::new();
    for entry in entries.iter().filter(|entry| !entry.key.starts_with("x-")) {
        let path = format!("networks.{}", entry.key);
        let known = (keys::NETWORK, keys::NETWORK_NO_EFFECT, keys::NETWORK_NOT_MODELLED);
        let mut network = Network {
            name: entry.key.clone(),
            subnet: None,
            gateway: None,
            at: ctx.source.spot(entry.key_span.start),
        };
        if let Some(fields) = graded_fields(ctx, &entry.value, &path, known)
            && let Some(node) = fields.iter().find(|e| e.key == "ipam")
        {
            ipam(ctx, &node.value, &format!("{path}.ipam"), &mut network);
        }
        networks.push(network);
    }
    networks
}

fn ipam(ctx: &mut Ctx, node: &Node, path: &str, network: &mut Network) -> Option<()> {
    let fields = ctx.fields(node, path, keys::IPAM)?;
    let list = fields.node("config")?;
    let path = fields.path("config");
    for item in ctx.list(list, &path)? {
        let fields = ctx.fields(item, &path, keys::IPAM_CONFIG)?;
        let subnet = fields.get(ctx, "subnet", |c, n, p| {
            let text = c.string(n, p)?;
            let parsed = subnet(&text);
            if parsed.is_none() && !text.contains(':') {
                c.error(Code::Malformed, n.span, format!("`{p}` cannot be {}", quoted(&text)))
                    .help("write an IPv4 subnet such as 10.5.0.0/16");
            }
            parsed
        });
        let gateway = fields.get(ctx, "gateway", address);
        // A second entry is for IPv6 or adds addresses: the first IPv4 one counts.
        if network.subnet.is_none() {
            network.subnet = subnet;
            network.gateway = gateway;
        }
    }
    Some(())
}

/// `a.b.c.d/prefix` with at least two addresses for nodes.
fn subnet(text: &str) -> Option<(Ipv4Addr, u8)> {
    let (address, prefix) = text.split_once('/')?;
    let prefix = prefix.parse::<u8>().ok().filter(|prefix| (1..=30).contains(prefix))?;
    let address = address.parse::<Ipv4Addr>().ok()?;
    Some((Ipv4Addr::from(u32::from(address) & mask(prefix)), prefix))
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

fn address(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Ipv4Addr> {
    let text = ctx.string(node, path)?;
    let parsed = text.parse().ok();
    if parsed.is_none() {
        ctx.error(Code::Malformed, node.span, format!("`{path}` cannot be {}", quoted(&text)))
            .help("write an IPv4 address such as 10.5.0.2");
    }
    parsed
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
            let at = ctx.source.spot(item.span.start);
            out.push(Attachment { network: name, aliases: Vec::new(), ipv4: None, at });
        }
        return Some(out);
    }
    let Value::Map(entries) = &node.value else {
        ctx.wrong_type(node, path, "a list or a mapping");
        return None;
    };
    for entry in entries {
        let path = format!("{path}.{}", entry.key);
        let at = ctx.source.spot(entry.key_span.start);
        let mut attachment = Attachment { network: entry.key.clone(), aliases: Vec::new(), ipv4: None, at };
        let known = (keys::ATTACHMENT, &[][..], keys::ATTACHMENT_NOT_MODELLED);
        for field in graded_fields(ctx, &entry.value, &path, known).unwrap_or_default() {
            let path = format!("{path}.{}", field.key);
            match field.key.as_str() {
                "aliases" => attachment.aliases = names(ctx, &field.value, &path),
                "ipv4_address" => attachment.ipv4 = address(ctx, &field.value, &path),
                _ => {}
            }
        }
        out.push(attachment);
    }
    Some(out)
}

/// A list of names.
pub(super) fn names(ctx: &mut Ctx, node: &Node, path: &str) -> Vec<String> {
    let items = ctx.list(node, path).unwrap_or_default();
    items.iter().filter_map(|item| ctx.name(item, path)).collect()
}

/// The section `volumes`.
pub(super) fn volumes(ctx: &mut Ctx, node: &Node) -> Vec<Volume> {
    let Some(entries) = ctx.entries(node, "volumes") else { return Vec::new() };
    let mut volumes = Vec::new();
    for entry in entries.iter().filter(|entry| !entry.key.starts_with("x-")) {
        let path = format!("volumes.{}", entry.key);
        let known = (&[][..], keys::VOLUME_NO_EFFECT, keys::VOLUME_NOT_MODELLED);
        graded_fields(ctx, &entry.value, &path, known);
        volumes.push(Volume { name: entry.key.clone(), at: ctx.source.spot(entry.key_span.start) });
    }
    volumes
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

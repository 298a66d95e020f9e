//! Classes of nodes: which are alike up to their names, and which node an address belongs to.
//!
//! Key types: [`Classes`], [`Class`]. Services that run the same command with variables of the same names (those of an image are among them) are of one
//! class, whatever they are called, so that a feature says "a replica" and not "replica 2": what happens with the roles exchanged is nothing new. Clients of the workload are one class, and so are
//! the prober and the nodes of scripts.

use std::net::IpAddr;

use bloodhound_abi::digest::content;
use bloodhound_net::NodeId;
use bloodhound_sim::scenario::{Scenario, ServiceSpec};

use super::table::mix;
use super::template::Templates;

/// A class of nodes: its hash. 0 for addresses of nobody.
pub type Class = u64;

/// The class of each node.
#[derive(Clone, Debug)]
pub struct Classes {
    /// Nodes in order, with their classes and the names of these.
    nodes: Vec<(NodeId, Class, String)>,
    /// Addresses in order.
    addresses: Vec<(IpAddr, NodeId)>,
    /// Those of services, in order: they are what a state of the world is made of.
    services: Vec<NodeId>,
    /// Takes names of nodes out of texts.
    pub templates: Templates,
}

impl Classes {
    /// The classes of a scenario.
    pub fn new(scenario: &Scenario) -> Classes {
        let all = || scenario.services.iter().chain(&scenario.helpers);
        let names = all().flat_map(|spec| [spec.name.clone(), spec.hostname.clone()]);
        let templates = Templates::new(names.map(String::into_bytes).collect());
        let mut nodes: Vec<(NodeId, Class, String)> = Vec::new();
        for spec in &scenario.services {
            let class = class(spec, &templates);
            // A class has the name of its first service.
            let known = nodes.iter().find(|(_, other, _)| *other == class).map(|(.., name)| name.clone());
            nodes.push((spec.node, class, known.unwrap_or_else(|| format!("{}~", spec.name))));
        }
        let services = nodes.iter().map(|(node, ..)| *node).collect();
        let mut addresses = Vec::new();
        for spec in all() {
            addresses.extend(spec.addresses.iter().map(|(ip, _)| (*ip, spec.node)));
        }
        let scripts =
            scenario.helpers.iter().map(|spec| (spec.node, content(b"script"), "script".to_owned()));
        nodes.extend(scripts);
        for (node, ip) in &scenario.clients {
            nodes.push((*node, content(b"client"), "client".to_owned()));
            addresses.push((*ip, *node));
        }
        if let Some((node, ip)) = scenario.prober {
            nodes.push((node, content(b"prober"), "prober".to_owned()));
            addresses.push((ip, node));
        }
        nodes.sort_unstable_by_key(|(node, ..)| *node);
        addresses.sort_unstable();
        Classes { nodes, addresses, services, templates }
    }

    /// The class of a node; 0 for one that is none of the scenario's.
    pub fn of(&self, node: Option<NodeId>) -> Class {
        self.find(node).map_or(0, |(_, class, _)| *class)
    }

    /// The name of its class.
    pub fn name(&self, node: Option<NodeId>) -> &str {
        self.find(node).map_or("-", |(.., name)| name)
    }

    /// Whose address it is.
    pub fn node(&self, ip: IpAddr) -> Option<NodeId> {
        let place = self.addresses.binary_search_by_key(&ip, |(ip, _)| *ip).ok()?;
        Some(self.addresses[place].1)
    }

    /// The services.
    pub fn services(&self) -> &[NodeId] {
        &self.services
    }

    fn find(&self, node: Option<NodeId>) -> Option<&(NodeId, Class, String)> {
        let node = node?;
        let place = self.nodes.binary_search_by_key(&node, |(node, ..)| *node).ok()?;
        Some(&self.nodes[place])
    }
}

/// What a service runs, without what names it. Root file systems say nothing: each service has its own.
fn class(spec: &ServiceSpec, templates: &Templates) -> Class {
    let mut out = Vec::new();
    let program = std::iter::once(&spec.program.path).chain(&spec.program.argv);
    let program = program.fold(0, |hash, part| {
        templates.of(part, &mut out);
        mix(hash, content(&out))
    });
    let name = |variable: &Vec<u8>| content(variable.split(|b| *b == b'=').next().unwrap_or_default());
    let mut names: Vec<u64> = spec.program.envp.iter().map(name).collect();
    names.sort_unstable();
    names.into_iter().fold(program, mix)
}

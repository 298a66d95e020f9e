//! What a real engine is told of each container beside the scenario: its image, its place in networks, its mounts by their names. The
//! simulation has all of this resolved further (trees, addresses); `live` makes containers of it.
//!
//! Key type: [`Placement`].

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use bloodhound_config::compose::{MountSource, Rootfs, Service};
use bloodhound_images::Image;
use bloodhound_net::NodeId;

use super::Planner;

/// A container as an engine is to make it.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Its number in the scenario.
    pub node: NodeId,
    /// The service's name in the compose file.
    pub service: String,
    /// Its image; `None`: it has another root file system, which no engine has.
    pub image: Option<Arc<Image>>,
    /// Its networks, that of the default route first.
    pub networks: Vec<InNetwork>,
    /// What is mounted into it.
    pub mounts: Vec<Mounted>,
    /// Names beside those of its networks: links.
    pub links: Vec<(String, NodeId)>,
}

/// A container's place in a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InNetwork {
    /// The network's name in the compose file.
    pub network: String,
    /// The addresses that it has in the simulation, with the lengths of their prefixes.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The names that others find it by.
    pub names: Vec<String>,
}

/// Something that is mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// What. An anonymous volume has become one with a name.
    pub source: MountSource,
    /// Where.
    pub target: String,
    /// Whether it cannot be written.
    pub read_only: bool,
    /// With a volume: it does not take over what the image has there.
    pub nocopy: bool,
    /// With a volume: the part of it that is mounted.
    pub subpath: Option<String>,
}

/// A script outside of the services, which has a container of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Helper {
    /// Its number in the scenario.
    pub node: NodeId,
    /// The directory of the script on this machine, and where the scenario has it.
    pub dir: (PathBuf, PathBuf),
}

impl Planner<'_> {
    /// All containers in the order of the scenario.
    pub(super) fn placements(&self) -> Vec<Placement> {
        self.instances().into_iter().map(|(service, name)| self.placement(service, &name)).collect()
    }

    fn placement(&self, service: &Service, name: &str) -> Placement {
        let node = self.ids[name];
        let mut networks: Vec<InNetwork> = Vec::new();
        for address in self.addresses.get(name).into_iter().flatten() {
            match networks.iter_mut().find(|of| of.network == address.network) {
                Some(of) => of.addresses.push((address.ip, address.prefix)),
                None => networks.push(InNetwork {
                    network: address.network.clone(),
                    addresses: vec![(address.ip, address.prefix)],
                    names: self.names_in(service, name, &address.network),
                }),
            }
        }
        let mut mounts: Vec<Mounted> = Vec::new();
        for placed in self.placed(service, name) {
            let source = match &placed.mount.source {
                MountSource::Anonymous => {
                    MountSource::Volume(format!("{}{}", placed.owner, placed.mount.target.replace('/', "_")))
                }
                other => other.clone(),
            };
            mounts.push(Mounted {
                source,
                target: placed.mount.target.clone(),
                read_only: placed.mount.read_only,
                nocopy: placed.mount.nocopy,
                subpath: placed.mount.subpath.clone(),
            });
        }
        for (dir, place) in self.script_mounts.get(&node).into_iter().flatten() {
            mounts.push(Mounted {
                source: MountSource::Bind(dir.clone()),
                target: place.display().to_string(),
                read_only: true,
                nocopy: false,
                subpath: None,
            });
        }
        let linked = |link: &bloodhound_config::compose::Link| {
            let instances = self.project.compose.service(&link.service.value)?.instances();
            Some((link.alias.clone(), *self.ids.get(instances.first()?)?))
        };
        let image = match service.rootfs {
            Rootfs::Image => self.images.of(service).and_then(|found| found.image.clone()),
            Rootfs::Host | Rootfs::Dir(_) => None,
        };
        Placement {
            node,
            service: service.name.clone(),
            image,
            networks,
            mounts,
            links: service.links.iter().filter_map(linked).collect(),
        }
    }
}

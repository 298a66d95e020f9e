//! Of what services are made by an upgrade (`faults.upgrades`): the service with another image, or what the compose file says of another one.
//!
//! Key type: [`Next`]. Only what a container is made of is taken: its place in networks, its names, its machine and what it depends on are
//! those of the service, whatever the other definition says.

use std::collections::BTreeMap;

use bloodhound_config::compose::{PullPolicy, Service};
use bloodhound_config::config::UpgradeTo;
use bloodhound_config::{Place, Project};
use bloodhound_net::NodeId;
use bloodhound_sim::faults::Upgraded;
use bloodhound_sim::scenario::ServiceSpec;

use super::{Planner, Refusal};

/// Of what a service is made after an upgrade.
#[derive(Clone, Debug)]
pub(super) struct Next {
    /// As if the compose file said this of it.
    pub(super) service: Service,
    /// The image's or the other service's name.
    name: String,
    /// Where that is written.
    pub(super) place: Place,
}

impl Next {
    /// Those of a project, by service.
    pub(super) fn all(project: &Project) -> BTreeMap<String, Next> {
        let (compose, source) = (&project.compose, &project.config.source);
        let one = |upgrade: &bloodhound_config::config::FaultUpgrade| {
            let first = compose.service(&upgrade.service.value)?;
            let (service, named) = match &upgrade.to {
                UpgradeTo::Image(image) => {
                    let (build, pull_policy) = (None, PullPolicy::Missing);
                    let service = Service { image: Some(image.clone()), build, pull_policy, ..first.clone() };
                    (service, image)
                }
                UpgradeTo::Service(other) => (compose.definition(&other.value)?.clone(), other),
            };
            let next = Next { service, name: named.value.clone(), place: named.place(source) };
            Some((first.name.clone(), next))
        };
        project.config.faults.upgrades.iter().filter_map(one).collect()
    }
}

impl Planner<'_> {
    /// What an upgrade makes of the instances of services.
    pub(super) fn upgrades(
        &self,
        services: &[ServiceSpec],
        refused: &mut Vec<Refusal>,
    ) -> BTreeMap<NodeId, Upgraded> {
        let mut upgrades = BTreeMap::new();
        for (service, name) in self.instances() {
            let first = services.iter().find(|spec| spec.node == self.ids[&name]);
            let (Some(next), Some(first)) = (self.next.get(&service.name), first) else { continue };
            if let Some(made) = self.made_of(&next.service, (&name, &first.hostname), refused) {
                let mut spec = made.in_place_of(first);
                self.collect(service, &mut spec);
                upgrades.insert(first.node, Upgraded { name: next.name.clone(), spec });
            }
        }
        upgrades
    }
}

//! The volumes that faults of disks name, and where services mount them.

use bloodhound_config::Located;
use bloodhound_config::compose::Service;
use bloodhound_net::NodeId;
use bloodhound_sim::faults::VolumePlaces;
use bloodhound_vfs::Volume;

use super::Planner;

impl Planner<'_> {
    /// All volumes that the faults of the configuration name, by name. Their numbers are their places.
    pub(super) fn volumes(&self) -> Vec<VolumePlaces> {
        let faults = &self.project.config.faults;
        let of_targets = faults.targets.values().flat_map(|targets| &targets.volumes);
        let of_schedule = faults.schedule.iter().filter_map(|entry| entry.volume.as_ref());
        let mut names: Vec<&String> = of_targets.chain(of_schedule).map(|name| &name.value).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().map(|name| self.places_of(name)).collect()
    }

    /// Where instances mount a volume, as they are at first and as an upgrade makes them.
    fn places_of(&self, name: &str) -> VolumePlaces {
        let mut places = Vec::new();
        let source = self.project.compose.volume_source(name);
        let mut add = |node: NodeId, service: &Service, instance: &str| {
            for placed in self.placed(service, instance) {
                let path = super::mounts::trimmed(&placed.mount.target).as_bytes().to_vec();
                if Some(&placed.mount.source) == source.as_ref() && !places.contains(&(node, path.clone())) {
                    places.push((node, path));
                }
            }
        };
        for (service, instance) in self.instances() {
            let node = self.ids[&instance];
            add(node, service, &instance);
            if let Some(next) = self.next.get(&service.name) {
                add(node, &next.service, &instance);
            }
        }
        VolumePlaces { name: name.to_owned(), places }
    }
}

/// The number of a volume that is one of these.
pub(super) fn number(volumes: &[VolumePlaces], name: &Located<String>) -> Option<Volume> {
    let place = volumes.iter().position(|volume| volume.name == name.value)?;
    Some(Volume(place as u32))
}

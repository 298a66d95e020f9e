//! The volumes that faults of disks name are there, and somebody mounts them.

use bloodhound_faults::Kind;

use super::Names;
use crate::compose::{MountSource, Service};
use crate::config::{FaultTrigger, ScheduledFault};
use crate::decode::Located;
use crate::diagnostic::{Code, Diagnostic, Severity, listed, quoted};
use crate::suggest::nearest;

impl Names<'_> {
    /// The volumes of `faults.targets`.
    pub(super) fn volumes(&mut self) {
        for volume in self.faults.targets.values().flat_map(|targets| &targets.volumes) {
            self.volume(volume);
        }
    }

    /// The volume of an entry of a schedule.
    pub(super) fn volume_of(&mut self, entry: &ScheduledFault) {
        let Some(volume) = &entry.volume else { return };
        self.volume(volume);
        // By their numbers operations are named of those that the kind may hit.
        let may_hit = |kind: Kind| {
            let only = self.faults.targets.get(&kind).map(|targets| &targets.volumes);
            only.is_none_or(|only| only.is_empty() || only.iter().any(|other| other.value == volume.value))
        };
        if matches!(entry.trigger, FaultTrigger::Nth(_)) && !may_hit(entry.kind) {
            let name = quoted(&volume.value);
            self.error(volume, format!("`faults.targets.{}` names other volumes than {name}", entry.kind));
        }
    }

    fn volume(&mut self, name: &Located<String>) {
        let place = self.source.place(name.span);
        let Some(source) = self.compose.volume_source(&name.value) else {
            let known: Vec<String> = self.compose.volumes.iter().map(|volume| volume.name.clone()).collect();
            let message = format!("no volume {} in {}", quoted(&name.value), self.compose.source.name);
            let mut d = Diagnostic::at(Code::UnknownResource, Severity::Error, place, message);
            if !known.is_empty() {
                d.help(format!("volumes: {}", listed(&known, "and")));
            }
            d.suggest(nearest(&name.value, &known).map(str::to_owned));
            self.diagnostics.push(d);
            return;
        };
        if let MountSource::Tmpfs { .. } = source {
            self.error(name, format!("the volume {} lies in memory, and on no disk", quoted(&name.value)));
            return;
        }
        let mounts = |service: &Service| service.mounts.iter().any(|mount| mount.source == source);
        // As services are at first, and as an upgrade makes them.
        if !self.compose.services.iter().chain(&self.compose.definitions).any(mounts) {
            self.error(name, format!("no service mounts the volume {}", quoted(&name.value)));
        }
    }
}

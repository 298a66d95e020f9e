//! What a configuration says of upgrades fits the compose file: `faults.upgrades`, and the faults that make use of it.

use bloodhound_faults::Kind;

use super::Names;
use crate::compose::Rootfs;
use crate::config::{FaultUpgrade, ScheduledFault, UpgradeTo};
use crate::decode::Located;
use crate::diagnostic::{Code, Diagnostic, Severity, listed, quoted};
use crate::suggest::nearest;

impl Names<'_> {
    /// The services that are upgraded, and of what they are made then.
    pub(super) fn upgrades(&mut self) {
        for upgrade in &self.faults.upgrades {
            self.service(&upgrade.service);
            match &upgrade.to {
                UpgradeTo::Image(_) => self.has_image(upgrade),
                UpgradeTo::Service(other) => self.definition(upgrade, other),
            }
        }
        self.in_groups();
    }

    /// Who gets another image has one.
    fn has_image(&mut self, upgrade: &FaultUpgrade) {
        let service = self.compose.service(&upgrade.service.value);
        if service.is_some_and(|service| service.rootfs != Rootfs::Image) {
            let name = quoted(&upgrade.service.value);
            self.error(&upgrade.service, format!("{name} has no image, so it cannot get another one"))
                .help("name a service of the compose file that it is to be like: `{service: NAME}`");
        }
    }

    /// Another definition is that of another service, which runs or does not.
    fn definition(&mut self, upgrade: &FaultUpgrade, other: &Located<String>) {
        if other.value == upgrade.service.value {
            let message = format!("{} is what it is already", quoted(&other.value));
            self.error(other, message).help("name another service, mostly one with a profile of its own");
            return;
        }
        let mut known = self.services.clone();
        known.extend(self.compose.spare_names());
        if !known.contains(&other.value) {
            let meant = nearest(&other.value, &known).map(str::to_owned);
            self.unknown(other.span, &other.value, meant);
        }
    }

    /// Seeds upgrade groups of services: warns of what is in none.
    fn in_groups(&mut self) {
        let faults = self.faults;
        let drawn =
            Kind::DECLARATIONS.iter().any(|kind| kind.changes_versions() && faults.kinds.is_on(kind.kind));
        if !drawn || faults.groups.is_empty() {
            return;
        }
        for upgrade in &faults.upgrades {
            let is_it = |member: &Located<String>| member.value == upgrade.service.value;
            if !faults.groups.iter().any(|group| group.services.iter().any(is_it)) {
                let place = self.source.place(upgrade.service.span);
                let name = quoted(&upgrade.service.value);
                let message = format!("{name} is in no group of `faults.groups`, so no seed upgrades it");
                let mut d = Diagnostic::at(Code::NothingToDo, Severity::Warning, place, message);
                d.help("add it to one: seeds upgrade a group at a time, its services one after the other");
                self.diagnostics.push(d);
            }
        }
    }

    /// Who is upgraded by an entry of a schedule can be.
    pub(super) fn can_be_upgraded(&mut self, entry: &ScheduledFault) {
        if !entry.kind.declaration().changes_versions() {
            return;
        }
        let known: Vec<&str> =
            self.faults.upgrades.iter().map(|upgrade| upgrade.service.value.as_str()).collect();
        for name in &entry.services {
            let group = self.faults.groups.iter().find(|group| group.name.value == name.value);
            let can_be = match group {
                Some(group) => group.services.iter().any(|member| known.contains(&member.value.as_str())),
                None => known.contains(&self.service_of(&name.value).as_str()),
            };
            if can_be {
                continue;
            }
            let what = if group.is_some() { "none of its services" } else { "nothing for it" };
            let message = format!("{} cannot be upgraded: `faults.upgrades` has {what}", quoted(&name.value));
            let d = self.error(name, message);
            match known.is_empty() {
                true => d.help("say of what it is made then: `upgrades: {kv: {image: kv:2}}`"),
                false => d.help(format!("services with an upgrade: {}", listed(&known, "and"))),
            };
        }
    }

    /// The service of which something is a replica, or the service itself.
    fn service_of(&self, name: &str) -> String {
        let is_replica = |instance: &String| instance == name;
        let mut services = self.compose.services.iter();
        let of = services.find(|service| service.instances().iter().any(is_replica));
        of.map_or_else(|| name.to_owned(), |service| service.name.clone())
    }
}

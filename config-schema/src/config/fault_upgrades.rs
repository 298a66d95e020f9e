//! Of what services are made by an upgrade while the stack runs.
//!
//! Key types: [`FaultUpgrade`], [`UpgradeTo`]. That services and definitions are there is checked with the compose file (`project/upgrades.rs`).

use bloodhound_declare::{Key, Section, Syntax, ValueKind};

use crate::decode::{Ctx, Located};
use crate::tree::Node;

use super::read::Settings;

/// Images or definitions by services.
pub(super) const UPGRADES: ValueKind = ValueKind::Own(&Syntax {
    name: "FaultUpgrades",
    written: "an image or a definition by service, such as `{kv: {image: kv:2}, web: {service: web-next}}`",
    plural: "",
    doc: "by service, of what it is made when it is upgraded: `image` is another image for it; `service` a service of the compose file, mostly one with a profile that is \
          not active, whose image, command, environment, mounts and the like it takes over",
    schema: r#"{"type": ["object", "null"], "additionalProperties": {"type": "object", "additionalProperties": false, "minProperties": 1,
        "maxProperties": 1, "properties": {"image": {"type": "string", "minLength": 1}, "service": {"type": "string", "minLength": 1}}}}"#,
    uses: &[],
});

static UPGRADE: Section = Section {
    name: "FaultUpgrade",
    doc: "of what a service is made when it is upgraded",
    keys: &[
        Key::new("image", ValueKind::Name("image"), "another image for the service"),
        Key::new("service", ValueKind::Name("service"), "a service of the compose file"),
    ],
    one_of: &["image", "service"],
};

/// A service that can be upgraded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultUpgrade {
    /// The service.
    pub service: Located<String>,
    /// Of what it is made then.
    pub to: UpgradeTo,
}

/// Of what a service is made by an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpgradeTo {
    /// The same with another image.
    Image(Located<String>),
    /// What the compose file says of another service, which needs not run.
    Service(Located<String>),
}

/// Reads `upgrades`.
pub(super) fn upgrades(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<FaultUpgrade>> {
    let mut upgrades = Vec::new();
    for entry in ctx.entries(node, path)? {
        let of_service = format!("{path}.{}", entry.key);
        let Some(settings) = Settings::open(ctx, &entry.value, &of_service, &UPGRADE) else { continue };
        let image = settings.get(ctx, "image").map(UpgradeTo::Image);
        let to = image.or(settings.get(ctx, "service").map(UpgradeTo::Service));
        let service = ctx.located(entry.key.clone(), entry.key_span);
        upgrades.extend(to.map(|to| FaultUpgrade { service, to }));
    }
    Some(upgrades)
}

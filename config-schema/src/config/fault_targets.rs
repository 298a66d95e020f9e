//! Whom the faults of a kind may hit: services, links between them, groups of them; and the groups, which fail together.
//!
//! Key types: [`FaultGroup`], [`FaultTargets`]. That the names are those of services or groups is checked with the compose file
//! (`project.rs`).

use std::collections::BTreeMap;

use bloodhound_declare::{Key, Section, Syntax, ValueKind};
use bloodhound_faults::{Kind, NAMES};

use crate::decode::{Ctx, Located};
use crate::diagnostic::Code;
use crate::tree::{Node, Value};

use super::properties::SERVICES;
use super::read::{Decode, Settings};

static SERVICE_LIST: ValueKind = SERVICES;

/// Services by names of groups.
pub(super) const GROUPS: ValueKind = ValueKind::Own(&Syntax {
    name: "FaultGroups",
    written: "lists of services by names of groups, such as `{rack-a: [kv1, kv2]}`",
    plural: "",
    doc: "services that fail together, by the name of each group",
    schema: r#"{"type": ["object", "null"], "additionalProperties":
        {"type": "array", "minItems": 1, "items": {"type": "string", "minLength": 1}}}"#,
    uses: &[],
});

/// Services, links or groups by kinds.
pub(super) const TARGETS: ValueKind = ValueKind::Own(&Syntax {
    name: "FaultTargets",
    written: "lists by kind, such as `{crash: [kv1, kv2], drop: [[kv1, kv2]], fsync-fail: [{volume: data}]}`",
    plural: "",
    doc: "for kinds of faults, the services or groups that they may hit; for faults of packets the links: each a pair of services or groups, \
          or one of them with all its links; for faults of disks also volumes",
    schema: r#"{"type": ["object", "null"], "additionalProperties":
        {"type": "array", "minItems": 1, "items": {"anyOf": [{"type": "string", "minLength": 1},
            {"type": "array", "minItems": 2, "maxItems": 2, "items": {"type": "string", "minLength": 1}},
            {"type": "object", "additionalProperties": false, "required": ["volume"], "properties": {"volume": {"type": "string", "minLength": 1}}}]}}}"#,
    uses: &[],
});

static VOLUME: Section = Section::new(
    "FaultVolume",
    "a volume that faults of disks may hit",
    &[Key::new("volume", ValueKind::Name("volume"), "its name in the compose file").required()],
);

/// Services that fail together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultGroup {
    /// Its name.
    pub name: Located<String>,
    /// The services.
    pub services: Vec<Located<String>>,
}

/// Whom a kind may hit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultTargets {
    /// Services and groups; for faults of packets with all their links.
    pub services: Vec<Located<String>>,
    /// Links between two services or groups, in both directions.
    pub links: Vec<(Located<String>, Located<String>)>,
    /// Volumes, in whichever services mount them.
    pub volumes: Vec<Located<String>>,
}

impl FaultTargets {
    /// All services and groups that are named.
    pub fn names(&self) -> impl Iterator<Item = &Located<String>> {
        self.services.iter().chain(self.links.iter().flat_map(|(a, b)| [a, b]))
    }
}

/// Reads `groups`.
pub(super) fn groups(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<FaultGroup>> {
    let mut groups = Vec::new();
    for entry in ctx.entries(node, path)? {
        let of_group = format!("{path}.{}", entry.key);
        let services = Decode::decode(ctx, &entry.value, &of_group, &SERVICE_LIST);
        let name = ctx.located(entry.key.clone(), entry.key_span);
        groups.push(FaultGroup { name, services: services.unwrap_or_default() });
    }
    Some(groups)
}

/// Reads `targets`.
pub(super) fn targets(ctx: &mut Ctx, node: &Node, path: &str) -> Option<BTreeMap<Kind, FaultTargets>> {
    let mut targets = BTreeMap::new();
    for entry in ctx.entries(node, path)? {
        let Some(kind) = Kind::named(&entry.key) else {
            ctx.unknown_key(entry, path, &NAMES.texts());
            continue;
        };
        let refused = match kind {
            Kind::LeapSecond => Some("comes to all machines"),
            kind if kind.declaration().is_of_names() => Some("is about all questions to name servers"),
            _ => None,
        };
        if let Some(why) = refused {
            ctx.error(Code::Malformed, entry.key_span, format!("{kind} {why}"));
            continue;
        }
        let of_kind = format!("{path}.{kind}");
        let named = if kind.declaration().is_of_links() {
            links(ctx, &entry.value, &of_kind)
        } else {
            if names_others(ctx, &entry.value, kind) {
                continue;
            }
            match kind.declaration().hits_volumes() {
                true => disks(ctx, &entry.value, &of_kind),
                false => {
                    let services = Decode::decode(ctx, &entry.value, &of_kind, &SERVICE_LIST);
                    services.map(|services| FaultTargets { services, ..FaultTargets::default() })
                }
            }
        };
        targets.insert(kind, named.unwrap_or_default());
    }
    Some(targets)
}

/// Whether links are named, or volumes, and says that the kind hits no such.
fn names_others(ctx: &mut Ctx, node: &Node, kind: Kind) -> bool {
    let Value::Seq(items) = &node.value else { return false };
    let whom = if kind.declaration().has_group() { "groups" } else { "services" };
    let other = items.iter().find_map(|item| match item.value {
        Value::Seq(_) => Some((item, "links")),
        Value::Map(_) if !kind.declaration().hits_volumes() => Some((item, "volumes")),
        _ => None,
    });
    if let Some((item, what)) = other {
        ctx.error(Code::Malformed, item.span, format!("{kind} hits {whom}, not {what}"));
    }
    other.is_some()
}

/// The services and volumes of a kind that hits disks.
fn disks(ctx: &mut Ctx, node: &Node, path: &str) -> Option<FaultTargets> {
    let mut targets = FaultTargets::default();
    let items = ctx.list(node, path)?;
    if items.is_empty() {
        ctx.error(Code::NothingToDo, node.span, format!("`{path}` must name at least one service or volume"));
    }
    for item in items {
        if let Value::Map(_) = item.value {
            let Some(volume) = Settings::open(ctx, item, path, &VOLUME) else { continue };
            targets.volumes.extend(volume.get::<Located<String>>(ctx, "volume"));
        } else if let Some(name) = ctx.name(item, path) {
            targets.services.push(ctx.located(name, item.span));
        }
    }
    Some(targets)
}

/// The links of a kind that hits packets.
fn links(ctx: &mut Ctx, node: &Node, path: &str) -> Option<FaultTargets> {
    let mut targets = FaultTargets::default();
    let items = ctx.list(node, path)?;
    if items.is_empty() {
        ctx.error(Code::NothingToDo, node.span, format!("`{path}` must name at least one link"));
    }
    for item in items {
        let Value::Seq(ends) = &item.value else {
            if let Some(name) = ctx.name(item, path) {
                targets.services.push(ctx.located(name, item.span));
            }
            continue;
        };
        let [a, b] = ends.as_slice() else {
            let message = format!("a link of `{path}` has two ends, not {}", ends.len());
            ctx.error(Code::Malformed, item.span, message).help("write `[[kv1, kv2]]` for one link");
            continue;
        };
        let (first, second) = (ctx.name(a, path), ctx.name(b, path));
        if let (Some(first), Some(second)) = (first, second) {
            if first == second {
                let message = format!("a link of `{path}` leads from `{first}` to itself");
                ctx.error(Code::Malformed, item.span, message);
                continue;
            }
            targets.links.push((ctx.located(first, a.span), ctx.located(second, b.span)));
        }
    }
    Some(targets)
}

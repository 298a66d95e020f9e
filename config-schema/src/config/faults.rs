//! The section `faults`: what goes wrong in the simulation, and how often.
//!
//! Key type: [`Faults`]. The kinds of faults with their keys are declared in `bloodhound-faults`; what is decoded here beside them
//! is about all kinds at once. Rates are per packet; probabilities are drawn for each `simulation.time_step`, for each node (crash,
//! pause) or for the whole network (partition, reset).

use bloodhound_faults::{FaultSpec, Kind, SHAPES, Section, Shape, Value};

use crate::decode::{Ctx, Fields, Located};
use crate::diagnostic::Code;
use crate::tree::Node;

use super::keys;
use super::service_list;

/// What goes wrong during the fault phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// How often and how strong each kind is. Each seed draws from it which kinds are on and how strong, from a quarter of the
    /// written figures to four times them; if not (`swarm`), every seed uses the written figures.
    pub kinds: FaultSpec,
    /// Which services may be hit; `None`: all.
    pub services: Option<Vec<Located<String>>>,
    /// Whether faults end and are healed before progress is demanded; if not, no more begin and those under way end
    /// at their time.
    pub heal: bool,
    /// Virtual time from the start of the workload to the first possible fault, in nanoseconds.
    pub start_after_ns: u64,
    /// How long the fault phase lasts, in nanoseconds of virtual time; `None`: as long as the workload.
    pub duration_ns: Option<u64>,
}

impl Default for Faults {
    fn default() -> Faults {
        let mut kinds = FaultSpec::default();
        kinds.swarm = true;
        Faults { kinds, services: None, heal: true, start_after_ns: 0, duration_ns: None }
    }
}

pub(super) fn faults(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Faults> {
    let fields = ctx.fields(node, path, keys::FAULTS)?;
    let mut out = Faults::default();
    let kinds = &mut out.kinds;
    fields.get(ctx, "network", |ctx, node, path| network(ctx, node, path, kinds));
    fields.get(ctx, "disk", disk);
    out.services = fields.get(ctx, "process", |ctx, node, path| process(ctx, node, path, kinds)).flatten();
    set(&mut out.kinds.swarm, fields.get(ctx, "swarm", Ctx::bool));
    set(&mut out.heal, fields.get(ctx, "heal", Ctx::bool));
    set(&mut out.start_after_ns, fields.get(ctx, "start_after", Ctx::duration));
    out.duration_ns = fields.get(ctx, "duration", Ctx::positive_duration);
    Some(out)
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

fn network(ctx: &mut Ctx, node: &Node, path: &str, spec: &mut FaultSpec) -> Option<()> {
    let fields = ctx.fields(node, path, keys::NETWORK)?;
    kinds(ctx, &fields, Section::Network, spec);
    Some(())
}

/// Decodes the keys of all kinds of a section.
fn kinds(ctx: &mut Ctx, fields: &Fields<'_>, section: Section, spec: &mut FaultSpec) {
    for declaration in Kind::of_section(section) {
        let setting = spec.get_mut(declaration.kind);
        for key in declaration.keys {
            match key.value {
                Value::Rate => {
                    set(&mut setting.rate, fields.get(ctx, key.name, Ctx::rate).map(|rate| rate.get()))
                }
                Value::Millis(_) => {
                    let time = fields.get(ctx, key.name, Ctx::millis);
                    set(&mut setting.time, time.map(|time| (time, time)));
                }
                Value::MillisRange(..) => {
                    let range = fields.get(ctx, key.name, Ctx::millis_range);
                    set(&mut setting.time, range.map(|range| (range.min, range.max)));
                }
                Value::Shapes => set(&mut setting.shapes, fields.get(ctx, key.name, shapes)),
            }
        }
        let Some(switch) = declaration.switch() else { continue };
        for key in declaration.keys.iter().filter(|key| *key != switch) {
            useless(ctx, fields, key.name, switch.name);
        }
    }
}

/// Warns about a key that means nothing because the key that switches it on is not there.
fn useless(ctx: &mut Ctx, fields: &Fields<'_>, key: &str, switch: &str) {
    if let (Some(entry), None) = (fields.entry(key), fields.entry(switch)) {
        let message = format!("`{}` has no effect without `{switch}`", fields.path(key));
        ctx.warn(Code::NothingToDo, entry.key_span, message);
    }
}

fn shapes(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<Shape>> {
    let items = ctx.list(node, path)?;
    if items.is_empty() {
        ctx.error(Code::NothingToDo, node.span, format!("`{path}` must name at least one kind"));
    }
    let mut kinds = Vec::new();
    for item in items {
        if let Some(kind) = ctx.choice(item, path, SHAPES) {
            kinds.push(kind);
        }
    }
    kinds.sort();
    kinds.dedup();
    (!kinds.is_empty()).then_some(kinds)
}

fn disk(ctx: &mut Ctx, node: &Node, path: &str) -> Option<()> {
    let fields = ctx.fields(node, path, keys::DISK)?;
    for key in keys::DISK {
        fields.get(ctx, key, Ctx::rate);
    }
    super::not_available_yet(ctx, &fields, keys::DISK);
    Some(())
}

/// The services that may be hit, if they are named.
fn process(
    ctx: &mut Ctx,
    node: &Node,
    path: &str,
    spec: &mut FaultSpec,
) -> Option<Option<Vec<Located<String>>>> {
    let fields = ctx.fields(node, path, keys::PROCESS)?;
    kinds(ctx, &fields, Section::Process, spec);
    fields.get(ctx, "oom_probability", Ctx::rate);
    super::not_available_yet(ctx, &fields, &["oom_probability"]);
    Some(fields.get(ctx, "services", service_list))
}

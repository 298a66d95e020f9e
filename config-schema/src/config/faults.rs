//! The section `faults`: what goes wrong in the simulation, and how often.
//!
//! Key types: [`Faults`], [`NetworkFaults`], [`ProcessFaults`], [`PartitionKind`]. Rates are per packet;
//! probabilities are drawn once per `simulation.time_step`, for each node (crash, pause) or for the whole
//! network (partition, reset).

use crate::decode::{Ctx, Fields, Located, RangeNs};
use crate::diagnostic::Code;
use crate::scalar::Ppb;
use crate::tree::Node;

use super::keys;
use super::service_list;

/// What goes wrong during the fault phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// What happens to packets and connections.
    pub network: NetworkFaults,
    /// What happens to nodes.
    pub process: ProcessFaults,
    /// Whether each seed draws which kinds of faults are on and how strong, from a quarter of the written figures to four
    /// times them; if not, every seed uses the written figures.
    pub swarm: bool,
    /// Whether faults end and are healed before progress is demanded; if not, no more begin and those under way end
    /// at their time.
    pub heal: bool,
    /// Virtual time from the start of the workload to the first possible fault, in nanoseconds.
    pub start_after_ns: u64,
    /// How long the fault phase lasts, in nanoseconds of virtual time; `None`: as long as the workload.
    pub duration_ns: Option<u64>,
}

/// Faults of the network, all between different nodes; a node's loopback is never faulted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkFaults {
    /// How many packets are lost.
    pub drop_rate: Ppb,
    /// How much later a delayed packet arrives at most, in nanoseconds.
    pub delay_ns: u64,
    /// How many packets are delayed by up to `delay_ns`.
    pub delay_rate: Ppb,
    /// Added to the latency of every packet, in nanoseconds.
    pub latency_ns: u64,
    /// Upper bound of a random addition to the latency of every packet, in nanoseconds.
    pub jitter_ns: u64,
    /// How many packets arrive twice.
    pub duplicate_rate: Ppb,
    /// How many packets are overtaken by later ones.
    pub reorder_rate: Ppb,
    /// Per time step: all connections between two nodes that are drawn are reset.
    pub reset_probability: Ppb,
    /// Per time step: a partition begins, unless one is in force.
    pub partition_probability: Ppb,
    /// How long a partition lasts.
    pub partition_duration: RangeNs,
    /// Which shapes a partition may take; never empty.
    pub partition_kinds: Vec<PartitionKind>,
}

/// The shape of a network partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartitionKind {
    /// Two groups that cannot reach each other.
    Symmetric,
    /// Packets from one group to the other are lost, the other direction works.
    OneWay,
    /// One node is cut off from all others.
    Isolate,
    /// A majority and a minority that cannot reach each other.
    MajorityMinority,
    /// Two groups that cannot reach each other, and one node that reaches both.
    Bridge,
}

/// The partition shapes with their names in the file.
pub const PARTITION_KINDS: &[(&str, PartitionKind)] = &[
    ("symmetric", PartitionKind::Symmetric),
    ("one-way", PartitionKind::OneWay),
    ("isolate", PartitionKind::Isolate),
    ("majority-minority", PartitionKind::MajorityMinority),
    ("bridge", PartitionKind::Bridge),
];

/// Faults of nodes and their processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFaults {
    /// Per time step and node: every process of the node is killed.
    pub crash_probability: Ppb,
    /// How long a crashed node stays down before it is started again.
    pub crash_restart: RangeNs,
    /// Per time step and node: the node stops running while time goes on.
    pub pause_probability: Ppb,
    /// How long a pause lasts.
    pub pause_duration: RangeNs,
    /// Which services may be hit; `None`: all.
    pub services: Option<Vec<Located<String>>>,
}

const MS: u64 = 1_000_000;

impl Default for Faults {
    fn default() -> Faults {
        Faults {
            network: NetworkFaults::default(),
            process: ProcessFaults::default(),
            swarm: true,
            heal: true,
            start_after_ns: 0,
            duration_ns: None,
        }
    }
}

impl Default for NetworkFaults {
    fn default() -> NetworkFaults {
        NetworkFaults {
            drop_rate: Ppb::ZERO,
            delay_ns: 50 * MS,
            delay_rate: Ppb::ZERO,
            latency_ns: 0,
            jitter_ns: 0,
            duplicate_rate: Ppb::ZERO,
            reorder_rate: Ppb::ZERO,
            reset_probability: Ppb::ZERO,
            partition_probability: Ppb::ZERO,
            partition_duration: RangeNs { min: 1_000 * MS, max: 10_000 * MS },
            partition_kinds: PARTITION_KINDS.iter().map(|(_, kind)| *kind).collect(),
        }
    }
}

impl Default for ProcessFaults {
    fn default() -> ProcessFaults {
        ProcessFaults {
            crash_probability: Ppb::ZERO,
            crash_restart: RangeNs { min: 500 * MS, max: 5_000 * MS },
            pause_probability: Ppb::ZERO,
            pause_duration: RangeNs { min: 100 * MS, max: 5_000 * MS },
            services: None,
        }
    }
}

pub(super) fn faults(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Faults> {
    let fields = ctx.fields(node, path, keys::FAULTS)?;
    let mut out = Faults::default();
    set(&mut out.network, fields.get(ctx, "network", network));
    fields.get(ctx, "disk", disk);
    set(&mut out.process, fields.get(ctx, "process", process));
    set(&mut out.swarm, fields.get(ctx, "swarm", Ctx::bool));
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

fn network(ctx: &mut Ctx, node: &Node, path: &str) -> Option<NetworkFaults> {
    let fields = ctx.fields(node, path, keys::NETWORK)?;
    let mut out = NetworkFaults::default();
    set(&mut out.drop_rate, fields.get(ctx, "drop_rate", Ctx::rate));
    set(&mut out.delay_ns, fields.get(ctx, "delay_ms", Ctx::millis));
    set(&mut out.delay_rate, fields.get(ctx, "delay_rate", Ctx::rate));
    set(&mut out.latency_ns, fields.get(ctx, "latency_ms", Ctx::millis));
    set(&mut out.jitter_ns, fields.get(ctx, "jitter_ms", Ctx::millis));
    set(&mut out.duplicate_rate, fields.get(ctx, "duplicate_rate", Ctx::rate));
    set(&mut out.reorder_rate, fields.get(ctx, "reorder_rate", Ctx::rate));
    set(&mut out.reset_probability, fields.get(ctx, "reset_probability", Ctx::rate));
    set(&mut out.partition_probability, fields.get(ctx, "partition_probability", Ctx::rate));
    set(&mut out.partition_duration, fields.get(ctx, "partition_duration_ms", Ctx::millis_range));
    set(&mut out.partition_kinds, fields.get(ctx, "partition_kinds", partition_kinds));
    useless(ctx, &fields, "delay_ms", "delay_rate");
    useless(ctx, &fields, "partition_duration_ms", "partition_probability");
    useless(ctx, &fields, "partition_kinds", "partition_probability");
    Some(out)
}

/// Warns about a key that means nothing because the key that switches it on is not there.
fn useless(ctx: &mut Ctx, fields: &Fields<'_>, key: &str, switch: &str) {
    if let (Some(entry), None) = (fields.entry(key), fields.entry(switch)) {
        let message = format!("`{}` has no effect without `{switch}`", fields.path(key));
        ctx.warn(Code::NothingToDo, entry.key_span, message);
    }
}

fn partition_kinds(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<PartitionKind>> {
    let items = ctx.list(node, path)?;
    if items.is_empty() {
        ctx.error(Code::NothingToDo, node.span, format!("`{path}` must name at least one kind"));
    }
    let mut kinds = Vec::new();
    for item in items {
        if let Some(kind) = ctx.choice(item, path, PARTITION_KINDS) {
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

fn process(ctx: &mut Ctx, node: &Node, path: &str) -> Option<ProcessFaults> {
    let fields = ctx.fields(node, path, keys::PROCESS)?;
    let mut out = ProcessFaults::default();
    set(&mut out.crash_probability, fields.get(ctx, "crash_probability", Ctx::rate));
    set(&mut out.crash_restart, fields.get(ctx, "crash_restart_ms", Ctx::millis_range));
    set(&mut out.pause_probability, fields.get(ctx, "pause_probability", Ctx::rate));
    set(&mut out.pause_duration, fields.get(ctx, "pause_duration_ms", Ctx::millis_range));
    fields.get(ctx, "oom_probability", Ctx::rate);
    out.services = fields.get(ctx, "services", service_list);
    super::not_available_yet(ctx, &fields, &["oom_probability"]);
    useless(ctx, &fields, "crash_restart_ms", "crash_probability");
    useless(ctx, &fields, "pause_duration_ms", "pause_probability");
    Some(out)
}

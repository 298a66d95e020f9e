//! The section `faults`: what goes wrong in the simulation, and how often.
//!
//! Key type: [`Faults`]. The kinds of faults with their keys are declared in `bloodhound-faults`; what is declared here beside them
//! is about all kinds at once. Rates are per packet or per operation of a program; probabilities are drawn for each
//! `simulation.time_step`, for each node (crash, pause) or for the whole network (partition, reset).

use std::collections::BTreeMap;

use bloodhound_declare::{Absent, Key, Section, Shortest, ValueKind};
use bloodhound_faults::{Disk, FaultSpec, Group, Kind, Preset, Shape};

use crate::decode::{Ctx, Located, RangeNs};
use crate::diagnostic::Code;
use crate::scalar::{self, Ppb};
use crate::tree::Value;

use super::coverage::{SHARE, a_share};
use super::fault_plan::{self, Budget, DownBudget, ScheduledFault};
use super::fault_targets::{self, FaultGroup, FaultTargets};
use super::fault_upgrades::{self, FaultUpgrade, UpgradeTo};
use super::properties::SERVICES;
use super::read::{self, Chosen, Settings};
use super::sections::LONGER_THAN_0;

pub(super) static FAULTS: Section = Section::new(
    "Faults",
    "what goes wrong",
    &[
        Key::section("network", &NETWORK).otherwise("none"),
        Key::section("disk", &DISK).otherwise("none"),
        Key::section("process", &PROCESS).otherwise("none"),
        Key::section("resources", &RESOURCES).otherwise("none"),
        Key::section("kernel", &KERNEL).otherwise("none"),
        Key::section("clock", &CLOCK).otherwise("none"),
        Key::new(
            "swarm",
            ValueKind::Bool,
            "each seed draws which kinds of faults are on and how strong, from a quarter of the written \
             figures to four times them; if `false`, every seed uses the written figures",
        )
        .default("true"),
        Key::new(
            "heal",
            ValueKind::Bool,
            "faults end and are healed before progress is demanded; if `false`, no more faults begin then, \
             and those under way end at their time",
        )
        .default("true"),
        Key::new(
            "start_after",
            ValueKind::Duration(Shortest::Zero),
            "time from the start of the workload to the first possible fault",
        )
        .default("0s"),
        Key::new("duration", LONGER_THAN_0, "how long the fault phase lasts")
            .otherwise("as long as the workload, or half of `max_time` without one"),
        Key::new(
            "preset",
            ValueKind::Word(Preset::WORDS),
            "rates of many kinds and a budget by one word; keys that are written override it",
        )
        .otherwise("none"),
        Key::section("budget", &fault_plan::BUDGET),
        Key::new(
            "quiet",
            ValueKind::List(&fault_plan::PERIOD),
            "when there are no faults, counted from when they can begin",
        )
        .otherwise("never"),
        Key::new(
            "targets",
            fault_targets::TARGETS,
            "which services, links, volumes or groups a kind may hit, of those that faults may hit",
        )
        .otherwise("all of them"),
        Key::new(
            "schedule",
            ValueKind::List(&ValueKind::Section(&fault_plan::SCHEDULED)),
            "faults that are written one by one, besides those that a seed draws; `--faults FILE` has only those of the file",
        )
        .otherwise("none"),
        Key::new(
            "coverage_threshold",
            SHARE,
            "least share of the configured kinds of faults that a campaign must have injected; `--fault-coverage-threshold` overrides it",
        )
        .otherwise("none"),
        Key::new(
            "groups",
            fault_targets::GROUPS,
            "services that fail together, by a name of each group: a rack, a zone, those behind a switch",
        )
        .otherwise("all services are one group"),
        Key::new(
            "upgrades",
            fault_upgrades::UPGRADES,
            "of what `upgrade` makes services: another image, or what the compose file says of another service",
        )
        .otherwise("none"),
    ],
);

static NETWORK: Section = Section::new(
    "NetworkFaults",
    "what happens to packets and connections",
    &of_kinds::<{ count(Group::Network) }>(Group::Network, &[]),
);

static DISK: Section = Section::new(
    "DiskFaults",
    "what happens to files",
    &of_kinds::<{ count(Group::Disk) + BESIDE_DISK.len() }>(Group::Disk, BESIDE_DISK),
);

static RESOURCES: Section = Section::new(
    "ResourceFaults",
    "what programs ask for and do not get",
    &of_kinds::<{ count(Group::Resources) }>(Group::Resources, &[]),
);

static KERNEL: Section = Section::new(
    "KernelFaults",
    "what Linux does rarely, but may do",
    &of_kinds::<{ count(Group::Kernel) }>(Group::Kernel, &[]),
);

static PROCESS: Section = Section::new(
    "ProcessFaults",
    "what happens to nodes",
    &of_kinds::<{ count(Group::Process) + BESIDE_KINDS.len() }>(Group::Process, BESIDE_KINDS),
);

static CLOCK: Section = Section::new(
    "ClockFaults",
    "what happens to clocks",
    &of_kinds::<{ count(Group::Clock) }>(Group::Clock, &[]),
);

/// Keys of `disk` that are no kind's.
const BESIDE_DISK: &[Key] = &[Key::new(
    "model",
    ValueKind::Word(Disk::WORDS),
    "what a power failure leaves of changes that were not synced",
)
.default("ordered")];

/// Keys of `process` that are no kind's.
const BESIDE_KINDS: &[Key] = &[Key::new("services", SERVICES, "which services may be hit").otherwise("all")];

/// How many keys the kinds of faults of a group have.
const fn count(group: Group) -> usize {
    let (mut kind, mut count) = (0, 0);
    while kind < Kind::DECLARATIONS.len() {
        if Kind::DECLARATIONS[kind].group as u8 == group as u8 {
            count += Kind::DECLARATIONS[kind].keys.len();
        }
        kind += 1;
    }
    count
}

/// The keys of the kinds of faults of a group, in the order of their declarations, and more behind them.
const fn of_kinds<const N: usize>(group: Group, more: &[Key]) -> [Key; N] {
    let mut keys = [Key::new("", ValueKind::Bool, ""); N];
    let (mut kind, mut at) = (0, 0);
    while kind < Kind::DECLARATIONS.len() {
        let mut key = 0;
        while Kind::DECLARATIONS[kind].group as u8 == group as u8 && key < Kind::DECLARATIONS[kind].keys.len()
        {
            keys[at] = Kind::DECLARATIONS[kind].keys[key];
            (key, at) = (key + 1, at + 1);
        }
        kind += 1;
    }
    let mut key = 0;
    while key < more.len() {
        keys[at] = more[key];
        (key, at) = (key + 1, at + 1);
    }
    keys
}

/// What goes wrong during the fault phase; what the keys mean is declared in `FAULTS` and with the kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Faults {
    /// How often and how strong each kind is, and `swarm`.
    pub kinds: FaultSpec,
    /// `disk.model`.
    pub disk: Disk,
    /// `process.services`; `None`: all.
    pub services: Option<Vec<Located<String>>>,
    /// `heal`.
    pub heal: bool,
    /// `start_after`, in nanoseconds.
    pub start_after_ns: u64,
    /// `duration`, in nanoseconds; `None`: as long as the workload.
    pub duration_ns: Option<u64>,
    /// `budget`, with what the preset says.
    pub budget: Budget,
    /// `quiet`: from and to, in nanoseconds, in order.
    pub quiet: Vec<(u64, u64)>,
    /// `targets`.
    pub targets: BTreeMap<Kind, FaultTargets>,
    /// `groups`, in their order.
    pub groups: Vec<FaultGroup>,
    /// `upgrades`, in their order.
    pub upgrades: Vec<FaultUpgrade>,
    /// `schedule`.
    pub schedule: Vec<ScheduledFault>,
    /// Programs ask the name server for other services: `--faults` leaves them as they are set up for the faults of the configuration.
    pub asks_names: bool,
    /// `coverage_threshold`, in thousandths.
    pub coverage_threshold: Option<u32>,
}

impl Faults {
    /// The services of the compose file of which others are made by an upgrade.
    pub(crate) fn definitions(&self) -> Vec<&str> {
        self.upgrades
            .iter()
            .filter_map(|upgrade| match &upgrade.to {
                UpgradeTo::Service(service) => Some(service.value.as_str()),
                UpgradeTo::Image(_) => None,
            })
            .collect()
    }
}

impl Default for Faults {
    fn default() -> Faults {
        read::of_nothing(&FAULTS, faults)
    }
}

pub(super) fn faults(ctx: &mut Ctx, settings: &Settings<'_>) -> Faults {
    let network = settings.section_or_empty(ctx, "network");
    let disk = settings.section_or_empty(ctx, "disk");
    let process = settings.section_or_empty(ctx, "process");
    let resources = settings.section_or_empty(ctx, "resources");
    let kernel = settings.section_or_empty(ctx, "kernel");
    let mut spec = FaultSpec::default();
    spec.swarm = settings.value(ctx, "swarm");
    let preset = settings.get::<Chosen<Preset>>(ctx, "preset").map(|preset| preset.0);
    kinds(ctx, &network, Group::Network, preset, &mut spec);
    kinds(ctx, &disk, Group::Disk, preset, &mut spec);
    kinds(ctx, &process, Group::Process, preset, &mut spec);
    kinds(ctx, &resources, Group::Resources, preset, &mut spec);
    kinds(ctx, &kernel, Group::Kernel, preset, &mut spec);
    let clock = settings.section_or_empty(ctx, "clock");
    kinds(ctx, &clock, Group::Clock, preset, &mut spec);
    let budget = settings.section_or_empty(ctx, "budget");
    let mut budget = fault_plan::budget(ctx, &budget);
    budget.down = budget.down.or(preset.map(|preset| match preset {
        Preset::Gentle => DownBudget::Count(1),
        Preset::Jepsen | Preset::Brutal => DownBudget::Minority,
    }));
    let schedule = fault_plan::schedule(ctx, settings);
    let may_lose_power = [Kind::PowerFailure, Kind::GroupPower]
        .iter()
        .any(|kind| spec.is_on(*kind) || schedule.iter().any(|entry| entry.kind == *kind));
    let asks_names = Kind::DECLARATIONS.iter().any(|kind| {
        kind.is_of_names() && (spec.is_on(kind.kind) || schedule.iter().any(|entry| entry.kind == kind.kind))
    });
    let upgrades = settings.own(ctx, "upgrades", fault_upgrades::upgrades).unwrap_or_default();
    if upgrades.is_empty() {
        without_upgrades(ctx, &process, &spec);
    }
    Faults {
        kinds: spec,
        upgrades,
        asks_names,
        disk: settings_of_disk(ctx, &disk, &process, may_lose_power),
        services: process.get(ctx, "services"),
        heal: settings.value(ctx, "heal"),
        start_after_ns: settings.value(ctx, "start_after"),
        duration_ns: settings.get(ctx, "duration"),
        budget,
        quiet: fault_plan::quiet(ctx, settings),
        targets: settings.own(ctx, "targets", fault_targets::targets).unwrap_or_default(),
        groups: settings.own(ctx, "groups", fault_targets::groups).unwrap_or_default(),
        schedule,
        coverage_threshold: settings.own(ctx, "coverage_threshold", a_share),
    }
}

/// The model of disks, which means nothing where no machine loses its power: by a rate, a preset or the schedule.
fn settings_of_disk(
    ctx: &mut Ctx,
    disk: &Settings<'_>,
    process: &Settings<'_>,
    may_lose_power: bool,
) -> Disk {
    const SWITCH: &str = "power_failure_probability";
    let Chosen(model) = disk.value(ctx, "model");
    if let (Some(entry), None, false) = (disk.entry("model"), process.entry(SWITCH), may_lose_power) {
        let message = format!("`{}` has no effect without `{}`", disk.path("model"), process.path(SWITCH));
        ctx.warn(Code::NothingToDo, entry.key_span, message);
    }
    model
}

/// Reads the keys of all kinds of a group. What is not written is as the preset says.
fn kinds(ctx: &mut Ctx, settings: &Settings<'_>, group: Group, preset: Option<Preset>, spec: &mut FaultSpec) {
    for declaration in Kind::of_group(group) {
        let setting = spec.get_mut(declaration.kind);
        for key in declaration.keys {
            let otherwise = preset.and_then(|preset| preset.text(key.name));
            match key.kind {
                ValueKind::Rate { .. } | ValueKind::Probability { .. } => {
                    setting.rate = settings.value_or::<Ppb>(ctx, key.name, otherwise).get();
                }
                ValueKind::Millis => {
                    let time = settings.value_or(ctx, key.name, otherwise);
                    *setting.range_of(declaration.kind, key.name) = (time, time);
                }
                ValueKind::MillisRange | ValueKind::PpmRange => {
                    let range: Option<RangeNs> = match (otherwise, key.absent) {
                        (None, Absent::Described(_)) => settings.get(ctx, key.name),
                        _ => Some(settings.value_or(ctx, key.name, otherwise)),
                    };
                    let range = range.map_or((0, 0), |range| (range.min, range.max));
                    *setting.range_of(declaration.kind, key.name) = range;
                    let is_size = declaration.size().is_some_and(|size| size.name == key.name);
                    if range.0 == 0 && !is_size && !declaration.lasts_without_time() {
                        longer_than_0(ctx, settings, key.name);
                    }
                }
                ValueKind::Integer { .. } | ValueKind::Decimal { .. } => {
                    setting.number = settings.value_or(ctx, key.name, otherwise);
                }
                ValueKind::NonEmpty(..) => setting.shapes = shapes(ctx, settings, key.name),
                kind => panic!("{} is declared as {kind:?}, which no setting of a fault is", key.name),
            }
        }
        let Some(switch) = declaration.switch() else { continue };
        let preset_has_it = preset.is_some_and(|preset| preset.text(switch.name).is_some());
        for key in declaration.keys.iter().filter(|key| key.name != switch.name && !preset_has_it) {
            without_effect(ctx, settings, key.name, switch.name);
        }
    }
}

/// Warns about kinds that are on and have nothing to make services of.
fn without_upgrades(ctx: &mut Ctx, process: &Settings<'_>, spec: &FaultSpec) {
    let changing = Kind::DECLARATIONS.iter().filter(|kind| kind.changes_versions() && spec.is_on(kind.kind));
    for switch in changing.filter_map(|kind| kind.switch()) {
        let Some(entry) = process.entry(switch.name) else { continue };
        let message = format!("`{}` has no effect without `faults.upgrades`", process.path(switch.name));
        ctx.warn(Code::NothingToDo, entry.key_span, message)
            .help("say of what services are made then: `upgrades: {kv: {image: kv:2}}`");
    }
}

/// A time of 0 that is written where it would have no end.
fn longer_than_0(ctx: &mut Ctx, settings: &Settings<'_>, key: &str) {
    let Some(node) = settings.node(key).filter(|node| !node.is_null()) else { return };
    let shortest = match &node.value {
        Value::Seq(items) => items.first().unwrap_or(node),
        _ => node,
    };
    if matches!(&shortest.value, Value::Scalar(text) if scalar::millis(&text.text) == Ok(0)) {
        let message = format!("`{}` must be longer than 0", settings.path(key));
        ctx.error(Code::OutOfRange, shortest.span, message);
    }
}

/// The shapes that are named, each once; if none is, those that are drawn unasked.
fn shapes(ctx: &mut Ctx, settings: &Settings<'_>, key: &str) -> Vec<Shape> {
    let written: Vec<Chosen<Shape>> = settings.get(ctx, key).unwrap_or_default();
    let mut shapes: Vec<Shape> = written.into_iter().map(|Chosen(shape)| shape).collect();
    if shapes.is_empty() {
        shapes = Shape::UNASKED.to_vec();
    }
    shapes.sort();
    shapes.dedup();
    shapes
}

/// Warns about a key that means nothing because the key that switches it on is not there.
fn without_effect(ctx: &mut Ctx, settings: &Settings<'_>, key: &str, switch: &str) {
    if let (Some(entry), None) = (settings.entry(key), settings.entry(switch)) {
        let message = format!("`{}` has no effect without `{switch}`", settings.path(key));
        ctx.warn(Code::NothingToDo, entry.key_span, message);
    }
}

//! bloodhound.yaml: the typed configuration.
//!
//! Key types: [`Config`] with one type per section. [`Config::load`] reads, decodes and checks a file and
//! returns everything that is wrong in it at once. Units: durations are nanoseconds of virtual time, rates are
//! parts per billion ([`crate::Ppb`]). What concerns the compose file as well is checked in `project`.

mod coverage;
pub mod date;
mod fault_plan;
mod fault_targets;
mod fault_upgrades;
mod faults;
mod images;
mod operation;
mod properties;
mod read;
mod schedule;
mod sections;
#[cfg(test)]
pub(crate) mod tests;
mod workload;

use std::path::{Path, PathBuf};

pub use coverage::{Collect, CollectFormat, Coverage, CoverageFormat, CoverageUnit, ServiceCoverage};
pub use fault_plan::{Budget, CallMoment, DownBudget, FaultOn, FaultTrigger, ScheduledFault};
pub use fault_targets::{FaultGroup, FaultTargets};
pub use fault_upgrades::{FaultUpgrade, UpgradeTo};
pub use faults::Faults;
pub use images::Images;
pub use operation::{Operation, OperationKind, Outcome, Request, Response, ValueSource};
pub use properties::{Check, Model, Property, PropertyKind};
pub use schedule::{PreemptAt, Schedule, SchedulePolicy};
pub use sections::{Exploration, Output, Simulation};
pub use workload::Workload;

use bloodhound_declare::{Key, Section, ValueKind};
use bloodhound_faults::Kind;

use crate::decode::{Ctx, Fields, Located};
use crate::diagnostic::{self, Code, Diagnostic, Severity, has_errors};
use crate::scalar::show_duration;
use crate::tree::{self, Node, Source};

use self::read::Settings;

/// The file names that are tried, in this order, when bloodhound.yaml does not name a compose file. They are
/// those of the compose specification.
pub const COMPOSE_NAMES: &[&str] =
    &["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"];

/// The whole file. Every section of bloodhound.yaml is reached from here.
pub(crate) static BLOODHOUND: Section = Section::new(
    "Bloodhound",
    "the configuration of Bloodhound",
    &[
        Key::new("compose", ValueKind::Path, "the compose file").otherwise(
            "the first of `compose.yaml`, `compose.yml`, `docker-compose.yaml`, `docker-compose.yml` \
             beside this file",
        ),
        Key::section("simulation", &sections::SIMULATION),
        Key::section("workload", &workload::WORKLOAD).otherwise("no traffic"),
        Key::new("properties", ValueKind::List(&ValueKind::Section(&properties::PROPERTY)), "what must hold")
            .otherwise("none, with a warning"),
        Key::section("faults", &faults::FAULTS).otherwise("no faults"),
        Key::section("images", &images::IMAGES),
        Key::section("exploration", &sections::EXPLORATION),
        Key::new(
            "regressions",
            ValueKind::Path,
            "directory of the regression cases, which `bloodhound test` runs before all seeds",
        )
        .default("./regressions"),
        Key::section("coverage", &coverage::COVERAGE).otherwise("not measured"),
        Key::section("output", &sections::OUTPUT),
        Key::section("debug", &sections::DEBUG),
    ],
);

/// What a missing script means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChecks {
    /// A warning: the configuration is looked at on its own.
    Lenient,
    /// An error: the configuration is about to be run.
    Strict,
}

/// A whole bloodhound.yaml.
#[derive(Clone, Debug)]
pub struct Config {
    /// The file with its text (for digests and places).
    pub source: Source,
    /// The compose file, resolved against the directory of bloodhound.yaml; `None` if the file does not say.
    pub compose: Option<Located<PathBuf>>,
    /// Times and seeds.
    pub simulation: Simulation,
    /// Client traffic.
    pub workload: Option<Workload>,
    /// What must hold.
    pub properties: Vec<Property>,
    /// What goes wrong.
    pub faults: Faults,
    /// The file with the schedule of faults, if that is not in this one.
    pub fault_file: Option<Source>,
    /// Where container images come from.
    pub images: Images,
    /// How seeds are explored.
    pub exploration: Exploration,
    /// Directory of the regression cases.
    pub regressions: PathBuf,
    /// Which code is to be reached.
    pub coverage: Coverage,
    /// Where results go.
    pub output: Output,
}

impl Config {
    /// Reads a file. `None` exactly if there is an error among the diagnostics.
    pub fn load(path: &Path, files: FileChecks) -> (Option<Config>, Vec<Diagnostic>) {
        match Source::read(path) {
            Ok(source) => Config::decode(source, files),
            Err(diagnostic) => (None, vec![*diagnostic]),
        }
    }

    /// Decodes a text that has been read already. `None` exactly if there is an error among the diagnostics.
    pub fn decode(source: Source, files: FileChecks) -> (Option<Config>, Vec<Diagnostic>) {
        let (node, syntax) = tree::parse(&source);
        let mut ctx = Ctx::new(source);
        ctx.diagnostics = syntax;
        let config = node.and_then(|node| top(&mut ctx, &node, files));
        let mut diagnostics = ctx.diagnostics;
        diagnostic::sort(&mut diagnostics);
        if has_errors(&diagnostics) {
            return (None, diagnostics);
        }
        let source = ctx.source;
        let config = config.map(|config| Config { source, ..config });
        assert!(config.is_some(), "a file without errors has a configuration: {diagnostics:?}");
        (config, diagnostics)
    }

    /// Puts a schedule, read from a file of its own, in the place of all that the configuration says of faults: nothing else is drawn. `heal`,
    /// `start_after`, `duration` and the services that faults may hit stay.
    pub(crate) fn only_schedule(&mut self, source: &Source) -> Vec<Diagnostic> {
        let (node, syntax) = tree::parse(source);
        let mut ctx = Ctx::new(source.clone());
        ctx.diagnostics = syntax;
        let file = node.and_then(|node| fault_plan::schedule_file(&mut ctx, &node));
        let (schedule, quiet) = file.unwrap_or_default();
        let last = self.faults.duration_ns.is_none().then(|| self.fault_phase_ns());
        for declaration in Kind::DECLARATIONS {
            self.faults.kinds.switch_off(declaration.kind);
        }
        (self.faults.quiet, self.faults.budget) = (quiet, Budget::default());
        let of_names = |entry: &ScheduledFault| entry.kind.declaration().is_of_names();
        self.faults.asks_names |= schedule.iter().any(of_names);
        self.faults.schedule = schedule;
        self.fault_file = Some(source.clone());
        self.faults.duration_ns = self.faults.duration_ns.or(last);
        ctx.diagnostics
    }

    /// How long the fault phase lasts: `faults.duration`, else as long as the workload, else half the run.
    pub fn fault_phase_ns(&self) -> u64 {
        let workload = self.workload.as_ref().map(|w| w.duration_ns);
        self.faults.duration_ns.or(workload).unwrap_or(self.simulation.max_time_ns / 2)
    }
}

fn top(ctx: &mut Ctx, node: &Node, files: FileChecks) -> Option<Config> {
    if node.is_null() {
        let name = ctx.source.name.clone();
        ctx.diagnostics.push(Diagnostic::about_file(
            Code::NothingToDo,
            Severity::Error,
            &name,
            format!("{name} is empty"),
        ));
        return None;
    }
    let top = Settings::open(ctx, node, "", &BLOODHOUND)?;
    let has_workload = top.node("workload").is_some_and(|n| !n.is_null());
    let workload = top.section(ctx, "workload").and_then(|section| workload::workload(ctx, &section));
    let around = properties::Surroundings { workload: workload.as_ref(), has_workload, files };
    let properties = properties::properties(ctx, &top, around);
    if top.node("properties").is_none_or(Node::is_null) {
        ctx.warn(Code::NothingToDo, first_span(&top), "no `properties`: nothing is checked");
    }
    // No key of `debug` has an effect yet: to open the section checks them all.
    top.section(ctx, "debug");
    let [simulation, faults, images, exploration, coverage, output] =
        ["simulation", "faults", "images", "exploration", "coverage", "output"]
            .map(|name| top.section_or_empty(ctx, name));
    let config = Config {
        source: Source::new(&ctx.source.path, ""),
        compose: top.get(ctx, "compose"),
        simulation: sections::simulation(ctx, &simulation),
        workload,
        properties,
        faults: faults::faults(ctx, &faults),
        fault_file: None,
        images: images::images(ctx, &images),
        exploration: sections::exploration(ctx, &exploration),
        regressions: top.value(ctx, "regressions"),
        coverage: coverage::coverage(ctx, &coverage, top.node("coverage").is_some_and(|n| !n.is_null())),
        output: sections::output(ctx, &output),
    };
    times_fit(ctx, &top, &config);
    late_faults(ctx, &faults, &config);
    Some(config)
}

/// Faults of a schedule that begin when the phase of faults is over never happen.
fn late_faults(ctx: &mut Ctx, faults: &Fields<'_>, config: &Config) {
    let Some(schedule) = faults.entry("schedule") else { return };
    let phase = config.fault_phase_ns();
    for (place, fault) in config.faults.schedule.iter().enumerate() {
        let FaultTrigger::At(at) = fault.trigger else { continue };
        if at >= phase {
            let (at, phase, kind) = (show_duration(at), show_duration(phase), fault.kind);
            let message = format!(
                "`faults.schedule[{place}]` ({kind} at {at}) never happens: the phase of faults is over after {phase}"
            );
            ctx.warn(Code::NothingToDo, schedule.key_span, message).help(
                "`faults.duration` says how long it is; without it, it is as long as the workload, and without a workload half of `simulation.max_time`",
            );
        }
    }
}

/// The phases of a run must fit into its longest time.
fn times_fit(ctx: &mut Ctx, fields: &Fields<'_>, config: &Config) {
    let max = config.simulation.max_time_ns;
    let span = fields.entry("simulation").map_or_else(|| first_span(fields), |entry| entry.key_span);
    let workload = config.workload.as_ref().map_or(0, |w| w.duration_ns);
    let faults = match config.faults.duration_ns {
        Some(ns) => config.faults.start_after_ns.saturating_add(ns),
        None => workload,
    };
    let busy = workload.max(faults);
    if busy > max {
        let message =
            format!("workload and faults take {}, longer than simulation.max_time", show_duration(busy));
        ctx.error(Code::Conflict, span, message)
            .help(format!("simulation.max_time is {}", show_duration(max)));
        return;
    }
    let slowest =
        config.properties.iter().filter(|p| p.kind == PropertyKind::Liveness).max_by_key(|p| p.timeout_ns);
    if let Some(property) = slowest.filter(|p| busy.saturating_add(p.timeout_ns) > max) {
        let needed = show_duration(busy.saturating_add(property.timeout_ns));
        let message = format!("the property `{}` needs a run of up to {needed}", property.name);
        ctx.warn(Code::Conflict, span, message)
            .help(format!("simulation.max_time is {}: its verdict may stay open", show_duration(max)));
    }
}

fn first_span(fields: &Fields<'_>) -> tree::Span {
    fields.entries.first().map_or(fields.span, |entry| entry.key_span)
}

/// A path of the user's, relative to the directory of the file that names it.
pub(crate) fn resolve(base: &Path, text: &str) -> PathBuf {
    let path = match text.strip_prefix("./").unwrap_or(text) {
        // "./" is the directory itself.
        "" => Path::new("."),
        rest => Path::new(rest),
    };
    if path.is_absolute() || base == Path::new(".") { path.to_owned() } else { base.join(path) }
}

#[cfg(test)]
mod resolve_tests {
    use super::*;

    #[test]
    fn a_directory_named_by_a_dot_is_itself() {
        assert_eq!(resolve(Path::new("."), "./"), Path::new("."));
        assert_eq!(resolve(Path::new("/a"), "./"), Path::new("/a/."));
        assert_eq!(resolve(Path::new("."), "./b"), Path::new("b"));
        assert_eq!(resolve(Path::new("/a"), "/b"), Path::new("/b"));
    }
}

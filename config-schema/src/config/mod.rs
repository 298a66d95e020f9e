//! bloodhound.yaml: the typed configuration.
//!
//! Key types: [`Config`] with one type per section. [`Config::load`] reads, decodes and checks a file and
//! returns everything that is wrong in it at once. Units: durations are nanoseconds of virtual time, rates are
//! parts per billion ([`crate::Ppb`]). What concerns the compose file as well is checked in `project`.

mod faults;
pub(crate) mod keys;
mod properties;
mod sections;
mod workload;

use std::path::{Path, PathBuf};

pub use faults::Faults;
pub use properties::{Check, Model, Property, PropertyKind};
pub use sections::{Exploration, Output, Simulation};
pub use workload::{
    OPERATION_KINDS, Operation, OperationKind, Outcome, Request, Response, ValueSource, Workload,
};

use crate::decode::{Ctx, Fields, Located};
use crate::diagnostic::{self, Code, Diagnostic, Severity, has_errors, listed};
use crate::scalar::show_duration;
use crate::tree::{self, Node, Source};

/// The file names that are tried, in this order, when bloodhound.yaml does not name a compose file. They are
/// those of the compose specification.
pub const COMPOSE_NAMES: &[&str] =
    &["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml"];

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
    /// How seeds are explored.
    pub exploration: Exploration,
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
    let fields = ctx.fields(node, "", keys::TOP)?;
    let base = ctx.source.dir();
    let compose = fields.located(ctx, "compose", Ctx::name).map(|c| c.map(|text| resolve(&base, &text)));
    let simulation = fields.get(ctx, "simulation", sections::simulation).unwrap_or_default();
    let has_workload = fields.node("workload").is_some_and(|n| !n.is_null());
    let workload = fields.node("workload").filter(|_| has_workload);
    let workload = workload.and_then(|n| workload::workload(ctx, n, "workload"));
    let around = properties::Surroundings { workload: workload.as_ref(), has_workload, files };
    let properties = fields
        .get(ctx, "properties", |c, n, p| Some(properties::properties(c, n, p, around)))
        .unwrap_or_default();
    if fields.node("properties").is_none_or(Node::is_null) {
        ctx.warn(Code::NothingToDo, first_span(&fields), "no `properties`: nothing is checked");
    }
    let faults = fields.get(ctx, "faults", faults::faults).unwrap_or_default();
    let exploration = fields.get(ctx, "exploration", sections::exploration).unwrap_or_default();
    let output = sections::output(ctx, fields.node("output").filter(|n| !n.is_null()));
    fields.get(ctx, "debug", sections::debug);
    let config = Config {
        source: Source::new(&ctx.source.path, ""),
        compose,
        simulation,
        workload,
        properties,
        faults,
        exploration,
        output: output?,
    };
    times_fit(ctx, &fields, &config);
    Some(config)
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

/// One warning for the keys of a section that are valid but have no effect yet.
fn not_available_yet(ctx: &mut Ctx, fields: &Fields<'_>, later: &[&str]) {
    let present: Vec<_> = fields.entries.iter().filter(|e| later.contains(&e.key.as_str())).collect();
    let Some(first) = present.first() else { return };
    let names: Vec<String> = present.iter().map(|entry| fields.path(&entry.key)).collect();
    let verb = if names.len() == 1 { "is" } else { "are" };
    let message = format!("{} {verb} not available yet", listed(&names, "and"));
    ctx.warn(Code::NotAvailableYet, first.key_span, message).label("has no effect");
}

fn service_list(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Vec<Located<String>>> {
    let items = ctx.list(node, path)?;
    let mut names = Vec::new();
    for item in items {
        if let Some(name) = ctx.name(item, path) {
            names.push(ctx.located(name, item.span));
        }
    }
    if items.is_empty() {
        ctx.error(Code::NothingToDo, node.span, format!("`{path}` must name at least one service"));
    }
    Some(names)
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

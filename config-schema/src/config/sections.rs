//! The small sections: `simulation`, `exploration`, `output`, `debug`.
//!
//! Key types: [`Simulation`], [`Output`]. What has no effect yet is checked all the same and reported as "not
//! available yet", so that a file stays valid when it becomes available.

use std::path::PathBuf;

use crate::decode::Ctx;
use crate::diagnostic::Code;
use crate::scalar::{Ppb, show_duration};
use crate::tree::Node;

use super::{keys, not_available_yet};

/// Most boots of a campaign.
const MOST_BOOTS: u64 = 1000;
const FIVE_PERCENT: Ppb = Ppb::of(50_000_000);
const MOST_COST_SPREAD: Ppb = Ppb::of(500_000_000);

/// The section `simulation`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simulation {
    /// Longest virtual time of a run, counted from the moment all services are ready, in nanoseconds.
    pub max_time_ns: u64,
    /// How often fault probabilities are drawn, in nanoseconds of virtual time.
    pub time_step_ns: u64,
    /// How many seeds `test` runs.
    pub seeds: u64,
    /// Longest virtual time until all services are ready, in nanoseconds.
    pub start_timeout_ns: u64,
    /// Time a packet takes from one node to another without any fault, in nanoseconds.
    pub latency_ns: u64,
    /// Upper bound of a random addition to `latency_ns`, in nanoseconds.
    pub latency_jitter_ns: u64,
    /// How many boots of the stack the seeds start from: seed s from boot s mod `boots`.
    pub boots: u64,
    /// Each service starts up to so many nanoseconds later than it could.
    pub start_spread_ns: u64,
    /// The wall clock of each node is up to so many nanoseconds before or behind the true time.
    pub clock_spread_ns: u64,
    /// System calls of each node cost up to this share more or less.
    pub cost_spread: Ppb,
}

/// Shorter steps take longer to draw for than programs to run, without giving faults that matter at other times.
pub const SHORTEST_STEP_NS: u64 = 100_000;

impl Default for Simulation {
    fn default() -> Simulation {
        Simulation {
            max_time_ns: 300_000_000_000,
            time_step_ns: 10_000_000,
            seeds: 100,
            start_timeout_ns: 60_000_000_000,
            latency_ns: 200_000,
            latency_jitter_ns: 50_000,
            boots: 4,
            start_spread_ns: 50_000_000,
            clock_spread_ns: 5_000_000,
            cost_spread: FIVE_PERCENT,
        }
    }
}

pub(super) fn simulation(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Simulation> {
    let fields = ctx.fields(node, path, keys::SIMULATION)?;
    let default = Simulation::default();
    let positive =
        |ctx: &mut Ctx, key, default| fields.get(ctx, key, Ctx::positive_duration).unwrap_or(default);
    let out = Simulation {
        max_time_ns: positive(ctx, "max_time", default.max_time_ns),
        time_step_ns: positive(ctx, "time_step", default.time_step_ns),
        seeds: fields.get(ctx, "seeds", |c, n, p| c.integer(n, p, 1, u64::MAX)).unwrap_or(default.seeds),
        start_timeout_ns: positive(ctx, "start_timeout", default.start_timeout_ns),
        latency_ns: positive(ctx, "latency", default.latency_ns),
        latency_jitter_ns: fields
            .get(ctx, "latency_jitter", Ctx::duration)
            .unwrap_or(default.latency_jitter_ns),
        boots: fields.get(ctx, "boots", |c, n, p| c.integer(n, p, 1, MOST_BOOTS)).unwrap_or(default.boots),
        start_spread_ns: fields.get(ctx, "start_spread", Ctx::duration).unwrap_or(default.start_spread_ns),
        clock_spread_ns: fields.get(ctx, "clock_spread", Ctx::duration).unwrap_or(default.clock_spread_ns),
        cost_spread: fields.get(ctx, "cost_spread", Ctx::rate).unwrap_or(default.cost_spread),
    };
    if out.time_step_ns < SHORTEST_STEP_NS {
        let (step, least) = (show_duration(out.time_step_ns), show_duration(SHORTEST_STEP_NS));
        let span = fields.node("time_step").map_or(node.span, |n| n.span);
        ctx.error(Code::OutOfRange, span, format!("the time step ({step}) is too short: at least {least}"))
            .help("probabilities of faults are drawn once per step: with a shorter one a run would draw for ever");
    }
    if out.cost_spread > MOST_COST_SPREAD {
        let span = fields.node("cost_spread").map_or(node.span, |n| n.span);
        ctx.error(Code::OutOfRange, span, format!("`{}` must be at most 0.5", fields.path("cost_spread")));
    }
    if out.time_step_ns > out.max_time_ns {
        let (step, max) = (show_duration(out.time_step_ns), show_duration(out.max_time_ns));
        let span = fields.node("time_step").or(fields.node("max_time")).map_or(node.span, |n| n.span);
        ctx.error(Code::Conflict, span, format!("the time step ({step}) is longer than max_time ({max})"));
    }
    Some(out)
}

/// The section `exploration`. Only the number of workers has an effect so far.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Exploration {
    /// How many runs go on at the same time; `None`: as many as there are cores.
    pub parallel_workers: Option<u32>,
}

#[derive(Clone, Copy, PartialEq)]
enum Strategy {
    Random,
    Other,
}

pub(super) fn exploration(ctx: &mut Ctx, node: &Node, path: &str) -> Option<Exploration> {
    let fields = ctx.fields(node, path, keys::EXPLORATION)?;
    let strategies = [
        ("bfs", Strategy::Other),
        ("dfs", Strategy::Other),
        ("random", Strategy::Random),
        ("coverage-guided", Strategy::Other),
    ];
    let strategy = fields.get(ctx, "strategy", |c, n, p| c.choice(n, p, &strategies));
    for key in ["max_depth", "max_states"] {
        fields.get(ctx, key, |c, n, p| c.integer(n, p, 1, u64::MAX));
    }
    for key in ["prioritize_coverage", "prioritize_near_violation"] {
        fields.get(ctx, key, Ctx::bool);
    }
    let parallel_workers = fields
        .get(ctx, "parallel_workers", |c, n, p| c.integer(n, p, 1, 1024))
        .and_then(|n| u32::try_from(n).ok());
    let mut later = vec!["max_depth", "max_states", "prioritize_coverage", "prioritize_near_violation"];
    if strategy != Some(Strategy::Random) {
        // Independent random seeds are what `test` does: that word already has its meaning.
        later.push("strategy");
    }
    not_available_yet(ctx, &fields, &later);
    Some(Exploration { parallel_workers })
}

/// The section `output`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Where reports and findings are written, resolved against the directory of bloodhound.yaml.
    pub dir: PathBuf,
    /// Whether a finding is saved with the trace of its run.
    pub save_violation_traces: bool,
    /// Whether a summary of the campaign is written.
    pub summary_report: bool,
}

pub(super) fn output(ctx: &mut Ctx, node: Option<&Node>) -> Option<Output> {
    let base = ctx.source.dir();
    let mut out = Output { dir: base.join("output"), save_violation_traces: true, summary_report: true };
    let Some(node) = node else { return Some(out) };
    let fields = ctx.fields(node, "output", keys::OUTPUT)?;
    if let Some(dir) = fields.get(ctx, "dir", Ctx::name) {
        out.dir = super::resolve(&base, &dir);
    }
    if let Some(save) = fields.get(ctx, "save_violation_traces", Ctx::bool) {
        out.save_violation_traces = save;
    }
    if let Some(summary) = fields.get(ctx, "summary_report", Ctx::bool) {
        out.summary_report = summary;
    }
    fields.get(ctx, "save_interesting_seeds", Ctx::bool);
    let formats = [("html", ()), ("json", ()), ("lcov", ()), ("text", ())];
    fields.get(ctx, "coverage_format", |c, n, p| c.choice(n, p, &formats));
    not_available_yet(ctx, &fields, &["save_interesting_seeds", "coverage_format"]);
    Some(out)
}

/// The section `debug` has no effect yet; its values are checked.
pub(super) fn debug(ctx: &mut Ctx, node: &Node, path: &str) -> Option<()> {
    let fields = ctx.fields(node, path, keys::DEBUG)?;
    fields.get(ctx, "gdb_enabled", Ctx::bool);
    fields.get(ctx, "gdb_port", |c, n, p| c.integer(n, p, 1, 65_535));
    let levels = [("off", ()), ("minimal", ()), ("normal", ()), ("verbose", ())];
    fields.get(ctx, "trace_level", |c, n, p| c.choice(n, p, &levels));
    fields.get(ctx, "trace_events", |c, n, p| {
        for item in c.list(n, p)? {
            c.choice(item, p, TRACE_EVENTS);
        }
        Some(())
    });
    not_available_yet(ctx, &fields, keys::DEBUG);
    Some(())
}

/// What `debug.trace_events` may name.
pub(crate) const TRACE_EVENTS: &[(&str, ())] = &[
    ("syscall", ()),
    ("network_send", ()),
    ("network_recv", ()),
    ("disk_read", ()),
    ("disk_write", ()),
    ("disk_sync", ()),
    ("process_start", ()),
    ("process_exit", ()),
    ("process_crash", ()),
    ("process_pause", ()),
    ("partition", ()),
    ("signal", ()),
];

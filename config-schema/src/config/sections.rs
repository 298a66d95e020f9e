//! The small sections: `simulation`, `exploration`, `output`, `debug`.
//!
//! Key types: [`Simulation`], [`Output`]. What has no effect yet is checked all the same and reported as "not
//! available yet", so that a file stays valid when it becomes available.

use std::path::PathBuf;

use bloodhound_declare::{Key, Section, Shortest, ValueKind, Word, Words};

use crate::decode::Ctx;
use crate::diagnostic::Code;
use crate::scalar::{Ppb, show_duration};

use super::coverage::{self, CoverageFormat};
use super::date;
use super::read::{self, Settings};
use super::schedule::{self, SCHEDULE, Schedule};

/// A duration that is longer than nothing.
pub(super) const LONGER_THAN_0: ValueKind = ValueKind::Duration(Shortest::Positive);
const DURATION: ValueKind = ValueKind::Duration(Shortest::Zero);
const AT_LEAST_1: ValueKind = ValueKind::Integer { least: 1, most: u64::MAX };

pub(super) static SIMULATION: Section = Section::new(
    "Simulation",
    "times and seeds",
    &[
        Key::new(
            "max_time",
            LONGER_THAN_0,
            "longest virtual time of a run, counted from the moment all services are ready; workload and \
             fault phase must fit in",
        )
        .default("5m"),
        Key::new(
            "time_step",
            ValueKind::Duration(Shortest::Of {
                least: "100us",
                what: "the time step",
                why: "probabilities of faults are drawn once per step: with a shorter one a run would draw \
                      for ever",
            }),
            "how often fault probabilities are drawn",
        )
        .default("10ms"),
        Key::new(
            "start_date",
            date::DATE,
            "what the wall clocks show when a run begins; certificates and tokens have to be valid then",
        )
        .default(date::START),
        Key::new("seeds", AT_LEAST_1, "how many seeds `bloodhound test` runs; `--seeds` overrides it")
            .default("100"),
        Key::new(
            "boots",
            ValueKind::Integer { least: 1, most: 1000 },
            "how many boots of the stack the seeds start from: seed s from boot s mod `boots`",
        )
        .default("4"),
        Key::new("start_timeout", LONGER_THAN_0, "longest virtual time until all services are ready")
            .default("60s"),
        Key::new("latency", LONGER_THAN_0, "time a packet takes from one node to another without any fault")
            .default("200us"),
        Key::new("latency_jitter", DURATION, "upper bound of a random addition to `latency`").default("50us"),
        Key::new("start_spread", DURATION, "each service starts up to this much later than it could")
            .default("50ms"),
        Key::new(
            "clock_spread",
            DURATION,
            "the wall clock of each node is up to this much before or behind the true time",
        )
        .default("5ms"),
        Key::new(
            "cost_spread",
            ValueKind::Rate { most: "0.5" },
            "system calls of each node cost up to this share more or less",
        )
        .default("0.05"),
        Key::new(
            "healthchecks",
            ValueKind::Word(&HEALTHCHECKS),
            "for how long health checks of services are made",
        )
        .default("always"),
        Key::new(
            "compute_limit",
            LONGER_THAN_0,
            "processor time that a thread may compute without a system call until a loop is looked for in which \
             it can be preempted; 20 times as long, and it is a `hang` if nothing can happen any more",
        )
        .default("1s"),
    ],
);

static HEALTHCHECKS: Words = Words {
    name: "Healthchecks",
    words: &[
        Word::new("always", "for the whole run, as an engine does"),
        Word::new(
            "until-ready",
            "until the service is healthy, each time that it starts: less work for each seed",
        ),
    ],
};

/// The section `simulation`; what its keys mean is declared in `SIMULATION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simulation {
    /// `max_time`, in nanoseconds.
    pub max_time_ns: u64,
    /// `time_step`, in nanoseconds.
    pub time_step_ns: u64,
    /// `start_date`, in nanoseconds since 1970.
    pub start_date_ns: u64,
    /// `seeds`, at least 1.
    pub seeds: u64,
    /// `start_timeout`, in nanoseconds.
    pub start_timeout_ns: u64,
    /// `latency`, in nanoseconds.
    pub latency_ns: u64,
    /// `latency_jitter`, in nanoseconds.
    pub latency_jitter_ns: u64,
    /// `boots`, at least 1.
    pub boots: u64,
    /// `start_spread`, in nanoseconds.
    pub start_spread_ns: u64,
    /// `clock_spread`, in nanoseconds.
    pub clock_spread_ns: u64,
    /// `cost_spread`.
    pub cost_spread: Ppb,
    /// `healthchecks: until-ready`.
    pub health_until_ready: bool,
    /// `compute_limit`, in nanoseconds.
    pub compute_limit_ns: u64,
}

impl Default for Simulation {
    fn default() -> Simulation {
        read::of_nothing(&SIMULATION, simulation)
    }
}

pub(super) fn simulation(ctx: &mut Ctx, settings: &Settings<'_>) -> Simulation {
    let out = Simulation {
        max_time_ns: settings.value(ctx, "max_time"),
        time_step_ns: settings.value(ctx, "time_step"),
        start_date_ns: settings.own(ctx, "start_date", date::decode).unwrap_or(0),
        seeds: settings.value(ctx, "seeds"),
        start_timeout_ns: settings.value(ctx, "start_timeout"),
        latency_ns: settings.value(ctx, "latency"),
        latency_jitter_ns: settings.value(ctx, "latency_jitter"),
        boots: settings.value(ctx, "boots"),
        start_spread_ns: settings.value(ctx, "start_spread"),
        clock_spread_ns: settings.value(ctx, "clock_spread"),
        cost_spread: settings.value(ctx, "cost_spread"),
        health_until_ready: settings.value::<String>(ctx, "healthchecks") == "until-ready",
        compute_limit_ns: settings.value(ctx, "compute_limit"),
    };
    if out.time_step_ns > out.max_time_ns {
        let (step, max) = (show_duration(out.time_step_ns), show_duration(out.max_time_ns));
        let node = settings.node("time_step").or(settings.node("max_time"));
        let span = node.map_or(settings.span, |n| n.span);
        ctx.error(Code::Conflict, span, format!("the time step ({step}) is longer than max_time ({max})"));
    }
    out
}

pub(super) static EXPLORATION: Section = Section::new(
    "Exploration",
    "how seeds are explored",
    &[
        Key::new("strategy", ValueKind::Word(&STRATEGY), "how the next run is chosen").default("swarm"),
        Key::new(
            "max_depth",
            AT_LEAST_1,
            "how many times a search goes on from a moment of a run that did so itself",
        )
        .default("100"),
        Key::new(
            "max_states",
            AT_LEAST_1,
            "most moments of runs that a search keeps to go on from; the least useful go",
        )
        .default("10000"),
        Key::new(
            "parallel_workers",
            ValueKind::Integer { least: 1, most: 1024 },
            "how many runs go on at the same time",
        )
        .otherwise("number of cores"),
        Key::new(
            "prioritize_coverage",
            ValueKind::Bool,
            "whether a search prefers moments at which something was seen that few runs have shown",
        )
        .default("true"),
        Key::new(
            "prioritize_near_violation",
            ValueKind::Bool,
            "whether a search prefers moments of runs that came near a violation",
        )
        .default("true"),
        Key::section("schedule", &SCHEDULE),
    ],
);

static STRATEGY: Words = Words {
    name: "Strategy",
    words: &[
        Word::new(
            "random",
            "independent seeds, each with every configured kind of fault at its configured rate",
        ),
        Word::new(
            "swarm",
            "independent seeds, each of which draws which kinds of faults it has and how strong (unless `faults.swarm` is false)",
        ),
        Word::new("bfs", "goes on from moments of runs that showed something new, the least deep ones first"),
        Word::new("dfs", "goes on from moments of runs that showed something new, the deepest first"),
        Word::new(
            "coverage-guided",
            "goes on most from moments at which something rare was seen, by ways of going on that have paid; other runs are those of new seeds",
        ),
        Word::new("input-tree", "gives programs other random numbers of up to 8 bytes, one by one"),
    ],
};

/// The section `exploration`; what its keys mean is declared in `EXPLORATION`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exploration {
    /// `strategy`.
    pub strategy: String,
    /// `max_depth`, at least 1.
    pub max_depth: u64,
    /// `max_states`, at least 1.
    pub max_states: u64,
    /// `prioritize_coverage`.
    pub prioritize_coverage: bool,
    /// `prioritize_near_violation`.
    pub prioritize_near_violation: bool,
    /// `parallel_workers`; `None`: as many as there are cores.
    pub parallel_workers: Option<u32>,
    /// `schedule`.
    pub schedule: Schedule,
}

pub(super) fn exploration(ctx: &mut Ctx, settings: &Settings<'_>) -> Exploration {
    let schedule = settings.section_or_empty(ctx, "schedule");
    Exploration {
        strategy: settings.value(ctx, "strategy"),
        max_depth: settings.value(ctx, "max_depth"),
        max_states: settings.value(ctx, "max_states"),
        prioritize_coverage: settings.value(ctx, "prioritize_coverage"),
        prioritize_near_violation: settings.value(ctx, "prioritize_near_violation"),
        parallel_workers: settings.get(ctx, "parallel_workers"),
        schedule: schedule::schedule(ctx, &schedule),
    }
}

pub(super) static OUTPUT: Section = Section::new(
    "Output",
    "where results go",
    &[
        Key::new("dir", ValueKind::Path, "directory of reports and findings").default("./output"),
        Key::new(
            "save_violation_traces",
            ValueKind::Bool,
            "whether a finding is saved with the trace of its run",
        )
        .default("true"),
        Key::new(
            "save_interesting_seeds",
            ValueKind::Bool,
            "whether seeds that reach something new are saved in the corpus, which is `<dir>/corpus` if `--corpus` names no other \
             (docs/corpus.md)",
        )
        .otherwise("`true` with `--corpus`"),
        Key::new(
            "coverage_format",
            coverage::FORMATS,
            "how the code that was reached is shown, in `<dir>/coverage`",
        )
        .otherwise("`html` and `json`, if coverage is measured"),
        Key::new("summary_report", ValueKind::Bool, "whether a summary of the campaign is written")
            .default("true"),
        Key::new(
            "redact",
            ValueKind::List(&ValueKind::Name("name pattern")),
            "variables whose values never appear in what is printed and written, such as `*_PASSWORD`; the contents of `secrets` \
             and `configs` and the values of `env_file` never do",
        )
        .otherwise("none"),
    ],
);

/// The section `output`; what its keys mean is declared in `OUTPUT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// `dir`, resolved against the directory of bloodhound.yaml.
    pub dir: PathBuf,
    /// `save_violation_traces`.
    pub save_violation_traces: bool,
    /// `save_interesting_seeds`; `None`: if a corpus is named.
    pub save_interesting_seeds: Option<bool>,
    /// `summary_report`.
    pub summary_report: bool,
    /// `coverage_format`; `None`: it is not written.
    pub coverage_format: Option<Vec<CoverageFormat>>,
    /// `redact`: patterns with `*` and `?`.
    pub redact: Vec<String>,
}

pub(super) fn output(ctx: &mut Ctx, settings: &Settings<'_>) -> Output {
    Output {
        dir: settings.value(ctx, "dir"),
        save_violation_traces: settings.value(ctx, "save_violation_traces"),
        save_interesting_seeds: settings.get(ctx, "save_interesting_seeds"),
        summary_report: settings.value(ctx, "summary_report"),
        coverage_format: settings.own(ctx, "coverage_format", coverage::formats),
        redact: settings.get(ctx, "redact").unwrap_or_default(),
    }
}

/// Nothing in it has an effect yet, so no decoder reads it.
pub(super) static DEBUG: Section = Section::new(
    "Debug",
    "debugging",
    &[
        Key::new("gdb_enabled", ValueKind::Bool, "whether a debugger can be attached").later(),
        Key::new("gdb_port", ValueKind::Integer { least: 1, most: 65_535 }, "the TCP port for a debugger")
            .later(),
        Key::new("trace_level", ValueKind::Word(&TRACE_LEVEL), "how much of a run is traced").later(),
        Key::new("trace_events", ValueKind::List(&ValueKind::Word(&TRACE_EVENT)), "which events are traced")
            .later(),
    ],
);

static TRACE_LEVEL: Words = Words {
    name: "TraceLevel",
    words: &[
        Word::new("off", ""),
        Word::new("minimal", ""),
        Word::new("normal", ""),
        Word::new("verbose", ""),
    ],
};

static TRACE_EVENT: Words = Words {
    name: "TraceEvent",
    words: &[
        Word::new("syscall", ""),
        Word::new("network_send", ""),
        Word::new("network_recv", ""),
        Word::new("disk_read", ""),
        Word::new("disk_write", ""),
        Word::new("disk_sync", ""),
        Word::new("process_start", ""),
        Word::new("process_exit", ""),
        Word::new("process_crash", ""),
        Word::new("process_pause", ""),
        Word::new("partition", ""),
        Word::new("signal", ""),
    ],
};

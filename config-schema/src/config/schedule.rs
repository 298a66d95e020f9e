//! The section `exploration.schedule`: how the tasks of a run interleave.

use bloodhound_declare::{Key, Section, ValueKind, words};

use crate::decode::Ctx;

use super::read::{Chosen, Settings};

words! {
    /// Which task goes next.
    pub enum SchedulePolicy as "SchedulePolicy" {
        Fifo = "fifo": "a task runs until it blocks, then the one that has waited longest does",
        Random = "random": "turns of random lengths, each of a random task",
        Pct = "pct": "the task with the highest priority runs until it blocks; priorities are random and change a few times",
        Swarm = "swarm": "each seed has one of the others",
    }
}

words! {
    /// Where tasks are preempted.
    pub enum PreemptAt as "PreemptAt" {
        Calls = "calls": "where they make system calls",
        Code = "code": "also between two instructions, at accesses to memory that tasks share",
    }
}

pub(super) static SCHEDULE: Section = Section::new(
    "Schedule",
    "how the tasks of a run interleave",
    &[
        Key::new("policy", ValueKind::Word(SchedulePolicy::WORDS), "which task goes next").default("random"),
        Key::new(
            "depth",
            ValueKind::Integer { least: 1, most: 10 },
            "how many changes of priority, or switches between instructions, a run has at most",
        )
        .default("3"),
        Key::new("preempt_at", ValueKind::Word(PreemptAt::WORDS), "where tasks are preempted")
            .default("calls"),
    ],
);

/// The section `exploration.schedule`; what its keys mean is declared in `SCHEDULE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// `policy`.
    pub policy: SchedulePolicy,
    /// `depth`.
    pub depth: u32,
    /// `preempt_at`.
    pub preempt_at: PreemptAt,
}

pub(super) fn schedule(ctx: &mut Ctx, settings: &Settings<'_>) -> Schedule {
    Schedule {
        policy: settings.value::<Chosen<SchedulePolicy>>(ctx, "policy").0,
        depth: settings.value(ctx, "depth"),
        preempt_at: settings.value::<Chosen<PreemptAt>>(ctx, "preempt_at").0,
    }
}

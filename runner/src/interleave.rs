//! How tasks interleave: what the configuration says of it as the simulation has it ([`schedule`]), and the profile from which places of
//! preemption are drawn ([`accesses_of`]).
//!
//! Neighbours: `bloodhound_sim::profile` gathers profiles, `bloodhound_sim::switches` draws from them, `coverage` reads programs.

use std::sync::Arc;

use bloodhound_config::config;
use bloodhound_coverage::{Access, Which, accesses};
use bloodhound_sim::profile::{AccessesOf, CodeAccess, Profile};
use bloodhound_sim::scheduler::{Kind, PreemptAt, Schedule};
use bloodhound_sim::{CodeFile, Machine, World};

/// What the configuration says, as the simulation has it.
pub fn schedule(written: &config::Schedule) -> Schedule {
    let kind = match written.policy {
        config::SchedulePolicy::Fifo => Kind::Fifo,
        config::SchedulePolicy::Random => Kind::Random,
        config::SchedulePolicy::Pct => Kind::Pct,
        config::SchedulePolicy::Swarm => Kind::Swarm,
    };
    let preempt_at = match written.preempt_at {
        config::PreemptAt::Calls => PreemptAt::Calls,
        config::PreemptAt::Code => PreemptAt::Code,
    };
    Schedule { kind, depth: written.depth, preempt_at }
}

/// Answers with the instructions of a file at which tasks may be preempted: all that access memory in programs' own files, atomic ones
/// in shared libraries of the system, where locks are made of them. A file that is no program has none.
pub fn accesses_of() -> Arc<AccessesOf> {
    Arc::new(|file: &CodeFile<'_>| {
        let which = if is_library(file.path) { Which::Atomic } else { Which::All };
        let found = accesses(&crate::coverage::read(file.image), which).ok()?;
        let access = |Access { offset, atomic, written }: Access| CodeAccess { offset, atomic, own: written };
        Some(found.into_iter().map(access).collect())
    })
}

/// Runs that a profile is gathered in.
const PROFILES: u64 = 8;
/// Their seeds, "plan" in ASCII and the number of the run: they share nothing with seeds of users.
const SEEDS: u64 = 0x706c_616e_0000_0000;

/// Gathers the profile of what runs from `beginning` on; `run` runs a machine to the end of a run. The machine is left at the end of the
/// last one.
///
/// # Errors
/// Those of `run`.
pub fn profile<E>(
    machine: &mut Machine,
    beginning: &World,
    mut run: impl FnMut(&mut Machine, u64) -> Result<(), E>,
) -> Result<Arc<Profile>, E> {
    let mut gathered = Vec::new();
    for number in 0..PROFILES {
        machine.restore(beginning.clone());
        machine.begin_profile(accesses_of());
        let ran = run(machine, SEEDS + number);
        gathered.push(machine.end_profile());
        ran?;
    }
    Ok(Arc::new(Profile::joined(&gathered)))
}

/// Whether a file is a shared library of the system, going by its path.
fn is_library(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    let object = name.ends_with(b".so") || name.windows(4).any(|part| part == b".so.");
    object
        && [&b"/lib/"[..], b"/lib64/", b"/usr/lib/", b"/usr/local/lib/"]
            .iter()
            .any(|dir| path.starts_with(dir))
}

#[cfg(test)]
mod tests;

//! The runs in which a case is looked for that has changed since it was found ([`tries`]).
//!
//! Where the configuration is the same, the seed of the case draws the same faults: its log is run in other schedules. Where it is another one, or what the log has left
//! out would come back, the faults are those of its schedule, by the names of services and times. Operations are those of its seed in the first half of the
//! runs, for as long as clients were at work there; in the second half other seeds draw them.

use bloodhound_decisions::{Choice, Concern, Epoch, ForcedSwitch, Log, Override, Site};

use super::case::Case;
use crate::shrink::case::is_said;

/// Other schedules have seeds that no campaign begins with: "again" in ASCII and a number.
const OTHER_SCHEDULES: u64 = 0x6167_6169_6e00_0000;

/// A run.
pub struct Try {
    pub log: Log,
    /// Its faults are those of the schedule of the case.
    pub scheduled: bool,
}

/// What a log has that does not show in its divergences, and makes that it does not apply exactly where a program is another one.
pub fn unseen(log: &Log) -> Vec<String> {
    let mut unseen = Vec::new();
    let switches: &[ForcedSwitch] = log.switches.as_deref().unwrap_or_default();
    if !switches.is_empty() {
        unseen.push(format!(
            "it makes tasks give way at {} instructions of the program as it was",
            switches.len()
        ));
    }
    if log.overrides.is_empty() {
        unseen.push("its log names no choice (the finding was not shrunken), so nothing tells whether the run is still the one that was meant".to_owned());
    }
    unseen
}

/// At most so many runs. `lenient`: the log itself is worth a run whose misfits are plain choices.
pub fn tries(case: &Case, same_plan: bool, lenient: bool, runs: u32) -> Vec<Try> {
    let runs = u64::from(runs.max(1));
    let half = runs.div_ceil(2);
    let scheduled = case.schedule.is_ok();
    let by_log = |n: u64| {
        let log = case.log.as_ref().ok()?;
        let log = Log { counted: Vec::new(), switches: None, ..log.clone() };
        // The first one is the log as it is; where that fits, it has been run.
        let n = if lenient { n } else { n + 1 };
        Some(Try { log: if n == 0 { log } else { in_another_schedule(log, n) }, scheduled: false })
    };
    let by_schedule = |n: u64| {
        let (boot_seed, seed) = case
            .log
            .as_ref()
            .map_or((crate::boots::decisions(0).log().boot_seed, n), |log| (log.boot_seed, log.seed));
        let log = match n < half {
            // What clients do is drawn by the seed of the case, without what was left out.
            true => {
                let mut log = Log::new(boot_seed, seed);
                if let Ok(of_case) = &case.log {
                    let operations =
                        of_case.overrides.iter().filter(|(choice, said)| is_of_clients(choice, **said));
                    log.overrides = operations.map(|(choice, to)| (*choice, *to)).collect();
                }
                if n == 0 { log } else { in_another_schedule(log, n) }
            }
            false => Log::new(boot_seed, seed.wrapping_add(n)),
        };
        Try { log, scheduled: true }
    };
    let one = |n: u64| match (scheduled, same_plan && n < half) {
        (false, _) => by_log(n),
        (true, true) => by_log(n).or_else(|| Some(by_schedule(n))),
        (true, false) => Some(by_schedule(n)),
    };
    (0..runs).filter_map(one).collect()
}

/// Whether the log says of the clients what no seed draws: that an operation is left out, or when the workload ends.
fn is_of_clients(choice: &Choice, said: Override) -> bool {
    matches!(choice.site, Site::Operation { .. }) && is_said(choice, said)
}

/// The same with other choices of scheduler and network, from the end of the boot on, the `nth`.
fn in_another_schedule(mut log: Log, nth: u64) -> Log {
    let concerns = vec![Concern::Scheduler, Concern::Network];
    log.plain.retain(|concern| !concerns.contains(concern));
    for epoch in &mut log.epochs {
        epoch.concerns.retain(|concern| !concerns.contains(concern));
    }
    log.epochs.retain(|epoch| !epoch.concerns.is_empty());
    let seed = log.seed.wrapping_add(OTHER_SCHEDULES + nth);
    log.epochs.insert(0, Epoch { from: 0, seed, concerns });
    log
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::regress::case::tests::case as tests_case;
    use bloodhound_decisions::{Part, WORD};
    use bloodhound_workloads::http::{left_out, workload_end};

    #[test]
    fn a_case_is_looked_for_by_its_log_and_by_its_faults() {
        let mut case = tests_case();
        let clients = [left_out(1, 2), workload_end()].map(|site| Choice { part: Part::Run, site });
        if let Ok(log) = &mut case.log {
            log.overrides.extend(clients.map(|choice| (choice, Override { bound: WORD, value: 5 })));
        }
        let same = tries(&case, true, true, 8);
        assert_eq!(
            same.iter().map(|t| t.scheduled).collect::<Vec<_>>(),
            [false, false, false, false, true, true, true, true]
        );
        assert_eq!(case.log.as_ref().map(|log| &log.epochs), Ok(&same[0].log.epochs));
        let others: BTreeSet<u64> = same[1..4].iter().map(|t| t.log.epochs[0].seed).collect();
        assert!(others.len() == 3 && same[1].log.epochs.len() == 1 && same[1].log.plain.is_empty());
        let seeds: BTreeSet<u64> = same[4..].iter().map(|t| t.log.seed).collect();
        assert_eq!(seeds.len(), 4, "each draws other operations");
        let other = tries(&case, false, true, 5);
        assert!(other.iter().all(|t| t.scheduled));
        assert!(
            other[..3]
                .iter()
                .all(|t| t.log.overrides.keys().copied().collect::<BTreeSet<_>>() == BTreeSet::from(clients))
        );
        assert!(other[3].log.overrides.is_empty());
        case.schedule = Err("none".into());
        assert!(tries(&case, false, true, 3).iter().all(|t| !t.scheduled));
        case.log = Err("older".into());
        assert!(tries(&case, false, true, 3).is_empty());
        case.schedule = Ok("schedule: []".into());
        assert_eq!(tries(&case, true, true, 3).len(), 3);
    }

    #[test]
    fn what_does_not_show_is_told() {
        assert_eq!(unseen(&Log::new(0, 1)).len(), 1);
        let case = tests_case();
        assert_eq!(unseen(case.log.as_ref().expect("a log")).len(), 1, "its switches");
    }
}

//! Tests that a run which begins at a snapshot of another one is the run from the boot on, for everything that may be taken out of a run.

use bloodhound_decisions::{Concern, Epoch, WORD};

use super::*;
use crate::branch::tests::Subject;
use crate::platform::Wanted as Platform;
use crate::session::{Ending, Outcome};

/// What is known of a run, all but the log that says so.
fn shown(outcome: &Outcome) -> String {
    let Outcome { steps, virtual_time, profile, plan, effects, log, history, violations, .. } = outcome;
    format!(
        "{steps} {virtual_time}\n{profile:?}\n{plan:#?}\n{effects:?}\n{log:#?}\n{:#?}\n{violations:#?}",
        history.operations()
    )
}

/// The choices about each concern, in order.
fn by_concern(made: &[Made]) -> BTreeMap<Concern, Vec<Made>> {
    let mut all: BTreeMap<Concern, Vec<Made>> = BTreeMap::new();
    for made in made {
        all.entry(made.choice.site.concern()).or_default().push(*made);
    }
    all
}

/// A stack with a run of it that is known, and its snapshots.
struct Known {
    subject: Subject,
    ran: Ran,
    base: Arc<Base>,
}

impl Known {
    /// Snapshots are taken as if the run had failed in its last moment.
    fn new(config: &str, wanted: Platform, log: impl FnOnce(&Subject) -> Log) -> Known {
        let mut subject = Subject::example(config, wanted);
        let log = log(&subject);
        let ran = subject.run_from_boot(log.clone());
        let times = Times::of(&ran);
        let end = ran.outcome.virtual_time.0;
        let stops = (1..5).map(|part| SimTime(times.ready + (end - times.ready) * part / 5));
        let mut stops: Vec<SimTime> = times.stops(end).into_iter().chain(stops).collect();
        stops.sort_unstable();
        let ((outcome, made), points) =
            subject.worker.run_log_with_points(&subject.booted, log, (SimTime::MAX, &stops)).expect("a run");
        assert_eq!(shown(&outcome), shown(&ran.outcome));
        assert_eq!(made, ran.made);
        assert!(points.len() > 5, "{} points", points.len());
        let base = Arc::new(Base::new(Ran { outcome, made }, points, u64::MAX));
        Known { subject, ran, base }
    }

    /// Runs a log from a snapshot and from the boot. Returns how much of the run the snapshot has saved, in hundredths; `None` if there is no snapshot for it.
    fn check(&mut self, what: &str, log: Log) -> Option<u64> {
        let starts = Starts { base: Some(self.base.clone()), ..Starts::default() };
        let start = starts.start(&log)?;
        let (points, made) = start.points();
        let whole = self.subject.run_from_boot(log.clone());
        for point in points {
            let log = (log.clone(), start.faults_differ);
            let ending = Ending::at(SimTime::MAX);
            let ran = self.subject.worker.run_log_from(point, log, made, &ending).expect("a run");
            let Some((outcome, made)) = ran else { continue };
            assert_eq!(shown(&outcome), shown(&whole.outcome), "{what} from {}", point.at);
            assert_eq!(by_concern(&made), by_concern(&whole.made), "{what} from {}", point.at);
            let end = self.ran.outcome.virtual_time.0;
            let ready = self.base.times.ready;
            return Some((point.at.0 - ready) * 100 / (end - ready));
        }
        None
    }

    /// Checks what is taken out of the run, a few of each kind. Returns how often a snapshot was of use, and what that has saved.
    fn check_all(&mut self) -> Vec<u64> {
        let log = (*self.ran.outcome.decisions).clone();
        let with = |element: &[case::Edit]| case::without(&log, &[element.to_vec()], &[]);
        let mut logs: Vec<(String, Log)> = Vec::new();
        let few = |count: usize| (count / 4).max(1);
        let faults = case::faults(&self.ran);
        for (nth, element) in faults.iter().enumerate().step_by(few(faults.len() / 2)) {
            logs.push((format!("fault {nth} out"), with(element)));
        }
        let outcome = &self.ran.outcome;
        let planned: Vec<_> = outcome.record().map(|(entry, _)| entry.clone()).collect();
        for entry in planned.iter().step_by(few(planned.len())) {
            for to in [entry.begin.after(3_000_000), SimTime(entry.begin.0.saturating_sub(3_000_000))] {
                logs.extend(
                    case::beginning_at(outcome, entry.id, to)
                        .map(|log| (format!("{:?} at {to}", entry.id), log)),
                );
            }
        }
        let parameters = case::parameters(&self.ran);
        for (choice, recorded) in parameters.iter().step_by(few(parameters.len())) {
            let to = Override { value: recorded.value / 2, ..*recorded };
            logs.push((format!("{choice}"), with(&[case::Edit::Set(*choice, to)])));
        }
        let operations = case::operations_out(&self.ran);
        for element in operations.iter().step_by(few(operations.len())) {
            logs.push((format!("without {element:?}"), with(element)));
        }
        let departing = case::departing(&self.ran, &[Concern::Network]);
        for (choice, recorded) in departing.iter().step_by(few(departing.len())) {
            let to = Override { value: 0, ..*recorded };
            logs.push((format!("{choice}"), with(&[case::Edit::Set(*choice, to)])));
        }
        let middle = self.base.times.ready.midpoint(outcome.virtual_time.0);
        let mut anew = log.clone();
        anew.epochs.push(Epoch { from: middle, seed: 77, concerns: vec![Concern::Network, Concern::Faults] });
        logs.push(("drawn anew".into(), anew));
        logs.into_iter().filter_map(|(what, log)| self.check(&what, log)).collect()
    }
}

fn of_seed(seed: u64) -> impl FnOnce(&Subject) -> Log {
    move |subject| subject.log(seed)
}

#[test]
fn a_run_from_a_snapshot_is_the_run_from_the_boot() {
    let mut known = Known::new("brutal.yaml", Platform::Ptrace, of_seed(3));
    let saved = known.check_all();
    assert!(saved.len() > 12, "a snapshot was of use {} times", saved.len());
    assert!(saved.iter().any(|saved| *saved > 60), "{saved:?}");
}

/// The plan of such a run is the second one that was drawn.
#[test]
fn so_it_is_where_an_epoch_has_drawn_faults() {
    let anew = |subject: &Subject| {
        let mut log = subject.log(4);
        let from = subject.booted.now.0 + 1;
        log.epochs.push(Epoch { from, seed: 99, concerns: Concern::OF_RUN.to_vec() });
        log
    };
    let mut known = Known::new("brutal.yaml", Platform::Ptrace, anew);
    let saved = known.check_all();
    assert!(saved.len() > 12, "a snapshot was of use {} times", saved.len());
}

#[test]
fn so_it_is_on_kvm() {
    if !bloodhound_platform_tests::without_kvm("runs from snapshots on kvm") {
        assert!(Known::new("bloodhound.yaml", Platform::Kvm, of_seed(4)).check_all().len() > 5);
    }
}

/// Of what a log says about the beginning of a run, or what may have been asked about at any time, no snapshot is of use.
#[test]
fn what_is_not_known_begins_at_the_boot() {
    let mut known = Known::new("bloodhound.yaml", Platform::Ptrace, of_seed(3));
    let log = (*known.ran.outcome.decisions).clone();
    let in_run = |site| Choice { part: Part::Run, site };
    let ends = in_run(bloodhound_workloads::http::workload_end());
    let phase = in_run(bloodhound_sim::faults::phase_end());
    let swarm = in_run(Site::Swarm { kind: Word::new("crash") });
    let gap = known.ran.made.iter().find_map(|made| match made.choice.site {
        Site::Fault { part, .. } if part == Word::new("gap") => Some(*made),
        _ => None,
    });
    let gap = gap.expect("a fault was drawn");
    let logs = [
        ("the seed", Log { seed: log.seed + 1, ..log.clone() }),
        ("a plain network", Log { plain: vec![Concern::Network], ..log.clone() }),
        ("switches", Log { switches: Some(Vec::new()), ..log.clone() }),
        ("a boot", log.clone().with(Choice { part: Part::Boot, ..ends }, WORD, 1)),
        ("the end of the workload", log.clone().with(ends, WORD, 1)),
        ("the end of faults", log.clone().with(phase, WORD, 1)),
        ("a kind", log.clone().with(swarm, 6, 0)),
        ("a gap", log.clone().with(gap.choice, gap.bound, gap.value / 2)),
    ];
    for (what, log) in logs {
        assert_eq!(known.check(what, log), None, "{what}");
    }
    assert!(known.check("the same", log).is_some_and(|saved| saved > 60));
}

//! What the log of a run changes amid it: epochs draw faults and other choices anew, entries are left out or moved when their time comes.

use bloodhound_decisions::{AT_ITS_TIME, Choice, Epoch, LATER, Part, WORD};
use bloodhound_sim::faults::{FaultId, KEPT, Planned};
use bloodhound_sim::notice::PhaseChange;

use super::*;

/// A run that branches off another one is a run of its own: its log alone makes it again.
#[test]
fn a_branch_is_an_epoch_of_its_log() {
    let seed = SEEDS[1];
    let whole = plain(seed);
    let mut machine = machine(TestModes::default());
    boot(&mut machine);
    machine.world.decisions.begin_run(seed);
    machine.begin_faults();
    let until = machine.world.steps + whole.steps / 3;
    go(&mut machine, |world| world.steps >= until);
    let snapshot = machine.snapshot().expect("the platform works");
    let mut digests = vec![whole.digest];
    for concerns in [&[Concern::Network][..], &[Concern::Faults], &[Concern::Scheduler, Concern::GuestRandom]]
    {
        let mut branch = snapshot.clone();
        let (now, mut log) = (branch.now.0, Log::clone(branch.decisions.log()));
        log.epochs.push(Epoch { from: now + 1, seed: 99, concerns: concerns.to_vec() });
        branch.decisions.go_on(log, Mode::Strict, now, |_| true).expect("it is about later times");
        let _before = machine.restore(branch);
        go(&mut machine, |world| world.phase == Phase::Done);
        let branched = Outcome::of(&machine.world);
        assert!(!digests.contains(&branched.digest), "{concerns:?} change nothing");
        digests.push(branched.digest.clone());
        let log = Log::clone(machine.world.decisions.log());
        let mut other = self::machine(TestModes::default());
        boot(&mut other);
        other.world.decisions.follow(log, Mode::Strict);
        other.begin_faults();
        go(&mut other, |world| world.phase == Phase::Done);
        assert_eq!(Outcome::of(&other.world), branched, "{concerns:?}");
    }
}

/// The run of a log from the boot on.
fn run_log(log: Log) -> Machine {
    let mut machine = machine(TestModes::default());
    boot(&mut machine);
    machine.world.decisions.follow(Log { boot_seed: 1, ..log }, Mode::Strict);
    machine.begin_faults();
    go(&mut machine, |world| world.phase == Phase::Done);
    assert_eq!(machine.world.decisions.divergences(), []);
    machine
}

fn plan(machine: &Machine) -> &[Planned] {
    &machine.world.faults.plan
}

fn in_run(id: FaultId, part: &str) -> Choice {
    Choice { part: Part::Run, site: id.site(part) }
}

/// The log of a run whose faults are drawn anew when the middle one of its plan has begun, the run, and that moment.
fn anew(seed: u64) -> (Log, Machine, SimTime) {
    let log = Log::new(1, seed);
    let whole = run_log(log.clone());
    let middle = plan(&whole)[plan(&whole).len() / 2].begin;
    let epoch = Epoch { from: middle.0 + 1, seed: 77, concerns: vec![Concern::Faults] };
    let log = Log { epochs: vec![epoch], ..log };
    let machine = run_log(log.clone());
    let begun = plan(&whole).iter().filter(|entry| entry.begin <= middle).count();
    let (before, after): (Vec<&Planned>, Vec<&Planned>) =
        plan(&machine).iter().partition(|entry| !entry.id.is_drawn_anew());
    // One at whose time the epoch begins may be among them.
    assert!(before.len() >= begun && before.len() < plan(&whole).len(), "{} of {begun}", before.len());
    assert!(plan(&whole).iter().zip(&before).all(|(entry, other)| entry == *other), "what has begun stays");
    assert!(after.iter().all(|entry| entry.begin > middle) && !after.is_empty());
    (log, machine, middle)
}

#[test]
fn an_epoch_draws_the_faults_anew_that_have_not_begun() {
    let (_, machine, middle) = anew(SEEDS[1]);
    let told = |wanted: fn(&Notice) -> bool| machine.world.log.iter().filter(move |e| wanted(&e.what));
    let anew: Vec<_> = told(|n| matches!(n, Notice::Phase(PhaseChange::DrawnAnew(_)))).collect();
    assert!(anew.len() == 1 && anew[0].at > middle, "{anew:?}");
    assert_eq!(machine.world.faults.profiles().len(), 2);
    assert_eq!(machine.world.faults.effects.len(), plan(&machine).len(), "the time of all has come");
}

#[test]
fn each_fault_that_is_drawn_anew_is_taken_out_by_its_name() {
    let (log, machine, _) = anew(SEEDS[1]);
    for out in plan(&machine) {
        let less = run_log(log.clone().with(in_run(out.id, "begins"), WORD, 0));
        let others: Vec<&Planned> = plan(&machine).iter().filter(|entry| entry.id != out.id).collect();
        assert_eq!(plan(&less).iter().collect::<Vec<_>>(), others, "without {:?}", out.id);
    }
}

#[test]
fn a_fault_is_left_out_or_moved_when_its_time_comes() {
    let (log, machine, _) = anew(SEEDS[1]);
    let begun = |machine: &Machine, id| {
        let mut log = machine.world.log.iter();
        let found = log.find(|e| matches!(&e.what, Notice::Fault(planned) if planned.id == id));
        found.map(|entry| entry.at)
    };
    let mut moved = 0;
    for entry in plan(&machine).iter().filter(|entry| begun(&machine, entry.id).is_some()) {
        let less = run_log(log.clone().with(in_run(entry.id, AT_ITS_TIME), KEPT, 0));
        assert_eq!((begun(&less, entry.id), plan(&less)), (None, plan(&machine)), "{:?}", entry.id);
        assert_eq!(less.world.faults.effects.iter().filter(|effect| effect.is_left_out()).count(), 1);
        let later = run_log(log.clone().with(in_run(entry.id, LATER), WORD, 30 * MS));
        let Some(other) = plan(&later).iter().find(|other| other.id == entry.id) else {
            assert!(!entry.id.is_drawn_anew(), "only the epoch takes out one that has not begun by then");
            continue;
        };
        let at = other.begin;
        if at > entry.begin {
            moved += 1;
            assert_eq!(at.since(entry.begin), 30 * MS);
            assert!(plan(&later).is_sorted_by_key(|entry| entry.begin));
            assert!(begun(&later, entry.id).is_none_or(|begun| begun == at));
        }
    }
    assert!(moved > 1, "none was moved");
}

//! Tests of how cases are run: in which order, and what comes of those that cannot be run.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use bloodhound_platform::{Abilities, CpuidTrap, Platform, PlatformError};

use super::*;
use crate::memory::Budget;
use crate::platform::{self, Name, Wanted};
use crate::regress::case::tests::case;

/// A stack of one service that ends with an error long after it is ready.
fn session(name: &str) -> (PathBuf, Arc<Session>) {
    let dir = std::env::temp_dir().join(format!("bloodhound-judge-{}-{name}", std::process::id()));
    let _ignored = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).expect("a directory");
    let compose = "services:\n  ends:\n    command: [/bin/sh, -c, 'sleep 3; exit 3']\n    x-bloodhound: {rootfs: host}\n";
    std::fs::write(dir.join("compose.yaml"), compose).expect("a file");
    // A fault that changes nothing here: without any, a run without clients is over at once.
    let text = "compose: compose.yaml\nsimulation: {max_time: 20s, boots: 1}\nfaults: {network: {drop_rate: 0.01}}\n\
        properties:\n  - name: up\n    kind: safety\n    check: {type: no-crash}\n";
    let config = dir.join("bloodhound.yaml");
    std::fs::write(&config, text).expect("a file");
    let session = Session::load(&config, &Default::default(), &Default::default()).expect("a session");
    (dir, Arc::new(session))
}

/// Cases with the plain logs of these seeds, named after them.
fn cases(seeds: std::ops::Range<u64>) -> Vec<Case> {
    let of = |seed: u64| {
        let log = Ok(Log::new(boots::seed(0), seed));
        Case { name: format!("seed-{seed}"), known: None, log, ..case() }
    };
    seeds.map(of).collect()
}

/// Runs cases on a platform: what came of each, and seeds and failures of the findings in the order in which they were written.
fn judged(
    session: &Arc<Session>,
    chosen: Chosen,
    (cases, jobs): (&[Case], usize),
    watch: &Watch,
) -> (Vec<Judged>, Vec<(u64, Group)>) {
    let kept = Mutex::new(Vec::new());
    let keep = |_: &Session, _: Option<&str>, outcome: &Outcome, violation: &Violation| {
        kept.lock().expect("nobody panics").push((outcome.seed, Group::of_violation(violation)));
        Ok(PathBuf::from(outcome.seed.to_string()))
    };
    let order = Order {
        session,
        chosen,
        boots: &Boots::new(session.plan.boots),
        cases,
        all: cases,
        runs: 1,
        jobs,
        watch,
        keep: &keep,
        say: &|_| {},
    };
    let judged = run_all(&order).unwrap_or_else(|failure| panic!("{}", failure.text));
    (judged, kept.into_inner().expect("nobody panics"))
}

fn watch() -> Watch {
    let watch = Watch::start(Arc::new(AtomicBool::new(false)), None, Budget::new(None));
    watch.seeding();
    watch
}

fn names_and_verdicts(judged: &[Judged]) -> Vec<(&str, Verdict)> {
    judged.iter().map(|judged| (judged.name.as_str(), judged.verdict)).collect()
}

#[test]
fn findings_are_written_in_the_order_of_the_cases() {
    let (dir, session) = session("order");
    let ptrace = platform::choose(Wanted::Ptrace).expect("ptrace works where these tests run");
    let mut cases = cases(1..5);
    let (first, kept) = judged(&session, ptrace, (&cases, 3), &watch());
    let otherwise = Verdict::FailsOtherwise;
    let wanted = [("seed-1", otherwise), ("seed-2", otherwise), ("seed-3", otherwise), ("seed-4", otherwise)];
    assert_eq!(names_and_verdicts(&first), wanted, "{}", first[0].says);
    assert_eq!(kept.iter().map(|(seed, _)| *seed).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let shown = first[2].shown.as_ref().expect("a failing run");
    assert_eq!((shown.seed, shown.kept.as_deref()), (3, Ok(Path::new("3"))));
    // Those of the failure itself fail, and what a known case marks is no news in a run of another one.
    cases.truncate(2);
    (cases[0].group, cases[0].known) = (kept[0].1.clone(), Some(String::new()));
    let (second, again) = judged(&session, ptrace, (&cases, 1), &watch());
    assert_eq!((second[0].verdict, second[0].fails_gate()), (Verdict::Fails, false), "{}", second[0].says);
    assert_eq!(second[1].verdict, Verdict::Open(exit::INCONCLUSIVE), "{}", second[1].says);
    assert!(second[1].says.contains("there is no property"), "{}", second[1].says);
    assert_eq!(again, kept[..1]);
    std::fs::remove_dir_all(dir).expect("removed");
}

#[test]
fn cases_that_cannot_be_run_are_not_judged_and_stop_no_other() {
    let (dir, session) = session("broken");
    let abilities =
        Abilities { traps_rdtsc: true, cpuid: CpuidTrap::NeedsPatch, traps_steps: true, trap_cost_ns: 1 };
    fn refuses(_: Option<usize>) -> Result<Box<dyn Platform>, PlatformError> {
        Err(PlatformError::Vm { what: "no virtual machine".into(), rip: 0, code: Vec::new() })
    }
    fn panics(_: Option<usize>) -> Result<Box<dyn Platform>, PlatformError> {
        panic!("this case is one too many")
    }
    let cases = cases(1..4);
    for (open, code, says) in [
        (refuses as platform::Open, exit::ENVIRONMENT, "no virtual machine"),
        (panics, exit::BUG, "this case is one too many"),
    ] {
        for jobs in [1, 8] {
            let chosen = Chosen::with(Name::Kvm, abilities, open);
            let (judged, kept) = judged(&session, chosen, (&cases, jobs), &watch());
            let verdict = Verdict::Open(code);
            let wanted = [("seed-1", verdict), ("seed-2", verdict), ("seed-3", verdict)];
            assert_eq!(names_and_verdicts(&judged), wanted, "{}", judged[0].says);
            assert!(judged.iter().all(|judged| judged.says.contains(says)), "{}", judged[0].says);
            assert!(kept.is_empty());
        }
    }
    let over = watch();
    over.close();
    let (judged, _) = judged(&session, Chosen::with(Name::Kvm, abilities, panics), (&cases, 2), &over);
    assert!(judged.iter().all(|judged| judged.verdict == Verdict::Open(exit::INCONCLUSIVE)));
    assert_eq!((judged.len(), judged[0].says.as_str()), (3, "--timeout was over before it was run"));
    std::fs::remove_dir_all(dir).expect("removed");
}

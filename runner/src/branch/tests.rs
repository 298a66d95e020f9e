//! Tests of whole runs: from any moment they go on as they did and as their logs say, on both platforms, with all that draws choices.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use bloodhound_decisions::{Choice, Concern, Epoch, LATER, Log, Made, Part, Site, WORD, Word};
use bloodhound_faults::Kind;
use bloodhound_sim::World;
use bloodhound_sim::event::{Event, Moment};
use bloodhound_sim::faults;

use super::*;
use crate::platform::{self, Wanted};
use crate::session::Session;
use crate::{boots, run};

/// A worker with a stack that has booted.
pub(crate) struct Subject {
    pub(crate) worker: Worker,
    pub(crate) booted: Arc<World>,
}

impl Subject {
    fn new(config: &Path, wanted: Wanted) -> Subject {
        let session = Session::load(config, &Default::default(), &Default::default()).expect("a session");
        let chosen = platform::choose(wanted).expect("the platform works where these tests run");
        let mut worker = Worker::new(Arc::new(session), &chosen, run::interrupt()).expect("a worker");
        let booted = Arc::new(worker.boot(boots::decisions(0)).expect("a boot"));
        Subject { worker, booted }
    }

    pub(crate) fn example(config: &str, wanted: Wanted) -> Subject {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/distributed-kv");
        assert!(dir.join("bin/distributed-kv").exists(), "run examples/build.sh first (test.sh does)");
        Subject::new(&dir.join(config), wanted)
    }

    pub(crate) fn log(&self, seed: u64) -> Log {
        Log::new(self.booted.decisions.log().boot_seed, seed)
    }

    /// Runs a log from the boot on, with its choices.
    pub(crate) fn run_from_boot(&mut self, log: Log) -> crate::shrink::pool::Ran {
        let worker = &mut self.worker;
        worker.restore(&self.booted);
        worker.listen_to_choices();
        let outcome = worker.run_log_until(log, &Ending::at(SimTime::MAX)).expect("a run");
        crate::shrink::pool::Ran { outcome, made: worker.take_choices() }
    }

    /// Goes on from a point by a log. With the choices since then.
    fn heard(&mut self, from: &Point, log: Log, stops: &[SimTime]) -> (Ran, Vec<Made>) {
        let made = Arc::new(Mutex::new(Vec::new()));
        let sink = made.clone();
        let listener = Box::new(move |_: &Moment, event: &Event<'_>| {
            if let Event::Choice(made) = event {
                sink.lock().expect("nobody panics").push(**made);
            }
        });
        let ran = self
            .worker
            .go_on(from, log, Wish { stops, listener: Some(listener), ..Wish::default() })
            .expect("a run");
        let made = std::mem::take(&mut *made.lock().expect("nobody panics"));
        (ran, made)
    }

    /// Goes on from moments of the run of a seed. Returns what it gave, and how many branches were other runs.
    fn check(&mut self, seed: u64, moments: u64) -> (Outcome, u64) {
        let ready = self.worker.ready(&self.booted, seed);
        let checked = check::moments(&mut self.worker, &self.booted, Log::clone(&ready.log), moments);
        let checked = checked.unwrap_or_else(|failure| panic!("seed {seed}: {}", failure.text));
        assert_eq!(checked.moments, moments, "seed {seed} has as many");
        let ran = self.worker.go_on(&ready, self.log(seed), Wish::default()).expect("a run");
        (ran.outcome, checked.others)
    }
}

/// A stack of one program in C, with this configuration beside the names of its files.
fn stack(name: &str, source: &str, config: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("bloodhound-branch-{}-{name}", std::process::id()));
    let _ignored = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(dir.join("app")).expect("a directory");
    std::fs::write(dir.join("program.c"), source).expect("written");
    let made = Command::new("cc")
        .args(["-O1", "-g", "-pthread", "-o"])
        .args([dir.join("app/program"), dir.join("program.c")])
        .status();
    assert!(made.expect("cc").success());
    let compose = "services:\n  one: {x-bloodhound: {rootfs: host}, volumes: ['./app:/app:ro'], command: [/app/program]}\n";
    std::fs::write(dir.join("compose.yaml"), compose).expect("written");
    let config = format!(
        "compose: compose.yaml\n{config}properties: [{{name: stays, kind: safety, check: {{type: no-crash}}}}]\n"
    );
    std::fs::write(dir.join("bloodhound.yaml"), config).expect("written");
    dir.join("bloodhound.yaml")
}

#[test]
fn a_run_goes_on_from_any_moment() {
    let (whole, others) = Subject::example("brutal.yaml", Wanted::Ptrace).check(3, 3);
    assert!(whole.plan.len() > 3 && whole.steps > 1_000 && others > 0);
}

#[test]
fn a_run_goes_on_from_any_moment_on_kvm() {
    if !bloodhound_platform_tests::without_kvm("branches on kvm") {
        let (_, others) = Subject::example("bloodhound.yaml", Wanted::Kvm).check(4, 2);
        assert!(others > 0);
    }
}

#[test]
fn what_a_log_says_of_the_time_before_is_refused() {
    let mut subject = Subject::example("bloodhound.yaml", Wanted::Ptrace);
    let (ready, log) = (subject.worker.ready(&subject.booted, 3), subject.log(3));
    let stops = [ready.at.after(2_000_000_000)];
    let (ran, whole) = subject.heard(&ready, log, &stops);
    let [point] = &ran.points[..] else { panic!("one point: {:?}", ran.points.len()) };
    assert!(point.at >= stops[0] && !point.is_ready() && point.held_bytes() > ready.held_bytes());
    let base = Log::clone(&point.log);
    let epoch = |from: u64| Epoch { from, seed: 1, concerns: vec![Concern::Network] };
    let swarm = Site::Swarm { kind: Word::new("crash") };
    let before = [
        (Log { seed: 4, ..base.clone() }, "another seed"),
        (Log { boot_seed: 4, ..base.clone() }, "another boot"),
        (Log { epochs: vec![epoch(point.at.0)], ..base.clone() }, "already"),
        (Log { epochs: vec![epoch(u64::MAX), epoch(point.at.0 + 1)], ..base.clone() }, "in order"),
        (Log { plain: vec![Concern::Network], ..base.clone() }, "plain"),
        (Log { switches: Some(Vec::new()), ..base.clone() }, "switches"),
        (base.clone().with(Choice { part: Part::Run, site: swarm }, WORD, 0), "has been made"),
    ];
    for (log, why) in before {
        let refused = subject.worker.go_on(point, log, Wish::default()).expect_err(why);
        assert!(refused.text.contains(why), "{why}: {}", refused.text);
    }
    // A choice that comes later is another one in a branch, and the others before it are as they were.
    let at = whole.iter().rposition(|made| made.bound > 1).expect("a choice");
    let later = whole[at];
    let log = base.with(later.choice, later.bound, (later.value + 1) % later.bound);
    let (_, made) = subject.heard(point, log, &[]);
    let changed = made.iter().position(|made| made.choice == later.choice).expect("it is asked for");
    assert_ne!(made[changed].value, later.value);
    assert!(changed > 0 && changed < at, "choices before and after the point");
    assert_eq!(made[..changed], whole[at - changed..at]);
}

/// What a log says of the time of a fault that is to come, and of faults that an epoch is to draw, goes with the points on the way there.
#[test]
fn a_log_about_faults_to_come_goes_on_from_all_points_before() {
    let mut subject = Subject::example("brutal.yaml", Wanted::Ptrace);
    let (ready, log) = (subject.worker.ready(&subject.booted, 3), subject.log(3));
    let second = |nth: u64| ready.at.after(nth * 1_000_000_000);
    let stops = [second(1)];
    let ran = subject.worker.go_on(&ready, log, Wish { stops: &stops, ..Wish::default() }).expect("a run");
    let [point] = &ran.points[..] else { panic!("one point: {:?}", ran.points.len()) };
    assert_eq!(ran.moments, [point.at]);
    let wish = Wish { stops: &stops, moments_only: true, ..Wish::default() };
    let without = subject.worker.go_on(&ready, subject.log(3), wish).expect("a run");
    assert_eq!((without.moments, without.points.len()), (ran.moments, 0));
    assert_eq!(without.outcome.digest, ran.outcome.digest);
    let last = ran.outcome.plan.last().expect("a fault");
    let epoch = second(4).0;
    assert!(last.begin > second(2), "it is to come: {last:?}");
    let in_run = |site: Site| Choice { part: Part::Run, site };
    let mut log = Log::clone(&point.log);
    log.epochs.push(Epoch { from: epoch, seed: 5, concerns: vec![Concern::Faults] });
    let log = log.with(in_run(last.id.site(LATER)), WORD, 1_000_000);
    let anew = in_run(faults::Epoch::at(epoch).swarm(Kind::Pause));
    let log = log.with(anew, 6, 5);
    let stops = [second(2), second(6)];
    let wish = Wish { stops: &stops, ..Wish::default() };
    let branch = subject.worker.go_on(point, log, wish).expect("it is about later times");
    let [before, after] = &branch.points[..] else { panic!("two points: {:?}", branch.points.len()) };
    for further in [before, after] {
        let log = Log::clone(&further.log);
        assert!(log.overrides.len() == 2 && log.epochs.len() == 1);
        let again = subject.worker.go_on(further, log, Wish::default()).expect("its own log");
        assert_eq!(again.outcome.digest, branch.outcome.digest, "from {}", further.at);
    }
    // An epoch that is still to come may be given up, with what is said of it.
    let mut log = Log::clone(&before.log);
    log.epochs.clear();
    log.overrides.clear();
    let other = subject.worker.go_on(before, log, Wish::default()).expect("it is about later times");
    assert_eq!(other.outcome.digest, ran.outcome.digest);
    let mut log = Log::clone(&after.log);
    log.overrides.remove(&anew);
    let refused = subject.worker.go_on(after, log, Wish::default()).expect_err("it was drawn");
    assert!(refused.text.contains("has been made"), "{}", refused.text);
}

/// After two seconds a thread waits by computing, without any system call: a loop is found by making the run again.
const WAITS: &str = r#"
#include <pthread.h>
#include <unistd.h>
static volatile int go, left;
static void *wait(void *unused) { for (;;) { while (!go) left++; go = 0; write(1, "x\n", 2); } return unused; }
int main(void) {
    pthread_t thread;
    usleep(2000000);
    pthread_create(&thread, 0, wait, 0);
    for (;;) { usleep(700000); go = 1; }
}
"#;

#[test]
fn loops_are_found_from_where_a_run_goes_on() {
    let config = "simulation: {max_time: 8s, boots: 1, compute_limit: 100ms}\n\
        faults: {swarm: false, duration: 6s, process: {pause_probability: 0.01, pause_duration_ms: [10, 50]}}\n";
    let mut subject = Subject::new(&stack("waits", WAITS, config), Wanted::Auto);
    let (whole, _) = subject.check(1, 2);
    assert!(!whole.decisions.counted.is_empty(), "nothing was suspected");
    // The point is of a run that has not come to the loop, so it is found from there.
    let ready = subject.worker.ready(&subject.booted, 1);
    let at = ready.at.after(1_000_000_000);
    let point = subject.worker.rebuild(&subject.booted, &subject.log(1), at).expect("a point");
    assert_eq!(point.log.counted, [], "no loop yet");
    let ran = subject.worker.go_on(&point, Log::clone(&point.log), Wish::default()).expect("a run");
    assert!(!ran.outcome.decisions.counted.is_empty(), "nothing was suspected from the point on");
    let booted = subject.booted.clone();
    subject.worker.restore(&booted);
    subject.worker.trust_log();
    let again = subject.worker.run_log(Log::clone(&ran.outcome.decisions), Mode::Lenient).expect("a run");
    assert_eq!(again.digest, ran.outcome.digest);
}

/// Threads that share memory, and switches amid code.
const SHARES: &str = r#"
#include <pthread.h>
#include <unistd.h>
static volatile int count;
static void *add(void *unused) { for (;;) { count = count + 1; usleep(20000); } return unused; }
int main(void) {
    pthread_t a, b;
    pthread_create(&a, 0, add, 0);
    pthread_create(&b, 0, add, 0);
    for (;;) { usleep(50000); if (count & 1) write(1, "odd\n", 4); }
}
"#;

#[test]
fn switches_amid_code_are_those_of_the_whole_run() {
    let config = "simulation: {max_time: 8s, boots: 1}\nexploration: {schedule: {policy: swarm, depth: 3, preempt_at: code}}\n\
        faults: {swarm: false, duration: 6s, process: {pause_probability: 0.01, pause_duration_ms: [10, 50]}}\n";
    let mut subject = Subject::new(&stack("shares", SHARES, config), Wanted::Auto);
    let switches = (1..4).map(|seed| subject.check(seed, 1).0.decisions.switches.clone().unwrap_or_default());
    assert!(switches.map(|switches| switches.len()).sum::<usize>() > 0, "nothing was drawn");
}

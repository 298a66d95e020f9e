//! Tests of whole runs: from any moment they go on as they did and as their logs say, on both platforms, with all that draws choices.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use bloodhound_decisions::{Choice, Concern, Epoch, Log, Part, Site, WORD, Word};
use bloodhound_sim::World;

use super::*;
use crate::platform::{self, Wanted};
use crate::session::Session;
use crate::{boots, run};

/// A worker with a stack that has booted.
struct Subject {
    worker: Worker,
    booted: Arc<World>,
}

impl Subject {
    fn new(config: &Path, wanted: Wanted) -> Subject {
        let session = Session::load(config, &Default::default(), &Default::default()).expect("a session");
        let chosen = platform::choose(wanted).expect("the platform works where these tests run");
        let mut worker = Worker::new(Arc::new(session), &chosen, run::interrupt()).expect("a worker");
        let booted = Arc::new(worker.boot(boots::decisions(0)).expect("a boot"));
        Subject { worker, booted }
    }

    fn example(config: &str, wanted: Wanted) -> Subject {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/distributed-kv");
        assert!(dir.join("bin/distributed-kv").exists(), "run examples/build.sh first (test.sh does)");
        Subject::new(&dir.join(config), wanted)
    }

    fn log(&self, seed: u64) -> Log {
        Log::new(self.booted.decisions.log().boot_seed, seed)
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
    let wish = Wish { stops: &stops, choices: true, ..Wish::default() };
    let ran = subject.worker.go_on(&ready, log, wish).expect("a run");
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
    let later = ran.made.iter().rev().find(|made| made.bound > 1).expect("a choice");
    let log = base.with(later.choice, later.bound, (later.value + 1) % later.bound);
    let branch = subject.worker.go_on(point, log, Wish { choices: true, ..Wish::default() }).expect("a run");
    let changed = branch.made.iter().find(|made| made.choice == later.choice).expect("it is asked for");
    assert_ne!(changed.value, later.value);
    assert!(ran.made.ends_with(&branch.made[..1]) || ran.made.contains(&branch.made[0]));
}

/// A thread waits by computing, without any system call: a loop is found by making the run again.
const WAITS: &str = r#"
#include <pthread.h>
#include <unistd.h>
static volatile int go, left;
static void *wait(void *unused) { for (;;) { while (!go) left++; go = 0; write(1, "x\n", 2); } return unused; }
int main(void) {
    pthread_t thread;
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

//! Preemption between two instructions: found, replayed from the log, equal in all modes.

use std::ffi::OsString;
use std::process::Command;

use bloodhound_decisions::{Log, Mode};
use bloodhound_kernel::process::ExitStatus;
use bloodhound_kernel::stdin::Supply;
use bloodhound_sim::machine::TestModes;

use super::*;
use crate::exec::{self, End, Single, Surroundings};
use crate::platform::{self, Wanted};
use crate::session::Failure;

/// Two threads add 1 each without a lock; nothing else is near.
const LOST_UPDATE: &str = r#"
#include <pthread.h>
static volatile int count;
static void *add(void *unused) { count = count + 1; return unused; }
int main(void) {
    pthread_t a, b;
    pthread_create(&a, 0, add, 0);
    pthread_create(&b, 0, add, 0);
    pthread_join(a, 0);
    pthread_join(b, 0);
    return count == 2 ? 0 : 7;
}
"#;

fn compiled(name: &str, source: &str) -> OsString {
    let dir = std::env::temp_dir().join(format!("bloodhound-interleave-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let (from, to) = (dir.join("program.c"), dir.join("program"));
    std::fs::write(&from, source).expect("written");
    let made = Command::new("cc").args(["-O1", "-g", "-pthread", "-o"]).arg(&to).arg(&from).status();
    assert!(made.expect("cc").success());
    to.into()
}

/// An empty standard input.
fn nothing(_: usize) -> Supply {
    Supply { bytes: Vec::new(), ended: true, error: None }
}

struct Hunt {
    machine: Machine,
    beginning: World,
}

impl Hunt {
    fn new(program: OsString) -> Hunt {
        let surroundings = Surroundings {
            max_time: 3_600_000_000_000,
            start_date: crate::EPOCH_NS,
            read: vec![program.clone().into()],
            env: Vec::new(),
            compute_limit: 1_000_000_000,
            mem_limit: None,
            pids_limit: None,
            disk_limit: None,
            no_vdso: false,
        };
        let mut single = Single::new(&surroundings, &[program]).expect("it is there");
        let schedule = Schedule { kind: Kind::Swarm, depth: 3, preempt_at: PreemptAt::Code };
        single.set_schedule(schedule);
        let chosen = platform::choose(Wanted::Auto).expect("a platform");
        let mut machine = single.machine(&chosen, 0).expect("a machine");
        let beginning = machine.snapshot().expect("a snapshot");
        Hunt { machine, beginning }
    }

    /// Runs a seed, or a log; exit status and digest.
    fn run(&mut self, seed: u64, log: Option<Log>) -> (Option<u8>, String) {
        self.machine.restore(self.beginning.clone());
        match log {
            Some(log) => self.machine.world.decisions.follow(log, Mode::Strict),
            None => self.machine.world.decisions.begin_run(seed),
        }
        self.machine.begin_schedule();
        let end = exec::drive(&mut self.machine, &mut nothing).expect("a run");
        let status = match end {
            End::Exited(ExitStatus::Code(code)) => Some(code),
            _ => None,
        };
        (status, self.machine.world.digest.to_string())
    }

    fn profile(&mut self) {
        let beginning = self.beginning.clone();
        let profile = profile(&mut self.machine, &beginning, |machine, seed| {
            machine.world.decisions.begin_run(seed);
            machine.begin_schedule();
            exec::drive(machine, &mut nothing).map(drop)
        });
        let profile = profile.unwrap_or_else(|failure: Failure| panic!("{failure:?}"));
        assert!(profile.accesses().iter().any(|accessed| accessed.is_shared()));
        self.machine.set_profile(profile);
    }
}

#[test]
fn a_lost_update_between_two_accesses_is_found_and_replays() {
    let mut hunt = Hunt::new(compiled("lost", LOST_UPDATE));
    let before = (0..20).map(|seed| hunt.run(seed, None).0).collect::<Vec<_>>();
    assert!(
        before.iter().all(|status| *status == Some(0)),
        "without a profile it cannot be found: {before:?}"
    );
    hunt.profile();
    let mut failing = Vec::new();
    for seed in 0..200 {
        let (status, digest) = hunt.run(seed, None);
        if status == Some(7) {
            failing.push((seed, digest, (**hunt.machine.world.decisions.log()).clone()));
        }
    }
    assert!(!failing.is_empty());
    for (seed, digest, log) in failing.iter().take(5) {
        assert_eq!(hunt.run(*seed, None), (Some(7), digest.clone()));
        // From the log alone, dropping and cloning everything on the way.
        let text = serde_json::to_string(log).expect("it has a form");
        let log: Log = serde_json::from_str(&text).expect("it can be read");
        hunt.machine.set_modes(TestModes { evict_every: 7, spurious_every: 0, clone_every: 3 });
        assert_eq!(hunt.run(*seed, Some(log)), (Some(7), digest.clone()));
        hunt.machine.set_modes(TestModes::default());
    }
}

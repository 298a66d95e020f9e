//! Wherever a computing task is interrupted, the same loop is found, and the run is the same.

use std::process::Command;

use bloodhound_sim::SuspectAt;

use super::*;
use crate::platform::Wanted;

/// A thread waits for a variable, after it has computed something; what it has counted goes to standard error.
const WAITS: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static volatile int stop;
static volatile unsigned long rounds, sum;
static unsigned long __attribute__((noinline)) mixed(unsigned long x) {
    for (int i = 0; i < 7; i++) x = x * 6364136223846793005ul + (x >> 31);
    return x;
}
static void *waiter(void *unused) {
    for (unsigned long i = 0; i < 300; i++) sum += mixed(i) % 10 < 5 ? i : 1;
    while (!stop) rounds += 1 + mixed(rounds) % 3;
    return unused;
}
int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, waiter, 0);
    usleep(50000);
    stop = 1;
    pthread_join(thread, 0);
    fprintf(stderr, "%lu %lu\n", rounds, sum);
    return 0;
}
"#;

fn compiled() -> OsString {
    let dir = std::env::temp_dir().join(format!("bloodhound-moments-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let (from, to) = (dir.join("program.c"), dir.join("program"));
    std::fs::write(&from, WAITS).expect("written");
    let made = Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&to).arg(&from).status();
    assert!(made.expect("cc").success());
    to.into()
}

#[test]
fn a_hundred_moments_give_one_loop() {
    let program = compiled();
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
    let single = Single::new(&surroundings, &[program]).expect("it is there");
    let chosen = platform::choose(Wanted::Auto).expect("a platform");
    let mut machine = single.machine(&chosen, 0).expect("a machine");
    let beginning = machine.snapshot().expect("a snapshot");
    let mut run = |at: Option<SuspectAt>| {
        machine.restore(beginning.clone());
        machine.suspect_at(at);
        let mut nothing = |_| Supply { bytes: Vec::new(), ended: true, error: None };
        let end = drive(&mut machine, &mut nothing).expect("a run");
        (end, machine.world.digest, machine.world.decisions.log().counted.clone())
    };
    let first = run(None);
    assert_eq!(first.0.code(), 0, "{:?}", first.0);
    let moment = first.2.first().expect("a loop was counted").step;
    let mut state = 1u64;
    for _ in 0..100 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = SuspectAt { moment, instructions: 1 + (state >> 33) % 40_000 };
        assert_eq!(run(Some(at)), first, "{at:?}");
    }
}

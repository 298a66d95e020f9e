//! Stubs die with the process that made them, however it dies.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // waits for the host

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bloodhound_platform::{Platform, SpaceId, Stops, TaskKey, XState};
use bloodhound_platform_ptrace::PtracePlatform;
use bloodhound_platform_tests::Guest;

/// Not a test of its own: the process that is killed. Says which processes it has, then waits with one of them
/// running.
#[test]
#[ignore = "started by the test below"]
fn victim() {
    let mut guest = Guest::new(|cpu| PtracePlatform::new(cpu).unwrap(), b"\xeb\xfe"); // jmp to itself
    for n in 10..15 {
        guest.platform.load_xstate(SpaceId(n), TaskKey(n), &XState::initial()).unwrap();
    }
    let children = std::fs::read_to_string("/proc/thread-self/children").unwrap();
    println!("\npids {children}");
    loop {
        let _ = guest.platform.run(guest.space, guest.task, &mut guest.regs, &mut Stops::default());
    }
}

fn gone(pid: &str) -> bool {
    // A zombie that nobody has reaped yet is dead as well.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_none_or(|rest| rest.is_empty() || rest.trim_start().starts_with(['Z', 'X']))
}

#[test]
fn kill_9_of_the_parent_leaves_no_stub() {
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "victim", "--nocapture"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let line =
        lines.map_while(Result::ok).find(|line| line.starts_with("pids ")).expect("the victim's stubs");
    let pids: Vec<&str> = line.split_whitespace().skip(1).collect();
    assert!(pids.len() >= 7, "a template and six stubs: {line}");
    assert!(pids.iter().all(|pid| !gone(pid)), "alive before");
    victim.kill().unwrap();
    victim.wait().unwrap();
    let start = Instant::now();
    while !pids.iter().all(|pid| gone(pid)) {
        assert!(start.elapsed() < Duration::from_secs(30), "stubs live on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_thread_that_ends_takes_its_stubs_along() {
    let pids = std::thread::spawn(|| {
        let mut platform = PtracePlatform::new(None).unwrap();
        platform.load_xstate(SpaceId(1), TaskKey(1), &XState::initial()).unwrap();
        let pids = platform.stub_pids();
        std::mem::forget(platform);
        pids
    })
    .join()
    .unwrap();
    let start = Instant::now();
    while !pids.iter().all(|pid| gone(&pid.to_string())) {
        assert!(start.elapsed() < Duration::from_secs(30), "stubs live on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

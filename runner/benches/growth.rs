//! How costs grow: one thing done 1,000, 10,000 and 100,000 times by a program (growth.c), natively and by `bloodhound exec`, each less
//! what nothing costs. `cargo bench -p bloodhound --bench growth [-- [kvm] KIND...]`; needs a C compiler.
//!
//! A line tells microseconds for each at every number, and the exponent of the growth from the first to the last: 1 is linear.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // measures host time

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// A kind, and the largest number of it that a host has room for.
const KINDS: [(&str, u64); 12] = [
    ("mmap", 60_000),
    ("munmap", 60_000),
    ("threads", 10_000),
    ("files", 100_000),
    ("link", 60_000),
    ("symlink", 100_000),
    ("rename", 100_000),
    ("chdir", 100_000),
    ("descriptors", 100_000),
    ("epoll", 100_000),
    ("fork", 4_000),
    ("poll", 4_000),
];
const NUMBERS: [u64; 3] = [1_000, 10_000, 100_000];
/// The least of so many runs counts.
const RUNS: usize = 3;

/// Seconds that a command takes; nothing if it fails.
fn seconds(make: &dyn Fn(&Path) -> Command, scratch: &Path) -> Option<f64> {
    let mut least: Option<f64> = None;
    for _ in 0..RUNS {
        let dir = scratch.join("run");
        std::fs::create_dir_all(&dir).expect("a directory");
        let mut command = make(&dir);
        command.current_dir(&dir).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let begun = Instant::now();
        // A crowd of processes ends itself by SIGKILL, which is how it ends natively as well.
        let status = command.status().expect("a command");
        let taken = begun.elapsed().as_secs_f64();
        std::fs::remove_dir_all(&dir).expect("removed");
        if matches!(status.code(), Some(code) if code != 0 && code != 137) {
            return None;
        }
        least = Some(least.map_or(taken, |before| before.min(taken)));
    }
    least
}

/// Microseconds for each of `n`, for all numbers that the kind has.
fn measure(
    kind: &str,
    numbers: &[u64],
    command: &dyn Fn(&Path, &str, u64) -> Command,
    scratch: &Path,
) -> Vec<f64> {
    let of = |n: u64| seconds(&|dir| command(dir, kind, n), scratch);
    let Some(nothing) = of(0) else { return Vec::new() };
    numbers.iter().map_while(|n| Some((of(*n)? - nothing).max(0.0) * 1e6 / *n as f64)).collect()
}

fn line(who: &str, numbers: &[u64], costs: &[f64]) {
    let told: Vec<String> = numbers.iter().zip(costs).map(|(n, us)| format!("{n:>7}: {us:8.2} us")).collect();
    let exponent = match (costs.first(), costs.last()) {
        (Some(first), Some(last)) if costs.len() > 1 && *first > 0.0 && *last > 0.0 => {
            let steps = (numbers[costs.len() - 1] as f64 / numbers[0] as f64).ln();
            format!("grows as n^{:.2}", 1.0 + (last / first).ln() / steps)
        }
        _ => String::new(),
    };
    println!("  {who:<10} {}  {exponent}", told.join("  "));
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let platform = if words.iter().any(|word| word == "kvm") { "kvm" } else { "ptrace" };
    let chosen = |kind: &str| words.iter().all(|word| word == "kvm") || words.iter().any(|word| word == kind);
    let scratch: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join("growth");
    std::fs::create_dir_all(&scratch).expect("a directory");
    let program = scratch.join("growth");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/growth.c");
    let built =
        Command::new("cc").args(["-O1", "-static", "-pthread", "-o"]).arg(&program).arg(source).status();
    assert!(built.is_ok_and(|status| status.success()), "a C compiler is needed");
    let native = |_: &Path, kind: &str, n: u64| {
        // In a group of its own: a crowd ends its group.
        let mut command = Command::new("setsid");
        command.arg("--wait").arg(&program).args([kind, &n.to_string()]);
        command
    };
    let simulated = |_: &Path, kind: &str, n: u64| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bloodhound"));
        command.args(["exec", "--platform", platform, "--"]).arg(&program).args([kind, &n.to_string()]);
        command
    };
    for (kind, most) in KINDS.iter().filter(|(kind, _)| chosen(kind)) {
        let mut numbers: Vec<u64> = NUMBERS.iter().copied().filter(|n| n < most).collect();
        numbers.push(*most);
        println!("{kind}");
        line("native", &numbers, &measure(kind, &numbers, &native, &scratch));
        line(platform, &numbers, &measure(kind, &numbers, &simulated, &scratch));
    }
}

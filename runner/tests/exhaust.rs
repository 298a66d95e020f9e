//! Programs that take what they can get of one thing (hostile/exhaust.c) neither bring a campaign down nor harm the host: it ends with
//! a report, and has not used much more memory than it may.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // host side

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use common::{command_on, have, in_parallel, platform, put, scratch};

/// What Bloodhound may end with: no bug of its own (see `exit.rs`), nothing that was killed.
const CODES: [i32; 5] = [0, 1, 3, 4, 5];
/// What is not counted as memory of worlds, at most, MiB.
const BESIDE: u64 = 256;

fn program() -> Option<&'static Path> {
    static PROGRAM: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        if !have(&["gcc"], "the programs that exhaust something") {
            return None;
        }
        let program = scratch("exhaust-program").join("exhaust");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile/exhaust.c");
        let built = Command::new("gcc")
            .args(["-w", "-O1", "-static", "-pthread", "-o"])
            .args([&program, &source])
            .output()
            .expect("gcc");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Some(program)
    };
    PROGRAM.get_or_init(build).as_deref()
}

/// How a campaign of two seeds ended, and the most memory that it had at once, MiB.
struct Ended {
    code: Option<i32>,
    peak: u64,
    stderr: String,
}

fn campaign(program: &Path, kind: &str, name: &str, keys: &str, memory: &str) -> Ended {
    let dir = scratch(&format!("exhaust-{name}-{kind}"));
    let near = program.parent().expect("a directory").display();
    let compose = format!(
        "services:\n  hungry:\n    x-bloodhound: {{rootfs: host, read: ['{near}']}}\n    working_dir: /tmp\n    command: ['{}', {kind}]\n{keys}",
        program.display()
    );
    put(&dir, "compose.yaml", &compose);
    let config = "compose: compose.yaml\nsimulation: {max_time: 500ms}\nfaults: {duration: 300ms, network: {drop_rate: 0.01}}\n\
                  properties: [{name: up, kind: safety, check: {type: no-crash}}]\n";
    put(&dir, "bloodhound.yaml", config);
    let out = dir.join("out");
    let out = out.to_str().expect("text");
    let stderr = dir.join("stderr");
    let platform = platform();
    let mut child =
        command_on(platform.as_deref(), &dir, &["test", "--seeds", "2", "--memory", memory, "--out", out])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&stderr).expect("a file"))
            .spawn()
            .expect("bloodhound");
    let mut peak = 0;
    let code = loop {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib =
            most.and_then(|text| text.trim().strip_suffix(" kB")).and_then(|n| n.trim().parse::<u64>().ok());
        peak = peak.max(kib.unwrap_or(0) >> 10);
        if let Some(status) = child.try_wait().expect("a child") {
            break status.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let stderr = std::fs::read_to_string(stderr).expect("standard error");
    assert!(Path::new(out).join("junit.xml").exists(), "{kind}: no report\n{stderr}");
    Ended { code, peak, stderr }
}

/// What a service can take of everything is bounded by what its container may have.
#[test]
fn containers_keep_to_their_limits() {
    let Some(program) = program() else { return };
    let keys = "    mem_limit: 48m\n    pids_limit: 40\n    storage_opt: {size: 20m}\n";
    let kinds = [
        "heap",
        "sparse",
        "shared",
        "segments",
        "memfds",
        "copies",
        "stack",
        "sleepers",
        "threads",
        "orphans",
        "file",
        "small_files",
        "shm_files",
        "shout",
        "splits",
        "address_space",
        "signals",
    ];
    in_parallel(&kinds, |kind| {
        let ended = campaign(program, kind, "limits", keys, "1g");
        assert!(
            ended.code.is_some_and(|code| CODES.contains(&code)),
            "{kind}: {:?}\n{}",
            ended.code,
            ended.stderr
        );
        assert!(!ended.stderr.contains("may be used on this machine"), "{kind}: {}", ended.stderr);
        assert!(ended.peak < BESIDE, "{kind}: {} MiB\n{}", ended.peak, ended.stderr);
    });
}

/// Without such limits a seed is given up before the host has no memory left.
#[test]
fn campaigns_keep_to_their_memory() {
    let Some(program) = program() else { return };
    let kinds = ["heap", "shared", "memfds", "file", "huge_calls", "pipes", "socket_pairs", "connections"];
    in_parallel(&kinds, |kind| {
        let ended = campaign(program, kind, "memory", "", "384m");
        assert_eq!(ended.code, Some(4), "{kind}: {}", ended.stderr);
        assert!(ended.stderr.contains("may be used on this machine"), "{kind}: {}", ended.stderr);
        assert!(ended.peak < 384 + BESIDE, "{kind}: {} MiB\n{}", ended.peak, ended.stderr);
    });
}

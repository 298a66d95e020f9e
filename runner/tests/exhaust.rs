//! Programs that take what they can get of one thing (hostile/exhaust.c) neither bring a campaign down nor harm the host: it ends with
//! a report, and has not used much more memory than it may.
//!
//! `mixes_end_with_a_report` runs some programs that do several such things at once. BLOODHOUND_TEST_MIXES=FIRST..END runs those of
//! other seeds, a thousand for example, which takes more than an hour: each in a control group of its own with 3 GiB and 2,000 processes,
//! where this machine has them and lets us (cgroups(7), version 1).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::common::{command_on, have, in_parallel, platform, put, scratch};

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

/// What a campaign is made of.
struct Plan<'a> {
    /// What the program is told to do.
    words: &'a [&'a str],
    /// A name for its directory.
    name: &'a str,
    /// Keys of the service.
    keys: &'a str,
    /// `--memory`.
    memory: &'a str,
    /// How long a run is, in virtual milliseconds, and how many there are.
    length: u32,
    seeds: u32,
    /// Host time after which it is taken for one that does not end.
    patience: Duration,
}

fn campaign(program: &Path, kind: &str, name: &str, keys: &str, memory: &str) -> Ended {
    let patience = Duration::from_secs(600);
    run(program, &Plan { words: &[kind], name, keys, memory, length: 500, seeds: 2, patience })
}

fn run(program: &Path, plan: &Plan<'_>) -> Ended {
    let Plan { words, name, keys, memory, length, seeds, patience } = *plan;
    let kind = words.join("-");
    let dir = scratch(&format!("exhaust-{name}-{kind}"));
    let near = program.parent().expect("a directory").display();
    let compose = format!(
        "services:\n  hungry:\n    x-bloodhound: {{rootfs: host, read: ['{near}']}}\n    working_dir: /tmp\n    command: ['{}', '{}']\n{keys}",
        program.display(),
        words.join("', '")
    );
    put(&dir, "compose.yaml", &compose);
    let config = format!(
        "compose: compose.yaml\nsimulation: {{max_time: {length}ms}}\n\
         faults: {{duration: {}ms, network: {{drop_rate: 0.01}}}}\n\
         properties: [{{name: up, kind: safety, check: {{type: no-crash}}}}]\n",
        length / 5 * 3
    );
    put(&dir, "bloodhound.yaml", &config);
    let out = dir.join("out");
    let out = out.to_str().expect("text");
    let stderr = dir.join("stderr");
    let platform = platform();
    let seeds = seeds.to_string();
    let mut child =
        command_on(platform.as_deref(), &dir, &["test", "--seeds", &seeds, "--memory", memory, "--out", out])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&stderr).expect("a file"))
            .spawn()
            .expect("bloodhound");
    let _group = Group::of(child.id(), &format!("bloodhound-{name}-{kind}"));
    let mut peak = 0;
    let began = Instant::now();
    let code = loop {
        if began.elapsed() > patience {
            child.kill().expect("a child");
            child.wait().expect("a child");
            panic!("{kind}: not at its end after {patience:?}");
        }
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

/// A control group that lets a campaign have 3 GiB and 2,000 processes (cgroups(7), version 1), where that can be made here.
struct Group(Vec<PathBuf>);

impl Group {
    fn of(pid: u32, name: &str) -> Group {
        let limits = [
            ("memory", "memory.limit_in_bytes", (3u64 << 30).to_string()),
            ("pids", "pids.max", "2000".into()),
        ];
        let mut made = Vec::new();
        for (controller, file, limit) in limits {
            let dir = Path::new("/sys/fs/cgroup").join(controller).join(format!("{name}-{pid}"));
            let set = std::fs::create_dir(&dir).is_ok()
                && std::fs::write(dir.join(file), limit).is_ok()
                && std::fs::write(dir.join("cgroup.procs"), pid.to_string()).is_ok();
            made.extend(set.then_some(dir));
        }
        Group(made)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for dir in &self.0 {
            // One that a process is still in stays; it is empty soon, and harms nobody.
            let _stays = std::fs::remove_dir(dir);
        }
    }
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
        "descriptors",
        "pipes",
        "socket_pairs",
        "connections",
        "epolls",
        "messages",
        "semaphores",
        "locks",
        "many_locks",
        "in_flight",
        "cycles",
        "abandoned",
        "crumbs",
        "links",
        "attributes",
        "disk_names",
        "shm_names",
        "shm_attributes",
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

/// The seeds of programs that do several things at once: by themselves some that do not take long.
fn mixes() -> Vec<u64> {
    const SHORT: [u64; 12] = [1, 2, 3, 4, 6, 7, 9, 10, 11, 13, 14, 16];
    let Some(range) = std::env::var("BLOODHOUND_TEST_MIXES").ok() else { return SHORT.to_vec() };
    let (first, end) = range.split_once("..").expect("BLOODHOUND_TEST_MIXES=FIRST..END");
    (first.parse().expect("a seed")..end.parse().expect("a seed")).collect()
}

/// Whatever programs do at once, and whether or not their container has limits: a campaign ends with a report.
#[test]
fn mixes_end_with_a_report() {
    let Some(program) = program() else { return };
    let limits = "    mem_limit: 64m\n    pids_limit: 60\n    storage_opt: {size: 20m}\n";
    in_parallel(&mixes(), |seed| {
        let (keys, most) = if seed % 2 == 0 { (limits, BESIDE) } else { ("", 512 + BESIDE) };
        let text = seed.to_string();
        let ended = run(
            program,
            &Plan {
                words: &["mix", &text],
                name: "mixes",
                keys,
                memory: "512m",
                length: 100,
                seeds: 1,
                patience: Duration::from_secs(600),
            },
        );
        let known = ended.code.is_some_and(|code| CODES.contains(&code));
        assert!(known, "mix {seed}: {:?}\n{}", ended.code, ended.stderr);
        assert!(ended.peak < most, "mix {seed}: {} MiB\n{}", ended.peak, ended.stderr);
    });
}

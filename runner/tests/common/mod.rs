//! Running programs under `bloodhound exec`, for the tests which compare its results.

pub mod cli;
mod engine;
pub mod image;
mod stack;

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

pub use bloodhound_platform_tests::left_out;
pub use engine::Engine;
pub use stack::*;

/// How long any program may take on the host before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(240);

/// The root of the repository.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().expect("the repository")
}

/// What a program left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    /// The line of `--summary` with the digest.
    pub fn digest(&self) -> Option<&str> {
        self.summary("digest: ")
    }

    /// The line with the digest that `run` prints.
    ///
    /// # Panics
    /// If there is none: two runs that tell no digest are not equal.
    pub fn run_digest(&self) -> &str {
        let line = self.stdout.lines().find(|line| line.starts_with("digest: "));
        line.unwrap_or_else(|| panic!("no digest: {}{}", self.stdout, self.stderr))
    }

    /// All that it printed, for messages.
    pub fn shown(&self) -> String {
        format!("exit code {:?}\n{}\n{}", self.code, self.stdout, self.stderr)
    }

    /// How many faults the timeline tells of with this text.
    pub fn faults(&self, text: &str) -> usize {
        self.stdout.lines().filter(|line| line.contains("s fault ") && line.contains(text)).count()
    }

    /// The last line of standard error that begins so.
    pub fn summary(&self, start: &str) -> Option<&str> {
        self.stderr.lines().rev().find(|line| line.starts_with(start))
    }

    /// Whether the platform warned that it does not trap `rdtsc`.
    pub fn rdtsc_leaks(&self) -> bool {
        self.stderr.contains("does not trap rdtsc")
    }

    /// What one seed determines: result, output, digest, steps, virtual time.
    pub fn determined(&self) -> (Option<i32>, &str, [Option<&str>; 3]) {
        let summary = ["digest: ", "steps: ", "virtual_time_ns: "].map(|start| self.summary(start));
        (self.code, &self.stdout, summary)
    }
}

/// Compiles a program in C that may have threads.
pub fn compile(source: &Path, program: &Path, options: &[&str]) {
    let mut cc = Command::new("cc");
    cc.args(options).args(["-pthread", "-o"]).arg(program).arg(source);
    let ran = finish(&mut cc, b"");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

/// Runs a command to its end with `input` as standard input.
pub fn finish(command: &mut Command, input: &[u8]) -> Ran {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let mut stdin = child.stdin.take().expect("piped");
    let (mut stdout, mut stderr) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = std::thread::scope(|scope| {
        scope.spawn(move || {
            // A program need not read its input.
            let _ignored = stdin.write_all(input);
        });
        scope.spawn(|| stdout.read_to_end(&mut out));
        scope.spawn(|| stderr.read_to_end(&mut err));
        wait(&mut child)
    });
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    match status {
        Some(status) => Ran { code: status.code(), stdout: text(out), stderr: text(err) },
        None => panic!("{command:?} does not end\n{}\n{}", text(out), text(err)),
    }
}

fn wait(child: &mut std::process::Child) -> Option<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if start.elapsed() > PATIENCE {
            let _ignored = child.kill();
            let _ignored = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the host's processor is QEMU's TCG, which does not do all as a processor does.
pub fn emulated_processor() -> bool {
    // The hypervisor's signature: "TCGTCGTCGTCG".
    core::arch::x86_64::__cpuid(0x4000_0000).ebx == u32::from_le_bytes(*b"TCGT")
}

/// The platform that the tests are to run programs on. `None`: whichever `bloodhound` takes by itself.
pub fn platform() -> Option<String> {
    std::env::var("BLOODHOUND_TEST_PLATFORM").ok().filter(|name| !name.is_empty())
}

/// `bloodhound exec`, with options before the program, on the platform of [`platform`].
pub fn exec(options: &[&str], program: &[OsString]) -> Command {
    exec_on(platform().as_deref(), options, program)
}

/// `bloodhound exec` on a platform.
pub fn exec_on(platform: Option<&str>, options: &[&str], program: &[OsString]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bloodhound"));
    command.arg("exec").args(options);
    if let Some(platform) = platform {
        command.args(["--platform", platform]);
    }
    command.arg("--").args(program);
    command
}

/// Prints a line that is seen although the test succeeds. What does not run here: [`left_out`].
pub fn say(text: &str) {
    // Past the capture of the test harness, which only knows the macros. Standard error may be closed: no matter.
    let _ignored = writeln!(std::io::stderr(), "{text}");
}

/// Seeds of a test that takes more of them where there is time (`cargo xtask long`): a few, or as many as BLOODHOUND_TEST_SEEDS says.
pub fn seeds_or(few: u64) -> u64 {
    let asked = std::env::var("BLOODHOUND_TEST_SEEDS").ok().filter(|seeds| !seeds.is_empty());
    asked.map_or(few, |seeds| seeds.parse().expect("BLOODHOUND_TEST_SEEDS is a number"))
}

/// Prints figures of a test, which `cargo xtask long` reads.
pub fn figures(text: &str) {
    say(&format!("figures: {text}"));
}

/// Calls `work` for all items, on as many threads as there are processors, in any order.
pub fn in_parallel<T: Sync>(items: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get()).min(8);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(item);
                }
            });
        }
    });
}

/// Whether all these programs are installed. If not, `what` is left out ([`leave_out`]).
pub fn have(programs: &[&str], what: &str) -> bool {
    let missing: Vec<&str> = programs.iter().copied().filter(|program| !installed(program)).collect();
    if missing.is_empty() {
        return true;
    }
    leave_out(what, &format!("not installed: {}", missing.join(", ")));
    false
}

/// Says that `what` is left out; where everything must be there (BLOODHOUND_TEST_NO_SKIP=1, as .ci/run sets it), that is a failure.
pub fn leave_out(what: &str, reason: &str) {
    let strict =
        std::env::var("BLOODHOUND_TEST_NO_SKIP").is_ok_and(|value| !value.is_empty() && value != "0");
    assert!(!strict, "{what}: {reason}; BLOODHOUND_TEST_NO_SKIP wants every test to run");
    left_out(what, reason);
}

/// Whether a program is installed.
fn installed(program: &str) -> bool {
    ["/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"]
        .iter()
        .any(|dir| Path::new(dir).join(program).is_file())
}

//! On which processors tracers and their stubs run, as /proc shows it while programs wait.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // what is tested are processes of this host

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// `bloodhound exec -- cat`, which waits for its standard input as long as nobody closes it.
struct Waiting(Child);

impl Waiting {
    fn start() -> Waiting {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bloodhound"));
        command.args(["exec", "--platform", "ptrace", "--", "/bin/cat"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        Waiting(command.spawn().expect("it starts"))
    }

    /// Its stubs: the template and at least that of the program.
    fn stubs(&self) -> Vec<u32> {
        let pid = self.0.id();
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(120) {
            let children = children(pid);
            if children.len() > 1 {
                return children;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("no stubs");
    }
}

/// The processes whose parent is `parent`. (/proc/PID/task/TID/children is not there on all kernels.)
fn children(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok());
    let is_child = |pid: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let ppid = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        ppid.is_some_and(|text| text.trim() == parent.to_string())
    };
    let mut found: Vec<u32> = pids.filter(is_child).collect();
    found.sort_unstable();
    found
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.0.stdin.take().map(|mut stdin| stdin.write_all(b"")));
        let _ignored = self.0.kill();
        let _ignored = self.0.wait();
    }
}

/// The processors that a process may use, as the kernel lists them; `None` if it is gone.
fn allowed(pid: &str) -> Option<String> {
    let status = std::fs::read_to_string(PathBuf::from("/proc").join(pid).join("status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(line.trim().to_owned())
}

#[test]
fn a_tracer_and_its_stubs_share_a_processor_that_no_other_bloodhound_has() {
    let several = allowed("self").expect("/proc").contains(['-', ',']);
    let both = [Waiting::start(), Waiting::start()];
    let mut taken = Vec::new();
    for waiting in &both {
        let stubs = waiting.stubs();
        let tracer = allowed(&waiting.0.id().to_string()).expect("it waits");
        assert!(tracer.parse::<usize>().is_ok(), "one processor: {tracer}");
        for stub in stubs {
            // Those that end meanwhile ran where they were made.
            if let Some(where_) = allowed(&stub.to_string()) {
                assert_eq!(where_, tracer, "stub {stub}");
            }
        }
        taken.push(tracer);
    }
    // More of them than there are processors, of other tests, have to share.
    assert!(!several || taken[0] != taken[1] || others() > 2, "{taken:?}");
}

/// Processes of the command on this machine.
fn others() -> usize {
    let processes = std::fs::read_dir("/proc").expect("/proc");
    let comm = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("comm")).ok();
    processes.filter_map(|entry| comm(entry.ok()?)).filter(|comm| comm.trim() == "bloodhound").count()
}

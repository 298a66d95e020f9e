//! A real engine for tests: Podman's service, which speaks Docker's API, in namespaces of its own for mounts, network and processes. So its
//! networks, addresses and containers are nobody else's, and all of it ends with the test, however that ends.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Ran, finish, have, leave_out};

/// What the engine is made of. A runtime that knows cgroups of both versions, and networks with names.
const PROGRAMS: [&str; 4] = ["podman", "crun", "iptables", "unshare"];

/// An engine that runs.
pub struct Engine {
    /// Where its storage and its socket are.
    dir: PathBuf,
    child: Child,
    /// A process in its namespaces.
    inside: u32,
}

/// What gives the rights that an engine needs: nothing for root, else sudo(8) if it asks nothing.
fn root() -> Option<Vec<&'static str>> {
    let success = |program: &str, args: &[&str]| {
        let command = Command::new(program).args(args).stdin(Stdio::null()).output();
        command.ok().filter(|output| output.status.success()).map(|output| output.stdout)
    };
    if success("id", &["-u"])? == b"0\n" {
        return Some(Vec::new());
    }
    success("sudo", &["-n", "true"]).map(|_| vec!["sudo", "-n"])
}

fn as_root(prefix: &[&str], program: &str) -> Command {
    let words: Vec<&str> = prefix.iter().copied().chain([program]).collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

/// The engine, in a shell within its namespaces. Where the machine has control groups of the first version beside the second, which crun
/// does not know, those of the first are mounted alone. Networks and locks of the machine's own engine are out of sight.
const START: &str = r#"
ip link set lo up
mount -t tmpfs live /run
if [ "$(stat -f -c %T /sys/fs/cgroup)" = tmpfs ]; then
    umount -R -l /sys/fs/cgroup
    mount -t tmpfs live /sys/fs/cgroup
    for controller in cpu cpuacct cpuset memory devices freezer blkio pids; do
        mkdir "/sys/fs/cgroup/$controller"
        mount -t cgroup -o "$controller" live "/sys/fs/cgroup/$controller" || rmdir "/sys/fs/cgroup/$controller"
    done
    mkdir /sys/fs/cgroup/systemd
    mount -t cgroup -o none,name=systemd live /sys/fs/cgroup/systemd
fi
exec podman --storage-driver vfs --root "$1/storage" --runroot /run/live --cgroup-manager cgroupfs \
    system service --time 0 "unix://$1/engine.sock"
"#;

/// A hard limit that this machine does not let one raise is left where it is.
const CONF: &str = r#"[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
[engine]
runtime = "crun"
cgroup_manager = "cgroupfs"
events_logger = "file"
[network]
network_backend = "netavark"
"#;

impl Engine {
    /// Starts one with its files below `dir`; `None` where this machine has none, which is said.
    pub fn start(dir: &Path, what: &str) -> Option<Engine> {
        if !have(&PROGRAMS, what) {
            return None;
        }
        let Some(prefix) = root() else {
            leave_out(what, "an engine with networks needs root, or sudo without a password");
            return None;
        };
        let conf = dir.join("containers.conf");
        let networks = format!("network_config_dir = {:?}\n", dir.join("networks"));
        std::fs::write(&conf, format!("{CONF}{networks}")).expect("a file of the test");
        let mut command = as_root(&prefix, "env");
        command.arg(format!("CONTAINERS_CONF={}", conf.display()));
        command.args(["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]);
        command.args(["sh", "-c", START, "sh"]).arg(dir);
        let log = std::fs::File::create(dir.join("engine.log")).expect("a file of the test");
        let errors = log.try_clone().expect("a file of the test");
        let mut child = command.stdin(Stdio::null()).stdout(log).stderr(errors).spawn().expect("unshare");
        let said = || std::fs::read_to_string(dir.join("engine.log")).unwrap_or_default();
        let begin = Instant::now();
        // Whoever may not connect sees at least that it is there.
        while !dir.join("engine.sock").exists() {
            if let Some(status) = child.try_wait().expect("unshare") {
                leave_out(what, &format!("podman's service does not run here: {status}: {}", said()));
                return None;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "podman does not listen: {}", said());
            // Nothing tells when a socket appears, but to look.
            std::thread::sleep(Duration::from_millis(20));
        }
        let inside = innermost(child.id());
        Some(Engine { dir: dir.to_owned(), child, inside })
    }

    /// A program in the engine's namespaces, in a directory, with rights of root.
    pub fn command(&self, dir: &Path, program: &Path, args: &[&str]) -> Command {
        let prefix = root().expect("there was one");
        let mut command = as_root(&prefix, "nsenter");
        command.arg("--target").arg(self.inside.to_string()).args(["--mount", "--net", "--pid"]);
        let socket = format!("DOCKER_HOST=unix://{}", self.dir.join("engine.sock").display());
        let cache = format!("BLOODHOUND_CACHE={}", self.dir.join("cache").display());
        let conf = format!("CONTAINERS_CONF={}", self.dir.join("containers.conf").display());
        command.args(["env", &socket, &cache, &conf, "NO_COLOR=1"]);
        command.args(["sh", "-c", r#"cd "$0" && exec "$@""#]).arg(dir).arg(program).args(args);
        command
    }

    /// `bloodhound` in the engine's namespaces, to its end.
    pub fn bloodhound(&self, dir: &Path, args: &[&str]) -> Ran {
        let program = Path::new(env!("CARGO_BIN_EXE_bloodhound"));
        finish(&mut self.command(dir, program, args), b"")
    }

    /// What the engine answers to a question of its API.
    pub fn get(&self, path: &str) -> serde_json::Value {
        let socket = self.dir.join("engine.sock");
        let args = ["--silent", "--unix-socket", socket.to_str().expect("a path"), path];
        let ran = finish(&mut self.command(&self.dir, Path::new("curl"), &args), b"");
        serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{path}: {e}: {ran:?}"))
    }

    /// What `podman` prints, on both streams.
    pub fn podman(&self, args: &[String]) -> String {
        let storage = self.dir.join("storage").display().to_string();
        let options = ["--storage-driver", "vfs", "--root", &storage, "--runroot", "/run/live"];
        let args: Vec<&str> = options.into_iter().chain(args.iter().map(String::as_str)).collect();
        let ran = finish(&mut self.command(&self.dir, Path::new("podman"), &args), b"");
        format!("{}{}", ran.stdout, ran.stderr)
    }

    /// Names of the containers, networks and volumes of live runs that are there.
    pub fn left(&self) -> Vec<String> {
        let filter = "filters=%7B%22label%22%3A%5B%22io.bloodhound.live%22%5D%7D";
        let mut out = Vec::new();
        for (path, list) in [
            (format!("http://engine/v1.40/containers/json?all=true&{filter}"), ""),
            (format!("http://engine/v1.40/networks?{filter}"), ""),
            (format!("http://engine/v1.40/volumes?{filter}"), "Volumes"),
        ] {
            let found = self.get(&path);
            let all = if list.is_empty() { found } else { found[list].clone() };
            let name = |one: &serde_json::Value| {
                let name = one["Names"][0].as_str().or(one["Name"].as_str());
                name.unwrap_or_default().trim_start_matches('/').to_owned()
            };
            out.extend(all.as_array().into_iter().flatten().map(name));
        }
        out
    }
}

/// The last of a chain of only children: behind sudo(8) and unshare(1), process 1 of the new namespace.
fn innermost(pid: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let named = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    match children.split_whitespace().next().and_then(|child| child.parse().ok()) {
        Some(child) if named.trim() != "podman" => innermost(child),
        _ => pid,
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // Process 1 of its namespace ends, and everything there with it.
        let prefix = root().unwrap_or_default();
        let _ended = as_root(&prefix, "kill").args(["-KILL", &self.inside.to_string()]).output();
        let _status = self.child.wait();
        // Files of root's, which the next run could not remove.
        let _gone = as_root(&prefix, "rm").arg("-rf").arg(&self.dir).output();
    }
}

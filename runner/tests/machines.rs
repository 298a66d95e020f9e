//! Services that are containers of one machine: what they share works as on a real one (locks, fifos, sockets and mappings in a
//! volume, a network, process ids), and each still ends and starts by itself.

use std::path::{Path, PathBuf};

use crate::common::*;

fn stack_with(name: &str, compose: &str, config: &str, program: &str) -> PathBuf {
    let config = format!("compose: compose.yaml\n{config}");
    stack(name, &[("compose.yaml", compose), ("bloodhound.yaml", &config), ("app/prog.py", program)])
}

/// Runs the stack twice, which must be the same run.
fn run(dir: &Path) -> Ran {
    let ran = run_in(dir, &["run"]);
    assert_eq!(ran.code, Some(0), "{}\n{}", ran.stdout, ran.stderr);
    let again = run_in(dir, &["run"]);
    assert_eq!(again.stdout, ran.stdout, "two runs differ");
    ran
}

/// No service ends by itself.
const QUIET: &str = "simulation: {max_time: 8s, start_spread: 0s, clock_spread: 0s}\nfaults: {duration: 4s, network: {drop_rate: 0.01}}\n\
                     properties: [{name: up, kind: safety, check: {type: no-crash}}]\n";

const SHARED: &str = r#"
import fcntl, mmap, os, socket, struct, sys, time
me, shared = sys.argv[1], "/shared/"
def say(*words):
    print(*words, flush=True)
def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.01)
if me == "first":
    whole = open(shared + "whole", "w"); fcntl.flock(whole, fcntl.LOCK_EX)
    ranges = open(shared + "ranges", "w"); fcntl.lockf(ranges, fcntl.LOCK_EX, 10, 5)
    os.mkfifo(shared + "fifo")
    page = open(shared + "page", "w+b"); page.truncate(4096)
    memory = mmap.mmap(page.fileno(), 4096)
    server = socket.socket(socket.AF_UNIX); server.bind(shared + "socket"); server.listen(1)
    open(shared + "ready", "w")
    say("fifo", open(shared + "fifo").read())
    peer, _ = server.accept()
    say("socket", peer.recv(100).decode(), "from", struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)))
    peer.sendall(b"welcome")
    while memory[0:5] != b"hello":
        time.sleep(0.01)
    memory[5:10] = b"world"
    say("mapping seen")
    time.sleep(0.2)
    say("unlock"); fcntl.flock(whole, fcntl.LOCK_UN); fcntl.lockf(ranges, fcntl.LOCK_UN)
    time.sleep(0.5)
    say("read", open(shared + "answer").read(), "pid", os.getpid())
else:
    wait_for(shared + "ready")
    for name, lock in (("whole", fcntl.flock), ("ranges", fcntl.lockf)):
        file = open(shared + name, "r+")
        try:
            lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB); say(name, "free")
        except OSError as error:
            say(name, "held", error.errno)
    query = struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0)
    say("owner", struct.unpack("hhqqi", fcntl.fcntl(file, fcntl.F_GETLK, query))[2:])
    with open(shared + "fifo", "w") as fifo:
        fifo.write("through the fifo")
    client = socket.socket(socket.AF_UNIX); client.connect(shared + "socket"); client.sendall(b"hello"); say(client.recv(100).decode())
    page = open(shared + "page", "r+b"); memory = mmap.mmap(page.fileno(), 4096)
    memory[0:5] = b"hello"
    while memory[5:10] != b"world":
        time.sleep(0.01)
    say("mapping answered")
    fcntl.flock(open(shared + "whole", "r+"), fcntl.LOCK_EX); say("locked")
    open(shared + "answer", "w").write("written by the second")
    say("processes", sorted(int(p) for p in os.listdir("/proc") if p.isdigit()), os.uname().nodename)
time.sleep(1000)
"#;

#[test]
fn a_volume_of_two_services_is_one_file_system() {
    if !have(&["python3"], "services that share a volume") {
        return;
    }
    let compose = "x-s: &s {x-bloodhound: {rootfs: host}}\nservices:\n\
        \x20 first: {<<: *s, command: [python3, /app/prog.py, first], volumes: ['./app:/app:ro', 'data:/shared']}\n\
        \x20 second: {<<: *s, command: [python3, /app/prog.py, second], volumes: ['./app:/app:ro', 'data:/shared']}\n\
        \x20 third: {<<: *s, command: [sleep, '1000'], volumes: ['./app:/app:ro']}\n\
        volumes: {data: }\n";
    let dir = stack_with("machines-volume", compose, QUIET, SHARED);
    let ran = run(&dir);
    assert!(ran.stdout.contains("machine: first, second (share volume data)"), "{}", ran.stdout);
    assert_eq!(
        lines(&ran, "first"),
        [
            "fifo through the fifo",
            "socket hello from (0, 0, 0)",
            "mapping seen",
            "unlock",
            "read written by the second pid 1"
        ]
    );
    assert_eq!(
        lines(&ran, "second"),
        [
            "whole held 11",
            "ranges held 11",
            "owner (5, 10, 0)",
            "welcome",
            "mapping answered",
            "locked",
            "processes [1] second"
        ]
    );
}

#[test]
fn services_on_one_machine_run_alike_on_all_platforms() {
    if !have(&["python3"], "services that share a volume") {
        return;
    }
    if !Path::new("/dev/kvm").exists() {
        left_out("services on one machine, on both platforms", "there is no /dev/kvm");
        return;
    }
    let compose = "x-s: &s {x-bloodhound: {rootfs: host}}\nservices:\n\
        \x20 first: {<<: *s, command: [python3, /app/prog.py, first], volumes: ['./app:/app:ro', './app/data:/shared']}\n\
        \x20 second: {<<: *s, command: [python3, /app/prog.py, second], volumes: ['./app:/app:ro', './app/data:/shared']}\n";
    let dir = stack_with("machines-platforms", compose, QUIET, SHARED);
    std::fs::create_dir_all(dir.join("app/data")).expect("a directory");
    let [ptrace, kvm] =
        ["ptrace", "kvm"].map(|name| finish(&mut command_on(Some(name), &dir, &["run"]), b""));
    if kvm.code == Some(5) {
        left_out("services on one machine, on both platforms", "/dev/kvm cannot be used");
        return;
    }
    let digest = |ran: &Ran| ran.stdout.lines().find(|line| line.starts_with("digest: ")).map(str::to_owned);
    assert!(digest(&ptrace).is_some(), "{}\n{}", ptrace.stdout, ptrace.stderr);
    assert_eq!(digest(&ptrace), digest(&kvm), "{}\n{}", kvm.stdout, kvm.stderr);
    assert!(
        std::fs::read_dir(dir.join("app/data")).expect("a directory").next().is_none(),
        "the host was written to"
    );
}

const JOINED: &str = r#"
import os, signal, socket, sys, time
me = sys.argv[1]
def say(*words):
    print(*words, flush=True)
if me == "main":
    server = socket.create_server(("127.0.0.1", 5000))
    child = os.fork()
    if child == 0:
        signal.pause()
    peer, _ = server.accept()
    say("asked", peer.recv(100).decode())
    peer.sendall(b"answer")
    pid, status = os.waitpid(child, 0)
    say("child ended by", os.WTERMSIG(status))
else:
    time.sleep(0.5)
    client = socket.create_connection(("localhost", 5000)); client.sendall(b"over localhost"); say(client.recv(100).decode())
    seen = {int(p): open(f"/proc/{p}/cmdline").read().split("\0")[2] for p in os.listdir("/proc") if p.isdigit()}
    others = sorted(p for p in seen if seen[p] == "main")
    say("sees", sorted(seen.values()), "and process 1 is", seen[1], "and itself", os.getpid() in seen)
    os.kill(others[1], signal.SIGTERM)
    say("host", os.uname().nodename, open("/etc/hostname").read().strip())
time.sleep(1000)
"#;

#[test]
fn a_sidecar_has_the_network_and_processes_of_its_service() {
    if !have(&["python3"], "services that share namespaces") {
        return;
    }
    let compose = "x-s: &s {x-bloodhound: {rootfs: host}, volumes: ['./app:/app:ro']}\nservices:\n\
        \x20 main: {<<: *s, command: [python3, /app/prog.py, main]}\n\
        \x20 side: {<<: *s, command: [python3, /app/prog.py, side], network_mode: 'service:main', pid: 'service:main'}\n";
    let dir = stack_with("machines-sidecar", compose, QUIET, JOINED);
    let ran = run(&dir);
    assert!(ran.stdout.contains("machine: main, side (share network, pid)"), "{}", ran.stdout);
    assert_eq!(lines(&ran, "main"), ["asked over localhost", "child ended by 15"]);
    let sees = "sees ['main', 'main', 'side'] and process 1 is main and itself True";
    assert_eq!(lines(&ran, "side"), ["answer", sees, "host main main"]);
}

const CRASHING: &str = r#"
import os, sys, time
me, shared = sys.argv[1], "/shared/"
def say(*words):
    print(*words, flush=True)
path = shared + me
lives = int(open(path).read()) + 1 if os.path.exists(path) else 1
open(path, "w").write(str(lives))
say("life", lives, "pid", os.getpid(), "sees", sorted(os.listdir(shared)))
started = time.monotonic()
while True:
    time.sleep(0.1)
    open(shared + me + ".alive", "w").write(str(time.monotonic() - started))
"#;

#[test]
fn a_crash_takes_one_container_and_leaves_the_other_and_the_volume() {
    if !have(&["python3"], "services that share a volume") {
        return;
    }
    let compose = "x-s: &s {x-bloodhound: {rootfs: host}, volumes: ['./app:/app:ro', 'data:/shared']}\nservices:\n\
        \x20 stays: {<<: *s, command: [python3, /app/prog.py, stays]}\n\
        \x20 falls: {<<: *s, command: [python3, /app/prog.py, falls]}\n\
        volumes: {data: }\n";
    let config = "simulation: {max_time: 12s, time_step: 10ms}\nfaults: {swarm: false, duration: 8s, \
        process: {services: [falls], crash_probability: 0.01, crash_restart_ms: [100, 400]}}\n\
        properties: [{name: up, kind: safety, check: {type: no-crash}}]\n";
    let dir = stack_with("machines-crash", compose, config, CRASHING);
    let ran = run(&dir);
    let falls = lines(&ran, "falls");
    assert!(falls.len() > 2, "it did not fall: {}", ran.stdout);
    for (life, line) in falls.iter().enumerate() {
        assert!(line.starts_with(&format!("life {} pid 1 sees ['falls'", life + 1)), "{falls:?}");
    }
    let stays = lines(&ran, "stays");
    assert_eq!(stays.len(), 1, "only the other one fell: {stays:?}");
    assert!(stays[0].starts_with("life 1 pid 1"), "{stays:?}");
}

#[test]
fn services_that_share_nothing_writable_have_machines_of_their_own() {
    let compose = "x-s: &s {x-bloodhound: {rootfs: host}, command: [sleep, '1000']}\nservices:\n\
        \x20 a: {<<: *s, volumes: ['./app:/app:ro', 'data:/shared:ro']}\n\
        \x20 b: {<<: *s, volumes: ['./app:/app:ro', 'data:/shared:ro']}\n\
        volumes: {data: }\n";
    let dir = stack_with("machines-apart", compose, QUIET, "");
    let ran = run(&dir);
    assert!(!ran.stdout.contains("machine:"), "{}", ran.stdout);
}

#[test]
fn a_name_puts_services_on_one_machine_by_hand() {
    let compose = "services:\n\
        \x20 a: {x-bloodhound: {rootfs: host, machine: east}, command: [sleep, '1000']}\n\
        \x20 b: {x-bloodhound: {rootfs: host}, command: [sleep, '1000']}\n\
        \x20 c: {x-bloodhound: {rootfs: host, machine: east}, command: [sleep, '1000']}\n";
    let dir = stack_with("machines-named", compose, QUIET, "");
    let ran = run(&dir);
    assert!(ran.stdout.contains("machine: a, c (share machine east)"), "{}", ran.stdout);
}

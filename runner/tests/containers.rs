//! What services are to each other and to their past, as containers of an engine: who reaches whom, by name and by
//! address, and which files are still there when a service starts again.

use std::path::PathBuf;

use crate::common::*;

/// Answers on port 7 (TCP and UDP) with its name and the address at which it was asked.
const SERVER: &str = r#"
import socket, sys, threading
def udp():
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("0.0.0.0", 7))
    while True:
        data, peer = s.recvfrom(100)
        s.sendto(sys.argv[1].encode(), peer)
threading.Thread(target=udp, daemon=True).start()
s = socket.socket()
s.bind(("0.0.0.0", 7))
s.listen(8)
while True:
    c, _ = s.accept()
    c.sendall(("%s at %s" % (sys.argv[1], c.getsockname()[0])).encode())
    c.close()
"#;

/// Tries every argument over TCP and UDP and prints what came of it.
const CLIENT: &str = r#"
import socket, sys, time
time.sleep(1.5)
def tcp(host):
    try:
        with socket.create_connection((host, 7), 2) as c:
            return c.recv(100).decode()
    except OSError as e:
        return type(e).__name__
def udp(host):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.settimeout(2)
        try:
            s.connect((host, 7))
            s.send(b"?")
            return s.recv(100).decode()
        except OSError as e:
            return type(e).__name__
for host in sys.argv[2:]:
    print("[%s -> %s: %s, %s]" % (sys.argv[1], host, tcp(host), udp(host)), flush=True)
"#;

const NETWORKS: &str = r#"
x-common: &common
  working_dir: /app
  volumes: [".:/app:ro"]
  x-bloodhound: {rootfs: host}
services:
  front:
    <<: *common
    command: [python3, server.py, front]
    networks: {one: {ipv4_address: 10.1.0.5}}
  middle:
    <<: *common
    command: [python3, server.py, middle]
    networks: {one: {ipv4_address: 10.1.0.6}, two: {ipv4_address: 10.2.0.6}}
  back:
    <<: *common
    command: [python3, server.py, back]
    networks: {two: {ipv4_address: 10.2.0.7}}
  alone:
    <<: *common
    command: [python3, server.py, alone]
  from-front:
    <<: *common
    command: [python3, client.py, from-front, front, 10.1.0.5, middle, 10.1.0.6, 10.2.0.6, back, 10.2.0.7, alone, 10.89.0.2]
    networks: [one]
  from-back:
    <<: *common
    command: [python3, client.py, from-back, middle, 10.2.0.6, 10.1.0.6, back, 10.1.0.5, 10.89.0.2, 10.9.9.9]
    networks: [two]
  from-both:
    <<: *common
    command: [python3, client.py, from-both, front, middle, back, 10.1.0.5, 10.2.0.7, alone, 10.89.0.2]
    networks: [one, two]
networks:
  one: {ipam: {config: [{subnet: 10.1.0.0/16}]}}
  two: {ipam: {config: [{subnet: 10.2.0.0/16}]}}
"#;

#[test]
fn services_reach_each_other_in_common_networks_only_by_name_and_by_address() {
    let check = "#!/bin/sh\nfor h in front middle back alone 10.1.0.5 10.2.0.6 10.2.0.7; do busybox nc -w 2 $h 7 </dev/null || exit 1; done\n";
    let config = "compose: compose.yaml\nsimulation: {seeds: 1, start_timeout: 60s}\nproperties:\n\
                  - {name: outside, kind: liveness, timeout: 20s, check: {type: custom, script: ./check.sh}}\nfaults: {duration: 40s}\n";
    let files = [
        ("compose.yaml", NETWORKS),
        ("server.py", SERVER),
        ("client.py", CLIENT),
        ("check.sh", check),
        ("bloodhound.yaml", config),
    ];
    let dir = stack("networks", &files);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(dir.join("check.sh"), mode).expect("an executable");
    let ran = run_in(&dir, &["run"]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    // An address that nobody has fails at once. A name of another network is unknown; an address of another network is silence: the engine's rules drop what goes
    // from one bridge to another.
    for line in [
        "[from-front -> front: front at 10.1.0.5, front]",
        "[from-front -> 10.1.0.5: front at 10.1.0.5, front]",
        "[from-front -> middle: middle at 10.1.0.6, middle]",
        "[from-front -> 10.1.0.6: middle at 10.1.0.6, middle]",
        "[from-front -> 10.2.0.6: TimeoutError, TimeoutError]",
        "[from-front -> back: gaierror, gaierror]",
        "[from-front -> 10.2.0.7: TimeoutError, TimeoutError]",
        "[from-front -> alone: gaierror, gaierror]",
        "[from-front -> 10.89.0.2: TimeoutError, TimeoutError]",
        "[from-back -> middle: middle at 10.2.0.6, middle]",
        "[from-back -> 10.2.0.6: middle at 10.2.0.6, middle]",
        "[from-back -> 10.1.0.6: TimeoutError, TimeoutError]",
        "[from-back -> back: back at 10.2.0.7, back]",
        "[from-back -> 10.1.0.5: TimeoutError, TimeoutError]",
        "[from-back -> 10.89.0.2: TimeoutError, TimeoutError]",
        "[from-back -> 10.9.9.9: OSError, TimeoutError]",
        "[from-both -> front: front at 10.1.0.5, front]",
        "[from-both -> middle: middle at 10.1.0.6, middle]",
        "[from-both -> back: back at 10.2.0.7, back]",
        "[from-both -> 10.1.0.5: front at 10.1.0.5, front]",
        "[from-both -> 10.2.0.7: back at 10.2.0.7, back]",
        "[from-both -> alone: gaierror, gaierror]",
        "[from-both -> 10.89.0.2: TimeoutError, TimeoutError]",
    ] {
        assert!(ran.stdout.contains(line) || ran.stderr.contains(line), "{line} is missing: {ran:#?}");
    }
}

/// Counts its starts in a file of each directory. It ends by itself at its first start, so that it starts again after that and
/// after each crash.
const COUNTER: &str = r#"
mkdir -p /srv /var/lib
out="start"
for dir in /tmp /run /srv /var/lib /volume /dev/shm /scratch; do
  echo x >> $dir/starts
  out="$out $dir=$(wc -l < $dir/starts)"
done
echo "[$out]"
[ $(wc -l < /srv/starts) = 1 ] && exit 0
exec sleep 1000
"#;

fn counter(name: &str, extra: &str) -> PathBuf {
    let compose = r#"
services:
  counter:
    command: [sh, /app/counter.sh]
    restart: always
    volumes: [".:/app:ro", "/volume"]
    tmpfs: [/scratch]
    x-bloodhound: {rootfs: host}
"#;
    let config = format!("compose: compose.yaml\nsimulation: {{seeds: 1}}\n{extra}");
    stack(name, &[("compose.yaml", compose), ("counter.sh", COUNTER), ("bloodhound.yaml", &config)])
}

fn starts(ran: &Ran) -> Vec<String> {
    let all = ran.stdout.lines().chain(ran.stderr.lines());
    let cut = |line: &str| Some(line[line.find("[start ")?..=line.rfind(']')?].to_string());
    all.filter_map(cut).collect()
}

fn expected(n: usize) -> String {
    format!("[start /tmp={n} /run={n} /srv={n} /var/lib={n} /volume={n} /dev/shm=1 /scratch=1]")
}

#[test]
fn files_stay_when_a_service_starts_again_and_tmpfs_mounts_do_not() {
    let ran = run_in(&counter("restart", "faults: {duration: 5s}\n"), &["run"]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    assert_eq!(starts(&ran), [expected(1), expected(2)], "{ran:#?}");
}

#[test]
fn files_stay_over_a_crash_too() {
    let faults = "faults:\n  duration: 20s\n  swarm: false\n  process: {crash_probability: 0.01, crash_restart_ms: [100, 200]}\n";
    let ran = run_in(&counter("crash", faults), &["run"]);
    let seen = starts(&ran);
    assert!(seen.len() > 3, "it was crashed: {ran:#?}");
    for (index, line) in seen.iter().enumerate() {
        assert_eq!(*line, expected(index + 1), "{seen:#?}");
    }
}

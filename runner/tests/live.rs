//! `bloodhound test --live`: a stack of containers on a real engine, with faults, a planted bug, an interruption, and what is refused.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::image::{Layer, save};
use crate::common::*;
use serde_json::{Value, json};

/// A register behind HTTP: busybox's server with two scripts. Its file is in /data.
const PUT: &str = r#"#!/bin/sh
echo "$QUERY_STRING" > "/data/new.$$" && sync && mv "/data/new.$$" /data/value
printf 'Status: 200 OK\r\n\r\n'
"#;
const GET: &str = r#"#!/bin/sh
if [ ! -f /data/value ]; then printf 'Status: 404 Not Found\r\n\r\n'; exit; fi
printf 'Status: 200 OK\r\n\r\n%s' "$(cat /data/value)"
"#;

/// The image of all services.
fn image(dir: &Path) -> PathBuf {
    let names = ["sh", "httpd", "cat", "mv", "sync", "sleep", "wget", "test", "echo", "grep", "ls"];
    let layer = Layer::new()
        .busybox(&names)
        .dir("www", 0o755)
        .dir("www/cgi-bin", 0o755)
        .file("www/index.html", 0o644, "here")
        .file("www/cgi-bin/put", 0o755, PUT)
        .file("www/cgi-bin/get", 0o755, GET);
    let config = json!({
        "Entrypoint": ["httpd", "-f", "-p", "8080", "-h", "/www"],
        "Env": ["PATH=/bin"],
        "WorkingDir": "/www",
    });
    save(&dir.join("register.tar"), "register:1", &config, vec![layer])
}

const WORKLOAD: &str = r#"
workload:
  driver: http
  config:
    targets: ["http://register:8080"]
    concurrency: 2
    qps: 20
    duration: 6s
    timeout: 2s
    operations:
      - type: put
        value_pattern: "v{seq}"
        key_pattern: "only"
        request: {method: GET, path: "/cgi-bin/put?{value}"}
      - type: get
        key_pattern: "only"
        request: {path: "/cgi-bin/get"}
        response: {not_found: [404]}
simulation: {seeds: 50, max_time: 180s}
"#;

const LINEARIZABLE: &str = r#"
  - name: linearizable
    kind: safety
    check: {type: linearizability, operations: [put, get], model: register}
"#;

/// A stack with what real ones have: a job before the server, a secret, a configuration, a volume, health checks, a second network, names.
const STACK: &str = r#"
name: notes
services:
  prepare:
    image: register:1
    entrypoint: [sh, -c, "cat /run/secrets/token > /data/token && cat /etc/motd >> /data/token"]
    volumes: [data:/data]
    secrets: [token]
    configs: [{source: motd, target: /etc/motd}]
  register:
    image: register:1
    depends_on: {prepare: {condition: service_completed_successfully}}
    volumes: [data:/data]
    networks: [back, front]
    healthcheck: {test: [CMD, wget, -q, -O, "-", "http://localhost:8080/"], interval: 500ms, timeout: 5s, retries: 20}
    environment: {COLOUR: green}
  web:
    image: register:1
    depends_on: {register: {condition: service_healthy}}
    command: []
    networks: {front: {aliases: [shop]}}
    read_only: true
    tmpfs: [/data]
    healthcheck: {test: "wget -q -O - http://register:8080/ | grep -q here", interval: 500ms, timeout: 5s, retries: 20}
networks: {back: {}, front: {}}
volumes: {data: {}}
secrets: {token: {file: ./token}}
configs: {motd: {content: "written in the file\n"}}
"#;

fn engine(name: &str) -> Option<(Engine, PathBuf)> {
    let dir = scratch(name);
    let engine_dir = scratch(&format!("{name}-engine"));
    let engine = Engine::start(&engine_dir, name)?;
    let archive = image(&dir);
    let loaded = engine.bloodhound(&dir, &["image", "load", archive.to_str().expect("a path")]);
    assert_eq!(loaded.code, Some(0), "{loaded:?}");
    Some((engine, dir))
}

fn answer(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|e| panic!("{e}: {ran:?}"))
}

fn verdicts(answer: &Value) -> Vec<(String, String)> {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let all = answer["properties"].as_array().into_iter().flatten();
    all.map(|p| (text(&p["name"]), text(&p["verdict"]))).collect()
}

#[test]
fn a_stack_runs_on_an_engine_with_faults_and_all_checks() {
    let Some((engine, dir)) = engine("live-stack") else { return };
    put(&dir, "compose.yaml", STACK);
    put(&dir, "token", "s3cret-of-the-test\n");
    // On a node of its own: names of all networks, programs of this machine. In a service: what the job has written there.
    put(
        &dir,
        "checks/outside.sh",
        "#!/bin/bash\nexec 3<>/dev/tcp/register/8080 && exec 4<>/dev/tcp/shop/8080\n",
    );
    put(
        &dir,
        "checks/inside.sh",
        "#!/bin/sh\ngrep -q s3cret-of /data/token && grep -q written /data/token && [ \"$COLOUR\" = green ]\n",
    );
    for script in ["checks/outside.sh", "checks/inside.sh"] {
        let path = dir.join(script);
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("a mode");
    }
    let properties = format!(
        r#"
properties:{LINEARIZABLE}
  - {{name: no-crash, kind: safety, check: {{type: no-crash}}}}
  - {{name: healthy, kind: liveness, timeout: 60s, check: {{type: healthy}}}}
  - {{name: page, kind: liveness, timeout: 60s, check: {{type: http, endpoint: "http://shop:8080/", expect: {{status: 200, body_contains: here}}}}}}
  - {{name: outside, kind: liveness, timeout: 60s, check: {{type: custom, script: ./checks/outside.sh}}}}
  - {{name: inside, kind: invariant, check: {{type: custom, service: register, script: ./checks/inside.sh, interval: 2s}}}}
faults:
  swarm: false
  duration: 6s
  network: {{drop_rate: 0.01, partition_probability: 0.01, partition_duration_ms: [300, 900]}}
  process: {{crash_probability: 0.003, crash_restart_ms: [200, 800], pause_probability: 0.004, pause_duration_ms: [100, 600]}}
"#
    );
    put(&dir, "bloodhound.yaml", &format!("compose: compose.yaml\n{WORKLOAD}{properties}"));
    let args = ["test", "--live", "--format", "json", "--out", "out", "--first-seed", "3"];
    let ran = engine.bloodhound(&dir, &args);
    let log = std::fs::read_to_string(dir.join("out/live/seed-3/trace.txt")).unwrap_or_default();
    assert_eq!(ran.code, Some(0), "{ran:?}\n{log}");
    let answer = answer(&ran);
    assert!(verdicts(&answer).iter().all(|(_, verdict)| verdict == "passed"), "{answer}");
    assert_eq!(verdicts(&answer).len(), 6);
    assert_eq!(answer["live"]["replayable"], false);
    assert!(answer["live"]["engine"].as_str().is_some_and(|name| name.starts_with("Podman")), "{answer}");
    assert_eq!((&answer["seeds_wanted"], &answer["platform"]), (&json!(1), &Value::Null));
    assert!(answer["operations"].as_u64() > Some(20), "{answer}");
    // What the plan says was done by the engine; what it cannot do was named.
    for kind in ["crash", "pause", "partition"] {
        assert!(answer["faults"][kind].as_u64() > Some(0), "no {kind}: {answer}\n{log}");
    }
    for text in
        ["live on Podman", "nothing here is replayable", "left out: drop_rate, partitions of the kinds"]
    {
        assert!(ran.stderr.contains(text), "{text}: {}", ran.stderr);
    }
    assert!(!ran.stderr.contains("refuses it"), "{}", ran.stderr);
    assert!(log.contains("live: nothing here is replayable") && log.contains("crash"), "{log}");
    let junit = std::fs::read_to_string(dir.join("out/junit.xml")).expect("a report");
    assert!(junit.contains("nothing here is replayable"), "{junit}");
    let findings = std::fs::read_dir(dir.join("out/findings")).map_or(0, Iterator::count);
    assert_eq!(findings, 0, "nothing to be replayed");
    assert_eq!(engine.left(), Vec::<String>::new());
    // What nobody asked for is not in the reports.
    for text in [&ran.stdout, &ran.stderr, &log, &junit] {
        assert!(!text.contains("s3cret-of"), "{text}");
    }
    clean(&engine, &dir);
}

/// The files of the run are root's.
fn clean(engine: &Engine, dir: &Path) {
    let ran = finish(&mut engine.command(dir, Path::new("rm"), &["-rf", "out"]), b"");
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

/// A register that keeps its value in memory: a crash takes it away, and a read that is answered then contradicts what was acknowledged before.
#[test]
fn a_planted_bug_is_found_on_an_engine() {
    let Some((engine, dir)) = engine("live-bug") else { return };
    put(&dir, "compose.yaml", "services: {register: {image: 'register:1', tmpfs: [/data]}}\n");
    // Mostly reads, so that the first operation after a crash is one; seldom crashes, so that something was written before.
    let workload = WORKLOAD
        .replace("- type: put", "- type: put\n        weight: 15")
        .replace("- type: get", "- type: get\n        weight: 85")
        .replace("qps: 20", "qps: 40")
        .replace("duration: 6s", "duration: 14s");
    let faults = "faults: {swarm: false, start_after: 2s, duration: 8s, process: {crash_probability: 0.004, crash_restart_ms: [100, 300]}}\n";
    put(
        &dir,
        "bloodhound.yaml",
        &format!("compose: compose.yaml\n{workload}properties:{LINEARIZABLE}{faults}"),
    );
    let args = ["test", "--live", "--out", "out", "--first-seed", "1", "--seeds", "4", "--fail-fast"];
    let ran = engine.bloodhound(&dir, &args);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    for text in ["live: nothing here is replayable", "FAIL  linearizable", "crash register (SIGKILL)"] {
        let junit = std::fs::read_to_string(dir.join("out/junit.xml")).expect("a report");
        assert!(ran.stdout.contains(text) || junit.contains(text), "{text}: {}", ran.stdout);
    }
    assert!(!ran.stdout.contains("bloodhound replay"), "{}", ran.stdout);
    let (_, seen) = ran.stdout.split_once("what was seen: ").expect("where it is");
    let seen = seen.lines().next().unwrap_or_default();
    assert!(seen.starts_with("out/live/seed-"), "{seen}");
    for file in ["trace.txt", "history.jsonl", "logs/register.log"] {
        assert!(dir.join(seen).join(file).is_file(), "{file}");
    }
    // The history is one that `check` reads and judges likewise.
    let history = format!("{seen}/history.jsonl");
    let checked = engine.bloodhound(&dir, &["check", "--model", "kv", &history]);
    assert_eq!(checked.code, Some(1), "{checked:?}");
    assert_eq!(engine.left(), Vec::<String>::new());
    clean(&engine, &dir);
}

#[test]
fn what_does_not_start_is_told_with_its_output_and_removed() {
    let Some((engine, dir)) = engine("live-unready") else { return };
    let stack = "services: {register: {image: 'register:1', entrypoint: [sh, -c, 'echo no such database >&2; exit 3']}}\n";
    put(&dir, "compose.yaml", stack);
    put(&dir, "bloodhound.yaml", &format!("compose: compose.yaml\n{WORKLOAD}properties:{LINEARIZABLE}"));
    let ran = engine.bloodhound(&dir, &["test", "--live", "--out", "out", "--junit", "junit.xml"]);
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(
        ran.stderr.contains("ended with exit code 3") && ran.stderr.contains("no such database"),
        "{ran:?}"
    );
    assert!(std::fs::read_to_string(dir.join("junit.xml")).expect("a report").contains("<error"), "{ran:?}");
    assert_eq!(engine.left(), Vec::<String>::new());
    // A program that is not there is the engine's refusal.
    put(
        &dir,
        "compose.yaml",
        "services: {register: {image: 'register:1', entrypoint: [/no/such/program]}}\n",
    );
    let ran = engine.bloodhound(&dir, &["test", "--live", "--out", "out"]);
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(
        ran.stderr.contains("starting bloodhound-") && ran.stderr.contains("/no/such/program"),
        "{ran:?}"
    );
    assert_eq!(engine.left(), Vec::<String>::new());
    clean(&engine, &dir);
}

#[test]
fn an_interruption_removes_everything_unless_it_is_to_be_kept() {
    let Some((engine, dir)) = engine("live-interrupted") else { return };
    put(&dir, "compose.yaml", "services: {register: {image: 'register:1', tmpfs: [/data]}}\n");
    let workload = WORKLOAD.replace("duration: 6s", "duration: 50s");
    put(&dir, "bloodhound.yaml", &format!("compose: compose.yaml\n{workload}properties:{LINEARIZABLE}"));
    for (keep, left) in [(false, 0), (true, 1)] {
        let mut args = vec!["test", "--live", "--out", "out"];
        args.extend(keep.then_some("--keep"));
        let program = Path::new(env!("CARGO_BIN_EXE_bloodhound"));
        let mut command = engine.command(&dir, program, &args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("bloodhound");
        let begin = Instant::now();
        let container = || engine.left().iter().any(|name| name.contains("register"));
        while !container() {
            assert!(begin.elapsed() < Duration::from_secs(120), "no container");
            assert_eq!(child.try_wait().expect("bloodhound"), None, "it ended too early");
            // What is interrupted is a command that says nothing before its container runs: the engine is asked.
            std::thread::sleep(Duration::from_millis(100));
        }
        let pids = engine.command(&dir, Path::new("sh"), &["-c", "kill -INT $(pidof bloodhound)"]);
        let killed = finish(&mut { pids }, b"");
        assert_eq!(killed.code, Some(0), "{killed:?}");
        let output = child.wait_with_output().expect("bloodhound");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{stderr}");
        let containers = engine.left().iter().filter(|name| name.contains("register")).count();
        assert_eq!(containers, left, "{stderr}");
        assert_eq!(stderr.contains("kept: the containers"), keep, "{stderr}");
    }
    clean(&engine, &dir);
}

/// What the compose file says of a container, as the engine has understood it.
#[test]
fn a_container_is_what_the_file_says() {
    let Some((engine, dir)) = engine("live-container") else { return };
    let compose = r#"
services:
  register:
    image: register:1
    hostname: keeper
    user: "1000:4"
    working_dir: /tmp
    command: [-c, /dev/null]
    environment: {A: "1"}
    labels: {team: red}
    cap_add: [NET_ADMIN]
    cap_drop: [CHOWN]
    ulimits: {nofile: {soft: 100, hard: 200}, nproc: 1000}
    sysctls: {net.core.somaxconn: "77"}
    mem_limit: 64m
    pids_limit: 50
    shm_size: 8m
    read_only: true
    stop_signal: SIGQUIT
    stop_grace_period: 3s
    extra_hosts: ["outside.example:10.1.2.3"]
    dns_search: [corp.example]
    tmpfs: [/data]
    volumes: ["named:/named:ro", "/anonymous", "./bound:/bound"]
    networks: {default: {aliases: [other]}, fixed: {ipv4_address: 10.213.7.9}}
    restart: always
    container_name: mine
    ports: ["8080:8080"]
volumes: {named: {}}
networks: {fixed: {internal: true, ipam: {config: [{subnet: 10.213.7.0/24}]}}}
"#;
    put(&dir, "compose.yaml", compose);
    put(&dir, "bound/file", "of this machine");
    let page = "\n  - {name: page, kind: liveness, timeout: 60s, check: {type: http, endpoint: 'http://localhost:8080/', expect: {status: 200}}}\n";
    put(&dir, "bloodhound.yaml", &format!("compose: compose.yaml\nproperties:{page}"));
    let ran = engine.bloodhound(&dir, &["test", "--live", "--keep", "--out", "out"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let name = engine.left().into_iter().find(|name| name.ends_with("-register")).expect("it is kept");
    let found = engine.get(&format!("http://engine/v1.40/containers/{name}/json"));
    let (config, host) = (&found["Config"], &found["HostConfig"]);
    assert_eq!((&config["Hostname"], &config["User"]), (&json!("keeper"), &json!("1000:4")));
    assert_eq!((&config["WorkingDir"], &config["Labels"]["team"]), (&json!("/tmp"), &json!("red")));
    let command: Vec<&Value> =
        ["Entrypoint", "Cmd"].iter().filter_map(|key| config[key].as_array()).flatten().collect();
    assert_eq!(command, ["httpd", "-f", "-p", "8080", "-h", "/www", "-c", "/dev/null"]);
    let variables = config["Env"].as_array().cloned().unwrap_or_default();
    assert!(variables.contains(&json!("A=1")) && variables.contains(&json!("PATH=/bin")), "{config}");
    assert!(
        host["CapAdd"].to_string().contains("NET_ADMIN") && host["CapDrop"].to_string().contains("CHOWN"),
        "{host}"
    );
    assert!(
        host["Ulimits"].to_string().contains("NOFILE") || host["Ulimits"].to_string().contains("nofile"),
        "{host}"
    );
    assert_eq!(
        (&host["Memory"], &host["PidsLimit"], &host["ShmSize"]),
        (&json!(64 << 20), &json!(50), &json!(8 << 20))
    );
    assert_eq!(host["ReadonlyRootfs"], true);
    assert!(matches!(host["RestartPolicy"]["Name"].as_str(), Some("" | "no")), "{host}");
    let inside = |script: &str| {
        let argv: Vec<String> = ["exec", &name, "sh", "-c", script].iter().map(|a| (*a).to_owned()).collect();
        engine.podman(&argv)
    };
    let lines = inside(
        "cat /proc/sys/net/core/somaxconn /bound/file /etc/hosts /etc/resolv.conf; echo; ls -d /anonymous; ulimit -n",
    );
    for text in [
        "77",
        "of this machine",
        "outside.example",
        "10.1.2.3",
        "corp.example",
        "10.213.7.9",
        "/anonymous",
        "100",
    ] {
        assert!(lines.contains(text), "{text}: {lines}");
    }
    assert!(
        inside("echo x > /named/x; echo x > /etc/x; echo x > /data/x && echo the memory can be written")
            .contains("can be written")
    );
    let networks = found["NetworkSettings"]["Networks"].as_object().cloned().unwrap_or_default();
    assert_eq!(networks.len(), 2, "{networks:?}");
    let aliases = networks.values().map(|network| network["Aliases"].to_string()).collect::<String>();
    for alias in ["other", "mine", "register", "keeper"] {
        assert!(aliases.contains(alias), "{alias}: {aliases}");
    }
    clean(&engine, &dir);
}

/// What needs no engine.
#[test]
fn what_means_nothing_on_an_engine_is_refused_by_name() {
    let dir = stack(
        "live-refused",
        &[
            ("compose.yaml", "services: {register: {command: [/bin/true], x-bloodhound: {rootfs: host}}}\n"),
            ("bloodhound.yaml", &format!("compose: compose.yaml\n{WORKLOAD}properties:{LINEARIZABLE}")),
        ],
    );
    let live = |more: &[&str]| {
        let args: Vec<&str> = ["test", "--live"].iter().chain(more).copied().collect();
        let mut command = command_on(None, &dir, &args);
        command.env("DOCKER_HOST", format!("unix://{}", dir.join("none.sock").display()));
        finish(&mut command, b"")
    };
    for (option, value) in [
        ("--bundle", None),
        ("--boot-each", None),
        ("--jobs", Some("2")),
        ("--platform", Some("ptrace")),
        ("--regression-runs", Some("2")),
    ] {
        let ran = live(&[option].into_iter().chain(value).collect::<Vec<_>>());
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(&format!("`{option}` cannot be used with --live")), "{}", ran.stderr);
    }
    let ran = finish(&mut command_on(None, &dir, &["test", "--keep"]), b"");
    assert_eq!(ran.code, Some(2), "{ran:?}");
    // No engine: the reports say so too.
    let ran = live(&["--out", "out", "--junit", "junit.xml"]);
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(
        ran.stderr.contains("no engine that runs containers answers")
            && ran.stderr.contains("podman system service"),
        "{ran:?}"
    );
    assert!(
        std::fs::read_to_string(dir.join("junit.xml")).expect("a report").contains("no engine"),
        "{ran:?}"
    );
}

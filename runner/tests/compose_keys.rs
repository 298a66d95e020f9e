//! Keys of compose files, each by what a service sees or does: the most used ones together, and those that have a life of their own
//! (hooks, images as volumes, profiles, terminals, builds, what belongs to the machine below the containers).
//!
//! The twenty keys that people write most are in `USED` and in `a_stack_is_built_and_run`: image, build, ports, environment, env_file, volumes,
//! restart, depends_on, container_name, networks, command, entrypoint, healthcheck, expose, user, hostname, working_dir, labels, logging,
//! deploy; with links, extra_hosts, ulimits and configs beside them.

use crate::common::image::{Layer, Stack};
use crate::common::*;
use serde_json::json;

fn busybox() -> Layer {
    Layer::new().busybox(&[
        "sh", "cat", "ls", "id", "env", "pwd", "sleep", "touch", "httpd", "wget", "grep", "sort", "head",
        "test", "kill", "hostname", "true", "false",
    ])
}

/// A stack with the image `box:1`.
fn with_box(name: &str, compose: &str) -> Stack {
    let stack = Stack::new(&format!("compose-{name}"));
    stack.image("box:1", json!({"Cmd": ["sleep", "1000"], "Env": ["PATH=/bin"]}), vec![busybox()]);
    stack.file("docker-compose.yml", compose);
    stack
}

/// The stack has started. Without faults and workload, that nothing crashed says nothing, and a run is inconclusive.
fn assert_ready(ran: &Ran) {
    assert!(ran.stdout.contains("all services are ready"), "{ran:#?}");
}

/// One service has them as people write them; the other looks at it from outside.
const USED: &str = r#"
name: used
services:
  web:
    image: box:1
    container_name: the-web
    hostname: web-host
    restart: always
    entrypoint: ["sh", "-c"]
    command:
      - |
        echo "[user $$(id -u):$$(id -g)] [dir $$(pwd)] [host $$(hostname)] [file $$FROM_FILE] [env $$FROM_ENV] [name $$PROJECT]"
        echo "[volume $$(cat /kept/starts 2>/dev/null | wc -l)]"; echo x >> /kept/starts
        cat /bound/text; cat /conf; echo " [limit $$(ulimit -n)]"
        touch /bound/new 2>&1; httpd -p 8080 -h /bound; sleep 3; kill -9 $$(cat /var/none 2>/dev/null) 2>/dev/null; exit 3
    environment:
      FROM_ENV: ${UNSET_VARIABLE:-default}
      PROJECT: ${COMPOSE_PROJECT_NAME}
    env_file: [./web.env]
    expose: ["8080"]
    ports: ["18080:8080"]
    volumes:
      - kept:/kept
      - ./bound:/bound:ro
    configs: [{source: conf, target: /conf}]
    networks: {inner: {aliases: [also]}}
    healthcheck: {test: "wget -q -O /dev/null http://localhost:8080/text", interval: 500ms, start_period: 5s}
    user: "0:4"
    working_dir: /made/here
    ulimits: {nofile: 777}
    labels: {any.thing: "x"}
    logging: {driver: none}
    deploy: {resources: {limits: {memory: 64M}}}
  look:
    image: box:1
    depends_on: {web: {condition: service_healthy}}
    extra_hosts: ["elsewhere:192.0.2.7"]
    networks: [inner]
    links: ["web:linked"]
    restart: "no"
    command: sh -c 'for n in web the-web also linked; do echo "[$$n $$(wget -q -O - http://$$n:8080/text)]"; done; grep elsewhere /etc/hosts'
volumes: {kept: }
networks: {inner: {internal: true}}
configs: {conf: {content: "c1"}}
"#;

#[test]
fn the_most_used_keys_do_what_they_say() {
    let stack = with_box("used", USED);
    stack.file("web.env", "FROM_FILE=visible\n");
    stack.file("bound/text", "bound-text");
    let config = "compose: docker-compose.yml\nsimulation: {max_time: 10s}\nfaults: {duration: 6s, network: {drop_rate: 0.001}}\nworkload:\n  driver: http\n  config:\n    target: http://localhost:18080\n    \
                  max_operations: 5\n    duration: 3s\n    operations: [{type: get, key_pattern: text, request: {path: \"/{key}\"}}]\nproperties: [{name: up, kind: safety, check: {type: no-crash, services: [look]}}]\n";
    stack.file("bloodhound.yaml", config);
    let ran = stack.command(&["run"]);
    assert_eq!(stack.command(&["run"]).stdout, ran.stdout, "two runs differ");
    let web = lines(&ran, "web").join("\n");
    for part in [
        "[user 0:4] [dir /made/here] [host web-host] [file [redacted]] [env default] [name used]",
        "bound-text",
        " [limit 777]",
        "/bound/new: Read-only file system",
        "[volume 0]",
        // restart: the second start finds the volume as the first left it.
        "[volume 1]",
    ] {
        assert!(web.contains(part), "{part} is missing\n{}\n{}", ran.stdout, ran.stderr);
    }
    let look = lines(&ran, "look").join("\n");
    for name in ["web", "the-web", "also", "linked"] {
        assert!(look.contains(&format!("[{name} bound-text]")), "{name}: {look}\n{}", ran.stderr);
    }
    assert!(look.contains("192.0.2.7\telsewhere"), "{look}");
    // `ports`: the workload reaches the service.
    assert!(ran.stdout.contains("operations: 5"), "{}\n{}", ran.stdout, ran.stderr);
}

const HOOKS: &str = r#"
services:
  base:
    image: box:1
    command: sh -c 'echo "[command]"; sleep 1000'
    post_start:
      - command: ["sh", "-c", "sleep 1; echo \"[first $$A $$(id -u) $$(pwd)]\"; touch /tmp/first"]
        environment: [A=b]
        user: app
        working_dir: /tmp
      - command: sh -c 'test -e /tmp/first && echo "[second $$(grep CapEff /proc/self/status)]"'
        privileged: true
  next:
    image: box:1
    depends_on: {base: {condition: service_started, restart: true}}
    command: sh -c 'trap "echo [ends]; exit 0" TERM; echo "[next]"; while true; do sleep 0.1; done'
    pre_stop:
      - command: [sh, -c, "echo '[before the stop]'"]
"#;

#[test]
fn hooks_run_after_the_start_and_before_a_stop() {
    let stack = with_box("hooks", HOOKS);
    let config = "simulation: {max_time: 60s}\nfaults: {duration: 30s, process: {crash_probability: 0.01, services: [base]}}\n\
                  properties: [{name: up, kind: safety, check: {type: no-crash}}]\n";
    stack.file("bloodhound.yaml", config);
    let ran = stack.command(&["run"]);
    assert_eq!(stack.command(&["run"]).stdout, ran.stdout, "two runs differ");
    let told: Vec<&str> =
        ran.stdout.lines().filter_map(|line| line.split_once("s ").map(|(_, rest)| rest.trim())).collect();
    let place = |what: &str| {
        told.iter()
            .position(|line| line.contains(what))
            .unwrap_or_else(|| panic!("{what} is missing\n{}\n{}", ran.stdout, ran.stderr))
    };
    let order = [
        "[command]",
        "[first b 1000 /tmp]",
        "base command 1 of post_start ended: exit code 0",
        "[second CapEff:\t000001ffffffffff]",
        "base command 2 of post_start ended: exit code 0",
        // Who depends on it waits for the commands.
        "next started",
        "crash base",
        "next is asked to stop",
        "[before the stop]",
        "next command 1 of pre_stop ended: exit code 0",
        "[ends]",
    ];
    let places: Vec<usize> = order.iter().map(|what| place(what)).collect();
    assert!(places.is_sorted(), "{places:?}\n{}", ran.stdout);
    assert!(told[place("crash base")..].iter().any(|line| line.contains("[second ")), "{}", ran.stdout);
}

#[test]
fn a_hook_that_fails_stops_the_container() {
    let stack = with_box(
        "hook-fails",
        "services:\n  a: {image: \"box:1\", post_start: [{command: [sh, -c, 'exit 3']}]}\n",
    );
    let ran = stack.command(&["run"]);
    assert_eq!(ran.code, Some(5), "{ran:#?}");
    assert!(ran.stderr.contains("service a: command 1 of `post_start`: ended with exit code 3"), "{ran:#?}");
}

#[test]
fn an_image_is_a_volume() {
    let stack = with_box(
        "image-volume",
        "services:\n  a:\n    image: box:1\n    command: sh -c 'cat /all/etc/data/one /part/one; touch /part/two && ls /part; touch /fixed/x; sleep 1000'\n    volumes:\n      \
         - {type: image, source: \"data:1\", target: /all}\n      - {type: image, source: \"data:1\", target: /part, image: {subpath: etc/data}}\n      \
         - {type: image, source: \"data:1\", target: /fixed, read_only: true}\n",
    );
    let layer =
        Layer::new().dir("etc", 0o755).dir("etc/data", 0o755).file("etc/data/one", 0o644, "of the image\n");
    stack.image("data:1", json!({}), vec![layer]);
    let out = stack.output("a");
    assert_eq!(out[..4], ["of the image", "of the image", "one", "two"], "{out:?}");
    assert!(out[4].contains("Read-only file system"), "{out:?}");
}

#[test]
fn profiles_choose_services() {
    let compose = "services:\n  always: {image: \"box:1\", command: [sh, -c, 'echo always; sleep 1000']}\n  debug: {image: \"box:1\", profiles: [debug, all], command: [sh, -c, 'echo debug; sleep 1000']}\n";
    let stack = with_box("profiles", compose);
    let said = |args: &[&str]| {
        let ran = stack.command(args);
        assert_ready(&ran);
        (lines(&ran, "always").len(), lines(&ran, "debug").len())
    };
    assert_eq!(said(&["run"]), (1, 0));
    assert_eq!(said(&["run", "--profile", "all"]), (1, 1));
    assert_eq!(said(&["run", "--profile", "other", "--profile", "debug"]), (1, 1));
}

#[test]
fn an_open_input_is_waited_for_and_a_closed_one_ends() {
    let read = "command: [sh, -c, 'cat; echo ended; sleep 1000']";
    let compose = format!(
        "services:\n  closed: {{image: \"box:1\", {read}}}\n  open: {{image: \"box:1\", {read}, stdin_open: true}}\n  \
         terminal: {{image: \"box:1\", command: sh, tty: true}}\n"
    );
    let stack = with_box("input", &compose);
    let ran = stack.command(&["run"]);
    assert_ready(&ran);
    assert_eq!((lines(&ran, "closed"), lines(&ran, "open").len()), (vec!["ended"], 0), "{}", ran.stdout);
    // A shell at a terminal waits for its user.
    assert!(!ran.stdout.contains("terminal ended"), "{}", ran.stdout);
}

#[test]
fn what_belongs_to_the_machine_is_the_simulated_one() {
    let compose = "services:\n  a:\n    image: box:1\n    umask: \"0077\"\n    volumes: [\"/proc:/host/proc:ro\", \"/dev/shm:/dev/shm\", \"/:/host/root:ro\", \"/var/run/docker.sock:/var/run/docker.sock\"]\n    \
                   command: sh -c 'head -1 /host/proc/1/status; ls /host/proc | grep -c \"^[0-9]\"; ls -A /dev/shm; ls /host/root/proc /var/run/docker.sock; touch /tmp/t; ls -l /tmp/t; sleep 1000'\n";
    let stack = with_box("machine", compose);
    let ran = stack.command(&["run"]);
    assert_ready(&ran);
    assert!(ran.stderr.contains("/var/run/docker.sock is left out"), "{}", ran.stderr);
    let out = lines(&ran, "a").join("\n");
    // This machine's /proc is an empty directory in its root.
    for part in ["Name:\tsh", "/host/root/proc:", "/var/run/docker.sock: No such file", "-rw------- "] {
        assert!(out.contains(part), "{part} is missing: {out}");
    }
    let processes: usize = lines(&ran, "a")[1].parse().expect("a number of processes");
    assert!(processes < 10, "this machine's processes: {out}");
    let numbers = lines(&ran, "a").iter().filter(|line| line.parse::<u32>().is_ok()).count();
    assert_eq!(numbers, 1, "this machine's processes: {out}");
}

#[test]
fn everything_that_cannot_be_planned_is_told_at_once_each_at_its_place() {
    let compose = "services:\n  a:\n    image: box:1\n    user: nobody-there\n    sysctls: {net.ipv4.no_such: 1}\n  b:\n    image: box:1\n    group_add: [no-group]\n    \
                   stop_signal: SIGRTMIN+99\n  c:\n    image: not-there:1\n    user: any\n";
    let stack = with_box("refused", compose);
    let expected = [
        "docker-compose.yml:4:5",
        "service a: user: there is no user `nobody-there`",
        "docker-compose.yml:5:5",
        "service a: sysctls: the kernel parameter net.ipv4.no_such is not simulated",
        "service b: user: there is no group `no-group`",
        "docker-compose.yml:9:5",
        "service b: stop_signal: SIGRTMIN+99 is no signal",
    ];
    let said = stack.command(&["validate", "-f", "docker-compose.yml"]);
    let ran = stack.command(&["run", "--offline"]);
    assert_eq!((said.code, ran.code), (Some(2), Some(5)), "{said:#?} {ran:#?}");
    for part in expected {
        assert!(said.stderr.contains(part), "{part} is missing: {}", said.stderr);
        assert!(ran.stderr.contains(part), "{part} is missing: {}", ran.stderr);
    }
    // Whether an image that is not here has a user cannot be told; a run says that the image is not here.
    assert!(!said.stderr.contains("any"), "{}", said.stderr);
    assert!(ran.stderr.contains("docker-compose.yml:11:5: service c: not-there:1"), "{}", ran.stderr);
}

#[test]
fn scripts_of_checks_reach_published_ports_on_localhost() {
    let compose = "services:\n  web:\n    image: box:1\n    ports: [\"18099:8080\"]\n    command: httpd -f -p 8080 -h /etc\n";
    let stack = with_box("localhost", compose);
    let script = "#!/bin/sh\nbusybox wget -q -O - http://localhost:18099/passwd | grep -q app || exit 1\nbusybox wget -q -O - http://127.0.0.1:18098/ && exit 2\nexit 0\n";
    stack.file("check.sh", script);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(stack.0.join("check.sh"), mode).expect("an executable");
    let config = "compose: docker-compose.yml\nsimulation: {max_time: 20s}\nproperties:\n  - {name: outside, kind: liveness, timeout: 10s, check: {type: custom, script: ./check.sh}}\n";
    stack.file("bloodhound.yaml", config);
    let ran = stack.command(&["run"]);
    assert!(ran.stdout.contains("outside holds"), "{ran:#?}");
}

#[test]
fn a_stack_is_built_and_run() {
    if !have(&["buildah"], "services that are built") {
        return;
    }
    let compose = "services:\n  app:\n    build:\n      context: ./app\n      args: {WORD: built}\n      target: last\n    command: [/hello]\n";
    let stack = Stack::new("compose-build");
    stack.file("docker-compose.yml", compose);
    stack.file("app/Dockerfile", "FROM scratch AS first\nCOPY rootfs /\nFROM first AS last\nARG WORD\nENV SAID=$WORD\nCOPY hello /hello\n");
    stack.file("app/hello", "#!/bin/sh\necho \"[$SAID]\"\nexec sleep 1000\n");
    std::fs::create_dir_all(stack.0.join("app/rootfs/bin")).expect("a directory");
    let busybox =
        ["/bin/busybox", "/usr/bin/busybox"].iter().find(|path| std::path::Path::new(path).exists());
    std::fs::copy(busybox.expect("busybox"), stack.0.join("app/rootfs/bin/busybox")).expect("a copy");
    for name in ["sh", "sleep"] {
        std::os::unix::fs::symlink("busybox", stack.0.join("app/rootfs/bin").join(name)).expect("a link");
    }
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(stack.0.join("app/hello"), mode).expect("an executable");
    let run = || {
        let mut command = command_on(platform().as_deref(), &stack.0, &["run"]);
        // Neither a daemon nor an overlay file system: copies work in a container too.
        command.env("BUILDAH_ISOLATION", "chroot").env("STORAGE_DRIVER", "vfs");
        command.env("BLOODHOUND_CACHE", stack.0.join("cache"));
        finish(&mut command, b"")
    };
    let ran = run();
    assert_ready(&ran);
    assert_eq!(lines(&ran, "app"), ["[built]"], "{ran:#?}");
    assert_eq!(run().stdout, ran.stdout, "what is built is kept");
}

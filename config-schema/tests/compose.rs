//! What a compose file means: every modelled key, substitution, files beside it, and the starting order.

use std::path::{Path, PathBuf};

use bloodhound_config::compose::{
    Condition, HealthTest, HealthcheckSetting, MountSource, Namespace, NetworkMode, Restart, Rootfs, Service,
    Variables,
};
use bloodhound_config::tree::Source;
use bloodhound_config::{Code, Compose, Diagnostic};

const SECOND: u64 = 1_000_000_000;

fn variables(pairs: &[(&str, &str)]) -> Variables {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn decode(text: &str, pairs: &[(&str, &str)]) -> (Compose, Vec<Diagnostic>) {
    let (compose, diagnostics) =
        Compose::decode(Source::new(Path::new("/nonexistent/c.yaml"), text), &variables(pairs));
    (compose.unwrap_or_else(|| panic!("{diagnostics:#?}")), diagnostics)
}

fn one(keys: &str) -> Service {
    let text = format!("services:\n  s:\n    command: /bin/true\n    x-bloodhound: {{rootfs: host}}\n{keys}");
    let (compose, diagnostics) = decode(&text, &[]);
    assert_eq!(diagnostics, []);
    compose.services.into_iter().next().expect("a service")
}

fn codes(diagnostics: &[Diagnostic]) -> Vec<Code> {
    diagnostics.iter().map(|d| d.code).collect()
}

#[test]
fn a_directory_with_all_kinds_of_files() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/stack");
    let environment = variables(&[("FROM_CALLER", "caller"), ("TAG", "9")]);
    let (compose, diagnostics) = Compose::load(&dir.join("docker-compose.yml"), &environment);
    let compose = compose.unwrap_or_else(|| panic!("{diagnostics:#?}"));
    assert_eq!(diagnostics, []);
    assert_eq!(compose.name, "stack");
    let names: Vec<_> = compose.services.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["lb", "kv", "init"]);
    let order: Vec<_> = compose.start_order.iter().map(|i| names[*i]).collect();
    assert_eq!(order, ["init", "kv", "lb"]);

    let kv = compose.service("kv").expect("kv");
    assert_eq!(kv.argv(), ["/app/kv", "--data", "/var/lib/kv"]);
    assert_eq!(kv.instances(), ["kv-1", "kv-2", "kv-3"]);
    assert_eq!(kv.rootfs, Rootfs::Host);
    assert_eq!(kv.read, ["/etc/ssl"]);
    let expected = [
        ("FROM_BOTH", "environment"),
        ("FROM_CALLER", "caller"),
        ("FROM_FILE", "one two"),
        ("IMAGE", "kv:9"),
        ("NODES", "3"),
        ("VERSION", "1.10"),
        ("YES", "yes"),
    ];
    let expected: Vec<_> = expected.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    assert_eq!(kv.environment, expected);
    let mounts: Vec<_> = kv.mounts.iter().map(|m| (&m.source, m.target.as_str(), m.read_only)).collect();
    assert_eq!(
        mounts,
        [
            (&MountSource::Bind(dir.join("bin")), "/app", true),
            (&MountSource::Volume("data".to_owned()), "/var/lib/kv", false),
            (&MountSource::Anonymous, "/scratch", false),
            (&MountSource::Tmpfs { size: Some(64 << 20), mode: None, owner: (0, 0) }, "/tmp", false),
        ]
    );
    let check = kv.own_healthcheck().expect("a health check");
    assert_eq!(check.test.argv(None), ["/app/kv", "--healthcheck"]);
    assert_eq!((check.interval_ns, check.retries, check.start_period_ns), (2 * SECOND, 5, 90 * SECOND));

    let lb = compose.service("lb").expect("lb");
    assert_eq!(lb.rootfs, Rootfs::Dir(dir.join("bin")));
    let attached: Vec<_> =
        lb.networks.iter().map(|n| (n.network.as_str(), n.aliases.len(), n.ipv4.is_some())).collect();
    assert_eq!(attached, [("front", 1, true), ("default", 0, false)]);
    let waits: Vec<_> = lb.depends_on.iter().map(|d| (d.service.value.as_str(), d.condition)).collect();
    assert_eq!(waits, [("kv", Condition::Healthy)]);
    assert_eq!(lb.restart, Restart::OnFailure { max_retries: Some(3) });
    let networks: Vec<_> = compose.networks.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(networks, ["front", "default"]);
    assert_eq!(compose.inputs, [dir.join(".env"), dir.join("kv.env")]);
    for host in ["lb", "edge", "10.5.0.9", "kv", "kv-2", "init"] {
        assert!(compose.host_names().contains(&host.to_owned()), "{host}");
    }
}

#[test]
fn commands_are_lists_or_texts() {
    let service = one("    entrypoint: /bin/sh -c\n");
    assert_eq!(service.argv(), ["/bin/sh", "-c", "/bin/true"]);
    let (compose, _) = decode(
        "services:\n  s:\n    x-bloodhound: {rootfs: host}\n    command: [a, 1, true, '$$X', \"${Y:-z}\"]\n",
        &[],
    );
    assert_eq!(compose.services[0].argv(), ["a", "1", "true", "$X", "z"]);
}

#[test]
fn substituted_values_take_the_type_that_is_asked_for() {
    let text = "services:\n  s:\n    command: x\n    x-bloodhound: {rootfs: '${ROOT}'}\n    scale: ${N}\n    \
                hostname: ${N}\n    healthcheck: {disable: '${OFF:-true}'}\n";
    let (compose, diagnostics) = decode(text, &[("ROOT", "host"), ("N", "2")]);
    assert_eq!(diagnostics, []);
    let service = &compose.services[0];
    assert_eq!((service.replicas, service.hostname.as_deref()), (2, Some("2")));
    assert_eq!(service.healthcheck, HealthcheckSetting::Disabled);
}

#[test]
fn a_variable_cannot_change_the_structure() {
    let text = "services:\n  s:\n    command: [x, $EVIL]\n    x-bloodhound: {rootfs: host}\n";
    let (compose, _) = decode(text, &[("EVIL", "a]\n    privileged: [true")]);
    assert_eq!(compose.services[0].argv(), ["x", "a]\n    privileged: [true"]);
}

#[test]
fn health_checks_in_all_forms() {
    let test = |yaml: &str| {
        let service = one(&format!("    healthcheck: {{test: {yaml}}}\n"));
        service.own_healthcheck().map(|h| h.test.argv(None))
    };
    let shell = |line: &str| Some(vec!["/bin/sh".to_owned(), "-c".to_owned(), line.to_owned()]);
    assert_eq!(HealthTest::Shell("x".into()).argv(Some(&["/bin/ash".into()])), ["/bin/ash", "x"]);
    assert_eq!(test("curl -f localhost || exit 1"), shell("curl -f localhost || exit 1"));
    assert_eq!(test("[CMD-SHELL, 'a | b']"), shell("a | b"));
    assert_eq!(test("[CMD, a, b]"), Some(vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(test("[NONE]"), None);
    let service = one("    healthcheck: {test: [CMD, a]}\n");
    let check = service.own_healthcheck().expect("a health check");
    assert_eq!(
        (check.interval_ns, check.timeout_ns, check.retries, check.start_period_ns, check.start_interval_ns),
        (30 * SECOND, 30 * SECOND, 3, 0, 5 * SECOND)
    );
}

#[test]
fn restart_policies() {
    let restart = |word: &str| one(&format!("    restart: {word}\n")).restart;
    assert_eq!(restart("no"), Restart::No);
    assert_eq!(restart("\"no\""), Restart::No);
    assert_eq!(restart("always"), Restart::Always);
    assert_eq!(restart("unless-stopped"), Restart::UnlessStopped);
    assert_eq!(restart("on-failure"), Restart::OnFailure { max_retries: None });
    assert_eq!(restart("on-failure:7"), Restart::OnFailure { max_retries: Some(7) });
}

#[test]
fn mounts_in_long_syntax() {
    let service = one(
        "    volumes:\n      - {type: tmpfs, target: /t, tmpfs: {size: 1g, mode: 1777}}\n      \
         - {type: volume, target: //v/./w/}\n      - {type: bind, source: /etc, target: /e, read_only: true}\n    \
         tmpfs: /run:size=64k,mode=700,uid=7,gid=8\n",
    );
    let mounts: Vec<_> = service.mounts.into_iter().map(|m| (m.source, m.target, m.read_only)).collect();
    assert_eq!(
        mounts,
        [
            (
                MountSource::Tmpfs { size: Some(1 << 30), mode: Some(0o1777), owner: (0, 0) },
                "/t".to_owned(),
                false
            ),
            (MountSource::Anonymous, "/v/w".to_owned(), false),
            (MountSource::Bind(PathBuf::from("/etc")), "/e".to_owned(), true),
            (
                MountSource::Tmpfs { size: Some(64 << 10), mode: Some(0o700), owner: (7, 8) },
                "/run".to_owned(),
                false
            ),
        ]
    );
}

#[test]
fn the_projects_name_is_a_variable() {
    let text = "name: shop\nservices:\n  s: {image: x, container_name: \"${COMPOSE_PROJECT_NAME}_s\", environment: [COMPOSE_PROJECT_NAME]}\n";
    let (compose, diagnostics) = decode(text, &[]);
    assert_eq!(diagnostics, []);
    let service = &compose.services[0];
    assert_eq!(service.container_name.as_deref(), Some("shop_s"));
    assert_eq!(service.environment, [("COMPOSE_PROJECT_NAME".to_owned(), "shop".to_owned())]);
    // Without a name it is that of the directory.
    let (compose, diagnostics) = decode("services:\n  s: {image: \"a/${COMPOSE_PROJECT_NAME}\"}\n", &[]);
    assert_eq!(diagnostics, []);
    let image = compose.services[0].image.as_ref().map(|image| image.value.clone());
    assert_eq!(image, Some(format!("a/{}", compose.name)));
}

#[test]
fn texts_stand_for_numbers_and_truth_values() {
    let service = one(
        "    privileged: \"true\"\n    read_only: yes\n    tty: on\n    stdin_open: \"no\"\n    healthcheck: {test: x, retries: \"7\"}\n",
    );
    assert_eq!(service.cap_add, ["ALL"]);
    assert_eq!((service.read_only, service.tty, service.stdin_open), (true, true, false));
    assert_eq!(service.own_healthcheck().map(|check| check.retries), Some(7));
}

#[test]
fn a_container_of_the_file_is_its_service() {
    let text = "services:\n  vpn: {image: x, container_name: the-vpn}\n  app: {image: x, network_mode: \"container:the-vpn\", pid: \"container:c-vpn2-1\"}\n  vpn2: {image: x}\n";
    let (compose, diagnostics) = decode(&format!("name: c\n{text}"), &[]);
    assert_eq!(diagnostics, []);
    let app = compose.service("app").expect("app");
    assert!(matches!(&app.network_mode, NetworkMode::Service(name) if name.value == "vpn"), "{app:?}");
    assert!(matches!(&app.pid, Namespace::Service(name) if name.value == "vpn2"), "{app:?}");
    let text = "services:\n  app: {image: x, network_mode: \"container:other\"}\n";
    let (_, diagnostics) = Compose::decode(Source::new(Path::new("c.yaml"), text), &variables(&[]));
    assert!(
        diagnostics.iter().any(|d| d.code == Code::ComposeNotSupported && d.message.contains("`other`")),
        "{diagnostics:?}"
    );
}

#[test]
fn hooks_and_masks() {
    let service = one(
        "    umask: \"027\"\n    isolation: default\n    post_start: [{command: \"a 'b c'\", user: root, environment: {X: 1}, privileged: true}]\n    \
         pre_stop: [{command: [d], working_dir: /e}]\n",
    );
    assert_eq!(service.umask, Some(0o27));
    let [hook] = &service.post_start[..] else { panic!("{:?}", service.post_start) };
    assert_eq!((&hook.command[..], hook.privileged), (&["a".to_owned(), "b c".to_owned()][..], true));
    assert_eq!(hook.environment, [("X".to_owned(), "1".to_owned())]);
    assert_eq!(service.pre_stop[0].working_dir.as_deref(), Some("/e"));
}

#[test]
fn mounts_of_what_is_the_machines() {
    let text = "services:\n  s:\n    image: x\n    volumes: [\"/proc:/host/proc:ro\", \"/sys:/host/sys\", \"/dev/shm:/dev/shm\", \
                \"/var/run/docker.sock:/var/run/docker.sock\", {type: image, source: \"y:1\", target: /y, image: {subpath: a}}]\n";
    let (compose, diagnostics) = decode(text, &[]);
    assert_eq!(codes(&diagnostics), [Code::ComposeKeyNotModelled], "the engine's socket is left out");
    let sources: Vec<_> = compose.services[0].mounts.iter().map(|mount| &mount.source).collect();
    assert!(
        matches!(sources[..3], [MountSource::Proc, MountSource::Sys, MountSource::Tmpfs { .. }]),
        "{sources:?}"
    );
    assert!(matches!(sources[3..], [MountSource::Image(image)] if image.value == "y:1"), "{sources:?}");
    let (_, diagnostics) = Compose::decode(
        Source::new(
            Path::new("compose.yaml"),
            "services:\n  s: {image: x, volumes: [\"/dev/sda:/dev/sda\", \"./no.conf:/etc/no.conf:ro\", \"./no-dir:/d:ro\"]}\n",
        ),
        &variables(&[]),
    );
    let expected = [Code::ComposeNotSupported, Code::MissingFile, Code::MissingFile];
    assert_eq!(codes(&diagnostics), expected, "{diagnostics:?}");
    assert_eq!(
        diagnostics.iter().filter(|d| d.is_error()).count(),
        2,
        "a directory is made, a file is a mistake"
    );
}

#[test]
fn keys_without_effect_are_accepted_silently() {
    let text = "version: '3'\nx-any: [1]\nservices:\n  s:\n    command: x\n    x-bloodhound: {rootfs: host}\n    \
                ports: ['80:80']\n    expose: [80]\n    labels: {a: b}\n    logging: {driver: json-file}\n    \
                x-other: 1\n    cap_add: [NET_ADMIN]\n    privileged: false\n    devices: []\n    \
                deploy: {resources: {limits: {cpus: '1'}}}\n";
    let (compose, diagnostics) = decode(text, &[]);
    assert_eq!(diagnostics, []);
    assert_eq!(
        (compose.services[0].cpus_milli, &*compose.services[0].cap_add),
        (Some(1000), &["NET_ADMIN".into()][..])
    );
}

#[test]
fn where_files_come_from() {
    let text = "x-bloodhound: {rootfs: host, read: [/etc]}\nservices:\n  a: {image: 'redis:7', x-bloodhound: {rootfs: image}}\n  \
                b: {command: x, x-bloodhound: {read: [/opt]}}\n  c: {image: x, command: x}\n";
    let (compose, diagnostics) = decode(text, &[]);
    assert_eq!(diagnostics, []);
    let found: Vec<_> = compose.services.iter().map(|s| (&s.rootfs, &*s.read)).collect();
    let etc = &["/etc".to_owned()][..];
    assert_eq!(found, [(&Rootfs::Image, etc), (&Rootfs::Host, &["/opt".to_owned()]), (&Rootfs::Host, etc)]);
    let (compose, diagnostics) = decode("services:\n  a: {image: 'redis:7'}\n  b: {build: ./b}\n", &[]);
    assert_eq!(diagnostics, []);
    assert!(compose.services.iter().all(|s| s.rootfs == Rootfs::Image && s.command.is_none()));
    assert!(matches!(compose.services[0].healthcheck, HealthcheckSetting::Inherited(_)));
}

#[test]
fn keys_of_a_container() {
    let service = one(
        "    init: true\n    stop_signal: int\n    stop_grace_period: 1m30s\n    group_add: [mail, 1000]\n    \
         cap_add: [CAP_net_admin]\n    cap_drop: [ALL]\n    ulimits: {nofile: {soft: 1024, hard: -1}, nproc: 65535}\n    \
         mem_limit: 512m\n    pids_limit: 100\n    shm_size: 128mb\n    sysctls: [net.core.somaxconn=1024]\n    \
         extra_hosts: [\"a:10.0.0.1\", \"b=fd00::1\", \"h:host-gateway\"]\n    dns: 8.8.8.8\n    dns_search: [a.b]\n    \
         domainname: x.y\n    read_only: true\n    pull_policy: every_3d\n    platform: linux/amd64\n",
    );
    assert_eq!((service.init, service.stop_signal.as_deref()), (Some(true), Some("SIGINT")));
    assert_eq!(service.stop_grace_period_ns, Some(90 * SECOND));
    assert_eq!(service.group_add, ["mail", "1000"]);
    assert_eq!((&*service.cap_add, &*service.cap_drop), (&["NET_ADMIN".into()][..], &["ALL".into()][..]));
    let limits: Vec<_> = service.ulimits.iter().map(|l| (l.name.as_str(), l.soft, l.hard)).collect();
    assert_eq!(limits, [("nofile", Some(1024), None), ("nproc", Some(65535), Some(65535))]);
    assert_eq!(
        (service.mem_limit, service.pids_limit, service.shm_size),
        (Some(512 << 20), Some(100), Some(128 << 20))
    );
    assert_eq!(service.sysctls, [("net.core.somaxconn".to_owned(), "1024".to_owned())]);
    assert_eq!(service.extra_hosts.len(), 3);
    assert_eq!(service.dns, ["8.8.8.8".parse::<std::net::IpAddr>().unwrap()]);
    assert!(service.read_only);
    assert_eq!(service.pull_policy, bloodhound_config::compose::PullPolicy::Older(3 * 24 * 60 * 60));
}

#[test]
fn profiles_decide_what_runs() {
    let text = "x-b: &b\n  command: x\n  x-bloodhound: {rootfs: host}\nservices:\n  a:\n    <<: *b\n    depends_on: \
                {debug: {condition: service_started, required: false}, none: {required: false}}\n  debug:\n    \
                <<: *b\n    profiles: [tools]\n";
    let (compose, diagnostics) = decode(text, &[]);
    assert_eq!(compose.services.len(), 1);
    assert_eq!(compose.services[0].depends_on, []);
    assert_eq!(codes(&diagnostics), [Code::NothingToDo]);
    let (compose, diagnostics) = decode(text, &[("COMPOSE_PROFILES", "x,tools")]);
    assert_eq!(compose.services.len(), 2);
    assert_eq!(compose.start_order, [1, 0]);
    assert_eq!(diagnostics, []);
}

#[test]
fn the_order_is_that_of_the_file_as_far_as_it_can_be() {
    let text = "x-b: &b {command: x, x-bloodhound: {rootfs: host}}\nservices:\n  a: {<<: *b, depends_on: [d]}\n  \
                b: {<<: *b}\n  c: {<<: *b, depends_on: [b]}\n  d: {<<: *b, depends_on: [c]}\n  e: {<<: *b}\n";
    let (compose, diagnostics) = decode(text, &[]);
    assert_eq!(diagnostics, []);
    assert_eq!(compose.start_order, [1, 2, 3, 0, 4]);
}

#[test]
fn the_environment_of_this_process_is_not_looked_at() {
    let text = "services:\n  s:\n    command: ['$PATH', '${HOME}']\n    x-bloodhound: {rootfs: host}\n    \
                environment: [CARGO_MANIFEST_DIR]\n";
    let (compose, diagnostics) = decode(text, &[]);
    assert_eq!(compose.services[0].argv(), ["", ""]);
    assert_eq!(compose.services[0].environment, []);
    assert_eq!(codes(&diagnostics), [Code::UnsetVariable; 3]);
}

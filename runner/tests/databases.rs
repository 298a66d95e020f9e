//! Databases of the distribution under power failures, on disks of the model `ordered`: those that sync before they acknowledge lose
//! nothing and come up again, those whose syncs are switched off are found. `power/front.py` starts each and looks what it has kept.
//!
//! Each that syncs has about 50 power failures; `BLOODHOUND_TEST_SEEDS=100` (`cargo xtask long power`), about 1,000.

use std::path::{Path, PathBuf};

use crate::common::cli::{bloodhound, code, injected, text};
use crate::common::{compile, figures, have, put, repository, seeds_or, stack};

/// Seeds within which syncs that are switched off must be found.
const CARELESS: &str = "100";

/// A machine with a database and one that asks it. What Debian has in memory (/run) is so here: a lock file there outlives no failure.
fn compose(database: &str, options: &[&str]) -> String {
    let options: String = options.iter().map(|option| format!(", '{option}'")).collect();
    format!(
        "x-s: &s {{x-bloodhound: {{rootfs: host}}, volumes: ['./app:/app:ro']}}\nservices:\n  \
         db:\n    <<: *s\n    command: [python3, /app/front.py, {database}{options}]\n    \
         volumes: ['./app:/app:ro', 'data:/data']\n    tmpfs: [/run, /tmp]\n    \
         healthcheck: {{test: [CMD, bash, -c, '</dev/tcp/127.0.0.1/7000'], interval: 1s, retries: 100}}\n  \
         client:\n    <<: *s\n    command: [/app/store, client, busy]\n    depends_on: {{db: {{condition: service_healthy}}}}\n\
         volumes: {{data: }}\n"
    )
}

/// Power failures every 0.7 s on average: some come while the server recovers from the one before.
fn config(seconds: u32) -> String {
    format!(
        "compose: compose.yaml\noutput: {{dir: out}}\n\
         simulation: {{max_time: 200s, time_step: 10ms, boots: 1, healthchecks: until-ready}}\n\
         faults: {{swarm: false, duration: {seconds}s, disk: {{model: ordered}}, \
         process: {{services: [db], power_failure_probability: 0.015, power_restart_ms: [100, 400]}}}}\n\
         properties: [{{name: promises, kind: safety, check: {{type: no-crash}}}}]\n"
    )
}

fn stack_of(database: &str, options: &[&str], seconds: u32) -> PathBuf {
    let name: String =
        options.concat().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let dir = stack(
        &format!("database-{database}-{name}"),
        &[("compose.yaml", &compose(database, options)), ("bloodhound.yaml", &config(seconds))],
    );
    let sources = repository().join("runner/tests/power");
    put(&dir, "app/front.py", &std::fs::read_to_string(sources.join("front.py")).expect("a program"));
    compile(&sources.join("store.c"), &dir.join("app/store"), &["-O1"]);
    dir
}

/// A database that syncs before it acknowledges keeps all it has acknowledged.
fn keeps(database: &str, options: &[&str]) {
    let dir = stack_of(database, options, 10);
    let seeds = seeds_or(5);
    let result =
        bloodhound(&dir, &["test", "--seeds", &seeds.to_string(), "--jobs", "1", "--format", "json"]);
    assert_eq!(code(&result), 0, "{database} {options:?}: {}{}", text(&result), said(&dir));
    let failures = injected(&result, "power-failure");
    assert!(failures >= 5 * seeds, "{database} {options:?}: {failures} power failures");
    figures(&format!("{database} keeps all over {failures} power failures in {seeds} seeds"));
}

/// A database that does not is found.
fn loses(database: &str, options: &[&str]) {
    let dir = stack_of(database, options, 3);
    let result = bloodhound(&dir, &["test", "--seeds", CARELESS, "--fail-fast", "--jobs", "1"]);
    assert_eq!(code(&result), 1, "{database} {options:?}: {}", text(&result));
    // By what it had promised, not because it could not be asked at all.
    let said = said(&dir);
    assert!(said.contains("BROKEN: "), "{database} {options:?}: {said}");
    assert!(said.contains("power failure of the machine of db"), "{database} {options:?}: {said}");
}

/// The timelines of the findings of a campaign.
fn said(dir: &Path) -> String {
    let Ok(findings) = std::fs::read_dir(dir.join("out/findings")) else { return String::new() };
    let timelines = findings.map(|finding| finding.expect("a finding").path().join("trace.txt"));
    timelines.map(|path| std::fs::read_to_string(path).expect("a timeline")).collect()
}

#[test]
fn postgres() {
    if !have(&["python3", "setpriv", "pg_ctlcluster"], "PostgreSQL under power failures") {
        return;
    }
    keeps("postgres", &[]);
    // Both by PostgreSQL's documentation of the write-ahead log's settings: the first may break the database, the second loses the last
    // transactions and nothing else.
    for option in ["fsync=off", "synchronous_commit=off"] {
        loses("postgres", &[option]);
    }
}

#[test]
fn mariadb() {
    if !have(&["python3", "mariadbd"], "MariaDB under power failures") {
        return;
    }
    keeps("mariadb", &[]);
    // 0 writes and syncs the log once a second only, 2 writes it with each transaction and syncs it once a second.
    for how in ["0", "2"] {
        loses("mariadb", &[&format!("--innodb-flush-log-at-trx-commit={how}")]);
    }
}

#[test]
fn etcd() {
    if !have(&["python3", "etcd"], "etcd under power failures") {
        return;
    }
    keeps("etcd", &[]);
    loses("etcd", &["--unsafe-no-fsync"]);
}

#[test]
fn lmdb_of_slapd() {
    if !have(&["python3", "slapd"], "LMDB under power failures") {
        return;
    }
    keeps("slapd", &[]);
    loses("slapd", &["dbnosync"]);
}

/// It acknowledges what it has written and syncs every two minutes, as it comes.
#[test]
fn nats() {
    if !have(&["python3", "nats-server"], "NATS JetStream under power failures") {
        return;
    }
    loses("nats", &[]);
}

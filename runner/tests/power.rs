//! Power failures: what programs promise and do not keep is found, who syncs as Linux wants it loses nothing, and a run is replayed.
//!
//! SQLite and Redis have about 50 power failures where they sync; with `BLOODHOUND_TEST_SEEDS=100` (`cargo xtask long power`), about 1,000.

use std::path::{Path, PathBuf};

use crate::common::cli::{bloodhound, code, injected, text};
use crate::common::{compile, figures, have, put, repository, seeds_or, stack};

/// Seeds within which each mistake must be found, and with which the others must pass.
const SEEDS: &str = "6";

/// The stores of `power/store.c`.
fn store(dir: &Path) {
    let program = dir.join("app/store");
    std::fs::create_dir_all(program.parent().expect("a parent")).expect("a directory");
    compile(&repository().join("runner/tests/power/store.c"), &program, &["-O1"]);
}

/// A machine with a store, one that asks it, and power failures.
fn config(model: &str, seconds: u32) -> String {
    format!(
        "compose: compose.yaml\noutput: {{dir: out}}\nsimulation: {{max_time: 200s, time_step: 10ms, boots: 1}}\n\
         faults: {{swarm: false, duration: {seconds}s, disk: {{model: {model}}}, \
         process: {{services: [db], power_failure_probability: 0.006, power_restart_ms: [100, 400]}}}}\n\
         properties: [{{name: promises, kind: safety, check: {{type: no-crash}}}}]\n"
    )
}

fn compose(db: &str, client: &str) -> String {
    let mut text = format!(
        "x-s: &s {{x-bloodhound: {{rootfs: host}}}}\nservices:\n  \
         db: {{<<: *s, command: [{db}], volumes: ['./app:/app:ro', 'data:/data']}}\n"
    );
    if !client.is_empty() {
        text += &format!(
            "  client: {{<<: *s, command: [{client}], volumes: ['./app:/app:ro'], depends_on: [db]}}\n"
        );
    }
    text + "volumes: {data: }\n"
}

fn stack_of(name: &str, command: &str, client: &str, config: &str) -> PathBuf {
    let dir = stack(
        &format!("power-{name}"),
        &[("compose.yaml", &compose(command, client)), ("bloodhound.yaml", config)],
    );
    store(&dir);
    dir
}

/// Whether a campaign finds a broken promise.
fn finds(dir: &Path, seeds: &str) -> bool {
    campaign(dir, seeds).0
}

/// The same, with how often the power failed.
fn campaign(dir: &Path, seeds: &str) -> (bool, u64) {
    let args = ["test", "--seeds", seeds, "--jobs", "1", "--fail-fast", "--format", "json"];
    let result = bloodhound(dir, &args);
    let found = match code(&result) {
        0 => false,
        1 => true,
        other => panic!("exit code {other}: {}", text(&result)),
    };
    (found, injected(&result, "power-failure"))
}

/// That a campaign finds nothing, with its figures.
fn keeps(what: &str, dir: &Path, few: u64) {
    let seeds = seeds_or(few);
    let (found, failures) = campaign(dir, &seeds.to_string());
    assert!(!found && failures >= 5 * seeds, "{what}: {failures} power failures");
    figures(&format!("{what} keeps all over {failures} power failures in {seeds} seeds"));
}

/// One of the stores, in one of its variants, over disks of a model.
fn is_found(what: &str, variant: &str, model: &str) -> bool {
    let name = format!("{what}-{variant}-{model}");
    let client = if what == "log" { "/app/store, client" } else { "" };
    let dir = stack_of(&name, &format!("/app/store, {what}, {variant}"), client, &config(model, 20));
    finds(&dir, SEEDS)
}

#[test]
fn a_name_that_comes_before_its_content_is_found() {
    for model in ["ordered", "strict"] {
        assert!(is_found("rename", "careless", model), "{model}");
        assert!(!is_found("rename", "careful", model), "{model}");
    }
}

#[test]
fn ext4_forgives_a_replacement_without_fsync_and_posix_does_not() {
    assert!(!is_found("replace", "careless", "ordered"), "auto_da_alloc");
    assert!(is_found("replace", "careless", "strict"));
    assert!(!is_found("replace", "careful", "strict"));
}

#[test]
fn a_directory_that_is_never_synced_is_found_where_only_posix_is_promised() {
    assert!(!is_found("directory", "careless", "ordered"), "the journal of ext4 takes names along");
    assert!(is_found("directory", "careless", "strict"));
    assert!(!is_found("directory", "careful", "strict"));
}

#[test]
fn eight_kilobytes_are_not_written_at_once() {
    for what in ["record", "mapped"] {
        for model in ["ordered", "strict"] {
            assert!(is_found(what, "careless", model), "{what} {model}");
            assert!(!is_found(what, "careful", model), "{what} {model}");
        }
    }
}

#[test]
fn what_is_acknowledged_before_it_is_durable_is_lost() {
    for how in ["careless", "range"] {
        assert!(is_found("log", how, "ordered"), "{how}");
    }
    for how in ["fsync", "fdatasync", "sync", "syncfs", "O_SYNC", "O_DSYNC", "RWF_DSYNC"] {
        assert!(!is_found("log", how, "strict"), "{how}");
    }
}

/// A log over TCP, as that of `power/store.c`, in a database of SQLite.
const SQLITE: &str = r#"import socket, sqlite3, struct, sys
mode, synchronous = sys.argv[1:]
db = sqlite3.connect("/data/db", isolation_level=None)
db.execute("pragma journal_mode = " + mode)
db.execute("pragma synchronous = " + synchronous)
db.execute("create table if not exists log (n integer primary key, what text)")
whole = db.execute("pragma integrity_check").fetchall()
assert whole == [("ok",)], whole
last = db.execute("select coalesce(max(n), 0) from log").fetchone()[0]
assert db.execute("select count(*) from log").fetchone()[0] == last
listener = socket.create_server(("", 7000))
while True:
    peer, _ = listener.accept()
    while True:
        try:
            what = peer.recv(1)
            if not what:
                break
            if what == b"a":
                last += 1
                db.execute("insert into log values (?, ?)", (last, "x" * 500))
            peer.sendall(struct.pack("<Q", last))
        except OSError:
            break
    peer.close()
"#;

/// A database of SQLite, which must not lose what it has acknowledged, and not break.
fn sqlite(mode: &str, synchronous: &str) -> PathBuf {
    let name = format!("sqlite-{mode}-{synchronous}");
    let command = format!("python3, /app/log.py, '{mode}', '{synchronous}'");
    let dir = stack_of(&name, &command, "/app/store, client", &config("ordered", 20));
    put(&dir, "app/log.py", SQLITE);
    dir
}

#[test]
fn sqlite_keeps_what_it_promises() {
    if !have(&["python3"], "SQLite under power failures") {
        return;
    }
    for (mode, synchronous) in [("wal", "full"), ("delete", "extra"), ("truncate", "full")] {
        keeps(&format!("sqlite {mode} {synchronous}"), &sqlite(mode, synchronous), 5);
    }
    // "WAL mode does lose durability. A transaction committed in WAL mode with synchronous=NORMAL might roll back following a power
    // loss"; in DELETE mode the removal of the journal is synced by EXTRA only (SQLite's PRAGMA synchronous).
    for (mode, synchronous) in [("wal", "normal"), ("wal", "off"), ("delete", "full"), ("delete", "off")] {
        assert!(finds(&sqlite(mode, synchronous), "100"), "{mode} {synchronous}");
    }
}

/// A Redis server, which must not lose what it has acknowledged.
fn redis(fsync: &str) -> PathBuf {
    let command = format!(
        "redis-server, --port, '7000', --bind, 0.0.0.0, --protected-mode, 'no', --dir, /data, --save, '', --appendonly, 'yes', \
         --appendfsync, '{fsync}'"
    );
    let name = format!("redis-{fsync}");
    stack_of(&name, &command, "/app/store, client, redis", &config("ordered", 20))
}

#[test]
fn redis_keeps_what_it_promises() {
    if !have(&["redis-server"], "Redis under power failures") {
        return;
    }
    keeps("redis always", &redis("always"), 6);
    for fsync in ["everysec", "no"] {
        assert!(finds(&redis(fsync), "100"), "{fsync}");
    }
}

#[test]
fn a_power_failure_is_told_and_replayed() {
    let dir = stack_of("replay", "/app/store, log, fsync", "/app/store, client", &config("ordered", 20));
    let ran = bloodhound(&dir, &["run", "--seed", "3"]);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    let timeline = text(&ran);
    let failure = "power failure of the machine of db, power again after ";
    let count = timeline.lines().filter(|line| line.contains(failure)).count();
    assert!(count > 2, "{timeline}");
    let told = "of what the machine of db had not synced, ";
    assert_eq!(timeline.lines().filter(|line| line.contains(told)).count(), count, "{timeline}");
    let started = timeline.lines().filter(|line| line.ends_with("service  db started")).count();
    assert!(started >= count, "{timeline}");
    let verified = bloodhound(&dir, &["verify", "--seed", "3", "--times", "3"]);
    assert_eq!(code(&verified), 0, "{}", text(&verified));
}

#[test]
fn a_finding_of_a_power_failure_fails_again() {
    let command = "/app/store, log, careless";
    let dir = stack_of("finding", command, "/app/store, client", &config("ordered", 20));
    assert!(finds(&dir, SEEDS));
    let findings = dir.join("out/findings");
    let first =
        std::fs::read_dir(&findings).expect("findings").next().expect("one").expect("an entry").path();
    let again = bloodhound(&dir, &["replay", &first.to_string_lossy()]);
    assert_eq!(code(&again), 1, "{}", text(&again));
}

#[test]
fn both_platforms_lose_the_same() {
    if bloodhound_platform_tests::without_kvm("power failures on kvm") {
        return;
    }
    let dir = stack_of("platforms", "/app/store, mapped, careful", "", &config("ordered", 10));
    let digest = |platform| {
        let ran = bloodhound(&dir, &["run", "--seed", "1", "--platform", platform]);
        assert_eq!(code(&ran), 0, "{}", text(&ran));
        text(&ran).lines().find(|line| line.starts_with("digest: ")).map(str::to_owned).expect("a digest")
    };
    assert_eq!(digest("ptrace"), digest("kvm"));
}

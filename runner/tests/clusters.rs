//! Clusters of three unmodified servers that crash and are cut off from each other: after the heal they have elected a leader, and what
//! is written at one node is read at the others. `clusters/NAME/` has the stack, the faults and the check of each.
//!
//! RabbitMQ takes minutes, and runs with `-- --ignored` only. What is not installed is left out, with a line that says so.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::common::*;

/// The stack of `clusters/NAME` as a directory of its own.
fn cluster(name: &str) -> std::path::PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clusters").join(name);
    let dir = scratch(&format!("cluster-{name}"));
    for entry in std::fs::read_dir(&from).expect("the cluster") {
        let entry = entry.expect("a file");
        let to = dir.join(entry.file_name());
        std::fs::copy(entry.path(), &to).expect("copied");
    }
    // Whatever the umask of the checkout was: servers read these files as their own users.
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o755)).expect("permissions");
    dir
}

/// Two equal campaigns pass, and in them nodes crashed and were cut off.
fn elects(name: &str, needs: &[&str]) {
    if !have(needs, &format!("the cluster of {name}")) {
        return;
    }
    let dir = cluster(name);
    let campaign = |number: u32| {
        let out = dir.join(format!("out{number}"));
        let out = out.to_str().expect("text");
        let ran = run_in(&dir, &["test", "--out", out]);
        assert_eq!(ran.code, Some(0), "{name}\n{}\n{}", ran.stdout, ran.stderr);
        for fault in [" partition", " crash"] {
            assert!(ran.stdout.contains(fault), "{name}: no{fault}\n{}", ran.stdout);
        }
        std::fs::read_to_string(Path::new(out).join("junit.xml")).expect("a report")
    };
    assert_eq!(campaign(1), campaign(2), "{name}: two equal campaigns");
}

#[test]
fn nats_elects_leaders_of_its_streams() {
    elects("nats", &["nats-server", "python3", "curl"]);
}

#[test]
fn zookeeper_elects_a_leader() {
    elects("zookeeper", &["/usr/share/java/zookeeper.jar", "java", "python3"]);
}

#[test]
#[ignore = "takes minutes: cargo test --release -p bloodhound --test command clusters:: -- --ignored"]
fn rabbitmq_elects_leaders_of_its_queues() {
    elects("rabbitmq", &["rabbitmq-server", "setpriv", "python3"]);
}

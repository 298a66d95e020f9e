//! The stacks in examples/stacks, unchanged, with real images: PostgreSQL, MariaDB, Redis, nginx, PHP, Python, Node, Java, NATS.
//!
//! The images are those that `examples/images/build.sh target/images` builds, which takes some minutes and needs root: .ci/run does it.
//! Without them the tests say that they are left out.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::common::*;

/// The directory with the images, if they have been built.
fn images() -> Option<PathBuf> {
    let given = std::env::var_os("BLOODHOUND_TEST_IMAGES").map(PathBuf::from);
    let dir = given.unwrap_or_else(|| repository().join("target/images"));
    let there = NAMES.iter().all(|name| dir.join(format!("{name}.tar")).is_file());
    if !there {
        leave_out("stacks", "no images: examples/images/build.sh target/images builds them");
    }
    there.then_some(dir)
}

const NAMES: [&str; 10] =
    ["musl", "redis", "postgres", "nginx", "python-web", "node-web", "java-web", "php", "mariadb", "nats"];

/// A cache with all of them, made once.
fn cache() -> Option<&'static Path> {
    static CACHE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let made = CACHE.get_or_init(|| {
        let images = images()?;
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("stacks-cache");
        let archives = NAMES.map(|name| images.join(format!("{name}.tar")).to_string_lossy().into_owned());
        let args: Vec<&str> =
            ["image", "load"].into_iter().chain(archives.iter().map(String::as_str)).collect();
        let loaded = bloodhound(&repository(), &dir, &args);
        assert_eq!(loaded.code, Some(0), "{}", loaded.stderr);
        Some(dir)
    });
    made.as_deref()
}

fn bloodhound(dir: &Path, cache: &Path, args: &[&str]) -> Ran {
    let mut command = command_on(platform().as_deref(), dir, args);
    command.env("BLOODHOUND_CACHE", cache);
    finish(&mut command, b"")
}

/// Two campaigns over a stack must pass and be equal.
fn passes(name: &str) {
    let Some(cache) = cache() else { return };
    let dir = repository().join("examples/stacks").join(name);
    let campaign = |number: u32| {
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("stacks-{name}-{number}"));
        let out = out.to_string_lossy().into_owned();
        let ran = bloodhound(
            &dir,
            cache,
            &["test", "--compose", "docker-compose.yml", "--seeds", "2", "--out", &out],
        );
        assert_eq!(ran.code, Some(0), "{name}\n{}\n{}", ran.stdout, ran.stderr);
        std::fs::read_to_string(Path::new(&out).join("junit.xml")).expect("a report")
    };
    assert_eq!(campaign(1), campaign(2), "{name}: two equal campaigns");
}

#[test]
fn a_shop_with_a_database_a_queue_a_worker_migrations_and_secrets() {
    passes("shop");
}

#[test]
fn a_guest_book_of_php_and_mariadb_that_share_a_volume_with_nginx() {
    passes("guestbook");
}

#[test]
fn a_load_balancer_in_front_of_replicas() {
    passes("front");
}

#[test]
fn a_broker_of_three_nodes() {
    passes("broker");
}

#[test]
fn a_java_service_and_one_of_musl() {
    passes("store");
}

//! `bloodhound init`: what it writes for a compose file is valid, and runs.

use crate::common::*;

const PUBLISHED: &str = r#"
services:
  web:
    image: nginx:1.27
    ports: ["8080:80"]
    depends_on: {api: {condition: service_healthy}}
  api:
    build: ./api
    environment: {DB_PASSWORD: hunter2, MODE: production}
    healthcheck: {test: ["CMD-SHELL", "curl -fs http://localhost:3000/healthz || exit 1"]}
    depends_on: {migrate: {condition: service_completed_successfully}}
  migrate: {build: ./api, command: migrate}
  db: {image: "postgres:16", volumes: ["data:/var/lib/postgresql/data"]}
  cache: {image: docker.io/library/redis}
volumes: {data: }
"#;

#[test]
fn what_is_found_is_written_down() {
    let dir = stack("init-published", &[("compose.yaml", PUBLISHED)]);
    let ran = run_in(&dir, &["init"]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    let text = std::fs::read_to_string(dir.join("bloodhound.yaml")).expect("written");
    for line in [
        "#   web: the image nginx:1.27; HTTP at web:80, published as localhost:8080",
        "#   api: an image that is built; HTTP at api:3000; health at /healthz",
        "#   migrate: an image that is built; ends by itself, and others wait for it",
        "#   db: the image postgres:16; it has the volume data",
        "#   cache: the image docker.io/library/redis; its image keeps data",
        "    target: \"http://web:80\"",
        "      endpoint: \"http://api:3000/healthz\"",
        "  redact: [\"DB_PASSWORD\"]",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is missing in\n{text}");
    }
    // It is not replaced by accident.
    let ran = run_in(&dir, &["init"]);
    assert_eq!(ran.code, Some(2), "{ran:#?}");
    assert!(ran.stderr.contains("--force"), "{ran:#?}");
    assert_eq!(run_in(&dir, &["init", "--force"]).code, Some(0));
    let again = std::fs::read_to_string(dir.join("bloodhound.yaml")).expect("written");
    assert_eq!(again, text);
}

const OWN: &str = r#"
x-bloodhound: {rootfs: host}
services:
  web:
    command: [python3, -m, http.server, "8000"]
    ports: ["8000:8000"]
    healthcheck: {test: [CMD, python3, -c, "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/')"], interval: 1s}
  worker: {command: [sleep, "1000"], depends_on: [web]}
"#;

#[test]
fn what_is_written_is_valid_and_runs() {
    if !have(&["python3"], "a configuration made by init") {
        return;
    }
    let dir = stack("init-runs", &[("stack.yml", OWN)]);
    let ran = run_in(&dir, &["init", "stack.yml", "--output", "bloodhound.yaml"]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    let ran = run_in(&dir, &["validate", "--strict"]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    let ran = run_in(&dir, &["test", "--seeds", "2"]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    assert!(ran.stdout.contains("ok    web is healthy again"), "{ran:#?}");
}

#[test]
fn a_compose_file_that_cannot_be_used_leaves_nothing() {
    let dir = stack("init-wrong", &[("compose.yaml", "services: {a: {imag: x}}\n")]);
    let ran = run_in(&dir, &["init"]);
    assert_eq!(ran.code, Some(2), "{ran:#?}");
    assert!(!dir.join("bloodhound.yaml").exists());
    assert_eq!(run_in(&stack("init-none", &[]), &["init"]).code, Some(2));
}

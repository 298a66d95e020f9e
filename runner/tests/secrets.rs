//! Secrets reach the services and nothing else: every byte that a command prints or writes is searched for them.

use std::path::{Path, PathBuf};

use crate::common::*;

fn run(dir: &Path, args: &[&str]) -> Ran {
    finish(command_on(platform().as_deref(), dir, args).env("ENV_SECRET", SECRETS[1]), b"")
}

/// In a file, in the environment, in an `env_file`, in `environment`, in a configuration, and one of several lines.
const SECRETS: [&str; 7] = [
    "f1le\"s3cret<&>",
    "env/s3cret+42",
    "envfile-s3cret",
    "plain-s3cret'x",
    "c0nfig-s3cret",
    "line-0ne-of-key",
    "line-tw0-of-key",
];

const COMPOSE: &str = r#"
services:
  leaky:
    command: [python3, /app/leak.py]
    volumes: ["./app:/app:ro"]
    env_file: leaky.env
    environment: {DB_PASSWORD: "plain-s3cret'x", SHOWN: visible-value}
    secrets:
      - from_file
      - {source: from_env, target: other, uid: "7", gid: "8", mode: 0400}
      - key
    configs: [{source: settings, target: /etc/settings.conf}]
    x-bloodhound: {rootfs: host}
secrets:
  from_file: {file: ./secret.txt}
  from_env: {environment: ENV_SECRET}
  key: {file: ./key.pem}
configs:
  settings: {content: "c0nfig-s3cret\n"}
"#;

/// Prints what it knows in every way, and fails.
const LEAK: &str = r#"
import base64, json, os, sys, urllib.parse
known = [open(p).read() for p in ("/run/secrets/from_file", "/run/secrets/other", "/run/secrets/key", "/etc/settings.conf")]
known += [os.environ["FROM_FILE"], os.environ["DB_PASSWORD"]]
for path in ("/run/secrets/from_file", "/run/secrets/other"):
    s = os.stat(path)
    print("[%s %o %d %d %d]" % (path, s.st_mode, s.st_uid, s.st_gid, s.st_size), flush=True)
try:
    open("/run/secrets/from_file", "w")
except OSError as e:
    print("[write: %s]" % e.strerror, flush=True)
for text in known:
    print("plain", text, flush=True)
    print("json", json.dumps({"text": text}), file=sys.stderr, flush=True)
    print("url", urllib.parse.quote(text.strip(), safe=""), flush=True)
    print("base64", base64.b64encode(text.strip().encode()).decode(), flush=True)
print("[shown %s]" % os.environ["SHOWN"], flush=True)
import time
time.sleep(3)
sys.exit(3)
"#;

const CONFIG: &str = "compose: compose.yaml\nsimulation: {seeds: 2, boots: 1}\nproperties:\n  \
    - {name: fine, kind: safety, check: {type: no-crash}}\nfaults: {duration: 10s}\noutput: {redact: ['DB_*']}\n";

fn files() -> [(&'static str, &'static str); 6] {
    [
        ("compose.yaml", COMPOSE),
        ("bloodhound.yaml", CONFIG),
        ("app/leak.py", LEAK),
        ("leaky.env", "FROM_FILE=envfile-s3cret\n"),
        ("secret.txt", "f1le\"s3cret<&>\n"),
        ("key.pem", "line-0ne-of-key\nline-tw0-of-key\n"),
    ]
}

/// The ways in which a secret may be written.
fn forms(secret: &str) -> Vec<String> {
    let percent = |b: u8| match b {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(b).to_string(),
        _ => format!("%{b:02X}"),
    };
    vec![
        secret.to_owned(),
        secret.replace('"', "\\\""),
        secret.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;"),
        secret.bytes().map(percent).collect(),
    ]
}

fn has_none(what: &str, bytes: &[u8]) {
    for secret in SECRETS {
        for form in forms(secret) {
            let found = bytes.windows(form.len()).any(|window| window == form.as_bytes());
            assert!(!found, "{what} has {form}: {}", String::from_utf8_lossy(bytes));
        }
    }
}

/// Every file below a directory.
fn all_files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("a directory").map(|e| e.expect("an entry").path()) {
        if entry.is_dir() { all_files(&entry, out) } else { out.push(entry) }
    }
}

#[test]
fn no_secret_gets_out() {
    if !have(&["python3"], "secrets of services") {
        return;
    }
    let dir = stack("secrets", &files());
    let mut said = Vec::new();
    for args in [
        &["run", "--events", "events.jsonl"][..],
        &["run", "--format", "json"],
        &["run", "--strace"],
        &["test", "--junit", "junit.xml"],
        &["test", "--format", "json", "--bundle"],
    ] {
        let ran = run(&dir, args);
        // It ends with status 3, which is a violation.
        assert_eq!(ran.code, Some(1), "{args:?} {ran:#?}");
        has_none(&format!("the output of {args:?}"), ran.stdout.as_bytes());
        has_none(&format!("what {args:?} says"), ran.stderr.as_bytes());
        said.push(ran);
    }
    let first = &said[0].stdout;
    for line in [
        "[/run/secrets/from_file 100444 0 0 15]",
        "[/run/secrets/other 100400 7 8 13]",
        "[write: Read-only file system]",
        "[shown visible-value]",
        "plain [redacted]",
    ] {
        assert!(first.contains(line), "{line} is missing: {first}");
    }
    let mut written = Vec::new();
    all_files(&dir, &mut written);
    let inputs = ["compose.yaml", "leaky.env", "secret.txt", "key.pem"];
    let outputs = written.iter().filter(|path| !inputs.iter().any(|name| path.ends_with(name)));
    let mut count = 0;
    for path in outputs {
        has_none(&path.display().to_string(), &std::fs::read(path).expect("readable"));
        count += 1;
    }
    assert!(count >= 7, "only {count} files were written");
    replays(&dir);
}

/// A finding is reproduced with the same secrets and refused with others.
fn replays(dir: &Path) {
    let findings = std::fs::read_dir(dir.join("output/findings")).expect("findings");
    let mut findings: Vec<PathBuf> = findings.map(|e| e.expect("an entry").path()).collect();
    findings.sort();
    // A bundle has no file that holds a secret, and says which ones it wants.
    let finding = findings.first().expect("a finding");
    let bundle = finding.join("bundle");
    let finding = finding.display().to_string();
    let ran = run(dir, &["replay", &finding]);
    assert_eq!(ran.code, Some(5), "{ran:#?}");
    assert!(ran.stderr.contains("project/leaky.env"), "{ran:#?}");
    std::fs::remove_dir_all(bundle).expect("removed");
    let ran = run(dir, &["replay", &finding]);
    assert_eq!(ran.code, Some(1), "{ran:#?}");
    has_none("a replay", ran.stdout.as_bytes());
    std::fs::write(dir.join("secret.txt"), "f1le\"s3cret<&!\n").expect("written");
    let ran = run(dir, &["replay", &finding]);
    assert_eq!(ran.code, Some(2), "{ran:#?}");
    assert!(ran.stderr.contains("the secret from_file"), "{ran:#?}");
    std::fs::write(dir.join("secret.txt"), "f1le\"s3cret<&>\n").expect("written");
}

#[test]
fn mistakes_in_files_with_variables_do_not_show_values() {
    let mut files = files().to_vec();
    files[3] = ("leaky.env", "FROM_FILE=envfile-s3cret\nPASS='envfile-s3cret\n");
    let dir = stack("secrets-mistake", &files);
    let ran = run(&dir, &["validate"]);
    assert_eq!(ran.code, Some(2), "{ran:#?}");
    assert!(ran.stderr.contains("leaky.env:2"), "{ran:#?}");
    has_none("a diagnostic", ran.stderr.as_bytes());
}

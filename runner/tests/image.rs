//! `bloodhound image`: the cache as users manage it, processes that fetch the same image, one that is killed while it does, and
//! programs that are asked for credentials.

#[path = "../../images/tests/common/mod.rs"]
mod common;
#[path = "../../images/tests/common/server.rs"]
mod server;

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::common::put_script;
use bloodhound_images::Digest;
use common::{Blobs, Scratch, Tar, docker_archive, gzip};
use server::{Reply, Server};

/// The command, with a cache and a home directory of the test's own.
fn bloodhound(scratch: &Scratch, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bloodhound"));
    for variable in
        ["DOCKER_CONFIG", "REGISTRY_AUTH_FILE", "XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "DOCKER_HOST"]
    {
        command.env_remove(variable);
    }
    command.env("HOME", scratch.path("home")).env("BLOODHOUND_CACHE", scratch.path("cache"));
    command.arg("image").args(args);
    command
}

fn text(output: &Output) -> String {
    let [out, err] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    format!("{out}{err}")
}

/// Runs it with this exit code, and returns what it wrote.
fn ran(command: &mut Command, code: i32) -> String {
    let output = command.output().expect("bloodhound");
    assert_eq!(output.status.code(), Some(code), "{command:?}\n{}", text(&output));
    text(&output)
}

fn layers() -> Vec<Vec<u8>> {
    let mut state = 7_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    let noise: Vec<u8> = (0..600_000).map(|_| next()).collect();
    vec![Tar::default().file("small", b"small").end(), Tar::default().file("large", &noise).end()]
}

fn app() -> Blobs {
    Blobs::new(&layers(), gzip)
}

#[test]
fn images_are_loaded_listed_and_removed() {
    let scratch = Scratch::new("cli");
    let archive = scratch.write("app.tar", &docker_archive(&["app:1", "team/app:2"], &layers()));
    let path = archive.to_str().expect("a path");
    assert_eq!(ran(&mut bloodhound(&scratch, &["ls"]), 0).lines().count(), 1);
    let loaded = ran(&mut bloodhound(&scratch, &["load", path]), 0);
    assert!(loaded.contains("app:1 sha256:") && loaded.contains("team/app:2 sha256:"), "{loaded}");
    let mut stdin = bloodhound(&scratch, &["load", "-"]);
    ran(stdin.stdin(std::fs::File::open(&archive).expect("the archive")), 0);
    let listed = ran(&mut bloodhound(&scratch, &["ls", "--format", "json"]), 0);
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    let names: Vec<&str> = listed["images"]
        .as_array()
        .expect("images")
        .iter()
        .map(|i| i["reference"].as_str().expect("a name"))
        .collect();
    let file = format!("file:{}", archive.canonicalize().expect("a path").display());
    assert_eq!(names, ["docker.io/library/app:1", "docker.io/team/app:2", &file]);
    let id = listed["images"][0]["id"].as_str().expect("an id")[7..19].to_owned();
    assert!(ran(&mut bloodhound(&scratch, &["rm", "app:1"]), 0).contains("removed: 1 names, 0 layers"));
    assert!(ran(&mut bloodhound(&scratch, &["rm", "app:1"]), 2).contains("there is no image app:1"));
    assert!(ran(&mut bloodhound(&scratch, &["verify"]), 0).contains("nothing is wrong"));
    assert!(ran(&mut bloodhound(&scratch, &["rm", &id]), 0).contains("removed: 2 names, 2 layers"));
    assert!(ran(&mut bloodhound(&scratch, &["pull", "--offline", "app:1"]), 5).contains("--offline"));
    assert!(ran(&mut bloodhound(&scratch, &["pull", "App"]), 2).contains("is no name of an image"));
}

#[test]
fn damage_of_the_cache_is_told() {
    let scratch = Scratch::new("damage");
    let archive = scratch.write("app.tar", &docker_archive(&["app:1"], &layers()));
    ran(&mut bloodhound(&scratch, &["load", archive.to_str().expect("a path")]), 0);
    let layer = scratch.path(&format!("cache/layers/{}/archive", Digest::of(&layers()[0]).hex()));
    let mut bytes = std::fs::read(&layer).expect("a layer");
    bytes[520] ^= 1;
    std::fs::write(&layer, bytes).expect("damaged");
    let told = ran(&mut bloodhound(&scratch, &["verify"]), 5);
    assert!(told.contains("has digest") && told.contains(&Digest::of(&layers()[0]).hex()), "{told}");
}

#[test]
fn a_killed_pull_loses_only_the_blob_under_way() {
    let large = app().layers[1].clone();
    let name = Digest::of(&large).to_string();
    // The first who asks for the large layer gets half of it and then nothing; the small one comes whole.
    let server = Server::registry(app(), move |asked| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", large.len());
        let first = asked.path.ends_with(&name) && asked.header("range").is_none();
        first.then(|| Reply::Stall([head.as_bytes(), &large[..300_000]].concat()))
    });
    let scratch = Scratch::new("killed");
    let reference = format!("{}/app:1", server.host());
    let args = ["pull", "--insecure-registry", &server.host(), &reference];
    let mut child = bloodhound(&scratch, &args).spawn().expect("bloodhound");
    let partial = scratch.path(&format!("cache/partial/{}", Digest::of(&app().layers[1]).hex()));
    let small = scratch.path(&format!("cache/layers/{}/index", Digest::of(&layers()[0]).hex()));
    let begin = Instant::now();
    while std::fs::metadata(&partial).map_or(0, |meta| meta.len()) < 300_000 || !small.exists() {
        assert!(begin.elapsed() < Duration::from_secs(60), "the download does not come so far");
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().expect("killed");
    child.wait().expect("ended");
    assert!(ran(&mut bloodhound(&scratch, &["verify"]), 0).contains("nothing is wrong"));
    let before = server.asked().len();
    ran(&mut bloodhound(&scratch, &args), 0);
    let asked = server.asked();
    let blobs: Vec<_> = asked[before..].iter().filter(|asked| asked.path.contains("/blobs/")).collect();
    let range = blobs.iter().find_map(|asked| asked.header("range"));
    assert_eq!(range, Some("bytes=300000-"));
    assert!(!blobs.iter().any(|asked| asked.path.ends_with(&Digest::of(&app().layers[0]).to_string())));
    assert!(ran(&mut bloodhound(&scratch, &["verify"]), 0).contains("nothing is wrong"));
    assert!(!partial.exists());
}

#[test]
fn processes_that_pull_at_once_download_once() {
    let server = Server::registry(app(), |asked| {
        if asked.path.contains("/blobs/") {
            std::thread::sleep(Duration::from_millis(200));
        }
        None
    });
    let scratch = Scratch::new("processes");
    let reference = format!("{}/app:1", server.host());
    let args = ["pull", "--insecure-registry", &server.host(), &reference];
    let children: Vec<_> = (0..3).map(|_| bloodhound(&scratch, &args).spawn().expect("bloodhound")).collect();
    for mut child in children {
        assert!(child.wait().expect("ended").success());
    }
    for layer in app().layers {
        assert_eq!(server.count(&Digest::of(&layer).to_string()), 1);
    }
}

#[test]
fn programs_are_asked_for_credentials() {
    // "me:secret"
    let server = Server::registry(app(), |asked| {
        let known = asked.header("authorization") == Some("Basic bWU6c2VjcmV0");
        (!known).then(|| Reply::with(401, "WWW-Authenticate", "Basic realm=\"test\""))
    });
    let scratch = Scratch::new("helper");
    let reference = format!("{}/app:1", server.host());
    let args = ["pull", "--insecure-registry", &server.host(), &reference];
    let helper = |script: &str| {
        std::fs::create_dir_all(scratch.path("bin")).expect("a directory");
        put_script(&scratch.path("bin/docker-credential-test"), &format!("#!/bin/sh\n{script}\n"));
    };
    let pull = |key: &str, code: i32| {
        scratch.write("home/.docker/config.json", key.as_bytes());
        let path = format!("{}:/usr/bin:/bin", scratch.path("bin").display());
        ran(bloodhound(&scratch, &args).env("PATH", path), code)
    };
    let own = format!(r#"{{"credHelpers": {{"{}": "test"}}}}"#, server.host());
    assert!(pull(&own, 5).contains("docker-credential-test"), "it is not there");
    helper("echo 'credentials not found in native keychain'; exit 1");
    assert!(pull(&own, 5).contains("without credentials"));
    helper("exit 7");
    assert!(pull(&own, 5).contains("fails: exit status: 7"));
    let answer = r#"{"ServerURL":"x","Username":"me","Secret":"secret"}"#;
    helper(&format!(
        "read server; [ \"$1\" = get ] && [ \"$server\" = '{}' ] && echo '{answer}'",
        server.host()
    ));
    assert!(!pull(&own, 0).contains("secret"));
    // The store of everything.
    ran(&mut bloodhound(&scratch, &["prune", "--all"]), 0);
    pull(&format!(r#"{{"auths": {{"{}": {{}}}}, "credsStore": "test"}}"#, server.host()), 0);
}

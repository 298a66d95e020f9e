//! `build:` by the builders of Debian, podman and buildah, in a storage of the test's own; made once as long as nothing changes.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // the host side

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};

use bloodhound_images::{
    BuildSpec, EngineChoice, Event, Image, ImageSource, Options, Progress, PullPolicy, Resolver, Store,
};
use common::{Scratch, have, left_out, listing};

/// Where the inner test works.
const DIRECTORY: &str = "BLOODHOUND_TEST_BUILD";

const DOCKERFILE: &str = r#"FROM scratch AS base
ARG GREETING=hello
COPY busybox /bin/busybox
COPY data /data
RUN ["/bin/busybox", "sh", "-c", "/bin/busybox echo $GREETING > /greeting"]
FROM base AS last
RUN ["/bin/busybox", "ln", "/greeting", "/other"]
USER 7
CMD ["/bin/busybox", "cat", "/greeting"]
"#;

/// Runs the inner test in a process with this environment: what it changes is nobody else's.
fn inner(what: &str, program: &str) {
    if !have(&[program, "busybox"], what) {
        return;
    }
    let scratch = Scratch::new(program);
    let path = |name: &str| scratch.path(name).display().to_string();
    let storage = format!(
        "[storage]\ndriver = \"vfs\"\ngraphroot = \"{}\"\nrunroot = \"{}\"\n",
        path("graph"),
        path("run")
    );
    scratch.write("storage.conf", storage.as_bytes());
    std::fs::create_dir_all(scratch.path("bin")).expect("a directory");
    std::os::unix::fs::symlink(Path::new("/usr/bin").join(program), scratch.path(&format!("bin/{program}")))
        .expect("a link");
    scratch.write("context/Dockerfile", DOCKERFILE.as_bytes());
    scratch.write("context/data/file", b"1");
    scratch.write("context/data/x.log", b"1");
    scratch.write("context/.dockerignore", b"**/*.log\n");
    let busybox = ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).is_file());
    std::fs::copy(busybox.expect("busybox"), scratch.path("context/busybox")).expect("copied");
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["--exact", "builds_here", "--ignored", "--nocapture"]).env(DIRECTORY, scratch.path(""));
    // Only this builder is in the PATH. Its helpers are elsewhere.
    command.env("PATH", scratch.path("bin")).env("CONTAINERS_STORAGE_CONF", scratch.path("storage.conf"));
    // Namespaces and mounts are not allowed on every machine.
    command.env("BUILDAH_ISOLATION", "chroot").env_remove("DOCKER_HOST").env_remove("XDG_RUNTIME_DIR");
    let output = command.output().expect("this test");
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if text.contains("CANNOT BUILD HERE") {
        return left_out(what, &format!("{program} cannot build here"), false);
    }
    assert!(output.status.success(), "{program}: {text}");
}

#[test]
fn podman_builds_what_has_changed() {
    inner("podman_builds_what_has_changed", "podman");
}

#[test]
fn buildah_builds_what_has_changed() {
    inner("buildah_builds_what_has_changed", "buildah");
}

/// How often something was built.
#[derive(Default)]
struct Builds(Mutex<Vec<String>>);

impl Progress for Builds {
    fn event(&self, event: Event) {
        if let Event::Note(text) = event {
            self.0.lock().expect("not poisoned").push(text);
        }
    }
}

#[test]
#[ignore = "run by the others, each in a process of its own"]
fn builds_here() {
    let directory = std::env::var(DIRECTORY).expect("run by the others");
    let directory = Path::new(&directory);
    let builds = Arc::new(Builds::default());
    let options = Options { engine: EngineChoice::Off, progress: builds.clone(), ..Options::default() };
    let resolver = Resolver::new(Store::open(directory.join("cache")).expect("a cache"), options);
    let count = || {
        builds.0.lock().expect("not poisoned").iter().filter(|text| text.contains("web: built by")).count()
    };
    let built = |spec: &BuildSpec| -> Result<Arc<Image>, bloodhound_images::Error> {
        let source = resolver.build("web", spec)?;
        assert!(matches!(source, ImageSource::Reference(_)));
        resolver.resolve(&source, PullPolicy::Never)
    };
    let mut spec = BuildSpec::new(directory.join("context"));
    spec.args = vec![("GREETING".to_owned(), "hi".to_owned())];
    let image = match built(&spec) {
        Ok(image) => image,
        Err(e) if e.to_string().contains("not permitted") => return println!("CANNOT BUILD HERE: {e}"),
        Err(e) => panic!("{e}"),
    };
    let lines = listing(&image);
    for line in
        ["/data/file 644 0:0 file \"1\"", "/greeting 644 0:0 file \"hi\\n\"", "/other 644 0:0 file \"hi\\n\""]
    {
        assert!(lines.iter().any(|other| other == line), "{line}: {lines:?}");
    }
    assert!(!lines.iter().any(|line| line.contains("x.log")));
    assert_eq!(image.config.user.as_deref(), Some("7"));
    assert_eq!((built(&spec).expect("built").digest, count()), (image.digest, 1));
    // A file that the build does not see.
    std::fs::write(directory.join("context/data/x.log"), "2").expect("a file");
    built(&spec).expect("built");
    assert_eq!(count(), 1);
    std::fs::write(directory.join("context/data/file"), "2").expect("a file");
    assert!(listing(&built(&spec).expect("built")).contains(&"/data/file 644 0:0 file \"2\"".to_owned()));
    assert_eq!(count(), 2);
    let base = BuildSpec { target: Some("base".to_owned()), ..spec.clone() };
    assert!(!listing(&built(&base).expect("built")).iter().any(|line| line.starts_with("/other")));
    let inline = "FROM scratch\nCOPY data /inline\n".to_owned();
    let inline = BuildSpec { dockerfile_inline: Some(inline), args: Vec::new(), ..spec.clone() };
    assert_eq!(
        listing(&built(&inline).expect("built"))[1..],
        ["/inline 755 0:0 dir", "/inline/file 644 0:0 file \"2\""]
    );
    assert_eq!(count(), 4);
    let wrong =
        BuildSpec { dockerfile_inline: Some("FROM scratch\nCOPY nothing /\n".to_owned()), ..spec.clone() };
    let error = built(&wrong).expect_err("nothing to copy").to_string();
    assert!(error.contains("web") && error.contains("failed") && error.contains("nothing"), "{error}");
    let none = built(&BuildSpec::new(directory.join("none"))).expect_err("no context").to_string();
    assert!(none.contains("none"), "{none}");
    // Where nothing builds, what was built before is there all the same.
    let builder = std::fs::read_dir(directory.join("bin"))
        .expect("a directory")
        .next()
        .expect("a builder")
        .expect("an entry");
    std::fs::remove_file(builder.path()).expect("removed");
    built(&spec).expect("built before");
    std::fs::set_permissions(directory.join("context/data/file"), std::fs::Permissions::from_mode(0o600))
        .expect("changed");
    let error = built(&spec).expect_err("nobody builds").to_string();
    assert!(error.contains("docker compose build") && error.contains("bloodhound image load -"), "{error}");
    assert_eq!(resolver.store.verify(), Ok(Vec::new()));
}

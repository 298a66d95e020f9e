//! Pulling from registries: Debian's docker-registry with passwords, tokens and TLS, and servers made here for what a real one does not do.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // the host side

mod common;
#[path = "common/server.rs"]
mod server;

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bloodhound_images::{
    Digest, EngineChoice, ErrorKind, ImageSource, Options, PullPolicy, Resolver, Settings, Timeouts,
};
use common::{Blobs, Scratch, Tar, docker_archive, gzip, have, left_out, listing, run};
use serde_json::json;
use server::{Asked, Reply, Server};

/// Times that a test can wait for.
fn short() -> Timeouts {
    Timeouts {
        connect: Duration::from_secs(10),
        idle: Duration::from_secs(10),
        document: Duration::from_secs(10),
        backoff: Duration::from_millis(5),
        ..Timeouts::default()
    }
}

fn resolver(scratch: &Scratch, cache: &str, settings: Settings) -> Resolver {
    let store = bloodhound_images::Store::open(scratch.path(cache)).expect("a cache");
    let registries = Settings { timeouts: short(), ..settings };
    Resolver::new(store, Options { registries, engine: EngineChoice::Off, ..Options::default() })
}

fn insecure(host: &str) -> Settings {
    Settings { insecure: vec![host.to_owned()], ..Settings::default() }
}

fn layers() -> Vec<Vec<u8>> {
    let mut state = 1_u64;
    let mut next = || {
        // xorshift: bytes that do not compress.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    let noise: Vec<u8> = (0..400_000).map(|_| next()).collect();
    vec![Tar::default().file("bin/app", &noise).end(), Tar::default().file("etc/conf", b"conf").end()]
}

fn app() -> Blobs {
    Blobs::new(&layers(), gzip)
}

/// Debian's docker-registry, ended with the test.
struct Registry {
    child: Child,
    host: String,
}

impl Registry {
    /// Starts it with these further lines of its configuration; `http` stands below `http:`.
    fn start(scratch: &Scratch, http: &str, more: &str) -> Registry {
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("an address").port();
        let data = scratch.path("registry");
        let config = format!(
            "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: 127.0.0.1:{port}\n{http}{more}",
            data.display()
        );
        let path = scratch.write("registry.yml", config.as_bytes());
        let log = std::fs::File::create(scratch.path("registry.log")).expect("a log");
        let child = Command::new("docker-registry")
            .args(["serve".as_ref(), path.as_os_str()])
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn()
            .expect("docker-registry");
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(begin.elapsed() < Duration::from_secs(60), "docker-registry does not listen: {config}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Registry { child, host: format!("localhost:{port}") }
    }

    /// Pushes an archive with skopeo.
    fn push(&self, archive: &Path, name: &str, options: &[&str]) {
        let from = format!("docker-archive:{}", archive.display());
        let to = format!("docker://{}/{name}", self.host);
        let mut skopeo = Command::new("skopeo");
        run(skopeo.args(["--insecure-policy", "copy", "--quiet"]).args(options).args([from, to]));
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // Nothing else is to be done if it has ended by itself.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// A file in the form of Docker's config.json with one entry.
fn credentials(scratch: &Scratch, host: &str, pair: &str) -> PathBuf {
    // The test has base 64 from the program, not from what it tests.
    let mut base64 = Command::new("base64");
    let mut child = base64.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("base64");
    std::io::Write::write_all(&mut child.stdin.take().expect("piped"), pair.as_bytes()).expect("written");
    let text = String::from_utf8(child.wait_with_output().expect("base64").stdout).expect("text");
    let config = json!({"auths": {host: {"auth": text.trim()}}});
    scratch.write(&format!("config-{}.json", pair.len()), config.to_string().as_bytes())
}

#[test]
fn a_registry_with_passwords() {
    if !have(&["docker-registry", "skopeo", "htpasswd", "base64"], "a_registry_with_passwords") {
        return;
    }
    let scratch = Scratch::new("passwords");
    let passwords = run(Command::new("htpasswd").args(["-Bbn", "me", "secret"])).stdout;
    let passwords = scratch.write("htpasswd", &passwords);
    let auth = format!("auth:\n  htpasswd:\n    realm: test\n    path: {}\n", passwords.display());
    let registry = Registry::start(&scratch, "", &auth);
    let archive = scratch.write("app.tar", &docker_archive(&["app:1"], &layers()));
    let push = ["--dest-tls-verify=false", "--dest-creds", "me:secret"];
    registry.push(&archive, "team/app:1", &push);
    registry.push(
        &archive,
        "team/app:oci",
        &[&push[..], &["--format", "oci", "--dest-compress-format", "zstd"]].concat(),
    );
    let name = format!("{}/team/app:1", registry.host);
    let source = ImageSource::Reference(name.clone());
    let with = |config: Option<PathBuf>| {
        let settings = Settings { config, ..insecure(&registry.host) };
        resolver(&scratch, "cache", settings).resolve(&source, PullPolicy::Missing)
    };
    let denied = with(None).expect_err("no password");
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    assert!(denied.to_string().contains("without credentials"), "{denied}");
    let denied = with(Some(credentials(&scratch, &registry.host, "me:wrong"))).expect_err("a wrong password");
    assert!(denied.kind() == ErrorKind::Denied && !denied.to_string().contains("wrong"), "{denied}");
    let good = credentials(&scratch, &registry.host, "me:secret");
    let image = with(Some(good.clone())).unwrap_or_else(|e| panic!("{e}"));
    let file = resolver(&scratch, "other", Settings::default());
    let same = file.resolve(&ImageSource::Archive(archive), PullPolicy::Missing).expect("the archive");
    assert_eq!((listing(&image), image.config_digest), (listing(&same), same.config_digest));
    // From now on nobody is asked.
    let offline = Resolver {
        store: scratch.store(),
        options: Options { offline: true, engine: EngineChoice::Off, ..Options::default() },
    };
    assert_eq!(offline.resolve(&source, PullPolicy::Always).expect("cached").digest, image.digest);
    let digest = ImageSource::Reference(format!("{}/team/app@{}", registry.host, image.digest));
    let settings = Settings { config: Some(good.clone()), ..insecure(&registry.host) };
    let by_digest = resolver(&scratch, "third", settings.clone()).resolve(&digest, PullPolicy::Missing);
    assert_eq!(by_digest.expect("by digest").digest, image.digest);
    let oci = ImageSource::Reference(format!("{}/team/app:oci", registry.host));
    let oci = resolver(&scratch, "fourth", settings).resolve(&oci, PullPolicy::Missing).expect("OCI");
    assert_eq!(listing(&oci), listing(&same));
    // Without being named as insecure, it must speak TLS.
    let refused = resolver(&scratch, "fifth", Settings { config: Some(good), ..Settings::default() });
    let refused = refused.resolve(&source, PullPolicy::Missing).expect_err("plain HTTP");
    assert!(refused.to_string().contains("--insecure-registry"), "{refused}");
    assert_eq!(scratch.store().verify(), Ok(Vec::new()));
}

#[test]
fn a_registry_with_tls_of_an_own_authority() {
    if !have(&["docker-registry", "skopeo", "openssl"], "a_registry_with_tls_of_an_own_authority") {
        return;
    }
    let scratch = Scratch::new("tls");
    let script = "openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=test-ca -keyout ca.key -out ca.crt
        openssl req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout own.key -out own.csr
        printf 'subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n' > ext
        openssl x509 -req -in own.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 30 -extfile ext -out own.crt
        mkdir push && cp ca.crt push/";
    std::fs::create_dir_all(scratch.path("x")).expect("a directory");
    run(Command::new("sh").args(["-ec", script]).current_dir(scratch.path("")));
    let tls = format!(
        "  tls:\n    certificate: {}\n    key: {}\n",
        scratch.path("own.crt").display(),
        scratch.path("own.key").display()
    );
    let registry = Registry::start(&scratch, &tls, "");
    let archive = scratch.write("app.tar", &docker_archive(&["app:1"], &layers()));
    let certificates = scratch.path("push").display().to_string();
    registry.push(&archive, "app:1", &["--dest-cert-dir", &certificates]);
    let source = ImageSource::Reference(format!("{}/app:1", registry.host));
    let with =
        |cache: &str, settings| resolver(&scratch, cache, settings).resolve(&source, PullPolicy::Missing);
    let unknown = with("a", Settings::default()).expect_err("an unknown authority").to_string();
    assert!(unknown.contains("no TLS connection") && unknown.contains("--registry-ca"), "{unknown}");
    let ca = Settings { ca: vec![scratch.path("ca.crt")], ..Settings::default() };
    with("b", ca).unwrap_or_else(|e| panic!("{e}"));
    with("c", insecure(&registry.host)).unwrap_or_else(|e| panic!("{e}"));
    let none = Settings { ca: vec![scratch.path("own.key")], ..Settings::default() };
    assert!(with("d", none).expect_err("no certificate").to_string().contains("no certificate in it"));
}

/// A token for a repository, signed as docker-registry wants it.
fn token(scratch: &Scratch, repository: &str) -> String {
    let url = |bytes: &[u8]| {
        let path = scratch.write("part", bytes);
        let text = run(Command::new("base64").arg("-w0").arg(path)).stdout;
        String::from_utf8(text).expect("text").trim().replace('+', "-").replace('/', "_").replace('=', "")
    };
    let der =
        run(Command::new("openssl").args(["x509", "-outform", "der", "-in"]).arg(scratch.path("token.crt")))
            .stdout;
    let der = scratch.write("der", &der);
    let certificate =
        String::from_utf8(run(Command::new("base64").arg("-w0").arg(der)).stdout).expect("text");
    let now =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs();
    let head = json!({"typ": "JWT", "alg": "RS256", "x5c": [certificate.trim()]}).to_string();
    let claims = json!({
        "iss": "issuer", "sub": "me", "aud": "service", "exp": now + 600, "nbf": now - 60, "iat": now - 60, "jti": "1",
        "access": [{"type": "repository", "name": repository, "actions": ["pull", "push"]}],
    });
    let text = format!("{}.{}", url(head.as_bytes()), url(claims.to_string().as_bytes()));
    let signed = scratch.write("signed", text.as_bytes());
    let mut openssl = Command::new("openssl");
    openssl.args(["dgst", "-sha256", "-sign"]).arg(scratch.path("token.key")).arg(signed);
    format!("{text}.{}", url(&run(&mut openssl).stdout))
}

#[test]
fn a_registry_with_tokens() {
    if !have(&["docker-registry", "skopeo", "openssl", "base64"], "a_registry_with_tokens") {
        return;
    }
    let scratch = Arc::new(Scratch::new("tokens"));
    std::fs::create_dir_all(scratch.path("x")).expect("a directory");
    let script = "openssl req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=issuer -keyout token.key -out token.crt";
    run(Command::new("sh").args(["-ec", script]).current_dir(scratch.path("")));
    // Two requests at once would write the same files.
    let (at, one) = (scratch.clone(), std::sync::Mutex::new(()));
    let tokens = Server::new(move |asked| {
        let _one = one.lock();
        // "me:secret"
        if asked.header("authorization") != Some("Basic bWU6c2VjcmV0") {
            return Reply::status(401);
        }
        let path = asked.path.replace("%3A", ":").replace("%2F", "/");
        let good = path.contains("service=service") && path.contains("scope=repository:team/app:");
        let repository = if good { "team/app" } else { "other" };
        Reply::body(json!({"token": token(&at, repository), "expires_in": 600}).to_string().as_bytes())
    });
    let auth = format!(
        "auth:\n  token:\n    realm: http://{}/token\n    service: service\n    issuer: issuer\n    rootcertbundle: {}\n",
        tokens.host(),
        scratch.path("token.crt").display()
    );
    let registry = Registry::start(&scratch, "", &auth);
    let archive = scratch.write("app.tar", &docker_archive(&["app:1"], &layers()));
    registry.push(&archive, "team/app:1", &["--dest-tls-verify=false", "--dest-creds", "me:secret"]);
    let pull = |config: Option<PathBuf>| {
        let source = ImageSource::Reference(format!("{}/team/app:1", registry.host));
        let settings = Settings { config, ..insecure(&registry.host) };
        resolver(&scratch, "cache", settings).resolve(&source, PullPolicy::Missing)
    };
    let denied = pull(None).expect_err("no password");
    assert_eq!(denied.kind(), ErrorKind::Denied, "{denied}");
    let before = tokens.asked().len();
    pull(Some(credentials(&scratch, &registry.host, "me:secret"))).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(tokens.asked().len() - before, 1, "one token is enough for all blobs");
}

/// An image that a server made here has.
fn from(server: &Server, scratch: &Scratch, cache: &str) -> Result<Vec<String>, bloodhound_images::Error> {
    let source = ImageSource::Reference(format!("{}/team/app:1", server.host()));
    let image = resolver(scratch, cache, insecure(&server.host())).resolve(&source, PullPolicy::Missing)?;
    Ok(listing(&image))
}

#[test]
fn an_interrupted_download_goes_on_where_it_was() {
    let blobs = app();
    let large = blobs.layers[0].clone();
    let name = Digest::of(&large).to_string();
    let server = Server::registry(app(), move |asked| {
        let first = asked.path.ends_with(&name) && asked.header("range").is_none();
        first.then(|| Reply::Broken(large.clone(), 300_000))
    });
    let scratch = Scratch::new("interrupted");
    from(&server, &scratch, "cache").unwrap_or_else(|e| panic!("{e}"));
    let name = Digest::of(&blobs.layers[0]).to_string();
    let ranges: Vec<Option<String>> = server
        .asked()
        .iter()
        .filter(|a| a.path.ends_with(&name))
        .map(|a| a.header("range").map(str::to_owned))
        .collect();
    assert_eq!(ranges, [None, Some("bytes=300000-".to_owned())]);
    assert_eq!(scratch.store().verify(), Ok(Vec::new()));
    // What another process has left is taken as well, unless it is wrong.
    for (cache, left) in [("left", blobs.layers[0][..100_000].to_vec()), ("wrong", vec![7; 100_000])] {
        let store = bloodhound_images::Store::open(scratch.path(cache)).expect("a cache");
        scratch.write(&format!("{cache}/partial/{}", Digest::of(&blobs.layers[0]).hex()), &left);
        let before = server.asked().len();
        from(&server, &scratch, cache).unwrap_or_else(|e| panic!("{e}"));
        let again = server.asked()[before..]
            .iter()
            .filter(|a| a.path.ends_with(&name))
            .cloned()
            .collect::<Vec<Asked>>();
        assert_eq!(again[0].header("range"), Some("bytes=100000-"));
        assert_eq!(again.len() > 1, cache == "wrong");
        assert_eq!(store.verify(), Ok(Vec::new()));
    }
}

#[test]
fn two_who_pull_at_once_download_once() {
    let server = Server::registry(app(), |asked| {
        // Slow enough that the second comes while the first is at it.
        if asked.path.contains("/blobs/") {
            std::thread::sleep(Duration::from_millis(100));
        }
        None
    });
    let scratch = Scratch::new("twice");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| from(&server, &scratch, "cache").unwrap_or_else(|e| panic!("{e}")));
        }
    });
    for layer in app().layers {
        assert_eq!(server.count(&Digest::of(&layer).to_string()), 1);
    }
    assert_eq!(scratch.store().verify(), Ok(Vec::new()));
}

#[test]
fn a_server_that_stumbles_is_asked_again() {
    let stumbles = |asked: &Asked| {
        (asked.number % 3 != 2).then(|| match asked.number % 3 {
            0 => Reply::with(429, "Retry-After", "0"),
            _ => Reply::status(503),
        })
    };
    let scratch = Scratch::new("stumbles");
    from(&Server::registry(app(), stumbles), &scratch, "cache").unwrap_or_else(|e| panic!("{e}"));
}

#[test]
fn redirects_see_no_credentials() {
    let blobs = app();
    let storage = Server::registry(app(), |_| None);
    let (port, layer) = (storage.port, Digest::of(&blobs.layers[0]).to_string());
    let server = Server::registry(app(), move |asked| {
        // "me:secret"
        if asked.header("authorization") != Some("Basic bWU6c2VjcmV0") {
            return Some(Reply::with(401, "WWW-Authenticate", "Basic realm=\"test\""));
        }
        let elsewhere = format!("http://127.0.0.1:{port}{}", asked.path);
        asked.path.ends_with(&layer).then(|| Reply::with(307, "Location", &elsewhere))
    });
    if !have(&["base64"], "redirects_see_no_credentials") {
        return;
    }
    let scratch = Scratch::new("redirects");
    let config = Some(credentials(&scratch, &server.host(), "me:secret"));
    let settings = Settings { config, ..insecure(&server.host()) };
    let source = ImageSource::Reference(format!("{}/team/app:1", server.host()));
    resolver(&scratch, "cache", settings)
        .resolve(&source, PullPolicy::Missing)
        .unwrap_or_else(|e| panic!("{e}"));
    let asked = storage.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].header("authorization"), None);
}

#[test]
fn mirrors_are_asked_first() {
    let mirror = Server::registry(app(), |_| None);
    let broken = Server::new(|_| Reply::status(404));
    let scratch = Scratch::new("mirrors");
    let insecure = vec![mirror.host(), broken.host()];
    let urls = [&broken, &mirror].map(|server| format!("http://{}", server.host())).to_vec();
    let mirrors = [("docker.io".to_owned(), urls)].into();
    let settings = Settings { mirrors, insecure, ..Settings::default() };
    let source = ImageSource::Reference("app:1".to_owned());
    let resolver = resolver(&scratch, "cache", settings);
    let image = resolver.resolve(&source, PullPolicy::Missing).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(image.reference, "docker.io/library/app:1");
    assert!(broken.count("/v2/library/app/manifests/1") > 0);
    assert!(mirror.count("/v2/library/app/blobs/") > 0);
}

#[test]
fn policies_decide_when_a_registry_is_asked() {
    let server = Server::registry(app(), |_| None);
    let scratch = Scratch::new("policies");
    let source = ImageSource::Reference(format!("{}/team/app:1", server.host()));
    let resolver = resolver(&scratch, "cache", insecure(&server.host()));
    let asked = |policy| {
        let before = server.count("/manifests/");
        resolver.resolve(&source, policy).map(|_| server.count("/manifests/") - before)
    };
    assert_eq!(asked(PullPolicy::Never).expect_err("not there").kind(), ErrorKind::NotFound);
    assert_eq!(asked(PullPolicy::Build).expect_err("not there").kind(), ErrorKind::NotFound);
    assert_eq!(asked(PullPolicy::Missing), Ok(1));
    assert_eq!(asked(PullPolicy::Missing), Ok(0));
    assert_eq!(asked(PullPolicy::Never), Ok(0));
    assert_eq!(asked(PullPolicy::Always), Ok(1));
    assert_eq!(asked(PullPolicy::Every(Duration::from_secs(86_400))), Ok(0));
    assert_eq!(asked(PullPolicy::Every(Duration::ZERO)), Ok(1));
}

#[test]
fn archives_of_real_tools() {
    let tools = ["skopeo", "umoci", "buildah", "podman"];
    if !have(&tools, "archives_of_real_tools") {
        return;
    }
    let scratch = Scratch::new("tools");
    let archive = scratch.write("app.tar", &docker_archive(&["localhost/app:1"], &layers()));
    let from = format!("docker-archive:{}", archive.display());
    let path = |name: &str| scratch.path(name).display().to_string();
    let copy = |to: String, options: &[&str]| {
        run(Command::new("skopeo")
            .args(["--insecure-policy", "copy", "--quiet"])
            .args(options)
            .args([&from, &to]));
    };
    copy(format!("docker-archive:{}:localhost/app:1", path("skopeo-docker.tar")), &[]);
    copy(format!("oci-archive:{}:app:1", path("skopeo-oci.tar")), &[]);
    copy(format!("oci:{}:1", path("layout")), &["--dest-compress-format", "zstd"]);
    run(Command::new("umoci").args([
        "config",
        "--image",
        &format!("{}:1", path("layout")),
        "--config.user",
        "7",
    ]));
    let mut archives = vec![path("skopeo-docker.tar"), path("skopeo-oci.tar"), path("layout")];
    // The storage of both is the test's own; chroot isolation needs no namespaces.
    let storage = ["--root".to_owned(), path("storage"), "--runroot".to_owned(), path("run")];
    let driver = ["--storage-driver", "vfs"];
    let build =
        scratch.write("build/Dockerfile", b"FROM scratch\nCOPY file /data/file\nUSER 5\nCMD [\"/x\"]\n");
    scratch.write("build/file", b"copied");
    let mut buildah = Command::new("buildah");
    buildah.args(&storage).args(driver).args(["build", "--isolation", "chroot", "-t", "built:1"]);
    let built = buildah.arg(build.parent().expect("a directory")).output().expect("buildah");
    if built.status.success() {
        let save = |format: &str, name: &str| {
            let mut podman = Command::new("podman");
            podman.args(&storage).args(driver).args([
                "save",
                "--quiet",
                "--format",
                format,
                "-o",
                &path(name),
                "built:1",
            ]);
            run(&mut podman);
        };
        save("docker-archive", "podman-docker.tar");
        save("oci-archive", "podman-oci.tar");
        archives.extend([path("podman-docker.tar"), path("podman-oci.tar")]);
    } else {
        left_out("archives_of_real_tools", "buildah cannot build here", false);
    }
    for archive in archives {
        let resolver = resolver(&scratch, "cache", Settings::default());
        let image = resolver.resolve(&ImageSource::Archive(archive.clone().into()), PullPolicy::Missing);
        let image = image.unwrap_or_else(|e| panic!("{e}"));
        if archive.contains("podman") {
            assert_eq!(listing(&image)[1..], ["/data 755 0:0 dir", "/data/file 644 0:0 file \"copied\""]);
            assert_eq!(
                (image.config.user.as_deref(), image.config.cmd.as_deref()),
                (Some("5"), Some(&["/x".to_owned()][..]))
            );
        } else {
            assert_eq!(listing(&image).len(), 5, "{archive}");
            assert_eq!(image.config.user.as_deref(), archive.ends_with("layout").then_some("7"));
        }
    }
    assert_eq!(scratch.store().verify(), Ok(Vec::new()));
}

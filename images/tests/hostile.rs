//! Damaged and hostile archives and answers of registries. Each must end in an error that says what is wrong, within bounds, and
//! leave the cache as right as it was.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // the host side

#[path = "hostile/answers.rs"]
mod answers;
#[path = "hostile/archives.rs"]
mod archives;
mod common;
#[path = "hostile/layers.rs"]
mod layers;
#[path = "common/server.rs"]
mod server;

use std::sync::Arc;
use std::time::{Duration, Instant};

use archives::layer;
use bloodhound_images::{
    EngineChoice, ErrorKind, ImageSource, Limits, Options, PullPolicy, Resolver, Settings, Store, Timeouts,
};
use common::{Blobs, Scratch, Tar, config, docker_archive, gzip, listing};
use layers::after;
use server::Server;

/// How long any case may take before it counts as stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// Limits that small archives reach.
fn limits() -> Limits {
    Limits {
        layer: 4 << 20,
        image: 6 << 20,
        entries: 2000,
        layers: 8,
        manifest: 64 << 10,
        names: 200_000,
        ..Limits::default()
    }
}

/// A cache with a good image, which must be as good after each case.
struct Cache {
    scratch: Scratch,
    store: Store,
    good: Vec<String>,
    /// What was not as it should be, told when all cases are through.
    wrong: std::cell::RefCell<Vec<String>>,
}

impl Drop for Cache {
    fn drop(&mut self) {
        let wrong = self.wrong.borrow();
        assert!(wrong.is_empty() || std::thread::panicking(), "{}", wrong.join("\n"));
    }
}

impl Cache {
    fn new(what: &str) -> Cache {
        let scratch = Scratch::new(what);
        let store = scratch.small_store(limits());
        let mut cache = Cache { scratch, store, good: Vec::new(), wrong: Default::default() };
        let layers = [Tar::default().file("good", b"good").end()];
        let archive = cache.scratch.write("good.tar", &docker_archive(&["good:1"], &layers));
        cache.resolver(Settings::default()).load(&archive).expect("a good image");
        cache.good = cache.listing();
        cache
    }

    fn resolver(&self, registries: Settings) -> Resolver {
        let options = Options { registries, engine: EngineChoice::Off, ..Options::default() };
        Resolver::new(self.store.clone(), options)
    }

    fn listing(&self) -> Vec<String> {
        let good = ImageSource::Reference("good:1".to_owned());
        let image = self.resolver(Settings::default()).resolve(&good, PullPolicy::Never);
        listing(&image.expect("the good image"))
    }

    /// A source must not resolve, with these words in the error, and must leave nothing.
    fn refuses(&self, case: &str, settings: Settings, source: &ImageSource, words: &str) {
        // What the case before has left is removed: a layer that is there would not be read.
        self.store.prune(&|record| record.reference != "docker.io/library/good:1").expect("pruned");
        let begin = Instant::now();
        let result = self.resolver(settings).resolve(source, PullPolicy::Missing);
        assert!(begin.elapsed() < PATIENCE, "{case} takes too long");
        match result {
            Ok(image) => self.wrong.borrow_mut().push(format!("{case} is accepted: {:?}", listing(&image))),
            Err(error) => {
                let error = error.to_string();
                if !error.contains(words) || error.len() > 2000 {
                    self.wrong.borrow_mut().push(format!("{case}: {words:?} is not in: {error}"));
                }
            }
        }
        self.is_right(case);
    }

    fn is_right(&self, case: &str) {
        assert_eq!(self.store.verify(), Ok(Vec::new()), "{case}");
        assert_eq!(self.listing(), self.good, "{case}");
        let left = std::fs::read_dir(self.store.dir().join("tmp")).expect("a directory").count();
        assert_eq!(left, 0, "{case} leaves temporary files");
    }
}

#[test]
fn layers_that_no_image_may_have() {
    let cache = Cache::new("layers");
    let cases = layers::cases();
    assert!(cases.len() > 70, "{}", cases.len());
    for (case, layer, words) in cases {
        // In an OCI archive the layer may be compressed, so the digest of its content is not known here where it is damaged.
        let mut plain = Vec::new();
        let inflated = if layer.starts_with(&[0x1f, 0x8b]) {
            let mut decoder = flate2::read::MultiGzDecoder::new(&layer[..]);
            std::io::Read::read_to_end(&mut decoder, &mut plain).is_ok()
        } else {
            false
        };
        let content = if inflated { plain } else { layer.clone() };
        let blobs = Blobs::of(config(&[content]), vec![layer]);
        let archive = cache.scratch.write("case.tar", &blobs.oci_archive("case:1"));
        cache.refuses(case, Settings::default(), &ImageSource::Archive(archive), words);
    }
}

#[test]
fn links_out_of_the_image_are_harmless() {
    let cache = Cache::new("harmless");
    let layer = after(|tar| {
        tar.symlink("up", "../../..")
            .file("up/etc/passwd", b"inside")
            .symlink("abs", "/dir")
            .file("abs/y", b"y")
            .file("/root", b"r")
    });
    let archive = cache.scratch.write("case.tar", &docker_archive(&["case:1"], &[layer]));
    let image =
        cache.resolver(Settings::default()).resolve(&ImageSource::Archive(archive), PullPolicy::Missing);
    let lines = listing(&image.expect("an image"));
    for line in [
        "/etc/passwd 644 0:0 file \"inside\"",
        "/dir/y 644 0:0 file \"y\"",
        "/root 644 0:0 file \"r\"",
        "/up 777 0:0 -> ../../..",
    ] {
        assert!(lines.iter().any(|other| other == line), "{line}: {lines:?}");
    }
    cache.is_right("harmless");
}

#[test]
fn archives_that_are_none() {
    let cache = Cache::new("archives");
    let cases = archives::cases();
    assert!(cases.len() > 50, "{}", cases.len());
    for (case, archive, words) in cases {
        let archive = cache.scratch.write("case.tar", &archive);
        cache.refuses(case, Settings::default(), &ImageSource::Archive(archive), words);
    }
    let missing = ImageSource::Archive(cache.scratch.path("none.tar"));
    cache.refuses("a file that is not there", Settings::default(), &missing, "there is no such file");
    std::fs::create_dir_all(cache.scratch.path("empty")).expect("a directory");
    let empty = ImageSource::OciLayout(cache.scratch.path("empty"));
    cache.refuses("a directory of nothing", Settings::default(), &empty, "no OCI layout");
    let device = ImageSource::Archive("/dev/zero".into());
    cache.refuses("a device", Settings::default(), &device, "neither a file nor a directory");
}

/// Whatever byte is damaged, either somebody notices or it means nothing.
#[test]
fn damage_anywhere_is_noticed_or_means_nothing() {
    let cache = Cache::new("damage");
    let good = Blobs::new(&[layer()], gzip).oci_archive("case:1");
    let path = cache.scratch.write("case.tar", &good);
    let source = ImageSource::Archive(path.clone());
    let resolve = || cache.resolver(Settings::default()).resolve(&source, PullPolicy::Missing);
    let expected = listing(&resolve().expect("an image"));
    let (mut noticed, mut cut) = (0, 0);
    for at in (0..good.len()).step_by(61) {
        let name = format!("file:{}", path.canonicalize().expect("a path").display());
        for truncate in [false, true] {
            // The image is forgotten, so that everything is read again.
            cache.store.prune(&|record| record.reference != "docker.io/library/good:1").expect("pruned");
            assert_eq!(cache.store.record(&name), Ok(None));
            let mut damaged = good.clone();
            if truncate {
                damaged.truncate(at);
            } else {
                damaged[at] ^= 0x15;
            }
            std::fs::write(&path, damaged).expect("a file");
            match resolve() {
                Ok(image) => assert_eq!(listing(&image), expected, "byte {at}"),
                Err(e) => {
                    assert!(e.kind() != ErrorKind::Io, "byte {at}: {e}");
                    *if truncate { &mut cut } else { &mut noticed } += 1;
                }
            }
            cache.is_right(&format!("byte {at}"));
        }
    }
    assert!(noticed > 30 && cut > 60, "{noticed} damages and {cut} cuts were noticed");
}

fn quick() -> Timeouts {
    Timeouts {
        connect: Duration::from_secs(5),
        idle: Duration::from_millis(300),
        document: Duration::from_millis(800),
        window: Duration::from_millis(400),
        window_bytes: 2000,
        backoff: Duration::from_millis(1),
    }
}

#[test]
fn registries_that_misbehave() {
    let cache = Cache::new("registries");
    let cases = answers::cases();
    assert!(cases.len() > 60, "{}", cases.len());
    for (case, special, words) in cases {
        let special = Arc::new(special);
        let server = Server::registry(Blobs::new(&[layer()], gzip), move |asked| special(asked));
        let settings = Settings { insecure: vec![server.host()], timeouts: quick(), ..Settings::default() };
        let source = ImageSource::Reference(format!("{}/app:1", server.host()));
        cache.refuses(case, settings, &source, words);
        assert!(server.asked().len() < 40, "{case}: {} requests", server.asked().len());
    }
    // With none of that, it is pulled, in spite of what the cases have left.
    let server = Server::registry(Blobs::new(&[layer()], gzip), |_| None);
    let settings = Settings { insecure: vec![server.host()], ..Settings::default() };
    let source = ImageSource::Reference(format!("{}/app:1", server.host()));
    cache.resolver(settings).resolve(&source, PullPolicy::Missing).unwrap_or_else(|e| panic!("{e}"));
    cache.is_right("the good registry");
}

//! Archives that are none: name, bytes, words of the error.

use bloodhound_images::Digest;
use serde_json::{Value, json};

use super::common::{Blobs, Tar, config, descriptor, docker_archive_of, gzip};
use super::layers::after;

pub fn layer() -> Vec<u8> {
    after(|tar| tar)
}

/// An OCI archive whose manifest is changed.
fn with_manifest(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut blobs = Blobs::new(&[layer()], gzip);
    let mut manifest: Value = serde_json::from_slice(&blobs.manifest).expect("JSON");
    change(&mut manifest);
    blobs.manifest = manifest.to_string().into_bytes();
    blobs.oci_archive("case:1")
}

fn with_config(config: &str) -> Vec<u8> {
    Blobs::of(config.as_bytes().to_vec(), vec![gzip(&layer())]).oci_archive("case:1")
}

fn with_index(index: &Value) -> Vec<u8> {
    let blobs = Blobs::new(&[layer()], gzip);
    let mut tar = Tar::default().file("index.json", index.to_string().as_bytes());
    for blob in blobs.all() {
        tar = tar.file(&format!("blobs/sha256/{}", Digest::of(blob).hex()), blob);
    }
    tar.end()
}

fn docker(manifest: &str) -> Vec<u8> {
    let config = config(&[layer()]);
    Tar::default()
        .file("manifest.json", manifest.as_bytes())
        .file("config", &config)
        .file("layer.tar", &layer())
        .end()
}

/// Indices that refer to indices, six deep.
fn nested() -> Vec<u8> {
    let mut tar = Tar::default();
    let mut inner = json!({"schemaVersion": 2, "manifests": []}).to_string().into_bytes();
    for _ in 0..6 {
        tar = tar.file(&format!("blobs/sha256/{}", Digest::of(&inner).hex()), &inner);
        inner = json!({"schemaVersion": 2, "manifests": [descriptor("", &inner)]}).to_string().into_bytes();
    }
    tar.file("index.json", &inner).end()
}

/// All of them.
pub fn cases() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    [wholes(), documents()].concat()
}

#[rustfmt::skip] // a case in a line
fn wholes() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let blobs = || Blobs::new(&[layer()], gzip);
    let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
    let two = {
        let (one, config) = (config(&[layer()]), config(&[Tar::default().file("other", b"").end()]));
        let manifest = json!([{"Config": "a.json", "RepoTags": ["a:1"], "Layers": ["a.tar"]}, {"Config": "b.json", "RepoTags": ["b:1"], "Layers": ["b.tar"]}]);
        let tar = Tar::default()
            .file("manifest.json", manifest.to_string().as_bytes())
            .file("a.json", &one)
            .file("b.json", &config);
        tar.file("a.tar", &layer()).file("b.tar", &Tar::default().file("other", b"").end()).end()
    };
    vec![
        ("an empty file", Vec::new(), "it has neither manifest.json"),
        ("an archive of nothing", Tar::default().end(), "it has neither manifest.json"),
        ("an archive of something else", Tar::default().file("README", b"x").end(), "README"),
        ("a text", b"this is no archive but a text, of which there is enough for a header. ".repeat(20), "no tar archive"),
        ("an image of a disk", vec![0xeb; 4096], "no tar archive"),
        ("a compressed text", gzip(&b"text ".repeat(2000)), "no tar archive"),
        ("a cut compressed archive", { let z = gzip(&blobs().oci_archive("x")); z[..z.len() - 40].to_vec() }, "truncated"),
        ("an archive in xz", b"\xfd7zXZ\0\0\0\0\0".to_vec(), "compressed by xz"),
        ("7 MiB of zeros in 7 kB", gzip(&Tar::default().file("zeros", &vec![0; 7 << 20]).end()), "BLOODHOUND_IMAGE_MAX_SIZE"),
        ("a loop of links", Tar::default().symlink("manifest.json", "b").symlink("b", "manifest.json").end(), "neither manifest.json"),
        ("a link to the host", Tar::default().symlink("manifest.json", "/etc/passwd").end(), "neither manifest.json"),
        ("a manifest.json that is none", docker("{"), "manifest.json is none"),
        ("a manifest.json with nothing", docker("[]"), "there is no image in it"),
        ("a manifest.json of another form", docker(r#"{"a":1}"#), "manifest.json is none"),
        ("a missing configuration", docker(r#"[{"Config":"none","Layers":["layer.tar"]}]"#), "\"none\" is not in it"),
        ("a missing layer", docker(r#"[{"Config":"config","Layers":["none.tar"]}]"#), "\"none.tar\" is not in it"),
        ("a configuration of the host", docker(r#"[{"Config":"../../../../etc/passwd","Layers":["layer.tar"]}]"#), "is not in it"),
        ("too few layers", docker(r#"[{"Config":"config","Layers":[]}]"#), "manifest.json has 0 layers and the configuration 1"),
        ("too many layers", docker(r#"[{"Config":"config","Layers":["layer.tar","layer.tar"]}]"#), "2 layers and the configuration 1"),
        ("far too many layers", docker(&json!([{"Config": "config", "Layers": vec!["layer.tar"; 9]}]).to_string()), "BLOODHOUND_IMAGE_MAX_LAYERS"),
        ("a deep manifest.json", docker(&deep), "manifest.json is none"),
        ("a wrong name of the configuration", Tar::default().file("manifest.json", format!(r#"[{{"Config":"{0}.json","Layers":[]}}]"#, "0".repeat(64)).as_bytes()).file(&format!("{}.json", "0".repeat(64)), b"{}").end(), "it is damaged"),
        ("a layer of another digest", docker_archive_of(&["a:1"], &config(&[b"other".to_vec()]), &[layer()]), "its content has digest"),
        ("several images", two, "has several images"),
    ]
}

#[rustfmt::skip] // a case in a line
fn documents() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let platform = |os: &str, architecture: &str| json!({"os": os, "architecture": architecture});
    let for_platforms = |platforms: &[Value]| {
        let manifests: Vec<Value> = platforms
            .iter()
            .map(|platform| {
                let mut entry = descriptor("application/vnd.oci.image.manifest.v1+json", b"x");
                entry["platform"] = platform.clone();
                entry
            })
            .collect();
        with_index(&json!({"schemaVersion": 2, "manifests": manifests}))
    };
    let blobs = || Blobs::new(&[layer()], gzip);
    let other_layer = {
        let mut blobs = blobs();
        let manifest = blobs.manifest.clone();
        blobs.layers[0] = gzip(b"another");
        let name = Digest::of(&gzip(&layer())).hex();
        let tar = Tar::default()
            .file("index.json", &blobs.index("case:1"))
            .file(&format!("blobs/sha256/{name}"), &blobs.layers[0]);
        let tar = tar.file(&format!("blobs/sha256/{}", Digest::of(&manifest).hex()), &manifest);
        tar.file(&format!("blobs/sha256/{}", Digest::of(&blobs.config).hex()), &blobs.config).end()
    };
    let ok = format!(r#""rootfs":{{"diff_ids":["{}"]}}"#, Digest::of(&layer()));
    vec![
        ("a configuration that is none", with_config("text"), "no configuration of an image"),
        ("a configuration for arm64", with_config(r#"{"os":"linux","architecture":"arm64"}"#), "for linux/arm64"),
        ("a configuration for windows", with_config(r#"{"os":"windows","architecture":"amd64"}"#), "for windows/amd64"),
        ("a configuration for nothing", with_config("{}"), "an unnamed system"),
        ("a configuration without layers", with_config(r#"{"os":"linux","architecture":"amd64"}"#), "1 layers and the configuration 0"),
        ("a configuration with a wrong digest", with_config(r#"{"os":"linux","architecture":"amd64","rootfs":{"diff_ids":["sha256:0"]}}"#), "is no digest"),
        ("a configuration with sha512", with_config(r#"{"os":"linux","architecture":"amd64","rootfs":{"diff_ids":["sha512:00"]}}"#), "only sha256"),
        ("a configuration of another layer", with_config(&format!(r#"{{"os":"linux","architecture":"amd64","rootfs":{{"diff_ids":["sha256:{}"]}}}}"#, "0".repeat(64))), "its content has digest"),
        ("a variable without a name", with_config(&format!(r#"{{"os":"linux","architecture":"amd64","config":{{"Env":["=x"]}},{ok}}}"#)), "as an environment variable"),
        ("a variable without a value", with_config(&format!(r#"{{"os":"linux","architecture":"amd64","config":{{"Env":["x"]}},{ok}}}"#)), "as an environment variable"),
        ("a configuration of wrong types", with_config(&format!(r#"{{"os":"linux","architecture":"amd64","config":{{"Cmd":"x"}},{ok}}}"#)), "no configuration of an image"),
        ("an index that is none", Tar::default().file("index.json", b"text").end(), "it is no manifest"),
        ("an index that is a manifest", Tar::default().file("index.json", &blobs().manifest).end(), "is no index"),
        ("an index of nothing", with_index(&json!({"schemaVersion": 2, "manifests": []})), "there is no image in it"),
        ("an index and a manifest in one", with_index(&json!({"manifests": [], "config": descriptor("", b""), "layers": []})), "an index and a manifest in one"),
        ("an index without amd64", for_platforms(&[platform("linux", "arm64"), platform("linux", "s390x"), platform("unknown", "unknown"),]), "there is: linux/arm64, linux/s390x"),
        ("an index of attestations", for_platforms(&[platform("unknown", "unknown"), platform("unknown", "unknown")]), "none that names its platform"),
        ("an index to nothing", for_platforms(&[platform("linux", "amd64"), platform("linux", "arm64")]), "is not in it"),
        ("indices that do not end", nested(), "more than 4 times"),
        ("an index that is too large", with_index(&json!({"manifests": [], "x": "x".repeat(70_000)})), "BLOODHOUND_IMAGE_MAX_MANIFEST"),
        ("a blob of another digest", other_layer, "should have"),
        ("a manifest of version 1", with_manifest(|m| *m = json!({"schemaVersion": 1, "fsLayers": []})), "schema version 1"),
        ("a manifest of nothing", with_manifest(|m| *m = json!({})), "neither a manifest nor an index"),
        ("a manifest without layers", with_manifest(|m| m["layers"] = json!([])), "0 layers and the configuration 1"),
        ("a chart", with_manifest(|m| m["config"]["mediaType"] = json!("application/vnd.cncf.helm.config.v1+json")), "an artifact of type \"application/vnd.cncf.helm"),
        ("an encrypted layer", with_manifest(|m| { m["layers"][0]["mediaType"] = json!("application/vnd.oci.image.layer.v1.tar+encrypted") }), "is encrypted"),
        ("a layer of another kind", with_manifest(|m| m["layers"][0]["mediaType"] = json!("text/html")), "which no image has"),
        ("a layer of negative size", with_manifest(|m| m["layers"][0]["size"] = json!(-1)), "has the size -1"),
        ("a layer that is smaller than it says", with_manifest(|m| m["layers"][0]["size"] = json!(1_000_000)), "and should have 1000000"),
        ("a layer that is larger than it says", with_manifest(|m| m["layers"][0]["size"] = json!(10)), "more than the 10 bytes"),
        ("a configuration of another size", with_manifest(|m| m["config"]["size"] = json!(10)), "it is damaged"),
        ("a configuration of 8 EiB", with_manifest(|m| m["config"]["size"] = json!(i64::MAX)), "BLOODHOUND_IMAGE_MAX_MANIFEST"),
        ("a layer that is not there", with_manifest(|m| m["layers"][0]["digest"] = json!(Digest::of(b"none"))), "is not in it"),
        ("a layer without a digest", with_manifest(|m| m["layers"][0]["digest"] = json!("none")), "is no digest"),
        ("a layer out of the archive", with_manifest(|m| m["layers"][0]["digest"] = json!("sha256:../../../../etc/passwd")), "is no digest"),
    ]
}

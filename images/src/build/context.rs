//! A digest of everything that goes into a build and lies on this machine. What lies elsewhere, such as the images that it
//! begins with, does not count, as it does not for the cache of an engine.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::ignore::Ignore;
use super::{BuildContext, BuildSpec};
use crate::digest::{Digest, Hasher};
use crate::error::Error;

/// Changes when a builder is asked otherwise, or the digest is made otherwise.
const VERSION: &[u8] = b"bloodhound build 1";

pub(super) fn digest(spec: &BuildSpec) -> Result<Digest, Error> {
    let mut hasher = Hasher::default();
    part(&mut hasher, VERSION);
    let pairs = |hasher: &mut Hasher, pairs: &[(String, String)]| {
        part(hasher, &pairs.len().to_le_bytes());
        for (key, value) in pairs {
            part(hasher, key.as_bytes());
            part(hasher, value.as_bytes());
        }
    };
    pairs(&mut hasher, &spec.args);
    pairs(&mut hasher, &spec.labels);
    pairs(&mut hasher, &spec.additional_contexts);
    let file = spec.file();
    // The path has its meaning for a message only; what it holds is below.
    let settings =
        format!("{:?}", (&spec.target, &spec.extra_hosts, &spec.network, spec.shm_size, &spec.ssh));
    part(&mut hasher, settings.as_bytes());
    match (&spec.dockerfile_inline, &file) {
        (Some(text), _) => part(&mut hasher, text.as_bytes()),
        (None, Some(path)) if matches!(spec.context, BuildContext::Dir(_)) => content(&mut hasher, path)?,
        (None, path) => part(&mut hasher, format!("{path:?}").as_bytes()),
    }
    for (name, path) in &spec.secrets {
        part(&mut hasher, name.as_bytes());
        content(&mut hasher, path)?;
    }
    match &spec.context {
        BuildContext::Remote(address) => part(&mut hasher, address.as_bytes()),
        BuildContext::Dir(dir) => {
            let ignore = Ignore::of(dir, file.as_deref())?;
            tree(&mut hasher, dir, &ignore)?;
        }
    }
    for (_, place) in &spec.additional_contexts {
        let dir = Path::new(place);
        if !place.contains(':') && dir.is_dir() {
            tree(&mut hasher, dir, &Ignore::default())?;
        }
    }
    Ok(hasher.finish())
}

/// With its length, so that two parts are never taken for others.
fn part(hasher: &mut Hasher, bytes: &[u8]) {
    hasher.update(&(bytes.len() as u64).to_le_bytes());
    hasher.update(bytes);
}

fn content(hasher: &mut Hasher, path: &Path) -> Result<(), Error> {
    let io = |e: std::io::Error| Error::io(path, &e);
    let mut file = File::open(path).map_err(io)?;
    let (mut own, mut buffer) = (Hasher::default(), vec![0; 128 << 10]);
    loop {
        match file.read(&mut buffer).map_err(io)? {
            0 => break,
            read => own.update(&buffer[..read]),
        }
    }
    part(hasher, &own.finish().bytes());
    Ok(())
}

/// All that counts below a directory, sorted by name.
fn tree(hasher: &mut Hasher, root: &Path, ignore: &Ignore) -> Result<(), Error> {
    let mut todo = vec![PathBuf::new()];
    while let Some(dir) = todo.pop() {
        let path = root.join(&dir);
        let entries = fs::read_dir(&path).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
        let mut entries = entries.map_err(|e| Error::io(&path, &e).at("the context of the build"))?;
        entries.sort_by_key(|entry| entry.file_name());
        for entry in entries {
            let (relative, path) = (dir.join(entry.file_name()), entry.path());
            let io = |e: std::io::Error| Error::io(&path, &e);
            let meta = fs::symlink_metadata(&path).map_err(io)?;
            let ignored = ignore.ignores(&relative);
            if meta.is_dir() && (!ignored || ignore.has_exceptions()) {
                todo.push(relative.clone());
            }
            if ignored {
                continue;
            }
            part(hasher, relative.as_os_str().as_bytes());
            part(hasher, &(meta.permissions().mode() & 0o7777).to_le_bytes());
            if meta.is_symlink() {
                part(hasher, b"link");
                part(hasher, fs::read_link(&path).map_err(io)?.as_os_str().as_bytes());
            } else if meta.is_file() {
                part(hasher, b"file");
                content(hasher, &path)?;
            } else {
                part(hasher, b"other");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_into_a_build_changes_its_digest() {
        let dir = std::env::temp_dir().join(format!("bloodhound-context-{}", std::process::id()));
        fs::create_dir_all(dir.join("src/target")).expect("a directory");
        let write = |name: &str, text: &str| fs::write(dir.join(name), text).expect("a file");
        write("Dockerfile", "FROM scratch");
        write("src/a", "a");
        write(".dockerignore", "**/target\n*.log\n");
        let spec = BuildSpec::new(&dir);
        let now = || digest(&spec).expect("a digest");
        let first = now();
        assert_eq!(now(), first);
        write("src/target/b", "1");
        write("x.log", "1");
        assert_eq!(now(), first, "ignored files do not count");
        let with = |change: fn(&mut BuildSpec)| {
            let mut other = spec.clone();
            change(&mut other);
            digest(&other).expect("a digest")
        };
        assert_ne!(with(|spec| spec.args = vec![("A".into(), "1".into())]), first);
        assert_ne!(with(|spec| spec.target = Some("stage".into())), first);
        assert_ne!(with(|spec| spec.dockerfile_inline = Some("FROM x".into())), first);
        write("src/a", "b");
        let changed = now();
        assert_ne!(changed, first);
        fs::set_permissions(dir.join("src/a"), fs::Permissions::from_mode(0o755)).expect("executable");
        assert_ne!(now(), changed);
        fs::remove_dir_all(dir).expect("removed");
    }
}

//! The host side of a run: which of its files services may read, and the world that is built from them.

use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use bloodhound_sim::setup;
use bloodhound_vfs::host::{Allow, HostBase};
use bloodhound_vfs::{MountSpec, TreeId};

/// Directories that belong to people or to the running system: they are there, and empty, but for what a run names.
const CLOSED: &[&str] = &[
    "home",
    "root",
    "run",
    "tmp",
    "var/tmp",
    "mnt",
    "media",
    "lost+found",
    "proc",
    "sys",
    "dev",
    "var/lib/docker",
    "var/lib/containerd",
    "var/lib/containers",
];

/// Adds the host's root as a tree that shows what every user may read, and `more` (absolute paths).
///
/// # Errors
/// The host's.
pub fn host_root(base: &HostBase, more: &[PathBuf]) -> std::io::Result<TreeId> {
    let named = more.iter().flat_map(|path| way(path)).map(|path| os_bytes(&path)).collect();
    let closed = CLOSED.iter().map(|path| path.as_bytes().to_vec()).collect();
    let user = std::fs::metadata("/proc/self")?.uid();
    base.add_tree(Path::new("/"), Allow::Public { named, closed, user })
}

/// The directory for locks that a system makes when it starts, and to which /var/lock leads.
pub fn locks() -> (&'static str, MountSpec) {
    ("/run/lock", MountSpec::Tmpfs { mode: 0o1777, size: None, owner: (0, 0) })
}

/// What must be visible for an absolute path to lead where it does on the host: each symbolic link on the way, and the end.
/// None of these goes through a link or has `..` in it.
pub fn way(path: &Path) -> Vec<PathBuf> {
    let parts = |path: &Path| path.components().map(|c| c.as_os_str().to_owned()).rev().collect::<Vec<_>>();
    let (mut at, mut rest, mut links) = (PathBuf::from("/"), parts(path), Vec::new());
    while let Some(part) = rest.pop() {
        if part == "/" {
            at = PathBuf::from("/");
        } else if part == ".." {
            at.pop();
        } else if part != "." {
            at.push(part);
            // As many links as Linux follows: beyond that they lead nowhere.
            if links.len() < 40
                && let Ok(target) = at.read_link()
            {
                links.push(at.clone());
                at.pop();
                rest.extend(parts(&target));
            }
        }
    }
    links.push(at);
    links
}

/// A path without `.` and `..`, as it is written: links are not followed.
pub fn without_dots(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(out.pop()),
            part => out.push(part),
        }
    }
    out
}

/// The bytes of a path.
pub fn os_bytes(path: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    path.as_os_str().as_bytes().to_vec()
}

/// Builds the world of a scenario; errors as text for the user.
///
/// # Errors
/// What cannot be set up.
pub fn world(
    scenario: &bloodhound_sim::Scenario,
    base: &mut HostBase,
    decisions: bloodhound_decisions::Decisions,
) -> Result<bloodhound_sim::World, String> {
    setup::world(scenario, base, decisions).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_has_every_link_and_no_dots() {
        let top = std::env::temp_dir().canonicalize().expect("a directory");
        let top = top.join(format!("bloodhound-way-{}", std::process::id()));
        std::fs::create_dir_all(top.join("real/deep")).expect("a directory");
        std::os::unix::fs::symlink("real", top.join("link")).expect("a link");
        std::os::unix::fs::symlink(top.join("link/deep"), top.join("other")).expect("a link");
        let named = |path: &str| -> Vec<PathBuf> { way(&top.join(path)) };
        assert_eq!(named("real/deep"), [top.join("real/deep")]);
        assert_eq!(named("real/../real/./deep/x"), [top.join("real/deep/x")]);
        assert_eq!(named("link/x"), [top.join("link"), top.join("real/x")]);
        assert_eq!(named("other/x"), [top.join("other"), top.join("link"), top.join("real/deep/x")]);
        assert_eq!(named("link/../x"), [top.join("link"), top.join("x")], "above where the link leads");
        std::os::unix::fs::symlink("loop", top.join("loop")).expect("a link");
        assert_eq!(named("loop").len(), 41);
        std::fs::remove_dir_all(top).expect("removed");
    }
}

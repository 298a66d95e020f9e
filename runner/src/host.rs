//! The host side of a run: which of its files services may read, and the world that is built from them.

use std::path::{Path, PathBuf};

use bloodhound_sim::setup;
use bloodhound_vfs::TreeId;
use bloodhound_vfs::host::{Allow, HostBase};

/// What every program needs to start: the shared libraries and what the system's tools consist of. Everything else of
/// the host (home directories, /etc/shadow, sockets) stays invisible unless a run names it.
const READABLE: &[&str] = &[
    "usr",
    "lib",
    "lib32",
    "lib64",
    "bin",
    "sbin",
    "etc/ld.so.cache",
    "etc/ld.so.conf",
    "etc/ld.so.conf.d",
    "etc/alternatives",
    "etc/ssl/certs",
    "etc/ssl/openssl.cnf",
    "etc/ca-certificates",
    "etc/localtime",
    "etc/timezone",
    "etc/passwd",
    "etc/group",
    "etc/protocols",
    "etc/services",
    "etc/mime.types",
    "etc/locale.alias",
    "etc/default/locale",
    "etc/host.conf",
    "etc/gai.conf",
    "etc/terminfo",
    "etc/debian_version",
    "etc/os-release",
    "etc/profile",
    "etc/bash.bashrc",
    "etc/java-17-openjdk",
    "etc/python3",
    "etc/python3.11",
    "etc/redis",
    "etc/nginx",
];

/// Adds the host's root as a tree that shows what programs need and `more` (absolute paths).
///
/// # Errors
/// The host's.
pub fn host_root(base: &HostBase, more: &[PathBuf]) -> std::io::Result<TreeId> {
    let mut paths: Vec<Vec<u8>> = READABLE.iter().map(|p| p.as_bytes().to_vec()).collect();
    for path in more {
        paths.push(os_bytes(path));
        // A path that leads through links needs their targets as well.
        if let Ok(real) = path.canonicalize() {
            paths.push(os_bytes(&real));
        }
    }
    base.add_tree(Path::new("/"), Allow::Only(paths))
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
    patch: Option<bloodhound_kernel::node::PatchCode>,
) -> Result<bloodhound_sim::World, String> {
    setup::world(scenario, base, decisions, patch).map_err(|e| e.to_string())
}

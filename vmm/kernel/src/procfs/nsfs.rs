//! /proc/PID/ns (namespaces(7)): files of a file system of their own, nsfs, that no path names but by these links. Such a file is a
//! [`Synth`](crate::path::Synth) of [`Tree::Ns`](super::Tree), whose path is the link's text.

use bloodhound_abi::consts as c;

use crate::container::Container;

/// NSFS_MAGIC (linux/magic.h).
pub(super) const MAGIC: u64 = 0x6e73_6673;
/// The minor number of its device, of which the major one is 0.
pub(crate) const MINOR: u32 = 4;

/// Namespaces with the inode numbers of Linux's first ones (PROC_*_INIT_INO; those of others count on from there).
pub(super) const NAMES: [(&str, u32); 10] = [
    ("cgroup", 0xEFFF_FFFB),
    ("ipc", 0xEFFF_FFFF),
    ("mnt", 0xF000_0000),
    ("net", 0xF000_0098),
    ("pid", 0xEFFF_FFFC),
    ("pid_for_children", 0xEFFF_FFFC),
    ("time", 0xEFFF_FFFA),
    ("time_for_children", 0xEFFF_FFFA),
    ("user", 0xEFFF_FFFD),
    ("uts", 0xEFFF_FFFE),
];

/// The text of /proc/PID/ns/name: "type:[inode-number]" (namespaces(7)). Namespaces are the container's, but for those that all have.
pub(super) fn text(container: &Container, name: &str) -> Option<String> {
    let (_, first) = NAMES.iter().find(|(known, _)| *known == name)?;
    let kind = name.strip_suffix("_for_children").unwrap_or(name);
    let nth = match kind {
        "ipc" => container.ipc.0,
        "mnt" => container.mounts.0,
        "net" => container.net.0,
        "pid" => container.pids.0,
        _ => 0,
    };
    // Far from one another, as the first numbers stand side by side.
    Some(format!("{kind}:[{}]", if nth == 0 { *first } else { 0xF000_1000 + (first & 0xff) * 0x1000 + nth }))
}

/// The user namespace, which all others belong to.
pub(crate) fn user(container: &Container) -> Vec<u8> {
    text(container, "user").unwrap_or_default().into_bytes()
}

/// The inode number in a text.
pub(super) fn inode_number(text: &[u8]) -> Option<u64> {
    let digits = text.strip_suffix(b"]")?.rsplit(|byte| *byte == b'[').next()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The type of a namespace by the path of a description, as NS_GET_NSTYPE tells it: "the CLONE_NEW* constant" (ioctl_ns(2)).
pub(crate) fn kind(path: &[u8]) -> Option<u64> {
    let end = path.iter().position(|byte| *byte == b':')?;
    Some(match &path[..end] {
        b"cgroup" => c::CLONE_NEWCGROUP,
        b"ipc" => c::CLONE_NEWIPC,
        b"mnt" => c::CLONE_NEWNS,
        b"net" => c::CLONE_NEWNET,
        b"pid" => c::CLONE_NEWPID,
        b"time" => c::CLONE_NEWTIME,
        b"user" => c::CLONE_NEWUSER,
        b"uts" => c::CLONE_NEWUTS,
        _ => return None,
    })
}

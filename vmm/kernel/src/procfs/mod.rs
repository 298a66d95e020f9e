//! What /proc and /sys show (proc(5), sysfs(5)): trees made up from a [`Node`] when they are looked at.
//!
//! Key types: [`View`] (a node as one task sees it), [`Tree`], [`Entry`]. Everything is a function of the node alone,
//! never of what the host has, and never of which pages happen to be resident (design rule 2). [`crate::path`] walks
//! these trees, `sys::open` fixes a file's text when it is opened. The parts: [`process`] (`/proc/PID`), [`system`]
//! (`/proc/meminfo` and its kind), [`sysctl`] (`/proc/sys`), [`net`] (`/proc/net`), [`sysfs`] (`/sys`).

pub(crate) mod cgroup;
mod config;
mod counters;
mod inode;
mod interfaces;
mod knobs;
mod mem;
pub(crate) use mem::Shows;
mod memory;
mod mib;
mod net;
pub(crate) mod nsfs;
mod process;
mod sched;
mod strings;
pub(crate) mod sysctl;
mod sysfs;
pub mod system;
mod sysvipc;
#[cfg(test)]
mod tests;
mod zones;

pub(crate) use inode::Change;
pub use knobs::Knobs;
pub(crate) use knobs::before_zero;

use bloodhound_abi::Errno;
use bloodhound_net::Stack;
use bloodhound_vfs::flags::{PROC_MAGIC, S_IFDIR, S_IFLNK, S_IFREG, SYSFS_MAGIC};
use bloodhound_vfs::{BaseFs, Cred, Fail, FileCap, MountSpec, Timestamp, Vfs};

use crate::container::Container;
use crate::credentials::Asks;
use crate::file::FileKind;
use crate::ids::*;
use crate::node::Node;
use crate::path::{Place, Synth};
use crate::process::Process;
use crate::stacks::NetNs;

/// A tree of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tree {
    /// /proc
    Proc,
    /// /sys
    Sys,
    /// What the links of /proc/PID/ns lead to: mounted nowhere.
    Ns,
}

impl Tree {
    /// The tag of its mount ([`MountSpec::Synthetic`]).
    pub fn tag(self) -> u32 {
        match self {
            Tree::Proc => 1,
            Tree::Sys => 2,
            Tree::Ns => 3,
        }
    }

    /// Inverse of [`Tree::tag`].
    pub fn from_tag(tag: u32) -> Option<Tree> {
        [Tree::Proc, Tree::Sys].into_iter().find(|tree| tree.tag() == tag)
    }

    /// Where it is mounted.
    pub fn root(self) -> &'static [u8] {
        match self {
            Tree::Proc => b"/proc",
            Tree::Sys => b"/sys",
            Tree::Ns => b"",
        }
    }

    /// Its type in /proc/mounts.
    pub fn fstype(self) -> &'static str {
        match self {
            Tree::Proc => "proc",
            Tree::Sys => "sysfs",
            Tree::Ns => "nsfs",
        }
    }

    /// `f_type` of statfs(2).
    pub fn magic(self) -> u64 {
        match self {
            Tree::Proc => PROC_MAGIC,
            Tree::Sys => SYSFS_MAGIC,
            Tree::Ns => nsfs::MAGIC,
        }
    }
}

/// Mounts what every container has: /proc, /sys, /dev with its nodes, /dev/shm, /dev/pts; and makes /tmp and /run, which are
/// directories of the root file system as in a container: what is in them stays when it is started again.
///
/// # Errors
/// Those of [`Vfs::mount`] and [`Vfs::put_dir`]: something else is in the way.
pub fn mount_standard(vfs: &mut Vfs, base: &mut dyn BaseFs) -> Result<(), Fail> {
    mount_standard_with(vfs, base, MountSpec::Tmpfs { mode: 0o1777, size: None, owner: (0, 0) })
}

/// As [`mount_standard`], with this at /dev/shm.
///
/// # Errors
/// The same.
pub fn mount_standard_with(vfs: &mut Vfs, base: &mut dyn BaseFs, shm: MountSpec) -> Result<(), Fail> {
    for tree in [Tree::Proc, Tree::Sys] {
        vfs.mount(base, tree.root(), MountSpec::Synthetic { tag: tree.tag(), fstype: tree.fstype() })?;
    }
    vfs.mount(base, b"/dev", MountSpec::Dev)?;
    vfs.mount(base, b"/dev/shm", shm)?;
    vfs.mount(base, b"/dev/pts", MountSpec::Devpts)?;
    for (path, mode) in [(b"/tmp", 0o1777), (b"/run", 0o755)] {
        vfs.put_dir(base, path, mode)?;
    }
    Ok(())
}

/// What is at a place of a tree. Modes are permission bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A directory.
    Dir {
        /// Permission bits.
        mode: u32,
    },
    /// A file.
    File {
        /// Permission bits.
        mode: u32,
    },
    /// A symbolic link.
    Link(Link),
}

/// Where a link leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// To a path.
    Text(Vec<u8>),
    /// To a thing, without a path (proc(5): "magic links").
    Place(Place),
}

/// Attributes for stat(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// S_IFMT and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Inode number.
    pub ino: u64,
    /// Size.
    pub size: u64,
    /// All its times.
    pub time: Timestamp,
}

/// One file of a fixed table.
pub(crate) enum Source {
    /// Always the same.
    Text(&'static str),
    /// Made from the node.
    Make(fn(&View<'_>) -> String),
    /// The same, and only its owner may read it.
    Private(fn(&View<'_>) -> String),
    /// The same for what is no text.
    Bytes(fn() -> Vec<u8>),
    /// A symbolic link.
    Link(&'static str),
    /// A directory without entries of its own.
    Dir,
}

/// Files of a fixed table by path; directories above them are implied. Listings keep the table's order.
pub(crate) type Table = &'static [(&'static str, Source)];

/// A node as one of its tasks sees it.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The node.
    pub node: &'a Node,
    /// Who looks.
    pub pid: Pid,
    /// Which thread.
    pub tid: Tid,
}

impl<'a> View<'a> {
    /// The container of who looks.
    pub(crate) fn container(&self) -> &'a Container {
        self.node.container_of(self.pid)
    }

    /// Whether who looks may give parameters of the kernel other values: /proc/sys is writable.
    pub(crate) fn may_set(&self) -> bool {
        self.node.task(self.tid).credentials.caps.has(crate::caps::CAP_SYS_ADMIN)
    }

    /// The network namespace of who looks.
    pub(crate) fn net(&self) -> NetNs {
        self.container().net
    }

    /// The network stack of who looks.
    pub(crate) fn stack(&self) -> &'a Stack {
        self.node.net.stack(self.container().net)
    }
}

impl View<'_> {
    /// What is at a place; `None` for nothing.
    pub fn entry(&self, at: &Synth) -> Option<Entry> {
        let path = std::str::from_utf8(&at.path).ok()?;
        match at.tree {
            Tree::Ns => Some(Entry::File { mode: 0o444 }),
            Tree::Sys if interfaces::has(path) => interfaces::entry(self, path),
            Tree::Sys => table_entry(sys_table(path), path),
            Tree::Proc => match path.split_once('/').unwrap_or((path, "")) {
                ("", _) => Some(Entry::Dir { mode: 0o555 }),
                ("self", "") => Some(text(self.pid.number().to_string())),
                ("thread-self", "") => {
                    Some(text(format!("{}/task/{}", self.pid.number(), self.tid.number())))
                }
                ("sys", "") => Some(Entry::Dir { mode: 0o555 }),
                ("sys", rest) => match table_entry(sysctl::TABLE, rest)? {
                    Entry::File { .. } if self.may_set() => Some(Entry::File { mode: 0o644 }),
                    entry => Some(entry),
                },
                (first, rest) => match process::number(first) {
                    Some(number) => self.process_entry(number, rest),
                    None => table_entry(system::TABLE, path),
                },
            },
        }
    }

    /// Names and kinds (`d_type`) of a directory, without `.` and `..`.
    pub fn list(&self, at: &Synth) -> Vec<(Vec<u8>, u8)> {
        let Ok(path) = std::str::from_utf8(&at.path) else { return Vec::new() };
        let names = match at.tree {
            Tree::Ns => Vec::new(),
            Tree::Sys if interfaces::has(path) => interfaces::names(self, path),
            Tree::Sys => table_names(sys_table(path), path),
            Tree::Proc => match path.split_once('/').unwrap_or((path, "")) {
                ("", _) => {
                    let mut names = table_names(system::TABLE, "");
                    names.extend(["self", "thread-self", "sys"].map(String::from));
                    let seen = self.node.processes.keys().filter(|pid| pid.ns() == self.pid.ns());
                    names.extend(seen.map(|pid| pid.number().to_string()));
                    names
                }
                ("sys", rest) => table_names(sysctl::TABLE, rest),
                (first, rest) => match process::number(first) {
                    Some(number) => self.process_names(number, rest),
                    None => table_names(system::TABLE, path),
                },
            },
        };
        let child = |name: &str| if path.is_empty() { name.to_string() } else { format!("{path}/{name}") };
        let mut out = Vec::with_capacity(names.len());
        for name in names {
            let synth = Synth { tree: at.tree, path: child(&name).into_bytes() };
            if let Some(entry) = self.entry(&synth) {
                out.push((name.into_bytes(), (kind_bits(&entry) >> 12) as u8));
            }
        }
        out
    }

    /// The text of a file.
    ///
    /// # Errors
    /// ENOENT, EISDIR; ESRCH for the memory of a process that is gone.
    pub fn read(&self, at: &Synth) -> Result<Vec<u8>, Errno> {
        match self.entry(at) {
            None => return Err(Errno::ENOENT),
            Some(Entry::Dir { .. }) => return Err(Errno::EISDIR),
            Some(Entry::Link(_)) => return Err(Errno::EINVAL),
            Some(Entry::File { .. }) => {}
        }
        let path = std::str::from_utf8(&at.path).map_err(|_| Errno::ENOENT)?;
        match at.tree {
            Tree::Ns => Ok(Vec::new()),
            Tree::Sys if interfaces::has(path) => interfaces::text(self, path),
            Tree::Sys => self.table_text(sys_table(path), path),
            Tree::Proc => match path.split_once('/').unwrap_or((path, "")) {
                ("sys", rest) => match self.container().parameter(rest) {
                    Some(value) => Ok(format!("{value}\n").into_bytes()),
                    None => self.table_text(sysctl::TABLE, rest),
                },
                (first, rest) => match process::number(first) {
                    Some(number) => self.process_text(number, rest),
                    None => self.table_text(system::TABLE, path),
                },
            },
        }
    }

    /// What readlink(2) shows.
    ///
    /// # Errors
    /// ENOENT; EINVAL for what is no link; EACCES for another user's process.
    pub fn readlink(&self, at: &Synth) -> Result<Vec<u8>, Errno> {
        let Some(entry) = self.entry(at) else { return Err(Errno::ENOENT) };
        let Entry::Link(link) = entry else { return Err(Errno::EINVAL) };
        Ok(match self.follow(at, link)? {
            Link::Text(text) => text,
            Link::Place(place) => self.name_of(&place),
        })
    }

    /// Checks the right to follow a link. "Permission to dereference or read (readlink(2)) this symbolic link is governed
    /// by a ptrace access mode PTRACE_MODE_READ_FSCREDS check" (proc(5), on exe, cwd, root and fd).
    pub(crate) fn follow(&self, at: &Synth, link: Link) -> Result<Link, Errno> {
        let guarded = matches!(link, Link::Place(_)) || at.path.ends_with(b"/exe");
        match self.owner(at) {
            Some((_, thread)) if guarded && !self.node.may_trace(self.tid, thread, Asks::ForFiles) => {
                Err(Errno::EACCES)
            }
            _ => Ok(link),
        }
    }

    /// Whether who looks may know what only who may trace a process should.
    fn may_know(&self, thread: Tid) -> bool {
        self.node.may_trace(self.tid, thread, Asks::ForFiles)
    }

    /// Whether the right to read a file is asked for at each read ([`View::may_read`]): nothing of it is made when it is opened.
    pub(crate) fn is_asked_when_read(&self, at: &Synth) -> bool {
        process::refuses_readers(&at.path).is_some()
    }

    /// Whether a file that everybody may open may be read by who reads it: the error if not.
    pub(crate) fn may_read(&self, at: &Synth) -> Result<(), Errno> {
        match (process::refuses_readers(&at.path), self.owner(at)) {
            (Some(error), Some((_, thread))) if !self.node.may_trace(self.tid, thread, Asks::ForFiles) => {
                Err(error)
            }
            _ => Ok(()),
        }
    }

    /// Checks permission bits.
    pub(crate) fn permit(&self, at: &Synth, cred: &Cred, want: u32) -> Result<(), Errno> {
        let attr = self.attr(at).ok_or(Errno::ENOENT)?;
        // The descriptors of its own a process may always look at (proc_fd_permission).
        let descriptors = [&b"/fd"[..], b"/fdinfo"].iter().any(|name| at.path.ends_with(name));
        let own = descriptors && self.owner(at).is_some_and(|(process, _)| process.pid == self.pid);
        if cred.has(FileCap::DacOverride) || own {
            return Ok(());
        }
        let shift = if cred.uid == attr.uid {
            6
        } else if cred.in_group(attr.gid) {
            3
        } else {
            0
        };
        if want & !(attr.mode >> shift) & 7 == 0 { Ok(()) } else { Err(Errno::EACCES) }
    }

    /// What stat(2) shows.
    pub fn attr(&self, at: &Synth) -> Option<Attr> {
        let entry = self.entry(at)?;
        let (mode, size) = match (&entry, at.tree) {
            // Files of sysfs show a page, those of proc nothing, fd links 64.
            (Entry::File { mode }, Tree::Sys) => (*mode, 4096),
            (Entry::Dir { mode } | Entry::File { mode }, _) => (*mode, 0),
            (Entry::Link(Link::Place(Place::File(_))), _) => (0o700, 64),
            (Entry::Link(_), _) => (0o777, 0),
        };
        let started = self.owner(at).map_or(0, |(process, _)| process.started.0);
        let (uid, gid) = self.owner_ids(at, &entry);
        Some(Attr {
            mode: kind_bits(&entry) | mode,
            uid,
            gid,
            ino: inode_number(at),
            size,
            time: Timestamp::at(self.node.config.epoch_ns, bloodhound_abi::SimTime(started)),
        })
    }

    /// The path of a file for the reader (d_path): from its root, or of what lies outside of that from the real one.
    pub(crate) fn path_of(&self, ino: bloodhound_vfs::Ino) -> Vec<u8> {
        const OUTSIDE: &[u8] = b"(unreachable)";
        let path = self.node.vfs.path_of(self.node.place_of(self.tid).root, ino);
        path.strip_prefix(OUTSIDE).map_or_else(|| path.clone(), <[u8]>::to_vec)
    }

    /// The name that readlink(2) of `/proc/PID/fd/N` shows for a thing without a link's text.
    pub(crate) fn name_of(&self, place: &Place) -> Vec<u8> {
        match place {
            Place::Ino(ino) => self.path_of(*ino),
            Place::Synth(synth) => synth.absolute(),
            Place::File(id) => match self.node.files.get(*id).map(|f| &f.kind) {
                Some(kind @ (FileKind::Pipe { .. } | FileKind::Console(_))) => {
                    format!("pipe:[{}]", anonymous_ino(kind)).into_bytes()
                }
                Some(kind @ (FileKind::Inet(_) | FileKind::Unix(_) | FileKind::Netlink(_))) => {
                    format!("socket:[{}]", anonymous_ino(kind)).into_bytes()
                }
                Some(FileKind::Event(_)) => b"anon_inode:[eventfd]".to_vec(),
                Some(FileKind::TimerFd(_)) => b"anon_inode:[timerfd]".to_vec(),
                Some(FileKind::SignalFd(_)) => b"anon_inode:[signalfd]".to_vec(),
                Some(FileKind::Inotify(_)) => b"anon_inode:inotify".to_vec(),
                Some(FileKind::Listener(_)) => b"anon_inode:seccomp notify".to_vec(),
                Some(FileKind::Epoll(_)) => b"anon_inode:[eventpoll]".to_vec(),
                Some(FileKind::Mq(id)) => {
                    let names = &self.node.mqueues.names;
                    let name = names.iter().find(|(_, known)| *known == id);
                    name.map_or_else(|| b"/ (deleted)".to_vec(), |((_, name), _)| [b"/", &name[..]].concat())
                }
                Some(FileKind::Process(_)) => b"anon_inode:[pidfd]".to_vec(),
                _ => b"anon_inode:[unknown]".to_vec(),
            },
        }
    }

    /// The process whose directory a place is in, and the thread that its name or that of a directory below "task" says.
    fn owner(&self, at: &Synth) -> Option<(&Process, Tid)> {
        let path = std::str::from_utf8(&at.path).ok()?;
        let mut parts = path.split('/');
        let number = (at.tree == Tree::Proc).then(|| process::number(parts.next()?))??;
        let thread = match (parts.next(), parts.next()) {
            (Some("task"), Some(name)) => process::number(name).unwrap_or(number),
            _ => number,
        };
        Some((self.process(number)?, self.pid.ns().tid(thread)))
    }

    /// Whose a place is: the effective ids of the thread, but root's for what is not dumpable or has no memory any more, except for directories
    /// that all may read and search (task_dump_owner).
    fn owner_ids(&self, at: &Synth, entry: &Entry) -> (u32, u32) {
        let Some((process, thread)) = self.owner(at) else { return (0, 0) };
        // What is in the "net" of a process is its network's.
        if process::is_of_net(&at.path) {
            return (0, 0);
        }
        let open = matches!(entry, Entry::Dir { mode: 0o555 });
        let mm = self.node.tasks.get(&thread).and_then(|_| self.node.mms.get(process.mm));
        match self.node.credentials_of_thread(thread) {
            Some(owner) if open || mm.is_some_and(|mm| mm.kept.dumpable == 1) => {
                (owner.cred.uid, owner.cred.gid)
            }
            _ => (0, 0),
        }
    }

    fn table_text(&self, table: Table, path: &str) -> Result<Vec<u8>, Errno> {
        match table.iter().find(|(name, _)| *name == path) {
            Some((_, Source::Text(text))) => Ok(text.as_bytes().to_vec()),
            Some((_, Source::Make(make) | Source::Private(make))) => Ok(make(self).into_bytes()),
            Some((_, Source::Bytes(make))) => Ok(make()),
            Some((_, Source::Link(_))) => Err(Errno::EINVAL),
            Some((_, Source::Dir)) | None => Err(Errno::EISDIR),
        }
    }
}

/// The table of a path of /sys.
fn sys_table(path: &str) -> Table {
    let cgroup = path.strip_prefix("fs/cgroup").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if cgroup { cgroup::TABLE } else { sysfs::TABLE }
}

/// Whether /proc/sys has a parameter at this path.
pub fn has_parameter(path: &str) -> bool {
    sysctl::TABLE.iter().any(|(name, _)| *name == path)
}

/// Whether a parameter could have a value. Those that act on nothing here are shown with any.
pub fn is_value(path: &str, value: &str) -> bool {
    sysctl::is_value(path, value)
}

/// Inode number of a place: a hash of its path (FNV-1a), so that it does not depend on what was looked at before.
pub(crate) fn inode_number(at: &Synth) -> u64 {
    if at.tree == Tree::Ns {
        return nsfs::inode_number(&at.path).unwrap_or(1);
    }
    if at.path.is_empty() {
        return 1;
    }
    let mut hash = 0xcbf2_9ce4_8422_2325u64 ^ u64::from(at.tree.tag());
    for byte in &at.path {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    (hash & 0x0fff_ffff_ffff) | 0x1000_0000_0000
}

/// Inode number of what has no inode in the file system: pipes, sockets, the console; the same in fstat(2),
/// `/proc/PID/fd` and `/proc/net`.
pub fn anonymous_ino(kind: &FileKind) -> u64 {
    let (class, id) = match kind {
        FileKind::Pipe { pipe, .. } => (0, pipe.0),
        FileKind::Inet(socket) => (1, socket.0),
        FileKind::Unix(socket) => (2, socket.0),
        FileKind::Console(stream) => (3, *stream as u32),
        // Behind the three streams.
        FileKind::Netlink(socket) => (3, 16 + socket.0),
        // Files of mqueuefs, one for each queue, behind all of these.
        FileKind::Mq(queue) => return 1 << 31 | u64::from(queue.0),
        // "anon inodes" share one in Linux.
        _ => return 1024,
    };
    4096 + u64::from(id) * 4 + class
}

pub(crate) fn table_entry(table: Table, path: &str) -> Option<Entry> {
    if path.is_empty() {
        return Some(Entry::Dir { mode: 0o555 });
    }
    match table.iter().find(|(name, _)| *name == path) {
        Some((_, Source::Text(_) | Source::Make(_) | Source::Bytes(_))) => Some(Entry::File { mode: 0o444 }),
        Some((_, Source::Private(_))) => Some(Entry::File { mode: 0o400 }),
        Some((_, Source::Link(target))) => Some(text(target.to_string())),
        Some((_, Source::Dir)) => Some(Entry::Dir { mode: 0o555 }),
        None => {
            table.iter().any(|(name, _)| below(name, path).is_some()).then_some(Entry::Dir { mode: 0o555 })
        }
    }
}

pub(crate) fn table_names(table: Table, dir: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (path, _) in table {
        let Some(rest) = below(path, dir) else { continue };
        let name = rest.split('/').next().unwrap_or(rest);
        if !names.iter().any(|known| known == name) {
            names.push(name.to_string());
        }
    }
    names
}

/// The part of `path` below directory `dir`.
fn below<'a>(path: &'a str, dir: &str) -> Option<&'a str> {
    if dir.is_empty() {
        return Some(path);
    }
    path.strip_prefix(dir)?.strip_prefix('/')
}

fn text(target: String) -> Entry {
    Entry::Link(Link::Text(target.into_bytes()))
}

fn kind_bits(entry: &Entry) -> u32 {
    match entry {
        Entry::Dir { .. } => S_IFDIR,
        Entry::File { .. } => S_IFREG,
        Entry::Link(_) => S_IFLNK,
    }
}

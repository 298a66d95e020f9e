//! A system call's view of the world: the node, the calling task, and what lies outside of the node (the read-only
//! base file system, the decisions).

use std::sync::atomic::{AtomicBool, Ordering};

pub use bloodhound_abi::args::{Fd, Hex, Path, Ptr};
use bloodhound_abi::digest::Moved;
pub use bloodhound_abi::flags::*;
use bloodhound_abi::{Errno, SimTime};
use bloodhound_decisions::Decisions;
use bloodhound_net::Stack;
use bloodhound_vfs::{BaseFs, Cred, Fail};

use crate::container::Container;
use crate::credentials::Credentials;
use crate::file::File;
use crate::ids::*;
use crate::mm::Mm;
use crate::node::Node;
use crate::process::{FdEntry, Process};
use crate::procfs::View;
use crate::task::Task;
use crate::wait::{Pins, Progress, Stop, SysResult, Wait};
use crate::watch::{Told, Watch, Whose};

/// What the kernel sees outside of the node on which it runs.
pub struct Outside<'a> {
    /// Read-only files below the node's own.
    pub base: &'a mut dyn BaseFs,
    /// The source of choice.
    pub decisions: &'a mut Decisions,
    /// Who is told what happens.
    pub watch: Option<&'a mut dyn Watch>,
    /// Set when the host gives up the run, whose world nobody looks at any more: long calls need not go on.
    pub given_up: Option<&'a AtomicBool>,
}

impl<'a> Outside<'a> {
    /// A view of both; nobody is told what happens.
    pub fn new(base: &'a mut dyn BaseFs, decisions: &'a mut Decisions) -> Outside<'a> {
        Outside { base, decisions, watch: None, given_up: None }
    }

    /// The same, and `watch` is told what happens.
    pub fn watched(self, watch: &'a mut dyn Watch) -> Outside<'a> {
        Outside { watch: Some(watch), ..self }
    }

    /// The same, and `given_up` is set when the host gives up the run.
    pub fn until(self, given_up: Option<&'a AtomicBool>) -> Outside<'a> {
        Outside { given_up, ..self }
    }

    /// The same view for a shorter time.
    pub fn reborrow(&mut self) -> Outside<'_> {
        let watch = self.watch.as_mut().map(|watch| &mut **watch as &mut dyn Watch);
        Outside { base: &mut *self.base, decisions: &mut *self.decisions, watch, given_up: self.given_up }
    }

    /// Whether the run is given up.
    pub(crate) fn is_given_up(&self) -> bool {
        self.given_up.is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// Tells what happened to a task of `node`.
    pub(crate) fn tell(&mut self, node: &Node, (pid, tid): (Pid, Tid), told: &Told<'_>) {
        if let Some(watch) = &mut self.watch {
            let container = node.container_of_any(pid).id;
            watch.tell(Whose { node: container, at: node.clock, pid, tid }, told);
        }
    }
}

/// What a call finds that runs again after sleeping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// What it had waited for.
    pub wait: Wait,
    /// How far it had come.
    pub progress: Progress,
    /// Its deadline has passed.
    pub timed_out: bool,
}

/// See the module's text.
pub struct Ctx<'a> {
    /// The node on which the call happens.
    pub node: &'a mut Node,
    /// The caller.
    pub tid: Tid,
    /// The caller's process.
    pub pid: Pid,
    /// What lies outside of the node.
    pub outside: Outside<'a>,
    /// The descriptions that the call has looked up.
    pub pins: Pins,
    /// Set when the call runs again after sleeping.
    pub resumed: Option<Resumed>,
    /// The relative timeout that the call has read, ns.
    pub timeout: Option<u64>,
    /// Bytes for whose move the call has paid, in all its runs.
    pub paid: u64,
    /// Set when a signal without a handler had interrupted the call: when its relative timeout ends.
    pub restart_deadline: Option<SimTime>,
    /// What was read into a buffer of the kernel ([`crate::buffers::Buffers::kernel`]).
    pub(crate) inside: Vec<u8>,
    /// How the paths of the call are walked.
    pub(crate) lookup: crate::path::Lookup,
    /// Bytes copied from and to user memory so far; the dispatcher tells of them ([`Told::Moved`]).
    pub(crate) moved: Moved,
}

impl<'a> Ctx<'a> {
    /// A view for `tid`.
    pub fn new(node: &'a mut Node, tid: Tid, outside: Outside<'a>) -> Ctx<'a> {
        let pid = node.task(tid).pid;
        let mounts = node.container_of(pid).mounts;
        node.vfs.enter_namespace(mounts);
        Ctx {
            node,
            tid,
            pid,
            outside,
            pins: Pins::default(),
            resumed: None,
            timeout: None,
            paid: 0,
            inside: Vec::new(),
            lookup: Default::default(),
            moved: Moved::default(),
            restart_deadline: None,
        }
    }

    /// The node as the caller sees it in /proc.
    pub(crate) fn view(&self) -> View<'_> {
        View { node: self.node, pid: self.pid, tid: self.tid }
    }

    /// The caller.
    pub fn task(&self) -> &Task {
        self.node.task(self.tid)
    }

    /// The caller.
    pub fn task_mut(&mut self) -> &mut Task {
        self.node.task_mut(self.tid)
    }

    /// The caller's process.
    pub fn process(&self) -> &Process {
        self.node.process(self.pid)
    }

    /// The caller's process.
    pub fn process_mut(&mut self) -> &mut Process {
        self.node.process_mut(self.pid)
    }

    /// The caller's container.
    pub fn container(&self) -> &Container {
        self.node.container_of(self.pid)
    }

    /// The namespace of the process numbers that the caller sees.
    pub fn pid_ns(&self) -> PidNs {
        self.pid.ns()
    }

    /// The caller's network stack.
    pub fn stack(&self) -> &Stack {
        self.node.net.stack(self.container().net)
    }

    /// The caller's ids, groups and capabilities.
    pub fn credentials(&self) -> &Credentials {
        &self.task().credentials
    }

    /// The caller's ids, groups and capabilities.
    pub fn credentials_mut(&mut self) -> &mut Credentials {
        &mut self.task_mut().credentials
    }

    /// Whether the caller has a capability that counts.
    pub fn capable(&self, capability: u32) -> bool {
        self.credentials().caps.has(capability)
    }

    /// Whose rights to files count.
    pub(crate) fn fs_cred(&self) -> Cred {
        self.credentials().for_files()
    }

    /// The caller's address space.
    pub fn mm(&mut self) -> &mut Mm {
        let id = self.process().mm;
        &mut self.node.mms[id]
    }

    /// The machine's own time, which deadlines and the times of files are in. Packets are in virtual time, `node.clock`.
    pub fn now(&self) -> SimTime {
        self.node.own_time()
    }

    /// The descriptor's slot or EBADF.
    pub fn fd(&self, fd: Fd) -> Result<FdEntry, Errno> {
        match self.pins.get(fd) {
            Some(entry) => Ok(entry),
            None => self.table().get(fd.0),
        }
    }

    /// The description with which the call goes on after a sleep, whatever happens to the descriptor (`fdget`). EBADF.
    pub fn pin(&mut self, fd: Fd) -> Result<FileId, Errno> {
        let id = self.file_id(fd)?;
        self.pins.add(fd, self.fd(fd)?);
        Ok(id)
    }

    /// The open file description behind a descriptor, or EBADF. O_PATH descriptors count as bad for I/O:
    /// "Other file operations (e.g., read(2), write(2), ...) fail with the error EBADF" (open(2)).
    pub fn file_id(&self, fd: Fd) -> Result<FileId, Errno> {
        let id = self.fd(fd)?.file;
        // Those of /proc and /sys are of the kind that they would be without the flag.
        let file = &self.node.files[id];
        let is_path = file.flags & bloodhound_abi::consts::O_PATH != 0
            || matches!(file.kind, crate::file::FileKind::Path(_));
        if is_path { Err(Errno::EBADF) } else { Ok(id) }
    }

    /// The open file description behind a descriptor, or EBADF.
    pub fn file(&self, fd: Fd) -> Result<&File, Errno> {
        Ok(&self.node.files[self.file_id(fd)?])
    }

    /// The open file description behind a descriptor, or EBADF.
    pub fn file_mut(&mut self, fd: Fd) -> Result<&mut File, Errno> {
        let id = self.file_id(fd)?;
        Ok(&mut self.node.files[id])
    }

    /// Gives the description a descriptor, the lowest free one.
    pub fn install(&mut self, file: FileId, cloexec: bool) -> Result<u64, Errno> {
        self.install_from(0, file, cloexec)
    }

    /// The lowest free descriptor of at least `from`. On EMFILE the reference to `file` is dropped.
    pub fn install_from(&mut self, from: usize, file: FileId, cloexec: bool) -> Result<u64, Errno> {
        let limit = self.process().limits[bloodhound_abi::consts::RLIMIT_NOFILE as usize].cur;
        match self.table().lowest_free(from, limit) {
            Ok(fd) => {
                self.table_mut().set(fd, FdEntry { file, cloexec });
                Ok(fd as u64)
            }
            Err(e) => {
                self.node.file_unref(file, self.outside.base);
                Err(e)
            }
        }
    }

    /// Opens `file` and gives it a descriptor.
    pub fn open_file(&mut self, file: File, cloexec: bool) -> Result<u64, Errno> {
        let id = self.node.files.insert(file);
        self.install(id, cloexec)
    }

    /// When a call with a relative timeout in ns must end: kept over wake-ups.
    pub fn deadline(&self, timeout: Option<u64>) -> Option<SimTime> {
        match &self.resumed {
            Some(r) => r.wait.deadline,
            None => timeout.map(|ns| self.restart_deadline.unwrap_or(self.now().after(ns))),
        }
    }

    /// The call was woken because its deadline has passed.
    pub fn timed_out(&self) -> bool {
        self.resumed.as_ref().is_some_and(|r| r.timed_out)
    }

    /// How far the call had come before it slept.
    pub fn progress(&self) -> Option<&Progress> {
        self.resumed.as_ref().map(|r| &r.progress)
    }

    /// Whether neither its deadline nor a signal woke the call: an event of what it waits for, or nothing.
    pub(crate) fn woken_by_event_only(&self) -> bool {
        self.resumed.is_some() && !self.timed_out() && !self.node.signal_deliverable(self.tid)
    }

    /// Goes on sleeping as before.
    pub fn sleep_on<T>(&self) -> Option<SysResult<T>> {
        let r = self.resumed.as_ref()?;
        Some(Err(r.wait.clone().progress(r.progress.clone()).into()))
    }

    /// What follows is not what the call has slept in, but the next part of its work: a new timeout begins.
    pub fn begin_part(&mut self) {
        self.resumed = None;
        self.paid = 0;
    }

    /// Charges for walking over a list that a program may make as long as it likes: what Linux walks over costs it time as well, and
    /// a program that does nothing else must come to an end. Ordinary lengths are part of a call's price. A call pays when it
    /// begins, not when it is woken, for nothing perhaps.
    pub(crate) fn walks(&mut self, steps: usize) {
        const FREE: usize = 512;
        const STEP: u64 = 50;
        let ns = steps.saturating_sub(FREE) as u64 * STEP;
        if ns > 0 && self.resumed.is_none() {
            self.node.charge(self.tid, ns);
        }
    }

    /// Charges for moving bytes: `total` are those that the call has moved in all its runs. What is moved is paid for once,
    /// however often the call is woken.
    pub fn charge_moved(&mut self, total: u64) {
        let cost = |bytes: u64, kib: u64| bytes / 1024 * kib;
        let kib = self.node.config.costs.kib;
        let ns = cost(total, kib).saturating_sub(cost(self.paid, kib));
        self.paid = self.paid.max(total);
        if ns > 0 {
            self.node.charge(self.tid, ns);
        }
    }
}

/// Shorthand for `Err(Stop::Errno(e))`.
pub fn err<T>(e: Errno) -> SysResult<T> {
    Err(Stop::Errno(e))
}

/// Turns a path operation's failure into a stop; synthetic paths must have been handled before.
pub fn fail(f: Fail) -> Stop {
    match f {
        Fail::Errno(e) => Stop::Errno(e),
        // Changing operations on /proc and /sys: they are read-only.
        Fail::Synthetic(_) => Stop::Errno(Errno::EROFS),
    }
}

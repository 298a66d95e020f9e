//! Process descriptors: pidfd_open(2), pidfd_send_signal(2), pidfd_getfd(2); clone(2) makes them too, waitid(2) takes them.
//!
//! A descriptor means one process, not whoever has its number later ([`ProcessRef`]). It is readable once the process has ended.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Siginfo;

use crate::credentials::Asks;
use crate::ctx::*;
use crate::file::{File, FileKind, ProcessRef};
use crate::ids::*;
use crate::node::Node;
use crate::wait::SysResult;

impl Node {
    /// What names a process for as long as there are descriptors of it; it must exist.
    pub(crate) fn process_ref(&self, pid: Pid) -> ProcessRef {
        ProcessRef { pid, started: self.process(pid).started }
    }

    /// The process, unless its parent has waited for it.
    pub(crate) fn process_named(&self, named: ProcessRef) -> Option<Pid> {
        let process = self.processes.get(&named.pid)?;
        (process.started == named.started).then_some(named.pid)
    }

    /// Readiness of a process descriptor: "it becomes readable when the process terminates" (pidfd_open(2)).
    pub(crate) fn process_ready(&self, named: ProcessRef) -> u64 {
        match self.process_named(named) {
            Some(pid) if self.process(pid).zombie.is_none() => 0,
            _ => c::EPOLLIN | c::EPOLLRDNORM,
        }
    }
}

impl Ctx<'_> {
    /// Opens a descriptor of a process, which must exist.
    pub(crate) fn open_pidfd(&mut self, pid: Pid, flags: u64) -> Result<u64, Errno> {
        let named = self.node.process_ref(pid);
        self.open_file(File::new(FileKind::Process(named), c::O_RDWR | flags), true)
    }

    /// The access mode PTRACE_MODE_ATTACH_REALCREDS (ptrace(2)).
    pub(super) fn may_attach(&self, other: Tid) -> bool {
        self.node.may_trace(self.tid, other, Asks::ByCall)
    }

    /// The process of a process descriptor, and whether calls with it do not sleep. EBADF for any other one; `None`: it is gone.
    pub(crate) fn pidfd(&self, fd: Fd) -> Result<(Option<Pid>, bool), Errno> {
        let file = self.file(fd)?;
        match file.kind {
            FileKind::Process(named) => Ok((self.node.process_named(named), file.nonblocking())),
            _ => Err(Errno::EBADF),
        }
    }
}

impl Ctx<'_> {
    /// The process that pidfd_send_signal(2) names: "The pidfd argument [...] can also be [...] a directory file descriptor that refers
    /// to /proc/pid". `None`: it is gone.
    fn signalled_by(&self, fd: Fd) -> Result<Option<Pid>, Errno> {
        let FileKind::SyntheticDir { path, .. } = &self.file(fd)?.kind else {
            return Ok(self.pidfd(fd)?.0);
        };
        let name = path.strip_prefix(b"/proc/").and_then(|name| std::str::from_utf8(name).ok());
        let number: u32 = name.and_then(|name| name.parse().ok()).ok_or(Errno::EBADF)?;
        Ok(Some(self.pid_ns().pid(number)).filter(|pid| self.node.processes.contains_key(pid)))
    }
}

/// pidfd_open(2). EINVAL for a thread that is not its process's first, ESRCH.
pub fn pidfd_open(k: &mut Ctx<'_>, pid: i32, flags: FdFlags) -> SysResult {
    if flags.exceeds(FdFlags::O_NONBLOCK) || pid <= 0 {
        return err(Errno::EINVAL);
    }
    let process = k.pid_ns().pid(pid as u32);
    if !k.node.processes.contains_key(&process) {
        let thread = k.node.tasks.contains_key(&k.pid_ns().tid(pid as u32));
        return err(if thread { Errno::EINVAL } else { Errno::ESRCH });
    }
    Ok(k.open_pidfd(process, flags.bits())?)
}

/// pidfd_send_signal(2). EBADF, ESRCH for a process that is gone, EPERM, EINVAL.
pub fn pidfd_send_signal(k: &mut Ctx<'_>, fd: Fd, sig: i32, info: Ptr, flags: Hex) -> SysResult {
    if flags.0 & 0xffff_ffff != 0 {
        return err(Errno::EINVAL);
    }
    let process = k.signalled_by(fd)?;
    let given = if info.is_null() { k.own_info(sig, c::SI_USER) } else { k.read_obj::<Siginfo>(info)? };
    if given.signo != sig {
        return err(Errno::EINVAL);
    }
    // As rt_sigqueueinfo(2): nobody but the process itself may pretend that the kernel or kill(2) sends it.
    let forged = given.code >= 0 || given.code == c::SI_TKILL as i32;
    if !info.is_null() && forged && process.map(|pid| Tid(pid.0)) != Some(k.tid) {
        return err(Errno::EPERM);
    }
    let process = process.ok_or(Errno::ESRCH)?;
    // "EINVAL ... The calling process is not in the same PID namespace or an ancestor".
    if process.ns() != k.pid_ns() {
        return err(Errno::EINVAL);
    }
    k.signal_process(process.number() as i32, sig, given)
}

/// pidfd_getfd(2): a copy of another process's descriptor. EBADF, EPERM, ESRCH.
pub fn pidfd_getfd(k: &mut Ctx<'_>, fd: Fd, target: Fd, flags: Hex) -> SysResult {
    if flags.0 & 0xffff_ffff != 0 {
        return err(Errno::EINVAL);
    }
    let (process, _) = k.pidfd(fd)?;
    let process = process.ok_or(Errno::ESRCH)?;
    let other = k.node.process(process);
    if !k.may_attach(Tid(process.0)) {
        return err(Errno::EPERM);
    }
    if other.zombie.is_some() {
        return err(Errno::ESRCH);
    }
    let first = *other.threads.first().ok_or(Errno::ESRCH)?;
    let file = k.node.fds_of(first).get(target.0)?.file;
    k.node.file_ref(file);
    Ok(k.install(file, true)?)
}

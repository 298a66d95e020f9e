//! Signals of descriptors (fcntl(2), "Managing signals"): whom a description tells that it has become ready, and telling him.
//!
//! [`Node::fasync`](crate::node::Node) holds the descriptions with O_ASYNC by the object that they refer to. Pipes
//! ([`Node::pipe_async`]) and sockets ([`Node::socket_async`]) tell where Linux's `kill_fasync` and `sk_wake_async` do, which is not always
//! when something becomes ready; other sockets and inotify instances tell when their readiness is told to whoever waits for it
//! ([`Node::object_async`]).

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Siginfo;
use bloodhound_net::{Proto, SocketId, Tell};

use crate::credentials::Credentials;
use crate::file::{File, FileKind};
use crate::ids::*;
use crate::node::Node;
use crate::unix::Kind;
use crate::wait::{Blocked, Object, Progress, WaitOn};

/// Which kind of owner a description has (F_OWNER_TID, F_OWNER_PID, F_OWNER_PGRP).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Whom {
    /// A thread.
    #[default]
    Thread,
    /// A process.
    Process,
    /// A process group.
    Group,
}

/// Whom a description tells (`struct fown_struct`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileOwner {
    /// What `pid` names.
    pub whom: Whom,
    /// The number of a thread, process or group.
    pub pid: Option<Pid>,
    /// Real and effective user id of who has set it: the rights with which signals are sent.
    pub ids: [u32; 2],
    /// F_SETSIG; 0 is SIGIO without details.
    pub signo: u32,
}

/// A description with O_ASYNC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Async {
    /// The descriptor by which it was switched on: si_fd.
    pub fd: i32,
    /// A socket that had no room for what was sent: only such a one tells of room (SOCKWQ_ASYNC_NOSPACE).
    pub lacked_room: bool,
}

/// On what it depends whether a socket tells of something (SOCK_WAKE_WAITD and its kind).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waking {
    /// Data: only if nobody sleeps for it.
    Data,
    /// Room: only if it was missed.
    Space,
    /// Anything else.
    Any,
}

/// What is told: POLL_IN and its kind (sigaction(2), "The si_code field").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Band {
    /// Data can be read.
    In = 1,
    /// There is room to write.
    Out = 2,
    /// A lease is broken, or a directory has changed.
    Message = 3,
    /// An error.
    Error = 4,
    /// The other end is gone.
    HangUp = 6,
}

impl Band {
    /// si_band (the kernel's band_table).
    fn events(self) -> u64 {
        match self {
            Band::In => c::EPOLLIN | c::EPOLLRDNORM,
            Band::Out => c::EPOLLOUT | c::EPOLLWRNORM | c::EPOLLWRBAND,
            Band::Message => c::EPOLLIN | c::EPOLLRDNORM | c::EPOLLMSG,
            Band::Error => c::EPOLLERR,
            Band::HangUp => c::EPOLLHUP | c::EPOLLERR,
        }
    }
}

/// SI_SIGIO, of signals whose own codes would be taken for others.
const SI_SIGIO: i32 = -5;

/// "si_code" of a signal other than SIGIO (`sig_specific_sicodes`).
fn has_own_codes(signo: u32) -> bool {
    let of = [c::SIGILL, c::SIGFPE, c::SIGSEGV, c::SIGBUS, c::SIGTRAP, c::SIGCHLD, c::SIGSYS];
    of.contains(&u64::from(signo))
}

/// Whether O_ASYNC can be switched on (`f_op->fasync`).
pub(crate) fn can_tell(kind: &FileKind) -> bool {
    match kind {
        FileKind::Pipe { .. }
        | FileKind::Inet(_)
        | FileKind::Unix(_)
        | FileKind::Netlink(_)
        | FileKind::Inotify(_)
        | FileKind::Tty { .. }
        // The streams of a container are pipes of its runtime.
        | FileKind::Console(_) => true,
        FileKind::Device { dev, .. } => dev.major == 1 && matches!(dev.minor, 8 | 9),
        _ => false,
    }
}

impl Node {
    /// Switches O_ASYNC on or off.
    pub(crate) fn set_async(&mut self, id: FileId, fd: i32, on: bool) {
        let file = &mut self.files[id];
        let object = file.object();
        if on {
            file.flags |= c::O_ASYNC;
            let before = file.asynced.replace(Async { fd, lacked_room: false });
            if let (None, Some(object)) = (before, object) {
                // The newest is told first (fasync_insert_entry).
                self.fasync.get_or_default(object).insert(0, id);
            }
        } else if file.asynced.take().is_some() {
            file.flags &= !c::O_ASYNC;
            if let Some(object) = object {
                self.forget_async(object, id);
            }
        }
    }

    /// The description is not to be told of any more.
    pub(crate) fn forget_async(&mut self, object: Object, id: FileId) {
        let Some(list) = self.fasync.get_mut(&object) else { return };
        list.retain(|file| *file != id);
        if list.is_empty() {
            self.fasync.remove(&object);
        }
    }

    /// A pipe tells its readers or its writers.
    pub(crate) fn pipe_async(&mut self, pipe: PipeId, readers: bool) {
        let Some(list) = self.fasync.get(&Object::Pipe(pipe)) else { return };
        for id in list.clone() {
            let FileKind::Pipe { read, write, .. } = self.files[id].kind else { continue };
            if if readers { read } else { write } {
                self.tell_async(id, if readers { Band::In } else { Band::Out });
            }
        }
    }

    /// A socket tells, if the waking is one that counts (`sock_wake_async`).
    pub(crate) fn socket_async(&mut self, object: Object, waking: Waking, band: Band) {
        let Some(list) = self.fasync.get(&object).cloned() else { return };
        if waking == Waking::Data && self.is_waited_for(object) {
            return;
        }
        for id in list {
            let told = self.files[id].asynced.as_mut().filter(|_| waking == Waking::Space);
            if told.is_none_or(|told| std::mem::take(&mut told.lacked_room)) {
                self.tell_async(id, band);
            }
        }
    }

    /// A socket of the internet tells.
    pub(crate) fn inet_async(&mut self, id: SocketId, what: Tell) {
        let all = [
            (Tell::IN, Waking::Data, Band::In),
            (Tell::SPACE, Waking::Space, Band::Out),
            (Tell::OUT, Waking::Any, Band::Out),
            (Tell::ERR, Waking::Any, Band::Error),
            (Tell::HUP, Waking::Data, Band::HangUp),
        ];
        for (_, waking, band) in all.into_iter().filter(|(bit, ..)| what.contains(*bit)) {
            self.socket_async(Object::Inet(id), waking, band);
        }
    }

    /// Whether somebody sleeps until a stream has data, or did and has not run since (SOCKWQ_ASYNC_WAITDATA): what comes is for him.
    fn is_waited_for(&self, object: Object) -> bool {
        let stream = match object {
            Object::Unix(id) => self.unix.get(id).kind == Kind::Stream,
            Object::Inet(id) => self.inet.get(&id).is_some_and(|socket| socket.proto == Proto::Tcp),
            _ => false,
        };
        let on = WaitOn::Object(object);
        let receives =
            |call: &Blocked| call.wait.on.contains(&on) && matches!(call.progress, Progress::Receive(_));
        stream && self.tasks.keys().any(|tid| self.call_of(*tid).is_some_and(receives))
    }

    /// The readiness of an inotify instance or a socket of another kind is told; `events` are what may have become ready.
    pub(crate) fn object_async(&mut self, object: Object, events: u32) {
        let tells_itself = matches!(object, Object::Pipe(_) | Object::Inet(_) | Object::Unix(_));
        if self.fasync.is_empty() || tells_itself {
            return;
        }
        let Some(list) = self.fasync.get(&object) else { return };
        for id in list.clone() {
            if let Some(band) = self.band_of(id, u64::from(events)) {
                self.tell_async(id, band);
            }
        }
    }

    /// What an event of a socket is: new data always, room only where it was missed, and of a change of state the gravest thing.
    fn band_of(&mut self, id: FileId, events: u64) -> Option<Band> {
        let now = u64::from(self.ready_bits(id));
        let changed = events & (c::EPOLLHUP | c::EPOLLERR) != 0;
        let lacked = self.files[id].asynced.is_some_and(|a| a.lacked_room);
        if changed && now & c::EPOLLERR != 0 {
            return Some(Band::Error);
        }
        if changed && now & c::EPOLLHUP != 0 {
            return Some(Band::HangUp);
        }
        if events & c::EPOLLIN != 0 && now & (c::EPOLLIN | c::EPOLLRDHUP) != 0 {
            return Some(Band::In);
        }
        if events & now & c::EPOLLOUT != 0 && (changed || lacked) {
            if let Some(told) = &mut self.files[id].asynced {
                told.lacked_room = false;
            }
            return Some(Band::Out);
        }
        None
    }

    /// A send by this socket has found no room, or begins, or sleeps until there is some (SOCKWQ_ASYNC_NOSPACE).
    pub(crate) fn lacks_room(&mut self, object: Object, lacks: bool) {
        let files = &mut self.files;
        for id in self.fasync.get(&object).into_iter().flatten() {
            if let Some(told) = &mut files[*id].asynced {
                told.lacked_room = lacks;
            }
        }
    }

    fn tell_async(&mut self, id: FileId, band: Band) {
        if let Some(Async { fd, .. }) = self.files[id].asynced {
            self.send_sigio(id, fd, band);
        }
    }

    /// Sends the signal of a description to its owner (`send_sigio`). "If F_SETSIG is zero, then SIGIO is sent [...] without
    /// additional information."
    pub(crate) fn send_sigio(&mut self, id: FileId, fd: i32, band: Band) {
        let owner = self.files[id].owner.clone();
        let info = match owner.signo {
            0 => Siginfo { signo: c::SIGIO as i32, code: c::SI_KERNEL as i32, ..Siginfo::default() },
            signo => {
                let code = if has_own_codes(signo) { SI_SIGIO } else { band as i32 };
                let mut info = Siginfo { signo: signo as i32, code, ..Siginfo::default() };
                (info.fields[0], info.fields[1]) = (band.events(), u64::from(fd as u32));
                info
            }
        };
        self.send_to_owner(&owner, info);
    }

    /// Sends a signal to whom a description names, if its setter may.
    fn send_to_owner(&mut self, owner: &FileOwner, info: Siginfo) {
        let Some(pid) = owner.pid else { return };
        let permitted = |p: &Credentials| {
            let [real, effective] = owner.ids;
            effective == 0 || p.real_ids[..2].iter().any(|id| *id == real || *id == effective)
        };
        match owner.whom {
            Whom::Group => {
                let mut members = self.members_of(pid);
                members.retain(|member| permitted(self.credentials_of(self.process(*member))));
                for member in members {
                    self.send_process(member, info);
                }
            }
            whom => {
                let process = self.tasks.get(&Tid(pid.0)).map_or(pid, |task| task.pid);
                if !self.credentials_of_thread(Tid(pid.0)).is_some_and(permitted) {
                    return;
                }
                if whom == Whom::Thread {
                    self.send_task(Tid(pid.0), info);
                } else {
                    self.send_process(process, info);
                }
            }
        }
    }

    /// An urgent mark has come: "SIGURG [is] delivered when out-of-band data becomes available on a socket" to whom F_SETOWN has named,
    /// whether O_ASYNC is set or not (`send_sigurg`).
    pub(crate) fn send_sigurg(&mut self, socket: Object) {
        let of_socket = |file: &File| match file.kind {
            FileKind::Inet(id) => socket == Object::Inet(id),
            FileKind::Unix(id) => socket == Object::Unix(id),
            _ => false,
        };
        let owner = self.files.iter().find(|(_, file)| of_socket(file)).map(|(_, file)| file.owner.clone());
        let info = Siginfo { signo: c::SIGURG as i32, code: c::SI_KERNEL as i32, ..Siginfo::default() };
        if let Some(owner) = owner {
            self.send_to_owner(&owner, info);
        }
    }

    /// The owner's number, if he lives (`f_getown`).
    pub(crate) fn living_owner(&self, id: FileId) -> Option<Pid> {
        let owner = &self.files[id].owner;
        let pid = owner.pid?;
        let lives = match owner.whom {
            Whom::Thread => self.tasks.contains_key(&Tid(pid.0)) || self.processes.contains_key(&pid),
            Whom::Process => self.processes.contains_key(&pid),
            Whom::Group => self.processes.values().any(|p| p.pgid == pid),
        };
        lives.then_some(pid)
    }

    /// Whether a number is in use by a thread, a process, a group or a session (`find_vpid`).
    fn in_use(&self, pid: Pid) -> bool {
        self.tasks.contains_key(&Tid(pid.0))
            || self.processes.contains_key(&pid)
            || self.processes.values().any(|p| p.pgid == pid || p.sid == pid)
    }

    /// Sets whom a description tells, with the rights of `setter`; 0 is nobody. ESRCH.
    pub(crate) fn set_owner(
        &mut self,
        id: FileId,
        whom: Whom,
        number: i32,
        setter: Tid,
    ) -> Result<(), Errno> {
        let pid = match u32::try_from(number) {
            Ok(0) => None,
            Ok(number) => {
                let pid = setter.ns().pid(number);
                Some(pid).filter(|pid| self.in_use(*pid)).ok_or(Errno::ESRCH).map(Some)?
            }
            Err(_) => return Err(Errno::ESRCH),
        };
        let setter = &self.task(setter).credentials;
        let ids = [setter.real_ids[0], setter.cred.uid];
        let signo = self.files[id].owner.signo;
        self.files[id].owner = FileOwner { whom, pid, ids, signo };
        Ok(())
    }

    /// Makes the process of a task the owner if there is none yet (`__f_setown` without force).
    pub(crate) fn own_by_default(&mut self, id: FileId, setter: Tid) {
        let owner = &self.files[id].owner;
        if owner.pid.is_none() {
            let (signo, task) = (owner.signo, self.task(setter));
            let (pid, ids) = (task.pid, [task.credentials.real_ids[0], task.credentials.cred.uid]);
            self.files[id].owner = FileOwner { whom: Whom::Process, pid: Some(pid), ids, signo };
        }
    }
}

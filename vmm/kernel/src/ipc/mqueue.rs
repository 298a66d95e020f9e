//! POSIX message queues (mq_overview(7)): messages by priority, who waits, and who is told when one arrives.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Siginfo;
use bloodhound_persistent::Map;

use crate::container::IpcNs;
use crate::ctx::Ctx;
use crate::file::{File, FileKind};
use crate::ids::{Arena, FileId, MqId, NetlinkId, Pid, Tid};
use crate::netlink::Datagram;
use crate::node::Node;
use crate::task::Task;
use crate::wait::{Object, Progress};

/// SI_MESGQ: "POSIX message queue state changed" (sigaction(2)).
const SI_MESGQ: i32 = -3;

/// A message: its text and its priority.
pub type Message = (Arc<Vec<u8>>, u32);

/// Who is told when a message arrives in an empty queue (mq_notify(3)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Notify {
    /// Which process.
    pub pid: Pid,
    /// How.
    pub how: Told,
    /// The process runs another program since, which did not ask ("info->notify_self_exec_id == task->self_exec_id", `__do_notify`): no signal is sent.
    pub by_former: bool,
}

/// How somebody is told (sigevent(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// SIGEV_NONE: not at all.
    Nothing,
    /// SIGEV_SIGNAL: by this signal (0: by none), with this value.
    Signal(u32, u64),
    /// SIGEV_THREAD, as the C library makes it: these bytes are sent to a netlink socket, on which a thread of its waits.
    Cookie(NetlinkId, [u8; COOKIE]),
}

/// How large the file of a queue says that it is (FILENT_SIZE): more than is ever read from it.
pub const FILE_SIZE: u64 = 80;

/// NOTIFY_COOKIE_LEN; the last byte says what happened.
pub const COOKIE: usize = 32;
/// NOTIFY_WOKENUP: there is a message.
const WOKEN_UP: u8 = 1;
/// NOTIFY_REMOVED: there will be none any more.
const REMOVED: u8 = 2;

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MqQueue {
    /// Who has made it, by its real user id: its RLIMIT_MSGQUEUE counts.
    pub user: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Permission bits.
    pub mode: u32,
    /// Messages that it holds, at most.
    pub most: u64,
    /// Bytes of a message, at most.
    pub longest: u64,
    /// The size that it has as a file, which ftruncate(2) sets without any effect on what is read.
    pub file_size: u64,
    /// Who is told.
    pub notify: Option<Notify>,
    /// Open file descriptions of it, and one for its name.
    pub refs: u32,
    /// By priority, first come first.
    messages: BTreeMap<u32, VecDeque<Arc<Vec<u8>>>>,
    /// How many they are, and the bytes of all.
    held: (u64, u64),
    /// Who waits, by priority, then first come first.
    receivers: VecDeque<Tid>,
    senders: VecDeque<(Tid, Message)>,
}

impl MqQueue {
    /// An empty queue with a name.
    pub fn new(user: u32, owner: (u32, u32), mode: u32, most: u64, longest: u64) -> MqQueue {
        MqQueue {
            user,
            owner,
            mode,
            most,
            longest,
            file_size: FILE_SIZE,
            notify: None,
            refs: 1,
            messages: BTreeMap::new(),
            held: (0, 0),
            receivers: VecDeque::new(),
            senders: VecDeque::new(),
        }
    }

    /// How many messages are in it.
    pub fn len(&self) -> u64 {
        self.held.0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Bytes of all messages.
    pub fn bytes(&self) -> u64 {
        self.held.1
    }

    /// Readiness (EPOLL* bits).
    pub fn ready(&self) -> u64 {
        let mut bits = 0;
        if !self.is_empty() {
            bits |= c::EPOLLIN | c::EPOLLRDNORM;
        }
        if self.len() < self.most {
            bits |= c::EPOLLOUT | c::EPOLLWRNORM;
        }
        bits
    }

    fn put(&mut self, (text, priority): Message) {
        self.held = (self.held.0 + 1, self.held.1 + text.len() as u64);
        self.messages.entry(priority).or_default().push_back(text);
    }

    /// The oldest message of the highest priority.
    fn take(&mut self) -> Option<Message> {
        let mut last = self.messages.last_entry()?;
        let priority = *last.key();
        let text = last.get_mut().pop_front()?;
        if last.get().is_empty() {
            last.remove();
        }
        self.held = (self.held.0 - 1, self.held.1 - text.len() as u64);
        Some((text, priority))
    }

    /// A task does not wait any more.
    pub fn forget(&mut self, tid: Tid) {
        self.receivers.retain(|receiver| *receiver != tid);
        self.senders.retain(|(sender, _)| *sender != tid);
    }
}

/// All queues of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MqQueues {
    /// The queues that have a name or are open.
    pub all: Arena<MqId, MqQueue>,
    /// By namespace and name.
    pub names: Map<(IpcNs, Vec<u8>), MqId>,
}

impl Default for MqQueues {
    fn default() -> MqQueues {
        MqQueues { all: Arena::weighed(), names: Map::new() }
    }
}

/// `prio` of a task: less goes first. The fair policies go by the nice value.
fn prio(task: &Task) -> i32 {
    match task.urgency() {
        0 => 120 + task.nice,
        urgency => 99 - urgency as i32,
    }
}

impl Node {
    /// Where a task stands that begins to wait: behind the last whose priority is not worse than its own now (wq_add).
    fn mq_place(
        &self,
        tid: Tid,
        mut waiting: impl DoubleEndedIterator<Item = Tid> + ExactSizeIterator,
    ) -> usize {
        let of = |tid: Tid| self.tasks.get(&tid).map_or(0, prio);
        let own = of(tid);
        waiting.rposition(|other| of(other) <= own).map_or(0, |at| at + 1)
    }

    /// A call sleeps until a message comes.
    pub(crate) fn mq_wait(&mut self, id: MqId, tid: Tid) {
        let at = self.mq_place(tid, self.mqueues.all[id].receivers.iter().copied());
        self.mqueues.all[id].receivers.insert(at, tid);
    }

    /// A call sleeps until there is room for its message.
    pub(crate) fn mq_wait_for_room(&mut self, id: MqId, tid: Tid, message: Message) {
        let at = self.mq_place(tid, self.mqueues.all[id].senders.iter().map(|(sender, _)| *sender));
        self.mqueues.all[id].senders.insert(at, (tid, message));
    }

    /// Sends a message to a queue that has room: to the first that waits for one, else into the queue; then whoever asked for it is
    /// told that it is not empty any more (`pipelined_send`, `__do_notify`).
    pub(crate) fn mq_send(&mut self, id: MqId, message: Message, sender: (Pid, u32)) {
        let queue = &mut self.mqueues.all[id];
        if let Some(receiver) = queue.receivers.pop_front() {
            self.ipc_complete(receiver, |progress| *progress = Progress::MqIn(Some(Ok(message))));
            return;
        }
        let first = queue.is_empty();
        queue.put(message);
        let notify = if first { queue.notify.take() } else { None };
        self.notify_object(Object::Mq(id), (c::EPOLLIN | c::EPOLLRDNORM) as u32);
        match notify {
            // "do_mq_notify() accepts sigev_signo == 0", and nothing is sent (`__do_notify`).
            Some(
                Notify { how: Told::Signal(0, _), .. }
                | Notify { by_former: true, how: Told::Signal(..), .. },
            ) => {}
            Some(Notify { pid, how: Told::Signal(signo, value), .. })
                if self.processes.contains_key(&pid) =>
            {
                let (from, uid) = sender;
                let mut info = crate::signal::user_info(signo, SI_MESGQ, from, uid);
                info.fields[1] = value;
                self.send_process(pid, Siginfo { code: SI_MESGQ, ..info });
            }
            Some(Notify { how: Told::Cookie(socket, cookie), .. }) => {
                self.mq_cookie(socket, cookie, WOKEN_UP)
            }
            _ => {}
        }
    }

    /// Sends a cookie to its socket, if that is still open.
    fn mq_cookie(&mut self, id: NetlinkId, mut cookie: [u8; COOKIE], what: u8) {
        let Some(socket) = self.netlinks.get_mut(id) else { return };
        cookie[COOKIE - 1] = what;
        socket.push(Datagram { data: cookie.to_vec(), dump: false });
        self.notify_object(Object::Netlink(id), (c::EPOLLIN | c::EPOLLRDNORM) as u32);
    }

    /// A process runs another program, which did not ask to be told.
    pub(crate) fn mq_forget_program(&mut self, pid: Pid) {
        let asked = |queue: &MqQueue| queue.notify.is_some_and(|notify| notify.pid == pid);
        let queues: Vec<MqId> = self.mqueues.all.iter().filter(|(_, q)| asked(q)).map(|(id, _)| id).collect();
        for id in queues {
            if let Some(notify) = &mut self.mqueues.all[id].notify {
                notify.by_former = true;
            }
        }
    }

    /// Nobody is told of this queue any more (`remove_notification`).
    pub(crate) fn mq_forget_notify(&mut self, id: MqId) {
        if let Some(Notify { how: Told::Cookie(socket, cookie), .. }) = self.mqueues.all[id].notify.take() {
            self.mq_cookie(socket, cookie, REMOVED);
        }
    }

    /// Takes a message out of a queue; the first that waits for room puts its own in.
    pub(crate) fn mq_receive(&mut self, id: MqId) -> Option<Message> {
        let queue = &mut self.mqueues.all[id];
        let message = queue.take()?;
        match queue.senders.pop_front() {
            Some((sender, text)) => {
                queue.put(text);
                self.ipc_complete(sender, |progress| *progress = Progress::MqOut(Some(Ok(()))));
            }
            None => self.notify_object(Object::Mq(id), (c::EPOLLOUT | c::EPOLLWRNORM) as u32),
        }
        Some(message)
    }

    /// An open file description or the name of a queue is gone.
    pub(crate) fn mq_unref(&mut self, id: MqId) {
        let queue = &mut self.mqueues.all[id];
        queue.refs -= 1;
        if queue.refs == 0 {
            self.mqueues.all.remove(id);
        }
    }

    /// A process closes a descriptor of a queue: "if the calling process has attached a notification request to the message queue via
    /// this message queue descriptor, then this request is removed" (mq_close(3); Linux asks for any descriptor of it but one of O_PATH,
    /// which has no function for that).
    pub(crate) fn mq_closed_by(&mut self, file: FileId, pid: Pid) {
        if let Some(File { kind: FileKind::Mq(id), flags, .. }) = self.files.get(file)
            && flags & c::O_PATH == 0
            && let id = *id
            && let Some(queue) = self.mqueues.all.get(id)
            && queue.notify.is_some_and(|notify| notify.pid == pid)
        {
            self.mq_forget_notify(id);
        }
    }

    /// Removes the names of all queues of an IPC namespace, as its end does.
    pub(crate) fn mq_remove_all(&mut self, ns: IpcNs) {
        let theirs: Vec<(IpcNs, Vec<u8>)> =
            self.mqueues.names.keys().filter(|(of, _)| *of == ns).cloned().collect();
        for name in theirs {
            if let Some(id) = self.mqueues.names.remove(&name) {
                self.mq_unref(id);
            }
        }
    }
}

impl Ctx<'_> {
    /// What reading a descriptor of a queue gives (mq_overview(7)).
    pub(crate) fn mq_status(&self, id: MqId) -> String {
        let queue = &self.node.mqueues.all[id];
        let pid = queue.notify.map_or(0, |notify| notify.pid.number_in(self.pid_ns()));
        // SIGEV_SIGNAL is 0, SIGEV_NONE 1, SIGEV_THREAD 2.
        let (kind, signo) = match queue.notify.map(|notify| notify.how) {
            Some(Told::Signal(signo, _)) => (0, signo),
            Some(Told::Nothing) => (1, 0),
            Some(Told::Cookie(..)) => (2, 0),
            None => (0, 0),
        };
        format!("QSIZE:{:<10} NOTIFY:{kind:<5} SIGNO:{signo:<5} NOTIFY_PID:{pid:<6}\n", queue.bytes())
    }
}

/// The result of a call that has slept.
pub type Received = Result<Message, Errno>;

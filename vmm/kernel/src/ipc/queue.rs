//! Message queues (msgsnd(2), msgrcv(2)): messages, and who waits to send or to receive one.

use std::collections::VecDeque;
use std::sync::Arc;

use bloodhound_abi::Errno;

use crate::container::IpcNs;
use crate::ids::{Pid, Tid};
use crate::node::Node;
use crate::wait::Progress;

/// MSGMNB: the bytes that a new queue holds.
pub const MAX_BYTES: u64 = 16384;

/// A message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Its type, at least 1.
    pub kind: i64,
    /// What it says.
    pub text: Arc<Vec<u8>>,
}

/// Which messages a receiver takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// The first one.
    Any,
    /// The first one of this type.
    Kind(i64),
    /// The first one of another type (MSG_EXCEPT).
    Except(i64),
    /// The first one of the lowest type that is not above this one.
    UpTo(i64),
}

impl Select {
    fn takes(self, kind: i64) -> bool {
        match self {
            Select::Any => true,
            Select::Kind(wanted) => kind == wanted,
            Select::Except(other) => kind != other,
            Select::UpTo(most) => kind <= most,
        }
    }
}

/// What a call of msgrcv(2) asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Which message.
    pub select: Select,
    /// The room for its text; a longer one is E2BIG.
    pub room: u64,
    /// MSG_NOERROR: a longer one is cut.
    pub cut: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Receiver {
    tid: Tid,
    request: Request,
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    messages: VecDeque<Message>,
    /// Bytes of all messages.
    pub bytes: u64,
    /// How many it takes.
    pub max_bytes: u64,
    /// When the last message was sent, seconds since 1970.
    pub stime: u64,
    /// When the last one was received.
    pub rtime: u64,
    /// Who sent last.
    pub sender: Option<Pid>,
    /// Who received last.
    pub receiver: Option<Pid>,
    receivers: VecDeque<Receiver>,
    senders: VecDeque<Tid>,
}

impl Default for Queue {
    fn default() -> Queue {
        Queue {
            messages: VecDeque::new(),
            bytes: 0,
            max_bytes: MAX_BYTES,
            stime: 0,
            rtime: 0,
            sender: None,
            receiver: None,
            receivers: VecDeque::new(),
            senders: VecDeque::new(),
        }
    }
}

impl Queue {
    /// How many messages are in it.
    pub fn len(&self) -> u64 {
        self.messages.len() as u64
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Whether a text of so many bytes fits (`msg_fits_inqueue`).
    pub fn fits(&self, bytes: u64) -> bool {
        self.bytes + bytes <= self.max_bytes && self.len() < self.max_bytes
    }

    /// Sends a message. The first receiver that waits for such a one gets it at once; those before it whose room is too small get
    /// E2BIG (`pipelined_send`). Who has a result now.
    pub fn send(&mut self, pid: Pid, message: Message, now: u64) -> Vec<(Tid, Result<Message, Errno>)> {
        (self.sender, self.stime) = (Some(pid), now);
        let mut done = Vec::new();
        let mut at = 0;
        while let Some(receiver) = self.receivers.get(at).cloned() {
            if !receiver.request.select.takes(message.kind) {
                at += 1;
                continue;
            }
            self.receivers.remove(at);
            if receiver.request.room < message.text.len() as u64 && !receiver.request.cut {
                done.push((receiver.tid, Err(Errno::E2BIG)));
                continue;
            }
            // The thread that sleeps is noted here, where receive notes its process (`task_pid` in pipelined_send).
            (self.receiver, self.rtime) = (Some(Pid(receiver.tid.0)), now);
            done.push((receiver.tid, Ok(message)));
            return done;
        }
        self.bytes += message.text.len() as u64;
        self.messages.push_back(message);
        done
    }

    fn find(&self, select: Select) -> Option<usize> {
        match select {
            Select::UpTo(_) => {
                let taken = self.messages.iter().enumerate().filter(|(_, m)| select.takes(m.kind));
                taken.min_by_key(|(at, m)| (m.kind, *at)).map(|(at, _)| at)
            }
            _ => self.messages.iter().position(|m| select.takes(m.kind)),
        }
    }

    /// Takes a message out; `None` if there is no such one. E2BIG.
    pub fn receive(&mut self, pid: Pid, request: &Request, now: u64) -> Option<Result<Message, Errno>> {
        let at = self.find(request.select)?;
        if request.room < self.messages[at].text.len() as u64 && !request.cut {
            return Some(Err(Errno::E2BIG));
        }
        let message = self.messages.remove(at)?;
        self.bytes -= message.text.len() as u64;
        (self.receiver, self.rtime) = (Some(pid), now);
        Some(Ok(message))
    }

    /// The message at a place of the queue, which stays there (MSG_COPY).
    pub fn peek(&self, at: u64) -> Option<&Message> {
        self.messages.get(usize::try_from(at).ok()?)
    }

    /// A call sleeps until there is a message for it.
    pub fn wait(&mut self, tid: Tid, request: Request) {
        self.receivers.push_back(Receiver { tid, request });
    }

    /// A call sleeps until its message fits. It keeps its place.
    pub fn wait_for_room(&mut self, tid: Tid) {
        if !self.senders.contains(&tid) {
            self.senders.push_back(tid);
        }
    }

    /// A task does not wait any more.
    pub fn forget(&mut self, tid: Tid) {
        self.receivers.retain(|receiver| receiver.tid != tid);
        self.senders.retain(|sender| *sender != tid);
    }

    /// Who waits to send, first come first.
    pub fn senders(&self) -> Vec<Tid> {
        self.senders.iter().copied().collect()
    }

    /// Who waits to receive, first come first.
    pub fn receivers(&self) -> Vec<Tid> {
        self.receivers.iter().map(|receiver| receiver.tid).collect()
    }

    /// Who waits to receive, first come first; nobody does afterwards.
    pub fn take_receivers(&mut self) -> Vec<Tid> {
        self.receivers.drain(..).map(|receiver| receiver.tid).collect()
    }
}

impl Node {
    /// A call that waits for a message has its result.
    pub(crate) fn message_received(&mut self, tid: Tid, result: Result<Message, Errno>) {
        self.ipc_complete(tid, |progress| *progress = Progress::MessageIn(Some(result)));
    }

    /// There may be room in a queue, or the queue is gone: those that wait to send look again.
    pub(crate) fn room_for_messages(&mut self, ns: IpcNs, id: i32) {
        let senders = self.sysv.of(ns).queues.get(id).map(|queue| queue.item.senders()).unwrap_or_default();
        for tid in senders {
            self.wake_if_blocked(tid);
        }
    }
}

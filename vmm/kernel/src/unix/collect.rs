//! Descriptions that are in messages: how many each user has there, and the collector of those that nobody can receive any more.
//!
//! Key type: [`Flights`]. A socket that is only held by a message in its own queue, or two that hold each other so, can be neither
//! received from nor closed: unix_gc of Linux finds them. Linux looks when a socket is closed, and when there are many. Here it looks when
//! as many sockets were closed as there are descriptions in messages, and when those are twice as many as it left the last time: then it
//! costs no more than what programs have done meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use super::UnixSockets;
use crate::file::FileKind;
use crate::ids::*;
use crate::node::Node;

/// Descriptions in messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flights {
    by_user: BTreeMap<u32, u64>,
    total: u64,
    /// In whose queues they are, and how many in each.
    carriers: BTreeMap<UnixId, u64>,
    /// How many the collector left when it last looked.
    left: u64,
    /// How many sockets were closed since.
    closed: u64,
}

fn change<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K, more: u64, less: u64) {
    let count = counts.get(&key).copied().unwrap_or(0) + more - less;
    if count == 0 {
        counts.remove(&key);
    } else {
        counts.insert(key, count);
    }
}

impl Flights {
    /// `count` of a user's come into a queue.
    pub(super) fn sent(&mut self, to: UnixId, user: u32, count: usize) {
        if count > 0 {
            let count = count as u64;
            self.total += count;
            change(&mut self.by_user, user, count, 0);
            change(&mut self.carriers, to, count, 0);
        }
    }

    /// So many leave it.
    pub(super) fn landed(&mut self, at: UnixId, user: u32, count: usize) {
        if count > 0 {
            let count = count as u64;
            self.total -= count;
            change(&mut self.by_user, user, 0, count);
            change(&mut self.carriers, at, 0, count);
        }
    }

    /// How many a user has in messages.
    pub(crate) fn of_user(&self, user: u32) -> u64 {
        self.by_user.get(&user).copied().unwrap_or(0)
    }

    /// A socket was closed.
    pub(super) fn closed(&mut self) {
        self.closed += 1;
    }

    fn is_due(&self) -> bool {
        /// UNIX_INFLIGHT_TRIGGER_GC.
        const MANY: u64 = 16_000;
        self.total > 0 && self.closed >= self.total || self.total >= MANY.max(2 * self.left)
    }
}

impl UnixSockets {
    /// The queues of a socket: its own, and those of connections that it has not accepted.
    fn queues(&self, id: UnixId) -> impl Iterator<Item = UnixId> + '_ {
        let pending = self.sockets.get(id).into_iter().flat_map(|socket| socket.pending.iter().copied());
        std::iter::once(id).chain(pending)
    }

    fn files_in(&self, queue: UnixId) -> impl Iterator<Item = FileId> + '_ {
        let messages = self.sockets.get(queue).into_iter().flat_map(|socket| socket.queue.iter());
        messages.flat_map(|message| message.files.iter().copied())
    }

    /// Takes the messages with descriptions out of a queue: whole, so that they do not count as unread when its socket is closed for that (unix_gc purges
    /// them before it lets go of what they hold).
    fn strip(&mut self, queue: UnixId) {
        while let Some(socket) = self.sockets.get(queue)
            && let Some(place) = socket.queue.iter().position(|message| !message.files.is_empty())
        {
            self.unlink(queue, place);
        }
    }
}

impl Node {
    /// Looks for descriptions that can be reached through each other's messages only, if that is due, and drops them.
    pub(super) fn collect_unix(&mut self) {
        if !self.unix.flights.is_due() {
            return;
        }
        for socket in self.unreachable_unix() {
            for queue in self.unix.queues(socket).collect::<Vec<_>>() {
                self.unix.strip(queue);
            }
        }
        (self.unix.flights.left, self.unix.flights.closed) = (self.unix.flights.total, 0);
    }

    /// Sockets of which every reference is in a message that nobody can receive.
    fn unreachable_unix(&self) -> Vec<UnixId> {
        let mut held: BTreeMap<FileId, u32> = BTreeMap::new();
        for file in self.unix.flights.carriers.keys().flat_map(|carrier| self.unix.files_in(*carrier)) {
            *held.entry(file).or_default() += 1;
        }
        let socket = |file: FileId| match self.files[file].kind {
            FileKind::Unix(id) => Some(id),
            _ => None,
        };
        let only_held = held.iter().filter(|(file, count)| self.files[**file].refs == **count);
        let mut doubtful: BTreeSet<UnixId> = only_held.filter_map(|(file, _)| socket(*file)).collect();
        // Whoever else has a queue can receive from it, and from what comes out of it.
        let theirs: BTreeSet<UnixId> = doubtful.iter().flat_map(|id| self.unix.queues(*id)).collect();
        let mut reached: Vec<UnixId> =
            self.unix.flights.carriers.keys().copied().filter(|carrier| !theirs.contains(carrier)).collect();
        while let Some(queue) = reached.pop() {
            for id in self.unix.files_in(queue).filter_map(socket) {
                if doubtful.remove(&id) {
                    reached.extend(self.unix.queues(id));
                }
            }
        }
        // Most hold nothing: they go with the message that they are in.
        let carries =
            |id: &UnixId| self.unix.queues(*id).any(|queue| self.unix.flights.carriers.contains_key(&queue));
        doubtful.into_iter().filter(carries).collect()
    }
}

#[cfg(test)]
mod tests;

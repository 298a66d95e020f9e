//! Buffers of pipes that are moved as such (splice(2), tee(2), vmsplice(2), sendfile(2)).

use super::{Pipe, Slot};
use crate::ctx::Ctx;
use crate::epoll::{UNKEYED_READERS, UNKEYED_WRITERS};
use crate::ids::*;
use crate::node::Node;
use crate::wait::Object;

impl Pipe {
    /// The first bytes, at most `max` and of at most so many buffers.
    pub(crate) fn peek(&self, max: u64, buffers: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for slot in self.slots.iter().take(buffers) {
            let n = (max - out.len() as u64).min(slot.left() as u64) as usize;
            out.extend_from_slice(&slot.bytes[slot.read..slot.read + n]);
        }
        out
    }

    /// The first bytes of the first buffer, at most `max`.
    pub(crate) fn front_part(&self, max: u64) -> Option<Vec<u8>> {
        self.front().map(|front| front[..(front.len() as u64).min(max) as usize].to_vec())
    }

    /// Takes the first `n` bytes away; whether a buffer has become free.
    pub(crate) fn consume(&mut self, n: u64) -> bool {
        let (before, mut left) = (self.slots.len(), n as usize);
        while let Some(first) = self.slots.front_mut()
            && left > 0
        {
            let part = first.left().min(left);
            first.read += part;
            left -= part;
            if first.left() == 0 {
                self.slots.pop_front();
            }
        }
        self.slots.len() < before
    }

    /// Adds a buffer that belongs to somebody else as well: later writes add nothing to it.
    pub(crate) fn push_page(&mut self, bytes: Vec<u8>) {
        self.slots.push_back(Slot { bytes, read: 0, packet: false, merges: false });
    }

    /// A copy of the first `max` bytes of a buffer. It shares its page with the other one, so that nothing is added to it.
    fn part(slot: &Slot, max: u64) -> Slot {
        let n = (slot.left() as u64).min(max) as usize;
        let bytes = slot.bytes[slot.read..slot.read + n].to_vec();
        Slot { bytes, read: 0, packet: slot.packet, merges: false }
    }

    /// Takes the first buffer, or its first `max` bytes.
    fn take_slot(&mut self, max: u64) -> Option<Slot> {
        let first = self.slots.front_mut()?;
        if first.left() as u64 <= max {
            return self.slots.pop_front();
        }
        let part = Pipe::part(first, max);
        first.read += max as usize;
        Some(part)
    }
}

impl Node {
    /// Tells that something was put into a pipe (`wakeup_pipe_readers`).
    pub(crate) fn pipe_filled(&mut self, pipe: PipeId) {
        self.notify_object(Object::Pipe(pipe), UNKEYED_READERS);
        self.pipe_async(pipe, true);
    }

    /// Tells that a pipe has more room (`wakeup_pipe_writers`).
    pub(crate) fn pipe_drained(&mut self, pipe: PipeId) {
        self.notify_object(Object::Pipe(pipe), UNKEYED_WRITERS);
        self.pipe_async(pipe, false);
    }
}

impl Ctx<'_> {
    /// Puts pages of a file into a pipe that has room for them; the first ends where a page of the file does.
    pub(crate) fn pipe_splice(&mut self, pipe: PipeId, data: &[u8], first: usize) {
        let (head, rest) = data.split_at(first.min(data.len()));
        for page in std::iter::once(head).chain(rest.chunks(super::PIPE_BUF)).filter(|page| !page.is_empty())
        {
            self.node.pipes[pipe].push_page(page.to_vec());
        }
        if !data.is_empty() {
            self.node.pipe_filled(pipe);
        }
    }

    /// Takes away what was passed on.
    pub(crate) fn pipe_consume(&mut self, pipe: PipeId, n: u64) {
        if self.node.pipes[pipe].consume(n) {
            self.node.pipe_drained(pipe);
        }
    }

    /// Moves buffers from one pipe to another (`splice_pipe_to_pipe`); how many bytes that was.
    pub(crate) fn pipe_to_pipe(&mut self, from: PipeId, to: PipeId, len: u64) -> u64 {
        let (mut done, before) = (0, self.node.pipes[from].free_slots());
        while done < len && self.node.pipes[to].free_slots() > 0 {
            let Some(slot) = self.node.pipes[from].take_slot(len - done) else { break };
            done += slot.left() as u64;
            self.node.pipes[to].slots.push_back(slot);
        }
        if done > 0 {
            self.node.pipe_filled(to);
        }
        if self.node.pipes[from].free_slots() > before {
            self.node.pipe_drained(from);
        }
        done
    }

    /// Copies buffers of a pipe to another one (`link_pipe`); how many bytes that was.
    pub(crate) fn pipe_tee(&mut self, from: PipeId, to: PipeId, len: u64) -> u64 {
        let mut done = 0;
        for slot in self.node.pipes[from].slots.clone() {
            if done == len || self.node.pipes[to].free_slots() == 0 {
                break;
            }
            let part = Pipe::part(&slot, len - done);
            done += part.left() as u64;
            self.node.pipes[to].slots.push_back(part);
        }
        if done > 0 {
            self.node.pipe_filled(to);
        }
        done
    }
}

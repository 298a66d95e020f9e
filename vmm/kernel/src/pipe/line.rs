//! Who sleeps at the ends of a pipe, first come first: Linux wakes one of those who read, or write, and each of them wakes the next one when there is more
//! (`wake_next_reader` and `wake_next_writer` of fs/pipe.c).
//!
//! Here all who sleep are woken, as for all objects, and run in any order; so one that runs before another who came sooner sleeps on. Key type: [`Lines`].
//! A place counts as long as its task is in the call that took it.

use std::collections::VecDeque;

use bloodhound_abi::consts as c;

use crate::ctx::Ctx;
use crate::ids::*;
use crate::node::Node;
use crate::wait::{Object, Wait, WaitOn};

/// With so many places those are looked for that nobody has any more.
const MANY: usize = 16;

/// An end of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Read,
    Write,
}

/// The places of those who sleep in read(2) or write(2), in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Lines {
    places: [VecDeque<(u64, Tid)>; 2],
    next: u64,
}

impl Lines {
    fn take(&mut self, end: End, tid: Tid) -> u64 {
        self.next += 1;
        self.places[end as usize].push_back((self.next, tid));
        self.next
    }

    fn leave(&mut self, end: End, place: u64) {
        self.places[end as usize].retain(|(other, _)| *other != place);
    }
}

impl Node {
    /// Whether a task is in the call of a place of this pipe, asleep or woken and not run since.
    fn is_in_line(&self, pipe: PipeId, place: u64, tid: Tid) -> bool {
        let blocked = self.call_of(tid);
        let on = WaitOn::Object(Object::Pipe(pipe));
        blocked.is_some_and(|blocked| blocked.wait.place == Some(place) && blocked.wait.on.contains(&on))
    }
}

impl Ctx<'_> {
    /// Whether somebody sleeps at the end who came before the caller, if it has slept there.
    pub(super) fn is_behind(&self, pipe: PipeId, end: End) -> bool {
        let Some(own) = self.own_place() else { return false };
        let line = &self.node.pipes[pipe].lines.places[end as usize];
        let mut before = line.iter().take_while(|(place, _)| *place < own);
        before.any(|(place, tid)| self.node.is_in_line(pipe, *place, *tid))
    }

    /// The wait of a caller that sleeps: at the place that it has, or at the last one if it has none, or had its turn and has moved something.
    pub(super) fn line_up(&mut self, pipe: PipeId, end: End, had_turn: bool) -> Wait {
        let own = self.own_place();
        let place = match own {
            Some(place) if !had_turn => place,
            _ => {
                self.forget_places(pipe, end, own);
                self.node.pipes[pipe].lines.take(end, self.tid)
            }
        };
        Wait { place: Some(place), ..Wait::object(Object::Pipe(pipe)) }
    }

    /// A call ends that may have slept: then the next one at the same end is woken if there is something for it, and so is who watches for that.
    pub(super) fn leave_line(&mut self, pipe: PipeId, end: End) {
        let Some(place) = self.own_place() else { return };
        let pipe_now = &mut self.node.pipes[pipe];
        pipe_now.lines.leave(end, place);
        let (more, events) = match end {
            End::Read => (!pipe_now.is_empty(), c::EPOLLIN | c::EPOLLRDNORM),
            End::Write => (pipe_now.free_slots() > 0, c::EPOLLOUT | c::EPOLLWRNORM),
        };
        if more {
            self.node.notify_object(Object::Pipe(pipe), events as u32);
        }
    }

    fn own_place(&self) -> Option<u64> {
        self.resumed.as_ref().and_then(|resumed| resumed.wait.place)
    }

    /// Forgets the caller's place, and where there are many those of calls that a signal has ended.
    fn forget_places(&mut self, pipe: PipeId, end: End, own: Option<u64>) {
        let lines = &mut self.node.pipes[pipe].lines;
        if let Some(own) = own {
            lines.leave(end, own);
        }
        let line = &mut lines.places[end as usize];
        if line.len() < MANY || !line.len().is_power_of_two() {
            return;
        }
        let mut line = std::mem::take(line);
        line.retain(|(place, tid)| self.node.is_in_line(pipe, *place, *tid));
        self.node.pipes[pipe].lines.places[end as usize] = line;
    }
}

//! Who sleeps for the same thing, first come first: where Linux wakes one of those who read a pipe, accept connections or receive datagrams
//! (`prepare_to_wait_exclusive`), and where one that goes on wakes the next (`wake_next_reader` and `wake_next_writer` of fs/pipe.c).
//!
//! Here all who sleep are woken, as for all objects, and run in any order; so one that runs before others who came sooner sleeps on, unless there is
//! something for it as well. Key type: [`Lines`]. A place counts as long as its task is in the call that took it. Neighbours: `pipe`,
//! `sys::socket` and `sys::message`, which ask; `dispatch`, which takes the place of a call that ends.

use std::collections::VecDeque;

use bloodhound_persistent::Map;

use crate::ctx::Ctx;
use crate::ids::*;
use crate::node::Node;
use crate::task::TaskState;
use crate::wait::{Object, Wait, WaitOn};

/// What is waited for at an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    /// Something to take: bytes, a datagram, a connection.
    Read,
    /// Room.
    Write,
}

/// Where a task stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    object: Object,
    number: u64,
}

impl Wait {
    /// The place of who waits so.
    pub(crate) fn in_line(&self) -> Option<Place> {
        match (self.place, self.on.first()) {
            (Some(number), Some(WaitOn::Object(object))) => Some(Place { object: *object, number }),
            _ => None,
        }
    }
}

/// The places of those who sleep, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lines {
    places: Map<(Object, End), VecDeque<(u64, Tid)>>,
    /// Things at an object that a sleeper has looked at and left there (MSG_PEEK): nobody is woken for them any more.
    looked_at: Map<Object, usize>,
    next: u64,
}

impl Lines {
    fn take(&mut self, object: Object, end: End, tid: Tid) -> u64 {
        self.next += 1;
        self.places.get_or_default((object, end)).push_back((self.next, tid));
        self.next
    }

    fn leave(&mut self, object: Object, place: u64) {
        for end in [End::Read, End::Write] {
            let Some(line) = self.places.get_mut(&(object, end)) else { continue };
            line.retain(|(other, _)| *other != place);
            if line.is_empty() {
                self.places.remove(&(object, end));
                self.looked_at.remove(&object);
            }
        }
    }

    /// How many of so many things sleepers are woken for.
    fn woken_for(&mut self, object: Object, things: usize) -> usize {
        let Some(seen) = self.looked_at.get_mut(&object) else { return things };
        // Somebody who did not sleep has taken the others.
        *seen = things.min(*seen);
        things - *seen
    }
}

impl Node {
    /// Whether a task is in the call of a place, asleep or woken and not run since. Who is stopped holds up nobody.
    fn is_in_line(&self, object: Object, place: u64, tid: Tid) -> bool {
        let own = Some(Place { object, number: place });
        let stopped = matches!(self.tasks.get(&tid).map(|task| &task.state), Some(TaskState::Stopped));
        !stopped && self.call_of(tid).is_some_and(|blocked| blocked.wait.in_line() == own)
    }

    /// Takes the place of a call that ends, or has another one now.
    pub(crate) fn leave_line(&mut self, place: Option<Place>) {
        if let Some(Place { object, number }) = place {
            self.lines.leave(object, number);
        }
    }

    /// A call has ended without its turn that had a place: those behind it look again.
    pub(crate) fn give_up_place(&mut self, place: Option<Place>) {
        if let Some(place) = place {
            self.leave_line(Some(place));
            self.look_again(place);
        }
    }

    /// Wakes those who sleep for the same as who has, or had, this place.
    pub(crate) fn look_again(&mut self, place: Place) {
        self.notify(WaitOn::Object(place.object));
    }
}

impl Ctx<'_> {
    /// Whether the caller has slept there, and all of so many things are for others who came before it.
    pub(crate) fn is_behind(&self, object: Object, end: End, things: usize) -> bool {
        let Some(own) = self.own_place() else { return false };
        let line = self.node.lines.places.get(&(object, end)).into_iter().flatten();
        let before = line.take_while(|(place, _)| *place < own);
        let waiting = before.filter(|(place, tid)| self.node.is_in_line(object, *place, *tid));
        waiting.take(things).count() == things
    }

    /// As [`Ctx::is_behind`], of things that can be looked at without taking them.
    pub(crate) fn is_behind_for(&mut self, object: Object, things: usize) -> bool {
        let things =
            if self.own_place().is_some() { self.node.lines.woken_for(object, things) } else { things };
        self.is_behind(object, End::Read, things)
    }

    /// The caller has got a thing. If it has only looked at it (`peek`) and has slept for that, the next one sleeps on until another thing comes;
    /// and who takes something without having slept takes what nobody is woken for.
    pub(crate) fn has_got(&mut self, object: Object, peek: bool) {
        let slept = self.own_place().is_some();
        let looked_at = &mut self.node.lines.looked_at;
        if peek && slept {
            *looked_at.get_or_default(object) += 1;
        } else if !peek
            && !slept
            && let Some(seen) = looked_at.get_mut(&object)
        {
            *seen = seen.saturating_sub(1);
        }
    }

    /// The wait of a caller that sleeps, with the place that it has, or with the last one if it has none, or had its turn.
    pub(crate) fn line_up(&mut self, object: Object, end: End, had_turn: bool, wait: Wait) -> Wait {
        let place = match self.own_place() {
            Some(place) if !had_turn => place,
            _ => self.node.lines.take(object, end, self.tid),
        };
        Wait { place: Some(place), ..wait }
    }

    /// The place of a caller that has slept.
    pub(crate) fn own_place(&self) -> Option<u64> {
        self.resumed.as_ref().and_then(|resumed| resumed.wait.place)
    }
}

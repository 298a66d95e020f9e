//! The counters of one space ([`Counting`]): which stop points are counted at native speed, and what that takes in the space.
//!
//! A counter's jump stands in the copy of a page that is shown with stop points ([`super::stops`]), but only while the space
//! runs: whoever looks at the code in between sees the stop point. Its pages stay mapped until the program's next trap that may change what it has
//! mapped ([`Counting::leave`]).
//!
//! Neighbours: [`super::counter`] makes the code; [`super::WithCodePoints`] runs it.

use std::collections::{BTreeMap, BTreeSet};

use bloodhound_abi::exception::vector;
use bloodhound_frames::FRAME_SIZE;

use super::counter::{Counter, Inside, JUMP, LOOKED_AT, Site, heads_of};
use super::stops::Stopping;
use crate::extents::Extents;
use crate::{Exception, Mapping, Prot, StopPoint, Stops, Trap};

const PAGE: u64 = FRAME_SIZE as u64;

/// Passes that must be left for a counter to be worth its while.
const WORTH: u64 = 32;
/// Passes by traps after which a counter is made.
const OFTEN: u32 = 4;
/// Stop points of a space that may be counted so, at most.
const MOST: usize = 1024;

/// A stop point that is passed often.
#[derive(Default)]
struct Passed {
    /// How often, by traps, since the program's last trap of its own.
    times: u32,
    /// What is known to be executed before it ([`StopPoint::straight`]).
    straight: u8,
    counter: Option<Counter>,
    /// No counter can be made of what is known.
    refused: bool,
}

/// A counter whose jump stands in the code.
struct Shown {
    /// The stop point.
    counted: u64,
    /// What the jump replaces.
    replaced: [u8; JUMP as usize],
}

/// See the module's text.
#[derive(Default)]
pub(super) struct Counting {
    /// By address.
    passed: BTreeMap<u64, Passed>,
    shown: Vec<Shown>,
    /// Pages with counters that were mapped.
    mapped: BTreeSet<u64>,
}

impl Counting {
    /// A stop point was passed by a trap.
    pub fn passed(&mut self, address: u64, stops: &Stops) {
        let Some(point) = point(address, stops).filter(|point| point.passes >= WORTH) else { return };
        if stops.free.is_empty() || self.passed.len() >= MOST && !self.passed.contains_key(&address) {
            return;
        }
        let passed = self.passed.entry(address).or_default();
        passed.times += 1;
        if point.straight > passed.straight {
            (passed.straight, passed.refused) = (point.straight, false);
        }
    }

    /// Whether any of these points may have to be counted at native speed.
    pub fn wanted(&self, stops: &Stops) -> bool {
        !stops.free.is_empty() && !self.passed.is_empty()
    }

    /// Whether a task is amid what the jump of a counter replaces, so that the counter cannot be shown until the task is out of there.
    pub fn is_amid(&self, rip: u64, stops: &Stops) -> bool {
        let near =
            self.passed.range(rip.saturating_sub(LOOKED_AT as u64)..rip.saturating_add(LOOKED_AT as u64));
        let mut counters = near.filter_map(|(at, passed)| Some((*at, passed.counter.as_ref()?)));
        counters.any(|(at, counter)| counter.hides(rip) && left(at, stops).is_some_and(|left| left >= WORTH))
    }

    /// Puts the jumps of counters into the code for stop points that are passed often, before a run from `rip`; appends to `maps` what
    /// has to be mapped.
    pub fn show(
        &mut self,
        (memory, stopping): (&Extents, &Stopping),
        stops: &Stops,
        rip: u64,
        maps: &mut Vec<Mapping>,
    ) {
        let often = self.passed.iter().filter(|(_, passed)| passed.times >= OFTEN).map(|(at, _)| *at);
        for address in often.collect::<Vec<u64>>() {
            let Some(left) = left(address, stops).filter(|left| *left >= WORTH) else { continue };
            self.make(address, stopping, &stops.free);
            let Some(counter) = self.passed.get(&address).and_then(|passed| passed.counter.as_ref()) else {
                continue;
            };
            let head = counter.site.head;
            let beside = |other: u64| other.abs_diff(head) < LOOKED_AT as u64;
            // A kept point is passed by a trap.
            let kept = stopping.keeps_any(head, LOOKED_AT as u64);
            if kept || counter.hides(rip) || self.shown_counters().any(|counter| beside(counter.site.head)) {
                continue;
            }
            let (page, code, data) = counter.pages();
            for (addr, frame_offset, prot) in [(page, code, Prot::RX), (page + PAGE, data, Prot::RW)] {
                if memory.get(addr) != Some((frame_offset, prot)) {
                    maps.push(Mapping { addr, frame_offset, pages: 1, prot });
                }
            }
            counter.set_left(left);
            if let Some(replaced) = stopping.replace(head, counter.jump()) {
                self.mapped.insert(page);
                self.shown.push(Shown { counted: address, replaced });
            }
        }
    }

    /// Makes a counter for a stop point, if there is none that is right.
    fn make(&mut self, address: u64, stopping: &Stopping, free: &[(u64, u64)]) {
        let Some(passed) = self.passed.get(&address) else { return };
        if let Some(counter) = &passed.counter {
            let same = stopping.code(counter.site.head).is_some_and(|bytes| counter.is_of(&bytes));
            if same && (self.mapped.contains(&counter.pages().0) || counter.fits(free)) {
                return;
            }
        } else if passed.refused {
            return;
        }
        let taken = |page: u64| {
            let of = |counter: &Counter| (counter.pages().0..=counter.pages().0 + PAGE).contains(&page);
            self.passed.values().filter_map(|passed| passed.counter.as_ref()).any(of)
        };
        let before = instructions_before(address, passed.straight, stopping);
        let made = heads_of(&before, address).find_map(|head| {
            let site = Site { head, counted: address };
            Counter::new(site, &stopping.code(head)?, |at| stopping.is_the_programs(at), free, taken)
        });
        if let Some(passed) = self.passed.get_mut(&address) {
            passed.refused = made.is_none();
            passed.counter = made;
        }
    }

    fn shown_counters(&self) -> impl Iterator<Item = &Counter> {
        self.shown.iter().filter_map(|shown| self.passed.get(&shown.counted)?.counter.as_ref())
    }

    /// The site of the counter in whose code an address is, and where there.
    pub fn inside(&self, rip: u64) -> Option<(Site, Inside)> {
        let mut all = self.shown_counters().map(|counter| (counter.site, counter.inside(rip)));
        all.find(|(_, inside)| *inside != Inside::No)
    }

    /// Whether a trap came of what a jump hides: the instruction there is to be executed.
    pub fn hid(&self, rip: u64, trap: Trap) -> bool {
        let invalid = matches!(trap, Trap::Exception(Exception { vector: vector::UD, .. }));
        invalid && self.shown_counters().any(|counter| counter.hides(rip))
    }

    /// A task that was counted at a site has not come to the counted instruction.
    pub fn take_back(&self, site: Site) {
        if let Some(counter) = self.shown_counters().find(|counter| counter.site == site) {
            counter.set_left(counter.left() + 1);
        }
    }

    /// After a run: the stop points are there again, and know how often they were passed.
    pub fn hide(&mut self, stopping: &Stopping, stops: &mut Stops) {
        for Shown { counted, replaced } in self.shown.drain(..) {
            let Some(counter) = self.passed.get(&counted).and_then(|passed| passed.counter.as_ref()) else {
                continue;
            };
            stopping.replace(counter.site.head, replaced);
            if let Ok(at) = stops.points.binary_search_by_key(&counted, |point| point.address) {
                stops.points[at].passes = counter.left();
            }
        }
    }

    /// Whether anything is shown.
    pub fn shows(&self) -> bool {
        !self.shown.is_empty()
    }

    /// The program may change what it has mapped before it runs again: the pages to unmap.
    pub fn leave(&mut self, trap: Trap) -> BTreeSet<u64> {
        match trap {
            Trap::Step
            | Trap::BudgetSpent
            | Trap::StopPoint { .. }
            | Trap::KeptPoint { .. }
            | Trap::PageFault { .. } => BTreeSet::new(),
            _ => {
                self.passed.retain(|_, passed| passed.counter.is_some());
                if self.passed.len() >= MOST {
                    self.passed.clear();
                }
                for passed in self.passed.values_mut() {
                    passed.times = 0;
                }
                self.end()
            }
        }
    }

    /// The pages to unmap, so that nothing is left of the counters in the space.
    pub fn end(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.mapped)
    }
}

fn point(address: u64, stops: &Stops) -> Option<&StopPoint> {
    let at = stops.points.binary_search_by_key(&address, |point| point.address).ok()?;
    Some(&stops.points[at])
}

/// How many passes of a stop point are left.
fn left(address: u64, stops: &Stops) -> Option<u64> {
    point(address, stops).map(|point| point.passes)
}

/// The instructions in so many bytes before an address, the first of which begins there.
fn instructions_before(address: u64, straight: u8, stopping: &Stopping) -> Vec<u64> {
    let mut before = Vec::new();
    let mut at = address.saturating_sub(straight.into());
    while at < address {
        before.push(at);
        let Some(next) = stopping.next(at) else { return Vec::new() };
        at = next;
    }
    before
}

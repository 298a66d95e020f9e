//! The vDSO: clock reads without a trap.
//!
//! The page [vvar] lies right below the image and is shared by all processes of a node. It holds the node's clock while
//! a task runs: each read in user code moves it on by the price of a read ([`Costs::time_read`]) with one instruction,
//! so a read costs the same as one that traps. [`Node::lend_clock`] writes the page before a task runs,
//! [`Node::take_clock`] charges what was read when it has trapped. A program that does nothing but look at the clock
//! enters the kernel at every [`READS`]th read, so others get their turns and timers fire.
//!
//! Computation costs no virtual time, so a program that computes until a time comes, and looks at the clock after each piece, would
//! get there by the prices of its looks alone. So a look costs more the longer a node does nothing else: [`Node::look_price`].
//!
//! Neighbours: [`image`] (the ELF object), `bloodhound-sim`'s step (calls the two), [`crate::mm::fault`] (maps pages).
//!
//! [`Costs::time_read`]: crate::node::Costs::time_read

mod image;

use std::sync::Arc;

use bloodhound_abi::SimTime;
use bloodhound_abi::call::Call;
use bloodhound_abi::consts as c;
use bloodhound_frames::Frame;

use crate::ids::Tid;
use crate::mm::{Backing, Mm, OnFork, PAGE, Vma};
use crate::node::Node;

/// Reads of the clock in a row without a trap.
pub const READS: u64 = 64;
/// How often the price of a look at the clock is doubled at most.
const DOUBLINGS: u64 = 8;
/// Names of the two mappings in /proc/PID/maps.
const VVAR: &str = "[vvar]";
const VDSO: &str = "[vdso]";

/// Places in the page, in bytes; `code.s` knows them too.
const CLOCK: usize = 0;
const LIMIT: usize = 8;
const COST: usize = 16;
const OFFSET: usize = 24;
const TAI: usize = 32;

impl Node {
    /// Maps the vDSO into a fresh address space; its address for AT_SYSINFO_EHDR.
    pub(crate) fn map_vdso(&mut self, mm: &mut Mm) -> Option<u64> {
        if !self.config.vdso {
            return None;
        }
        if self.vdso.is_empty() {
            self.vdso = Arc::new(vec![Frame::from_bytes(&image::build())]);
            self.vvar = Some(Frame::zeroed());
        }
        let at = mm.find_free(0, 2 * PAGE).ok()?;
        let pages =
            [(VVAR, at, c::PROT_READ | c::PROT_WRITE), (VDSO, at + PAGE, c::PROT_READ | c::PROT_EXEC)];
        for (name, start, prot) in pages {
            let backing = Backing::Special(name);
            mm.insert(Vma {
                start,
                end: start + PAGE,
                prot,
                shared: false,
                backing,
                on_fork: OnFork::Copy,
                may_write: false,
                marks: Default::default(),
            });
        }
        mm.vdso = self.vdso.clone();
        Some(at + PAGE)
    }

    /// Gives the clock to the tasks' own reads: before a task runs.
    pub fn lend_clock(&mut self) {
        let (now, cost) = (self.uptime(), self.look_price());
        let Some(vvar) = &mut self.vvar else { return };
        if !vvar.is_unique() {
            // Shared with a clone of the world, which must not see our writes.
            vvar.make_unique();
            self.vvar_moved();
        }
        self.store_clock(&[
            (CLOCK, now),
            (LIMIT, now.saturating_add(READS * cost)),
            (COST, cost),
            (OFFSET, self.realtime().wrapping_sub(now)),
            (TAI, self.tai().wrapping_sub(now)),
        ]);
    }

    /// Takes the clock back and charges the task for its reads: at each trap that the kernel answers with something
    /// that depends on time. Between two instructions of user code, so no read is half done.
    pub fn take_clock(&mut self, tid: Tid) {
        let read = self.lent_clock().since(self.clock);
        if read > 0 {
            // Prices are in the machine's own time, as the page is.
            self.looks = self.looks.saturating_add(self.read_of_page() / self.look_price().max(1));
            self.charge_computed(tid, read);
        }
    }

    /// The price of a look at the clock. It is doubled each time the node has looked [`READS`] times without any other call in between,
    /// up to 256 times the plain one: a wait for a time that is far away is over after some thousand looks, and exceeds its time
    /// by no more than one part in half of [`READS`].
    pub(crate) fn look_price(&self) -> u64 {
        self.config.costs.time_read << (self.looks / READS).min(DOUBLINGS)
    }

    /// Charges a task for a look at the clock that trapped: `rdtsc`.
    pub fn charge_look(&mut self, tid: Tid) {
        let price = self.look_price();
        self.looks = self.looks.saturating_add(1);
        self.charge_computed(tid, price);
    }

    /// A task has made a call: another look at the clock, which costs what looks cost more by now, or something else.
    pub(crate) fn note_looks(&mut self, tid: Tid, call: &Call) {
        if !matches!(call, Call::clock_gettime { .. } | Call::gettimeofday { .. } | Call::time { .. }) {
            self.looks = 0;
            return;
        }
        let more = self.look_price() - self.config.costs.time_read;
        self.looks = self.looks.saturating_add(1);
        if more > 0 {
            self.charge(tid, more);
        }
    }

    /// What the clock shows while a task runs that has it.
    #[must_use]
    pub fn lent_clock(&self) -> SimTime {
        let read = self.read_of_page();
        if read == 0 {
            return self.clock;
        }
        // So late that no clock shows less than a program has read.
        self.time.reaches(self.own_time().after(read)).max(self.clock)
    }

    /// How far reads have moved the clock of the page on, ns of own time.
    fn read_of_page(&self) -> u64 {
        let Some(vvar) = &self.vvar else { return 0 };
        // More than that only a program that writes to the page could have done.
        let most = (READS + 1) * self.look_price();
        vvar.load_u64(CLOCK).saturating_sub(self.uptime()).min(most)
    }

    /// Lends the clock again within a run, after a trap that moved it and was no step.
    pub fn return_clock(&mut self) {
        let now = self.uptime();
        self.store_clock(&[(CLOCK, now)]);
    }

    fn store_clock(&mut self, words: &[(usize, u64)]) {
        let Some(vvar) = &self.vvar else { return };
        for (at, word) in words {
            vvar.write_shared(*at, &word.to_le_bytes());
        }
    }

    /// The page is another frame now: the platform's mappings of it are stale.
    fn vvar_moved(&mut self) {
        for (_, mm) in self.mms.iter_mut() {
            let ranges = mm.vmas().filter(|v| v.backing == Backing::Special(VVAR)).map(|v| v.start);
            for at in ranges.collect::<Vec<_>>() {
                mm.invalidate(at, PAGE);
            }
        }
    }
}

#[cfg(test)]
mod tests;

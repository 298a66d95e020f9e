//! A tiny kernel for tests ([`Guest`]): code and data pages in frames, page faults answered from a table.
//!
//! Neighbours: every set of cases in this crate, and the platforms' own tests and benches.

use std::collections::BTreeMap;

use bloodhound_frames::Frame;
use bloodhound_platform::{
    Mapping, Platform, Probe, Prot, Regs, SpaceId, Spin, Stops, TaskKey, Trap, XState,
};

/// Where test code is.
pub const CODE: u64 = 0x40_0000;
/// Where test data is.
pub const DATA: u64 = 0x50_0000;
/// Where the stack page is; the stack pointer starts at its end.
pub const STACK: u64 = 0x7ff_f000_0000;

/// Bytes of a page.
pub const PAGE: u64 = 4096;

/// Makes a platform on the calling thread; with a number, bound to that processor.
pub type Make<P> = fn(Option<usize>) -> P;

/// Runs to the next trap that is not the watchdog's.
///
/// # Panics
/// On errors of the platform.
pub fn run<P: Platform>(platform: &mut P, space: SpaceId, task: TaskKey, regs: &mut Regs) -> Trap {
    loop {
        match platform.run(space, task, regs, &mut Stops::default()).expect("run") {
            Trap::BudgetSpent => {}
            trap => return trap,
        }
    }
}

/// One task in one space, with three pages: code, data, stack.
pub struct Guest<P> {
    /// What it runs on.
    pub platform: P,
    /// Its space.
    pub space: SpaceId,
    /// Itself.
    pub task: TaskKey,
    /// Its registers.
    pub regs: Regs,
    /// What page faults are answered with, by page address.
    pub pages: BTreeMap<u64, (Frame, Prot)>,
    /// How many faults were answered.
    pub faults: u64,
}

impl<P: Platform> Guest<P> {
    /// A guest on a platform of its own, about to execute `code` (at [`CODE`], at most a page).
    pub fn new(make: Make<P>, code: &[u8]) -> Guest<P> {
        Guest::on(make(None), code)
    }

    /// A guest on a platform that there is, which must not have a space 1.
    ///
    /// # Panics
    /// On errors of the platform.
    pub fn on(platform: P, code: &[u8]) -> Guest<P> {
        let mut pages = BTreeMap::new();
        pages.insert(CODE, (Frame::from_slice(code), Prot::RX));
        pages.insert(DATA, (Frame::zeroed(), Prot::RW));
        pages.insert(STACK, (Frame::zeroed(), Prot::RW));
        let regs = Regs { rip: CODE, rsp: STACK + PAGE, ..Regs::default() };
        let mut guest = Guest { platform, space: SpaceId(1), task: TaskKey(1), regs, pages, faults: 0 };
        guest.platform.load_xstate(guest.space, guest.task, &XState::initial()).expect("load_xstate");
        guest
    }

    /// Drops the space and gives the platform back.
    pub fn end(mut self) -> P {
        self.platform.drop_space(self.space);
        self.platform
    }

    /// Maps a page of the table.
    pub fn map(&mut self, addr: u64) {
        let (frame, prot) = &self.pages[&addr];
        let mapping = Mapping { addr, frame_offset: frame.offset(), pages: 1, prot: *prot };
        self.platform.map(self.space, &[mapping]);
    }

    /// Runs to the next trap. On a busy host the watchdog may come first.
    pub fn trap(&mut self) -> Trap {
        run(&mut self.platform, self.space, self.task, &mut self.regs)
    }

    /// Runs to the next trap that is no fault on a page of the table.
    ///
    /// # Panics
    /// On errors of the platform, and if the same page faults for ever.
    pub fn run(&mut self) -> Trap {
        loop {
            let trap = self.trap();
            match trap {
                Trap::PageFault { addr, access, .. } => {
                    let page = addr & !(PAGE - 1);
                    let Some((_, prot)) = self.pages.get(&page) else { return trap };
                    if access.is_some_and(|access| !prot.allows(access)) {
                        return trap;
                    }
                    self.faults += 1;
                    assert!(self.faults < 10_000, "fault after fault at {addr:#x}, {access:?}");
                    self.map(page);
                }
                _ => return trap,
            }
        }
    }

    /// Probes once whether it is in a loop without side effects.
    ///
    /// # Panics
    /// On errors of the platform.
    pub fn probe(&mut self) -> Spin {
        let mut probe = Probe::default();
        let stops = &mut Stops::default();
        probe.go_on(&mut self.platform, self.space, self.task, &mut self.regs, stops).expect("a probe")
    }

    /// A system call is expected: its number.
    ///
    /// # Panics
    /// If anything else comes.
    pub fn syscall(&mut self) -> u64 {
        match self.run() {
            Trap::Syscall => self.regs.orig_rax,
            other => panic!("expected a system call, got {other:?} at {:#x}", self.regs.rip),
        }
    }
}

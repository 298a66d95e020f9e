//! Stop points whose passes are counted at native speed: they count what traps count, wherever the host stops the task, and the program does
//! not notice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bloodhound_platform::code_points::{STRAIGHT, WithCodePoints};
use bloodhound_platform::decode::{self, End};
use bloodhound_platform::{
    Budget, Mapping, Platform, PlatformError, Prot, Regs, SpaceId, StopPoint, Stops, TaskKey, Trap, XState,
};

use crate::code_points::{INSTRUCTIONS, PROGRAM, by_steps};
use crate::guest::{CODE, DATA, Guest, Make, PAGE, STACK};

/// Rounds of [`LOOP`].
const ROUNDS: u64 = 30_000_000;
/// A loop that uses flags, rcx and what lies below the stack pointer; then the flags, and getpid.
const LOOP: &[u8] = b"\xb9\x80\xc3\xc9\x01\x48\xff\xc3\x48\x89\x5c\x24\xf8\x48\x13\x54\x24\xf8\xff\xc9\x75\xef\x9c\x41\x58\xb8\x27\0\0\0\x0f\x05";
/// Where its instructions begin, and how often they are reached.
const OF_LOOP: [(u64, u64); 6] =
    [(0x5, ROUNDS), (0x8, ROUNDS), (0xd, ROUNDS), (0x12, ROUNDS), (0x14, ROUNDS), (0x16, 1)];

/// Counts how often the platform below runs code.
struct Counted(Box<dyn Platform>, Arc<AtomicU64>);

impl Platform for Counted {
    bloodhound_platform::forward_platform!(0: approach, processor_time, memory, map, unmap, write_protect, mapped, xstate_owner, save_xstate, load_xstate, reset_space, drop_space, evict_all, abilities);

    fn run(
        &mut self,
        space: SpaceId,
        task: TaskKey,
        regs: &mut Regs,
        stops: &mut Stops,
    ) -> Result<Trap, PlatformError> {
        self.1.fetch_add(1, Relaxed);
        self.0.run(space, task, regs, stops)
    }

    fn step(&mut self, space: SpaceId, task: TaskKey, regs: &mut Regs) -> Result<Trap, PlatformError> {
        self.1.fetch_add(1, Relaxed);
        self.0.step(space, task, regs)
    }
}

fn guest<P: Platform + 'static>(make: Make<P>, program: &[u8]) -> (Guest<WithCodePoints>, Arc<AtomicU64>) {
    let runs = Arc::<AtomicU64>::default();
    let counted = Counted(Box::new(make(None)), Arc::clone(&runs));
    (Guest::on(WithCodePoints::new(Box::new(counted)), program), runs)
}

/// What lies between the guest's pages.
fn free() -> Arc<[(u64, u64)]> {
    Arc::new([(PAGE, CODE), (CODE + PAGE, DATA), (DATA + PAGE, STACK)])
}

fn stops(points: impl IntoIterator<Item = (u64, u64)>) -> Stops {
    let point = |(at, passes)| StopPoint::new(CODE + at, passes);
    let budget = Budget(1);
    Stops { points: points.into_iter().map(point).collect(), free: free(), budget, ..Stops::default() }
}

/// Runs to the next trap that is neither a page fault nor the budget's end; how often it was that.
fn to_trap(guest: &mut Guest<WithCodePoints>, stops: &mut Stops) -> (Trap, u32) {
    let mut spent = 0;
    loop {
        let run = guest.platform.run(guest.space, guest.task, &mut guest.regs, stops);
        let regs = &guest.regs;
        assert!((CODE..CODE + PAGE).contains(&regs.rip), "{run:?} at {:#x}, {stops:x?}", regs.rip);
        match run.expect("a run") {
            Trap::PageFault { addr, rip, .. } => {
                assert_eq!(rip, regs.rip);
                guest.map(addr & !(PAGE - 1));
            }
            Trap::BudgetSpent => spent += 1,
            trap => return (trap, spent),
        }
    }
}

/// Passes of each instruction of a long loop are counted exactly, without a trap each, also when the host looks in between.
pub fn long_loops_are_counted_without_traps<P: Platform + 'static>(make: Make<P>) {
    if !crate::steps(&make(None).abilities(), "stop points") {
        return;
    }
    let (mut plain, _) = guest(make, LOOP);
    assert_eq!(to_trap(&mut plain, &mut Stops::default()).0, Trap::Syscall);
    let mut spent = 0;
    for (at, passes) in OF_LOOP {
        let (mut guest, runs) = guest(make, LOOP);
        let mut stops = stops([(at, u64::MAX)]);
        let (trap, times) = to_trap(&mut guest, &mut stops);
        assert_eq!((trap, &guest.regs), (Trap::Syscall, &plain.regs), "{at:#x}");
        assert_eq!(u64::MAX - stops.points[0].passes, passes, "{at:#x}");
        assert!(runs.load(Relaxed) < 20_000, "{at:#x}: {} runs", runs.load(Relaxed));
        spent += times;
    }
    // Where it did not, the host is faster than these loops are long.
    eprintln!("the host looked in between {spent} times");
}

/// A run ends at just the pass that is asked for, with the registers that the program has there, and the loop goes on.
pub fn counters_end_at_the_pass_that_a_point_names<P: Platform + 'static>(make: Make<P>) {
    if !crate::steps(&make(None).abilities(), "stop points") {
        return;
    }
    let address = CODE + 0x14;
    let (mut guest, _) = guest(make, LOOP);
    let mut stops = stops([(0x14, 100_000)]);
    for time in 1..=5_u64 {
        assert_eq!(to_trap(&mut guest, &mut stops).0, Trap::StopPoint { address });
        // Rounds that were begun; the last one has counted rcx down already.
        assert_eq!(
            (guest.regs.rbx, guest.regs.rcx, guest.regs.rip),
            (time * 100_000, ROUNDS - time * 100_000, address)
        );
        stops.points[0].passes = 100_000;
    }
    let (mut plain, _) = self::guest(make, LOOP);
    assert_eq!(to_trap(&mut plain, &mut Stops::default()).0, Trap::Syscall);
    stops.points[0].passes = u64::MAX;
    assert_eq!(to_trap(&mut guest, &mut stops).0, Trap::Syscall);
    assert_eq!(guest.regs, plain.regs);
}

/// What is known to be executed right before an instruction: how many bytes before it that begins.
fn straight(program: &[u8], at: u64) -> u8 {
    let leads_to_it = |from: u64| match decode::stretch(&program[from as usize..], from) {
        End::Branch(branch, _) => branch >= at,
        End::Bytes(_) | End::Trap => false,
    };
    let mut before = INSTRUCTIONS.into_iter().filter(|from| (1..=STRAIGHT).contains(&at.wrapping_sub(*from)));
    let first = before.find(|from| leads_to_it(*from));
    first.map_or(0, |from| (at - from) as u8)
}

/// Instructions of all kinds, those next to each other and those that a counter's jump hides: what single steps see.
pub fn counters_of_all_kinds_of_instructions_count_what_steps_see<P: Platform + 'static>(make: Make<P>) {
    if !crate::steps(&make(None).abilities(), "stop points") {
        return;
    }
    // 50 rounds become a thousand.
    let mut program = PROGRAM.to_vec();
    program[1..3].copy_from_slice(&1000_u16.to_le_bytes());
    let (passes, regs) = by_steps(make, &program);
    let counted = |at: &u64| passes.get(&(CODE + at)).copied().unwrap_or(0);
    let sets = INSTRUCTIONS.iter().map(|at| vec![*at]).chain([INSTRUCTIONS.to_vec()]);
    for (set, before) in sets.flat_map(|set| [(set.clone(), true), (set, false)]) {
        let (mut guest, _) = guest(make, &program);
        let mut stops = stops(set.iter().map(|at| (*at, u64::MAX)));
        if before {
            stops
                .points
                .iter_mut()
                .for_each(|point| point.straight = straight(&program, point.address - CODE));
        }
        stops.counted = Some(CODE);
        assert_eq!(to_trap(&mut guest, &mut stops).0, Trap::Syscall, "{set:x?}");
        assert_eq!(guest.regs, regs, "{set:x?}");
        for (at, point) in set.iter().zip(&stops.points) {
            assert_eq!(u64::MAX - point.passes, counted(at), "{at:#x} of {set:x?}");
        }
    }
}

/// Nothing is left in the space when the program has made a system call, when nothing is counted any more, and where the program has something of its own.
pub fn counters_leave_nothing_behind<P: Platform + 'static>(make: Make<P>) {
    if !crate::steps(&make(None).abilities(), "stop points") {
        return;
    }
    let mapped = |guest: &Guest<WithCodePoints>| {
        let mut all = Vec::<Mapping>::new();
        guest.platform.mapped(guest.space, &mut all);
        all.retain(|mapping| !guest.pages.contains_key(&mapping.addr));
        all.len()
    };
    let (mut guest, _) = guest(make, LOOP);
    let mut counted = stops([(0x14, 100_000)]);
    assert_eq!(to_trap(&mut guest, &mut counted).0, Trap::StopPoint { address: CODE + 0x14 });
    assert!(mapped(&guest) > 0);
    // Another task of the space runs without stop points.
    let regs = guest.regs;
    assert_eq!(guest.trap(), Trap::Syscall);
    assert_eq!(mapped(&guest), 0);
    guest.regs = regs;
    counted.points[0].passes = u64::MAX;
    assert_eq!(to_trap(&mut guest, &mut counted).0, Trap::Syscall);
    assert_eq!((mapped(&guest), counted.points[0].passes), (0, u64::MAX - ROUNDS + 100_000));
    // A page of the program's is never taken, and no free page is no reason to count wrongly.
    let (mut guest, _) = self::guest(make, PROGRAM);
    guest.pages.insert(CODE + (512 << 20), (bloodhound_frames::Frame::zeroed(), Prot::RW));
    let passes = by_steps(make, PROGRAM).0[&(CODE + 0x6e)];
    let mut none = stops([(0x6e, u64::MAX)]);
    none.free = Arc::new([(PAGE, CODE)]);
    assert_eq!(to_trap(&mut guest, &mut none).0, Trap::Syscall);
    assert_eq!((mapped(&guest), none.points[0].passes), (0, u64::MAX - passes));
    guest.platform.load_xstate(guest.space, guest.task, &XState::initial()).expect("load_xstate");
}

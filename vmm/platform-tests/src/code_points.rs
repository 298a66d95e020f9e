//! Stop points and observing points: what they count is what single steps see, and the program does not notice them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_platform::code_points::{FilePoints, Mark, Observed, PageOfFile, WithCodePoints};
use bloodhound_platform::{Platform, Regs, StopPoint, Stops, Trap};

use crate::guest::{CODE, Guest, Make, PAGE};

/// A loop of 50 rounds with jumps by several conditions, by a table and through memory, a call, a locked instruction; then a `loop` of 5
/// rounds, and getpid. Behind it lie a function and the table.
pub(crate) const PROGRAM: &[u8] = b"\xb9\x32\0\0\0\x31\xc0\x48\x8d\x35\x7a\0\0\0\x01\xc8\xf7\xc1\x01\0\0\0\x74\x05\x83\xe8\x03\xeb\x08\
    \x83\xc0\x07\xe8\x5f\0\0\0\x83\xf8\x64\x72\x08\x83\xf9\x14\x7f\x03\x83\xf0\x55\x89\xca\x83\xe2\x01\x48\x63\x14\x96\
    \x48\x01\xf2\xff\xe2\x48\xff\xc3\xeb\x04\x48\x83\xc3\x02\x50\x41\x58\x48\xc7\xc7\0\0\x50\0\x48\x89\x07\xf0\x48\x0f\
    \xc1\x47\x08\x4c\x8d\x0d\x07\0\0\0\x4c\x89\x4f\x10\xff\x67\x10\xff\xc9\x75\xa0\xb9\x05\0\0\0\x49\xff\xc2\xe2\xfb\
    \xb8\x27\0\0\0\x0f\x05\xe9\x7c\xff\xff\xff\x83\xc0\x01\xc3\xb8\xff\xff\xff\xbd\xff\xff\xff";

/// Where its instructions begin.
pub(crate) const INSTRUCTIONS: [u64; 41] = [
    0x0, 0x5, 0x7, 0xe, 0x10, 0x16, 0x18, 0x1b, 0x1d, 0x20, 0x25, 0x28, 0x2a, 0x2d, 0x2f, 0x32, 0x34, 0x37,
    0x3b, 0x3e, 0x40, 0x43, 0x45, 0x49, 0x4a, 0x4c, 0x53, 0x56, 0x5c, 0x63, 0x67, 0x6a, 0x6c, 0x6e, 0x73,
    0x76, 0x78, 0x7d, 0x7f, 0x84, 0x87,
];

/// How often each instruction is reached until the first system call, the first one excepted, and the registers then.
pub(crate) fn by_steps<P: Platform>(make: Make<P>, program: &[u8]) -> (BTreeMap<u64, u64>, Regs) {
    let mut guest = Guest::new(make, program);
    let mut passes = BTreeMap::new();
    loop {
        match guest.platform.step(guest.space, guest.task, &mut guest.regs).expect("a step") {
            Trap::Step => *passes.entry(guest.regs.rip).or_default() += 1,
            Trap::PageFault { addr, .. } => guest.map(addr & !(PAGE - 1)),
            Trap::Syscall => return (passes, guest.regs),
            other => panic!("{other:?} at {:#x}", guest.regs.rip),
        }
    }
}

fn points(passes: impl Fn(u64) -> u64) -> Stops {
    let of = |at: &u64| StopPoint::new(CODE + at, passes(CODE + at));
    Stops { points: INSTRUCTIONS.iter().map(of).collect(), ..Stops::default() }
}

/// Runs to the next trap that is neither a page fault nor the budget's end.
fn to_trap(guest: &mut Guest<WithCodePoints>, stops: &mut Stops) -> Trap {
    loop {
        let run = guest.platform.run(guest.space, guest.task, &mut guest.regs, stops);
        match run.expect("a run") {
            Trap::PageFault { addr, .. } => guest.map(addr & !(PAGE - 1)),
            Trap::BudgetSpent => {}
            trap => return trap,
        }
    }
}

fn guest<P: Platform + 'static>(make: Make<P>) -> Guest<WithCodePoints> {
    Guest::on(WithCodePoints::new(Box::new(make(None))), PROGRAM)
}

/// A point at each instruction counts what single steps see, and changes nothing.
pub fn points_at_all_instructions_count_what_steps_see<P: Platform + 'static>(make: Make<P>) {
    if !crate::steps(&make(None).abilities(), "stop points") {
        return;
    }
    let (passes, regs) = by_steps(make, PROGRAM);
    let mut guest = guest(make);
    let mut stops = points(|_| u64::MAX);
    stops.counted = Some(CODE);
    assert_eq!(to_trap(&mut guest, &mut stops), Trap::Syscall);
    assert_eq!(guest.regs, regs);
    for point in &stops.points {
        let counted = u64::MAX - point.passes;
        assert_eq!(counted, passes.get(&point.address).copied().unwrap_or(0), "{:#x}", point.address - CODE);
    }
    // Without points again: the copy is gone.
    assert_eq!(to_trap(&mut guest, &mut Stops::default()), Trap::Syscall);
    assert_eq!((guest.regs.rip, guest.regs.r10), (regs.rip, regs.r10 + 5));
    let shown = guest.platform.memory(guest.space).and_then(|memory| memory.get(CODE));
    assert_eq!(shown.map(|(offset, _)| offset), Some(guest.pages[&CODE].0.offset()));
}

/// A run ends before the pass that a point names, whatever kind of instruction it is, and goes on from there.
pub fn a_run_ends_at_the_pass_that_a_point_names<P: Platform + 'static>(make: Make<P>) {
    if !crate::steps(&make(None).abilities(), "stop points") {
        return;
    }
    let (passes, regs) = by_steps(make, PROGRAM);
    for (&address, &all) in &passes {
        let mut guest = guest(make);
        let point = StopPoint::new(address, all);
        let mut stops = Stops { points: vec![point], ..Stops::default() };
        assert_eq!(to_trap(&mut guest, &mut stops), Trap::StopPoint { address });
        assert_eq!(guest.regs.rip, address);
        // It has been counted already, and is not reached again before the call.
        stops.points[0].passes = 1;
        let begins_anew = if address == CODE { Trap::StopPoint { address } } else { Trap::Syscall };
        assert_eq!(to_trap(&mut guest, &mut stops), begins_anew, "{:#x}", address - CODE);
        if begins_anew == Trap::Syscall {
            assert_eq!(guest.regs, regs, "{:#x}", address - CODE);
        }
    }
}

/// Observing points in the same pages are reached, are gone then, and do not count as stop points.
pub fn observing_and_stop_points_lie_side_by_side<P: Platform + 'static>(make: Make<P>) {
    if !crate::steps(&make(None).abilities(), "stop points") {
        return;
    }
    let (passes, regs) = by_steps(make, PROGRAM);
    for stop in [0x16, 0x3e, 0x6a, 0x7d] {
        let original = bloodhound_frames::Frame::from_slice(PROGRAM);
        let points = Arc::new(FilePoints::new(INSTRUCTIONS.to_vec()));
        let observed = Arc::<Observed>::default();
        let page =
            PageOfFile { file: [0; 32], points: &points, index: 0, original: &original, shown: &original };
        let frame = observed.frame(page).expect("points");
        let mut platform = WithCodePoints::new(Box::new(make(None)));
        platform.observe(observed, Arc::<Mark>::default());
        let mut guest = Guest::on(platform, PROGRAM);
        guest.pages.get_mut(&CODE).expect("a page").0 = frame;
        let point = StopPoint::new(CODE + stop, u64::MAX);
        let mut stops = Stops { points: vec![point], ..Stops::default() };
        assert_eq!(to_trap(&mut guest, &mut stops), Trap::Syscall);
        assert_eq!(guest.regs, regs);
        let counted = u64::MAX - stops.points[0].passes;
        assert_eq!(counted, passes.get(&(CODE + stop)).copied().unwrap_or(0), "{stop:#x}");
        for (number, at) in points.offsets().iter().enumerate() {
            // The first instruction is executed as well; steps tell where they lead.
            let executed = *at == 0 || passes.contains_key(&(CODE + at));
            assert_eq!(points.reached(number).is_some(), executed, "{at:#x}");
        }
    }
}

/// A run comes back at each pass of a kept point, also where a stop point is, which counts the same as without; and who looks at the code of one that
/// was approached sees the program's.
pub fn kept_points_tell_each_pass<P: Platform + 'static>(make: Make<P>) {
    if !crate::steps(&make(None).abilities(), "kept points") {
        return;
    }
    let (passes, regs) = by_steps(make, PROGRAM);
    let all: Vec<u64> = INSTRUCTIONS.iter().map(|at| CODE + at).collect();
    for stops in [Stops::default(), points(|_| u64::MAX)] {
        let mut stops = Stops { counted: Some(CODE), ..stops };
        let mut guest = guest(make);
        guest.platform.keep(guest.space, &all);
        let mut told: BTreeMap<u64, u64> = BTreeMap::new();
        loop {
            match to_trap(&mut guest, &mut stops) {
                Trap::KeptPoint { address } => {
                    assert_eq!(guest.regs.rip, address);
                    *told.entry(address).or_default() += 1;
                    let byte = |guest: &Guest<WithCodePoints>| {
                        let mut byte = [0];
                        let memory = guest.platform.memory(guest.space).expect("memory");
                        assert_eq!(memory.read(address, &mut byte), 1);
                        byte[0]
                    };
                    assert_eq!(byte(&guest), 0xcc);
                    guest.platform.approach(guest.space, address);
                    assert_eq!(byte(&guest), PROGRAM[(address - CODE) as usize]);
                }
                trap => {
                    assert_eq!(trap, Trap::Syscall);
                    break;
                }
            }
        }
        assert_eq!(guest.regs, regs);
        for address in &all {
            let wanted = passes.get(address).copied().unwrap_or(0);
            assert_eq!(told.get(address).copied().unwrap_or(0), wanted, "{:#x}", address - CODE);
        }
        for point in &stops.points {
            let wanted = passes.get(&point.address).copied().unwrap_or(0);
            assert_eq!(u64::MAX - point.passes, wanted, "{:#x}", point.address - CODE);
        }
        // None is kept any more.
        guest.platform.keep(guest.space, &[]);
        assert_eq!(to_trap(&mut guest, &mut Stops::default()), Trap::Syscall);
        let shown = guest.platform.memory(guest.space).and_then(|memory| memory.get(CODE));
        assert_eq!(shown.map(|(offset, _)| offset), Some(guest.pages[&CODE].0.offset()));
    }
}

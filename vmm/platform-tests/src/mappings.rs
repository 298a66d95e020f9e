//! Mappings: queueing, copy-on-write, protection, eviction, and the host's limit on their number.

#![allow(missing_docs)] // the names say it

use bloodhound_frames::Frame;
use bloodhound_platform::{
    Access, Mapping, Platform, PlatformError, Prot, SpaceId, Stops, TaskKey, Trap, XState,
};

use crate::{CODE, DATA, Guest, Make, PAGE};

/// inc qword [rdi]; mov rax, [rdi]; syscall; jmp to the start: the call's number is the counter.
const COUNT: &[u8] = b"\x48\xff\x07\x48\x8b\x07\x0f\x05\xeb\xf6";

fn counting<P: Platform>(platform: P) -> Guest<P> {
    let mut guest = Guest::on(platform, COUNT);
    guest.regs.rdi = DATA;
    guest
}

pub fn writes_reach_the_frame_and_a_shared_frame_is_not_written<P: Platform>(make: Make<P>) {
    let mut guest = counting(make(None));
    assert_eq!((guest.syscall(), guest.syscall()), (1, 2));
    assert_eq!(guest.pages[&DATA].0.load_u64(0), 2);
    // A snapshot: the frame is shared now, so nobody may write it any more.
    let snapshot = guest.pages[&DATA].0.clone();
    guest.platform.write_protect(guest.space);
    guest.pages.get_mut(&DATA).unwrap().1 = Prot::R;
    let trap = guest.run();
    assert_eq!(trap, Trap::PageFault { addr: DATA, access: Some(Access::Write), rip: CODE });
    let (frame, prot) = guest.pages.get_mut(&DATA).unwrap();
    frame.make_unique();
    *prot = Prot::RW;
    guest.map(DATA);
    assert_eq!(guest.syscall(), 3);
    assert_eq!((snapshot.load_u64(0), guest.pages[&DATA].0.load_u64(0)), (2, 3));
}

pub fn unmap_and_map_keep_their_order<P: Platform>(make: Make<P>) {
    let mut guest = counting(make(None));
    guest.syscall();
    guest.map(DATA);
    guest.platform.unmap(guest.space, DATA, PAGE);
    let faults = guest.faults;
    guest.syscall();
    assert_eq!(guest.faults, faults + 1, "the page was gone");
    guest.platform.unmap(guest.space, DATA, PAGE);
    guest.map(DATA);
    assert_eq!(guest.syscall(), 3);
    assert_eq!(guest.faults, faults + 1, "the page was there");
}

pub fn everything_can_be_evicted_at_any_trap<P: Platform>(make: Make<P>) {
    let mut guest = counting(make(None));
    for round in 1..20 {
        assert_eq!(guest.syscall(), round);
        let (_, state) = guest.platform.save_xstate(guest.space).unwrap().unwrap();
        if round % 3 == 0 {
            guest.platform.reset_space(guest.space);
        } else if round % 3 == 1 {
            guest.platform.evict_all();
        } else {
            guest.platform.drop_space(guest.space);
        }
        let mut left = Vec::new();
        guest.platform.mapped(guest.space, &mut left);
        assert_eq!((left.len(), guest.platform.xstate_owner(guest.space)), (0, None));
        let refused = guest.platform.run(guest.space, guest.task, &mut guest.regs, &mut Stops::default());
        assert_eq!(refused, Err(PlatformError::XStateNotLoaded));
        guest.platform.load_xstate(guest.space, guest.task, &state).unwrap();
    }
}

pub fn a_new_space_shows_nothing_of_a_dropped_one<P: Platform>(make: Make<P>) {
    let mut guest = counting(make(None));
    guest.syscall();
    guest.platform.drop_space(guest.space);
    guest.space = SpaceId(2);
    guest.platform.load_xstate(guest.space, guest.task, &XState::initial()).unwrap();
    guest.map(CODE);
    let trap = guest.trap();
    assert!(matches!(trap, Trap::PageFault { addr: DATA, .. }), "{trap:?}");
}

pub fn mapped_says_what_is_there<P: Platform>(make: Make<P>) {
    let mut guest = counting(make(None));
    guest.syscall();
    let mut list = Vec::new();
    guest.platform.mapped(guest.space, &mut list);
    let want = [CODE, DATA].map(|addr| {
        let (frame, prot) = &guest.pages[&addr];
        Mapping { addr, frame_offset: frame.offset(), pages: 1, prot: *prot }
    });
    assert_eq!(list, want);
}

pub fn spaces_are_apart<P: Platform>(make: Make<P>) {
    let mut guest = counting(make(None));
    let other = (SpaceId(2), TaskKey(7));
    let (frame, mut regs) = (Frame::zeroed(), guest.regs);
    let code = guest.pages[&CODE].0.offset();
    guest.platform.load_xstate(other.0, other.1, &XState::initial()).unwrap();
    guest.platform.map(
        other.0,
        &[
            Mapping { addr: CODE, frame_offset: code, pages: 1, prot: Prot::RX },
            Mapping { addr: DATA, frame_offset: frame.offset(), pages: 1, prot: Prot::RW },
        ],
    );
    for round in 1..50 {
        assert_eq!(guest.syscall(), round);
        if round % 2 == 0 {
            assert_eq!(crate::run(&mut guest.platform, other.0, other.1, &mut regs), Trap::Syscall);
            assert_eq!(regs.orig_rax, round / 2);
        }
    }
}

/// More mappings than vm.max_map_count (65530 by default) allows on the host: a platform may forget, and goes on.
pub fn seventy_thousand_mappings_are_survived<P: Platform>(make: Make<P>) {
    let mut guest = counting(make(None));
    guest.syscall();
    let filler = Frame::zeroed();
    let base = 0x10_0000_0000;
    let mappings: Vec<Mapping> = (0..70_000)
        .map(|n| Mapping { addr: base + n * PAGE, frame_offset: filler.offset(), pages: 1, prot: Prot::R })
        .collect();
    guest.platform.map(guest.space, &mappings);
    guest.map(CODE);
    guest.map(DATA);
    assert_eq!(guest.syscall(), 2);
    assert_eq!(guest.syscall(), 3);
}

pub fn a_platform_on_a_pinned_thread_works<P: Platform>(make: Make<P>) {
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut guest = counting(make(Some(0)));
            assert_eq!(guest.syscall(), 1);
            assert!(guest.platform.abilities().trap_cost_ns > 0);
        });
    });
}

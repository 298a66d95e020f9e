//! Mappings: queueing, copy-on-write, protection, eviction, and the host's limit on their number.

mod common;

use bloodhound_frames::Frame;
use bloodhound_platform::{Access, Mapping, Platform, PlatformError, Prot, SpaceId, TaskKey, Trap, XState};
use bloodhound_platform_ptrace::PtracePlatform;
use common::{CODE, DATA, Guest, PAGE};

/// inc qword [rdi]; mov rax, [rdi]; syscall; jmp to the start: the call's number is the counter.
const COUNT: &[u8] = b"\x48\xff\x07\x48\x8b\x07\x0f\x05\xeb\xf6";

fn counting() -> Guest {
    let mut guest = Guest::new(COUNT);
    guest.regs.rdi = DATA;
    guest
}

#[test]
fn writes_reach_the_frame_and_a_shared_frame_is_not_written() {
    let mut guest = counting();
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

#[test]
fn unmap_and_map_keep_their_order() {
    let mut guest = counting();
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

#[test]
fn everything_can_be_evicted_at_any_trap() {
    let mut guest = counting();
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
        let refused = guest.platform.run(guest.space, guest.task, &mut guest.regs);
        assert_eq!(refused, Err(PlatformError::XStateNotLoaded));
        guest.platform.load_xstate(guest.space, guest.task, &state).unwrap();
    }
}

#[test]
fn a_reused_stub_shows_nothing_of_its_last_space() {
    let mut guest = counting();
    guest.syscall();
    let pids = guest.platform.stub_pids();
    guest.platform.drop_space(guest.space);
    guest.space = SpaceId(2);
    guest.platform.load_xstate(guest.space, guest.task, &XState::initial()).unwrap();
    assert_eq!(guest.platform.stub_pids(), pids, "the stub is reused");
    guest.map(CODE);
    let trap = guest.trap();
    assert!(matches!(trap, Trap::PageFault { addr: DATA, .. }), "{trap:?}");
}

#[test]
fn mapped_says_what_is_there() {
    let mut guest = counting();
    guest.syscall();
    let mut list = Vec::new();
    guest.platform.mapped(guest.space, &mut list);
    let want = [CODE, DATA].map(|addr| {
        let (frame, prot) = &guest.pages[&addr];
        Mapping { addr, frame_offset: frame.offset(), pages: 1, prot: *prot }
    });
    assert_eq!(list, want);
}

#[test]
fn spaces_are_apart() {
    let mut guest = counting();
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
            assert_eq!(common::run(&mut guest.platform, other.0, other.1, &mut regs), Trap::Syscall);
            assert_eq!(regs.orig_rax, round / 2);
        }
    }
}

/// More mappings than vm.max_map_count (65530 by default) allows: the platform forgets, and goes on.
#[test]
fn the_hosts_limit_on_mappings_is_survived() {
    let mut guest = counting();
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

#[test]
fn a_killed_stub_is_an_error_and_can_be_replaced() {
    let mut guest = counting();
    guest.syscall();
    for pid in guest.platform.stub_pids() {
        // SAFETY: no memory effects; a child of this process.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    let died = guest.platform.run(guest.space, guest.task, &mut guest.regs);
    assert_eq!(died, Err(PlatformError::StubDied { signal: libc::SIGKILL }));
    guest.platform.load_xstate(guest.space, guest.task, &XState::initial()).unwrap();
    assert_eq!(guest.syscall(), 2);
}

#[test]
fn signals_from_outside_do_not_reach_the_application() {
    let mut guest = counting();
    for round in 1..40 {
        assert_eq!(guest.syscall(), round);
        for pid in guest.platform.stub_pids() {
            let signal = [libc::SIGTERM, libc::SIGSEGV, libc::SIGSTOP, libc::SIGURG, libc::SIGTRAP];
            // SAFETY: no memory effects; a child of this process.
            unsafe { libc::kill(pid, signal[round as usize % 5]) };
        }
        if round % 2 == 0 {
            // So that it hits the stub's own code.
            guest.map(DATA);
        }
    }
}

#[test]
fn a_platform_on_a_pinned_thread_works() {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut guest = Guest::on(PtracePlatform::new(Some(0)).unwrap(), COUNT);
            guest.regs.rdi = DATA;
            assert_eq!(guest.syscall(), 1);
            assert!(guest.platform.abilities().trap_cost_ns > 0);
        });
    });
}

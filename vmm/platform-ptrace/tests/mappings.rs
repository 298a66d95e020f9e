//! Mappings; and what happens to the processes that show them.

use bloodhound_platform::{Platform, PlatformError, SpaceId, Stops, Trap, XState};
use bloodhound_platform_ptrace::PtracePlatform;
use bloodhound_platform_tests::{CODE, DATA, Guest};

fn new(cpu: Option<usize>) -> PtracePlatform {
    PtracePlatform::new(cpu).unwrap()
}

bloodhound_platform_tests::platform_tests!(mappings, new);

/// inc qword [rdi]; mov rax, [rdi]; syscall; jmp to the start: the call's number is the counter.
fn counting() -> Guest<PtracePlatform> {
    let mut guest = Guest::new(new, b"\x48\xff\x07\x48\x8b\x07\x0f\x05\xeb\xf6");
    guest.regs.rdi = DATA;
    guest
}

#[test]
fn a_killed_stub_is_an_error_and_can_be_replaced() {
    let mut guest = counting();
    guest.syscall();
    for pid in guest.platform.stub_pids() {
        // SAFETY: no memory effects; a child of this process.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    let died = guest.platform.run(guest.space, guest.task, &mut guest.regs, &mut Stops::default());
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

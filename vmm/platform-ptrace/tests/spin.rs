//! Loops without side effects are recognised and parked at one place; others are not.

mod common;

use bloodhound_frames::Frame;
use bloodhound_platform::{Access, Platform, Prot, Regs, Spin, Trap};
use common::{CODE, DATA, Guest, STACK};

/// Runs `steps` instructions from the start, then asks.
fn analyse(code: &[u8], steps: usize) -> (Spin, Regs) {
    let mut guest = Guest::new(code);
    guest.regs.rdi = DATA;
    for page in [CODE, DATA, STACK] {
        guest.map(page);
    }
    for _ in 0..steps {
        let trap = guest.platform.step(guest.space, guest.task, &mut guest.regs).unwrap();
        assert_eq!(trap, Trap::Step);
    }
    let spin = guest.platform.analyse_spin(guest.space, guest.task, &mut guest.regs).unwrap();
    (spin, guest.regs)
}

/// Stopped anywhere in the loop, the task is parked at the same place with the same registers.
fn parks_at(code: &[u8], rip: u64) {
    let (spin, regs) = analyse(code, 3);
    assert_eq!((spin, regs.rip), (Spin::Parked, rip));
    for steps in 4..40 {
        assert_eq!(analyse(code, steps), (Spin::Parked, regs), "after {steps} steps");
    }
}

#[test]
fn waiting_for_a_flag() {
    // nop; loop: pause; cmp dword [rdi], 0; je loop
    parks_at(b"\x90\xf3\x90\x83\x3f\x00\x74\xf9", CODE + 1);
}

#[test]
fn jump_to_itself() {
    parks_at(b"\xeb\xfe", CODE);
}

#[test]
fn cycle_of_several_rounds() {
    // loop: inc ecx; and ecx, 3; jmp loop
    parks_at(b"\xff\xc1\x83\xe1\x03\xeb\xf9", CODE);
}

#[test]
fn spin_lock_that_is_held() {
    // mov dword [rdi], 1; loop: mov eax, 1; xchg [rdi], eax; test eax, eax; jne loop
    let code = b"\xc7\x07\x01\0\0\0\xb8\x01\0\0\0\x87\x07\x85\xc0\x75\xf5";
    parks_at(code, CODE + 6);
    // mov dword [rdi], 1; mov ecx, 2; loop: xor eax, eax; lock cmpxchg [rdi], ecx; jne loop
    let code = b"\xc7\x07\x01\0\0\0\xb9\x02\0\0\0\x31\xc0\xf0\x0f\xb1\x0f\x75\xf8";
    parks_at(code, CODE + 11);
}

#[test]
fn calling_a_function_each_time() {
    // jmp loop; f: mov eax, [rdi]; ret; loop: push rcx; call f; pop rcx; test eax, eax; je loop
    let code = b"\xeb\x03\x8b\x07\xc3\x51\xe8\xf7\xff\xff\xff\x59\x85\xc0\x74\xf5";
    let (spin, regs) = analyse(code, 30);
    assert_eq!((spin, regs.rip), (Spin::Parked, CODE + 2));
    for steps in 31..50 {
        assert_eq!(analyse(code, steps), (Spin::Parked, regs), "after {steps} steps");
    }
}

#[test]
fn progress_is_no_spin() {
    let cases: [(&str, &[u8]); 4] = [
        ("a counter in a register", b"\x48\xff\xc1\xeb\xfb"),
        ("a counter in memory", b"\xff\x07\xeb\xfc"),
        ("a counter in a vector register", b"\x66\x0f\xfa\xc1\xeb\xfa"),
        ("a counter on the x87 stack", b"\xd9\xe8\xeb\xfc"),
    ];
    for (name, code) in cases {
        let mut long = code.to_vec();
        long.resize(64, 0x90);
        let (spin, _) = analyse(&long, 0);
        assert_eq!(spin, Spin::Progressing, "{name}");
    }
}

#[test]
fn a_trap_in_the_loop_comes_again_afterwards() {
    // nop; mov eax, 24; syscall; jmp to the start
    let mut guest = Guest::new(b"\x90\xb8\x18\0\0\0\x0f\x05\xeb\xf6");
    guest.map(CODE);
    let spin = guest.platform.analyse_spin(guest.space, guest.task, &mut guest.regs).unwrap();
    assert_eq!((spin, guest.regs.rip), (Spin::Progressing, CODE + 6));
    assert_eq!(guest.syscall(), 24);
    // rdtsc in a loop
    let mut guest = Guest::new(b"\x0f\x31\xeb\xfc");
    guest.map(CODE);
    let spin = guest.platform.analyse_spin(guest.space, guest.task, &mut guest.regs).unwrap();
    assert_eq!(spin, Spin::Progressing);
    assert_eq!(guest.run(), Trap::Rdtsc { aux: false });
}

#[test]
fn the_watchdog_ends_a_run_and_the_flag_ends_the_spin() {
    // loop: pause; cmp dword [rdi], 0; je loop; mov eax, 99; syscall
    let mut guest = Guest::new(b"\xf3\x90\x83\x3f\x00\x74\xf9\xb8\x63\0\0\0\x0f\x05");
    guest.regs.rdi = DATA;
    guest.map(CODE);
    guest.map(DATA);
    for _ in 0..3 {
        let trap = guest.platform.run(guest.space, guest.task, &mut guest.regs).unwrap();
        assert_eq!(trap, Trap::BudgetSpent);
        let spin = guest.platform.analyse_spin(guest.space, guest.task, &mut guest.regs).unwrap();
        assert_eq!((spin, guest.regs.rip), (Spin::Parked, CODE));
    }
    guest.pages[&DATA].0.write_shared(0, &[1]);
    assert_eq!(guest.syscall(), 99);
}

#[test]
fn long_computation_is_not_disturbed() {
    // mov ecx, 1 << 30; loop: dec ecx; jne loop; syscall
    let mut guest = Guest::new(b"\xb9\0\0\0\x40\xff\xc9\x75\xfc\x0f\x05");
    guest.map(CODE);
    loop {
        match guest.platform.run(guest.space, guest.task, &mut guest.regs).unwrap() {
            Trap::BudgetSpent => {
                let spin = guest.platform.analyse_spin(guest.space, guest.task, &mut guest.regs).unwrap();
                assert_eq!(spin, Spin::Progressing);
            }
            other => {
                assert_eq!((other, guest.regs.rip), (Trap::Syscall, CODE + 11));
                break;
            }
        }
    }
}

#[test]
fn a_page_that_is_missing_is_left_to_run() {
    // loop: mov eax, [rdi]; jmp loop, with rdi not mapped
    let mut guest = Guest::new(b"\x8b\x07\xeb\xfc");
    guest.regs.rdi = 0x77_0000;
    guest.map(CODE);
    let spin = guest.platform.analyse_spin(guest.space, guest.task, &mut guest.regs).unwrap();
    assert_eq!(spin, Spin::Progressing);
    assert_eq!(guest.run(), Trap::PageFault { addr: 0x77_0000, access: Some(Access::Read), rip: CODE });
    guest.pages.insert(0x77_0000, (Frame::zeroed(), Prot::RW));
    guest.map(0x77_0000);
    let spin = guest.platform.analyse_spin(guest.space, guest.task, &mut guest.regs).unwrap();
    assert_eq!(spin, Spin::Parked);
}

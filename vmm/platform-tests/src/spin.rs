//! Loops without side effects are recognised and parked at one place; others are not.

#![allow(missing_docs)] // the names say it

use bloodhound_frames::Frame;
use bloodhound_platform::{Access, Platform, Probe, Prot, Regs, Spin, StopPoint, Stops, Trap};

use crate::{CODE, DATA, Guest, Make, Oddity, PAGE, STACK};

/// Runs `steps` instructions from the start, then asks.
fn analyse<P: Platform>(platform: P, code: &[u8], steps: usize) -> (P, (Spin, Regs)) {
    let mut guest = Guest::on(platform, code);
    guest.regs.rdi = DATA;
    for page in [CODE, DATA, STACK] {
        guest.map(page);
    }
    for _ in 0..steps {
        let trap = guest.platform.step(guest.space, guest.task, &mut guest.regs).unwrap();
        assert_eq!(trap, Trap::Step);
    }
    let spin = guest.probe();
    let regs = guest.regs;
    (guest.end(), (spin, regs))
}

/// Stopped after any of so many steps, the task is parked at the same place with the same registers.
fn parks_at<P: Platform>(make: Make<P>, code: &[u8], steps: std::ops::Range<usize>, rip: u64) {
    let mut platform = make(None);
    if !crate::steps(&platform.abilities(), "parking a loop") {
        return;
    }
    let mut first = None;
    for steps in steps {
        let (back, (spin, regs)) = analyse(platform, code, steps);
        platform = back;
        assert_ne!(spin, Spin::Progressing, "after {steps} steps");
        assert_eq!(regs.rip, rip, "after {steps} steps");
        assert_eq!(regs, *first.get_or_insert(regs), "after {steps} steps");
    }
}

pub fn waiting_for_a_flag<P: Platform>(make: Make<P>) {
    // nop; loop: pause; cmp dword [rdi], 0; je loop
    parks_at(make, b"\x90\xf3\x90\x83\x3f\x00\x74\xf9", 3..40, CODE + 1);
}

pub fn jump_to_itself<P: Platform>(make: Make<P>) {
    parks_at(make, b"\xeb\xfe", 3..40, CODE);
}

/// Its traps would be taken for those of the analysis.
pub fn program_that_steps_itself<P: Platform>(make: Make<P>) {
    // jmp to itself
    let mut guest = Guest::new(make, b"\xeb\xfe");
    guest.regs.rflags |= 1 << 8;
    let before = guest.regs;
    let spin = guest.probe();
    assert_eq!((spin, guest.regs), (Spin::Progressing, before));
    assert_eq!(guest.run(), Trap::Step);
}

pub fn cycle_of_several_rounds<P: Platform>(make: Make<P>) {
    // loop: inc ecx; and ecx, 3; jmp loop
    parks_at(make, b"\xff\xc1\x83\xe1\x03\xeb\xf9", 3..40, CODE);
}

pub fn spin_lock_that_is_held<P: Platform>(make: Make<P>) {
    // mov dword [rdi], 1; loop: mov eax, 1; xchg [rdi], eax; test eax, eax; jne loop
    let code = b"\xc7\x07\x01\0\0\0\xb8\x01\0\0\0\x87\x07\x85\xc0\x75\xf5";
    parks_at(make, code, 3..40, CODE + 6);
    // mov dword [rdi], 1; mov ecx, 2; loop: xor eax, eax; lock cmpxchg [rdi], ecx; jne loop
    let code = b"\xc7\x07\x01\0\0\0\xb9\x02\0\0\0\x31\xc0\xf0\x0f\xb1\x0f\x75\xf8";
    parks_at(make, code, 3..40, CODE + 11);
}

pub fn calling_a_function_each_time<P: Platform>(make: Make<P>) {
    // jmp loop; f: mov eax, [rdi]; ret; loop: push rcx; call f; pop rcx; test eax, eax; je loop
    let code = b"\xeb\x03\x8b\x07\xc3\x51\xe8\xf7\xff\xff\xff\x59\x85\xc0\x74\xf5";
    parks_at(make, code, 30..50, CODE + 2);
}

/// Others that wait for what it writes must look again.
pub fn what_came_before_the_loop_is_told<P: Platform>(make: Make<P>) {
    // spin: cmp dword [rdi], 0; je spin; mov dword [rdi], 0; jmp spin
    let mut guest = Guest::new(make, b"\x83\x3f\x00\x74\xfb\xc7\x07\0\0\0\0\xeb\xf3");
    if !crate::steps(&guest.platform.abilities(), "telling what came before a loop") {
        return;
    }
    guest.regs.rdi = DATA;
    guest.map(CODE);
    guest.map(DATA);
    let mut probe = |flag: Option<u8>| {
        if let Some(flag) = flag {
            guest.pages[&DATA].0.write_shared(0, &[flag]);
        }
        let before = guest.regs;
        let spin = guest.probe();
        (spin, guest.regs == before)
    };
    // Flags of the processor's start are no part of the loop.
    assert_eq!(probe(None), (Spin::Parked, false));
    assert_eq!(probe(None), (Spin::Still, true));
    // Once through all of it: the registers are the same again, and what it wrote is the whole difference.
    assert_eq!(probe(Some(1)), (Spin::Parked, true));
    assert_eq!(probe(None), (Spin::Still, true));
}

/// A page that is missing in the middle of it must not show in the answer.
pub fn a_fault_does_not_change_the_answer<P: Platform>(make: Make<P>) {
    // wait: cmp dword [rdi], 0; jne got; jmp other; got: mov dword [rdi], 0; jmp wait
    // other, in the next page: pause; jmp wait
    let code = b"\x83\x3f\x00\x75\x05\xe9\xf6\x0f\0\0\xc7\x07\0\0\0\0\xeb\xee";
    let answer = |missing: &[u64]| {
        let mut guest = Guest::new(make, code);
        guest.pages.insert(CODE + PAGE, (Frame::from_slice(b"\xf3\x90\xe9\xf9\xef\xff\xff"), Prot::RX));
        guest.regs.rdi = DATA;
        for page in [CODE, CODE + PAGE, DATA] {
            guest.map(page);
        }
        let first = guest.probe();
        guest.pages[&DATA].0.write_shared(0, &[1]);
        for page in missing {
            guest.platform.unmap(guest.space, *page, PAGE);
        }
        let mut probe = Probe::default();
        let mut faults = 0;
        loop {
            let (space, task) = (guest.space, guest.task);
            let spin = probe
                .go_on(&mut guest.platform, space, task, &mut guest.regs, &mut Stops::default())
                .unwrap();
            if spin != Spin::Progressing {
                return (first, spin, guest.regs, faults);
            }
            let before = guest.regs;
            let trap = guest.platform.run(space, task, &mut guest.regs, &mut Stops::default()).unwrap();
            probe.after_run(&before, &guest.regs, trap);
            let Trap::PageFault { addr, .. } = trap else { panic!("{trap:?}") };
            guest.map(addr & !(PAGE - 1));
            faults += 1;
        }
    };
    if !crate::steps(&make(None).abilities(), "faults while a loop is looked at") {
        return;
    }
    let (first, spin, regs, _) = answer(&[]);
    assert_eq!((first, spin), (Spin::Parked, Spin::Parked), "it wrote before it came to its loop again");
    for missing in [&[CODE + PAGE] as &[u64], &[DATA], &[CODE], &[CODE, CODE + PAGE, DATA]] {
        let (_, again, at, faults) = answer(missing);
        assert_eq!((again, at, faults), (spin, regs, missing.len()), "without {missing:x?}");
    }
}

pub fn progress_is_no_spin<P: Platform>(make: Make<P>) {
    let cases: [(&str, &[u8]); 4] = [
        ("a counter in a register", b"\x48\xff\xc1\xeb\xfb"),
        ("a counter in memory", b"\xff\x07\xeb\xfc"),
        ("a counter in a vector register", b"\x66\x0f\xfa\xc1\xeb\xfa"),
        ("a counter on the x87 stack", b"\xd9\xe8\xeb\xfc"),
    ];
    let mut platform = make(None);
    for (name, code) in cases {
        let mut long = code.to_vec();
        long.resize(64, 0x90);
        let (back, (spin, _)) = analyse(platform, &long, 0);
        platform = back;
        assert_eq!(spin, Spin::Progressing, "{name}");
    }
}

pub fn a_trap_in_the_loop_comes_again_afterwards<P: Platform>(make: Make<P>) {
    // nop; mov eax, 24; syscall; jmp to the start
    let mut guest = Guest::new(make, b"\x90\xb8\x18\0\0\0\x0f\x05\xeb\xf6");
    let abilities = guest.platform.abilities();
    if !crate::steps(&abilities, "a_trap_in_the_loop_comes_again_afterwards") {
        return;
    }
    guest.map(CODE);
    let spin = guest.probe();
    assert_eq!((spin, guest.regs.rip), (Spin::Progressing, CODE + 6));
    assert_eq!(guest.syscall(), 24);
    if !crate::rdtsc(&abilities, "rdtsc in a loop") {
        return;
    }
    // rdtsc in a loop
    let mut guest = Guest::new(make, b"\x0f\x31\xeb\xfc");
    guest.map(CODE);
    let spin = guest.probe();
    assert_eq!(spin, Spin::Progressing);
    assert_eq!(guest.run(), Trap::Rdtsc { aux: false });
}

pub fn the_watchdog_ends_a_run_and_the_flag_ends_the_spin<P: Platform>(make: Make<P>) {
    // loop: pause; cmp dword [rdi], 0; je loop; mov eax, 99; syscall
    let mut guest = Guest::new(make, b"\xf3\x90\x83\x3f\x00\x74\xf9\xb8\x63\0\0\0\x0f\x05");
    guest.regs.rdi = DATA;
    guest.map(CODE);
    guest.map(DATA);
    let steps = crate::steps(&guest.platform.abilities(), "parking after the watchdog");
    // Its step over `pause` takes the next instruction as well; the watchdog stops between them.
    let tcg = Oddity::of(&guest.platform.abilities()) == Oddity::Tcg;
    // On a busy host the watchdog may come the first time before the loop has begun.
    let mut parked = false;
    for _ in 0..3 {
        let trap =
            guest.platform.run(guest.space, guest.task, &mut guest.regs, &mut Stops::default()).unwrap();
        assert_eq!(trap, Trap::BudgetSpent);
        let spin = guest.probe();
        if steps {
            assert!(spin == Spin::Still || (tcg || !parked) && spin == Spin::Parked, "{spin:?}");
            assert_eq!(guest.regs.rip, CODE);
            parked = true;
        }
    }
    guest.pages[&DATA].0.write_shared(0, &[1]);
    assert_eq!(guest.syscall(), 99);
}

pub fn long_computation_is_not_disturbed<P: Platform>(make: Make<P>) {
    // mov ecx, 1 << 30; loop: dec ecx; jne loop; syscall
    let mut guest = Guest::new(make, b"\xb9\0\0\0\x40\xff\xc9\x75\xfc\x0f\x05");
    guest.map(CODE);
    loop {
        match guest.platform.run(guest.space, guest.task, &mut guest.regs, &mut Stops::default()).unwrap() {
            Trap::BudgetSpent => {
                let spin = guest.probe();
                assert_eq!(spin, Spin::Progressing);
            }
            other => {
                assert_eq!((other, guest.regs.rip), (Trap::Syscall, CODE + 11));
                break;
            }
        }
    }
}

pub fn a_page_that_is_missing_is_left_to_run<P: Platform>(make: Make<P>) {
    // loop: mov eax, [rdi]; jmp loop, with rdi not mapped
    let mut guest = Guest::new(make, b"\x8b\x07\xeb\xfc");
    guest.regs.rdi = 0x77_0000;
    guest.map(CODE);
    let spin = guest.probe();
    assert_eq!(spin, Spin::Progressing);
    assert_eq!(guest.run(), Trap::PageFault { addr: 0x77_0000, access: Some(Access::Read), rip: CODE });
    guest.pages.insert(0x77_0000, (Frame::zeroed(), Prot::RW));
    guest.map(0x77_0000);
    if !crate::steps(&guest.platform.abilities(), "parking with all pages there") {
        return;
    }
    let spin = guest.probe();
    assert_eq!(spin, Spin::Still);
}

/// Passes are counted over the traps in between, and the stop comes before the instruction.
pub fn a_stop_point_ends_a_run_after_so_many_passes<P: Platform>(make: Make<P>) {
    // mov ebx, 4; loop: dec ebx; mov eax, ebx; syscall; test ebx, ebx; jne loop; int3
    let mut guest = Guest::new(make, b"\xbb\x04\0\0\0\xff\xcb\x89\xd8\x0f\x05\x85\xdb\x75\xf6\xcc");
    if !crate::steps(&guest.platform.abilities(), "stop points") {
        return;
    }
    guest.map(CODE);
    let address = CODE + 5;
    let mut stops = Stops { points: vec![StopPoint::new(address, 3)], ..Stops::default() };
    let mut run = || loop {
        let trap = guest.platform.run(guest.space, guest.task, &mut guest.regs, &mut stops).unwrap();
        if trap != Trap::BudgetSpent {
            return (trap, guest.regs.rbx, guest.regs.rip);
        }
    };
    assert_eq!(run(), (Trap::Syscall, 3, CODE + 11));
    assert_eq!(run(), (Trap::Syscall, 2, CODE + 11));
    assert_eq!(run(), (Trap::StopPoint { address }, 2, address));
    assert_eq!(run(), (Trap::Syscall, 1, CODE + 11));
    assert_eq!(run(), (Trap::Syscall, 0, CODE + 11));
    assert_eq!(run().0, Trap::Exception(bloodhound_platform::Exception::BREAKPOINT));
}

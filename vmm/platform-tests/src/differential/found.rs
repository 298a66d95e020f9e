//! What random programs found, as programs of its own: each failed on one of the platforms once.

use bloodhound_platform::{Platform, Regs, Trap};

use crate::{CODE, DATA, Guest, Make, PAGE, STACK, run, steps};

const TF: u64 = 1 << 8;

/// Steps over the instruction at rip, answering page faults.
fn step<P: Platform>(guest: &mut Guest<P>) -> Trap {
    loop {
        let trap = guest.platform.step(guest.space, guest.task, &mut guest.regs).expect("step");
        match trap {
            Trap::PageFault { addr, .. } if guest.pages.contains_key(&(addr & !(PAGE - 1))) => {
                assert_eq!(guest.regs.rflags & TF, 0, "the step's own flag, in a fault");
                guest.map(addr & !(PAGE - 1));
            }
            _ => return trap,
        }
    }
}

/// Linux forgets that the trap flag is a debugger's when it steps over a `popf`, and shows it until the next run. One that
/// clears the flag is a step as well.
pub fn a_step_over_popf_leaves_no_trap_flag<P: Platform>(make: Make<P>) {
    // push 0x202; popfq; nop; syscall
    let mut guest = Guest::new(make, b"\x68\x02\x02\0\0\x9d\x90\x0f\x05");
    if !steps(&guest.platform.abilities(), "a_step_over_popf_leaves_no_trap_flag") {
        return;
    }
    for _ in 0..3 {
        assert_eq!(step(&mut guest), Trap::Step);
        assert_eq!(guest.regs.rflags & TF, 0);
    }
    assert_eq!(step(&mut guest), Trap::Syscall);
    assert_eq!((guest.regs.rflags & TF, guest.regs.r11 & TF), (0, 0));
    // The flag that a program has loaded itself is its own.
    guest.regs = Regs { rip: CODE + 5, rsp: STACK + PAGE - 8, ..guest.regs };
    guest.pages[&STACK].0.write_shared(PAGE as usize - 8, &(0x202 | TF).to_le_bytes());
    assert_eq!((step(&mut guest), guest.regs.rflags & TF), (Trap::Step, TF));
}

/// A null selector may have any privilege level; what is not the user's own cannot be given back to a Linux process.
pub fn null_selectors_survive_a_step<P: Platform>(make: Make<P>) {
    // mov ds, eax; nop; mov ecx, ds
    let mut guest = Guest::new(make, b"\x8e\xd8\x90\x8c\xd9");
    if !steps(&guest.platform.abilities(), "null_selectors_survive_a_step") {
        return;
    }
    guest.regs.rax = 1;
    for _ in 0..3 {
        assert_eq!(step(&mut guest), Trap::Step);
    }
    assert!(guest.regs.rcx < 4, "{:#x}", guest.regs.rcx);
}

/// Both operands in the same page, or one of them nowhere: the read comes first.
pub fn an_instruction_reads_before_it_writes<P: Platform>(make: Make<P>) {
    use bloodhound_platform::Access::{Read, Write};
    let missing = 0x1_0000;
    let cases: [(&[u8], u64, u64, _); 3] = [
        // movsb
        (b"\xa4", missing, missing, Read),
        (b"\xa4", DATA, missing, Write),
        // push [rsi], with the stack there as well
        (b"\xff\x36", missing, missing, Read),
    ];
    for (code, from, to, access) in cases {
        let mut guest = Guest::new(make, code);
        guest.regs = Regs { rsi: from, rdi: to, rsp: to + 8, ..guest.regs };
        let trap = guest.run();
        assert_eq!(trap, Trap::PageFault { addr: missing, access: Some(access), rip: CODE }, "{code:02x?}");
    }
}

/// An operand that has to be aligned is looked at before its page is.
pub fn what_is_not_aligned_faults_wherever_it_is<P: Platform>(make: Make<P>) {
    let protection = Trap::Exception(bloodhound_platform::Exception::general_protection(0));
    // movaps xmm0, [rdi]; divps xmm1, [rdi]; vmovdqa ymm1, [rdi]; fxsave [rdi]
    let codes: [&[u8]; 4] = [b"\x0f\x28\x07", b"\x0f\x5e\x0f", b"\xc5\xfd\x6f\x0f", b"\x0f\xae\x07"];
    for code in codes {
        let mut guest = Guest::new(make, code);
        guest.map(CODE);
        guest.regs.rdi = 0x1_0008;
        let trap = run(&mut guest.platform, guest.space, guest.task, &mut guest.regs);
        assert_eq!(trap, protection, "{code:02x?}");
    }
}

/// What one platform's code loaded into its selectors the next one's does not have. The data selectors are registers of the
/// host's processor, of which a software KVM may not know that it has to load them.
pub fn selectors_do_not_outlive_their_platform<P: Platform>(make: Make<P>) {
    for selector in [0x2b, 0x33, 0x32] {
        // mov ds, eax; mov es, eax; mov fs, eax; mov gs, eax; syscall
        let mut guest = Guest::new(make, b"\x8e\xd8\x8e\xc0\x8e\xe0\x8e\xe8\x0f\x05");
        guest.regs.rax = selector;
        assert_eq!(guest.syscall(), selector);
        // Also without having been dropped before.
        for other in 0..2 {
            // mov eax, ds; mov ebx, es; mov edi, fs; mov esi, gs; syscall
            let mut next = Guest::new(make, b"\x8c\xd8\x8c\xc3\x8c\xe7\x8c\xee\x0f\x05");
            let seen = [next.syscall(), next.regs.rbx, next.regs.rdi, next.regs.rsi];
            assert_eq!(seen, [0; 4], "after {selector:#x}, {other}");
        }
    }
}

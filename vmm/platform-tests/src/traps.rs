//! Application code as raw bytes: every kind of trap, with the registers that it must show.
//!
//! Neighbours: `escape`, for code that no honest program has.

#![allow(missing_docs)] // the names say it

use bloodhound_abi::exception::vector;
use bloodhound_frames::Frame;
use bloodhound_platform::{
    Access, CpuidTrap, Exception, Platform, Prot, Regs, TaskKey, Trap, Unsupported, XState, cpuid_profile,
};

use crate::{CODE, DATA, Guest, Make, Oddity, PAGE, STACK};

fn fault(addr: u64, access: Access, rip: u64) -> Trap {
    Trap::PageFault { addr, access: Some(access), rip }
}

pub fn system_calls_show_their_registers_and_take_results<P: Platform>(make: Make<P>) {
    // mov eax, 39; mov edi, 7; syscall; mov ebx, eax; mov eax, 1; syscall
    let code = b"\xb8\x27\0\0\0\xbf\x07\0\0\0\x0f\x05\x89\xc3\xb8\x01\0\0\0\x0f\x05";
    let mut guest = Guest::new(make, code);
    assert_eq!(guest.syscall(), 39);
    let r = guest.regs;
    assert_eq!((r.rax as i64, r.rdi, r.rip, r.rcx, r.r11), (-38, 7, CODE + 12, CODE + 12, r.rflags));
    assert_eq!(r.rflags & !0xd5, 0x202, "nothing of the host's in rflags");
    guest.regs.rax = 0x1234;
    assert_eq!(guest.syscall(), 1);
    assert_eq!(guest.regs.rbx, 0x1234);
}

pub fn all_registers_go_in_and_out<P: Platform>(make: Make<P>) {
    let mut guest = Guest::new(make, b"\x0f\x05");
    let want = Regs {
        rax: 39,
        rbx: 2,
        rcx: 3,
        rdx: 4,
        rsi: 5,
        rdi: 6,
        rbp: 7,
        rsp: STACK + 64,
        r8: 8,
        r9: 9,
        r10: 10,
        r11: 11,
        r12: 12,
        r13: 13,
        r14: 14,
        r15: 0xffff_ffff_ffff_ff15,
        rip: CODE,
        rflags: 0x202 | 0x8d5,
        fs_base: DATA,
        gs_base: 0x7fff_1234_5000,
        orig_rax: u64::MAX,
    };
    guest.regs = want;
    assert_eq!(guest.syscall(), 39);
    let rax = (-38i64) as u64;
    let after = Regs { rax, rcx: CODE + 2, r11: want.rflags, rip: CODE + 2, orig_rax: 39, ..want };
    assert_eq!(guest.regs, after);
    guest.regs.restart_syscall();
    assert_eq!(guest.syscall(), 39);
    assert_eq!(guest.regs, after);
}

pub fn kinds_of_access_are_told_apart<P: Platform>(make: Make<P>) {
    // mov [rdi], eax; mov eax, [rdi]; add [rdi], eax; movsb; push [rdi]; jmp rdi
    let mut guest = Guest::new(make, b"\x89\x07\x8b\x07\x01\x07\xa4\xff\x37\xff\xe7");
    guest.map(CODE);
    let (at, rsi) = (0x60_0010, DATA + 5);
    let mut ask = |offset: u64, rdi: u64| {
        guest.regs = Regs { rip: CODE + offset, rdi, rsi, rsp: STACK + PAGE, ..Regs::default() };
        guest.trap()
    };
    assert_eq!(ask(0, at), fault(at, Access::Write, CODE));
    assert_eq!(ask(2, at), fault(at, Access::Read, CODE + 2));
    // TCG loads first, and says so.
    let odd = Oddity::of(&guest.platform.abilities());
    let mut ask = |offset: u64, rdi: u64| {
        guest.regs = Regs { rip: CODE + offset, rdi, rsi, rsp: STACK + PAGE, ..Regs::default() };
        guest.trap()
    };
    if !odd.excuses(Oddity::Tcg, "add to memory") {
        assert_eq!(ask(4, at), fault(at, Access::Write, CODE + 4));
    }
    assert_eq!(ask(6, at), fault(rsi, Access::Read, CODE + 6));
    assert_eq!(ask(7, at), fault(at, Access::Read, CODE + 7));
    assert_eq!(ask(9, at), fault(at, Access::Exec, at));
    // A store to code, which is mapped read-execute, and a jump to data, which is mapped read-write.
    assert_eq!(ask(0, CODE), fault(CODE, Access::Write, CODE));
    guest.map(DATA);
    guest.map(STACK);
    let mut ask = |offset: u64, rdi: u64| {
        guest.regs = Regs { rip: CODE + offset, rdi, rsi, rsp: STACK + PAGE, ..Regs::default() };
        guest.trap()
    };
    assert_eq!(ask(9, DATA + 64), fault(DATA + 64, Access::Exec, DATA + 64));
    assert_eq!(ask(6, at), fault(at, Access::Write, CODE + 6), "now movsb's other operand");
    // A stack page that is gone: push writes there.
    guest.platform.unmap(guest.space, STACK, PAGE);
    guest.regs = Regs { rip: CODE + 7, rdi: DATA, rsp: STACK + PAGE, ..Regs::default() };
    let got = guest.trap();
    assert_eq!(got, fault(STACK + PAGE - 8, Access::Write, CODE + 7));
}

pub fn an_instruction_that_goes_on_in_a_missing_page_is_a_fetch<P: Platform>(make: Make<P>) {
    let mut guest = Guest::new(make, b"");
    let mut code = [0x90; 4096];
    code[4094] = 0x8b; // mov eax, [rdi + disp32], cut after two bytes
    code[4095] = 0x87;
    guest.pages.insert(CODE, (Frame::from_bytes(&code), Prot::RX));
    guest.regs.rip = CODE + 4094;
    assert_eq!(guest.run(), fault(CODE + 4096, Access::Exec, CODE + 4094));
}

pub fn time_stamp_counter_traps<P: Platform>(make: Make<P>) {
    // rdtsc; rdtscp; syscall
    let mut guest = Guest::new(make, b"\x0f\x31\x0f\x01\xf9\x0f\x05");
    if !crate::rdtsc(&guest.platform.abilities(), "time_stamp_counter_traps") {
        return;
    }
    assert_eq!(guest.run(), Trap::Rdtsc { aux: false });
    assert_eq!(guest.regs.rip, CODE);
    guest.regs.set_rdtsc(0x1_0000_0002, None);
    assert_eq!(guest.run(), Trap::Rdtsc { aux: true });
    guest.regs.set_rdtsc(0x3_0000_0004, Some(0));
    assert_eq!(guest.run(), Trap::Syscall);
    assert_eq!((guest.regs.rax as i64, guest.regs.orig_rax, guest.regs.rdx), (-38, 4, 3));
    // With prefixes that mean nothing: rep rex.w rdtsc; syscall
    let mut guest = Guest::on(guest.end(), b"\xf3\x48\x0f\x31\x0f\x05");
    assert_eq!(guest.run(), Trap::Rdtsc { aux: false });
    guest.regs.set_rdtsc(0x1_0000_0002, None);
    assert_eq!((guest.syscall(), guest.regs.rdx), (2, 1));
}

pub fn cpuid_traps_patched_or_faulting<P: Platform>(make: Make<P>) {
    let mut code = *b"\x31\xc0\x0f\xa2\x0f\x05"; // xor eax, eax; cpuid; syscall
    let mut guest = Guest::new(make, &code);
    if guest.platform.abilities().cpuid == CpuidTrap::NeedsPatch {
        code[2] = 0xf4;
        guest.pages.insert(CODE, (Frame::from_slice(&code), Prot::RX));
    }
    assert_eq!(guest.run(), Trap::Cpuid);
    guest.regs.set_cpuid(cpuid_profile(0, 0));
    assert_eq!(guest.run(), Trap::Syscall);
    assert_eq!(guest.regs.rbx as u32, cpuid_profile(0, 0)[1]);
}

pub fn breakpoint_and_exceptions<P: Platform>(make: Make<P>) {
    let protection = Trap::Exception(Exception::general_protection(0));
    let at = |vector, address| Trap::Exception(Exception::at(vector, address));
    // (bytes, trap, rip behind CODE)
    let noncanonical = b"\x48\xb8\0\0\0\0\0\0\0\x80\x8b\x00"; // mov rax, 1 << 63; mov eax, [rax]
    let cases: [(&[u8], Trap, u64); 6] = [
        (b"\xcc", Trap::Exception(Exception::BREAKPOINT), 1),
        (b"\x0f\x0b", at(vector::UD, CODE), 0),
        (b"\x31\xc9\xf7\xf1", at(vector::DE, CODE + 2), 2),
        (noncanonical, protection, 10),
        (b"\xf4", protection, 0),
        (b"\xcd\x80", Trap::Unsupported(Unsupported::Int80), 2),
    ];
    let mut platform = make(None);
    for (code, want, rip) in cases {
        let mut guest = Guest::on(platform, code);
        assert_eq!((guest.run(), guest.regs.rip - CODE), (want, rip), "{code:x?}");
        platform = guest.end();
    }
}

pub fn stack_segment_fault_is_sigbus<P: Platform>(make: Make<P>) {
    // mov rsp, 1 << 63; push rax
    let mut guest = Guest::new(make, b"\x48\xbc\0\0\0\0\0\0\0\x80\x50");
    let Trap::Exception(exception) = guest.run() else { panic!("no exception") };
    if !Oddity::of(&guest.platform.abilities()).excuses(Oddity::Tcg, "stack_segment_fault_is_sigbus") {
        assert_eq!(exception, Exception::at(vector::SS, 0));
    }
}

pub fn int80_is_recognised_whatever_rcx_holds<P: Platform>(make: Make<P>) {
    // mov eax, 20; int 0x80, with rcx pointing anywhere but behind it
    let mut guest = Guest::new(make, b"\xb8\x14\0\0\0\xcd\x80");
    guest.regs.rcx = 5;
    assert_eq!(guest.run(), Trap::Unsupported(Unsupported::Int80));
}

pub fn far_jump_to_32_bit_code_is_recognised<P: Platform>(make: Make<P>) {
    // push 0x23; push target; retfq; target: mov eax, 20; int 0x80
    let mut code = b"\x6a\x23\x68".to_vec();
    code.extend_from_slice(&(CODE as u32 + 9).to_le_bytes());
    code.extend_from_slice(b"\x48\xcb\xb8\x14\0\0\0\xcd\x80");
    let mut guest = Guest::new(make, &code);
    // Its far returns read the stack as the supervisor, which SMAP forbids.
    if Oddity::of(&guest.platform.abilities()).excuses(Oddity::Tcg, "far_jump_to_32_bit_code_is_recognised") {
        return;
    }
    assert_eq!(guest.run(), Trap::Unsupported(Unsupported::Compat));
}

pub fn vsyscall_is_a_system_call<P: Platform>(make: Make<P>) {
    // mov rax, 0xffffffffff600400; call rax (time, call 201); mov ebx, eax; syscall
    let mut guest = Guest::new(make, b"\x48\xc7\xc0\x00\x04\x60\xff\xff\xd0\x89\xc3\x0f\x05");
    assert_eq!(guest.syscall(), 201);
    assert_eq!((guest.regs.rip, guest.regs.rsp), (CODE + 9, STACK + PAGE));
    guest.regs.rax = 77;
    guest.syscall();
    assert_eq!(guest.regs.rbx, 77);
}

pub fn a_vsyscall_with_its_stack_not_mapped_yet_faults_there<P: Platform>(make: Make<P>) {
    // jmp rax
    let mut guest = Guest::new(make, b"\xff\xe0");
    guest.pages[&STACK].0.write_shared(0xff8, &(CODE + 0x10).to_le_bytes());
    guest.regs = Regs { rax: 0xffff_ffff_ff60_0400, rsp: STACK + 0xff8, ..guest.regs };
    assert_eq!(guest.syscall(), 201);
    assert_eq!((guest.regs.rip, guest.regs.rsp), (CODE + 0x10, STACK + PAGE));
}

pub fn reading_the_vsyscall_page_faults<P: Platform>(make: Make<P>) {
    // mov rax, 0xffffffffff600000; mov eax, [rax]
    let mut guest = Guest::new(make, b"\x48\xc7\xc0\x00\x00\x60\xff\x8b\x00");
    assert!(matches!(guest.run(), Trap::PageFault { addr: 0xffff_ffff_ff60_0000, .. }));
}

pub fn single_steps<P: Platform>(make: Make<P>) {
    // pushfq; pop rax; nop; syscall
    let mut guest = Guest::new(make, b"\x9c\x58\x90\x0f\x05");
    if !crate::steps(&guest.platform.abilities(), "single_steps") {
        return;
    }
    guest.map(CODE);
    guest.map(STACK);
    let mut step = || {
        let trap = guest.platform.step(guest.space, guest.task, &mut guest.regs).unwrap();
        (trap, guest.regs)
    };
    assert_eq!(step().0, Trap::Step);
    let (trap, regs) = step();
    assert_eq!((trap, regs.rip, regs.rax & 0x100), (Trap::Step, CODE + 2, 0), "the trap flag does not show");
    assert_eq!(step().0, Trap::Step);
    let (trap, regs) = step();
    assert_eq!((trap, regs.r11 & 0x100, regs.rip), (Trap::Syscall, 0, CODE + 5));
}

pub fn vector_state_is_saved_loaded_and_kept_apart<P: Platform>(make: Make<P>) {
    // vpcmpeqd ymm1, ymm1, ymm1; syscall; vmovd eax, xmm1; syscall
    let code = b"\xc5\xf5\x76\xc9\x0f\x05\xc5\xf9\x7e\xc8\x0f\x05";
    let mut guest = Guest::new(make, code);
    let (one, two) = (guest.task, TaskKey(2));
    guest.syscall();
    assert_eq!(guest.platform.xstate_owner(guest.space), Some(one));
    let (owner, state) = guest.platform.save_xstate(guest.space).unwrap().unwrap();
    assert_eq!(owner, one);
    assert_eq!(state.area()[176..192], [0xff; 16], "xmm1");
    assert_eq!(state.area()[592..608], [0xff; 16], "upper half of ymm1");
    guest.platform.load_xstate(guest.space, two, &XState::initial()).unwrap();
    guest.task = two;
    let first = guest.regs;
    guest.syscall();
    assert_eq!(guest.regs.orig_rax, 0, "task 2 has zeros");
    assert_eq!(guest.platform.save_xstate(guest.space).unwrap(), Some((two, XState::initial())));
    guest.platform.load_xstate(guest.space, one, &state).unwrap();
    (guest.task, guest.regs) = (one, first);
    guest.syscall();
    assert_eq!(guest.regs.orig_rax, 0xffff_ffff, "task 1 has ones");
}

//! The flags register, and what arithmetic raises.

use bloodhound_abi::consts as c;
use bloodhound_platform::{Platform, Regs, SpaceId, TaskKey, Trap, XState};

use super::{BREAK, Case, End, TRAP_TRACE, check};
use crate::{CODE, DATA, Guest, Make, run};

/// `si_code` of SIGFPE, for integers, x87 and SSE, and of an alignment check.
const FPE_INTDIV: i32 = c::FPE_INTDIV as i32;
const FPE_FLTDIV: i32 = c::FPE_FLTDIV as i32;
const FPE_FLTOVF: i32 = c::FPE_FLTOVF as i32;
const FPE_FLTUND: i32 = c::FPE_FLTUND as i32;
const FPE_FLTRES: i32 = c::FPE_FLTRES as i32;
const FPE_FLTINV: i32 = c::FPE_FLTINV as i32;
const BUS_ADRALN: i32 = c::BUS_ADRALN as i32;

const ID: u64 = 1 << 21;

/// push rax; popfq; pushfq; pop rcx: what can be set shows in rcx.
const SET_AND_SHOW: &[u8] = b"\x50\x9d\x9c\x59";

pub fn every_flag<P: Platform>(make: Make<P>) {
    let mut cases = Vec::new();
    // All but the trap flag.
    for flags in (0..64).filter(|bit| *bit != 8).map(|bit| 1u64 << bit).chain([0, !0x100, 0x3000, 0x24_4cd5])
    {
        let case = Case::new(format!("flags {flags:#x}"), SET_AND_SHOW, BREAK);
        cases.push(case.regs(|regs| regs.rax = flags));
    }
    let step = End::Signal(5, TRAP_TRACE, CODE + 3);
    for flags in [0x100, u64::MAX] {
        let case = Case::new(format!("flags {flags:#x}"), b"\x50\x9d\x90\x90", step);
        cases.push(case.regs(|regs| regs.rax = flags));
    }
    // push 0x100; popfq; pushfq: the flag shows in memory, and is the program's own.
    let shown = Case::new(
        "pushfq under the trap flag",
        b"\x68\0\x01\0\0\x9d\x9c\x59",
        End::Signal(5, TRAP_TRACE, CODE + 7),
    );
    cases.push(shown);
    // 16 and 32 bits at a time
    cases.push(Case::new("popf", b"\x50\x66\x9d\x9c\x59", BREAK).regs(|regs| regs.rax = !0x100));
    cases.push(Case::new("std; sahf", b"\xfd\x9e\x9c\x59", BREAK).regs(|regs| regs.rax = u64::MAX));
    // push 0x40000; popfq; mov eax, [rdi + 1]
    let unaligned = b"\x68\0\0\x04\0\x9d\x8b\x47\x01";
    cases.push(Case::new("alignment check", unaligned, End::Signal(7, BUS_ADRALN, 0)));
    let unaligned = b"\x68\0\0\x04\0\x9d\x89\x47\x02";
    cases.push(Case::new("alignment check of a store", unaligned, End::Signal(7, BUS_ADRALN, 0)));
    cases.push(Case::new("alignment check, aligned", b"\x68\0\0\x04\0\x9d\x8b\x47\x04", BREAK));
    cases.push(Case::new("no alignment check", b"\x8b\x47\x01", BREAK));
    check(make, &cases);
}

pub fn arithmetic_exceptions<P: Platform>(make: Make<P>) {
    let fpe = |code, offset: u64| End::Signal(8, code, CODE + offset);
    // push mxcsr; ldmxcsr [rsp]
    let sse = |mxcsr: u32, rest: &[u8]| {
        let mut code = vec![0x68];
        code.extend_from_slice(&mxcsr.to_le_bytes());
        code.extend_from_slice(b"\x0f\xae\x14\x24");
        code.extend_from_slice(rest);
        code
    };
    // push control word; fldcw [rsp]
    let x87 = |fcw: u32, rest: &[u8]| {
        let mut code = vec![0x68];
        code.extend_from_slice(&fcw.to_le_bytes());
        code.extend_from_slice(b"\xd9\x2c\x24");
        code.extend_from_slice(rest);
        code
    };
    // The largest float, the smallest normal one, a signalling NaN, one, zero.
    let data: Vec<u8> = [0x7f7f_ffffu32, 0x0080_0000, 0x7fa0_0000, 0x3f80_0000, 0, 0x4040_0000]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    let cases = [
        Case::new("div by zero", b"\x31\xc9\xf7\xf1", fpe(FPE_INTDIV, 2)),
        // mov eax, 1 << 31; cdq; mov ecx, -1; idiv ecx
        Case::new("idiv overflow", b"\xb8\0\0\0\x80\x99\xb9\xff\xff\xff\xff\xf7\xf9", fpe(FPE_INTDIV, 11)),
        Case::new("div of too much", b"\xba\x02\0\0\0\xb9\x01\0\0\0\xf7\xf1", fpe(FPE_INTDIV, 10)),
        // movss xmm0, [rdi + 12]; xorps xmm1, xmm1; divss xmm0, xmm1
        Case::new(
            "sse division",
            &sse(0x1d80, b"\xf3\x0f\x10\x47\x0c\x0f\x57\xc9\xf3\x0f\x5e\xc1"),
            fpe(FPE_FLTDIV, 17),
        ),
        Case::new(
            "sse division, masked",
            &sse(0x1f80, b"\xf3\x0f\x10\x47\x0c\x0f\x57\xc9\xf3\x0f\x5e\xc1"),
            BREAK,
        ),
        // movss xmm0, [rdi]; mulss xmm0, xmm0
        Case::new("sse overflow", &sse(0x1b80, b"\xf3\x0f\x10\x07\xf3\x0f\x59\xc0"), fpe(FPE_FLTOVF, 13)),
        // movss xmm0, [rdi + 4]; mulss xmm0, xmm0
        Case::new(
            "sse underflow",
            &sse(0x1780, b"\xf3\x0f\x10\x47\x04\xf3\x0f\x59\xc0"),
            fpe(FPE_FLTUND, 14),
        ),
        // movss xmm0, [rdi + 12]; divss xmm0, [rdi + 20]
        Case::new(
            "sse inexact",
            &sse(0x0f80, b"\xf3\x0f\x10\x47\x0c\xf3\x0f\x5e\x47\x14"),
            fpe(FPE_FLTRES, 14),
        ),
        // movss xmm0, [rdi + 8]; addss xmm0, xmm0
        Case::new("sse invalid", &sse(0x1f00, b"\xf3\x0f\x10\x47\x08\xf3\x0f\x58\xc0"), fpe(FPE_FLTINV, 14)),
        Case::new("reserved bit of mxcsr", &sse(0xffff_0000, b""), super::GP),
        // movaps xmm0, [rdi + 1]
        Case::new("unaligned vector load", b"\x0f\x28\x47\x01", super::GP),
        // fld1; fldz; fdivp; fwait. The address is that of the instruction that waits.
        Case::new("x87 division", &x87(0x37b, b"\xd9\xe8\xd9\xee\xde\xf9\x9b"), fpe(FPE_FLTDIV, 14)),
        Case::new("x87 division, masked", &x87(0x37f, b"\xd9\xe8\xd9\xee\xde\xf9\x9b"), BREAK),
        // fldz; fldz; fdivp; fwait
        Case::new("x87 invalid", &x87(0x37e, b"\xd9\xee\xd9\xee\xde\xf9\x9b"), fpe(FPE_FLTINV, 14)),
        // fstp st(0); fwait
        Case::new("x87 stack underflow", &x87(0x37e, b"\xdd\xd8\x9b"), fpe(FPE_FLTINV, 10)),
        // fld1; fld dword [rdi + 20]; fdivp; fwait
        Case::new("x87 inexact", &x87(0x35f, b"\xd9\xe8\xd9\x47\x14\xde\xf9\x9b"), fpe(FPE_FLTRES, 15)),
        // fldpi; fnop: pending when the next x87 instruction comes
        Case::new("x87 pending", &x87(0x37e, b"\xdd\xd8\xd9\xeb"), fpe(FPE_FLTINV, 10)),
    ]
    .map(|case| case.data(&data));
    check(make, &cases);
}

/// The ID flag, which some hosts let nobody set from outside, belongs to a task as the other flags do.
pub fn the_id_flag_is_a_tasks_own<P: Platform>(make: Make<P>) {
    // push rax; popfq; loop: pushfq; pop rax; syscall; jmp loop
    let mut guest = Guest::new(make, b"\x50\x9d\x9c\x58\x0f\x05\xeb\xfa");
    guest.regs.rax = 0x202 | ID;
    let shown = guest.syscall();
    assert_eq!((shown & ID, guest.regs.rflags & ID, guest.regs.r11 & ID), (ID, ID, ID));
    // Another task of the space.
    let other = TaskKey(9);
    let state = XState::initial();
    guest.platform.load_xstate(guest.space, other, &state).unwrap();
    let mut regs = Regs { rip: CODE + 2, rsp: guest.regs.rsp, ..Regs::default() };
    assert_eq!(run(&mut guest.platform, guest.space, other, &mut regs), Trap::Syscall);
    assert_eq!((regs.orig_rax & ID, regs.rflags & ID), (0, 0), "another task does not have it");
    guest.platform.load_xstate(guest.space, guest.task, &state).unwrap();
    assert_eq!(guest.syscall() & ID, ID, "the task still has it");
    guest.platform.evict_all();
    guest.platform.load_xstate(guest.space, guest.task, &state).unwrap();
    assert_eq!(guest.syscall() & ID, ID, "after everything was evicted");
    // A new space in what is left of the old one.
    guest.platform.drop_space(guest.space);
    guest.space = SpaceId(2);
    guest.platform.load_xstate(guest.space, guest.task, &state).unwrap();
    guest.regs = Regs { rip: CODE + 2, rsp: guest.regs.rsp, rdi: DATA, ..Regs::default() };
    assert_eq!(guest.syscall() & ID, 0, "a new space does not have it");
}

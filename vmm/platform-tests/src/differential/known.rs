//! Instructions whose result differs between platforms or from run to run, as is known ([`at`]).
//!
//! They show the host (time, processor, random numbers, its descriptor tables), or belong to what one platform can
//! forbid and another cannot. What they do at least, which is not to break out, is tested by `escape`.

use bloodhound_platform::{GUEST_TOP, Regs, Trap, decode};
use iced_x86::{Code, EncodingKind, Instruction, Mnemonic, OpKind, Register};

/// Why what an instruction does with these registers is not the same everywhere.
pub(crate) fn at(instruction: &Instruction, code: &[u8], regs: &Regs) -> Option<String> {
    if differs(instruction) {
        return Some(format!("{:?}", instruction.mnemonic()));
    }
    // A software KVM cannot enter application code with such a stack: it emulates what it can, and no vectors.
    if !matches!(regs.rsp >> 47, 0 | 0x1_ffff) {
        return Some("a wild stack pointer".to_owned());
    }
    // It emulates selector loads and iret even where they are invalid; and what it needs for a guest that is patched.
    if instruction.is_invalid()
        && (code.contains(&0x8e) || code.contains(&0xcf) || code.first() == Some(&0x06))
    {
        return Some("an invalid instruction that is emulated".to_owned());
    }
    if segments(code) > 1 {
        return Some("several segment prefixes".to_owned());
    }
    if wild(instruction, regs) {
        return Some("an address that is not canonical".to_owned());
    }
    // It also emulates these where they fault, and does not mind.
    let state = matches!(
        instruction.mnemonic(),
        Mnemonic::Fxsave | Mnemonic::Fxsave64 | Mnemonic::Fxrstor | Mnemonic::Fxrstor64
    );
    let addr = instruction.virtual_address(0, 0, |register, _, _| value(regs, register));
    (state && addr.is_none_or(|addr| addr % 16 != 0)).then(|| "unaligned FXSAVE".to_owned())
}

/// Number of segment prefixes: of several a processor takes another one than an emulator.
fn segments(code: &[u8]) -> usize {
    let segment = |byte: &&u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65);
    let prefix = |byte: &&u8| segment(byte) || matches!(byte, 0x40..=0x4f | 0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3);
    code.iter().take_while(prefix).filter(segment).count()
}

/// Whether an instruction of several operands, or of MMX, has an address that is not canonical. A software KVM emulates it
/// and so does a part of it.
fn wild(instruction: &Instruction, regs: &Regs) -> bool {
    let several = instruction.is_string_instruction()
        || (0..instruction.op_count()).any(|n| instruction.op_register(n).is_mm())
        || instruction.is_stack_instruction();
    if instruction.is_vsib() {
        return true;
    }
    let memory = |n: &u32| {
        !matches!(instruction.op_kind(*n), OpKind::Register) && instruction.op_kind(*n) >= OpKind::MemorySegSI
    };
    several
        && (0..instruction.op_count()).filter(memory).any(|n| {
            let addr = instruction.virtual_address(n, 0, |register, _, _| value(regs, register));
            addr.is_some_and(|addr| !matches!(addr >> 47, 0 | 0x1_ffff))
        })
}

/// Where an instruction stores what and where the last x87 instruction was. Whether a processor still knows that depends
/// on its maker and on whether the host switched tasks in between, and nothing traps these instructions.
pub(crate) fn last_instruction(instruction: &Instruction, regs: &Regs) -> Option<Vec<u64>> {
    let area = instruction.virtual_address(0, 0, |register, _, _| value(regs, register))?;
    // "Protected Mode x87 FPU State Image in Memory" (Intel SDM 8.1.10), 32-bit and 16-bit; "FXSAVE Area" (10.5.1).
    let part = match instruction.code() {
        Code::Fnstenv_m28byte | Code::Fnsave_m108byte => 12..28,
        Code::Fnstenv_m14byte | Code::Fnsave_m94byte => 6..14,
        Code::Fxsave_m512byte | Code::Fxsave64_m512byte => 6..24,
        _ => return None,
    };
    Some(part.map(|n| area.wrapping_add(n)).collect())
}

/// Whether an instruction shows ds, es, fs or gs: on a software KVM these stay as another task has loaded them.
pub(crate) fn shows_selector(instruction: &Instruction) -> bool {
    let data =
        |n| matches!(instruction.op_register(n), Register::DS | Register::ES | Register::FS | Register::GS);
    (0..instruction.op_count()).any(data)
}

/// Whether a trap is a fault where some platform has pages of its own, which application code may read.
pub(crate) fn platforms_own(trap: &Trap) -> bool {
    matches!(trap, Trap::PageFault { addr, .. } if (GUEST_TOP..1 << 47).contains(addr))
}

fn value(regs: &Regs, register: Register) -> Option<u64> {
    let r = regs;
    let all = [
        r.rax, r.rcx, r.rdx, r.rbx, r.rsp, r.rbp, r.rsi, r.rdi, r.r8, r.r9, r.r10, r.r11, r.r12, r.r13,
        r.r14, r.r15,
    ];
    match register {
        Register::FS => Some(r.fs_base),
        Register::GS => Some(r.gs_base),
        segment if segment.is_segment_register() => Some(0),
        wide if wide.is_gpr64() => all.get(wide.number()).copied(),
        narrow if narrow.is_gpr32() => all.get(narrow.number()).map(|value| value & 0xffff_ffff),
        _ => None,
    }
}

/// They show the host, or do what one platform can forbid and another cannot. `int1` is a fault or a trap, and a step or none,
/// where the host is a virtual machine itself. XSAVE and its kin write as much as the host has; FXSAVE has one form. `clac` and
/// `stac` are general protection on one processor and invalid on another, and so is `xend`, with or without transactions, of
/// which what KVM gives its guest need not be what the host has.
const NAMED: &[Mnemonic] = {
    use Mnemonic::*;
    &[
        Clac, Cpuid, Hlt, Int, Int1, Invlpga, Iret, Iretd, Iretq, Lar, Lfs, Lgs, Lsl, Lss, Monitor, Monitorx,
        Mwait, Mwaitx, Rdfsbase, Rdgsbase, Rdpid, Rdpkru, Rdpmc, Rdpru, Rdrand, Rdseed, Rdtsc, Rdtscp, Retf,
        Serialize, Sgdt, Sidt, Sldt, Smsw, Stac, Str, Swapgs, Sysenter, Sysexit, Tpause, Umonitor, Umwait,
        Verr, Verw, Vmcall, Vmfunc, Vmmcall, Wrfsbase, Wrgsbase, Wrpkru, Xabort, Xbegin, Xend, Xgetbv,
        Xrstor, Xrstor64, Xrstors, Xrstors64, Xsave, Xsave64, Xsavec, Xsavec64, Xsaveopt, Xsaveopt64, Xsaves,
        Xsaves64, Xsetbv, Xtest,
    ]
};

/// Whether an instruction is one of them, whatever it is given.
pub(crate) fn differs(instruction: &Instruction) -> bool {
    // AVX-512 and its masks are of the host's processor, not of ours.
    let avx512 = instruction.encoding() == EncodingKind::EVEX
        || (0..instruction.op_count()).any(|n| instruction.op_register(n).is_k());
    let far = instruction.is_call_far()
        || instruction.is_call_far_indirect()
        || instruction.is_jmp_far()
        || instruction.is_jmp_far_indirect();
    let named = NAMED.contains(&instruction.mnemonic());
    // What our processor does not have, others may have: a software KVM then says that it is invalid where its operand in
    // memory faults. AMD's prefetch of a register is invalid, or not where it is emulated.
    let foreign = !decode::is_ours(instruction)
        && (0..instruction.op_count()).any(|n| instruction.op_kind(n) == OpKind::Memory);
    let prefetch = matches!(
        instruction.code(),
        Code::Reservednop_rm16_r16_0F0D | Code::Reservednop_rm32_r32_0F0D | Code::Reservednop_rm64_r64_0F0D
    );
    named || avx512 || foreign || prefetch || far || segment(instruction)
}

/// Loads a segment register.
fn segment(instruction: &Instruction) -> bool {
    let target = instruction.op0_register();
    target.is_segment_register() && instruction.mnemonic() != Mnemonic::Push
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions};

    #[test]
    fn what_shows_the_host_is_left_out_and_nothing_else() {
        let differs = |code: &[u8]| super::differs(&Decoder::new(64, code, DecoderOptions::NONE).decode());
        let out: [&[u8]; 9] = [
            b"\x0f\x31",
            b"\x0f\xa2",
            b"\x0f\xc7\xf0",
            b"\xcd\x80",
            b"\xf1",
            b"\x0f\xae\x20",
            b"\x8e\xd8",
            b"\x62\xf1\x7c\x48\x58\xc1",
            b"\xc5\xf8\x90\xc9",
        ];
        for code in out {
            assert!(differs(code), "{code:02x?}");
        }
        let within: [&[u8]; 7] =
            [b"\x0f\x05", b"\xcc", b"\x9d", b"\x8c\xd8", b"\x0f\xae\x00", b"\xc5\xfc\x58\xc1", b"\xf3\xa4"];
        for code in within {
            assert!(!differs(code), "{code:02x?}");
        }
    }
}

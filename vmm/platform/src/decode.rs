//! Looks at instructions: what kind of access faulted ([`fault_access`]), and which trapped instruction stands
//! at an address ([`trapped`]).
//!
//! Neighbours: `x86`, which turns faults into traps; `spin`, which follows what instructions write.

use iced_x86::{
    CpuidFeature, Decoder, DecoderError, DecoderOptions, EncodingKind, FlowControl, Instruction,
    InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register, UsedMemory,
};

use crate::extents::Extents;
use crate::patch::INVALID;
use crate::{Access, Regs, Trap};

/// The longest instruction in bytes.
pub const MAX_INSTRUCTION: usize = 15;
const PAGE: u64 = 4096;

/// The instruction at rip, if its bytes are mapped and it is valid.
#[must_use]
pub fn at(memory: &Extents, rip: u64) -> Option<Instruction> {
    let mut code = [0; MAX_INSTRUCTION];
    let len = memory.read(rip, &mut code);
    let instruction = Decoder::with_ip(64, &code[..len], rip, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

/// `rdtsc`, `rdtscp`, `cpuid` (or its patched form, see [`crate::code_view`]) at rip, and how many prefixes without a
/// meaning stand before it.
#[must_use]
pub fn trapped(memory: &Extents, rip: u64) -> Option<(Trap, usize)> {
    let mut code = [0; MAX_INSTRUCTION];
    let len = memory.read(rip, &mut code);
    let code = &code[..len];
    // Operand and address size, segments, repeats; then REX.
    let legacy =
        |byte: &u8| matches!(byte, 0x66 | 0x67 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0xf2 | 0xf3);
    let mut prefixes = code.iter().take_while(|byte| legacy(byte)).count();
    if code.get(prefixes).is_some_and(|byte| byte & 0xf0 == 0x40) {
        prefixes += 1;
    }
    let trap = match code.get(prefixes..)? {
        [0x0f, 0x31, ..] => Trap::Rdtsc { aux: false },
        [0x0f, 0x01, 0xf9, ..] => Trap::Rdtsc { aux: true },
        [0x0f | 0xf4, 0xa2, ..] => Trap::Cpuid,
        _ => return None,
    };
    Some((trap, prefixes))
}

/// `xgetbv`, `rdtsc`, `rdtscp` or `cpuid` at rip in its patched form that is an invalid opcode (see [`crate::code_view`]).
///
/// The processor faults on the first byte alone, where it would have fetched the rest of the true instruction. So if that
/// lies in a page that is not mapped now, this is the fault of that fetch.
#[must_use]
pub fn patched(memory: &Extents, rip: u64) -> Option<Trap> {
    let mut code = [0; 3];
    let len = memory.read(rip, &mut code);
    match &code[..len] {
        [INVALID, 0x31, ..] => Some(Trap::Rdtsc { aux: false }),
        [INVALID, 0x01, 0xf9] => Some(Trap::Rdtsc { aux: true }),
        [INVALID, 0x01, 0xd0] => Some(Trap::Xgetbv),
        [INVALID, 0xa2, ..] => Some(Trap::Cpuid),
        [INVALID] | [INVALID, 0x01] => {
            let addr = rip.wrapping_add(len as u64);
            Some(Trap::PageFault { addr, access: Some(Access::Exec), rip })
        }
        _ => None,
    }
}

/// Whether `pushf` in one of its forms stands at rip.
#[must_use]
pub fn is_pushf(memory: &Extents, rip: u64) -> bool {
    at(memory, rip)
        .is_some_and(|i| matches!(i.mnemonic(), Mnemonic::Pushf | Mnemonic::Pushfd | Mnemonic::Pushfq))
}

/// Whether an `int1` stands at rip.
#[must_use]
pub fn is_int1(memory: &Extents, rip: u64) -> bool {
    at(memory, rip).is_some_and(|i| i.mnemonic() == Mnemonic::Int1)
}

/// Whether an instruction stands at rip that loads the trap flag: `popf` or `iret` in one of their forms.
#[must_use]
pub fn loads_flags(memory: &Extents, rip: u64) -> bool {
    use Mnemonic::{Iret, Iretd, Iretq, Popf, Popfd, Popfq};
    at(memory, rip).is_some_and(|i| matches!(i.mnemonic(), Popf | Popfd | Popfq | Iret | Iretd | Iretq))
}

/// Where control goes from an instruction that ends a stretch of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Branch {
    /// To an address.
    Always {
        /// The address.
        to: u64,
    },
    /// To an address, or to the instruction behind the branch.
    Either {
        /// The address.
        to: u64,
        /// That of the instruction behind.
        next: u64,
    },
    /// To a function at an address.
    Call,
    /// To where a register or memory says.
    Indirect,
    /// To a function, where a register or memory says.
    IndirectCall,
    /// To the caller.
    Return,
}

/// The end of a stretch of code without branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// A branch at an address.
    Branch(u64, Branch),
    /// An instruction that traps, or that is none.
    Trap,
    /// The bytes end before the instruction at this address does.
    Bytes(u64),
}

/// The first instruction of a stretch of code that begins not before an address. `code` is the stretch, which is at `ip`.
#[must_use]
pub fn first_from(code: &[u8], ip: u64, from: u64) -> Option<u64> {
    let mut decoder = Decoder::with_ip(64, code, ip, DecoderOptions::NONE);
    while decoder.ip() < from {
        if !decoder.can_decode() || decoder.decode().is_invalid() {
            return None;
        }
    }
    Some(decoder.ip())
}

/// How a stretch of code ends that begins with `code`, at address `ip`.
#[must_use]
pub fn stretch(code: &[u8], ip: u64) -> End {
    let mut decoder = Decoder::with_ip(64, code, ip, DecoderOptions::NONE);
    loop {
        let at = decoder.ip();
        let instruction = decoder.decode();
        if instruction.is_invalid() {
            let cut = decoder.last_error() == DecoderError::NoMoreBytes;
            return if cut { End::Bytes(at) } else { End::Trap };
        }
        let branch = match instruction.flow_control() {
            FlowControl::Next => continue,
            FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => {
                Branch::Always { to: instruction.near_branch_target() }
            }
            FlowControl::ConditionalBranch => {
                Branch::Either { to: instruction.near_branch_target(), next: instruction.next_ip() }
            }
            FlowControl::IndirectBranch if instruction.is_jmp_near_indirect() => Branch::Indirect,
            FlowControl::Call if instruction.is_call_near() => Branch::Call,
            FlowControl::IndirectCall if instruction.is_call_near_indirect() => Branch::IndirectCall,
            FlowControl::Return if matches!(instruction.mnemonic(), Mnemonic::Ret) => Branch::Return,
            _ => return End::Trap,
        };
        return End::Branch(at, branch);
    }
}

/// Whether a valid instruction raises a general protection fault for what its operands are: far transfers, `int n`,
/// segment loads, and loads of control words with reserved bits.
#[must_use]
pub fn faults_by_operand(instruction: &Instruction) -> bool {
    use Mnemonic::{
        Fxrstor, Fxrstor64, Int, Iret, Iretd, Iretq, Ldmxcsr, Lfs, Lgs, Lss, Retf, Vldmxcsr, Xrstor, Xrstor64,
    };
    instruction.is_call_far()
        || instruction.is_call_far_indirect()
        || instruction.is_jmp_far()
        || instruction.is_jmp_far_indirect()
        || instruction.op0_register().is_segment_register()
        || matches!(
            instruction.mnemonic(),
            Fxrstor
                | Fxrstor64
                | Int
                | Iret
                | Iretd
                | Iretq
                | Ldmxcsr
                | Lfs
                | Lgs
                | Lss
                | Retf
                | Vldmxcsr
                | Xrstor
                | Xrstor64
        )
}

/// Why an instruction's operand in memory makes it fault whatever is mapped there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadOperand {
    /// It has to be aligned and is not, or its address is not canonical: a general protection fault.
    Protection,
    /// Its address is not canonical, on the stack: a stack segment fault.
    Stack,
}

/// Whether the instruction at rip faults for the address alone that an operand has. For a platform whose host looks at
/// such instructions itself and then says something else. Only for instructions of our processor, as others are invalid
/// first.
#[must_use]
pub fn bad_operand(memory: &Extents, regs: &Regs) -> Option<BadOperand> {
    let instruction = at(memory, regs.rip).filter(is_ours)?;
    let (addr, size) = operand(&instruction, regs)?;
    if !addr.is_multiple_of(alignment(&instruction, size)) {
        return Some(BadOperand::Protection);
    }
    let canonical = |addr: u64| matches!(addr >> 47, 0 | 0x1_ffff);
    // Prefixes for the other segments mean nothing in 64-bit code.
    let stack = matches!(instruction.memory_base().full_register(), Register::RSP | Register::RBP)
        && !matches!(instruction.segment_prefix(), Register::FS | Register::GS);
    (!canonical(addr) || !canonical(addr.wrapping_add(size - 1))).then_some(if stack {
        BadOperand::Stack
    } else {
        BadOperand::Protection
    })
}

/// Whether a page fault at `addr` was for an operand that is not aligned as it has to be, which faults first.
#[must_use]
pub fn misaligned(memory: &Extents, regs: &Regs, addr: u64) -> bool {
    at(memory, regs.rip).filter(is_ours).is_some_and(|instruction| {
        operand(&instruction, regs).is_some_and(|(start, size)| {
            !start.is_multiple_of(alignment(&instruction, size)) && addr.wrapping_sub(start) < size
        })
    })
}

/// Address and size of the operand in memory that an instruction has besides the stack.
pub(crate) fn operand(instruction: &Instruction, regs: &Regs) -> Option<(u64, u64)> {
    let place = (0..instruction.op_count())
        .find(|&op| matches!(instruction.op_kind(op), OpKind::Memory | OpKind::MemorySegRDI))?;
    if matches!(instruction.mnemonic(), Mnemonic::Lea | Mnemonic::Nop) {
        return None;
    }
    let addr = instruction.virtual_address(place, 0, |register, _, _| register_value(regs, register))?;
    Some((addr, instruction.memory_size().size().max(1) as u64))
}

/// Calls `each` with the address of each operand in memory of the instruction that `code` begins with, and whether it is written. `regs`
/// are the registers before the instruction is executed, so `rip` is its address.
pub fn accesses(code: &[u8], regs: &Regs, mut each: impl FnMut(u64, bool)) {
    let instruction = Decoder::with_ip(64, code, regs.rip, DecoderOptions::NONE).decode();
    if instruction.is_invalid() {
        return;
    }
    for used in InstructionInfoFactory::new().info(&instruction).used_memory() {
        if let (Some(access), Some(address)) = (access_of(used.access()), effective(used, regs)) {
            each(address, access == Access::Write);
        }
    }
}

/// Address and size in bytes of the memory that the instruction which `code` begins with reads and then writes, where other processors may write
/// between the two: "the LOCK prefix [...] ensures that the processor has exclusive use of any shared memory" (Intel SDM, volume 2), and XCHG has it
/// always. At most eight bytes.
#[must_use]
pub fn read_and_written(code: &[u8], regs: &Regs) -> Option<(u64, usize)> {
    let instruction = Decoder::with_ip(64, code, regs.rip, DecoderOptions::NONE).decode();
    if instruction.is_invalid() || instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg {
        return None;
    }
    let info = InstructionInfoFactory::new().info(&instruction).clone();
    let used = info.used_memory().iter().find(|used| used.access() == OpAccess::ReadWrite)?;
    let size = used.memory_size().size();
    (1..=8).contains(&size).then_some((effective(used, regs)?, size))
}

/// Whether our processor has an instruction (see [`crate::cpuid_profile`]).
#[must_use]
pub fn is_ours(instruction: &Instruction) -> bool {
    use CpuidFeature::{
        AES, AVX, AVX2, BMI1, BMI2, CLFSH, CMOV, CMPXCHG16B, CX8, F16C, FMA, FPU, FPU287, FPU387, FXSR,
        INTEL186, INTEL286, INTEL386, INTEL486, INTEL8086, LZCNT, MMX, MOVBE, MULTIBYTENOP, PAUSE, PCLMULQDQ,
        POPCNT, SSE, SSE2, SSE3, SSE4_1, SSE4_2, SSSE3, X64,
    };
    const OURS: [CpuidFeature; 34] = [
        AES,
        AVX,
        AVX2,
        BMI1,
        BMI2,
        CLFSH,
        CMOV,
        CMPXCHG16B,
        CX8,
        F16C,
        FMA,
        FPU,
        FPU287,
        FPU387,
        FXSR,
        INTEL186,
        INTEL286,
        INTEL386,
        INTEL486,
        INTEL8086,
        LZCNT,
        MMX,
        MOVBE,
        MULTIBYTENOP,
        PAUSE,
        PCLMULQDQ,
        POPCNT,
        SSE,
        SSE2,
        SSE3,
        SSE4_1,
        SSE4_2,
        SSSE3,
        X64,
    ];
    !matches!(instruction.mnemonic(), Mnemonic::Ud0 | Mnemonic::Ud1 | Mnemonic::Ud2)
        && instruction.cpuid_features().iter().all(|feature| OURS.contains(feature))
}

/// What the address of an operand of `size` bytes must be a multiple of (Intel SDM, volume 1, 14.9; volume 2, 2.4).
fn alignment(instruction: &Instruction, size: u64) -> u64 {
    use Mnemonic::{
        Fxrstor, Fxrstor64, Fxsave, Fxsave64, Lddqu, Maskmovdqu, Movdqu, Movupd, Movups, Pcmpestri,
        Pcmpestri64, Pcmpestrm, Pcmpestrm64, Pcmpistri, Pcmpistrm, Vmovapd, Vmovaps, Vmovdqa, Vmovntdq,
        Vmovntdqa, Vmovntpd, Vmovntps,
    };
    match instruction.mnemonic() {
        Fxsave | Fxsave64 | Fxrstor | Fxrstor64 => 16,
        Lddqu | Maskmovdqu | Movdqu | Movupd | Movups | Pcmpestri | Pcmpestri64 | Pcmpestrm | Pcmpestrm64
        | Pcmpistri | Pcmpistrm => 1,
        Vmovapd | Vmovaps | Vmovdqa | Vmovntdq | Vmovntdqa | Vmovntpd | Vmovntps => size,
        // Nothing but SSE and cmpxchg16b has operands of 16 bytes.
        _ if instruction.encoding() == EncodingKind::Legacy && size == 16 => 16,
        _ => 1,
    }
}

/// The kind of access that faulted at `addr`, for a platform whose host says only whether something was mapped there.
#[must_use]
pub fn fault_access(
    memory: &Extents,
    factory: &mut InstructionInfoFactory,
    regs: &Regs,
    addr: u64,
) -> Option<Access> {
    let instruction = at(memory, regs.rip);
    // A fetch faults at rip, or at the page that the instruction goes on in.
    let length = instruction.map_or(MAX_INSTRUCTION, |instruction| instruction.len()) as u64;
    let fetch = addr == regs.rip || addr.is_multiple_of(PAGE) && addr.wrapping_sub(regs.rip) < length;
    let page = memory.get(addr & !(PAGE - 1)).map(|(_, prot)| prot);
    match page {
        // The fault was not a read, so for a page that is executable it was a write.
        Some(prot) if prot.exec => return (!prot.write).then_some(Access::Write),
        Some(_) if fetch => return Some(Access::Exec),
        Some(prot) => return (!prot.write).then_some(Access::Write).or(Some(Access::Exec)),
        None if fetch => return Some(Access::Exec),
        None => {}
    }
    let instruction = instruction?;
    let mut found = None;
    for used in factory.info(&instruction).used_memory() {
        let Some(kind) = access_of(used.access()) else { continue };
        match found {
            None => found = Some(kind),
            Some(other) if other == kind => {}
            // Both: it depends on which operand's address it is.
            Some(_) => {
                let kinds = by_address(factory.info(&instruction).used_memory(), regs, addr);
                // An instruction reads before it writes, but for `enter`, which begins with a push.
                return if instruction.mnemonic() == Mnemonic::Enter { kinds.max() } else { kinds.min() };
            }
        }
    }
    found
}

/// Whether an operand's access reads or writes; a read-modify-write faults as a write.
pub(crate) fn access_of(access: OpAccess) -> Option<Access> {
    match access {
        OpAccess::Read | OpAccess::CondRead => Some(Access::Read),
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite => {
            Some(Access::Write)
        }
        OpAccess::None | OpAccess::NoMemAccess => None,
    }
}

/// The kinds of access of the operands that an address lies in.
fn by_address(operands: &[UsedMemory], regs: &Regs, addr: u64) -> impl Iterator<Item = Access> {
    // A page that begins in the operand counts too: the fault's address is then the page's.
    let hit = operands.iter().filter(move |used| {
        let size = used.memory_size().size().max(1) as u64;
        effective(used, regs).is_some_and(|start| addr.wrapping_sub(start) < size)
    });
    hit.filter_map(|used| access_of(used.access()))
}

/// The address that an operand means, if it only depends on general registers.
pub(crate) fn effective(used: &UsedMemory, regs: &Regs) -> Option<u64> {
    used.virtual_address(0, |register, _, _| register_value(regs, register))
}

pub(crate) fn register_value(regs: &Regs, register: Register) -> Option<u64> {
    Some(match register {
        Register::RAX => regs.rax,
        Register::RBX => regs.rbx,
        Register::RCX => regs.rcx,
        Register::RDX => regs.rdx,
        Register::RSI => regs.rsi,
        Register::RDI => regs.rdi,
        Register::RBP => regs.rbp,
        Register::RSP => regs.rsp,
        Register::R8 => regs.r8,
        Register::R9 => regs.r9,
        Register::R10 => regs.r10,
        Register::R11 => regs.r11,
        Register::R12 => regs.r12,
        Register::R13 => regs.r13,
        Register::R14 => regs.r14,
        Register::R15 => regs.r15,
        Register::RIP => regs.rip,
        Register::FS => regs.fs_base,
        Register::GS => regs.gs_base,
        Register::ES | Register::CS | Register::SS | Register::DS | Register::None => 0,
        // 32-bit address registers, with the 0x67 prefix.
        other if other.is_gpr32() => register_value(regs, other.full_register())? & 0xffff_ffff,
        other if other.is_gpr16() => register_value(regs, other.full_register())? & 0xffff,
        other if other.is_gpr8() => match other {
            Register::AH | Register::BH | Register::CH | Register::DH => return None,
            _ => register_value(regs, other.full_register())? & 0xff,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use bloodhound_frames::Frame;

    use super::*;
    use crate::{Mapping, Prot};

    #[test]
    fn a_patched_instruction_goes_on_in_the_next_page() {
        let ask = |last: &[u8]| {
            let mut page = [0x90; 4096];
            page[4096 - last.len()..].copy_from_slice(last);
            let frame = Frame::from_bytes(&page);
            let mut memory = Extents::default();
            let frame_offset = frame.offset();
            memory.insert(&Mapping { addr: PAGE, frame_offset, pages: 1, prot: Prot::RX });
            patched(&memory, 2 * PAGE - last.len() as u64)
        };
        let fetch =
            |len| Some(Trap::PageFault { addr: 2 * PAGE, access: Some(Access::Exec), rip: 2 * PAGE - len });
        assert_eq!((ask(b"\x06"), ask(b"\x06\x01")), (fetch(1), fetch(2)));
        assert_eq!(ask(b"\x06\x31"), Some(Trap::Rdtsc { aux: false }));
        assert_eq!(ask(b"\x06\x01\xf9"), Some(Trap::Rdtsc { aux: true }));
        assert_eq!(ask(b"\x06\x01\xd0"), Some(Trap::Xgetbv));
        assert_eq!(ask(b"\x06\xa2\x90"), Some(Trap::Cpuid));
        assert_eq!((ask(b"\xf4"), ask(b"\x90"), ask(b"\x06\x90")), (None, None, None));
    }

    #[test]
    fn what_is_read_and_written_by_one_instruction() {
        let regs = Regs { rax: 0x1000, rip: 0x40_0000, ..Regs::default() };
        let ask = |code: &[u8]| read_and_written(code, &regs);
        // add dword [rax+4], 1; dec byte [rax]; add [rax], rcx; not word [rax]; neg, shl by cl.
        assert_eq!(ask(b"\x83\x40\x04\x01"), Some((0x1004, 4)));
        assert_eq!(ask(b"\xfe\x08"), Some((0x1000, 1)));
        assert_eq!(ask(b"\x48\x01\x08"), Some((0x1000, 8)));
        assert_eq!(ask(b"\x66\xf7\x10"), Some((0x1000, 2)));
        assert_eq!(ask(b"\xf7\x18"), Some((0x1000, 4)));
        assert_eq!(ask(b"\xd3\x20"), Some((0x1000, 4)));
        // Locked, and always so: lock add, xchg. One access: mov to and from, cmp. On the stack: push, call. No memory; no instruction.
        let none: [&[u8]; 9] = [
            b"\xf0\x83\x40\x04\x01",
            b"\x87\x08",
            b"\x89\x08",
            b"\x8b\x08",
            b"\x39\x08",
            b"\xff\x30",
            b"\xff\x10",
            b"\x01\xc8",
            b"\x06",
        ];
        assert!(none.iter().all(|code| ask(code).is_none()), "{:?}", none.map(ask));
    }

    #[test]
    fn trapped_instructions_with_and_without_prefixes() {
        let ask = |code: &[u8]| {
            let frame = Frame::from_slice(code);
            let mut memory = Extents::default();
            let frame_offset = frame.offset();
            memory.insert(&Mapping { addr: PAGE, frame_offset, pages: 1, prot: Prot::RX });
            trapped(&memory, PAGE)
        };
        assert_eq!(ask(b"\x0f\x31"), Some((Trap::Rdtsc { aux: false }, 0)));
        assert_eq!(ask(b"\x66\xf3\x48\x0f\x31"), Some((Trap::Rdtsc { aux: false }, 3)));
        assert_eq!(ask(b"\x0f\x01\xf9"), Some((Trap::Rdtsc { aux: true }, 0)));
        assert_eq!(ask(b"\x2e\xf4\xa2"), Some((Trap::Cpuid, 1)));
        assert_eq!(ask(b"\x0f\x01\xf8"), None, "swapgs");
        assert_eq!(ask(b"\xf4\xa3"), None, "hlt");
        // 16 bytes are no instruction.
        assert_eq!(ask(b"\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x66\x0f\x31"), None);
    }
}

//! Programs at random: bytes ([`bytes`]) or valid instructions ([`instructions`]), and what they start with
//! ([`registers`], [`vectors`], [`data`]).

use bloodhound_platform::{Regs, XState};
use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind};

use super::known;
use super::random::Random;
use super::{CODE_PAGES, PAGES, STACK_TOP};
use crate::{CODE, PAGE};

const MAX_INSTRUCTION: usize = 15;

/// Instructions that deserve to come often, most of them without their operands.
const FAVOURITES: &[&[u8]] = &[
    b"\xf3\xa4",     // rep movsb
    b"\xf3\x48\xa5", // rep movsq
    b"\xf3\xaa",     // rep stosb
    b"\xf3\x48\xab", // rep stosq
    b"\xf3\xa6",     // repe cmpsb
    b"\xf2\xae",     // repne scasb
    b"\xf3\x48\xad", // rep lodsq
    b"\x9c",         // pushfq
    b"\x66\x9c",     // pushf
    b"\x9d",         // popfq
    b"\x66\x9d",     // popf
    b"\x0f\x05",     // syscall
    b"\xcc",         // int3
    b"\xc9",         // leave
    b"\xc3",         // ret
    b"\xdb\xe3",     // fninit
    b"\xdb\xe2",     // fnclex
    b"\x9b",         // fwait
    b"\xd9\xe8",     // fld1
    b"\xd9\xee",     // fldz
    b"\xde\xf9",     // fdivp
    b"\xd9\xfa",     // fsqrt
    b"\xc5\xf8\x77", // vzeroupper
    b"\xfd",         // std
    b"\xfc",         // cld
    b"\x9e",         // sahf
    b"\xd7",         // xlatb
    b"\x0f\x01\xd5", // xend
    b"\x0f\x0b",     // ud2
];

/// Opcodes with a ModRM byte that deserve to come often, and the digit of its middle field, if it matters.
const WITH_OPERAND: &[(&[u8], Option<u8>)] = &[
    (b"\xf7", Some(6)),         // div
    (b"\xf7", Some(7)),         // idiv
    (b"\x48\xf7", Some(6)),     // div
    (b"\xf6", Some(7)),         // idiv
    (b"\x48\x0f\xc7", Some(1)), // cmpxchg16b
    (b"\x0f\xc7", Some(1)),     // cmpxchg8b
    (b"\xf0\x0f\xb1", None),    // lock cmpxchg
    (b"\x48\x0f\xc1", None),    // xadd
    (b"\x87", None),            // xchg
    (b"\x48\x0f\xa3", None),    // bt
    (b"\x48\x0f\xab", None),    // bts
    (b"\x0f\xba", None),        // bt, bts, btr, btc with a number
    (b"\x0f\xa5", None),        // shld by cl
    (b"\x48\xd3", None),        // shifts by cl
    (b"\x0f\xae", Some(2)),     // ldmxcsr
    (b"\x0f\xae", Some(3)),     // stmxcsr
    (b"\x0f\xae", Some(0)),     // fxsave
    (b"\x0f\xae", Some(1)),     // fxrstor
    (b"\xd9", Some(5)),         // fldcw
    (b"\xd9", Some(6)),         // fnstenv
    (b"\xd9", Some(4)),         // fldenv
    (b"\xdd", Some(6)),         // fnsave
    (b"\xdd", Some(4)),         // frstor
    (b"\xdb", Some(7)),         // fstp of ten bytes
    (b"\xdb", Some(5)),         // fld of ten bytes
    (b"\xff", Some(2)),         // call
    (b"\xff", Some(4)),         // jmp
    (b"\xff", Some(6)),         // push
    (b"\x8f", Some(0)),         // pop
    (b"\x0f\x28", None),        // movaps
    (b"\x66\x0f\x6f", None),    // movdqa
    (b"\xc5\xfd\x6f", None),    // vmovdqa
    (b"\xc5\xfc\x11", None),    // vmovups
    (b"\x0f\x5e", None),        // divps
    (b"\xf2\x0f\x51", None),    // sqrtsd
    (b"\x0f\xae", Some(7)),     // clflush
];

/// Random bytes in the pages of code, with a start for each of their first ones.
pub(crate) fn bytes(random: &mut Random) -> (Vec<u8>, Vec<u64>) {
    let mut code = vec![0; (CODE_PAGES * PAGE) as usize];
    random.fill(&mut code);
    (code, (0..64).map(|_| CODE + random.below(CODE_PAGES * PAGE - 16)).collect())
}

/// Random valid instructions, from somewhere before the end of the first page on to behind it, and where each begins.
pub(crate) fn instructions(random: &mut Random) -> (Vec<u8>, Vec<u64>) {
    let mut code = vec![0xcc; (CODE_PAGES * PAGE) as usize];
    let mut at = if random.once_in(3) { PAGE as usize - random.below(200) as usize } else { 0 };
    let mut starts = Vec::new();
    for _ in 0..24 + random.below(40) {
        let instruction = instruction(random);
        starts.push(CODE + at as u64);
        code[at..at + instruction.len()].copy_from_slice(&instruction);
        at += instruction.len();
    }
    // syscall
    code[at..at + 2].copy_from_slice(b"\x0f\x05");
    (code, starts)
}

/// One valid instruction that means the same everywhere.
fn instruction(random: &mut Random) -> Vec<u8> {
    loop {
        let mut code = candidate(random);
        code.resize(code.len() + MAX_INSTRUCTION, 0);
        let decoded = Decoder::new(64, &code, DecoderOptions::NONE).decode();
        if decoded.is_invalid() || known::differs(&decoded) {
            continue;
        }
        code.truncate(decoded.len());
        aim(random, &decoded, &mut code);
        return code;
    }
}

/// Makes a branch go a short way, and mostly forward.
fn aim(random: &mut Random, decoded: &Instruction, code: &mut [u8]) {
    if decoded.op0_kind() != OpKind::NearBranch64 {
        return;
    }
    let forward = random.below(24) as i64;
    let way = if random.once_in(40) { -forward } else { forward };
    let bytes = way.to_le_bytes();
    let long = decoded.is_jcc_near() || decoded.is_jmp_near() || decoded.is_call_near();
    let field = if long { 4 } else { 1 };
    let at = code.len() - field;
    code[at..].copy_from_slice(&bytes[..field]);
}

fn candidate(random: &mut Random) -> Vec<u8> {
    let mut code = Vec::new();
    match random.below(10) {
        0 => return random.of(FAVOURITES).to_vec(),
        1 => {
            let (opcode, digit) = random.of(WITH_OPERAND);
            code.extend_from_slice(opcode);
            operand(random, &mut code, digit);
            return code;
        }
        2 => vex(random, &mut code),
        3 => {
            prefixes(random, &mut code);
            code.push(0xd8 + random.below(8) as u8);
        }
        4 | 5 => {
            prefixes(random, &mut code);
            code.extend([0x0f, random.byte()]);
        }
        6 => {
            prefixes(random, &mut code);
            code.extend([0x0f, random.of(&[0x38, 0x3a]), random.byte()]);
        }
        _ => {
            prefixes(random, &mut code);
            code.push(random.byte());
        }
    }
    operand(random, &mut code, None);
    code
}

fn prefixes(random: &mut Random, code: &mut Vec<u8>) {
    for (prefixes, odds) in
        [(&[0x66][..], 6), (&[0xf2, 0xf3], 6), (&[0x67], 24), (&[0x64, 0x65, 0x2e], 24), (&[0xf0], 12)]
    {
        if random.once_in(odds) {
            code.push(random.of(prefixes));
        }
    }
    if random.once_in(2) {
        code.push(0x40 | random.below(16) as u8);
    }
}

fn vex(random: &mut Random, code: &mut Vec<u8>) {
    // vvvv is inverted and often has to be 1111b.
    let vvvv = if random.once_in(2) { 0x78 } else { random.byte() & 0x78 };
    let length_and_prefix = random.byte() & 7;
    if random.once_in(2) {
        code.extend([0xc5, 0x80 | vvvv | length_and_prefix, random.byte()]);
    } else {
        let map = random.of(&[1, 2, 2, 3]);
        code.extend([0xc4, random.byte() & 0xe0 | map]);
        code.extend([random.byte() & 0x80 | vvvv | length_and_prefix, random.byte()]);
    }
}

/// A ModRM byte with all that may follow.
fn operand(random: &mut Random, code: &mut Vec<u8>, digit: Option<u8>) {
    let mode = random.of(&[3, 3, 3, 1, 1, 1, 1, 0, 0, 2]);
    let middle = digit.unwrap_or_else(|| random.below(8) as u8);
    let base = random.below(8) as u8;
    code.push(mode << 6 | middle << 3 | base);
    if mode != 3 && base == 4 {
        // No index, rcx, or any.
        let any = random.byte() & 7;
        let index = random.of(&[4, 4, 4, 1, any]);
        code.push(random.byte() & 0xc7 | index << 3);
    }
    let near = random.below(80) as i64 - 40;
    match mode {
        1 => code.push(near as u8),
        2 => code.extend_from_slice(&(near as i32).to_le_bytes()),
        _ => {}
    }
    // Immediates, and displacements where the mode says nothing of them: small or not.
    let mut rest = [0; 8];
    random.fill(&mut rest);
    if random.once_in(2) {
        let sign = if rest[0] >= 0x80 { 0xff } else { 0 };
        rest[1..].fill(sign);
    }
    code.extend_from_slice(&rest);
}

/// An address near the edge of a page, or within one.
pub(crate) fn pointer(random: &mut Random) -> u64 {
    let (page, _) = random.of(PAGES);
    page + match random.below(4) {
        0 => PAGE - random.below(72),
        1 => random.below(72),
        2 => random.below(PAGE / 64) * 64,
        _ => random.below(PAGE),
    }
}

/// A number that means something, or any.
pub(crate) fn number(random: &mut Random) -> u64 {
    match random.below(10) {
        0..=3 => pointer(random),
        4 | 5 => random.below(20),
        6 => random.of(&[0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, 1 << 31, (1 << 31) - 1, 0x8000_0000_0000]),
        7 => random.below(20).wrapping_neg(),
        _ => random.word(),
    }
}

/// Registers to start with.
pub(crate) fn registers(random: &mut Random, rip: u64) -> Regs {
    let mut r = Regs { rip, ..Regs::default() };
    {
        let Regs { rax, rbx, rcx, rdx, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15, .. } = &mut r;
        for register in [rax, rdx, r8, r9, r10, r11, r12, r13, r14, r15] {
            *register = number(random);
        }
        for register in [rbx, rbp, rsi, rdi] {
            *register = if random.once_in(8) { number(random) } else { pointer(random) };
        }
        *rcx = if random.once_in(8) { number(random) } else { random.below(100) };
    }
    r.rsp = match random.below(8) {
        0 => pointer(random),
        1 => number(random),
        _ => STACK_TOP - 8 * random.below(40),
    };
    r.fs_base = pointer(random);
    r.gs_base = pointer(random);
    r.rflags = flags(random);
    r
}

/// Flags to start with: those of arithmetic, and sometimes the others.
fn flags(random: &mut Random) -> u64 {
    let mut flags = random.word() & 0x8d5;
    // TF, DF, AC, ID.
    for (bit, odds) in [(8, 32), (10, 8), (18, 24), (21, 8)] {
        if random.once_in(odds) {
            flags |= 1 << bit;
        }
    }
    flags
}

/// Any state of x87, SSE and AVX, mostly with their exceptions masked.
pub(crate) fn vectors(random: &mut Random) -> XState {
    let mut area = *XState::initial().area();
    random.fill(&mut area[32..416]);
    random.fill(&mut area[576..]);
    // Numbers that make exceptions: infinities, not a number, tiny, zero; as single, double and extended.
    for _ in 0..random.below(24) {
        let at = 32 + 8 * random.below(48) as usize;
        let special = random.of(&[
            0u64,
            1,
            1 << 63,
            0x7ff0 << 48,
            0x7ff8 << 48,
            0x7ff4 << 48,
            0x3ff0 << 48,
            0x7f80_0000_7fc0_0000,
            0x3f80_0000_0000_0001,
        ]);
        area[at..at + 8].copy_from_slice(&special.to_le_bytes());
    }
    if random.once_in(4) {
        // Not what follows, which some processors only keep while an exception is pending.
        random.fill(&mut area[..6]);
    }
    area[4] = random.byte();
    if random.once_in(4) {
        random.fill(&mut area[24..26]);
    }
    // Any state is brought into a form that can be loaded.
    XState::from_area(&area).unwrap_or_default()
}

/// The contents of a page of data: random numbers, addresses of code and of data, small numbers.
pub(crate) fn data(random: &mut Random, starts: &[u64]) -> Vec<u8> {
    let mut page = vec![0; PAGE as usize];
    random.fill(&mut page);
    for word in page.chunks_exact_mut(8) {
        let value = match random.below(4) {
            0 => random.of(starts),
            1 => number(random),
            _ => continue,
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
    page
}

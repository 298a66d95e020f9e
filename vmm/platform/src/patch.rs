//! Makes `xgetbv` trap, and `cpuid` and `rdtsc` where the host cannot ([`patch`]): finds the instructions in a page of code and
//! replaces a byte of each. Neighbour: `code_view`, which says what is to be patched and keeps the result.
//!
//! `cpuid` is 0f a2. With the first byte replaced by f4 it is `hlt`, which is privileged and faults; the second
//! byte stays and says what it was. One byte is replaced, so a jump to the instruction and the length of it
//! stay right. `rdtsc` is 0f 31, `rdtscp` 0f 01 f9 and `xgetbv` 0f 01 d0; their first byte becomes 06, an invalid opcode, as
//! a `hlt` before a `xor` (31) is nothing unusual. So does that of a `cpuid` whose second byte is in the next page: a `hlt` at the end of
//! a page shall stay one, also while the next page is not mapped.
//!
//! The bytes may also be part of a longer instruction or of data among the code. What it is shows by decoding
//! from many places before it: x86 code synchronises itself, so nearly all of the streams run into the true one
//! after a few instructions, and either land on the pair or step over it.

use iced_x86::{Code, CpuidFeature, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, Register};

use crate::code_view::Patches;

const PAGE: usize = 4096;
/// Streams begin at each of this many bytes before the pair.
const REACH: usize = 96;
/// Bytes after which a stream is most likely the true one.
const SYNCHRONISED: usize = 16;
/// So many zeros in a row are part of no instruction.
const ZEROS: usize = 4;
/// Bytes of the neighbouring pages that are looked at, at most.
pub const CONTEXT: usize = REACH;
/// An instruction that is to fault: 0f and the rest of it, and what takes the place of 0f.
struct Pattern {
    rest: &'static [u8],
    with: u8,
    /// Some instruction before it sets ecx, or it is none: 0f 01 d0 is common in tables of exception handlers.
    ecx: bool,
}

const CPUID: Pattern = Pattern { rest: &[0xa2], with: 0xf4, ecx: false };
const RDTSC: Pattern = Pattern { rest: &[0x31], with: INVALID, ecx: false };
const RDTSCP: Pattern = Pattern { rest: &[0x01, 0xf9], with: INVALID, ecx: false };
/// No processor can trap it: it tells which state the host's kernel has enabled.
const XGETBV: Pattern = Pattern { rest: &[0x01, 0xd0], with: INVALID, ecx: true };

/// What stands for the first byte of a patched instruction but `cpuid`, and of a `cpuid` across the page's end.
pub(crate) const INVALID: u8 = 0x06;

/// Replaces instructions of an executable page; how many. `before` and `after` are the bytes around the page (at most
/// [`CONTEXT`] each are used), as far as they are code, patched or not; empty if they are not known. At `entry` an
/// instruction begins, for certain.
///
/// The last bytes of a page are judged together with the first of those after it.
pub(crate) fn patch(
    page: &mut [u8; PAGE],
    before: &[u8],
    after: &[u8],
    entry: Option<usize>,
    patches: Patches,
) -> usize {
    let wanted =
        [(patches.xgetbv, XGETBV), (patches.cpuid, CPUID), (patches.rdtsc, RDTSC), (patches.rdtsc, RDTSCP)];
    let patterns: Vec<Pattern> =
        wanted.into_iter().filter_map(|(on, pattern)| on.then_some(pattern)).collect();
    let byte = |at: usize| page.get(at).or_else(|| after.get(at - PAGE)).copied();
    let pattern_at = |at: usize| {
        let stands = |p: &&Pattern| (1..).zip(p.rest).all(|(n, rest)| byte(at + n) == Some(*rest));
        patterns.iter().find(stands)
    };
    // The usual page has none.
    let candidates: Vec<(usize, &Pattern)> = (0..PAGE)
        .filter(|&at| page[at] == 0x0f)
        .filter_map(|at| pattern_at(at).map(|pattern| (at, pattern)))
        .collect();
    if candidates.is_empty() {
        return 0;
    }
    let before = &before[before.len().saturating_sub(CONTEXT)..];
    let mut code = before.to_vec();
    code.extend_from_slice(page);
    code.extend_from_slice(&after[..after.len().min(CONTEXT)]);
    restore(&mut code);
    let certain = entry.map_or(Vec::new(), |entry| stream(&code, before.len() + entry));
    let real: Vec<(usize, u8)> = candidates
        .into_iter()
        .filter(|(at, pattern)| {
            let at = before.len() + at;
            certain.contains(&at) || is_instruction(&code, at, pattern)
        })
        .map(|(at, pattern)| (at, if at + 1 == PAGE { INVALID } else { pattern.with }))
        .collect();
    for &(at, with) in &real {
        page[at] = with;
    }
    real.len()
}

/// Where the instructions begin that are executed from `at` on, until one does not go on to the next.
fn stream(code: &[u8], mut at: usize) -> Vec<usize> {
    let mut starts = Vec::new();
    while let Some(instruction) = decode(code, at) {
        starts.push(at);
        if ends_flow(&instruction) {
            break;
        }
        at = instruction.next_ip() as usize;
    }
    starts
}

/// Undoes what has been replaced already: it is no code that anybody writes, and would count against what stands next to it.
fn restore(code: &mut [u8]) {
    for at in 0..code.len() {
        let stands = |p: &Pattern, with: u8| code[at] == with && code[at + 1..].starts_with(p.rest);
        if [XGETBV, CPUID, RDTSC, RDTSCP].iter().any(|p| stands(p, INVALID) || stands(p, p.with)) {
            code[at] = 0x0f;
        }
    }
}

/// Whether an instruction begins at `at`, by the vote of the streams before it, and whether it stands among code.
///
/// Tables in executable pages are real: libcrypto has 150 KiB of curve points there, and some linkers put all
/// constants there. A pair in them must stay, or signatures go wrong; so the neighbourhood has to look like code.
fn is_instruction(code: &[u8], at: usize, pattern: &Pattern) -> bool {
    let (mut hits, mut misses) = (0u32, 0u32);
    // For each start: where its stream goes is the same as where the stream of its first instruction's end goes.
    // `lands[n]` answers for `first + n`: on the pair (true), over it (false), or into nonsense (none).
    let first = at.saturating_sub(REACH);
    let seen: Vec<Option<Seen>> = (first..at).map(|start| see(code, start)).collect();
    let mut lands: Vec<Option<bool>> = vec![None; at - first + 1];
    lands[at - first] = Some(true);
    for start in (first..at).rev() {
        lands[start - first] = match &seen[start - first] {
            None => None,
            Some(Seen { len, .. }) if start + len > at => Some(false),
            Some(Seen { len, .. }) => lands[start + len - first],
        };
        match lands[start - first] {
            Some(true) => hits += 1,
            Some(false) => misses += 1,
            None => {}
        }
    }
    if hits < misses || !code_follows(code, at + 1 + pattern.rest.len()) {
        return false;
    }
    // Streams that begin in zeros synchronise late, so the furthest is not always the true one. Before the
    // 407 pairs found in programs and libraries of Debian 12 at least 14 of 81 streams looked like code where it
    // was one, at most 4 where it was a table.
    let last = if at - first > 2 * SYNCHRONISED { at - SYNCHRONISED } else { at };
    let starts = first..=last;
    let total = last - first + 1;
    let good = starts.filter(|&start| {
        lands[start - first] == Some(true) && code_precedes(&seen[start - first..], pattern.ecx)
    });
    good.count() * 10 >= total
}

/// Whether the instructions from `next` on are such as code has, as far as there are bytes.
fn code_follows(code: &[u8], mut next: usize) -> bool {
    for _ in 0..12 {
        let Some(instruction) = decode(code, next) else { return next + 15 > code.len() };
        if !plausible(&instruction) {
            return false;
        }
        if ends_flow(&instruction) {
            break;
        }
        next = instruction.next_ip() as usize;
    }
    true
}

/// What an instruction in front of the pair tells.
struct Seen {
    len: usize,
    plausible: bool,
    /// Before the beginning of a function or behind the end of one there may be anything.
    ends: bool,
    /// Writes ecx.
    ecx: bool,
}

fn see(code: &[u8], at: usize) -> Option<Seen> {
    // In a row of zeros nothing has been written yet, or it is padding. What follows it begins with its first byte.
    if code[..at + 1].ends_with(&[0; ZEROS]) {
        let len = code[at..].iter().position(|byte| *byte != 0)?;
        return Some(Seen { len, plausible: true, ends: true, ecx: false });
    }
    let instruction = decode(code, at)?;
    let ends = ends_flow(&instruction) || matches!(instruction.mnemonic(), Mnemonic::Endbr64 | Mnemonic::Nop);
    let ecx = matches!(instruction.op0_register(), Register::ECX | Register::RCX);
    Some(Seen { len: instruction.len(), plausible: plausible(&instruction), ends, ecx })
}

/// Whether the last instructions of a stream before the pair, which begins at the first of `seen` and ends behind the
/// last, are such as code has.
fn code_precedes(seen: &[Option<Seen>], ecx: bool) -> bool {
    let mut stream = Vec::new();
    let mut next = 0;
    while let Some(instruction) = seen.get(next) {
        let Some(instruction) = instruction else { return false };
        next += instruction.len;
        stream.push(instruction);
    }
    let mut set = !ecx;
    for instruction in stream.iter().rev().take(12) {
        if !instruction.plausible {
            return false;
        }
        set |= instruction.ecx;
        if instruction.ends {
            // Where it may have been set is somewhere else.
            set = true;
            break;
        }
    }
    set
}

fn ends_flow(instruction: &Instruction) -> bool {
    matches!(
        instruction.flow_control(),
        FlowControl::Return | FlowControl::UnconditionalBranch | FlowControl::IndirectBranch
    )
}

/// Whether compilers and people write such an instruction near `cpuid`. Random bytes decode to one that is not
/// once in three or four.
fn plausible(instruction: &Instruction) -> bool {
    if matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3) {
        // Padding, with whatever prefixes.
        return true;
    }
    let strange_mnemonic = matches!(
        instruction.mnemonic(),
        Mnemonic::In
            | Mnemonic::Out
            | Mnemonic::Insb
            | Mnemonic::Insd
            | Mnemonic::Outsb
            | Mnemonic::Outsd
            | Mnemonic::Int
            | Mnemonic::Int1
            | Mnemonic::Iret
            | Mnemonic::Iretd
            | Mnemonic::Iretq
            | Mnemonic::Enter
            | Mnemonic::Loop
            | Mnemonic::Loope
            | Mnemonic::Loopne
            | Mnemonic::Jcxz
            | Mnemonic::Jecxz
            | Mnemonic::Jrcxz
            | Mnemonic::Xlatb
            | Mnemonic::Lahf
            | Mnemonic::Sahf
            | Mnemonic::Cli
            | Mnemonic::Sti
            | Mnemonic::Std
            | Mnemonic::Cmc
            | Mnemonic::Hlt
            | Mnemonic::Lodsb
            | Mnemonic::Lodsd
            | Mnemonic::Scasb
            | Mnemonic::Scasd
            | Mnemonic::Cmpsb
            | Mnemonic::Cmpsd
            | Mnemonic::Rcl
            | Mnemonic::Rcr
            | Mnemonic::Jo
            | Mnemonic::Jno
            | Mnemonic::Jp
            | Mnemonic::Jnp
            | Mnemonic::Retf
    );
    let segment = instruction.has_segment_prefix() && instruction.segment_prefix() != Register::FS;
    let moves_segment = (0..instruction.op_count()).any(|n| instruction.op_register(n).is_segment_register());
    let far = matches!(instruction.code(), Code::Retnw_imm16 | Code::Retnd_imm16 | Code::Retnq_imm16)
        || instruction.is_jmp_far_indirect()
        || instruction.is_call_far_indirect();
    let absolute = matches!(
        instruction.code(),
        Code::Mov_AL_moffs8
            | Code::Mov_AX_moffs16
            | Code::Mov_EAX_moffs32
            | Code::Mov_RAX_moffs64
            | Code::Mov_moffs8_AL
            | Code::Mov_moffs16_AX
            | Code::Mov_moffs32_EAX
            | Code::Mov_moffs64_RAX
    );
    let x87 = [CpuidFeature::FPU, CpuidFeature::FPU287, CpuidFeature::FPU387];
    let x87 = instruction.cpuid_features().iter().any(|feature| x87.contains(feature));
    !(strange_mnemonic
        || instruction.is_privileged()
        || segment
        || moves_segment
        || far
        || absolute
        || zeros(instruction)
        || x87)
}

/// 00 00: two zero bytes.
fn zeros(instruction: &Instruction) -> bool {
    instruction.code() == Code::Add_rm8_r8
        && instruction.memory_base() == Register::RAX
        && instruction.len() == 2
        && instruction.op1_register() == Register::AL
}

fn decode(code: &[u8], at: usize) -> Option<Instruction> {
    let end = code.len().min(at + 15);
    let bytes = code.get(at..end)?;
    let instruction = Decoder::with_ip(64, bytes, at as u64, DecoderOptions::NONE).decode();
    (!instruction.is_invalid()).then_some(instruction)
}

#[cfg(test)]
mod tests;

//! `sgdt`, `sidt`, `smsw`, `str` and `sldt` where the processor forbids them to applications (UMIP, "user-mode instruction
//! prevention"): the general protection fault that they raise is answered as Linux answers it, with constants that tell
//! nothing ([`emulate`]).
//!
//! What Linux does is not what a processor without UMIP does: register operands keep their upper bits, the stored base
//! always has eight bytes, and some combinations of prefixes are not understood. So the instruction is decoded here by
//! Linux's rules (arch/x86/kernel/umip.c, arch/x86/lib/insn.c and insn-eval.c), not by those of `decode`.
//!
//! Neighbours: a platform whose host does not do this itself calls [`emulate`]; one whose host does asks [`missing`] about
//! its page faults; `x86` and `spin` know that a single step over such an instruction takes the next one as well.

use iced_x86::Mnemonic;

use crate::decode::{self, MAX_INSTRUCTION};
use crate::extents::Extents;
use crate::{Access, Regs, Trap};

const PAGE: u64 = 4096;

/// Linux's dummies: "a hard-coded value that lies close to the top of the kernel memory", for limit and base.
const GDT: u64 = 0xffff_ffff_fffe_0000;
const IDT: u64 = 0xffff_ffff_ffff_0000;
/// CR0 as Linux sets it: PG AM WP NE ET MP PE.
const CR0: u64 = 0x8005_0033;
/// The selector of the task state (`GDT_ENTRY_TSS`).
const TSS: u64 = 0x40;
/// Bytes that `sgdt` and `sidt` store: a limit, which is zero, and a base.
const TABLE: usize = 10;

/// What [`emulate`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emulated {
    /// The instruction; rip is behind it.
    Done,
    /// It cannot store: a write fault at the first byte that may not be written. The bytes before it are written already,
    /// as Linux does; it is to be repeated.
    Fault(Trap),
}

/// Does the instruction at rip, if it is one of these. `None` if not, or if Linux does not understand it: then nothing has
/// changed, and it is a general protection fault.
#[must_use]
pub fn emulate(memory: &Extents, regs: &mut Regs) -> Option<Emulated> {
    let form = at(memory, regs.rip)?;
    let value = form.kind.value();
    match form.operand {
        Operand::Register(number) => {
            let register = register(regs, number);
            let kept = if form.width == 8 { 0 } else { u64::MAX << (8 * form.width) };
            *register = *register & kept | value & !kept;
        }
        Operand::Memory(place) => {
            let addr = form.address(place, regs)?;
            let mut bytes = [0; TABLE];
            bytes[2..].copy_from_slice(&value.to_le_bytes());
            let bytes = if form.kind.is_table() { &bytes[..] } else { &bytes[2..4] };
            let done = store(memory, addr, bytes);
            if done < bytes.len() {
                return Some(Emulated::Fault(fault(addr.wrapping_add(done as u64), regs.rip)));
            }
        }
    }
    regs.rip = regs.rip.wrapping_add(form.len);
    Some(Emulated::Done)
}

/// The host did the instruction at rip, and could not store at `addr`: the page fault of the byte that may not be written.
/// Linux only tells where the operand begins. `None` if this is no such fault.
#[must_use]
pub fn missing(memory: &Extents, regs: &Regs, addr: u64) -> Option<Trap> {
    let form = at(memory, regs.rip)?;
    let Operand::Memory(place) = form.operand else { return None };
    if form.address(place, regs)? != addr {
        return None;
    }
    let size = if form.kind.is_table() { TABLE } else { 2 };
    let written = writable(memory, addr, size);
    // If all may be written it was the host that had not mapped it yet.
    let written = if written < size { written as u64 } else { 0 };
    Some(fault(addr.wrapping_add(written), regs.rip))
}

/// Where the instruction stands that a step from rip to `to` took last: Linux steps over one of these and the next
/// instruction at once.
#[must_use]
pub(crate) fn stepped(memory: &Extents, mut rip: u64, to: u64) -> u64 {
    while rip != to
        && let Some(form) = at(memory, rip)
    {
        let behind = rip.wrapping_add(form.len);
        // The host let it through as it is.
        if behind == to {
            break;
        }
        rip = behind;
    }
    rip
}

/// Whether one of these stands at rip that Linux does.
#[must_use]
pub(crate) fn is_at(memory: &Extents, rip: u64) -> bool {
    at(memory, rip).is_some()
}

/// Whether one of these stands at rip, may Linux understand it or not.
#[must_use]
pub fn forbids(memory: &Extents, rip: u64) -> bool {
    use Mnemonic::{Sgdt, Sidt, Sldt, Smsw, Str};
    decode::at(memory, rip).is_some_and(|i| matches!(i.mnemonic(), Sgdt | Sidt | Sldt | Smsw | Str))
}

fn fault(addr: u64, rip: u64) -> Trap {
    Trap::PageFault { addr, access: Some(Access::Write), rip }
}

/// How many bytes from an address on may be written, up to `size`.
fn writable(memory: &Extents, addr: u64, size: usize) -> usize {
    let may = |offset: &usize| {
        let at = addr.checked_add(*offset as u64);
        at.and_then(|at| memory.get(at)).is_some_and(|(_, prot)| prot.write)
    };
    (0..size).take_while(may).count()
}

/// Writes up to the first byte that may not be written; how many.
fn store(memory: &Extents, addr: u64, bytes: &[u8]) -> usize {
    let may = writable(memory, addr, bytes.len());
    let first = may.min((PAGE - addr % PAGE) as usize);
    for (at, part) in [(addr, &bytes[..first]), (addr.wrapping_add(first as u64), &bytes[first..may])] {
        if let Some((offset, _)) = memory.get(at).filter(|_| !part.is_empty())
            && bloodhound_frames::write_at(offset, part).is_none()
        {
            debug_assert!(false, "a mapping outside of the arena");
        }
    }
    may
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Sgdt,
    Sidt,
    Smsw,
    Sldt,
    Str,
}

impl Kind {
    fn value(self) -> u64 {
        match self {
            Kind::Sgdt => GDT,
            Kind::Sidt => IDT,
            Kind::Smsw => CR0,
            Kind::Str => TSS,
            // No process has one.
            Kind::Sldt => 0,
        }
    }

    fn is_table(self) -> bool {
        matches!(self, Kind::Sgdt | Kind::Sidt)
    }
}

/// One of these instructions.
#[derive(Clone, Copy, Debug)]
struct Form {
    kind: Kind,
    len: u64,
    /// Operand size in bytes.
    width: u32,
    /// 32-bit addresses.
    short: bool,
    segment: Segment,
    operand: Operand,
}

/// The segment that prefixes choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Segment {
    /// One whose base is 0.
    Flat,
    Fs,
    Gs,
    /// Several prefixes, which Linux does not accept.
    Several,
}

#[derive(Clone, Copy, Debug)]
enum Operand {
    Register(u8),
    Memory(Place),
}

/// An operand in memory.
#[derive(Clone, Copy, Debug)]
struct Place {
    base: Base,
    /// Register, and the shift of its value.
    index: Option<(u8, u8)>,
    displacement: i32,
}

#[derive(Clone, Copy, Debug)]
enum Base {
    Nothing,
    /// The next instruction.
    Rip,
    Register(u8),
}

impl Form {
    /// `None` where Linux gives up, or takes the result for a failure.
    fn address(&self, place: Place, regs: &Regs) -> Option<u64> {
        // A copy, as the accessor is for both reading and writing.
        let mut regs = *regs;
        let base = match place.base {
            Base::Nothing => 0,
            Base::Rip => regs.rip.wrapping_add(self.len),
            Base::Register(number) => *register(&mut regs, number),
        };
        let index = place.index.map_or(0, |(number, shift)| *register(&mut regs, number) << shift);
        let sum = base.wrapping_add(index).wrapping_add_signed(i64::from(place.displacement));
        let offset = if self.short { sum & 0xffff_ffff } else { sum };
        let segment = match self.segment {
            Segment::Flat => 0,
            Segment::Fs => regs.fs_base,
            Segment::Gs => regs.gs_base,
            Segment::Several => return None,
        };
        (segment != u64::MAX).then(|| offset.wrapping_add(segment)).filter(|&addr| addr != u64::MAX)
    }
}

/// A general register by its number in instructions.
fn register(regs: &mut Regs, number: u8) -> &mut u64 {
    match number {
        0 => &mut regs.rax,
        1 => &mut regs.rcx,
        2 => &mut regs.rdx,
        3 => &mut regs.rbx,
        4 => &mut regs.rsp,
        5 => &mut regs.rbp,
        6 => &mut regs.rsi,
        7 => &mut regs.rdi,
        8 => &mut regs.r8,
        9 => &mut regs.r9,
        10 => &mut regs.r10,
        11 => &mut regs.r11,
        12 => &mut regs.r12,
        13 => &mut regs.r13,
        14 => &mut regs.r14,
        _ => &mut regs.r15,
    }
}

/// The instruction at rip, if it is one of these.
fn at(memory: &Extents, rip: u64) -> Option<Form> {
    let mut code = [0; MAX_INSTRUCTION];
    let len = memory.read(rip, &mut code);
    parse(&code[..len])
}

/// What stands before the opcode.
struct Prefixes {
    len: usize,
    width: u32,
    short: bool,
    segment: Segment,
    rex: u8,
}

/// Linux keeps four different prefixes, the last one in the fourth place, and does not understand more than four.
fn prefixes(code: &[u8]) -> Prefixes {
    let mut kept = [0u8; 4];
    let (mut count, mut len, mut last) = (0, 0, 0);
    let mut found = Prefixes { len: 0, width: 4, short: false, segment: Segment::Flat, rex: 0 };
    for &byte in code {
        if !matches!(byte, 0x66 | 0x67 | 0xf0 | 0xf2 | 0xf3 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65) {
            break;
        }
        if !kept[..count].contains(&byte) {
            if count == kept.len() {
                break;
            }
            kept[count] = byte;
            count += 1;
            match byte {
                0x66 => found.width = 2,
                0x67 => found.short = true,
                _ => {}
            }
        }
        (last, len) = (byte, len + 1);
    }
    if last != 0 && last != kept[3] {
        let moved = kept[3];
        if moved != 0 {
            kept.iter_mut().filter(|byte| **byte == last).for_each(|byte| *byte = moved);
        }
        kept[3] = last;
    }
    // So three different ones are counted as four.
    let mut segments = kept
        .iter()
        .take_while(|byte| **byte != 0)
        .filter(|byte| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65));
    found.segment = match (segments.next(), segments.next()) {
        (_, Some(_)) => Segment::Several,
        (Some(0x64), _) => Segment::Fs,
        (Some(0x65), _) => Segment::Gs,
        _ => Segment::Flat,
    };
    if let Some(&rex) = code.get(len).filter(|byte| **byte & 0xf0 == 0x40) {
        (found.rex, len) = (rex, len + 1);
        if rex & 8 != 0 {
            found.width = 8;
        }
    }
    found.len = len;
    found
}

/// One of these instructions at the beginning of some bytes.
fn parse(code: &[u8]) -> Option<Form> {
    let before = prefixes(code);
    let rex = |bit: u8| if before.rex & bit != 0 { 8 } else { 0 };
    let &[0x0f, opcode @ (0 | 1), modrm, ref rest @ ..] = code.get(before.len..)? else { return None };
    let (mode, middle, low) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);
    let kind = match (opcode, middle) {
        (0, 0) => Kind::Sldt,
        (0, 1) => Kind::Str,
        (1, 0) if mode != 3 => Kind::Sgdt,
        (1, 1) if mode != 3 => Kind::Sidt,
        (1, 4) => Kind::Smsw,
        _ => return None,
    };
    let mut len = before.len + 3;
    let operand = if mode == 3 {
        Operand::Register(low | rex(1))
    } else {
        let (place, bytes) = place(mode, low, rest, [rex(1), rex(2)])?;
        len += bytes;
        Operand::Memory(place)
    };
    let Prefixes { width, short, segment, .. } = before;
    Some(Form { kind, len: len as u64, width, short, segment, operand })
}

/// The operand that follows a ModRM byte, and of how many bytes; with what REX adds to the numbers of base and index.
fn place(mode: u8, low: u8, rest: &[u8], rex: [u8; 2]) -> Option<(Place, usize)> {
    let [more_base, more_index] = rex;
    let (mut base, mut index, mut at) = (Base::Register(low | more_base), None, 0);
    // In mode 0 the fifth register means that there is none, whatever REX says.
    let mut absent = mode == 0 && low == 5;
    if absent {
        base = Base::Rip;
    }
    if low == 4 {
        let sib = *rest.first()?;
        at = 1;
        absent = mode == 0 && sib & 7 == 5;
        base = if absent { Base::Nothing } else { Base::Register(sib & 7 | more_base) };
        index = Some((sib >> 3 & 7 | more_index, sib >> 6)).filter(|(number, _)| *number != 4);
    }
    let bytes = match mode {
        1 => 1,
        2 => 4,
        _ if absent => 4,
        _ => 0,
    };
    let displacement = match *rest.get(at..at + bytes)? {
        [small] => i32::from(small as i8),
        [a, b, c, d] => i32::from_le_bytes([a, b, c, d]),
        _ => 0,
    };
    Some((Place { base, index, displacement }, at + bytes))
}

#[cfg(test)]
mod tests;

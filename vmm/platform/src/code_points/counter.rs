//! Code that counts the passes of an instruction at native speed ([`Counter`]).
//!
//! Five bytes of code are replaced by a jump to a page of our own. There a number in memory is counted down without touching a flag, then the
//! replaced instructions follow, encoded for their new place, and a jump back. When the number is 0, the code traps instead, with
//! all registers as they were.
//!
//! The five bytes must be code and nothing else, as a program may have data in between. They are those of instructions that are known to be
//! executed one after the other, the counted one last ([`Site`], [`crate::StopPoint::straight`]); or, if that are not enough, the counted one is a conditional branch, and what stands
//! behind it follows. A task that gets to the counted instruction on another way finds the stop point there.
//!
//! Nobody can prove that no other jump of the program leads into the five bytes, behind their first. So the page is put where each of the four
//! bytes of the jump's distance is an invalid instruction by itself ([`INVALID`]): whoever gets there traps, and is taken to
//! what stands there in truth. There are enough such distances in reach of a jump to find one whose page is free.
//!
//! Neighbours: [`super::counting`] puts counters into a space and takes them out.

use bloodhound_frames::{FRAME_SIZE, Frame};
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Decoder, DecoderOptions, FlowControl, Instruction,
    InstructionBlock, Mnemonic,
};

const PAGE: u64 = FRAME_SIZE as u64;

/// Length of the jump that stands in the place of instructions.
pub(super) const JUMP: u64 = 5;
/// Bytes from a jump's place on that are looked at, which is so many instructions of common length.
pub(super) const LOOKED_AT: usize = 32;
/// Bytes of a counter's two pages.
pub(super) const COUNTER_BYTES: u64 = 2 * PAGE;
/// Room for a counter's code.
const ROOM: u64 = 256;
/// Bytes that begin no instruction in 64-bit mode (Intel SDM, volume 2, appendix A, "invalid in 64-bit mode"), and are none that a
/// processor or an extension to come gives another meaning (as `d5`). `06` is not among them: patches begin so ([`crate::code_view`]).
pub(super) const INVALID: [u8; 17] =
    [0x07, 0x0e, 0x16, 0x17, 0x1e, 0x1f, 0x27, 0x2f, 0x37, 0x3f, 0x60, 0x61, 0x82, 0x9a, 0xce, 0xd4, 0xea];
/// What traps when the number is 0.
const TRAP: u8 = INVALID[0];

/// Where a counter may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Site {
    /// Where the jump stands: an instruction after which the others up to the counted one are executed, one behind the other.
    pub head: u64,
    /// The counted instruction.
    pub counted: u64,
}

/// See the module's text.
pub(super) struct Counter {
    pub site: Site,
    /// What stands at the jump's place, of which the counter was made.
    original: [u8; LOOKED_AT],
    /// Where the jump leads.
    entry: u64,
    /// Where the trap stands, behind an instruction that loads a register again.
    trap: u64,
    /// Where the replaced instructions stand, and where they belong.
    moved: Vec<(u64, u64)>,
    /// The page with the code; the one behind it holds the number.
    code: Frame,
    data: Frame,
}

/// Where a task was stopped that may have been in a counter's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inside {
    /// Not there.
    No,
    /// At its beginning: nothing has been counted.
    Entry,
    /// Counting: registers are not the program's.
    Counts,
    /// At the trap: the number is 0.
    Over,
    /// At an instruction that belongs to this address.
    Moved(u64),
}

/// Offsets of the number and of a saved register in the second page.
const NUMBER: u64 = 0;
const SAVED: u64 = 8;

impl Counter {
    /// A counter at a site, at whose head `bytes` stand; `usable` says of an address whether the byte there is the program's. `None`: there are not
    /// enough instructions to be replaced, or they cannot be moved, or there is no room for the code in the ranges `free`, besides pages
    /// that are `taken`.
    pub fn new(
        site: Site,
        bytes: &[u8; LOOKED_AT],
        usable: impl Fn(u64) -> bool,
        free: &[(u64, u64)],
        taken: impl Fn(u64) -> bool,
    ) -> Option<Counter> {
        let instructions = replaced(site, bytes, usable)?;
        let entry = place(site.head, free, taken)?;
        let page = entry & !(PAGE - 1);
        let mut code = counting(entry, page + PAGE);
        let begin = entry + code.len() as u64;
        let (moved, offsets) = encode(&instructions, begin)?;
        code.extend(moved);
        let trap = entry + code.len() as u64;
        // The distance of `jrcxz`, which is the byte before the replaced instructions but for the load of rcx.
        let distance = i8::try_from(trap - (entry + COUNTED as u64)).ok()?;
        code[COUNTED - 1] = distance.cast_unsigned();
        code.extend(load_rcx(trap, page + PAGE + SAVED));
        let trap = entry + code.len() as u64;
        code.push(TRAP);
        if code.len() as u64 > ROOM {
            return None;
        }
        let at = (entry - page) as usize;
        let mut bytes_of_page = [TRAP; FRAME_SIZE];
        bytes_of_page[at..at + code.len()].copy_from_slice(&code);
        let places = instructions.iter().zip(offsets);
        Some(Counter {
            site,
            original: *bytes,
            entry,
            trap,
            moved: places.map(|(old, offset)| (begin + u64::from(offset), old.ip())).collect(),
            code: Frame::from_bytes(&bytes_of_page),
            data: Frame::zeroed(),
        })
    }

    /// Whether it was made of these bytes.
    pub fn is_of(&self, bytes: &[u8; LOOKED_AT]) -> bool {
        self.original == *bytes
    }

    /// Whether its pages are within these ranges.
    pub fn fits(&self, free: &[(u64, u64)]) -> bool {
        fits(self.entry, free)
    }

    /// The two pages: address, and offset in the arena of code and data.
    pub fn pages(&self) -> (u64, u64, u64) {
        (self.entry & !(PAGE - 1), self.code.offset(), self.data.offset())
    }

    /// The jump that stands in the place of instructions.
    pub fn jump(&self) -> [u8; JUMP as usize] {
        jump(self.site.head, self.entry)
    }

    /// How many passes are left.
    pub fn left(&self) -> u64 {
        self.data.load_u64(NUMBER as usize)
    }

    /// Passes that are left from now on.
    pub fn set_left(&self, passes: u64) {
        self.data.write_shared(NUMBER as usize, &passes.to_le_bytes());
    }

    /// Where in its code an address is.
    pub fn inside(&self, rip: u64) -> Inside {
        if rip < self.entry || rip > self.trap {
            return Inside::No;
        }
        if rip == self.entry {
            return Inside::Entry;
        }
        if rip == self.trap {
            return Inside::Over;
        }
        match self.moved.iter().find(|(new, _)| *new == rip) {
            Some((_, old)) => Inside::Moved(*old),
            None => Inside::Counts,
        }
    }

    /// Whether an address is within the bytes that the jump replaces, behind the first.
    pub fn hides(&self, rip: u64) -> bool {
        rip > self.site.head && rip < self.site.head + JUMP
    }
}

/// Whether passes of an instruction are counted at native speed, once they are many: a function of the program's memory
/// alone. At `start` begin instructions that the program executes one behind the other, up to the one at `counted`, at most
/// [`STRAIGHT`] bytes behind. `bytes` stand at `start`; `free` is what the program has not mapped.
#[must_use]
pub fn countable((start, counted): (u64, u64), bytes: &[u8; COUNTABLE], free: &[(u64, u64)]) -> bool {
    let code = |head: u64| {
        let at = usize::try_from(head.checked_sub(start)?).ok()?;
        let code: &[u8; LOOKED_AT] = bytes.get(at..at + LOOKED_AT)?.try_into().ok()?;
        (head % PAGE <= PAGE - LOOKED_AT as u64).then_some(*code)
    };
    let mut heads = Vec::new();
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    while decoder.ip() < counted {
        heads.push(decoder.ip());
        if decoder.decode().is_invalid() {
            break;
        }
    }
    heads_of(&heads, counted).any(|head| {
        // What is encoded needs no frames for this.
        let instructions = code(head).and_then(|code| replaced(Site { head, counted }, &code, |_| true));
        let entry = instructions.as_ref().and_then(|_| place(head, free, |_| false));
        instructions.zip(entry).is_some_and(|(code, entry)| encode(&code, entry).is_some())
    })
}

/// Bytes before an instruction that [`countable`] looks at, at most.
pub const STRAIGHT: u64 = 16;
/// Bytes that [`countable`] looks at.
pub const COUNTABLE: usize = LOOKED_AT + STRAIGHT as usize;

/// Where the jump may stand, the best place first: at the last instruction that is far enough before the counted one; at itself, if what follows is
/// code as well. `before`: instructions that are executed one behind the other up to it.
pub(super) fn heads_of(before: &[u64], counted: u64) -> impl Iterator<Item = u64> {
    before.iter().rev().copied().chain([counted])
}

/// Where the code of a counter may lie so that the jump to it is made of bytes that are invalid by themselves.
fn place(address: u64, free: &[(u64, u64)], taken: impl Fn(u64) -> bool) -> Option<u64> {
    let base = address.wrapping_add(JUMP);
    let to = |bytes: [u8; 4]| base.checked_add_signed(i64::from(i32::from_le_bytes(bytes)));
    for fourth in INVALID {
        for third in INVALID {
            for second in INVALID {
                for first in INVALID {
                    let Some(entry) = to([first, second, third, fourth]).filter(|entry| fits(*entry, free))
                    else {
                        continue;
                    };
                    let page = entry & !(PAGE - 1);
                    if !taken(page) && !taken(page + PAGE) && !taken(page.wrapping_sub(PAGE)) {
                        return Some(entry);
                    }
                }
            }
        }
    }
    None
}

/// Whether code may begin at an address, in the ranges of addresses `free`.
fn fits(entry: u64, free: &[(u64, u64)]) -> bool {
    let page = entry & !(PAGE - 1);
    let range = free.partition_point(|(start, _)| *start <= page).checked_sub(1).map(|at| free[at]);
    entry - page <= PAGE - ROOM && range.is_some_and(|(_, end)| page + 2 * PAGE <= end)
}

/// The instructions that a jump at a site's head replaces, up to the counted one at least.
fn replaced(site: Site, bytes: &[u8; LOOKED_AT], usable: impl Fn(u64) -> bool) -> Option<Vec<Instruction>> {
    let mut decoder = Decoder::with_ip(64, bytes, site.head, DecoderOptions::NONE);
    let mut instructions: Vec<Instruction> = Vec::new();
    while decoder.ip() <= site.counted || decoder.ip() < site.head + JUMP {
        // At the counted one is the stop point.
        let known = decoder.ip() == site.counted || usable(decoder.ip());
        let instruction = decoder.decode();
        if !known || !may_move(&instruction) {
            return None;
        }
        instructions.push(instruction);
        let goes_on = match instruction.flow_control() {
            FlowControl::Next => true,
            // Only where it goes on is known to be code.
            FlowControl::ConditionalBranch => instruction.ip() >= site.counted,
            _ => false,
        };
        if !goes_on {
            break;
        }
    }
    let end = instructions.last()?.next_ip();
    let counted = instructions.iter().any(|instruction| instruction.ip() == site.counted);
    (counted && end >= site.head + JUMP).then_some(instructions)
}

/// Whether an instruction means the same at another place.
fn may_move(instruction: &Instruction) -> bool {
    if instruction.is_invalid() {
        return false;
    }
    match instruction.flow_control() {
        FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
            instruction.is_jmp_short_or_near() || instruction.is_jcc_short_or_near()
        }
        FlowControl::IndirectBranch => instruction.is_jmp_near_indirect(),
        FlowControl::Return => instruction.mnemonic() == Mnemonic::Ret,
        // The trap flag is looked at behind the instruction that comes next.
        FlowControl::Next => {
            !matches!(instruction.mnemonic(), Mnemonic::Popf | Mnemonic::Popfd | Mnemonic::Popfq)
        }
        _ => false,
    }
}

fn falls_through(instruction: &Instruction) -> bool {
    matches!(instruction.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch)
}

/// Instructions as they are at another place, with a jump to what follows them; and the offset of each.
fn encode(instructions: &[Instruction], at: u64) -> Option<(Vec<u8>, Vec<u32>)> {
    let mut all = instructions.to_vec();
    // Jumps to one of them lead to where it was, not to where it is now.
    for (number, instruction) in (0..).zip(&mut all) {
        instruction.set_ip(number);
    }
    if let Some(last) = instructions.last().filter(|last| falls_through(last)) {
        all.push(Instruction::with_branch(Code::Jmp_rel32_64, last.next_ip()).ok()?);
    }
    let block = InstructionBlock::new(&all, at);
    let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
    let encoded = BlockEncoder::encode(64, block, options).ok()?;
    let offsets = &encoded.new_instruction_offsets[..instructions.len()];
    // One that was made into several has no place of its own.
    (!offsets.contains(&u32::MAX)).then(|| (encoded.code_buffer, offsets.to_vec()))
}

fn jump(from: u64, to: u64) -> [u8; JUMP as usize] {
    let distance = to.wrapping_sub(from.wrapping_add(JUMP)) as u32;
    let [a, b, c, d] = distance.to_le_bytes();
    [0xe9, a, b, c, d]
}

/// Length of the code that counts, up to and with `jrcxz`.
const COUNTED: usize = 7 + 7 + 4 + 7 + 2;

/// The code that counts: `rcx` is saved in memory, as a program may use what lies below its stack pointer.
fn counting(entry: u64, data: u64) -> Vec<u8> {
    let mut code = Vec::with_capacity(ROOM as usize);
    let at = |code: &Vec<u8>| entry + code.len() as u64;
    // mov [SAVED], rcx
    code.extend(with_distance([0x48, 0x89, 0x0d], at(&code), data + SAVED));
    // mov rcx, [NUMBER]
    code.extend(with_distance([0x48, 0x8b, 0x0d], at(&code), data + NUMBER));
    // lea rcx, [rcx - 1]
    code.extend([0x48, 0x8d, 0x49, 0xff]);
    // mov [NUMBER], rcx
    code.extend(with_distance([0x48, 0x89, 0x0d], at(&code), data + NUMBER));
    // jrcxz, to a distance that is not known yet
    code.extend([0xe3, 0]);
    debug_assert_eq!(code.len(), COUNTED);
    code.extend(load_rcx(at(&code), data + SAVED));
    code
}

/// `mov rcx, [from]`, at an address.
fn load_rcx(at: u64, from: u64) -> [u8; 7] {
    with_distance([0x48, 0x8b, 0x0d], at, from)
}

/// An instruction whose operand in memory is at a distance from its end.
fn with_distance(code: [u8; 3], at: u64, operand: u64) -> [u8; 7] {
    let [a, b, c, d] = (operand.wrapping_sub(at + 7) as u32).to_le_bytes();
    [code[0], code[1], code[2], a, b, c, d]
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: u64 = 0x5555_5555_5123;
    const EVERYTHING: [(u64, u64); 1] = [(0x1_0000, 0x7fff_0000_0000)];

    fn bytes(code: &[u8]) -> [u8; LOOKED_AT] {
        let mut bytes = [0x90; LOOKED_AT];
        bytes[..code.len()].copy_from_slice(code);
        bytes
    }

    fn longer(code: &[u8]) -> [u8; COUNTABLE] {
        let mut bytes = [0x90; COUNTABLE];
        bytes[..code.len()].copy_from_slice(code);
        bytes
    }

    fn decoded(code: &[u8], ip: u64) -> Vec<Instruction> {
        Decoder::with_ip(64, code, ip, DecoderOptions::NONE).into_iter().collect()
    }

    #[test]
    fn no_byte_of_a_distance_begins_an_instruction() {
        for byte in INVALID {
            assert!(decoded(&[byte; 15], AT)[0].is_invalid(), "{byte:#x}");
        }
        let entry = place(AT, &EVERYTHING, |_| false).expect("room");
        let jump = jump(AT, entry);
        assert!(jump[1..].iter().all(|byte| INVALID.contains(byte)), "{jump:x?}");
        let to = decoded(&jump, AT)[0];
        assert!(to.is_jmp_short_or_near() && to.near_branch_target() == entry);
    }

    #[test]
    fn code_goes_where_there_is_room() {
        // 300 MiB ahead something else begins; behind the instruction all is taken.
        let free = [(AT & !0xfff, (AT & !0xfff) + (300 << 20))];
        let entry = place(AT, &free, |_| false).expect("room");
        assert!(entry > AT && entry - AT < 300 << 20);
        let other = place(AT, &free, |page| page == entry & !0xfff).expect("room");
        assert!(other & !0xfff != entry & !0xfff);
        assert_eq!(place(AT, &[(AT & !0xfff, (AT & !0xfff) + (100 << 20))], |_| false), None);
        assert_eq!(place(AT, &[], |_| false), None);
        // Near the top the room is below.
        let high = 0x7ffe_ffff_0000;
        assert!(place(high, &[(high - (400 << 20), high - 0x1000)], |_| false).is_some_and(|at| at < high));
    }

    fn counter(head: u64, counted: u64, code: &[u8], usable: impl Fn(u64) -> bool) -> Option<Counter> {
        Counter::new(Site { head, counted }, &bytes(code), usable, &EVERYTHING, |_| false)
    }

    #[test]
    fn instructions_are_moved_with_their_meaning() {
        // jne back; mov rax, [rip + 0x100]; what stands behind.
        let code = [0x75, 0xf0, 0x48, 0x8b, 0x05, 0, 1, 0, 0];
        let counter = counter(AT, AT, &code, |_| true).expect("a counter");
        assert_eq!(counter.inside(counter.entry), Inside::Entry);
        assert_eq!(counter.inside(counter.trap), Inside::Over);
        assert_eq!(counter.inside(AT), Inside::No);
        let [(jne, AT), (mov, second)] = counter.moved[..] else { panic!("{:x?}", counter.moved) };
        assert_eq!(
            (second, counter.inside(jne), counter.inside(mov)),
            (AT + 2, Inside::Moved(AT), Inside::Moved(AT + 2))
        );
        let mut page = [0; FRAME_SIZE];
        counter.code.read(0, &mut page);
        let all = decoded(&page[(counter.entry % PAGE) as usize..], counter.entry);
        let at = |ip: u64| all.iter().find(|i| i.ip() == ip).expect("an instruction");
        assert_eq!(at(jne).near_branch_target(), AT + 2 - 0x10);
        assert_eq!(at(mov).ip_rel_memory_address(), AT + 9 + 0x100);
        assert_eq!(at(at(mov).next_ip()).near_branch_target(), AT + 9);
        // When it is over: rcx again, then the trap.
        let jrcxz = all.iter().find(|i| i.mnemonic() == Mnemonic::Jrcxz).expect("it is there");
        let load = at(jrcxz.near_branch_target());
        assert_eq!(load.next_ip(), counter.trap);
        assert_eq!(load.ip_rel_memory_address(), (counter.entry & !0xfff) + PAGE + SAVED);
        counter.set_left(77);
        assert_eq!(counter.left(), 77);
    }

    #[test]
    fn a_short_loop_goes_round_by_its_jump() {
        // inc rax; cmp rax, rdx; jne to the first of them.
        let counter =
            counter(AT, AT + 6, &[0x48, 0xff, 0xc0, 0x48, 0x39, 0xd0, 0x75, 0xf8], |at| at != AT + 6);
        let counter = counter.expect("a counter");
        let own: Vec<u64> = counter.moved.iter().map(|(_, own)| *own).collect();
        assert_eq!(own, [AT, AT + 3, AT + 6]);
        let mut page = [0; FRAME_SIZE];
        counter.code.read(0, &mut page);
        let at = (counter.moved[2].0 % PAGE) as usize;
        assert_eq!(decoded(&page[at..], counter.moved[2].0)[0].near_branch_target(), AT);
    }

    #[test]
    fn only_what_is_code_for_sure_is_replaced() {
        assert!(counter(AT, AT, &[0x75, 0xf0, 0x90, 0x90], |_| true).is_some());
        // Something else has a point behind it.
        assert!(counter(AT, AT, &[0x75, 0xf0, 0x90, 0x90], |at| at != AT + 3).is_none());
        // Behind a return, an indirect jump and a short jump there may be data.
        for code in [&[0xc3_u8][..], &[0xff, 0xe0], &[0xeb, 0xf0]] {
            assert!(counter(AT, AT, code, |_| true).is_none());
            // pop rbx; nop of three bytes.
            let code = [&[0x5b, 0x0f, 0x1f, 0x00], code].concat();
            assert!(counter(AT, AT + 4, &code, |at| at != AT + 4).is_some(), "{code:x?}");
        }
        // A branch before it: not all that begin come there.
        assert!(counter(AT, AT + 5, &[0x48, 0xff, 0xc0, 0x74, 0x10, 0xff, 0xe0], |_| true).is_none());
        let counter = counter(AT, AT, &[0x75, 0xf0], |_| true).expect("a counter");
        assert!(
            counter.hides(AT + 2) && counter.hides(AT + 4) && !counter.hides(AT) && !counter.hides(AT + 5)
        );
    }

    #[test]
    fn what_is_sure_to_be_counted_is_told_by_its_bytes() {
        let countable = |code: &[u8]| countable((AT, AT), &longer(code), &EVERYTHING);
        assert!(
            countable(&[0x75, 0xf0])
                && countable(&[0x48, 0xff, 0xc0])
                && countable(&[0xe9, 0, 0xff, 0xff, 0xff])
        );
        // A return, jumps, a call, a system call, `loop`.
        assert!(!countable(&[0xc3]) && !countable(&[0xff, 0xe0]) && !countable(&[0xeb, 0xfe]));
        assert!(!countable(&[0xe8, 0, 0, 0, 1]) && !countable(&[0x0f, 0x05]) && !countable(&[0xe2, 0xf0]));
        // What is looked at lies in two pages.
        let at = 0x5555_5555_5ffd;
        assert!(!super::countable((at, at), &longer(&[0x75, 0xf0]), &EVERYTHING));
        // What is executed before it: inc r13, then jmp *rax; and another jump.
        let countable = |code: &[u8]| super::countable((AT, AT + 3), &longer(code), &EVERYTHING);
        assert!(countable(&[0x49, 0xff, 0xc5, 0xff, 0xe0]) && !countable(&[0x90, 0x75, 0x10, 0xff, 0xe0]));
    }
}

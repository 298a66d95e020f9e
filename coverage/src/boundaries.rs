//! Which addresses are proven starts of instructions, and the basic blocks of functions.
//!
//! A byte in the middle of an instruction, or of data within code, must never be replaced. Where functions begin is known from, in
//! this order of trust: the unwinder's table, which must be right for exceptions to work; the symbol table; debug information. What a
//! table says of an address inside a function that a better one knows is only believed if instructions, decoded one after another from
//! the function's start, lead to it; and so is a start that one table alone names, from the start before it.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

use crate::elf::Binary;

/// Bytes of the longest instruction (Intel SDM, volume 2, 2.3.11).
const LONGEST: u64 = 15;

/// Where decoding may begin.
pub(crate) struct Starts {
    /// Sorted, no two equal.
    addresses: Vec<u64>,
}

/// Addresses that a source names, with the ends of functions where it knows them.
pub(crate) type Ranges = Vec<(u64, u64)>;

impl Starts {
    /// Starts by sources, the most trusted first. Any source may be damaged: what only one of them names has to be met by whoever
    /// decodes the section from its beginning, or from the last start that several sources name.
    pub(crate) fn new(binary: &Binary<'_>, sources: &[&[(u64, u64)]]) -> Starts {
        let mut addresses: BTreeSet<u64> = BTreeSet::new();
        let mut covered: Vec<(u64, u64)> = Vec::new();
        let mut named: BTreeMap<u64, u32> = BTreeMap::new();
        for source in sources {
            let mut fresh: Vec<(u64, u64)> = source
                .iter()
                .copied()
                .filter(|(start, _)| binary.code_at(*start).is_some() && !within(&covered, *start))
                .collect();
            addresses.extend(fresh.iter().map(|(start, _)| *start));
            fresh.extend_from_slice(&covered);
            covered = merged(fresh);
            let own: BTreeSet<u64> = source.iter().map(|(start, _)| *start).collect();
            own.into_iter().for_each(|start| *named.entry(start).or_default() += 1);
        }
        let mut sweep = Sweep { binary, at: 0, end: 0 };
        addresses.retain(|start| {
            let met = sweep.meets(*start);
            let certain = named.get(start).is_some_and(|sources| *sources > 1);
            if certain {
                sweep.at = *start;
            }
            met || certain
        });
        Starts { addresses: addresses.into_iter().collect() }
    }

    /// Which of `wanted`, which are sorted, are starts of instructions.
    pub(crate) fn proven(&self, binary: &Binary<'_>, wanted: &[u64]) -> Vec<bool> {
        let mut proven = vec![false; wanted.len()];
        let mut next = 0;
        while next < wanted.len() {
            let after = self.addresses.partition_point(|start| *start <= wanted[next]);
            let limit = self.addresses.get(after).copied().unwrap_or(u64::MAX);
            let count = wanted[next..].partition_point(|address| *address < limit);
            let group = next..next + count;
            next += count;
            let Some(start) = after.checked_sub(1).map(|index| self.addresses[index]) else { continue };
            walk(binary, start, &wanted[group.clone()], &mut proven[group]);
        }
        proven
    }
}

/// Decodes the sections of code one after another, each from its beginning.
struct Sweep<'b, 'a> {
    binary: &'b Binary<'a>,
    at: u64,
    /// Of the section.
    end: u64,
}

impl Sweep<'_, '_> {
    /// Goes on to an address, and says whether an instruction begins there. Addresses have to rise.
    fn meets(&mut self, address: u64) -> bool {
        if address >= self.end {
            let Some(code) = self.binary.code_at(address) else { return false };
            (self.at, self.end) = (code.address, code.address + code.length);
        }
        while self.at < address {
            let bytes = self.binary.instructions(self.at, address.saturating_add(16));
            let mut decoder = Decoder::with_ip(64, bytes, self.at, DecoderOptions::NONE);
            let mut instruction = Instruction::default();
            while self.at < address {
                if !decoder.can_decode() {
                    return false;
                }
                decoder.decode_out(&mut instruction);
                // Data: instructions begin again behind it, and decoding falls into step with them soon.
                if instruction.is_invalid() {
                    self.at += 1;
                    break;
                }
                self.at = decoder.ip();
            }
        }
        self.at == address
    }
}

/// Decodes from `start` on and marks what it meets.
fn walk(binary: &Binary<'_>, start: u64, wanted: &[u64], proven: &mut [bool]) {
    let Some(last) = wanted.last() else { return };
    let bytes = binary.instructions(start, last.saturating_add(16));
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut next = 0;
    while next < wanted.len() && decoder.can_decode() {
        let at = decoder.ip();
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return;
        }
        // What was passed over lies within an instruction.
        while next < wanted.len() && wanted[next] < at {
            next += 1;
        }
        if wanted.get(next) == Some(&at) {
            // `int3`: a program's own breakpoint, or what fills the space between functions.
            let own = bytes.get(usize::try_from(at - start).unwrap_or(usize::MAX)) == Some(&0xcc);
            proven[next] = !own;
            next += 1;
        }
    }
}

/// Whether the instructions from one address to another end with one that never goes on to the next.
pub(crate) fn end_by_jump(binary: &Binary<'_>, start: u64, end: u64) -> bool {
    let bytes = binary.instructions(start, end);
    let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
    let mut last = FlowControl::Next;
    while decoder.can_decode() {
        last = decoder.decode().flow_control();
    }
    use FlowControl::{IndirectBranch, Return, UnconditionalBranch};
    matches!(last, UnconditionalBranch | IndirectBranch | Return)
}

/// Whether sorted, separate ranges have an address.
fn within(ranges: &[(u64, u64)], address: u64) -> bool {
    let after = ranges.partition_point(|(start, _)| *start <= address);
    after.checked_sub(1).is_some_and(|index| address < ranges[index].1)
}

fn merged(mut ranges: Ranges) -> Ranges {
    ranges.sort_unstable();
    let mut merged: Ranges = Vec::with_capacity(ranges.len());
    for (start, end) in ranges {
        match merged.last_mut() {
            Some(last) if start < last.1 => last.1 = last.1.max(end),
            _ => merged.push((start, end)),
        }
    }
    merged
}

/// The beginnings of the basic blocks of a function: what is reached from its start by jumps with known targets. What only a table of
/// jumps leads to is not found.
pub(crate) fn blocks(binary: &Binary<'_>, start: u64, end: u64) -> Vec<u64> {
    let (leaders, seen) = descent(binary, start, end, |_| {});
    // Code that jumps into the middle of its own instructions has bytes that are parts of two of them.
    let within =
        |at: u64| seen.range(at.saturating_sub(LONGEST)..at).any(|(from, length)| from + length > at);
    let bytes = binary.instructions(start, end);
    // `int3` fills the space between functions, or is a program's own breakpoint.
    let int3 = |at: u64| usize::try_from(at - start).is_ok_and(|at| bytes.get(at) == Some(&0xcc));
    leaders.into_iter().filter(|at| seen.contains_key(at) && !int3(*at) && !within(*at)).collect()
}

/// Calls `each` with the instructions of a function that are reached from its start by jumps with known targets, each once.
pub(crate) fn instructions(binary: &Binary<'_>, start: u64, end: u64, each: impl FnMut(&Instruction)) {
    descent(binary, start, end, each);
}

/// Gives the beginnings of basic blocks, and all instructions with their lengths.
fn descent(
    binary: &Binary<'_>,
    start: u64,
    end: u64,
    mut each: impl FnMut(&Instruction),
) -> (BTreeSet<u64>, BTreeMap<u64, u64>) {
    let bytes = binary.instructions(start, end);
    let end = start + bytes.len() as u64;
    let within = |target: u64| target > start && target < end;
    let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
    let mut todo = vec![start];
    let mut leaders: BTreeSet<u64> = BTreeSet::from([start]);
    let mut instruction = Instruction::default();
    while let Some(from) = todo.pop() {
        let Some(rest) = usize::try_from(from - start).ok().and_then(|skip| bytes.get(skip..)) else {
            continue;
        };
        let mut decoder = Decoder::with_ip(64, rest, from, DecoderOptions::NONE);
        while decoder.can_decode() && !seen.contains_key(&decoder.ip()) {
            let at = decoder.ip();
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                break;
            }
            seen.insert(at, instruction.len() as u64);
            each(&instruction);
            let mut lead = |target: u64| {
                if target >= start && target < end && leaders.insert(target) {
                    todo.push(target);
                }
            };
            match instruction.flow_control() {
                FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => {
                    lead(instruction.near_branch_target());
                    lead(instruction.next_ip());
                }
                FlowControl::UnconditionalBranch => {
                    lead(instruction.near_branch_target());
                    break;
                }
                FlowControl::IndirectBranch | FlowControl::Return | FlowControl::Exception => break,
                // A call to the middle of its own function takes the address of what stands behind it: often data.
                FlowControl::Call if within(instruction.near_branch_target()) => {
                    lead(instruction.near_branch_target());
                    break;
                }
                FlowControl::Next
                | FlowControl::Call
                | FlowControl::IndirectCall
                | FlowControl::Interrupt => {}
            }
        }
    }
    (leaders, seen)
}

//! Which addresses are proven starts of instructions, and the basic blocks of functions.
//!
//! A byte in the middle of an instruction, or of data within code, must never be replaced. Where functions begin is known from, in
//! this order of trust: the unwinder's table, which must be right for exceptions to work; the symbol table; debug information. What a
//! table says of an address inside a function that a better one knows is only believed if instructions, decoded one after another from
//! the function's start, lead to it.

use std::collections::BTreeSet;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

use crate::elf::Binary;

/// Where decoding may begin.
pub(crate) struct Starts {
    /// Sorted, no two equal.
    addresses: Vec<u64>,
}

/// Addresses that a source names, with the ends of functions where it knows them.
pub(crate) type Ranges = Vec<(u64, u64)>;

impl Starts {
    /// Starts by sources, the most trusted first.
    pub(crate) fn new(binary: &Binary<'_>, sources: &[&[(u64, u64)]]) -> Starts {
        let mut addresses: BTreeSet<u64> = BTreeSet::new();
        let mut covered: Vec<(u64, u64)> = Vec::new();
        for source in sources {
            let mut fresh: Vec<(u64, u64)> = source
                .iter()
                .copied()
                .filter(|(start, _)| binary.code_at(*start).is_some() && !within(&covered, *start))
                .collect();
            addresses.extend(fresh.iter().map(|(start, _)| *start));
            fresh.extend_from_slice(&covered);
            covered = merged(fresh);
        }
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
    leaders.into_iter().filter(|at| seen.contains(at)).collect()
}

/// Calls `each` with the instructions of a function that are reached from its start by jumps with known targets, each once.
pub(crate) fn instructions(binary: &Binary<'_>, start: u64, end: u64, each: impl FnMut(&Instruction)) {
    descent(binary, start, end, each);
}

/// Gives the beginnings of basic blocks, and of all instructions but `int3`, which fills the space between functions or is a
/// program's own breakpoint.
fn descent(
    binary: &Binary<'_>,
    start: u64,
    end: u64,
    mut each: impl FnMut(&Instruction),
) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let bytes = binary.instructions(start, end);
    let end = start + bytes.len() as u64;
    let mut seen: BTreeSet<u64> = BTreeSet::new();
    let mut todo = vec![start];
    let mut leaders: BTreeSet<u64> = BTreeSet::from([start]);
    let mut instruction = Instruction::default();
    while let Some(from) = todo.pop() {
        let Some(rest) = usize::try_from(from - start).ok().and_then(|skip| bytes.get(skip..)) else {
            continue;
        };
        let mut decoder = Decoder::with_ip(64, rest, from, DecoderOptions::NONE);
        while decoder.can_decode() && !seen.contains(&decoder.ip()) {
            let at = decoder.ip();
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                break;
            }
            seen.insert(at);
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
                FlowControl::Next
                | FlowControl::Call
                | FlowControl::IndirectCall
                | FlowControl::Interrupt => {}
            }
        }
    }
    let int3 = |at: &u64| usize::try_from(at - start).is_ok_and(|at| bytes.get(at) == Some(&0xcc));
    seen.retain(|at| !int3(at));
    (leaders, seen)
}

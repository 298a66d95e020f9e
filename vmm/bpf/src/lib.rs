//! Programs of classic BPF (linux/filter.h; McCanne and Jacobson, "The BSD Packet Filter", 1993): what Linux accepts, and what they answer.
//!
//! Key types: [`Instruction`], [`Program`] (a checked one), [`Filter`] (of a socket), [`Packet`] (what one sees). [`Program::run`] leaves to its caller
//! where the data come from. Neighbours: `seccomp` of the kernel, whose programs look at calls, and `stack::filter` of the network.

mod packet;

pub use packet::{EXTENSIONS, Filter, Packet};

/// BPF_MAXINSNS.
pub const MOST_INSTRUCTIONS: usize = 4096;
/// BPF_MEMWORDS.
const MEMORY: u32 = 16;
/// SKF_AD_OFF: from here on an absolute place names an extension.
const EXTENSION: u32 = -0x1000_i32 as u32;
/// SKF_AD_ALU_XOR_X, the one extension that is a calculation.
const XOR_X: u32 = 40;
/// SKF_AD_RANDOM.
const RANDOM: u32 = 56;
/// SKF_AD_VLAN_TPID, the last one; all are multiples of four.
const LAST_EXTENSION: u32 = 60;

/// An instruction (`struct sock_filter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Instruction {
    /// What it does.
    pub code: u16,
    /// How many instructions to pass over if its condition holds.
    pub yes: u8,
    /// And if not.
    pub no: u8,
    /// Its constant.
    pub k: u32,
}

impl Instruction {
    /// The instruction in these bytes.
    pub fn decode(bytes: [u8; 8]) -> Instruction {
        let [a, b, yes, no, k @ ..] = bytes;
        Instruction { code: u16::from_le_bytes([a, b]), yes, no, k: u32::from_le_bytes(k) }
    }

    /// Its bytes.
    pub fn encode(self) -> [u8; 8] {
        let ([a, b], [k0, k1, k2, k3]) = (self.code.to_le_bytes(), self.k.to_le_bytes());
        [a, b, self.yes, self.no, k0, k1, k2, k3]
    }

    /// Whether it loads a random number (SKF_AD_RANDOM).
    pub fn draws(&self) -> bool {
        self.extension() == Some(RANDOM)
    }

    /// The extension that it loads, if it does.
    fn extension(&self) -> Option<u32> {
        let known = |number: u32| number <= LAST_EXTENSION && number.is_multiple_of(4);
        let number = self.k.checked_sub(EXTENSION).filter(|number| known(*number));
        number.filter(|_| matches!(self.code, 0x20 | 0x28 | 0x30))
    }
}

/// What a program asks its data for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// So many bytes from a place on: 1, 2 or 4.
    Bytes {
        /// The place; negative ones (as numbers with a sign) have a meaning of their own for packets.
        at: u32,
        /// How many.
        size: u32,
    },
    /// An extension (SKF_AD_*), with the accumulator and the index register.
    Extension {
        /// Which one.
        number: u32,
        /// The accumulator.
        a: u32,
        /// The index register.
        x: u32,
    },
}

/// A program that was checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Program(Vec<Instruction>);

impl Program {
    /// Checks a program as `bpf_check_classic` does; `None` where that says EINVAL.
    pub fn new(program: Vec<Instruction>) -> Option<Program> {
        let len = program.len();
        let allowed = program.iter().enumerate().all(|(at, i)| is_allowed(i, len - at));
        let ends = program.last().is_some_and(|i| matches!(i.code, 0x06 | 0x16));
        let fits = len <= MOST_INSTRUCTIONS && allowed && ends && stores_before_loads(&program);
        fits.then_some(Program(program))
    }

    /// Its instructions.
    pub fn instructions(&self) -> &[Instruction] {
        &self.0
    }

    /// What it answers about data of `len` bytes; `load` gives what it asks for, and as an error the answer with which the program ends
    /// where there is none.
    pub fn run(&self, len: u32, mut load: impl FnMut(Load) -> Result<u32, u32>) -> u32 {
        let (mut a, mut x, mut memory, mut at) = (0u32, 0u32, [0u32; MEMORY as usize], 0usize);
        loop {
            let i = self.0[at];
            at += 1;
            let operand = if i.code & 8 != 0 { x } else { i.k };
            match i.code {
                0x20 | 0x28 | 0x30 | 0x40 | 0x48 | 0x50 => {
                    let wanted = match i.extension() {
                        Some(XOR_X) => {
                            a ^= x;
                            continue;
                        }
                        Some(number) => Load::Extension { number, a, x },
                        None => Load::Bytes { at: i.k.wrapping_add(indexed(&i, x)), size: size(&i) },
                    };
                    match load(wanted) {
                        Ok(value) => a = value,
                        Err(answer) => return answer,
                    }
                }
                // BPF_MSH: the length of a header of IP.
                0xb1 => match load(Load::Bytes { at: i.k, size: 1 }) {
                    Ok(byte) => x = (byte & 15) * 4,
                    Err(answer) => return answer,
                },
                0x80 => a = len,
                0x81 => x = len,
                0x00 => a = i.k,
                0x01 => x = i.k,
                0x60 => a = memory[i.k as usize],
                0x61 => x = memory[i.k as usize],
                0x02 => memory[i.k as usize] = a,
                0x03 => memory[i.k as usize] = x,
                0x07 => x = a,
                0x87 => a = x,
                0x05 => at += i.k as usize,
                0x15 | 0x1d => at += skip(&i, a == operand),
                0x25 | 0x2d => at += skip(&i, a > operand),
                0x35 | 0x3d => at += skip(&i, a >= operand),
                0x45 | 0x4d => at += skip(&i, a & operand != 0),
                0x16 => return a,
                0x06 => return i.k,
                code => match calculate(code, a, operand) {
                    Some(result) => a = result,
                    None => return 0,
                },
            }
        }
    }
}

/// What the index register adds to a place (BPF_IND).
fn indexed(i: &Instruction, x: u32) -> u32 {
    if i.code & 0x40 != 0 { x } else { 0 }
}

/// How many bytes an instruction loads: BPF_W, BPF_H or BPF_B.
fn size(i: &Instruction) -> u32 {
    4 >> (i.code >> 3 & 3)
}

/// Calculations (BPF_ALU); "a division by zero" ends the program with 0.
fn calculate(code: u16, a: u32, operand: u32) -> Option<u32> {
    Some(match code & 0xf0 {
        0x00 => a.wrapping_add(operand),
        0x10 => a.wrapping_sub(operand),
        0x20 => a.wrapping_mul(operand),
        0x30 => a.checked_div(operand)?,
        0x40 => a | operand,
        0x50 => a & operand,
        0x60 => a.wrapping_shl(operand),
        0x70 => a.wrapping_shr(operand),
        0x80 => a.wrapping_neg(),
        0x90 => a.checked_rem(operand)?,
        _ => a ^ operand,
    })
}

fn skip(i: &Instruction, holds: bool) -> usize {
    usize::from(if holds { i.yes } else { i.no })
}

/// Whether an instruction may stand in a program with `left` instructions from it on (`chk_code_allowed`, `bpf_check_classic`).
fn is_allowed(i: &Instruction, left: usize) -> bool {
    let k = i.k;
    match i.code {
        0x20 | 0x28 | 0x30 => k < EXTENSION || i.extension().is_some(),
        0x40 | 0x48 | 0x50 | 0xb1 => true,
        0x80 | 0x81 | 0x00 | 0x01 | 0x07 | 0x87 | 0x06 | 0x16 | 0x84 => true,
        0x60 | 0x61 | 0x02 | 0x03 => k < MEMORY,
        0x04 | 0x0c | 0x14 | 0x1c | 0x24 | 0x2c | 0x3c | 0x44 | 0x4c | 0x54 | 0x5c | 0x6c | 0x7c | 0x9c
        | 0xa4 | 0xac => true,
        0x34 | 0x94 => k != 0,
        0x64 | 0x74 => k < 32,
        0x05 => (k as usize) < left - 1,
        0x15 | 0x1d | 0x25 | 0x2d | 0x35 | 0x3d | 0x45 | 0x4d => {
            usize::from(i.yes) + 1 < left && usize::from(i.no) + 1 < left
        }
        _ => false,
    }
}

/// Whether every word of memory was stored to on all ways to where it is loaded (`check_load_and_stores`).
fn stores_before_loads(program: &[Instruction]) -> bool {
    let mut masks = vec![u16::MAX; program.len() + 1];
    let mut valid = 0u16;
    for (at, i) in program.iter().enumerate() {
        valid &= masks[at];
        let mut lead = |by: usize| masks[at + 1 + by] &= valid;
        match i.code {
            0x02 | 0x03 => valid |= 1 << i.k,
            0x60 | 0x61 if valid & 1 << i.k == 0 => return false,
            0x05 => {
                lead(i.k as usize);
                valid = u16::MAX;
            }
            0x15 | 0x1d | 0x25 | 0x2d | 0x35 | 0x3d | 0x45 | 0x4d => {
                lead(usize::from(i.yes));
                lead(usize::from(i.no));
                valid = u16::MAX;
            }
            _ => {}
        }
    }
    true
}

#[cfg(test)]
mod tests;

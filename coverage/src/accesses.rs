//! Instructions of a program that may access memory which several tasks share ([`accesses`]): places at which a change of tasks can
//! make a difference.
//!
//! Neighbours: `boundaries` proves where instructions begin; the simulation finds out which of them do share memory.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind};

use crate::boundaries;
use crate::dwarf;
use crate::elf::Binary;
use crate::frames;

/// Instructions that are looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// All with an operand in memory: of programs' own code.
    All,
    /// Atomic ones: of libraries, where they are what locks are made of.
    Atomic,
}

/// An instruction that may access memory which tasks share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Access {
    /// Where it begins in the file.
    pub offset: u64,
    /// It is atomic.
    pub atomic: bool,
    /// The program's authors have written it, as far as that is known: of a program without debug information all is theirs.
    pub written: bool,
}

/// The accesses of an executable or a shared library, given whole, by rising offset. Only what is reached from the beginnings of functions,
/// as the unwinder's table and the symbols have them.
///
/// # Errors
/// Why the file is no such program.
pub fn accesses(bytes: &[u8], which: Which) -> Result<Vec<Access>, String> {
    let binary = Binary::read(bytes)?;
    let mut found: Vec<Access> = Vec::new();
    let units = if which == Which::All { dwarf::written(&binary) } else { None };
    let written = |at: u64| match &units {
        // Of the stretches that begin before it, the last one: those of units do not overlap.
        Some(units) => {
            units[..units.partition_point(|(start, _)| *start <= at)].last().is_some_and(|(_, end)| at < *end)
        }
        None => which == Which::All,
    };
    let mut each = |instruction: &Instruction| {
        if let Some(atomic) = access(instruction)
            && (atomic || which == Which::All)
            && let Some(offset) = binary.offset(instruction.ip())
        {
            found.push(Access { offset, atomic, written: written(instruction.ip()) });
        }
    };
    let mut functions = frames::functions(&binary, &mut Vec::new());
    let of_symbols = binary.symbols().into_iter().filter(|symbol| symbol.size > 0);
    functions.extend(of_symbols.map(|symbol| (symbol.address, symbol.address.saturating_add(symbol.size))));
    functions.sort_unstable();
    functions.dedup_by_key(|(start, _)| *start);
    for (start, end) in functions {
        if binary.code_at(start).is_some_and(|code| !code.glue) {
            boundaries::instructions(&binary, start, end, &mut each);
        }
    }
    found.sort_unstable();
    found.dedup_by_key(|access| access.offset);
    Ok(found)
}

/// Whether an instruction may access memory that tasks share, and whether it does so atomically. What only uses the stack by `push`,
/// `pop`, `call` and `ret` does not count.
fn access(instruction: &Instruction) -> Option<bool> {
    let memory = (0..instruction.op_count()).any(|op| {
        matches!(instruction.op_kind(op), OpKind::Memory | OpKind::MemorySegRSI | OpKind::MemoryESRDI)
    });
    let none = matches!(instruction.mnemonic(), Mnemonic::Lea | Mnemonic::Nop)
        || instruction.flow_control() != FlowControl::Next;
    // An exchange with memory is atomic without a prefix (Intel SDM, volume 2, XCHG).
    let atomic = instruction.has_lock_prefix() || instruction.mnemonic() == Mnemonic::Xchg;
    (memory && !none).then_some(atomic)
}

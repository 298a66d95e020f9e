//! Instructions of a program that may access memory which several tasks share ([`accesses`]): places at which a change of tasks can
//! make a difference.
//!
//! Neighbours: `boundaries` proves where instructions begin; the simulation finds out which of them do share memory.

use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind};

use crate::boundaries;
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

/// The accesses of an executable or a shared library, given whole: offset in the file and whether the instruction is atomic, by rising
/// offset. Only what is reached from the beginnings of functions, as the unwinder's table and the symbols have them.
///
/// # Errors
/// Why the file is no such program.
pub fn accesses(bytes: &[u8], which: Which) -> Result<Vec<(u64, bool)>, String> {
    let binary = Binary::read(bytes)?;
    let mut found: Vec<(u64, bool)> = Vec::new();
    let mut each = |instruction: &Instruction| {
        if let Some(atomic) = access(instruction)
            && (atomic || which == Which::All)
            && let Some(offset) = binary.offset(instruction.ip())
        {
            found.push((offset, atomic));
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
    found.dedup();
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

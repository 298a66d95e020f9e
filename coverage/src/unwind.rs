//! From a function to its caller, as `.eh_frame` says: what a stack is made of ([`caller`]).
//!
//! Programs keep that table also without debug information, as their exceptions need it; no frame pointer is needed. What a table
//! expresses by a program of its own (signal trampolines, tables of jumps) ends the stack.
//!
//! Neighbours: `frames` reads the same table for functions; [`Program::place`](crate::Program::place) gives places their names.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, LittleEndian, Register, RegisterRule, UnwindContext, UnwindSection,
    X86_64,
};

use crate::elf::Binary;
use crate::frames::section;

/// Registers by DWARF's numbers (System V ABI for x86-64, figure 3.36): 0 to 15 are general ones, 16 is the instruction pointer.
/// `None` is one that nobody knows.
pub type Registers = [Option<u64>; 17];

/// The registers of the caller of a function. `offset` is the place in the file of the function's present instruction; `returned`: that
/// is where a call comes back to, and no instruction that is executed. `read` reads eight bytes of the program's memory.
///
/// `None` where the table says nothing: the end of the stack.
pub fn caller(
    bytes: &[u8],
    offset: u64,
    returned: bool,
    registers: &Registers,
    read: &dyn Fn(u64) -> Option<u64>,
) -> Option<Registers> {
    let binary = Binary::read(bytes).ok()?;
    // A call may be the last instruction of its function.
    let offset = offset.checked_sub(u64::from(returned))?;
    let code = binary.code.iter().find(|code| (code.offset..code.offset + code.length).contains(&offset))?;
    let address = code.address + (offset - code.offset);
    let (start, table) = section(&binary)?;
    let frames = EhFrame::new(table, LittleEndian);
    let text = binary.code.first().map_or(0, |code| code.address);
    let bases = BaseAddresses::default().set_eh_frame(start).set_text(text);
    let mut context = UnwindContext::new();
    let row = frames.unwind_info_for_address(&bases, &mut context, address, EhFrame::cie_from_offset).ok()?;
    let known = |register: Register| registers.get(usize::from(register.0)).copied().flatten();
    let cfa = match row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => known(*register)?.wrapping_add_signed(*offset),
        CfaRule::Expression(_) => return None,
    };
    let mut above = *registers;
    for (number, value) in above.iter_mut().enumerate() {
        let register = Register(number as u16);
        *value = match row.register(register) {
            // Of the return address "undefined" means that there is none; a register that nothing is said of keeps its value.
            Some(RegisterRule::Undefined) if register == X86_64::RA => None,
            None | Some(RegisterRule::Undefined | RegisterRule::SameValue) => *value,
            Some(RegisterRule::Offset(at)) => read(cfa.wrapping_add_signed(at)),
            Some(RegisterRule::ValOffset(at)) => Some(cfa.wrapping_add_signed(at)),
            Some(RegisterRule::Register(other)) => known(other),
            Some(_) => None,
        };
    }
    // The frame's address is what the stack pointer was before the call (DWARF 5, 6.4.1).
    above[usize::from(X86_64::RSP.0)] = Some(cfa);
    above[usize::from(X86_64::RA.0)].is_some_and(|address| address != 0).then_some(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_program_has_no_callers() {
        let registers = [Some(0); 17];
        assert_eq!(caller(b"\x7fELF", 0, false, &registers, &|_| None), None);
        let own = std::fs::read("/proc/self/exe").expect("this program");
        assert_eq!(caller(&own, 0, false, &registers, &|_| None), None, "no code lies there");
    }
}

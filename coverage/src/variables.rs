//! Names of variables, by the symbols of a program ([`variable`]).
//!
//! Neighbours: `elf` reads the symbols; [`Program::place`](crate::Program::place) names places in code.

use crate::elf::Binary;
use crate::names::demangle;

/// The variable of a program at an address in memory, `name` or `name+offset`. `offset` is the place in the file of a byte of code, and
/// `distance` how far behind that byte's address the address is, in memory.
///
/// `None` where no symbol says so: on the heap, on stacks, in stripped programs.
#[must_use]
pub fn variable(bytes: &[u8], offset: u64, distance: i64) -> Option<String> {
    let binary = Binary::read(bytes).ok()?;
    let code = binary.code.iter().find(|code| (code.offset..code.offset + code.length).contains(&offset))?;
    let address = (code.address + (offset - code.offset)).checked_add_signed(distance)?;
    let mut symbols = binary.variables();
    symbols.retain(|symbol| address.checked_sub(symbol.address).is_some_and(|into| into < symbol.size));
    // Variables may overlap, and one may have several names.
    let symbol = symbols.iter().min_by_key(|symbol| (symbol.size, symbol.name.clone()))?;
    let name = demangle(&symbol.name);
    Some(match address - symbol.address {
        0 => name,
        into => format!("{name}+{into:#x}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_program_has_no_variables() {
        assert_eq!(variable(b"\x7fELF", 0, 0), None);
    }
}

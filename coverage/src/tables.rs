//! What DWARF and Go's own tables have in common: files, statements, functions and where their code lies.

use std::cmp::Reverse;

use crate::Scope;
use crate::checkout::Named;

/// What debug information says of a program. Files are named by their places in `names`, functions by theirs in `functions`.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    pub names: Vec<Named>,
    /// Which of the files count.
    pub chosen: Vec<bool>,
    /// Where statements of files that count begin.
    pub statements: Vec<Statement>,
    /// Whether the tables say where functions begin to return.
    pub has_ends: bool,
    /// Where code begins, for files that count.
    pub starts: Vec<u64>,
    /// Functions as a table has them that the program itself needs, as the runtime of Go does.
    pub ranges: Vec<(u64, u64)>,
    pub functions: Vec<Declared>,
    pub stretches: Vec<Stretch>,
    /// All rows, if they are wanted: address, file, line (0: none from here on).
    pub rows: Vec<(u64, u32, u32)>,
    pub notes: Vec<String>,
}

/// The beginning of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Statement {
    pub address: u64,
    pub file: u32,
    pub line: u32,
    /// Whether this is not the beginning, but where instructions of the statement go on after others: an optimiser may leave no
    /// beginning where it has merged statements.
    pub later: bool,
    /// Whether a function begins to return here.
    pub end: bool,
}

/// A function as it is declared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Declared {
    pub name: String,
    /// Whether the name is the linker's, which tells functions of equal name apart.
    pub linked: bool,
    pub file: Option<u32>,
    pub line: u32,
}

/// Code of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stretch {
    pub start: u64,
    pub end: u64,
    /// How deep it is among other stretches, if they have equal ends.
    pub depth: u32,
    pub function: u32,
    pub call: Option<(u32, u32)>,
}

/// Sorts stretches and finds what encloses each. One that leaves the stretch that it begins in is cut to it.
pub(crate) fn nest(mut stretches: Vec<Stretch>) -> Vec<Scope> {
    stretches.sort_unstable_by_key(|s| (s.start, Reverse(s.end), s.depth, s.function));
    let mut scopes: Vec<Scope> = Vec::with_capacity(stretches.len());
    let mut open: Vec<u32> = Vec::new();
    for stretch in stretches {
        while open.last().is_some_and(|last| scopes[*last as usize].end <= stretch.start) {
            open.pop();
        }
        let parent = open.last().copied();
        let end = parent.map_or(stretch.end, |parent| stretch.end.min(scopes[parent as usize].end));
        let Ok(number) = u32::try_from(scopes.len()) else { break };
        let Stretch { start, function, call, .. } = stretch;
        scopes.push(Scope { start, end, function, parent, call });
        open.push(number);
    }
    scopes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::innermost;

    fn stretch(start: u64, end: u64, depth: u32, function: u32) -> Stretch {
        Stretch { start, end, depth, function, call: None }
    }

    #[test]
    fn the_innermost_stretch_is_found() {
        let scopes = nest(vec![
            stretch(30, 40, 1, 2),
            stretch(10, 50, 0, 0),
            stretch(10, 50, 1, 1),
            stretch(32, 34, 2, 3),
            stretch(60, 70, 0, 4),
            // This one leaves what it begins in.
            stretch(65, 90, 1, 5),
        ]);
        let at = |address| innermost(&scopes, address).map(|scope| scopes[scope as usize].function);
        assert_eq!(at(9), None);
        assert_eq!(at(10), Some(1));
        assert_eq!(at(33), Some(3));
        assert_eq!(at(34), Some(2));
        assert_eq!(at(45), Some(1));
        assert_eq!(at(50), None);
        assert_eq!(at(66), Some(5));
        assert_eq!(at(70), None);
    }
}

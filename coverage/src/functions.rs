//! Which declared functions are one function of the source: instances for several types, copies of several units.

use std::collections::BTreeMap;

use crate::Function;
use crate::elf::Symbol;
use crate::names::without_parameters;
use crate::program::Scope;
use crate::tables::Declared;

/// Functions that are referred to, each once.
#[derive(Default)]
pub(crate) struct Functions {
    pub list: Vec<Function>,
    /// Declared function: function.
    numbers: BTreeMap<u32, u32>,
    known: BTreeMap<(Option<u32>, u32, String), u32>,
}

impl Functions {
    /// The function that a declared one is; `files` gives the place of a file in the program's.
    pub(crate) fn number(
        &mut self,
        index: u32,
        declared: &Declared,
        file: impl FnOnce(u32) -> Option<u32>,
    ) -> u32 {
        if let Some(number) = self.numbers.get(&index) {
            return *number;
        }
        let file = declared.file.and_then(file);
        let key = (file, declared.line, base(&declared.name));
        let next = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        let number = *self.known.entry(key).or_insert(next);
        let name = declared.name.clone();
        match self.list.get_mut(number as usize) {
            // Of several instances, the shortest name says the most.
            Some(function) if (name.len(), &name) < (function.name.len(), &function.name) => {
                function.name = name
            }
            Some(_) => {}
            None => self.list.push(Function { name, file, line: declared.line, counted: false }),
        }
        self.numbers.insert(index, number);
        number
    }
}

/// Completes declarations that lack a place or a full name, as `-g1` and `line-tables-only` leave them: from the symbol where the
/// function's code begins, and from the statements that belong to it.
pub(crate) fn complete(
    declared: &mut [Declared],
    scopes: &[Scope],
    symbols: &[Symbol<'_>],
    owned: impl Iterator<Item = (u32, u32, u32)>,
) {
    let mut names: BTreeMap<u64, &[u8]> = BTreeMap::new();
    for symbol in symbols {
        names.entry(symbol.address).or_insert(&symbol.name);
    }
    for scope in scopes.iter().filter(|scope| scope.call.is_none()) {
        let Some(function) = declared.get_mut(scope.function as usize).filter(|function| !function.linked)
        else {
            continue;
        };
        if let Some(name) = names.get(&scope.start) {
            let full = crate::names::demangle(name);
            // A part of a function, or another one with the same code, has a symbol of its own.
            if base(&full).ends_with(&base(&function.name)) {
                function.name = full;
                function.linked = true;
            }
        }
    }
    let mut first: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
    for (function, file, line) in owned {
        let place = first.entry(function).or_insert((file, line));
        if place.0 == file {
            place.1 = line.min(place.1);
        }
    }
    for (function, (file, line)) in first {
        if let Some(function) = declared.get_mut(function as usize).filter(|function| function.line == 0) {
            (function.file, function.line) = (Some(file), line);
        }
    }
}

/// The last part of a name, without what instances differ in: parameters and types.
fn base(name: &str) -> String {
    let plain = without_parameters(name);
    let plain = plain.trim_end_matches(':');
    plain.rsplit("::").next().unwrap_or(plain).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_have_one_base() {
        assert_eq!(base("Store<int>::get(int const&) const"), "get");
        assert_eq!(base("kv::log::push::<u32>"), "push");
        assert_eq!(base("<kv::A as core::fmt::Debug>::fmt"), "fmt");
        assert_eq!(base("main.(*Store).Get"), "main.(*Store).Get");
        assert_eq!(base("kv::run::{closure#0}"), "{closure#0}");
        assert_eq!(base("main"), "main");
    }

    #[test]
    fn instances_are_one_function() {
        let mut functions = Functions::default();
        let declared =
            |name: &str, line| Declared { name: name.to_owned(), linked: true, file: Some(7), line };
        let int = functions.number(0, &declared("Store<int>::get(int)", 3), Some);
        let long = functions.number(1, &declared("Store<long>::get(long)", 3), Some);
        let other = functions.number(2, &declared("Store<long>::put(long)", 3), Some);
        assert_eq!((int, long, other), (0, 0, 1));
        assert_eq!(functions.list[0].name, "Store<int>::get(int)");
    }
}

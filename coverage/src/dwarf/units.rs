//! Which code of a program its authors have written, going by its units of compilation ([`written`]). The rest came with the language, or with
//! libraries that were linked in.
//!
//! Neighbours: [`super`] reads units for lines and functions; [`crate::accesses`] asks.

use gimli::{AttributeValue, Dwarf};

use super::{Abbreviations, Sections, Slice, Supply};
use crate::elf::Binary;

/// The first parts of the paths of Go's own packages (`go list std`).
const GO: &str = " archive bufio bytes cmp compress container context crypto database debug embed encoding errors expvar flag fmt go hash html \
    image index internal io iter log maps math mime net os path plugin reflect regexp runtime slices sort strconv strings structs sync \
    syscall testing text time unicode unique unsafe vendor weak ";

/// The addresses (first one, and one past the last) of code of units that the program's authors have written, by rising address. `None` if there are no
/// such units: the program has no debug information, or only that of its language.
pub(crate) fn written(binary: &Binary<'_>) -> Option<Vec<(u64, u64)>> {
    let mut damage = Vec::new();
    let sections = Sections::load(binary, false, &mut damage);
    let dwarf = sections.dwarf(None);
    let mut supply = Supply::new(sections.bytes);
    let mut abbreviations = Abbreviations::default();
    let mut found = Vec::new();
    let mut headers = dwarf.units();
    // Where it is damaged, what was read until then counts.
    while let Ok(Some(header)) = headers.next() {
        let Ok(unit) = abbreviations.unit(&dwarf, header, &mut supply) else { continue };
        if !is_written(&dwarf, &unit) {
            continue;
        }
        let Ok(mut ranges) = dwarf.unit_ranges(&unit) else { continue };
        while let Ok(Some(range)) = ranges.next() {
            if !supply.take(8) {
                break;
            }
            // What the linker has left out begins at 0.
            if range.begin > 0 && range.begin < range.end {
                found.push((range.begin, range.end));
            }
        }
    }
    found.sort_unstable();
    (!found.is_empty()).then_some(found)
}

/// Whether a unit is of the program's authors, as far as that can be known.
fn is_written<'d>(dwarf: &Dwarf<Slice<'d>>, unit: &gimli::Unit<Slice<'d>>) -> bool {
    let directory = unit.comp_dir.map(|directory| directory.to_string_lossy()).unwrap_or_default();
    // Rust's standard library and what it is made of, and packages from registries and repositories.
    if directory.starts_with("/rustc/")
        || directory.starts_with("/rust/deps/")
        || ["/.cargo/registry/", "/.cargo/git/"].iter().any(|part| directory.contains(part))
    {
        return false;
    }
    let mut entries = unit.entries();
    let Ok(Some(root)) = entries.next_dfs() else { return false };
    let of_go = matches!(
        root.attr_value(gimli::DW_AT_language),
        Some(AttributeValue::Language(language)) if language == gimli::DW_LANG_Go
    );
    if !of_go {
        return true;
    }
    let name = root.attr_value(gimli::DW_AT_name).and_then(|value| dwarf.attr_string(unit, value).ok());
    let name = name.map(|name| name.to_string_lossy()).unwrap_or_default();
    let first = name.split('/').next().unwrap_or_default();
    !GO.contains(&format!(" {first} "))
}

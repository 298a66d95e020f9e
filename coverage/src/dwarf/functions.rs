//! Functions: their names, where they are declared, and where their code and its inlined copies lie.

use std::collections::BTreeMap;

use gimli::{AttributeValue, Dwarf, UnitOffset, constants as dw};

use super::{Debug, Slice, Source, Supply, split};
use crate::tables::{Declared, Stretch, Tables};

/// How often a function may refer to another declaration of itself.
const DEEPEST: usize = 8;
/// Stretches of a program, at most.
const MOST: usize = 32_000_000;

/// Attributes of one entry.
#[derive(Default)]
struct Entry<'d> {
    low: Option<AttributeValue<Slice<'d>>>,
    high: Option<AttributeValue<Slice<'d>>>,
    ranges: Option<AttributeValue<Slice<'d>>>,
    name: Option<AttributeValue<Slice<'d>>>,
    linkage: Option<AttributeValue<Slice<'d>>>,
    origin: Option<AttributeValue<Slice<'d>>>,
    file: Option<u64>,
    line: Option<u64>,
    call_file: Option<u64>,
    call_line: Option<u64>,
}

/// A set of units that entries can refer to each other in: a program's, or those of one split file.
pub(super) struct Group<'g, 'd> {
    pub dwarf: &'g Dwarf<Slice<'d>>,
    pub units: Vec<Member<'g, 'd>>,
    /// Entries that functions were made of, by unit and place.
    known: BTreeMap<(usize, usize), Option<u32>>,
}

/// A unit, and the numbers of its files.
pub(super) struct Member<'g, 'd> {
    pub unit: &'g gimli::Unit<Slice<'d>>,
    pub files: &'g [Option<u32>],
}

impl<'g, 'd> Group<'g, 'd> {
    pub(super) fn new(dwarf: &'g Dwarf<Slice<'d>>, units: Vec<Member<'g, 'd>>) -> Group<'g, 'd> {
        Group { dwarf, units, known: BTreeMap::new() }
    }
}

impl<'d> Debug<'d> {
    /// Reads the functions of units with files that count, or of all.
    pub(super) fn read_functions(&mut self, source: &Source<'_, '_>, tables: &mut Tables) {
        let wanted: Vec<usize> =
            (0..self.units.len()).filter(|unit| source.whole || self.counts(*unit, &tables.chosen)).collect();
        let mut supply = std::mem::replace(&mut self.supply, Supply(0));
        let files = |unit: &super::Unit<'_>| unit.program.map_or(&[][..], |p| &self.programs[p].files[..]);
        let members = self.units.iter().map(|unit| Member { unit: &unit.unit, files: files(unit) });
        let mut group = Group::new(&self.dwarf, members.collect());
        let mut notes = Vec::new();
        for unit in wanted.iter().copied() {
            if let Err(error) = group.read_unit(unit, source, tables, &mut supply) {
                let at = group.units[unit].unit.header.offset().0;
                notes.push(format!("functions of the unit at {at:#x} of .debug_info are damaged: {error}"));
            }
        }
        drop(group);
        let skeletons = wanted.into_iter().map(|unit| (&self.units[unit].unit, files(&self.units[unit])));
        let skeletons = skeletons.filter(|(unit, _)| unit.dwo_id.is_some()).collect();
        notes.extend(split::read(&self.dwarf, skeletons, source, tables, &mut supply));
        self.supply = supply;
        for note in notes {
            self.note(note);
        }
    }
}

impl<'g, 'd> Group<'g, 'd> {
    /// Reads all functions of a unit.
    pub(super) fn read_unit(
        &mut self,
        number: usize,
        source: &Source<'_, '_>,
        tables: &mut Tables,
        supply: &mut Supply,
    ) -> Result<(), String> {
        let unit = self.units[number].unit;
        let mut entries = unit.entries_raw(None).map_err(|error| error.to_string())?;
        let mut ranges = Vec::new();
        while !entries.is_empty() {
            let (depth, at) = (entries.next_depth(), entries.next_offset());
            if !supply.take(1) || tables.stretches.len() > MOST {
                return Err("there are too many entries".to_owned());
            }
            let Some(kind) = entries.read_abbreviation().map_err(|error| error.to_string())? else {
                continue;
            };
            let inlined = kind.tag() == dw::DW_TAG_inlined_subroutine;
            if !inlined && kind.tag() != dw::DW_TAG_subprogram {
                entries.skip_attributes(kind.attributes()).map_err(|error| error.to_string())?;
                continue;
            }
            let mut entry = Entry::default();
            for attribute in kind.attributes() {
                entry.take(&entries.read_attribute(*attribute).map_err(|error| error.to_string())?);
            }
            ranges.clear();
            self.ranges(unit, &entry, source, &mut ranges, supply);
            if ranges.is_empty() {
                continue;
            }
            // An inlined copy is what it refers to.
            let origin = if inlined {
                entry.origin.and_then(|to| self.target(number, to))
            } else {
                Some((number, at))
            };
            let Some(function) = origin.and_then(|(unit, at)| self.function(unit, at, tables, supply)) else {
                continue;
            };
            let call_file = self.file(number, entry.call_file).unwrap_or(0);
            let call = inlined.then_some((call_file, small(entry.call_line)));
            let depth = u32::try_from(depth).unwrap_or(0);
            for (start, end) in ranges.iter().copied() {
                if !inlined {
                    tables.starts.push(start);
                }
                tables.stretches.push(Stretch { start, end, depth, function, call });
            }
        }
        Ok(())
    }

    /// The code of an entry, as far as it lies in the program's code.
    fn ranges(
        &self,
        unit: &gimli::Unit<Slice<'d>>,
        entry: &Entry<'d>,
        source: &Source<'_, '_>,
        ranges: &mut Vec<(u64, u64)>,
        supply: &mut Supply,
    ) {
        let mut add = |start: u64, end: u64| {
            let Some(code) = source.binary.code_at(start) else { return };
            if end > start && end - code.address <= code.length {
                ranges.push((start, end));
            }
        };
        let address = |value| self.dwarf.attr_address(unit, value).ok().flatten();
        if let Some(list) = entry.ranges {
            let Ok(Some(mut list)) = self.dwarf.attr_ranges(unit, list) else { return };
            while let Ok(Some(range)) = list.next()
                && supply.take(4)
            {
                add(range.begin, range.end);
            }
        } else if let Some(low) = entry.low.and_then(address) {
            // DWARF 5, 2.17.2: a constant is the length, an address the end.
            let high = match entry.high {
                Some(AttributeValue::Udata(length)) => low.checked_add(length),
                Some(value) => address(value),
                None => None,
            };
            add(low, high.unwrap_or(low));
        }
    }

    /// The function that an entry declares, or whose copy it is.
    fn function(
        &mut self,
        unit: usize,
        at: UnitOffset,
        tables: &mut Tables,
        supply: &mut Supply,
    ) -> Option<u32> {
        let mut declared = Declared::default();
        let mut path = Vec::new();
        let mut next = Some((unit, at));
        let mut function = None;
        while let Some((unit, at)) = next.filter(|_| path.len() < DEEPEST) {
            if let Some(known) = self.known.get(&(unit, at.0)) {
                function = Some(*known);
                break;
            }
            path.push((unit, at.0));
            let Some(entry) = self.entry(unit, at).filter(|_| supply.take(32)) else { break };
            self.declare(unit, &entry, &mut declared);
            next = entry.origin.and_then(|to| self.target(unit, to));
        }
        let function = function.unwrap_or_else(|| {
            let number = u32::try_from(tables.functions.len()).ok().filter(|_| !declared.name.is_empty());
            tables.functions.extend(number.is_some().then_some(declared));
            number
        });
        self.known.extend(path.into_iter().map(|entry| (entry, function)));
        function
    }

    /// Adds what an entry says and those before it did not.
    fn declare(&self, unit: usize, entry: &Entry<'d>, declared: &mut Declared) {
        let text = |value| self.dwarf.attr_string(self.units[unit].unit, value).ok();
        if !declared.linked
            && let Some(name) = entry.linkage.and_then(text)
        {
            declared.name = crate::names::demangle(name.slice());
            declared.linked = true;
        }
        if declared.name.is_empty()
            && let Some(name) = entry.name.and_then(text)
        {
            declared.name = crate::names::demangle(name.slice());
        }
        if declared.line == 0 {
            declared.line = small(entry.line);
            declared.file = self.file(unit, entry.file);
        }
    }

    /// Reads the entry at a place.
    fn entry(&self, unit: usize, at: UnitOffset) -> Option<Entry<'d>> {
        let mut entries = self.units.get(unit)?.unit.entries_raw(Some(at)).ok()?;
        let kind = entries.read_abbreviation().ok()??;
        let mut entry = Entry::default();
        for attribute in kind.attributes() {
            entry.take(&entries.read_attribute(*attribute).ok()?);
        }
        Some(entry)
    }

    /// The unit and place that a reference means.
    fn target(&self, unit: usize, to: AttributeValue<Slice<'d>>) -> Option<(usize, UnitOffset)> {
        match to {
            AttributeValue::UnitRef(at) => Some((unit, at)),
            AttributeValue::DebugInfoRef(at) => {
                let after = self.units.partition_point(|member| member.unit.header.offset().0 <= at.0);
                let unit = after.checked_sub(1)?;
                Some((unit, at.to_unit_offset(&self.units[unit].unit.header)?))
            }
            _ => None,
        }
    }

    /// A file of a unit's line table, as a place in [`Tables::names`].
    fn file(&self, unit: usize, number: Option<u64>) -> Option<u32> {
        self.units.get(unit)?.files.get(usize::try_from(number?).ok()?).copied()?
    }
}

impl<'d> Entry<'d> {
    fn take(&mut self, attribute: &gimli::Attribute<Slice<'d>>) {
        let value = || Some(attribute.value());
        match attribute.name() {
            dw::DW_AT_low_pc => self.low = value(),
            dw::DW_AT_high_pc => self.high = value(),
            dw::DW_AT_ranges => self.ranges = value(),
            dw::DW_AT_name => self.name = value(),
            dw::DW_AT_linkage_name | dw::DW_AT_MIPS_linkage_name => self.linkage = value(),
            dw::DW_AT_abstract_origin | dw::DW_AT_specification => self.origin = value(),
            dw::DW_AT_decl_file => self.file = number(attribute),
            dw::DW_AT_decl_line => self.line = attribute.udata_value(),
            dw::DW_AT_call_file => self.call_file = number(attribute),
            dw::DW_AT_call_line => self.call_line = attribute.udata_value(),
            _ => {}
        }
    }
}

/// The number of a file.
fn number(attribute: &gimli::Attribute<Slice<'_>>) -> Option<u64> {
    match attribute.value() {
        AttributeValue::FileIndex(number) => Some(number),
        _ => attribute.udata_value(),
    }
}

fn small(line: Option<u64>) -> u32 {
    line.and_then(|line| u32::try_from(line).ok()).unwrap_or(0)
}

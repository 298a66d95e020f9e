//! Split debug information: functions in `.dwo` files and `.dwp` packages. The line tables of such programs are in the programs.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use gimli::{Dwarf, DwarfPackageSections, EndianSlice, LittleEndian};

use super::functions::{Group, Member};
use super::{Sections, Slice, Source, Supply, needed};
use crate::checkout::normal;
use crate::elf::Binary;
use crate::tables::Tables;

/// A unit of the program that has only what the linker must know, and the numbers of its files.
type Skeleton<'g, 'd> = (&'g gimli::Unit<Slice<'d>>, &'g [Option<u32>]);

/// Reads the functions of all split units. Gives notes.
pub(super) fn read<'d>(
    parent: &Dwarf<Slice<'d>>,
    skeletons: Vec<Skeleton<'_, 'd>>,
    source: &Source<'_, '_>,
    tables: &mut Tables,
    supply: &mut Supply,
) -> Vec<String> {
    let mut notes = Vec::new();
    if skeletons.is_empty() {
        return notes;
    }
    let mut package = source.path.as_os_str().to_owned();
    package.push(".dwp");
    let package = source.files.read(Path::new(&package));
    let package = package.as_ref().and_then(|bytes| load_package(bytes, &mut notes));
    let empty = EndianSlice::new(&[], LittleEndian);
    let borrowed = package.as_ref().and_then(|package| {
        package
            .borrow(|bytes| EndianSlice::new(bytes, LittleEndian), empty)
            .map_err(|e| notes.push(damaged(&e)))
            .ok()
    });
    let mut missing: (usize, Option<PathBuf>) = (0, None);
    for (skeleton, files) in skeletons {
        let Some(id) = skeleton.dwo_id else { continue };
        if let Some(package) = &borrowed
            && let Ok(Some(dwarf)) = package.find_cu(id, parent)
        {
            notes.extend(one(&dwarf, (skeleton, files), source, tables, supply));
            continue;
        }
        let places = places(parent, skeleton, source);
        let Some(bytes) = places.iter().find_map(|place| source.files.read(place)) else {
            missing.0 += 1;
            missing.1 = missing.1.or_else(|| places.first().cloned());
            continue;
        };
        let Ok(binary) = Binary::read(&bytes) else { continue };
        let sections = Sections::load(&binary, true, &mut notes);
        let mut dwarf = sections.dwarf(None);
        dwarf.make_dwo(parent);
        notes.extend(one(&dwarf, (skeleton, files), source, tables, supply));
    }
    if let (count, Some(first)) = missing {
        let first = first.display();
        notes.push(format!("{count} files with split debug information were not found, such as {first}: functions there have no names but those of symbols"));
    }
    notes
}

fn damaged(error: &gimli::Error) -> String {
    format!("the .dwp file is damaged: {error}")
}

fn load_package<'a>(bytes: &'a [u8], notes: &mut Vec<String>) -> Option<DwarfPackageSections<Cow<'a, [u8]>>> {
    let binary = Binary::read(bytes).ok()?;
    let load = |id: gimli::SectionId| -> Result<Cow<'a, [u8]>, gimli::Error> {
        let name = id.dwo_name().filter(|_| needed(id));
        Ok(name.map_or(Cow::Borrowed(&[][..]), |name| binary.debug(name, notes)))
    };
    DwarfPackageSections::load(load).ok()
}

/// Where a split file may be: where the compiler put it, where the configuration maps that to, beside the program.
fn places(
    parent: &Dwarf<Slice<'_>>,
    skeleton: &gimli::Unit<Slice<'_>>,
    source: &Source<'_, '_>,
) -> Vec<PathBuf> {
    let Ok(Some(name)) = skeleton.dwo_name() else { return Vec::new() };
    let Ok(name) = parent.attr_string(skeleton, name) else { return Vec::new() };
    let name = name.to_string_lossy();
    let directory =
        skeleton.comp_dir.map(|directory| directory.to_string_lossy().into_owned()).unwrap_or_default();
    let path = normal(&directory, &name);
    let mut places = vec![PathBuf::from(&path)];
    for (from, to) in source.path_map {
        if let Some(rest) =
            path.strip_prefix(from.trim_end_matches('/')).and_then(|rest| rest.strip_prefix('/'))
        {
            places.push(to.join(rest));
        }
    }
    if let (Some(directory), Some(name)) = (source.path.parent(), Path::new(&path).file_name()) {
        places.push(directory.join(name));
    }
    places
}

/// Reads the unit of a split file that belongs to a skeleton.
fn one<'g>(
    dwarf: &'g Dwarf<Slice<'g>>,
    (skeleton, files): (&gimli::Unit<Slice<'_>>, &'g [Option<u32>]),
    source: &Source<'_, '_>,
    tables: &mut Tables,
    supply: &mut Supply,
) -> Option<String> {
    let mut headers = dwarf.units();
    let problem = |error: &dyn std::fmt::Display| {
        Some(format!("a file with split debug information is damaged: {error}"))
    };
    loop {
        let header = match headers.next() {
            Ok(Some(header)) => header,
            Ok(None) => return problem(&"it is of another build"),
            Err(error) => return problem(&error),
        };
        let mut unit = match dwarf.unit(header) {
            Ok(unit) => unit,
            Err(error) => return problem(&error),
        };
        if !supply.take(1000) {
            return problem(&"it has too many units");
        }
        if unit.dwo_id == skeleton.dwo_id {
            unit.low_pc = skeleton.low_pc;
            unit.addr_base = skeleton.addr_base;
            if unit.header.version() < 5 {
                unit.rnglists_base = skeleton.rnglists_base;
            }
            let mut group = Group::new(dwarf, vec![Member { unit: &unit, files }]);
            return group.read_unit(0, source, tables, supply).err().and_then(|error| problem(&error));
        }
    }
}

//! DWARF 2 to 5: which files a program was built of, where its statements begin, and its functions with their inlined copies.
//!
//! Debug information may be damaged or made to hurt. Each unit and each line program is read once, whatever refers to it; work beyond
//! that is paid for from a supply that grows with the size of the sections ([`Supply`]). What cannot be read is noted and left out.

mod functions;
mod lines;
mod split;
mod units;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gimli::{Dwarf, DwarfSections, EndianSlice, LittleEndian, SectionId};

use crate::DebugFiles;
use crate::checkout::Named;
use crate::elf::Binary;
use crate::tables::Tables;

pub(crate) use units::written;

/// How sections are read.
pub(crate) type Slice<'d> = EndianSlice<'d, LittleEndian>;

/// Notes of one kind, at most: a damaged file would have one for each unit.
const MOST_NOTES: usize = 8;

/// The sections of one file with debug information.
pub(crate) struct Sections<'a> {
    sections: DwarfSections<Cow<'a, [u8]>>,
    bytes: u64,
}

impl<'a> Sections<'a> {
    /// Reads, and decompresses, the sections that are needed: of the file itself, or those of a split file.
    pub(crate) fn load(binary: &Binary<'a>, split: bool, damage: &mut Vec<String>) -> Sections<'a> {
        let mut bytes = 0;
        let mut load = |id: SectionId| -> Result<Cow<'a, [u8]>, gimli::Error> {
            let name = if split { id.dwo_name() } else { Some(id.name()) };
            let name = name.filter(|_| needed(id));
            let section = name.map_or(Cow::Borrowed(&[][..]), |name| binary.debug(name, damage));
            bytes += section.len() as u64;
            Ok(section)
        };
        let sections = DwarfSections::load(&mut load).unwrap_or_default();
        Sections { sections, bytes }
    }

    fn dwarf<'s>(&'s self, shared: Option<&'s Sections<'a>>) -> Dwarf<Slice<'s>> {
        let shared = shared.map(|shared| &shared.sections);
        self.sections.borrow_with_sup(shared, |bytes| EndianSlice::new(bytes, LittleEndian))
    }
}

/// Whether lines and functions are read from a section: types, variables and macros are not.
fn needed(id: SectionId) -> bool {
    matches!(
        id,
        SectionId::DebugAbbrev
            | SectionId::DebugAddr
            | SectionId::DebugCuIndex
            | SectionId::DebugInfo
            | SectionId::DebugLine
            | SectionId::DebugLineStr
            | SectionId::DebugRanges
            | SectionId::DebugRngLists
            | SectionId::DebugStr
            | SectionId::DebugStrOffsets
    )
}

/// How much work may still be done.
pub(crate) struct Supply(u64);

impl Supply {
    fn new(bytes: u64) -> Supply {
        // What honest programs need is a few steps for each byte.
        Supply(50_000_000 + bytes.saturating_mul(8))
    }

    /// Takes some; whether there was enough.
    fn take(&mut self, work: u64) -> bool {
        let enough = self.0 >= work;
        self.0 = self.0.saturating_sub(work);
        enough
    }
}

/// A unit of compilation.
struct Unit<'d> {
    unit: gimli::Unit<Slice<'d>>,
    /// The line program it uses, by its place in [`Debug::programs`].
    program: Option<usize>,
}

/// A line program.
struct Program<'d> {
    offset: gimli::DebugLineOffset,
    address_size: u8,
    directory: Option<Slice<'d>>,
    name: Option<Slice<'d>>,
    /// The files of the table, by their numbers in it, as places in [`Tables::names`].
    files: Vec<Option<u32>>,
}

/// All that is read of `.debug_info` before the files that count are chosen.
struct Debug<'d> {
    dwarf: Dwarf<Slice<'d>>,
    units: Vec<Unit<'d>>,
    programs: Vec<Program<'d>>,
    supply: Supply,
    notes: Vec<String>,
    /// Notes that were not kept, as there are too many.
    more: usize,
}

/// What a program with debug information is read from.
pub(crate) struct Source<'s, 'a> {
    /// The program: where code is.
    pub binary: &'s Binary<'a>,
    /// The path of the file with debug information: split files are looked for beside it.
    pub path: &'s Path,
    pub sections: &'s Sections<'a>,
    /// Of the file that several debug files share.
    pub shared: Option<&'s Sections<'a>>,
    pub files: &'s dyn DebugFiles,
    /// The beginnings of paths of the build, and the absolute paths that stand for them here.
    pub path_map: &'s [(String, PathBuf)],
    /// Whether all rows and stretches are wanted, not only those of files that count.
    pub whole: bool,
}

/// Reads what the program has; `choose` says which files count.
pub(crate) fn read(source: &Source<'_, '_>, choose: impl FnOnce(&[Named]) -> Vec<bool>) -> Tables {
    let mut debug = Debug {
        dwarf: source.sections.dwarf(source.shared),
        units: Vec::new(),
        programs: Vec::new(),
        supply: Supply::new(source.sections.bytes),
        notes: Vec::new(),
        more: 0,
    };
    let mut tables = Tables { names: debug.read_units(), ..Tables::default() };
    tables.chosen = choose(&tables.names);
    for program in 0..debug.programs.len() {
        debug.read_lines(program, source, &mut tables);
    }
    debug.read_functions(source, &mut tables);
    tables.statements.sort_unstable();
    tables.statements.dedup();
    tables.starts.sort_unstable();
    tables.starts.dedup();
    if debug.more > 0 {
        debug.notes.push(format!("{} more of this kind", debug.more));
    }
    tables.notes.append(&mut debug.notes);
    tables
}

impl<'d> Debug<'d> {
    fn note(&mut self, text: String) {
        if self.notes.len() < MOST_NOTES {
            self.notes.push(text);
        } else {
            self.more += 1;
        }
    }

    /// Reads the units and the headers of their line programs. Gives all files.
    fn read_units(&mut self) -> Vec<Named> {
        let mut names: Vec<Named> = Vec::new();
        let mut numbers: BTreeMap<Named, u32> = BTreeMap::new();
        let mut known: BTreeMap<usize, usize> = BTreeMap::new();
        let mut abbreviations = Abbreviations::default();
        let mut headers = self.dwarf.units();
        loop {
            let header = match headers.next() {
                Ok(Some(header)) => header,
                Ok(None) => break,
                Err(error) => {
                    self.note(format!(".debug_info is damaged: {error}"));
                    break;
                }
            };
            let unit = match abbreviations.unit(&self.dwarf, header, &mut self.supply) {
                Ok(unit) => unit,
                Err(error) => {
                    let at = header.offset().0;
                    self.note(format!("the unit at {at:#x} of .debug_info is damaged: {error}"));
                    continue;
                }
            };
            let mut unit = Unit { unit, program: None };
            // The tables of a header take memory: it is read again when its rows are.
            if let Some(lines) = unit.unit.line_program.take() {
                let offset = lines.header().offset();
                let number = *known.entry(offset.0).or_insert(self.programs.len());
                if number == self.programs.len() {
                    let files = self.files(&unit.unit, lines.header());
                    let files = files.into_iter().map(|named| {
                        let named = named?;
                        let next = u32::try_from(names.len()).ok()?;
                        Some(*numbers.entry(named).or_insert_with_key(|named| {
                            names.push(named.clone());
                            next
                        }))
                    });
                    let files = files.collect();
                    self.programs.push(Program {
                        offset,
                        address_size: lines.header().address_size(),
                        directory: unit.unit.comp_dir,
                        name: unit.unit.name,
                        files,
                    });
                }
                unit.program = Some(number);
            }
            self.units.push(unit);
        }
        names
    }

    /// The files of a line program's header, by their numbers.
    fn files(
        &self,
        unit: &gimli::Unit<Slice<'d>>,
        header: &gimli::LineProgramHeader<Slice<'d>>,
    ) -> Vec<Option<Named>> {
        let text =
            |value| self.dwarf.attr_line_string(value).or_else(|_| self.dwarf.attr_string(unit, value)).ok();
        let build =
            unit.comp_dir.map(|directory| directory.to_string_lossy().into_owned()).unwrap_or_default();
        let named = |number: u64| {
            let file = header.file(number)?;
            let name = text(file.path_name())?.to_string_lossy().into_owned();
            let directory = file.directory(header).and_then(text);
            let directory = directory.map(|d| d.to_string_lossy().into_owned()).unwrap_or_default();
            let directory = crate::checkout::normal(&build, &directory);
            let md5 = (header.file_has_md5() && *file.md5() != [0; 16]).then(|| *file.md5());
            Some(Named { path: crate::checkout::normal(&directory, &name), md5 })
        };
        // Files have numbers from 0 in DWARF 5, from 1 before.
        (0..=header.file_names().len() as u64).map(named).collect()
    }

    /// Whether a unit may have code of files that count.
    fn counts(&self, unit: usize, chosen: &[bool]) -> bool {
        let Some(program) = self.units[unit].program else { return false };
        let chosen = |file: &u32| chosen.get(*file as usize).copied().unwrap_or(false);
        self.programs[program].files.iter().flatten().any(chosen)
    }
}

/// The tables of abbreviations, each read once.
#[derive(Default)]
struct Abbreviations(BTreeMap<usize, std::sync::Arc<gimli::Abbreviations>>);

impl Abbreviations {
    fn unit<'d>(
        &mut self,
        dwarf: &Dwarf<Slice<'d>>,
        header: gimli::UnitHeader<Slice<'d>>,
        supply: &mut Supply,
    ) -> Result<gimli::Unit<Slice<'d>>, String> {
        let at = header.debug_abbrev_offset().0;
        let table = match self.0.get(&at) {
            Some(table) => table.clone(),
            None => {
                let table = dwarf.abbreviations(&header).map_err(|error| error.to_string())?;
                let entries = (1..).take_while(|code| table.get(*code).is_some()).count() as u64;
                // Tables that overlap could be read over and over.
                if !supply.take(entries * 8) {
                    return Err("its abbreviations overlap others".to_owned());
                }
                self.0.insert(at, table.clone());
                table
            }
        };
        gimli::Unit::new_with_abbreviations(dwarf, header, table).map_err(|error| error.to_string())
    }
}

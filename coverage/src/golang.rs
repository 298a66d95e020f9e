//! Go: the table from addresses to lines that its runtime needs (`.gopclntab`), which is in every program, also in stripped ones; and
//! which source files are of the program's own module.
//!
//! The formats are those of Go 1.16, 1.18 and 1.20 (`internal/abi` and `runtime/symtab.go` in Go's source): a header with offsets, a table
//! of functions by rising address, and for each function numbers by address, packed as differences.

use crate::checkout::{Named, normal};
use crate::elf::Binary;
use crate::names::demangle;
use crate::tables::{Declared, Statement, Stretch, Tables};

/// Whether Go's compiler made a program.
pub(crate) fn is_go(binary: &Binary<'_>) -> bool {
    binary.has(".go.buildinfo") || table(binary).is_some()
}

fn table<'a>(binary: &Binary<'a>) -> Option<&'a [u8]> {
    // The second name is that of programs that can be loaded anywhere.
    let names = [".gopclntab", ".data.rel.ro.gopclntab"];
    names.iter().find_map(|name| binary.raw(name)).map(|(_, bytes)| bytes).filter(|bytes| !bytes.is_empty())
}

/// What the header says.
struct Header<'a> {
    bytes: &'a [u8],
    /// Size of addresses in the table of functions: 4 bytes from the text's start, or 8.
    wide: bool,
    quantum: u64,
    functions: u64,
    text: u64,
    names: &'a [u8],
    units: &'a [u8],
    files: &'a [u8],
    values: &'a [u8],
    table: &'a [u8],
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn usize_of(number: u64) -> Option<usize> {
    usize::try_from(number).ok()
}

impl<'a> Header<'a> {
    fn read(binary: &Binary<'a>) -> Option<Header<'a>> {
        let bytes = table(binary)?;
        let wide = match u32_at(bytes, 0)? {
            0xffff_fffa => true,
            0xffff_fff0 | 0xffff_fff1 => false,
            _ => return None,
        };
        if bytes.get(7) != Some(&8) {
            return None;
        }
        let field = |number: usize| u64_at(bytes, 8 + 8 * number);
        // Go 1.18 has put the text's start between the counts and the offsets.
        let first = if wide { 2 } else { 3 };
        let part = |number: usize| bytes.get(usize_of(field(first + number)?)?..);
        let text = if wide { 0 } else { field(2)? };
        let known = |address: &u64| binary.code_at(*address).is_some();
        let text = Some(text).filter(|text| wide || known(text)).or_else(|| {
            // The dynamic linker fills in the address of a program that can be loaded anywhere.
            let symbol = binary.symbols().into_iter().find(|symbol| *symbol.name == *b"runtime.text");
            symbol.map(|symbol| symbol.address).or_else(|| binary.raw(".text").map(|(address, _)| address))
        })?;
        Some(Header {
            bytes,
            wide,
            quantum: u64::from(*bytes.get(6)?),
            functions: field(0)?,
            text,
            names: part(0)?,
            units: part(1)?,
            files: part(2)?,
            values: part(3)?,
            table: part(4)?,
        })
    }

    /// The address of a function, and where what is known of it begins in the table.
    fn function(&self, number: u64) -> Option<(u64, usize)> {
        let number = usize_of(number)?;
        if self.wide {
            let at = number.checked_mul(16)?;
            Some((u64_at(self.table, at)?, usize_of(u64_at(self.table, at + 8).unwrap_or(0))?))
        } else {
            let at = number.checked_mul(8)?;
            let about = u32_at(self.table, at + 4).unwrap_or(0);
            Some((self.text.checked_add(u64::from(u32_at(self.table, at)?))?, usize::try_from(about).ok()?))
        }
    }

    fn text_at(bytes: &[u8], at: u64) -> Option<&[u8]> {
        let rest = bytes.get(usize_of(at)?..)?;
        rest.get(..rest.iter().take(1 << 16).position(|byte| *byte == 0)?)
    }
}

/// Numbers of a function by address: each holds up to an offset from the function's start.
struct Values<'v> {
    bytes: &'v [u8],
    quantum: u64,
    value: i64,
    end: u64,
    first: bool,
}

impl Values<'_> {
    fn varint(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

impl Iterator for Values<'_> {
    type Item = (u64, i64);

    fn next(&mut self) -> Option<(u64, i64)> {
        let change = self.varint()?;
        // A change of 0 ends the list, except for the first.
        if change == 0 && !self.first {
            return None;
        }
        self.first = false;
        let signed = (change >> 1).cast_signed() ^ -(change & 1).cast_signed();
        self.value = self.value.checked_add(signed)?;
        self.end = self.end.checked_add(self.varint()?.checked_mul(self.quantum)?)?;
        Some((self.end, self.value))
    }
}

/// Reads the table; `choose` says which files count. `None` if there is none that can be read.
pub(crate) fn read(
    binary: &Binary<'_>,
    whole: bool,
    choose: impl FnOnce(&[Named]) -> Vec<bool>,
) -> Option<Tables> {
    let header = Header::read(binary)?;
    let mut tables = Tables::default();
    let mut reader = Reader {
        // Many functions may refer to one list: what honest programs need is less than this.
        work: 50_000_000 + 8 * header.bytes.len() as u64,
        known: std::collections::BTreeMap::new(),
        rows: Vec::new(),
    };
    for number in 0..header.functions {
        let (Some((start, about)), Some((end, _))) = (header.function(number), header.function(number + 1))
        else {
            tables.notes.push(format!("Go's table of functions is cut off at number {number}"));
            break;
        };
        let inside =
            binary.code_at(start).is_some_and(|code| end > start && end - code.address <= code.length);
        if inside {
            reader.function(&header, (start, end), about, &mut tables);
        }
        if reader.work == 0 {
            tables
                .notes
                .push("Go's table of lines is damaged: it is longer than a program can have it".to_owned());
            break;
        }
    }
    tables.chosen = choose(&tables.names);
    for (address, file, line) in &reader.rows {
        if *line > 0 && tables.chosen.get(*file as usize).copied().unwrap_or(false) {
            tables.statements.push(Statement {
                address: *address,
                file: *file,
                line: *line,
                later: false,
                end: false,
            });
        }
    }
    tables.statements.sort_unstable();
    tables.statements.dedup();
    if whole {
        tables.rows = reader.rows;
    }
    Some(tables)
}

struct Reader {
    work: u64,
    known: std::collections::BTreeMap<u32, u32>,
    /// Address, file, line; a line of 0 where a function ends.
    rows: Vec<(u64, u32, u32)>,
}

impl Reader {
    fn function(
        &mut self,
        header: &Header<'_>,
        (start, end): (u64, u64),
        about: usize,
        tables: &mut Tables,
    ) -> Option<()> {
        // `_func`: the entry, then name, arguments, deferreturn, and the lists of stack pointers, files and lines.
        let entry = if header.wide { 8 } else { 4 };
        let field = |number: usize| u32_at(header.table, about.checked_add(entry + 4 * number)?);
        let name = demangle(Header::text_at(header.names, u64::from(field(0)?))?);
        let number = u32::try_from(tables.functions.len()).ok()?;
        tables.ranges.push((start, end));
        tables.stretches.push(Stretch { start, end, depth: 0, function: number, call: None });
        let list = |number: usize| {
            let bytes = header.values.get(usize::try_from(field(number)?).ok()?..)?;
            Some(Values { bytes, quantum: header.quantum, value: -1, end: 0, first: true })
        };
        let mut files = list(4)?;
        let unit = field(7)?;
        let (mut at, mut file, mut file_end) = (0, None, 0);
        let mut declared = Declared { name, linked: true, file: None, line: 0 };
        for (line_end, line) in list(5)? {
            let line = u32::try_from(line).unwrap_or(0);
            while at < line_end.min(end - start) {
                self.work = self.work.checked_sub(1)?;
                if at >= file_end {
                    let Some((next, index)) = files.next() else { break };
                    (file_end, file) = (next, self.file(header, unit, index, tables));
                }
                if file_end <= at {
                    continue;
                }
                let row = (start + at, file.unwrap_or(u32::MAX), if file.is_some() { line } else { 0 });
                if declared.file.is_none() && row.2 > 0 {
                    (declared.file, declared.line) = (file, line);
                }
                self.rows.push(row);
                at = line_end.min(file_end);
            }
        }
        self.rows.push((end, u32::MAX, 0));
        tables.functions.push(declared);
        Some(())
    }

    /// A file of a unit, as a place in [`Tables::names`].
    fn file(&mut self, header: &Header<'_>, unit: u32, index: i64, tables: &mut Tables) -> Option<u32> {
        let at = u64::from(unit).checked_add(u64::try_from(index).ok()?)?.checked_mul(4)?;
        let offset = u32_at(header.units, usize_of(at)?).filter(|offset| *offset != u32::MAX)?;
        if let Some(file) = self.known.get(&offset) {
            return Some(*file);
        }
        let path = Header::text_at(header.files, u64::from(offset))?;
        let number = u32::try_from(tables.names.len()).ok()?;
        tables.names.push(Named { path: normal("", &String::from_utf8_lossy(path)), md5: None });
        self.known.insert(offset, number);
        Some(number)
    }
}

/// The files as paths that can be looked for in a checkout: those of Go itself and of other modules become empty, and the module's
/// name, which stands for its directory in a build with `-trimpath`, is taken away.
pub(crate) fn own_files(binary: &Binary<'_>, names: &[Named]) -> Vec<Named> {
    let module = main_module(binary);
    let root = names.iter().find_map(|named| named.path.strip_suffix("/src/runtime/proc.go"));
    let plain = |named: &Named| {
        let path = named.path.as_str();
        let of_go =
            root.and_then(|root| path.strip_prefix(root)).is_some_and(|rest| rest.starts_with("/src/"));
        if of_go {
            return String::new();
        }
        if path.starts_with('/') {
            return path.to_owned();
        }
        match &module {
            Some(module) => {
                let rest = path.strip_prefix(module.as_str()).and_then(|rest| rest.strip_prefix('/'));
                rest.map(str::to_owned).unwrap_or_default()
            }
            // The packages of Go itself have no dot in the first part of their names.
            None if path.split('/').next().is_some_and(|first| first.contains('.')) => path.to_owned(),
            None => String::new(),
        }
    };
    names.iter().map(|named| Named { path: plain(named), md5: named.md5 }).collect()
}

/// The name of the program's own module, which `go build` writes into it (since Go 1.18 where it can be read without relocation).
fn main_module(binary: &Binary<'_>) -> Option<String> {
    let (_, bytes) = binary.raw(".go.buildinfo")?;
    // Of the two texts behind the header of 32 bytes, the second has lines of words with tabs between them.
    let text = String::from_utf8_lossy(bytes.get(32..)?);
    let line = text.split('\n').find_map(|line| line.strip_prefix("mod\t"))?;
    line.split('\t').next().map(str::to_owned)
}

//! Reading ELF files: where code is, sections (compressed or not), symbols, what leads to separate debug files.
//!
//! Files may be damaged or hostile. Headers, segments, sections and symbols are read independently of each other: one that cannot be
//! read is noted in [`Binary::damage`] and left out. Memory that a file can ask for by compression is bounded.

use std::borrow::Cow;
use std::io::Read;
use std::ops::Range;

use object::LittleEndian as LE;
use object::elf;
use object::read::elf::{FileHeader as _, ProgramHeader as _, SectionHeader as _, Sym as _};

type Header = elf::FileHeader64<LE>;

/// Bytes of one section after decompression, at most; and how many times its compressed size that may be, beside a little for small
/// ones. Debug information becomes three to ten times as large, a file made to hurt a thousand times.
const MOST_SECTION: u64 = 2 << 30;
const MOST_RATIO: u64 = 64;
const SMALL_SECTION: u64 = 16 << 20;

/// Code in memory and in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Code {
    pub address: u64,
    pub length: u64,
    pub offset: u64,
    /// Whether it is a table of jumps to other objects, or what the linker adds for the start and end of a program.
    pub glue: bool,
}

struct Section {
    name: String,
    address: u64,
    /// Where it is in the file; empty if it has no bytes there.
    place: Range<usize>,
    /// How it is compressed, and the length of its plain bytes.
    compression: Option<(Compression, u64)>,
}

#[derive(Clone, Copy)]
enum Compression {
    Zlib,
    Zstd,
}

/// A symbol of a function or a variable.
#[derive(Clone, Debug)]
pub(crate) struct Symbol<'a> {
    pub name: Cow<'a, [u8]>,
    pub address: u64,
    pub size: u64,
}

/// An ELF file for x86-64.
pub(crate) struct Binary<'a> {
    pub bytes: &'a [u8],
    sections: Vec<Section>,
    /// By rising address, apart from each other.
    pub code: Vec<Code>,
    pub build_id: Option<Vec<u8>>,
    /// `.eh_frame_hdr`'s address and bytes, as the program headers have it.
    pub frame_header: Option<(u64, Range<usize>)>,
    segments: Vec<(u64, Range<usize>)>,
    pub damage: Vec<String>,
}

impl<'a> Binary<'a> {
    /// Reads the headers.
    ///
    /// # Errors
    /// Why this is no program that could be covered.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Binary<'a>, String> {
        if !bytes.starts_with(b"\x7fELF") {
            return Err("it is no ELF file".to_owned());
        }
        let header = Header::parse(bytes).map_err(|_| "its ELF header is cut off".to_owned())?;
        let machine = header.e_machine.get(LE);
        if !header.is_supported() || !header.is_little_endian() || machine != elf::EM_X86_64 {
            return Err("it is not for x86-64".to_owned());
        }
        let mut binary = Binary {
            bytes,
            sections: Vec::new(),
            code: Vec::new(),
            build_id: None,
            frame_header: None,
            segments: Vec::new(),
            damage: Vec::new(),
        };
        let executable = binary.read_segments(header);
        let code_sections = binary.read_sections(header);
        binary.find_code(executable, code_sections);
        Ok(binary)
    }

    /// Gives the executable segments.
    fn read_segments(&mut self, header: &Header) -> Vec<Code> {
        let mut executable = Vec::new();
        let Ok(segments) = header.program_headers(LE, self.bytes) else {
            self.damage.push("the program headers lie outside of the file".to_owned());
            return executable;
        };
        for segment in segments {
            let (address, offset, length) =
                (segment.p_vaddr.get(LE), segment.p_offset.get(LE), segment.p_filesz.get(LE));
            let Some(place) = self.place(offset, length) else {
                if segment.p_type.get(LE) == elf::PT_LOAD {
                    self.damage.push(format!("a segment at {address:#x} lies outside of the file"));
                }
                continue;
            };
            match segment.p_type.get(LE) {
                elf::PT_LOAD if address.checked_add(length).is_some() => {
                    self.segments.push((address, place));
                    if segment.p_flags.get(LE).contains(elf::PF_X) {
                        executable.push(Code { address, length, offset, glue: false });
                    }
                }
                elf::PT_NOTE => {
                    if let Ok(Some(mut notes)) = segment.notes(LE, self.bytes) {
                        self.read_notes(|| notes.next());
                    }
                }
                elf::PT_GNU_EH_FRAME => self.frame_header = Some((address, place)),
                _ => {}
            }
        }
        executable
    }

    fn read_notes<'n>(
        &mut self,
        mut next: impl FnMut() -> object::read::Result<Option<object::read::elf::Note<'n, Header>>>,
    ) {
        while let Ok(Some(note)) = next() {
            if note.name() == elf::ELF_NOTE_GNU && note.n_type(LE) == elf::NT_GNU_BUILD_ID {
                self.build_id = Some(note.desc().to_vec());
            }
        }
    }

    /// Gives the sections with code.
    fn read_sections(&mut self, header: &Header) -> Vec<Code> {
        let mut code = Vec::new();
        let (bytes, none) = (self.bytes, code.clone());
        let Ok(table) = header.sections(LE, bytes) else {
            self.damage.push("the section headers lie outside of the file".to_owned());
            return none;
        };
        for section in table.iter() {
            let name = table.section_name(LE, section).unwrap_or_default();
            let name = String::from_utf8_lossy(name).into_owned();
            let (address, size) = (section.sh_addr.get(LE), section.sh_size.get(LE));
            if matches!(section.sh_type.get(LE), elf::SHT_NOBITS | elf::SHT_NULL) {
                continue;
            }
            if section.sh_type.get(LE) == elf::SHT_NOTE
                && self.build_id.is_none()
                && let Ok(Some(mut notes)) = section.notes(LE, bytes)
            {
                self.read_notes(|| notes.next());
            }
            let (mut offset, mut length) = (section.sh_offset.get(LE), size);
            let mut compression = None;
            if let Ok(Some((how, at, rest))) = section.compression(LE, bytes) {
                let kind = match how.ch_type.get(LE) {
                    elf::ELFCOMPRESS_ZLIB => Compression::Zlib,
                    elf::ELFCOMPRESS_ZSTD => Compression::Zstd,
                    other => {
                        self.damage.push(format!("{name} is compressed by an unknown method ({other})"));
                        continue;
                    }
                };
                compression = Some((kind, how.ch_size.get(LE)));
                (offset, length) = (at, rest);
            }
            let Some(mut place) = self.place(offset, length) else {
                self.damage.push(format!("section {name} lies outside of the file"));
                continue;
            };
            // The form of compression that came before SHF_COMPRESSED: "ZLIB" and the length in eight bytes, the highest first.
            let old =
                self.bytes[place.clone()].strip_prefix(b"ZLIB").and_then(|rest| rest.first_chunk::<8>());
            if let Some(plain) = old.filter(|_| name.starts_with(".zdebug")) {
                compression = Some((Compression::Zlib, u64::from_be_bytes(*plain)));
                place.start += 12;
            }
            let flags = section.sh_flags.get(LE);
            if flags.contains(elf::SHF_ALLOC | elf::SHF_EXECINSTR) && compression.is_none() {
                let glue = name.starts_with(".plt") || matches!(name.as_str(), ".init" | ".fini");
                code.push(Code { address, length, offset, glue });
            }
            self.sections.push(Section { name, address, place, compression });
        }
        code
    }

    /// Code is what a section and a segment both call executable; without sections, what a segment does.
    fn find_code(&mut self, segments: Vec<Code>, sections: Vec<Code>) {
        let inside = |code: &Code| {
            segments.iter().any(|segment| {
                let within = code.address.wrapping_sub(segment.address);
                within < segment.length
                    && code.length <= segment.length - within
                    && code.offset == segment.offset.wrapping_add(within)
            })
        };
        let mut code: Vec<Code> = sections.into_iter().filter(inside).collect();
        if code.is_empty() {
            code = segments;
        }
        code.retain(|code| code.length > 0);
        code.sort_unstable();
        let before = code.len();
        let mut end = 0;
        code.retain(|code| {
            let apart = code.address >= end;
            end = end.max(code.address + code.length);
            apart
        });
        if code.len() < before {
            self.damage.push("sections with code overlap".to_owned());
        }
        self.code = code;
    }

    fn place(&self, offset: u64, length: u64) -> Option<Range<usize>> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(length).ok()?)?;
        (end <= self.bytes.len()).then_some(start..end)
    }

    fn section(&self, name: &str) -> Option<&Section> {
        self.sections.iter().find(|section| section.name == name)
    }

    /// Whether there is a section of this name, also one without bytes of its own.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.section(name).is_some_and(|section| !section.place.is_empty())
    }

    /// The address of a section, and its bytes as they are in the file.
    pub(crate) fn raw(&self, name: &str) -> Option<(u64, &'a [u8])> {
        let section = self.section(name)?;
        Some((section.address, &self.bytes[section.place.clone()]))
    }

    /// Bytes that the program headers place at an address, to the end of their segment.
    pub(crate) fn loaded(&self, address: u64) -> Option<&'a [u8]> {
        let (start, place) = self.segments.iter().find(|(start, place)| {
            address.checked_sub(*start).is_some_and(|within| within < place.len() as u64)
        })?;
        self.bytes.get(place.start + usize::try_from(address - start).ok()?..place.end)
    }

    /// The plain bytes of a debug section: `.debug_` or, as older compilers compressed it, `.zdebug_`. Empty if there is none, or if
    /// it is damaged, which is noted.
    pub(crate) fn debug(&self, name: &str, damage: &mut Vec<String>) -> Cow<'a, [u8]> {
        let old = || self.section(&name.replacen(".debug_", ".zdebug_", 1));
        let Some(section) = self.section(name).or_else(old) else { return Cow::Borrowed(&[]) };
        let bytes = &self.bytes[section.place.clone()];
        let Some((compression, size)) = section.compression else { return Cow::Borrowed(bytes) };
        match plain(bytes, compression, size) {
            Ok(plain) => Cow::Owned(plain),
            Err(error) => {
                damage.push(format!("section {name} cannot be decompressed: {error}"));
                Cow::Borrowed(&[])
            }
        }
    }

    /// The code around an address.
    pub(crate) fn code_at(&self, address: u64) -> Option<&Code> {
        let after = self.code.partition_point(|code| code.address <= address);
        let code = self.code.get(after.checked_sub(1)?)?;
        (address - code.address < code.length).then_some(code)
    }

    /// Bytes of code from an address on, up to `end`, the end of its section or 16 bytes at least.
    pub(crate) fn instructions(&self, address: u64, end: u64) -> &'a [u8] {
        let Some(code) = self.code_at(address) else { return &[] };
        let within = address - code.address;
        let length = (code.length - within).min(end.saturating_sub(address));
        self.place(code.offset + within, length).map_or(&[], |place| &self.bytes[place])
    }

    /// Where an address is in the file.
    pub(crate) fn offset(&self, address: u64) -> Option<u64> {
        self.code_at(address).map(|code| code.offset + (address - code.address))
    }

    /// Function symbols with an address in code, of `.symtab` and `.dynsym`. With the names in the same file.
    pub(crate) fn symbols(&self) -> Vec<Symbol<'a>> {
        self.symbols_of(&[elf::STT_FUNC, elf::STT_GNU_IFUNC])
    }

    /// Symbols of variables, likewise.
    pub(crate) fn variables(&self) -> Vec<Symbol<'a>> {
        self.symbols_of(&[elf::STT_OBJECT])
    }

    fn symbols_of(&self, types: &[elf::SymbolType]) -> Vec<Symbol<'a>> {
        let mut symbols = Vec::new();
        let Ok(header) = Header::parse(self.bytes) else { return symbols };
        let Ok(sections) = header.sections(LE, self.bytes) else { return symbols };
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            let Ok(table) = sections.symbols(LE, self.bytes, kind) else { continue };
            for symbol in table.iter() {
                if !types.contains(&symbol.st_type()) || symbol.is_undefined(LE) {
                    continue;
                }
                let name = table.symbol_name(LE, symbol).unwrap_or_default();
                let (address, size) = (symbol.st_value.get(LE), symbol.st_size.get(LE));
                symbols.push(Symbol { name: Cow::Borrowed(name), address, size });
            }
        }
        symbols
    }

    /// `.gnu_debuglink`: the name of a separate debug file, and its CRC-32.
    pub(crate) fn debug_link(&self) -> Option<(String, u32)> {
        let (_, bytes) = self.raw(".gnu_debuglink")?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        let name = String::from_utf8(bytes[..end].to_vec()).ok()?;
        let checksum = bytes.get((end + 4) & !3..)?.first_chunk::<4>()?;
        Some((name, u32::from_le_bytes(*checksum)))
    }

    /// `.gnu_debugaltlink`: the path of the file that several debug files share, and its build-id.
    pub(crate) fn shared_debug_link(&self) -> Option<(String, Vec<u8>)> {
        let (_, bytes) = self.raw(".gnu_debugaltlink")?;
        let end = bytes.iter().position(|byte| *byte == 0)?;
        Some((String::from_utf8(bytes[..end].to_vec()).ok()?, bytes[end + 1..].to_vec()))
    }
}

/// Decompresses a section to the length that its header says.
fn plain(bytes: &[u8], compression: Compression, size: u64) -> Result<Vec<u8>, String> {
    let most = (bytes.len() as u64).saturating_mul(MOST_RATIO).saturating_add(SMALL_SECTION);
    if size > most.min(MOST_SECTION) {
        return Err(format!("its header says that it has {size} bytes"));
    }
    let mut plain = Vec::new();
    let read = match compression {
        Compression::Zlib => flate2::read::ZlibDecoder::new(bytes).take(size).read_to_end(&mut plain),
        Compression::Zstd => {
            let decoder =
                ruzstd::decoding::StreamingDecoder::new(bytes).map_err(|error| error.to_string())?;
            decoder.take(size).read_to_end(&mut plain)
        }
    };
    read.map_err(|error| error.to_string())?;
    if plain.len() as u64 != size {
        return Err(format!("{} bytes of {size}", plain.len()));
    }
    Ok(plain)
}

//! ELF executables (elf(5)): the headers an exec needs, parsed from bytes, nothing trusted.

use bloodhound_abi::Errno;
use object::elf::{self, FileHeader64, ProgramHeader64, SectionHeader64};
use object::{LittleEndian, pod};

/// The byte order of x86-64.
const LE: LittleEndian = LittleEndian;

/// A PT_LOAD segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// File offset.
    pub offset: u64,
    /// Virtual address.
    pub vaddr: u64,
    /// Bytes in the file.
    pub filesz: u64,
    /// Bytes in memory.
    pub memsz: u64,
    /// PF_X 1, PF_W 2, PF_R 4.
    pub flags: u32,
}

/// What an ELF header says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Elf {
    /// ET_DYN: may be loaded anywhere.
    pub dynamic: bool,
    /// Entry point, unrelocated.
    pub entry: u64,
    /// Program header table: file offset, entry size, count.
    pub phoff: u64,
    /// Number of program headers.
    pub phnum: u16,
    /// PT_LOAD segments in order.
    pub segments: Vec<Segment>,
    /// PT_INTERP's place in the file: offset, size.
    pub interp: Option<(u64, u64)>,
    /// PT_GNU_STACK asks for an executable stack.
    pub exec_stack: bool,
    /// Largest segment alignment.
    pub align: u64,
}

/// Bytes of the file that [`parse`] wants to see: the header and a generous program header table.
pub const HEAD: usize = 4096;

/// The header, if it is that of a 64-bit little-endian file.
fn header(head: &[u8]) -> Option<&FileHeader64<LittleEndian>> {
    let (header, _) = pod::from_bytes::<FileHeader64<LittleEndian>>(head).ok()?;
    let ident = &header.e_ident;
    let fits = ident.magic == elf::ELFMAG && ident.class == elf::ELFCLASS64 && ident.data == elf::ELFDATA2LSB;
    fits.then_some(header)
}

/// Parses the start of a file. ENOEXEC for anything but an x86-64 executable or shared object.
pub fn parse(head: &[u8]) -> Result<Elf, Errno> {
    const PROGRAM_HEADER: u16 = size_of::<ProgramHeader64<LittleEndian>>() as u16;
    let header = header(head).ok_or(Errno::ENOEXEC)?;
    let kind = header.e_type.get(LE);
    if !matches!(kind, elf::ET_EXEC | elf::ET_DYN)
        || header.e_machine.get(LE) != elf::EM_X86_64
        || header.e_phentsize.get(LE) != PROGRAM_HEADER
    {
        return Err(Errno::ENOEXEC);
    }
    let (phoff, phnum) = (header.e_phoff.get(LE), header.e_phnum.get(LE));
    let mut found = Elf {
        dynamic: kind == elf::ET_DYN,
        entry: header.e_entry.get(LE),
        phoff,
        phnum,
        segments: Vec::new(),
        interp: None,
        exec_stack: false,
        align: 4096,
    };
    let table = usize::try_from(phoff).ok().and_then(|at| head.get(at..)).ok_or(Errno::ENOEXEC)?;
    let (headers, _) = pod::slice_from_bytes::<ProgramHeader64<LittleEndian>>(table, usize::from(phnum))
        .map_err(|()| Errno::ENOEXEC)?;
    for entry in headers {
        match entry.p_type.get(LE) {
            elf::PT_LOAD => load_segment(entry, &mut found)?,
            elf::PT_INTERP => found.interp = Some((entry.p_offset.get(LE), entry.p_filesz.get(LE))),
            elf::PT_GNU_STACK => found.exec_stack = entry.p_flags.get(LE).0 & elf::PF_X.0 != 0,
            _ => {}
        }
    }
    let overlap = |w: &[Segment]| w[0].vaddr + w[0].memsz > w[1].vaddr;
    if found.segments.is_empty() || found.segments.windows(2).any(overlap) {
        return Err(Errno::ENOEXEC);
    }
    Ok(found)
}

/// Adds a PT_LOAD segment, which must lie within the address space and be mappable page by page.
fn load_segment(entry: &ProgramHeader64<LittleEndian>, found: &mut Elf) -> Result<(), Errno> {
    let (offset, vaddr) = (entry.p_offset.get(LE), entry.p_vaddr.get(LE));
    let (filesz, memsz, align) = (entry.p_filesz.get(LE), entry.p_memsz.get(LE), entry.p_align.get(LE));
    let end = vaddr.checked_add(memsz).ok_or(Errno::ENOEXEC)?;
    if filesz > memsz
        || offset % 4096 != vaddr % 4096
        || end > crate::mm::TASK_SIZE
        || offset.checked_add(filesz).is_none()
    {
        return Err(Errno::ENOEXEC);
    }
    if memsz > 0 {
        found.segments.push(Segment { offset, vaddr, filesz, memsz, flags: entry.p_flags.get(LE).0 });
    }
    if align.is_power_of_two() && align <= 1 << 30 {
        found.align = found.align.max(align);
    }
    Ok(())
}

/// Where a file has machine code: the places (offset, end) of its sections of instructions. `None` if it is no 64-bit ELF
/// file with sections, so that any of it may be code. `read` gives some bytes of the file, or `None` behind its end.
pub fn code_sections(read: &dyn Fn(u64, usize) -> Option<Vec<u8>>) -> Option<Vec<(u64, u64)>> {
    const ENTRY: usize = size_of::<SectionHeader64<LittleEndian>>();
    let section = |at: u64| {
        let bytes = read(at, ENTRY)?;
        pod::from_bytes::<SectionHeader64<LittleEndian>>(&bytes).ok().map(|(section, _)| *section)
    };
    let head = read(0, size_of::<FileHeader64<LittleEndian>>())?;
    let header = header(&head)?;
    let shoff = header.e_shoff.get(LE);
    if shoff == 0 || usize::from(header.e_shentsize.get(LE)) != ENTRY {
        return None;
    }
    // "If the number of entries in the section header table is larger than or equal to SHN_LORESERVE (0xff00), e_shnum holds
    // the value zero and the real number [...] is held in the sh_size member of the initial entry" (elf(5)).
    let count = match header.e_shnum.get(LE) {
        0 => section(shoff)?.sh_size.get(LE).min(1 << 20),
        count => u64::from(count),
    };
    let mut found = Vec::new();
    for n in 0..count {
        let section = section(shoff.checked_add(n * ENTRY as u64)?)?;
        // SHF_EXECINSTR: "This section contains executable machine instructions"; SHT_NOBITS occupies no space in the file.
        let code = section.sh_flags.get(LE).0 & elf::SHF_EXECINSTR.0 != 0;
        if code && section.sh_type.get(LE) != elf::SHT_NOBITS {
            let offset = section.sh_offset.get(LE);
            found.push((offset, offset.saturating_add(section.sh_size.get(LE))));
        }
    }
    (!found.is_empty()).then_some(found)
}

impl Elf {
    /// Lowest and highest page-aligned address of the image, unrelocated.
    pub fn span(&self) -> (u64, u64) {
        let low = self.segments[0].vaddr & !4095;
        let last = self.segments[self.segments.len() - 1];
        (low, (last.vaddr + last.memsz + 4095) & !4095)
    }

    /// Where the program headers are in memory, unrelocated.
    pub fn phdr_vaddr(&self) -> u64 {
        let hit = self.segments.iter().find(|s| s.offset <= self.phoff && self.phoff < s.offset + s.filesz);
        hit.map_or(0, |s| s.vaddr + (self.phoff - s.offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_what_is_not_an_elf() {
        assert_eq!(parse(b""), Err(Errno::ENOEXEC));
        assert_eq!(parse(b"#!/bin/sh\n"), Err(Errno::ENOEXEC));
        assert_eq!(parse(&[0x7f, b'E', b'L', b'F', 2, 1]), Err(Errno::ENOEXEC));
    }

    #[test]
    fn sections_of_code() {
        let section = |kind: u32, flags: u64, offset: u64, len: u64| {
            let mut entry = vec![0; 64];
            entry[4..8].copy_from_slice(&kind.to_le_bytes());
            entry[8..16].copy_from_slice(&flags.to_le_bytes());
            entry[24..32].copy_from_slice(&offset.to_le_bytes());
            entry[32..40].copy_from_slice(&len.to_le_bytes());
            entry
        };
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[40..48].copy_from_slice(&64u64.to_le_bytes());
        file[58..60].copy_from_slice(&64u16.to_le_bytes());
        file[60..62].copy_from_slice(&4u16.to_le_bytes());
        for entry in [
            section(0, 0, 0, 4),
            section(1, 6, 0x1000, 0x20),
            section(1, 2, 0x2000, 9),
            section(1, 6, 0x3000, 1),
        ] {
            file.extend(entry);
        }
        let ask = |file: &[u8]| code_sections(&|at, len| Some(file.get(at as usize..)?.get(..len)?.to_vec()));
        let code = vec![(0x1000, 0x1020), (0x3000, 0x3001)];
        assert_eq!(ask(&file), Some(code.clone()));
        // More sections than the header can count.
        let mut many = file.clone();
        many[60..62].fill(0);
        assert_eq!(ask(&many), Some(code));
        // Cut off, without sections, and no ELF file.
        assert_eq!(ask(&file[..200]), None);
        file[40..48].fill(0);
        assert_eq!(ask(&file), None);
        assert_eq!(ask(&[0; 400]), None);
        file[40..48].fill(0xff);
        assert_eq!(ask(&file[..64]), None);
    }

    #[test]
    fn no_header_of_random_bytes_panics() {
        let mut d = bloodhound_decisions::Dice::new(5);
        for _ in 0..20_000 {
            let mut head = vec![0; 512];
            d.bytes(&mut head);
            head[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, 1]);
            head[16..20].copy_from_slice(&[3, 0, 62, 0]);
            head[32..40].copy_from_slice(&64u64.to_le_bytes());
            head[54..58].copy_from_slice(&[56, 0, 4, 0]);
            if let Ok(elf) = parse(&head) {
                let (low, high) = elf.span();
                assert!(low < high);
            }
        }
    }
}

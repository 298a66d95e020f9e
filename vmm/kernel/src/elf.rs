//! ELF executables (elf(5)): the headers an exec needs, parsed from bytes, nothing trusted.

use bloodhound_abi::Errno;

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

fn u16_at(b: &[u8], at: usize) -> Result<u16, Errno> {
    Ok(u16::from_le_bytes(*b.get(at..).and_then(|b| b.first_chunk()).ok_or(Errno::ENOEXEC)?))
}

fn u32_at(b: &[u8], at: usize) -> Result<u32, Errno> {
    Ok(u32::from_le_bytes(*b.get(at..).and_then(|b| b.first_chunk()).ok_or(Errno::ENOEXEC)?))
}

fn u64_at(b: &[u8], at: usize) -> Result<u64, Errno> {
    Ok(u64::from_le_bytes(*b.get(at..).and_then(|b| b.first_chunk()).ok_or(Errno::ENOEXEC)?))
}

/// Bytes of the file that [`parse`] wants to see: the header and a generous program header table.
pub const HEAD: usize = 4096;

/// Parses the start of a file. ENOEXEC for anything but an x86-64 executable or shared object.
pub fn parse(head: &[u8]) -> Result<Elf, Errno> {
    // Magic, 64-bit, little-endian.
    if head.get(..6) != Some(&[0x7f, b'E', b'L', b'F', 2, 1]) {
        return Err(Errno::ENOEXEC);
    }
    let (kind, machine) = (u16_at(head, 16)?, u16_at(head, 18)?);
    // ET_EXEC 2, ET_DYN 3; EM_X86_64 62.
    if !matches!(kind, 2 | 3) || machine != 62 || u16_at(head, 54)? != 56 {
        return Err(Errno::ENOEXEC);
    }
    let (phoff, phnum) = (u64_at(head, 32)?, u16_at(head, 56)?);
    let mut elf = Elf {
        dynamic: kind == 3,
        entry: u64_at(head, 24)?,
        phoff,
        phnum,
        segments: Vec::new(),
        interp: None,
        exec_stack: false,
        align: 4096,
    };
    for i in 0..usize::from(phnum) {
        let at =
            usize::try_from(phoff).map_err(|_| Errno::ENOEXEC)?.checked_add(i * 56).ok_or(Errno::ENOEXEC)?;
        let (kind, flags) = (u32_at(head, at)?, u32_at(head, at + 4)?);
        let (offset, vaddr) = (u64_at(head, at + 8)?, u64_at(head, at + 16)?);
        let (filesz, memsz, align) = (u64_at(head, at + 32)?, u64_at(head, at + 40)?, u64_at(head, at + 48)?);
        match kind {
            1 => {
                let end = vaddr.checked_add(memsz).ok_or(Errno::ENOEXEC)?;
                if filesz > memsz
                    || offset % 4096 != vaddr % 4096
                    || end > crate::mm::TASK_SIZE
                    || offset.checked_add(filesz).is_none()
                {
                    return Err(Errno::ENOEXEC);
                }
                if memsz > 0 {
                    elf.segments.push(Segment { offset, vaddr, filesz, memsz, flags });
                }
                if align.is_power_of_two() && align <= 1 << 30 {
                    elf.align = elf.align.max(align);
                }
            }
            3 => elf.interp = Some((offset, filesz)),
            0x6474_e551 => elf.exec_stack = flags & 1 != 0,
            _ => {}
        }
    }
    if elf.segments.is_empty() || elf.segments.windows(2).any(|w| w[0].vaddr + w[0].memsz > w[1].vaddr) {
        return Err(Errno::ENOEXEC);
    }
    Ok(elf)
}

/// Where a file has machine code: the places (offset, end) of its sections of instructions. `None` if it is no 64-bit ELF
/// file with sections, so that any of it may be code. `read` gives some bytes of the file, or `None` behind its end.
pub fn code_sections(read: &dyn Fn(u64, usize) -> Option<Vec<u8>>) -> Option<Vec<(u64, u64)>> {
    /// SHF_EXECINSTR: "This section contains executable machine instructions"; SHT_NOBITS occupies no space in the file.
    const EXECINSTR: u64 = 4;
    const NOBITS: u32 = 8;
    const ENTRY: u64 = 64;
    let head = read(0, 64).filter(|head| head[..6] == [0x7f, b'E', b'L', b'F', 2, 1])?;
    let (shoff, size, count) = (u64_at(&head, 40).ok()?, u16_at(&head, 58).ok()?, u16_at(&head, 60).ok()?);
    if shoff == 0 || u64::from(size) != ENTRY {
        return None;
    }
    // "If the number of entries in the section header table is larger than or equal to SHN_LORESERVE (0xff00), e_shnum holds
    // the value zero and the real number [...] is held in the sh_size member of the initial entry" (elf(5)).
    let count = match count {
        0 => u64_at(&read(shoff, ENTRY as usize)?, 32).ok()?.min(1 << 20),
        count => u64::from(count),
    };
    let mut found = Vec::new();
    for n in 0..count {
        let entry = read(shoff.checked_add(n * ENTRY)?, ENTRY as usize)?;
        let (kind, flags) = (u32_at(&entry, 4).ok()?, u64_at(&entry, 8).ok()?);
        let (offset, len) = (u64_at(&entry, 24).ok()?, u64_at(&entry, 32).ok()?);
        if flags & EXECINSTR != 0 && kind != NOBITS {
            found.push((offset, offset.saturating_add(len)));
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

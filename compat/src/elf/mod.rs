//! Programs and libraries as ELF files: what they need ([`Elf`]), and which system calls their code may make ([`calls`]).

pub mod calls;

use object::Endianness;
use object::elf as raw;
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _};

/// What a file asks of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// The program that loads it (PT_INTERP); a static program has none.
    pub interpreter: Option<String>,
    /// Libraries (DT_NEEDED), in order.
    pub needed: Vec<String>,
    /// Where they are looked for before the usual places (DT_RPATH, which is not looked at if there is a DT_RUNPATH).
    pub rpath: Vec<String>,
    /// The same (DT_RUNPATH), after LD_LIBRARY_PATH.
    pub runpath: Vec<String>,
    /// Versions of symbols that it needs: of which library, and which.
    pub versions: Vec<(String, String)>,
    /// Versions that it has, if it is a library.
    pub defines: Vec<String>,
    /// It has nothing that could be loaded.
    pub is_empty: bool,
}

/// Why a file cannot run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// It is no ELF file.
    NotElf,
    /// It is for 32 bits.
    Bits32,
    /// It is for another processor: its name, or its number.
    Machine(String),
    /// It is damaged.
    Damaged(String),
}

impl std::fmt::Display for Unfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Unfit::NotElf => f.write_str("it is no ELF file"),
            Unfit::Bits32 => f.write_str("it is a program of 32 bits; only x86-64 is supported"),
            Unfit::Machine(name) => write!(f, "it is for {name}; only x86-64 is supported"),
            Unfit::Damaged(why) => write!(f, "it is damaged: {why}"),
        }
    }
}

/// An ELF file for x86-64.
pub(crate) type File<'a> = ElfFile64<'a, Endianness>;

/// Looks at the head of a file.
///
/// # Errors
/// It cannot run on x86-64.
pub(crate) fn open(bytes: &[u8]) -> Result<File<'_>, Unfit> {
    if !bytes.starts_with(b"\x7fELF") {
        return Err(Unfit::NotElf);
    }
    let machine = bytes.get(18..20).map_or(0, |two| u16::from_le_bytes([two[0], two[1]]));
    if let Some(name) = foreign(machine) {
        return Err(Unfit::Machine(name));
    }
    if bytes.get(4) == Some(&raw::ELFCLASS32.0) {
        return Err(Unfit::Bits32);
    }
    if bytes.get(5) != Some(&raw::ELFDATA2LSB.0) {
        return Err(Unfit::Machine("a big-endian processor".into()));
    }
    ElfFile64::parse(bytes).map_err(|error| Unfit::Damaged(error.to_string()))
}

/// The name of a processor that is not x86.
fn foreign(machine: u16) -> Option<String> {
    Some(match object::elf::Machine(machine) {
        raw::EM_X86_64 | raw::EM_386 => return None,
        raw::EM_AARCH64 => "64-bit ARM (arm64)".into(),
        raw::EM_ARM => "32-bit ARM".into(),
        raw::EM_RISCV => "RISC-V".into(),
        raw::EM_PPC64 => "64-bit PowerPC".into(),
        raw::EM_S390 => "S/390".into(),
        raw::EM_MIPS => "MIPS".into(),
        raw::EM_LOONGARCH => "LoongArch".into(),
        _ => format!("a processor with ELF number {machine}"),
    })
}

impl Elf {
    /// Reads what a file needs.
    ///
    /// # Errors
    /// It cannot run on x86-64.
    pub fn read(bytes: &[u8]) -> Result<Elf, Unfit> {
        let file = open(bytes)?;
        read(&file).map_err(|error| Unfit::Damaged(error.to_string()))
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn read(file: &File<'_>) -> object::Result<Elf> {
    let (endian, data) = (file.endian(), file.data());
    let header = file.elf_header();
    let mut out = Elf::default();
    for segment in header.program_headers(endian, data)? {
        use object::read::elf::ProgramHeader as _;
        if let Some(path) = segment.interpreter(endian, data)? {
            out.interpreter = Some(text(path));
        }
    }
    if header.program_headers(endian, data)?.is_empty() {
        out.is_empty = true;
    }
    let sections = header.sections(endian, data)?;
    if let Some((entries, link)) = sections.dynamic(endian, data)? {
        let strings = sections.strings(endian, data, link)?;
        for entry in entries {
            let list = |bytes: &[u8]| text(bytes).split(':').map(str::to_owned).collect();
            match entry.tag(endian) {
                raw::DT_NEEDED => out.needed.push(text(entry.string(endian, strings)?)),
                raw::DT_RPATH => out.rpath = list(entry.string(endian, strings)?),
                raw::DT_RUNPATH => out.runpath = list(entry.string(endian, strings)?),
                _ => {}
            }
        }
    }
    if let Some((mut files, link)) = sections.gnu_verneed(endian, data)? {
        let strings = sections.strings(endian, data, link)?;
        while let Some((needed, mut versions)) = files.next()? {
            let library = text(needed.file(endian, strings)?);
            while let Some(version) = versions.next()? {
                let is_weak = version.vna_flags.get(endian).0 & raw::VER_FLG_WEAK.0 != 0;
                if !is_weak {
                    out.versions.push((library.clone(), text(version.name(endian, strings)?)));
                }
            }
        }
    }
    if let Some((mut versions, link)) = sections.gnu_verdef(endian, data)? {
        let strings = sections.strings(endian, data, link)?;
        while let Some((_, mut names)) = versions.next()? {
            if let Some(name) = names.next()? {
                out.defines.push(text(name.name(endian, strings)?));
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_processors_are_named() {
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(64, 0);
        file[18] = 183;
        assert_eq!(Elf::read(&file), Err(Unfit::Machine("64-bit ARM (arm64)".into())));
        (file[4], file[18]) = (1, 3);
        assert_eq!(Elf::read(&file), Err(Unfit::Bits32));
        assert_eq!(Elf::read(b"#!/bin/sh\n"), Err(Unfit::NotElf));
        (file[4], file[18]) = (2, 62);
        assert!(Elf::read(&file).expect("x86-64").is_empty);
        assert!(matches!(Elf::read(&file[..40]), Err(Unfit::Damaged(_))));
    }

    #[test]
    fn the_test_program_needs_a_c_library() {
        let bytes = std::fs::read(std::env::current_exe().expect("a program")).expect("its file");
        let elf = Elf::read(&bytes).expect("x86-64");
        assert!(elf.interpreter.as_deref().is_some_and(|path| path.contains("ld")), "{elf:?}");
        assert!(elf.needed.iter().any(|name| name.starts_with("libc.")), "{elf:?}");
        assert!(elf.versions.iter().any(|(_, version)| version.starts_with("GLIBC_2.")), "{elf:?}");
    }
}

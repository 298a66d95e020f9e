//! Which files that services execute are worth a look: a file is read as a whole only if it may have what is counted.

use bloodhound_config::config::{Coverage, CoverageUnit};
use bloodhound_coverage::{NotMeasured, Pattern};
use bloodhound_vfs::FileImage;

/// Sections that say from which lines code was made, or where another file has them.
const TABLES: &[&[u8]] =
    &[b".debug_line", b".zdebug_line", b".gopclntab", b".data.rel.ro.gopclntab", b".gnu_debuglink"];
/// More sections than this are none of a compiler's.
const MOST_SECTIONS: u64 = 65_535;

/// Whether a path is that of a shared library or of the dynamic linker.
pub fn is_library(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.ends_with(".so") || name.contains(".so.")
}

/// If a program is a well-known interpreter: what collects coverage of the code that it runs.
pub fn interpreter(path: &str) -> Option<NotMeasured> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let collect = match name {
        "python" | "pypy" => "collect: python",
        "node" | "nodejs" => "collect: node",
        "java" => "collect: {jacoco: /path/of/report.xml}",
        "ruby" | "perl" | "php" | "php-fpm" | "beam.smp" | "dotnet" | "deno" | "bun" => {
            "collect: {lcov: /path} or {cobertura: /path}, of a file that its own tools write"
        }
        _ => return None,
    };
    let reason = "it is an interpreter, whose machine code says nothing of what it runs".to_owned();
    Some(NotMeasured { reason, hint: format!("write `{collect}` for the service in coverage.services") })
}

/// Whether a pattern of the configuration is about binaries: it begins at the root of a service's files.
pub fn is_binary(pattern: &str) -> bool {
    pattern.starts_with('/')
}

/// Whether a binary is named by one of the patterns.
fn names(patterns: &[String], path: &str) -> bool {
    let binaries = patterns.iter().filter(|text| is_binary(text)).filter_map(|text| Pattern::new(text).ok());
    binaries.into_iter().any(|pattern| pattern.matches(path.trim_start_matches('/')))
}

/// Reads a file as a whole.
pub fn read(image: &FileImage) -> Vec<u8> {
    let mut bytes = vec![0; image.size() as usize];
    image.read(0, &mut bytes);
    bytes
}

/// Whether a file may have something that is counted; if not, why.
///
/// # Errors
/// See above.
pub fn worth_reading(
    image: &FileImage,
    path: &str,
    unit: CoverageUnit,
    config: &Coverage,
) -> Result<(), NotMeasured> {
    let none = |reason: &str, hint: &str| NotMeasured { reason: reason.to_owned(), hint: hint.to_owned() };
    if names(&config.exclude, path) {
        return Err(none("coverage.exclude names it", "take it out of the list"));
    }
    if unit != CoverageUnit::Lines {
        // Without lines nothing says whose code a library is.
        let named = names(&config.include, path);
        return match named || !is_library(path) {
            true => Ok(()),
            false => Err(none("it is a library", "name it in coverage.include")),
        };
    }
    // Of a program it is worth saying why nothing of it is counted; of the many libraries of a service it is not.
    match !is_library(path) || has_tables(image) {
        true => Ok(()),
        false => Err(none("it is a library without line tables", "build it with -g")),
    }
}

/// Whether a file is in the ELF format and has one of the sections.
fn has_tables(image: &FileImage) -> bool {
    sections_have_tables(image).unwrap_or(false)
}

/// `None`: it is too short for what its header says.
fn sections_have_tables(image: &FileImage) -> Option<bool> {
    let read = |at: u64, len: usize| -> Option<Vec<u8>> {
        let fits = at.checked_add(len as u64).is_some_and(|end| end <= image.size());
        fits.then(|| {
            let mut out = vec![0; len];
            image.read(at, &mut out);
            out
        })
    };
    let number = |bytes: &[u8], at: usize, len: usize| {
        bytes[at..at + len].iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    // System V ABI, chapter 4: e_shoff at 40, e_shentsize at 58, e_shnum at 60, e_shstrndx at 62.
    let header = read(0, 64).filter(|header| header.starts_with(b"\x7fELF\x02"))?;
    let (at, size) = (number(&header, 40, 8), number(&header, 58, 2));
    let (count, names) = (number(&header, 60, 2), number(&header, 62, 2));
    if size < 64 || count == 0 || count > MOST_SECTIONS || names >= count {
        return Some(false);
    }
    let sections = read(at, (count * size) as usize)?;
    let section = |index: u64| &sections[(index * size) as usize..][..64];
    let strings = section(names);
    let (from, len) = (number(strings, 24, 8), number(strings, 32, 8));
    let strings = read(from, usize::try_from(len.min(1 << 20)).ok()?)?;
    Some((0..count).any(|index| {
        let name = strings.get(number(section(index), 0, 4) as usize..).unwrap_or_default();
        TABLES.iter().any(|table| name.strip_prefix(*table).is_some_and(|rest| rest.first() == Some(&0)))
    }))
}

//! The coverage mapping of a program: which counters of which functions stand for which source.
//!
//! `__llvm_covmap` has lists of files, `__llvm_covfun` a record for each function, `__llvm_prf_names` the names of functions.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

use md5::{Digest, Md5};

use super::bytes::Bytes;
use super::function::Mapped;
use super::profile::{Function, Profile};
use super::regions::{Region, lines};
use crate::elf::Binary;
use crate::read::Report;

/// Versions of the mapping that are known: LLVM 11 to 22. The number in the file is one less than that of the documentation.
const VERSIONS: std::ops::RangeInclusive<u32> = 3..=6;
/// From this one on the first file of a list is the directory of the compilation (version 6).
const WITH_DIRECTORY: u32 = 5;
/// What compression may make of a byte, at most.
const MOST_RATIO: u64 = 1100;
/// Lines of all files, at most: more are damage.
const MOST_LINES: u64 = 16_000_000;

/// What a program says of its counters.
#[derive(Clone, Debug, Default)]
pub struct Mapping {
    build_id: Option<Vec<u8>>,
    files: Vec<String>,
    functions: Vec<Named>,
}

/// A function with its hashes and regions. The places of its files are those in [`Mapping::files`].
#[derive(Clone, Debug)]
struct Named {
    function: Function,
    name: Option<String>,
    mapped: Mapped,
}

/// Lists of files by the hash of their encoded bytes.
type Lists = BTreeMap<u64, Vec<u32>>;

impl Mapping {
    /// Reads the mapping of a program or a library, given whole.
    ///
    /// # Errors
    /// What is wrong with it, and where; above all that it was not built with coverage.
    pub fn read(program: &[u8]) -> Result<Mapping, String> {
        let binary = Binary::read(program)?;
        let section = |name: &str| binary.raw(name).map(|(_, bytes)| bytes).filter(|bytes| !bytes.is_empty());
        let (Some(lists), Some(functions)) = (section("__llvm_covmap"), section("__llvm_covfun")) else {
            return Err("it has no coverage mapping of LLVM (__llvm_covmap, __llvm_covfun): build it with \
                        -fprofile-instr-generate -fcoverage-mapping (clang) or -C instrument-coverage (rustc), and do not strip it"
                .to_owned());
        };
        let mut mapping = Mapping { build_id: binary.build_id.clone(), ..Mapping::default() };
        let lists = mapping.lists(Bytes::new(lists, "__llvm_covmap"))?;
        let names = names(Bytes::new(section("__llvm_prf_names").unwrap_or_default(), "__llvm_prf_names"))?;
        mapping.read_functions(Bytes::new(functions, "__llvm_covfun"), &lists, &names)?;
        Ok(mapping)
    }

    /// Whether a profile is of this program, as far as both tell: a profile may name libraries as well.
    pub fn is_of(&self, profile: &Profile) -> bool {
        match &self.build_id {
            Some(own) => profile.build_ids.is_empty() || profile.build_ids.contains(own),
            None => true,
        }
    }

    /// The lists of files: a header and a list for each unit of the compilation.
    fn lists(&mut self, mut bytes: Bytes<'_>) -> Result<Lists, String> {
        let mut lists = Lists::new();
        let mut known: BTreeMap<String, u32> = BTreeMap::new();
        // What is left at the end of the section may be less than a header.
        while bytes.rest().len() >= 16 {
            let records = bytes.u32()?;
            let length = bytes.u32()?;
            let mapped = bytes.u32()?;
            let version = bytes.u32()?;
            if (records, mapped) != (0, 0) || !VERSIONS.contains(&version) {
                let told = u64::from(version) + 1;
                return Err(bytes.wrong(&format!(
                    "coverage mappings of LLVM have version 4 to 7 (LLVM 11 to 22) to be read, not {told},"
                )));
            }
            let list = bytes.take(u64::from(length))?;
            let names = files(Bytes::new(list, "files of __llvm_covmap"), version)?;
            let numbers = names.into_iter().map(|name| {
                let next = u32::try_from(self.files.len()).unwrap_or(u32::MAX);
                *known.entry(name).or_insert_with_key(|name| {
                    self.files.push(name.clone());
                    next
                })
            });
            lists.insert(hash(list), numbers.collect());
            bytes.align();
        }
        Ok(lists)
    }

    /// A record for each function, also of those that the compiler has left out. Functions that several units have are told by each.
    fn read_functions(
        &mut self,
        mut bytes: Bytes<'_>,
        lists: &Lists,
        names: &BTreeMap<u64, String>,
    ) -> Result<(), String> {
        let mut known: BTreeMap<u64, usize> = BTreeMap::new();
        while bytes.rest().len() >= 28 {
            let name = bytes.u64()?;
            let length = bytes.u32()?;
            let (shape, list) = (bytes.u64()?, bytes.u64()?);
            let own = bytes.take(u64::from(length))?;
            bytes.align();
            // A unit that has no copy of the function says so with a region that nothing counts.
            let previous = known.get(&name).copied();
            if previous.is_some_and(|at| self.functions[at].function.1 != 0 || shape == 0) {
                continue;
            }
            let Some(list) = lists.get(&list) else {
                return Err(bytes.wrong("a function refers to a list of files that is not there,"));
            };
            let mapped = Mapped::read(Bytes::new(own, "a function of __llvm_covfun"), list)?;
            let named = Named { function: (name, shape), name: names.get(&name).cloned(), mapped };
            match previous {
                Some(at) => self.functions[at] = named,
                None => {
                    known.insert(name, self.functions.len());
                    self.functions.push(named);
                }
            }
        }
        Ok(())
    }

    /// What a profile says of the source: lines of the files for which `wanted` says so.
    ///
    /// # Errors
    /// The mapping is damaged.
    pub fn report(&self, profile: &Profile, wanted: &dyn Fn(&str) -> bool) -> Result<Report, String> {
        let wanted: Vec<bool> = self.files.iter().map(|name| wanted(name)).collect();
        let mut files: BTreeMap<u32, Vec<Region>> = BTreeMap::new();
        let mut report = Report::default();
        let names: BTreeSet<u64> = profile.counters.keys().map(|(name, _)| *name).collect();
        for Named { function, name, mapped } in &self.functions {
            let counters = match profile.counters.get(function) {
                Some(counters) => &counters[..],
                // A function of the same name and another shape is that of another build: what was counted is not known.
                None if names.contains(&function.0) => continue,
                None => &[],
            };
            let counted: Vec<(u32, Region)> = mapped.counted(counters).collect();
            for (file, region) in counted.iter().filter(|(file, _)| wanted[*file as usize]) {
                files.entry(*file).or_default().push(*region);
            }
            if let (Some(name), Some((file, first))) = (name, counted.first())
                && wanted[*file as usize]
            {
                let line = u64::from(first.start.0);
                report.file(&self.files[*file as usize]).function(line, name, first.count > 0);
            }
        }
        let mut all = 0_u64;
        for (file, regions) in files {
            let lines = |region: &Region| u64::from(region.end.0 - region.start.0);
            all += regions.iter().map(lines).max().unwrap_or(0);
            if all > MOST_LINES {
                return Err(format!("the coverage mapping has more than {MOST_LINES} lines"));
            }
            let file = report.file(&self.files[file as usize]);
            for (line, ran) in self::lines(regions) {
                file.line(u64::from(line), ran);
            }
        }
        Ok(report)
    }
}

/// The names of files of one unit.
fn files(mut bytes: Bytes<'_>, version: u32) -> Result<Vec<String>, String> {
    let count = bytes.leb()?;
    let plain = chunk(&mut bytes)?;
    let mut bytes = Bytes::new(&plain, "files of __llvm_covmap");
    let mut names: Vec<String> = Vec::new();
    for _ in 0..count {
        let length = bytes.leb()?;
        let name = String::from_utf8_lossy(bytes.take(length)?).into_owned();
        let directory = names.first().filter(|_| version >= WITH_DIRECTORY && !name.starts_with('/'));
        names.push(match directory {
            Some(directory) => crate::checkout::normal(directory, &name),
            None => name,
        });
    }
    Ok(names)
}

/// Bytes that may be compressed: their length, that of the compressed ones (0 if they are not), and either of them.
fn chunk(bytes: &mut Bytes<'_>) -> Result<Vec<u8>, String> {
    let (plain, compressed) = (bytes.leb()?, bytes.leb()?);
    if compressed == 0 {
        return Ok(bytes.take(plain)?.to_vec());
    }
    if plain / MOST_RATIO > compressed {
        return Err(bytes.wrong(&format!("{compressed} bytes cannot become {plain}")));
    }
    let mut out = Vec::new();
    let decoder = flate2::read::ZlibDecoder::new(bytes.take(compressed)?);
    let read = decoder.take(plain).read_to_end(&mut out);
    let whole = read.is_ok() && out.len() as u64 == plain;
    whole.then_some(out).ok_or_else(|| bytes.wrong("what is compressed is damaged,"))
}

/// The names of functions, by their hash.
fn names(mut bytes: Bytes<'_>) -> Result<BTreeMap<u64, String>, String> {
    let mut names = BTreeMap::new();
    while !bytes.is_empty() {
        // The linker fills up with zeros between the names of two units.
        if bytes.rest()[0] == 0 {
            bytes.take(1)?;
            continue;
        }
        let list = chunk(&mut bytes)?;
        for name in list.split(|byte| *byte == 1) {
            // A function that only its file sees has the file's name before its own.
            let own = name.rsplit(|byte| matches!(byte, b':' | b';')).next().unwrap_or(name);
            names.insert(hash(name), crate::names::demangle(own));
        }
    }
    Ok(names)
}

/// The hash by which LLVM refers to names and lists: the first eight bytes of the MD5 digest.
fn hash(bytes: &[u8]) -> u64 {
    let digest = Md5::digest(bytes);
    digest.iter().take(8).rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

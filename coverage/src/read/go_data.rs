//! The binary files of `GOCOVERDIR`, which a program built with `go build -cover` writes: `covmeta.*` says what there is, `covcounters.*` of
//! each process what ran. The formats are described in Go's source, `internal/coverage/defs.go`.

use std::collections::BTreeMap;

use super::Report;
use super::go::Block;

/// How the files begin.
const META: &[u8] = b"\0cvm";
const COUNTERS: &[u8] = b"\0cwm";
/// The version of both formats that is read.
const VERSION: u32 = 1;
/// Sizes of headers, and of what ends a segment.
const META_HEADER: usize = 56;
const PACKAGE_HEADER: usize = 44;
const COUNTER_HEADER: usize = 32;
const FOOTER: usize = 16;
/// `CtrGranularityPerFunc`: a function has one counter.
const PER_FUNCTION: u8 = 2;
/// `CtrRaw`: numbers have four bytes each; otherwise they are in LEB128.
const RAW: u8 = 1;
/// More of anything than this is damage.
const MOST: u64 = 1 << 24;

/// Whether a file is one of these.
pub(super) fn is(bytes: &[u8]) -> bool {
    bytes.starts_with(META) || bytes.starts_with(COUNTERS)
}

/// Reads the files of a directory: those of several programs, in any order.
pub(super) fn read(files: &[&[u8]]) -> Result<Report, String> {
    let mut programs: BTreeMap<[u8; 16], Program> = BTreeMap::new();
    for bytes in files.iter().filter(|bytes| bytes.starts_with(META)) {
        let (hash, program) = meta(bytes).ok_or("a covmeta file is damaged, or of another version than 1")?;
        programs.insert(hash, program);
    }
    for bytes in files.iter().filter(|bytes| bytes.starts_with(COUNTERS)) {
        let wrong = "a covcounters file is damaged, or of another version than 1";
        let hash: [u8; 16] = bytes.get(8..24).and_then(|hash| hash.try_into().ok()).ok_or(wrong)?;
        let program = programs.get_mut(&hash).ok_or("there is no covmeta file to a covcounters file")?;
        counters(bytes, program).ok_or(wrong)?;
    }
    let mut report = Report::default();
    for function in programs.into_values().flat_map(|program| program.functions.into_values()) {
        let file = report.file(&function.file);
        let first = function.blocks.iter().map(|block| block.first).min();
        let ran = function.blocks.iter().any(|block| block.covered);
        for block in &function.blocks {
            block.add(file);
        }
        // A function literal has no name that anybody has written.
        if let Some(first) = first.filter(|_| !function.literal) {
            file.function(first, &function.name, ran);
        }
    }
    Ok(report)
}

struct Program {
    /// By package and place in it.
    functions: BTreeMap<(u32, u32), Function>,
    /// Each function has one counter.
    per_function: bool,
}

struct Function {
    name: String,
    file: String,
    literal: bool,
    blocks: Vec<Block>,
}

/// Reads numbers one after the other.
struct Cursor<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Cursor<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let piece = self.bytes.get(self.at..self.at.checked_add(count)?)?;
        self.at += count;
        Some(piece)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.try_into().ok().map(u64::from_le_bytes)
    }

    fn leb128(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0_u64, 0_u32);
        loop {
            let byte = self.u8()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
            shift += 7;
        }
    }

    /// A number that counts what follows.
    fn count(&mut self) -> Option<u64> {
        self.leb128().filter(|count| *count <= MOST)
    }

    /// A table of strings: how many, then each with its length.
    fn strings(&mut self) -> Option<Vec<String>> {
        let count = self.count()?;
        let one = |_| {
            let len = usize::try_from(self.count()?).ok()?;
            Some(String::from_utf8_lossy(self.take(len)?).into_owned())
        };
        (0..count).map(one).collect()
    }
}

/// The hash of a covmeta file, by which counters name it, and what is in it.
fn meta(bytes: &[u8]) -> Option<([u8; 16], Program)> {
    let mut header = Cursor { bytes, at: META.len() };
    let version = header.u32()?;
    let (_, packages) = (header.u64()?, header.u64()?);
    let hash: [u8; 16] = header.take(16)?.try_into().ok()?;
    let granularity = *bytes.get(49)?;
    if version > VERSION || packages > MOST {
        return None;
    }
    let table = |index: u64| -> Option<usize> {
        let at = META_HEADER.checked_add(usize::try_from(index).ok()?.checked_mul(8)?)?;
        usize::try_from(Cursor { bytes, at }.u64()?).ok()
    };
    let mut program = Program { functions: BTreeMap::new(), per_function: granularity == PER_FUNCTION };
    for package in 0..packages {
        let (at, len) = (table(package)?, table(packages + package)?);
        let blob = bytes.get(at..at.checked_add(len)?)?;
        let number = u32::try_from(package).ok()?;
        for (index, function) in (0..).zip(functions(blob)?) {
            program.functions.insert((number, index), function);
        }
    }
    Some((hash, program))
}

/// The functions of a package.
fn functions(blob: &[u8]) -> Option<Vec<Function>> {
    let count = Cursor { bytes: blob, at: 40 }.u32()?;
    let offsets = usize::try_from(count).ok().filter(|count| *count <= blob.len())?;
    let strings = Cursor { bytes: blob, at: PACKAGE_HEADER + 4 * offsets }.strings()?;
    let string = |index: u64| strings.get(usize::try_from(index).ok()?).cloned();
    let function = |index: usize| {
        let at = Cursor { bytes: blob, at: PACKAGE_HEADER + 4 * index }.u32()? as usize;
        let mut cursor = Cursor { bytes: blob, at };
        let (units, name, file) = (cursor.count()?, cursor.leb128()?, cursor.leb128()?);
        let unit = |_| {
            let mut next = || cursor.leb128();
            let (first, _, last, column, _) = (next()?, next()?, next()?, next()?, next()?);
            Block::new(first, last, column)
        };
        let blocks: Vec<Block> = (0..units).map(unit).collect::<Option<_>>()?;
        let literal = cursor.leb128()? != 0;
        Some(Function { name: string(name)?, file: string(file)?, literal, blocks })
    };
    (0..offsets).map(function).collect()
}

/// Marks what the counters of a process say ran.
fn counters(bytes: &[u8], program: &mut Program) -> Option<()> {
    let version = Cursor { bytes, at: COUNTERS.len() }.u32()?;
    let (raw, big_endian) = (*bytes.get(24)? == RAW, *bytes.get(25)? != 0);
    if version > VERSION || big_endian {
        return None;
    }
    let end = bytes.len().checked_sub(FOOTER)?;
    if !bytes[end..].starts_with(COUNTERS) {
        return None;
    }
    let segments = Cursor { bytes, at: end + 8 }.u32()?;
    let mut cursor = Cursor { bytes, at: COUNTER_HEADER };
    for _ in 0..segments {
        let (functions, strings, arguments) = (cursor.u64()?, cursor.u32()?, cursor.u32()?);
        cursor.take(strings as usize)?;
        cursor.take(arguments as usize)?;
        // "padding bytes to bring the byte size of the preamble up to a multiple of 4".
        cursor.at = cursor.at.checked_next_multiple_of(4)?;
        for _ in 0..functions {
            let mut next = || if raw { cursor.u32().map(u64::from) } else { cursor.leb128() };
            let (count, package, index) = (next()?, next()?, next()?);
            let key = (u32::try_from(package).ok()?, u32::try_from(index).ok()?);
            let mut function = program.functions.get_mut(&key);
            for number in 0..Some(count).filter(|count| *count <= MOST)? {
                let ran = next()? > 0;
                let Some(function) = &mut function else { continue };
                let blocks = match program.per_function {
                    true => &mut function.blocks[..],
                    false => {
                        function.blocks.get_mut(number as usize).map(std::slice::from_mut).unwrap_or_default()
                    }
                };
                blocks.iter_mut().for_each(|block| block.covered |= ran);
            }
        }
        cursor.take(FOOTER)?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The package of the example in Go's `internal/coverage/defs.go`.
    fn package() -> Vec<u8> {
        let mut blob = Vec::new();
        let functions: [&[u8]; 2] = [
            // Units, name, file; then first line and column, last line and column, statements; no literal.
            &[3, 1, 0, 6, 2, 8, 12, 2, 8, 12, 10, 3, 1, 11, 2, 11, 27, 1, 0],
            &[1, 2, 0, 15, 2, 19, 14, 5, 0],
        ];
        let strings = b"\x03\x12example.org/p/p.go\x05small\x06Medium";
        blob.extend(0_u32.to_le_bytes());
        blob.extend([0; 36]);
        blob.extend(2_u32.to_le_bytes());
        let mut at = PACKAGE_HEADER + 8 + strings.len();
        for function in functions {
            blob.extend((at as u32).to_le_bytes());
            at += function.len();
        }
        blob.extend(strings);
        functions.iter().for_each(|function| blob.extend(*function));
        let len = blob.len() as u32;
        blob[..4].copy_from_slice(&len.to_le_bytes());
        blob
    }

    fn meta_file(granularity: u8) -> Vec<u8> {
        let blob = package();
        let mut bytes = META.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(((META_HEADER + 16 + blob.len()) as u64).to_le_bytes());
        bytes.extend(1_u64.to_le_bytes());
        bytes.extend([7; 16]);
        bytes.extend([0; 8]);
        bytes.extend([1, granularity, 0, 0, 0, 0, 0, 0]);
        bytes.extend(((META_HEADER + 16) as u64).to_le_bytes());
        bytes.extend((blob.len() as u64).to_le_bytes());
        bytes.extend(blob);
        bytes
    }

    fn counter_file(raw: bool, values: &[u32]) -> Vec<u8> {
        let mut bytes = COUNTERS.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([7; 16]);
        bytes.extend([if raw { RAW } else { 2 }, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(1_u64.to_le_bytes());
        bytes.extend(2_u32.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        // A table with one empty string, no arguments, and padding.
        bytes.extend([1, 0, 0, 0]);
        for value in values {
            match raw {
                true => bytes.extend(value.to_le_bytes()),
                false => bytes.push(*value as u8),
            }
        }
        bytes.extend(COUNTERS);
        bytes.extend([0; 4]);
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend([0; 4]);
        bytes
    }

    fn lines(files: &[&[u8]]) -> Vec<(u32, bool)> {
        let report = read(files).expect("a report");
        report.files["example.org/p/p.go"].lines.iter().map(|(line, ran)| (*line, *ran)).collect()
    }

    #[test]
    fn counters_are_those_of_blocks() {
        let meta = meta_file(1);
        // Three counters of function 0 in package 0.
        for (raw, values) in [(true, [3, 0, 0, 5, 0, 1]), (false, [3, 0, 0, 5, 0, 1])] {
            let counters = counter_file(raw, &values);
            let expected = [(6, true), (7, true), (8, true), (9, false), (10, false), (11, true)];
            let all = lines(&[&counters, &meta]);
            assert_eq!(all[..6], expected);
            assert_eq!(all[6..].iter().filter(|(_, ran)| *ran).count(), 0);
            let report = read(&[&meta, &counters]).expect("a report");
            let functions: Vec<_> =
                report.files["example.org/p/p.go"].functions.clone().into_iter().collect();
            assert_eq!(functions, [((6, "small".to_owned()), true), ((15, "Medium".to_owned()), false)]);
        }
        assert!(lines(&[&meta]).iter().all(|(_, ran)| !ran));
        assert!(
            lines(&[&meta_file(PER_FUNCTION), &counter_file(true, &[1, 0, 0, 1])])[..6]
                .iter()
                .all(|(_, ran)| *ran)
        );
    }

    #[test]
    fn damage_is_told() {
        let (meta, counters) = (meta_file(1), counter_file(true, &[3, 0, 0, 5, 0, 1]));
        assert!(read(&[&counters]).unwrap_err().contains("no covmeta"));
        for end in META.len()..meta.len() {
            assert!(read(&[&meta[..end]]).is_err(), "{end}");
        }
        for end in COUNTERS.len()..counters.len() {
            assert!(read(&[&meta, &counters[..end]]).is_err(), "{end}");
        }
        for at in META.len()..meta.len() {
            let mut other = meta.clone();
            other[at] = 0xff;
            let _any = read(&[&other, &counters]);
        }
        for at in COUNTERS.len()..counters.len() {
            let mut other = counters.clone();
            other[at] = 0xff;
            let _any = read(&[&meta, &other]);
        }
    }
}

//! Raw profiles: what a program wrote of its counters (`LLVM_PROFILE_FILE`), at its end or, in continuous mode (`%c`), all the time.
//!
//! The layout is that of `INSTR_PROF_RAW_HEADER` and `INSTR_PROF_DATA` in LLVM's InstrProfData.inc: a header, the build-ids of the program,
//! a record for each function, and the counters.

use std::collections::BTreeMap;

use super::bytes::Bytes;

/// "\xfflprofr\x81", as a number of little-endian processors.
const MAGIC: u64 = 0xff6c_7072_6f66_7281;
/// Versions that are known: LLVM 14 to 22.
const VERSIONS: std::ops::RangeInclusive<u64> = 8..=10;
/// The version is in the lower bits, what was instrumented above (`VARIANT_MASKS_ALL`).
const VERSION_BITS: u64 = 0x00ff_ffff_ffff_ffff;
/// Counters are bytes: 0xff where control has not come (`VARIANT_MASK_BYTE_COVERAGE`).
const BYTE_COUNTERS: u64 = 1 << 60;

/// A function in a profile, by the hash of its name and that of its shape.
pub(super) type Function = (u64, u64);

/// Counters of a program, summed up over its runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The build-ids of the program and its libraries, if it tells them.
    pub build_ids: Vec<Vec<u8>>,
    pub(super) counters: BTreeMap<Function, Vec<u64>>,
}

/// What is read of the header.
struct Header {
    version: u64,
    functions: u64,
    /// Bytes between the records and the counters.
    gap: u64,
    counters: u64,
    /// Bytes of a counter.
    width: u64,
    /// From the first record to the counters.
    delta: u64,
}

impl Profile {
    /// Whether a file begins as raw profiles do.
    pub fn is_one(bytes: &[u8]) -> bool {
        bytes.starts_with(&MAGIC.to_le_bytes())
    }

    /// Reads a raw profile.
    ///
    /// # Errors
    /// What is wrong with it, and where. A file of a process that ended before it had written its profile is one.
    pub fn read(bytes: &[u8]) -> Result<Profile, String> {
        let mut bytes = Bytes::new(bytes, "raw profile of LLVM");
        let mut profile = Profile::default();
        let header = profile.header(&mut bytes)?;
        // Version 9 added the bitmap of MC/DC, version 10 kinds of values.
        let record = match header.version {
            8 => 48,
            _ => 64,
        };
        let all =
            header.functions.checked_mul(record).ok_or_else(|| bytes.wrong("it has too many functions"))?;
        let mut records = Bytes::new(bytes.take(all)?, "functions of a raw profile of LLVM");
        bytes.take(header.gap)?;
        let length = header.counters.checked_mul(header.width);
        let counters = bytes.take(length.ok_or_else(|| bytes.wrong("it has too many counters"))?)?;
        let mut delta = header.delta;
        while !records.is_empty() {
            profile.function(&mut records, &header, counters, delta)?;
            // The place of a function's counters is told from its record on.
            delta = delta.wrapping_sub(record);
        }
        Ok(profile)
    }

    fn header(&mut self, bytes: &mut Bytes<'_>) -> Result<Header, String> {
        if bytes.u64()? != MAGIC {
            return Err("it is no raw profile of LLVM for a 64-bit little-endian processor".to_owned());
        }
        let kind = bytes.u64()?;
        let version = kind & VERSION_BITS;
        if !VERSIONS.contains(&version) {
            return Err(format!(
                "raw profiles of LLVM have version 8 to 10 (LLVM 14 to 22) to be read, this one has {version}: give \
                 `llvm-cov export -format=lcov` instead"
            ));
        }
        let ids = bytes.u64()?;
        let functions = bytes.u64()?;
        let gap = bytes.u64()?;
        let counters = bytes.u64()?;
        bytes.u64()?; // padding behind the counters
        if version >= 9 {
            bytes.u64()?; // the bitmap, and padding behind it
            bytes.u64()?;
        }
        bytes.u64()?; // length of names
        let delta = bytes.u64()?;
        if version >= 9 {
            bytes.u64()?; // from the records to the bitmap
        }
        bytes.u64()?; // address of names
        if version >= 10 {
            bytes.u64()?; // virtual tables and their names
            bytes.u64()?;
        }
        bytes.u64()?; // the last kind of values
        let mut ids = Bytes::new(bytes.take(ids)?, "build-ids of a raw profile of LLVM");
        while !ids.is_empty() {
            let length = ids.u64()?;
            self.build_ids.push(ids.take(length)?.to_vec());
            ids.align();
        }
        let width = if kind & BYTE_COUNTERS == 0 { 8 } else { 1 };
        Ok(Header { version, functions, gap, counters, width, delta })
    }

    fn function(
        &mut self,
        records: &mut Bytes<'_>,
        header: &Header,
        counters: &[u8],
        delta: u64,
    ) -> Result<(), String> {
        let function = (records.u64()?, records.u64()?);
        let place = records.u64()?.wrapping_sub(delta);
        if header.version >= 9 {
            records.u64()?; // its bitmap
        }
        records.u64()?; // the function and its values
        records.u64()?;
        let count = u64::from(records.u32()?);
        // Two kinds of values before version 10, three from then on; the bitmap's length; padding to eight bytes.
        let kinds = if header.version >= 10 { 3 } else { 2 };
        for _ in 0..kinds {
            records.u16()?;
        }
        if header.version >= 9 {
            records.take(if kinds == 2 { 0 } else { 2 })?;
            records.u32()?;
        }
        records.align();
        let start = usize::try_from(place).ok();
        let length = usize::try_from(count * header.width).ok();
        let own =
            start.zip(length).and_then(|(start, length)| counters.get(start..start.checked_add(length)?));
        let own = own.ok_or_else(|| {
            records.wrong("the counters of a function lie outside of the profile's, by the record that ends")
        })?;
        let counts = self.counters.entry(function).or_default();
        counts.resize(counts.len().max(own.len() / header.width as usize), 0);
        for (count, bytes) in counts.iter_mut().zip(own.chunks(header.width as usize)) {
            let more = match bytes {
                [byte] => u64::from(*byte != 0xff),
                _ => bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
            };
            *count = count.saturating_add(more);
        }
        Ok(())
    }

    /// Adds the counters of another run of the program.
    pub fn join(&mut self, other: &Profile) {
        for (function, counts) in &other.counters {
            let own = self.counters.entry(*function).or_default();
            own.resize(own.len().max(counts.len()), 0);
            for (own, more) in own.iter_mut().zip(counts) {
                *own = own.saturating_add(*more);
            }
        }
        for id in &other.build_ids {
            if !self.build_ids.contains(id) {
                self.build_ids.push(id.clone());
            }
        }
    }
}

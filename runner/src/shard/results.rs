//! results.jsonl: a line for each seed that has come to an end, added when it does, and put into their order when the campaign is over.
//!
//! Key types: [`Writer`], and [`read`]. A line is whole or the last: who was killed while it wrote one leaves half of it, which is left
//! out. Anything else that is no line of this format is refused.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::campaign::record::SeedRecord;
use crate::output::write_file;
use crate::redact;

/// The longest line that is read.
const LONGEST: usize = 64 << 20;

/// Adds lines.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
    /// Bytes of whole lines.
    length: u64,
    /// Half a line could not be taken away: what followed it would be read as one with it.
    is_torn: bool,
}

impl Writer {
    /// Begins an empty file.
    ///
    /// # Errors
    /// The host's.
    pub fn new(path: PathBuf) -> io::Result<Writer> {
        // A new file, so that a link is not followed.
        write_file(&path, "")?;
        let file = File::options().append(true).open(&path)?;
        Ok(Writer { path, file, length: 0, is_torn: false })
    }

    /// Adds a seed, once its findings are on the disk.
    ///
    /// # Errors
    /// The host's; the lines before it are still there then, and nothing else.
    pub fn add(&mut self, record: &SeedRecord) -> io::Result<()> {
        if self.is_torn {
            return Err(io::Error::other("a line before was cut off"));
        }
        let line = line(record);
        let line = redact::json(&line);
        let written = self.file.write_all(line.as_bytes());
        match written {
            Ok(()) => self.length += line.len() as u64,
            Err(_) => self.is_torn = self.file.set_len(self.length).is_err(),
        }
        written
    }

    /// Puts the lines into the order of seeds.
    ///
    /// # Errors
    /// The host's; then the file stays as it was.
    pub fn sort(&mut self) -> io::Result<()> {
        let text = std::fs::read_to_string(&self.path)?;
        let mut lines: Vec<(u64, &str)> = Vec::new();
        for line in text.lines() {
            let seed: Seed = serde_json::from_str(line)?;
            lines.push((seed.seed, line));
        }
        lines.sort();
        let sorted: String = lines.iter().map(|(_, line)| format!("{line}\n")).collect();
        write_file(&self.path, sorted)
    }
}

/// The one field by which lines are put into order.
#[derive(serde::Deserialize)]
struct Seed {
    seed: u64,
}

/// A record as a line. The places of findings are the names of their directories.
pub fn line(record: &SeedRecord) -> String {
    let mut record = record.clone();
    for found in &mut record.findings {
        if let Ok(dir) = &mut found.kept {
            *dir = dir.file_name().map(PathBuf::from).unwrap_or_default();
        }
    }
    // There are no maps with other keys than texts.
    serde_json::to_string(&record).unwrap_or_default() + "\n"
}

/// Reads lines. What follows the last line break is left out.
///
/// # Errors
/// What is wrong, with `at` and the line's number.
pub fn read(at: &str, bytes: &[u8]) -> Result<Vec<SeedRecord>, String> {
    let whole = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |end| end + 1);
    let mut records = Vec::new();
    for (number, line) in bytes[..whole].split_inclusive(|b| *b == b'\n').enumerate() {
        let place = || format!("{at}:{}", number + 1);
        if line.len() > LONGEST {
            return Err(format!("{}: the line has more than {LONGEST} bytes", place()));
        }
        let record: SeedRecord = serde_json::from_slice(line).map_err(|e| format!("{}: {e}", place()))?;
        for found in &record.findings {
            if found.kept.as_ref().is_ok_and(|dir| !is_name(dir)) {
                return Err(format!("{}: a finding has no name of a directory", place()));
            }
        }
        records.push(record);
    }
    Ok(records)
}

/// Whether this is the name of a finding's directory, and nothing that leads elsewhere.
pub fn is_name(dir: &Path) -> bool {
    let Some(name) = dir.to_str() else { return false };
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
    !name.is_empty() && name.len() <= 200 && name.chars().all(fits)
}

//! Journals: files to whose end records are written, one line each, of which every one is whole or is recognised as not.
//!
//! A line is the record's number, the length and the checksum of its JSON, and the JSON, which has no line's end in it. So a write that was cut
//! off (by `kill -9`, by a full disk) is a tail without a line's end, which nobody was told of and which is cut off. Everything else that does
//! not check is damage: it is told, the file as it was is kept beside, and what comes after it still counts.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::files::{free_name, hash, read, write_whole};

/// Bytes of a checksum.
const CHECKSUM: usize = 8;
/// A journal with more bytes is none.
const LARGEST: u64 = 1 << 30;

/// A record that checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// Its number, which rises by one.
    pub number: u64,
    /// JSON.
    pub text: Vec<u8>,
}

/// What a journal holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub records: Vec<Record>,
    /// Bytes that belong to no record that checks, without a torn tail.
    pub damaged: u64,
    /// The last record was not written to its end.
    pub torn: bool,
}

/// The line of a record.
pub(crate) fn line(number: u64, text: &[u8]) -> Vec<u8> {
    let head = format!("{number} {} {} ", text.len(), checksum(number, text));
    [head.as_bytes(), text, b"\n"].concat()
}

fn checksum(number: u64, text: &[u8]) -> String {
    hash(&[&number.to_le_bytes(), text], CHECKSUM)
}

/// Reads records as far as they check.
pub(crate) fn parse(bytes: &[u8]) -> Contents {
    let (mut contents, mut rest) = (Contents::default(), bytes);
    while !rest.is_empty() {
        if let Some((record, length)) = record(rest) {
            let ended = rest.get(length) == Some(&b'\n');
            let next = length + usize::from(rest.len() > length);
            // A line that has all but its end, or another end.
            contents.damaged += u64::from(!ended && rest.len() > length);
            contents.torn |= rest.len() == length;
            // Records of another journal, or the same one twice.
            if contents.records.last().is_none_or(|last| last.number < record.number) {
                contents.records.push(record);
            } else {
                contents.damaged += next as u64;
            }
            rest = &rest[next..];
            continue;
        }
        match rest.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                contents.damaged += end as u64 + 1;
                rest = &rest[end + 1..];
            }
            None => {
                contents.torn = true;
                break;
            }
        }
    }
    contents
}

/// The record at the beginning of these bytes, and how long it is without its end.
fn record(bytes: &[u8]) -> Option<(Record, usize)> {
    let mut words = bytes.splitn(4, |byte| *byte == b' ');
    let (number, length, sum, rest) = (words.next()?, words.next()?, words.next()?, words.next()?);
    let (number, length) = (decimal(number)?, usize::try_from(decimal(length)?).ok()?);
    let text = rest.get(..length)?;
    let head = bytes.len() - rest.len();
    (checksum(number, text).as_bytes() == sum)
        .then(|| (Record { number, text: text.to_vec() }, head + length))
}

/// A number as [`line`] writes it, and in no other way.
fn decimal(word: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(word).ok()?;
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// A journal that is open for writing.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// Bytes of whole records.
    pub length: u64,
    next: u64,
    /// A write was cut off and what it left could not be taken away.
    broken: bool,
}

/// What was found when a journal was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub records: Vec<Record>,
    /// Where the file was put as it was, because a part of it was damaged; and how many bytes that part has.
    pub damaged: Option<(PathBuf, u64)>,
}

impl Journal {
    /// Opens a journal, which is made if it is not there, and mends it. Its lock is the caller's.
    ///
    /// # Errors
    /// The host's.
    pub fn open(path: &Path) -> io::Result<(Journal, Found)> {
        let bytes = read(path, LARGEST)?;
        let there = bytes.is_some();
        let bytes = bytes.unwrap_or_default();
        let contents = parse(&bytes);
        let mut damaged = None;
        if contents.damaged > 0 {
            let aside = free_name(&path.with_extension("damaged"));
            let name = aside.file_name().unwrap_or_default().to_string_lossy().into_owned();
            write_whole(directory(path), &name, &bytes)?;
            damaged = Some((aside, contents.damaged));
        }
        if contents.damaged > 0 || contents.torn || !there {
            replace(path, &contents.records)?;
        }
        let next = contents.records.last().map_or(0, |last| last.number + 1);
        let journal = Journal::at(path, next)?;
        Ok((journal, Found { records: contents.records, damaged }))
    }

    fn at(path: &Path, next: u64) -> io::Result<Journal> {
        let file = OpenOptions::new().append(true).open(path)?;
        let length = file.metadata()?.len();
        Ok(Journal { path: path.to_path_buf(), file, length, next, broken: false })
    }

    /// Writes a record to the end. `durable`: when this returns it is on the disk; otherwise it outlives this process only.
    ///
    /// # Errors
    /// The host's; the journal is as it was then.
    pub fn append(&mut self, text: &[u8], durable: bool) -> io::Result<()> {
        if self.broken {
            self.file.set_len(self.length)?;
            self.broken = false;
        }
        let line = line(self.next, text);
        if self.length + line.len() as u64 > LARGEST {
            return Err(io::Error::other(format!("it has its greatest length, {LARGEST} bytes")));
        }
        let written =
            self.file.write_all(&line).and_then(|()| if durable { self.file.sync_data() } else { Ok(()) });
        if let Err(error) = written {
            self.broken = self.file.set_len(self.length).is_err();
            return Err(error);
        }
        self.length += line.len() as u64;
        self.next += 1;
        Ok(())
    }

    /// Brings to the disk what was written.
    ///
    /// # Errors
    /// The host's.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// Puts these records in the place of all.
    ///
    /// # Errors
    /// The host's; the journal is as it was then.
    pub fn rewrite(&mut self, texts: &[Vec<u8>]) -> io::Result<()> {
        let records: Vec<Record> =
            (self.next..).zip(texts).map(|(number, text)| Record { number, text: text.clone() }).collect();
        replace(&self.path, &records)?;
        *self = Journal::at(&self.path, self.next + texts.len() as u64)?;
        Ok(())
    }
}

fn replace(path: &Path, records: &[Record]) -> io::Result<()> {
    let bytes: Vec<u8> = records.iter().flat_map(|record| line(record.number, &record.text)).collect();
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    write_whole(directory(path), &name, &bytes)
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Vec<u8>, Vec<Vec<u8>>) {
        let texts: Vec<Vec<u8>> =
            [&b"{\"a\":1}"[..], b"{\"bb\":[1,2,3]}", b"null", b"{\"the last\":\"one\"}"]
                .map(<[u8]>::to_vec)
                .into();
        let bytes = (0..).zip(&texts).flat_map(|(number, text)| line(number, text)).collect();
        (bytes, texts)
    }

    fn texts(contents: &Contents) -> Vec<Vec<u8>> {
        contents.records.iter().map(|record| record.text.clone()).collect()
    }

    #[test]
    fn every_prefix_gives_the_records_that_are_whole_in_it() {
        let (bytes, all) = sample();
        for end in 0..=bytes.len() {
            let prefix = &bytes[..end];
            let contents = parse(prefix);
            let whole = prefix.iter().filter(|byte| **byte == b'\n').count();
            let found = texts(&contents);
            // The line's end says that it is whole, but all of it may be there without one.
            assert!(found.len() == whole || found.len() == whole + 1, "{end}");
            assert_eq!(found, all[..found.len()], "{end}");
            assert_eq!(contents.damaged, 0, "{end}: what was cut off is not damaged");
            assert_eq!(contents.torn, end > 0 && prefix[end - 1] != b'\n', "{end}");
        }
    }

    #[test]
    fn every_flipped_bit_is_seen_and_costs_no_other_record() {
        let (bytes, all) = sample();
        for at in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[at / 8] ^= 1 << (at % 8);
            let contents = parse(&bytes);
            let found = texts(&contents);
            assert!(
                found.iter().all(|text| all.contains(text)),
                "bit {at}: something that was never written"
            );
            assert!(found.len() + 1 >= all.len(), "bit {at}: {} of {} records", found.len(), all.len());
            assert!(
                contents.damaged > 0 || contents.torn && found.len() == all.len(),
                "bit {at} is not seen"
            );
        }
    }
}

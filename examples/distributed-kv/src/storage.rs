//! What a node keeps on disk: its vote, and its log.
//!
//! - `vote`: a few bytes, replaced as a whole: written to a temporary file, synced, renamed, directory synced.
//! - `log`: records appended one after the other, each `u32` length, `u32` CRC-32 of the rest, then index and entry.
//!   A record for an index that is already taken replaces it and everything behind it. What a crash has cut short
//!   or mangled at the end was never acknowledged, so reading stops at the first record that does not check out and
//!   cuts the file there.
//!
//! Every method returns only when the data is on disk. A failed sync is final: the kernel may have dropped the dirty
//! pages, so no later success would mean anything; the caller must stop the process.

use crate::message::{Entry, Reader, Writer};
use crate::raft::Vote;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// The files of one node, opened.
#[derive(Debug)]
pub struct Storage {
    directory: PathBuf,
    log: File,
}

impl Storage {
    /// Opens the files in `directory`, creating what is missing, and reads them.
    pub fn open(directory: &Path) -> io::Result<(Storage, Vote, Vec<Entry>)> {
        fs::create_dir_all(directory)?;
        let vote = read_vote(&directory.join("vote"))?;
        let mut log = OpenOptions::new().read(true).append(true).create(true).open(directory.join("log"))?;
        let mut bytes = Vec::new();
        log.read_to_end(&mut bytes)?;
        let (entries, valid) = read_records(&bytes);
        if valid < bytes.len() {
            eprintln!("log: dropping {} bytes after an incomplete write", bytes.len() - valid);
            log.set_len(valid as u64)?;
        }
        // After a crash of this process the end of the log may be in memory only, and is about to be relied on.
        log.sync_all()?;
        sync_directory(directory)?;
        Ok((Storage { directory: directory.to_owned(), log }, vote, entries))
    }

    /// Stores the vote.
    pub fn store_vote(&self, vote: Vote) -> io::Result<()> {
        let mut out = Writer(vec![0; 4]);
        out.u64(vote.term);
        out.u8(vote.voted_for.map_or(0, |id| id + 1));
        seal(&mut out.0, 0);
        let temporary = self.directory.join("vote.new");
        let mut file = File::create(&temporary)?;
        file.write_all(&out.0)?;
        file.sync_data()?;
        fs::rename(&temporary, self.directory.join("vote"))?;
        sync_directory(&self.directory)
    }

    /// Stores `entries`, of which the first has index `from`, in place of all from that index on.
    pub fn store_entries(&mut self, from: u64, entries: &[Entry]) -> io::Result<()> {
        let mut out = Writer(Vec::new());
        for (index, entry) in (from..).zip(entries) {
            let start = out.0.len();
            out.u64(0); // for length and checksum
            out.u64(index);
            out.entry(entry);
            let len = (out.0.len() - start - 8) as u32;
            out.0[start..start + 4].copy_from_slice(&len.to_le_bytes());
            seal(&mut out.0, start + 4);
        }
        self.log.write_all(&out.0)?;
        self.log.sync_data()
    }
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Writes the checksum of everything after it into the four bytes at `place`.
fn seal(bytes: &mut [u8], place: usize) {
    let sum = crc32(&bytes[place + 4..]);
    bytes[place..place + 4].copy_from_slice(&sum.to_le_bytes());
}

fn read_vote(path: &Path) -> io::Result<Vote> {
    let bytes = match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vote::default()),
        other => other?,
    };
    let mut r = Reader(&bytes);
    let sum = r.u32();
    let sealed = sum == Some(crc32(r.0));
    match (sealed, r.u64(), r.u8()) {
        (true, Some(term), Some(id)) => Ok(Vote { term, voted_for: id.checked_sub(1) }),
        // It was renamed into place after a sync, so this is no torn write: going on could mean voting twice.
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, format!("{} is damaged", path.display()))),
    }
}

/// The log that the records in `bytes` add up to, and how many bytes are sound.
fn read_records(bytes: &[u8]) -> (Vec<Entry>, usize) {
    let mut log: Vec<Entry> = Vec::new();
    let mut sound = 0;
    while let Some((index, entry, len)) = read_record(&bytes[sound..]) {
        let at = index as usize;
        if at == 0 || at > log.len() + 1 {
            break;
        }
        log.truncate(at - 1);
        log.push(entry);
        sound += len;
    }
    (log, sound)
}

fn read_record(bytes: &[u8]) -> Option<(u64, Entry, usize)> {
    let mut r = Reader(bytes);
    let len = r.u32()? as usize;
    let sum = r.u32()?;
    let body = r.0.get(..len)?;
    if crc32(body) != sum {
        return None;
    }
    let mut r = Reader(body);
    Some((r.u64()?, r.entry()?, len + 8))
}

/// CRC-32 as in Ethernet and zip (reflected polynomial 0xedb88320).
fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut i = 0;
        while i < 256 {
            let mut sum = i as u32;
            let mut bit = 0;
            while bit < 8 {
                sum = if sum & 1 == 1 { 0xedb8_8320 ^ (sum >> 1) } else { sum >> 1 };
                bit += 1;
            }
            table[i] = sum;
            i += 1;
        }
        table
    };
    !bytes.iter().fold(!0, |sum, byte| TABLE[((sum ^ u32::from(*byte)) & 0xff) as usize] ^ (sum >> 8))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv::Command;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("distributed-kv-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn entry(term: u64) -> Entry {
        Entry { term, command: Some(Command::Put { key: "k".into(), value: format!("v{term}") }) }
    }

    #[test]
    fn checksum_is_the_usual_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn everything_survives_reopening() {
        let scratch = Scratch::new("reopen");
        let (mut storage, vote, log) = Storage::open(&scratch.0).unwrap();
        assert_eq!((vote, log), (Vote::default(), vec![]));
        for voted_for in [None, Some(0), Some(2)] {
            storage.store_vote(Vote { term: 7, voted_for }).unwrap();
            assert_eq!(Storage::open(&scratch.0).unwrap().1, Vote { term: 7, voted_for });
        }
        storage.store_entries(1, &[entry(1), entry(1), entry(1)]).unwrap();
        storage.store_entries(2, &[entry(2)]).unwrap();
        storage.store_entries(3, &[entry(3)]).unwrap();
        assert_eq!(Storage::open(&scratch.0).unwrap().2, [entry(1), entry(2), entry(3)]);
    }

    #[test]
    fn a_torn_end_is_cut_off_wherever_it_is_torn() {
        let scratch = Scratch::new("torn");
        let (mut storage, ..) = Storage::open(&scratch.0).unwrap();
        storage.store_entries(1, &[entry(1)]).unwrap();
        let path = scratch.0.join("log");
        let first = fs::read(&path).unwrap();
        storage.store_entries(2, &[entry(2)]).unwrap();
        let both = fs::read(&path).unwrap();
        for cut in first.len()..both.len() {
            for mangled in [both[..cut].to_vec(), [&both[..cut], &vec![0; both.len() - cut]].concat()] {
                fs::write(&path, &mangled).unwrap();
                let (mut storage, _, log) = Storage::open(&scratch.0).unwrap();
                assert_eq!(log, [entry(1)], "cut at {cut}");
                storage.store_entries(2, &[entry(3)]).unwrap();
                assert_eq!(Storage::open(&scratch.0).unwrap().2, [entry(1), entry(3)]);
            }
        }
    }

    #[test]
    fn a_damaged_vote_is_refused() {
        let scratch = Scratch::new("vote");
        let (storage, ..) = Storage::open(&scratch.0).unwrap();
        storage.store_vote(Vote { term: 7, voted_for: None }).unwrap();
        let path = scratch.0.join("vote");
        let mut bytes = fs::read(&path).unwrap();
        bytes[5] ^= 1;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(Storage::open(&scratch.0).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}

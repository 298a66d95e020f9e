//! What a node keeps on disk, in three files, each with checksums (CRC-32):
//!
//! - `vote`: term and vote, a few bytes; replaced as a whole.
//! - `snapshot`: the map up to some index; replaced as a whole.
//! - `log`: a header with the index and term that it follows, then a record for each entry: `u32` length, `u32` checksum of
//!   the rest, index and entry. A record for an index that is already taken replaces it and everything behind it.
//!   What a crash has cut short or mangled at the end was never acknowledged, so reading stops at the first record
//!   that does not check out. The log is replaced as a whole too, when its beginning has gone into a snapshot.
//!
//! To replace a file is to write a new one, sync it, rename it, and sync the directory. The snapshot is there before what it
//! stands for leaves the log, so between the two the log merely begins before the snapshot ends.
//!
//! Every method returns only when the data is on disk. A write that wrote less than it was given goes on with the rest. An
//! error is final, above all that of a sync: the kernel has marked the pages as clean although they are not on disk, so
//! to sync again would succeed and mean nothing; the caller must stop the process. For the same reason what is found
//! at a start is first written anew: it may have come from such pages.

use crate::config::Bug;
use crate::disk::Disk;
use crate::log::{Entry, Log, Snapshot};
use crate::message::{Reader, Writer};
use crate::raft::{Output, Stored, Vote};
use std::io;
use std::sync::Arc;

/// Length of the header of the log: checksum, index, term.
const HEADER: usize = 20;

/// The files of one node.
#[derive(Debug)]
pub struct Storage<D> {
    disk: D,
    bug: Bug,
}

impl<D: Disk> Storage<D> {
    /// Reads what is on the disk, and makes sure that it is there.
    pub fn open(disk: D, bug: Bug) -> io::Result<(Storage<D>, Stored)> {
        let mut storage = Storage { disk, bug };
        let vote = storage.read_vote()?;
        let snapshot = storage.read_snapshot()?.map(Arc::new);
        let mut log = storage.read_log()?;
        let end = snapshot.as_ref().map_or(0, |snapshot| snapshot.index);
        if log.base() > end {
            let text = format!("the log begins after {} and the snapshot ends at {end}", log.base());
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        if let Some(snapshot) = &snapshot
            && log.term_at(snapshot.index) != Some(snapshot.term)
        {
            log = log.behind(snapshot);
        }
        if let Some(vote) = vote {
            storage.store_vote(vote)?;
        }
        if let Some(snapshot) = &snapshot {
            storage.store_snapshot(snapshot)?;
        }
        storage.store_log(&log)?;
        Ok((storage, Stored { vote: vote.unwrap_or_default(), snapshot, log }))
    }

    /// Stores what a step asks for, of a log that is now `log`.
    pub fn store(&mut self, output: &Output, log: &Log) -> io::Result<()> {
        if let Some(vote) = output.vote {
            self.store_vote(vote)?;
        }
        match (&output.snapshot, output.log_from) {
            (Some(snapshot), _) => {
                self.store_snapshot(snapshot)?;
                self.store_log(log)
            }
            (None, Some(from)) => self.store_entries(from, log.from(from)),
            (None, None) => Ok(()),
        }
    }

    /// Stores the vote.
    fn store_vote(&mut self, vote: Vote) -> io::Result<()> {
        let mut out = Writer(vec![0; 4]);
        out.u64(vote.term);
        out.u8(vote.voted_for.map_or(0, |id| id + 1));
        seal(&mut out.0, 0);
        self.replace("vote", &out.0)
    }

    /// Stores a snapshot; then the log must be stored anew.
    fn store_snapshot(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        let mut out = Writer(vec![0; 4]);
        out.snapshot(snapshot);
        seal(&mut out.0, 0);
        self.replace("snapshot", &out.0)
    }

    /// Stores a whole log in place of the old one.
    fn store_log(&mut self, log: &Log) -> io::Result<()> {
        let mut out = Writer(vec![0; 4]);
        out.u64(log.base());
        out.u64(log.base_term());
        seal(&mut out.0, 0);
        write_records(&mut out, log.base() + 1, log.from(0));
        self.replace("log", &out.0)
    }

    /// Stores `entries`, of which the first has index `from`, in place of all from that index on.
    fn store_entries(&mut self, from: u64, entries: &[Entry]) -> io::Result<()> {
        let mut out = Writer(Vec::new());
        write_records(&mut out, from, entries);
        if self.bug == Bug::ShortWrite {
            let _ = self.disk.write("log", &out.0);
        } else {
            self.write_all("log", &out.0)?;
        }
        if self.bug == Bug::NoFsync {
            return Ok(());
        }
        self.disk.sync("log")
    }

    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let temporary = format!("{name}.new");
        self.disk.create(&temporary)?;
        self.write_all(&temporary, bytes)?;
        self.disk.sync(&temporary)?;
        self.disk.rename(&temporary, name)?;
        self.disk.sync_directory()
    }

    fn write_all(&mut self, name: &str, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.disk.write(name, bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => bytes = &bytes[written..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read_vote(&self) -> io::Result<Option<Vote>> {
        let Some(bytes) = self.disk.read("vote")? else { return Ok(None) };
        let mut r = unseal("vote", &bytes)?;
        match (r.u64(), r.u8()) {
            (Some(term), Some(id)) => Ok(Some(Vote { term, voted_for: id.checked_sub(1) })),
            _ => Err(damaged("vote")),
        }
    }

    fn read_snapshot(&self) -> io::Result<Option<Snapshot>> {
        let Some(bytes) = self.disk.read("snapshot")? else { return Ok(None) };
        unseal("snapshot", &bytes)?.snapshot().ok_or_else(|| damaged("snapshot")).map(Some)
    }

    fn read_log(&self) -> io::Result<Log> {
        let Some(bytes) = self.disk.read("log")? else { return Ok(Log::default()) };
        let (head, records) = bytes.split_at_checked(HEADER).ok_or_else(|| damaged("log"))?;
        let mut r = unseal("log", head)?;
        let (Some(base), Some(base_term)) = (r.u64(), r.u64()) else { return Err(damaged("log")) };
        let mut log = Log::new(base, base_term, Vec::new());
        let sound = read_records(&mut log, records);
        if sound < records.len() {
            eprintln!("log: dropping {} bytes after an incomplete write", records.len() - sound);
        }
        Ok(log)
    }
}

/// The file was renamed into place after a sync, so this is no torn write: to go on without it could mean to vote twice, or
/// to forget what was acknowledged.
fn damaged(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{name} is damaged"))
}

/// Writes the checksum of everything after it into the four bytes at `place`.
fn seal(bytes: &mut [u8], place: usize) {
    let sum = crc32(&bytes[place + 4..]);
    bytes[place..place + 4].copy_from_slice(&sum.to_le_bytes());
}

/// What follows the checksum at the beginning, if that is right.
fn unseal<'a>(name: &str, bytes: &'a [u8]) -> io::Result<Reader<'a>> {
    let mut r = Reader(bytes);
    let sum = r.u32();
    if sum == Some(crc32(r.0)) { Ok(r) } else { Err(damaged(name)) }
}

fn write_records(out: &mut Writer, first: u64, entries: &[Entry]) {
    for (index, entry) in (first..).zip(entries) {
        let start = out.0.len();
        out.u64(0); // for length and checksum
        out.u64(index);
        out.entry(entry);
        let len = (out.0.len() - start - 8) as u32;
        out.0[start..start + 4].copy_from_slice(&len.to_le_bytes());
        seal(&mut out.0, start + 4);
    }
}

/// Adds the records in `bytes` to the log, and says how many bytes are sound.
fn read_records(log: &mut Log, bytes: &[u8]) -> usize {
    let mut sound = 0;
    while let Some((index, entry, len)) = read_record(&bytes[sound..]) {
        if index <= log.base() || index > log.last_index() + 1 {
            break;
        }
        log.truncate_from(index);
        log.push(entry);
        sound += len;
    }
    sound
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
    use crate::disk::Directory;
    use crate::kv::{Command, Map};
    use std::fs;
    use std::path::PathBuf;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("distributed-kv-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Scratch(path)
        }

        fn open(&self) -> io::Result<(Storage<Directory>, Stored)> {
            Storage::open(Directory::open(self.0.clone())?, Bug::None)
        }

        fn log(&self) -> Log {
            self.open().unwrap().1.log
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

    fn snapshot(index: u64, term: u64) -> Snapshot {
        let map: Map = [("k".to_owned(), format!("at {index}"))].into_iter().collect();
        Snapshot { index, term, map }
    }

    #[test]
    fn checksum_is_the_usual_one() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn everything_survives_reopening() {
        let scratch = Scratch::new("reopen");
        let (mut storage, stored) = scratch.open().unwrap();
        assert_eq!(stored, Stored::default());
        for voted_for in [None, Some(0), Some(2)] {
            let vote = Vote { term: 7, voted_for };
            storage.store_vote(vote).unwrap();
            assert_eq!(scratch.open().unwrap().1.vote, vote);
        }
        let (mut storage, _) = scratch.open().unwrap();
        storage.store_entries(1, &[entry(1), entry(1), entry(1)]).unwrap();
        storage.store_entries(2, &[entry(2)]).unwrap();
        storage.store_entries(3, &[entry(3)]).unwrap();
        assert_eq!(scratch.log(), Log::new(0, 0, vec![entry(1), entry(2), entry(3)]));
    }

    #[test]
    fn a_snapshot_takes_the_place_of_the_beginning() {
        let scratch = Scratch::new("snapshot");
        let (mut storage, _) = scratch.open().unwrap();
        storage.store_entries(1, &[entry(1), entry(1), entry(2)]).unwrap();
        storage.store_snapshot(&snapshot(2, 1)).unwrap();
        // A crash between the two leaves all of the log.
        let stored = scratch.open().unwrap().1;
        assert_eq!(stored.snapshot.as_deref(), Some(&snapshot(2, 1)));
        assert_eq!(stored.log, Log::new(0, 0, vec![entry(1), entry(1), entry(2)]));
        let (mut storage, _) = scratch.open().unwrap();
        storage.store_log(&Log::new(1, 1, vec![entry(1), entry(2)])).unwrap();
        storage.store_entries(4, &[entry(2)]).unwrap();
        assert_eq!(scratch.log(), Log::new(1, 1, vec![entry(1), entry(2), entry(2)]));
        // One from a leader, of a history that this log is not part of; and a crash before the log is replaced.
        let (mut storage, _) = scratch.open().unwrap();
        storage.store_snapshot(&snapshot(3, 5)).unwrap();
        assert_eq!(scratch.log(), Log::new(3, 5, vec![]));
        fs::remove_file(scratch.0.join("snapshot")).unwrap();
        assert_eq!(scratch.open().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_torn_end_is_cut_off_wherever_it_is_torn() {
        let scratch = Scratch::new("torn");
        let (mut storage, _) = scratch.open().unwrap();
        storage.store_entries(1, &[entry(1)]).unwrap();
        let path = scratch.0.join("log");
        let first = fs::read(&path).unwrap();
        storage.store_entries(2, &[entry(2)]).unwrap();
        let both = fs::read(&path).unwrap();
        for cut in first.len()..both.len() {
            for mangled in [both[..cut].to_vec(), [&both[..cut], &vec![0; both.len() - cut]].concat()] {
                fs::write(&path, &mangled).unwrap();
                let (mut storage, stored) = scratch.open().unwrap();
                assert_eq!(stored.log, Log::new(0, 0, vec![entry(1)]), "cut at {cut}");
                storage.store_entries(2, &[entry(3)]).unwrap();
                assert_eq!(scratch.log(), Log::new(0, 0, vec![entry(1), entry(3)]));
            }
        }
    }

    #[test]
    fn damage_that_no_crash_makes_is_refused() {
        let scratch = Scratch::new("damage");
        let (mut storage, _) = scratch.open().unwrap();
        storage.store_vote(Vote { term: 7, voted_for: None }).unwrap();
        storage.store_snapshot(&snapshot(2, 1)).unwrap();
        storage.store_log(&Log::new(2, 1, vec![])).unwrap();
        for name in ["vote", "snapshot", "log"] {
            let path = scratch.0.join(name);
            let sound = fs::read(&path).unwrap();
            for mangled in [vec![], sound[..5].to_vec(), [&sound[..5], &[sound[5] ^ 1], &sound[6..]].concat()]
            {
                fs::write(&path, &mangled).unwrap();
                assert_eq!(scratch.open().unwrap_err().kind(), io::ErrorKind::InvalidData, "{name}");
            }
            fs::write(&path, &sound).unwrap();
        }
        scratch.open().unwrap();
    }
}

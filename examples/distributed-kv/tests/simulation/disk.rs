//! A disk in memory with the faults of real ones: short and failing writes, failing syncs after which the pages count as
//! clean, and power failures that leave a part of what was not synced.

use crate::world::Random;
use distributed_kv::disk::Disk;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

/// How often what fails, per million.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rates {
    /// Per write: only a part is written.
    pub short: u64,
    /// Per write: EIO.
    pub write_error: u64,
    /// Per sync: EIO.
    pub sync_error: u64,
}

#[derive(Clone, Debug, Default)]
struct File {
    /// As programs see it.
    cache: Vec<u8>,
    /// As it is on the disk.
    disk: Vec<u8>,
    /// From here on the cache has to be written.
    dirty_from: usize,
}

impl File {
    fn write_back(&mut self, end: usize) {
        if self.dirty_from < end {
            self.disk.resize(self.disk.len().max(end), 0);
            self.disk[self.dirty_from..end].copy_from_slice(&self.cache[self.dirty_from..end]);
        }
    }
}

#[derive(Debug)]
struct State {
    random: Random,
    rates: Rates,
    files: Vec<File>,
    /// Names as programs see them.
    names: BTreeMap<String, usize>,
    /// Names as they were on the disk after each change since the last sync of the directory, the oldest first.
    names_on_disk: Vec<BTreeMap<String, usize>>,
}

/// The disk of one node. Clones are the same disk.
#[derive(Clone, Debug)]
pub struct MemoryDisk(Rc<RefCell<State>>);

impl MemoryDisk {
    /// An empty disk.
    pub fn new(random: Random) -> MemoryDisk {
        let state = State {
            random,
            rates: Rates::default(),
            files: Vec::new(),
            names: BTreeMap::new(),
            names_on_disk: vec![BTreeMap::new()],
        };
        MemoryDisk(Rc::new(RefCell::new(state)))
    }

    /// Sets how often what fails from now on.
    pub fn set_rates(&self, rates: Rates) {
        self.0.borrow_mut().rates = rates;
    }

    /// What remains when the power fails: of every file what was synced and some of the rest, which ends anywhere and
    /// has zeros where a block was not written; of the names what was synced and some of the later changes.
    pub fn fail_power(&self) {
        let mut state = self.0.borrow_mut();
        let State { random, files, names, names_on_disk, .. } = &mut *state;
        for file in files {
            let end =
                file.dirty_from + random.below((file.cache.len() - file.dirty_from) as u64 + 1) as usize;
            file.write_back(end);
            if end > file.dirty_from && random.chance(300_000) {
                let hole = file.dirty_from + random.below((end - file.dirty_from) as u64) as usize;
                let hole_end = end.min(hole + 16);
                file.disk[hole..hole_end].fill(0);
            }
            file.cache = file.disk.clone();
            file.dirty_from = file.cache.len();
        }
        let kept = random.below(names_on_disk.len() as u64) as usize;
        *names = names_on_disk.swap_remove(kept);
        *names_on_disk = vec![names.clone()];
    }
}

impl State {
    fn file(&mut self, name: &str) -> io::Result<&mut File> {
        let place = *self.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(&mut self.files[place])
    }

    fn renamed(&mut self) {
        let names = self.names.clone();
        self.names_on_disk.push(names);
    }
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(5)
}

impl Disk for MemoryDisk {
    fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let state = self.0.borrow();
        Ok(state.names.get(name).map(|place| state.files[*place].cache.clone()))
    }

    fn create(&mut self, name: &str) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        let place = state.files.len();
        state.files.push(File::default());
        state.names.insert(name.to_owned(), place);
        state.renamed();
        Ok(())
    }

    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.borrow_mut();
        let rates = state.rates;
        let mut len = bytes.len();
        if state.random.chance(rates.write_error) {
            return Err(eio());
        }
        if state.random.chance(rates.short) {
            len = state.random.below(len as u64) as usize;
            len = len.max(1);
        }
        state.file(name)?.cache.extend_from_slice(&bytes[..len]);
        Ok(len)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        let rate = state.rates.sync_error;
        let fails = state.random.chance(rate);
        let file = state.file(name)?;
        let end = file.cache.len();
        if !fails {
            file.write_back(end);
        }
        file.dirty_from = end;
        if fails { Err(eio()) } else { Ok(()) }
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        let place = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), place);
        state.renamed();
        Ok(())
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        let rate = state.rates.sync_error;
        if state.random.chance(rate) {
            return Err(eio());
        }
        let names = state.names.clone();
        state.names_on_disk = vec![names];
        Ok(())
    }
}

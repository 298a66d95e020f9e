//! /proc/PID/mem and /proc/PID/pagemap (proc(5)): "this file can be used to access the pages of a process's memory through open(2), read(2), and
//! lseek(2)". A file whose offsets are addresses; unlike the texts of the other files here it is read when it is read.

use bloodhound_abi::Errno;

use crate::ctx::{Ctx, err};
use crate::ids::*;
use crate::mm::{Backing, PAGE, TASK_SIZE};
use crate::node::Node;
use crate::path::Synth;
use crate::wait::SysResult;

/// What a file of /proc shows of a process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shows {
    /// Its bytes.
    Bytes,
    /// A word for each page.
    Pages,
}

/// A word of pagemap: "Bit 63 is set if the page is present in RAM", "Bit 61 [...] file-mapped page or shared anonymous page".
const PRESENT: u64 = 1 << 63;
const OF_FILE: u64 = 1 << 61;

impl Ctx<'_> {
    /// The process whose memory a file of /proc is, if it is one.
    pub(crate) fn memory_file(&self, path: &[u8]) -> Option<(Tid, Shows)> {
        let synth = Synth::from_absolute(path)?;
        let (directory, name) = std::str::from_utf8(&synth.path).ok()?.rsplit_once('/')?;
        let shows = match name {
            "mem" => Shows::Bytes,
            "pagemap" => Shows::Pages,
            _ => return None,
        };
        let number = directory.rsplit('/').next()?.parse().ok()?;
        Some((self.pid_ns().tid(number), shows))
    }

    /// read(2) of such a file.
    pub(crate) fn read_memory(
        &mut self,
        (tid, shows): (Tid, Shows),
        at: u64,
        max: usize,
    ) -> SysResult<Vec<u8>> {
        match shows {
            Shows::Bytes => self.read_memory_file(tid, at, max),
            Shows::Pages => self.read_pagemap(tid, at, max),
        }
    }

    /// Words of 8 bytes, each for the page of its number. Which frame a page has is not said, as without CAP_SYS_ADMIN.
    fn read_pagemap(&mut self, tid: Tid, at: u64, max: usize) -> SysResult<Vec<u8>> {
        let Some(task) = self.node.tasks.get(&tid) else { return Ok(Vec::new()) };
        if !at.is_multiple_of(8) || !max.is_multiple_of(8) {
            return err(Errno::EINVAL);
        }
        let mm = self.node.process(task.pid).mm;
        let first = at / 8;
        let last = (first + max as u64 / 8).min(TASK_SIZE / PAGE);
        Ok((first..last).flat_map(|page| self.node.pagemap_word(mm, page).to_le_bytes()).collect())
    }

    /// read(2) of /proc/PID/mem: as many bytes as there are from `addr` on, with the bytes that the program has there. EIO if
    /// there are none.
    fn read_memory_file(&mut self, tid: Tid, addr: u64, max: usize) -> SysResult<Vec<u8>> {
        // "If the process is gone": the address space went with it.
        let Some(task) = self.node.tasks.get(&tid) else { return Ok(Vec::new()) };
        let mm = self.node.process(task.pid).mm;
        let mut out = Vec::new();
        while out.len() < max {
            let Some(at) = addr.checked_add(out.len() as u64) else { break };
            let room = (PAGE - at % PAGE) as usize;
            let mut part = vec![0; room.min(max - out.len())];
            if self.node.force_read(mm, at, &mut part).is_err() {
                break;
            }
            self.moved.read(&part);
            out.extend_from_slice(&part);
        }
        // mem_rw: "if (!this_len) { if (!copied) copied = -EIO; break; }"
        if out.is_empty() && max > 0 { err(Errno::EIO) } else { Ok(out) }
    }

    /// write(2) to /proc/PID/mem, of what lies at `addr`: as many bytes as can be written from there on, EIO if that is none.
    pub(crate) fn write_memory_file(&mut self, tid: Tid, addr: u64, data: &[u8]) -> SysResult {
        let Some(task) = self.node.tasks.get(&tid) else { return Ok(0) };
        let mm = self.node.process(task.pid).mm;
        let mut done = 0;
        while done < data.len() {
            let Some(at) = addr.checked_add(done as u64) else { break };
            let n = ((PAGE - at % PAGE) as usize).min(data.len() - done);
            let part = &data[done..done + n];
            if self.node.force_write(mm, at, part).is_err() {
                break;
            }
            self.moved.written(part);
            done += n;
        }
        if done == 0 && !data.is_empty() { err(Errno::EIO) } else { Ok(done as u64) }
    }
}

impl Node {
    /// Whether a page is in memory (mincore(2)): files are as a whole.
    pub(crate) fn is_resident(&self, mm: MmId, page: u64) -> bool {
        self.pagemap_word(mm, page) != 0
    }

    /// What pagemap says of a page.
    fn pagemap_word(&self, mm: MmId, page: u64) -> u64 {
        let addr = page * PAGE;
        let Some(vma) = self.mms[mm].find(addr) else { return 0 };
        if self.mms[mm].pages.get(page).is_some() {
            return PRESENT;
        }
        let into = addr - vma.start;
        match vma.backing {
            Backing::Anon => 0,
            Backing::File { ino, offset } if offset + into < self.vfs.size(ino) => PRESENT | OF_FILE,
            Backing::File { .. } => 0,
            Backing::Shm { id, offset } if self.shm[id].pages.contains_key(&((offset + into) / PAGE)) => {
                PRESENT | OF_FILE
            }
            Backing::Shm { .. } => 0,
            Backing::Special(_) => PRESENT,
        }
    }
}

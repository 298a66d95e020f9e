//! /proc/PID/mem (proc(5)): "this file can be used to access the pages of a process's memory through open(2), read(2), and
//! lseek(2)". A file whose offsets are addresses; unlike the texts of the other files here it is read when it is read.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::ctx::{Ctx, err};
use crate::ids::*;
use crate::mm::PAGE;
use crate::path::Synth;
use crate::wait::{Stop, SysResult};

impl Ctx<'_> {
    /// The process whose memory a file of /proc is, if it is one.
    pub(crate) fn memory_file(&self, path: &[u8]) -> Option<Tid> {
        let synth = Synth::from_absolute(path)?;
        let directory = std::str::from_utf8(&synth.path).ok()?.strip_suffix("/mem")?;
        directory.rsplit('/').next()?.parse().ok().map(Tid)
    }

    /// read(2) of /proc/PID/mem: as many bytes as there are from `addr` on, with the bytes that the program has there. EIO if
    /// there are none. Reading what is mapped without any right, which Linux allows, is not modelled.
    pub(crate) fn read_memory_file(&mut self, tid: Tid, addr: u64, max: usize) -> SysResult<Vec<u8>> {
        // "If the process is gone": the address space went with it.
        let Some(task) = self.node.tasks.get(&tid) else { return Ok(Vec::new()) };
        let mm = self.node.process(task.pid).mm;
        let mut out = Vec::new();
        while out.len() < max {
            let Some(at) = addr.checked_add(out.len() as u64) else { break };
            let Some(vma) = self.node.mms[mm].find(at) else { break };
            if vma.prot & (c::PROT_READ | c::PROT_WRITE | c::PROT_EXEC) == 0 {
                return Err(Stop::Unsupported("a read of /proc/PID/mem at a page of PROT_NONE".into()));
            }
            let room = (PAGE - at % PAGE) as usize;
            let mut part = vec![0; room.min(max - out.len())];
            if self.read_bytes_of(mm, at, &mut part).is_err() {
                break;
            }
            out.extend_from_slice(&part);
        }
        // mem_rw: "if (!this_len) { if (!copied) copied = -EIO; break; }"
        if out.is_empty() && max > 0 { err(Errno::EIO) } else { Ok(out) }
    }
}

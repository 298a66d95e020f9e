//! /proc/PID/cmdline and /proc/PID/environ: the memory in which execve(2) has put arguments and environment, as the program has left it.

use crate::ids::MmId;
use crate::mm::{Backing, PAGE};
use crate::node::Node;
use crate::process::Process;

impl Node {
    /// The arguments of a process. "If, after an execve(2), the process modifies its argv strings, those changes will show up here" (proc(5)): one
    /// whose end is not 0 any more is a title, which may go on into the environment and ends with its first 0 (`get_mm_cmdline`). Empty for a
    /// zombie.
    pub fn command_line(&self, process: &Process) -> Vec<u8> {
        let Some((mm, [start, end, env_end])) = self.strings(process) else { return Vec::new() };
        if start >= end {
            return Vec::new();
        }
        if self.original(mm, end - 1, end).iter().all(|last| *last == 0) {
            return self.original(mm, start, end);
        }
        let mut title = self.original(mm, start, env_end.min(start + PAGE));
        if let Some(nul) = title.iter().position(|byte| *byte == 0) {
            title.truncate(nul + 1);
        }
        title
    }

    /// The environment of a process.
    pub fn environment(&self, process: &Process) -> Vec<u8> {
        self.strings(process).map_or_else(Vec::new, |(mm, [_, start, end])| self.original(mm, start, end))
    }

    fn strings(&self, process: &Process) -> Option<(MmId, [u64; 3])> {
        // A zombie has given its address space back.
        let mm = self.mms.get(process.mm).filter(|_| process.zombie.is_none())?;
        Some((process.mm, mm.strings))
    }

    /// The bytes of a range as far as they are in anonymous memory (FOLL_ANON).
    fn original(&self, mm: MmId, start: u64, end: u64) -> Vec<u8> {
        let mut out = vec![0; (end - start) as usize];
        let mut done = 0;
        while done < out.len() {
            let at = start + done as u64;
            let n = (out.len() - done).min((PAGE - at % PAGE) as usize);
            let anonymous = self.mms[mm].find(at).is_some_and(|vma| matches!(vma.backing, Backing::Anon));
            if !anonymous || self.force_read(mm, at, &mut out[done..done + n]).is_err() {
                break;
            }
            done += n;
        }
        out.truncate(done);
        out
    }
}

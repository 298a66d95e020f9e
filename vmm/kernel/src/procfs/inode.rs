//! What calls on inodes find in /proc and /sys: whether attributes may be changed, and where a file ends for lseek(2).

use bloodhound_abi::Errno;
use bloodhound_vfs::flags::MAY_WRITE;
use bloodhound_vfs::{Cred, FileCap};

use super::{Tree, View, process};
use crate::credentials::Asks;
use crate::path::Synth;

/// A change of attributes. Nothing of it is remembered: Linux makes these inodes anew when it likes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Permission bits, to these.
    Mode(u32),
    /// Owner or group.
    Owner,
    /// Times, to certain ones.
    Times,
    /// Both times, to now.
    Touch,
}

impl View<'_> {
    /// Whether attributes of a place may be changed.
    ///
    /// # Errors
    /// EROFS in what a container has mounted for reading only, EPERM, EACCES.
    pub(crate) fn may_change(&self, at: &Synth, cred: &Cred, change: Change) -> Result<(), Errno> {
        let path = std::str::from_utf8(&at.path).map_err(|_| Errno::ENOENT)?;
        let mut parts = path.split('/');
        let first = parts.next().unwrap_or_default();
        let is_mode = matches!(change, Change::Mode(_));
        match at.tree {
            Tree::Sys => return Err(Errno::EROFS),
            // S_IMMUTABLE (may_setattr).
            Tree::Ns => return Err(Errno::EPERM),
            Tree::Proc if first == "sys" && !self.may_set() => return Err(Errno::EROFS),
            // proc_sys_setattr.
            Tree::Proc if first == "sys" && (is_mode || change == Change::Owner) => return Err(Errno::EPERM),
            Tree::Proc if process::number(first).is_some() => {
                match (parts.next(), parts.next(), parts.next()) {
                    // The directories of processes and threads are S_IMMUTABLE.
                    (None, ..) | (Some("task"), Some(_), None) => return Err(Errno::EPERM),
                    (Some("net"), ..) | (Some("task"), _, Some("net")) => {}
                    // proc_setattr.
                    _ if is_mode => return Err(Errno::EPERM),
                    _ => {}
                }
            }
            Tree::Proc => {}
        }
        let attr = self.attr(at).ok_or(Errno::ENOENT)?;
        match change {
            // setattr_prepare: the owner, CAP_FOWNER or CAP_CHOWN.
            Change::Touch if cred.uid != attr.uid => self.permit(at, cred, MAY_WRITE),
            _ if !cred.has(FileCap::Fowner) && cred.uid != attr.uid => Err(Errno::EPERM),
            // Linux would remember it.
            Change::Mode(mode) if mode != attr.mode & 0o7777 => Err(Errno::EPERM),
            _ => Ok(()),
        }
    }

    /// What is asked beside permission bits when a file of another process is opened that shows its memory (mm_access), or of which
    /// descriptors it tells more (proc_fdinfo_access_allowed). EACCES.
    pub(crate) fn may_open(&self, at: &Synth) -> Result<(), Errno> {
        const OF_MEMORY: [&str; 8] =
            ["auxv", "environ", "maps", "mem", "numa_maps", "pagemap", "smaps", "smaps_rollup"];
        let Some((process, thread)) = self.owner(at) else { return Ok(()) };
        let path = std::str::from_utf8(&at.path).map_err(|_| Errno::ENOENT)?;
        let shares = process.mm == self.node.process(self.pid).mm || process.zombie.is_some();
        let asks = path.split('/').any(|part| part == "fdinfo")
            || !shares && path.rsplit('/').next().is_some_and(|name| OF_MEMORY.contains(&name));
        if asks && !self.node.may_trace(self.tid, thread, Asks::ForFiles) {
            return Err(Errno::EACCES);
        }
        Ok(())
    }

    /// Where an open file ends for lseek(2); `None` for those whose seek knows no end (seq_lseek, mem_lseek).
    pub(crate) fn end_of(&self, path: &[u8]) -> Option<u64> {
        let at = Synth::from_absolute(path)?;
        let path = std::str::from_utf8(&at.path).ok()?;
        match (at.tree, path.split_once('/')) {
            // generic_file_llseek.
            (Tree::Sys, _) => self.attr(&at).map(|attr| attr.size),
            (Tree::Proc, Some(("sys", _))) => Some(0),
            (Tree::Proc, None) if path == "config.gz" => self.read(&at).ok().map(|bytes| bytes.len() as u64),
            (Tree::Proc, Some((first, rest))) if process::number(first).is_some() => {
                let name = rest.rsplit('/').next().unwrap_or(rest);
                let known = [
                    "auxv",
                    "cmdline",
                    "coredump_filter",
                    "environ",
                    "loginuid",
                    "oom_adj",
                    "oom_score_adj",
                    "sessionid",
                ];
                known.contains(&name).then_some(0)
            }
            _ => None,
        }
    }
}

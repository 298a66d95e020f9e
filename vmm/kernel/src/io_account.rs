//! What tasks have read and written, as /proc/PID/io tells it (proc(5)).
//!
//! Key type: [`IoAccount`]. Neighbours: `dispatch` adds what each call has done, `procfs` shows it.

use bloodhound_abi::Errno;
use bloodhound_abi::call::Call;

use crate::ids::Tid;
use crate::node::Node;
use crate::wait::{Stop, SysResult};

/// Bytes and calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoAccount {
    /// "The number of bytes which this task has caused to be read from storage. This is simply the sum of bytes which this process passed to
    /// read(2) and similar system calls. It includes things such as terminal I/O" (proc(5)).
    pub rchar: u64,
    /// The same of write(2).
    pub wchar: u64,
    /// "The number of [...] system calls such as read(2) and pread(2)" (proc(5)).
    pub syscr: u64,
    /// The same of write(2).
    pub syscw: u64,
}

impl std::ops::AddAssign for IoAccount {
    fn add_assign(&mut self, other: IoAccount) {
        self.rchar += other.rchar;
        self.wchar += other.wchar;
        self.syscr += other.syscr;
        self.syscw += other.syscw;
    }
}

impl IoAccount {
    /// What a call that ends so adds. `None`: nothing.
    ///
    /// Linux counts in vfs_read(), vfs_write() and do_sendfile(), when the description has been found and checked, and in do_readv() and
    /// do_writev() whatever comes of them. Calls of sockets (recv(2), send(2)) and splice(2) are not counted.
    fn of(call: &Call, result: &SysResult) -> Option<IoAccount> {
        let bytes = match result {
            Ok(bytes) => *bytes,
            Err(Stop::Errno(_) | Stop::Block(_)) => 0,
            Err(_) => return None,
        };
        let found = !matches!(result, Err(Stop::Errno(Errno::EBADF | Errno::ESPIPE)));
        let read = IoAccount { rchar: bytes, syscr: 1, ..IoAccount::default() };
        let written = IoAccount { wchar: bytes, syscw: 1, ..IoAccount::default() };
        match call {
            Call::read { .. } | Call::pread64 { .. } => found.then_some(read),
            Call::write { .. } | Call::pwrite64 { .. } => found.then_some(written),
            Call::readv { .. } | Call::preadv { .. } | Call::preadv2 { .. } => Some(read),
            Call::writev { .. } | Call::pwritev { .. } | Call::pwritev2 { .. } => Some(written),
            Call::sendfile { .. } | Call::copy_file_range { .. } => result.is_ok().then(|| {
                let mut both = read;
                both += written;
                both
            }),
            _ => None,
        }
    }
}

impl Node {
    /// Counts a call that has ended, or that a signal interrupts, for its task and its process.
    pub(crate) fn account_io(&mut self, tid: Tid, call: &Call, result: &SysResult) {
        let Some(io) = IoAccount::of(call, result) else { return };
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        task.io += io;
        let pid = task.pid;
        if let Some(process) = self.processes.get_mut(&pid) {
            process.io += io;
        }
    }
}

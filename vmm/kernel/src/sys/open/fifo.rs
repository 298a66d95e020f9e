//! Opening fifos (fifo(7)): who waits for the other side, and the descriptions of the ends. Neighbour: [`crate::pipe`], which they are then.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_vfs::Ino;

use super::{NOT_KEPT, not_direct, sides};
use crate::ctx::*;
use crate::file::{File, FileKind};
use crate::ids::*;
use crate::pipe::OPENED;
use crate::task::TaskState;
use crate::wait::{Object, Progress, Restart, SysResult, Wait, WaitOn};

impl Ctx<'_> {
    /// fifo(7): "Opening a FIFO for reading or writing blocks until the other end is also opened"; nonblocking "opening
    /// for read-only succeeds even if no one has opened on the write side yet and opening for write-only fails with ENXIO
    /// unless the other end has already been opened. Under Linux, opening a FIFO for read and write will succeed both in
    /// blocking and nonblocking mode."
    ///
    /// Whoever opens the other side counts the sleeper in at once ([`Progress::Fifo`]), so that it may write and close
    /// before the sleeper runs.
    pub(super) fn open_fifo(&mut self, ino: Ino, flags: u64) -> SysResult<File> {
        // fifo_open of Linux knows no fourth mode.
        if flags & c::O_ACCMODE == c::O_ACCMODE {
            return err(Errno::EINVAL);
        }
        let (read, write) = sides(flags);
        let partner = |k: &Ctx<'_>| {
            let pipe = k.node.fifos.get(&ino).and_then(|id| k.node.pipes.get(*id));
            pipe.is_some_and(|p| if read { p.has_writers() } else { p.has_readers() })
        };
        let mut sleepers = self.fifo_sleepers(ino);
        sleepers.retain(|(_, writes)| if *writes { read } else { write });
        if !(read && write) && sleepers.is_empty() && !partner(self) {
            if flags & c::O_NONBLOCK == 0 {
                let wait = Wait::on(WaitOn::Fifo(ino)).restart(Restart::Sys);
                return Err(wait
                    .progress(Progress::Fifo { ino, write, granted: false, how: self.lookup.how })
                    .into());
            }
            if write {
                return err(Errno::ENXIO);
            }
        }
        let alone = !write && !partner(self);
        self.join_fifo(ino, read, write);
        let own = self.node.fifos.get(&ino).and_then(|id| self.node.pipes.get(*id));
        let unheard_opens = own.filter(|_| alone && sleepers.is_empty()).map_or(0, |pipe| pipe.writing_opens);
        for (tid, writes) in sleepers {
            self.node.vfs.hold(ino);
            self.join_fifo(ino, !writes, writes);
            self.node.grant_fifo(tid);
        }
        Ok(File { unheard_opens, ..fifo_file(self, ino, flags)? })
    }

    /// Tasks that sleep in an open of this fifo, and whether they want to write.
    fn fifo_sleepers(&self, ino: Ino) -> Vec<(Tid, bool)> {
        let waiting = self.node.waiters.get(&WaitOn::Fifo(ino)).into_iter().flatten();
        let wanted = waiting.filter_map(|tid| match &self.node.task(*tid).state {
            TaskState::Blocked(blocked) => match blocked.progress {
                Progress::Fifo { write, .. } => Some((*tid, write)),
                _ => None,
            },
            _ => None,
        });
        wanted.collect()
    }

    /// Counts one more open end.
    fn join_fifo(&mut self, ino: Ino, read: bool, write: bool) {
        let user = self.pipe_user();
        let node = &mut *self.node;
        let id = match node.fifos.get(&ino) {
            Some(id) => *id,
            None => {
                let id = node.new_buffer(user);
                node.fifos.insert(ino, id);
                id
            }
        };
        let pipe = &mut node.pipes[id];
        if pipe.open(read, write) {
            node.notify_object(Object::Pipe(id), OPENED);
        }
    }
}

/// The description of a fifo in which the caller has been counted. That it cannot be open with O_DIRECT is found when it is open
/// (do_dentry_open).
pub(super) fn fifo_file(k: &mut Ctx<'_>, ino: Ino, flags: u64) -> SysResult<File> {
    let pipe = *k.node.fifos.get(&ino).ok_or(Errno::ENXIO)?;
    let (read, write) = sides(flags);
    if let Err(e) = not_direct(flags) {
        k.node.close_pipe_end(pipe, read, write);
        return Err(e.into());
    }
    Ok(File::new(FileKind::Pipe { pipe, read, write, ino: Some(ino) }, flags & !NOT_KEPT | c::O_LARGEFILE))
}

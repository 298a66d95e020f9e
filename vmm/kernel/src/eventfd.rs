//! eventfd(2): a counter that can be waited for.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::buffers::Source;
use crate::ctx::{Ctx, err};
use crate::ids::*;
use crate::wait::{Object, Progress, Restart, Stop, SysResult, Wait};

/// The counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFd {
    /// Its value, at most 2^64 - 2.
    pub count: u64,
    /// EFD_SEMAPHORE: a read takes 1.
    pub semaphore: bool,
}

impl EventFd {
    /// Readiness (EPOLL* bits): not EPOLLRDNORM and EPOLLWRNORM, of which eventfd_poll of Linux knows nothing.
    pub fn ready(&self) -> u64 {
        let mut bits = 0;
        if self.count > 0 {
            bits |= c::EPOLLIN;
        }
        if self.count < u64::MAX - 1 {
            bits |= c::EPOLLOUT;
        }
        bits
    }
}

impl Ctx<'_> {
    /// "If EFD_SEMAPHORE was not specified and the eventfd counter has a nonzero value, then a read(2) returns 8 bytes
    /// containing that value, and the counter's value is reset to zero."
    pub(crate) fn eventfd_read(&mut self, id: EventId, max: usize, nonblock: bool) -> SysResult<Vec<u8>> {
        if max < 8 {
            return Err(Errno::EINVAL.into());
        }
        let e = &mut self.node.events[id];
        if e.count == 0 {
            // Not looked at again by who sleeps (wait_event_interruptible_locked_irq).
            if nonblock && self.resumed.is_none() {
                return Err(Errno::EAGAIN.into());
            }
            return Err(Wait::object(Object::Event(id)).into());
        }
        let value = if e.semaphore { 1 } else { e.count };
        e.count -= value;
        self.node.notify_object(Object::Event(id), c::EPOLLOUT as u32);
        Ok(value.to_le_bytes().to_vec())
    }

    /// write(2) and writev(2): each buffer is a write of its own, for eventfd(2) knows no vectors (`do_loop_readv_writev`). `done` bytes
    /// were written before the call slept.
    pub(crate) fn eventfd_write(
        &mut self,
        id: EventId,
        from: &Source,
        mut done: u64,
        nonblock: bool,
    ) -> SysResult {
        let begun = done;
        loop {
            let len = from.next_vector(done);
            // Not looked at again by who sleeps.
            let nonblock = nonblock && (self.resumed.is_none() || done > begun);
            match self.eventfd_add(id, from, (done, len), nonblock) {
                Ok(()) => done += 8,
                Err(Stop::Errno(_)) if done > 0 => return Ok(done),
                Err(Stop::Block(mut sleep)) if done > 0 => {
                    sleep.wait.restart = Restart::Partial(done);
                    sleep.progress = Progress::Write { source: from.clone(), done };
                    return Err(Stop::Block(sleep));
                }
                Err(stop) => return Err(stop),
            }
            if len != 8 || done == from.len() {
                return Ok(done);
            }
        }
    }

    /// Adds to the counter what a buffer of `len` bytes at `at` says; blocks at the maximum.
    fn eventfd_add(
        &mut self,
        id: EventId,
        from: &Source,
        (at, len): (u64, u64),
        nonblock: bool,
    ) -> SysResult<()> {
        if len < 8 {
            return err(Errno::EINVAL);
        }
        let data = self.source_bytes(from, at, 8)?;
        let value = data.first_chunk::<8>().map(|b| u64::from_le_bytes(*b)).ok_or(Errno::EINVAL)?;
        if value == u64::MAX {
            return err(Errno::EINVAL);
        }
        let e = &mut self.node.events[id];
        if u64::MAX - 1 - e.count < value {
            if nonblock {
                return err(Errno::EAGAIN);
            }
            return Err(Wait::object(Object::Event(id)).into());
        }
        e.count += value;
        self.node.notify_object(Object::Event(id), c::EPOLLIN as u32);
        Ok(())
    }
}

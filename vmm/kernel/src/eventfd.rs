//! eventfd(2): a counter that can be waited for.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::ctx::Ctx;
use crate::ids::*;
use crate::wait::{Object, SysResult, Wait};

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
            if nonblock {
                return Err(Errno::EAGAIN.into());
            }
            return Err(Wait::object(Object::Event(id)).into());
        }
        let value = if e.semaphore { 1 } else { e.count };
        e.count -= value;
        self.node.notify_object(Object::Event(id), c::EPOLLOUT as u32);
        Ok(value.to_le_bytes().to_vec())
    }

    /// Adds to the counter; blocks at the maximum.
    pub(crate) fn eventfd_write(&mut self, id: EventId, data: &[u8], nonblock: bool) -> SysResult {
        let value = data.first_chunk::<8>().map(|b| u64::from_le_bytes(*b)).ok_or(Errno::EINVAL)?;
        if value == u64::MAX {
            return Err(Errno::EINVAL.into());
        }
        let e = &mut self.node.events[id];
        if u64::MAX - 1 - e.count < value {
            if nonblock {
                return Err(Errno::EAGAIN.into());
            }
            return Err(Wait::object(Object::Event(id)).into());
        }
        e.count += value;
        self.node.notify_object(Object::Event(id), c::EPOLLIN as u32);
        Ok(8)
    }
}

//! How calls on sockets sleep: all who sleep look again when something happens, or those who receive packets and connections in their
//! order ([`crate::line`]).

use bloodhound_abi::Errno;

use crate::ctx::*;
use crate::line::End;
use crate::unix::Stall;
use crate::wait::{Object, Restart, SysResult, Wait};

impl Ctx<'_> {
    /// The wait of a socket call. signal(7): socket interfaces with a timeout "fail with the error EINTR" after a
    /// handler, whatever SA_RESTART says.
    pub(crate) fn socket_wait(&self, object: Object, timeout: Option<u64>) -> Wait {
        let restart = if timeout.is_some() { Restart::Never } else { Restart::Sys };
        Wait::object(object).deadline(self.deadline(timeout)).restart(restart)
    }

    /// As [`Ctx::socket_wait`], for what Linux gives to the sleepers first come first.
    pub(crate) fn wait_in_line(&mut self, object: Object, timeout: Option<u64>) -> Wait {
        let wait = self.socket_wait(object, timeout);
        self.line_up(object, End::Read, false, wait)
    }

    /// Goes on sleeping where all of so many things at a socket are for others who came before.
    pub(crate) fn keep_in_line(
        &mut self,
        object: Object,
        things: usize,
        timeout: Option<u64>,
    ) -> SysResult<()> {
        let waits = things > 0 && self.is_behind_for(object, things) && !self.must_not_sleep(false, timeout);
        if waits { Err(self.wait_in_line(object, timeout).into()) } else { Ok(()) }
    }

    /// Turns the result of an operation on unix sockets into that of a call, after telling those whom it affects.
    pub(crate) fn unix_result<T>(
        &mut self,
        result: Result<T, Stall>,
        nonblock: bool,
        timeout: Option<u64>,
    ) -> SysResult<T> {
        self.unix_outcome(result, nonblock, timeout, |k, object| k.socket_wait(object, timeout))
    }

    /// The same of what waits for a packet or a connection.
    pub(crate) fn unix_received<T>(
        &mut self,
        result: Result<T, Stall>,
        nonblock: bool,
        timeout: Option<u64>,
    ) -> SysResult<T> {
        self.unix_outcome(result, nonblock, timeout, |k, object| k.wait_in_line(object, timeout))
    }

    fn unix_outcome<T>(
        &mut self,
        result: Result<T, Stall>,
        nonblock: bool,
        timeout: Option<u64>,
        wait: impl FnOnce(&mut Self, Object) -> Wait,
    ) -> SysResult<T> {
        self.node.settle_unix(self.outside.base);
        match result {
            Ok(value) => Ok(value),
            Err(Stall::Errno(e)) => err(e),
            Err(Stall::Until(_)) if self.must_not_sleep(nonblock, timeout) => err(Errno::EAGAIN),
            Err(Stall::Until(id)) => Err(wait(self, Object::Unix(id)).into()),
        }
    }
}

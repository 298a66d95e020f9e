//! How calls on sockets sleep: all who sleep look again when something happens, or those who receive packets and connections in their
//! order ([`crate::line`]).

use bloodhound_abi::Errno;

use crate::ctx::*;
use crate::ids::UnixId;
use crate::line::End;
use crate::unix::Stall;
use crate::wait::{Object, Restart, SysResult, Wait, WaitOn};

impl Ctx<'_> {
    /// The wait of a socket call. signal(7): socket interfaces with a timeout "fail with the error EINTR" after a
    /// handler, whatever SA_RESTART says.
    pub(crate) fn socket_wait(&self, object: Object, timeout: Option<u64>) -> Wait {
        self.socket_wait_on(WaitOn::Object(object), timeout)
    }

    fn socket_wait_on(&self, on: WaitOn, timeout: Option<u64>) -> Wait {
        let restart = if timeout.is_some() { Restart::Never } else { Restart::Sys };
        Wait::on(on).deadline(self.deadline(timeout)).restart(restart)
    }

    /// The unix socket for room in whose queue the call has slept.
    pub(crate) fn slept_for_room_at(&self) -> Option<UnixId> {
        self.resumed.as_ref()?.wait.on.iter().find_map(|on| match on {
            WaitOn::UnixRoom(id) => Some(*id),
            _ => None,
        })
    }

    /// Goes on sleeping for room in the queue of another unix socket: a signal counts before anything else, and whatever became of that socket
    /// is seen only when there is room, or nobody to have any (unix_wait_for_peer).
    pub(crate) fn keep_waiting_for_room(&mut self, sender: Option<UnixId>) -> SysResult<()> {
        let Some(at) = self.slept_for_room_at() else { return Ok(()) };
        let waits = !self.timed_out() && self.node.unix.is_full(at);
        let signalled = self.node.signal_deliverable(self.tid);
        match self.sleep_on() {
            Some(stop) if waits || signalled => {
                // The message of a call that ends is freed, which makes room (sock_wfree).
                if let Some(id) = sender.filter(|_| signalled) {
                    self.node.unix.not_sent(id);
                    self.node.settle_unix(self.outside.base);
                }
                stop
            }
            _ => Ok(()),
        }
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
            Err(Stall::Until(_) | Stall::Room(_)) if self.must_not_sleep(nonblock, timeout) => {
                err(Errno::EAGAIN)
            }
            Err(Stall::Room(id)) => Err(self.socket_wait_on(WaitOn::UnixRoom(id), timeout).into()),
            Err(Stall::Until(id)) => Err(wait(self, Object::Unix(id)).into()),
        }
    }
}

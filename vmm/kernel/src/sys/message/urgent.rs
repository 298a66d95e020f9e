//! Urgent bytes of streams (MSG_OOB).

use bloodhound_abi::Errno;
use bloodhound_net::SocketId;

use super::{Got, Incoming};
use crate::ctx::*;
use crate::ids::*;
use crate::unix::Kind;
use crate::wait::SysResult;

impl Ctx<'_> {
    /// recv(2) with MSG_OOB: the urgent byte, which does not count as data that was read (tcp_recv_urg).
    pub(super) fn recv_urgent(&mut self, id: SocketId, want: &Incoming) -> SysResult<Got> {
        let peek = want.flags.contains(MsgFlags::MSG_PEEK);
        let Some(byte) = self.node.net.of_mut(id).recv_urgent(id, peek)? else { return Ok(Got::default()) };
        let mut got = Got { flags: MsgFlags::MSG_OOB, ..Got::default() };
        if want.buffers.is_empty() {
            got.flags |= MsgFlags::MSG_TRUNC;
            return Ok(got);
        }
        if !want.flags.contains(MsgFlags::MSG_TRUNC) {
            self.copy_out(&want.buffers, 0, &[byte])?;
        }
        got.value = 1;
        Ok(got)
    }

    /// The same of a unix socket, which is not asked how much room there is (unix_stream_recv_urg).
    pub(super) fn recv_unix_urgent(&mut self, id: UnixId, want: &Incoming) -> SysResult<Got> {
        match self.node.unix.get(id).kind {
            Kind::Stream => {}
            Kind::SeqPacket if self.node.unix.peer_name(id).is_err() => return err(Errno::ENOTCONN),
            _ => return err(Errno::EOPNOTSUPP),
        }
        let byte = self.node.unix.recv_urgent(id, want.flags.contains(MsgFlags::MSG_PEEK))?;
        self.node.settle_unix(self.outside.base);
        if !want.buffers.is_empty() {
            self.copy_out(&want.buffers, 0, &[byte])?;
        }
        Ok(Got { value: 1, flags: MsgFlags::MSG_OOB, ..Got::default() })
    }
}

//! Sending to and receiving from netlink sockets.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use super::transfer::truncation;
use super::{Got, Incoming, Outgoing};
use crate::ctx::*;
use crate::ids::*;
use crate::netlink::{SOL_NETLINK, address, option};
use crate::wait::{Object, SysResult};

impl Ctx<'_> {
    pub(super) fn send_to_netlink(&mut self, id: NetlinkId, msg: &Outgoing) -> SysResult {
        let len = msg.source.len();
        self.send_netlink(id, msg.to.as_ref(), len, |k| {
            k.source_bytes(&msg.source, 0, len).map(|b| b.into_owned())
        })
    }

    pub(super) fn recv_netlink(&mut self, id: NetlinkId, want: &Incoming) -> SysResult<Got> {
        let timeout = self.node.netlinks[id].generic.rcvtimeo;
        if std::mem::take(&mut self.node.netlinks[id].overrun) {
            return err(Errno::ENOBUFS);
        }
        self.keep_in_line(Object::Netlink(id), self.node.netlinks[id].queue.len(), timeout)?;
        let Some(datagram) = self.node.netlinks[id].queue.front().cloned() else {
            if self.must_not_sleep(want.nonblock, timeout) {
                return err(Errno::EAGAIN);
            }
            return Err(self.wait_in_line(Object::Netlink(id), timeout).into());
        };
        let peek = want.flags.contains(MsgFlags::MSG_PEEK);
        if !peek {
            self.node.netlinks[id].queue.pop_front();
        }
        self.has_got(Object::Netlink(id), peek);
        let whole = datagram.data.len() as u64;
        let n = whole.min(want.buffers.len());
        self.copy_out(&want.buffers, 0, &datagram.data[..n as usize])?;
        let socket = &self.node.netlinks[id];
        let mut got = Got { name: address(0, 0), passcred: socket.passcred, ..Got::default() };
        if socket.has(option::PKTINFO) {
            // struct nl_pktinfo: no group.
            got.control.push((SOL_NETLINK, option::PKTINFO, vec![0; 4]));
        }
        if socket.passcred {
            // The kernel's: process 0, user 0, group 0.
            got.control.push((c::SOL_SOCKET, c::SCM_CREDENTIALS, vec![0; 12]));
        }
        truncation(&mut got, want.flags, n, whole);
        Ok(got)
    }
}

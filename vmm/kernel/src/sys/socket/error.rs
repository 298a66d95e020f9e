//! The error that a socket keeps for the next call (`sk_err`).

use bloodhound_abi::Errno;

use super::Sock;
use crate::ctx::*;

impl Ctx<'_> {
    /// Takes the pending error (`sock_error`).
    pub(crate) fn take_socket_error(&mut self, sock: Sock) -> Result<Option<Errno>, Errno> {
        match sock {
            Sock::Inet(id) | Sock::Packet(id) => self.node.net.of_mut(id).take_error(id),
            Sock::Unix(id) => Ok(self.node.unix.take_error(id)),
            Sock::Netlink(id) => {
                let overrun = std::mem::take(&mut self.node.netlinks[id].overrun);
                Ok(overrun.then_some(Errno::ENOBUFS))
            }
        }
    }

    /// Leaves an error to the next call, without telling anybody that there is one. A netlink socket has no place for it.
    pub(crate) fn keep_socket_error(&mut self, sock: Sock, error: Errno) -> Result<(), Errno> {
        match sock {
            Sock::Inet(id) | Sock::Packet(id) => self.node.net.of_mut(id).keep_error(id, error)?,
            Sock::Unix(id) => self.node.unix.get_mut(id).error = Some(error),
            Sock::Netlink(_) => {}
        }
        Ok(())
    }
}

//! The one way out of and the one way into a socket, for each kind of socket.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_net::{Proto, ReadyFlags, SocketId, TcpState};

use super::{CHUNK, Got, Incoming, Outgoing};
use crate::ctx::*;
use crate::fasync::{Band, Waking};
use crate::mm::Access;
use crate::sys::socket::{Sock, connect_inet};
use crate::sys::sockopt::TCP_FASTOPEN_NO_COOKIE;
use crate::unix::Kind;
use crate::wait::{Object, Progress, Restart, Stop, SysResult, Wait, WaitOn};

impl Ctx<'_> {
    /// Sends a message, or what is left of one whose sending slept; the result counts from its start.
    pub(super) fn send_message(&mut self, sock: Sock, mut msg: Outgoing) -> SysResult {
        let tcp = matches!(sock, Sock::Inet(id) if self.inet(id)?.proto == Proto::Tcp);
        if let Sock::Inet(id) = sock {
            self.node.net.of_mut(id).prepare_to_send(id)?;
        }
        let unix = matches!(sock, Sock::Unix(_));
        if msg.flags.contains(MsgFlags::MSG_OOB) && !tcp && !unix {
            return err(Errno::EOPNOTSUPP);
        }
        let mut result = match sock {
            Sock::Inet(id) if tcp => self.send_tcp(id, &mut msg),
            Sock::Inet(id) => self.send_udp(id, &msg),
            Sock::Unix(id) if self.node.unix.get(id).kind == Kind::Stream => {
                self.send_unix_stream(id, &mut msg)
            }
            Sock::Unix(id) => self.send_unix_packet(id, &mut msg),
            Sock::Netlink(id) => self.send_to_netlink(id, &msg),
            Sock::Packet(id) => self.send_packet(id, &msg),
        };
        self.note_lack_of_room(sock, &result, msg.source.len());
        match &mut result {
            Ok(sent) => self.charge_moved(*sent),
            Err(Stop::Block(sleep)) => {
                self.charge_moved(msg.done);
                sleep.progress = Progress::Send(Box::new(msg));
            }
            Err(_) => {}
        }
        result
    }

    /// Whether the socket is one that tells its owner when there is room: one that had none for what was sent, unless the sender sleeps for it
    /// itself (`sock_alloc_send_pskb`, `sk_stream_wait_memory`). Each send over TCP looks anew (tcp_sendmsg_locked).
    fn note_lack_of_room(&mut self, sock: Sock, result: &SysResult, whole: u64) {
        let short = match result {
            Ok(sent) => *sent < whole,
            Err(stop) => *stop == Stop::Errno(Errno::EAGAIN),
        };
        let sleeps = matches!(result, Err(Stop::Block(_)));
        match sock {
            Sock::Unix(id) if (short || sleeps) && !self.node.unix.is_roomy(id) => {
                self.node.lacks_room(Object::Unix(id), short);
            }
            Sock::Inet(id) => self.node.lacks_room(Object::Inet(id), short),
            Sock::Unix(_) | Sock::Packet(_) | Sock::Netlink(_) => {}
        }
    }

    /// Whether a signal ends the sleep of this call before it looks whether it could go on: where Linux, after a sleep, asks
    /// `signal_pending` first.
    pub(super) fn signal_first(&self) -> bool {
        self.resumed.is_some() && self.node.signal_deliverable(self.tid)
    }

    /// Whether the call has slept until this object changes.
    pub(super) fn slept_on(&self, object: Object) -> bool {
        self.resumed.as_ref().is_some_and(|r| r.wait.on.contains(&WaitOn::Object(object)))
    }

    /// The end of a transfer that cannot go on after `done` bytes: a short count, EAGAIN, or sleep.
    pub(super) fn short(
        &mut self,
        object: Object,
        done: u64,
        nonblock: bool,
        timeout: Option<u64>,
    ) -> SysResult {
        if self.must_not_sleep(nonblock, timeout) {
            return if done > 0 { Ok(done) } else { err(Errno::EAGAIN) };
        }
        Err(self.partial_wait(object, done, timeout).into())
    }

    /// The wait of a transfer of which `done` bytes have gone: a signal ends it with them.
    pub(super) fn partial_wait(&self, object: Object, done: u64, timeout: Option<u64>) -> Wait {
        let wait = self.socket_wait(object, timeout);
        if done > 0 { wait.restart(Restart::Partial(done)) } else { wait }
    }

    /// EPIPE with its signal, unless the caller does not want it.
    pub(super) fn broken_pipe<T>(&mut self, flags: MsgFlags) -> SysResult<T> {
        if !flags.contains(MsgFlags::MSG_NOSIGNAL) {
            self.raise_sigpipe();
        }
        err(Errno::EPIPE)
    }

    fn send_tcp(&mut self, id: SocketId, msg: &mut Outgoing) -> SysResult {
        if msg.flags.contains(MsgFlags::MSG_FASTOPEN) && msg.done == 0 {
            self.open_by_sending(id, msg)?;
        }
        let (total, timeout) = (msg.source.len(), self.inet(id)?.generic.sndtimeo);
        if msg.done == 0 {
            self.check_tcp_control(id, msg)?;
        }
        let ready = self.node.net.of(id).readiness(id);
        // After a sleep sk_stream_wait_memory looks for errors, the timeout, a signal and room, in this order. Who sleeps for
        // room waits for as much as makes the socket writable (sk_stream_write_space), not for the first byte.
        if self.resumed.is_some() && !ready.intersects(ReadyFlags::ERR | ReadyFlags::HUP) {
            if self.timed_out() || !ready.contains(ReadyFlags::WRITE) && !self.signal_first() {
                return self.short(Object::Inet(id), msg.done, msg.nonblock, timeout);
            }
            if self.signal_first() {
                return Err(self.partial_wait(Object::Inet(id), msg.done, timeout).into());
            }
        }
        let waits = !self.must_not_sleep(msg.nonblock, timeout);
        let plain = !msg.flags.intersects(MsgFlags::MSG_OOB | MsgFlags::MSG_MORE);
        let part = if waits || !plain || !msg.is_of_program() { None } else { self.sends_part(id, total) };
        let result = self.send_tcp_bytes(id, msg, part.unwrap_or(total), timeout);
        if let Some(part) = part
            && matches!(result, Ok(sent) if sent == part)
        {
            self.node.net.of_mut(id).lacks_space(id);
            self.sent_part(part, total);
        }
        result
    }

    /// What comes along is looked at when there is a connection, and anything that is wrong with it is EINVAL (tcp_sendmsg_locked).
    fn check_tcp_control(&self, id: SocketId, msg: &Outgoing) -> SysResult<()> {
        let connected =
            matches!(self.node.net.of(id).state(id), Some(TcpState::Established | TcpState::CloseWait));
        match self.inet_control(id, &msg.control) {
            Err(Stop::Errno(_)) if connected => err(Errno::EINVAL),
            Err(stop @ Stop::Unsupported(_)) if connected => Err(stop),
            _ => Ok(()),
        }
    }

    /// MSG_FASTOPEN of a client that has no cookie of this server, as no server here gives any: it connects, and its data follow
    /// (tcp_sendmsg_fastopen, __inet_stream_connect).
    fn open_by_sending(&mut self, id: SocketId, msg: &Outgoing) -> SysResult<()> {
        if msg.to.as_ref().is_some_and(|to| to.family() == Some(c::AF_UNSPEC)) {
            return err(Errno::EOPNOTSUPP);
        }
        if self.inet(id)?.generic.is_set(c::IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE) {
            return Err(Stop::Unsupported("MSG_FASTOPEN of a socket with TCP_FASTOPEN_NO_COOKIE".into()));
        }
        if let Some(stop) = self.sleep_on()
            && !self.timed_out()
            && self.signal_first()
        {
            return stop;
        }
        let timeout = self.inet(id)?.generic.sndtimeo;
        match connect_inet(self, id, msg.to.as_ref(), msg.nonblock, timeout) {
            // It has slept for the connection, and then for room.
            Err(Stop::Errno(Errno::EISCONN)) if self.resumed.is_some() => Ok(()),
            other => other.map(drop),
        }
    }

    /// Sends up to `total` bytes.
    fn send_tcp_bytes(
        &mut self,
        id: SocketId,
        msg: &mut Outgoing,
        total: u64,
        timeout: Option<u64>,
    ) -> SysResult {
        loop {
            let done = msg.done;
            // An error that comes after part of the data stays for the next call.
            if done > 0 && (done == total || self.node.net.of(id).readiness(id).contains(ReadyFlags::ERR)) {
                return Ok(done);
            }
            let data = match self.source_bytes(&msg.source, done, CHUNK.min(total - done)) {
                Ok(data) => data,
                Err(_) if done > 0 => return Ok(done),
                // That nothing can be sent is found out before the memory is looked at (tcp_sendmsg_locked in Linux).
                Err(e) => {
                    let now = self.node.clock;
                    return match self.node.net.of_mut(id).send(id, &[], false, now) {
                        Err(Errno::EPIPE) => self.broken_pipe(msg.flags),
                        Err(Errno::EAGAIN) => self.short(Object::Inet(id), done, msg.nonblock, timeout),
                        Err(other) => err(other),
                        Ok(_) => err(e),
                    };
                }
            };
            let last = done + (data.len() as u64) == total;
            let more = msg.flags.contains(MsgFlags::MSG_MORE) || !last;
            let (now, stack) = (self.node.clock, self.node.net.of_mut(id));
            let sent = match msg.flags.contains(MsgFlags::MSG_OOB) && last {
                true => stack.send_urgent(id, &data, now),
                false => stack.send(id, &data, more, now),
            };
            match sent {
                Ok(0) if total > 0 => return self.short(Object::Inet(id), done, msg.nonblock, timeout),
                Ok(n) => msg.done += n as u64,
                Err(Errno::EAGAIN) => return self.short(Object::Inet(id), done, msg.nonblock, timeout),
                Err(_) if done > 0 => return Ok(done),
                Err(Errno::EPIPE) => return self.broken_pipe(msg.flags),
                Err(e) => return err(e),
            }
            if msg.done == total {
                return Ok(total);
            }
        }
    }

    /// Receives a message, or what is left of one whose reception slept. Flags that Linux ignores are ignored.
    pub(super) fn recv_message(&mut self, sock: Sock, mut want: Incoming) -> SysResult<Got> {
        let tcp = matches!(sock, Sock::Inet(id) if self.inet(id)?.proto == Proto::Tcp);
        match sock {
            // Before MSG_OOB (tcp_recvmsg).
            Sock::Inet(id) if want.flags.contains(MsgFlags::MSG_ERRQUEUE) => {
                return self.recv_report(id, &want);
            }
            Sock::Packet(_) if want.flags.contains(MsgFlags::MSG_ERRQUEUE) => return err(Errno::EAGAIN),
            Sock::Inet(id) if tcp && want.flags.contains(MsgFlags::MSG_OOB) => {
                return self.recv_urgent(id, &want);
            }
            Sock::Unix(id) if want.flags.contains(MsgFlags::MSG_OOB) => {
                return self.recv_unix_urgent(id, &want);
            }
            Sock::Netlink(_) if want.flags.contains(MsgFlags::MSG_OOB) => return err(Errno::EOPNOTSUPP),
            _ => {}
        }
        let mut result = match sock {
            Sock::Inet(id) if tcp => self.recv_tcp(id, &mut want),
            Sock::Inet(id) => self.recv_udp(id, &want),
            Sock::Unix(id) if self.node.unix.get(id).kind == Kind::Stream => {
                self.recv_unix_stream(id, &mut want)
            }
            Sock::Unix(id) => self.recv_unix_packet(id, &want),
            Sock::Netlink(id) => self.recv_netlink(id, &want),
            Sock::Packet(id) => self.recv_packet(id, &want),
        };
        match &mut result {
            Ok(got) => self.charge_moved(got.value),
            Err(Stop::Block(sleep)) => {
                self.charge_moved(want.done);
                sleep.progress = Progress::Receive(Box::new(want));
            }
            Err(_) => {}
        }
        result
    }

    /// How many bytes a stream must have before the call returns ("target" of tcp_recvmsg).
    pub(super) fn target(&self, want: &Incoming, lowat: u64) -> u64 {
        match want.buffers.len() {
            len if want.flags.contains(MsgFlags::MSG_WAITALL) => len,
            len => lowat.min(len).max(1),
        }
    }

    fn recv_tcp(&mut self, id: SocketId, want: &mut Incoming) -> SysResult<Got> {
        let (total, timeout) = (want.buffers.len(), self.inet(id)?.generic.rcvtimeo);
        let target = self.target(want, u64::from(self.node.net.of(id).options(id)?.rcvlowat));
        let peek = want.flags.contains(MsgFlags::MSG_PEEK);
        // "MSG_TRUNC ... causes the received bytes of data to be discarded, rather than passed back" (tcp(7)).
        let discard = want.flags.contains(MsgFlags::MSG_TRUNC);
        // Who sleeps is woken when SO_RCVLOWAT bytes are there (tcp_data_ready), whatever the call has taken before.
        let ready = ReadyFlags::READ | ReadyFlags::RDHUP | ReadyFlags::HUP | ReadyFlags::ERR;
        if self.woken_by_event_only() && !self.node.net.of(id).readiness(id).intersects(ready) {
            want.done = self.short(Object::Inet(id), want.done, want.nonblock, timeout)?;
            return self.got_of_tcp(id, want);
        }
        loop {
            let done = want.done;
            let here = self.node.net.of(id).readiness(id);
            if done > 0 && (here.contains(ReadyFlags::ERR) || self.node.net.of(id).at_mark(id)) {
                break;
            }
            let there = self.node.net.of(id).next_piece(id) as u64;
            let n = (total - done).min(there);
            let short = self.read_short(id, (done, n, target), peek, here);
            let n = short.unwrap_or(n);
            // What is there lies in one buffer, which is copied as a whole or not at all (skb_copy_datagram_iter).
            if !discard && self.good(&want.buffers, done, n, Access::Write) < n {
                if done > 0 {
                    break;
                }
                return err(Errno::EFAULT);
            }
            // With nothing to read or no room a byte is asked for all the same, unseen: it tells of the end and of errors.
            // The urgent byte alone is passed.
            let probe = n == 0 && (peek || done == total || !self.node.net.of(id).at_mark(id));
            let mut buf = vec![0; n.max(1) as usize];
            let now = self.node.clock;
            match self.node.net.of_mut(id).recv(id, &mut buf, peek || probe, now) {
                Ok(0) => break,
                Ok(_) if probe => break,
                Ok(n) => {
                    if !discard {
                        self.copy_out(&want.buffers, done, &buf[..n])?;
                    }
                    want.came = self.node.net.of(id).read_of(id);
                    let marked = peek && there < self.node.net.of(id).received_bytes(id) as u64;
                    let ended = here.intersects(ReadyFlags::RDHUP | ReadyFlags::HUP) || marked;
                    let seen = done + n as u64;
                    if peek && seen < target && !ended && !self.must_not_sleep(want.nonblock, timeout) {
                        return Err(self.socket_wait(Object::Inet(id), timeout).into());
                    }
                    want.done = seen;
                    if short.is_some() {
                        // The rest comes now: whoever waits for edges gets one.
                        self.node.notify_object(Object::Inet(id), (c::EPOLLIN | c::EPOLLRDNORM) as u32);
                        self.node.socket_async(Object::Inet(id), Waking::Data, Band::In);
                    }
                    if seen >= target || peek {
                        break;
                    }
                }
                Err(Errno::EAGAIN) => {
                    want.done = self.short(Object::Inet(id), done, want.nonblock, timeout)?;
                    break;
                }
                Err(_) if done > 0 => break,
                Err(e) => return err(e),
            }
        }
        self.got_of_tcp(id, want)
    }

    /// What has come of a stream, with the time of its last segment (`tcp_recv_timestamp`), and how much is left of it (TCP_INQ).
    fn got_of_tcp(&self, id: SocketId, want: &Incoming) -> SysResult<Got> {
        let generic = &self.inet(id)?.generic;
        let times = want.came.map(|came| super::datagram::timestamps(generic, self.node.realtime_at(came)));
        let mut control = times.unwrap_or_default();
        if generic.is_set(c::IPPROTO_TCP, c::TCP_INQ) {
            use TcpState::{CloseWait, Closing, LastAck, TimeWait};
            let stack = self.node.net.of(id);
            // "After receiving a FIN, tell the user-space to continue reading by returning a non-zero inq" (tcp_inq_hint).
            let ended = matches!(stack.state(id), Some(CloseWait | Closing | LastAck | TimeWait));
            let left = stack.received_bytes(id) as i32 + i32::from(ended);
            control.push((c::IPPROTO_TCP, c::TCP_INQ, left.to_le_bytes().to_vec()));
        }
        Ok(Got { value: want.done, control, ..Got::default() })
    }
}

/// Result and MSG_TRUNC of a packet of `whole` bytes of which `n` were stored. recv(2): MSG_TRUNC as argument returns "the
/// real length of the packet or datagram".
pub(super) fn truncation(got: &mut Got, flags: MsgFlags, n: u64, whole: u64) {
    if n < whole {
        got.flags |= MsgFlags::MSG_TRUNC;
    }
    got.value = if flags.contains(MsgFlags::MSG_TRUNC) { whole } else { n };
}

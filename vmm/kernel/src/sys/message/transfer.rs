//! The one way out of and the one way into a socket, for each kind of socket.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Ucred;
use bloodhound_net::{Proto, ReadyFlags, SocketId, TcpState};
use zerocopy::IntoBytes;

use super::{CHUNK, Got, Incoming, Outgoing};
use crate::caps::{CAP_SYS_ADMIN, CAP_SYS_RESOURCE};
use crate::ctx::*;
use crate::ids::*;
use crate::mm::Access;
use crate::socket::unix_bytes;
use crate::sys::socket::{Sock, connect_inet};
use crate::sys::sockopt::TCP_FASTOPEN_NO_COOKIE;
use crate::unix::{Ancillary, Kind, Received, Stall, Wanted};
use crate::wait::{Object, Progress, Restart, Stop, SysResult, Wait, WaitOn};

/// The user that SO_PASSCRED shows when the sender is unknown (the overflow id).
const NOBODY: u32 = 65534;

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
            Sock::Unix(id) => self.send_unix_packet(id, &msg),
            Sock::Netlink(id) => self.send_to_netlink(id, &msg),
            Sock::Packet(id) => self.send_packet(id, &msg),
        };
        let short = match &result {
            Ok(sent) => *sent < msg.source.len(),
            Err(stop) => matches!(stop, Stop::Block(_) | Stop::Errno(Errno::EAGAIN)),
        };
        if short {
            let object = match sock {
                Sock::Inet(id) | Sock::Packet(id) => Object::Inet(id),
                Sock::Unix(id) => Object::Unix(id),
                Sock::Netlink(id) => Object::Netlink(id),
            };
            self.node.lacks_room(object);
        }
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

    /// Whether a signal ends the sleep of this call before it looks whether it could go on: where Linux, after a sleep, asks
    /// `signal_pending` first.
    fn signal_first(&self) -> bool {
        self.resumed.is_some() && self.node.signal_deliverable(self.tid)
    }

    /// Whether the call has slept until this object changes.
    fn slept_on(&self, object: Object) -> bool {
        self.resumed.as_ref().is_some_and(|r| r.wait.on.contains(&WaitOn::Object(object)))
    }

    /// The end of a transfer that cannot go on after `done` bytes: a short count, EAGAIN, or sleep.
    fn short(&mut self, object: Object, done: u64, nonblock: bool, timeout: Option<u64>) -> SysResult {
        if self.must_not_sleep(nonblock, timeout) {
            return if done > 0 { Ok(done) } else { err(Errno::EAGAIN) };
        }
        Err(self.partial_wait(object, done, timeout).into())
    }

    /// The wait of a transfer of which `done` bytes have gone: a signal ends it with them.
    fn partial_wait(&self, object: Object, done: u64, timeout: Option<u64>) -> Wait {
        let wait = self.socket_wait(object, timeout);
        if done > 0 { wait.restart(Restart::Partial(done)) } else { wait }
    }

    /// EPIPE with its signal, unless the caller does not want it.
    fn broken_pipe<T>(&mut self, flags: MsgFlags) -> SysResult<T> {
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

    fn send_unix_stream(&mut self, id: UnixId, msg: &mut Outgoing) -> SysResult {
        let oob = msg.flags.contains(MsgFlags::MSG_OOB);
        if oob && msg.source.is_empty() {
            return err(Errno::EOPNOTSUPP);
        }
        if msg.to.is_some() {
            let connected = self.node.unix.peer_name(id).is_ok();
            return err(if connected { Errno::EISCONN } else { Errno::EOPNOTSUPP });
        }
        let (total, timeout) = (msg.source.len(), self.node.unix.get(id).generic.sndtimeo);
        // Who sleeps for room is woken when the socket is writable (unix_write_space), not when the first byte fits.
        if self.woken_by_event_only() && !self.node.unix.sender_may_go_on(id) {
            return self.short(Object::Unix(id), msg.done, msg.nonblock, timeout);
        }
        let piece = self.node.unix.stream_piece(id) as u64;
        let may = !oob && self.must_not_sleep(msg.nonblock, timeout) && msg.is_of_program();
        let part = if may { self.sends_pieces(total, piece) } else { None };
        loop {
            let done = msg.done;
            if part == Some(done) {
                self.sent_part(done, total);
                return Ok(done);
            }
            if done > 0 && done == total {
                return Ok(done);
            }
            // Before the memory of the program is looked at (unix_stream_sendmsg in Linux).
            match self.node.unix.stream_receiver(id) {
                Err(_) if done > 0 => return Ok(done),
                Err(Errno::EPIPE) => return self.broken_pipe(msg.flags),
                receiver => receiver?,
            };
            // Also room comes first (sock_alloc_send_pskb).
            if done < total && !self.node.unix.has_room(id) {
                return self.short(Object::Unix(id), done, msg.nonblock, timeout);
            }
            // A message of the socket takes all of its bytes or none; an urgent byte is one of its own (queue_oob).
            let urgent = oob && done + 1 == total;
            let most = if oob && !urgent { piece.min(total - 1 - done) } else { piece };
            let data = match self.source_bytes(&msg.source, done, most) {
                Ok(data) => data,
                Err(_) if done > 0 => return Ok(done),
                Err(e) => return err(e),
            };
            let mut anc = Ancillary { urgent, ..msg.control.unix.clone() };
            if done > 0 {
                anc.files.clear();
            }
            let result = self.pass_files(anc, |k, anc| k.node.unix.send_stream(id, &data, anc));
            self.node.settle_unix(self.outside.base);
            match result {
                Ok(n) => msg.done += n as u64,
                Err(Stall::Until(on)) => return self.short(Object::Unix(on), done, msg.nonblock, timeout),
                Err(Stall::Errno(_)) if done > 0 => return Ok(done),
                Err(Stall::Errno(Errno::EPIPE)) => return self.broken_pipe(msg.flags),
                Err(Stall::Errno(e)) => return err(e),
            }
            if msg.done == total {
                return Ok(total);
            }
        }
    }

    /// Gives the message a reference to each of its files for the time that `send` needs, and for good if that took them.
    fn pass_files<T: Default + PartialEq, E: From<Errno>>(
        &mut self,
        anc: Ancillary,
        send: impl FnOnce(&mut Self, Ancillary) -> Result<T, E>,
    ) -> Result<T, E> {
        // "ETOOMANYREFS This error can occur for sendmsg(2) when sending a file descriptor as ancillary data over a UNIX domain
        // socket [...]. It occurs if the number of "in-flight" file descriptors exceeds the RLIMIT_NOFILE resource limit and the
        // caller does not have the CAP_SYS_RESOURCE capability" (unix(7)), nor CAP_SYS_ADMIN (too_many_unix_fds).
        let (most, caps) = (self.process().limits[c::RLIMIT_NOFILE as usize].cur, &self.credentials().caps);
        let exempt = caps.has(CAP_SYS_RESOURCE) || caps.has(CAP_SYS_ADMIN);
        if !anc.files.is_empty() && !exempt && self.node.unix.flights.of_user(anc.sender.uid) > most {
            return Err(Errno::ETOOMANYREFS.into());
        }
        let files = anc.files.clone();
        for file in &files {
            self.node.file_ref(*file);
        }
        let result = send(self, anc);
        // A stream takes files along with its first byte only.
        let taken = result.as_ref().is_ok_and(|n| *n != T::default());
        if !taken {
            self.drop_files(files);
        }
        result
    }

    fn send_unix_packet(&mut self, id: UnixId, msg: &Outgoing) -> SysResult {
        let socket = self.node.unix.get(id);
        let (kind, timeout) = (socket.kind, socket.generic.sndtimeo);
        if msg.flags.contains(MsgFlags::MSG_OOB) {
            if kind == Kind::SeqPacket {
                self.node.unix.check_seqpacket(id)?;
            }
            return err(Errno::EOPNOTSUPP);
        }
        let name = match &msg.to {
            Some(addr) if kind == Kind::Datagram => Some(addr.to_unix()?.ok_or(Errno::EINVAL)?),
            _ => None,
        };
        if kind == Kind::Datagram || self.node.unix.peer_name(id).is_ok() {
            self.autobind_for_credentials(id)?;
        }
        let slept_for_room = self.slept_on(Object::Unix(id)) && self.woken_by_event_only();
        if slept_for_room && !self.node.unix.packet_may_go_on(id) {
            return Err(self.socket_wait(Object::Unix(id), timeout).into());
        }
        // The receiver is looked up last, when the message could go.
        let checked = self.node.unix.check_packet(id, name.is_some(), msg.source.len() as usize);
        self.unix_result(checked, msg.nonblock, timeout)?;
        let to = match name {
            Some(name) => Some(self.find_unix(&name, kind).inspect_err(|_| {
                self.node.unix.not_sent(id);
                self.node.settle_unix(self.outside.base);
            })?),
            None => None,
        };
        let data = self.source_bytes(&msg.source, 0, msg.source.len())?;
        // An empty packet is a message too and takes its files: hence the 1.
        let anc = msg.control.unix.clone();
        let result =
            self.pass_files(anc, |k, anc| k.node.unix.send_packet(id, to, &data, anc).map(|n| n as u64 + 1));
        let sent = self.unix_result(result, msg.nonblock, timeout)?;
        Ok(sent - 1)
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
    fn target(&self, want: &Incoming, lowat: u64) -> u64 {
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

    fn recv_unix_stream(&mut self, id: UnixId, want: &mut Incoming) -> SysResult<Got> {
        let socket = self.node.unix.get(id);
        let (total, timeout) = (want.buffers.len(), socket.generic.rcvtimeo);
        let lowat = socket.generic.kept.get(&(c::SOL_SOCKET, c::SO_RCVLOWAT)).map_or(1, |v| *v as u64);
        let target = self.target(want, lowat);
        let peek = want.flags.contains(MsgFlags::MSG_PEEK);
        // "if (signal_pending(current)) { err = sock_intr_errno(timeo); [...] goto out; }" comes right after the sleep
        // (unix_stream_read_generic).
        if self.signal_first() {
            return Err(self.partial_wait(Object::Unix(id), want.done, timeout).into());
        }
        let mut got = Got::default();
        loop {
            let done = want.done;
            let Some(max) = self.stream_room(id, want) else {
                if done > 0 {
                    break;
                }
                return err(Errno::EFAULT);
            };
            let wanted = Wanted { max: max as usize, peek, begun: done > 0 };
            let result = self.node.unix.recv_stream(id, wanted);
            self.node.settle_unix(self.outside.base);
            match result {
                Ok(mut received) => {
                    let stop = received.stop;
                    let data = std::mem::take(&mut received.data);
                    self.copy_out(&want.buffers, done, &data)?;
                    want.done += data.len() as u64;
                    self.take_ancillary(id, &mut got, received, peek);
                    if stop || want.done >= target || want.done == total {
                        break;
                    }
                }
                // Behind an urgent byte that was read is more, for which who may sleep has not to wait.
                Err(Stall::Until(_))
                    if !peek && !self.must_not_sleep(want.nonblock, timeout) && self.is_queued(id) => {}
                Err(Stall::Until(on)) => {
                    want.done = self.short(Object::Unix(on), done, want.nonblock, timeout)?;
                    break;
                }
                Err(Stall::Errno(_)) if done > 0 => break,
                Err(Stall::Errno(e)) => return err(e),
            }
        }
        got.value = want.done;
        Ok(got)
    }

    fn is_queued(&self, id: UnixId) -> bool {
        !self.node.unix.get(id).queue.is_empty()
    }

    /// How many bytes may be taken of a stream. Of a message that cannot be stored as far as it is wanted nothing is taken
    /// (unix_stream_read_actor); `None` if that is the first.
    fn stream_room(&mut self, id: UnixId, want: &Incoming) -> Option<u64> {
        let left = want.buffers.len() - want.done;
        let peek = want.flags.contains(MsgFlags::MSG_PEEK);
        let skip = self.node.unix.get(id).generic.peek_offset().filter(|_| peek).unwrap_or(0);
        let there = self.node.unix.readable_bytes(id).unwrap_or(0) as u64;
        let there = there.saturating_sub(skip).min(left);
        let good = self.good(&want.buffers, want.done, there, Access::Write);
        if good == there {
            return Some(left);
        }
        self.spoil(id, want, good);
        let whole = self.node.unix.whole_messages(id, skip, left, good);
        (whole > 0).then_some(whole)
    }

    /// Stores the bytes for which there is memory, also those of a message of which nothing is taken: copying ends where it fails.
    fn spoil(&mut self, id: UnixId, want: &Incoming, good: u64) {
        let wanted = Wanted { max: good as usize, peek: true, begun: want.done > 0 };
        if let Ok(received) = self.node.unix.recv_stream(id, wanted) {
            let _ignored = self.copy_out(&want.buffers, want.done, &received.data);
        }
    }

    fn recv_unix_packet(&mut self, id: UnixId, want: &Incoming) -> SysResult<Got> {
        let timeout = self.node.unix.get(id).generic.rcvtimeo;
        let peek = want.flags.contains(MsgFlags::MSG_PEEK);
        self.keep_in_line(Object::Unix(id), self.node.unix.get(id).receptions(), timeout)?;
        let sleeps = !self.must_not_sleep(want.nonblock, timeout);
        let result = self.node.unix.recv_packet(id, want.buffers.len() as usize, peek, sleeps);
        let mut received = self.unix_received(result, want.nonblock, timeout)?;
        if received.end {
            return Ok(Got::default());
        }
        self.has_got(Object::Unix(id), peek);
        let data = std::mem::take(&mut received.data);
        let (n, whole) = (data.len() as u64, received.whole as u64);
        let mut got = Got::default();
        // With a bad address the message is lost, as on Linux (unix_dgram_recvmsg).
        let stored = self.copy_out(&want.buffers, 0, &data);
        let stamps = super::datagram::timestamps(
            &self.node.unix.get(id).generic,
            self.node.realtime_at(received.sent),
        );
        self.take_ancillary(id, &mut got, received, peek);
        got.control.splice(0..0, stamps);
        if let Err(e) = stored {
            let files = std::mem::take(&mut got.files);
            self.drop_files(files);
            return err(e);
        }
        truncation(&mut got, want.flags, n, whole);
        // By what was stored when peeking, by the whole message otherwise.
        let moved = if peek { n } else { whole };
        self.node.unix.get_mut(id).generic.move_peek_offset(moved, peek);
        Ok(got)
    }

    /// Moves name, credentials and files of a message to what the call hands out.
    fn take_ancillary(&mut self, id: UnixId, got: &mut Got, received: Received, peek: bool) {
        if peek {
            for file in &received.files {
                self.node.file_ref(*file);
            }
        }
        got.files.extend(received.files);
        if let Some(name) = &received.from
            && got.name.is_empty()
        {
            got.name = unix_bytes(Some(name));
        }
        got.passcred = self.node.unix.get(id).passcred;
        if got.passcred && got.control.is_empty() {
            // At the end of a stream Linux shows the zeroes of a structure that nobody filled.
            let id = if received.end { 0 } else { NOBODY };
            let unknown = Ucred { pid: 0, uid: id, gid: id };
            let cred = self.seen_credentials(received.cred.unwrap_or(unknown));
            got.control.push((c::SOL_SOCKET, c::SCM_CREDENTIALS, cred.as_bytes().to_vec()));
        }
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

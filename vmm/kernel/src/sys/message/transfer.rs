//! The one way out of and the one way into a socket, for each kind of socket.

use std::borrow::Cow;
use std::net::SocketAddr;

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Ucred;
use bloodhound_net::{Proto, ReadyFlags, SocketId};
use zerocopy::IntoBytes;

use super::{CHUNK, Got, Incoming, Outgoing, Sink, Source};
use crate::ctx::*;
use crate::ids::*;
use crate::socket::{Address, inet_bytes, unix_bytes};
use crate::sys::socket::Sock;
use crate::unix::{Ancillary, Kind, Received, Stall};
use crate::wait::{Object, Restart, Resume, Stop, SysResult};

/// Largest length of a UDP datagram that is looked at at all.
const UDP_LEN_MAX: u64 = 0xffff;
/// The user that SO_PASSCRED shows when the sender is unknown (the overflow id).
const NOBODY: u32 = 65534;

impl Ctx<'_> {
    /// Sends a message, or what is left of one whose sending slept; the result counts from its start.
    pub(super) fn send_message(&mut self, sock: Sock, msg: &Outgoing<'_>) -> SysResult {
        if msg.flags.contains(MsgFlags::MSG_OOB) {
            return err(Errno::EOPNOTSUPP);
        }
        match sock {
            Sock::Inet(id) if self.inet(id)?.proto == Proto::Tcp => self.send_tcp(id, msg),
            Sock::Inet(id) => self.send_udp(id, msg),
            Sock::Unix(id) if self.node.unix.get(id).kind == Kind::Stream => self.send_unix_stream(id, msg),
            Sock::Unix(id) => self.send_unix_packet(id, msg),
        }
    }

    /// A part of the message's bytes; large ones in the program come in pieces.
    fn source_chunk<'a>(&mut self, source: &Source<'a>, from: u64) -> Result<Cow<'a, [u8]>, Errno> {
        match source {
            Source::Bytes(bytes) => Ok(Cow::Borrowed(&bytes[from as usize..])),
            Source::User(segments) => Ok(Cow::Owned(self.read_segments(segments, from, CHUNK)?)),
        }
    }

    /// The end of a transfer that cannot go on after `done` bytes: a short count, EAGAIN, or sleep.
    fn short(&mut self, object: Object, done: u64, nonblock: bool, timeout: Option<u64>) -> SysResult {
        if self.must_not_sleep(nonblock, timeout) {
            return if done > 0 { Ok(done) } else { err(Errno::EAGAIN) };
        }
        let mut wait = self.socket_wait(object, timeout).resume(Resume::Done(done));
        if done > 0 {
            wait = wait.restart(Restart::Partial(done));
        }
        Err(wait.into())
    }

    /// EPIPE with its signal, unless the caller does not want it.
    fn broken_pipe<T>(&mut self, flags: MsgFlags) -> SysResult<T> {
        if !flags.contains(MsgFlags::MSG_NOSIGNAL) {
            self.raise_sigpipe();
        }
        err(Errno::EPIPE)
    }

    fn send_tcp(&mut self, id: SocketId, msg: &Outgoing<'_>) -> SysResult {
        if msg.flags.contains(MsgFlags::MSG_FASTOPEN) {
            // As with net.ipv4.tcp_fastopen without its client bit; programs connect first then.
            return err(Errno::EOPNOTSUPP);
        }
        let (total, timeout) = (msg.source.len(), self.inet(id)?.generic.sndtimeo);
        let mut done = self.bytes_done().min(total);
        // Who sleeps for room waits for as much as makes the socket writable (the kernel's sk_stream_write_space), not for
        // the first byte.
        let ready = ReadyFlags::WRITE | ReadyFlags::ERR | ReadyFlags::HUP;
        if self.resumed.is_some() && !self.node.net.readiness(id).intersects(ready) {
            return self.short(Object::Inet(id), done, msg.nonblock, timeout);
        }
        loop {
            // An error that comes after part of the data stays for the next call.
            if done > 0 && (done == total || self.node.net.readiness(id).contains(ReadyFlags::ERR)) {
                return Ok(done);
            }
            let data = match self.source_chunk(&msg.source, done) {
                Ok(data) => data,
                Err(_) if done > 0 => return Ok(done),
                Err(e) => return err(e),
            };
            let more = msg.flags.contains(MsgFlags::MSG_MORE) || done + (data.len() as u64) < total;
            let now = self.now();
            match self.node.net.send(id, &data, more, now) {
                Ok(n) if done + n as u64 == total => return Ok(total),
                Ok(0) => return self.short(Object::Inet(id), done, msg.nonblock, timeout),
                Ok(n) => done += n as u64,
                Err(Errno::EAGAIN) => return self.short(Object::Inet(id), done, msg.nonblock, timeout),
                Err(_) if done > 0 => return Ok(done),
                Err(Errno::EPIPE) => return self.broken_pipe(msg.flags),
                Err(e) => return err(e),
            }
        }
    }

    fn send_udp(&mut self, id: SocketId, msg: &Outgoing<'_>) -> SysResult {
        if msg.source.len() > UDP_LEN_MAX {
            return err(Errno::EMSGSIZE);
        }
        if msg.flags.contains(MsgFlags::MSG_MORE) {
            return Err(Stop::Unsupported("MSG_MORE on a datagram socket".into()));
        }
        let v6 = self.inet(id)?.v6;
        let to = match &msg.to {
            Some(addr) => udp_target(addr, v6)?,
            None => None,
        };
        let data = self.source_chunk(&msg.source, 0)?;
        let now = self.now();
        Ok(self.node.net.send_to(id, &data, to, now)? as u64)
    }

    fn send_unix_stream(&mut self, id: UnixId, msg: &Outgoing<'_>) -> SysResult {
        if msg.to.is_some() {
            let connected = self.node.unix.peer_name(id).is_ok();
            return err(if connected { Errno::EISCONN } else { Errno::EOPNOTSUPP });
        }
        let (total, timeout) = (msg.source.len(), self.node.unix.get(id).generic.sndtimeo);
        let mut done = self.bytes_done().min(total);
        loop {
            if done > 0 && done == total {
                return Ok(done);
            }
            let data = match self.source_chunk(&msg.source, done) {
                Ok(data) => data,
                Err(_) if done > 0 => return Ok(done),
                Err(e) => return err(e),
            };
            let mut anc = msg.control.unix.clone();
            if done > 0 {
                anc.files.clear();
            }
            let result = self.pass_files(anc, |k, anc| k.node.unix.send_stream(id, &data, anc));
            self.node.settle_unix(self.outside.base);
            match result {
                Ok(n) if done + n as u64 == total => return Ok(total),
                Ok(n) => done += n as u64,
                Err(Stall::Until(on)) => return self.short(Object::Unix(on), done, msg.nonblock, timeout),
                Err(Stall::Errno(_)) if done > 0 => return Ok(done),
                Err(Stall::Errno(Errno::EPIPE)) => return self.broken_pipe(msg.flags),
                Err(Stall::Errno(e)) => return err(e),
            }
        }
    }

    /// Gives the message a reference to each of its files for the time that `send` needs, and for good if that took them.
    fn pass_files<T: Default + PartialEq, E>(
        &mut self,
        anc: Ancillary,
        send: impl FnOnce(&mut Self, Ancillary) -> Result<T, E>,
    ) -> Result<T, E> {
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

    fn send_unix_packet(&mut self, id: UnixId, msg: &Outgoing<'_>) -> SysResult {
        let socket = self.node.unix.get(id);
        let (kind, timeout) = (socket.kind, socket.generic.sndtimeo);
        let name = match &msg.to {
            Some(addr) if kind == Kind::Datagram => Some(addr.to_unix()?.ok_or(Errno::EINVAL)?),
            _ => None,
        };
        if kind == Kind::Datagram || self.node.unix.peer_name(id).is_ok() {
            self.autobind_for_credentials(id)?;
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
        let data = match &msg.source {
            Source::Bytes(bytes) => Cow::Borrowed(*bytes),
            Source::User(segments) => Cow::Owned(self.read_segments(segments, 0, segments.total)?),
        };
        // An empty packet is a message too and takes its files: hence the 1.
        let anc = msg.control.unix.clone();
        let result =
            self.pass_files(anc, |k, anc| k.node.unix.send_packet(id, to, &data, anc).map(|n| n as u64 + 1));
        let sent = self.unix_result(result, msg.nonblock, timeout)?;
        Ok(sent - 1)
    }

    /// Receives a message. Flags that Linux ignores are ignored.
    pub(super) fn recv_message(&mut self, sock: Sock, want: &Incoming<'_>) -> SysResult<Got> {
        let tcp = matches!(sock, Sock::Inet(id) if self.inet(id)?.proto == Proto::Tcp);
        if want.flags.contains(MsgFlags::MSG_OOB) && (tcp || matches!(sock, Sock::Unix(_))) {
            // There never is urgent data: EINVAL on TCP says just that.
            return err(if tcp { Errno::EINVAL } else { Errno::EOPNOTSUPP });
        }
        if want.flags.contains(MsgFlags::MSG_ERRQUEUE) && matches!(sock, Sock::Inet(_)) {
            return err(Errno::EAGAIN);
        }
        match sock {
            Sock::Inet(id) if tcp => self.recv_tcp(id, want),
            Sock::Inet(id) => self.recv_udp(id, want),
            Sock::Unix(id) if self.node.unix.get(id).kind == Kind::Stream => self.recv_unix_stream(id, want),
            Sock::Unix(id) => self.recv_unix_packet(id, want),
        }
    }

    /// Stores received bytes at offset `done` of the sink.
    fn deliver(&mut self, want: &Incoming<'_>, got: &mut Got, done: u64, data: Vec<u8>) -> Result<(), Errno> {
        match want.sink {
            Sink::Collect(_) if got.data.is_empty() => got.data = data,
            Sink::Collect(_) => got.data.extend_from_slice(&data),
            Sink::User(segments) => self.write_segments(segments, done, &data)?,
        }
        Ok(())
    }

    /// How many bytes a stream must have before the call returns ("target" of tcp_recvmsg). A collected read cannot be
    /// taken up after a sleep and so takes what is there.
    fn target(&self, want: &Incoming<'_>, lowat: u64) -> u64 {
        match want.sink {
            Sink::Collect(_) => 1,
            _ if want.flags.contains(MsgFlags::MSG_WAITALL) => want.sink.len(),
            _ => lowat.min(want.sink.len()).max(1),
        }
    }

    /// Checks the next `len` bytes of the sink: unread data must stay if it cannot be stored.
    fn check_sink(&mut self, want: &Incoming<'_>, done: u64, len: u64) -> Result<(), Errno> {
        match want.sink {
            Sink::User(segments) => self.check_segments(segments, done, len),
            Sink::Collect(_) => Ok(()),
        }
    }

    fn recv_tcp(&mut self, id: SocketId, want: &Incoming<'_>) -> SysResult<Got> {
        let (total, timeout) = (want.sink.len(), self.inet(id)?.generic.rcvtimeo);
        let target = self.target(want, u64::from(self.node.net.options(id)?.rcvlowat));
        let peek = want.flags.contains(MsgFlags::MSG_PEEK);
        // "MSG_TRUNC ... causes the received bytes of data to be discarded, rather than passed back" (tcp(7)).
        let discard = want.flags.contains(MsgFlags::MSG_TRUNC);
        let mut got = Got::default();
        let mut done = self.bytes_done();
        loop {
            let here = self.node.net.readiness(id);
            if done > 0 && here.contains(ReadyFlags::ERR) {
                break;
            }
            let there = self.node.net.readable_bytes(id).unwrap_or(0) as u64;
            let n = (total - done).min(there);
            if !discard && let Err(e) = self.check_sink(want, done, n) {
                if done > 0 {
                    break;
                }
                return err(e);
            }
            // With nothing to read or no room a byte is asked for all the same, unseen: it tells of the end and of errors.
            let probe = n == 0;
            let mut buf = vec![0; n.max(1) as usize];
            let now = self.now();
            match self.node.net.recv(id, &mut buf, peek || probe, now) {
                Ok(0) => break,
                Ok(_) if probe => break,
                Ok(n) => {
                    buf.truncate(n);
                    if !discard {
                        self.deliver(want, &mut got, done, buf)?;
                    }
                    done += n as u64;
                    let ended = here.intersects(ReadyFlags::RDHUP | ReadyFlags::HUP);
                    if peek && done < target && !ended && !self.must_not_sleep(want.nonblock, timeout) {
                        return Err(self.socket_wait(Object::Inet(id), timeout).into());
                    }
                    if done >= target || peek {
                        break;
                    }
                }
                Err(Errno::EAGAIN) => {
                    done = self.short(Object::Inet(id), done, want.nonblock, timeout)?;
                    break;
                }
                Err(_) if done > 0 => break,
                Err(e) => return err(e),
            }
        }
        got.value = done;
        Ok(got)
    }

    fn recv_udp(&mut self, id: SocketId, want: &Incoming<'_>) -> SysResult<Got> {
        let timeout = self.inet(id)?.generic.rcvtimeo;
        let datagram = match self.node.net.recv_from(id, want.flags.contains(MsgFlags::MSG_PEEK)) {
            Ok(datagram) => datagram,
            Err(Errno::EAGAIN) if self.must_not_sleep(want.nonblock, timeout) => return err(Errno::EAGAIN),
            Err(Errno::EAGAIN) if self.node.net.readiness(id).contains(ReadyFlags::RDHUP) => {
                return Ok(Got::default());
            }
            Err(Errno::EAGAIN) => return Err(self.socket_wait(Object::Inet(id), timeout).into()),
            Err(e) => return err(e),
        };
        let whole = datagram.data.len() as u64;
        let n = whole.min(want.sink.len());
        let control = self.datagram_control(id, datagram.dst)?;
        let mut got = Got { name: inet_bytes(datagram.src), control, ..Got::default() };
        self.deliver(want, &mut got, 0, datagram.data[..n as usize].to_vec())?;
        truncation(&mut got, want.flags, n, whole);
        Ok(got)
    }

    fn recv_unix_stream(&mut self, id: UnixId, want: &Incoming<'_>) -> SysResult<Got> {
        let socket = self.node.unix.get(id);
        let (total, timeout) = (want.sink.len(), socket.generic.rcvtimeo);
        let lowat = socket.generic.kept.get(&(c::SOL_SOCKET, c::SO_RCVLOWAT)).map_or(1, |v| *v as u64);
        let target = self.target(want, lowat);
        let peek = want.flags.contains(MsgFlags::MSG_PEEK);
        let mut got = Got::default();
        let mut done = self.bytes_done();
        loop {
            let there = self.node.unix.readable_bytes(id).unwrap_or(0) as u64;
            if let Err(e) = self.check_sink(want, done, (total - done).min(there)) {
                if done > 0 {
                    break;
                }
                return err(e);
            }
            let result = self.node.unix.recv_stream(id, (total - done) as usize, peek);
            self.node.settle_unix(self.outside.base);
            match result {
                Ok(mut received) => {
                    let stop = received.stop;
                    let data = std::mem::take(&mut received.data);
                    let n = data.len() as u64;
                    self.deliver(want, &mut got, done, data)?;
                    done += n;
                    self.take_ancillary(id, &mut got, received, peek);
                    if stop || done >= target || done == total {
                        break;
                    }
                }
                Err(Stall::Until(on)) => {
                    done = self.short(Object::Unix(on), done, want.nonblock, timeout)?;
                    break;
                }
                Err(Stall::Errno(_)) if done > 0 => break,
                Err(Stall::Errno(e)) => return err(e),
            }
        }
        got.value = done;
        Ok(got)
    }

    fn recv_unix_packet(&mut self, id: UnixId, want: &Incoming<'_>) -> SysResult<Got> {
        let timeout = self.node.unix.get(id).generic.rcvtimeo;
        let peek = want.flags.contains(MsgFlags::MSG_PEEK);
        let sleeps = !self.must_not_sleep(want.nonblock, timeout);
        let result = self.node.unix.recv_packet(id, want.sink.len() as usize, peek, sleeps);
        let mut received = self.unix_result(result, want.nonblock, timeout)?;
        if received.end {
            return Ok(Got::default());
        }
        let data = std::mem::take(&mut received.data);
        let (n, whole) = (data.len() as u64, received.whole as u64);
        let mut got = Got::default();
        let stored = self.deliver(want, &mut got, 0, data);
        self.take_ancillary(id, &mut got, received, peek);
        if let Err(e) = stored {
            let files = std::mem::take(&mut got.files);
            self.drop_files(files);
            return err(e);
        }
        truncation(&mut got, want.flags, n, whole);
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
            let cred = received.cred.unwrap_or(unknown);
            got.control.push((c::SOL_SOCKET, c::SCM_CREDENTIALS, cred.as_bytes().to_vec()));
        }
    }
}

/// Result and MSG_TRUNC of a packet of `whole` bytes of which `n` were stored. recv(2): MSG_TRUNC as argument returns "the
/// real length of the packet or datagram".
fn truncation(got: &mut Got, flags: MsgFlags, n: u64, whole: u64) {
    if n < whole {
        got.flags |= MsgFlags::MSG_TRUNC;
    }
    got.value = if flags.contains(MsgFlags::MSG_TRUNC) { whole } else { n };
}

/// The destination of a datagram; `None` is the connected peer.
fn udp_target(addr: &Address, v6: bool) -> Result<Option<SocketAddr>, Errno> {
    match (addr.family().ok_or(Errno::EINVAL)?, v6) {
        // "AF_UNSPEC" is taken for AF_INET here (udp_sendmsg), and for no address on IPv6 sockets.
        (c::AF_UNSPEC, true) => Ok(None),
        (c::AF_UNSPEC, false) if addr.len() >= 16 => Ok(addr.v4()),
        (c::AF_UNSPEC, false) => Err(Errno::EINVAL),
        (c::AF_INET, true) => addr.to_inet(false).map(Some),
        (c::AF_INET6, true) | (_, false) => addr.to_inet(v6).map(Some),
        _ => Err(Errno::EINVAL),
    }
}

//! Messages of unix sockets: streams, datagrams and sequenced packets.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Ucred;
use zerocopy::IntoBytes;

use super::transfer::truncation;
use super::{Got, Incoming, Outgoing};
use crate::buffers::Source;
use crate::caps::{CAP_SYS_ADMIN, CAP_SYS_RESOURCE};
use crate::ctx::*;
use crate::ids::*;
use crate::mm::Access;
use crate::socket::unix_bytes;
use crate::unix::{Ancillary, Kind, Name, Received, Stall, Wanted};
use crate::wait::{Object, SysResult};

/// The user that SO_PASSCRED shows when the sender is unknown (the overflow id).
const NOBODY: u32 = 65534;

impl Ctx<'_> {
    pub(super) fn send_unix_stream(&mut self, id: UnixId, msg: &mut Outgoing) -> SysResult {
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
        // Behind the sleep sock_alloc_send_pskb takes a pending error and then looks for the end, which raises no SIGPIPE there.
        if self.slept_on(Object::Unix(id))
            && let Some(error) = self.node.unix.sending_fails(id)
        {
            return if msg.done > 0 { Ok(msg.done) } else { err(error) };
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
            if done < total && !self.node.unix.does_not_wait_for_room(id) {
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
                Err(Stall::Room(_)) => unreachable!("a stream waits for its own room"),
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

    pub(super) fn send_unix_packet(&mut self, id: UnixId, msg: &mut Outgoing) -> SysResult {
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
        self.keep_waiting_for_room(Some(id))?;
        let found = self.slept_for_room_at();
        if found.is_none() {
            self.begin_unix_packet(id, name.is_some(), msg, timeout)?;
        }
        // The message is copied before its receiver is looked up.
        let data = self.source_bytes(&msg.source, 0, msg.source.len());
        let to = match &data {
            Ok(_) => self.packet_receiver(id, kind, name.as_ref(), found),
            Err(errno) => err(*errno),
        };
        let to = to.inspect_err(|_| {
            self.node.unix.not_sent(id);
            self.node.settle_unix(self.outside.base);
        })?;
        let data = data?;
        // An empty packet is a message too and takes its files: hence the 1.
        let anc = msg.control.unix.clone();
        let result =
            self.pass_files(anc, |k, anc| k.node.unix.pass_packet(id, to, &data, anc).map(|n| n as u64 + 1));
        if matches!(result, Err(Stall::Room(_))) {
            if self.must_not_sleep(msg.nonblock, timeout) {
                self.node.unix.not_sent(id);
            }
            // What is sent was copied before the sleep.
            msg.source = Source::Kernel(data.into_owned());
        }
        let sent = self.unix_result(result, msg.nonblock, timeout)?;
        Ok(sent - 1)
    }

    /// What comes before the receiver of a packet is looked up.
    fn begin_unix_packet(
        &mut self,
        id: UnixId,
        named: bool,
        msg: &Outgoing,
        timeout: Option<u64>,
    ) -> SysResult<()> {
        let datagram = self.node.unix.get(id).kind == Kind::Datagram;
        if datagram || self.node.unix.peer_name(id).is_ok() {
            self.autobind_for_credentials(id)?;
        }
        let slept_for_room = self.slept_on(Object::Unix(id)) && self.woken_by_event_only();
        if slept_for_room && !self.node.unix.packet_may_go_on(id) {
            return Err(self.socket_wait(Object::Unix(id), timeout).into());
        }
        let checked = self.node.unix.check_packet(id, named, msg.source.len() as usize);
        self.unix_result(checked, msg.nonblock, timeout)
    }

    /// To whom a packet goes; `None` is the peer. Who has slept for room keeps the receiver that it had found then, whatever has become of
    /// the name since ("goto restart" of unix_dgram_sendmsg), as long as that lives.
    fn packet_receiver(
        &mut self,
        id: UnixId,
        kind: Kind,
        name: Option<&Name>,
        found: Option<UnixId>,
    ) -> SysResult<Option<UnixId>> {
        match (found, name) {
            (Some(found), _) if self.node.unix.exists(found) => Ok(Some(found)),
            (_, Some(name)) => self.find_unix(name, kind).map(Some),
            // Another one is the peer by now.
            (Some(_), None) if !self.node.unix.has_dead_peer(id) => err(Errno::ECONNRESET),
            (_, None) => Ok(None),
        }
    }

    pub(super) fn recv_unix_stream(&mut self, id: UnixId, want: &mut Incoming) -> SysResult<Got> {
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
                Err(Stall::Room(_)) => unreachable!("who receives needs no room"),
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

    pub(super) fn recv_unix_packet(&mut self, id: UnixId, want: &Incoming) -> SysResult<Got> {
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

//! Messages: send(2) and recv(2) in all their forms, ancillary data (cmsg(3)), and read(2) and write(2) of sockets.
//!
//! All calls become an [`Outgoing`] or [`Incoming`], which they keep while they sleep, and go through `send_message` or
//! `recv_message` (modules [`transfer`], [`unix`] and [`datagram`]); [`control`] has the ancillary data.

mod control;
mod datagram;
mod netlink;
mod packet;
mod report;
mod transfer;
mod unix;
mod urgent;

use bloodhound_abi::structs::{Mmsghdr, Msghdr, Timespec};
use bloodhound_abi::{Errno, SimTime};

use crate::buffers::{Buffers, IOV_MAX, MAX_RW, Source};
use crate::ctx::*;
use crate::ids::*;
use crate::socket::{ADDRESS_MAX, Address};
use crate::sys::socket::Sock;
use crate::unix::Kind;
use crate::wait::{Progress, Restart, Sleep, Stop, SysResult};

use control::Control;

/// Most bytes copied from a program at once: as much as TCP takes in one piece (SKB_FRAG_PAGE_ORDER).
const CHUNK: u64 = 32 << 10;

/// A message to send, as it was when its call began, and how much of it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    source: Source,
    flags: MsgFlags,
    /// The socket or the call does not block.
    nonblock: bool,
    to: Option<Address>,
    control: Control,
    /// Bytes sent.
    done: u64,
}

impl Outgoing {
    /// Where its bytes are.
    pub(crate) fn source(&self) -> &Source {
        &self.source
    }

    /// Whether its bytes are in the program, as those of send(2) and write(2) are.
    fn is_of_program(&self) -> bool {
        matches!(self.source, Source::User(_))
    }

    /// How many are sent.
    pub(crate) fn done(&self) -> u64 {
        self.done
    }
}

/// A reception, as it was when its call began, and how much has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    buffers: Buffers,
    flags: MsgFlags,
    nonblock: bool,
    /// The caller's `struct msghdr`, for recvmsg(2).
    header: Option<Msghdr>,
    /// Bytes received.
    done: u64,
    /// When the segment of a stream had come of which something was taken last.
    came: Option<SimTime>,
}

impl Incoming {
    /// Where the bytes go.
    pub(crate) fn buffers(&self) -> &Buffers {
        &self.buffers
    }
}

/// What came.
#[derive(Debug, Default)]
pub(crate) struct Got {
    /// The call's result.
    value: u64,
    /// msg_flags.
    flags: MsgFlags,
    /// Sender's address; empty for one without a name.
    name: Vec<u8>,
    /// Ancillary data but descriptors: level, type, bytes.
    control: Vec<(u64, u64, Vec<u8>)>,
    /// Descriptions with a reference each.
    files: Vec<FileId>,
    /// The socket has SO_PASSCRED: without room for ancillary data that is worth a MSG_CTRUNC.
    passcred: bool,
}

impl Ctx<'_> {
    /// read(2) of a socket, which is recv(2) without flags. Ancillary data is dropped.
    pub(crate) fn socket_read(&mut self, file: FileId, to: &Buffers) -> SysResult {
        let sock = self.sock_of(file)?;
        // "Match SYS5 behaviour": a read of nothing does not wait (sock_read_iter).
        if to.is_empty() {
            return Ok(0);
        }
        let got = self.receive(file, sock, |_| Ok((to.clone(), None)), MsgFlags::empty())?.0;
        self.drop_files(got.files);
        Ok(got.value)
    }

    /// write(2) to a socket, which is send(2) without flags. `done` bytes were sent before the call slept.
    pub(crate) fn socket_write(&mut self, file: FileId, source: &Source, done: u64) -> SysResult {
        let sock = self.sock_of(file)?;
        let message = match self.progress() {
            Some(Progress::Send(message)) => (**message).clone(),
            _ => {
                let (control, nonblock) = (self.no_control(), self.node.files[file].nonblocking());
                let source = source.clone();
                Outgoing { source, flags: MsgFlags::empty(), nonblock, to: None, control, done }
            }
        };
        self.send_message(sock, message)
    }

    /// Receives a message: the one in which the call has slept, or a new one into the buffers that `memory` gives. What came, and
    /// the caller's header.
    fn receive(
        &mut self,
        file: FileId,
        sock: Sock,
        memory: impl FnOnce(&mut Self) -> SysResult<(Buffers, Option<Msghdr>)>,
        flags: MsgFlags,
    ) -> SysResult<(Got, Option<Msghdr>)> {
        let want = match self.progress() {
            Some(Progress::Receive(message)) => (**message).clone(),
            _ => {
                let (buffers, header) = memory(self)?;
                let nonblock = self.may_not_sleep(file, flags);
                Incoming { buffers, flags, nonblock, header, done: 0, came: None }
            }
        };
        let header = want.header;
        Ok((self.recv_message(sock, want)?, header))
    }

    /// Whether a transfer fails where it would sleep.
    fn may_not_sleep(&self, file: FileId, flags: MsgFlags) -> bool {
        flags.contains(MsgFlags::MSG_DONTWAIT) || self.node.files[file].nonblocking()
    }

    fn drop_files(&mut self, files: Vec<FileId>) {
        for file in files {
            self.node.file_unref(file, self.outside.base);
        }
    }

    /// The vectors of a message.
    fn message_buffers(&mut self, hdr: &Msghdr) -> SysResult<Buffers> {
        if hdr.iovlen > IOV_MAX {
            return err(Errno::EMSGSIZE);
        }
        self.read_buffers(Ptr(hdr.iov), hdr.iovlen)
    }

    /// The address of a message to send; "no more than sizeof(struct sockaddr_storage) bytes count".
    fn message_address(&mut self, hdr: &Msghdr) -> Result<Option<Address>, Errno> {
        if (hdr.namelen as i32) < 0 && hdr.name != 0 {
            return Err(Errno::EINVAL);
        }
        if hdr.name == 0 || hdr.namelen == 0 {
            return Ok(None);
        }
        self.read_address(Ptr(hdr.name), hdr.namelen.min(ADDRESS_MAX as u32)).map(Some)
    }

    /// Sends the message whose header is at `at`, or goes on with the one in which the call has slept. How many bytes were sent, and
    /// whether that is all of it.
    fn send_hdr(&mut self, fd: Fd, at: Ptr, flags: MsgFlags) -> SysResult<(u64, bool)> {
        let (file, sock) = self.sock(fd)?;
        let message = match self.progress() {
            Some(Progress::Send(message)) => (**message).clone(),
            _ => {
                let hdr: Msghdr = self.read_obj(at)?;
                let to = self.message_address(&hdr)?;
                let source = Source::User(self.message_buffers(&hdr)?);
                // unix_seqpacket_sendmsg in Linux, before it looks at what comes along.
                if let Sock::Unix(id) = sock
                    && self.node.unix.get(id).kind == Kind::SeqPacket
                {
                    self.node.unix.check_seqpacket(id)?;
                }
                let control = self.read_control(sock, &hdr)?;
                Outgoing { source, flags, nonblock: self.may_not_sleep(file, flags), to, control, done: 0 }
            }
        };
        let whole = message.source.len();
        self.send_message(sock, message).map(|sent| (sent, sent == whole))
    }

    /// Receives into what the header at `at` says, or goes on with what it said when the call began. The result, and whether it is an urgent
    /// byte.
    fn recv_hdr(&mut self, fd: Fd, at: Ptr, flags: MsgFlags) -> SysResult<(u64, bool)> {
        let (file, sock) = self.sock(fd)?;
        let memory = |k: &mut Self| {
            let hdr: Msghdr = k.read_obj(at)?;
            if (hdr.namelen as i32) < 0 && hdr.name != 0 {
                return err(Errno::EINVAL);
            }
            Ok((k.message_buffers(&hdr)?, Some(hdr)))
        };
        let (got, hdr) = self.receive(file, sock, memory, flags)?;
        let hdr = hdr.unwrap_or_default();
        let (value, name) = (got.value, got.name.clone());
        let urgent = got.flags.contains(MsgFlags::MSG_OOB);
        let (used, truncated) = self.write_control(&hdr, got.control, got.files, got.passcred, flags);
        // Offsets in struct msghdr: msg_namelen 8, msg_controllen 40, msg_flags 48.
        if hdr.name != 0 {
            self.write_address(&name, Ptr(hdr.name), Ptr(at.0.wrapping_add(8)))?;
        }
        let mut shown = got.flags | flags & MsgFlags::MSG_CMSG_CLOEXEC;
        if truncated {
            shown |= MsgFlags::MSG_CTRUNC;
        }
        self.write_obj(Ptr(at.0.wrapping_add(48)), &(shown.bits() as u32))?;
        self.write_obj(Ptr(at.0.wrapping_add(40)), &used)?;
        Ok((value, urgent))
    }
}

/// MSG_CMSG_COMPAT is for the kernel itself.
fn message_flags(flags: MsgFlags) -> Result<MsgFlags, Errno> {
    if flags.contains(MsgFlags::MSG_CMSG_COMPAT) { Err(Errno::EINVAL) } else { Ok(flags) }
}

/// sendto(2), send(2). EPIPE comes with SIGPIPE, unless MSG_NOSIGNAL is given.
pub fn sendto(
    k: &mut Ctx<'_>,
    fd: Fd,
    buf: Ptr,
    len: u64,
    flags: MsgFlags,
    addr: Ptr,
    addrlen: u32,
) -> SysResult {
    let buffers = Buffers::one(buf, len.min(MAX_RW))?;
    let (file, sock) = k.sock(fd)?;
    let message = match k.progress() {
        Some(Progress::Send(message)) => (**message).clone(),
        _ => {
            let source = Source::User(buffers);
            let to = if addr.is_null() { None } else { Some(k.read_address(addr, addrlen)?) };
            let (nonblock, control) = (k.may_not_sleep(file, flags), k.no_control());
            // An address of no bytes is none, but to sockets that look at the pointer (udp_sendmsg, ping_v4_sendmsg).
            let counts = k.counts_empty_address(sock)?;
            Outgoing { source, flags, nonblock, to: to.filter(|a| counts || !a.is_empty()), control, done: 0 }
        }
    };
    k.send_message(sock, message)
}

/// recvfrom(2), recv(2).
pub fn recvfrom(
    k: &mut Ctx<'_>,
    fd: Fd,
    buf: Ptr,
    len: u64,
    flags: MsgFlags,
    addr: Ptr,
    addrlen: Ptr,
) -> SysResult {
    // What cannot be memory is refused before the descriptor (import_single_range in Linux).
    let buffers = Buffers::one(buf, len.min(MAX_RW))?;
    let (file, sock) = k.sock(fd)?;
    let memory = |_: &mut Ctx<'_>| Ok((buffers, None));
    let (got, _) = k.receive(file, sock, memory, flags)?;
    k.drop_files(got.files);
    if !addr.is_null() {
        k.write_address(&got.name, addr, addrlen)?;
    }
    Ok(got.value)
}

/// sendmsg(2), with ancillary data.
pub fn sendmsg(k: &mut Ctx<'_>, fd: Fd, msg: Ptr, flags: MsgFlags) -> SysResult {
    let flags = message_flags(flags)?;
    Ok(k.send_hdr(fd, msg, flags)?.0)
}

/// recvmsg(2), with ancillary data; descriptors that do not fit are closed (MSG_CTRUNC).
pub fn recvmsg(k: &mut Ctx<'_>, fd: Fd, msg: Ptr, flags: MsgFlags) -> SysResult {
    let flags = message_flags(flags)?;
    Ok(k.recv_hdr(fd, msg, flags)?.0)
}

/// How far a call with many messages has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Messages done.
    done: u32,
    /// recvmmsg's timeout as a time.
    end: Option<SimTime>,
    /// The message in which the call sleeps.
    part: Progress,
}

impl Batch {
    /// Goes on where an earlier run of the call stopped; a first run begins with what `end` says of its timeout.
    fn take_up(
        k: &mut Ctx<'_>,
        end: impl FnOnce(&mut Ctx<'_>) -> SysResult<Option<SimTime>>,
    ) -> SysResult<Batch> {
        let Some(resumed) = &mut k.resumed else {
            return Ok(Batch { done: 0, end: end(k)?, part: Progress::None });
        };
        match std::mem::take(&mut resumed.progress) {
            Progress::Batch(mut batch) => {
                resumed.progress = std::mem::take(&mut batch.part);
                Ok(*batch)
            }
            other => unreachable!("a call with many messages sleeps with {other:?}"),
        }
    }

    /// What a stop of the message at `at` means for the whole call: an error counts only if nothing was done before, a
    /// sleep remembers what was.
    fn stop(mut self, k: &mut Ctx<'_>, at: Ptr, stop: Stop) -> SysResult {
        match stop {
            Stop::Errno(_) if self.done > 0 => Ok(u64::from(self.done)),
            Stop::Block(sleep) => {
                let Sleep { mut wait, progress } = *sleep;
                let bytes = match &progress {
                    Progress::Send(message) => message.done,
                    Progress::Receive(message) => message.done,
                    _ => 0,
                };
                // A signal makes a message of which a part went through the last one.
                let done = u64::from(self.done) + u64::from(bytes > 0);
                if bytes > 0 {
                    store_len(k, at, bytes)?;
                }
                if done > 0 {
                    wait.restart = Restart::Partial(done);
                }
                self.part = progress;
                Err(wait.progress(Progress::Batch(Box::new(self))).into())
            }
            other => Err(other),
        }
    }

    /// Stores the length of a message and counts it, in this order: EFAULT leaves it out.
    fn count(&mut self, k: &mut Ctx<'_>, at: Ptr, len: u64) -> SysResult<()> {
        k.begin_part();
        store_len(k, at, len)?;
        self.done += 1;
        Ok(())
    }
}

/// Stores msg_len of a `struct mmsghdr`.
fn store_len(k: &mut Ctx<'_>, at: Ptr, len: u64) -> Result<(), Errno> {
    k.write_obj(Ptr(at.0.wrapping_add(size_of::<Msghdr>() as u64)), &(len as u32))
}

fn entry(vec: Ptr, index: u32) -> Ptr {
    Ptr(vec.0.wrapping_add(u64::from(index) * size_of::<Mmsghdr>() as u64))
}

/// sendmmsg(2): the number of messages sent; an error counts only for the first.
pub fn sendmmsg(k: &mut Ctx<'_>, fd: Fd, vec: Ptr, vlen: u32, flags: MsgFlags) -> SysResult {
    let flags = message_flags(flags)?;
    k.sock(fd)?;
    let mut batch = Batch::take_up(k, |_| Ok(None))?;
    while batch.done < vlen.min(IOV_MAX as u32) {
        let at = entry(vec, batch.done);
        let result = k.send_hdr(fd, at, flags);
        match result.and_then(|(sent, whole)| batch.count(k, at, sent).map(|()| whole)) {
            Ok(true) => {}
            // "if (msg_data_left(&msg_sys)) break;" (__sys_sendmmsg): what follows a message of which a part is sent is not.
            Ok(false) => break,
            Err(stop) => return batch.stop(k, at, stop),
        }
    }
    Ok(u64::from(batch.done))
}

/// recvmmsg(2): the number of messages received; an error counts only for the first. One that was pending comes before all of them, and one
/// that comes after some of them is "recorded [...] to return on the next call or if the app asks about it using getsockopt(SO_ERROR)"
/// (do_recvmmsg).
pub fn recvmmsg(k: &mut Ctx<'_>, fd: Fd, vec: Ptr, vlen: u32, flags: MsgFlags, timeout: Ptr) -> SysResult {
    let mut flags = message_flags(flags)?;
    let begins = k.resumed.is_none();
    let mut batch = Batch::take_up(k, |k| Ok(k.read_timeout(timeout)?.map(|ns| k.now().after(ns))))?;
    let (_, sock) = k.sock(fd)?;
    if begins
        && !flags.contains(MsgFlags::MSG_ERRQUEUE)
        && let Some(error) = k.take_socket_error(sock)?
    {
        return err(error);
    }
    while batch.done < vlen {
        if batch.done > 0 && flags.contains(MsgFlags::MSG_WAITFORONE) {
            flags |= MsgFlags::MSG_DONTWAIT;
        }
        let at = entry(vec, batch.done);
        let result = k.recv_hdr(fd, at, flags.difference(MsgFlags::MSG_WAITFORONE));
        match result.and_then(|(got, urgent)| batch.count(k, at, got).map(|()| urgent)) {
            Ok(false) => {}
            // "Out of band data, return right away".
            Ok(true) => break,
            Err(Stop::Errno(error)) if batch.done > 0 => {
                if error != Errno::EAGAIN {
                    k.keep_socket_error(sock, error)?;
                }
                break;
            }
            Err(stop) => return batch.stop(k, at, stop),
        }
        // "The timeout is checked only after the receipt of each datagram" (recvmmsg(2), BUGS).
        if batch.end.is_some_and(|end| k.now() >= end) {
            break;
        }
    }
    if let Some(end) = batch.end
        && batch.done > 0
    {
        let left = end.since(k.now());
        k.write_obj(timeout, &Timespec::from_ns(left))?;
    }
    Ok(u64::from(batch.done))
}

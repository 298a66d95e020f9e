//! Messages: send(2) and recv(2) in all their forms, ancillary data (cmsg(3)), and read(2) and write(2) of sockets.
//!
//! All calls become an [`Outgoing`] or [`Incoming`] and go through `send_message` or `recv_message` (module
//! [`transfer`]); [`control`] has the ancillary data.

mod control;
mod transfer;

use bloodhound_abi::structs::{Iovec, Mmsghdr, Msghdr, Timespec};
use bloodhound_abi::{Errno, SimTime};

use crate::ctx::*;
use crate::ids::*;
use crate::mm::Access;
use crate::socket::{ADDRESS_MAX, Address};
use crate::wait::{Restart, Resume, Stop, SysResult};

use control::Control;

/// MAX_RW_COUNT.
const MAX_RW: u64 = 0x7fff_f000;
/// UIO_MAXIOV: most vectors of a message and messages of a call.
const IOV_MAX: u64 = 1024;
/// Most bytes copied from a program at once.
const CHUNK: u64 = 256 << 10;

/// Buffers of a program, together at most MAX_RW_COUNT bytes.
#[derive(Clone, Debug)]
pub(crate) struct Segments {
    iovs: Vec<Iovec>,
    total: u64,
}

impl Segments {
    fn new(mut iovs: Vec<Iovec>) -> Segments {
        let mut total = 0;
        for v in &mut iovs {
            v.len = v.len.min(MAX_RW - total);
            total += v.len;
        }
        Segments { iovs, total }
    }

    fn one(base: Ptr, len: u64) -> Segments {
        Segments::new(vec![Iovec { base: base.0, len }])
    }

    /// Addresses and lengths of the bytes `from..from + len`.
    fn pieces(&self, from: u64, len: u64) -> Vec<(u64, usize)> {
        let (mut skip, mut left) = (from, len.min(self.total.saturating_sub(from)));
        let mut out = Vec::new();
        for v in &self.iovs {
            if left == 0 {
                break;
            }
            let start = skip.min(v.len);
            skip -= start;
            let n = (v.len - start).min(left);
            if n > 0 {
                out.push((v.base.wrapping_add(start), n as usize));
                left -= n;
            }
        }
        out
    }
}

/// Where the bytes of an outgoing message are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// In the kernel.
    Bytes(&'a [u8]),
    /// In the program.
    User(&'a Segments),
}

impl Source<'_> {
    fn len(&self) -> u64 {
        match self {
            Source::Bytes(b) => b.len() as u64,
            Source::User(s) => s.total,
        }
    }
}

/// A message to send.
#[derive(Debug)]
pub(crate) struct Outgoing<'a> {
    source: Source<'a>,
    /// MSG_* flags.
    flags: MsgFlags,
    /// The socket or the call does not block.
    nonblock: bool,
    to: Option<Address>,
    control: Control,
}

/// Where received bytes go.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sink<'a> {
    /// Into [`Got::data`], up to so many.
    Collect(usize),
    /// Into the program.
    User(&'a Segments),
}

impl Sink<'_> {
    fn len(&self) -> u64 {
        match self {
            Sink::Collect(n) => *n as u64,
            Sink::User(s) => s.total,
        }
    }
}

/// A reception.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming<'a> {
    sink: Sink<'a>,
    flags: MsgFlags,
    nonblock: bool,
}

/// What came.
#[derive(Debug, Default)]
pub(crate) struct Got {
    /// The call's result.
    value: u64,
    /// Bytes for [`Sink::Collect`].
    data: Vec<u8>,
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
    /// Copies part of the buffers out of the program.
    fn read_segments(&mut self, segments: &Segments, from: u64, len: u64) -> Result<Vec<u8>, Errno> {
        let pieces = segments.pieces(from, len);
        // A wild length must be EFAULT, not an allocation.
        for (base, n) in &pieces {
            self.check_user(*base, *n as u64, Access::Read)?;
        }
        let mut out = vec![0; pieces.iter().map(|(_, n)| n).sum()];
        let mut at = 0;
        for (base, n) in pieces {
            self.read_bytes(base, &mut out[at..at + n])?;
            at += n;
        }
        Ok(out)
    }

    /// Checks that part of the buffers can be written.
    fn check_segments(&mut self, segments: &Segments, from: u64, len: u64) -> Result<(), Errno> {
        segments
            .pieces(from, len)
            .into_iter()
            .try_for_each(|(base, n)| self.check_user(base, n as u64, Access::Write))
    }

    /// Copies bytes into the program's buffers from offset `from` on.
    fn write_segments(&mut self, segments: &Segments, from: u64, data: &[u8]) -> Result<(), Errno> {
        let mut at = 0;
        for (base, n) in segments.pieces(from, data.len() as u64) {
            self.write_bytes(base, &data[at..at + n])?;
            at += n;
        }
        Ok(())
    }

    /// Bytes that an earlier run of the call has transferred.
    fn bytes_done(&self) -> u64 {
        match self.resumed.as_ref().map(|r| &r.wait.resume) {
            Some(Resume::Done(n)) => *n,
            Some(Resume::Messages { bytes, .. }) => *bytes,
            _ => 0,
        }
    }

    /// read(2) of a socket: up to `max` bytes. Ancillary data is dropped.
    pub(crate) fn socket_read(&mut self, file: FileId, max: usize, nonblock: bool) -> SysResult<Vec<u8>> {
        let sock = self.sock_of(file)?;
        if max == 0 {
            return Ok(Vec::new());
        }
        let got = self
            .recv_message(sock, &Incoming { sink: Sink::Collect(max), flags: MsgFlags::empty(), nonblock })?;
        self.drop_files(got.files);
        Ok(got.data)
    }

    /// write(2) to a socket.
    pub(crate) fn socket_write(&mut self, file: FileId, data: &[u8], nonblock: bool) -> SysResult {
        let sock = self.sock_of(file)?;
        let control = self.no_control();
        self.send_message(
            sock,
            &Outgoing { source: Source::Bytes(data), flags: MsgFlags::empty(), nonblock, to: None, control },
        )
    }

    fn drop_files(&mut self, files: Vec<FileId>) {
        for file in files {
            self.node.file_unref(file, self.outside.base);
        }
    }

    /// The vectors of a message.
    fn message_iovecs(&mut self, hdr: &Msghdr) -> SysResult<Segments> {
        if hdr.iovlen > IOV_MAX {
            return err(Errno::EMSGSIZE);
        }
        Ok(Segments::new(self.read_iovecs(Ptr(hdr.iov), hdr.iovlen)?))
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

    fn send_hdr(&mut self, fd: Fd, hdr: &Msghdr, flags: MsgFlags) -> SysResult {
        let (file, sock) = self.sock(fd)?;
        let to = self.message_address(hdr)?;
        let segments = self.message_iovecs(hdr)?;
        let control = self.read_control(sock, hdr)?;
        let nonblock = flags.contains(MsgFlags::MSG_DONTWAIT) || self.node.files[file].nonblocking();
        let sent = self.send_message(
            sock,
            &Outgoing { source: Source::User(&segments), flags, nonblock, to, control },
        )?;
        self.charge_bytes(sent);
        Ok(sent)
    }

    fn recv_hdr(&mut self, fd: Fd, at: Ptr, hdr: &Msghdr, flags: MsgFlags) -> SysResult {
        let (file, sock) = self.sock(fd)?;
        if (hdr.namelen as i32) < 0 && hdr.name != 0 {
            return err(Errno::EINVAL);
        }
        let segments = self.message_iovecs(hdr)?;
        let nonblock = flags.contains(MsgFlags::MSG_DONTWAIT) || self.node.files[file].nonblocking();
        let got = self.recv_message(sock, &Incoming { sink: Sink::User(&segments), flags, nonblock })?;
        let (value, name) = (got.value, got.name.clone());
        self.charge_bytes(value);
        let (used, truncated) = self.write_control(hdr, got.control, got.files, got.passcred, flags);
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
        Ok(value)
    }
}

/// MSG_CMSG_COMPAT is for the kernel itself.
fn message_flags(flags: MsgFlags) -> Result<MsgFlags, Errno> {
    if flags.contains(MsgFlags::MSG_CMSG_COMPAT) { Err(Errno::EINVAL) } else { Ok(flags) }
}

pub fn sendto(
    k: &mut Ctx<'_>,
    fd: Fd,
    buf: Ptr,
    len: u64,
    flags: MsgFlags,
    addr: Ptr,
    addrlen: u32,
) -> SysResult {
    let (file, sock) = k.sock(fd)?;
    let to =
        if addr.is_null() { None } else { Some(k.read_address(addr, addrlen)?).filter(|a| !a.is_empty()) };
    let segments = Segments::one(buf, len);
    let nonblock = flags.contains(MsgFlags::MSG_DONTWAIT) || k.node.files[file].nonblocking();
    let control = k.no_control();
    let sent =
        k.send_message(sock, &Outgoing { source: Source::User(&segments), flags, nonblock, to, control })?;
    k.charge_bytes(sent);
    Ok(sent)
}

pub fn recvfrom(
    k: &mut Ctx<'_>,
    fd: Fd,
    buf: Ptr,
    len: u64,
    flags: MsgFlags,
    addr: Ptr,
    addrlen: Ptr,
) -> SysResult {
    let (file, sock) = k.sock(fd)?;
    let segments = Segments::one(buf, len);
    let nonblock = flags.contains(MsgFlags::MSG_DONTWAIT) || k.node.files[file].nonblocking();
    let got = k.recv_message(sock, &Incoming { sink: Sink::User(&segments), flags, nonblock })?;
    k.drop_files(got.files);
    k.charge_bytes(got.value);
    if !addr.is_null() {
        k.write_address(&got.name, addr, addrlen)?;
    }
    Ok(got.value)
}

pub fn sendmsg(k: &mut Ctx<'_>, fd: Fd, msg: Ptr, flags: MsgFlags) -> SysResult {
    let flags = message_flags(flags)?;
    k.sock(fd)?;
    let hdr: Msghdr = k.read_obj(msg)?;
    k.send_hdr(fd, &hdr, flags)
}

pub fn recvmsg(k: &mut Ctx<'_>, fd: Fd, msg: Ptr, flags: MsgFlags) -> SysResult {
    let flags = message_flags(flags)?;
    k.sock(fd)?;
    let hdr: Msghdr = k.read_obj(msg)?;
    k.recv_hdr(fd, msg, &hdr, flags)
}

/// Progress of a call with many messages.
struct Batch {
    done: u32,
    end: Option<SimTime>,
}

impl Batch {
    /// Goes on where an earlier run of the call stopped; `end` is when a first run's timeout ends.
    fn resume(k: &Ctx<'_>, end: Option<SimTime>) -> Batch {
        match k.resumed.as_ref().map(|r| &r.wait.resume) {
            Some(Resume::Messages { done, end, .. }) => Batch { done: *done, end: *end },
            _ => Batch { done: 0, end },
        }
    }

    /// What a stop of the message at `at` means for the whole call: an error counts only if nothing was done before, a
    /// sleep remembers what was.
    fn stop(&self, k: &mut Ctx<'_>, at: Ptr, stop: Stop) -> SysResult {
        match stop {
            Stop::Errno(_) if self.done > 0 => Ok(u64::from(self.done)),
            Stop::Block(mut wait) => {
                let bytes = match wait.resume {
                    Resume::Done(n) => n,
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
                wait.resume = Resume::Messages { done: self.done, bytes, end: self.end };
                Err(Stop::Block(wait))
            }
            other => Err(other),
        }
    }

    /// Counts a message and stores its length.
    fn count(&mut self, k: &mut Ctx<'_>, at: Ptr, len: u64) -> Result<(), Errno> {
        // The next message is new: what the sleep before it left behind does not concern it.
        k.resumed = None;
        self.done += 1;
        store_len(k, at, len)
    }
}

/// Stores msg_len of a `struct mmsghdr`.
fn store_len(k: &mut Ctx<'_>, at: Ptr, len: u64) -> Result<(), Errno> {
    k.write_obj(Ptr(at.0.wrapping_add(size_of::<Msghdr>() as u64)), &(len as u32))
}

fn entry(vec: Ptr, index: u32) -> Ptr {
    Ptr(vec.0.wrapping_add(u64::from(index) * size_of::<Mmsghdr>() as u64))
}

pub fn sendmmsg(k: &mut Ctx<'_>, fd: Fd, vec: Ptr, vlen: u32, flags: MsgFlags) -> SysResult {
    let flags = message_flags(flags)?;
    k.sock(fd)?;
    let mut batch = Batch::resume(k, None);
    while batch.done < vlen.min(IOV_MAX as u32) {
        let at = entry(vec, batch.done);
        let result = k.read_obj::<Msghdr>(at).map_err(Stop::from).and_then(|hdr| k.send_hdr(fd, &hdr, flags));
        match result {
            Ok(sent) => batch.count(k, at, sent)?,
            Err(stop) => return batch.stop(k, at, stop),
        }
    }
    Ok(u64::from(batch.done))
}

pub fn recvmmsg(k: &mut Ctx<'_>, fd: Fd, vec: Ptr, vlen: u32, flags: MsgFlags, timeout: Ptr) -> SysResult {
    let mut flags = message_flags(flags)?;
    k.sock(fd)?;
    let end = if timeout.is_null() {
        None
    } else {
        let ts: Timespec = k.read_obj(timeout)?;
        Some(k.now().after(ts.to_ns().ok_or(Errno::EINVAL)?))
    };
    let mut batch = Batch::resume(k, end);
    while batch.done < vlen.min(IOV_MAX as u32) {
        if batch.done > 0 && flags.contains(MsgFlags::MSG_WAITFORONE) {
            flags |= MsgFlags::MSG_DONTWAIT;
        }
        let at = entry(vec, batch.done);
        let one = flags.difference(MsgFlags::MSG_WAITFORONE);
        let result =
            k.read_obj::<Msghdr>(at).map_err(Stop::from).and_then(|hdr| k.recv_hdr(fd, at, &hdr, one));
        match result {
            Ok(got) => batch.count(k, at, got)?,
            Err(stop @ Stop::Block(_)) => return batch.stop(k, at, stop),
            Err(_) if batch.done > 0 => break,
            Err(stop) => return Err(stop),
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

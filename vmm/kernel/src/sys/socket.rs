//! Sockets: making, naming, connecting and closing them: socket(2), socketpair(2), bind(2), listen(2), connect(2),
//! accept(2), getsockname(2), getpeername(2), shutdown(2), and what ioctl(2) tells of them.
//!
//! Neighbours: `message` (sending and receiving), `sockopt` (options), [`crate::unix`], [`crate::inet`].

mod create;
mod error;
#[cfg(test)]
mod families;
mod kinds;
#[cfg(test)]
mod options;
mod packet;
#[cfg(test)]
mod recorded;
mod sleep;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;

use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Ucred;
use bloodhound_abi::{Errno, SimTime};
use bloodhound_net::{Proto, Shutdown, SocketId};
use bloodhound_vfs::{Dev, Kind as InodeKind};

use crate::ctx::*;
use crate::file::{File, FileKind};
use crate::ids::*;
use crate::inet::InetSocket;
use crate::mm::Access;
use crate::path::Reached;
use crate::socket::{ADDRESS_MAX, Address, Generic, inet_bytes, unix_bytes};
use crate::sys::sockopt::TCP_FASTOPEN_NO_COOKIE;
use crate::unix::{Halves, Kind, Name, Stall};
use crate::wait::{Object, Progress, Restart, Stop, SysResult, Wait};

use kinds::{split_type, unix_kind};
pub(crate) use packet::{AUXDATA, SOL_PACKET, receiver_of_frame, sockaddr_ll};

/// net.core.somaxconn.
const SOMAXCONN: u32 = 4096;

/// A socket behind a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sock {
    Inet(SocketId),
    Unix(UnixId),
    Netlink(NetlinkId),
    /// A packet socket, which a network stack has like those of the internet.
    Packet(SocketId),
}

impl Sock {
    fn file_kind(self) -> FileKind {
        match self {
            Sock::Inet(id) | Sock::Packet(id) => FileKind::Inet(id),
            Sock::Unix(id) => FileKind::Unix(id),
            Sock::Netlink(id) => FileKind::Netlink(id),
        }
    }
}

impl Ctx<'_> {
    /// The socket of a descriptor. EBADF, ENOTSOCK.
    pub(crate) fn sock(&mut self, fd: Fd) -> Result<(FileId, Sock), Errno> {
        let file = self.pin(fd)?;
        Ok((file, self.sock_of(file)?))
    }

    /// The socket of a description. ENOTSOCK.
    pub(crate) fn sock_of(&self, file: FileId) -> Result<Sock, Errno> {
        match self.node.files[file].kind {
            FileKind::Inet(id) if self.inet(id)?.proto == Proto::Packet => Ok(Sock::Packet(id)),
            FileKind::Inet(id) => Ok(Sock::Inet(id)),
            FileKind::Unix(id) => Ok(Sock::Unix(id)),
            FileKind::Netlink(id) => Ok(Sock::Netlink(id)),
            _ => Err(Errno::ENOTSOCK),
        }
    }

    /// The kernel's part of an internet socket. EBADF cannot happen for one that a description names.
    pub(crate) fn inet(&self, id: SocketId) -> Result<&InetSocket, Errno> {
        self.node.inet.get(&id).ok_or(Errno::EBADF)
    }

    /// Options of all sockets.
    pub(crate) fn generic(&mut self, sock: Sock) -> Result<&mut Generic, Errno> {
        match sock {
            Sock::Inet(id) | Sock::Packet(id) => {
                Ok(&mut self.node.inet.get_mut(&id).ok_or(Errno::EBADF)?.generic)
            }
            Sock::Unix(id) => Ok(&mut self.node.unix.get_mut(id).generic),
            Sock::Netlink(id) => Ok(&mut self.node.netlinks[id].generic),
        }
    }

    /// Who the caller is for SO_PEERCRED: "the effective credentials".
    fn peer_cred(&self) -> Ucred {
        let cred = &self.credentials().cred;
        Ucred { pid: self.pid.0 as i32, uid: cred.uid, gid: cred.gid }
    }

    /// Credentials as the caller sees them: kept with a number of the machine, shown with that of the caller's namespace, 0 for a
    /// process that it cannot see (`cred_to_ucred` of Linux).
    pub(crate) fn seen_credentials(&self, cred: Ucred) -> Ucred {
        Ucred { pid: Pid(cred.pid as u32).number_in(self.pid_ns()) as i32, ..cred }
    }

    /// Whether a call that cannot go on fails now instead of sleeping.
    pub(crate) fn must_not_sleep(&self, nonblock: bool, timeout: Option<u64>) -> bool {
        nonblock || timeout == Some(0) || self.timed_out()
    }

    /// An address argument (`move_addr_to_kernel`). EINVAL for a length that no address has, EFAULT. The run's digest has what the address
    /// means of it: programs leave the rest of a `struct sockaddr_un` as their stack was, and that may tell of the host (the
    /// processor's XINUSE, of which glibc's `_dl_runtime_resolve_xsave` leaves some there).
    pub(crate) fn read_address(&mut self, addr: Ptr, len: u32) -> Result<Address, Errno> {
        let len = usize::try_from(len as i32).ok().filter(|n| *n <= ADDRESS_MAX).ok_or(Errno::EINVAL)?;
        let mut bytes = vec![0; len];
        let before = self.moved;
        self.read_bytes(addr.0, &mut bytes)?;
        let address = Address::new(bytes);
        self.moved = before;
        self.moved.read(address.meant());
        Ok(address)
    }

    /// Stores an address: "The returned address is truncated if the buffer provided is too small; in this case, addrlen
    /// will return a value greater than was supplied to the call" (accept(2)).
    pub(crate) fn write_address(&mut self, bytes: &[u8], addr: Ptr, len: Ptr) -> Result<(), Errno> {
        let room: i32 = self.read_obj(len)?;
        let room = usize::try_from(room).map_err(|_| Errno::EINVAL)?;
        self.write_bytes(addr.0, &bytes[..bytes.len().min(room)])?;
        self.write_obj(len, &(bytes.len() as i32))
    }

    /// Descriptor limit, checked before a call that gives one and must not lose something on the way.
    fn check_free_fd(&self) -> Result<(), Errno> {
        let limit = self.process().limits[c::RLIMIT_NOFILE as usize].cur;
        self.table().lowest_free(0, limit).map(drop)
    }

    fn open_socket(&mut self, sock: Sock, flags: u64) -> Result<u64, Errno> {
        let (cred, status) = (self.fs_cred(), c::O_RDWR | flags & c::SOCK_NONBLOCK);
        let file = File { made_by: (cred.uid, cred.gid), ..File::new(sock.file_kind(), status) };
        self.open_file(file, flags & c::SOCK_CLOEXEC != 0)
    }
}

impl Ctx<'_> {
    /// How long the close of a description has to linger, ns: it is the last one of a connection with SO_LINGER.
    pub(crate) fn linger_of(&self, file: FileId) -> Option<(SocketId, u64)> {
        let file = &self.node.files[file];
        let FileKind::Inet(id) = file.kind else { return None };
        if file.refs > 1 { None } else { Some((id, self.node.inet_linger(id)?)) }
    }

    /// The connection that this close(2), woken again, has waited for.
    pub(crate) fn lingers_on(&self) -> Option<SocketId> {
        match self.progress()? {
            Progress::Linger(id) => Some(*id),
            _ => None,
        }
    }

    /// Waits until a closed connection has delivered its data. socket(7): "a close(2) or shutdown(2) will not return until
    /// all queued messages for the socket have been successfully sent or the linger timeout has been reached"; a signal
    /// ends the wait, too, and close(2) succeeds all the same.
    pub(crate) fn linger(&mut self, id: SocketId, ns: u64) -> SysResult {
        if self.timed_out() || !self.node.net.of(id).lingering(id) {
            return Ok(0);
        }
        let wait = Wait::object(Object::Inet(id)).deadline(self.deadline(Some(ns)));
        Err(wait.restart(Restart::Partial(0)).progress(Progress::Linger(id)).into())
    }
}

/// socket(2). EAFNOSUPPORT, ESOCKTNOSUPPORT, EPROTONOSUPPORT; EPERM for raw sockets without CAP_NET_RAW.
pub fn socket(k: &mut Ctx<'_>, domain: u32, kind: u32, protocol: u32) -> SysResult {
    let (kind, flags) = split_type(kind)?;
    k.may_open()?;
    let sock = k.create_socket(domain, kind, protocol)?;
    Ok(k.open_socket(sock, flags)?)
}

/// socketpair(2): EOPNOTSUPP for all but Unix sockets. EFAULT leaves no descriptor behind.
pub fn socketpair(k: &mut Ctx<'_>, domain: u32, kind: u32, protocol: u32, fds: Ptr) -> SysResult {
    let (kind, flags) = split_type(kind)?;
    k.room_for_two()?;
    k.check_user(fds.0, 8, Access::Write)?;
    if u64::from(domain) != c::AF_UNIX {
        // Only unix sockets come in pairs; a socket that cannot be made at all says so first.
        let sock = k.create_socket(domain, kind, protocol)?;
        match sock {
            Sock::Inet(id) | Sock::Packet(id) => k.node.close_inet(id),
            Sock::Netlink(id) => drop(k.node.netlinks.remove(id)),
            Sock::Unix(_) => {}
        }
        return err(Errno::EOPNOTSUPP);
    }
    let kind = unix_kind(kind, u64::from(protocol))?;
    k.may_open()?;
    let cred = k.peer_cred();
    let (a, b) = k.node.unix.pair(k.container().net, kind, cred);
    let first = match k.open_socket(Sock::Unix(a), flags) {
        Ok(fd) => fd,
        Err(e) => {
            k.node.close_unix(b, k.outside.base);
            return err(e);
        }
    };
    let second = match k.open_socket(Sock::Unix(b), flags) {
        Ok(fd) => fd,
        Err(e) => {
            let entry = k.table_mut().take(first as i32)?;
            k.node.file_unref(entry.file, k.outside.base);
            return err(e);
        }
    };
    k.write_obj(fds, &[first as i32, second as i32])?;
    Ok(0)
}

/// bind(2). EADDRINUSE, EADDRNOTAVAIL; EACCES for low ports.
pub fn bind(k: &mut Ctx<'_>, fd: Fd, addr: Ptr, len: u32) -> SysResult {
    let (_, sock) = k.sock(fd)?;
    let addr = k.read_address(addr, len)?;
    match sock {
        Sock::Inet(id) => {
            let v6 = k.inet(id)?.v6;
            let local = match addr.to_inet(v6) {
                // "Compatibility games: accept AF_UNSPEC (mapped to AF_INET) only if s_addr is INADDR_ANY" (af_inet.c).
                Err(Errno::EAFNOSUPPORT) if !v6 && addr.family() == Some(c::AF_UNSPEC) => {
                    addr.v4().filter(|a| a.ip().is_unspecified()).ok_or(Errno::EAFNOSUPPORT)?
                }
                other => other?,
            };
            let generic = &k.inet(id)?.generic;
            let free =
                [c::IP_FREEBIND, c::IP_TRANSPARENT].iter().any(|name| generic.is_set(c::IPPROTO_IP, *name));
            // A raw or an echo socket has no port that is protected.
            if !matches!(k.inet(id)?.proto, Proto::Raw | Proto::Icmp) {
                k.may_bind(local, free)?;
            }
            if k.inet(id)?.proto == Proto::Tcp && local.port() == 0 {
                k.may_take_port(Errno::EADDRINUSE)?;
            }
            match k.node.net.of_mut(id).bind(id, local) {
                Err(Errno::EADDRNOTAVAIL) if free => {
                    return Err(Stop::Unsupported(format!(
                        "bind to {local}, which is no address of the node, with IP_FREEBIND or IP_TRANSPARENT"
                    )));
                }
                other => other?,
            }
        }
        Sock::Unix(id) => match addr.to_unix()? {
            None => k.node.unix.autobind(id)?,
            Some(Name::Abstract(name)) => k.node.unix.bind_abstract(id, name)?,
            Some(Name::Path(path)) => bind_path(k, id, path)?,
        },
        Sock::Netlink(id) => k.bind_netlink(id, &addr)?,
        Sock::Packet(id) => k.bind_packet(id, &addr)?,
    }
    Ok(0)
}

impl Ctx<'_> {
    /// "EACCES The address is protected, and the user is not the superuser" (bind(2)). As in `__inet_bind` this goes before
    /// EINVAL and EADDRINUSE, but an address that no interface has is told first.
    fn may_bind(&self, local: SocketAddr, any_address: bool) -> Result<(), Errno> {
        let start = self.container().number("net/ipv4/ip_unprivileged_port_start").map(|start| start as u32);
        let start = start.unwrap_or(u32::from(crate::inet::UNPRIVILEGED_PORT_START));
        let low = (1..start).contains(&u32::from(local.port()));
        if !low || self.capable(crate::caps::CAP_NET_BIND_SERVICE) {
            return Ok(());
        }
        let ip = local.ip().to_canonical();
        let ours = any_address || ip.is_unspecified() || crate::inet::is_local(self.stack(), ip);
        if ours { Err(Errno::EACCES) } else { Ok(()) }
    }
}

/// Makes the socket's inode. As on Linux the name is made first, so an existing one is EADDRINUSE even for a socket that
/// is bound already.
fn bind_path(k: &mut Ctx<'_>, id: UnixId, path: Vec<u8>) -> SysResult<()> {
    // Without what the umask takes, whatever the directory's default list says of it (unix_bind_bsd).
    let mode = (c::S_IFSOCK as u32 | 0o777) & !k.place().umask;
    let here = Fd(c::AT_FDCWD);
    let made = k.at(here, &path, false, |vfs, ctx, at| vfs.mknod(ctx, at, mode, Dev::default()));
    let ino = match made {
        Ok(Reached::Done(ino)) => ino,
        Ok(Reached::At(_)) | Err(Stop::Errno(Errno::EEXIST)) => return err(Errno::EADDRINUSE),
        Err(stop) => return Err(stop),
    };
    if k.node.unix.is_bound(id) {
        k.at(here, &path, false, |vfs, ctx, at| vfs.unlink(ctx, at))?;
        return err(Errno::EINVAL);
    }
    Ok(k.node.unix.bind_path(id, path, ino)?)
}

impl Ctx<'_> {
    /// The socket that a unix address names (`unix_find_other`). The errors of path resolution, EACCES without
    /// permission to write, ECONNREFUSED, EPROTOTYPE.
    pub(crate) fn find_unix(&mut self, name: &Name, kind: Kind) -> SysResult<UnixId> {
        let path = match name {
            Name::Abstract(name) => {
                return Ok(self.node.unix.find_abstract(self.container().net, name, kind)?);
            }
            Name::Path(path) => path,
        };
        let ino = self.resolve_ino(Fd(c::AT_FDCWD), path, true)?;
        let cred = self.fs_cred();
        self.node.vfs.access_ino(ino, &cred, bloodhound_vfs::flags::MAY_WRITE)?;
        if self.node.vfs.kind(ino) != Some(InodeKind::Socket) {
            return err(Errno::ECONNREFUSED);
        }
        if self.node.vfs.is_log_socket(ino) {
            self.node.open_log(self.process().container, ino);
        }
        Ok(self.node.unix.find_path(ino, kind)?)
    }

    /// unix(7): with SO_PASSCRED "and the socket is not yet connected, a unique name in the abstract namespace will be
    /// generated automatically".
    pub(crate) fn autobind_for_credentials(&mut self, id: UnixId) -> Result<(), Errno> {
        if self.node.unix.get(id).passcred { self.node.unix.autobind(id) } else { Ok(()) }
    }
}

/// connect(2). EINPROGRESS for a socket that does not block, EALREADY, EISCONN, ECONNREFUSED.
pub fn connect(k: &mut Ctx<'_>, fd: Fd, addr: Ptr, len: u32) -> SysResult {
    // The address is read before it is asked whether there is a socket (__sys_connect).
    let file = k.pin(fd)?;
    let addr = match k.progress() {
        Some(Progress::Connect(addr)) => addr.clone(),
        _ => k.read_address(addr, len)?,
    };
    let sock = k.sock_of(file)?;
    // After a sleep Linux looks at the timeout, then at signals, and only then whether there is a connection
    // (__inet_stream_connect, unix_stream_connect).
    if let Some(stop) = k.sleep_on()
        && !k.timed_out()
        && k.node.signal_deliverable(k.tid)
    {
        return stop;
    }
    let nonblock = k.node.files[file].nonblocking();
    let timeout = k.generic(sock)?.sndtimeo;
    let mut result = match sock {
        Sock::Inet(id) => connect_inet(k, id, Some(&addr), nonblock, timeout),
        Sock::Unix(id) => connect_unix(k, id, &addr, nonblock, timeout),
        Sock::Netlink(id) => k.connect_netlink(id, &addr).map(|()| 0).map_err(Stop::Errno),
        Sock::Packet(_) => err(Errno::EOPNOTSUPP),
    };
    if let Err(Stop::Block(sleep)) = &mut result {
        sleep.progress = Progress::Connect(addr);
    }
    result
}

/// connect(2) of an internet socket. Without an address, as sendto(2) may have none with MSG_FASTOPEN, it is asked only how far the connection is: EINVAL if
/// none was begun.
pub(super) fn connect_inet(
    k: &mut Ctx<'_>,
    id: SocketId,
    addr: Option<&Address>,
    nonblock: bool,
    timeout: Option<u64>,
) -> SysResult {
    let now: SimTime = k.node.clock;
    let peer = match addr {
        Some(addr) if addr.family().ok_or(Errno::EINVAL)? == c::AF_UNSPEC => {
            k.node.net.of_mut(id).disconnect(id, now)?;
            if k.inet(id)?.proto.is_datagram() {
                k.unbind_device(id)?;
            }
            return Ok(0);
        }
        Some(addr) => k.connect_target(id, addr)?,
        None => Err(Errno::EINVAL),
    };
    let InetSocket { proto, .. } = *k.inet(id)?;
    let generic = &k.inet(id)?.generic;
    let fast = [c::TCP_FASTOPEN_CONNECT, TCP_FASTOPEN_NO_COOKIE];
    if fast.iter().all(|name| generic.is_set(c::IPPROTO_TCP, *name)) {
        return Err(Stop::Unsupported("TCP_FASTOPEN_CONNECT with TCP_FASTOPEN_NO_COOKIE".into()));
    }
    // "EACCES: The user tried to connect to a broadcast address without having the socket broadcast flag enabled" (connect(2)).
    if proto.is_datagram()
        && !k.inet(id)?.generic.is_set(c::SOL_SOCKET, c::SO_BROADCAST)
        && peer.is_ok_and(|peer| k.node.net.of(id).is_broadcast(peer.ip()))
    {
        return err(Errno::EACCES);
    }
    if proto == Proto::Tcp && k.node.net.of(id).local_addr(id)?.port() == 0 {
        k.may_take_port(Errno::EADDRNOTAVAIL)?;
    }
    match k.node.net.of_mut(id).connect_to(id, peer, now) {
        Ok(()) => Ok(0),
        Err(Errno::EINPROGRESS | Errno::EALREADY) if !nonblock && timeout != Some(0) => {
            // SO_SNDTIMEO: connect(2) with a timeout that ran out says EINPROGRESS, and the attempt goes on.
            if k.timed_out() {
                return err(Errno::EINPROGRESS);
            }
            Err(k.socket_wait(Object::Inet(id), timeout).into())
        }
        Err(e) => err(e),
    }
}

fn connect_unix(
    k: &mut Ctx<'_>,
    id: UnixId,
    addr: &Address,
    nonblock: bool,
    timeout: Option<u64>,
) -> SysResult {
    let kind = k.node.unix.get(id).kind;
    if kind == Kind::Datagram && addr.family() == Some(c::AF_UNSPEC) {
        let result = k.node.unix.connect_datagram(id, None).map_err(Stall::Errno);
        k.unix_result(result, nonblock, timeout)?;
        return Ok(0);
    }
    let name = addr.to_unix()?.ok_or(Errno::EINVAL)?;
    k.keep_waiting_for_room(None)?;
    k.autobind_for_credentials(id)?;
    let target = k.find_unix(&name, kind)?;
    let cred = k.peer_cred();
    let result = match kind {
        Kind::Datagram => k.node.unix.connect_datagram(id, Some(target)).map_err(Stall::Errno),
        Kind::Stream | Kind::SeqPacket => k.node.unix.connect(id, target, cred),
    };
    k.unix_result(result, nonblock, timeout)?;
    Ok(0)
}

/// listen(2). EOPNOTSUPP for datagram sockets.
pub fn listen(k: &mut Ctx<'_>, fd: Fd, backlog: i32) -> SysResult {
    let (_, sock) = k.sock(fd)?;
    // "If the backlog argument is greater than the value in /proc/sys/net/core/somaxconn, then it is silently capped";
    // negative ones are, as unsigned numbers, greater.
    let most = k.container().number("net/core/somaxconn").map(|most| most as u32).unwrap_or(SOMAXCONN);
    let backlog = (backlog as u32).min(most);
    match sock {
        Sock::Inet(id) if k.inet(id)?.proto.is_datagram() => return err(Errno::EOPNOTSUPP),
        Sock::Inet(id) => k.node.net.of_mut(id).listen(id, backlog)?,
        Sock::Netlink(_) | Sock::Packet(_) => return err(Errno::EOPNOTSUPP),
        Sock::Unix(id) => {
            let cred = k.peer_cred();
            let result = k.node.unix.listen(id, backlog, cred).map_err(Stall::Errno);
            k.unix_result(result, true, None)?;
        }
    }
    Ok(0)
}

/// accept(2).
pub fn accept(k: &mut Ctx<'_>, fd: Fd, addr: Ptr, len: Ptr) -> SysResult {
    accept4(k, fd, addr, len, FdFlags::empty())
}

/// accept4(2). EMFILE leaves the connection in the queue; with a bad address it is lost.
pub fn accept4(k: &mut Ctx<'_>, fd: Fd, addr: Ptr, len: Ptr, flags: FdFlags) -> SysResult {
    let file = k.pin(fd)?;
    if flags.exceeds(FdFlags::O_CLOEXEC | FdFlags::O_NONBLOCK) {
        return err(Errno::EINVAL);
    }
    // Before taking a connection: EMFILE leaves it in the queue. Linux takes the descriptor before it looks whether there is a socket
    // (__sys_accept4_file).
    k.check_free_fd()?;
    let sock = k.sock_of(file)?;
    k.may_open()?;
    let nonblock = k.node.files[file].nonblocking();
    let timeout = k.generic(sock)?.rcvtimeo;
    let (new, peer) = match sock {
        Sock::Inet(id) => accept_inet(k, id, nonblock, timeout)?,
        Sock::Netlink(_) | Sock::Packet(_) => return err(Errno::EOPNOTSUPP),
        Sock::Unix(id) => {
            k.keep_in_line(Object::Unix(id), k.node.unix.get(id).connections(), timeout)?;
            let sleeps = !k.must_not_sleep(nonblock, timeout);
            let result = k.node.unix.accept(id, sleeps);
            let new = k.unix_received(result, nonblock, timeout)?;
            let name = k.node.unix.peer_name(new).ok().flatten();
            (Sock::Unix(new), unix_bytes(name))
        }
    };
    // The connection is taken: with a bad address it is lost, as on Linux.
    let stored = if addr.is_null() { Ok(()) } else { k.write_address(&peer, addr, len) };
    if let Err(e) = stored {
        match new {
            Sock::Inet(id) => k.node.close_inet(id),
            Sock::Unix(id) => k.node.close_unix(id, k.outside.base),
            Sock::Netlink(_) | Sock::Packet(_) => {}
        }
        return err(e);
    }
    Ok(k.open_socket(new, flags.bits())?)
}

fn accept_inet(
    k: &mut Ctx<'_>,
    id: SocketId,
    nonblock: bool,
    timeout: Option<u64>,
) -> SysResult<(Sock, Vec<u8>)> {
    let listener = k.inet(id)?.clone();
    if listener.proto.is_datagram() {
        return err(Errno::EOPNOTSUPP);
    }
    k.keep_in_line(Object::Inet(id), k.node.net.of(id).connections(id)?, timeout)?;
    match k.node.net.of_mut(id).accept(id) {
        Ok((new, peer)) => {
            // "the socket returned by accept() ... inherits" all of the listener's options, being its copy.
            k.node.inet.insert(new, listener);
            k.may_have_been_reset(new);
            Ok((Sock::Inet(new), inet_bytes(peer)))
        }
        Err(Errno::EAGAIN) if !k.must_not_sleep(nonblock, timeout) => {
            Err(k.wait_in_line(Object::Inet(id), timeout).into())
        }
        Err(e) => err(e),
    }
}

/// getsockname(2).
pub fn getsockname(k: &mut Ctx<'_>, fd: Fd, addr: Ptr, len: Ptr) -> SysResult {
    let (_, sock) = k.sock(fd)?;
    let bytes = match sock {
        Sock::Inet(id) => inet_bytes(k.node.net.of(id).local_addr(id)?),
        Sock::Unix(id) => unix_bytes(k.node.unix.local_name(id)),
        Sock::Netlink(id) => k.node.netlinks[id].name(),
        Sock::Packet(id) => k.packet_name(id)?,
    };
    k.write_address(&bytes, addr, len)?;
    Ok(0)
}

impl Ctx<'_> {
    /// getpeername(2)'s bytes. ENOTCONN.
    pub(crate) fn peer_bytes(&self, sock: Sock) -> Result<Vec<u8>, Errno> {
        match sock {
            // A peer without a port is none to inet_getname.
            Sock::Inet(id) => match self.node.net.of(id).peer_addr(id)? {
                peer if peer.port() == 0 => Err(Errno::ENOTCONN),
                peer => Ok(inet_bytes(peer)),
            },
            Sock::Unix(id) => Ok(unix_bytes(self.node.unix.peer_name(id)?)),
            // Connected or not, the other side is the kernel.
            Sock::Netlink(_) => Ok(crate::netlink::address(0, 0)),
            Sock::Packet(_) => Err(Errno::EOPNOTSUPP),
        }
    }
}

/// getpeername(2). ENOTCONN.
pub fn getpeername(k: &mut Ctx<'_>, fd: Fd, addr: Ptr, len: Ptr) -> SysResult {
    let (_, sock) = k.sock(fd)?;
    let bytes = k.peer_bytes(sock)?;
    k.write_address(&bytes, addr, len)?;
    Ok(0)
}

/// shutdown(2). ENOTCONN; EINVAL for an unknown half.
pub fn shutdown(k: &mut Ctx<'_>, fd: Fd, how: u32) -> SysResult {
    let (_, sock) = k.sock(fd)?;
    if let Sock::Netlink(_) | Sock::Packet(_) = sock {
        return err(Errno::EOPNOTSUPP);
    }
    let halves = match u64::from(how) {
        c::SHUT_RD => Halves { read: true, write: false },
        c::SHUT_WR => Halves { read: false, write: true },
        c::SHUT_RDWR => Halves { read: true, write: true },
        _ => return err(Errno::EINVAL),
    };
    match sock {
        Sock::Inet(id) => {
            let how = match (halves.read, halves.write) {
                (true, true) => Shutdown::Both,
                (true, false) => Shutdown::Read,
                _ => Shutdown::Write,
            };
            let now = k.node.clock;
            k.node.net.of_mut(id).shutdown(id, how, now)?;
        }
        Sock::Unix(id) => {
            k.node.unix.shutdown(id, halves);
            k.node.settle_unix(k.outside.base);
        }
        Sock::Netlink(_) | Sock::Packet(_) => {}
    }
    Ok(0)
}

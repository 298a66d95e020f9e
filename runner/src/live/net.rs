//! The host's network as the workload's clients and checks use it ([`Transport`]).
//!
//! Key type: [`HostNet`]. The clients are the state machines of the simulation, which never wait; so connections are made by threads, and
//! everything else is done without blocking.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::Duration;

use bloodhound_abi::{Errno, SimTime};
use bloodhound_net::SocketId;
use bloodhound_workloads::http::Transport;

/// A connection that nobody has accepted or refused by then never will be: the request was given up before.
const CONNECTING: Duration = Duration::from_secs(120);

/// Sockets of this machine.
#[derive(Debug, Default)]
pub struct HostNet {
    sockets: BTreeMap<u32, Socket>,
    next: u32,
    /// Something was sent or received since [`HostNet::worked`] was asked.
    worked: bool,
}

#[derive(Debug)]
enum Socket {
    New,
    Connecting(Receiver<std::io::Result<TcpStream>>),
    Connected(TcpStream),
    Failed(Errno),
}

impl HostNet {
    /// Whether something was done since the last question: else there is time to sleep.
    pub fn worked(&mut self) -> bool {
        std::mem::take(&mut self.worked)
    }

    fn stream(&mut self, socket: SocketId) -> Result<&mut TcpStream, Errno> {
        match self.sockets.get_mut(&socket.0) {
            Some(Socket::Connected(stream)) => Ok(stream),
            Some(Socket::Failed(error)) => Err(*error),
            Some(Socket::New | Socket::Connecting(_)) | None => Err(Errno::ENOTCONN),
        }
    }
}

/// A thread that connects; who waits for it may have gone.
fn connecting(to: SocketAddr) -> Receiver<std::io::Result<TcpStream>> {
    let (sender, receiver) = mpsc::channel();
    let failed = sender.clone();
    let connect = move || {
        let stream = TcpStream::connect_timeout(&to, CONNECTING).and_then(|stream| {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            Ok(stream)
        });
        let _nobody_waits = sender.send(stream);
    };
    if let Err(error) = std::thread::Builder::new().name("connect".into()).spawn(connect) {
        let _nobody_waits = failed.send(Err(error));
    }
    receiver
}

/// The error number of the host's; what has none is a broken connection.
fn errno(error: &std::io::Error) -> Errno {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => return Errno::EAGAIN,
        ErrorKind::TimedOut => return Errno::ETIMEDOUT,
        _ => {}
    }
    error.raw_os_error().and_then(|n| u16::try_from(n).ok()).map_or(Errno::EIO, Errno)
}

impl Transport for HostNet {
    fn open(&mut self, _ipv6: bool) -> SocketId {
        self.next += 1;
        self.sockets.insert(self.next, Socket::New);
        SocketId(self.next)
    }

    fn connect(&mut self, socket: SocketId, to: SocketAddr, _: SimTime) -> Result<(), Errno> {
        let Some(state) = self.sockets.get_mut(&socket.0) else { return Err(Errno::EBADF) };
        match state {
            Socket::New => {
                *state = Socket::Connecting(connecting(to));
                Err(Errno::EINPROGRESS)
            }
            Socket::Connecting(receiver) => {
                let (result, now) = match receiver.try_recv() {
                    Err(TryRecvError::Empty) => return Err(Errno::EALREADY),
                    Err(TryRecvError::Disconnected) => (Err(Errno::EIO), Socket::Failed(Errno::EIO)),
                    Ok(Ok(stream)) => (Ok(()), Socket::Connected(stream)),
                    Ok(Err(error)) => (Err(errno(&error)), Socket::Failed(errno(&error))),
                };
                *state = now;
                self.worked = true;
                result
            }
            Socket::Connected(_) => Ok(()),
            Socket::Failed(error) => Err(*error),
        }
    }

    fn send(&mut self, socket: SocketId, bytes: &[u8], _: SimTime) -> Result<usize, Errno> {
        let sent = self.stream(socket)?.write(bytes).map_err(|e| errno(&e));
        self.worked |= sent != Err(Errno::EAGAIN);
        sent
    }

    fn recv(&mut self, socket: SocketId, buffer: &mut [u8], _: SimTime) -> Result<usize, Errno> {
        let received = self.stream(socket)?.read(buffer).map_err(|e| errno(&e));
        self.worked |= received != Err(Errno::EAGAIN);
        received
    }

    fn is_usable(&mut self, socket: SocketId) -> bool {
        // Nothing to read, no end and no error: then a look at what is there would have to wait.
        let waits = |stream: &mut TcpStream| {
            stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        };
        self.stream(socket).is_ok_and(waits)
    }

    fn close(&mut self, socket: SocketId, _: SimTime) {
        if let Some(Socket::Connected(stream)) = self.sockets.remove(&socket.0) {
            // It is gone in any case.
            let _ignored = stream.shutdown(Shutdown::Both);
        }
    }
}

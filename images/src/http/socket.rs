//! Connections whose every read has a time limit, and the proxies that connections are made through.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use super::url::{Scheme, Url};
use super::{Failed, Timeouts, base64};

enum Inner {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection.
pub(crate) struct Socket {
    inner: Inner,
    timeouts: Timeouts,
    /// When everything must be over.
    deadline: Option<Instant>,
    /// When the present window began, and the bytes that came in it.
    window: (Instant, u64),
}

impl Socket {
    fn new(inner: Inner, timeouts: &Timeouts) -> Socket {
        Socket { inner, timeouts: *timeouts, deadline: None, window: (Instant::now(), 0) }
    }

    /// A connection to a server, directly or through a proxy.
    pub(super) fn connect(url: &Url, proxy: Option<&Url>, timeouts: &Timeouts) -> Result<Socket, Failed> {
        let server = proxy.unwrap_or(url);
        let fail = |text: String, transient| Failed::new(format!("{}: {text}", server.origin()), transient);
        let addresses = (server.host.as_str(), server.port)
            .to_socket_addrs()
            .map_err(|e| fail(format!("there is no such host: {e}"), false))?;
        let mut last = None;
        for address in addresses.take(4) {
            match TcpStream::connect_timeout(&address, timeouts.connect) {
                Ok(stream) => {
                    // Requests are written at once.
                    let _ignored = stream.set_nodelay(true);
                    let mut socket = Socket::new(Inner::Tcp(stream), timeouts);
                    if proxy.is_some() && url.scheme == Scheme::Https {
                        socket.bound(Some(timeouts.connect));
                        socket.tunnel(url, server).map_err(|e| fail(e.to_string(), true))?;
                    }
                    return Ok(socket);
                }
                Err(e) => last = Some(e),
            }
        }
        let error = last.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into());
        // Nobody listens: neither will anybody in a second.
        Err(fail(format!("no connection: {error}"), error.kind() != io::ErrorKind::ConnectionRefused))
    }

    pub(super) fn unix(path: &Path, timeouts: &Timeouts) -> io::Result<Socket> {
        Ok(Socket::new(Inner::Unix(UnixStream::connect(path)?), timeouts))
    }

    /// Everything must be over after this time; without one the rate is what is bounded.
    pub(super) fn bound(&mut self, time: Option<Duration>) {
        self.deadline = time.map(|time| Instant::now() + time);
        self.window = (Instant::now(), 0);
    }

    /// How long making the connection may take.
    pub(super) fn connect_time(&self) -> Duration {
        self.timeouts.connect
    }

    /// Asks a proxy to pass everything on.
    fn tunnel(&mut self, url: &Url, proxy: &Url) -> io::Result<()> {
        let host = if url.host.contains(':') { format!("[{}]", url.host) } else { url.host.clone() };
        let place = format!("{host}:{}", url.port);
        let mut head = format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n");
        if let Some(user) = &proxy.user {
            head.push_str(&format!("Proxy-Authorization: Basic {}\r\n", base64::encode(user.as_bytes())));
        }
        head.push_str("\r\n");
        self.write_all(head.as_bytes())?;
        // Byte by byte: what follows the answer's head is not the proxy's any more.
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if answer.len() > 8192 || self.read(&mut byte)? == 0 {
                return Err(io::Error::other("the proxy gives no answer"));
            }
            answer.push(byte[0]);
        }
        let line = String::from_utf8_lossy(&answer).lines().next().unwrap_or_default().to_owned();
        match line.split(' ').nth(1) {
            Some(status) if status.starts_with('2') => Ok(()),
            _ => Err(io::Error::other(format!("the proxy refuses the connection: {line}"))),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let now = Instant::now();
        let mut wait = self.timeouts.idle;
        if let Some(deadline) = self.deadline {
            let left = deadline.saturating_duration_since(now);
            if left.is_zero() {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the answer takes too long"));
            }
            wait = wait.min(left);
        } else if now.saturating_duration_since(self.window.0) > self.timeouts.window {
            let (bytes, seconds) = (self.window.1, self.timeouts.window.as_secs_f32());
            if bytes < self.timeouts.window_bytes {
                let text = format!("it is too slow: {bytes} bytes in {seconds} s");
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            self.window = (now, 0);
        }
        // Zero would mean for ever.
        let wait = Some(wait.max(Duration::from_millis(1)));
        let read = match &mut self.inner {
            Inner::Tcp(stream) => stream.set_read_timeout(wait).and_then(|()| stream.read(buffer)),
            Inner::Unix(stream) => stream.set_read_timeout(wait).and_then(|()| stream.read(buffer)),
        };
        let over = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let read = read.map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                let text = if over { "the answer takes too long" } else { "no answer came in time" };
                io::Error::new(io::ErrorKind::TimedOut, text)
            }
            _ => e,
        })?;
        self.window.1 += read as u64;
        Ok(read)
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let wait = Some(self.timeouts.idle);
        match &mut self.inner {
            Inner::Tcp(stream) => stream.set_write_timeout(wait).and_then(|()| stream.write(buffer)),
            Inner::Unix(stream) => stream.set_write_timeout(wait).and_then(|()| stream.write(buffer)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection with or without TLS.
pub(crate) enum Stream {
    Plain(Socket),
    Tls(Box<rustls::StreamOwned<rustls::ClientConnection, Socket>>),
}

impl Stream {
    pub(super) fn socket(&mut self) -> &mut Socket {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(stream) => &mut stream.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(buffer),
            Stream::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write(buffer),
            Stream::Tls(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.flush(),
            Stream::Tls(stream) => stream.flush(),
        }
    }
}

/// The proxies that the environment names.
#[derive(Debug, Default)]
pub(crate) struct Proxies {
    http: Option<Url>,
    https: Option<Url>,
    except: Vec<String>,
}

impl Proxies {
    /// `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`, in upper or lower case, as curl and engines understand them.
    pub(crate) fn from_environment(
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Proxies, crate::error::Error> {
        let get = |name: &str| {
            variable(&name.to_ascii_lowercase()).or_else(|| variable(name)).filter(|v| !v.is_empty())
        };
        let proxy = |name: &str| {
            let text = get(name);
            let whole = text.map(|text| if text.contains("://") { text } else { format!("http://{text}") });
            let url = whole.map(|text| Url::parse(&text)).transpose().map_err(|e| e.at(name))?;
            if url.as_ref().is_some_and(|url| url.scheme == Scheme::Https) {
                let text = format!("{name}: a proxy that is itself reached by https is not supported");
                return Err(crate::error::Error::refused(text));
            }
            Ok(url)
        };
        let except = get("NO_PROXY").unwrap_or_default();
        let except = except.split(',').map(|name| name.trim().trim_start_matches('.').to_ascii_lowercase());
        Ok(Proxies {
            http: proxy("HTTP_PROXY")?,
            https: proxy("HTTPS_PROXY")?,
            except: except.filter(|name| !name.is_empty()).collect(),
        })
    }

    pub(super) fn of(&self, url: &Url) -> Option<Url> {
        let host = url.host.to_ascii_lowercase();
        let local = host == "localhost" || host == "::1" || host.starts_with("127.");
        let excepted = self.except.iter().any(|name| {
            let name = name.split_once(':').map_or(name.as_str(), |(name, _)| name);
            name == "*" || host == name || host.ends_with(&format!(".{name}"))
        });
        if local || excepted {
            return None;
        }
        match url.scheme {
            Scheme::Http => self.http.clone(),
            Scheme::Https => self.https.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_names_proxies() {
        let set = |name: &str| match name {
            "https_proxy" => Some("proxy:3128".to_owned()),
            "NO_PROXY" => Some(".internal, registry.example".to_owned()),
            _ => None,
        };
        let proxies = Proxies::from_environment(&set).expect("proxies");
        let of = |text: &str| proxies.of(&Url::parse(text).expect("an address")).map(|url| url.origin());
        assert_eq!(of("https://ghcr.io/").as_deref(), Some("http://proxy:3128"));
        for direct in
            ["https://a.internal/", "https://registry.example/", "https://localhost:5000/", "http://ghcr.io/"]
        {
            assert_eq!(of(direct), None, "{direct}");
        }
    }
}

//! /dev/log: the datagram socket of syslog(3), which a syslog daemon would read. A container seldom has one, so the kernel reads
//! the messages and prints them among what the service writes to standard error.
//!
//! The socket behind the inode is made when somebody connects or sends to it first, and lasts until its container ends. A
//! daemon that runs in the container replaces the inode by one of its own, and gets the messages then.

use bloodhound_vfs::Ino;

use super::{Ancillary, Kind, UnixSockets};
use crate::container::ContainerId;
use crate::file::Console;
use crate::ids::*;
use crate::node::{ConsoleChunk, Node};

/// The path that the socket is bound to.
const PATH: &[u8] = b"/dev/log";
/// Names of severities, from 0, as logger(1) has them.
const SEVERITIES: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];
/// Names of facilities, from 0; those after the last one have numbers only.
const FACILITIES: [&str; 12] =
    ["kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp"];
/// The first of LOG_LOCAL0 to LOG_LOCAL7.
const LOCAL0: usize = 16;
/// `Mmm dd hh:mm:ss `.
const TIMESTAMP: usize = 16;

/// A message to /dev/log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogMessage {
    container: ContainerId,
    sender: Pid,
    data: Vec<u8>,
}

impl super::UnixSocket {
    /// Whether it is a /dev/log.
    pub(crate) fn is_log(&self) -> bool {
        self.log_of.is_some()
    }
}

impl UnixSockets {
    /// Takes a message. Nobody reads files or credentials that come with it.
    pub(super) fn log(&mut self, container: ContainerId, data: &[u8], anc: Ancillary) {
        self.effects.dropped.extend(anc.files);
        let sender = Pid(anc.sender.pid as u32);
        self.effects.logged.push_back(LogMessage { container, sender, data: data.to_vec() });
    }

    /// The container's processes are gone.
    pub(crate) fn close_log(&mut self, container: ContainerId) {
        let log = self.sockets.iter().find(|(_, s)| s.log_of == Some(container)).map(|(id, _)| id);
        if let Some(id) = log {
            self.close(id);
        }
    }
}

impl Node {
    /// Makes the socket behind the inode of a container's /dev/log, unless it is there.
    pub(crate) fn open_log(&mut self, container: ContainerId, ino: Ino) {
        if self.unix.paths.contains_key(&ino) {
            return;
        }
        let net = self.container(container).net;
        let id = self.unix.create(net, Kind::Datagram, 0);
        self.unix.sockets[id].log_of = Some(container);
        // A new socket has no name.
        let _bound = self.unix.bind_path(id, PATH.to_vec(), ino);
    }

    /// Prints a message as a line of the service's standard error.
    pub(super) fn print_logged(&mut self, message: LogMessage) {
        let check = self.processes.get(&message.sender).is_some_and(|process| process.is_check);
        self.console.push(ConsoleChunk {
            at: self.clock,
            container: self.container(message.container).id,
            pid: message.sender,
            stream: Console::Err,
            check,
            bytes: line(&message.data),
        });
    }
}

/// `syslog daemon.info: sshd[7]: text`, of what syslog(3) sends: `<30>Jan  1 00:00:00 sshd[7]: text`. The output that it goes to
/// has times of its own.
fn line(data: &[u8]) -> Vec<u8> {
    let data = data.strip_suffix(b"\0").unwrap_or(data).trim_ascii_end();
    let (priority, text) = priority(data).unwrap_or((None, data));
    let mut out = b"syslog ".to_vec();
    if let Some(priority) = priority {
        let facility = match usize::from(priority) / 8 {
            known if known < FACILITIES.len() => FACILITIES[known].to_string(),
            local if local >= LOCAL0 => format!("local{}", local - LOCAL0),
            other => other.to_string(),
        };
        out.extend_from_slice(format!("{facility}.{}: ", SEVERITIES[usize::from(priority) % 8]).as_bytes());
    }
    out.extend_from_slice(if has_timestamp(text) { &text[TIMESTAMP..] } else { text });
    out.push(b'\n');
    out
}

/// The number in angle brackets that a message begins with, and the rest of it. RFC 3164, 4.1.1: "the number contained within
/// these angle brackets is known as the Priority value and represents both the Facility and Severity".
fn priority(data: &[u8]) -> Option<(Option<u8>, &[u8])> {
    let end = data.iter().take(5).position(|byte| *byte == b'>')?;
    let number: u8 = std::str::from_utf8(data[..end].strip_prefix(b"<")?).ok()?.parse().ok()?;
    (usize::from(number) < (LOCAL0 + 8) * 8).then_some((Some(number), &data[end + 1..]))
}

/// Whether a message goes on with "Mmm dd hh:mm:ss" and a space (RFC 3164, 4.1.2).
fn has_timestamp(text: &[u8]) -> bool {
    const SHAPE: &[u8; TIMESTAMP] = b"aaa _9 99:99:99 ";
    text.len() >= TIMESTAMP
        && SHAPE.iter().zip(text).all(|(shape, byte)| match shape {
            b'a' => byte.is_ascii_alphabetic(),
            b'9' => byte.is_ascii_digit(),
            b'_' => byte.is_ascii_digit() || *byte == b' ',
            other => byte == other,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(data: &str) -> String {
        String::from_utf8(line(data.as_bytes())).unwrap()
    }

    #[test]
    fn messages_are_lines_with_the_names_of_their_priority() {
        let cases = [
            ("<30>Jan  1 00:00:00 sshd[7]: text\0", "syslog daemon.info: sshd[7]: text\n"),
            ("<0>Dec 31 23:59:59 a: b\n", "syslog kern.emerg: a: b\n"),
            ("<191>no time", "syslog local7.debug: no time\n"),
            ("<110>x", "syslog 13.info: x\n"),
            ("<192>no such priority", "syslog <192>no such priority\n"),
            ("<999999>", "syslog <999999>\n"),
            ("plain", "syslog plain\n"),
            ("", "syslog \n"),
            ("<", "syslog <\n"),
        ];
        for (data, expected) in cases {
            assert_eq!(shown(data), expected, "{data}");
        }
    }
}

//! Shapes of messages: which of two nodes talks to which, over what port, about how much, and what the first bytes say.
//!
//! Key types: [`Shape`]. The first bytes are read as a person would read them who does not know the protocol: a first word and a status of a text, the
//! tag behind the length of a frame, else the kinds of the first bytes. Neighbours: [`super::classes`], [`super::gather`].

use std::net::SocketAddr;

use bloodhound_abi::digest::content;
use bloodhound_net::{Body, Flags, NodeId, Packet};

use super::book::Book;
use super::classes::Classes;
use super::table::mix;

/// Ports from here on are those that a kernel gives to who connects (ip(7), `ip_local_port_range`).
const EPHEMERAL: u16 = 32768;
/// How much of a message is looked at.
const HEAD: usize = 24;
/// Longer frames than this are none.
const FRAME: u32 = 1 << 26;

/// What a packet is.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Who sent it, and who is to have it.
    pub from: Option<NodeId>,
    pub to: Option<NodeId>,
    /// All of it in one hash.
    pub whole: u64,
    /// What is said, without its size and without who says it: what the role of a node is known by.
    pub said: u64,
    /// Whether the sender is the side that connected.
    pub asks: bool,
    /// Whether it has data.
    pub data: bool,
}

impl Shape {
    /// The shape of a packet; `None` for one that only acknowledges.
    pub fn of(packet: &Packet, classes: &Classes, book: &mut Book) -> Option<Shape> {
        let (kind, payload): (&str, &[u8]) = match &packet.body {
            Body::Tcp(s) if s.flags.contains(Flags::RST) => ("reset", &[]),
            Body::Tcp(s) if s.flags.contains(Flags::SYN | Flags::ACK) => ("accept", &[]),
            Body::Tcp(s) if s.flags.contains(Flags::SYN) => ("connect", &[]),
            Body::Tcp(s) if !s.payload.is_empty() => ("tcp", &s.payload),
            Body::Tcp(s) if s.flags.contains(Flags::FIN) => ("close", &[]),
            Body::Tcp(_) => return None,
            Body::Udp(_, data) => ("udp", data),
            Body::Icmp(..) => ("icmp", &[]),
            Body::Raw(_, _, data) => ("raw", data),
        };
        let (from, to) = (classes.node(packet.src.ip()), classes.node(packet.dst.ip()));
        let (port, asks) = port(packet.src, packet.dst);
        let token = token(payload);
        let said = mix(mix(content(kind.as_bytes()), u64::from(port) << 1 | u64::from(asks)), token.hash());
        let said = book.part(said, |_| {
            format!("{kind} {}{port} {}", if asks { "to :" } else { "from :" }, token.words())
        });
        let size = size_class(payload.len());
        let ends = mix(classes.of(from), classes.of(to));
        let whole = book.part(mix(mix(said, ends), u64::from(size)), |book| {
            let size = if size == 0 {
                String::new()
            } else {
                format!(", at least {} bytes", 1u64 << (2 * size - 2))
            };
            format!("{} -> {}: {}{size}", classes.name(from), classes.name(to), book.words(said))
        });
        Some(Shape { from, to, whole, said, asks, data: !payload.is_empty() })
    }
}

/// The port that a service is known by, and whether the message goes to it.
pub fn port(src: SocketAddr, dst: SocketAddr) -> (u16, bool) {
    match (src.port() < EPHEMERAL, dst.port() < EPHEMERAL) {
        (_, true) => (dst.port(), true),
        (true, false) => (src.port(), false),
        (false, false) => (0, true),
    }
}

/// 0 for nothing; else sizes are alike that are of one power of 4.
fn size_class(len: usize) -> u32 {
    len.checked_ilog2().map_or(0, |log| log / 2 + 1)
}

/// What a message begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Token {
    bytes: [u8; 16],
    len: usize,
}

impl Token {
    fn push(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.len) {
            *place = byte;
            self.len += 1;
        }
    }

    fn hash(&self) -> u64 {
        content(&self.bytes[..self.len])
    }

    fn words(&self) -> String {
        self.bytes[..self.len].escape_ascii().to_string()
    }
}

/// The token of a message.
fn token(payload: &[u8]) -> Token {
    let mut token = Token::default();
    let head = &payload[..payload.len().min(HEAD)];
    let text = |b: &u8| b.is_ascii_graphic() || matches!(b, b' ' | b'\r' | b'\n' | b'\t');
    if head.is_empty() {
        return token;
    }
    if head.iter().take(4).all(text) {
        words(head, &mut token);
        return token;
    }
    if let Some(tag) = behind_length(payload) {
        token.push(b'@');
        token.push(tag);
        return token;
    }
    // The first byte as it is; of the others what kind they are.
    token.push(head[0]);
    for byte in &head[1..head.len().min(4)] {
        token.push(match byte {
            0 => b'0',
            1..32 => b's',
            32..127 => b'a',
            _ => b'x',
        });
    }
    token
}

/// The first word, and a number of three digits such as a status.
fn words(head: &[u8], token: &mut Token) {
    if !head[0].is_ascii_alphanumeric() {
        token.push(head[0]);
    }
    let letters = |b: &&u8| b.is_ascii_alphabetic() || **b == b'_';
    let begin = head.iter().position(|b| letters(&b)).unwrap_or(head.len());
    head[begin..].iter().take_while(letters).take(10).for_each(|b| token.push(*b));
    let mut parts = head.split(|b| !b.is_ascii_digit());
    if let Some(status) = parts.find(|part| part.len() == 3) {
        token.push(b' ');
        status.iter().for_each(|b| token.push(*b));
    }
}

/// The byte behind the length of a frame, if that is how the message begins: four bytes, in either order, that do not reach beyond it.
fn behind_length(payload: &[u8]) -> Option<u8> {
    let first: [u8; 4] = payload.get(..4)?.try_into().ok()?;
    let tag = *payload.get(4)?;
    let fits = |len: u32| len > 0 && len < FRAME && len as usize <= payload.len();
    (fits(u32::from_le_bytes(first)) || fits(u32::from_be_bytes(first))).then_some(tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(bytes: &[u8]) -> String {
        token(bytes).words()
    }

    #[test]
    fn first_bytes_say_what_a_message_is() {
        assert_eq!(words_of(b"GET /key-123 HTTP/1.1\r\n"), "GET 123");
        assert_eq!(words_of(b"PUT /key-1 HTTP/1.1\r\n"), "PUT");
        assert_eq!(words_of(b"HTTP/1.1 503 Service Unavailable"), "HTTP 503");
        assert_eq!(words_of(b"*3\r\n$3\r\nSET\r\n"), "*SET");
        assert_eq!(words_of(b"+OK\r\n"), "+OK");
        assert_eq!(words_of(b"\x05\0\0\0\x02abcd"), "@\\x02");
        assert_eq!(words_of(b"\0\0\0\x05\x02abcd"), "@\\x02");
        assert_eq!(words_of(b"\x16\x03\x01\xfe\0\x01"), "\\x16ssx");
        assert_eq!(words_of(b""), "");
    }

    #[test]
    fn any_bytes_have_a_token() {
        for len in 0..40usize {
            for fill in 0..=255u8 {
                assert!(token(&vec![fill; len]).len <= 16);
            }
        }
    }

    #[test]
    fn sizes_are_alike_by_powers_of_four() {
        assert_eq!([0, 1, 3, 4, 15, 16, 1460].map(size_class), [0, 1, 1, 2, 2, 3, 6]);
    }
}

//! The name server at 127.0.0.11 that a container engine gives to each container.
//!
//! Key type: [`Names`]: the names of the stack and their addresses, and the names outside of it that were asked for. An unknown name
//! does not exist, at once (NXDOMAIN): there is nothing outside of the stack. Messages are those of RFC 1035. Neighbour: `iface`,
//! which hands over the datagrams to that address.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use crate::Packet;

/// Where it listens, as in an engine's resolv.conf.
pub(crate) const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 11)), 53);

/// Names and their addresses, in lower case.
pub(crate) type Table = Arc<BTreeMap<String, Vec<IpAddr>>>;

/// What a container can resolve.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Names {
    /// `None`: there is no name server.
    pub(crate) table: Option<Table>,
    /// Names that do not exist, in the order in which they were asked for.
    pub(crate) unknown: Vec<String>,
    /// Questions are handed over, and somebody else says what becomes of them.
    pub(crate) held: bool,
    /// Those that were not taken yet.
    pub(crate) questions: Vec<Packet>,
}

/// What a name server says to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerAnswer {
    /// What it knows.
    Known,
    /// "Server failure - The name server was unable to process this query due to a problem with the name server" (RFC 1035, section
    /// 4.1.1).
    Failure,
}

/// Record types (RFC 1035, section 3.2.2; RFC 3596).
const A: u16 = 1;
const PTR: u16 = 12;
const AAAA: u16 = 28;
const ANY: u16 = 255;
/// Response codes (RFC 1035, section 4.1.1).
const NOT_IMPLEMENTED: u8 = 4;
const NO_SUCH_NAME: u8 = 3;
const SERVER_FAILURE: u8 = 2;
/// How long an answer may be kept, in seconds: what an engine says.
const TTL: u32 = 600;
const HEADER: usize = 12;

/// A question: the name in lower case without the last dot, its type, and where it ends in the message.
struct Question {
    name: String,
    kind: u16,
    end: usize,
}

impl Names {
    /// The answer to a message of which nothing is known but that the server failed.
    pub(crate) fn failure(message: &[u8]) -> Option<Vec<u8>> {
        let flags = *message.get(2)?;
        if message.len() < HEADER || flags & 0x80 != 0 {
            return None;
        }
        let end = question(message).map_or(HEADER, |question| question.end);
        Some(response(message, SERVER_FAILURE, end, &[]))
    }

    /// The answer to a message; `None` for what is no question, which stays without one.
    pub(crate) fn answer(&mut self, message: &[u8]) -> Option<Vec<u8>> {
        let table = self.table.clone()?;
        let flags = *message.get(2)?;
        // A response is not answered, or two servers could do so for ever.
        if message.len() < HEADER || flags & 0x80 != 0 {
            return None;
        }
        let standard = flags & 0x78 == 0 && message[4..6] == [0, 1];
        let Some(question) = standard.then(|| question(message)).flatten() else {
            return Some(response(message, NOT_IMPLEMENTED, HEADER, &[]));
        };
        let found = match question.name.as_str() {
            "localhost" => Some(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]),
            name => table.get(name).cloned(),
        };
        let Some(addresses) = found else {
            if question.kind != PTR {
                self.unknown.push(question.name);
            }
            return Some(response(message, NO_SUCH_NAME, question.end, &[]));
        };
        let wanted = |ip: &IpAddr| match ip {
            IpAddr::V4(_) => matches!(question.kind, A | ANY),
            IpAddr::V6(_) => matches!(question.kind, AAAA | ANY),
        };
        let addresses: Vec<IpAddr> = addresses.into_iter().filter(wanted).collect();
        Some(response(message, 0, question.end, &addresses))
    }
}

/// The first question of a message.
fn question(message: &[u8]) -> Option<Question> {
    let mut labels = Vec::new();
    let mut at = HEADER;
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        // A name in a question is never compressed; a label has at most 63 bytes, a name 255.
        if length > 63 || at > HEADER + 255 {
            return None;
        }
        labels.push(String::from_utf8_lossy(message.get(at..at + length)?).to_ascii_lowercase());
        at += length;
    }
    let tail = message.get(at..at + 4)?;
    Some(Question { name: labels.join("."), kind: u16::from_be_bytes([tail[0], tail[1]]), end: at + 4 })
}

/// A response with the message's header and question, and these addresses.
fn response(message: &[u8], code: u8, end: usize, addresses: &[IpAddr]) -> Vec<u8> {
    let mut out = message[..end].to_vec();
    // A response, recursion is wanted if it was, and there is recursion.
    out[2] = 0x80 | (message[2] & 0x79);
    out[3] = 0x80 | code;
    let questions: u16 = if end > HEADER { 1 } else { 0 };
    out[4..6].copy_from_slice(&questions.to_be_bytes());
    out[6..8].copy_from_slice(&(addresses.len() as u16).to_be_bytes());
    out[8..HEADER].fill(0);
    for ip in addresses {
        // The name is that of the question, at offset 12 (RFC 1035, section 4.1.4).
        out.extend([0xc0, HEADER as u8]);
        out.extend(if ip.is_ipv4() { A } else { AAAA }.to_be_bytes());
        out.extend([0, 1]);
        out.extend(TTL.to_be_bytes());
        match ip {
            IpAddr::V4(ip) => {
                out.extend([0, 4]);
                out.extend(ip.octets());
            }
            IpAddr::V6(ip) => {
                out.extend([0, 16]);
                out.extend(ip.octets());
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &str, kind: u16) -> Vec<u8> {
        let mut out = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            out.push(label.len() as u8);
            out.extend(label.as_bytes());
        }
        out.extend([0]);
        out.extend(kind.to_be_bytes());
        out.extend([0, 1]);
        out
    }

    fn names() -> Names {
        let ips = vec!["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()];
        Names { table: Some(Arc::new(BTreeMap::from([("db".to_owned(), ips)]))), ..Names::default() }
    }

    #[test]
    fn known_names_have_addresses_of_the_family_that_is_asked_for() {
        let mut names = names();
        let answer = names.answer(&query("DB", A)).unwrap();
        assert_eq!((&answer[..4], &answer[6..8]), (&[0xab, 0xcd, 0x81, 0x80][..], &[0, 1][..]));
        assert_eq!(answer[answer.len() - 4..], [10, 0, 0, 2]);
        let answer = names.answer(&query("db", AAAA)).unwrap();
        assert_eq!((answer[3] & 15, answer[7], answer[answer.len() - 1]), (0, 1, 2));
        let answer = names.answer(&query("db", 15)).unwrap();
        assert_eq!((answer[3] & 15, answer[7]), (0, 0));
        assert!(names.unknown.is_empty());
    }

    #[test]
    fn other_names_do_not_exist_and_are_remembered() {
        let mut names = names();
        assert_eq!(names.answer(&query("api.example.com", A)).unwrap()[3] & 15, NO_SUCH_NAME);
        assert_eq!(names.answer(&query("1.0.0.10.in-addr.arpa", PTR)).unwrap()[3] & 15, NO_SUCH_NAME);
        assert_eq!(names.unknown, ["api.example.com"]);
    }

    #[test]
    fn a_failure_repeats_the_question() {
        let answer = Names::failure(&query("db", A)).unwrap();
        assert_eq!((answer[3] & 15, &answer[4..8]), (SERVER_FAILURE, &[0, 1, 0, 0][..]));
        assert_eq!(answer[12..], query("db", A)[12..]);
        let whole = query("db", A);
        for length in 0..whole.len() {
            assert!(Names::failure(&whole[..length]).is_none_or(|a| a[3] & 15 == SERVER_FAILURE));
        }
    }

    #[test]
    fn broken_messages_harm_nobody() {
        let mut names = names();
        let whole = query("db", A);
        for length in 0..whole.len() {
            let answer = names.answer(&whole[..length]);
            assert!(answer.is_none_or(|a| a[3] & 15 == NOT_IMPLEMENTED), "{length}");
        }
        let mut response = whole.clone();
        response[2] |= 0x80;
        assert_eq!(names.answer(&response), None);
        assert_eq!(Names::default().answer(&whole), None);
    }
}

//! Messages of netlink(7): requests as programs send them ([`Request`]) and answers as they are built ([`Message`]).

use bloodhound_abi::Errno;

/// `struct nlmsghdr`.
pub const HEADER: usize = 16;
/// NLM_F_REQUEST.
pub const REQUEST: u16 = 1;
/// NLM_F_MULTI.
pub const MULTI: u16 = 2;
/// NLM_F_ACK.
pub const ACK: u16 = 4;
/// NLM_F_DUMP_FILTERED.
pub const DUMP_FILTERED: u16 = 0x20;
/// NLM_F_CAPPED, in an NLMSG_ERROR.
const CAPPED: u16 = 0x100;
/// NLM_F_ROOT | NLM_F_MATCH; either asks for a dump.
pub const DUMP: u16 = 0x300;
/// NLMSG_ERROR.
const ERROR: u16 = 2;
/// NLMSG_DONE.
const DONE: u16 = 3;
/// Types below are for the protocol itself (NLMSG_MIN_TYPE).
pub const MIN_TYPE: u16 = 0x10;

/// NLMSG_ALIGN, which is NLA_ALIGN, too.
pub fn align(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    /// nlmsg_type.
    pub kind: u16,
    /// nlmsg_flags.
    pub flags: u16,
    /// nlmsg_seq.
    pub seq: u32,
    /// The header and what is behind it.
    pub whole: &'a [u8],
}

impl<'a> Request<'a> {
    /// Splits the first request off; `None` where Linux ends without a word (`netlink_rcv_skb`).
    pub fn split(data: &'a [u8]) -> Option<(Request<'a>, &'a [u8])> {
        let head = data.first_chunk::<HEADER>()?;
        let len = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if len < HEADER || data.len() < len {
            return None;
        }
        let request = Request {
            kind: u16::from_le_bytes([head[4], head[5]]),
            flags: u16::from_le_bytes([head[6], head[7]]),
            seq: u32::from_le_bytes([head[8], head[9], head[10], head[11]]),
            whole: &data[..len],
        };
        Some((request, &data[align(len).min(data.len())..]))
    }

    /// What is behind the header.
    pub fn payload(&self) -> &'a [u8] {
        &self.whole[HEADER..]
    }

    /// A byte of the payload.
    pub fn byte(&self, at: usize) -> u8 {
        self.payload().get(at).copied().unwrap_or(0)
    }

    /// Four bytes of the payload.
    pub fn word(&self, at: usize) -> u32 {
        [0, 1, 2, 3].iter().fold(0, |word, i| word | u32::from(self.byte(at + i)) << (8 * i))
    }

    /// Whether bytes of the payload are all 0.
    pub fn zero(&self, range: std::ops::Range<usize>) -> bool {
        range.into_iter().all(|at| self.byte(at) == 0)
    }

    /// The attributes behind a family's header of `after` bytes.
    pub fn attributes(&self, after: usize) -> Vec<(u16, &'a [u8])> {
        let mut out = Vec::new();
        let mut rest = self.payload().get(align(after)..).unwrap_or(&[]);
        while let Some(head) = rest.first_chunk::<4>() {
            let len = usize::from(u16::from_le_bytes([head[0], head[1]]));
            if len < 4 || len > rest.len() {
                break;
            }
            // NLA_F_NESTED and NLA_F_NET_BYTEORDER are no part of the type.
            out.push((u16::from_le_bytes([head[2], head[3]]) & 0x3fff, &rest[4..len]));
            rest = &rest[align(len).min(rest.len())..];
        }
        out
    }
}

/// Adds an attribute to a message or to a nest of them.
pub fn add_attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.resize(align(out.len()), 0);
    out.extend_from_slice(&((4 + value.len()) as u16).to_le_bytes());
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(value);
}

/// A message from the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message(Vec<u8>);

impl Message {
    /// A message to `port` with a family's header.
    pub fn new(kind: u16, flags: u16, seq: u32, port: u32, header: &[u8]) -> Message {
        let mut bytes = vec![0; 4];
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&flags.to_le_bytes());
        bytes.extend_from_slice(&seq.to_le_bytes());
        bytes.extend_from_slice(&port.to_le_bytes());
        bytes.extend_from_slice(header);
        Message(bytes)
    }

    /// Adds an attribute.
    pub fn with(mut self, kind: u16, value: &[u8]) -> Message {
        add_attribute(&mut self.0, kind, value);
        self
    }

    /// Adds an attribute of four bytes.
    pub fn word(self, kind: u16, value: u32) -> Message {
        self.with(kind, &value.to_le_bytes())
    }

    /// Its bytes. The last attribute is padded, so the length is a multiple of four.
    pub fn bytes(mut self) -> Vec<u8> {
        self.0.resize(align(self.0.len()), 0);
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_le_bytes());
        self.0
    }
}

/// NLMSG_ERROR: an error, or with 0 an acknowledgement. The request comes back with an error, unless NETLINK_CAP_ACK is set.
pub fn acknowledgement(request: &Request<'_>, port: u32, error: Option<Errno>, capped: bool) -> Vec<u8> {
    let capped = capped || error.is_none();
    let mut payload = error.map_or(0, |e| -i32::from(e.0)).to_le_bytes().to_vec();
    payload.extend_from_slice(if capped { &request.whole[..HEADER] } else { request.whole });
    let flags = if capped { CAPPED } else { 0 };
    Message::new(ERROR, flags, request.seq, port, &payload).bytes()
}

/// NLMSG_DONE: the end of a dump with its error.
pub fn done(request: &Request<'_>, port: u32, flags: u16, error: Option<Errno>) -> Vec<u8> {
    let payload = error.map_or(0, |e| -i32::from(e.0)).to_le_bytes();
    Message::new(DONE, MULTI | flags, request.seq, port, &payload).bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_split_and_garbage_ends_them() {
        let one = Message::new(18, REQUEST, 7, 0, &[17, 0, 0, 0]).with(3, b"lo\0").bytes();
        let mut two = one.clone();
        two.extend_from_slice(&one);
        let (first, rest) = Request::split(&two).unwrap();
        assert_eq!((first.kind, first.flags, first.seq, rest.len()), (18, REQUEST, 7, one.len()));
        assert_eq!(first.attributes(4), [(3, &b"lo\0"[..])]);
        assert_eq!(Request::split(&two[..10]), None);
        assert_eq!(Request::split(&[8; 16]), None, "longer than what there is");
        assert_eq!(Request::split(&[0; 16]), None, "shorter than a header");
    }

    #[test]
    fn errors_bring_the_request_back() {
        let bytes = Message::new(16, REQUEST, 7, 0, &[0; 20]).bytes();
        let (request, _) = Request::split(&bytes).unwrap();
        let error = acknowledgement(&request, 9, Some(Errno::EPERM), false);
        assert_eq!(error.len(), HEADER + 4 + bytes.len());
        assert_eq!(error[16..20], (-1i32).to_le_bytes());
        assert_eq!(acknowledgement(&request, 9, None, false).len(), HEADER + 4 + HEADER);
    }
}

//! What a program at a socket sees of a packet: its bytes from several places on, and what Linux knows of it beside (`struct sk_buff`).

use std::sync::Arc;

use crate::{Load, Program, RANDOM};

/// What getsockopt(2) shows for SO_BPF_EXTENSIONS: SKF_AD_MAX.
pub const EXTENSIONS: i32 = 64;
/// SKF_NET_OFF and SKF_LL_OFF: places from here on count from the header of the network and of the link.
const FROM_NETWORK: u32 = -0x10_0000_i32 as u32;
const FROM_LINK: u32 = -0x20_0000_i32 as u32;

/// A packet, or a message of a socket without a network.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// All of it.
    pub bytes: &'a [u8],
    /// Where the header of the link begins, if there is one.
    pub link: Option<usize>,
    /// Where that of the network begins.
    pub network: usize,
    /// Where place 0 is, which depends on the kind of the socket.
    pub data: usize,
    /// Where what the transport carries begins.
    pub payload: Option<usize>,
    /// The type of the frame (ETH_P_*), 0 for none.
    pub ethertype: u16,
    /// For whom it is (PACKET_HOST and so on).
    pub kind: u8,
    /// Number and type (ARPHRD_*) of the interface.
    pub interface: Option<(u32, u16)>,
}

impl Packet<'_> {
    /// A message that came over no network.
    pub fn message(bytes: &[u8]) -> Packet<'_> {
        Packet {
            bytes,
            link: None,
            network: 0,
            data: 0,
            payload: None,
            ethertype: 0,
            kind: 0,
            interface: None,
        }
    }

    /// Bytes from place 0 on.
    fn seen(&self) -> &[u8] {
        &self.bytes[self.data..]
    }

    /// The number that `size` bytes from a place on are, the first one highest; `None` beyond the packet (`bpf_internal_load_pointer_neg_helper`).
    fn number(&self, at: u32, size: u32) -> Option<u32> {
        let from = match at {
            0..=0x7fff_ffff => self.data + at as usize,
            FROM_NETWORK.. => self.network + (at - FROM_NETWORK) as usize,
            FROM_LINK.. => self.link? + (at - FROM_LINK) as usize,
            _ => return None,
        };
        let bytes = self.bytes.get(from..from.checked_add(size as usize)?)?;
        Some(bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
    }

    /// What an extension tells (linux/filter.h). `random` draws a number. Without an interface the program ends where it asks for it, with
    /// what is in the accumulator ("exit program if dev is NULL", convert_bpf_extensions).
    fn extension(&self, number: u32, a: u32, x: u32, random: &mut impl FnMut() -> u32) -> Result<u32, u32> {
        Ok(match number {
            0 => u32::from(self.ethertype),
            4 => u32::from(self.kind),
            8 => self.interface.ok_or(a)?.0,
            28 => u32::from(self.interface.ok_or(a)?.1),
            12 => self.attribute(a, x),
            16 => self.nested_attribute(a, x),
            52 => self.payload.map_or(0, |at| (at - self.data.min(at)) as u32),
            RANDOM => random(),
            // Marks, queues, hashes and VLANs there are none, and one processor.
            _ => 0,
        })
    }

    /// Where from a place on the first attribute of netlink of a type is; 0 if there is none (`__skb_get_nlattr`).
    fn attribute(&self, at: u32, kind: u32) -> u32 {
        let seen = self.seen();
        if (at as usize).checked_add(4).is_none_or(|end| end > seen.len()) {
            return 0;
        }
        find_attribute(seen, at as usize, seen.len(), kind)
    }

    /// The same within the attribute at a place (`__skb_get_nlattr_nest`).
    fn nested_attribute(&self, at: u32, kind: u32) -> u32 {
        let seen = self.seen();
        let at = at as usize;
        let Some(head) = at.checked_add(4).and_then(|end| seen.get(at..end)) else { return 0 };
        let len = usize::from(u16::from_le_bytes([head[0], head[1]]));
        if len < 4 || at + len > seen.len() { 0 } else { find_attribute(seen, at + 4, at + len, kind) }
    }
}

/// `nla_find` over the attributes between two places.
fn find_attribute(bytes: &[u8], mut at: usize, end: usize, kind: u32) -> u32 {
    while at + 4 <= end {
        let len = usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
        if len < 4 || at + len > end {
            return 0;
        }
        // NLA_TYPE_MASK.
        let own = u16::from_le_bytes([bytes[at + 2], bytes[at + 3]]) & 0x3fff;
        if u32::from(own) == kind {
            return at as u32;
        }
        at += len.next_multiple_of(4);
    }
    0
}

/// The filter of a socket: a program that says how much of an arriving packet the socket gets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Filter {
    program: Arc<Program>,
    /// What the next random number comes from.
    draw: u64,
}

impl Filter {
    /// A filter whose random numbers (SKF_AD_RANDOM) come from a seed.
    pub fn new(program: Arc<Program>, seed: u64) -> Filter {
        Filter { program, draw: seed }
    }

    /// Its program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The same for a copy of the socket, with other random numbers.
    pub fn for_copy(&self, number: u64) -> Filter {
        Filter { program: self.program.clone(), draw: self.draw ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    /// How many bytes from place 0 on it keeps of a packet; `None` drops it.
    pub fn keeps(&mut self, packet: &Packet<'_>) -> Option<usize> {
        let draw = &mut self.draw;
        let mut random = || {
            // The linear congruential generator of Knuth's MMIX, of which the high bits are good.
            *draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (*draw >> 32) as u32
        };
        let kept = self.program.run(packet.seen().len() as u32, |load| match load {
            // Beyond the packet: 0.
            Load::Bytes { at, size } => packet.number(at, size).ok_or(0),
            Load::Extension { number, a, x } => packet.extension(number, a, x, &mut random),
        });
        (kept > 0).then_some(kept as usize)
    }
}

//! How packets are named for the choices about them ([`Place`]): by where they stand in the stream of their connection and how often
//! that was sent before. What is counted lies in the connection or socket that sends, and ends with it.

use bloodhound_decisions::Place;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use crate::seq::before;
use crate::{Flags, Segment};

/// Receivers of one UDP socket whose datagrams are counted; with one more the counts begin anew.
const RECEIVERS: usize = 1024;

/// Which connection it is among those of its two ends: the life of the node that opened it, and which use of the port there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Opened {
    pub(crate) life: u32,
    pub(crate) port_use: u32,
}

impl Opened {
    /// The connection that a SYN with this place opens.
    pub(crate) fn by(place: Place) -> Opened {
        Opened { life: place.life, port_use: place.port_use }
    }

    pub(crate) fn place(self, offset: u32, ack: u32, transmission: u32) -> Place {
        Place { life: self.life, port_use: self.port_use, offset, ack, transmission }
    }
}

/// Names the segments of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Segments {
    pub(crate) opened: Opened,
    /// SYNs sent.
    syns: u32,
    /// End of what was sent, as an offset.
    sent: u32,
    /// How often a segment at an offset was sent again, as long as it is not acknowledged.
    again: BTreeMap<u32, u32>,
    /// Both offsets with the last segment without data, and how many such segments there were since either moved.
    still: (u32, u32, u32),
}

impl Segments {
    pub(crate) fn new(opened: Opened) -> Segments {
        Segments { opened, ..Segments::default() }
    }

    /// The place of a segment about to be sent. `iss` and `irs` are the initial sequence numbers of both sides, `una` and `next`
    /// the oldest unacknowledged one and the next one, of this side.
    pub(crate) fn place(&mut self, seg: &Segment, iss: u32, irs: u32, una: u32, next: u32) -> Place {
        let offset = seg.seq.wrapping_sub(iss);
        if seg.flags.contains(Flags::SYN) {
            self.syns += 1;
            return self.opened.place(0, 0, self.syns - 1);
        }
        if seg.seq_len() == 0 || seg.flags.contains(Flags::RST) {
            let has_ack = seg.flags.contains(Flags::ACK);
            let ack = if has_ack { seg.ack.wrapping_sub(irs) } else { 0 };
            let next = next.wrapping_sub(iss);
            let nth = if (self.still.0, self.still.1) == (next, ack) { self.still.2 + 1 } else { 0 };
            self.still = (next, ack, nth);
            return self.opened.place(offset, ack, nth);
        }
        let mut transmission = 0;
        if before(offset, self.sent) {
            let una = una.wrapping_sub(iss);
            self.again.retain(|offset, _| !before(*offset, una));
            let count = self.again.entry(offset).or_default();
            *count += 1;
            transmission = *count;
        }
        let end = seg.seq_end().wrapping_sub(iss);
        if before(self.sent, end) {
            self.sent = end;
        }
        self.opened.place(offset, 0, transmission)
    }
}

/// Names the datagrams of a socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Datagrams {
    /// How many went to each receiver.
    sent: BTreeMap<SocketAddr, u32>,
    /// How often the counts began anew.
    round: u32,
}

impl Datagrams {
    /// The place of the next datagram to `to`.
    pub(crate) fn place(&mut self, opened: Opened, to: SocketAddr) -> Place {
        if self.sent.len() == RECEIVERS && !self.sent.contains_key(&to) {
            self.sent.clear();
            self.round += 1;
        }
        let count = self.sent.entry(to).or_default();
        *count = count.wrapping_add(1);
        opened.place(*count - 1, self.round, 0)
    }

    /// The place of the next datagram to several nodes at a port. Each copy is named after the node that gets it, so the place says
    /// that it is not one that was sent to that node alone.
    pub(crate) fn group_place(&mut self, opened: Opened, port: u16) -> Place {
        let place = self.place(opened, SocketAddr::new(Ipv4Addr::BROADCAST.into(), port));
        Place { transmission: 1, ..place }
    }
}

/// Counts the uses of ports that programs choose themselves; those that the stack chooses count by its rounds through their range.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct PortUses(BTreeMap<u16, u32>);

impl PortUses {
    /// The number of one more use: from 2^31 on, apart from the rounds.
    pub(crate) fn count(&mut self, port: u16) -> u32 {
        let count = self.0.entry(port).or_default();
        *count = count.wrapping_add(1);
        1 << 31 | (*count - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bytes;

    const ISS: u32 = u32::MAX - 5;
    const IRS: u32 = 1000;

    fn data(offset: u32, len: usize) -> Segment {
        let control = Segment::control(ISS.wrapping_add(offset), IRS + 1, Flags::ACK, 0);
        Segment { payload: Bytes::from(vec![0; len]), ..control }
    }

    fn ack(offset: u32, ack: u32) -> Segment {
        Segment::control(ISS.wrapping_add(offset), IRS + ack, Flags::ACK, 0)
    }

    #[test]
    fn segments_are_named_by_their_place_and_transmission() {
        let mut names = Segments::new(Opened { life: 3, port_use: 4 });
        let mut place = |seg: &Segment, una: u32, next: u32| {
            let place = names.place(seg, ISS, IRS, ISS.wrapping_add(una), ISS.wrapping_add(next));
            assert_eq!((place.life, place.port_use), (3, 4));
            (place.offset, place.ack, place.transmission)
        };
        assert_eq!(place(&data(1, 10), 1, 11), (1, 0, 0));
        assert_eq!(place(&data(11, 10), 1, 21), (11, 0, 0));
        assert_eq!(place(&data(1, 20), 1, 21), (1, 0, 1), "sent again, cut otherwise");
        assert_eq!(place(&data(1, 10), 1, 21), (1, 0, 2));
        assert_eq!(place(&data(11, 10), 11, 21), (11, 0, 1));
        assert_eq!(place(&ack(21, 1), 21, 21), (21, 1, 0));
        assert_eq!(place(&ack(20, 1), 21, 21), (20, 1, 1), "a probe");
        assert_eq!(place(&ack(21, 1), 21, 21), (21, 1, 2));
        assert_eq!(place(&ack(21, 9), 21, 21), (21, 9, 0));
        let again = names.again.len();
        assert_eq!(again, 1, "what is acknowledged is forgotten");
    }

    #[test]
    fn datagrams_are_counted_by_receiver_and_counts_are_bounded() {
        let mut names = Datagrams::default();
        let to = |n: u32| SocketAddr::from(((0x0a00_0000 + n).to_be_bytes(), 53));
        let mut seen = std::collections::BTreeSet::new();
        for round in 0..3 {
            for n in 0..RECEIVERS as u32 * 2 {
                let place = names.place(Opened::default(), to(n));
                assert!(seen.insert((n, place)), "{round}: two datagrams have one name");
            }
        }
        assert!(names.sent.len() <= RECEIVERS);
    }
}

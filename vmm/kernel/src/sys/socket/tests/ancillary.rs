//! What comes along with the bytes of a stream.

use super::*;

/// A reception with recvmsg(2): how many bytes came, and the control messages of this level with their types and first words.
fn received(b: &mut Bench, fd: u64, room: usize, level: u64) -> (u64, Vec<(u64, u64)>) {
    let (data, control) = (b.room(room), b.room(128));
    let vector = b.put_as(b.tid, &[data, room as u64].map(u64::to_le_bytes).concat());
    let header = [0, 0, vector, 1, control, 128, 0].map(u64::to_le_bytes).concat();
    let message = b.put_as(b.tid, &header);
    let n = b.call(nr::recvmsg, &[fd, message, 0]).expect("a message");
    let used = b.object::<[u64; 7]>(b.tid, message)[5];
    let bytes = b.get_as(b.tid, control, used as usize);
    let mut found = Vec::new();
    let mut rest = &bytes[..];
    while let Some(head) = rest.first_chunk::<24>() {
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let (len, kind) = (word(0) as usize, word(8));
        if kind & 0xffff_ffff == level {
            found.push((kind >> 32, word(16)));
        }
        rest = &rest[len.next_multiple_of(8).min(rest.len())..];
    }
    (n, found)
}

fn switch(b: &mut Bench, fd: u64, level: u64, name: u64, value: u32) -> Result<u64, Errno> {
    let at = b.put_as(b.tid, &value.to_le_bytes());
    b.call(nr::setsockopt, &[fd, level, name, at, 4])
}

#[test]
fn segments_have_the_time_of_their_arrival() {
    let mut b = Bench::new();
    let (_, client, server) = connection(&mut b);
    let tid = b.tid;
    assert_eq!(switch(&mut b, server, c::SOL_SOCKET, c::SO_TIMESTAMPNS, 1), Ok(0));
    let mut seconds = Vec::new();
    for _ in 0..2 {
        b.node.clock = b.node.clock.after(10_000_000_000);
        assert_eq!(send(&mut b, tid, client, b"ab"), Ok(2));
        pass(&mut b);
        seconds.push(b.node.realtime_at(b.node.clock) / 1_000_000_000);
    }
    b.node.clock = b.node.clock.after(10_000_000_000);
    let told = |b: &mut Bench, room| received(b, server, room, c::SOL_SOCKET);
    let (n, first) = told(&mut b, 1);
    assert_eq!((n, first.as_slice()), (1, &[(c::SO_TIMESTAMPNS, seconds[0])][..]));
    let (n, last) = told(&mut b, 9);
    assert_eq!((n, last.as_slice()), (3, &[(c::SO_TIMESTAMPNS, seconds[1])][..]));
    assert_eq!(switch(&mut b, server, c::SOL_SOCKET, c::SO_TIMESTAMPNS, 0), Ok(0));
    send(&mut b, tid, client, b"x").expect("sent");
    pass(&mut b);
    assert_eq!(told(&mut b, 9), (1, Vec::new()));
}

#[test]
fn what_is_left_of_a_stream_is_told() {
    let mut b = Bench::new();
    let (_, client, server) = connection(&mut b);
    let tid = b.tid;
    assert_eq!(switch(&mut b, server, c::IPPROTO_TCP, c::TCP_INQ, 2), Err(Errno::EINVAL));
    assert_eq!(switch(&mut b, server, c::IPPROTO_TCP, c::TCP_INQ, 1), Ok(0));
    send(&mut b, tid, client, b"abcdef").expect("sent");
    pass(&mut b);
    let left = |b: &mut Bench, room| {
        let (n, found) = received(b, server, room, c::IPPROTO_TCP);
        (n, found.iter().map(|(kind, word)| (*kind, *word as u32)).collect::<Vec<_>>())
    };
    assert_eq!(left(&mut b, 2), (2, vec![(c::TCP_INQ, 4)]));
    b.call(nr::shutdown, &[client, c::SHUT_WR]).expect("shutdown");
    pass(&mut b);
    assert_eq!(left(&mut b, 3), (3, vec![(c::TCP_INQ, 2)]));
    assert_eq!(left(&mut b, 9), (1, vec![(c::TCP_INQ, 1)]));
    assert_eq!(left(&mut b, 9), (0, vec![(c::TCP_INQ, 1)]));
}

#[test]
fn an_urgent_byte_of_a_unix_stream_signals_its_owner() {
    let mut b = Bench::new();
    let (x, y) = pair(&mut b, c::SOCK_STREAM);
    let tid = b.tid;
    b.call(nr::fcntl, &[y, c::F_SETOWN, u64::from(tid.0)]).expect("F_SETOWN");
    let handler = [0x40_0000u64, c::SA_RESTORER, 0x40_0000, 0];
    let action = b.put_as(tid, &handler.map(u64::to_le_bytes).concat());
    b.call(nr::rt_sigaction, &[c::SIGURG, action, 0, 8]).expect("rt_sigaction");
    let data = b.put_as(tid, b"abU");
    assert_eq!(b.call(nr::sendto, &[x, data, 3, c::MSG_OOB, 0, 0]), Ok(3));
    assert_ne!(b.node.pending_for(tid) & 1 << (c::SIGURG - 1), 0);
    assert_eq!(poll(&mut b, y) & c::EPOLLPRI, c::EPOLLPRI);
    let room = b.room(8);
    assert_eq!(b.call(nr::recvfrom, &[y, room, 8, 0, 0, 0]), Ok(2));
    b.call(nr::ioctl, &[y, c::SIOCATMARK, room]).expect("SIOCATMARK");
    assert_eq!(int(&mut b, room), 1);
    assert_eq!(b.call(nr::recvfrom, &[y, room, 8, c::MSG_OOB, 0, 0]), Ok(1));
    assert_eq!(send(&mut b, tid, x, b"more"), Ok(4));
    // What was read is found once; who may sleep does not for that.
    assert_eq!(recv(&mut b, y, 8, 0), Ok(b"more".to_vec()));
}

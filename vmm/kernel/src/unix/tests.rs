//! The rules of unix(7) on the data structure alone. The numbers are those that Linux shows.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Ucred;
use bloodhound_vfs::Ino;

use super::*;

const NET: NetNs = NetNs(0);
const ME: Ucred = Ucred { pid: 7, uid: 1, gid: 2 };
const YOU: Ucred = Ucred { pid: 8, uid: 3, gid: 4 };

fn anc() -> Ancillary {
    Ancillary { sender: ME, ..Ancillary::default() }
}

fn with_files(files: &[u32]) -> Ancillary {
    Ancillary { files: files.iter().map(|f| FileId(*f)).collect(), ..anc() }
}

fn take(max: usize) -> Wanted {
    Wanted { max, peek: false, begun: false }
}

fn peek(max: usize) -> Wanted {
    Wanted { peek: true, ..take(max) }
}

fn stream_pair() -> (UnixSockets, UnixId, UnixId) {
    let mut u = UnixSockets::default();
    let (a, b) = u.pair(NET, Kind::Stream, ME);
    (u, a, b)
}

fn wakes(u: &mut UnixSockets) -> Vec<(UnixId, u32)> {
    std::mem::take(&mut u.effects.wakes).into()
}

fn has(bits: u32, want: u64) -> bool {
    u64::from(bits) & want == want
}

/// A listener with an abstract name and a socket connected to it, not accepted yet.
fn listening(kind: Kind, backlog: u32) -> (UnixSockets, UnixId, UnixId) {
    let mut u = UnixSockets::default();
    let l = u.create(NET, kind, 0);
    u.bind_abstract(l, b"srv".to_vec()).unwrap();
    u.listen(l, backlog, ME).unwrap();
    let client = u.create(NET, kind, 0);
    u.connect(client, l, YOU).unwrap();
    (u, l, client)
}

#[test]
fn a_stream_keeps_order_and_forgets_boundaries() {
    let (mut u, a, b) = stream_pair();
    u.send_stream(a, b"hello ", anc()).unwrap();
    u.send_stream(a, b"world", anc()).unwrap();
    assert_eq!(wakes(&mut u), [(b, READABLE), (b, READABLE)]);
    let got = u.recv_stream(b, take(8)).unwrap();
    assert_eq!(got.data, b"hello wo");
    assert_eq!(u.readable_bytes(b), Ok(3));
    assert_eq!(u.recv_stream(b, peek(100)).unwrap().data, b"rld");
    assert_eq!(u.recv_stream(b, take(100)).unwrap().data, b"rld");
    assert_eq!(u.recv_stream(b, take(1)), Err(Stall::Until(b)));
}

#[test]
fn buffers_hold_what_linux_s_hold() {
    // Measured on Linux: 278 writes of one byte, 219264 bytes of one large write.
    let (mut u, a, _) = stream_pair();
    let mut writes = 0;
    while u.send_stream(a, b"x", anc()).is_ok() {
        writes += 1;
    }
    assert_eq!(writes, 278);
    let (mut u, a, _) = stream_pair();
    assert_eq!(u.send_stream(a, &vec![0; 1 << 20], anc()), Ok(219_264));
    assert_eq!(u.send_stream(a, b"x", anc()), Err(Stall::Until(a)));
    let mut u = UnixSockets::default();
    let (a, _) = u.pair(NET, Kind::Datagram, ME);
    let mut packets = 0;
    while u.send_packet(a, None, b"x", anc()).is_ok() {
        packets += 1;
    }
    assert_eq!(packets, 278);
    assert_eq!(u.send_packet(a, None, &vec![0; 212_961], anc()), Err(Errno::EMSGSIZE.into()));
    let mut u = UnixSockets::default();
    let (a, _) = u.pair(NET, Kind::SeqPacket, ME);
    assert_eq!(u.send_packet(a, None, &vec![0; 212_960], anc()), Ok(212_960));
}

#[test]
fn writability_returns_at_a_quarter() {
    let (mut u, a, b) = stream_pair();
    while u.send_stream(a, &[0; 4096], anc()).is_ok() {}
    assert!(!has(u.ready_bits(a), c::EPOLLOUT));
    wakes(&mut u);
    let mut woken_at = None;
    while u.recv_stream(b, take(4096)).is_ok() {
        if wakes(&mut u).contains(&(a, WRITABLE)) {
            woken_at = woken_at.or(Some(u.get(a).charged));
        }
    }
    let at = woken_at.unwrap();
    assert!(at <= 212_992 / 4 && at > 212_992 / 4 - 8192, "woken with {at} bytes in use");
    assert!(has(u.ready_bits(a), c::EPOLLOUT | c::EPOLLWRNORM));
    assert_eq!(u.get(a).charged, 0);
}

#[test]
fn closing_with_unread_data_resets_the_peer() {
    let (mut u, a, b) = stream_pair();
    u.send_stream(a, b"unread", anc()).unwrap();
    u.send_stream(b, b"last words", anc()).unwrap();
    u.close(b);
    assert!(has(u.ready_bits(a), c::EPOLLIN | c::EPOLLHUP | c::EPOLLRDHUP | c::EPOLLERR));
    assert_eq!(u.send_stream(a, b"x", anc()), Err(Errno::EPIPE.into()));
    assert_eq!(u.recv_stream(a, take(99)).unwrap().data, b"last words");
    assert_eq!(u.recv_stream(a, take(99)), Err(Errno::ECONNRESET.into()));
    assert!(u.recv_stream(a, take(99)).unwrap().data.is_empty(), "then the end of the stream");
    let (mut u, a, b) = stream_pair();
    u.close(b);
    assert!(!has(u.ready_bits(a), c::EPOLLERR));
    let end = u.recv_stream(a, take(99)).unwrap();
    assert!(end.stop && end.data.is_empty());
    assert_eq!(wakes(&mut u), [(a, CHANGED)]);
}

#[test]
fn shutdown_halves_both_ends() {
    let (mut u, a, b) = stream_pair();
    u.send_stream(a, b"x", anc()).unwrap();
    wakes(&mut u);
    u.shutdown(a, Halves { read: false, write: true });
    assert_eq!(wakes(&mut u), [(a, CHANGED), (b, CHANGED)]);
    assert_eq!(u.send_stream(a, b"x", anc()), Err(Errno::EPIPE.into()));
    assert!(has(u.ready_bits(b), c::EPOLLRDHUP | c::EPOLLIN) && !has(u.ready_bits(b), c::EPOLLHUP));
    assert_eq!(u.recv_stream(b, take(9)).unwrap().data, b"x");
    assert!(u.recv_stream(b, take(9)).unwrap().data.is_empty());
    assert_eq!(u.send_stream(b, b"y", anc()), Ok(1), "the other direction is open");
    u.shutdown(b, Halves { read: true, write: true });
    assert!(has(u.ready_bits(a), c::EPOLLHUP) && has(u.ready_bits(b), c::EPOLLHUP));
}

#[test]
fn connecting_takes_the_listener_s_name_and_credentials() {
    let (mut u, l, client) = listening(Kind::Stream, 5);
    assert_eq!(u.send_stream(client, b"early", anc()), Ok(5), "before accept");
    assert!(has(u.ready_bits(l), c::EPOLLIN) && !has(u.ready_bits(l), c::EPOLLOUT));
    let server = u.accept(l, true).unwrap();
    assert_eq!(u.accept(l, true), Err(Stall::Until(l)));
    assert_eq!(u.local_name(server), Some(&Name::Abstract(b"srv".to_vec())));
    assert_eq!(u.peer_name(client), Ok(Some(&Name::Abstract(b"srv".to_vec()))));
    assert_eq!(u.peer_name(server), Ok(None));
    assert_eq!((u.get(client).cred, u.get(server).cred), (ME, YOU));
    assert_eq!(u.recv_stream(server, take(9)).unwrap().data, b"early");
    u.close(server);
    assert_eq!(u.peer_name(client), Ok(Some(&Name::Abstract(b"srv".to_vec()))), "as Linux still tells");
    assert_eq!(u.find_abstract(NET, b"srv", Kind::Stream), Ok(l), "the name is the listener's");
    assert_eq!(u.find_abstract(NET, b"srv", Kind::SeqPacket), Err(Errno::ECONNREFUSED));
    u.close(l);
    assert_eq!(u.find_abstract(NET, b"srv", Kind::Stream), Err(Errno::ECONNREFUSED));
}

#[test]
fn connect_checks_states() {
    let (mut u, l, client) = listening(Kind::Stream, 0);
    let late = u.create(NET, Kind::Stream, 0);
    assert_eq!(u.connect(late, l, YOU), Err(Stall::Room(l)), "one more than the backlog is let in, not two");
    u.accept(l, true).unwrap();
    assert_eq!(u.effects.retries, [l], "accepting tells connecters that wait");
    assert_eq!(u.connect(client, l, YOU), Err(Errno::EISCONN.into()));
    assert_eq!(u.connect(l, l, YOU), Err(Errno::EINVAL.into()));
    assert_eq!(u.connect(late, client, YOU), Err(Errno::ECONNREFUSED.into()));
    u.shutdown(l, Halves { read: true, write: false });
    assert_eq!(u.connect(late, l, YOU), Err(Errno::ECONNREFUSED.into()));
    assert_eq!(u.accept(l, true), Err(Errno::EINVAL.into()));
    assert_eq!(u.listen(client, 1, ME), Err(Errno::EINVAL), "no name");
    let datagram = u.create(NET, Kind::Datagram, 0);
    assert_eq!(u.listen(datagram, 1, ME), Err(Errno::EOPNOTSUPP));
    assert_eq!(u.accept(datagram, true), Err(Errno::EOPNOTSUPP.into()));
    assert_eq!(u.accept(late, true), Err(Errno::EINVAL.into()));
    assert_eq!(u.recv_stream(late, take(1)), Err(Errno::EINVAL.into()), "unconnected");
    assert_eq!(u.send_stream(late, b"x", anc()), Err(Errno::ENOTCONN.into()));
    assert!(has(u.ready_bits(late), c::EPOLLHUP | c::EPOLLOUT));
}

#[test]
fn closing_a_listener_resets_who_waits() {
    let (mut u, l, client) = listening(Kind::Stream, 5);
    u.close(l);
    assert_eq!(u.recv_stream(client, take(1)), Err(Errno::ECONNRESET.into()));
    assert_eq!(u.iter().count(), 1, "the embryo is gone");
}

#[test]
fn datagrams_keep_boundaries_and_names() {
    let mut u = UnixSockets::default();
    let (a, b) = (u.create(NET, Kind::Datagram, 0), u.create(NET, Kind::Datagram, 0));
    u.bind_path(b, b"/b".to_vec(), Ino(9)).unwrap();
    assert_eq!(u.find_path(Ino(9), Kind::Datagram), Ok(b));
    assert_eq!(u.find_path(Ino(9), Kind::Stream), Err(Errno::EPROTOTYPE));
    assert_eq!(u.send_packet(a, None, b"x", anc()), Err(Errno::ENOTCONN.into()));
    u.send_packet(a, Some(b), b"", anc()).unwrap();
    u.autobind(a).unwrap();
    u.send_packet(a, Some(b), b"second", anc()).unwrap();
    let auto = Some(Name::Abstract(b"00001".to_vec()));
    let first = u.recv_packet(b, 9, false, true).unwrap();
    assert_eq!((first.data.len(), &first.from), (0, &auto), "the name that the sender has now");
    u.close(a);
    let second = u.recv_packet(b, 3, false, true).unwrap();
    assert_eq!((&second.data[..], second.whole), (&b"sec"[..], 6));
    assert_eq!(second.from, auto, "or had at its end");
    assert_eq!(u.recv_packet(b, 9, false, true), Err(Stall::Until(b)), "the rest is lost");
}

#[test]
fn a_full_datagram_queue_stops_senders() {
    let mut u = UnixSockets::default();
    let (a, b) = (u.create(NET, Kind::Datagram, 0), u.create(NET, Kind::Datagram, 0));
    u.connect_datagram(a, Some(b)).unwrap();
    let mut sent = 0;
    while u.send_packet(a, None, b"x", anc()).is_ok() {
        sent += 1;
    }
    assert_eq!(sent, 11, "max_dgram_qlen and one");
    assert_eq!(u.send_packet(a, None, b"x", anc()), Err(Stall::Room(b)));
    assert!(!has(u.ready_bits(a), c::EPOLLOUT));
    wakes(&mut u);
    u.recv_packet(b, 1, false, true).unwrap();
    assert!(u.effects.retries.contains(&b));
    assert!(wakes(&mut u).contains(&(a, WRITABLE)));
    assert!(has(u.ready_bits(a), c::EPOLLOUT));
}

#[test]
fn datagram_peers_come_and_go() {
    let mut u = UnixSockets::default();
    let (a, b, other) = (
        u.create(NET, Kind::Datagram, 0),
        u.create(NET, Kind::Datagram, 0),
        u.create(NET, Kind::Datagram, 0),
    );
    u.connect_datagram(b, Some(other)).unwrap();
    assert_eq!(u.connect_datagram(a, Some(b)), Err(Errno::EPERM), "b speaks with another");
    assert_eq!(u.send_packet(a, Some(b), b"x", anc()), Err(Errno::EPERM.into()));
    u.connect_datagram(a, Some(other)).unwrap();
    u.close(other);
    assert_eq!(u.send_packet(a, None, b"x", anc()), Err(Errno::ECONNREFUSED.into()));
    assert_eq!(u.send_packet(a, None, b"x", anc()), Err(Errno::ENOTCONN.into()));
    // Reconnecting loses what was queued; a peer that was connected back learns of it.
    let (x, y) = u.pair(NET, Kind::Datagram, ME);
    u.send_packet(y, None, b"lost", anc()).unwrap();
    u.connect_datagram(x, None).unwrap();
    assert_eq!(u.get(y).charged, 0);
    assert_eq!(u.take_error(y), Some(Errno::ECONNRESET));
}

#[test]
fn packets_need_a_connection() {
    let (mut u, l, client) = listening(Kind::SeqPacket, 1);
    let server = u.accept(l, true).unwrap();
    u.send_packet(client, None, b"one", anc()).unwrap();
    u.send_packet(client, None, b"", anc()).unwrap();
    assert_eq!(u.recv_packet(server, 2, false, true).unwrap().whole, 3);
    assert_eq!(u.recv_packet(server, 2, false, true).unwrap().whole, 0);
    u.close(client);
    assert_eq!(u.send_packet(server, None, b"x", anc()), Err(Errno::EPIPE.into()));
    assert!(
        u.recv_packet(server, 2, false, false).unwrap().data.is_empty(),
        "the end, even without blocking"
    );
    let lone = u.create(NET, Kind::SeqPacket, 0);
    assert_eq!(u.send_packet(lone, None, b"x", anc()), Err(Errno::ENOTCONN.into()));
    assert_eq!(u.recv_packet(lone, 2, false, true), Err(Errno::ENOTCONN.into()));
}

#[test]
fn files_stop_a_stream_s_reader() {
    let (mut u, a, b) = stream_pair();
    u.send_stream(a, b"plain", anc()).unwrap();
    u.send_stream(a, b"with", with_files(&[1, 2])).unwrap();
    u.send_stream(a, b"after", anc()).unwrap();
    let peeked = u.recv_stream(b, peek(99)).unwrap();
    assert_eq!((&peeked.data[..], peeked.files.len()), (&b"plainwith"[..], 2));
    let got = u.recv_stream(b, take(99)).unwrap();
    assert_eq!((&got.data[..], got.files), (&b"plainwith"[..], vec![FileId(1), FileId(2)]));
    assert!(got.stop);
    assert_eq!(u.recv_stream(b, take(99)).unwrap().data, b"after");
    // A part of the message takes all its files.
    u.send_stream(a, b"xyz", with_files(&[3])).unwrap();
    assert_eq!(u.recv_stream(b, take(1)).unwrap().files, [FileId(3)]);
    assert!(u.recv_stream(b, take(99)).unwrap().files.is_empty());
    u.send_stream(a, b"xyz", with_files(&[4, 5])).unwrap();
    u.close(b);
    assert_eq!(u.effects.dropped, [FileId(4), FileId(5)], "nobody will receive them");
}

#[test]
fn credentials_come_when_asked_for() {
    let (mut u, a, b) = stream_pair();
    u.send_stream(a, b"x", anc()).unwrap();
    assert_eq!(u.recv_stream(b, take(1)).unwrap().cred, None);
    u.get_mut(b).passcred = true;
    u.send_stream(a, b"x", anc()).unwrap();
    u.send_stream(a, b"y", Ancillary { cred: Some(YOU), ..anc() }).unwrap();
    let got = u.recv_stream(b, take(9)).unwrap();
    assert_eq!((&got.data[..], got.cred, got.stop), (&b"x"[..], Some(ME), true), "writers are not mixed");
    assert_eq!(u.recv_stream(b, take(9)).unwrap().cred, Some(YOU));
}

#[test]
fn names_are_unique() {
    let mut u = UnixSockets::default();
    let (a, b) = (u.create(NET, Kind::Stream, 0), u.create(NET, Kind::Stream, 0));
    u.bind_abstract(a, b"n".to_vec()).unwrap();
    assert_eq!(u.bind_abstract(b, b"n".to_vec()), Err(Errno::EADDRINUSE));
    assert_eq!(u.bind_abstract(a, b"m".to_vec()), Err(Errno::EINVAL));
    assert_eq!(u.bind_path(a, b"/p".to_vec(), Ino(3)), Err(Errno::EINVAL));
    assert_eq!(u.find_path(Ino(3), Kind::Stream), Err(Errno::ECONNREFUSED));
    u.close(a);
    u.bind_abstract(b, b"n".to_vec()).unwrap();
}

#[test]
fn charges_are_those_recorded_on_linux() {
    // Size of each send, sends and bytes until EAGAIN, TIOCOUTQ then; for a stream and for datagrams.
    let recorded = [
        (100, (278, 27_800, 213_504), (278, 27_800, 213_504)),
        (1000, (93, 93_000, 214_272), (93, 93_000, 214_272)),
        (3000, (49, 147_000, 213_248), (49, 147_000, 213_248)),
        (4096, (44, 180_224, 214_016), (26, 106_496, 219_648)),
        (5000, (34, 170_000, 217_600), (26, 130_000, 219_648)),
        (10_000, (17, 170_000, 213_248), (13, 130_000, 216_320)),
        (20_000, (11, 220_000, 228_096), (11, 220_000, 228_096)),
    ];
    for (size, stream, datagram) in recorded {
        let data = vec![0; size];
        for (kind, want) in [(Kind::Stream, stream), (Kind::Datagram, datagram)] {
            let mut u = UnixSockets::default();
            let (a, _) = u.pair(NET, kind, ME);
            let (mut sends, mut bytes) = (0, 0);
            let mut send = || match kind {
                Kind::Stream => u.send_stream(a, &data, anc()),
                _ => u.send_packet(a, None, &data, anc()),
            };
            while let Ok(n) = send() {
                (sends, bytes) = (sends + 1, bytes + n);
            }
            assert_eq!((sends, bytes, u.unreceived_bytes(a)), want, "{kind:?} of {size}");
        }
    }
}

#[test]
fn an_urgent_byte_is_a_mark_in_the_stream() {
    let (mut u, a, b) = stream_pair();
    let urgent = || Ancillary { urgent: true, ..anc() };
    u.send_stream(a, b"ab", anc()).unwrap();
    u.send_stream(a, b"U", urgent()).unwrap();
    u.send_stream(a, b"cd", anc()).unwrap();
    assert!(has(u.ready_bits(b), c::EPOLLIN | c::EPOLLPRI));
    assert_eq!(u.readable_bytes(b), Ok(5));
    assert_eq!(u.recv_stream(b, peek(9)).unwrap().data, b"ab");
    assert_eq!(u.recv_stream(b, take(9)).unwrap().data, b"ab");
    assert!(u.at_mark(b));
    assert_eq!(u.recv_stream(b, peek(9)).unwrap().data, b"cd", "past the mark");
    assert_eq!(u.recv_urgent(b, true), Ok(b'U'));
    assert_eq!(u.recv_urgent(b, false), Ok(b'U'));
    assert_eq!(u.recv_urgent(b, false), Err(Errno::EINVAL));
    assert!(!u.at_mark(b) && !has(u.ready_bits(b), c::EPOLLPRI));
    assert_eq!(u.recv_stream(b, take(9)), Err(Stall::Until(b)), "where the byte was there is nothing");
    assert_eq!(u.recv_stream(b, take(9)).unwrap().data, b"cd");
    assert_eq!(u.unreceived_bytes(a), 0);
}

#[test]
fn an_urgent_byte_that_is_passed_is_lost_with_its_files() {
    let (mut u, a, b) = stream_pair();
    u.send_stream(a, b"U", Ancillary { urgent: true, ..with_files(&[7]) }).unwrap();
    assert_eq!(u.recv_stream(b, take(9)), Err(Stall::Until(b)));
    assert_eq!(std::mem::take(&mut u.effects.dropped), [FileId(7)]);
    assert_eq!((u.unreceived_bytes(a), u.flights.of_user(ME.uid)), (0, 0));
    // In line it is like others, but for the stop before it; one after it makes it like others, too.
    u.send_stream(a, b"V", Ancillary { urgent: true, ..anc() }).unwrap();
    u.send_stream(a, b"W", Ancillary { urgent: true, ..anc() }).unwrap();
    u.get_mut(b).generic.kept.insert((c::SOL_SOCKET, c::SO_OOBINLINE), 1);
    assert_eq!(u.recv_urgent(b, false), Err(Errno::EINVAL));
    assert_eq!(u.recv_stream(b, take(9)).unwrap().data, b"V");
    assert_eq!(u.recv_stream(b, take(9)).unwrap().data, b"W");
    assert_eq!(u.unreceived_bytes(a), 0);
}

/// Sets SO_PEEK_OFF.
fn peeks_at(u: &mut UnixSockets, id: UnixId, offset: i32) {
    u.get_mut(id).generic.kept.insert((c::SOL_SOCKET, c::SO_PEEK_OFF), offset);
}

#[test]
fn peeks_of_a_stream_go_on_where_the_last_one_ended() {
    let (mut u, a, b) = stream_pair();
    u.send_stream(a, b"hello ", anc()).unwrap();
    u.send_stream(a, b"world", anc()).unwrap();
    peeks_at(&mut u, b, 4);
    assert_eq!(u.recv_stream(b, peek(4)).unwrap().data, b"o wo");
    assert_eq!(u.whole_messages(b, 8, 100, 2), 0, "the last message ends behind the room");
    assert_eq!(u.whole_messages(b, 4, 100, 2), 2);
    assert_eq!(u.recv_stream(b, peek(99)).unwrap().data, b"rld");
    assert_eq!(u.recv_stream(b, peek(99)), Err(Stall::Until(b)));
    assert_eq!(u.recv_stream(b, take(6)).unwrap().data, b"hello ");
    assert_eq!(u.get(b).generic.peek_offset(), Some(5));
    peeks_at(&mut u, b, -1);
    assert_eq!(u.recv_stream(b, peek(2)).unwrap().data, b"wo");
    assert_eq!(u.get(b).generic.peek_offset(), None);
}

#[test]
fn an_empty_message_is_peeked_at_once() {
    let mut u = UnixSockets::default();
    let (a, b) = u.pair(NET, Kind::SeqPacket, ME);
    for data in [&b"one"[..], b"", b"two"] {
        u.send_packet(a, None, data, anc()).unwrap();
    }
    peeks_at(&mut u, b, 1);
    let got = u.recv_packet(b, 1, true, false).unwrap();
    assert_eq!((got.data.as_slice(), got.whole), (&b"n"[..], 2));
    peeks_at(&mut u, b, 3);
    for data in [&b""[..], b"two", b"two"] {
        assert_eq!(u.recv_packet(b, 9, true, false).unwrap().data, data);
    }
    peeks_at(&mut u, b, 6);
    assert_eq!(u.recv_packet(b, 9, true, false), Err(Stall::Until(b)));
    assert_eq!(u.recv_packet(b, 9, false, false).unwrap().data, b"one", "a reception begins at the front");
}

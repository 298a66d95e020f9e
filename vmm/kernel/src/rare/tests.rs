//! What programs see of what is rare, and of limits that others have reached.

use std::sync::Arc;

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::table::nr;
use bloodhound_faults::Kind;
use bloodhound_vfs::flags::{IN_CREATE, IN_DELETE, IN_Q_OVERFLOW};

use crate::container::ContainerId;
use crate::dispatch::Outcome;
use crate::hazards::Rates;
use crate::testing::Bench;

/// More than all: there is no choice.
const ALWAYS: u32 = 1_000_000_000;
/// Bytes of the largest message of a Unix stream socket: a page less `struct skb_shared_info`, and UNIX_SKB_FRAGS_SZ.
const PIECE: u64 = 4096 - 320 + 32768;
const FIONREAD: u64 = 0x541b;

fn set(b: &mut Bench, rates: &[(Kind, u32)]) {
    let rates = Arc::new(rates.iter().copied().collect::<Rates>());
    b.node.container_mut(ContainerId(0)).hazards.set(&rates);
}

fn told(b: &mut Bench) -> Vec<(Kind, &'static str, String)> {
    let injected = std::mem::take(&mut b.node.injected);
    injected.into_iter().map(|met| (met.kind, met.call, met.shown)).collect()
}

fn pair(b: &mut Bench, kind: u64) -> [u64; 2] {
    let at = b.room(8);
    b.call(nr::socketpair, &[c::AF_UNIX, kind, 0, at]).expect("two sockets");
    b.object::<[i32; 2]>(b.tid, at).map(|fd| fd as u64)
}

#[test]
fn a_unix_stream_that_does_not_block_takes_whole_messages() {
    let mut b = Bench::new();
    let [one, _other] = pair(&mut b, c::SOCK_STREAM | c::SOCK_NONBLOCK);
    let [waits, _other] = pair(&mut b, c::SOCK_STREAM);
    let at = b.room(2 * PIECE as usize + 1);
    set(&mut b, &[(Kind::PartialSend, ALWAYS)]);
    let sent = b.call(nr::write, &[one, at, 2 * PIECE + 1]).expect("a part");
    assert!(sent == PIECE || sent == 2 * PIECE, "{sent}");
    assert_eq!(told(&mut b), [(Kind::PartialSend, "write", format!("{sent} of {} bytes", 2 * PIECE + 1))]);
    // One message goes as a whole, and who waits sends all.
    assert_eq!(b.call(nr::write, &[one, at, PIECE]), Ok(PIECE));
    assert_eq!(b.call(nr::write, &[waits, at, 2 * PIECE + 1]), Ok(2 * PIECE + 1));
    assert_eq!(told(&mut b), []);
}

#[test]
fn a_tcp_send_that_does_not_block_takes_a_part() {
    let mut b = Bench::new();
    let (client, _server) = connection(&mut b);
    let at = b.room(1000);
    set(&mut b, &[(Kind::PartialSend, ALWAYS)]);
    let send = |b: &mut Bench, len, flags| b.call(nr::sendto, &[client, at, len, flags, 0, 0]);
    assert_eq!(send(&mut b, 1000, 0), Ok(1000), "it would wait");
    assert_eq!(send(&mut b, 1, c::MSG_DONTWAIT), Ok(1), "a byte has no parts");
    assert_eq!(told(&mut b), []);
    let sent = send(&mut b, 1000, c::MSG_DONTWAIT).expect("a part");
    assert!((1..1000).contains(&sent), "{sent}");
    assert_eq!(told(&mut b), [(Kind::PartialSend, "sendto", format!("{sent} of 1000 bytes"))]);
    set(&mut b, &[]);
    assert_eq!(send(&mut b, 1000, c::MSG_DONTWAIT), Ok(1000));
}

/// Both ends of a connection of the node with itself: (client, server).
fn connection(b: &mut Bench) -> (u64, u64) {
    let listener = b.call(nr::socket, &[c::AF_INET, c::SOCK_STREAM, 0]).expect("a socket");
    let client = b.call(nr::socket, &[c::AF_INET, c::SOCK_STREAM, 0]).expect("a socket");
    let at = b.put_as(b.tid, &[2, 0, 0, 80, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(b.call(nr::bind, &[listener, at, 16]), Ok(0));
    assert_eq!(b.call(nr::listen, &[listener, 5]), Ok(0));
    assert_eq!(b.start(b.tid, nr::connect, &[client, at, 16]), Outcome::Blocked);
    while b.sleeps(b.tid) {
        let at = b.node.next_deadline().expect("a packet");
        b.node.clock = b.node.clock.max(at);
        b.node.on_time();
    }
    assert_eq!(b.resume(b.tid), Ok(0));
    // Nobody resets a connection of a node with itself.
    set(b, &[(Kind::AcceptReset, ALWAYS)]);
    let server = b.call(nr::accept, &[listener, 0, 0]).expect("a connection");
    let (name, len) = (b.room(16), b.put_as(b.tid, &16u32.to_le_bytes()));
    assert_eq!(b.call(nr::getpeername, &[server, name, len]), Ok(0));
    assert_eq!(told(b), []);
    (client, server)
}

#[test]
fn sendmmsg_ends_behind_a_message_of_which_a_part_is_sent() {
    let mut b = Bench::new();
    let (client, _server) = connection(&mut b);
    let data = b.room(500);
    let vector = b.put_as(b.tid, &[data.to_le_bytes(), 500u64.to_le_bytes()].concat());
    // struct mmsghdr: msg_iov at 16, msg_iovlen at 24, msg_len at 56.
    let mut headers = [0u8; 128];
    for at in [0, 64] {
        headers[at + 16..at + 24].copy_from_slice(&vector.to_le_bytes());
        headers[at + 24] = 1;
    }
    let at = b.put_as(b.tid, &headers);
    set(&mut b, &[(Kind::PartialSend, ALWAYS)]);
    assert_eq!(b.call(nr::sendmmsg, &[client, at, 2, c::MSG_DONTWAIT]), Ok(1));
    let sent: u32 = b.object(b.tid, at + 56);
    assert!((1..500).contains(&sent), "{sent}");
    set(&mut b, &[]);
    assert_eq!(b.call(nr::sendmmsg, &[client, at, 2, c::MSG_DONTWAIT]), Ok(2));
}

#[test]
fn pipes_are_small_and_do_not_grow_but_shrink() {
    let mut b = Bench::new();
    set(&mut b, &[(Kind::PipeLimit, ALWAYS)]);
    let at = b.room(8);
    assert_eq!(b.call(nr::pipe, &[at]), Ok(0));
    let fd = b.object::<[i32; 2]>(b.tid, at)[0] as u64;
    assert_eq!(b.call(nr::fcntl, &[fd, c::F_GETPIPE_SZ, 0]), Ok(8192));
    assert_eq!(b.call(nr::fcntl, &[fd, c::F_SETPIPE_SZ, 8193]), Err(Errno::EPERM));
    assert_eq!(b.call(nr::fcntl, &[fd, c::F_SETPIPE_SZ, 8192]), Ok(8192));
    assert_eq!(b.call(nr::fcntl, &[fd, c::F_SETPIPE_SZ, 4096]), Ok(4096));
    let expected = [
        (Kind::PipeLimit, "pipe", "a pipe of 8192 bytes".to_owned()),
        (Kind::PipeLimit, "fcntl", "EPERM".to_owned()),
    ];
    assert_eq!(told(&mut b), expected);
    set(&mut b, &[]);
    assert_eq!(b.call(nr::fcntl, &[fd, c::F_SETPIPE_SZ, 8193]), Ok(16384));
}

#[test]
fn there_is_no_instance_or_watch_of_inotify_left() {
    let mut b = Bench::new();
    let fd = b.call(nr::inotify_init1, &[0]).expect("an instance");
    let etc = b.text("/etc");
    let mask = u64::from(IN_CREATE);
    assert_eq!(b.call(nr::inotify_add_watch, &[fd, etc, mask]), Ok(1));
    set(&mut b, &[(Kind::InotifyLimit, ALWAYS)]);
    assert_eq!(b.call(nr::inotify_init1, &[0]), Err(Errno::EMFILE));
    assert_eq!(b.call(nr::inotify_add_watch, &[fd, etc, u64::from(IN_DELETE)]), Ok(1), "it is there");
    let (dev, none) = (b.text("/dev"), b.text("/none"));
    assert_eq!(b.call(nr::inotify_add_watch, &[fd, dev, mask]), Err(Errno::ENOSPC));
    assert_eq!(b.call(nr::inotify_add_watch, &[fd, none, mask]), Err(Errno::ENOENT));
    assert_eq!(told(&mut b).iter().map(|met| met.2.as_str()).collect::<Vec<_>>(), ["EMFILE", "ENOSPC"]);
}

#[test]
fn an_event_that_is_lost_leaves_an_overflow_in_its_place() {
    let mut b = Bench::new();
    let fd = b.call(nr::inotify_init1, &[c::O_NONBLOCK]).expect("an instance");
    let root = b.text("/");
    b.call(nr::inotify_add_watch, &[fd, root, u64::from(IN_CREATE)]).expect("a watch");
    let (at, count) = (b.room(4096), b.room(4));
    let masks = |b: &mut Bench| -> Vec<u32> {
        let n = b.call(nr::read, &[fd, at, 4096]).expect("events") as usize;
        let bytes = b.get_as(b.tid, at, n);
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("a word"));
        let (mut out, mut next) = (Vec::new(), 0);
        while next < n {
            out.push(word(next + 4));
            next += 16 + word(next + 12) as usize;
        }
        out
    };
    let make = |b: &mut Bench, path| assert!(b.open(path, c::O_CREAT | c::O_WRONLY).is_ok());
    set(&mut b, &[(Kind::InotifyOverflow, ALWAYS)]);
    assert_eq!(b.call(nr::read, &[fd, at, 4096]), Err(Errno::EAGAIN), "nothing can be lost");
    assert_eq!(told(&mut b), []);
    ["/a", "/b", "/c"].into_iter().for_each(|path| make(&mut b, path));
    let mut seen = masks(&mut b);
    assert_eq!(
        (seen.len(), told(&mut b)),
        (3, vec![(Kind::InotifyOverflow, "read", "IN_Q_OVERFLOW".to_owned())])
    );
    seen.sort_unstable();
    assert_eq!(seen, [IN_CREATE, IN_CREATE, IN_Q_OVERFLOW]);
    // What FIONREAD has told of is not lost any more.
    make(&mut b, "/d");
    set(&mut b, &[]);
    assert_eq!(b.call(nr::ioctl, &[fd, FIONREAD, count]), Ok(0));
    set(&mut b, &[(Kind::InotifyOverflow, ALWAYS)]);
    let told_of: u32 = b.object(b.tid, count);
    assert_eq!(b.call(nr::read, &[fd, at, 4096]), Ok(u64::from(told_of)));
    assert_eq!(told(&mut b), []);
}

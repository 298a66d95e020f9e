//! Descriptors in messages: how many there may be, and that those are found which nobody can receive.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::table::nr;
use zerocopy::IntoBytes;

use crate::ctx::{Ctx, Outside};
use crate::ids::*;
use crate::testing::Bench;

fn pair(b: &mut Bench, at: u64) -> (u64, u64) {
    b.call(nr::socketpair, &[c::AF_UNIX, c::SOCK_STREAM, 0, at]).unwrap();
    let [x, y] = [0, 4].map(|offset| u64::from(b.object::<u32>(b.tid, at + offset)));
    (x, y)
}

/// Sends a byte with descriptors.
fn send(b: &mut Bench, via: u64, fds: &[u64], at: u64) -> Result<u64, Errno> {
    let mut control = (16 + 4 * fds.len() as u64).to_le_bytes().to_vec();
    control.extend([1, 0, 0, 0, 1, 0, 0, 0]);
    control.extend(fds.iter().flat_map(|fd| (*fd as u32).to_le_bytes()));
    control.resize(control.len().next_multiple_of(8), 0);
    let tid = b.tid;
    let mut ctx = Ctx::new(&mut b.node, tid, Outside::new(&mut b.base, &mut b.decisions));
    let hdr: [u64; 7] = [0, 0, at + 64, 1, at + 128, control.len() as u64, 0];
    ctx.write_bytes(at, hdr.as_bytes()).unwrap();
    ctx.write_bytes(at + 64, [at, 1u64].as_bytes()).unwrap();
    ctx.write_bytes(at + 128, &control).unwrap();
    b.call(nr::sendmsg, &[via, at, 0])
}

fn close(b: &mut Bench, fds: &[u64]) {
    for fd in fds {
        b.call(nr::close, &[*fd]).unwrap();
    }
}

/// Closes so many sockets that the collector looks.
fn look(b: &mut Bench, at: u64) {
    for _ in 0..3 {
        let (x, y) = pair(b, at);
        close(b, &[x, y]);
    }
}

#[test]
fn sockets_that_nobody_can_receive_are_closed() {
    let mut b = Bench::new();
    let (before, at) = (b.node.files.len(), b.room(2048));
    for round in 0..200 {
        let ((a, x), (y, z)) = (pair(&mut b, at), pair(&mut b, at));
        send(&mut b, a, &[y, z], at).unwrap();
        send(&mut b, y, &[a, x], at).unwrap();
        close(&mut b, &[a, x, y, z]);
        assert_eq!(b.node.files.len(), before + 4, "closed by nobody");
        look(&mut b, at);
        assert_eq!(b.node.files.len(), before, "{round}");
    }
    let ((a, x), (y, z)) = (pair(&mut b, at), pair(&mut b, at));
    send(&mut b, a, &[y, z], at).unwrap();
    send(&mut b, y, &[a], at).unwrap();
    close(&mut b, &[a, y, z]);
    look(&mut b, at);
    assert_eq!(b.node.files.len(), before + 4, "x can still receive the others");
    close(&mut b, &[x]);
    look(&mut b, at);
    assert_eq!(b.node.files.len(), before);
}

#[test]
fn a_connection_that_is_not_accepted_holds_what_was_sent_on_it() {
    let mut b = Bench::new();
    let (before, at) = (b.node.files.len(), b.room(2048));
    let listener = b.call(nr::socket, &[c::AF_UNIX, c::SOCK_STREAM, 0]).unwrap();
    let address = b.put_as(b.tid, b"\x01\0\0name");
    b.call(nr::bind, &[listener, address, 7]).unwrap();
    b.call(nr::listen, &[listener, 5]).unwrap();
    let client = b.call(nr::socket, &[c::AF_UNIX, c::SOCK_STREAM, 0]).unwrap();
    b.call(nr::connect, &[client, address, 7]).unwrap();
    send(&mut b, client, &[listener, client], at).unwrap();
    close(&mut b, &[client]);
    assert_eq!(b.node.files.len(), before + 2);
    close(&mut b, &[listener]);
    look(&mut b, at);
    assert_eq!(b.node.files.len(), before, "the listener is in its own queue only");
}

#[test]
fn a_user_has_so_many_in_messages() {
    let mut b = Bench::new();
    let at = b.room(2048);
    let (x, y) = pair(&mut b, at);
    b.node.process_mut(Pid(b.tid.0)).limits[c::RLIMIT_NOFILE as usize].cur = 20;
    let sent = (0..100).take_while(|_| send(&mut b, x, &[x, x, x, x, x], at).is_ok()).count();
    assert_eq!(sent, 5, "more than the limit are found by the next one");
    assert_eq!(send(&mut b, x, &[x], at), Err(Errno::ETOOMANYREFS));
    b.call(nr::read, &[y, at, 1]).unwrap();
    assert_eq!(send(&mut b, x, &[x], at), Ok(1), "a message was received");
}

//! Socket calls that sleep, cross process borders, or come with bad arguments.

use crate::ctx::Outside;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Timeval;
use bloodhound_abi::table::nr;
use bloodhound_abi::{Errno, SimTime};
use zerocopy::IntoBytes;

use crate::dispatch::Outcome;
use crate::ids::*;
use crate::stacks::NetNs;
use crate::testing::Bench;

mod ancillary;

fn int(bench: &mut Bench, at: u64) -> i32 {
    bench.object(bench.tid, at)
}

fn pair(bench: &mut Bench, kind: u64) -> (u64, u64) {
    let at = bench.room(8);
    pair_at(bench, kind, at)
}

fn pair_at(bench: &mut Bench, kind: u64, at: u64) -> (u64, u64) {
    bench.call(nr::socketpair, &[c::AF_UNIX, kind, 0, at]).unwrap();
    (int(bench, at) as u64, int(bench, at + 4) as u64)
}

fn send(bench: &mut Bench, tid: Tid, fd: u64, data: &[u8]) -> Result<u64, Errno> {
    let at = bench.put_as(tid, data);
    bench.call_as(tid, nr::sendto, &[fd, at, data.len() as u64, 0, 0, 0])
}

fn recv(bench: &mut Bench, fd: u64, len: usize, flags: u64) -> Result<Vec<u8>, Errno> {
    let at = bench.room(len);
    let n = bench.call(nr::recvfrom, &[fd, at, len as u64, flags, 0, 0])? as usize;
    Ok(bench.get_as(bench.tid, at, n.min(len)))
}

fn poll(bench: &mut Bench, fd: u64) -> u64 {
    let entry = (fd as u32 as u64 | 0x23df << 32).to_le_bytes();
    let at = bench.put_as(bench.tid, &entry);
    bench.call(nr::poll, &[at, 1, 0]).unwrap();
    bench.object::<u64>(bench.tid, at) >> 48
}

/// Lets time pass until the node's next deadline has been dealt with.
fn pass(bench: &mut Bench) {
    let at = bench.node.next_deadline().expect("something to wait for");
    bench.node.clock = bench.node.clock.max(at);
    bench.node.on_time();
}

fn set_timeout(bench: &mut Bench, fd: u64, name: u64, ms: u64) {
    let at = bench.put_as(bench.tid, Timeval::from_ns(ms * 1_000_000).as_bytes());
    bench.call(nr::setsockopt, &[fd, c::SOL_SOCKET, name, at, 16]).unwrap();
}

fn v4(port: u16) -> Vec<u8> {
    let mut out = vec![2, 0];
    out.extend(port.to_be_bytes());
    out.extend([127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    out
}

fn at_port(bench: &mut Bench, call: u64, fd: u64, port: u16) -> Outcome {
    let at = bench.put_as(bench.tid, &v4(port));
    bench.start(bench.tid, call, &[fd, at, 16])
}

fn inet(bench: &mut Bench, kind: u64) -> u64 {
    bench.call(nr::socket, &[c::AF_INET, kind, 0]).unwrap()
}

/// A listener on port 80 and a connection to it: (listener, client, server).
fn connection(bench: &mut Bench) -> (u64, u64, u64) {
    let l = inet(bench, c::SOCK_STREAM);
    assert_eq!(at_port(bench, nr::bind, l, 80), Outcome::Done(0));
    bench.call(nr::listen, &[l, 5]).unwrap();
    let client = inet(bench, c::SOCK_STREAM);
    assert_eq!(at_port(bench, nr::connect, client, 80), Outcome::Blocked);
    pass(bench);
    assert_eq!(bench.resume(bench.tid), Ok(0));
    let server = bench.call(nr::accept, &[l, 0, 0]).unwrap();
    (l, client, server)
}

#[test]
fn a_sleeping_reader_is_woken_by_a_writer() {
    let mut b = Bench::new();
    let (x, y) = pair(&mut b, c::SOCK_STREAM);
    let other = b.fork();
    let at = b.room(64);
    assert_eq!(b.start(b.tid, nr::recvfrom, &[x, at, 64, 0, 0, 0]), Outcome::Blocked);
    send(&mut b, other, y, b"wake up").unwrap();
    assert_eq!(b.resume(b.tid), Ok(7));
    assert_eq!(b.get_as(b.tid, at, 7), b"wake up");
    assert_eq!(b.start(b.tid, nr::read, &[x, at, 64]), Outcome::Blocked);
    b.call_as(other, nr::shutdown, &[y, c::SHUT_WR]).unwrap();
    assert_eq!(b.resume(b.tid), Ok(0));
}

#[test]
fn receive_timeouts_end_in_eagain() {
    let mut b = Bench::new();
    let (x, _y) = pair(&mut b, c::SOCK_DGRAM);
    set_timeout(&mut b, x, c::SO_RCVTIMEO, 8);
    let at = b.room(8);
    let start = b.node.clock;
    assert_eq!(b.start(b.tid, nr::recvfrom, &[x, at, 8, 0, 0, 0]), Outcome::Blocked);
    pass(&mut b);
    assert_eq!(b.resume(b.tid), Err(Errno::EAGAIN));
    let waited = b.node.clock.since(start);
    assert!((8_000_000..8_100_000).contains(&waited), "{waited} ns");
    assert_eq!(b.call(nr::recvfrom, &[x, at, 8, c::MSG_DONTWAIT, 0, 0]), Err(Errno::EAGAIN));
}

#[test]
fn waitall_collects_over_sleeps() {
    let mut b = Bench::new();
    let (x, y) = pair(&mut b, c::SOCK_STREAM);
    let other = b.fork();
    let at = b.room(16);
    send(&mut b, other, y, b"one ").unwrap();
    assert_eq!(b.start(b.tid, nr::recvfrom, &[x, at, 11, c::MSG_WAITALL, 0, 0]), Outcome::Blocked);
    send(&mut b, other, y, b"two ").unwrap();
    assert!(matches!(
        b.node.resume_syscall(b.tid, &mut Outside::new(&mut b.base, &mut b.decisions)),
        Outcome::Blocked
    ));
    send(&mut b, other, y, b"three").unwrap();
    assert_eq!(b.resume(b.tid), Ok(11));
    assert_eq!(b.get_as(b.tid, at, 11), b"one two thr");
    assert_eq!(recv(&mut b, x, 9, 0).unwrap(), b"ee");
}

#[test]
fn a_sleeping_send_goes_on_and_a_signal_makes_it_short() {
    let mut b = Bench::new();
    let (x, y) = pair(&mut b, c::SOCK_STREAM);
    let other = b.fork();
    let at = b.room(400_000);
    assert_eq!(b.start(other, nr::write, &[x, at, 400_000]), Outcome::Blocked);
    let mut got = 0;
    while got < 400_000 {
        got += b.call(nr::recvfrom, &[y, at, 100_000, 0, 0, 0]).unwrap();
        if b.node.task(other).woken.is_some() {
            let _more = b.node.resume_syscall(other, &mut Outside::new(&mut b.base, &mut b.decisions));
        }
    }
    assert_eq!((got, b.node.task(other).regs.rax), (400_000, 400_000));
    // A handler for SIGUSR1, then a signal into the sleeping call.
    let action = [0x40_0000u64, c::SA_SIGINFO | c::SA_RESTORER, 0x40_0000, 0];
    let act = b.put_as(other, action.as_bytes());
    b.call_as(other, nr::rt_sigaction, &[c::SIGUSR1, act, 0, 8]).unwrap();
    assert_eq!(b.start(other, nr::sendto, &[x, at, 400_000, 0, 0, 0]), Outcome::Blocked);
    b.call(nr::kill, &[u64::from(other.0), c::SIGUSR1]).unwrap();
    assert_eq!(b.resume(other), Ok(219_264), "a short count, no EINTR");
}

#[test]
fn connecters_wait_for_a_full_queue() {
    let mut b = Bench::new();
    let l = b.call(nr::socket, &[c::AF_UNIX, c::SOCK_STREAM, 0]).unwrap();
    let name = b.put_as(b.tid, b"\x01\0\0srv");
    b.call(nr::bind, &[l, name, 6]).unwrap();
    b.call(nr::listen, &[l, 0]).unwrap();
    let (one, two) = (
        b.call(nr::socket, &[c::AF_UNIX, c::SOCK_STREAM, 0]).unwrap(),
        b.call(nr::socket, &[c::AF_UNIX, c::SOCK_STREAM, 0]).unwrap(),
    );
    let other = b.fork();
    b.put_as(other, b"");
    b.call(nr::connect, &[one, name, 6]).unwrap();
    assert_eq!(b.start(other, nr::connect, &[two, name, 6]), Outcome::Blocked);
    b.call(nr::accept, &[l, 0, 0]).unwrap();
    assert_eq!(b.resume(other), Ok(0));
    let new = b.call(nr::accept4, &[l, 0, 0, c::SOCK_CLOEXEC | c::SOCK_NONBLOCK]).unwrap();
    assert_eq!(b.call(nr::fcntl, &[new, c::F_GETFD, 0]), Ok(1));
    assert_eq!(b.call(nr::fcntl, &[new, c::F_GETFL, 0]), Ok(c::O_RDWR | c::O_NONBLOCK));
    assert_eq!(b.call(nr::accept4, &[l, 0, 0, 1]), Err(Errno::EINVAL));
}

#[test]
fn names_in_the_file_system_lead_to_sockets() {
    let mut b = Bench::new();
    b.with_path(nr::mkdir, "/run", &[0o755]).ok();
    let l = b.call(nr::socket, &[c::AF_UNIX, c::SOCK_STREAM, 0]).unwrap();
    let name = b.put_as(b.tid, b"\x01\0/run/s\0");
    b.call(nr::bind, &[l, name, 9]).unwrap();
    assert_eq!(b.call(nr::bind, &[l, name, 9]), Err(Errno::EADDRINUSE));
    let other = b.put_as(b.tid, b"\x01\0/run/t\0");
    assert_eq!(b.call(nr::bind, &[l, other, 9]), Err(Errno::EINVAL), "has a name");
    assert_eq!(b.with_path(nr::access, "/run/t", &[0]), Err(Errno::ENOENT), "and leaves nothing behind");
    let client = b.call(nr::socket, &[c::AF_UNIX, c::SOCK_STREAM, 0]).unwrap();
    assert_eq!(b.call(nr::connect, &[client, name, 9]), Err(Errno::ECONNREFUSED), "not listening");
    b.call(nr::listen, &[l, 5]).unwrap();
    let wrong = b.call(nr::socket, &[c::AF_UNIX, c::SOCK_DGRAM, 0]).unwrap();
    assert_eq!(b.call(nr::connect, &[wrong, name, 9]), Err(Errno::EPROTOTYPE));
    // The inode counts, not the name.
    let moved = b.text("/run/moved");
    b.with_path(nr::rename, "/run/s", &[moved]).unwrap();
    assert_eq!(b.call(nr::connect, &[client, name, 9]), Err(Errno::ENOENT));
    let renamed = b.put_as(b.tid, b"\x01\0/run/moved\0");
    assert_eq!(b.call(nr::connect, &[client, renamed, 13]), Ok(0));
    assert_eq!(b.open("/run/moved", c::O_RDWR), Err(Errno::ENXIO));
    let file = b.put_as(b.tid, b"\x01\0/etc/hosts\0");
    assert_eq!(b.call(nr::connect, &[wrong, file, 13]), Err(Errno::ECONNREFUSED));
    b.call(nr::close, &[l]).unwrap();
    let late = b.call(nr::socket, &[c::AF_UNIX, c::SOCK_STREAM, 0]).unwrap();
    assert_eq!(b.call(nr::connect, &[late, renamed, 13]), Err(Errno::ECONNREFUSED));
}

#[test]
fn tcp_over_loopback() {
    let mut b = Bench::new();
    let (l, client, server) = connection(&mut b);
    assert_eq!(poll(&mut b, client), c::EPOLLOUT | c::EPOLLWRNORM);
    let tid = b.tid;
    assert_eq!(send(&mut b, tid, client, b"GET /"), Ok(5));
    pass(&mut b);
    assert_eq!(poll(&mut b, server), c::EPOLLIN | c::EPOLLRDNORM | c::EPOLLOUT | c::EPOLLWRNORM);
    assert_eq!(recv(&mut b, server, 3, c::MSG_PEEK).unwrap(), b"GET");
    let room = b.room(8);
    b.call(nr::ioctl, &[server, c::FIONREAD, room]).unwrap();
    assert_eq!(int(&mut b, room), 5);
    assert_eq!(
        b.call(nr::recvfrom, &[server, 0xdead_0000, 4, c::MSG_TRUNC, 0, 0]),
        Ok(4),
        "discarded, not stored"
    );
    assert_eq!(recv(&mut b, server, 9, 0).unwrap(), b"/");
    assert_eq!(b.call(nr::recvfrom, &[server, room, 8, c::MSG_DONTWAIT, 0, 0]), Err(Errno::EAGAIN));
    assert_eq!(b.call(nr::recvfrom, &[server, room, 8, c::MSG_OOB, 0, 0]), Err(Errno::EINVAL));
    assert_eq!(at_port(&mut b, nr::connect, client, 80), Outcome::Done(Errno::EISCONN.as_ret()));
    b.call(nr::shutdown, &[client, c::SHUT_WR]).unwrap();
    pass(&mut b);
    assert_eq!(recv(&mut b, server, 9, 0), Ok(vec![]));
    // Process 1 gets only signals that it handles.
    let pid = b.node.task(tid).pid;
    b.node.actions_of_mut(pid)[c::SIGPIPE as usize - 1].handler = 0x1000;
    assert_eq!(send(&mut b, tid, client, b"x"), Err(Errno::EPIPE));
    assert_ne!(b.node.pending_for(tid) & 1 << (c::SIGPIPE - 1), 0);
    let text = crate::inet::proc_net_tcp(&b.node, NetNs(0), false);
    assert!(text.contains("0: 0100007F:0050 00000000:0000 0A 00000000:00000000"), "{text}");
    assert_eq!(text.lines().count(), 4, "a listener and two ends:\n{text}");
    assert!(text.lines().all(|l| l.len() == 149));
    for fd in [l, client, server] {
        b.call(nr::close, &[fd]).unwrap();
    }
    assert!(b.node.inet.is_empty());
}

#[test]
fn closing_lingers_until_the_data_is_there() {
    let mut b = Bench::new();
    let (_, client, server) = connection(&mut b);
    let on = b.put_as(b.tid, &[1, 0, 0, 0, 5, 0, 0, 0]);
    b.call(nr::setsockopt, &[client, c::SOL_SOCKET, c::SO_LINGER, on, 8]).unwrap();
    let copy = b.call(nr::dup, &[client]).unwrap();
    assert_eq!(b.call(nr::close, &[copy]), Ok(0), "not the last one");
    let tid = b.tid;
    send(&mut b, tid, client, b"bye").unwrap();
    let start = b.node.clock;
    assert_eq!(b.start(tid, nr::close, &[client]), Outcome::Blocked);
    while b.sleeps(tid) {
        pass(&mut b);
    }
    assert!(b.node.clock.since(start) < 1_000_000_000, "the acknowledgement ended it, not the time");
    assert_eq!(b.resume(b.tid), Ok(0));
    assert_eq!(b.call(nr::close, &[client]), Err(Errno::EBADF));
    assert_eq!(recv(&mut b, server, 9, 0).unwrap(), b"bye");
}

#[test]
fn refused_connections_say_so() {
    let mut b = Bench::new();
    let fd = inet(&mut b, c::SOCK_STREAM);
    assert_eq!(at_port(&mut b, nr::connect, fd, 81), Outcome::Blocked);
    pass(&mut b);
    assert_eq!(b.resume(b.tid), Err(Errno::ECONNREFUSED));
    let fd = inet(&mut b, c::SOCK_STREAM | c::SOCK_NONBLOCK);
    assert_eq!(at_port(&mut b, nr::connect, fd, 81), Outcome::Done(Errno::EINPROGRESS.as_ret()));
    assert_eq!(at_port(&mut b, nr::connect, fd, 81), Outcome::Done(Errno::EALREADY.as_ret()));
    pass(&mut b);
    assert_ne!(poll(&mut b, fd) & c::EPOLLERR, 0);
    let at = b.put_as(b.tid, &[4, 0, 0, 0, 0xee, 0xee, 0xee, 0xee]);
    b.call(nr::getsockopt, &[fd, c::SOL_SOCKET, c::SO_ERROR, at + 4, at]).unwrap();
    assert_eq!(int(&mut b, at + 4), i32::from(Errno::ECONNREFUSED.0));
    let fd = inet(&mut b, c::SOCK_STREAM);
    set_timeout(&mut b, fd, c::SO_SNDTIMEO, 4);
    let at = b.put_as(b.tid, &[2, 0, 0, 80, 10, 9, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(b.call(nr::connect, &[fd, at, 16]), Err(Errno::ENETUNREACH));
}

#[test]
fn udp_carries_addresses_and_lengths() {
    let mut b = Bench::new();
    let (server, client) = (inet(&mut b, c::SOCK_DGRAM), inet(&mut b, c::SOCK_DGRAM));
    assert_eq!(at_port(&mut b, nr::bind, server, 53), Outcome::Done(0));
    let on = b.put_as(b.tid, &1u32.to_le_bytes());
    b.call(nr::setsockopt, &[server, c::IPPROTO_IP, c::IP_PKTINFO, on, 4]).unwrap();
    let (to, data) = (b.put_as(b.tid, &v4(53)), b.put_as(b.tid, b"question"));
    assert_eq!(b.call(nr::sendto, &[client, data, 8, 0, 0, 0]), Err(Errno::EDESTADDRREQ));
    assert_eq!(b.call(nr::sendto, &[client, data, 8, 0, to, 16]), Ok(8));
    assert_eq!(b.call(nr::sendto, &[client, data, 70_000, 0, to, 16]), Err(Errno::EMSGSIZE));
    pass(&mut b);
    // msghdr: name, iov of 4 bytes, control.
    let at = b.room(512);
    let tid = b.tid;
    let mut ctx = crate::ctx::Ctx::new(&mut b.node, tid, Outside::new(&mut b.base, &mut b.decisions));
    let hdr: [u64; 7] = [at + 64, 16, at + 128, 1, at + 192, 64, 0];
    ctx.write_bytes(at, hdr.as_bytes()).unwrap();
    ctx.write_bytes(at + 128, [at + 256, 4u64].as_bytes()).unwrap();
    assert_eq!(b.call(nr::recvmsg, &[server, at, c::MSG_TRUNC]), Ok(8), "the real length");
    let hdr: [u64; 7] = b.object(tid, at);
    assert_eq!((hdr[1], hdr[5], hdr[6] as u32), (16, 32, c::MSG_TRUNC as u32));
    assert_eq!(b.get_as(tid, at + 64, 2), [2, 0]);
    assert_eq!(b.get_as(tid, at + 256, 5), b"ques\0");
    let control = b.get_as(tid, at + 192, 28);
    assert_eq!(control[..16], [28u64, 8 << 32].as_bytes()[..]);
    assert_eq!(control[16..], [1, 0, 0, 0, 127, 0, 0, 1, 127, 0, 0, 1], "lo, 127.0.0.1 twice");
    // A connected socket learns that nobody is there.
    assert_eq!(at_port(&mut b, nr::connect, client, 54), Outcome::Done(0));
    assert_eq!(b.call(nr::sendto, &[client, data, 8, 0, 0, 0]), Ok(8));
    pass(&mut b);
    assert_eq!(b.call(nr::read, &[client, data, 8]), Err(Errno::ECONNREFUSED));
}

/// Sends descriptors over `via`.
fn send_fds(bench: &mut Bench, via: u64, fds: &[u64]) -> Result<u64, Errno> {
    let at = bench.room(2048);
    send_fds_at(bench, via, fds, at)
}

fn send_fds_at(bench: &mut Bench, via: u64, fds: &[u64], at: u64) -> Result<u64, Errno> {
    let mut control = (16 + 4 * fds.len() as u64).to_le_bytes().to_vec();
    control.extend([1, 0, 0, 0, 1, 0, 0, 0]);
    control.extend(fds.iter().flat_map(|fd| (*fd as u32).to_le_bytes()));
    control.resize(control.len().next_multiple_of(8), 0);
    let tid = bench.tid;
    let mut ctx =
        crate::ctx::Ctx::new(&mut bench.node, tid, Outside::new(&mut bench.base, &mut bench.decisions));
    let hdr: [u64; 7] = [0, 0, at + 64, 1, at + 128, control.len() as u64, 0];
    ctx.write_bytes(at, hdr.as_bytes()).unwrap();
    ctx.write_bytes(at + 64, [at, 1u64].as_bytes()).unwrap();
    ctx.write_bytes(at + 128, &control).unwrap();
    bench.call(nr::sendmsg, &[via, at, 0])
}

#[test]
fn descriptors_travel_between_processes() {
    let mut b = Bench::new();
    let (x, y) = pair(&mut b, c::SOCK_STREAM);
    let other = b.fork();
    let file = b.open("/etc/hosts", c::O_RDONLY).unwrap();
    send_fds(&mut b, x, &[file, file]).unwrap();
    b.call(nr::close, &[file]).unwrap();
    assert_eq!(send_fds(&mut b, x, &[99]), Err(Errno::EBADF));
    assert_eq!(send_fds(&mut b, x, &[x; 254]), Err(Errno::EINVAL));
    // Room for one descriptor only.
    let at = b.room(256);
    let mut ctx = crate::ctx::Ctx::new(&mut b.node, other, Outside::new(&mut b.base, &mut b.decisions));
    let hdr: [u64; 7] = [0, 0, at + 64, 1, at + 128, 20, 0];
    ctx.write_bytes(at, hdr.as_bytes()).unwrap();
    ctx.write_bytes(at + 64, [at + 200, 1u64].as_bytes()).unwrap();
    assert_eq!(b.call_as(other, nr::recvmsg, &[y, at, c::MSG_CMSG_CLOEXEC]), Ok(1));
    let hdr: [u64; 7] = b.object(other, at);
    assert_eq!((hdr[5], hdr[6] as u32), (20, (c::MSG_CTRUNC | c::MSG_CMSG_CLOEXEC) as u32));
    let fd = u64::from(b.object::<u32>(other, at + 128 + 16));
    assert_eq!(b.call_as(other, nr::fcntl, &[fd, c::F_GETFD, 0]), Ok(1));
    assert_eq!(b.call_as(other, nr::read, &[fd, at, 9]), Ok(9));
    assert_eq!(b.get_as(other, at, 9), b"127.0.0.1");
    let left =
        b.node.files.iter().filter(|(_, f)| matches!(f.kind, crate::file::FileKind::Regular(_))).count();
    assert_eq!(left, 1, "the second reference was dropped");
    b.call_as(other, nr::close, &[fd]).unwrap();
    let left =
        b.node.files.iter().filter(|(_, f)| matches!(f.kind, crate::file::FileKind::Regular(_))).count();
    assert_eq!(left, 0);
}

#[test]
fn a_long_chain_of_sockets_in_sockets_closes() {
    let mut b = Bench::new();
    let before = b.node.files.len();
    let mut last = None;
    let at = b.room(2048);
    // So many may not be in messages at once, usually.
    b.node.process_mut(Pid(b.tid.0)).limits[c::RLIMIT_NOFILE as usize].cur = 20_000;
    for _ in 0..10_000 {
        let (x, y) = pair_at(&mut b, c::SOCK_STREAM, at);
        if let Some(fd) = last {
            send_fds_at(&mut b, x, &[fd], at).unwrap();
            b.call(nr::close, &[fd]).unwrap();
        }
        b.call(nr::close, &[x]).unwrap();
        last = Some(y);
    }
    assert_eq!(b.node.files.len(), before + 10_000);
    b.call(nr::close, &[last.unwrap()]).unwrap();
    assert_eq!(b.node.files.len(), before);
    assert_eq!(b.node.unix.iter().count(), 0);
}

#[test]
fn many_messages_in_one_call() {
    let mut b = Bench::new();
    let (x, y) = pair(&mut b, c::SOCK_DGRAM);
    let at = b.room(1024);
    let tid = b.tid;
    let mut ctx = crate::ctx::Ctx::new(&mut b.node, tid, Outside::new(&mut b.base, &mut b.decisions));
    for i in 0..3 {
        let hdr: [u64; 8] = [0, 0, at + 512 + i * 16, 1, 0, 0, 0, 0];
        ctx.write_bytes(at + i * 64, hdr.as_bytes()).unwrap();
        ctx.write_bytes(at + 512 + i * 16, [at + 600 + i * 8, i + 1].as_bytes()).unwrap();
    }
    assert_eq!(b.call(nr::sendmmsg, &[x, at, 3, 0]), Ok(3));
    let lengths = |b: &mut Bench| [0, 1, 2].map(|i| b.object::<u32>(tid, at + i * 64 + 56));
    assert_eq!(lengths(&mut b), [1, 2, 3]);
    assert_eq!(b.call(nr::recvmmsg, &[y, at, 2, 0, 0]), Ok(2));
    // One is left: without MSG_WAITFORONE the call sleeps for the others, and remembers what it has.
    let other = b.fork();
    assert_eq!(b.start(tid, nr::recvmmsg, &[y, at, 2, 0, 0]), Outcome::Blocked);
    send(&mut b, other, x, b"late").unwrap();
    assert_eq!(b.resume(tid), Ok(2));
    assert_eq!(lengths(&mut b)[..2], [1, 2], "cut to the buffers");
    send(&mut b, other, x, b"one").unwrap();
    assert_eq!(b.call(nr::recvmmsg, &[y, at, 2, c::MSG_WAITFORONE, 0]), Ok(1));
    let late = b.put_as(tid, [0u64, 2_000_000_000].as_bytes());
    assert_eq!(b.call(nr::recvmmsg, &[y, at, 2, 0, late]), Err(Errno::EINVAL));
    assert_eq!(b.call(nr::sendmmsg, &[x, at, 0, 0]), Ok(0));
}

#[test]
fn interfaces_answer_ioctls() {
    let mut b = Bench::new();
    b.node.net.stack_mut(NetNs(0)).add_address("10.0.0.5".parse().unwrap(), 24);
    let fd = inet(&mut b, c::SOCK_DGRAM);
    let at = b.room(256);
    let tid = b.tid;
    let mut ctx = crate::ctx::Ctx::new(&mut b.node, tid, Outside::new(&mut b.base, &mut b.decisions));
    ctx.write_bytes(at, [100u64, at + 64].as_bytes()).unwrap();
    b.call(nr::ioctl, &[fd, c::SIOCGIFCONF, at]).unwrap();
    assert_eq!(int(&mut b, at), 80);
    let list = b.get_as(tid, at + 64, 80);
    assert_eq!((&list[..3], &list[20..24]), (&b"lo\0"[..], &[127, 0, 0, 1][..]));
    assert_eq!((&list[40..45], &list[60..64]), (&b"eth0\0"[..], &[10, 0, 0, 5][..]));
    b.call(nr::ioctl, &[fd, c::SIOCGIFNETMASK, at + 64 + 40]).unwrap();
    assert_eq!(b.get_as(tid, at + 64 + 60, 4), [255, 255, 255, 0]);
    b.call(nr::ioctl, &[fd, c::SIOCGIFBRDADDR, at + 64 + 40]).unwrap();
    assert_eq!(b.get_as(tid, at + 64 + 60, 4), [10, 0, 0, 255]);
    assert_eq!(b.call(nr::ioctl, &[fd, c::TCGETS, at]), Err(Errno::ENOTTY));
    let none = b.put_as(tid, &[b'x'; 40]);
    assert_eq!(b.call(nr::ioctl, &[fd, c::SIOCGIFADDR, none]), Err(Errno::ENODEV));
}

#[test]
fn families_and_types_are_checked() {
    let mut b = Bench::new();
    for (args, want) in [
        ([c::AF_NETLINK, c::SOCK_RAW, 16], Errno::EPROTONOSUPPORT),
        ([c::AF_NETLINK, c::SOCK_STREAM, 0], Errno::ESOCKTNOSUPPORT),
        ([c::AF_PACKET, c::SOCK_STREAM, 0], Errno::ESOCKTNOSUPPORT),
        ([99, c::SOCK_STREAM, 0], Errno::EAFNOSUPPORT),
        ([c::AF_INET, c::SOCK_RAW, 256], Errno::EPROTONOSUPPORT),
        ([c::AF_INET, c::SOCK_RAW, 0], Errno::EPROTONOSUPPORT),
        ([c::AF_INET, c::SOCK_SEQPACKET, 0], Errno::ESOCKTNOSUPPORT),
        ([c::AF_INET, c::SOCK_STREAM, c::IPPROTO_UDP], Errno::EPROTONOSUPPORT),
        ([c::AF_INET, c::SOCK_STREAM, c::IPPROTO_MPTCP], Errno::EPROTONOSUPPORT),
        ([c::AF_INET, c::SOCK_STREAM, 263], Errno::EINVAL),
        ([c::AF_INET, c::SOCK_STREAM | 0x10, 0], Errno::EINVAL),
        ([c::AF_UNIX, c::SOCK_STREAM, 5], Errno::EPROTONOSUPPORT),
        ([c::AF_UNIX, 4, 0], Errno::ESOCKTNOSUPPORT),
        ([c::AF_UNIX, 11, 0], Errno::EINVAL),
    ] {
        assert_eq!(b.call(nr::socket, &args), Err(want), "{args:?}");
    }
    let at = b.room(8);
    assert_eq!(b.call(nr::socketpair, &[c::AF_INET, c::SOCK_STREAM, 0, at]), Err(Errno::EOPNOTSUPP));
    assert_eq!(b.call(nr::socketpair, &[c::AF_NETLINK, c::SOCK_RAW, 0, at]), Err(Errno::EOPNOTSUPP));
    assert_eq!(b.call(nr::socketpair, &[c::AF_UNIX, c::SOCK_STREAM, 0, 8]), Err(Errno::EFAULT));
    let file = b.open("/etc/hosts", c::O_RDONLY).unwrap();
    assert_eq!(b.call(nr::listen, &[file, 5]), Err(Errno::ENOTSOCK));
    assert_eq!(b.call(nr::listen, &[77, 5]), Err(Errno::EBADF));
    assert!(b.node.inet.is_empty());
}

#[test]
fn a_full_descriptor_table_loses_nothing() {
    let mut b = Bench::new();
    let (l, client, _server) = connection(&mut b);
    b.call(nr::close, &[client]).unwrap();
    let fd = inet(&mut b, c::SOCK_STREAM | c::SOCK_NONBLOCK);
    at_port(&mut b, nr::connect, fd, 80);
    pass(&mut b);
    let limit = b.put_as(b.tid, [0u64, 100].as_bytes());
    b.call(nr::setrlimit, &[c::RLIMIT_NOFILE, limit]).unwrap();
    let sockets = b.node.inet.len();
    assert_eq!(b.call(nr::accept, &[l, 0, 0]), Err(Errno::EMFILE));
    assert_eq!(b.call(nr::socket, &[c::AF_INET, c::SOCK_STREAM, 0]), Err(Errno::EMFILE));
    let at = b.room(8);
    assert_eq!(b.call(nr::socketpair, &[c::AF_UNIX, c::SOCK_STREAM, 0, at]), Err(Errno::EMFILE));
    assert_eq!((b.node.inet.len(), b.node.unix.iter().count()), (sockets, 0));
    let limit = b.put_as(b.tid, [100u64, 100].as_bytes());
    b.call(nr::setrlimit, &[c::RLIMIT_NOFILE, limit]).unwrap();
    assert!(b.call(nr::accept, &[l, 0, 0]).is_ok(), "the connection was not lost");
}

#[test]
fn wild_arguments_never_panic() {
    let mut b = Bench::new();
    let (x, y) = pair(&mut b, c::SOCK_STREAM | c::SOCK_NONBLOCK);
    let (d, _) = pair(&mut b, c::SOCK_DGRAM | c::SOCK_NONBLOCK);
    let t = inet(&mut b, c::SOCK_STREAM | c::SOCK_NONBLOCK);
    let u = inet(&mut b, c::SOCK_DGRAM | c::SOCK_NONBLOCK);
    let buf = b.room(4096);
    let calls = [
        nr::bind,
        nr::connect,
        nr::sendto,
        nr::recvfrom,
        nr::sendmsg,
        nr::recvmsg,
        nr::sendmmsg,
        nr::recvmmsg,
        nr::getsockname,
        nr::getpeername,
        nr::setsockopt,
        nr::getsockopt,
        nr::accept4,
        nr::listen,
        nr::ioctl,
        nr::shutdown,
        nr::readv,
        nr::writev,
    ];
    let fds = [x, y, d, t, u, 99];
    let values = [
        0,
        1,
        2,
        8,
        16,
        28,
        110,
        128,
        129,
        1024,
        1025,
        4095,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        u64::MAX,
        1 << 63,
        0x7fff_ffff_f000,
        buf,
        buf + 1,
        buf + 64,
        buf + 4095,
        buf + (1 << 20) - 4,
        0x8912,
        0x541b,
    ];
    let mut seed = 12345u64;
    let mut next = |n: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % n
    };
    for _ in 0..40_000 {
        // What the calls read is garbage, too.
        let garbage: Vec<u8> = (0..16).flat_map(|_| values[next(values.len())].to_le_bytes()).collect();
        let at = buf + 8 * next(400) as u64;
        let tid = b.tid;
        crate::ctx::Ctx::new(&mut b.node, tid, Outside::new(&mut b.base, &mut b.decisions))
            .write_bytes(at, &garbage)
            .unwrap();
        let nr = calls[next(calls.len())];
        let mut args = [0; 6];
        args[0] = fds[next(fds.len())];
        for arg in &mut args[1..] {
            *arg = values[next(values.len())];
        }
        // Sockets that were shut down are less interesting than open ones.
        if nr == nr::shutdown && next(20) > 0 {
            continue;
        }
        let outcome = b.start(tid, nr, &args);
        assert!(matches!(outcome, Outcome::Done(_) | Outcome::Unsupported(_)), "{nr} {args:x?}: {outcome:?}");
        b.node.clock = SimTime(b.node.clock.0 + 1000);
        b.node.on_time();
    }
}

//! Objects weigh what is in them, and nothing when they are gone.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::table::nr;

use crate::container::ContainerId;
use crate::testing::Bench;

/// What was made before the first call is weighed after it.
fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.call(nr::getpid, &[]).unwrap();
    bench
}

fn weighs(bench: &Bench) -> u64 {
    bench.node.memory.usage(ContainerId(0)).kernel.bytes()
}

/// Descriptors that a call has stored as two words.
fn two(bench: &mut Bench, at: u64) -> [u64; 2] {
    [0, 4].map(|offset| u64::from(bench.object::<u32>(bench.tid, at + offset)))
}

fn closes(bench: &mut Bench, fds: &[u64]) {
    for fd in fds {
        bench.call(nr::close, &[*fd]).unwrap();
    }
}

#[test]
fn what_is_closed_weighs_nothing() {
    let mut b = bench();
    let at = b.room(64);
    let before = weighs(&b);
    type Made = fn(&mut Bench, u64) -> Vec<u64>;
    let kinds: [(&str, Made, u64); 8] = [
        ("pipe", |b, at| b.call(nr::pipe2, &[at, 0]).map(|_| two(b, at).to_vec()).unwrap(), 1500),
        ("event", |b, _| vec![b.call(nr::eventfd2, &[0, 0]).unwrap()], 300),
        ("timer", |b, _| vec![b.call(nr::timerfd_create, &[1, 0]).unwrap()], 500),
        ("epoll", |b, _| vec![b.call(nr::epoll_create1, &[0]).unwrap()], 500),
        ("inotify", |b, _| vec![b.call(nr::inotify_init1, &[0]).unwrap()], 700),
        ("tcp", |b, _| vec![b.call(nr::socket, &[c::AF_INET, c::SOCK_STREAM, 0]).unwrap()], 3000),
        ("udp", |b, _| vec![b.call(nr::socket, &[c::AF_INET, c::SOCK_DGRAM, 0]).unwrap()], 3000),
        (
            "pair",
            |b, at| {
                b.call(nr::socketpair, &[c::AF_UNIX, c::SOCK_STREAM, 0, at]).unwrap();
                two(b, at).to_vec()
            },
            4000,
        ),
    ];
    for (name, make, least) in kinds {
        let fds = make(&mut b, at);
        assert!(weighs(&b) >= before + least, "{name}: {}", weighs(&b) - before);
        closes(&mut b, &fds);
        assert_eq!(weighs(&b), before, "{name}");
    }
}

#[test]
fn what_waits_in_a_queue_weighs() {
    let mut b = bench();
    let (at, block) = (b.room(64), b.room(8192));
    b.call(nr::pipe2, &[at, 0]).unwrap();
    let [from, to] = two(&mut b, at);
    let empty = weighs(&b);
    b.call(nr::write, &[to, block, 8192]).unwrap();
    assert_eq!(weighs(&b), empty + 8192);
    b.call(nr::read, &[from, block, 8192]).unwrap();
    assert_eq!(weighs(&b), empty);

    b.call(nr::socketpair, &[c::AF_UNIX, c::SOCK_STREAM, 0, at]).unwrap();
    let [from, to] = two(&mut b, at);
    b.call(nr::write, &[to, block, 8192]).unwrap();
    let full = weighs(&b);
    // Who has sent it need not be there any more.
    b.call(nr::close, &[to]).unwrap();
    assert!(weighs(&b) > full - 4096, "{} of {full}", weighs(&b));
    b.call(nr::close, &[from]).unwrap();
    assert_eq!(weighs(&b), empty);
}

#[test]
fn processes_weigh() {
    let mut b = bench();
    let before = weighs(&b);
    let child = b.fork();
    assert!(weighs(&b) > before + super::TASK + super::PROCESS);
    b.start(child, nr::exit_group, &[0]);
    assert!(weighs(&b) < before + 2 * super::PROCESS);
    b.call(nr::wait4, &[u64::MAX, 0, 0, 0]).unwrap();
    assert_eq!(weighs(&b), before);
}

#[test]
fn queues_of_messages_weigh() {
    let mut b = bench();
    let before = weighs(&b);
    let id = b.call(nr::msgget, &[0, 0o1600]).unwrap();
    let message = b.put_as(b.tid, &[&1u64.to_le_bytes()[..], &[7; 4000]].concat());
    b.call(nr::msgsnd, &[id, message, 4000, 0]).unwrap();
    assert!(weighs(&b) > before + 4000);
    b.call(nr::msgctl, &[id, 0, 0]).unwrap();
    assert_eq!(weighs(&b), before);
}

/// "Kernel memory" alone makes a container lose its process, as nothing else is large enough to be killed for.
#[test]
fn objects_alone_reach_a_limit() {
    let mut b = bench();
    let limit = (b.node.memory_of(ContainerId(0)) + 64) * 4096;
    std::sync::Arc::make_mut(&mut b.node.container_mut(ContainerId(0)).settings).memory = Some(limit);
    let made = (0..2000).take_while(|_| {
        let alive = b.node.memory.kills.is_empty();
        alive && b.call(nr::eventfd2, &[0, 0]) != Err(Errno::EMFILE)
    });
    let made = made.count();
    assert!((700..1000).contains(&made), "{made}");
    assert_eq!(b.node.memory.kills.len(), 1);
}

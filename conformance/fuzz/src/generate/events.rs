//! What one waits for: epoll, eventfd, timerfd, signalfd, inotify.

use super::model::{Kind, Model};

fn make(m: &mut Model) {
    let nonblocking = if m.rng.one_in(8) { 0 } else { 0o4000 };
    let flags = nonblocking | m.rng.bits(&[0o2000000]);
    match m.rng.below(6) {
        0 | 1 => m.make(Kind::Epoll, format!("epoll_create1 {:#x}", flags & 0o2000000)),
        2 | 3 => {
            let (value, semaphore) = (m.number(&[0, 1, 5, 0xffff_fffe]), m.rng.pick(&[0, 1]));
            m.make(Kind::Event, format!("eventfd2 {value} {:#x}", flags | semaphore));
        }
        4 => m.make(Kind::Signals, format!("signalfd4 -1 [ 8:0x10a00 ] 8 {flags:#x}")),
        _ => m.make(Kind::Watches, format!("inotify_init1 {flags:#x}")),
    }
}

fn epoll(m: &mut Model) {
    let (epoll, fd) = (m.fd(&[Kind::Epoll]), m.fd(&[]));
    let actor = m.actor();
    // EPOLLIN, EPOLLOUT, EPOLLPRI, EPOLLRDHUP, EPOLLONESHOT, EPOLLET, EPOLLEXCLUSIVE
    let events = m.rng.bits(&[1, 1, 1, 4, 4, 2, 0x40, 0x2000])
        | m.rng.pick(&[0, 0, 1 << 30, 1 << 31, 1 << 31, 1 << 28]);
    let data = m.rng.below(100);
    match m.rng.below(9) {
        0..=3 => m.op(format!("{actor} . epoll_ctl {epoll} 1 {fd} [ 4:{events:#x} 8:{data} ]")),
        4 => m.op(format!("{actor} . epoll_ctl {epoll} 3 {fd} [ 4:{events:#x} 8:{data} ]")),
        5 => {
            let command = m.rng.pick(&[2, 2, 4]);
            m.op(format!("{actor} . epoll_ctl {epoll} {command} {fd} 0"));
        }
        _ => {
            let most = m.number(&[8, 8, 1, 2, 0]);
            m.op(format!("{actor} . epoll_wait {epoll} <96 {} 0", most.min(8)));
        }
    }
}

fn event(m: &mut Model) {
    let (fd, actor) = (m.fd(&[Kind::Event]), m.actor());
    let value =
        m.rng.pick(&["1", "2", "0", "0xfffffffffffffffe", "0xffffffffffffffff", "0xfffffffffffffffd"]);
    // Since Linux 6.8 more than 8 bytes are EINVAL for a write.
    let size = m.rng.pick(&[8, 8, 8, 7]);
    if m.rng.one_in(2) {
        m.op(format!("{actor} . write {fd} [ 8:{value} 8:0 ] {size}"));
    } else {
        m.op(format!("{actor} . read {fd} <16 {size}"));
    }
}

fn signals(m: &mut Model) {
    let (fd, actor) = (m.fd(&[Kind::Signals]), m.actor());
    match m.rng.below(5) {
        0 => m.op(format!("{actor} . rt_sigprocmask 0 [ 8:0x10a00 ] 0 8")),
        1 => m.op(format!("{actor} . signalfd4 {fd} [ 8:0x200 ] 8 0")),
        2 => super::signals::send(m),
        _ => {
            let size = m.rng.pick(&[128, 256, 127, 512]);
            m.op(format!("{actor} . read {fd} <{size}:signalfd {size}"));
        }
    }
}

fn watches(m: &mut Model) {
    let (fd, actor, path) = (m.fd(&[Kind::Watches]), m.actor(), m.path());
    match m.rng.below(6) {
        0..=2 => {
            // All events, or some, with IN_ONLYDIR, IN_DONT_FOLLOW, IN_EXCL_UNLINK, IN_MASK_CREATE, IN_MASK_ADD, IN_ONESHOT
            let events = m.rng.pick(&[0xfff, 0xfff, 0x100, 0x2, 0x600, 0xc0, 0x4]);
            let flags = m.rng.bits(&[1 << 24, 1 << 25, 1 << 26, 1 << 28, 1 << 29, 1 << 31]);
            m.op(format!("{actor} . inotify_add_watch {fd} {path} {:#x}", events | flags));
        }
        3 => {
            let watch = m.number(&[1, 2, 3]);
            m.op(format!("{actor} . inotify_rm_watch {fd} {watch}"));
        }
        _ => {
            let size = m.rng.pick(&[1000, 1000, 16, 15, 32, 100]);
            m.op(format!("{actor} . read {fd} <{size}:inotify {size}"));
        }
    }
}

/// One operation on what one waits for.
pub fn op(m: &mut Model) {
    match m.rng.below(20) {
        0..=3 => make(m),
        4..=9 => epoll(m),
        10..=12 => event(m),
        13 | 14 => signals(m),
        15 | 16 => watches(m),
        17 => super::names::op(m),
        18 => super::pipes::op(m),
        _ => {
            let (actor, a, b) = (m.actor(), m.fd(&[]), m.fd(&[]));
            m.op(format!("{actor} . poll [ 4:{a} 2:0x2047 2:0 4:{b} 2:5 2:0 ]? 2 0"));
        }
    }
}

//! poll(2), select(2), epoll(7)'s calls.

use std::collections::BTreeSet;

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{EpollEvent, PollFd, Timeval};
use smallvec::SmallVec;
use zerocopy::IntoBytes;

use crate::buffers::access_ok;
use crate::caps::CAP_BLOCK_SUSPEND;
use crate::ctx::*;
use crate::epoll::Epoll;
use crate::file::{File, FileKind};
use crate::ids::*;
use crate::mm::Access;
use crate::signal::UNBLOCKABLE;
use crate::wait::{Left, Object, Progress, Restart, Stop, SysResult, Wait, WaitOn};

/// The descriptor is closed (poll(2)).
const POLLNVAL: u32 = 0x20;
/// What a call waits for, each thing once, in the order in which it was found.
#[derive(Default)]
struct Waited {
    list: SmallVec<[WaitOn; 2]>,
    /// The same, of a list that is too long to be searched.
    seen: BTreeSet<WaitOn>,
}

impl Waited {
    const SHORT: usize = 16;

    fn add(&mut self, object: Object) {
        let on = WaitOn::Object(object);
        if self.list.len() == Waited::SHORT && self.seen.is_empty() {
            self.seen.extend(self.list.iter().copied());
        }
        let new = if self.seen.is_empty() { !self.list.contains(&on) } else { self.seen.insert(on) };
        if new {
            self.list.push(on);
        }
    }
}

/// `struct epoll_event`.
const EVENT_SIZE: u64 = 12;

impl Ctx<'_> {
    /// Readiness of a descriptor and what to wait for; POLLNVAL for a closed one, and for one of O_PATH.
    fn poll_fd(&mut self, fd: i32) -> (u32, Option<Object>) {
        // Each look goes by the descriptor (do_pollfd); but what the first has found stays open while the call sleeps.
        let Ok(entry) = self.table().get(fd) else { return (POLLNVAL, None) };
        // fdget(), which does not know O_PATH descriptors.
        if self.node.files[entry.file].flags & c::O_PATH != 0 {
            return (POLLNVAL, None);
        }
        if self.resumed.is_none() {
            self.pins.add(Fd(fd), entry);
        }
        let bits = self.node.poll_bits(entry.file, self.tid);
        (bits, self.node.files[entry.file].object())
    }

    /// Whether poll or select was woken for nothing: none of the descriptions that it waits for is ready. Only what wakes it makes
    /// it look at the descriptors again, some of which may be closed by now.
    fn woken_for_nothing(&self, mut wanted: impl Iterator<Item = (i32, u32)>) -> bool {
        let ready = |(fd, events): (i32, u32)| {
            let file = self.pins.get(Fd(fd)).map(|entry| entry.file);
            file.is_some_and(|file| self.node.ready_bits_for(file, self.tid) & events != 0)
        };
        self.woken_by_event_only() && !wanted.any(ready)
    }

    fn poll_set(&mut self, fds: &mut [PollFd]) -> (u64, SmallVec<[WaitOn; 2]>) {
        let always = (c::EPOLLERR | c::EPOLLHUP) as u32 | POLLNVAL;
        let (mut hits, mut on) = (0, Waited::default());
        for p in fds {
            p.revents = 0;
            // "The field fd ... negative: the corresponding events field is ignored"
            if p.fd < 0 {
                continue;
            }
            let (bits, object) = self.poll_fd(p.fd);
            p.revents = (bits & (p.events as u16 as u32 | always)) as i16;
            hits += u64::from(p.revents != 0);
            if let Some(object) = object {
                on.add(object);
            }
        }
        (hits, on.list)
    }

    /// Whether poll or select has waited long enough. A pending signal goes before the timeout, even one of zero: do_poll
    /// sets `count = -ERESTARTNOHAND` where nothing is ready, before it looks at `timed_out`. (ep_poll has it the other way.)
    fn poll_over(&self, timeout: Option<u64>) -> bool {
        (timeout == Some(0) || self.timed_out()) && !self.node.signal_deliverable(self.tid)
    }

    fn do_poll(
        &mut self,
        ptr: Ptr,
        nfds: u64,
        timeout: Option<u64>,
        restart: Restart,
        saved: Option<u64>,
        left: Option<Left>,
    ) -> SysResult {
        if self.resumed.is_none() && nfds > self.process().limits[c::RLIMIT_NOFILE as usize].cur {
            return err(Errno::EINVAL);
        }
        let mut fds = match self.progress() {
            Some(Progress::Poll(fds)) => fds.clone(),
            _ => self.read_vec(ptr.0, nfds as usize)?,
        };
        let always = (c::EPOLLERR | c::EPOLLHUP) as u32;
        if self.woken_for_nothing(fds.iter().map(|p| (p.fd, p.events as u16 as u32 | always)))
            && let Some(sleep) = self.sleep_on()
        {
            return sleep;
        }
        // Each is looked up, asked, waited for, and not waited for any more.
        self.walks(4 * fds.len());
        let (hits, on) = self.poll_set(&mut fds);
        if hits > 0 || self.poll_over(timeout) {
            return self.store_revents(ptr, &fds).map(|()| hits);
        }
        let deadline = self.deadline(timeout);
        let wait = Wait { on, deadline, wall: false, restart, saved_mask: saved, left, place: None };
        Err(wait.progress(Progress::Poll(fds)).into())
    }

    /// Only the answers are written ("unsafe_put_user(fds[j].revents, &ufds->revents)").
    fn store_revents(&mut self, ptr: Ptr, fds: &[PollFd]) -> SysResult<()> {
        for (i, p) in fds.iter().enumerate() {
            self.write_obj(Ptr(ptr.0.wrapping_add(i as u64 * 8 + 6)), &p.revents)?;
        }
        Ok(())
    }

    /// The temporary signal mask of the p-calls; returns the mask to put back.
    pub(crate) fn swap_mask(&mut self, ptr: Ptr, size: u64) -> SysResult<Option<u64>> {
        if let Some(r) = &self.resumed {
            return Ok(r.wait.saved_mask);
        }
        if ptr.is_null() {
            return Ok(None);
        }
        if size != 8 {
            return err(Errno::EINVAL);
        }
        let mask: u64 = self.read_obj(ptr)?;
        let old = self.task().sigmask;
        self.task_mut().sigmask = mask & !UNBLOCKABLE;
        Ok(Some(old))
    }

    /// Puts the mask back when a p-call ends without sleeping: at once, so that a signal which only the temporary mask let in
    /// stays pending, unless it interrupts the call (restore_saved_sigmask_unless).
    fn unswap<T>(&mut self, saved: Option<u64>, result: SysResult<T>) -> SysResult<T> {
        if let (Some(mask), false) = (saved, matches!(result, Err(Stop::Block(_)))) {
            self.task_mut().sigmask = mask;
        }
        result
    }

    fn do_epoll_wait(
        &mut self,
        epfd: Fd,
        events: Ptr,
        max: i32,
        timeout: Option<u64>,
        saved: Option<u64>,
    ) -> SysResult {
        // Before the descriptor is looked at: "The maximum number of event must be greater than zero", "Verify that the area passed by the
        // user is writeable" (do_epoll_wait), which asks whether a program may have such addresses.
        if max <= 0 || max as u64 > i32::MAX as u64 / EVENT_SIZE {
            return err(Errno::EINVAL);
        }
        access_ok(events.0, max as u64 * EVENT_SIZE)?;
        let ep = self.epoll_id(epfd)?;
        // An event that cannot be stored stays in the list: "list_add(&epi->rdllink, head); [...] if (!res) res = -EFAULT"
        // (ep_send_events).
        let room = self.accessible(events.0, max as u64 * EVENT_SIZE, Access::Write) / EVENT_SIZE;
        let hits = self.node.epoll_harvest(ep, room as usize, self.tid);
        if hits.is_empty() && room < max as u64 && self.node.epoll_has_events(ep, self.tid) {
            return err(Errno::EFAULT);
        }
        if !hits.is_empty() || timeout == Some(0) || self.timed_out() {
            let hits = self.in_some_order(hits);
            for (i, (e, _)) in hits.iter().enumerate() {
                self.write_bytes(events.0 + i as u64 * EVENT_SIZE, e.as_bytes())?;
            }
            return Ok(hits.len() as u64);
        }
        let deadline = self.deadline(timeout);
        // signal(7): epoll_wait is "never restarted after being interrupted by a signal handler".
        let mut wait = Wait::object(Object::Epoll(ep)).deadline(deadline).restart(Restart::Never);
        wait.saved_mask = saved;
        Err(wait.into())
    }

    fn epoll_id(&mut self, fd: Fd) -> SysResult<EpollId> {
        let id = self.pin(fd)?;
        match self.node.files[id].kind {
            FileKind::Epoll(id) => Ok(id),
            _ => err(Errno::EINVAL),
        }
    }

    fn do_select(
        &mut self,
        nfds: i32,
        sets: [Ptr; 3],
        timeout: Option<u64>,
        saved: Option<u64>,
        left: Option<Left>,
    ) -> SysResult {
        if nfds < 0 {
            return err(Errno::EINVAL);
        }
        // What is beyond the table of descriptors is not looked at, not even whether it is open ("if (n > max_fds) n = max_fds",
        // core_sys_select).
        let (input, nfds) = match self.progress() {
            Some(Progress::Select(input, nfds)) => (input.clone(), *nfds),
            _ => {
                let nfds = (nfds as usize).min(1024).min(self.table().room());
                (self.read_sets(&sets, nfds.div_ceil(64) * 8)?, nfds)
            }
        };
        let bytes = nfds.div_ceil(64) * 8;
        // The classes of select(2): "POLLIN_SET", "POLLOUT_SET", "POLLEX_SET". A descriptor that was closed during the sleep is
        // in all of them (POLLNVAL).
        let masks = [
            (c::EPOLLRDNORM | c::EPOLLIN | c::EPOLLHUP | c::EPOLLERR) as u32 | POLLNVAL,
            (c::EPOLLWRNORM | c::EPOLLOUT | c::EPOLLERR) as u32 | POLLNVAL,
            c::EPOLLPRI as u32 | POLLNVAL,
        ];
        let chosen = |fd: usize, i: usize| input[i][fd / 8] & (1 << (fd % 8)) != 0;
        let wanted = |fd: usize| (0..3).filter(|i| chosen(fd, *i)).fold(0, |bits, i| bits | masks[i]);
        if self.woken_for_nothing((0..nfds).map(|fd| (fd as i32, wanted(fd))))
            && let Some(sleep) = self.sleep_on()
        {
            return sleep;
        }
        let mut output = [[0u8; 128]; 3];
        let (mut hits, mut on) = (0, Waited::default());
        for fd in 0..nfds {
            if !(0..3).any(|i| chosen(fd, i)) {
                continue;
            }
            let (bits, object) = self.poll_fd(fd as i32);
            if bits & POLLNVAL != 0 && self.resumed.is_none() && self.table().get(fd as i32).is_err() {
                return err(Errno::EBADF);
            }
            for i in 0..3 {
                if chosen(fd, i) && bits & masks[i] != 0 {
                    output[i][fd / 8] |= 1 << (fd % 8);
                    hits += 1;
                }
            }
            if let Some(object) = object {
                on.add(object);
            }
        }
        if hits > 0 || self.poll_over(timeout) {
            for (set, ptr) in output.iter().zip(&sets) {
                if !ptr.is_null() {
                    self.write_bytes(ptr.0, &set[..bytes])?;
                }
            }
            return Ok(hits);
        }
        let deadline = self.deadline(timeout);
        let (on, restart) = (on.list, Restart::NoHand);
        let wait = Wait { on, deadline, wall: false, restart, saved_mask: saved, left, place: None };
        Err(wait.progress(Progress::Select(input, nfds)).into())
    }

    fn read_sets(&mut self, sets: &[Ptr; 3], bytes: usize) -> SysResult<Box<[[u8; 128]; 3]>> {
        let mut input = Box::new([[0u8; 128]; 3]);
        for (set, ptr) in input.iter_mut().zip(sets) {
            if !ptr.is_null() {
                self.read_bytes(ptr.0, &mut set[..bytes])?;
            }
        }
        Ok(input)
    }

    /// "On Linux, select() modifies timeout to reflect the amount of time not slept" (select(2)); so do the system calls
    /// pselect6 and ppoll. A zero timeout is left alone.
    fn finish_timeout(&mut self, left: Option<Left>, timeout: Option<u64>, result: &SysResult) {
        // STICKY_TIMEOUTS: "select(2), pselect(2), and ppoll(2) do not modify the returned timeout argument when interrupted"
        // (personality(2)); nor when they are not (poll_select_finish).
        if let (Some(left), Some(ns @ 1..)) = (left, timeout)
            && self.task().persona & STICKY_TIMEOUTS == 0
            && !matches!(result, Err(Stop::Block(_)))
        {
            let end = self.resumed.as_ref().and_then(|r| r.wait.deadline);
            let rest = end.map_or(ns, |end| end.since(self.now()));
            // "If an application puts its timeval in read-only memory, we don't want the Linux-specific update to the timeval to
            // cause a fault after the select has completed successfully."
            let _stored = self.report_left(left, rest);
        }
    }
}

/// Of personality(2).
const STICKY_TIMEOUTS: u32 = 0x400_0000;

fn millis(timeout: i32) -> Option<u64> {
    u64::try_from(timeout).ok().map(|ms| ms * 1_000_000)
}

/// poll(2). A closed descriptor is POLLNVAL, not an error; EINVAL for more entries than descriptors are allowed.
pub fn poll(k: &mut Ctx<'_>, fds: Ptr, nfds: u64, timeout: i32) -> SysResult {
    k.do_poll(fds, nfds, millis(timeout), Restart::Block, None, None)
}

/// ppoll(2): with a signal mask for the time of the call; stores the time left.
pub fn ppoll(k: &mut Ctx<'_>, fds: Ptr, nfds: u64, timeout: Ptr, sigmask: Ptr, size: u64) -> SysResult {
    let ns = k.read_timeout(timeout)?;
    let saved = k.swap_mask(sigmask, size)?;
    let left = (!timeout.is_null()).then_some(Left::Timespec(timeout.0));
    let result = k.do_poll(fds, nfds, ns, Restart::NoHand, saved, left);
    k.finish_timeout(left, ns, &result);
    k.unswap(saved, result)
}

/// select(2). EBADF for a closed descriptor; stores the time left.
pub fn select(k: &mut Ctx<'_>, nfds: i32, r: Ptr, w: Ptr, e: Ptr, timeout: Ptr) -> SysResult {
    if k.resumed.is_none() && !timeout.is_null() {
        let tv: Timeval = k.read_obj(timeout)?;
        k.timeout = Some(tv.to_ns().ok_or(Errno::EINVAL)?);
    }
    let ns = k.timeout;
    let left = (!timeout.is_null()).then_some(Left::Timeval(timeout.0));
    let result = k.do_select(nfds, [r, w, e], ns, None, left);
    k.finish_timeout(left, ns, &result);
    result
}

/// pselect(2): with a signal mask for the time of the call; stores the time left.
pub fn pselect6(k: &mut Ctx<'_>, nfds: i32, r: Ptr, w: Ptr, e: Ptr, timeout: Ptr, sigmask: Ptr) -> SysResult {
    let ns = k.read_timeout(timeout)?;
    let (mask, size) = if sigmask.is_null() || k.resumed.is_some() {
        (Ptr(0), 8)
    } else {
        let pair: [u64; 2] = k.read_obj(sigmask)?;
        (Ptr(pair[0]), pair[1])
    };
    let saved = k.swap_mask(mask, size)?;
    let left = (!timeout.is_null()).then_some(Left::Timespec(timeout.0));
    let result = k.do_select(nfds, [r, w, e], ns, saved, left);
    k.finish_timeout(left, ns, &result);
    k.unswap(saved, result)
}

/// epoll_create(2). EINVAL for a size that is not positive.
pub fn epoll_create(k: &mut Ctx<'_>, size: i32) -> SysResult {
    if size <= 0 {
        return err(Errno::EINVAL);
    }
    epoll_create1(k, FdFlags::empty())
}

/// epoll_create1(2).
pub fn epoll_create1(k: &mut Ctx<'_>, flags: FdFlags) -> SysResult {
    if flags.exceeds(FdFlags::O_CLOEXEC) {
        return err(Errno::EINVAL);
    }
    k.may_open()?;
    let id = k.node.epolls.insert(Epoll::default());
    Ok(k.open_file(File::new(FileKind::Epoll(id), c::O_RDWR), flags.contains(FdFlags::O_CLOEXEC))?)
}

/// epoll_ctl(2). EEXIST, ENOENT; EPERM for files that are always ready; ELOOP for circles of instances.
pub fn epoll_ctl(k: &mut Ctx<'_>, epfd: Fd, op: u32, fd: Fd, event: Ptr) -> SysResult {
    let mut event =
        if u64::from(op) == c::EPOLL_CTL_DEL { EpollEvent::default() } else { k.read_obj(event)? };
    k.file_id(epfd)?;
    let file = k.file_id(fd)?;
    // "If EPOLLWAKEUP is specified but the caller does not have CAP_BLOCK_SUSPEND, the flag is silently ignored" (epoll_ctl(2)).
    if !k.capable(CAP_BLOCK_SUSPEND) {
        event.events &= !(c::EPOLLWAKEUP as u32);
    }
    // "The target file descriptor must support poll" is asked for before the rest (do_epoll_ctl).
    if k.node.files[file].object().is_none() {
        return err(Errno::EPERM);
    }
    let ep = k.epoll_id(epfd)?;
    // "EINVAL epfd is not an epoll file descriptor, or fd is the same as epfd": as descriptions, so a copy of it as well.
    if k.node.files[file].object() == Some(Object::Epoll(ep)) {
        return err(Errno::EINVAL);
    }
    let key = (fd.0, file);
    match u64::from(op) {
        c::EPOLL_CTL_ADD => k.node.epoll_set(ep, key, event, true, k.tid)?,
        c::EPOLL_CTL_MOD => k.node.epoll_set(ep, key, event, false, k.tid)?,
        c::EPOLL_CTL_DEL => k.node.epoll_remove(ep, key)?,
        _ => return err(Errno::EINVAL),
    }
    Ok(0)
}

/// epoll_wait(2). Never restarted after a signal handler.
pub fn epoll_wait(k: &mut Ctx<'_>, epfd: Fd, events: Ptr, max: i32, timeout: i32) -> SysResult {
    k.do_epoll_wait(epfd, events, max, millis(timeout), None)
}

/// epoll_pwait(2): with a signal mask for the time of the call.
pub fn epoll_pwait(
    k: &mut Ctx<'_>,
    epfd: Fd,
    events: Ptr,
    max: i32,
    timeout: i32,
    sigmask: Ptr,
    size: u64,
) -> SysResult {
    let saved = k.swap_mask(sigmask, size)?;
    let result = k.do_epoll_wait(epfd, events, max, millis(timeout), saved);
    k.unswap(saved, result)
}

/// epoll_pwait2(2): as epoll_pwait(2), with a timeout in nanoseconds.
pub fn epoll_pwait2(
    k: &mut Ctx<'_>,
    epfd: Fd,
    events: Ptr,
    max: i32,
    timeout: Ptr,
    sigmask: Ptr,
    size: u64,
) -> SysResult {
    let ns = k.read_timeout(timeout)?;
    let saved = k.swap_mask(sigmask, size)?;
    let result = k.do_epoll_wait(epfd, events, max, ns, saved);
    k.unswap(saved, result)
}

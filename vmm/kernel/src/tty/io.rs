//! open(2), read(2), write(2) and close(2) of both sides of a pseudoterminal.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_vfs::Ino;

use crate::buffers::{Buffers, Source};
use crate::caps::CAP_SYS_ADMIN;
use crate::ctx::Ctx;
use crate::file::{File, FileKind};
use crate::ids::*;
use crate::mm::Access;
use crate::node::Node;
use crate::tty::line::Line;
use crate::tty::modes::*;
use crate::tty::{BUFFER, FLIP, Pty};
use crate::wait::{Object, Progress, Restart, SysResult, Wait};

const IN: u64 = c::EPOLLIN | c::EPOLLRDNORM;
const OUT: u64 = c::EPOLLOUT | c::EPOLLWRNORM;
/// kernel.pty.max.
const MOST: usize = 4096;
/// VTIME counts tenths of a second.
const TENTH: u64 = 100_000_000;

impl Ctx<'_> {
    /// Opens ptmx: a new pair. "ENOSPC" where there are as many as can be.
    pub(crate) fn open_ptmx(&mut self, ino: Ino, flags: u64) -> Result<File, Errno> {
        if !self.node.vfs.is_devpts(ino) {
            return Err(Errno::ENODEV);
        }
        let root = self.node.vfs.devpts_root(ino)?;
        let mut taken: Vec<u32> =
            self.node.ptys.iter().filter(|(_, p)| p.root == root).map(|(_, p)| p.number).collect();
        taken.sort_unstable();
        let number = taken.iter().zip(0..).take_while(|(used, n)| **used == *n).count();
        if number >= MOST {
            return Err(Errno::ENOSPC);
        }
        let (uid, now) = (self.fs_cred().uid, self.now());
        let slave = self.node.vfs.add_slave(root, number as u32, uid, now)?;
        let pty = self.node.ptys.insert(Pty::new(number as u32, root, slave));
        self.node.pts.insert(slave, pty);
        Ok(File::new(FileKind::Tty { pty, master: true, ino, hangups: 0 }, flags))
    }

    /// Opens a node of /dev/pts.
    pub(crate) fn open_pts(&mut self, ino: Ino, flags: u64) -> Result<File, Errno> {
        let pty = *self.node.pts.get(&ino).ok_or(Errno::ENXIO)?;
        self.open_slave(pty, ino, flags)
    }

    /// Opens /dev/tty: the controlling terminal. "ENXIO" without one.
    pub(crate) fn open_own_tty(&mut self, ino: Ino, flags: u64) -> Result<File, Errno> {
        let pty = self.process().tty.ok_or(Errno::ENXIO)?;
        self.open_slave(pty, ino, flags)
    }

    /// EIO while it is locked and after the master was closed; EBUSY with TIOCEXCL.
    pub(crate) fn open_slave(&mut self, pty: PtyId, ino: Ino, flags: u64) -> Result<File, Errno> {
        let p = &self.node.ptys[pty];
        if p.locked || !p.master {
            return Err(Errno::EIO);
        }
        if p.exclusive && !self.capable(CAP_SYS_ADMIN) {
            return Err(Errno::EBUSY);
        }
        let p = &mut self.node.ptys[pty];
        p.slaves += 1;
        p.closed = false;
        p.slave_opened();
        let hangups = p.hangups[0];
        Ok(File::new(FileKind::Tty { pty, master: false, ino, hangups }, flags))
    }

    pub(crate) fn tty_read(&mut self, kind: &FileKind, to: &Buffers, nonblock: bool) -> SysResult {
        let FileKind::Tty { pty, master, .. } = *kind else { return Err(Errno::EIO.into()) };
        // "hung_up_tty_read: return 0".
        if self.node.is_hung_up(kind) {
            // Who has slept meets the end of the other side first, if it is that (TTY_OTHER_CLOSED, `n_tty_read`).
            let closed = self.resumed.is_some() && !self.node.ptys[pty].master;
            return if closed && self.tty_done() == 0 { Err(Errno::EIO.into()) } else { Ok(self.tty_done()) };
        }
        if self.node.ptys[pty].line(master) == Line::Null {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if master {
            return self.master_read(pty, to, nonblock);
        }
        if self.resumed.is_none() {
            self.check_foreground(pty, c::SIGTTIN)?;
        }
        if self.node.ptys[pty].by_lines() {
            self.line_read(pty, to, nonblock)
        } else {
            self.raw_read(pty, to, nonblock)
        }
    }

    /// What a read that slept has read before.
    fn tty_done(&self) -> u64 {
        match self.progress() {
            Some(Progress::Tty { done, .. }) => *done,
            _ => 0,
        }
    }

    fn master_read(&mut self, pty: PtyId, to: &Buffers, nonblock: bool) -> SysResult {
        let p = &self.node.ptys[pty];
        if to.is_empty() {
            return Ok(0);
        }
        if p.packet && p.status != 0 {
            let status = p.status;
            self.copy_out(to, 0, &[status])?;
            self.node.ptys[pty].status = 0;
            return Ok(1);
        }
        if p.output.is_empty() {
            return Err(match (p.closed, nonblock) {
                // "EIO" once nobody has the slave open.
                (true, _) => Errno::EIO.into(),
                (_, true) => Errno::EAGAIN.into(),
                _ => Wait::object(Object::Tty(pty, true)).into(),
            });
        }
        let head = usize::from(p.packet);
        let n = (to.len() as usize - head).min(p.output.len()).min(BUFFER - 1);
        let good = self.good_bytes(to, 0, (head + n) as u64, Access::Write)? as usize;
        let n = good - head.min(good);
        // "TIOCPKT_DATA": a byte 0 before the data.
        let mut bytes = vec![0; head];
        bytes.extend(self.node.ptys[pty].output.drain(..n));
        self.copy_out(to, 0, &bytes)?;
        self.node.ptys[pty].process_echoes();
        self.node.notify_object(Object::Tty(pty, false), OUT as u32);
        Ok(bytes.len() as u64)
    }

    /// A read in canonical mode: a line, or the part of it for which there is room.
    fn line_read(&mut self, pty: PtyId, to: &Buffers, nonblock: bool) -> SysResult {
        let done = self.tty_done();
        if to.is_empty() {
            return Ok(0);
        }
        let p = &self.node.ptys[pty];
        if p.input.whole == 0 {
            return match nonblock {
                true => Err(Errno::EAGAIN.into()),
                false => Err(self.tty_wait(pty, to, done).into()),
            };
        }
        let max = (to.len() - done).min(BUFFER as u64);
        let good = self.good_bytes(to, done, max.min(p.input.whole as u64), Access::Write)?;
        let max = if good < max.min(self.node.ptys[pty].input.whole as u64) { good } else { max };
        let bytes = self.node.ptys[pty].input.take_line(max as usize);
        self.copy_out(to, done, &bytes)?;
        self.node.tty_pump(pty);
        Ok(done + bytes.len() as u64)
    }

    /// A read in noncanonical mode (termios(3), "Canonical and noncanonical mode"): VMIN characters, VTIME between them; or in
    /// canonical mode with EXTPROC: what is there.
    fn raw_read(&mut self, pty: PtyId, to: &Buffers, nonblock: bool) -> SysResult {
        let before = self.tty_done();
        if to.is_empty() {
            return Ok(0);
        }
        let p = &self.node.ptys[pty];
        let external = p.lflag(ICANON);
        let [time, min] = match external {
            // "if (!ldata->icanon) minimum = MIN_CHAR(tty)": whatever is there is enough.
            true => [0, 1],
            false => [VTIME, VMIN].map(|index| u64::from(p.termios.cc[index])),
        };
        let eof = p.termios.cc[VEOF];
        let there = (p.input.line.len() as u64).min(to.len() - before);
        let mut done = before;
        if there > 0 {
            let good = self.good_bytes(to, before, there, Access::Write)?;
            let bytes = self.node.ptys[pty].input.take_raw(good as usize);
            // "Turn single EOF into zero-length read" (copy_from_read_buf).
            if external && bytes == [eof] && self.node.ptys[pty].input.line.is_empty() {
                self.node.tty_pump(pty);
                return Ok(before);
            }
            self.copy_out(to, before, &bytes)?;
            done += bytes.len() as u64;
            self.node.tty_pump(pty);
        }
        if done == to.len() || done > 0 && done >= min {
            return Ok(done);
        }
        let deadline = match (min, time) {
            (0, 0) => return Ok(0),
            // "TIME specifies the limit for a timer [...] started when read(2) is called".
            (0, _) => self.deadline(Some(time * TENTH)),
            (_, 0) => None,
            // "TIME specifies the limit for a timer [...] Once an initial byte of input becomes available, the timer is restarted
            // after each further byte is received."
            _ if done > before => Some(self.now().after(time * TENTH)),
            _ => self.resumed.as_ref().and_then(|r| r.wait.deadline),
        };
        if self.timed_out() && done == before {
            return Ok(done);
        }
        if nonblock {
            return if done > 0 { Ok(done) } else { Err(Errno::EAGAIN.into()) };
        }
        let mut sleep = self.tty_wait(pty, to, done);
        sleep.wait.deadline = deadline;
        Err(sleep.into())
    }

    fn tty_wait(&self, pty: PtyId, to: &Buffers, done: u64) -> crate::wait::Sleep {
        let restart = if done > 0 { Restart::Partial(done) } else { Restart::Sys };
        let wait = Wait::object(Object::Tty(pty, false)).restart(restart);
        wait.progress(Progress::Tty { to: to.clone(), done })
    }

    pub(crate) fn tty_write(
        &mut self,
        kind: &FileKind,
        from: &Source,
        done: u64,
        nonblock: bool,
    ) -> SysResult {
        let FileKind::Tty { pty, master, .. } = *kind else { return Err(Errno::EIO.into()) };
        // "hung_up_tty_write: return -EIO".
        if self.node.is_hung_up(kind) {
            return if done > 0 { Ok(done) } else { Err(Errno::EIO.into()) };
        }
        let p = &self.node.ptys[pty];
        if p.line(master) == Line::Null {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if !master && p.lflag(TOSTOP) && self.resumed.is_none() {
            self.check_foreground(pty, c::SIGTTOU)?;
        }
        let total = from.len();
        let wanted = (total - done).min((FLIP + BUFFER) as u64);
        let good = self.source_good(from, done, wanted);
        let bytes = self.source_bytes(from, done, good)?.into_owned();
        let p = &mut self.node.ptys[pty];
        let n = if master {
            let n = bytes.len().min(p.typing_room());
            p.input.flip.extend(&bytes[..n]);
            self.node.tty_pump(pty);
            // The line discipline looks at each character, and may show it.
            self.walks(n);
            n
        } else {
            let n = p.put(&bytes);
            self.node.tell_output(pty);
            n
        };
        let now_done = done + n as u64;
        if n > 0 {
            self.charge_moved(now_done);
        }
        if now_done == total || now_done > 0 && nonblock {
            return Ok(now_done);
        }
        if n == bytes.len() && good < wanted {
            return if now_done > 0 { Ok(now_done) } else { Err(Errno::EFAULT.into()) };
        }
        if nonblock {
            return Err(Errno::EAGAIN.into());
        }
        let restart = if now_done > 0 { Restart::Partial(now_done) } else { Restart::Sys };
        let wait = Wait::object(Object::Tty(pty, master)).restart(restart);
        Err(wait.progress(Progress::Write { source: from.clone(), done: now_done }).into())
    }
}

impl Node {
    /// Lets the line discipline have what was typed, and tells whom it concerns.
    pub(crate) fn tty_pump(&mut self, pty: PtyId) {
        let p = &mut self.ptys[pty];
        // Without that line discipline what is typed waits.
        if p.line(false) != Line::Tty {
            return;
        }
        let before = (p.input.flip.len(), p.output.len());
        let signals = p.receive();
        let (read, room) = (p.input.flip.len() < before.0, p.input.flip.len() < FLIP);
        let (readable, shown) = (p.is_readable(true), p.output.len() != before.1 || p.status != 0);
        let group = p.group;
        for signo in signals {
            self.signal_group(group, signo);
        }
        if readable {
            self.notify_object(Object::Tty(pty, false), IN as u32);
        } else if read {
            // A reader that has an own measure of what is enough (VMIN).
            self.notify(crate::wait::WaitOn::Object(Object::Tty(pty, false)));
        }
        let bits = if shown { IN } else { 0 } | if read && room { OUT } else { 0 };
        if bits != 0 {
            self.notify_object(Object::Tty(pty, true), bits as u32);
        }
        // VSTART lets the slave write again.
        if !self.ptys[pty].stopped {
            self.notify_object(Object::Tty(pty, false), OUT as u32);
        }
    }

    /// The slave has written, or the state that packet mode tells has changed.
    pub(crate) fn tell_output(&mut self, pty: PtyId) {
        let p = &self.ptys[pty];
        if p.ready(true) & IN != 0 {
            self.notify_object(Object::Tty(pty, true), (IN | c::EPOLLPRI) as u32);
        }
    }

    /// A description of a side is closed.
    pub(crate) fn close_tty(&mut self, pty: PtyId, master: bool) {
        let now = self.own_time();
        let Some(p) = self.ptys.get_mut(pty) else { return };
        if master {
            p.master = false;
            let (root, number, slave) = (p.root, p.number, p.slave);
            self.pts.remove(&slave);
            self.vfs.remove_slave(root, number, slave, now);
            self.hang_up_side(pty, false);
        } else {
            p.slaves -= 1;
            if p.slaves == 0 {
                (p.closed, p.exclusive) = (true, false);
                self.notify_object(Object::Tty(pty, true), (IN | c::EPOLLHUP) as u32);
            }
        }
        if self.ptys.get(pty).is_some_and(|p| !p.master && p.slaves == 0) {
            self.ptys.remove(pty);
        }
    }
}

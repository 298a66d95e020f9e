//! Hangups (vhangup(2), TIOCVHANGUP), and the line discipline N_NULL (TIOCSETD), which neither reads nor writes.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;

use crate::caps::CAP_SYS_ADMIN;
use crate::ctx::{Ctx, Ptr};
use crate::file::FileKind;
use crate::ids::*;
use crate::node::Node;
use crate::tty::{BUFFER, Pty, modes};
use crate::wait::{Object, SysResult};

/// The numbers of N_TTY and N_NULL.
const N_TTY: i32 = 0;
const N_NULL: i32 = 27;

/// Which line discipline a side has. That of the master passes everything on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line {
    /// N_TTY.
    Tty,
    /// N_NULL.
    Null,
    /// None since it was hung up, until it is opened.
    Gone,
}

impl Pty {
    /// The line discipline of a side.
    pub(crate) fn line(&self, master: bool) -> Line {
        self.lines[usize::from(master)]
    }

    /// What a line discipline has not given to anybody is lost with it; what has not come to it yet waits for the next one.
    fn drop_line(&mut self, master: bool) {
        if master {
            self.output.drain(..self.output.len().min(BUFFER - 1));
        } else {
            self.flush_input();
            self.echoes.clear();
        }
    }

    /// A side gets this line discipline, with nothing in it (tty_set_ldisc).
    fn set_line(&mut self, master: bool, line: Line) {
        if self.line(master) != line {
            if self.line(master) == Line::Tty {
                self.drop_line(master);
            }
            self.lines[usize::from(master)] = line;
            if !master {
                self.termios.line = if line == Line::Null { N_NULL as u8 } else { 0 };
            }
        }
    }

    /// The slave is opened.
    pub(crate) fn slave_opened(&mut self) {
        if self.line(false) == Line::Gone {
            self.lines[0] = Line::Tty;
        }
    }
}

impl Node {
    /// Whether a description of a terminal is from before a hangup: then there is nothing more to it (hung_up_tty_fops).
    pub(crate) fn is_hung_up(&self, kind: &FileKind) -> bool {
        let FileKind::Tty { pty, master, hangups, .. } = kind else { return false };
        self.ptys.get(*pty).is_none_or(|p| p.hangups[usize::from(*master)] != *hangups)
    }

    /// Readiness of a description of a terminal (EPOLL* bits).
    pub(crate) fn tty_ready(&self, kind: &FileKind, pty: PtyId, master: bool) -> u64 {
        if self.is_hung_up(kind) {
            // hung_up_tty_poll.
            let all = c::EPOLLIN | c::EPOLLRDNORM | c::EPOLLOUT | c::EPOLLWRNORM;
            return all | c::EPOLLERR | c::EPOLLHUP;
        }
        match self.ptys[pty].line(master) {
            // It has no function for it.
            Line::Null => 0,
            Line::Tty | Line::Gone => self.ptys[pty].ready(master),
        }
    }

    /// Hangs a side up (__tty_hangup): descriptions of it are of no use any more, and a slave loses its session, whose leader hears of
    /// it, its modes, and what was typed. It can be opened again.
    pub(crate) fn hang_up_side(&mut self, pty: PtyId, master: bool) {
        let Some(p) = self.ptys.get_mut(pty) else { return };
        if p.line(master) == Line::Gone {
            return;
        }
        p.hangups[usize::from(master)] += 1;
        p.drop_line(master);
        p.lines[usize::from(master)] = Line::Gone;
        if !master {
            (p.termios, p.speeds, p.status) = (modes::initial(), [modes::SPEED; 2], 0);
            self.hang_up(pty);
        }
        let object = Object::Tty(pty, master);
        let bits = c::EPOLLIN | c::EPOLLRDNORM | c::EPOLLOUT | c::EPOLLWRNORM | c::EPOLLHUP | c::EPOLLERR;
        for id in self.fasync.get(&object).cloned().unwrap_or_default() {
            self.set_async(id, -1, false);
        }
        self.notify_object(object, bits as u32);
    }
}

impl Ctx<'_> {
    /// TIOCSETD. EINVAL for one that there is not: all others are modules, and there is none to load (tty_ldisc_get).
    pub(crate) fn set_line(&mut self, (pty, master): (PtyId, bool), arg: Ptr) -> SysResult {
        if !master {
            self.check_foreground(pty, c::SIGTTOU)?;
        }
        let line = match self.read_obj::<i32>(arg)? {
            N_TTY => Line::Tty,
            N_NULL => Line::Null,
            _ => return Err(Errno::EINVAL.into()),
        };
        self.node.ptys[pty].set_line(master, line);
        self.node.tty_pump(pty);
        self.node.tell_output(pty);
        Ok(0)
    }

    /// TIOCSTI: a byte as if it had been typed. EPERM at another terminal than the own one.
    pub(crate) fn type_byte(&mut self, (pty, master): (PtyId, bool), arg: Ptr) -> SysResult {
        let own = !master && self.process().tty == Some(pty);
        if !own && !self.capable(CAP_SYS_ADMIN) {
            return Err(Errno::EPERM.into());
        }
        let byte: u8 = self.read_obj(arg)?;
        let p = &mut self.node.ptys[pty];
        match (p.line(master), master) {
            // The discipline drops what it has no room for (n_tty_receive_buf_common).
            (Line::Tty, false) if p.typing_room() > 0 => p.input.flip.push_back(byte),
            (Line::Tty, false) => {}
            (Line::Tty, true) => p.output.push_back(byte),
            (Line::Null | Line::Gone, _) => {}
        }
        self.node.tty_pump(pty);
        self.node.tell_output(pty);
        Ok(0)
    }
}

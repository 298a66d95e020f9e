//! Pseudoterminals (pty(7), termios(3)): pairs of a master and a slave, with the line discipline N_TTY on the slave's side.
//!
//! Key types: [`Pty`], [`modes`]. The parts: [`input`] (what is typed at the master: editing of lines, signals, echo), [`output`] (what the slave
//! writes), [`io`] (read(2), write(2), open(2) of both sides), [`job`] (sessions, foreground process groups), [`line`] (hangups, the other line discipline); ioctl(2) is in
//! `sys::tty`. Linux hands bytes from one side to the other in a worker; here they have arrived when the write ends.

pub mod input;
pub mod io;
pub mod job;
pub mod line;
pub mod modes;
pub mod output;

use std::collections::VecDeque;

use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Termios, Winsize};
use bloodhound_vfs::Ino;

use crate::ids::*;
use crate::tty::input::{Echo, Input};
use crate::tty::line::Line;

/// N_TTY_BUF_SIZE: what the line discipline of each side holds.
pub const BUFFER: usize = 4096;
/// What waits before that (TTYB_DEFAULT_MEM_LIMIT).
pub const FLIP: usize = 65536;

/// Both sides of a pseudoterminal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pty {
    /// Its number: the slave's name in /dev/pts.
    pub number: u32,
    /// The root of its devpts.
    pub root: Ino,
    /// The slave's node.
    pub slave: Ino,
    /// TIOCSPTLCK: the slave cannot be opened.
    pub locked: bool,
    /// TIOCEXCL of the slave.
    pub exclusive: bool,
    /// The slave's modes, which both sides show.
    pub termios: Termios,
    /// Input and output speed.
    pub speeds: [u32; 2],
    /// Size of the window.
    pub size: Winsize,
    /// Whose controlling terminal the slave is.
    pub session: Option<Pid>,
    /// Its foreground process group.
    pub group: Option<Pid>,
    /// The master is open. It cannot be opened again.
    pub master: bool,
    /// Descriptions of the slave.
    pub slaves: u32,
    /// The last description of the slave was closed, and no other opened (TTY_OTHER_CLOSED).
    pub closed: bool,
    /// TIOCPKT.
    pub packet: bool,
    /// What the next read of the master tells in packet mode (TIOCPKT_*).
    pub status: u8,
    /// Output is stopped by VSTOP or TCOOFF.
    pub stopped: bool,
    /// It is so by TCOOFF, which only TCOON ends.
    pub held: bool,
    /// TCOOFF of the master: nothing can be typed until its TCOON.
    pub silent: bool,
    /// What was typed.
    pub input: Input,
    /// What is to be shown of that: written as soon as there is room.
    pub echoes: VecDeque<Echo>,
    /// Column of the cursor.
    pub column: u32,
    /// Column at which the line that is being typed begins.
    pub line_column: u32,
    /// What the master can read.
    pub output: VecDeque<u8>,
    /// How often slave and master were hung up: who has opened a side before is done with it.
    pub hangups: [u32; 2],
    /// The line disciplines of slave and master.
    pub lines: [Line; 2],
}

impl Pty {
    /// A pair of which the master is open and the slave is locked.
    pub fn new(number: u32, root: Ino, slave: Ino) -> Pty {
        Pty {
            number,
            root,
            slave,
            locked: true,
            exclusive: false,
            termios: modes::initial(),
            speeds: [modes::SPEED; 2],
            size: Winsize::default(),
            session: None,
            group: None,
            master: true,
            slaves: 0,
            closed: false,
            packet: false,
            status: 0,
            stopped: false,
            held: false,
            silent: false,
            input: Input::default(),
            echoes: VecDeque::new(),
            column: 0,
            line_column: 0,
            output: VecDeque::new(),
            hangups: [0; 2],
            lines: [Line::Tty; 2],
        }
    }

    pub(crate) fn lflag(&self, flag: u32) -> bool {
        self.termios.lflag & flag != 0
    }

    /// Whether reads take lines: with EXTPROC somebody else edits them ("ldata->icanon && !L_EXTPROC(tty)", `n_tty_read`).
    pub(crate) fn by_lines(&self) -> bool {
        self.lflag(modes::ICANON) && !self.lflag(modes::EXTPROC)
    }

    pub(crate) fn iflag(&self, flag: u32) -> bool {
        self.termios.iflag & flag != 0
    }

    /// Whether a special character is this one; a disabled one (_POSIX_VDISABLE, 0) is none.
    pub(crate) fn is(&self, index: usize, byte: u8) -> bool {
        byte != 0 && self.termios.cc[index] == byte
    }

    /// Bytes that can be typed (`tty_buffer_space_avail`, `pty_write_room`).
    pub(crate) fn typing_room(&self) -> usize {
        if self.silent { 0 } else { FLIP.saturating_sub(self.input.flip.len()) }
    }

    /// Readiness of a side (EPOLL* bits).
    pub fn ready(&self, master: bool) -> u64 {
        let (readable, writable) = (c::EPOLLIN | c::EPOLLRDNORM, c::EPOLLOUT | c::EPOLLWRNORM);
        let mut bits = 0;
        if master {
            bits |= if self.output.is_empty() { 0 } else { readable };
            bits |= if self.packet && self.status != 0 { readable | c::EPOLLPRI } else { 0 };
            bits |= if self.closed { c::EPOLLHUP } else { 0 };
            bits |= if self.typing_room() > 0 { writable } else { 0 };
        } else {
            bits |= if self.is_readable(true) { readable } else { 0 };
            bits |= if self.room() > 0 { writable } else { 0 };
        }
        bits
    }

    /// Whether the slave has something to read (`input_available_p`); poll(2) asks for VMIN characters if no time counts.
    pub fn is_readable(&self, poll: bool) -> bool {
        if self.by_lines() {
            return self.input.whole > 0;
        }
        let [time, min] = [modes::VTIME, modes::VMIN].map(|index| self.termios.cc[index]);
        let wanted = if poll && time == 0 && min > 0 { usize::from(min) } else { 1 };
        self.input.line.len() >= wanted
    }

    /// Notes something for a master in packet mode. Whether it is in that mode.
    pub(crate) fn tell_master(&mut self, clear: u8, set: u8) -> bool {
        if self.packet {
            self.status = self.status & !clear | set;
        }
        self.packet
    }
}

//! Input of the slave: the line discipline N_TTY, which edits lines, sends signals and echoes.

use std::collections::VecDeque;

use bloodhound_abi::consts as c;

use crate::tty::modes::*;
use crate::tty::{BUFFER, Pty};

/// What was typed and not read yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Input {
    /// What the line discipline has not seen yet, for want of room.
    pub flip: VecDeque<u8>,
    /// Characters, and whether each ends a line. A line's end with the character 0 is an end of file.
    pub line: VecDeque<(u8, bool)>,
    /// How many of them belong to lines that are whole.
    pub whole: usize,
    /// What there was when canonical mode was switched on counts as a line.
    pushed: bool,
    /// The next character has no special meaning (VLNEXT).
    literal: bool,
    /// A run of erased characters is being shown (ECHOPRT).
    erasing: bool,
}

/// A part of what is shown of what was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Echo {
    /// A character.
    Plain(u8),
    /// A control character as ^X.
    Control(u8),
    /// Over a tab, back to where it began.
    EraseTab {
        /// Columns between it and what is before.
        characters: u32,
        /// That is another tab.
        after_tab: bool,
    },
    /// The line begins at this column.
    LineColumn,
    /// One column back.
    BackColumn,
}

impl Input {
    /// Drops everything that can be read (`reset_buffer_flags`).
    fn clear(&mut self) {
        self.line.clear();
        (self.whole, self.pushed, self.literal, self.erasing) = (0, false, false, false);
    }

    fn push(&mut self, byte: u8) {
        self.line.push_back((byte, false));
    }

    /// Takes up to a line, at most `max` bytes, of which the first `good` can be stored (`canon_copy_from_read_buf`). An end of file right
    /// behind what fills the buffer goes with it.
    pub(super) fn take_line(&mut self, max: usize) -> Vec<u8> {
        let seen = self.whole.min(max + 1);
        let end = self.line.iter().take(seen).position(|(_, ends)| *ends);
        let (copied, taken) = match end {
            Some(at) if self.line[at].0 == 0 => (at, at + 1),
            Some(at) => ((at + 1).min(max), (at + 1).min(max)),
            None => (seen.min(max), seen.min(max)),
        };
        let line = self.line.drain(..taken).map(|(byte, _)| byte).take(copied).collect();
        self.whole -= taken;
        if end.is_some_and(|at| at < taken) {
            self.pushed = false;
        }
        line
    }

    /// Takes up to `max` bytes, whatever lines there are.
    pub(super) fn take_raw(&mut self, max: usize) -> Vec<u8> {
        let n = self.line.len().min(max);
        self.whole = self.whole.saturating_sub(n);
        self.line.drain(..n).map(|(byte, _)| byte).collect()
    }

    /// Whether the end of the next line is within so many bytes, and how many bytes that line has.
    pub fn unread(&self, lines: bool) -> usize {
        if !lines {
            return self.line.len();
        }
        // Ends of file are not counted (`inq_canon`).
        self.line.iter().take(self.whole).filter(|(byte, ends)| !(*ends && *byte == 0)).count()
    }
}

impl Pty {
    /// Lets the line discipline have what was typed, as far as there is room. The signals that it asks for, in order.
    pub fn receive(&mut self) -> Vec<u32> {
        let mut signals = Vec::new();
        while !self.input.flip.is_empty() && self.make_room() {
            let Some(byte) = self.input.flip.pop_front() else { break };
            self.receive_byte(byte, &mut signals);
        }
        if self.lflag(ECHO) || self.lflag(ECHONL) {
            self.process_echoes();
        }
        signals
    }

    /// Whether another character can be taken. A line that is too long goes on being read, so that its end is seen: each further
    /// character takes the place of the last ("overflow" in n_tty_receive_buf_common).
    fn make_room(&mut self) -> bool {
        let unused = BUFFER - self.input.line.len();
        let unused = if self.iflag(PARMRK) { unused.div_ceil(3) } else { unused };
        if unused > 1 {
            return true;
        }
        let overflows = self.lflag(ICANON) && self.input.whole == 0;
        if overflows && unused == 0 {
            self.input.line.pop_back();
        }
        overflows
    }

    fn receive_byte(&mut self, byte: u8, signals: &mut Vec<u32>) {
        let mut byte = byte;
        if self.iflag(ISTRIP) {
            byte &= 0x7f;
        }
        if self.iflag(IUCLC) && self.lflag(IEXTEN) {
            byte = byte.to_ascii_lowercase();
        }
        if std::mem::take(&mut self.input.literal) {
            return self.receive_plain(byte, false);
        }
        if self.lflag(EXTPROC) {
            return self.input.push(byte);
        }
        if self.iflag(IXON) && self.receive_flow(byte) {
            return;
        }
        if self.lflag(ISIG) {
            let keys = [(VINTR, c::SIGINT), (VQUIT, c::SIGQUIT), (VSUSP, c::SIGTSTP)];
            if let Some((_, signo)) = keys.iter().find(|(key, _)| self.is(*key, byte)) {
                signals.push(*signo as u32);
                return self.receive_signal(byte);
            }
        }
        if self.stopped && !self.held && self.iflag(IXON) && self.iflag(IXANY) {
            self.start();
        }
        let typed = byte;
        match byte {
            b'\r' if self.iflag(IGNCR) => return,
            b'\r' if self.iflag(ICRNL) => byte = b'\n',
            b'\n' if self.iflag(INLCR) => byte = b'\r',
            _ => {}
        }
        if self.lflag(ICANON) && self.receive_editing(byte) {
            return;
        }
        self.receive_plain(byte, byte != typed);
    }

    /// A character without a meaning (`n_tty_receive_char`). Only a newline that was a carriage return is shown as one.
    fn receive_plain(&mut self, byte: u8, converted: bool) {
        if self.lflag(ECHO) {
            self.finish_erasing();
            if converted && byte == b'\n' {
                self.echo(Echo::Plain(byte));
            } else {
                self.mark_line();
                self.echo_character(byte);
            }
            self.commit_echoes();
        }
        if byte == 0xff && self.iflag(PARMRK) {
            self.input.push(byte);
        }
        self.input.push(byte);
    }

    /// VSTART and VSTOP.
    fn receive_flow(&mut self, byte: u8) -> bool {
        if self.is(VSTART, byte) {
            self.start();
            return true;
        }
        if self.is(VSTOP, byte) {
            self.stop();
            return true;
        }
        false
    }

    /// Output goes on (`start_tty`), unless TCOOFF holds it.
    pub fn start(&mut self) {
        if self.stopped && !self.held {
            self.stopped = false;
            self.tell_master(packet::STOP, packet::START);
        }
        self.process_echoes();
    }

    /// Output stops (`stop_tty`).
    pub fn stop(&mut self) {
        if !self.stopped {
            self.stopped = true;
            self.tell_master(packet::START, packet::STOP);
        }
    }

    /// "When any of the characters INTR, QUIT, SUSP, or DSUSP are received, generate the corresponding signal"; "NOFLSH: Disable
    /// flushing the input and output queues" (termios(3)).
    fn receive_signal(&mut self, byte: u8) {
        if !self.lflag(NOFLSH) {
            self.echoes.clear();
            self.flush_output();
            self.flush_input();
        }
        if self.iflag(IXON) {
            self.start();
        }
        if self.lflag(ECHO) {
            self.echo_character(byte);
            self.commit_echoes();
        } else {
            self.process_echoes();
        }
    }

    /// Drops what the slave has written and the master's line discipline has not taken yet.
    pub fn flush_output(&mut self) {
        self.output.truncate(BUFFER - 1);
        self.tell_master(0, packet::FLUSHWRITE);
    }

    /// Drops what the line discipline has.
    pub fn flush_input(&mut self) {
        self.input.clear();
        self.tell_master(0, packet::FLUSHREAD);
    }

    /// The characters of canonical mode; false for one that has no meaning.
    fn receive_editing(&mut self, byte: u8) -> bool {
        let extended = self.lflag(IEXTEN);
        if self.is(VERASE, byte) || self.is(VKILL, byte) || extended && self.is(VWERASE, byte) {
            self.erase(byte);
            self.commit_echoes();
            return true;
        }
        if extended && self.is(VLNEXT, byte) {
            self.input.literal = true;
            if self.lflag(ECHO) {
                self.finish_erasing();
                if self.lflag(ECHOCTL) {
                    self.echo(Echo::Plain(b'^'));
                    self.echo(Echo::Plain(8));
                    self.commit_echoes();
                }
            }
            return true;
        }
        if extended && self.lflag(ECHO) && self.is(VREPRINT, byte) {
            self.finish_erasing();
            self.echo_character(byte);
            self.echo(Echo::Plain(b'\n'));
            for at in self.input.whole..self.input.line.len() {
                self.echo_character(self.input.line[at].0);
            }
            self.commit_echoes();
            return true;
        }
        if byte == b'\n' {
            if self.lflag(ECHO) || self.lflag(ECHONL) {
                self.echo(Echo::Plain(b'\n'));
                self.commit_echoes();
            }
            self.end_line(byte);
            return true;
        }
        if self.is(VEOF, byte) {
            self.end_line(0);
            return true;
        }
        if self.is(VEOL, byte) || extended && self.is(VEOL2, byte) {
            if self.lflag(ECHO) {
                self.mark_line();
                self.echo_character(byte);
                self.commit_echoes();
            }
            if byte == 0xff && self.iflag(PARMRK) {
                self.input.push(byte);
            }
            self.end_line(byte);
            return true;
        }
        false
    }

    fn end_line(&mut self, byte: u8) {
        self.input.line.push_back((byte, true));
        self.input.whole = self.input.line.len();
    }

    fn mark_line(&mut self) {
        if self.input.whole == self.input.line.len() {
            self.echo(Echo::LineColumn);
        }
    }

    fn echo_character(&mut self, byte: u8) {
        let shown = self.lflag(ECHOCTL) && is_control(byte) && byte != b'\t';
        self.echo(if shown { Echo::Control(byte) } else { Echo::Plain(byte) });
    }

    fn finish_erasing(&mut self) {
        if std::mem::take(&mut self.input.erasing) {
            self.echo(Echo::Plain(b'/'));
        }
    }

    /// VERASE, VWERASE, VKILL (`eraser`).
    fn erase(&mut self, key: u8) {
        let whole = self.input.whole;
        if self.input.line.len() == whole {
            return;
        }
        let (one, word) = (self.is(VERASE, key), self.is(VWERASE, key));
        let word = !one && word;
        if !one && !word {
            if !self.lflag(ECHO) {
                return self.input.line.truncate(whole);
            }
            if !(self.lflag(ECHOK) && self.lflag(ECHOKE) && self.lflag(ECHOE)) {
                self.input.line.truncate(whole);
                self.finish_erasing();
                self.echo_character(self.termios.cc[VKILL]);
                // "Add a newline if ECHOK is on and ECHOKE is off."
                if self.lflag(ECHOK) {
                    self.echo(Echo::Plain(b'\n'));
                }
                return;
            }
        }
        let mut in_word = false;
        while self.input.line.len() > whole {
            // All bytes of the last character.
            let mut head = self.input.line.len() - 1;
            while head > whole && self.continues(self.input.line[head].0) {
                head -= 1;
            }
            let first = self.input.line[head].0;
            if self.continues(first) {
                break;
            }
            if word {
                let part = is_alphanumeric(first) || first == b'_';
                if in_word && !part {
                    break;
                }
                in_word |= part;
            }
            let bytes: Vec<u8> = self.input.line.drain(head..).map(|(byte, _)| byte).collect();
            if self.lflag(ECHO) {
                self.show_erased(&bytes, one);
            }
            if one {
                break;
            }
        }
        if self.input.line.len() == whole && self.lflag(ECHO) {
            self.finish_erasing();
        }
    }

    fn show_erased(&mut self, bytes: &[u8], one: bool) {
        let first = bytes[0];
        if self.lflag(ECHOPRT) {
            if !std::mem::replace(&mut self.input.erasing, true) {
                self.echo(Echo::Plain(b'\\'));
            }
            self.echo_character(first);
            for byte in &bytes[1..] {
                self.echo(Echo::Plain(*byte));
                self.echo(Echo::BackColumn);
            }
        } else if one && !self.lflag(ECHOE) {
            self.echo_character(self.termios.cc[VERASE]);
        } else if first == b'\t' {
            let (mut characters, mut after_tab) = (0, false);
            for (byte, _) in self.input.line.iter().skip(self.input.whole).rev() {
                match *byte {
                    b'\t' => {
                        after_tab = true;
                        break;
                    }
                    byte if is_control(byte) => characters += if self.lflag(ECHOCTL) { 2 } else { 0 },
                    byte => characters += u32::from(!self.continues(byte)),
                }
            }
            self.echo(Echo::EraseTab { characters, after_tab });
        } else {
            let control = is_control(first);
            let times = if !self.lflag(ECHOCTL) { u32::from(!control) } else { 1 + u32::from(control) };
            for _ in 0..times {
                for byte in [8, b' ', 8] {
                    self.echo(Echo::Plain(byte));
                }
            }
        }
    }

    /// The modes have changed (`n_tty_set_termios`).
    pub(crate) fn modes_changed(&mut self, old: (u32, u32)) {
        let (iflag, lflag) = old;
        if (lflag ^ self.termios.lflag) & (ICANON | EXTPROC) != 0 {
            self.input.line.iter_mut().for_each(|(_, ends)| *ends = false);
            (self.input.whole, self.input.pushed) = (0, false);
            if self.lflag(ICANON)
                && let Some((_, ends)) = self.input.line.back_mut()
            {
                *ends = true;
                (self.input.whole, self.input.pushed) = (self.input.line.len(), true);
            }
            (self.input.erasing, self.input.literal) = (false, false);
        }
        if iflag & IXON != 0 && !self.iflag(IXON) && !self.held {
            self.start();
        }
    }
}

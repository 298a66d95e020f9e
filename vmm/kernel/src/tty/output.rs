//! Output of the slave: post-processing (OPOST), and echoes.

use crate::tty::input::Echo;
use crate::tty::modes::*;
use crate::tty::{BUFFER, FLIP, Pty};

/// Echoes that wait: one that is too much drops the oldest.
const ECHOES: usize = 4096;
/// Echoes that are written before the end of what was typed at once (ECHO_COMMIT_WATERMARK).
const MANY: usize = 256;

impl Pty {
    /// How many bytes can be written for the master.
    pub fn room(&self) -> usize {
        if self.stopped { 0 } else { (BUFFER - 1 + FLIP).saturating_sub(self.output.len()) }
    }

    /// write(2) of the slave: how many bytes of these are written.
    pub fn put(&mut self, bytes: &[u8]) -> usize {
        self.process_echoes();
        if self.termios.oflag & OPOST == 0 {
            let n = bytes.len().min(self.room());
            self.output.extend(&bytes[..n]);
            return n;
        }
        bytes.iter().position(|byte| !self.put_processed(*byte)).unwrap_or(bytes.len())
    }

    /// Writes a character as OPOST wants it (`do_output_char`); false if there is no room.
    fn put_processed(&mut self, byte: u8) -> bool {
        let (has, room) = (|flag: u32| self.termios.oflag & flag != 0, self.room());
        let (mut byte, mut column) = (byte, self.column);
        if room == 0 {
            return false;
        }
        match byte {
            b'\n' => {
                if has(ONLRET) {
                    column = 0;
                }
                if has(ONLCR) {
                    if room < 2 {
                        return false;
                    }
                    (self.column, self.line_column) = (0, 0);
                    self.output.extend(b"\r\n");
                    return true;
                }
                self.line_column = column;
            }
            b'\r' if has(ONOCR) && column == 0 => return true,
            b'\r' if has(OCRNL) => {
                byte = b'\n';
                if has(ONLRET) {
                    (column, self.line_column) = (0, 0);
                }
            }
            b'\r' => (column, self.line_column) = (0, 0),
            b'\t' => {
                let spaces = 8 - (column & 7);
                if self.termios.oflag & TABDLY == XTABS {
                    if room < spaces as usize {
                        return false;
                    }
                    self.column = column + spaces;
                    self.output.extend(std::iter::repeat_n(b' ', spaces as usize));
                    return true;
                }
                column += spaces;
            }
            8 => column = column.saturating_sub(1),
            _ if is_control(byte) => {}
            _ => {
                if has(OLCUC) {
                    byte = byte.to_ascii_uppercase();
                }
                column += u32::from(!self.continues(byte));
            }
        }
        self.column = column;
        self.output.push_back(byte);
        true
    }

    /// Whether a byte is none that begins a character (IUTF8).
    pub(super) fn continues(&self, byte: u8) -> bool {
        self.iflag(IUTF8) && byte & 0xc0 == 0x80
    }

    /// Adds an echo.
    pub(super) fn echo(&mut self, echo: Echo) {
        if self.echoes.len() == ECHOES {
            self.echoes.pop_front();
        }
        self.echoes.push_back(echo);
    }

    /// What was echoed so far belongs together.
    pub(super) fn commit_echoes(&mut self) {
        if self.echoes.len() >= MANY {
            self.process_echoes();
        }
    }

    /// Writes the echoes for which there is room.
    pub fn process_echoes(&mut self) {
        while let Some(echo) = self.echoes.front().copied() {
            let done = match echo {
                Echo::Plain(byte) if self.termios.oflag & OPOST != 0 => self.put_processed(byte),
                Echo::Plain(byte) => self.put_raw(&[byte]),
                Echo::Control(byte) => {
                    let done = self.put_raw(&[b'^', byte ^ 0o100]);
                    self.column += if done { 2 } else { 0 };
                    done
                }
                Echo::EraseTab { characters, after_tab } => self.erase_tab(characters, after_tab),
                Echo::LineColumn => {
                    self.line_column = self.column;
                    true
                }
                Echo::BackColumn => {
                    self.column = self.column.saturating_sub(1);
                    true
                }
            };
            if !done {
                return;
            }
            self.echoes.pop_front();
        }
    }

    fn put_raw(&mut self, bytes: &[u8]) -> bool {
        if self.room() < bytes.len() {
            return false;
        }
        self.output.extend(bytes);
        true
    }

    /// Goes back over a tab behind so many characters, which follow another tab or the line's begin.
    fn erase_tab(&mut self, characters: u32, after_tab: bool) -> bool {
        let before = if after_tab { characters } else { characters + self.line_column };
        let back = 8 - (before & 7);
        if self.room() < back as usize {
            return false;
        }
        self.output.extend(std::iter::repeat_n(8, back as usize));
        self.column = self.column.saturating_sub(back);
        true
    }
}

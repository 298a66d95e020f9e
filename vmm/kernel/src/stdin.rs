//! Standard input of a node ([`Stdin`]): an input of the run, fetched only as programs read it.
//!
//! How the host cuts its input (into a pipe's pieces, say) is a matter of its timing and must not show. So a read waits until
//! there is all that it asked for, or the input has ended; time stands still meanwhile. Where people type, a read ends with
//! the line, as at a terminal (termios(3), "Canonical mode").

use bloodhound_abi::Errno;

use crate::container::ContainerId;
use crate::ctx::*;
use crate::node::Node;
use crate::wait::{SysResult, Wait, WaitOn};

/// FIONREAD asks for as much: what a pipe tells at once on Linux is a page or more.
const LOOK_AHEAD: usize = 4096;

/// Standard input of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stdin {
    /// Bytes that were supplied and not read yet.
    pending: Vec<u8>,
    /// Nothing comes after them.
    ended: bool,
    /// The host could not read: the next read fails so.
    error: Option<Errno>,
    /// Reads end with a line. The end of input may then be told more than once, as at a terminal.
    pub lines: bool,
    /// A task sleeps until so many bytes are supplied.
    pub wanted: Option<usize>,
    /// The other end is open and nobody writes there, as with the `stdin_open` of a container to which nobody is attached.
    pub silent: bool,
    /// Programs have /dev/null instead, as in a container without `stdin_open`.
    pub null: bool,
}

/// What the host has for a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Supply {
    /// As many bytes as were wanted, or up to the end of a line or of all input.
    pub bytes: Vec<u8>,
    /// Nothing comes after them.
    pub ended: bool,
    /// Reading failed behind them.
    pub error: Option<Errno>,
}

impl Stdin {
    /// Input that is all there.
    pub fn whole(bytes: Vec<u8>) -> Stdin {
        Stdin { pending: bytes, ended: true, ..Stdin::default() }
    }

    /// None: programs begin with /dev/null.
    pub fn null() -> Stdin {
        Stdin { null: true, ..Stdin::whole(Vec::new()) }
    }

    /// Input that never comes and never ends.
    pub fn silent() -> Stdin {
        Stdin { silent: true, ..Stdin::default() }
    }

    /// How much a read of at most `max` bytes gets; `None` if that is not known yet.
    fn ready(&self, max: usize) -> Option<usize> {
        let at_most = max.min(self.pending.len());
        if self.lines
            && let Some(end) = self.pending[..at_most].iter().position(|b| *b == b'\n')
        {
            return Some(end + 1);
        }
        (at_most == max || self.ended || self.error.is_some()).then_some(at_most)
    }

    fn take(&mut self, max: usize) -> Result<Vec<u8>, Errno> {
        let rest = self.pending.split_off(max);
        let taken = std::mem::replace(&mut self.pending, rest);
        if taken.is_empty() {
            if let Some(error) = self.error.take() {
                return Err(error);
            }
            self.ended &= !self.lines;
        }
        Ok(taken)
    }
}

impl Node {
    /// Answers a program's wish for standard input.
    pub fn supply_stdin(&mut self, id: ContainerId, supply: Supply) {
        let stdin = &mut self.container_mut(id).stdin;
        stdin.pending.extend_from_slice(&supply.bytes);
        stdin.ended |= supply.ended;
        stdin.error = supply.error;
        stdin.wanted = None;
        self.notify(WaitOn::Stdin);
    }
}

impl Ctx<'_> {
    /// How much of standard input a read of at most `max` bytes gets. Sleeps until that is known: also for descriptors with
    /// O_NONBLOCK, for which input that is not there yet is a matter of the host's time.
    fn stdin_ready(&mut self, max: usize) -> SysResult<usize> {
        let id = self.process().container;
        let stdin = &mut self.node.container_mut(id).stdin;
        match stdin.ready(max) {
            Some(ready) => Ok(ready),
            None => {
                if !stdin.silent {
                    stdin.wanted = Some(max - stdin.pending.len());
                }
                Err(Wait::on(WaitOn::Stdin).into())
            }
        }
    }

    /// How much a read of standard input of at most `max` bytes gets.
    pub(crate) fn console_ready(&mut self, max: usize, nonblock: bool) -> SysResult<usize> {
        match max {
            0 => Ok(0),
            // Nothing of the host's is waited for: as with a pipe, read(2) "will fail with EAGAIN".
            _ if nonblock && self.container().stdin.silent => Err(Errno::EAGAIN.into()),
            _ => self.stdin_ready(max),
        }
    }

    /// Takes bytes that are there; none if it is the end of the input.
    pub(crate) fn console_take(&mut self, n: usize) -> SysResult<Vec<u8>> {
        let id = self.process().container;
        Ok(self.node.container_mut(id).stdin.take(n)?)
    }

    /// FIONREAD on standard input: what a read would get, up to a page.
    pub(crate) fn console_readable(&mut self) -> SysResult<usize> {
        if self.container().stdin.silent {
            return Ok(0);
        }
        self.stdin_ready(LOOK_AHEAD)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Stdin {
        Stdin { pending: text.into(), ..Stdin::default() }
    }

    #[test]
    fn a_read_is_filled_or_ends_with_the_input() {
        let mut stdin = with("abc\nd");
        assert_eq!(stdin.ready(6), None, "one more is wanted");
        assert_eq!(stdin.ready(5), Some(5));
        assert_eq!(stdin.take(2).as_deref(), Ok(&b"ab"[..]));
        stdin.ended = true;
        assert_eq!(stdin.ready(100), Some(3));
        assert_eq!(stdin.take(3).as_deref(), Ok(&b"c\nd"[..]));
        for _ in 0..2 {
            assert_eq!(stdin.ready(100), Some(0), "the end stays");
            assert_eq!(stdin.take(0).as_deref(), Ok(&b""[..]));
        }
    }

    #[test]
    fn an_input_where_nobody_writes_is_never_ready() {
        let stdin = Stdin::silent();
        assert_eq!((stdin.ready(1), stdin.wanted), (None, None));
    }

    #[test]
    fn where_people_type_a_read_ends_with_the_line() {
        let mut stdin = Stdin { lines: true, ..with("ab\ncd") };
        assert_eq!(stdin.ready(2), Some(2));
        assert_eq!(stdin.ready(100), Some(3));
        assert_eq!(stdin.take(3).as_deref(), Ok(&b"ab\n"[..]));
        assert_eq!(stdin.ready(100), None);
        stdin.ended = true;
        assert_eq!(stdin.take(2).as_deref(), Ok(&b"cd"[..]));
        assert_eq!(stdin.take(0).as_deref(), Ok(&b""[..]));
        assert_eq!(stdin.ready(1), None, "one may type on after an end of input");
    }

    #[test]
    fn an_error_comes_after_what_was_read_and_once() {
        let mut stdin = Stdin { error: Some(Errno::EIO), ..with("a") };
        assert_eq!(stdin.ready(10), Some(1));
        assert_eq!(stdin.take(1).as_deref(), Ok(&b"a"[..]));
        assert_eq!(stdin.ready(10), Some(0));
        assert_eq!(stdin.take(0), Err(Errno::EIO));
        assert_eq!(stdin.ready(10), None);
    }
}

//! The standard streams of `exec`: the host's input as a program reads it ([`Input`]), its output where it is written
//! ([`Outputs`]). What the host does to them is an input of the run: bytes, the end, errors.

use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, AsRawFd};

use bloodhound_abi::Errno;
use bloodhound_kernel::file::Console;
use bloodhound_kernel::node::ConsoleChunk;
use bloodhound_kernel::stdin::Supply;
use bloodhound_sim::Digest;

/// What is read from the host at once at most.
const CHUNK: usize = 1 << 20;

/// Where a program's standard input comes from.
pub trait Source {
    /// So many bytes, or fewer at the end of a line (if lines are asked for) or of the input.
    fn supply(&mut self, wanted: usize) -> Supply;
}

/// The host's standard input.
pub struct Input {
    file: Result<File, Errno>,
    /// A supply ends with a line.
    pub lines: bool,
    terminal: bool,
    /// Of all bytes so far, however they were cut, and of the end or the error.
    pub digest: Digest,
}

impl Input {
    /// Our standard input; on a terminal or if `interactive` by lines.
    pub fn standard(interactive: bool) -> Input {
        let stdin = io::stdin();
        let terminal = stdin.is_terminal();
        let file = duplicate(&stdin);
        Input { file, lines: interactive || terminal, terminal, digest: Digest::default() }
    }
}

/// The stream past the library's buffer, so that nothing is read that the program does not want: who reads the same input
/// after us finds the rest.
fn duplicate(stream: &impl AsFd) -> Result<File, Errno> {
    stream.as_fd().try_clone_to_owned().map(File::from).map_err(|e| errno(&e))
}

impl Source for Input {
    fn supply(&mut self, wanted: usize) -> Supply {
        let mut supply = Supply { bytes: Vec::new(), ended: false, error: None };
        let file = match &mut self.file {
            Ok(file) => file,
            Err(error) => return Supply { error: Some(*error), ..supply },
        };
        while supply.bytes.len() < wanted {
            let at = supply.bytes.len();
            // A terminal gives no more than a line at a time; of anything else only one byte is surely not behind it.
            let step = if self.lines && !self.terminal { 1 } else { (wanted - at).min(CHUNK) };
            supply.bytes.resize(at + step, 0);
            let got = retry(file.as_raw_fd(), libc::POLLIN, || (&*file).read(&mut supply.bytes[at..]));
            supply.bytes.truncate(at + got.as_ref().copied().unwrap_or(0));
            match got {
                Ok(0) => {
                    supply.ended = !self.lines || supply.bytes.is_empty();
                    break;
                }
                Ok(_) if self.lines && supply.bytes.ends_with(b"\n") => break,
                Ok(_) => {}
                Err(error) => {
                    supply.error = Some(errno(&error));
                    break;
                }
            }
        }
        for byte in &supply.bytes {
            self.digest.word(u64::from(*byte));
        }
        if supply.ended || supply.error.is_some() {
            self.digest.word(1 << 32 | supply.error.map_or(0, |e| u64::from(e.0)));
        }
        supply
    }
}

/// An input that is kept, to be read again by other runs from its beginning.
pub struct Kept {
    input: Input,
    bytes: Vec<u8>,
    /// What came behind them, once that is known.
    end: Option<Option<Errno>>,
}

impl Kept {
    /// Our standard input.
    pub fn standard() -> Kept {
        let input = Input { lines: false, ..Input::standard(false) };
        Kept { input, bytes: Vec::new(), end: None }
    }

    /// `wanted` bytes from `at` on.
    pub fn supply(&mut self, at: usize, wanted: usize) -> Supply {
        while self.end.is_none() && self.bytes.len() < at + wanted {
            let more = self.input.supply(at + wanted - self.bytes.len());
            self.bytes.extend_from_slice(&more.bytes);
            if more.ended || more.error.is_some() {
                self.end = Some(more.error);
            }
        }
        let bytes = self.bytes[at..].iter().copied().take(wanted).collect::<Vec<u8>>();
        let last = bytes.len() < wanted;
        let error = self.end.flatten().filter(|_| last);
        Supply { bytes, ended: last && error.is_none(), error }
    }
}

/// Standard output and error.
pub struct Outputs {
    out: Result<File, Errno>,
    err: Result<File, Errno>,
}

impl Outputs {
    /// Ours. One that was closed before us stays so: a program's write to it fails with EBADF.
    pub fn standard() -> Outputs {
        let open = |stream: &dyn AsFdOf, number: i32| {
            if closed::at_start(number) { Err(Errno::EBADF) } else { stream.duplicate() }
        };
        Outputs {
            out: open(&io::stdout(), libc::STDOUT_FILENO),
            err: open(&io::stderr(), libc::STDERR_FILENO),
        }
    }

    /// Writes as write(2) does: how much, or why nothing.
    pub fn write(&mut self, chunk: &ConsoleChunk) -> Result<usize, Errno> {
        let file = if chunk.stream == Console::Err { &self.err } else { &self.out };
        let file = file.as_ref().map_err(|e| *e)?;
        let mut done = 0;
        while done < chunk.bytes.len() {
            let wrote = retry(file.as_raw_fd(), libc::POLLOUT, || (&*file).write(&chunk.bytes[done..]));
            match wrote {
                Ok(0) => break,
                Ok(n) => done += n,
                // What was taken counts; the next write meets the error again.
                Err(_) if done > 0 => break,
                Err(error) => return Err(errno(&error)),
            }
        }
        Ok(done)
    }
}

/// A stream that can be had as a file.
trait AsFdOf {
    fn duplicate(&self) -> Result<File, Errno>;
}

impl<T: AsFd> AsFdOf for T {
    fn duplicate(&self) -> Result<File, Errno> {
        duplicate(self)
    }
}

/// Carries on after signals, and waits where the stream was made non-blocking by whoever shares it with us.
fn retry(fd: i32, events: i16, mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut poll = libc::pollfd { fd, events, revents: 0 };
                // SAFETY: one entry that lives. Whatever it answers, the call is tried again.
                unsafe { libc::poll(&raw mut poll, 1, -1) };
            }
            other => return other,
        }
    }
}

fn errno(error: &io::Error) -> Errno {
    error.raw_os_error().and_then(|n| u16::try_from(n).ok()).map_or(Errno::EIO, Errno)
}

pub use closed::at_start as closed_at_start;

/// Which standard streams were closed when the process began. Rust's runtime opens /dev/null in their place before `main`,
/// which would hide it.
mod closed {
    use std::sync::atomic::{AtomicU32, Ordering};

    static CLOSED: AtomicU32 = AtomicU32::new(0);

    extern "C" fn look() {
        for fd in 0..3 {
            // SAFETY: no memory effects.
            if unsafe { libc::fcntl(fd, libc::F_GETFD) } == -1 {
                CLOSED.fetch_or(1 << fd, Ordering::Relaxed);
            }
        }
    }

    // SAFETY: the C library calls what this section lists before `main`, with arguments that `look` does not take; it uses
    // nothing of Rust's runtime.
    #[used]
    #[unsafe(link_section = ".init_array")]
    static LOOK: extern "C" fn() = look;

    /// Whether this descriptor was closed.
    pub fn at_start(fd: i32) -> bool {
        CLOSED.load(Ordering::Relaxed) >> fd & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use super::*;

    fn input(reader: io::PipeReader, lines: bool) -> Input {
        let file = Ok(File::from(OwnedFd::from(reader)));
        Input { file, lines, terminal: false, digest: Digest::default() }
    }

    #[test]
    fn how_the_host_cuts_its_input_does_not_show() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let thread = std::thread::spawn(move || {
            for piece in ["a", "bc\n", "", "defg", "h"] {
                writer.write_all(piece.as_bytes()).expect("somebody reads");
                std::thread::yield_now();
            }
        });
        let mut input = input(reader, false);
        assert_eq!(input.supply(5).bytes, b"abc\nd");
        let rest = input.supply(100);
        assert_eq!((&rest.bytes[..], rest.ended, rest.error), (&b"efgh"[..], true, None));
        thread.join().expect("it wrote");
        let mut whole = Digest::default();
        b"abc\ndefgh".iter().for_each(|b| whole.word(u64::from(*b)));
        whole.word(1 << 32);
        assert_eq!(input.digest, whole);
    }

    #[test]
    fn by_lines_nothing_behind_the_line_is_taken() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        writer.write_all(b"one\ntwo").expect("it fits");
        let mut input = input(reader, true);
        let first = input.supply(100);
        assert_eq!((&first.bytes[..], first.ended), (&b"one\n"[..], false));
        assert_eq!(input.supply(2).bytes, b"tw");
        drop(writer);
        assert_eq!(input.supply(100).bytes, b"o");
        assert!(input.supply(100).ended);
    }

    #[test]
    fn kept_input_is_the_same_for_every_run() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        writer.write_all(b"abcdef").expect("it fits");
        drop(writer);
        let mut kept = Kept { input: input(reader, false), bytes: Vec::new(), end: None };
        for _ in 0..2 {
            assert_eq!(kept.supply(0, 2).bytes, b"ab");
            let rest = kept.supply(2, 100);
            assert_eq!((&rest.bytes[..], rest.ended), (&b"cdef"[..], true));
            assert_eq!(kept.supply(6, 10), Supply { bytes: Vec::new(), ended: true, error: None });
        }
    }

    #[test]
    fn a_full_device_and_a_closed_reader_are_errors() {
        let full = File::options().write(true).open("/dev/full").expect("/dev/full");
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let mut outputs = Outputs { out: Ok(full), err: Ok(File::from(OwnedFd::from(writer))) };
        let mut write = |stream| {
            let (at, pid) = (bloodhound_abi::SimTime::ZERO, bloodhound_kernel::ids::Pid(1));
            let container = bloodhound_net::NodeId(1);
            outputs.write(&ConsoleChunk { at, container, pid, stream, check: false, bytes: b"x".to_vec() })
        };
        assert_eq!(write(Console::Out), Err(Errno::ENOSPC));
        assert_eq!(write(Console::Err), Err(Errno::EPIPE));
    }
}

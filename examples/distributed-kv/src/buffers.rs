//! Buffers for responses. A connection borrows one and gives it back at its end, so that a connection for every request
//! costs no allocation for each.

use crate::config::Bug;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};

/// More than this many are not kept.
const MOST: usize = 64;

/// The buffers that nobody uses.
#[derive(Debug)]
pub struct Buffers {
    free: Mutex<Vec<Vec<u8>>>,
    bug: Bug,
}

impl Buffers {
    /// None yet.
    pub fn new(bug: Bug) -> Buffers {
        Buffers { free: Mutex::default(), bug }
    }

    /// A buffer for a new connection.
    pub fn take(&self) -> Vec<u8> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    /// Takes back the buffer of a connection that has ended, in whatever way.
    pub fn give_back(&self, mut buffer: Vec<u8>) {
        // What a broken connection has not been able to send is of no interest to the next one.
        if self.bug != Bug::ReuseAfterReset {
            buffer.clear();
        }
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.len() < MOST {
            free.push(buffer);
        }
    }
}

/// Writes what is in the buffer. Afterwards it holds what has not been written: nothing, unless that fails.
pub fn send(buffer: &mut Vec<u8>, stream: &mut impl Write) -> io::Result<()> {
    while !buffer.is_empty() {
        match stream.write(buffer) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => drop(buffer.drain(..written)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that takes three bytes at a time and is reset after so many.
    struct Wire {
        taken: Vec<u8>,
        reset_after: usize,
    }

    impl Write for Wire {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let room = (self.reset_after - self.taken.len()).min(3).min(bytes.len());
            if room == 0 {
                return Err(io::ErrorKind::ConnectionReset.into());
            }
            self.taken.extend_from_slice(&bytes[..room]);
            Ok(room)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// What the client of a second connection gets, if the first is reset after `reset_after` bytes of its answer.
    fn second_answer(bug: Bug, reset_after: usize) -> Vec<u8> {
        let buffers = Buffers::new(bug);
        let mut wire = Wire { taken: Vec::new(), reset_after };
        let mut buffer = buffers.take();
        buffer.extend_from_slice(b"old answer");
        assert_eq!(send(&mut buffer, &mut wire).is_ok(), reset_after >= 10);
        buffers.give_back(buffer);
        let mut wire = Wire { taken: Vec::new(), reset_after: 100 };
        let mut buffer = buffers.take();
        buffer.extend_from_slice(b"new");
        send(&mut buffer, &mut wire).unwrap();
        wire.taken
    }

    #[test]
    fn an_answer_goes_to_whom_it_belongs() {
        for reset_after in 0..12 {
            assert_eq!(second_answer(Bug::None, reset_after), b"new");
        }
        assert_eq!(second_answer(Bug::ReuseAfterReset, 0), b"old answernew");
        assert_eq!(second_answer(Bug::ReuseAfterReset, 4), b"answernew");
        assert_eq!(second_answer(Bug::ReuseAfterReset, 11), b"new");
    }
}

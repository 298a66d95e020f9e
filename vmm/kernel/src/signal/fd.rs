//! signalfd(2): pending signals as records to be read.

use bloodhound_abi::Errno;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::{Siginfo, SignalfdSiginfo};
use zerocopy::{FromZeros, IntoBytes};

use crate::buffers::Buffers;
use crate::ctx::{Ctx, err};
use crate::ids::*;
use crate::wait::{Object, SysResult, Wait};

impl Ctx<'_> {
    /// read(2) of a signalfd: as many signals as there are and fit. One that cannot be stored is lost, as on Linux
    /// (signalfd_read); EFAULT if it is the first.
    pub(crate) fn signalfd_read(&mut self, id: SignalFdId, to: &Buffers, nonblock: bool) -> SysResult {
        let size = size_of::<SignalfdSiginfo>() as u64;
        if to.len() < size {
            return err(Errno::EINVAL);
        }
        // A signal that ends the process has done so before its reader looks for it (complete_signal).
        let mask = self.node.signalfds[id].mask & !self.node.fatal_signals(self.tid);
        let mut done = 0;
        while done + size <= to.len() {
            let Some(info) = self.node.take_pending(self.tid, mask) else { break };
            let mut s = SignalfdSiginfo::new_zeroed();
            (s.signo, s.errno, s.code) = (info.signo as u32, info.errno, info.code);
            describe(&mut s, &info);
            if let Err(e) = self.copy_out(to, done, s.as_bytes()) {
                return if done > 0 { Ok(done) } else { err(e) };
            }
            done += size;
        }
        if done > 0 {
            return Ok(done);
        }
        if nonblock {
            return err(Errno::EAGAIN);
        }
        Err(Wait::object(Object::SignalFd(id)).into())
    }
}

/// `SI_SIGIO`.
const SI_SIGIO: i32 = -5;

/// How many codes a signal of a fault has (NSIGILL and its kind).
fn faults(signo: u64) -> i32 {
    match signo {
        c::SIGILL => 11,
        c::SIGFPE => 15,
        c::SIGSEGV => 9,
        c::SIGBUS => 5,
        c::SIGTRAP => 6,
        _ => 0,
    }
}

/// The fields of a signal's kind, as signalfd_copyinfo chooses them.
fn describe(s: &mut SignalfdSiginfo, info: &Siginfo) {
    let [first, second] = [info.fields[0], info.fields[1]];
    let signo = info.signo as u64;
    // A code of the signal's own, of which each has so many (`sig_sicodes`).
    let within = |code: i32, codes: i32| (1..=codes).contains(&code);
    match info.code {
        code if code == c::SI_TIMER as i32 => {
            (s.tid, s.overrun) = (first as u32, (first >> 32) as u32);
            (s.ptr, s.int) = (second, second as i32);
        }
        code if within(code, 6) && signo == c::SIGCHLD => {
            (s.pid, s.uid, s.status) = (first as u32, (first >> 32) as u32, second as i32);
            (s.utime, s.stime) = (info.fields[2], info.fields[3]);
        }
        code if within(code, faults(signo)) => s.addr = first,
        // What F_SETSIG makes with its default is told under this code.
        SI_SIGIO => (s.band, s.fd) = (first as u32, second as i32),
        // "si_code <= NSIGPOLL": whatever the signal is, as F_SETSIG chooses it (siginfo_layout).
        1..=6 if signo != c::SIGSYS => (s.band, s.fd) = (first as u32, second as i32),
        code => {
            (s.pid, s.uid) = (first as u32, (first >> 32) as u32);
            // The value of sigqueue(3) and its kind, of which every code below 0 is one (siginfo_layout).
            if code < 0 {
                (s.ptr, s.int) = (second, second as i32);
            }
        }
    }
}

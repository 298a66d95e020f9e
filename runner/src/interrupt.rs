//! Ctrl-C, SIGTERM and SIGHUP: the first asks running work to stop and keep its results; Ctrl-C once more ends the process.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();
/// When the first signal came, in ms of the host's monotonic clock; 0 before.
static FIRST: AtomicI64 = AtomicI64::new(0);
/// A second Ctrl-C counts after so many ms. timeout(1) sends its signal twice, to the program and to its process group, and a
/// terminal that is closed may send two as well.
const AGAIN: i64 = 500;

extern "C" fn on_signal(signal: libc::c_int) {
    let Some(flag) = FLAG.get() else { return };
    let now = milliseconds();
    if !flag.swap(true, Ordering::Relaxed) {
        FIRST.store(now, Ordering::Relaxed);
    } else if signal == libc::SIGINT && now - FIRST.load(Ordering::Relaxed) >= AGAIN {
        // SAFETY: _exit is async-signal-safe (signal-safety(7)).
        unsafe { libc::_exit(i32::from(crate::exit::INTERRUPTED)) };
    }
}

extern "C" fn ignore(_: libc::c_int) {}

fn milliseconds() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // Not by the vDSO: the signal may be taken by a thread that has given up its time-stamp counter (`platform-ptrace`), where
    // reading it is a fault.
    // SAFETY: `time` is a valid timespec, and a system call is async-signal-safe (signal-safety(7)).
    unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec * 1000 + time.tv_nsec / 1_000_000
}

/// The flag that the first signal sets; installs the handlers at the first call.
pub fn flag() -> Arc<AtomicBool> {
    FLAG.get_or_init(|| {
        let handler = on_signal as extern "C" fn(libc::c_int) as libc::sighandler_t;
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: the handler only touches atomics, a clock and _exit; FLAG is set before a signal can matter, and reading
            // a OnceLock is lock-free once it is set.
            let before = unsafe { libc::signal(signal, handler) };
            if signal == libc::SIGHUP && before == libc::SIG_IGN {
                // nohup(1): it is to go on when its terminal goes.
                // SAFETY: as it was.
                unsafe { libc::signal(signal, libc::SIG_IGN) };
            }
        }
        // A file that grows beyond the limit of its size is an error of write(2), and not the end (setrlimit(2)).
        let ignore = ignore as extern "C" fn(libc::c_int) as libc::sighandler_t;
        // SAFETY: the handler does nothing.
        unsafe { libc::signal(libc::SIGXFSZ, ignore) };
        Arc::default()
    })
    .clone()
}

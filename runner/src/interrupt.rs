//! Ctrl-C and SIGTERM: the first asks running work to stop and keep its results, the second ends the process.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

static FLAG: OnceLock<Arc<AtomicBool>> = OnceLock::new();

extern "C" fn on_signal(_: libc::c_int) {
    if let Some(flag) = FLAG.get()
        && flag.swap(true, Ordering::Relaxed)
    {
        // SAFETY: _exit is async-signal-safe (signal-safety(7)).
        unsafe { libc::_exit(i32::from(crate::exit::INTERRUPTED)) };
    }
}

/// The flag that the first signal sets; installs the handlers at the first call.
pub fn flag() -> Arc<AtomicBool> {
    FLAG.get_or_init(|| {
        let handler = on_signal as extern "C" fn(libc::c_int);
        for signal in [libc::SIGINT, libc::SIGTERM] {
            // SAFETY: the handler only touches an atomic and _exit; FLAG is set before a signal can matter, and reading a
            // OnceLock is lock-free once it is set.
            unsafe { libc::signal(signal, handler as libc::sighandler_t) };
        }
        Arc::default()
    })
    .clone()
}

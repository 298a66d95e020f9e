//! A tracer thread without `rdtsc` ([`TscOff`]), which makes traps about twice as fast in virtual machines.
//!
//! In a stub `rdtsc` must fault, which is a bit of CR4. The host kernel writes CR4 whenever it switches between
//! a thread that may read the counter and one that may not, and in a virtual machine a write to CR4 costs
//! microseconds: twice per trap. So the tracer gives up the counter as well, and nothing is switched.
//!
//! Its own clock reads (the vDSO's `clock_gettime` uses the counter) then fault too. A handler for SIGSEGV
//! answers them with the true value; they cost some 10 us each, so the machine loop should not read the clock
//! at every step. Threads that the tracer starts inherit this. So do processes, whose programs have no such
//! handler and would be killed: start them from another thread, or within [`with_host_clock`].

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use bloodhound_platform::PlatformError;
use libc::{c_int, c_void, siginfo_t};

use crate::sys::last;

const SI_KERNEL: c_int = 0x80;

/// The handler of SIGSEGV before ours: Rust's, for stack overflows, as a rule.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// The calling thread is without `rdtsc` while this lives.
pub(crate) struct TscOff {
    /// Whether it was on before (and not off already, for another platform of this thread).
    restore: bool,
    _thread: PhantomData<*const ()>,
}

impl TscOff {
    pub fn new() -> Result<TscOff, PlatformError> {
        install_handler()?;
        let mut mode: c_int = 0;
        // SAFETY: PR_GET_TSC writes an int to `mode`.
        if unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut mode) } != 0 {
            return Err(last("PR_GET_TSC"));
        }
        set(libc::PR_TSC_SIGSEGV).map_err(|()| last("PR_SET_TSC"))?;
        Ok(TscOff { restore: mode == libc::PR_TSC_ENABLE, _thread: PhantomData })
    }
}

impl Drop for TscOff {
    fn drop(&mut self) {
        if self.restore {
            // It worked the other way round; and if not, the handler goes on answering.
            let _ = set(libc::PR_TSC_ENABLE);
        }
    }
}

/// Gives the calling thread its `rdtsc` back while `work` runs: for starting processes (which inherit the setting
/// over `execve`, and are killed at their first look at the clock without it) and for code that reads the clock
/// often. Does nothing on threads that have no [`crate::PtracePlatform`].
pub fn with_host_clock<T>(work: impl FnOnce() -> T) -> T {
    struct Again(bool);
    impl Drop for Again {
        fn drop(&mut self) {
            if self.0 {
                let _ = set(libc::PR_TSC_SIGSEGV);
            }
        }
    }
    let mut mode: c_int = libc::PR_TSC_ENABLE;
    // SAFETY: PR_GET_TSC writes an int to `mode`.
    unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut mode) };
    let _again = Again(mode == libc::PR_TSC_SIGSEGV && set(libc::PR_TSC_ENABLE).is_ok());
    work()
}

fn set(mode: c_int) -> Result<(), ()> {
    // SAFETY: no memory effects.
    if unsafe { libc::prctl(libc::PR_SET_TSC, mode) } == 0 { Ok(()) } else { Err(()) }
}

fn install_handler() -> Result<(), PlatformError> {
    // Two threads may come here at once: the loser must not take our own handler for the one before.
    static INSTALL: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _guard = INSTALL.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if BEFORE.get().is_some() {
        return Ok(());
    }
    let mut before = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: queries into a live local, which a success fills.
    let before = unsafe {
        if libc::sigaction(libc::SIGSEGV, std::ptr::null(), before.as_mut_ptr()) != 0 {
            return Err(last("sigaction"));
        }
        before.assume_init()
    };
    // First, so that the handler always finds it.
    let _ = BEFORE.set(before);
    let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) = on_segv;
    // SAFETY: all zero is a valid sigaction; the handler has the signature that SA_SIGINFO asks for and is
    // async-signal-safe.
    unsafe {
        let mut ours = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        ours.sa_sigaction = handler as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        if libc::sigaction(libc::SIGSEGV, &raw const ours, std::ptr::null_mut()) != 0 {
            return Err(last("sigaction"));
        }
    }
    Ok(())
}

/// Answers `rdtsc` and `rdtscp` of a tracer thread; all else goes to the handler before.
extern "C" fn on_segv(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid siginfo and ucontext. After a general protection fault rip points at an
    // instruction that was fetched, so its bytes are mapped, and on x86-64 what is executable is readable. The
    // third byte is read only where the first two are those of a three-byte instruction.
    unsafe {
        let regs = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let rip = regs[libc::REG_RIP as usize] as *const u8;
        let opcode = if (*info).si_code == SI_KERNEL && *rip == 0x0f { *rip.add(1) } else { 0 };
        let rdtscp = opcode == 0x01 && *rip.add(2) == 0xf9;
        if (opcode == 0x31 || rdtscp) && set(libc::PR_TSC_ENABLE).is_ok() {
            let mut aux = 0;
            let value = core::arch::x86_64::__rdtscp(&raw mut aux);
            let _ = set(libc::PR_TSC_SIGSEGV);
            regs[libc::REG_RAX as usize] = (value & 0xffff_ffff) as i64;
            regs[libc::REG_RDX as usize] = (value >> 32) as i64;
            if rdtscp {
                regs[libc::REG_RCX as usize] = i64::from(aux);
            }
            regs[libc::REG_RIP as usize] += if rdtscp { 3 } else { 2 };
            return;
        }
    }
    pass_on(signal, info, context);
}

fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(before) = BEFORE.get() else { return };
    // SAFETY: `before` is what the kernel gave us: either no function, then it is put back in place and the
    // instruction faults once more; or a function with the signature that its flags say.
    unsafe {
        match before.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                libc::sigaction(signal, std::ptr::from_ref(before), std::ptr::null_mut());
            }
            function if before.sa_flags & libc::SA_SIGINFO != 0 => {
                let function: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                    std::mem::transmute(function);
                function(signal, info, context);
            }
            function => {
                let function: extern "C" fn(c_int) = std::mem::transmute(function);
                function(signal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::arch::x86_64::{__rdtscp, _rdtsc};

    #[test]
    #[allow(clippy::disallowed_methods, clippy::disallowed_types)]
    fn the_tracers_own_clock_goes_on() {
        let mode = || {
            let mut mode: c_int = 0;
            // SAFETY: writes an int.
            unsafe { libc::prctl(libc::PR_GET_TSC, &raw mut mode) };
            mode
        };
        let before = std::time::Instant::now();
        let off = TscOff::new().unwrap();
        assert_eq!(mode(), libc::PR_TSC_SIGSEGV);
        let mut aux = u32::MAX;
        // SAFETY: plain instructions.
        let (first, second) = unsafe { (_rdtsc(), __rdtscp(&raw mut aux)) };
        assert!(second > first && aux != u32::MAX);
        assert!(before.elapsed() > std::time::Duration::ZERO);
        assert_eq!(mode(), libc::PR_TSC_SIGSEGV);
        drop(TscOff::new().unwrap());
        assert_eq!(mode(), libc::PR_TSC_SIGSEGV, "the inner one does not switch it on");
        let date = || std::process::Command::new("date").output().unwrap().status.success();
        assert!(with_host_clock(date), "a process with a clock");
        assert_eq!(mode(), libc::PR_TSC_SIGSEGV, "off again");
        drop(off);
        assert_eq!(mode(), libc::PR_TSC_ENABLE);
    }
}

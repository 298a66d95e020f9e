//! Host calls that are not KVM's.

use bloodhound_platform::PlatformError;

/// What kicks a vCPU out of KVM_RUN. By default ignored, so that a stray one harms nobody.
const KICK: libc::c_int = libc::SIGURG;

/// The last failed call as an error.
pub(crate) fn last(what: &'static str) -> PlatformError {
    PlatformError::Host { what, errno: std::io::Error::last_os_error().raw_os_error().unwrap_or(0) }
}

/// KVM's error as ours.
pub(crate) fn kvm(what: &'static str) -> impl Fn(kvm_ioctls::Error) -> PlatformError {
    move |error| PlatformError::Host { what, errno: error.errno() }
}

/// Binds the calling thread to a processor.
pub(crate) fn pin(cpu: usize) -> Result<(), PlatformError> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(PlatformError::Host { what: "binding to a processor", errno: libc::EINVAL });
    }
    // SAFETY: `set` is a plain bit set, valid when zero; `cpu` is within it.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set)
    };
    if done == 0 { Ok(()) } else { Err(last("binding to a processor")) }
}

/// The calling thread's id.
pub(crate) fn thread_id() -> u32 {
    // SAFETY: no memory effects.
    unsafe { libc::gettid() as u32 }
}

extern "C" fn nothing(_: libc::c_int) {}

/// Makes [`kick`] interrupt KVM_RUN: an ignored signal would not. With SA_RESTART, so that a late one does not disturb
/// other calls; KVM_RUN is never restarted (signal(7)).
pub(crate) fn catch_kicks() -> Result<(), PlatformError> {
    // SAFETY: all zero is a valid sigaction; the handler does nothing.
    let done = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(KICK, &raw const action, std::ptr::null_mut())
    };
    if done == 0 { Ok(()) } else { Err(last("sigaction")) }
}

/// Kicks a thread of this process out of KVM_RUN.
pub(crate) fn kick(thread: u32) {
    // SAFETY: no memory effects. The thread lives: its platform joins the watchdog's thread before it goes.
    unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread as libc::pid_t, KICK) };
}

/// Clears the calling thread's data selectors. A software KVM leaves there what application code has loaded, and a new
/// machine's code would find it.
pub(crate) fn clear_selectors() {
    /// HWCAP2_FSGSBASE (asm/hwcap2.h): rdfsbase and wrfsbase may be used.
    const FSGSBASE: libc::c_ulong = 1 << 1;
    let (ds, es, fs, gs): (u16, u16, u16, u16);
    // SAFETY: reads registers.
    unsafe {
        std::arch::asm!("mov {0:x}, ds", "mov {1:x}, es", "mov {2:x}, fs", "mov {3:x}, gs", out(reg) ds, out(reg) es,
            out(reg) fs, out(reg) gs, options(nostack, nomem, preserves_flags));
    }
    // The usual case. Otherwise this thread is without its own memory for two instructions, which a signal could hit.
    if ds | es | fs | gs == 0 {
        return;
    }
    // SAFETY: no memory effects.
    let can = unsafe { libc::getauxval(libc::AT_HWCAP2) } & FSGSBASE != 0;
    // SAFETY: null selectors may be loaded in 64-bit code, which uses nothing of ds and es. This thread's gs is not in use.
    unsafe {
        std::arch::asm!("mov ds, {null:e}", "mov es, {null:e}", "mov gs, {null:e}", null = in(reg) 0,
            options(nostack, nomem, preserves_flags));
    }
    if can {
        // SAFETY: as above; the base of fs, which loading a selector may change, is the same again afterwards.
        unsafe {
            std::arch::asm!("rdfsbase {base}", "mov fs, {null:e}", "wrfsbase {base}", base = out(reg) _,
                null = in(reg) 0, options(nostack, nomem, preserves_flags));
        }
    }
}

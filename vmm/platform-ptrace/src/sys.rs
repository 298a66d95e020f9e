//! Thin, safe wrappers of the host calls that this crate makes: ptrace(2), wait4(2), memfds and mappings.
//!
//! Key types: [`Tracee`], [`Stop`]. A [`Tracee`] must be used on the thread that traces it.

#![allow(clippy::unnecessary_cast)] // the types of ptrace's requests differ between C libraries

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

use bloodhound_platform::PlatformError;
use libc::{c_int, c_void, pid_t, user_regs_struct};

/// The watchdog's nudge. By default ignored, so that a stray one harms nobody.
pub(crate) const NUDGE: libc::c_int = libc::SIGURG;

/// Nudges a stub.
pub(crate) fn nudge(pid: u32) {
    // SAFETY: no memory effects. The stub cannot have been reaped: that takes the watchdog's lock, or the wait of the
    // run itself, after which a stray signal is one that is ignored by default.
    unsafe { libc::kill(pid as libc::pid_t, NUDGE) };
}

/// "Stop at entry of the next system call, which will not be executed" and the same for single-stepping;
/// arch/x86/include/uapi/asm/ptrace-abi.h.
const PTRACE_SYSEMU: u32 = 31;
const PTRACE_SYSEMU_SINGLESTEP: u32 = 32;
const PTRACE_GET_RSEQ_CONFIGURATION: u32 = 0x420f;
const NT_PRSTATUS: usize = 1;
const NT_X86_XSTATE: usize = 0x202;
/// More than any host's XSAVE area (AMX ends at 11008).
const XSTATE_MAX: usize = 16384;

/// How the wait for a tracee ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// At the entry of a system call.
    Syscall,
    /// A signal is about to be delivered.
    Signal(c_int),
    /// A ptrace event.
    Event(c_int),
    /// It is dead and reaped. The signal, or 0 if it exited.
    Gone(c_int),
}

/// Where the kernel writes a thread's rseq area.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RseqConfiguration {
    pub pointer: u64,
    pub size: u32,
    pub signature: u32,
    pub flags: u32,
    pub pad: u32,
}

/// What a signal-delivery stop was caused by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SigInfo {
    pub code: c_int,
    /// `si_addr`, or `si_call_addr` for SIGSYS.
    pub addr: u64,
    /// `si_syscall` for SIGSYS.
    pub syscall: c_int,
}

/// The error of the last libc call.
pub(crate) fn last(what: &'static str) -> PlatformError {
    PlatformError::Host { what, errno: io::Error::last_os_error().raw_os_error().unwrap_or(0) }
}

/// A traced process. Copy, because it is only a number; whoever reaps it must not use it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tracee(pub pid_t);

impl Tracee {
    fn request(self, request: u32, addr: usize, data: usize) -> Result<(), c_int> {
        // SAFETY: callers pass addresses that the request may read or write, or none; a request for a process
        // that is not our stopped tracee is refused with ESRCH.
        let result = unsafe { libc::ptrace(request as _, self.0, addr as *mut c_void, data as *mut c_void) };
        if result == -1 { Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)) } else { Ok(()) }
    }

    fn resume(self, request: u32) -> Result<(), PlatformError> {
        // ESRCH: killed from outside while stopped. The wait that follows says so.
        match self.request(request, 0, 0) {
            Ok(()) | Err(libc::ESRCH) => Ok(()),
            Err(errno) => Err(PlatformError::Host { what: "ptrace resume", errno }),
        }
    }

    /// Runs on as an ordinary process, with system calls: for our own code only.
    pub fn cont(self) -> Result<(), PlatformError> {
        self.resume(libc::PTRACE_CONT as u32)
    }

    /// Runs on until a signal or a system call, which is not executed.
    pub fn sysemu(self) -> Result<(), PlatformError> {
        self.resume(PTRACE_SYSEMU)
    }

    /// As `sysemu`, for one instruction.
    pub fn step(self) -> Result<(), PlatformError> {
        self.resume(PTRACE_SYSEMU_SINGLESTEP)
    }

    pub fn set_options(self, options: c_int) -> Result<(), PlatformError> {
        self.request(libc::PTRACE_SETOPTIONS as u32, 0, options as usize)
            .map_err(|errno| PlatformError::Host { what: "PTRACE_SETOPTIONS", errno })
    }

    pub fn regs(self) -> Result<user_regs_struct, PlatformError> {
        let mut regs = MaybeUninit::<user_regs_struct>::uninit();
        self.request(libc::PTRACE_GETREGS as u32, 0, regs.as_mut_ptr() as usize).map_err(|e| self.gone(e))?;
        // SAFETY: plain integers, filled by the successful request.
        Ok(unsafe { regs.assume_init() })
    }

    pub fn set_regs(self, regs: &user_regs_struct) -> Result<(), PlatformError> {
        self.request(libc::PTRACE_SETREGS as u32, 0, std::ptr::from_ref(regs) as usize)
            .map_err(|e| self.gone(e))
    }

    /// The same without fs_base, gs_base and what comes behind them (the other selectors): those stay as they are.
    pub fn set_regs_without_bases(self, regs: &user_regs_struct) -> Result<(), PlatformError> {
        let iov = libc::iovec {
            iov_base: std::ptr::from_ref(regs).cast_mut().cast(),
            iov_len: std::mem::offset_of!(user_regs_struct, fs_base),
        };
        self.request(libc::PTRACE_SETREGSET as u32, NT_PRSTATUS, &raw const iov as usize)
            .map_err(|e| self.gone(e))
    }

    /// Sets rax alone.
    pub fn set_rax(self, value: u64) -> Result<(), PlatformError> {
        let offset = std::mem::offset_of!(user_regs_struct, rax);
        self.request(libc::PTRACE_POKEUSER as u32, offset, value as usize).map_err(|e| self.gone(e))
    }

    /// One register, by its byte offset in `user_regs_struct`.
    pub fn reg(self, offset: usize) -> Result<u64, PlatformError> {
        let mut word = 0u64;
        // The raw call stores the word, where the C library's wrapper returns it.
        // SAFETY: the request writes one word to `word`, which lives.
        let result = unsafe {
            libc::syscall(
                libc::SYS_ptrace,
                libc::PTRACE_PEEKUSER as libc::c_long,
                libc::c_long::from(self.0),
                offset,
                &raw mut word,
            )
        };
        if result == -1 {
            Err(self.gone(io::Error::last_os_error().raw_os_error().unwrap_or(0)))
        } else {
            Ok(word)
        }
    }

    pub fn event_message(self) -> Result<u64, PlatformError> {
        let mut word = 0u64;
        self.request(libc::PTRACE_GETEVENTMSG as u32, 0, &raw mut word as usize).map_err(|e| self.gone(e))?;
        Ok(word)
    }

    /// Where the thread's rseq area is, if the kernel knows the question (Linux 5.13).
    pub fn rseq(self) -> Option<RseqConfiguration> {
        let mut config = RseqConfiguration::default();
        let size = size_of::<RseqConfiguration>();
        self.request(PTRACE_GET_RSEQ_CONFIGURATION, size, &raw mut config as usize).ok()?;
        (config.pointer != 0).then_some(config)
    }

    pub fn siginfo(self) -> Result<SigInfo, PlatformError> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        self.request(libc::PTRACE_GETSIGINFO as u32, 0, info.as_mut_ptr() as usize)
            .map_err(|e| self.gone(e))?;
        // siginfo_t on x86-64: signo, errno, code (4 bytes each), 4 of padding, then the union; for SIGSYS an
        // address and the call's number.
        // SAFETY: 128 initialised bytes (zeroed, then filled), read in bounds and aligned to 8.
        unsafe {
            let base = info.as_ptr().cast::<u8>();
            Ok(SigInfo {
                code: base.add(8).cast::<c_int>().read(),
                addr: base.add(16).cast::<u64>().read(),
                syscall: base.add(24).cast::<c_int>().read(),
            })
        }
    }

    /// The host's XSAVE area of the tracee, in standard format, of whatever size the host has.
    pub fn xstate<T>(self, read: impl FnOnce(&[u8]) -> T) -> Result<T, PlatformError> {
        let mut area = [0u8; XSTATE_MAX];
        let mut iov = libc::iovec { iov_base: area.as_mut_ptr().cast(), iov_len: area.len() };
        self.request(libc::PTRACE_GETREGSET as u32, NT_X86_XSTATE, &raw mut iov as usize)
            .map_err(|e| self.gone(e))?;
        Ok(read(&area[..iov.iov_len.min(XSTATE_MAX)]))
    }

    /// Loads an XSAVE area: `area`, then zeros up to `size`, which must be the host's size.
    pub fn set_xstate(self, area: &[u8], size: usize) -> Result<(), PlatformError> {
        let mut whole = [0u8; XSTATE_MAX];
        whole[..area.len()].copy_from_slice(area);
        let mut iov = libc::iovec { iov_base: whole.as_mut_ptr().cast(), iov_len: size.min(XSTATE_MAX) };
        self.request(libc::PTRACE_SETREGSET as u32, NT_X86_XSTATE, &raw mut iov as usize)
            .map_err(|e| self.gone(e))
    }

    /// Waits for the next stop.
    pub fn wait(self) -> Result<Stop, PlatformError> {
        let mut status = 0;
        loop {
            // SAFETY: `status` lives; no usage is asked for.
            let pid = unsafe { libc::wait4(self.0, &raw mut status, libc::__WALL, std::ptr::null_mut()) };
            if pid == self.0 {
                break;
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                // Somebody ignores SIGCHLD, so the kernel reaped it for us.
                Some(libc::ECHILD) => return Ok(Stop::Gone(0)),
                errno => return Err(PlatformError::Host { what: "wait4", errno: errno.unwrap_or(0) }),
            }
        }
        Ok(if libc::WIFSTOPPED(status) {
            match (libc::WSTOPSIG(status), status >> 16) {
                (signal, 0) if signal == libc::SIGTRAP | 0x80 => Stop::Syscall,
                (signal, 0) => Stop::Signal(signal),
                (_, event) => Stop::Event(event),
            }
        } else if libc::WIFSIGNALED(status) {
            Stop::Gone(libc::WTERMSIG(status))
        } else {
            Stop::Gone(0)
        })
    }

    /// Kills it; it stays to be reaped.
    pub fn kill(self) {
        // SAFETY: no memory effects. The number is our unreaped child's.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }

    /// Waits until it is dead and gone.
    pub fn reap(self) {
        while let Ok(stop) = self.wait() {
            if matches!(stop, Stop::Gone(_)) {
                break;
            }
        }
    }

    /// ESRCH in the middle of a stop means that it was killed from outside.
    fn gone(self, errno: c_int) -> PlatformError {
        if errno == libc::ESRCH {
            PlatformError::StubDied { signal: libc::SIGKILL }
        } else {
            PlatformError::Host { what: "ptrace", errno }
        }
    }
}

/// A memory file mapped into this process, shared with stubs.
pub(crate) struct SharedFile {
    fd: OwnedFd,
    base: NonNull<u8>,
    len: usize,
}

impl SharedFile {
    pub fn new(len: usize) -> Result<SharedFile, PlatformError> {
        // SAFETY: the name is a NUL-terminated literal.
        let raw = unsafe { libc::memfd_create(c"bloodhound-stubs".as_ptr(), libc::MFD_CLOEXEC) };
        if raw < 0 {
            return Err(last("memfd_create"));
        }
        // SAFETY: just made, owned by nobody else.
        let fd = unsafe { OwnedFd::from_raw_fd(raw) };
        // SAFETY: plain call on our own fd.
        if unsafe { libc::ftruncate(fd.as_raw_fd(), len as libc::off_t) } != 0 {
            return Err(last("ftruncate"));
        }
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_NORESERVE);
        // SAFETY: a new mapping at an address of the host's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, fd.as_raw_fd(), 0) };
        let base =
            NonNull::new(at.cast::<u8>()).filter(|_| at != libc::MAP_FAILED).ok_or_else(|| last("mmap"))?;
        Ok(SharedFile { fd, base, len })
    }

    pub fn fd(&self) -> c_int {
        self.fd.as_raw_fd()
    }

    /// Writes bytes; stubs that map this part see them.
    pub fn write(&self, at: usize, data: &[u8]) {
        assert!(at <= self.len && data.len() <= self.len - at, "write past the shared file");
        // SAFETY: in bounds (checked); no references into the mapping are ever made, and the stubs only read it.
        unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), self.base.as_ptr().add(at), data.len()) };
    }

    /// Writes zeros.
    pub fn clear(&self, at: usize, len: usize) {
        assert!(at <= self.len && len <= self.len - at, "clearing past the shared file");
        // SAFETY: as in `write`.
        unsafe { std::ptr::write_bytes(self.base.as_ptr().add(at), 0, len) };
    }

    /// Writes 64-bit words.
    pub fn write_words(&self, at: usize, words: &[u64]) {
        assert!(at <= self.len && size_of_val(words) <= self.len - at, "write past the shared file");
        // SAFETY: as in `write`; u64 has no padding.
        unsafe {
            std::ptr::copy_nonoverlapping(
                words.as_ptr().cast(),
                self.base.as_ptr().add(at),
                size_of_val(words),
            );
        }
    }
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        // SAFETY: our own mapping of exactly this size; no references into it exist.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Binds the calling thread, and the stubs that it makes, to one processor.
pub(crate) fn pin(cpu: usize) -> Result<(), PlatformError> {
    let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
    // SAFETY: a zeroed set is an empty set; CPU_SET ignores numbers past its end; the call reads the set.
    let result = unsafe {
        libc::CPU_SET(cpu, &mut *set.as_mut_ptr());
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set.as_ptr())
    };
    if result == 0 { Ok(()) } else { Err(last("sched_setaffinity")) }
}

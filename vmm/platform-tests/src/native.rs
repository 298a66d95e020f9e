//! What Linux itself does with a piece of code ([`observe`]): a child process maps the same pages, takes the same
//! registers, and a handler of every signal of a fault says which came.
//!
//! The child is forked from a test process with several threads, so it makes nothing but system calls. It takes its
//! first registers as a return from a signal does.
//!
//! Neighbours: `escape`, which compares platforms with this.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicPtr, Ordering};

use bloodhound_platform::{Prot, Regs};
use libc::{c_int, c_void, siginfo_t, ucontext_t};

use crate::PAGE;

/// Pages and registers to start with.
#[derive(Clone, Debug)]
pub struct Program {
    /// Contents of frames, each of up to 4096 bytes.
    pub frames: Vec<Vec<u8>>,
    /// Pages: address, which frame, protection. A frame may be mapped more than once.
    pub pages: Vec<(u64, usize, Prot)>,
    /// The registers at the start.
    pub regs: Regs,
}

/// What became of the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// A signal that its handler got.
    Signal {
        /// Its number.
        signal: i32,
        /// `si_code`.
        code: i32,
        /// `si_addr`.
        addr: u64,
        /// The exception's vector, as its frame shows it.
        trapno: u64,
        /// And its error code.
        err: u64,
        /// The registers in its frame.
        regs: Regs,
    },
    /// It died without a handler: of SIGALRM, if it ran for more than seconds.
    Died(i32),
}

/// Shared with the child.
struct Report {
    /// 0 until the handler ran.
    signal: c_int,
    code: c_int,
    addr: u64,
    gregs: [i64; 23],
    start: Regs,
}

const SIGNALS: [c_int; 6] =
    [libc::SIGILL, libc::SIGTRAP, libc::SIGBUS, libc::SIGFPE, libc::SIGSEGV, libc::SIGSYS];
/// Seconds until a child that does nothing is killed.
const PATIENCE: u32 = 20;
/// More than any signal frame.
const ALT_STACK: usize = 1 << 16;

static REPORT: AtomicPtr<Report> = AtomicPtr::new(std::ptr::null_mut());

/// Runs a program as an ordinary process.
///
/// # Panics
/// If the host refuses memory or a process.
#[must_use]
pub fn observe(program: &Program) -> Observed {
    let file = contents(&program.frames);
    let report = shared::<Report>();
    let stack = shared::<[u8; ALT_STACK]>();
    // SAFETY: both mappings live until the end of this function and are of these types; zero is a valid value for each.
    unsafe { (*report).start = program.regs };
    // SAFETY: the child runs `child` alone, which makes system calls only and never returns.
    let pid = match unsafe { libc::fork() } {
        // SAFETY: this is the only thread of the child; the mappings are inherited.
        0 => unsafe { child(program, file.as_raw_fd(), report, stack) },
        pid => pid,
    };
    assert!(pid > 0, "fork: {}", std::io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: waits for our own child; `status` lives.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid, "waitpid");
    // SAFETY: the child is dead, so nobody writes any more; both mappings are ours and unmapped once, after the read.
    unsafe {
        let seen = std::ptr::read(report);
        libc::munmap(report.cast(), size_of::<Report>());
        libc::munmap(stack.cast(), ALT_STACK);
        match seen.signal {
            0 => Observed::Died(if libc::WIFSIGNALED(status) { libc::WTERMSIG(status) } else { 0 }),
            signal => Observed::Signal {
                signal,
                code: seen.code,
                addr: seen.addr,
                trapno: seen.gregs[libc::REG_TRAPNO as usize] as u64,
                err: seen.gregs[libc::REG_ERR as usize] as u64,
                regs: from_gregs(&seen.gregs, &seen.start),
            },
        }
    }
}

/// A memory file with one frame after the other.
fn contents(frames: &[Vec<u8>]) -> OwnedFd {
    // SAFETY: the name is a NUL-terminated literal; the result is checked and owned by nobody else.
    let file = unsafe {
        let fd = libc::memfd_create(c"native".as_ptr(), libc::MFD_CLOEXEC);
        assert!(fd >= 0, "memfd_create");
        OwnedFd::from_raw_fd(fd)
    };
    for (index, frame) in frames.iter().enumerate() {
        let mut page = [0; PAGE as usize];
        page[..frame.len()].copy_from_slice(frame);
        let at = (index * PAGE as usize) as libc::off_t;
        // SAFETY: `page` lives and is as long as said.
        let written = unsafe { libc::pwrite(file.as_raw_fd(), page.as_ptr().cast(), page.len(), at) };
        assert_eq!(written, PAGE as isize, "pwrite");
    }
    file
}

/// Zeroed memory that a child shares.
fn shared<T>() -> *mut T {
    let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping where the host likes.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), size_of::<T>(), prot, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED, "mmap");
    at.cast()
}

/// The child's whole life.
///
/// # Safety
/// To be called right after a fork, with memory from [`shared`].
unsafe fn child(program: &Program, file: c_int, report: *mut Report, stack: *mut [u8; ALT_STACK]) -> ! {
    // SAFETY: system calls with valid arguments on the only thread there is. The pages go where nothing of the test's
    // process is (it is loaded far above), and if something were, it would be this child that dies.
    unsafe {
        REPORT.store(report, Ordering::Relaxed);
        libc::alarm(PATIENCE);
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
        // The thread may have a platform that took its counter.
        libc::prctl(libc::PR_SET_TSC, libc::PR_TSC_ENABLE);
        let alternative = libc::stack_t { ss_sp: stack.cast(), ss_flags: 0, ss_size: ALT_STACK };
        libc::sigaltstack(&raw const alternative, std::ptr::null_mut());
        let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        action.sa_sigaction = on_fault as *const () as usize;
        for signal in SIGNALS {
            libc::sigaction(signal, &raw const action, std::ptr::null_mut());
        }
        action.sa_sigaction = on_start as *const () as usize;
        libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut());
        let mut mask = MaybeUninit::<libc::sigset_t>::zeroed().assume_init();
        libc::sigemptyset(&raw mut mask);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const mask, std::ptr::null_mut());
        for &(addr, frame, prot) in &program.pages {
            let bit = |on, bit| if on { bit } else { 0 };
            let prot = bit(prot.read, libc::PROT_READ)
                | bit(prot.write, libc::PROT_WRITE)
                | bit(prot.exec, libc::PROT_EXEC);
            let (flags, at) = (libc::MAP_SHARED | libc::MAP_FIXED, (frame as u64 * PAGE) as libc::off_t);
            if libc::mmap(addr as *mut c_void, PAGE as usize, prot, flags, file, at) == libc::MAP_FAILED {
                libc::_exit(1);
            }
        }
        libc::raise(libc::SIGUSR1);
        libc::_exit(1)
    }
}

/// Gives the child its first registers.
extern "C" fn on_start(_: c_int, _: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a ucontext; the report was stored before the signal was raised.
    unsafe {
        let start = (*REPORT.load(Ordering::Relaxed)).start;
        let gregs = &mut (*context.cast::<ucontext_t>()).uc_mcontext.gregs;
        for (slot, value) in gregs.iter_mut().zip(to_gregs(&start)) {
            *slot = value;
        }
        // What is there already is kept: selectors in 18, the rest is no register.
        gregs[libc::REG_EFL as usize] = start.rflags as i64;
    }
}

/// Reports a fault and ends the child.
extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes siginfo and ucontext; the report is memory shared for this. The flags are the faulting
    // code's (alignment checks may be on), so they are set first; the stack is the alternative one, so there is room.
    unsafe {
        std::arch::asm!("push 2", "popfq");
        let report = REPORT.load(Ordering::Relaxed);
        let gregs = &(*context.cast::<ucontext_t>()).uc_mcontext.gregs;
        (*report).gregs.copy_from_slice(gregs);
        (*report).code = (*info).si_code;
        (*report).addr = (*info).si_addr() as u64;
        (*report).signal = signal;
        // Not the C library's: what fs points at may be gone.
        std::arch::asm!("syscall", in("rax") libc::SYS_exit_group, in("rdi") 0, options(noreturn));
    }
}

/// The order of `gregset_t`: r8 to r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, flags (sys/ucontext.h).
fn to_gregs(r: &Regs) -> [i64; 18] {
    [
        r.r8, r.r9, r.r10, r.r11, r.r12, r.r13, r.r14, r.r15, r.rdi, r.rsi, r.rbp, r.rbx, r.rdx, r.rax,
        r.rcx, r.rsp, r.rip, r.rflags,
    ]
    .map(|value| value as i64)
}

fn from_gregs(gregs: &[i64; 23], start: &Regs) -> Regs {
    let g = |index: usize| gregs[index] as u64;
    let mut regs = Regs {
        r8: g(0),
        r9: g(1),
        r10: g(2),
        r11: g(3),
        r12: g(4),
        r13: g(5),
        r14: g(6),
        r15: g(7),
        rdi: g(8),
        rsi: g(9),
        rbp: g(10),
        rbx: g(11),
        rdx: g(12),
        rax: g(13),
        rcx: g(14),
        rsp: g(15),
        rip: g(16),
        rflags: g(17),
        ..*start
    };
    regs.canonical_rflags();
    regs
}

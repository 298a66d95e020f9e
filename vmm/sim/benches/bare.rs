//! The yardstick: a child in an endless loop of getppid under PTRACE_SYSEMU, without any of our code around.

/// The child's pid.
pub struct Bare(libc::pid_t);

impl Bare {
    /// Starts the child, on the calling thread's CPU.
    #[allow(clippy::new_without_default)] // starting a process is no default
    pub fn new() -> Bare {
        // SAFETY: the child only makes raw system calls, for ever; the parent's calls have no memory effects but
        // on `status`.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                libc::raise(libc::SIGSTOP);
                loop {
                    std::arch::asm!("syscall", inout("rax") libc::SYS_getppid => _, out("rcx") _, out("r11") _);
                }
            }
            let mut status = 0;
            libc::waitpid(pid, &raw mut status, libc::__WALL);
            let options = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL;
            libc::ptrace(libc::PTRACE_SETOPTIONS, pid, 0, options);
            Bare(pid)
        }
    }

    /// One trap: resume, wait, read and write the registers.
    pub fn round(&self) {
        // SAFETY: as above; `regs` is filled by GETREGS before it is read.
        unsafe {
            let mut regs: libc::user_regs_struct = std::mem::zeroed();
            let mut status = 0;
            libc::ptrace(libc::PTRACE_SYSEMU, self.0, 0, 0);
            libc::waitpid(self.0, &raw mut status, libc::__WALL);
            libc::ptrace(libc::PTRACE_GETREGS, self.0, 0, &raw mut regs);
            regs.rax = 1;
            libc::ptrace(libc::PTRACE_SETREGS, self.0, 0, &raw const regs);
        }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // SAFETY: no memory effects but on `status`; our own child.
        unsafe {
            let mut status = 0;
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, &raw mut status, libc::__WALL);
        }
    }
}

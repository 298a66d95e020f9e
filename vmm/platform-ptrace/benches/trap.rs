//! What a trap costs: a system call through the platform against a bare PTRACE_SYSEMU loop in the same run (the
//! figure that counts is the ratio), and what is measured for every platform.

use bloodhound_platform_ptrace::PtracePlatform;
use bloodhound_platform_tests::bench;

/// A child in an endless loop of getppid, traced without any of our code around.
struct Bare(libc::pid_t);

impl Bare {
    fn new() -> Bare {
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
            libc::ptrace(
                libc::PTRACE_SETOPTIONS,
                pid,
                0,
                libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_EXITKILL,
            );
            Bare(pid)
        }
    }

    fn round(&self) {
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

fn main() {
    let platform = PtracePlatform::new(Some(0)).expect("platform");
    let mut guest = bench::calling(platform);
    let bare = Bare::new();
    // In turns, so that a busy host disturbs both alike.
    let (mut bare_us, mut ours_us) = (f64::MAX, f64::MAX);
    for _ in 0..10 {
        bare_us = bare_us.min(bench::best(300, || bare.round()));
        ours_us = ours_us.min(bench::system_call(&mut guest));
    }
    println!("bare SYSEMU + wait + GETREGS + SETREGS   {bare_us:7.2} us");
    println!("system call through the platform         {ours_us:7.2} us   ratio {:.2}", ours_us / bare_us);
    bench::report(guest.end());
}

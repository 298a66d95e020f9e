//! Stub processes: [`Factory`] makes, [`Stub`] is one.
//!
//! One *template* process is forked from the host, confined and emptied; every stub is a fork of it. So the cost
//! of a stub does not depend on the host's size, and the host's pages are write-protected by fork only once.
//! All are traced by, and die with, the thread that made the factory (PTRACE_O_EXITKILL).

use std::os::fd::AsRawFd;

use bloodhound_platform::{PlatformError, Regs};
use libc::{c_int, c_long, user_regs_struct};

use crate::stub;
use crate::sys::{SharedFile, Stop, Tracee, last};

/// Stubs at one time. The command file is sparse: unused slots take no memory.
const SLOTS: usize = 4096;
/// The command file: one page of code, then one slot of command pages per stub; slot 0 is the template's.
const FILE_BYTES: usize = 0x1000 + SLOTS * stub::COMMAND_BYTES;
/// The template's calls; a stub allows itself only the first three.
const TEMPLATE_CALLS: [i64; 5] =
    [libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mprotect, libc::SYS_clone, libc::SYS_seccomp];
const STUB_CALLS: &[i64] = TEMPLATE_CALLS.split_at(3).0;

/// Bit 21 of rflags: may be changed where there is `cpuid`.
pub(crate) const ID_FLAG: u64 = 1 << 21;
/// `arch_prctl(2)`: "Enable or disable the CPUID instruction for the calling thread".
const ARCH_SET_CPUID: c_long = 0x1012;

/// A process that runs application code: stopped, unless its owner resumed it.
#[derive(Debug)]
pub(crate) struct Stub {
    pub tracee: Tracee,
    slot: usize,
    /// Whether the ID flag is set, which PTRACE_SETREGS leaves as it is.
    pub id_flag: bool,
    /// The registers that it has, if they are known: those with which it stopped for the last trap, as long as nothing has run in it
    /// since. The selectors are those of [`bare_regs`].
    pub shown: Option<Regs>,
}

/// Makes stubs.
pub(crate) struct Factory {
    file: SharedFile,
    template: Stub,
    free: Vec<usize>,
    next: usize,
    /// Whether `cpuid` faults in stubs.
    pub cpuid_faults: bool,
}

impl Factory {
    /// Forks the template. The calling thread is the tracer of all stubs from now on.
    pub fn new() -> Result<Factory, PlatformError> {
        bloodhound_frames::init().map_err(|error| PlatformError::Host {
            what: "making the frame store",
            errno: error.raw_os_error().unwrap_or(0),
        })?;
        let file = SharedFile::new(FILE_BYTES)?;
        file.write(0, stub::code());
        let fds = [bloodhound_frames::arena_fd().as_raw_fd(), file.fd()];
        // SAFETY: no memory effects.
        let parent = unsafe { libc::getpid() };
        // SAFETY: the child runs `template_main` alone, which only makes raw system calls and never returns, so
        // locks and state of the host's other threads do not matter to it.
        let pid = match unsafe { libc::fork() } {
            -1 => return Err(last("fork")),
            // SAFETY: this is the only thread of the new process.
            0 => unsafe { template_main(parent, fds) },
            pid => pid,
        };
        let mut template = Stub { tracee: Tracee(pid), slot: 0, id_flag: true, shown: None };
        // Every fork begins without the ID flag.
        let confined = confine_template(&template, &file)
            .and_then(|faults| template.set_id_flag(&file, false).map(|()| faults));
        match confined {
            Ok(cpuid_faults) => Ok(Factory { file, template, free: Vec::new(), next: 1, cpuid_faults }),
            Err(error) => {
                template.tracee.kill();
                template.tracee.reap();
                Err(error)
            }
        }
    }

    /// A new stub: empty address space, under the tight filter.
    pub fn make(&mut self) -> Result<Stub, PlatformError> {
        let slot = self.free.pop().unwrap_or(self.next);
        if slot >= SLOTS {
            return Err(PlatformError::Host { what: "too many address spaces", errno: libc::EAGAIN });
        }
        self.next = self.next.max(slot + 1);
        let tracee = match self.fork_template() {
            Ok(tracee) => tracee,
            Err(error) => {
                self.free.push(slot);
                return Err(error);
            }
        };
        let stub = Stub { tracee, slot, id_flag: false, shown: None };
        match stub.confine(&self.file) {
            Ok(()) => Ok(stub),
            Err(error) => {
                self.discard(stub, &error);
                Err(error)
            }
        }
    }

    /// Kills a stub.
    pub fn destroy(&mut self, stub: Stub) {
        stub.tracee.kill();
        stub.tracee.reap();
        self.free.push(stub.slot);
    }

    /// Gets rid of a stub after an error. One that died may be reaped already, and its pid someone else's: such
    /// a one is not killed.
    pub fn discard(&mut self, stub: Stub, error: &PlatformError) {
        if !matches!(error, PlatformError::StubDied { .. }) {
            stub.tracee.kill();
        }
        stub.tracee.reap();
        self.free.push(stub.slot);
    }

    /// Runs commands in a stub, whose registers are lost. The index and the error of the first that failed.
    pub fn batch(
        &self,
        stub: &mut Stub,
        commands: &[u64],
    ) -> Result<Result<(), (usize, i32)>, PlatformError> {
        stub.shown = None;
        let count = commands.len() / stub::COMMAND_WORDS;
        assert!(count <= stub::BATCH_MAX && commands.len().is_multiple_of(stub::COMMAND_WORDS), "batch size");
        self.file.write_words(slot_offset(stub.slot), commands);
        let regs = user_regs_struct {
            rip: stub::CODE + stub::BATCH,
            rbx: stub::COMMANDS,
            rbp: count as u64,
            ..bare_regs()
        };
        stub.run_own_code(&regs)?;
        // Applications can read these pages, and offsets of frames are the host's.
        self.file.clear(slot_offset(stub.slot), commands.len() * 8);
        let left = stub.tracee.reg(std::mem::offset_of!(user_regs_struct, rbp))?;
        if left == 0 {
            return Ok(Ok(()));
        }
        let rax = stub.tracee.reg(std::mem::offset_of!(user_regs_struct, rax))?;
        Ok(Err((count.saturating_sub(left as usize), -(rax as i64) as i32)))
    }

    /// Sets a stub's ID flag; its other registers are lost.
    pub fn set_id_flag(&self, stub: &mut Stub, on: bool) -> Result<(), PlatformError> {
        stub.set_id_flag(&self.file, on)
    }

    fn fork_template(&self) -> Result<Tracee, PlatformError> {
        // CLONE_PARENT: the stub is a child of ours, not of the template, who could not reap it.
        let flags = (libc::CLONE_PARENT | libc::SIGCHLD) as u64;
        let template = self.template.tracee;
        template.set_regs(&call_regs(stub::CODE, libc::SYS_clone, [flags, 0, 0, 0, 0, 0]))?;
        template.cont()?;
        let mut child = None;
        loop {
            match template.wait()? {
                Stop::Event(libc::PTRACE_EVENT_FORK | libc::PTRACE_EVENT_CLONE) => {
                    child = Some(Tracee(template.event_message()? as libc::pid_t));
                }
                Stop::Signal(libc::SIGTRAP) => break,
                Stop::Signal(_) | Stop::Event(_) => {}
                Stop::Syscall => return Err(PlatformError::Internal("the template made a traced call")),
                Stop::Gone(signal) => return Err(PlatformError::StubDied { signal }),
            }
            template.cont()?;
        }
        let Some(child) = child else {
            let rax = template.reg(std::mem::offset_of!(user_regs_struct, rax))?;
            return Err(PlatformError::Host { what: "clone", errno: -(rax as i64) as i32 });
        };
        // "The newly cloned process starts with a SIGSTOP" (ptrace(2), PTRACE_O_TRACECLONE).
        match child.wait()? {
            Stop::Signal(libc::SIGSTOP) => Ok(child),
            Stop::Gone(signal) => Err(PlatformError::StubDied { signal }),
            _ => {
                child.kill();
                child.reap();
                Err(PlatformError::Internal("a new stub did not begin with SIGSTOP"))
            }
        }
    }
}

impl Drop for Factory {
    fn drop(&mut self) {
        self.template.tracee.kill();
        self.template.tracee.reap();
    }
}

impl Stub {
    /// Runs stub code until its `int3`.
    fn run_own_code(&self, regs: &user_regs_struct) -> Result<(), PlatformError> {
        self.tracee.set_regs(regs)?;
        self.tracee.cont()?;
        loop {
            match self.tracee.wait()? {
                Stop::Signal(
                    signal @ (libc::SIGTRAP | libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGSYS),
                ) if self.tracee.siginfo()?.code > 0 => {
                    let trapped = signal == libc::SIGTRAP;
                    return if trapped { Ok(()) } else { Err(PlatformError::Internal("stub code faulted")) };
                }
                // A late nudge of the watchdog, or someone's kill(1): not for the stub.
                Stop::Signal(_) | Stop::Event(_) => self.tracee.cont()?,
                Stop::Syscall => return Err(PlatformError::Internal("stub code was stopped at a call")),
                Stop::Gone(signal) => return Err(PlatformError::StubDied { signal }),
            }
        }
    }

    fn set_id_flag(&mut self, file: &SharedFile, on: bool) -> Result<(), PlatformError> {
        self.shown = None;
        let flags = if on { ID_FLAG | 0x202 } else { 0x202 };
        file.write_words(slot_offset(self.slot), &[flags]);
        let regs = user_regs_struct { rip: stub::CODE + stub::FLAGS, rsp: stub::COMMANDS, ..bare_regs() };
        let done = self.run_own_code(&regs);
        file.clear(slot_offset(self.slot), 8);
        self.id_flag = on;
        done
    }

    /// Sets all registers, with bases that ptrace refuses: those outside of the user half. An application has them from
    /// `wrfsbase`, so the host has these instructions.
    pub fn set_regs_and_bases(&self, regs: &user_regs_struct) -> Result<(), PlatformError> {
        let rip = stub::CODE + stub::BASES;
        let bases = user_regs_struct { rip, rbx: regs.fs_base, rbp: regs.gs_base, ..bare_regs() };
        self.run_own_code(&bases)?;
        self.tracee.set_regs_without_bases(regs)
    }

    /// One system call by stub code at `code`.
    fn call_at(&self, code: u64, what: &'static str, nr: i64, args: [u64; 6]) -> Result<u64, PlatformError> {
        self.run_own_code(&call_regs(code, nr, args))?;
        let rax = self.tracee.reg(std::mem::offset_of!(user_regs_struct, rax))?;
        match rax as i64 {
            error @ -4095..=-1 => Err(PlatformError::Host { what, errno: -error as i32 }),
            _ => Ok(rax),
        }
    }

    fn call(&self, what: &'static str, nr: i64, args: [u64; 6]) -> Result<u64, PlatformError> {
        self.call_at(stub::CODE, what, nr, args)
    }

    /// A fork of the template becomes a stub: own command pages, tight filter.
    fn confine(&self, file: &SharedFile) -> Result<(), PlatformError> {
        self.map_commands(stub::CODE)?;
        self.install_filter(file, STUB_CALLS)
    }

    fn map_commands(&self, code: u64) -> Result<(), PlatformError> {
        let (prot, flags) = (libc::PROT_READ as u64, (libc::MAP_SHARED | libc::MAP_FIXED) as u64);
        let offset = slot_offset(self.slot) as u64;
        let length = stub::COMMAND_BYTES as u64;
        let args = [stub::COMMANDS, length, prot, flags, stub::COMMAND_FD, offset];
        self.call_at(code, "mapping a stub's command pages", libc::SYS_mmap, args).map(|_| ())
    }

    fn install_filter(&self, file: &SharedFile, calls: &[i64]) -> Result<(), PlatformError> {
        let program = stub::filter(calls);
        let at = slot_offset(self.slot);
        // struct sock_fprog { unsigned short len; struct sock_filter *filter; }, then the filter.
        file.write_words(at, &[program.len() as u64, stub::COMMANDS + 16]);
        for (index, op) in program.iter().enumerate() {
            let mut raw = [0; 8];
            raw[..2].copy_from_slice(&op.code.to_le_bytes());
            (raw[2], raw[3]) = (op.jt, op.jf);
            raw[4..].copy_from_slice(&op.k.to_le_bytes());
            file.write(at + 16 + index * 8, &raw);
        }
        // SPEC_ALLOW: without it older kernels slow the process down by disabling speculation features.
        let flags = libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW;
        let args = [u64::from(libc::SECCOMP_SET_MODE_FILTER), flags, stub::COMMANDS, 0, 0, 0];
        let done = self.call("installing a stub's seccomp filter", libc::SYS_seccomp, args);
        file.clear(at, stub::COMMAND_BYTES);
        done.map(|_| ())
    }
}

fn slot_offset(slot: usize) -> usize {
    0x1000 + slot * stub::COMMAND_BYTES
}

/// Registers of 64-bit user code with everything zero.
pub(crate) fn bare_regs() -> user_regs_struct {
    user_regs_struct {
        r15: 0,
        r14: 0,
        r13: 0,
        r12: 0,
        rbp: 0,
        rbx: 0,
        r11: 0,
        r10: 0,
        r9: 0,
        r8: 0,
        rax: 0,
        rcx: 0,
        rdx: 0,
        rsi: 0,
        rdi: 0,
        // -1: no system call, so that the host never tries to restart one.
        orig_rax: u64::MAX,
        rip: 0,
        cs: 0x33,
        eflags: 0x202,
        rsp: 0,
        ss: 0x2b,
        fs_base: 0,
        gs_base: 0,
        ds: 0,
        es: 0,
        fs: 0,
        gs: 0,
    }
}

fn call_regs(code: u64, nr: i64, args: [u64; 6]) -> user_regs_struct {
    let [rdi, rsi, rdx, r10, r8, r9] = args;
    user_regs_struct { rip: code + stub::SYSCALL, rax: nr as u64, rdi, rsi, rdx, r10, r8, r9, ..bare_regs() }
}

/// Takes the template from its first stop to an empty address space under its filter. Whether `cpuid` faults.
fn confine_template(template: &Stub, file: &SharedFile) -> Result<bool, PlatformError> {
    let tracee = template.tracee;
    match tracee.wait()? {
        Stop::Signal(libc::SIGTRAP) => {}
        Stop::Gone(_) => {
            return Err(PlatformError::Host {
                what: "starting a stub (is ptrace allowed?)",
                errno: libc::EPERM,
            });
        }
        _ => return Err(PlatformError::Internal("the template did not begin with a trap")),
    }
    tracee.set_options(
        libc::PTRACE_O_EXITKILL
            | libc::PTRACE_O_TRACESYSGOOD
            | libc::PTRACE_O_TRACEFORK
            | libc::PTRACE_O_TRACECLONE,
    )?;
    // Behind the int3 of SYSCALL: rip is three bytes into the temporary copy of the code; r12 is a result.
    let regs = tracee.regs()?;
    let temporary = regs.rip - 3;
    let cpuid_faults = regs.r12 == 0;
    if let Some(rseq) = tracee.rseq() {
        // The kernel would go on writing to the C library's rseq area, which is about to go.
        let unregister = 1; // RSEQ_FLAG_UNREGISTER
        let args = [rseq.pointer, u64::from(rseq.size), unregister, u64::from(rseq.signature), 0, 0];
        template.call_at(temporary, "rseq", libc::SYS_rseq, args)?;
    }
    // The upper end first: the host's stack may be where the stub's own pages go.
    let upper = [stub::CODE, stub::TASK_SIZE - stub::CODE, 0, 0, 0, 0];
    template.call_at(temporary, "munmap", libc::SYS_munmap, upper)?;
    let (prot, flags) =
        ((libc::PROT_READ | libc::PROT_EXEC) as u64, (libc::MAP_PRIVATE | libc::MAP_FIXED) as u64);
    let code = [stub::CODE, 0x1000, prot, flags, stub::COMMAND_FD, 0];
    template.call_at(temporary, "mapping a stub's code", libc::SYS_mmap, code)?;
    template.map_commands(temporary)?;
    template.call("munmap", libc::SYS_munmap, [0, stub::CODE, 0, 0, 0, 0])?;
    template.install_filter(file, &TEMPLATE_CALLS)?;
    Ok(cpuid_faults)
}

/// A raw system call in the forked child.
macro_rules! raw {
    ($nr:expr $(, $arg:expr)*) => {
        libc::syscall($nr $(, $arg as c_long)*)
    };
}

/// The template's life until it is traced: cuts every tie with the host process, then jumps into stub code.
///
/// # Safety
/// Only in a process just forked. Makes only async-signal-safe calls.
unsafe fn template_main(parent: libc::pid_t, fds: [c_int; 2]) -> ! {
    // SAFETY: raw system calls with constants, the two descriptors, or pointers to locals; the host's memory is a
    // private copy, and what fails leads to the exit at the end.
    unsafe {
        raw!(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        if raw!(libc::SYS_getppid) != c_long::from(parent) {
            raw!(libc::SYS_exit_group, 1);
        }
        raw!(libc::SYS_setsid);
        reset_signals();
        let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        raw!(libc::SYS_prlimit64, 0, libc::RLIMIT_CORE, &raw const no_core, 0);
        raw!(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        // Names us in ps(1).
        raw!(libc::SYS_prctl, libc::PR_SET_NAME, c"bloodhound-stub".as_ptr(), 0, 0, 0);
        // "PR_TSC_SIGSEGV: generate a SIGSEGV when the process tries to read the timestamp counter".
        if raw!(libc::SYS_prctl, libc::PR_SET_TSC, libc::PR_TSC_SIGSEGV, 0, 0, 0) != 0 {
            raw!(libc::SYS_exit_group, 1);
        }
        let cpuid = raw!(libc::SYS_arch_prctl, ARCH_SET_CPUID, 0);
        // The C library registered these with the kernel, which writes through them at exit.
        raw!(libc::SYS_set_robust_list, 0, 24);
        raw!(libc::SYS_set_tid_address, 0);
        // First out of the way of 0 and 1, which either may be.
        let arena = raw!(libc::SYS_fcntl, fds[0], libc::F_DUPFD, 2);
        let commands = raw!(libc::SYS_fcntl, fds[1], libc::F_DUPFD, 2);
        raw!(libc::SYS_dup2, arena, stub::ARENA_FD);
        raw!(libc::SYS_dup2, commands, stub::COMMAND_FD);
        if raw!(libc::SYS_close_range, 2, u32::MAX, 0) != 0 {
            // Before Linux 5.9.
            for fd in 2..65536 {
                raw!(libc::SYS_close, fd);
            }
        }
        let prot = libc::PROT_READ | libc::PROT_EXEC;
        let code = raw!(libc::SYS_mmap, 0, 0x1000, prot, libc::MAP_PRIVATE, stub::COMMAND_FD, 0);
        if code == -1 || raw!(libc::SYS_ptrace, libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
            raw!(libc::SYS_exit_group, 1);
        }
        // getppid at the end of `syscall; int3`: a harmless call.
        std::arch::asm!(
            "jmp {code}",
            code = in(reg) code,
            in("rax") libc::SYS_getppid,
            in("r12") cpuid,
            options(noreturn),
        );
    }
}

/// Every signal to its default action, none blocked.
///
/// # Safety
/// As `template_main`.
unsafe fn reset_signals() {
    // The kernel's struct: handler, flags, restorer, mask (8 bytes each).
    let default = [0u64; 4];
    let none = 0u64;
    for signal in 1..=64 {
        // SAFETY: reads the live local; for SIGKILL and SIGSTOP it fails, which is fine.
        unsafe { raw!(libc::SYS_rt_sigaction, signal, default.as_ptr(), 0, 8) };
    }
    // SAFETY: reads the live local.
    unsafe { raw!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const none, 0, 8) };
}

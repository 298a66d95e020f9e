//! seccomp(2): what a thread's filters say of its calls.
//!
//! Key types: [`Seccomp`] (a thread's mode), [`Filter`] (a program of classic BPF), [`Verdict`]. A filter sees `struct
//! seccomp_data` alone, so what it says is a function of the call. Who decides in a filter's place is in [`listener`].

pub mod listener;

use std::sync::Arc;

use bloodhound_abi::call::Call;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Siginfo;
use bloodhound_abi::table::nr;
use bloodhound_abi::{Errno, SimTime};
use bloodhound_bpf::{Instruction, Load, Program};

use crate::ctx::Outside;
use crate::dispatch::Outcome;
use crate::ids::*;
use crate::mm::Backing;
use crate::node::Node;
use crate::process::ExitStatus;
use crate::watch::{Disposition, Told};

/// AUDIT_ARCH_X86_64.
pub const ARCH: u32 = 0xc000_003e;
/// Bytes of `struct seccomp_data`.
const DATA: u32 = 64;
/// MAX_INSNS_PER_PATH, of all filters of a thread as [`Filter::length`] counts them; each older one counts four more.
const MOST_OF_ALL: usize = 32768;

/// What a filter answers (SECCOMP_RET_*), without its 16 bits of data.
pub mod action {
    #![allow(missing_docs)]
    pub const KILL_PROCESS: u32 = 0x8000_0000;
    pub const KILL_THREAD: u32 = 0;
    pub const TRAP: u32 = 0x0003_0000;
    pub const ERRNO: u32 = 0x0005_0000;
    pub const USER_NOTIF: u32 = 0x7fc0_0000;
    pub const TRACE: u32 = 0x7ff0_0000;
    pub const LOG: u32 = 0x7ffc_0000;
    pub const ALLOW: u32 = 0x7fff_0000;
}

/// A program that may judge calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    program: Program,
    /// When it was installed and by whom, which no other filter shares.
    made: (SimTime, Tid),
    /// Who decides about calls on which it answers SECCOMP_RET_USER_NOTIF; may be gone.
    listener: Option<ListenerId>,
}

/// The mode of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Seccomp {
    /// All calls are allowed.
    #[default]
    Off,
    /// SECCOMP_MODE_STRICT.
    Strict,
    /// SECCOMP_MODE_FILTER: the filters, oldest first.
    Filters(Arc<Vec<Arc<Filter>>>),
}

impl Seccomp {
    /// Mode and number of filters, as /proc/PID/status shows them.
    pub fn shown(&self) -> (u32, usize) {
        match self {
            Seccomp::Off => (0, 0),
            Seccomp::Strict => (1, 0),
            Seccomp::Filters(all) => (2, all.len()),
        }
    }

    fn all(&self) -> &[Arc<Filter>] {
        if let Seccomp::Filters(all) = self { all } else { &[] }
    }

    /// ENOMEM where they are too long together with one more.
    pub(crate) fn check_length(&self, filter: &Filter) -> Result<(), Errno> {
        let before: usize = self.all().iter().map(|f| f.length() + 4).sum();
        if before + filter.length() > MOST_OF_ALL { Err(Errno::ENOMEM) } else { Ok(()) }
    }

    /// The same and one more filter.
    pub fn with(&self, filter: Filter) -> Seccomp {
        let mut all = self.all().to_vec();
        all.push(Arc::new(filter));
        Seccomp::Filters(Arc::new(all))
    }

    /// Whom the filters have as listeners.
    pub(crate) fn listeners(&self) -> impl Iterator<Item = ListenerId> + '_ {
        self.all().iter().filter_map(|filter| filter.listener)
    }

    /// Whether these filters are those of `other`, or the older ones of them (`is_ancestor`).
    pub fn is_part_of(&self, other: &Seccomp) -> bool {
        match (self, other) {
            (Seccomp::Off, _) => true,
            (Seccomp::Filters(own), Seccomp::Filters(all)) => {
                own.len() <= all.len() && own.iter().zip(all.iter()).all(|(a, b)| a.made == b.made)
            }
            _ => false,
        }
    }
}

impl Filter {
    /// EINVAL for a program that does what filters of calls may not (`seccomp_check_filter`).
    pub fn new(program: Program, made: (SimTime, Tid)) -> Result<Filter, Errno> {
        if program.instructions().iter().all(looks_at_calls) {
            Ok(Filter { program, made, listener: None })
        } else {
            Err(Errno::EINVAL)
        }
    }

    /// The same with a listener.
    pub(crate) fn heard_by(self, listener: ListenerId) -> Filter {
        Filter { listener: Some(listener), ..self }
    }

    /// How many instructions Linux counts: those of the program into which it translates this one (`bpf_convert_filter`).
    fn length(&self) -> usize {
        // Registers are cleared and the context is put aside first.
        const PROLOGUE: usize = 3;
        let one = |i: &Instruction| match i.code {
            // The check for zero.
            0x3c => 5,
            0x06 => 2,
            0x15 | 0x1d | 0x25 | 0x2d | 0x35 | 0x3d | 0x45 | 0x4d => {
                let wide = i.code & 8 == 0 && (i.k as i32) < 0;
                // A jump on one side is one instruction, with the condition turned round if need be; that of JSET has no opposite.
                let turned = i.yes == 0 && !matches!(i.code, 0x45 | 0x4d);
                usize::from(wide) + if i.no == 0 || turned { 1 } else { 2 }
            }
            _ => 1,
        };
        PROLOGUE + self.program.instructions().iter().map(one).sum::<usize>()
    }

    /// Its answer for a call.
    fn run(&self, data: &[u32; 16]) -> u32 {
        self.program.run(DATA, |load| match load {
            Load::Bytes { at, .. } => data.get(at as usize / 4).copied().ok_or(0),
            Load::Extension { .. } => Err(0),
        })
    }
}

/// Whether an instruction may stand in a filter of calls: data are loaded as whole words, and there are no remainders.
fn looks_at_calls(i: &Instruction) -> bool {
    match i.code {
        0x20 => i.k < DATA && i.k.is_multiple_of(4),
        0x28 | 0x30 | 0x40 | 0x48 | 0x50 | 0xb1 | 0x94 | 0x9c => false,
        _ => true,
    }
}

/// A call as filters see it (`struct seccomp_data`), in words.
fn data(number: u64, ip: u64, args: [u64; 6]) -> [u32; 16] {
    let mut words = [0; 16];
    (words[0], words[1]) = (number as u32, ARCH);
    for (at, value) in std::iter::once(ip).chain(args).enumerate() {
        (words[2 + 2 * at], words[3 + 2 * at]) = (value as u32, (value >> 32) as u32);
    }
    words
}

impl Node {
    /// What a thread's mode says of the call that it makes: `None` lets it go on.
    pub(crate) fn seccomp_judge(
        &mut self,
        tid: Tid,
        call: Call,
        restart_deadline: Option<SimTime>,
        outside: &mut Outside<'_>,
    ) -> Option<Outcome> {
        let task = self.task(tid);
        let (regs, number) = (&task.regs, task.regs.orig_rax);
        let ip = regs.rip;
        let filters = match &task.seccomp {
            Seccomp::Off => return None,
            Seccomp::Strict if [nr::read, nr::write, nr::exit, nr::rt_sigreturn].contains(&number) => {
                return None;
            }
            Seccomp::Strict => {
                let signo = c::SIGKILL as u32;
                return Some(self.seccomp_end_thread(
                    tid,
                    ExitStatus::Signal { signo, core: false },
                    outside,
                ));
            }
            Seccomp::Filters(all) => all.clone(),
        };
        let words = data(number, ip, regs.syscall_args());
        // Reads of the clock that Linux's vDSO makes without a call are none here either.
        let (pid, mm) = (task.pid, self.process(task.pid).mm);
        let code = self.mms.get(mm).and_then(|mm| mm.find(ip.wrapping_sub(2)));
        if code.is_some_and(|vma| matches!(vma.backing, Backing::Special(_))) {
            return None;
        }
        let (mut answer, mut listener) = (action::ALLOW, None);
        for filter in filters.iter().rev() {
            let one = filter.run(&words);
            // "the first-seen action value of highest precedence", in the order of signed numbers.
            if ((one & 0xffff_0000) as i32) < (answer & 0xffff_0000) as i32 {
                (answer, listener) = (one, filter.listener);
            }
        }
        let low = answer & 0xffff;
        match answer & 0xffff_0000 {
            action::ALLOW | action::LOG => None,
            action::ERRNO => {
                // "The SECCOMP_RET_DATA portion [...] is passed to user space as the errno value", at most MAX_ERRNO.
                Some(self.answered(tid, (-i64::from(low.min(4095))) as u64))
            }
            // "If there is no tracer present, the system call is not executed and returns a failure status with errno set to
            // ENOSYS".
            action::TRACE => Some(self.answered(tid, Errno::ENOSYS.as_ret())),
            action::USER_NOTIF => {
                Some(self.ask_listener((tid, call), listener, words, restart_deadline, outside))
            }
            action::TRAP => {
                // syscall_rollback: rax is the call's number again.
                self.task_mut(tid).regs.rax = number;
                self.force_signal(tid, trap_info(number, ip, low));
                Some(Outcome::NoReturn)
            }
            action::KILL_THREAD if self.process(pid).threads.len() > 1 => {
                let signo = c::SIGSYS as u32;
                Some(self.seccomp_end_thread(tid, ExitStatus::Signal { signo, core: false }, outside))
            }
            _ => {
                let signo = c::SIGSYS as u32;
                outside.tell(self, (pid, tid), &Told::Signal { signo, disposition: Disposition::Killed });
                let core = self.dumps_core(pid);
                self.exit_group(tid, ExitStatus::Signal { signo, core }, outside);
                Some(Outcome::Exited)
            }
        }
    }

    /// A call that a filter or its listener answers in place of the kernel. The answer stands, also where its number is one of those with which
    /// the kernel keeps a call that a signal has interrupted (ERESTARTSYS and its kind). On Linux a signal that is pending at that moment would have such a call
    /// made again.
    fn answered(&mut self, tid: Tid, value: u64) -> Outcome {
        let regs = &mut self.task_mut(tid).regs;
        (regs.rax, regs.orig_rax) = (value, u64::MAX);
        Outcome::Done(value)
    }

    fn seccomp_end_thread(&mut self, tid: Tid, status: ExitStatus, outside: &mut Outside<'_>) -> Outcome {
        self.exit_task(tid, status, outside);
        Outcome::Exited
    }
}

/// SIGSYS of SECCOMP_RET_TRAP.
fn trap_info(number: u64, ip: u64, low: u32) -> Siginfo {
    let mut info = Siginfo {
        signo: c::SIGSYS as i32,
        code: c::SYS_SECCOMP as i32,
        errno: low as i32,
        ..Siginfo::default()
    };
    info.fields[0] = ip;
    info.fields[1] = number & 0xffff_ffff | u64::from(ARCH) << 32;
    info
}

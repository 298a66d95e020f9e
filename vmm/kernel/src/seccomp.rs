//! seccomp(2): what a thread's filters say of its calls.
//!
//! Key types: [`Seccomp`] (a thread's mode), [`Filter`] (a checked program of classic BPF), [`Verdict`]. A filter sees `struct
//! seccomp_data` alone, so what it says is a function of the call. Who decides in a filter's place is in [`listener`].

pub mod listener;

use std::sync::Arc;

use bloodhound_abi::call::Call;
use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Siginfo;
use bloodhound_abi::table::nr;
use bloodhound_abi::{Errno, SimTime};

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
/// BPF_MAXINSNS.
pub const MOST_INSTRUCTIONS: u64 = 4096;
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

/// An instruction (`struct sock_filter`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What it does.
    pub code: u16,
    /// How many instructions to pass over if its condition holds.
    pub yes: u8,
    /// And if not.
    pub no: u8,
    /// Its constant.
    pub k: u32,
}

impl Instruction {
    /// The instruction in these bytes.
    pub fn decode(bytes: [u8; 8]) -> Instruction {
        let [a, b, yes, no, k @ ..] = bytes;
        Instruction { code: u16::from_le_bytes([a, b]), yes, no, k: u32::from_le_bytes(k) }
    }
}

/// A program that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    program: Vec<Instruction>,
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
    /// Checks a program as Linux does (`bpf_check_classic`, `seccomp_check_filter`). EINVAL.
    pub fn new(program: Vec<Instruction>, made: (SimTime, Tid)) -> Result<Filter, Errno> {
        let len = program.len();
        let allowed = program.iter().enumerate().all(|(at, i)| is_allowed(i, len - at));
        let ends = program.last().is_some_and(|i| i.code & 7 == 6);
        if allowed && ends && stores_before_loads(&program) {
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
        PROLOGUE + self.program.iter().map(one).sum::<usize>()
    }

    /// Its answer for a call.
    fn run(&self, data: &[u32; 16]) -> u32 {
        let (mut a, mut x, mut memory, mut at) = (0u32, 0u32, [0u32; 16], 0usize);
        loop {
            let i = self.program[at];
            at += 1;
            let operand = if i.code & 8 != 0 { x } else { i.k };
            match i.code {
                0x20 => a = data[(i.k / 4) as usize],
                0x80 => a = DATA,
                0x81 => x = DATA,
                0x00 => a = i.k,
                0x01 => x = i.k,
                0x60 => a = memory[i.k as usize],
                0x61 => x = memory[i.k as usize],
                0x02 => memory[i.k as usize] = a,
                0x03 => memory[i.k as usize] = x,
                0x04 | 0x0c => a = a.wrapping_add(operand),
                0x14 | 0x1c => a = a.wrapping_sub(operand),
                0x24 | 0x2c => a = a.wrapping_mul(operand),
                // A division by zero ends the program with 0.
                0x34 | 0x3c => match a.checked_div(operand) {
                    Some(quotient) => a = quotient,
                    None => return 0,
                },
                0x44 | 0x4c => a |= operand,
                0x54 | 0x5c => a &= operand,
                0x64 | 0x6c => a = a.wrapping_shl(operand),
                0x74 | 0x7c => a = a.wrapping_shr(operand),
                0x84 => a = a.wrapping_neg(),
                0xa4 | 0xac => a ^= operand,
                0x05 => at += i.k as usize,
                0x15 | 0x1d => at += skip(&i, a == operand),
                0x25 | 0x2d => at += skip(&i, a > operand),
                0x35 | 0x3d => at += skip(&i, a >= operand),
                0x45 | 0x4d => at += skip(&i, a & operand != 0),
                0x07 => x = a,
                0x87 => a = x,
                0x16 => return a,
                _ => return i.k,
            }
        }
    }
}

fn skip(i: &Instruction, holds: bool) -> usize {
    usize::from(if holds { i.yes } else { i.no })
}

/// Whether an instruction may stand in a filter with `left` instructions from it on.
fn is_allowed(i: &Instruction, left: usize) -> bool {
    let k = i.k;
    match i.code {
        0x20 => k < DATA && k.is_multiple_of(4),
        0x80 | 0x81 | 0x00 | 0x01 | 0x07 | 0x87 | 0x06 | 0x16 | 0x84 => true,
        0x60 | 0x61 | 0x02 | 0x03 => k < 16,
        0x04 | 0x0c | 0x14 | 0x1c | 0x24 | 0x2c | 0x3c | 0x44 | 0x4c | 0x54 | 0x5c | 0x6c | 0x7c | 0xa4
        | 0xac => true,
        0x34 => k != 0,
        0x64 | 0x74 => k < 32,
        0x05 => (k as usize) < left - 1,
        0x15 | 0x1d | 0x25 | 0x2d | 0x35 | 0x3d | 0x45 | 0x4d => {
            usize::from(i.yes) + 1 < left && usize::from(i.no) + 1 < left
        }
        _ => false,
    }
}

/// Whether every word of memory was stored to on all ways to where it is loaded (`check_load_and_stores`).
fn stores_before_loads(program: &[Instruction]) -> bool {
    let mut masks = vec![u16::MAX; program.len() + 1];
    let mut valid = 0u16;
    for (at, i) in program.iter().enumerate() {
        valid &= masks[at];
        let mut lead = |by: usize| masks[at + 1 + by] &= valid;
        match i.code {
            0x02 | 0x03 => valid |= 1 << i.k,
            0x60 | 0x61 if valid & 1 << i.k == 0 => return false,
            0x05 => {
                lead(i.k as usize);
                valid = u16::MAX;
            }
            0x15 | 0x1d | 0x25 | 0x2d | 0x35 | 0x3d | 0x45 | 0x4d => {
                lead(usize::from(i.yes));
                lead(usize::from(i.no));
                valid = u16::MAX;
            }
            _ => {}
        }
    }
    true
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
                let value = (-i64::from(low.min(4095))) as u64;
                self.task_mut(tid).regs.rax = value;
                Some(Outcome::Done(value))
            }
            // "If there is no tracer present, the system call is not executed and returns a failure status with errno set to
            // ENOSYS".
            action::TRACE => {
                let value = Errno::ENOSYS.as_ret();
                self.task_mut(tid).regs.rax = value;
                Some(Outcome::Done(value))
            }
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

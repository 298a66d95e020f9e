//! A task: one thread of a process, its registers, signal state and what it is doing ([`TaskState`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_abi::structs::{Siginfo, StackT};
use bloodhound_abi::{Exception, Regs, SimTime};
use bloodhound_decisions::Lineage;

use crate::credentials::Credentials;
use crate::ids::*;
use crate::io_account::IoAccount;
use crate::process::CpuTime;
use crate::shared::Common;
use crate::wait::{Blocked, Left, Woken};

/// How much later than asked for a timer of a thread may fire, and the value that 0 resets it to. "A newly created thread has as
/// default the current value of its creator" (PR_SET_TIMERSLACK(2const)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimerSlack {
    now: u64,
    default: u64,
}

impl TimerSlack {
    /// That of the first process.
    pub const FIRST: TimerSlack = TimerSlack { now: 50_000, default: 50_000 };

    /// Nanoseconds.
    pub fn ns(self) -> u64 {
        self.now
    }

    /// Sets it; 0 is the default.
    pub fn set(&mut self, ns: u64) {
        self.now = if ns == 0 { self.default } else { ns };
    }

    /// That of a thread or process that one with this slack makes.
    pub fn of_child(self) -> TimerSlack {
        TimerSlack { now: self.now, default: self.now }
    }
}

/// No login, no session.
pub const NO_LOGIN: u32 = u32::MAX;

/// personality(2): an execution domain and three flags.
pub const PER_LINUX32: u32 = 0x8;
/// "Have uname(2) report a 2.6.(40+x) version number rather than a MAJOR.x version number."
pub const UNAME26: u32 = 0x2_0000;
/// "With this flag set, disable address-space-layout randomization."
pub const ADDR_NO_RANDOMIZE: u32 = 0x4_0000;
/// "With this flag set, PROT_READ implies PROT_EXEC for mmap(2)."
pub const READ_IMPLIES_EXEC: u32 = 0x40_0000;

/// What a program that wins rights loses of these, with ADDR_COMPAT_LAYOUT and MMAP_PAGE_ZERO.
pub const PER_CLEAR_ON_SETID: u32 = READ_IMPLIES_EXEC | ADDR_NO_RANDOMIZE | 0x20_0000 | 0x10_0000;

/// What a task is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// Wants the CPU.
    Runnable,
    /// Inside a system call that waits.
    Blocked(Box<Blocked>),
    /// Stopped by SIGSTOP and its kind until SIGCONT.
    Stopped,
    /// The first task of a process whose other tasks still run, after its own exit.
    Dead,
}

/// The selectors of code and stack that a task goes back to user code with. Only rt_sigreturn(2) makes them others than those of
/// 64-bit Linux, and then the task gets SIGSEGV on its way back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Selectors {
    /// Code.
    pub cs: u16,
    /// Stack.
    pub ss: u16,
}

impl Default for Selectors {
    /// `__USER_CS` and `__USER_DS` (asm/segment.h).
    fn default() -> Selectors {
        Selectors { cs: 0x33, ss: 0x2b }
    }
}

/// The x87, SSE and AVX registers of a task: at any time in one place only, either here or on the platform.
///
/// A task's registers are `Loaded` from its first run in a space until somebody needs them. Whatever a platform still holds of a
/// task whose registers are `Held` (from before an execve(2), or of another world) is old and means nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vectors {
    /// Here, in the standard format of XSAVE; `None` is the initial state.
    Held(Option<Arc<Vec<u8>>>),
    /// The platform has them, loaded in this address space ([`crate::mm::Mm::space`]).
    Loaded(u64),
}

impl Vectors {
    /// What a program starts with.
    pub const INITIAL: Vectors = Vectors::Held(None);

    /// The registers, to be read; `None` is the initial state.
    ///
    /// # Panics
    /// If the platform has them: the machine loop brings them here before the kernel reads them.
    pub fn held(&self) -> Option<&Arc<Vec<u8>>> {
        match self {
            Vectors::Held(bytes) => bytes.as_ref(),
            Vectors::Loaded(space) => {
                panic!("the vector registers of a task are still on the platform, in space {space:#x}")
            }
        }
    }
}

/// One thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its number.
    pub tid: Tid,
    /// Its process.
    pub pid: Pid,
    /// What it may share with others.
    pub common: Common,
    /// Registers at its last trap.
    pub regs: Regs,
    /// Its selectors.
    pub selectors: Selectors,
    /// Its x87, SSE and AVX registers.
    pub vectors: Vectors,
    /// What it does.
    pub state: TaskState,
    /// A call whose sleep has ended and which has not run again yet.
    pub woken: Option<Woken>,
    /// Blocked signals, bit n-1 for signal n.
    pub sigmask: u64,
    /// The mask to restore at the next return to user code (sigsuspend and the p-calls).
    pub restore_mask: Option<u64>,
    /// Signals for this thread only.
    pub pending: crate::signal::Pending,
    /// The alternate signal stack.
    pub altstack: StackT,
    /// Its ids, groups and capabilities.
    pub credentials: Credentials,
    /// PR_SET_NO_NEW_PRIVS: "the calling thread's no_new_privs attribute", which its children have as well and nobody takes back.
    pub no_new_privs: bool,
    /// PR_SET_IO_FLUSHER, which its children have as well.
    pub io_flusher: bool,
    /// Who has logged in and in which session: loginuid and sessionid of /proc/PID.
    pub login: (u32, u32),
    /// nice(2), -20 to 19: kept and shown, without effect on the scheduler. "The nice value is a per-thread attribute"
    /// (setpriority(2), "C library/kernel differences").
    pub nice: i32,
    /// Scheduling policy, with SCHED_RESET_ON_FORK.
    pub policy: u32,
    /// Priority of the policies of real time, 1 to 99; 0 for others.
    pub priority: u32,
    /// Runtime, deadline and period of SCHED_DEADLINE, ns.
    pub reserved: [u64; 3],
    /// personality(2).
    pub persona: u32,
    /// PR_MCE_KILL: it has a policy of its own, and that is the early one. No memory is broken.
    pub memory_errors: (bool, bool),
    /// PR_TSC_SIGSEGV: it may not read the time-stamp counter, nor may what it executes.
    pub no_tsc: bool,
    /// ioprio_set(2): class and level, 0 for none.
    pub io_priority: u16,
    /// Its mode of seccomp(2).
    pub seccomp: crate::seccomp::Seccomp,
    /// PR_SET_PDEATHSIG, which each thread sets for itself.
    pub pdeathsig: u32,
    /// PR_SET_TIMERSLACK; sleeps end on time here.
    pub timer_slack: TimerSlack,
    /// Semaphores that it will undo operations on (SEM_UNDO), if it has done any or shares them (CLONE_SYSVSEM).
    pub undo: Option<crate::ipc::sem::UndoList>,
    /// CLONE_CHILD_CLEARTID's word.
    pub clear_child_tid: u64,
    /// set_robust_list's head.
    pub robust_list: u64,
    /// Name (PR_SET_NAME), at most 15 bytes.
    pub comm: Vec<u8>,
    /// A vfork child that still uses its parent's address space.
    pub vfork_parent: Option<Tid>,
    /// The fault which made the pending synchronous signal, for core messages.
    pub last_fault: Option<Siginfo>,
    /// The last exception, whose vector and error code signal frames show.
    pub exception: Exception,
    /// Address of the last page fault that became a signal, which signal frames show as well: only page faults load CR2.
    pub cr2: u64,
    /// An interrupted call's time left in ns, to be stored before the next return to user code.
    pub left: Option<(Left, u64)>,
    /// When the interrupted call that is restarted next has to end, instead of after its whole relative timeout
    /// (`restart_block` of Linux).
    pub restart_deadline: Option<SimTime>,
    /// What it has read and written.
    pub io: IoAccount,
    /// Virtual time charged to it, ns.
    pub cpu: CpuTime,
    /// Its name for choices: by descent, for its number depends on which other tasks were made before.
    pub lineage: Lineage,
    /// Children (tasks made by clone(2)) that it has had.
    pub children: u32,
    /// Random things that it was given.
    pub randoms: u64,
    /// Turns on the processor that it has ended.
    pub turns: u64,
    /// How often it was asked for each kind of fault ([`crate::hazards`]).
    pub asked: BTreeMap<bloodhound_faults::Kind, u64>,
}

impl Task {
    /// The signals for which it sleeps in rt_sigtimedwait, or slept until it was woken and has not run since: they are not blocked as long (do_sigtimedwait).
    pub(crate) fn awaited_signals(&self) -> u64 {
        let call = match (&self.state, &self.woken) {
            (TaskState::Blocked(blocked), _) => blocked,
            (TaskState::Runnable, Some(woken)) => &woken.blocked,
            _ => return 0,
        };
        match call.progress {
            crate::wait::Progress::Signals(mask) => mask,
            _ => 0,
        }
    }

    /// A task about to run with `regs`.
    pub fn new(tid: Tid, pid: Pid, common: Common, credentials: Credentials, regs: Regs) -> Task {
        Task {
            tid,
            pid,
            common,
            regs,
            selectors: Selectors::default(),
            vectors: Vectors::INITIAL,
            state: TaskState::Runnable,
            woken: None,
            sigmask: 0,
            restore_mask: None,
            pending: Default::default(),
            credentials,
            no_new_privs: false,
            io_flusher: false,
            login: (NO_LOGIN, NO_LOGIN),
            nice: 0,
            policy: 0,
            priority: 0,
            reserved: [0; 3],
            persona: 0,
            memory_errors: (false, false),
            no_tsc: false,
            io_priority: 0,
            seccomp: Default::default(),
            pdeathsig: 0,
            timer_slack: TimerSlack::FIRST,
            altstack: StackT { flags: bloodhound_abi::consts::SS_DISABLE as i32, ..StackT::default() },
            undo: None,
            clear_child_tid: 0,
            robust_list: 0,
            comm: Vec::new(),
            vfork_parent: None,
            last_fault: None,
            exception: Exception::default(),
            cr2: 0,
            left: None,
            restart_deadline: None,
            io: IoAccount::default(),
            cpu: CpuTime::default(),
            lineage: Lineage::default(),
            children: 0,
            randoms: 0,
            turns: 0,
            asked: BTreeMap::new(),
        }
    }
}

//! A process: a thread group with its address space, file descriptors, credentials, signal actions and limits.

use std::collections::BTreeMap;
use std::sync::Arc;

use bloodhound_abi::Errno;
use bloodhound_abi::structs::{Rlimit, Siginfo};
use bloodhound_persistent::Map;

use crate::ids::*;
use crate::io_account::IoAccount;

/// One slot of a descriptor table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdEntry {
    /// The open file description.
    pub file: FileId,
    /// FD_CLOEXEC.
    pub cloexec: bool,
}

/// A descriptor table. Lowest free number first, as POSIX demands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FdTable {
    slots: Map<u32, FdEntry>,
    /// All numbers below this one are open: where the search for a free one begins, so that opening n files is not O(n^2).
    full_to: u32,
    /// For how many there has to be room since the table was made: one more than the highest that was open.
    used: u32,
}

impl FdTable {
    /// For how many descriptors there is room: what select(2) looks at. NR_OPEN_DEFAULT at first, then what alloc_fdtable of Linux
    /// makes of the highest that was open.
    pub(crate) fn room(&self) -> usize {
        const UNIT: u32 = 1024 / 8;
        match self.used {
            0..=64 => 64,
            used => (((used - 1) / UNIT + 1).next_power_of_two() * UNIT) as usize,
        }
    }

    /// The table of a new process, with room for what is open (dup_fd, count_open_files).
    pub(crate) fn forked(&self) -> FdTable {
        let highest = self.slots.iter().next_back().map_or(0, |(fd, _)| fd + 1);
        FdTable { used: highest.next_multiple_of(64), ..self.clone() }
    }

    /// The entry of `fd`.
    pub fn get(&self, fd: i32) -> Result<FdEntry, Errno> {
        u32::try_from(fd).ok().and_then(|fd| self.slots.get(&fd).copied()).ok_or(Errno::EBADF)
    }

    /// The entry of `fd`.
    pub fn get_mut(&mut self, fd: i32) -> Result<&mut FdEntry, Errno> {
        u32::try_from(fd).ok().and_then(|fd| self.slots.get_mut(&fd)).ok_or(Errno::EBADF)
    }

    /// Lowest free descriptor of at least `from`, or EMFILE at `limit`.
    pub fn lowest_free(&self, from: usize, limit: u64) -> Result<usize, Errno> {
        let from = u32::try_from(from).map_err(|_| Errno::EMFILE)?.max(self.full_to);
        let fd = self.first_free(from);
        if u64::from(fd) >= limit { Err(Errno::EMFILE) } else { Ok(fd as usize) }
    }

    /// Sets slot `fd`, returning what was there.
    pub fn set(&mut self, fd: usize, entry: FdEntry) -> Option<FdEntry> {
        let fd = u32::try_from(fd).expect("descriptors are below RLIMIT_NOFILE");
        let old = self.slots.insert(fd, entry);
        self.used = self.used.max(fd + 1);
        if fd == self.full_to {
            self.full_to = self.first_free(fd);
        }
        old
    }

    /// The first number from `from` on that is not open.
    fn first_free(&self, from: u32) -> u32 {
        let open = self.slots.range(from..).map(|(fd, _)| *fd);
        from + open.zip(from..).take_while(|(fd, expected)| fd == expected).count() as u32
    }

    /// Empties slot `fd`.
    pub fn take(&mut self, fd: i32) -> Result<FdEntry, Errno> {
        let fd = u32::try_from(fd).map_err(|_| Errno::EBADF)?;
        let entry = self.slots.remove(&fd).ok_or(Errno::EBADF)?;
        self.full_to = self.full_to.min(fd);
        Ok(entry)
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// All open descriptors in order.
    pub fn iter(&self) -> impl Iterator<Item = (i32, FdEntry)> + '_ {
        self.slots.iter().map(|(fd, entry)| (*fd as i32, *entry))
    }
}

/// Why a process is gone, as wait(2) tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExitStatus {
    /// exit(2) with this code.
    Code(u8),
    /// Killed by this signal.
    Signal {
        /// The signal.
        signo: u32,
        /// It would have left a core file.
        core: bool,
    },
}

impl ExitStatus {
    /// Whether a signal ended it that tells of an error in the program, and whose default action is a core dump (signal(7)). Whether one
    /// was made says nothing: containers have a limit of 0 for them.
    pub fn tells_of_error(self) -> bool {
        matches!(self, ExitStatus::Signal { signo, .. } if crate::signal::asks_for_core(signo))
    }

    /// The status word of wait(2).
    pub fn wait_word(self) -> u32 {
        match self {
            ExitStatus::Code(c) => u32::from(c) << 8,
            ExitStatus::Signal { signo, core } => signo | if core { 0x80 } else { 0 },
        }
    }
}

impl std::fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ExitStatus::Code(c) => write!(f, "exit code {c}"),
            ExitStatus::Signal { signo, .. } => write!(f, "killed by {}", crate::signal::name(*signo)),
        }
    }
}

/// A child's state change that its parent has not fetched yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildEvent {
    /// Stopped by the signal.
    Stopped(u32),
    /// Continued by SIGCONT.
    Continued,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: Pid,
    /// Its container.
    pub container: crate::container::ContainerId,
    /// It is a health check, or a child of one.
    pub is_check: bool,
    /// It is the script of a property, or a child of one.
    pub is_script: bool,
    /// Its parent; 0 for a root process of the node.
    pub ppid: Pid,
    /// The thread of the parent that made it, or was given it when its maker ended.
    pub parent_thread: Tid,
    /// Its place among the children of that thread: they are in the order in which they came to it.
    pub sibling: u64,
    /// Process group.
    pub pgid: Pid,
    /// When it came to that, in the order of all births and such changes.
    pub grouped: u64,
    /// Session.
    pub sid: Pid,
    /// Controlling terminal.
    pub tty: Option<PtyId>,
    /// The foreground process group of the terminal that has hung up on the session (tty_old_pgrp of Linux).
    pub tty_old_pgrp: Option<Pid>,
    /// Living threads in order of creation.
    pub threads: Vec<Tid>,
    /// Its address space.
    pub mm: MmId,
    /// Signal actions ([`Node::actions_of`](crate::node::Node::actions_of)).
    pub actions: ActionsId,
    /// Signals for the whole process.
    pub pending: crate::signal::Pending,
    /// Which thread was woken for a signal of the whole process: the others leave it to that one.
    pub takers: BTreeMap<u32, Tid>,
    /// The thread that was chosen last among several to take such a signal.
    pub chosen: Tid,
    /// Limits by RLIMIT_* number.
    pub limits: [Rlimit; 16],
    /// Set when the process is gone and its parent has not waited yet.
    pub zombie: Option<ExitStatus>,
    /// What its first thread had, once that has ended.
    pub first: crate::credentials::First,
    /// The filters of calls of its first thread, likewise: a listener is not hung up on before somebody has waited for the zombie.
    pub ended_filters: crate::seccomp::Seccomp,
    /// A signal that ends the process has found a thread that takes it: whichever of its threads runs next ends all of them
    /// (SIGNAL_GROUP_EXIT of complete_signal).
    pub fatal: Option<Siginfo>,
    /// It is the init of its namespace and takes no signal for which it has no handler (SIGNAL_UNKILLABLE).
    pub unkillable: bool,
    /// exit_group or a fatal signal is under way.
    pub exiting: Option<ExitStatus>,
    /// Signal for the parent at exit (0: none).
    pub exit_signal: u32,
    /// Unfetched stop or continue.
    pub event: Option<ChildEvent>,
    /// PR_SET_CHILD_SUBREAPER.
    pub subreaper: bool,
    /// What is kept of files in /proc/PID.
    pub knobs: crate::procfs::Knobs,
    /// Path of the executable.
    pub exe: Vec<u8>,
    /// What /proc/PID/auxv shows. Shared with children.
    pub auxv: Arc<Vec<u8>>,
    /// ITIMER_REAL: next expiry and interval in ns.
    pub itimer: Option<(bloodhound_abi::SimTime, u64)>,
    /// ITIMER_VIRTUAL and ITIMER_PROF: at which CPU time each expires, and its interval, in ns.
    pub cpu_timers: [Option<(u64, u64)>; 2],
    /// POSIX timers by id.
    pub timers: BTreeMap<i32, crate::timer::PosixTimer>,
    /// The number of the next one: numbers are not used again at once.
    pub next_timer: i32,
    /// Virtual time charged to this process.
    pub cpu: CpuTime,
    /// The same for waited-for children.
    pub children_cpu: CpuTime,
    /// What its tasks have read and written, ended ones too.
    pub io: IoAccount,
    /// The most pages that memory had which it has given back, by execve(2) or at its end.
    pub peak: u64,
    /// The largest such number of waited-for children and theirs.
    pub children_peak: u64,
    /// Virtual time of its start.
    pub started: bloodhound_abi::SimTime,
    /// Has called execve since fork (setpgid(2) asks).
    pub did_exec: bool,
    /// It is the init of [`Node::spawn_below_init`](crate::node::Node::spawn_below_init), which sleeps for good.
    pub sleeps_for_good: bool,
}

impl Process {
    /// Whether it is a part of its service, which faults may hit and triggers look at, and not somebody who looks at the service.
    pub fn is_of_service(&self) -> bool {
        !self.is_check && !self.is_script
    }

    /// The CPU time that a timer counts: that of the program itself for ITIMER_VIRTUAL (0), all of it for ITIMER_PROF (1).
    pub fn cpu_clock(&self, timer: usize) -> u64 {
        if timer == 0 { self.cpu.user() } else { self.cpu.total }
    }
}

/// Virtual time that was charged, ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// All of it.
    pub total: u64,
    /// That of code which computed without a call. Of the rest, the price of calls, half is the program's: what it did around them.
    pub computed: u64,
}

impl CpuTime {
    /// The program's own, as getrusage(2) and times(2) tell it.
    pub fn user(self) -> u64 {
        self.computed + (self.total - self.computed) / 2
    }

    /// The kernel's for it.
    pub fn system(self) -> u64 {
        self.total - self.user()
    }
}

impl std::ops::AddAssign for CpuTime {
    fn add_assign(&mut self, other: CpuTime) {
        self.total += other.total;
        self.computed += other.computed;
    }
}

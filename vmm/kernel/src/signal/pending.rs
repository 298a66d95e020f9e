//! Sets of pending signals, of tasks and of processes, and what is taken from them.
//!
//! Key type: [`Pending`]. Signals of timers have one entry each, however often the timer expires before it is taken: the timer counts
//! the others (`crate::timer`).

use std::collections::{BTreeMap, VecDeque};

use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Siginfo;

use super::bit;
use crate::ids::*;
use crate::node::Node;
use crate::process::Process;
use crate::task::TaskState;
use crate::wait::{Object, WaitOn};

/// A set of pending signals. "Standard signals do not queue" (signal(7)); real-time signals do, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    mask: u64,
    infos: BTreeMap<u32, VecDeque<Siginfo>>,
}

impl Pending {
    /// Pending signals as a mask.
    pub fn mask(&self) -> u64 {
        self.mask
    }

    /// How many are queued, without those of timers, which have been allocated before.
    pub fn queued(&self) -> u64 {
        let counted = |info: &&Siginfo| info.code != c::SI_TIMER as i32;
        self.infos.values().map(|queue| queue.iter().filter(counted).count() as u64).sum()
    }

    /// Adds a signal; false if a standard signal was pending already.
    pub fn add(&mut self, info: Siginfo) -> bool {
        if self.has_place_of(&info) {
            return false;
        }
        let signo = info.signo as u32;
        self.infos.entry(signo).or_default().push_back(info);
        self.mask |= bit(signo);
        true
    }

    /// Whether the only place that a signal could have is taken (legacy_queue). A timer has one signal of its own, which is queued beside others
    /// of the same number (send_sigqueue).
    pub fn has_place_of(&self, info: &Siginfo) -> bool {
        let signo = info.signo as u32;
        signo < 32 && self.mask & bit(signo) != 0 && info.code != c::SI_TIMER as i32
    }

    /// Takes the lowest-numbered signal in `of`, synchronous faults first as Linux does.
    pub fn take(&mut self, of: u64) -> Option<Siginfo> {
        const SYNCHRONOUS: u64 = (1 << (c::SIGSEGV - 1))
            | (1 << (c::SIGBUS - 1))
            | (1 << (c::SIGILL - 1))
            | (1 << (c::SIGTRAP - 1))
            | (1 << (c::SIGFPE - 1))
            | (1 << (c::SIGSYS - 1));
        let hits = self.mask & of;
        if hits == 0 {
            return None;
        }
        let first = if hits & SYNCHRONOUS != 0 { hits & SYNCHRONOUS } else { hits };
        let signo = first.trailing_zeros() + 1;
        let queue = self.infos.get_mut(&signo)?;
        let info = queue.pop_front()?;
        if queue.is_empty() {
            self.infos.remove(&signo);
            self.mask &= !bit(signo);
        }
        Some(info)
    }

    /// The queued signal of a POSIX timer.
    pub(crate) fn timer_mut(&mut self, signo: u32, id: i32) -> Option<&mut Siginfo> {
        let of_timer = |info: &&mut Siginfo| info.code == c::SI_TIMER as i32 && info.fields[0] as i32 == id;
        self.infos.get_mut(&signo)?.iter_mut().find(of_timer)
    }

    /// Drops every pending signal of `of`.
    pub fn discard(&mut self, of: u64) {
        self.mask &= !of;
        self.infos.retain(|s, _| of & bit(*s) == 0);
    }
}

impl Node {
    /// Takes a pending signal of `of`, of those of the task itself first (dequeue_signal).
    pub(crate) fn take_pending(&mut self, tid: Tid, of: u64) -> Option<Siginfo> {
        let pid = self.task(tid).pid;
        // "SIGKILL" is pending for each thread as well (complete_signal), and get_signal looks for it before all others.
        let killed = self.process(pid).pending.mask() & of & bit(c::SIGKILL as u32);
        let own = if killed == 0 { self.task_mut(tid).pending.take(of) } else { None };
        let mut info = match own {
            Some(info) => info,
            None if killed != 0 => self.process_mut(pid).pending.take(killed)?,
            None => self.process_mut(pid).pending.take(of)?,
        };
        if info.code == c::SI_TIMER as i32 {
            self.timer_signal_taken(pid, &mut info);
        }
        Some(info)
    }

    /// The thread that is to take a signal of a process that was named by one of its threads: that one if it would, or the first one that would
    /// from the one on that was chosen last (complete_signal, `curr_target`).
    pub(crate) fn choose_taker(&mut self, pid: Pid, named: Tid, signo: u32) -> Option<Tid> {
        let process = self.process(pid);
        let wants = |tid: &Tid| {
            let stopped = matches!(self.task(*tid).state, TaskState::Stopped);
            self.would_take(*tid, signo) && (!stopped || u64::from(signo) == c::SIGKILL)
        };
        if process.threads.contains(&named) && wants(&named) {
            return Some(named);
        }
        let from = process.threads.iter().position(|tid| *tid == process.chosen).unwrap_or(0);
        let found = process.threads[from..].iter().chain(&process.threads[..from]).copied().find(wants)?;
        self.process_mut(pid).chosen = found;
        Some(found)
    }

    /// Whether a thread does not block a signal, or waits for it.
    fn would_take(&self, tid: Tid, signo: u32) -> bool {
        self.task(tid).sigmask & bit(signo) == 0 || self.waits_for(tid, signo)
    }

    /// Whether a thread of a process sleeps until a signalfd has this signal.
    pub(crate) fn sleeps_at_signalfd(&self, pid: Pid, signo: u32) -> bool {
        let shows = |on: &WaitOn| match on {
            WaitOn::Object(Object::SignalFd(id)) => {
                self.signalfds.get(*id).is_some_and(|fd| fd.mask & bit(signo) != 0)
            }
            _ => false,
        };
        self.process(pid).threads.iter().any(|tid| match &self.task(*tid).state {
            TaskState::Blocked(blocked) => blocked.wait.on.iter().any(shows),
            _ => false,
        })
    }

    /// A thread has ended: the search for one that takes a signal goes on with the next one.
    pub(crate) fn pass_choice(&mut self, pid: Pid, ended: Tid) {
        let process = self.process_mut(pid);
        if process.chosen == ended {
            let at = process.threads.iter().position(|tid| *tid == ended).unwrap_or(0);
            process.chosen = process.threads[(at + 1) % process.threads.len()];
        }
    }

    /// Keeps which thread was woken for a signal of its process.
    pub(crate) fn set_taker(&mut self, pid: Pid, signo: u32, taker: Option<Tid>) {
        let takers = &mut self.process_mut(pid).takers;
        match taker {
            Some(tid) => takers.insert(signo, tid),
            None => takers.remove(&signo),
        };
    }

    /// The pending signals that a thread has to take as far as it does not block them: its own, and those of the process that are not
    /// left to another thread.
    pub(crate) fn due(&self, tid: Tid) -> u64 {
        let task = self.task(tid);
        let process = self.process(task.pid);
        let shared = process.pending.mask();
        // Nearly always nothing is pending, and this is asked at each step.
        if shared == 0 {
            return task.pending.mask();
        }
        task.pending.mask() | shared & !self.left_to_others(process, tid)
    }

    /// The pending signals of the process for which another thread was woken that does not block them, or waits for them: "If more than one of the threads
    /// has the signal unblocked, then the kernel chooses an arbitrary thread to which to deliver the signal" (signal(7)), and
    /// the others do not look for it (TIF_SIGPENDING is of one thread).
    fn left_to_others(&self, process: &Process, tid: Tid) -> u64 {
        let takes = |signo: u32, taker: Tid| {
            let task = self.tasks.get(&taker).filter(|task| task.pid == process.pid);
            taker != tid
                && task.is_some_and(|t| !matches!(t.state, TaskState::Stopped | TaskState::Dead))
                && self.would_take(taker, signo)
        };
        let pending = process.pending.mask();
        let left = process
            .takers
            .iter()
            .filter(|(signo, taker)| pending & bit(**signo) != 0 && takes(**signo, **taker));
        left.fold(0, |mask, (signo, _)| mask | bit(*signo))
    }

    /// Signals of the process that were this thread's to take until it blocked them or ended go to others (retarget_shared_pending).
    pub(crate) fn retarget(&mut self, tid: Tid, which: u64) {
        let process = self.process(self.task(tid).pid);
        let (pid, threads) = (process.pid, process.threads.clone());
        if threads.len() < 2 {
            return;
        }
        let lost = process.pending.mask() & which;
        for signo in (1..=64).filter(|signo| lost & bit(*signo) != 0) {
            if self.process(pid).takers.get(&signo) != Some(&tid) {
                continue;
            }
            // The one that was made after it, and so on.
            let at = threads.iter().position(|t| *t == tid).unwrap_or(0);
            let others = threads[at..].iter().chain(&threads[..at]).copied().filter(|t| *t != tid);
            let taker = others.into_iter().find(|t| self.would_take(*t, signo));
            self.set_taker(pid, signo, taker);
            if let Some(taker) = taker {
                self.kick(taker);
            }
        }
    }

    /// Whether a signal may be queued for a process, or another timer allocate its signal. RLIMIT_SIGPENDING: "the limit on the
    /// number of signals that may be queued for the real user ID of the calling process" (getrlimit(2)), of the receiver in fact
    /// (`__sigqueue_alloc` of Linux).
    pub(crate) fn may_queue(&self, pid: Pid) -> bool {
        let process = self.process(pid);
        let limit = process.limits[c::RLIMIT_SIGPENDING as usize].cur;
        let user = self.credentials_of(process).real_ids[0];
        let users = self.processes.values().filter(|p| self.credentials_of(p).real_ids[0] == user);
        let of_processes = users.map(|p| p.pending.queued() + p.timers.len() as u64).sum::<u64>();
        let tasks = self.tasks.values().filter(|task| task.credentials.real_ids[0] == user);
        of_processes + tasks.map(|task| task.pending.queued()).sum::<u64>() < limit
    }
}

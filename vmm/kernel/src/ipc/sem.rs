//! Semaphore sets (semop(2), semctl(2)): values, who waits for them, and what is undone when a process ends.

use std::collections::{BTreeMap, VecDeque};

use bloodhound_abi::Errno;

use crate::container::IpcNs;
use crate::ids::{Pid, Tid};
use crate::node::Node;
use crate::wait::Progress;

/// SEMVMX: the largest value of a semaphore.
pub const MAX_VALUE: i32 = 32767;
/// SEMAEM: the largest adjustment at a process's end.
const MAX_UNDO: i32 = 32767;

/// A semaphore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sem {
    /// Its value, 0 to [`MAX_VALUE`].
    pub value: i32,
    /// Who changed it last, or looked at it with success; none at first.
    pub pid: Option<Pid>,
}

/// `struct sembuf`: one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SemOp {
    /// Of which semaphore of the set.
    pub number: u16,
    /// What is added; 0: waits until the value is 0.
    pub add: i16,
    /// IPC_NOWAIT.
    pub no_wait: bool,
    /// SEM_UNDO.
    pub undo: bool,
}

/// The operations of a call that sleeps.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pending {
    tid: Tid,
    pid: Pid,
    ops: Vec<SemOp>,
    /// Which of them has to wait.
    blocking: usize,
}

/// A set of semaphores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SemSet {
    /// The semaphores.
    pub sems: Vec<Sem>,
    /// When operations last succeeded, seconds since 1970.
    pub otime: u64,
    pending: VecDeque<Pending>,
    /// What is added to a semaphore when a process ends.
    undo: BTreeMap<(Pid, u16), i32>,
}

/// What came of an attempt to carry out operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// All were carried out; `alters`: at least one changes a value.
    Done {
        /// Whether a value was changed.
        alters: bool,
    },
    /// This one has to wait; nothing was changed.
    Waits(usize),
    /// An error; nothing was changed.
    Failed(Errno),
}

impl SemSet {
    /// A set of so many semaphores of value 0.
    pub fn new(count: usize) -> SemSet {
        SemSet { sems: vec![Sem::default(); count], ..SemSet::default() }
    }

    /// Carries out operations for a process, all or none: "the set of operations contained in sops is performed in array order, and
    /// atomically" (semop(2)). Their numbers must be those of semaphores.
    pub fn attempt(&mut self, pid: Pid, ops: &[SemOp]) -> Tried {
        let mut values: BTreeMap<u16, i32> = BTreeMap::new();
        let mut undone: BTreeMap<u16, i32> = BTreeMap::new();
        for (at, op) in ops.iter().enumerate() {
            let add = i32::from(op.add);
            let value = values.entry(op.number).or_insert(self.sems[usize::from(op.number)].value);
            if add == 0 && *value != 0 || *value + add < 0 {
                return if op.no_wait { Tried::Failed(Errno::EAGAIN) } else { Tried::Waits(at) };
            }
            *value += add;
            if *value > MAX_VALUE {
                return Tried::Failed(Errno::ERANGE);
            }
            if op.undo {
                let before = self.undo.get(&(pid, op.number)).copied().unwrap_or_default();
                let undo = undone.entry(op.number).or_insert(before);
                *undo -= add;
                if *undo < -MAX_UNDO - 1 || *undo > MAX_UNDO {
                    return Tried::Failed(Errno::ERANGE);
                }
            }
        }
        for (number, value) in values {
            self.sems[usize::from(number)] = Sem { value, pid: Some(pid) };
        }
        for (number, undo) in undone {
            self.undo.insert((pid, number), undo);
        }
        Tried::Done { alters: ops.iter().any(|op| op.add != 0) }
    }

    /// A call sleeps until its operations can be carried out.
    pub fn wait(&mut self, (pid, tid): (Pid, Tid), ops: Vec<SemOp>, blocking: usize) {
        self.pending.push_back(Pending { tid, pid, ops, blocking });
    }

    /// Carries out what waits and can be, after values have changed: first those that wait for a zero, which change nothing, then the
    /// others in the order in which they came, and again from the first one after each change. Who is done, with which result.
    pub fn settle(&mut self, now: u64) -> Vec<(Tid, Result<(), Errno>)> {
        let mut done = Vec::new();
        'again: loop {
            for alters in [false, true] {
                let mut at = 0;
                while at < self.pending.len() {
                    if self.pending[at].ops.iter().any(|op| op.add != 0) != alters {
                        at += 1;
                        continue;
                    }
                    let Pending { pid, tid, ops, .. } = self.pending[at].clone();
                    match self.attempt(pid, &ops) {
                        Tried::Waits(blocking) => {
                            self.pending[at].blocking = blocking;
                            at += 1;
                            continue;
                        }
                        Tried::Failed(errno) => done.push((tid, Err(errno))),
                        Tried::Done { .. } => {
                            self.otime = now;
                            done.push((tid, Ok(())));
                        }
                    }
                    self.pending.remove(at);
                    if alters {
                        continue 'again;
                    }
                }
            }
            return done;
        }
    }

    /// How many calls wait for a semaphore: for its value to be 0, or to rise.
    pub fn waiting(&self, number: u16, for_zero: bool) -> u64 {
        let blocked = self.pending.iter().map(|pending| pending.ops[pending.blocking]);
        blocked.filter(|op| op.number == number && (op.add == 0) == for_zero).count() as u64
    }

    /// Who waits.
    pub fn waiters(&self) -> Vec<Tid> {
        self.pending.iter().map(|pending| pending.tid).collect()
    }

    /// A task does not wait any more.
    pub fn forget(&mut self, tid: Tid) {
        self.pending.retain(|pending| pending.tid != tid);
    }

    /// Sets the value of a semaphore: what processes would add to it at their end is forgotten.
    pub fn set(&mut self, pid: Pid, number: u16, value: i32) {
        self.sems[usize::from(number)] = Sem { value, pid: Some(pid) };
        self.undo.retain(|(_, of), _| *of != number);
    }

    /// A process ends: adds what it has promised to. Whether it had promised anything. Linux stops at the bounds of a value, which
    /// semop(2) names among its bugs.
    fn end(&mut self, pid: Pid) -> bool {
        let mine: Vec<((Pid, u16), i32)> =
            self.undo.range((pid, 0)..=(pid, u16::MAX)).map(|(key, add)| (*key, *add)).collect();
        for (key, add) in &mine {
            self.undo.remove(key);
            if *add != 0 {
                let value = (self.sems[usize::from(key.1)].value + add).clamp(0, MAX_VALUE);
                self.sems[usize::from(key.1)] = Sem { value, pid: Some(pid) };
            }
        }
        !mine.is_empty()
    }
}

impl Node {
    /// The values of a set have changed: whoever waited for that goes on.
    pub(crate) fn semaphores_changed(&mut self, ns: IpcNs, id: i32) {
        let now = self.realtime() / 1_000_000_000;
        let Some(set) = self.sysv.of(ns).sets.get_mut(id) else { return };
        for (tid, result) in set.item.settle(now) {
            self.semaphores_done(tid, result);
        }
    }

    /// A call that waits for semaphores has its result.
    pub(crate) fn semaphores_done(&mut self, tid: Tid, result: Result<(), Errno>) {
        self.ipc_complete(tid, |progress| *progress = Progress::Semaphores(Some(result)));
    }

    /// A process ends (SEM_UNDO).
    pub(crate) fn semaphores_undo(&mut self, pid: Pid) {
        let ns = self.container_of(pid).ipc;
        let Some(namespace) = self.sysv.get(ns) else { return };
        let theirs = |entry: &&super::Entry<SemSet>| entry.item.undo.keys().any(|(of, _)| *of == pid);
        let ids: Vec<i32> = namespace.sets.iter().filter(theirs).map(|entry| entry.id).collect();
        let now = self.realtime() / 1_000_000_000;
        for id in ids {
            if let Some(set) = self.sysv.of(ns).sets.get_mut(id)
                && set.item.end(pid)
            {
                set.item.otime = now;
                self.semaphores_changed(ns, id);
            }
        }
    }
}

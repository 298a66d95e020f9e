//! Semaphore sets (semop(2), semctl(2)): values, who waits for them, and what is undone when the last of those ends who have promised it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

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

/// A list of what is undone at an end (`struct sem_undo_list`): that of a task, or of several, which CLONE_SYSVSEM has made share it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct UndoList(u64);

/// Who carries out operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// The process.
    pub pid: Pid,
    /// What operations with SEM_UNDO are noted in; there is one where one of them is.
    pub list: Option<UndoList>,
}

/// The operations of a call that sleeps.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pending {
    tid: Tid,
    who: Who,
    ops: Vec<SemOp>,
    /// Which of them has to wait.
    blocking: usize,
}

impl Pending {
    /// Whether it changes a value.
    fn alters(&self) -> bool {
        self.ops.iter().any(|op| op.add != 0)
    }

    /// Whether it is more than one operation. As long as such a one waits, all that would change something stand in one queue
    /// (`pending_alter` of the set), and else in one for each semaphore.
    fn is_complex(&self) -> bool {
        self.ops.len() > 1
    }

    /// Whether it is one operation on this semaphore.
    fn is_of(&self, number: u16) -> bool {
        matches!(self.ops.as_slice(), [op] if op.number == number)
    }
}

/// Calls that are done, with their results.
type Done = Vec<(Tid, Result<(), Errno>)>;

/// A set of semaphores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SemSet {
    /// The semaphores.
    pub sems: Vec<Sem>,
    /// When operations last succeeded, seconds since 1970.
    pub otime: u64,
    pending: VecDeque<Pending>,
    /// What is added to a semaphore when the last task ends that has the list.
    undo: BTreeMap<(UndoList, u16), i32>,
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
    pub fn attempt(&mut self, who: Who, ops: &[SemOp]) -> Tried {
        let mut values: BTreeMap<u16, i32> = BTreeMap::new();
        let mut undone: BTreeMap<(UndoList, u16), i32> = BTreeMap::new();
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
            if op.undo
                && let Some(list) = who.list
            {
                let before = self.undo.get(&(list, op.number)).copied().unwrap_or_default();
                let undo = undone.entry((list, op.number)).or_insert(before);
                *undo -= add;
                if *undo < -MAX_UNDO - 1 || *undo > MAX_UNDO {
                    return Tried::Failed(Errno::ERANGE);
                }
            }
        }
        for (number, value) in values {
            self.sems[usize::from(number)] = Sem { value, pid: Some(who.pid) };
        }
        self.undo.extend(undone);
        Tried::Done { alters: ops.iter().any(|op| op.add != 0) }
    }

    /// A call sleeps until its operations can be carried out.
    pub fn wait(&mut self, (who, tid): (Who, Tid), ops: Vec<SemOp>, blocking: usize) {
        if ops.len() > 1 && !self.pending.iter().any(Pending::is_complex) {
            // The queues of the semaphores become one, each put before the one of the semaphore before it (merge_queues).
            self.pending.make_contiguous().sort_by_key(|one| one.ops.first().map(|op| Reverse(op.number)));
        }
        self.pending.push_back(Pending { tid, who, ops, blocking });
    }

    /// Carries out what waits and can be, after these operations were, or any value may have changed (do_smart_update). Who is done, with
    /// which result.
    pub fn settle(&mut self, changed: Option<&[SemOp]>, now: u64) -> Vec<(Tid, Result<(), Errno>)> {
        let mut done = Done::new();
        if self.pending.is_empty() {
            return done;
        }
        let complex = self.pending.iter().any(Pending::is_complex);
        self.settle_zeros(changed, &mut done);
        if complex {
            self.settle_queue(None, &mut done);
        } else {
            // Who waits for one semaphore waits for it to rise.
            let raised: Vec<u16> = match changed {
                Some(ops) => ops.iter().filter(|op| op.add > 0).map(|op| op.number).collect(),
                None => self.waited_for(),
            };
            for number in raised {
                self.settle_queue(Some(number), &mut done);
            }
        }
        if done.iter().any(|(_, result)| result.is_ok()) {
            self.otime = now;
        }
        done
    }

    /// The semaphores for which single operations wait, in order.
    fn waited_for(&self) -> Vec<u16> {
        let single = self.pending.iter().filter(|one| !one.is_complex());
        let numbers: BTreeSet<u16> = single.filter_map(|one| Some(one.ops.first()?.number)).collect();
        numbers.into_iter().collect()
    }

    /// Carries out what waits for zeros only, which changes no value: of the semaphores that have become 0, and if there is one also what
    /// waits for several (do_smart_wakeup_zero). Nobody else's operations are looked at again, nor which of them has to wait.
    fn settle_zeros(&mut self, changed: Option<&[SemOp]>, done: &mut Done) {
        let (numbers, mut found) = match changed {
            Some(ops) => (ops.iter().map(|op| op.number).collect(), false),
            None => (self.waited_for(), self.sems.iter().any(|sem| sem.value == 0)),
        };
        for number in numbers {
            if self.sems[usize::from(number)].value == 0 {
                found = true;
                self.settle_each(|one| one.is_of(number) && !one.alters(), done);
            }
        }
        if found {
            self.settle_each(|one| one.is_complex() && !one.alters(), done);
        }
    }

    /// Carries out those of some operations that can be.
    fn settle_each(&mut self, wanted: impl Fn(&Pending) -> bool, done: &mut Done) {
        let mut at = 0;
        while at < self.pending.len() {
            if !wanted(&self.pending[at]) || !self.settle_one(at, done) {
                at += 1;
            }
        }
    }

    /// Carries out what changes values, of the queue of one semaphore or of the common one, in the order in which it came, and again from
    /// the first one after each change (update_queue).
    fn settle_queue(&mut self, number: Option<u16>, done: &mut Done) {
        let mut at = 0;
        while at < self.pending.len() {
            // Nobody lowers what is 0.
            if number.is_some_and(|number| self.sems[usize::from(number)].value == 0) {
                return;
            }
            let one = &self.pending[at];
            if !one.alters() || number.is_some_and(|number| !one.is_of(number)) {
                at += 1;
                continue;
            }
            let (tid, ops) = (one.tid, one.ops.clone());
            let mut result = Done::new();
            if !self.settle_one(at, &mut result) {
                at += 1;
                continue;
            }
            // Whoever waits for a zero that this has made goes on before it.
            if result == [(tid, Ok(()))] {
                self.settle_zeros(Some(&ops), done);
                at = 0;
            }
            done.append(&mut result);
        }
    }

    /// Tries to carry out the operations at a place. Whether their call is done.
    fn settle_one(&mut self, at: usize, done: &mut Done) -> bool {
        let Pending { tid, who, ops, .. } = self.pending[at].clone();
        let result = match self.attempt(who, &ops) {
            Tried::Waits(blocking) => {
                self.pending[at].blocking = blocking;
                return false;
            }
            Tried::Failed(errno) => Err(errno),
            Tried::Done { .. } => Ok(()),
        };
        self.pending.remove(at);
        done.push((tid, result));
        true
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

    /// Whether anything was promised by a list.
    fn is_in(&self, list: UndoList) -> bool {
        self.undo.range((list, 0)..=(list, u16::MAX)).next().is_some()
    }

    /// The last task of a list ends, one of the process `pid`: adds what they have promised to. Linux stops at the bounds of a value,
    /// which semop(2) names among its bugs.
    fn end(&mut self, list: UndoList, pid: Pid) {
        let mine: Vec<((UndoList, u16), i32)> =
            self.undo.range((list, 0)..=(list, u16::MAX)).map(|(key, add)| (*key, *add)).collect();
        for (key, add) in &mine {
            self.undo.remove(key);
            if *add != 0 {
                let value = (self.sems[usize::from(key.1)].value + add).clamp(0, MAX_VALUE);
                self.sems[usize::from(key.1)] = Sem { value, pid: Some(pid) };
            }
        }
    }
}

impl Node {
    /// The values of a set have changed by these operations, or otherwise: whoever waited for that goes on.
    pub(crate) fn semaphores_changed(&mut self, ns: IpcNs, id: i32, changed: Option<&[SemOp]>) {
        let now = self.realtime() / 1_000_000_000;
        let Some(set) = self.sysv.of(ns).sets.get_mut(id) else { return };
        for (tid, result) in set.item.settle(changed, now) {
            self.semaphores_done(tid, result);
        }
    }

    /// A call that waits for semaphores has its result.
    pub(crate) fn semaphores_done(&mut self, tid: Tid, result: Result<(), Errno>) {
        self.ipc_complete(tid, |progress| *progress = Progress::Semaphores(Some(result)));
    }

    /// The list of a task, which is made if there is none (get_undo_list).
    pub(crate) fn undo_list(&mut self, tid: Tid) -> UndoList {
        let next = &mut self.sysv.lists;
        let task = self.tasks.get_mut(&tid);
        let mut new = || {
            *next += 1;
            UndoList(*next)
        };
        match task {
            Some(task) => *task.undo.get_or_insert_with(new),
            None => new(),
        }
    }

    /// A task ends, or keeps its list no longer: what the list has promised is done if nobody else has it (exit_sem).
    pub(crate) fn semaphores_undo(&mut self, tid: Tid) {
        let Some(task) = self.tasks.get_mut(&tid) else { return };
        let (pid, Some(list)) = (task.pid, task.undo.take()) else { return };
        if self.tasks.values().any(|other| other.undo == Some(list)) {
            return;
        }
        let ns = self.container_of(pid).ipc;
        let Some(namespace) = self.sysv.get(ns) else { return };
        let sets = namespace.sets.iter().filter(|entry| entry.item.is_in(list));
        let ids: Vec<i32> = sets.map(|entry| entry.id).collect();
        let now = self.realtime() / 1_000_000_000;
        for id in ids {
            let Some(set) = self.sysv.of(ns).sets.get_mut(id) else { continue };
            set.item.end(list, pid);
            set.item.otime = now;
            self.semaphores_changed(ns, id, None);
        }
    }
}

//! One step of one task: the platform runs the task until it traps, and the simulated kernel answers the trap.
//!
//! A step is a system call that completes or blocks, or an exception of the processor that becomes a signal. Traps for page faults, `cpuid`,
//! `rdtsc` and `xgetbv` are none: [`Machine::run_task`] answers them (design.md section 4). A task in a loop without side effects is parked ([`crate::spin`]).

use std::sync::Arc;

use bloodhound_abi::call::Call;
use bloodhound_abi::consts as c;
use bloodhound_abi::exception::vector;
use bloodhound_abi::structs::Siginfo;
use bloodhound_abi::{Access, Exception, Regs};
use bloodhound_kernel::ctx::Outside;
use bloodhound_kernel::dispatch::Outcome;
use bloodhound_kernel::ids::{MmId, Pid, Tid};
use bloodhound_kernel::mm::PAGE;
use bloodhound_kernel::node::MachineId;
use bloodhound_kernel::signal::fault_info;
use bloodhound_kernel::task::TaskState;
use bloodhound_platform::{Mapping, Platform, Prot, SpaceId, Stops, TaskKey, Trap};

use crate::breakpoints::Watched;
use crate::computing::suspect::Next;
use crate::computing::{Counting, Suspicion};
use crate::event::Event;
use crate::machine::{Machine, MachineError};
use crate::spin::Progress;
use crate::world::{FindingKind, MARK, World};

/// How the platform names a task.
pub(crate) fn key(node: MachineId, tid: Tid) -> TaskKey {
    TaskKey((u64::from(node.0) << 32) | u64::from(tid.0))
}

/// Why [`Machine::run_task`] stopped running a task.
pub(crate) enum Ran {
    /// The task made a system call, which stands in its registers; the kernel has not answered it yet.
    Syscall,
    /// The task raised an exception, for which this signal is now pending.
    Fault(u32),
    /// The task is in a loop without side effects. `still`: it was parked in this loop before, and has only gone round the loop
    /// since then, so it has changed nothing.
    Parked { still: bool },
    /// The task needs something that the simulation does not model; what, in words.
    Unsupported(String),
    /// The task has computed for too long without a trap. It made no step, and the run is given up without a verdict.
    Undecided,
    /// The host asked the run to stop. The task made no step.
    Interrupted,
    /// The task has passed the branch at this address so often that others get their turn ([`crate::computing`]).
    Preempted(u64, u8),
    /// The task is at an instruction at which it gives way to others ([`crate::switches`]).
    Switched { torn: bool },
    /// The task has computed for long and is to be looked at from its last trap on. The run ends.
    Suspect(Suspicion),
}

impl Machine {
    /// Makes one step on node `id`. True if the machine loop has to look at the other nodes or at the end of the run before it
    /// makes the node's next step: packets were sent, or the run is over.
    pub(crate) fn step(&mut self, id: MachineId) -> Result<bool, MachineError> {
        let World { nodes, scheduler, decisions, .. } = &mut self.world;
        let node = Arc::make_mut(nodes.get_mut(&id).unwrap_or_else(|| panic!("no node {id:?}")));
        if node.next_deadline().is_some_and(|d| d <= node.clock) {
            node.on_time();
        }
        let Some(tid) = scheduler.pick(node, decisions) else { return Ok(self.node_changed(id)) };
        let pid = node.task(tid).pid;
        if let Some(meter) = &mut self.meter {
            let check = node.process(pid).is_check;
            if check != self.metered {
                self.metered = check;
                meter(check);
            }
        }
        let (call, outcome) = if let Some(woken) = &node.task(tid).woken {
            let call = woken.blocked.call;
            let mut parts = self.parts(id);
            let (node, mut outside) = parts.split();
            (Some(call), node.resume_syscall(tid, &mut outside))
        } else {
            if !self.return_to_user(id, tid)? {
                return Ok(self.node_changed(id));
            }
            match self.run_task(id, tid)? {
                Ran::Syscall => {
                    self.world.computing.trapped(id, tid);
                    if self.fault_triggers_hold(id, pid, tid) {
                        return Ok(true);
                    }
                    let (call, outcome) = self.enter(id, tid)?;
                    (Some(call), outcome)
                }
                Ran::Fault(signo) => {
                    self.world.computing.trapped(id, tid);
                    // Virtual time has to advance although a handler may return to the instruction, and fault for ever.
                    let node = self.world.node_mut(id);
                    node.charge(tid, node.config.costs.syscall);
                    self.record(id, pid, &Event::Exception { pid, tid, signo });
                    return Ok(self.node_changed(id));
                }
                Ran::Parked { still } => return Ok(self.park(id, tid, still)),
                Ran::Preempted(address, straight) => {
                    return Ok(self.preempt(id, tid, (address, straight)));
                }
                Ran::Switched { torn } => return Ok(self.switch(id, tid, torn)),
                Ran::Suspect(suspicion) => {
                    self.suspicion = Some(suspicion);
                    return Ok(true);
                }
                Ran::Unsupported(what) => (None, Outcome::Unsupported(what)),
                Ran::Interrupted | Ran::Undecided => return Ok(true),
            }
        };
        let outcome = self.hand_over(id, tid, outcome);
        let fatal = matches!(outcome, Outcome::Unsupported(_));
        self.conclude(id, (pid, tid), call, outcome);
        self.test_modes(id)?;
        Ok(self.node_changed(id) || fatal)
    }

    /// Parks a task that loops without side effects: it leaves the run queue until something on its node changes. Returns the
    /// same as [`Machine::step`].
    fn park(&mut self, id: MachineId, tid: Tid, still: bool) -> bool {
        self.world.computing.parked();
        let node = self.world.node_mut(id);
        let cost = node.config.costs.syscall;
        // The task may have read the clock through the vDSO on its way into the loop. Each such read advances the clock.
        node.take_clock(tid);
        let sent = if still {
            // The task changed nothing, so the other parked tasks are not woken. If they were, each would be probed in vain and
            // parked again, and would wake this task in turn: that would go on for ever without virtual time advancing.
            self.take_output(id)
        } else {
            // What the task wrote to memory on its way into the loop may be what other parked tasks wait for, so they are woken.
            // Parking is charged as virtual time: tasks that wake each other through memory alone (each passes a token on and
            // waits in a loop to get it back) make no steps, and virtual time has to advance all the same.
            node.charge(tid, cost);
            self.node_changed(id)
        };
        // After `node_changed`, which wakes all parked tasks of the node: this task must not be woken by its own writes.
        let World { scheduler, nodes, .. } = &mut self.world;
        if let Some(node) = nodes.get_mut(&id) {
            scheduler.park(Arc::make_mut(node), tid);
        }
        sent
    }

    /// Delivers signals to the task before it runs. False if the task does not go back to user code.
    fn return_to_user(&mut self, id: MachineId, tid: Tid) -> Result<bool, MachineError> {
        let node = &self.world.nodes[&id];
        let task = node.task(tid);
        // Signals that are blocked by the present mask and also by the mask that is restored at the end of a sigsuspend(2).
        let blocked = task.sigmask & task.restore_mask.unwrap_or(task.sigmask);
        if node.pending_for(tid) & !blocked != 0 {
            // A signal may be delivered now, and its frame holds the vector registers: read them from the platform.
            self.fetch_vectors(id, tid)?;
        }
        let mut parts = self.parts(id);
        let (node, mut outside) = parts.split();
        Ok(node.before_user(tid, &mut outside))
    }

    /// Lets the kernel execute the system call that stands in the task's registers.
    fn enter(&mut self, id: MachineId, tid: Tid) -> Result<(Call, Outcome), MachineError> {
        let regs = &self.world.nodes[&id].task(tid).regs;
        let call = Call::decode(regs.orig_rax, regs.syscall_args());
        if matches!(call, Call::clone { .. } | Call::clone3 { .. } | Call::fork {} | Call::vfork {}) {
            // The child begins with a copy of its parent's vector registers: read them from the platform.
            self.fetch_vectors(id, tid)?;
        }
        let mut parts = self.parts(id);
        parts.trap(tid, &call);
        let (node, mut outside) = parts.split();
        Ok((call, node.syscall(tid, call, &mut outside)))
    }

    /// Records the result of a system call, or the finding that something is not modelled. A call that blocks has no result yet.
    fn conclude(&mut self, id: MachineId, (pid, tid): (Pid, Tid), call: Option<Call>, outcome: Outcome) {
        let result = match outcome {
            Outcome::Done(value) => value,
            Outcome::Blocked => return,
            Outcome::Exited | Outcome::NoReturn => 0,
            Outcome::Unsupported(what) => {
                let text = self.unsupported_text(id, tid, call.as_ref(), &what);
                let container = self.world.nodes[&id].container_of_any(pid).id;
                self.find(FindingKind::Unsupported, Some(container), text);
                return;
            }
        };
        if let Some(call) = &call {
            self.record(id, pid, &Event::Call { pid, tid, call, result });
            self.fault_triggers_see(id, pid, call.name());
        }
    }

    /// Counts a step and passes its event to the recorder. Every [`MARK`] steps the digest of the world is kept.
    pub(crate) fn record(&mut self, id: MachineId, pid: Pid, event: &Event<'_>) {
        self.world.steps += 1;
        let node = &self.world.nodes[&id];
        let (at, container) = (node.clock, node.container_of_any(pid).id);
        self.recorder().tell(at, Some(container), event);
        let world = &mut self.world;
        if world.steps.is_multiple_of(MARK) {
            Arc::make_mut(&mut world.marks).push(world.digest);
        }
    }

    /// Makes the platform ready to run the task: removes mappings that are out of date from the task's address space, and loads
    /// the task's vector registers.
    fn load(&mut self, id: MachineId, tid: Tid, space: SpaceId, mm: MmId) -> Result<(), MachineError> {
        if self.spaces.touch(space.0) {
            self.make_room()?;
            self.platform.reset_space(space);
            self.code.forget(space.0);
            self.forget_watched(space);
            self.inherit(id, space, mm);
        }
        let arc = self.world.nodes.get_mut(&id).unwrap_or_else(|| panic!("no node {id:?}"));
        let node = Arc::make_mut(arc);
        let mut changes = false;
        for (addr, len) in node.mms[mm].invalid.drain(..) {
            changes |= self.platform.memory(space).is_some_and(|shown| shown.touches(addr, len));
            self.platform.unmap(space, addr, len);
        }
        if std::mem::take(&mut node.mms[mm].protect) {
            self.platform.write_protect(space);
        }
        if changes {
            // The platform has to change its mappings anyway.
            self.map_ahead(id, tid, (mm, space));
        }
        self.load_vectors(id, tid, space)
    }

    /// Runs the task until it comes to a step, or until it is known to make none for now. Traps that are no steps (page faults,
    /// and instructions that are answered for the program) are answered here, and the task runs on.
    fn run_task(&mut self, id: MachineId, tid: Tid) -> Result<Ran, MachineError> {
        let node = &self.world.nodes[&id];
        let mm = node.process(node.task(tid).pid).mm;
        let space = SpaceId(node.mms[mm].space);
        // Publishes the clock in the page from which the vDSO reads it. This may replace the frame of that page, so it comes
        // before `load`, which removes the mapping of the old frame.
        self.world.node_mut(id).lend_clock();
        self.put_back(id, tid);
        self.load(id, tid, space, mm)?;
        let Counting { mut stops, search } = self.stops(id, tid, mm);
        let pending = self.add_switches(id, tid, mm, &mut stops);
        self.begin_watch(id, mm);
        let ran = if let Some(depth) = search {
            self.run_and_look(id, tid, (mm, space), depth, &mut stops)?
        } else {
            self.add_profile(id, tid, mm, &mut stops);
            self.platform.show(space, &stops);
            self.run_to_stop(id, tid, (mm, space), &mut stops)?
        };
        self.give_back_passes(&mut stops);
        let due = self.count_switches(&pending, &stops);
        self.take_back_profile(&mut stops);
        self.end_watch(id, tid, &ran);
        Ok(crate::switches::judged(due, ran))
    }

    /// See [`Machine::run_task`].
    pub(crate) fn run_to_stop(
        &mut self,
        id: MachineId,
        tid: Tid,
        (mm, space): (MmId, SpaceId),
        stops: &mut Stops,
    ) -> Result<Ran, MachineError> {
        let regs = self.world.nodes[&id].task(tid).regs;
        let parked = self.world.scheduler.take_probe(id, tid);
        self.spin.begin(parked.then_some(regs));
        loop {
            // Asked here as well as in the machine loop: a program that only computes or only reads clocks makes no steps, so
            // control does not return to the machine loop.
            if self.interrupted() {
                self.world.node_mut(id).take_clock(tid);
                return Ok(Ran::Interrupted);
            }
            let mut regs = self.world.nodes[&id].task(tid).regs;
            if self.suspect_at.is_some() {
                let doubt = self.suspect_by_steps(id, tid, space, &mut regs);
                let doubt = self.host(doubt)?;
                match self.doubt(id, tid, (mm, space), doubt, &mut regs)? {
                    Next::Ran(ran) => return Ok(ran),
                    Next::Again => continue,
                    Next::On | Next::GiveUp => {}
                }
            }
            let mut watched = Watched::new(&mut self.platform, self.breakpoints.as_mut(), &self.world);
            let progress = self.spin.run(&mut watched, space, key(id, tid), &mut regs, stops);
            match self.host(progress)? {
                Progress::Trap(Trap::StopPoint { address }) => {
                    self.keep(id, tid, &regs);
                    if self.profiled(id, tid, mm, &regs, stops) {
                        continue;
                    }
                    self.world.node_mut(id).take_clock(tid);
                    return Ok(Ran::Preempted(address, 0));
                }
                Progress::Trap(trap) => {
                    if let Some(ran) = self.trap(id, tid, mm, space, trap, &mut regs)? {
                        self.world.node_mut(id).take_clock(tid);
                        return Ok(ran);
                    }
                }
                Progress::Parked { still } => {
                    self.keep(id, tid, &regs);
                    return Ok(Ran::Parked { still });
                }
                Progress::Computing { for_long, ticks } => {
                    let doubt = self.suspect((id, tid, space), ticks, stops, &mut regs);
                    let doubt = self.host(doubt)?;
                    let for_long = match self.doubt(id, tid, (mm, space), doubt, &mut regs)? {
                        Next::Ran(ran) => return Ok(ran),
                        Next::Again => continue,
                        Next::GiveUp => true,
                        Next::On => for_long,
                    };
                    self.keep(id, tid, &regs);
                    self.watch_computing();
                    if self.computes(id, tid, for_long) {
                        return Ok(Ran::Undecided);
                    }
                }
            }
        }
    }

    /// Stores registers that the platform returned in the task.
    pub(crate) fn keep(&mut self, id: MachineId, tid: Tid, regs: &Regs) {
        self.world.node_mut(id).task_mut(tid).regs = *regs;
    }

    /// Answers a trap. `None`: the trap was no step, and the task runs on.
    pub(crate) fn trap(
        &mut self,
        id: MachineId,
        tid: Tid,
        mm: MmId,
        space: SpaceId,
        trap: Trap,
        regs: &mut Regs,
    ) -> Result<Option<Ran>, MachineError> {
        Ok(match trap {
            Trap::Rdtsc { .. } | Trap::Cpuid | Trap::Xgetbv => return self.answer(id, tid, trap, regs),
            Trap::PageFault { addr, access: Some(Access::Write), rip }
                if self.world.nodes[&id].stores_into_its_own_code(mm, addr, rip) =>
            {
                self.keep(id, tid, regs);
                return self.store_into_own_code(id, tid, (mm, space), addr, regs);
            }
            Trap::PageFault { addr, access, .. } => {
                self.keep(id, tid, regs);
                self.page_fault(id, tid, (mm, space), addr, access)
            }
            Trap::Syscall => {
                self.keep(id, tid, regs);
                Some(Ran::Syscall)
            }
            Trap::Step => {
                self.keep(id, tid, regs);
                Some(self.trace_trap(id, tid, regs))
            }
            Trap::Exception(exception) => {
                self.keep(id, tid, regs);
                Some(self.exception(id, tid, exception)?)
            }
            Trap::Unsupported(what) => {
                self.keep(id, tid, regs);
                Some(Ran::Unsupported(what.to_string()))
            }
            // Neither gets here, since the callers answer them.
            Trap::BudgetSpent | Trap::StopPoint { .. } | Trap::KeptPoint { .. } => None,
        })
    }

    /// Executes one instruction that stores to address `addr`, in the page that the instruction itself lies in, where this page
    /// is patched ([`Node::stores_into_its_own_code`]): to make some instructions trap, the processor executes a patched copy of
    /// the page instead of the program's own bytes. A patched page is never mapped writable and executable at once, so the
    /// instruction would fault for ever. For this one instruction the program's own, unpatched bytes are mapped, writable and
    /// executable. That is safe, as the instruction is none of those that patches make trap: those store nothing to memory.
    /// Afterwards the page is unmapped; when it is executed the next time it faults, and is patched anew.
    fn store_into_own_code(
        &mut self,
        id: MachineId,
        tid: Tid,
        (mm, space): (MmId, SpaceId),
        addr: u64,
        regs: &mut Regs,
    ) -> Result<Option<Ran>, MachineError> {
        let mut open = vec![addr & !(PAGE - 1)];
        let outcome = loop {
            if let Some(ran) = self.open_for_one_store(id, tid, (mm, space), &open) {
                break Some(ran);
            }
            let stepped = self.watched().step(space, key(id, tid), regs);
            let trap = self.host(stepped)?;
            self.keep(id, tid, regs);
            match trap {
                Trap::Step => break self.single_step(id, tid, regs),
                // The instruction crosses a page boundary and stores into the other one of its two pages as well.
                Trap::PageFault { addr, access: Some(Access::Write), rip }
                    if self.world.nodes[&id].stores_into_its_own_code(mm, addr, rip)
                        && !open.contains(&(addr & !(PAGE - 1))) =>
                {
                    open.push(addr & !(PAGE - 1));
                }
                Trap::PageFault { addr, access, .. } => {
                    if let Some(ran) = self.page_fault(id, tid, (mm, space), addr, access) {
                        break Some(ran);
                    }
                }
                Trap::BudgetSpent => {}
                other => break self.trap(id, tid, mm, space, other, regs)?,
            }
        };
        for page in open {
            self.platform.unmap(space, page, PAGE);
        }
        Ok(outcome)
    }

    /// Maps the pages `open` with the program's own, unpatched bytes, writable and executable. `Some` if one of them cannot be
    /// written by the program, which gets a signal then.
    fn open_for_one_store(
        &mut self,
        id: MachineId,
        tid: Tid,
        (mm, space): (MmId, SpaceId),
        open: &[u64],
    ) -> Option<Ran> {
        for page in open {
            if let Some(ran) = self.page_fault(id, tid, (mm, space), *page, Some(Access::Write)) {
                return Some(ran);
            }
            let frame = self.world.nodes[&id].mms[mm].pages.get(page / PAGE)?.offset();
            let mapping = Mapping { addr: *page, frame_offset: frame, pages: 1, prot: Prot::RWX };
            self.platform.map(space, &[mapping]);
        }
        None
    }

    /// Gives the task the SIGTRAP of a single step that the program asked for by its trap flag.
    pub(crate) fn trace_trap(&mut self, id: MachineId, tid: Tid, regs: &Regs) -> Ran {
        let info = fault_info(c::SIGTRAP as u32, c::TRAP_TRACE as i32, regs.rip);
        self.fault_signal(id, tid, info, Exception::at(vector::DB, regs.rip))
    }

    /// Turns an exception of the processor into the signal that Linux makes of it.
    pub(crate) fn exception(
        &mut self,
        id: MachineId,
        tid: Tid,
        exception: Exception,
    ) -> Result<Ran, MachineError> {
        if matches!(exception.vector, vector::MF | vector::XM) {
            // The code of the signal names the kind of floating-point error, which stands in the x87 and SSE status registers.
            self.fetch_vectors(id, tid)?;
        }
        let task = self.world.nodes[&id].task(tid);
        let initial = bloodhound_platform::XState::initial();
        let code = exception.si_code(|| match task.vectors.held() {
            Some(state) => state.as_slice(),
            None => initial.area(),
        });
        let info = fault_info(exception.signal(), code, exception.address);
        Ok(self.fault_signal(id, tid, info, exception))
    }

    pub(crate) fn fault_signal(
        &mut self,
        id: MachineId,
        tid: Tid,
        info: Siginfo,
        exception: Exception,
    ) -> Ran {
        self.world.node_mut(id).force_fault(tid, info, exception);
        Ran::Fault(info.signo as u32)
    }

    /// The stress modes of the test suite, none of which may change a digest.
    fn test_modes(&mut self, id: MachineId) -> Result<(), MachineError> {
        let (modes, steps) = (self.modes, self.world.steps);
        let due = |every: u64| every > 0 && steps % every == 0;
        if due(modes.clone_every) {
            // The run goes on with the copy. The original is kept until the next copy is made, as a campaign keeps a world to
            // which it returns. Meanwhile all frames belong to both worlds, so each write has to copy its frame first.
            let copy = self.snapshot()?;
            self.kept = Some(self.restore(copy));
        }
        if due(modes.evict_every) {
            self.detach()?;
            self.platform.evict_all();
            self.code.forget_all();
            self.spaces.clear();
            let copy = self.world.clone();
            self.kept = None;
            self.restore(copy);
        }
        if due(modes.spurious_every) {
            self.wake_for_nothing(id);
        }
        Ok(())
    }

    /// Wakes the sleeping tasks of a copy of the node although nothing happened that they wait for. Asserts that each blocks
    /// again, and that nothing of the node has changed, its clock included.
    fn wake_for_nothing(&mut self, id: MachineId) {
        let before = &self.world.nodes[&id];
        let mut node = (**before).clone();
        let mut decisions = self.world.decisions.clone();
        let sleepers: Vec<(Tid, Call)> = node
            .tasks
            .values()
            // Left out: tasks with a pending signal that they do not block. A signal for the process may be pending while another
            // thread is about to take it; a thread that wakes would see it, and its call would end instead of blocking again.
            .filter(|t| node.pending_for(t.tid) & !t.sigmask == 0)
            .filter_map(|t| match &t.state {
                TaskState::Blocked(blocked) => Some((t.tid, blocked.call)),
                _ => None,
            })
            .collect();
        for (tid, call) in sleepers {
            node.wake_spuriously(tid);
            let outcome = node.resume_syscall(tid, &mut Outside::new(self.base.as_mut(), &mut decisions));
            assert_eq!(outcome, Outcome::Blocked, "a spurious wake ended {call:?} of task {}", tid.0);
            let differ = node.differences(before);
            assert!(
                differ.is_empty(),
                "a spurious wake of task {} in {call:?} changed {differ:?} of the node; the task was {:?} and is {:?}",
                tid.0,
                before.task(tid).state,
                node.task(tid).state
            );
        }
    }
}

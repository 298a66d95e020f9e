//! What entries of a schedule wait for: a line of a service, or a system call that it makes.
//!
//! Key types: [`Trigger`] (when an entry begins), [`Waiting`] (one whose trigger has not come), [`Patterns`] (compiled expressions). Neighbours:
//! `schedule` has the entries; the machine tells of calls and output.

use std::collections::BTreeMap;

use bloodhound_abi::SimTime;
use bloodhound_abi::call::Call;
use bloodhound_kernel::file::Console;
use bloodhound_kernel::ids::{Pid, Tid};
use bloodhound_kernel::node::{ConsoleChunk, MachineId};
use bloodhound_net::NodeId;
use regex::bytes::Regex;

use super::{Names, Planned, plan};
use crate::machine::Machine;
use crate::world::Phase;

/// Most bytes of a line that a trigger looks at.
const LINE: usize = 64 << 10;

/// When an entry begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// So long after faults can begin, ns.
    At(u64),
    /// When a service has written a line that contains a text.
    Line {
        /// Which.
        node: NodeId,
        /// What stands in it.
        text: String,
        /// The number of the line among those, from 1.
        nth: u64,
        /// So much later, ns.
        after: u64,
    },
    /// When a service has written a line that a regular expression matches.
    Pattern {
        /// Which.
        node: NodeId,
        /// The expression.
        pattern: String,
        /// The number of the line among those, from 1.
        nth: u64,
        /// So much later, ns.
        after: u64,
    },
    /// When a system call of a service has returned.
    Call {
        /// Which.
        node: NodeId,
        /// The name of the call.
        call: String,
        /// Its number among those, from 1.
        nth: u64,
        /// So much later, ns.
        after: u64,
    },
    /// When a service is about to make a system call: it makes it when the fault has begun.
    Enter {
        /// Which.
        node: NodeId,
        /// The name of the call.
        call: String,
        /// Its number among those, from 1.
        nth: u64,
        /// So much later, ns.
        after: u64,
    },
    /// At an operation that the kind could hit, or a question to the name server, of the service: its number from 1. Such an entry is in no
    /// plan.
    Nth(u64),
}

impl Trigger {
    /// In words; nothing for a time.
    pub fn describe(&self, name: Names<'_>) -> Option<String> {
        let later = |after: u64| match after {
            0 => String::new(),
            ns => format!("{} ms after ", ns / 1_000_000),
        };
        match self {
            Trigger::At(_) | Trigger::Nth(_) => None,
            Trigger::Line { node, text, nth, after } => {
                Some(format!("{}line {nth} of {} with {text:?}", later(*after), name(*node)))
            }
            Trigger::Pattern { node, pattern, nth, after } => {
                Some(format!("{}line {nth} of {} like /{pattern}/", later(*after), name(*node)))
            }
            Trigger::Call { node, call, nth, after } => {
                Some(format!("{}call {nth} of {call} by {}", later(*after), name(*node)))
            }
            Trigger::Enter { node, call, nth, after: 0 } => {
                Some(format!("before call {nth} of {call} by {}", name(*node)))
            }
            Trigger::Enter { node, call, nth, after } => {
                Some(format!("{}the beginning of call {nth} of {call} by {}", later(*after), name(*node)))
            }
        }
    }

    /// How much later than what it waits for it comes, ns.
    fn after(&self) -> u64 {
        match self {
            Trigger::Line { after, .. }
            | Trigger::Pattern { after, .. }
            | Trigger::Call { after, .. }
            | Trigger::Enter { after, .. } => *after,
            Trigger::At(_) | Trigger::Nth(_) => 0,
        }
    }
}

/// Regular expressions that were compiled. Whether one matches is a function of it and the line, so this is no part of the world.
#[derive(Clone, Debug, Default)]
pub(crate) struct Patterns(BTreeMap<String, Option<Regex>>);

impl Patterns {
    /// Whether an expression matches a line, without what ends the line. One that is none matches nothing: the configuration refuses it.
    fn matches(&mut self, pattern: &str, line: &[u8]) -> bool {
        if !self.0.contains_key(pattern) {
            self.0.insert(pattern.to_owned(), Regex::new(pattern).ok());
        }
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.0.get(pattern).and_then(Option::as_ref).is_some_and(|regex| regex.is_match(line))
    }
}

/// An entry whose trigger has not come.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    trigger: Trigger,
    /// How often it has come so far.
    seen: u64,
    /// The line that the service has begun to write, on standard output and error.
    lines: [Vec<u8>; 2],
    entry: Planned,
}

impl Waiting {
    /// One that has not seen anything.
    pub(super) fn new(trigger: &Trigger, entry: Planned) -> Waiting {
        Waiting { trigger: trigger.clone(), seen: 0, lines: Default::default(), entry }
    }

    /// Whether a call of this name by the node is the one; it is counted. `begins`: it begins, or else it has returned.
    fn sees(&mut self, by: NodeId, name: &str, begins: bool) -> bool {
        let (node, call, nth) = match &self.trigger {
            Trigger::Enter { node, call, nth, .. } if begins => (node, call, nth),
            Trigger::Call { node, call, nth, .. } if !begins => (node, call, nth),
            _ => return false,
        };
        let counts = *node == by && call == name;
        self.seen += u64::from(counts);
        counts && self.seen == *nth
    }

    /// Whether the line is among these bytes of the service; lines are counted.
    fn reads(&mut self, chunk: &ConsoleChunk, patterns: &mut Patterns) -> bool {
        let (Trigger::Line { node, nth, .. } | Trigger::Pattern { node, nth, .. }) = &self.trigger else {
            return false;
        };
        if *node != chunk.container {
            return false;
        }
        let line = &mut self.lines[usize::from(matches!(chunk.stream, Console::Err))];
        for piece in chunk.bytes.split_inclusive(|byte| *byte == b'\n') {
            line.extend_from_slice(&piece[..piece.len().min(LINE - line.len().min(LINE))]);
            if piece.ends_with(b"\n") {
                self.seen += u64::from(match &self.trigger {
                    Trigger::Line { text, .. } => contains(line, text.as_bytes()),
                    Trigger::Pattern { pattern, .. } => patterns.matches(pattern, line),
                    _ => false,
                });
                line.clear();
                if self.seen >= *nth {
                    return true;
                }
            }
        }
        false
    }
}

fn contains(line: &[u8], text: &[u8]) -> bool {
    text.is_empty() || line.windows(text.len()).any(|window| window == text)
}

impl Machine {
    /// A system call has returned: an entry may have waited for it. Those of checks do not count.
    #[inline]
    pub(crate) fn fault_triggers_see(&mut self, id: MachineId, pid: Pid, name: &str) {
        if !self.world.faults.waiting.is_empty() {
            let node = &self.world.nodes[&id];
            let (by, clock) = (node.container_of_any(pid).id, node.clock);
            if node.processes.get(&pid).is_some_and(|process| !process.is_of_service()) {
                return;
            }
            self.trigger(clock, |waiting| waiting.sees(by, name, false));
        }
    }

    /// A task is about to make a system call: an entry may have waited for it, whose fault begins first. True if the task is to be left alone
    /// until then: it stands before its call again.
    #[inline]
    pub(crate) fn fault_triggers_hold(&mut self, id: MachineId, pid: Pid, tid: Tid) -> bool {
        let faults = &self.world.faults;
        (!faults.waiting.is_empty() || !faults.held.is_empty()) && self.hold(id, pid, tid)
    }

    #[cold]
    fn hold(&mut self, id: MachineId, pid: Pid, tid: Tid) -> bool {
        // It was held before this call, which is counted.
        if self.world.faults.held.remove(&(id, tid)) {
            return false;
        }
        let node = &self.world.nodes[&id];
        let (by, clock) = (node.container_of_any(pid).id, node.clock);
        if node.processes.get(&pid).is_some_and(|process| !process.is_of_service()) {
            return false;
        }
        let regs = &node.task(tid).regs;
        let name = Call::decode(regs.orig_rax, regs.syscall_args()).name();
        if !self.trigger(clock, |waiting| waiting.sees(by, name, true)) {
            return false;
        }
        self.world.faults.held.insert((id, tid));
        // As a call that is restarted: "regs->ax = regs->orig_ax; regs->ip -= 2" (arch/x86/kernel/signal.c).
        let regs = &mut self.world.node_mut(id).task_mut(tid).regs;
        (regs.rax, regs.rip, regs.orig_rax) = (regs.orig_rax, regs.rip.wrapping_sub(2), u64::MAX);
        true
    }

    /// Tasks of a machine that are gone are held no more.
    pub(crate) fn forget_held(&mut self, id: MachineId) {
        let node = &self.world.nodes[&id];
        self.world.faults.held.retain(|(machine, tid)| *machine != id || node.tasks.contains_key(tid));
    }

    /// A service wrote something: an entry may have waited for it. What checks write is no output of the service.
    #[inline]
    pub(crate) fn fault_triggers_read(&mut self, chunk: &ConsoleChunk, clock: SimTime) {
        if !self.world.faults.waiting.is_empty() && !chunk.check {
            let writer = self.world.machine_of(chunk.container).processes.get(&chunk.pid);
            if writer.is_some_and(|process| process.is_script) {
                return;
            }
            let mut patterns = std::mem::take(&mut self.patterns);
            self.trigger(clock, |waiting| waiting.reads(chunk, &mut patterns));
            self.patterns = patterns;
        }
    }

    /// The triggers for which `comes` says so come at this time. True if the fault of one begins at once.
    fn trigger(&mut self, now: SimTime, mut comes: impl FnMut(&mut Waiting) -> bool) -> bool {
        let faults = &mut self.world.faults;
        if self.world.phase != Phase::Faults || now < faults.phases.begin {
            return false;
        }
        let mut come = Vec::new();
        faults.waiting.retain_mut(|waiting| {
            let comes = comes(waiting);
            if comes {
                come.push(waiting.clone());
            }
            !comes
        });
        if come.is_empty() {
            return false;
        }
        let at_once = come.iter().any(|waiting| waiting.trigger.after() == 0);
        if at_once {
            self.world.faults.urgent.insert(now);
        }
        for Waiting { trigger, mut entry, .. } in come {
            entry.begin = now.after(trigger.after());
            let begun = self.world.faults.effects.len();
            let plan = std::sync::Arc::make_mut(&mut self.world.faults.plan);
            plan.push(entry);
            plan::sort(&mut plan[begun..]);
        }
        self.queue_next_fault();
        at_once
    }
}

//! What the tasks of a run do to memory, access by access ([`Traced`]), for whoever compares two runs.
//!
//! A trace is gathered as a profile is ([`crate::profile`]): tasks stop at each instruction that may access shared memory, and go on. It
//! changes nothing of the run. An access stands in the trace where it is executed: one before which its task gives way stands where the
//! task goes on.
//!
//! Neighbours: [`crate::profile`] stops tasks; the runner compares traces and shows the stacks ([`Captured`]).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bloodhound_abi::Regs;
use bloodhound_kernel::ids::{MmId, Tid};
use bloodhound_kernel::mm::{Backing, PAGE};
use bloodhound_kernel::node::Node;
use bloodhound_vfs::FileImage;

use crate::code_place::CodePlace;
use crate::machine::Machine;
use crate::profile::{AccessesOf, Object, TaskName};

/// Accesses of one run that are traced, at most.
const MOST: usize = 100_000;
/// Bytes of a stack that are captured, at most.
const MOST_STACK: u64 = 64 << 10;

/// An access to memory that tasks may share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traced {
    /// The task as the log names it: container, life of its service, descent.
    pub task: TaskName,
    /// Its number.
    pub tid: Tid,
    /// The instruction.
    pub place: CodePlace,
    /// The task's pass of it since the trace began, from 1.
    pub nth: u64,
    /// What it touches, in pieces of eight bytes, and whether it writes there.
    pub touches: Vec<((Object, u64), bool)>,
    /// The addresses of these.
    pub addresses: Vec<u64>,
    /// Others may come between its reading and its writing.
    pub tears: bool,
}

/// A task at an access, as far as its stack can be made of it.
#[derive(Clone, Debug)]
pub struct Captured {
    /// The name of the task.
    pub comm: String,
    /// Its registers.
    pub regs: Regs,
    /// Its stack, from its stack pointer on.
    pub stack: Vec<u8>,
    /// The files whose code it has mapped: beginning, end, offset, path, content.
    pub files: Vec<CodeMapping>,
}

/// Code of a file in the memory of a task.
#[derive(Clone, Debug)]
pub struct CodeMapping {
    /// The first address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// The offset in the file of the first byte.
    pub offset: u64,
    /// Where the service has the file.
    pub path: Vec<u8>,
    /// The file.
    pub image: Arc<FileImage>,
}

/// What was gathered.
#[derive(Debug, Default)]
pub struct Trace {
    /// In the order of the run.
    pub accesses: Vec<Traced>,
    /// By their numbers in [`Trace::accesses`], those that were asked for.
    pub captured: BTreeMap<usize, Captured>,
    /// Those before which a task gave way, at a switch of the run ([`crate::switches`]), in the order in which they did.
    pub gave_way: Vec<(Traced, Captured)>,
    wanted: BTreeSet<usize>,
    /// Tasks that gave way, with the address and the access that they come back to.
    waiting: BTreeMap<Tid, (u64, Traced)>,
}

impl Trace {
    /// A task has come to an access; `waits`: it gives way before it.
    pub(crate) fn pass(
        &mut self,
        node: &Node,
        (tid, mm): (Tid, MmId),
        access: Traced,
        regs: &Regs,
        waits: bool,
    ) {
        if waits {
            self.gave_way.push((access.clone(), captured(node, tid, mm, regs)));
            self.waiting.insert(tid, (regs.rip, access));
            return;
        }
        self.add(node, (tid, mm), access, regs);
    }

    /// A task goes on.
    pub(crate) fn goes_on(&mut self, node: &Node, tid: Tid, mm: MmId) {
        let regs = node.task(tid).regs;
        if self.waiting.get(&tid).is_some_and(|(rip, _)| *rip == regs.rip)
            && let Some((_, access)) = self.waiting.remove(&tid)
        {
            self.add(node, (tid, mm), access, &regs);
        }
    }

    fn add(&mut self, node: &Node, (tid, mm): (Tid, MmId), access: Traced, regs: &Regs) {
        if self.accesses.len() >= MOST {
            return;
        }
        if self.wanted.contains(&self.accesses.len()) {
            self.captured.insert(self.accesses.len(), captured(node, tid, mm, regs));
        }
        self.accesses.push(access);
    }
}

pub(crate) fn captured(node: &Node, tid: Tid, mm: MmId, regs: &Regs) -> Captured {
    let mut stack = Vec::new();
    let mut page = [0; PAGE as usize];
    while (stack.len() as u64) < MOST_STACK {
        let at = regs.rsp.wrapping_add(stack.len() as u64);
        let length = (PAGE - at % PAGE) as usize;
        if node.peek(tid, at, &mut page[..length]).is_err() {
            break;
        }
        stack.extend_from_slice(&page[..length]);
    }
    let mut files = Vec::new();
    for vma in node.mms[mm].vmas() {
        let Backing::File { ino, offset } = vma.backing else { continue };
        if vma.prot & bloodhound_abi::consts::PROT_EXEC == 0 {
            continue;
        }
        if let Some(image) = node.vfs.pristine(ino) {
            let path = node.vfs.path_of(node.vfs.root(), ino);
            let (start, end, image) = (vma.start, vma.end, image.clone());
            files.push(CodeMapping { start, end, offset, path, image });
        }
    }
    let comm = String::from_utf8_lossy(&node.task(tid).comm).into_owned();
    Captured { comm, regs: *regs, stack, files }
}

impl Machine {
    /// Traces accesses from now on; `accesses_of` says which instructions of a file are of interest, `wanted` which accesses are to be
    /// captured with their stacks, by their numbers.
    pub fn begin_trace(&mut self, accesses_of: Arc<AccessesOf>, wanted: BTreeSet<usize>) {
        self.begin_profile(accesses_of);
        if let Some(profiler) = &mut self.profiler {
            profiler.trace = Some(Trace { wanted, ..Trace::default() });
        }
    }

    /// What was traced; from now on nothing is.
    pub fn end_trace(&mut self) -> Trace {
        let trace = self.profiler.as_mut().and_then(|profiler| profiler.trace.take());
        self.end_profile();
        trace.unwrap_or_default()
    }
}

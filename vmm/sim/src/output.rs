//! Output of a single program as it is written, where somebody takes it at once ([`Output`]): what the host answers to a write
//! (a reader that went away, a full disk) is the write's result. Such an answer is an input of the run, and is logged with
//! its step. Services have no such listener: their output always succeeds and is kept in the world.

use std::collections::BTreeMap;

use bloodhound_abi::Errno;
use bloodhound_kernel::dispatch::Outcome;
use bloodhound_kernel::file::Console;
use bloodhound_kernel::ids::Tid;
use bloodhound_kernel::node::{ConsoleChunk, MachineId};

use crate::computing::Trial;
use crate::machine::Machine;
use crate::notice::{Notice, Refusal};

/// Takes what a program writes to its standard output or error; answers as write(2): how much was taken, or why nothing.
pub type Output = Box<dyn FnMut(&ConsoleChunk) -> Result<usize, Errno>>;

/// What the host answered to writes, for a run that is made again: nothing is written twice.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// Those that did not take all, by the number of the write.
    others: BTreeMap<u64, Result<usize, Errno>>,
    next: u64,
}

impl Answers {
    fn keep(&mut self, full: Result<usize, Errno>, answer: Result<usize, Errno>) -> Result<usize, Errno> {
        if answer != full {
            self.others.insert(self.next, answer);
        }
        self.next += 1;
        answer
    }

    fn again(&mut self, full: Result<usize, Errno>) -> Result<usize, Errno> {
        self.next += 1;
        self.others.get(&(self.next - 1)).copied().unwrap_or(full)
    }

    /// The run begins again.
    pub fn rewind(&mut self) {
        self.next = 0;
    }
}

impl Machine {
    /// Hands console output to `output` from now on, before the call that wrote it ends. It is not kept in the world then.
    pub fn set_output(&mut self, output: Output) {
        self.output = Some(output);
    }

    /// Hands over what the call wrote; the outcome of the call is the host's if it does not take everything.
    pub(crate) fn hand_over(&mut self, id: MachineId, tid: Tid, outcome: Outcome) -> Outcome {
        if self.output.is_none() || self.world.nodes[&id].console.is_empty() {
            return outcome;
        }
        let mut chunks = std::mem::take(&mut self.world.node_mut(id).console);
        let (mut taken, mut failure) = (0, None);
        for (index, chunk) in chunks.iter_mut().enumerate() {
            let Some(output) = &mut self.output else { break };
            let full = Ok(chunk.bytes.len());
            let again = self.trial.as_ref().is_some_and(Trial::repeats);
            let answer =
                if again { self.answers.again(full) } else { self.answers.keep(full, output(chunk)) };
            let n = answer.unwrap_or(0).min(chunk.bytes.len());
            taken += n as u64;
            if n < chunk.bytes.len() {
                chunk.bytes.truncate(n);
                failure = Some((chunk.stream, answer.err()));
                chunks.truncate(index + 1);
                break;
            }
        }
        self.world.node_mut(id).console = chunks;
        match failure {
            Some((stream, error)) => self.output_failed(id, tid, (stream, error, taken), outcome),
            None => outcome,
        }
    }

    fn output_failed(
        &mut self,
        id: MachineId,
        tid: Tid,
        (stream, error, taken): (Console, Option<Errno>, u64),
        outcome: Outcome,
    ) -> Outcome {
        let step = self.world.steps + 1;
        let node = &self.world.nodes[&id];
        let task = node.tasks.get(&tid).map(|task| node.container_of_any(task.pid).id);
        let who = task.unwrap_or(node.containers[0].id);
        self.note(Some(who), Notice::Refused(Refusal { stream, step, error, taken }));
        // A call that sleeps, or is over for good, learns of it at its next write.
        let Outcome::Done(_) = outcome else { return outcome };
        let node = self.world.node_mut(id);
        let value = match error {
            Some(e) if taken == 0 => {
                if e == Errno::EPIPE {
                    // "EPIPE: fd is connected to a pipe or socket whose reading end is closed. When this happens the writing
                    // process will also receive a SIGPIPE signal." (write(2))
                    node.raise_sigpipe(tid);
                }
                e.as_ret()
            }
            _ => taken,
        };
        node.task_mut(tid).regs.rax = value;
        Outcome::Done(value)
    }
}

/// What a machine tells while a task computes and makes no step: its node and the task, at each look of the watchdog.
pub type Computing = Box<dyn FnMut(MachineId, Tid, u64)>;

impl Machine {
    /// Calls `computing` from time to time while a task runs without a system call, with the number of steps so far. It is
    /// the host's time that decides when: nothing that it does may reach the world.
    pub fn set_computing(&mut self, computing: Computing) {
        self.computing = Some(computing);
    }
}

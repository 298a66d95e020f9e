//! What the kernel tells of its work while it does it: the lives of tasks, signals, the bytes that calls copied.
//!
//! Key types: [`Told`] (one such thing, borrowing what it names) and [`Watch`] (who is told; the simulation's record of the run).
//! A call reaches its watcher through [`crate::ctx::Outside`]. What is told changes nothing: a node does the same without a watcher.

use bloodhound_abi::SimTime;
use bloodhound_abi::digest::Moved;
use bloodhound_net::NodeId;

use crate::ids::{Pid, Tid};
use crate::process::ExitStatus;

/// What became of a signal that was taken from a task's pending ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The program's handler runs.
    Handled,
    /// It is ignored, by the program or by default.
    Ignored,
    /// It stops the process.
    Stopped,
    /// It ends the process.
    Killed,
}

/// Something that happened to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told<'a> {
    /// It exists: made by this task with clone(2) or its kin, or a root process of its node.
    Began {
        /// Who made it.
        parent: Option<Tid>,
    },
    /// Its process runs this program now (execve(2)).
    Exec {
        /// Path of the program.
        path: &'a [u8],
    },
    /// It took a signal.
    Signal {
        /// The signal.
        signo: u32,
        /// What that did.
        disposition: Disposition,
    },
    /// Its system call copied these bytes from and to user memory, and ended or made progress.
    Moved(Moved),
    /// It is gone.
    Ended {
        /// How; of a thread whose process goes on, what it gave to exit(2).
        status: ExitStatus,
    },
}

/// Whose life it is, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whose {
    /// The node.
    pub node: NodeId,
    /// Its clock.
    pub at: SimTime,
    /// The process.
    pub pid: Pid,
    /// The task.
    pub tid: Tid,
}

/// Is told what happens in a kernel.
pub trait Watch {
    /// Takes notice.
    fn tell(&mut self, whose: Whose, told: &Told<'_>);
}

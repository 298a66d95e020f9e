//! The first process of a namespace, to which signals do only what it has handlers for (SIGNAL_UNKILLABLE of Linux): a service without a handler for SIGTERM is stopped
//! by SIGKILL when its grace period is over, as `docker stop` does it.
//!
//! [`Node::spawn`] makes such a process ([`Process::unkillable`](crate::process::Process::unkillable)), and a fault of its own ends it as any other. Neighbours:
//! [`super`] asks here when a signal is sent and when it is delivered.

use bloodhound_abi::consts as c;
use bloodhound_abi::structs::Siginfo;

use super::{UNBLOCKABLE, bit};
use crate::ids::Pid;
use crate::node::Node;

/// SIGKILL and SIGSTOP (`sig_kernel_only`).
pub(super) fn is_kernel_only(signo: u32) -> bool {
    bit(signo) & UNBLOCKABLE != 0
}

/// Whether a signal comes from the kernel, or from a process that the one which gets it has no number for: an engine that stops the container.
pub(super) fn is_from_outside(info: &Siginfo) -> bool {
    let sender = info.fields[0] as u32;
    info.code == c::SI_KERNEL as i32 || info.code == c::SI_USER as i32 && sender == 0
}

impl Node {
    /// Whether a process is spared the default action of a signal. "Only signals for which the "init" process has established a signal handler can be sent to the
    /// "init" process by other members of the PID namespace" (pid_namespaces(7)); of those from outside, SIGKILL and SIGSTOP alone do what they do without a handler.
    pub fn is_spared(&self, pid: Pid, signo: u32) -> bool {
        let unkillable = self.processes.get(&pid).is_some_and(|process| process.unkillable);
        unkillable && self.action(pid, signo).handler == c::SIG_DFL
    }
}

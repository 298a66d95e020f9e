//! Segment bases of application code ([`BaseSource`]).
//!
//! An application can change the bases of fs and gs without a system call: by loading a selector into one of them (to which
//! base, only the processor knows), and by `wrfsbase` or `wrgsbase` where it may execute these. So the VMM has to learn the
//! present bases at each trap: the task that runs next on the vCPU has bases of its own.
//!
//! Neighbours: `vm` reads and writes the bases on the way in and out, `probe` finds out where they are reported.

/// Where the bases of fs and gs are found after a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BaseSource {
    /// Nowhere. The VMM assumes that they are still those with which the application was entered.
    None,
    /// In the system registers, which KVM copies out at each exit. Used on a KVM where application code can execute `wrfsbase`
    /// although CR4 forbids it.
    Kvm,
    /// In memory, where the monitor's reporting entries store them at each trap (`monitor/monitor.S`).
    Monitor,
}

//! Segment bases of application code ([`BaseSource`]).
//!
//! Loading a selector into fs or gs changes the base of that segment, and only the processor knows to what; `wrfsbase` changes
//! it as well, where the processor lets applications have it. A base that has changed without a system call has to be found at
//! the next trap, as the next task on the processor has bases of its own.
//!
//! Neighbours: `vm` reads and writes the bases on the way in and out, `probe` finds out where they are reported.

/// Where the bases of fs and gs are found after a trap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BaseSource {
    /// Nowhere: they count as what the application was started with.
    None,
    /// In the system registers that KVM copies at each exit: where application code has `wrfsbase` although CR4 forbids it.
    Kvm,
    /// In the monitor's report: its reporting entries read them at each trap.
    Monitor,
}

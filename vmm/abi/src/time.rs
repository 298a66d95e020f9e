//! Virtual time. [`SimTime`] counts nanoseconds since the simulation's boot; durations are plain `u64` nanoseconds.

/// Nanoseconds in a microsecond.
pub const MICROS: u64 = 1_000;
/// Nanoseconds in a millisecond.
pub const MILLIS: u64 = 1_000_000;
/// Nanoseconds in a second.
pub const SECS: u64 = 1_000_000_000;

/// A point of virtual time: nanoseconds since the boot of the simulation. CLOCK_MONOTONIC of a node shows more, as its machine has been up
/// before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SimTime(pub u64);

impl SimTime {
    /// The boot of the simulation.
    pub const ZERO: SimTime = SimTime(0);
    /// Later than every event.
    pub const MAX: SimTime = SimTime(u64::MAX);

    /// This time plus `ns` nanoseconds, saturating at [`SimTime::MAX`].
    pub fn after(self, ns: u64) -> SimTime {
        SimTime(self.0.saturating_add(ns))
    }

    /// Nanoseconds from `earlier` to this time; 0 if `earlier` is later.
    pub fn since(self, earlier: SimTime) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl std::fmt::Debug for SimTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// Seconds with nine decimals: `12.000345678s`.
impl std::fmt::Display for SimTime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:09}s", self.0 / SECS, self.0 % SECS)
    }
}

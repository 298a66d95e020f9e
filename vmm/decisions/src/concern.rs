//! [`Concern`]: what a choice is about.
//!
//! Each [`crate::Site`] says its own; an epoch of a log names those that get another seed.

use std::str::FromStr;

/// What a choice is about. An epoch gives some concerns another seed and leaves the others theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Concern {
    /// Which runnable task goes next, and for how long.
    Scheduler = 0,
    /// Loss, delay, duplication and reordering of packets.
    Network = 1,
    /// Disk faults and what survives a power failure.
    Disk = 2,
    /// What programs see as randomness: getrandom(2), /dev/urandom, AT_RANDOM, address-space layout.
    GuestRandom = 3,
    /// Operations, keys and values of the workload.
    Workload = 4,
    /// Which faults happen, where and when.
    Faults = 5,
    /// How nodes differ from each other: start, clock, costs.
    Nodes = 6,
}

impl Concern {
    /// All of them, by number.
    pub const ALL: [Concern; 7] = [
        Concern::Scheduler,
        Concern::Network,
        Concern::Disk,
        Concern::GuestRandom,
        Concern::Workload,
        Concern::Faults,
        Concern::Nodes,
    ];

    /// Those that are drawn while a run is under way: all but how nodes differ, which is drawn when they boot.
    pub const OF_RUN: [Concern; 6] = [
        Concern::Scheduler,
        Concern::Network,
        Concern::Disk,
        Concern::GuestRandom,
        Concern::Workload,
        Concern::Faults,
    ];

    /// Its name in files.
    pub fn name(self) -> &'static str {
        match self {
            Concern::Scheduler => "scheduler",
            Concern::Network => "network",
            Concern::Disk => "disk",
            Concern::GuestRandom => "guest-random",
            Concern::Workload => "workload",
            Concern::Faults => "faults",
            Concern::Nodes => "nodes",
        }
    }
}

impl FromStr for Concern {
    type Err = String;

    fn from_str(text: &str) -> Result<Concern, String> {
        let found = Concern::ALL.into_iter().find(|concern| concern.name() == text);
        found.ok_or_else(|| format!("`{text}` is no concern of choices"))
    }
}

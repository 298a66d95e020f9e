//! The declarations: all kinds of faults, in the order of the manual.

use bloodhound_declare::{Key, ValueKind};

use crate::{Begins, Declaration, Group, Shape, Swarm};

/// Makes [`Kind`] and its declarations, and a macro each for kinds of links and for kinds that begin at a time, with which
/// `bloodhound-sim` finds their rooms.
macro_rules! kinds {
    (
        $d:tt
        links { $($(#[$ldoc:meta])* $link:ident in $lroom:ident { $($lbody:tt)* })* }
        timed { $($(#[$tdoc:meta])* $timed:ident in $troom:ident { $($tbody:tt)* })* }
    ) => {
        /// A kind of faults.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(usize)]
        pub enum Kind {
            $($(#[$ldoc])* $link,)*
            $($(#[$tdoc])* $timed,)*
        }

        impl Kind {
            /// All declarations, in the order of the manual.
            pub const DECLARATIONS: &'static [Declaration] = &[
                $(Declaration { kind: Kind::$link, begins: Begins::Link, $($lbody)* },)*
                $(Declaration { kind: Kind::$timed, $($tbody)* },)*
            ];
        }

        /// Calls a macro with the kinds that are properties of links, each with its function.
        #[macro_export]
        macro_rules! link_kinds {
            ($d then:ident) => { $d then! { $($link in $lroom,)* } };
        }

        /// Calls a macro with the kinds that begin at a time, each with its room.
        #[macro_export]
        macro_rules! timed_kinds {
            ($d then:ident) => { $d then! { $($timed in $troom,)* } };
        }
    };
}

/// How many packets.
const fn rate(name: &'static str, doc: &'static str) -> Key {
    Key::new(name, ValueKind::Rate { most: "1" }, doc).default("0")
}

/// How likely in each time step: for each node, or (`per` is empty) once for the network.
const fn probability(name: &'static str, per: &'static str, doc: &'static str) -> Key {
    Key::new(name, ValueKind::Probability { per }, doc).default("0")
}

const fn millis(name: &'static str, default: &'static str, doc: &'static str) -> Key {
    Key::new(name, ValueKind::Millis, doc).default(default)
}

const fn range(name: &'static str, default: &'static str, doc: &'static str) -> Key {
    Key::new(name, ValueKind::MillisRange, doc).default(default)
}

const fn ppm(name: &'static str, default: &'static str, doc: &'static str) -> Key {
    Key::new(name, ValueKind::PpmRange, doc).default(default)
}

kinds! { $
    links {
        /// A packet is lost.
        Drop in drop {
            name: "drop",
            group: Group::Network,
            swarm: Swarm::Strength,
            keys: &[rate("drop_rate", "packets that are lost")],
            does: "a packet is lost; TCP sends it again, UDP does not",
        }
        /// A packet is held up, and those behind it with it.
        Delay in delay {
            name: "delay",
            group: Group::Network,
            swarm: Swarm::Strength,
            keys: &[
                millis("delay_ms", "50", "how much later a delayed packet arrives at most"),
                rate("delay_rate", "packets that are delayed, by up to `delay_ms`"),
            ],
            does: "a packet arrives up to that much later",
        }
        /// Every packet takes longer, by a fixed time.
        Latency in latency {
            name: "latency",
            group: Group::Network,
            swarm: Swarm::Always,
            keys: &[millis("latency_ms", "0", "added to the latency of every packet")],
            does: "every packet takes longer by a fixed time",
        }
        /// Every packet takes longer, by a random time.
        Jitter in jitter {
            name: "jitter",
            group: Group::Network,
            swarm: Swarm::Coin,
            keys: &[millis("jitter_ms", "0", "upper bound of a random addition to the latency of every packet")],
            does: "every packet takes longer by a random time",
        }
        /// A packet is damaged on its way.
        Corrupt in corrupt {
            name: "corrupt",
            group: Group::Network,
            swarm: Swarm::Strength,
            keys: &[rate("corrupt_rate", "packets that are damaged on their way")],
            does: "a packet is damaged on its way: its receiver's checksum rejects it, so it is lost",
        }
        /// A packet arrives twice.
        Duplicate in duplicate {
            name: "duplicate",
            group: Group::Network,
            swarm: Swarm::Strength,
            keys: &[rate("duplicate_rate", "packets that arrive twice")],
            does: "a packet arrives twice",
        }
        /// A packet is overtaken.
        Reorder in reorder {
            name: "reorder",
            group: Group::Network,
            swarm: Swarm::Strength,
            keys: &[rate("reorder_rate", "packets that are overtaken by later ones")],
            does: "a packet is overtaken by later ones",
        }
    }
    timed {
        /// The connections of a node are reset.
        Reset in reset {
            name: "reset",
            group: Group::Network,
            begins: Begins::ByNetwork,
            swarm: Swarm::Strength,
            keys: &[probability("reset_probability", "", "all connections of a node that is drawn are reset")],
            does: "the connections of a node are reset",
        }
        /// Some nodes cannot reach some others.
        Partition in partition {
            name: "partition",
            group: Group::Network,
            begins: Begins::ByNetwork,
            swarm: Swarm::Strength,
            keys: &[
                probability("partition_probability", "", "a partition begins"),
                range("partition_duration_ms", "[1000, 10000]", "how long a partition lasts"),
                Key::new(
                    "partition_kinds",
                    ValueKind::NonEmpty(&ValueKind::Word(Shape::WORDS), "name at least one kind"),
                    "which shapes a partition may take",
                )
                .otherwise("all"),
            ],
            does: "some nodes cannot reach some others, for `partition_duration_ms`",
        }
        /// All processes of a node are killed.
        Crash in crash {
            name: "crash",
            group: Group::Process,
            begins: Begins::ByNode,
            swarm: Swarm::Strength,
            keys: &[
                probability("crash_probability", "node", "every process of the node is killed; its files stay"),
                range("crash_restart_ms", "[500, 5000]", "how long a crashed node stays down before it is started again"),
            ],
            does: "all processes of a node are killed as by SIGKILL; files stay (those in /tmp and /run too), tmpfs mounts are empty; it starts again after `crash_restart_ms`",
        }
        /// A node stands still.
        Pause in pause {
            name: "pause",
            group: Group::Process,
            begins: Begins::ByNode,
            swarm: Swarm::Strength,
            keys: &[
                probability("pause_probability", "node", "the node stops running while time goes on"),
                range("pause_duration_ms", "[100, 5000]", "how long a pause lasts"),
            ],
            does: "a node stands still while time goes on, for `pause_duration_ms`, as in a long garbage collection",
        }
        /// The wall clock of a node is set wrong.
        ClockJump in clock_jump {
            name: "clock-jump",
            group: Group::Clock,
            begins: Begins::ByNode,
            swarm: Swarm::Strength,
            keys: &[
                probability("clock_jump_probability", "node", "the node's wall clock is set wrong, forward or back"),
                range("clock_jump_ms", "[100, 60000]", "how far the wall clock jumps"),
                range("clock_jump_duration_ms", "[1000, 10000]", "how long until it is set right; 0: until the heal"),
            ],
            does: "the wall clock of a node (CLOCK_REALTIME) is set forward or back by `clock_jump_ms`, and set right after `clock_jump_duration_ms`; CLOCK_MONOTONIC goes on",
        }
        /// A node's clocks are fast or slow.
        ClockDrift in clock_drift {
            name: "clock-drift",
            group: Group::Clock,
            begins: Begins::ByNode,
            swarm: Swarm::Strength,
            keys: &[
                probability("clock_drift_probability", "node", "the node's clocks become fast or slow"),
                ppm("clock_drift_ppm", "[10, 500]", "how fast or slow"),
                range("clock_drift_duration_ms", "[5000, 60000]", "how long that lasts; 0: until the heal"),
            ],
            does: "all clocks and timers of a node are fast or slow by `clock_drift_ppm`, for `clock_drift_duration_ms`; then its wall clock is set right",
        }
        /// The wall clocks of nodes differ.
        ClockSkew in clock_skew {
            name: "clock-skew",
            group: Group::Clock,
            begins: Begins::Standing,
            swarm: Swarm::Always,
            keys: &[millis("clock_skew_ms", "0", "each node's wall clock is up to so much before or behind, as is drawn for it")],
            does: "each node's wall clock is wrong by a time up to `clock_skew_ms`, until the heal",
        }
        /// Wall clocks repeat a second.
        LeapSecond in leap_second {
            name: "leap-second",
            group: Group::Clock,
            begins: Begins::ByNetwork,
            swarm: Swarm::Strength,
            keys: &[probability("leap_second_probability", "", "a leap second is inserted")],
            does: "the wall clock of each machine shows a second twice, as at the end of a day with a leap second (adjtimex(2): TIME_INS, TIME_OOP)",
        }
    }
}

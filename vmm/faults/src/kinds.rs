//! The declarations: all kinds of faults, in the order of the manual.

use crate::{Begins, Declaration, Key, Section, Swarm, Value};

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

const fn rate(name: &'static str, doc: &'static str) -> Key {
    Key { name, value: Value::Rate, doc }
}

const fn millis(name: &'static str, default: u64, doc: &'static str) -> Key {
    Key { name, value: Value::Millis(default), doc }
}

const fn range(name: &'static str, low: u64, high: u64, doc: &'static str) -> Key {
    Key { name, value: Value::MillisRange(low, high), doc }
}

kinds! { $
    links {
        /// A packet is lost.
        Drop in drop {
            name: "drop",
            section: Section::Network,
            swarm: Swarm::Strength,
            keys: &[rate("drop_rate", "How many packets are lost.")],
            does: "a packet is lost; TCP sends it again, UDP does not",
        }
        /// A packet is held up, and those behind it with it.
        Delay in delay {
            name: "delay",
            section: Section::Network,
            swarm: Swarm::Strength,
            keys: &[
                millis("delay_ms", 50, "How much later a delayed packet arrives at most."),
                rate("delay_rate", "How many packets are delayed by up to `delay_ms`."),
            ],
            does: "a packet arrives up to that much later",
        }
        /// Every packet takes longer, by a fixed time.
        Latency in latency {
            name: "latency",
            section: Section::Network,
            swarm: Swarm::Always,
            keys: &[millis("latency_ms", 0, "Added to the latency of every packet.")],
            does: "every packet takes longer by a fixed time",
        }
        /// Every packet takes longer, by a random time.
        Jitter in jitter {
            name: "jitter",
            section: Section::Network,
            swarm: Swarm::Coin,
            keys: &[millis("jitter_ms", 0, "Upper bound of a random addition to the latency of every packet.")],
            does: "every packet takes longer by a random time",
        }
        /// A packet is damaged on its way.
        Corrupt in corrupt {
            name: "corrupt",
            section: Section::Network,
            swarm: Swarm::Strength,
            keys: &[rate("corrupt_rate", "How many packets are damaged on their way.")],
            does: "a packet is damaged on its way: its receiver's checksum rejects it, so it is lost",
        }
        /// A packet arrives twice.
        Duplicate in duplicate {
            name: "duplicate",
            section: Section::Network,
            swarm: Swarm::Strength,
            keys: &[rate("duplicate_rate", "How many packets arrive twice.")],
            does: "a packet arrives twice",
        }
        /// A packet is overtaken.
        Reorder in reorder {
            name: "reorder",
            section: Section::Network,
            swarm: Swarm::Strength,
            keys: &[rate("reorder_rate", "How many packets are overtaken by later ones.")],
            does: "a packet is overtaken by later ones",
        }
    }
    timed {
        /// The connections of a node are reset.
        Reset in reset {
            name: "reset",
            section: Section::Network,
            begins: Begins::ByNetwork,
            swarm: Swarm::Strength,
            keys: &[rate("reset_probability", "Per time step: all connections of a node that is drawn are reset.")],
            does: "the connections of a node are reset",
        }
        /// Some nodes cannot reach some others.
        Partition in partition {
            name: "partition",
            section: Section::Network,
            begins: Begins::ByNetwork,
            swarm: Swarm::Strength,
            keys: &[
                rate("partition_probability", "Per time step: a partition begins."),
                range("partition_duration_ms", 1000, 10_000, "How long a partition lasts."),
                Key { name: "partition_kinds", value: Value::Shapes, doc: "Which shapes a partition may take. Default: all." },
            ],
            does: "some nodes cannot reach some others, for `partition_duration_ms`",
        }
        /// All processes of a node are killed.
        Crash in crash {
            name: "crash",
            section: Section::Process,
            begins: Begins::ByNode,
            swarm: Swarm::Strength,
            keys: &[
                rate("crash_probability", "Per time step and node: every process of the node is killed."),
                range("crash_restart_ms", 500, 5000, "How long a crashed node stays down."),
            ],
            does: "all processes of a node are killed as by SIGKILL; files stay (those in /tmp and /run too), tmpfs mounts are empty; it starts again after `crash_restart_ms`",
        }
        /// A node stands still.
        Pause in pause {
            name: "pause",
            section: Section::Process,
            begins: Begins::ByNode,
            swarm: Swarm::Strength,
            keys: &[
                rate("pause_probability", "Per time step and node: the node stops running while time goes on."),
                range("pause_duration_ms", 100, 5000, "How long a pause lasts."),
            ],
            does: "a node stands still while time goes on, for `pause_duration_ms`, as in a long garbage collection",
        }
    }
}

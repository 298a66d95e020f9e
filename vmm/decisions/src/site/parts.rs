//! The enumerations that are parts of sites: which of several things about one subject is chosen.
//!
//! Neighbours: the list of sites and the macro that makes these enumerations, in the module above.

use std::fmt;

use super::{Mix, Part};

words! {
    /// What tells nodes of one kind apart.
    Trait {
        /// How far its wall clock is from the true time.
        Clock = "clock",
        /// The factor of its prices.
        Cost = "cost",
        /// How much later than it could its service starts.
        Start = "start",
    }
    /// A part of a run's scheduling policy.
    PolicyPart {
        /// The longest turn.
        Longest = "longest",
        /// Whether a turn ends when a further task becomes runnable.
        Restless = "restless",
        /// Whether some tasks are favoured.
        Favours = "favours",
        /// Which ones.
        Salt = "salt",
        /// What decides who is next: turns, the order of the queue, or priorities.
        Order = "order",
        /// How many changes of priority, or switches at instructions, there are at most.
        Depth = "depth",
        /// How often a call changes the priority of its task.
        Rate = "rate",
        /// Whether tasks switch often at a few instructions, and how often.
        Often = "often",
    }
    /// A part of a switch at an instruction.
    SwitchPart {
        /// The instruction.
        Place = "place",
        /// The task.
        Task = "task",
        /// The task's pass of it.
        Pass = "pass",
        /// Whether the task gives way between the two accesses of an instruction that reads memory and writes there.
        Torn = "torn",
    }
    /// A part of a turn on a node's processor.
    TurnPart {
        /// The task that goes next; 0 is the next in the queue.
        Who = "who",
        /// How much shorter than the longest its turn is; 0 is a turn that goes on for as long as the policy has it.
        Length = "length",
    }
    /// A random number that a node needs without a task asking.
    NodeRandom {
        /// The order of directory entries.
        Order = "order",
        /// Ports and sequence numbers.
        Stack = "stack",
        /// /proc/sys/kernel/random/boot_id.
        BootId = "boot-id",
    }
    /// What a program is given at random.
    TaskRandom {
        /// The base of the area for mmap(2).
        Mmap = "mmap",
        /// The top of the stack.
        Stack = "stack",
        /// The gap before the heap.
        Heap = "heap",
        /// The base of a position-independent program.
        Pie = "pie",
        /// AT_RANDOM.
        Aux = "aux",
        /// getrandom(2) and /dev/urandom.
        Bytes = "bytes",
    }
    /// What can become of a packet.
    Fate {
        /// Whether it is lost.
        Loss = "loss",
        /// Whether it is corrupted, and so rejected by its receiver.
        Corrupt = "corrupt",
        /// Added latency.
        Jitter = "jitter",
        /// Whether later ones overtake it, and by how much it is late then.
        Reorder = "reorder",
        /// See [`Fate::Reorder`].
        ReorderBy = "reorder-by",
        /// Whether it and those behind it are held up, and for how long.
        Delay = "delay",
        /// See [`Fate::Delay`].
        DelayBy = "delay-by",
        /// Whether it arrives twice, and how much later its copy comes.
        Duplicate = "duplicate",
        /// See [`Fate::Duplicate`].
        DuplicateBy = "duplicate-by",
        /// Whether a bit of its data is changed unseen, and which.
        Change = "change",
        /// See [`Fate::Change`].
        ChangeAt = "change-at",
        /// Whether a question to the name server fails, and how.
        NameFail = "name-fail",
        /// See [`Fate::NameFail`].
        NameFailAs = "name-fail-as",
        /// How late the name server's answer is.
        NameDelay = "name-delay",
        /// Whether a datagram arrives with a wrong checksum, for its receiver to find out.
        Damage = "damage",
    }
    /// What a packet is, among those at one place of a stream.
    PacketKind {
        /// Opens a connection.
        Syn = "syn",
        /// Data, the end of the data, or both.
        Data = "data",
        /// An acknowledgement or probe without data.
        Ack = "ack",
        /// Resets a connection.
        Reset = "rst",
        /// A datagram.
        Datagram = "udp",
        /// A report that something cannot be reached.
        Unreachable = "icmp",
        /// A packet of a raw socket, an echo request or its answer.
        Raw = "raw",
    }
    /// What a power failure does to a change that was not synced.
    PowerPart {
        /// How many of the last changes of names and metadata are lost.
        Cut = "cut",
        /// Whether a change other than of content is lost.
        Keep = "keep",
        /// Whether a write is there, torn or lost.
        Fate = "fate",
        /// How much of a torn write is lost.
        Point = "point",
        /// Which end of a torn write is lost.
        Side = "side",
    }
}

//! [`Site`]: the name of a choice.
//!
//! A site is made of what does not move when something else is taken away: the node and the life (incarnation) of its service, the
//! descent of a task, the ends of a connection, the place of a packet in its stream and its transmission; a number of occurrence
//! counts only within that. The whole list is below. A site is written as `turn(node=1,life=0,task=0.2,nth=57,part=who)`; that text
//! is its form in files, and [`std::str::FromStr`] reads it.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

pub use crate::concern::Concern;
use crate::lineage::Lineage;
use crate::mix::Mix;
use crate::word::Word;

/// Something that a site is named by.
trait Part: Sized + Copy {
    fn feed(self, mix: &mut Mix);
    fn show(self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
    fn read(text: &str) -> Option<Self>;
}

macro_rules! numbers {
    ($($kind:ty),*) => { $(
        impl Part for $kind {
            #[inline]
            fn feed(self, mix: &mut Mix) {
                mix.word(u64::from(self));
            }
            fn show(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{self}")
            }
            fn read(text: &str) -> Option<Self> {
                text.parse().ok()
            }
        }
    )* };
}
numbers!(u32, u64);

impl Part for Lineage {
    #[inline]
    fn feed(self, mix: &mut Mix) {
        mix.word(self.word());
    }
    fn show(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Part for Word {
    #[inline]
    fn feed(self, mix: &mut Mix) {
        let whole = u128::from_le_bytes(self.bytes());
        mix.word(whole as u64);
        mix.word((whole >> 64) as u64);
    }
    fn show(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
    fn read(text: &str) -> Option<Self> {
        Word::checked(text)
    }
}

impl Part for SocketAddr {
    #[inline]
    fn feed(self, mix: &mut Mix) {
        match self.ip() {
            IpAddr::V4(ip) => mix.word(u64::from(u32::from(ip)) << 16 | u64::from(self.port())),
            IpAddr::V6(ip) => {
                let whole = u128::from(ip);
                mix.word(whole as u64);
                mix.word((whole >> 64) as u64);
                mix.word(u64::from(self.port()));
            }
        }
    }
    fn show(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// Enumerations that are a part of a site, with the names of their values.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$item:meta])* $value:ident = $text:literal,)* })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$item])* $value,)* }

        impl Part for $name {
            #[inline]
            fn feed(self, mix: &mut Mix) {
                mix.word(self as u64);
            }
            fn show(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($name::$value => $text,)* })
            }
            fn read(text: &str) -> Option<Self> {
                match text { $($text => Some($name::$value),)* _ => None }
            }
        }

        #[cfg(test)]
        impl $name {
            pub(super) const ALL: &[$name] = &[$($name::$value,)*];
        }
    )* };
}

mod parts;

pub use parts::*;

/// Where a packet stands in the traffic between its two ends. The stack that sends it fills it in: offsets count from the initial
/// sequence numbers, which depend on the time, so sequence numbers themselves would be no names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The life of the node that opened the connection or sends the datagram.
    pub life: u32,
    /// Which use of the opener's port it is, in that life.
    pub port_use: u32,
    /// Stream offset of the segment, the SYN being 0; or the number of the datagram among those of its socket to this receiver.
    pub offset: u32,
    /// For a segment without data: stream offset that it acknowledges.
    pub ack: u32,
    /// How often such a segment was sent before.
    pub transmission: u32,
}

/// The list of all sites. `$concern` is what the choice is about; the fields are its name.
macro_rules! sites {
    ($($(#[$doc:meta])* $variant:ident, $text:literal, $concern:ident { $($(#[$fdoc:meta])* $field:ident: $kind:ty,)* })*) => {
        /// The name of a choice; see the module's text.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Site { $($(#[$doc])* $variant { $($(#[$fdoc])* $field: $kind,)* },)* }

        impl Site {
            /// What the choice is about.
            #[inline]
            pub fn concern(&self) -> Concern {
                match self { $(Site::$variant { .. } => Concern::$concern,)* }
            }

            /// Absorbs the name.
            #[inline]
            pub(crate) fn feed(&self, mix: &mut Mix) {
                /// The number of each variant.
                #[repr(u64)]
                enum Number { $($variant,)* }
                match *self { $(Site::$variant { $($field,)* } => {
                    mix.word(Number::$variant as u64);
                    $($field.feed(mix);)*
                })* }
            }
        }

        impl fmt::Display for Site {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match *self { $(Site::$variant { $($field,)* } => {
                    f.write_str($text)?;
                    let mut before = '(';
                    $(
                        write!(f, "{}{}=", std::mem::replace(&mut before, ','), stringify!($field))?;
                        $field.show(f)?;
                    )*
                    f.write_str(")")
                })* }
            }
        }

        impl FromStr for Site {
            type Err = String;

            fn from_str(text: &str) -> Result<Site, String> {
                let bad = |why: &str| format!("`{text}` names no choice: {why}");
                let (name, rest) = text.split_once('(').ok_or_else(|| bad("it has no `(`"))?;
                let rest = rest.strip_suffix(')').ok_or_else(|| bad("it does not end in `)`"))?;
                let mut fields = rest.split(',');
                let mut field = |name: &str| {
                    let item = fields.next().and_then(|item| item.split_once('='));
                    item.filter(|(key, _)| *key == name).map(|(_, value)| value)
                };
                let site = match name {
                    $($text => Site::$variant {
                        $($field: {
                            let name = stringify!($field);
                            let value = field(name).ok_or_else(|| bad(&format!("`{name}=` is missing")))?;
                            <$kind>::read(value).ok_or_else(|| bad(&format!("`{name}` cannot be `{value}`")))?
                        },)*
                    },)*
                    _ => return Err(bad("there is no such kind of choice")),
                };
                match fields.next() {
                    Some(more) => Err(bad(&format!("`{more}` is too much"))),
                    None => Ok(site),
                }
            }
        }
    };
}

sites! {
    /// How a node differs from others of its kind.
    Node, "node", Nodes {
        /// The node.
        node: u32,
        /// What differs.
        part: Trait,
    }
    /// The scheduling policy of the boot or of the run.
    Policy, "policy", Scheduler {
        /// Which part of it.
        part: PolicyPart,
    }
    /// The end of a task's turn: who is next, and for how long.
    Turn, "turn", Scheduler {
        /// The node.
        node: u32,
        /// The life of its service.
        life: u32,
        /// The task whose turn is over.
        task: Lineage,
        /// How many turns of this task were over before.
        nth: u64,
        /// What is chosen.
        part: TurnPart,
    }
    /// A turn after a time in which nobody had one, because the task before had ended or nothing could run.
    FreshTurn, "fresh-turn", Scheduler {
        /// The node.
        node: u32,
        /// The life of its service.
        life: u32,
        /// How many such turns there were before in this life.
        nth: u64,
        /// What is chosen.
        part: TurnPart,
    }
    /// A random number of a node.
    NodeRandom, "node-random", GuestRandom {
        /// The node.
        node: u32,
        /// The life of its service.
        life: u32,
        /// What it is for.
        part: NodeRandom,
        /// Which one of them.
        nth: u32,
    }
    /// Ports and sequence numbers of the clients.
    ClientRandom, "client-random", GuestRandom {
        /// Which one of them.
        nth: u32,
    }
    /// A random number of a task.
    TaskRandom, "task-random", GuestRandom {
        /// The node.
        node: u32,
        /// The life of its service.
        life: u32,
        /// The task.
        task: Lineage,
        /// How many random things it got before: each execve(2), getrandom(2) and read(2) of /dev/urandom counts once.
        nth: u64,
        /// What it is for.
        part: TaskRandom,
    }
    /// The fate of a packet.
    Packet, "packet", Network {
        /// Its sender.
        src: SocketAddr,
        /// Its receiver.
        dst: SocketAddr,
        /// What it is.
        kind: PacketKind,
        /// See [`Place`].
        life: u32,
        /// See [`Place`].
        port_use: u32,
        /// See [`Place`].
        offset: u32,
        /// See [`Place`].
        ack: u32,
        /// See [`Place`].
        transmission: u32,
        /// What is chosen.
        fate: Fate,
    }
    /// When a worker of the workload begins an operation.
    Arrival, "arrival", Workload {
        /// The worker.
        worker: u32,
        /// How many operations it has begun before.
        nth: u64,
    }
    /// What a worker of the workload does.
    Operation, "operation", Workload {
        /// The worker.
        worker: u32,
        /// How many operations it has begun before.
        nth: u64,
        /// The field that is filled in.
        field: Word,
        /// The place in that field.
        part: u32,
    }
    /// Which kinds of faults a run has, and how strong.
    Swarm, "swarm", Faults {
        /// The kind.
        kind: Word,
    }
    /// An entry of the plan of faults.
    Fault, "fault", Faults {
        /// The kind.
        kind: Word,
        /// The node, or 0 if the kind has no target of its own.
        target: u32,
        /// Which entry for this kind and target.
        nth: u64,
        /// What is chosen.
        part: Word,
    }
    /// The priority of a task.
    Priority, "priority", Scheduler {
        /// The node.
        node: u32,
        /// The life of its service.
        life: u32,
        /// The task.
        task: Lineage,
        /// How often its priority was chosen before.
        nth: u64,
    }
    /// Whether a task's priority changes before its next step.
    Change, "change", Scheduler {
        /// The node.
        node: u32,
        /// The life of its service.
        life: u32,
        /// The task.
        task: Lineage,
        /// How many steps it made before while others could have run.
        nth: u64,
    }
    /// A switch at an instruction.
    Switch, "switch", Scheduler {
        /// Which one of the run.
        nth: u32,
        /// What is chosen.
        part: SwitchPart,
    }
    /// Whether a task that has given way stays behind all others.
    Starve, "starve", Scheduler {
        /// The node.
        node: u32,
        /// The life of its service.
        life: u32,
        /// The task.
        task: Lineage,
    }
    /// After how many passes of an instruction a task gives way next, where tasks switch often.
    Often, "often", Scheduler {
        /// The node.
        node: u32,
        /// The life of its service.
        life: u32,
        /// The task.
        task: Lineage,
        /// Which of the instructions.
        place: u32,
        /// How often the task gave way there before.
        nth: u64,
    }
    /// What a power failure leaves of a change that was not synced. 0 leaves all of it.
    Power, "power", Disk {
        /// The machine.
        machine: u32,
        /// Which of its power failures: the number of the entry in the plan of faults.
        failure: u64,
        /// The change, by its place among those that were not synced.
        nth: u64,
        /// What is chosen.
        part: PowerPart,
    }
    /// Whether the disk fails an operation of a program, and how.
    DiskCall, "disk-call", Disk {
        /// The node.
        node: u32,
        /// The life of its service.
        life: u32,
        /// The task that makes the call.
        task: Lineage,
        /// The kind of fault.
        kind: Word,
        /// How often the task was asked for this kind before.
        nth: u64,
        /// What is chosen.
        part: Word,
    }
    /// The same of an operation that has nothing to do with a disk.
    Call, "call", Faults {
        /// The node.
        node: u32,
        /// The life of its service.
        life: u32,
        /// The task that makes the call.
        task: Lineage,
        /// The kind of fault.
        kind: Word,
        /// How often the task was asked for this kind before.
        nth: u64,
        /// What is chosen.
        part: Word,
    }
}

impl Site {
    /// The fate of a packet.
    #[inline]
    pub fn packet(src: SocketAddr, dst: SocketAddr, kind: PacketKind, place: Place, fate: Fate) -> Site {
        let Place { life, port_use, offset, ack, transmission } = place;
        Site::Packet { src, dst, kind, life, port_use, offset, ack, transmission, fate }
    }
}

#[cfg(test)]
mod tests;

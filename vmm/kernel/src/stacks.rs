//! The network stacks of a machine: one for each network namespace (network_namespaces(7)).
//!
//! Key types: [`NetNs`] (names one), [`Stacks`]. A socket belongs to the stack of the process that made it, wherever its descriptor
//! goes, so its number says which stack it is in. Nothing leads from one stack of a machine to another but the network outside.

use bloodhound_abi::SimTime;
use bloodhound_net::{SocketId, Stack};

/// A network namespace of a machine, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NetNs(pub u32);

/// Sockets have their stack's number above so many bits of their own.
const SOCKET_BITS: u32 = 26;
/// So many stacks a machine can have.
pub const MOST_STACKS: usize = 1 << (u32::BITS - SOCKET_BITS);

/// All network stacks of a machine; see the module's text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stacks {
    stacks: Vec<Stack>,
}

impl Stacks {
    /// Adds a stack without sockets.
    ///
    /// # Panics
    /// If there are [`MOST_STACKS`] already.
    pub fn add(&mut self, stack: Stack) -> NetNs {
        let ns = NetNs(self.stacks.len() as u32);
        assert!(self.stacks.len() < MOST_STACKS, "more than {MOST_STACKS} network namespaces in a machine");
        self.stacks.push(stack.numbered_from(ns.0 << SOCKET_BITS));
        ns
    }

    /// Puts a stack without sockets into the place of another, whose sockets are gone.
    pub fn replace(&mut self, ns: NetNs, stack: Stack) {
        self.stacks[ns.0 as usize] = stack.numbered_from(ns.0 << SOCKET_BITS);
    }

    /// A namespace's stack.
    pub fn stack(&self, ns: NetNs) -> &Stack {
        &self.stacks[ns.0 as usize]
    }

    /// A namespace's stack.
    pub fn stack_mut(&mut self, ns: NetNs) -> &mut Stack {
        &mut self.stacks[ns.0 as usize]
    }

    /// The stack that a socket is in.
    pub fn of(&self, id: SocketId) -> &Stack {
        &self.stacks[self.place(id)]
    }

    /// The stack that a socket is in.
    pub fn of_mut(&mut self, id: SocketId) -> &mut Stack {
        let place = self.place(id);
        &mut self.stacks[place]
    }

    fn place(&self, id: SocketId) -> usize {
        // A single stack may have more sockets than the bits say.
        if self.stacks.len() == 1 { 0 } else { (id.0 >> SOCKET_BITS) as usize }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.stacks.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    /// All stacks in order.
    pub fn iter(&self) -> impl Iterator<Item = (NetNs, &Stack)> {
        self.stacks.iter().enumerate().map(|(at, stack)| (NetNs(at as u32), stack))
    }

    /// All stacks in order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (NetNs, &mut Stack)> {
        self.stacks.iter_mut().enumerate().map(|(at, stack)| (NetNs(at as u32), stack))
    }

    /// Earliest time at which one of them must act by itself.
    pub fn next_deadline(&self) -> Option<SimTime> {
        self.stacks.iter().filter_map(Stack::next_deadline).min()
    }
}

//! The simulated network as plain data.
//!
//! Two halves. [`Stack`] is one node's TCP/IP: sockets with Linux's behaviour and errors, used by the application
//! kernel (which adds file descriptors and blocking) and by workload clients. [`Fabric`] joins the nodes: links
//! with latency, loss and the other faults, partitions, routing from addresses to nodes.
//!
//! Neither does input or output or knows the time by itself: callers pass virtual time in, take
//! [`Packet`]s out, and ask for the next deadline. Both are values: `clone` forks the future. Equal calls give
//! equal results; the only choices are the fabric's, about the fate of each packet.
//!
//! How a node is driven, by its kernel or by a workload client:
//! 1. before a task runs at `now`: if `next_deadline() <= now`, call `on_time(now)` (timers, loopback packets);
//! 2. do the socket calls;
//! 3. `take_output()` and hand each packet to [`Fabric::route`], which says when and where it arrives, if at all;
//! 4. `take_events()` and wake who waits on these sockets, `take_tells()` and signal their owners (O_ASYNC), `take_urgent()` and send
//!    SIGURG;
//! 5. schedule the next `on_time` at `next_deadline()`.

mod buffer;
mod bytes;
mod config;
mod conn;
mod counters;
mod datagram;
mod fabric;
mod iface;
mod names;
mod naming;
mod options;
mod packet;
mod seq;
mod socket;
mod stack;
mod wire;

pub use bytes::Bytes;
pub use config::Config;
pub use counters::{Counters, IcmpCounters, IpCounters, LinkCounters, TcpCounters, Traffic, UdpCounters};
pub use datagram::{Cause, Datagram, Header, Report, Sending, Sent, Times};
pub use fabric::{
    Delivery, DropReason, Fabric, Hole, HoleId, LinkConfig, Mishaps, NodeId, PartitionId, PartitionKind,
    Routed,
};
pub use iface::shown;
pub use names::ServerAnswer;
pub use options::{
    Options, ReadyFlags, Shutdown, SockOpt, SocketId, SocketInfo, StateChange, TcpInfo, TcpState, Tell,
};
pub use packet::{Body, Flags, Packet, Proto, Segment, Unreachable};
pub use stack::{Frame, FrameKind, Stack, hardware_address};

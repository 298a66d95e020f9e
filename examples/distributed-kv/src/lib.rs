//! A small replicated key-value service: Raft over TCP, HTTP/1.1 for clients.
//!
//! It is the service under test of Bloodhound's first example, and ordinary code: std threads, std sockets and
//! files. It knows nothing of the simulation it is tested in. From the inside out:
//!
//! - [`raft`]: elections and log replication as a pure state machine (no clock, no sockets, no files);
//! - [`replica`]: the key-value map on top of the log, client requests, forwarding to the leader; pure as well;
//! - [`message`]: what nodes say to each other, and its bytes;
//! - [`log`]: entries, and the snapshot that stands for those dropped from the log's beginning;
//! - [`storage`]: term, vote, snapshot and log in files; [`disk`]: what it asks of the file system;
//! - [`node`]: puts the pure parts and the outside world together under one lock;
//! - [`peer`], [`http`]: the threads which own sockets; [`buffers`]: what they write from;
//! - [`config`]: the environment variables that set all of it up.
//!
//! `BUG` in the environment plants a bug, see [`config::Bug`].

pub mod buffers;
pub mod config;
pub mod disk;
pub mod http;
pub mod kv;
mod lease;
pub mod log;
pub mod message;
pub mod node;
pub mod peer;
pub mod raft;
pub mod replica;
pub mod storage;

/// Names a node of the cluster: its position in `PEERS`.
pub type NodeId = u8;

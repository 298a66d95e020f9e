//! The `http` driver: clients that send requests to the service under test and record what they learn.
//!
//! [`HttpDriver`] is a value: the simulation gives it the time, the network stack of a client node and the decisions,
//! and calls [`HttpDriver::poll`] when a packet arrived at that node or [`HttpDriver::next_wakeup`] has come. It
//! draws operations, keys and values from choices of the workload ([`bloodhound_decisions::Site::Operation`]), speaks HTTP/1.1 over
//! a [`Transport`], in the simulation [`bloodhound_net::Stack`], classifies each end of a request ([`rules`]) and records a
//! [`History`](crate::history::History).
//!
//! A *worker* is one sequential client: a process of the history. Workers live on *client nodes* (worker `w` on node
//! `w % clients`), each of which has its own address and stack. After an operation of unknown outcome a worker goes
//! on as another process, because the operation stays open for ever.
//!
//! Neighbours: [`exchange`] is one request on one connection, [`response`] the parser, [`pattern`] fills in keys and
//! values; [`Probe`] sends a single request for a health check.

pub mod config;
mod driver;
pub mod exchange;
pub mod pattern;
mod probe;
pub mod request;
pub mod response;
pub mod rules;
mod transport;

pub use config::{Arrivals, HttpConfig, Kind, Operation, Target};
pub use driver::{HttpDriver, KeyPlace, key_place, left_out, workload_end};
pub use exchange::End;
pub use pattern::{Part, Pattern};
pub use probe::{Answer, Expect, Probe};
pub use rules::{Match, Rules, ValueSource};
pub use transport::Transport;

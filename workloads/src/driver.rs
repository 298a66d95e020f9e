//! [`Driver`]: what drives a service, whatever protocol it speaks.
//!
//! A driver is a value of the world: the simulation gives it the time, the network stack of a client node and the decisions. It
//! records a [`History`]. A further kind of clients is a further variant. Neighbours: [`crate::http`].

use bloodhound_abi::SimTime;
use bloodhound_decisions::Decisions;

use crate::history::{History, OpId};
use crate::http::{HttpConfig, HttpDriver, Transport};

/// What a driver is made from.
#[derive(Clone, Debug)]
pub enum DriverConfig {
    /// HTTP clients.
    Http(HttpConfig),
}

impl DriverConfig {
    /// How many client nodes the driver needs.
    pub fn clients(&self) -> u32 {
        match self {
            DriverConfig::Http(config) => config.clients,
        }
    }
}

/// Clients of a service under test.
#[derive(Clone, Debug)]
pub enum Driver {
    /// HTTP clients.
    Http(HttpDriver),
}

/// Something that happened to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// It was sent.
    Began(OpId),
    /// It has its outcome.
    Ended(OpId),
}

impl Driver {
    /// A driver that does nothing until [`Driver::start`].
    pub fn new(config: DriverConfig) -> Driver {
        match config {
            DriverConfig::Http(config) => Driver::Http(HttpDriver::new(config)),
        }
    }

    /// What was asked and answered so far.
    pub fn history(&self) -> &History {
        match self {
            Driver::Http(driver) => driver.history(),
        }
    }

    /// What happened to operations since the last call, in order.
    pub fn take_progress(&mut self) -> Vec<Progress> {
        match self {
            Driver::Http(driver) => driver.take_progress(),
        }
    }

    /// Operations begin at `now`.
    pub fn start(&mut self, now: SimTime, decisions: &mut Decisions) {
        match self {
            Driver::Http(driver) => driver.start(now, decisions),
        }
    }

    /// No operation begins at `now` or later.
    pub fn stop(&mut self, now: SimTime) {
        match self {
            Driver::Http(driver) => driver.stop(now),
        }
    }

    /// Whether all operations are over and none will begin.
    pub fn is_finished(&self) -> bool {
        match self {
            Driver::Http(driver) => driver.is_finished(),
        }
    }

    /// When a client node must be polled although no packet arrives there.
    pub fn next_wakeup(&self, client: u32) -> Option<SimTime> {
        match self {
            Driver::Http(driver) => driver.next_wakeup(client),
        }
    }

    /// Lets the clients on a client node do what they can at `now`.
    pub fn poll(&mut self, client: u32, now: SimTime, net: &mut impl Transport, decisions: &mut Decisions) {
        match self {
            Driver::Http(driver) => driver.poll(client, now, net, decisions),
        }
    }
}

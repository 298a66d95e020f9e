//! The workload against real sockets: the drivers of the simulation, asked again and again on a thread of their own.
//!
//! Key type: [`Workload`]. Neighbours: `net` is the network that the drivers see.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bloodhound_abi::SimTime;
use bloodhound_decisions::Decisions;
use bloodhound_workloads::driver::{Driver, DriverConfig};
use bloodhound_workloads::history::History;

use super::net::HostNet;
use super::run::Event;

/// How long the drivers are left alone when nothing has come and nothing was to be done. The same drivers run in simulations, where they
/// are asked again and again, so they name no descriptors that could be waited for.
const IDLE: Duration = Duration::from_micros(300);

/// The time of a run: nanoseconds since its stack began to start.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    pub fn now(&self) -> SimTime {
        SimTime(u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// A workload that runs.
#[derive(Debug)]
pub struct Workload {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<History>>,
}

impl Workload {
    /// Begins; its end is told to `events`.
    ///
    /// # Errors
    /// The host has no thread for it.
    pub fn start(
        config: DriverConfig,
        seed: u64,
        clock: Clock,
        events: Sender<Event>,
    ) -> std::io::Result<Workload> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let work = move || {
            let history = drive(config, seed, clock, &stopped);
            // Who has stopped it may not wait for it.
            let _ignored = events.send(Event::Workload);
            history
        };
        let thread = std::thread::Builder::new().name("workload".into()).spawn(work)?;
        Ok(Workload { stop, thread: Some(thread) })
    }

    /// Ends it where it is; what was asked and answered so far.
    pub fn end(&mut self) -> History {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        self.end();
    }
}

fn drive(config: DriverConfig, seed: u64, clock: Clock, stop: &AtomicBool) -> History {
    let clients = config.clients();
    let mut driver = Driver::new(config);
    let (mut decisions, mut net) = (Decisions::seeded(seed), HostNet::default());
    driver.start(clock.now(), &mut decisions);
    while !driver.is_finished() && !stop.load(Ordering::Relaxed) {
        for client in 0..clients {
            driver.poll(client, clock.now(), &mut net, &mut decisions);
        }
        if driver.take_progress().is_empty() && !net.worked() {
            std::thread::sleep(IDLE);
        }
    }
    driver.history().clone()
}

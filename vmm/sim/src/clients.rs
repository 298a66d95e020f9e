//! Workload clients: nodes of the network without a kernel, each a TCP/IP stack driven by a driver of
//! `bloodhound-workloads`; and the prober, from which `http` checks ask.

use std::net::IpAddr;

use bloodhound_abi::SimTime;
use bloodhound_net::{NodeId, Packet, Stack};
use bloodhound_workloads::driver::Driver;

use crate::machine::Machine;
use crate::scenario::Scenario;

/// A client node.
#[derive(Clone, Debug)]
pub struct ClientNode {
    /// Its place in the network.
    pub id: NodeId,
    /// Its sockets.
    pub stack: Stack,
}

/// All clients of a run.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    /// The workload.
    pub driver: Option<Driver>,
    /// The workload's nodes, in the driver's order.
    pub nodes: Vec<ClientNode>,
    /// Where checks ask from.
    pub prober: Option<ClientNode>,
}

impl Clients {
    /// Clients as the scenario says; `seed` sets their ports and sequence numbers.
    pub fn new(scenario: &Scenario, seed: u64) -> Clients {
        let node = |(id, ip): &(NodeId, IpAddr)| {
            let mut stack = Stack::new(crate::setup::network_config(), seed ^ u64::from(id.0));
            stack.add_address(*ip, 8);
            ClientNode { id: *id, stack }
        };
        Clients {
            driver: scenario.workload.clone().map(Driver::new),
            nodes: scenario.clients.iter().map(node).collect(),
            prober: scenario.prober.as_ref().map(node),
        }
    }

    /// When something must happen without a packet.
    fn deadline(&self, probe: Option<SimTime>) -> Option<SimTime> {
        let stacks = self.nodes.iter().chain(&self.prober).filter_map(|n| n.stack.next_deadline());
        let driver =
            self.driver.iter().flat_map(|d| (0..self.nodes.len() as u32).filter_map(|c| d.next_wakeup(c)));
        stacks.chain(driver).chain(probe).min()
    }
}

impl Machine {
    pub(crate) fn client_deadline(&self) -> Option<SimTime> {
        let at = self.world.clients.deadline(self.probe_deadline())?;
        Some(at.max(self.world.now))
    }

    /// Timers and wake-ups of all clients at `now`.
    pub(crate) fn run_clients(&mut self, now: SimTime) {
        for index in 0..self.world.clients.nodes.len() {
            let clients = &self.world.clients;
            let due = |at: Option<SimTime>| at.is_some_and(|at| at <= now);
            let driver_due = clients.driver.as_ref().is_some_and(|d| due(d.next_wakeup(index as u32)));
            if driver_due || due(clients.nodes[index].stack.next_deadline()) {
                self.run_client(index, now);
            }
        }
        let prober_due = self
            .world
            .clients
            .prober
            .as_ref()
            .and_then(|p| p.stack.next_deadline())
            .is_some_and(|at| at <= now);
        if prober_due || self.probe_deadline().is_some_and(|at| at <= now) {
            self.run_prober(now);
        }
    }

    fn run_client(&mut self, index: usize, now: SimTime) {
        let world = &mut self.world;
        let node = &mut world.clients.nodes[index];
        if node.stack.next_deadline().is_some_and(|at| at <= now) {
            node.stack.on_time(now);
        }
        if let Some(driver) = &mut world.clients.driver {
            driver.poll(index as u32, now, &mut node.stack, &mut world.decisions);
        }
        let _looked_at_by_polling = node.stack.take_events();
        let (id, packets) = (node.id, node.stack.take_output());
        node.stack.drain_changes();
        self.tell_choices();
        self.tell_operations(id);
        self.send_packets(id, packets, now);
    }

    pub(crate) fn run_prober(&mut self, now: SimTime) {
        let Some(prober) = &mut self.world.clients.prober else { return };
        if prober.stack.next_deadline().is_some_and(|at| at <= now) {
            prober.stack.on_time(now);
        }
        self.poll_probes(now);
        let Some(prober) = &mut self.world.clients.prober else { return };
        let _looked_at_by_polling = prober.stack.take_events();
        let (id, packets) = (prober.id, prober.stack.take_output());
        prober.stack.drain_changes();
        self.send_packets(id, packets, now);
    }

    pub(crate) fn deliver_to_client(&mut self, id: NodeId, packet: Packet) {
        let now = self.world.now;
        let clients = &mut self.world.clients;
        if let Some(index) = clients.nodes.iter().position(|n| n.id == id) {
            clients.nodes[index].stack.input(packet, now);
            self.run_client(index, now);
        } else if let Some(prober) = clients.prober.as_mut().filter(|p| p.id == id) {
            prober.stack.input(packet, now);
            self.run_prober(now);
        }
    }

    /// The workload begins.
    pub fn begin_workload(&mut self) {
        let now = self.world.now;
        if let Some(driver) = &mut self.world.clients.driver {
            driver.start(now, &mut self.world.decisions);
        }
        self.begin_checks();
    }
}

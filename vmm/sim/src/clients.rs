//! Workload clients: nodes of the network without a kernel, driven by a state machine of `bloodhound-workloads`.

use bloodhound_abi::SimTime;
use bloodhound_net::{NodeId, Packet};

use crate::machine::Machine;

impl Machine {
    pub(crate) fn client_deadline(&self) -> Option<SimTime> {
        None
    }

    pub(crate) fn run_clients(&mut self, _now: SimTime) {}

    pub(crate) fn deliver_to_client(&mut self, _id: NodeId, _packet: Packet) {}

    pub(crate) fn check_due(&mut self, _index: usize) {}

    pub(crate) fn recovery_begins(&mut self) {}
}

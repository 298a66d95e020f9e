//! A partition: some nodes cannot reach some others for a time.

use bloodhound_abi::SimTime;
use bloodhound_faults::Shape;
use bloodhound_net::{NodeId, PartitionKind};

use super::{Draw, Names, Room};
use crate::machine::Machine;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Who cannot reach whom.
    pub cut: PartitionKind,
}

impl Room for Partition {
    fn draw(draw: &mut Draw<'_>) -> Option<Partition> {
        let mut nodes = draw.targets.to_vec();
        if nodes.len() < 2 {
            return None;
        }
        // Fisher-Yates; 0 leaves a node where it is.
        for i in (1..nodes.len()).rev() {
            let step = draw.choose(&format!("order-{i}"), i as u64 + 1) as usize;
            nodes.swap(i, i - step);
        }
        let shape = draw.shape()?;
        let cut = 1 + draw.choose("cut", nodes.len() as u64 - 1) as usize;
        let (a, b) = (nodes[..cut].to_vec(), nodes[cut..].to_vec());
        let cut = match shape {
            Shape::Symmetric => PartitionKind::Symmetric(a, b),
            Shape::OneWay => PartitionKind::OneWay(a, b),
            Shape::Isolate => PartitionKind::Isolate(nodes[0], nodes[1..].to_vec()),
            Shape::MajorityMinority => {
                let half = nodes.len() / 2 + 1;
                PartitionKind::MajorityMinority(nodes[..half].to_vec(), nodes[half..].to_vec())
            }
            Shape::Bridge => {
                let half = 1 + (nodes.len() - 1) / 2;
                PartitionKind::Bridge(nodes[0], nodes[1..half].to_vec(), nodes[half..].to_vec())
            }
            Shape::Link => PartitionKind::Symmetric(vec![nodes[0]], vec![nodes[1]]),
        };
        Some(Partition { cut })
    }

    fn node(&self) -> Option<NodeId> {
        None
    }

    fn hindered(&self, _: &Machine) -> Option<&'static str> {
        None
    }

    fn describe(&self, name: Names<'_>, ms: u64) -> String {
        let names = |ids: &[NodeId]| ids.iter().map(|id| name(*id)).collect::<Vec<_>>().join(" ");
        let who = match &self.cut {
            PartitionKind::Symmetric(a, b) => format!("[{}] | [{}]", names(a), names(b)),
            PartitionKind::OneWay(a, b) => format!("[{}] -/-> [{}]", names(a), names(b)),
            PartitionKind::Isolate(node, rest) => {
                format!("isolate {} from [{}]", name(*node), names(rest))
            }
            PartitionKind::MajorityMinority(a, b) => {
                format!("majority [{}] | minority [{}]", names(a), names(b))
            }
            PartitionKind::Bridge(node, a, b) => {
                format!("[{}] | [{}], bridge {}", names(a), names(b), name(*node))
            }
        };
        format!("partition {who} for {ms} ms")
    }

    fn begin(&self, machine: &mut Machine, entry: usize, _: SimTime) {
        let id = machine.world.fabric.partition(self.cut.clone());
        machine.world.faults.partitions.insert(entry, id);
    }

    fn end(&self, machine: &mut Machine, entry: usize) -> bool {
        let id = machine.world.faults.partitions.remove(&entry);
        id.is_some_and(|id| machine.world.fabric.heal(id))
    }
}

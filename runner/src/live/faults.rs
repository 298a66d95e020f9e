//! Faults as far as an engine can do them: a crash is a kill and a start, a pause is a pause, a partition takes containers off their
//! networks. What an engine cannot do is said by name.
//!
//! Key functions: [`possible`], [`cut_off`]. The plan is drawn as the simulation draws it, from the same keys (`bloodhound_sim::faults::drawn`).

use std::collections::BTreeSet;

use bloodhound_faults::{Kind, Shape};
use bloodhound_net::{NodeId, PartitionKind};
use bloodhound_sim::faults::{Fault, Scheduled, Trigger, What};
use bloodhound_sim::scenario::FaultSpec;

/// The shapes of partitions that come of taking containers off their networks.
const SHAPES: [Shape; 3] = [Shape::Symmetric, Shape::Isolate, Shape::MajorityMinority];

/// What of the faults that are asked for an engine can do, and what it cannot, by its key.
pub fn possible(asked: &FaultSpec) -> (FaultSpec, Vec<String>) {
    let (mut faults, mut impossible) = (asked.clone(), Vec::new());
    for declaration in Kind::DECLARATIONS.iter().filter(|declaration| asked.is_on(declaration.kind)) {
        match declaration.kind {
            Kind::Crash | Kind::Pause => {}
            Kind::Partition => {
                let shapes = &mut faults.get_mut(Kind::Partition).shapes;
                let without: Vec<&str> = shapes
                    .iter()
                    .filter(|shape| !SHAPES.contains(shape))
                    .map(|shape| shape.as_str())
                    .collect();
                if !without.is_empty() {
                    impossible.push(format!("partitions of the kinds {}", without.join(", ")));
                }
                shapes.retain(|shape| SHAPES.contains(shape));
                if shapes.is_empty() {
                    faults.switch_off(Kind::Partition);
                }
            }
            kind => {
                let key = declaration.switch().or(declaration.keys.first());
                impossible.push(key.map_or(declaration.name, |key| key.name).to_owned());
                faults.switch_off(kind);
            }
        }
    }
    (faults, impossible)
}

/// Takes out of a schedule what an engine cannot do, and says what that was.
pub fn possible_schedule(schedule: &mut Vec<Scheduled>) -> Vec<String> {
    let mut impossible = BTreeSet::new();
    schedule.retain(|entry| {
        let cut = match &entry.what {
            What::Cut(cut) => !matches!(cut, PartitionKind::OneWay(..) | PartitionKind::Bridge(..)),
            What::Shape(shape) => SHAPES.contains(shape),
            _ => entry.kind != Kind::Partition,
        };
        let kind = matches!(entry.kind, Kind::Crash | Kind::Pause | Kind::Partition) && cut;
        let timed = matches!(entry.trigger, Trigger::At(_));
        if !kind {
            impossible.insert(format!("{} of the schedule", entry.kind));
        } else if !timed {
            impossible.insert("faults that wait for a line or a call".to_owned());
        }
        kind && timed
    });
    impossible.into_iter().collect()
}

/// The containers that a partition takes off their networks: the smaller side. They cannot reach each other either.
pub fn cut_off(fault: &Fault) -> Vec<NodeId> {
    let Fault::Partition(partition) = fault else { return Vec::new() };
    match &partition.cut {
        PartitionKind::Isolate(node, _) => vec![*node],
        PartitionKind::Symmetric(a, b) | PartitionKind::MajorityMinority(a, b) => {
            if a.len() < b.len() {
                a.clone()
            } else {
                b.clone()
            }
        }
        // Never drawn: `possible` takes them out.
        PartitionKind::OneWay(..) | PartitionKind::Bridge(..) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_engine_cannot_do_is_named_and_taken_out() {
        let asked = FaultSpec::default()
            .with_rate(Kind::Drop, 1000)
            .with_rate(Kind::Reset, 1000)
            .with_rate(Kind::Crash, 1000)
            .with_rate(Kind::Partition, 1000);
        let (faults, impossible) = possible(&asked);
        assert_eq!(impossible, ["drop_rate", "reset_probability", "partitions of the kinds one-way, bridge"]);
        let on = [Kind::Drop, Kind::Reset, Kind::Crash, Kind::Partition].map(|kind| faults.is_on(kind));
        assert_eq!(on, [false, false, true, true]);
        assert_eq!(faults.get(Kind::Partition).shapes, SHAPES);
        assert_eq!(faults.get(Kind::Crash), asked.get(Kind::Crash));
        assert_eq!(possible(&FaultSpec::default()), (FaultSpec::default(), Vec::new()));
    }

    #[test]
    fn the_smaller_side_is_cut_off() {
        let ids = |list: &[u32]| list.iter().map(|id| NodeId(*id)).collect::<Vec<_>>();
        let of = |cut| cut_off(&Fault::Partition(bloodhound_sim::faults::Partition { cut }));
        assert_eq!(of(PartitionKind::Symmetric(ids(&[1]), ids(&[2, 3]))), ids(&[1]));
        assert_eq!(of(PartitionKind::MajorityMinority(ids(&[1, 2]), ids(&[3]))), ids(&[3]));
        assert_eq!(of(PartitionKind::Isolate(NodeId(2), ids(&[1, 3]))), ids(&[2]));
    }
}

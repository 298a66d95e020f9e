//! Faults of disks that are about volumes: whom they stand for in a plan, which disks they harm.

use super::super::limits::Limits;
use super::super::*;
use super::limits::{MS, phases, plan_of, scenario};
use bloodhound_vfs::Volume;

/// Five services; the second one and the third one mount `data`, the first one `log`. The last two are on one machine.
fn with_volumes(only: &[Volume]) -> Scenario {
    let mut scenario = scenario(5);
    let volume = |name: &str, nodes: &[u32]| VolumePlaces {
        name: name.into(),
        places: nodes.iter().map(|node| (NodeId(*node), b"/data".to_vec())).collect(),
    };
    scenario.planning.volumes = vec![volume("data", &[2, 3]), volume("log", &[1])];
    for kind in [Kind::DiskFull, Kind::DiskSlow, Kind::BadSector] {
        scenario.planning.only_volumes.insert(kind, only.to_vec());
    }
    scenario
}

fn drawn(scenario: &Scenario) -> Vec<Planned> {
    let kinds = [Kind::DiskFull, Kind::DiskSlow, Kind::BadSector, Kind::DiskReadonly];
    let faults = kinds.into_iter().fold(FaultSpec::default(), |faults, kind| {
        faults.with_rate(kind, 5_000_000).with_time(kind, (50 * MS, 50 * MS))
    });
    plan_of(scenario, &faults, (phases(), None), (&[], None), &mut Decisions::seeded(3))
}

fn name(node: NodeId) -> String {
    format!("kv{}", node.0)
}

#[test]
fn a_seed_hits_the_volumes_that_are_named_and_no_disk_beside() {
    let scenario = with_volumes(&[Volume(0), Volume(1)]);
    let plan = drawn(&scenario);
    let mut seen = BTreeSet::new();
    for entry in &plan {
        let place = entry.fault.disk_place().expect("a disk");
        match &place.volume {
            Some(NamedVolume { volume, name }) => {
                assert_eq!((place.node.0, &name[..]), if volume.0 == 0 { (2, "data") } else { (1, "log") });
                assert!(entry.describe(&self::name).contains(&format!("the volume {name}")));
                seen.insert((entry.id.kind, volume.0));
            }
            None => assert_eq!(entry.id.kind, Kind::DiskReadonly, "of this one no volume is named"),
        }
    }
    assert_eq!(seen.len(), 6, "{seen:?}");
    // A volume less leaves the others where they were.
    let less = drawn(&with_volumes(&[Volume(0)]));
    let is_log = |entry: &&Planned| {
        let named = entry.fault.disk_place().and_then(|place| place.volume.as_ref());
        named.is_some_and(|named| named.name == "log")
    };
    assert!(less.iter().eq(plan.iter().filter(|entry| !is_log(entry))));
}

/// Where a service is named as well that stands for a volume, either comes.
#[test]
fn a_service_and_a_volume_can_be_named_together() {
    let mut scenario = with_volumes(&[Volume(0)]);
    scenario.planning.only.insert(Kind::DiskFull, vec![NodeId(2), NodeId(4)]);
    let plan = drawn(&scenario);
    let full = plan.iter().filter(|entry| entry.id.kind == Kind::DiskFull);
    let places: BTreeSet<String> = full
        .map(|entry| entry.describe(&name).split(" is full").next().unwrap_or_default().to_owned())
        .collect();
    let expected = ["the disk of kv2", "the disk of kv4", "the volume data"];
    assert!(places.iter().eq(&expected), "{places:?}");
}

#[test]
fn a_volume_harms_the_disks_of_all_that_mount_it() {
    let scenario = with_volumes(&[]);
    let full = |node, volume: Option<u32>| Planned {
        id: FaultId { kind: Kind::DiskFull, target: node, nth: 0 },
        begin: SimTime(1000),
        duration: 10 * MS,
        fault: Fault::DiskFull(DiskFull {
            place: DiskPlace {
                node: NodeId(node),
                volume: volume.and_then(|volume| scenario.planning.named(Volume(volume))),
            },
        }),
    };
    let kept = |disks, entries: &[Planned]| {
        let limits = Limits { disks: Some(disks), ..Limits::default() };
        let drawn = entries.iter().map(|entry| plan::Drawn::kept(entry.clone())).collect();
        limits.admit(drawn, &scenario, (phases(), None), &[]).len()
    };
    assert_eq!(kept(1, &[full(2, Some(0))]), 0, "two machines have it");
    assert_eq!(kept(2, &[full(2, Some(0)), full(3, None)]), 2);
    assert_eq!(kept(2, &[full(2, Some(0)), full(1, None)]), 1);
}

//! Names of choices are told apart, and read back from their text.

use super::*;

fn examples() -> Vec<Site> {
    let task = Lineage::root(0).child(3);
    let (src, dst) = ("10.0.0.2:33001".parse().expect("v4"), "[fd00::3]:80".parse().expect("v6"));
    let place = Place { life: 1, port_use: 2, offset: 3, ack: 4, transmission: 5 };
    let mut all = vec![Site::ClientRandom { nth: 1 }, Site::Arrival { worker: 3, nth: 4 }];
    all.extend(Trait::ALL.iter().map(|part| Site::Node { node: 7, part: *part }));
    all.extend(PolicyPart::ALL.iter().map(|part| Site::Policy { part: *part }));
    for part in TurnPart::ALL {
        all.push(Site::Turn { node: 1, life: 0, task, nth: 57, part: *part });
        all.push(Site::FreshTurn { node: 1, life: 0, nth: 57, part: *part });
    }
    let node = |part: &NodeRandom| Site::NodeRandom { node: 1, life: 2, part: *part, nth: 0 };
    all.extend(NodeRandom::ALL.iter().map(node));
    let random = |part: &TaskRandom| Site::TaskRandom { node: 1, life: 2, task, nth: 9, part: *part };
    all.extend(TaskRandom::ALL.iter().map(random));
    for kind in PacketKind::ALL {
        all.extend(Fate::ALL.iter().map(|fate| Site::packet(src, dst, *kind, place, *fate)));
    }
    let word = Word::new;
    all.push(Site::Operation { worker: 1, nth: 2, field: word("header-1"), part: 0 });
    all.push(Site::Priority { node: 1, life: 2, task, nth: 9 });
    all.push(Site::Change { node: 1, life: 2, task, nth: 9 });
    all.push(Site::Starve { node: 1, life: 2, task });
    all.push(Site::Often { node: 1, life: 2, task, place: 3, nth: 4 });
    all.extend(SwitchPart::ALL.iter().map(|part| Site::Switch { nth: 3, part: *part }));
    let power = |part: &PowerPart| Site::Power { machine: 2, failure: 0, nth: 4, part: *part };
    all.extend(PowerPart::ALL.iter().map(power));
    let (kind, part) = (word("fsync-fail"), word("happens"));
    all.push(Site::DiskCall { node: 1, life: 2, task, kind, nth: 9, part });
    all.push(Site::Call { node: 1, life: 2, task, kind, nth: 9, part });
    all.push(Site::Swarm { kind: word("drop") });
    all.push(Site::Fault { kind: word("crash"), target: 3, nth: 0, part: word("duration") });
    all
}

#[test]
fn sites_are_told_apart_and_read_back() {
    let mut seen = std::collections::BTreeSet::new();
    for site in examples() {
        let mut mix = Mix::new(0);
        site.feed(&mut mix);
        assert!(seen.insert(mix.finish(0)), "{site} has the value of another site");
        assert_eq!(site.to_string().parse(), Ok(site));
    }
    let turn = examples().into_iter().find(|site| matches!(site, Site::Turn { .. })).expect("a turn");
    assert_eq!(turn.to_string(), "turn(node=1,life=0,task=0.3,nth=57,part=who)");
}

#[test]
fn what_names_no_site_is_refused_with_the_reason() {
    for (text, why) in [
        ("turn", "it has no `(`"),
        ("turn(node=1", "it does not end in `)`"),
        ("tern(node=1)", "there is no such kind of choice"),
        ("swarm()", "`kind=` is missing"),
        ("swarm(kind=UP)", "`kind` cannot be `UP`"),
        ("swarm(kind=drop,kind=drop)", "`kind=drop` is too much"),
        ("node(part=clock,node=1)", "`node=` is missing"),
    ] {
        let error = text.parse::<Site>().expect_err(text);
        assert!(error.ends_with(why), "{text}: {error}");
    }
}

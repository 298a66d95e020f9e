use super::*;

fn packet(port: u16, offset: u32, transmission: u32) -> Packet {
    let (src, dst) = (SocketAddr::from(([10, 0, 0, 1], port)), SocketAddr::from(([10, 0, 0, 2], 80)));
    Packet { src, dst, kind: PacketKind::Data, place: Place { offset, transmission, ..Place::default() } }
}

fn name(port: u16, offset: u32, transmission: u32) -> Name {
    Name::Packet(packet(port, offset, transmission))
}

fn call(node: u32, life: u32, nth: u64) -> Name {
    let kind = Word::new("write-fail");
    Name::Call(Call { node, life, task: Lineage::root(0), kind, nth, of_disk: true })
}

fn made(name: Name, what: What, value: u64, at: u64) -> Made {
    let choice = name.choice(what).expect("it has such a choice");
    Made { choice, bound: 9, value, plain: value == 0, at }
}

fn overrides(expected: &[(Name, What, u64)]) -> BTreeMap<Choice, Override> {
    let choice = |(name, what, value): &(Name, What, u64)| {
        (name.choice(*what).expect("it has such a choice"), Override { bound: 9, value: *value })
    };
    expected.iter().map(choice).collect()
}

#[test]
fn connections_are_near_if_one_end_is_the_same() {
    assert_eq!(name(9, 1, 0).distance(name(9, 5, 2)), Some(0));
    assert_eq!(name(9, 1, 0).distance(name(8, 1, 0)), Some(1));
    let ack = Name::Packet(Packet { kind: PacketKind::Ack, ..packet(9, 1, 0) });
    assert_eq!(ack.distance(name(9, 1, 0)), None);
    let Packet { src, dst, .. } = packet(9, 1, 0);
    let back = Name::Packet(Packet { src: dst, dst: src, ..packet(9, 1, 0) });
    assert_eq!(back.distance(name(9, 1, 0)), None);
}

#[test]
fn calls_are_near_on_the_same_node() {
    assert_eq!(call(1, 0, 3).distance(call(1, 0, 9)), Some(0));
    assert_eq!(call(1, 0, 3).distance(call(1, 1, 9)), Some(1));
    assert_eq!(call(1, 0, 3).distance(call(2, 0, 3)), None);
    assert_eq!(call(1, 0, 3).distance(name(9, 1, 0)), None);
}

#[test]
fn a_mishap_is_moved_to_the_packet_of_its_time() {
    let [loss, delay, by, jitter] = [Fate::Loss, Fate::Delay, Fate::DelayBy, Fate::Jitter].map(What::Fate);
    let failing = [
        made(name(9, 60, 0), loss, 0, 20),
        made(name(9, 60, 0), jitter, 3, 20),
        made(name(9, 100, 0), delay, 8, 50),
        made(name(9, 100, 0), by, 2, 50),
        made(name(9, 130, 0), loss, 8, 60),
        made(name(9, 130, 1), loss, 8, 300),
    ];
    let met = Met::by(&Log::new(0, 1), &failing);
    assert_eq!(met.0.len(), 3, "it met a delay and two losses");
    let explicit = Log { plain: vec![Concern::Network], ..Log::new(0, 1) };
    assert_eq!(
        Met::by(&explicit, &failing).0.len(),
        4,
        "where it is named, a packet that took long is one too"
    );
    // Without an operation its bytes are missing, and the rest is sent at about the same times.
    let without = [(20, 48), (60, 61), (90, 70)];
    let without = without.map(|(offset, at)| [loss, delay].map(|fate| made(name(9, offset, 0), fate, 0, at)));
    let log = met.moved_to(Log::new(0, 1), &without.concat(), Reach::Next);
    let expected = [
        (name(9, 20, 0), delay, 8),
        (name(9, 20, 0), by, 2),
        (name(9, 60, 0), loss, 8),
        (name(9, 60, 1), loss, 8),
    ];
    assert_eq!(log.overrides, overrides(&expected));
}

#[test]
fn a_mishap_is_moved_to_all_packets_around_its_time() {
    let loss = What::Fate(Fate::Loss);
    let failing = [made(name(9, 100, 0), loss, 8, 50), made(name(9, 100, 1), loss, 7, 300)];
    let without = [(20, 40), (60, 52), (90, 70)];
    let without = without.map(|(offset, at)| made(name(9, offset, 0), loss, 0, at));
    let log = Met::by(&Log::new(0, 1), &failing).moved_to(Log::new(0, 1), &without, Reach::Around(10));
    let expected = [20, 60].map(|offset| [(name(9, offset, 0), loss, 8), (name(9, offset, 1), loss, 7)]);
    assert_eq!(log.overrides, overrides(&expected.concat()));
}

#[test]
fn a_mishap_is_moved_to_the_call_of_its_time() {
    let [happens, count] = ["happens", "count"].map(|part| What::Part(Word::new(part)));
    let failing = [
        made(call(1, 0, 6), happens, 0, 20),
        made(call(1, 0, 7), happens, 1, 50),
        made(call(1, 0, 7), count, 4, 50),
    ];
    assert!(calls_met(&failing));
    assert!(Met::by(&Log::new(0, 1), &failing).0.is_empty());
    // Without an operation there is one call less before it, and one at the same time on another node.
    let without = [(call(1, 0, 5), 22), (call(1, 0, 6), 51), (call(2, 0, 7), 50)];
    let without = without.map(|(call, at)| made(call, happens, 0, at));
    assert!(!calls_met(&without));
    let explicit = Log { plain: OF_CALLS.to_vec(), ..Log::new(0, 1) };
    let log = Met::by(&explicit, &failing).moved_to(Log::new(0, 1), &without, Reach::Next);
    assert_eq!(log.overrides, overrides(&[(call(1, 0, 6), happens, 1), (call(1, 0, 6), count, 4)]));
}

#[test]
fn a_log_without_mishaps_keeps_what_is_not_about_packets_and_calls() {
    let lost = name(9, 1, 0).choice(What::Fate(Fate::Loss)).expect("a choice");
    let failed = call(1, 0, 2).choice(What::Part(Word::new("happens"))).expect("a choice");
    let other = Choice { part: Part::Run, site: Site::Arrival { worker: 0, nth: 0 } };
    let log = Log::new(0, 1).with(lost, 9, 4).with(failed, 9, 1).with(other, 9, 5);
    let kept = without_mishaps(log.clone());
    assert_eq!(kept.plain, [Concern::Network]);
    assert!(kept.overrides.keys().eq([&failed, &other].iter().copied().collect::<BTreeSet<_>>()));
    // Where only what the log names fails, nothing does then.
    let kept = without_mishaps(Log { plain: OF_CALLS.to_vec(), ..log });
    assert_eq!(kept.overrides.keys().collect::<Vec<_>>(), [&other]);
}

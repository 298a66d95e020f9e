//! What a choice costs on the host: `cargo bench -p bloodhound-decisions`, beside a draw of the generator with a state (ChaCha8, with
//! the list of what was drawn) that choices came from before.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

use std::hint::black_box;
use std::time::Instant;

use bloodhound_decisions::{Decisions, Fate, Lineage, PacketKind, Place, Site, TurnPart};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

const ROUNDS: u64 = 1_000_000;

/// Best of five, in ns per round.
fn time(mut work: impl FnMut(u64)) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..5 {
        let start = Instant::now();
        for round in 0..ROUNDS {
            work(round);
        }
        best = best.min(start.elapsed().as_nanos() as f64 / ROUNDS as f64);
    }
    best
}

fn main() {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut log = Vec::new();
    let before = time(|round| {
        if round == 0 {
            log.clear();
        }
        let value = (u128::from(rng.next_u64()) * u128::from(black_box(3u64))) >> 64;
        log.push(black_box(value as u64));
    });
    println!("{:<28} {before:>6.1} ns", "chacha8 and a list");
    let mut decisions = Decisions::seeded(1);
    let task = Lineage::root(0).child(2);
    let turn = time(|nth| {
        let site = Site::Turn { node: 1, life: 0, task, nth, part: TurnPart::Who };
        black_box(decisions.choose(site, black_box(3)));
    });
    println!("{:<28} {turn:>6.1} ns   ratio {:.2}", "choose: a turn", turn / before);
    let (src, dst) = ("10.0.0.2:33001".parse().expect("v4"), "10.0.0.3:80".parse().expect("v4"));
    let packet = time(|round| {
        let place = Place { offset: round as u32, ..Place::default() };
        let site = Site::packet(src, dst, PacketKind::Data, place, Fate::Loss);
        black_box(decisions.chance(site, 10_000_000));
    });
    println!("{:<28} {packet:>6.1} ns   ratio {:.2}", "choose: a packet", packet / before);
}

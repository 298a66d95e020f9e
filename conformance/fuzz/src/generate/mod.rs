//! Cases from seeds.
//!
//! A [`model::Model`] knows what probably exists: descriptors by kind, paths, actors, signals. Each family adds operations that
//! work on it, mostly right ones, some with a wrong kind of object or a value at a boundary. What a native kernel does differently
//! from time to time, or Bloodhound on purpose, is left out where it would be made, with the reason.

mod descriptors;
mod events;
mod files;
mod ipc;
mod memory;
pub mod model;
mod names;
mod pipes;
mod processes;
mod programs;
mod rights;
mod signals;
mod sockets;

use crate::case::Case;
use crate::rng::Rng;
use model::Model;

/// Adds one operation or a few.
pub type Family = fn(&mut Model);

/// The families of operations by name.
pub const FAMILIES: &[(&str, Family)] = &[
    ("files", files::op),
    ("names", names::op),
    ("descriptors", descriptors::op),
    ("pipes", pipes::op),
    ("memory", memory::op),
    ("processes", processes::op),
    ("signals", signals::op),
    ("events", events::op),
    ("ipc", ipc::op),
    ("sockets", sockets::op),
    ("rights", rights::op),
];

/// The case of a seed, of these families only if there are any.
pub fn case(seed: u64, families: &[String]) -> Case {
    let mut rng = Rng::new(seed);
    let all: Vec<Family> = FAMILIES
        .iter()
        .filter(|(name, _)| families.is_empty() || families.iter().any(|f| f == name))
        .map(|(_, family)| *family)
        .collect();
    // Few families at a time: their operations then meet.
    let chosen: Vec<Family> = (0..1 + rng.below(3)).map(|_| rng.pick(&all)).collect();
    let count = 8 + rng.below(40);
    let mut model = Model::new(rng);
    while (model.ops.len() as u64) < count {
        let family = model.rng.pick(&chosen);
        family(&mut model);
    }
    model.op("0 . .fds");
    Case { name: format!("seed-{seed}"), ops: model.ops }
}

//! How the keys of kinds are declared: one function for each sort of value, which [`crate::kinds`] calls.

use bloodhound_declare::{Key, ValueKind};

/// How many packets, or operations.
pub(crate) const fn rate(name: &'static str, doc: &'static str) -> Key {
    Key::new(name, ValueKind::Rate { most: "1" }, doc).default("0")
}

/// How likely in each time step: for each node, or (`per` is empty) once for the network.
pub(crate) const fn probability(name: &'static str, per: &'static str, doc: &'static str) -> Key {
    Key::new(name, ValueKind::Probability { per }, doc).default("0")
}

/// A time.
pub(crate) const fn millis(name: &'static str, default: &'static str, doc: &'static str) -> Key {
    Key::new(name, ValueKind::Millis, doc).default(default)
}

/// Times, between two.
pub(crate) const fn range(name: &'static str, default: &'static str, doc: &'static str) -> Key {
    Key::new(name, ValueKind::MillisRange, doc).default(default)
}

/// A whole number.
pub(crate) const fn number(
    name: &'static str,
    (least, most): (u64, u64),
    default: &'static str,
    doc: &'static str,
) -> Key {
    Key::new(name, ValueKind::Integer { least, most }, doc).default(default)
}

/// Parts per million, between two numbers of them.
pub(crate) const fn ppm(name: &'static str, default: &'static str, doc: &'static str) -> Key {
    Key::new(name, ValueKind::PpmRange, doc).default(default)
}

//! [`FaultSpec`]: how often and how strong each kind of faults is.

use std::fmt;

use bloodhound_declare::{Absent, Key, ValueKind, scalar};

use crate::{Kind, Shape};

/// How often and how strong one kind is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// Parts per billion, per packet or per time step; of no meaning for kinds without a rate.
    pub rate: u32,
    /// Shortest and longest time, ns; equal for kinds with one time.
    pub time: (u64, u64),
    /// Shapes that may be drawn.
    pub shapes: Vec<Shape>,
}

/// Kinds that are part of the digest of every run ([`FaultSpec`]'s `Debug`).
const ALWAYS: [Kind; 11] = [
    Kind::Drop,
    Kind::Delay,
    Kind::Latency,
    Kind::Jitter,
    Kind::Corrupt,
    Kind::Duplicate,
    Kind::Reorder,
    Kind::Reset,
    Kind::Partition,
    Kind::Crash,
    Kind::Pause,
];

/// A [`Setting`] for each kind.
#[derive(Clone, PartialEq, Eq)]
pub struct FaultSpec {
    /// By kind.
    settings: Vec<Setting>,
    /// Every seed draws which kinds are on and how strong (swarm testing); otherwise all are on at full strength.
    pub swarm: bool,
}

impl Default for FaultSpec {
    /// No faults, and the times of the declarations.
    fn default() -> FaultSpec {
        let setting = |kind: Kind| {
            let mut setting = Setting::default();
            for key in kind.declaration().keys {
                match key.kind {
                    ValueKind::Millis | ValueKind::MillisRange => setting.time = default_time(key),
                    ValueKind::NonEmpty(..) => setting.shapes = Shape::ALL.to_vec(),
                    _ => {}
                }
            }
            setting
        };
        let settings = Kind::DECLARATIONS.iter().map(|declaration| setting(declaration.kind)).collect();
        FaultSpec { settings, swarm: false }
    }
}

/// The shortest and the longest time that a key declares for its absence, ns.
fn default_time(key: &Key) -> (u64, u64) {
    let Absent::Means(text) = key.absent else { return (0, 0) };
    let one = |text: &str| scalar::millis(text.trim()).expect("a default is a number of milliseconds");
    match text.trim_matches(['[', ']']).split_once(',') {
        Some((shortest, longest)) => (one(shortest), one(longest)),
        None => (one(text), one(text)),
    }
}

impl FaultSpec {
    /// The setting of a kind.
    pub fn get(&self, kind: Kind) -> &Setting {
        &self.settings[kind as usize]
    }

    /// The setting of a kind, to change it.
    pub fn get_mut(&mut self, kind: Kind) -> &mut Setting {
        &mut self.settings[kind as usize]
    }

    /// With this rate for a kind.
    #[must_use]
    pub fn with_rate(mut self, kind: Kind, rate: u32) -> FaultSpec {
        self.get_mut(kind).rate = rate;
        self
    }

    /// With these times for a kind, ns.
    #[must_use]
    pub fn with_time(mut self, kind: Kind, time: (u64, u64)) -> FaultSpec {
        self.get_mut(kind).time = time;
        self
    }

    /// Whether a kind is on.
    pub fn is_on(&self, kind: Kind) -> bool {
        let setting = self.get(kind);
        if kind.declaration().switch().is_some() { setting.rate > 0 } else { setting.time.1 > 0 }
    }

    /// Switches a kind off.
    pub fn switch_off(&mut self, kind: Kind) {
        match kind.declaration().switch() {
            Some(_) => self.get_mut(kind).rate = 0,
            None => self.get_mut(kind).time = (0, 0),
        }
    }
}

/// A run's digest has this. A kind that came later is not in it while it is off, so that runs without it have the digest that they had.
impl fmt::Debug for FaultSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = Kind::DECLARATIONS.iter().map(|declaration| declaration.kind);
        let settings: Vec<&Setting> = kinds
            .filter(|kind| ALWAYS.contains(kind) || self.is_on(*kind))
            .map(|kind| self.get(kind))
            .collect();
        f.debug_struct("FaultSpec").field("settings", &settings).field("swarm", &self.swarm).finish()
    }
}

/// As one line: `drop 1%, jitter 2000 us`.
impl fmt::Display for FaultSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for declaration in Kind::DECLARATIONS.iter().filter(|declaration| self.is_on(declaration.kind)) {
            let (name, setting) = (declaration.name, self.get(declaration.kind));
            parts.push(match declaration.switch() {
                Some(_) => {
                    let text = format!("{}.{:07}", setting.rate / 10_000_000, setting.rate % 10_000_000);
                    format!("{name} {}%", text.trim_end_matches('0').trim_end_matches('.'))
                }
                None => format!("{name} {} us", setting.time.1 / 1000),
            });
        }
        if parts.is_empty() { f.write_str("no faults") } else { f.write_str(&parts.join(", ")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_later_kind_that_is_off_is_not_in_the_digest() {
        let spec = FaultSpec::default().with_rate(Kind::Crash, 7);
        let text = format!("{spec:?}");
        assert!(
            text.starts_with("FaultSpec { settings: [Setting { rate: 0, time: (0, 0), shapes: [] }, "),
            "{text}"
        );
        assert!(text.ends_with("], swarm: false }"), "{text}");
        assert_eq!(text.matches("Setting {").count(), ALWAYS.len());
        let more = format!("{:?}", spec.with_rate(Kind::PowerFailure, 1));
        assert_eq!(more.matches("Setting {").count(), ALWAYS.len() + 1);
    }

    #[test]
    fn a_profile_is_a_line() {
        let mut spec = FaultSpec::default();
        assert_eq!(spec.to_string(), "no faults");
        spec = spec
            .with_rate(Kind::Drop, 10_000_000)
            .with_rate(Kind::Crash, 250_000)
            .with_time(Kind::Jitter, (0, 2 * MS));
        assert_eq!(spec.to_string(), "drop 1%, jitter 2000 us, crash 0.025%");
        for kind in [Kind::Drop, Kind::Jitter] {
            spec.switch_off(kind);
        }
        assert_eq!(spec.to_string(), "crash 0.025%");
    }
}

//! [`FaultSpec`]: how often and how strong each kind of faults is.

use std::fmt;

use bloodhound_declare::{Absent, Key, ValueKind, scalar};

use crate::{Kind, Shape};

/// How often and how strong one kind is.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Setting {
    /// Parts per billion, per packet or per time step; of no meaning for kinds without a rate.
    pub rate: u32,
    /// Shortest and longest time, ns; equal for kinds with one time.
    pub time: (u64, u64),
    /// Shapes that may be drawn.
    pub shapes: Vec<Shape>,
    /// A number beside these: bytes, times, kilobits; decimals in thousandths. 0 for kinds without one.
    pub number: u64,
}

/// A number is shown where there is one.
impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { rate, time, shapes, number } = self;
        let mut out = f.debug_struct("Setting");
        out.field("rate", rate).field("time", time).field("shapes", shapes);
        if *number > 0 {
            out.field("number", number);
        }
        out.finish()
    }
}

/// Kinds that are shown for debugging whether they are on or not. The digest of a run takes a profile as it is shown, so a kind that is
/// not asked for must not be seen there; these were there first.
const SHOWN: [Kind; 11] = [
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
                    ValueKind::NonEmpty(..) => setting.shapes = Shape::UNASKED.to_vec(),
                    ValueKind::Integer { .. } | ValueKind::Decimal { .. } => {
                        setting.number = default_number(key);
                    }
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

/// The number that a key declares for its absence; decimals in thousandths.
fn default_number(key: &Key) -> u64 {
    let Absent::Means(text) = key.absent else { return 0 };
    match key.kind {
        ValueKind::Decimal { .. } => scalar::thousandths(text).expect("a default is a decimal"),
        _ => text.parse().expect("a default is a whole number"),
    }
}

impl fmt::Debug for FaultSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = || Kind::DECLARATIONS.iter().map(|declaration| declaration.kind);
        let first: Vec<&Setting> =
            kinds().filter(|kind| SHOWN.contains(kind)).map(|kind| self.get(kind)).collect();
        let mut out = f.debug_struct("FaultSpec");
        out.field("settings", &first);
        for kind in kinds().filter(|kind| !SHOWN.contains(kind) && self.is_on(*kind)) {
            out.field(kind.name(), self.get(kind));
        }
        out.field("swarm", &self.swarm).finish()
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

    /// With this number for a kind.
    #[must_use]
    pub fn with_number(mut self, kind: Kind, number: u64) -> FaultSpec {
        self.get_mut(kind).number = number;
        self
    }

    /// Whether a kind is on.
    pub fn is_on(&self, kind: Kind) -> bool {
        let setting = self.get(kind);
        match kind.declaration().switch() {
            Some(_) => setting.rate > 0,
            None => setting.time.1 > 0 || setting.number > 0,
        }
    }

    /// Switches a kind off.
    pub fn switch_off(&mut self, kind: Kind) {
        match kind.declaration().switch() {
            Some(_) => self.get_mut(kind).rate = 0,
            None => (self.get_mut(kind).time, self.get_mut(kind).number) = ((0, 0), 0),
        }
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
                None if setting.number > 0 => format!("{name} {}", setting.number),
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
        spec = spec.with_number(Kind::Bandwidth, 512);
        assert_eq!(spec.to_string(), "bandwidth 512, crash 0.025%");
    }

    #[test]
    fn kinds_that_are_not_asked_for_are_not_shown_for_debugging() {
        let text = format!("{:?}", FaultSpec::default());
        assert_eq!(text.matches("Setting {").count(), SHOWN.len());
        assert!(text.starts_with("FaultSpec { settings: [Setting { rate: 0, time: (0, 0), shapes: [] }, "));
        assert!(text.ends_with(" }], swarm: false }"), "{text}");
        let text = format!("{:?}", FaultSpec::default().with_rate(Kind::Mtu, 5));
        assert!(text.contains("], mtu: Setting { rate: 5, "), "{text}");
        assert!(text.contains("number: 1280 }"), "{text}");
    }
}

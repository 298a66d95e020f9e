//! [`FaultSpec`]: how often and how strong each kind of faults is.

use std::fmt;

use bloodhound_declare::{Absent, Key, ValueKind, scalar};

use crate::{Kind, Shape};

/// How often and how strong one kind is.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Setting {
    /// Parts per billion, per packet, time step or operation; of no meaning for kinds without a rate.
    pub rate: u32,
    /// Shortest and longest time, ns; equal for kinds with one time.
    pub time: (u64, u64),
    /// Smallest and largest amount: ns, or parts per billion; of no meaning for kinds that have none.
    pub size: (u64, u64),
    /// Shapes that may be drawn.
    pub shapes: Vec<Shape>,
    /// A number beside these: bytes, times, kilobits; decimals in thousandths. 0 for kinds without one.
    pub number: u64,
}

impl Setting {
    /// Where the range that a key of the kind says belongs.
    pub fn range_of(&mut self, kind: Kind, key: &str) -> &mut (u64, u64) {
        let is_size = kind.declaration().size().is_some_and(|size| size.name == key);
        if is_size { &mut self.size } else { &mut self.time }
    }
}

/// An amount and a number are shown where there is one.
impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { rate, time, size, shapes, number } = self;
        let mut out = f.debug_struct("Setting");
        out.field("rate", rate).field("time", time);
        if *size != (0, 0) {
            out.field("size", size);
        }
        out.field("shapes", shapes);
        if *number > 0 {
            out.field("number", number);
        }
        out.finish()
    }
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
                    ValueKind::Millis | ValueKind::MillisRange | ValueKind::PpmRange => {
                        *setting.range_of(kind, key.name) = default_range(key);
                    }
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

/// The ends of the range that a key declares for its absence, ns or parts per billion.
fn default_range(key: &Key) -> (u64, u64) {
    let Absent::Means(text) = key.absent else { return (0, 0) };
    let read = if matches!(key.kind, ValueKind::PpmRange) { scalar::thousandths } else { scalar::millis };
    let one = |text: &str| read(text.trim()).expect("a default is a number");
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

    /// With these amounts for a kind.
    #[must_use]
    pub fn with_size(mut self, kind: Kind, size: (u64, u64)) -> FaultSpec {
        self.get_mut(kind).size = size;
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

/// Parts per billion as people read them: `0.025%`.
pub fn percent(rate: u32) -> String {
    let text = format!("{}.{:07}", rate / 10_000_000, rate % 10_000_000);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// What the digest of a run takes: of most kinds only those that are on, so that the declaration of one more changes no run without it.
impl fmt::Debug for FaultSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let always: Vec<&Setting> = ALWAYS.iter().map(|kind| self.get(*kind)).collect();
        let mut out = f.debug_struct("FaultSpec");
        out.field("settings", &always).field("swarm", &self.swarm);
        for declaration in Kind::DECLARATIONS {
            let kind = declaration.kind;
            if self.is_on(kind) && !ALWAYS.contains(&kind) {
                out.field(declaration.name, self.get(kind));
            }
        }
        out.finish()
    }
}

/// As one line: `drop 1%, jitter 2000 us`.
impl fmt::Display for FaultSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        for declaration in Kind::DECLARATIONS.iter().filter(|declaration| self.is_on(declaration.kind)) {
            let (name, setting) = (declaration.name, self.get(declaration.kind));
            parts.push(match declaration.switch() {
                Some(_) => format!("{name} {}", percent(setting.rate)),
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

    /// What is printed for debugging goes into digests.
    #[test]
    fn kinds_that_are_off_are_not_printed() {
        let plain = format!("{:?}", FaultSpec::default());
        assert_eq!(plain.matches("Setting").count(), ALWAYS.len(), "{plain}");
        let spec = FaultSpec::default().with_rate(Kind::DiskSlow, 5).with_time(Kind::DiskSlow, (1, 2));
        let expected = plain.trim_end_matches(" }").to_owned()
            + ", disk-slow: Setting { rate: 5, time: (1, 2), size: (100000000, 100000000), shapes: [] } }";
        assert_eq!(format!("{spec:?}"), expected);
        let text = format!("{:?}", FaultSpec::default().with_rate(Kind::Mtu, 5));
        assert!(text.contains(", mtu: Setting { rate: 5, ") && text.contains("number: 1280 }"), "{text}");
    }

    #[test]
    fn a_kind_that_is_off_changes_no_digest() {
        let text = |spec: &FaultSpec| format!("{spec:?}");
        let plain = text(&FaultSpec::default());
        assert!(plain.starts_with("FaultSpec { settings: [Setting { rate: 0, time: (0, 0), shapes: [] }, "));
        assert_eq!(plain.matches("Setting {").count(), ALWAYS.len());
        assert!(plain.ends_with("], swarm: false }"), "{plain}");
        for declaration in Kind::DECLARATIONS {
            let on = FaultSpec::default().with_rate(declaration.kind, 5).with_time(declaration.kind, (1, 2));
            assert_ne!(text(&on), plain, "{}", declaration.name);
        }
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
        spec = spec.with_number(Kind::Bandwidth, 512);
        assert_eq!(spec.to_string(), "bandwidth 512, crash 0.025%");
    }
}

//! Which kinds of faults a seed has: [`swarm`] draws it, where the configuration says so; a log can leave out those that it does not draw.
//!
//! Neighbours: `mod` (what begins with the profile), `schedule` (written entries, which a log leaves out in the same way).

use bloodhound_decisions::{Choice, Decisions, Override, Part, Site, Word};
use bloodhound_faults::{Declaration, FaultSpec, Kind, Swarm};

use super::Epoch;

/// The bound of what a log may say of a kind or of a written entry, which no seed draws: 0 leaves it out.
pub const KEPT: u64 = 2;

/// Among so many strengths one is drawn, and which of them is the configured rate.
const STRENGTHS: u64 = 6;
const AS_CONFIGURED: u64 = 3;
/// Of a kind that is there or not: there.
const ON: u64 = 1;

/// The part of a kind that an epoch draws anew.
pub const STRENGTH: &str = "strength";

impl Epoch {
    /// The choice of whether there are faults of a kind, and how strong.
    pub fn swarm(self, kind: Kind) -> Site {
        let (whole, kind) = (self == Epoch::default(), Word::new(kind.name()));
        match whole {
            true => Site::Swarm { kind },
            false => Site::Fault { kind, target: 0, nth: self.numbered(0), part: Word::new(STRENGTH) },
        }
    }
}

/// Draws which kinds of faults a seed has and how strong (swarm testing: omitting features at random finds more). Where a kind is not drawn, a log can leave
/// it out all the same.
pub(super) fn swarm(spec: &FaultSpec, epoch: Epoch, decisions: &mut Decisions) -> FaultSpec {
    let mut profile = spec.clone();
    for declaration in Kind::DECLARATIONS.iter().filter(|declaration| spec.is_on(declaration.kind)) {
        let site = epoch.swarm(declaration.kind);
        match declaration.swarm {
            Swarm::Strength if spec.swarm => {
                let rate = u64::from(spec.get(declaration.kind).rate);
                // Off one time in three; else between a quarter and four times the configured rate.
                let scaled = match decisions.choose(site, STRENGTHS) {
                    0 | 1 => 0,
                    2 => rate / 4,
                    AS_CONFIGURED => rate,
                    4 => rate * 2,
                    _ => rate * 4,
                };
                profile.get_mut(declaration.kind).rate = scaled.min(1_000_000_000) as u32;
            }
            Swarm::Coin if spec.swarm => {
                if decisions.choose(site, ON + 1) != ON {
                    profile.switch_off(declaration.kind);
                }
            }
            Swarm::Strength | Swarm::Coin | Swarm::Always => {
                if decisions.said(site, KEPT) == Some(0) {
                    profile.switch_off(declaration.kind);
                }
            }
        }
    }
    profile
}

/// What a kind is drawn as when it is as configured. `None`: no seed draws it.
pub(super) fn as_configured(spec: &FaultSpec, declaration: &Declaration) -> Option<Override> {
    let (bound, value) = match declaration.swarm {
        Swarm::Strength => (STRENGTHS, AS_CONFIGURED),
        Swarm::Coin => (ON + 1, ON),
        Swarm::Always => return None,
    };
    spec.swarm.then_some(Override { bound, value })
}

/// What a log says of a run that has every configured kind at its configured rate: nothing of a kind that no seed draws.
pub fn every_kind(spec: &FaultSpec) -> Vec<(Choice, Override)> {
    of_every_kind(spec, Epoch::default(), |configured| configured)
}

/// What a log says of an epoch that draws every configured kind as strong as it can be: nothing of a kind that no seed draws.
pub fn strongest(spec: &FaultSpec, epoch: Epoch) -> Vec<(Choice, Override)> {
    of_every_kind(spec, epoch, |Override { bound, .. }| Override { bound, value: bound - 1 })
}

/// What a log says of every configured kind that is drawn, made from how it is as configured.
fn of_every_kind(
    spec: &FaultSpec,
    epoch: Epoch,
    said: impl Fn(Override) -> Override,
) -> Vec<(Choice, Override)> {
    let declarations = Kind::DECLARATIONS.iter().filter(|declaration| spec.is_on(declaration.kind));
    let drawn = declarations.filter_map(|declaration| {
        let choice = Choice { part: Part::Run, site: epoch.swarm(declaration.kind) };
        Some((choice, said(as_configured(spec, declaration)?)))
    });
    drawn.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bloodhound_decisions::{Log, Mode};

    #[test]
    fn a_log_leaves_out_what_no_seed_draws() {
        let mut spec = FaultSpec::default().with_rate(Kind::Drop, 5).with_rate(Kind::Crash, 6);
        spec.swarm = false;
        let site = Site::Swarm { kind: Word::new(Kind::Drop.name()) };
        let log = Log::new(0, 1).with(Choice { part: Part::Run, site }, KEPT, 0);
        let mut decisions = Decisions::new(log, Mode::Strict);
        decisions.begin_run(1);
        let profile = swarm(&spec, Epoch::default(), &mut decisions);
        assert_eq!((profile.is_on(Kind::Drop), profile.is_on(Kind::Crash)), (false, true));
        assert_eq!(decisions.divergences(), []);
        assert_eq!(swarm(&spec, Epoch::default(), &mut Decisions::seeded(1)), spec);
    }

    #[test]
    fn a_log_says_that_every_kind_is_as_configured() {
        let mut spec = FaultSpec::default().with_rate(Kind::Drop, 5).with_rate(Kind::Crash, 6);
        spec.swarm = true;
        let mut log = Log::new(0, 1);
        log.overrides.extend(every_kind(&spec));
        let mut decisions = Decisions::new(log, Mode::Strict);
        decisions.begin_run(1);
        assert_eq!(swarm(&spec, Epoch::default(), &mut decisions), spec);
        assert_eq!(decisions.divergences(), []);
    }

    #[test]
    fn a_log_says_that_an_epoch_has_every_kind_as_strong_as_can_be() {
        let mut spec = FaultSpec::default().with_rate(Kind::Drop, 5).with_rate(Kind::Crash, 6);
        spec.swarm = true;
        let mut log = Log::new(0, 1);
        log.overrides.extend(strongest(&spec, Epoch::at(5)));
        let mut decisions = Decisions::new(log, Mode::Strict);
        decisions.begin_run(1);
        let profile = swarm(&spec, Epoch::at(5), &mut decisions);
        assert_eq!([Kind::Drop, Kind::Crash].map(|kind| profile.get(kind).rate), [20, 24]);
        assert_eq!(decisions.divergences(), []);
        spec.swarm = false;
        assert_eq!(strongest(&spec, Epoch::at(5)), []);
    }
}

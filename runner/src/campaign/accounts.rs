//! What became of the faults of a campaign: per kind, in how many seeds it was asked for, how often it happened, and why it did nothing.
//!
//! Key types: [`Accounts`], [`Account`]. From them follow the fault coverage and what is said of kinds that never happened.

use std::collections::BTreeMap;

use bloodhound_faults::Kind;
use bloodhound_sim::faults::{Effect, Planning};
use bloodhound_sim::scenario::FaultSpec;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::session::Outcome;

/// What is said of bad sectors of a seed in which no program read or wrote any.
const NO_PROGRAM: &str = "no program met it";

/// What is said of a partition, or of what links do for a time, that no packet met.
const NO_PACKET: &str = "no packet met it";

/// What became of the faults of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    /// Seeds that had it on, or in their schedule.
    pub seeds: u64,
    /// How often it was injected: entries of plans that began, or packets, questions and operations that were hit.
    pub injected: u64,
    /// Those of them of which something was seen to come.
    pub effective: u64,
    /// How often it did nothing, by reason: entries that found nothing to do, and those that began and nothing came of.
    pub without: BTreeMap<String, u64>,
}

/// Something for each of some kinds of faults, which have their names in files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ByKind<T>(pub BTreeMap<Kind, T>);

impl<T> Default for ByKind<T> {
    fn default() -> ByKind<T> {
        ByKind(BTreeMap::new())
    }
}

impl<T: Serialize> Serialize for ByKind<T> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(kind, of)| (kind.name(), of)))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for ByKind<T> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<ByKind<T>, D::Error> {
        let named = BTreeMap::<String, T>::deserialize(deserializer)?;
        let kind = |(name, of): (String, T)| match Kind::named(&name) {
            Some(kind) => Ok((kind, of)),
            None => Err(serde::de::Error::custom(format!("there is no kind of faults `{name}`"))),
        };
        named.into_iter().map(kind).collect::<Result<_, _>>().map(ByKind)
    }
}

/// The accounts of all kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accounts {
    /// By kind, those that are asked for or happened.
    pub kinds: ByKind<Account>,
}

impl Accounts {
    /// Adds a seed that ran.
    pub fn add(&mut self, outcome: &Outcome) {
        for declaration in Kind::DECLARATIONS {
            let kind = declaration.kind;
            let mut written = outcome.scenario.planning.schedule.iter();
            if !outcome.has_kind(kind) && !written.any(|entry| entry.kind == kind) {
                continue;
            }
            let account = self.kinds.0.entry(kind).or_default();
            account.seeds += 1;
            if declaration.is_timed() {
                continue;
            }
            let hits = outcome.hits.get(&kind).copied().unwrap_or_default();
            account.injected += hits;
            account.effective += hits;
        }
        for (place, (planned, effect)) in outcome.plan.iter().zip(&outcome.effects).enumerate() {
            let kind = planned.fault.kind();
            let account = self.kinds.0.entry(kind).or_default();
            if !kind.declaration().is_timed() {
                // What links do for a time counts by packets.
                if *effect == Effect::Begun && !outcome.hits.contains_key(&kind) {
                    *account.without.entry(NO_PACKET.to_owned()).or_default() += 1;
                }
                continue;
            }
            let stopped = outcome
                .stopped_packets
                .as_ref()
                .filter(|_| matches!(kind, Kind::Partition | Kind::GroupPartition));
            let nothing = match effect {
                Effect::None(why) => Some(*why),
                Effect::Begun if stopped.is_some_and(|stopped| !stopped.contains_key(&place)) => {
                    Some(NO_PACKET)
                }
                Effect::Begun if kind == Kind::BadSector && !outcome.hits.contains_key(&kind) => {
                    Some(NO_PROGRAM)
                }
                Effect::Begun => None,
            };
            account.injected += u64::from(*effect == Effect::Begun);
            match nothing {
                None => account.effective += 1,
                Some(why) => *account.without.entry(why.to_owned()).or_default() += 1,
            }
        }
    }

    /// Adds those of another seed.
    pub fn join(&mut self, other: &Accounts) {
        for (kind, other) in &other.kinds.0 {
            let account = self.kinds.0.entry(*kind).or_default();
            // They may come from a file of another process, where any numbers may stand.
            let add = |to: &mut u64, more: u64| *to = to.saturating_add(more);
            add(&mut account.seeds, other.seeds);
            add(&mut account.injected, other.injected);
            add(&mut account.effective, other.effective);
            for (why, count) in &other.without {
                add(account.without.entry(why.clone()).or_default(), *count);
            }
        }
    }

    /// Kinds that the configuration asks for.
    pub fn configured(spec: &FaultSpec, planning: &Planning) -> Vec<Kind> {
        let written = |kind| planning.schedule.iter().any(|entry| entry.kind == kind);
        let kinds = Kind::DECLARATIONS.iter().map(|declaration| declaration.kind);
        kinds.filter(|kind| spec.is_on(*kind) || written(*kind)).collect()
    }

    /// The configured kinds that never happened, and the share of those that did, in thousandths.
    pub fn measure(&self, asked: &[Kind]) -> (Vec<Kind>, u32) {
        let happened = |kind: &Kind| self.kinds.0.get(kind).is_some_and(|account| account.injected > 0);
        let silent: Vec<Kind> = asked.iter().filter(|kind| !happened(kind)).copied().collect();
        let share = ((asked.len() - silent.len()) * 1000).checked_div(asked.len());
        (silent, share.map_or(1000, |share| u32::try_from(share).unwrap_or(1000)))
    }

    /// For people: a line for each kind of which not all had an effect.
    pub fn lines(&self) -> Vec<String> {
        let line = |(kind, account): (&Kind, &Account)| {
            let why: Vec<String> = account.without.iter().map(|(why, n)| format!("{why} ({n})")).collect();
            let Account { injected, effective, .. } = account;
            format!(
                "{kind}: {injected} injected, {effective} had an effect; without effect: {}",
                why.join(", ")
            )
        };
        self.kinds.0.iter().filter(|(_, account)| !account.without.is_empty()).map(line).collect()
    }

    /// For machines.
    pub fn json(&self) -> Json {
        let one = |(kind, account): (&Kind, &Account)| {
            let account = json!({
                "seeds": account.seeds, "injected": account.injected, "effective": account.effective,
                "without_effect": account.without,
            });
            (kind.name().to_owned(), account)
        };
        Json::Object(self.kinds.0.iter().map(one).collect())
    }
}

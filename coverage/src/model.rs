//! Coverage as reports show it and as files keep it: what of the source was reached, by which seed first.
//!
//! A [`Coverage`] knows neither addresses nor programs' bytes, so shards of a campaign that ran on different machines can be joined
//! ([`Coverage::join`]) and shown anywhere. It has no times of the host and no order but that of names and numbers, so equal campaigns
//! give equal files.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{NotMeasured, Unit};

/// The version of the JSON form.
pub const VERSION: u32 = 1;

/// What was covered in a campaign.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Coverage {
    /// [`VERSION`].
    pub version: u32,
    /// The seeds that were run, as ranges of their numbers with first and last, sorted.
    pub seeds: Vec<(u64, u64)>,
    /// What reached something first. Others name a moment by its place here.
    pub moments: Vec<Moment>,
    /// What was measured: a program by the hexadecimal digest of its file, a report of another tool by service and tool.
    pub parts: BTreeMap<String, Part>,
    /// The services, by name.
    pub services: BTreeMap<String, Service>,
}

impl Default for Coverage {
    fn default() -> Coverage {
        Coverage {
            version: VERSION,
            seeds: Vec::new(),
            moments: Vec::new(),
            parts: BTreeMap::new(),
            services: BTreeMap::new(),
        }
    }
}

/// A moment of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moment {
    /// The seed.
    pub seed: u64,
    /// Virtual time since the run's start; `None` where a tool told it only at the end of the run.
    pub time_ns: Option<u64>,
    /// The faults that were active, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<String>,
}

/// One program, or one tool's report on one service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// The program's path in the service, or the tool's name.
    pub name: String,
    /// What is counted.
    pub unit: Unit,
    /// What there is, by the file's path in the checkout. What belongs to no file of it is under the empty path.
    pub files: BTreeMap<String, File>,
    /// What was damaged, dropped or refused.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub notes: BTreeSet<String>,
}

/// A source file. What was not reached has no moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Lines with code. Empty unless lines are counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub lines: BTreeMap<u32, Option<u32>>,
    /// Functions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub functions: Vec<Function>,
}

/// A function.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Function {
    /// Its first line; 0 where it is not known.
    pub line: u32,
    /// Its name.
    pub name: String,
    /// The moment when it was reached first.
    pub reached: Option<u32>,
    /// Its blocks by their places in the program's file, if blocks are counted.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub blocks: BTreeMap<u64, Option<u32>>,
}

/// A service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// What of [`Coverage::parts`] ran in it.
    pub parts: BTreeSet<String>,
    /// Programs of which nothing is counted, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_measured: BTreeMap<String, NotMeasured>,
}

impl Coverage {
    /// How many seeds were run.
    pub fn seed_count(&self) -> u64 {
        self.seeds.iter().fold(0_u64, |sum, (first, last)| {
            sum.saturating_add(last.saturating_sub(*first).saturating_add(1))
        })
    }

    /// The moment that a number names.
    pub fn moment(&self, reached: Option<u32>) -> Option<&Moment> {
        self.moments.get(reached? as usize)
    }

    /// Adds what other shards of the campaign, or other campaigns, have covered. What both have reached keeps the smaller moment.
    pub fn join(&mut self, other: Coverage) {
        self.seeds.extend(other.seeds);
        self.seeds = merged(std::mem::take(&mut self.seeds));
        let shift = u32::try_from(self.moments.len()).unwrap_or(u32::MAX);
        self.moments.extend(other.moments);
        let moved = |reached: &mut Option<u32>| *reached = reached.map(|number| number.saturating_add(shift));
        for (name, mut part) in other.parts {
            part.each(moved);
            match self.parts.get_mut(&name) {
                Some(own) => own.join(part, &self.moments),
                None => {
                    self.parts.insert(name, part);
                }
            }
        }
        for (name, service) in other.services {
            let own = self.services.entry(name).or_default();
            own.parts.extend(service.parts);
            for (program, reason) in service.not_measured {
                own.not_measured.entry(program).or_insert(reason);
            }
        }
        self.tidy();
    }

    /// Sorts the moments and drops those that nothing refers to: two coverages that say the same are then equal.
    pub fn tidy(&mut self) {
        let mut used = BTreeSet::new();
        for part in self.parts.values_mut() {
            part.each(|reached| used.extend(*reached));
        }
        let of = |number: u32| self.moments.get(number as usize).cloned().unwrap_or_default();
        let sorted: BTreeSet<Moment> = used.iter().map(|number| of(*number)).collect();
        let numbers: BTreeMap<&Moment, u32> = sorted.iter().zip(0..).collect();
        let new: BTreeMap<u32, u32> = used.iter().map(|number| (*number, numbers[&of(*number)])).collect();
        for part in self.parts.values_mut() {
            part.each(|reached| *reached = reached.map(|number| new[&number]));
            for file in part.files.values_mut() {
                file.functions.sort();
            }
        }
        self.moments = sorted.into_iter().collect();
    }

    /// Checks what a file could have wrong.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.version != VERSION {
            let version = self.version;
            return Err(format!("it has version {version}; this bloodhound reads version {VERSION}"));
        }
        let missing =
            self.services.values().flat_map(|s| &s.parts).find(|part| !self.parts.contains_key(*part));
        if let Some(part) = missing {
            return Err(format!("a service has the part {part:?}, which is not in it"));
        }
        let mut largest = None;
        for part in self.parts.values() {
            part.clone().each(|reached| largest = largest.max(*reached));
        }
        match largest {
            Some(number) if number as usize >= self.moments.len() => {
                Err(format!("it refers to moment {number}, but has {}", self.moments.len()))
            }
            _ => Ok(()),
        }
    }
}

impl Part {
    /// Calls `with` for each moment.
    fn each(&mut self, mut with: impl FnMut(&mut Option<u32>)) {
        for file in self.files.values_mut() {
            file.lines.values_mut().for_each(&mut with);
            for function in &mut file.functions {
                with(&mut function.reached);
                function.blocks.values_mut().for_each(&mut with);
            }
        }
    }

    fn join(&mut self, other: Part, moments: &[Moment]) {
        self.notes.extend(other.notes);
        for (path, file) in other.files {
            let own = self.files.entry(path).or_default();
            join(&mut own.lines, file.lines, moments);
            let places = own.functions.iter().map(|function| (function.line, function.name.clone())).zip(0..);
            let places: BTreeMap<(u32, String), usize> = places.collect();
            for function in file.functions {
                match places.get(&(function.line, function.name.clone())) {
                    Some(place) => {
                        let own = &mut own.functions[*place];
                        own.reached = sooner(own.reached, function.reached, moments);
                        join(&mut own.blocks, function.blocks, moments);
                    }
                    None => own.functions.push(function),
                }
            }
        }
    }
}

fn join<K: Ord>(own: &mut BTreeMap<K, Option<u32>>, other: BTreeMap<K, Option<u32>>, moments: &[Moment]) {
    for (key, reached) in other {
        let own = own.entry(key).or_insert(None);
        *own = sooner(*own, reached, moments);
    }
}

/// The smaller of two moments.
pub(crate) fn sooner(one: Option<u32>, other: Option<u32>, moments: &[Moment]) -> Option<u32> {
    let (Some(a), Some(b)) = (one, other) else { return one.or(other) };
    if moments.get(b as usize) < moments.get(a as usize) { other } else { one }
}

/// Ranges of numbers, sorted and joined.
pub(crate) fn merged(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.retain(|(first, last)| first <= last);
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    for (first, last) in ranges {
        match merged.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => merged.push((first, last)),
        }
    }
    merged
}

//! Sums: of a campaign, of its services, of files. Units are never added up.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::model::{Coverage, Moment, Part};
use crate::written::{is_bracket, unwritten};
use crate::{Checkout, NotMeasured, Unit};

/// How many of how many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count {
    /// Items that were reached.
    pub covered: u64,
    /// Items that there are.
    pub total: u64,
}

impl Count {
    /// Adds one item.
    pub fn add(&mut self, covered: bool) {
        self.total += 1;
        self.covered += u64::from(covered);
    }

    /// The share in hundredths of a percent, rounded down: only what is all covered has 10000. Nothing at all is all covered.
    pub fn basis_points(self) -> u64 {
        let share = u128::from(self.covered) * 10_000 / u128::from(self.total.max(1));
        if self.total == 0 { 10_000 } else { u64::try_from(share).unwrap_or(10_000) }
    }

    /// Whether the share is at least this many hundredths of a percent.
    pub fn reaches(self, basis_points: u64) -> bool {
        u128::from(self.covered) * 10_000 >= u128::from(self.total) * u128::from(basis_points)
    }

    /// The share as people write it: `81.4 %`.
    pub fn percent(self) -> String {
        let points = self.basis_points();
        format!("{}.{} %", points / 100, points / 10 % 10)
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} of {})", self.percent(), self.covered, self.total)
    }
}

/// Sums of one service, or of all together. An item that several services have counts once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// By unit.
    pub units: BTreeMap<Unit, Count>,
    /// Programs of which nothing is counted; in the sums of all, with the service before the program.
    pub not_measured: BTreeMap<String, NotMeasured>,
}

/// All sums of a campaign.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Of all services together.
    pub all: Sums,
    /// Of each service.
    pub services: BTreeMap<String, Sums>,
}

/// A function of which nothing, or not all, was reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uncovered {
    /// The file, empty where it is not known.
    pub path: String,
    /// The first line; 0 where it is not known.
    pub line: u32,
    /// The name.
    pub name: String,
}

/// What makes an item one thing: two parts that have the same line have one item.
type Key<'c> = (Unit, &'c str, u64, &'c str);

/// Calls `with` for each item of a part, with its key and what reached it.
fn each<'c>(name: &'c str, part: &'c Part, mut with: impl FnMut(Key<'c>, Option<u32>)) {
    for (path, file) in &part.files {
        match part.unit {
            Unit::Lines => {
                for (line, reached) in &file.lines {
                    with((Unit::Lines, path, u64::from(*line), ""), *reached);
                }
            }
            Unit::Functions => {
                for function in &file.functions {
                    // Functions of no known file are those of their program only.
                    let place = if path.is_empty() { name } else { path };
                    with(
                        (Unit::Functions, place, u64::from(function.line), &function.name),
                        function.reached,
                    );
                }
            }
            Unit::Blocks => {
                for (offset, reached) in file.functions.iter().flat_map(|function| &function.blocks) {
                    with((Unit::Blocks, name, *offset, ""), *reached);
                }
            }
        }
    }
}

fn sums<'c>(parts: impl Iterator<Item = (&'c String, &'c Part)>) -> BTreeMap<Unit, Count> {
    let mut items: BTreeMap<Key<'c>, bool> = BTreeMap::new();
    for (name, part) in parts {
        each(name, part, |key, reached| *items.entry(key).or_default() |= reached.is_some());
    }
    let mut units: BTreeMap<Unit, Count> = BTreeMap::new();
    for ((unit, ..), covered) in items {
        units.entry(unit).or_default().add(covered);
    }
    units
}

/// The sums of a campaign.
pub fn totals(coverage: &Coverage) -> Totals {
    let mut totals = Totals::default();
    totals.all.units = sums(coverage.parts.iter());
    for (name, service) in &coverage.services {
        let parts = service.parts.iter().filter_map(|part| coverage.parts.get_key_value(part));
        let not_measured = service.not_measured.clone();
        for (program, reason) in &not_measured {
            totals.all.not_measured.insert(format!("{name}: {program}"), reason.clone());
        }
        totals.services.insert(name.clone(), Sums { units: sums(parts), not_measured });
    }
    totals
}

/// The functions that nothing reached, by file and line.
pub fn uncovered_functions(coverage: &Coverage) -> Vec<Uncovered> {
    let mut functions: BTreeMap<Uncovered, bool> = BTreeMap::new();
    for part in coverage.parts.values() {
        // Functions without a file are those of libraries that the compiler has put into others, unless no file is known at all.
        let known = part.files.keys().any(|path| !path.is_empty());
        for (path, file) in part.files.iter().filter(|(path, _)| !known || !path.is_empty()) {
            for function in &file.functions {
                let (path, name) = (path.clone(), function.name.clone());
                let key = Uncovered { path, line: function.line, name };
                *functions.entry(key).or_default() |= function.reached.is_some();
            }
        }
    }
    functions.into_iter().filter(|(_, reached)| !reached).map(|(function, _)| function).collect()
}

/// How many items had been reached when each seed had run, by unit: a step for each seed that reached something first.
pub fn growth(coverage: &Coverage) -> BTreeMap<Unit, Vec<(u64, u64)>> {
    let mut items: BTreeMap<Key<'_>, u64> = BTreeMap::new();
    for (name, part) in &coverage.parts {
        each(name, part, |key, reached| {
            if let Some(Moment { seed, .. }) = coverage.moment(reached) {
                let first = items.entry(key).or_insert(*seed);
                *first = (*seed).min(*first);
            }
        });
    }
    let mut steps: BTreeMap<Unit, BTreeMap<u64, u64>> = BTreeMap::new();
    for ((unit, ..), seed) in items {
        *steps.entry(unit).or_default().entry(seed).or_default() += 1;
    }
    let summed = |steps: BTreeMap<u64, u64>| {
        let mut sum = 0;
        steps.into_iter().map(move |(seed, more)| {
            sum += more;
            (seed, sum)
        })
    };
    steps.into_iter().map(|(unit, steps)| (unit, summed(steps).collect())).collect()
}

/// Of the files whose lines are counted: how many lines have code in the programs, of how many that have more than a comment or brackets.
/// An optimiser leaves fewer.
pub fn source_lines(coverage: &Coverage, checkout: &Checkout) -> Count {
    let mut count = Count::default();
    for (path, known) in lines(coverage) {
        let Some(text) = checkout.text(path) else { continue };
        let mut comment = false;
        let unwritten = unwritten(path, &text);
        for (number, line) in (1_u32..).zip(text.lines()) {
            if has_code(line.trim(), &mut comment) && !unwritten.contains_key(&number) {
                count.add(known.contains_key(&number));
            }
        }
    }
    count
}

/// Whether a line of source has more than a comment or brackets; `comment` says whether it begins within a comment of several lines.
/// What languages call a comment differs: this knows those of most.
pub(crate) fn has_code(line: &str, comment: &mut bool) -> bool {
    if *comment || line.starts_with("/*") {
        *comment = !line.contains("*/");
        return false;
    }
    !line.starts_with("//") && !line.chars().all(is_bracket)
}

/// The lines of all parts, by file: what most reports show. A line that several parts have was reached if it was in one of them.
pub(crate) fn lines(coverage: &Coverage) -> BTreeMap<&str, BTreeMap<u32, Option<u32>>> {
    let mut files: BTreeMap<&str, BTreeMap<u32, Option<u32>>> = BTreeMap::new();
    for part in coverage.parts.values().filter(|part| part.unit == Unit::Lines) {
        for (path, file) in part.files.iter().filter(|(_, file)| !file.lines.is_empty()) {
            let own = files.entry(path).or_default();
            for (line, reached) in &file.lines {
                let own = own.entry(*line).or_default();
                *own = crate::model::sooner(*own, *reached, &coverage.moments);
            }
        }
    }
    files
}

/// The functions of all parts, by file, with what reached them.
pub(crate) fn functions(coverage: &Coverage) -> BTreeMap<&str, BTreeMap<(u32, &str), Option<u32>>> {
    let mut files: BTreeMap<&str, BTreeMap<(u32, &str), Option<u32>>> = BTreeMap::new();
    for part in coverage.parts.values() {
        for (path, file) in part.files.iter().filter(|(_, file)| !file.functions.is_empty()) {
            let own = files.entry(path).or_default();
            for function in &file.functions {
                let own = own.entry((function.line, &function.name)).or_default();
                *own = crate::model::sooner(*own, function.reached, &coverage.moments);
            }
        }
    }
    files
}

/// Counts what has a moment.
pub(crate) fn count<'r>(reached: impl IntoIterator<Item = &'r Option<u32>>) -> Count {
    let mut count = Count::default();
    reached.into_iter().for_each(|reached| count.add(reached.is_some()));
    count
}

/// Services that ran a part that has a file.
pub(crate) fn services_of<'c>(coverage: &'c Coverage, path: &str) -> BTreeSet<&'c str> {
    let has = |part: &String| coverage.parts.get(part).is_some_and(|part| part.files.contains_key(path));
    let services = coverage.services.iter().filter(|(_, service)| service.parts.iter().any(has));
    services.map(|(name, _)| name.as_str()).collect()
}

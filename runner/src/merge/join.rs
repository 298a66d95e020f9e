//! Which record of each seed counts, which seeds have none, and what keeps parts from being joined.
//!
//! Key type: [`Joined`]. Parts of different plans, versions, thresholds or programs are refused; a seed that came to different ends is told as
//! nondeterminism; nothing that is missing is passed over in silence.

use std::collections::{BTreeMap, BTreeSet};

use crate::campaign::record::SeedRecord;
use crate::campaign::totals::{Totals, Trouble};
use crate::exit;
use crate::finding::InputRecord;
use crate::session::Failure;
use crate::shard::{Identity, Manifest, Part, Shard};

use super::sources::Piece;

/// The most missing seeds that are dealt to shards one by one; of more only ranges are told.
const MOST_DEALT: u64 = 10_000_000;

/// Seeds that come one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Range {
    pub first: u64,
    pub count: u64,
}

impl Range {
    fn last(self) -> u64 {
        self.first + (self.count - 1)
    }

    fn has(self, seed: u64) -> bool {
        seed >= self.first && seed - self.first < self.count
    }
}

impl std::fmt::Display for Range {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.count {
            1 => write!(f, "{}", self.first),
            _ => write!(f, "{} to {}", self.first, self.last()),
        }
    }
}

/// Parts that fit together.
#[derive(Debug)]
pub struct Joined {
    /// What they have in common.
    pub identity: Identity,
    /// The seeds of the campaign; gaps between re-runs that were never asked for are none of it.
    pub spans: Vec<Range>,
    /// The record of each seed that counts, and of which part it is.
    pub chosen: BTreeMap<u64, (SeedRecord, usize)>,
    /// Seeds without a result, or with one that another run would improve.
    pub missing: Vec<Range>,
    /// How many seeds were run more than once, to the same end.
    pub duplicates: u64,
    /// Seeds that came to different ends, in words.
    differences: Vec<String>,
    manifests: Vec<Manifest>,
    /// The shards of which there is nothing at all.
    absent: Vec<Shard>,
    /// The campaign that was shared out, if one was.
    shared: Option<Range>,
}

impl Joined {
    /// Joins.
    ///
    /// # Errors
    /// Usage: what does not fit, with the names of the parts.
    pub fn of(pieces: &[Piece]) -> Result<Joined, Failure> {
        let mut identity: Option<(Identity, &str)> = None;
        let mut shared: Option<(Range, &str)> = None;
        let mut spans = BTreeSet::new();
        for piece in pieces {
            for (own, range, is_part) in told(piece) {
                let (first, named) = identity.get_or_insert_with(|| (own.clone(), piece.name.as_str()));
                if let Some(difference) = first.difference(own) {
                    return Err(mixed(named, &piece.name, &difference));
                }
                spans.insert(range);
                if is_part {
                    let (other, named) = shared.get_or_insert((range, piece.name.as_str()));
                    if *other != range {
                        return Err(mixed(named, &piece.name, &format!("seeds: {other}, and {range}")));
                    }
                }
            }
        }
        let Some((identity, _)) = identity else {
            return Err(Failure::usage("there is nothing that can be joined"));
        };
        same_inputs(pieces)?;
        let mut joined = Joined {
            identity,
            spans: united(spans),
            chosen: BTreeMap::new(),
            missing: Vec::new(),
            duplicates: 0,
            differences: Vec::new(),
            manifests: telling(pieces).map(|(_, manifest)| manifest.clone()).collect(),
            absent: Vec::new(),
            shared: shared.map(|(range, _)| range),
        };
        for (number, piece) in pieces.iter().enumerate() {
            for record in &piece.records {
                joined.fits(piece, record).map_err(|why| Failure::usage(format!("{}: {why}", piece.name)))?;
                joined.add(pieces, number, record);
            }
        }
        joined.look_for_missing();
        Ok(joined)
    }

    /// How many seeds the campaign has.
    pub fn wanted(&self) -> u64 {
        self.spans.iter().fold(0, |sum, range| sum.saturating_add(range.count))
    }

    /// How many must be judged. Without `--min-seeds` all, but for what a `--timeout` of shards that have ended left out.
    pub fn least(&self, min_seeds: Option<u64>) -> u64 {
        if let Some(least) = min_seeds {
            return least;
        }
        let (mut others, mut shards, mut timed_out) = (0u64, BTreeMap::new(), false);
        for manifest in &self.manifests {
            let Some(ended) = &manifest.ended else { return self.wanted() };
            timed_out |= ended.timed_out;
            match manifest.part {
                // One that was started again counts once.
                Part::Shard(shard) => {
                    let least: &mut u64 = shards.entry(shard).or_default();
                    *least = ended.least.max(*least);
                }
                Part::All | Part::Worker(_) => others = others.saturating_add(ended.least),
            }
        }
        if !timed_out {
            return self.wanted();
        }
        let absent = self.absent.iter().map(|shard| self.shared.map_or(0, |all| shard.share(all.count)));
        let least = shards.into_values().chain(absent).fold(others, u64::saturating_add);
        least.clamp(1, self.wanted())
    }

    /// What was refused to one part by another.
    fn fits(&self, piece: &Piece, record: &SeedRecord) -> Result<(), String> {
        let (seed, properties) = (record.seed, self.identity.properties.len());
        let own = match (&piece.manifest, &piece.campaign) {
            (Some(manifest), _) => {
                let range = Range { first: manifest.first_seed, count: manifest.seeds };
                let dealt = |shard: Shard| (seed - range.first) % shard.of == shard.index - 1;
                range.has(seed) && !matches!(manifest.part, Part::Shard(shard) if !dealt(shard))
            }
            (None, Some(campaign)) => campaign.block_of(seed).is_some(),
            (None, None) => false,
        };
        if !own {
            return Err(format!("seed {seed} is none of its seeds"));
        }
        if record.ran() && !record.digest.is_empty() && record.judged.len() != properties {
            return Err(format!("seed {seed} judges {} properties of {properties}", record.judged.len()));
        }
        if record.unjudged.is_none() && record.digest.is_empty() {
            return Err(format!("seed {seed} has a verdict and no digest"));
        }
        let fits = |index: Option<usize>| index.is_none_or(|index| index < properties);
        match record.findings.iter().all(|found| found.seed == seed && fits(found.violation.index)) {
            true => Ok(()),
            false => Err(format!("seed {seed} has a finding of another seed or property")),
        }
    }

    fn add(&mut self, pieces: &[Piece], number: usize, record: &SeedRecord) {
        let Some((before, other)) = self.chosen.get(&record.seed) else {
            self.chosen.insert(record.seed, (record.clone(), number));
            return;
        };
        match (before.is_final(), record.is_final()) {
            (true, true) => match difference(before, record) {
                None => self.duplicates += 1,
                Some(difference) => self.differences.push(format!(
                    "seed {} came to different ends in {} and {}: {difference}",
                    record.seed, pieces[*other].name, pieces[number].name
                )),
            },
            (false, true) => drop(self.chosen.insert(record.seed, (record.clone(), number))),
            (false, false) if before.is_to_be_run_again() => {
                self.chosen.insert(record.seed, (record.clone(), number));
            }
            _ => {}
        }
    }

    fn look_for_missing(&mut self) {
        for range in self.spans.clone() {
            let mut next = Some(range.first);
            let there = self.chosen.range(range.first..=range.last());
            let there = there.filter(|(_, (record, _))| !record.is_to_be_run_again()).map(|(seed, _)| *seed);
            for seed in there {
                if let Some(first) = next.filter(|first| *first < seed) {
                    self.missing.push(Range { first, count: seed - first });
                }
                next = seed.checked_add(1);
            }
            if let Some(first) = next.filter(|first| *first <= range.last()) {
                self.missing.push(Range { first, count: range.last() - first + 1 });
            }
        }
        let shards = |manifest: &Manifest| match manifest.part {
            Part::Shard(shard) => Some(shard),
            Part::All | Part::Worker(_) => None,
        };
        let there: BTreeSet<Shard> = self.manifests.iter().filter_map(shards).collect();
        // The most that a command line or a matrix has; of more only the seeds are told.
        if let Some(of) = there.iter().map(|shard| shard.of).next().filter(|of| *of <= 10_000) {
            let all = (1..=of).map(|index| Shard { index, of });
            self.absent = all.filter(|shard| !there.contains(shard)).collect();
        }
    }

    /// Commands that run what is missing, each seed once: whole shards first, then ranges.
    pub fn commands(&self) -> Vec<String> {
        let run =
            |range: &Range| format!("bloodhound test --first-seed {} --seeds {}", range.first, range.count);
        let count = self.missing.iter().fold(0, |sum: u64, range| sum.saturating_add(range.count));
        let (Some(all), Some(of)) = (self.shared, self.absent.first().map(|shard| shard.of)) else {
            return self.missing.iter().map(run).collect();
        };
        if count > MOST_DEALT {
            return self.missing.iter().map(run).collect();
        }
        let absent: BTreeSet<u64> = self.absent.iter().map(|shard| shard.index).collect();
        let (mut shards, mut rest) = (BTreeSet::new(), Vec::new());
        for seed in self.missing.iter().flat_map(|range| range.first..=range.last()) {
            let index = all.has(seed).then(|| (seed - all.first) % of + 1);
            match index.filter(|index| absent.contains(index)) {
                Some(index) => {
                    shards.insert(index);
                }
                None => add_seed(&mut rest, seed),
            }
        }
        let shard = |index| format!("{} --shard {}", run(&all), Shard { index, of });
        shards.into_iter().map(shard).chain(rest.iter().map(run)).collect()
    }

    /// What came of the regression cases of all parts, if it fails the campaign.
    pub fn regressions(&self) -> Vec<Trouble> {
        let ended = self.manifests.iter().filter_map(|manifest| manifest.ended.as_ref());
        let mut out: Vec<Trouble> = Vec::new();
        for trouble in ended.flat_map(|ended| &ended.regressions).cloned().chain(self.entries()) {
            if !out.contains(&trouble) {
                out.push(trouble);
            }
        }
        out
    }

    /// The parts that have not judged all entries of the corpus which they had to run, and no other part has for them: a shard that was run again, or another
    /// worker, as each worker runs all.
    fn entries(&self) -> Vec<Trouble> {
        let is_same = |one: &Part, other: &Part| match (one, other) {
            (Part::Worker(_), Part::Worker(_)) => true,
            _ => one == other,
        };
        let judged = |manifest: &Manifest| manifest.ended.as_ref().map_or(0, |ended| ended.entries_judged);
        let is_whole =
            |manifest: &&Manifest| manifest.ended.is_some() && Some(judged(manifest)) >= manifest.entries;
        let stopped = |manifest: &Manifest| manifest.ended.as_ref().is_some_and(|ended| ended.failed_fast);
        let with: Vec<&Manifest> =
            self.manifests.iter().filter(|manifest| manifest.entries.is_some()).collect();
        let whole: Vec<&Manifest> = with.iter().copied().filter(is_whole).collect();
        let open = with.iter().filter(|manifest| {
            !stopped(manifest) && !whole.iter().any(|other| is_same(&other.part, &manifest.part))
        });
        let told = open.map(|manifest| Trouble {
            code: exit::INCONCLUSIVE,
            text: format!(
                "{}: {} of {} entries of its corpus were judged, as far as it has told: run it again with its corpus",
                manifest.part,
                judged(manifest),
                manifest.entries.unwrap_or_default()
            ),
        });
        told.collect()
    }

    /// Puts into the totals what keeps the campaign from being one.
    pub fn troubles(&self, totals: &mut Totals, list: impl Fn(&[Range]) -> String) {
        for difference in &self.differences {
            totals.trouble(exit::NONDETERMINISM, difference.clone());
        }
        let ended: Vec<_> = self.manifests.iter().filter_map(|manifest| manifest.ended.as_ref()).collect();
        if ended.is_empty() {
            let text = "no part has told how it ended, so nothing is known of regression cases and of what else went wrong";
            totals.trouble(exit::INCONCLUSIVE, text);
        }
        // What went wrong in a part whose seeds all have results is of no consequence any more, unless no other run makes it good.
        let matters = |trouble: &Trouble| match trouble.code {
            exit::BUG | exit::NONDETERMINISM => true,
            code => !self.missing.is_empty() && code != exit::INCONCLUSIVE,
        };
        let regressions = self.regressions();
        let wrong = ended.iter().flat_map(|ended| &ended.troubles).filter(|trouble| matters(trouble));
        for trouble in wrong.chain(&regressions) {
            if !totals.troubles.iter().any(|other| other.text == trouble.text) {
                totals.troubles.push(trouble.clone());
            }
        }
        if self.missing.is_empty() {
            return;
        }
        totals.interrupted = ended.iter().any(|ended| ended.interrupted);
        totals.timed_out = ended.iter().any(|ended| ended.timed_out);
        totals.failed_fast = ended.iter().any(|ended| ended.failed_fast);
        let explained = totals.failed_fast && totals.findings.iter().any(|found| !found.is_known());
        if totals.judged < totals.least && !explained {
            totals.trouble(exit::INCONCLUSIVE, self.missing_text(list));
        }
    }

    /// `seeds 3, 7 have no result: shard 4/4 is missing`.
    fn missing_text(&self, list: impl Fn(&[Range]) -> String) -> String {
        let absent: Vec<String> = self.absent.iter().take(8).map(|shard| format!("shard {shard}")).collect();
        let open = self.manifests.iter().filter(|manifest| manifest.ended.is_none());
        let open: Vec<String> = open.take(8).map(|manifest| manifest.part.to_string()).collect();
        let mut why = Vec::new();
        if !absent.is_empty() {
            why.push(format!("{} missing", verb(&absent)));
        }
        if !open.is_empty() {
            why.push(format!("{} not ended, or killed", verb(&open)));
        }
        let why = if why.is_empty() { String::new() } else { format!(" ({})", why.join("; ")) };
        format!(
            "seeds {} have no result{why}; `bloodhound merge --missing` gives the commands that run them",
            list(&self.missing)
        )
    }

    /// What was joined, for people.
    pub fn text(&self, pieces: &[Piece], list: impl Fn(&[Range]) -> String) -> String {
        let names: Vec<&str> = pieces.iter().filter(|p| p.manifest.is_some()).map(|p| &*p.name).collect();
        let mut out = format!("joined: {}\n", few(&names));
        if self.duplicates > 0 {
            out += &format!(
                "{} seeds were run more than once, with the same end, and count once\n",
                self.duplicates
            );
        }
        if !self.missing.is_empty() {
            out += &format!("without a result: seeds {}\n", list(&self.missing));
        }
        out + "\n"
    }

    /// The files of the host that runs of all parts saw.
    pub fn inputs(&self) -> Vec<InputRecord> {
        let mut by_name = BTreeMap::new();
        for input in self.manifests.iter().flat_map(|manifest| &manifest.inputs) {
            by_name.entry((input.tree, &input.path, &input.kind)).or_insert(input);
        }
        by_name.into_values().cloned().collect()
    }
}

/// The names of some parts.
fn few(names: &[&str]) -> String {
    let more = names.len().saturating_sub(8);
    let rest = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("{}{rest}", names[..names.len() - more].join(", "))
}

/// `shard 3/4 and shard 4/4 are`.
fn verb(names: &[String]) -> String {
    format!("{} {}", names.join(" and "), if names.len() == 1 { "is" } else { "are" })
}

/// Adds a seed that is higher than all that are there.
fn add_seed(ranges: &mut Vec<Range>, seed: u64) {
    match ranges.last_mut() {
        Some(range) if range.last() + 1 == seed => range.count += 1,
        _ => ranges.push(Range { first: seed, count: 1 }),
    }
}

/// The pieces that tell how their part ended, or that it has not: nothing follows from a shard that was killed if it was started again and has
/// ended then.
pub fn telling(pieces: &[Piece]) -> impl Iterator<Item = (&Piece, &Manifest)> {
    let all = move || pieces.iter().filter_map(|piece| Some((piece, piece.manifest.as_ref()?)));
    let again = move |open: &Manifest| {
        matches!(open.part, Part::Shard(_)) && all().any(|(_, m)| m.ended.is_some() && m.part == open.part)
    };
    all().filter(move |(_, manifest)| manifest.ended.is_some() || !again(manifest))
}

/// What a piece says of its campaign, and whether it is a part that others complete.
fn told(piece: &Piece) -> impl Iterator<Item = (&Identity, Range, bool)> {
    let manifest = piece.manifest.iter().map(|manifest| {
        let range = Range { first: manifest.first_seed, count: manifest.seeds };
        (&manifest.identity, range, manifest.part != Part::All)
    });
    let campaign = piece.campaign.iter().map(|campaign| {
        (&campaign.identity, Range { first: campaign.first_seed, count: campaign.seeds }, true)
    });
    manifest.chain(campaign)
}

fn mixed(one: &str, other: &str, difference: &str) -> Failure {
    Failure::usage(format!(
        "{one} and {other} cannot be joined: they have different {difference}\nhelp: join what was made by one version of Bloodhound, \
         from the same files, with the same options"
    ))
}

/// Ranges that touch or overlap become one.
fn united(ranges: BTreeSet<Range>) -> Vec<Range> {
    let mut out: Vec<Range> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(before) if range.first <= before.last() || range.first - before.last() == 1 => {
                let last = before.last().max(range.last());
                before.count = (last - before.first).saturating_add(1);
            }
            _ => out.push(range),
        }
    }
    out
}

/// What two runs of a seed that came to an end differ in.
fn difference(a: &SeedRecord, b: &SeedRecord) -> Option<String> {
    let violations = |r: &SeedRecord| r.findings.iter().map(|f| f.violation.clone()).collect::<Vec<_>>();
    if a.digest != b.digest {
        return Some(format!("digests {} and {}", a.digest, b.digest));
    }
    let same = a.judged == b.judged && a.unjudged == b.unjudged && violations(a) == violations(b);
    (!same).then(|| "the digests are equal, the verdicts are not".to_owned())
}

/// Refuses parts that ran other programs: their digests say nothing about each other.
fn same_inputs(pieces: &[Piece]) -> Result<(), Failure> {
    let mut seen: BTreeMap<(u32, &str, &str), (&InputRecord, &str)> = BTreeMap::new();
    for piece in pieces {
        for input in piece.manifest.iter().flat_map(|manifest| &manifest.inputs) {
            let (other, named) = seen
                .entry((input.tree, input.path.as_str(), input.kind.as_str()))
                .or_insert((input, piece.name.as_str()));
            if other.sha256 != input.sha256 || other.size != input.size {
                return Err(mixed(
                    named,
                    &piece.name,
                    &format!("contents of the {} {}", input.kind, input.path),
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

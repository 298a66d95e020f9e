//! Campaigns that are shared out: which seeds a shard runs, and what it leaves for [`crate::merge`].
//!
//! Key types: [`Shard`] (`--shard i/n`), [`Manifest`] (shard.json: of which campaign, and how it ended), [`results`] (results.jsonl: a line
//! for each seed). `test` writes both beside its reports, unless it is live, a search, or has a corpus and is not shared out.
//!
//! Modules: `results` (the lines), `share` (what is put into a store, and from whom), `claims` (ranges of seeds that workers take from a store).
//! Neighbours: `campaign` runs the seeds, `bloodhound_store` keeps what is shared, `merge` joins.

pub mod claims;
pub mod results;
pub mod share;

use std::path::Path;

use bloodhound_abi::digest;
use bloodhound_explore::Strategy;
use bloodhound_faults::Kind;
use serde::{Deserialize, Serialize};

use crate::campaign::totals::{Totals, Trouble, Unjudged};
use crate::coverage::Thresholds;
use crate::exit;
use crate::finding::InputRecord;
use crate::output::write_file;
use crate::plan::Property;
use crate::regress::judge::{Judged, Verdict};
use crate::session::Session;

/// Version of shard.json and results.jsonl.
pub const FORMAT: u32 = 1;
/// The manifest's file.
pub const MANIFEST: &str = "shard.json";
/// The file of the seeds.
pub const RESULTS: &str = "results.jsonl";

/// A part of a campaign, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shard {
    /// Its number.
    pub index: u64,
    /// How many there are.
    pub of: u64,
}

impl Shard {
    /// `i/n`.
    ///
    /// # Errors
    /// What is wrong, and what is expected.
    pub fn parse(text: &str) -> Result<Shard, String> {
        let expected = "give the number of this shard, from 1, and how many there are, for example 2/4";
        let number =
            |text: &str| text.parse::<u64>().ok().filter(|_| text.bytes().all(|b| b.is_ascii_digit()));
        let parts = text.split_once('/').and_then(|(index, of)| Some((number(index)?, number(of)?)));
        match parts {
            None => Err(format!("`{text}` is not of the form i/n: {expected}")),
            Some((_, 0)) => Err(format!("there cannot be 0 shards: {expected}")),
            Some((0, of)) => Err(format!("shards are counted from 1, so the first is 1/{of}: {expected}")),
            Some((index, of)) if index > of => {
                Err(format!("there is no shard {index} of {of}, the last is {of}/{of}: {expected}"))
            }
            Some((index, of)) => Ok(Shard { index, of }),
        }
    }

    /// How many of so many seeds are its own.
    pub fn share(self, seeds: u64) -> u64 {
        seeds.saturating_sub(self.index - 1).div_ceil(self.of)
    }

    /// The place among all seeds of its own seed with this number, both from 0.
    pub fn place(self, number: u64) -> Option<u64> {
        number.checked_mul(self.of)?.checked_add(self.index - 1)
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

/// Which seeds of its campaign a process runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// All.
    All,
    /// Those of a shard.
    Shard(Shard),
    /// Those that this worker takes from a store.
    Worker(String),
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Part::All => f.write_str("a whole campaign"),
            Part::Shard(shard) => write!(f, "shard {shard}"),
            Part::Worker(name) => write!(f, "worker {name}"),
        }
    }
}

/// A property, for reports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Title {
    /// Its name.
    pub name: String,
    /// safety, liveness or invariant.
    pub kind: String,
    /// Its line in bloodhound.yaml.
    pub line: u32,
}

impl Title {
    /// Those of a plan.
    pub fn all(properties: &[Property]) -> Vec<Title> {
        let title = |p: &Property| Title { name: p.name.clone(), kind: p.kind.to_owned(), line: p.line };
        properties.iter().map(title).collect()
    }
}

/// What must be the same in all that is joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Version of Bloodhound.
    pub bloodhound: String,
    /// What digests cover.
    pub digest_version: u32,
    /// Digest of the plan: configuration, compose file, environment.
    pub plan: String,
    /// bloodhound.yaml, as it was named.
    pub config: String,
    /// By which rule seeds have faults.
    pub strategy: String,
    /// Regression cases are neither run nor known.
    pub no_regressions: bool,
    /// The properties, in the plan's order.
    pub properties: Vec<Title>,
    /// The kinds of faults that are configured.
    pub fault_kinds: Vec<String>,
    /// The least share of them that is wanted, in thousandths.
    pub least_fault_coverage: Option<u32>,
    /// Thresholds of code coverage; `None`: it is not measured.
    pub code: Option<Thresholds>,
}

impl Identity {
    /// Of a session.
    pub fn of(
        session: &Session,
        strategy: Strategy,
        no_regressions: bool,
        kinds: &[Kind],
        least_fault_coverage: Option<u32>,
        code: Option<Thresholds>,
    ) -> Identity {
        Identity {
            bloodhound: env!("CARGO_PKG_VERSION").to_owned(),
            digest_version: digest::VERSION,
            plan: session.plan_digest.clone(),
            config: session.plan.config.display().to_string(),
            strategy: strategy.name().to_owned(),
            no_regressions,
            properties: Title::all(&session.plan.properties),
            fault_kinds: kinds.iter().map(|kind| kind.name().to_owned()).collect(),
            least_fault_coverage,
            code,
        }
    }

    /// The configured kinds of faults.
    ///
    /// # Errors
    /// One that there is not.
    pub fn kinds(&self) -> Result<Vec<Kind>, String> {
        let named =
            |name: &String| Kind::named(name).ok_or_else(|| format!("there is no kind of faults `{name}`"));
        self.fault_kinds.iter().map(named).collect()
    }

    /// What differs from another one, in words; the first thing.
    pub fn difference(&self, other: &Identity) -> Option<String> {
        let pair = |what: &str, a: &dyn std::fmt::Debug, b: &dyn std::fmt::Debug| {
            Some(format!("{what} {a:?} and {b:?}"))
        };
        match other {
            o if o.bloodhound != self.bloodhound => {
                pair("versions of Bloodhound", &self.bloodhound, &o.bloodhound)
            }
            o if o.digest_version != self.digest_version => {
                pair("versions of digests", &self.digest_version, &o.digest_version)
            }
            o if o.plan != self.plan => pair("plan digests", &self.plan, &o.plan),
            o if o.strategy != self.strategy => pair("strategies", &self.strategy, &o.strategy),
            o if o.no_regressions != self.no_regressions => {
                pair("values of --no-regressions:", &self.no_regressions, &o.no_regressions)
            }
            o if o.properties != self.properties => pair("properties", &self.properties, &o.properties),
            o if o.fault_kinds != self.fault_kinds => {
                pair("kinds of faults", &self.fault_kinds, &o.fault_kinds)
            }
            o if o.least_fault_coverage != self.least_fault_coverage => {
                pair("thresholds of fault coverage", &self.least_fault_coverage, &o.least_fault_coverage)
            }
            o if o.code != self.code => pair("thresholds of code coverage", &self.code, &o.code),
            _ => None,
        }
    }
}

/// How a campaign, or a part of one, ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Its exit code.
    pub exit_code: u8,
    pub interrupted: bool,
    pub timed_out: bool,
    pub failed_fast: bool,
    /// Least number of its own seeds that had to be judged.
    pub least: u64,
    /// What went wrong.
    pub troubles: Vec<Trouble>,
    /// The regression cases, and the entries of the corpus, that fail or have no verdict.
    pub regressions: Vec<Trouble>,
    /// How many entries of the corpus were judged.
    #[serde(default)]
    pub entries_judged: u64,
}

impl Ended {
    /// What is to be told of these totals.
    pub fn of(totals: &Totals, exit_code: u8) -> Ended {
        Ended {
            exit_code,
            interrupted: totals.interrupted,
            timed_out: totals.timed_out,
            failed_fast: totals.failed_fast,
            least: totals.least,
            troubles: totals.troubles.clone(),
            regressions: regressed(totals),
            entries_judged: totals.judged_cases,
        }
    }
}

/// The regression cases and entries of the corpus that fail or have no verdict: they are no seeds that whoever joins parts could judge again.
fn regressed(totals: &Totals) -> Vec<Trouble> {
    let told = |case: &Judged| {
        let (code, what) = match case.verdict {
            Verdict::Open(code) => (code, "has no verdict"),
            _ if case.fails_gate() => (exit::FINDINGS, "fails"),
            _ => return None,
        };
        let text =
            format!("the regression case {} {what}: see the reports of the part that ran it", case.name);
        Some(Trouble { code, text })
    };
    let entry = |code: u8, name: &str, what: &str| Trouble {
        code,
        text: format!("the {name} {what}: see the reports of the part that ran it"),
    };
    let failed = totals.failed_cases.iter().map(|(name, what)| entry(exit::FINDINGS, name, what));
    // Of those that were not judged for want of time another part may tell: whoever joins them counts.
    let stopped = |why: &Unjudged| matches!(why.code(), exit::INTERRUPTED | exit::INCONCLUSIVE);
    let open = totals.unjudged_cases.iter().filter(|(_, why)| !stopped(why));
    let open = open.map(|(name, why)| entry(why.code(), name, "has no verdict"));
    totals.regressions.iter().filter_map(told).chain(failed).chain(open).collect()
}

/// shard.json.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the format.
    pub format: u32,
    #[serde(flatten)]
    pub identity: Identity,
    /// The seeds of the whole campaign: the first, and how many.
    pub first_seed: u64,
    pub seeds: u64,
    /// Which of them this is about.
    pub part: Part,
    /// Files of the host that its runs saw, those of the boot from its end on; digests of small ones are salted with that of the plan.
    pub inputs: Vec<InputRecord>,
    /// How many entries of a corpus it is to run beside its seeds; `None`: it has no corpus.
    #[serde(default)]
    pub entries: Option<u64>,
    /// `None` as long as it runs, or if it was killed.
    pub ended: Option<Ended>,
}

impl Manifest {
    /// Reads one.
    ///
    /// # Errors
    /// What is wrong with it; `at` is where it comes from.
    pub fn parse(at: &str, bytes: &[u8]) -> Result<Manifest, String> {
        let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|e| format!("{at}: {e}"))?;
        match value["format"].as_u64() {
            Some(format) if format == u64::from(FORMAT) => {}
            Some(format) => {
                return Err(format!(
                    "{at}: it has format {format}; this version of Bloodhound ({}) reads format {FORMAT}\nhelp: join shards with \
                     the version that made them",
                    env!("CARGO_PKG_VERSION")
                ));
            }
            None => return Err(format!("{at}: it has no `format`, so it is no {MANIFEST} of Bloodhound")),
        }
        let manifest: Manifest = serde_json::from_value(value).map_err(|e| format!("{at}: {e}"))?;
        let fits = match manifest.part {
            Part::Shard(shard) => shard.index >= 1 && shard.index <= shard.of,
            Part::All | Part::Worker(_) => true,
        };
        let last = manifest.seeds.checked_sub(1).and_then(|last| manifest.first_seed.checked_add(last));
        match fits && last.is_some() {
            true => Ok(manifest),
            false => Err(format!("{at}: it names seeds or a shard that there cannot be")),
        }
    }

    /// As the file has it.
    pub fn text(&self) -> String {
        // Maps with other keys than texts are the only thing that could fail, and there are none.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }

    /// Writes it below a directory.
    ///
    /// # Errors
    /// The host's.
    pub fn write(&self, dir: &Path) -> std::io::Result<()> {
        write_file(&dir.join(MANIFEST), self.text())
    }
}

#[cfg(test)]
pub mod tests;

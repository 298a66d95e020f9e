//! What is told of a corpus at the end of a campaign, and of what its seeds say about those that come ([`Summary`]).

use std::path::PathBuf;

use bloodhound_corpus::{Corpus, Growth, LEAST_RUNS, Told, Trimmed};
use serde_json::{Value as Json, json};

use super::shared::HandedOn;
use crate::judge::thousands;

/// Points of the curve that are printed.
const POINTS: usize = 8;

/// What became of the entries that are not needed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trim {
    /// They stay: nothing is saved in this corpus.
    #[default]
    No,
    /// They stay: something could not be saved.
    Failed,
    /// Another process was just taking them out.
    ByAnother,
    /// They are out.
    Done(Trimmed),
}

/// See the module's text.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    dir: PathBuf,
    /// Entries at the beginning, of which so many are run as cases and so many are seeds of the campaign.
    entries: u64,
    pub cases: u64,
    first: u64,
    /// Files that cannot be used.
    unusable: u64,
    /// Cases that ended: with a judgement, and without.
    pub judged: u64,
    pub unjudged: u64,
    /// New entries, and those that say something else than before.
    pub added: u64,
    pub refreshed: u64,
    pub trim: Trim,
    /// What became of the bucket that it is in; `None`: it is in none, or nothing was put there.
    pub handed_on: Option<HandedOn>,
    pub growth: Growth,
    /// Its runs are those of a guided search: they are no independent draws, so nothing is estimated from them.
    pub is_search: bool,
}

impl Summary {
    /// Of a corpus at the beginning of a campaign.
    pub fn new(corpus: &Corpus, cases: u64, first: u64) -> Summary {
        Summary {
            dir: corpus.dir().to_path_buf(),
            entries: cases + first,
            cases,
            first,
            unusable: corpus.notes().len() as u64,
            ..Summary::default()
        }
    }

    /// There were other entries at the beginning.
    pub fn begin_with(&mut self, cases: u64, first: u64) {
        (self.entries, self.cases, self.first) = (cases + first, cases, first);
    }

    /// A case has ended.
    pub fn case(&mut self, judged: bool) {
        match judged {
            true => self.judged += 1,
            false => self.unjudged += 1,
        }
    }

    /// For people.
    pub fn lines(&self) -> Vec<String> {
        let mut of = format!(
            "corpus: {} had {} entries; {} of {} were run beside the seeds, {} are seeds of this campaign and were run first",
            self.dir.display(),
            self.entries,
            self.judged,
            self.cases,
            self.first
        );
        if self.unusable > 0 {
            of += &format!("; {} files in it cannot be used", self.unusable);
        }
        let now = match self.trim {
            Trim::No => "corpus: nothing is saved in it".to_owned(),
            Trim::ByAnother => format!("corpus: {} entries are new", self.added),
            Trim::Failed => format!("corpus: {} entries are new; others could not be saved", self.added),
            Trim::Done(trimmed) => {
                let short = match trimmed.uncovered {
                    0 => String::new(),
                    features => format!("; for {features} features there is no room (--corpus-limit)"),
                };
                format!(
                    "corpus: {} entries are new, {} say something else than before; {} stay ({} KiB), {} were not needed{short}",
                    self.added,
                    self.refreshed,
                    trimmed.kept,
                    trimmed.bytes.div_ceil(1024),
                    trimmed.removed
                )
            }
        };
        let handed_on = |done: &HandedOn| {
            let stay =
                done.trouble.as_ref().map(|why| format!("; others that are not needed stay in it: {why}"));
            format!(
                "corpus: {} entries were put into the bucket, {} were taken out of it{}",
                done.added,
                done.removed,
                stay.unwrap_or_default()
            )
        };
        let shared = self.handed_on.as_ref().map(handed_on).into_iter().collect();
        [vec![of, now], shared, growth(&self.growth, self.is_search)].concat()
    }

    /// For machines.
    pub fn json(&self) -> Json {
        let growth = &self.growth;
        let no_estimate = why_not(growth, self.is_search);
        let estimate = match growth.estimate() {
            Told::Estimate(e) if no_estimate.is_none() => json!({
                "next_new_ppm": e.next_new, "next_new_at_most_ppm": e.next_new_at_most, "confidence_percent": 95,
                "unseen_at_least": e.unseen_at_least, "seen_once": e.once, "seen_twice": e.twice,
            }),
            _ => Json::Null,
        };
        let trimmed = match self.trim {
            Trim::Done(t) => json!({
                "entries": t.kept, "bytes": t.bytes, "removed": t.removed, "features_without_room": t.uncovered,
            }),
            Trim::No | Trim::Failed | Trim::ByAnother => Json::Null,
        };
        json!({
            "dir": self.dir,
            "entries": self.entries,
            "unusable_files": self.unusable,
            "cases": self.cases,
            "cases_judged": self.judged,
            "seeds_first": self.first,
            "added": self.added,
            "changed": self.refreshed,
            "now": trimmed,
            "bucket": self.handed_on.as_ref().map(|done| json!({"added": done.added, "removed": done.removed, "trouble": done.trouble})),
            "growth": {
                "runs": growth.runs(),
                "features": growth.features(),
                "curve": growth.curve(),
                "last_new_run": growth.last_new(),
                "plateau_runs": growth.plateau().filter(|_| !self.is_search).map(|plateau| plateau.runs),
                "estimate": estimate,
                "no_estimate_because": no_estimate,
            },
        })
    }
}

/// Why there is no estimate.
fn why_not(growth: &Growth, is_search: bool) -> Option<String> {
    if is_search {
        return Some("runs of a search are chosen by what was seen".to_owned());
    }
    match growth.estimate() {
        Told::Estimate(_) => None,
        Told::TooFewRuns(runs) => Some(format!(
            "{runs} judged seeds are too few to say anything about the next: {LEAST_RUNS} are needed"
        )),
        Told::NoFeatures => Some("no seed has any feature".to_owned()),
        Told::TooManyFeatures => Some("there are more features than are counted".to_owned()),
    }
}

/// What the runs say about those that come.
fn growth(growth: &Growth, is_search: bool) -> Vec<String> {
    let noun = if is_search { "runs" } else { "seeds" };
    let curve = growth.curve();
    let step = curve.len().div_ceil(POINTS).max(1);
    // The last point, and others back from it.
    let mut points: Vec<String> = curve
        .iter()
        .rev()
        .step_by(step)
        .map(|(runs, features)| format!("{} after {}", thousands(*features), thousands(u64::from(*runs))))
        .collect();
    points.reverse();
    let mut lines = vec![match growth.features() {
        0 => format!("features: none in {} judged {noun}", growth.runs()),
        features => format!(
            "features: {} in {} judged {noun} ({}); the last new one in the {}. of them",
            thousands(features),
            growth.runs(),
            points.join(", "),
            growth.last_new()
        ),
    }];
    if let Some(plateau) = growth.plateau().filter(|_| !is_search) {
        lines.push(format!(
            "plateau: the last {} seeds showed nothing new (a plateau is at least {})",
            plateau.runs, plateau.needed
        ));
    }
    lines.push(match (growth.estimate(), why_not(growth, is_search)) {
        (Told::Estimate(e), None) => format!(
            "estimate: the next seed shows something new with a probability of about {}, at most {} (95% confidence); at least {} features are \
             not seen yet",
            percent(e.next_new),
            percent(e.next_new_at_most),
            thousands(e.unseen_at_least)
        ),
        (_, why) => format!("estimate: none: {}", why.unwrap_or_default()),
    });
    lines
}

/// Parts per million as people read them, rounded up.
fn percent(ppm: u32) -> String {
    let hundredths = ppm.div_ceil(100);
    format!("{}.{:02}%", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn too_few_seeds_say_nothing_and_enough_say_something() {
        let mut few = Growth::default();
        few.add(&BTreeSet::from([1, 2]));
        let lines = growth(&few, false);
        assert_eq!(
            lines,
            [
                "features: 2 in 1 judged seeds (2 after 1); the last new one in the 1. of them",
                "estimate: none: 1 judged seeds are too few to say anything about the next: 20 are needed",
            ]
        );
        for _ in 0..199 {
            few.add(&BTreeSet::from([1, 2]));
        }
        let lines = growth(&few, false);
        assert!(lines[0].ends_with("2 after 200); the last new one in the 1. of them"), "{}", lines[0]);
        assert_eq!(lines[1], "plateau: the last 199 seeds showed nothing new (a plateau is at least 50)");
        // 3 of 100.
        assert!(
            lines[2].contains("about 0.00%, at most 3.00% (95% confidence); at least 0 "),
            "{}",
            lines[2]
        );
    }

    #[test]
    fn of_the_runs_of_a_search_nothing_is_estimated() {
        let mut all = Growth::default();
        for _ in 0..200 {
            all.add(&BTreeSet::from([1, 2]));
        }
        let lines = growth(&all, true);
        assert!(lines[0].starts_with("features: 2 in 200 judged runs ("), "{}", lines[0]);
        assert_eq!(lines[1..], ["estimate: none: runs of a search are chosen by what was seen"]);
        let json = |is_search| Summary { growth: all.clone(), is_search, ..Summary::default() }.json();
        let (search, seeds) = (json(true)["growth"].take(), json(false)["growth"].take());
        for part in ["estimate", "plateau_runs"] {
            assert!(search[part].is_null() && !seeds[part].is_null(), "{part}");
        }
        assert!(search["no_estimate_because"].is_string() && seeds["no_estimate_because"].is_null());
        assert_eq!(search["curve"], seeds["curve"]);
    }

    #[test]
    fn percentages_are_rounded_up() {
        assert_eq!([0, 1, 99_999, 1_000_000].map(percent), ["0.00%", "0.01%", "10.00%", "100.00%"]);
    }
}

//! Which failures earlier campaigns have found, and what is gone ([`Seen`]), in a file of the output directory.
//!
//! Kept is for each stack (configuration, compose files, profiles, schedule of faults, strategy) and each [`Group`] in which seeds it failed, in how many it was looked for, and in which ones it has not come
//! since it failed last. A seed counts once, however often it is run: it draws the same faults.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::trust;
use crate::group::Group;
use crate::output::write_file;

/// The file in the output directory.
const NAME: &str = "seen.json";
/// Its version.
const FORMAT: u32 = 1;
/// Stretches of seeds that are kept of a group, at most; what is more does not count. A shard has one for each of its seeds.
const STRETCHES: usize = 10_000;
/// Groups that are kept of a stack, at most; what is more is new in each campaign.
const GROUPS: usize = 300;

/// Numbers of seeds as stretches from a first to a last one, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seeds(Vec<(u64, u64)>);

impl Seeds {
    /// Adds one.
    pub fn add(&mut self, seed: u64) {
        self.add_stretch(seed, seed);
    }

    fn add_stretch(&mut self, first: u64, last: u64) {
        let list = &mut self.0;
        // Those that touch or overlap it become one with it.
        let from = list.partition_point(|(_, end)| end.saturating_add(1) < first);
        let to = list.partition_point(|(begin, _)| *begin <= last.saturating_add(1));
        if from == to && list.len() >= STRETCHES {
            return;
        }
        let touched = &list[from..to];
        let first = touched.first().map_or(first, |(begin, _)| first.min(*begin));
        let last = touched.last().map_or(last, |(_, end)| last.max(*end));
        list.splice(from..to, [(first, last)]);
    }

    /// Adds all of another one.
    pub fn join(&mut self, other: &Seeds) {
        for (first, last) in &other.0 {
            self.add_stretch(*first, *last);
        }
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum, (first, last)| sum.saturating_add((last - first).saturating_add(1)))
    }

    /// The first number behind all of them.
    fn end(&self) -> u64 {
        self.0.last().map_or(0, |(_, last)| last.saturating_add(1))
    }

    fn is_well_formed(&self) -> bool {
        self.0.iter().all(|(first, last)| first <= last) && self.0.windows(2).all(|two| two[0].1 < two[1].0)
    }
}

impl FromIterator<u64> for Seeds {
    fn from_iter<I: IntoIterator<Item = u64>>(seeds: I) -> Seeds {
        let mut all = Seeds::default();
        seeds.into_iter().for_each(|seed| all.add(seed));
        all
    }
}

/// What is known of a group.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct History {
    group: Group,
    /// Seeds in which it failed, and those in which it was looked for as long as it did.
    failing: Seeds,
    run: Seeds,
    /// Those without it since it failed last.
    clean: Seeds,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: u32,
    stacks: BTreeMap<String, Vec<History>>,
}

/// The file, read.
#[derive(Debug)]
pub struct Seen {
    path: PathBuf,
    file: File,
    stack: String,
    /// The command that runs more of its seeds, without their numbers.
    command: String,
    /// Groups that were not kept.
    dropped: usize,
}

/// What a campaign says of a group that it could have found.
#[derive(Clone, Debug, Default)]
pub struct Looked {
    /// Seeds that judged it to the end, and those of them in which it failed.
    pub judged: Seeds,
    pub failing: Seeds,
}

/// A failure that earlier campaigns found and this one did not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    pub group: Group,
    /// In how many of how many seeds it failed.
    pub failing: u64,
    pub run: u64,
    /// Seeds without it since then.
    pub clean: u64,
    /// Seeds without it that it takes to trust in a fix.
    pub needed: u64,
    /// The first seed that has not been run yet.
    pub next: u64,
    /// The command that runs more seeds, without their numbers.
    pub command: String,
}

impl Gone {
    /// How many more.
    pub fn more(&self) -> u64 {
        self.needed.saturating_sub(self.clean)
    }

    /// In words.
    pub fn text(&self) -> String {
        let Gone { group, failing, run, clean, next, command, .. } = self;
        let trust = match self.more() {
            0 => "that is enough to trust in a fix (95 %)".to_owned(),
            more => format!(
                "95 % trust in a fix takes {more} more without it: {command} --first-seed {next} --seeds {more}"
            ),
        };
        format!("{group}: failed in {failing} of {run} seeds, and in none of the {clean} since then; {trust}")
    }
}

impl Seen {
    /// Reads the file of an output directory, if there is one. `stack` names what is tested, and `command` tests it.
    ///
    /// # Errors
    /// It is there and cannot be read.
    pub fn open(out: &Path, stack: String, command: String) -> Result<Seen, String> {
        let path = out.join(NAME);
        let file = match std::fs::read(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                File { format: FORMAT, stacks: BTreeMap::new() }
            }
            Err(error) => return Err(format!("{}: {error}", path.display())),
            Ok(bytes) => parse(&bytes).map_err(|why| {
                format!(
                    "{}: {why}\nhelp: it has which failures earlier campaigns have found; remove it to begin anew",
                    path.display()
                )
            })?,
        };
        Ok(Seen { path, file, stack, command, dropped: 0 })
    }

    /// Whether an earlier campaign has found it.
    pub fn has(&self, group: &Group) -> bool {
        self.file
            .stacks
            .get(&self.stack)
            .is_some_and(|list| list.iter().any(|history| history.group == *group))
    }

    /// The groups of the stack.
    pub fn groups(&self) -> Vec<Group> {
        let list = self.file.stacks.get(&self.stack);
        list.into_iter().flatten().map(|history| history.group.clone()).collect()
    }

    /// Takes in what a campaign says of each group: those that it found, and those that it could have found. Returns what is gone and worth a word: until so
    /// many seeds are without it that its fix is trusted, and once more then.
    pub fn take(&mut self, looked: &BTreeMap<Group, Looked>) -> Vec<Gone> {
        let list = self.file.stacks.entry(self.stack.clone()).or_default();
        let mut gone = Vec::new();
        for (group, now) in looked {
            let failed = now.failing.count() > 0;
            let Some(history) = list.iter_mut().find(|history| history.group == *group) else {
                if failed && list.len() >= GROUPS {
                    self.dropped += 1;
                } else if failed {
                    let (failing, run) = (now.failing.clone(), now.judged.clone());
                    list.push(History { group: group.clone(), failing, run, clean: Seeds::default() });
                }
                continue;
            };
            if failed {
                // It was not gone: what passed meanwhile counts as seeds in which it could have come.
                let clean = std::mem::take(&mut history.clean);
                history.failing.join(&now.failing);
                history.run.join(&clean);
                history.run.join(&now.judged);
                continue;
            }
            let needed = trust::needed(history.failing.count(), history.run.count());
            let before = history.clean.count();
            history.clean.join(&now.judged);
            let clean = history.clean.count();
            if clean > 0 && before < needed {
                gone.push(Gone {
                    group: group.clone(),
                    failing: history.failing.count(),
                    run: history.run.count(),
                    clean,
                    needed,
                    next: history.clean.end().max(history.run.end()),
                    command: self.command.clone(),
                });
            }
        }
        gone
    }

    /// What of the stack is not kept, if anything.
    pub fn note(&self) -> Option<String> {
        let list = self.file.stacks.get(&self.stack).map_or(&[][..], Vec::as_slice);
        let is_full = |seeds: &Seeds| seeds.0.len() >= STRETCHES;
        let full = list.iter().filter(|h| [&h.failing, &h.run, &h.clean].into_iter().any(is_full)).count();
        let mut parts = Vec::new();
        if self.dropped > 0 {
            parts.push(format!("{} failures, as {GROUPS} others are there", self.dropped));
        }
        if full > 0 {
            parts.push(format!(
                "further seeds of {full} failures, as {STRETCHES} stretches of them are there"
            ));
        }
        let path = self.path.display();
        (!parts.is_empty())
            .then(|| format!("not kept in {path}: {}; remove the file to begin anew", parts.join(", and ")))
    }

    /// Writes the file.
    ///
    /// # Errors
    /// The host's.
    pub fn save(&self) -> Result<(), String> {
        let text = serde_json::to_vec(&self.file).map_err(|error| error.to_string())?;
        write_file(&self.path, text).map_err(|error| format!("writing which failures were found: {error}"))
    }
}

fn parse(bytes: &[u8]) -> Result<File, String> {
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if value["format"] != FORMAT {
        return Err(format!("it has format {}, and this version reads {FORMAT}", value["format"]));
    }
    let file: File = serde_json::from_value(value).map_err(|error| error.to_string())?;
    let all = file.stacks.values().flatten();
    let sound = all.flat_map(|h| [&h.failing, &h.run, &h.clean]).all(Seeds::is_well_formed);
    if sound { Ok(file) } else { Err("its seeds are not in order".into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(shape: &str) -> Group {
        Group { property: "p".into(), kind: "safety".into(), shape: shape.into() }
    }

    fn looked(judged: std::ops::Range<u64>, failing: &[u64]) -> BTreeMap<Group, Looked> {
        let of = Looked { judged: judged.collect(), failing: failing.iter().copied().collect() };
        BTreeMap::from([(group("a"), of)])
    }

    #[test]
    fn seeds_are_stretches() {
        let mut seeds: Seeds = [5, 3, 4, 9, u64::MAX, 5].into_iter().collect();
        assert_eq!(seeds.0, [(3, 5), (9, 9), (u64::MAX, u64::MAX)]);
        seeds.join(&(6..9).collect());
        assert_eq!(
            (seeds.0.clone(), seeds.count(), seeds.end()),
            (vec![(3, 9), (u64::MAX, u64::MAX)], 8, u64::MAX)
        );
        seeds.join(&(0..20).collect());
        assert_eq!(seeds.0, [(0, 19), (u64::MAX, u64::MAX)]);
    }

    #[test]
    fn what_is_too_much_is_told() {
        let open = || Seen::open(Path::new("/nowhere"), "one".into(), String::new()).expect("nothing yet");
        let of = || Looked { judged: [1].into_iter().collect(), failing: [1].into_iter().collect() };
        let many = |count: usize| (0..count).map(|n| (group(&n.to_string()), of())).collect();
        let mut seen = open();
        seen.take(&many(GROUPS));
        assert_eq!(seen.note(), None);
        seen.take(&many(GROUPS + 2));
        assert_eq!(seen.groups().len(), GROUPS);
        assert!(seen.note().is_some_and(|note| note.contains("json: 2 failures, as 300 others")));
        let mut seen = open();
        let judged = (0..2 * STRETCHES as u64 + 2).filter(|seed| seed % 2 == 0).collect();
        seen.take(&BTreeMap::from([(group("a"), Looked { judged, ..of() })]));
        assert!(seen.note().is_some_and(|note| note.contains("further seeds of 1 failures")));
    }

    #[test]
    fn what_is_gone_is_told_until_it_is_trusted() {
        let out = std::env::temp_dir().join(format!("bloodhound-seen-{}", std::process::id()));
        let _ignored = std::fs::remove_dir_all(&out);
        std::fs::create_dir_all(&out).expect("a directory");
        let open = || {
            Seen::open(&out, "bloodhound.yaml".into(), "bloodhound test -f 'a b.yaml'".into())
                .expect("a file, or none")
        };
        let mut seen = open();
        assert!(!seen.has(&group("a")) && seen.take(&looked(0..20, &[])).is_empty(), "never found, not gone");
        assert!(seen.take(&looked(0..100, &[3, 7, 9, 11, 13, 20, 30, 40, 50, 60])).is_empty());
        seen.save().expect("written");
        let mut seen = open();
        assert!(seen.has(&group("a")) && !seen.has(&group("b")));
        let gone = seen.take(&looked(0..30, &[]));
        assert_eq!((gone[0].failing, gone[0].run, gone[0].clean, gone[0].next), (10, 100, 30, 100));
        assert!((50..60).contains(&gone[0].needed) && gone[0].more() == gone[0].needed - 30);
        let next = format!("bloodhound test -f 'a b.yaml' --first-seed 100 --seeds {}", gone[0].more());
        assert!(gone[0].text().ends_with(&next), "{}", gone[0].text());
        // The same seeds again say nothing more.
        assert_eq!(seen.take(&looked(0..30, &[]))[0].clean, 30);
        assert_eq!(seen.take(&looked(100..200, &[]))[0].more(), 0);
        assert!(seen.take(&looked(200..210, &[])).is_empty(), "told once");
        // It comes back: what was clean was luck.
        assert!(seen.take(&looked(300..310, &[305])).is_empty());
        let gone = seen.take(&looked(0..1, &[]));
        assert_eq!((gone[0].failing, gone[0].run, gone[0].clean), (11, 220, 1));
        seen.stack = "other.yaml".into();
        assert!(!seen.has(&group("a")));
        std::fs::write(out.join(NAME), "{\"format\": 2}").expect("written");
        let refused = Seen::open(&out, String::new(), String::new()).expect_err("another format");
        assert!(refused.contains("seen.json: it has format 2"), "{refused}");
        for damaged in [
            "",
            "{",
            "{\"format\":1,\"stacks\":{\"a\":[{\"group\":{\"property\":\"\",\"kind\":\"\",\"shape\":\"\"},\"failing\":[[5,3]],\"run\":[],\"clean\":[]}]}}",
        ] {
            std::fs::write(out.join(NAME), damaged).expect("written");
            assert!(Seen::open(&out, String::new(), String::new()).is_err(), "{damaged}");
        }
        std::fs::remove_dir_all(out).expect("removed");
    }
}

//! A regression case: a finding as a small file of the repository ([`Case`]), read with the places of all that does not fit, and written.
//!
//! The name of a case is that of its file. Neighbours: `bloodhound_config::regression` decodes the file, `judge` runs a case.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bloodhound_config::regression::{CountedText, Found, LogText, Regression, SwitchText, VERSION};
use bloodhound_config::tree::Source;
use bloodhound_config::{Code, Diagnostic, Located, Severity};
use bloodhound_decisions::{
    Choice, Concern, CountedLoop, Epoch, ForcedSwitch, Log, Override, VERSION as LOG_VERSION,
};

use crate::finding::InputRecord;
use crate::group::Group;

/// How the files of cases end.
const ENDING: &str = "yaml";
/// Most cases in a directory.
const MOST: usize = 10_000;
/// Longest name of a case.
const LONGEST: usize = 100;

/// A case.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    pub path: PathBuf,
    /// The failure.
    pub group: Group,
    /// It is known, and why that is left as it is.
    pub known: Option<String>,
    /// What happens, for people.
    pub story: Vec<String>,
    /// Its faults as a schedule; or why there is none.
    pub schedule: Result<String, String>,
    /// What it was found on.
    pub found: Found,
    /// The files of the host among that.
    pub inputs: Vec<InputRecord>,
    /// The log of its run; or why this version cannot read it.
    pub log: Result<Log, String>,
}

/// Whether a case may have this name.
///
/// # Errors
/// Why not.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > LONGEST || name.starts_with('.') || !name.chars().all(fits) {
        return Err(format!(
            "`{name}` cannot be the name of a case: it has 1 to {LONGEST} letters, digits, `-`, `_` and `.`, and does not begin with `.`"
        ));
    }
    Ok(())
}

/// The file of a case.
pub fn path_of(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.{ENDING}"))
}

/// Reads all cases of a directory, in the order of their names. One that is not there has none.
///
/// # Errors
/// Everything that is wrong in any of them: a case that cannot be read is not passed over.
pub fn load_all(dir: &Path) -> Result<Vec<Case>, Vec<Diagnostic>> {
    let about = |message: String| {
        let name = dir.display().to_string();
        vec![Diagnostic::about_file(Code::Unreadable, Severity::Error, &name, message)]
    };
    let entries = match std::fs::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(about(format!("cannot read the cases in {}: {error}", dir.display()))),
        Ok(entries) => entries,
    };
    let mut paths = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| about(format!("cannot read {}: {error}", dir.display())))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Those that begin with a point are half-written ones of an editor or of a command that was killed.
        if !name.starts_with('.') && (name.ends_with(".yaml") || name.ends_with(".yml")) {
            paths.push(entry.path());
        }
    }
    if paths.len() > MOST {
        return Err(about(format!("{} has {} cases, more than {MOST}", dir.display(), paths.len())));
    }
    paths.sort();
    let (mut cases, mut wrong) = (Vec::new(), Vec::new());
    for path in paths {
        match Case::load(&path) {
            Ok(case) => cases.push(case),
            Err(diagnostics) => wrong.extend(diagnostics),
        }
    }
    if wrong.is_empty() { Ok(cases) } else { Err(wrong) }
}

impl Case {
    /// Reads a file.
    ///
    /// # Errors
    /// All that is wrong in it.
    pub fn load(path: &Path) -> Result<Case, Vec<Diagnostic>> {
        Case::of(Regression::load(path), path)
    }

    /// Reads a text.
    ///
    /// # Errors
    /// As [`Case::load`].
    pub fn decode(path: &Path, text: &str) -> Result<Case, Vec<Diagnostic>> {
        Case::of(Regression::decode(Source::new(path, text)), path)
    }

    fn of(
        (decoded, diagnostics): (Option<Regression>, Vec<Diagnostic>),
        path: &Path,
    ) -> Result<Case, Vec<Diagnostic>> {
        let Some(file) = decoded else { return Err(diagnostics) };
        let mut reader = Reader { source: &file.source, wrong: diagnostics };
        reader.wrong.retain(Diagnostic::is_error);
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if path.extension().is_none_or(|ending| ending != ENDING) {
            let text = format!("{} must be named {name}.{ENDING}", path.display());
            reader.wrong.push(Diagnostic::about_file(
                Code::Malformed,
                Severity::Error,
                &file.source.name,
                text,
            ));
        }
        if let Err(text) = check_name(&name) {
            reader.wrong.push(Diagnostic::about_file(
                Code::Malformed,
                Severity::Error,
                &file.source.name,
                text,
            ));
        }
        let log = reader.log(&file.log);
        let inputs =
            file.found.inputs.iter().flat_map(|input| reader.input(input).unwrap_or_default()).collect();
        if !reader.wrong.is_empty() {
            return Err(reader.wrong);
        }
        let schedule = match (file.schedule, file.no_schedule) {
            (Some(text), _) => Ok(text.value),
            (None, why) => Err(why.unwrap_or_else(|| "the case has no schedule of its faults".into())),
        };
        Ok(Case {
            name,
            path: path.to_path_buf(),
            group: Group { property: file.property, kind: file.kind, shape: file.shape },
            known: file.known,
            story: file.story,
            schedule,
            found: Found { inputs: Vec::new(), ..file.found },
            inputs,
            log,
        })
    }

    /// As it stands in its file.
    ///
    /// # Errors
    /// Its log is of another version.
    pub fn text(&self) -> Result<String, String> {
        let log = self.log.as_ref().map_err(Clone::clone)?;
        let mut out = format!(
            "# A regression case of Bloodhound. `bloodhound test` runs it before all seeds (docs/regressions.md).\nversion: {VERSION}\n"
        );
        let Group { property, kind, shape } = &self.group;
        for (key, value) in [("property", property), ("kind", kind), ("shape", shape)] {
            let _ = writeln!(out, "{key}: {}", quoted(value));
        }
        if let Some(known) = &self.known {
            out.push_str(&known_line(known));
        }
        list(&mut out, "", "story", self.story.iter().map(String::as_str));
        match &self.schedule {
            Ok(text) => {
                // With how far it is indented: its first line may begin with a space.
                out.push_str("schedule: |2\n");
                for line in text.lines() {
                    let _ = writeln!(out, "  {line}");
                }
            }
            Err(why) => {
                let _ = writeln!(out, "no_schedule: {}", quoted(why));
            }
        }
        let found = &self.found;
        let _ = writeln!(
            out,
            "found:\n  bloodhound: {}\n  digest_version: {}\n  platform: {}\n  plan: {}\n  digest: {}\n  virtual_time_ns: {}",
            quoted(&found.bloodhound),
            found.digest_version,
            quoted(&found.platform),
            quoted(&found.plan),
            quoted(&found.digest),
            found.virtual_time_ns
        );
        list(&mut out, "  ", "inputs", input_texts(&self.inputs).iter().map(String::as_str));
        log_text(&mut out, log);
        Ok(out)
    }
}

/// The line that says that a case is known.
pub fn known_line(reason: &str) -> String {
    format!("known: {}\n", quoted(reason))
}

/// A text as YAML reads it back: JSON's strings are strings of YAML.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn list<'a>(out: &mut String, indent: &str, key: &str, items: impl Iterator<Item = &'a str>) {
    let items: Vec<String> = items.map(quoted).collect();
    if items.is_empty() {
        return;
    }
    let _ = writeln!(out, "{indent}{key}:");
    for item in items {
        let _ = writeln!(out, "{indent}  - {item}");
    }
}

/// A line for each input, with all trees in which it is the same.
fn input_texts(inputs: &[InputRecord]) -> Vec<String> {
    let mut lines: Vec<(&InputRecord, Vec<String>)> = Vec::new();
    let same = |a: &InputRecord, b: &InputRecord| {
        (&a.path, &a.kind, a.size, &a.sha256) == (&b.path, &b.kind, b.size, &b.sha256)
    };
    for input in inputs {
        match lines.iter_mut().find(|(other, _)| same(input, other)) {
            Some((_, trees)) => trees.push(input.tree.to_string()),
            None => lines.push((input, vec![input.tree.to_string()])),
        }
    }
    let line = |(input, trees): (&InputRecord, Vec<String>)| {
        format!("{} {} {} {} {}", input.kind, trees.join(","), input.size, input.sha256, input.path)
    };
    lines.into_iter().map(line).collect()
}

fn log_text(out: &mut String, log: &Log) {
    let _ =
        writeln!(out, "log:\n  version: {LOG_VERSION}\n  boot_seed: {}\n  seed: {}", log.boot_seed, log.seed);
    list(out, "  ", "plain", log.plain.iter().map(|concern| concern.name()));
    if !log.epochs.is_empty() {
        out.push_str("  epochs:\n");
    }
    for Epoch { from, seed, concerns } in &log.epochs {
        let names: Vec<&str> = concerns.iter().map(|concern| concern.name()).collect();
        let _ = writeln!(out, "    - {{from: {from}, seed: {seed}, concerns: [{}]}}", names.join(", "));
    }
    let overrides: Vec<String> = log
        .overrides
        .iter()
        .map(|(choice, Override { bound, value })| format!("{choice} = {value} of {bound}"))
        .collect();
    list(out, "  ", "overrides", overrides.iter().map(String::as_str));
    if !log.counted.is_empty() {
        out.push_str("  counted:\n");
    }
    for CountedLoop { step, place, straight, endless } in &log.counted {
        let place = quoted(place);
        let _ =
            writeln!(out, "    - {{step: {step}, place: {place}, straight: {straight}, endless: {endless}}}");
    }
    let Some(switches) = &log.switches else { return };
    out.push_str(if switches.is_empty() { "  switches: []\n" } else { "  switches:\n" });
    for ForcedSwitch { node, life, task, place, nth, torn } in switches {
        let (task, place) = (quoted(&task.to_string()), quoted(place));
        let _ = writeln!(
            out,
            "    - {{node: {node}, life: {life}, task: {task}, place: {place}, nth: {nth}, torn: {torn}}}"
        );
    }
}

/// Gives texts their meaning, and tells of those that have none with their places.
struct Reader<'a> {
    source: &'a Source,
    wrong: Vec<Diagnostic>,
}

impl Reader<'_> {
    fn none<T>(&mut self, text: &Located<String>, message: String) -> Option<T> {
        let place = text.place(self.source);
        self.wrong.push(Diagnostic::at(Code::Malformed, Severity::Error, place, message));
        None
    }

    fn log(&mut self, text: &LogText) -> Result<Log, String> {
        if text.version.value != u64::from(LOG_VERSION) {
            return Err(format!(
                "its log of choices has version {}; this Bloodhound reads {LOG_VERSION}",
                text.version.value
            ));
        }
        let plain = text.plain.iter().filter_map(|name| self.concern(name)).collect();
        let mut epochs: Vec<Epoch> = Vec::new();
        for located in &text.epochs {
            let (from, seed, names) = &located.value;
            let concerns = names.iter().filter_map(|name| self.concern(name)).collect();
            if epochs.last().is_some_and(|before| before.from > *from) {
                let at = located.clone().map(|_| String::new());
                let _told: Option<()> =
                    self.none(&at, "the epochs of the log are not in order of time".into());
            }
            epochs.push(Epoch { from: *from, seed: *seed, concerns });
        }
        let mut log = Log { epochs, plain, ..Log::new(text.boot_seed, text.seed) };
        for located in &text.overrides {
            let Some((choice, to)) = self.over(located) else { continue };
            if log.overrides.insert(choice, to).is_some() {
                let _told: Option<()> = self.none(located, format!("`{choice}` has two values"));
            }
        }
        log.counted = text.counted.iter().map(counted).collect();
        log.switches =
            text.switches.as_ref().map(|list| list.iter().filter_map(|one| self.switch(one)).collect());
        Ok(log)
    }

    fn concern(&mut self, name: &Located<String>) -> Option<Concern> {
        name.value.parse().map_or_else(|why: String| self.none(name, why), Some)
    }

    fn over(&mut self, text: &Located<String>) -> Option<(Choice, Override)> {
        let parts = text.value.rsplit_once(" of ").and_then(|(rest, bound)| {
            let (choice, value) = rest.rsplit_once(" = ")?;
            Some((choice, value.parse().ok()?, bound.parse().ok()?))
        });
        let Some((choice, value, bound)) = parts else {
            return self.none(text, "a choice is written as `run:NAME(...) = VALUE of BOUND`".into());
        };
        match choice.parse() {
            Ok(choice) => Some((choice, Override { bound, value })),
            Err(why) => self.none(text, why),
        }
    }

    fn switch(&mut self, text: &SwitchText) -> Option<ForcedSwitch> {
        let SwitchText { node, life, task, place, nth, torn } = text;
        let Ok(parsed) = task.value.parse() else {
            return self.none(task, format!("`{}` names no task", task.value));
        };
        let (node, life) = (u32::try_from(*node).ok()?, u32::try_from(*life).ok()?);
        Some(ForcedSwitch { node, life, task: parsed, place: place.clone(), nth: *nth, torn: *torn })
    }

    fn input(&mut self, text: &Located<String>) -> Option<Vec<InputRecord>> {
        let mut words = text.value.splitn(5, ' ');
        let mut parsed = || {
            let kind = words.next()?.to_owned();
            let trees: Result<Vec<u32>, _> = words.next()?.split(',').map(str::parse).collect();
            let (trees, size) = (trees.ok()?, words.next()?.parse().ok()?);
            let hex = |text: &&str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
            let sha256 = words.next().filter(hex)?.to_owned();
            let path = words.next()?.to_owned();
            let of = |tree| InputRecord {
                tree,
                path: path.clone(),
                kind: kind.clone(),
                size,
                sha256: sha256.clone(),
            };
            Some(trees.into_iter().map(of).collect())
        };
        parsed().or_else(|| self.none(text, "an input is written as `KIND TREES SIZE DIGEST PATH`".into()))
    }
}

fn counted(text: &CountedText) -> CountedLoop {
    let CountedText { step, place, straight, endless } = text;
    CountedLoop { step: *step, place: place.clone(), straight: *straight as u8, endless: *endless }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use bloodhound_decisions::{Lineage, Part, Site};

    /// One with everything in it.
    pub fn case() -> Case {
        let choice = |nth| Choice { part: Part::Run, site: Site::Arrival { worker: 0, nth } };
        let mut log = Log::new(7, u64::MAX).with(choice(0), 9, 4).with(choice(1), u64::MAX, 5);
        log.epochs = vec![Epoch { from: 1, seed: 2, concerns: vec![Concern::Network, Concern::Scheduler] }];
        log.plain = vec![Concern::Scheduler];
        log.counted =
            vec![CountedLoop { step: 3, place: "file:ab:0x1:00".into(), straight: 2, endless: true }];
        log.switches = Some(vec![ForcedSwitch {
            node: 1,
            life: 0,
            task: Lineage::root(0),
            place: "memory:1:2:0x3:00".into(),
            nth: 4,
            torn: false,
        }]);
        let input = InputRecord {
            tree: 1,
            path: "/with a blank\u{e9}: #".into(),
            kind: "content".into(),
            size: 5,
            sha256: "0a".repeat(32),
        };
        Case {
            name: "a".into(),
            path: "cases/a.yaml".into(),
            group: Group {
                property: "stays: # \"x\"".into(),
                kind: "safety".into(),
                shape: "tab\t \\ 'quote' key \"#\"".into(),
            },
            known: Some("a: reason # of\nlines".into()),
            story: vec!["1.2s  fault kv1".into(), "- [x]".into()],
            schedule: Ok("# two\nschedule:\n  - {at: 1s, fault: crash, service: \"yes\"}\n".into()),
            found: Found {
                bloodhound: "0.1.0".into(),
                digest_version: 3,
                platform: "kvm".into(),
                plan: "1e5".into(),
                digest: "00".into(),
                virtual_time_ns: 12,
                inputs: Vec::new(),
            },
            inputs: vec![input],
            log: Ok(log),
        }
    }

    fn read(text: &str) -> Result<Case, Vec<Diagnostic>> {
        Case::decode(Path::new("cases/a.yaml"), text)
    }

    #[test]
    fn what_is_written_is_read_back() {
        let full = case();
        let mut least = case();
        (least.known, least.story, least.inputs) = (None, Vec::new(), Vec::new());
        (least.schedule, least.log) =
            (Err("no: reason".into()), Ok(Log { switches: Some(Vec::new()), ..Log::new(0, 0) }));
        let indented = Case { schedule: Ok("  # a remark\nschedule: []\n".into()), ..case() };
        for case in [full, least, indented] {
            let text = case.text().expect("a text");
            let back = read(&text).unwrap_or_else(|wrong| panic!("{text}\n{wrong:?}"));
            assert_eq!(back.text().expect("a text"), text);
            assert_eq!(
                (&back.log, &back.schedule, &back.group),
                (&case.log, &case.schedule, &case.group),
                "{text}"
            );
            assert_eq!((back.known, back.story, back.found), (case.known, case.story, case.found), "{text}");
        }
    }

    #[test]
    fn damaged_files_are_told_with_their_places() {
        let text = case().text().expect("a text");
        for (from, to, says) in [
            ("= 4 of 9", "= 4 by 9", "a choice is written as"),
            ("arrival(", "arriva(", "names no choice"),
            ("nth=1)", "nth=0)", "has two values"),
            ("plain:\n    - \"scheduler\"", "plain:\n    - \"schedule\"", "schedule"),
            ("\"content 1 5", "\"content 1", "an input is written as"),
        ] {
            assert!(text.contains(from), "{from}: {text}");
            let wrong = read(&text.replacen(from, to, 1)).expect_err(to);
            let placed =
                wrong.iter().find(|d| d.message.contains(says)).unwrap_or_else(|| panic!("{to}: {wrong:?}"));
            let line = placed.place.as_ref().map_or(0, |place| place.line) as usize;
            assert!(line > 0 && text.lines().nth(line - 1).is_some(), "{wrong:?}");
        }
        // Whatever is cut off: an answer, no panic.
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            let _any = read(&text[..end]);
        }
        let older = text.replace(&format!("  version: {LOG_VERSION}\n"), "  version: 3\n");
        let older = read(&older).expect("the log alone cannot be read");
        assert!(older.log.is_err_and(|why| why.contains("version 3")));
    }

    #[test]
    fn names_are_those_of_files() {
        for good in ["a", "linearizable-2", "A_b.c"] {
            assert_eq!(check_name(good), Ok(()));
        }
        for bad in ["", ".a", "a/b", "a b", "\u{e9}", &"x".repeat(101)] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
        assert!(Case::decode(Path::new("cases/a.yml"), &case().text().expect("a text")).is_err());
    }
}

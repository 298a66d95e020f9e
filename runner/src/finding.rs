//! Findings on disk: everything that is needed to reproduce one, and the check that nothing of it has changed.
//!
//! A finding is a directory with `finding.json` ([`Record`]), `decisions.json` (what a replay follows: the [`Log`] of the run, its two
//! seeds and what takes the place of what they say), `digests.json` (the digest after every thousand steps, which shows where a
//! replay left its record), `history.jsonl` (what the clients saw), `trace.txt` (faults, services, output).

use std::io::Write;
use std::path::{Path, PathBuf};

use bloodhound_abi::digest;
use bloodhound_config::Selection;
use bloodhound_decisions::Log;
use bloodhound_sim::world::MARK;
use bloodhound_vfs::TreeId;
use bloodhound_vfs::host::{HostBase, Input, InputKind};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::output::write_file;
use crate::plan::Pin;
use crate::platform::Chosen;
use crate::session::{Failure, Outcome, Session, Violation};
use crate::{boots, platform, redact, report};

mod again;
mod copied;
mod digests;
mod shrunk;

pub use again::{as_recorded, came_to_an_end, differs, fails_again};
pub use copied::copied;
use digests::texts;
pub use digests::{Digests, first_difference};
pub use shrunk::{SHRUNK, bundle_of, directory_of, least, save_shrunk};

/// Version of the format. 2: `platform` says what the platform could do; before, it was a name. 3: `decisions.json` has those of the
/// boot as well. 4: `decisions.json` has seeds and overrides by the names of choices instead of lists of drawn numbers.
/// 5: the digests of small files are salted and slow to compute.
/// And `digest_version`; digests cover the data of a run.
const FORMAT: u32 = 5;

/// A file of the host that the run saw.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputRecord {
    /// Which tree.
    pub tree: u32,
    /// Path in it.
    pub path: String,
    /// content, entry, listing, absent or image.
    pub kind: String,
    /// Bytes.
    pub size: u64,
    /// SHA-256, hexadecimal; of a small file what [`guarded`] makes of it.
    pub sha256: String,
}

/// Files of at most so many bytes may hold nothing but a password, which everybody could guess who has a plain digest of it.
const SMALL: u64 = 256;
/// So many times the digest of such a file is hashed: each guess costs as much.
const ROUNDS: u32 = 20_000;

/// The digest of a small file as a finding has it: with a salt that no other run has, and slow to compute.
fn guarded(salt: &str, path: &[u8], sha256: &[u8; 32]) -> [u8; 32] {
    let first = Sha256::new().chain_update(salt).chain_update([0]).chain_update(path).chain_update(sha256);
    (0..ROUNDS).fold(first.finalize().into(), |hash: [u8; 32], _| {
        Sha256::new().chain_update(hash).chain_update(salt).finalize().into()
    })
}

/// finding.json.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Format version.
    pub format: u32,
    /// Version of Bloodhound.
    pub bloodhound: String,
    /// The property, or the kind of a finding of the machine.
    pub property: String,
    /// safety, liveness, invariant, crash, deadlock, hang.
    pub kind: String,
    /// The seed.
    pub seed: u64,
    /// The boot from which the seed goes on (`simulation.boots`).
    pub boot: u64,
    /// When it was violated, ns of virtual time.
    pub virtual_time_ns: u64,
    /// Digest of the whole run.
    pub digest: String,
    /// What the digest covers ([`bloodhound_abi::digest::VERSION`]).
    pub digest_version: u32,
    /// Steps of the run.
    pub steps: u64,
    /// Why.
    pub text: String,
    /// Faults that were injected, as lines of the trace.
    pub faults: Vec<String>,
    /// The plan of faults, as far as its time came.
    pub fault_plan: Vec<report::FaultRecord>,
    /// bloodhound.yaml, absolute.
    pub config: PathBuf,
    /// The compose files if they were given on the command line, absolute.
    #[serde(default)]
    pub compose: Vec<PathBuf>,
    /// The profiles that were given on the command line.
    #[serde(default)]
    pub profiles: Vec<String>,
    /// The project's name, which is part of the names of its containers; by default that of the directory.
    pub project: String,
    /// The schedule of `--faults`, if that was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault_schedule: Option<String>,
    /// Whether there was a bloodhound.yaml; without one, a stack is asked for little.
    pub configured: bool,
    /// Digest of the plan: configuration, compose file, environment.
    pub plan: String,
    /// What the run was made on.
    pub platform: platform::Record,
    /// Host files that the run saw.
    pub inputs: Vec<InputRecord>,
}

fn kind_name(kind: InputKind) -> &'static str {
    match kind {
        InputKind::Content => "content",
        InputKind::Entry => "entry",
        InputKind::Listing => "listing",
        InputKind::Absent => "absent",
        InputKind::Image => "image",
    }
}

impl InputRecord {
    /// Whether it is what a file or an image holds, and not how it is named or listed, or that it is not there.
    pub fn is_content(&self) -> bool {
        [InputKind::Content, InputKind::Image].iter().any(|kind| kind_name(*kind) == self.kind)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A finding that was read.
pub struct Stored {
    /// What was found.
    pub record: Record,
    /// The run.
    pub log: Log,
    /// Its digests.
    pub marks: Digests,
}

/// The inputs so far, for the record of a run with this digest.
fn inputs(base: &HostBase, run: &str) -> Vec<InputRecord> {
    base.inputs().into_iter().map(|input| input_record(input, run)).collect()
}

/// Those by which runs of other machines are told from those of this one: contents of files, and images. `small` ones too, whose
/// digests cost time, with `salt`.
pub fn programs(base: &HostBase, salt: &str, small: bool) -> Vec<InputRecord> {
    let told = |input: &Input| match input.kind {
        InputKind::Content => small || !is_small(input),
        InputKind::Image => true,
        InputKind::Entry | InputKind::Listing | InputKind::Absent => false,
    };
    base.inputs().into_iter().filter(told).map(|input| input_record(input, salt)).collect()
}

fn input_record(input: Input, salt: &str) -> InputRecord {
    InputRecord {
        tree: input.tree.0,
        path: String::from_utf8_lossy(&input.path).into_owned(),
        kind: kind_name(input.kind).into(),
        size: input.size,
        sha256: hex(&match is_small(&input) {
            true => guarded(salt, &input.path, &input.sha256),
            false => input.sha256,
        }),
    }
}

fn is_small(input: &Input) -> bool {
    input.kind == InputKind::Content && input.size <= SMALL
}

/// Those inputs of a run with this digest that are others now, for people.
///
/// # Errors
/// An input is malformed.
pub fn changed(base: &HostBase, run: &str, inputs: &[InputRecord]) -> Result<Vec<String>, Failure> {
    let (small, others): (Vec<Input>, Vec<Input>) = recorded_inputs(inputs)?.into_iter().partition(is_small);
    let mut changed = base.changed(&others);
    changed.extend(small.into_iter().filter(|input| {
        let now = base.content_digest(input.tree, &input.path);
        now.is_none_or(|now| guarded(run, &input.path, &now) != input.sha256)
    }));
    let told = |i: &Input| format!("{} ({})", String::from_utf8_lossy(&i.path), kind_name(i.kind));
    let mut lines: Vec<String> = changed.iter().map(told).collect();
    lines.sort();
    lines.dedup();
    Ok(lines)
}

/// The images of a finding by their names.
pub fn pins(record: &Record) -> Vec<Pin> {
    let images = record.inputs.iter().filter(|input| input.kind == kind_name(InputKind::Image));
    images.filter_map(|input| Pin::parse(&input.path, &input.sha256)).collect()
}

/// Where findings are stored.
pub fn directory(out: &Path) -> PathBuf {
    out.join("findings")
}

/// Letters of a property's name in the name of a directory, which has its limit.
const NAME: usize = 100;

/// The name of a finding, without the number that tells it from others of its name.
fn id(seed: u64, violation: &Violation) -> String {
    let safe: String = violation
        .property
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .take(NAME)
        .collect();
    format!("seed-{seed}-{safe}")
}

/// How directories begin that are not whole yet.
const UNFINISHED: &str = ".unfinished-";

/// Removes what a campaign that was killed had begun to write.
///
/// # Errors
/// The host's.
pub fn clean(out: &Path) -> std::io::Result<()> {
    for entry in std::fs::read_dir(directory(out))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            std::fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// The names of the findings that are there.
pub fn names(out: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory(out)).into_iter().flatten().flatten();
    let whole = entries.filter(|e| e.path().join("finding.json").exists());
    let mut names: Vec<String> = whole.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A finding that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// Its directory.
    pub dir: PathBuf,
    /// The directory of another run's finding of the same name, which stays, if there is one.
    pub beside: Option<PathBuf>,
}

/// Writes a finding. Whoever sees its directory sees all of it, whenever this process or the machine ends: it is written and
/// brought to the disk under another name first. A finding of an earlier campaign is replaced by the same one only, which
/// has its digest.
///
/// # Errors
/// The host's; nothing is left behind then.
pub fn save(
    out: &Path,
    session: &Session,
    compose: &Selection,
    outcome: &Outcome,
    violation: &Violation,
) -> std::io::Result<Saved> {
    let platform = outcome.platform.ok_or_else(|| std::io::Error::other("a live run cannot be replayed"))?;
    let record = record(session, compose, outcome, violation, platform.record());
    let files = files(&record, outcome)?;
    store(&directory(out), &id(outcome.seed, violation), &record, &files)
}

/// The files of a finding, the record last: what has one is whole.
fn files(record: &Record, outcome: &Outcome) -> std::io::Result<Vec<(&'static str, Vec<u8>)>> {
    let digests = Digests { every: MARK, digests: texts(&outcome.marks) };
    Ok(vec![
        ("decisions.json", serde_json::to_vec_pretty(&*outcome.decisions)?),
        ("digests.json", serde_json::to_vec(&digests)?),
        ("history.jsonl", redact::json(&outcome.history.to_json_lines()).into_owned().into()),
        ("trace.txt", redact::text(&report::trace(outcome)).into_owned().into()),
        ("finding.json", serde_json::to_vec_pretty(record)?),
    ])
}

/// Puts files into a directory with this name, or with a number behind it if the name is taken by another finding.
fn store(findings: &Path, id: &str, record: &Record, files: &[(&str, Vec<u8>)]) -> std::io::Result<Saved> {
    let first = findings.join(id);
    let mut dir = first.clone();
    let mut number = 1;
    while let Ok(there) = std::fs::symlink_metadata(&dir) {
        if there.is_dir() && is_same(&dir, record) {
            // File by file: at any moment it is a whole finding of this run.
            for (name, bytes) in files {
                write_file(&dir.join(name), bytes)?;
            }
            break;
        }
        number += 1;
        dir = findings.join(format!("{id}-{number}"));
    }
    if !dir.exists() {
        let unfinished = findings.join(format!("{UNFINISHED}{id}-{}", std::process::id()));
        let written = whole(&unfinished, files).and_then(|()| std::fs::rename(&unfinished, &dir));
        if let Err(error) = written {
            // Nothing can be done if this fails as well.
            let _ignored = std::fs::remove_dir_all(&unfinished);
            return Err(std::io::Error::new(error.kind(), format!("{}: {error}", dir.display())));
        }
    }
    std::fs::File::open(findings)?.sync_all()?;
    Ok(Saved { beside: (dir != first).then_some(first), dir })
}

/// Makes a directory with files, all of it on the disk.
fn whole(dir: &Path, files: &[(&str, Vec<u8>)]) -> std::io::Result<()> {
    std::fs::create_dir_all(dir)?;
    for (name, bytes) in files {
        let path = dir.join(name);
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        let mut file = std::fs::File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()?;
    }
    std::fs::File::open(dir)?.sync_all()
}

/// Whether a finding of the same run is in the directory.
fn is_same(dir: &Path, record: &Record) -> bool {
    let there = std::fs::read(dir.join("finding.json")).unwrap_or_default();
    let there: serde_json::Value = serde_json::from_slice(&there).unwrap_or_default();
    there["digest"] == record.digest.as_str()
        && there["property"] == record.property.as_str()
        && there["virtual_time_ns"] == record.virtual_time_ns
}

fn record(
    session: &Session,
    compose: &Selection,
    outcome: &Outcome,
    violation: &Violation,
    platform: platform::Record,
) -> Record {
    let absolute = |p: &Path| std::path::absolute(p).unwrap_or_else(|_| p.to_path_buf());
    Record {
        format: FORMAT,
        bloodhound: env!("CARGO_PKG_VERSION").into(),
        property: violation.property.clone(),
        kind: violation.kind.clone(),
        seed: outcome.seed,
        boot: boots::number(&outcome.decisions),
        virtual_time_ns: violation.at.0,
        digest: outcome.digest.clone(),
        digest_version: digest::VERSION,
        steps: outcome.steps,
        // Places of files stay as they are: a replay reads them.
        text: redact::text(&violation.text).into_owned(),
        faults: report::faults(outcome),
        fault_plan: outcome.faults.clone(),
        config: absolute(&session.plan.config),
        compose: compose.files.iter().map(|path| absolute(path)).collect(),
        profiles: compose.profiles.clone(),
        project: session.files.name.clone(),
        fault_schedule: compose.faults.as_ref().map(|(_, text)| text.clone()),
        configured: session.configured,
        plan: session.plan_digest.clone(),
        platform,
        inputs: inputs(&session.base, &outcome.digest),
    }
}

/// Reads a finding.
///
/// # Errors
/// What is missing or malformed, with the path.
pub fn load(dir: &Path) -> Result<Stored, Failure> {
    let dir = directory_of(dir);
    let read = |name: &str| {
        let path = dir.join(name);
        std::fs::read(&path).map_err(|e| {
            Failure::usage(format!(
                "{}: {e}\nhelp: give the directory of a finding, <out>/findings/<id>",
                path.display()
            ))
        })
    };
    let parse_error =
        |name: &str, e: serde_json::Error| Failure::usage(format!("{}: {e}", dir.join(name).display()));
    // The version first: a record of another one has other fields.
    let value: serde_json::Value =
        serde_json::from_slice(&read("finding.json")?).map_err(|e| parse_error("finding.json", e))?;
    if value["format"] != FORMAT {
        return Err(Failure::usage(other_format(dir, &value)));
    }
    let record: Record = serde_json::from_value(value).map_err(|e| parse_error("finding.json", e))?;
    let log =
        serde_json::from_slice(&read("decisions.json")?).map_err(|e| parse_error("decisions.json", e))?;
    let marks: Digests =
        serde_json::from_slice(&read("digests.json")?).map_err(|e| parse_error("digests.json", e))?;
    Ok(Stored { record, log, marks })
}

/// Why a record of another version cannot be read.
fn other_format(dir: &Path, value: &serde_json::Value) -> String {
    let Some(format) = value["format"].as_u64() else {
        return format!("{}: finding.json is no finding: it has no `format`", dir.display());
    };
    let by = value["bloodhound"].as_str().map_or_else(String::new, |v| format!(", made by Bloodhound {v}"));
    format!(
        "{}: the finding has format {format}{by}; this version ({}) reads format {FORMAT}\nhelp: replay it with the \
         version that made it, or look for it again with `bloodhound test --first-seed {} --seeds 1`",
        dir.display(),
        env!("CARGO_PKG_VERSION"),
        value["seed"].as_u64().unwrap_or_default(),
    )
}

/// What to say about the platforms of the finding and of its replay, if they could or can not do everything.
pub fn compare_platforms(record: &platform::Record, chosen: &Chosen) -> String {
    let now = platform::missing(&chosen.abilities);
    let mut out = String::new();
    for m in record.missing() {
        out += &format!(
            "bloodhound: warning: the finding was made on the {} platform of a machine where it does not {}:\n  {}\n",
            record.name, m.what, m.consequence
        );
    }
    for m in now.iter().filter(|m| !record.missing().contains(m)) {
        out += &format!(
            "bloodhound: warning: the finding was made where the platform ({}) does {}, and here it ({}) does not\n",
            record.name, m.what, chosen.name
        );
    }
    out
}

/// Says what has changed since the finding was made, if anything.
///
/// # Errors
/// A list of the differences, as usage error: replaying something else would prove nothing.
pub fn unchanged(record: &Record, session: &Session) -> Result<(), Failure> {
    if record.bloodhound != env!("CARGO_PKG_VERSION") {
        return Err(Failure::usage(format!(
            "the finding was made by Bloodhound {}, this is {}: digests are comparable within a version only",
            record.bloodhound,
            env!("CARGO_PKG_VERSION")
        )));
    }
    if record.digest_version != digest::VERSION {
        return Err(Failure::usage(format!(
            "the finding has a digest of version {}, this is version {}: they cannot be compared\nhelp: look for the finding again \
             with `bloodhound test --first-seed {} --seeds 1`",
            record.digest_version,
            digest::VERSION,
            record.seed
        )));
    }
    if record.plan != session.plan_digest {
        return Err(Failure::usage(format!(
            "{}, its compose file or an environment variable in them has changed since the finding was made\nhelp: restore them, or look for the finding again with `bloodhound test`",
            record.config.display()
        )));
    }
    let mut lines = changed(&session.base, &record.digest, &record.inputs)?;
    if lines.is_empty() {
        return Ok(());
    }
    let more = lines.len().saturating_sub(10);
    lines.truncate(10);
    let rest = if more > 0 { format!("\n  and {more} more") } else { String::new() };
    Err(Failure::usage(format!(
        "input files have changed since the finding was made:\n  {}{rest}\nhelp: restore them, or look for the finding again with `bloodhound test`",
        lines.join("\n  ")
    )))
}

/// The record's inputs as the base layer names them. Trees have the same numbers, for the same plan adds them.
fn recorded_inputs(records: &[InputRecord]) -> Result<Vec<Input>, Failure> {
    let malformed = || Failure::usage("an input of the finding is malformed");
    let input = |i: &InputRecord| -> Option<Input> {
        let mut sha256 = [0; 32];
        if i.sha256.len() != 64 {
            return None;
        }
        for (at, byte) in sha256.iter_mut().enumerate() {
            *byte = u8::from_str_radix(i.sha256.get(at * 2..at * 2 + 2)?, 16).ok()?;
        }
        let kind =
            [InputKind::Content, InputKind::Entry, InputKind::Listing, InputKind::Absent, InputKind::Image]
                .into_iter()
                .find(|k| kind_name(*k) == i.kind)?;
        Some(Input { tree: TreeId(i.tree), path: i.path.clone().into_bytes(), kind, size: i.size, sha256 })
    };
    records.iter().map(|i| input(i).ok_or_else(malformed)).collect()
}

#[cfg(test)]
mod tests;

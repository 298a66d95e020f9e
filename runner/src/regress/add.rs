//! `bloodhound regress add`: makes a case of a finding. The finding is run again first, so that what is kept fails.

use std::path::Path;
use std::sync::Arc;

use bloodhound_config::regression::Found;

use super::case::{self, Case};
use crate::finding::{self, Record, Stored};
use crate::group::Group;
use crate::memory::Guard;
use crate::output;
use crate::platform::{self, Choice, Chosen};
use crate::run::{Again, interrupt};
use crate::session::{Failure, Outcome, Session, Worker};
use crate::{exit, redact, schedule, shrink};

/// Lines of a story before the violation, at most.
const STORY: usize = 80;
/// Most cases of one property that get a number of their own.
const NUMBERS: u32 = 10_000;

/// Arguments of `regress add`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(flatten)]
    again: Again,
    #[command(flatten)]
    platform: Choice,
    /// The name of the case (default: that of the property, with a number if it is taken)
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The failure is known and left as it is, for this reason: `test` lists it and does not fail by it
    #[arg(long, value_name = "REASON", num_args = 0..=1, default_missing_value = "")]
    known: Option<String>,
    /// Take the finding as it was found, though it has a shrunken form
    #[arg(long)]
    as_found: bool,
}

/// Makes the case.
///
/// # Errors
/// What cannot be read, and a finding that does not fail any more.
pub fn add(args: &Args) -> Result<u8, Failure> {
    let again = &args.again;
    let stored = match args.as_found {
        true => finding::load(&again.finding)?,
        false => finding::least(&again.finding)?.0,
    };
    let session = Arc::new(again.session(&stored.record)?);
    let dir = session.project.config.regressions.clone();
    let free = name(args, &stored.record, &dir)?;
    let chosen = platform::choose(args.platform.wanted)?;
    output::eprint(&finding::compare_platforms(&stored.record.platform, &chosen));
    let guard = Guard::start(args.platform.budget(), interrupt())?;
    let outcome = replay(&stored, &session, &chosen).map_err(|failure| guard.explain(failure))?;
    let mut case = case_of(args, &stored, &outcome, (&dir, &free))?;
    let text = case.text().map_err(Failure::environment)?;
    let text = redact::text(&text).into_owned();
    // What is written must be what was meant.
    let back = Case::decode(&case.path, &text).ok();
    if back.is_none_or(|back| back.text().as_ref() != Ok(&text)) {
        return Err(Failure::environment(format!(
            "the case cannot be kept in a file: what would be read back is not what was written ({} bytes; at most {} are read)",
            text.len(),
            bloodhound_config::tree::MAX_BYTES
        )));
    }
    // The name was free before the run, and another command may have taken it since.
    while !written(&case.path, &text)
        .map_err(|e| Failure::environment(format!("writing the case {}: {e}", case.path.display())))?
    {
        case.name = name(args, &stored.record, &dir)?;
        case.path = case::path_of(&dir, &case.name);
    }
    let known =
        if case.known.is_some() { "; it is known: `test` lists it and does not fail by it" } else { "" };
    output::print(&format!("added {}: {}{known}\n", case.path.display(), case.group));
    if let Err(why) = &case.schedule {
        output::print(&format!(
            "its faults cannot be written as a schedule, so it is lost when the configuration changes: {why}\n"
        ));
    }
    Ok(exit::PASS)
}

/// Puts a text into a file that is not there; `false`: it is there by now. Whoever sees the file sees all of it.
fn written(path: &Path, text: &str) -> std::io::Result<bool> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".new-{}-{name}", std::process::id()));
    output::write_file(&beside, text)?;
    let linked = std::fs::hard_link(&beside, path);
    // Nothing can be done if this fails as well; files whose names begin with a point are no cases.
    let _ignored = std::fs::remove_file(&beside);
    match linked {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        // A file system without hard links.
        Err(_) => output::write_file(path, text).map(|()| true),
    }
}

/// The name of the case, which no other has.
fn name(args: &Args, record: &Record, dir: &Path) -> Result<String, Failure> {
    if let Some(name) = &args.name {
        case::check_name(name).map_err(Failure::usage)?;
        if case::path_of(dir, name).exists() {
            return Err(Failure::usage(format!(
                "there is a case `{name}` in {}\nhelp: give another `--name`, or remove that one first",
                dir.display()
            )));
        }
        return Ok(name.clone());
    }
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let base: String = record.property.chars().map(plain).take(80).collect();
    let numbered = |n: u32| if n == 1 { base.clone() } else { format!("{base}-{n}") };
    let free = (1..=NUMBERS).map(numbered).find(|name| !case::path_of(dir, name).exists());
    free.ok_or_else(|| Failure::usage("there are too many cases of this property\nhelp: give a `--name`"))
}

/// Runs the finding as `replay` does.
fn replay(stored: &Stored, session: &Arc<Session>, chosen: &Chosen) -> Result<Outcome, Failure> {
    let worker = Worker::new(session.clone(), chosen, interrupt())?;
    let Stored { record, log, .. } = stored;
    finding::fails_again(worker, log, &Group::of(record), ("the run of the finding", &record.digest)).map_err(
        |failure| match failure.code {
            exit::NONDETERMINISM => Failure {
                text: format!("{}\nhelp: `bloodhound replay` shows where it left its record", failure.text),
                ..failure
            },
            _ => failure,
        },
    )
}

fn case_of(
    args: &Args,
    stored: &Stored,
    outcome: &Outcome,
    (dir, name): (&Path, &str),
) -> Result<Case, Failure> {
    let record = &stored.record;
    let Some(violation) = Group::of(record).violated(outcome) else {
        return Err(Failure {
            code: exit::NONDETERMINISM,
            text: "the finding does not fail any more".into(),
        });
    };
    let mut story: Vec<String> = shrink::story::events(outcome, violation)
        .into_iter()
        .map(|(_, line)| redact::text(&line).into_owned())
        .collect();
    if story.len() > STORY {
        let rest = story.len() - STORY;
        story.splice(..rest, [format!("{rest} lines before this are left out")]);
    }
    let first = record.text.lines().next().unwrap_or_default();
    story.push(format!("{} VIOLATED {} ({}): {first}", violation.at, violation.property, violation.kind));
    let schedule = match &record.fault_schedule {
        // What is written stays as it is.
        Some(text) => Ok(text.clone()),
        None => schedule::text(outcome)
            .map_err(|failure| failure.text.lines().next().unwrap_or_default().to_owned()),
    };
    Ok(Case {
        name: name.to_owned(),
        path: case::path_of(dir, name),
        group: Group::of(record),
        known: args.known.clone(),
        story,
        schedule: schedule.map(|text| redact::text(&text).into_owned()),
        found: Found {
            bloodhound: record.bloodhound.clone(),
            digest_version: u64::from(record.digest_version),
            platform: record.platform.name.clone(),
            plan: record.plan.clone(),
            digest: record.digest.clone(),
            virtual_time_ns: record.virtual_time_ns,
            inputs: Vec::new(),
        },
        // Of the others there are many, and each machine has its own.
        inputs: record.inputs.iter().filter(|input| input.is_content()).cloned().collect(),
        log: Ok(stored.log.clone()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_takes_the_place_of_no_other() {
        let dir = std::env::temp_dir().join(format!("bloodhound-regress-add-{}", std::process::id()));
        let _ignored = std::fs::remove_dir_all(&dir);
        let path = dir.join("cases/one.yaml");
        assert!(written(&path, "first").expect("written") && !written(&path, "second").expect("it is there"));
        assert_eq!(std::fs::read_to_string(&path).expect("a file"), "first");
        assert_eq!(std::fs::read_dir(dir.join("cases")).expect("a directory").count(), 1);
        std::fs::remove_dir_all(dir).expect("removed");
    }
}

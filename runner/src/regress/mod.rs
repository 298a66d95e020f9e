//! `bloodhound regress`: findings that stay in the repository as small files, which `test` runs before all seeds.
//!
//! Modules: `case` (a case and its file), `add` (makes one of a finding), `judge` (runs cases and says what came of them), `refind` (in which other runs a case is
//! looked for that has changed), `ledger` (what a campaign knows of failures), `seen` (which failures earlier campaigns have found, and what is gone), `trust` (how many seeds it takes to trust in a fix).

mod add;
pub mod case;
pub mod judge;
pub mod ledger;
mod refind;
pub mod seen;
mod trust;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bloodhound_config::config::{Config, FileChecks};
use bloodhound_config::{DEFAULTS, Diagnostic, tree};
use serde_json::{Value as Json, json};

use crate::boots::Boots;
use crate::campaign::{reports, watch::Watch};
use crate::output::{self, Format};
use crate::platform::{self, Choice};
use crate::run::{DEFAULT_CONFIG, Source, fail};
use crate::session::{Failure, Session};
use crate::{cpus, exit, finding, validate};

use case::Case;
use judge::{Judged, Verdict};

/// Runs in which a case is looked for that has changed, unless somebody says otherwise.
pub const RUNS: u32 = 8;

/// Arguments of `regress`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Keep a finding as a case: its shrunken form, if there is one
    Add(add::Args),
    /// List the cases
    List(ListArgs),
    /// Run cases, and tell of each whether it still fails
    Run(RunArgs),
    /// Remove a case
    Remove(RemoveArgs),
    /// Mark a case as known, so that the gate does not fail by it, or as fixed
    Mark(MarkArgs),
}

/// Where the cases are.
#[derive(clap::Args, Debug)]
pub struct Place {
    /// The configuration, whose key `regressions` names their directory
    #[arg(long, default_value = DEFAULT_CONFIG, value_name = "FILE")]
    config: PathBuf,
}

#[derive(clap::Args, Debug)]
struct ListArgs {
    #[command(flatten)]
    place: Place,
    /// How to answer
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

#[derive(clap::Args, Debug)]
struct RunArgs {
    /// The cases (default: all)
    names: Vec<String>,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    platform: Choice,
    /// Most runs in which a case is looked for that has changed since it was found
    #[arg(long, value_name = "N", default_value_t = RUNS, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,
    /// Cases at the same time (default: the number of CPUs)
    #[arg(long, short = 'j', value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Directory for findings (default: the configuration's `output.dir`)
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How to answer
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

#[derive(clap::Args, Debug)]
struct RemoveArgs {
    /// The case
    name: String,
    #[command(flatten)]
    place: Place,
}

#[derive(clap::Args, Debug)]
struct MarkArgs {
    /// The case
    name: String,
    #[command(flatten)]
    place: Place,
    /// It is known and left as it is, for this reason: `test` lists it and does not fail by it
    #[arg(long, value_name = "REASON", required_unless_present = "fixed", conflicts_with = "fixed")]
    known: Option<String>,
    /// It is not known any more: `test` fails if it fails
    #[arg(long)]
    fixed: bool,
}

/// `bloodhound regress`.
pub fn run(args: &Args) -> u8 {
    let done = match &args.command {
        Command::Add(args) => add::add(args),
        Command::List(args) => list(args),
        Command::Run(args) => run_cases(args),
        Command::Remove(args) => remove(args),
        Command::Mark(args) => mark(args),
    };
    done.unwrap_or_else(|failure| fail(&failure))
}

/// The cases of a stack.
///
/// # Errors
/// What is wrong in any of them, told with its place.
pub fn cases(dir: &Path) -> Result<Vec<Case>, Failure> {
    case::load_all(dir).map_err(|wrong| refused(dir, &wrong))
}

fn refused(dir: &Path, wrong: &[Diagnostic]) -> Failure {
    validate::show(wrong, validate::Format::Human);
    Failure::usage(format!(
        "the regression cases in {} cannot be used; see the errors above\nhelp: repair or remove what is wrong, or run `test` with `--no-regressions`",
        dir.display()
    ))
}

impl Place {
    /// The directory of the cases. Without a configuration it is that of a stack that has none.
    fn directory(&self) -> Result<PathBuf, Failure> {
        let is_missing = self.config == Path::new(DEFAULT_CONFIG) && !self.config.exists();
        let (config, diagnostics) = match is_missing {
            true => Config::decode(tree::Source::new(&self.config, DEFAULTS), FileChecks::Lenient),
            false => Config::load(&self.config, FileChecks::Lenient),
        };
        let errors: Vec<Diagnostic> = diagnostics.into_iter().filter(Diagnostic::is_error).collect();
        config.map(|config| config.regressions).ok_or_else(|| {
            validate::show(&errors, validate::Format::Human);
            Failure::usage(format!("{} cannot be used; see the errors above", self.config.display()))
        })
    }

    /// A case by its name.
    fn case(&self, name: &str) -> Result<Case, Failure> {
        let dir = self.directory()?;
        case::check_name(name).map_err(Failure::usage)?;
        let path = case::path_of(&dir, name);
        if !path.exists() {
            return Err(unknown(name, &dir));
        }
        Case::load(&path).map_err(|wrong| refused(&dir, &wrong))
    }
}

fn unknown(name: &str, dir: &Path) -> Failure {
    Failure::usage(format!(
        "there is no case `{name}` in {}\nhelp: `bloodhound regress list` names those that there are",
        dir.display()
    ))
}

fn list(args: &ListArgs) -> Result<u8, Failure> {
    let dir = args.place.directory()?;
    let cases = cases(&dir)?;
    match args.format {
        Format::Json => {
            let list: Vec<Json> = cases.iter().map(case_json).collect();
            output::print_json(
                &json!({ "schema": "bloodhound.regress-list/v1", "directory": dir, "cases": list }),
            );
        }
        Format::Human => {
            for case in &cases {
                output::print(&format!(
                    "{}{}\n  {}\n",
                    case.name,
                    known_text(case.known.as_deref()),
                    case.group
                ));
                if let Err(why) = &case.log {
                    output::print(&format!("  {why}\n"));
                }
            }
            if cases.is_empty() {
                output::print(&format!("there is no case in {}\n", dir.display()));
            }
        }
    }
    Ok(exit::PASS)
}

fn known_text(known: Option<&str>) -> String {
    match known {
        None => String::new(),
        Some("") => " (known)".to_owned(),
        Some(reason) => format!(" (known: {reason})"),
    }
}

fn case_json(case: &Case) -> Json {
    json!({
        "name": case.name, "file": case.path, "property": case.group.property, "kind": case.group.kind, "shape": case.group.shape,
        "known": case.known, "story": case.story, "schedule": case.schedule.as_ref().ok(),
    })
}

/// Those cases that are named; none: all.
fn chosen(cases: &[Case], names: &[String], dir: &Path) -> Result<Vec<Case>, Failure> {
    if names.is_empty() {
        return Ok(cases.to_vec());
    }
    let one = |name: &String| {
        cases.iter().find(|case| case.name == *name).cloned().ok_or_else(|| unknown(name, dir))
    };
    names.iter().map(one).collect()
}

fn run_cases(args: &RunArgs) -> Result<u8, Failure> {
    let selection = args.source.selection()?;
    let session = Arc::new(Session::load(&args.source.config, &selection, &args.source.images)?);
    let dir = session.project.config.regressions.clone();
    let all = cases(&dir)?;
    let cases = chosen(&all, &args.names, &dir)?;
    if cases.is_empty() {
        return Err(Failure::usage(format!(
            "there is no case in {}\nhelp: `bloodhound regress add FINDING` makes one",
            dir.display()
        )));
    }
    let chosen = platform::choose(args.platform.wanted)?;
    let watch = Watch::start(crate::interrupt::flag(), None, args.platform.budget());
    watch.seeding();
    let out = args.out.clone().unwrap_or_else(|| session.plan.out.clone());
    let _locked = reports::lock(&out)?;
    let boots = Boots::new(session.plan.boots);
    let keep = |session: &Session, schedule: Option<&str>, outcome: &_, violation: &_| {
        let selection = with_schedule(&selection, &dir, schedule);
        finding::save(&out, session, &selection, outcome, violation)
            .map(|saved| saved.dir)
            .map_err(|e| e.to_string())
    };
    let say = |line: &str| output::eprint(&format!("bloodhound: {line}\n"));
    let order = judge::Order {
        session: &session,
        chosen,
        boots: &boots,
        cases: &cases,
        all: &all,
        runs: args.runs,
        jobs: args.jobs.map_or_else(cpus::jobs, usize::from),
        watch: &watch,
        keep: &keep,
        say: &say,
    };
    let judged = judge::run_all(&order)?;
    let codes: Vec<u8> = judged.iter().filter_map(code).collect();
    let code = exit::first(&codes);
    match args.format {
        Format::Json => {
            let list: Vec<Json> = judged.iter().map(json).collect();
            output::print_json(
                &json!({ "schema": "bloodhound.regress/v1", "platform": chosen.json(), "regressions": list, "exit_code": code }),
            );
        }
        Format::Human => judged.iter().for_each(|judged| output::print(&text(judged))),
    }
    Ok(code)
}

/// What a case stands for as an exit code, if it does not pass.
fn code(judged: &Judged) -> Option<u8> {
    match judged.verdict {
        Verdict::Open(code) => Some(code),
        _ => judged.fails_gate().then_some(exit::FINDINGS),
    }
}

/// The selection of a run whose faults were those of a schedule.
pub fn with_schedule(
    selection: &bloodhound_config::Selection,
    path: &Path,
    schedule: Option<&str>,
) -> bloodhound_config::Selection {
    let mut selection = selection.clone();
    if let Some(text) = schedule {
        selection.faults = Some((path.to_path_buf(), text.to_owned()));
    }
    selection
}

/// A case that was run, for people.
fn text(judged: &Judged) -> String {
    let mut out =
        format!("{}{}: {}\n", judged.name, known_text(judged.known.as_deref()), judged.verdict.word());
    for line in explained(judged).lines() {
        out.push_str(&format!("  {line}\n"));
    }
    out
}

/// Why a case has its verdict, and what to do, as lines.
pub fn explained(judged: &Judged) -> String {
    let mut out = judged.says.clone();
    if let Some(shown) = &judged.shown {
        out.push_str(&format!("\nseed {} at {}\n{}", shown.seed, shown.at, shown.text.trim_end()));
        match &shown.kept {
            Ok(dir) => out.push_str(&format!(
                "\nreplay: bloodhound replay {}",
                crate::bug::quote(&dir.to_string_lossy())
            )),
            Err(why) => out.push_str(&format!("\nits finding could not be written: {why}")),
        }
    }
    match (&judged.known, judged.verdict) {
        (Some(_), Verdict::Passes | Verdict::NotRefound) => out.push_str(&format!(
            "\nIT IS MARKED AS KNOWN AND DOES NOT FAIL NOW: if it is fixed, `bloodhound regress mark {} --fixed` makes the gate fail should it come back",
            judged.name
        )),
        (None, Verdict::NotRefound) => out.push_str(&format!(
            "\nif it is out of date, `bloodhound regress remove {}` and add a newer finding of it",
            judged.name
        )),
        _ => {}
    }
    out
}

/// A case that was run, for machines.
pub fn json(judged: &Judged) -> Json {
    let shown = judged.shown.as_ref();
    json!({
        "name": judged.name, "file": judged.path,
        "property": judged.group.property, "kind": judged.group.kind, "shape": judged.group.shape,
        "known": judged.known, "verdict": judged.verdict.word(), "reason": judged.says, "fails_gate": judged.fails_gate(),
        "runs": judged.runs, "changed": judged.changed,
        "seed": shown.map(|shown| shown.seed), "virtual_time_ns": shown.map(|shown| shown.at.0), "text": shown.map(|shown| &shown.text),
        "faults": shown.map(|shown| &shown.faults), "digest": shown.map(|shown| &shown.digest), "replay": shown.and_then(|shown| shown.kept.as_ref().ok()),
    })
}

fn remove(args: &RemoveArgs) -> Result<u8, Failure> {
    let dir = args.place.directory()?;
    case::check_name(&args.name).map_err(Failure::usage)?;
    let path = case::path_of(&dir, &args.name);
    if !path.exists() {
        return Err(unknown(&args.name, &dir));
    }
    std::fs::remove_file(&path)
        .map_err(|e| Failure::environment(format!("removing {}: {e}", path.display())))?;
    output::print(&format!("removed {}\n", path.display()));
    Ok(exit::PASS)
}

/// Changes the one line that says that a case is known, and leaves all else of the file as it is.
fn mark(args: &MarkArgs) -> Result<u8, Failure> {
    let before = args.place.case(&args.name)?;
    let text = std::fs::read_to_string(&before.path)
        .map_err(|e| Failure::environment(format!("reading {}: {e}", before.path.display())))?;
    let marked = marked(&text, args.known.as_deref());
    let fits = Case::decode(&before.path, &marked).is_ok_and(|after| {
        after.known == args.known && after.group == before.group && after.log == before.log
    });
    if !fits {
        return Err(Failure::usage(format!(
            "{} is written in a way in which the key `known` cannot be changed by this command\nhelp: change it by hand: `known: \"REASON\"`",
            before.path.display()
        )));
    }
    output::write_file(&before.path, &marked)
        .map_err(|e| Failure::environment(format!("writing the case: {e}")))?;
    let now = if args.fixed {
        "is not known any more: `test` fails if it fails"
    } else {
        "is known: `test` lists it and does not fail by it"
    };
    output::print(&format!("{} {now}\n", args.name));
    Ok(exit::PASS)
}

/// The text of a case with this as the reason for which it is known.
fn marked(text: &str, known: Option<&str>) -> String {
    let mut lines: Vec<&str> =
        text.split_inclusive('\n').filter(|line| !line.starts_with("known:")).collect();
    let line = known.map(case::known_line);
    if let Some(line) = &line {
        let place = lines.iter().position(|line| line.starts_with("found:")).unwrap_or(lines.len());
        lines.insert(place, line);
    }
    lines.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_configuration_cases_are_where_its_default_says() {
        let place = Place { config: DEFAULT_CONFIG.into() };
        assert!(!place.config.exists(), "tests run in the directory of their crate");
        let dir = place.directory().unwrap_or_else(|failure| panic!("{}", failure.text));
        assert!(dir.ends_with("regressions"), "{}", dir.display());
    }

    #[test]
    fn a_mark_changes_one_line() {
        let case = case::tests::case();
        let text = case.text().expect("a text");
        let fixed = marked(&text, None);
        assert_eq!(fixed.lines().count() + 1, text.lines().count());
        let again = marked(&fixed, Some("other: \"reason\""));
        let read =
            |text: &str| Case::decode(&case.path, text).unwrap_or_else(|wrong| panic!("{text}\n{wrong:?}"));
        assert_eq!((read(&fixed).known, read(&again).known), (None, Some("other: \"reason\"".into())));
        assert_eq!(read(&again).log, case.log);
    }
}

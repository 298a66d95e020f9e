//! `bloodhound merge`: the parts of a campaign become one campaign again, with one verdict.
//!
//! What shards, workers and re-runs have left (in directories or in a store) is read as [`sources::Piece`]s, joined seed by seed
//! ([`join::Joined`]), and judged by the rule that judges every campaign (`campaign::verdict`). Each seed counts once, whoever ran it; seeds
//! without a result are named.
//!
//! Modules: `sources` (what is read, and from where), `join` (which record of a seed counts, what is missing). Neighbours: `shard` (the
//! formats), `campaign` (totals, verdict, reports).

mod join;
mod sources;

use std::path::{Path, PathBuf};
use std::time::Instant;

use bloodhound_coverage::{Checkout, Coverage, report};
use serde_json::json;

use crate::campaign::print;
use crate::campaign::reports::{self, Reports};
use crate::campaign::totals::{Found, Totals};
use crate::campaign::verdict::Judgement;
use crate::output::{Format, write_file};
use crate::run::fail;
use crate::session::Failure;
use crate::shard::{Ended, FORMAT, Identity, Manifest, Part, RESULTS, results};
use crate::{coverage, exit, finding, junit, output};

use join::{Joined, Range};
use sources::Piece;

/// Ranges of seeds that a text lists.
const LISTED: usize = 12;

/// Arguments of `merge`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Directories of shards (--out of `test`), directories of such directories, or the stores of campaigns
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<String>,
    /// Directory for the joined reports and findings
    #[arg(long, value_name = "DIR", required_unless_present = "missing")]
    out: Option<PathBuf>,
    /// Only list the seeds that have no result, with commands that run them
    #[arg(long, conflicts_with = "out")]
    missing: bool,
    /// Least number of seeds that must be judged (default: all of the campaign, but for what a --timeout of the shards left out)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    min_seeds: Option<u64>,
    /// Also write JUnit XML here (it is always in <out>/junit.xml)
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// How to answer
    #[arg(long, value_enum, default_value = "human")]
    format: Format,
}

/// `bloodhound merge`.
pub fn run(args: &Args) -> u8 {
    let _flag = crate::interrupt::flag();
    let merged = sources::read(&args.places).and_then(|pieces| {
        let joined = Joined::of(&pieces)?;
        match &args.out {
            Some(out) => merge(args, out, &pieces, joined),
            None => Ok(missing(args, &joined)),
        }
    });
    merged.unwrap_or_else(|failure| {
        refused(args, &failure);
        fail(&failure)
    })
}

/// Puts the reason why nothing is joined into the reports. A directory for them is not made for that.
fn refused(args: &Args, failure: &Failure) {
    let Some(out) = &args.out else { return };
    let own = out.is_dir().then(|| out.join("junit.xml"));
    let refusal = reports::refusal("bloodhound merge", 0, failure);
    reports::refused(own.into_iter().chain(args.junit.clone()), refusal);
}

/// Lists what has no result.
fn missing(args: &Args, joined: &Joined) -> u8 {
    let commands = joined.commands();
    match args.format {
        Format::Json => output::print_json(&json!({
            "schema": "bloodhound.missing/v1", "missing": ranges(&joined.missing), "commands": commands,
        })),
        Format::Human if joined.missing.is_empty() => {
            output::print(&format!("all {} seeds have a result\n", joined.wanted()));
        }
        Format::Human => {
            let count: u64 = joined.missing.iter().map(|range| range.count).sum();
            let lines: String = commands.iter().map(|command| format!("{command}\n")).collect();
            output::print(&format!(
                "{count} of {} seeds have no result: {}\nto run them, with the options of the others and an --out of its own each, then \
                 merge all:\n{lines}",
                joined.wanted(),
                list(&joined.missing),
            ));
        }
    }
    if joined.missing.is_empty() { exit::PASS } else { exit::INCONCLUSIVE }
}

fn ranges(missing: &[Range]) -> Vec<serde_json::Value> {
    missing.iter().map(|range| json!({"first": range.first, "count": range.count})).collect()
}

/// `3, 7 to 9, and 4 more ranges`.
fn list(missing: &[Range]) -> String {
    let mut words: Vec<String> = missing.iter().take(LISTED).map(ToString::to_string).collect();
    if missing.len() > LISTED {
        words.push(format!("and {} more", missing.len() - LISTED));
    }
    words.join(", ")
}

fn merge(args: &Args, out: &Path, pieces: &[Piece], joined: Joined) -> Result<u8, Failure> {
    let began = Instant::now();
    let config = PathBuf::from(&joined.identity.config);
    let reports = Reports::prepare(out, args.junit.as_deref(), &config)?;
    let mut totals =
        Totals::new(joined.identity.properties.len(), joined.wanted(), joined.least(args.min_seeds));
    totals.least_coverage = joined.identity.least_fault_coverage;
    let mut records = Vec::new();
    for (record, piece) in joined.chosen.values() {
        totals.add_record(record);
        let mut record = record.clone();
        for found in &mut record.findings {
            if let Err(text) = copy(out, &pieces[*piece], found) {
                print::say(&text);
                totals.trouble(exit::ENVIRONMENT, text);
            }
            totals.findings.push(found.clone());
        }
        records.push(record);
    }
    totals.sort();
    totals.measure_kinds(joined.identity.kinds().map_err(Failure::usage)?);
    joined.troubles(&mut totals, list);
    let reached = reached(pieces, &joined.identity);
    // All that is joined has been read, be it from this directory.
    crate::campaign::forget(out).map_err(|e| Failure::environment(format!("{}: {e}", out.display())))?;
    covered(out, &joined.identity, &reached, &mut totals);
    let judge = |totals: &Totals| -> (Judgement, Result<(), String>) {
        let judgement = Judgement::of(&joined.identity.properties, totals);
        let xml = junit::render(&judgement.suite(&joined.identity.config, facts(&joined, totals)));
        (judgement, xml.and_then(|xml| reports.write(&xml)))
    };
    let (mut judgement, written) = judge(&totals);
    let lines: String = records.iter().map(results::line).collect();
    let left = leave(out, &joined, &totals, judgement.code, &lines);
    if let Err(text) = written.and(left) {
        print::say(&text);
        totals.trouble(exit::ENVIRONMENT, text);
        judgement = judge(&totals).0;
    }
    let path = out.join("junit.xml");
    let answer = match args.format {
        Format::Human => {
            format!(
                "{}{}",
                joined.text(pieces, list),
                print::human(&judgement, &totals, &path, began.elapsed())
            )
        }
        Format::Json => with_parts(&print::json(&judgement, &totals, &path, None), pieces, &joined),
    };
    if let Err(error) = print::answer(&answer) {
        let text = format!("writing to standard output: {error}");
        print::say(&text);
        totals.trouble(exit::ENVIRONMENT, text);
        judgement = judge(&totals).0;
    }
    Ok(judgement.code)
}

/// What every suite says; as a campaign in one process says it.
fn facts(joined: &Joined, totals: &Totals) -> Vec<(String, String)> {
    let mut facts = vec![
        ("seeds_run".to_owned(), totals.run().to_string()),
        ("seeds_judged".to_owned(), totals.judged.to_string()),
        ("plan".to_owned(), joined.identity.plan.clone()),
    ];
    if !totals.silent.is_empty() {
        facts.push(("faults_never_injected".to_owned(), totals.silent()));
    }
    facts
}

/// The answer for machines, with what was joined.
fn with_parts(answer: &str, pieces: &[Piece], joined: &Joined) -> String {
    let mut value: serde_json::Value = serde_json::from_str(answer).unwrap_or_default();
    value["parts"] = pieces.iter().map(|piece| piece.name.clone()).collect();
    value["seeds_run_twice"] = joined.duplicates.into();
    value["seeds_missing"] = ranges(&joined.missing).into();
    format!("{value}\n")
}

/// Copies the files of a finding. A finding without them stays one, and says why.
fn copy(out: &Path, piece: &Piece, found: &mut Found) -> Result<(), String> {
    let Ok(name) = &found.kept else { return Ok(()) };
    let name = name.to_string_lossy().into_owned();
    let files =
        piece.finding(&name).and_then(|files| match files.iter().any(|(path, _)| path == "finding.json") {
            true => Ok(files),
            false => Err(format!("{} has no files of the finding {name}", piece.name)),
        });
    let copied = files.and_then(|files| {
        finding::copied(&finding::directory(out), &name, &files)
            .map_err(|e| format!("the finding {name} cannot be written: {e}"))
    });
    match copied {
        Ok(dir) => {
            found.kept = Ok(dir);
            Ok(())
        }
        Err(text) => {
            found.kept = Err(text.clone());
            Err(text)
        }
    }
}

/// What code all parts have reached; `None` if none of them says so.
struct Reached {
    coverage: Option<Coverage>,
    /// The parts that do not say it, or why they cannot be read.
    absent: Vec<String>,
}

/// Joins what code was reached, if that was measured.
fn reached(pieces: &[Piece], identity: &Identity) -> Reached {
    let mut reached = Reached { coverage: None, absent: Vec::new() };
    if identity.code.is_none() {
        return reached;
    }
    for (piece, manifest) in join::telling(pieces) {
        match piece.coverage() {
            // One that was killed has not told what its last seeds reached, whatever lies in its directory.
            Ok(Some(coverage)) if manifest.ended.is_some() => {
                reached.coverage.get_or_insert_default().join(coverage);
            }
            Ok(_) => reached.absent.push(piece.name.clone()),
            Err(text) => reached.absent.push(text),
        }
    }
    reached
}

/// Judges what code was reached, if all parts have told it, and writes it.
fn covered(out: &Path, identity: &Identity, reached: &Reached, totals: &mut Totals) {
    let (Some(thresholds), Reached { coverage, absent }) = (&identity.code, reached) else { return };
    let is_whole = absent.is_empty() && coverage.is_some();
    if !is_whole {
        let text = format!("the coverage is not complete; it is missing from: {}", absent.join(", "));
        print::say(&text);
        if thresholds.all.is_some() || !thresholds.services.is_empty() {
            totals.trouble(exit::INCONCLUSIVE, text);
        }
    }
    let Some(all) = coverage else { return };
    if is_whole {
        totals.code = coverage::judge(thresholds, all);
    }
    totals.code_summary = coverage::summary(all);
    let checkout = Checkout::scan(Path::new(".")).map_err(|e| e.to_string());
    match checkout.and_then(|checkout| coverage::write_json(out, &checkout, all)) {
        Ok(files) => totals.code_reports = files,
        Err(text) => {
            print::say(&text);
            totals.trouble(exit::ENVIRONMENT, text);
        }
    }
}

/// Leaves what another merge can take.
fn leave(out: &Path, joined: &Joined, totals: &Totals, code: u8, lines: &str) -> Result<(), String> {
    let cannot = |e: std::io::Error| format!("what came of the seeds cannot be written: {e}");
    write_file(&out.join(RESULTS), lines).map_err(cannot)?;
    // Seeds with a gap between them are no campaign that could be run.
    let [range] = joined.spans[..] else { return Ok(()) };
    let manifest = Manifest {
        format: FORMAT,
        identity: joined.identity.clone(),
        first_seed: range.first,
        seeds: range.count,
        part: Part::All,
        inputs: joined.inputs(),
        entries: None,
        ended: Some(Ended { regressions: joined.regressions(), ..Ended::of(totals, code) }),
    };
    manifest.write(out).map_err(cannot)
}

/// Reads a coverage.json.
fn coverage_of(at: &str, text: &str) -> Result<Coverage, String> {
    report::parse(text).map_err(|e| format!("{at}: {e}"))
}

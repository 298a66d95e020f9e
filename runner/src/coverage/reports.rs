//! The files of coverage reports, in `<dir>/coverage`, and the commands that read them again (`bloodhound coverage`).

use std::path::{Path, PathBuf};

use bloodhound_config::config::CoverageFormat;
use bloodhound_coverage::command::{self, Base};
use bloodhound_coverage::report::{self, Format};
use bloodhound_coverage::{Checkout, Count, Coverage, Totals};

use super::Measuring;
use crate::output::print;
use crate::run::fail;
use crate::session::Failure;
use crate::{cli, exit};

/// Writes the reports that the configuration asks for below a directory.
///
/// # Errors
/// What the host says.
pub fn write(dir: &Path, measuring: &Measuring, coverage: &Coverage) -> Result<Vec<PathBuf>, String> {
    let formats: Vec<Format> = measuring.settings().formats().into_iter().map(format_of).collect();
    let checkout = measuring.checkout();
    report::write(coverage, checkout, &formats, &dir.join("coverage"))
        .map_err(|e| format!("writing the coverage: {e}"))
}

/// The file that can be joined with others.
pub const REPORT: &str = "coverage/coverage.json";

/// Writes just that file below a directory.
///
/// # Errors
/// What the host says.
pub fn write_json(dir: &Path, checkout: &Checkout, coverage: &Coverage) -> Result<Vec<PathBuf>, String> {
    report::write(coverage, checkout, &[Format::Json], &dir.join("coverage"))
        .map_err(|e| format!("writing the coverage: {e}"))
}

fn format_of(format: CoverageFormat) -> Format {
    match format {
        CoverageFormat::Html => Format::Html,
        CoverageFormat::Lcov => Format::Lcov,
        CoverageFormat::Cobertura => Format::Cobertura,
        CoverageFormat::Json => Format::Json,
    }
}

/// Arguments of `coverage`.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Join the coverage of several campaigns, or of shards of one
    Merge {
        /// Files `coverage.json`
        #[arg(required = true, value_name = "FILE")]
        inputs: Vec<PathBuf>,
        /// Where the joined coverage is written
        #[arg(long, short, value_name = "FILE", default_value = "coverage.json")]
        output: PathBuf,
        #[command(flatten)]
        least: Least,
    },
    /// Write reports of what was covered
    Report {
        /// Files `coverage.json`
        #[arg(required = true, value_name = "FILE")]
        inputs: Vec<PathBuf>,
        /// Formats
        #[arg(long, value_name = "FORMAT", value_delimiter = ',', value_parser = format, default_value = "html")]
        format: Vec<Format>,
        /// Directory for the reports
        #[arg(long, short, value_name = "DIR", default_value = "coverage")]
        output: PathBuf,
        /// The checkout, whose sources are shown
        #[arg(long, value_name = "DIR", default_value = ".")]
        source: PathBuf,
        #[command(flatten)]
        least: Least,
    },
    /// Show which changed lines are covered
    Diff {
        /// Files `coverage.json`
        #[arg(required = true, value_name = "FILE")]
        inputs: Vec<PathBuf>,
        /// The revision with which the checkout is compared (git), for example origin/main
        #[arg(long, value_name = "REV", required_unless_present = "diff")]
        diff_base: Option<String>,
        /// A file with a unified diff, instead of asking git
        #[arg(long, value_name = "FILE", conflicts_with = "diff_base")]
        diff: Option<PathBuf>,
        /// The checkout
        #[arg(long, value_name = "DIR", default_value = ".")]
        source: PathBuf,
        #[command(flatten)]
        least: Least,
    },
}

/// A threshold.
#[derive(clap::Args, Debug)]
struct Least {
    /// Least share that must be reached, for example 80%; exit code 3 below it
    #[arg(long, value_parser = cli::share, value_name = "PERCENT")]
    threshold: Option<u32>,
}

impl Least {
    /// The exit code for what was counted.
    fn code(&self, counts: &[Count]) -> u8 {
        let Some(least) = self.threshold else { return exit::PASS };
        match counts {
            [] => exit::INCONCLUSIVE,
            _ if counts.iter().all(|count| count.reaches(u64::from(least) * 10)) => exit::PASS,
            _ => exit::COVERAGE,
        }
    }
}

fn format(text: &str) -> Result<Format, String> {
    let names = Format::ALL.map(Format::name).join(", ");
    Format::named(text).ok_or_else(|| format!("`{text}` is none of {names}"))
}

/// `bloodhound coverage`.
pub fn run(args: &Args) -> u8 {
    let result = match &args.command {
        Command::Merge { inputs, output, least } => command::merge(inputs, output).map(|totals| {
            print(&format!("{}{}\n", lines(&totals), output.display()));
            least.code(&counts(&totals))
        }),
        Command::Report { inputs, format, output, source, least } => {
            command::report(inputs, format, output, source).map(|(written, totals)| {
                let written: String = written.iter().map(|path| format!("{}\n", path.display())).collect();
                print(&format!("{}{written}", lines(&totals)));
                least.code(&counts(&totals))
            })
        }
        Command::Diff { inputs, diff_base, diff, source, least } => {
            let base = match (diff_base, diff) {
                (_, Some(file)) => Base::File(file.clone()),
                (revision, None) => Base::Revision(revision.clone().unwrap_or_default()),
            };
            command::diff(inputs, &base, source).map(|(text, count)| {
                print(&text);
                // Nothing that counts was changed: nothing can be missing.
                if count.total == 0 { exit::PASS } else { least.code(&[count]) }
            })
        }
    };
    result.unwrap_or_else(|text| fail(&Failure::environment(text)))
}

fn counts(totals: &Totals) -> Vec<Count> {
    totals.all.units.values().copied().collect()
}

fn lines(totals: &Totals) -> String {
    totals.all.units.iter().map(|(unit, count)| format!("coverage: {count} {unit}\n")).collect()
}

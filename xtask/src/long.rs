//! `cargo xtask long`: the campaigns that are too long for CI. Power failures of databases by the thousand, repaired programs in a thousand schedules, the example service under all that it
//! promises to survive, and each bug that is planted in it.
//!
//! Key types: [`Args`]; [`Campaign`], of which each has a name, a command and a [`Holds`]. A campaign is a test of this repository or a run of the
//! command, in a process of its own; how it went is told in a line, and what it printed is below `target/long`.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // tells how long a campaign took

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use clap::Parser;
use serde_json::Value as Json;

use crate::failure::{Failure, broken_at};

/// Runs the campaigns that are too long for CI; without a name, all of them
#[derive(Parser, Debug)]
pub struct Args {
    /// Only tells their names, and what each shows
    #[arg(long)]
    list: bool,
    /// Seeds of each campaign, instead of its own number
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// Campaigns by name, or by how their names begin: `power`, `power-redis`, `kv`
    names: Vec<String>,
}

/// What must come of a campaign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    /// The test passes, in this file of `runner/tests`. Its figures are lines that begin with [`FIGURES`].
    Test(&'static str),
    /// No seed violates anything.
    NoFinding,
    /// A seed violates a property.
    Found,
}

/// A campaign.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Campaign {
    name: String,
    /// The name of the test, or the configuration.
    what: String,
    seeds: u64,
    holds: Holds,
}

/// How a test begins the lines of its figures (`common::say`).
const FIGURES: &str = "figures: ";
/// Databases under power failures, each with the file of its test: with so many seeds the power fails more than a thousand times.
const DATABASES: [(&str, &str); 6] = [
    ("postgres", "databases"),
    ("mariadb", "databases"),
    ("etcd", "databases"),
    ("lmdb_of_slapd", "databases"),
    ("sqlite_keeps_what_it_promises", "power"),
    ("redis_keeps_what_it_promises", "power"),
];
const POWER_SEEDS: u64 = 100;
/// The repaired programs of `examples/races`.
const REPAIRED: &str = "repaired_programs_never_fail";
const REPAIRED_SEEDS: u64 = 1_000;
/// The races of `examples/races`, with those that show in few schedules only.
const RACES: &str = "every_race_is_found_and_fails_again";
/// Servers that the tests of CI run on ptrace only, as they take long on a KVM that is done in software.
const SERVERS_ON_KVM: [&str; 3] = ["apache", "postgres", "rabbitmq"];
/// More than the one of CI.
const OFTEN: u64 = 1_000;
/// The conformance programs, each build under each rhythm of the standing tests.
const CONFORMANCE: &str = "the_conformance_programs_hold";
const RHYTHMS: u64 = 4;
/// Moments of one seed from which others go on: 100,000 branches, and more restores.
const BRANCH_MOMENTS: u64 = 40_000;
/// Kills of a search that is resumed each time.
const KILLS: u64 = 50;
/// The example service, and where its planted bugs are.
pub const EXAMPLE: &str = "examples/distributed-kv";
const BRUTAL_SEEDS: u64 = 2_000;
const BUG_SEEDS: u64 = 500;
/// Where the command is.
pub const BLOODHOUND: &str = "target/release/bloodhound";
/// Where campaigns write.
const OUT: &str = "target/long";

/// Runs the campaigns that are asked for. The exit code is 1 if one of them does not hold.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let bugs = Path::new(EXAMPLE).join("bugs");
    let campaigns = chosen(all(&names_in(&bugs)?, args.seeds), &args.names)?;
    if args.list {
        campaigns.iter().for_each(|campaign| println!("{}", campaign.describe()));
        return Ok(0);
    }
    fs::create_dir_all(OUT).map_err(broken_at(Path::new(OUT)))?;
    build(&campaigns)?;
    let mut failed = 0;
    for campaign in &campaigns {
        let begun = Instant::now();
        let (holds, figures) = campaign.run()?;
        let word = if holds { "holds" } else { "DOES NOT HOLD" };
        println!("{}: {word}: {figures}; {} s", campaign.name, begun.elapsed().as_secs());
        failed += u64::from(!holds);
    }
    println!("{} campaigns, {failed} of them do not hold", campaigns.len());
    Ok(u8::from(failed > 0))
}

/// The bugs that have a configuration.
pub fn names_in(bugs: &Path) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    for entry in fs::read_dir(bugs).map_err(broken_at(bugs))? {
        let path = entry.map_err(broken_at(bugs))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        names.extend(name.strip_suffix(".yaml").map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

/// All campaigns, with their own numbers of seeds or with this.
fn all(bugs: &[String], seeds: Option<u64>) -> Vec<Campaign> {
    let campaign = |name: String, what: String, own: u64, holds| Campaign {
        name,
        what,
        seeds: seeds.unwrap_or(own),
        holds,
    };
    let power = DATABASES.iter().map(|(test, file)| {
        let name = test.split('_').next().unwrap_or(test);
        campaign(format!("power-{name}"), (*test).to_owned(), POWER_SEEDS, Holds::Test(file))
    });
    let repaired =
        campaign("repaired-races".to_owned(), REPAIRED.to_owned(), REPAIRED_SEEDS, Holds::Test("chaos"));
    let races = campaign("races".to_owned(), RACES.to_owned(), OFTEN, Holds::Test("chaos"));
    let servers = SERVERS_ON_KVM.iter().map(|server| {
        campaign(format!("servers-{server}"), (*server).to_owned(), OFTEN, Holds::Test("servers"))
    });
    let conformance =
        campaign("conformance".to_owned(), CONFORMANCE.to_owned(), RHYTHMS, Holds::Test("conformance"));
    let brutal =
        campaign("kv-brutal".to_owned(), format!("{EXAMPLE}/brutal.yaml"), BRUTAL_SEEDS, Holds::NoFinding);
    let bugs = bugs.iter().map(|bug| {
        campaign(format!("kv-{bug}"), format!("{EXAMPLE}/bugs/{bug}.yaml"), BUG_SEEDS, Holds::Found)
    });
    let branches = campaign(
        "branches".to_owned(),
        "branches_keep_nothing_of_the_host".to_owned(),
        BRANCH_MOMENTS,
        Holds::Test("branches"),
    );
    let kills = campaign(
        "explore-killed".to_owned(),
        "a_search_that_is_killed_goes_on_where_it_was".to_owned(),
        KILLS,
        Holds::Test("resume"),
    );
    let others = [repaired, races, conformance, brutal, branches, kills];
    power.chain(servers).chain(others).chain(bugs).collect()
}

/// Those with one of these names, or beginnings of names.
fn chosen(all: Vec<Campaign>, names: &[String]) -> Result<Vec<Campaign>, Failure> {
    let is_named = |campaign: &Campaign, name: &String| campaign.name.starts_with(name.as_str());
    if let Some(unknown) = names.iter().find(|name| !all.iter().any(|campaign| is_named(campaign, name))) {
        let known: Vec<&str> = all.iter().map(|campaign| campaign.name.as_str()).collect();
        return Err(Failure::Broken(format!("there is no campaign `{unknown}`, but {}", known.join(", "))));
    }
    let wanted = |campaign: &Campaign| names.is_empty() || names.iter().any(|name| is_named(campaign, name));
    Ok(all.into_iter().filter(wanted).collect())
}

/// Builds what the campaigns run: the example service and the command. Tests are built when they are run.
fn build(campaigns: &[Campaign]) -> Result<(), Failure> {
    if campaigns.iter().all(|campaign| matches!(campaign.holds, Holds::Test(_))) {
        return Ok(());
    }
    let mut example = Command::new("examples/build.sh");
    let mut command = Command::new("cargo");
    command.args(["build", "--release", "--package", "bloodhound"]);
    for command in [&mut example, &mut command] {
        let status = command.status().map_err(|e| Failure::Broken(format!("{command:?}: {e}")))?;
        if !status.success() {
            return Err(Failure::Broken(format!("{command:?} fails")));
        }
    }
    Ok(())
}

impl Campaign {
    fn describe(&self) -> String {
        let Campaign { name, what, seeds, holds } = self;
        let shows = match holds {
            Holds::Test(file) => format!("the test {what} of runner/tests/{file}.rs passes"),
            Holds::NoFinding => format!("{what} has no finding"),
            Holds::Found => format!("{what} has a finding"),
        };
        format!("{name}: {shows}, {seeds} seeds")
    }

    /// Runs it to its end: whether it holds, and figures.
    fn run(&self) -> Result<(bool, String), Failure> {
        let mut command = self.command();
        command.stdin(Stdio::null());
        let ran = command.output().map_err(|e| Failure::Broken(format!("{command:?}: {e}")))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&ran.stdout), text(&ran.stderr));
        let log = PathBuf::from(OUT).join(format!("{}.txt", self.name));
        fs::write(&log, format!("{stdout}\n{stderr}")).map_err(broken_at(&log))?;
        let (holds, figures) = match self.holds {
            Holds::Test(_) => tested(ran.status, &stderr),
            Holds::NoFinding | Holds::Found => self.campaigned(ran.status, &stdout),
        };
        let where_to_look = if holds { String::new() } else { format!(" (see {})", log.display()) };
        Ok((holds, figures + &where_to_look))
    }

    fn command(&self) -> Command {
        let seeds = self.seeds.to_string();
        if let Holds::Test(file) = self.holds {
            let mut command = Command::new("cargo");
            command.args([
                "test",
                "--release",
                "--package",
                "bloodhound",
                "--test",
                "command",
                "--",
                "--exact",
            ]);
            // What is not installed is no campaign that holds.
            command
                .arg(format!("{file}::{}", self.what))
                .env("BLOODHOUND_TEST_SEEDS", &seeds)
                .env("BLOODHOUND_TEST_BRANCHES", &seeds)
                .env("BLOODHOUND_TEST_NO_SKIP", "1");
            return command;
        }
        let mut command = Command::new(BLOODHOUND);
        // Whether there is a finding is all that is asked: a smaller one tells no more.
        command.args(["test", "--no-shrink", "--config", &self.what, "--seeds", &seeds, "--format", "json"]);
        command.arg("--out").arg(Path::new(OUT).join(&self.name));
        if self.holds == Holds::Found {
            command.arg("--fail-fast");
        }
        command
    }

    /// What became of a run of the command.
    fn campaigned(&self, status: ExitStatus, stdout: &str) -> (bool, String) {
        let line = stdout.lines().last().unwrap_or_default();
        let Ok(answer) = serde_json::from_str::<Json>(line) else {
            return (false, format!("it ends with {status} and no answer"));
        };
        let run = answer["seeds_run"].as_u64().unwrap_or_default();
        let judged = answer["seeds_judged"].as_u64().unwrap_or_default();
        let findings = answer["findings"].as_array().map(Vec::as_slice).unwrap_or_default();
        let Some(first) = findings.first() else {
            let holds = self.holds == Holds::NoFinding && status.success() && judged == self.seeds;
            return (holds, format!("{judged} of {run} seeds judged, no finding"));
        };
        let (seed, property) = (&first["seed"], first["property"].as_str().unwrap_or_default());
        let holds = self.holds == Holds::Found && status.code() == Some(1);
        (holds, format!("seed {seed} violates {property}, within {run} seeds"))
    }
}

/// What became of a test: its own figures. A name that selects no test passes as well, and shows nothing.
fn tested(status: ExitStatus, stderr: &str) -> (bool, String) {
    let figures: Vec<&str> = stderr.lines().filter_map(|line| line.strip_prefix(FIGURES)).collect();
    match figures.is_empty() {
        true => (false, format!("the test ends with {status} and tells no figures")),
        false => (status.success(), figures.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn campaigns() -> Vec<Campaign> {
        all(&["no-fsync".to_owned()], None)
    }

    fn named(name: &str) -> Campaign {
        chosen(campaigns(), &[name.to_owned()]).expect("a campaign").remove(0)
    }

    fn exit(code: i32) -> ExitStatus {
        ExitStatus::from_raw(code << 8)
    }

    #[test]
    fn campaigns_are_chosen_by_the_beginning_of_their_names() {
        let count = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            chosen(campaigns(), &names).map(|chosen| chosen.len()).ok()
        };
        assert_eq!(count(&[]), Some(DATABASES.len() + SERVERS_ON_KVM.len() + 7));
        assert_eq!(count(&["power"]), Some(DATABASES.len()));
        assert_eq!(count(&["power-sqlite", "kv-no-fsync"]), Some(2));
        assert_eq!(count(&["power", "pwer"]), None);
    }

    #[test]
    fn a_bug_must_be_found_and_the_service_without_one_must_not_fail() {
        let (bug, brutal) = (named("kv-no-fsync"), named("kv-brutal"));
        let found = r#"{"seeds_run": 12, "seeds_judged": 12, "findings": [{"seed": 11, "property": "linearizable"}]}"#;
        let none = r#"{"seeds_run": 2000, "seeds_judged": 2000, "findings": []}"#;
        let less = r#"{"seeds_run": 1900, "seeds_judged": 1900, "findings": []}"#;
        assert_eq!(
            bug.campaigned(exit(1), found),
            (true, "seed 11 violates linearizable, within 12 seeds".to_owned())
        );
        assert!(!bug.campaigned(exit(0), none).0 && !bug.campaigned(exit(2), "").0);
        assert!(brutal.campaigned(exit(0), none).0);
        assert!(!brutal.campaigned(exit(1), found).0 && !brutal.campaigned(exit(0), less).0);
    }

    #[test]
    fn a_test_without_figures_shows_nothing() {
        assert_eq!(tested(exit(0), "figures: a, 1\nother\nfigures: b"), (true, "a, 1, b".to_owned()));
        assert!(!tested(exit(0), "running 0 tests").0);
        assert!(!tested(exit(101), "figures: a").0);
    }
}

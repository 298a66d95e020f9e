//! `bloodhound validate` and `bloodhound schema`: is a configuration right, and what may it contain?
//!
//! All of it is `bloodhound_config`'s: this module chooses files, prints diagnostics and answers with an exit code.
//! [`show`] and [`environment`] serve every other command that loads a configuration.

use std::path::{Path, PathBuf};

use bloodhound_config::compose::Variables;
use bloodhound_config::config::{Config, FileChecks};
use bloodhound_config::tree::Source;
use bloodhound_config::{Compose, Diagnostic, Project, Selection, has_errors, render};
use bloodhound_vfs::host::HostBase;
use serde_json::json;

use crate::plan::{Finder, Plan};
use crate::redact::{self, Redactor};
use crate::{exit, github, images, output};

/// The configuration where none is named.
pub const DEFAULT_CONFIG: &str = "bloodhound.yaml";

/// How diagnostics are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Text for people, on standard error
    Human,
    /// One JSON object on standard output
    Json,
    /// Workflow commands of GitHub Actions, on standard output
    Github,
}

/// Arguments of `validate`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The configuration [default: bloodhound.yaml]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The compose file, instead of the one that the configuration names; several times: each is laid over those before it; without a
    /// configuration they are checked alone
    #[arg(long, short = 'f', value_name = "FILE")]
    compose: Vec<PathBuf>,
    /// A profile of services that are run as well
    #[arg(long, value_name = "NAME")]
    profile: Vec<String>,
    /// How to answer
    #[arg(long, value_enum, default_value_t = Format::Human)]
    format: Format,
    /// Warnings make the exit code 2 as well, and every file that is named must be there
    #[arg(long)]
    strict: bool,
    /// The configuration, as with --config, or a compose file
    #[arg(value_name = "FILE", conflicts_with = "config")]
    file: Option<PathBuf>,
}

/// Checks the files; the exit code.
pub fn run(args: &Args) -> u8 {
    let (subject, diagnostics) = check(args);
    let bad = if args.strict { !diagnostics.is_empty() } else { has_errors(&diagnostics) };
    let errors = diagnostics.iter().filter(|d| d.is_error()).count();
    let warnings = diagnostics.len() - errors;
    match args.format {
        Format::Json => output::print_json(&json!({
            "schema": "bloodhound.validate/v1",
            "valid": !bad,
            "errors": errors,
            "warnings": warnings,
            "diagnostics": diagnostics.iter().map(render::json).collect::<Vec<_>>(),
        })),
        Format::Human | Format::Github => show(&diagnostics, args.format),
    }
    if args.format == Format::Human {
        let found = match (errors, warnings) {
            (0, 0) => "valid".to_owned(),
            (0, _) => format!("valid, {}", count(warnings, "warning")),
            (_, 0) => count(errors, "error"),
            _ => format!("{}, {}", count(errors, "error"), count(warnings, "warning")),
        };
        output::print(&format!("{}: {found}\n", subject.display()));
    }
    if bad { exit::USAGE } else { exit::PASS }
}

fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// What was checked, and everything to say about it.
fn check(args: &Args) -> (PathBuf, Vec<Diagnostic>) {
    let environment = environment();
    let named = args.file.as_ref().or(args.config.as_ref());
    let mut selection =
        Selection { files: args.compose.clone(), profiles: args.profile.clone(), ..Selection::default() };
    let alone = match (named, args.compose.first()) {
        (Some(file), None) if args.file.is_some() && is_compose(file) => Some(file),
        (None, Some(compose)) if !Path::new(DEFAULT_CONFIG).exists() => Some(compose),
        _ => None,
    };
    if let Some(path) = alone {
        if selection.files.is_empty() {
            selection.files.push(path.clone());
        }
        let (project, diagnostics) = alone_of(path, &selection, &environment);
        return (path.clone(), planned(project, diagnostics, args.strict));
    }
    let config = named.cloned().unwrap_or_else(|| PathBuf::from(DEFAULT_CONFIG));
    let load = if args.strict { Project::load } else { Project::check };
    let (project, diagnostics) = load(&config, &selection, &environment);
    (config, planned(project, diagnostics, args.strict))
}

/// A run of the services of these files alone.
fn alone_of(
    path: &Path,
    selection: &Selection,
    environment: &Variables,
) -> (Option<Project>, Vec<Diagnostic>) {
    let (compose, diagnostics) = Compose::load_files(&selection.files, &selection.environment(environment));
    let config = Config::decode(Source::new(path, "properties: []"), FileChecks::Lenient).0;
    (config.zip(compose).map(|(config, compose)| Project { config, compose }), diagnostics)
}

/// The project of a configuration, or of a compose file alone, and what is to be said of the files.
pub fn read(path: &Path) -> (Option<Project>, Vec<Diagnostic>) {
    let environment = environment();
    if is_compose(path) {
        let selection = Selection { files: vec![path.to_path_buf()], ..Selection::default() };
        return alone_of(path, &selection, &environment);
    }
    Project::check(path, &Selection::default(), &environment)
}

/// With what a run would refuse: it is planned as `run` does. What only this machine lacks is a warning unless it is strict.
fn planned(project: Option<Project>, mut diagnostics: Vec<Diagnostic>, strict: bool) -> Vec<Diagnostic> {
    let Some(project) = project else { return diagnostics };
    redact::install(Redactor::of(&project, &environment()));
    let resolver = images::cache_for(&project.compose);
    let finder = resolver.as_ref().map_or(Finder::Nowhere, Finder::IfThere);
    if let Err(refused) = Plan::new(&project, &HostBase::new(), &finder) {
        let file = &project.compose.source.name;
        diagnostics.extend(refused.into_iter().map(|refusal| refusal.diagnostic(file, strict)));
    }
    diagnostics
}

/// Whether a file is a compose file: by its name (compose.yaml, docker-compose.yml, stale-read.compose.yml) or by its key
/// `services`, which bloodhound.yaml does not have.
fn is_compose(path: &Path) -> bool {
    let name = path.file_name().map(|n| n.to_string_lossy().to_lowercase()).unwrap_or_default();
    let has_services = || {
        let Ok(source) = Source::read(path) else { return false };
        source.text.lines().any(|line| {
            let key = line.trim_start_matches(['"', '\'']);
            key.strip_prefix("services")
                .is_some_and(|rest| rest.trim_start_matches(['"', '\'']).trim_start().starts_with(':'))
        })
    };
    name.ends_with("compose.yaml") || name.ends_with("compose.yml") || has_services()
}

/// The caller's environment, as the compose file's variables. Variables that are not text are left out.
pub fn environment() -> Variables {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Prints diagnostics: for people to standard error, otherwise to standard output.
pub fn show(diagnostics: &[Diagnostic], format: Format) {
    let colour = output::colour();
    for diagnostic in diagnostics {
        match format {
            Format::Human => output::eprint(&format!("{}\n", render::text(diagnostic, colour))),
            Format::Json => output::print_json(&render::json(diagnostic)),
            Format::Github => {
                let file = github::in_workspace(Path::new(&diagnostic.file));
                let placed = Diagnostic { file, ..diagnostic.clone() };
                output::print(&format!("{}\n", render::github(&placed)));
            }
        }
    }
}

/// `bloodhound schema`: prints the JSON schema of bloodhound.yaml.
pub fn schema() -> u8 {
    output::print(&bloodhound_config::schema());
    exit::PASS
}

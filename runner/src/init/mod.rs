//! `bloodhound init`: from a compose file to a bloodhound.yaml with comments.
//!
//! Key functions: [`run`] (the command), [`survey::survey`] (what the services seem to be), [`text::text`] (the file). What is written passes
//! `validate`, whatever the compose file: it is checked before it is kept.

mod survey;
mod text;

use std::path::{Path, PathBuf};

use bloodhound_config::config::{Config, FileChecks};
use bloodhound_config::tree::Source;
use bloodhound_config::{Compose, Selection, check_names, has_errors, usual_files};

use crate::run::fail;
use crate::session::Failure;
use crate::validate::{self, DEFAULT_CONFIG};
use crate::{exit, output};

/// Arguments of `init`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The compose file [default: the usual names]; several times: each is laid over those before it
    #[arg(long, short = 'f', value_name = "FILE")]
    compose: Vec<PathBuf>,
    /// A profile of services that are run as well
    #[arg(long, value_name = "NAME")]
    profile: Vec<String>,
    /// Where to write it
    #[arg(long, short = 'o', value_name = "FILE", default_value = DEFAULT_CONFIG)]
    output: PathBuf,
    /// Replace a file that is there
    #[arg(long)]
    force: bool,
    /// The compose file, as with --compose
    #[arg(value_name = "FILE", conflicts_with = "compose")]
    file: Option<PathBuf>,
}

/// `bloodhound init`.
pub fn run(args: &Args) -> u8 {
    write(args).unwrap_or_else(|f| fail(&f))
}

fn write(args: &Args) -> Result<u8, Failure> {
    let path = &args.output;
    if !args.force && std::fs::symlink_metadata(path).is_ok() {
        let text = format!(
            "{} is there already\nhelp: --force replaces it, --output writes another file",
            path.display()
        );
        return Err(Failure::usage(text));
    }
    let environment = validate::environment();
    let named = args.file.iter().chain(&args.compose).cloned().collect::<Vec<_>>();
    let given = !named.is_empty();
    let files = match named.is_empty() {
        false => named,
        true => usual_files(Path::new("."), &environment).ok_or_else(|| {
            Failure::usage("there is no compose file here\nhelp: name it: bloodhound init FILE")
        })?,
    };
    let selection = Selection { files, profiles: args.profile.clone(), ..Selection::default() };
    let (compose, diagnostics) = Compose::load_files(&selection.files, &selection.environment(&environment));
    validate::show(&diagnostics, validate::Format::Human);
    let Some(compose) = compose else {
        let first = selection.files[0].display();
        return Err(Failure::usage(format!("{first} cannot be used; see the errors above")));
    };
    let services = survey::survey(&compose);
    let named = (given && selection.files.len() == 1).then(|| beside(path, &selection.files[0]));
    let text = text::text(&compose, &services, named.as_deref(), &selection);
    check(path, &text, &compose)?;
    output::write_file(path, &text).map_err(|e| Failure::environment(e.to_string()))?;
    output::print(&format!(
        "{}: written, {} services\nnext: bloodhound validate, then bloodhound test\n",
        path.display(),
        services.len()
    ));
    Ok(exit::PASS)
}

/// How the configuration names a compose file: relative to its own directory where that is possible.
fn beside(config: &Path, compose: &Path) -> String {
    let directory = match config.parent() {
        Some(dir) if dir != Path::new("") => dir.to_owned(),
        _ => PathBuf::from("."),
    };
    let whole = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let (directory, compose) = (whole(&directory), whole(compose));
    compose.strip_prefix(&directory).unwrap_or(&compose).display().to_string()
}

/// What is written must be right: a mistake would be ours.
fn check(path: &Path, text: &str, compose: &Compose) -> Result<(), Failure> {
    let (config, mut diagnostics) = Config::decode(Source::new(path, text), FileChecks::Lenient);
    if let Some(config) = &config {
        diagnostics.extend(check_names(config, compose));
    }
    if has_errors(&diagnostics) {
        validate::show(&diagnostics, validate::Format::Human);
        let text = "a bug of Bloodhound: what `init` would write is not valid; see the errors above";
        return Err(Failure { code: exit::BUG, text: text.into() });
    }
    Ok(())
}

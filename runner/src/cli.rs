//! The command line.

use std::io::IsTerminal;

use clap::{CommandFactory, Parser, Subcommand};

/// Deterministic simulation testing of unmodified Linux services.
#[derive(Parser, Debug)]
#[command(name = "bloodhound", version, after_help = crate::exit::help())]
pub struct Cli {
    /// What to do
    #[command(subcommand)]
    pub command: Command,
}

/// Subcommands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run many seeds and judge all properties
    Test(crate::campaign::Args),
    /// Search: go on from moments of runs that showed something new, with other choices
    Explore(crate::explore::Args),
    /// Run one seed and print its timeline
    Run(crate::run::RunArgs),
    /// Reproduce a finding exactly
    Replay(crate::run::ReplayArgs),
    /// Search the fewest faults and operations with which a finding still fails
    Shrink(crate::shrink::Args),
    /// Keep findings as regression cases, which `test` runs first
    Regress(crate::regress::Args),
    /// Tell when a finding became likely to fail, and which choice made it fail
    Causes(crate::causes::Args),
    /// Run a seed, or a program, several times and compare step by step
    Verify(crate::verify::Args),
    /// Run one program of this machine deterministically
    Exec(crate::exec::Args),
    /// Judge a recorded history
    Check(crate::check::Args),
    /// Check bloodhound.yaml and its compose file
    Validate(crate::validate::Args),
    /// Tell what a program, a log of strace or a stack would miss, before it is run
    Compat(crate::compat::Args),
    /// Write a bloodhound.yaml for a compose file
    Init(crate::init::Args),
    /// List the kinds of faults, with their keys, defaults and examples
    Faults(crate::faults::Args),
    /// Print the JSON schema of bloodhound.yaml
    Schema,
    /// Print a script that completes commands and options in a shell
    Completions(Completions),
    /// Manage the cache of container images
    Image(crate::image::Args),
    /// Join and show what code campaigns have reached
    Coverage(crate::coverage::Args),
    /// Join what the shards of a campaign have found, and judge it as one
    Merge(crate::merge::Args),
    /// Tell whether this machine can run simulations, and how fast
    Doctor(crate::doctor::Args),
    /// Tell GitHub what `test` found; for the action
    #[command(hide = true)]
    GithubReport(crate::github::Args),
}

/// Prints what the parser has to say: help and version on standard output, errors on standard error. The exit code.
pub fn answer(answer: &clap::Error) -> i32 {
    let text = answer.render();
    if answer.use_stderr() || std::io::stdout().is_terminal() {
        // With colours where they are wanted. That it fails leaves nobody to tell.
        let _ignored = answer.print();
    } else {
        crate::output::print(&text.to_string());
    }
    match answer.exit_code() {
        0 => i32::from(crate::output::finish(crate::exit::PASS)),
        code => code,
    }
}

/// Arguments of `completions`.
#[derive(clap::Args, Debug)]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

impl Completions {
    /// Prints the script.
    pub fn run(&self) -> u8 {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "bloodhound", &mut script);
        crate::output::print(&String::from_utf8_lossy(&script));
        crate::exit::PASS
    }
}

/// A duration as in bloodhound.yaml (`500ms`, `30s`, `1m30s`), in ns.
///
/// # Errors
/// What is wrong, for the usage message.
pub fn duration(text: &str) -> Result<u64, String> {
    bloodhound_config::scalar::duration(text).map_err(|e| match e.suggestion {
        Some(meant) => format!("{}; did you mean {meant}?", e.message),
        None => e.message,
    })
}

/// A number of bytes, more than none.
///
/// # Errors
/// It is none.
pub fn bytes(text: &str) -> Result<u64, String> {
    let bytes = bloodhound_config::scalar::bytes(text).filter(|n| *n > 0);
    bytes.ok_or_else(|| "a size is needed, such as 64m or 1g".into())
}

/// A share in thousandths.
///
/// # Errors
/// It is none.
pub fn share(text: &str) -> Result<u32, String> {
    bloodhound_config::scalar::share(text)
}

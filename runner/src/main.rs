//! The `bloodhound` command.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // the host side: times and threads of the host never enter a world

#[macro_use]
mod output;

mod boots;
mod branch;
mod breakpoints;
mod bug;
mod bundle;
mod campaign;
mod causes;
mod check;
#[cfg(test)]
mod choices;
mod cli;
mod compat;
mod console;
mod corpus;
mod coverage;
mod cpus;
#[cfg(test)]
mod docs;
mod doctor;
mod events;
mod exec;
mod exit;
mod explore;
mod faults;
#[cfg(test)]
mod faulty;
mod finding;
mod github;
mod group;
mod guidance;
mod host;
mod image;
mod images;
mod init;
mod inputs;
mod interleave;
mod interrupt;
mod judge;
mod junit;
mod kvm;
mod live;
mod memory;
mod merge;
mod pids;
mod plan;
mod platform;
mod redact;
mod regress;
mod remember;
mod report;
mod run;
mod schedule;
mod session;
mod shard;
mod share;
mod shrink;
mod stack;
mod unready;
mod users;
mod validate;
mod verify;

use clap::Parser;

/// CLOCK_REALTIME at virtual time 0: 2025-01-01T00:00:00Z, ns since 1970.
pub const EPOCH_NS: u64 = 1_735_689_600_000_000_000;
/// Memory that nodes show.
pub const MEMORY: u64 = 4 << 30;

fn main() {
    bug::install();
    cpus::init();
    let cli = cli::Cli::try_parse().unwrap_or_else(|answer| std::process::exit(cli::answer(&answer)));
    let code = match &cli.command {
        cli::Command::Test(args) => campaign::test(args),
        cli::Command::Explore(args) => explore::run(args),
        cli::Command::Run(args) => run::run(args),
        cli::Command::Replay(args) => run::replay(args),
        cli::Command::Shrink(args) => shrink::run(args),
        cli::Command::Regress(args) => regress::run(args),
        cli::Command::Causes(args) => causes::run(args),
        cli::Command::Verify(args) => verify::verify(args),
        cli::Command::Exec(args) => exec::run(args),
        cli::Command::Check(args) => check::run(args),
        cli::Command::Validate(args) => validate::run(args),
        cli::Command::Compat(args) => compat::run(args),
        cli::Command::Init(args) => init::run(args),
        cli::Command::Faults(args) => faults::run(args),
        cli::Command::Schema => validate::schema(),
        cli::Command::Completions(args) => args.run(),
        cli::Command::Image(args) => image::run(args),
        cli::Command::Coverage(args) => coverage::run(args),
        cli::Command::Merge(args) => merge::run(args),
        cli::Command::Doctor(args) => doctor::run(args),
        cli::Command::GithubReport(args) => github::run(args),
    };
    std::process::exit(i32::from(output::finish(code)));
}

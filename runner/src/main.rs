//! The `bloodhound` command.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // the host side: times and threads of the host never enter a world

mod cli;
mod exec;
mod exit;
mod host;
mod report;

use clap::Parser;

/// CLOCK_REALTIME at virtual time 0: 2025-01-01T00:00:00Z, ns since 1970.
pub const EPOCH_NS: u64 = 1_735_689_600_000_000_000;
/// Memory that nodes show.
pub const MEMORY: u64 = 4 << 30;

fn main() {
    let cli = cli::Cli::parse();
    let code = match &cli.command {
        cli::Command::Exec(args) => exec::run(args),
    };
    std::process::exit(i32::from(code));
}

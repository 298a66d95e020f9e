//! `cargo xtask`: tasks of the project that are more than a cargo command.
//!
//! Modules: [`experiment`] compares strategies of exploration; [`long`] runs the campaigns that are too long for CI; [`stock_kvm`] runs tests in a virtual machine that has the /dev/kvm of an ordinary Linux; [`probe`] looks at a
//! /dev/kvm, there or here; [`suite`] runs a public test suite natively and under Bloodhound. `fuzz` is a crate of its own, `conformance/fuzz`. Nothing of Bloodhound depends on this crate, and it calls Bloodhound as a user does.

mod experiment;
mod failure;
mod long;
mod probe;
mod stock_kvm;
mod suite;

use std::process::ExitCode;

use clap::Parser;

use crate::failure::Failure;

/// Tasks of the project
#[derive(Parser, Debug)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Runs tests where /dev/kvm is upstream Linux's: a Debian or Ubuntu kernel in an emulated machine
    StockKvm(stock_kvm::Args),
    /// Compares what this kernel and Bloodhound answer to system calls at random
    #[command(disable_help_flag = true)]
    Fuzz {
        /// As `cargo xtask fuzz --help` says
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Runs the Open POSIX Test Suite natively and under Bloodhound, and compares
    Suite(suite::Args),
    /// Runs the campaigns that are too long for CI: power failures of databases, and the example service with and without its bugs
    Long(long::Args),
    /// Runs strategies of exploration against each other: how much processor time each takes to find bugs
    Experiment(experiment::Args),
    /// Says what /dev/kvm is on this machine, and runs a guest of one instruction
    ProbeKvm,
}

fn main() -> ExitCode {
    let done = match Task::parse() {
        Task::StockKvm(args) => stock_kvm::run(&args),
        Task::Fuzz { args } => bloodhound_fuzz::command::run(&args).map_err(Failure::Broken),
        Task::Suite(args) => suite::run(&args),
        Task::Long(args) => long::run(&args),
        Task::Experiment(args) => experiment::run(&args),
        Task::ProbeKvm => probe::run().map(|()| 0),
    };
    match done {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

//! `cargo xtask`: tasks of the project that are more than a cargo command.
//!
//! Modules: [`stock_kvm`] runs tests in a virtual machine that has the /dev/kvm of an ordinary Linux; [`probe`] looks at a
//! /dev/kvm, there or here. Nothing of Bloodhound depends on this crate, and it calls Bloodhound as a user does.

mod failure;
mod probe;
mod stock_kvm;

use std::process::ExitCode;

use clap::Parser;

/// Tasks of the project
#[derive(Parser, Debug)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Runs tests where /dev/kvm is upstream Linux's: a Debian or Ubuntu kernel in an emulated machine
    StockKvm(stock_kvm::Args),
    /// Says what /dev/kvm is on this machine, and runs a guest of one instruction
    ProbeKvm,
}

fn main() -> ExitCode {
    let done = match Task::parse() {
        Task::StockKvm(args) => stock_kvm::run(&args),
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

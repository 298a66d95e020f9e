//! The exit codes of the command: the one place where they are defined. `--help` and docs/exit-codes.md show
//! [`TABLE`]; a test keeps them together.

/// All properties held.
pub const PASS: u8 = 0;
/// Findings.
pub const FINDINGS: u8 = 1;
/// Wrong usage or configuration.
pub const USAGE: u8 = 2;
/// Coverage of code or of kinds of faults below its threshold.
pub const COVERAGE: u8 = 3;
/// No verdict: the budget ended before it, or nothing was done that could have violated a property.
pub const INCONCLUSIVE: u8 = 4;
/// The environment: platform, host, a service that did not start.
pub const ENVIRONMENT: u8 = 5;
/// Two runs that should be equal are not.
pub const NONDETERMINISM: u8 = 6;
/// Something unsupported was needed.
pub const UNSUPPORTED: u8 = 7;
/// A bug of Bloodhound.
pub const BUG: u8 = 70;
/// `exec`: the program is there but cannot be executed.
pub const NOT_EXECUTABLE: u8 = 126;
/// `exec`: there is no such program.
pub const NOT_FOUND: u8 = 127;
/// Interrupted.
pub const INTERRUPTED: u8 = 130;

/// All codes with their meaning.
pub const TABLE: &[(u8, &str)] = &[
    (PASS, "all properties held"),
    (FINDINGS, "findings"),
    (USAGE, "wrong usage or configuration"),
    (COVERAGE, "coverage of code or of kinds of faults below its threshold"),
    (INCONCLUSIVE, "inconclusive: no verdict, too few seeds, or a property that nothing exercised"),
    (ENVIRONMENT, "environment: platform or host failed, or a service did not start"),
    (NONDETERMINISM, "nondeterminism detected"),
    (UNSUPPORTED, "something unsupported was needed"),
    (BUG, "a bug of Bloodhound"),
    (NOT_EXECUTABLE, "`exec`: the program cannot be executed"),
    (NOT_FOUND, "`exec`: the program was not found"),
    (INTERRUPTED, "interrupted"),
];

/// Which code is told if several apply.
pub const ORDER: &[u8] =
    &[BUG, FINDINGS, UNSUPPORTED, ENVIRONMENT, NONDETERMINISM, USAGE, INTERRUPTED, INCONCLUSIVE, COVERAGE];

/// The one of `codes` that is told; [`PASS`] if there is none.
pub fn first(codes: &[u8]) -> u8 {
    ORDER.iter().copied().find(|code| codes.contains(code)).unwrap_or(PASS)
}

/// The table as text for `--help`.
pub fn help() -> String {
    let mut out = String::from("Exit codes:\n");
    for (code, meaning) in TABLE {
        out.push_str(&format!("  {code:>3}  {meaning}\n"));
    }
    out
}

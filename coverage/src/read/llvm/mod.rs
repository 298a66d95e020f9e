//! Profiles of programs that LLVM has instrumented (`clang -fprofile-instr-generate -fcoverage-mapping`, `rustc -C instrument-coverage`).
//!
//! A program has the mapping from counters to source (LLVM's "Code Coverage Mapping Format"), its raw profile the counters (LLVM's
//! "Instrumentation Profile Format"). The result is what `llvm-cov export -format=lcov` says of the same two files.
//!
//! Key types: [`Mapping`] (`mapping`, with `function`), [`Profile`] (`profile`). `regions` makes lines of the regions of a file, `bytes` reads
//! the numbers of both formats. Files may be damaged or hostile: whatever lies outside of its table is an error, with the place.

mod bytes;
mod function;
mod mapping;
mod profile;
mod regions;

pub use mapping::Mapping;
pub use profile::Profile;

//! Reports that other tools write: what an interpreter's or a compiler's own coverage says of source files.
//!
//! Each reader takes the bytes of one file and gives a [`Report`], with names of files as the tool wrote them. [`read`] tells formats by
//! their content.

mod cobertura;
mod go;
mod go_data;
mod jacoco;
mod json;
mod lcov;
pub mod llvm;
mod python;
mod v8;
mod xml;

use std::collections::BTreeMap;

pub use v8::Scripts;

/// What one tool says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// By name, as the tool wrote it.
    pub files: BTreeMap<String, Reported>,
}

/// What a tool says of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    /// Lines with code, and whether they ran.
    pub lines: BTreeMap<u32, bool>,
    /// Functions by line and name, and whether they ran.
    pub functions: BTreeMap<(u32, String), bool>,
}

impl Reported {
    /// Adds a line; one that is told several times ran if it ran once.
    pub(crate) fn line(&mut self, line: u64, covered: bool) {
        if let Some(line) = u32::try_from(line).ok().filter(|line| *line > 0) {
            *self.lines.entry(line).or_default() |= covered;
        }
    }

    pub(crate) fn function(&mut self, line: u64, name: &str, covered: bool) {
        let line = u32::try_from(line).unwrap_or(0);
        *self.functions.entry((line, name.to_owned())).or_default() |= covered;
    }
}

impl Report {
    pub(crate) fn file(&mut self, name: &str) -> &mut Reported {
        self.files.entry(name.to_owned()).or_default()
    }

    /// Adds what another report says.
    pub fn join(&mut self, other: Report) {
        for (name, file) in other.files {
            let own = self.files.entry(name).or_default();
            for (line, covered) in file.lines {
                *own.lines.entry(line).or_default() |= covered;
            }
            for (function, covered) in file.functions {
                *own.functions.entry(function).or_default() |= covered;
            }
        }
    }
}

/// The formats that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// lcov's tracefile, which many tools write.
    Lcov,
    /// Cobertura's XML.
    Cobertura,
    /// `coverage json` of coverage.py.
    CoveragePy,
    /// A file of a `NODE_V8_COVERAGE` directory.
    V8,
    /// JaCoCo's XML.
    Jacoco,
    /// What Bloodhound's collector of Python's lines writes.
    Python,
    /// What `go test -coverprofile` and `go tool covdata textfmt` write.
    GoProfile,
    /// A raw profile of LLVM, which says nothing without the program that wrote it: see [`llvm`].
    LlvmProfile,
    /// A file of a `GOCOVERDIR` directory.
    GoData,
}

/// Tells the format of a file by its content.
pub fn format_of(bytes: &[u8]) -> Option<Format> {
    if llvm::Profile::is_one(bytes) {
        return Some(Format::LlvmProfile);
    }
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(4096)]);
    let start = start.trim_start_matches('\u{feff}').trim_start();
    let line = start.lines().next().unwrap_or_default();
    if go_data::is(bytes) {
        Some(Format::GoData)
    } else if line.starts_with(python::FIRST_LINE) {
        Some(Format::Python)
    } else if line.starts_with("mode: ") {
        Some(Format::GoProfile)
    } else if ["TN:", "SF:"].iter().any(|word| line.starts_with(word)) {
        Some(Format::Lcov)
    } else if start.starts_with('<') {
        let jacoco = start.contains("<report") || start.contains("-//JACOCO//");
        let cobertura = || start.contains("<coverage").then_some(Format::Cobertura);
        jacoco.then_some(Format::Jacoco).or_else(cobertura)
    } else if start.starts_with('{') {
        let python = start.contains("\"meta\"") || start.contains("\"executed_lines\"");
        let v8 = start.contains("\"result\"");
        if python { Some(Format::CoveragePy) } else { v8.then_some(Format::V8) }
    } else {
        None
    }
}

/// Reads a file in any of the formats. `scripts` gives the text of a script by its path in the service, which V8's offsets and
/// Python's statements need.
///
/// # Errors
/// Why it cannot be read, with the place.
pub fn read(bytes: &[u8], scripts: Scripts<'_>) -> Result<Report, String> {
    match format_of(bytes) {
        Some(Format::Lcov) => lcov::read(bytes),
        Some(Format::Cobertura) => cobertura::read(bytes),
        Some(Format::CoveragePy) => json::coverage_py(bytes),
        Some(Format::V8) => v8::read(bytes, scripts),
        Some(Format::GoProfile) => go::profile(bytes),
        Some(Format::LlvmProfile) => Err("a raw profile of LLVM can only be read together with the program that wrote it: name the \
                                          program, or give what `llvm-cov export -format=lcov` writes"
            .to_owned()),
        // What ran and what there is are in different files.
        Some(Format::GoData) => read_go(&[bytes]),
        Some(Format::Jacoco) => jacoco::read(bytes),
        Some(Format::Python) => python::read(bytes, scripts),
        None => Err("it is no coverage that can be read: lcov, Cobertura, JaCoCo's XML, `coverage json` of coverage.py, NODE_V8_COVERAGE, or \
                     a profile of Go (go tool covdata textfmt)"
            .to_owned()),
    }
}

/// Reads the files of a `GOCOVERDIR` directory, which are understood only together.
///
/// # Errors
/// Why they cannot be read.
pub fn read_go(files: &[&[u8]]) -> Result<Report, String> {
    go_data::read(files)
}

#[cfg(test)]
mod tests;

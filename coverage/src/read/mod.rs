//! Reports that other tools write: what an interpreter's or a compiler's own coverage says of source files.
//!
//! Each reader takes the bytes of one file and gives a [`Report`], with names of files as the tool wrote them. [`read`] tells formats by
//! their content.

mod cobertura;
mod go;
mod json;
mod lcov;
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
    /// What `go test -coverprofile` and `go tool covdata textfmt` write.
    GoProfile,
}

/// Tells the format of a file by its content.
pub fn format_of(bytes: &[u8]) -> Option<Format> {
    let start = String::from_utf8_lossy(&bytes[..bytes.len().min(4096)]);
    let start = start.trim_start_matches('\u{feff}').trim_start();
    let line = start.lines().next().unwrap_or_default();
    if line.starts_with("mode: ") {
        Some(Format::GoProfile)
    } else if ["TN:", "SF:"].iter().any(|word| line.starts_with(word)) {
        Some(Format::Lcov)
    } else if start.starts_with('<') {
        start.contains("<coverage").then_some(Format::Cobertura)
    } else if start.starts_with('{') {
        let python = start.contains("\"meta\"") || start.contains("\"executed_lines\"");
        let v8 = start.contains("\"result\"");
        if python { Some(Format::CoveragePy) } else { v8.then_some(Format::V8) }
    } else {
        None
    }
}

/// Reads a file in any of the formats. `scripts` gives the text of a script by its path in the service, which V8's offsets need.
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
        None => Err("it is no coverage that can be read: lcov, Cobertura, `coverage json` of coverage.py, NODE_V8_COVERAGE, or a \
                     profile of Go (go tool covdata textfmt)"
            .to_owned()),
    }
}

#[cfg(test)]
mod tests;

//! Go's text profile: `go test -coverprofile`, and `go tool covdata textfmt` of what a program built with `go build -cover` writes.
//!
//! A line of it is `name.go:line.column,line.column statements count`: a block from its first to its last character.

use super::{Report, Reported};

/// Lines of a block, at most: a larger one is damage.
const MOST_LINES: u64 = 1_000_000;

/// Reads a profile.
pub(super) fn profile(bytes: &[u8]) -> Result<Report, String> {
    let text = String::from_utf8_lossy(bytes);
    let mut report = Report::default();
    for (number, line) in (1..).zip(text.lines()) {
        if line.is_empty() || line.starts_with("mode:") {
            continue;
        }
        let (name, block) =
            block(line).ok_or_else(|| format!("line {number} is no block of a Go profile: {line:?}"))?;
        block.add(report.file(name));
    }
    Ok(report)
}

/// A block of a Go program.
pub(super) struct Block {
    pub first: u64,
    last: u64,
    /// It ran.
    pub covered: bool,
}

impl Block {
    /// From its first line to a column of its last one, which has not run yet. `None`: it has no such extent.
    pub fn new(first: u64, last: u64, column: u64) -> Option<Block> {
        // A block that ends before the second column ends with the line before: only its brace stands there.
        let last = if column <= 2 && last > first { last - 1 } else { last };
        let whole = last >= first && last - first < MOST_LINES;
        whole.then_some(Block { first, last, covered: false })
    }

    /// Adds its lines to those of a file.
    pub fn add(&self, file: &mut Reported) {
        (self.first..=self.last).for_each(|line| file.line(line, self.covered));
    }
}

fn block(line: &str) -> Option<(&str, Block)> {
    let (name, rest) = line.rsplit_once(':')?;
    let mut words = rest.split(' ');
    let (start, end) = words.next()?.split_once(',')?;
    let (statements, count) = (words.next()?.parse::<u64>().ok()?, words.next()?.parse::<u64>().ok()?);
    let place = |text: &str| -> Option<(u64, u64)> {
        let (line, column) = text.split_once('.')?;
        Some((line.parse().ok()?, column.parse().ok()?))
    };
    let ((first, _), (last, column)) = (place(start)?, place(end)?);
    let block = Block::new(first, last, column).filter(|_| statements < MOST_LINES)?;
    Some((name, Block { covered: count > 0, ..block }))
}

//! Go's text profile: `go test -coverprofile`, and `go tool covdata textfmt` of what a program built with `go build -cover` writes.
//!
//! A line of it is `name.go:line.column,line.column statements count`: a block from its first to its last character.

use super::Report;

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
        let block =
            block(line).ok_or_else(|| format!("line {number} is no block of a Go profile: {line:?}"))?;
        let file = report.file(block.name);
        for line in block.first..=block.last {
            file.line(line, block.covered);
        }
    }
    Ok(report)
}

struct Block<'t> {
    name: &'t str,
    first: u64,
    last: u64,
    covered: bool,
}

fn block(line: &str) -> Option<Block<'_>> {
    let (name, rest) = line.rsplit_once(':')?;
    let mut words = rest.split(' ');
    let (start, end) = words.next()?.split_once(',')?;
    let (statements, count) = (words.next()?.parse::<u64>().ok()?, words.next()?.parse::<u64>().ok()?);
    let place = |text: &str| -> Option<(u64, u64)> {
        let (line, column) = text.split_once('.')?;
        Some((line.parse().ok()?, column.parse().ok()?))
    };
    let ((first, _), (last, column)) = (place(start)?, place(end)?);
    // A block that ends before the second column ends with the line before: only its brace stands there.
    let last = if column <= 2 && last > first { last - 1 } else { last };
    let whole = last >= first && last - first < MOST_LINES && statements < MOST_LINES;
    whole.then_some(Block { name, first, last, covered: count > 0 })
}

//! What Bloodhound's collector in a Python service writes: a record on each line, `F` for a file, `C` for a code object with its lines,
//! `L` for a line that ran (`runner/src/plan/collect/bloodhound_coverage.py`).
//!
//! What counts are statements, as coverage.py counts them: the interpreter's lines, those of a statement over several lines put together
//! on its first one, without docstrings and without what `# pragma: no cover` excludes. [`Source`] finds these in the text.

mod source;

use std::collections::{BTreeMap, BTreeSet};

use super::{Report, Scripts};
use source::Source;

/// How such a file begins: the format with its version.
pub(super) const FIRST_LINE: &str = "bloodhound python 1";

/// What is told of one file.
#[derive(Default)]
struct Told {
    path: String,
    lines: BTreeSet<u32>,
    functions: Vec<(u32, String, Vec<u32>)>,
    ran: BTreeSet<u32>,
}

/// Reads a file. Its last line may be cut, as its process may have been killed.
pub(super) fn read(bytes: &[u8], scripts: Scripts<'_>) -> Result<Report, String> {
    let text = String::from_utf8_lossy(bytes);
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut files: BTreeMap<&str, Told> = BTreeMap::new();
    for (number, line) in (1..).zip(whole.lines()).skip(1) {
        record(line, &mut files).ok_or_else(|| format!("line {number} is no record: {line:?}"))?;
    }
    let mut report = Report::default();
    for told in files.into_values() {
        let source = scripts(&told.path).map(|text| Source::new(&text)).unwrap_or_default();
        let file = report.file(&told.path);
        let statements = |lines: &BTreeSet<u32>| -> BTreeSet<u32> {
            lines.iter().filter_map(|line| source.statement(*line)).collect()
        };
        let ran = statements(&told.ran);
        for line in statements(&told.lines) {
            file.line(u64::from(line), ran.contains(&line));
        }
        for (first, name, lines) in told.functions {
            let Some(line) = source.statement(first) else { continue };
            // The definition itself runs when the function is made; only a function of one line has nothing else.
            let body: Vec<u32> = lines.iter().copied().filter(|line| *line != first).collect();
            let body = if body.is_empty() { lines } else { body };
            file.function(u64::from(line), &name, body.iter().any(|line| told.ran.contains(line)));
        }
    }
    Ok(report)
}

fn record<'t>(line: &'t str, files: &mut BTreeMap<&'t str, Told>) -> Option<()> {
    let (kind, rest) = line.split_once(' ')?;
    let (file, rest) = rest.split_once(' ')?;
    match kind {
        "F" => {
            let path = plain(rest);
            files.insert(file, Told { path, ..Told::default() });
        }
        "C" => {
            let mut words = rest.split(' ');
            let (first, name, lines) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
            let lines = lines.split(',').filter(|line| !line.is_empty()).map(|line| line.parse().ok());
            let lines: Vec<u32> = lines.collect::<Option<_>>()?;
            let told = files.get_mut(file)?;
            told.lines.extend(&lines);
            if name != "-" {
                told.functions.push((first, name.to_owned(), lines));
            }
        }
        "L" => drop(files.get_mut(file)?.ran.insert(rest.parse().ok()?)),
        _ => return None,
    }
    Some(())
}

/// A path in which the collector has written `\n` for a line's end and `\\` for a backslash.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut characters = text.chars();
    while let Some(c) = characters.next() {
        out.extend(match c {
            '\\' => characters.next().map(|c| if c == 'n' { '\n' } else { c }),
            c => Some(c),
        });
    }
    out
}

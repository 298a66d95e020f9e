//! What covers the lines that a change has touched.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::model::{Coverage, Moment};
use crate::totals::{Count, lines};

/// Lines of the new files that a change has added or changed, by path.
pub type Changed = BTreeMap<String, BTreeSet<u32>>;

/// Lines of one change, at most.
const MOST: u32 = 50_000_000;

/// Changed lines with code, and what reached them first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Covered {
    /// By file.
    pub files: BTreeMap<String, BTreeMap<u32, Option<Moment>>>,
    /// How many there are, and how many were reached.
    pub count: Count,
}

/// Reads a unified diff, such as `git diff` writes it.
///
/// # Errors
/// What is wrong with it, with the place.
pub fn parse(text: &str) -> Result<Changed, String> {
    let mut changed = Changed::new();
    let mut path: Option<String> = None;
    // Lines of the hunk that are still to come: of the old file and of the new one.
    let (mut old, mut new, mut at) = (0_u32, 0_u32, 0_u32);
    for (number, line) in (1..).zip(text.lines()) {
        if old > 0 || new > 0 {
            match line.as_bytes().first() {
                Some(b'-') => old = old.saturating_sub(1),
                Some(b'+') => {
                    if let Some(path) = &path {
                        changed.entry(path.clone()).or_default().insert(at);
                    }
                    (at, new) = (at.saturating_add(1), new.saturating_sub(1));
                }
                // "\ No newline at end of file".
                Some(b'\\') => {}
                _ => (at, old, new) = (at.saturating_add(1), old.saturating_sub(1), new.saturating_sub(1)),
            }
        } else if let Some(name) = line.strip_prefix("+++ ") {
            path = file_name(name);
        } else if let Some(rest) = line.strip_prefix("@@ ") {
            let wrong = || format!("line {number} begins no hunk of a unified diff: {line:?}");
            (old, (at, new)) = hunk(rest).ok_or_else(wrong)?;
        }
    }
    Ok(changed)
}

/// The new file's name; `None` if it was removed.
fn file_name(name: &str) -> Option<String> {
    // diff -u writes the time after a tab.
    let name = name.split('\t').next().unwrap_or(name).trim_end();
    let name = name
        .strip_prefix('"')
        .and_then(|name| name.strip_suffix('"'))
        .map_or_else(|| name.to_owned(), unquoted);
    let name = name.as_str();
    (name != "/dev/null").then(|| name.strip_prefix("b/").unwrap_or(name).to_owned())
}

/// git quotes names with special characters as C does.
fn unquoted(name: &str) -> String {
    let (mut out, mut bytes) = (Vec::new(), name.bytes());
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'n') => out.push(b'\n'),
            Some(b't') => out.push(b'\t'),
            Some(digit @ b'0'..=b'3') => {
                let rest = [bytes.next().unwrap_or(b'0'), bytes.next().unwrap_or(b'0')];
                let digits = [digit, rest[0], rest[1]].map(|digit| digit.wrapping_sub(b'0') & 7);
                out.push(digits[0] << 6 | digits[1] << 3 | digits[2]);
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// `-a,b +c,d @@`: how many old lines, where the new ones begin, and how many.
fn hunk(text: &str) -> Option<(u32, (u32, u32))> {
    let mut words = text.split(' ');
    let range = |word: &str, sign: char| -> Option<(u32, u32)> {
        let word = word.strip_prefix(sign)?;
        let (start, count) = word.split_once(',').unwrap_or((word, "1"));
        let (start, count) = (start.parse::<u32>().ok()?, count.parse::<u32>().ok()?);
        (count <= MOST && start <= u32::MAX - count).then_some((start, count))
    };
    let (old, new) = (range(words.next()?, '-')?, range(words.next()?, '+')?);
    Some((old.1, new))
}

/// What changed in a git checkout since a revision, in files that git knows: paths are below `root`.
///
/// # Errors
/// What git says.
pub fn of_git(root: &Path, revision: &str) -> Result<Changed, String> {
    let output = Command::new("git")
        .current_dir(root)
        .args(["-c", "core.quotePath=false", "diff", "--no-color", "--no-ext-diff", "--no-textconv", "-U0"])
        .args(["--relative", "--src-prefix=a/", "--dst-prefix=b/", "--end-of-options", revision, "--", "."])
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("git cannot be run: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("git diff {revision}: {}", said.trim()));
    }
    parse(&String::from_utf8_lossy(&output.stdout))
}

/// Which of the changed lines that count were reached.
pub fn covered(coverage: &Coverage, changed: &Changed) -> Covered {
    let mut covered = Covered::default();
    for (path, known) in lines(coverage) {
        let Some(changed) = changed.get(path) else { continue };
        for (line, reached) in known.iter().filter(|(line, _)| changed.contains(line)) {
            covered.count.add(reached.is_some());
            let moment = coverage.moment(*reached).cloned();
            covered.files.entry(path.to_owned()).or_default().insert(*line, moment);
        }
    }
    covered
}

impl Covered {
    /// Stretches of lines that nothing reached: file, first line, last line. Lines between two of them have no code or were not
    /// changed.
    pub fn missed(&self) -> Vec<(String, u32, u32)> {
        let of_file = |(path, lines): (&String, &BTreeMap<u32, Option<Moment>>)| {
            let path = path.clone();
            stretches(lines)
                .into_iter()
                .map(move |(first, last)| (path.clone(), first, last))
                .collect::<Vec<_>>()
        };
        self.files.iter().flat_map(of_file).collect()
    }

    /// The result as text: each file with the lines that nothing reached, as ranges.
    pub fn text(&self) -> String {
        let mut out = String::new();
        if self.count.total == 0 {
            return "no changed line has code that counts\n".to_owned();
        }
        let _ = writeln!(out, "changed lines covered: {}", self.count);
        for (path, lines) in &self.files {
            let mut count = Count::default();
            lines.values().for_each(|moment| count.add(moment.is_some()));
            let _ = write!(out, "  {path}: {} of {}", count.covered, count.total);
            let missed = ranges(lines);
            let _ = if missed.is_empty() { writeln!(out) } else { writeln!(out, ", not covered: {missed}") };
        }
        out
    }
}

/// Lines that nothing reached; a stretch ends where a line was reached.
fn stretches(lines: &BTreeMap<u32, Option<Moment>>) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    let mut open = false;
    for (line, moment) in lines {
        match ranges.last_mut() {
            Some(last) if open && moment.is_none() => last.1 = *line,
            _ if moment.is_none() => ranges.push((*line, *line)),
            _ => {}
        }
        open = moment.is_none();
    }
    ranges
}

/// The same as text.
fn ranges(lines: &BTreeMap<u32, Option<Moment>>) -> String {
    let ranges = stretches(lines);
    let words = ranges.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") });
    words.collect::<Vec<String>>().join(", ")
}

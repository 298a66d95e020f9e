//! What Node writes to the directory of `NODE_V8_COVERAGE`: for each script, functions with ranges of characters and counts.
//!
//! Ranges of a function are nested: an inner one holds for its characters in the place of the outer one. A line ran if any of its
//! characters, spaces aside, has a count; as in c8, the blanks of a line decide nothing.

use serde_json::Value;

use super::Report;
use crate::totals::has_code;

/// Gives the text of a script by its path in the service.
pub type Scripts<'s> = &'s dyn Fn(&str) -> Option<String>;

/// UTF-16 units of a script, at most.
const MOST: usize = 64 << 20;
/// Characters that ranges of one script cover, all ranges added up: nesting is shallow in real ones.
const MOST_WORK: usize = 2 << 30;

/// Reads a file.
pub(super) fn read(bytes: &[u8], scripts: Scripts<'_>) -> Result<Report, String> {
    let root: Value = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let list = root.get("result").and_then(Value::as_array).ok_or("it has no \"result\"")?;
    let mut report = Report::default();
    for script in list {
        let url = script.get("url").and_then(Value::as_str).unwrap_or_default();
        // What is not of a file belongs to Node itself, or was made by eval().
        let Some(path) = url.strip_prefix("file://") else { continue };
        let path = decoded(path);
        let Some(text) = scripts(&path) else { continue };
        let functions = script.get("functions").and_then(Value::as_array);
        let functions = functions.ok_or_else(|| format!("{path}: no \"functions\""))?;
        read_script(&path, &text, functions, &mut report)?;
    }
    Ok(report)
}

/// A path without the `%` of URLs.
fn decoded(url: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), url.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match hex.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn read_script(path: &str, text: &str, functions: &[Value], report: &mut Report) -> Result<(), String> {
    // Offsets count UTF-16 units.
    let units: Vec<u16> = text.encode_utf16().collect();
    if units.len() > MOST {
        return Err(format!("{path}: it is larger than {MOST} characters"));
    }
    let ends: Vec<usize> = (0..).zip(&units).filter(|(_, unit)| **unit == 10).map(|(at, _)| at).collect();
    let line_at = |offset: usize| 1 + ends.partition_point(|end| *end < offset) as u64;
    let mut ran = vec![true; units.len()];
    let mut work = 0_usize;
    // Functions stand in the order of their beginnings, outer ones first; so do ranges. The first is the whole script.
    for function in functions {
        let name = function.get("functionName").and_then(Value::as_str).unwrap_or_default();
        let ranges = function.get("ranges").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        for (index, range) in ranges.iter().enumerate() {
            let number =
                |key: &str| range.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
            let (Some(start), Some(end), Some(count)) =
                (number("startOffset"), number("endOffset"), number("count"))
            else {
                return Err(format!("{path}: a range of {name:?} lacks an offset or its count"));
            };
            let (start, end) = (start.min(units.len()), end.min(units.len()));
            work = work.saturating_add(end.saturating_sub(start));
            if work > MOST_WORK {
                return Err(format!("{path}: its ranges overlap too often"));
            }
            if start < end {
                ran[start..end].fill(count > 0);
            }
            if index == 0 && !name.is_empty() {
                report.file(path).function(line_at(start), name, count > 0);
            }
        }
    }
    let file = report.file(path);
    let (mut start, mut comment) = (0, false);
    for (number, line) in (1..).zip(units.split(|unit| *unit == 10)) {
        let code = |unit: u16| !matches!(unit, 9 | 11 | 12 | 13 | 32);
        let mut characters = line.iter().zip(&ran[start..]).filter(|(unit, _)| code(**unit));
        let words = String::from_utf16_lossy(line);
        if has_code(words.trim(), &mut comment) {
            file.line(number, characters.any(|(_, ran)| *ran));
        }
        start = (start + line.len() + 1).min(units.len());
    }
    Ok(())
}

//! lcov's tracefile (geninfo(1), "FILES"), for genhtml and for services that collect coverage.

use std::fmt::Write;

use crate::model::Coverage;
use crate::totals::{count, functions, lines};

/// Lines and functions, with paths below the checkout. Blocks have no place in this format.
pub fn lcov(coverage: &Coverage) -> String {
    let (lines, functions) = (lines(coverage), functions(coverage));
    let mut paths: Vec<&str> =
        lines.keys().chain(functions.keys()).copied().filter(|path| !path.is_empty()).collect();
    paths.sort_unstable();
    paths.dedup();
    let mut out = String::new();
    for path in paths {
        // Writing to a string cannot fail.
        let _ = record(&mut out, path, lines.get(path), functions.get(path));
    }
    out
}

type Lines = std::collections::BTreeMap<u32, Option<u32>>;
type Functions<'c> = std::collections::BTreeMap<(u32, &'c str), Option<u32>>;

fn record(
    out: &mut String,
    path: &str,
    lines: Option<&Lines>,
    functions: Option<&Functions<'_>>,
) -> std::fmt::Result {
    // A name with a line break would be two records.
    let plain = |text: &str| text.replace(['\n', '\r'], " ");
    writeln!(out, "TN:\nSF:{}", plain(path))?;
    if let Some(functions) = functions {
        let mut names: Vec<(u32, String, bool)> = Vec::new();
        for ((line, name), reached) in functions {
            // genhtml knows a function by its name in the file.
            let name = plain(name);
            let twice = names.iter().any(|(_, other, _)| *other == name);
            names.push((
                *line,
                if twice { format!("{name} (line {line})") } else { name },
                reached.is_some(),
            ));
        }
        for (line, name, _) in &names {
            writeln!(out, "FN:{line},{name}")?;
        }
        for (_, name, reached) in &names {
            writeln!(out, "FNDA:{},{name}", u8::from(*reached))?;
        }
        let hit = names.iter().filter(|(_, _, reached)| *reached).count();
        writeln!(out, "FNF:{}\nFNH:{hit}", names.len())?;
    }
    if let Some(lines) = lines {
        for (line, reached) in lines {
            writeln!(out, "DA:{line},{}", u8::from(reached.is_some()))?;
        }
        let count = count(lines.values());
        writeln!(out, "LF:{}\nLH:{}", count.total, count.covered)?;
    }
    writeln!(out, "end_of_record")
}

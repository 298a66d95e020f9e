//! lcov's tracefile (geninfo(1), "FILES").

use super::Report;

/// Reads a tracefile.
pub(super) fn read(bytes: &[u8]) -> Result<Report, String> {
    let text = String::from_utf8_lossy(bytes);
    let mut report = Report::default();
    let mut file: Option<String> = None;
    // Functions have their names in two records: FN with the line, FNDA with the count.
    let mut lines: Vec<(String, u64)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let wrong = |what: &str| format!("line {number}: {what}: {line:?}");
        let (word, rest) = line.trim_end().split_once(':').unwrap_or((line.trim_end(), ""));
        match word {
            "SF" => {
                report.file(rest);
                file = Some(rest.to_owned());
                lines.clear();
            }
            "end_of_record" => file = None,
            "DA" | "FN" | "FNDA" => {
                let Some(name) = &file else { return Err(wrong("it stands before SF")) };
                let file = report.file(name);
                let (first, rest) = rest.split_once(',').ok_or_else(|| wrong("it has no comma"))?;
                // A count may have a sign in files of old gcov, or be in scientific notation in those of llvm.
                let count = |text: &str| {
                    text.trim_start_matches(['0', '.', '-'])
                        .chars()
                        .next()
                        .is_some_and(|c| c.is_ascii_digit())
                };
                let number = || first.parse::<u64>().map_err(|_| wrong("it has no line number"));
                match word {
                    "DA" => file.line(number()?, count(rest.split(',').next().unwrap_or_default())),
                    "FN" => {
                        // lcov 2 has the last line between the first and the name.
                        let end = rest.split_once(',').filter(|(end, _)| end.parse::<u64>().is_ok());
                        let name = end.map_or(rest, |(_, name)| name);
                        lines.push((name.to_owned(), number()?));
                        file.function(number()?, name, false);
                    }
                    _ => {
                        let at = lines.iter().find(|(name, _)| name == rest).map_or(0, |(_, line)| *line);
                        file.function(at, rest, count(first));
                    }
                }
            }
            _ => {}
        }
    }
    Ok(report)
}

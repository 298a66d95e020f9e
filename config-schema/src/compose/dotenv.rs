//! Files with variables: `.env` beside the compose file and `env_file` of services.
//!
//! Key function: [`parse`]. Lines are `NAME=value`, optionally with `export`; values may be bare, in single
//! quotes (taken literally) or in double quotes (with escapes); quoted values may span lines. Variables are
//! substituted in bare and double-quoted values. Source: the compose specification, "Env_file format".

use crate::diagnostic::{Code, Diagnostic, Severity};
use crate::tree::{Source, Span};

use super::interpolate::{self, Variables};

/// The variables of a file, in the order of the file. A name without `=` has no value of its own.
pub(crate) struct DotEnv {
    pub(crate) variables: Vec<(String, Option<String>)>,
    pub(crate) diagnostics: Vec<Diagnostic>,
}

/// Parses a file. Variables are looked up in `known` first, then among the lines before.
pub(crate) fn parse(source: &Source, known: &Variables) -> DotEnv {
    let mut parser =
        Parser { source, at: 0, known, own: Variables::new(), out: Vec::new(), diagnostics: Vec::new() };
    while parser.at < source.text.len() {
        parser.line();
    }
    DotEnv { variables: parser.out, diagnostics: parser.diagnostics }
}

/// A line as it is shown in a message: values may be secrets.
fn masked(line: &str) -> String {
    let shown = line.find('=').map_or(0, |equals| equals + 1);
    line.char_indices().map(|(at, c)| if at < shown || c.is_whitespace() { c } else { '*' }).collect()
}

/// A file of the format `raw`: the value is the rest of the line, quotes and dollars included.
pub(crate) fn raw(source: &Source) -> DotEnv {
    let lines = source.text.lines().map(|line| line.trim_end_matches('\r'));
    let lines = lines.filter(|line| !line.trim().is_empty() && !line.trim_start().starts_with('#'));
    let variable = |line: &str| match line.split_once('=') {
        Some((name, value)) => (name.trim().to_owned(), Some(value.to_owned())),
        None => (line.trim().to_owned(), None),
    };
    DotEnv { variables: lines.map(variable).collect(), diagnostics: Vec::new() }
}

struct Parser<'a> {
    source: &'a Source,
    at: usize,
    known: &'a Variables,
    own: Variables,
    out: Vec<(String, Option<String>)>,
    diagnostics: Vec<Diagnostic>,
}

/// How a value is written.
#[derive(Clone, Copy, PartialEq)]
enum Quotes {
    None,
    Single,
    Double,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.source.text[self.at..]
    }

    fn fail(&mut self, code: Code, start: usize, end: usize, message: String) {
        let mut place = self.source.place(Span { start, end });
        place.source_line = masked(&place.source_line);
        self.diagnostics.push(Diagnostic::at(code, Severity::Error, place, message));
    }

    fn end_of_line(&self) -> usize {
        self.rest().find('\n').map_or(self.source.text.len(), |i| self.at + i)
    }

    fn line(&mut self) {
        let start = self.at;
        let end = self.end_of_line();
        let line = self.source.text[start..end].trim();
        if line.is_empty() || line.starts_with('#') {
            self.at = end + 1;
            return;
        }
        let indent = self.source.text[start..end].find(line).unwrap_or(0);
        let mut from = start + indent;
        if let Some(tail) = line.strip_prefix("export ") {
            from = end.min(from + (line.len() - tail.trim_start().len()));
        }
        let assignment = &self.source.text[from..end];
        let (name, value_at) = match assignment.find('=') {
            Some(equals) => (assignment[..equals].trim(), Some(from + equals + 1)),
            None => (assignment.trim(), None),
        };
        let valid = !name.is_empty()
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-'));
        if !valid {
            self.fail(Code::Malformed, from, end, "expected a line NAME=value".to_owned());
            self.at = end + 1;
            return;
        }
        match value_at {
            Some(at) => {
                self.at = at;
                if let Some(value) = self.value() {
                    self.own.insert(name.to_owned(), value.clone());
                    self.out.push((name.to_owned(), Some(value)));
                }
            }
            None => {
                self.out.push((name.to_owned(), None));
                self.at = end + 1;
            }
        }
    }

    /// The value that starts at the present offset; leaves the offset at the next line.
    fn value(&mut self) -> Option<String> {
        let skipped = self.rest().len() - self.rest().trim_start_matches([' ', '\t']).len();
        self.at += skipped;
        let start = self.at;
        match self.rest().chars().next() {
            Some('\'') => self.quoted(start, '\'', Quotes::Single),
            Some('"') => self.quoted(start, '"', Quotes::Double),
            _ => {
                let end = self.end_of_line();
                let line = &self.source.text[start..end];
                // A comment needs a blank before it: `a#b` is a value.
                let comment = if line.starts_with('#') { Some(0) } else { line.find(" #") };
                let text = line[..comment.unwrap_or(line.len())].trim_end();
                self.at = end + 1;
                self.substituted(text, start, Quotes::None)
            }
        }
    }

    fn quoted(&mut self, start: usize, quote: char, quotes: Quotes) -> Option<String> {
        let mut text = String::new();
        let mut escaped = false;
        let mut end = None;
        for (index, c) in self.rest().char_indices().skip(1) {
            if escaped {
                escaped = false;
                match c {
                    'n' => text.push('\n'),
                    'r' => text.push('\r'),
                    't' => text.push('\t'),
                    '"' | '\\' => text.push(c),
                    // Kept for the substitution, which knows a doubled dollar as a plain one.
                    '$' => text.push_str("$$"),
                    other => {
                        text.push('\\');
                        text.push(other);
                    }
                }
            } else if c == quote {
                end = Some(self.at + index + 1);
                break;
            } else if c == '\\' && quotes == Quotes::Double {
                escaped = true;
            } else {
                text.push(c);
            }
        }
        let Some(end) = end else {
            self.fail(Code::Malformed, start, start + 1, "the quote is never closed".to_owned());
            self.at = self.source.text.len();
            return None;
        };
        self.at = end;
        let line_end = self.end_of_line();
        let tail = self.source.text[end..line_end].trim();
        self.at = line_end + 1;
        if !tail.is_empty() && !tail.starts_with('#') {
            self.fail(Code::Malformed, end, line_end, "unexpected text after the closing quote".to_owned());
            return None;
        }
        self.substituted(&text, start, quotes)
    }

    fn substituted(&mut self, text: &str, start: usize, quotes: Quotes) -> Option<String> {
        if quotes == Quotes::Single || !text.contains('$') {
            return Some(text.to_owned());
        }
        let mut variables = self.own.clone();
        variables.extend(self.known.iter().map(|(k, v)| (k.clone(), v.clone())));
        match interpolate::substitute(text, &variables) {
            Ok(substituted) => Some(substituted.text),
            Err(mistake) => {
                let end = self.at.saturating_sub(1).clamp(start, self.source.text.len());
                // The expression may hold a default, which may be a secret; its message is written for people to see.
                self.fail(mistake.code, start, end, mistake.message);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn variables(text: &str) -> Vec<(String, Option<String>)> {
        let known = Variables::from([("HOME".to_owned(), "/root".to_owned())]);
        let parsed = parse(&Source::new(Path::new(".env"), text), &known);
        assert_eq!(parsed.diagnostics, []);
        parsed.variables
    }

    #[test]
    fn all_kinds_of_lines() {
        let text = "# comment\n\nA=1\nexport B = two words  # comment\nC='$A #'\nD=\"x\\n$A ${HOME}\\$\"\nE=\n\
                    F\nG=a#b\nH='two\nlines'\nI=${A}${B}\n";
        let expected = [
            ("A", Some("1")),
            ("B", Some("two words")),
            ("C", Some("$A #")),
            ("D", Some("x\n1 /root$")),
            ("E", Some("")),
            ("F", None),
            ("G", Some("a#b")),
            ("H", Some("two\nlines")),
            ("I", Some("1two words")),
        ];
        let expected: Vec<_> = expected.map(|(k, v)| (k.to_owned(), v.map(str::to_owned))).into();
        assert_eq!(variables(text), expected);
    }

    #[test]
    fn mistakes_have_places() {
        for (text, line) in [("A=1\nbad line here\n", 2), ("A=\"x\n", 1), ("A='x' y\n", 1), ("\nA=${\n", 2)] {
            let parsed = parse(&Source::new(Path::new(".env"), text), &Variables::new());
            let lines: Vec<_> =
                parsed.diagnostics.iter().filter_map(|d| d.place.as_ref()).map(|p| p.line).collect();
            assert_eq!(lines, [line], "{text:?}");
        }
    }

    #[test]
    fn line_ends_of_windows_are_no_part_of_values() {
        assert_eq!(variables("A=1\r\nB=2\r\n")[0], ("A".to_owned(), Some("1".to_owned())));
    }
}

//! Statements of a Python source file: which lines belong together, which are docstrings, and which are excluded.
//!
//! This is no parser. It knows strings, comments, brackets and indentation ("Lexical analysis" of the Python language reference), as
//! much as it takes to find logical lines.

use std::collections::{BTreeMap, BTreeSet};

/// A logical line: a statement, or the head of one that has a block.
struct Logical {
    first: u32,
    last: u32,
    /// Columns before it. A tab goes on to the next multiple of eight.
    indent: usize,
    /// It ends with a colon, so a block follows.
    head: bool,
    /// Its first word.
    word: String,
    /// It is nothing but strings.
    string: bool,
    /// A comment in it says that it does not count.
    excluded: bool,
}

/// What is known of a file. Of an empty one nothing: each line is a statement.
#[derive(Default)]
pub(super) struct Source {
    /// Lines of statements over several lines but their first ones, and the first one.
    first: BTreeMap<u32, u32>,
    /// Lines that do not count.
    without: BTreeSet<u32>,
}

impl Source {
    pub(super) fn new(text: &str) -> Source {
        let lines = logical(text);
        let mut source = Source::default();
        for line in &lines {
            source.first.extend((line.first + 1..=line.last).map(|other| (other, line.first)));
        }
        // Whether the next statement could be the documentation of a module, class or function.
        let mut documented = true;
        // Of an excluded head: what is indented more than it.
        let mut excluding: Option<usize> = None;
        let mut decorated = false;
        for line in &lines {
            let docstring = documented && line.string;
            documented = line.head && matches!(line.word.as_str(), "def" | "class" | "async");
            if excluding.is_some_and(|indent| line.indent <= indent) {
                excluding = None;
            }
            // A function is excluded by its decorators too.
            let excluded = excluding.is_some() || line.excluded || decorated;
            decorated = excluded && line.word.starts_with('@');
            if excluded && line.head && excluding.is_none() {
                excluding = Some(line.indent);
            }
            if docstring || excluded {
                source.without.insert(line.first);
            }
        }
        source
    }

    /// The line by which the statement of a line is counted; `None` if it does not count.
    pub(super) fn statement(&self, line: u32) -> Option<u32> {
        let first = self.first.get(&line).copied().unwrap_or(line);
        (!self.without.contains(&first)).then_some(first)
    }
}

/// `# pragma: no cover`, in the spellings that coverage.py takes.
fn is_pragma(comment: &str) -> bool {
    let comment = comment.trim_start_matches('#').trim_start();
    let Some(rest) = comment.strip_prefix("pragma").or_else(|| comment.strip_prefix("PRAGMA")) else {
        return false;
    };
    let rest = rest.trim_start_matches(':').trim_start().to_ascii_lowercase();
    rest.strip_prefix("no").is_some_and(|rest| rest.trim_start().starts_with("cover"))
}

/// What is read so far of a logical line.
#[derive(Default)]
struct Reader {
    /// Brackets that are open.
    depth: usize,
    /// The quote of a string that has begun, and whether three of them end it.
    quoted: Option<(char, bool)>,
    /// The last character that is no space and stands in no comment.
    last: char,
    /// The line ends with a backslash.
    joined: bool,
}

impl Reader {
    /// Reads a line, or what is left of it. `string` becomes false if there is more than strings, `excluded` true at such a comment.
    fn line(&mut self, line: &str, string: &mut bool, excluded: &mut bool) {
        self.joined = false;
        let mut rest = line;
        while let Some(c) = rest.chars().next() {
            let after = &rest[c.len_utf8()..];
            rest = match self.quoted {
                Some((quote, triple)) => self.in_string(c, after, quote, triple),
                None => match c {
                    '#' => {
                        *excluded |= is_pragma(rest);
                        return;
                    }
                    '"' | '\'' => {
                        let triple = three(after, c);
                        (self.quoted, self.last) = (Some((c, triple)), c);
                        if triple { &after[2..] } else { after }
                    }
                    '\\' if after.is_empty() => {
                        self.joined = true;
                        return;
                    }
                    c => {
                        match c {
                            '(' | '[' | '{' => self.depth += 1,
                            ')' | ']' | '}' => self.depth = self.depth.saturating_sub(1),
                            _ => {}
                        }
                        if !c.is_whitespace() {
                            (*string, self.last) = (false, c);
                        }
                        after
                    }
                },
            };
        }
        // Only a string in three quotes, or one with a backslash before the line's end, goes on.
        self.quoted = self.quoted.filter(|(_, triple)| *triple || self.joined);
    }

    /// What is left after a character in a string.
    fn in_string<'t>(&mut self, c: char, after: &'t str, quote: char, triple: bool) -> &'t str {
        match c {
            // Whatever follows, the line's end too, does not end the string.
            '\\' => {
                self.joined |= after.is_empty();
                after.chars().next().map_or(after, |c| &after[c.len_utf8()..])
            }
            c if c == quote && !triple => {
                self.quoted = None;
                after
            }
            c if c == quote && three(after, quote) => {
                self.quoted = None;
                &after[2..]
            }
            _ => after,
        }
    }

    fn is_whole(&self) -> bool {
        self.depth == 0 && self.quoted.is_none() && !self.joined
    }
}

/// Whether two more quotes follow.
fn three(after: &str, quote: char) -> bool {
    after.strip_prefix(quote).is_some_and(|after| after.starts_with(quote))
}

/// The logical lines of a text.
fn logical(text: &str) -> Vec<Logical> {
    let mut all: Vec<Logical> = Vec::new();
    let mut open: Option<(Logical, Reader)> = None;
    for (number, line) in (1_u32..).zip(text.lines()) {
        let mut rest = line;
        if open.is_none() {
            let Some((logical, start)) = begin(number, line) else { continue };
            (open, rest) = (Some((logical, Reader::default())), start);
        }
        let Some((current, reader)) = &mut open else { continue };
        current.last = number;
        reader.line(rest, &mut current.string, &mut current.excluded);
        current.head = reader.last == ':';
        if reader.is_whole() {
            all.extend(open.take().map(|(logical, _)| logical));
        }
    }
    all.extend(open.map(|(logical, _)| logical));
    all
}

/// The logical line that begins in a line, and the text from where strings matter; `None` if nothing but a comment is there.
fn begin(number: u32, line: &str) -> Option<(Logical, &str)> {
    let start = line.trim_start_matches([' ', '\t', '\x0c', '\u{feff}']);
    if start.is_empty() || start.starts_with('#') {
        return None;
    }
    let columns = |column: usize, c| if c == '\t' { (column / 8 + 1) * 8 } else { column + 1 };
    let indent = line[..line.len() - start.len()].chars().fold(0, columns);
    let end = start.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '@'))).unwrap_or(start.len());
    // The prefix of a string is no word: r"", Rb"".
    let prefix = start.find(['"', '\'']).filter(|at| *at <= 2);
    let prefix = prefix.filter(|at| start[..*at].chars().all(|c| "rRbBuUfFtT".contains(c)));
    let logical = Logical {
        first: number,
        last: number,
        indent,
        head: false,
        word: start[..end].to_owned(),
        string: true,
        excluded: false,
    };
    Some((logical, &start[prefix.unwrap_or(0)..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "#!/usr/bin/python3
\"\"\"Documentation
of two lines.\"\"\"
import os

def f(a,
      b):
    r'''Documentation.'''
    x = call(a,  # with a comment (
             \"b # no comment\")
    return x + \\
        1

@decorator  # pragma: no cover
def g():
    return 1

class C:
    'Documentation.'
    if debug:  # pragma: NO COVER
        one()

        two()
    else:
        'no documentation'
    y = '''
text
'''
";

    #[test]
    fn statements_are_found() {
        let source = Source::new(TEXT);
        let expected = [
            (2, None),
            (3, None),
            (4, Some(4)),
            (6, Some(6)),
            (7, Some(6)),
            (8, None),
            (9, Some(9)),
            (10, Some(9)),
            (11, Some(11)),
            (12, Some(11)),
            (14, None),
            (15, None),
            (16, None),
            (18, Some(18)),
            (19, None),
            (20, None),
            (21, None),
            (23, None),
            (24, Some(24)),
            (25, Some(25)),
            (26, Some(26)),
            (27, Some(26)),
            (28, Some(26)),
        ];
        for (line, statement) in expected {
            assert_eq!(source.statement(line), statement, "line {line}");
        }
    }

    #[test]
    fn any_text_is_read() {
        for text in ["'", "'''", "\"\\", "(((", "\\", ")\n:", "\u{feff}x", "def", "\t\u{e9}'\u{e9}\\\u{e9}'"]
        {
            let source = Source::new(text);
            assert!(source.statement(1).is_none_or(|line| line == 1), "{text:?}");
        }
    }
}

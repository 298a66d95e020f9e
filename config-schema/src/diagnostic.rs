//! Diagnostics: what is wrong in a file of the user's, where, and what to do about it.
//!
//! Key types: [`Diagnostic`], [`Code`], [`Severity`], [`Place`]. A diagnostic is self-contained (it carries
//! its source line), so it outlives the file that it speaks of. `render` turns it into text for people, JSON
//! for machines and workflow commands for GitHub; `decode` and the decoders produce them.

use std::fmt;

/// How much a diagnostic matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The file cannot be used.
    Error,
    /// The file can be used, but something in it has no effect or is probably not what was meant.
    Warning,
}

impl Severity {
    /// The word that names the severity in every output format.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        }
    }
}

macro_rules! codes {
    ($($name:ident = $code:literal $meaning:literal,)*) => {
        /// The stable identity of a kind of diagnostic. A code is never given a second meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Code { $(#[doc = $meaning] $name,)* }

        impl Code {
            /// Every code, in the order of its number.
            pub const ALL: &'static [Code] = &[$(Code::$name,)*];

            /// The code as it is printed, such as `BH0011`.
            pub fn as_str(self) -> &'static str {
                match self { $(Code::$name => $code,)* }
            }

            /// What the code stands for, in a few words.
            pub fn meaning(self) -> &'static str {
                match self { $(Code::$name => $meaning,)* }
            }
        }
    };
}

codes! {
    Unreadable = "BH0001" "a file cannot be read",
    Syntax = "BH0002" "a file is not valid YAML",
    DuplicateKey = "BH0003" "a key appears twice in one mapping",
    Limit = "BH0004" "a file is too large or too deeply nested",
    WrongType = "BH0010" "a value has the wrong type",
    UnknownKey = "BH0011" "a key is not known",
    MissingKey = "BH0012" "a required key is missing",
    UnknownValue = "BH0013" "a value is not one of the allowed ones",
    OutOfRange = "BH0014" "a number is out of range or too fine",
    BadDuration = "BH0015" "a duration cannot be understood",
    Malformed = "BH0016" "a text value cannot be understood",
    ReversedRange = "BH0017" "the bounds of a range are in the wrong order",
    DuplicateName = "BH0018" "a name is used twice",
    UnknownOperation = "BH0019" "an operation is not part of the workload",
    UnknownService = "BH0020" "a service does not exist",
    MissingFile = "BH0021" "a file or directory does not exist",
    NotExecutable = "BH0022" "a script cannot be executed",
    NothingToDo = "BH0023" "a section leaves nothing to do",
    Conflict = "BH0024" "two settings exclude each other",
    Widened = "BH0025" "a check covers more than it names",
    NotAvailableYet = "BH0030" "a setting is known but has no effect yet",
    BadInterpolation = "BH0040" "a ${variable} cannot be understood",
    RequiredVariable = "BH0041" "a required variable is not set",
    UnsetVariable = "BH0042" "a variable is not set",
    ImageNotSupported = "BH0050" "images are not supported yet",
    BuildNotSupported = "BH0051" "images are not built",
    ComposeKeyNotModelled = "BH0052" "a compose setting has no effect in the simulation",
    ComposeNotSupported = "BH0053" "a compose setting is not supported",
    DependencyCycle = "BH0054" "services depend on each other in a circle",
    UnknownResource = "BH0055" "a network or volume is not declared",
    MissingCommand = "BH0056" "a service has no command to run",
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A stretch of one line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file's path as it was given.
    pub file: String,
    /// Line, counted from 1.
    pub line: u32,
    /// First character, counted from 1 in characters (not bytes).
    pub column: u32,
    /// The character after the last one, counted from 1; greater than `column`.
    pub end_column: u32,
    /// The whole line without its line break.
    pub source_line: String,
}

/// One thing to tell about a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Which kind it is.
    pub code: Code,
    /// Whether the file can be used nevertheless.
    pub severity: Severity,
    /// What is wrong, in one sentence without a full stop.
    pub message: String,
    /// The file it is about, as its path was given.
    pub file: String,
    /// Where in the file; `None` if it is about the file as a whole.
    pub place: Option<Place>,
    /// A few words to stand under the marked text; may be empty.
    pub label: String,
    /// A second place that explains the first, with its label (the first of two equal names, for instance).
    pub related: Option<(Place, String)>,
    /// What is allowed or what to do.
    pub help: Vec<String>,
    /// What was probably meant: a replacement for the marked text.
    pub suggestion: Option<String>,
}

impl Diagnostic {
    /// A diagnostic about a whole file.
    pub fn about_file(code: Code, severity: Severity, file: &str, message: impl Into<String>) -> Diagnostic {
        Diagnostic {
            code,
            severity,
            message: printable(message.into()),
            file: file.to_owned(),
            place: None,
            label: String::new(),
            related: None,
            help: Vec::new(),
            suggestion: None,
        }
    }

    /// A diagnostic about a place in a file.
    pub fn at(code: Code, severity: Severity, place: Place, message: impl Into<String>) -> Diagnostic {
        let mut diagnostic = Diagnostic::about_file(code, severity, &place.file, message);
        diagnostic.place = Some(place);
        diagnostic
    }

    /// Sets the words under the marked text.
    pub fn label(&mut self, label: impl Into<String>) -> &mut Self {
        self.label = printable(label.into());
        self
    }

    /// Adds a line that says what is allowed or what to do.
    pub fn help(&mut self, help: impl Into<String>) -> &mut Self {
        self.help.push(printable(help.into()));
        self
    }

    /// Sets the probable replacement of the marked text, if there is one.
    pub fn suggest(&mut self, suggestion: Option<impl Into<String>>) -> &mut Self {
        self.suggestion = suggestion.map(|text| printable(text.into()));
        self
    }

    /// Points at a second place.
    pub fn relate(&mut self, place: Place, label: impl Into<String>) -> &mut Self {
        self.related = Some((place, printable(label.into())));
        self
    }

    /// Whether the file cannot be used.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The key by which diagnostics are put into the order of the file.
    fn order(&self) -> (&str, u32, u32, Severity, Code) {
        let (line, column) = self.place.as_ref().map_or((0, 0), |p| (p.line, p.column));
        (&self.file, line, column, self.severity, self.code)
    }
}

/// Whether at least one diagnostic is an error.
pub fn has_errors(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(Diagnostic::is_error)
}

/// Puts diagnostics into the order of files and lines and drops repetitions (an anchored value that
/// is used in several places is decoded, and complained about, once for each).
pub(crate) fn sort(diagnostics: &mut Vec<Diagnostic>) {
    diagnostics.sort_by(|a, b| a.order().cmp(&b.order()));
    diagnostics.dedup();
}

/// Texts of the user's may be part of any message: their control characters must not reach a terminal, nor may
/// their line breaks end a workflow command.
fn printable(text: String) -> String {
    if !text.contains(char::is_control) {
        return text;
    }
    let mut out = String::new();
    for c in text.chars() {
        if c.is_control() { out.extend(c.escape_debug()) } else { out.push(c) }
    }
    out
}

/// Quotes a value of the user's for a message: control characters escaped, long texts cut.
pub(crate) fn quoted(text: &str) -> String {
    const LONGEST: usize = 60;
    let mut out = String::from("`");
    for (count, c) in text.chars().enumerate() {
        if count == LONGEST {
            out.push('…');
            break;
        }
        if c.is_control() {
            out.extend(c.escape_debug());
        } else {
            out.push(c);
        }
    }
    out.push('`');
    out
}

/// Joins words as in "a, b and c"; `last` is the word before the final one.
pub(crate) fn listed<T: AsRef<str>>(words: &[T], last: &str) -> String {
    match words {
        [] => String::new(),
        [one] => format!("`{}`", one.as_ref()),
        [init @ .., end] => {
            let init: Vec<String> = init.iter().map(|w| format!("`{}`", w.as_ref())).collect();
            format!("{} {last} `{}`", init.join(", "), end.as_ref())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_ascending() {
        for pair in Code::ALL.windows(2) {
            assert!(pair[0].as_str() < pair[1].as_str(), "{} before {}", pair[0], pair[1]);
        }
    }

    #[test]
    fn values_are_quoted_without_control_characters() {
        assert_eq!(quoted("a\tb\u{1b}[0m"), "`a\\tb\\u{1b}[0m`");
        assert_eq!(quoted(&"x".repeat(80)).chars().count(), 63);
    }

    #[test]
    fn lists_read_as_english() {
        assert_eq!(listed::<&str>(&[], "or"), "");
        assert_eq!(listed(&["a"], "or"), "`a`");
        assert_eq!(listed(&["a", "b", "c"], "or"), "`a`, `b` or `c`");
    }
}

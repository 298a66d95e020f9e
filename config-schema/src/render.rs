//! Diagnostics as text for people, as JSON for machines and as workflow commands for GitHub.
//!
//! Functions: [`text`], [`json`], [`github`]. Input is [`Diagnostic`]; nothing is read from files or from the
//! environment: whether to colour is the caller's decision (not a terminal or `NO_COLOR` set: plain).

use annotate_snippets::{AnnotationKind, Group, Level, Renderer, Snippet};

use crate::diagnostic::{Diagnostic, Place, Severity};

/// Longest stretch of a source line that is shown.
const WIDTH: usize = 200;

/// The diagnostic as people read it: message, place with source line, help. Ends with a line break.
pub fn text(diagnostic: &Diagnostic, colour: bool) -> String {
    let level = match diagnostic.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let window = diagnostic.place.as_ref().map(Window::new);
    let related =
        diagnostic.related.as_ref().map(|(place, label)| (place, Window::new(place), label.as_str()));
    let title = level.primary_title(diagnostic.message.as_str()).id(diagnostic.code.as_str());
    let mut group = match (&diagnostic.place, &window) {
        (Some(place), Some(window)) => {
            let mut snippet = Snippet::source(window.text.as_str())
                .line_start(place.line as usize)
                .path(place.file.as_str())
                .annotation(
                    AnnotationKind::Primary.span(window.marked.clone()).label(diagnostic.label.as_str()),
                );
            // A place on the same line is marked in the same picture.
            if let Some((_, other, label)) = related.as_ref().filter(|(p, _, _)| p.line == place.line) {
                snippet =
                    snippet.annotation(AnnotationKind::Context.span(other.marked.clone()).label(*label));
            }
            let mut group = title.element(snippet);
            if let Some((p, other, label)) = related.as_ref().filter(|(p, _, _)| p.line != place.line) {
                group = group.element(
                    Snippet::source(other.text.as_str())
                        .line_start(p.line as usize)
                        .path(p.file.as_str())
                        .annotation(AnnotationKind::Context.span(other.marked.clone()).label(*label)),
                );
            }
            group
        }
        _ => Group::with_title(title),
    };
    let meant = diagnostic.suggestion.as_ref().map(|s| format!("did you mean `{s}`?"));
    for help in meant.iter().chain(&diagnostic.help) {
        group = group.element(Level::HELP.message(help.as_str()));
    }
    let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
    let mut out = renderer.render(&[group]);
    out.push('\n');
    out
}

/// A source line cut to a width that can be shown, and the marked bytes in it.
struct Window {
    text: String,
    marked: std::ops::Range<usize>,
}

impl Window {
    fn new(place: &Place) -> Window {
        let column = place.column.saturating_sub(1) as usize;
        let skip = column.saturating_sub(WIDTH / 2);
        let mut text = String::new();
        let mut marked = None;
        let mut end = 0;
        let last = place.end_column.saturating_sub(2) as usize;
        for (index, c) in place.source_line.chars().enumerate().skip(skip).take(WIDTH) {
            if index == column {
                marked = Some(text.len());
            }
            // Control characters could move the cursor; YAML allows no others than the tab.
            text.push(if c.is_control() { ' ' } else { c });
            if index <= last {
                end = text.len();
            }
        }
        let start = marked.unwrap_or(text.len());
        if start == text.len() {
            text.push(' ');
        }
        let end = end.max(start + text[start..].chars().next().map_or(0, char::len_utf8));
        Window { marked: start..end, text }
    }
}

/// The diagnostic as one JSON object with the keys `code`, `severity`, `message`, `file`, `line`, `column`,
/// `end_column`, `source_line`, `label`, `help`, `suggestion`, `related`; what is absent is null.
pub fn json(diagnostic: &Diagnostic) -> serde_json::Value {
    let place = diagnostic.place.as_ref();
    let related = diagnostic.related.as_ref().map(|(p, label)| {
        serde_json::json!({
            "file": p.file, "line": p.line, "column": p.column, "end_column": p.end_column, "label": label,
        })
    });
    serde_json::json!({
        "code": diagnostic.code.as_str(),
        "severity": diagnostic.severity.as_str(),
        "message": diagnostic.message,
        "file": diagnostic.file,
        "line": place.map(|p| p.line),
        "column": place.map(|p| p.column),
        "end_column": place.map(|p| p.end_column),
        "source_line": place.map(|p| p.source_line.as_str()),
        "label": (!diagnostic.label.is_empty()).then_some(diagnostic.label.as_str()),
        "help": diagnostic.help,
        "suggestion": diagnostic.suggestion,
        "related": related,
    })
}

/// The diagnostic as a GitHub workflow command, `::error file=,line=,col=::message`, without a line break.
///
/// Source: GitHub documentation, "Workflow commands for GitHub Actions"; `%`, CR and LF are escaped in the
/// message, and `:` and `,` in properties as well.
pub fn github(diagnostic: &Diagnostic) -> String {
    let mut out = format!("::{} file={}", diagnostic.severity.as_str(), property(&diagnostic.file));
    if let Some(place) = &diagnostic.place {
        let (line, column, end) = (place.line, place.column, place.end_column);
        out += &format!(",line={line},endLine={line},col={column},endColumn={end}");
    }
    out += &format!(",title={}", property(diagnostic.code.as_str()));
    let mut message = diagnostic.message.clone();
    if let Some(meant) = &diagnostic.suggestion {
        message += &format!("\ndid you mean `{meant}`?");
    }
    for help in &diagnostic.help {
        message.push('\n');
        message += help;
    }
    format!("{out}::{}", escape(&message))
}

fn escape(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    escape(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnostic::Code;

    fn sample() -> Diagnostic {
        let place = Place {
            file: "a,b.yaml".to_owned(),
            line: 12,
            column: 3,
            end_column: 7,
            source_line: "  drpo: 0.1".to_owned(),
        };
        let mut d = Diagnostic::at(Code::UnknownKey, Severity::Error, place, "unknown key `drpo`");
        d.help("100% sure").suggest(Some("drop"));
        d
    }

    #[test]
    fn text_points_at_the_place() {
        assert_eq!(
            text(&sample(), false),
            "error[BH0011]: unknown key `drpo`\n  --> a,b.yaml:12:3\n   |\n12 |   drpo: 0.1\n   |   ^^^^\n   |\n   = \
             help: did you mean `drop`?\n   = help: 100% sure\n"
        );
        assert!(text(&sample(), true).contains("\u{1b}["));
    }

    #[test]
    fn github_escapes_what_its_syntax_needs() {
        assert_eq!(
            github(&sample()),
            "::error file=a%2Cb.yaml,line=12,endLine=12,col=3,endColumn=7,title=BH0011::unknown key `drpo`%0A\
             did you mean `drop`?%0A100%25 sure"
        );
    }

    #[test]
    fn json_has_every_part() {
        let value = json(&sample());
        assert_eq!(value["code"], "BH0011");
        assert_eq!(value["line"], 12);
        assert_eq!(value["suggestion"], "drop");
        assert_eq!(value["related"], serde_json::Value::Null);
    }

    #[test]
    fn long_lines_and_ends_of_lines_are_shown() {
        let line = format!("key: {}!", "é".repeat(1000));
        for column in [1, 500, 1006, 1007] {
            let place = Place {
                file: "f".to_owned(),
                line: 1,
                column,
                end_column: column + 1,
                source_line: line.clone(),
            };
            let d = Diagnostic::at(Code::Syntax, Severity::Error, place, "m");
            assert!(text(&d, false).contains('^'), "column {column}");
        }
    }
}

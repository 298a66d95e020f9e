//! A command line split into words as a shell would, without running one.
//!
//! Key function: [`split`]. Compose files may give `command` and `entrypoint` as one text. Quotes and
//! backslashes work as in POSIX XCU 2.2; operators, variables, wildcards and comments do not exist here.

/// Whether what follows `before` is quoted: a text that ends within quotes, or behind a backslash, has no words.
fn quotes(before: &str) -> bool {
    shlex::split(before).is_none()
}

/// Splits a text into words. The error says what is wrong.
pub(crate) fn split(text: &str) -> Result<Vec<String>, String> {
    for (at, c) in text.char_indices() {
        let before = &text[..at];
        let begins_word = before.chars().next_back().is_none_or(|c| c.is_ascii_whitespace());
        if matches!(c, ';' | '|' | '&' | '<' | '>') && !quotes(before) {
            return Err(format!("`{c}` needs a shell, and the text is not run by one"));
        }
        if c == '#' && begins_word && !quotes(before) {
            return Err("`#` begins a comment in a shell, and the text is not run by one: put it in quotes"
                .to_owned());
        }
    }
    shlex::split(&joined(text)).ok_or_else(|| unfinished(text).to_owned())
}

/// What is missing at the end of a text that cannot be split.
fn unfinished(text: &str) -> &'static str {
    if !quotes(&format!("{text}'")) {
        "a single quote is never closed"
    } else if !quotes(&format!("{text}\"")) {
        "a double quote is never closed"
    } else {
        "the backslash at the end has nothing to escape"
    }
}

/// The text with lines joined that a backslash continues (XCU 2.2.1): the library takes a continuation between two words for a word
/// without letters.
fn joined(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for piece in text.split_inclusive('\n') {
        out.push_str(piece);
        let continued = out.strip_suffix("\\\n").filter(|before| !quotes(before)).map(str::len);
        out.truncate(continued.unwrap_or(out.len()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_quotes() {
        let split = |text| split(text).unwrap();
        assert_eq!(split("a  b\tc\nd"), ["a", "b", "c", "d"]);
        assert_eq!(split("a'b c'\"d e\"f"), ["ab cd ef"]);
        assert_eq!(split(r#"a\ b "x\"y\z" 'q\'"#), ["a b", r#"x"y\z"#, r"q\"]);
        assert_eq!(split("'' \"\""), ["", ""]);
        assert_eq!(split("a \\\n b"), ["a", "b"]);
        assert!(split(" ").is_empty());
    }

    #[test]
    fn what_needs_a_shell_is_refused() {
        for text in ["a && b", "a; b", "a > b", "a | b", "'a", "\"a", "a\\", "a #b", "#"] {
            assert!(super::split(text).is_err(), "{text}");
        }
        assert!(super::split("'a && b' a\\;b c#d '#e' \"a;#\"").is_ok());
    }
}

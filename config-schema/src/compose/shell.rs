//! A command line split into words as a shell would, without running one.
//!
//! Key function: [`split`]. Compose files may give `command` and `entrypoint` as one text. Quotes and
//! backslashes work as in POSIX XCU 2.2; operators, variables and wildcards do not exist here.

/// Splits a text into words. The error says what is wrong.
pub(crate) fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            c if c.is_ascii_whitespace() => words.extend(word.take()),
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('\'') => break,
                        Some(c) => word.push(c),
                        None => return Err("a single quote is never closed".to_owned()),
                    }
                }
            }
            '"' => double_quoted(&mut chars, word.get_or_insert_default())?,
            '\\' => match chars.next() {
                // A line that ends with a backslash goes on in the next one.
                Some('\n') => {}
                Some(c) => word.get_or_insert_default().push(c),
                None => return Err("the backslash at the end has nothing to escape".to_owned()),
            },
            ';' | '|' | '&' | '<' | '>' => {
                return Err(format!("`{c}` needs a shell, and the text is not run by one"));
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

fn double_quoted(chars: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), String> {
    let unclosed = || "a double quote is never closed".to_owned();
    loop {
        match chars.next().ok_or_else(unclosed)? {
            '"' => return Ok(()),
            // XCU 2.2.3: within double quotes a backslash escapes only these.
            '\\' => match chars.next().ok_or_else(unclosed)? {
                '\n' => {}
                c @ ('$' | '`' | '"' | '\\') => word.push(c),
                c => {
                    word.push('\\');
                    word.push(c);
                }
            },
            c => word.push(c),
        }
    }
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
        for text in ["a && b", "a; b", "a > b", "a | b", "'a", "\"a", "a\\"] {
            assert!(super::split(text).is_err(), "{text}");
        }
        assert!(super::split("'a && b'").is_ok());
    }
}

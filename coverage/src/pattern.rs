//! Patterns of paths in a checkout, as `coverage.include` and `coverage.exclude` have them.

use std::fmt;

/// A pattern. A part may have `*` for any characters and `?` for one; the part `**` stands for any number of directories. A pattern
/// without a slash, or with one at its end only, matches at any depth; others begin at the checkout. What matches a directory
/// matches everything in it; a slash at the end means directories only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    text: String,
    parts: Vec<String>,
    directory: bool,
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl Pattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// What is wrong with it, in words for the user.
    pub fn new(text: &str) -> Result<Pattern, String> {
        let directory = text.ends_with('/');
        let inner = text.trim_end_matches('/');
        let anchored = inner.contains('/');
        let inner = inner.strip_prefix("./").unwrap_or(inner.trim_start_matches('/'));
        if inner.is_empty() {
            return Err(format!("{text:?} names no file: write a pattern such as src/**/*.c"));
        }
        let mut parts: Vec<String> = Vec::new();
        if !anchored {
            parts.push("**".to_owned());
        }
        for part in inner.split('/') {
            match part {
                ".." => return Err(format!("{text:?} leads out of the checkout: leave out ..")),
                "" | "." => {}
                // Two in a row say the same as one.
                "**" if parts.last().is_some_and(|last| last == "**") => {}
                part => parts.push(part.to_owned()),
            }
        }
        Ok(Pattern { text: text.to_owned(), parts, directory })
    }

    /// Whether a path in the checkout, with `/` between its parts, matches.
    pub fn matches(&self, path: &str) -> bool {
        let path: Vec<&str> = path.split('/').collect();
        // reached[i]: the pattern's first parts, as many as were looked at, match the path's first i parts.
        let mut reached = vec![false; path.len() + 1];
        reached[0] = true;
        for part in &self.parts {
            let mut next = vec![false; path.len() + 1];
            if part == "**" {
                let mut any = false;
                for (next, reached) in next.iter_mut().zip(&reached) {
                    any |= *reached;
                    *next = any;
                }
            } else {
                for (index, name) in path.iter().enumerate() {
                    next[index + 1] = reached[index] && glob(part.as_bytes(), name.as_bytes());
                }
            }
            reached = next;
        }
        let ends = if self.directory { &reached[..path.len()] } else { &reached[..] };
        ends.iter().skip(1).any(|reached| *reached)
    }
}

/// Whether a name matches a part of a pattern: time is at most the product of both lengths.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(b'?') => (p, n) = (p + 1, n + 1),
            Some(byte) if *byte == name[n] => (p, n) = (p + 1, n + 1),
            _ => match &mut star {
                Some((at, from)) => {
                    *from += 1;
                    (p, n) = (*at + 1, *from);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    fn matches(pattern: &str, path: &str) -> bool {
        Pattern::new(pattern).expect("a pattern").matches(path)
    }

    #[test]
    fn patterns_match_as_documented() {
        assert!(matches("*_test.go", "a/b/kv_test.go") && !matches("*_test.go", "a/kv_test.go.c"));
        assert!(matches("tests/", "a/tests/b.rs") && !matches("tests/", "a/tests"));
        assert!(matches("tests", "a/tests") && matches("tests", "tests/b"));
        assert!(
            matches("src/*.c", "src/a.c")
                && !matches("src/*.c", "src/b/a.c")
                && !matches("src/*.c", "x/src/a.c")
        );
        assert!(matches("src/**/*.c", "src/a.c") && matches("src/**/*.c", "src/b/c/a.c"));
        assert!(matches("src/**", "src/a.c") && matches("/src", "src/a.c") && matches("./src/", "src/a.c"));
        assert!(matches("a?c", "abc") && !matches("a?c", "ac") && matches("[id].ts", "pages/[id].ts"));
        assert!(!matches("/src", "x/src/a.c") && !matches("./src/", "x/src/a.c"));
    }

    #[test]
    fn what_is_no_pattern_is_refused() {
        assert!(Pattern::new("").is_err() && Pattern::new("/").is_err() && Pattern::new("../a").is_err());
    }

    #[test]
    fn hostile_patterns_take_no_time() {
        let pattern = "**/*a*a*a*a*a*a*a*a/".repeat(40);
        assert!(!matches(&pattern, &"a".repeat(4000)));
    }
}

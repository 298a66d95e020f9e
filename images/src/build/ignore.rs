//! `.dockerignore`: which files of a context a build does not see. Patterns are those of Go's filepath.Match with `**` for any number of
//! directories; the last that fits decides, and one that begins with `!` takes back.

use std::path::Path;

use crate::error::{Error, ErrorKind};
use crate::store::read_bounded;

/// Bytes of such a file, at most.
const FILE: u64 = 1 << 20;

struct Pattern {
    parts: Vec<Vec<char>>,
    exception: bool,
}

/// The patterns of a context.
#[derive(Default)]
pub(super) struct Ignore(Vec<Pattern>);

impl Ignore {
    /// Those of a context: of the file that belongs to the Dockerfile, or of the one for all.
    pub(super) fn of(dir: &Path, dockerfile: Option<&Path>) -> Result<Ignore, Error> {
        let own = dockerfile.map(|path| {
            let mut name = path.as_os_str().to_owned();
            name.push(".dockerignore");
            name.into()
        });
        let shared = [".dockerignore", ".containerignore"].map(|name| dir.join(name));
        for path in own.into_iter().chain(shared) {
            match read_bounded(&path, FILE) {
                Ok(bytes) => return Ok(Ignore::parse(&String::from_utf8_lossy(&bytes))),
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(Ignore::default())
    }

    fn parse(text: &str) -> Ignore {
        let lines = text.trim_start_matches('\u{feff}').lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let pattern = |line: &str| {
            let (exception, rest) = match line.strip_prefix('!') {
                Some(rest) => (true, rest.trim()),
                None => (false, line),
            };
            let parts = rest.split('/').filter(|part| !part.is_empty() && *part != ".");
            Pattern { parts: parts.map(|part| part.chars().collect()).collect(), exception }
        };
        Ignore(lines.map(pattern).filter(|pattern| !pattern.parts.is_empty()).collect())
    }

    /// Whether something below an ignored directory may count all the same.
    pub(super) fn has_exceptions(&self) -> bool {
        self.0.iter().any(|pattern| pattern.exception)
    }

    /// Whether a path of the context does not count.
    pub(super) fn ignores(&self, path: &Path) -> bool {
        let parts: Vec<Vec<char>> =
            path.iter().map(|part| part.to_string_lossy().chars().collect()).collect();
        let mut ignored = false;
        for pattern in &self.0 {
            // A pattern that fits a directory fits everything in it.
            if pattern.exception == ignored
                && (1..=parts.len()).any(|end| fits(&pattern.parts, &parts[..end]))
            {
                ignored = !pattern.exception;
            }
        }
        ignored
    }
}

fn fits(pattern: &[Vec<char>], path: &[Vec<char>]) -> bool {
    match pattern.split_first() {
        None => path.is_empty(),
        Some((first, rest)) if first == &['*', '*'] => {
            (0..=path.len()).any(|skipped| fits(rest, &path[skipped..]))
                && !(rest.is_empty() && path.is_empty())
        }
        Some((first, rest)) => match path.split_first() {
            Some((part, below)) => word(first, part) && fits(rest, below),
            None => false,
        },
    }
}

/// One part of a path: `*`, `?`, `[a-z]`, and a backslash before what is meant as it is.
fn word(pattern: &[char], text: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['*', rest @ ..] => (0..=text.len()).any(|skipped| word(rest, &text[skipped..])),
        ['?', rest @ ..] => !text.is_empty() && word(rest, &text[1..]),
        ['\\', c, rest @ ..] => text.first() == Some(c) && word(rest, &text[1..]),
        ['[', rest @ ..] => {
            let Some(end) = rest.iter().position(|c| *c == ']') else { return false };
            let (mut class, rest) = (&rest[..end], &rest[end + 1..]);
            let Some(c) = text.first() else { return false };
            let negated = class.first() == Some(&'^');
            if negated {
                class = &class[1..];
            }
            let mut found = false;
            while let Some((from, after)) = class.split_first() {
                class = after;
                if let ['-', to, after @ ..] = class {
                    found |= (from..=to).contains(&c);
                    class = after;
                } else {
                    found |= from == c;
                }
            }
            found != negated && word(rest, &text[1..])
        }
        [c, rest @ ..] => text.first() == Some(c) && word(rest, &text[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_docker_s() {
        let ignore =
            Ignore::parse("# comment\n*/temp*\n/build\n*.md\n!README.md\n**/node_modules\nx[0-9].?\n");
        for (path, ignored) in [
            ("a/temporary/file", true),
            ("a/b/temp", false),
            ("build/out", true),
            ("a/build", false),
            ("CHANGES.md", true),
            ("README.md", false),
            ("docs/CHANGES.md", false),
            ("a/b/node_modules/c", true),
            ("node_modules", true),
            ("x7.c", true),
            ("xx.c", false),
        ] {
            assert_eq!(ignore.ignores(Path::new(path)), ignored, "{path}");
        }
    }
}

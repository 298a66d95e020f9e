//! The first line of a script: interpreter and argument (execve(2), "Interpreter scripts"; `load_script` of Linux).

/// Bytes of a file that are looked at (BINPRM_BUF_SIZE).
const HEAD: usize = 256;

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// The bytes before the first 0.
fn text(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().take_while(|byte| *byte != 0).collect()
}

/// Interpreter and its one optional argument, which may be cut, as the interpreter can read it again; `None` where there is no interpreter, or where it might be
/// cut. `head` is the beginning of a file that begins with `#!`.
pub(crate) fn interpreter(head: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let mut line = head[2..head.len().min(HEAD)].to_vec();
    line.resize(HEAD - 2, 0);
    let last = line.len() - 1;
    let not_blank = |from: usize, to: usize, line: &[u8]| {
        Some(from + line.get(from..=to)?.iter().position(|byte| !is_blank(byte))?)
    };
    let ends_name = |from: usize, to: usize, line: &[u8]| {
        Some(from + line.get(from..=to)?.iter().position(|byte| is_blank(byte) || *byte == 0)?)
    };
    // A newline behind a 0 is none (strnchr).
    let newline = line.iter().position(|byte| matches!(byte, b'\n' | 0)).filter(|at| line[*at] == b'\n');
    let mut end = match newline {
        Some(at) => at,
        None => {
            // "If there is no later space/tab/NUL we must assume the interpreter path is truncated."
            ends_name(not_blank(0, last, &line)?, last, &line)?;
            last
        }
    };
    while end > 0 && is_blank(&line[end - 1]) {
        end -= 1;
    }
    let name = not_blank(0, end, &line).filter(|at| *at != end)?;
    let separator = ends_name(name, end, &line);
    let argument = separator.filter(|at| line[*at] != 0).and_then(|at| not_blank(at, end, &line));
    line[end] = 0;
    if let (Some(separator), Some(_)) = (separator, argument) {
        line[separator] = 0;
    }
    Some((text(&line[name..]), argument.map(|at| text(&line[at..]))))
}

#[cfg(test)]
mod tests {
    use super::interpreter;

    fn of(text: &[u8]) -> Option<(String, Option<String>)> {
        let string = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        interpreter(text).map(|(name, argument)| (string(name), argument.map(string)))
    }

    fn found(name: &str, argument: Option<&str>) -> Option<(String, Option<String>)> {
        Some((name.into(), argument.map(Into::into)))
    }

    #[test]
    fn a_line_has_a_name_and_one_argument() {
        assert_eq!(of(b"#!/bin/sh\n"), found("/bin/sh", None));
        assert_eq!(of(b"#! \t/bin/sh -e  x \t\nrest"), found("/bin/sh", Some("-e  x")));
        assert_eq!(of(b"#!/bin/sh"), found("/bin/sh", None), "without a newline");
        assert_eq!(of(b"#!/bin/sh \n"), found("/bin/sh", None));
        // Only spaces and tabs are blank.
        assert_eq!(of(b"#!/bin/sh\r\n"), found("/bin/sh\r", None));
        assert_eq!(of(b"#!\n"), None);
        assert_eq!(of(b"#! \t\n"), None);
        assert_eq!(of(b"#!   "), found("", None), "a 0 behind the end of the file ends the name");
    }

    #[test]
    fn a_zero_ends_the_name() {
        assert_eq!(of(b"#!/bin/true\0junk\n"), found("/bin/true", None));
        assert_eq!(of(b"#!/bin/sh -c\0zz\nexit 7\n"), found("/bin/sh", Some("-c")));
    }

    #[test]
    fn a_name_that_might_be_cut_is_none() {
        let long = |name: usize, behind: &str| [b"#!/", &vec![b'y'; name][..], behind.as_bytes()].concat();
        assert_eq!(of(&long(300, "\n")), None);
        assert_eq!(of(&long(252, "\n")), found(&format!("/{}", "y".repeat(252)), None));
        assert_eq!(of(&long(253, "\n")), None, "its newline is not looked at");
        let name = format!("/{}", "y".repeat(100));
        assert_eq!(of(&long(100, &format!(" {}", "z".repeat(400)))), found(&name, Some(&"z".repeat(151))));
    }
}

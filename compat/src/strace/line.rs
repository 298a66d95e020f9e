//! A line of strace(1): whose it is, and the parts of a call.

use super::Answer;

/// What a line is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Entry<'a> {
    /// A whole call.
    Call { process: u32, text: &'a str },
    /// The first half of a call: up to `<unfinished ...>`.
    Begun { process: u32, text: &'a str },
    /// The second half: `<... name resumed>` and what follows.
    Resumed { process: u32, name: &'a str, rest: &'a str },
    /// A process of 32 bits.
    Bits32,
    /// A signal, an end, a word of strace(1) itself.
    Other,
    /// None of these.
    Unread,
}

/// The parts of a call.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its arguments as text.
    pub args: Vec<&'a str>,
    /// How it ended.
    pub answer: Answer,
}

/// Reads a line.
pub(super) fn entry(line: &str) -> Entry<'_> {
    let (process, text) = prefix(line.trim_end());
    if text.is_empty() || text.starts_with("+++ ") || text.starts_with("--- ") || text.starts_with("strace: ")
    {
        return Entry::Other;
    }
    if text.starts_with("[ Process PID=") {
        return if text.contains("runs in 32 bit mode") { Entry::Bits32 } else { Entry::Other };
    }
    if let Some(rest) = text.strip_prefix("<... ") {
        return match rest.split_once(" resumed>") {
            Some((name, rest)) => Entry::Resumed { process, name, rest },
            None => Entry::Unread,
        };
    }
    let name = text.find('(').unwrap_or(0);
    let is_name =
        |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if !is_name(&text[..name]) {
        return Entry::Unread;
    }
    match text.strip_suffix("<unfinished ...>") {
        Some(begun) => Entry::Begun { process, text: begun.trim_end() },
        None => Entry::Call { process, text },
    }
}

/// The process number in front of a line (`[pid 12]`, `12`), without the time that may follow it; 0 for none.
fn prefix(line: &str) -> (u32, &str) {
    let mut process = 0;
    let mut rest = line.trim_start();
    if let Some(after) = rest.strip_prefix("[pid ")
        && let Some((number, after)) = after.split_once(']')
        && let Ok(number) = number.trim().parse()
    {
        (process, rest) = (number, after.trim_start());
    } else if let Some((word, after)) = rest.split_once(' ')
        && let Ok(number) = word.parse()
    {
        (process, rest) = (number, after.trim_start());
    }
    // `12:34:56.789`, `1700000000.123456`, `(+     0.000123)`.
    let is_time = |word: &str| {
        word.bytes().all(|b| b.is_ascii_digit() || matches!(b, b':' | b'.'))
            && word.starts_with(|c: char| c.is_ascii_digit())
    };
    loop {
        if let Some(after) = rest.strip_prefix("(+")
            && let Some((_, after)) = after.split_once(')')
        {
            rest = after.trim_start();
        } else if let Some((word, after)) = rest.split_once(' ')
            && is_time(word)
        {
            rest = after.trim_start();
        } else {
            return (process, rest);
        }
    }
}

/// The parts of `name(arguments) = answer`.
pub(super) fn parts(text: &str) -> Option<Parts<'_>> {
    let (name, rest) = text.split_once('(')?;
    let (args, rest) = arguments(rest)?;
    let answer = rest.trim_start().strip_prefix('=')?.trim_start();
    Some(Parts { name, args, answer: answer_of(answer)? })
}

fn answer_of(text: &str) -> Option<Answer> {
    if text.starts_with('?') {
        return Some(Answer::Unseen);
    }
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-')).unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    if number == "-1"
        && let Some(name) = rest.split_whitespace().next()
        && name.starts_with('E')
    {
        return Some(Answer::Error(bloodhound_abi::Errno::by_name(name).map_or(0, |errno| errno.0)));
    }
    super::argument::integer(number).map(Answer::Value)
}

/// The arguments up to the closing bracket, and what follows it.
fn arguments(text: &str) -> Option<(Vec<&str>, &str)> {
    let bytes = text.as_bytes();
    let (mut args, mut start, mut depth, mut at) = (Vec::new(), 0, 0_u32, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => at = after_string(bytes, at)?,
            b'/' if bytes.get(at + 1) == Some(&b'*') => at += text[at..].find("*/")? + 1,
            b'<' => at = after_decoded(bytes, at),
            b'(' | b'[' | b'{' => depth += 1,
            b')' if depth == 0 => {
                let last = text[start..at].trim();
                if !last.is_empty() {
                    args.push(last);
                }
                return Some((args, &text[at + 1..]));
            }
            b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => {
                args.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The last byte of a string in quotes that begins at `at`.
fn after_string(bytes: &[u8], at: usize) -> Option<usize> {
    let mut at = at + 1;
    while *bytes.get(at)? != b'"' {
        at += 1 + usize::from(bytes[at] == b'\\');
    }
    Some(at)
}

/// The last byte of what `-y` tells of a descriptor, `3</a path>`; `at` itself for a `<` of another kind (`<<`).
fn after_decoded(bytes: &[u8], at: usize) -> usize {
    let begins = at > 0 && (bytes[at - 1].is_ascii_digit() || bytes[at - 1] == b'D');
    if !begins {
        return at;
    }
    // A path may have brackets of its own: the end is followed by what may follow an argument, an element or a field.
    let mut end = at + 1;
    while end < bytes.len() {
        if bytes[end] == b'>' && matches!(bytes.get(end + 1), None | Some(b',' | b')' | b']' | b'}' | b' ')) {
            return end;
        }
        end += 1;
    }
    at
}

//! Lines for which a program has code although the user wrote none there ([`unwritten`]): a line with nothing but brackets, where
//! compilers put what is done at the end of a function or of a scope; in Rust also attributes and definitions of types, to which the
//! code of `#[derive]` belongs.
//!
//! Such lines say nothing about the user's code: what is destroyed at the end of a scope when something went wrong is no line that
//! anybody forgot to test. Neighbour: `build` leaves them out of what is counted, but for the brackets where a function returns.

use std::collections::{BTreeMap, BTreeSet};

/// What a line has that has no code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unwritten {
    /// Nothing but brackets.
    Brackets,
    /// A part of an attribute or of the definition of a type.
    Declaration,
}

/// Such lines of a file, by its name and text.
pub(crate) fn unwritten(path: &str, text: &str) -> BTreeMap<u32, Unwritten> {
    let bracketed = (1..).zip(text.lines()).filter(|(_, line)| {
        let line = line.trim();
        !line.is_empty() && line.chars().all(is_bracket)
    });
    let mut lines: BTreeMap<u32, Unwritten> =
        bracketed.map(|(number, _)| (number, Unwritten::Brackets)).collect();
    if path.ends_with(".rs") {
        lines.extend(rust(text).into_iter().map(|number| (number, Unwritten::Declaration)));
    }
    lines
}

/// Whether a character is a bracket, or what stands between and behind them.
pub(crate) fn is_bracket(c: char) -> bool {
    matches!(c, '{' | '}' | '(' | ')' | '[' | ']' | ';' | ',')
}

/// Lines of Rust that have attributes or parts of the definitions of types and nothing else.
fn rust(text: &str) -> BTreeSet<u32> {
    let mut tokens = Tokens { bytes: text.as_bytes(), at: 0, line: 1 };
    let (mut own, mut others) = (BTreeSet::new(), BTreeSet::new());
    let mut next = tokens.next();
    while let Some(token) = next {
        let following = tokens.next();
        let begin = token.first;
        match (&token.kind, following.as_ref().map(|token| &token.kind)) {
            (Kind::Mark(b'#'), Some(Kind::Mark(b'[' | b'!'))) => {
                let last = tokens.skip(&following, |open, mark| open == 0 && mark == b']');
                own.extend(begin..=last);
                next = tokens.next();
                continue;
            }
            (Kind::Word(b"struct" | b"enum"), _) | (Kind::Word(b"union"), Some(Kind::Word(_))) => {
                let last = tokens.skip(&following, |open, mark| open == 0 && matches!(mark, b';' | b'}'));
                own.extend(begin..=last);
                next = tokens.next();
                continue;
            }
            // Who may use a type is said in front of it.
            (Kind::Word(b"pub"), Some(Kind::Mark(b'('))) => {
                tokens.skip(&following, |open, mark| open == 0 && mark == b')');
                next = tokens.next();
                continue;
            }
            (Kind::Word(b"pub"), _) => {}
            _ => others.extend(begin..=token.last),
        }
        next = following;
    }
    &own - &others
}

/// A token with its lines.
struct Token<'t> {
    kind: Kind<'t>,
    first: u32,
    last: u32,
}

enum Kind<'t> {
    Word(&'t [u8]),
    Mark(u8),
    /// A text, a character or a lifetime.
    Quoted,
}

/// The tokens of Rust (The Rust Reference, "Lexical structure"), as far as it takes to tell brackets from texts and comments.
struct Tokens<'t> {
    bytes: &'t [u8],
    at: usize,
    line: u32,
}

impl<'t> Tokens<'t> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn step(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        self.line += u32::from(byte == b'\n');
        Some(byte)
    }

    /// Goes on behind the mark for which `done` says so of the number of open brackets, from `first` on; gives its line.
    fn skip(&mut self, first: &Option<Token<'t>>, done: impl Fn(u32, u8) -> bool) -> u32 {
        let mut open = 0_u32;
        let mut mark = match first {
            Some(Token { kind: Kind::Mark(mark), .. }) => *mark,
            _ => 0,
        };
        loop {
            match mark {
                b'(' | b'[' | b'{' => open += 1,
                b')' | b']' | b'}' => open = open.saturating_sub(1),
                _ => {}
            }
            if done(open, mark) {
                return self.line;
            }
            mark = match self.next() {
                Some(Token { kind: Kind::Mark(mark), .. }) => mark,
                Some(_) => 0,
                None => return self.line,
            };
        }
    }

    /// Passes over white space and comments.
    fn space(&mut self) {
        loop {
            match (self.peek(0), self.peek(1)) {
                (b' ' | b'\t' | b'\r' | b'\n', _) => drop(self.step()),
                (b'/', b'/') => while !matches!(self.step(), None | Some(b'\n')) {},
                (b'/', b'*') => {
                    let mut open = 0_u32;
                    loop {
                        match (self.peek(0), self.peek(1)) {
                            (b'/', b'*') => open += 1,
                            (b'*', b'/') => open -= 1,
                            _ if self.step().is_none() => return,
                            _ => continue,
                        }
                        self.at += 2;
                        if open == 0 {
                            break;
                        }
                    }
                }
                _ => return,
            }
        }
    }

    fn next(&mut self) -> Option<Token<'t>> {
        self.space();
        let (first, start) = (self.line, self.at);
        let byte = self.step()?;
        let kind = match byte {
            b'"' => self.text(b'"'),
            b'\'' => self.character(),
            _ if in_word(byte) => {
                while in_word(self.peek(0)) {
                    self.at += 1;
                }
                self.prefixed(&self.bytes[start..self.at])
            }
            mark => Kind::Mark(mark),
        };
        Some(Token { kind, first, last: self.line })
    }

    /// A text to its end, with escapes.
    fn text(&mut self, end: u8) -> Kind<'t> {
        while let Some(byte) = self.step() {
            match byte {
                b'\\' => drop(self.step()),
                byte if byte == end => break,
                _ => {}
            }
        }
        Kind::Quoted
    }

    /// Behind `'`: a character, or the name of a lifetime.
    fn character(&mut self) -> Kind<'t> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let length = match rest.first() {
            Some(0xf0..) => 4,
            Some(0xe0..) => 3,
            Some(0xc0..) => 2,
            _ => 1,
        };
        if rest.first() == Some(&b'\\') || rest.get(length) == Some(&b'\'') {
            return self.text(b'\'');
        }
        while in_word(self.peek(0)) {
            self.at += 1;
        }
        Kind::Quoted
    }

    /// A word, or the text that it is the prefix of: `b"..."`, `r#"..."#`.
    fn prefixed(&mut self, word: &'t [u8]) -> Kind<'t> {
        match (word, self.peek(0)) {
            (b"b" | b"c", b'"') | (b"b", b'\'') => {
                let end = self.peek(0);
                self.at += 1;
                self.text(end)
            }
            (b"r" | b"br" | b"cr", b'"' | b'#') => {
                let hashes = self.bytes[self.at..].iter().take_while(|byte| **byte == b'#').count();
                if self.peek(hashes) != b'"' {
                    return Kind::Word(word);
                }
                self.at += hashes + 1;
                while let Some(byte) = self.step() {
                    let closed =
                        |rest: &[u8]| rest.len() >= hashes && rest[..hashes].iter().all(|b| *b == b'#');
                    if byte == b'"' && closed(&self.bytes[self.at..]) {
                        self.at += hashes;
                        break;
                    }
                }
                Kind::Quoted
            }
            _ => Kind::Word(word),
        }
    }
}

fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<u32> {
        unwritten(path, text).into_keys().collect()
    }

    #[test]
    fn brackets_alone_are_no_code_of_anybodys() {
        let text =
            "int f(int n)\n{\n\tif (n) {\n\t\treturn g((int[]){\n\t\t\t1\n\t\t});\n\t} else {\n\t}\n\n}\n";
        assert_eq!(lines("a.c", text), [2, 6, 8, 10]);
    }

    #[test]
    fn types_and_attributes_of_rust_have_no_code_of_the_users() {
        let text = r##"
#![allow(dead_code)]
/// #[derive(Debug)]
#[derive(Debug, Clone)] // struct
pub(crate) struct A<'a> {
    a: &'a [u8; { 3 }],
    b: fn(u8) -> bool, /* } /* } */ */
}
#[derive(
    Debug
)]
enum B { One, Two { n: u8 } }
struct C(u8, u8);
fn f(b: &[u8]) -> u8 {
    #[inline] fn g() { h() }
    let text = r#"struct X { "# ; let c = '{'; let d = '\''; let e = b"struct \" {";
    let union = 1;
    #[cfg(unix)]
    union
}
pub union D {
    a: u8,
}
pub fn i() { "
struct
" }
"##;
        assert_eq!(lines("a.rs", text), [2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 18, 20, 21, 22, 23]);
        assert_eq!(lines("a.c", text), [8, 11, 20, 23]);
    }

    #[test]
    fn what_is_cut_off_is_read_to_its_end() {
        for text in
            ["struct A {", "#[", "#", "/* /* */", "\"", "'", "r#\"", "b'", "pub(", "union", "'\u{20ac}"]
        {
            let _any = unwritten("a.rs", text);
        }
    }
}

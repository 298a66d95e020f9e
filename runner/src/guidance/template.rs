//! Templates of text: what is left of a line of a log, a path or a message when what differs from case to case is taken out.
//!
//! Key types: [`Templates`]. Words with a digit in them, hexadecimal numbers, what stands in double quotes, and names of services become `#`;
//! several of them in a row become one, so that lists of different lengths are alike. Nothing is allocated for a line but in the buffer that is given.

/// Of a line no more than this is looked at.
pub const LONGEST: usize = 400;

/// Makes templates.
#[derive(Clone, Debug, Default)]
pub struct Templates {
    /// Names that stand for one of several nodes, in order.
    names: Vec<Vec<u8>>,
}

impl Templates {
    /// These names are taken out of lines.
    pub fn new(mut names: Vec<Vec<u8>>) -> Templates {
        names.sort_unstable();
        names.dedup();
        Templates { names }
    }

    /// Puts the template of a text into `out`.
    pub fn of(&self, text: &[u8], out: &mut Vec<u8>) {
        out.clear();
        let text = &text[..text.len().min(LONGEST)];
        let mut at = 0;
        while let Some(&byte) = text.get(at) {
            let rest = &text[at..];
            at += match byte {
                0x1b => escape(rest),
                b'"' => match rest[1..].iter().position(|b| *b == b'"') {
                    Some(end) => {
                        hole(out);
                        end + 2
                    }
                    None => 1,
                },
                _ if is_word(byte) => {
                    let len = rest.iter().position(|b| !is_word(*b)).unwrap_or(rest.len());
                    self.word(&rest[..len], out);
                    len
                }
                _ if byte.is_ascii_whitespace() || byte.is_ascii_control() => {
                    if out.last().is_some_and(|last| *last != b' ') {
                        out.push(b' ');
                    }
                    1
                }
                _ => {
                    out.push(byte);
                    1
                }
            };
        }
        while out.last() == Some(&b' ') {
            out.pop();
        }
    }

    fn word(&self, word: &[u8], out: &mut Vec<u8>) {
        let hexadecimal = word.len() >= 8 && word.iter().all(u8::is_ascii_hexdigit);
        let named = || self.names.binary_search_by(|name| name.as_slice().cmp(word)).is_ok();
        if hexadecimal || word.iter().any(u8::is_ascii_digit) || named() {
            hole(out);
        } else {
            out.extend_from_slice(word);
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Something was taken out. It is one with what was taken out right before it, up to two signs before.
fn hole(out: &mut Vec<u8>) {
    let signs = out.iter().rev().take_while(|b| !is_word(**b) && **b != b'#').count();
    if signs <= 2 && out.len() > signs && out[out.len() - signs - 1] == b'#' {
        out.truncate(out.len() - signs);
    } else {
        out.push(b'#');
    }
}

/// The length of an escape sequence of a terminal.
fn escape(text: &[u8]) -> usize {
    if text.get(1) != Some(&b'[') {
        return 1;
    }
    text.iter().skip(2).position(u8::is_ascii_alphabetic).map_or(text.len(), |end| end + 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template(text: &str) -> String {
        let mut out = Vec::new();
        Templates::new(vec![b"alpha".to_vec(), b"beta".to_vec()]).of(text.as_bytes(), &mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn what_differs_is_taken_out() {
        let cases = [
            ("2024-05-01T10:11:12.345Z INFO elected in term 17", "# INFO elected in term #"),
            ("2025-11-26T01:02:03.9Z INFO elected in term 3", "# INFO elected in term #"),
            ("alpha: leader is beta", "#: leader is #"),
            ("peers [10.0.0.1:80, 10.0.0.2:80]", "peers [#]"),
            ("peers []", "peers []"),
            ("got \"a value\" of deadbeef99", "got # of #"),
            ("hash deadbeef", "hash #"),
            ("\u{1b}[32mready\u{1b}[0m  now", "ready now"),
            ("/data/wal-0001.log.tmp", "/data/wal-#.log.tmp"),
            ("a \"quote that does not end", "a quote that does not end"),
            ("", ""),
        ];
        for (text, wanted) in cases {
            assert_eq!(template(text), wanted, "{text}");
        }
    }

    #[test]
    fn any_bytes_have_a_template() {
        let mut out = Vec::new();
        let all: Vec<u8> = (0..=255).chain([0x1b, b'[', b'"']).collect();
        for start in 0..all.len() {
            Templates::default().of(&all[start..], &mut out);
            assert!(out.len() <= LONGEST);
        }
    }
}

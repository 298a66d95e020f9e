//! [`Word`]: a short name in the name of a choice, such as the kind of a fault. Neighbour: `site`, whose names have such parts.

use std::fmt;

/// A short name of small letters, digits and `-`, at most 16 bytes: the kind of a fault, a field of a request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Word([u8; 16]);

impl Word {
    /// The name.
    ///
    /// # Panics
    /// If it is empty, too long or has other characters: names are constants of the program.
    pub const fn new(text: &str) -> Word {
        match Word::checked(text) {
            Some(word) => word,
            None => panic!("a word has 1 to 16 characters of a-z, 0-9 and -"),
        }
    }

    pub(crate) const fn checked(text: &str) -> Option<Word> {
        let bytes = text.as_bytes();
        if bytes.is_empty() || bytes.len() > 16 {
            return None;
        }
        let mut word = [0; 16];
        let mut at = 0;
        while at < bytes.len() {
            if !matches!(bytes[at], b'a'..=b'z' | b'0'..=b'9' | b'-') {
                return None;
            }
            word[at] = bytes[at];
            at += 1;
        }
        Some(Word(word))
    }

    pub(crate) fn bytes(self) -> [u8; 16] {
        self.0
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        let len = self.0.iter().position(|byte| *byte == 0).unwrap_or(16);
        std::str::from_utf8(&self.0[..len]).unwrap_or_default()
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

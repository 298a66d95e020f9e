//! Fixed sets of words, of which a file writes one.

/// A fixed set of words.
#[derive(Debug)]
pub struct Words {
    /// Name of its definition in the JSON schema; also of the mark above its table in the manual, if there is one.
    pub name: &'static str,
    /// The words in the order of messages.
    pub words: &'static [Word],
}

/// One of a set of words.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// As written in the file.
    pub text: &'static str,
    /// What it means; may be empty where the word says it.
    pub doc: &'static str,
    /// Whether it has no effect yet.
    pub later: bool,
}

impl Word {
    /// A word with its meaning.
    pub const fn new(text: &'static str, doc: &'static str) -> Word {
        Word { text, doc, later: false }
    }

    /// The word has no effect yet.
    pub const fn later(self) -> Word {
        Word { later: true, ..self }
    }
}

impl Words {
    /// The words as texts.
    pub fn texts(&self) -> Vec<&'static str> {
        self.words.iter().map(|word| word.text).collect()
    }
}

/// An enum with a word for each of its values; made by [`words!`](crate::words).
pub trait Choice: Copy + 'static {
    /// Its words.
    const WORDS: &'static Words;
    /// Its values, in the order of the words.
    const ALL: &'static [Self];
}

/// Declares an enum whose values are words of the file, with the meaning of each.
///
/// ```
/// bloodhound_declare::words! {
///     /// The model of a check.
///     pub enum Model as "Model" {
///         Kv = "kv": "a map of registers",
///         Register = "register": "one register",
///     }
/// }
/// assert_eq!(Model::Kv.as_str(), "kv");
/// assert_eq!(Model::WORDS.texts(), ["kv", "register"]);
/// ```
#[macro_export]
macro_rules! words {
    ($(#[$meta:meta])* $vis:vis enum $name:ident as $definition:literal {
        $($value:ident = $word:literal: $doc:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        $vis enum $name { $(#[doc = $doc] $value,)* }

        impl $name {
            /// The words of the file with their meanings.
            pub const WORDS: &'static $crate::Words = &$crate::Words {
                name: $definition,
                words: &[$($crate::Word::new($word, $doc),)*],
            };

            /// Every value, in the order of the words.
            pub const ALL: &'static [$name] = &[$($name::$value,)*];

            /// The word in the file.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$value => $word,)* }
            }
        }

        impl $crate::Choice for $name {
            const WORDS: &'static $crate::Words = $name::WORDS;
            const ALL: &'static [$name] = $name::ALL;
        }
    };
}

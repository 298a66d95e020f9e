//! Which values a key takes, with their bounds.

use crate::{Section, Words};

/// Which values a key takes. Bounds include their ends; they are texts where a file would have a decimal or a unit.
#[derive(Clone, Copy, Debug)]
pub enum ValueKind {
    /// `true` or `false`.
    Bool,
    /// A string, which may be empty.
    Text,
    /// A string that is not empty; what it is, as the manual's type ("service").
    Name(&'static str),
    /// A string that is not empty: a file or directory, relative to the directory of the file that names it.
    Path,
    /// The text of any scalar: numbers and booleans count as written.
    Scalar,
    /// A whole number.
    Integer {
        /// Smallest.
        least: u64,
        /// Largest; `u64::MAX`: no bound that is worth a word.
        most: u64,
    },
    /// A decimal with at most three places, as a whole number of thousandths.
    Decimal {
        /// Smallest.
        least: &'static str,
        /// Largest.
        most: &'static str,
    },
    /// A share of packets, calls or the like: a decimal from 0 to `most` in parts per billion.
    Rate {
        /// Largest.
        most: &'static str,
    },
    /// A decimal from 0 to 1, drawn once per time step.
    Probability {
        /// For what it is drawn each time ("node"); empty: once for the whole simulation.
        per: &'static str,
    },
    /// A duration with its unit.
    Duration(Shortest),
    /// A number of milliseconds without a unit.
    Millis,
    /// Shortest and longest in milliseconds; one number stands for both.
    MillisRange,
    /// Smallest and largest share in parts per million, up to half; one number stands for both. Read as parts per billion.
    PpmRange,
    /// One word out of a fixed set.
    Word(&'static Words),
    /// The one word that the key of this name must have in this section (see [`Variants`]).
    Tag(&'static str),
    /// A mapping.
    Section(&'static Section),
    /// A mapping whose keys depend on the word at one of them.
    Variants(&'static Variants),
    /// A list, which may be empty.
    List(&'static ValueKind),
    /// A list with at least one item; what it must do, as in "must have at least one address".
    NonEmpty(&'static ValueKind, &'static str),
    /// A value with a form of its own, which the decoder of the section reads.
    Own(&'static Syntax),
}

/// The shortest duration that a key takes.
#[derive(Clone, Copy, Debug)]
pub enum Shortest {
    /// No time at all.
    Zero,
    /// Anything longer than nothing.
    Positive,
    /// A duration, and why it is not shorter.
    Of {
        /// The shortest duration.
        least: &'static str,
        /// What is too short, for the message ("the time step").
        what: &'static str,
        /// Why there is a bound.
        why: &'static str,
    },
}

/// A mapping whose keys depend on the word at the key `tag`.
#[derive(Debug)]
pub struct Variants {
    /// Name of its definition in the JSON schema.
    pub name: &'static str,
    /// What it is about.
    pub doc: &'static str,
    /// The key that decides.
    pub tag: &'static str,
    /// The words at that key.
    pub words: &'static Words,
    /// The section of each word, in the same order.
    pub sections: &'static [&'static Section],
}

/// A value with a form of its own.
#[derive(Debug)]
pub struct Syntax {
    /// Name of its definition in the JSON schema; empty: the schema stands at each key.
    pub name: &'static str,
    /// How the manual calls it ("address").
    pub written: &'static str,
    /// How the manual calls several of it ("addresses").
    pub plural: &'static str,
    /// What it looks like; empty if `written` says so.
    pub doc: &'static str,
    /// Its JSON schema as JSON text, without title and description.
    pub schema: &'static str,
    /// Other forms that the schema refers to by name.
    pub uses: &'static [&'static Syntax],
}

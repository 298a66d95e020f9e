//! What searches and campaigns keep on disk, so that the next one goes on from it; and what their runs say about what is not yet seen.
//!
//! A [`Corpus`] is a directory with interesting runs, one small file each ([`Entry`]), named by a hash of its content: two processes that use
//! one directory cannot disturb each other. A [`Search`] is one search in it, an append-only journal of its steps under a lock, from which
//! it goes on after Ctrl-C, `kill -9` or a full disk: what was announced is in it. [`Growth`] counts features of runs: its growth
//! curve, whether it has reached a plateau, and an [`Estimate`] of what is not seen.
//!
//! Every file is written under a temporary name, brought to the disk and renamed, or is a journal whose records have lengths and checksums. So
//! what a reader sees is whole, or is recognised as damaged and said to be so by its name; nothing damaged is thrown away.
//!
//! Modules: `entry` one run, `corpus` the directory, `entry_files` its files for whoever brings them elsewhere, `cover` which entries are enough, `journal` records, `search` the state of a search, `files`
//! files and locks, `estimate`. This crate knows logs of runs (`bloodhound_decisions::Log`), and neither worlds nor campaigns: what a feature
//! is, its user says. Neighbours: `runner/src/corpus/`, `runner/src/explore/journal.rs`.

mod corpus;
mod cover;
mod entry;
mod entry_files;
mod error;
mod estimate;
mod files;
mod journal;
mod search;

pub use corpus::{Added, Corpus, Kept, Note, Trimmed};
pub use entry::{Entry, Identity};
pub use entry_files::{EntryFiles, about, is_entry, is_of_this_version};
pub use error::{Error, ErrorKind};
pub use estimate::{Estimate, Growth, LEAST_RUNS, Plateau, Told};
pub use search::Search;

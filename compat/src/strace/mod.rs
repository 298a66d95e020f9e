//! Logs of strace(1): [`read`] tells what the traced programs asked for, in a [`Trace`].
//!
//! Modules: `line` (a line's parts), `argument` (what an argument's text says), `follow` (descriptors and directories of processes).

mod argument;
mod follow;
mod line;

use std::collections::BTreeMap;

use crate::request::Request;
use follow::Followed;
use line::{Entry, Parts};

/// Lines that could not be read are kept up to so many.
const UNREAD_KEPT: usize = 5;

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// With a value.
    Value(u64),
    /// With an error, by its name's number; 0 for one that has no number here.
    Error(u16),
    /// Nobody saw it: the process ended within it, or it never returns.
    Unseen,
}

/// Where and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The line on which it is first, from 1.
    pub line: usize,
    /// How often.
    pub times: u64,
}

/// What a log says.
#[derive(Debug, Default)]
pub struct Trace {
    /// Requests that succeeded, and those that failed with their error, each with where it is first.
    pub requests: BTreeMap<(Request, Outcome), Seen>,
    /// Calls that Bloodhound's table does not have, by name.
    pub unknown: BTreeMap<String, Seen>,
    /// Absolute paths of files that were there when the program wanted them, and that it did not make itself.
    pub files: BTreeMap<Vec<u8>, Seen>,
    /// Addresses of others that it connected to: of the internet, as `10.0.0.1:80`, and of unix sockets, as paths.
    pub peers: BTreeMap<String, Seen>,
    /// Constants without a known value, in calls that they may change.
    pub constants: BTreeMap<String, Seen>,
    /// Some of the lines that are none of strace(1)'s.
    pub unread: Vec<(usize, String)>,
    /// How many of these there are.
    pub unread_lines: u64,
    /// Calls that were read.
    pub calls: u64,
    /// Paths relative to a directory that the log does not tell.
    pub relative: u64,
    /// The first line that says that a program of 32 bits ran.
    pub bits_32: Option<usize>,
}

/// The same without the value, which differs from call to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// It did what was asked.
    Success,
    /// The error's number.
    Error(u16),
    /// Nobody saw it.
    Unseen,
}

/// Notes one more.
fn count<K: Ord>(map: &mut BTreeMap<K, Seen>, key: K, line: usize) {
    map.entry(key).or_insert(Seen { line, times: 0 }).times += 1;
}

/// Reads a log, of `strace -f -o FILE` or of one process; times, process numbers and decoded descriptors (`-t`, `-f`, `-y`) may be in it.
/// `directory` is the one in which the program began, if that is known.
pub fn read(text: &str, directory: Option<&str>) -> Trace {
    let mut trace = Trace::default();
    let mut followed = Followed::new(directory);
    // Calls whose second half is on a later line, by process.
    let mut open: BTreeMap<u32, String> = BTreeMap::new();
    for (index, text) in text.lines().enumerate() {
        let line = index + 1;
        match line::entry(text) {
            Entry::Call { process, text } => match line::parts(text) {
                Some(parts) => followed.call(&mut trace, process, line, &parts),
                None => unread(&mut trace, line, text),
            },
            Entry::Begun { process, text } => {
                followed.begin(process, text);
                open.insert(process, text.to_owned());
            }
            Entry::Resumed { process, name, rest } => {
                let whole = match open.remove(&process) {
                    Some(begun) if begun.starts_with(name) => begun + rest,
                    // The log begins within it.
                    _ => continue,
                };
                match line::parts(&whole) {
                    Some(parts) => followed.call(&mut trace, process, line, &parts),
                    None => unread(&mut trace, line, text),
                }
            }
            Entry::Bits32 => drop(trace.bits_32.get_or_insert(line)),
            Entry::Other => {}
            Entry::Unread => unread(&mut trace, line, text),
        }
    }
    // Those that a process was in when it ended.
    for (process, begun) in open {
        if let Some(parts) = line::parts(&format!("{begun}) = ?")) {
            let Parts { name, .. } = &parts;
            if !matches!(*name, "exit" | "exit_group") {
                followed.call(&mut trace, process, 0, &parts);
            }
        }
    }
    trace
}

/// Whether a text looks as if strace(1) had written it: one of its first lines is a call.
pub fn looks_like(text: &str) -> bool {
    text.lines().take(50).any(|text| match line::entry(text) {
        Entry::Call { text, .. } => line::parts(text).is_some(),
        _ => false,
    })
}

fn unread(trace: &mut Trace, line: usize, text: &str) {
    trace.unread_lines += 1;
    if trace.unread.len() < UNREAD_KEPT {
        trace.unread.push((line, text.chars().take(200).collect()));
    }
}

#[cfg(test)]
mod tests;

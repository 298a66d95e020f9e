//! A system call as it is asked for: [`Request`].

use bloodhound_abi::args::ArgKind;
use bloodhound_abi::table::{self, SyscallInfo};

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// A number, a constant, or NULL.
    Number(u64),
    /// The address of bytes.
    Bytes(Vec<u8>),
    /// What nobody can tell: a structure, a register without a known value.
    Unknown,
}

/// What a descriptor stands for, as the way to make another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Object {
    /// Standard input, output or error.
    Standard,
    /// open(2) of an absolute path with these flags.
    Path(Vec<u8>, u64),
    /// socket(2): domain, type, protocol.
    Socket(u64, u64, u64),
    /// One of a socketpair(2): domain, type, protocol.
    Pair(u64, u64, u64),
    /// The end of a pipe(2) to read from.
    PipeOut,
    /// The end of a pipe(2) to write to.
    PipeIn,
    /// What a call with no other arguments than numbers gives: its number and arguments.
    Made(u64, Vec<Value>),
    /// The program did not say where it comes from.
    Unknown,
}

/// A system call with what decides about its answer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Request {
    /// Its number.
    pub nr: u64,
    /// Its arguments; those that are left out are unknown.
    pub args: Vec<Value>,
    /// What its first descriptor stands for, if it has one.
    pub object: Option<Object>,
    /// The arguments that choose what is done, as text.
    pub options: String,
}

impl Request {
    /// The table's line.
    pub fn info(&self) -> Option<&'static SyscallInfo> {
        table::info(self.nr)
    }

    /// As people write it: `setsockopt(SOL_SOCKET, SO_DEBUG)`.
    pub fn text(&self) -> String {
        let name = self.info().map_or("an unknown call", |info| info.name);
        if self.options.is_empty() { name.to_owned() } else { format!("{name}({})", self.options) }
    }
}

/// Whether an argument chooses what a call does, rather than with what.
pub fn selects(name: &str, kind: ArgKind) -> bool {
    const NUMBERS: [&str; 16] = [
        "level", "name", "cmd", "option", "domain", "kind", "protocol", "advice", "clock", "resource",
        "which", "whence", "how", "policy", "op", "code",
    ];
    match kind {
        ArgKind::Flags(_) | ArgKind::Hex => true,
        ArgKind::U32 | ArgKind::I32 => NUMBERS.contains(&name),
        // Those of prctl(2).
        ArgKind::U64 => matches!(name, "a2" | "a3" | "a4" | "a5"),
        _ => false,
    }
}

/// The places of those arguments of a call.
pub fn selectors(info: &SyscallInfo) -> impl Iterator<Item = usize> {
    let selecting = |(place, (name, kind)): (usize, &(&str, ArgKind))| selects(name, *kind).then_some(place);
    info.args.iter().enumerate().filter_map(selecting)
}

/// The number of a call that Bloodhound's table has by this name.
pub fn number(name: &str) -> Option<u64> {
    // Names that strace(1) and C libraries have for calls.
    let name = match name {
        "pread" => "pread64",
        "pwrite" => "pwrite64",
        "fstatat64" | "fstatat" => "newfstatat",
        "prlimit" => "prlimit64",
        "fadvise" => "fadvise64",
        "umount" => "umount2",
        "sendfile64" => "sendfile",
        name => name,
    };
    table::TABLE.iter().find(|info| info.name == name).map(|info| info.nr)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_chooses_is_told_from_what_is_moved() {
        let places = |name: &str| {
            let info = table::info(number(name).expect("a call")).expect("its line");
            selectors(info).collect::<Vec<_>>()
        };
        assert_eq!(places("setsockopt"), [1, 2]);
        assert_eq!(places("read"), Vec::<usize>::new());
        assert_eq!(places("openat"), [2]);
        assert_eq!(places("mmap"), [2, 3]);
        assert_eq!(places("prctl"), [0, 1, 2, 3, 4]);
        assert_eq!(places("fcntl"), [1]);
    }
}

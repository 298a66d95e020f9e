//! A system call as data: [`Call`], made from the one list of [`crate::table`].
//!
//! A call is decoded once, at its trap; a call that sleeps keeps its `Call` and never looks at registers again.

use crate::args::{ArgKind, Argument, Fd, Hex, Path, Ptr};
use crate::flags::*;

/// An argument of a call, for printing it and for the digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// Its name in the list.
    pub name: &'static str,
    /// What it is.
    pub kind: ArgKind,
    /// The value that the argument's type keeps of the register; numbers with a sign are extended.
    pub value: u64,
}

/// The arguments of a call in order: an iterator that allocates nothing.
#[derive(Clone, Debug)]
pub struct Arguments {
    given: [Given; 6],
    next: usize,
    len: usize,
}

impl Arguments {
    fn new() -> Arguments {
        Arguments { given: [Given { name: "", kind: ArgKind::U64, value: 0 }; 6], next: 0, len: 0 }
    }

    fn push<T: Argument>(&mut self, name: &'static str, value: T) {
        self.given[self.len] = Given { name, kind: T::KIND, value: value.to_reg() };
        self.len += 1;
    }
}

impl Iterator for Arguments {
    type Item = Given;

    fn next(&mut self) -> Option<Given> {
        let given = (self.next < self.len).then(|| self.given[self.next])?;
        self.next += 1;
        Some(given)
    }
}

macro_rules! make_call {
    ($([$nr:literal $name:ident ($($arg:ident : $kind:ident),*) $status:ident $($errno:ident)? $note:literal])*) => {
        /// A system call with its arguments; every variant has the name of its call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        // The variants are the names of calls as syscalls(2) has them; the table documents them and their arguments.
        #[allow(non_camel_case_types, missing_docs)]
        pub enum Call {
            $($name { $($arg: $kind),* },)*
            /// A number that Linux does not define.
            Unknown { nr: u64, args: [u64; 6] },
        }

        impl Call {
            /// Decodes the number and the six argument registers (syscall(2), table "x86-64").
            pub fn decode(nr: u64, args: [u64; 6]) -> Call {
                #[allow(unused_mut, unused_variables)] // calls without arguments read no register
                let mut regs = args.into_iter();
                match nr {
                    $($nr => Call::$name { $($arg: <$kind>::from_reg(regs.next().unwrap_or(0))),* },)*
                    nr => Call::Unknown { nr, args },
                }
            }

            /// The number in rax.
            pub fn nr(&self) -> u64 {
                match self {
                    $(Call::$name { .. } => $nr,)*
                    Call::Unknown { nr, .. } => *nr,
                }
            }

            /// The name as in syscalls(2).
            pub fn name(&self) -> &'static str {
                match self {
                    $(Call::$name { .. } => stringify!($name),)*
                    Call::Unknown { .. } => "unknown",
                }
            }

            /// The arguments with their names and kinds.
            pub fn arguments(&self) -> Arguments {
                let mut all = Arguments::new();
                match *self {
                    $(Call::$name { $($arg),* } => { $(all.push(stringify!($arg), $arg);)* })*
                    Call::Unknown { args, .. } => {
                        for value in args {
                            all.push("arg", value);
                        }
                    }
                }
                all
            }
        }
    };
}

crate::syscalls!(make_call);

impl Call {
    /// The table's line of the call, if Linux defines it.
    pub fn info(&self) -> Option<&'static crate::table::SyscallInfo> {
        crate::table::info(self.nr())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::TABLE;

    #[test]
    fn every_call_keeps_its_number_name_and_arguments() {
        for entry in TABLE {
            let call = Call::decode(entry.nr, [1, 2, 3, 4, 5, 6]);
            assert_eq!((call.nr(), call.name()), (entry.nr, entry.name));
            let given: Vec<_> = call.arguments().map(|a| (a.name, a.kind)).collect();
            assert_eq!(given, entry.args, "{}", entry.name);
            let values: Vec<_> = call.arguments().map(|a| a.value).collect();
            assert_eq!(values, (1..=entry.args.len() as u64).collect::<Vec<_>>(), "{}", entry.name);
        }
    }

    #[test]
    fn arguments_have_the_types_of_the_prototype() {
        let call = Call::decode(257, [0xffff_ff9c, 0x1000, 0x1_0008_0042, 0o600, 0, 0]);
        let flags = OpenFlags::O_CREAT | OpenFlags::O_RDWR | OpenFlags::O_CLOEXEC;
        assert_eq!(call, Call::openat { dirfd: Fd(-100), path: Path(0x1000), flags, mode: 0o600 });
        assert_eq!(call.arguments().next().map(|a| a.value), Some(-100i64 as u64));
    }

    #[test]
    fn a_number_without_a_call_keeps_its_registers() {
        let call = Call::decode(9999, [1, 2, 3, 4, 5, 6]);
        assert_eq!(call, Call::Unknown { nr: 9999, args: [1, 2, 3, 4, 5, 6] });
        assert_eq!((call.name(), call.info().is_none(), call.arguments().count()), ("unknown", true, 6));
    }
}

//! The types of system-call arguments: what a register becomes when a call is decoded ([`Argument`]).
//!
//! Neighbours: [`crate::flags`] has the bit sets, [`crate::table`] says which call takes what, [`crate::call`] decodes.

use crate::names::Names;

/// How an argument is printed, and what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// A file descriptor.
    Fd,
    /// A user-space address.
    Ptr,
    /// The address of a NUL-terminated string, printed as its text.
    Path,
    /// A bit set; the table has the names of the bits.
    Flags(Names),
    /// A command number or a bit set without names, printed in hexadecimal.
    Hex,
    /// A signed 32-bit number.
    I32,
    /// An unsigned 32-bit number.
    U32,
    /// A signed 64-bit number.
    I64,
    /// An unsigned 64-bit number.
    U64,
}

/// A type that the register of a system-call argument is decoded to.
pub trait Argument: Copy {
    /// How it is printed.
    const KIND: ArgKind;

    /// Takes what the C prototype's type keeps of the register.
    fn from_reg(reg: u64) -> Self;

    /// The value as a register holds it; numbers with a sign are extended.
    fn to_reg(self) -> u64;
}

/// A file descriptor argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fd(pub i32);

/// A user-space address argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ptr(pub u64);

impl Ptr {
    /// NULL.
    pub fn is_null(self) -> bool {
        self.0 == 0
    }
}

/// A path (or other string) argument: the address of a NUL-terminated string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path(pub u64);

/// A 32-bit command number, or a bit set of which no bit has a meaning here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hex(pub u64);

macro_rules! arguments {
    ($($ty:ty: $kind:ident, $from:expr, $to:expr;)*) => { $(
        impl Argument for $ty {
            const KIND: ArgKind = ArgKind::$kind;

            fn from_reg(reg: u64) -> Self {
                let from: fn(u64) -> $ty = $from;
                from(reg)
            }

            fn to_reg(self) -> u64 {
                let to: fn($ty) -> u64 = $to;
                to(self)
            }
        }
    )* };
}

arguments! {
    Fd: Fd, |r| Fd(r as i32), |v| i64::from(v.0) as u64;
    Ptr: Ptr, Ptr, |v| v.0;
    Path: Path, Path, |v| v.0;
    Hex: Hex, |r| Hex(r & 0xffff_ffff), |v| v.0;
    i32: I32, |r| r as i32, |v| i64::from(v) as u64;
    u32: U32, |r| r as u32, u64::from;
    i64: I64, |r| r as i64, |v| v as u64;
    u64: U64, |r| r, |v| v;
}

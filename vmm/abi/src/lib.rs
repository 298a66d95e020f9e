//! The Linux x86-64 application binary interface as data: error numbers, constants, structures, the
//! system-call table, calls as data, and virtual time. Everything here is pure; neighbours are `net` and `kernel`, which give
//! it behaviour.

pub mod args;
pub mod call;
pub mod consts;
pub mod digest;
pub mod errno;
pub mod exception;
pub mod flags;
pub mod instructions;
pub mod names;
pub mod regs;
pub mod structs;
pub mod table;
pub mod time;

pub use errno::Errno;
pub use exception::{Access, Exception};
pub use regs::{Regs, USER_RFLAGS};
pub use time::SimTime;
